"""A cell: one data set with one encoder, its test cases and every method's predictions on them.

Everything a run reports (tables, figures, claims) is a function of its cells, so it can be made again
from the files of the cells alone, without training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Answers, Cases, Factor, Predictions
from scalecal.checks import Float, InputError, Int, check_labels, check_probs, in_file, rows
from scalecal.io.boundary import check_document, read_document, reading
from scalecal.io.store import output_folder, write_json
from scalecal.io.tables import read_parquet
from scalecal.metrics.reweighting import Reweighted
from scalecal.panel import check_rho
from scalecal.votes import STRATA, stratum_codes

if TYPE_CHECKING:
    import pyarrow as pa

PUBLISHED, VOTED = "panel-published", "panel-votes"
"""The panel without a vote, and with those of some cases."""

_AGAIN = "Make the run again, or copy it again"


def reweighted(predictions: Predictions, own: Answers) -> Reweighted | None:
    """The cases of a test set with the weights of their classes; None where these are all one."""
    if predictions.prevalence is None:
        return None
    groups = predictions.groups_of(own.index)
    return Reweighted.of(predictions.y[own.index], own.p, predictions.prevalence, groups)


def weights_of(predictions: Predictions, own: Answers) -> Float | None:
    """The importance weight of each case of a test set; None where these are all one."""
    weighted = reweighted(predictions, own)
    if weighted is None:
        return None
    return weighted.weights.by_label(weighted.y)


def check_cell(predictions: Predictions) -> None:
    """Fail where cases have no labels, or share an id, by which methods are matched."""
    if predictions.cases.y is None:
        raise InputError(f"cell {predictions.name}: the cases have no labels")
    if len(np.unique(predictions.cases.names)) != predictions.cases.n:
        raise InputError(f"cell {predictions.name}: case ids must be distinct")


def cell_of_seed(cell: Predictions, seed: int) -> Predictions:
    """Return one seed of a cell: its test cases and its answers alone."""
    own = {key: answers for key, answers in cell.answers.items() if key[1] == seed}
    tested = np.zeros(cell.cases.n, dtype=bool)
    for answers in own.values():
        tested[answers.index] = True
    return replace(cell, answers=own).take(tested)


def joined_cell(cells: Sequence[Predictions], order: Iterable[str] = ()) -> Predictions:
    """One cell of several seeds, with the cases of all of them.

    Cases are in the order of these ids; those that are not named follow as they first appear.
    """
    every = Cases.concat([cell.cases for cell in cells])
    names = every.names.tolist()
    present = set(names)
    known = dict.fromkeys([*(name for name in order if name in present), *names])
    place = {name: i for i, name in enumerate(known)}
    first = np.unique([place[name] for name in names], return_index=True)[1]
    answers: dict[tuple[str, int], Answers] = {}
    for cell in cells:
        moved = np.array([place[name] for name in cell.cases.names.tolist()])
        for key, own in cell.answers.items():
            answers[key] = own.renumbered(moved)
    methods = list(dict.fromkeys(name for cell in cells for name in cell.methods))
    ordered = {key: answers[key] for m in methods for key in sorted(answers) if key[0] == m}
    variants = {name: of for cell in cells for name, of in cell.variants.items()}
    meta = {**cells[0].meta}
    if variants:
        meta["variants"] = variants
    return replace(cells[0], cases=every.take(first), answers=ordered, meta=meta)


def _columns(prefix: str, n_classes: int) -> list[str]:
    return [f"{prefix}_{c}" for c in range(n_classes)]


def _prob_columns(prefix: str, n_classes: int) -> list[str]:
    return [prefix] if n_classes == 2 else _columns(prefix, n_classes)


def _cases_table(cases: Cases) -> pa.Table:
    import pyarrow as pa

    assert cases.y is not None
    columns: dict[str, Any] = {
        "id": pa.array(cases.names.tolist(), pa.string()),
        "label": pa.array(cases.y.astype(np.int64)),
    }
    if cases.votes is not None:
        for c, name in enumerate(_columns("votes", cases.votes.shape[1])):
            columns[name] = pa.array(cases.votes[:, c].astype(np.int64))
    if cases.groups is not None:
        columns["group"] = pa.array(cases.groups.values.tolist(), pa.string())
    strata = [""] * cases.n if cases.strata is None else cases.strata.values.tolist()
    columns["stratum"] = pa.array(strata, pa.string())
    if cases.paths is not None:
        columns["path"] = pa.array(cases.paths.tolist(), pa.string())
    return pa.table(columns)


def _predictions_table(cell: Predictions) -> pa.Table:
    import pyarrow as pa

    parts = list(cell.answers.items())
    sizes = [len(part) for _, part in parts]
    names = cell.methods
    method = np.repeat([names.index(name) for (name, _), _ in parts], sizes)
    index = np.concatenate([np.zeros(0, np.int64), *(part.index for _, part in parts)])
    columns: dict[str, Any] = {
        "method": pa.DictionaryArray.from_arrays(
            pa.array(method.astype(np.int32)), pa.array(names, pa.string())
        ),
        "seed": pa.array(np.repeat([seed for (_, seed), _ in parts], sizes).astype(np.int64)),
        "id": pa.DictionaryArray.from_arrays(
            pa.array(index.astype(np.int32)), pa.array(cell.cases.names.tolist(), pa.string())
        ),
    }
    for prefix in ("p", "p_reader"):
        values = [getattr(part, prefix) for _, part in parts]
        if prefix == "p_reader" and all(v is None for v in values):
            continue
        names = _prob_columns(prefix, len(cell.cases.classes))
        blank = np.full((1, len(names)), np.nan)
        filled = [
            np.repeat(blank, size, axis=0) if v is None else v.reshape(size, -1)
            for v, size in zip(values, sizes, strict=True)
        ]
        table = np.concatenate([blank[:0], *filled])
        columns |= {
            name: pa.array(np.ascontiguousarray(table[:, c])) for c, name in enumerate(names)
        }
    if any(part.rho for _, part in parts):
        columns["rho"] = pa.array(np.repeat([part.rho for _, part in parts], sizes))
    if any(part.p_split is not None for _, part in parts):
        split = [np.full(len(p), np.nan) if p.p_split is None else p.p_split for _, p in parts]
        columns["p_split"] = pa.array(np.concatenate(split))
    return pa.table(columns)


def write_cell(folder: str | Path, cell: Predictions, *, kind: str = "reproduce") -> None:
    """Write ``run.json``, ``cases.parquet`` and ``predictions.parquet``, all of them or none.

    `kind` is the command that writes; see `scalecal.io.store.output_folder`.
    """
    import pyarrow.parquet as pq

    meta = dict(cell.meta)
    dataset = {"name": cell.dataset, "classes": list(cell.cases.classes)}
    meta["dataset"] = {**(meta.get("dataset") or {}), **dataset}
    meta["encoder"] = {**(meta.get("encoder") or {}), "name": cell.encoder}
    meta.setdefault("methods", cell.methods)
    with output_folder(folder, kind=kind) as partial:
        write_json(partial / "run.json", meta)
        pq.write_table(_cases_table(cell.cases), partial / "cases.parquet", compression="zstd")
        pq.write_table(
            _predictions_table(cell), partial / "predictions.parquet", compression="zstd"
        )


def _strings(table: pa.Table, name: str) -> NDArray[np.str_] | None:
    if name not in table.column_names:
        return None
    values = table[name].to_pylist()
    if not all(value is None or isinstance(value, str) for value in values):
        raise InputError(f"column {name!r} must hold text, got {table[name].type}")
    return np.array([value or "" for value in values], dtype=np.str_)


def _read_probs(table: pa.Table, prefix: str, n_classes: int) -> Float | None:
    names = _prob_columns(prefix, n_classes)
    if not set(names) <= set(table.column_names):
        return None
    values = np.column_stack([np.asarray(table[c].to_numpy(), np.float64) for c in names])
    return values[:, 0] if n_classes == 2 else values


def _read_answers(path: Path, cases: Cases) -> dict[tuple[str, int], Answers]:
    table = read_parquet(path, factors=["method", "id"])
    table = table.unify_dictionaries().combine_chunks()
    if table.num_rows == 0:
        return {}
    n_classes = len(cases.classes)
    raw, reader = (_read_probs(table, prefix, n_classes) for prefix in ("p", "p_reader"))
    if raw is None:
        wanted = ", ".join(_prob_columns("p", n_classes))
        raise InputError(f"{path} lacks a column: {wanted} are expected for {n_classes} classes")
    probs = check_probs(raw, "p")
    place = {name: i for i, name in enumerate(cases.names.tolist())}
    case, method = (table[c].chunk(0) for c in ("id", "method"))
    known = np.array([place.get(name, -1) for name in case.dictionary.to_pylist()], np.int64)
    index = known[case.indices.to_numpy()]
    if (index < 0).any():
        raise InputError(
            f"{path} has predictions for cases that cases.parquet lacks: {rows(index < 0)}"
        )
    rho = np.zeros(len(index)) if "rho" not in table.column_names else table["rho"].to_numpy()
    split = table["p_split"].to_numpy() if "p_split" in table.column_names else None
    names = method.dictionary.to_pylist()
    seed = table["seed"].to_numpy().astype(np.int64)
    code = method.indices.to_numpy().astype(np.int64)
    # Runs of equal (method, seed): methods keep the order in which they were written.
    order = np.lexsort((seed, code))
    change = np.flatnonzero((np.diff(code[order]) != 0) | (np.diff(seed[order]) != 0)) + 1
    parts = np.split(order, change)
    parts.sort(key=lambda part: int(part.min()))
    return {
        (str(names[code[part[0]]]), int(seed[part[0]])): Answers(
            probs[part],
            _known(reader, part),
            check_rho(rho[part[0]]),
            _known(split, part),
            rows=index[part],
        )
        for part in parts
    }


def _known(values: Float | None, part: Int) -> Float | None:
    """Return some rows of a column, or None where it holds nothing there."""
    if values is None or np.isnan(values[part]).all():
        return None
    return values[part]


def _read_cases(path: Path, classes: Sequence[str]) -> Cases:
    table = read_parquet(path)
    ids, votes = _strings(table, "id"), None
    if ids is None or "label" not in table.column_names:
        raise InputError(f"{path} needs the columns id and label")
    if "votes_0" in table.column_names:
        counts = (table[name].to_numpy() for name in _columns("votes", len(classes)))
        votes = np.column_stack([count.astype(np.int64) for count in counts])
    strata, groups = _strings(table, "stratum"), _strings(table, "group")
    cases = Cases(
        n=len(ids),
        classes=tuple(classes),
        ids=ids,
        y=check_labels(table["label"].to_numpy(), len(classes), "label"),
        votes=votes,
        groups=None if groups is None else Factor.of(groups),
        paths=_strings(table, "path"),
    )
    if strata is None or not (strata != "").any():
        return cases.stratified()
    default = set(strata.tolist()) <= {*STRATA, ""}
    factor = Factor.of(strata, names=STRATA if default else None)
    agreement = default and votes is not None
    agreement = agreement and np.array_equal(factor.codes, stratum_codes(votes))  # type: ignore[arg-type]
    return replace(cases, strata=factor, agreement=agreement)


def read_cell(folder: str | Path) -> Predictions:
    """Read a cell's folder (see `write_cell`)."""
    folder = Path(folder)
    for name in ("run.json", "cases.parquet", "predictions.parquet"):
        if not (folder / name).is_file():
            raise InputError(f"no cell at {folder}: {name} is missing")
    meta = read_meta(folder)
    dataset, encoder = meta.get("dataset") or {}, meta.get("encoder") or {}
    classes = dataset.get("classes") or []
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise InputError(f"{folder / 'run.json'} names no classes: dataset.classes must list them")
    # Inside `reading`, because each column is found to be of another type only where it is used.
    with _part(folder / "cases.parquet", "the cases of a run") as path:
        cases = _read_cases(path, classes)
    with _part(folder / "predictions.parquet", "the predictions of a run") as path:
        answers = _read_answers(path, cases)
    cell = Predictions(
        cases,
        answers,
        dataset=dataset.get("name", folder.name),
        encoder=encoder.get("name", ""),
        meta=meta,
    )
    with in_file(str(folder)):
        check_cell(cell)
    return cell


