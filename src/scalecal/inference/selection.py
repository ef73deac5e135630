"""Strata made from the same votes as the label: what a calibrated model looks like in them.

Agreement and majority come from one set of votes. In a 4-3 split the majority is nearly a coin toss
given the case, while a calibrated prediction of the majority is sharper: even the best possible
model looks over-confident on low agreement and under-confident on high agreement. Two answers are
given here: a null distribution of each stratum's ECE that has this selection in it, and scores on
votes that had no part in forming the strata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import (
    Float,
    InputError,
    Int,
    as_rng,
    check_counts,
    check_groups,
    check_labels,
    check_positive_int,
    check_probs,
    check_same_length,
)
from scalecal.inference.units import NORMAL_95
from scalecal.metrics.arguments import blocks
from scalecal.metrics.binning import bin_index
from scalecal.metrics.proper import EPS
from scalecal.metrics.resampling import EXACT_CASES
from scalecal.votes import STRATA, split_panel, stratum_codes

__all__ = ["LeftOut", "leave_votes_out", "selection_null"]

_LOGIT_BOUND = 36.0  # beyond it a float64 probability is 0 or 1


def _logit(p: Float) -> Float:
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(p) - np.log1p(-p), -_LOGIT_BOUND, _LOGIT_BOUND))


def _nearest_window(sorted_values: Float, queries: Float, k: int) -> Int:
    """Start of the window of the k values of a sorted array nearest to each query.

    The k nearest are contiguous, so a binary search over window starts finds them: move right
    while the value leaving the window is farther away than the one entering it.
    """
    start = np.empty(len(queries), dtype=np.int64)
    block = 1 << 18  # bounds the memory of the search, whatever the number of queries
    for first in range(0, len(queries), block):
        query = queries[first : first + block]
        low = np.zeros(len(query), dtype=np.int64)
        high = np.full(len(query), len(sorted_values) - k, dtype=np.int64)
        while (low < high).any():
            middle = (low + high) // 2
            entering = np.minimum(middle + k, len(sorted_values) - 1)
            farther = query - sorted_values[middle] > sorted_values[entering] - query
            searching = low < high
            low = np.where(searching & farther, middle + 1, low)
            high = np.where(searching & ~farther, middle, high)
        start[first : first + block] = low
    return start


def selection_null(
    y: ArrayLike,
    probs: ArrayLike,
    codes: ArrayLike,
    *,
    n_strata: int,
    n_bins: int = 15,
    n_neighbours: int = 20,
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
) -> Float:
    """ECE of every stratum if the model were calibrated and strata depend on the label as they do.

    Draw y* ~ Bernoulli(p); give the case the stratum of a random one of the `n_neighbours` cases
    with label y* nearest to it in logit p; compute each stratum's ECE; repeat. Nothing is assumed
    about the readers. Above `EXACT_CASES` cases the bin sums are drawn from their normal limit.

    Parameters
    ----------
    y, probs
        Labels 0 / 1 and positive-class probabilities, (n,).
    codes
        Stratum number of each case, -1 for none.

    Returns
    -------
    (n_resamples, n_strata) array; NaN where a draw left a stratum empty.

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
    rng = as_rng(seed)
    # Equal predictions must not all share one window: break ties at random, far below any real gap.
    place = _logit(p) + 1e-7 * (rng.random(n) - 0.5)
    order = [np.flatnonzero(labels == v) for v in (0, 1)]
    if any(len(o) == 0 for o in order):
        return np.full((n_resamples, n_strata), np.nan)
    order = [o[np.argsort(place[o])] for o in order]
    k = [min(n_neighbours, len(o)) for o in order]
    start = [_nearest_window(place[o], place, kk) for o, kk in zip(order, k, strict=True)]
    bin_of = bin_index(p, n_bins=n_bins)
    sorted_codes = [code[o] for o in order]
    if n > EXACT_CASES:
        return _normal_limit(p, bin_of, sorted_codes, start, k, n_strata, n_bins, n_resamples, rng)
    return _by_cases(p, bin_of, sorted_codes, start, k, n_strata, n_bins, n_resamples, rng)


