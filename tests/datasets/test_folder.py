from __future__ import annotations

import os
import shutil
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest

from scalecal.checks import InputError, ScalecalWarning
from scalecal.datasets import DATASETS, open_dataset
from tests.datasets.trees import make_folder, picture, save_picture


def test_class_folders(tmp_path: Path) -> None:
    files = ("tumour/b.png", "normal/deep/er/a.bmp", "normal/z.TIF", "tumour/a.png")
    make_folder(tmp_path, files)
    opened = open_dataset(f"folder:{tmp_path}")
    assert opened.classes == ("normal", "tumour")
    assert opened.table["id"].tolist() == sorted(files)
    assert opened.table["label"].tolist() == [0, 0, 1, 1]
    assert opened.table["split"].isna().all()
    np.testing.assert_array_equal(opened.read_one(2), picture(3, 16, 12))
    assert opened.verify() == ()
    assert open_dataset(f"folder:{tmp_path.name}", tmp_path.parent).table.equals(opened.table)


@pytest.mark.parametrize("val", ["val", "valid", "Validation"])
def test_splits_at_the_top(tmp_path: Path, val: str) -> None:
    make_folder(tmp_path, ("train/a/1.png", "train/b/2.png", f"{val}/a/3.png", "test/b/4.png"))
    opened = open_dataset(f"folder:{tmp_path}")
    assert opened.classes == ("a", "b")
    found = dict(zip(opened.table["id"], opened.table["split"], strict=True))
    assert found == {
        "train/a/1.png": "train",
        "train/b/2.png": "train",
        f"{val}/a/3.png": "val",
        "test/b/4.png": "test",
    }


def test_classes_that_are_called_like_splits(tmp_path: Path) -> None:
    make_folder(tmp_path, ("train/1.png", "test/2.png"))
    opened = open_dataset(f"folder:{tmp_path}")
    assert opened.classes == ("test", "train")
    assert opened.table["split"].isna().all()


def test_order_of_classes(tmp_path: Path) -> None:
    make_folder(tmp_path, ("a/1.png", "b/2.png"))
    assert open_dataset(f"folder:{tmp_path}", classes=("b", "a")).table["label"].tolist() == [1, 0]
    with pytest.raises(InputError, match="class folder 'b' is not among the classes"):
        open_dataset(f"folder:{tmp_path}", classes=("a", "c"))


def test_a_name_that_is_no_text_costs_that_image_alone(tmp_path: Path) -> None:
    make_folder(tmp_path, ("a/1.png", "b/2.png"))
    try:
        shutil.copy(tmp_path / "a" / "1.png", os.fsencode(tmp_path) + b"/a/\xff.png")
    except OSError:
        pytest.skip("this file system takes Unicode names only")
    with pytest.warns(ScalecalWarning, match=r"1 image files are left out.*a/\\udcff\.png"):
        opened = open_dataset(f"folder:{tmp_path}")
    assert opened.table["id"].tolist() == ["a/1.png", "b/2.png"]


def test_unicode_names_have_one_order_and_one_id(tmp_path: Path) -> None:
    names = ("größe/été.png", "größe/図.png", "ä/z.png")
    composed = make_folder(tmp_path / "c", [normalize("NFC", name) for name in names])
    decomposed = make_folder(tmp_path / "d", [normalize("NFD", name) for name in names])
    first, second = open_dataset(f"folder:{composed}"), open_dataset(f"folder:{decomposed}")
    assert first.table["id"].tolist() == second.table["id"].tolist()
    assert first.classes == second.classes
    assert first.fingerprint() == second.fingerprint()
    np.testing.assert_array_equal(first.read_one(1), second.read_one(1))


