"""How close the probabilities come to the readers' votes.

With v_c of m votes for class c, f_c = v_c / m. Votes are given as (n, C) counts per class, or as
(n,) counts of the positive class with `n_raters`. Cases without votes are left out (`vote_error`,
`split_auc` and `split_ece` need two votes); if no case is left the answer is NaN.

`probs` are the probabilities that one reader votes so. Some metrics look at the whole panel of a
case: the law of its votes is beta-binomial (Dirichlet-multinomial with more than two classes) with
mean `probs` and correlation `rho` of two votes on a case (`scalecal.panel`); rho = 0 is the binomial.

A finite number of votes keeps most of these above zero even for the true vote probabilities; the
`expected` value of a metric's record in `scalecal.metrics.METRICS` says how far.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, gammaln, xlog1py, xlogy

from scalecal.checks import Float, Int, as_rng
from scalecal.limits import check_count
from scalecal.metrics.arguments import Sample, blocks, read_votes
from scalecal.metrics.binning import binned, mean_gap
from scalecal.metrics.label_scores import EPS, area, entropy_term, logits
from scalecal.metrics.resampling import sample_floor
from scalecal.panel import check_rho, count_log_law, split_probability
from scalecal.votes import STRATA, stratum_codes

DRAWN_PANELS = 100
"""Panels drawn for each case where the mean of a metric over votes has no closed form."""


# Terms: what a case adds to a metric. Cases without the votes it needs are left out before or after.


def distance_term(sample: Sample) -> Float:
    """Total variation distance between probabilities and vote shares."""
    return np.asarray(0.5 * np.abs(sample.table - sample.shares).sum(axis=1))


def entropy_gap_term(sample: Sample) -> Float:
    """Distance between the entropies of probabilities and votes, the latter by Miller and Madow."""
    seen = _entropy_of_votes(sample.shares, np.maximum(sample.readers, 1))
    return np.asarray(np.abs(entr(sample.table).sum(axis=1) - seen))


def _entropy_of_votes(shares: Float, m: Float | Int | float) -> Float:
    miller_madow = ((shares > 0).sum(axis=1) - 1) / (2.0 * m)
    return np.asarray(entr(shares).sum(axis=1) + miller_madow)


def vote_nll_term(sample: Sample) -> Float:
    """Mean negative log likelihood of the case's votes."""
    return np.asarray(-(sample.shares * np.log(np.clip(sample.table, EPS, 1.0 - EPS))).sum(axis=1))


def vote_excess_term(sample: Sample) -> Float:
    """`vote_nll_term` less what it is expected to be."""
    return vote_nll_term(sample) - entropy_term(sample)


def vote_gap_term(sample: Sample) -> Float:
    """Probability of a vote less the share of such votes: positive ones, or for the top class."""
    each = np.arange(len(sample.p))
    event = sample.top
    if sample.table.shape[1] == 2:
        event = np.ones_like(event)
    return np.asarray(sample.table[each, event] - sample.shares[each, event])


def vote_error_term(sample: Sample) -> Float:
    """Squared distance to the vote shares, less the noise of so many votes; needs two votes."""
    f = sample.shares
    noise = f * (1.0 - f) / np.maximum(sample.readers - 1, 1)[:, None]
    terms: Float = (sample.table - f) ** 2 - noise
    return terms[:, 1] if terms.shape[1] == 2 else np.asarray(terms.sum(axis=1))


def count_term(sample: Sample) -> Float:
    """Negative log likelihood of the case's counts."""
    assert sample.votes is not None
    return -count_log_law(sample.votes, reader_logits(sample.table), sample.rho)


# What these terms are on average where the probabilities are those of the votes.


def distance_floor_term(sample: Sample) -> Float:
    """Mean absolute deviation of a binomial, De Moivre's closed form, for each class."""
    p, m = sample.table, sample.readers.astype(np.float64)[:, None]
    least = np.minimum(np.floor(m * p) + 1.0, m)
    deviation = 2.0 * least * (1.0 - p) * _binomial(m, least, p) / m
    return np.asarray(0.5 * deviation.sum(axis=1))


