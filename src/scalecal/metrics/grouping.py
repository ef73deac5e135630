"""Cases that come in groups: several from one patient, slide or site.

Cases of one group go together beyond what their probabilities explain, so that whatever takes them as
independent is too sure. Two tools keep groups whole here. Neither changes anything where every case is
a group of its own.

Floors and nulls of ECE draw labels whose law is that of the probabilities case by case, and which go
together within a group: a case takes a random number of its own or, with chance sqrt(tau), its group's,
and is positive where that lies below p. Two cases of one group are then correlated by
``tau (min(p, p') - p p')``. The labels themselves say how large tau is (`Dependence`).

Tests on sums of residuals flip the signs of what whole groups add (`flipped`): for a calibrated model
these sums have mean zero and are independent between groups, whatever their law within.

References
----------
Lunn, Davies (1998), Biometrika 85, 487-490 (correlated binary variables from shared ones).
Hemerik, Goeman, Finos (2020), JRSS B 82, 841-864 (tests by flipping the signs of scores).
Cameron, Gelbach, Miller (2008), Review of Economics and Statistics 90, 414-427 (the same for groups).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import Float, InputError, Int, check_groups
from scalecal.limits import MIN_GROUPS as MIN_GROUPS
from scalecal.metrics.arguments import blocks

MAX_UNITS = 2_000
"""Cases or groups that are resampled at most; more are pooled at random into this many."""


def read_groups(groups: ArrayLike | None, n: int, weights: Float | None = None) -> Int | None:
    """Return the groups of n cases as codes, or None if there are none or every case is alone.

    Codes are in the order of appearance, so that draws do not depend on how groups are named.

    Examples
    --------
    >>> read_groups(["b", "a", "b"], 3)
    array([0, 1, 0])
    >>> read_groups(["b", "a", "c"], 3) is None
    True
    """
    code = check_groups(groups, n)
    if code is None:
        return None
    if weights is not None:
        raise InputError("sample_weight counts independent cases: it cannot go with groups")
    first = np.unique(code, return_index=True)[1]
    return None if len(first) == n else np.asarray(np.argsort(np.argsort(first))[code])


def too_few(groups: Int | None) -> str:
    """Say why so few groups have no floor, null, test or interval; "" if there are enough.

    Groups of one case each are independent cases, of which any number will do.

    Examples
    --------
    >>> too_few(np.array([0, 0, 1, 2]))
    'too few groups (3, at least 8 are needed)'
    >>> too_few(np.array([0, 1, 2]))
    ''
    """
    if groups is None:
        return ""
    count = len(np.unique(groups))
    if count >= MIN_GROUPS or count == len(groups):
        return ""
    return f"too few groups ({count}, at least {MIN_GROUPS} are needed)"


def group_totals(values: Float, groups: Int, cell: Int | None = None, n_cells: int = 1) -> Float:
    """Sum values over the cases of each group, and of each cell (bin) within it: (groups, n_cells).

    Of values (n, k) the sums of each column stand side by side: (groups, k n_cells).
    """
    if values.ndim > 1:
        return np.column_stack([group_totals(v, groups, cell, n_cells) for v in values.T])
    count = int(groups.max()) + 1
    index = groups * n_cells + cell if cell is not None else groups
    flat = np.bincount(index, weights=values, minlength=count * n_cells)
    return flat.astype(np.float64, copy=False).reshape(count, n_cells)


def pair_covariance(
    p: Float, groups: Int, cell: Int, n_cells: int, weight: Float | None = None
) -> Float:
    """Sum ``w w' (min(p, p') - p p')`` over ordered pairs of cases of one group: (n_cells, n_cells).

    Entry (a, b) is of the pairs whose first case lies in cell a and the second in cell b. Cells must
    be in the order of p, as bins are.
    """
    below, above = p, 1.0 - p  # the smaller of two p counts as p, the larger as 1 - p
    if weight is not None:
        below, above = weight * below, weight * above
    across = group_totals(below, groups, cell, n_cells).T @ group_totals(
        above, groups, cell, n_cells
    )
    out = np.triu(across, 1)
    out += out.T
    order = np.lexsort((p, cell, groups))
    run = (groups * n_cells + cell)[order]
    first = np.flatnonzero(np.append(True, run[1:] != run[:-1]))
    total = np.cumsum(below[order])
    before = total - below[order]  # of the cases ahead, less those ahead of the own run
    before -= np.repeat(before[first], np.diff(first, append=len(p)))
    out[np.diag_indices(n_cells)] = 2.0 * np.bincount(cell[order], before * above[order], n_cells)
    return out


class Dependence(NamedTuple):
    """How far labels of one group go together.

    `share` is tau of the module's text, between 0 and 1; `pairs` is `pair_covariance` by bins, so that
    ``share * pairs`` is what dependence adds to the covariance of the bins' sums of residuals.
    """

    share: float
    pairs: Float


def dependence(
    y: NDArray[np.generic], p: Float, groups: Int | None, cell: Int, n_bins: int
) -> Dependence:
    r"""Estimate how far labels of one group go together, by moments.

    The products of residuals of two cases of one group, less those of two cases of different groups in
    the same bins, which miscalibration makes but dependence does not:

    .. math:: \tau = \sum_{ab} (W_{ab} - N_{ab} D_{ab} / M_{ab}) / \sum_{ab} K_{ab}

    with W, D the sums of products over pairs of cases of one group and of different groups in bins a and
    b, N, M the numbers of these pairs, and K as `pair_covariance`. Kept between 0 and 1; 0 without groups,
    and if they are too few to tell.

    Examples
    --------
    >>> y, p = np.array([0, 0, 1, 1] * 20), np.full(80, 0.5)
    >>> dependence(y, p, np.arange(80) // 2, np.zeros(80, int), 1).share
    1.0
    >>> dependence(y, p, np.arange(80) // 4, np.zeros(80, int), 1).share
    0.0
    """
    if groups is None or too_few(groups):
        return Dependence(0.0, np.zeros((n_bins, n_bins)))
    residual = p - np.asarray(y, dtype=np.float64)
    sums = group_totals(residual, groups, cell, n_bins)
    size = group_totals(np.ones(len(p)), groups, cell, n_bins)
    by_group, total = sums.T @ sums, sums.sum(axis=0)
    same, n = size.T @ size, size.sum(axis=0)
    others = np.outer(n, n) - same
    apart = np.where(others > 0, np.outer(total, total) - by_group, 0.0)
    rival = apart / np.maximum(others, 1.0)
    within = by_group - np.diag(np.bincount(cell, residual**2, n_bins))
    excess = float((within - (same - np.diag(n)) * rival).sum())
    pairs = pair_covariance(p, groups, cell, n_bins)
    largest = float(pairs.sum())
    if largest <= 0.0:
        return Dependence(0.0, pairs)
    return Dependence(float(np.clip(excess / largest, 0.0, 1.0)), pairs)


def draw_uniforms(
    n_draws: int, n: int, groups: Int | None, share: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Draw uniform numbers (n_draws, n); with chance sqrt(share) a case takes its group's.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> drawn = draw_uniforms(9000, 3, np.array([0, 0, 1]), 0.25, rng)
    >>> np.corrcoef(drawn.T).round(2).tolist()[0]
    [1.0, 0.25, -0.01]
    """
    alone = rng.random((n_draws, n), dtype=np.float32)
    if groups is None or share == 0.0:
        return alone
    common = rng.random((n_draws, int(groups.max()) + 1), dtype=np.float32)
    takes = rng.random((n_draws, n), dtype=np.float32) < np.sqrt(share)
    return np.where(takes, common[:, groups], alone)


def pooled(groups: Int, rng: np.random.Generator) -> Int:
    """Return the groups, or at most `MAX_UNITS` random pools of whole groups."""
    count = int(groups.max()) + 1
    if count <= MAX_UNITS:
        return groups
    return np.asarray((rng.permutation(count) % MAX_UNITS)[groups])


def flipped(sums: Float, n_resamples: int, rng: np.random.Generator) -> Float:
    """Add up what groups add, each with a random sign: (groups, m) in, (n_resamples, m) out.

    Examples
    --------
    >>> flipped(np.array([[1.0], [2.0]]), 5, np.random.default_rng(0)).ravel().tolist()
    [3.0, -1.0, -3.0, -3.0, 1.0]
    """
    out = np.empty((n_resamples, sums.shape[1]))
    for part in blocks(n_resamples, max(1, 4_000_000 // len(sums))):
        shape = (part.stop - part.start, len(sums))
        out[part] = (2.0 * rng.integers(2, size=shape) - 1.0) @ sums
    return out


def rank_p(drawn: Float, observed: float) -> float:
    """Return the share of draws as large as what was observed, itself counted among them.

    Few cases or groups make ties, which rounding must not break.

    Examples
    --------
    >>> rank_p(np.arange(99.0), 95.0)
    0.05
    """
    near = 1e-9 * max(1.0, abs(observed))
    return (1 + int((drawn >= observed - near).sum())) / (len(drawn) + 1)


def quadratic_p(drawn: Float, weight: NDArray[np.floating[Any]], observed: float) -> float:
    """`rank_p` of the quadratic form ``d' W d`` of each draw d, a row of `drawn`.

    Examples
    --------
    >>> quadratic_p(np.arange(19.0)[:, None], np.eye(1), 324.0)
    0.1
    """
    return rank_p(((drawn @ weight) * drawn).sum(axis=1), observed)
