"""Calibrators that may be fitted to predictions, cross-fitted, and the choice among them.

Audit and `calibrate` try the same candidates on the same folds and choose by the same rule, so that the
one never advises what the other would not do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from scalecal.calibrators import (
    CALIBRATORS,
    Calibrator,
    Identity,
    PanelCalibrator,
    ReaderOnTop,
)
from scalecal.calibrators.base import as_logits
from scalecal.calibrators.crossfitting import answers_of, crossfit, fit_with_readers, fold_numbers
from scalecal.cases import BASELINE, Answers, Cases, Predictions, rows_of
from scalecal.checks import Float, InputError, Int, ScalecalWarning
from scalecal.evaluation.estimation_error import estimation_error
from scalecal.evaluation.judging import lowest
from scalecal.metrics import nll
from scalecal.panel import PRIOR_SD_SHIFTED
from scalecal.readers import Readers
from scalecal.votes import check_sides

READER_ONLY = "reader-only"
"""What `none` is called where a reader probability is added: p stays as it is."""

NOTHING = (BASELINE, READER_ONLY)


def candidates() -> dict[str, type[Calibrator]]:
    """What is tried beside doing nothing, by name: the calibrators that say so by `tried_as`.

    These have few parameters and stay clear of 0 and 1. Isotonic regression and histogram binning may answer
    exactly 0 or 1, which costs them the log loss however many cases there are: they are used when named.
    """
    return {name: kind for name, kind in CALIBRATORS.items() if kind.tried_as}


MIN_IN_FOLD = 10
"""Cases of a fold below which an audit names no calibrator: the choice would be chance."""


@dataclass(frozen=True, eq=False)
class Material:
    """Labelled predictions as calibrators take them, and what is known of their readers.

    `source` says where the reader probability comes from: "votes", "published" or None.
    """

    cases: Cases
    p: Float
    readers: Readers
    votes: Int | None
    panel_size: Int | None
    source: str | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, labelled: Predictions, readers: Readers, method: str) -> Self:
        """Return what there is to fit `method` to; fails where it has nothing to learn from."""
        cases = labelled.cases.stratified()
        if cases.votes is not None:
            check_sides(cases.labels, cases.votes)
        sizes = readers.behind(cases)
        if readers.kappa is None and readers.vote_share is not None:
            raise InputError(
                "the share of positive votes needs the readers' kappa beside it: give both (kappa and "
                "vote_share; --kappa K --vote-share S)"
            )
        if readers.kappa is not None and sizes is None:
            raise InputError(
                "kappa needs the panel's size, the readers behind each label: give n_raters (--n-raters M) "
                "or a column n_raters"
            )
        source, votes, notes = None, None, []
        if readers.kappa is not None:
            source = "published"
            if cases.votes is not None:
                notes.append(
                    "The reader probability is from kappa as given; the votes only judge it."
                )
        elif cases.votes is not None:
            source, votes = "votes", cases.votes
        data = cls(cases, labelled.p, readers, votes, sizes, source, tuple(notes))
        if source == "published":
            # Labels that are no majority of votes are refused here, by all cases and not by one fold's.
            data.fit(data.with_reader(Identity()), interval=False)
        if source == "votes" and method != "panel":
            try:
                data.fit(data.with_reader(Identity()), interval=False)
            except InputError as error:  # votes of one reader, say: they judge, and no more
                why = f"There is no reader probability: {str(error).rstrip('.')}."
                return replace(data, votes=None, source=None, notes=(*notes, why))
        if source is None and method in ("panel", Identity.name, *NOTHING):
            raise InputError(
                f"method {method!r} has nothing to learn from: give votes (--votes FILE, or columns votes "
                "and n_raters), or the panel's size and kappa (--n-raters M --kappa K)"
            )
        return data

    def calibrator(self, kind: type[Calibrator]) -> Calibrator:
        """Return an unfitted calibrator; the panel with what is known of the readers."""
        if issubclass(kind, PanelCalibrator):
            return kind(**self._of_readers())
        return kind()

    def with_reader(self, label: Calibrator) -> Calibrator:
        """Return a calibrator of the label with a reader probability beside it, where readers are known."""
        if self.source is None or isinstance(label, PanelCalibrator):
            return label
        return ReaderOnTop(label, **self._of_readers())

    def _of_readers(self) -> dict[str, Any]:
        # Predictions of any model may be shifted, unlike the logits of a probe that was trained on labels.
        return {
            "kappa": self.readers.kappa,
            "vote_share": self.readers.vote_share,
            "prior_sd": PRIOR_SD_SHIFTED,
        }

    def fit(self, calibrator: Calibrator, *, interval: bool = True) -> Any:
        """Fit a calibrator in place to all cases."""
        known: dict[str, Any] = {"votes": self.votes, "panel_size": self.panel_size}
        known["groups"] = self.cases.group_codes
        logits, y = as_logits(self.p), self.cases.labels
        return fit_with_readers(calibrator, logits, y, interval=interval, **known)

    def answered(self, fitted: Calibrator) -> Float:
        """Return the label's probabilities by a fitted calibrator, of the cases themselves."""
        # The logits of 0 and 1 are finite, so that they would not come back as they were.
        if keeps_p(fitted):
            return self.p
        return answers_of(fitted, as_logits(self.p), n_raters=self.panel_size).p

    def take(self, rows: Any) -> Material:
        """Return some of the cases."""
        return replace(
            self,
            cases=self.cases.take(rows),
            p=self.p[rows],
            votes=rows_of(self.votes, rows),
            panel_size=rows_of(self.panel_size, rows),
        )

    def crossfit_all(
        self,
        calibrators: Mapping[str, Calibrator],
        fold: Int,
        *,
        strict: bool = True,
        advance: Callable[[float], object] = lambda _: None,
    ) -> tuple[dict[str, Answers], dict[str, Float], dict[str, str]]:
        """Out-of-fold answers of every calibrator, and rho by fold; and why others cannot be fitted.

        One that cannot be fitted in every fold has no answers; with `strict` a warning is reason enough.
        """
        answers, rho, failed = {}, {}, {}
        logits, y = as_logits(self.p), self.cases.labels
        known: dict[str, Any] = {"votes": self.votes, "panel_size": self.panel_size}
        for name, calibrator in calibrators.items():
            advance(1 / len(calibrators))
            try:
                with warnings.catch_warnings():
                    if strict:
                        warnings.simplefilter("error", ScalecalWarning)
                    made, rho[name] = crossfit(calibrator, logits, y, fold, **known)
            except (InputError, ScalecalWarning) as error:
                failed[name] = str(error)
                continue
            answers[name] = made
            # The logits of 0 and 1 are finite, so that they would not come back as they were.
            if keeps_p(calibrator):
                answers[name] = replace(made, p=self.p)
        return answers, rho, failed

    def losses(self, answers: Mapping[str, Answers]) -> dict[str, float]:
        """Label NLL of every calibrator's answers to these cases, by which one is chosen."""
        return {name: float(nll(self.cases.labels, own.p)) for name, own in answers.items()}

    def words(self, name: str) -> str:
        """What a candidate does, in a phrase."""
        text = name
        if name == READER_ONLY:
            text = "p unchanged"
        elif name in candidates():
            text = candidates()[name].tried_as
        from_what = {"votes": "fitted to the votes", "published": "derived from kappa"}
        if self.source is not None and name != "panel":
            text += f", and a reader probability {from_what[self.source]}"
        return f"{text}, fitted on the other folds' cases"


