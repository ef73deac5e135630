"""The premise of synthetic agreement: does the way between two anchors pass through hard cases?

Synthetic agreement takes the interpolation weight for a vote share. Where real votes are known, that
can be looked at: do votes follow a case's position between the anchors, beyond what the label alone
says, and do the real cases next to an interpolate have the vote share it is given?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import Float, InputError, Int, as_float, as_rng, check_counts, check_labels
from scalecal.inference.units import interval

__all__ = ["AxisCheck", "NeighbourCheck", "axis_position", "check_axis", "check_neighbours"]


def axis_position(X: ArrayLike, negative: ArrayLike, positive: ArrayLike) -> Float:
    """Position of each case on the line from the negative to the positive anchors' mean: 0 to 1.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 5.0]])
    >>> axis_position(X, [0], [1]).tolist()
    [0.0, 1.0, 0.5]
    """
    rows = as_float(X, "X")
    start = rows[np.asarray(negative)].mean(axis=0)
    way = rows[np.asarray(positive)].mean(axis=0) - start
    length = float(way @ way)
    if length == 0:
        raise InputError("the anchors of both classes have the same mean: there is no axis")
    return np.asarray((rows - start) @ way / length)


def _ranks(values: Float) -> Float:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), dtype=np.float64)


def _within(ranks: Float, y: Int, weight: Float) -> Float:
    """Ranks less their (weighted) mean in the case's class."""
    total = np.bincount(y, weight * ranks)
    size = np.maximum(np.bincount(y, weight), 1e-300)
    return np.asarray(ranks - (total / size)[y])


def _correlation(a: Float, b: Float, weight: Float) -> float:
    scale = np.sqrt((weight * a * a).sum() * (weight * b * b).sum())
    return float((weight * a * b).sum() / scale) if scale > 0 else float("nan")


@dataclass(frozen=True)
class AxisCheck:
    """Rank correlation of votes with position on the anchor axis.

    `overall` has the label's part in it; `within` is what is left inside the classes, and `low`,
    `high` its 95 % interval by bootstrap over cases.
    """

    overall: float
    within: float
    low: float
    high: float
    n: int


def check_axis(
    X: ArrayLike,
    y: ArrayLike,
    counts: ArrayLike,
    anchors: Mapping[int, Int],
    *,
    n_resamples: int = 500,
    seed: int = 0,
) -> AxisCheck:
    """Ask whether votes follow the position between the anchors, the anchors themselves left out.

    Spearman's correlation of the vote share with `axis_position`, over all cases and within classes:
    ranks are taken within each class and centred there, so that a probe which merely tells the classes
    apart scores zero.

    Parameters
    ----------
    counts
        (n, 2) votes per class.
    anchors
        Class 0 and 1 to row numbers.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> t = rng.normal(size=400)
    >>> v = rng.binomial(7, 1 / (1 + np.exp(-3 * t)))
    >>> X = np.column_stack([t, rng.normal(size=400)])
    >>> order = np.argsort(t)
    >>> found = check_axis(X, v >= 4, np.column_stack([7 - v, v]), {0: order[:5], 1: order[-5:]})
    >>> found.within > 0.3
    True
    """
    labels, votes = check_labels(np.asarray(y).astype(np.int64)), check_counts(counts, None)
    place = axis_position(X, anchors[0], anchors[1])
    kept = votes.sum(axis=1) > 0
    kept[np.concatenate([np.asarray(anchors[0]), np.asarray(anchors[1])])] = False
    share = votes[kept, 1] / votes[kept].sum(axis=1)
    t, label = place[kept], labels[kept]
    n = len(t)
    if n < 3:
        return AxisCheck(*(float("nan"),) * 4, n)
    one = np.ones(n)
    a, b = _ranks(t), _ranks(share)
    overall = _correlation(a - a.mean(), b - b.mean(), one)
    inner_a, inner_b = np.empty(n), np.empty(n)
    for c in np.unique(label):
        here = label == c
        inner_a[here], inner_b[here] = _ranks(t[here]), _ranks(share[here])

    def within(weight: Float) -> float:
        return _correlation(
            _within(inner_a, label, weight), _within(inner_b, label, weight), weight
        )

    rng = as_rng(seed)
    drawn = [
        within(np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64))
        for _ in range(n_resamples)
    ]
    low, high = interval(np.array(drawn))
    return AxisCheck(overall, within(one), low, high, n)


