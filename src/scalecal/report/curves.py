"""What the figures of a cell show, as plain numbers: reliability, the frontier, referral."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scalecal import metrics
from scalecal.checks import Float
from scalecal.metrics.arguments import read_hard_event
from scalecal.report.figures import bin_facts
from scalecal.report.measures import bins_of
from scalecal.report.runs import Cell, Prediction

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
        bars = metrics.consistency_bars(p, n_bins=n_bins)
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
    curve = _curve_from_file(cell) or _curve(cell, hard)
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
    return {"hard": hard, "curve": curve, "points": points, "beyond": _beyond_softening(cell)}


def _curve_from_file(cell: Cell) -> list[dict[str, Any]]:
    table = cell.table("frontier.csv")
    if table is None or "temperature" not in table:
        return []
    table = table.rename(columns={"ece_low": "ece_hard"})
    kept = [c for c in ("temperature", "ece", "ece_hard", "nll", "vote_nll") if c in table]
    return [dict(zip(kept, row, strict=True)) for row in table[kept].to_numpy().tolist()]


def _beyond_softening(cell: Cell) -> list[dict[str, Any]]:
    """Read the differences to softening by the same amount, as the run left them."""
    table = cell.table("frontier_methods.csv")
    if table is None:
        return []
    return [dict(zip(table.columns, row, strict=True)) for row in table.to_numpy().tolist()]


def _soften(p: Float, temperature: float) -> Float:
    from scipy.special import expit, softmax

    from scalecal.calibrators.base import as_logits

    z = as_logits(p) / temperature
    return np.asarray(expit(z) if p.ndim == 1 else softmax(z, axis=1))


def _curve(cell: Cell, hard: str | None) -> list[dict[str, Any]]:
    n_bins = bins_of(cell)
    seeds = list(cell.predictions[cell.baseline].values())
    # Beyond a few seeds or many cases the curve moves by less than its line is wide.
    seeds = seeds[: max(1, min(len(seeds), 2_000_000 // max(1, len(seeds[0].rows) * 30)))]
    out = []
    for temperature in np.geomspace(0.5, 5.0, 30).tolist():
        found = [_point(cell, given, temperature, hard, n_bins) for given in seeds]
        mean = {k: float(np.mean([f[k] for f in found])) for k in found[0]}
        out.append({"temperature": temperature, **mean})
    return out


def _point(
    cell: Cell, given: Prediction, temperature: float, hard: str | None, n_bins: int
) -> dict[str, float]:
    p, y = _soften(given.probs, temperature), cell.y[given.rows]
    out = {"ece": metrics.ece(y, p, n_bins=n_bins), "nll": metrics.log_loss(y, p)}
    if cell.counts is not None and (cell.counts[given.rows].sum(axis=1) > 0).all():
        out["vote_nll"] = metrics.vote_nll(cell.counts[given.rows], p)
    if hard is not None:
        inside = cell.inside(given.rows, hard)
        if inside.any():
            out["ece_hard"] = metrics.ece(y[inside], p[inside], n_bins=n_bins)
    return out


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
    start = int(np.searchsorted(sent, max(5, int(0.02 * n))))
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
