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

from scalecal.solvers.arrays import Array, Matrix, to_host
from scalecal.solvers.group import Batch, Group
from scalecal.solvers.mixing import Mix, mixes
from scalecal.solvers.problem import Task

__all__ = ["Lanes", "Layout", "lay_out"]


class Layout(NamedTuple):
    """One epoch of several lanes, step by step: real cases, then synthetic ones.

    A step has room for as many real and as many synthetic cases as its fullest lane needs.
    """

    cases: Array  # (lanes, places), case numbers; any of the kind where not `filled`
    filled: Array | None  # (lanes, places); None: everywhere
    sizes: NDArray[np.int64]  # of each step: cases that count,
    real: NDArray[np.int64]  # places for real ones,
    synthetic: NDArray[np.int64]  # and for synthetic ones


def lay_out(data: Matrix, orders: Array, n_real: int, batch_size: int) -> Layout:
    """Lay the lanes' orders (lanes, cases), beside `data`, out in steps of the same shape.

    Examples
    --------
    >>> import numpy as np
    >>> orders = np.array([[3, 0, 1, 2], [1, 0, 2, 3]])
    >>> made = lay_out(Matrix(np.zeros((3, 1))), orders, n_real=3, batch_size=2)
    >>> made.cases.tolist(), made.filled.astype(int).tolist()
    ([[0, 0, 3, 1, 2, 3], [1, 0, 3, 2, 0, 3]], [[1, 0, 1, 1, 1, 0], [1, 1, 0, 1, 0, 1]])
    """
    xp = data.xp
    lanes, total = orders.shape
    starts = np.arange(0, total, batch_size)
    sizes = np.diff(np.append(starts, total))
    if total == n_real:
        return Layout(orders, None, sizes, sizes, np.zeros_like(sizes))
    is_real = orders < n_real
    # How many real cases come before each, in the epoch and in its step.
    one = xp.astype(is_real, orders.dtype)
    earlier = xp.cumulative_sum(one, axis=1) - one
    at_start = xp.take(earlier, data.index(starts), axis=1)
    counts = np.diff(to_host(at_start), axis=1, append=n_real)
    real, synthetic = counts.max(axis=0), (sizes - counts).max(axis=0)
    offset = np.cumsum(real + synthetic) - (real + synthetic)
    step = np.arange(total) // batch_size
    rank = earlier - xp.take(at_start, data.index(step), axis=1)
    behind = data.index((real[step] + np.arange(total) - starts[step])[None]) - rank
    place = data.index(offset[step][None]) + xp.where(is_real, rank, behind)
    # Empty places hold case 0 where a real case may stand, the first synthetic one elsewhere.
    widths = np.stack([real, synthetic], axis=1).reshape(-1)
    spare = np.repeat(np.tile([0, n_real], len(starts)), widths)
    cases = data.index(np.tile(spare, (lanes, 1)))
    lane = data.index(np.arange(lanes))[:, None]
    filled = xp.zeros_like(cases, dtype=xp.bool)
    cases[lane, place] = orders
    filled[lane, place] = True
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
        self._draw()

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
        orders = self.data.index(np.stack([self.coming[i] for i in self.lanes.tolist()]))
        layout = lay_out(self.data, orders, self.n_real, self.batch_size)
        targets = self._arranged(self.targets, layout.cases)
        weights = self.case_weights
        if weights is not None:
            weights = self._arranged(weights, layout.cases)
        if layout.filled is not None:
            lane = np.repeat(np.arange(len(self.lanes)), len(self.slots) // len(self.lanes))
            columns = self.data.index(np.repeat(lane, self.n_columns))
            counts = self.xp.astype(layout.filled[columns], self.data.dtype)
            weights = counts if weights is None else weights * counts
        real = self.xp.where(
            layout.cases < self.n_real, layout.cases, self.xp.zeros_like(layout.cases)
        )
        rows = self._arranged(self.rows[self.data.index(self.lanes)], real)
        if self.n_synthetic:
            widths = np.stack([layout.real, layout.synthetic], axis=1).reshape(-1)
            made = np.repeat(np.tile([False, True], len(layout.sizes)), widths)
            places = self.data.index(np.flatnonzero(made))
            synthetic = self.xp.take(layout.cases, places, axis=1) - self.n_real
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
        self._draw()  # while the device still works on the steps

    def _draw(self) -> None:
        """Draw the coming epoch's order of each lane in training."""
        cases = self.n_real + self.n_synthetic
        self.coming = {i: self.generators[i].permutation(cases) for i in self.lanes.tolist()}

    def _arranged(self, values: Array, numbers: Array) -> Array:
        """Columns of each lane's rows of `values` by its own `numbers`."""
        lanes = numbers.shape[0]
        split = self.xp.reshape(values, (lanes, -1, values.shape[1]))
        lane = self.data.index(np.arange(lanes))[:, None, None]
        row = self.data.index(np.arange(split.shape[1]))[None, :, None]
        return self.xp.reshape(split[lane, row, numbers[:, None, :]], (values.shape[0], -1))
