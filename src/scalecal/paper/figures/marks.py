"""What all figures share: a figure with its caption, and one mark per method and stratum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.auditing.plots import COLOURS, INK, QUIET
from scalecal.checks import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "MARKS",
    "SMOOTHING_MARKS",
    "STRATUM_MARKS",
    "Drawing",
    "Mark",
    "cannot",
    "legend_above",
    "mark_of",
    "panels",
    "spread_labels",
]


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure and what it shows; without a figure, why it cannot be drawn."""

    caption: str
    figure: Figure | None
    reason: str = ""


def cannot(caption: str, reason: str) -> Drawing:
    """Return a drawing that could not be made."""
    return Drawing(caption, None, reason)


@dataclass(frozen=True)
class Mark:
    """Colour, shape and filling of a mark: any two marks differ in more than colour."""

    colour: str
    shape: str
    filled: bool = True

    def options(self, size: float = 6.0) -> dict[str, Any]:
        """Arguments for matplotlib's plot."""
        return {
            "marker": self.shape,
            "markersize": size,
            "color": self.colour,
            "markerfacecolor": self.colour if self.filled else "white",
            "markeredgecolor": self.colour,
            "markeredgewidth": 1.2,
        }


_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY = COLOURS[:6]

MARKS: dict[str, Mark] = {
    "none": Mark(_RED, "o", filled=False),
    "temperature": Mark(_ORANGE, "s", filled=False),
    "vanilla-ls": Mark(_PINK, "^", filled=False),
    "real-piecewise": Mark(_GREEN, "D"),
    "scale": Mark(_BLUE, "o"),
    "scale-wide": Mark(_BLUE, "s"),
    "scale-default": Mark(_BLUE, "P"),
    "jury": Mark(INK, "v"),
    "half-jury": Mark(INK, "v", filled=False),
    "vote-fraction": Mark(_GREEN, "X"),
    "real-linear": Mark(_GREEN, "<", filled=False),
    "real-nonlinear": Mark(_GREEN, ">", filled=False),
    "scale-linear": Mark(_SKY, "<"),
    "scale-nonlinear": Mark(_SKY, ">"),
    "scale-random": Mark(_BLUE, "o", filled=False),
}
"""Method -> mark; others are small and grey."""

STRATUM_MARKS: dict[str, Mark] = {
    "high": Mark(_GREEN, "D", filled=False),
    "medium": Mark(_ORANGE, "s"),
    "low": Mark(_RED, "o"),
    "overall": Mark(INK, "x"),
}
"""Stratum -> mark."""


SMOOTHING_MARKS: dict[str, tuple[Mark, str]] = {
    "linear": (Mark(_PINK, "<"), "--"),
    "piecewise": (Mark(_BLUE, "o"), "-"),
    "nonlinear": (Mark(_SKY, ">"), "-."),
}
"""Smoothing function -> mark and line."""


def mark_of(method: str) -> Mark:
    """Return a method's mark."""
    return MARKS.get(method, Mark(QUIET, ".", filled=True))


def panels(
    columns: int, size: tuple[float, float], rows: int = 1, **grid: Any
) -> tuple[Figure, Any]:
    """Return a figure and its axes, (rows, columns); call it inside `scalecal.auditing.plots.style`."""
    from matplotlib.figure import Figure as NewFigure

    figure = NewFigure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, gridspec_kw=grid)


def legend_above(axis: Axes, handles: Sequence[Any], labels: Sequence[str], columns: int) -> None:
    """Put the legend above the plot, so that it covers no data."""
    axis.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.01),
        ncols=columns,
        fontsize=8,
        handletextpad=0.4,
        columnspacing=1.2,
        borderaxespad=0.0,
    )


def spread_labels(values: Float, least: float) -> Float:
    """Move places apart until neighbours are at least `least` apart, as little as can be.

    Examples
    --------
    >>> spread_labels(np.array([0.0, 0.1, 5.0]), 1.0).round(2).tolist()
    [-0.45, 0.55, 5.0]
    """
    order = np.argsort(values, kind="stable")
    # Pool neighbours whose labels would overlap: each pool is centred on its members' mean.
    pools: list[list[float]] = []
    for i in order:
        pools.append([float(values[i]), 1.0])
        while len(pools) > 1:
            (a, n), (b, m) = pools[-2], pools[-1]
            if b - a >= least * (n + m) / 2:
                break
            pools[-2:] = [[(a * n + b * m) / (n + m), n + m]]
    out = np.empty(len(values))
    place = 0
    for centre, count in pools:
        for k in range(int(count)):
            out[order[place]] = centre + least * (k - (count - 1) / 2)
            place += 1
    return out
