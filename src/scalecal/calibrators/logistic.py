"""Platt scaling and beta calibration: logistic models of the logits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, logit

from scalecal.calibrators.base import Calibrator, check_fit, log_odds, one_against_rest
from scalecal.checks import Float

# Weight, per unit of case weight, of the pull towards the identity. It decides only what the data
# leave open (constant logits) and is far below what shows elsewhere.
PULL = 1e-10


def prior_targets(targets: Float, weights: Float | None, n_classes: int) -> Float:
    """Return Platt's (1999) targets: one case more of each class, at every case of a class.

    A case of class c gets (N_c + 1) / (N_c + C) for c and 1 / (N_c + C) for each other class. They
    keep the fit finite where the classes are separable or one is missing, and vanish with n.
    """
    w = np.ones(len(targets)) if weights is None else weights
    if n_classes == 2:
        positive, negative = float(w @ targets), float(w @ (1.0 - targets))
        high, low = (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0)
        return targets * high + (1.0 - targets) * low
    mass = w @ targets
    table = np.full((n_classes, n_classes), 1.0) + np.diag(mass)
    return np.asarray(targets @ (table / (mass + n_classes)[:, None]))


def cross_entropy(eta: Float, targets: Float) -> Float:
    """Return log(1 + e^eta) - t eta of each case, written so that no exponential overflows."""
    return np.asarray(np.log1p(np.exp(-np.abs(eta))) + np.maximum(eta, 0.0) - targets * eta)


def _fit_logistic(
    features: Float, targets: Float, weights: Float | None, start: Float, free: list[int]
) -> tuple[Float, float]:
    """Return the coefficients of a logistic model, those not `free` held at zero, and its loss.

    Newton's method with halved steps; the loss is convex.
    """
    F = features[:, free]
    w = np.ones(len(F)) if weights is None else weights
    pull = PULL * float(w.sum())
    goal = start[free]

    def loss(x: Float) -> float:
        return float(w @ cross_entropy(F @ x, targets) + 0.5 * pull * ((x - goal) ** 2).sum())

    # From the base rate, where no case is saturated, whatever the logits' size. The intercept is
    # the last coefficient.
    x = np.zeros(len(free))
    x[-1] = logit(w @ targets / w.sum())
    value = loss(x)
    for _ in range(200):
        p = expit(F @ x)
        gradient = F.T @ (w * (p - targets)) + pull * (x - goal)
        curvature = (F * (w * p * (1.0 - p))[:, None]).T @ F + pull * np.eye(len(free))
        step = np.linalg.solve(curvature, gradient)
        if gradient @ step <= 1e-10 * w.sum():
            # So near the minimum Newton squares the error, and the loss is too flat to compare.
            x = x - step
            value = loss(x)
            break
        size = 1.0
        while (new := loss(x - size * step)) > value and size > 1e-10:
            size *= 0.5
        x, value = x - size * step, new
    out = np.zeros(features.shape[1])
    out[free] = x
    return out, value


def fit_increasing(features: Float, targets: Float, weights: Float | None, start: Float) -> Float:
    """As `_fit_logistic`, with every coefficient but the last (the intercept) at least zero.

    There are at most two, so every set of those held at zero can be tried.
    """
    k = features.shape[1] - 1
    best, least = None, np.inf
    for mask in range(2**k):
        free = [j for j in range(k) if not mask >> j & 1] + [k]
        coef, loss = _fit_logistic(features, targets, weights, start, free)
        if (coef[:k] >= 0.0).all() and loss < least:
            best, least = coef, loss
            if mask == 0:
                break
    assert best is not None  # all slopes zero is always allowed
    return best


def fit_platt(
    logits: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None
) -> tuple[float, float]:
    """Return slope >= 0 and intercept of Platt's (1999) sigmoid, with his prior targets.

    Constant logits give the slope nearest one. Logits that point the wrong way give slope 0.

    Examples
    --------
    >>> slope, intercept = fit_platt(np.array([-1.0, 1.0, -1.0, 1.0]), np.array([0.0, 1, 1, 1]))
    >>> slope > 0
    True
    """
    logits, targets, weights = check_fit(logits, targets, weights)
    features = np.column_stack([logits, np.ones(len(logits))])
    soft = prior_targets(targets, weights, 2)
    slope, intercept = fit_increasing(features, soft, weights, np.array([1.0, 0.0]))
    return float(slope), float(intercept)


def fit_vector_scaling(
    logits: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None
) -> tuple[Float, Float]:
    """Return a scale and a shift for each of C logits (vector scaling, Guo et al., 2017)."""
    logits, targets, weights = check_fit(logits, targets, weights, ndim=2)
    n_classes = logits.shape[1]
    z = log_softmax(logits, axis=1)
    soft = prior_targets(targets, weights, n_classes)
    w = np.ones(len(z)) if weights is None else weights
    w = w / w.sum()

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
    _fitted = ("slope_", "intercept_")

    def _fit(self, z: Float, targets: Float, weights: Float | None, *_: Any) -> None:
        self.slope_: float | Float
        self.intercept_: float | Float
        if z.ndim == 1:
            self.slope_, self.intercept_ = fit_platt(z, targets, weights)
        else:
            self.slope_, self.intercept_ = fit_vector_scaling(z, targets, weights)

    def _transform(self, z: Float, *_: Any) -> Float:
        base = z if z.ndim == 1 else log_softmax(z, axis=1)
        return np.asarray(base * self.slope_ + self.intercept_)


def fit_beta(logits: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None) -> Float:
    """Return (a, b, c) of beta calibration, ``a log p - b log(1 - p) + c`` with a, b >= 0.

    With Platt's prior targets. Logits, so that saturated probabilities keep their order.
    """
    logits, targets, weights = check_fit(logits, targets, weights)
    soft = prior_targets(targets, weights, 2)
    return fit_increasing(_beta_features(logits), soft, weights, np.array([1.0, 1.0, 0.0]))


def _beta_features(logits: Float) -> Float:
    return np.column_stack([log_expit(logits), -log_expit(-logits), np.ones(len(logits))])


class BetaCalibration(Calibrator):
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
    _fitted = ("coef_",)

    def _fit(self, z: Float, targets: Float, weights: Float | None, *_: Any) -> None:
        self.coef_: Float | list[Float]
        if z.ndim == 1:
            self.coef_ = fit_beta(z, targets, weights)
        else:
            classes = range(z.shape[1])
            self.coef_ = [fit_beta(log_odds(z, c), targets[:, c], weights) for c in classes]

    def _probs(self, z: Float, *_: Any) -> Float:
        if z.ndim == 1:
            return np.asarray(expit(_beta_features(z) @ np.asarray(self.coef_)))
        return one_against_rest(z, lambda c, odds: expit(_beta_features(odds) @ self.coef_[c]))

    def _transform(self, z: Float, *_: Any) -> Float:
        if z.ndim == 1:  # straight from the model: no logit is lost to saturation
            return np.asarray(_beta_features(z) @ np.asarray(self.coef_))
        return super()._transform(z, *_)