def entropy_floor_term(sample: Sample) -> Float:
    """Mean of `entropy_gap_term`: exact for two classes, else from a hundred panels drawn for each case."""
    m, p = sample.readers, sample.table
    entropy, total = entr(p).sum(axis=1), np.zeros(len(m))
    if p.shape[1] > 2:
        rng = as_rng(0)
        safe = p / p.sum(axis=1, keepdims=True)  # rows may be 1e-4 off; the sampler is stricter
        for _ in range(DRAWN_PANELS):
            votes = rng.multinomial(m, safe)
            total += np.abs(entropy - _entropy_of_votes(votes / m[:, None], m))
        return total / DRAWN_PANELS
    # The votes' entropy takes m + 1 values only.
    for cast in np.unique(m).tolist():
        at = m == cast
        v = np.arange(cast + 1.0)
        seen = _entropy_of_votes(np.column_stack([cast - v, v]) / cast, cast)
        for positive, value in zip(v, seen, strict=True):
            total[at] += _binomial(cast, positive, p[at, 1]) * np.abs(entropy[at] - value)
    return total


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
    return read_votes(votes, probs, n_raters, sample_weight).mean(distance_term, 1)


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
    return read_votes(votes, probs, n_raters, sample_weight).mean(entropy_gap_term, 1)


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
    return read_votes(votes, probs, n_raters, sample_weight).mean(vote_nll_term, 1)


def vote_error(
    votes: ArrayLike,
    probs: ArrayLike,
    *,
    n_raters: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean squared distance to the vote probability, corrected for the noise of finite votes.

    ``(p - f)^2 - f (1 - f) / (m - 1)`` per case with m >= 2 votes, of the positive class for two
    classes, summed over them for more. Its mean is zero for the true vote probabilities, so it can
    be negative. Votes of one case must be independent given that probability.

    Parameters as `dist_ce`.

    Examples
    --------
    >>> round(vote_error([4, 7], [0.5, 0.9], n_raters=7), 6)
    -0.012857
    """
    return read_votes(votes, probs, n_raters, sample_weight).mean(vote_error_term, 2)


def reader_logits(p: Float) -> Float:
    """Logits of probabilities (n, C), kept 2.2e-16 inside 0 and 1: (n,) for two classes, else (n, C)."""
    if p.shape[1] == 2:
        return logits(p[:, 1])
    return np.asarray(np.log(np.clip(p, EPS, 1.0 - EPS)))


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
    sample = read_votes(votes, probs, n_raters, sample_weight)
    return replace(sample, rho=check_rho(rho)).mean(count_term, 1)


def split_panels(sample: Sample) -> Sample:
    """Whether each panel of two or more readers split, and the probability that it would."""
    panels = sample.judged(2)
    if panels.weights is not None:
        panels = panels.take(panels.weights > 0)
    assert panels.votes is not None
    chance = np.zeros(len(panels.p))
    for part in blocks(len(panels.p)):
        logits = reader_logits(panels.table[part])
        chance[part] = split_probability(logits, panels.rho, panels.readers[part])
    split = stratum_codes(panels.votes) == STRATA.index("low")
    return replace(panels, y=split.astype(np.float64), p=np.minimum(chance, 1.0), votes=None)


def split_area(sample: Sample) -> float:
    """`split_auc` of a sample."""
    return area(split_panels(sample))


def split_gap(sample: Sample) -> float:
    """`split_ece` of a sample."""
    panels = split_panels(sample)
    if len(panels.p) == 0:
        return float("nan")
    return binned(panels, mean_gap)


def split_floor(sample: Sample) -> float:
    """Expected `split_ece` if the law of votes were true; NaN with importance weights.

    Such weights are by label, and how labels and splits go together is not in the law of votes alone.
    """
    return sample_floor(split_panels(sample))


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
    sample = read_votes(votes, probs, n_raters, sample_weight)
    return split_area(replace(sample, rho=check_rho(rho)))


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
    check_count(n_bins, "n_bins", "bins")
    sample = read_votes(votes, probs, n_raters, sample_weight)
    return split_gap(replace(sample, rho=check_rho(rho), n_bins=n_bins))


def _binomial(m: Float | float, v: Float | float, p: Float) -> Float:
    choose = gammaln(m + 1.0) - gammaln(v + 1.0) - gammaln(m - v + 1.0)
    return np.asarray(np.exp(choose + xlogy(v, p) + xlog1py(m - v, -p)))
