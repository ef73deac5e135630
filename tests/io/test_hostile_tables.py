"""Tables that are damaged, too large or of odd types: read exactly, or refused in one line.

The fuzzer tries many more; here is one case of each kind that was once wrong.
"""

from __future__ import annotations

import datetime
import gzip
import io
import os
import random
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalecal.checks import InputError
from scalecal.evaluation.stream import stream_file
from scalecal.io import read_common_predictions, read_predictions, read_table, read_votes, tables
from scalecal.io.case_tables import PredictionFile
from scalecal.io.tables import column_names, line_numbers

TEXT = "id,p,label\na,0.5,1\nb,0.25,0\n"
ROWS = {"id": ["a", "b"], "p": [0.5, 0.25], "label": [1, 0]}


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet(folder: Path, columns: dict[str, Any], names: list[str] | None = None) -> Path:
    path = folder / "t.parquet"
    pq.write_table(pa.table(list(columns.values()), names=names or list(columns)), path)
    return path


def pieces(path: Path) -> list[float]:
    return [p for piece in PredictionFile(path).pieces() for p in piece.p.tolist()]


def refused(path: Path, says: str, read: Any = read_predictions) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read(path)
    assert str(caught.value).isprintable()
    assert path.name in str(caught.value)


# Text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xef\xbb\xbf" + TEXT.replace("b,", "é,").encode("latin-1"), "is not UTF-8 throughout"),
        (TEXT.encode("utf-16") + b"x", "truncated data"),
        (TEXT.encode("utf-16-le"), "zero bytes"),
        (
            b"\xff\xfe" + TEXT.replace("b", "\ud800").encode("utf-16-le", "surrogatepass"),
            "surrogate",
        ),
        (TEXT + '"c,0.5,1\n' + "d,0.5,1\n" * 40_000, "close its quotes"),
        (TEXT + "c,0.5\n", "line 4 has 2 fields, expected 3"),
        ('id,p,label\n"a\nb",0.5,1\n\nc,0.5\n', "line 5 has 2 fields"),
    ],
)
@pytest.mark.parametrize("read", [read_predictions, pieces])
def test_text_that_is_no_table(tmp_path, monkeypatch, content, says, read):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1 << 18)
    refused(put(tmp_path, "t.csv", content), says, read)


@pytest.mark.parametrize("damage", ["cut", "flipped", "followed"])
def test_damaged_gzip(tmp_path, damage):
    packed = bytearray(gzip.compress(TEXT.encode() * 50))
    if damage == "cut":
        del packed[-20:]
    elif damage == "flipped":
        packed[30] ^= 255
    else:
        packed += b"garbage"
    for name in ("t.csv.gz", "t.jsonl.gz"):
        refused(put(tmp_path, name, bytes(packed)), "cannot be read as")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_line_breaks_in_a_quoted_header(tmp_path, encoding):
    text = 'id,"p of\r\nthe model",label\r\na,0.5,1\r\nb,0.25,0\r\n'
    path = put(tmp_path, "t.csv", text.encode(encoding))
    assert column_names(path)[1] == "p of\r\nthe model"
    found = read_predictions(path, columns={"p": "p of\r\nthe model"})
    assert found.p.tolist() == [0.5, 0.25]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("read", [read_predictions, pieces])
def test_lines_are_counted_after_quoted_breaks_and_empty_lines(tmp_path, ending, read):
    text = 'id,"a\nnote",p,label\na,"x\ny",0.5,1\n\nb,,0.5,0\nc,"z\n",1.5,0\n'.replace("\n", ending)
    refused(put(tmp_path, "t.csv", text), "got 1.5 at line 7", read)
    assert line_numbers(tmp_path / "t.csv", [1, 2, 3, 4, 9]) == [1, 3, 6, 7, 9]


def test_bytes_beyond_the_sample_that_are_not_as_marked(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "SAMPLE_BYTES", 20)
    text = b"\xef\xbb\xbf" + (TEXT + "é,0.5,1\n").encode("latin-1")
    refused(put(tmp_path, "t.csv", text), "is not UTF-8 throughout")