def _by_cases(
    p: Float,
    bin_of: Int,
    sorted_codes: list[NDArray[Any]],
    start: list[Int],
    k: list[int],
    n_strata: int,
    n_bins: int,
    n_resamples: int,
    rng: np.random.Generator,
) -> Float:
    n, width = len(p), (n_strata + 1) * n_bins  # one more stratum for cases that have none
    out = np.empty((n_resamples, n_strata))
    block = max(1, 1_000_000 // n)
    for first in range(0, n_resamples, block):
        b = min(block, n_resamples - first)
        drawn = rng.random((b, n)) < p
        step = rng.random((b, n))
        code = np.where(
            drawn,
            sorted_codes[1][start[1] + (step * k[1]).astype(np.int64)],
            sorted_codes[0][start[0] + (step * k[0]).astype(np.int64)],
        )
        cell = np.where(code < 0, n_strata, code).astype(np.int64) * n_bins + bin_of
        cell += np.arange(b)[:, None] * width
        shape = (b, n_strata + 1, n_bins)
        flat = cell.ravel()
        residual = np.bincount(flat, weights=(p - drawn).ravel(), minlength=b * width)
        count = np.bincount(flat, minlength=b * width).reshape(shape)[:, :n_strata].sum(axis=2)
        error = np.abs(residual.reshape(shape)[:, :n_strata]).sum(axis=2)
        out[first : first + b] = np.where(count > 0, error / np.maximum(count, 1), np.nan)
    return out


def _normal_limit(
    p: Float,
    bin_of: Int,
    sorted_codes: list[NDArray[Any]],
    start: list[Int],
    k: list[int],
    n_strata: int,
    n_bins: int,
    n_resamples: int,
    rng: np.random.Generator,
) -> Float:
    """Draw bin sums from the normal law with the exact mean and variance of `_by_cases`."""
    out = np.empty((n_resamples, n_strata))
    block = 1 << 18
    for s in range(n_strata):
        running = [np.concatenate([[0], np.cumsum(c == s, dtype=np.int32)]) for c in sorted_codes]
        mean, square, expected = np.zeros(n_bins), np.zeros(n_bins), 0.0
        for lo in range(0, len(p), block):
            part = slice(lo, lo + block)
            q0, q1 = (
                (r[st[part] + kk] - r[st[part]]) / kk
                for r, st, kk in zip(running, start, k, strict=True)
            )
            pp = p[part]
            here = bin_of[part]
            # residual p - y* counted in stratum s: p - 1 with chance p q1, p with chance (1 - p) q0
            first = pp * (1 - pp) * (q0 - q1)
            second = pp * (1 - pp) * ((1 - pp) * q1 + pp * q0)
            mean += np.bincount(here, weights=first, minlength=n_bins)
            square += np.bincount(here, weights=second - first**2, minlength=n_bins)
            expected += float((pp * q1 + (1 - pp) * q0).sum())
        sums = mean + np.sqrt(square) * rng.standard_normal((n_resamples, n_bins))
        out[:, s] = np.abs(sums).sum(axis=1) / expected if expected > 0 else np.nan
    return out


@dataclass(frozen=True)
class LeftOut:
    """Scores of one stratum on votes that had no part in forming it, averaged over splits.

    `gap` is the mean of p minus the share of held-out votes for the positive class;
    `overconfidence` is the same for whichever class the model prefers, with a normal 95 % interval
    over cases, or over groups where there are groups.
    """

    n: float
    vote_nll: float
    gap: float
    overconfidence: float
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
) -> dict[str, LeftOut]:
    """Stratify on one random part of each panel, score the other part; average over splits.

    Parameters
    ----------
    votes, n_raters
        Counts per class (n, C), or counts of the positive class with the panel's size.
    probs
        (n,) or (n, C).
    groups
        Patient, slide, ... of each case, which intervals then take as the independent units.

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
    p = check_probs(probs)
    counts = check_counts(votes, n_raters)
    n = check_same_length(votes=counts, probs=p)
    unit = check_groups(groups, n)
    table = np.column_stack([1 - p, p]) if p.ndim == 1 else p
    if table.shape[1] != counts.shape[1]:
        raise InputError(f"votes have {counts.shape[1]} classes but probs have {table.shape[1]}")
    usable = counts.sum(axis=1) >= 3
    if not usable.all():
        counts, table = counts[usable], table[usable]
        unit = None if unit is None else unit[usable]
    names = ("overall", *STRATA)
    sums = np.zeros((len(names), 4))
    if len(counts) == 0:
        return {name: LeftOut(0.0, np.nan, np.nan, np.nan) for name in names}
    rng = as_rng(seed)
    # How often each case fell into each stratum and its differences there, squared and added up by
    # case; by group only once all cases are in.
    squares = np.zeros((len(names), 3))
    by_group = None if unit is None else np.zeros((len(names), 2, int(unit.max()) + 1))
    for part in blocks(len(table), 1 << 17):
        own = _score_left_out(counts[part], table[part], sums, n_splits, rng)
        if unit is None or by_group is None:
            squares += _squares(own)
        else:
            for j, k in np.ndindex(own.shape[:2]):
                by_group[j, k] += np.bincount(unit[part], own[j, k], by_group.shape[2])
    if by_group is not None:
        squares = _squares(by_group)
    out = {}
    for name, total, square in zip(names, sums, squares, strict=True):
        if total[0] == 0:
            out[name] = LeftOut(0.0, np.nan, np.nan, np.nan)
            continue
        nll, gap, over = (float(v) for v in total[1:] / total[0])
        # A ratio of sums over units: differences, and how often they were counted.
        variance = square[2] - 2.0 * over * square[1] + over**2 * square[0]
        half = NORMAL_95 * float(np.sqrt(max(variance, 0.0)) / total[0])
        out[name] = LeftOut(total[0] / n_splits, nll, gap, over, over - half, over + half)
    return out


def _squares(own: Float) -> Float:
    """Sums over units of k k, k d and d d, of counts k and differences d: (strata, 3)."""
    k, d = own[:, 0], own[:, 1]
    return np.stack([(k * k).sum(axis=1), (k * d).sum(axis=1), (d * d).sum(axis=1)], axis=1)


def _score_left_out(
    counts: Int, table: Float, sums: Float, n_splits: int, rng: np.random.Generator
) -> Float:
    """Add the scores of a block of cases to the sums of all cases and of every stratum.

    Returns how often each case fell into each stratum, and the sum of its over-confidence there.
    """
    log_p = np.log(np.clip(table, EPS, 1.0 - EPS))
    top = table.argmax(axis=1)
    each = np.arange(len(table))
    own = np.zeros((1 + len(STRATA), 2, len(table)))
    for _ in range(n_splits):
        kept, scored = split_panel(counts, seed=rng)
        share = scored / scored.sum(axis=1, keepdims=True)
        values = (
            np.ones(len(table)),
            -(share * log_p).sum(axis=1),
            table[:, -1] - share[:, -1],
            table[each, top] - share[each, top],
        )
        stratum = stratum_codes(kept)
        for j, value in enumerate(values):
            sums[0, j] += value.sum()
            sums[1:, j] += np.bincount(stratum[stratum >= 0], value[stratum >= 0], len(STRATA))
        inside = np.flatnonzero(stratum >= 0)
        for row, index in ((0, each), (1 + stratum[inside], inside)):
            own[row, 0, index] += 1.0
            own[row, 1, index] += values[3][index]
    return own
