"""The trade-off figure: methods as labelled points against the curve of plain softening."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scalecal.auditing.sentences import number
from scalecal.report.figures import nice_top
from scalecal.report.svg import Drawing, text_width

__all__ = ["frontier"]

Row = Mapping[str, Any]
Bounds = tuple[float, float]

HEIGHT, PLOT, LEFT, TOP, BOTTOM = 400.0, 356.0, 56.0, 26.0, 44.0
MOST_NAMES = 12  # methods written beside their points; more get numbers and a key
KEY_LINES = 28


def _known(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _bounds(values: Sequence[float]) -> Bounds:
    """Range that shows most points well; a few far ones are pinned to the frame instead."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    reach = max(4.0 * (high - low), 0.1 * abs(middle), 1e-6)
    inside = [v for v in values if low - reach <= v <= high + reach]
    slack = 0.15 * (max(inside) - min(inside)) or 0.05
    return max(0.0, min(inside) - slack), max(inside) + slack


def _ticks(low: float, high: float) -> list[float]:
    step = nice_top((high - low) / 6)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _clip(value: float, bounds: Bounds) -> float:
    return min(max(value, bounds[0]), bounds[1])


def _point_tip(p: Row, x: str, y: str, titles: tuple[str, str]) -> str:
    parts = []
    for key, title in ((x, titles[0]), (y, titles[1])):
        text = f"{title} {number(p[key])}"
        if _known(p.get(f"{key}_low")):
            text += f" ({number(p[f'{key}_low'])} to {number(p[f'{key}_high'])})"
        parts.append(text)
    return f"{p['method']}: " + ", ".join(parts)


def frontier(
    facts: Row, *, x: str, y: str, titles: tuple[str, str], baseline: str
) -> Drawing | None:
    """Methods as labelled points with intervals, against the softening curve; None without points.

    Intervals are of the paired change against the baseline, set at the baseline's value. A point
    outside the frame is a ring on its edge. Beyond `MOST_NAMES` methods the labels are numbers.
    """
    points = [p for p in facts["points"] if _known(p.get(x)) and _known(p.get(y))]
    curve = [c for c in facts["curve"] if _known(c.get(x)) and _known(c.get(y))]
    if not points:
        return None
    across, up = (_bounds([p[key] for p in points]) for key in (x, y))
    numbered = len(points) > MOST_NAMES
    columns = -(-len(points) // KEY_LINES) if numbered else 0
    names = [str(i + 1) if numbered else p["method"] for i, p in enumerate(points)]
    key_width = 30 + max(text_width(p["method"], 12) for p in points) if numbered else 0
    width = LEFT + PLOT + (16 + columns * key_width if numbered else 108)
    label = f"{titles[1]} against {titles[0]}: {len(points)} methods and the softening curve."
    sheet = Drawing(width, HEIGHT, label)

    def at(px: float, py: float) -> tuple[float, float]:
        return (
            LEFT + (px - across[0]) / (across[1] - across[0]) * PLOT,
            HEIGHT - BOTTOM - (py - up[0]) / (up[1] - up[0]) * (HEIGHT - TOP - BOTTOM),
        )

    _axes(sheet, across, up, titles, at)
    _curve(sheet, [(c[x], c[y]) for c in curve], across, up, at)
    thin = 0.6 if numbered else 1.0
    places = [at(_clip(p[x], across), _clip(p[y], up)) for p in points]
    for p, (a, b) in zip(points, places, strict=True):
        if _known(p.get(f"{x}_low")):
            ends = (at(_clip(p[f"{x}_{end}"], across), up[0])[0] for end in ("low", "high"))
            sheet.line((next(ends), b), (next(ends), b), width=thin)
        if _known(p.get(f"{y}_low")):
            ends = (at(across[0], _clip(p[f"{y}_{end}"], up))[1] for end in ("low", "high"))
            sheet.line((a, next(ends)), (a, next(ends)), width=thin)
    roles = ["before" if p["method"] == baseline else "accent" for p in points]
    # The baseline is drawn last, so that nothing hides it.
    for i in sorted(range(len(points)), key=lambda i: roles[i] == "before"):
        p, role, (a, b) = points[i], roles[i], places[i]
        seen = p[x] == _clip(p[x], across) and p[y] == _clip(p[y], up)
        fill, stroke = (role, "paper") if seen else ("paper", role)
        sheet.circle(a, b, 4.6, fill=fill, stroke=stroke, tip=_point_tip(p, x, y, titles))
    # Names go last, above every line; the baseline's first, so that it finds a place.
    order = sorted(range(len(points)), key=lambda i: roles[i] != "before")
    room = LEFT + PLOT if numbered else width
    for i, place in _label_places(places, names, order, room, HEIGHT - BOTTOM):
        if place is None:
            continue
        tx, ty, far = place
        if far:
            sheet.line(places[i], (tx + 2, ty - 4), stroke="rule")
        sheet.text(tx, ty, names[i], fill="ink", size=10.5 if numbered else 11)
    if numbered:
        for i, p in enumerate(points):
            kx = LEFT + PLOT + 16 + (i // KEY_LINES) * key_width
            ky = TOP + 4 + (i % KEY_LINES) * 13
            sheet.text(kx + 15, ky, str(i + 1), anchor="end", size=10.5)
            sheet.text(kx + 21, ky, p["method"], size=10.5, fill="ink")
    return sheet


def _axes(sheet: Drawing, across: Bounds, up: Bounds, titles: tuple[str, str], at: Any) -> None:
    for value in _ticks(*across):
        px = at(value, up[0])[0]
        sheet.line((px, TOP), (px, HEIGHT - BOTTOM), stroke="band")
        sheet.text(px, HEIGHT - BOTTOM + 16, f"{value:g}", anchor="middle")
    for value in _ticks(*up):
        py = at(across[0], value)[1]
        sheet.line((LEFT, py), (LEFT + PLOT, py), stroke="band")
        sheet.text(LEFT - 8, py + 4, f"{value:g}", anchor="end")
    sheet.text(LEFT, 14, titles[1], fill="ink")
    sheet.text(LEFT + PLOT, HEIGHT - 8, titles[0], anchor="end", fill="ink")


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


Place = tuple[float, float, bool]


def _label_places(
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    order: Sequence[int],
    width: float,
    bottom: float,
) -> list[tuple[int, Place | None]]:
    """Places for labels that touch neither each other nor a point; None where there is no room."""
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    places: list[tuple[int, Place | None]] = []
    for i in order:
        x, y = points[i]
        long = text_width(names[i], 11) + 3
        chosen: Place | None = None
        for distance in (0, 12, 24, 36, 50):
            for dx, dy in ((1, 0), (1, -1), (1, 1), (0, -1), (0, 1), (-1, 0), (-1, -1), (-1, 1)):
                shift = {1: 8 + distance, 0: -long / 2, -1: -long - 7 - distance}[dx]
                tx, ty = x + shift, y + 4 + dy * max(distance, 11)
                box = (tx, ty - 9, tx + long, ty + 3)
                inside = box[0] >= 2 and box[2] <= width and box[1] >= TOP - 8 and box[3] <= bottom
                if inside and not any(_overlap(box, other) for other in taken):
                    chosen = (tx, ty, distance > 0)
                    taken.append(box)
                    break
            if chosen:
                break
        places.append((i, chosen))
    return places


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
