"""What the figures of a cell show, as plain numbers: reliability, the frontier, referral."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal import metrics
from scalecal.checks import Float
from scalecal.metrics.arguments import read_hard_event
from scalecal.report.figures import bin_facts
from scalecal.report.measures import bins_of
from scalecal.report.runs import Cell
from scalecal.runs.frontier import frontier_curve, frontier_methods

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["THRESHOLDS", "frontier", "referral", "reliability"]

THRESHOLDS = (0.8, 0.9, 0.95)
"""Confidence below which a case goes to a second reader, for the table."""

_POINTS = 60  # of a referral curve: more could not be told apart on a page


def reliability(
    cell: Cell, method: str, bands: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """One panel per stratum of a method's first seed: bins, counts, consistency bars, null."""
    n_bins = bins_of(cell)
    _, given = cell.first(method)
    panels = []
    for stratum in ("overall", *cell.strata):
        inside = cell.inside(given.rows, stratum)
        if not inside.any():
            continue
        y, p = cell.y[given.rows[inside]], given.probs[inside]
        table = metrics.bins(y, p, n_bins=n_bins)
        # Many cases make narrow bars, whose ends need fewer draws.
        draws = 1000 if len(y) <= 10_000 else 200
        bars = metrics.consistency_bars(p, n_bins=n_bins, n_resamples=draws)
        panels.append(
            {
                "stratum": stratum,
                "n": len(y),
                "ece": metrics.ece(y, p, n_bins=n_bins),
                "floor": metrics.noise_floor(p, n_bins=n_bins),
                **bands.get(stratum, {}),
                "bins": bin_facts(table, bars),
            }
        )
    return panels


def frontier(
    cell: Cell,
    rows: list[dict[str, Any]],
    changed: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]],
) -> dict[str, Any]:
    """Build the softening curve of the baseline, and every method as a point with its interval.

    A point's interval is that of its paired change against the baseline, set beside the baseline's
    own value; the baseline itself has none.
    """
    hard = cell.hardest
    curve = _curve(cell)
    value = {(r["method"], r["stratum"]): r for r in rows}
    points = []
    for method in cell.methods:
        point: dict[str, Any] = {"method": method}
        for axis, stratum, metric in (
            ("ece", "overall", "ece"),
            ("ece_hard", hard, "ece"),
            ("nll", "overall", "nll"),
            ("vote_nll", "overall", "vote_nll"),
        ):
            if stratum is None:
                continue
            start = value.get((cell.baseline, stratum), {}).get(metric)
            point[axis] = value.get((method, stratum), {}).get(metric)
            change = changed.get(method, {}).get(stratum, {}).get(metric)
            if change and start is not None:
                point[f"{axis}_low"] = start + change["low"]
                point[f"{axis}_high"] = start + change["high"]
        points.append(point)
    return {"hard": hard, "curve": curve, "points": points, "beyond": _beyond(cell)}


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.to_numpy().tolist()]


def _curve(cell: Cell) -> list[dict[str, Any]]:
    """Return the softening curve the run left, or one made here."""
    table = cell.table("frontier.csv")
    if table is None:
        table = frontier_curve(cell.data, baseline=cell.baseline)
    if cell.hardest == "low":
        table = table.rename(columns={"ece_low": "ece_hard"})
    kept = ["temperature", "ece", "ece_hard", "nll", "vote_nll"]
    return _records(table[[c for c in kept if c in table]])


def _beyond(cell: Cell) -> list[dict[str, Any]]:
    """Return the differences to softening by the same amount: of the run, or of what was derived here."""
    table = cell.table("frontier_methods.csv")
    if table is None:
        if not cell.derived:
            return []
        table = frontier_methods(cell.data, baseline=cell.baseline, n_resamples=200)
    return _records(table[table["method"] != cell.baseline])


def referral(cell: Cell, methods: list[str]) -> list[dict[str, Any]]:
    """Errors avoided per case sent to a second reader, least confident first, by stratum.

    The second reader is taken to settle a case as the label does. The curve is the error rate among
    the cases sent; with all of them sent it ends at the model's own error rate, which is also what
    sending cases at random would avoid.
    """
    out = []
    for stratum in ("overall", *cell.strata):
        panel: dict[str, Any] = {"stratum": stratum, "methods": []}
        for method in methods:
            _, given = cell.first(method)
            inside = cell.inside(given.rows, stratum)
            if not inside.any():
                continue
            y, p = cell.y[given.rows[inside]], given.probs[inside]
            panel["n"] = len(y)
            panel["methods"].append({"method": method, **_yield(y, p)})
        if panel["methods"]:
            out.append(panel)
    return out


def _yield(y: Any, p: Float) -> dict[str, Any]:
    event = read_hard_event(y, p)
    if p.ndim == 1:
        confidence = np.maximum(p, 1 - p)
        wrong = (p >= 0.5) != (event.y > 0.5)
    else:
        confidence, wrong = event.p, event.y < 0.5
    order = np.argsort(confidence, kind="stable")
    ranked = confidence[order]
    # Equal confidence cannot be told apart: a point stands after the last of its equals.
    last = np.append(ranked[1:] > ranked[:-1], True)
    sent = np.flatnonzero(last) + 1
    avoided = np.cumsum(wrong[order])[last]
    n, errors = len(y), int(wrong.sum())
    # The first few cases say little about a rate.
    start = int(np.searchsorted(sent, max(10, int(0.05 * n))))
    start = min(start, len(sent) - 1)
    pick = np.unique(np.linspace(start, len(sent) - 1, _POINTS).astype(int))
    table = []
    for threshold in THRESHOLDS:
        k = int((confidence < threshold).sum())
        hit = int(wrong[confidence < threshold].sum())
        table.append({"threshold": threshold, "sent": k, "avoided": hit, "n": n, "errors": errors})
    return {
        "n": n,
        "errors": errors,
        "share": (sent[pick] / n).tolist(),
        "yield": (avoided[pick] / sent[pick]).tolist(),
        "thresholds": table,
    }
