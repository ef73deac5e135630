"""Isotonic calibration, Venn-Abers and histogram binning: calibration curves of no fixed form."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit

from scalecal.calibrators.base import OneAgainstRest, one_form
from scalecal.checks import Float, check_choice
from scalecal.limits import check_count
from scalecal.panel import log_odds


def merge_ties(z: Float, targets: Float, weights: Float) -> tuple[Float, Float, Float]:
    """Return the distinct logits ascending, their mean targets and their weights."""
    used = weights > 0
    z, targets, weights = z[used], targets[used], weights[used]
    points, place = np.unique(z, return_inverse=True)
    mass = np.bincount(place, weights).astype(np.float64)
    return points, np.bincount(place, weights * targets) / mass, mass


def fit_isotonic(logits: Float, targets: Float, weights: Float) -> tuple[Float, Float]:
    """Return the knots (logit, probability) of the isotonic curve, to be joined by straight lines.

    Least squares under monotonicity (pool adjacent violators), cases of one logit pooled first.

    Examples
    --------
    >>> z, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> fit_isotonic(z, y, np.ones(4))[1].tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    points, means, mass = merge_ties(logits, targets, weights)
    curve = np.clip(isotonic_regression(means, weights=mass).x, 0.0, 1.0)
    # Inside a flat stretch only its two ends matter.
    kept = np.ones(len(curve), dtype=bool)
    kept[1:-1] = (curve[1:-1] != curve[:-2]) | (curve[1:-1] != curve[2:])
    return points[kept], curve[kept]


class IsotonicCalibration(OneAgainstRest):
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
    _needs_both = True
    knots_: list[Float]
    values_: list[Float]

    def _fit_curve(self, odds: Float, targets: Float, weights: Float) -> tuple[Float, Float]:
        return fit_isotonic(odds, targets, weights)

    def _curve(self, c: int, odds: Float) -> Float:
        return np.interp(odds, self.knots_[c], self.values_[c])


def fit_venn_abers(
    logits: Float, targets: Float, weights: Float
) -> tuple[Float, Float, Float, Float]:
    """Return the two step functions of the inductive Venn-Abers predictor, p0 and p1.

    p1(z) is the isotonic regression at z of the cases and one more, (z, 1); p0(z) with (z, 0)
    (Vovk, Petej and Fedorova, 2015, who tabulate them by walking along the hull of the cumulative sums;
    here every step is found at once by bisection on it).

    Returns
    -------
    low_knots, low_values, high_knots, high_values : array
        p0 is ``low_values[number of low_knots <= z]``, p1 ``high_values[number of high_knots < z]``.

    Examples
    --------
    >>> z, y = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    >>> low_knots, low, high_knots, high = fit_venn_abers(z, y, np.ones(2))
    >>> low_knots.tolist(), low.tolist()
    ([1.0], [0.0, 0.5])
    >>> high_knots.tolist(), high.tolist()
    ([0.0], [0.5, 1.0])
    """
    points, means, mass = merge_ties(logits, targets, weights)
    high = _with_one_more(means, mass)
    # A case of label 0 is a case of label 1 in the mirror.
    low = 1.0 - _with_one_more(1.0 - means[::-1], mass[::-1])[::-1]
    up, down = np.diff(high) > 0.0, np.diff(low) > 0.0
    return (
        points[down],
        low[np.append(True, down)],
        points[up],
        high[np.append(True, up)],
    )


def _with_one_more(means: Float, mass: Float) -> Float:
    """Return the isotonic regression at each of k points, one case of label 1 added there; then 1.

    With P_j the cumulative sums (mass, sum of labels) it is the largest slope, among a before the
    point, of the least slope from P_a to P_b + (1, 1) among b from the point on. That slope is at least
    the one without the added case, so that b is a corner of the greatest convex minorant, and
    whether b lies behind the point or only behind a makes no difference.
    """
    x, y = np.append(0.0, np.cumsum(mass)), np.append(0.0, np.cumsum(mass * means))
    blocks = isotonic_regression(means, weights=mass).blocks
    corner_x, corner_y = x[blocks[1:]] + 1.0, y[blocks[1:]] + 1.0
    edge = np.append(np.diff(corner_y) / np.diff(corner_x), np.inf)
    x, y = x[:-1], y[:-1]
    first = np.searchsorted(blocks, np.arange(len(x)), side="right") - 1
    last = np.full(len(x), len(corner_x) - 1)
    # The slope to a corner falls along the hull until the next edge is steeper.
    while (first < last).any():
        middle = (first + last) // 2
        steeper = edge[middle] * (corner_x[middle] - x) >= corner_y[middle] - y
        first, last = (
            np.where(steeper, first, np.minimum(middle + 1, last)),
            np.where(steeper, middle, last),
        )
    slope = (corner_y[first] - y) / (corner_x[first] - x)
    return np.append(np.minimum(np.maximum.accumulate(slope), 1.0), 1.0)


