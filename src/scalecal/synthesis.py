"""Synthetic agreement: from anchors to interpolated embeddings with soft labels.

The first two steps of SCALE. Anchors are the embeddings of each class that a first probe is most
confident of. A point on the line between anchors of two classes gets the soft label of a panel of
readers split in the same proportion. `plan` chooses rows, levels and soft labels without touching
the embeddings; `synthesize` computes the interpolated embeddings too.
"""

from __future__ import annotations

import reprlib
import warnings
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from scalecal.checks import (
    Float,
    InputError,
    Int,
    ScalecalWarning,
    as_array,
    as_float,
    as_rng,
    check_above,
    check_choice,
    check_features,
    check_finite,
    check_labels,
    check_logits,
    check_positive_int,
    check_same_length,
)
from scalecal.limits import check_count
from scalecal.smoothing import Smoothing, as_smoothing

__all__ = [
    "ANCHORS",
    "BetaLevels",
    "Mixtures",
    "SynthesisPlan",
    "plan",
    "select_anchors",
    "synthesize",
]

Seed = int | np.random.Generator


ANCHORS: dict[str, str] = {
    "confident": "the most confident of the class among those predicted right",
    "class": "the most confident of the class, right or wrong",
    "prediction": "the highest predicted probabilities of the class, whatever the label",
    "random": "drawn at random from the class",
}
"""Ways to choose anchors, and what each means."""


def _class_logits(logits: ArrayLike) -> Float:
    """Return the (n, C) log-odds of every class: what anchors are ranked by.

    Log-odds order cases as probabilities do, but do not tie when those round to one.
    """
    z = check_logits(logits)
    if z.ndim == 1:
        return np.column_stack([-z, z])
    rest = [logsumexp(np.delete(z, c, axis=1), axis=1) for c in range(z.shape[1])]
    return np.asarray(z - np.column_stack(rest))


def _share_or_count(value: int | float, whole: int, name: str, most: float = np.inf) -> int:
    """Return a count from an int (a count) or a float (a share of `whole`, at least one)."""
    if isinstance(value, float | np.floating):
        if not (np.isfinite(value) and 0.0 < value <= most):
            limit = "" if np.isinf(most) else f" and at most {most:g}"
            raise InputError(f"{name} as a share must be above 0{limit}, got {value!r}")
        return max(1, round(float(value) * whole))
    return check_positive_int(value, name)


def select_anchors(
    y: ArrayLike,
    logits: ArrayLike,
    *,
    n_anchors: int | float = 10,
    anchors: Literal["confident", "class", "prediction", "random"] = "confident",
    seed: Seed = 0,
) -> dict[int, Int]:
    """Choose the anchors of every class.

    Parameters
    ----------
    y : array of int (n,)
        Labels.
    logits : array (n,) or (n, C)
        A first probe's logits of the same cases.
    n_anchors : int or float
        Anchors per class: a count, or a share of the cases with the class's label.
    anchors : str
        A name in `ANCHORS`.
    seed : int or Generator
        For ``anchors="random"``.

    Returns
    -------
    dict
        Class number to row numbers, most confident first; ties go to the earlier row.

    Warns
    -----
    ScalecalWarning
        Fewer candidates than `n_anchors`: all of them are used.

    Examples
    --------
    >>> select_anchors([0, 0, 1, 1], [-2.0, 0.5, 1.0, 3.0], n_anchors=1)
    {0: array([0]), 1: array([3])}
    """
    check_choice(anchors, ANCHORS, "anchors")
    confidence = _class_logits(logits)
    n_classes = confidence.shape[1]
    labels = check_labels(y, n_classes)
    check_same_length(y=labels, logits=confidence)
    rng = as_rng(seed)
    predicted = confidence.argmax(axis=1)
    chosen: dict[int, Int] = {}
    for c in range(n_classes):
        of_class = labels == c
        allowed = of_class
        if anchors == "prediction":
            allowed = np.ones(len(labels), dtype=bool)
        elif anchors == "confident":
            allowed = of_class & (predicted == c)
        candidates = np.flatnonzero(allowed)
        if len(candidates) == 0:
            hint = f"There are no cases of class {c}: check the labels or the split."
            if of_class.any():
                hint = "The first probe may have learnt nothing: check it, or use anchors='class'."
            raise InputError(f"no anchor for class {c} with anchors={anchors!r}. {hint}")
        count = _share_or_count(n_anchors, int(of_class.sum()), "n_anchors", most=1.0)
        # A share means as many of them as there are; only a count can be missed.
        if len(candidates) < count and not isinstance(n_anchors, float):
            warnings.warn(
                f"class {c} has {len(candidates)} candidate anchors, fewer than the {count} requested: "
                "all are used",
                ScalecalWarning,
                stacklevel=2,
            )
        if anchors == "random" and len(candidates) > count:
            candidates = np.sort(rng.choice(candidates, count, replace=False))
        order = np.argsort(-confidence[candidates, c], kind="stable")
        chosen[c] = candidates[order][:count]
    return chosen


MAX_ENUMERATED = 20_000_000
"""More combinations than this are sampled, not enumerated."""