def test_quotes_across_a_block_beyond_the_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "SAMPLE_BYTES", 1 << 10)
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1 << 14)
    row = "a%07d,0.5,1,\n"
    text = "id,p,label,note\n" + "".join(row % i for i in range((1 << 14) // len(row % 0) - 1))
    text += 'x,0.25,0,"' + "two\nlines\n" * 10 + '"\ny,0.5,1,\n'
    assert read_predictions(put(tmp_path, "t.csv", text)).p[-2:].tolist() == [0.25, 0.5]


def test_header_longer_than_the_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "SAMPLE_BYTES", 1 << 10)
    names = [f"feature_number_{i:06d}" for i in range(1_000)]
    text = ",".join(["id", "p", "label", *names]) + "\na,0.5,1" + ",0" * len(names) + "\n"
    path = put(tmp_path, "t.csv", text)
    assert len(column_names(path)) == 1_003
    assert read_predictions(path).p.tolist() == [0.5]


# Sizes


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (TEXT.replace("b", "b" * 20_000), "characters"),
        ("id,p,label,group\na,0.5,1," + "g" * 2_000 + "\n", "characters"),
        ("id,p,votes,n_raters\na,0.5,1,10000000000\n", "readers"),
        ("id,p,label,n_raters\na,0.5,1,1e9\n", "readers"),
        ("id,p,votes_x,votes_y\na,0.5,1,1e9\n", "readers"),
        (
            "id,label" + "".join(f",p_{i}" for i in range(60)) + "\na,1" + ",0" * 60 + "\n",
            "classes",
        ),
        ("id,p,label\n" + "".join(f"a{i},0.5,c{i}\n" for i in range(60)), "classes"),
        ("id,p,label" + "".join(f",x{i}" for i in range(90)) + "\na,0.5,1" + ",0" * 90, "columns"),
        ("id,p,label\n" + "".join(f"a{i},0.5,1\n" for i in range(10_000)), "memory"),
    ],
)
def test_limits_are_named(tmp_path, monkeypatch, text, limit):
    monkeypatch.setenv("SCALECAL_LIMITS", "columns=80,classes=50,memory=1e5")
    refused(put(tmp_path, "t.csv", text), f"SCALECAL_LIMITS={limit}=")


def test_what_a_small_file_would_unpack_to(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALECAL_LIMITS", "memory=1e6")
    bomb = gzip.compress(TEXT.encode() + b"c,0.5,1\n" * 200_000)
    refused(put(tmp_path, "t.csv.gz", bomb), "SCALECAL_LIMITS=memory=")
    refused(put(tmp_path, "t.jsonl.gz", gzip.compress(b" " * 5_000_000)), "SCALECAL_LIMITS=memory=")
    constant = {"p": np.full(200_000, 0.5), "label": np.zeros(200_000, dtype=np.int8)}
    path = parquet(tmp_path, constant)
    assert path.stat().st_size < 10_000
    refused(path, "the memory it declares is 1,800,000 bytes")
    assert len(pieces(path)) == 200_000  # a stream takes no more than a piece
    refused(sheet(tmp_path, sheet_end=b" " * 1_000_000), "SCALECAL_LIMITS=memory=")


# Parquet


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (pa.array(np.array([0.5, 0.25], np.float16)), [0.5, 0.25]),
        (pa.array([Decimal("0.50"), Decimal("0.25")]), [0.5, 0.25]),
        (pa.array([0.5, 0.25]).dictionary_encode(), [0.5, 0.25]),
        (pa.array(["0.5", "0.25"]).dictionary_encode(), [0.5, 0.25]),
        (pa.array([b"0.5", b"0.25"]), [0.5, 0.25]),
        (pa.array(["0.5", "0.25"], pa.string_view()), [0.5, 0.25]),
        (pa.array([1, 0], pa.uint8()), [1.0, 0.0]),
    ],
)
@pytest.mark.parametrize("read", [lambda path: read_predictions(path).p.tolist(), pieces])
def test_types_with_a_plain_meaning_are_numbers(tmp_path, p, expected, read):
    assert read(parquet(tmp_path, ROWS | {"p": p})) == expected


ODD = [
    pa.array([[0.5], [0.25]]),
    pa.array([{"a": 0.5}, {"a": 0.25}]),
    pa.array([[("a", 0.5)], []], pa.map_(pa.string(), pa.float64())),
    pa.array([1, 2], pa.duration("s")),
    pa.array([b"\xff", b"\xfe"]),
]


