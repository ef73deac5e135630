"""Cases in the order of their probability, equal probabilities taken together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import Float
from scalecal.metrics.arguments import Event

__all__ = ["Groups", "group_by_p", "tie_starts"]


class Groups(NamedTuple):
    """Distinct probabilities in increasing order, with the mass and the positives at each."""

    p: Float
    weight: Float
    positive: Float


def tie_starts(ordered: NDArray[Any]) -> NDArray[np.intp]:
    """Return where each run of equal values begins.

    Examples
    --------
    >>> tie_starts(np.array([1.0, 1.0, 2.0]))
    array([0, 2])
    """
    new = np.empty(len(ordered), dtype=bool)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return np.flatnonzero(new)


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
    starts = tie_starts(p)
    if len(starts) == len(p):
        return Groups(p, np.ones(len(p)) if weights is None else weights, positive)
    if weights is None:
        weight = np.diff(starts, append=len(p)).astype(np.float64)
    else:
        weight = np.add.reduceat(weights, starts)
    return Groups(p[starts], weight, np.add.reduceat(positive, starts))
