from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalecal.checks import InputError
from scalecal.datasets import open_dataset
from scalecal.datasets.image_sets import ImageSet
from tests.datasets.trees import make_folder, picture

FILES = ("a.png", "b.png", "sub/c.png", "sub/d.bmp")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "data", FILES)


def opened(data: Path, text: str, encoding: str = "utf-8", **options: object) -> ImageSet:
    file = data.parent / "cases.csv"
    file.write_text(text, encoding=encoding)
    return open_dataset(f"table:{file}", data, **options)


def test_everything_given(data: Path) -> None:
    text = (
        "path,id,label,votes,n_raters,group,split,note\n"
        "a.png,001,HP,1,7,p1,train,x\n"
        "b.png,002,SSA,6,7,p1,valid,\n"
        "sub/c.png,003,HP,0,3,p2,TEST,\n"
        "sub/d.bmp,004,,,,p2,,\n"
    )
    result = opened(data, text)
    table = result.table
    cases = result.cases
    assert cases.classes == ("HP", "SSA")
    assert cases.y.tolist() == [0, 1, 0, -1]
    assert cases.votes.tolist() == [[6, 1], [1, 6], [3, 0], [0, 0]]
    assert cases.groups.values.tolist() == ["p1", "p1", "p2", "p2"]
    assert cases.split.values.tolist() == ["train", "val", "test", ""]
    assert table["id"].tolist() == ["001", "002", "003", "004"]
    assert table["label"].tolist()[:3] == [0, 1, 0]
    assert table["votes"].tolist()[:3] == [1, 6, 0]
    assert table["n_raters"].tolist()[:3] == [7, 7, 3]
    assert table["group"].tolist() == ["p1", "p1", "p2", "p2"]
    assert table["split"].tolist()[:3] == ["train", "val", "test"]
    assert table.iloc[3][["label", "votes", "n_raters", "split"]].isna().all()
    assert result.describe()["unlabelled"] == 1
    np.testing.assert_array_equal(result.read_one(3), picture(3, 16, 12))


def test_byte_order_mark_semicolons_and_accents(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "Größe", ("été.png", "図.png"))
    result = opened(data, "path;label\nété.png;b\n図.png;a\n", encoding="utf-8-sig")
    assert result.table["id"].tolist() == ["été.png", "図.png"]
    assert result.table["label"].tolist() == [1, 0]
    np.testing.assert_array_equal(result.read_one(1), picture(1, 16, 12))


def test_the_other_spelling_of_an_accent_is_found(tmp_path: Path) -> None:
    from unicodedata import normalize

    data = make_folder(tmp_path / "data", (normalize("NFD", "été.png"), "b.png"))
    result = opened(data, f"path,label\n{normalize('NFC', 'été.png')},0\nb.png,1\n")
    assert result.table["id"][0] == normalize("NFC", "été.png")
    assert result.verify() == ()


def test_data_defaults_to_the_folder_of_the_table(data: Path) -> None:
    file = data / "cases.csv"
    file.write_text("path,label\na.png,0\nb.png,1\n")
    assert len(open_dataset(f"table:{file}")) == 2


def test_labels_by_name_are_sorted_or_as_given(data: Path) -> None:
    text = "path,label\na.png,tumour\nb.png,normal\n"
    assert opened(data, text).classes == ("normal", "tumour")
    assert opened(data, text).table["label"].tolist() == [1, 0]
    other = opened(data, text, classes=("tumour", "normal", "unclear"))
    assert other.table["label"].tolist() == [0, 1]
    with pytest.raises(InputError, match=r"tumour.*classes are"):
        opened(data, text, classes=("normal", "other"))
    with pytest.raises(InputError, match="named once each"):
        opened(data, text, classes=("normal", "tumour", "normal"))
    with pytest.raises(InputError, match="two classes or more"):
        opened(data, "path,label\na.png,x\n")


