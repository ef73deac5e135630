"""Groups of the same shape, each with its own rows and order, in step.

A graphics processor is idle most of the time when ten groups take their small steps one after
another: what a step costs is the number of operations, not their size. Side by side, one lane each,
a step of all of them is one gathering of rows and two stacked products. A synthetic case is two
rows in that gathering, its logit the mean of theirs. Lanes differ in how many synthetic cases a
batch holds, so shorter ones are filled up with cases of weight 0; the result is that of each group
trained alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalecal.solvers.group import Batch, Group, coefficients, column_numbers, mix, unmix
from scalecal.solvers.matrix import Matrix, to_host
from scalecal.solvers.problem import Array, Fit, Task, loss

STACK_BYTES = 256 << 20
"""What the rows of one step of all lanes, or of all their validation sets, may take at least."""


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
    spare = _by_kind(0, n_real, real, synthetic)
    cases = data.index(np.tile(spare, (lanes, 1)))
    lane = data.index(np.arange(lanes))[:, None]
    filled = xp.zeros_like(cases, dtype=xp.bool)
    cases[lane, place] = orders
    filled[lane, place] = True
    return Layout(cases, filled, sizes, real, synthetic)


class _Pairs(NamedTuple):
    """Synthetic cases of all lanes: K sets each, and which of them a column trains on."""

    rows: Array  # (lanes, 2 K, S): first rows of the K sets, then second rows
    shares: Array  # the same shape
    sets: NDArray[np.int64]  # (probes,), the probe's set within its lane


class _Stacked(NamedTuple):
    """One validation set per lane, the shorter ones filled up with cases of weight 0."""

    rows: Array  # (lanes, cases, d)
    targets: Array  # (columns, cases)
    weights: Array  # (slots, cases), summing to 1


class Lanes(Group):
    """Several groups as one: the same numbers of cases and probes, lane after lane."""

    def __init__(
        self, data: Matrix, held: Matrix, groups: Sequence[Sequence[Task]], batch_size: int
    ) -> None:
        self.per_lane = len(groups[0])
        self.generators = [np.random.default_rng(group[0].order) for group in groups]
        self.pairs: _Pairs | None = None
        super().__init__(data, held, [task for group in groups for task in group], batch_size)
        self.rows = data.index(np.stack([group[0].rows for group in groups]))

    def run(self, limit: int, patience: int, advance: Callable[[float], object]) -> list[Fit]:
        """Train until every probe has stopped or `limit` epochs are done."""
        with ThreadPoolExecutor(1) as self.beside:
            self.coming = self._draw()
            return self._run(limit, patience, advance)

    # -- what belongs to the columns still in training ------------------------------------------

    def _padded(self, probes: NDArray[np.int64]) -> NDArray[np.int64]:
        """As many probes in every lane that has any: the last of a lane several times."""
        self.lanes, starts, counts = np.unique(
            probes // self.per_lane, return_index=True, return_counts=True
        )
        inside = np.minimum(np.arange(counts.max()), counts[:, None] - 1)
        padded: NDArray[np.int64] = probes[starts[:, None] + inside].reshape(-1)
        return padded

    def _set_state(self, weights: Array, intercept: Array) -> None:
        super()._set_state(weights, intercept)
        shape = (len(self.lanes), -1, weights.shape[1])
        self.stacked_weights = self.xp.reshape(self.weights, shape)
        self.stacked_slope = self.xp.reshape(self.slope, shape)

    def _set_synthetic(self, live: list[Task]) -> None:  # noqa: ARG002
        if not self.n_synthetic:
            return
        if self.pairs is None:
            self.pairs = self._all_pairs()
        here = self.data.index(self.lanes)
        self.pair_rows, self.pair_shares = self.pairs.rows[here], self.pairs.shares[here]
        n_sets = self.pair_rows.shape[1] // 2
        self.belongs: Array | None = None
        if n_sets > 1:
            chosen = np.eye(n_sets)[np.repeat(self.pairs.sets[self.slots], self.n_columns)]
            both = np.concatenate([chosen, chosen], axis=1)
            self.belongs = self.data.array(both.reshape(len(self.lanes), -1, 2 * n_sets, 1))

    def _all_pairs(self) -> _Pairs:
        """Number the sets of synthetic cases in every lane."""
        number = np.zeros(len(self.tasks), dtype=np.int64)
        lanes: list[list[Task]] = []  # of each lane, one task for each of its sets
        for start in range(0, len(self.tasks), self.per_lane):
            mine = slice(start, start + self.per_lane)
            _, firsts, number[mine] = np.unique(
                self.sets[mine], return_index=True, return_inverse=True
            )
            lanes.append([self.tasks[start + i] for i in firsts])
        most = max(map(len, lanes))
        rows, shares = [], []
        for lane in lanes:
            sets = [
                t.mixtures for t in lane + lane[-1:] * (most - len(lane)) if t.mixtures is not None
            ]
            rows.append([m.first for m in sets] + [m.second for m in sets])
            both = [coefficients(self.data, m, self.scaling) for m in sets]
            shares.append([left for left, _ in both] + [right for _, right in both])
        return _Pairs(self.data.index(rows), self.data.array(shares), number)

    # -- training ---------------------------------------------------------------------------------

    def _batches(self, generator: np.random.Generator) -> Iterator[Batch]:  # noqa: ARG002
        """One epoch: every lane's cases in its own new order."""
        drawn = self.coming.result()
        orders = self.data.index(np.stack([drawn[i] for i in self.lanes.tolist()]))
        self.coming = self._draw()
        layout = lay_out(self.data, orders, self.n_real, self.batch_size)
        targets = self._arranged(self.targets, layout.cases)
        weights = self._weights_of(layout)
        cases = layout.cases
        if self.n_synthetic:  # any row does where a synthetic case stands: it is left out below
            cases = self.xp.where(cases < self.n_real, cases, self.xp.zeros_like(cases))
        rows = self._arranged(self.rows[self.data.index(self.lanes)], cases)
        pairs = 0
        if self.n_synthetic:
            places = np.flatnonzero(_by_kind(0, 1, layout.real, layout.synthetic))
            numbers = self.xp.take(layout.cases, self.data.index(places), axis=1)
            numbers -= self.n_real
            rows, pairs = self._with_pairs(rows, numbers, layout), self.pair_rows.shape[1]
        start = done = first = 0
        for size, real, extra in zip(
            layout.sizes.tolist(), layout.real.tolist(), layout.synthetic.tolist(), strict=True
        ):
            part, last = slice(start, start + real + extra), first + real + pairs * extra
            yield Batch(
                size=size,
                rows=rows[:, first:last],
                synthetic=slice(done, done + extra),
                targets=targets[:, part],
                weights=None if weights is None else weights[:, part],
            )
            start, done, first = part.stop, done + extra, last

    def _draw(self) -> Future[dict[int, NDArray[np.int64]]]:
        """Draw the coming epoch's order of each lane in training, beside the training."""
        cases, chosen = self.n_real + self.n_synthetic, self.lanes.tolist()
        return self.beside.submit(
            lambda: {i: self.generators[i].permutation(cases) for i in chosen}
        )

    def _weights_of(self, layout: Layout) -> Array | None:
        """Weight of every case in its step, 0 in an empty place; None: all are the same."""
        weights = self.case_weights
        if weights is not None:
            weights = self._arranged(weights, layout.cases)
        if layout.filled is None:
            return weights
        lane = np.repeat(np.arange(len(self.lanes)), self.weights.shape[0] // len(self.lanes))
        counts = self.xp.astype(layout.filled[self.data.index(lane)], self.data.dtype)
        return counts if weights is None else weights * counts

    def _with_pairs(self, rows: Array, numbers: Array, layout: Layout) -> Array:
        """Put the pairs of each step's synthetic cases behind its real cases' rows.

        `rows` (lanes, places) has room for the synthetic cases themselves, which is left out;
        `numbers` (lanes, S) are theirs, in the order of the steps.
        """
        lanes, pairs, size = self.pair_rows.shape
        flat = (lanes * pairs, size)
        every = self.xp.reshape(self.pair_rows, flat)
        chosen = self.xp.reshape(self._arranged(every, numbers), (lanes, -1))
        shares = self._arranged(self.xp.reshape(self.pair_shares, flat), numbers)
        self.shares = self.xp.reshape(shares, (lanes, 1, pairs, -1))
        # In one row: all real places, then the pairs, kind after kind. Where each step finds its own:
        total, size = rows.shape[1], numbers.shape[1]
        place = np.cumsum(layout.real + layout.synthetic) - (layout.real + layout.synthetic)
        before = np.cumsum(layout.synthetic) - layout.synthetic
        kinds = total + size * np.arange(pairs) + before[:, None]
        begins = np.concatenate([place[:, None], kinds], axis=1).reshape(-1)
        lengths = np.column_stack([layout.real, *[layout.synthetic] * pairs]).reshape(-1)
        step = np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        return self.xp.take(self.xp.concat([rows, chosen], axis=1), self.data.index(step), axis=1)

    def _forward(self, batch: Batch) -> Array:
        xp, (columns, size) = self.xp, batch.targets.shape
        extra = batch.synthetic.stop - batch.synthetic.start
        n_real = size - extra
        self.gathered = self.data.take(batch.rows, self.scaling)
        every = self.stacked_weights @ self.gathered.mT
        if extra:
            self.now = self.shares[..., batch.synthetic]
            if self.belongs is not None:
                self.now = self.now * self.belongs
            pairs = xp.reshape(every[..., n_real:], (*every.shape[:2], -1, extra))
            every = xp.concat([every[..., :n_real], mix(pairs, self.now)], axis=2)
        return xp.reshape(every, (columns, size))

    def _backward(self, batch: Batch, slopes: Array) -> None:
        xp, size = self.xp, slopes.shape[1]
        extra = batch.synthetic.stop - batch.synthetic.start
        shape = self.stacked_weights.shape[:2]
        back = xp.reshape(slopes, (*shape, size))
        if extra:
            pairs = xp.reshape(unmix(back[..., size - extra :], self.now), (*shape, -1))
            back = xp.concat([back[..., : size - extra], pairs], axis=2)
        xp.matmul(back, self.gathered, out=self.stacked_slope)

    def _arranged(self, values: Array, numbers: Array) -> Array:
        """Columns of each lane's rows of `values` by its own `numbers`."""
        lanes = numbers.shape[0]
        split = self.xp.reshape(values, (lanes, -1, values.shape[1]))
        lane = self.data.index(np.arange(lanes))[:, None, None]
        row = self.data.index(np.arange(split.shape[1]))[None, :, None]
        return self.xp.reshape(split[lane, row, numbers[:, None, :]], (values.shape[0], -1))

    # -- validation -------------------------------------------------------------------------------

    def _set_columns(self) -> None:
        super()._set_columns()
        self.stacked = self._stack_held()

    def _stack_held(self) -> _Stacked | None:
        """Validation sets as chosen, where every lane has a small one of its own."""
        sets = sorted(self.selected, key=lambda chosen: int(chosen.probes[0]))
        owners = [np.unique(chosen.probes // self.per_lane) for chosen in sets]
        longest = max(len(chosen.held.rows) for chosen in sets)
        alone = len(sets) == len(self.lanes) > 1 and all(len(lanes) == 1 for lanes in owners)
        needed = len(sets) * longest * self.data.n_features * 8
        if not alone or needed > STACK_BYTES:
            return None
        xp, data = self.xp, self.data
        rows = data.zeros(len(sets), longest, data.n_features)
        targets = data.zeros(self.weights.shape[0], longest)
        weights = data.zeros(len(self.slots), longest)
        slots = self.slots.reshape(len(sets), -1)
        for k, chosen in enumerate(sets):
            n, mine = len(chosen.held.rows), slice(k * slots.shape[1], (k + 1) * slots.shape[1])
            columns = slice(mine.start * self.n_columns, mine.stop * self.n_columns)
            inside = np.searchsorted(chosen.held.probes, slots[k])
            rows[k, :n] = chosen.held.data.take(chosen.held.rows, self.scaling)
            targets[columns, :n] = chosen.held.targets[
                data.index(column_numbers(inside, self.n_columns))
            ]
            own = chosen.held.weights
            weights[mine, :n] = 1.0 / n if own is None else own[data.index(inside)] / n
        return _Stacked(xp.matrix_transpose(rows), targets, weights)

    def _evaluate(self) -> NDArray[np.float64]:
        if self.stacked is None:
            return super()._evaluate()
        rows, targets, weights = self.stacked
        logits = self.xp.reshape(self.stacked_weights @ rows, targets.shape)
        logits *= self.factor
        logits += self.intercept[:, None]
        values = loss(self.xp, logits, targets, self.n_columns, None)
        values *= weights
        result = np.full(len(self.tasks), np.nan)
        result[self.slots] = to_host(self.xp.sum(values, axis=1, dtype=self.xp.float64))
        return self._finite(result)


def _by_kind(
    if_real: int, if_synthetic: int, real: NDArray[np.int64], synthetic: NDArray[np.int64]
) -> NDArray[np.int64]:
    """One value at every real, another at every synthetic place of an epoch."""
    widths = np.stack([real, synthetic], axis=1).reshape(-1)
    return np.repeat(np.tile([if_real, if_synthetic], len(real)), widths)
