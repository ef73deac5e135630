"""The report's figures: facts in, `Drawing` out; the same for the page, for print and for files.

Nothing here computes a number that is shown: the facts hold it. What is worked out is where it goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scalecal.evaluation.cells import PUBLISHED, READS, VOTED
from scalecal.evaluation.judging import JUDGES
from scalecal.evaluation.texts import recovered_text
from scalecal.evaluation.words import judge_of, recommended_methods, row_of, softening_remark
from scalecal.io.text import change_text, interval_text, is_known, number, percent
from scalecal.metrics import COLUMNS
from scalecal.report.svg import Drawing, Point, text_width

Row = Mapping[str, Any]
Bounds = tuple[float, float]


class Figure(NamedTuple):
    """A drawing with its title, the facts that it shows, and the parts of its file's name."""

    name: tuple[str, ...]
    title: str
    drawing: Drawing
    facts: Row


class Frame(NamedTuple):
    """A rectangle of a sheet with its two scales; what lies beyond them is drawn on its edge."""

    sheet: Drawing
    left: float
    top: float
    width: float
    height: float
    across: Bounds = (0.0, 1.0)
    up: Bounds = (0.0, 1.0)

    @property
    def right(self) -> float:
        """Right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.top + self.height

    def x(self, value: float) -> float:
        """Place of a value of the scale across."""
        return float(np.interp(value, self.across, (self.left, self.right)))

    def y(self, value: float) -> float:
        """Place of a value of the upward scale."""
        return float(np.interp(value, self.up, (self.bottom, self.top)))

    def at(self, across: float, up: float) -> Point:
        """Place of a pair of values."""
        return self.x(across), self.y(up)

    def level(self, value: float, *, stroke: str = "band", dash: str = "") -> None:
        """Draw a line across the frame at a value of the upward scale."""
        y = self.y(value)
        self.sheet.line((self.left, y), (self.right, y), stroke=stroke, dash=dash)

    def levels(self, ticks: Sequence[float], text: Callable[[float], str]) -> None:
        """Draw such lines, with the values beside them."""
        for tick in ticks:
            self.level(tick)
            self.sheet.text(self.left - 6, self.y(tick) + 4, text(tick), anchor="end")

    def upright(self, value: float, *, stroke: str = "band", width: float = 1.0) -> None:
        """Draw a line up the frame at a value of the scale across."""
        x = self.x(value)
        self.sheet.line((x, self.top), (x, self.bottom), stroke=stroke, width=width)

    def feet(self, ticks: Sequence[float], text: Callable[[float], str], down: float) -> None:
        """Write values of the scale across beneath the frame."""
        for tick in ticks:
            self.sheet.text(self.x(tick), self.bottom + down, text(tick), anchor="middle")


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


def _ticks(bounds: Bounds, count: int) -> list[float]:
    low, high = bounds
    step = nice_top((high - low) / count)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def share_text(value: float) -> str:
    """Write a share in percent, for an axis or a rule."""
    return f"{100 * value:g} %"


def _signed(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:+g}"


def role_of(method: str, baseline: str) -> str:
    """Colour of a method: one for the baseline, one for every other."""
    if method == baseline:
        return "before"
    return "accent"


def stratum_title(name: str, agreement: bool) -> str:
    """Heading of a stratum.

    Examples
    --------
    >>> stratum_title("low", True), stratum_title("overall", True)
    ('low agreement', 'all cases')
    """
    if name == "overall":
        return "all cases"
    if agreement:
        return f"{name} agreement"
    return name


# Reliability

SIDE, GAP, COUNTS = 190.0, 18.0, 48.0
"""Side of a reliability diagram, and the room beneath it: a gap, then the bars of counts."""

PANEL_WIDTH, PANEL_HEIGHT, PANEL_LEFT, PANEL_TOP = 240.0, 302.0, 40.0, 10.0
HALVES = (0.0, 0.5, 1.0)

AXES = {
    ("labels", "positive class"): ("predicted probability", "share positive", "positive"),
    ("labels", "top class is right"): ("predicted probability", "share right", "right"),
    ("votes", "positive class"): ("probability of a vote", "share of votes", "votes positive"),
    ("votes", "top class is right"): (
        "probability of a vote",
        "share of votes for it",
        "votes for it",
    ),
}
"""(what judges, event) -> axis across, axis up, and what a bin's share is a share of."""


