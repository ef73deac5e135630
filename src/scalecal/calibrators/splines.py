"""Increasing splines of the logit: quadratic scaling and the smoothing spline.

Both are a curve whose slope is linear between knots and constant beyond them:

    f(z) = c + sum_j s_j A_j(z),  A_j' = the hat function of knot j,  A_j(first knot) = 0

so that it is increasing wherever every slope s_j is at least zero, smooth (its slope has no jumps),
a straight line where all slopes are the same, and a line beyond the outer knots.
"""

from __future__ import annotations

import numpy as np

from scalecal.calibrators.base import OneAgainstRest
from scalecal.calibrators.free import merge_ties
from scalecal.calibrators.logistic import fit_increasing, prior_targets
from scalecal.checks import Float
from scalecal.limits import check_count

# Smoothing parameters that are tried; at the last the curve is a line.
_PENALTIES = 10.0 ** np.arange(4, -5, -1)


def slope_features(z: Float, knots: Float) -> Float:
    """Return A_1(z), ..., A_K(z), 1: what the slopes and the value at the first knot multiply.

    Examples
    --------
    >>> slope_features(np.array([-2.0, 0.0, 1.0, 4.0]), np.array([0.0, 2.0])).tolist()
    [[-2.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.75, 0.25, 1.0], [1.0, 3.0, 1.0]]
    """
    out = np.zeros((len(z), len(knots) + 1))
    out[:, 0] += np.minimum(z - knots[0], 0.0)
    out[:, -2] += np.maximum(z - knots[-1], 0.0)
    out[:, -1] = 1.0
    for j, width in enumerate(np.diff(knots)):
        t = np.clip(z - knots[j], 0.0, width)
        rising = 0.5 * t * (t / width)
        out[:, j] += t - rising
        out[:, j + 1] += rising
    return out


def _apart(knots: Float) -> Float:
    """Return ascending knots without those that only rounding tells from the one before."""
    least = 1e-9 * max(1.0, float(np.abs(knots).max()))
    return np.asarray(knots[np.append(True, np.diff(knots) > least)])


def _scaled(z: Float, knots: Float) -> tuple[Float, Float, float]:
    """Return logits and knots from the first knot in units of the knots' distance, and the unit."""
    unit = float(knots[-1] - knots[0]) if len(knots) > 1 else 1.0
    return (z - knots[0]) / unit, (knots - knots[0]) / unit, unit


def fit_quadratic(logits: Float, targets: Float, weights: Float) -> tuple[Float, Float]:
    """Return the ends of the range of logits, and the slopes at both and the value at the first.

    Logistic regression on z, z^2 and 1 (Berta et al., 2025), with Platt's prior targets, among
    the quadratics that increase over the range of the logits.

    Examples
    --------
    >>> from scipy.special import expit
    >>> z = np.linspace(-3.0, 3.0, 1000)
    >>> y = expit(0.1 * z**2 + z - 0.5)  # slopes 1 -+ 0.6, value -2.6
    >>> knots, coef = fit_quadratic(z, y, np.ones(1000))
    >>> knots.tolist(), coef.round(1).tolist()
    ([-3.0, 3.0], [0.4, 1.6, -2.6])
    """
    seen = logits[weights > 0]
    knots = _apart(np.array([seen.min(), seen.max()]))
    x, places, unit = _scaled(logits, knots)
    soft = prior_targets(targets, weights)
    coef, _ = fit_increasing(slope_features(x, places), soft, weights)
    return knots, np.append(coef[:-1] / unit, coef[-1])


