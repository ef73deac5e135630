"""Splits into training, validation and test parts: stratified, and never through a group.

Cases without groups are dealt class by class, so parts have their share of every class to within a
case or so. Groups (patients, slides) are kept whole: of many random orders of the groups, cut at
the shares, the best is taken and then improved by moving and swapping groups for as long as the
parts' sizes and class counts come closer to their targets.
"""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import (
    Float,
    InputError,
    Int,
    ScalecalWarning,
    as_float,
    as_names,
    as_rng,
    check_choice,
    check_groups,
    check_inside,
    check_positive_int,
    refuse,
)

__all__ = ["PARTS", "folds", "hold_out", "split"]

PARTS = ("train", "val", "test")
"""Names of the three parts, in the order of `shares`."""

_STARTS = 25  # random orders of the groups tried
_MAX_STEPS = 300  # moves or swaps of groups after that
_SWAPS = 20_000  # random pairs of groups tried when no move helps
_CLOSE = 0.01  # mean misfit per cell that is good enough: one case where a hundred are due
_LEAST = 1e-9  # a gain below this is rounding
_LACKING = 1e3  # price of a missing class, in multiples of the part's size
_EMPTY = 1e15  # price of an empty part


def split(
    y: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    shares: Sequence[float] = (0.7, 0.1, 0.2),
    seed: int | np.random.Generator | None = 0,
    stratify: bool = True,
) -> NDArray[np.str_]:
    """Assign each case to ``"train"``, ``"val"`` or ``"test"``.

    Parameters
    ----------
    y : array of shape (n,)
        Class labels, numbers or names.
    groups : array of shape (n,), optional
        Cases of one group go to one part.
    shares : three numbers summing to 1
        Share of the cases in each part; 0 leaves a part empty.
    seed : int, Generator or None
        Randomness.
    stratify : bool
        Give each part every class in proportion. False: plain random (groups still kept whole).

    Returns
    -------
    ndarray of str, shape (n,)

    Raises
    ------
    InputError
        If there are fewer cases, or fewer groups, than parts.

    Warns
    -----
    ScalecalWarning
        If stratified parts cannot all have every class: a class with fewer cases (or groups) than
        parts goes to the parts with the largest shares first.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.repeat([0, 1], [60, 40])
    >>> part = split(y)
    >>> [(name, int(np.sum(part == name)), float(y[part == name].mean())) for name in PARTS]
    [('train', 70, 0.4), ('val', 10, 0.4), ('test', 20, 0.4)]
    """
    parts = as_float(shares, "shares")
    if parts.shape != (len(PARTS),):
        raise InputError(
            f"shares must be three numbers (train, val, test), got {reprlib.repr(shares)}"
        )
    codes = _assign(y, groups, parts, stratify, as_rng(seed), PARTS)
    return np.array(PARTS)[codes]


def hold_out(
    y: ArrayLike,
    *,
    share: float = 0.1,
    groups: ArrayLike | None = None,
    stratify: bool = True,
    seed: int | np.random.Generator | None = 0,
) -> tuple[Int, Int]:
    """Row numbers of the cases kept and of those held out, each ascending.

    As `split`, for two parts; `share` is what is held out.

    Examples
    --------
    >>> kept, held = hold_out([0, 1] * 10, share=0.2)
    >>> len(kept), len(held)
    (16, 4)
    """
    share = check_inside(share, "share")
    both = np.array([1.0 - share, share])
    codes = _assign(y, groups, both, stratify, as_rng(seed), ("kept", "held-out"))
    return np.flatnonzero(codes == 0), np.flatnonzero(codes == 1)


def folds(
    y: ArrayLike,
    n_folds: int = 5,
    *,
    groups: ArrayLike | None = None,
    seed: int | np.random.Generator | None = 0,
) -> Int:
    """Number of the fold of each case, 0 to `n_folds` - 1: parts of one size, as `split` makes them.

    Examples
    --------
    >>> fold = folds([0, 1] * 10, 5)
    >>> np.bincount(fold).tolist()
    [4, 4, 4, 4, 4]
    """
    check_positive_int(n_folds, "n_folds")
    if n_folds > (n := len(_class_codes(y))):
        raise InputError(f"n_folds must not exceed the {n} cases, got {reprlib.repr(n_folds)}")
    shares = np.full(n_folds, 1.0 / n_folds)
    names = [f"fold {k}" for k in range(n_folds)]
    return _assign(y, groups, shares, True, as_rng(seed), names)


