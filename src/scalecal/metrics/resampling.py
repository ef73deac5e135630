"""What a calibrated model would show: labels drawn from the probabilities themselves.

Draw ``y* ~ Bernoulli(p)`` for every case, keep the bins (they depend on p alone), and look at the
residual sums. Their mean absolute value needs no draws: `noise_floor` has it in closed form. For
percentiles labels are drawn; above `EXACT_CASES` cases a bin's residual sum is drawn from its normal
limit with variance ``sum p (1 - p)``, at a cost that no longer depends on n.

Where cases come in groups the drawn labels go together within a group as far as the labels themselves
do (`scalecal.metrics.grouping`), so `y` is needed beside `groups`; too few groups give NaN.

References
----------
Broecker, Smith (2007), Weather and Forecasting (consistency resampling).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import Float, InputError, Int, as_rng, check_inside
from scalecal.limits import check_count
from scalecal.metrics.arguments import Sample, blocks, event_probs, read_counts, read_hard_event
from scalecal.metrics.binning import Binner, Binning, bin_sums, binner
from scalecal.metrics.grouping import Dependence, dependence, draw_uniforms, read_groups, too_few

EXACT_CASES = 100_000
"""Cases above which bin sums are drawn from their normal limit."""

DRAWS_AT_ONCE = 1 << 21  # 8 MB of single-precision random numbers

EXACT_VARIANCE = 9.0
"""Variance of a bin's sum up to which `noise_floor` uses its exact law."""

_POINTS = 64  # of the lattice that holds a sum of that variance: ten standard deviations to a side


