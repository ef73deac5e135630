"""Decision curves of an audit: net benefit of acting on its probabilities, overall and by stratum.

Labels judge `p`; votes judge `p_reader`, or `p` where there is none, with the share of positive votes as
the outcome. Within a stratum the share of positives, and so the benefit of treating all, is that of the
stratum: strata of agreement are known only after the readers voted, and no decision is taken in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from scalecal.checks import Float
from scalecal.inference.units import Units, unit_interval
from scalecal.metrics.label_scores import check_thresholds

if TYPE_CHECKING:
    import pandas as pd

    from scalecal.evaluation.audits import Audit

THRESHOLDS: Float = np.arange(1, 100) / 100
"""Thresholds of a curve."""

CHOSEN = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Thresholds of tables."""

DECISION_COLUMNS = (
    *("judge", "probability", "stratum", "n", "threshold", "prevalence", "treated", "net_benefit"),
    *("net_benefit_low", "net_benefit_high", "treat_all", "gain", "gain_low", "gain_high"),
)
"""Columns of a decision curve."""


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
                **dict(
                    zip(
                        ("net_benefit", "net_benefit_low", "net_benefit_high"),
                        over_none,
                        strict=True,
                    )
                ),
                "treat_all": float(every[:, j].sum() / n),
                **dict(zip(("gain", "gain_low", "gain_high"), gain, strict=True)),
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
