"""Extraction of broken images, and of folders whose files were damaged."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from scalecal.checks import InputError, ScalecalWarning
from scalecal.datasets.image_sources import ImageError
from scalecal.features import load_features
from tests.features.made import DEVICES, contents, open_tiles, reference, run, write_tiles


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiles(tmp_path_factory.mktemp("kächeln"), 23, ((20, 20), (16, 16), (31, 18)))


def break_tiles(folder: Path) -> tuple[Path, list[str]]:
    """Break a few tiles in different ways: cut short, no image at all, empty."""
    made = write_tiles(folder, 12)
    files = sorted(made.rglob("*.png"))
    files[0].write_bytes(files[0].read_bytes()[:200])
    files[5].write_bytes(b"<html>not found</html>")
    for file in files[8:11]:
        file.write_bytes(b"")
    return made, [f.stem for f in (files[0], files[5], *files[8:11])]


@pytest.mark.parametrize("device", DEVICES)
def test_broken_images_are_left_out_and_listed(tmp_path: Path, device: str) -> None:
    folder, stems = break_tiles(tmp_path / "t")
    images = open_tiles(folder)
    options = {"device": device, "dtype": "float32", "shard_rows": 4}
    result = run(images, tmp_path / "f", **options)
    assert (result.n, result.n_skipped) == (7, 5)
    features = load_features(result.path, verify=True)
    listed = pd.read_csv(tmp_path / "f" / "skipped.csv")
    assert [Path(name).stem for name in listed["id"]] == stems
    assert listed["reason"].str.len().min() > 5
    good = images.take(~images.table["id"].isin(listed["id"]).to_numpy())
    assert features.table["id"].tolist() == good.table["id"].tolist()
    np.testing.assert_allclose(np.asarray(features.X), reference(good), atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_strict_stops_at_the_first(tmp_path: Path, device: str) -> None:
    folder, stems = break_tiles(tmp_path / "t")
    with pytest.raises(ImageError, match=stems[0]):
        run(open_tiles(folder), tmp_path / "f", device=device, strict=True)


def test_strict_then_mended_starts_afresh(tmp_path: Path) -> None:
    folder, broken = break_tiles(tmp_path / "t")
    with pytest.raises(ImageError):
        run(open_tiles(folder), tmp_path / "f", strict=True, shard_rows=1000)
    for file in folder.rglob("*.png"):
        if file.stem in broken:
            Image.new("RGB", (20, 20)).save(file)
    run(open_tiles(folder), tmp_path / "f", strict=True, shard_rows=1000)
    run(open_tiles(folder), tmp_path / "g", strict=True, shard_rows=1000)
    assert contents(tmp_path / "f") == contents(tmp_path / "g")


def test_a_damaged_shard_is_done_again(tiles: Path, tmp_path: Path) -> None:
    run(open_tiles(tiles), tmp_path / "f")
    before = contents(tmp_path / "f")
    os.truncate(tmp_path / "f" / "shards" / "00002.npy", 100)
    with pytest.warns(ScalecalWarning, match=r"shards/00002\.npy is damaged"):
        run(open_tiles(tiles), tmp_path / "f")
    (tmp_path / "f" / "shards" / "00002.npy.damaged").unlink()
    assert contents(tmp_path / "f") == before


def test_all_broken_is_an_error(tmp_path: Path) -> None:
    folder = write_tiles(tmp_path / "t", 4)
    for file in folder.rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(InputError, match="none of the 4 images"):
        run(open_tiles(folder), tmp_path / "f")
