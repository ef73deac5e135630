"""Selective prediction: what is the error rate if the least confident cases are set aside?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scalecal.checks import Float
from scalecal.metrics.arguments import Event, read_classes
from scalecal.metrics.discrimination import hits
from scalecal.metrics.ordering import Groups, group_by_p, tie_starts

__all__ = ["RiskCoverage", "aurc", "risk_coverage"]


class RiskCoverage(NamedTuple):
    """Share of cases kept, and the error rate among them, for each threshold, strictest first."""

    coverage: Float
    risk: Float
    confidence: Float


def _errors(y: ArrayLike, probs: ArrayLike, sample_weight: ArrayLike | None) -> Event:
    """Return each case's error and confidence, as an event of that "probability"."""
    target, p, w = read_classes(y, probs, sample_weight)
    error = 1.0 - hits(target, p)
    return Event(error, np.maximum(p, 1.0 - p) if p.ndim == 1 else p.max(axis=1), w)


def _from_the_top(groups: Groups) -> Groups:
    return Groups(groups.p[::-1], groups.weight[::-1], groups.positive[::-1])


def risk_coverage(
    y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> RiskCoverage:
    """Error rate among the most confident cases, as a function of the share kept.

    The confidence is the probability of the predicted class. One point per distinct confidence.

    Parameters
    ----------
    y : array of shape (n,), or (n, C) soft labels
    probs : array of shape (n,) or (n, C)
    sample_weight : array of shape (n,), optional

    References
    ----------
    El-Yaniv, Wiener (2010), JMLR. Geifman, El-Yaniv (2017), NeurIPS.

    Examples
    --------
    >>> curve = risk_coverage([0, 1, 0, 1], [0.1, 0.8, 0.7, 0.6])
    >>> curve.coverage, curve.risk.round(3)
    (array([0.25, 0.5 , 0.75, 1.  ]), array([0.   , 0.   , 0.333, 0.25 ]))
    """
    groups = _from_the_top(group_by_p(_errors(y, probs, sample_weight)))
    kept = np.cumsum(groups.weight)
    return RiskCoverage(kept / kept[-1], np.cumsum(groups.positive) / kept, groups.p)


def aurc(y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Area under the risk-coverage curve: the error rate averaged over all shares kept.

    The mean over k of the error rate among the k most confident cases. Cases of equal confidence
    come in no particular order, so the mean over all their orders is taken.

    Parameters as `risk_coverage`; with sample_weight each case's point on the curve counts by its weight.

    References
    ----------
    Geifman, Uziel, El-Yaniv (2019), ICLR.

    Examples
    --------
    >>> round(aurc([0, 1, 0, 1], [0.1, 0.8, 0.7, 0.6]), 6)
    0.145833
    """
    event = _errors(y, probs, sample_weight)
    groups = _from_the_top(group_by_p(event))
    rate = groups.positive / groups.weight
    if event.weights is None:
        # The mean over all orders of equal cases: each of them carries their common error rate.
        rate = np.repeat(rate, groups.weight.astype(np.intp))
        return float((np.cumsum(rate) / np.arange(1, len(rate) + 1)).mean())
    kept = event.weights > 0
    w, confidence = event.weights[kept], event.p[kept]
    order = np.lexsort((w, -confidence))  # by weight inside a tie, so that row order is no matter
    w = w[order]
    rate = np.repeat(rate, np.diff(tie_starts(confidence[order]), append=len(w)))
    mass = np.cumsum(w)
    return float(w @ (np.cumsum(w * rate) / mass) / mass[-1])
