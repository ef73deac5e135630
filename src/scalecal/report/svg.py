"""A small drawing: a list of marks, as SVG for the page or a file, as PNG, as a figure of matplotlib.

Colours are roles ("ink", "accent", ...). In the page a role is a CSS class, so that light, dark and
print are matters of the style sheet; in a file it is one of `COLOURS`.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from html import escape as escape_html
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

Kind = Literal["polyline", "polygon", "rect", "circle", "text"]
Point = tuple[float, float]


def _n(value: float) -> str:
    """Write a coordinate in as few characters as the eye needs."""
    return f"{value:.1f}".removesuffix(".0")


def escape(text: str) -> str:
    """Escape for HTML and XML; control characters, which XML forbids, become a mark of their own."""
    return escape_html(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text))


def text_width(text: str, size: float) -> float:
    """Rough width of a line of sans-serif text."""
    return 0.54 * size * len(text)


@dataclass(frozen=True)
class Mark:
    """One thing drawn. `tip` is its exact value in words."""

    kind: Kind
    points: tuple[Point, ...]
    fill: str = ""
    stroke: str = ""
    width: float = 1.0
    dash: str = ""
    size: float = 0.0
    text: str = ""
    anchor: Literal["start", "middle", "end"] = "start"
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

    def _add(self, kind: Kind, *points: Point, **style: Any) -> None:
        self.marks.append(Mark(kind, points, **style))

    def line(self, *points: Point, stroke: str = "rule", **style: Any) -> None:
        """Draw a line through points; nothing through a single one."""
        if len(points) > 1:
            self._add("polyline", *points, stroke=stroke, **style)

    def area(self, *points: Point, fill: str, **style: Any) -> None:
        """Fill the area within points."""
        self._add("polygon", *points, fill=fill, **style)

    def rect(self, x: float, y: float, w: float, h: float, *, fill: str, **style: Any) -> None:
        """Draw a filled rectangle."""
        self._add("rect", (x, y), (max(w, 0), max(h, 0)), fill=fill, **style)

    def circle(self, x: float, y: float, r: float, *, fill: str, **style: Any) -> None:
        """Draw a disc, or a ring where `fill` is "none"."""
        self._add("circle", (x, y), size=r, fill=fill, **style)

    def text(
        self, x: float, y: float, text: str, *, size: float = 11, fill: str = "quiet", **style: Any
    ) -> None:
        """Write a line of text; `turned` reads upwards."""
        self._add("text", (x, y), text=text, size=size, fill=fill, **style)

    def svg(self) -> str:
        """Return SVG for the page: classes for colours, everything escaped."""
        width, height = _n(self.width), _n(self.height)
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        name = f'role="img" aria-label="{escape(self.label)}"'
        return f"<svg {size} {name}>{''.join(map(_svg_mark, self.marks))}</svg>"

    def file_svg(self) -> str:
        """Return SVG that stands alone, with its colours in it."""
        rules = "text{font-family:system-ui,sans-serif}.f-none{fill:none}"
        rules += "text.f-ink{paint-order:stroke;stroke:#fff;stroke-width:3px}"
        for role, colour in COLOURS.items():
            rules += f".f-{role}{{fill:{colour}}}.s-{role}{{stroke:{colour}}}"
        paper = f'<rect width="100%" height="100%" fill="{COLOURS["paper"]}"/>'
        head, body = self.svg().split(">", 1)
        return (
            f'{head} xmlns="http://www.w3.org/2000/svg"><title>{escape(self.label)}</title>'
            f"<style>{rules}</style>{paper}{body}\n"
        )

    def figure(self) -> Figure:
        """Return the same marks as a figure of matplotlib, two dots to a pixel."""
        from matplotlib.figure import Figure

        # At 72 dots per inch a pixel of the drawing is a point of matplotlib.
        size = (self.width / 72, self.height / 72)
        figure = Figure(figsize=size, dpi=144, facecolor=COLOURS["paper"])
        axes = figure.add_axes((0, 0, 1, 1), frameon=False)
        axes.set_xlim(0, self.width)
        axes.set_ylim(self.height, 0)
        axes.set_axis_off()
        for order, mark in enumerate(self.marks):
            _add_artist(axes, mark, order)
        return figure

    def save_png(self, path: str | Path) -> None:
        """Write the same marks as PNG, without a date."""
        with warnings.catch_warnings():
            # A name in a script that the font lacks is drawn as boxes; the SVG has it right.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            self.figure().savefig(path, metadata={"Software": None})


COORDINATES = {
    "rect": ("x", "y", "width", "height"),
    "circle": ("cx", "cy"),
    "text": ("x", "y"),
}
"""Kind of mark -> attributes that hold its points."""


def _svg_mark(mark: Mark) -> str:
    numbers = [_n(value) for point in mark.points for value in point]
    attributes: dict[str, str] = {}
    if mark.kind in ("polyline", "polygon"):
        attributes["points"] = " ".join(numbers)
        if mark.kind == "polyline":
            attributes["fill"] = "none"
    else:
        attributes |= zip(COORDINATES[mark.kind], numbers, strict=True)
    if mark.kind == "circle":
        attributes["r"] = _n(mark.size)
    roles = {f"f-{mark.fill}": mark.fill, f"s-{mark.stroke}": mark.stroke}
    attributes["class"] = " ".join(name for name, role in roles.items() if role)
    if mark.stroke and mark.width != 1.0:
        attributes["stroke-width"] = _n(mark.width)
    if mark.dash:
        attributes["stroke-dasharray"] = mark.dash
    inner = escape(mark.text)
    if mark.kind == "text":
        attributes["font-size"] = _n(mark.size)
        if mark.anchor != "start":
            attributes["text-anchor"] = mark.anchor
        if mark.bold:
            attributes["font-weight"] = "600"
        if mark.turned:
            attributes["transform"] = f"rotate(-90 {numbers[0]} {numbers[1]})"
    elif mark.tip:
        inner = f"<title>{escape(mark.tip)}</title>"
    written = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    if not inner:
        return f"<{mark.kind} {written}/>"
    return f"<{mark.kind} {written}>{inner}</{mark.kind}>"


def _add_artist(axes: Axes, mark: Mark, order: int) -> None:
    """Draw a mark as matplotlib does it; later marks lie above earlier ones."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle, Patch, Polygon, Rectangle

    fill, stroke = COLOURS.get(mark.fill, "none"), COLOURS.get(mark.stroke, "none")
    if mark.kind == "text":
        weight, rotation = "normal", 0
        if mark.bold:
            weight = "bold"
        if mark.turned:
            rotation = 90
        axes.text(
            *mark.points[0],
            mark.text,
            # A dollar sign in the name of a method is no formula.
            parse_math=False,
            # DejaVu Sans is wider than the fonts that browsers choose.
            fontsize=mark.size * 0.92,
            color=fill,
            ha={"start": "left", "middle": "center", "end": "right"}[mark.anchor],
            va="baseline",
            rotation=rotation,
            rotation_mode="anchor",
            weight=weight,
            zorder=order,
        )
    elif mark.kind == "polyline":
        xs, ys = zip(*mark.points, strict=True)
        line = Line2D(xs, ys, color=stroke, linewidth=mark.width, zorder=order)
        if mark.dash:
            line.set_dashes([float(part) / mark.width for part in mark.dash.split()])
        axes.add_line(line)
    else:
        patch: Patch
        if mark.kind == "circle":
            patch = Circle(mark.points[0], mark.size)
        elif mark.kind == "polygon":
            patch = Polygon(mark.points)
        else:
            patch = Rectangle(mark.points[0], *mark.points[1])
        patch.set(facecolor=fill, edgecolor=stroke, linewidth=0, zorder=order)
        if mark.stroke:
            patch.set_linewidth(mark.width)
        axes.add_patch(patch)
