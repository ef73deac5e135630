"""The training loop: probes that share batches as one weight matrix, Adam, early stopping.

Tasks with the same training rows, batch order and number of synthetic cases see the same batches,
so a step is two matrix products for all of them. The result is that of each probe trained alone.
`Group` works on numpy arrays; `scalecal.solvers.lanes` puts several groups side by side on a
device, and `scalecal.solvers.windows` reads rows that do not fit into memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from scalecal.checks import InputError
from scalecal.solvers.matrix import CHUNK_ROWS, Matrix, product, to_host
from scalecal.solvers.problem import (
    Array,
    Fit,
    Scaling,
    Task,
    log_loss,
    residual,
    same_content,
    same_mixtures,
)
from scalecal.synthesis import Mixtures

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's
FEW_ANCHORS = 64  # gathering pairs of rows costs more, however few synthetic cases a batch holds
LARGEST_SHARES = 4_000_000  # entries of a mixing matrix


class Batch(NamedTuple):
    """The cases of one step: real rows, then synthetic ones."""

    size: int
    rows: Array  # row numbers of the real cases
    synthetic: slice  # of the epoch's synthetic cases
    targets: Array  # (columns, cases)
    weights: Array | None


# -- synthetic cases ------------------------------------------------------------------------------


def coefficients(
    data: Matrix, mixtures: Mixtures, scaling: Scaling
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares of the first and second scaled row in each synthetic row.

    They are 1 - alpha and alpha; with unit rows both are divided by the interpolate's length.
    """
    right = np.asarray(mixtures.alpha, dtype=np.float64)
    left = 1.0 - right
    if not scaling.unit:
        return left, right
    length = np.empty(len(right))
    unit = Scaling(unit=True)
    for start in range(0, len(right), CHUNK_ROWS):
        block = slice(start, start + CHUNK_ROWS)
        first = data.take(data.index(mixtures.first[block]), unit)
        second = data.take(data.index(mixtures.second[block]), unit)
        cosine = np.asarray(to_host(data.xp.sum(first * second, axis=1)), dtype=np.float64)
        a, b = left[block], right[block]
        length[block] = np.sqrt(np.maximum(a * a + b * b + 2.0 * a * b * cosine, 1e-12))
    return left / length, right / length


def mix(logits: Array, shares: Array) -> Array:
    """Logits of synthetic cases (..., cases) from those of their rows, (..., rows, cases)."""
    return (logits * shares).sum(-2)


def unmix(slopes: Array, shares: Array) -> Array:
    """Bring slopes (..., cases) back to the rows the cases are made of: the transpose of `mix`."""
    return slopes[..., None, :] * shares


class _Synthetic:
    """One set of synthetic cases and the adjoining columns that train on it; exact either way.

    An interpolate's logit is the interpolate of two logits. Where the anchors are few, their logits
    are computed once a step and mixed by a small matrix. Where they are many, the two rows of each
    case in the batch are gathered.
    """

    def __init__(
        self,
        data: Matrix,
        mixtures: Mixtures,
        scaling: Scaling,
        columns: slice,
        most_anchors: float,
    ) -> None:
        self.data, self.scaling, self.columns = data, scaling, columns
        self.anchors: Array | None = None
        size = len(mixtures)
        left, right = coefficients(data, mixtures, scaling)
        both = np.concatenate([mixtures.first, mixtures.second])
        rows, place = np.unique(both, return_inverse=True)
        if len(rows) <= most_anchors and size * len(rows) <= LARGEST_SHARES:
            mixing = np.zeros((size, len(rows)))
            # Added, not set: a pair may name the same row twice.
            np.add.at(mixing, (np.arange(size), place[:size]), left)
            np.add.at(mixing, (np.arange(size), place[size:]), right)
            self.anchors, self.shares = data.take(data.index(rows), scaling), data.array(mixing.T)
        else:
            self.pairs, self.shares = both.reshape(2, size), data.array([left, right])

    def arrange(self, numbers: Array) -> None:
        """Put the synthetic cases in an epoch's order."""
        self.ordered = np.take(self.shares, numbers, axis=1)
        if self.anchors is None:
            self.ordered_pairs = np.take(self.pairs, numbers, axis=1)

    def forward(self, weights: Array, part: slice) -> Array:
        """Logits (columns, cases) of part of the epoch's cases."""
        self.now = self.ordered[:, part]
        if self.anchors is not None:
            return (weights @ self.anchors.T) @ self.now
        index = self.ordered_pairs[:, part].reshape(-1)
        room = self.data.empty(len(index), self.data.n_features)
        self.rows = self.data.take(index, self.scaling, room)
        logits = product(weights, self.rows.T, self.data.empty(len(weights), len(index)))
        return mix(logits.reshape(len(weights), 2, -1), self.now)

    def backward(self, slopes: Array) -> Array:
        """Gradient (columns, d) of the cases of the last `forward`."""
        if self.anchors is not None:
            return (slopes @ self.now.T) @ self.anchors
        both = unmix(slopes, self.now).reshape(len(slopes), -1)
        return product(both, self.rows, self.data.empty(len(slopes), self.data.n_features))


