from __future__ import annotations

import csv
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scalecal.checks import InputError
from scalecal.datasets import open_dataset
from scalecal.datasets.image_sources import ImageError, ZipSource
from tests.datasets.trees import MHIST_HEADER, make_mhist, picture


def rewrite(root: Path, change) -> None:
    """Change the annotations: `change` gets and returns the list of rows without the header."""
    file = root / "annotations.csv"
    with file.open(newline="") as handle:
        header, *rows = csv.reader(handle)
    with file.open("w", newline="") as handle:
        csv.writer(handle).writerows([header, *change(rows)])


def test_table_and_pixels(tmp_path: Path) -> None:
    opened = open_dataset("mhist", make_mhist(tmp_path), partial=True)
    table = opened.table
    assert opened.classes == ("HP", "SSA")
    assert opened.kind == "files"
    assert table["id"].tolist()[:2] == ["MHIST_aaa", "MHIST_aab"]
    assert table["votes"].tolist() == [i % 8 for i in range(16)]
    assert table["n_raters"].unique().tolist() == [7]
    assert table["label"].tolist() == [int(i % 8 >= 4) for i in range(16)]
    assert table["label_name"].tolist()[3:5] == ["HP", "SSA"]
    assert table["split"].value_counts().to_dict() == {"train": 10, "test": 6}
    assert table["group"].isna().all()
    assert table["path"][0] == "images/MHIST_aaa.png"
    np.testing.assert_array_equal(opened.read_one(3), picture(3))
    two = [opened.read_one(row) for row in (4, 5)]
    assert isinstance(two, list)
    np.testing.assert_array_equal(two[1], picture(5))
    assert opened.verify() == ()


def test_published_counts_are_required(tmp_path: Path) -> None:
    make_mhist(tmp_path)
    with pytest.raises(
        InputError, match=r"rows of the table: 16 found, 3,152 published.*bmirds.*--partial"
    ):
        open_dataset("mhist", tmp_path)
    warnings = open_dataset("mhist", tmp_path, partial=True).warnings
    assert any("SSA images: 8 found, 990 published" in line for line in warnings)


def test_published_counts_pass(tmp_path: Path) -> None:
    """3,152 names on one picture: the counts of the publisher open without partial."""
    make_mhist(tmp_path, 1)
    first = tmp_path / "images" / "MHIST_aaa.png"
    small = first.read_bytes()
    first.unlink()
    rows = []
    # Train 1,545 HP and 630 SSA, test 617 and 360.
    sizes = {
        ("train", "HP"): 1545,
        ("train", "SSA"): 630,
        ("test", "HP"): 617,
        ("test", "SSA"): 360,
    }
    for (split, label), n in sizes.items():
        rows += [(label, 4 if label == "SSA" else 3, split)] * n
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for i in range(len(rows)):
            archive.writestr(f"images/MHIST_{i:04d}.png", small)
    shutil.rmtree(tmp_path / "images")
    rewrite(tmp_path, lambda _: [(f"MHIST_{i:04d}.png", *row) for i, row in enumerate(rows)])
    opened = open_dataset("mhist", tmp_path)
    assert opened.warnings == ()
    assert opened.describe()["classes"] == {"HP": 2162, "SSA": 990}
    assert opened.describe()["splits"] == {"train": 2175, "test": 977}


def test_zip_reads_like_the_folder(tmp_path: Path) -> None:
    plain = open_dataset("mhist", make_mhist(tmp_path / "a"), partial=True)
    zipped = open_dataset("mhist", make_mhist(tmp_path / "b", zipped=True), partial=True)
    assert isinstance(zipped.source, ZipSource)
    assert zipped.table.equals(plain.table)
    assert zipped.fingerprint() == plain.fingerprint()
    np.testing.assert_array_equal(zipped.read_one(7), plain.read_one(7))
    again = pickle.loads(pickle.dumps(zipped))
    np.testing.assert_array_equal(again.read_one(7), plain.read_one(7))
    assert zipped.verify() == ()


