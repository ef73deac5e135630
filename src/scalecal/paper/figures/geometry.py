"""Figures of the method itself, drawn from real numbers: anchors, interpolates, soft labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalecal.auditing.plots import COLOURS, INK, QUIET, style
from scalecal.checks import Float
from scalecal.paper.evidence import Embeddings, Evidence
from scalecal.paper.figures.marks import SMOOTHING_MARKS, Drawing, cannot, panels
from scalecal.paper.printed import encoder_label
from scalecal.runs.cells import Cell
from scalecal.smoothing import SMOOTHINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["figure_map", "figure_overview", "figure_smoothing", "interpolates"]

_NO_EMBEDDINGS = "needs the embeddings of a cell's training cases with their anchors"
_NEGATIVE, _POSITIVE = COLOURS[1], COLOURS[0]
_MOST_POINTS = 2_000


def interpolates(data: Embeddings) -> tuple[Float, Float]:
    """Synthetic cases between all anchors, and the share of votes each stands for."""
    share = np.arange(1, data.n_raters) / data.n_raters
    first, second, level = np.meshgrid(data.anchors[1], data.anchors[0], share, indexing="ij")
    weight = level.reshape(-1, 1)
    X = np.asarray(data.X, dtype=np.float64)
    made = (
        weight * X[first.ravel().astype(np.int64)]
        + (1 - weight) * X[second.ravel().astype(np.int64)]
    )
    return np.asarray(made), weight[:, 0]


def _principal(X: Float, n: int) -> tuple[Float, Float, Float]:
    """Mean, n principal axes and their shares of the variance."""
    from sklearn.decomposition import PCA

    solver = "full" if min(X.shape) <= n else "arpack"
    pca = PCA(n_components=min(n, *X.shape), svd_solver=solver, random_state=0).fit(X)
    return pca.mean_, pca.components_, pca.explained_variance_ratio_


def _some(n: int) -> slice:
    """Return every k-th row, so that no figure draws more points than can be told apart."""
    return slice(None, None, max(1, n // _MOST_POINTS))


def _first(evidence: Evidence) -> tuple[Cell | None, Embeddings] | None:
    """Embeddings of the primary data set's first encoder that has any, with its cell."""
    order = sorted(evidence.embeddings, key=lambda key: key[0] != evidence.primary)
    for dataset, encoder in order:
        cell = next(
            (c for c in evidence.cells if (c.dataset, c.encoder) == (dataset, encoder)), None
        )
        return cell, evidence.embeddings[dataset, encoder]
    return None


def _plane(data: Embeddings) -> tuple[Float, Float]:
    """Real and synthetic cases in the plane of the anchor axis and the main direction beside it."""
    X = np.asarray(data.X, dtype=np.float64)
    made, _ = interpolates(data)
    start = X[data.anchors[0]].mean(axis=0)
    way = X[data.anchors[1]].mean(axis=0) - start
    way = way / (way @ way)
    unit = way / np.sqrt(way @ way)
    beside = X - np.outer((X - start) @ unit, unit)
    mean, axes, _ = _principal(beside, 1)

    def place(rows: Float) -> Float:
        flat = rows - np.outer((rows - start) @ unit, unit)
        return np.column_stack([(rows - start) @ way, (flat - mean) @ axes[0]])

    return place(X), place(made)


def figure_overview(evidence: Evidence) -> Drawing:
    """Show the four steps on real cases: anchors, interpolates, soft labels, predictions before and after."""
    caption = (
        "The method on real numbers. (a) Training embeddings along the line between the two classes' "
        "anchors, and across it; the most confident cases of each class are the anchors. (b) Interpolates "
        "between all pairs of anchors, darker where they stand for fewer positive votes. (c) The soft label "
        "of each interpolate. (d) Predictions of the test cases before and after retraining."
    )
    found = _first(evidence)
    if found is None:
        return cannot(caption, _NO_EMBEDDINGS)
    cell, data = found
    real, made = _plane(data)
    _, share = interpolates(data)
    with style():
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
    return Drawing(caption, figure)


