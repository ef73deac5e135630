"""The estimation error of the calibrator that is kept: how far other samples would have taken it.

Cross-fitted answers come from calibrators fitted to different folds. Pooled, their errors cancel, and
none of them is the calibrator that new cases get. Here the cases (or groups) are resampled; each resample
chooses by the cross-fitted losses of its cases, as all cases did, and the calibrator refitted to it is
compared on the cases themselves with the one that is kept. So the variation includes the choice (Efron,
2014, JASA 109).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from scalecal.calibrators import Calibrator
from scalecal.calibrators.panels import PanelCalibrator
from scalecal.cases import Answers
from scalecal.checks import Float, InputError, Int, ScalecalWarning, as_rng
from scalecal.inference.units import weights
from scalecal.metrics.arguments import as_table, read_sample
from scalecal.metrics.label_scores import nll_term

if TYPE_CHECKING:
    from scalecal.evaluation.candidates import Material

DRAWS = 40
"""Resamples to which a calibrator is refitted."""

MIN_DRAWS = 15
"""Refits below which the estimation error is unknown: the other resamples could not be fitted."""

SLOW_DRAWS = 20
"""Resamples where each refit is slow."""

QUANTILE = 0.95
"""Quantile of the squared distance that is added to the squared typical error."""

MEMORISING = ("isotonic", "histogram")
"""Calibrators with as many steps as the cases ask for: only other cases show how good they are."""


@dataclass(frozen=True)
class EstimationError:
    """Estimation error of a kept calibrator; NaN where too few resamples could be fitted.

    Attributes
    ----------
    squared
        Upper quantile of the mean squared distance between refitted and kept probabilities.
    loss_sd
        Standard deviation that it adds to the error of a cross-fitted change of the label NLL.
    draws
        Resamples that could be fitted.
    """

    squared: float
    loss_sd: float
    draws: int


def estimation_error(
    data: Material,
    labels: Mapping[str, Calibrator],
    answers: Mapping[str, Answers],
    kept: Calibrator,
    *,
    seed: int,
    draws: int = DRAWS,
) -> EstimationError:
    """Estimate the estimation error of a calibrator by refitting it to resampled cases or groups.

    With k parameters the kept calibrator's loss on new cases exceeds the least by :math:`X / 2n`, where X has
    k degrees of freedom, and the cross-fitted loss falls short of the expected one by as much, from the
    same draw: their difference has twice the spread that the refitted losses show.

    Parameters
    ----------
    data
        The cases.
    labels, answers
        Unfitted calibrators that were tried, and their cross-fitted answers, by name.
    kept
        The calibrator that was fitted to all cases.
    seed, draws
        Of the resamples.
    """
    y = data.cases.labels
    unit = np.arange(len(y))
    if data.cases.group_codes is not None:
        unit = np.unique(data.cases.group_codes, return_inverse=True)[1]
    n_units = int(unit.max()) + 1
    names = list(answers)
    losses = [_losses(y, answers[name].p) for name in names]
    by_unit = np.column_stack([np.bincount(unit, loss, n_units) for loss in losses])
    if data.p.ndim == 2 and isinstance(kept, PanelCalibrator):
        # A fit of the panel to several classes takes as long as all other candidates together.
        draws = min(draws, SLOW_DRAWS)
    times = np.concatenate(list(weights(n_units, draws, as_rng(seed))))
    chosen = (times @ by_unit).argmin(axis=1)
    own = data.answered(kept)
    top = as_table(own).argmax(axis=1)
    least = float(_losses(y, own).mean())
    squares, above = [], []
    for choice, drawn in zip(chosen, times.astype(np.int64), strict=True):
        rows = np.repeat(np.arange(len(y)), drawn[unit])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ScalecalWarning)
                refitted = data.take(rows).fit(clone(labels[names[choice]]), interval=False)
        except InputError:  # one class only, say
            continue
        other = data.answered(refitted)
        # Of several classes the error is that of the predicted class, as in the audit.
        apart = as_table(other) - as_table(own)
        squares.append(float((apart[np.arange(len(y)), top] ** 2).mean()))
        above.append(float(_losses(y, other).mean()) - least)
    if len(squares) < MIN_DRAWS:
        return EstimationError(float("nan"), float("nan"), len(squares))
    # A bootstrap of G units has a variance smaller by 1 / G.
    unbiased = n_units / max(n_units - 1, 1)
    return EstimationError(
        unbiased * float(np.quantile(squares, QUANTILE)),
        2.0 * unbiased * float(np.std(above, ddof=1)),
        len(squares),
    )


def _losses(y: Int, p: Float) -> Float:
    """Log loss of each case."""
    return nll_term(read_sample(y, p, None))
