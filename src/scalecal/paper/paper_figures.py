"""The paper's figures and those it lacks, as functions of the evidence.

`FIGURES` maps a figure's name to its caption and its function. A figure that cannot be drawn says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.auditing.audits import audit_predictions
from scalecal.auditing.plots import COLOURS, INK, QUIET, panels, reliability, save, style
from scalecal.checks import Float
from scalecal.io.store import write_json
from scalecal.paper.evidence import Evidence, MissingEvidence
from scalecal.paper.paper_tables import TABLES
from scalecal.paper.premise import Embeddings
from scalecal.paper.printed import encoder_label, method_label
from scalecal.runs.cells import Cell
from scalecal.runs.frontier import frontier_curve
from scalecal.smoothing import SMOOTHINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plate:
    """A figure's caption, and the function that draws it from evidence."""

    caption: str
    draw: Callable[[Evidence], Figure]

    def __call__(self, evidence: Evidence) -> tuple[Figure | None, str]:
        """Draw the figure; without one, say why it cannot be drawn."""
        try:
            with style():
                return self.draw(evidence), ""
        except MissingEvidence as error:
            return None, str(error)


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
    from sklearn.isotonic import isotonic_regression

    order = np.argsort(values, kind="stable")
    steps = least * np.arange(len(values))
    out = np.empty(len(values))
    out[order] = isotonic_regression(values[order] - steps) + steps
    return out


# ---- encoders, methods, anchors and shifts side by side

_MAIN = ("none", "temperature", "vanilla-ls", "real-piecewise", "scale")


def _rows(axis: Axes, names: list[str]) -> None:
    """One row per name, the first on top, with faint guides."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    across = axis.get_yaxis_transform()
    axis.hlines(range(len(names)), 0, 1, transform=across, color="#ececec", lw=1, zorder=0)


def _bars(width: float, size: float, colour: str) -> dict[str, Any]:
    """Arguments for plotting short vertical bars."""
    bars = {"marker": "|", "markersize": size, "markeredgewidth": width, "color": colour}
    return {"ls": "", **bars}


def _strip(
    axis: Axes, rows: list[str], floor: Sequence[float], values: Mapping[str, Sequence[float]]
) -> None:
    """One row per name: the floor as a grey bar, the value of every method as its mark."""
    _rows(axis, rows)
    axis.plot(floor, range(len(rows)), **_bars(3, 11, "#d4d4d4"))
    lines = [
        axis.plot(numbers, range(len(rows)), ls="", **MARKS[method].options())[0]
        for method, numbers in values.items()
    ]
    legend_above(axis, lines, [method_label(method) for method in values], 2)
    axis.set_xlim(left=0)


def figure_audit(evidence: Evidence) -> Figure:
    """ECE of the uncalibrated probe by stratum, beside what a calibrated model would show."""
    dataset = evidence.needs_strata()
    encoders = evidence.encoders(dataset, "none")
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
        axis.plot(null, place, **_bars(1.8, 9, mark.colour))
        (line,) = axis.plot(values, place, ls="", **mark.options())
        n = round(evidence.mean(dataset, encoders[0], "none", "n", stratum))
        handles.append(line)
        labels.append(f"{stratum} (n = {n:,})")
    (tick,) = axis.plot([], [], **_bars(1.8, 9, QUIET))
    legend_above(axis, [*handles, tick], [*labels, "calibrated model"], 4)
    axis.set_xlim(left=0)
    axis.set_xlabel(f"ECE on {dataset}, by agreement")
    return figure


def figure_comparison(evidence: Evidence) -> Figure:
    """Low-agreement ECE across encoders and methods, and every method's change with its interval."""
    from matplotlib.ticker import MaxNLocator

    dataset = evidence.needs_strata()
    encoders = evidence.encoders(dataset, "none")
    drawn = evidence.resampled(dataset)
    known = evidence.methods(dataset)
    changes = {}
    for method in (m for m in known if m != "none"):
        names = evidence.encoders(dataset, "none", method)
        changes[method] = drawn.contrast(method, "none", stratum="low", encoders=names)
    order = sorted(changes, key=lambda m: changes[m].difference)
    # Few encoders lie above the methods, many beside them.
    heights = 1.3 + 0.42 * len(encoders), 1.0 + 0.2 * len(order)
    if len(encoders) < 4:
        figure, axes = panels(1, (6.6, sum(heights)), rows=2, height_ratios=heights)
    else:
        figure, axes = panels(2, (9.6, max(heights)), width_ratios=(1.15, 1))
    left, right = axes.ravel()
    floor = [evidence.mean(dataset, e, "none", "ece", "low", column="floor") for e in encoders]
    values = {
        method: [evidence.mean(dataset, e, method, "ece", "low") for e in encoders]
        for method in _MAIN
        if method in known
    }
    _strip(left, [encoder_label(e) for e in encoders], floor, values)
    left.set_xlabel(f"low-agreement ECE on {dataset}")
    _rows(right, [method_label(m) for m in order])
    for row, method in enumerate(order):
        change = changes[method]
        mark = mark_of(method)
        right.hlines(row, change.low, change.high, color=mark.colour, lw=1.4)
        right.plot(change.difference, row, ls="", **mark.options(6 if method in MARKS else 9))
    right.axvline(0, color=QUIET, lw=0.8)
    right.xaxis.set_major_locator(MaxNLocator(5))
    right.set_xlabel("change of low-agreement ECE against no calibration")
    return figure