def fit_spline(
    logits: Float, targets: Float, weights: Float, *, n_knots: int = 8
) -> tuple[Float, Float]:
    """Return the knots, and the slopes there and the value at the first, of an increasing spline.

    Penalised logistic regression, with Platt's prior targets: the penalty is lambda times the
    integral of f''^2, as for a smoothing spline, and lambda is the one of nine powers of ten with
    the largest marginal likelihood in Laplace's approximation (REML; Wood, 2011). Knots are at
    equally spaced quantiles of the logits from 2.5 % to 97.5 %, and lambda is in units of their distance.

    Examples
    --------
    >>> from scipy.special import expit
    >>> z = np.linspace(-4.0, 4.0, 2000)
    >>> knots, coef = fit_spline(z, expit(np.minimum(z, 1.0)), np.ones(2000))  # saturates
    >>> bool(coef[0] > 0.9), bool(coef[-2] < 0.1)
    (True, True)
    """
    n_knots = check_count(n_knots, "n_knots", "bins")
    points, means, mass = merge_ties(logits, prior_targets(targets, weights), weights)
    level = np.linspace(0.025, 0.975, n_knots) if n_knots > 1 else np.array([0.5])
    below = np.cumsum(mass) / mass.sum()
    knots = _apart(points[np.searchsorted(below, level - 1e-12)])
    x, places, unit = _scaled(points, knots)
    features, k = slope_features(x, places), len(knots)
    rise = np.diff(np.eye(k, k + 1), axis=0) / np.sqrt(np.diff(places))[:, None]
    coef = None
    best, most = np.zeros(k + 1), -np.inf
    penalties = _PENALTIES[:1] if k == 1 else _PENALTIES
    for penalty in penalties:
        coef, evidence = fit_increasing(features, means, mass, penalty * rise.T @ rise, coef)
        evidence += 0.5 * (k - 1) * np.log(penalty)
        if evidence > most:
            best, most = coef, evidence
    return knots, np.append(best[:-1] / unit, best[-1])


class _SlopeCurve(OneAgainstRest):
    """Knots and coefficients of the curves."""

    _fitted = ("knots_", "coef_")
    _in_logits = True
    knots_: list[Float]
    coef_: list[Float]

    def _curve(self, c: int, odds: Float) -> Float:
        return np.asarray(slope_features(odds, self.knots_[c]) @ self.coef_[c])


class QuadraticScaling(_SlopeCurve):
    """Quadratic scaling (Berta et al., 2025): the log-odds are a quadratic in the logit.

    The true form where the logits of the two classes are normal with different variances, as a line
    (Platt) is where the variances are the same. A quadratic turns round somewhere; this one is
    increasing over the logits it was fitted to, and beyond them goes on as a straight line, so that the
    order of cases is kept. More than two classes: each against the rest, then renormalised.

    Attributes
    ----------
    knots_ : list of array (2,)
        Least and largest logit: one array, or one for each class.
    coef_ : list of array (3,)
        The slopes there, and the value at the first.

    Examples
    --------
    >>> calibrator = QuadraticScaling().fit([-1.0, 0.0, 1.0] * 50, [0, 1, 1] * 49 + [1, 0, 1])
    >>> calibrator.predict_proba([-1.0, 0.0, 1.0])[:, 1].round(2).tolist()
    [0.04, 0.96, 1.0]
    """

    name = "quadratic"
    tried_as = "a quadratic in the logits, increasing over the cases"

    def _fit_curve(self, odds: Float, targets: Float, weights: Float) -> tuple[Float, Float]:
        return fit_quadratic(odds, targets, weights)


class SplineCalibration(_SlopeCurve):
    """A smoothing spline of the logit (Lucena, 2018), here an increasing one.

    The slope is linear between knots, at least zero, and constant beyond them. How smooth the curve
    is, the data decide (see `fit_spline`): with few cases it is a line, as Platt's. More than two
    classes: each against the rest, then renormalised.

    Parameters
    ----------
    n_knots : int
        At most; fewer where logits are tied.

    Attributes
    ----------
    knots_ : list of array (K,)
        One array, or one for each class.
    coef_ : list of array (K + 1,)
        The slopes there, and the value at the first.

    Examples
    --------
    >>> calibrator = SplineCalibration().fit([-2.0, -1.0, 1.0, 2.0] * 50, [0, 1, 0, 1] * 50)
    >>> calibrator.predict_proba([0.0])[:, 1].round(6).tolist()
    [0.5]
    """

    name = "spline"

    def __init__(self, n_knots: int = 8) -> None:
        self.n_knots = n_knots

    def _fit_curve(self, odds: Float, targets: Float, weights: Float) -> tuple[Float, Float]:
        return fit_spline(odds, targets, weights, n_knots=self.n_knots)