OUTCOMES = {
    ("labels", "positive class"): ("positive", "negative"),
    ("labels", "top class is right"): ("right", "wrong"),
    ("votes", "positive class"): ("votes for", "votes against"),
    ("votes", "top class is right"): ("votes for", "votes against"),
}
"""(what judges, event) -> names of both outcomes."""


def calibrated(panel: Row) -> float | None:
    """ECE that a calibrated model would show in a stratum: its null, or the floor where it has none."""
    null: float | None = panel.get("null")
    if is_known(null):
        return null
    return panel.get("floor")


def bin_tip(b: Row, share: str) -> str:
    """Describe a bin in words; one of votes has their number."""
    cases = f"{b['n']:,} cases"
    if "votes" in b:
        cases = f"{b['votes']:,} votes on {cases}"
    text = f"predicted {number(b['mean_p'])}, {share} {number(b['mean_y'])}, {cases}"
    # Of too few groups it is not known what chance would do.
    if not is_known(b["bar_lo"]):
        return text
    return f"{text}; calibrated: {number(b['bar_lo'])} to {number(b['bar_hi'])}"


def _draw_panel(sheet: Drawing, panel: Row, event: str, role: str, x0: float, y0: float) -> None:
    top = panel.get("top", 1.0)
    frame = Frame(sheet, x0, y0, SIDE, SIDE, across=(0.0, top), up=(0.0, top))
    ticks = [top * tick for tick in HALVES]
    judge = "labels"
    if "votes" in panel:
        judge = "votes"
    across, up, share = AXES[judge, event]
    frame.levels(ticks, "{:g}".format)
    sheet.line(frame.at(0, 0), frame.at(top, top), stroke="quiet", dash="3 3")
    max_n = max(b["n"] for b in panel["bins"])
    if panel.get("curve"):
        _draw_bands(frame, panel["curve"])
    for b in panel["bins"]:
        if is_known(b["bar_lo"]):
            x, high = frame.at(b["mean_p"], b["bar_hi"])
            sheet.rect(x - 3.5, high, 7, max(frame.y(b["bar_lo"]) - high, 1), fill="rule")
    if panel.get("curve"):
        _draw_curve(frame, panel["curve"], role)
    # Points come last, so that no bar hides one.
    for b in panel["bins"]:
        radius = 2.6 + 4.4 * math.sqrt(b["n"] / max_n)
        x, y = frame.at(b["mean_p"], b["mean_y"])
        sheet.circle(x, y, radius, fill=role, stroke="paper", tip=bin_tip(b, share))
    base = frame.bottom + GAP + COUNTS
    if "positives" in panel:
        _draw_outcomes(frame, panel, OUTCOMES[judge, event])
    else:
        _draw_counts(frame, panel["bins"], max_n)
    frame.feet(ticks, "{:g}".format, base + 14 - frame.bottom)
    sheet.text(x0 + SIDE / 2, base + 30, across, anchor="middle", size=10.5)
    sheet.text(x0 - 29, y0 + SIDE / 4, up, anchor="middle", size=10.5, turned=True)


def _draw_bands(frame: Frame, curve: Row) -> None:
    """Pointwise band of the flexible curve, filled, and the ends of the simultaneous one, dashed."""
    there = [frame.at(*point) for point in zip(curve["p"], curve["high"], strict=True)]
    back = [frame.at(*point) for point in zip(curve["p"], curve["low"], strict=True)]
    frame.sheet.area(*there, *reversed(back), fill="band")
    for end in ("all_low", "all_high"):
        line = [frame.at(*point) for point in zip(curve["p"], curve[end], strict=True)]
        frame.sheet.line(*line, stroke="quiet", dash="2 3")