def figure_sensitivity(evidence: Evidence) -> Figure:
    """Low-agreement ECE against the number of anchors, for the three smoothing functions."""
    dataset = evidence.needs_strata()
    sweep = evidence.sweep_over_k(dataset)
    if not sweep:
        raise MissingEvidence("no sweep over K here (methods such as scale@K=20)")
    drawn = evidence.resampled(dataset)
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
        places = [ticks.index(k) for k in names]
        axis.plot(places, values, ls=dashes, lw=1.3, label=smoothing, **mark.options())
    levels = {}
    for method, line in (("none", "--"), ("real-piecewise", ":")):
        having = evidence.encoders(dataset, "none", method)
        by_seed = drawn.averaged(having, method, "low").by_seed if having else {}
        same = [value for seed, value in by_seed.items() if seed in swept]
        if same:
            levels[method] = float(np.mean(same))
            axis.axhline(levels[method], color=MARKS[method].colour, ls=line, lw=1.4)
    top = max(1.05 * axis.get_ylim()[1], 1e-3)
    axis.set_ylim(0, top)
    axis.set_xlim(-0.3, len(ticks) - 0.7)
    heights = spread_labels(np.array(list(levels.values())), 0.06 * top)
    for method, place in zip(levels, heights.tolist(), strict=True):
        axis.text(
            len(ticks) - 0.62, place, method_label(method), va="center", fontsize=8, color=INK
        )
    axis.set_xticks(range(len(ticks)), ticks)
    axis.set_xlabel(f"anchors per class, K ({len(swept)} seed{'s' * (len(swept) > 1)})")
    axis.set_ylabel(f"low-agreement ECE on {dataset}")
    handles, labels = axis.get_legend_handles_labels()
    legend_above(axis, handles, labels, 3)
    return figure


def figure_shift(evidence: Evidence) -> Figure:
    """Overall ECE where the probe meets another kind of image than it was trained on."""
    table = TABLES["shift"](evidence)
    if not table.rows:
        raise MissingEvidence(table.reason)
    frame = table.frame
    ways = list(dict.fromkeys(zip(frame["trained on"], frame["tested on"], strict=True)))
    figure, axes = panels(1, (6.2, 1.2 + 0.3 * len(ways)))
    axis = axes[0, 0]
    means = frame.groupby(["method", "trained on", "tested on"])[["ECE", "floor"]].mean()
    shown = [
        m
        for m in ("none", "temperature", "vanilla-ls", "scale", "scale-default")
        if method_label(m) in means.index
    ]
    values = {m: [means["ECE"].get((method_label(m), *way), np.nan) for way in ways] for m in shown}
    floor = [means["floor"].get((method_label("none"), *way), np.nan) for way in ways]
    rows = [f"{a} → {b}" if a != b else f"{a}, no shift" for a, b in ways]
    _strip(axis, rows, floor, values)
    axis.set_xlabel("overall ECE")
    return figure


# ---- what a gain costs

_PLANES = (
    (("ece", "overall", "overall ECE"), ("ece", "low", "low-agreement ECE")),
    (("nll", "overall", "label NLL"), ("vote_nll", "overall", "vote NLL")),
)
_CURVE = {("ece", "overall"): "ece", ("ece", "low"): "ece_hard"}


