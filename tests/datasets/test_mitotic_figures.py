"""AtNorM-MD and AMi-Br as they are published, made small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.datasets import DATASETS, catalogue, open_dataset
from tests.datasets.trees import make_ami_br, make_atnorm_md, picture

MADE = {"atnorm-md": make_atnorm_md, "ami-br": make_ami_br}
TABLES = {"atnorm-md": "AtNorM-MD_expert_votes.csv", "ami-br": "AMI-BR.csv"}


def test_five_pathologists(tmp_path: Path) -> None:
    opened = open_dataset("atnorm-md", make_atnorm_md(tmp_path), partial=True)
    table = opened.table
    assert opened.classes == ("Normal", "Atypical")
    assert table["id"].tolist() == ["1", "2", "3", "4", "5", "6"]
    assert table["votes"].tolist() == [0, 1, 2, 3, 4, 5]
    assert table["n_raters"].unique().tolist() == [5]
    assert table["label"].tolist() == [0, 0, 0, 1, 1, 1]
    assert table["group"].isna().all()
    assert table["path"][3] == "AtNorM-MD/Atypical/4.png"
    np.testing.assert_array_equal(opened.read_one(3), picture(4, 128, 128))
    assert opened.verify() == ()


def test_three_pathologists_and_slides_of_two_sources(tmp_path: Path) -> None:
    root = make_ami_br(tmp_path, [0, 1, 2, 3, 3, 2, 1, 0])
    opened = open_dataset("ami-br", root, partial=True)
    table = opened.table
    assert table["id"].tolist()[:3] == ["TUPAC16_100", "MIDOG21_100", "TUPAC16_101"]
    assert table["votes"].tolist() == [0, 1, 2, 3, 3, 2, 1, 0]
    assert table["n_raters"].unique().tolist() == [3]
    assert table["label"].tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
    groups = ["TUPAC16/000.tiff", "MIDOG21/000.tiff", "TUPAC16/000.tiff", "MIDOG21/000.tiff"]
    assert table["group"].tolist()[:4] == groups
    assert len(set(table["group"])) == 4, "the sources number their slides alike"
    assert opened.verify() == ()


@pytest.mark.parametrize("name", MADE)
def test_the_published_counts_are_required(tmp_path: Path, name: str) -> None:
    root = MADE[name](tmp_path)
    with pytest.raises(
        InputError, match=r"rows of the table: \d found, \d,\d{3} published.*--parti"
    ):
        open_dataset(name, root)
    said = open_dataset(name, root, partial=True).warnings
    assert any("readers called atypical: 1 found" in line for line in said)


@pytest.mark.parametrize("name", MADE)
def test_a_partial_download_is_said_and_usable(tmp_path: Path, name: str, monkeypatch) -> None:
    """The table is whole, images are missing: an error with both numbers, or what is there."""
    counts = {"atnorm-md": "ATNORM_MD_COUNTS", "ami-br": "AMI_BR_COUNTS"}[name]
    made = {"atnorm-md": (1,) * 6, "ami-br": (1,) * 4}[name]
    monkeypatch.setattr(catalogue, counts, made)
    record = counts.removesuffix("_COUNTS")
    monkeypatch.setattr(catalogue, record, replace(getattr(catalogue, record), n=len(made)))
    root = MADE[name](tmp_path)
    assert open_dataset(name, root).warnings == (), "all is there"
    first = next(iter(sorted(root.rglob("*.png"))))
    first.unlink()
    n = len(made)
    with pytest.raises(
        InputError, match=rf"{n - 1} of {n} images found; 1 missing, such as '.*png'"
    ):
        open_dataset(name, root)
    part = open_dataset(name, root, partial=True)
    assert len(part) == n - 1
    assert first.stem not in part.table["id"].tolist()
    for home in root.rglob("*.png"):
        home.unlink()
    with pytest.raises(InputError, match=r"none of the \d images is there"):
        open_dataset(name, root, partial=True)


def test_check_says_how_much_is_there(tmp_path: Path) -> None:
    root = make_atnorm_md(tmp_path)
    run = CliRunner().invoke(app, ["check", "atnorm-md", "--data", str(root), "--partial"])
    assert run.exit_code == 0, run.exception
    assert "warning: rows of the table: 6 found, 2,107 published" in run.stderr
    assert run.stdout.strip().endswith("no problem found in these 6 of 2,107 images")


def test_published_totals() -> None:
    assert DATASETS["atnorm-md"].n == 2107
    assert sum(catalogue.ATNORM_MD_COUNTS[3:]) == 219
    assert DATASETS["ami-br"].n == 3720


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda t: t.replace("Expert_3", "E3").replace("expert3_atypical", "e3"),
            "has no column '",
        ),
        (
            lambda t: t.replace("Atypical,Normal,", "Maybe,Normal,").replace("True", "yes"),
            "must hold",
        ),
        (
            lambda t: t.replace("Atypical,Normal,", ",Normal,").replace("True", ""),
            "is empty at row",
        ),
        (
            lambda t: t.replace("Normal\r\n", "Atypical\r\n").replace("False\r\n", "True\r\n"),
            "contradicts",
        ),
        (
            lambda t: t.replace("\n2.png", "\n../2.png").replace(",100,", ",../1,"),
            "not a plain file name",
        ),
    ],
)
def test_a_changed_table_is_refused(tmp_path: Path, name: str, change, said: str) -> None:
    root = MADE[name](tmp_path)
    table = root / TABLES[name]
    table.write_bytes(change(table.read_bytes().decode()).encode())
    with pytest.raises(InputError, match=said):
        open_dataset(name, root, partial=True)


@pytest.mark.parametrize("name", MADE)
def test_missing_files_name_what_is_needed(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=rf"{name} needs a data folder.*DeepMicroscopy"):
        open_dataset(name)
    with pytest.raises(InputError, match=rf"no {TABLES[name]} in .*DeepMicroscopy"):
        open_dataset(name, tmp_path)


def test_images_of_another_size_or_broken_do_not_verify(tmp_path: Path) -> None:
    root = make_atnorm_md(tmp_path)
    Image.new("RGB", (64, 64)).save(root / "AtNorM-MD/Normal/1.png")
    (root / "AtNorM-MD/Normal/2.png").write_bytes(b"no image")
    one, two = open_dataset("atnorm-md", root, partial=True).verify()
    assert one == "1: 64 x 64 pixels, 128 x 128 published"
    assert "not a whole PNG" in two
