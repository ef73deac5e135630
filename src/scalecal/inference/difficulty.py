r"""Are the votes what the model says they are, where it says that they are easy or hard to foresee?

Strata made from the votes select on what no model can know: in them even the best model looks wrong.
Strata of *predicted* difficulty do not, so within them a calibrated model's residuals
:math:`k / m - \mu` have mean zero, and a plain test will do. Difficulty is the model's own (how near its
probability is to the decision), or a probability that the panel splits, from this model or another. With the
latter the null is stronger: that the model is calibrated given that probability too. A model that is
calibrated overall and blind to it is rejected, and should be.

Votes judge the probability mu of one reader's vote. A model that gives the label's probability p alone
is judged by :math:`\mu = T_m^{-1}(p; \rho)` (`scalecal.panel`) with rho of the votes on some fifty cases
of like p: one rho for all is more than calibration claims, and bends mu where p is sure.

References
----------
McCullagh, Nelder (1989), Generalized Linear Models, chapter 4.5 (over-dispersed binomial scores).
Cox (1958), Biometrika 45, 562-565. Skellam (1948), JRSS B 10, 257-261 (the beta-binomial law).
"""

from __future__ import annotations

from math import erfc, exp, nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import bdtr, expit, logit

from scalecal.cases import THRESHOLD
from scalecal.checks import MAX_RHO, Float, Int, as_rng, check_weights
from scalecal.inference.units import NORMAL_95, unit_interval
from scalecal.metrics.arguments import as_table, read_counts, read_votes
from scalecal.metrics.grouping import MIN_GROUPS, read_groups, too_few
from scalecal.metrics.label_scores import EPS, logits
from scalecal.metrics.significance import flip_scores, holm
from scalecal.metrics.vote_scores import reader_logits
from scalecal.panel import count_log_law, reader_logit
from scalecal.votes import clear_majority

DIFFICULTIES = ("easy", "middle", "hard")
"""Strata of predicted difficulty."""

MIN_VARIANCE = 3.0
"""Least sum of the votes' variances, in votes that go their own way, of a stratum that is tested."""

CELL, MAX_CELLS = 50, 40
"""Cases that have one rho, and how many such cells a stratum has at most."""

TIES_LEVEL = 0.01
"""Level of the test that ties go to either class alike."""

MAX_INVERTED = 5_000
"""Cases of more than two classes from whose p a reader's probability is computed at most."""

UNTESTED = (
    "votes are not tested at another prevalence: the rarer class may have most of the weight in a few "
    "cases, and the variance of their votes is unknown"
)
"""Why cases with importance weights have no test of votes: by flipping the signs of weighted scores, a
quarter of calibrated models were rejected in simulated studies of 200 cases."""

_KNOTS = 256  # beyond so many cases of two classes T^-1 is interpolated, to 1e-4 in logits


UNKNOWN = dict.fromkeys(
    (
        "vote_mean_p",
        "vote_share",
        "vote_confidence",
        "vote_agreement",
        "vote_gap",
        "vote_gap_low",
        "vote_gap_high",
        "vote_overconfidence",
        "vote_overconfidence_low",
        "vote_overconfidence_high",
        "vote_rho",
        "p_votes",
        "p_votes_holm",
    ),
    nan,
)
"""What a stratum without cases, or without a test, has of `votes_by_difficulty`."""


def difficulty_codes(difficulty: Float, p: Float, times: Float | float = 1.0) -> Int:
    """Cut cases into easy (0), middle (1) and hard (2), each with a third of the variance of a vote.

    In thirds of the cases the easy one of a sure model would have no vote to test. Cases of equal
    difficulty stay together.

    Parameters
    ----------
    difficulty : array (n,)
        Larger is harder.
    p : array (n,)
        Probability of the event, whose variance is ``p (1 - p)``.
    times : array (n,)
        How many cases each row stands for.

    Examples
    --------
    >>> p = np.array([0.99, 0.97, 0.9, 0.8, 0.6, 0.5])
    >>> difficulty_codes(-np.abs(p - 0.5), p).tolist()
    [0, 0, 0, 0, 1, 2]
    """
    variance = np.maximum(p * (1.0 - p), EPS) * times
    return _cut(difficulty, variance, len(DIFFICULTIES))


def _cut(values: Float, mass: Float, n_parts: int) -> Int:
    """Cut cases in the order of their values into parts of equal mass; equal values stay together."""
    _, row = np.unique(values, return_inverse=True)
    each = np.bincount(row, mass)
    middle = (np.cumsum(each) - 0.5 * each) / each.sum()
    part: Int = np.minimum((n_parts * middle).astype(np.int64), n_parts - 1)
    return part[row]


