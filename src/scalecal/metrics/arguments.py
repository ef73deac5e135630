"""What every metric does first: read labels, probabilities and weights, and sort them where needed.

Most calibration metrics look at one event per case and the probability given to it. For two
classes the event is the positive class. For more classes it is "the top label is right", and its
probability is the largest of the row; where several are equal, the first of them counts.

`sample_weight` counts identical cases: a row of weight 3 stands for three cases, in scores, floors,
tests and nulls alike. Scores that are means take any weights that are not negative.

Accepting good input must cost next to nothing at ten million cases, so arrays pass on a look at
their smallest and largest value; only input that fails that look goes through the wordy checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import (
    Float,
    InputError,
    Int,
    as_array,
    check_counts,
    check_probs,
    check_same_length,
    check_targets,
    check_weights,
    rows,
)

BLOCK = 1 << 16  # cases handled at once: small enough that a block's arrays stay in the cache


Terms = Callable[[NDArray[Any], Float], Sequence[Float]]
"""What the cases of a block add to some sums: a function of their y and p."""

Term = Callable[["Sample"], Float]
"""What each case adds to the mean that is a metric: (n,)."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Probabilities of some cases and what judges them: all that a metric is computed from.

    Its arrays are checked; nothing that is computed from a sample checks them again.

    Attributes
    ----------
    y : array
        Labels, or soft ones between 0 and 1: (n,) of the positive class, or (n, C) targets of more
        classes. Empty where votes judge.
    p : array
        (n,) probabilities of the positive class, or (n, C).
    weights : array or None
        (n,) how much each case counts; None: once.
    votes : array or None
        (n, C) readers' votes.
    rho : float
        Correlation of two votes on a case that `p` does not explain.
    groups : array or None
        (n,) codes of patients, slides, ...
    n_bins : int
        Bins of calibration errors.
    importance : bool
        Whether the weights stand for a population, and do not count identical cases.
    """

    y: NDArray[Any]
    p: Float
    weights: Float | None = None
    votes: Int | None = None
    rho: float = 0.0
    groups: Int | None = None
    n_bins: int = 15
    importance: bool = False

    @property
    def total(self) -> float:
        """The sum of the weights, or the number of cases."""
        return float(len(self.p)) if self.weights is None else float(self.weights.sum())

    @cached_property
    def table(self) -> Float:
        """Probabilities of each class, (n, C)."""
        return as_table(self.p)

    @cached_property
    def top(self) -> Int:
        """The predicted class; a tie at 0.5 goes to the positive one, other ties to the first."""
        if self.table.shape[1] == 2:
            return (self.table[:, 1] >= 0.5).astype(np.int64)
        return np.asarray(self.table.argmax(axis=1))

    @cached_property
    def confidence(self) -> Float:
        """Probability of the predicted class."""
        return np.asarray(self.table[np.arange(len(self.top)), self.top])

    @cached_property
    def right(self) -> Float:
        """Whether the predicted class is the label; the share of it in a soft label."""
        if self.y.ndim == 1:
            return np.where(self.top == 1, self.y, 1.0 - self.y)
        return np.asarray(self.y[np.arange(len(self.top)), self.top])

    @cached_property
    def event(self) -> Sample:
        """The same cases with one event each: the positive class, or that the top label is right."""
        if self.p.ndim == 1:
            return self
        return replace(self, y=self.right, p=self.confidence)

    @cached_property
    def readers(self) -> Int:
        """How many readers voted on each case."""
        assert self.votes is not None
        return np.asarray(self.votes.sum(axis=1))

    @cached_property
    def shares(self) -> Float:
        """Share of the votes for each class, (n, C); 0 if there are none."""
        assert self.votes is not None
        return np.asarray(self.votes / np.maximum(self.readers, 1)[:, None])

    def take(self, rows: slice | NDArray[Any]) -> Sample:
        """Return some of the cases."""
        return replace(
            self,
            y=_rows_of(self.y, rows),
            p=self.p[rows],
            weights=_rows_of(self.weights, rows),
            votes=_rows_of(self.votes, rows),
            groups=_rows_of(self.groups, rows),
        )

    def judged(self, least: int) -> Sample:
        """The cases that count: those with at least so many votes."""
        if least == 0:
            return self
        return self.take(self.readers >= least)

    def weighed(self, values: Float, part: slice) -> Float:
        """Return what a block of cases adds: its values times its weights."""
        return values if self.weights is None else values * self.weights[part]

    def sums(self, terms: Terms) -> Float:
        """Return the weighted sums over all cases of what each of them adds."""
        out = np.zeros(1)
        for part in blocks(len(self.p)):
            values = terms(self.y[part], self.p[part])
            out = out + np.array([self.weighed(v, part).sum() for v in values])
        return out

    def mean(self, term: Term, least_votes: int = 0) -> float:
        """Weighted mean of a term over the cases with so many votes; NaN if there are none."""
        total = mass = 0.0
        for part in blocks(len(self.p)):
            block = self.take(part).judged(least_votes)
            if len(block.p):
                total += float(block.weighed(term(block), slice(None)).sum())
                mass += block.total
        return total / mass if mass > 0 else float("nan")


def _rows_of(column: NDArray[Any] | None, rows: slice | NDArray[Any]) -> Any:
    return column if column is None or len(column) == 0 else column[rows]


class Groups(NamedTuple):
    """Distinct probabilities in increasing order, with the mass and the positives at each."""

    p: Float
    weight: Float
    positive: Float


def blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Cut ``range(n)`` into slices of at most `size`.

    Examples
    --------
    >>> list(blocks(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _plainly_in_unit(values: NDArray[Any]) -> bool:
    # A NaN makes min() a NaN, which fails the comparison.
    return bool(values.dtype.kind in "biuf" and values.min() >= 0 and values.max() <= 1)


def read_probs(probs: ArrayLike) -> Float:
    """Return probabilities as `scalecal.checks.check_probs` does, quickly where nothing is wrong."""
    raw = as_array(probs, "probs")
    if raw.ndim == 1 and len(raw) and _plainly_in_unit(raw):
        return raw.astype(np.float64, copy=False)
    return check_probs(raw)


def read_counts(sample_weight: ArrayLike | None, n: int) -> Float | None:
    """Return weights that must be whole numbers, as float64, or None."""
    weights = check_weights(sample_weight, n, "sample_weight")
    if weights is None:
        return None
    broken = weights != np.floor(weights)
    if broken.any():
        raise InputError(
            f"sample_weight must count cases here, got {weights[broken][0]:g} at {rows(broken)}"
        )
    return weights


def event_probs(probs: ArrayLike) -> Float:
    """Return each case's probability of its event (see the module's text)."""
    p = read_probs(probs)
    if p.ndim == 1:
        return p
    return p[:, 1] if p.shape[1] == 2 else np.asarray(p.max(axis=1))


def read_event(y: ArrayLike, probs: ArrayLike, sample_weight: ArrayLike | None = None) -> Sample:
    """Return the event of each case, its probability and its weight.

    Soft labels give the share of the event: of the positive class, or of the top label.

    Examples
    --------
    >>> sample = read_event([2, 0], [[0.1, 0.3, 0.6], [0.2, 0.5, 0.3]])
    >>> sample.y, sample.p
    (array([1., 0.]), array([0.6, 0.5]))
    """
    p = read_probs(probs)
    if p.shape[1:] not in ((), (2,)):
        return read_sample(y, p, sample_weight).event
    event, p = _read_two(y), event_probs(p)
    check_same_length(y=event, probs=p)
    return Sample(event, p, check_weights(sample_weight, len(p), "sample_weight"))


def _read_two(y: ArrayLike) -> NDArray[Any]:
    """Return labels of two classes, of the caller's dtype if that is a number."""
    raw = as_array(y, "y")
    if raw.ndim != 1 or len(raw) == 0 or not _plainly_in_unit(raw):
        return check_targets(raw, 2)
    return raw.view(np.uint8) if raw.dtype.kind == "b" else raw