def _assign(
    y: ArrayLike,
    groups: ArrayLike | None,
    shares: Float,
    stratify: bool,
    rng: np.random.Generator,
    names: Sequence[str],
) -> Int:
    """Part number of each case."""
    if not np.isfinite(shares).all() or (shares < 0).any() or abs(shares.sum() - 1.0) > 1e-9:
        raise InputError(f"shares must be >= 0 and sum to 1, got {shares.tolist()}")
    check_choice(stratify, (True, False), "stratify")
    classes = _class_codes(y)
    group = check_groups(groups, len(classes))
    parts = np.flatnonzero(shares > 0)
    n_units, units = (len(classes), "cases") if group is None else (int(group.max()) + 1, "groups")
    if n_units < len(parts):
        held = units if n_units != 1 else units.removesuffix("s")
        raise InputError(f"{n_units} {held} cannot fill {len(parts)} parts: give more {units}")
    strata = classes if stratify else np.zeros_like(classes)
    if group is None:
        code = _deal(strata, shares[parts], rng)
    else:
        counts = np.zeros((n_units, int(strata.max()) + 1))
        np.add.at(counts, (group, strata), 1.0)
        code = _deal_groups(counts, shares[parts], rng)[group]
    assigned = parts[code]
    if stratify:
        _warn_missing(classes, assigned, parts, names, units)
    return assigned


def _class_codes(y: ArrayLike) -> Int:
    raw, missing = as_names(y, "y")
    if raw.ndim != 1 or len(raw) == 0:
        raise InputError(f"y must be one class label per case, got shape {raw.shape}")
    if raw.dtype.kind == "f":
        missing = ~np.isfinite(raw)
    refuse(missing, "y must not be missing, got None, NaN or infinity")
    if raw.dtype.kind == "f":
        refuse(
            raw != np.round(raw),
            "y must be class labels",
            raw,
            advice="Give the hard labels, not soft ones.",
        )
    return np.unique(raw, return_inverse=True)[1].astype(np.int64)


def _warn_missing(
    classes: Int, assigned: Int, parts: Int, names: Sequence[str], units: str
) -> None:
    present = np.zeros((len(names), int(classes.max()) + 1), dtype=bool)
    present[assigned, classes] = True
    short = [names[k] for k in parts if not present[k].all()]
    if short:
        warnings.warn(
            f"too few {units} of some class: not every class is in {' and '.join(short)}",
            ScalecalWarning,
            stacklevel=4,
        )


def _deal(classes: Int, shares: Float, rng: np.random.Generator) -> Int:
    """Part of each case: per class a random deal of a fixed number of cases to each part."""
    counts = np.bincount(classes)
    code = np.empty(len(classes), dtype=np.int64)
    order = rng.permutation(len(classes))
    by_class = order[np.argsort(classes[order], kind="stable")]
    code[by_class] = np.repeat(
        np.tile(np.arange(len(shares)), len(counts)), _class_sizes(counts, shares).ravel()
    )
    return code


def _class_sizes(counts: Int, shares: Float) -> Int:
    """Cases of each class in each part, (C, parts): near `counts * shares` in every sum.

    Each cell starts at its target rounded down, but at least 1 where the class has a case for every
    part; what is left of a class goes where both the class and the part lack most. Rare classes are
    served first, so that the frequent ones even out the sizes of the parts.
    """
    target = np.outer(counts, shares)
    sizes = np.floor(target + 1e-9).astype(np.int64)
    everywhere = counts >= len(shares)
    sizes[everywhere] = np.maximum(sizes[everywhere], 1)
    for c in np.argsort(counts, kind="stable"):
        while sizes[c].sum() > counts[c]:
            # Raising cells to 1 overdrew the class: the most over-served part gives one back.
            over = np.where(sizes[c] > 1, sizes[c] - target[c], -np.inf)
            sizes[c, over.argmax()] -= 1
        while sizes[c].sum() < counts[c]:
            lack = target[c] - sizes[c]
            part_lack = (target - sizes).sum(axis=0)
            sizes[c, (lack + 1e-3 * part_lack).argmax()] += 1
    return _fill_empty_parts(sizes)


def _fill_empty_parts(sizes: Int) -> Int:
    """Give a case to any part that has none, from the largest cell (n >= parts is known)."""
    for k in np.flatnonzero(sizes.sum(axis=0) == 0):
        spare = np.where(sizes.sum(axis=0) > 1, sizes, 0)
        c, j = np.unravel_index(spare.argmax(), sizes.shape)
        sizes[c, j] -= 1
        sizes[c, k] += 1
    return sizes


