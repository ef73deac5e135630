"""One evaluation: the facts of one or several methods on the same cases, computed once.

An audit is the evaluation of one method, two files of two, `compare` of many, `calibrate` of before and
after, a stream of one that was compressed. Terminal, page, notebook, tables and gates render its facts and
compute nothing, so they cannot disagree. Bootstrap and null have the same number of draws; the
bootstrap's are shared by all methods, a method's null is shared by its seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from scalecal.cases import BASELINE, THRESHOLD, Factor, Predictions
from scalecal.checks import InputError, LazyModule, check_inside, check_probs
from scalecal.evaluation import changes, exhibits, texts, words
from scalecal.evaluation.audits import Audit, audit_predictions, cases_of
from scalecal.evaluation.candidates import NOTHING, try_candidates
from scalecal.evaluation.cells import check_cell
from scalecal.evaluation.gates import Condition, Failure, gate_failures
from scalecal.evaluation.judging import JUDGES, Facts, judge, judged_choice, recommend
from scalecal.evaluation.scores import Nulls, Resampled, draw_nulls, score_cell
from scalecal.evaluation.sufficiency import cases_to_settle
from scalecal.io.store import as_document, plain, write_text
from scalecal.io.text import listed
from scalecal.metrics import COLUMNS
from scalecal.metrics.arguments import as_table
from scalecal.probes.methods import METHODS
from scalecal.votes import without_ties

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
else:
    pd = LazyModule("pandas")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of one or several methods on the same cases.

    Made by `scalecal.audit`, `scalecal.compare`, `scalecal.calibrate` and the functions of this module.

    Attributes
    ----------
    predictions : Predictions
        What was evaluated, on labelled cases with their strata.
    audits : dict
        Audit of each audited method: method -> `scalecal.evaluation.audits.Audit`.
    core : dict
        The facts behind verdict, recommendation and words; `facts` holds all.
    results : DataFrame or None
        Of several methods: method, seed, stratum, metric, value, floor.

    Examples
    --------
    >>> import numpy as np
    >>> from scalecal import audit
    >>> p = np.random.default_rng(0).uniform(size=2000)
    >>> result = audit(np.random.default_rng(1).uniform(size=2000) < p, p)
    >>> result.verdict["badge"], result["overall"]["n"]
    ('good', 2000)
    """

    predictions: Predictions
    audits: Mapping[str, Audit]
    core: dict[str, Any]
    results: pd.DataFrame | None = None
    _more: Callable[[], dict[str, Any]] = field(default=dict, repr=False)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Everything any display shows, as ``facts.json`` holds it; undefined numbers are None."""
        return dict(plain(self.core | self._more()))

    @cached_property
    def diagrams(self) -> Facts:
        """Facts of the reliability diagrams of the audited methods."""
        if "reliability" in self.core:
            return self.core
        # A notebook shows the diagrams alone: the other facts may take longer than the audit.
        return dict(plain(_diagrams(self.audits)))

    @property
    def audit(self) -> Audit:
        """Numbers of the method that the verdict is about."""
        return self.audits[self.core["judged"]]

    def __getitem__(self, stratum: str) -> dict[str, Any]:
        return self.audit[stratum]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict of numbers per stratum, then per level of a column; the first is `overall`."""
        return self.audit.all_rows

    @property
    def by(self) -> list[dict[str, Any]]:
        """What is said of each column whose levels are audited: test, spread, calibrators, levels."""
        return self.audit.by

    @property
    def difficulty(self) -> list[dict[str, Any]]:
        """Votes against the probability of a vote in strata of predicted difficulty."""
        return self.audit.difficulty

    @property
    def references(self) -> list[dict[str, Any]]:
        """The same numbers for two uninformative predictors."""
        return self.audit.references

    @property
    def meta(self) -> dict[str, Any]:
        """How the numbers were made: version, seed, options, data hash, inter-reader statistics."""
        return self.audit.meta

    @property
    def notes(self) -> list[str]:
        """Notes on the numbers, each once."""
        every = (note for audit in self.audits.values() for note in audit.shown_notes)
        return list(dict.fromkeys(every))

    @property
    def verdict(self) -> dict[str, Any]:
        """A badge, a headline and three answers: is it calibrated, where not, what to do."""
        return {**self.core["verdict"], "answers": self.core["lead"]}

    @property
    def sentences(self) -> list[str]:
        """Plain sentences that claim no more than the tests show."""
        return words.sentences(self.core)

    @property
    def recommended(self) -> dict[str, Any] | None:
        """What is recommended for the label (``p``) and for a reader's vote (``p_reader``)."""
        recommended: dict[str, Any] | None = self.core["recommended"]
        return recommended

    @property
    def table(self) -> pd.DataFrame:
        """One row per method: what ``comparison.csv`` holds."""
        if not self.facts["rows"]:
            raise InputError("an audit of a stream has no table of methods: use to_frame()")
        return texts.comparison_table(self.facts)

    def __str__(self) -> str:
        return self.text(self.notes)

    def text(self, notes: Sequence[str]) -> str:
        """Lay the evaluation out as text, with these notes."""
        return texts.evaluation_text(self.core, notes)

    @property
    def differences(self) -> pd.DataFrame:
        """Of several files: every difference to the first, paired, by stratum and metric."""
        return pd.DataFrame(self.core["differences"])

    def failures(self, conditions: Iterable[str | Condition]) -> list[Failure]:
        """Return which conditions, such as "verdict != good" or "oe < 0.8", are met.

        See `scalecal.evaluation.gates`; an undefined number counts as failing. Of several files each is
        tested.
        """
        audits = {self.core["judged"]: self.audit}
        if self.core["kind"] == "files":
            audits = dict(self.audits)
        failures = []
        for method, audit in audits.items():
            badge = self.core["audits"][method]["judgement"]["badge"]
            rows = [*audit.all_rows, *audit.classes]
            for failure in gate_failures(conditions, rows, audit.difficulty, badge=badge):
                if self.core["kind"] == "files":
                    failure = replace(failure, model=method)
                failures.append(failure)
        return failures

    def to_frame(self) -> pd.DataFrame:
        """Return one row per stratum, and per class of several (`scalecal.metrics.COLUMNS`)."""
        frame = pd.DataFrame([*self.rows, *self.audit.classes])
        return frame[[key for key in COLUMNS if key in frame]]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``audit.json`` holds: an extract of the facts; of several files, all audits."""
        if self.core["kind"] == "files":
            kept = {key: self.core[key] for key in ("audits", "differences", "verdict", "lead")}
            kept["paragraphs"] = list(self.core["paragraphs"].values())
            return dict(plain(kept | {"notes": self.notes}))
        return dict(plain(extract(self.core, self.core["judged"], self.audit)))

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the extract as JSON text, and write it to `path` if one is given."""
        text = json.dumps(as_document(self.to_dict()), indent=2, ensure_ascii=False)
        if path is not None:
            write_text(path, text + "\n")
        return text

    def to_html(self, path: str | Path) -> Path:
        """Write the audit as one small page and return its path."""
        from scalecal.report import audit_page

        write_text(path, audit_page(self))
        return Path(path)

    def _repr_html_(self) -> str:
        from scalecal.report import audit_html

        return audit_html(self)

    def decision_curve(self, thresholds: ArrayLike = exhibits.THRESHOLDS) -> pd.DataFrame:
        """Return the net benefit of acting on the probabilities, one row per threshold.

        For labels and `p`, and for votes and `p_reader` (or `p`), overall and by stratum: net benefit and
        its gain over the better of treating all and none, with 95 % intervals
        (`scalecal.evaluation.exhibits`). Within a stratum the prevalence is that of the stratum.
        Empty for more than two classes.

        Examples
        --------
        >>> import numpy as np
        >>> from scalecal import audit
        >>> p = np.linspace(0.01, 0.99, 50)
        >>> result = audit(p > np.tile([0.2, 0.5, 0.8, 0.4, 0.6], 10), p)
        >>> result.decision_curve([0.3])[["net_benefit", "treat_all"]].round(3).values.tolist()
        [[0.386, 0.286]]
        """
        return exhibits.decision_frame(self.audit, thresholds)

    def plot(self) -> Figure:
        """Draw a reliability diagram per stratum, with counts and consistency bars."""
        from scalecal.report import audit_drawing

        return audit_drawing(self).figure()


