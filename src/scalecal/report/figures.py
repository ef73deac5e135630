"""The report's figures: facts in, `Drawing` out; the same for the page and for files."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from scalecal.io.text import change_text, is_known, number, percent
from scalecal.report.svg import Drawing, text_width
from scalecal.runs.cells import PUBLISHED, VOTED

PANEL = {"width": 240, "height": 284, "left": 40, "top": 10, "side": 190, "gap": 14, "counts": 34}
"""Geometry of a reliability panel, shared with the page's script."""

Row = Mapping[str, Any]
Bounds = tuple[float, float]


def nice_top(value: float) -> float:
    """Round up to a number that reads easily, for the end of an axis.

    Examples
    --------
    >>> nice_top(0.183), nice_top(0.021), nice_top(0)
    (0.2, 0.025, 0.1)
    """
    if not value > 0 or not math.isfinite(value):
        return 0.1
    step = 10.0 ** math.floor(math.log10(value))
    round_numbers = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return float(next(k * step for k in round_numbers if k * step >= value * (1 - 1e-9)))


def role_of(method: str, baseline: str) -> str:
    """Colour of a method: one for what was there before, one for every remedy."""
    return "before" if method == baseline else "accent"


def calibrated_text(panel: Row) -> str:
    """ECE that a calibrated model would show in a stratum: its null, or the floor where it has none."""
    null = panel.get("null")
    return number(null if is_known(null) else panel.get("floor"))


def calibrated_band(panel: Row) -> str:
    """Error of calibrated models in points: its mean, and the band of nine in ten; "" where unknown."""
    keys = ("null" if is_known(panel.get("null")) else "floor", "null_low", "null_high")
    parts = [f"{100 * panel[k]:.0f}" for k in keys if is_known(panel.get(k))]
    return "{} ({} to {})".format(*parts) if len(parts) == 3 else "".join(parts[:1])


def interval_text(row: Row, key: str, digits: int = 3) -> str:
    """Write a number with its interval, where it has one."""
    low, high = (row.get(f"{key}_{end}") for end in ("low", "high"))
    text = number(row.get(key), digits)
    return f"{text} ({number(low, digits)} to {number(high, digits)})" if is_known(low) else text


def ece_top(cells: Sequence[Row]) -> float:
    """End of the ECE axis that all strips share."""
    keys = ("ece", "null_high")
    rows = [
        r for c in cells for r in (*c["rows"], *(p for ps in c["reliability"].values() for p in ps))
    ]
    values = [v for row in rows for k in keys if is_known(v := row.get(k))]
    return nice_top(max(values, default=0.1))


def referral_top(panels: Sequence[Row]) -> float:
    """End of the referral axis that all panels of a cell share."""
    return nice_top(max((max(m["yield"]) for p in panels for m in p["methods"]), default=0.5))


def bin_tip(b: Row, event: str) -> str:
    """Describe a bin in words; one of votes has their number."""
    what = "positive" if event == "positive class" else "right"
    seen = f"{what} {number(b['mean_y'])}, {b['n']:,} cases"
    if "votes" in b:
        what = "votes positive" if event == "positive class" else "votes for it"
        seen = f"{what} {number(b['mean_y'])}, {b['votes']:,} votes on {b['n']:,} cases"
    text = f"predicted {number(b['mean_p'])}, {seen}"
    if not is_known(b["bar_lo"]):
        return text
    return f"{text}; calibrated: {number(b['bar_lo'])} to {number(b['bar_hi'])}"


def _axis_names(panel: Row, event: str) -> tuple[str, str]:
    """Names of the axes of a reliability diagram, against labels or against votes."""
    positive = event == "positive class"
    if "votes" in panel:
        return "probability of a vote", "share of votes" if positive else "share of votes for it"
    return "predicted probability", "share positive" if positive else "share right"


