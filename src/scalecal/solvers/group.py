"""Probes that share batches: one weight matrix, Adam's moments, early stopping.

Tasks with the same training rows, batch order and number of synthetic cases see the same batches,
so a step is two matrix products for all of them, or a compiled loop where they are few. The result
is that of each probe trained alone. `Group` is for numpy arrays; `scalecal.solvers.lanes` runs
several of them side by side elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from scalecal.checks import InputError
from scalecal.solvers.arrays import Array, Matrix, product, to_host
from scalecal.solvers.holding import Held, held_sets, stack_targets
from scalecal.solvers.in_place import InPlace, kernels
from scalecal.solvers.losses import loss, residual
from scalecal.solvers.mixing import mixes
from scalecal.solvers.problem import BETA_1, BETA_2, EPSILON, Fit, Scaling, Task

__all__ = ["Batch", "Group", "column_numbers"]

STRETCH = 64  # batches whose targets are put in order together


class Batch(NamedTuple):
    """The cases of one step: real rows, then synthetic ones."""

    size: int
    rows: Array  # row numbers of the real cases
    synthetic: slice  # of the epoch's synthetic cases
    targets: Array  # (columns, cases)
    weights: Array | None


class _Selected(NamedTuple):
    """A validation set for the probes still in training."""

    held: Held
    probes: NDArray[np.int64]
    columns: Array | None  # None: all of them
    targets: Array
    weights: Array | None


class Group:
    """Probes that share batches: their weights, Adam's moments, and one epoch after another."""

    in_place: InPlace | None = None  # few probes: compiled loops that gather no rows

    def __init__(
        self,
        data: Matrix,
        held: Matrix,
        tasks: list[Task],
        batch_size: int,
        *,
        compiled: bool = False,
    ) -> None:
        self.data, self.tasks, self.batch_size = data, tasks, batch_size
        self.compiled = compiled  # where that is faster
        self.xp = data.xp
        first = tasks[0]
        self.n_columns = first.n_columns
        self.gamma = first.gamma if first.loss == "focal" else None
        # One number is applied to the logits instead of the rows.
        self.scaling: Scaling | None = None if first.scaling.is_number else first.scaling
        self.rows = data.index(first.rows)
        self.n_real, self.n_synthetic = len(first.rows), first.n_mixtures
        self.held = held_sets(tasks, data, held)
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
        self.targets = stack_targets(data, (t.all_targets() for t in live), len(live) * c)
        self.case_weights: Array | None = None
        if any(t.is_weighted() for t in live):
            raw = np.stack([t.all_weights() for t in live])
            raw /= raw.mean(axis=1, keepdims=True)
            self.case_weights = data.array(np.repeat(raw, c, axis=0))
        self._set_columns()

    # -- what belongs to the columns still in training ------------------------------------------

    def _padded(self, probes: NDArray[np.int64]) -> NDArray[np.int64]:
        """One probe twice where that makes a multiple of four, which multiplies faster."""
        if self.n_columns == 1 and len(probes) % 4 == 3:
            return np.append(probes, probes[-1])
        return probes

    def _set_state(self, weights: Array, intercept: Array) -> None:
        """Keep weights and intercepts as views of one flat array, so that Adam is one update."""
        size = weights.shape[0] * weights.shape[1]
        self.flat = self.data.room(size + intercept.shape[0])
        self.flat[:size], self.flat[size:] = self.xp.reshape(weights, (-1,)), intercept
        self.gradient = self.data.room(self.flat.shape[0])
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
        self.rate = self._flat_value([t.learning_rate for t in live])
        self.decay = self._column_value([t.decay for t in live])
        self._set_synthetic(live)
        self.selected = self._select_held()

    def _set_synthetic(self, live: list[Task]) -> None:
        """Gather the synthetic cases, and set up the memory a step works in."""
        columns = self.weights.shape[0]
        self.in_place = None
        if self.compiled and InPlace.pays(self.data, live[0], self.scaling, columns):
            factors = self.data.zeros(columns, 1) + self.factor
            cases = self.rows, self.targets, self.case_weights
            self.in_place = InPlace(self.data, live, *cases, factors[:, 0])
            return
        per_batch = self.batch_size * self.n_synthetic / (self.n_real + self.n_synthetic)
        self.mixes, anchors = mixes(self.data, live, self.scaling, per_batch)
        self.n_anchors = len(anchors)
        longest = self.n_anchors + min(self.batch_size, self.n_real)
        self.buffer = self.data.room(longest, self.data.n_features)
        self.buffer[: self.n_anchors] = self.data.take(self.data.index(anchors), self.scaling)
        self.every = self.data.room(columns, self.n_anchors + self.batch_size)
        self.ones = self.data.zeros(self.batch_size) + 1.0

    def _column_value(self, values: list[float]) -> Any:
        """One number if all probes agree, else one per column as a (columns, 1) array."""
        if len(set(values)) == 1:
            return values[0]
        return self.data.array(np.repeat(values, self.n_columns)[:, None])

    def _flat_value(self, values: list[float]) -> Any:
        """One number if all probes agree, else one per entry of the flat state."""
        if len(set(values)) == 1:
            return values[0]
        per_column = np.repeat(values, self.n_columns)
        weights = np.repeat(per_column, self.data.n_features)
        return self.data.array(np.concatenate([weights, per_column]))

    # -- training ---------------------------------------------------------------------------------

    def run(self, limit: int, patience: int) -> list[Fit]:
        """Train until every probe has stopped or `limit` epochs are done.

        With one thread: products are too small to gain from more, and lose several times over where
        other processes want the same cores.
        """
        with _arithmetic().limit(limits=1, user_api="blas"):
            return self._run(limit, patience)

    def _run(self, limit: int, patience: int) -> list[Fit]:
        n = len(self.tasks)
        stops = np.array([t.validation is not None for t in self.tasks])
        history: list[list[float]] = [[] for _ in range(n)]
        lowest, best, done = (
            np.full(n, np.inf),
            np.zeros(n, dtype=np.int64),
            np.zeros(n, dtype=bool),
        )
        generator = np.random.default_rng(self.tasks[0].order)
        for epoch in range(1, limit + 1):
            self._epoch(generator)
            losses = self._evaluate()
            for i in self.live:
                history[i].append(float(losses[i]))
            better = self.live[stops[self.live] & (losses[self.live] < lowest[self.live])]
            lowest[better], best[better] = losses[better], epoch
            self._keep(better)
            done[self.live] = stops[self.live] & (epoch - best[self.live] >= patience)
            if done[self.live].any():
                self._drop(~done[self.live])
                if len(self.live) == 0:
                    break
        if not stops.all():  # these are all still live
            self._keep(np.flatnonzero(~stops))
            best[~stops] = limit
        weights, intercept = to_host(self.best_weights), to_host(self.best_intercept)
        c = self.n_columns
        return [
            Fit(
                weights=weights[i * c : (i + 1) * c].copy(),
                intercept=intercept[i * c : (i + 1) * c].copy(),
                history=np.array(history[i]),
                n_iter=len(history[i]),
                best=int(best[i]),
                converged=bool(done[i]),
                capped=not done[i],
            )
            for i in range(n)
        ]

    def _epoch(self, generator: np.random.Generator) -> None:
        """All cases in a new order, one step for each batch of them."""
        if self.in_place is None:
            for batch in self._batches(generator):
                self._step(batch)
            return
        order = self._sorted(generator.permutation(self.n_real + self.n_synthetic))
        trained = self.flat, self.gradient, self.moments, self.step_count
        self.in_place.epoch(order, self.batch_size, *trained)
        self.step_count += math.ceil(len(order) / self.batch_size)

    def _batches(self, generator: np.random.Generator) -> Iterator[Batch]:
        """The batches of one epoch."""
        return self._in_order(generator.permutation(self.n_real + self.n_synthetic))

    def _sorted(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sort inside each batch: changes no sum, reads memory in order, puts synthetic cases last."""
        whole = len(order) // self.batch_size * self.batch_size
        order[:whole].reshape(-1, self.batch_size).sort(axis=1)
        order[whole:].sort()
        return order

    def _in_order(self, order: NDArray[np.int64]) -> Iterator[Batch]:
        """Batches of these cases: numbers are put in their order once, and batches are views."""
        size, order = self.batch_size, self._sorted(order)
        starts = range(0, len(order), size)
        real = order < self.n_real
        counts = np.add.reduceat(real, np.array(starts)).tolist()
        numbers = self.data.index(order)
        rows = self.rows[self.data.index(order[real])]
        if self.n_synthetic:
            synthetic = self.data.index(order[~real] - self.n_real)
            for mix in self.mixes:
                mix.arrange(synthetic)
        done = 0
        for start, count in zip(starts, counts, strict=True):
            ahead = start % (STRETCH * size)
            if ahead == 0:
                coming = numbers[start : start + STRETCH * size]
                targets, weights = self.xp.take(self.targets, coming, axis=1), self.case_weights
                if weights is not None:
                    weights = self.xp.take(weights, coming, axis=1)
            part = slice(ahead, ahead + size)
            yield Batch(
                size=min(size, len(order) - start),
                rows=rows[done : done + count],
                synthetic=slice(start - done, start - done + size - count),
                targets=targets[:, part],
                weights=None if weights is None else weights[:, part],
            )
            done += count

    def _step(self, batch: Batch) -> None:
        """One Adam step on one batch."""
        n_real, size = batch.rows.shape[-1], batch.targets.shape[1]
        head = self.n_anchors if size > n_real else 0
        rows = self._gathered(batch.rows, head)
        # Columns of `every`: anchors, real cases, synthetic cases.
        every = self.every[:, : head + size]
        product(self.weights, rows.T, every[:, : head + n_real])
        synthetic = []
        if size > n_real:
            synthetic = [(mix.columns, mix.batch(batch.synthetic)) for mix in self.mixes]
        for mine, made in synthetic:
            every[mine, head + n_real :] = made.forward(self.weights[mine], every[mine])
        logits = every[:, head:]
        if not isinstance(self.factor, float) or self.factor != 1.0:
            logits *= self.factor
        logits += self.intercept[:, None]
        slopes = residual(self.xp, logits, batch.targets, self.n_columns, self.gamma)
        if batch.weights is not None:
            slopes *= batch.weights
        slopes *= 1.0 / batch.size
        self.slope_intercept[...] = slopes @ self.ones[:size]
        if not isinstance(self.factor, float) or self.factor != 1.0:
            slopes *= self.factor
        back = slopes
        if head:
            back = every
            back[:, :head] = 0.0
            back[:, head:] = slopes
        for mine, made in synthetic:
            made.to_anchors(slopes[mine, n_real:], back[mine])
        product(back[:, : head + n_real], rows, self.slope)
        for mine, made in synthetic:
            made.to_gradient(slopes[mine, n_real:], self.slope[mine])
        if not isinstance(self.decay, float) or self.decay:
            self.slope += self.decay * self.weights
        self._adam()

    def _gathered(self, index: Array, head: int) -> Array:
        """The anchors' rows if there is a `head` of them, then those of this batch."""
        rows = self.data.take(index, self.scaling, self.buffer[self.n_anchors :])
        if not head:
            return rows
        return self.buffer[: head + len(rows)]

    def _adam(self) -> None:
        """Move the flat state. The moments are kept undivided by 1 - beta: two products fewer."""
        self.step_count += 1
        first, second = self.moments
        loops = kernels() if self.compiled and isinstance(self.rate, float) else None
        if loops is not None:
            loops.adam(self.flat, self.gradient, first, second, self.rate, self.step_count)
            return
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

    def _select_held(self) -> list[_Selected]:
        """For each validation set, the live probes it decides about and where they are."""
        selected = []
        for held in self.held:
            probes = held.probes[np.isin(held.probes, self.live)]
            if len(probes) == 0:
                continue
            columns = None
            if len(probes) == len(self.live):
                probes = self.slots
            else:
                place = np.searchsorted(self.slots, probes)
                columns = self.data.index(column_numbers(place, self.n_columns))
            inside = np.searchsorted(held.probes, probes)
            targets = held.targets[self.data.index(column_numbers(inside, self.n_columns))]
            weights = None if held.weights is None else held.weights[self.data.index(inside)]
            selected.append(_Selected(held, probes, columns, targets, weights))
        return selected

    def _evaluate(self) -> NDArray[np.float64]:
        """Mean validation loss of each live probe (NaN for the others)."""
        result = np.full(len(self.tasks), np.nan)
        for held, probes, columns, targets, case_weights in self.selected:
            weights, intercept, factor = self.weights, self.intercept, self.factor
            if columns is not None:
                weights, intercept = weights[columns], intercept[columns]
                factor = factor if isinstance(factor, float) else factor[columns]
            total = 0.0
            for block, rows in held.chunks(self.scaling):
                logits = self.data.empty(weights.shape[0], rows.shape[0])
                if self.in_place is None:
                    product(weights, rows.T, logits)
                else:
                    self.in_place.forward(rows, weights, logits)
                logits *= factor
                logits += intercept[:, None]
                values = loss(self.xp, logits, targets[:, block], self.n_columns, None)
                if case_weights is not None:
                    values *= case_weights[:, block]
                total = total + self.xp.sum(values, axis=1, dtype=self.xp.float64)
            result[probes] = to_host(total) / int(held.rows.shape[0])
        return self._finite(result)

    def _finite(self, result: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the losses, or fail where one of a live probe is not finite."""
        if not np.isfinite(result[self.live]).all():
            raise InputError(
                "training diverged: the validation loss is not finite. "
                "Scale the features or lower the learning rate."
            )
        return result

    def _keep(self, probes: NDArray[np.int64]) -> None:
        """Remember the present weights of these probes."""
        if len(probes) == 0:
            return
        here = self.data.index(column_numbers(np.searchsorted(self.slots, probes), self.n_columns))
        there = self.data.index(column_numbers(probes, self.n_columns))
        self.best_weights[there] = self.weights[here]
        self.best_intercept[there] = self.intercept[here]

    def _drop(self, keep: NDArray[np.bool_]) -> None:
        """Take stopped probes out of the matrix: they cost nothing more."""
        self.live = self.live[keep]
        if len(self.live) == 0:
            return
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
def _arithmetic() -> ThreadpoolController:
    """The arithmetic libraries in memory, looked for once: looking takes as long as many steps."""
    return ThreadpoolController()


def column_numbers(probes: NDArray[np.int64], n_columns: int) -> NDArray[np.int64]:
    """Column numbers of these probes."""
    found: NDArray[np.int64] = (probes[:, None] * n_columns + np.arange(n_columns)).reshape(-1)
    return found
