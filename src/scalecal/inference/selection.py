"""Strata made from the same votes as the label: what a calibrated model looks like in them.

Agreement and majority come from one set of votes. In a 4-3 split the majority is nearly a coin toss
given the case, while a calibrated prediction of the majority is sharper: even the best possible
model looks over-confident on low agreement and under-confident on high agreement. The null distribution
of each stratum's ECE here has this selection in it. (Strata of one half of the votes, scored by the other
half, have it as well: both halves know what the model does not.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import Float, Int, as_rng
from scalecal.metrics.arguments import blocks, read_counts
from scalecal.metrics.binning import bin_index
from scalecal.metrics.grouping import (
    dependence,
    draw_uniforms,
    pair_covariance,
    read_groups,
    too_few,
)
from scalecal.metrics.resampling import EXACT_CASES, draw_normal
from scalecal.metrics.reweighting import ClassWeights

_LOGIT_BOUND = 36.0  # beyond it a float64 probability is 0 or 1


def _logit(p: Float) -> Float:
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(p) - np.log1p(-p), -_LOGIT_BOUND, _LOGIT_BOUND))


def _nearest_window(values: Float, ends: Int, k: int, queries: Float) -> Int:
    """Start of the window of the k cases nearest to each query, among cases sorted by their value.

    `ends[i]` is the number of cases up to the last of `values[i]`. The k nearest are contiguous, and a
    window gives way to the next one if the query lies beyond the middle of the case that leaves it and
    the one that enters.
    """
    last = int(ends[-1]) - k
    # The middle changes only from a start at which one of these two cases has another value.
    starts = np.unique(np.concatenate([[0], ends, ends - k]))
    starts = starts[(starts >= 0) & (starts < last)]
    leaving = values[np.searchsorted(ends, starts, side="right")]
    entering = values[np.searchsorted(ends, starts + k, side="right")]
    number = np.searchsorted(0.5 * (leaving + entering), queries)
    return np.asarray(np.append(starts, last)[number])


class SelectionDraws(NamedTuple):
    """What a calibrated model shows in every stratum, draw by draw.

    `residual` and `n` hold each bin's sum of p - y* and its number of cases, and `ece` follows from
    them: (n_resamples, n_strata, n_bins) twice, and (n_resamples, n_strata). NaN where a draw left a
    stratum empty, and in a stratum of too few groups.
    """

    residual: Float
    n: Float
    ece: Float

    def bars(self, stratum: int, level: float = 0.9) -> Float:
        """Where p less the share of positives lies in each bin of a stratum: (2, n_bins), low and high.

        The central `level` of the draws that have a case there, bin by bin; NaN where none has.
        """
        n, residual = self.n[:, stratum], self.residual[:, stratum]
        out = np.full((2, n.shape[1]), np.nan)
        for b in np.flatnonzero((n > 0).any(axis=0)):
            some = n[:, b] > 0
            mean = residual[some, b] / n[some, b]
            out[:, b] = np.quantile(mean, [0.5 - level / 2, 0.5 + level / 2])
        return out


def selection_draws(
    labels: NDArray[Any],
    p: Float,
    code: Int,
    *,
    n_strata: int,
    groups: ArrayLike | None = None,
    n_bins: int = 15,
    n_neighbours: int = 20,
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
    weights: ClassWeights | None = None,
    advance: Callable[[float], object] = lambda _: None,
) -> SelectionDraws:
    """Bins of every stratum if the model were calibrated and strata depend on the label as they do.

    Draw y* ~ Bernoulli(p); give the case the stratum of a random one of the `n_neighbours` cases
    with label y* nearest to it in logit p; sum up each stratum's bins; repeat. Nothing is assumed
    about the readers. Above `EXACT_CASES` cases the bin sums are drawn from their normal limit. With
    groups the drawn labels go together within a group as far as the labels do
    (`scalecal.metrics.grouping`).

    Parameters
    ----------
    labels, p
        Labels 0 / 1 and positive-class probabilities, (n,).
    code
        Stratum number of each case, -1 for none.
    groups
        Patient, slide, ... of each case.
    sample_weight
        How many cases each row stands for.
    weights
        Of cases that were sampled by class: what each class stands for. Labels are then drawn in the sample,
        and ECEs are weighted (`scalecal.metrics.reweighting`).
    advance
        Called with the share of the resamples that was just drawn, where that takes long.

    Examples
    --------
    Readers split where their majority is an accident: there a calibrated model says too much.

    >>> from scipy.stats import binom
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.beta(1, 1, size=2000)
    >>> votes = rng.binomial(7, chance)
    >>> p = 1 - binom.cdf(3, 7, chance)
    >>> drawn = selection_draws(votes > 3, p, (votes == 3) | (votes == 4), n_strata=2, n_bins=2)
    >>> low, high = drawn.bars(1)  # p less share of positives in both bins of the split cases
    >>> bool(high[0] < 0 < low[1])
    True
    """
    times = read_counts(sample_weight, len(p))
    rng = as_rng(seed)
    if weights is None:
        weights = ClassWeights(1.0, 1.0, 0.0)
    q = weights.in_sample(p)
    unit = read_groups(groups, len(p), times)
    share, _ = dependence(labels, q, unit, bin_index(q, n_bins=n_bins), n_bins)
    scarce = np.zeros(n_strata, dtype=bool)
    if unit is not None:
        scarce = np.array([bool(too_few(unit[code == s])) for s in range(n_strata)])
    residual = np.full((n_resamples, n_strata, n_bins), np.nan)
    count = np.zeros_like(residual)
    if labels.min() == labels.max() or scarce.all():
        return _draws(residual, count)
    if times is None:
        times = np.ones(len(p))
    if times.sum() > EXACT_CASES:
        mean, variance, size, slope = _limit_sums(
            labels, p, code, times, n_strata, n_bins, n_neighbours, weights
        )
        cell = bin_index(p, n_bins=n_bins)
        for s in np.flatnonzero(size.any(axis=1) & ~scarce):
            spread = np.diag(np.maximum(variance[s], 0.0))
            if unit is not None and share > 0.0:
                spread += share * pair_covariance(q, unit, cell, n_bins, slope[s])
            residual[:, s] = draw_normal(mean[s], spread, n_resamples, rng)
            count[:, s] = size[s]
        return _draws(residual, count)
    labels, p, q, code = (np.repeat(a, times.astype(np.int64)) for a in (labels, p, q, code))
    # Equal predictions must not all share one window: break ties at random, far below any real gap.
    place = _logit(p) + 1e-7 * (rng.random(len(p)) - 0.5)
    bin_of, width = bin_index(p, n_bins=n_bins), (n_strata + 1) * n_bins
    # First cells of the strata of all cases, those labelled 0 first, each label in the order of place.
    cells: list[Int] = []
    starts = []
    sizes = []
    before = 0
    for label in (0, 1):
        order = np.flatnonzero(labels == label)
        order = order[np.argsort(place[order])]
        k = min(n_neighbours, len(order))
        sizes.append(k)
        window = _nearest_window(place[order], np.arange(1, len(order) + 1), k, place)
        starts.append(window + before)
        before += len(order)
        # One more stratum for cases that have none.
        cells.append(np.where(code[order] < 0, n_strata, code[order]).astype(np.intp) * n_bins)
    cell_of = np.concatenate(cells)
    for part in blocks(n_resamples, max(1, 1_000_000 // len(p))):
        b = part.stop - part.start
        uniform = draw_uniforms(b, len(p), unit, share, rng)
        step = rng.random((b, len(p)))
        # A few draws at once, so that what is made of them stays in the processor's cache.
        for few in blocks(b, max(1, 65_536 // len(p))):
            happened = uniform[few] < q
            within: Any = sizes[0]
            # Sizes differ only if a class has too few cases; the choice takes a quarter of the time.
            if sizes[1] != sizes[0]:
                within = np.where(happened, sizes[1], sizes[0])
            chosen = (step[few] * within).astype(np.intp)
            chosen += np.where(happened, starts[1], starts[0])
            cell = cell_of[chosen]
            cell += bin_of
            cell += np.arange(len(cell))[:, None] * width
            excess, weight = p - happened, None
            if weights.offset != 0.0:
                weight = np.where(happened, weights.positive, weights.negative)
                excess *= weight
                weight = weight.ravel()
            out = slice(part.start + few.start, part.start + few.stop)
            for sums, values in ((residual, excess.ravel()), (count, weight)):
                total = np.bincount(cell.ravel(), values, len(cell) * width)
                sums[out] = total.reshape(len(cell), n_strata + 1, n_bins)[:, :n_strata]
        advance(b / n_resamples)
    count[:, scarce] = 0.0
    return _draws(residual, count)


def _draws(residual: Float, count: Float) -> SelectionDraws:
    size = count.sum(axis=2)
    error = np.abs(residual).sum(axis=2)
    ece = np.where(size > 0, error / np.where(size > 0, size, 1.0), np.nan)
    residual[size <= 0] = np.nan  # in place: of many strata these are the largest arrays
    return SelectionDraws(residual, count, ece)


def _limit_sums(
    labels: Int,
    p: Float,
    code: NDArray[Any],
    times: Float,
    n_strata: int,
    n_bins: int,
    n_neighbours: int,
    weights: ClassWeights,
) -> tuple[Float, Float, Float, Float]:
    """Normal limit of every stratum's bin sums: mean, variance and expected number of cases, and slopes.

    The first three are (strata, bins). The slopes (strata, cases) are how much less a case adds on average
    if its label is drawn 1.

    Cases of equal p are as one: the neighbours of a case are drawn from all those of its p, or from
    those nearest to it where that are fewer than `n_neighbours`.
    """
    value, row = np.unique(p, return_inverse=True)
    place, bin_of = _logit(value), bin_index(value, n_bins=n_bins)
    q, w0, w1 = weights.in_sample(value), weights.negative, weights.positive
    mass = np.bincount(row, times, len(value))
    windows = []
    for label in (0, 1):
        alike = np.bincount(row[labels == label], times[labels == label], len(value))
        some = alike > 0
        ends = np.cumsum(alike)
        k = int(min(n_neighbours, ends[-1]))
        start = _nearest_window(place[some], ends[some].astype(np.int64), k, place)
        windows.append((ends, start, k))
    mean, variance = np.zeros((2, n_strata, n_bins))
    size, slope = np.zeros((n_strata, n_bins)), np.zeros((n_strata, len(p)))
    for s in range(n_strata):
        share = []
        for label, (ends, start, k) in enumerate(windows):
            mine = (labels == label) & (code == s)
            running = np.cumsum(np.bincount(row[mine], times[mine], len(value)))
            edges, counts = np.append(0.0, ends), np.append(0.0, running)
            inside = np.interp(start + k, edges, counts) - np.interp(start, edges, counts)
            share.append(inside / k)
        # The residual w (p - y*) counted in stratum s, with its chance there if y* is 0, and if it is 1.
        cases = ((w0 * value, (1.0 - q) * share[0]), (w1 * (value - 1.0), q * share[1]))
        first = sum(chance * residual for residual, chance in cases)
        second = sum(chance * residual**2 for residual, chance in cases)
        mean[s] = np.bincount(bin_of, mass * first, n_bins)
        variance[s] = np.bincount(bin_of, mass * (second - first**2), n_bins)
        within = w1 * q * share[1] + w0 * (1.0 - q) * share[0]
        size[s] = np.bincount(bin_of, mass * within, n_bins)
        slope[s] = (w0 * value * share[0] + w1 * (1.0 - value) * share[1])[row]
    return mean, variance, size, slope
