"""Anchors: the embeddings of each class that stand for it, chosen by a first probe's logits."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from scalecal.checks import (
    InputError,
    ScalecalWarning,
    as_rng,
    check_choice,
    check_labels,
    check_logits,
    check_positive_int,
    check_same_length,
)

__all__ = ["ANCHORS", "select_anchors", "share_or_count"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Seed = int | np.random.Generator | None

ANCHORS: dict[str, str] = {
    "confident": "the most confident of the class among those predicted right",
    "class": "the most confident of the class, right or wrong",
    "prediction": "the highest predicted probabilities of the class, whatever the label",
    "random": "drawn at random from the class",
}
"""Ways to choose anchors, and what each means."""


def _class_logits(logits: ArrayLike) -> Float:
    """Return the (n, C) log-odds of every class: what anchors are ranked by.

    Log-odds order cases as probabilities do, but do not tie when those round to one.
    """
    z = check_logits(logits)
    if z.ndim == 1:
        return np.column_stack([-z, z])
    rest = [logsumexp(np.delete(z, c, axis=1), axis=1) for c in range(z.shape[1])]
    return np.asarray(z - np.column_stack(rest))


def share_or_count(value: int | float, whole: int, name: str, most: float = np.inf) -> int:
    """Return a count from an int (a count) or a float (a share of `whole`, at least one)."""
    if isinstance(value, float | np.floating):
        if not (np.isfinite(value) and 0.0 < value <= most):
            limit = "" if np.isinf(most) else f" and at most {most:g}"
            raise InputError(f"{name} as a share must be above 0{limit}, got {value!r}")
        return max(1, round(float(value) * whole))
    return check_positive_int(value, name)


def select_anchors(
    y: ArrayLike,
    logits: ArrayLike,
    *,
    n_anchors: int | float = 10,
    anchors: Literal["confident", "class", "prediction", "random"] = "confident",
    random_state: Seed = None,
) -> dict[int, Int]:
    """Choose the anchors of every class.

    Parameters
    ----------
    y : array of int (n,)
        Labels.
    logits : array (n,) or (n, C)
        A first probe's logits of the same cases.
    n_anchors : int or float
        Anchors per class: a count, or a share of the cases with the class's label.
    anchors : str
        A name in `ANCHORS`.
    random_state : int, Generator or None
        For ``anchors="random"``.

    Returns
    -------
    dict
        Class number to row numbers, most confident first; ties go to the earlier row.

    Warns
    -----
    ScalecalWarning
        Fewer candidates than asked for: all of them are used.

    Examples
    --------
    >>> select_anchors([0, 0, 1, 1], [-2.0, 0.5, 1.0, 3.0], n_anchors=1)
    {0: array([0]), 1: array([3])}
    """
    check_choice(anchors, ANCHORS, "anchors")
    confidence = _class_logits(logits)
    n_classes = confidence.shape[1]
    labels = check_labels(y, n_classes)
    check_same_length(y=labels, logits=confidence)
    rng = as_rng(random_state)
    predicted = confidence.argmax(axis=1)
    chosen: dict[int, Int] = {}
    for c in range(n_classes):
        of_class = labels == c
        if anchors == "prediction":
            candidates = np.arange(len(labels))
        else:
            candidates = np.flatnonzero(
                of_class & (predicted == c) if anchors == "confident" else of_class
            )
        if len(candidates) == 0:
            hint = (
                "The first probe may not have learnt: look at it, or take anchors='class'."
                if of_class.any()
                else f"There are no cases of class {c}: check the labels or the split."
            )
            raise InputError(f"no anchor for class {c} with anchors={anchors!r}. {hint}")
        wanted = share_or_count(n_anchors, int(of_class.sum()), "n_anchors", most=1.0)
        # A share means as many of them as there are; only a count can be missed.
        if len(candidates) < wanted and not isinstance(n_anchors, float):
            warnings.warn(
                f"class {c} has {len(candidates)} candidate anchors where {wanted} were asked for: "
                "all are used",
                ScalecalWarning,
                stacklevel=2,
            )
        if anchors == "random" and len(candidates) > wanted:
            candidates = np.sort(rng.choice(candidates, wanted, replace=False))
        order = np.argsort(-confidence[candidates, c], kind="stable")
        chosen[c] = candidates[order][:wanted]
    return chosen