def votes_by_difficulty(
    votes: ArrayLike,
    probs: ArrayLike,
    n_raters: ArrayLike | None = None,
    *,
    of_label: bool = False,
    y: ArrayLike | None = None,
    p_split: Float | None = None,
    threshold: float = THRESHOLD,
    groups: ArrayLike | None = None,
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
    importance: ArrayLike | None = None,
) -> list[dict[str, Any]]:
    r"""Test probabilities against votes within strata of predicted difficulty.

    In each stratum the scores of Cox's line, :math:`U = \sum_i w_i (k_i / m_i - \mu_i) (1, z_i)` with
    :math:`z = \mathrm{logit}\, \mu` and :math:`w_i = m_i / (1 + (m_i - 1) \rho)`, are set against
    :math:`V = \sum_i w_i \mu_i (1 - \mu_i) (1, z_i)' (1, z_i)`: :math:`U' V^{-1} U` is chi-square with two
    degrees of freedom. With groups its p-value is by flipping the signs of the groups' scores. rho is
    that of the highest beta-binomial likelihood of the votes on some fifty cases of like p.

    Parameters
    ----------
    votes, n_raters
        Counts per class (n, C), or counts of the positive class with the panel's size.
    probs : array (n,) or (n, C)
        Probabilities of one reader's vote.
    of_label : bool
        Whether `probs` are of the label instead, and a reader's are to follow from them.
    y : array (n,), optional
        The labels, with `of_label`: where more than one in twenty are not what most readers said, or
        ties mostly go one way, there is no verdict.
    p_split : array (n,), optional
        Predicted difficulty: the probability that the panel splits, not made from these votes. Without
        it difficulty is how near a case is to the decision: to the threshold, in logits (of C classes: how
        small its largest probability is).
    threshold : float
        Probability from which a case is called positive, of two classes.
    groups, n_resamples, seed
        As `scalecal.metrics.cox`.
    sample_weight : array (n,), optional
        How many cases each row stands for; not with groups.
    importance : array (n,), optional
        Weights of cases that were sampled by class (`scalecal.metrics.reweighting`). Means are weighted then,
        and there is no p-value (`UNTESTED`).

    Returns
    -------
    list of dict
        Easy, middle, hard, each with

        name : str
            "easy", "middle" or "hard".
        n, n_votes : int
            Cases with votes, and these.
        vote_mean_p, vote_share : float
            Mean probability of a positive vote (with more than two classes, of one for the top class),
            and the share of such votes; every case counts the same.
        vote_confidence, vote_agreement : float
            The same of votes for the class that the model prefers.
        vote_gap, vote_overconfidence : float
            What the model says less what the votes say: of the positive class, and of the class that it
            prefers; ``_low`` and ``_high`` are the ends of 95 % intervals over cases, or groups.
        vote_rho : float
            Correlation of two votes on a case beyond their probability, from these votes; mean over cases.
        p_votes, p_votes_holm : float
            p-value of the test, as it is and adjusted for the strata (Holm); NaN where undefined.
        reason : str
            Why there is no p-value.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.beta(2, 2, size=900)
    >>> votes = rng.binomial(5, chance)
    >>> [t["p_votes_holm"] < 0.05 for t in votes_by_difficulty(votes, chance, 5)]
    [False, False, False]
    >>> sure = expit(2 * logit(chance))
    >>> [t["p_votes_holm"] < 0.05 for t in votes_by_difficulty(votes, sure, 5)]
    [True, True, True]
    """
    sample = read_votes(votes, probs, n_raters)
    counts, p = sample.votes, sample.p
    assert counts is not None
    n = len(p)
    counted, weights = read_counts(sample_weight, n), check_weights(importance, n, "importance")
    unit = read_groups(groups, n, counted)
    times = counted
    if times is None:
        times = np.ones(n)
    table = as_table(p)
    top = table.max(axis=1)
    difficulty = -top
    if p_split is not None:
        difficulty = p_split
    elif p.ndim == 1 and threshold != 0.5:
        # At one half the order is that of the larger probability, whose ties are exact.
        difficulty = -np.abs(logits(p) - logit(threshold))
    voted = counts.sum(axis=1) > 0
    code = np.full(n, -1)
    if voted.any():
        code[voted] = difficulty_codes(difficulty[voted], top[voted], times[voted])
    why = ""
    if of_label:
        why = _no_reader(counts, y, table, times)
    rng = as_rng(seed)
    tests: list[dict[str, Any]] = []
    for number, name in enumerate(DIFFICULTIES):
        inside = np.flatnonzero(code == number)
        test: dict[str, Any] = {
            "name": name,
            "n": 0,
            "n_votes": 0,
            **UNKNOWN,
            "reason": "no case in this stratum",
        }
        tests.append(test)
        if len(inside) == 0:
            continue
        weight, votes_there = times[inside], counts[inside]
        test |= {
            "n": int(weight.sum()),
            "n_votes": int(weight @ votes_there.sum(axis=1)),
            "reason": why,
        }
        if weights is not None:
            weight = weights[inside]
        if not why:
            inner = unit
            if unit is not None:
                inner = read_groups(unit[inside], len(inside))
            test |= _tested(
                test["n"], votes_there, p[inside], weight, inner, of_label, n_resamples, rng
            )
        if weights is not None:
            test |= {"p_votes": nan, "reason": why or UNTESTED}
    adjusted = holm([t["p_votes"] for t in tests])
    for test, value in zip(tests, adjusted, strict=True):
        test["p_votes_holm"] = float(value)
    return tests