@pytest.mark.parametrize("column", ["id", "p", "label", "group", "stratum"])
@pytest.mark.parametrize("values", ODD, ids=lambda values: str(values.type))
def test_other_types_are_refused_by_column_and_type(tmp_path, column, values):
    path = parquet(tmp_path, ROWS | {column: values})
    kind = str(values.type).split("<")[0].split("[")[0]
    refused(path, f"column '{column}' must hold .*{kind}")
    if column not in ("id", "group"):
        refused(path, f"column '{column}' must hold .*{kind}", pieces)
    other = put(tmp_path, "other.csv", TEXT)
    refused(path, f"column '{column}'", lambda p: read_common_predictions([other, p]))


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (pa.array([1.0, 2.0]), ["1", "2"]),
        (pa.array(np.array([1, 2], np.float16)), ["1", "2"]),
        (pa.array([2**63, 2**63 + 1], pa.uint64()), [str(2**63), str(2**63 + 1)]),
        (pa.array([Decimal("7.00"), Decimal("12.00")]), ["7", "12"]),
        (
            pa.array([datetime.date(2024, 3, 1), datetime.date(2024, 3, 2)]),
            ["2024-03-01", "2024-03-02"],
        ),
        (pa.array([b"a", b"b"]), ["a", "b"]),
        (pa.array([1.0, float("nan")]), "missing at row 1"),
        (pa.array([1.0, float("inf")]), "got inf at row 1"),
        (pa.array([1.0, 2.0**53]), "lose digits"),
        (pa.array(["a", "a\0"]), "zero byte"),
        (pa.nulls(2), "missing at rows 0, 1"),
    ],
)
def test_ids_of_every_type(tmp_path, ids, expected):
    path = parquet(tmp_path, ROWS | {"id": ids})
    if isinstance(expected, str):
        refused(path, expected)
    else:
        assert read_predictions(path).cases.names.tolist() == expected


def test_names_in_half_precision(tmp_path):
    half = pa.array(np.array([0.5, 2.0], np.float16))
    read = read_predictions(parquet(tmp_path, {**ROWS, "group": half}))
    assert read.cases.groups.names == ("0.5", "2")


def test_duplicate_columns_folders_and_the_index_of_pandas(tmp_path):
    twice = parquet(tmp_path, ROWS | {"q": [0.1, 0.2]}, ["id", "p", "label", "p"])
    for read in (read_predictions, pieces, stream_file, read_table):
        refused(twice, "more than one column named 'p'", read)
    (tmp_path / "p=0.75").mkdir()
    assert read_predictions(parquet(tmp_path / "p=0.75", ROWS)).p.tolist() == [0.5, 0.25]
    frame = read_table(parquet(tmp_path, ROWS)).set_index("id")
    frame.to_parquet(tmp_path / "i.parquet")
    assert read_table(tmp_path / "i.parquet")["id"].tolist() == ["a", "b"]


# JSON Lines


def test_lines_with_gaps_are_counted(tmp_path):
    text = '{"id": "a", "p": 0.5, "label": 1}\n\n \n{"id": "\\ud83d\\ude00", "p": %s, "label": 0}\n'
    assert read_predictions(put(tmp_path, "t.jsonl", text % "0.5")).cases.names[1] == "\U0001f600"
    refused(put(tmp_path, "t.jsonl", text % "1.5"), "got 1.5 at line 4")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("[" * 100_000, "line 1 .* got `array`"),
        ("9" * 5_000, "line 1 .* out of range"),
        ('"\\ud800"', "line 1 is not as expected"),
        ('["\\udfff"]', "line 1 .* surrogate pair"),
        ("[1e999999]", "line 1 .* out of range"),
        ("{}", "line 1 .* got `object`"),
        ("null,", "line 1 .* malformed"),
    ],
)
def test_values_that_no_table_has(tmp_path, value, says):
    refused(put(tmp_path, "t.jsonl", f'{{"id": "a", "label": 1, "p": {value}}}\n'), says)


# Excel


def sheet(folder: Path, *, cells: bytes = b"", start: bytes = b"", sheet_end: bytes = b"") -> Path:
    """Write a sheet with further cells, or more XML before or after it."""
    book = openpyxl.Workbook()
    for row in (list(ROWS), *zip(*ROWS.values(), strict=True)):
        book.active.append(row)
    content = io.BytesIO()
    book.save(content)
    path = folder / "t.xlsx"
    with zipfile.ZipFile(content) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            part = old.read(name)
            if name.endswith("sheet1.xml"):
                end = b"</sheetData>"
                part = start + part.replace(end, cells + end) + sheet_end
            new.writestr(name, part)
    return path


