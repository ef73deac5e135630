"""Synthetic cases inside a batch, without a synthetic matrix.

An interpolate's logit is the interpolate of two logits. Where the anchors are few, their logits
are computed once a step and mixed by a small matrix. Where they are many, the batch's own pairs of
rows are gathered: few columns use both rows of a pair, many the interpolates made of them. All are
exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scalecal.solvers.arrays import CHUNK_ROWS, Array, Matrix, product, to_host
from scalecal.solvers.problem import Mixtures, Scaling, Task

__all__ = ["Batch", "Mix", "adjoining", "coefficients", "mixes", "same_rows"]

FEW_ANCHORS = 64  # dearer to make interpolates one by one, however few of them a batch holds
LARGEST_SHARES = 4_000_000  # entries of a mixing matrix
WASTE = 600_000  # multiply-adds about as dear as a product of one's own
FEW_COLUMNS = 8  # for so many, products with twice the rows cost less than making interpolates


class Batch(Protocol):
    """The synthetic cases of one batch, as a linear map of the weights and its transpose."""

    def forward(self, weights: Array, known: Array) -> Array:
        """Give logits (columns, cases) from weights (columns, d) and the logits of anchors."""

    def to_anchors(self, slopes: Array, known: Array) -> None:
        """Bring slopes (columns, cases) back to the anchors, before the step's product."""

    def to_gradient(self, slopes: Array, gradient: Array) -> None:
        """Add to the gradient (columns, d) what did not go through anchors, after it."""


@dataclass
class _Anchored:
    """Few anchors: their logits are `known` from the step's own product."""

    span: slice
    shares: Array  # (cases, k), two entries a row

    def forward(self, weights: Array, known: Array) -> Array:  # noqa: ARG002
        return known[:, self.span] @ self.shares.T

    def to_anchors(self, slopes: Array, known: Array) -> None:
        known[:, self.span] = slopes @ self.shares

    def to_gradient(self, slopes: Array, gradient: Array) -> None:
        pass


@dataclass
class _Apart:
    """Few anchors, but for few of many columns: small products of their own, m sets stacked."""

    anchors: Array  # (m, k, d)
    shares: Array  # (m, cases, k)

    def forward(self, weights: Array, known: Array) -> Array:  # noqa: ARG002
        sets, _, d = self.anchors.shape
        mine = weights.reshape(sets, -1, d) @ self.anchors.mT
        return (mine @ self.shares.mT).reshape(weights.shape[0], -1)

    def to_anchors(self, slopes: Array, known: Array) -> None:
        pass

    def to_gradient(self, slopes: Array, gradient: Array) -> None:
        sets = self.anchors.shape[0]
        mine = slopes.reshape(sets, -1, slopes.shape[1]) @ self.shares
        gradient += (mine @ self.anchors).reshape(gradient.shape)


@dataclass
class _Paired:
    """Many anchors, few columns: every case is two rows."""

    data: Matrix
    rows: Array  # (2 cases, d): first rows, then second rows
    shares: Array  # (2 cases,)

    def forward(self, weights: Array, known: Array) -> Array:  # noqa: ARG002
        cases = len(self.rows) // 2
        both = product(weights, self.rows.T, self.data.empty(weights.shape[0], 2 * cases))
        both *= self.shares
        return both[:, :cases] + both[:, cases:]

    def to_anchors(self, slopes: Array, known: Array) -> None:
        pass

    def to_gradient(self, slopes: Array, gradient: Array) -> None:
        both = np.concatenate([slopes, slopes], axis=1)
        both *= self.shares
        gradient += product(both, self.rows, self.data.empty(*gradient.shape))


@dataclass
class _Explicit:
    """Many anchors, many columns: the batch's own interpolates are made."""

    data: Matrix
    rows: Array  # (cases, d)

    def forward(self, weights: Array, known: Array) -> Array:  # noqa: ARG002
        out = self.data.empty(weights.shape[0], self.rows.shape[0])
        return product(weights, self.rows.T, out)

    def to_anchors(self, slopes: Array, known: Array) -> None:
        pass

    def to_gradient(self, slopes: Array, gradient: Array) -> None:
        gradient += product(slopes, self.rows, self.data.empty(*gradient.shape))


@dataclass
class Mix:
    """One set of synthetic rows and the adjoining columns that train on it."""

    data: Matrix
    scaling: Scaling | None
    columns: slice
    first: Array
    second: Array
    left: Array  # (S,), the share of `first`
    right: Array
    shares: Array | None  # (m, S, k), where anchors are few
    anchors: Array | None  # (m, k, d), where they do not ride along
    span: slice  # where they lie among those that do
    memory: Array = None  # where pairs are gathered: fresh memory costs more than the gathering
    order: Array = None  # this epoch's shares (few anchors) or numbers of synthetic cases

    def arrange(self, numbers: Array) -> None:
        """Put the synthetic cases in an epoch's order, `numbers` (S,)."""
        self.order = numbers
        if self.shares is not None:
            self.order = self.data.xp.take(self.shares, numbers, axis=1)

    def batch(self, part: slice) -> Batch:
        """Return the map of some of the epoch's synthetic cases."""
        if self.anchors is not None:
            return _Apart(self.anchors, self.order[:, part])
        if self.shares is not None:
            return _Anchored(self.span, self.order[0, part])
        now = self.order[part]
        cases = len(now)
        if self.memory is None or len(self.memory) < 2 * cases:
            self.memory = self.data.room(2 * max(cases, 64), self.data.n_features)
        both = np.concatenate([self.first[now], self.second[now]])
        rows = self.data.take(both, self.scaling, self.memory)
        left, right = self.left[now], self.right[now]
        if self.columns.stop - self.columns.start <= FEW_COLUMNS:
            return _Paired(self.data, rows, np.concatenate([left, right]))
        made, other = rows[:cases], rows[cases:]
        made *= left[:, None]
        other *= right[:, None]
        made += other
        return _Explicit(self.data, made)