def _deal_groups(counts: Float, shares: Float, rng: np.random.Generator) -> Int:
    """Part of each group, from the groups' class counts (G, C)."""
    target = np.outer(shares, counts.sum(axis=0))

    def cost(code: Int) -> float:
        return float(_misfit(_totals(code, counts, len(shares)), target).sum())

    starts = [_cut(rng.permutation(len(counts)), counts, shares) for _ in range(_STARTS)]
    code = _improve(min(starts, key=cost), counts, target, rng)
    if (_totals(code, counts, len(shares)) > 0).all():
        return code
    return min(code, _improve(_cover(counts, shares, rng), counts, target, rng), key=cost)


def _totals(code: Int, counts: Float, n_parts: int) -> Float:
    totals = np.zeros((n_parts, counts.shape[1]))
    np.add.at(totals, code, counts)
    return totals


def _misfit(totals: Float, target: Float) -> Float:
    """How far parts are from their targets: chi-squares of class counts and of the size.

    Last axis: classes; a part that lacks a class pays more than one thirty times its size would, and
    an empty part more than all parts could for lacking classes.
    """
    size, size_target = totals.sum(axis=-1), target.sum(axis=-1)
    lacking = (totals <= 0.0).sum(axis=-1)
    return np.asarray(
        ((totals - target) ** 2 / target).sum(axis=-1)
        + (size - size_target) ** 2 / size_target
        + lacking * (1.0 + _LACKING * size_target)
        + (size <= 0.0) * _EMPTY
    )


def _improve(code: Int, counts: Float, target: Float, rng: np.random.Generator) -> Int:
    """Move one group, or swap two, for as long as that lessens the misfit."""
    code = code.copy()
    n_parts = len(target)
    for _ in range(_MAX_STEPS):
        totals = _totals(code, counts, n_parts)
        misfit = _misfit(totals, target)
        if misfit.sum() <= _CLOSE * target.size:
            break
        left = _misfit(totals[code] - counts, target[code]) - misfit[code]
        joined = _misfit(totals + counts[:, None], target) - misfit
        change = left[:, None] + joined
        change[np.arange(len(code)), code] = 0.0
        g, k = np.unravel_index(change.argmin(), change.shape)
        if change[g, k] < -_LEAST:
            code[g] = k
            continue
        pairs = rng.integers(0, len(code), (_SWAPS, 2))
        one, other = pairs[code[pairs[:, 0]] != code[pairs[:, 1]]].T
        step = counts[other] - counts[one]
        swapped = _misfit(totals[code[one]] + step, target[code[one]]) - misfit[code[one]]
        swapped += _misfit(totals[code[other]] - step, target[code[other]]) - misfit[code[other]]
        if len(swapped) == 0 or swapped.min() >= -_LEAST:
            break
        best = swapped.argmin()
        code[[one[best], other[best]]] = code[[other[best], one[best]]]
    return code


def _cut(order: Int, counts: Float, shares: Float) -> Int:
    """Groups in the given order, cut where the running number of cases passes the shares."""
    size = counts.sum(axis=1)[order]
    middle = np.cumsum(size) - 0.5 * size
    code = np.empty(len(order), dtype=np.int64)
    code[order] = np.searchsorted(np.cumsum(shares)[:-1] * size.sum(), middle)
    return code


def _cover(counts: Float, shares: Float, rng: np.random.Generator) -> Int:
    """Start that puts every class in every part where it can: the classes in fewest groups first."""
    code = np.full(len(counts), -1, dtype=np.int64)
    holds, size = counts > 0, counts.sum(axis=1)
    served = np.zeros((len(shares), counts.shape[1]), dtype=bool)
    by_share = np.argsort(-shares, kind="stable")
    for c in np.argsort(holds.sum(axis=0), kind="stable"):
        for k in by_share:
            free = rng.permutation(np.flatnonzero((code < 0) & holds[:, c]))
            if served[k, c] or len(free) == 0:
                continue
            # The group that serves most classes the part still lacks; a small one among those.
            gain = (holds[free] & ~served[k]).sum(axis=1) - size[free] / (1.0 + size.sum())
            best = free[gain.argmax()]
            code[best] = k
            served[k] |= holds[best]
    rest = np.flatnonzero(code < 0)
    code[rest] = _cut(rng.permutation(len(rest)), counts[rest], shares) if len(rest) else 0
    return code