def _draw_panel(sheet: Drawing, panel: Row, event: str, role: str, x0: float, y0: float) -> None:
    side = PANEL["side"]
    across, up = _axis_names(panel, event)

    def at(p: float, q: float) -> tuple[float, float]:
        return x0 + p * side, y0 + (1 - q) * side

    for tick in (0, 0.5, 1):
        sheet.line(at(0, tick), at(1, tick), stroke="band")
        sheet.text(x0 - 6, at(0, tick)[1] + 4, f"{tick:g}", anchor="end")
    sheet.line(at(0, 0), at(1, 1), stroke="quiet", dash="3 3")
    most = max(b["n"] for b in panel["bins"])
    base = y0 + side + PANEL["gap"] + PANEL["counts"]
    for b in panel["bins"]:
        if is_known(b["bar_lo"]):
            x, high = at(b["mean_p"], b["bar_hi"])
            low = at(0, b["bar_lo"])[1]
            sheet.rect(x - 3.5, high, 7, max(low - high, 1), fill="rule")
        height = PANEL["counts"] * b["n"] / most
        left = x0 + b["lo"] * side
        width = (b["hi"] - b["lo"]) * side
        sheet.rect(left + 0.5, base - height, width - 1, height, fill="rule")
    for b in panel["bins"]:
        radius = 2.6 + 4.4 * math.sqrt(b["n"] / most)
        x, y = at(b["mean_p"], b["mean_y"])
        sheet.circle(x, y, radius, fill=role, stroke="paper", tip=bin_tip(b, event))
    sheet.line((x0, base), (x0 + side, base), stroke="rule")
    for tick in (0, 0.5, 1):
        sheet.text(x0 + tick * side, base + 14, f"{tick:g}", anchor="middle")
    sheet.text(x0 + side / 2, base + 30, across, anchor="middle", size=10.5)
    sheet.text(x0 - 29, y0 + side / 4, up, anchor="middle", size=10.5, turned=True)
    sheet.text(x0 + side, base - PANEL["counts"] - 3, f"≤ {most:,}", anchor="end", size=10)


def reliability_panel(panel: Row, *, title: str, event: str, role: str) -> Drawing:
    """Reliability diagram of one stratum: points, consistency bars, and counts beneath.

    A panel that counts votes is of a reader's vote, against the share of readers who voted so.
    """
    against = " against readers’ votes" if "votes" in panel else ""
    label = (
        f"Reliability diagram{against}, {title}: {panel['n']:,} cases, ECE {number(panel['ece'])}; "
        f"a calibrated model would show {calibrated_text(panel)} there."
    )
    sheet = Drawing(PANEL["width"], PANEL["height"], label)
    _draw_panel(sheet, panel, event, role, PANEL["left"], PANEL["top"])
    return sheet


def reliability_row(
    panels: Sequence[Row], titles: Sequence[str], *, event: str, role: str, heading: str
) -> Drawing:
    """All strata of one method beside each other, with their headings: for files."""
    width = PANEL["width"] * len(panels)
    sheet = Drawing(width, PANEL["height"] + 62, f"{heading}: reliability by stratum")
    sheet.text(PANEL["left"], 18, heading, size=13, fill="ink", bold=True)
    for j, (panel, title) in enumerate(zip(panels, titles, strict=True)):
        x = PANEL["left"] + j * PANEL["width"]
        values = f"ECE {number(panel['ece'])}, null {calibrated_text(panel)}"
        sheet.text(x, 40, f"{title}, n = {panel['n']:,}", size=12, fill="ink")
        sheet.text(x, 55, values)
        _draw_panel(sheet, panel, event, role, x, 72)
    return sheet


def strip_tip(row: Row) -> str:
    """Describe a dot of the dot plot in words."""
    text = f"{row['method']}, {row['stratum']}: ECE {number(row['ece'])}"
    if is_known(row.get("null_low")):
        text += f"; null: {interval_text(row, 'null')}"
    return text + f"; floor {number(row['floor'])}; n {row['n']:,}"


def _draw_strip(
    sheet: Drawing, row: Row, top: float, role: str, x0: float, y: float, width: float
) -> None:
    def at(value: float) -> float:
        return x0 + min(value / top, 1.0) * width

    sheet.line((x0, y), (x0 + width, y), stroke="band")
    if is_known(row.get("null_low")):
        left = at(row["null_low"])
        sheet.rect(left, y - 5, at(row["null_high"]) - left, 10, fill="rule")
    if is_known(row.get("floor")):
        sheet.line((at(row["floor"]), y - 7), (at(row["floor"]), y + 7), stroke="quiet", width=1.5)
    sheet.circle(at(row["ece"]), y, 4.2, fill=role, stroke="paper", tip=strip_tip(row))


def strip(row: Row, *, top: float, role: str) -> Drawing:
    """One method in one stratum: dot at its ECE, tick at the floor, band where calibrated."""
    sheet = Drawing(140, 20, strip_tip(row))
    _draw_strip(sheet, row, top, role, 5, 10, 130)
    return sheet


def lead_strip(row: Row, *, top: float, role: str, before: Row | None = None) -> Drawing:
    """Draw a longer strip with its scale; with `before`, the way from there."""
    sheet = Drawing(300, 38, strip_tip(row))
    left, long = 6.0, 288.0
    _draw_strip(sheet, row, top, role, left, 11, long)
    if before is not None:
        start, end = (left + min(r["ece"] / top, 1.0) * long for r in (before, row))
        sheet.line((start, 11), (end, 11), stroke=role, width=1.5)
        sheet.circle(start, 11, 4.2, fill="before", stroke="paper", tip=strip_tip(before))
        sheet.circle(end, 11, 4.2, fill=role, stroke="paper", tip=strip_tip(row))
    sheet.text(left, 33, "ECE 0", size=10)
    sheet.text(left + long, 33, f"{top:g}", size=10, anchor="end")
    return sheet