def test_what_is_no_image_is_passed_over(tmp_path: Path) -> None:
    make_folder(tmp_path, ("a/1.png", "b/2.png"))
    (tmp_path / "a" / "notes.txt").write_text("x")
    (tmp_path / "a" / ".hidden.png").write_text("x")
    (tmp_path / "a" / "Thumbs.db").write_text("x")
    save_picture(tmp_path / ".cache" / "x.png", 0)
    opened = open_dataset(f"folder:{tmp_path}")
    assert len(opened) == 2
    assert opened.warnings == ("1 files are not images by their names and were left out",)


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no images"):
        open_dataset(f"folder:{tmp_path}")
    with pytest.raises(InputError, match="no such folder"):
        open_dataset(f"folder:{tmp_path / 'gone'}")
    make_folder(tmp_path, ("a/1.png",))
    with pytest.raises(InputError, match="one class folder only"):
        open_dataset(f"folder:{tmp_path}")
    assert len(open_dataset(f"folder:{tmp_path}", classes=("a", "b"))) == 1
    make_folder(tmp_path, ("b/1.png", "loose.png"))
    with pytest.raises(InputError, match=r"1 images lie in no class folder: 'loose\.png'"):
        open_dataset(f"folder:{tmp_path}")


def test_images_in_no_folder_have_no_labels(tmp_path: Path) -> None:
    make_folder(tmp_path, ("1.png", "2.png"))
    opened = open_dataset(f"folder:{tmp_path}")
    assert opened.classes == ()
    assert opened.table["id"].tolist() == ["1.png", "2.png"]
    assert opened.table["label"].isna().all()
    assert "there are no labels" in opened.warnings[0]
    assert open_dataset(f"folder:{tmp_path}", classes=("a", "b")).classes == ("a", "b")


def test_fingerprint_depends_on_names_contents_and_labels(tmp_path: Path) -> None:
    one = make_folder(tmp_path / "1", ("a/1.png", "b/2.png"))
    before = open_dataset(f"folder:{one}").fingerprint()
    shutil.copytree(one, tmp_path / "2")
    assert open_dataset(f"folder:{tmp_path / '2'}").fingerprint() == before
    assert open_dataset(f"folder:{one}", classes=("b", "a")).fingerprint() != before
    (one / "a" / "1.png").rename(one / "a" / "3.png")
    assert open_dataset(f"folder:{one}").fingerprint() != before


def test_a_file_that_goes_away_is_named(tmp_path: Path) -> None:
    make_folder(tmp_path, ("a/1.png", "b/2.png"))
    opened = open_dataset(f"folder:{tmp_path}")
    before = opened.fingerprint()
    (tmp_path / "b" / "2.png").unlink()
    with pytest.raises(InputError, match=r"b/2\.png: no such file"):
        opened.read_one(1)
    assert opened.fingerprint() != before
    (tmp_path / "b").rmdir()
    for read in (lambda: opened.read_one(1), opened.fingerprint):
        with pytest.raises(InputError, match=r"the folder .*b vanished"):
            read()


@pytest.mark.parametrize("name", DATASETS)
def test_registry(name: str) -> None:
    record = DATASETS[name]
    assert record.name == name
    assert record.form.split(":")[0] == name
    assert record.title
    assert record.licence
    assert record.terms
    if record.n is not None:
        assert record.page.startswith("https://")
        assert record.credit
        assert record.n
        with pytest.raises(InputError, match="--data DIR"):
            open_dataset(name)
    else:
        with pytest.raises(InputError, match=f"write {name}:"):
            open_dataset(name)
    with pytest.raises(InputError, match=f"{name} has no option 'partail'. It has: "):
        open_dataset(record.form, "here", partail=True)


def test_specs_that_say_too_much() -> None:
    with pytest.raises(InputError, match="mhist takes no 'x'"):
        open_dataset("mhist:x")
    with pytest.raises(InputError, match="unknown data set"):
        open_dataset("")


def test_opening_is_light() -> None:
    """Listing data sets must not load pandas, Pillow or HDF5."""
    import subprocess
    import sys

    code = (
        "import sys; from scalecal.datasets import DATASETS; "
        "print([m for m in ('pandas', 'PIL', 'h5py', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
