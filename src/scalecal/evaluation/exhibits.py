"""What figures and lists of an evaluation show: reliability, referral, decision curves, and cases to look at.

Against votes, the votes of one case go together beyond what its probability explains, so cases are the units:
each adds its share of positive votes. How far they go together is estimated from the cases themselves. Where
cases come in groups, these are the units.

In decision curves labels judge `p`, and votes judge `p_reader`, or `p` where there is none, with the share of
positive votes as the outcome. Within a stratum the share of positives, and so the benefit of treating all, is
that of the stratum: strata of agreement are known only after the readers voted, and no decision is taken in
them.

Cases to look at are those where a model is most confident against its readers, and likely splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scalecal.calibrators.base import as_logits
from scalecal.cases import Answers, Predictions, rows_of
from scalecal.checks import MAX_RHO, Float, Int, as_rng
from scalecal.evaluation.audits import Audit
from scalecal.evaluation.cells import PUBLISHED, VOTED, reweighted
from scalecal.evaluation.changes import Row, null_band
from scalecal.evaluation.rows import label_sample
from scalecal.inference.curves import fit_curve
from scalecal.inference.units import Units, unit_interval
from scalecal.metrics.arguments import (
    Sample,
    as_table,
    blocks,
    event_probs,
    read_event,
    read_hard_event,
)
from scalecal.metrics.binning import Bins, bin_index, bins
from scalecal.metrics.grouping import flipped, group_totals, pooled, read_groups, too_few
from scalecal.metrics.label_scores import check_thresholds, logits
from scalecal.panel import split_probability, vote_log_pmf

if TYPE_CHECKING:
    import pandas as pd

REFERRED_BELOW = (0.8, 0.9, 0.95)
"""Confidence below which a case goes to a second reader, for the table."""

THRESHOLDS: Float = np.arange(1, 100) / 100
"""Thresholds of a curve."""

CHOSEN = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Thresholds of tables."""

DECISION_COLUMNS = (
    *("judge", "probability", "stratum", "n", "threshold", "prevalence", "treated", "net_benefit"),
    *("net_benefit_low", "net_benefit_high", "treat_all", "gain", "gain_low", "gain_high"),
)
"""Columns of a decision curve."""

DECISION_THRESHOLDS: Float = np.unique([*CHOSEN, *(np.arange(1, 50) / 50)])
"""Thresholds of the decision curves on a page."""

_CURVE_POINTS = 60  # of a referral curve: more would not be seen on a page

CASES_LISTED = 8
"""Over-confident cases listed of each stratum."""

CONFIDENT_LISTED = 6
"""Cases shown beside the verdict: the most confident of the audited seed against the readers."""

SPLITS_LISTED = 12
"""Cases listed whose panel is most likely to split."""


HISTOGRAM = 30
"""Cells of equal width of the distribution of p by outcome."""


