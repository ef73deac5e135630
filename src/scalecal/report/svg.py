"""A small drawing: a list of marks, written as SVG for the page or a file, or as PNG.

Colours are roles ("ink", "accent", ...). In the page a role is a CSS class, so that light, dark and
print are matters of the style sheet; in a file it is one of `COLOURS`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape as escape_html
from pathlib import Path
from typing import Literal

__all__ = ["COLOURS", "Drawing", "text_width"]

COLOURS = {
    "ink": "#16191d",
    "quiet": "#5b636d",
    "rule": "#c9ced4",
    "band": "#e1e5ea",
    "paper": "#ffffff",
    "accent": "#0a62a9",
    "before": "#a94f00",
}
"""Role -> colour on white, for files. Blue and vermilion differ for every kind of colour vision."""

Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]


def _n(value: float) -> str:
    """Write a coordinate in as few characters as the eye needs."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def escape(text: str) -> str:
    """Escape for HTML and XML; control characters, which XML forbids, become a mark of their own."""
    return escape_html(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text))


def text_width(text: str, size: float) -> float:
    """Rough width of a line of sans-serif text."""
    return 0.54 * size * len(text)


@dataclass(frozen=True)
class Mark:
    """One thing drawn. `tip` is its exact value in words."""

    kind: Literal["line", "rect", "circle", "polyline", "text"]
    points: tuple[Point, ...]
    fill: str = ""
    stroke: str = ""
    width: float = 1.0
    dash: str = ""
    size: float = 0.0
    text: str = ""
    anchor: Anchor = "start"
    bold: bool = False
    turned: bool = False
    tip: str = ""


@dataclass
class Drawing:
    """Marks on a sheet of `width` by `height` pixels, y downwards, in the order drawn.

    Examples
    --------
    >>> sheet = Drawing(10, 10, "A dot & nothing else")
    >>> sheet.circle(5, 5, 2, fill="accent", tip="5 < 6")
    >>> sheet.svg()
    '<svg viewBox="0 0 10 10" width="10" height="10" role="img" aria-label="A dot &amp; nothing
    else"><circle cx="5" cy="5" r="2" class="f-accent"><title>5 &lt; 6</title></circle></svg>'
    """

    width: float
    height: float
    label: str
    marks: list[Mark] = field(default_factory=list)

    def line(
        self, a: Point, b: Point, *, stroke: str = "rule", width: float = 1.0, dash: str = ""
    ) -> None:
        """Draw a straight line from a to b."""
        self.marks.append(Mark("line", (a, b), stroke=stroke, width=width, dash=dash))

    def rect(self, x: float, y: float, w: float, h: float, *, fill: str, tip: str = "") -> None:
        """Draw a filled rectangle."""
        self.marks.append(Mark("rect", ((x, y), (max(w, 0), max(h, 0))), fill=fill, tip=tip))

    def circle(
        self, x: float, y: float, r: float, *, fill: str, stroke: str = "", tip: str = ""
    ) -> None:
        """Draw a disc, or a ring where `fill` is "none"."""
        self.marks.append(Mark("circle", ((x, y),), fill=fill, stroke=stroke, size=r, tip=tip))

    def polyline(
        self, points: Sequence[Point], *, stroke: str, width: float = 1.5, dash: str = ""
    ) -> None:
        """Draw a line through points."""
        if len(points) > 1:
            self.marks.append(
                Mark("polyline", tuple(points), stroke=stroke, width=width, dash=dash)
            )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: Anchor = "start",
        size: float = 11,
        fill: str = "quiet",
        bold: bool = False,
        turned: bool = False,
    ) -> None:
        """Write a line of text; `turned` reads upwards."""
        self.marks.append(
            Mark(
                "text",
                ((x, y),),
                fill=fill,
                size=size,
                text=text,
                anchor=anchor,
                bold=bold,
                turned=turned,
            )
        )

    def svg(self, *, attributes: str = "", decorative: bool = False) -> str:
        """Return SVG for the page: classes for colours, everything escaped."""
        name = (
            'aria-hidden="true"' if decorative else f'role="img" aria-label="{escape(self.label)}"'
        )
        size = f'width="{_n(self.width)}" height="{_n(self.height)}"'
        head = f'<svg viewBox="0 0 {_n(self.width)} {_n(self.height)}" {size} {name}'
        head += f" {attributes}>" if attributes else ">"
        return head + "".join(map(_svg_mark, self.marks)) + "</svg>"

    def file_svg(self) -> str:
        """Return SVG that stands alone, with its colours in it."""
        rules = "".join(
            f".f-{role}{{fill:{colour}}}.s-{role}{{stroke:{colour}}}"
            for role, colour in COLOURS.items()
        )
        style = (
            "<style>text{font-family:system-ui,sans-serif}.f-none{fill:none}"
            "text.f-ink{paint-order:stroke;stroke:#fff;stroke-width:3px}" + rules + "</style>"
        )
        body = self.svg(attributes='xmlns="http://www.w3.org/2000/svg"')
        cut = body.index(">") + 1
        paper = f'<rect width="100%" height="100%" fill="{COLOURS["paper"]}"/>'
        return body[:cut] + f"<title>{escape(self.label)}</title>{style}{paper}" + body[cut:] + "\n"

    def save_png(self, path: str | Path, *, scale: float = 2.0) -> None:
        """Write the same marks as PNG through matplotlib, without a date."""
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
        from matplotlib.patches import Circle, Rectangle

        dpi = 72.0 * scale  # so that a pixel of the drawing is a point of matplotlib
        figure = Figure(figsize=(self.width / 72, self.height / 72), dpi=dpi, facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1), frameon=False)
        axes.set_xlim(0, self.width)
        axes.set_ylim(self.height, 0)
        axes.set_axis_off()
        for z, mark in enumerate(self.marks):
            fill = COLOURS.get(mark.fill, "none")
            stroke = COLOURS.get(mark.stroke, "none")
            if mark.kind == "text":
                axes.text(
                    *mark.points[0],
                    mark.text,
                    parse_math=False,
                    fontsize=mark.size * 0.92,
                    color=fill,
                    ha={"start": "left", "middle": "center", "end": "right"}[mark.anchor],
                    va="baseline",
                    rotation=90 if mark.turned else 0,
                    rotation_mode="anchor",
                    weight="bold" if mark.bold else "normal",
                    zorder=z,
                )
            elif mark.kind == "circle":
                axes.add_patch(
                    Circle(
                        mark.points[0],
                        mark.size,
                        facecolor=fill,
                        edgecolor=stroke,
                        linewidth=mark.width if mark.stroke else 0,
                        zorder=z,
                    )
                )
            elif mark.kind == "rect":
                (x, y), (w, h) = mark.points
                axes.add_patch(Rectangle((x, y), w, h, facecolor=fill, linewidth=0, zorder=z))
            else:
                xs, ys = zip(*mark.points, strict=True)
                line = Line2D(xs, ys, color=stroke, linewidth=mark.width, zorder=z)
                if mark.dash:
                    line.set_dashes([float(part) / mark.width for part in mark.dash.split()])
                axes.add_line(line)
        with warnings.catch_warnings():
            # A name in a script that the font lacks is drawn as boxes; the SVG has it right.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(path, dpi=dpi, metadata={"Software": None})


