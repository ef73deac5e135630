"""Excel and JSON Lines give the table that CSV gives; what only they can get wrong is an error."""

from __future__ import annotations

import datetime
import gzip
import json
import sys
from pathlib import Path

import numpy as np
import openpyxl
import pytest

from scalecal.checks import InputError, MissingPackageError, ScalecalWarning
from scalecal.io import read_predictions, read_table, read_votes
from scalecal.io.features import read_features
from scalecal.io.tables import column_names, iterate_arrow

HEADER = ["id", "p", "label", "group"]
ROWS = [["0012", 0.25, 1, "P1"], ["12", 0.5, 0, "P1"], ["x", 1.0, 1, "P2"]]


def sheet(path: Path, *rows: list, titles: tuple[str, ...] = ("Sheet",)) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title in titles:
        page = book.create_sheet(title)
        for row in rows:
            page.append(row)
    book.save(path)
    return path


def lines(path: Path, *rows: object) -> Path:
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def written(folder: Path, kind: str) -> Path:
    if kind == "csv":
        path = folder / "t.csv"
        path.write_text("\n".join(",".join(map(str, row)) for row in [HEADER, *ROWS]))
        return path
    if kind == "xlsx":
        return sheet(folder / "t.xlsx", HEADER, *ROWS, [None] * 4, ["", None, None, None])
    objects = [dict(zip(HEADER, row, strict=True)) for row in ROWS]
    return lines(folder / f"t.{kind}", *objects, "", "")


KINDS = ["xlsx", "jsonl", "ndjson", "jsonl.gz"]


@pytest.mark.parametrize("kind", KINDS)
def test_same_table_as_csv(tmp_path, kind):
    expected, found = (read_table(written(tmp_path, k)) for k in ("csv", kind))
    assert found.to_dict("list") == expected.to_dict("list")
    assert column_names(written(tmp_path, kind)) == tuple(HEADER)


@pytest.mark.parametrize("kind", KINDS)
def test_same_predictions_as_csv(tmp_path, kind):
    expected, found = (read_predictions(written(tmp_path, k)) for k in ("csv", kind))
    assert found.p.tolist() == expected.p.tolist()
    assert found.cases.names.tolist() == ["0012", "12", "x"]
    assert found.cases.y.tolist() == expected.cases.y.tolist()
    assert found.cases.groups.values.tolist() == ["P1", "P1", "P2"]


def test_votes_and_embeddings(tmp_path):
    votes = sheet(tmp_path / "v.xlsx", ["id", "votes", "n_raters"], ["a", 1, 3], ["b", 3, 3])
    assert read_votes(votes).votes.tolist() == [[2, 1], [0, 3]]
    rows = [{"id": "a", "f": [0.5, 1]}, {"id": "b", "f": [2, 3.5]}]
    labels = lines(tmp_path / "l.jsonl", {"id": "b", "label": 1}, {"id": "a", "label": 0})
    data = read_features(lines(tmp_path / "f.jsonl", *rows), labels=labels, votes=votes)
    np.testing.assert_array_equal(data.X, [[0.5, 1], [2, 3.5]])
    assert data.y.tolist() == [0, 1]
    wide = sheet(tmp_path / "f.xlsx", ["id", "f0", "f1"], ["a", 0.5, 1], ["b", 2, 3.5])
    np.testing.assert_array_equal(read_features(wide).X, data.X)


# Excel's traps


def test_numbers_as_ids_and_text_as_numbers(tmp_path):
    path = sheet(tmp_path / "t.xlsx", ["id", "p"], [1.0, "0.25"], [2, 0.5], ["A3", " 1 "])
    table = read_predictions(
        path,
        votes=sheet(tmp_path / "v.xlsx", ["id", "votes", "n_raters"], ["1", 1, 1], ["2", 0, 1]),
    )
    assert table.cases.names.tolist() == ["1", "2"]
    assert table.p.tolist() == [0.25, 0.5]
    commas = read_table(sheet(tmp_path / "c.xlsx", ["id", "p"], ["a", "0,25"], ["b", "1"]))
    assert commas["p"].tolist() == [0.25, 1.0]


def test_index_without_a_name_is_left_out(tmp_path):
    path = sheet(tmp_path / "t.xlsx", [None, "id", "p"], [0, "a", 0.5])
    assert list(read_table(path)) == ["id", "p"]


def test_dates_and_long_numbers_as_ids_are_warned_of(tmp_path):
    day = datetime.datetime(2024, 3, 1)
    with pytest.warns(ScalecalWarning, match=r"'id' holds a date \(2024-03-01\) in row 2"):
        table = read_table(sheet(tmp_path / "t.xlsx", ["id", "p"], [day, 0.5]))
    assert list(table["id"]) == ["2024-03-01"]
    with pytest.warns(ScalecalWarning, match="more than 15 digits"):
        read_table(sheet(tmp_path / "t.xlsx", ["id", "p"], [1234567890123456, 0.5]))


