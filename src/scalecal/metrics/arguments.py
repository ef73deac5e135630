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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import (
    Float,
    InputError,
    Int,
    as_array,
    check_counts,
    check_labels,
    check_probs,
    check_same_length,
    check_targets,
    check_weights,
    rows,
)

BLOCK = 1 << 16  # cases handled at once: small enough that a block's arrays stay in the cache


Terms = Callable[[NDArray[Any], Float], Sequence[Float]]
"""What the cases of a block add to some sums: a function of their y and p."""


class Event(NamedTuple):
    """One event per case: whether (or how far) it happened, its probability, the case's weight.

    `read_classes` makes one of all classes: `y` and `p` are then (n, C).
    """

    y: NDArray[Any]  # numeric, in [0, 1], dtype as the caller gave it
    p: Float
    weights: Float | None

    @property
    def total(self) -> float:
        """The sum of the weights, or the number of cases."""
        return float(len(self.p)) if self.weights is None else float(self.weights.sum())

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

    def mean(self, term: Callable[[NDArray[Any], Float], Float]) -> float:
        """Return the weighted mean of a term over the cases."""
        return float(self.sums(lambda y, p: [term(y, p)])[0] / self.total)


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


def read_weights(sample_weight: ArrayLike | None, n: int) -> Float | None:
    """Return the weights of n cases, or None."""
    return check_weights(sample_weight, n, "sample_weight")


def read_counts(sample_weight: ArrayLike | None, n: int) -> Float | None:
    """Return weights that must be whole numbers, as float64, or None."""
    weights = read_weights(sample_weight, n)
    if weights is not None and (weights != np.floor(weights)).any():
        broken = weights != np.floor(weights)
        raise InputError(
            f"sample_weight must count cases here, got {weights[broken][0]:g} at {rows(broken)}"
        )
    return weights


def event_probs(probs: ArrayLike) -> Float:
    """Return each case's probability of its event (see the module's text)."""
    p = read_probs(probs)
    if p.ndim == 1:
        return p
    return p[:, 1] if p.shape[1] == 2 else p.max(axis=1)


def read_event(y: ArrayLike, probs: ArrayLike, sample_weight: ArrayLike | None = None) -> Event:
    """Return the event of each case, its probability and its weight.

    Soft labels give the share of the event: of the positive class, or of the top label.

    Examples
    --------
    >>> read_event([2, 0], [[0.1, 0.3, 0.6], [0.2, 0.5, 0.3]])
    Event(y=array([1., 0.]), p=array([0.6, 0.5]), weights=None)
    """
    p = read_probs(probs)
    raw = as_array(y, "y")
    event: NDArray[Any]
    if p.ndim == 2 and p.shape[1] > 2:
        top = p.argmax(axis=1)
        if raw.ndim == 2:
            soft = check_targets(raw, p.shape[1])
            check_same_length(y=soft, probs=p)
            event = np.take_along_axis(soft, top[:, None], axis=1)[:, 0]
        else:
            labels = check_labels(raw, p.shape[1])
            check_same_length(y=labels, probs=p)
            event = (labels == top).astype(np.float64)
        p = np.take_along_axis(p, top[:, None], axis=1)[:, 0]
    else:
        good = raw.ndim == 1 and len(raw) > 0 and _plainly_in_unit(raw)
        event = raw if good else check_targets(raw, 2)
        if event.dtype.kind == "b":  # so that arithmetic is arithmetic
            event = event.view(np.uint8)
        if p.ndim == 2:
            p = p[:, 1]
        check_same_length(y=event, probs=p)
    return Event(event, p, read_weights(sample_weight, len(p)))


def read_hard_event(
    y: ArrayLike, probs: ArrayLike, sample_weight: ArrayLike | None = None
) -> Event:
    """Return the event of each case, and fail on soft labels."""
    event = read_event(y, probs, sample_weight)
    for part in blocks(len(event.p)):
        soft = (event.y[part] != 0) & (event.y[part] != 1)
        if soft.any():
            raise InputError(
                f"y must be hard labels here, got {event.y[part][soft][0]:g} at "
                f"{rows(np.concatenate([np.zeros(part.start, bool), soft]))}. A test of calibration "
                "needs what happened, not a share of it."
            )
    return event


def read_classes(y: ArrayLike, probs: ArrayLike, sample_weight: ArrayLike | None = None) -> Event:
    """Return the event of two classes, or targets and probabilities (n, C) of more."""
    p = read_probs(probs)
    if p.ndim == 1 or p.shape[1] == 2:
        event = read_event(y, p, sample_weight)
        return event._replace(y=event.y.astype(np.float64, copy=False))
    target = check_targets(y, p.shape[1])
    check_same_length(y=target, probs=p)
    return Event(target, p, read_weights(sample_weight, len(p)))


def read_votes(votes: ArrayLike, n_raters: ArrayLike | None, probs: ArrayLike) -> tuple[Int, Float]:
    """Return counts (n, C) and probabilities, (n,) or (n, C), of the same cases and classes."""
    counts, p = check_counts(votes, n_raters), read_probs(probs)
    check_same_length(votes=counts, probs=p)
    check_same_classes(counts, p)
    return counts, p


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


def group_by_p(event: Event) -> Groups:
    """Sort the cases by probability and add up those with the same one; weightless cases go."""
    y, p, weights = event
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
    if len(starts) == len(p):
        return Groups(p, np.ones(len(p)) if weights is None else weights, positive)
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
    return np.column_stack([1.0 - probs, probs]) if probs.ndim == 1 else probs
