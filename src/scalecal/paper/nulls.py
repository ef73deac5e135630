"""By how much low-agreement ECE exceeds high-agreement ECE, and what a calibrated model would show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from scalecal import metrics
from scalecal.checks import Float
from scalecal.inference.selection import selection_null
from scalecal.metrics.arguments import read_hard_event
from scalecal.runs.cells import Cell

__all__ = ["Excess", "low_over_high", "stratum_spread"]


@dataclass(frozen=True)
class Excess:
    """Low- minus high-agreement ECE, averaged over seeds, beside its null distribution."""

    difference: float
    null: float
    p_value: float
    n_low: int
    n_high: int


def low_over_high(
    cell: Cell,
    kind: Literal["noise", "selection"],
    *,
    method: str = "none",
    n_resamples: int = 500,
    seed: int = 0,
) -> Excess | None:
    """Compare the strata's difference with that of a calibrated model; None without both strata.

    "noise": labels are drawn from the predictions, strata stay as they are: finite numbers alone.
    "selection": strata are drawn anew with the labels (`selection_null`): finite numbers, and strata
    made from the same votes as the labels. The same random numbers serve every training seed, since
    its models meet the same cases; the null is that of the average over training seeds.
    """
    if not {"low", "high"} <= set(cell.stratum_names):
        return None
    low, high = (cell.stratum_names.index(name) for name in ("low", "high"))
    differences: list[float] = []
    nulls: list[Float] = []
    sizes: list[tuple[int, int]] = []
    for trained in cell.seeds(method):
        index, probs = cell.predictions[method, trained]
        event = read_hard_event(cell.y[index], probs)
        parts = [np.flatnonzero(cell.strata[index] == name) for name in ("low", "high")]
        if any(len(part) == 0 for part in parts):
            continue
        sizes.append((len(parts[0]), len(parts[1])))
        errors = [metrics.ece(event.y[part], event.p[part]) for part in parts]
        differences.append(errors[0] - errors[1])
        if kind == "noise":
            drawn = [
                metrics.resampled_ece(event.p[part], n_resamples=n_resamples, seed=seed + j)
                for j, part in enumerate(parts)
            ]
            nulls.append(drawn[0] - drawn[1])
        else:
            names = cell.stratum_names
            codes = np.full(len(index), -1)
            for j, name in enumerate(names):
                codes[cell.strata[index] == name] = j
            null = selection_null(
                event.y, event.p, codes, n_strata=len(names), n_resamples=n_resamples, seed=seed
            )
            nulls.append(null[:, low] - null[:, high])
    if not differences:
        return None
    observed, null_mean = float(np.mean(differences)), np.mean(nulls, axis=0)
    finite = null_mean[np.isfinite(null_mean)]
    if len(finite) == 0:
        return None
    p = (1 + float((finite >= observed).sum())) / (len(finite) + 1)
    n_low, n_high = (max(size[j] for size in sizes) for j in (0, 1))
    return Excess(observed, float(finite.mean()), p, n_low, n_high)


def stratum_spread(
    cell: Cell, stratum: str, *, method: str = "none", n_resamples: int = 200, seed: int = 0
) -> tuple[float, float, float, int]:
    """ECE of a stratum averaged over seeds, its floor, the null's spread, and the number of cases."""
    errors, drawn, n = [], [], 0
    for trained in cell.seeds(method):
        index, probs = cell.predictions[method, trained]
        inside = cell.inside(index, stratum)
        if len(index[inside]) == 0:
            continue
        event = read_hard_event(cell.y[index[inside]], probs[inside])
        errors.append(metrics.ece(event.y, event.p))
        drawn.append(metrics.resampled_ece(event.p, n_resamples=n_resamples, seed=seed))
        n = max(n, len(event.p))
    if not errors:
        return float("nan"), float("nan"), float("nan"), 0
    null = np.mean(drawn, axis=0)
    return float(np.mean(errors)), float(null.mean()), float(null.std()), n
