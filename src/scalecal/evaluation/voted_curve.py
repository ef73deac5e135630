"""What votes would buy: the panel by number of voted cases, and what an error of kappa would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from scalecal.cases import BASELINE, Predictions
from scalecal.checks import Float
from scalecal.evaluation.cells import PUBLISHED, VOTED
from scalecal.evaluation.changes import REFERENCE, Row, change_of, compared_metrics, recovered
from scalecal.evaluation.scores import Resampled
from scalecal.inference.paired import contrast_of, recovered_share

READS = ("panel", "single")


Losses = dict[str, Float]
"""Metric -> loss of each test case of a seed; NaN where a case has no votes."""


class AtKappa(NamedTuple):
    """The panel of the published numbers at one kappa, in one seed: its rho and the cases' losses."""

    kappa: float
    rho: float
    losses: Losses


@dataclass(frozen=True, eq=False)
class VotedCurve:
    """Scores of the panel by number of voted cases.

    Attributes
    ----------
    scores : list of dict
        One per seed, draw, kind of reads, number of voted cases and metric: keys ``seed``, ``voted``,
        ``reads``, ``draw``, ``metric``, ``value``, ``floor``.
    losses : dict
        (voted, reads) -> seed -> losses of ``vote_nll`` and ``nll``, means over draws.
    notes : list of str
        Which numbers were left out, and why.
    by_kappa : dict
        Factor -> seed -> `panel-published` with its kappa multiplied by the factor; empty where it
        cannot be fitted.
    """

    scores: list[dict[str, Any]]
    losses: dict[tuple[int, str], dict[int, Losses]]
    notes: list[str]
    by_kappa: dict[float, dict[int, AtKappa]] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Sequence[VotedCurve]) -> VotedCurve:
        """One curve of several seeds' curves."""
        losses: dict[tuple[int, str], dict[int, Losses]] = {}
        by_kappa: dict[float, dict[int, AtKappa]] = {}
        for part in parts:
            for key, by_seed in part.losses.items():
                losses.setdefault(key, {}).update(by_seed)
            for factor, at in part.by_kappa.items():
                by_kappa.setdefault(factor, {}).update(at)
        scores = [row for part in parts for row in part.scores]
        notes = list(dict.fromkeys(n for part in parts for n in part.notes))
        # A seed's published numbers may be of no use: then the others' means would be of other cases.
        whole = by_kappa if all(part.by_kappa for part in parts) else {}
        return cls(scores, losses, notes, whole)


def voted_points(cell: Predictions, drawn: Resampled, curve: VotedCurve | None) -> Row | None:
    """Share recovered and change of label NLL by number of voted cases and kind of reads.

    Intervals are over test cases, of means over seeds and draws; `draws_low` and `draws_high` are the
    10th and 90th percentile of the share over draws. `all` is the panel fitted to all votes.
    """
    import pandas as pd

    if curve is None:
        return None
    scores = pd.DataFrame(curve.scores)
    start = drawn.drawn(cell.encoder, BASELINE, "overall", "vote_nll")
    best = drawn.drawn(cell.encoder, REFERENCE, "overall", "vote_nll")
    gain = start.value - best.value
    points = []
    for (n, reads), by_seed in sorted(curve.losses.items()):
        inside = scores[(scores["voted"] == n) & (scores["reads"] == reads)]
        table = inside.pivot_table(index=["seed", "draw"], columns="metric", values="value")
        spread = (start.value - table["vote_nll"].groupby("draw").mean()) / gain
        gains = _gains(cell, drawn, by_seed)
        point = {"voted": n, "reads": reads, **gains, "draws_low": None, "draws_high": None}
        if gains["share"] is not None:
            point["draws_low"] = float(spread.quantile(0.1))
            point["draws_high"] = float(spread.quantile(0.9))
        for metric in compared_metrics():
            if metric in table:
                point[metric] = float(table[metric].mean())
        points.append(point)
    draws = int(scores["draw"].max()) + 1 if len(scores) else 0
    out = {"points": points, "n_draws": draws, "all": recovered(cell, drawn, VOTED)}
    return {**out, "published": recovered(cell, drawn, PUBLISHED)}


def _gains(cell: Predictions, drawn: Resampled, by_seed: Mapping[int, Losses]) -> Row:
    """Share recovered, and changes against the baseline, of given losses of the test cases by seed."""
    own = {
        metric: drawn.mean_of(
            cell.encoder,
            {s: (cell.answers[VOTED, s].index, kept[metric]) for s, kept in by_seed.items()},
        )
        for metric in ("nll", "vote_nll")
    }
    base = {m: drawn.drawn(cell.encoder, BASELINE, "overall", m) for m in own}
    best = drawn.drawn(cell.encoder, REFERENCE, "overall", "vote_nll")
    share = recovered_share(base["vote_nll"], best, own["vote_nll"])
    out: Row = {"share": None, "low": None, "high": None}
    if np.isfinite(share.share):
        out = {"share": share.share, "low": share.low, "high": share.high}
    return {
        **out,
        "reason": share.reason,
        "changes": {m: change_of(contrast_of(base[m], own[m])) for m in own},
        **{m: own[m].value for m in own},
    }


def kappa_sensitivity(
    cell: Predictions, drawn: Resampled, curve: VotedCurve | None
) -> list[Row] | None:
    """What an error of the published kappa costs: `panel-published` at each multiple of it.

    Kappa and rho are means over seeds, where these have their own.
    """
    if curve is None or not curve.by_kappa:
        return None
    out = []
    for factor, by_seed in sorted(curve.by_kappa.items()):
        mean = {k: np.mean([getattr(at, k) for at in by_seed.values()]) for k in ("kappa", "rho")}
        gains = _gains(cell, drawn, {seed: at.losses for seed, at in by_seed.items()})
        out.append({"factor": factor, **mean, **gains})
    return out
