"""From a trained probe to a method's answers: its calibrator, and what is known of the readers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.base import clone

from scalecal import metrics
from scalecal.calibrators import Calibrator, PanelCalibrator
from scalecal.cases import Cases, Features
from scalecal.checks import Float, InputError, Int
from scalecal.inference.units import NORMAL_95
from scalecal.panel import probabilities
from scalecal.probes import CrossFit, Trained
from scalecal.probes.methods import Method
from scalecal.readers import Readers


def why_not(method: Method, cases: Cases, readers: Readers) -> str:
    """Why a method cannot be run on these cases; "" where it can."""
    panel = readers.usual(cases)
    if method.needs_votes and cases.votes is None:
        return "it needs readers' votes"
    if method.needs_panel and (panel is None or panel < 2):
        return (
            "it needs to know how many readers, two or more, are behind each label (--panel-size)"
        )
    if method.needs_panel and method.readers == "published" and readers.published(cases)[0] is None:
        return "it needs the readers' kappa (--kappa), or votes to take it from"
    if len(cases.classes) > 2 and any(r.smoothing == "confidence" for r in method.recipes()):
        return "it is for two classes"
    return ""


def fit_calibrator(
    method: Method,
    data: Features,
    rows: Int,
    logits: Float,
    readers: Readers,
    *,
    votes: Int | None = None,
    interval: bool = True,
) -> Calibrator | None:
    """Fit a method's calibrator to out-of-sample logits of some rows; None where it has none.

    `votes` (rows, C) replace those of the cases, for fewer of them; `interval` is whether rho gets one.
    """
    if method.calibrator is None:
        return None
    cases = data.cases.take(rows)
    fitted: Calibrator = clone(method.calibrator)
    # No other calibrator looks at readers.
    if not isinstance(fitted, PanelCalibrator):
        return fitted.fit(logits, cases.labels)
    sizes = readers.behind(cases)
    if method.readers != "votes":
        votes = None
    elif votes is None:
        votes = cases.votes
    if method.readers == "published" and sizes is not None:
        kappa, share = readers.published(cases)
        if kappa is not None:
            fitted.set_params(kappa=kappa, vote_share=share)
    return fitted.fit(logits, cases.labels, votes=votes, panel_size=sizes, interval=interval)


def held_out(probe: Trained, val: Int | None) -> Int | None:
    """Rows that no weight was trained on: the validation part given, or what the training held out."""
    if val is None:
        return probe.validation
    return val


def out_of_sample(
    probe: Trained,
    data: Features,
    val: Int | None,
    again: tuple[CrossFit, Sequence[Trained]] | None,
) -> tuple[Int, Float]:
    """Rows a calibrator may be fitted to, with their logits: cross-fitted, or of the validation part."""
    if again is not None:
        cross, parts = again
        return cross.job.rows, cross.logits(data.X, parts)
    rows = held_out(probe, val)
    if rows is None:
        raise InputError(
            "too few training cases to hold out a validation part for the calibrator: "
            "give one (split = 'val'), or more cases"
        )
    return rows, probe.logits(data.X, rows)


MAX_ERROR = 0.1
"""Standard error of an AUC at chance above which it tells nothing about the labels."""

USEFUL_AUC = 0.7
"""An AUC that aligned labels may well have: while it is not excluded, chance is not suspected."""


def chance_note(y: Int, logits: Float) -> str:
    """Say that held-out cases are ranked no better than by chance; "" where they are, or are too few.

    It is said where the 95 % interval holds 0.5 and ends below 0.7. The interval is of the AUC of scores
    that know nothing of the labels, moved to the AUC found: with m positive and n negative cases its
    variance is (m + n + 1) / (12 m n) (Mann and Whitney, 1947). Of more than two classes the AUC is the
    mean of each against the rest, and the variance that of the rarest.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> chance_note(np.arange(400) % 2, rng.normal(size=400))[:72]
    'AUC on the 400 cases held out of training is 0.53, no better than chance'
    >>> chance_note(np.arange(400) % 2, np.arange(400) % 2 + rng.normal(size=400))
    ''
    """
    counts = np.bincount(y)
    counts = counts[counts > 0]
    if len(counts) < 2:
        return ""
    few = float(counts.min())
    error = float(np.sqrt((len(y) + 1) / (12 * few * (len(y) - few))))
    if error > MAX_ERROR:
        return ""
    value = metrics.auc(y, probabilities(logits))
    low, high = value - NORMAL_95 * error, value + NORMAL_95 * error
    # Asked this way round an AUC that is undefined says nothing either.
    if not (low <= 0.5 and high < USEFUL_AUC):
        return ""
    return (
        f"AUC on the {len(y):,} cases held out of training is {value:.2f}, no better than chance (95 % "
        f"interval {low:.2f} to {high:.2f}): labels may be misaligned with the embeddings (check that both "
        "have the same order, or join them by id), or training was too short for so few cases, as with "
        "the paper's preset."
    )
