"""The images a network sees: held where they fit or decoded on the fly, and augmented at random.

What happens to an image depends on the seed, the epoch and the case's id, and on nothing else: not
on the batch it is in, the number of threads or how often the run was interrupted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import Float, Int, library
from scalecal.encoders.record import Preprocessing
from scalecal.engines.local import cores
from scalecal.features.image_rows import read_rows

if TYPE_CHECKING:
    import torch

    from scalecal.datasets.image_sets import ImageSet
    from scalecal.paper.finetuning.training import FinetuneOptions

UInt8 = NDArray[np.uint8]
Keys = NDArray[np.uint64]

# Rows one thread reads at a time; an array on disk is read in long blocks.
_ROWS = {"files": 32, "array": 2048}
# Blocks decoded ahead of the network.
_AHEAD = 3


class Pixels:
    """Square uint8 images of some rows of an image set, by position: i stands for ``rows[i]``.

    They are held where they take at most `memory` GiB, else decoded whenever they are needed, by
    `workers` threads (one per core by default). An image that cannot be read is an error.
    """

    def __init__(
        self,
        images: ImageSet,
        rows: Int,
        preprocess: Preprocessing,
        *,
        device: str,
        memory: float,
        workers: int | None = None,
    ) -> None:
        self.images, self.rows, self.preprocess, self.device = images, rows, preprocess, device
        self.workers = cores() if workers is None else workers
        size = len(rows) * preprocess.crop**2 * 3
        self.held = self._hold() if size <= memory * 2**30 else None

    def _hold(self) -> torch.Tensor:
        import torch

        edge = self.preprocess.crop
        whole = np.empty((len(self.rows), edge, edge, 3), dtype=np.uint8)
        step = _ROWS[self.images.kind]

        def fill(start: int) -> None:
            whole[start : start + step] = self._read(self.rows[start : start + step])

        with ThreadPoolExecutor(self.workers) as pool:
            for _ in pool.map(fill, range(0, len(self.rows), step)):
                pass
        tensor = torch.from_numpy(whole)
        if self.device.startswith("cuda"):
            free, _ = torch.cuda.mem_get_info(self.device)
            if whole.nbytes > free // 2:
                return tensor.pin_memory()
        return tensor.to(self.device)

    def _read(self, rows: Int) -> UInt8:
        """Read rows as one array; neighbours in one go."""
        images: list[UInt8] = []
        for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
            piece = read_rows(self.images, int(run[0]), int(run[-1]) + 1, self.preprocess, True)
            images.extend(piece.images)
        return np.stack(images)

    def blocks(self, positions: Sequence[Int]) -> Iterator[torch.Tensor]:
        """Yield the images at each list of positions: uint8 (n, edge, edge, 3) on the device."""
        import torch

        if self.held is not None:
            for block in positions:
                index = torch.from_numpy(block).to(self.held.device)
                yield self.held[index].to(self.device)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            waiting: deque[list[Future[UInt8]]] = deque()
            for number in range(len(positions) + _AHEAD):
                if number < len(positions):
                    rows = self.rows[positions[number]]
                    parts = np.array_split(rows, min(len(rows), self.workers))
                    waiting.append([pool.submit(self._read, part) for part in parts])
                if number >= _AHEAD:
                    ready = np.concatenate([future.result() for future in waiting.popleft()])
                    yield torch.from_numpy(ready).to(self.device)


def case_keys(ids: Iterable[str]) -> Keys:
    """Return a 64-bit number per case id, the same on every machine."""
    digests = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in ids)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def _mix(x: Keys) -> Keys:
    """The output function of SplitMix64 (Steele, Lea and Flood, 2014, OOPSLA)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(keys: Keys, seed: int, epoch: int, n: int = 7) -> Float:
    """Return `n` uniform numbers in [0, 1) per case, a function of key, seed and epoch alone.

    Examples
    --------
    >>> keys = case_keys(["a", "b", "c"])
    >>> whole = uniforms(keys, seed=1, epoch=5)
    >>> bool((uniforms(keys[1:2], seed=1, epoch=5) == whole[1]).all())
    True
    """
    stream = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0]
    steps = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = _mix(_mix(keys ^ stream)[:, None] + steps)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def augment(images: torch.Tensor, draws: Float, options: FinetuneOptions) -> torch.Tensor:
    """Turn uint8 (n, height, width, 3) into augmented float32 (n, 3, height, width) in [0, 1].

    Each image is mirrored left to right and top to bottom with probability 1/2, turned by 0, 90, 180
    or 270 degrees, and jittered as by torchvision's `ColorJitter`: brightness, contrast and
    saturation are multiplied by a factor from [max(0, 1 - s), 1 + s], the hue is turned by a share
    of the circle from [-hue, hue]; in this order, where torchvision shuffles the four. `draws` holds
    seven uniform numbers per image, see `uniforms`. Whole batches at a time: image by image through
    torchvision's own functions, an epoch on a card takes more than three times as long.
    """
    import torch

    grey = library("torchvision.transforms.v2.functional", "fine-tuning").rgb_to_grayscale
    x = images.permute(0, 3, 1, 2).float().div(255)
    u = torch.from_numpy(draws.T.astype(np.float32)).to(x.device)[..., None, None, None]

    def blend(other: torch.Tensor | float, column: int, strength: float) -> torch.Tensor:
        low = max(0.0, 1.0 - strength)
        factor = low + (1.0 + strength - low) * u[column]
        return (factor * x + (1 - factor) * other).clamp(0, 1)

    if options.flips:
        x = torch.where(u[0] < 0.5, x.flip(3), x)
        x = torch.where(u[1] < 0.5, x.flip(2), x)
    if options.turns:
        upright = x
        for k in (1, 2, 3):
            x = torch.where((4 * u[2]).int() == k, torch.rot90(upright, k, (2, 3)), x)
    if options.brightness:
        x = blend(0.0, 3, options.brightness)
    if options.contrast:
        x = blend(grey(x).mean((1, 2, 3), keepdim=True), 4, options.contrast)
    if options.saturation:
        x = blend(grey(x), 5, options.saturation)
    return _turn_hue(x, options.hue * (2 * u[6] - 1)) if options.hue else x


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