def coefficients(
    data: Matrix, mixtures: Mixtures, scaling: Scaling | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares of the first and second scaled row in each synthetic row.

    They are 1 - alpha and alpha; with unit rows both are divided by the interpolate's length.
    """
    right = np.asarray(mixtures.alpha, dtype=np.float64)
    left = 1.0 - right
    if scaling is None or not scaling.unit:
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


def mixes(
    data: Matrix,
    tasks: Sequence[Task],
    scaling: Scaling | None,
    per_batch: float,
) -> tuple[list[Mix], NDArray[np.int64]]:
    """Gather adjoining tasks with the same synthetic rows; also give the anchors that ride along.

    `per_batch` is the expected number of synthetic cases in a batch: anchors are cheaper while they
    are fewer than these. They ride along in the step's own product, unless that wastes more on the
    other columns than a product of their own costs.
    """
    found: list[Mix] = []
    kept: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    for start, stop in adjoining(tasks):
        mixtures = tasks[start].mixtures
        if mixtures is not None:
            c = tasks[0].n_columns
            mix, anchors = _mix(data, mixtures, scaling, max(per_batch, FEW_ANCHORS))
            mix.columns = slice(start * c, stop * c)
            used = sum(len(rows) for rows in kept)
            others = (len(tasks) - stop + start) * c
            wasted = len(anchors) * others * data.n_features
            if mix.shares is not None and wasted > WASTE:
                mix.anchors = data.take(data.index(anchors), scaling)[None]
                anchors = anchors[:0]
            mix.span = slice(used, used + len(anchors))
            found.append(mix)
            kept.append(anchors)
    return _stacked(data.xp, found), np.concatenate(kept)


def adjoining(tasks: Sequence[Task]) -> Iterator[tuple[int, int]]:
    """Where runs of tasks with the same synthetic rows begin and end."""
    start = 0
    for stop in range(1, len(tasks) + 1):
        if stop == len(tasks) or not same_rows(tasks[start].mixtures, tasks[stop].mixtures):
            yield start, stop
            start = stop


def _stacked(xp: Any, found: list[Mix]) -> list[Mix]:
    """Join adjoining sets of the same shape that have products of their own into one."""
    joined: list[Mix] = []
    for mix in found:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.anchors is not None
            and mix.anchors is not None
            and last.anchors.shape[1:] == mix.anchors.shape[1:]
            and last.columns.stop == mix.columns.start
            and last.columns.stop - last.columns.start
            == (mix.columns.stop - mix.columns.start) * last.anchors.shape[0]
        ):
            last.anchors = xp.concat([last.anchors, mix.anchors])
            last.shares = xp.concat([last.shares, mix.shares])
            last.columns = slice(last.columns.start, mix.columns.stop)
        else:
            joined.append(mix)
    return joined


def same_rows(one: Mixtures | None, other: Mixtures | None) -> bool:
    """Whether two sets of synthetic cases are the same rows (their targets may differ)."""
    if one is None or other is None:
        return one is other
    pairs: list[tuple[Any, Any]] = [
        (one.first, other.first),
        (one.second, other.second),
        (one.alpha, other.alpha),
    ]
    return all(a is b or np.array_equal(a, b) for a, b in pairs)


def _mix(
    data: Matrix, mixtures: Mixtures, scaling: Scaling | None, limit: float
) -> tuple[Mix, NDArray[np.int64]]:
    """One `Mix` and its anchors (none where they are too many)."""
    size = len(mixtures)
    left, right = coefficients(data, mixtures, scaling)
    shares = None
    rows, place = np.unique(np.concatenate([mixtures.first, mixtures.second]), return_inverse=True)
    if len(rows) <= limit and size * len(rows) <= LARGEST_SHARES:
        mixing = np.zeros((size, len(rows)))
        # Added, not set: a pair may name the same row twice.
        np.add.at(mixing, (np.arange(size), place[:size]), left)
        np.add.at(mixing, (np.arange(size), place[size:]), right)
        shares = data.array(mixing[None])
    else:
        rows = rows[:0]
    mix = Mix(
        data=data,
        scaling=scaling,
        columns=slice(0, 0),
        first=data.index(mixtures.first),
        second=data.index(mixtures.second),
        left=data.array(left),
        right=data.array(right),
        shares=shares,
        anchors=None,
        span=slice(0, 0),
    )
    return mix, rows
