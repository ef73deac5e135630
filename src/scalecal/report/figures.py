"""The report's figures: facts in, `Drawing` out; the same for the page, for print and for files.

Nothing here computes a number that is shown: the facts hold it. What is worked out is where it goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scalecal.evaluation.cells import PUBLISHED, VOTED
from scalecal.evaluation.words import softening_remark
from scalecal.io.text import change_text, is_known, number, percent
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
        low, high = self.across
        return self.left + (_clip(value, self.across) - low) / (high - low) * self.width

    def y(self, value: float) -> float:
        """Place of a value of the upward scale."""
        low, high = self.up
        return self.top + (high - _clip(value, self.up)) / (high - low) * self.height

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


def _clip(value: float, bounds: Bounds) -> float:
    return min(max(value, bounds[0]), bounds[1])


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


def _plain(value: float) -> str:
    return f"{value:g}"


def share_text(value: float) -> str:
    """Write a share in percent, for an axis or a rule."""
    return f"{100 * value:g} %"


def _signed(value: float) -> str:
    return f"{value:+g}" if value else "0"


def role_of(method: str, baseline: str) -> str:
    """Colour of a method: one for the baseline, one for every other."""
    return "before" if method == baseline else "accent"


def stratum_title(name: str, agreement: bool) -> str:
    """Heading of a stratum.

    Examples
    --------
    >>> stratum_title("low", True), stratum_title("overall", True)
    ('low agreement', 'all cases')
    """
    if name == "overall":
        return "all cases"
    return f"{name} agreement" if agreement else name


def interval_text(row: Row, key: str, digits: int = 3) -> str:
    """Write a number with its interval, where it has one."""
    text = number(row.get(key), digits)
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if not is_known(low):
        return text
    return f"{text} ({number(low, digits)} to {number(high, digits)})"


# Reliability

SIDE, GAP, COUNTS = 190.0, 14.0, 34.0
"""Side of a reliability diagram, and the room beneath it: a gap, then the bars of counts."""

PANEL_WIDTH, PANEL_HEIGHT, PANEL_LEFT, PANEL_TOP = 240.0, 284.0, 40.0, 10.0
HALVES = (0.0, 0.5, 1.0)

AXES = {
    (False, True): ("predicted probability", "share positive", "positive"),
    (False, False): ("predicted probability", "share right", "right"),
    (True, True): ("probability of a vote", "share of votes", "votes positive"),
    (True, False): ("probability of a vote", "share of votes for it", "votes for it"),
}
"""(against votes, two classes) -> axis across, axis up, and what a bin's share is a share of."""


def _axis_words(panel: Row, event: str) -> tuple[str, str, str]:
    return AXES["votes" in panel, event == "positive class"]


def calibrated(panel: Row) -> float | None:
    """ECE that a calibrated model would show in a stratum: its null, or the floor where it has none."""
    null: float | None = panel.get("null")
    return null if is_known(null) else panel.get("floor")


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
    frame = Frame(sheet, x0, y0, SIDE, SIDE)
    across, up, share = _axis_words(panel, event)
    frame.levels(HALVES, _plain)
    sheet.line(frame.at(0, 0), frame.at(1, 1), stroke="quiet", dash="3 3")
    max_n = max(b["n"] for b in panel["bins"])
    base = frame.bottom + GAP + COUNTS
    for b in panel["bins"]:
        if is_known(b["bar_lo"]):
            x, high = frame.at(b["mean_p"], b["bar_hi"])
            sheet.rect(x - 3.5, high, 7, max(frame.y(b["bar_lo"]) - high, 1), fill="rule")
        left, right = frame.x(b["lo"]), frame.x(b["hi"])
        # Counts are not on the scale of shares, so they have a foot of their own.
        height = COUNTS * b["n"] / max_n
        sheet.rect(left + 0.5, base - height, right - left - 1, height, fill="rule")
    # Points come last, so that no bar hides one.
    for b in panel["bins"]:
        radius = 2.6 + 4.4 * math.sqrt(b["n"] / max_n)
        x, y = frame.at(b["mean_p"], b["mean_y"])
        sheet.circle(x, y, radius, fill=role, stroke="paper", tip=bin_tip(b, share))
    sheet.line((x0, base), (frame.right, base), stroke="rule")
    frame.feet(HALVES, _plain, base + 14 - frame.bottom)
    sheet.text(x0 + SIDE / 2, base + 30, across, anchor="middle", size=10.5)
    sheet.text(x0 - 29, y0 + SIDE / 4, up, anchor="middle", size=10.5, turned=True)
    sheet.text(frame.right, base - COUNTS - 3, f"≤ {max_n:,}", anchor="end", size=10)


