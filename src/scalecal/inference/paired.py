"""Paired comparisons of methods: across seeds, over test cases, and against a margin.

Two kinds of noise count. Seeds tell how far training varies; test cases tell how far the answer
depends on who happened to be tested. The paper's t-test sees the first alone; here both are given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from scalecal.checks import Float, InputError, as_float, check_finite, check_same_length, check_unit
from scalecal.inference.units import Units, bootstrap_sums, interval, two_sided_p
from scalecal.metrics import holm

__all__ = [
    "Equivalence",
    "PairedResult",
    "RecoveredShare",
    "equivalence",
    "holm",
    "paired_bootstrap",
    "paired_t",
    "recovered_share",
]


@dataclass(frozen=True)
class PairedResult:
    """A difference b - a of paired values, with its uncertainty.

    `effect` is the mean difference in units of the differences' standard deviation (Cohen's d_z).
    `reason` says why a number is NaN.
    """

    difference: float
    low: float
    high: float
    p_value: float
    n: int
    effect: float
    reason: str = ""


def _paired(a: ArrayLike, b: ArrayLike) -> Float:
    x, y = as_float(a, "a"), as_float(b, "b")
    if x.ndim != 1 or y.ndim != 1:
        raise InputError(f"paired values must be 1-d, got shapes {x.shape} and {y.shape}")
    check_same_length(a=x, b=y)
    if len(x) == 0:
        raise InputError("paired values are empty: at least one pair is needed")
    return check_finite(y, "b") - check_finite(x, "a")


def _effect(d: Float) -> float:
    spread = float(d.std(ddof=1)) if len(d) > 1 else 0.0
    return float(d.mean()) / spread if spread > 0 else float("nan")


def paired_t(a: ArrayLike, b: ArrayLike, *, level: float = 0.95) -> PairedResult:
    """Paired t-test of b - a, as the paper does across seeds (Student, 1908).

    It tells whether the difference is steady across the pairs given, for this test set; it says nothing
    about another test set.

    Examples
    --------
    >>> result = paired_t([0.20, 0.19, 0.21, 0.20], [0.15, 0.16, 0.15, 0.17])
    >>> round(result.difference, 4), result.p_value < 0.05
    (-0.0425, True)
    """
    from scipy.stats import t

    d = _paired(a, b)
    n, mean = len(d), float(d.mean())
    error = float(d.std(ddof=1)) / np.sqrt(n) if n > 1 else 0.0
    if error <= 1e-12 * max(1.0, abs(mean)):
        why = "one pair only" if n == 1 else "the differences do not vary"
        return PairedResult(mean, float("nan"), float("nan"), float("nan"), n, float("nan"), why)
    half = float(t.ppf((1 + level) / 2, n - 1)) * error
    p = 2.0 * float(t.sf(abs(mean / error), n - 1))
    return PairedResult(mean, mean - half, mean + half, p, n, _effect(d))


def paired_bootstrap(
    a: ArrayLike,
    b: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> PairedResult:
    """Bootstrap over cases (over groups where given) of the mean of b - a.

    Parameters
    ----------
    a, b
        Per-case losses of two methods on the same test cases; averaged over seeds first where there are
        several.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a = rng.uniform(size=300)
    >>> result = paired_bootstrap(a, a - 0.1 + 0.1 * rng.normal(size=300))
    >>> result.low < -0.1 < result.high
    True
    """
    d = _paired(a, b)
    units = Units.of(len(d), groups=groups, seed=seed)
    sums = {"d": units.total(d), "n": units.total(np.ones(len(d)))}
    drawn = bootstrap_sums(sums, n_resamples=n_resamples, seed=seed)
    samples = drawn["d"][:, 0] / drawn["n"][:, 0]
    low, high = interval(samples, level)
    return PairedResult(float(d.mean()), low, high, two_sided_p(samples), len(d), _effect(d))


@dataclass(frozen=True)
class RecoveredShare:
    """Share of a reference's gain that a method recovers; NaN, with its reason, where there is none."""

    share: float
    low: float
    high: float
    gain: float
    n: int
    reason: str = ""


def recovered_share(
    baseline: ArrayLike,
    reference: ArrayLike,
    method: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> RecoveredShare:
    """Share of the reference's gain over the baseline that a method recovers.

    (L_baseline - L_method) / (L_baseline - L_reference) for mean losses L, with an interval by bootstrap
    over cases or groups. Undefined where the reference's own gain is not clearly above zero: a ratio to
    nothing means nothing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> base = 1 + 0.1 * rng.normal(size=500)
    >>> result = recovered_share(base, base - 0.2, base - 0.1)
    >>> round(result.share, 6)
    0.5
    >>> recovered_share(base, base, base - 0.1).reason
    'the reference gains nothing here'
    """
    to_reference = -_paired(baseline, reference)
    to_method = -_paired(baseline, method)
    check_same_length(reference=to_reference, method=to_method)
    check_unit(level, "level")
    n, gain = len(to_reference), float(to_reference.mean())
    units = Units.of(n, groups=groups, seed=seed)
    sums = {"reference": units.total(to_reference), "method": units.total(to_method)}
    drawn = bootstrap_sums(sums, n_resamples=n_resamples, seed=seed)
    if gain <= 0 or np.quantile(drawn["reference"], (1 - level) / 2) <= 0:
        why = (
            "the reference gains nothing here"
            if gain <= 1e-12
            else "the reference's gain may be chance"
        )
        return RecoveredShare(float("nan"), float("nan"), float("nan"), gain, n, why)
    low, high = interval(drawn["method"][:, 0] / drawn["reference"][:, 0], level)
    return RecoveredShare(float(to_method.mean()) / gain, low, high, gain, n)


@dataclass(frozen=True)
class Equivalence:
    """Verdict on "b is as good as a, give or take a margin"."""

    difference: float
    low: float
    high: float
    margin: float
    equivalent: bool
    p_value: float
    n: int


def equivalence(samples: ArrayLike, difference: float, margin: float, *, n: int) -> Equivalence:
    """Two one-sided tests (Schuirmann, 1987) from resampled differences, at level 5 %.

    Parameters
    ----------
    samples
        Bootstrap samples of the difference, from any paired resampling.
    difference
        Its point value.
    margin
        The largest difference that would not matter.

    Examples
    --------
    >>> drawn = np.random.default_rng(0).normal(0.001, 0.002, size=2000)
    >>> equivalence(drawn, 0.001, 0.01, n=500).equivalent
    True
    >>> equivalence(10 * drawn, 0.01, 0.01, n=500).equivalent
    False
    """
    drawn = as_float(samples, "samples")
    if margin <= 0:
        raise InputError(f"margin must be positive, got {margin:g}")
    finite = drawn[np.isfinite(drawn)]
    low, high = interval(finite, 0.90)
    outside = max((finite <= -margin).sum(), (finite >= margin).sum())
    p = (1 + float(outside)) / (len(finite) + 1)
    return Equivalence(difference, low, high, margin, p < 0.05, p, n)