def _characteristic(
    p: Float, weights: Float | None, column: NDArray[np.intp], n_columns: int
) -> NDArray[np.complex128]:
    """Characteristic function of each column's number of positives at the lattice's frequencies."""
    turn = np.exp(2j * np.pi * np.arange(_POINTS // 2 + 1) / _POINTS) - 1.0
    out = np.ones((n_columns, len(turn)), dtype=np.complex128)
    for part in blocks(len(p), 1 << 14):
        order = np.argsort(column[part], kind="stable")
        present, starts = np.unique(column[part][order], return_index=True)
        factor = 1.0 + p[part][order, None] * turn
        if weights is not None:
            factor **= weights[part][order, None]
        out[present] *= np.multiply.reduceat(factor, starts, axis=0)
    return out


def _mean_deviations(null: Null) -> Float:
    """Mean absolute deviation of each bin's number of positives, y* ~ Bernoulli(p)."""
    _, mean, variance, third, fourth = null.cumulants
    whole = np.floor(mean)
    part = mean - whole
    spread = np.maximum(variance, EXACT_VARIANCE)  # small ones are replaced below
    # Edgeworth's expansion, and Euler and Maclaurin's term for the kink between two lattice points.
    out: Float = np.sqrt(2.0 / np.pi * spread) * (
        1.0 - fourth / (24.0 * spread**2) + third**2 / (24.0 * spread**3)
    ) - (part**2 - part + 1.0 / 6.0) / np.sqrt(2.0 * np.pi * spread)
    few = variance < EXACT_VARIANCE
    out[few] = 0.0
    some = few & (variance > 0.0)
    if not some.any():
        return out
    column_of = np.full(null.n_bins, -1)
    column_of[some] = np.arange(some.sum())
    column = column_of[null.index(null.expected.p)]
    used = null.expected.take(column >= 0)
    law = _characteristic(used.p, used.weights, column[column >= 0], int(some.sum()))
    # The law of the positives less `whole`, on a lattice that wraps round far out in its tails.
    law *= np.exp(-2j * np.pi * np.outer(whole[some], np.arange(law.shape[1])) / _POINTS)
    chance = np.fft.irfft(law.conj(), _POINTS, axis=1)
    place = np.fft.fftfreq(_POINTS, 1.0 / _POINTS)
    out[some] = (chance * np.abs(place - part[some, None])).sum(axis=1)
    return out


@dataclass(frozen=True, eq=False)
class Null:
    """A calibrated model with these probabilities, in bins; its arrays are checked.

    Attributes
    ----------
    expected : Sample
        The cases with their probabilities for labels.
    index : callable
        The bin of each probability.
    n_bins : int
    groups : array or None
        (n,) codes of groups; None where every case is alone.
    together : Dependence
        How far labels of one group go together.
    """

    expected: Sample
    index: Binner
    n_bins: int
    groups: Int | None
    together: Dependence

    @classmethod
    def of(
        cls,
        probs: ArrayLike,
        y: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        n_bins: int = 15,
        binning: Binning = "width",
        sample_weight: ArrayLike | None = None,
    ) -> Null:
        """Check what `noise_floor` takes; the labels tell how far cases of one group go together."""
        p = event_probs(probs)
        weights = read_counts(sample_weight, len(p))
        index = binner(p, n_bins, binning, weights)
        code, labels = read_groups(groups, len(p), weights), p
        if code is not None:
            if y is None:
                raise InputError(
                    "groups need y as well: the labels say how far cases of one group go together"
                )
            labels = read_hard_event(y, probs).y
        together = dependence(labels, p, code, index(p), n_bins)
        return cls(Sample(p, p, weights), index, n_bins, code, together)

    @cached_property
    def cumulants(self) -> Float:
        """Each bin's number of cases and the cumulants 1 to 4 of its positives: (5, n_bins)."""

        def terms(_: Float, q: Float) -> list[Float]:
            v = q * (1.0 - q)
            return [np.ones_like(q), q, v, v * (1.0 - 2.0 * q), v * (1.0 - 6.0 * v)]

        return bin_sums(self.expected, self.index, self.n_bins, terms)

    def floor(self) -> float:
        """`noise_floor`."""
        if too_few(self.groups):
            return float("nan")
        deviation = _mean_deviations(self)
        share, pairs = self.together
        if share > 0.0:
            variance = self.cumulants[2]
            spread = np.where(variance > 0, variance, 1.0)
            deviation = deviation * np.sqrt(1.0 + share * np.diag(pairs) / spread)
        return float(deviation.sum() / self.expected.total)

    def residuals(self, n_resamples: int, seed: Any) -> Float:
        """The bins' sums of ``p - y*`` under calibration, (n_resamples, n_bins)."""
        check_count(n_resamples, "n_resamples", "resamples")
        rng = as_rng(seed)
        p, w = self.expected.p, self.expected.weights
        if too_few(self.groups):
            return np.full((n_resamples, self.n_bins), np.nan)
        share, pairs = self.together
        if self.expected.total > EXACT_CASES:
            spread = np.diag(self.cumulants[2]) + share * pairs
            return draw_normal(np.zeros(self.n_bins), spread, n_resamples, rng)
        # One column per bin that holds a case; single precision counts exactly up to 2^24 cases.
        filled, column = np.unique(self.index(p), return_inverse=True)
        indicator = np.zeros((len(p), len(filled)), dtype=np.float32)
        indicator[np.arange(len(p)), column] = 1.0
        mean = self.cumulants[1][filled]
        out = np.zeros((n_resamples, self.n_bins))
        # The uniforms are multiples of 2^-24: half a step less makes them round p, not round it up.
        threshold = (p - 2.0**-25).astype(np.float32)
        for part in blocks(n_resamples, max(1, DRAWS_AT_ONCE // len(p))):
            shape = (part.stop - part.start, len(p))
            if w is None:
                happened = (draw_uniforms(*shape, self.groups, share, rng) < threshold).astype(
                    np.float32
                )
            else:
                happened = rng.binomial(w.astype(np.int64), p, size=shape).astype(np.float32)
            out[part, filled] = mean - (happened @ indicator).astype(np.float64)
        return out

    def ece(self, residuals: Float) -> Float:
        """The ECE of each draw of `residuals`: `resampled_ece`."""
        return np.asarray(np.abs(residuals).sum(axis=1) / self.expected.total)

    def bars(self, residuals: Float, level: float = 0.9) -> ConsistencyBars:
        """`consistency_bars` of draws of `residuals`."""
        mass, mean = self.cumulants[:2]
        # Positives are expected less residual, so the residual's upper tail is the bar's lower end.
        tails = np.quantile(residuals, [0.5 + level / 2, 0.5 - level / 2], axis=0)
        mass = np.where(mass > 0, mass, np.nan)
        return ConsistencyBars(*np.clip((mean - tails) / mass, 0.0, 1.0))


def noise_floor(
    probs: ArrayLike,
    *,
    y: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    n_bins: int = 15,
    binning: Binning = "width",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Expected ECE of a perfectly calibrated model with these probabilities.

    The sum over bins of the mean absolute deviation of the number of positives, a Poisson binomial
    variable, over the number of cases. Exact (by the characteristic function) in bins whose
    variance ``sum p (1 - p)`` is below 9; elsewhere a normal limit corrected for skewness, kurtosis
    and the lattice, which is then within 2e-4 of it. With groups each bin's deviation is larger by the
    square root of its design effect (Kish, 1965), the factor by which dependence raises its variance.

    Parameters
    ----------
    probs : array of shape (n,) or (n, C)
        For more than two classes the floor is that of the top label's ECE.
    y : array of shape (n,), optional
        Labels; needed with groups alone.
    groups : array of shape (n,), optional
        Patient, slide, ... of each case. NaN if these are too few (`MIN_GROUPS`).
    n_bins : int
    binning : {"width", "mass"}
    sample_weight : array of shape (n,), optional
        How many cases each row stands for.

    Examples
    --------
    >>> round(noise_floor([0.5, 0.5]), 6)
    0.25
    >>> round(noise_floor([0.5] * 400), 5)
    0.01993
    """
    return Null.of(probs, y, groups, n_bins, binning, sample_weight).floor()


def sample_floor(sample: Sample) -> float:
    """`noise_floor` of a sample's events; NaN without cases, or where weights do not count them."""
    if sample.importance or len(sample.p) == 0:
        return float("nan")
    event = sample.event
    return Null.of(
        event.p, event.y, event.groups, event.n_bins, sample_weight=event.weights
    ).floor()


def draw_normal(
    mean: Float, covariance: Float, n_resamples: int, rng: np.random.Generator
) -> Float:
    """Draw normal vectors, (n_resamples, m); rounding may make the covariance a little indefinite.

    Examples
    --------
    >>> drawn = draw_normal(np.ones(2), np.ones((2, 2)), 3, np.random.default_rng(0))
    >>> bool(np.allclose(drawn[:, 0], drawn[:, 1]))
    True
    """
    level, axes = np.linalg.eigh(covariance)
    root = (axes * np.sqrt(np.maximum(level, 0.0))) @ axes.T
    return np.asarray(mean + rng.standard_normal((n_resamples, len(mean))) @ root)


def resampled_ece(
    probs: ArrayLike,
    *,
    y: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    n_bins: int = 15,
    binning: Binning = "width",
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> Float:
    """Return the ECEs a calibrated model with these probabilities would show, (n_resamples,).

    Parameters
    ----------
    probs, y, groups, n_bins, binning, sample_weight
        As `noise_floor`.
    n_resamples : int
    seed : int or Generator

    Examples
    --------
    >>> resampled_ece([0.5], n_resamples=2)
    array([0.5, 0.5])
    """
    null = Null.of(probs, y, groups, n_bins, binning, sample_weight)
    return null.ece(null.residuals(n_resamples, seed))


class ConsistencyBars(NamedTuple):
    """Where a calibrated model's share of positives would lie in each bin; NaN where empty."""

    lo: Float
    hi: Float


def consistency_bars(
    probs: ArrayLike,
    *,
    level: float = 0.9,
    y: ArrayLike | None = None,
    groups: ArrayLike | None = None,
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
    probs, y, groups, n_bins, binning, n_resamples, seed, sample_weight
        As `resampled_ece`.

    References
    ----------
    Broecker, Smith (2007), Weather and Forecasting.

    Examples
    --------
    >>> bars = consistency_bars([0.5] * 100, n_bins=1)
    >>> bool(0.35 < bars.lo[0] < 0.5 < bars.hi[0] < 0.65)
    True
    """
    level = check_inside(level, "level")
    null = Null.of(probs, y, groups, n_bins, binning, sample_weight)
    return null.bars(null.residuals(n_resamples, seed), level)