def extract(core: Facts, method: str, audit: Audit) -> dict[str, Any]:
    """What ``audit.json`` holds of a method: the numbers of every stratum, and what is said of them.

    What is said of an evaluation is said of the method it judges; any other method has its own verdict.
    """
    found = {**core["verdict"], "answers": core["lead"]}
    sentences = words.sentences(core)
    if method != core["judged"]:
        found = core["audits"][method]["verdict"]
        sentences = words.verdict_sentences(found, found["answers"])
    return {
        "strata": audit.all_rows,
        "by": audit.by,
        "classes": audit.classes,
        "difficulty": audit.difficulty,
        "references": audit.references,
        "decision": exhibits.decision_rows(audit, exhibits.CHOSEN),
        "verdict": found,
        "sentences": sentences,
        "notes": audit.notes,
        "meta": audit.meta,
    }


def audit_facts(audit: Audit, calibration: Facts | None = None) -> dict[str, Any]:
    """What facts hold of one audited method, of the strata that are shown.

    `calibration` says how the method was recalibrated, where it was: a kept calibrator has an estimation
    error of its own.
    """
    shown = {"overall", *audit.shown_strata}
    about: dict[str, Any] = {
        "agreement": audit.meta["strata"] == "agreement",
        "foreseen": audit.predictions.only.p_split is not None,
        "reader": audit.meta.get("votes_judge") == "p_reader",
        "untied": 0,
    }
    votes = audit.predictions.cases.votes
    if votes is not None:
        about["untied"] = without_ties(votes, sample_weight=audit.units.times)
    facts: dict[str, Any] = {
        "rows": audit.shown_rows,
        "difficulty": audit.difficulty,
        "by": audit.by,
        "references": [row for row in audit.references if row["stratum"] in shown],
        "classes": audit.classes,
        "judgement": judge(
            audit.rows,
            audit.difficulty,
            audit.classes,
            audit.by,
            **about,
            **_estimation(calibration),
        ),
        "notes": audit.shown_notes,
        "meta": audit.meta,
    }
    facts["enough"] = None
    if facts["judgement"]["badge"] == "inconclusive":
        judged_rows = audit.classes or audit.rows[:1]
        facts["enough"] = cases_to_settle(facts["judgement"], judged_rows)
    # A stratum may fail without being among those of most cases, which are shown.
    whole = facts | {"rows": audit.rows}
    facts["verdict"] = words.verdict(whole)
    return facts


