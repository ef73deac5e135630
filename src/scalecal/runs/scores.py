"""Every number of every method, seed and stratum: the tidy results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal import metrics
from scalecal.auditing.scores import case_sums, sum_values
from scalecal.checks import Float, Int
from scalecal.inference.selection import selection_null
from scalecal.inference.units import Units
from scalecal.metrics.arguments import read_hard_event
from scalecal.runs.cells import BASELINE, Cell, Prediction

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "entropy", "score_cell", "score_cells"]

COLUMNS = ("dataset", "encoder", "method", "seed", "stratum", "metric", "value", "floor")

_KEPT = ("ece", "nll", "brier", "auc", "accuracy", "vote_nll", "vote_error", "dist_ce")


def entropy(probs: Float) -> Float:
    """Entropy of each case's predicted distribution, in nats.

    Examples
    --------
    >>> entropy(np.array([0.5, 1.0])).round(4).tolist()
    [0.6931, 0.0]
    """
    table = np.stack([1.0 - probs, probs], axis=-1) if probs.ndim == 1 else probs
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(-np.where(table > 0, table * np.log(table), 0.0).sum(axis=-1)) + 0.0


def _score(
    y: Int, probs: Float, counts: Int | None, *, brief: bool
) -> dict[str, tuple[float, float]]:
    """Metric -> (value, floor) of some cases; the floor is NaN where a metric has none."""
    nan = float("nan")
    whole = Units(np.zeros(len(y), dtype=np.int64), 1)
    sums = sum_values(case_sums(y, probs, counts, units=whole))
    out = {k: (float(sums[k][0]), nan) for k in _KEPT if k in sums}
    out["ece"] = (out["ece"][0], metrics.noise_floor(probs))
    out["entropy"] = (float(entropy(probs).mean()), nan)
    out["n"] = (float(len(y)), nan)
    if brief:
        return out
    debiased = metrics.debiased_error(y, probs) if len(y) > 1 else nan
    out["debiased_error"] = (float(debiased), 0.0)
    out["smece"] = (metrics.smece(y, probs), nan)
    out["aurc"] = (metrics.aurc(y, probs), nan)
    return out


def _null(cell: Cell, part: Prediction, n_resamples: int) -> Iterator[tuple[str, float, float]]:
    """Selection-aware null of every stratum: name, mean, p-value."""
    names = cell.stratum_names
    event = read_hard_event(cell.y[part.rows], part.p)
    codes = cell.codes[part.rows]
    drawn = selection_null(event.y, event.p, codes, n_strata=len(names), n_resamples=n_resamples)
    for j, name in enumerate(names):
        inside = codes == j
        finite = drawn[np.isfinite(drawn[:, j]), j]
        if not inside.any() or len(finite) == 0:
            continue
        seen = metrics.ece(event.y[inside], event.p[inside])
        p = (1 + float((finite >= seen).sum())) / (len(finite) + 1)
        yield name, float(finite.mean()), p


def score_cell(cell: Cell, *, n_resamples: int = 200) -> pd.DataFrame:
    """Score every method, seed and stratum of a cell.

    Parameters
    ----------
    n_resamples
        For the selection-aware null, which is drawn for the uncalibrated method alone.

    Returns
    -------
    DataFrame with the columns `COLUMNS`, one row per number. `floor` is what a calibrated model would
    show on average (for `ece`), NaN where a metric has no floor.

    Examples
    --------
    >>> from scalecal.cases import Cases
    >>> cases = Cases(n=3, classes=("no", "yes"), y=np.array([0, 1, 1]))
    >>> cell = Cell("toy", "raw", cases,
    ...             {("none", 0): Prediction(np.arange(3), np.array([0.0, 1.0, 0.7]))})
    >>> results = score_cell(cell).set_index("metric")
    >>> round(float(results.loc["ece", "value"]), 4)
    0.1
    """
    import pandas as pd

    lines: list[tuple[Any, ...]] = []
    for (method, seed), part in cell.predictions.items():
        head = (cell.dataset, cell.encoder, method, seed)
        for stratum in ("overall", *cell.stratum_names):
            inside = part.take(cell.inside(part.rows, stratum))
            here = inside.rows
            if len(here) == 0:
                continue
            votes = None if cell.cases.votes is None else cell.cases.votes[here]
            # Points of a sweep need no more than sums over cases.
            found = _score(cell.y[here], inside.p, votes, brief=method in cell.variants)
            for metric, (value, floor) in found.items():
                lines.append((*head, stratum, metric, value, floor))
        if method == BASELINE and cell.stratum_names and len(part.rows):
            for stratum, mean, p_value in _null(cell, part, n_resamples):
                lines.append((*head, stratum, "null", mean, float("nan")))
                lines.append((*head, stratum, "p_null", p_value, float("nan")))
    return pd.DataFrame(lines, columns=list(COLUMNS))


def score_cells(cells: Iterable[Cell], *, n_resamples: int = 200) -> pd.DataFrame:
    """Score several cells into one frame."""
    import pandas as pd

    frames = [score_cell(cell, n_resamples=n_resamples) for cell in cells]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))
