"""The images of a training: decoded once and held where they fit, decoded on the fly where not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import Int
from scalecal.encoders.record import Preprocessing
from scalecal.engines.local import cores
from scalecal.features.readers import read_rows

if TYPE_CHECKING:
    import torch

    from scalecal.datasets.image_sets import ImageSet

__all__ = ["Pixels"]

UInt8 = NDArray[np.uint8]

# Rows one thread reads at a time; an array on disk is read in long blocks.
_ROWS = {"files": 32, "array": 2048}
# Blocks decoded ahead of the network.
_AHEAD = 3


class Pixels:
    """Square uint8 images of some rows of an image set, on a device when they are asked for.

    Parameters
    ----------
    images : ImageSet
        Where they come from. An image that cannot be read is an error.
    rows : array of int
        Rows of the set; position i stands for ``rows[i]`` below.
    preprocess : Preprocessing
        How an image becomes a square; done by Pillow when it is decoded.
    device : str
        Where the images are wanted.
    memory : float
        Hold all of them if they take at most this many GiB, else decode them whenever needed.
    workers : int, optional
        Threads that decode; by default one per core.
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
        found: list[UInt8] = []
        for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
            piece = read_rows(self.images, int(run[0]), int(run[-1]) + 1, self.preprocess, True)
            found.extend(piece.images)
        return np.stack(found)

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
