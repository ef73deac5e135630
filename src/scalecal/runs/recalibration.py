"""Mending predictions without embeddings: calibrators cross-fitted, chosen, compared and kept.

`calibrate` fits to predictions and labels. What it reports as "after" is out of sample twice: each
fold's answers are of calibrators fitted to the other folds, and with ``method="auto"`` the method is
chosen anew within those (nested cross-fitting), so that choosing cannot flatter it. What it keeps for new
cases is one calibrator, chosen and fitted on all cases; where that is to do nothing, nothing is done.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from scalecal import __version__, metrics
from scalecal.auditing.audits import Audit, Strata, cases_of, of_two
from scalecal.auditing.sentences import lay_out
from scalecal.calibrators import (
    CALIBRATORS,
    Calibrator,
    Identity,
    PanelCalibrator,
    ReaderOnTop,
    from_dict,
)
from scalecal.calibrators.base import as_logits
from scalecal.calibrators.crossfitting import crossfit, fit_with_readers, fold_numbers
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
from scalecal.io.documents import parse_document, read_document
from scalecal.io.store import plain
from scalecal.io.text import change_text, number
from scalecal.metrics import METRICS
from scalecal.metrics.arguments import as_table
from scalecal.panel import PRIOR_SD_SHIFTED, check_sizes, split_probability
from scalecal.runs.calibrating import Readers
from scalecal.runs.facts import REMEDIES, Comparison, compare_cell
from scalecal.votes import check_sides

if TYPE_CHECKING:
    import pandas as pd

AUTO = "auto"
"""The method that chooses among `none` and the `REMEDIES` by cross-fitted log loss.

These have few parameters and stay clear of 0 and 1. Isotonic regression and histogram binning may answer
exactly 0 or 1, which costs them the log loss however many cases there are: they are used when named. The
lowest loss is taken even where it is lower by chance: asking for one standard error would lose more on
miscalibrated models than it saves on calibrated ones.
"""

READER_ONLY = "reader-only"
"""What `none` is called where a reader's answer is added: p stays as it is."""

_NOTHING = (BASELINE, READER_ONLY)

_KEPT_NOTE = (
    "What is after was measured on cross-fitted answers. The calibrator kept for new cases is fitted to all "
    "of these; its own error may lie a little beyond the margins shown."
)

MOST_FOLDS = 20
"""Folds at most: every candidate is fitted once for each, and again within each where one is chosen."""

_FORMAT = 1
_KIND = "scalecal calibrator"


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

    @property
    def knows_readers(self) -> bool:
        """Whether there is a reader's answer."""
        return isinstance(self.calibrator, PanelCalibrator) and self.calibrator.panel_.knows_readers

    def predict(self, probs: ArrayLike) -> Float:
        """Return calibrated probabilities of the label, in the form given: (n,) or (n, C)."""
        return self.apply(_of_cases(probs, self.classes)).only.p

    def apply(self, predictions: Predictions) -> Predictions:
        """Return the predictions mended: `p`, and `p_reader` and `rho` where readers are known."""
        if predictions.cases.classes != self.classes:
            raise InputError(
                f"the predictions are of {list(predictions.cases.classes)}, but the calibrator was fitted "
                f"to {list(self.classes)}: give the same classes in the same order"
            )
        key, own = next(iter(predictions.answers.items()))
        logits = as_logits(own.p)
        column = 1 if logits.ndim == 1 else slice(None)
        if not isinstance(self.calibrator, PanelCalibrator):
            own = replace(own, p=self.calibrator.predict_proba(logits)[:, column])
            return replace(predictions, answers={key: own})
        panel = self.calibrator.panel_
        size = predictions.cases.panel_sizes(panel.panel_size)
        p = self.calibrator.predict_proba(logits, n_raters=size)[:, column]
        own = replace(own, p=p)
        if panel.knows_readers:
            reader = self.calibrator.predict_reader_proba(logits)[:, column]
            own = replace(own, p_reader=reader, rho=panel.rho)
        return replace(predictions, answers={key: own})

    def panel_sizes(self, cases: Cases) -> Int | None:
        """Readers of the panel whose split is predicted, (n,); None without a reader's answer."""
        if not isinstance(self.calibrator, PanelCalibrator) or not self.knows_readers:
            return None
        return cases.panel_sizes(self.calibrator.panel_.panel_size)

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
        return json.dumps(plain(whole), indent=2, allow_nan=False, ensure_ascii=False) + "\n"

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
                    f"it names {len(saved.classes)} classes, its calibrator is of {calibrator.n_classes_}"
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


