"""Isotonic calibration and histogram binning: calibration curves of no fixed form."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit

from scalecal.calibrators.base import Calibrator, log_odds, one_against_rest
from scalecal.checks import Float, InputError, check_choice, check_positive_int


def _check_both(targets: Float, weights: Float | None, c: int) -> None:
    """Fail where all labels, or none, are of the class: the curve would be constant at 0 or 1."""
    seen = targets if weights is None else targets[weights > 0]
    if (seen == seen[0]).all() and seen[0] in (0.0, 1.0):
        lack = "no other class" if seen[0] == 1.0 else f"no case of class {c}"
        raise InputError(
            f"y has {lack} (n = {len(seen)}), so a free calibration curve would give {seen[0]:g} "
            "for every case. Give validation cases of every class, or take temperature scaling."
        )


def _merge_ties(z: Float, targets: Float, weights: Float | None) -> tuple[Float, Float, Float]:
    """Return the distinct logits ascending, their mean targets and their weights."""
    w = np.ones(len(z)) if weights is None else weights
    keep = w > 0
    points, place = np.unique(z[keep], return_inverse=True)
    mass = np.bincount(place, w[keep]).astype(np.float64)
    return points, np.bincount(place, w[keep] * targets[keep]) / mass, mass


def fit_isotonic(
    logits: Float, targets: Float, weights: Float | None = None
) -> tuple[Float, Float]:
    """Return the knots (logit, probability) of the isotonic curve, to be joined by straight lines.

    Least squares under monotonicity (pool adjacent violators), cases of one logit pooled first.

    Examples
    --------
    >>> fit_isotonic(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0, 1.0]))[1].tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    points, means, mass = _merge_ties(logits, targets, weights)
    curve = np.clip(isotonic_regression(means, weights=mass).x, 0.0, 1.0)
    # Inside a flat stretch only its two ends matter.
    kept = np.ones(len(curve), dtype=bool)
    kept[1:-1] = (curve[1:-1] != curve[:-2]) | (curve[1:-1] != curve[2:])
    return points[kept], curve[kept]


class _FreeCurve(Calibrator):
    """Two lists of arrays that describe the curve of the positive class, or of every class."""

    def _fit_curve(self, odds: Float, targets: Float, weights: Float | None) -> tuple[Float, Float]:
        raise NotImplementedError

    def _curve(self, c: int, odds: Float) -> Float:
        raise NotImplementedError

    def _fit(self, z: Float, targets: Float, weights: Float | None, *_: Any) -> None:
        classes = [(1, z, targets)]
        if z.ndim == 2:
            classes = [(c, log_odds(z, c), targets[:, c]) for c in range(z.shape[1])]
        curves = []
        for c, odds, share in classes:
            _check_both(share, weights, c)
            curves.append(self._fit_curve(odds, share, weights))
        for name, arrays in zip(self._fitted, zip(*curves, strict=True), strict=True):
            setattr(self, name, list(arrays))

    def _probs(self, z: Float, *_: Any) -> Float:
        return self._curve(0, z) if z.ndim == 1 else one_against_rest(z, self._curve)


class IsotonicCalibration(_FreeCurve):
    """Isotonic regression of the label on the logit (Zadrozny and Elkan, 2002).

    Linear between the knots and constant beyond them. It may give exactly 0 or 1. More than two
    classes: each against the rest, then renormalised. Labels of one class only are an error.

    Attributes
    ----------
    knots_ : list of array
        Logits of the knots: one array, or one for each class.
    values_ : list of array
        Probabilities there.

    Examples
    --------
    >>> calibrator = IsotonicCalibration().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    >>> calibrator.predict_proba([0.5, 1.7])[:, 1].tolist()
    [0.25, 0.5]
    """

    name = "isotonic"
    _fitted = ("knots_", "values_")
    knots_: list[Float]
    values_: list[Float]

    def _fit_curve(self, *cases: Any) -> tuple[Float, Float]:
        return fit_isotonic(*cases)

    def _curve(self, c: int, odds: Float) -> Float:
        return np.interp(odds, self.knots_[c], self.values_[c])


def fit_histogram(
    logits: Float,
    targets: Float,
    weights: Float | None = None,
    *,
    n_bins: int = 15,
    strategy: Literal["mass", "width"] = "mass",
) -> tuple[Float, Float]:
    """Return the inner edges (in logits) and the mean target of each bin.

    A bin is closed on the left. "mass" bins hold the same number of cases, as far as ties allow;
    "width" bins are equally wide in probability, and one without cases gets its middle.

    Examples
    --------
    >>> edges, values = fit_histogram(np.array([-2.0, -1, 1, 2]), np.array([0.0, 0, 1, 1]), n_bins=2)
    >>> values.tolist()
    [0.0, 1.0]
    """
    n_bins = check_positive_int(n_bins, "n_bins")
    check_choice(strategy, ("mass", "width"), "strategy")
    inner = np.arange(1, n_bins) / n_bins
    if strategy == "width":
        edges = logit(inner)
    else:
        points, _, mass = _merge_ties(logits, targets, weights)
        below = np.cumsum(mass) / mass.sum()
        # The first logit with more than the bin's share below it starts the bin.
        start = np.searchsorted(below, inner - 1e-12, side="left") + 1
        edges = points[np.unique(start[start < len(points)])]
    place = np.searchsorted(edges, logits, side="right")
    w = np.ones(len(logits)) if weights is None else weights
    size = np.bincount(place, w, len(edges) + 1)
    ends = np.concatenate([[0.0], expit(edges), [1.0]])
    middle = 0.5 * (ends[1:] + ends[:-1])
    total = np.bincount(place, w * targets, len(edges) + 1)
    return np.asarray(edges), np.divide(total, size, out=middle, where=size > 0.0)


class HistogramBinning(_FreeCurve):
    """Histogram binning (Zadrozny and Elkan, 2001): each bin gets its mean label.

    Not monotone, and coarse. More than two classes: each against the rest, then renormalised.
    Labels of one class only are an error.

    Parameters
    ----------
    n_bins : int
    strategy : {"mass", "width"}
        Bins of equal numbers of cases, or equally wide in probability.

    Attributes
    ----------
    edges_ : list of array
        Inner edges in logits: one array, or one for each class.
    values_ : list of array
        The bins' probabilities.

    Examples
    --------
    >>> calibrator = HistogramBinning(n_bins=2).fit([-2.0, -1.0, 1.0, 2.0], [0, 1, 1, 1])
    >>> calibrator.predict_proba([-9.0, 9.0])[:, 1].tolist()
    [0.5, 1.0]
    """

    name = "histogram"
    _fitted = ("edges_", "values_")
    edges_: list[Float]
    values_: list[Float]

    def __init__(self, n_bins: int = 15, strategy: Literal["mass", "width"] = "mass") -> None:
        self.n_bins = n_bins
        self.strategy = strategy

    def _fit_curve(self, *cases: Any) -> tuple[Float, Float]:
        return fit_histogram(*cases, n_bins=self.n_bins, strategy=self.strategy)

    def _curve(self, c: int, odds: Float) -> Float:
        return np.asarray(self.values_[c][np.searchsorted(self.edges_[c], odds, side="right")])
