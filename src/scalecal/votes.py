"""Readers' votes: counts per class, majority, agreement, difficulty strata, inter-reader statistics.

A panel's votes on n cases and C classes are one (n, C) array of counts, whatever form they came in;
readers may be missing and panels may differ in size from case to case.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import (
    Float,
    InputError,
    Int,
    as_float,
    as_names,
    as_rng,
    check_choice,
    check_counts,
    check_same_length,
    check_weights,
    refuse,
    rows,
)

__all__ = [
    "STRATA",
    "TIES",
    "Majority",
    "check_sides",
    "clear_majority",
    "fleiss_kappa",
    "from_long",
    "krippendorff_alpha",
    "majority",
    "strata",
    "stratum_codes",
    "tied_error",
    "without_ties",
]

STRATA = ("high", "medium", "low")
"""Names of the default strata, from the easiest cases to the hardest."""

Ties = Literal["error", "first", "last", "random", "drop"]
TIES: tuple[str, ...] = ("error", "first", "last", "random", "drop")
"""What `majority` may do with a tied vote: fail, take the first or the last of the tied classes,
draw one of them, or give no label (-1)."""


def from_long(
    case: ArrayLike, rater: ArrayLike, label: ArrayLike
) -> tuple[Int, NDArray[Any], tuple[Any, ...]]:
    """Count votes given one per row: (case, rater, label).

    Returns counts (cases, classes), the names of the cases and those of the classes, both sorted.

    A missing label (None, NaN or an empty string) is a reader who did not vote on the case. A reader
    who votes twice on one case is an error, whether or not the two votes agree.

    Examples
    --------
    >>> counts, cases, classes = from_long(["a", "a", "b"], [1, 2, 1], ["HP", "SSA", "SSA"])
    >>> counts.tolist(), cases.tolist(), classes
    ([[1, 1], [0, 1]], ['a', 'b'], ('HP', 'SSA'))
    """
    columns = {"case": case, "rater": rater, "label": label}
    (cases, no_case), (raters, no_rater), (labels, missing) = (
        as_names(values, name) for name, values in columns.items()
    )
    for name, values in zip(columns, (cases, raters, labels), strict=True):
        if values.ndim != 1:
            raise InputError(f"{name} must be 1-d, one per vote, got shape {values.shape}")
    if check_same_length(case=cases, rater=raters, label=labels) == 0:
        raise InputError("no votes: the table (case, rater, label) is empty")
    for name, absent in (("case", no_case), ("rater", no_rater)):
        refuse(absent, f"{name} must be named for every vote, missing")
    if labels.dtype.kind == "U":
        missing = labels == ""
    chosen = labels[~missing]
    classes, column = np.unique(chosen, return_inverse=True)
    if len(classes) == 0:
        raise InputError("no votes: every label in the table is missing")
    names, case_code = np.unique(cases, return_inverse=True)
    _, rater_code = np.unique(raters.astype(str), return_inverse=True)
    pair = case_code.astype(np.int64) * (rater_code.max() + 1) + rater_code
    _, first, times = np.unique(pair, return_index=True, return_counts=True)
    if (times > 1).any():
        row = int(first[times > 1][0])
        raise InputError(
            f"reader {raters[row]!s} votes {times[times > 1][0]} times on case {cases[row]!s} "
            f"({int((times > 1).sum())} such pairs): keep one vote per reader and case"
        )
    counts = np.zeros((len(names), len(classes)), dtype=np.int64)
    np.add.at(counts, (case_code[~missing], column), 1)
    return counts, names, tuple(classes.tolist())


class Majority(NamedTuple):
    """Majority labels (-1: none), and which cases were tied or had no vote."""

    labels: Int
    tied: NDArray[np.bool_]
    empty: NDArray[np.bool_]


def majority(
    votes: ArrayLike,
    n_raters: ArrayLike | None = None,
    *,
    ties: Ties = "error",
    seed: int | np.random.Generator | None = 0,
) -> Majority:
    """Class with the most votes, per case; ties by an explicit policy, never silently.

    Examples
    --------
    >>> majority([[1, 2], [2, 2]], ties="last").labels.tolist()
    [1, 1]
    >>> majority([2], 4)
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: 1 of 1 cases are tied (row 0). Choose what a tie means: ...
    """
    check_choice(ties, TIES, "ties")
    counts = check_counts(votes, n_raters)
    top = counts == counts.max(axis=1, keepdims=True)
    empty = counts.sum(axis=1) == 0
    tied = (top.sum(axis=1) > 1) & ~empty
    if tied.any() and ties == "error":
        raise tied_error(tied, rows(tied))
    labels = top.argmax(axis=1).astype(np.int64)
    if ties == "last":
        labels = counts.shape[1] - 1 - top[:, ::-1].argmax(axis=1).astype(np.int64)
    elif ties == "random":
        # Drawn for every case, so that one tie more does not change how the others fall.
        draw = as_rng(seed).random(counts.shape)
        labels = np.where(top, draw, -1.0).argmax(axis=1).astype(np.int64)
    elif ties == "drop":
        labels[tied] = -1
    labels[empty] = -1
    return Majority(labels, tied, empty)


MIN_CLEAR = 10
"""Cases with a clear majority below which labels are not held against it."""


def clear_majority(counts: Int) -> tuple[Int, NDArray[np.bool_]]:
    """Class that most readers of a case chose, and whether more than chose any other: (n,) each.

    Examples
    --------
    >>> [part.tolist() for part in clear_majority(np.array([[1, 6], [2, 2], [0, 0]]))]
    [[1, 0, 0], [True, False, False]]
    """
    ordered = np.sort(counts, axis=1)
    return counts.argmax(axis=1), ordered[:, -1] > ordered[:, -2]


def check_sides(y: ArrayLike, counts: Int, *, sample_weight: Float | None = None) -> None:
    """Fail where most labels contradict what most readers said: classes and votes are swapped then.

    Most are more than a half, and more than labels dealt out at random would be, by two standard
    deviations.

    Parameters
    ----------
    y
        Class numbers (n,); negative or NaN if there is no label.
    counts
        Votes for each class (n, C). Ties and cases without votes are passed over.
    sample_weight
        How many cases each row stands for.

    Examples
    --------
    >>> check_sides([0, 1] * 6, np.array([[1, 6], [5, 2]] * 6))
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: in 12 of 12 cases with a clear majority of readers the label is ...
    """
    labels, n_classes = as_float(y, "y"), counts.shape[1]
    if labels.shape != (len(counts),):
        raise InputError(f"y must have one label per case ({len(counts)},), got {labels.shape}")
    refuse(labels >= n_classes, f"y must be below {n_classes}", labels)
    majority, clear = clear_majority(counts)
    clear = clear & (labels >= 0)
    weight = clear if sample_weight is None else clear * sample_weight
    n, against = (round(float(w.sum())) for w in (weight, weight * (majority != labels)))
    if n < MIN_CLEAR:
        return
    known = np.flatnonzero(weight > 0)
    share = [
        np.bincount(one[known].astype(np.int64), weight[known], counts.shape[1]) / weight.sum()
        for one in (labels, majority)
    ]
    chance = max(0.5, 1.0 - float(share[0] @ share[1]))
    if against > n * chance + 2.0 * np.sqrt(n * chance * (1.0 - chance)):
        raise InputError(
            f"in {against:,} of {n:,} cases with a clear majority of readers the label is another class: "
            "labels and votes are swapped. Votes count the readers who chose the positive class, the "
            "second of two, or have one column per class in the order of the labels: invert the votes "
            "(n_raters - votes) or reorder their columns, or name the positive class (positive=NAME, on the "
            "command line --positive NAME)"
        )


MIN_TIES = 5
"""Ties that are expected below which their absence may be chance."""

SHARE_APART = 0.05
"""Share of cases on which two readers differ at least, where nothing else says how many do."""


def without_ties(counts: Int, *, sample_weight: Float | None = None) -> int:
    """Cases of even panels, where none is tied though ties must have been: they were left out. Else 0.

    Left-out ties change the question: a label's probability given that readers were not tied is another
    one than the label's. Ties are about as frequent as the narrowest majorities of either side: with half
    of that expected, `MIN_TIES` are too many to be missing by chance.

    Parameters
    ----------
    counts
        Votes for each class (n, C).
    sample_weight
        How many cases each row stands for.

    Examples
    --------
    >>> even = np.array([[4, 0], [3, 1], [1, 3], [0, 4]] * 10)
    >>> without_ties(even), without_ties(np.vstack([even, [[2, 2]]]))
    (40, 0)
    """
    m = counts.sum(axis=1)
    weight = np.ones(len(m)) if sample_weight is None else sample_weight
    ordered = np.sort(counts, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    even = (m > 0) & (m % 2 == 0)
    if (even & (margin == 0)).any():
        return 0
    expected = float(weight[even & (margin == 2) & (m > 2)].sum()) / 4.0
    expected += SHARE_APART * float(weight[even & (m == 2)].sum())
    if expected < MIN_TIES:
        return 0
    return round(float(weight[even].sum()))


def tied_error(tied: NDArray[np.bool_], where: str) -> InputError:
    """Return the error of votes that are tied where a label is needed; `where` names the cases."""
    return InputError(
        f"{int(tied.sum())} of {len(tied)} cases are tied ({where}). "
        "Choose what a tie means: ties= (--ties) 'first', 'last', 'random' or 'drop'"
    )


def strata(votes: ArrayLike, n_raters: ArrayLike | None = None) -> NDArray[np.str_]:
    """Difficulty stratum of each case by reader agreement: "high", "medium", "low" or "" (none).

    With a of m readers in the majority: *low* where one reader changing sides could change the
    majority (2a - m <= 1) or 7a <= 4m; else *high* where 7a >= 6m; else *medium*. Fewer than two
    readers have no agreement, hence no stratum. For seven readers these are the paper's strata; the
    comparisons are in integers, so that 6 of 7 is never lost to rounding.

    Examples
    --------
    >>> strata([4, 5, 6, 7], 7).tolist()
    ['low', 'medium', 'high', 'high']
    >>> strata([2, 3], 3).tolist()
    ['low', 'high']
    """
    return np.array([*STRATA, ""])[stratum_codes(check_counts(votes, n_raters))]


def stratum_codes(counts: Int) -> NDArray[np.int8]:
    """Number of each case's stratum in `STRATA`, -1 for none, from checked counts; see `strata`."""
    a, m = counts[:, 0].copy(), counts[:, 0].copy()
    for column in counts.T[1:]:
        np.maximum(a, column, out=a)
        m += column
    code = np.where(7 * a >= 6 * m, np.int8(0), np.int8(1))
    code[(2 * a - m <= 1) | (7 * a <= 4 * m)] = 2
    code[m < 2] = -1
    return code