_EXPECTED = "Expected the calibrator.json that scalecal calibrate wrote"


class _SavedRecalibrator(msgspec.Struct):
    """What ``calibrator.json`` holds of the calibrator."""

    kind: str
    format: int
    chosen: str
    classes: list[str]
    calibrator: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predictions mended, and what that did. Made by `calibrate` and `apply_recalibrator`.

    Attributes
    ----------
    predictions : Predictions
        The mended predictions of all cases: where a calibrator was fitted, those of labelled cases are
        out of fold.
    recalibrator : Recalibrator
        For new cases: chosen and fitted on all labelled cases.
    comparison : Comparison or None
        Before, after and every candidate on the labelled cases, and the facts about them; None where no
        case has a label.
    notes : tuple of str
        What the reader of the numbers should know.
    """

    predictions: Predictions
    recalibrator: Recalibrator
    comparison: Comparison | None
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> str:
        """Name of the method that new cases get."""
        return self.recalibrator.chosen

    @property
    def before(self) -> Audit:
        """Audit of the predictions as they came."""
        return self._judged.audits[BASELINE]

    @property
    def after(self) -> Audit:
        """Audit of the mended predictions."""
        return self._judged.audits[str(self._judged.facts["calibration"]["after"])]

    @property
    def _judged(self) -> Comparison:
        if self.comparison is None:
            raise InputError("no case has a label, so there is nothing to compare")
        return self.comparison

    def to_frame(self) -> pd.DataFrame:
        """Return the mended predictions as a table that `scalecal audit` reads."""
        from scalecal.runs.fitted import predictions_table

        cases = self.predictions.cases
        return predictions_table(self.predictions, n_raters=self.recalibrator.panel_sizes(cases))

    @property
    def sentences(self) -> list[str]:
        """The choice, the state before and after, and the gain, in plain sentences."""
        return [] if self.comparison is None else calibration_sentences(self.comparison.facts)

    def __str__(self) -> str:
        parts = []
        if self.comparison is not None:
            parts = [candidates_text(self.comparison.facts), "\n".join(self.sentences)]
        if self.notes:
            parts.append("\n".join(f"Note: {note}" for note in self.notes))
        return "\n\n".join(parts)


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
    strata: Strata | None = None,
    n_folds: int = 5,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Calibration:
    """Mend predictions by their labels, and measure before and after honestly.

    The predictions must be of cases that the model was not trained on.

    Parameters
    ----------
    y
        Labels 0 / 1, or class numbers.
    probs
        Positive-class probabilities (n,), or (n, C).
    method
        "auto", "none", or a name in `scalecal.calibrators.CALIBRATORS`. "auto" has the lowest
        cross-fitted log loss of "none", a temperature and its like; "none" leaves `p` alone and adds a
        reader's answer.
    votes, n_raters
        Readers' votes: counts per class (n, C), or counts of the positive class with the panel's size.
        They give the reader's answer, and judge it. `n_raters` alone is the panel behind the labels.
    kappa, vote_share
        Fleiss' kappa of the readers and their share of positive votes, as published, from which the
        reader's answer comes in place of votes. They need the panel's size.
    panel_size
        Readers behind each label, where that is not the number of its votes.
    groups
        Patient, slide, ... of each case: kept whole in folds, and resampled as a whole.
    strata
        As `scalecal.audit`.
    n_folds
        Folds of the cross-fitting; fewer where a class has fewer cases or groups.
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
    cases, p = cases_of(y, probs, votes=votes, n_raters=n_raters, strata=strata, groups=groups)
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
    """Mend predictions on `scalecal.cases.Cases`.

    Parameters
    ----------
    predictions
        As they are; cases without a label (-1) are mended and not judged.
    readers
        What is known of the readers beside the votes: published kappa, the panel's size.
    dataset
        Name of the data, for the page.
    method, n_folds, n_bins, n_resamples, seed
        As `calibrate`.
    advance
        Called with the share of the work that was just done (`scalecal.progress`).
    """
    check_choice(method, [AUTO, BASELINE, *CALIBRATORS], "method")
    check_positive_int(n_folds, "n_folds", least=2)
    if n_folds > MOST_FOLDS:
        raise InputError(f"n_folds must be {MOST_FOLDS} or less, got {n_folds}")
    labelled = predictions.labelled()
    with labelled.messages():
        data = _Data.of(labelled, readers or Readers(), method)
    with _noted() as notes, labelled.messages():
        fold = fold_numbers(data.y, n_folds, groups=data.groups, seed=seed)
    candidates = _candidates(method, data)
    out: dict[str, Answers] = {}
    rhos: dict[str, Float] = {}
    # Fitting, choosing and comparing take about as long.
    for name, candidate in candidates.items():
        advance(0.3 / len(candidates))
        try:
            out[name], rhos[name] = data.crossfit(candidate, fold, strict=method == AUTO)
        except (InputError, ScalecalWarning) as error:
            if method != AUTO:
                raise
            notes.append(f"{name} is no candidate: it cannot be fitted in every fold ({error}).")
            if name == list(candidates)[-1] and not out:
                raise InputError(f"no candidate can be fitted: {error}") from error
    chosen = _lowest({name: _log_loss(data.y, answers.p) for name, answers in out.items()})
    after, picked = chosen, [chosen] * (int(fold.max()) + 1)
    if method == AUTO and chosen not in _NOTHING:  # doing nothing needs no measure of the choice
        tried = {m: candidates[m] for m in out}
        for k in range(len(picked)):
            picked[k] = _choose(data.take(fold != k), tried, n_folds=len(picked), seed=seed)
            advance(0.3 / len(picked))
    else:
        advance(0.3)
    if method == AUTO:
        after, out[AUTO] = AUTO, _stitched(out, rhos, picked, fold)
    about = {
        "after": after,
        "method": method,
        "chosen": chosen,
        "by_fold": dict(Counter(picked)),
        "n_folds": len(picked),
        "n_unlabelled": len(predictions) - len(labelled),
        "readers": data.source,
        "about": {name: _words(name, data, len(picked)) for name in out if name != BASELINE},
    }
    fitted: Calibrator = data.fit(clone(candidates[chosen]))
    recalibrator = Recalibrator(
        fitted,
        predictions.cases.classes,
        chosen,
        {
            "version": __version__,
            "method": method,
            "options": {
                **{"n_folds": n_folds, "seed": seed},
                **{k: v for k, v in vars(data.readers).items() if v is not None},
            },
            "fitted_to": {
                "cases": len(labelled),
                "groups": None if data.groups is None else len(np.unique(data.groups)),
                "readers": data.source,
                "sources": dict(predictions.sources),
            },
        },
    )
    mended, rows = recalibrator.apply(predictions), np.arange(len(labelled))
    before = replace(labelled.only, rows=rows)
    answers = {(BASELINE, 0): before} | {
        (m, 0): _answers(own, before) for m, own in out.items() if m != BASELINE
    }
    mended = _with_answers(mended, answers[after, 0])
    cell = Predictions(data.cases, answers, dataset, "model", {"calibration": about})
    options = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    comparison = _compared(cell, recalibrator, options, lambda done: advance(0.4 * done))
    left_out = left_out_note(len(predictions) - len(labelled), len(predictions))
    said = [*data.notes, *notes, *comparison.audits[after].notes]
    if chosen not in _NOTHING:
        said.append(_KEPT_NOTE)
    certain = int(np.isin(as_table(answers[after, 0].p), (0.0, 1.0)).any(axis=1).sum())
    if certain:
        said.append(
            f"{after} answers 0 or 1 in {certain:,} of {len(labelled):,} cases: one that it is wrong about "
            "costs the log loss as much as rounding allows, and a reader's answer there is as extreme."
        )
    said = [note for note in said if note != left_out]
    if about["n_unlabelled"]:
        said.append(
            f"{about['n_unlabelled']:,} of {len(predictions):,} cases have no label: they are mended by the "
            "calibrator fitted to all others, and not judged."
        )
    return Calibration(mended, recalibrator, comparison, tuple(dict.fromkeys(said)))


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
    """Mend other predictions, and compare before and after where cases have labels.

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
            "the calibrator was fitted to this very file, so that what it shows there is too good: the "
            "out-of-fold predictions are in the predictions.csv beside the calibrator",
            ScalecalWarning,
            stacklevel=2,
        )
    mended, cases = recalibrator.apply(predictions), predictions.cases
    if cases.y is None or not (cases.y >= 0).any():
        note = "There are no labels, so that before and after cannot be compared."
        return Calibration(mended, recalibrator, None, (*cases.notes, note))
    before, after = (answers.labelled() for answers in (predictions, mended))
    rows, n = np.arange(len(before)), fitted_to.get("cases")
    name = Identity.name if recalibrator.chosen == BASELINE else recalibrator.chosen
    other = f"{n:,} other" if isinstance(n, int) else "other"
    about = {
        "after": name,
        "method": name,
        "chosen": name,
        "n_unlabelled": len(predictions) - len(before),
        "about": {name: f"{name}, fitted to {other} cases"},
    }
    answers = {
        (BASELINE, 0): replace(before.only, rows=rows),
        (name, 0): replace(after.only, rows=rows),
    }
    cases = before.cases.stratified()
    cell = Predictions(cases, answers, dataset, "model", {"calibration": about})
    options = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    comparison = _compared(cell, recalibrator, options, advance)
    return Calibration(mended, recalibrator, comparison, tuple(comparison.audits[name].notes))


# Fitting


@dataclass(frozen=True, eq=False)
class _Data:
    """Labelled predictions as calibrators take them, and what is known of their readers.

    `source` says where the reader's answer comes from: "votes", "published" or None.
    """

    cases: Cases
    p: Float
    logits: Float
    y: Int
    groups: Int | None
    readers: Readers
    votes: Int | None
    panel_size: Int | None
    source: str | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, labelled: Predictions, readers: Readers, method: str) -> Self:
        cases = labelled.cases.stratified()
        assert cases.y is not None
        if cases.votes is not None:
            check_sides(cases.y, cases.votes)
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
                notes.append("The reader's answer is from kappa as given; the votes only judge it.")
        elif cases.votes is not None:
            source, votes = "votes", cases.votes
        groups = cases.group_codes
        p = labelled.only.p
        logits = as_logits(p)
        data = cls(cases, p, logits, cases.y, groups, readers, votes, sizes, source, tuple(notes))
        if source == "votes" and method != "panel":
            try:
                data.fit(data.panel(Identity()), interval=False)
            except InputError as error:  # votes of one reader, say: they judge, and no more
                why = f"There is no reader's answer: {error}."
                return replace(data, votes=None, source=None, notes=(*notes, why))
        if source is None and method in ("panel", BASELINE, Identity.name):
            raise InputError(
                f"method {method!r} has nothing to learn from: give votes (--votes FILE, or columns votes "
                "and n_raters), or the panel's size and kappa (--n-raters M --kappa K)"
            )
        return data

    def panel(self, label: Calibrator) -> Calibrator:
        """Return a calibrator of the label with a reader's answer beside it, where readers are known."""
        if self.source is None:
            return label
        known: dict[str, Any] = {
            "kappa": self.readers.kappa,
            "vote_share": self.readers.vote_share,
            "prior_sd": PRIOR_SD_SHIFTED,
        }
        if isinstance(label, PanelCalibrator):
            return PanelCalibrator(**known)
        return ReaderOnTop(label, **known)

    def fit(self, calibrator: Calibrator, *, interval: bool = True) -> Any:
        known: dict[str, Any] = {"votes": self.votes, "panel_size": self.panel_size}
        return fit_with_readers(calibrator, self.logits, self.y, interval=interval, **known)

    def take(self, rows: Any) -> _Data:
        def cut(values: Any) -> Any:
            return None if values is None else values[rows]

        own = {k: cut(getattr(self, k)) for k in _ROWS}
        return replace(self, cases=self.cases.take(rows), **own)

    def crossfit(self, candidate: Calibrator, fold: Int, *, strict: bool) -> tuple[Answers, Float]:
        """Return a candidate's out-of-fold answers; with `strict` a warning is an error."""
        with warnings.catch_warnings():
            if strict:
                warnings.simplefilter("error", ScalecalWarning)
            out, rho = crossfit(
                candidate,
                self.logits,
                self.y,
                fold,
                votes=self.votes,
                panel_size=self.panel_size,
            )
        if isinstance(_label_of(candidate), Identity):
            out = replace(out, p=self.p)
        return out, rho