def _no_reader(counts: Int, y: ArrayLike | None, table: Float, times: Float) -> str:
    """Why no reader's probability follows from the label's; "" where one does."""
    if y is not None:
        labels = np.asarray(y)
        majority, clear = clear_majority(counts)
        weight = clear * times
        if 20.0 * weight @ (majority != labels) > weight.sum():
            return (
                "more than one in twenty labels are not the majority of the votes, so p does not imply "
                "a probability of votes: give p_reader"
            )
        if one_way := _ties_one_way(counts, labels, times):
            return one_way
    if table.shape[1] > 2 and len(table) > MAX_INVERTED:
        return f"of more than {MAX_INVERTED:,} cases of several classes votes judge p_reader alone"
    return ""


def _ties_one_way(counts: Int, y: NDArray[np.generic], times: Float) -> str:
    """Say that ties of two classes are not shared: T^-1 takes half of them for each; "" where they are."""
    most = counts == counts.max(axis=1, keepdims=True)
    tied = most.sum(axis=1) == 2
    last = most.shape[1] - 1 - most[:, ::-1].argmax(axis=1)
    to_first, to_last = (
        round(times[tied & (y == side)].sum()) for side in (most.argmax(axis=1), last)
    )
    n_tied = to_first + to_last
    if 2.0 * bdtr(min(to_first, to_last), n_tied, 0.5) >= TIES_LEVEL:  # the sign test
        return ""
    share, side = max((to_first, "first"), (to_last, "last"))
    return (
        f"ties go one way ({share:,} of {n_tied:,} to the {side} of the tied classes), and p implies "
        "a probability of votes only if they go either way equally often: give p_reader"
    )


class _Votes:
    """Votes for one event on some cases; `at` is the logit of its probability at a correlation rho.

    The event is a positive vote, or with more than two classes one for the class of the largest p.
    """

    def __init__(self, counts: Int, p: Float, weight: Float, of_label: bool) -> None:
        self.m = counts.sum(axis=1)
        self.weight, self.of_label = weight, of_label
        each, self.top = np.arange(len(p)), np.ones(len(p), dtype=np.int64)
        self.z = reader_logits(as_table(p))
        if p.ndim == 2:
            self.top = p.argmax(axis=1)
        event = counts[each, self.top]
        self.counts = np.column_stack([self.m - event, event])
        # By panel size: its cases, how sure they are, and where T^-1 is computed for many of them. These
        # are the same at every rho that the search for the best one tries.
        self.knots: dict[int, tuple[NDArray[np.bool_], Float, Float]] = {}
        if of_label and self.z.ndim == 1 and len(self.z) > _KNOTS:
            for size in np.unique(self.m).tolist():
                alike = self.m == size
                sure = np.abs(self.z[alike])  # T is odd in logits
                knots = np.quantile(sure, np.linspace(0.0, 1.0, _KNOTS))
                self.knots[size] = alike, sure, knots

    def at(self, rho: float) -> Float:
        z = self.z
        if self.knots:
            return self._interpolated(rho)
        if self.of_label:
            z = reader_logit(z, rho, self.m)
        if z.ndim == 1:
            return z
        chance = np.exp(z[np.arange(len(z)), self.top])
        return logits(chance)

    def _interpolated(self, rho: float) -> Float:
        out = np.empty(len(self.z))
        for size, (alike, sure, knots) in self.knots.items():
            reader = np.interp(sure, knots, reader_logit(knots, rho, size))
            out[alike] = np.copysign(reader, self.z[alike])
        return out

    def correlation(self) -> float:
        """The rho of the highest likelihood; 0 where no case has two votes."""
        if self.m.max() < 2:
            return 0.0

        def loss(rho: float) -> float:
            return -float(count_log_law(self.counts, self.at(rho), rho) @ self.weight)

        xatol = 1e-3
        if self.of_label and self.z.ndim == 2:
            xatol = 1e-2
        best = minimize_scalar(
            loss, bounds=(0.0, MAX_RHO), method="bounded", options={"xatol": xatol}
        )
        if best.fun >= loss(0.0):
            return 0.0
        return float(best.x)


