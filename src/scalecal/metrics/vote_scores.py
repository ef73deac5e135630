"""How close the probabilities come to the readers' votes.

With v_c of m votes for class c, f_c = v_c / m. Votes are given as (n, C) counts per class, or as
(n,) counts of the positive class with `n_raters`. Cases without votes are left out (`vote_error`
needs two votes); if no case is left the answer is NaN.

A finite number of votes keeps most of these above zero even for the true vote probabilities;
`vote_floor` says how far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr, gammaln, xlog1py, xlogy

from scalecal.checks import (
    Float,
    Int,
    as_rng,
    check_choice,
    check_counts,
    check_positive_int,
)
from scalecal.metrics.arguments import blocks, read_probs, read_votes, read_weights
from scalecal.metrics.proper import EPS

VoteMetric = Literal["dist_ce", "ent_ce", "vote_nll", "vote_error"]
Terms = Callable[[NDArray[np.intp], Float, Float], Float]  # of rows, votes cast and probs (n, C)


def _columns(p: Float) -> Float:
    return np.column_stack([1.0 - p, p]) if p.ndim == 1 else p


def _distance(f: Float, m: Float, p: Float) -> Float:  # noqa: ARG001
    return np.asarray(0.5 * np.abs(p - f).sum(axis=1))


def _entropy_gap(f: Float, m: Float, p: Float) -> Float:
    miller_madow = ((f > 0).sum(axis=1) - 1) / (2.0 * m)
    return np.asarray(np.abs(entr(p).sum(axis=1) - entr(f).sum(axis=1) - miller_madow))


def _cross_entropy(f: Float, m: Float, p: Float) -> Float:  # noqa: ARG001
    return np.asarray(-(f * np.log(np.clip(p, EPS, 1.0 - EPS))).sum(axis=1))


def _squared(f: Float, m: Float, p: Float) -> Float:
    terms: Float = (p - f) ** 2 - f * (1.0 - f) / (m - 1.0)[:, None]
    return terms[:, 1] if terms.shape[1] == 2 else terms.sum(axis=1)


def _average(terms: Terms, raters: Int, p: Float, w: Float | None, least: int) -> float:
    """Mean of what each case with `least` votes or more adds; NaN where there is none."""
    total = mass = 0.0
    for part in blocks(len(p)):
        rows = part.start + np.flatnonzero(raters[part] >= least)
        values = terms(rows, raters[rows].astype(np.float64), _columns(p[rows]))
        weight = np.ones(len(rows)) if w is None else w[rows]
        total += float(values @ weight)
        mass += float(weight.sum())
    return total / mass if mass > 0 else float("nan")


def _score(
    distance: Callable[[Float, Float, Float], Float],
    votes: ArrayLike,
    probs: ArrayLike,
    n_raters: ArrayLike | None,
    sample_weight: ArrayLike | None,
    least: int = 1,
) -> float:
    """Mean of `distance`, a function of vote shares (n, C), votes cast (n,) and probs (n, C)."""
    counts, p = read_votes(votes, n_raters, probs)

    def terms(rows: NDArray[np.intp], m: Float, q: Float) -> Float:
        return distance(counts[rows] / m[:, None], m, q)

    return _average(terms, counts.sum(axis=1), p, read_weights(sample_weight, len(p)), least)


def dist_ce(
    votes: ArrayLike,
    probs: ArrayLike,
    *,
    n_raters: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean total variation distance between probabilities and vote shares.

    ``sum_c |p_c - f_c| / 2`` per case.

    Parameters
    ----------
    votes : array of shape (n, C), or (n,) with `n_raters`
    probs : array of shape (n,) or (n, C)
    n_raters : int or array of shape (n,), optional
    sample_weight : array of shape (n,), optional

    References
    ----------
    Baan, Aziz, Plank, Fernandez (2022), EMNLP.

    Examples
    --------
    >>> round(dist_ce([4, 7], [0.5, 0.9], n_raters=7), 6)
    0.085714
    """
    return _score(_distance, votes, probs, n_raters, sample_weight)