_ROWS = ("p", "logits", "y", "groups", "votes", "panel_size")


def _candidates(method: str, data: _Data) -> dict[str, Calibrator]:
    """What is tried: name -> calibrator, with a reader's answer where readers are known."""
    nothing = BASELINE if data.source is None else READER_ONLY
    if method in (BASELINE, Identity.name):
        return {nothing: data.panel(Identity())}
    if method != AUTO:
        label = REMEDIES[method][0] if method in REMEDIES else CALIBRATORS[method]()
        return {method: data.panel(label)}
    known = {
        name: label
        for name, (label, _) in REMEDIES.items()
        # Without votes the panel's label answer is Platt's.
        if data.source == "votes" or not isinstance(label, PanelCalibrator)
    }
    return {name: data.panel(label) for name, label in {nothing: Identity(), **known}.items()}


def _label_of(candidate: Calibrator) -> Calibrator:
    """What a candidate's label answer comes from, which is all that a choice looks at."""
    return candidate.label if isinstance(candidate, ReaderOnTop) else candidate


def _log_loss(y: Int, p: Float) -> float:
    return float(metrics.nll(y, p))


def _lowest(losses: Mapping[str, float]) -> str:
    """The candidate with the lowest log loss; of equals the first, which does least."""
    return min(losses, key=lambda name: losses[name])


