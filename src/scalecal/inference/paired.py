"""Paired comparisons of methods: across seeds, over test cases, and against a margin.

There are two kinds of noise: training varies between seeds, and the answer depends on which cases
happen to be in the test set. The paper's t-test covers the first alone; a `Contrast` has both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalecal.checks import Float, InputError
from scalecal.inference.units import centred, interval, student_p, two_sided_p


@dataclass(frozen=True, eq=False)
class Drawn:
    """One metric of one method: its value per seed, and its bootstrap averaged over seeds.

    The bootstrap is moved to the value (see `centred`).
    """

    by_seed: dict[int, float]
    samples: Float
    n: int
    units: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", centred(self.samples, self.value))

    @property
    def value(self) -> float:
        """Mean over seeds."""
        return float(np.mean(list(self.by_seed.values())))


@dataclass(frozen=True)
class Contrast:
    """A difference method - reference, with both kinds of noise.

    `low`, `high` and `p_cases` come from the paired bootstrap over cases or groups (NaN where these are
    too few); `p_seeds` from the paired t-test across seeds (NaN with fewer than two). `n` counts cases,
    `units` what was resampled.
    """

    difference: float
    low: float
    high: float
    p_cases: float
    p_seeds: float
    value: float
    reference: float
    n: int
    units: int

    @property
    def change(self) -> float:
        """The difference as a share of the reference's value."""
        if self.reference == 0.0:
            return float("nan")
        return self.difference / self.reference

    @property
    def p_value(self) -> float:
        """The larger of both p-values: a difference counts if it outlasts both kinds of noise.

        NaN where the noise of the cases is unknown, whatever the seeds say.
        """
        if np.isnan(self.p_cases):
            return float("nan")
        return float(np.fmax(self.p_cases, self.p_seeds))


def contrast_of(reference: Drawn, method: Drawn, *, level: float = 0.95) -> Contrast:
    """Compare two metrics drawn from the same resamples."""
    paired = [seed for seed in reference.by_seed if seed in method.by_seed]
    if not paired:
        raise InputError("the methods have no seed in common, so they cannot be paired")
    # A metric may be undefined on some test sets: AUC where one class is missing.
    common = [
        s for s in paired if np.isfinite(reference.by_seed[s]) and np.isfinite(method.by_seed[s])
    ]
    n, units = min(reference.n, method.n), min(reference.units, method.units)
    if not common:
        nan = float("nan")
        return Contrast(nan, nan, nan, nan, nan, nan, nan, n, units)
    a, b = (np.array([drawn.by_seed[s] for s in common]) for drawn in (reference, method))
    difference = float((b - a).mean())
    samples = centred(method.samples - reference.samples, difference)
    low, high = interval(samples, level)
    return Contrast(
        difference=difference,
        low=low,
        high=high,
        p_cases=two_sided_p(samples),
        p_seeds=_p_across_seeds(b - a),
        value=float(b.mean()),
        reference=float(a.mean()),
        n=n,
        units=units,
    )


def _p_across_seeds(differences: Float) -> float:
    """p-value of the paired t-test (Student, 1908); NaN of one seed, or where they do not vary."""
    n, mean = len(differences), float(differences.mean())
    if n == 1:
        return float("nan")
    # Equal methods differ by nothing at all, on every seed.
    if not differences.any():
        return 1.0
    error = float(differences.std(ddof=1)) / np.sqrt(n)
    if error <= 1e-12 * max(1.0, abs(mean)):
        return float("nan")
    return student_p(mean, error, n - 1)


@dataclass(frozen=True)
class RecoveredShare:
    """Share of a reference's gain that a method recovers; NaN, with its reason, where there is none."""

    share: float
    low: float
    high: float
    reason: str = ""


def recovered_share(
    baseline: Drawn, reference: Drawn, method: Drawn, *, level: float = 0.95
) -> RecoveredShare:
    """Share of the reference's gain over the baseline that a method recovers.

    (baseline - method) / (baseline - reference), with an interval from the paired resamples.
    Undefined where the reference's own gain is not clearly above zero.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(0, 0.01, 500)
    >>> base, best, half = (Drawn({0: v}, v + noise, 90, 90) for v in (0.4, 0.2, 0.3))
    >>> round(recovered_share(base, best, half).share, 6)
    0.5
    >>> recovered_share(base, base, half).reason
    'the reference gains nothing here'
    """
    gain, nan = baseline.value - reference.value, float("nan")
    to_reference = baseline.samples - reference.samples
    if not np.isfinite(to_reference).any():
        few = "too few cases or groups to judge the reference's gain"
        return RecoveredShare(nan, nan, nan, few)
    if gain <= 1e-12:
        return RecoveredShare(nan, nan, nan, "the reference gains nothing here")
    if interval(to_reference, level)[0] <= 0:
        return RecoveredShare(nan, nan, nan, "the reference's gain may be chance")
    low, high = interval((baseline.samples - method.samples) / to_reference, level)
    share = (baseline.value - method.value) / gain
    return RecoveredShare(share, low, high)