def figure_frontier(evidence: Evidence) -> Figure:
    """Every method against the curve that one temperature traces, in both planes."""
    dataset = evidence.needs_strata()
    cells = [c for c in evidence.of_dataset(dataset, "none") if c.cases.votes is not None]
    if not cells:
        raise MissingEvidence("no data set here has readers' votes")
    curves = [frontier_curve(cell) for cell in cells]
    temperature = curves[0]["temperature"].to_numpy()
    methods = [m for m in evidence.methods(dataset) if all(m in c.methods for c in cells)]
    encoders = [cell.encoder for cell in cells]
    figure, axes = panels(2, (10.4, 4.6))
    for axis, (across, up) in zip(axes[0], _PLANES, strict=True):
        lines = []
        for metric, stratum, title in (across, up):
            key = _CURVE.get((metric, stratum), metric)
            lines.append(np.mean([curve[key].to_numpy() for curve in curves], axis=0))
            (axis.set_xlabel if (metric, stratum, title) == across else axis.set_ylabel)(title)
        axis.plot(*lines, color=QUIET, lw=1.6, zorder=1)

        def mean(method: str, metric: str, stratum: str, _: str) -> float:
            values = [evidence.mean(dataset, e, method, metric, stratum) for e in encoders]
            return float(np.mean(values))

        _points(axis, {m: (mean(m, *across), mean(m, *up)) for m in methods})
        _ticks(axis, temperature, lines)
    axes[0, 0].set_title(f"{dataset}, {len(cells)} encoder{'s' if len(cells) > 1 else ''}")
    return figure


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


def _points(axis: Axes, points: dict[str, tuple[float, float]]) -> None:
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
    thin = {"arrowstyle": "-", "lw": 0.4, "color": "#c4c4c4", "shrinkA": 0, "shrinkB": 3}
    text: dict[str, Any] = {"fontsize": 7.5, "color": INK, "va": "center", "arrowprops": thin}
    for method, place in zip(named, places.tolist(), strict=True):
        at = (right + 0.16 * width, place)
        axis.annotate(method_label(method), points[method], at, annotation_clip=False, **text)


def _reliability(evidence: Evidence, *, method: str) -> Figure:
    """Reliability of a method, stratum by stratum."""
    names = [evidence.primary] if evidence.primary else evidence.datasets
    cells = [cell for name in names for cell in evidence.of_dataset(name, method)]
    if not cells:
        raise MissingEvidence(f"no encoder has predictions of {method}")
    cell = cells[0]
    seed = cell.seeds(method)[0]
    figure = reliability(audit_predictions(cell.answers(method), n_resamples=200))
    title = f"{method_label(method)}, {encoder_label(cell.encoder)} on {cell.dataset}, seed {seed}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


# ---- the method itself, on real numbers

_NEGATIVE, _POSITIVE = COLOURS[1], COLOURS[0]
_MOST_POINTS = 2_000


def _principal(X: Float, n: int) -> tuple[Float, Float, Float]:
    """Mean, n principal axes and their shares of the variance."""
    from sklearn.decomposition import PCA

    solver = "full" if min(X.shape) <= n else "arpack"
    pca = PCA(n_components=min(n, *X.shape), svd_solver=solver, random_state=0).fit(X)
    return pca.mean_, pca.components_, pca.explained_variance_ratio_


