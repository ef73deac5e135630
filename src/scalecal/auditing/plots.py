"""Figures, by matplotlib: one style, colour-blind safe, readable in grey.

Every function takes results and returns a Figure; `save` writes it in the formats asked for, the
same bytes for the same figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.auditing.vote_bins import vote_reliability
from scalecal.checks import Float
from scalecal.io.text import number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scalecal.auditing.audits import Audit

# Okabe and Ito's palette, ordered so that neighbours also differ in lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
INK, QUIET, BAR = "#1a1a1a", "#8a8a8a", "#d4d4d4"


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
    import matplotlib.pyplot as plt

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
    plt.close(figure)


def panels(
    columns: int, size: tuple[float, float], rows: int = 1, **grid: Any
) -> tuple[Figure, Any]:
    """Return a figure and its axes, (rows, columns); call it inside `style`."""
    from matplotlib.figure import Figure as NewFigure

    figure = NewFigure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, gridspec_kw=grid)


def reliability(audit: Audit, *, most: int = 6) -> Figure:
    """Reliability diagram of every stratum: observed share, counts, consistency bars.

    Grey bars hold nine of ten calibrated models' points; a point outside its bar is surprising by
    itself. Below each diagram: how many cases fall into each bin. Where votes are known a last diagram
    holds the probability of a reader's vote against the share of readers who voted so.
    """
    strata = [r for r in audit.shown_rows if r["n"] > 0][:most]
    votes = vote_reliability(audit)[:1]
    columns = len(strata) + len(votes)
    with style():
        figure, axes = panels(columns, (2.6 * columns + 0.6, 3.9), 2, height_ratios=(4, 1))
        for j, row in enumerate(strata):
            _label_panel(audit, row, axes[0, j], axes[1, j])
        event = "positive" if audit.meta["event"] == "positive class" else "right"
        axes[0, 0].set_ylabel(f"share {event}")
        axes[1, 0].set_ylabel("cases")
        for panel in votes:
            _vote_panel(audit, panel, axes[0, -1], axes[1, -1])
    return figure


def _label_panel(audit: Audit, row: dict[str, Any], top: Axes, below: Axes) -> None:
    table, bars = audit.reliability(row["name"])
    agreement = audit.meta["strata"] == "agreement" and row["name"] != "overall"
    title = f"{row['name']} agreement" if agreement else row["name"]
    null = row.get("null", float("nan"))
    calibrated = null if np.isfinite(null) else row["floor"]
    values = np.stack([table.mean_p, table.mean_y, table.weight, bars.lo, bars.hi, table.lo])
    _draw_bins(top, below, *values[:, table.n > 0], n_bins=audit.meta["n_bins"])
    _describe(top, f"{title}, n = {number(row['n'])}", row["ece"], calibrated)
    below.set_xlabel("predicted probability")


def _vote_panel(audit: Audit, panel: dict[str, Any], top: Axes, below: Axes) -> None:
    keys = ("mean_p", "mean_y", "n", "bar_lo", "bar_hi", "lo")
    values = np.array([[found[key] for found in panel["bins"]] for key in keys])
    _draw_bins(top, below, *values, n_bins=audit.meta["n_bins"], colour=COLOURS[1])
    title = f"{number(panel['votes'])} votes, n = {number(panel['n'])}"
    _describe(top, title, panel["ece"], panel["null"])
    event = "positive votes" if audit.meta["event"] == "positive class" else "votes for it"
    top.set_ylabel(f"share of {event}")
    below.set_xlabel(f"probability of a vote ({panel['judges']})")


def _draw_bins(
    top: Axes,
    below: Axes,
    x: Float,
    y: Float,
    n: Float,
    low: Float,
    high: Float,
    edge: Float,
    *,
    n_bins: int,
    colour: str = COLOURS[0],
) -> None:
    """Draw filled bins: points whose area is their number of cases, consistency bars, and the counts."""
    top.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8, zorder=1)
    top.vlines(x, low, high, color=BAR, linewidth=6, zorder=0)
    top.scatter(
        x,
        y,
        s=12 + 90 * n / n.max(),
        color=colour,
        edgecolor="white",
        linewidth=0.6,
        zorder=3,
        clip_on=False,
    )
    below.bar(edge, n, width=0.9 / n_bins, align="edge", color=QUIET)
    for axis in (top, below):
        axis.set_xlim(-0.02, 1.02)
        axis.set_xticks([0, 0.5, 1])
    top.set_ylim(-0.02, 1.02)
    top.set_yticks([0, 0.5, 1])
    top.set_aspect("equal")


def _describe(top: Axes, title: str, ece: float, calibrated: float) -> None:
    top.set_title(title)
    top.text(
        0.03,
        0.97,
        f"ECE {number(ece)}\nnull {number(calibrated)}",
        transform=top.transAxes,
        va="top",
        fontsize=8,
        color=INK,
    )


def decision(audit: Audit, *, most: int = 6) -> Figure:
    """Decision curve of every stratum: net benefit of the model, of treating all, and of treating none.

    One row of panels per judge, labels and votes. The band is the 95 % interval at each threshold.
    Curves are drawn down to the depth of the benefit of treating all; within a stratum the prevalence is
    that of the stratum.
    """
    table = audit.decision_curve()
    judges = list(dict.fromkeys(table["judge"]))
    strata = list(dict.fromkeys(table["stratum"]))[:most]
    with style():
        figure, axes = panels(
            max(1, len(strata)),
            (2.6 * max(1, len(strata)) + 0.6, 2.6 * max(1, len(judges))),
            max(1, len(judges)),
        )
        for i, judge in enumerate(judges):
            for j, stratum in enumerate(strata):
                part = table[(table["judge"] == judge) & (table["stratum"] == stratum)]
                _benefit_panel(part, axes[i, j], COLOURS[i])
                axes[i, j].set_title(f"{stratum}, n = {number(int(part['n'].iloc[0]))}")
            axes[i, 0].set_ylabel(f"net benefit by {judge}")
        for axis in axes[-1]:
            axis.set_xlabel("threshold")
        if not judges:
            axes[0, 0].set_axis_off()
            axes[0, 0].text(0.5, 0.5, "not defined for more than two classes", ha="center")
    return figure


def _benefit_panel(part: pd.DataFrame, axis: Axes, colour: str) -> None:
    x, top = part["threshold"], max(0.01, float(part["prevalence"].iloc[0]))
    axis.axhline(0.0, color=QUIET, linewidth=0.8)
    axis.plot(x, part["treat_all"], color=QUIET, linewidth=0.8, linestyle="--")
    axis.fill_between(
        x, part["net_benefit_low"], part["net_benefit_high"], color=colour, alpha=0.2, lw=0
    )
    axis.plot(x, part["net_benefit"], color=colour, linewidth=1.6)
    axis.set_xlim(0, 1)
    axis.set_ylim(-0.25 * top, 1.08 * top)
    axis.set_xticks([0, 0.5, 1])


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
