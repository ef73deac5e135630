"""How close probabilities come to the labels: proper scores, discrimination and net benefit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, entr, logit

from scalecal.checks import Float, InputError, as_array, as_float
from scalecal.metrics.arguments import Sample, group_by_p, read_event, read_probs, read_sample

EPS = float(np.finfo(np.float64).eps)  # probabilities of 0 and 1 stand for this far inside


def logits(p: Float) -> Float:
    """Log-odds of probabilities, which are kept 2.2e-16 inside 0 and 1.

    Examples
    --------
    >>> logits(np.array([0.0, 0.5, 1.0])).round(2).tolist()
    [-36.04, 0.0, 36.04]
    """
    return np.asarray(logit(np.clip(p, EPS, 1.0 - EPS)))


# Terms: what a case adds to a metric.


def brier_term(sample: Sample) -> Float:
    """Squared distance to the label, summed over the classes of more than two."""
    square: Float = (sample.p - sample.y) ** 2
    if square.ndim == 1:
        return square
    return np.asarray(square.sum(axis=1))


def nll_term(sample: Sample) -> Float:
    """Negative log likelihood of the label."""
    y, p = sample.y, np.clip(sample.p, EPS, 1.0 - EPS)
    if p.ndim == 1:
        return np.asarray(-(y * np.log(p) + (1.0 - y) * np.log1p(-p)))
    return np.asarray(-(y * np.log(p)).sum(axis=1))


def entropy_term(sample: Sample) -> Float:
    """Entropy of the predicted distribution."""
    return np.asarray(entr(sample.table).sum(axis=1))


def gap_term(sample: Sample) -> Float:
    """Probability of the event less whether it happened."""
    return np.asarray(sample.event.p - sample.event.y)


def overconfidence_term(sample: Sample) -> Float:
    """Confidence in the prediction less whether it is right."""
    return np.asarray(sample.confidence - sample.right)


def accuracy_term(sample: Sample) -> Float:
    """Whether the prediction is right."""
    return sample.right


# Proper scores


def brier(y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Brier score: the mean squared distance between probability and label.

    Two classes: ``(p - y)^2`` of the positive class, between 0 and 1. More: summed over the
    classes, between 0 and 2 (as scikit-learn does). Soft labels are taken as the point to hit.

    Parameters
    ----------
    y : array of shape (n,), or (n, C) soft labels
    probs : array of shape (n,) or (n, C)
    sample_weight : array of shape (n,), optional

    References
    ----------
    Brier (1950), Monthly Weather Review.

    Examples
    --------
    >>> round(brier([0, 1], [0.2, 0.6]), 6)
    0.1
    """
    return read_sample(y, probs, sample_weight).mean(brier_term)


def nll(y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Negative log likelihood of the labels (cross-entropy for soft ones), in nats per case.

    Probabilities are kept 2.2e-16 away from 0 and 1, as in scikit-learn, so that a certain and
    wrong prediction costs about 36 and not infinity.

    Parameters as `brier`.

    Examples
    --------
    >>> round(nll([0, 1], [0.5, 0.5]), 6)
    0.693147
    """
    return read_sample(y, probs, sample_weight).mean(nll_term)


# Discrimination


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
    defined = areas[~np.isnan(areas)]
    return float("nan") if len(defined) == 0 else float(defined.mean())


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


def aurc(y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Area under the risk-coverage curve: the error rate averaged over all shares kept.

    The mean over k of the error rate among the k most confident cases; the confidence is the
    probability of the predicted class. Cases of equal confidence come in no particular order, so
    the mean over all their orders is taken.

    Parameters as `auc`.

    References
    ----------
    El-Yaniv, Wiener (2010), JMLR. Geifman, Uziel, El-Yaniv (2019), ICLR.

    Examples
    --------
    >>> round(aurc([0, 1, 0, 1], [0.1, 0.8, 0.7, 0.6]), 6)
    0.145833
    """
    return risk_area(read_sample(y, probs, sample_weight))


def risk_area(sample: Sample) -> float:
    """Area under the risk-coverage curve."""
    rising = group_by_p(Sample(1.0 - sample.right, sample.confidence, sample.weights))
    weight, errors = rising.weight[::-1], rising.positive[::-1]
    rate = errors / weight
    before, wrong = np.cumsum(weight) - weight, np.cumsum(errors) - errors
    # The j-th of a tie adds (wrong + j rate) / (before + j): summed over j, a difference of digammas.
    steps = np.where(
        weight == 1.0, 1.0 / (before + 1.0), digamma(before + weight + 1.0) - digamma(before + 1.0)
    )
    return float((rate * weight + (wrong - rate * before) * steps).sum() / weight.sum())


# Net benefit


def check_thresholds(thresholds: ArrayLike) -> Float:
    """Return thresholds (k,), or fail if one is not between 0 and 1."""
    t = np.atleast_1d(as_float(thresholds, "thresholds"))
    if t.ndim != 1 or len(t) == 0 or not (t > 0.0).all() or not (t < 1.0).all():
        raise InputError(f"thresholds must lie between 0 and 1, both left out, got {thresholds!r}")
    return t


def net_benefit(
    y: ArrayLike,
    probs: ArrayLike,
    thresholds: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> Float:
    r"""Net benefit of treating the cases whose probability is at least t, at each threshold t.

    Treating from a probability of t on implies that a needless treatment costs
    :math:`t / (1 - t)` times the gain of a needed one. Net benefit counts gains less such costs:

    .. math:: NB(t) = \frac{TP}{n} - \frac{FP}{n} \frac{t}{1 - t}

    Treating none has a net benefit of 0, treating all `treat_all`; a model is of use at t where it
    is above both.

    Parameters
    ----------
    y : array of shape (n,)
        Labels 0 / 1, or shares of the readers who voted for the positive class: then the benefit is that
        of a case as one reader, drawn at random, would settle it.
    probs : array of shape (n,), or (n, 2)
    thresholds : array of shape (k,)
        Between 0 and 1.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    array of shape (k,)

    References
    ----------
    Vickers, Elkin (2006), Medical Decision Making 26, 565-574.

    Examples
    --------
    >>> net_benefit([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9], [0.2, 0.5])
    array([0.4375, 0.    ])
    >>> treat_all([0, 0, 1, 1], [0.2, 0.5])
    array([0.375, 0.   ])
    """
    p, t = read_probs(probs), check_thresholds(thresholds)
    if p.shape[1:] not in ((), (2,)):
        raise InputError(
            f"net benefit is of one class against the rest, got probabilities of {p.shape[1]} classes: "
            "give (y == c) and probs[:, c] of the class c that is treated"
        )
    event = read_event(y, p, sample_weight)
    # One sort serves every threshold: the weight of the cases, and of the positives, from t upwards.
    by_p = group_by_p(event)
    first = np.searchsorted(by_p.p, t)
    cases, positives = (np.append(v[::-1].cumsum()[::-1], 0.0)[first] for v in by_p[1:])
    return np.asarray((positives - t * cases) / (1.0 - t) / event.total)


def treat_all(
    y: ArrayLike, thresholds: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> Float:
    """Net benefit of treating every case: ``(prevalence - t) / (1 - t)``. Parameters as `net_benefit`."""
    everyone = np.ones(len(np.atleast_1d(as_array(y, "y"))))
    return net_benefit(y, everyone, thresholds, sample_weight=sample_weight)