def test_the_first_sheet_is_read_and_others_are_named(tmp_path):
    path = sheet(tmp_path / "t.xlsx", HEADER, *ROWS, titles=("model A", "model B"))
    with pytest.warns(ScalecalWarning, match="2 sheets with data \\('model A', 'model B'\\)"):
        assert len(read_table(path)) == 3
    book = openpyxl.load_workbook(path)
    for page in ("notes", "model B"):
        if page in book.sheetnames:
            book.remove(book[page])
    book.create_sheet("empty", 0)
    book.save(path)
    assert len(read_table(path)) == 3  # an empty sheet is none, and no warning


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[None], ["id", "p"], ["a", 0.5]], "sheet 'Sheet': the first row is empty"),
        (
            [["id", "p"], ["a", 0.5], ["b", "#DIV/0!"]],
            r"column 'p' holds the error #DIV/0! in row 3",
        ),
        ([["id", "p", "p"], ["a", 0.5, 0.5]], "more than one column named 'p'"),
        ([["id", "p"]], "no rows"),
        ([], "no sheet with data"),
    ],
)
def test_a_sheet_that_is_no_table(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read_table(sheet(tmp_path / "t.xlsx", *rows))


def test_messages_count_rows_as_excel_does(tmp_path):
    path = sheet(tmp_path / "t.xlsx", ["id", "p", "label"], ["a", 0.5, 1], ["b", 1.5, 0])
    with pytest.raises(InputError, match=r"t.xlsx: .* at row 3"):
        read_predictions(path)


def test_not_excel_after_all(tmp_path):
    path = tmp_path / "t.xlsx"
    path.write_bytes(b"id,p\na,0.5\n")
    with pytest.raises(InputError, match="cannot be read as an Excel file"):
        read_table(path)
    with pytest.raises(InputError, match=r"Save the sheet as \.xlsx or CSV"):
        read_table(sheet(tmp_path / "t.xlsx", HEADER).rename(tmp_path / "t.xls"))


def test_without_openpyxl_the_command_to_install_it_is_named(tmp_path, monkeypatch):
    path = sheet(tmp_path / "t.xlsx", HEADER, *ROWS)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'scalecal\[excel\]'"):
        read_table(path)


# Traps of JSON Lines


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (['{"id": "a", "p": 0.5}', '{"id": "b", "p": NaN}'], "line 2 is not as .*null for missing"),
        (
            [{"id": "a", "p": {"HP": 0.5, "SSA": 0.5}}],
            "line 1 is not as expected.* got `object`.* one flat object",
        ),
        (['{"id": "a"}', "{'id': 'b'}"], "line 2 is not as expected: JSON is malformed"),
        (['[{"id": "a"}, {"id": "b"}]'], "line 1 is not as expected: Expected `object`"),
        (['{"id": "a",', '"p": 0.5}'], "line 1 is not as expected"),
        ([{"id": "a", "p": ["x"]}], "line 1 .* got `str`"),
        ([{"id": "a", "p": [0.5]}, {"id": "b", "p": 1}], "'p' must hold lists of numbers alone"),
        (["", ""], "no rows"),
    ],
)
def test_lines_that_are_no_table(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read_table(lines(tmp_path / "t.jsonl", *rows))


def test_missing_keys_are_missing_values(tmp_path):
    path = lines(tmp_path / "t.jsonl", {"id": 7, "p": 0.5}, {"p": 1, "id": "07", "label": 1})
    found = read_predictions(path)
    assert found.cases.names.tolist() == ["07"]
    assert "1 of 2 cases without a label were left out." in found.cases.notes
    with pytest.raises(InputError, match=r"column 'p' is missing at line 2 \(ids 'b'\)"):
        read_predictions(
            lines(tmp_path / "t.jsonl", {"id": "a", "p": 0.5, "label": 1}, {"id": "b", "label": 0})
        )


def test_not_utf8_and_other_names(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"id": "a"}\n{"id": "\xe4"}\n')
    with pytest.raises(InputError, match=r"line \d is not .*utf-8"):
        read_table(path)
    with pytest.raises(InputError, match="one object per line"):
        read_table(path.rename(tmp_path / "t.json"))


@pytest.mark.parametrize("kind", KINDS)
def test_not_read_in_pieces(tmp_path, kind):
    with pytest.raises(InputError, match="save it as CSV or Parquet"):
        next(iterate_arrow(written(tmp_path, kind), keep=bool, numbers=bool))
