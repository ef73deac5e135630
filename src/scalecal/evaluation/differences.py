"""Models on the same cases: every difference to the first, paired."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import stdtr

from scalecal.cases import Predictions
from scalecal.checks import Float, InputError
from scalecal.evaluation.scores import Resampled
from scalecal.inference.paired import contrast_of
from scalecal.inference.units import student_error
from scalecal.metrics import METRICS, holm
from scalecal.metrics.columns import chosen

Row = dict[str, Any]


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
    base = cell.baseline
    out: list[Row] = []
    for model in (m for m in cell.methods if m != base):
        for stratum in ("overall", *cell.stratum_names):
            for metric in differing_metrics():
                try:
                    first, own = (
                        drawn.drawn(cell.encoder, m, stratum, metric) for m in (base, model)
                    )
                except InputError:
                    continue  # not defined here: no votes, more than two classes
                change = contrast_of(first, own)
                out.append(
                    {
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
                        "p_holm": _tail(own.samples - first.samples, change.p_cases, change.units),
                    }
                )
    tested = [r for r in out if METRICS[r["metric"]].tested]
    for family in (True, False):
        rows = [r for r in tested if (r["stratum"] == "overall") == family]
        for row, p in zip(rows, holm([r["p_holm"] for r in rows]) if rows else [], strict=True):
            row["p_holm"] = float(p)
    for row in out:
        if not METRICS[row["metric"]].tested:
            row["p_holm"] = float("nan")
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
    return max(p, by_t) if p > 2.0 / (len(known) + 1) else by_t