def _svg_mark(mark: Mark) -> str:
    classes = " ".join(
        f"{kind}-{role}" for kind, role in (("f", mark.fill), ("s", mark.stroke)) if role
    )
    extra = f' class="{classes}"'
    if mark.stroke and mark.width != 1.0:
        extra += f' stroke-width="{_n(mark.width)}"'
    if mark.dash:
        extra += f' stroke-dasharray="{mark.dash}"'
    tip = f"<title>{escape(mark.tip)}</title>" if mark.tip else ""
    x, y = mark.points[0]
    if mark.kind == "line":
        x2, y2 = mark.points[1]
        return f'<line x1="{_n(x)}" y1="{_n(y)}" x2="{_n(x2)}" y2="{_n(y2)}"{extra}/>'
    if mark.kind == "rect":
        w, h = mark.points[1]
        shape = f'rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}"{extra}'
        return f"<{shape}>{tip}</rect>" if tip else f"<{shape}/>"
    if mark.kind == "circle":
        shape = f'circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(mark.size)}"{extra}'
        return f"<{shape}>{tip}</circle>" if tip else f"<{shape}/>"
    if mark.kind == "polyline":
        points = " ".join(f"{_n(px)},{_n(py)}" for px, py in mark.points)
        return f'<polyline points="{points}" fill="none"{extra}/>'
    extra += "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
    extra += ' font-weight="600"' if mark.bold else ""
    extra += f' transform="rotate(-90 {_n(x)} {_n(y)})"' if mark.turned else ""
    size = f' font-size="{_n(mark.size)}"'
    return f'<text x="{_n(x)}" y="{_n(y)}"{size}{extra}>{escape(mark.text)}</text>'
