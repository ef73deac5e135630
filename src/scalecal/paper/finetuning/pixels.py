"""The images a network sees: decoded once, held in memory, and augmented at random.

What happens to an image depends on the seed, the epoch and the image's place in the data set, and on
nothing else: not on the batch it is in, the number of threads or how often the run was interrupted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from scalecal.checks import Float, Int, library
from scalecal.encoders.record import Preprocessing
from scalecal.engines.local import cores
from scalecal.features.image_rows import read_rows
from scalecal.limits import check_limit

if TYPE_CHECKING:
    import torch

    from scalecal.datasets.image_sets import ImageSet

# Rows one thread reads at a time; an array on disk is read in long blocks.
_ROWS = {"files": 32, "array": 2048}

JITTER = {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.2}
"""Strength of the colour jitter, as in DeepSlide."""


class Pixels:
    """Square uint8 images of some rows of an image set, by position: i stands for ``rows[i]``.

    An image that cannot be read is an error.
    """

    def __init__(
        self, images: ImageSet, rows: Int, preprocess: Preprocessing, *, device: str
    ) -> None:
        import torch

        edge = preprocess.crop
        check_limit(len(rows) * edge**2 * 3, "memory", f"the size of {len(rows):,} images")
        whole = np.empty((len(rows), edge, edge, 3), dtype=np.uint8)
        step = _ROWS[images.kind]

        def fill(start: int) -> None:
            chosen = rows[start : start + step]
            place = start
            # Neighbours are read in one go.
            for run in np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1):
                piece = read_rows(images, int(run[0]), int(run[-1]) + 1, preprocess, True)
                whole[place : place + len(run)] = piece.images
                place += len(run)

        with ThreadPoolExecutor(cores()) as pool:
            for _ in pool.map(fill, range(0, len(rows), step)):
                pass
        self._held = torch.from_numpy(whole).to(device)

    def take(self, positions: Int) -> torch.Tensor:
        """Return the images at some positions: uint8 (n, edge, edge, 3) on the device."""
        import torch

        return self._held[torch.from_numpy(positions).to(self._held.device)]


def uniforms(n: int, seed: int, epoch: int) -> Float:
    """Return seven uniform numbers in [0, 1) per case, a function of seed and epoch alone.

    Examples
    --------
    >>> uniforms(3, seed=1, epoch=5).shape
    (3, 7)
    """
    # The third number tells these draws from those of the order (`training.epoch_order`).
    return np.random.default_rng([seed, epoch, 1]).random((n, 7))


def augment(images: torch.Tensor, draws: Float) -> torch.Tensor:
    """Turn uint8 (n, height, width, 3) into augmented float32 (n, 3, height, width) in [0, 1].

    Each image is mirrored left to right and top to bottom with probability 1/2, turned by 0, 90, 180
    or 270 degrees, and jittered by `JITTER` as by torchvision's `ColorJitter`: brightness, contrast and
    saturation are multiplied by a factor from [1 - s, 1 + s], the hue is turned by a share of the
    circle from [-hue, hue]; in this order, where torchvision shuffles the four. `draws` holds seven
    uniform numbers per image, see `uniforms`. Whole batches at a time: image by image through
    torchvision's own functions, an epoch on a card takes more than three times as long.
    """
    import torch

    grey = library("torchvision.transforms.v2.functional", "fine-tuning").rgb_to_grayscale
    x = images.permute(0, 3, 1, 2).float().div(255)
    u = torch.from_numpy(draws.T.astype(np.float32)).to(x.device)[..., None, None, None]

    def blend(other: torch.Tensor | float, column: int, strength: float) -> torch.Tensor:
        factor = 1.0 - strength + 2.0 * strength * u[column]
        return (factor * x + (1 - factor) * other).clamp(0, 1)

    x = torch.where(u[0] < 0.5, x.flip(3), x)
    x = torch.where(u[1] < 0.5, x.flip(2), x)
    upright = x
    for k in (1, 2, 3):
        x = torch.where((4 * u[2]).int() == k, torch.rot90(upright, k, (2, 3)), x)
    x = blend(0.0, 3, JITTER["brightness"])
    x = blend(grey(x).mean((1, 2, 3), keepdim=True), 4, JITTER["contrast"])
    x = blend(grey(x), 5, JITTER["saturation"])
    return _turn_hue(x, JITTER["hue"] * (2 * u[6] - 1))


def _turn_hue(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Turn the hue by a share of the circle: to hue, chroma and value, and back (Smith, 1978)."""
    import torch

    red, green, blue = x[:, :1], x[:, 1:2], x[:, 2:]
    value = x.amax(1, keepdim=True)
    chroma = value - x.amin(1, keepdim=True)
    safe = torch.where(chroma == 0, 1.0, chroma)
    sextant = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    offsets = torch.tensor([5.0, 3.0, 1.0], device=x.device).view(1, 3, 1, 1)
    k = (offsets + sextant + 6 * by).remainder(6)
    return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)