def reliability_panel(panel: Row, *, title: str, event: str, role: str) -> Drawing:
    """Reliability diagram of one stratum: points, consistency bars, and counts beneath.

    A panel that counts votes is of a reader's vote, against the share of readers who voted so.
    """
    against = " against readers’ votes" if "votes" in panel else ""
    label = (
        f"Reliability diagram{against}, {title}: {panel['n']:,} cases, ECE {number(panel['ece'])}; "
        f"a calibrated model would show {number(calibrated(panel))} there."
    )
    sheet = Drawing(PANEL_WIDTH, PANEL_HEIGHT, label)
    _draw_panel(sheet, panel, event, role, PANEL_LEFT, PANEL_TOP)
    return sheet


def reliability_row(
    panels: Sequence[Row], *, agreement: bool, event: str, role: str, heading: str
) -> Drawing:
    """Draw such diagrams side by side, each with its heading: for files, and for `Audit.plot`."""
    width = PANEL_WIDTH * max(1, len(panels))
    sheet = Drawing(width, PANEL_HEIGHT + 62, f"{heading}: reliability by stratum")
    sheet.text(PANEL_LEFT, 18, heading, size=13, fill="ink", bold=True)
    for j, panel in enumerate(panels):
        x = PANEL_LEFT + j * PANEL_WIDTH
        title = f"{stratum_title(panel['stratum'], agreement)}, n = {panel['n']:,}"
        if "votes" in panel:
            title = f"{panel['votes']:,} votes, n = {panel['n']:,}"
        sheet.text(x, 40, title, size=12, fill="ink")
        sheet.text(x, 55, f"ECE {number(panel['ece'])}, null {number(calibrated(panel))}")
        _draw_panel(sheet, panel, event, role, x, 72)
    return sheet


def reliability_rows(cell: Row) -> list[Figure]:
    """Reliability diagrams of a cell, a row for each method: against labels, then against votes."""
    out = []
    for kind in ("reliability", "vote_reliability"):
        for method, panels in cell[kind].items():
            if not panels:
                continue
            heading = f"{cell['name']}: {method}"
            drawn = reliability_row(
                panels,
                agreement=cell["agreement"],
                event=cell["event"],
                role=role_of(method, cell["baseline"]),
                heading=heading,
            )
            out.append(Figure((kind, method), heading, drawn, {}))
    return out


# ECE against its floor and null


def strip_tip(row: Row) -> str:
    """Describe a dot of a strip in words."""
    text = f"{row['method']}, {row['stratum']}: ECE {number(row['ece'])}"
    if is_known(row.get("null_low")):
        text += f"; null: {interval_text(row, 'null')}"
    return text + f"; floor {number(row['floor'])}; n {row['n']:,}"


def ece_top(cells: Sequence[Row]) -> float:
    """End of the ECE axis that all strips share."""
    rows = [row for cell in cells for row in cell["rows"]]
    values = [row.get(key) for row in rows for key in ("ece", "null_high")]
    return nice_top(max(value for value in values if value is not None))


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


