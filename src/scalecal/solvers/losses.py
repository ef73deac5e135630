"""Losses of logits against target probabilities, and their slopes, column by column.

Logits and targets are (columns, cases): one column for a two-class probe, C adjoining columns for
a C-class probe.
"""

from __future__ import annotations

from typing import Any

from scalecal.solvers.arrays import Array

__all__ = ["loss", "residual"]


def _log_probabilities(xp: Any, logits: Array, n_columns: int) -> Array:
    """Log-softmax over each probe's columns: (probes, C, cases)."""
    z = xp.reshape(logits, (-1, n_columns, logits.shape[1]))
    z = z - xp.max(z, axis=1, keepdims=True)
    return z - xp.log(xp.sum(xp.exp(z), axis=1, keepdims=True))


def _softplus(xp: Any, z: Array) -> Array:
    """Log(1 + exp(z)) that neither overflows nor loses the small end."""
    size = xp.abs(z)
    return xp.log1p(xp.exp(-size)) + 0.5 * (size + z)


def _logistic(xp: Any, z: Array) -> Array:
    """1 / (1 + exp(-z)) without overflow; numpy has none of its own."""
    if hasattr(xp, "sigmoid"):
        return xp.sigmoid(z)
    p = xp.tanh(z * 0.5)
    p *= 0.5
    p += 0.5
    return p


def loss(xp: Any, logits: Array, targets: Array, n_columns: int, gamma: float | None) -> Array:
    """Return the loss of each probe on each case, (probes, cases).

    The log loss is ``-sum_c t_c log p_c``; with `gamma`, the focal loss
    ``-sum_c t_c (1 - p_c)^gamma log p_c`` (Lin et al. 2017).
    """
    if n_columns == 1:
        if gamma is None:
            return _softplus(xp, logits) - targets * logits
        log_yes, log_no = -_softplus(xp, -logits), -_softplus(xp, logits)
        return (
            -targets * xp.exp(gamma * log_no) * log_yes
            - (1.0 - targets) * xp.exp(gamma * log_yes) * log_no
        )
    log_p = _log_probabilities(xp, logits, n_columns)
    t = xp.reshape(targets, log_p.shape)
    if gamma is None:
        return -xp.sum(t * log_p, axis=1)
    return -xp.sum(t * (1.0 - xp.exp(log_p)) ** gamma * log_p, axis=1)


def residual(xp: Any, logits: Array, targets: Array, n_columns: int, gamma: float | None) -> Array:
    """Return the slope of the loss with respect to each logit, (columns, cases).

    For the log loss it is p - t. For the focal loss, with
    ``h(p) = gamma p (1 - p)^(gamma - 1) log p - (1 - p)^gamma``, it is
    ``t_k h(p_k) - p_k sum_c t_c h(p_c)``.
    """
    if n_columns == 1:
        if gamma is None:
            slope = _logistic(xp, logits)
            slope -= targets
            return slope
        log_yes, log_no = -_softplus(xp, -logits), -_softplus(xp, logits)
        yes, no = xp.exp(log_yes), xp.exp(log_no)
        return targets * no**gamma * (gamma * yes * log_yes - no) - (1.0 - targets) * yes**gamma * (
            gamma * no * log_no - yes
        )
    log_p = _log_probabilities(xp, logits, n_columns)
    p, t = xp.exp(log_p), xp.reshape(targets, log_p.shape)
    if gamma is None:
        return xp.reshape(p - t, logits.shape)
    # 1 - p from below keeps (1 - p)^(gamma - 1) finite for gamma < 1 at saturated cases.
    rest = xp.clip(1.0 - p, 1e-12, 1.0)
    h = t * (gamma * p * rest ** (gamma - 1.0) * log_p - rest**gamma)
    return xp.reshape(h - p * xp.sum(h, axis=1, keepdims=True), logits.shape)
