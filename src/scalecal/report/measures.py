"""Numbers of a cell: errors by method and stratum, null bands, and paired changes.

Where the run left a table of results its numbers are taken as they are. Intervals are never of ECE
itself: a band shows what a calibrated model would score, and an interval belongs to a difference
between two methods on the same cases.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal import metrics
from scalecal.checks import Float
from scalecal.metrics.arguments import read_hard_event
from scalecal.report.runs import Cell, Prediction
from scalecal.resampling import Units, interval, weights
from scalecal.scoring import case_sums, sum_values
from scalecal.selection import selection_null

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHANGES", "bins_of", "changes", "null_bands", "results", "with_remedies"]

CHANGES = {"ece": "ece", "nll": "log_loss", "vote_nll": "vote_nll"}
"""Metrics whose paired changes are shown: name in the results -> name in `scoring`."""


def bins_of(cell: Cell) -> int:
    """Return the number of bins the run used for ECE."""
    given = cell.info.get("options", {}).get("n_bins")
    return int(given) if given else 15


def results(cell: Cell) -> pd.DataFrame:
    """Tidy results: method, seed, stratum, metric, value, floor; of the run, or computed here."""
    import pandas as pd

    found = cell.table("results.csv")
    if found is not None:
        known = set(found["method"].astype(str))
        missing = [m for m in cell.methods if m not in known]
        if not missing:
            return found
        return pd.concat([found, pd.DataFrame(_rows(cell, missing))], ignore_index=True)
    return pd.DataFrame(_rows(cell, list(cell.methods)))


def _rows(cell: Cell, methods: list[str]) -> list[dict[str, Any]]:
    n_bins = bins_of(cell)
    out: list[dict[str, Any]] = []
    for method in methods:
        for seed, given in cell.predictions[method].items():
            for stratum in ("overall", *cell.strata):
                inside = cell.inside(given.rows, stratum)
                if not inside.any():
                    continue
                rows, p = given.rows[inside], given.probs[inside]
                for metric, (value, floor) in _scores(cell, rows, p, n_bins).items():
                    out.append(
                        {
                            "method": method,
                            "seed": seed,
                            "stratum": stratum,
                            "metric": metric,
                            "value": value,
                            "floor": floor,
                        }
                    )
    return out


def _scores(cell: Cell, rows: Any, p: Any, n_bins: int) -> dict[str, tuple[float, float]]:
    y = cell.y[rows]
    nan = float("nan")
    out = {
        "ece": (metrics.ece(y, p, n_bins=n_bins), metrics.noise_floor(p, n_bins=n_bins)),
        "nll": (metrics.log_loss(y, p), nan),
        "brier": (metrics.brier(y, p), nan),
        "accuracy": (metrics.accuracy(y, p), nan),
    }
    if p.ndim == 1 and 0 < y.sum() < len(y):
        out["auc"] = (metrics.auc(y, p), nan)
    if cell.counts is not None and (cell.counts[rows].sum(axis=1) > 0).all():
        out["vote_nll"] = (metrics.vote_nll(cell.counts[rows], p), nan)
    return out


def null_bands(cell: Cell, method: str, *, n_resamples: int) -> dict[str, dict[str, float]]:
    """Stratum -> mean, 5th and 95th percentile of the ECE a calibrated model would show there.

    For the method's first seed. Strata have the selection-aware null, since agreement and label
    come from the same votes.
    """
    _, given = cell.first(method)
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

    Cases (groups, where there are any) are resampled, the same ones for both methods and all seeds;
    values are means over the seeds that both have.
    """
    base = cell.predictions[cell.baseline]
    units = Units.of(len(cell.y), groups=cell.groups)
    others = [m for m in cell.methods if m != cell.baseline]
    out: dict[str, dict[str, dict[str, dict[str, float]]]] = {m: {} for m in others}
    for stratum in ("overall", *cell.strata):
        before = {s: _drawn(cell, given, stratum, units, n_resamples) for s, given in base.items()}
        for method in others:
            pairs = [
                (before[s], _drawn(cell, given, stratum, units, n_resamples))
                for s, given in cell.predictions[method].items()
                if before.get(s)
            ]
            pairs = [(a, b) for a, b in pairs if b]
            if pairs:
                out[method][stratum] = _change(pairs)
    return out


def _drawn(
    cell: Cell, given: Prediction, stratum: str, units: Units, n_resamples: int
) -> dict[str, Any]:
    """Metrics of one stratum: the value itself first, then those of the resampled cases."""
    inside = cell.inside(given.rows, stratum)
    if not inside.any():
        return {}
    rows, p = given.rows[inside], given.probs[inside]
    counts = None if cell.counts is None else cell.counts[rows]
    found = case_sums(cell.y[rows], p, counts, units=units.within(rows), n_bins=bins_of(cell))
    keys = [k for k in ("n", "bins", "log_loss", "voted", "vote_nll") if k in found]
    matrix = np.concatenate([found[k] for k in keys], axis=1)
    # One seed for all: the same draws, hence paired comparisons.
    drawn = _weights(units.count, n_resamples) @ matrix
    edges = np.cumsum([found[k].shape[1] for k in keys])[:-1]
    values = sum_values(dict(zip(keys, np.split(drawn, edges, axis=1), strict=True)))
    return {name: values[key] for name, key in CHANGES.items() if key in values}


@lru_cache(maxsize=2)
def _weights(n_units: int, n_resamples: int) -> Float:
    """Return how often each unit was drawn, (1 + n_resamples, n_units); first the cases as they are."""
    drawn = weights(n_units, n_resamples, np.random.default_rng(0))
    return np.concatenate([np.ones((1, n_units)), *drawn])


def _change(
    pairs: list[tuple[dict[str, Any], dict[str, Any]]],
) -> dict[str, dict[str, float]]:
    out = {}
    for name in CHANGES:
        if any(name not in part for pair in pairs for part in pair):
            continue
        both = np.mean([b[name] - a[name] for a, b in pairs], axis=0)
        difference, samples = float(both[0]), both[1:]
        finite = samples[np.isfinite(samples)]
        if len(finite) < 2 or not np.isfinite(difference):
            continue
        # Resampled cases repeat, which adds to either ECE what it adds to the floor, and not the same
        # to both. The spread is right and the centre is not: put it back on the difference itself.
        low, high = interval(finite - finite.mean() + difference)
        sd = float(finite.std(ddof=1))
        out[name] = {"difference": difference, "low": low, "high": high, "sd": sd}
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

    seed, given = cell.first(cell.baseline)
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

    added = {"temperature": {seed: Prediction(given.rows, probs(scaled))}}
    how = {
        "temperature": "one temperature, fitted on four fifths of the cases and used on the fifth"
    }
    if cell.counts is not None and logits.ndim == 1:
        panel = cell.counts[given.rows].sum(axis=1)
        if panel.min() >= 3:
            soft = probs(jury_logit(scaled, panel, 0.5))
            added["temperature + half jury"] = {seed: Prediction(given.rows, soft)}
            how["temperature + half jury"] = (
                "the same temperature, then half the step from the panel's majority to a single vote"
            )
    return cell.with_methods(added, how)
