"""Figures of what a gain costs: the softening frontier, and reliability by stratum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalecal.auditing.plots import INK, QUIET, reliability, style
from scalecal.checks import Float
from scalecal.paper.evidence import Evidence
from scalecal.paper.figures.marks import (
    MARKS,
    Drawing,
    cannot,
    mark_of,
    panels,
    spread_labels,
)
from scalecal.paper.printed import encoder_label, method_label
from scalecal.runs.folder import audit_method
from scalecal.runs.frontier import frontier_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["figure_frontier", "figure_reliability", "figure_reliability_scale"]

_PLANES = (
    (("ece", "overall", "overall ECE"), ("ece", "low", "low-agreement ECE")),
    (("nll", "overall", "label NLL"), ("vote_nll", "overall", "vote NLL")),
)
_CURVE = {("ece", "overall"): "ece", ("ece", "low"): "ece_low"}


def figure_frontier(evidence: Evidence) -> Drawing:
    """Every method against the curve that one temperature traces, in both planes."""
    caption = (
        "What softening alone buys: the line divides the uncalibrated logits by a temperature T from 0.5 to "
        "5, named beside the line. A method left of and below the line does better than softening; methods "
        "far off lie outside the plot. Grey dots without a name: the other methods of the run. Averages over "
        "encoders and seeds."
    )
    dataset = evidence.primary
    cells = [] if dataset is None else evidence.of_dataset(dataset, "none")
    cells = [cell for cell in cells if cell.cases.votes is not None]
    if dataset is None or not cells:
        return cannot(caption, "no data set here has readers' votes")
    curves = [frontier_curve(cell) for cell in cells]
    temperature = curves[0]["temperature"].to_numpy()
    methods = [m for m in cells[0].methods if "@" not in m and all(m in c.methods for c in cells)]
    encoders = [cell.encoder for cell in cells]
    with style():
        figure, axes = panels(2, (10.4, 4.6))
        for axis, (across, up) in zip(axes[0], _PLANES, strict=True):
            lines = []
            for metric, stratum, title in (across, up):
                key = _CURVE.get((metric, stratum), metric)
                lines.append(np.mean([curve[key].to_numpy() for curve in curves], axis=0))
                (axis.set_xlabel if (metric, stratum, title) == across else axis.set_ylabel)(title)
            axis.plot(*lines, color=QUIET, lw=1.6, zorder=1)
            points = {
                method: tuple(
                    float(np.mean([evidence.mean(dataset, e, method, m, s) for e in encoders]))
                    for m, s, _ in (across, up)
                )
                for method in methods
            }
            _points(axis, points)
            _ticks(axis, temperature, lines)
        axes[0, 0].set_title(f"{dataset}, {len(cells)} encoder{'s' if len(cells) > 1 else ''}")
    return Drawing(caption, figure)


def _ticks(axis: Axes, temperature: Float, lines: list[Float]) -> None:
    for wanted in (0.5, 1.0, 2.0, 5.0):
        near = int(np.abs(np.log(temperature / wanted)).argmin())
        x, y = lines[0][near], lines[1][near]
        (left, right), (low, high) = axis.get_xlim(), axis.get_ylim()
        if not (left < x < right and low < y < high):
            continue
        axis.plot(x, y, ls="", marker="o", ms=3, color=QUIET, zorder=2)
        axis.annotate(
            f"T = {wanted:g}", (x, y), (4, -9), textcoords="offset points", fontsize=7, color=QUIET
        )


def _points(axis: Axes, points: dict[str, tuple[float, ...]]) -> None:
    """Draw the methods; those with a mark of their own are named in a column at the right."""
    for method, (x, y) in points.items():
        known = method in MARKS
        axis.plot(x, y, ls="", zorder=3 + known, **mark_of(method).options(6.5 if known else 7))
    # Named methods fill the plot; the curve and methods far off may leave it.
    named = [m for m in points if m in MARKS and np.isfinite(points[m]).all()]
    corners = np.array([points[m] for m in named])
    (left, low), (right, high) = corners.min(axis=0), corners.max(axis=0)
    width, height = max(right - left, 1e-3), max(high - low, 1e-3)
    axis.set_xlim(left - 0.12 * width, right + 0.12 * width)
    axis.set_ylim(low - 0.12 * height, high + 0.12 * height)
    places = spread_labels(np.array([points[m][1] for m in named]), 0.056 * height)
    # The column stays beside the plot where it is short enough for that.
    over = max(0.0, places.max() - (high + 0.1 * height))
    under = max(0.0, (low - 0.1 * height) - places.min())
    places += under - over if over == 0 or under == 0 else 0.0
    for method, place in zip(named, places.tolist(), strict=True):
        axis.annotate(
            method_label(method),
            (points[method][0], points[method][1]),
            (right + 0.16 * width, place),
            fontsize=7.5,
            color=INK,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "lw": 0.4,
                "color": "#c4c4c4",
                "shrinkA": 0,
                "shrinkB": 3,
            },
        )


def _reliability(evidence: Evidence, method: str, caption: str) -> Drawing:
    names = [evidence.primary] if evidence.primary else evidence.datasets
    cells = [cell for name in names for cell in evidence.of_dataset(name, method)]
    if not cells:
        return cannot(caption, f"no encoder has predictions of {method}")
    cell = cells[0]
    seed = cell.seeds(method)[0]
    figure = reliability(audit_method(cell, method, seed, n_resamples=200))
    with style():
        title = (
            f"{method_label(method)}, {encoder_label(cell.encoder)} on {cell.dataset}, seed {seed}"
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return Drawing(caption, figure)


def figure_reliability(evidence: Evidence) -> Drawing:
    """Reliability of the uncalibrated probe, stratum by stratum."""
    return _reliability(
        evidence,
        "none",
        "Reliability of the uncalibrated probe by readers' agreement, one encoder and seed. Grey bars hold "
        "nine of ten calibrated models' points; below, cases per bin.",
    )


def figure_reliability_scale(evidence: Evidence) -> Drawing:
    """Reliability after SCALE, stratum by stratum."""
    return _reliability(
        evidence,
        "scale",
        "Reliability after SCALE by readers' agreement, the same encoder and seed. Grey bars hold nine of "
        "ten calibrated models' points; below, cases per bin.",
    )
