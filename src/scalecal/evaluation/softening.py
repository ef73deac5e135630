"""What softening by one temperature alone would buy, and which methods gain more.

A softer model always looks better on the low-agreement stratum. A method that carries information about
difficulty is better than the uncalibrated logits divided by the temperature at which these have the same
mean predictive entropy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import numpy as np
from scipy.special import expit

from scalecal.cases import Answers, Predictions
from scalecal.checks import Float, InputError
from scalecal.evaluation.changes import Row
from scalecal.evaluation.scores import Resampled, entropy

MIN_GAIN = 0.0005
"""Least difference to softening that is one: smaller ones are printed as zero."""

_EDGE = 1e-12  # keeps the logits of certain predictions finite


def soften(probs: Float, temperature: float) -> Float:
    """Divide the logits of predicted probabilities by a temperature.

    Examples
    --------
    >>> soften(np.array([0.8, 0.5]), 2.0).round(3).tolist()
    [0.667, 0.5]
    >>> soften(np.array([[0.2, 0.3, 0.5]]), 1.0).round(3).tolist()
    [[0.2, 0.3, 0.5]]
    """
    if probs.ndim == 1:
        p = np.clip(probs, _EDGE, 1 - _EDGE)
        return np.asarray(expit((np.log(p) - np.log1p(-p)) / temperature))
    z = np.log(np.clip(probs, _EDGE, 1.0)) / temperature
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(z / z.sum(axis=1, keepdims=True))


def equal_entropy(probs: Float, wanted: float) -> float:
    """Temperature at which the softened predictions have the wanted mean entropy.

    Mean entropy grows with the temperature, so there is one answer; it is sought in [0.01, 100] and
    the nearer end is returned where it lies outside.

    Examples
    --------
    >>> p = np.array([0.9, 0.2, 0.6])
    >>> round(equal_entropy(p, float(entropy(soften(p, 3.0)).mean())), 4)
    3.0
    """
    from scipy.optimize import brentq

    def excess(log_t: float) -> float:
        return _mean_entropy(soften(probs, np.exp(log_t))) - wanted

    low, high = np.log(0.01), np.log(100.0)
    if excess(low) >= 0:
        return float(np.exp(low))
    if excess(high) <= 0:
        return float(np.exp(high))
    return float(np.exp(brentq(excess, low, high, xtol=1e-7)))


def softened_name(method: str) -> str:
    """Name of the softened baseline that matches a method."""
    return f"softened to {method}"


def _pairs(cell: Predictions, method: str, baseline: str) -> dict[int, tuple[Answers, Answers]]:
    """Seed -> answers of a method and of the baseline, where both have that seed and the same cases."""
    out = {}
    for seed in cell.seeds(method):
        if (baseline, seed) in cell.answers:
            out[seed] = (cell.answers[method, seed], cell.answers[baseline, seed])
    if any(not np.array_equal(own.index, plain.index) for own, plain in out.values()):
        raise InputError(f"cell {cell.name}: {method} and {baseline} have other test cases")
    return out


def _mean_entropy(probs: Float) -> float:
    return float(entropy(probs).mean())


def _softened(
    cell: Predictions, method: str, baseline: str
) -> tuple[dict[tuple[str, int], Answers], list[float]]:
    """The baseline softened to a method's mean entropy, seed by seed, and the temperatures."""
    made: dict[tuple[str, int], Answers] = {}
    temperatures = []
    for seed, (own, plain) in _pairs(cell, method, baseline).items():
        temperatures.append(equal_entropy(plain.p, _mean_entropy(own.p)))
        reader = None
        # A reader probability is softer than the label's: each is compared at its own entropy.
        if own.p_reader is not None:
            reader = soften(plain.p, equal_entropy(plain.p, _mean_entropy(own.p_reader)))
        p = soften(plain.p, temperatures[-1])
        made[softened_name(method), seed] = Answers(p, reader, rows=plain.index)
    return made, temperatures


def with_softened(
    cell: Predictions, methods: Iterable[str], *, baseline: str = "none"
) -> Predictions:
    """Return the cell with the baseline softened to each method's mean entropy, seed by seed."""
    more: dict[tuple[str, int], Answers] = {}
    for method in methods:
        more |= _softened(cell, method, baseline)[0]
    return cell.with_answers(more)


def beside_softening(
    cell: Predictions,
    metric: str,
    *,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Row]:
    """Compare each method with one temperature that gives the baseline the same mean entropy.

    Methods that were tested on other cases than the baseline are left out.

    Returns
    -------
    Method -> ``metric``, ``temperature`` (mean over seeds), ``difference`` (method minus softened baseline;
    negative is better), ``low`` and ``high`` (95 % interval by paired bootstrap over cases or groups), and
    ``better``: whether the interval lies below 0 and the difference shows in three digits. (A temperature is
    found again to rounding only.)
    """
    more: dict[tuple[str, int], Answers] = {}
    temperatures: dict[str, float] = {}
    for method in cell.methods:
        # A method of other test cases costs the others nothing.
        with contextlib.suppress(InputError):
            made, found = _softened(cell, method, cell.baseline)
            if found:
                temperatures[method] = float(np.mean(found))
                more |= made
    softened = cell.with_answers(more)
    drawn = Resampled([softened], n_bins=n_bins, n_resamples=n_resamples, seed=seed)
    out = {}
    for method, temperature in temperatures.items():
        change = {"difference": 0.0, "low": 0.0, "high": 0.0}
        if method == cell.baseline:
            temperature = 1.0
        else:
            contrast = drawn.contrast(method, softened_name(method), metric=metric)
            change = {key: getattr(contrast, key) for key in change}
        better = bool(change["high"] < 0 and change["difference"] <= -MIN_GAIN)
        out[method] = {"metric": metric, "temperature": temperature, **change, "better": better}
    return out
