"""Strata made from the same votes as the label: what a calibrated model looks like in them.

Agreement and majority come from one set of votes. In a 4-3 split the majority is nearly a coin toss
given the case, while a calibrated prediction of the majority is sharper: even the best possible
model looks over-confident on low agreement and under-confident on high agreement. Two answers are
given here: a null distribution of each stratum's ECE that has this selection in it, and scores on
votes that had no part in forming the strata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import (
    Float,
    InputError,
    Int,
    as_rng,
    check_labels,
    check_positive_int,
    check_probs,
    check_same_length,
)
from scalecal.inference.units import NORMAL_95, standard_errors
from scalecal.metrics.arguments import as_table, blocks, read_counts, read_votes
from scalecal.metrics.binning import bin_index
from scalecal.metrics.grouping import draw_uniforms, pair_covariance, read_groups, too_few
from scalecal.metrics.proper import EPS
from scalecal.metrics.resampling import EXACT_CASES, draw_normal, read_dependence
from scalecal.votes import STRATA, split_panel, stratum_codes

_LOGIT_BOUND = 36.0  # beyond it a float64 probability is 0 or 1


def _logit(p: Float) -> Float:
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(p) - np.log1p(-p), -_LOGIT_BOUND, _LOGIT_BOUND))


def _nearest_window(sorted_values: Float, queries: Float, k: int, ends: Int | None = None) -> Int:
    """Start of the window of the k values of a sorted array nearest to each query.

    The k nearest are contiguous, so a binary search over window starts finds them: move right
    while the value leaving the window is farther away than the one entering it. Where values stand
    for several cases, `ends` is the number of cases up to each of them, and starts count cases.
    """
    n = len(sorted_values) if ends is None else int(ends[-1])

    def value(case: Int) -> Float:
        index = case if ends is None else np.searchsorted(ends, case, side="right")
        return sorted_values[index]

    start = np.empty(len(queries), dtype=np.int64)
    for part in blocks(len(queries), 1 << 18):
        query = queries[part]
        low = np.zeros(len(query), dtype=np.int64)
        high = np.full(len(query), n - k, dtype=np.int64)
        while (low < high).any():
            middle = (low + high) // 2
            farther = query - value(middle) > value(np.minimum(middle + k, n - 1)) - query
            searching = low < high
            low = np.where(searching & farther, middle + 1, low)
            high = np.where(searching & ~farther, middle, high)
        start[part] = low
    return start


def selection_null(
    y: ArrayLike,
    probs: ArrayLike,
    codes: ArrayLike,
    *,
    n_strata: int,
    groups: ArrayLike | None = None,
    n_bins: int = 15,
    n_neighbours: int = 20,
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> Float:
    """ECE of every stratum if the model were calibrated and strata depend on the label as they do.

    Draw y* ~ Bernoulli(p); give the case the stratum of a random one of the `n_neighbours` cases
    with label y* nearest to it in logit p; compute each stratum's ECE; repeat. Nothing is assumed
    about the readers. Above `EXACT_CASES` cases the bin sums are drawn from their normal limit. With
    groups the drawn labels go together within a group as far as the labels do
    (`scalecal.metrics.grouping`).

    Parameters
    ----------
    y, probs
        Labels 0 / 1 and positive-class probabilities, (n,).
    codes
        Stratum number of each case, -1 for none.
    groups
        Patient, slide, ... of each case.
    sample_weight
        How many cases each row stands for.

    Returns
    -------
    (n_resamples, n_strata) array; NaN where a draw left a stratum empty, and in a stratum of too few
    groups.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=300)
    >>> y = (rng.uniform(size=300) < p).astype(int)
    >>> selection_null(y, p, rng.integers(3, size=300), n_strata=3, n_resamples=10).shape
    (10, 3)
    """
    p = check_probs(probs)
    labels = check_labels(y)
    code = np.asarray(codes)
    n = check_same_length(y=labels, probs=p, codes=code)
    check_positive_int(n_neighbours, "n_neighbours")
    if p.ndim != 1:
        raise InputError("selection_null takes positive-class probabilities, shape (n,)")
    times = read_counts(sample_weight, n)
    rng = as_rng(seed)
    unit, (share, _) = read_dependence(p, labels, groups, n_bins=n_bins, sample_weight=times)
    if unit is not None:
        scarce = np.array([bool(too_few(unit[code == s])) for s in range(n_strata)])
    else:
        scarce = np.zeros(n_strata, dtype=bool)
    out = np.full((n_resamples, n_strata), np.nan)
    if labels.min() == labels.max() or scarce.all():
        return out
    if (n if times is None else times.sum()) > EXACT_CASES:
        limit = _limit_sums(labels, p, code, times, n_strata, n_bins, n_neighbours)
        cell = bin_index(p, n_bins=n_bins)
        for s in np.flatnonzero((limit.size > 0) & ~scarce):
            spread = np.diag(np.maximum(limit.variance[s], 0.0))
            if unit is not None and share > 0.0:
                spread += share * pair_covariance(p, unit, cell, n_bins, limit.slope[s])
            sums = draw_normal(limit.mean[s], spread, n_resamples, rng)
            out[:, s] = np.abs(sums).sum(axis=1) / limit.size[s]
        return out
    if times is not None:
        labels, p, code = (np.repeat(a, times.astype(np.int64)) for a in (labels, p, code))
    # Equal predictions must not all share one window: break ties at random, far below any real gap.
    place = _logit(p) + 1e-7 * (rng.random(len(p)) - 0.5)
    neighbours: list[tuple[NDArray[Any], Int, int]] = []  # by label: codes in order, windows, size
    for label in (0, 1):
        order = np.flatnonzero(labels == label)
        order = order[np.argsort(place[order])]
        k = min(n_neighbours, len(order))
        neighbours.append((code[order], _nearest_window(place[order], place, k), k))
    bin_of, width = bin_index(p, n_bins=n_bins), (n_strata + 1) * n_bins
    for part in blocks(n_resamples, max(1, 1_000_000 // len(p))):
        b = part.stop - part.start
        drawn = draw_uniforms(b, len(p), unit, share, rng) < p
        step = rng.random((b, len(p)))
        by_label = [c[start + (step * k).astype(np.int64)] for c, start, k in neighbours]
        own = np.where(drawn, by_label[1], by_label[0])
        # One more stratum for cases that have none.
        cell = np.where(own < 0, n_strata, own).astype(np.int64) * n_bins + bin_of
        flat = (cell + np.arange(b)[:, None] * width).ravel()
        shape = (b, n_strata + 1, n_bins)
        residual = np.bincount(flat, weights=(p - drawn).ravel(), minlength=b * width)
        count = np.bincount(flat, minlength=b * width).reshape(shape)[:, :n_strata].sum(axis=2)
        error = np.abs(residual.reshape(shape)[:, :n_strata]).sum(axis=2)
        filled = (count > 0) & ~scarce
        out[part] = np.where(filled, error / np.maximum(count, 1), np.nan)
    return out


class _Limit(NamedTuple):
    """Normal limit of the strata's bin sums: (strata, bins), and each stratum's expected size.

    `slope` (strata, cases) is how much less a case adds on average where its label is drawn 1.
    """

    mean: Float
    variance: Float
    size: Float
    slope: Float


def _limit_sums(
    labels: Int,
    p: Float,
    code: NDArray[Any],
    times: Float | None,
    n_strata: int,
    n_bins: int,
    n_neighbours: int,
) -> _Limit:
    """Normal limit of every stratum's bin sums.

    Cases of equal p are as one: the neighbours of a case are drawn from all those of its p, or from
    those nearest to it where that are fewer than `n_neighbours`.
    """
    value, row = np.unique(p, return_inverse=True)
    place, bin_of = _logit(value), bin_index(value, n_bins=n_bins)
    times = np.ones(len(p)) if times is None else times
    mass = np.bincount(row, times, len(value))
    windows = []
    for label in (0, 1):
        own = np.bincount(row[labels == label], times[labels == label], len(value))
        some = own > 0
        ends = None if own.max() == 1 else np.cumsum(own[some]).astype(np.int64)
        k = int(min(n_neighbours, own.sum()))
        windows.append((np.cumsum(own), _nearest_window(place[some], place, k, ends), k))
    mean, variance = np.zeros((2, n_strata, n_bins))
    size, slope = np.zeros(n_strata), np.zeros((n_strata, len(p)))
    for s in range(n_strata):
        share = []
        for label, (ends, start, k) in enumerate(windows):
            mine = (labels == label) & (code == s)
            running = np.cumsum(np.bincount(row[mine], times[mine], len(value)))
            edges, counts = np.append(0.0, ends), np.append(0.0, running)
            inside = np.interp(start + k, edges, counts) - np.interp(start, edges, counts)
            share.append(inside / k)
        q0, q1 = share
        # The residual p - y* counted in stratum s: p - 1 with chance p q1, p with chance (1 - p) q0.
        first = value * (1.0 - value) * (q0 - q1)
        second = value * (1.0 - value) * ((1.0 - value) * q1 + value * q0)
        mean[s] = np.bincount(bin_of, mass * first, n_bins)
        variance[s] = np.bincount(bin_of, mass * (second - first**2), n_bins)
        size[s] = mass @ (value * q1 + (1.0 - value) * q0)
        slope[s] = (value * q0 + (1.0 - value) * q1)[row]
    return _Limit(mean, variance, size, slope)


@dataclass(frozen=True)
class LeftOut:
    """Scores of one stratum on votes that had no part in forming it, averaged over splits.

    `gap` is the mean of p minus the share of held-out votes for the positive class;
    `overconfidence` is the same for whichever class the model prefers, with a 95 % interval: normal
    over cases, by Student's t over groups where there are groups (NaN where these are too few).
    """

    n: float = 0.0
    vote_nll: float = np.nan
    gap: float = np.nan
    overconfidence: float = np.nan
    overconfidence_low: float = np.nan
    overconfidence_high: float = np.nan


def leave_votes_out(
    votes: ArrayLike,
    probs: ArrayLike,
    n_raters: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    n_splits: int = 20,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> dict[str, LeftOut]:
    """Stratify on one random part of each panel, score the other part; average over splits.

    For weighted cases of two classes, and above `EXACT_CASES`, the average is over all splits, which
    needs no draws.

    Parameters
    ----------
    votes, n_raters
        Counts per class (n, C), or counts of the positive class with the panel's size.
    probs
        (n,) or (n, C).
    groups
        Patient, slide, ... of each case, which intervals then take as the independent units.
    sample_weight
        How many cases each row stands for; not with groups.

    Returns
    -------
    Scores for "overall", "high", "medium" and "low". A case needs two votes in the first part and one
    in the second, so panels of three or more.

    Examples
    --------
    >>> scores = leave_votes_out([4, 7, 0, 3], [0.6, 0.9, 0.1, 0.5], 7)
    >>> list(scores)
    ['overall', 'high', 'medium', 'low']
    """
    counts, p = read_votes(votes, n_raters, probs)
    n = len(p)
    unit = read_groups(groups, n)
    table = as_table(p)
    times = read_counts(sample_weight, n)
    usable = counts.sum(axis=1) >= 3
    all_splits = table.shape[1] == 2 and (times is not None or n > EXACT_CASES)
    if times is not None and not all_splits:
        usable, times = np.repeat(np.flatnonzero(usable), times[usable].astype(np.int64)), None
    counts, table = counts[usable], table[usable]
    unit = None if unit is None else unit[usable]
    weight = np.ones(len(counts)) if times is None else times[usable]
    names = ("overall", *STRATA)
    if len(counts) == 0:
        return dict.fromkeys(names, LeftOut())
    rng = as_rng(seed)
    sums, squares = np.zeros((len(names), 4)), np.zeros((len(names), 3))
    by_group = None if unit is None else np.zeros((len(names), 2, int(unit.max()) + 1))
    for part in blocks(len(table), 1 << 17):
        if all_splits:
            terms = _over_all_splits(counts[part], table[part])
        else:
            terms = _over_random_splits(counts[part], table[part], n_splits, rng)
        sums += terms @ weight[part]
        own = terms[:, [0, 3]]
        if unit is None or by_group is None:
            squares += _squares(own, weight[part])
        else:  # by group only once all cases are in
            for j, k in np.ndindex(own.shape[:2]):
                by_group[j, k] += np.bincount(unit[part], own[j, k], by_group.shape[2])
    steps = np.full(len(names), NORMAL_95)
    if by_group is not None:
        squares = _squares(by_group, np.ones(by_group.shape[2]))
        steps = np.array([standard_errors(by_group[j, 0]) for j in range(len(names))])
    out = dict.fromkeys(names, LeftOut())
    for name, total, square, step in zip(names, sums, squares, steps, strict=True):
        if total[0] == 0:
            continue
        nll, gap, over = (float(v) for v in total[1:] / total[0])
        # A ratio of sums over units: differences, and how often they were counted.
        variance = square[2] - 2.0 * over * square[1] + over**2 * square[0]
        half = float(step * np.sqrt(max(variance, 0.0)) / total[0])
        out[name] = LeftOut(float(total[0]), nll, gap, over, over - half, over + half)
    return out


def _squares(own: Float, weight: Float) -> Float:
    """Sums over units of k k, k d and d d, of counts k and differences d: (strata, 3)."""
    k, d = own[:, 0], own[:, 1]
    return np.stack([(k * k) @ weight, (k * d) @ weight, (d * d) @ weight], axis=1)


def _over_random_splits(
    counts: Int, table: Float, n_splits: int, rng: np.random.Generator
) -> Float:
    """What each case adds, averaged over splits: (all cases and strata, 4, cases).

    The four: how often the case falls into the stratum, and its NLL, gap and over-confidence there.
    """
    log_p = np.log(np.clip(table, EPS, 1.0 - EPS))
    top = table.argmax(axis=1)
    each = np.arange(len(table))
    out = np.zeros((1 + len(STRATA), 4, len(table)))
    for _ in range(n_splits):
        kept, scored = split_panel(counts, seed=rng)
        share = scored / scored.sum(axis=1, keepdims=True)
        values = np.stack(
            [
                np.ones(len(table)),
                -(share * log_p).sum(axis=1),
                table[:, -1] - share[:, -1],
                table[each, top] - share[each, top],
            ]
        )
        stratum = stratum_codes(kept)
        inside = np.flatnonzero(stratum >= 0)
        out[0] += values
        out[1 + stratum[inside], :, inside] += values[:, inside].T
    return out / n_splits


def _over_all_splits(counts: Int, table: Float) -> Float:
    """The same averaged over all splits of panels of two classes.

    Given m votes of which v are positive, the positives among those kept are hypergeometric.
    """
    from scipy.stats import hypergeom

    p = table[:, 1]
    log_q, log_p = np.log(np.clip(table, EPS, 1.0 - EPS)).T
    positive = p > 0.5  # a tie goes to the first class, as above
    out = np.zeros((1 + len(STRATA), 4, len(p)))
    size = counts.sum(axis=1)
    width = int(size.max()) + 1
    panel = size * width + counts[:, 1]
    for number in np.flatnonzero(np.bincount(panel)):
        here = np.flatnonzero(panel == number)
        m, v = divmod(int(number), width)
        kept = (m + 1) // 2
        drawn = np.arange(max(0, kept - (m - v)), min(kept, v) + 1)
        chance = hypergeom.pmf(drawn, m, v, kept)
        share = (v - drawn) / (m - kept)
        stratum = stratum_codes(np.column_stack([kept - drawn, drawn]))
        for s in range(1 + len(STRATA)):
            use = stratum == s - 1 if s else np.ones(len(drawn), dtype=bool)
            k, f = float(chance[use].sum()), float((chance * share)[use].sum())
            side = np.where(positive[here], k * p[here] - f, k * (1.0 - p[here]) - (k - f))
            nll = -(f * log_p[here] + (k - f) * log_q[here])
            out[s][:, here] = np.stack([np.full(len(here), k), nll, k * p[here] - f, side])
    return out
