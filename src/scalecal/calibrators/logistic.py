"""Models of the logits: one temperature, and logistic models of lines, splines and matrices of them.

A spline is a curve whose slope is linear between knots and constant beyond them:

    f(z) = c + sum_j s_j A_j(z),  A_j' = the hat function of knot j,  A_j(first knot) = 0

so that it is increasing wherever every slope s_j is at least zero, smooth (its slope has no jumps),
a straight line where all slopes are the same, and a line beyond the outer knots.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import LinearConstraint, minimize, nnls
from scipy.special import expit, log_expit, log_softmax, logit, softmax

from scalecal.calibrators.base import Calibrator, OneAgainstRest
from scalecal.calibrators.free import merge_ties
from scalecal.checks import Float, InputError, ScalecalWarning
from scalecal.limits import check_count
from scalecal.panel import normalised

# Chunks stay in the cache, and below the size at which OpenBLAS starts threads for a dot product.
_CHUNK = 8192
# Where the labels contradict the logits, how large a logit may still be.
_FLAT = 1e-3
_TINY = np.finfo(np.float64).tiny
# Weight, per unit of case weight, of the pull towards the identity. It decides only what the data
# leave open (constant logits) and is far below what shows elsewhere.
PULL = 1e-10
# Smoothing parameters that are tried; at the last the curve is a line.
_PENALTIES = 10.0 ** np.arange(4, -5, -1)


# -- one temperature -------------------------------------------------------------------------------


def fit_temperature(logits: Float, targets: Float, weights: Float) -> float:
    r"""Temperature that minimises the log loss of ``logits / T``.

    The loss is convex in 1 / T, so Newton's method on 1 / T, kept inside the bracket that the
    gradient's sign gives, finds the minimum in a few passes over the data.

    Parameters
    ----------
    logits : array (n,), or (n, C) of more than two classes
    targets : array of the same shape
        Soft labels.
    weights : array (n,)

    Returns
    -------
    float
        T > 0. Where the loss has no minimum the answer is defined as follows, with a warning: 1
        if every case is predicted right (the loss would fall for ever as T goes to 0), and a T that
        makes every logit smaller than 0.001 if the labels contradict the logits on the whole (the
        loss would fall until T is infinite). Logits that are all zero (or equal in every row) give 1.

    Examples
    --------
    >>> z, y = np.array([4.0, 4.0, 4.0, -4.0]), np.array([1.0, 1.0, 0.0, 0.0])
    >>> round(fit_temperature(z, y, np.ones(4)), 3)  # 3 of 4 right
    3.641
    """
    pose = _two if logits.ndim == 1 else _many
    slopes, at_zero, at_infinity, size = pose(logits, targets, weights)
    if size == 0.0:
        return 1.0
    if at_infinity <= 1e-12 * size:
        warnings.warn(
            "every validation case is predicted right, so no temperature is best: the logits are "
            "left as they are (T = 1). Give more validation cases.",
            ScalecalWarning,
            stacklevel=2,
        )
        return 1.0
    if at_zero >= 0.0:
        warnings.warn(
            "the labels contradict the logits on the whole, so the best temperature is infinite. "
            "Check that logits and labels belong together.",
            ScalecalWarning,
            stacklevel=2,
        )
        return float(np.abs(logits).max() / _FLAT)
    return 1.0 / _root(slopes)


def _root(slopes: Callable[[float], tuple[float, float]]) -> float:
    """Return the root above zero of an increasing function, given its value and slope."""
    low, high, b = 0.0, np.inf, 1.0
    for _ in range(200):
        value, slope = slopes(b)
        if value > 0.0:
            high = b
        else:
            low = b
        new = b - value / slope if slope > 0.0 else np.inf
        if not low < new < high:
            new = 0.5 * (low + high) if np.isfinite(high) else 4.0 * b
        if abs(new - b) <= 1e-10 * b:
            return float(new)
        b = new
    return float(b)


Problem = tuple[Callable[[float], tuple[float, float]], float, float, float]


def _two(z: Float, y: Float, w: Float) -> Problem:
    """Return the gradient and curvature in b = 1/T, the gradient at 0 and infinity, and a scale.

    With s = tanh(b z / 2) the gradient is sum w z ((1 + s) / 2 - y), its slope
    sum w z^2 (1 - s^2) / 4: one hyperbolic tangent a case.
    """
    weighted = w * z
    zy, z_sum, squares = float(weighted @ y), float(weighted.sum()), float(weighted @ z)
    size = float(np.abs(weighted).sum())

    def slopes(b: float) -> tuple[float, float]:
        first = second = 0.0
        for start in range(0, len(z), _CHUNK):
            part = z[start : start + _CHUNK]
            s = np.tanh(part * (0.5 * b))
            s *= part
            weighted_s = w[start : start + _CHUNK] * s
            first += float(weighted_s.sum())
            second += float(weighted_s @ s)
        return 0.5 * (z_sum + first) - zy, 0.25 * (squares - second)

    return slopes, 0.5 * z_sum - zy, 0.5 * (z_sum + size) - zy, size


def _many(z: Float, y: Float, w: Float) -> Problem:
    """As `_two`, for (n, C): the gradient is sum w (E z - y z), its slope sum w Var z."""
    z = z - z.mean(axis=1, keepdims=True)
    zy = float(w @ np.einsum("nc,nc->n", z, y))
    top = z.max(axis=1)
    rows = max(1, _CHUNK // z.shape[1])

    def slopes(b: float) -> tuple[float, float]:
        first = second = 0.0
        for start in range(0, len(z), rows):
            part = slice(start, start + rows)
            values = z[part]
            e = np.exp(b * (values - top[part, None]))
            total = e.sum(axis=1)
            e *= values
            mean = e.sum(axis=1) / total
            square = np.einsum("nc,nc->n", e, values) / total
            first += float(w[part] @ mean)
            second += float(w[part] @ (square - mean * mean))
        return first - zy, second

    size = float(w @ np.abs(z).max(axis=1))
    return slopes, -zy, float(w @ top) - zy, size


class TemperatureScaling(Calibrator):
    """Divide logits by the temperature with the least validation log loss (Guo et al., 2017).

    Keeps every case's ranking of the classes, and with two classes the order of cases.

    Attributes
    ----------
    temperature_ : float
        Above 1 if the probe was over-confident. See `fit_temperature` for degenerate input.

    Examples
    --------
    >>> calibrator = TemperatureScaling().fit([4.0, 4.0, 4.0, -4.0], [1, 1, 0, 0])
    >>> calibrator.predict_proba([4.0]).round(3).tolist()
    [[0.25, 0.75]]
    """

    name = "temperature"
    tried_as = "one temperature"
    _fitted = ("temperature_",)

    @classmethod
    def _restore(cls, saved: dict[str, Any]) -> Self:
        self = super()._restore(saved)
        if not self.temperature_ > 0.0:
            raise InputError(f"temperature_ must be greater than 0, got {self.temperature_!r}")
        return self

    def _fit(self, z: Float, targets: Float, weights: Float, *_: Any) -> None:
        self.temperature_ = fit_temperature(z, targets, weights)

    def _transform(self, z: Float, *_: Any) -> Float:
        return z / self.temperature_


def fit_ensemble_temperature(logits: Float, targets: Float, weights: Float) -> tuple[float, Float]:
    """Return the temperature, and the weights of tempered, own and uniform probabilities.

    The temperature first, then weights that add up to 1, each with the least log loss (Zhang et
    al., 2020, with their log loss in place of the squared error).

    Examples
    --------
    >>> z, y = np.array([4.0, 4.0, 4.0, -4.0]), np.array([1.0, 1.0, 0.0, 0.0])
    >>> temperature, share = fit_ensemble_temperature(z, y, np.ones(4))
    >>> round(temperature, 3), float(share.sum().round(6))
    (3.641, 1.0)
    """
    temperature = fit_temperature(logits, targets, weights)
    parts = _ensemble(logits, temperature)
    goal = np.column_stack([1.0 - targets, targets]) if targets.ndim == 1 else targets
    goal = goal * (weights / weights.sum())[:, None]

    def objective(share: Float) -> tuple[float, Float]:
        mixed = np.maximum(np.tensordot(share, parts, 1), _TINY)
        return -float((goal * np.log(mixed)).sum()), -np.tensordot(parts, goal / mixed, 2)

    share = minimize(
        objective,
        np.full(3, 1.0 / 3.0),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * 3,
        constraints=LinearConstraint(np.ones((1, 3)), 1.0, 1.0),
        options={"ftol": 1e-12, "maxiter": 200},
    ).x
    share = np.maximum(share, 0.0)
    return temperature, np.asarray(share / share.sum())


def _ensemble(z: Float, temperature: float) -> Float:
    """Return the probabilities (3, n, C): tempered, the probe's own, uniform."""
    table = np.column_stack([np.zeros_like(z), z]) if z.ndim == 1 else z
    parts = np.full((3, *table.shape), 1.0 / table.shape[1])
    parts[0] = softmax(table / temperature, axis=1)
    parts[1] = softmax(table, axis=1)
    return parts