AXIS_TOPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Ends of the axes of diagrams whose probabilities are all small; others end at 1."""


def axis_top(p: Float) -> float:
    """Where the axes of a reliability diagram end: at 1, unless all but one in 200 cases are far below.

    Examples
    --------
    >>> axis_top(np.array([0.2, 0.9])), axis_top(np.array([0.001, 0.004])), axis_top(np.zeros(9))
    (1.0, 0.01, 1.0)
    """
    most = float(np.quantile(p, 0.995))
    for top in AXIS_TOPS:
        if 0.0 < most <= 0.75 * top:
            return top
    return 1.0


def curve_facts(
    outcome: Float, p: Float, units: Units, seed: int, readers: Int | None = None
) -> Row:
    """The flexible curve with its bands, and the distribution of p for both outcomes.

    Parameters
    ----------
    outcome
        (n,) labels, or shares of votes.
    p, units
        (n,) probabilities, and what is independent.
    seed
        Of the draws behind the simultaneous band.
    readers
        (n,) votes behind each share, which are counted then.

    Returns
    -------
    dict
        ``top``: where the axes of a diagram end. ``curve``: ``p`` (a grid over the central 95 % of p),
        ``value``, ``low``, ``high`` (pointwise 95 %), ``all_low``, ``all_high`` (simultaneous); or None, and
        ``curve_reason`` says why. ``positives`` and ``negatives`` count the cases, or votes, of either
        outcome in `HISTOGRAM` cells of p up to that end.
    """
    times = np.ones(len(p))
    if units.times is not None:
        times = units.times
    if readers is not None:
        times = times * readers
    top = axis_top(p)
    cell = np.minimum((p / top * HISTOGRAM).astype(np.int64), HISTOGRAM - 1)
    facts: Row = {"top": top, "curve": None, "curve_reason": ""}
    for name, mass in (("positives", times * outcome), ("negatives", times * (1.0 - outcome))):
        facts[name] = np.rint(np.bincount(cell, mass, HISTOGRAM)).astype(int).tolist()
    curve = fit_curve(outcome, p, units)
    if isinstance(curve, str):
        facts["curve_reason"] = curve
        return facts
    grid = curve.grid()
    drawn = {"p": grid, **curve.band(grid, seed=seed)}
    # Four digits are finer than any screen, and keep the facts small.
    facts["curve"] = {
        name: [float(f"{value:.4g}") for value in values] for name, values in drawn.items()
    }
    return facts


def reliability_facts(audit: Audit) -> list[Row]:
    """One panel per stratum of the audited seed: bins, counts, consistency bars, null, flexible curve.

    Strata that the votes made have no curve: selection would bend that of a calibrated model.
    """
    predictions, panels = audit.predictions, []
    for row in audit.shown_rows:
        if not row["n"]:
            continue
        panel = {"stratum": row["name"], **{k: row[k] for k in ("n", "ece", "floor")}}
        if row["name"] == "overall":
            panel |= null_band([audit.drawn[0]])
            panel["null"] = row["floor"]
        else:
            panel |= {k: row.get(k) for k in ("null", "null_low", "null_high")}
        table, bars = audit.reliability(row["name"])
        panel["bins"] = _bin_facts(table, bars.lo, bars.hi)
        if row["name"] == "overall" or not predictions.cases.agreement:
            inside = predictions.cases.within(row["name"])
            event = label_sample(predictions.y[inside], predictions.p[inside]).event
            units = audit.units.within(inside)
            panel |= {k: row[k] for k in ("ici", "ici_low", "ici_high", "ici_floor")}
            panel |= curve_facts(event.y, event.p, units, audit.meta["seed"])
        panels.append(panel)
    return panels


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
    return float(np.clip((w @ centred**2 - alone) / together, 0.0, MAX_RHO))


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
    m = m[some]
    times = w = np.ones(len(m))
    if sample_weight is not None:
        times = w = sample_weight[some]
    if importance is not None:
        w = importance[some]
    shares = votes[some] / m[:, None]
    table = bins(shares, probs[some], n_bins=n_bins, sample_weight=w)
    p, share = event_probs(probs[some]), read_event(shares, probs[some]).y
    cell = bin_index(p, n_bins=n_bins)
    rho = vote_correlation(share, p, m, cell, w)
    if importance is not None:
        table = replace(table, n=np.bincount(cell, minlength=n_bins))
    counted = np.rint(np.bincount(cell, times * m, n_bins)).astype(np.int64)
    rng, drawn = as_rng(seed), np.zeros((n_resamples, n_bins))
    unit = read_groups(rows_of(groups, some), len(p))
    if importance is not None or too_few(unit):
        return VoteBins(table, counted, np.full_like(drawn, np.nan), rho)
    if unit is not None:
        sums = group_totals(p - share, pooled(unit, rng), cell, n_bins)
        return VoteBins(table, counted, flipped(sums, n_resamples, rng), rho)
    # Where no case tells how far its votes go together they are taken to agree.
    together = rho
    if np.isnan(rho):
        together = MAX_RHO
    for size in np.unique(m).tolist():
        law = np.zeros((n_bins, size + 1))
        here = np.flatnonzero(m == size)
        for part in blocks(len(here), 1 << 14):
            rows = here[part]
            z = logits(p[rows])
            pmf = np.exp(vote_log_pmf(z, together, size))
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
        bar_hi`` (the central `level` of calibrated ones); and what `curve_facts` says of the shares.

    Examples
    --------
    >>> from scalecal import audit
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.uniform(size=300)
    >>> votes = rng.binomial(5, chance)
    >>> panel = vote_reliability(audit(votes > 2, chance, votes=votes, n_raters=5).audit)[0]
    >>> panel["n"], panel["votes"], len(panel["bins"]), panel["ece"] < panel["null_high"]
    (300, 1500, 15, True)
    """
    source = audit.by_votes or audit
    predictions, meta = source.predictions, audit.meta
    cases = predictions.cases
    panels: list[dict[str, Any]] = []
    if cases.votes is None:
        return panels
    names: tuple[str, ...] = ("overall", *audit.shown_strata)
    if cases.agreement:
        names = ("overall",)
    for name in names:
        inside = cases.within(name)
        votes = cases.votes[inside]
        if not votes.any():
            continue
        importance = None
        if source.units.importance is not None:
            importance = source.units.within(inside).weights
        made = vote_bins(
            votes,
            predictions.only.vote_p[inside],
            groups=rows_of(cases.group_codes, inside),
            n_bins=meta["n_bins"],
            n_resamples=meta["n_resamples"],
            seed=meta["seed"],
            sample_weight=rows_of(source.units.times, inside),
            importance=importance,
        )
        judged = Sample(np.zeros(0), predictions.only.vote_p[inside], votes=votes).judged(1)
        event = read_event(judged.shares, judged.p)
        voted = np.asarray(votes.sum(axis=1) > 0)
        known = source.units.within(inside).within(voted)
        panels.append(
            {
                "stratum": name,
                "judges": meta["votes_judge"],
                **_vote_facts(made, level),
                **curve_facts(event.y, event.p, known, meta["seed"], judged.readers),
            }
        )
    return panels