# -- validation sets ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Held:
    """Validation cases shared by some of a group's probes."""

    data: Matrix
    rows: Array
    targets: Array  # (columns of those probes, cases)
    probes: NDArray[np.int64]  # numbers within the group
    weights: Array | None
    columns: Array | None = None  # of those probes in the matrix, while they are in training

    def chunks(self, scaling: Scaling) -> Iterator[tuple[slice, Array]]:
        """The cases, some thousand rows at a time."""
        n = int(self.rows.shape[0])
        buffer = self.data.empty(min(n, CHUNK_ROWS), self.data.n_features)
        for start in range(0, n, CHUNK_ROWS):
            block = slice(start, min(start + CHUNK_ROWS, n))
            yield block, self.data.take(self.rows[block], scaling, buffer)


def level(arrays: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
    """Arrays of one length along the last axis: the shorter ones are filled up with zeros.

    Examples
    --------
    >>> import numpy as np
    >>> [each.tolist() for each in level([np.array([1, 2]), np.array([3])])]
    [[1, 2], [3, 0]]
    """
    arrays = list(arrays)
    longest = max(each.shape[-1] for each in arrays)
    filled = []
    for each in arrays:
        missing = longest - each.shape[-1]
        if missing == 0:
            filled.append(each)
        else:
            filled.append(np.pad(each, [(0, 0)] * (each.ndim - 1) + [(0, missing)]))
    return filled


def _stack_targets(data: Matrix, targets: Iterable[NDArray[Any]]) -> Array:
    """Targets of several probes as one array (columns, cases)."""
    precision = np.float64 if data.dtype == data.xp.float64 else np.float32
    return data.array(np.vstack(level(each.T.astype(precision, copy=False) for each in targets)))


def _held_sets(tasks: Sequence[Task], data: Matrix, held: Matrix) -> list[_Held]:
    """Validation sets, each with the probes it decides about.

    Probes without one are measured on their training cases (rows of `data`).
    """
    validation = same_content([t.validation for t in tasks])
    own_rows = same_content([t.rows if t.validation is None else None for t in tasks])
    numbers = np.asarray(validation) * len(tasks) + np.asarray(own_rows)
    sets = []
    for number in np.unique(numbers):
        probes = np.flatnonzero(numbers == number)
        mine = [tasks[i] for i in probes.tolist()]
        source, rows, own = held, mine[0].validation, [t.validation_weights for t in mine]
        targets = [
            t.targets if t.validation_targets is None else t.validation_targets for t in mine
        ]
        if rows is None:
            source, rows, own = data, mine[0].rows, [t.weights for t in mine]
        weights = None
        # Equal weights change nothing, and an array of them is as large as all losses.
        if any(each is not None and (each != each[0]).any() for each in own):
            raw = np.stack([np.ones(len(rows)) if each is None else each for each in own])
            weights = data.array(raw / raw.mean(axis=1, keepdims=True))
        goal = _stack_targets(data, targets)
        sets.append(_Held(source, source.index(rows), goal, probes, weights))
    return sets


# -- the loop ------------------------------------------------------------------------------------


class Record:
    """Validation losses epoch by epoch, and what early stopping makes of them."""

    def __init__(
        self,
        tasks: Sequence[Task],
        limit: int,
        patience: int,
        advance: Callable[[float], object],
    ) -> None:
        n = len(tasks)
        self.limit, self.patience, self.advance = limit, patience, advance
        self.n_columns = tasks[0].n_columns
        self.stops = np.array([t.validation is not None for t in tasks])
        self.history: list[list[float]] = [[] for _ in range(n)]
        self.lowest = np.full(n, np.inf)
        self.best = np.zeros(n, dtype=np.int64)
        self.done = np.zeros(n, dtype=bool)

    def add(
        self, epoch: int, live: NDArray[np.int64], losses: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Take in an epoch's losses; return the live probes that got better, and which of them stop."""
        if not np.isfinite(losses[live]).all():
            raise InputError(
                "training diverged: the validation loss is not finite. "
                "Scale the features or lower the learning rate."
            )
        for i in live:
            self.history[i].append(float(losses[i]))
        better = live[self.stops[live] & (losses[live] < self.lowest[live])]
        self.lowest[better], self.best[better] = losses[better], epoch
        stopped = self.stops[live] & (epoch - self.best[live] >= self.patience)
        self.done[live] = stopped
        ended = int(stopped.sum())
        self.advance((len(live) + ended * (self.limit - epoch)) / self.limit)
        return better, stopped

    def unstopped(self) -> NDArray[np.int64]:
        """Probes without validation cases, whose last weights are kept."""
        self.best[~self.stops] = self.limit
        return np.flatnonzero(~self.stops)

    def fits(self, weights: Array, intercept: Array) -> list[Fit]:
        """Return the results, given all probes' best weights."""
        weights, intercept, c = to_host(weights), to_host(intercept), self.n_columns
        return [
            Fit(
                weights=weights[i * c : (i + 1) * c].copy(),
                intercept=intercept[i * c : (i + 1) * c].copy(),
                history=np.array(self.history[i]),
                n_iter=len(self.history[i]),
                best=int(self.best[i]),
                capped=not self.done[i],
            )
            for i in range(len(self.history))
        ]


class Group:
    """Probes that share batches: their weights, Adam's moments, and one epoch after another."""

    def __init__(self, data: Matrix, held: Matrix, tasks: list[Task], batch_size: int) -> None:
        self.data, self.tasks, self.batch_size = data, tasks, batch_size
        self.xp = data.xp
        first = tasks[0]
        self.n_columns = first.n_columns
        self.gamma = first.gamma if first.loss == "focal" else None
        # Of the rows, hence not applied if it is one number: that divides the logits.
        self.scaling = first.scaling
        self.rows = data.index(first.rows)
        self.n_real, self.n_synthetic = len(first.rows), first.n_mixtures
        self.sets = np.array(same_mixtures(tasks))
        self.held = _held_sets(tasks, data, held)
        self.live = np.arange(len(tasks))
        self.slots = self._padded(self.live)
        self.step_count = 0
        d, c = data.n_features, self.n_columns
        start = np.zeros((len(tasks), c, d + 1))
        for i, task in enumerate(tasks):
            if task.initial is not None:
                start[i, :, :d], start[i, :, d] = task.initial
        first_state = data.array(start.reshape(-1, d + 1))
        self.best_weights = self.xp.asarray(first_state[:, :d], copy=True)
        self.best_intercept = self.xp.asarray(first_state[:, d], copy=True)
        columns = data.index(column_numbers(self.slots, c))
        self._set_state(self.best_weights[columns], self.best_intercept[columns])
        self.moments = [self.xp.zeros_like(self.flat), self.xp.zeros_like(self.flat)]
        live = [tasks[i] for i in self.slots]
        self.targets = _stack_targets(data, (t.all_targets() for t in live))
        self.case_weights: Array | None = None
        weights = (t.all_weights() for t in live)
        if any((each != each[0]).any() for each in weights):
            raw = (t.all_weights() for t in live)
            shares = np.stack(level(each / each.mean() for each in raw))
            self.case_weights = data.array(np.repeat(shares, c, axis=0))
        self._set_columns()

    @property
    def n_steps(self) -> int:
        """Batches of an epoch."""
        return math.ceil((self.n_real + self.n_synthetic) / self.batch_size)

    # -- what belongs to the columns still in training ------------------------------------------

    def _padded(self, probes: NDArray[np.int64]) -> NDArray[np.int64]:
        """One probe twice where that makes a multiple of four, which multiplies faster."""
        if self.n_columns == 1 and len(probes) % 4 == 3:
            return np.append(probes, probes[-1])
        return probes

    def _set_state(self, weights: Array, intercept: Array) -> None:
        """Keep weights and intercepts as views of one flat array, so that Adam is one update."""
        size = weights.shape[0] * weights.shape[1]
        self.flat = self.data.empty(size + intercept.shape[0])
        self.flat[:size], self.flat[size:] = self.xp.reshape(weights, (-1,)), intercept
        self.gradient = self.data.empty(self.flat.shape[0])
        self.weights = self.xp.reshape(self.flat[:size], weights.shape)
        self.intercept = self.flat[size:]
        self.slope = self.xp.reshape(self.gradient[:size], weights.shape)
        self.slope_intercept = self.gradient[size:]

    def _set_columns(self) -> None:
        """Set the live probes' rates, synthetic cases and validation sets."""
        live = [self.tasks[i] for i in self.slots]
        self.factor = self._column_value(
            [1.0 / float(t.scaling.scale) if t.scaling.is_number else 1.0 for t in live]
        )
        rate = self._column_value([t.learning_rate for t in live])
        if not isinstance(rate, float):  # one number per entry of the flat state
            every = self.xp.reshape(rate * self.xp.ones_like(self.weights), (-1,))
            rate = self.xp.concat([every, rate[:, 0]])
        self.rate = rate
        self.decay = self._column_value([t.decay for t in live])
        self._set_synthetic(live)
        self.selected = self._select_held()

    def _set_synthetic(self, live: list[Task]) -> None:
        """Gather the synthetic cases, and set up the memory a step works in."""
        # Anchors are cheaper than pairs of rows while they are fewer than a batch's cases.
        per_batch = self.batch_size * self.n_synthetic / (self.n_real + self.n_synthetic)
        most = max(per_batch, FEW_ANCHORS)
        c = self.n_columns
        self.synthetic: list[_Synthetic] = []
        # Tasks with the same synthetic rows stand side by side.
        edges = np.flatnonzero(np.diff(self.sets[self.slots], prepend=-1, append=-1))
        for start, stop in pairwise(edges.tolist()):
            mixtures, columns = live[start].mixtures, slice(start * c, stop * c)
            if mixtures is not None:
                cases = _Synthetic(self.data, mixtures, self.scaling, columns, most)
                self.synthetic.append(cases)
        self.buffer = self.data.empty(min(self.batch_size, self.n_real), self.data.n_features)
        most = min(self.batch_size, self.n_real + self.n_synthetic)
        self.logits = self.data.empty(self.weights.shape[0], most)

    def _column_value(self, values: list[float]) -> Any:
        """One number if all probes agree, else one per column as a (columns, 1) array."""
        if len(set(values)) == 1:
            return values[0]
        return self.data.array(np.repeat(values, self.n_columns)[:, None])

    # -- training ---------------------------------------------------------------------------------

    def run(self, limit: int, patience: int, advance: Callable[[float], object]) -> list[Fit]:
        """Train until every probe has stopped or `limit` epochs are done.

        After every epoch `advance` is called with how many probes it was worth: for each the share of
        its epochs, which are all done where it stops.

        With one thread: products are too small to gain from more, and lose several times over where
        other processes want the same cores.
        """
        record = Record(self.tasks, limit, patience, advance)
        generator = np.random.default_rng(self.tasks[0].order)
        with _blas().limit(limits=1, user_api="blas"):
            for epoch in range(1, limit + 1):
                for batch in self._batches(generator):
                    self._step(batch)
                better, stopped = record.add(epoch, self.live, self._evaluate())
                self._keep(better)
                if stopped.all():
                    break
                if stopped.any():
                    self._drop(~stopped)
        self._keep(record.unstopped())
        return record.fits(self.best_weights, self.best_intercept)

    def _batches(self, generator: np.random.Generator) -> Iterator[Batch]:
        """The batches of one epoch."""
        return self._in_order(generator.permutation(self.n_real + self.n_synthetic))

    def _in_order(self, order: NDArray[np.int64]) -> Iterator[Batch]:
        """Batches of these cases: numbers are put in their order once, and batches are views."""
        size = self.batch_size
        whole = len(order) // size * size
        # Sorting inside each batch changes no sum, reads memory in order and puts synthetic cases last.
        order[:whole].reshape(-1, size).sort(axis=1)
        order[whole:].sort()
        starts = range(0, len(order), size)
        real = order < self.n_real
        counts = np.add.reduceat(real, np.array(starts)).tolist()
        numbers = self.data.index(order)
        rows = self.rows[self.data.index(order[real])]
        if self.n_synthetic:
            synthetic = self.data.index(order[~real] - self.n_real)
            for cases in self.synthetic:
                cases.arrange(synthetic)
        done = 0
        for start, count in zip(starts, counts, strict=True):
            part, weights = numbers[start : start + size], self.case_weights
            if weights is not None:
                weights = self.xp.take(weights, part, axis=1)
            yield Batch(
                size=min(size, len(order) - start),
                rows=rows[done : done + count],
                synthetic=slice(start - done, start - done + size - count),
                targets=self.xp.take(self.targets, part, axis=1),
                weights=weights,
            )
            done += count

    def _step(self, batch: Batch) -> None:
        """One Adam step on one batch."""
        logits = self._forward(batch)
        if not isinstance(self.factor, float) or self.factor != 1.0:
            logits *= self.factor
        logits += self.intercept[:, None]
        slopes = residual(self.xp, logits, batch.targets, self.n_columns, self.gamma)
        if batch.weights is not None:
            slopes *= batch.weights
        if batch.size != 1:
            slopes *= 1.0 / batch.size
        self.slope_intercept[...] = slopes.sum(1)
        if not isinstance(self.factor, float) or self.factor != 1.0:
            slopes *= self.factor
        self._backward(batch, slopes)
        if not isinstance(self.decay, float) or self.decay:
            self.slope += self.decay * self.weights
        self._adam()

    def _forward(self, batch: Batch) -> Array:
        """Products of the weights with the rows of a batch, (columns, cases)."""
        n_real, size = len(batch.rows), batch.targets.shape[1]
        self.gathered = self.data.take(batch.rows, self.scaling, self.buffer)
        logits = self.logits[:, :size]
        product(self.weights, self.gathered.T, logits[:, :n_real])
        if size > n_real:
            for part in self.synthetic:
                weights = self.weights[part.columns]
                logits[part.columns, n_real:] = part.forward(weights, batch.synthetic)
        return logits

    def _backward(self, batch: Batch, slopes: Array) -> None:
        """Set the gradient of the weights from the slopes of the loss, (columns, cases)."""
        n_real = len(batch.rows)
        product(slopes[:, :n_real], self.gathered, self.slope)
        if slopes.shape[1] > n_real:
            for part in self.synthetic:
                self.slope[part.columns] += part.backward(slopes[part.columns, n_real:])

    def _adam(self) -> None:
        """Move the flat state. The moments are kept undivided by 1 - beta: two products fewer."""
        self.step_count += 1
        first, second = self.moments
        root = math.sqrt((1.0 - BETA_2**self.step_count) / (1.0 - BETA_2))
        pace = (1.0 - BETA_1) / (1.0 - BETA_1**self.step_count) * root
        first *= BETA_1
        first += self.gradient
        # The gradient's memory is used again: fresh memory for many probes costs more than the sums.
        move = self.gradient
        move *= move
        second *= BETA_2
        second += move
        self.xp.sqrt(second, out=move)
        move += EPSILON * root
        self.xp.divide(first, move, out=move)
        move *= self.rate * pace
        self.flat -= move

    # -- validation and early stopping --------------------------------------------------------------

    def _select_held(self) -> list[_Held]:
        """Each validation set for the live probes that it decides about, and where they are."""
        selected = []
        for held in self.held:
            probes = held.probes[np.isin(held.probes, self.live)]
            if len(probes) == 0:
                continue
            if len(probes) == len(self.live):
                probes = self.slots
            place = np.searchsorted(self.slots, probes)
            columns = self.data.index(column_numbers(place, self.n_columns))
            inside = np.searchsorted(held.probes, probes)
            targets = held.targets[self.data.index(column_numbers(inside, self.n_columns))]
            weights = None if held.weights is None else held.weights[self.data.index(inside)]
            selected.append(
                replace(held, probes=probes, columns=columns, targets=targets, weights=weights)
            )
        return selected

    def _evaluate(self) -> NDArray[np.float64]:
        """Mean validation loss of each live probe (NaN for the others)."""
        result = np.full(len(self.tasks), np.nan)
        for chosen in self.selected:
            result[chosen.probes] = to_host(self._mean_loss(chosen))
        return result

    def _mean_loss(self, held: _Held) -> Array:
        """Mean loss of some probes on their validation cases."""
        weights, intercept = self.weights[held.columns], self.intercept[held.columns]
        factor = self.factor if isinstance(self.factor, float) else self.factor[held.columns]
        total = 0.0
        for block, rows in held.chunks(self.scaling):
            logits = self.data.empty(weights.shape[0], rows.shape[0])
            product(weights, rows.T, logits)
            logits *= factor
            logits += intercept[:, None]
            values = log_loss(self.xp, logits, held.targets[:, block], self.n_columns)
            if held.weights is not None:
                values *= held.weights[:, block]
            total = total + self.xp.sum(values, axis=1, dtype=self.xp.float64)
        return total / int(held.rows.shape[0])

    def _keep(self, probes: NDArray[np.int64]) -> None:
        """Remember the present weights of these probes."""
        here = self.data.index(column_numbers(np.searchsorted(self.slots, probes), self.n_columns))
        there = self.data.index(column_numbers(probes, self.n_columns))
        self.best_weights[there] = self.weights[here]
        self.best_intercept[there] = self.intercept[here]

    def _drop(self, keep: NDArray[np.bool_]) -> None:
        """Take stopped probes out of the matrix: they cost nothing more."""
        self.live = self.live[keep]
        slots = self._padded(self.live)
        columns = self.data.index(
            column_numbers(np.searchsorted(self.slots, slots), self.n_columns)
        )
        self.slots = slots
        size, shape = self.slope.shape[0] * self.slope.shape[1], self.slope.shape
        self.moments = [
            self.xp.concat(
                [
                    self.xp.reshape(self.xp.reshape(m[:size], shape)[columns], (-1,)),
                    m[size:][columns],
                ]
            )
            for m in self.moments
        ]
        self._set_state(self.weights[columns], self.intercept[columns])
        self.targets = self.targets[columns]
        if self.case_weights is not None:
            self.case_weights = self.case_weights[columns]
        self._set_columns()


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries in memory, looked up once: that takes as long as many steps."""
    return ThreadpoolController()


def column_numbers(probes: NDArray[np.int64], n_columns: int) -> NDArray[np.int64]:
    """Column numbers of these probes."""
    columns: NDArray[np.int64] = (probes[:, None] * n_columns + np.arange(n_columns)).reshape(-1)
    return columns