class EnsembleTemperature(Calibrator):
    """Ensemble temperature scaling (Zhang, Kailkhura and Han, 2020): a mixture of three.

    ``w1 softmax(z / T) + w2 softmax(z) + w3 / C``. Keeps every case's ranking of the classes, as
    temperature scaling does, and can keep probabilities away from 0 and 1 where large logits err.

    Attributes
    ----------
    temperature_ : float
    share_ : array (3,)
        w1, w2 and w3: at least zero, and 1 in sum.

    Examples
    --------
    >>> calibrator = EnsembleTemperature().fit([4.0, 4.0, 4.0, -4.0], [1, 1, 0, 0])
    >>> calibrator.predict_proba([4.0]).round(3).tolist()
    [[0.25, 0.75]]
    """

    name = "ensemble-temperature"
    _fitted = ("temperature_", "share_")

    def _fit(self, z: Float, targets: Float, weights: Float, *_: Any) -> None:
        self.temperature_, self.share_ = fit_ensemble_temperature(z, targets, weights)

    def _transform(self, z: Float, *_: Any) -> Float:
        mixed = np.tensordot(self.share_, _ensemble(z, self.temperature_), 1)
        out = np.log(np.maximum(mixed, _TINY))
        if z.ndim == 1:
            out = out[:, 1] - out[:, 0]
        return np.asarray(out)


