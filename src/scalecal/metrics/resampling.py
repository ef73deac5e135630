"""What a calibrated model would show: labels drawn from the probabilities themselves.

Draw ``y* ~ Bernoulli(p)`` for every case, keep the bins (they depend on p alone), and look at the
residual sums. Up to `EXACT_CASES` cases every label is drawn. Above, a bin's residual sum is drawn
from its normal limit with variance ``sum p (1 - p)``, at a cost that no longer depends on n.

References
----------
Broecker, Smith (2007), Weather and Forecasting (consistency resampling).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scalecal.checks import (
    Float,
    InputError,
    as_rng,
    check_choice,
    check_positive_int,
    check_weights,
)
from scalecal.metrics.arguments import blocks, event_probs
from scalecal.metrics.binning import Binning, binner

__all__ = [
    "EXACT_CASES",
    "ConsistencyBars",
    "consistency_bars",
    "noise_floor",
    "resampled_ece",
    "resampled_residuals",
]

EXACT_CASES = 100_000
AUTO_CASES = 1_000  # below this the analytic floor can be off by several per cent
DRAWS_AT_ONCE = 1 << 21  # 8 MB of single-precision random numbers


def _bin_moments(
    p: Float, n_bins: int, binning: Binning, sample_weight: Float | None
) -> tuple[Float, Float, Float]:
    """Return each bin's mass, sum of w p, and variance of its residual sum."""
    index = binner(p, n_bins, binning, sample_weight)
    mass, mean, variance = np.zeros((3, n_bins))
    for part in blocks(len(p)):
        q = p[part]
        k = index(q)
        if sample_weight is None:
            mass += np.bincount(k, minlength=n_bins)
            mean += np.bincount(k, q, n_bins)
            variance += np.bincount(k, q * (1.0 - q), n_bins)
        else:
            w = sample_weight[part]
            mass += np.bincount(k, w, n_bins)
            mean += np.bincount(k, w * q, n_bins)
            variance += np.bincount(k, w * w * q * (1.0 - q), n_bins)
    return mass, mean, variance