def dot_rows(
    rows: Sequence[Row], strata: Sequence[str], *, baselines: Mapping[str, str], top: float
) -> Drawing:
    """Draw ECE against its null band for every row of (cell, method), a column per stratum: for files."""
    keys = list(dict.fromkeys((r["cell"], r["method"]) for r in rows))
    value = {(r["cell"], r["method"], r["stratum"]): r for r in rows}
    names = [m if len(baselines) == 1 else f"{c}: {m}" for c, m in keys]
    left = 20 + max([text_width(name, 11) for name in names], default=60)
    step, high = 190.0, 24.0
    sheet = Drawing(
        left + step * len(strata),
        58 + high * len(keys) + 24,
        "ECE by method and stratum, against what a calibrated model would show",
    )
    for j, stratum in enumerate(strata):
        x = left + j * step
        sheet.text(x + 5, 20, stratum, size=12, fill="ink", bold=True)
        for tick in (0.0, top / 2, top):
            sheet.text(x + 5 + tick / top * 160, 40, f"{tick:g}", anchor="middle", size=10)
        for i, (cell, method) in enumerate(keys):
            row = value.get((cell, method, stratum))
            if row is not None:
                role = role_of(method, baselines[cell])
                _draw_strip(sheet, row, top, role, x + 5, 58 + i * high, 160)
    for i, name in enumerate(names):
        sheet.text(8, 62 + i * high, name, fill="ink")
    key = "dot: ECE; tick: noise floor; bar: 90 % of calibrated models, selection included"
    sheet.text(8, sheet.height - 8, key, size=10)
    return sheet


def referral_panel(panel: Row, *, title: str, baseline: str, top: float) -> Drawing:
    """Errors avoided per case sent to a second reader, before and after."""
    width, height, left, up, bottom = 236.0, 190.0, 38.0, 12.0, 26.0
    before = panel["methods"][0]
    label = (
        f"Errors avoided per case sent to a second reader, {title}: {panel['n']:,} cases, "
        f"{before['errors']:,} errors before."
    )
    sheet = Drawing(width, height, label)

    def at(share: float, rate: float) -> tuple[float, float]:
        return (
            left + share * (width - left - 18),
            height - bottom - min(rate / top, 1.0) * (height - up - bottom),
        )

    for tick in (0.0, top / 2, top):
        sheet.line(at(0, tick), at(1, tick), stroke="band")
        sheet.text(left - 6, at(0, tick)[1] + 4, f"{tick:g}", anchor="end")
    for share in (0.0, 0.5, 1.0):
        sheet.text(at(share, 0)[0], height - 8, f"{100 * share:g} %", anchor="middle")
    errors = before["yield"][-1]
    sheet.line(at(0, errors), at(1, errors), stroke="quiet", dash="3 3")
    for method in panel["methods"]:
        role = role_of(method["method"], baseline)
        curve = [at(s, r) for s, r in zip(method["share"], method["yield"], strict=True)]
        # The order of confidence is often the same before and after: let both lines show.
        sheet.polyline(curve, stroke=role, width=4.0 if role == "before" else 1.6)
    for method in panel["methods"]:
        role = role_of(method["method"], baseline)
        mark = next(t for t in method["thresholds"] if t["threshold"] == 0.9)
        if mark["sent"]:
            x, y = at(mark["sent"] / mark["n"], mark["per_case"])
            tip = (
                f"{method['method']}, confidence below 90 %: {mark['sent']:,} of {mark['n']:,} cases sent, "
                f"{mark['avoided']:,} of {mark['errors']:,} errors avoided, "
                f"{number(mark['per_case'])} per case"
            )
            sheet.circle(x, y, 4.6, fill=role, stroke="paper", tip=tip)
    return sheet