def test_labels_by_number_are_the_class_numbers(data: Path) -> None:
    # One class in the table keeps its meaning.
    assert opened(data, "path,label\na.png,1\nb.png,1\n").table["label"].tolist() == [1, 1]
    assert opened(data, "path,label\na.png,1.0\nb.png,0.0\n").table["label"].tolist() == [1, 0]
    three = opened(data, "path,label\na.png,2\nb.png,0\nsub/c.png,1\n")
    assert three.classes == ("0", "1", "2")
    named = opened(data, "path,label\na.png,10\nb.png,9\n")
    assert named.classes == ("9", "10")
    assert named.table["label"].tolist() == [1, 0]


def test_majority_of_votes_where_there_is_no_label(data: Path) -> None:
    text = "path,votes,n_raters\na.png,1,4\nb.png,3,4\nsub/c.png,2,4\nsub/d.bmp,,\n"
    result = opened(data, text, ties="drop")
    assert result.classes == ("0", "1")
    assert result.table["label"].tolist()[:2] == [0, 1]
    assert result.table["label"].isna().tolist() == [False, False, True, True]
    assert "in 1 they are tied and there is none" in result.warnings[0]
    assert result.describe()["votes"]["tied"] == 1
    assert opened(data, text, ties="last").table["label"].tolist()[:3] == [0, 1, 1]
    with pytest.raises(InputError, match=r"1 of 4 cases are tied \(line 4\)\. Choose"):
        opened(data, text)
    with pytest.raises(InputError, match="ties must be one of"):
        opened(data, text, ties="coin")


def test_labels_stand_against_the_majority_with_a_note(data: Path) -> None:
    result = opened(data, "path,label,votes,n_raters\na.png,1,1,7\nb.png,1,7,7\n")
    assert result.table["label"].tolist() == [1, 1]
    assert "In 1 of 2 cases the label is not" in result.warnings[0]


@pytest.mark.parametrize(
    "text", ["path\na.png\nb.png\n", "path,label,votes,n_raters\na.png,,,\nb.png,,,\n"]
)
def test_images_without_labels(data: Path, text: str) -> None:
    result = opened(data, text)
    assert result.classes == ()
    assert result.table["label"].isna().all()
    assert "there are no labels" in result.warnings[0]
    assert result.describe()["unlabelled"] == 2
    assert "classes unknown" in repr(result)
    assert opened(data, text, classes=("HP", "SSA")).classes == ("HP", "SSA")


