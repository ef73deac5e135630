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
from scalecal.encoders.record import Preprocessing  # noqa: E402
from scalecal.paper.finetuning import FinetuneOptions  # noqa: E402
from scalecal.paper.finetuning.experiment import divide, labelled_cases  # noqa: E402
from scalecal.paper.finetuning.pixels import Pixels, augment, case_keys, uniforms  # noqa: E402
from tests.datasets.trees import make_breakhis  # noqa: E402
from tests.paper.finetuning.made import NO_JITTER, N  # noqa: E402


def test_randomness_belongs_to_the_case() -> None:
    keys = case_keys([f"case {i}" for i in range(4000)])
    assert len(np.unique(keys)) == 4000
    u = uniforms(keys, seed=3, epoch=9, n=7)
    some = np.array([17, 5, 3999])
    np.testing.assert_array_equal(uniforms(keys[some], seed=3, epoch=9, n=7), u[some])
    for column in u.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    others = [uniforms(keys, 4, 9, 7), uniforms(keys, 3, 10, 7)]
    related = np.corrcoef(np.column_stack([u, *others]).T) - np.eye(21)
    assert np.abs(related).max() < 5 / np.sqrt(4000)


def test_colour_jitter_is_torchvisions() -> None:
    import torchvision.transforms.functional as reference

    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 256, (6, 9, 7, 3), dtype=np.uint8)
    pixels[0] = 128  # grey has no hue
    pixels[1, 0] = [[255, 0, 0]] * 7
    draws = rng.uniform(size=(6, 7))
    jitter = FinetuneOptions(
        flips=False, turns=False, brightness=0.5, contrast=0.4, saturation=1.5, hue=0.3
    )
    found = augment(torch.from_numpy(pixels), draws, jitter)
    for i in range(6):
        x = torch.from_numpy(pixels[i]).permute(2, 0, 1).float() / 255
        x = reference.adjust_brightness(x, 0.5 + draws[i, 3])
        x = reference.adjust_contrast(x, 0.6 + 0.8 * draws[i, 4])
        x = reference.adjust_saturation(x, 2.5 * draws[i, 5])
        x = reference.adjust_hue(x, 0.6 * draws[i, 6] - 0.3)
        torch.testing.assert_close(found[i], x, atol=2e-5, rtol=0)


def test_flips_and_turns() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (4, 5, 5, 3), dtype=np.uint8)
    draws = np.full((4, 7), 0.9)
    draws[0, 0], draws[1, 1], draws[2, 2], draws[3, 2] = 0.2, 0.2, 0.3, 0.0
    found = augment(torch.from_numpy(pixels), draws, FinetuneOptions(**NO_JITTER)).numpy() * 255
    expected = [
        np.rot90(pixels[0][:, ::-1], 3),
        np.rot90(pixels[1][::-1], 3),
        np.rot90(pixels[2], 1),
        pixels[3],
    ]
    for image, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(image, wanted.transpose(2, 0, 1), atol=1e-4)


def test_bad_augmentation() -> None:
    with pytest.raises(InputError, match="hue must be at most"):
        FinetuneOptions(hue=0.7)
    with pytest.raises(InputError, match="contrast must be a number >= 0, got -1"):
        FinetuneOptions(contrast=-1)


def test_images_held_or_decoded_on_the_fly_are_the_same(images: ImageSet) -> None:
    square = Preprocessing(resize=24, crop=16, interpolation="bilinear")
    rows = np.array([3, 4, 5, 20, 1, 0])
    blocks = [np.array([5, 0]), np.array([2]), np.array([1, 3, 4]), np.array([0]), np.array([4])]
    held = Pixels(images, rows, square, device="cpu", memory=1.0, workers=2)
    fly = Pixels(images, rows, square, device="cpu", memory=0.0, workers=2)
    assert held.held is not None
    assert fly.held is None
    for block, a, b in zip(blocks, held.blocks(blocks), fly.blocks(blocks), strict=True):
        assert a.shape == (len(block), 16, 16, 3)
        assert torch.equal(a, b)
        first = square.pixels(Image.fromarray(images.read_one(int(rows[block[0]]))))
        np.testing.assert_array_equal(a[0].numpy(), first)


def test_parts_keep_the_published_test_set_and_whole_patients(
    images: ImageSet, tmp_path: Path
) -> None:
    _, cases = labelled_cases(images)
    assert cases.split is not None
    one, two = (divide(cases, seed, validation=0.25, test=0.2) for seed in (0, 1))
    np.testing.assert_array_equal(one.test, np.flatnonzero(cases.split.values == "test"))
    np.testing.assert_array_equal(one.test, two.test)
    assert not np.array_equal(one.val, two.val)
    for parts in (one, two):
        every = np.concatenate([parts.train, parts.val, parts.test])
        assert sorted(every) == list(range(N))
        assert len(parts.val) == 8

    _, grouped = labelled_cases(open_dataset("breakhis", make_breakhis(tmp_path), partial=True))
    assert grouped.groups is not None
    parts = divide(grouped, 0, validation=0.2, test=0.3)
    found = [set(grouped.groups.take(p).values) for p in (parts.train, parts.val, parts.test)]
    assert all(found)
    assert sum(map(len, found)) == len(set.union(*found))