def decision_panel(panel: Row, *, title: str, baseline: str) -> Drawing:
    """Net benefit by threshold, before and after; dashed: treating all, rule at 0: treating none.

    Curves end where they leave the panel, a quarter of its height below 0.
    """
    width, height, left, up, bottom = 236.0, 190.0, 44.0, 12.0, 26.0
    top = nice_top(max(panel["prevalence"], 0.01))
    low = -top / 4
    label = (
        f"Net benefit of treating from a threshold on, by {panel['judge']}, {title}: {panel['n']:,} cases, "
        f"{percent(panel['prevalence'])} positive."
    )
    sheet = Drawing(width, height, label)

    def at(threshold: float, benefit: float) -> tuple[float, float]:
        return (
            left + threshold * (width - left - 18),
            up + (top - benefit) / (top - low) * (height - up - bottom),
        )

    for tick in (top / 2, top):
        sheet.line(at(0, tick), at(1, tick), stroke="band")
    sheet.line(at(0, 0), at(1, 0), stroke="quiet")
    for tick in (0.0, top / 2, top):
        sheet.text(left - 6, at(0, tick)[1] + 4, f"{tick:g}", anchor="end")
    for share in (0.0, 0.5, 1.0):
        sheet.text(at(share, 0)[0], height - 8, f"{100 * share:g} %", anchor="middle")

    def curve(values: Sequence[float]) -> list[tuple[float, float]]:
        points = []
        for t, value in zip(panel["threshold"], values, strict=True):
            points.append(at(t, max(value, low)))
            if value < low:
                break
        return points

    sheet.polyline(curve(panel["treat_all"]), stroke="quiet", dash="3 3")
    for method in panel["methods"]:
        role = role_of(method["method"], baseline)
        sheet.polyline(
            curve(method["net_benefit"]), stroke=role, width=4.0 if role == "before" else 1.6
        )
    for method in panel["methods"]:
        role = role_of(method["method"], baseline)
        for row in method["table"]:
            if row["net_benefit"] >= low:
                tip = (
                    f"{method['method']}, threshold {100 * row['threshold']:g} %: net benefit "
                    f"{interval_text(row, 'net_benefit')}, less the better of treating all and none "
                    f"{interval_text(row, 'gain')}"
                )
                sheet.circle(
                    *at(row["threshold"], row["net_benefit"]),
                    3.6,
                    fill=role,
                    stroke="paper",
                    tip=tip,
                )
    return sheet


# Two answers: the law of votes, and what votes would buy

MOST_BARS = 60
"""Numbers of votes drawn as bars; longer laws are written only."""


def law_bars(two: Row, *, of: str) -> Drawing | None:
    """Probability of each number of votes for a class, the observed number filled and marked.

    The line beneath spans the numbers to expect. None where there is no law, or one too long to draw.
    """
    law = two.get("law")
    if not law or len(law) > MOST_BARS:
        return None
    m, step, high = len(law) - 1, max(2.5, min(12.0, 108.0 / len(law))), 30.0
    seen = two.get("votes")
    each = ", ".join(f"{k}: {percent(p)}" for k, p in enumerate(law))
    observed = "" if seen is None else f"; observed: {seen}"
    sheet = Drawing(
        step * len(law) + 8, high + 20, f"Votes for {of} of {m} readers, {each}{observed}"
    )
    most = max(law)
    for k, p in enumerate(law):
        height = max(high * p / most, 1.0)
        fill = "accent" if k == seen else "rule"
        sheet.rect(4 + k * step + 0.5, 2 + high - height, step - 1, height, fill=fill)
    left, right = 4 + two["low"] * step, 4 + (two["high"] + 1) * step
    sheet.line((left + 0.5, high + 4), (right - 0.5, high + 4), stroke="quiet", width=1.5)
    if seen is not None:
        sheet.circle(4 + (seen + 0.5) * step, high + 4, 3, fill="accent", stroke="paper")
    sheet.text(4 + step / 2, high + 18, "0", anchor="middle", size=10)
    sheet.text(4 + (m + 0.5) * step, high + 18, f"{m}", anchor="middle", size=10)
    return sheet


Placed = tuple[Row, float, float, float, float]
"""A point with its place across, its value and the ends of its interval."""

READS = {"panel": "read by the whole panel", "single": "read by one reader each"}
"""Kinds of reads in words, as points of a curve are described."""


def voted_points(cell: Row) -> list[dict[str, Any]]:
    """Points of the figure on voted cases: no vote at all, so many of each kind, all of them.

    `voted` is None where all training votes were used.
    """
    voted, whole = cell["voted"], {}
    for row in cell["rows"]:
        if row["stratum"] == "overall":
            whole[row["method"]] = row
    ends = []
    for key, method, n in (("published", PUBLISHED, 0), ("all", VOTED, None)):
        if method in whole:
            kept = {k: whole[method][k] for k in ("nll", "vote_nll", "changes")}
            ends.append({"voted": n, "reads": key, **voted[key], **kept})
    return [*ends[:1], *voted["points"], *ends[1:]]


def voted_name(point: Row) -> str:
    """A point of the figure on voted cases in words."""
    if point["reads"] in READS:
        return f"{point['voted']:,} cases {READS[point['reads']]}"
    return "published numbers, no vote" if point["reads"] == "published" else "all training votes"


def _voted_tip(point: Row) -> str:
    parts = []
    if is_known(point["share"]):
        ends = [f"{100 * point[k]:.0f}" for k in ("share", "low", "high")]
        parts.append("recovers {} % ({} to {})".format(*ends))
        if is_known(point.get("draws_low")):
            ends = [f"{100 * point[k]:.0f}" for k in ("draws_low", "draws_high")]
            parts.append("{} to {} % over draws".format(*ends))
    for key, name in (("vote_nll", "vote NLL"), ("nll", "label NLL")):
        if key in point["changes"]:
            parts.append(f"change of {name} {change_text(point['changes'][key])}")
    return f"{voted_name(point)}: {'; '.join(parts)}"


