"""Tables: CSV, JSON Lines, Excel and Parquet, to every command and reader that takes them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.engine import Case, Surface, command
from tests.fuzz.mutators import (
    Rows,
    mutate_bytes,
    mutate_rows,
    odd_value,
    packed,
    word,
    write_rows,
)

RESAMPLES = 20
CASES = 12


def texts() -> dict[str, str]:
    """Valid tables by what they hold."""
    number = range(CASES)
    p = [0.08 + 0.07 * i for i in number]
    words = ["no", "yes"]
    return {
        "plain": "p,label\n" + "".join(f"{p[i]:.3f},{int(i > 5)}\n" for i in number),
        "full": "id,p,label,votes,n_raters,group,stratum,split,p_reader,p_split\n"
        + "".join(
            f"c{i},{p[i]:.3f},{int(i > 5)},{1 + 3 * int(i > 5)},5,g{i // 2},s{i % 2},test,0.{3 + i % 4},0.2\n"
            for i in number
        ),
        "classes": "id,p_a,p_b,p_c,label,votes_a,votes_b,votes_c\n"
        + "".join(f"c{i},0.2,0.3,0.5,{'abc'[i % 3]},{i % 2},1,2\n" for i in number),
        "words": "id;p;label;group\n"
        + "".join(f"c{i};0,{2 + i % 6};{words[i % 2]};g{i}\n" for i in number),
        "votes": "id,rater,label\n"
        + "".join(f"c{i},r{r},{(i + r) % 2}\n" for i in number for r in range(3)),
        "counts": "id,votes,n_raters\n" + "".join(f"c{i},{i % 4},3\n" for i in number),
        "labels": "id,label,group,split\n"
        + "".join(f"c{i},{i % 2},g{i // 2},train\n" for i in number),
        "features": "id,f0,f1,f2,label\n"
        + "".join(f"c{i},{p[i]:.3f},{i / 7:.3f},-1.5,{i % 2}\n" for i in number),
        "images": "path,label,votes,n_raters,group,split\n"
        + "".join(f"t{i}.png,{i % 2},{3 * (i % 2)},3,g{i // 2},test\n" for i in range(4)),
    }


PREDICTIONS = ("plain", "full", "classes", "words")


def _prepare_texts(folder: Path) -> dict[str, Any]:
    from tests.fuzz.documents import make_calibrator, make_probe

    written = texts()
    for i in range(4):
        _tile(folder / f"t{i}.png", i)
    for name, text in written.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    rows: dict[str, Rows] = {
        name: list(csv.reader(io.StringIO(text), delimiter=";" if name == "words" else ","))
        for name, text in written.items()
    }
    raw = {name: text.encode() for name, text in written.items()}
    return {
        "folder": folder,
        "rows": rows,
        "raw": raw,
        "probe": make_probe(folder / "probe"),
        "calibrator": make_calibrator(folder / "calibrator.json"),
    }


def _tile(path: Path, number: int) -> None:
    from PIL import Image

    Image.new("RGB", (4, 4), (number, 100, 200)).save(path)


def call_table(rng: Random, kind: str, file: Path, seeds: Path, out: Path) -> Callable[[], object]:
    """A call that reads a table: mostly a reader, at times a command."""
    from scalecal.evaluation.audits import audit_predictions
    from scalecal.evaluation.stream import stream_file
    from scalecal.io import read_common_predictions, read_predictions, read_votes
    from scalecal.io.features import read_features

    heavy = rng.random()
    usual = ("--resamples", RESAMPLES)
    if kind in PREDICTIONS:
        options: dict[str, Any] = {"positive": "yes"} if kind == "words" else {}
        given = ("--positive", "yes") if kind == "words" else ()
        if heavy < 0.003:
            return partial(command, "audit", file, *usual, *given, "--out", out)
        if heavy < 0.004:
            method = rng.choice(("temperature", "platt", "none"))
            more = (*usual, *given, "--method", method)
            return partial(command, "calibrate", file, *more, "--out", out)
        if heavy < 0.01:
            line = ("--apply", seeds / "calibrator.json", "--resamples", RESAMPLES)
            return partial(command, "calibrate", file, *line)
        if heavy < 0.025:
            more = (
                *usual,
                *given,
                *rng.choice(((), ("--stream",), ("--json",), ("--prevalence", 0.1))),
            )
            return partial(command, "audit", file, *more)
        if heavy < 0.03:
            return partial(command, "audit", file, seeds / "full.csv", *usual, *given)
        if heavy < 0.045:
            return partial(stream_file, file, n_resamples=RESAMPLES, **options)
        if heavy < 0.06:
            return lambda: audit_predictions(
                read_predictions(file, **options), n_resamples=RESAMPLES
            )
        if heavy < 0.10:
            return lambda: read_common_predictions([file, seeds / "full.csv"], **options)
        if heavy < 0.20:
            options["ties"] = rng.choice(("first", "drop", "random", "last"))
            options["group_regex"] = rng.choice((None, r"^(\w)", r"c(\d+)"))
            options["split"] = rng.choice((None, None, "test"))
        return lambda: read_predictions(file, **options)
    if kind in ("votes", "counts"):
        if heavy < 0.02:
            return partial(command, "audit", seeds / "full.csv", "--votes", file, *usual)
        if heavy < 0.2:
            return lambda: read_predictions(seeds / "plain.csv", votes=file)
        return lambda: read_votes(file)
    if kind == "labels":
        if heavy < 0.1:
            line = ("--labels", file, "--out", out)
            return partial(command, "import", seeds / "features.csv", *line)
        return lambda: read_features(seeds / "features.csv", labels=file)
    if kind == "features":
        if heavy < 0.1:
            return partial(command, "import", file, "--out", out)
        if heavy < 0.15:
            return partial(command, "predict", seeds / "probe", file, "--out", out / "p.csv")
        return lambda: read_features(file)
    if heavy < 0.1:
        return partial(command, "check", f"table:{file}", "--data", seeds)
    from scalecal.datasets import open_dataset

    return lambda: open_dataset(f"table:{file}", seeds).describe()


def _draw_csv(rng: Random, seeds: Any, folder: Path) -> Case:
    kind = rng.choice((*seeds["raw"], "full", "full"))
    suffix = rng.choice((".csv", ".csv", ".csv", ".csv", ".tsv", ".txt", ".csv.gz"))
    if rng.random() < 0.3:
        data = mutate_bytes(rng, seeds["raw"][kind], list(seeds["raw"].values()))
    else:
        data = write_rows(rng, mutate_rows(rng, seeds["rows"][kind]))
        if rng.random() < 0.1:
            data = mutate_bytes(rng, data)
    if suffix.endswith(".gz"):
        data = packed(rng, data)
    file = folder / f"given{suffix}"
    file.write_bytes(data)
    return Case(call_table(rng, kind, file, seeds["folder"], folder / "out"), _NAMES, kind)


_NAMES = ("given", "out", "full.csv", "plain.csv", "features.csv")


# JSON Lines and Excel


def _prepare_sheets(folder: Path) -> dict[str, Any]:
    import openpyxl

    seeds = _prepare_texts(folder)
    sheets = {}
    for kind in ("full", "classes", "votes", "labels", "features"):
        book = openpyxl.Workbook()
        for row in seeds["rows"][kind]:
            book.active.append([_number(cell) for cell in row])
        buffer = io.BytesIO()
        book.save(buffer)
        sheets[kind] = buffer.getvalue()
    return seeds | {"sheets": sheets}


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def _draw_sheet(rng: Random, seeds: Any, folder: Path) -> Case:
    kind = rng.choice(list(seeds["sheets"]))
    if rng.random() < 0.75:
        file = folder / rng.choice(("given.jsonl", "given.jsonl", "given.ndjson", "given.jsonl.gz"))
        data = _json_lines(rng, seeds["rows"][kind])
        if file.suffix == ".gz":
            data = packed(rng, data)
    else:
        file = folder / rng.choice(("given.xlsx", "given.xlsx", "given.xlsm", "given.xls"))
        data = _sheet(rng, seeds, kind)
    file.write_bytes(data)
    return Case(call_table(rng, kind, file, seeds["folder"], folder / "out"), _NAMES, kind)


def _json_lines(rng: Random, rows: Rows) -> bytes:
    header, *body = rows
    records: list[Any] = [dict(zip(header, map(_number, row), strict=False)) for row in body]
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(records))
        key = rng.choice(header)
        if not isinstance(records[at], dict) or rng.random() < 0.15:
            records[at] = odd_value(rng)
        elif rng.random() < 0.6:
            records[at][key] = odd_value(rng)
        elif rng.random() < 0.5:
            records[at].pop(key, None)
        else:
            records[at][word(rng)] = odd_value(rng)
    if rng.random() < 0.1:
        key, value = rng.choice(header), odd_value(rng)
        records = [{**r, key: value} if isinstance(r, dict) else r for r in records]
    lines = [json.dumps(r, ensure_ascii=rng.random() < 0.5) for r in records]
    if rng.random() < 0.1:
        lines.insert(
            rng.randrange(len(lines)),
            rng.choice(("", " ", "#", "{", "[" * 5000, "nul", '{"p":1,"p":2}')),
        )
    data = "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"
    return mutate_bytes(rng, data) if rng.random() < 0.3 else data


def _sheet(rng: Random, seeds: Any, kind: str) -> bytes:
    sheets = seeds["sheets"]
    if rng.random() < 0.5:
        return mutate_bytes(rng, sheets[kind], list(sheets.values()))
    return _zip_member(rng, sheets[kind])


def _zip_member(rng: Random, data: bytes) -> bytes:
    """Damage one member of a zip archive, and pack it again."""
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, "w") as new:
        names = archive.namelist()
        chosen = rng.choice([n for n in names if "sheet" in n or "Strings" in n] + names)
        for name in names:
            content = archive.read(name)
            if name == chosen:
                if rng.random() < 0.2:
                    continue
                content = _xml(rng, content) if rng.random() < 0.6 else mutate_bytes(rng, content)
            new.writestr(name, content)
    return out.getvalue()


def _xml(rng: Random, content: bytes) -> bytes:
    """Change what a cell of a sheet says: its type, its place, its value."""
    changes = (
        (b't="n"', rng.choice((b't="s"', b't="b"', b't="e"', b't="d"', b't="x"', b"", b't="str"'))),
        (b't="s"', rng.choice((b't="n"', b't="inlineStr"', b't="e"', b't="d"', b't="b"'))),
        (b'r="B2"', rng.choice((b'r="B1048576"', b'r="XFD2"', b'r="2B"', b'r=""', b'r="ZZZZ1"'))),
        (b'r="2"', rng.choice((b'r="1048576"', b'r="0"', b'r="-1"', b'r="99999999999"', b'r="1"'))),
        (b"<v>0</v>", b"<v>%s</v>" % word(rng).encode("utf-8", "replace").replace(b"<", b"")),
        (b"<v>", rng.choice((b"<f>1+1</f><v>", b"<v>9", b"<v>-", b"<v>1e"))),
        (b"<si>", rng.choice((b"<si/><si>", b"<si><t>x</t>", b""))),
        (b"<dimension ref=", rng.choice((b"<dimension x=", b'<dimension ref="A1:XFD1048576" x='))),
        (b"<?xml", b'<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;&a;">]><?xml'),
    )
    old, new = rng.choice(changes)
    return content.replace(old, new, rng.choice((1, 1, -1)))


# Parquet


def _prepare_parquet(folder: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    seeds = _prepare_texts(folder)
    raw = {}
    for kind, rows in seeds["rows"].items():
        header, *body = rows
        columns = {
            name: [_number(row[i].replace(",", ".")) for row in body]
            for i, name in enumerate(header)
        }
        table = pa.table({name: _array(values) for name, values in columns.items()})
        for compression in ("none", "zstd", "snappy"):
            buffer = io.BytesIO()
            pq.write_table(table, buffer, compression=compression)
            raw[kind, compression] = buffer.getvalue()
    lists = pa.table(
        {"id": [f"c{i}" for i in range(4)], "X": [[0.1, 0.2, 0.3]] * 4, "label": [0, 1, 0, 1]}
    )
    buffer = io.BytesIO()
    pq.write_table(lists, buffer)
    raw["features", "lists"] = buffer.getvalue()
    return seeds | {"parquet": raw, "lists": list(raw)}


def _array(values: list[Any]) -> Any:
    import pyarrow as pa

    if any(isinstance(v, str) for v in values):
        return pa.array([str(v) for v in values])
    return pa.array(np.asarray(values, dtype=float))


def _draw_parquet(rng: Random, seeds: Any, folder: Path) -> Case:
    kind, compression = rng.choice(seeds["lists"])
    file = folder / rng.choice(("given.parquet", "given.parquet", "given.pq"))
    if rng.random() < 0.55:
        data = seeds["parquet"][kind, compression]
        if rng.random() < 0.5:  # the footer, where sizes and types stand
            at = max(0, len(data) - rng.choice((60, 300, 900)))
            data = data[:at] + mutate_bytes(rng, data[at:])
        else:
            data = mutate_bytes(rng, data)
    else:
        data = _typed_parquet(rng, seeds["rows"][kind])
    file.write_bytes(data)
    return Case(call_table(rng, kind, file, seeds["folder"], folder / "out"), _NAMES, kind)


def _typed_parquet(rng: Random, rows: Rows) -> bytes:
    """A table with columns of types that a CSV does not have."""
    import pyarrow as pa

    header, *body = rows
    names = list(header)
    arrays = [_array([_number(row[i]) for row in body]) for i in range(len(header))]
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(names))
        change = rng.random()
        if change < 0.75:
            arrays[at] = odd_array(rng, len(body))
        elif change < 0.85:
            names[at] = rng.choice((word(rng), rng.choice(header))).replace("\ud800", "?")
        elif change < 0.92:
            names.append(rng.choice(header))
            arrays.append(odd_array(rng, len(body)))
        else:
            del names[at], arrays[at]
            if not names:
                break
    table = pa.Table.from_arrays(arrays, names=names)
    if rng.random() < 0.05:
        table = table.slice(0, 0)
    if rng.random() < 0.1:
        odd = rng.choice(
            (b"{", b"{}", b'{"columns": 3}', b'{"index_columns": ["p"], "columns": []}', b"\xff")
        )
        table = table.replace_schema_metadata({b"pandas": odd})
    return write_parquet(table)


def write_parquet(table: Any) -> bytes:
    """A table as the bytes of a Parquet file; of a type that the format lacks, another table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    try:
        pq.write_table(table, buffer, compression="none")
    except (pa.ArrowException, NotImplementedError):
        pq.write_table(pa.table({"p": [0.5]}), buffer)
    return buffer.getvalue()


