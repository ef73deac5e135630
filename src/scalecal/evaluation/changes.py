"""Numbers of an evaluation by method and stratum: means over seeds, nulls, paired changes, shares.

Every comparison on the same cases is made here: methods with the baseline, models with the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtr

from scalecal.cases import BASELINE, Predictions
from scalecal.checks import Float, InputError
from scalecal.evaluation.scores import Nulls, Resampled
from scalecal.inference.paired import Contrast, contrast_of
from scalecal.inference.units import student_error
from scalecal.metrics import METRICS, holm
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
    record = METHODS.get(method, METHODS[BASELINE])
    return str(cell.meta.get("preset") or record.preset)


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


def _paired(
    cell: Predictions, drawn: Resampled, method: str, stratum: str, metric: str
) -> tuple[Contrast, Float] | None:
    """A method against the baseline, and their difference in every resample; None where undefined."""
    try:
        a, b = (drawn.drawn(cell.encoder, m, stratum, metric) for m in (cell.baseline, method))
        return contrast_of(a, b), b.samples - a.samples
    except InputError:  # no votes, more than two classes, an empty stratum, no seed in common
        return None


def paired_changes(cell: Predictions, drawn: Resampled) -> Changes:
    """Every method's changes against the baseline: cases (or groups) resampled, means over seeds.

    `p` is the larger p-value of both kinds of noise, `sd` the change's spread over resamples, `units` what
    was resampled. Too few groups leave the difference alone.
    """
    out: Changes = {}
    for method in cell.methods:
        if not set(cell.seeds(method)) & set(cell.seeds(cell.baseline)):
            continue
        out[method] = {}
        for stratum in ("overall", *cell.stratum_names):
            by_metric = {}
            for metric in changed_metrics(stratum):
                paired = _paired(cell, drawn, method, stratum, metric)
                if paired is None or not np.isfinite(paired[0].difference):
                    continue
                change, resampled = paired
                sd = float("nan")
                if np.isfinite(resampled).any():
                    sd = float(np.nanstd(resampled, ddof=1))
                by_metric[metric] = {**change_of(change), "sd": sd, "units": change.units}
            out[method][stratum] = by_metric
    return out


def differing_metrics() -> list[str]:
    """Metrics by which models are compared, those that are tested first."""
    tested = chosen(lambda metric: metric.tested)
    others = chosen(lambda metric: metric.resampled and metric.in_audit and not metric.tested)
    return [*tested, *others]


def differences(cell: Predictions, drawn: Resampled) -> list[Row]:
    """Differences of all models to the baseline, by stratum and metric, each with its paired bootstrap.

    Differences of the same cases share those cases' noise, so that a bootstrap of them is sound even
    for ECE, whose own bootstrap is not. Rows hold model, stratum, metric, n, a (the baseline's value), b (the
    model's), difference (b - a), low, high, p_value, and p_holm, which is adjusted over all models for
    the tested metrics (over all cases and in strata apart) and is NaN for the others.
    """
    out: list[Row] = []
    families: dict[bool, list[Row]] = {True: [], False: []}
    for model in cell.methods:
        if model == cell.baseline:
            continue
        for stratum in ("overall", *cell.stratum_names):
            for metric in differing_metrics():
                paired = _paired(cell, drawn, model, stratum, metric)
                if paired is None:
                    continue
                change, resampled = paired
                row: Row = {
                    "model": model,
                    "stratum": stratum,
                    "metric": metric,
                    "n": change.n,
                    "a": change.reference,
                    "b": change.value,
                    "difference": change.difference,
                    "low": change.low,
                    "high": change.high,
                    "p_value": change.p_cases,
                    "p_holm": float("nan"),
                }
                out.append(row)
                if METRICS[metric].tested:
                    row["p_holm"] = _tail(resampled, change.p_cases, change.units)
                    families[stratum == "overall"].append(row)
    for rows in families.values():
        adjusted = holm([row["p_holm"] for row in rows] or [float("nan")])
        for row, p in zip(rows, adjusted, strict=False):
            row["p_holm"] = float(p)
    return out


def _tail(samples: Float, p: float, units: int) -> float:
    """A p-value that holds far in the tail too: by Student's t from the spread of the resamples.

    Counts of R resamples end at 2 / (R + 1), which Holm's rule would multiply above any level, and have
    the tails of a normal law, too thin for few units. Of a count that did not end the larger p is taken.
    """
    known = samples[np.isfinite(samples)]
    if not len(known):
        return p
    error, degrees = student_error(float(known.std(ddof=1)), units)
    if not error > 0:
        return p
    by_t = 2.0 * float(stdtr(degrees, -abs(known.mean()) / error))
    if p > 2.0 / (len(known) + 1):
        return max(p, by_t)
    return by_t


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