def strip(row: Row, *, top: float, role: str) -> Drawing:
    """One method in one stratum: dot at its ECE, tick at the floor, band where calibrated."""
    sheet = Drawing(140, 20, strip_tip(row))
    _draw_strip(Frame(sheet, 5, 10, 130, 0, across=(0.0, top)), row, role)
    return sheet


def dot_rows(facts: Row) -> Drawing:
    """Draw ECE against its null for every method of every cell, a column per stratum: for files."""
    cells, strata = facts["cells"], facts["strata"]
    top = ece_top(cells)
    lines = []
    for cell in cells:
        for method in cell["methods"]:
            name = method
            if len(cells) > 1:
                name = f"{cell['name']}: {method}"
            lines.append((name, cell, method))
    left = 20 + max(text_width(name, 11) for name, _, _ in lines)
    step, height = 190.0, 24.0
    label = "ECE by method and stratum, against what a calibrated model would show"
    sheet = Drawing(left + step * len(strata), 82 + height * len(lines), label)
    for j, stratum in enumerate(strata):
        head = Frame(sheet, left + j * step + 5, 40, 160, 0, across=(0.0, top))
        sheet.text(head.left, 20, stratum, size=12, fill="ink", bold=True)
        head.feet((0.0, top / 2, top), _plain, 0)
        for i, (_, cell, method) in enumerate(lines):
            role = role_of(method, cell["baseline"])
            for row in cell["rows"]:
                if (row["method"], row["stratum"]) == (method, stratum):
                    _draw_strip(head._replace(top=58 + i * height), row, role)
    for i, (name, _, _) in enumerate(lines):
        sheet.text(8, 62 + i * height, name, fill="ink")
    key = "dot: ECE; tick: noise floor; bar: 90 % of calibrated models, selection included"
    sheet.text(8, sheet.height - 8, key, size=10)
    return sheet


# What it means for the work: referral and decision curves

CURVE_WIDTH = {"before": 4.0, "accent": 1.6}
"""The order of confidence is often the same before and after: lines of two widths both show."""


def _curve_frame(label: str, up: Bounds, ticks: Sequence[float]) -> Frame:
    sheet = Drawing(236, 190, label)
    frame = Frame(sheet, 44, 12, 174, 152, up=up)
    frame.levels(ticks, _plain)
    frame.feet(HALVES, share_text, 18)
    return frame


def _curve(frame: Frame, xs: Sequence[float], ys: Sequence[float], **style: Any) -> None:
    """Draw a curve up to where it leaves the frame: along the edge it would tell of a benefit."""
    points = []
    for x, y in zip(xs, ys, strict=True):
        points.append(frame.at(x, y))
        if y < frame.up[0]:
            break
    frame.sheet.polyline(points, **style)


def referrals(cell: Row) -> list[Figure]:
    """Errors avoided per case sent to a second reader, before and after, by stratum."""
    panels = cell["referral"]
    rates = [rate for panel in panels for m in panel["methods"] for rate in m["yield"]]
    top = nice_top(max(rates, default=0.5))
    return [_referral(cell, panel, top) for panel in panels]