def voted_curve(cell: Row) -> Drawing | None:
    """What voted cases buy: share of the gain recovered, and beneath it the change of label NLL.

    Numbers of cases are on a square-root scale. Where no share is known the upper part has the change
    of vote NLL instead. None without points.
    """
    points = voted_points(cell)
    if not points:
        return None
    shares = any(is_known(p["share"]) for p in points)
    width, left, right, ends = 480.0, 62.0, 10.0, 44.0
    upper, lower = (58.0, 258.0), (304.0, 384.0)
    title = "Share of the gain recovered" if shares else "Change of vote NLL"
    sheet = Drawing(
        width, 428, f"{title}, and change of label NLL, by number of voted training cases."
    )
    most = math.sqrt(max([p["voted"] for p in points if p["voted"]], default=1))

    def across(point: Row) -> float:
        if point["voted"] is None:
            return width - right - ends / 2
        part = math.sqrt(point["voted"]) / most * (width - left - right - 2 * ends)
        return left + ends / 2 + part + {"panel": -3.5, "single": 3.5}.get(point["reads"], 0.0)

    def by(metric: str | None) -> list[Placed]:
        """Points with value and interval: of the share recovered, or of a metric's change."""
        names = ("difference" if metric else "share", "low", "high")
        out: list[Placed] = []
        for p in points:
            source = p["changes"].get(metric, {}) if metric else p
            value, low, high = (math.nan if source.get(k) is None else source[k] for k in names)
            if math.isfinite(value):
                out.append((p, across(p), value, low, high))
        return out

    x0, x1 = left, width - right
    sheet.line((x1 - ends, upper[0] - 8), (x1 - ends, lower[1]), stroke="band")
    _voted_part(sheet, by(None if shares else "vote_nll"), upper, (x0, x1), shares)
    _voted_part(sheet, by("nll"), lower, (x0, x1), False)
    heading = "share of the gain of training on all votes" if shares else "change of vote NLL"
    sheet.text(8, upper[0] - 16, heading, fill="ink", size=12)
    sheet.text(8, lower[0] - 16, "change of label NLL", fill="ink", size=12)
    last = -1e9
    for n in sorted({p["voted"] for p in points if p["voted"] is not None}):
        x = across({"voted": n, "reads": ""})
        if x - last >= text_width(f"{n:,}", 11) + 6:
            sheet.text(x, lower[1] + 16, f"{n:,}", anchor="middle")
            last = x
    if any(p["voted"] is None for p in points):
        sheet.text(x1 - ends / 2, lower[1] + 16, "all", anchor="middle")
    name = "voted training cases, square-root scale"
    sheet.text(x1 - ends, lower[1] + 36, name, anchor="end", fill="ink")
    place = 8.0
    for reads, words in (
        ("panel", "whole panel"),
        ("single", "one reader each"),
        ("published", "published numbers"),
        ("all", "all votes"),
    ):
        if any(p["reads"] == reads for p in points):
            _voted_mark(sheet, reads, place + 5, 10)
            sheet.text(place + 15, 14, words)
            place += 34 + text_width(words, 11)
    return sheet


def _voted_mark(sheet: Drawing, reads: str, x: float, y: float, tip: str = "") -> None:
    """A disc for whole panels, a ring for single reads, a square where nothing was drawn at random."""
    if reads in READS:
        fill = "accent" if reads == "panel" else "paper"
        sheet.circle(x, y, 4.6, fill=fill, stroke="accent", width=1.6, tip=tip)
    else:
        fill = "before" if reads == "published" else "ink"
        sheet.rect(x - 4.2, y - 4.2, 8.4, 8.4, fill=fill, stroke="paper", tip=tip)


