"""What the network sees: augmentation, pixels, parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from scalecal.checks import InputError  # noqa: E402
from scalecal.datasets import open_dataset  # noqa: E402
from scalecal.datasets.image_sets import ImageSet  # noqa: E402
from scalecal.encoders.registry import Preprocessing  # noqa: E402
from scalecal.paper.finetuning import augment, divide, labelled_cases, load_pixels, uniforms  # noqa: E402  # noqa: E402
from tests.datasets.trees import make_breakhis  # noqa: E402
from tests.paper.finetuning.made import N  # noqa: E402


def test_draws_are_uniform_and_of_seed_and_epoch() -> None:
    u = uniforms(4000, seed=3, epoch=9)
    np.testing.assert_array_equal(uniforms(4000, seed=3, epoch=9), u)
    for column in u.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    others = [uniforms(4000, 4, 9), uniforms(4000, 3, 10)]
    related = np.corrcoef(np.column_stack([u, *others]).T) - np.eye(21)
    assert np.abs(related).max() < 5 / np.sqrt(4000)


def test_colour_jitter_is_torchvisions() -> None:
    import torchvision.transforms.functional as reference

    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 256, (6, 7, 7, 3), dtype=np.uint8)
    pixels[0] = 128  # grey has no hue
    pixels[1, 0] = [[255, 0, 0]] * 7
    draws = rng.uniform(size=(6, 7))
    draws[:, :3] = 0.5, 0.5, 0.0  # neither mirrored nor turned
    found = augment(torch.from_numpy(pixels), draws)
    for i in range(6):
        x = torch.from_numpy(pixels[i]).permute(2, 0, 1).float() / 255
        x = reference.adjust_brightness(x, 0.5 + draws[i, 3])
        x = reference.adjust_contrast(x, 0.5 + draws[i, 4])
        x = reference.adjust_saturation(x, 0.5 + draws[i, 5])
        x = reference.adjust_hue(x, 0.4 * draws[i, 6] - 0.2)
        torch.testing.assert_close(found[i], x, atol=2e-5, rtol=0)


def test_flips_and_turns() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (4, 5, 5, 3), dtype=np.uint8)
    draws = np.full((4, 7), 0.5)  # colours as they are
    draws[:, :3] = 0.9
    draws[0, 0], draws[1, 1], draws[2, 2], draws[3, 2] = 0.2, 0.2, 0.3, 0.0
    found = augment(torch.from_numpy(pixels), draws).numpy() * 255
    expected = [
        np.rot90(pixels[0][:, ::-1], 3),
        np.rot90(pixels[1][::-1], 3),
        np.rot90(pixels[2], 1),
        pixels[3],
    ]
    for image, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(image, wanted.transpose(2, 0, 1), atol=1e-3)


def test_images_are_the_decoded_ones(images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    square = Preprocessing(resize=24, crop=16, interpolation="bilinear")
    rows = np.array([3, 4, 5, 20, 1, 0])
    pixels = load_pixels(images, rows, square, device="cpu")
    found = pixels[[5, 0, 3]]
    assert found.shape == (3, 16, 16, 3)
    for image, row in zip(found, (0, 3, 20), strict=True):
        wanted = square.pixels(Image.fromarray(images.read_one(row)))
        np.testing.assert_array_equal(image.numpy(), wanted)
    monkeypatch.setenv("SCALECAL_LIMITS", "memory=1000")
    with pytest.raises(InputError, match="the size of 6 images is 4,608 bytes"):
        load_pixels(images, rows, square, device="cpu")


def test_parts_keep_the_published_test_set_and_whole_patients(
    images: ImageSet, tmp_path: Path
) -> None:
    _, cases = labelled_cases(images)
    assert cases.split is not None
    one, two = (divide(cases, seed) for seed in (0, 1))
    np.testing.assert_array_equal(one.test, np.flatnonzero(cases.split.values == "test"))
    np.testing.assert_array_equal(one.test, two.test)
    assert not np.array_equal(one.val, two.val)
    for parts in (one, two):
        every = np.concatenate([parts.train, parts.val, parts.test])
        assert sorted(every) == list(range(N))
        assert len(parts.val) == 4

    _, grouped = labelled_cases(open_dataset("breakhis", make_breakhis(tmp_path), partial=True))
    assert grouped.groups is not None
    parts = divide(grouped, 0)
    found = [set(grouped.groups.take(p).values) for p in (parts.train, parts.val, parts.test)]
    assert all(found)
    assert sum(map(len, found)) == len(set.union(*found))