def _referral(cell: Row, panel: Row, top: float) -> Figure:
    title = stratum_title(panel["stratum"], cell["agreement"])
    before = panel["methods"][0]
    label = (
        f"Errors avoided per case sent to a second reader, {title}: {panel['n']:,} cases, "
        f"{before['errors']:,} errors before."
    )
    frame = _curve_frame(label, (0.0, top), (0.0, top / 2, top))
    frame.level(before["yield"][-1], stroke="quiet", dash="3 3")
    for method in panel["methods"]:
        role = role_of(method["method"], cell["baseline"])
        _curve(frame, method["share"], method["yield"], stroke=role, width=CURVE_WIDTH[role])
    for method in panel["methods"]:
        mark = next(t for t in method["thresholds"] if t["threshold"] == 0.9)
        if not mark["sent"]:
            continue
        tip = (
            f"{method['method']}, confidence below 90 %: {mark['sent']:,} of {mark['n']:,} cases sent, "
            f"{mark['avoided']:,} of {mark['errors']:,} errors avoided, "
            f"{number(mark['per_case'])} per case"
        )
        x, y = frame.at(mark["sent"] / mark["n"], mark["per_case"])
        role = role_of(method["method"], cell["baseline"])
        frame.sheet.circle(x, y, 4.6, fill=role, stroke="paper", tip=tip)
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
    # Enough room to see that a curve falls below 0; how far it falls changes no decision.
    low = -top / 4
    label = (
        f"Net benefit of treating from a threshold on, by {panel['judge']}, {title}: {panel['n']:,} cases, "
        f"{percent(panel['prevalence'])} positive."
    )
    frame = _curve_frame(label, (low, top), (0.0, top / 2, top))
    frame.level(0.0, stroke="quiet")

    thresholds = panel["threshold"]
    _curve(frame, thresholds, panel["treat_all"], stroke="quiet", dash="3 3")
    for method in panel["methods"]:
        role = role_of(method["method"], cell["baseline"])
        _curve(frame, thresholds, method["net_benefit"], stroke=role, width=CURVE_WIDTH[role])
    # Dots come after all lines, so that each can be pointed at.
    for method in panel["methods"]:
        role = role_of(method["method"], cell["baseline"])
        for row in method["table"]:
            if row["net_benefit"] < low:
                continue
            tip = (
                f"{method['method']}, threshold {100 * row['threshold']:g} %: net benefit "
                f"{interval_text(row, 'net_benefit')}, less the better of treating all and none "
                f"{interval_text(row, 'gain')}"
            )
            x, y = frame.at(row["threshold"], row["net_benefit"])
            frame.sheet.circle(x, y, 3.6, fill=role, stroke="paper", tip=tip)
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


def _method_mark(
    sheet: Drawing, x: float, y: float, *, role: str, ring: bool, inside: bool, tip: str = ""
) -> None:
    """Draw a method's mark: a ring where it gains no more than softening, a square on the frame's edge."""
    style: dict[str, Any] = {"fill": role, "stroke": "paper", "tip": tip}
    if ring:
        style |= {"fill": "paper", "stroke": role, "width": 1.8}
        style["tip"] += "; no clear gain over softening"
    if inside:
        sheet.circle(x, y, 4.6, **style)
    else:
        sheet.rect(x - 4, y - 4, 8, 8, **style)


METHOD_KEY = "ring: gains no more than softening would; square: lies beyond the frame"
"""What the marks of methods mean, written beneath their figures."""


def _interval_plot(
    lines: Sequence[Line], title: str, baseline: str, text: Callable[[float], str]
) -> Drawing:
    """Values with their 95 % intervals, a line each, beside the baseline at 0."""
    left = 14 + max(text_width(line.name, 12) for line in lines)
    step, top = 23.0, 44.0
    bottom = top + step * len(lines)
    label = f"{title.capitalize()} against {baseline}, with 95 % intervals: {len(lines)} lines."
    sheet = Drawing(left + 226, bottom + 62, label)
    values = [0.0]
    for line in lines:
        values += [v for k in ("difference", "low", "high") if is_known(v := line.change[k])]
    low, high = _reach(values)
    # The baseline at 0 is always in the frame: every change is read from it.
    frame = Frame(sheet, left, top - 8, 212, bottom - top + 8, (min(low, 0.0), max(high, 0.0)))
    sheet.text(4, 14, title, fill="ink", size=12, bold=True)
    ticks = _ticks(frame.across, 4)
    for tick in ticks:
        frame.upright(tick)
    frame.feet(ticks, text, 14)
    frame.upright(0.0, stroke="before", width=1.5)
    anchor = "end" if frame.x(0.0) > left + frame.width / 2 else "start"
    sheet.text(frame.x(0.0), top - 13, f"{baseline}, uncalibrated", anchor=anchor, fill="before")
    for i, line in enumerate(lines):
        y, value = top + (i + 0.5) * step, line.change["difference"]
        sheet.text(4, y + 4, line.name, size=12, fill="ink", bold=line.bold)
        if is_known(line.change["low"]):
            ends = (frame.x(line.change["low"]), y), (frame.x(line.change["high"]), y)
            sheet.line(*ends, stroke="quiet", width=1.5)
        inside = value == _clip(value, frame.across)
        x = frame.x(value)
        _method_mark(sheet, x, y, role="accent", ring=line.ring, inside=inside, tip=line.tip)
    if title.startswith("change"):
        sheet.text(left, bottom + 32, "← better")
    if any(line.ring for line in lines):
        sheet.text(4, bottom + 54, METHOD_KEY, size=10)
    return sheet


