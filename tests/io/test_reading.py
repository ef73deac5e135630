from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalecal.checks import InputError, ScalecalWarning
from scalecal.io import read_table
from scalecal.io.tables import BLOCK_BYTES, column_names, sniff

PLAIN = "id,p,label\n0012,0.25,1\n12,0.5,0\n"


def put(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def check_plain(frame: pd.DataFrame) -> None:
    assert list(frame.columns) == ["id", "p", "label"]
    assert list(frame["id"]) == ["0012", "12"]
    assert frame["p"].to_numpy().tolist() == [0.25, 0.5]
    assert frame["label"].to_numpy().tolist() == [1, 0]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_every_dialect_is_one_table(tmp_path, encoding, separator, ending):
    text = PLAIN.replace(",", separator).replace("\n", ending)
    mark = "\ufeff" if encoding in ("utf-16-le", "utf-16-be") else ""
    check_plain(read_table(put(tmp_path, (mark + text).encode(encoding)), text=["id"]))


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas(tmp_path, separator):
    text = PLAIN.replace(",", separator).replace("0.", "0,")
    check_plain(read_table(put(tmp_path, text)))


def test_decimal_commas_leave_text_alone(tmp_path):
    frame = read_table(put(tmp_path, "id;p;note\n1,5;0,5;1,5 or so\n2,5;,25;\n"), text=["id"])
    assert list(frame["id"]) == ["1,5", "2,5"]
    assert frame["p"].tolist() == [0.5, 0.25]
    assert frame["note"][0] == "1,5 or so"


def test_quoted_fields(tmp_path):
    text = 'id,"p, of class 1",note\n"a,1",0.5,"say ""so""\nnow"\nb,0.25,"x;y;z;w"\n'
    frame = read_table(put(tmp_path, text))
    assert list(frame.columns) == ["id", "p, of class 1", "note"]
    assert list(frame["id"]) == ["a,1", "b"]
    assert frame["note"][0] == 'say "so"\nnow'


def test_gzip_spaces_and_nameless_columns(tmp_path):
    text = " id , p ,,\n a ,0.5,7,\n b ,0.25,8,\n"
    path = put(tmp_path, gzip.compress(text.encode()), "t.csv.gz")
    frame = read_table(path)
    assert list(frame.columns) == ["id", "p"] == list(column_names(path))
    assert list(frame["id"]) == ["a", "b"]


@pytest.mark.parametrize("late", [False, True])
def test_latin_1_is_read_and_said(tmp_path, late):
    # Late: beyond the sample and beyond the first block, so only the parser can notice.
    filler = "case,0.5\n" * ((BLOCK_BYTES // 9 + 10) if late else 1)
    path = put(tmp_path, ("id,p\n" + filler + "Jérôme,0.25\n").encode("latin-1"))
    with pytest.warns(ScalecalWarning, match="not UTF-8"):
        frame = read_table(path, text=["id"])
    assert frame["id"].iloc[-1] == "Jérôme"


def test_types_that_widen_after_the_first_block(tmp_path):
    n = BLOCK_BYTES // 4 + 10
    path = put(tmp_path, "p,q\n" + "1,0\n" * n + "0.5,x\n")
    frame = read_table(path)
    assert len(frame) == n + 1
    assert frame["p"].iloc[-1] == 0.5
    assert frame["q"].iloc[-1] == "x"


def test_parquet_equals_csv(tmp_path):
    check_plain(read_table(put(tmp_path, PLAIN), text=["id"]))
    frame = read_table(put(tmp_path, PLAIN), text=["id"])
    frame.to_parquet(tmp_path / "t.parquet")
    check_plain(read_table(tmp_path / "t.parquet"))


def test_one_column(tmp_path):
    assert sniff(put(tmp_path, "p\n0.5\n")).header == ("p",)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"\n \n", "is empty"),
        ("t.csv", b"id,p\n", "no rows"),
        ("t.csv", b"id,p\n1,2\n3\n", "line 3 has 1 field, expected 2"),
        ("t.csv", b"id,p,p\n1,2,3\n", "more than one column named 'p'"),
        ("t.csv", b"PK\x03\x04....", "Excel"),
        ("t.csv", b"a\0b\0", "not a text file"),
        ("t.xlsx", b"PK", "cannot be read as an Excel file"),
        ("t.dat", b"id,p\n1,2\n", r"expected \.csv"),
        ("t.gz", b"id,p\n1,2\n", r"expected \.csv"),
        ("t.csv.gz", b"id,p\n1,2\n", "cannot be read as a table of text"),
        ("t.parquet", b"id,p\n1,2\n", "cannot be read as a Parquet file"),
    ],
)
def test_bad_files_are_one_line(tmp_path, name, content, says):
    with pytest.raises(InputError, match=says) as caught:
        read_table(put(tmp_path, content, name))
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="no file at"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_table(tmp_path)


NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")),
    min_size=1,
    max_size=8,
).filter(lambda s: s == s.strip() and s.lower() not in {"na", "nan", "null", "n/a", "#na"})


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ids=st.lists(NAMES, min_size=1, max_size=12),
    seed=st.integers(0, 2**32 - 1),
    separator=st.sampled_from([",", ";", "\t"]),
    comma=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    quoting=st.sampled_from([0, 1]),
)
def test_round_trip(tmp_path, ids, seed, separator, comma, encoding, quoting):
    p = np.random.default_rng(seed).random(len(ids))
    path = tmp_path / "t.csv"
    decimal = "," if comma and separator != "," else "."
    pd.DataFrame({"id": ids, "p": p}).to_csv(
        path, sep=separator, decimal=decimal, encoding=encoding, index=False, quoting=quoting
    )
    frame = read_table(path, text=["id"])
    assert list(frame["id"]) == ids
    np.testing.assert_array_equal(frame["p"].to_numpy(float), p)
