"""Figures that set encoders, methods, anchors and shifts side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.auditing.plots import INK, QUIET, style
from scalecal.paper.evidence import Evidence
from scalecal.paper.figures.marks import (
    MARKS,
    SMOOTHING_MARKS,
    STRATUM_MARKS,
    Drawing,
    cannot,
    legend_above,
    mark_of,
    panels,
    spread_labels,
)
from scalecal.paper.paper_tables import table_shift
from scalecal.paper.printed import encoder_label, method_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["figure_audit", "figure_comparison", "figure_sensitivity", "figure_shift"]

_NO_STRATA = "no data set here has readers' votes, so there are no agreement strata"
_FLOOR: dict[str, Any] = {
    "marker": "|",
    "markersize": 11,
    "markeredgewidth": 3,
    "color": "#d4d4d4",
}
_MAIN = ("none", "temperature", "vanilla-ls", "real-piecewise", "scale")


def _rows(axis: Axes, names: list[str]) -> None:
    """One row per name, the first on top, with faint guides."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.hlines(
        range(len(names)),
        0,
        1,
        transform=axis.get_yaxis_transform(),
        color="#ececec",
        lw=1,
        zorder=0,
    )


def figure_audit(evidence: Evidence) -> Drawing:
    """ECE of the uncalibrated probe by stratum, beside what a calibrated model would show."""
    caption = (
        "ECE (15 bins) of the uncalibrated probe by readers' agreement, mean over seeds. The short bar of "
        "the same colour is what a calibrated model would show in strata made from the labels' own votes."
    )
    dataset = evidence.primary
    if dataset is None:
        return cannot(caption, _NO_STRATA)
    encoders = evidence.encoders(dataset, "none")
    with style():
        figure, axes = panels(1, (6.2, 1.1 + 0.42 * len(encoders)))
        axis = axes[0, 0]
        _rows(axis, [encoder_label(e) for e in encoders])
        handles, labels = [], []
        for shift, stratum in ((-0.2, "high"), (0.0, "medium"), (0.2, "low")):
            mark = STRATUM_MARKS[stratum]
            values = [evidence.mean(dataset, e, "none", "ece", stratum) for e in encoders]
            if not np.isfinite(values).any():
                continue
            null = [evidence.mean(dataset, e, "none", "null", stratum) for e in encoders]
            place = np.arange(len(encoders)) + shift
            axis.hlines(
                place, np.minimum(values, null), np.maximum(values, null), color=mark.colour, lw=0.8
            )
            axis.plot(
                null, place, ls="", marker="|", markersize=9, markeredgewidth=1.8, color=mark.colour
            )
            (line,) = axis.plot(values, place, ls="", **mark.options())
            n = round(evidence.mean(dataset, encoders[0], "none", "n", stratum))
            handles.append(line)
            labels.append(f"{stratum} (n = {n:,})")
        (tick,) = axis.plot(
            [], [], ls="", marker="|", markersize=9, markeredgewidth=1.8, color=QUIET
        )
        legend_above(axis, [*handles, tick], [*labels, "calibrated model"], 4)
        axis.set_xlim(left=0)
        axis.set_xlabel(f"ECE on {dataset}, by agreement")
    return Drawing(caption, figure)


def figure_comparison(evidence: Evidence) -> Drawing:
    """Low-agreement ECE across encoders and methods, and every method's change with its interval."""
    caption = (
        "First: low-agreement ECE of the paper's methods, mean over seeds; grey bars: noise floor of the "
        "uncalibrated probe. Second: change against no calibration averaged over encoders, with the 95 % "
        "interval of a paired bootstrap over cases."
    )
    from matplotlib.ticker import MaxNLocator

    dataset = evidence.primary
    if dataset is None:
        return cannot(caption, _NO_STRATA)
    encoders = evidence.encoders(dataset, "none")
    drawn = evidence.resampled(dataset)
    known = dict.fromkeys(m for c in evidence.of_dataset(dataset, "none") for m in c.methods)
    rivals = [m for m in known if m != "none" and "@" not in m]
    changes = {}
    for method in rivals:
        names = [e for e in encoders if method in drawn.cells[e].methods]
        changes[method] = drawn.contrast(method, "none", stratum="low", encoders=names)
    order = sorted(rivals, key=lambda m: changes[m].difference)
    with style():
        # Few encoders lie above the methods, many beside them.
        heights = 1.3 + 0.42 * len(encoders), 1.0 + 0.2 * len(order)
        if len(encoders) < 4:
            figure, axes = panels(1, (6.6, sum(heights)), rows=2, height_ratios=heights)
        else:
            figure, axes = panels(2, (9.6, max(heights)), width_ratios=(1.15, 1))
        left, right = axes.ravel()
        _rows(left, [encoder_label(e) for e in encoders])
        place = np.arange(len(encoders))
        floor = [evidence.mean(dataset, e, "none", "ece", "low", "floor") for e in encoders]
        left.plot(floor, place, ls="", **_FLOOR)
        handles, labels = [], []
        for method in (m for m in _MAIN if m in known):
            values = [evidence.mean(dataset, e, method, "ece", "low") for e in encoders]
            (line,) = left.plot(values, place, ls="", **MARKS[method].options())
            handles.append(line)
            labels.append(method_label(method))
        legend_above(left, handles, labels, 2)
        left.set_xlim(left=0)
        left.set_xlabel(f"low-agreement ECE on {dataset}")
        _rows(right, [method_label(m) for m in order])
        for row, method in enumerate(order):
            found = changes[method]
            mark = mark_of(method)
            right.hlines(row, found.low, found.high, color=mark.colour, lw=1.4)
            right.plot(found.difference, row, ls="", **mark.options(6 if method in MARKS else 9))
        right.axvline(0, color=QUIET, lw=0.8)
        right.xaxis.set_major_locator(MaxNLocator(5))
        right.set_xlabel("change of low-agreement ECE against no calibration")
    return Drawing(caption, figure)


