"""Flips, quarter turns and colour jitter of whole batches, with randomness that belongs to a case.

What happens to an image depends on the seed, the epoch and the case's id, and on nothing else: not
on the batch it is in, the number of threads or how often the run was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import Float, InputError, check_unit

if TYPE_CHECKING:
    import torch

__all__ = ["Augmentation", "case_keys", "uniforms"]

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_GREY = (0.2989, 0.587, 0.114)  # ITU-R BT.601 luma, to the digits image libraries use
_DRAWS = 7


def case_keys(ids: Iterable[str]) -> Keys:
    """Return a 64-bit number per case id, the same on every machine."""
    digests = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in ids)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def _mix(x: Keys) -> Keys:
    """The output function of SplitMix64 (Steele, Lea and Flood, 2014, OOPSLA)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(keys: Keys, seed: int, epoch: int, n: int) -> Float:
    """Return `n` uniform numbers in [0, 1) per case, a function of key, seed and epoch alone.

    Examples
    --------
    >>> keys = case_keys(["a", "b", "c"])
    >>> whole = uniforms(keys, seed=1, epoch=5, n=4)
    >>> bool((uniforms(keys[1:2], seed=1, epoch=5, n=4) == whole[1]).all())
    True
    """
    stream = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0]
    start = _mix(keys ^ stream)
    steps = np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN
    bits = _mix(start[:, None] + steps)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Augmentation:
    """What is done at random to a training image.

    Colour jitter is torchvision's `ColorJitter`: brightness, contrast and saturation are multiplied
    by a factor drawn from [max(0, 1 - s), 1 + s], and the hue is turned by a share of the circle
    drawn from [-hue, hue]. It is applied in that order, where torchvision shuffles the four.

    Parameters
    ----------
    flips : bool
        Mirror left to right, and top to bottom, each with probability 1/2.
    turns : bool
        Turn by 0, 90, 180 or 270 degrees.
    brightness, contrast, saturation, hue : float
        Strengths; 0 leaves the property alone. `hue` is at most 0.5.
    """

    flips: bool
    turns: bool
    brightness: float
    contrast: float
    saturation: float
    hue: float

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be a number >= 0, got {value!r}")
        if check_unit(self.hue, "hue") > 0.5:
            raise InputError(f"hue must be at most 0.5 (half the colour circle), got {self.hue:g}")

    def draw(self, keys: Keys, seed: int, epoch: int) -> Float:
        """Return the random numbers of these cases in this epoch, one row each."""
        return uniforms(keys, seed, epoch, _DRAWS)

    def __call__(self, images: torch.Tensor, draws: Float) -> torch.Tensor:
        """Turn uint8 (n, height, width, 3) into augmented float32 (n, 3, height, width) in [0, 1]."""
        import torch

        x = images.permute(0, 3, 1, 2).float().div_(255)
        if self.flips:
            for column, axis in ((0, 3), (1, 2)):
                some = _indices(draws[:, column] < 0.5, x)
                x[some] = x[some].flip(axis)
        if self.turns:
            quarter = np.floor(4 * draws[:, 2])
            for k in (1, 2, 3):
                some = _indices(quarter == k, x)
                x[some] = torch.rot90(x[some], k, (2, 3))

        def factors(strength: float, column: int) -> torch.Tensor:
            low, high = max(0.0, 1.0 - strength), 1.0 + strength
            return _per_image(low + (high - low) * draws[:, column], x)

        if self.brightness:
            x = (x * factors(self.brightness, 3)).clamp_(0, 1)
        if self.contrast:
            f = factors(self.contrast, 4)
            x = (f * x + (1 - f) * _grey(x).mean((1, 2, 3), keepdim=True)).clamp_(0, 1)
        if self.saturation:
            f = factors(self.saturation, 5)
            x = (f * x + (1 - f) * _grey(x)).clamp_(0, 1)
        if self.hue:
            x = _turn_hue(x, _per_image(self.hue * (2 * draws[:, 6] - 1), x))
        return x


def _indices(where: NDArray[np.bool_], x: torch.Tensor) -> torch.Tensor:
    # Found on the host, so that the card need not stop and report how many there are.
    import torch

    return torch.from_numpy(np.flatnonzero(where)).to(x.device, non_blocking=True)


def _per_image(values: Float, x: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.from_numpy(values.astype(np.float32)).to(x.device).view(-1, 1, 1, 1)


def _grey(x: torch.Tensor) -> torch.Tensor:
    return x[:, :1] * _GREY[0] + x[:, 1:2] * _GREY[1] + x[:, 2:] * _GREY[2]


def _turn_hue(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Turn the hue by a share of the circle: to hue, chroma and value, and back (Smith, 1978)."""
    import torch

    red, green, blue = x[:, :1], x[:, 1:2], x[:, 2:]
    value = x.amax(1, keepdim=True)
    chroma = value - x.amin(1, keepdim=True)
    safe = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    sextant = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    sextant = sextant + 6 * by
    out = torch.empty_like(x)
    for channel, offset in enumerate((5, 3, 1)):
        k = (offset + sextant).remainder(6)
        out[:, channel : channel + 1] = value - chroma * torch.minimum(k, 4 - k).clamp_(0, 1)
    return out