def _vote_facts(made: VoteBins, level: float) -> dict[str, Any]:
    table = made.table
    n = float(table.weight.sum())
    errors = np.abs(made.drawn).sum(axis=1) / n
    # A share is the mean probability less the residual, whose upper tail is the bar's lower end.
    tails = np.quantile(made.drawn, [0.5 + level / 2, 0.5 - level / 2], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        bars = np.clip(table.mean_p - tails / table.weight, 0.0, 1.0)
    return {
        "n": int(table.n.sum()),
        "votes": int(made.votes.sum()),
        "rho": made.rho,
        "ece": table.ece,
        **null_band([errors]),
        "bins": _bin_facts(table, bars[0], bars[1], votes=made.votes),
    }


def _bin_facts(table: Bins, low: Float, high: Float, **counts: Int) -> list[Row]:
    """What a diagram shows of each filled bin: its edges and means, counts, and where chance would put it."""
    out = []
    for b in table.n.nonzero()[0]:
        row: Row = {k: float(getattr(table, k)[b]) for k in ("lo", "hi", "mean_p", "mean_y")}
        row |= {"n": int(table.n[b])} | {name: int(values[b]) for name, values in counts.items()}
        out.append(row | {"bar_lo": float(low[b]), "bar_hi": float(high[b])})
    return out


def referral_curves(cell: Predictions, methods: Sequence[str]) -> list[Row]:
    """Errors avoided per case sent to a second reader, least confident first, by stratum.

    The second reader is taken to settle a case as the label does. The curve is the error rate among
    the cases sent; with all of them sent it ends at the model's own error rate, which is also what
    sending cases at random would avoid. At another prevalence numbers of cases are weighted ones.
    """
    out = []
    for stratum in ("overall", *cell.stratum_names):
        panel: Row = {"stratum": stratum, "methods": []}
        for method in methods:
            part = cell.first(method)
            weighted, inside = reweighted(cell, part), cell.inside(part.index, stratum)
            part = part.take(inside)
            if len(part.index) == 0:
                continue
            panel["n"] = len(part.index)
            own = np.ones(panel["n"])
            if weighted is not None:
                w = weighted.each[inside]
                own = w * panel["n"] / w.sum()
            panel["methods"].append({"method": method, **_yield(cell.y[part.index], part.p, own)})
        if panel["methods"]:
            out.append(panel)
    return out


def _yield(y: Any, p: Float, w: Float) -> Row:
    event = read_hard_event(y, p)
    if p.ndim == 1:
        confidence = np.maximum(p, 1 - p)
        wrong = (p >= 0.5) != (event.y > 0.5)
    else:
        confidence, wrong = event.p, event.y < 0.5
    order = np.argsort(confidence, kind="stable")
    ranked = confidence[order]
    # Cases of equal confidence go together: a point stands after the last of its equals.
    last = np.append(ranked[1:] > ranked[:-1], True)
    sent = np.cumsum(w[order])[last]
    avoided = np.cumsum((w * wrong)[order])[last]
    n, errors = len(y), round(float(w @ wrong))
    # The first few cases say little about a rate.
    start = min(int(np.searchsorted(sent, max(10, int(0.05 * n)))), len(sent) - 1)
    pick = np.unique(np.linspace(start, len(sent) - 1, _CURVE_POINTS).astype(int))
    table = []
    for threshold in REFERRED_BELOW:
        below = confidence < threshold
        referred, saved = float(w @ below), float(w @ (below & wrong))
        row: Row = {"threshold": threshold, "sent": round(referred), "avoided": round(saved)}
        row |= {"per_case": None, "n": n, "errors": errors}
        if referred:
            row["per_case"] = saved / referred
        table.append(row)
    return {
        "n": n,
        "errors": errors,
        "share": (sent[pick] / n).tolist(),
        "yield": (avoided[pick] / sent[pick]).tolist(),
        "thresholds": table,
    }


def benefit_rows(
    outcome: Float, p: Float, units: Units, thresholds: ArrayLike
) -> list[dict[str, float]]:
    """Net benefit at each threshold, with 95 % intervals over units.

    ``prevalence`` is the mean outcome, ``treated`` the share of cases at or above the threshold. The gain
    is net benefit less the larger of those of treating all and none. Its interval has the smaller lower
    and the smaller upper end of the intervals of both differences, so that it holds as well where the
    two are about equal.

    Parameters
    ----------
    outcome
        (n,) labels or shares of votes; a case whose outcome is NaN does not count.
    p, units
        (n,) probabilities, and what is independent.
    thresholds
        Between 0 and 1.

    Examples
    --------
    >>> y, p = np.array([0.0, 0.0, 1.0, 1.0] * 5), np.array([0.1, 0.6, 0.4, 0.9] * 5)
    >>> row = benefit_rows(y, p, Units.of(20), [0.2])[0]
    >>> row["net_benefit"], row["treat_all"], row["gain"]
    (0.4375, 0.375, 0.0625)
    """
    t = np.unique(check_thresholds(thresholds))
    known = np.isfinite(outcome)
    y, counts = np.where(known, outcome, 0.0), known.astype(np.float64)
    above = np.where(known, np.searchsorted(t, p, side="right"), -1)

    def terms(part: slice, here: Units) -> dict[str, Float]:
        cell, size = above[part], len(t) + 1
        return {
            "positives": here.total(y[part], cell, size),
            "cases": here.total(counts[part], cell, size),
            "size": here.size(counts[part]),
        }

    sums = units.totals(terms)
    # Sums over the cells from each threshold upwards; the first is over all cases.
    positives, cases = (
        sums[name][:, ::-1].cumsum(axis=1)[:, ::-1] for name in ("positives", "cases")
    )
    size = sums["size"][:, 0]
    n = float(size.sum())
    benefit = (positives - np.append(0.5, t) * cases) / (1.0 - np.append(0.5, t))
    every = (positives[:, :1] - t * cases[:, :1]) / (1.0 - t)
    rows = []
    for j, threshold in enumerate(t.tolist()):
        over_none = _mean(benefit[:, j + 1], cases[:, 0], size)
        over_all = _mean(benefit[:, j + 1] - every[:, j], cases[:, 0], size)
        gain = np.minimum(over_none, over_all).tolist()
        rows.append(
            {
                "threshold": threshold,
                "prevalence": float(positives[:, 0].sum() / n),
                "treated": float(cases[:, j + 1].sum() / n),
                "net_benefit": over_none[0],
                "net_benefit_low": over_none[1],
                "net_benefit_high": over_none[2],
                "treat_all": float(every[:, j].sum() / n),
                "gain": gain[0],
                "gain_low": gain[1],
                "gain_high": gain[2],
            }
        )
    return rows


def _mean(total: Float, cases: Float, size: Float) -> tuple[float, float, float]:
    """Mean over cases of what units add, with its interval; none where no case adds anything."""
    value = float(total.sum() / size.sum())
    if np.abs(total).max() < 1e-9 * size.max():  # what a stream adds is rounded
        return value, float("nan"), float("nan")
    return value, *unit_interval(value, (total - value * cases) / size.sum(), size)


def decision_rows(audit: Audit, thresholds: ArrayLike = THRESHOLDS) -> list[dict[str, Any]]:
    """Net benefit of an audit's probabilities: one row per judge (labels, votes), stratum and threshold.

    Each row has ``judge``, ``probability`` ("p" or "p_reader"), ``stratum``, ``n`` (cases with a label, or
    with votes) and what `benefit_rows` says. Of very many strata those of most cases alone have rows
    (`Audit.shown_rows`). Empty for more than two classes.
    """
    out: list[dict[str, Any]] = []
    if audit.meta["event"] != "positive class":
        return out
    judges = [("labels", "p", audit)]
    if audit.predictions.cases.votes is not None:
        judges.append(("votes", audit.meta["votes_judge"], audit.by_votes or audit))
    for judge, probability, source in judges:
        cases = source.predictions.cases
        if judge == "labels":
            outcome, p = np.asarray(cases.y, dtype=np.float64), source.predictions.only.p
        else:
            assert cases.votes is not None
            readers = cases.votes.sum(axis=1)
            outcome = np.where(readers > 0, cases.votes[:, 1] / np.maximum(readers, 1), np.nan)
            p = source.predictions.only.vote_p
        for stratum in ("overall", *audit.shown_strata):
            inside = cases.within(stratum)
            here, own = source.units.within(inside), outcome[inside]
            known = np.isfinite(own)
            if not known.any():
                continue
            head = {
                "judge": judge,
                "probability": probability,
                "stratum": stratum,
                "n": here.within(known).n,
            }
            out += [head | row for row in benefit_rows(own, p[inside], here, thresholds)]
    return out


def decision_frame(audit: Audit, thresholds: ArrayLike = THRESHOLDS) -> pd.DataFrame:
    """Return `decision_rows` as a table."""
    import pandas as pd

    return pd.DataFrame(decision_rows(audit, thresholds), columns=DECISION_COLUMNS)


def decision_curves(audits: Mapping[str, Audit]) -> list[Row]:
    """Decision curves of the audited methods, a panel for labels and for votes in each stratum.

    `table` has the chosen thresholds with intervals. Empty for more than two classes.
    """
    panels: dict[tuple[str, str], Row] = {}
    # The table has what is said of each threshold, and the panel what is the same for all.
    benefit = ("net_benefit", "net_benefit_low", "net_benefit_high")
    shown = ("threshold", "treated", *benefit, "gain", "gain_low", "gain_high")
    for method, audit in audits.items():
        by_panel: dict[tuple[str, str], list[Row]] = {}
        for row in decision_rows(audit, DECISION_THRESHOLDS):
            by_panel.setdefault((row["judge"], row["stratum"]), []).append(row)
        for (judge, stratum), rows in by_panel.items():
            first = rows[0]
            panel = panels.setdefault(
                (judge, stratum),
                {
                    "judge": judge,
                    "stratum": stratum,
                    "n": first["n"],
                    "prevalence": first["prevalence"],
                    "threshold": [row["threshold"] for row in rows],
                    "treat_all": [round(row["treat_all"], 5) for row in rows],
                    "methods": [],
                },
            )
            panel["methods"].append(
                {
                    "method": method,
                    "probability": first["probability"],
                    "net_benefit": [round(row["net_benefit"], 5) for row in rows],
                    "table": [
                        {k: row[k] for k in shown} for row in rows if row["threshold"] in CHOSEN
                    ],
                }
            )
    return list(panels.values())


# Cases to look at


def _means(cell: Predictions, method: str, numbers: Callable[[Answers], Float]) -> Float:
    """Mean over the seeds of each case's numbers, (n, m); NaN where it was in no test set."""
    parts = [cell.answers[method, seed] for seed in cell.seeds(method)]
    total, count = np.zeros((cell.cases.n, numbers(parts[0]).shape[1])), np.zeros((cell.cases.n, 1))
    for part in parts:
        total[part.index] += numbers(part)
        count[part.index] += 1
    return np.asarray(total / np.where(count > 0, count, np.nan))


def _label_probs(part: Answers) -> Float:
    return as_table(part.p)


def _case(cell: Predictions, i: int, shown: int) -> Row:
    """What every list says of a case: id, label, votes, image, and the class its probabilities are of."""
    cases = cell.cases
    row: Row = {
        "id": str(cases.names[i]),
        "label": int(cell.y[i]),
        "votes": None,
        "shown_class": shown,
        "path": None,
    }
    if cases.votes is not None:
        row["votes"] = cases.votes[i].tolist()
    if cases.paths is not None and cases.paths[i]:
        row["path"] = str(cases.paths[i])
    return row


def two_answers_method(cell: Predictions, shown: Sequence[str]) -> str | None:
    """The method whose two answers are shown case by case: the best one that has them, or None."""
    for method in (*reversed(shown), PUBLISHED, VOTED):
        if method in cell.methods and cell.first(method).p_reader is not None:
            return method
    return None


def _law_of_votes(cell: Predictions, method: str, i: int, c: int) -> Row | None:
    """What a method expects of one case: the label, one reader, and the votes of its panel.

    Means over the seeds that tested the case; probabilities and votes are of class `c`. `low` to `high`
    holds at least 80 % of the law, the least likely ends left out.
    """
    votes, sizes = cell.cases.votes, cell.cases.panel_sizes(cell.cases.usual_readers)
    label, reader, laws, split = [], [], [], []
    for seed in cell.seeds(method):
        part = cell.answers[method, seed]
        at = np.flatnonzero(part.index == i)
        if len(at) == 0 or part.p_reader is None:
            continue
        label.append(as_table(part.p[at])[0, c])
        reader.append(as_table(part.p_reader[at])[0, c])
        if sizes is None:
            continue
        logits = as_logits(part.p_reader[at])
        law = np.exp(vote_log_pmf(logits, part.rho, int(sizes[i])))[0]
        # Of two classes there is the law of the second alone.
        if law.ndim == 2:
            law = law[c]
        laws.append(law)
        split.append(split_probability(logits, part.rho, sizes[i])[0])
    if not label:
        return None
    out: Row = {"label": np.mean(label), "reader": np.mean(reader), "n_raters": None}
    if sizes is not None:
        law = np.mean(laws, axis=0)
        low, high = _span(law)
        out |= {"n_raters": int(sizes[i]), "law": law.tolist(), "low": low, "high": high}
        out |= {"split": np.mean(split), "votes": None}
        if votes is not None and votes[i].any():
            out["votes"] = int(votes[i, c])
    return out


def _span(law: Float, mass: float = 0.8) -> tuple[int, int]:
    """The shortest run of counts that holds at least `mass` of the law.

    Examples
    --------
    >>> _span(np.array([0.05, 0.1, 0.25, 0.6]))
    (2, 3)
    """
    total = np.concatenate([[0.0], np.cumsum(law)])
    width = 1
    while (total[width:] - total[:-width]).max() < mass - 1e-12:
        width += 1
    low = int((total[width:] - total[:-width]).argmax())
    return low, low + width - 1


def likely_splits(cell: Predictions, method: str) -> list[Row]:
    """The cases whose panel is most likely to split, by a method's two answers."""
    size = cell.cases.panel_sizes(cell.cases.usual_readers)
    if size is None:
        return []

    def splits(part: Answers) -> Float:
        assert part.p_reader is not None
        return split_probability(as_logits(part.p_reader), part.rho, size[part.index])[:, None]

    chance = _means(cell, method, splits)[:, 0]
    likely = np.argsort(-chance, kind="stable")[: np.isfinite(chance).sum()]  # NaN comes last
    out = []
    for i in likely[:SPLITS_LISTED].tolist():
        shown = 1
        if len(cell.cases.classes) > 2:
            shown = int(cell.y[i])
        row = _case(cell, i, shown) | {
            "stratum": None,
            "two": _law_of_votes(cell, method, i, shown),
        }
        if cell.cases.strata is not None:
            row["stratum"] = str(cell.cases.strata.values[i]) or None
        del row["votes"]  # those of `two` are shown
        out.append(row)
    return out


def _excess(cell: Predictions, table: Float) -> tuple[Int, Float]:
    """Class that each case is predicted to be, and by how much surer of it the model is than the readers.

    Than the label, where a case has no votes; -inf where it has no prediction.
    """
    filled, each = np.nan_to_num(table), np.arange(len(table))
    top = filled.argmax(axis=1)
    if table.shape[1] == 2:
        # One half counts as positive everywhere.
        top = (filled[:, 1] >= 0.5).astype(np.int64)
    share = (cell.y == top).astype(np.float64)
    if cell.cases.votes is not None:
        size = cell.cases.votes.sum(axis=1)
        share = np.where(size > 0, cell.cases.votes[each, top] / np.maximum(size, 1), share)
    return top, np.where(np.isfinite(table[:, 0]), filled[each, top] - share, -np.inf)


def confident_errors(cell: Predictions, method: str) -> list[Row]:
    """Most confident predictions of the audited seed that contradict the readers, or the label."""
    part = cell.first(method)
    table = np.full((cell.cases.n, len(cell.cases.classes)), np.nan)
    table[part.index] = as_table(part.p)
    top, excess = _excess(cell, table)
    before = None
    if method != cell.baseline:
        before = _means(cell, cell.baseline, _label_probs)
    out = []
    for i in np.argsort(-excess, kind="stable")[:CONFIDENT_LISTED].tolist():
        shown = int(top[i])
        # Most readers, or the label, must be against it.
        if not excess[i] > 0 or table[i, shown] - excess[i] >= 0.5:
            continue
        row = _case(cell, i, shown) | {"p": float(table[i, shown]), "before": None}
        if before is not None:
            row["before"] = float(before[i, shown])
        if row["votes"] is not None and not any(row["votes"]):
            row["votes"] = None
        out.append(row)
    return out


def overconfident_cases(
    cell: Predictions, before: str, after: str | None, both: str | None
) -> list[Row]:
    """Most over-confident cases of each stratum: id, votes, label, prediction before and after.

    Over-confidence is the probability of the predicted class less the share of readers who chose
    it, or less whether it is the label where it has no votes. Predictions are means over seeds. `two`
    has the two answers of the method named `both`.
    """
    table, second = _means(cell, before, _label_probs), None
    if after is not None:
        second = _means(cell, after, _label_probs)
    top, excess = _excess(cell, table)
    known, each = np.isfinite(excess), np.arange(len(table))
    out = []
    for stratum in cell.stratum_names or ("overall",):
        rows = each[cell.inside(each, stratum)]
        rows = rows[known[rows]]
        rows = rows[np.argsort(-excess[rows], kind="stable")][:CASES_LISTED]
        for i in rows.tolist():
            shown = 1
            if table.shape[1] > 2:
                shown = int(top[i])
            row = _case(cell, i, shown) | {"stratum": stratum, "excess": float(excess[i])}
            row |= {"before": float(table[i, shown]), "after": None, "two": None}
            if second is not None:
                row["after"] = float(second[i, shown])
            if both is not None:
                row["two"] = _law_of_votes(cell, both, i, shown)
            out.append(row)
    return out