def _choose(rest: _Data, candidates: Mapping[str, Calibrator], *, n_folds: int, seed: int) -> str:
    """The candidate that a fold gets: chosen by cross-fitting within the rest, the other folds."""
    nothing = next(iter(candidates))
    losses = {nothing: _log_loss(rest.y, rest.p)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScalecalWarning)
        try:
            inner = fold_numbers(rest.y, n_folds, groups=rest.groups, seed=seed)
        except InputError:  # too few to choose by
            return nothing
    for name, candidate in candidates.items():
        with contextlib.suppress(InputError, ScalecalWarning):
            own, _ = rest.crossfit(_label_of(candidate), inner, strict=True)
            losses[name] = _log_loss(rest.y, own.p)
    return _lowest(losses)


def _stitched(
    out: Mapping[str, Answers], rhos: Mapping[str, Float], picked: Sequence[str], fold: Int
) -> Answers:
    """Each fold's answers from the candidate picked for it."""
    parts = [out[name] for name in picked]
    p = np.empty_like(parts[0].p)
    reader = None if parts[0].p_reader is None else np.empty_like(p)
    for k, part in enumerate(parts):
        p[fold == k] = part.p[fold == k]
        if reader is not None and part.p_reader is not None:
            reader[fold == k] = part.p_reader[fold == k]
    rho = float(np.mean([rhos[name][k] for k, name in enumerate(picked)]))
    return Answers(p, reader, rho)