@dataclass(frozen=True, eq=False)
class NeighbourCheck:
    """Vote share of the real cases nearest to each interpolate, against the share it stands for.

    `slope` is that of the neighbours' vote share on the interpolate's own (1: it is what it says; 0:
    it says nothing), `low` and `high` its 95 % interval by bootstrap over real cases. `levels` and
    `shares` are its means by level; `disagreement` the neighbours' mean 4 f (1 - f) there: near zero
    in the middle means that clear cases of both kinds are mixed, not that hard cases were met.
    """

    slope: float
    low: float
    high: float
    n: int
    levels: Float
    shares: Float
    disagreement: Float


def check_neighbours(
    X: ArrayLike,
    counts: ArrayLike,
    anchors: Mapping[int, Int],
    *,
    n_raters: int = 7,
    n_neighbours: int = 10,
    n_resamples: int = 500,
    seed: int = 0,
) -> NeighbourCheck:
    """Ask whether the real cases next to an interpolate are as contested as it is said to be.

    All pairs of anchors at the levels k / n_raters; neighbours by Euclidean distance among the cases
    with votes that are no anchors.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> t = rng.uniform(-1, 1, size=800)
    >>> v = rng.binomial(7, (t + 1) / 2)
    >>> X = np.column_stack([t, 0.1 * rng.normal(size=800)])
    >>> order = np.argsort(t)
    >>> found = check_neighbours(X, np.column_stack([7 - v, v]), {0: order[:5], 1: order[-5:]})
    >>> found.low > 0.5
    True
    """
    from sklearn.neighbors import NearestNeighbors

    rows, votes = as_float(X, "X"), check_counts(counts, None)
    negative, positive = np.asarray(anchors[0]), np.asarray(anchors[1])
    kept = votes.sum(axis=1) > 0
    kept[np.concatenate([negative, positive])] = False
    index = np.flatnonzero(kept)
    levels = np.arange(1, n_raters) / n_raters
    if len(index) < n_neighbours:
        nan, empty = float("nan"), np.full(len(levels), np.nan)
        return NeighbourCheck(nan, nan, nan, len(index), levels, empty, empty)
    first, second, level = (
        part.ravel() for part in np.meshgrid(positive, negative, levels, indexing="ij")
    )
    first, second = first.astype(np.int64), second.astype(np.int64)
    made = level[:, None] * rows[first] + (1 - level[:, None]) * rows[second]
    search = NearestNeighbors(n_neighbors=n_neighbours).fit(rows[index])
    near: NDArray[np.int64] = search.kneighbors(made, return_distance=False)
    share = votes[index, 1] / votes[index].sum(axis=1)
    centred = level - level.mean()

    def slope(weight: Float) -> float:
        mass = weight[near]
        total = mass.sum(axis=1)
        met = total > 0
        found = (mass * share[near]).sum(axis=1)[met] / total[met]
        x = centred[met] - centred[met].mean()
        return float(x @ found / (x @ x))

    rng, n = as_rng(seed), len(index)
    drawn = [
        slope(np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64))
        for _ in range(n_resamples)
    ]
    low, high = interval(np.array(drawn))
    code = np.rint(level * n_raters).astype(np.int64) - 1
    size = np.bincount(code)
    means = np.bincount(code, share[near].mean(axis=1)) / size
    contested = 4 * share * (1 - share)
    disagreement = np.bincount(code, contested[near].mean(axis=1)) / size
    return NeighbourCheck(slope(np.ones(n)), low, high, n, levels, means, disagreement)