# -- lines -----------------------------------------------------------------------------------------


def prior_targets(targets: Float, weights: Float) -> Float:
    """Return Platt's (1999) targets: one case more of each class, at every case of a class.

    A case of class c gets (N_c + 1) / (N_c + C) for c and 1 / (N_c + C) for each other class. They
    keep the fit finite where the classes are separable or one is missing, and vanish with n.
    """
    if targets.ndim == 1:
        positive, negative = float(weights @ targets), float(weights @ (1.0 - targets))
        high, low = (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0)
        return targets * high + (1.0 - targets) * low
    mass = weights @ targets
    table = 1.0 + np.diag(mass)
    return np.asarray(targets @ (table / (mass + len(mass))[:, None]))


def cross_entropy(eta: Float, targets: Float) -> Float:
    """Return log(1 + e^eta) - t eta of each case, written so that no exponential overflows."""
    return np.asarray(np.log1p(np.exp(-np.abs(eta))) + np.maximum(eta, 0.0) - targets * eta)


def fit_increasing(
    features: Float,
    targets: Float,
    weights: Float,
    penalty: Float | float = 0.0,
    start: Float | None = None,
) -> tuple[Float, float]:
    """Return the coefficients of a logistic model, all but the last at least zero, and its evidence.

    `penalty` is a matrix P: x' P x / 2 is added to the loss. The evidence is the logarithm of Laplace's
    approximation of the marginal likelihood, less a constant. Newton's method with halved steps, each to
    the minimum of the quadratic model under the bounds; the loss is convex. They begin at `start`, by
    default at the base rate, where no case is saturated, whatever the logits' size.
    """
    total, k = float(weights.sum()), features.shape[1] - 1
    penalty = penalty + PULL * total * np.eye(k + 1)
    goal = np.append(np.ones(k), 0.0)

    def loss(x: Float) -> float:
        fit = weights @ cross_entropy(features @ x, targets)
        return float(fit + 0.5 * (x - goal) @ penalty @ (x - goal))

    x = start
    if x is None:
        x = np.append(np.zeros(k), logit(weights @ targets / total))
    value = loss(x)
    for _ in range(200):
        p = expit(features @ x)
        gradient = features.T @ (weights * (p - targets)) + penalty @ (x - goal)
        curvature = (features * (weights * p * (1.0 - p))[:, None]).T @ features + penalty
        curvature += 1e-14 * np.trace(curvature) * np.eye(k + 1)  # rounding must not make it < 0
        # Lower triangle of the mirrored matrix: the last, which has no bound, is eliminated.
        factor = cholesky(curvature[::-1, ::-1])[::-1, ::-1]
        aim = factor @ x - solve_triangular(factor, gradient, trans="T", lower=True)
        slopes = nnls(factor[:-1, :-1], aim[:-1], maxiter=1000)[0]
        step = x - np.append(slopes, (aim[-1] - factor[-1, :-1] @ slopes) / factor[-1, -1])
        if gradient @ step <= 1e-10 * total:
            # So near the minimum Newton squares the error, and the loss is too flat to compare.
            x = x - step
            break
        size = 1.0
        while (new := loss(x - size * step)) > value and size > 1e-10:
            size *= 0.5
        x, value = x - size * step, new
    return x, -loss(x) - float(np.log(np.diag(factor)).sum())