def ent_ce(
    votes: ArrayLike,
    probs: ArrayLike,
    *,
    n_raters: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean distance between the entropy of the probabilities and that of the votes, in nats.

    ``|H(p) - H(f)|`` per case, H(f) with the Miller-Madow correction: the number of classes that
    got a vote, less one, over 2 m.

    Parameters as `dist_ce`.

    References
    ----------
    Baan et al. (2022), EMNLP. Miller (1955), Information Theory in Psychology.

    Examples
    --------
    >>> round(ent_ce([7], [1.0], n_raters=7), 6)
    0.0
    """
    return _score(_entropy_gap, votes, probs, n_raters, sample_weight)


def vote_nll(
    votes: ArrayLike,
    probs: ArrayLike,
    *,
    n_raters: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean negative log likelihood of a vote, ``-sum_c f_c log p_c``, in nats.

    Every case counts the same, however many voted. Probabilities are kept 2.2e-16 inside 0 and 1.

    Parameters as `dist_ce`.

    Examples
    --------
    >>> round(vote_nll([4, 3], [0.5, 0.5], n_raters=7), 6)
    0.693147
    """
    return _score(_cross_entropy, votes, probs, n_raters, sample_weight)


def vote_error(
    votes: ArrayLike,
    probs: ArrayLike,
    *,
    n_raters: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean squared distance to the vote probability, free of the noise of finite votes.

    ``(p - f)^2 - f (1 - f) / (m - 1)`` per case with m >= 2 votes, of the positive class for two
    classes, summed over them for more. Its mean is zero for the true vote probabilities, so it can
    be negative. Votes of one case must be independent given that probability.

    Parameters as `dist_ce`.

    Examples
    --------
    >>> round(vote_error([4, 7], [0.5, 0.9], n_raters=7), 6)
    -0.012857
    """
    return _score(_squared, votes, probs, n_raters, sample_weight, least=2)


def _binomial(m: Float | float, v: Float | float, p: Float) -> Float:
    choose = gammaln(m + 1.0) - gammaln(v + 1.0) - gammaln(m - v + 1.0)
    return np.asarray(np.exp(choose + xlogy(v, p) + xlog1py(m - v, -p)))


def _distance_floor(m: Float, p: Float) -> Float:
    # The mean absolute deviation of a binomial, De Moivre's closed form, for each class.
    least = np.minimum(np.floor(m[:, None] * p) + 1.0, m[:, None])
    deviation = 2.0 * least * (1.0 - p) * _binomial(m[:, None], least, p) / m[:, None]
    return np.asarray(0.5 * deviation.sum(axis=1))


def _entropy_floor_two(m: Float, p: Float) -> Float:
    # The votes' entropy takes m + 1 values only.
    entropy, total = entr(p).sum(axis=1), np.zeros(len(m))
    for cast in np.unique(m):
        at = m == cast
        v = np.arange(cast + 1.0)
        shares = np.column_stack([cast - v, v]) / cast
        seen = entr(shares).sum(axis=1) + ((shares > 0).sum(axis=1) - 1) / (2.0 * cast)
        for positive, value in zip(v, seen, strict=True):
            total[at] += _binomial(cast, positive, p[at, 1]) * np.abs(entropy[at] - value)
    return total


def _entropy_floor_sampled(m: Float, p: Float, draws: int, rng: np.random.Generator) -> Float:
    total = np.zeros(len(m))
    safe = p / p.sum(axis=1, keepdims=True)  # rows may be 1e-4 off; the sampler is stricter
    for _ in range(draws):
        v = rng.multinomial(m.astype(np.int64), safe)
        total += _entropy_gap(v / m[:, None], m, p)
    return total / draws


def vote_floor(
    metric: VoteMetric,
    probs: ArrayLike,
    n_raters: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    n_resamples: int = 100,
    seed: int | np.random.Generator | None = 0,
) -> float:
    """Expected value of a vote metric if `probs` were the true vote probabilities.

    Votes are taken as independent given the case. Exact, except for "ent_ce" with more than two
    classes, which draws votes `n_resamples` times.

    Parameters
    ----------
    metric : {"dist_ce", "ent_ce", "vote_nll", "vote_error"}
    probs : array of shape (n,) or (n, C)
    n_raters : int or array of shape (n,)
        Votes per case; cases without votes (for "vote_error" with fewer than two) are left out.
    sample_weight : array of shape (n,), optional
    n_resamples : int
    seed : int or Generator

    Examples
    --------
    >>> round(vote_floor("dist_ce", [0.5, 0.5], 1), 6)
    0.5
    >>> vote_floor("vote_error", [0.2, 0.7], 7)
    0.0
    """
    check_choice(metric, ("dist_ce", "ent_ce", "vote_nll", "vote_error"), "metric")
    check_positive_int(n_resamples, "n_resamples")
    p = read_probs(probs)
    # No case has a vote yet, so this only checks and spreads the number of raters.
    raters: Int = check_counts(np.zeros(len(p)), n_raters)[:, 0]
    rng = as_rng(seed)

    def terms(_: NDArray[np.intp], m: Float, q: Float) -> Float:
        if metric == "dist_ce":
            return _distance_floor(m, q)
        if metric == "vote_nll":
            return np.asarray(entr(q).sum(axis=1))
        if metric == "vote_error":
            return np.zeros(len(m))
        if q.shape[1] == 2:
            return _entropy_floor_two(m, q)
        return _entropy_floor_sampled(m, q, n_resamples, rng)

    least = 2 if metric == "vote_error" else 1
    return _average(terms, raters, p, read_weights(sample_weight, len(p)), least)