def _answers(out: Answers, before: Answers) -> Answers:
    """Out-of-fold answers; without a reader's answer of their own they keep the one that was there."""
    if out.p_reader is None:
        return replace(before, p=out.p)
    return replace(before, p=out.p, p_reader=out.p_reader, rho=out.rho)


def _with_answers(mended: Predictions, own: Answers) -> Predictions:
    """Put the out-of-fold answers of the labelled cases in the place of the final calibrator's."""
    assert mended.cases.y is not None
    here = mended.cases.y >= 0
    key, kept = next(iter(mended.answers.items()))
    p, reader = kept.p.copy(), kept.p_reader
    p[here] = own.p
    if reader is not None and own.p_reader is not None:
        reader = reader.copy()
        reader[here] = own.p_reader
    kept = replace(kept, p=p, p_reader=reader, rho=own.rho)
    return replace(mended, answers={key: kept})


def _compared(
    cell: Predictions,
    recalibrator: Recalibrator,
    options: Mapping[str, Any],
    advance: Callable[[float], object],
) -> Comparison:
    """Compare a cell's methods; its `after` is audited as the file that is written will be."""
    after = str(cell.calibration["after"])
    own = cell.first(after)
    sizes = recalibrator.panel_sizes(cell.cases)
    if sizes is not None and own.p_reader is not None and own.p_split is None:
        split = split_probability(as_logits(own.p_reader), own.rho, sizes)
        seed = cell.seeds(after)[0]
        cell = cell.with_answers({(after, seed): replace(own, p_split=split)})
    return compare_cell(cell, advance=advance, **options)