def fit_platt(logits: Float, targets: Float, weights: Float) -> tuple[float, float]:
    """Return slope >= 0 and intercept of Platt's (1999) sigmoid, with his prior targets.

    Constant logits give the slope nearest one. Logits that point the wrong way give slope 0.

    Examples
    --------
    >>> z, y = np.array([-1.0, 1.0, -1.0, 1.0]), np.array([0.0, 1, 1, 1])
    >>> fit_platt(z, y, np.ones(4))[0] > 0
    True
    """
    features = np.column_stack([logits, np.ones(len(logits))])
    soft = prior_targets(targets, weights)
    slope, intercept = fit_increasing(features, soft, weights)[0]
    return float(slope), float(intercept)


def fit_vector_scaling(logits: Float, targets: Float, weights: Float) -> tuple[Float, Float]:
    """Return a scale and a shift for each of C logits (vector scaling, Guo et al., 2017)."""
    n_classes = logits.shape[1]
    z = log_softmax(logits, axis=1)
    soft = prior_targets(targets, weights)
    w = weights / weights.sum()

    def objective(x: Float) -> tuple[float, Float]:
        scale, shift = x[:n_classes], x[n_classes:]
        out = log_softmax(z * scale + shift, axis=1)
        error = w[:, None] * (np.exp(out) - soft)
        away = np.concatenate([scale - 1.0, shift])
        loss = -float(w @ np.einsum("nc,nc->n", soft, out)) + 0.5 * PULL * float(away @ away)
        slope = np.concatenate([(error * z).sum(axis=0), error.sum(axis=0)]) + PULL * away
        return loss, slope

    start = np.concatenate([np.ones(n_classes), np.zeros(n_classes)])
    x = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-9},
    ).x
    return np.asarray(x[:n_classes]), np.asarray(x[n_classes:])