def fleiss_kappa(
    votes: ArrayLike,
    n_raters: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Fleiss' kappa: agreement beyond chance; panels may differ in size.

    Observed agreement is the mean over cases with two or more votes of
    sum_c n_c (n_c - 1) / (m (m - 1)); chance agreement is sum_c p_c^2 with p_c the share of all votes
    [1]_. NaN where chance agreement is 1 (one class only) or no case has two votes.
    `sample_weight` counts identical cases.

    References
    ----------
    .. [1] Fleiss, J. L. (1971). Measuring nominal scale agreement among many raters.
       Psychological Bulletin 76, 378-382.

    Examples
    --------
    >>> fleiss_kappa([[3, 0], [0, 3], [3, 0]])
    1.0
    """
    counts, m, w = _paired_votes(votes, n_raters, sample_weight)
    if len(m) == 0:
        return float("nan")
    observed = float(w @ ((counts * (counts - 1)).sum(axis=1) / (m * (m - 1))) / w.sum())
    share = w @ counts / (w @ m)
    chance = float((share**2).sum())
    return float("nan") if chance >= 1.0 else (observed - chance) / (1.0 - chance)


def krippendorff_alpha(
    votes: ArrayLike,
    n_raters: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Krippendorff's alpha for nominal data, with missing votes.

    alpha = 1 - D_o / D_e from the coincidence matrix [1]_; cases with fewer than two votes carry no
    pair and are left out. NaN where all votes are for one class. `sample_weight` counts identical cases.

    References
    ----------
    .. [1] Krippendorff, K. (2011). Computing Krippendorff's alpha-reliability.

    Examples
    --------
    >>> round(krippendorff_alpha([[2, 0], [0, 2], [1, 1]]), 3)
    0.444
    """
    counts, m, w = _paired_votes(votes, n_raters, sample_weight)
    total = float(w @ m)
    if total == 0:
        return float("nan")
    per_class = w @ counts
    expected = 1.0 - float((per_class * (per_class - 1)).sum()) / (total * (total - 1))
    if expected <= 0.0:
        return float("nan")
    same = (counts * (counts - 1)).sum(axis=1) / (m - 1)
    return 1.0 - (1.0 - float(w @ same) / total) / expected


def _paired_votes(
    votes: ArrayLike, n_raters: ArrayLike | None, sample_weight: ArrayLike | None
) -> tuple[Int, Int, Float]:
    """Counts, panel sizes and weights of the cases with two votes or more."""
    counts = check_counts(votes, n_raters)
    m = counts.sum(axis=1)
    w = check_weights(sample_weight, len(m), "sample_weight")
    used = m >= 2
    return counts[used], m[used], np.ones(int(used.sum())) if w is None else w[used]