def _draw_curve(frame: Frame, curve: Row, role: str) -> None:
    line = [frame.at(*point) for point in zip(curve["p"], curve["value"], strict=True)]
    frame.sheet.line(*line, stroke=role, width=1.8)


def curve_tip(curve: Row) -> str:
    """Describe a flexible curve in words, at both ends of its range and in the middle."""
    parts = []
    for j in (0, len(curve["p"]) // 2, -1):
        low, high = number(curve["low"][j]), number(curve["high"][j])
        parts.append(f"at {number(curve['p'][j])}: {number(curve['value'][j])} ({low} to {high})")
    return f"flexible curve, {'; '.join(parts)}"


def _draw_counts(frame: Frame, bins: Sequence[Row], max_n: int) -> None:
    """Number of cases in every bin."""
    # Counts are not on the scale of shares, so they have a foot of their own.
    sheet, base = frame.sheet, frame.bottom + GAP + COUNTS
    for b in bins:
        left, right = frame.x(b["lo"]), frame.x(b["hi"])
        height = COUNTS * b["n"] / max_n
        sheet.rect(left + 0.5, base - height, right - left - 1, height, fill="rule")
    sheet.line((frame.left, base), (frame.right, base), stroke="rule")
    sheet.text(frame.right, base - COUNTS - 3, f"≤ {max_n:,}", anchor="end", size=10)


def _draw_outcomes(frame: Frame, panel: Row, names: tuple[str, str]) -> None:
    """Distribution of p for both outcomes, back to back: one upwards, the other downwards.

    Each has a scale of its own, else a rare outcome would not be seen.
    """
    sheet, half = frame.sheet, COUNTS / 2
    middle = frame.bottom + GAP + half
    for counts, name, fill, upwards in (
        (panel["positives"], names[0], "quiet", True),
        (panel["negatives"], names[1], "rule", False),
    ):
        most, width = max(counts), frame.width / len(counts)
        for j, count in enumerate(counts):
            if not count:
                continue
            # A single case must be seen.
            height = max(half * count / most, 0.8)
            top = middle
            if upwards:
                top -= height
            sheet.rect(frame.left + j * width + 0.3, top, width - 0.6, height, fill=fill)
        foot = middle + half + 1
        if upwards:
            foot = middle - half - 1
        sheet.text(frame.right, foot, f"{name}, ≤ {most:,}", anchor="end", size=9)
    sheet.line((frame.left, middle), (frame.right, middle), stroke="quiet")


def reliability_panel(panel: Row, *, title: str, event: str, role: str) -> Drawing:
    """Reliability diagram of one stratum: points, consistency bars, and counts beneath.

    A panel that counts votes is of a reader's vote, against the share of readers who voted so.
    """
    against = ""
    if "votes" in panel:
        against = " against readers’ votes"
    label = (
        f"Reliability diagram{against}, {title}: {panel['n']:,} cases, ECE {number(panel['ece'])}; "
        f"a calibrated model would show {number(calibrated(panel))} there."
    )
    if panel.get("curve"):
        label += f" With the {curve_tip(panel['curve'])}."
    sheet = Drawing(PANEL_WIDTH, PANEL_HEIGHT, label)
    _draw_panel(sheet, panel, event, role, PANEL_LEFT, PANEL_TOP)
    return sheet


def reliability_row(
    panels: Sequence[Row], facts: Row, *, role: str = "accent", heading: str = "Reliability"
) -> Drawing:
    """Draw such diagrams side by side, each with its heading: for files, and for `Evaluation.plot`."""
    width = PANEL_WIDTH * max(1, len(panels))
    sheet = Drawing(width, PANEL_HEIGHT + 62, f"{heading}: reliability by stratum")
    sheet.text(PANEL_LEFT, 18, heading, size=13, fill="ink", bold=True)
    for j, panel in enumerate(panels):
        x = PANEL_LEFT + j * PANEL_WIDTH
        title = f"{stratum_title(panel['stratum'], facts['agreement'])}, n = {panel['n']:,}"
        if "votes" in panel:
            title = f"{panel['votes']:,} votes, n = {panel['n']:,}"
        sheet.text(x, 40, title, size=12, fill="ink")
        sheet.text(x, 55, f"ECE {number(panel['ece'])}, null {number(calibrated(panel))}")
        _draw_panel(sheet, panel, facts["event"], role, x, 72)
    return sheet


def reliability_rows(cell: Row) -> list[Figure]:
    """Reliability diagrams of a cell, a row for each method: against labels, then against votes."""
    out = []
    for kind in ("reliability", "vote_reliability"):
        for method, panels in cell[kind].items():
            if not panels:
                continue
            heading, role = f"{cell['name']}: {method}", role_of(method, cell["baseline"])
            drawn = reliability_row(panels, cell, role=role, heading=heading)
            out.append(Figure((kind, method), heading, drawn, {}))
    return out


# ECE against its floor and null


def strip_tip(row: Row) -> str:
    """Describe a dot of a strip in words."""
    text = f"{row['method']}, {row['stratum']}: ECE {number(row['ece'])}"
    if is_known(row.get("null_low")):
        text += f"; null: {interval_text(row, 'null', 3)}"
    return text + f"; floor {number(row['floor'])}; n {row['n']:,}"


def ece_strips(cell: Row) -> Figure:
    """ECE of every method of a cell against its null: a line per method, a column per stratum.

    Dot at the ECE, tick at the floor, band where calibrated.
    """
    strata, methods = ["overall", *cell["strata"]], cell["methods"]
    values = [0.0]
    for row in cell["rows"]:
        values += [row[key] for key in ("ece", "null_high") if is_known(row.get(key))]
    left = 20 + max(text_width(method, 11) for method in methods)
    step, height, top = 190.0, 24.0, nice_top(max(values))
    label = (
        f"ECE of {cell['name']} by method and stratum, against what a calibrated model would show"
    )
    key = "dot: ECE; tick: noise floor; bar: 90 % of calibrated models, selection included"
    # With one stratum the key is wider than the strips.
    width = max(left + step * len(strata), 16 + text_width(key, 10))
    sheet = Drawing(width, 82 + height * len(methods), label)
    frames = {}
    for j, stratum in enumerate(strata):
        head = Frame(sheet, left + j * step + 5, 40, 160, 0, across=(0.0, top))
        title = stratum_title(stratum, cell["agreement"])
        sheet.text(head.left, 20, title, size=12, fill="ink", bold=True)
        head.feet((0.0, top / 2, top), "{:g}".format, 0)
        frames[stratum] = head
    lines = {method: 58 + height * i for i, method in enumerate(methods)}
    for method, y in lines.items():
        sheet.text(8, y + 4, method, fill="ink")
    for row in cell["rows"]:
        frame = frames[row["stratum"]]._replace(top=lines[row["method"]])
        _draw_strip(frame, row, role_of(row["method"], cell["baseline"]))
    sheet.text(8, sheet.height - 8, key, size=10)
    return Figure(("ece_against_floor",), "ECE against its floor", sheet, {})


def _draw_strip(frame: Frame, row: Row, role: str) -> None:
    y = frame.top
    frame.level(0.0)
    if is_known(row.get("null_low")):
        left, right = frame.x(row["null_low"]), frame.x(row["null_high"])
        frame.sheet.rect(left, y - 5, right - left, 10, fill="rule")
    if is_known(row.get("floor")):
        x = frame.x(row["floor"])
        frame.sheet.line((x, y - 7), (x, y + 7), stroke="quiet", width=1.5)
    frame.sheet.circle(frame.x(row["ece"]), y, 4.2, fill=role, stroke="paper", tip=strip_tip(row))


# In practice: referral and decision curves

CURVE_WIDTH = {"before": 4.0, "accent": 1.6}
"""The order of confidence is often the same before and after: lines of two widths both show."""


class Curve(NamedTuple):
    """A method's curve, with dots (across, up, tip) at chosen thresholds."""

    method: str
    across: Sequence[float]
    up: Sequence[float]
    dots: Sequence[tuple[float, float, str]]


def _curve_frame(label: str, up: Bounds, ticks: Sequence[float]) -> Frame:
    sheet = Drawing(236, 190, label)
    frame = Frame(sheet, 44, 12, 174, 152, up=up)
    frame.levels(ticks, "{:g}".format)
    frame.feet(HALVES, share_text, 18)
    return frame


def _line_until_below(
    frame: Frame, across: Sequence[float], up: Sequence[float], **style: Any
) -> None:
    """Draw a curve up to where it leaves the frame: along the edge it would tell of a benefit."""
    points = []
    for x, y in zip(across, up, strict=True):
        points.append(frame.at(x, y))
        if y < frame.up[0]:
            break
    frame.sheet.line(*points, **style)


def _draw_curves(frame: Frame, curves: Sequence[Curve], baseline: str) -> None:
    for curve in curves:
        role = role_of(curve.method, baseline)
        _line_until_below(frame, curve.across, curve.up, stroke=role, width=CURVE_WIDTH[role])
    # Dots come after all lines, so that each can be pointed at.
    for curve in curves:
        for x, y, tip in curve.dots:
            if y >= frame.up[0]:
                fill = role_of(curve.method, baseline)
                frame.sheet.circle(*frame.at(x, y), 3.8, fill=fill, stroke="paper", tip=tip)


def referrals(cell: Row) -> list[Figure]:
    """Errors avoided per case sent to a second reader, before and after, by stratum."""
    rates = [0.0]
    for panel in cell["referral"]:
        for method in panel["methods"]:
            rates += method["yield"]
    top = nice_top(max(rates))
    return [_referral(cell, panel, top) for panel in cell["referral"]]


def _referral(cell: Row, panel: Row, top: float) -> Figure:
    title = stratum_title(panel["stratum"], cell["agreement"])
    before = panel["methods"][0]
    label = (
        f"Errors avoided per case sent to a second reader, {title}: {panel['n']:,} cases, "
        f"{before['errors']:,} errors before."
    )
    frame = _curve_frame(label, (0.0, top), (0.0, top / 2, top))
    frame.level(before["yield"][-1], stroke="quiet", dash="3 3")
    curves = []
    for method in panel["methods"]:
        dots = []
        for row in method["thresholds"]:
            if row["sent"]:
                tip = (
                    f"{method['method']}, confidence below {share_text(row['threshold'])}: "
                    f"{row['sent']:,} of {row['n']:,} cases sent, {row['avoided']:,} of "
                    f"{row['errors']:,} errors avoided, {number(row['per_case'])} per case"
                )
                dots.append((row["sent"] / row["n"], row["per_case"], tip))
        curves.append(Curve(method["method"], method["share"], method["yield"], dots))
    _draw_curves(frame, curves, cell["baseline"])
    return Figure(("referral", panel["stratum"]), title, frame.sheet, panel)


def decisions(cell: Row) -> list[Figure]:
    """Net benefit by threshold, before and after, by judge and stratum.

    Dashed: treating all; the rule at 0: treating none. A curve ends where it leaves the panel, a quarter
    of its height below 0.
    """
    return [_decision(cell, panel) for panel in cell["decision"]]


def _decision(cell: Row, panel: Row) -> Figure:
    title = stratum_title(panel["stratum"], cell["agreement"])
    top = nice_top(max(panel["prevalence"], 0.01))
    label = (
        f"Net benefit of treating from a threshold on, by {panel['judge']}, {title}: {panel['n']:,} cases, "
        f"{percent(panel['prevalence'])} positive."
    )
    # Enough room to see that a curve falls below 0; how far it falls changes no decision.
    frame = _curve_frame(label, (-top / 4, top), (0.0, top / 2, top))
    frame.level(0.0, stroke="quiet")
    thresholds = panel["threshold"]
    _line_until_below(frame, thresholds, panel["treat_all"], stroke="quiet", width=1.5, dash="3 3")
    curves = []
    for method in panel["methods"]:
        dots = []
        for row in method["table"]:
            tip = (
                f"{method['method']}, threshold {share_text(row['threshold'])}: net benefit "
                f"{interval_text(row, 'net_benefit', 3)}, minus the better of treating all and treating none "
                f"{interval_text(row, 'gain', 3)}"
            )
            dots.append((row["threshold"], row["net_benefit"], tip))
        curves.append(Curve(method["method"], thresholds, method["net_benefit"], dots))
    _draw_curves(frame, curves, cell["baseline"])
    return Figure(("decision", panel["judge"], panel["stratum"]), title, frame.sheet, panel)


# Values with intervals, line by line: changes by method, and what voted cases buy


class Line(NamedTuple):
    """A line of an interval plot; a ring marks a method that gains no more than softening would."""

    name: str
    change: Row
    tip: str
    ring: bool = False
    bold: bool = False


def _reach(values: Sequence[float]) -> Bounds:
    """Range that shows most values well; a few far ones are pinned to the frame instead."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    reach = max(4.0 * (high - low), 0.1 * abs(middle), 1e-6)
    inside = [v for v in values if low - reach <= v <= high + reach]
    slack = 0.15 * (max(inside) - min(inside)) or 0.05
    return min(inside) - slack, max(inside) + slack


METHOD_KEY = "ring: no larger gain than one temperature; square: outside the axes"
"""What the marks of methods mean, written beneath their figures."""


def _interval_plot(
    lines: Sequence[Line], title: str, baseline: str, text: Callable[[float], str]
) -> Drawing:
    """Values with their 95 % intervals, a line each, beside the baseline at 0."""
    left = 14 + max(text_width(line.name, 12) for line in lines)
    step, top = 23.0, 44.0
    bottom = top + step * len(lines)
    label = f"{title.capitalize()} against {baseline}, with 95 % intervals: {len(lines)} lines."
    width = left + 226
    rings = any(line.ring for line in lines)
    if rings:
        width = max(width, 8 + text_width(METHOD_KEY, 10))
    sheet = Drawing(width, bottom + 62, label)
    values = [0.0]
    for line in lines:
        ends = [line.change[key] for key in ("difference", "low", "high")]
        values += filter(is_known, ends)
    low, high = _reach(values)
    # The baseline at 0 is always in the frame: every change is read from it.
    frame = Frame(sheet, left, top - 8, 212, bottom - top + 8, (min(low, 0.0), max(high, 0.0)))
    sheet.text(4, 14, title, fill="ink", size=12, bold=True)
    ticks = _ticks(frame.across, 4)
    for tick in ticks:
        frame.upright(tick)
    frame.feet(ticks, text, 14)
    frame.upright(0.0, stroke="before", width=1.5)
    anchor = "start"
    if frame.x(0.0) > left + frame.width / 2:
        anchor = "end"
    sheet.text(frame.x(0.0), top - 13, f"{baseline} (baseline)", anchor=anchor, fill="before")
    for i, line in enumerate(lines):
        _draw_line(frame, line, top + (i + 0.5) * step)
    if title.startswith("change"):
        sheet.text(left, bottom + 32, "← better")
    if rings:
        sheet.text(4, bottom + 54, METHOD_KEY, size=10)
    return sheet


def _draw_line(frame: Frame, line: Line, y: float) -> None:
    sheet, value, style = (
        frame.sheet,
        line.change["difference"],
        {"fill": "accent", "stroke": "paper"},
    )
    sheet.text(4, y + 4, line.name, size=12, fill="ink", bold=line.bold)
    if is_known(line.change["low"]):
        ends = (frame.x(line.change["low"]), y), (frame.x(line.change["high"]), y)
        sheet.line(*ends, stroke="quiet", width=1.5)
    tip, width, x = line.tip, 1.0, frame.x(value)
    if line.ring:
        tip += "; no clear gain over one temperature"
        style, width = {"fill": "paper", "stroke": "accent"}, 1.8
    if frame.across[0] <= value <= frame.across[1]:
        sheet.circle(x, y, 4.6, width=width, tip=tip, **style)
    else:
        sheet.rect(x - 4, y - 4, 8, 8, width=width, tip=tip, **style)


# What votes would buy


def voted_points(cell: Row) -> list[dict[str, Any]]:
    """Points of the figure on voted cases: no vote at all, so many of each kind, all of them.

    `voted` is None where all training votes were used.
    """
    points = list(cell["voted"]["points"])
    if PUBLISHED in cell["methods"]:
        points.insert(0, _whole_point(cell, PUBLISHED, "published", 0))
    if VOTED in cell["methods"]:
        points.append(_whole_point(cell, VOTED, "all", None))
    return points


def _whole_point(cell: Row, method: str, reads: str, n: int | None) -> dict[str, Any]:
    row = row_of(cell, method)
    kept = {key: row[key] for key in (*JUDGES.values(), "changes")}
    return {"voted": n, "reads": reads, **cell["voted"][reads], **kept}


def voted_name(point: Row) -> str:
    """A point of the figure on voted cases in words."""
    if point["reads"] == "published":
        return "published numbers, no vote"
    if point["reads"] == "all":
        return "all training votes"
    return f"{point['voted']:,} cases {READS[point['reads']]}"


def voted_plots(cell: Row) -> list[Figure]:
    """What voted cases buy: share of the gain recovered, and change of label NLL.

    Where no share is known the change of vote NLL stands in its place.
    """
    points, out = voted_points(cell), []
    shares = [point for point in points if is_known(point["share"])]
    if shares:
        title, lines = "share of the gain recovered", []
        for point in shares:
            change = {"difference": point["share"], "low": point["low"], "high": point["high"]}
            name = voted_name(point)
            lines.append(Line(name, change, f"{name}: {title} {recovered_text(point)}"))
        drawn = _interval_plot(lines, title, cell["baseline"], share_text)
        out.append(Figure(("voted",), title, drawn, {}))
    for name, metric in (("voted", "vote_nll"), ("voted_nll", "nll")):
        changes = {voted_name(p): p["changes"][metric] for p in points if metric in p["changes"]}
        if changes and not (shares and metric == "vote_nll"):
            out.append(_changes_plot(cell, (name,), metric, changes))
    return out


# Methods by their gain


def forests(cell: Row) -> list[Figure]:
    """Paired changes of the NLLs against the baseline with 95 % intervals, a line per method.

    The lowest vote NLL (else label NLL) comes first, and the name of a recommended method is bold.
    """
    out, judge, known = [], judge_of(cell), []
    for row in cell["rows"]:
        beside = row["stratum"] == "overall" and row["method"] != cell["baseline"]
        if beside and is_known(row.get(judge)):
            known.append(row)
    known.sort(key=lambda row: float(row[judge]))
    # A vote judges difficulty, so its loss comes first.
    for metric in reversed(JUDGES.values()):
        changes = {}
        for row in known:
            if metric in row["changes"]:
                changes[row["method"]] = row["changes"][metric]
        if changes:
            out.append(_changes_plot(cell, (f"forest_{metric}",), metric, changes))
    return out


def _changes_plot(
    cell: Row, file_name: tuple[str, ...], metric: str, changes: Mapping[str, Row]
) -> Figure:
    title, advised = f"change of {COLUMNS[metric].title}", recommended_methods(cell)
    lines = []
    for name, change in changes.items():
        tip = f"{name}: {title} {change_text(change)}"
        ring = name in cell["methods"] and bool(softening_remark(cell, name))
        lines.append(Line(name, change, tip, ring, name in advised))
    drawn = _interval_plot(lines, title, cell["baseline"], _signed)
    return Figure(file_name, title, drawn, {})