def keeps_p(calibrator: Calibrator) -> bool:
    """Whether a calibrator leaves the label's probability as it is."""
    return isinstance(getattr(calibrator, "label", calibrator), Identity)


def labels_tried(data: Material, method: str) -> dict[str, Calibrator]:
    """What is tried: name -> calibrator of the label; the first is to do nothing, where auto chooses."""
    nothing = READER_ONLY
    if data.source is None:
        nothing = BASELINE
    out: dict[str, Calibrator] = {nothing: Identity()}
    if method in (Identity.name, *NOTHING):
        return out
    if method in CALIBRATORS:
        return {method: data.calibrator(CALIBRATORS[method])}
    for name, kind in candidates().items():
        # Without votes the panel's label answer is Platt's.
        if data.source == "votes" or not issubclass(kind, PanelCalibrator):
            out[name] = data.calibrator(kind)
    return out


def try_candidates(
    predictions: Predictions, *, seed: int = 0
) -> tuple[Predictions, dict[str, Any] | None]:
    """Try the candidates on labelled predictions.

    `seed` deals the folds, as it does in `calibrate`.

    Returns
    -------
    The predictions, beside them the cross-fitted answers of the calibrator that `scalecal calibrate` would
    choose (unless that is to do nothing); and what was found: ``losses`` (name -> cross-fitted label NLL, the
    first is to do nothing), ``about`` (what the chosen one does, in a phrase), ``adds_reader`` (whether
    `scalecal calibrate` adds a reader probability) and ``estimation_error`` of the chosen one, or None where
    cases are too few to choose by.
    """
    own = predictions.only
    if not np.isfinite(as_logits(own.p)).all():
        return predictions, None
    try:
        data = Material.of(predictions, Readers(), "auto")
        with warnings.catch_warnings():
            warnings.simplefilter("error", ScalecalWarning)
            fold = fold_numbers(data.cases.labels, groups=data.cases.group_codes, seed=seed)
    except (InputError, ScalecalWarning):
        return predictions, None
    if np.bincount(fold).min() < MIN_IN_FOLD:
        return predictions, None
    labels = labels_tried(data, "auto")
    answers, _, _ = data.crossfit_all(labels, fold)
    losses = data.losses(answers)
    chosen = lowest(losses)
    adds_reader = data.source is not None and own.p_reader is None
    found: dict[str, Any] = {
        "losses": losses,
        "about": data.words(chosen),
        "adds_reader": adds_reader,
        "estimation_error": None,
    }
    if chosen in NOTHING:
        return predictions, found
    fitted = data.fit(clone(labels[chosen]), interval=False)
    found["estimation_error"] = estimation_error(data, labels, answers, fitted, seed=seed)
    best = replace(own, p=answers[chosen].p)
    if adds_reader:
        # The choice is by labels, so only what is chosen needs the reader probability beside it.
        both, _, _ = data.crossfit_all({chosen: data.with_reader(labels[chosen])}, fold)
        if chosen in both:
            best = replace(best, p_reader=both[chosen].p_reader, rho=both[chosen].rho)
    return predictions.with_answers({(chosen, 0): best}), found