def _estimation(calibration: Facts | None) -> dict[str, Any]:
    """What a judgement allows for a kept calibrator, as arguments of `judge`."""
    known = (calibration or {}).get("estimation_error")
    if calibration is None or known is None:
        return {}
    return {"estimation_error": known["squared"], "unproven": calibration["unproven"]}


# One method


def audit(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    votes: ArrayLike | None = None,
    n_raters: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    p_reader: ArrayLike | None = None,
    rho: float = 0.0,
    p_split: ArrayLike | None = None,
    by: Mapping[str, Any] | None = None,
    prevalence: float | None = None,
    threshold: float = THRESHOLD,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Audit the calibration of predictions, overall and by stratum.

    Labels judge `probs`; votes judge `p_reader`, or `probs` if there is none.

    Parameters
    ----------
    y
        Labels 0 / 1, or class numbers.
    probs
        Positive-class probabilities (n,), or (n, C). With more than two classes, ECE and the tests are
        of the event "the top class is right".
    votes, n_raters
        Readers' votes: counts per class (n, C), or counts of the positive class with the panel's size.
        Strata are made of them by `scalecal.votes.strata` unless `strata` is given.
    strata
        A stratum name per case; an empty name means no stratum.
    groups
        Patient, slide, ... of each case: floors, nulls, tests and intervals then treat
        groups, not cases, as independent (`scalecal.metrics.grouping`).
    p_reader
        Probabilities of one reader's vote, in the form of `probs`.
    rho
        Correlation of two readers' votes on a case around that probability (`scalecal.panel`).
    p_split
        Predicted difficulty: the probability that a case's readers split, by this model or another, but
        not from these votes. Without it, difficulty is the uncertainty of the predicted vote.
    by
        Columns of names whose levels are audited, such as ``{"site": sites, "scanner": scanners}``: each
        level has a row, ``site=A``; whether levels differ is in `Evaluation.by`.
    prevalence
        Share of positives, of two classes, where the model will be used, if the cases were sampled by
        class (an enriched sample): all numbers then refer to that population, and cases are
        weighted by their label (`scalecal.metrics.reweighting`).
    threshold
        Probability from which a case is called positive, of two classes: strata of predicted difficulty are
        by the distance from it.
    n_bins
        Bins of equal width for ECE.
    n_resamples, seed
        For nulls and tests.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.beta(0.6, 0.8, size=600)
    >>> votes = rng.binomial(7, chance)
    >>> result = audit((votes >= 4).astype(int), chance, votes=votes, n_raters=7)
    >>> [(row["name"], row["n"]) for row in result.rows]
    [('overall', 600), ('high', 375), ('medium', 109), ('low', 116)]
    >>> result["low"]["floor"] > result["overall"]["floor"]
    True
    """
    p = check_probs(probs)
    cases = cases_of(
        y,
        as_table(p).shape[1],
        votes=votes,
        n_raters=n_raters,
        strata=strata,
        groups=groups,
        by=by,
        probs=p,
    )
    reader = None if p_reader is None else check_probs(p_reader, "p_reader")
    split = None if p_split is None else check_probs(p_split, "p_split")
    predictions = Predictions.single(cases, p, reader, rho=rho, p_split=split)
    return evaluate_alone(
        replace(predictions, threshold=check_inside(threshold, "threshold")),
        prevalence=prevalence,
        n_bins=n_bins,
        n_resamples=n_resamples,
        seed=seed,
    )


def evaluate_alone(
    predictions: Predictions,
    *,
    dataset: str = "",
    advance: Callable[[float], object] = lambda _: None,
    **options: Any,
) -> Evaluation:
    """Evaluate the answers of one method: an audit, and which calibrator would help it.

    Parameters
    ----------
    predictions
        Of one method (`Predictions.single`).
    dataset
        Name of the data, for the page.
    advance
        Called with the share of the work that was just done (`scalecal.progress`).
    options
        As `scalecal.evaluation.audits.audit_predictions`.
    """
    audit = audit_predictions(predictions, advance=advance, **options)
    return evaluation_of(audit, dataset=dataset)


def evaluation_of(audit: Audit, *, dataset: str = "") -> Evaluation:
    """Return the evaluation of one audited method, with a calibrator tried where it needs one."""
    method = audit.predictions.methods[0]
    prevalence = audit.meta.get("prevalence")
    whole = replace(audit.predictions, dataset=dataset, encoder="model", prevalence=prevalence)
    # Of very many strata only those of most cases are shown.
    whole = replace(whole, cases=whole.cases.with_strata(audit.shown_strata))
    options = audit.options
    made = {method: audit}
    core = _core_facts(whole, made, options) | {"kind": "audit"}
    core |= {"recommended": None, "candidates": {}, "softening": {}, "rows": []}
    found = None
    # Calibrators are fitted to cases as they come: not to counts, nor at another prevalence.
    plainly = audit.units.times is None and audit.reweighted is None
    if plainly and core["audits"][method]["judgement"]["badge"] == "attention":
        whole, found = try_candidates(whole, seed=options["seed"])
    drawn = Resampled([whole], **options)
    loss_sd: dict[str, float] = {}
    if found is not None and found["estimation_error"] is not None:
        loss_sd[whole.methods[1]] = found["estimation_error"].loss_sd
    if found is not None:
        core["methods"] = whole.methods
        core["candidates"] = found["losses"]
        # The model itself takes the place of doing nothing.
        best = recommend(
            {"nll": found["losses"]},
            changes.paired_changes(whole, drawn, loss_sd),
            baseline=next(iter(found["losses"])),
        )
        if best is not None:
            core["recommended"] = best | {"adds_reader": found["adds_reader"]}
        core["about"] = dict.fromkeys(whole.methods[1:], found["about"])
    # Words are made of the facts as they are written, where undefined numbers are None.
    core = plain(core)
    words.put_into_words(core)

    # What only the page shows is computed when it is asked for: in Python most audits are printed.
    def more() -> dict[str, Any]:
        # Counts have no cases to list, and nothing to be compared with.
        if audit.units.times is not None:
            return _diagrams(made)
        shown, audits = dict(made), dict(core["audits"])
        for chosen in whole.methods[1:]:
            shown[chosen] = audit_predictions(whole.of(chosen), **options)
            audits[chosen] = audit_facts(shown[chosen])
        facts, _ = _method_facts(whole, shown, drawn, options, loss_sd=loss_sd)
        return facts | {"audits": audits} | _shown_facts(whole, shown, core)

    return Evaluation(whole, made, core, None, more)


def _core_facts(
    whole: Predictions, audits: Mapping[str, Audit], options: Mapping[str, Any]
) -> dict[str, Any]:
    """What every evaluation says of itself."""
    cases, base = whole.cases, whole.baseline
    after = whole.calibration.get("after")
    audited = {}
    for method, audit in audits.items():
        calibration = whole.calibration if method == after else None
        audited[method] = audit_facts(audit, calibration)
    parts = [part for part in (whole.dataset, whole.encoder) if part]
    if whole.shift is not None:
        parts.append("trained on {}, tested on {}".format(*whole.shift))
    # The stratum whose cases are hardest: low agreement, or the last one.
    hardest = None
    if "low" in whole.stratum_names:
        hardest = "low"
    elif whole.stratum_names:
        hardest = whole.stratum_names[-1]
    return {
        "name": ", ".join(parts),
        "dataset": whole.dataset,
        "encoder": whole.encoder or None,
        "classes": list(cases.classes),
        "event": audits[base].meta["event"],
        "n": cases.n,
        "n_test": len(whole.first(base)),
        "n_seeds": len(whole.seeds(base)),
        **options,
        "resampled": "cases" if cases.groups is None else "groups",
        "strata": list(whole.stratum_names),
        "hardest": hardest,
        "agreement": cases.agreement,
        "votes": cases.votes is not None,
        "methods": whole.methods,
        "baseline": base,
        "judged": base,
        "audits": audited,
        "prevalence": whole.prevalence,
        "calibration": whole.calibration or None,
        "differences": [],
        "about": {},
    }


# Several methods


def evaluate(
    predictions: Predictions,
    *,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
    prevalence: float | None = None,
    voted: changes.VotedCurve | None = None,
    advance: Callable[[float], object] = lambda _: None,
) -> Evaluation:
    """Compare every method with the baseline, and gather the facts.

    Parameters
    ----------
    predictions
        Several methods on the same cases; with several files (`sources`) the first is the baseline.
    n_bins
        Bins of equal width for ECE.
    n_resamples, seed
        For intervals and nulls.
    prevalence
        Share of positives in the population that numbers are of, if it is not that of the cases.
    voted
        Scores of the panel by number of voted cases (`run_grid`).
    advance
        Called with the share of the work that was just done (`scalecal.progress`).

    Examples
    --------
    >>> from scalecal.datasets import simulate
    >>> from scalecal.runs.grid import run_grid
    >>> data = simulate(400, dim=8, seed=0)
    >>> grid = run_grid(data, methods=["none", "temperature"], seeds=2)
    >>> evaluate(grid.cell).table["method"].tolist()
    ['none', 'temperature']
    """
    options: dict[str, Any] = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    predictions = predictions.labelled()
    predictions = replace(predictions, cases=predictions.cases.stratified())
    check_cell(predictions)
    kind = "comparison"
    if predictions.calibration:
        kind = "calibration"
    elif predictions.meta.get("files") is not None:
        kind = "files"
    if prevalence is not None:
        predictions = replace(predictions, prevalence=prevalence)
    # Other settings of a method that is there itself are left out: tables hold those.
    settings = {m for m, of in predictions.variants.items() if of in predictions.methods}
    kept = {key: own for key, own in predictions.answers.items() if key[0] not in settings}
    whole = replace(predictions, answers=kept)
    base, judged = whole.baseline, str(whole.calibration.get("after") or whole.baseline)
    audited = [*dict.fromkeys([base, judged])]
    if kind == "files":
        audited = whole.methods
    audits = {}
    for method in audited:
        audits[method] = audit_predictions(whole.of(method), prevalence=whole.prevalence, **options)
        advance(0.25 / len(audited))
    # Of very many strata only those of most cases are shown, so only these are compared.
    whole = replace(whole, cases=whole.cases.with_strata(audits[base].shown_strata))
    drawn = Resampled([whole], **options)
    core = _core_facts(whole, audits, options)
    core |= {"kind": kind, "judged": judged, "first_seed": whole.seeds(base)[0]}
    core["about"] = dict(whole.calibration.get("about") or {})
    # Methods of a comparison are trainings; calibrators of the same names are not.
    if kind == "comparison":
        core["about"] = {m: METHODS[m].about for m in whole.methods if m in METHODS}
    loss_sd: dict[str, float] = {}
    known = whole.calibration.get("estimation_error")
    if known is not None:
        both = (whole.calibration["chosen"], whole.calibration["after"])
        loss_sd = dict.fromkeys(both, known["loss_sd"])
    facts, results = _method_facts(
        whole, audits, drawn, options, loss_sd=loss_sd, voted=voted, advance=advance
    )
    core |= facts
    if kind == "comparison":
        core["softening"] = changes.beside_softening(whole, words.judge_of(core), **options)
    core["recommended"] = _recommended(core)
    # Which method is shown beside the baseline is known only after the recommendation.
    best = _best(core)
    if kind == "comparison" and best is not None and best not in audits:
        audits[best] = audit_predictions(whole.of(best), prevalence=whole.prevalence, **options)
        core["audits"][best] = audit_facts(audits[best])
    core |= _shown_facts(whole, audits, core)
    if kind == "files":
        core["differences"] = changes.differences(whole, drawn)
    core = plain(core)
    words.put_into_words(core)
    advance(0.25)
    return Evaluation(predictions, audits, core, texts.tidy_results(results, voted))


def evaluate_files(predictions: Predictions, **options: Any) -> Evaluation:
    """Audit several models' predictions of the same cases, and compare them with the first.

    Parameters
    ----------
    predictions
        As `scalecal.io.read_common_predictions` returns them: methods are called by their files.
    options
        As `evaluate`.

    Examples
    --------
    >>> import numpy as np
    >>> from scalecal.cases import Answers, Cases
    >>> p = np.random.default_rng(0).uniform(size=300)
    >>> y = (np.random.default_rng(1).uniform(size=300) < p).astype(int)
    >>> cases = Cases(n=300, classes=("0", "1"), y=y)
    >>> both = {("a.csv", 0): Answers(p), ("b.csv", 0): Answers(0.5 + 0 * p)}
    >>> evaluate_files(Predictions(cases, both), n_resamples=200).sentences[-1]
    'b.csv has higher label NLL than a.csv, by 0.210 [0.158, 0.271], ...; no clear difference in ECE.'
    """
    names = predictions.methods
    two = [name for name in names if predictions.first(name).p_reader is not None]
    if 0 < len(two) < len(names):
        judged = (
            f"Votes judge p_reader where a file has one ({', '.join(two)}), and p of the others."
        )
        predictions = replace(predictions, cases=predictions.cases.note(judged))
    called = listed(names if len(names) < 4 else [names[0], f"{len(names) - 1} others"])
    meta = {**predictions.meta, "files": dict(predictions.sources) or dict.fromkeys(names)}
    return evaluate(replace(predictions, dataset=called, meta=meta), **options)


def _recommended(core: Facts) -> dict[str, Any] | None:
    """What is recommended of several methods: never a negative control, nor one trained on votes."""
    if core["kind"] == "calibration":
        return _of_calibration(core)
    allowed = [core["baseline"]]
    for method in core["methods"]:
        known = None
        if core["kind"] == "comparison":
            known = METHODS.get(method)
        # One reads the votes that judge it, the other is there to be worse.
        barred = known is not None and (known.needs_votes or known.control)
        if method != core["baseline"] and not barred:
            allowed.append(method)
    rows = {r["method"]: r for r in core["rows"] if r["stratum"] == "overall"}
    losses = {}
    for metric in JUDGES.values():
        losses[metric] = {m: rows[m][metric] for m in allowed if metric in rows[m]}
    made = {m: {"overall": rows[m]["changes"]} for m in rows}
    return recommend(losses, made, baseline=core["baseline"])


def _of_calibration(core: Facts) -> dict[str, Any]:
    """What a calibration has chosen, judged as audit and compare judge it: by the method's own change.

    The change of `auto`, whose choice was made anew in every fold, stands in the table beside it.
    """
    chosen = core["calibration"]["chosen"]
    tried = 1
    if core["calibration"]["method"] == "auto":
        tried = len([m for m in core["methods"] if m not in (*NOTHING, "auto", "auto-nested")])
    made = words.row_of(core, chosen)["changes"]
    out: dict[str, Any] = {}
    for answer, metric in JUDGES.items():
        out[answer] = None
        if metric in made:
            out[answer] = judged_choice(chosen, metric, made[metric], tried=max(tried, 1))
    return out


def _best(core: Facts) -> str | None:
    """The method shown beside the baseline: recommended for sure, else the lowest of all."""
    methods = words.recommended_methods(core)
    for answer in ("p_reader", "p"):
        own = (core["recommended"] or {}).get(answer)
        if own is not None and own["method"] != core["baseline"]:
            methods.append(own["method"])
    return next(iter(methods), None)


def _method_facts(
    whole: Predictions,
    audits: Mapping[str, Audit],
    drawn: Resampled,
    options: Mapping[str, Any],
    *,
    loss_sd: Mapping[str, float] | None = None,
    voted: changes.VotedCurve | None = None,
    advance: Callable[[float], object] = lambda _: None,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Facts by method: means over seeds, nulls, changes, softening, shares; and the results behind them."""
    nulls: dict[str, Nulls] = {}
    for method in whole.methods:
        seeds = whole.seeds(method)
        # The audit of a method's only seed has drawn them: several seeds share as many draws.
        if method in audits and len(seeds) == 1:
            nulls[method] = {seeds[0]: {"overall": audits[method].drawn[0], **audits[method].nulls}}
        else:
            nulls[method] = draw_nulls(whole, method, **options)
        advance(0.25 / len(whole.methods))
    own_nulls = nulls.get(BASELINE) if whole.stratum_names else None
    results = score_cell(whole, nulls=own_nulls, **options)
    made = changes.paired_changes(whole, drawn, loss_sd)
    advance(0.25)
    rows = changes.method_rows(whole, results, nulls, made)
    facts: dict[str, Any] = {
        "rows": rows,
        "softening": {},
        "presets": {m: changes.preset_of(whole, m) for m in whole.methods},
        "recovered": {m: changes.recovered(whole, drawn, m) for m in whole.methods},
        "voted": changes.voted_points(whole, drawn, voted),
        "kappa_sensitivity": changes.kappa_sensitivity(whole, drawn, voted),
    }
    return facts, results


def _diagrams(audits: Mapping[str, Audit]) -> dict[str, Any]:
    """What the reliability diagrams of the audited methods show."""
    return {
        "shown": list(audits),
        "reliability": {m: exhibits.reliability_facts(audit) for m, audit in audits.items()},
        "vote_reliability": {m: exhibits.vote_reliability(audit) for m, audit in audits.items()},
    }


def _shown_facts(whole: Predictions, audits: Mapping[str, Audit], core: Facts) -> dict[str, Any]:
    """What figures and lists show of the audited methods."""
    shown, base, judged = list(audits), core["baseline"], core["judged"]
    both = exhibits.two_answers_method(whole, shown)
    after = shown[1] if len(shown) > 1 else None
    return {
        **_diagrams(audits),
        "referral": exhibits.referral_curves(whole, shown),
        "decision": exhibits.decision_curves(audits),
        "two_answers": both,
        "confident_errors": exhibits.confident_errors(whole, judged),
        "cases": exhibits.overconfident_cases(whole, base, after, both),
        "splits": [] if both is None else exhibits.likely_splits(whole, both),
    }


def compare_audits(
    a: Evaluation,
    b: Evaluation,
    *more: Evaluation,
    names: Sequence[str] | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Compare audits of models on the same cases, in Python what `scalecal audit` does with several files.

    Cases, or groups if there are any, are resampled; with fewer than eight there is no interval and no
    p-value.

    Parameters
    ----------
    a, b, *more
        Audits of the same cases; the first is what the others are compared with.
    names
        Their names; by default a, b, c, ...
    n_resamples, seed
        For the bootstrap.

    Examples
    --------
    >>> import numpy as np
    >>> from scalecal import audit
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.uniform(size=500)
    >>> y = (rng.uniform(size=500) < chance).astype(int)
    >>> both = compare_audits(audit(y, np.clip(2 * chance - 0.5, 0.01, 0.99)), audit(y, chance))
    >>> bool(both.differences.set_index("metric").loc["nll", "high"] < 0)
    True
    """
    every = (a, b, *more)
    called = [chr(ord("a") + i) for i in range(len(every))]
    if names is not None:
        called = list(names)
    if len(called) != len(every) or len(set(called)) < len(called):
        raise InputError(f"{len(every)} audits need as many different names, got {called}")
    for other in every[1:]:
        _check_same_cases(a.audit, other.audit)
    made = {(name, 0): own.audit.predictions.only for name, own in zip(called, every, strict=True)}
    return evaluate_files(
        Predictions(a.audit.predictions.cases, made),
        n_bins=a.meta["n_bins"],
        n_resamples=n_resamples,
        seed=seed,
        prevalence=a.meta.get("prevalence"),
    )


def _check_same_cases(a: Audit, b: Audit) -> None:
    if a.units.times is not None or b.units.times is not None:
        raise InputError(
            "a streamed audit keeps counts, but models are compared case by case: audit both without "
            "streaming"
        )
    if a.meta.get("prevalence") != b.meta.get("prevalence"):
        raise InputError("the audits are of populations with different prevalences")
    for name in ("names", "y", "votes", "strata", "groups"):
        left, right = (getattr(audit.predictions.cases, name) for audit in (a, b))
        if isinstance(left, Factor) and isinstance(right, Factor):
            left, right = left.values, right.values
        if not np.array_equal(left, right):
            what = {"names": "ids, or their order,", "y": "labels"}.get(name, name)
            raise InputError(f"the audits are of different cases: their {what} differ")