@contextlib.contextmanager
def _noted() -> Iterator[list[str]]:
    """Collect the package's warnings as notes."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ScalecalWarning)
        yield notes
    for warning in caught:
        text = str(warning.message)
        notes.append(f"{text[:1].upper()}{text[1:]}.")


def _of_cases(probs: ArrayLike, classes: tuple[str, ...]) -> Predictions:
    p = check_probs(probs)
    return Predictions.single(Cases(n=len(p), classes=classes), p)


# Words


def _words(name: str, data: _Data, n_folds: int) -> str:
    """What a candidate does, in a phrase."""
    if name == AUTO:
        return (
            f"the candidate with the lowest cross-fitted log loss, chosen anew for each of {n_folds} folds "
            "from the others"
        )
    text = "p as it is" if name == READER_ONLY else REMEDIES[name][1] if name in REMEDIES else name
    from_what = {"votes": "the votes", "published": "kappa"}.get(data.source or "")
    if from_what and name != "panel":
        text += f", and a reader's answer from {from_what}"
    return f"{text}, fitted on the other folds' cases"


def candidates_text(facts: Mapping[str, Any]) -> str:
    """One line per method: cross-fitted label NLL, its change, ECE with its floor, vote NLL."""
    about = facts["calibration"]
    rows = {r["method"]: r for r in facts["rows"] if r["stratum"] == "overall"}
    lines = [["method", "label NLL", "change [95 %]", "ECE (floor)"]]
    voted = any(r.get("vote_nll") is not None for r in rows.values())
    if voted:
        lines[0] += ["vote NLL"]
    for name in facts["methods"]:
        row = rows[name]
        is_chosen = about["method"] == AUTO and name == about["chosen"]
        line = [
            f"{name} (chosen)" if is_chosen else name,
            number(row["nll"]),
            change_text(row["changes"].get("nll")),
            f"{number(row['ece'])} ({number(row['floor'])})",
        ]
        lines.append([*line, number(row.get("vote_nll"))] if voted else line)
    return lay_out(lines)


def calibration_sentences(facts: Mapping[str, Any]) -> list[str]:
    """The choice, the state before and after, and the gain, in plain sentences."""
    about, audits = facts["calibration"], facts["audits"]
    after = about["after"]
    out = [*_choice(facts), f"Before: {audits[BASELINE]['sentences'][0]}"]
    out.append(f"After: {audits[after]['sentences'][0]}")
    changes = next(
        r["changes"] for r in facts["rows"] if (r["method"], r["stratum"]) == (after, "overall")
    )
    for key in ("nll", "vote_nll"):
        change = changes.get(key)
        if change is None:
            continue
        name = METRICS[key].name
        out.append(f"{name[:1].upper()}{name[1:]} {_verdict(change)}.")
    return out


def _verdict(change: Mapping[str, Any]) -> str:
    """Whether a change is beyond chance."""
    text = change_text(change)
    if change["low"] is None:
        return f"changes by {text}; there are too few cases or groups to say more"
    if text == "0":
        return "stays as it was"
    if change["high"] < 0:
        return f"falls beyond chance: {text}"
    if change["low"] > 0:
        return f"rises beyond chance: {text}"
    return f"does not change beyond chance: {text}"


def _choice(facts: Mapping[str, Any]) -> list[str]:
    about = facts["calibration"]
    if about["method"] != AUTO:
        return []
    others = [m for m in facts["methods"] if m not in (*_NOTHING, AUTO)]
    if about["chosen"] in _NOTHING:
        return [
            f"auto leaves p as it is: none of {', '.join(others)} has a lower cross-fitted label NLL (log "
            "loss)."
        ]
    folds = ", ".join(f"{name} in {count}" for name, count in about["by_fold"].items())
    return [
        f"auto chose {about['chosen']}: the lowest cross-fitted label NLL (log loss) of {len(others) + 1} "
        "candidates, doing nothing included. The row auto shows what to expect of such a choice on other "
        f"cases: each of {about['n_folds']} folds got what the others chose ({folds})."
    ]
