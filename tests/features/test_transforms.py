"""The batched resize against Pillow, pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from scalecal.encoders.registry import Preprocessing
from scalecal.features.transforms import (
    DeviceTransform,
    _split,
    pillow_pixels,
    resize_matrix,
)
from tests.encoders.published import pil_reference

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def noise(n: int, height: int, width: int, seed: int = 0) -> np.ndarray:
    """White noise, the hardest case for a resize: every overshoot and every rounding happens."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, height, width, 3), dtype=np.uint8)


def reference(images: np.ndarray, preprocess: Preprocessing) -> np.ndarray:
    return np.stack([pil_reference(preprocess, Image.fromarray(image)) for image in images])


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(2, 90),
    new=st.integers(1, 90),
    interpolation=st.sampled_from(["bilinear", "bicubic"]),
)
def test_weights_reproduce_pillow_in_one_dimension(size: int, new: int, interpolation: str) -> None:
    row = noise(1, 1, size, seed=size)[0]
    # In whole numbers the sum is exact, so the weights must give Pillow's pixels exactly.
    fixed = np.round(resize_matrix(size, new, interpolation) * 2**22).astype(np.int64)
    total = np.einsum("os,hsc->hoc", fixed, row.astype(np.int64)) + 2**21
    expected = np.asarray(Image.fromarray(row).resize((new, 1), FILTERS[interpolation]))
    np.testing.assert_array_equal(np.clip(total >> 22, 0, 255), expected)


CASES = [
    # (height, width), resize, crop: each paper encoder's transform on each data set's images
    ((96, 96), 224, 224),
    ((96, 96), 256, 224),
    ((96, 96), 448, 448),
    ((224, 224), 232, 224),
    ((224, 224), 256, 224),
    ((460, 700), 224, 224),
    ((456, 700), 256, 224),
    ((300, 224), 224, 224),
    ((5, 7), 64, 32),
    ((1500, 1100), 32, 32),
]


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("shape", "resize", "crop"), CASES)
@pytest.mark.parametrize("mode", ["shortest", "squash"])
@pytest.mark.parametrize("device", DEVICES)
def test_pixels_equal_pillows(
    shape: tuple[int, int], resize: int, crop: int, interpolation: str, mode: str, device: str
) -> None:
    preprocess = Preprocessing(resize, crop, interpolation, resize_mode=mode)
    images = noise(2, *shape)
    found = DeviceTransform(preprocess, device)(torch.from_numpy(images).to(device)).cpu().numpy()
    assert found.shape == (2, 3, crop, crop)
    assert found.dtype == np.float32
    expected = reference(images, preprocess)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_no_resize_gives_the_same_pixels() -> None:
    preprocess = Preprocessing(224, 224, "bicubic")
    images = noise(2, 224, 224)
    found = DeviceTransform(preprocess, "cpu")(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(found, reference(images, preprocess), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(96, 96), (64, 64), (70, 50)])
def test_resized_pixels_are_bit_for_bit_the_publishers(shape: tuple[int, int]) -> None:
    preprocess = Preprocessing(64, 64, "bicubic")
    images = noise(3, *shape)
    pixels = np.stack([pillow_pixels(image, preprocess) for image in images])
    found = DeviceTransform(preprocess, "cpu", resized=True)(torch.from_numpy(pixels)).numpy()
    np.testing.assert_array_equal(found, reference(images, preprocess))


@pytest.mark.parametrize("resize", [16, 50])
def test_an_image_does_not_depend_on_its_neighbours(resize: int) -> None:
    preprocess = Preprocessing(resize, 16, "bicubic")
    images = torch.from_numpy(noise(5, 33, 40))
    transform = DeviceTransform(preprocess, "cpu")
    together = transform(images)
    alone = torch.cat([transform(images[i : i + 1]) for i in range(5)])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("value", [0, 1, 127, 255])
def test_flat_images_stay_flat(value: int) -> None:
    preprocess = Preprocessing(40, 32, "bicubic", mean=(0.0,) * 3, std=(1.0,) * 3)
    flat = torch.full((1, 50, 70, 3), value, dtype=torch.uint8)
    found = DeviceTransform(preprocess, "cpu")(flat)
    torch.testing.assert_close(found, torch.full_like(found, value / 255), rtol=0, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    new=st.integers(1, 300),
    shrink=st.floats(0.1, 200),
    interpolation=st.sampled_from(["bilinear", "bicubic"]),
)
def test_split_weights_lose_no_bit(new: int, shrink: float, interpolation: str) -> None:
    matrix = resize_matrix(min(max(round(new * shrink), 2), 4000), new, interpolation)
    split = _split(matrix, torch.device("cpu"))
    upper, lower = split.upper.double().numpy(), split.lower.double().numpy()
    np.testing.assert_array_equal(upper + split.unit * lower, matrix)
    # Sums with 8-bit pixels stay whole numbers below 2^24 of the smallest step.
    assert 255 * np.abs(lower).sum(axis=1).max() * split.unit * 2**22 < 2**24
    assert 255 * np.abs(upper).sum(axis=1).max() / split.unit < 2**24
    if split.short:
        for part in (upper, lower):
            mantissa, _ = np.frexp(part)
            np.testing.assert_array_equal(mantissa * 2**11, np.round(mantissa * 2**11))


def test_usual_sizes_use_short_products_and_huge_ones_do_not() -> None:
    cpu = torch.device("cpu")
    for size, new in ((96, 224), (96, 448), (224, 256), (1000, 224)):
        assert _split(resize_matrix(size, new, "bicubic"), cpu).short
    assert not _split(resize_matrix(6000, 32, "bicubic"), cpu).short


def test_short_products_leave_the_setting_as_it_was() -> None:
    transform = DeviceTransform(Preprocessing(16, 16, "bilinear"), "cpu")
    before = torch.backends.cuda.matmul.allow_tf32
    transform(torch.from_numpy(noise(1, 20, 30)))
    assert torch.backends.cuda.matmul.allow_tf32 == before


@pytest.mark.parametrize("resized", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_channels_last_changes_the_layout_alone(resized: bool, device: str) -> None:
    preprocess = Preprocessing(24, 24, "bicubic")
    images = torch.from_numpy(noise(3, *((24, 24) if resized else (33, 40)))).to(device)
    plain = DeviceTransform(preprocess, device, resized=resized)(images)
    last = DeviceTransform(preprocess, device, resized=resized, channels_last=True)(images)
    assert plain.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(plain, last)
