"""How well the classes are told apart, calibrated or not: AUC and accuracy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scalecal.checks import Float
from scalecal.metrics.arguments import Event, blocks, read_classes
from scalecal.metrics.ordering import group_by_p

__all__ = ["accuracy", "auc"]


def _auc(event: Event) -> float:
    groups = group_by_p(event)
    negative = groups.weight - groups.positive
    positives, negatives = float(groups.positive.sum()), float(negative.sum())
    if positives <= 0.0 or negatives <= 0.0:
        return float("nan")
    below = np.cumsum(negative)
    below -= 0.5 * negative  # all negatives under the value and half of those at it
    return float(groups.positive @ below / (positives * negatives))


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
    target, p, w = read_classes(y, probs, sample_weight)
    if p.ndim == 1:
        return _auc(Event(target, p, w))
    areas = np.array([_auc(Event(target[:, c], p[:, c], w)) for c in range(p.shape[1])])
    known = areas[~np.isnan(areas)]
    return float(known.mean()) if len(known) else float("nan")


def hits(target: Float, p: Float) -> Float:
    """Return the target's share of the predicted class; a tie at 0.5 goes to the positive class."""
    if p.ndim == 1:
        return np.where(p >= 0.5, target, 1.0 - target)
    return np.take_along_axis(target, p.argmax(axis=1)[:, None], axis=1)[:, 0]


def accuracy(y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Share of the cases whose most probable class is the label.

    Two classes: p >= 0.5 predicts the positive class. More: the largest of the row, the first
    where several are equal. Soft labels count by their share of the predicted class.

    Parameters
    ----------
    y : array of shape (n,), or (n, C) soft labels
    probs : array of shape (n,) or (n, C)
    sample_weight : array of shape (n,), optional

    Examples
    --------
    >>> accuracy([0, 1, 1, 1], [0.1, 0.4, 0.5, 0.9])
    0.75
    """
    target, p, w = read_classes(y, probs, sample_weight)
    total = 0.0
    for part in blocks(len(p)):
        right = hits(target[part], p[part])
        total += float(right.sum() if w is None else right @ w[part])
    return total / (len(p) if w is None else float(w.sum()))
