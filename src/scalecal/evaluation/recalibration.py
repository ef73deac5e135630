"""Recalibrating predictions without embeddings: calibrators cross-fitted, chosen, compared and kept.

`calibrate` fits to predictions and labels. What it reports as "after" is out of sample twice: each
fold's answers are of calibrators fitted to the other folds, and with ``method="auto"`` the method is
chosen anew within those (nested cross-fitting), so that choosing cannot flatter it. What it keeps for new
cases is one calibrator, chosen and fitted on all cases; if that is to do nothing, nothing is done.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from scalecal import __version__
from scalecal.calibrators import CALIBRATORS, Calibrator, Identity, PanelCalibrator, from_dict
from scalecal.calibrators.base import as_logits
from scalecal.calibrators.crossfitting import answers_of, fold_numbers, knows_readers
from scalecal.cases import BASELINE, Answers, Cases, Predictions, left_out_note
from scalecal.checks import (
    Float,
    InputError,
    Int,
    ScalecalWarning,
    check_choice,
    check_positive_int,
    check_probs,
)
from scalecal.evaluation.audits import Audit, cases_of
from scalecal.evaluation.candidates import NOTHING, Material, keeps_p, labels_tried
from scalecal.evaluation.estimation_error import MEMORISING, estimation_error
from scalecal.evaluation.evaluations import Evaluation, evaluate
from scalecal.evaluation.judging import lowest
from scalecal.io.boundary import parse_document, read_document
from scalecal.io.store import as_document, plain
from scalecal.metrics.arguments import as_table, of_two
from scalecal.panel import MAX_MISMATCH, check_sizes, split_probability
from scalecal.readers import Readers

if TYPE_CHECKING:
    import pandas as pd

AUTO = "auto"
"""The method that chooses among doing nothing and the `candidates` by cross-fitted log loss."""

NESTED = "auto-nested"
"""The answers of folds that choose anew, where the choice on all cases is to leave `p` as it is."""

_KEPT_NOTE = (
    'The calibrator kept for new cases is fitted to all of these, while the "after" figures are '
    "cross-fitted. The upper limit of the typical error and the interval of the change in label NLL include "
    "the estimation error of the calibrator kept, from {draws} refits to resampled {units}."
)

_UNKNOWN_NOTE = (
    "The estimation error of the calibrator kept is unknown, because too few resamples could be fitted: "
    "there is no upper limit of the typical error."
)

MAX_FOLDS = 20
"""Folds at most: every candidate is fitted once for each, and again within each if one is chosen."""

_FORMAT = 1
_KIND = "scalecal calibrator"
_EXPECTED = "Expected the calibrator.json that scalecal calibrate wrote"


@dataclass(frozen=True, eq=False)
class Recalibrator:
    """A fitted calibrator of predictions, with all that is needed to use it on other files.

    Attributes
    ----------
    calibrator : Calibrator
    classes : tuple of str
        In the order of the probabilities; of two the second is the positive one.
    chosen : str
        Name of the method.
    about : dict
        What made it: version, options, numbers of cases, hashes of the data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=500)
    >>> sure = p**2 / (p**2 + (1 - p) ** 2)
    >>> made = calibrate(rng.random(500) < p, sure, method="temperature").recalibrator
    >>> bool(abs(made.predict([0.8])[0] - 2 / 3) < 0.05)
    True
    >>> Recalibrator.from_json(made.to_json()).predict([0.8]) == made.predict([0.8])
    array([ True])
    """

    calibrator: Calibrator
    classes: tuple[str, ...]
    chosen: str
    about: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, probs: ArrayLike) -> Float:
        """Return calibrated probabilities of the label, in the form given: (n,) or (n, C)."""
        p = check_probs(probs)
        return self.apply(Predictions.single(Cases(n=len(p), classes=self.classes), p)).p

    def apply(self, predictions: Predictions) -> Predictions:
        """Return the predictions recalibrated: `p`, and `p_reader` and `rho` where readers are known."""
        if predictions.cases.classes != self.classes:
            raise InputError(
                f"the predictions are of {list(predictions.cases.classes)}, but the calibrator was fitted "
                f"to {list(self.classes)}: give the same classes in the same order"
            )
        key, own = next(iter(predictions.answers.items()))
        sizes = None
        if isinstance(self.calibrator, PanelCalibrator):
            sizes = predictions.cases.panel_sizes(self.calibrator.panel_.panel_size)
        made = answers_of(self.calibrator, as_logits(own.p), n_raters=sizes)
        # By way of the logits p would change by rounding, which a paired test takes for a change.
        if keeps_p(self.calibrator):
            made = replace(made, p=own.p)
        return replace(predictions, answers={key: _recalibrated(own, made)})

    def panel_sizes(self, cases: Cases) -> Int | None:
        """Readers of the panel whose split is predicted, (n,); None without a reader probability."""
        if knows_readers(self.calibrator):
            return cases.panel_sizes(self.calibrator.panel_.panel_size)
        return None

    def to_json(self) -> str:
        """Return it as JSON text."""
        whole = {
            "kind": _KIND,
            "format": _FORMAT,
            **self.about,
            "chosen": self.chosen,
            "classes": list(self.classes),
            "calibrator": self.calibrator.to_dict(),
        }
        return (
            json.dumps(plain(as_document(whole)), indent=2, allow_nan=False, ensure_ascii=False)
            + "\n"
        )

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "this text") -> Self:
        """Return what `to_json` wrote; anything else is an error."""
        try:
            whole = parse_document(text, dict[str, Any])
            if whole.get("kind") != _KIND:
                raise InputError("it does not hold a calibrator")
            if whole.get("format") != _FORMAT:
                raise InputError(
                    f"it has the format {whole.get('format')!r}, but this version of scalecal "
                    f"({__version__}) reads {_FORMAT}: run scalecal calibrate again"
                )
            saved = parse_document(text, _SavedRecalibrator)
            calibrator = from_dict(saved.calibrator)
            if calibrator.n_classes_ != len(saved.classes):
                raise InputError(
                    f"it names {len(saved.classes)} classes, but its calibrator has {calibrator.n_classes_}"
                )
        except InputError as error:
            raise InputError(f"{source}: {error}. {_EXPECTED}") from None
        own = _SavedRecalibrator.__struct_fields__
        about = {key: value for key, value in whole.items() if key not in own}
        return cls(calibrator, tuple(saved.classes), saved.chosen, about)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the `calibrator.json` of `scalecal calibrate`."""
        path = Path(path)
        if path.is_dir():
            path = path / "calibrator.json"
        text = read_document(path, msgspec.Raw, advice=_EXPECTED)
        return cls.from_json(bytes(text), source=str(path))