def read_hard_event(
    y: ArrayLike, probs: ArrayLike, sample_weight: ArrayLike | None = None
) -> Sample:
    """Return the event of each case, and fail on soft labels."""
    event = read_event(y, probs, sample_weight)
    soft = (event.y != 0) & (event.y != 1)
    if soft.any():
        raise InputError(
            f"y must be hard labels here, got {event.y[soft][0]:g} at {rows(soft)}. A test of "
            "calibration needs what happened, not a share of it."
        )
    return event


def read_sample(y: ArrayLike, probs: ArrayLike, sample_weight: ArrayLike | None = None) -> Sample:
    """Return two classes as their event, and more with their targets and probabilities (n, C)."""
    p = read_probs(probs)
    if p.shape[1:] in ((), (2,)):
        sample = read_event(y, p, sample_weight)
        return replace(sample, y=sample.y.astype(np.float64, copy=False))
    target = check_targets(y, p.shape[1])
    check_same_length(y=target, probs=p)
    return Sample(target, p, check_weights(sample_weight, len(p), "sample_weight"))


def read_votes(
    votes: ArrayLike,
    probs: ArrayLike,
    n_raters: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Sample:
    """Return votes, and probabilities of one, of the same cases and classes."""
    counts, p = check_counts(votes, n_raters), read_probs(probs)
    check_same_length(votes=counts, probs=p)
    check_same_classes(counts, p)
    return Sample(np.zeros(0), p, check_weights(sample_weight, len(p), "sample_weight"), counts)


def check_same_classes(counts: Int, p: Float) -> None:
    """Fail where counts (n, C) and probabilities have different numbers of classes."""
    n_classes = 2 if p.ndim == 1 else p.shape[1]
    if counts.shape[1] != n_classes:
        raise InputError(f"votes have {counts.shape[1]} classes but probs have {n_classes}")


def _sort_hard(y: NDArray[Any], p: Float) -> tuple[Float, Float]:
    """Sort the two classes apart, then merge: half the time of sorting indices of all cases."""
    happened = y == 1
    below, above = p[~happened], p[happened]
    below.sort()
    above.sort()
    both = np.concatenate([below, above])
    order = np.argsort(both, kind="stable")  # two rising runs: one linear merge
    return both[order], (order >= len(below)).astype(np.float64)


def group_by_p(sample: Sample) -> Groups:
    """Sort the cases by probability and add up those with the same one; weightless cases go."""
    y, p, weights = sample.y, sample.p, sample.weights
    if weights is None and ((y == 0) | (y == 1)).all():
        p, positive = _sort_hard(y, p)
    else:
        if weights is not None and (weights == 0).any():
            kept = weights > 0
            y, p, weights = y[kept], p[kept], weights[kept]
        order = np.argsort(p)
        p, positive = p[order], y[order].astype(np.float64, copy=False)
        if weights is not None:
            weights = weights[order]
            positive = positive * weights
    new = np.ones(len(p), dtype=bool)
    np.not_equal(p[1:], p[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    if weights is None:
        weight = np.diff(starts, append=len(p)).astype(np.float64)
    else:
        weight = np.add.reduceat(weights, starts)
    return Groups(p[starts], weight, np.add.reduceat(positive, starts))


def as_table(probs: Float) -> Float:
    """Probabilities of each class (n, C), from either form.

    Examples
    --------
    >>> as_table(np.array([0.25])).tolist()
    [[0.75, 0.25]]
    """
    return probs if probs.ndim == 2 else np.column_stack([1.0 - probs, probs])


def of_two(probs: Float) -> Float:
    """The other way round: the second of two columns (n,), more classes as they are.

    Examples
    --------
    >>> of_two(np.array([[0.75, 0.25]])).tolist()
    [0.25]
    """
    if probs.ndim == 2 and probs.shape[1] == 2:
        return np.ascontiguousarray(probs[:, 1])
    return probs
