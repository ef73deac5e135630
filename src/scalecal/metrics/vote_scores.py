"""How close the probabilities come to the readers' votes.

With v_c of m votes for class c, f_c = v_c / m. Votes are given as (n, C) counts per class, or as
(n,) counts of the positive class with `n_raters`. Cases without votes are left out (`vote_error`,
`split_auc` and `split_ece` need two votes); if no case is left the answer is NaN.

`probs` are the probabilities that one reader votes so. Some metrics look at the whole panel of a
case: the law of its votes is beta-binomial (Dirichlet-multinomial with more than two classes) with
mean `probs` and correlation `rho` of two votes on a case (`scalecal.panel`); rho = 0 is the binomial.

A finite number of votes keeps most of these above zero even for the true vote probabilities;
`vote_floor` says how far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr, gammaln, logit, xlog1py, xlogy

from scalecal.checks import (
    Float,
    Int,
    as_rng,
    check_choice,
    check_counts,
)
from scalecal.limits import check_count
from scalecal.metrics.arguments import as_table, blocks, read_probs, read_votes, read_weights
from scalecal.metrics.calibration import ece
from scalecal.metrics.discrimination import auc
from scalecal.metrics.proper import EPS
from scalecal.metrics.resampling import noise_floor
from scalecal.panel import check_rho, count_log_likelihood, split_probability
from scalecal.votes import STRATA, stratum_codes

VoteMetric = Literal["dist_ce", "ent_ce", "vote_nll", "vote_error"]
Terms = Callable[[NDArray[np.intp], Float, Float], Float]  # of rows, votes cast and probs (n, C)


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
        if len(rows) == 0:
            continue
        values = terms(rows, raters[rows].astype(np.float64), as_table(p[rows]))
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


def reader_logits(p: Float) -> Float:
    """Logits of probabilities (n, C), kept 2.2e-16 inside 0 and 1: (n,) for two classes, else (n, C)."""
    inside = np.clip(p, EPS, 1.0 - EPS)
    return np.asarray(logit(inside[:, 1]) if p.shape[1] == 2 else np.log(inside))


def count_log_score(
    votes: ArrayLike,
    probs: ArrayLike,
    *,
    n_raters: ArrayLike | None = None,
    rho: float = 0.0,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean of ``-log P(k of m)``: the log score of each panel's counts, in nats.

    Unlike `vote_nll` it looks at the votes of a case together: a law that takes them as independent
    pays for panels that agree more often than it says.

    Parameters
    ----------
    votes : array of shape (n, C), or (n,) with `n_raters`
    probs : array of shape (n,) or (n, C)
        Probabilities that one reader votes so, kept 2.2e-16 inside 0 and 1.
    n_raters : int or array of shape (n,), optional
    rho : float
        Correlation of two readers' votes on a case that the probabilities do not explain, 0 to 0.99.
    sample_weight : array of shape (n,), optional

    References
    ----------
    Good (1952), JRSS B (the logarithmic score). Skellam (1948), JRSS B (the beta-binomial law).

    Examples
    --------
    >>> round(count_log_score([1], [0.5], n_raters=2), 6)        # -log(1 / 2)
    0.693147
    >>> round(count_log_score([1], [0.5], n_raters=2, rho=0.5), 6)    # -log(1 / 4)
    1.386294
    """
    counts, p = read_votes(votes, n_raters, probs)
    correlation = check_rho(rho)

    def terms(rows: NDArray[np.intp], _: Float, q: Float) -> Float:
        return -count_log_likelihood(counts[rows], reader_logits(q), correlation)

    return _average(terms, counts.sum(axis=1), p, read_weights(sample_weight, len(p)), 1)


def split_events(
    votes: ArrayLike,
    probs: ArrayLike,
    n_raters: ArrayLike | None,
    rho: float,
    sample_weight: ArrayLike | None,
) -> tuple[NDArray[np.bool_], Float, Float | None]:
    """Whether each panel of two or more split, the probability that it would, and its weight."""
    counts, p = read_votes(votes, n_raters, probs)
    w = read_weights(sample_weight, len(p))
    m = counts.sum(axis=1)
    kept = m >= 2 if w is None else (m >= 2) & (w > 0)
    split = stratum_codes(counts[kept]) == STRATA.index("low")
    return split, _split_chance(p[kept], m[kept], rho), None if w is None else w[kept]


def _split_chance(p: Float, m: Int, rho: float) -> Float:
    """Probability that each panel of m >= 2 readers splits."""
    correlation, chance = check_rho(rho), np.zeros(len(p))
    for part in blocks(len(p)):
        logits = reader_logits(as_table(p[part]))
        chance[part] = split_probability(logits, correlation, m[part])
    return np.minimum(chance, 1.0)


def split_auc(
    votes: ArrayLike,
    probs: ArrayLike,
    *,
    n_raters: ArrayLike | None = None,
    rho: float = 0.0,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Area under the ROC curve of the predicted probability that a panel splits, against whether it did.

    A panel splits where its agreement is low (`scalecal.votes.strata`). Cases with fewer than two votes
    are left out; NaN where all panels split or none did.

    Parameters as `count_log_score`.

    Examples
    --------
    >>> split_auc([4, 7, 0, 3], [0.5, 0.9, 0.1, 0.7], n_raters=7)
    1.0
    """
    split, chance, w = split_events(votes, probs, n_raters, rho, sample_weight)
    return auc(split, chance, sample_weight=w) if len(split) else float("nan")


def split_ece(
    votes: ArrayLike,
    probs: ArrayLike,
    *,
    n_raters: ArrayLike | None = None,
    rho: float = 0.0,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Expected calibration error of the predicted probability that a panel splits.

    Parameters as `count_log_score`; `n_bins` bins of equal width. Cases as in `split_auc`.

    Examples
    --------
    >>> round(split_ece([4, 3], [0.5, 0.5], n_raters=7), 6)      # says 35 / 64, both do
    0.453125
    """
    split, chance, w = split_events(votes, probs, n_raters, rho, sample_weight)
    return ece(split, chance, n_bins=n_bins, sample_weight=w) if len(split) else float("nan")


def split_floor(
    probs: ArrayLike,
    n_raters: ArrayLike,
    *,
    rho: float = 0.0,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Expected `split_ece` if the law of votes with these probabilities and `rho` were true.

    Parameters as `split_ece`, with the votes of each case in `n_raters`; those with fewer than two are
    left out.

    Examples
    --------
    >>> round(split_floor([0.5], 2), 6)
    0.5
    """
    p = read_probs(probs)
    w = read_weights(sample_weight, len(p))
    m: Int = check_counts(np.zeros(len(p)), n_raters)[:, 0]
    kept = m >= 2 if w is None else (m >= 2) & (w > 0)
    if not kept.any():
        return float("nan")
    chance = _split_chance(p[kept], m[kept], rho)
    return noise_floor(chance, n_bins=n_bins, sample_weight=None if w is None else w[kept])


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
    check_count(n_resamples, "n_resamples", "resamples")
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
