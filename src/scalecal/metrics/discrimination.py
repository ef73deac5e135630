"""Discrimination and selective prediction: AUC, accuracy, and the error rate as cases are set aside."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scalecal.checks import Float
from scalecal.metrics.arguments import Groups, Sample, group_by_p, read_sample


def _area(event: Sample) -> float:
    groups = group_by_p(event)
    negative = groups.weight - groups.positive
    positives, negatives = float(groups.positive.sum()), float(negative.sum())
    if positives <= 0.0 or negatives <= 0.0:
        return float("nan")
    below = np.cumsum(negative)
    below -= 0.5 * negative  # all negatives under the value and half of those at it
    return float(groups.positive @ below / (positives * negatives))


def area(sample: Sample) -> float:
    """Area under the ROC curve; of more than two classes the mean over them."""
    if sample.p.ndim == 1:
        return _area(sample)
    classes = range(sample.p.shape[1])
    areas = np.array([_area(replace(sample, y=sample.y[:, c], p=sample.p[:, c])) for c in classes])
    known = areas[~np.isnan(areas)]
    if len(known) == 0:
        return float("nan")
    return float(known.mean())


def placements(sample: Sample) -> Float:
    """Pseudo-values of AUC: their mean is AUC, their weighted mean its first-order change.

    From the placements of DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44: the share of the
    other class below each case, ties counted half.
    """
    p, w = sample.p, sample.weights
    if w is None:
        w = np.ones(len(p))
    positive = sample.y == 1
    up, down = w * positive, w * ~positive
    n1, n0 = float(up.sum()), float(down.sum())
    if n1 == 0 or n0 == 0:
        return np.full(len(p), np.nan)
    value, row = np.unique(p, return_inverse=True)
    ups, downs = np.bincount(row, up, len(value)), np.bincount(row, down, len(value))
    above = (np.cumsum(downs) - 0.5 * downs) / n0
    beneath = 1.0 - (np.cumsum(ups) - 0.5 * ups) / n1
    whole = float(ups @ above / n1)
    n = n1 + n0
    of_positive, of_negative = (above[row] - whole) * n / n1, (beneath[row] - whole) * n / n0
    return np.where(positive, of_positive, of_negative) + whole


def auc(y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Area under the ROC curve: the chance that a positive case ranks above a negative one.

    Ties count half. For more than two classes the mean over the classes of each against the rest;
    a class without cases, or with all of them, is left out. NaN where only one class is present,
    since there is no pair to rank. A soft label counts as both, by its shares.

    Parameters
    ----------
    y : array of shape (n,), or (n, C) soft labels
    probs : array of shape (n,) or (n, C)
    sample_weight : array of shape (n,), optional

    Examples
    --------
    >>> auc([0, 1, 0, 1], [0.1, 0.2, 0.2, 0.8])
    0.875
    >>> auc([1, 1], [0.3, 0.4])
    nan
    """
    return area(read_sample(y, probs, sample_weight))


def accuracy_term(sample: Sample) -> Float:
    """Whether the prediction is right."""
    return sample.right


def accuracy(y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Share of the cases whose most probable class is the label.

    Two classes: p >= 0.5 predicts the positive class. More: the largest of the row, the first
    where several are equal. Soft labels count by their share of the predicted class.

    Parameters as `auc`.

    Examples
    --------
    >>> accuracy([0, 1, 1, 1], [0.1, 0.4, 0.5, 0.9])
    0.75
    """
    return read_sample(y, probs, sample_weight).mean(accuracy_term)


class RiskCoverage(NamedTuple):
    """Share of cases kept, and the error rate among them, for each threshold, strictest first."""

    coverage: Float
    risk: Float
    confidence: Float


def _errors_by_confidence(sample: Sample) -> Groups:
    """Return cases and errors at each confidence, highest first."""
    groups = group_by_p(Sample(1.0 - sample.right, _larger(sample), sample.weights))
    return Groups(*(values[::-1] for values in groups))


def _larger(sample: Sample) -> Float:
    if sample.p.ndim == 1:
        return np.maximum(sample.p, 1.0 - sample.p)
    return np.asarray(sample.p.max(axis=1))


def risk_coverage(
    y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> RiskCoverage:
    """Error rate among the most confident cases, as a function of the share kept.

    The confidence is the probability of the predicted class. One point per distinct confidence.

    Parameters as `auc`.

    References
    ----------
    El-Yaniv, Wiener (2010), JMLR. Geifman, El-Yaniv (2017), NeurIPS.

    Examples
    --------
    >>> curve = risk_coverage([0, 1, 0, 1], [0.1, 0.8, 0.7, 0.6])
    >>> curve.coverage, curve.risk.round(3)
    (array([0.25, 0.5 , 0.75, 1.  ]), array([0.   , 0.   , 0.333, 0.25 ]))
    """
    confidence, weight, errors = _errors_by_confidence(read_sample(y, probs, sample_weight))
    kept = np.cumsum(weight)
    return RiskCoverage(kept / kept[-1], np.cumsum(errors) / kept, confidence)


def aurc(y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Area under the risk-coverage curve: the error rate averaged over all shares kept.

    The mean over k of the error rate among the k most confident cases. Cases of equal confidence
    come in no particular order, so the mean over all their orders is taken.

    Parameters as `auc`.

    References
    ----------
    Geifman, Uziel, El-Yaniv (2019), ICLR.

    Examples
    --------
    >>> round(aurc([0, 1, 0, 1], [0.1, 0.8, 0.7, 0.6]), 6)
    0.145833
    """
    return risk_area(read_sample(y, probs, sample_weight))


def risk_area(sample: Sample) -> float:
    """Area under the risk-coverage curve."""
    from scipy.special import digamma

    _, weight, errors = _errors_by_confidence(sample)
    rate = errors / weight
    before, wrong = np.cumsum(weight) - weight, np.cumsum(errors) - errors
    # The j-th of a tie adds (wrong + j rate) / (before + j): summed over j, a difference of digammas.
    steps = np.where(
        weight == 1.0, 1.0 / (before + 1.0), digamma(before + weight + 1.0) - digamma(before + 1.0)
    )
    return float((rate * weight + (wrong - rate * before) * steps).sum() / weight.sum())