@dataclass(frozen=True)
class BetaLevels:
    """Interpolation levels drawn from a Beta distribution, ``alpha ~ Beta(a, b)``, as in mixup."""

    a: float = 1.0
    b: float = 1.0

    def __post_init__(self) -> None:
        check_above(self.a, "a of Beta levels")
        check_above(self.b, "b of Beta levels")


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Synthetic cases: case i is ``(1 - alpha[i]) * X[first[i]] + alpha[i] * X[second[i]]``.

    Attributes
    ----------
    first, second : array of int (s,)
        Row numbers of the two embeddings.
    alpha : array of float (s,)
        Interpolation levels.
    targets : array of float
        (s,) the positive class's soft label, or (s, C).
    weight : float or array (s,)
        Weight of each synthetic case beside real cases of weight one.
    """

    first: Int
    second: Int
    alpha: Float
    targets: Float
    weight: Any = 1.0

    def __len__(self) -> int:
        return len(self.alpha)


@dataclass(frozen=True, eq=False, kw_only=True)
class SynthesisPlan(Mixtures):
    """Synthetic cases between anchors of two classes.

    With two classes `first` are rows of positive anchors and `second` of negative ones; with more,
    `first` belongs to the higher class number of the pair, and the targets lie on the edges of the
    simplex.

    Attributes
    ----------
    anchors : dict
        Class to row numbers, most confident first.
    pair : array of int (s, 2)
        The two anchors' classes.
    """

    anchors: dict[int, Int]
    pair: Int

    def interpolate(self, X: ArrayLike) -> NDArray[Any]:
        """Return the synthetic rows, in X's floating type (at least single precision)."""
        rows = check_features(X)
        dtype = np.result_type(rows.dtype, np.float32)
        alpha = self.alpha.astype(dtype)[:, None]
        first, second = rows[self.first].astype(dtype), rows[self.second].astype(dtype)
        return np.asarray((1 - alpha) * first + alpha * second)

    def shuffled(self, seed: Seed = 0) -> SynthesisPlan:
        """Return the negative control: the same points, labels permuted within each class pair."""
        rng = as_rng(seed)
        targets = self.targets.copy()
        code = self.pair[:, 0] * (int(self.pair.max(initial=0)) + 1) + self.pair[:, 1]
        for one in np.unique(code):
            index = np.flatnonzero(code == one)
            targets[index] = self.targets[rng.permutation(index)]
        return replace(self, targets=targets)