def test_sheets_beyond_excel(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "EXCEL_ROWS", 10_000)
    far = b'<row r="%d"><c r="A%d"><v>1</v></c></row>'
    refused(
        sheet(tmp_path, cells=far % (10**12, 10**12)), "sheet 'Sheet' has more than 10,000 rows"
    )
    refused(sheet(tmp_path, cells=b'<row r="4"><c r="XFD4"><v>1</v></c></row>'), "missing at row 4")
    blank = b"".join(b'<row r="%d" ht="15"/>' % row for row in range(4, 5_000))
    assert read_predictions(sheet(tmp_path, cells=blank)).p.tolist() == [0.5, 0.25]


def test_entities_of_xml_are_not_followed(tmp_path):
    secret = put(tmp_path, "secret.txt", "0.75")
    entity = f'<!DOCTYPE x [<!ENTITY a SYSTEM "{secret.as_uri()}">]>'.encode()
    cells = b'<row r="4"><c r="A4" t="str"><v>c</v></c><c r="B4"><v>&a;</v></c></row>'
    refused(sheet(tmp_path, start=entity, cells=cells), "undefined entity")
    locked = put(tmp_path, "t.xlsx", bytes.fromhex("D0CF11E0A1B11AE1") + bytes(600))
    refused(locked, "without a password")


# Numbers, files and damage of every kind


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_classes_beyond_double_precision_keep_their_digits(tmp_path, kind):
    label = [2**53, 2**53 + 1]
    if kind == "csv":
        path = put(tmp_path, "t.csv", f"id,p,label\na,0.5,{label[0]}\nb,0.5,{label[1]}\n")
    elif kind == "jsonl":
        lines = (f'{{"id": "{i}", "p": 0.5, "label": {name}}}\n' for i, name in enumerate(label))
        path = put(tmp_path, "t.jsonl", "".join(lines))
    else:
        path = parquet(tmp_path, ROWS | {"label": label})
    assert read_predictions(path, positive=str(label[1])).cases.classes == tuple(map(str, label))


def test_votes_for_classes_that_p_has_not(tmp_path):
    votes = put(tmp_path, "v.csv", "id,rater,label\na,r,7\nb,r,0\n")
    with pytest.raises(
        InputError, match=r"v\.csv: the table of votes has '7', but the classes are '0', '1'"
    ):
        read_predictions(put(tmp_path, "t.csv", TEXT), votes=votes)


def test_numbers_are_not_rounded_to_be_read(tmp_path):
    path = parquet(tmp_path, {"id": ["a", "b"], "p": [0.5, 0.5], "votes": [1, 2**53 + 1]})
    refused(path, r"column 'votes' must hold numbers up to 2\^53.* at row 1")
    refused(put(tmp_path, "t.csv", TEXT.replace("0.5", "0.5+1j")), r"got '0.5\+1j' at line 2")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.xlsx", "t.jsonl"])
def test_what_is_no_plain_file_is_not_opened(tmp_path, name):
    os.mkfifo(tmp_path / name)
    refused(tmp_path / name, "is a named pipe")
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("nowhere")
    refused(tmp_path / name, "is a link to a file that is not there")
    refused(tmp_path / ("x" * 300 + name), "File name too long")


@pytest.mark.filterwarnings("ignore:.*was read as Latin-1")
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.xlsx", "t.jsonl"])
def test_any_damage_is_read_or_refused_in_one_line(tmp_path, name):
    if name == "t.parquet":
        whole = parquet(tmp_path, ROWS).read_bytes()
    elif name == "t.xlsx":
        whole = sheet(tmp_path).read_bytes()
    elif name == "t.jsonl":
        whole = b'{"id": "a", "p": 0.5, "label": 1}\n{"id": "b", "p": 0.25, "label": 0}\n'
    else:
        whole = gzip.compress(TEXT.encode()) if name.endswith(".gz") else TEXT.encode()
    rng = random.Random(0)
    messages = []
    for number in range(60):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 2, 8])):
            place = rng.randrange(len(damaged))
            damaged[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        path = put(tmp_path, name, bytes(damaged))
        try:
            (read_predictions, read_votes, pieces, read_table)[number % 4](path)
        except InputError as error:
            messages.append(str(error))
    assert messages
    assert all(message.isprintable() for message in messages)
