"""Resize, crop and normalise whole batches on the accelerator, with Pillow's own pixels.

Pillow resizes 8-bit images in two passes, first along the rows, then along the columns, and rounds
to 8 bits after each; its filter weights are whole multiples of 2^-22. Either pass is a product
with a small matrix of weights. A sum of 8-bit pixels times 22-bit weights needs 30 bits, more than
float32 has, so the weights are split in two: their upper 11 bits and their lower 11. Each product
is then a sum of whole numbers below 2^24, which float32 adds without error in any order, and the
two are joined as Pillow's shift does it. Eleven bits are also what the short float32 of a CUDA
card's matrix units (TF32) holds, so that these units give the same numbers, several times as fast.
Where very many pixels lie under the filter the lower sums would grow past 2^24; there the upper
part takes more of the bits and the products are whole float32.

Stated tolerance (tested): the pixels equal Pillow's, all of them; the normalised values differ by
less than 1e-6, since scale and shift are one multiplication here. Of images that Pillow has resized
already, as on the CPU, they are equal to the last bit: they are normalised in the publisher's order of
operations.
(For comparison: torch's own antialiased resize differs from Pillow in 13 to 24 % of the values of
noise images, bicubic by up to 25 of the 256 levels.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import LazyModule

if TYPE_CHECKING:
    import torch

    from scalecal.encoders.registry import Preprocessing
else:
    torch = LazyModule("torch")

_WEIGHT_BITS = 22  # Pillow's weights for 8-bit images are whole multiples of 2^-22.
_SHORT_BITS = 11  # Significant bits of TF32.
# Bits of the lower part, as many as keep its sums below 2^24; 7 do up to 1,000 pixels and more under
# the filter (an image of 50,000 made 224).
_LOWER_BITS = (_SHORT_BITS, 9, 7)


def _triangle(x: float) -> float:
    return max(0.0, 1.0 - abs(x))


def _cubic(x: float) -> float:
    """Keys' cubic with a = -1/2, the one Pillow calls bicubic."""
    a, x = -0.5, abs(x)
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    if x < 2.0:
        return (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return 0.0


_FILTERS = {"bilinear": (_triangle, 1.0), "bicubic": (_cubic, 2.0)}


def resize_matrix(
    size: int, new_size: int, interpolation: str, kept: slice = slice(None)
) -> NDArray[np.float64]:
    """Return the weights of an antialiased resize along one axis, shape (new_size, size).

    The filter is widened by the scale when shrinking (antialiasing), its weights are made to sum
    to 1 and rounded to Pillow's fixed point. Only the rows of `kept` are made.

    Examples
    --------
    >>> resize_matrix(4, 2, "bilinear").round(3).tolist()
    [[0.429, 0.429, 0.143, 0.0], [0.0, 0.143, 0.429, 0.429]]
    """
    function, reach = _FILTERS[interpolation]
    scale = size / new_size
    width = max(scale, 1.0)
    support = reach * width
    rows = range(new_size)[kept]
    matrix = np.zeros((len(rows), size))
    for k, i in enumerate(rows):
        centre = (i + 0.5) * scale
        first = max(int(centre - support + 0.5), 0)
        last = min(int(centre + support + 0.5), size)
        weights = np.array([function((j - centre + 0.5) / width) for j in range(first, last)])
        fixed = weights / weights.sum() * 2**_WEIGHT_BITS
        matrix[k, first:last] = np.trunc(fixed + np.copysign(0.5, fixed)) / 2**_WEIGHT_BITS
    return matrix


def pillow_pixels(image: NDArray[np.uint8], preprocess: Preprocessing) -> NDArray[np.uint8]:
    """Resize and crop one (height, width, 3) image by Pillow, exactly as its publisher does."""
    if (
        image.shape[:2] == (preprocess.crop, preprocess.crop)
        and preprocess.resize == preprocess.crop
    ):
        return image
    from PIL import Image

    return preprocess.pixels(Image.fromarray(image))


@dataclass(frozen=True)
class _Split:
    """A resize's weights along one axis in two parts whose products with 8-bit pixels are exact.

    ``upper + unit * lower`` are the weights, `unit` being a power of two; `lower` times a column
    of pixels, rounded down, is what Pillow's shift keeps of the lower bits. With `short`, both
    parts fit the short float32 of a card's matrix units.
    """

    upper: torch.Tensor
    lower: torch.Tensor
    unit: float
    short: bool


def _split(matrix: NDArray[np.float64], device: torch.device) -> _Split:
    """Split weights that are whole multiples of 2^-22."""
    for bits in _LOWER_BITS:
        short = bits == _SHORT_BITS
        unit = 2.0 ** (bits - _WEIGHT_BITS)
        whole = matrix / unit
        upper = np.round(whole)
        if short:
            # Bicubic weights may exceed 1 at a border: one bit more than fits.
            upper = np.where(np.abs(whole) > 2**_SHORT_BITS, 2 * np.round(whole / 2), upper)
        lower = whole - upper
        if 255 * np.abs(lower).sum(axis=1).max() * 2**bits < 2**24:
            break
    parts = torch.from_numpy(np.stack([upper * unit, lower])).float().to(device)
    return _Split(parts[0], parts[1], unit, short)


@contextlib.contextmanager
def short_products(allow: bool) -> Iterator[None]:
    """Say whether a CUDA card's matrix units may multiply float32 by its eleven leading bits (TF32)."""
    matmul, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allow
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = matmul
        torch.backends.cudnn.allow_tf32 = convolution


class DeviceTransform:
    """Turns uint8 images of one size on a device into an encoder's input.

    Parameters
    ----------
    preprocess : Preprocessing
        The encoder's resize, crop, mean and std.
    device : torch.device or str
        Where the images are and the work is done.
    resized : bool, default=False
        The images were resized and cropped already: only normalise, with the publisher's own
        order of operations.
    channels_last : bool, default=False
        Give the batch with the channels last in memory.

    Examples
    --------
    >>> import torch
    >>> from scalecal.encoders.registry import Preprocessing
    >>> transform = DeviceTransform(Preprocessing(8, 8, "bicubic"), "cpu")
    >>> transform(torch.zeros(2, 12, 16, 3, dtype=torch.uint8)).shape
    torch.Size([2, 3, 8, 8])
    """

    def __init__(
        self,
        preprocess: Preprocessing,
        device: Any,
        *,
        resized: bool = False,
        channels_last: bool = False,
    ) -> None:
        self.preprocess = preprocess
        self.resized = resized
        self._device = torch.device(device)
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        mean = torch.tensor(preprocess.mean, dtype=torch.float32).view(1, 3, 1, 1)
        std = torch.tensor(preprocess.std, dtype=torch.float32).view(1, 3, 1, 1)
        self._mean, self._std = mean.to(self._device), std.to(self._device)
        self._scale = (1.0 / (255.0 * std.double())).float().to(self._device)
        self._shift = (-mean.double() / std.double()).float().to(self._device)
        self._splits: dict[tuple[int, int], tuple[_Split | None, _Split | None]] = {}

    def _weights(self, height: int, width: int) -> tuple[_Split | None, _Split | None]:
        """Return the row and column weights of the pixels that survive the crop, None for no resize."""
        key = (height, width)
        if key not in self._splits:
            new = self.preprocess.resized_size(height, width)
            corner = self.preprocess.crop_corner(*new)
            made: list[_Split | None] = []
            for old_size, new_size, first in zip(key, new, corner, strict=True):
                if old_size == new_size:
                    made.append(None)
                    continue
                kept = slice(first, first + self.preprocess.crop)
                matrix = resize_matrix(old_size, new_size, self.preprocess.interpolation, kept)
                made.append(_split(matrix, self._device))
            self._splits[key] = (made[0], made[1])
        return self._splits[key]

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return float32 (n, 3, crop, crop) of uint8 (n, height, width, 3)."""
        if self.resized:
            unit = images.permute(0, 3, 1, 2).contiguous(memory_format=self._layout)
            return unit.float().div_(255).sub_(self._mean).div_(self._std)
        height, width = images.shape[1:3]
        down, across = self._weights(height, width)
        top, left = self.preprocess.crop_corner(*self.preprocess.resized_size(height, width))
        crop = self.preprocess.crop
        if across is None:
            images = images[:, :, left : left + crop]
        if down is None:
            images = images[:, top : top + crop]
        pixels = images.permute(0, 3, 1, 2)
        if across is not None:
            pixels = _pass_across(_levels(pixels), across)
        if down is not None:
            pixels = _pass_down(_levels(pixels), down)
        pixels = pixels.to(torch.uint8, memory_format=self._layout)
        # A CUDA card reads the bytes as they are; others want one number type.
        if self._device.type != "cuda":
            pixels = pixels.float()
        return torch.addcmul(self._shift, pixels, self._scale)


def _levels(pixels: torch.Tensor) -> torch.Tensor:
    """Return whole 8-bit levels as float32, ready for a product."""
    return pixels.contiguous().float().floor_()


# Pillow's (sum + 2^21) >> 22 reads floor(upper sum + unit * floor(lower sum) + 1/2) in levels. The
# floor of the lower sum is added by the second product itself (its beta), which saves a pass over
# the batch, and the last floor is left to whoever turns the result into whole numbers.


def _pass_across(pixels: torch.Tensor, weights: _Split) -> torch.Tensor:
    """Resize along the width: (n, 3, height, width) to (n, 3, height, new width)."""
    flat = pixels.reshape(-1, pixels.shape[-1])
    with short_products(weights.short):
        carry = (flat @ weights.lower.T).floor_()
        total = carry.addmm_(flat, weights.upper.T, beta=weights.unit)
    return _nearest(total).reshape(*pixels.shape[:-1], -1)


def _pass_down(pixels: torch.Tensor, weights: _Split) -> torch.Tensor:
    """Resize along the height: (n, 3, height, width) to (n, 3, new height, width)."""
    flat = pixels.reshape(-1, *pixels.shape[-2:])
    with short_products(weights.short):
        carry = (weights.lower @ flat).floor_()
        total = carry.baddbmm_(weights.upper.expand(len(flat), -1, -1), flat, beta=weights.unit)
    return _nearest(total).reshape(*pixels.shape[:2], -1, pixels.shape[-1])


def _nearest(total: torch.Tensor) -> torch.Tensor:
    """Turn exact sums into numbers whose whole part is the 8-bit level, halves up, in place."""
    return total.add_(0.5).clamp_(0.0, 255.0)
