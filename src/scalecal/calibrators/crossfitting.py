"""Cross-fitting: a calibrator's answers on cases that it was not fitted to.

The cases are dealt to folds, by label and never through a group; each fold gets the answers of a
calibrator fitted to the others. What is measured on them is honest for a calibrator fitted to all.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
from sklearn.base import clone

from scalecal.calibrators.base import Calibrator
from scalecal.calibrators.panels import PanelCalibrator
from scalecal.cases import Answers, rows_of
from scalecal.checks import Float, InputError, Int
from scalecal.panel import probabilities
from scalecal.splits import folds

MAX_VOTED = 5_000
"""Cases whose votes a panel is fitted to at most: three numbers are known well enough then."""


def crossfit(
    calibrator: Calibrator,
    logits: Float,
    y: Int,
    fold: Int,
    *,
    votes: Int | None = None,
    panel_size: Int | None = None,
) -> tuple[Answers, Float]:
    """Return a calibrator's answers on every fold, fitted to the other folds.

    Parameters
    ----------
    calibrator
        Not fitted; it is cloned.
    logits, y
        (n,) or (n, C) logits and (n,) labels.
    fold
        (n,) number of each case's fold (`fold_numbers`).
    votes, panel_size
        (n, C) votes and (n,) readers behind each label, which the panel alone looks at.

    Returns
    -------
    The out-of-fold answers, in the form of the logits, whose `rho` is the mean over folds; and the rho of
    each fold.

    Examples
    --------
    >>> from scalecal.calibrators import PlattScaling
    >>> z, y = np.array([-2.0, -1.0, 1.0, 2.0] * 10), np.array([0, 1, 0, 1] * 10)
    >>> crossfit(PlattScaling(), z, y, fold_numbers(y))[0].p.shape
    (40,)
    """
    p, reader = np.empty_like(logits), np.empty_like(logits)
    rho = np.zeros(int(fold.max()) + 1)
    answered = isinstance(calibrator, PanelCalibrator)
    for k in range(len(rho)):
        rest, held = fold != k, fold == k
        fitted = fit_with_readers(
            clone(calibrator),
            logits[rest],
            y[rest],
            votes=rows_of(votes, rest),
            panel_size=rows_of(panel_size, rest),
            interval=False,
        )
        made = answers_of(fitted, logits[held], n_raters=rows_of(panel_size, held))
        p[held] = made.p
        answered = answered and made.p_reader is not None
        if answered:
            reader[held] = made.p_reader
            rho[k] = made.rho
    mean_rho = float(rho.mean())
    if not answered:
        return Answers(p, None, mean_rho), rho
    return Answers(p, reader, mean_rho), rho


def knows_readers(calibrator: Calibrator) -> TypeGuard[PanelCalibrator]:
    """Whether a fitted calibrator has a reader probability beside the label's."""
    return isinstance(calibrator, PanelCalibrator) and calibrator.panel_.knows_readers


def answers_of(
    calibrator: Calibrator | None,
    logits: Float,
    *,
    n_raters: Int | None = None,
    rows: Int | None = None,
) -> Answers:
    """Both answers of a fitted calibrator, in the form of the logits; `rows` as in `Answers`.

    Without a calibrator the answer is the probability of the logits themselves.
    """
    if calibrator is None:
        return Answers(probabilities(logits), rows=rows)
    columns: int | slice = slice(None)
    if logits.ndim == 1:
        columns = 1
    p = calibrator.predict_proba(logits, n_raters=n_raters)[:, columns]
    if knows_readers(calibrator):
        reader = calibrator.predict_reader_proba(logits)[:, columns]
        return Answers(p, reader, calibrator.panel_.rho, rows=rows)
    return Answers(p, rows=rows)


def fit_with_readers(
    calibrator: Calibrator,
    logits: Float,
    y: Int,
    *,
    votes: Int | None = None,
    panel_size: Int | None = None,
    groups: Int | None = None,
    interval: bool = True,
) -> Any:
    """Fit a calibrator in place, a panel with what is known of the readers and `groups` for its interval.

    Votes of at most `MAX_VOTED` cases are used, evenly over their order; the others enter by their label.
    """
    if not isinstance(calibrator, PanelCalibrator):
        return calibrator.fit(logits, y)
    if votes is not None:
        voted = np.flatnonzero(votes.sum(axis=1))
        if len(voted) > MAX_VOTED:
            kept = voted[np.linspace(0, len(voted) - 1, MAX_VOTED).astype(np.int64)]
            thinned = np.zeros_like(votes)
            thinned[kept] = votes[kept]
            votes = thinned
    known: dict[str, Any] = {"votes": votes, "panel_size": panel_size, "groups": groups}
    return calibrator.fit(logits, y, **known, interval=interval)


def fold_numbers(y: Int, n_folds: int = 5, *, groups: Int | None = None, seed: int = 0) -> Int:
    """Deal cases to folds by label and in whole groups; fewer folds where a class is rare.

    There are at most as many folds as cases (or groups) of the second most frequent class, so that every
    fit sees two classes.

    Examples
    --------
    >>> np.bincount(fold_numbers(np.array([0, 1] * 10))).tolist()
    [4, 4, 4, 4, 4]
    >>> int(fold_numbers(np.array([0, 0, 0, 0, 1, 1])).max()) + 1
    2
    """
    unit, what = groups, "groups"
    if unit is None:
        unit, what = np.arange(len(y)), "cases"
    sizes = sorted(len(np.unique(unit[y == c])) for c in np.unique(y))
    if len(sizes) < 2:
        raise InputError(
            f"every label of {len(y):,} cases is of one class: a calibrator needs cases of two or more"
        )
    if sizes[-2] < 2:
        raise InputError(
            f"only one class has two {what} or more: cross-fitting needs two of at least two classes, "
            f"got {len(y):,} cases in {len(np.unique(unit)):,} {what}"
        )
    return folds(y, min(n_folds, sizes[-2]), groups=groups, seed=seed)
