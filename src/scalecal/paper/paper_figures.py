"""The paper's figures, as functions of the evidence.

`FIGURES` maps a figure's name to its caption and its function. A figure that cannot be drawn says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from sklearn.decomposition import PCA

from scalecal.cases import Predictions
from scalecal.checks import Float
from scalecal.io.store import write_json
from scalecal.paper.evidence import Embeddings, Evidence, MissingEvidence
from scalecal.paper.printed import SWEEP_SIZES, encoder_label, method_label
from scalecal.report.plots import COLOURS, INK, QUIET, panels, save, style
from scalecal.smoothing import SMOOTHINGS


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
        face = "white"
        if self.filled:
            face = self.colour
        return {
            "marker": self.shape,
            "markersize": size,
            "color": self.colour,
            "markerfacecolor": face,
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
    return MARKS.get(method, Mark(QUIET, "."))


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


# ---- encoders, methods and anchors side by side

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
    return {
        "ls": "",
        "marker": "|",
        "markersize": size,
        "markeredgewidth": width,
        "color": colour,
    }


def figure_audit(evidence: Evidence) -> Figure:
    """ECE of the uncalibrated probe by stratum, beside what a calibrated model would show."""
    dataset = evidence.needs_strata()
    encoders = evidence.encoders(dataset, "none")
    figure, axes = panels(1, (6.2, 1.1 + 0.42 * len(encoders)))
    axis = axes[0, 0]
    _rows(axis, [encoder_label(e) for e in encoders])
    lines, labels = [], []
    # Side by side within a row: marks of the strata would cover each other.
    for shift, stratum in ((-0.2, "high"), (0.0, "medium"), (0.2, "low")):
        mark = STRATUM_MARKS[stratum]
        values = [evidence.mean(dataset, e, "none", "ece", stratum) for e in encoders]
        if not np.isfinite(values).any():
            continue
        null = [evidence.mean(dataset, e, "none", "null", stratum) for e in encoders]
        rows = np.arange(len(encoders)) + shift
        ends = np.minimum(values, null), np.maximum(values, null)
        axis.hlines(rows, *ends, color=mark.colour, lw=0.8)
        axis.plot(null, rows, **_bars(1.8, 9, mark.colour))
        lines += axis.plot(values, rows, ls="", **mark.options())
        n = round(evidence.mean(dataset, encoders[0], "none", "n", stratum))
        labels.append(f"{stratum} (n = {n:,})")
    lines += axis.plot([], [], **_bars(1.8, 9, QUIET))
    legend_above(axis, lines, [*labels, "calibrated model"], 4)
    axis.set(xlim=(0, None), xlabel=f"ECE on {dataset}, by agreement")
    return figure


def figure_comparison(evidence: Evidence) -> Figure:
    """Low-agreement ECE across encoders and methods, and every method's change with its interval."""
    dataset = evidence.needs_strata()
    encoders = evidence.encoders(dataset, "none")
    drawn = evidence.resampled(dataset)
    known = evidence.methods(dataset)
    changes = {}
    for method in known:
        if method != "none":
            names = evidence.encoders(dataset, "none", method)
            changes[method] = drawn.contrast(method, "none", stratum="low", encoders=names)
    order = sorted(changes, key=lambda m: changes[m].difference)
    heights = 1.3 + 0.42 * len(encoders), 1.0 + 0.2 * len(order)
    figure, axes = panels(1, (6.6, sum(heights)), rows=2, height_ratios=heights)
    top, bottom = axes.ravel()
    _rows(top, [encoder_label(e) for e in encoders])
    floor = [evidence.mean(dataset, e, "none", "ece", "low", column="floor") for e in encoders]
    top.plot(floor, range(len(encoders)), **_bars(3, 11, "#d4d4d4"))
    main = [method for method in _MAIN if method in known]
    lines = []
    for method in main:
        values = [evidence.mean(dataset, e, method, "ece", "low") for e in encoders]
        lines += top.plot(values, range(len(encoders)), ls="", **MARKS[method].options())
    legend_above(top, lines, [method_label(method) for method in main], 2)
    top.set(xlim=(0, None), xlabel=f"low-agreement ECE on {dataset}")
    _rows(bottom, [method_label(m) for m in order])
    for row, method in enumerate(order):
        change = changes[method]
        mark, size = mark_of(method), 6
        if method not in MARKS:
            size = 9
        bottom.hlines(row, change.low, change.high, color=mark.colour, lw=1.4)
        bottom.plot(change.difference, row, ls="", **mark.options(size))
    bottom.axvline(0, color=QUIET, lw=0.8)
    bottom.xaxis.set_major_locator(MaxNLocator(5))
    bottom.set_xlabel("change of low-agreement ECE against no calibration")
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
    ticks = [k for k in SWEEP_SIZES if any(k in names for names in sweep.values())]
    swept: set[int] = set()  # a sweep may have fewer seeds than the references
    for smoothing, names in sweep.items():
        encoders = evidence.encoders(dataset, "none", *names.values())
        places, values = [], []
        for k, method in names.items():
            number = drawn.averaged(encoders, method, "low")
            places.append(ticks.index(k))
            values.append(number.value)
            swept.update(number.by_seed)
        mark, dashes = SMOOTHING_MARKS[smoothing]
        axis.plot(places, values, ls=dashes, lw=1.3, label=smoothing, **mark.options())
    for method, dashes in (("none", "--"), ("real-piecewise", ":")):
        encoders = evidence.encoders(dataset, "none", method)
        if encoders:
            by_seed = drawn.averaged(encoders, method, "low").by_seed
            same = [value for seed, value in by_seed.items() if seed in swept]
            if same:
                colour, label = MARKS[method].colour, method_label(method)
                axis.axhline(float(np.mean(same)), color=colour, ls=dashes, lw=1.4, label=label)
    axis.set(
        xlim=(-0.3, len(ticks) - 0.7),
        ylim=(0, max(1.05 * axis.get_ylim()[1], 1e-3)),
        xlabel=f"anchors per class, K ({len(swept)} seed{'s' * (len(swept) > 1)})",
        ylabel=f"low-agreement ECE on {dataset}",
    )
    axis.set_xticks(range(len(ticks)), ticks)
    handles, labels = axis.get_legend_handles_labels()
    legend_above(axis, handles, labels, 3)
    return figure


