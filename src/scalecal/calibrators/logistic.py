"""Logistic models of the logits: Platt scaling, beta calibration and structured matrix scaling."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize, nnls
from scipy.special import expit, log_expit, log_softmax, logit, softmax

from scalecal.calibrators.base import Calibrator, OneAgainstRest
from scalecal.calibrators.temperature import fit_temperature
from scalecal.checks import Float
from scalecal.panel import normalised

# Weight, per unit of case weight, of the pull towards the identity. It decides only what the data
# leave open (constant logits) and is far below what shows elsewhere.
PULL = 1e-10


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
