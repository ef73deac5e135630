"""Numbers of a cell: errors by method and stratum, null bands, and paired changes.

Where the run left a table of results its numbers are taken as they are. Intervals are never of ECE
itself: a band shows what a calibrated model would score, and an interval belongs to a difference
between two methods on the same cases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal import metrics
from scalecal.inference.selection import selection_null
from scalecal.metrics.arguments import read_hard_event
from scalecal.report.runs import Cell, Prediction
from scalecal.runs.resampled import Resampled
from scalecal.runs.scores import score_cell

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHANGES", "bins_of", "changes", "first_bands", "null_bands", "results", "with_remedies"]

CHANGES = ("ece", "nll", "vote_nll")
"""Metrics whose paired changes are shown."""

LEAST_DRAWS = 40
"""Resamples that each of several seeds has at least for its null band."""


def bins_of(cell: Cell) -> int:
    """Return the number of bins the run used for ECE."""
    given = cell.info.get("options", {}).get("n_bins")
    return int(given) if given else 15


def results(cell: Cell) -> pd.DataFrame:
    """Tidy results: method, seed, stratum, metric, value, floor; of the run, or computed here."""
    import pandas as pd

    found = cell.table("results.csv")
    if found is not None:
        found = found[found["method"].isin(cell.methods)].reset_index(drop=True)
    known = set() if found is None else set(found["method"].astype(str))
    missing = {m for m in cell.methods if m not in known}
    if found is not None and not missing:
        return found
    part = {key: given for key, given in cell.data.predictions.items() if key[0] in missing}
    made = score_cell(replace(cell.data, predictions=part), n_resamples=20)
    made = made[~made["metric"].isin(("null", "p_null"))].drop(columns=["dataset", "encoder"])
    return made if found is None else pd.concat([found, made], ignore_index=True)


def null_bands(cell: Cell, method: str, *, n_resamples: int) -> dict[str, dict[str, float]]:
    """Stratum -> mean, 5th and 95th percentile of the ECE a calibrated model would show there.

    Each is averaged over the method's seeds, which share the resamples, `LEAST_DRAWS` at least to each.
    """
    seeds = cell.predictions[method].values()
    share = max(min(n_resamples, LEAST_DRAWS), -(-n_resamples // len(seeds)))
    found = [_bands(cell, given, n_resamples=share) for given in seeds]
    out: dict[str, dict[str, float]] = {}
    for stratum in found[0]:
        out[stratum] = {}
        for key in found[0][stratum]:
            values = np.array([one[stratum][key] for one in found])
            # A seed whose test cases leave the stratum empty has no null there.
            values = values[np.isfinite(values)]
            out[stratum][key] = float(values.mean()) if len(values) else float("nan")
    return out


def first_bands(cell: Cell, method: str, *, n_resamples: int) -> dict[str, dict[str, float]]:
    """As `null_bands`, of the method's first seed alone."""
    return _bands(cell, cell.first(method)[1], n_resamples=n_resamples)


def _bands(cell: Cell, given: Prediction, *, n_resamples: int) -> dict[str, dict[str, float]]:
    """Null bands of one seed's predictions.

    Strata have the selection-aware null, since agreement and label come from the same votes.
    """
    event = read_hard_event(cell.y[given.rows], given.probs)
    options: dict[str, Any] = {"n_bins": bins_of(cell), "n_resamples": n_resamples, "seed": 0}
    bands = {"overall": _band(metrics.resampled_ece(event.p, **options))}
    if cell.strata:
        null = selection_null(
            event.y, event.p, cell.codes[given.rows], n_strata=len(cell.strata), **options
        )
        for j, stratum in enumerate(cell.strata):
            bands[stratum] = _band(null[:, j])
    return bands


def _band(drawn: Any) -> dict[str, float]:
    finite = drawn[np.isfinite(drawn)]
    if len(finite) == 0:
        return dict.fromkeys(("null", "null_low", "null_high"), float("nan"))
    low, high = np.quantile(finite, [0.05, 0.95])
    return {"null": float(finite.mean()), "null_low": float(low), "null_high": float(high)}


def changes(cell: Cell, *, n_resamples: int) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Method -> stratum -> metric -> change against the baseline, with its 95 % interval.

    By `scalecal.runs.resampled`: cases (groups, where there are any) are resampled, the same
    ones for all methods and seeds; values are means over seeds. `sd` is the change's spread over
    resamples.
    """
    others = [m for m in cell.methods if m != cell.baseline]
    if not others:
        return {}
    drawn = Resampled([cell.data], n_resamples=n_resamples)
    encoder = cell.data.encoder
    wanted = CHANGES if cell.counts is not None else CHANGES[:2]
    out: dict[str, dict[str, dict[str, dict[str, float]]]] = {m: {} for m in others}
    for stratum in ("overall", *cell.strata):
        if not cell.inside(cell.first(cell.baseline)[1].rows, stratum).any():
            continue
        for method in others:
            if not set(cell.data.seeds(method)) & set(cell.data.seeds(cell.baseline)):
                continue
            by_metric = {}
            for metric in wanted:
                found = drawn.contrast(method, cell.baseline, stratum=stratum, metric=metric)
                if not np.isfinite([found.difference, found.low, found.high]).all():
                    continue
                a, b = (drawn.drawn(encoder, m, stratum, metric) for m in (cell.baseline, method))
                by_metric[metric] = {
                    "difference": found.difference,
                    "low": found.low,
                    "high": found.high,
                    "sd": float(np.nanstd(b.samples - a.samples, ddof=1)),
                }
            out[method][stratum] = by_metric
    return out


def with_remedies(cell: Cell) -> Cell:
    """Add what could be done to predictions alone, where a run has one method only.

    A temperature, and with votes at hand half the jury map on top of it, both fitted on the other
    folds' cases so that their gain is not flattered.
    """
    if len(cell.methods) > 1:
        return cell
    import warnings

    from scipy.special import expit, softmax

    from scalecal.calibrators.base import as_logits
    from scalecal.calibrators.temperature import fit_temperature
    from scalecal.checks import ScalecalWarning
    from scalecal.jury import jury_logit

    _, given = cell.first(cell.baseline)
    y, logits = cell.y[given.rows], as_logits(given.probs)
    unit = given.rows if cell.groups is None else cell.groups[given.rows]
    fold = np.random.default_rng(0).permutation(int(unit.max()) + 1)[unit] % 5
    if min(np.bincount(fold, minlength=5)) < 10 or not np.isfinite(logits).all():
        return cell
    scaled = np.empty_like(logits)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ScalecalWarning)
            for k in range(5):
                rest = fold != k
                scaled[~rest] = logits[~rest] / fit_temperature(logits[rest], y[rest])
    except ScalecalWarning:
        return cell  # no temperature is defined in some fold, so none is offered

    def probs(z: Any) -> Any:
        return expit(z) if z.ndim == 1 else softmax(z, axis=1)

    added = {"temperature": Prediction(given.rows, probs(scaled))}
    how = {
        "temperature": "one temperature, fitted on four fifths of the cases and used on the fifth"
    }
    if cell.counts is not None and logits.ndim == 1:
        panel = cell.counts[given.rows].sum(axis=1)
        if panel.min() >= 3:
            soft = probs(jury_logit(scaled, panel, 0.5))
            added["temperature + half jury"] = Prediction(given.rows, soft)
            how["temperature + half jury"] = (
                "the same temperature, then half the step from the panel's majority to a single vote"
            )
    return cell.with_methods(added, how)