# ---- the method itself, on real numbers

_NEGATIVE, _POSITIVE = COLOURS[1], COLOURS[0]
_MAX_POINTS = 2_000


def _some(n: int) -> slice:
    """Return every k-th row, so that no figure draws more points than can be distinguished."""
    return slice(None, None, max(1, n // _MAX_POINTS))


def _first(evidence: Evidence) -> tuple[Predictions, Embeddings]:
    """Embeddings of the primary data set's first encoder that has any, with its cell."""
    if not evidence.embeddings:
        raise MissingEvidence("needs the embeddings of a cell's training cases with their anchors")
    key = min(evidence.embeddings, key=lambda key: key[0] != evidence.primary)
    cells = {(cell.dataset, cell.encoder): cell for cell in evidence.cells}
    return cells[key], evidence.embeddings[key]


def _plane(data: Embeddings) -> tuple[Float, Float]:
    """Real and synthetic cases in the plane of the anchor axis and the main direction beside it."""
    X = np.asarray(data.X, dtype=np.float64)
    start, way = data.axis

    def beside(rows: Float) -> Float:
        return np.asarray(rows - start - np.outer(data.position(rows), way))

    # arpack finds one axis of two thousand fast, but not the only one.
    solver = "arpack"
    if min(X.shape) <= 1:
        solver = "full"
    pca = PCA(n_components=1, svd_solver=solver, random_state=0).fit(beside(X))

    def placed(rows: Float) -> Float:
        return np.column_stack([data.position(rows), pca.transform(beside(rows))[:, 0]])

    return placed(X), placed(data.interpolates()[0])


def figure_overview(evidence: Evidence) -> Figure:
    """Show the four steps on real cases: anchors, interpolates, soft labels, predictions before and after."""
    cell, data = _first(evidence)
    real, made = _plane(data)
    _, share = data.interpolates()
    figure, axes = panels(4, (11.4, 3.0))
    first, second, third, fourth = axes[0]
    few = _some(len(real))
    points: dict[str, Any] = {"ls": "", "marker": ".", "ms": 2.5, "alpha": 0.5, "mew": 0}
    for axis, colours in ((first, (_NEGATIVE, _POSITIVE)), (second, ("#cccccc", "#cccccc"))):
        for label, colour in enumerate(colours):
            shown = real[few][data.y[few] == label]
            axis.plot(*shown.T, color=colour, **points)
        axis.set_xticks([0, 1], ["negative\nanchors", "positive\nanchors"])
        axis.set_yticks([])
        axis.spines["left"].set_visible(False)
    for label, colour, shape in ((0, _NEGATIVE, "s"), (1, _POSITIVE, "o")):
        chosen = real[data.anchors[label]]
        first.plot(*chosen.T, ls="", marker=shape, ms=6, mfc=colour, mec="white", mew=0.7)
    second.scatter(*made.T, c=share, cmap="cividis", vmin=0, vmax=1, s=7, linewidths=0)
    _soft_labels(third, data.n_raters)
    _before_after(fourth, cell)
    titles = (
        f"(a) {len(data.anchors[1])} anchors per class",
        f"(b) {len(made):,} interpolates",
        "(c) soft labels",
        "(d) predictions",
    )
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title)
    return figure


def _unit_square(axis: Axes, across: str, up: str) -> None:
    """Name the axes of a plot of shares, with the diagonal."""
    axis.plot([0, 1], [0, 1], color=QUIET, lw=0.8)
    axis.set(xlabel=across, ylabel=up, xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])