def resampled_residuals(
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> Float:
    """Return the bins' sums of ``p - y*`` under calibration, shape (n_resamples, n_bins).

    Parameters
    ----------
    probs : array of shape (n,) or (n, C)
        For more than two classes the event is "the top label is right".
    n_bins : int
    binning : {"width", "mass"}
    n_resamples : int
    seed : int or Generator
    sample_weight : array of shape (n,), optional

    Examples
    --------
    >>> resampled_residuals([0.0, 1.0], n_bins=2, n_resamples=1)
    array([[0., 0.]])
    """
    p = event_probs(probs)
    w = check_weights(sample_weight, len(p))
    check_positive_int(n_resamples, "n_resamples")
    rng = as_rng(seed)
    if len(p) > EXACT_CASES:
        variance = _bin_moments(p, n_bins, binning, w)[2]
        return np.asarray(rng.standard_normal((n_resamples, n_bins)) * np.sqrt(variance))
    index = binner(p, n_bins, binning, w)(p)
    # One column per bin that holds a case; single precision counts exactly up to 2^24 cases.
    filled, column = np.unique(index, return_inverse=True)
    exact = np.float32 if w is None else np.float64
    indicator = np.zeros((len(p), len(filled)), dtype=exact)
    indicator[np.arange(len(p)), column] = 1.0 if w is None else w
    expected = np.bincount(column, p if w is None else w * p, len(filled)).astype(np.float64)
    out = np.zeros((n_resamples, n_bins))
    # The uniforms are multiples of 2^-24: half a step less makes them round p, not round it up.
    threshold = (p - 2.0**-25).astype(np.float32)
    for part in blocks(n_resamples, max(1, DRAWS_AT_ONCE // len(p))):
        uniform = rng.random((part.stop - part.start, len(p)), dtype=np.float32)
        positives: Float = ((uniform < threshold).astype(exact) @ indicator).astype(np.float64)
        out[part, filled] = expected - positives
    return out


def resampled_ece(
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> Float:
    """Return the ECEs a calibrated model with these probabilities would show, (n_resamples,).

    Parameters as `resampled_residuals`.

    Examples
    --------
    >>> resampled_ece([0.5], n_resamples=2)
    array([0.5, 0.5])
    """
    p = event_probs(probs)
    sums = resampled_residuals(
        p,
        n_bins=n_bins,
        binning=binning,
        n_resamples=n_resamples,
        seed=seed,
        sample_weight=sample_weight,
    )
    total = len(p) if sample_weight is None else float(np.sum(sample_weight))
    return np.asarray(np.abs(sums).sum(axis=1) / total)


def noise_floor(
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    method: Literal["auto", "analytic", "resampled"] = "auto",
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean ECE of a perfectly calibrated model with these probabilities.

    Analytic: ``(1 / N) sum_b sqrt((2 / pi) sum_{i in b} p_i (1 - p_i))``, the mean absolute value
    of each bin's normal limit. Resampled: the mean of `resampled_ece`. "auto" resamples below
    1,000 cases, where the limit can be off by several per cent.

    Parameters
    ----------
    probs : array of shape (n,) or (n, C)
        For more than two classes the floor is that of the top label's ECE.
    n_bins : int
    binning : {"width", "mass"}
    method : {"auto", "analytic", "resampled"}
    n_resamples : int
    seed : int or Generator
    sample_weight : array of shape (n,), optional

    Examples
    --------
    >>> round(noise_floor([0.5] * 400, method="analytic"), 4)
    0.0199
    """
    check_choice(method, ("auto", "analytic", "resampled"), "method")
    p = event_probs(probs)
    w = check_weights(sample_weight, len(p))
    if method == "resampled" or (method == "auto" and len(p) < AUTO_CASES):
        draws = resampled_ece(
            p, n_bins=n_bins, binning=binning, n_resamples=n_resamples, seed=seed, sample_weight=w
        )
        return float(draws.mean())
    mass, _, variance = _bin_moments(p, n_bins, binning, w)
    return float(np.sqrt(2.0 / np.pi * variance).sum() / mass.sum())


class ConsistencyBars(NamedTuple):
    """Where a calibrated model's share of positives would lie in each bin; NaN where empty."""

    lo: Float
    hi: Float


def consistency_bars(
    probs: ArrayLike,
    *,
    level: float = 0.9,
    n_bins: int = 15,
    binning: Binning = "width",
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> ConsistencyBars:
    """Return, per bin, the central range of the mean label under calibration.

    A point of the reliability diagram outside its bar is surprising by itself; with 15 bars at
    90 % one or two will be outside by chance.

    Parameters
    ----------
    level : float
        Between 0 and 1.
    probs, n_bins, binning, n_resamples, seed, sample_weight
        As `resampled_residuals`.

    References
    ----------
    Broecker, Smith (2007), Weather and Forecasting.

    Examples
    --------
    >>> bars = consistency_bars([0.5] * 100, n_bins=1)
    >>> bool(0.35 < bars.lo[0] < 0.5 < bars.hi[0] < 0.65)
    True
    """
    if not 0.0 < level < 1.0:
        raise InputError(f"level must lie between 0 and 1, got {level!r}")
    p = event_probs(probs)
    w = check_weights(sample_weight, len(p))
    mass, mean, _ = _bin_moments(p, n_bins, binning, w)
    sums = resampled_residuals(
        p, n_bins=n_bins, binning=binning, n_resamples=n_resamples, seed=seed, sample_weight=w
    )
    # Positives are expected less residual, so the residual's upper tail is the bar's lower end.
    tails = np.quantile(sums, [0.5 + level / 2, 0.5 - level / 2], axis=0)
    mass = np.where(mass > 0, mass, np.nan)
    return ConsistencyBars(*np.clip((mean - tails) / mass, 0.0, 1.0))