def _soft_labels(axis: Axes, n_raters: int) -> None:
    votes = np.arange(n_raters + 1)
    target = SMOOTHINGS["piecewise"](votes, n_raters)
    axis.plot([0, 1], [0, 1], color=QUIET, lw=0.8)
    axis.plot(votes / n_raters, target, color=INK, lw=1, drawstyle="default")
    axis.scatter(
        votes / n_raters, target, c=votes / n_raters, cmap="cividis", s=30, zorder=3, ec=INK, lw=0.6
    )
    axis.set_xlabel("share of votes, 1 - α")
    axis.set_ylabel("soft label")
    axis.set_xticks([0, 0.5, 1])
    axis.set_yticks([0, 0.5, 1])


def _before_after(axis: Axes, cell: Cell | None) -> None:
    axis.plot([0, 1], [0, 1], color=QUIET, lw=0.8)
    axis.set_xlabel("before")
    axis.set_ylabel("after")
    axis.set_xticks([0, 0.5, 1])
    axis.set_yticks([0, 0.5, 1])
    pairs = (
        [] if cell is None else [s for s in cell.seeds("scale") if ("none", s) in cell.predictions]
    )
    if cell is None or not pairs or len(cell.cases.classes) != 2:
        axis.text(0.5, 0.5, "no predictions", ha="center", va="center", color=QUIET)
        return
    rows = cell.predictions["none", pairs[0]].rows
    before, after = (cell.predictions[method, pairs[0]].p for method in ("none", "scale"))
    few = _some(len(rows))
    for label, colour in ((0, _NEGATIVE), (1, _POSITIVE)):
        here = cell.y[rows[few]] == label
        axis.plot(
            before[few][here],
            after[few][here],
            ls="",
            marker=".",
            ms=4,
            color=colour,
            alpha=0.5,
            mew=0,
        )


def figure_smoothing(evidence: Evidence) -> Drawing:
    """Show the three smoothing functions at the panel's size."""
    n_raters = max((data.n_raters for data in evidence.embeddings.values()), default=7)
    caption = (
        f"Soft label against the share of {n_raters} readers who chose the positive class, for the three "
        "smoothing functions with their defaults. Grey: the share itself."
    )
    votes = np.arange(n_raters + 1)
    with style():
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
    return Drawing(caption, figure)


def figure_map(evidence: Evidence) -> Drawing:
    """Map real cases, anchors and interpolates on the embeddings' two main axes."""
    caption = (
        "Principal components of the training embeddings. Left: real cases, coloured by the share of "
        "readers for the positive class (by the label where nobody voted). Right: the anchors and the "
        "interpolates between them, coloured by the share of votes they stand for."
    )
    found = _first(evidence)
    if found is None:
        return cannot(caption, _NO_EMBEDDINGS)
    cell, data = found
    X = np.asarray(data.X, dtype=np.float64)
    mean, axes_, explained = _principal(X, 2)
    if len(axes_) < 2:
        return cannot(caption, "the embeddings have one dimension only")
    made, share = interpolates(data)
    real, synthetic = (X - mean) @ axes_.T, (made - mean) @ axes_.T
    colour = data.y.astype(np.float64)
    if data.counts is not None:
        total = data.counts.sum(axis=1)
        colour = np.where(total > 0, data.counts[:, 1] / np.maximum(total, 1), colour)
    few = _some(len(real))
    with style():
        figure, axes = panels(2, (8.6, 3.7))
        left, right = axes[0]
        left.scatter(*real[few].T, c=colour[few], cmap="cividis", vmin=0, vmax=1, s=9, linewidths=0)
        right.plot(*real[few].T, ls="", marker=".", ms=2.5, color="#d4d4d4", mew=0, zorder=0)
        points = right.scatter(
            *synthetic.T, c=share, cmap="cividis", vmin=0, vmax=1, s=9, linewidths=0
        )
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
    return Drawing(caption, figure)
