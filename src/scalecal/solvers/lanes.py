"""Groups of the same shape, each with its own rows and order, in step.

A graphics processor is idle most of the time when ten groups take their small steps one after
another. Side by side, one lane each, a step of all of them is one gathering of rows and two stacked
products. Lanes differ in how many synthetic cases a batch holds, so shorter ones are filled up with
cases of weight 0; the result is that of each group trained alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalecal.solvers.arrays import Array, Matrix
from scalecal.solvers.group import Batch, Group
from scalecal.solvers.mixing import Mix, mixes
from scalecal.solvers.problem import Task

__all__ = ["Lanes", "Layout", "lay_out"]


class Layout(NamedTuple):
    """One epoch of several lanes, step by step: real cases, then synthetic ones.

    A step has room for as many real and as many synthetic cases as its fullest lane needs.
    """

    cases: NDArray[np.int64]  # (lanes, places), case numbers; any of the kind where not `filled`
    filled: NDArray[np.bool_]  # (lanes, places)
    sizes: NDArray[np.int64]  # of each step: cases that count,
    real: NDArray[np.int64]  # places for real ones,
    synthetic: NDArray[np.int64]  # and for synthetic ones


def lay_out(orders: NDArray[np.int64], n_real: int, batch_size: int) -> Layout:
    """Lay the lanes' orders (lanes, cases) out in steps of the same shape.

    Examples
    --------
    >>> import numpy as np
    >>> made = lay_out(np.array([[3, 0, 1, 2], [1, 0, 2, 3]]), n_real=3, batch_size=2)
    >>> made.cases.tolist(), made.filled.astype(int).tolist()
    ([[0, 0, 3, 1, 2, 3], [0, 1, 3, 2, 0, 3]], [[1, 0, 1, 1, 1, 0], [1, 1, 0, 1, 0, 1]])
    """
    lanes, total = orders.shape
    starts = np.arange(0, total, batch_size)
    step = np.arange(total) // batch_size
    # Sorted by step, then by case: memory is read in order, and synthetic numbers come last.
    keys = np.sort(orders + step * total, axis=1)
    orders = keys - step * total
    is_real = orders < n_real
    counts = np.add.reduceat(is_real, starts, axis=1, dtype=np.int64)
    sizes = np.diff(np.append(starts, total))
    real, synthetic = counts.max(axis=0), (sizes - counts).max(axis=0)
    offset = np.cumsum(real + synthetic) - (real + synthetic)
    rank = np.arange(total) - starts[step]
    behind = np.where(is_real, 0, real[step] - counts[:, step])
    place = offset[step] + rank + behind
    # Empty places hold case 0 where a real case may stand, the first synthetic one elsewhere.
    widths = np.stack([real, synthetic], axis=1).reshape(-1)
    spare = np.repeat(np.tile([0, n_real], len(starts)), widths)
    cases = np.tile(spare, (lanes, 1))
    filled = np.zeros(cases.shape, dtype=bool)
    np.put_along_axis(cases, place, orders, axis=1)
    np.put_along_axis(filled, place, True, axis=1)
    return Layout(cases, filled, sizes, real, synthetic)


class Lanes(Group):
    """Several groups as one: the same numbers of cases and probes, lane after lane."""

    def __init__(
        self, data: Matrix, held: Matrix, groups: Sequence[Sequence[Task]], batch_size: int
    ) -> None:
        self.per_lane = len(groups[0])
        self.generators = [np.random.default_rng(group[0].order) for group in groups]
        tasks = [task for group in groups for task in group]
        super().__init__(data, held, tasks, batch_size, widest=2 * batch_size)
        self.rows = data.index(np.stack([group[0].rows for group in groups]))

    def _padded(self, probes: NDArray[np.int64]) -> NDArray[np.int64]:
        """As many probes in every lane that has any: the last of a lane several times."""
        self.lanes, starts, counts = np.unique(
            probes // self.per_lane, return_index=True, return_counts=True
        )
        inside = np.minimum(np.arange(counts.max()), counts[:, None] - 1)
        padded: NDArray[np.int64] = probes[starts[:, None] + inside].reshape(-1)
        return padded

    def _mixes(self, live: list[Task]) -> tuple[list[Mix], NDArray[np.int64]]:
        per_batch = self._synthetic_per_batch()
        return mixes(self.data, live, self.scaling, per_batch, lanes=len(self.lanes))

    def _batches(self, generator: np.random.Generator) -> Iterator[Batch]:  # noqa: ARG002
        """One epoch: every lane's cases in its own new order."""
        cases = self.n_real + self.n_synthetic
        orders = np.stack([self.generators[i].permutation(cases) for i in self.lanes])
        layout = lay_out(orders, self.n_real, self.batch_size)
        numbers = self.data.index(layout.cases)
        targets = self._arranged(self.targets, numbers)
        weights = None
        if self.case_weights is not None:
            weights = self._arranged(self.case_weights, numbers)
        if not layout.filled.all():
            per_lane = self.targets.shape[0] // len(self.lanes)
            counts = self.data.array(np.repeat(layout.filled, per_lane, axis=0))
            weights = counts if weights is None else weights * counts
        mine = self.rows[self.data.index(self.lanes)]
        rows = self._arranged(mine, self.data.index(np.minimum(layout.cases, self.n_real - 1)))
        if self.n_synthetic:
            widths = np.stack([layout.real, layout.synthetic], axis=1).reshape(-1)
            made = np.repeat(np.tile([False, True], len(layout.sizes)), widths)
            synthetic = self.data.index(layout.cases[:, made] - self.n_real)
            for mix in self.mixes:
                mix.arrange(synthetic)
        start = done = 0
        steps = zip(
            layout.sizes.tolist(), layout.real.tolist(), layout.synthetic.tolist(), strict=True
        )
        for size, real, extra in steps:
            part = slice(start, start + real + extra)
            yield Batch(
                size=size,
                rows=rows[:, start : start + real],
                synthetic=slice(done, done + extra),
                targets=targets[:, part],
                weights=None if weights is None else weights[:, part],
            )
            start, done = part.stop, done + extra

    def _arranged(self, values: Array, numbers: Array) -> Array:
        """Columns of each lane's rows of `values` by its own `numbers`."""
        lanes = numbers.shape[0]
        split = self.xp.reshape(values, (lanes, -1, values.shape[1]))
        lane = self.data.index(np.arange(lanes))[:, None, None]
        row = self.data.index(np.arange(split.shape[1]))[None, :, None]
        return self.xp.reshape(split[lane, row, numbers[:, None, :]], (values.shape[0], -1))
