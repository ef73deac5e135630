"""The forest plot of a column's levels: O:E of each, of all together, and of a further one."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log, sqrt
from typing import Any

from scalecal.evaluation.level_words import interval, ratio_name, short, shown_levels
from scalecal.io.text import is_known, number
from scalecal.report.figures import Figure, Frame
from scalecal.report.svg import Drawing, text_width

Row = Mapping[str, Any]

TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
FINE_TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.6, 2.0)
"""Values of O:E that may be written below the axis, on a wide and on a narrow one."""

FAR = 20.0
"""O:E, or its inverse, beyond which intervals are cut off."""

STEP = 24.0
WIDTH = 300.0


def level_forests(cell: Row) -> list[Figure]:
    """Forest plots of the audited method, one for each column with two levels or more."""
    audit = cell["audits"][cell["judged"]]
    event = audit["meta"]["event"]
    out = []
    for facts in audit["by"]:
        if facts["k"] > 1:
            title = f"{ratio_name(event)} by {short(facts['column'])}"
            drawn = _forest(facts, title)
            out.append(Figure(("levels", facts["column"]), title, drawn, facts))
    return out


def _bounds(facts: Row) -> tuple[float, float]:
    """Ends of the axis on the log scale: intervals of small levels do not set them."""
    ends = [0.8, 1.25]
    rows = [own for own in shown_levels(facts) if not own["small"]]
    for row in (*rows, facts["spread"]["oe"]):
        for key in ("oe_low", "oe_high", "new_low", "new_high"):
            if is_known(row.get(key)):
                ends.append(row[key])
    low = max(min(ends), 1.0 / FAR)
    high = min(max(ends), FAR)
    return log(low) - 0.06, log(high) + 0.06


def _forest(facts: Row, title: str) -> Drawing:
    levels = shown_levels(facts)
    spread = facts["spread"]["oe"]
    names = [short(own["name"]) for own in levels]
    totals = []
    if is_known(spread.get("mean")):
        totals = ["mean of levels", "a further level"]
    left = 20 + max(text_width(name, 12) for name in (*names, *totals))
    top = 46.0
    bottom = top + STEP * (len(levels) + len(totals))
    label = f"{title}, with 95 % intervals: {len(levels)} levels."
    sheet = Drawing(left + 70 + WIDTH + 130, bottom + 40, label)
    frame = Frame(sheet, left + 70, top - 6, WIDTH, bottom - top + 6, _bounds(facts))
    sheet.text(4, 14, title, fill="ink", size=12, bold=True)
    sheet.text(left + 56, top - 14, "n", anchor="end")
    sheet.text(frame.right + 12, top - 14, "O:E [95 %]")
    ticks = _ticks(frame.across)
    for tick in ticks:
        frame.upright(log(tick))
    frame.feet([log(tick) for tick in ticks], lambda value: f"{exp(value):g}", 15)
    frame.upright(0.0, stroke="quiet", width=1.5)
    sheet.text(frame.left, bottom + 32, "← p too high")
    sheet.text(frame.right, bottom + 32, "p too low →", anchor="end")
    largest = max(own["n"] for own in levels)
    for i, own in enumerate(levels):
        _draw_level(frame, own, top + (i + 0.5) * STEP, left, sqrt(own["n"] / largest))
    if totals:
        y = top + len(levels) * STEP
        sheet.line((4, y), (frame.right + 128, y))
        _draw_mean(frame, spread, y + 0.5 * STEP, totals[0])
        _draw_new(frame, spread, y + 1.5 * STEP, totals[1])
    return sheet


def _ticks(across: tuple[float, float]) -> list[float]:
    values = list(TICKS)
    if across[1] - across[0] < log(6.0):
        values = list(FINE_TICKS)
    return [value for value in values if across[0] <= log(value) <= across[1]]


def _draw_level(frame: Frame, own: Row, y: float, left: float, size: float) -> None:
    """A square, the larger the more cases, in its interval; a level of few events is hollow."""
    sheet, text = frame.sheet, interval(own, "oe")
    sheet.text(8, y + 4, short(own["name"]), size=12, fill="ink", bold=own["stands_out"])
    sheet.text(left + 56, y + 4, number(own["n"]), anchor="end")
    sheet.text(frame.right + 12, y + 4, text)
    if is_known(own.get("oe_low")):
        ends = [(frame.x(log(own[key])), y) for key in ("oe_low", "oe_high")]
        sheet.line(*ends, stroke="quiet", width=1.5)
    if not is_known(own.get("oe")) or own["oe"] <= 0.0:
        return
    half = 2.0 + 4.0 * size
    tip = f"{own['name']}: O:E {text}, n = {number(own['n'])}, {number(int(own['events']))} events"
    style = {"fill": "accent", "stroke": "paper"}
    if own["small"]:
        tip += "; few events"
        style = {"fill": "paper", "stroke": "accent"}
    x = frame.x(log(own["oe"]))
    sheet.rect(x - half, y - half, 2 * half, 2 * half, tip=tip, **style)


def _draw_mean(frame: Frame, spread: Row, y: float, name: str) -> None:
    text = interval(
        {"oe": spread["mean"], "oe_low": spread["low"], "oe_high": spread["high"]}, "oe"
    )
    low, high = frame.x(log(spread["low"])), frame.x(log(spread["high"]))
    frame.sheet.text(8, y + 4, name, size=12, fill="ink")
    frame.sheet.text(frame.right + 12, y + 4, text)
    frame.sheet.rect(low, y - 4, max(high - low, 2.0), 8, fill="ink", tip=f"{name}: O:E {text}")


def _draw_new(frame: Frame, spread: Row, y: float, name: str) -> None:
    low, high = frame.x(log(spread["new_low"])), frame.x(log(spread["new_high"]))
    text = f"{number(spread['new_low'], 2)} to {number(spread['new_high'], 2)}"
    sheet = frame.sheet
    sheet.text(8, y + 4, name, size=12, fill="ink")
    sheet.text(frame.right + 12, y + 4, text)
    sheet.line((low, y), (high, y), stroke="ink", width=2.0, dash="5 3")
    for x in (low, high):
        sheet.line((x, y - 5), (x, y + 5), stroke="ink", width=2.0)
    middle = frame.x(log(spread["mean"]))
    tip = f"{name}: O:E {text} (95 % prediction interval, modified from Nagashima et al.)"
    sheet.circle(middle, y, 3.5, fill="ink", tip=tip)