def _soft_labels(axis: Axes, n_raters: int) -> None:
    votes = np.arange(n_raters + 1)
    share, target = votes / n_raters, SMOOTHINGS["piecewise"](votes, n_raters)
    _unit_square(axis, "share of votes, 1 - α", "soft label")
    axis.plot(share, target, color=INK, lw=1)
    axis.scatter(share, target, c=share, cmap="cividis", s=30, zorder=3, ec=INK, lw=0.6)


def _before_after(axis: Axes, cell: Predictions) -> None:
    _unit_square(axis, "before", "after")
    seeds = [s for s in cell.seeds("scale") if ("none", s) in cell.answers]
    if not seeds:
        axis.text(0.5, 0.5, "no predictions", ha="center", va="center", color=QUIET)
        return
    rows = cell.answers["none", seeds[0]].index
    before, after = (cell.answers[method, seeds[0]].p for method in ("none", "scale"))
    few = _some(len(rows))
    points: dict[str, Any] = {"ls": "", "marker": ".", "ms": 4, "alpha": 0.5, "mew": 0}
    for label, colour in ((0, _NEGATIVE), (1, _POSITIVE)):
        shown = cell.y[rows[few]] == label
        axis.plot(before[few][shown], after[few][shown], color=colour, **points)


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
    axis.set(xlabel="share of readers for the positive class", ylabel="soft label")
    axis.set_xticks(votes / n_raters, [f"{v}/{n_raters}" for v in votes])
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
        "Above: low-agreement ECE of the paper's methods, mean over seeds; grey bars: noise floor of the "
        "uncalibrated probe. Below: change against no calibration averaged over encoders, with the 95 % "
        "interval of a paired bootstrap over cases.",
        figure_comparison,
    ),
    "sensitivity": Plate(
        "Low-agreement ECE of SCALE against the number K of anchors per class, averaged over encoders and "
        "seeds. Dashed: no calibration; dotted: real agreement with piecewise smoothing; both over the same "
        "seeds.",
        figure_sensitivity,
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
        files = []
        if figure is not None:
            files = [path.name for path in save(figure, folder / name, ("svg", "png", "pdf"))]
        listed.append({"name": name, "caption": plate.caption, "files": files, "reason": reason})
    write_json(folder / "figures.json", listed)