@pytest.mark.parametrize(
    "name",
    ["../MHIST_evil.png", "/etc/evil.png", "images/../../evil.png", "..\\evil.png", "C:\\evil"],
)
def test_archive_that_points_outside_is_refused(tmp_path: Path, name: str) -> None:
    make_mhist(tmp_path, zipped=True)
    with zipfile.ZipFile(tmp_path / "images.zip", "a") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(InputError, match="points outside the archive"):
        open_dataset("mhist", tmp_path, partial=True)
    assert not (tmp_path.parent / "MHIST_evil.png").exists()


def test_damaged_archives(tmp_path: Path) -> None:
    make_mhist(tmp_path, zipped=True)
    file = tmp_path / "images.zip"
    whole = bytearray(file.read_bytes())
    whole[200] ^= 0xFF
    file.write_bytes(whole)
    opened = open_dataset("mhist", tmp_path, partial=True)
    assert ["MHIST_aaa.png" in line for line in opened.verify()] == [True]
    with pytest.raises(ImageError, match=r"images/MHIST_aaa\.png"):
        opened.read_one(0)
    file.write_bytes(bytes(whole[: len(whole) // 2]))
    with pytest.raises(InputError, match="not a complete zip file"):
        open_dataset("mhist", tmp_path, partial=True)


def test_members_that_macos_adds_are_passed_over(tmp_path: Path) -> None:
    make_mhist(tmp_path, zipped=True)
    with zipfile.ZipFile(tmp_path / "images.zip", "a") as archive:
        archive.writestr("__MACOSX/images/._MHIST_aaa.png", b"x")
    assert len(open_dataset("mhist", tmp_path, partial=True)) == 16


def test_missing_images(tmp_path: Path) -> None:
    make_mhist(tmp_path)
    (tmp_path / "images" / "MHIST_aac.png").unlink()
    with pytest.raises(
        InputError, match=r"15 of 16 images found; 1 missing, such as 'images/MHIST_aac"
    ):
        open_dataset("mhist", tmp_path)
    opened = open_dataset("mhist", tmp_path, partial=True)
    assert len(opened) == 15
    assert "MHIST_aac" not in opened.table["id"].tolist()
    np.testing.assert_array_equal(opened.read_one(2), picture(3))


def test_images_nobody_annotated_are_noted(tmp_path: Path) -> None:
    make_mhist(tmp_path)
    shutil.copy(tmp_path / "images/MHIST_aaa.png", tmp_path / "images/MHIST_zzz.png")
    opened = open_dataset("mhist", tmp_path, partial=True)
    assert len(opened) == 16
    assert any("not annotated" in line and "MHIST_zzz" in line for line in opened.warnings)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--data DIR.*bmirds"):
        open_dataset("mhist")
    with pytest.raises(InputError, match="no such folder"):
        open_dataset("mhist", tmp_path / "gone")
    with pytest.raises(InputError, match=r"no annotations\.csv"):
        open_dataset("mhist", tmp_path)
    make_mhist(tmp_path, 1)
    with pytest.raises(InputError, match="is a file"):
        open_dataset("mhist", tmp_path / "annotations.csv")
    assert len(open_dataset("mhist", tmp_path, partial=True)) == 1
    shutil.rmtree(tmp_path / "images")
    with pytest.raises(InputError, match=r"neither images/ nor images\.zip"):
        open_dataset("mhist", tmp_path, partial=True)
    (tmp_path / "images").mkdir()
    with pytest.raises(InputError, match="none of the 1 images is there"):
        open_dataset("mhist", tmp_path, partial=True)


def test_wrong_columns_and_values(tmp_path: Path) -> None:
    make_mhist(tmp_path)
    file = tmp_path / "annotations.csv"
    good = file.read_text()
    file.write_text(good.replace(MHIST_HEADER[2], "Votes"))
    with pytest.raises(
        InputError, match=r"no column 'Number of Annotators.*; its columns are 'Image Name'"
    ):
        open_dataset("mhist", tmp_path, partial=True)
    for before, after, message in (
        (",HP,0,", ",TA,0,", "must hold HP or SSA, got 'TA'"),
        (",HP,0,train", ",HP,0,dev", "must hold train or test, got 'dev'"),
        (",HP,0,", ",HP,4,", "contradicts the votes for 'MHIST_aaa.png'"),
        (",HP,0,", ",HP,x,", "must hold 0, 1, .* or 7, got 'x'"),
        (",HP,0,", ",HP,,", "column 'Number of Annotators .* is empty at row 0"),
        (",SSA,7,", ",SSA,8,", "or 7, got '8'"),
        ("MHIST_aab.png", "MHIST_aaa.png", "must be unique.*MHIST_aaa"),
        ("MHIST_aab.png", "../x.png", "not a plain file name"),
    ):
        file.write_text(good.replace(before, after, 1))
        with pytest.raises(InputError, match=message):
            open_dataset("mhist", tmp_path, partial=True)


def test_broken_images_open_but_do_not_verify(tmp_path: Path) -> None:
    make_mhist(tmp_path)
    cut = tmp_path / "images" / "MHIST_aab.png"
    cut.write_bytes(cut.read_bytes()[:120])
    (tmp_path / "images" / "MHIST_aad.png").write_bytes(b"")
    opened = open_dataset("mhist", tmp_path, partial=True)
    with pytest.raises(ImageError):
        opened.read_one(1)
    problems = opened.verify(workers=2)
    assert len(problems) == 2
    assert "MHIST_aab" in problems[0]


def test_wrong_size(tmp_path: Path) -> None:
    make_mhist(tmp_path)
    Image.fromarray(picture(1, 200, 224)).save(tmp_path / "images" / "MHIST_aab.png")
    opened = open_dataset("mhist", tmp_path, partial=True)
    assert opened.verify() == ("MHIST_aab: 200 x 224 pixels, 224 x 224 published",)


def test_describe(tmp_path: Path) -> None:
    facts = open_dataset("mhist", make_mhist(tmp_path), partial=True).describe()
    assert facts["images"] == 16
    assert facts["published"] == 3152
    assert facts["votes"]["readers"] == [7]
    # Votes 0..7 twice: agreement 7 and 6 are high, 5 medium, 4 low.
    assert facts["votes"]["strata"] == {"high": 8, "medium": 4, "low": 4}
    by_split = facts["votes"]["strata_by_split"]
    assert sum(by_split["train"].values()) == 10
    assert facts["licence"] == "Dataset Research Use Agreement"


def test_fingerprint_sees_content_and_annotation_but_not_time(tmp_path: Path) -> None:
    import os

    root = make_mhist(tmp_path / "a")
    before = open_dataset("mhist", root, partial=True).fingerprint()
    assert before.startswith("sha256:")
    os.utime(root / "images" / "MHIST_aaa.png", (1, 1))
    shutil.copytree(root, tmp_path / "b")
    assert open_dataset("mhist", tmp_path / "b", partial=True).fingerprint() == before
    rewrite(root, lambda rows: [["MHIST_aaa.png", "HP", "1", "train"], *rows[1:]])
    changed = open_dataset("mhist", root, partial=True).fingerprint()
    assert changed != before
    Image.fromarray(picture(77)).save(root / "images" / "MHIST_aac.png")
    assert open_dataset("mhist", root, partial=True).fingerprint() not in (before, changed)


def test_large_sets_are_hashed_by_their_ends(tmp_path: Path, monkeypatch) -> None:
    from scalecal.datasets import image_sets

    make_mhist(tmp_path, 2)
    big = tmp_path / "images" / "MHIST_aaa.png"
    noise = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    Image.fromarray(noise).save(big)
    opened = open_dataset("mhist", tmp_path, partial=True)
    monkeypatch.setattr(image_sets, "FULL_HASH_LIMIT", 1000)
    before = opened.fingerprint()
    assert before.startswith("sha256-ends:")
    assert opened.fingerprint() == before
    content = bytearray(big.read_bytes())
    content[-100] ^= 1
    big.write_bytes(content)
    assert opened.fingerprint() != before


def test_take_keeps_rows_together(tmp_path: Path) -> None:
    opened = open_dataset("mhist", make_mhist(tmp_path), partial=True)
    some = opened.take(np.array([5, 2]))
    assert some.table["id"].tolist() == ["MHIST_aaf", "MHIST_aac"]
    np.testing.assert_array_equal(some.read_one(1), picture(2))
    mask = opened.table["split"].eq("test").to_numpy(dtype=bool)
    assert len(opened.take(mask)) == 6
    with pytest.raises(InputError, match="image files, not arrays"):
        opened.read_block(0, 2)
