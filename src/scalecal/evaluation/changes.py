"""Numbers of an evaluation by method and stratum: means over seeds, nulls, paired changes, shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.cases import BASELINE, Predictions
from scalecal.checks import Float, InputError
from scalecal.evaluation.scores import Nulls, Resampled
from scalecal.inference.paired import Contrast, contrast_of
from scalecal.metrics.columns import chosen
from scalecal.probes.methods import METHODS

if TYPE_CHECKING:
    import pandas as pd

CONTROL = "scale-shuffled"
REFERENCE = "vote-fraction"
"""Training on the votes themselves: the gain whose share the others recover."""

Row = dict[str, Any]
Changes = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Method -> stratum -> metric -> change against the baseline."""


def compared_metrics() -> list[str]:
    """Metrics of every method and stratum, as means over seeds."""
    return chosen(lambda metric: metric.compared)


def changed_metrics(stratum: str) -> list[str]:
    """Metrics whose changes against the baseline are computed: in strata, those that decide."""
    return chosen(
        lambda metric: (
            metric.compared
            and metric.resampled
            and metric.direction != "none"
            and (stratum == "overall" or metric.main)
        )
    )


def preset_of(cell: Predictions, method: str) -> str:
    """Preset a method was trained by in this run."""
    own = METHODS[method if method in METHODS else BASELINE].preset
    return str(cell.meta.get("preset") or own)


def method_rows(
    cell: Predictions, results: pd.DataFrame, nulls: Mapping[str, Nulls], changes: Changes
) -> list[Row]:
    """One row per method and stratum: means over seeds, floor, null band, changes."""
    grouped = results.groupby(["method", "stratum", "metric"], sort=False)
    mean: dict[Any, float] = grouped["value"].mean().to_dict()
    floor: dict[Any, float] = grouped["floor"].mean().to_dict()
    over_seeds: dict[Any, float] = grouped["value"].std(ddof=1).to_dict()
    out = []
    for method in cell.methods:
        index = cell.first(method).index
        for stratum in ("overall", *cell.stratum_names):
            at = (method, stratum, "ece")
            if at not in mean:
                continue
            drawn = [by_stratum.get(stratum) for by_stratum in nulls.get(method, {}).values()]
            row: Row = {
                "method": method,
                "stratum": stratum,
                "n": len(index[cell.inside(index, stratum)]),
                "seeds": len(cell.seeds(method)),
                "ece_sd": over_seeds[at],
                "floor": floor[at],
                **null_band(drawn),
            }
            if stratum == "overall":
                row["null"] = row["floor"]  # the same quantity, without the noise of draws
            for metric in compared_metrics():
                if (method, stratum, metric) in mean:
                    row[metric] = mean[method, stratum, metric]
            row["changes"] = changes.get(method, {}).get(stratum, {})
            out.append(row)
    return out


def null_band(by_seed: Sequence[Float | None]) -> dict[str, float]:
    """Mean, 5th and 95th percentile of each seed's null, averaged over the seeds that have one."""
    parts = [drawn for drawn in by_seed if drawn is not None and len(drawn)]
    if not parts:
        return dict.fromkeys(("null", "null_low", "null_high"), float("nan"))
    ends = np.mean([np.quantile(drawn, [0.05, 0.95]) for drawn in parts], axis=0)
    middle = float(np.mean([drawn.mean() for drawn in parts]))
    return {"null": middle, "null_low": float(ends[0]), "null_high": float(ends[1])}


def paired_changes(cell: Predictions, drawn: Resampled) -> Changes:
    """Every method's changes against the baseline: cases (or groups) resampled, means over seeds.

    `p` is the larger p-value of both kinds of noise, `sd` the change's spread over resamples, `units` what
    was resampled. Too few groups leave the difference alone.
    """
    base = cell.baseline
    out: Changes = {}
    for method in cell.methods:
        if not set(cell.seeds(method)) & set(cell.seeds(base)):
            continue
        out[method] = {}
        for stratum in ("overall", *cell.stratum_names):
            by_metric = {}
            for metric in changed_metrics(stratum):
                try:
                    a, b = (drawn.drawn(cell.encoder, m, stratum, metric) for m in (base, method))
                    change = contrast_of(a, b)
                except InputError:
                    continue  # not defined here: no votes, more than two classes, an empty stratum
                if np.isfinite(change.difference):
                    drawn_change = b.samples - a.samples
                    sd = float("nan")
                    if np.isfinite(drawn_change).any():
                        sd = float(np.nanstd(drawn_change, ddof=1))
                    by_metric[metric] = {**change_of(change), "sd": sd, "units": change.units}
            out[method][stratum] = by_metric
    return out


def change_of(change: Contrast) -> dict[str, float]:
    """A contrast as facts hold it."""
    return {
        "difference": change.difference,
        "low": change.low,
        "high": change.high,
        "p": change.p_value,
    }


def recovered(cell: Predictions, drawn: Resampled, method: str) -> Row:
    """Share of the gain of training on the votes that a method recovers, or why it has none."""
    why = ""
    if cell.cases.votes is None:
        why = "no votes"
    elif not {BASELINE, REFERENCE, method} <= set(cell.methods):
        why = f"{BASELINE}, {REFERENCE} and {method} were not all run"
    elif preset_of(cell, method) != preset_of(cell, BASELINE):
        why = f"trained by another preset than {BASELINE}, so the gain is not its own"
    if why:
        return {"share": None, "low": None, "high": None, "reason": why}
    share = drawn.recovered(method, REFERENCE, stratum="overall", metric="vote_nll")
    return {"share": share.share, "low": share.low, "high": share.high, "reason": share.reason}


def scale_contrasts(cell: Predictions, drawn: Resampled) -> dict[str, Any]:
    """SCALE against plain label smoothing, and against its negative control, where both were run."""
    metric = "vote_nll"
    if cell.cases.votes is None:
        metric = "nll"
    out = {}
    for name, rival in (("plain", "vanilla-ls"), ("control", CONTROL)):
        if {"scale", rival} <= set(cell.methods):
            contrast = drawn.contrast("scale", rival, metric=metric)
            out[name] = {**asdict(contrast), "p_value": contrast.p_value, "metric": metric}
    return out