class PlattScaling(Calibrator):
    """Platt (1999) scaling: a logistic regression of the label on the logit, slope at least zero.

    With Platt's prior targets, so that separable or one-class validation cases have a finite answer.
    With more than two classes, vector scaling: a scale and a shift for each class's logit.

    Attributes
    ----------
    slope_ : float or array (C,)
    intercept_ : float or array (C,)

    Examples
    --------
    >>> calibrator = PlattScaling().fit([0.0, 1.0, 2.0, 3.0], [0, 0, 1, 1])
    >>> calibrator.predict_proba([1.5])[:, 1].round(3).tolist()
    [0.5]
    """

    name = "platt"
    tried_as = "a line through the logits"
    _fitted = ("slope_", "intercept_")

    def _fit(self, z: Float, targets: Float, weights: Float, *_: Any) -> None:
        self.slope_: float | Float
        self.intercept_: float | Float
        if z.ndim == 1:
            self.slope_, self.intercept_ = fit_platt(z, targets, weights)
        else:
            self.slope_, self.intercept_ = fit_vector_scaling(z, targets, weights)

    def _transform(self, z: Float, *_: Any) -> Float:
        return np.asarray(normalised(z) * self.slope_ + self.intercept_)


def fit_beta(logits: Float, targets: Float, weights: Float) -> Float:
    """Return (a, b, c) of beta calibration, ``a log p - b log(1 - p) + c`` with a, b >= 0.

    With Platt's prior targets. Logits, so that saturated probabilities keep their order.
    """
    soft = prior_targets(targets, weights)
    return fit_increasing(_beta_features(logits), soft, weights)[0]


def _beta_features(logits: Float) -> Float:
    return np.column_stack([log_expit(logits), -log_expit(-logits), np.ones(len(logits))])


class BetaCalibration(OneAgainstRest):
    """Beta calibration (Kull et al., 2017): the log-odds are ``a log p - b log(1 - p) + c``.

    Monotone (a, b >= 0), holds the identity (1, 1, 0), and bends the two ends apart, which a
    temperature cannot. More than two classes: each against the rest, then renormalised.

    Attributes
    ----------
    coef_ : array (3,) or list of C such arrays
        a, b and c.

    Examples
    --------
    >>> calibrator = BetaCalibration().fit([-1.0, 1.0, -2.0, 2.0] * 50, [0, 1, 0, 1] * 50)
    >>> bool(calibrator.predict_proba([2.0])[0, 1] > 0.9)
    True
    """

    name = "beta"
    tried_as = "a line through log p and log (1 - p)"
    _fitted = ("coef_",)
    _in_logits = True
    coef_: Any

    def _fit_curve(self, odds: Float, targets: Float, weights: Float) -> tuple[Float]:
        return (fit_beta(odds, targets, weights),)

    def _fit(self, z: Float, targets: Float, weights: Float, *_: Any) -> None:
        super()._fit(z, targets, weights)
        if z.ndim == 1:  # the form in which 0.2.0 saved it
            self.coef_ = self.coef_[0]

    def _curve(self, c: int, odds: Float) -> Float:
        coef = self.coef_[c] if self.n_classes_ > 2 else self.coef_
        return np.asarray(_beta_features(odds) @ coef)


# -- splines ---------------------------------------------------------------------------------------


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
    penalties = _PENALTIES
    if k == 1:
        penalties = _PENALTIES[:1]
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


# -- matrices --------------------------------------------------------------------------------------


