"""A state as few weighted cases, and what counts of cases need beyond the weighted metrics.

Weights of the ordinary metrics say how much a case matters; here they say how many cases there
are. Means do not tell the difference, but variances, tests and pairs of cases do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, exp, nan, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, xlogy

from scalecal.auditing.stream_state import Layer, State
from scalecal.checks import Float, Int
from scalecal.inference.units import NORMAL_95
from scalecal.metrics import bins
from scalecal.metrics.binning import Bins, bin_index
from scalecal.metrics.proper import EPS
from scalecal.metrics.resampling import EXACT_CASES
from scalecal.metrics.significance import best_line, brownian_range_sf

__all__ = [
    "Compressed",
    "area",
    "compress",
    "cox",
    "debiased",
    "kuiper",
    "null_errors",
    "null_residuals",
    "spiegelhalter",
]


@dataclass(frozen=True, eq=False)
class Compressed:
    """Cases of one label, one cell and the same votes as one row: `times` cases of probability `p`.

    `readers` and `positive` are the votes of each row (0: none), `cell` its cell.
    """

    y: Int
    p: Float
    times: Int
    cell: NDArray[np.intp]
    readers: Int
    positive: Int

    @property
    def n(self) -> int:
        """Number of cases."""
        return int(self.times.sum())

    @property
    def weights(self) -> Float:
        """`times` as float64, as the weighted metrics take it."""
        return self.times.astype(np.float64)

    def bins(self, n_bins: int) -> Bins:
        """The reliability table, with cases counted."""
        table = bins(self.y, self.p, n_bins=n_bins, sample_weight=self.weights)
        count = np.round(table.weight).astype(np.int64)
        return Bins(
            table.lo,
            table.hi,
            count,
            table.weight,
            table.mean_p,
            table.mean_y,
            table.residual,
        )

    def mean_interval(
        self, terms: Float, use: NDArray[np.bool_] | None = None
    ) -> tuple[float, ...]:
        """Mean of what each case adds, with its normal interval: (mean, low, high)."""
        w = self.weights if use is None else self.weights * use
        total = float(w.sum())
        if total <= 0.0:
            return nan, nan, nan
        return moments_interval(total, float(w @ terms), float(w @ (terms * terms)))


def moments_interval(n: float, first: float, second: float) -> tuple[float, float, float]:
    """Mean and normal interval from the sums of values and of their squares.

    Examples
    --------
    >>> [round(v, 3) for v in moments_interval(100, 50, 50)]
    [0.5, 0.402, 0.598]
    """
    mean = first / n
    half = NORMAL_95 * sqrt(max(second / n - mean * mean, 0.0) / n)
    return mean, mean - half, mean + half


def compress(state: State, layers: list[Layer]) -> Compressed:
    """Return the cases of some layers of a state, one row per layer and cell that holds any."""
    numbers = [state.layers[layer] for layer in layers]
    row, cell = np.nonzero(state.counts[numbers])
    times = state.counts[numbers][row, cell]
    mean = state.cells.clip(state.sums[numbers][row, cell] / times, cell)

    def of(name: str) -> Int:
        return np.array([getattr(layer, name) for layer in layers], dtype=np.int64)[row]

    return Compressed(of("label"), mean, times, cell, of("readers"), of("positive"))


def null_residuals(cases: Compressed, *, n_bins: int, n_resamples: int, seed: int) -> Float:
    """Sums of ``p - y*`` by bin for labels drawn from the probabilities, (n_resamples, n_bins).

    As `scalecal.metrics.resampled_residuals`: up to `EXACT_CASES` cases labels are drawn (their
    number in each cell), above that the bins' normal limit, with the same draws for the same seed.
    """
    rng = np.random.default_rng(seed)
    index = bin_index(cases.p, n_bins=n_bins)
    w = cases.weights
    if cases.n > EXACT_CASES:
        variance = np.bincount(index, w * cases.p * (1.0 - cases.p), n_bins)
        return np.asarray(rng.standard_normal((n_resamples, n_bins)) * np.sqrt(variance))
    expected = np.bincount(index, w * cases.p, n_bins)
    order = np.argsort(index, kind="stable")
    filled, starts = np.unique(index[order], return_index=True)
    out = np.zeros((n_resamples, n_bins))
    at_once = max(1, (1 << 21) // len(w))
    for first in range(0, n_resamples, at_once):
        b = min(at_once, n_resamples - first)
        drawn = rng.binomial(cases.times[order], cases.p[order], size=(b, len(w)))
        positives = np.add.reduceat(drawn, starts, axis=1)
        out[first : first + b, filled] = expected[filled] - positives
    return out


def null_errors(cases: Compressed, *, n_bins: int, n_resamples: int, seed: int) -> Float:
    """ECEs a calibrated model with these probabilities would show, (n_resamples,)."""
    sums = null_residuals(cases, n_bins=n_bins, n_resamples=n_resamples, seed=seed)
    return np.asarray(np.abs(sums).sum(axis=1) / cases.n)


def debiased(cases: Compressed, n_bins: int) -> tuple[float, float, float]:
    """Debiased squared error in bins of equal mass, with a normal interval: (value, low, high).

    `scalecal.metrics.debiased_error` with cases counted. A bin's value is a U-statistic of pairs;
    with mean m and variance s^2 of its residuals its variance is
    ``4 m^2 s^2 / n + 2 s^4 / (n (n - 1))`` (Hoeffding 1948).
    """
    w = cases.weights
    # By the number of the cell, since all of its cases share a bin, whatever their label.
    place = cases.cell / cases.cell.max() if cases.cell.any() else cases.cell
    index = bin_index(place, n_bins=n_bins, binning="mass", sample_weight=w)
    residual = cases.p - cases.y
    size = np.bincount(index, w, n_bins)
    first = np.bincount(index, w * residual, n_bins)
    second = np.bincount(index, w * residual**2, n_bins)
    used = size > 1.5
    if not used.any():
        return nan, nan, nan
    size, first, second = size[used], first[used], second[used]
    share = size / size.sum()
    mean = first / size
    spread = np.maximum(second / size - mean**2, 0.0)
    value = float(share @ ((first**2 - second) / (size * (size - 1.0))))
    variance = 4.0 * mean**2 * spread / size + 2.0 * spread**2 / (size * (size - 1.0))
    half = NORMAL_95 * sqrt(float(share**2 @ variance))
    return value, value - half, value + half


def area(cases: Compressed) -> tuple[float, float, float]:
    """AUC with its normal interval, cases of one cell tied: (value, low, high); NaN with one class.

    The standard error is that of DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44.
    """
    _, row = np.unique(cases.cell, return_inverse=True)
    up = np.bincount(row, cases.weights * cases.y)
    down = np.bincount(row, cases.weights * (1 - cases.y))
    n1, n0 = up.sum(), down.sum()
    if n1 == 0 or n0 == 0:
        return nan, nan, nan
    above = (np.cumsum(down) - 0.5 * down) / n0
    beneath = 1.0 - (np.cumsum(up) - 0.5 * up) / n1
    value = float(up @ above / n1)
    spread1 = float(up @ (above - value) ** 2 / n1)
    spread0 = float(down @ (beneath - value) ** 2 / n0)
    half = NORMAL_95 * sqrt(spread1 / n1 + spread0 / n0)
    return value, value - half, value + half


def spiegelhalter(cases: Compressed) -> float:
    """p-value of `scalecal.metrics.spiegelhalter`."""
    tilt = 1.0 - 2.0 * cases.p
    total = float(cases.weights @ ((cases.y - cases.p) * tilt))
    variance = float(cases.weights @ (tilt**2 * cases.p * (1.0 - cases.p)))
    if variance == 0.0:
        return 0.0 if total != 0.0 else nan
    return erfc(abs(total) / sqrt(2.0 * variance))


def kuiper(cases: Compressed) -> float:
    """p-value of `scalecal.metrics.kuiper`, the walk taking one step a cell."""
    _, row = np.unique(cases.cell, return_inverse=True)
    walk = np.cumsum(np.bincount(row, cases.weights * (cases.y - cases.p)))
    scale = sqrt(float(cases.weights @ (cases.p * (1.0 - cases.p))))
    spread = max(float(walk.max()), 0.0) - min(float(walk.min()), 0.0)
    if scale == 0.0:
        return 0.0 if spread > 0.0 else nan
    return brownian_range_sf(spread / scale)


def cox(cases: Compressed) -> tuple[float, float, float]:
    """p-value, intercept and slope of `scalecal.metrics.cox`."""
    y, w = cases.y, cases.weights
    positives, n = float(w @ y), float(w.sum())
    if positives in (0.0, n):
        return nan, nan, nan
    z = logit(np.clip(cases.p, EPS, 1.0 - EPS))

    def likelihood(a: float, b: float) -> float:
        eta = a + b * z
        return float(w @ (y * eta - np.logaddexp(0.0, eta)))

    def derivatives(a: float, b: float) -> tuple[Float, Float]:
        q = expit(a + b * z)
        curve = w * q * (1.0 - q)
        gradient = np.array([w @ (y - q), (w * (y - q)) @ z])
        return gradient, np.array([[curve.sum(), curve @ z], [curve @ z, (curve * z) @ z]])

    given = likelihood(0.0, 1.0)
    limit = _separated(z, y, w)
    degrees, a, b = 2, nan, nan
    if limit is not None:
        best = limit
        if z.min() == z.max():
            degrees, a = 1, float(np.log(positives / (n - positives)) - z[0])
    else:
        a, b, best = best_line(z, positives / n, likelihood, derivatives)
    statistic = max(0.0, 2.0 * (best - given))
    p_value = exp(-0.5 * statistic) if degrees == 2 else erfc(sqrt(0.5 * statistic))
    return p_value, a, b


def _separated(z: Float, y: Int, w: Float) -> float | None:
    """Highest log likelihood where no line attains it (see `scalecal.metrics.cox`), else None."""
    up, down = z[y == 1], z[y == 0]
    if down.max() <= up.min():
        value = up.min()
    elif up.max() <= down.min():
        value = up.max()
    else:
        return None
    ones, zeros = float(w[(y == 1) & (z == value)].sum()), float(w[(y == 0) & (z == value)].sum())
    both = ones + zeros
    return float(xlogy(ones, ones / both) + xlogy(zeros, zeros / both))
