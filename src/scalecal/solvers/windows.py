"""Training on more rows than fit into memory: read in windows, shuffled within them.

One epoch: the training cases, in the order of the file, are cut into blocks; the blocks are put in
random order; eight at a time they are read into memory, one window, and the cases of a window are
shuffled and cut into batches. Each case is seen once an epoch, but a batch mixes the eight blocks
of its window, not the whole, and the last batch of a window may be smaller. The order follows from
the task's `order` alone. Synthetic cases are spread over the windows. The next window is read while
the present one is worked on.

Where all rows fit into the memory given, they are read once and the result is the same as without
a limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, check_above
from scalecal.solvers.group import Batch, Group
from scalecal.solvers.matrix import Matrix
from scalecal.solvers.problem import Array, Scaling, Task

BLOCKS_PER_WINDOW = 8
WINDOWS_IN_MEMORY = 2.25  # the present one, the coming one, and room for the batches


def open_rows(X: Any, memory: float, batch_size: int) -> Matrix:
    """Return rows ready for training: in memory where they fit into `memory` GiB, else on disk."""
    check_above(memory, "memory, the GiB of embeddings to hold,")
    if getattr(X, "ndim", None) != 2:
        raise InputError(f"X must be a 2-d array (n, features), got {type(X).__name__}")
    if array_api_compat.is_torch_array(X):
        return Matrix(X)
    budget = int(memory * 2**30)
    row_bytes = X.shape[1] * np.dtype(X.dtype).itemsize
    if X.shape[0] * row_bytes <= budget:
        return Matrix(X if isinstance(X, np.ndarray) else np.asarray(X))
    window_rows = int(budget / WINDOWS_IN_MEMORY / row_bytes)
    fewest = max(batch_size, BLOCKS_PER_WINDOW)
    if window_rows < fewest:
        least = fewest * row_bytes * WINDOWS_IN_MEMORY / 2**30
        raise InputError(
            f"memory of {memory:g} GiB is too little for batches of {batch_size} rows: give at "
            f"least {least:.2g} GiB"
        )
    return StoredMatrix(X, window_rows)


class StoredMatrix(Matrix):
    """Rows behind anything with a shape, a dtype and row indexing, and a window of them in memory."""

    def __init__(self, stored: Any, window_rows: int) -> None:
        # Says which kind of array the rows are once they are read.
        super().__init__(np.empty((0, stored.shape[1]), dtype=stored.dtype))
        self.stored, self.window_rows, self.n_rows = stored, window_rows, int(stored.shape[0])
        self._window: Matrix | None = None

    def hold(self, rows: NDArray[np.int64], window: NDArray[Any] | None) -> None:
        """Keep these rows, in order, in memory; None lets them go."""
        self._window, self._window_rows = None if window is None else Matrix(window), rows

    def take(self, index: Array, scaling: Scaling | None = None, out: Array | None = None) -> Array:
        """Gather rows as `Matrix.take`, from the window if all of them are there."""
        if self._window is not None and len(index):
            last = len(self._window_rows) - 1
            place = np.minimum(np.searchsorted(self._window_rows, index), last)
            if (self._window_rows[place] == index).all():
                return self._window.take(place, scaling, out)
        return Matrix(np.asarray(self.stored[index])).take(np.arange(len(index)), scaling, out)

    def read(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Fill `out` with rows as they are stored; neighbours are read in one piece."""
        first = int(rows[0])
        if rows[-1] - first != len(rows) - 1:
            out[...] = self.stored[rows]
        elif hasattr(self.stored, "read_into"):
            self.stored.read_into(first, out)
        else:
            out[...] = self.stored[first : first + len(rows)]

    def release(self) -> None:
        """Close the files that were read, where X can."""
        release = getattr(self.stored, "release", None)
        if release is not None:
            release()


class Windowed(Group):
    """Probes that share batches, with the rows of one window at a time in memory."""

    data: StoredMatrix

    def __init__(
        self, data: StoredMatrix, held: Matrix, tasks: list[Task], batch_size: int
    ) -> None:
        # The cases in the order of the file, and where each block of them begins and ends.
        self._by_row = np.argsort(tasks[0].rows, kind="stable")
        self._sorted_rows = np.asarray(tasks[0].rows)[self._by_row]
        n = len(self._by_row)
        self._n_windows = math.ceil(n / data.window_rows)
        edges = np.linspace(0, n, min(n, self._n_windows * BLOCKS_PER_WINDOW) + 1)
        self._blocks = list(pairwise(edges.round().astype(np.int64).tolist()))
        super().__init__(data, held, tasks, batch_size)

    @property
    def n_steps(self) -> int:
        """Batches of an epoch, at most."""
        return super().n_steps + self._n_windows

    def _read(self, blocks: list[tuple[int, int]]) -> NDArray[Any]:
        """Rows of some blocks, put together, as they are stored."""
        sizes = [stop - start for start, stop in blocks]
        out = np.empty((sum(sizes), self.data.n_features), dtype=self.data.X.dtype)
        place = 0
        for (start, stop), size in zip(blocks, sizes, strict=True):
            self.data.read(self._sorted_rows[start:stop], out[place : place + size])
            place += size
            self.data.release()
        return out

    def _batches(self, generator: np.random.Generator) -> Iterator[Batch]:
        """One epoch, window by window."""
        order = generator.permutation(len(self._blocks))
        windows = [
            [self._blocks[b] for b in sorted(part.tolist())]
            for part in np.array_split(order, self._n_windows)
        ]
        parts = np.array_split(
            self.n_real + generator.permutation(self.n_synthetic), self._n_windows
        )
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._read, windows[0])
            for k, (blocks, synthetic) in enumerate(zip(windows, parts, strict=True)):
                inside = np.concatenate([np.arange(start, stop) for start, stop in blocks])
                self.data.hold(self._sorted_rows[inside], coming.result())
                if k + 1 < len(windows):
                    coming = reader.submit(self._read, windows[k + 1])
                cases = np.concatenate([self._by_row[inside], synthetic])
                yield from self._in_order(generator.permutation(cases))
                # Before the next but one is read: no more than two at a time.
                self.data.hold(inside[:0], None)

    def _evaluate(self) -> NDArray[np.float64]:
        losses = super()._evaluate()
        self.data.release()
        return losses