class VennAbers(OneAgainstRest):
    """Inductive Venn-Abers predictor (Vovk, Petej and Fedorova, 2015): isotonic, with an interval.

    Two isotonic regressions, with the new case as one more of label 0 and of label 1, give p0 <= p1;
    one of them is calibrated whatever the data, and the answer is p1 / (1 - p0 + p1), which is never 0
    or 1. More than two classes: each against the rest, then renormalised. A new case counts as one of
    weight 1.

    Attributes
    ----------
    low_knots_, low_values_, high_knots_, high_values_ : list of array
        The steps of p0 and p1 (see `fit_venn_abers`): one array, or one for each class.

    Examples
    --------
    >>> calibrator = VennAbers().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    >>> calibrator.predict_interval([1.5]).round(3).tolist()
    [[0.333, 0.667]]
    >>> calibrator.predict_proba([1.5])[:, 1].tolist()
    [0.5]
    """

    name = "venn-abers"
    _fitted = ("low_knots_", "low_values_", "high_knots_", "high_values_")
    low_knots_: list[Float]
    low_values_: list[Float]
    high_knots_: list[Float]
    high_values_: list[Float]

    def predict_interval(self, logits: ArrayLike) -> Float:
        """Return p0 and p1: (n, 2) of the positive class, or (n, C, 2) of each against the rest."""
        z = one_form(self._check(logits))
        if z.ndim == 1:
            return self._interval(0, z)
        return np.stack([self._interval(c, log_odds(z, c)) for c in range(z.shape[1])], axis=1)

    def _fit_curve(self, odds: Float, targets: Float, weights: Float) -> tuple[Float, ...]:
        return fit_venn_abers(odds, targets, weights)

    def _interval(self, c: int, odds: Float) -> Float:
        low = self.low_values_[c][np.searchsorted(self.low_knots_[c], odds, side="right")]
        high = self.high_values_[c][np.searchsorted(self.high_knots_[c], odds, side="left")]
        return np.column_stack([low, high])

    def _curve(self, c: int, odds: Float) -> Float:
        low, high = self._interval(c, odds).T
        return np.asarray(high / (1.0 - low + high))


def fit_histogram(
    logits: Float,
    targets: Float,
    weights: Float,
    *,
    n_bins: int = 15,
    strategy: Literal["mass", "width"] = "mass",
) -> tuple[Float, Float]:
    """Return the inner edges (in logits) and the mean target of each bin.

    A bin is closed on the left. "mass" bins hold the same number of cases, as far as ties allow;
    "width" bins are equally wide in probability, and one without cases gets its middle.

    Examples
    --------
    >>> z, y = np.array([-2.0, -1, 1, 2]), np.array([0.0, 0, 1, 1])
    >>> fit_histogram(z, y, np.ones(4), n_bins=2)[1].tolist()
    [0.0, 1.0]
    """
    n_bins = check_count(n_bins, "n_bins", "bins")
    check_choice(strategy, ("mass", "width"), "strategy")
    inner = np.arange(1, n_bins) / n_bins
    if strategy == "width":
        edges = logit(inner)
    else:
        points, _, mass = merge_ties(logits, targets, weights)
        below = np.cumsum(mass) / mass.sum()
        # The first logit with more than the bin's share below it starts the bin.
        start = np.searchsorted(below, inner - 1e-12, side="left") + 1
        edges = points[np.unique(start[start < len(points)])]
    place = np.searchsorted(edges, logits, side="right")
    size = np.bincount(place, weights, len(edges) + 1)
    ends = np.concatenate([[0.0], expit(edges), [1.0]])
    middle = 0.5 * (ends[1:] + ends[:-1])
    total = np.bincount(place, weights * targets, len(edges) + 1)
    return np.asarray(edges), np.divide(total, size, out=middle, where=size > 0.0)


class HistogramBinning(OneAgainstRest):
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
    _needs_both = True
    edges_: list[Float]
    values_: list[Float]

    def __init__(self, n_bins: int = 15, strategy: Literal["mass", "width"] = "mass") -> None:
        self.n_bins = n_bins
        self.strategy = strategy

    def _fit_curve(self, odds: Float, targets: Float, weights: Float) -> tuple[Float, Float]:
        return fit_histogram(odds, targets, weights, n_bins=self.n_bins, strategy=self.strategy)

    def _curve(self, c: int, odds: Float) -> Float:
        return np.asarray(self.values_[c][np.searchsorted(self.edges_[c], odds, side="right")])