# Two answers: the law of votes, and what votes would buy

MAX_BARS = 60
"""Numbers of votes drawn as bars; longer laws are written only."""


def law_bars(two: Row, *, of: str) -> Drawing | None:
    """Probability of each number of votes for a class, the observed number filled and marked.

    The line beneath spans the numbers to expect. None where there is no law, or one too long to draw.
    """
    law = two.get("law")
    if not law or len(law) > MAX_BARS:
        return None
    m, high = len(law) - 1, 30.0
    step = _clip(108.0 / len(law), (2.5, 12.0))
    seen = two.get("votes")
    label = f"Votes for {of} of {m} readers, "
    label += ", ".join(f"{k}: {percent(p)}" for k, p in enumerate(law))
    if seen is not None:
        label += f"; observed: {seen}"
    sheet = Drawing(step * len(law) + 8, high + 20, label)
    for k, p in enumerate(law):
        # Every bar shows, or an unlikely number of votes would look like an impossible one.
        height = max(high * p / max(law), 1.0)
        fill = "accent" if k == seen else "rule"
        sheet.rect(4 + k * step + 0.5, 2 + high - height, step - 1, height, fill=fill)
    left, right = 4 + two["low"] * step, 4 + (two["high"] + 1) * step
    sheet.line((left + 0.5, high + 4), (right - 0.5, high + 4), stroke="quiet", width=1.5)
    if seen is not None:
        sheet.circle(4 + (seen + 0.5) * step, high + 4, 3, fill="accent", stroke="paper")
    sheet.text(4 + step / 2, high + 18, "0", anchor="middle", size=10)
    sheet.text(4 + (m + 0.5) * step, high + 18, f"{m}", anchor="middle", size=10)
    return sheet


READS = {"panel": "read by the whole panel", "single": "read by one reader each"}
"""Kinds of reads in words."""


def voted_points(cell: Row) -> list[dict[str, Any]]:
    """Points of the figure on voted cases: no vote at all, so many of each kind, all of them.

    `voted` is None where all training votes were used.
    """
    voted, whole = cell["voted"], {}
    for row in cell["rows"]:
        if row["stratum"] == "overall":
            whole[row["method"]] = row
    points = list(voted["points"])
    if PUBLISHED in whole:
        points.insert(0, _whole_point(voted, whole[PUBLISHED], "published", 0))
    if VOTED in whole:
        points.append(_whole_point(voted, whole[VOTED], "all", None))
    return points


def _whole_point(voted: Row, row: Row, reads: str, n: int | None) -> dict[str, Any]:
    kept = {key: row[key] for key in ("nll", "vote_nll", "changes")}
    return {"voted": n, "reads": reads, **voted[reads], **kept}


def voted_name(point: Row) -> str:
    """A point of the figure on voted cases in words."""
    if point["reads"] == "published":
        return "published numbers, no vote"
    if point["reads"] == "all":
        return "all training votes"
    return f"{point['voted']:,} cases {READS[point['reads']]}"