def _voted_part(
    sheet: Drawing, placed: Sequence[Placed], rows: Bounds, columns: Bounds, shares: bool
) -> None:
    """One part of the figure: points with intervals, joined by kind of reads; far ones are clipped."""
    values = [v for _, _, *three in placed for v in three if math.isfinite(v)]
    low, high = min([0.0, *values]), max([1.0 if shares else 0.0, *values])
    if shares:  # long intervals are cut, points are not
        own = [value for _, _, value, *_ in placed]
        low, high = max(low, min(-0.5, *own)), min(high, max(2.0, *own))
    slack = 0.06 * (high - low) or 0.01
    bounds = (low - slack, high + slack)

    def up(value: float) -> float:
        part = (_clip(value, bounds) - bounds[0]) / (bounds[1] - bounds[0])
        return rows[1] - part * (rows[1] - rows[0])

    step = nice_top((bounds[1] - bounds[0]) / 5)
    step = 0.5 if shares and step < 0.8 else step
    for k in range(math.ceil(bounds[0] / step), math.floor(bounds[1] / step) + 1):
        text = f"{100 * k * step:.0f} %" if shares else f"{round(k * step, 10):+g}" if k else "0"
        sheet.line((columns[0], up(k * step)), (columns[1], up(k * step)), stroke="band")
        sheet.text(columns[0] - 8, up(k * step) + 4, text, anchor="end")
    for mark in (0.0, 1.0) if shares else (0.0,):
        sheet.line((columns[0], up(mark)), (columns[1], up(mark)), stroke="quiet", dash="3 3")
    for reads in READS:
        line = [(x, up(value)) for p, x, value, *_ in placed if p["reads"] == reads]
        sheet.polyline(line, stroke="accent", dash="" if reads == "panel" else "5 3")
    for p, x, _, least, greatest in placed:
        if shares and is_known(p.get("draws_low")):
            bottom, top = up(p["draws_low"]), up(p["draws_high"])
            sheet.rect(x - 3, top, 6, max(bottom - top, 1), fill="rule")
        if math.isfinite(least) and math.isfinite(greatest):
            sheet.line((x, up(least)), (x, up(greatest)), stroke="ink")
    for p, x, value, *_ in placed:
        _voted_mark(sheet, p["reads"], x, up(value), _voted_tip(p))


# Methods: a disc gains more than softening would, a ring gains no more

MARK = 4.6  # radius of a method's mark