def _some(n: int) -> slice:
    """Return every k-th row, so that no figure draws more points than can be distinguished."""
    return slice(None, None, max(1, n // _MOST_POINTS))


def _first(evidence: Evidence) -> tuple[Cell | None, Embeddings]:
    """Embeddings of the primary data set's first encoder that has any, with its cell."""
    if not evidence.embeddings:
        raise MissingEvidence("needs the embeddings of a cell's training cases with their anchors")
    key = min(evidence.embeddings, key=lambda key: key[0] != evidence.primary)
    cells = {(cell.dataset, cell.encoder): cell for cell in evidence.cells}
    return cells.get(key), evidence.embeddings[key]


def _plane(data: Embeddings) -> tuple[Float, Float]:
    """Real and synthetic cases in the plane of the anchor axis and the main direction beside it."""
    X = np.asarray(data.X, dtype=np.float64)
    start, way = data.axis

    def beside(rows: Float) -> Float:
        return np.asarray(rows - start - np.outer(data.position(rows), way))

    mean, axes, _ = _principal(beside(X), 1)
    real, made = (
        np.column_stack([data.position(rows), (beside(rows) - mean) @ axes[0]])
        for rows in (X, data.interpolates()[0])
    )
    return real, made


def figure_overview(evidence: Evidence) -> Figure:
    """Show the four steps on real cases: anchors, interpolates, soft labels, predictions before and after."""
    cell, data = _first(evidence)
    real, made = _plane(data)
    _, share = data.interpolates()
    figure, axes = panels(4, (11.4, 3.0))
    first, second, third, fourth = axes[0]
    few = _some(len(real))
    for axis in (first, second):
        for label, colour in ((0, _NEGATIVE), (1, _POSITIVE)):
            here = real[few][data.y[few] == label]
            ink = colour if axis is first else "#cccccc"
            axis.plot(*here.T, ls="", marker=".", ms=2.5, color=ink, alpha=0.5, mew=0)
        axis.set_xticks([0, 1], ["negative\nanchors", "positive\nanchors"])
        axis.set_yticks([])
        axis.spines["left"].set_visible(False)
    for label, colour, shape in ((0, _NEGATIVE, "s"), (1, _POSITIVE, "o")):
        chosen = real[data.anchors[label]]
        first.plot(*chosen.T, ls="", marker=shape, ms=6, mfc=colour, mec="white", mew=0.7)
    first.set_title(f"(a) {len(data.anchors[1])} anchors per class")
    second.scatter(*made.T, c=share, cmap="cividis", vmin=0, vmax=1, s=7, linewidths=0)
    second.set_title(f"(b) {len(made):,} interpolates")
    _soft_labels(third, data.n_raters)
    third.set_title("(c) soft labels")
    _before_after(fourth, cell)
    fourth.set_title("(d) predictions")
    return figure


def _unit_square(axis: Axes, across: str, up: str) -> None:
    """Name the axes of a plot of shares, with the diagonal."""
    axis.plot([0, 1], [0, 1], color=QUIET, lw=0.8)
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.set_xticks([0, 0.5, 1])
    axis.set_yticks([0, 0.5, 1])


def _soft_labels(axis: Axes, n_raters: int) -> None:
    votes = np.arange(n_raters + 1)
    share, target = votes / n_raters, SMOOTHINGS["piecewise"](votes, n_raters)
    _unit_square(axis, "share of votes, 1 - α", "soft label")
    axis.plot(share, target, color=INK, lw=1)
    axis.scatter(share, target, c=share, cmap="cividis", s=30, zorder=3, ec=INK, lw=0.6)


def _before_after(axis: Axes, cell: Cell | None) -> None:
    _unit_square(axis, "before", "after")
    seeds = [] if cell is None or len(cell.cases.classes) != 2 else cell.seeds("scale")
    seeds = [s for s in seeds if cell is not None and ("none", s) in cell.predictions]
    if cell is None or not seeds:
        axis.text(0.5, 0.5, "no predictions", ha="center", va="center", color=QUIET)
        return
    rows = cell.predictions["none", seeds[0]].rows
    before, after = (cell.predictions[method, seeds[0]].p for method in ("none", "scale"))
    few = _some(len(rows))
    points: dict[str, Any] = {"ls": "", "marker": ".", "ms": 4, "alpha": 0.5, "mew": 0}
    for label, colour in ((0, _NEGATIVE), (1, _POSITIVE)):
        here = cell.y[rows[few]] == label
        axis.plot(before[few][here], after[few][here], color=colour, **points)


def figure_smoothing(evidence: Evidence) -> Figure:
    """Show the three smoothing functions at the panel's size."""
    n_raters = max((data.n_raters for data in evidence.embeddings.values()), default=7)
    votes = np.arange(n_raters + 1)
    figure, axes = panels(1, (4.6, 3.4))
    axis = axes[0, 0]
    axis.plot([0, 1], [0, 1], color=QUIET, lw=0.8)
    for name, (mark, dashes) in SMOOTHING_MARKS.items():
        label = SMOOTHINGS[name](votes, n_raters)
        axis.plot(votes / n_raters, label, ls=dashes, lw=1.3, label=name, **mark.options(5))
    axis.legend(loc="upper left")
    axis.set_xlabel("share of readers for the positive class")
    axis.set_ylabel("soft label")
    axis.set_xticks(votes / n_raters, [f"{v}/{n_raters}" for v in votes])
    return figure


def figure_map(evidence: Evidence) -> Figure:
    """Map real cases, anchors and interpolates on the embeddings' two main axes."""
    cell, data = _first(evidence)
    X = np.asarray(data.X, dtype=np.float64)
    mean, axes_, explained = _principal(X, 2)
    if len(axes_) < 2:
        raise MissingEvidence("the embeddings have one dimension only")
    made, share = data.interpolates()
    real, synthetic = (X - mean) @ axes_.T, (made - mean) @ axes_.T
    total = data.counts.sum(axis=1)
    colour = np.where(total > 0, data.counts[:, 1] / np.maximum(total, 1), data.y)
    few = _some(len(real))
    figure, axes = panels(2, (8.6, 3.7))
    left, right = axes[0]
    left.scatter(*real[few].T, c=colour[few], cmap="cividis", vmin=0, vmax=1, s=9, linewidths=0)
    right.plot(*real[few].T, ls="", marker=".", ms=2.5, color="#d4d4d4", mew=0, zorder=0)
    points = right.scatter(*synthetic.T, c=share, cmap="cividis", vmin=0, vmax=1, s=9, linewidths=0)
    for label, shape, name in ((0, "s", "negative anchors"), (1, "o", "positive anchors")):
        chosen = real[data.anchors[label]]
        face = "#00224e" if label == 0 else "#fee838"
        right.plot(*chosen.T, ls="", marker=shape, ms=6, mfc=face, mec=INK, mew=0.9, label=name)
    right.legend(loc="best", fontsize=8)
    left.set_title("real cases" + (f", {encoder_label(cell.encoder)}" if cell else ""))
    right.set_title("interpolates")
    for axis in (left, right):
        axis.set_xlabel(f"first component ({100 * explained[0]:.0f} % of variance)")
        axis.set_xticks([])
        axis.set_yticks([])
    left.set_ylabel(f"second component ({100 * explained[1]:.0f} %)")
    right.sharex(left)
    right.sharey(left)
    bar = figure.colorbar(points, ax=axes[0].tolist(), shrink=0.85, aspect=30)
    bar.set_label("share for the positive class")
    bar.outline.set_visible(False)
    return figure


FIGURES: dict[str, Plate] = {
    "overview": Plate(
        "The method on real numbers. (a) Training embeddings along the line between the two classes' "
        "anchors, and across it; the most confident cases of each class are the anchors. (b) Interpolates "
        "between all pairs of anchors, darker where they stand for fewer positive votes. (c) The soft label "
        "of each interpolate. (d) Predictions of the test cases before and after retraining.",
        figure_overview,
    ),
    "smoothing": Plate(
        "Soft label against the share of readers who chose the positive class, for the three smoothing "
        "functions with their defaults. Grey: the share itself.",
        figure_smoothing,
    ),
    "audit": Plate(
        "ECE (15 bins) of the uncalibrated probe by readers' agreement, mean over seeds. The short bar of "
        "the same colour is what a calibrated model would show in strata made from the labels' own votes.",
        figure_audit,
    ),
    "comparison": Plate(
        "First: low-agreement ECE of the paper's methods, mean over seeds; grey bars: noise floor of the "
        "uncalibrated probe. Second: change against no calibration averaged over encoders, with the 95 % "
        "interval of a paired bootstrap over cases.",
        figure_comparison,
    ),
    "sensitivity": Plate(
        "Low-agreement ECE of SCALE against the number K of anchors per class, averaged over encoders and "
        "seeds. Dashed: no calibration; dotted: real agreement with piecewise smoothing; both over the same "
        "seeds.",
        figure_sensitivity,
    ),
    "reliability": Plate(
        "Reliability of the uncalibrated probe by readers' agreement, one encoder and seed. Grey "
        "bars hold nine of ten calibrated models' points; below, cases per bin.",
        partial(_reliability, method="none"),
    ),
    "reliability_scale": Plate(
        "Reliability after SCALE by readers' agreement, one encoder and seed. Grey "
        "bars hold nine of ten calibrated models' points; below, cases per bin.",
        partial(_reliability, method="scale"),
    ),
    "frontier": Plate(
        "What softening alone buys: the line divides the uncalibrated logits by a temperature T from 0.5 to "
        "5, named beside the line. A method left of and below the line does better than softening; methods "
        "far off lie outside the plot. Grey dots without a name: the other methods of the run. Averages over "
        "encoders and seeds.",
        figure_frontier,
    ),
    "map": Plate(
        "Principal components of the training embeddings. Left: real cases, coloured by the share of "
        "readers for the positive class (by the label where nobody voted). Right: the anchors and the "
        "interpolates between them, coloured by the share of votes they stand for.",
        figure_map,
    ),
    "shift": Plate(
        "Overall ECE under shift: trained on one kind of image, tested on another; mean over seeds and "
        "encoders. Grey bars: noise floor of the uncalibrated probe.",
        figure_shift,
    ),
}
"""Name -> caption and function of the evidence."""


def write_figures(folder: str | Path, evidence: Evidence) -> None:
    """Draw every figure into a folder; ``figures.json`` there holds captions, files and reasons."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for name, plate in FIGURES.items():
        figure, reason = plate(evidence)
        paths = [] if figure is None else save(figure, folder / name, ("svg", "png", "pdf"))
        files = [path.name for path in paths]
        listed.append({"name": name, "caption": plate.caption, "files": files, "reason": reason})
    write_json(folder / "figures.json", listed)