def test_votes_per_class(data: Path) -> None:
    text = "path,votes_b,votes_a,votes_c\na.png,2,1,0\nb.png,0,3,0\nsub/c.png,1,1,1\nsub/d.bmp,,,\n"
    result = opened(data, text, ties="drop")
    assert result.classes == ("a", "b", "c")
    table = result.table
    assert table["votes_a"].tolist()[:3] == [1, 3, 1]
    assert table["votes_b"].tolist()[:3] == [2, 0, 1]
    assert table["n_raters"].tolist()[:3] == [3, 3, 3]
    assert table["votes"].isna().all()
    assert table["label"].tolist()[:2] == [1, 0]
    assert table["label"].isna().tolist() == [False, False, True, True]
    assert table["votes_a"].isna().tolist() == [False, False, False, True]
    two = opened(data, "path,votes_SSA,votes_HP\na.png,2,1\nb.png,0,3\n")
    assert two.classes == ("HP", "SSA")
    assert two.table["votes"].tolist() == [2, 0]
    assert two.table["n_raters"].tolist() == [3, 3]
    more = opened(data, "path,votes_x,votes_y\na.png,2,1\n", classes=("z", "y", "x"))
    assert more.table[["votes_z", "votes_y", "votes_x"]].to_numpy().tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\na.png,0\n", "no column 'path'.*file, label"),
        ("path,label\n,0\n", "column 'path' is empty at line 2"),
        ("path,label,id\na.png,0,\n", "column 'id' must name every case"),
        ("path,label,id\na.png,0,x\nb.png,1,x\n", "'id' must be unique.*'x' at lines 2, 3"),
        ("path,label\na.png,0\na.png,1\n", "ids must be unique"),
        ("path,label,split\na.png,0,dev\n", "'split' must hold train, val, test.*'dev' at line 2"),
        ("path,votes\na.png,3\n", "no column 'n_raters'"),
        ("path,votes,n_raters\na.png,3,\n", "'n_raters' is empty at line 2"),
        ("path,votes,n_raters\na.png,5,4\n", "must not exceed n_raters, got 5 of 4"),
        ("path,votes,n_raters\na.png,1.5,4\n", "whole numbers >= 0, got 1.5"),
        ("path,votes,n_raters\na.png,-1,4\n", "whole numbers"),
        ("path,votes_a\na.png,1\n", "give one column per class"),
        ("path,votes,n_raters,votes_a\na.png,1,2,3\n", "both 'votes' and 'votes_a'"),
        ("path,votes_a,votes_b\na.png,1,\n", "some but not all of votes_a, votes_b are empty"),
        ("path,label,group\na.png,0,x\nb.png,1,\n", "'group' is empty at line 3"),
        (
            "path,label,votes,n_raters\na.png,x,1,2\nb.png,y,1,2\nsub/c.png,z,1,2\n",
            "there are 3 classes",
        ),
        ("path,label\n", "no rows"),
        ("", "empty"),
    ],
)
def test_tables_that_cannot_be_used(data: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        opened(data, text)


@pytest.mark.parametrize("path", ["../secret.png", "/etc/passwd", "sub/../../x.png", "..\\x.png"])
def test_paths_that_lead_out_are_refused(data: Path, path: str) -> None:
    with pytest.raises(InputError, match="leads out of the data folder"):
        opened(data, f"path,label\n{path},0\n")


def test_absolute_paths_and_dots_inside_the_folder_are_taken(data: Path) -> None:
    text = f"path,label\n{data / 'a.png'},0\nsub/../b.png,1\nsub\\c.png,1\n"
    assert opened(data, text).table["path"].tolist() == ["a.png", "b.png", "sub/c.png"]


def test_missing_files(data: Path) -> None:
    gone = "".join(f"gone{i}.png,1\n" for i in range(8))
    text = f"path,label\na.png,0\n{gone}"
    with pytest.raises(InputError, match=r"8 of 9 images are not in .*'gone0\.png', .*\.\.\."):
        opened(data, text)
    result = opened(data, text, partial=True)
    assert result.table["path"].tolist() == ["a.png"]
    with pytest.raises(InputError, match="none of the images listed"):
        opened(data, f"path,label\n{gone}", partial=True)


def test_one_image_named_by_two_rows_is_noted(data: Path) -> None:
    result = opened(data, "path,label,id\na.png,0,x\na.png,1,y\n")
    assert result.warnings == ("1 rows name an image that another row names too",)


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file at"):
        open_dataset(f"table:{tmp_path / 'gone.csv'}")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
@settings(max_examples=15, deadline=None)
def test_votes_come_back_as_written(tmp_path_factory, pairs) -> None:
    data = tmp_path_factory.mktemp("data")
    make_folder(data, ["a.png"])
    lines = [f"a.png,{i},{no},{yes}" for i, (no, yes) in enumerate(pairs)]
    result = opened(data, "path,id,votes_no,votes_yes\n" + "\n".join(lines) + "\n", ties="drop")
    assert result.cases.votes is None or result.cases.votes.tolist() == [list(p) for p in pairs]
    readers = result.table["n_raters"].fillna(0).tolist()
    assert readers == [no + yes for no, yes in pairs]
    assert result.table["label"].isna().tolist() == [no == yes for no, yes in pairs]
    labels = result.table["label"].fillna(-1).tolist()
    assert labels == [-1 if no == yes else int(yes > no) for no, yes in pairs]