def recovered_text(row: Row) -> str:
    """Share of the gain that is recovered, with its interval."""
    if not is_known(row["share"]):
        return "-"
    share, low, high = (f"{100 * row[key]:.0f}" for key in ("share", "low", "high"))
    return f"{share} % ({low} to {high})"


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


# Methods by their gain, and the trade-off: named points against the curve of plain softening


def softened(cell: Row) -> set[str]:
    """Methods whose gain is no more than softening's."""
    return {method for method in cell["methods"] if softening_remark(cell, method)}


def recommended_methods(cell: Row) -> list[str]:
    """Methods that are recommended for the label or for a reader's vote, and gain beyond chance."""
    found = cell["recommended"] or {}
    both = [found.get("p_reader"), found.get("p")]
    return list(dict.fromkeys(own["method"] for own in both if own and own["sure"]))


def ranked_methods(cell: Row) -> list[Row]:
    """Rows over all cases of the methods beside the baseline, the lowest vote NLL (else label NLL) first."""
    metric = "vote_nll" if cell["votes"] else "nll"
    rows = [row for row in cell["rows"] if row["stratum"] == "overall"]
    known = [row for row in rows if row["method"] != cell["baseline"] and is_known(row.get(metric))]
    return sorted(known, key=lambda row: row[metric])


def forests(cell: Row, methods: Collection[str] | None = None) -> list[Figure]:
    """Paired changes of the NLLs against the baseline with 95 % intervals, a line per method.

    `methods` are those drawn (None: all); the name of the recommended one is bold.
    """
    out = []
    for metric in ("vote_nll", "nll"):
        changes = {}
        for row in ranked_methods(cell):
            if metric in row["changes"] and (methods is None or row["method"] in methods):
                changes[row["method"]] = row["changes"][metric]
        if changes:
            out.append(_changes_plot(cell, (f"forest_{metric}",), metric, changes))
    return out


def _changes_plot(
    cell: Row, file_name: tuple[str, ...], metric: str, changes: Mapping[str, Row]
) -> Figure:
    title, rings = f"change of {COLUMNS[metric].title}", softened(cell)
    lines = []
    for name, change in changes.items():
        tip = f"{name}: {title} {change_text(change)}"
        lines.append(Line(name, change, tip, name in rings, name in recommended_methods(cell)))
    drawn = _interval_plot(lines, title, cell["baseline"], _signed)
    return Figure(file_name, title, drawn, {})


NAME_STEP = 14.0  # between names in the margin


def frontier_titles(cell: Row) -> dict[str, str]:
    """Titles of the axes of the trade-off figures."""
    hard = stratum_title(cell["hardest"] or "", cell["agreement"])
    votes = {key: COLUMNS[key].title for key in ("nll", "vote_nll")}
    return {"ece": "overall ECE", "ece_hard": f"ECE, {hard}", **votes}


def frontiers(cell: Row, methods: Collection[str] | None = None) -> list[Figure]:
    """Methods as named points with intervals, against the softening curve.

    `methods` are those drawn beside the baseline (None: all). Intervals are of the paired change against
    the baseline, set at the baseline's value.
    """
    titles = frontier_titles(cell)
    hard = titles["ece_hard"].removeprefix("ECE, ")
    out = []
    for kind, title, x, y in (
        ("ece", f"ECE: {hard} against overall", "ece", "ece_hard"),
        ("nll", "NLL: readers’ votes against labels", "nll", "vote_nll"),
    ):
        points = []
        for point in cell["frontier"]["points"]:
            method = point["method"]
            chosen = methods is None or method == cell["baseline"] or method in methods
            if chosen and is_known(point.get(x)) and is_known(point.get(y)):
                points.append(point)
        if points:
            drawn = _frontier(cell, points, (x, y), (titles[x], titles[y]))
            out.append(Figure((f"frontier_{kind}",), title, drawn, {}))
    return out


