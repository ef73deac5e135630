"""One odd image never costs the others: it is left out and listed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from scalecal.checks import InputError
from scalecal.datasets.image_sources import ImageError
from scalecal.features import load_features
from scalecal.features.transforms import resize_matrix
from scalecal.limits import VARIABLE
from tests.features.made import DEVICES, contents, open_tiles, run, tiny_encoder, write_tiles


def _bomb(path: Path) -> None:
    Image.new("1", (2_000, 2_000)).save(path, optimize=True)


def _cut(path: Path) -> None:
    Image.effect_noise((40, 40), 50).save(path)
    path.write_bytes(path.read_bytes()[:-300])


def _unreadable(path: Path) -> None:
    Image.new("RGB", (20, 20)).save(path)
    path.chmod(0)


ODD = {
    "wide": (lambda path: Image.new("L", (1_000_000, 1)).save(path), "resized to 16,000,000 x 16"),
    "tall": (lambda path: Image.new("L", (1, 1_000_000)).save(path), "resized to 16 x 16,000,000"),
    "bomb": (_bomb, "more pixels than the limit"),
    "cut": (_cut, "truncated"),
    "dangling": (lambda path: path.symlink_to("nowhere"), "link to a file that is not there"),
    "loop": (lambda path: path.symlink_to(path.name), ""),
    "pipe": (os.mkfifo, "not a plain file"),
    "folder": (Path.mkdir, None),
    "empty": (Path.touch, "the file is empty"),
    "unreadable": (_unreadable, None if os.geteuid() == 0 else "Permission denied"),
}
"""Name -> how to make it, and why it is left out; None where it is not."""


@pytest.mark.parametrize("device", DEVICES)
def test_odd_images_are_left_out_and_listed(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "pixels=1e6")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    tiles = write_tiles(tmp_path / "tiles", 9)
    run(open_tiles(tiles), tmp_path / "alone", device=device)
    home = tiles / "gutartig_ö"
    for name, (make, _) in ODD.items():
        make(home / f"{name}.png")
    encoder = tiny_encoder()
    result = run(open_tiles(tiles), tmp_path / "f", encoder, device=device)
    reasons = {f"gutartig_ö/{name}.png": why for name, (_, why) in ODD.items() if why is not None}
    listed = pd.read_csv(tmp_path / "f" / "skipped.csv").set_index("id")["reason"]
    assert set(listed.index) == set(reasons)
    for name, why in reasons.items():
        assert why in listed[name], name
    assert (result.n, result.n_skipped) == (9 + (os.geteuid() == 0), len(reasons))
    assert sum(shape[0] for shape in encoder.module.shapes) == result.n
    alone, others = load_features(tmp_path / "alone"), load_features(tmp_path / "f")
    same = others.table["id"].isin(alone.table["id"]).to_numpy()
    np.testing.assert_array_equal(np.asarray(others.X)[same], np.asarray(alone.X))
    assert "restarted" not in (tmp_path / "f" / "run.log").read_text()


def test_strict_stops_at_the_odd_image(tmp_path: Path) -> None:
    tiles = write_tiles(tmp_path / "tiles", 4)
    Image.new("L", (1_000_000, 1)).save(tiles / "gutartig_ö" / "wide.png")
    with pytest.raises(ImageError, match=r"resized to 16,000,000 x 16.*SCALECAL_LIMITS=pixels="):
        run(open_tiles(tiles), tmp_path / "f", strict=True)


def test_the_limit_of_pixels_is_raised_and_lowered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)
    images = open_tiles(write_tiles(tmp_path / "tiles", 4))  # 400 pixels each
    with pytest.raises(InputError, match="none of the 4 images could be read"):
        run(images, tmp_path / "none")
    monkeypatch.setenv(VARIABLE, "pixels=400")
    assert run(images, tmp_path / "all").n == 4


def test_an_odd_image_that_goes_away_is_another_set(tmp_path: Path) -> None:
    tiles = write_tiles(tmp_path / "tiles", 6)
    odd = tiles / "gutartig_ö" / "odd.png"
    odd.symlink_to("nowhere")
    run(open_tiles(tiles), tmp_path / "f")
    before = contents(tmp_path / "f")
    run(open_tiles(tiles), tmp_path / "f")
    assert contents(tmp_path / "f") == before
    odd.unlink()
    Image.new("RGB", (20, 20)).save(odd)
    with pytest.raises(InputError, match="of other images"):
        run(open_tiles(tiles), tmp_path / "f")


def test_a_part_of_the_resize_is_that_of_the_whole() -> None:
    whole = resize_matrix(31, 50, "bicubic")
    np.testing.assert_array_equal(resize_matrix(31, 50, "bicubic", slice(9, 25)), whole[9:25])
