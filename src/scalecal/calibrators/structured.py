"""Structured matrix scaling: an affine map of all classes' logits, held near a temperature."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import softmax

from scalecal.calibrators.base import Calibrator, check_fit
from scalecal.calibrators.logistic import fit_platt
from scalecal.calibrators.temperature import fit_temperature
from scalecal.checks import Float


def fit_structured_matrix(
    logits: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None
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
    >>> matrix = fit_structured_matrix(z, y)[2]
    >>> bool(matrix[0, 1] > matrix[0, 2])
    True
    """
    logits, targets, weights = check_fit(logits, targets, weights, ndim=2)
    n_classes = logits.shape[1]
    w = np.ones(len(logits)) if weights is None else weights
    total = float(w.sum())
    temperature, uniform = fit_temperature(logits, targets, weights), 1.0 / (total + 1.0)
    # One row a class: sums over few classes are slow along rows of cases.
    z = np.ascontiguousarray(_log_probs(logits, temperature, uniform).T)
    goal = np.ascontiguousarray((targets * (w / total)[:, None]).T)
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
    a temperature, with few cases, and full matrix scaling, with many. It can mend classes that are taken for
    one another, and may change which class comes first. With two classes it is Platt scaling.

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

    def _fit(self, z: Float, targets: Float, weights: Float | None, *_: Any) -> None:
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
