"""Proper scores, Brier and negative log likelihood, and what they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from scalecal.checks import Float, check_choice
from scalecal.metrics.arguments import Sample, Term, group_by_p, read_event, read_sample

Score = Literal["brier", "log"]

EPS = float(np.finfo(np.float64).eps)  # probabilities of 0 and 1 stand for this far inside


@dataclass(frozen=True)
class Corp:
    """A score as miscalibration less discrimination plus uncertainty.

    Attributes
    ----------
    score : float
        The score itself, ``mcb - dsc + unc``.
    mcb : float
        What recalibrating would save; 0 is best.
    dsc : float
        What ranking the cases saves against giving every one the same probability; more is better.
    unc : float
        The score of the prevalence; the data's own.
    """

    score: float
    mcb: float
    dsc: float
    unc: float


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


_TERMS: dict[str, Term] = {"brier": brier_term, "log": nll_term}


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


def corp(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    score: Score = "brier",
    sample_weight: ArrayLike | None = None,
) -> Corp:
    """Split a score into miscalibration, discrimination and uncertainty (CORP).

    ``MCB = S(p) - S(iso)``, ``DSC = S(mean y) - S(iso)`` and ``UNC = S(mean y)``, where iso is the
    isotonic regression of the labels on p. There is no choice of bins. For more than two classes
    it is the score of the event "the top label is right".

    Parameters
    ----------
    score : {"brier", "log"}
    y, probs, sample_weight
        As `brier`.

    References
    ----------
    Dimitriadis, Gneiting, Jordan (2021), PNAS.

    Examples
    --------
    >>> parts = corp([0, 1, 0, 1], [0.1, 0.2, 0.7, 0.8])
    >>> round(parts.mcb, 6), round(parts.dsc, 6), round(parts.unc, 6)
    (0.17, 0.125, 0.25)
    """
    from scipy.optimize import isotonic_regression

    check_choice(score, _TERMS, "score")
    event = read_event(y, probs, sample_weight)
    whole = event.mean(_TERMS[score])
    groups = group_by_p(event)
    fit = isotonic_regression(groups.positive / groups.weight, weights=groups.weight)
    # Each block of the fit has the mean label of its cases, so its score needs only the mass and
    # the positives: the labels, put back in order, would cost another array of length n.
    begins, iso = fit.blocks[:-1], fit.x[fit.blocks[:-1]]
    mass = np.add.reduceat(groups.weight, begins)
    positive = np.add.reduceat(groups.positive, begins)
    iso = np.clip(iso, 0.0, 1.0)
    prevalence = np.array([positive.sum() / mass.sum()])
    best = _pooled(score, event, mass, positive, iso)
    base = _pooled(score, event, mass.sum(keepdims=True), positive.sum(keepdims=True), prevalence)
    return Corp(whole, whole - best, base - best, base)


def _pooled(score: Score, event: Sample, mass: Float, positive: Float, q: Float) -> float:
    """Mean score of giving q to all cases of a pool, from the pools' mass and positives alone."""
    if score == "log":
        return float(mass @ nll_term(Sample(positive / mass, q)) / mass.sum())
    # (q - y)^2 summed = q^2 mass - 2 q positive + sum of y^2, and the last is the labels' own.
    squares = event.mean(lambda s: s.y.astype(np.float64, copy=False) ** 2)
    return float(q @ (q * mass - 2.0 * positive) / mass.sum()) + squares