@contextmanager
def _part(path: Path, what: str) -> Iterator[Path]:
    with reading(path, what, advice=_AGAIN), in_file(str(path)):
        yield path


class _Shift(msgspec.Struct):
    train: str
    test: str


class _Dataset(msgspec.Struct):
    name: str = ""
    classes: list[str] = []
    data: str | None = None
    sha256: str = ""
    n: int = 0
    shift: _Shift | None = None


class _Encoder(msgspec.Struct):
    name: str = ""


class _Options(msgspec.Struct):
    n_bins: int | None = None
    n_resamples: int | None = None
    seed: int | None = None
    prevalence: float | None = None


class _Calibration(msgspec.Struct):
    after: str
    about: dict[str, str]


class _Meta(msgspec.Struct):
    """What ``run.json`` holds, as far as anything reads it."""

    kind: str = ""
    title: str | None = None
    version: str = ""
    command: list[str] = []
    options: _Options | None = None
    calibration: _Calibration | None = None
    files: dict[str, Any] | None = None
    preset: str | None = None
    stand_in: list[str] = []
    seeds: list[int] = []
    dataset: _Dataset | None = None
    encoder: _Encoder | None = None
    methods: list[str] = []
    variants: dict[str, str] = {}
    notes: list[str] | None = None
    packages: dict[str, str] | None = None
    settings: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    capped: dict[str, int] = {}
    trained_with: list[int] = []
    cells: list[str] = []


def read_meta(folder: Path) -> dict[str, Any]:
    """Return what ``run.json`` of a run folder says, after a look at the type of every entry."""
    file = folder / "run.json"
    meta = read_document(file, dict[str, Any], advice=_AGAIN)
    check_document(file, meta, _Meta, advice=_AGAIN)
    return meta