def odd_array(rng: Random, n: int) -> Any:
    """A column of any type."""
    import pyarrow as pa

    odd = rng.choice((float("nan"), float("inf"), -0.0, 1e300, 2.5))
    whole = [i % 3 for i in range(n)]
    made: tuple[Callable[[], Any], ...] = (
        lambda: pa.array(
            whole, rng.choice((pa.int8(), pa.uint8(), pa.uint64(), pa.int64(), pa.float32()))
        ),
        lambda: pa.array(np.array([0.5] * n, np.float16)),
        lambda: pa.array([odd] * n, pa.float64()),
        lambda: pa.array([0.5] * (n - 1) + [odd]),
        lambda: pa.array(
            [None] * n, rng.choice((pa.null(), pa.string(), pa.float64(), pa.int32()))
        ),
        lambda: pa.array([None, *whole[1:]], pa.int64()),
        lambda: pa.array([True] * n),
        lambda: pa.array([[0.1, 0.2]] * n),
        lambda: pa.array([[0.1] * (i % 3) for i in range(n)]),
        lambda: pa.array([[[0.1]]] * n),
        lambda: pa.array([["a"]] * n),
        lambda: pa.array([[]] * n, pa.list_(pa.float64(), 0)),
        lambda: pa.array([[0.1, 0.2]] * n, pa.list_(pa.float32(), 2)),
        lambda: pa.array([[0.1, 0.2]] * n, pa.large_list(pa.float64())),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array(["c0"] * n).dictionary_encode(),
        lambda: pa.array(whole).dictionary_encode(),
        lambda: pa.array(
            [f"c{i}" for i in range(n)], rng.choice((pa.large_string(), pa.string_view()))
        ),
        lambda: pa.array(
            [b"\xff\xfe"] * n, rng.choice((pa.binary(), pa.large_binary(), pa.binary(2)))
        ),
        lambda: pa.array([word(rng).replace("\ud800", "?") for _ in range(n)]),
        lambda: pa.array([rng.choice((10**30, 1)) for _ in range(n)], pa.decimal128(38, 0)),
        lambda: pa.array(whole, pa.int64()).cast(pa.timestamp("ns")),
        lambda: pa.array(whole, pa.int32()).cast(pa.date32()),
        lambda: pa.array(whole, pa.int64()).cast(pa.duration("us")),
        lambda: pa.array(whole, pa.int32()).cast(pa.time32("s")),
        lambda: pa.array([2**63 + 1] * n, pa.uint64()),
        lambda: pa.array([-(2**63)] * n, pa.int64()),
        lambda: pa.array(["x" * 20_000] * n),
    )
    return rng.choice(made)()


SURFACES = {
    "csv": Surface("CSV", _prepare_texts, _draw_csv, share=4, tested=400),
    "sheets": Surface("JSON Lines, Excel", _prepare_sheets, _draw_sheet, share=1, tested=200),
    "parquet": Surface("Parquet", _prepare_parquet, _draw_parquet, share=3, tested=300),
}
