"""Figures by matplotlib in one style, colour-blind safe and readable in grey: the paper's, and `plan`'s.

`save` writes a figure in the formats asked for, the same bytes for the same figure. Figures of an audit
are drawn by `scalecal.report.figures`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# Okabe and Ito's palette, ordered so that neighbours also differ in lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
INK, QUIET = "#1a1a1a", "#8a8a8a"


@contextmanager
def style() -> Iterator[None]:
    """Draw in the package's style: no frame, thin lines, text that stays text."""
    import matplotlib as mpl

    with mpl.rc_context(
        {
            "figure.dpi": 110,
            "savefig.dpi": 160,
            "font.size": 9,
            "font.family": "DejaVu Sans",
            "axes.titlesize": 10,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": QUIET,
            "axes.labelcolor": INK,
            "xtick.color": QUIET,
            "ytick.color": QUIET,
            "xtick.labelcolor": INK,
            "ytick.labelcolor": INK,
            "legend.frameon": False,
            "svg.fonttype": "none",
            "svg.hashsalt": "scalecal",
            "pdf.fonttype": 42,
        }
    ):
        yield


def save(figure: Figure, stem: str | Path, formats: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Write a figure as ``stem.svg``, ``stem.png``, ... without a date, so bytes repeat."""
    paths = [Path(f"{stem}.{kind}") for kind in formats]
    _draw(figure, paths)
    return paths


def _draw(figure: Figure, paths: Sequence[Path]) -> None:
    dateless: dict[str, dict[str, Any]] = {
        ".svg": {"Date": None},
        ".pdf": {"CreationDate": None},
        ".png": {"Software": None},
    }
    with style():
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # laid out once: the same in every format
        whole = figure.get_tightbbox().padded(0.1)
        for path in paths:
            about = dateless.get(path.suffix)
            figure.savefig(path, metadata=about, bbox_inches=whole, facecolor="white")


def panels(
    columns: int, size: tuple[float, float], rows: int = 1, **grid: Any
) -> tuple[Figure, Any]:
    """Return a figure and its axes, (rows, columns); call it inside `style`."""
    from matplotlib.figure import Figure as NewFigure

    figure = NewFigure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, gridspec_kw=grid)


def power_curve(plan: pd.DataFrame, *, power: float) -> Figure:
    """Power against the number of cases, one line per number of readers."""
    with style():
        figure, axes = panels(1, (5.2, 3.4))
        axis = axes[0, 0]
        for j, (m, part) in enumerate(plan.groupby("n_raters")):
            axis.plot(
                part["n_cases"],
                part["power"],
                marker="osD^v"[j % 5],
                color=COLOURS[j],
                label=f"{m} readers",
            )
            axis.fill_between(
                part["n_cases"],
                part["power_low"],
                part["power_high"],
                color=COLOURS[j],
                alpha=0.15,
                lw=0,
            )
        axis.axhline(power, color=QUIET, linewidth=0.8, linestyle="--")
        axis.set_xscale("log")
        axis.set_ylim(0, 1.02)
        axis.set_xlabel("cases in all")
        axis.set_ylabel("power")
        axis.legend(loc="lower right")
    return figure
