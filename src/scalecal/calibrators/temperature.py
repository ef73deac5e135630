"""Temperature scaling (Guo et al., 2017), and its mixture with the identity and the uniform law."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy.optimize import LinearConstraint, minimize
from scipy.special import softmax

from scalecal.calibrators.base import Calibrator
from scalecal.checks import Float, InputError, ScalecalWarning

# Chunks stay in the cache, and below the size at which OpenBLAS starts threads for a dot product.
_CHUNK = 8192
# Where the labels contradict the logits, how large a logit may still be.
_FLAT = 1e-3
_TINY = np.finfo(np.float64).tiny


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
