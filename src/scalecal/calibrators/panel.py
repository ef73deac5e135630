"""Jury scaling: from the panel's label to one reader's vote."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit, log_softmax

from scalecal.calibrators.base import Calibrator
from scalecal.checks import Float, check_choice, check_positive_int, check_unit
from scalecal.panel import reader_logit


def choose_strength(
    logits: Float,
    targets: Float,
    n_raters: ArrayLike,
    weights: Float | None = None,
) -> float:
    """Return the largest strength whose label log loss is within one standard error of the best.

    The full map softens too much where the vote probability still varies given the features; the
    labels' own loss shows how much softening is tolerable. The standard error is that of the mean
    paired difference to the best strength on the grid 0, 0.05, ..., 1.

    Parameters
    ----------
    logits : array (n,) or (n, C)
        Calibrated logits of the label.
    targets : array (n,) or (n, C)
    n_raters : int or array (n,)
    weights : array (n,), optional

    Examples
    --------
    >>> choose_strength(np.array([0.0, 0.0]), np.array([0.0, 1.0]), 7)
    1.0
    """
    strengths = np.linspace(0.0, 1.0, 21)
    vote = reader_logit(logits, 0.0, n_raters)
    losses = np.stack([_log_loss(_between(logits, vote, s), targets) for s in strengths])
    w = np.full(len(logits), 1.0) if weights is None else weights
    w = w / w.sum()
    difference = losses - losses[int(np.argmin(losses @ w))]
    mean = difference @ w
    error = np.sqrt(((difference - mean[:, None]) ** 2) @ w**2)
    return float(strengths[mean <= error + 1e-15].max())


def _between(label: Float, vote: Float, strength: float) -> Float:
    if label.ndim == 1:
        return (1.0 - strength) * label + strength * vote
    label = log_softmax(label, axis=1)
    return np.asarray(log_softmax((1.0 - strength) * label + strength * vote, axis=1))


def _log_loss(z: Float, targets: Float) -> Float:
    if z.ndim == 1:
        return np.asarray(-(targets * log_expit(z) + (1.0 - targets) * log_expit(-z)))
    return np.asarray(-np.einsum("nc,nc->n", targets, log_softmax(z, axis=1)))


class JuryScaling(Calibrator):
    """Turn calibrated probabilities of a panel's label into those of one reader's vote.

    Put it after a calibrator of the label: ``TemperatureScaling() | JuryScaling()``. See
    `scalecal.panel` for the map, here without correlation.

    Parameters
    ----------
    n_raters : int
        Readers behind a label. `fit`, `transform` and `predict_proba` take the cases' own numbers.
    strength : float or "auto"
        From 0 (identity) to 1 (the full map), linear in logits. "auto" takes the largest one
        supported by the validation labels (`choose_strength`); otherwise nothing is learnt from them.

    Attributes
    ----------
    strength_ : float

    Examples
    --------
    >>> JuryScaling(n_raters=7).fit([0.0], [1]).predict_proba([0.0, 3.0])[:, 1].round(3).tolist()
    [0.5, 0.778]
    """

    name = "jury"
    _fitted = ("strength_",)

    def __init__(self, n_raters: int = 7, strength: float | Literal["auto"] = 1.0) -> None:
        self.n_raters = n_raters
        self.strength = strength

    def _fit(
        self, z: Float, targets: Float, weights: Float | None, n_raters: ArrayLike | None
    ) -> None:
        panel = self._panel(n_raters)
        if isinstance(self.strength, str):
            check_choice(self.strength, ("auto",), "strength")
            self.strength_ = choose_strength(z, targets, panel, weights)
        else:
            self.strength_ = check_unit(self.strength, "strength")

    def _transform(self, z: Float, n_raters: ArrayLike | None) -> Float:
        return _between(z, reader_logit(z, 0.0, self._panel(n_raters)), self.strength_)

    def _panel(self, n_raters: ArrayLike | None) -> ArrayLike:
        return check_positive_int(self.n_raters, "n_raters") if n_raters is None else n_raters