def _correlations(counts: Int, p: Float, weight: Float, of_label: bool) -> tuple[Float, Float]:
    """rho around each case of a stratum, and the logit of its event there: (n,) each."""
    top = as_table(p).max(axis=1)
    n_cells = int(np.clip(weight.sum() // CELL, 1, MAX_CELLS))
    cell = _cut(top, weight, n_cells)
    rho, z = np.empty(len(p)), np.empty(len(p))
    for number in np.unique(cell):
        alike = cell == number
        votes = _Votes(counts[alike], p[alike], weight[alike], of_label)
        value = votes.correlation()
        rho[alike], z[alike] = value, votes.at(value)
    return rho, z


def _tested(
    n: int,
    counts: Int,
    p: Float,
    w: Float,
    groups: Int | None,
    of_label: bool,
    n_resamples: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Test the n cases of one stratum; they have votes."""
    m = counts.sum(axis=1)
    rho, z = _correlations(counts, p, w, of_label)
    mu = expit(z)
    if p.ndim == 1:
        share = counts[:, 1] / m
        sure, sides = np.maximum(mu, 1.0 - mu), np.where(mu >= 0.5, share, 1.0 - share)
    else:
        share = counts[np.arange(len(p)), p.argmax(axis=1)] / m
        sure, sides = mu, share
    found: dict[str, Any] = {
        "vote_mean_p": float(np.average(mu, weights=w)),
        "vote_share": float(np.average(share, weights=w)),
        "vote_confidence": float(np.average(sure, weights=w)),
        "vote_agreement": float(np.average(sides, weights=w)),
        **_mean_interval("vote_gap", mu - share, w, n, groups),
        **_mean_interval("vote_overconfidence", sure - sides, w, n, groups),
        "vote_rho": float(np.average(rho, weights=w)),
    }
    worth = m / (1.0 + (m - 1.0) * rho)
    residual, variance = worth * (share - mu), worth * mu * (1.0 - mu)
    why = too_few(groups)
    if groups is None and n < MIN_GROUPS:
        why = f"too few cases ({n}, at least {MIN_GROUPS} are needed)"
    if not why and w @ variance < MIN_VARIANCE:
        why = "its probabilities are too extreme to test"
    if why:
        return found | {"reason": why}
    if groups is None:
        return found | {"p_votes": _score_p(w * residual, w * variance, z)}
    score = flip_scores(residual, np.sqrt(variance), z, groups, n_resamples, rng)
    return found | {"p_votes": score[1]}


def _mean_interval(
    name: str, values: Float, w: Float, n: int, groups: Int | None
) -> dict[str, Any]:
    """Weighted mean with its 95 % interval over n cases, or over groups: name, name_low, name_high."""
    mean, total = float(np.average(values, weights=w)), float(w.sum())
    if n > len(w):  # rows that stand for many cases each, which have no groups
        half = NORMAL_95 * float(np.sqrt(w @ (values - mean) ** 2)) / total
        low, high = mean - half, mean + half
    else:
        unit = groups
        if unit is None:
            unit = np.arange(len(w))
        parts = np.bincount(unit, w * (values - mean)).astype(np.float64) / total
        low, high = unit_interval(mean, parts, np.bincount(unit, w).astype(np.float64))
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _score_p(residual: Float, variance: Float, z: Float) -> float:
    """p-value of the scores of intercept and slope; of the intercept alone where all z are equal."""
    line = np.column_stack([np.ones(len(z)), z])
    score, spread = residual @ line, (line * variance[:, None]).T @ line
    if np.ptp(z) < 1e-9:
        return erfc(abs(score[0]) / sqrt(2.0 * spread[0, 0]))
    return exp(-0.5 * float(score @ np.linalg.solve(spread, score)))