def _recalibrated(answers: Answers, made: Answers) -> Answers:
    """A calibrator's answers; a reader probability that was there stays where it has none."""
    answers = replace(answers, p=made.p)
    if made.p_reader is not None:
        answers = replace(answers, p_reader=made.p_reader, rho=made.rho)
    return answers


class _SavedRecalibrator(msgspec.Struct):
    """What ``calibrator.json`` holds of the calibrator."""

    kind: str
    format: int
    chosen: str
    classes: list[str]
    calibrator: dict[str, Any]
    schema: int = 0


@dataclass(frozen=True, eq=False)
class Calibration:
    """Recalibrated predictions, and what that did. Made by `calibrate` and `apply_recalibrator`.

    Attributes
    ----------
    predictions : Predictions
        The recalibrated predictions of all cases: where a calibrator was fitted, those of labelled cases
        are out of fold.
    recalibrator : Recalibrator
        For new cases: chosen and fitted on all labelled cases.
    evaluation : Evaluation or None
        Before, after and every candidate on the labelled cases; None if no case has a label.
    notes : tuple of str
        Notes on the numbers.
    """

    predictions: Predictions
    recalibrator: Recalibrator
    evaluation: Evaluation | None
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> str:
        """Name of the method that new cases get."""
        return self.recalibrator.chosen

    @property
    def before(self) -> Audit:
        """Numbers of the original predictions; their verdict is in ``evaluation.facts["audits"]``."""
        return self.judged.audits[BASELINE]

    @property
    def after(self) -> Audit:
        """Numbers of the recalibrated predictions; verdict and curves are those of `evaluation`."""
        return self.judged.audit

    @property
    def judged(self) -> Evaluation:
        """The evaluation; fails if no case has a label."""
        if self.evaluation is None:
            raise InputError("no case has a label, so there is nothing to compare")
        return self.evaluation

    def to_frame(self) -> pd.DataFrame:
        """Return the recalibrated predictions as a table that `scalecal audit` reads."""
        from scalecal.evaluation.cells import predictions_table

        cases = self.predictions.cases
        return predictions_table(self.predictions, n_raters=self.recalibrator.panel_sizes(cases))

    @property
    def sentences(self) -> list[str]:
        """The state after, the choice and the gain, in plain sentences."""
        if self.evaluation is None:
            return []
        return self.evaluation.sentences

    def __str__(self) -> str:
        if self.evaluation is not None:
            return self.evaluation.text(self.notes)
        return "\n".join(f"Note: {note}" for note in self.notes)