def fit_structured_matrix(
    logits: Float, targets: Float, weights: Float
) -> tuple[float, float, Float, Float]:
    """Return T, u, a matrix W (C, C) and b (C,): logits become W log(p) + b.

    p = (1 - u) softmax(z / T) + u / C, with the best temperature and u = 1 / (n + 1), which keeps
    log(p) of confident cases within bounds. W and b have the least log loss, summed over cases, plus
    ``C |b|^2 + C |diag(W) - 1|^2 + C (C - 1) |the rest of W|^2`` (Berta et al., 2025, with the ridge and
    strengths that their package has by default): what is many numbers is held back most, and all less
    the more cases there are.

    Examples
    --------
    >>> z = np.tile(np.log([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]), (40, 1))
    >>> y = np.tile(np.eye(3), (40, 1))
    >>> y[:60] = y[[1, 0, 2] * 20]  # the first two classes are often confused, the third never
    >>> matrix = fit_structured_matrix(z, y, np.ones(120))[2]
    >>> bool(matrix[0, 1] > matrix[0, 2])
    True
    """
    n_classes = logits.shape[1]
    total = float(weights.sum())
    temperature, uniform = fit_temperature(logits, targets, weights), 1.0 / (total + 1.0)
    # One row a class: sums over few classes are slow along rows of cases.
    z = np.ascontiguousarray(_log_probs(logits, temperature, uniform).T)
    goal = np.ascontiguousarray((targets * (weights / total)[:, None]).T)
    mass = goal.sum(axis=0)
    # Of the matrix and, in the last column, the shift.
    strength = np.full((n_classes, n_classes + 1), n_classes * (n_classes - 1.0) / total)
    np.fill_diagonal(strength, n_classes / total)
    strength[:, -1] = n_classes / total
    # In these units the penalty is as curved in every direction.
    unit = 1.0 / np.sqrt(2.0 * strength)

    def objective(x: Float) -> tuple[float, Float]:
        change = x.reshape(unit.shape) * unit
        out = z + change[:, :-1] @ z + change[:, -1:]
        out -= out.max(axis=0)
        error = np.exp(out)
        size = error.sum(axis=0)
        loss = float(mass @ np.log(size) - np.vdot(goal, out) + (strength * change**2).sum())
        error *= mass / size
        error -= goal
        slope = np.column_stack([error @ z.T, error.sum(axis=1)]) + 2.0 * strength * change
        return loss, (slope * unit).ravel()

    result = minimize(
        objective,
        np.zeros(unit.size),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 10000, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-9},
    )
    change = result.x.reshape(unit.shape) * unit
    return temperature, uniform, np.eye(n_classes) + change[:, :-1], change[:, -1]


def _log_probs(z: Float, temperature: float, uniform: float) -> Float:
    p = (1.0 - uniform) * softmax(z / temperature, axis=1) + uniform / z.shape[1]
    return np.asarray(np.log(p))


class StructuredMatrixScaling(Calibrator):
    """Structured matrix scaling (Berta, Holzmüller, Jordan and Bach, 2025), for several classes.

    Temperature scaling, then a matrix and a shift of the log probabilities, pulled towards the
    identity, the entries off the diagonal more than those on it (see `fit_structured_matrix`): between
    a temperature, with few cases, and full matrix scaling, with many. It can correct classes that are taken
    for one another, and may change which class comes first. With two classes it is Platt scaling.

    Attributes
    ----------
    temperature_ : float
        1 for two classes.
    uniform_ : float
        The share of the uniform law in p; 0 for two classes.
    matrix_ : float or array (C, C)
        The slope, for two classes.
    intercept_ : float or array (C,)

    Examples
    --------
    >>> z = [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]] * 20
    >>> calibrator = StructuredMatrixScaling().fit(z, [0, 1, 2] * 18 + [1, 2, 0] * 2)
    >>> calibrator.predict_proba([[2.0, 0.0, 0.0]]).round(2).tolist()
    [[0.9, 0.07, 0.03]]
    """

    name = "structured-matrix"
    _fitted = ("temperature_", "uniform_", "matrix_", "intercept_")

    def _fit(self, z: Float, targets: Float, weights: Float, *_: Any) -> None:
        self.temperature_, self.uniform_ = 1.0, 0.0
        self.matrix_: float | Float
        self.intercept_: float | Float
        if z.ndim == 1:
            self.matrix_, self.intercept_ = fit_platt(z, targets, weights)
        else:
            fitted = fit_structured_matrix(z, targets, weights)
            self.temperature_, self.uniform_, self.matrix_, self.intercept_ = fitted

    def _transform(self, z: Float, *_: Any) -> Float:
        if z.ndim == 1:
            return np.asarray(z * self.matrix_ + self.intercept_)
        base = _log_probs(z, self.temperature_, self.uniform_)
        return np.asarray(base @ np.asarray(self.matrix_).T + self.intercept_)
