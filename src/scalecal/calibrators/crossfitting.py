"""Cross-fitting: a calibrator's answers on cases that it was not fitted to.

The cases are dealt to folds, by label and never through a group; each fold gets the answers of a
calibrator fitted to the others. What is measured on them is honest for a calibrator fitted to all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from scalecal.calibrators.base import Calibrator
from scalecal.calibrators.panels import PanelCalibrator
from scalecal.cases import Answers
from scalecal.checks import Float, InputError, Int
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
    column = 1 if logits.ndim == 1 else slice(None)
    p, reader = np.empty_like(logits), np.empty_like(logits)
    rho = np.zeros(int(fold.max()) + 1)
    answered = isinstance(calibrator, PanelCalibrator)
    for k in range(len(rho)):
        rest, here = fold != k, fold == k
        fitted = fit_with_readers(
            clone(calibrator),
            logits[rest],
            y[rest],
            votes=None if votes is None else votes[rest],
            panel_size=None if panel_size is None else panel_size[rest],
            interval=False,
        )
        m = None if panel_size is None else panel_size[here]
        p[here] = fitted.predict_proba(logits[here], n_raters=m)[:, column]
        answered = answered and fitted.panel_.knows_readers
        if answered:
            reader[here] = fitted.predict_reader_proba(logits[here])[:, column]
            rho[k] = fitted.panel_.rho
    return Answers(p, reader if answered else None, float(rho.mean())), rho


def fit_with_readers(
    calibrator: Calibrator,
    logits: Float,
    y: Int,
    *,
    votes: Int | None = None,
    panel_size: Int | None = None,
    interval: bool = True,
) -> Any:
    """Fit a calibrator in place, a panel with what is known of the readers.

    Votes of at most `MAX_VOTED` cases are used, evenly over their order; the others enter by their label.
    """
    if isinstance(calibrator, PanelCalibrator):
        voted = np.zeros(0) if votes is None else np.flatnonzero(votes.sum(axis=1))
        if votes is not None and len(voted) > MAX_VOTED:
            kept = voted[np.linspace(0, len(voted) - 1, MAX_VOTED).astype(np.int64)]
            thinned = np.zeros_like(votes)
            thinned[kept] = votes[kept]
            votes = thinned
        return calibrator.fit(logits, y, votes=votes, panel_size=panel_size, interval=interval)
    return calibrator.fit(logits, y)


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
    unit = np.arange(len(y)) if groups is None else groups
    sizes = sorted(len(np.unique(unit[y == c])) for c in np.unique(y))
    what = "cases" if groups is None else "groups"
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
