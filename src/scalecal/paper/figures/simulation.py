"""Figure of the simulation study: distance to both truths as one thing at a time is varied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from scalecal.auditing.plots import INK, QUIET, style
from scalecal.paper.figures.marks import mark_of, panels
from scalecal.paper.simulation import FACTORS, Setting

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["SHOWN", "figure_simulation"]

SHOWN = (
    "none",
    "temperature",
    "vanilla-ls",
    "scale",
    "scale-default",
    "half-jury",
    "jury",
    "vote-fraction",
)
"""Methods drawn, where the study has them; all would hide each other."""

_ROWS = {
    "vote_distance": "distance to the\ntrue vote probability",
    "label_error": "true calibration error\nof the label",
}
_SPREAD_OUT = ("dim", "n_raters", "n_train")


def figure_simulation(summary: pd.DataFrame, settings: Mapping[str, Setting]) -> Figure:
    """Draw each factor's sweep: one column per factor, one row per truth.

    Above, the mean distance to the true probability of a vote; below, the true calibration error of
    the label's probability; dashed, a model that is perfect for the other target.

    Parameters
    ----------
    summary
        As `scalecal.paper.simulation_text.summarise` gives it.
    settings
        The settings behind it.
    """
    first = next(iter(settings.values()))
    sweeps = {}
    for factor in FACTORS:
        names = [
            n
            for n, s in settings.items()
            if replace(s, **{factor: getattr(first, factor)}) == first
        ]
        if len(names) > 1:
            sweeps[factor] = sorted(names, key=lambda n: float(getattr(settings[n], factor)))
    if not sweeps:
        sweeps = {"auc": list(settings)[:1]}
    means = summary.set_index(["setting", "method", "metric"])["mean"].to_dict()
    methods = [m for m in SHOWN if m in set(summary["method"])]
    with style():
        figure, axes = panels(len(sweeps), (2.4 * len(sweeps) + 0.8, 5.2), rows=len(_ROWS))
        for row, (score, title) in enumerate(_ROWS.items()):
            for axis, (factor, names) in zip(axes[row], sweeps.items(), strict=True):
                x = [float(getattr(settings[n], factor)) for n in names]
                truth = "true-label" if score == "vote_distance" else "true-vote"
                y = [means[n, truth, score] for n in names]
                axis.plot(x, y, color=QUIET, ls="--", lw=1.2, label=f"{truth} (a perfect model)")
                for method in methods:
                    y = [means[n, method, score] for n in names]
                    mark = mark_of(method)
                    axis.plot(x, y, lw=0.9, label=method, **mark.options(5.0))
                if factor in _SPREAD_OUT:
                    axis.set_xscale("log")
                    axis.minorticks_off()
                axis.set_xticks(x, [f"{v:g}" for v in x])
                axis.set_ylim(bottom=0.0)
                if row == len(_ROWS) - 1:
                    axis.set_xlabel(FACTORS[factor], color=INK)
            axes[row, 0].set_ylabel(title)
            top = max(axis.get_ylim()[1] for axis in axes[row])
            for axis in axes[row]:
                axis.set_ylim(0.0, top)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        dashed = {"true-label (a perfect model)": "perfect model of the other target"}
        figure.legend(
            handles,
            [dashed.get(label, label) for label in labels],
            loc="outside upper left",
            ncols=int(np.ceil(len(labels) / 2)),
            fontsize=8,
        )
    return figure
