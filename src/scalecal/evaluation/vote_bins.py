"""Reliability against readers' votes: bins of a reader's probability, and what chance does to them.

The votes of one case go together beyond what its probability explains, so cases are the units: each
adds its share of positive votes. How far they go together is estimated from the cases themselves.
Where cases come in groups, these are the units.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import logit

from scalecal.checks import MOST_RHO, Float, Int, as_rng
from scalecal.metrics.arguments import blocks, event_probs, read_event
from scalecal.metrics.binning import Bins, bin_index, bins
from scalecal.metrics.grouping import flipped, group_totals, pooled, read_groups, too_few
from scalecal.metrics.label_scores import EPS
from scalecal.panel import vote_log_pmf

if TYPE_CHECKING:
    from scalecal.evaluation.audits import Audit


class VoteBins(NamedTuple):
    """What fell into each bin, and where calibrated probabilities of a vote would put it.

    `table` has the mean share of positive votes as `mean_y`; `votes` counts them; `drawn` holds the
    bins' sums of probability less share that chance alone gives, (n_resamples, n_bins); `rho` is the
    correlation of two votes on a case behind them, NaN where it is unknown and votes are taken to agree.
    """

    table: Bins
    votes: Int
    drawn: Float
    rho: float


def vote_correlation(share: Float, p: Float, m: Int, cell: Int, w: Float) -> float:
    r"""Correlation of two votes on a case that its probability does not explain, by moments.

    With residuals :math:`r = f - p` of the shares, :math:`Var(r) = p (1 - p) (1/m + (1 - 1/m) \rho)`.
    Residuals are centred in each bin, so that miscalibration is not taken for correlation; a bin of n
    cases then has :math:`1 - 1/n` of their variance. Between 0 and 0.99; NaN where no bin with two cases
    has two votes on one.
    """
    mass = np.bincount(cell, w)[cell]
    kept = w * (1.0 - 1.0 / mass)
    residual = share - p
    centred = residual - np.bincount(cell, w * residual)[cell] / mass
    variance = p * (1.0 - p)
    alone, together = kept @ (variance / m), kept @ (variance * (1.0 - 1.0 / m))
    if together <= 0.0:
        return float("nan")
    return float(np.clip((w @ centred**2 - alone) / together, 0.0, MOST_RHO))


def vote_bins(
    votes: Int,
    probs: Float,
    *,
    groups: Int | None = None,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: Float | None = None,
    importance: Float | None = None,
) -> VoteBins:
    """Compare the share of positive votes with the probability of one, bin by bin.

    For calibrated probabilities the votes of a case are drawn from the beta-binomial law with their
    mean and the correlation of `vote_correlation`, from the mixture of the laws of a bin's cases with
    as many readers, which is a little wider than each case's own. With groups, what each adds to the bins
    gets a random sign instead (`scalecal.metrics.grouping`); too few of them give NaN.

    Parameters
    ----------
    votes : array (n, C)
    probs : array (n,) or (n, C)
        With more than two classes the event is a vote for the top class.
    groups, n_bins, n_resamples, seed, sample_weight
        As `scalecal.metrics.resampled_ece`.
    importance
        (n,) weights of cases that were sampled by class; what chance does to them is not known (NaN).

    Examples
    --------
    >>> found = vote_bins(np.array([[4, 3], [1, 6], [7, 0]]), np.array([0.45, 0.8, 0.1]), n_bins=2)
    >>> found.table.n.tolist(), found.votes.tolist(), found.table.mean_y.round(3).tolist()
    ([2, 1], [14, 7], [0.214, 0.857])
    """
    m = votes.sum(axis=1)
    some = m > 0
    weights = sample_weight if importance is None else importance
    m, w = m[some], np.ones(int(some.sum())) if weights is None else weights[some]
    shares = votes[some] / m[:, None]
    table = bins(shares, probs[some], n_bins=n_bins, sample_weight=w)
    p, share = event_probs(probs[some]), read_event(shares, probs[some]).y
    cell = bin_index(p, n_bins=n_bins)
    rho = vote_correlation(share, p, m, cell, w)
    if importance is not None:
        table = replace(table, n=np.bincount(cell, minlength=n_bins))
    times = w if importance is None else np.ones(len(m))
    counted = np.rint(np.bincount(cell, times * m, n_bins)).astype(np.int64)
    rng, drawn = as_rng(seed), np.zeros((n_resamples, n_bins))
    unit = read_groups(None if groups is None else groups[some], len(p))
    if importance is not None:
        return VoteBins(table, counted, np.full_like(drawn, np.nan), rho)
    if unit is not None:
        if too_few(unit):
            return VoteBins(table, counted, np.full_like(drawn, np.nan), rho)
        sums = group_totals(p - share, pooled(unit, rng), cell, n_bins)
        return VoteBins(table, counted, flipped(sums, n_resamples, rng), rho)
    for size in np.unique(m).tolist():
        law = np.zeros((n_bins, size + 1))
        here = np.flatnonzero(m == size)
        for part in blocks(len(here), 1 << 14):
            rows = here[part]
            z = logit(np.clip(p[rows], EPS, 1.0 - EPS))
            pmf = np.exp(vote_log_pmf(z, MOST_RHO if np.isnan(rho) else rho, size))
            np.add.at(law, cell[rows], w[rows, None] * pmf)
        of_share = np.arange(size + 1) / size
        for b in np.flatnonzero(law.any(axis=1)):
            count = int(np.rint(law[b].sum()))
            seen = rng.multinomial(count, law[b] / law[b].sum(), size=n_resamples)
            drawn[:, b] += count * (law[b] @ of_share) / law[b].sum() - seen @ of_share
    return VoteBins(table, counted, drawn, rho)


def vote_reliability(audit: Audit, *, level: float = 0.9) -> list[dict[str, Any]]:
    """Reliability of an audit's probabilities against readers' votes, as facts: one panel per row.

    For all cases, and for strata that the votes did not make (within those the share of votes is what
    the stratum was chosen by). Empty without votes.

    Returns
    -------
    list of dict
        ``stratum, n`` (cases with votes), ``votes``, ``judges`` ("p_reader" or "p"), ``rho`` (the
        correlation behind the bars), ``ece, null, null_low, null_high`` (of the bins, and what
        calibrated probabilities would show: mean, 5th and 95th percentile) and ``bins``: for each
        filled bin ``lo, hi, mean_p, mean_y`` (mean share of positive votes), ``n, votes, bar_lo,
        bar_hi`` (the central `level` of calibrated ones).

    Examples
    --------
    >>> from scalecal import audit
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.uniform(size=300)
    >>> votes = rng.binomial(5, chance)
    >>> panel = vote_reliability(audit(votes > 2, chance, votes=votes, n_raters=5))[0]
    >>> panel["n"], panel["votes"], len(panel["bins"]), panel["ece"] < panel["null_high"]
    (300, 1500, 15, True)
    """
    source = audit.by_votes or audit
    predictions, meta = source.predictions, audit.meta
    cases = predictions.cases
    panels: list[dict[str, Any]] = []
    if cases.votes is None:
        return panels
    names = () if cases.agreement else audit.shown_strata
    for name in ("overall", *names):
        inside = cases.within(name)
        votes = cases.votes[inside]
        if not votes.any():
            continue
        made = vote_bins(
            votes,
            predictions.only.vote_p[inside],
            groups=None if cases.group_codes is None else cases.group_codes[inside],
            n_bins=meta["n_bins"],
            n_resamples=meta["n_resamples"],
            seed=meta["seed"],
            sample_weight=None if source.times is None else source.times[inside],
            importance=source.units.within(inside).weights if source.units.importance else None,
        )
        panels.append({"stratum": name, "judges": meta["votes_judge"], **_facts(made, level)})
    return panels


def _facts(made: VoteBins, level: float) -> dict[str, Any]:
    table = made.table
    n = float(table.weight.sum())
    errors = np.abs(made.drawn).sum(axis=1) / n
    low, high = np.quantile(errors, [0.05, 0.95])
    # A share is the mean probability less the residual, whose upper tail is the bar's lower end.
    tails = np.quantile(made.drawn, [0.5 + level / 2, 0.5 - level / 2], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        bars = np.clip(table.mean_p - tails / table.weight, 0.0, 1.0)
    return {
        "n": int(table.n.sum()),
        "votes": int(made.votes.sum()),
        "rho": made.rho,
        "ece": table.ece,
        "null": float(errors.mean()),
        "null_low": float(low),
        "null_high": float(high),
        "bins": [
            {
                **{k: float(getattr(table, k)[b]) for k in ("lo", "hi", "mean_p", "mean_y")},
                "n": int(table.n[b]),
                "votes": int(made.votes[b]),
                "bar_lo": float(bars[0, b]),
                "bar_hi": float(bars[1, b]),
            }
            for b in table.n.nonzero()[0]
        ],
    }
