"""Adam on more rows than fit into memory: read in windows, shuffled within them.

One epoch: the training cases, in the order of the file, are cut into blocks; the blocks are put in
random order; eight at a time they are read into memory, one window, and the cases of a window are
shuffled and cut into batches. Each case is seen once an epoch, as in `scalecal.solvers.adam.train`,
but a batch mixes the eight blocks of its window, not the whole, and the last batch of a window may
be smaller. The order follows from the task's `order` alone. Synthetic cases are spread over the
windows. The next window is read while the present one is worked on.

Where everything fits into the memory given, the rows are read once and the result is that of
`train`, number for number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, check_positive_int
from scalecal.solvers import adam
from scalecal.solvers.arrays import Array, Matrix
from scalecal.solvers.group import Batch, Group
from scalecal.solvers.problem import Fit, Scaling, Task, check_tasks

__all__ = ["parse_bytes", "train_streaming"]

BLOCKS_PER_WINDOW = 8
# Two windows at a time, and room for the batches.
_WINDOWS_HELD = 2.25
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_bytes(size: int | str) -> int:
    """Return a number of bytes, given as one or as text.

    Examples
    --------
    >>> parse_bytes("2GB"), parse_bytes("1.5 MB"), parse_bytes(4096)
    (2000000000, 1500000, 4096)
    """
    if isinstance(size, str):
        found = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)i?B?\s*", size, flags=re.IGNORECASE)
        try:
            size = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
        except ValueError:
            size = 0
        if size <= 0:
            raise InputError("memory must be a number of bytes, or text such as '2GB' or '500MB'")
    return check_positive_int(size, "memory")


class StoredMatrix(Matrix):
    """Rows behind anything with a shape, a dtype and row indexing, and a window of them in memory."""

    def __init__(self, stored: Any) -> None:
        if getattr(stored, "ndim", None) != 2 or np.dtype(stored.dtype).kind != "f":
            raise InputError("X must be 2-d (n, features) floating-point rows")
        self.stored = stored
        self.n_rows, self.n_features = (int(size) for size in stored.shape)
        # What the rows are once they are read, for those who ask which kind of array they get.
        self.X: Array = np.empty((0, self.n_features), dtype=stored.dtype)
        self.xp: Any = array_api_compat.array_namespace(self.X)
        self.device: Any = array_api_compat.device(self.X)
        self.dtype: Any = np.float64 if stored.dtype == np.float64 else np.float32
        self.plain = False  # rows lie in the window, if anywhere
        self._window: Matrix | None = None
        self._window_rows: NDArray[np.int64] = np.empty(0, np.int64)

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
        """Let go of files that were read, where the rows know how."""
        release = getattr(self.stored, "release", None)
        if release is not None:
            release()


def train_streaming(
    X: Any,
    tasks: Sequence[Task],
    *,
    memory: int | str = "2GB",
    X_validation: Array | None = None,
    batch_size: int = 256,
    max_epochs: int = 50,
    min_steps: int = 2000,
    patience: int = 10,
) -> list[Fit]:
    """Train every task with Adam, reading the rows in windows; see the module's text.

    Parameters
    ----------
    X
        Rows (n, d) that stay where they are: a `scalecal.features.ShardedArray`, a memory map, or
        anything with `shape`, `dtype` and row indexing.
    memory
        Bytes that rows may take in memory, or text such as ``"2GB"``. The tasks' own arrays come
        on top: 8 bytes a case, and 4 a case and probe.
    tasks, X_validation, batch_size, max_epochs, min_steps, patience
        As `scalecal.solvers.adam.train`. Validation rows are read again after every epoch, so let
        them be few, or give them as an array in memory.

    Returns
    -------
    list of Fit
        One per task, in their order.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(4000, 5)).astype(np.float16)
    >>> task = Task(rows=np.arange(4000), targets=(X[:, 0] > 0).astype(float), learning_rate=0.05)
    >>> fit = train_streaming(X, [task], memory="20KB", max_epochs=3, min_steps=0)[0]
    >>> int(np.argmax(fit.weights[0]))
    0
    """
    budget = parse_bytes(memory)
    data = StoredMatrix(X)
    row_bytes = data.n_features * np.dtype(X.dtype).itemsize
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "max_epochs": max_epochs,
        "min_steps": min_steps,
    }
    if data.n_rows * row_bytes <= budget:
        whole = X if isinstance(X, np.ndarray) else np.asarray(X)
        return adam.train(whole, tasks, X_validation=X_validation, patience=patience, **options)
    held: Matrix = data if X_validation is None else Matrix(X_validation)
    if held.n_features != data.n_features:
        raise InputError(f"X has {data.n_features} features but X_validation has {held.n_features}")
    check_tasks(tasks, data.n_rows, data.n_features, held.n_rows)
    for name, value in (*options.items(), ("patience", patience)):
        check_positive_int(value, name, least=0 if name == "min_steps" else 1)
    window_rows = int(budget / _WINDOWS_HELD / row_bytes)
    if window_rows < max(batch_size, BLOCKS_PER_WINDOW):
        least = math.ceil(max(batch_size, BLOCKS_PER_WINDOW) * row_bytes * _WINDOWS_HELD)
        raise InputError(
            f"memory of {budget:,} bytes holds no batch of {batch_size} rows: give {least:,} or more"
        )
    fits: dict[int, Fit] = {}
    for members in adam.batchable(tasks):
        group = _Windowed(data, held, [tasks[i] for i in members], batch_size, window_rows)
        limit = max(max_epochs, math.ceil(min_steps / group.steps))
        fits.update(zip(members, group.run(limit, patience), strict=True))
    return [fits[i] for i in range(len(tasks))]


class _Windowed(Group):
    """Probes that share batches, with the rows of one window at a time in memory."""

    data: StoredMatrix

    def __init__(
        self,
        data: StoredMatrix,
        held: Matrix,
        tasks: list[Task],
        batch_size: int,
        window_rows: int,
    ) -> None:
        # The cases in the order of the file, and where each block of them begins and ends.
        self._by_row = np.argsort(tasks[0].rows, kind="stable")
        self._sorted_rows = np.asarray(tasks[0].rows)[self._by_row]
        n = len(self._by_row)
        self._n_windows = math.ceil(n / window_rows)
        edges = np.linspace(0, n, min(n, self._n_windows * BLOCKS_PER_WINDOW) + 1)
        self._blocks = list(pairwise(edges.round().astype(np.int64).tolist()))
        super().__init__(data, held, tasks, batch_size)

    @property
    def steps(self) -> int:
        """Batches of an epoch, at most."""
        return math.ceil((self.n_real + self.n_synthetic) / self.batch_size) + self._n_windows

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
        made = np.array_split(
            self.n_real + generator.permutation(self.n_synthetic), self._n_windows
        )
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._read, windows[0])
            for k, (blocks, synthetic) in enumerate(zip(windows, made, strict=True)):
                inside = np.concatenate([np.arange(start, stop) for start, stop in blocks])
                self.data.hold(self._sorted_rows[inside], coming.result())
                if k + 1 < len(windows):
                    coming = reader.submit(self._read, windows[k + 1])
                cases = np.concatenate([self._by_row[inside], synthetic])
                yield from self._in_order(generator.permutation(cases))
                # Before the next but one is read: no more than two at a time.
                self.data.hold(inside[:0], None)

    def _evaluate(self) -> NDArray[np.float64]:
        found = super()._evaluate()
        self.data.release()
        return found
