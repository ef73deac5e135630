"""The training loop: probes that share batches as one weight matrix, Adam, early stopping.

Tasks with the same training rows, batch order and number of synthetic cases see the same batches,
so a step is two matrix products for all of them. The result is that of each probe trained alone.
`Group` works on numpy arrays; `Lanes` puts several groups side by side on torch tensors.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from scalecal.checks import InputError, library
from scalecal.solvers.problem import (
    CHUNK_ROWS,
    Array,
    Fit,
    Float,
    Matrix,
    Scaling,
    Task,
    check_tasks,
    log_loss,
    product,
    residual,
    same_content,
    same_mixtures,
    to_host,
)
from scalecal.synthesis import Mixtures

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's
FEW_ANCHORS = 64  # gathering pairs of rows costs more, however few synthetic cases a batch holds
LARGEST_SHARES = 4_000_000  # entries of a mixing matrix

STACK_BYTES = 512 << 20
"""What the rows of one step of all lanes, or of all their validation sets, may take at least.

Enough for ten seeds' cross-fits of MHIST's size with 2,048 features.
"""

EPOCHS_TOGETHER = 8
"""Epochs between two looks at the losses,"""
DRAWN_TOGETHER = 1 << 22
"""or as many as draw so many case numbers."""

DRAWING_THREADS = 8

STRETCH = 32
"""Steps in the graph of a long epoch."""

ADAM_PARTS, MIN_PART = 32, 2048
"""Parts that Adam's state is cut into, for as many of the card's processors, and their least size."""


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
        first = tasks[probes[0]]
        source, rows = held, first.validation
        if rows is None:
            source, rows = data, first.rows
        targets: list[Float] = []
        own: list[Float] = []
        alike = np.ones(len(rows))
        for i in probes.tolist():
            task = tasks[i]
            goal, each = task.validation_targets, task.validation_weights
            if goal is None:
                goal, each = task.targets, task.weights
            if each is None:
                each = alike
            targets.append(goal)
            own.append(each)
        weights = None
        # Equal weights change nothing, and an array of them is as large as all losses.
        if any((each != each[0]).any() for each in own):
            raw = np.stack(own)
            weights = data.array(raw / raw.mean(axis=1, keepdims=True))
        stacked = _stack_targets(data, targets)
        sets.append(_Held(source, source.index(rows), stacked, probes, weights))
    return sets


# -- one group at a time --------------------------------------------------------------------------


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
        """The batches of one epoch: numbers are put in their order once, and batches are views."""
        order = generator.permutation(self.n_real + self.n_synthetic)
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


# -- groups side by side on torch tensors ---------------------------------------------------------


class Layout:
    """Where the cases of an epoch stand: in each step room for real ones, then for synthetic ones.

    Examples
    --------
    >>> import torch
    >>> layout = Layout("cpu", n_cases=4, batch_size=2, room=(2, 1))
    >>> layout.places(torch.tensor([[3, 0, 1, 2], [1, 0, 2, 3]]), n_real=3).tolist()
    [[0, -1, 3, 1, 2, -1], [1, 0, -1, 2, -1, 3]]
    """

    def __init__(
        self,
        device: Any,
        *,
        n_cases: int,
        batch_size: int,
        room: tuple[int, int],
    ) -> None:
        self.torch = torch = library("torch", "training on torch tensors")

        def beside(values: NDArray[np.int64]) -> Array:
            return torch.as_tensor(values, device=device)

        starts = np.arange(0, n_cases, batch_size)
        self.sizes = np.diff(np.append(starts, n_cases))
        self.real, self.synthetic = (np.minimum(self.sizes, most) for most in room)
        widths = self.real + self.synthetic
        self.offset = np.cumsum(widths) - widths
        self.width = int(widths.sum())
        step = np.arange(n_cases) // batch_size
        self._starts, self._step = beside(starts), beside(step)
        self._first = beside(self.offset[step])
        self._behind = beside((self.offset + self.real - starts)[step] + np.arange(n_cases))
        counts = np.stack([self.real, self.synthetic], axis=1)
        kinds = np.repeat(np.tile([0, 1], len(widths)), counts.reshape(-1))
        self.synthetic_places = beside(np.flatnonzero(kinds))
        self.step_of_place = np.repeat(np.arange(len(widths)), widths)

    def places(self, orders: Array, n_real: Any) -> Array:
        """Return the case number at every place (lanes, places), -1 where it is empty.

        `orders` holds case numbers, from `n_real` on synthetic ones, and -1 behind the last.
        """
        if not self.synthetic.any():
            return orders
        real = orders < n_real
        one = real.long()
        # How many real cases come before each, in the epoch and in its step.
        earlier = one.cumsum(1) - one
        rank = earlier - earlier[:, self._starts][:, self._step]
        place = self.torch.where(real, self._first + rank, self._behind - rank)
        empty = self.torch.full((len(orders), self.width), -1, device=orders.device)
        return empty.scatter_(1, place, orders)

    def steps_with_pairs(self, pairs: int) -> NDArray[np.int64]:
        """Where each step finds its rows: all places, then the `pairs` rows of synthetic cases."""
        before = np.cumsum(self.synthetic) - self.synthetic
        kinds = self.width + self.synthetic.sum() * np.arange(pairs) + before[:, None]
        begins = np.concatenate([self.offset[:, None], kinds], axis=1).reshape(-1)
        lengths = np.column_stack([self.real, *[self.synthetic] * pairs]).reshape(-1)
        every: NDArray[np.int64] = np.repeat(begins - np.cumsum(lengths) + lengths, lengths)
        return every + np.arange(lengths.sum())


def usual_room(n_real: int, n_synthetic: int, batch_size: int) -> tuple[int, int]:
    """Places of a step for real and for synthetic cases that nearly all drawn orders fit into."""
    if not n_synthetic:
        return batch_size, 0
    share = n_synthetic / (n_real + n_synthetic)
    spare = 1 + math.ceil(5 * math.sqrt(batch_size * share * (1 - share)))
    return tuple(  # type: ignore[return-value]
        min(batch_size, math.ceil(batch_size * part) + spare) for part in (1 - share, share)
    )


class _Drawn(NamedTuple):
    """Orders of a few epochs, (epochs, lanes, cases), and the room their steps need."""

    orders: Array
    lanes: NDArray[np.int64]
    needs: list[Future[tuple[int, int]]]

    def room(self) -> tuple[int, int]:
        """Places a step needs for real and for synthetic cases, once all is drawn."""
        real, synthetic = zip(*(need.result() for need in self.needs), strict=True)
        return max(real), max(synthetic)


class _Arranged(NamedTuple):
    """What steps read, one after another: of rows, places, places and synthetic places."""

    rows: Array  # (lanes, rows), of real cases and of the pairs of synthetic ones
    targets: Array  # (columns, places)
    weights: Array | None  # the same shape
    shares: Array | None  # (lanes, 1, pairs, synthetic places)


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
    """Several groups as one, lane after lane: as many probes each, and as many steps an epoch.

    A graphics processor is idle most of the time when ten groups take their small steps one after
    another: what a step costs is the number of operations, not their size. Side by side, one lane each,
    a step of all of them is one gathering of rows and two stacked products. A synthetic case is two
    rows in that gathering, its logit the mean of theirs. Lanes differ in how many synthetic cases a
    batch holds, and may in how many cases there are, so every step has room for a fixed number of either
    kind, and empty places weigh 0; the result is that of each group trained alone.

    An epoch, early stopping included, reads nothing but tensors of fixed shape and place. So on a CUDA
    card it is recorded once as a graph and repeated by a single call; elsewhere the same lines run one
    by one. Recording a step costs as much as taking it a hundred times, so the graph of a long epoch is
    one of a stretch of steps, repeated. The host draws orders ahead and looks at the losses of several
    epochs together.
    """

    def __init__(
        self, data: Matrix, held: Matrix, groups: Sequence[Sequence[Task]], batch_size: int
    ) -> None:
        self.torch = library("torch", "training on torch tensors")
        self.per_lane = len(groups[0])
        self.generators = [np.random.default_rng(group[0].order) for group in groups]
        self.lane_real = np.array([len(group[0].rows) for group in groups])
        self.lane_cases = self.lane_real + [group[0].n_mixtures for group in groups]
        self.pairs: _Pairs | None = None
        self.window: _Arranged | None = None  # of a stretch
        self.graphs: dict[str, Any] = {}
        super().__init__(data, held, [task for group in groups for task in group], batch_size)
        self.lane_rows = data.index(np.stack(level(group[0].rows for group in groups)))
        longest = int(self.lane_cases.argmax())
        self.n_real = int(self.lane_real[longest])
        self.n_synthetic = int(self.lane_cases[longest]) - self.n_real
        self.room = usual_room(self.n_real, self.n_synthetic, batch_size)
        self.cuda = self.data.X.device.type == "cuda"
        self.warm = False

    def run(self, limit: int, patience: int, advance: Callable[[float], object]) -> list[Fit]:
        """Train until every probe has stopped or `limit` epochs are done."""
        record = Record(self.tasks, limit, patience, advance)
        running, epoch = self.live, 0  # those in the matrix are `live` until half have stopped
        here = self.torch.cuda.device(self.data.X.device) if self.cuda else contextlib.nullcontext()
        with here, ThreadPoolExecutor(DRAWING_THREADS) as self.beside:
            coming = self._draw(limit)
            self._set_up(record)
            while len(running) and epoch < limit:
                drawn, room = coming, coming.room()  # all drawn: the next ones follow in order
                coming = self._draw(limit - epoch - len(drawn.orders))
                for losses in self._train(drawn, room):
                    epoch += 1
                    _, stopped = record.add(epoch, running, losses)
                    running = running[~stopped]
                    if len(running) == 0:
                        break
                if 0 < len(running) <= len(self.live) // 2:
                    self._save()
                    self._drop(np.isin(self.live, running))
                    self._set_up(record)
        record.unstopped()
        self._save()
        return record.fits(self.best_weights, self.best_intercept)

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
        self.pair_rows = self.pairs.rows[here]
        self.pair_shares = self.pairs.shares[here]
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
        rows: list[NDArray[Any]] = []
        shares: list[NDArray[Any]] = []
        for lane in lanes:
            sets = [
                t.mixtures for t in lane + lane[-1:] * (most - len(lane)) if t.mixtures is not None
            ]
            rows.append(np.stack([m.first for m in sets] + [m.second for m in sets]))
            both = [coefficients(self.data, m, self.scaling) for m in sets]
            shares.append(np.stack([left for left, _ in both] + [right for _, right in both]))
        every_row = self.data.index(np.stack(level(rows)))
        every_share = self.data.array(np.stack(level(shares)))
        return _Pairs(every_row, every_share, number)

    # -- epochs -----------------------------------------------------------------------------------

    def _draw(self, epochs: int) -> _Drawn:
        """Draw the coming epochs' orders of each lane in training, beside the training."""
        cases = self.n_real + self.n_synthetic
        most = min(EPOCHS_TOGETHER, max(1, DRAWN_TOGETHER // (cases * len(self.lanes))))
        shape = (max(0, min(epochs, most)), len(self.lanes), cases)
        orders = self.torch.empty(shape, dtype=self.torch.int64, pin_memory=self.cuda)
        starts = np.arange(0, cases, self.batch_size)
        sizes = np.diff(np.append(starts, cases))

        def draw(place: int, lane: int) -> tuple[int, int]:
            mine, n = orders.numpy()[:, place], self.lane_cases[lane]
            mine[:, n:] = -1
            for order in mine:
                order[:n] = self.generators[lane].permutation(n)
            real = np.add.reduceat(mine < self.lane_real[lane], starts, axis=1, dtype=np.int64)
            return int(real.max(initial=0)), int((sizes - real).max(initial=0))

        needs = [self.beside.submit(draw, *pair) for pair in enumerate(self.lanes.tolist())]
        return _Drawn(orders, self.lanes, needs)

    def _train(self, drawn: _Drawn, room: tuple[int, int]) -> Iterator[NDArray[np.float64]]:
        """Train as many epochs as are drawn; yield their losses of all probes, NaN of those gone."""
        if room[0] > self.room[0] or room[1] > self.room[1]:
            self.room = (max(room[0], self.room[0]), max(room[1], self.room[1]))
            self._set_layout()
        orders = drawn.orders
        if len(drawn.lanes) > len(self.lanes):  # some were dropped since
            orders = orders[:, np.isin(drawn.lanes, self.lanes)]
        self.position.zero_()
        for order in orders:
            self.orders.copy_(order, non_blocking=self.cuda)
            self._epoch()
        self.step_count += len(orders) * self.n_steps
        first = np.searchsorted(self.slots, self.live)
        for losses in to_host(self.history[: len(orders)]):
            result = np.full(len(self.tasks), np.nan)
            result[self.live] = losses[first]
            yield result

    def _epoch(self) -> None:
        """Every lane's cases in its new order, then the losses and what stops by them."""
        self._play(self._arrange)
        for k in range(self.stretches):
            here = self._span(k * STRETCH, (k + 1) * STRETCH)
            if self.window is None:
                self.window = _Arranged(*(None if v is None else v.clone() for v in here))
            for there, values in zip(self.window, here, strict=True):
                if values is not None:
                    there.copy_(values)
            self._play(self._stretch)
        self._play(self._end)
        self.warm = True

    def _play(self, part: Callable[[], None]) -> None:
        """Do a part of an epoch: on a CUDA card by its graph, recorded when the second epoch comes."""
        if not self.cuda or not self.warm:  # what starts with its first use must not be recorded
            part()
            return
        if part.__name__ not in self.graphs:
            graph, here = self.torch.cuda.CUDAGraph(), self.torch.cuda.current_stream()
            recording = self.torch.cuda.Stream()
            recording.wait_stream(here)
            with self.torch.cuda.stream(recording):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    part()
                finally:
                    graph.capture_end()
            here.wait_stream(recording)
            self.graphs[part.__name__] = graph
        self.graphs[part.__name__].replay()

    def _arrange(self) -> None:
        self.arranged = self._in_places(self.layout.places(self.orders, self.reals))

    def _stretch(self) -> None:
        assert self.window is not None
        for batch in self._steps(self.window, 0, STRETCH):
            self._step(batch)

    def _end(self) -> None:
        first, last = self.stretches * STRETCH, self.n_steps
        for batch in self._steps(self._span(first, last), first, last):
            self._step(batch)
        self._stop(self._losses())

    def _set_up(self, record: Record) -> None:
        """Set up what the epochs read and write for the probes in the matrix."""
        device, slots = self.data.device, self.slots

        def beside(values: Any) -> Array:
            return self.torch.as_tensor(values, device=device)

        # Where every probe has its own rate, Adam moves zeros at rate 1, and the move is scaled.
        self.varied = not isinstance(self.rate, float)
        self.moved = self.torch.zeros_like(self.flat) if self.varied else self.flat
        size = max(MIN_PART, -(-len(self.flat) // ADAM_PARTS))
        self.adam_parts = [part.split(size) for part in (self.moved, self.gradient, *self.moments)]
        self.steps_done = self.torch.tensor(float(self.step_count), device=device)
        columns = self.data.index(column_numbers(slots, self.n_columns))
        self.kept_weights, self.kept_intercept = (
            self.best_weights[columns],
            self.best_intercept[columns],
        )
        self.stops, self.stopped = beside(record.stops[slots]), beside(record.done[slots])
        self.lowest, self.best = beside(record.lowest[slots]), beside(record.best[slots])
        self.patience, self.epoch = record.patience, beside(max(map(len, record.history)))
        self.position = self.torch.zeros(1, dtype=self.torch.int64, device=device)
        self.history = self.torch.zeros(
            EPOCHS_TOGETHER, len(slots), dtype=self.torch.float64, device=device
        )
        cases = self.n_real + self.n_synthetic
        self.orders = self.torch.zeros(
            len(self.lanes), cases, dtype=self.torch.int64, device=device
        )
        self.rows = self.lane_rows[self.data.index(self.lanes)]
        self._set_layout()

    def _set_layout(self) -> None:
        """Give the steps the room they need."""
        self.layout = Layout(
            self.data.device,
            n_cases=self.n_real + self.n_synthetic,
            batch_size=self.batch_size,
            room=self.room,
        )
        reals, cases = self.lane_real[self.lanes, None], self.lane_cases[self.lanes, None]
        self.reals = self.data.index(reals)
        self.uneven = bool((cases < self.n_real + self.n_synthetic).any())
        sizes = np.minimum(cases - self.batch_size * np.arange(self.n_steps), self.batch_size)
        # What a case of each place weighs in its step.
        self.place_share = self.data.array((1.0 / sizes)[:, self.layout.step_of_place])
        self.n_pairs = self.pair_rows.shape[1] if self.n_synthetic else 0
        if self.n_synthetic:
            self.with_pairs = self.data.index(self.layout.steps_with_pairs(self.n_pairs))
        # The last step may be smaller than those of a stretch.
        self.stretches = 0 if self.n_steps < 2 * STRETCH else (self.n_steps - 1) // STRETCH
        self.window, self.graphs = None, {}

    def _stop(self, losses: Array) -> None:
        """Keep the weights of probes that got better; stop those that have not for too long."""
        self.epoch += 1
        self.history.index_copy_(0, self.position, losses[None])
        self.position += 1
        better = (losses < self.lowest) & ~self.stopped | ~self.stops
        self.torch.where(better, losses, self.lowest, out=self.lowest)
        self.torch.where(better, self.epoch, self.best, out=self.best)
        column = better.repeat_interleave(self.n_columns, output_size=len(self.kept_intercept))
        self.torch.where(column, self.intercept, self.kept_intercept, out=self.kept_intercept)
        self.torch.where(column[:, None], self.weights, self.kept_weights, out=self.kept_weights)
        self.stopped |= self.stops & (self.epoch - self.best >= self.patience)

    def _save(self) -> None:
        """Remember the kept weights of the probes in the matrix."""
        first = np.searchsorted(self.slots, self.live)
        here = self.data.index(column_numbers(first, self.n_columns))
        there = self.data.index(column_numbers(self.live, self.n_columns))
        self.best_weights[there] = self.kept_weights[here]
        self.best_intercept[there] = self.kept_intercept[here]

    # -- training ---------------------------------------------------------------------------------

    def _in_places(self, cases: Array) -> _Arranged:
        """What the steps of an epoch read, of the cases at its places (lanes, places)."""
        weights, rows, shares = self.case_weights, self.rows, None
        if not self.n_synthetic and not self.uneven and weights is None:
            return _Arranged(rows.gather(1, cases), self._by_lane(self.targets, cases), None, None)
        numbers = cases.clamp(min=0)
        # An empty place weighs nothing; the others are divided by their step's cases here.
        counts = (cases >= 0) * self.place_share
        n = len(self.targets)
        counts = counts.repeat_interleave(n // len(cases), 0, output_size=n)
        weights = counts if weights is None else self._by_lane(weights, numbers) * counts
        # Where a synthetic case stands, any row: it is left out.
        rows = rows.gather(1, self.torch.minimum(numbers, self.reals - 1))
        if self.n_synthetic:
            rows, shares = self._with_pairs(rows, numbers)
        return _Arranged(rows, self._by_lane(self.targets, numbers), weights, shares)

    def _ends(self, step: int) -> tuple[int, int, int]:
        """Where a step begins among rows, places and synthetic places."""
        layout, pairs = self.layout, self.n_pairs
        real, extra = int(layout.real[:step].sum()), int(layout.synthetic[:step].sum())
        return real + pairs * extra, real + (extra if pairs else 0), extra

    def _span(self, first: int, last: int) -> _Arranged:
        """The part of the arranged epoch that some steps read."""
        (row, place, extra), ends = self._ends(first), self._ends(last)
        rows, targets, weights, shares = self.arranged
        return _Arranged(
            rows[:, row : ends[0]],
            targets[:, place : ends[1]],
            None if weights is None else weights[:, place : ends[1]],
            None if shares is None else shares[..., extra : ends[2]],
        )

    def _steps(self, span: _Arranged, first: int, last: int) -> Iterator[Batch]:
        """The batches of some steps, whose part of the epoch is `span`."""
        self.shares: Any = span.shares
        base = self._ends(first)
        for step in range(first, last):
            (row, place, extra), ends = (
                [at - start for at, start in zip(self._ends(k), base, strict=True)]
                for k in (step, step + 1)
            )
            part = slice(place, ends[1])
            size = int(self.layout.sizes[step])
            yield Batch(
                size=size if span.weights is None else 1,  # else the weights are divided by it
                rows=span.rows[:, row : ends[0]],
                synthetic=slice(extra, ends[2]),
                targets=span.targets[:, part],
                weights=None if span.weights is None else span.weights[:, part],
            )

    def _by_lane(self, values: Array, numbers: Array) -> Array:
        """Columns of each lane's rows of `values` by its own `numbers`."""
        split = values.reshape(len(numbers), -1, values.shape[1])
        every = numbers[:, None].expand(-1, split.shape[1], -1)
        return split.gather(2, every).reshape(len(values), -1)

    def _with_pairs(self, rows: Array, numbers: Array) -> tuple[Array, Array]:
        """Put the pairs of each step's synthetic cases behind its real cases' rows; and their shares.

        `rows` (lanes, places) has room for the synthetic cases themselves, which is left out.
        """
        lanes, pairs, size = self.pair_rows.shape
        chosen = numbers[:, self.layout.synthetic_places] - self.reals
        chosen = chosen.clamp(min=0)  # an empty place
        flat = (lanes * pairs, size)
        both = self._by_lane(self.pair_rows.reshape(flat), chosen).reshape(lanes, -1)
        shares = self._by_lane(self.pair_shares.reshape(flat), chosen)
        every = self.xp.concat([rows, both], axis=1)[:, self.with_pairs]
        return every, shares.reshape(lanes, 1, pairs, -1)

    def _adam(self) -> None:
        self.steps_done += 1
        if self.varied:
            self.moved.zero_()
        # What `torch.optim.Adam(fused=True)` calls; importing that takes seconds.
        self.torch._fused_adam_(
            *self.adam_parts,
            [],
            [self.steps_done] * len(self.adam_parts[0]),
            lr=1.0 if self.varied else self.rate,
            beta1=BETA_1,
            beta2=BETA_2,
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
        if self.varied:
            self.flat.addcmul_(self.moved, self.rate)

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

    # -- validation -------------------------------------------------------------------------------

    def _set_columns(self) -> None:
        super()._set_columns()
        self.stacked = self._stack_held()
        self.selected_places = [
            self.data.index(np.searchsorted(self.slots, chosen.probes)) for chosen in self.selected
        ]

    def _stack_held(self) -> _Stacked | None:
        """Validation sets as chosen, where every lane has a small one of its own."""
        sets = sorted(self.selected, key=lambda chosen: int(chosen.probes[0]))
        owners = [np.unique(chosen.probes // self.per_lane) for chosen in sets]
        longest = max(len(chosen.rows) for chosen in sets)
        alone = len(sets) == len(self.lanes) > 1 and all(len(lanes) == 1 for lanes in owners)
        needed = len(sets) * longest * self.data.n_features * 8
        if not alone or needed > STACK_BYTES:
            return None
        xp, data = self.xp, self.data
        about = {"dtype": data.dtype, "device": data.device}
        rows = xp.zeros((len(sets), longest, data.n_features), **about)
        targets = xp.zeros((self.weights.shape[0], longest), **about)
        weights = xp.zeros((len(self.slots), longest), **about)
        slots = self.slots.reshape(len(sets), -1)
        for k, chosen in enumerate(sets):
            n, mine = len(chosen.rows), slice(k * slots.shape[1], (k + 1) * slots.shape[1])
            columns = slice(mine.start * self.n_columns, mine.stop * self.n_columns)
            inside = np.searchsorted(chosen.probes, slots[k])
            rows[k, :n] = chosen.data.take(chosen.rows, self.scaling)
            targets[columns, :n] = chosen.targets[
                data.index(column_numbers(inside, self.n_columns))
            ]
            weights[mine, :n] = 1.0 / n
            if chosen.weights is not None:
                weights[mine, :n] = chosen.weights[data.index(inside)] / n
        return _Stacked(xp.matrix_transpose(rows), targets, weights)

    def _losses(self) -> Array:
        """Mean validation loss of every probe in the matrix, in double precision."""
        if self.stacked is None:
            losses = self.xp.full_like(self.lowest, math.inf)
            for chosen, place in zip(self.selected, self.selected_places, strict=True):
                losses[place] = self._mean_loss(chosen)
            return losses
        rows, targets, weights = self.stacked
        logits = self.xp.reshape(self.stacked_weights @ rows, targets.shape)
        logits *= self.factor
        logits += self.intercept[:, None]
        values = log_loss(self.xp, logits, targets, self.n_columns)
        values *= weights
        return self.xp.sum(values, axis=1, dtype=self.xp.float64)


# -- all tasks ------------------------------------------------------------------------------------


def train(
    X: Any,
    tasks: Sequence[Task],
    *,
    X_validation: Any = None,
    batch_size: int = 256,
    max_epochs: int = 50,
    min_steps: int = 2000,
    patience: int = 10,
    advance: Callable[[float], object] = lambda _: None,
) -> list[Fit]:
    """Train every task with Adam (Kingma and Ba 2015), early-stopped, best weights kept.

    Parameters
    ----------
    X
        Shared rows (n, d): a numpy array or memory map, or a torch tensor on any device; float16,
        float32 or float64. Never copied whole.
    tasks
        The probes to train.
    X_validation
        Where the tasks' validation row numbers point; X itself by default.
    batch_size
        Cases per step; the last batch of an epoch may be smaller.
    max_epochs, min_steps
        At most `max_epochs` epochs, or as many as make `min_steps` steps if that is more: small
        data would otherwise stop before anything is learnt. 0: the paper's plain limit of epochs.
    patience
        Epochs without a lower validation loss after which a probe stops; from then on it costs
        nothing.
    advance
        Called with the share of the whole that was just done, after every epoch.

    Returns
    -------
    list of Fit
        One per task, in their order.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> task = Task(rows=np.arange(4), targets=np.array([0.0, 0.0, 1.0, 1.0]), learning_rate=0.1)
    >>> fit = train(X, [task], max_epochs=100, min_steps=0)[0]
    >>> bool(fit.weights[0, 0] > 1.0), fit.capped
    (True, True)
    """
    data = Matrix(X)
    held = data if X_validation is None else Matrix(X_validation)
    if held.n_features != data.n_features:
        raise InputError(f"X has {data.n_features} features but X_validation has {held.n_features}")
    check_tasks(tasks, data.n_rows, held.n_rows)
    fits: dict[int, Fit] = {}
    for groups in _side_by_side(tasks, data, batch_size):
        members = [[tasks[i] for i in group] for group in groups]
        loop: Group
        if isinstance(data.X, np.ndarray):
            loop = Group(data, held, members[0], batch_size)
        else:
            loop = Lanes(data, held, members, batch_size)
        limit = max(max_epochs, math.ceil(min_steps / loop.n_steps))
        trained = loop.run(limit, patience, lambda done: advance(done / len(tasks)))
        fits.update(zip((i for group in groups for i in group), trained, strict=True))
    return [fits[i] for i in range(len(tasks))]


def _batchable(tasks: Sequence[Task]) -> list[list[int]]:
    """Task numbers that can share batches, those with the same synthetic rows side by side."""
    rows = same_content([t.rows for t in tasks])
    sets = same_mixtures(tasks)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, task in enumerate(tasks):
        key = (rows[i], task.order, *_shape(task))
        groups.setdefault(key, []).append(i)
    for members in groups.values():
        members.sort(key=lambda i: (sets[i], i))
    return list(groups.values())


def _shape(task: Task) -> tuple[Any, ...]:
    """What tasks that share batches must have in common."""
    scaling: Any = id(task.scaling)
    if task.scaling.is_number:
        scaling = None  # applied to each probe's logits
    elif task.scaling.shift is None and np.ndim(task.scaling.scale) == 0:
        scaling = ("unit", task.scaling.scale)
    gamma = task.gamma if task.loss == "focal" else None
    return len(task.rows), task.n_mixtures, task.n_columns, gamma, scaling


def _side_by_side(tasks: Sequence[Task], data: Matrix, batch_size: int) -> list[list[list[int]]]:
    """Groups to be trained in step: one at a time on the processor, whose cache holds no more.

    Elsewhere as many as keep the rows of one step below a quarter of the matrix, or `STACK_BYTES`: of
    as many steps an epoch, as those of the parts of a cross-fit are, though one has a case more.
    """
    groups = _batchable(tasks)
    if isinstance(data.X, np.ndarray):
        return [[members] for members in groups]
    step = 4 * batch_size * data.n_features  # bytes of a batch of float32
    most = max(1, data.n_rows // (4 * batch_size), STACK_BYTES // step)
    alike: dict[tuple[Any, ...], list[list[int]]] = {}
    for members in groups:
        first = tasks[members[0]]
        # Batches of an epoch, and how many its synthetic cases would fill.
        steps = [len(first.rows) + first.n_mixtures, first.n_mixtures]
        key = (len(members), *(math.ceil(n / batch_size) for n in steps), *_shape(first)[2:])
        alike.setdefault(key, []).append(members)
    return [same[k : k + most] for same in alike.values() for k in range(0, len(same), most)]
