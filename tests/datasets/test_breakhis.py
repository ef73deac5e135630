from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalecal.checks import InputError
from scalecal.datasets import DATASETS, open_dataset
from scalecal.datasets.catalogue import MAGNIFICATIONS, parse_names
from tests.datasets.trees import BREAKHIS_SLIDES, make_breakhis, picture, save_picture


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    return make_breakhis(tmp_path_factory.mktemp("breakhis"))


def test_table(tree: Path) -> None:
    opened = open_dataset("breakhis", tree, partial=True)
    table = opened.table.set_index("id")
    assert opened.classes == ("benign", "malignant")
    assert len(opened) == len(BREAKHIS_SLIDES) * 2 * 2
    row = table.loc["SOB_B_A-14-22549AB-40-001"]
    assert row["group"] == "14-22549AB"
    assert row["label"] == 0
    assert row["subtype"] == "adenosis"
    assert row["magnification"] == 40
    assert row["path"].endswith("/adenosis/SOB_B_A_14-22549AB/40X/SOB_B_A-14-22549AB-40-001.png")
    assert row["path"].startswith("histology_slides/breast/benign/SOB/")
    assert table.loc["SOB_M_PC-15-190EF-400-002", "group"] == "15-190EF"
    assert opened.table["split"].isna().all()
    assert opened.verify() == ()
    first = opened.table["id"].tolist().index("SOB_B_A-14-22549AB-40-001")
    np.testing.assert_array_equal(opened.read_one(first), picture(0, 70, 46))


def test_slide_13412_is_one_group_under_two_subtypes(tree: Path) -> None:
    opened = open_dataset("breakhis", tree, partial=True)
    ids = opened.table["id"].str
    both = opened.table[ids.contains("14-13412")]
    assert sorted(both["subtype"].unique()) == ["ductal_carcinoma", "lobular_carcinoma"]
    assert both["group"].unique().tolist() == ["14-13412"]
    assert any("slide '14-13412' lies under more than one subtype" in w for w in opened.warnings)
    facts = opened.describe()
    assert facts["slides"] == len(BREAKHIS_SLIDES)
    assert facts["groups"] == len(BREAKHIS_SLIDES) - 1


def test_root_or_its_parent(tree: Path, tmp_path: Path) -> None:
    at_parent = open_dataset("breakhis", tree, partial=True)
    at_root = open_dataset("breakhis", tree / "BreaKHis_v1", partial=True)
    assert at_parent.table.equals(at_root.table)
    assert at_parent.fingerprint() == at_root.fingerprint()
    with pytest.raises(InputError, match="no histology_slides/breast"):
        open_dataset("breakhis", tmp_path)


@pytest.mark.parametrize("asked", [40, "40", "40X", "40x"])
def test_one_magnification(tree: Path, asked: int | str) -> None:
    opened = open_dataset("breakhis", tree, partial=True, magnification=asked)
    assert opened.table["magnification"].unique().tolist() == [40]
    assert len(opened) == 18
    assert opened.describe()["magnifications"] == {"40X": 18}


def test_magnifications_that_do_not_exist(tree: Path) -> None:
    with pytest.raises(InputError, match="magnification must be one of '40'"):
        open_dataset("breakhis", tree, magnification=80)
    with pytest.raises(InputError, match="no BreakHis images"):
        open_dataset("breakhis", tree, magnification=200, partial=True)


def test_counts(tree: Path) -> None:
    with pytest.raises(InputError, match="benign images at 40X: 8 found, 625 published"):
        open_dataset("breakhis", tree)
    warnings = open_dataset("breakhis", tree, partial=True).warnings
    assert any("slides: 9 found, 82 published" in line for line in warnings)
    assert sum(map(sum, MAGNIFICATIONS.values())) == DATASETS["breakhis"].n == 7909


def test_files_in_the_wrong_place(tmp_path: Path) -> None:
    make_breakhis(tmp_path, slides=BREAKHIS_SLIDES[:5], each=1)
    top = tmp_path / "BreaKHis_v1/histology_slides/breast/malignant/SOB/ductal_carcinoma"
    source = top / "SOB_M_DC_14-13412/40X/SOB_M_DC-14-13412-40-001.png"
    shutil.copy(source, source.with_name("copy of it.png"))
    (source.parent / "._SOB_M_DC-14-13412-40-001.png").write_bytes(b"macOS")
    with pytest.raises(InputError, match="1 file names are not of BreakHis"):
        open_dataset("breakhis", tmp_path)
    opened = open_dataset("breakhis", tmp_path, partial=True)
    assert len(opened) == 10
    save_picture(source.parent / "deeper" / source.name, 0, 8, 8)
    with pytest.raises(InputError, match="ids must be unique"):
        open_dataset("breakhis", tmp_path, partial=True)


@given(
    st.sampled_from(["A", "F", "PT", "TA", "DC", "LC", "MC", "PC"]),
    st.integers(10, 99),
    st.from_regex(r"[1-9][0-9]{2,4}[A-G]{0,2}", fullmatch=True),
    st.sampled_from([40, 100, 200, 400]),
    st.integers(1, 999),
)
def test_names_are_read_by_their_fields(kind, year, slide, magnification, number) -> None:
    letter = "B" if kind in ("A", "F", "PT", "TA") else "M"
    stem = f"SOB_{letter}_{kind}-{year}-{slide}-{magnification}-{number:03d}"
    fields = stem.split("-")
    (parsed,) = parse_names([stem]).to_numpy().tolist()
    assert parsed == [letter, kind, f"{fields[1]}-{fields[2]}", str(magnification)]


@pytest.mark.parametrize("stem", ["", "SOB_M_XX-14-1-40-001", "SOB_M_DC_14-1-40-001", "a-b-c"])
def test_other_names_are_not_read(stem: str) -> None:
    assert parse_names([stem]).isna().all(axis=None)