def _frontier(
    cell: Row, points: Sequence[Row], keys: tuple[str, str], titles: tuple[str, str]
) -> Drawing:
    x, y = keys
    names = [point["method"] for point in points]
    height = max(400.0, 92 + NAME_STEP * len(points))
    width = 446 + max(text_width(name, 11) for name in names)
    label = f"{titles[1]} against {titles[0]}: {len(points)} methods and the softening curve."
    sheet = Drawing(width, height, label)
    bounds = []
    for key in keys:
        low, high = _reach([point[key] for point in points])
        bounds.append((max(0.0, low), high))
    frame = Frame(sheet, 56, 26, 356, height - 92, *bounds)
    for tick in _ticks(frame.across, 6):
        frame.upright(tick)
    frame.feet(_ticks(frame.across, 6), _plain, 16)
    frame.levels(_ticks(frame.up, 6), _plain)
    sheet.text(frame.left, 14, titles[1], fill="ink")
    sheet.text(frame.right, frame.bottom + 34, titles[0], anchor="end", fill="ink")
    _softening_curve(frame, cell["frontier"]["curve"], keys)
    for point in points:
        a, b = frame.at(point[x], point[y])
        if is_known(point.get(f"{x}_low")):
            sheet.line((frame.x(point[f"{x}_low"]), b), (frame.x(point[f"{x}_high"]), b))
        if is_known(point.get(f"{y}_low")):
            sheet.line((a, frame.y(point[f"{y}_low"])), (a, frame.y(point[f"{y}_high"])))
    # Names stand in the margin, each on a line to its point: beside the points they would collide.
    heights = _name_heights([frame.y(point[y]) for point in points], frame.bottom)
    for point, name, at in zip(points, names, heights, strict=True):
        end = (frame.right + 18, at)
        sheet.line(frame.at(point[x], point[y]), end, stroke="quiet", width=0.8, dash="1 3")
        sheet.text(frame.right + 22, at + 4, name, fill="ink")
    rings = softened(cell)
    # The baseline is drawn last, so that nothing hides it.
    for point in sorted(points, key=lambda point: point["method"] == cell["baseline"]):
        method = point["method"]
        pinned = (_clip(point[x], frame.across), _clip(point[y], frame.up))
        tip = f"{titles[0]} {interval_text(point, x)}, {titles[1]} {interval_text(point, y)}"
        _method_mark(
            sheet,
            *frame.at(*pinned),
            role=role_of(method, cell["baseline"]),
            ring=method in rings,
            inside=pinned == (point[x], point[y]),
            tip=f"{method}: {tip}",
        )
    sheet.text(frame.left, height - 8, METHOD_KEY, size=10)
    return sheet


def _softening_curve(frame: Frame, curve: Sequence[Row], keys: tuple[str, str]) -> None:
    """Draw the parts of the softening curve that lie in the frame."""
    part: list[Point] = []
    for row in curve:
        a, b = (row.get(key, math.nan) for key in keys)
        inside = is_known(a) and is_known(b)
        if inside and a == _clip(a, frame.across) and b == _clip(b, frame.up):
            part.append(frame.at(a, b))
        else:
            frame.sheet.polyline(part, stroke="quiet", dash="2 3")
            part = []
    frame.sheet.polyline(part, stroke="quiet", dash="2 3")


def _name_heights(wanted: Sequence[float], bottom: float) -> list[float]:
    """Heights of names in the margin, in the order of their points and a line apart.

    Examples
    --------
    >>> _name_heights([50, 52, 100], bottom=120)
    [50.0, 64.0, 100.0]
    """
    order = np.argsort(wanted, kind="stable")
    # Less a line for each name above it, heights need only not fall for names to stand a line apart.
    steps = NAME_STEP * np.arange(len(order))
    placed = np.maximum.accumulate(np.asarray(wanted, float)[order] - steps) + steps
    # Names pushed beyond the frame move back up, and the ones above them with them.
    placed = np.minimum(placed, bottom - steps[::-1])
    heights = np.empty(len(order))
    heights[order] = placed
    return [float(height) for height in heights]