def calibrate(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    method: str = AUTO,
    votes: ArrayLike | None = None,
    n_raters: ArrayLike | None = None,
    kappa: float | None = None,
    vote_share: float | Sequence[float] | None = None,
    panel_size: int | None = None,
    groups: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    n_folds: int = 5,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Calibration:
    """Recalibrate predictions by their labels, and evaluate them before and after by cross-fitting.

    The predictions must be of cases that the model was not trained on.

    Parameters
    ----------
    y
        Labels 0 / 1, or class numbers.
    probs
        Positive-class probabilities (n,), or (n, C).
    method
        "auto", "none" (or "reader-only"), or a name in `scalecal.calibrators.CALIBRATORS`. "auto" chooses
        the lowest cross-fitted log loss among "none" and simple calibrators; "none" leaves `p` unchanged
        and adds a reader probability.
    votes, n_raters
        Readers' votes: counts per class (n, C), or counts of the positive class with the panel's size.
        The reader probability is fitted to them and judged by them. `n_raters`
        alone is the panel behind the labels.
    kappa, vote_share
        Fleiss' kappa of the readers and their share of positive votes, as published: the reader
        probability is then derived from them instead of votes. They need the panel's size.
    panel_size
        Readers behind each label, if that is not the number of its votes.
    groups
        Patient, slide, ... of each case: kept whole in folds, and resampled as a whole.
    strata
        As `scalecal.audit`.
    n_folds
        Folds of the cross-fitting; fewer if a class has fewer cases or groups.
    n_bins, n_resamples, seed
        As `scalecal.audit`; `seed` also deals the folds.

    Returns
    -------
    Calibration

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.uniform(size=800)
    >>> y = (rng.random(800) < chance).astype(int)
    >>> sure = chance**2 / (chance**2 + (1 - chance) ** 2)
    >>> result = calibrate(y, sure, n_resamples=200)
    >>> result.before["overall"]["p_cox"] < 0.001, result.after["overall"]["p_cox"] > 0.05
    (True, True)
    >>> result.chosen != "none", result.recalibrator.predict([0.9]).round(1).tolist()
    (True, [0.7])
    """
    p = check_probs(probs)
    cases = cases_of(
        y,
        as_table(p).shape[1],
        votes=votes,
        n_raters=n_raters,
        strata=strata,
        groups=groups,
        probs=p,
    )
    if votes is None and n_raters is not None:
        cases = replace(cases, n_raters=check_sizes(n_raters, cases.n))
    return calibrate_predictions(
        Predictions.single(cases, of_two(p)),
        method=method,
        readers=Readers(kappa=kappa, vote_share=vote_share, panel_size=panel_size),
        n_folds=n_folds,
        n_bins=n_bins,
        n_resamples=n_resamples,
        seed=seed,
    )


def calibrate_predictions(
    predictions: Predictions,
    *,
    method: str = AUTO,
    readers: Readers | None = None,
    n_folds: int = 5,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
    dataset: str = "predictions",
    advance: Callable[[float], object] = lambda _: None,
) -> Calibration:
    """Recalibrate predictions on `scalecal.cases.Cases`.

    Parameters
    ----------
    predictions
        As they are; cases without a label (-1) are recalibrated and not judged.
    readers
        Knowledge of the readers besides the votes: published kappa, the panel's size.
    dataset
        Name of the data, for the page.
    method, n_folds, n_bins, n_resamples, seed
        As `calibrate`.
    advance
        Called with the share of the work that was just done (`scalecal.progress`).
    """
    check_choice(method, [AUTO, *NOTHING, *CALIBRATORS], "method")
    check_positive_int(n_folds, "n_folds", least=2)
    if n_folds > MAX_FOLDS:
        raise InputError(f"n_folds must be {MAX_FOLDS} or less, got {n_folds}")
    labelled = predictions.labelled()
    with labelled.messages():
        data = Material.of(labelled, readers or Readers(), method)
    with warnings.catch_warnings(record=True) as caught, labelled.messages():
        warnings.simplefilter("always", ScalecalWarning)
        groups = data.cases.group_codes
        fold = fold_numbers(data.cases.labels, n_folds, groups=groups, seed=seed)
    notes = []
    for warning in caught:
        text = str(warning.message)
        notes.append(f"{text[:1].upper()}{text[1:]}.")
    n_folds = int(fold.max()) + 1
    labels = labels_tried(data, method)
    before = labelled.only
    # Fitting, choosing and comparing take about as long.
    answers, rhos, failed = data.crossfit_all(
        {name: data.with_reader(label) for name, label in labels.items()},
        fold,
        strict=method == AUTO,
        advance=lambda done: advance(0.3 * done),
    )
    # A method that was named must fit; of many candidates one is enough.
    if not answers:
        raise InputError(next(iter(failed.values())))
    for name, why in failed.items():
        notes.append(f"{name} is not a candidate: it cannot be fitted in every fold ({why}).")
    chosen = lowest(data.losses(answers))
    after, picked = chosen, [chosen] * n_folds
    # A method that was asked for needs no measure of the choice.
    if method == AUTO:
        offered = {name: labels[name] for name in answers}
        for k in range(n_folds):
            picked[k] = _chosen_by(data.take(fold != k), offered, n_folds=n_folds, seed=seed)
            advance(0.3 / n_folds)
    else:
        advance(0.3)
    if method == AUTO:
        after = AUTO
        answers[AUTO] = _stitched(answers, rhos, picked, fold)
        # Where p is kept, what is kept has no estimation error, but the choice on other cases has.
        if chosen in NOTHING:
            answers[NESTED] = answers[AUTO]
            answers[AUTO] = answers[chosen]
    words = {name: data.words(name) for name in answers if name != BASELINE}
    if method == AUTO:
        words[AUTO] = (
            f"the candidate with the lowest cross-fitted log loss, chosen separately for each of {n_folds} "
            "folds by the cases of the other folds"
        )
    fitted = data.fit(clone(data.with_reader(labels[chosen])))
    known = None
    if chosen not in NOTHING:
        tried = {name: answers[name] for name in labels if name in answers}
        known = estimation_error(data, labels, tried, fitted, seed=seed)
    if NESTED in answers:
        words[NESTED] = "what choosing and fitting in every fold would have done"
    mismatch = None
    if knows_readers(fitted):
        mismatch = fitted.mismatch(as_logits(data.p))
    about = {
        "after": after,
        "method": method,
        "chosen": chosen,
        "estimation_error": None if known is None else asdict(known),
        "unproven": chosen in MEMORISING,
        "by_fold": dict(Counter(picked)),
        "n_folds": n_folds,
        "n_unlabelled": len(predictions) - len(labelled),
        "readers": data.source,
        "mismatch": mismatch,
        "about": words,
    }
    recalibrator = Recalibrator(
        fitted,
        predictions.cases.classes,
        chosen,
        {
            "version": __version__,
            "method": method,
            "options": {
                "n_folds": n_folds,
                "seed": seed,
                **{k: v for k, v in vars(data.readers).items() if v is not None},
            },
            "fitted_to": {
                "cases": len(labelled),
                "groups": None if groups is None else len(np.unique(groups)),
                "readers": data.source,
                "mismatch": mismatch,
                "sources": dict(predictions.sources),
            },
        },
    )
    found = {(BASELINE, 0): before}
    for name, own in answers.items():
        found[name, 0] = _recalibrated(before, own)
    recalibrated = recalibrator.apply(predictions)
    # Labelled cases keep their out-of-fold answers.
    own = _with_rows(recalibrated.only, predictions.y >= 0, found[after, 0])
    recalibrated = replace(recalibrated, answers=dict.fromkeys(recalibrated.answers, own))
    cell = Predictions(data.cases, found, dataset, "model", {"calibration": about})
    options = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    evaluation = _evaluated(cell, recalibrator, options, lambda done: advance(0.4 * done))
    said = _notes(data, notes, evaluation, found[after, 0], predictions)
    return Calibration(recalibrated, recalibrator, evaluation, said)


def _chosen_by(rest: Material, labels: Mapping[str, Calibrator], *, n_folds: int, seed: int) -> str:
    """The candidate that a fold gets: chosen by cross-fitting within the rest, the other folds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScalecalWarning)
        try:
            groups = rest.cases.group_codes
            inner = fold_numbers(rest.cases.labels, n_folds, groups=groups, seed=seed)
        except InputError:  # too few to choose by
            return next(iter(labels))
    answers, _, _ = rest.crossfit_all(labels, inner)
    return lowest(rest.losses(answers))


def _stitched(
    answers: Mapping[str, Answers], rhos: Mapping[str, Float], picked: Sequence[str], fold: Int
) -> Answers:
    """Each fold's answers from the candidate picked for it."""
    whole, rho = answers[picked[0]], []
    for k, name in enumerate(picked):
        whole = _with_rows(whole, fold == k, answers[name].take(fold == k))
        rho.append(rhos[name][k])
    return replace(whole, rho=float(np.mean(rho)))


def _with_rows(answers: Answers, rows: NDArray[np.bool_], own: Answers) -> Answers:
    """Put other answers in the place of those of some cases."""
    p, reader = answers.p.copy(), answers.p_reader
    p[rows] = own.p
    if reader is not None and own.p_reader is not None:
        reader = reader.copy()
        reader[rows] = own.p_reader
    return replace(answers, p=p, p_reader=reader, rho=own.rho)


def _evaluated(
    cell: Predictions,
    recalibrator: Recalibrator,
    options: Mapping[str, Any],
    advance: Callable[[float], object],
) -> Evaluation:
    """Evaluate before and after; the latter as the file that is written will be read."""
    after = str(cell.calibration["after"])
    own, sizes = cell.first(after), recalibrator.panel_sizes(cell.cases)
    if sizes is not None and own.p_reader is not None and own.p_split is None:
        split = split_probability(as_logits(own.p_reader), own.rho, sizes)
        cell = cell.with_answers({(after, cell.seeds(after)[0]): replace(own, p_split=split)})
    return evaluate(cell, advance=advance, **options)


def _notes(
    data: Material,
    notes: Sequence[str],
    evaluation: Evaluation,
    after: Answers,
    predictions: Predictions,
) -> tuple[str, ...]:
    """What the reader of a calibration should know."""
    about = evaluation.predictions.calibration
    said = [*data.notes, *notes, *evaluation.audit.shown_notes]
    known = about["estimation_error"]
    if known is not None:
        note = _UNKNOWN_NOTE
        if np.isfinite(known["squared"]):
            units = "cases" if data.cases.groups is None else "groups"
            note = _KEPT_NOTE.format(draws=known["draws"], units=units)
        said.append(note)
    mismatch = about["mismatch"]
    if mismatch is not None:
        said.append(_mismatch_note(mismatch))
    n, certain = len(after), int(np.isin(as_table(after.p), (0.0, 1.0)).any(axis=1).sum())
    if certain:
        said.append(
            f"{about['after']} answers 0 or 1 in {certain:,} of {n:,} cases: the log loss of a wrong one is "
            "as large as rounding allows, and its reader probability is as extreme."
        )
    without = about["n_unlabelled"]
    said = [note for note in said if note != left_out_note(without, len(predictions))]
    if without:
        said.append(
            f"{without:,} of {len(predictions):,} cases have no label: they are recalibrated by the "
            "calibrator fitted to all others, and not evaluated."
        )
    return tuple(dict.fromkeys(said))


def _mismatch_note(mismatch: float) -> str:
    """Say how far the label is from a majority of votes, on which the reader probability rests."""
    if np.isfinite(mismatch):
        return (
            "The majority of the predicted votes differs from the label's probability by "
            f"{mismatch:.3f} on average: up to {MAX_MISMATCH:g} is usual where labels are the readers' "
            "majority."
        )
    return (
        "Whether the labels are the majority of such readers' votes cannot be checked without the share of "
        "positive votes (--vote-share, in Python vote_share): if they are not, as after a biopsy, the reader "
        "probability is wrong."
    )


def apply_recalibrator(
    predictions: Predictions,
    recalibrator: Recalibrator,
    *,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
    dataset: str = "predictions",
    advance: Callable[[float], object] = lambda _: None,
) -> Calibration:
    """Recalibrate other predictions, and compare before and after where cases have labels.

    Parameters
    ----------
    predictions
        Of cases that the calibrator was not fitted to, with or without labels.
    recalibrator
        From `calibrate`, or `Recalibrator.load`.
    n_bins, n_resamples, seed, dataset, advance
        As `calibrate_predictions`.
    """
    fitted_to = dict(recalibrator.about.get("fitted_to") or {})
    same = set(dict(fitted_to.get("sources") or {}).values()) & set(predictions.sources.values())
    if same:
        warnings.warn(
            "the calibrator was fitted to this file, so its results on it are too optimistic: the "
            "out-of-fold predictions are in the predictions.csv beside the calibrator",
            ScalecalWarning,
            stacklevel=2,
        )
    made, cases = recalibrator.apply(predictions), predictions.cases
    if cases.y is None or not (cases.y >= 0).any():
        note = "There are no labels, so before and after cannot be compared."
        return Calibration(made, recalibrator, None, (*cases.notes, note))
    before, after = (answers.labelled() for answers in (predictions, made))
    n = fitted_to.get("cases")
    name = recalibrator.chosen
    if name == BASELINE:
        name = Identity.name
    other = f"{n:,} other" if isinstance(n, int) else "other"
    about = {
        "after": name,
        "method": name,
        "chosen": recalibrator.chosen,
        "n_unlabelled": len(predictions) - len(before),
        "about": {name: f"{name}, fitted to {other} cases"},
    }
    answers = {(BASELINE, 0): before.only, (name, 0): after.only}
    cell = Predictions(before.cases.stratified(), answers, dataset, "model", {"calibration": about})
    options = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    evaluation = _evaluated(cell, recalibrator, options, advance)
    return Calibration(made, recalibrator, evaluation, tuple(evaluation.audit.shown_notes))