def plan(
    y: ArrayLike,
    logits: ArrayLike,
    *,
    n_anchors: int | float = 10,
    n_raters: int = 7,
    smoothing: str | Smoothing = "piecewise",
    anchors: Literal["confident", "class", "prediction", "random"] = "confident",
    n_synthetic: int | float | None = None,
    levels: BetaLevels | None = None,
    weight: float = 1.0,
    mass: float | None = None,
    seed: Seed = 0,
) -> SynthesisPlan:
    r"""Plan synthetic cases: anchors, pairs, levels and soft labels.

    Between every positive and negative anchor there is a case at each
    :math:`\alpha \in \{1/N, \ldots, (N-1)/N\}`, standing for :math:`n = (1 - \alpha) N` of N readers
    who chose the positive class; its soft label is the smoothing function of n. Cases are ordered by
    positive anchor (most confident first), then negative anchor (likewise), then alpha ascending.

    With more than two classes this is done for each pair of classes, in the order (0, 1), (0, 2),
    ..., the higher class in the positive one's part; the soft label lies on the edge of the simplex
    between the two.

    Parameters
    ----------
    y : array of int (n,)
        Labels of the training cases.
    logits : array (n,) or (n, C)
        The first probe's logits of the training cases.
    n_anchors, anchors
        As in `select_anchors`.
    n_raters : int
        Readers in the imagined panel, at least two.
    smoothing : str or callable
        A name in `scalecal.smoothing.SMOOTHINGS`, a function ``f(votes, n_raters)``, or "mixup":
        the share :math:`1 - \alpha` itself, not rounded to votes.
    n_synthetic : int, float or None
        None takes every pair at every level, as published. A count, or a share of the training set,
        samples that many combinations without replacement (the wide variant).
    levels : BetaLevels or None
        Draw N - 1 levels for every pair instead of k / N.
    weight : float
        Weight of each synthetic case.
    mass : float or None
        Total weight of the synthetic cases as a share of the n real cases' weight; replaces `weight`.
    seed : int or Generator
        For random anchors, drawn levels and sampled combinations.

    Returns
    -------
    SynthesisPlan

    Examples
    --------
    >>> result = plan([0, 0, 1, 1], [-2.0, -1.0, 1.0, 3.0], n_anchors=1, n_raters=3)
    >>> result.first, result.second
    (array([3, 3]), array([0, 0]))
    >>> result.targets.round(3).tolist()
    [0.5, 0.4]
    """
    n_raters = check_count(n_raters, "n_raters", "readers", least=2)
    weight = check_above(weight, "weight")
    if mass is not None:
        mass = check_above(mass, "mass")
    if not isinstance(levels, BetaLevels | None):
        raise InputError(f"levels must be BetaLevels or None, got {reprlib.repr(levels)}")
    rng = as_rng(seed)
    z = check_logits(logits)
    n = len(z)
    chosen = select_anchors(y, z, n_anchors=n_anchors, anchors=anchors, seed=rng)
    # (higher class, lower class)
    pairs = np.array([(b, a) for a, b in combinations(range(len(chosen)), 2)], dtype=np.int64)
    n_levels = n_raters - 1

    # Combinations are numbered pair by pair, and only those kept are ever written out: wide
    # variants have billions.
    sizes = np.array([len(chosen[c]) for c in range(len(chosen))], dtype=np.int64)
    per_pair = sizes[pairs[:, 0]] * sizes[pairs[:, 1]] * n_levels
    ends = np.cumsum(per_pair)
    number = _combinations(int(ends[-1]), n_synthetic, n, rng)
    which = np.searchsorted(ends, number, side="right")
    inside = number - (ends - per_pair)[which]
    inside, level = np.divmod(inside, n_levels)
    i, j = np.divmod(inside, sizes[pairs[which, 1]])
    pair = pairs[which]

    flat = np.concatenate([chosen[c] for c in range(len(chosen))])
    start = np.cumsum(sizes) - sizes
    first, second = flat[start[pair[:, 0]] + i], flat[start[pair[:, 1]] + j]
    if levels is None:
        # Of whole numbers, so that no rounding of (1 - alpha) N can go wrong.
        alpha, counts = (level + 1) / n_raters, n_levels - level
    else:
        drawn = rng.beta(levels.a, levels.b, len(number))
        # Ascending within each pair of anchors.
        alpha = drawn[np.lexsort((drawn, number // n_levels))]
        counts = np.rint((1.0 - alpha) * n_raters).astype(np.int64)
    share = _shares(smoothing, alpha, counts, n_raters)
    if len(chosen) == 2:
        targets = share
    else:
        targets = np.zeros((len(number), len(chosen)))
        row = np.arange(len(number))
        targets[row, pair[:, 0]], targets[row, pair[:, 1]] = share, 1.0 - share
    if mass is not None:
        weight = mass * n / len(number)
    return SynthesisPlan(first, second, alpha, targets, weight, anchors=chosen, pair=pair)


def _combinations(
    total: int, n_synthetic: int | float | None, n: int, rng: np.random.Generator
) -> Int:
    """Return the numbers of the combinations to use, ascending."""
    if n_synthetic is None:
        if total > MAX_ENUMERATED:
            raise InputError(
                f"all pairs of these anchors at all levels are {total:,} synthetic cases. "
                "Give n_synthetic (say 1.0: as many as there are training cases) to sample them."
            )
        return np.arange(total)
    count = _share_or_count(n_synthetic, n, "n_synthetic")
    if count > total:
        warnings.warn(
            f"{count} synthetic cases were requested but there are {total} combinations of anchors "
            "and levels: all are used",
            ScalecalWarning,
            stacklevel=3,
        )
    if count >= total:
        return np.arange(total)
    return np.sort(rng.choice(total, count, replace=False, shuffle=False))


def _shares(smoothing: str | Smoothing, alpha: Float, votes: Int, n_raters: int) -> Float:
    """Return the first anchor's class's soft label."""
    if isinstance(smoothing, str) and smoothing == "mixup":
        return 1.0 - alpha
    smooth = as_smoothing(smoothing)
    # One call for the vote counts that occur, not for every case.
    present, place = np.unique(votes, return_inverse=True)
    table = as_float(smooth(present, n_raters), "smoothed labels")
    share = check_finite(np.asarray(table[place]), "smoothed labels")
    if share.min() < 0.0 or share.max() > 1.0:
        raise InputError(
            f"the smoothing function must give soft labels in [0, 1], got {share.min():g} to "
            f"{share.max():g}"
        )
    return share


def synthesize(
    X: ArrayLike, y: ArrayLike, logits: ArrayLike, **options: Any
) -> tuple[NDArray[Any], Float]:
    """Make synthetic cases of known difficulty from embeddings (SCALE's steps 1 and 2).

    Parameters
    ----------
    X : array (n, d)
        Embeddings of the training cases.
    y, logits, **options
        As in `plan`.

    Returns
    -------
    Z : array (s, d)
        Interpolated embeddings, ordered by positive anchor (most confident first), then negative
        anchor (likewise), then alpha ascending.
    targets : array (s,) or (s, C)
        Their soft labels.

    Examples
    --------
    >>> X = [[0.0], [7.0], [8.0], [14.0]]
    >>> Z, targets = synthesize(X, [0, 0, 1, 1], [-9, -1, 1, 9], n_anchors=1)
    >>> Z.ravel().round(3).tolist()
    [12.0, 10.0, 8.0, 6.0, 4.0, 2.0]
    >>> targets.round(3).tolist()
    [0.867, 0.733, 0.5, 0.4, 0.267, 0.133]
    """
    rows = check_features(X)
    check_same_length(X=rows, y=np.atleast_1d(as_array(y, "y")))
    planned = plan(y, logits, **options)
    return planned.interpolate(rows), planned.targets