def figure_sensitivity(evidence: Evidence) -> Drawing:
    """Low-agreement ECE against the number of anchors, for the three smoothing functions."""
    caption = (
        "Low-agreement ECE of SCALE against the number K of anchors per class, averaged over encoders and "
        "{}. Dashed: no calibration; dotted: real agreement with piecewise smoothing; both over these "
        "seeds."
    )
    unseen = caption.format("seeds")
    dataset = evidence.primary
    if dataset is None:
        return cannot(unseen, _NO_STRATA)
    sweep = evidence.sweep_over_k(dataset)
    if not sweep:
        return cannot(unseen, "no sweep over K here (methods such as scale@K=20)")
    drawn = evidence.resampled(dataset)
    with style():
        figure, axes = panels(1, (5.6, 3.4))
        axis = axes[0, 0]
        ticks = list(dict.fromkeys(k for names in sweep.values() for k in names))
        ticks.sort(key=lambda k: float("inf") if k == "all" else float(k))
        swept: set[int] = set()  # a sweep may have fewer seeds than the references
        for smoothing, names in sweep.items():
            encoders = evidence.encoders(dataset, "none", *names.values())
            curve = [drawn.averaged(encoders, m, "low") for m in names.values()]
            values = [one.value for one in curve]
            swept.update(*(one.by_seed for one in curve))
            mark, dashes = SMOOTHING_MARKS[smoothing]
            axis.plot(
                [ticks.index(k) for k in names],
                values,
                ls=dashes,
                lw=1.3,
                label=smoothing,
                **mark.options(),
            )
        encoders = evidence.encoders(dataset, "none")
        levels = {}
        for method, line in (("none", "--"), ("real-piecewise", ":")):
            having = [e for e in encoders if method in drawn.cells[e].methods]
            by_seed = drawn.averaged(having, method, "low").by_seed if having else {}
            same = [value for seed, value in by_seed.items() if seed in swept]
            if same:
                levels[method] = float(np.mean(same))
                axis.axhline(levels[method], color=MARKS[method].colour, ls=line, lw=1.4)
        top = max(1.05 * axis.get_ylim()[1], 1e-3)
        axis.set_ylim(0, top)
        axis.set_xlim(-0.3, len(ticks) - 0.7)
        places = spread_labels(np.array(list(levels.values())), 0.06 * top)
        for method, place in zip(levels, places.tolist(), strict=True):
            axis.text(
                len(ticks) - 0.62, place, method_label(method), va="center", fontsize=8, color=INK
            )
        axis.set_xticks(range(len(ticks)), ticks)
        axis.set_xlabel("anchors per class, K")
        axis.set_ylabel(f"low-agreement ECE on {dataset}")
        handles, labels = axis.get_legend_handles_labels()
        legend_above(axis, handles, labels, 3)
    count = f"{len(swept)} seed{'s' if len(swept) > 1 else ''}"
    return Drawing(caption.format(count), figure)


def figure_shift(evidence: Evidence) -> Drawing:
    """Overall ECE where the probe meets another kind of image than it was trained on."""
    caption = (
        "Overall ECE under shift: trained on one kind of image, tested on another; mean over seeds and "
        "encoders. Grey bars: noise floor of the uncalibrated probe."
    )
    table = table_shift(evidence)
    if not table.rows:
        return cannot(caption, table.reason)
    frame = table.frame
    ways = list(dict.fromkeys(zip(frame["trained on"], frame["tested on"], strict=True)))
    with style():
        figure, axes = panels(1, (6.2, 1.2 + 0.3 * len(ways)))
        axis = axes[0, 0]
        _rows(axis, [f"{a} → {b}" if a != b else f"{a}, no shift" for a, b in ways])
        means = frame.groupby(["method", "trained on", "tested on"])[["ECE", "floor"]].mean()
        handles, labels = [], []
        for method in ("none", "temperature", "vanilla-ls", "scale", "scale-default"):
            label = method_label(method)
            if label not in means.index:
                continue
            if method == "none":
                floor = [means.loc[(label, *way), "floor"] for way in ways]
                axis.plot(
                    floor,
                    range(len(ways)),
                    ls="",
                    marker="|",
                    markersize=10,
                    markeredgewidth=3,
                    color="#d4d4d4",
                )
            values = [means["ECE"].get((label, *way), np.nan) for way in ways]
            (line,) = axis.plot(values, range(len(ways)), ls="", **MARKS[method].options())
            handles.append(line)
            labels.append(label)
        legend_above(axis, handles, labels, 3)
        axis.set_xlim(left=0)
        axis.set_xlabel("overall ECE")
    return Drawing(caption, figure)
