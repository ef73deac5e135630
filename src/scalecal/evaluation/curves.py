"""What the figures of an evaluation show: reliability, referral, decision curves, softening."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scalecal.cases import Predictions
from scalecal.checks import Float
from scalecal.evaluation.audits import Audit
from scalecal.evaluation.cells import weights_of
from scalecal.evaluation.changes import null_band
from scalecal.evaluation.decision_curves import CHOSEN, decision_rows
from scalecal.evaluation.frontier import HARD, frontier_curve, frontier_methods, planes
from scalecal.metrics.arguments import read_hard_event

THRESHOLDS = (0.8, 0.9, 0.95)
"""Confidence below which a case goes to a second reader, for the table."""

LEAST_GAIN = 0.0005
"""Least difference to softening that is one: smaller ones are printed as zero."""

DECISION_THRESHOLDS: Float = np.unique([*CHOSEN, *(np.arange(1, 50) / 50)])
"""Thresholds of the decision curves on a page."""

_CURVE_POINTS = 60  # of a referral curve: more would not be seen on a page

Row = dict[str, Any]


def reliability_facts(audit: Audit, most: int | None = None) -> list[Row]:
    """One panel per stratum of the audited seed: bins, counts, consistency bars, null."""
    panels = []
    for row in audit.shown_rows[:most]:
        if not row["n"]:
            continue
        panel = {"stratum": row["name"], **{k: row[k] for k in ("n", "ece", "floor")}}
        if row["name"] == "overall":
            panel |= null_band([audit.drawn_ece()])
            panel["null"] = row["floor"]
        else:
            panel |= {k: row.get(k) for k in ("null", "null_low", "null_high")}
        table, bars = audit.reliability(row["name"])
        panel["bins"] = [
            {
                **{k: float(getattr(table, k)[b]) for k in ("lo", "hi", "mean_p", "mean_y")},
                "n": int(table.n[b]),
                "bar_lo": float(bars.lo[b]),
                "bar_hi": float(bars.hi[b]),
            }
            for b in table.n.nonzero()[0]
        ]
        panels.append(panel)
    return panels


def frontier_facts(
    cell: Predictions, rows: Sequence[Row], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The softening curve of the baseline, every method's place, and its difference to softening.

    A point's interval is that of its paired change against the baseline, set beside the baseline's
    own value; the baseline itself has none.
    """
    base, hard = cell.baseline, cell.hardest
    value = {(r["method"], r["stratum"]): r for r in rows}
    points = []
    for method in cell.methods:
        point: Row = {"method": method}
        for axis, metric in planes().items():
            stratum = hard if axis.endswith(HARD) else "overall"
            row = value.get((method, stratum), {})
            if metric not in row:
                continue
            point[axis] = row[metric]
            change = row["changes"].get(metric)
            start = value.get((base, stratum), {}).get(metric)
            if change and start is not None and method != base:
                point[f"{axis}_low"] = start + change["low"]
                point[f"{axis}_high"] = start + change["high"]
        points.append(point)
    curve = frontier_curve(cell, baseline=base, n_bins=options["n_bins"])
    beyond = frontier_methods(cell, baseline=base, **options)
    return {
        "hard": hard,
        "curve": curve.to_dict("records"),
        "points": points,
        "beyond": beyond.to_dict("records"),
    }


def beside_softening(beyond: Sequence[Row], metric: str) -> dict[str, Row]:
    """Each method beside one temperature that gives the baseline the same mean entropy, by one metric.

    `better` is whether a method is more than softening: the interval of the difference lies below 0, and
    the difference shows in three digits. (A temperature is found again to rounding only.)
    """
    out = {}
    for row in beyond:
        ends = {k: row[f"difference_{metric}{e}"] for k, e in (("low", "_low"), ("high", "_high"))}
        out[row["method"]] = {
            "metric": metric,
            "temperature": row["at_temperature"],
            "difference": row[f"difference_{metric}"],
            **ends,
            "better": bool(ends["high"] < 0 and row[f"difference_{metric}"] <= -LEAST_GAIN),
        }
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
            w, inside = weights_of(cell, part), cell.inside(part.index, stratum)
            part = part.take(inside)
            if len(part.index) == 0:
                continue
            panel["n"] = len(part.index)
            own = (
                np.ones(len(part.index)) if w is None else w[inside] * panel["n"] / w[inside].sum()
            )
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
    for threshold in THRESHOLDS:
        below = confidence < threshold
        referred, saved = float(w @ below), float(w @ (below & wrong))
        table.append(
            {
                "threshold": threshold,
                "sent": round(referred),
                "avoided": round(saved),
                "per_case": saved / referred if referred else None,
                "n": n,
                "errors": errors,
            }
        )
    return {
        "n": n,
        "errors": errors,
        "share": (sent[pick] / n).tolist(),
        "yield": (avoided[pick] / sent[pick]).tolist(),
        "thresholds": table,
    }


def decision_curves(audits: Mapping[str, Audit]) -> list[Row]:
    """Decision curves of the audited methods, a panel for labels and for votes in each stratum.

    `table` has the chosen thresholds with intervals. Empty for more than two classes.
    """
    panels: dict[tuple[str, str], Row] = {}
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
            ends = [f"{k}{end}" for k in ("net_benefit", "gain") for end in ("", "_low", "_high")]
            panel["methods"].append(
                {
                    "method": method,
                    "probability": first["probability"],
                    "net_benefit": [round(row["net_benefit"], 5) for row in rows],
                    "table": [
                        {k: row[k] for k in ("threshold", "treated", *ends)}
                        for row in rows
                        if row["threshold"] in CHOSEN
                    ],
                }
            )
    return list(panels.values())