def _reach(values: Sequence[float]) -> Bounds:
    """Range that shows most values well; a few far ones are pinned to the frame instead."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    reach = max(4.0 * (high - low), 0.1 * abs(middle), 1e-6)
    inside = [v for v in values if low - reach <= v <= high + reach]
    slack = 0.15 * (max(inside) - min(inside)) or 0.05
    return min(inside) - slack, max(inside) + slack


def _ticks(low: float, high: float, count: int = 6) -> list[float]:
    step = nice_top((high - low) / count)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _clip(value: float, bounds: Bounds) -> float:
    return min(max(value, bounds[0]), bounds[1])


def _method_mark(
    sheet: Drawing, x: float, y: float, *, role: str, ring: bool, inside: bool, tip: str = ""
) -> None:
    """Draw a method's mark: a ring where it gains no more than softening, a square on the frame's edge."""
    fill, stroke = ("paper", role) if ring else (role, "paper")
    style: dict[str, Any] = {
        "fill": fill,
        "stroke": stroke,
        "width": 1.8 if ring else 1.0,
        "tip": tip,
    }
    if inside:
        sheet.circle(x, y, MARK, **style)
    else:
        sheet.rect(x - 4, y - 4, 8, 8, **style)


def method_key(sheet: Drawing, x: float, y: float, *, outside: bool) -> None:
    """Say what the marks of methods mean."""
    _method_mark(sheet, x + 5, y - 4, role="accent", ring=True, inside=True)
    text = "gains no more than softening would"
    sheet.text(x + 15, y, text)
    if outside:
        x += 34 + text_width(text, 11)
        _method_mark(sheet, x + 5, y - 4, role="accent", ring=False, inside=False)
        sheet.text(x + 15, y, "beyond the frame")


def forest(
    rows: Sequence[Row],
    *,
    metric: str,
    title: str,
    baseline: str,
    best: str | None,
    mere: Collection[str],
) -> Drawing | None:
    """Paired change of a metric against the baseline with its 95 % interval, a line per method.

    Parameters
    ----------
    rows
        Methods' rows in the order they are drawn; those without this change are left out.
    best
        The method whose name is bold.
    mere
        Methods that gain no more than softening would: their marks are rings.
    """
    drawn = [
        (row["method"], change)
        for row in rows
        if (change := row["changes"].get(metric)) and is_known(change["difference"])
    ]
    if not drawn:
        return None
    names = [method for method, _ in drawn]
    left = 14 + max(text_width(name, 12) for name in names)
    plot, top, step = 212.0, 44.0, 23.0
    bottom = top + step * len(drawn)
    label = f"Change of {title} against {baseline}, with 95 % intervals: {len(drawn)} methods."
    sheet = Drawing(left + plot + 14, bottom + 62, label)
    ends = [c[k] for _, c in drawn for k in ("low", "high") if is_known(c[k])]
    bounds = _reach([0.0, *(c["difference"] for _, c in drawn), *ends])
    bounds = (min(bounds[0], 0.0), max(bounds[1], 0.0))

    def at(value: float) -> float:
        return left + (_clip(value, bounds) - bounds[0]) / (bounds[1] - bounds[0]) * plot

    sheet.text(4, 14, f"change of {title}", fill="ink", size=12, bold=True)
    for tick in _ticks(*bounds, count=4):
        sheet.line((at(tick), top - 8), (at(tick), bottom), stroke="band")
        sheet.text(at(tick), bottom + 14, f"{tick:+g}" if tick else "0", anchor="middle", size=10.5)
    sheet.line((at(0), top - 8), (at(0), bottom), stroke="before", width=1.5)
    anchor = "end" if at(0) > left + plot / 2 else "start"
    sheet.text(
        at(0), top - 13, f"{baseline}, uncalibrated", anchor=anchor, size=10.5, fill="before"
    )
    outside = False
    for i, (method, change) in enumerate(drawn):
        y = top + (i + 0.5) * step
        sheet.text(4, y + 4, method, size=12, fill="ink", bold=method == best)
        if is_known(change["low"]):
            sheet.line((at(change["low"]), y), (at(change["high"]), y), stroke="quiet", width=1.5)
        inside = bounds[0] <= change["difference"] <= bounds[1]
        outside |= not inside
        tip = f"{method}: change of {title} {change_text(change)}"
        tip += "; no clear gain over softening" if method in mere else ""
        x = at(change["difference"])
        _method_mark(sheet, x, y, role="accent", ring=method in mere, inside=inside, tip=tip)
    sheet.text(left, bottom + 32, "← better", fill="quiet")
    method_key(sheet, 4, bottom + 54, outside=outside)
    return sheet


# The trade-off: methods as named points against the curve of plain softening

HEIGHT, PLOT, LEFT, TOP, BOTTOM = 400.0, 356.0, 56.0, 26.0, 66.0
NAME_STEP = 14.0  # between names in the margin


def frontier(
    facts: Row,
    *,
    x: str,
    y: str,
    titles: tuple[str, str],
    baseline: str,
    methods: Collection[str] | None = None,
    mere: Collection[str] = (),
) -> Drawing | None:
    """Methods as named points with intervals, against the softening curve; None without points.

    Intervals are of the paired change against the baseline, set at the baseline's value. A name that
    has no room beside its point stands in the right margin, with a line to the point.

    Parameters
    ----------
    methods
        Those drawn beside the baseline; None: all.
    mere
        Methods that gain no more than softening would: their marks are rings.
    """
    points = [
        p
        for p in facts["points"]
        if is_known(p.get(x))
        and is_known(p.get(y))
        and (methods is None or p["method"] == baseline or p["method"] in methods)
    ]
    curve = [c for c in facts["curve"] if is_known(c.get(x)) and is_known(c.get(y))]
    if not points:
        return None
    across, up = (_reach([p[key] for p in points]) for key in (x, y))
    across, up = ((max(0.0, low), high) for low, high in (across, up))
    names = [p["method"] for p in points]
    height = max(HEIGHT, TOP + BOTTOM + NAME_STEP * len(points))
    width = LEFT + PLOT + 34 + max(text_width(name, 11) for name in names)
    label = f"{titles[1]} against {titles[0]}: {len(points)} methods and the softening curve."
    sheet = Drawing(width, height, label)

    def at(px: float, py: float) -> tuple[float, float]:
        return (
            LEFT + (px - across[0]) / (across[1] - across[0]) * PLOT,
            height - BOTTOM - (py - up[0]) / (up[1] - up[0]) * (height - TOP - BOTTOM),
        )

    _axes(sheet, across, up, titles, at)
    _curve(sheet, [(c[x], c[y]) for c in curve], across, up, at)
    thin = 0.6 if len(points) > 12 else 1.0
    places = [at(_clip(p[x], across), _clip(p[y], up)) for p in points]
    for p, (a, b) in zip(points, places, strict=True):
        if is_known(p.get(f"{x}_low")):
            ends = (at(_clip(p[f"{x}_{end}"], across), up[0])[0] for end in ("low", "high"))
            sheet.line((next(ends), b), (next(ends), b), width=thin)
        if is_known(p.get(f"{y}_low")):
            ends = (at(across[0], _clip(p[f"{y}_{end}"], up))[1] for end in ("low", "high"))
            sheet.line((a, next(ends)), (a, next(ends)), width=thin)
    roles = [role_of(p["method"], baseline) for p in points]
    # Names first find their places, the baseline's before the others'; the rest go to the margin.
    order = sorted(range(len(points)), key=lambda i: roles[i] != "before")
    beside, left_over = _label_places(places, names, order, LEFT + PLOT, height - BOTTOM)
    margin = _margin_places([places[i] for i in left_over], height - BOTTOM)
    for i, ty in zip(left_over, margin, strict=True):
        sheet.line(places[i], (LEFT + PLOT + 18, ty - 4), stroke="rule", width=0.8)
    outside = False
    # The baseline is drawn last, so that nothing hides it.
    for i in sorted(range(len(points)), key=lambda i: roles[i] == "before"):
        p, role, (a, b) = points[i], roles[i], places[i]
        inside = p[x] == _clip(p[x], across) and p[y] == _clip(p[y], up)
        outside |= not inside
        tip = f"{titles[0]} {interval_text(p, x)}, {titles[1]} {interval_text(p, y)}"
        tip = f"{p['method']}: {tip}"
        ring = p["method"] in mere
        tip += "; no clear gain over softening" if ring else ""
        _method_mark(sheet, a, b, role=role, ring=ring, inside=inside, tip=tip)
    for i, (tx, ty) in beside.items():
        sheet.text(tx, ty, names[i], fill="ink")
    for i, ty in zip(left_over, margin, strict=True):
        sheet.text(LEFT + PLOT + 20, ty, names[i], fill="ink")
    method_key(sheet, LEFT, height - 8, outside=outside)
    return sheet


def _axes(sheet: Drawing, across: Bounds, up: Bounds, titles: tuple[str, str], at: Any) -> None:
    for value in _ticks(*across):
        px, foot = at(value, up[0])
        sheet.line((px, TOP), (px, foot), stroke="band")
        sheet.text(px, foot + 16, f"{value:g}", anchor="middle")
    for value in _ticks(*up):
        py = at(across[0], value)[1]
        sheet.line((LEFT, py), (LEFT + PLOT, py), stroke="band")
        sheet.text(LEFT - 8, py + 4, f"{value:g}", anchor="end")
    sheet.text(LEFT, 14, titles[1], fill="ink")
    sheet.text(LEFT + PLOT, sheet.height - BOTTOM + 34, titles[0], anchor="end", fill="ink")


def _curve(
    sheet: Drawing, points: Sequence[tuple[float, float]], across: Bounds, up: Bounds, at: Any
) -> None:
    """Draw the parts of the softening curve that lie in the frame."""
    part: list[tuple[float, float]] = []
    for px, py in points:
        if across[0] <= px <= across[1] and up[0] <= py <= up[1]:
            part.append(at(px, py))
        else:
            sheet.polyline(part, stroke="quiet", dash="2 3")
            part = []
    sheet.polyline(part, stroke="quiet", dash="2 3")


def _label_places(
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    order: Sequence[int],
    right: float,
    bottom: float,
) -> tuple[dict[int, tuple[float, float]], list[int]]:
    """Places for names beside their points that touch neither each other nor a point; who has none."""
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    places: dict[int, tuple[float, float]] = {}
    for i in order:
        x, y = points[i]
        long = text_width(names[i], 11) + 3
        for dx, dy in ((1, 0), (1, -1), (1, 1), (0, -1), (0, 1), (-1, 0), (-1, -1), (-1, 1)):
            tx = x + {1: 9, 0: -long / 2, -1: -long - 7}[dx]
            ty = y + 4 + dy * 12
            box = (tx, ty - 9, tx + long, ty + 3)
            inside = box[0] >= LEFT and box[2] <= right and box[1] >= TOP - 8 and box[3] <= bottom
            if inside and not any(_overlap(box, other) for other in taken):
                places[i] = (tx, ty)
                taken.append(box)
                break
    return places, [i for i in order if i not in places]


def _margin_places(points: Sequence[tuple[float, float]], bottom: float) -> list[float]:
    """Heights of names in the margin, each as near to its point as the others leave room.

    Examples
    --------
    >>> _margin_places([(0, 50), (0, 52), (0, 100)], bottom=120)
    [48.0, 62.0, 104.0]
    """
    order = sorted(range(len(points)), key=lambda i: points[i][1])
    wanted = [points[i][1] + 4 for i in order]
    # Names that collide form a block around the mean of what they want; blocks that collide join.
    blocks: list[list[float]] = []
    for value in wanted:
        blocks.append([value])
        while len(blocks) > 1 and _top(blocks[-1]) < _top(blocks[-2]) + NAME_STEP * len(blocks[-2]):
            last = blocks.pop()
            blocks[-1] += last
    heights, least = [0.0] * len(points), TOP + 4
    placed: list[float] = []
    for block in blocks:
        first = max(_top(block), least)
        placed += [first + NAME_STEP * k for k in range(len(block))]
        least = placed[-1] + NAME_STEP
    most = bottom
    for k in range(len(placed) - 1, -1, -1):
        placed[k] = min(placed[k], most)
        most = placed[k] - NAME_STEP
    for i, value in zip(order, placed, strict=True):
        heights[i] = value
    return heights


def _top(block: Sequence[float]) -> float:
    """First height of names in a row that lie around the mean of what they want."""
    return sum(block) / len(block) - NAME_STEP * (len(block) - 1) / 2


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
