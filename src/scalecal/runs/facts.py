"""The facts about a cell, computed once: `compare_cell` makes them, every display reads them.

Means over seeds, floors, nulls, paired changes, the best method, audits and the curves of the page are
one JSON-able dict, which a run folder keeps as ``facts.json``. Terminal, page, tables and figures render
it and compute nothing, so they cannot disagree. Bootstrap and null have the same number of draws; the
bootstrap's are shared by all methods, a method's null is shared by its seeds.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.auditing.audits import Audit, audit_predictions
from scalecal.auditing.decision_curves import CHOSEN, decision_rows
from scalecal.auditing.gates import Condition, Failure, parse_conditions
from scalecal.auditing.sentences import LEVEL
from scalecal.auditing.vote_bins import vote_reliability
from scalecal.calibrators import (
    BetaCalibration,
    Calibrator,
    PanelCalibrator,
    PlattScaling,
    QuadraticScaling,
    TemperatureScaling,
)
from scalecal.calibrators.base import as_logits
from scalecal.calibrators.crossfitting import crossfit, fold_numbers
from scalecal.cases import BASELINE, Predictions
from scalecal.checks import Float, InputError, Int, ScalecalWarning
from scalecal.inference.paired import Contrast, contrast_of, recovered_share
from scalecal.inference.units import student_error
from scalecal.io.store import plain
from scalecal.io.text import listed
from scalecal.metrics.arguments import as_table, read_hard_event
from scalecal.panel import PRIOR_SD_SHIFTED, split_probability, vote_log_pmf
from scalecal.runs import wording
from scalecal.runs.cells import PUBLISHED, VOTED, check_cell, reweighted, weights_of
from scalecal.runs.differences import cell_of_audits, differences, differences_text
from scalecal.runs.frontier import HARD, frontier_curve, frontier_methods, planes
from scalecal.runs.methods import METHODS
from scalecal.runs.scores import Nulls, Resampled, draw_nulls, score_cell
from scalecal.runs.voted import READS, Losses, VotedCurve

if TYPE_CHECKING:
    import pandas as pd

CONTROL = "scale-shuffled"
REFERENCE = "vote-fraction"
"""Training on the votes themselves: the gain whose share the others recover."""

CASES_LISTED = 8
"""Over-confident cases listed of each stratum."""

SUREST_LISTED = 6
"""Cases shown beside the verdict: of the audited seed, those it is surest of against the readers."""

SPLITS_LISTED = 12
"""Cases listed whose panel is most likely to split."""

THRESHOLDS = (0.8, 0.9, 0.95)
"""Confidence below which a case goes to a second reader, for the table."""

LEAST_GAIN = 0.0005
"""Least difference to softening that is one: smaller ones are printed as zero."""

DECISION_THRESHOLDS: Float = np.unique([*CHOSEN, *(np.arange(1, 50) / 50)])
"""Thresholds of the decision curves on a page."""

_CURVE_POINTS = 60  # of a referral curve: more would not be seen on a page

Row = dict[str, Any]
Changes = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Method -> stratum -> metric -> change against the baseline."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """All methods of a cell, paired, and the facts about them. Made by `compare_cell`.

    Attributes
    ----------
    cell : Predictions
        The cell, with the remedies that were tried on predictions alone.
    facts : dict
        Everything any display shows, as ``facts.json`` holds it; undefined numbers are None.
    results : DataFrame
        Tidy: method, seed, stratum, metric, value, floor.
    audits : dict
        Audits of the methods that are shown side by side: the baseline and the best.
    """

    cell: Predictions
    facts: dict[str, Any]
    results: pd.DataFrame
    audits: Mapping[str, Audit]

    @property
    def table(self) -> pd.DataFrame:
        """One row per method: what ``comparison.csv`` holds."""
        return wording.comparison_table(self.facts)

    @property
    def best(self) -> str:
        """The best method that may be recommended, or the baseline where there is none."""
        best = self.facts["best"]
        return str(best["method"] if best else self.facts["baseline"])

    @property
    def sentences(self) -> list[str]:
        """The result in plain sentences."""
        return wording.all_sentences(self.facts)

    @property
    def notes(self) -> list[str]:
        """What the audits' readers should know, each note once."""
        return list(dict.fromkeys(note for audit in self.audits.values() for note in audit.notes))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what was audited."""
        hashes = (str(audit.meta["data_sha256"]) for audit in self.audits.values())
        return hashlib.sha256("".join(hashes).encode()).hexdigest()

    def failures(self, conditions: Iterable[str | Condition]) -> list[Failure]:
        """Return which conditions (`scalecal.auditing.gates`) each of the audits meets."""
        parsed = parse_conditions(conditions)
        return [
            replace(failure, model=name)
            for name, audit in self.audits.items()
            for failure in audit.failures(parsed)
        ]

    def to_json(self) -> str:
        """Return the audits and the differences between models as JSON text."""
        facts = {key: self.facts[key] for key in ("audits", "differences", "lead", "more")}
        return json.dumps(facts | {"notes": self.notes}, indent=2, ensure_ascii=False)

    def __str__(self) -> str:
        if not self.facts["differences"]:
            return wording.comparison_text(self.facts)
        parts = [differences_text(self.facts), wording.files_text(self.facts)]
        return "\n\n".join([*parts, "\n".join(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        shown = wording.shown_table(self.facts)
        return str(shown.to_html(index=False, escape=True, border=0))


def compare_cell(
    cell: Predictions,
    *,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
    audits: Mapping[str, Audit] | None = None,
    voted: VotedCurve | None = None,
    advance: Callable[[float], object] = lambda _: None,
) -> Comparison:
    """Compare every method of a cell with its baseline, and gather the facts.

    Parameters
    ----------
    n_bins
        Bins of equal width for ECE.
    n_resamples, seed
        For intervals and nulls.
    audits
        Audits of the first seed of some methods, made with the same options.
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
    >>> compare_cell(grid.cell).table["method"].tolist()
    ['none', 'temperature']
    """
    check_cell(cell)
    options: dict[str, Any] = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    whole, derived = with_remedies(_main_methods(cell))
    base = whole.baseline

    def audited(method: str) -> Audit:
        answers = whole.of(method)
        return audit_predictions(answers, prevalence=whole.prevalence, **options)

    made = dict(audits or {})
    first_audit = made.get(base) or audited(base)
    cell = replace(whole, cases=whole.cases.with_strata(first_audit.shown_strata))
    # Nulls, scores, changes and all the rest take about as long.
    nulls = {}
    for method in cell.methods:
        nulls[method] = draw_nulls(cell, method, **options)
        advance(0.25 / len(cell.methods))
    results = score_cell(
        cell,
        nulls=nulls.get(BASELINE) if cell.stratum_names else None,
        advance=lambda share: advance(0.25 * share),
        **options,
    )
    drawn = Resampled([cell], **options)
    changes = _changes(cell, drawn)
    advance(0.25)
    rows = _rows(cell, results, nulls, changes)
    after = cell.calibration.get("after")
    candidates = {after} if after else _candidates(cell)
    best = best_method(changes, candidates, beaten=_beaten(drawn, changes, candidates))
    frontier = _frontier(cell, rows, options)
    files = bool(cell.meta.get("files"))
    shown = (
        cell.methods if files else [base, *([after] if after else [best["method"]] if best else [])]
    )
    made = {m: first_audit if m == base else made.get(m) or audited(m) for m in shown}
    first, both = cell.first(base), _two_answers(cell, shown)
    facts: dict[str, Any] = {
        "name": _name(cell),
        "dataset": cell.dataset,
        "encoder": cell.encoder or None,
        "classes": list(cell.cases.classes),
        "event": "positive class" if first.p.ndim == 1 else "top class is right",
        "n": cell.cases.n,
        "n_test": len(first),
        "seed": cell.seeds(base)[0],
        "n_seeds": len(cell.seeds(base)),
        **options,
        "prevalence": cell.prevalence,
        "resampled": drawn.resampled,
        "strata": list(cell.stratum_names),
        "hardest": cell.hardest,
        "agreement": cell.cases.agreement,
        "votes": cell.cases.votes is not None,
        "methods": cell.methods,
        "derived": derived,
        "calibration": cell.calibration or None,
        "about": _about(cell, derived),
        "presets": {m: _preset(cell, m) for m in cell.methods},
        "baseline": base,
        "best": best,
        "recommended": best["method"] if best and best["sure"] else None,
        "shown": shown,
        "audits": {m: _audit_facts(audit) for m, audit in made.items()},
        "rows": rows,
        "recovered": {m: _recovered(cell, drawn, m) for m in cell.methods},
        "contrasts": _contrasts(cell, drawn),
        "differences": differences(cell, drawn) if files else [],
        "voted": None if voted is None else _voted(cell, drawn, voted),
        "kappa_sensitivity": None if voted is None else _kappa_sensitivity(cell, drawn, voted),
        "reliability": {m: reliability_facts(audit) for m, audit in made.items()},
        "vote_reliability": {m: vote_reliability(audit) for m, audit in made.items()},
        "frontier": frontier,
        "softening": _softening(
            frontier["beyond"], "vote_nll" if cell.cases.votes is not None else "nll"
        ),
        "referral": _referral(cell, shown),
        "decision": _decision(made),
        "two_answers": both,
        "judged": after or base,
        "surest": _surest(cell, after or base),
        "cases": _overconfident(cell, base, shown[1] if shown[1:] else None, both),
        "splits": [] if both is None else _likely_splits(cell, both),
    }
    advance(0.25)
    facts = dict(plain(facts))
    facts["verdict"] = wording.verdict([facts])
    facts["lead"] = wording.lead([facts])
    facts["details"] = wording.details(facts)
    facts["more"] = wording.further(facts)
    return Comparison(whole, facts, _tidy(results, voted), made)


def compare_files(
    predictions: Predictions,
    *,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
    prevalence: float | None = None,
    advance: Callable[[float], object] = lambda _: None,
) -> Comparison:
    """Audit several models' predictions of the same cases, and compare them with the first.

    Parameters
    ----------
    predictions
        As `scalecal.io.read_common_predictions` returns them: methods are called by their files.
    prevalence
        Share of positives in the population that numbers are of, where it is not that of the cases.
    n_bins, n_resamples, seed, advance
        As `compare_cell`.

    Examples
    --------
    >>> from scalecal.cases import Answers, Cases
    >>> p = np.random.default_rng(0).uniform(size=300)
    >>> y = (np.random.default_rng(1).uniform(size=300) < p).astype(int)
    >>> cases = Cases(n=300, classes=("0", "1"), y=y)
    >>> both = {("a.csv", 0): Answers(p), ("b.csv", 0): Answers(0.5 + 0 * p)}
    >>> compare_files(Predictions(cases, both), n_resamples=200).facts["lead"][2]["text"]
    'b.csv has higher label NLL than a.csv, by 0.210 [0.158, 0.271], ...; no clear difference in ECE.'
    """
    options: dict[str, Any] = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    names = predictions.methods
    two = [name for name in names if predictions.first(name).p_reader is not None]
    judged = f"Votes judge p_reader where a file has one ({', '.join(two)}), and p of the others."
    if 0 < len(two) < len(names):
        predictions = replace(predictions, cases=predictions.cases.note(judged))
    audits = {
        name: audit_predictions(predictions.of(name), prevalence=prevalence, **options)
        for name in names
    }
    called = listed(names if len(names) < 4 else [names[0], f"{len(names) - 1} others"])
    meta = {"files": dict(predictions.sources) or dict.fromkeys(names)}
    cell = cell_of_audits(audits, dataset=called, meta=meta)
    return compare_cell(cell, audits=audits, advance=advance, **options)


def _tidy(results: pd.DataFrame, voted: VotedCurve | None) -> pd.DataFrame:
    """Results of every method, then those by number of voted cases; 0 is `panel-published`."""
    import pandas as pd

    tidy = results.drop(columns=["dataset", "encoder"])
    published = tidy["method"] == PUBLISHED
    tidy["voted"] = pd.Series(pd.NA, tidy.index, dtype="Int64").mask(published, 0)
    tidy["reads"] = pd.Series(None, tidy.index, dtype=object).mask(published, READS[0])
    tidy["draw"] = tidy["voted"]
    if voted is None or not voted.scores:
        return tidy
    curve = pd.DataFrame(voted.scores).assign(method=VOTED, stratum="overall")
    whole = {"voted": "Int64", "draw": "Int64"}
    return pd.concat([tidy, curve[tidy.columns].astype(whole)], ignore_index=True)


def _name(cell: Predictions) -> str:
    """Data set and encoder, and where a model was tested elsewhere than trained."""
    parts = [part for part in (cell.dataset, cell.encoder) if part]
    if cell.shift is not None:
        parts.append("trained on {}, tested on {}".format(*cell.shift))
    return ", ".join(parts)


def _main_methods(cell: Predictions) -> Predictions:
    """Leave out other settings of a method that is there itself: tables hold those."""
    settings = {m for m, of in cell.variants.items() if of in cell.methods}
    kept = {key: part for key, part in cell.answers.items() if key[0] not in settings}
    return replace(cell, answers=kept)


def _audit_facts(audit: Audit) -> dict[str, Any]:
    """Everything the audit says, of the strata that are shown."""
    whole, shown = audit.to_dict(), {"overall", *audit.shown_strata}
    rows = [row for row in whole.pop("strata") if row["name"] in shown]
    references = [row for row in whole["references"] if row["stratum"] in shown]
    return {"rows": rows, **whole, "references": references, "notes": audit.shown_notes}


def _about(cell: Predictions, derived: Mapping[str, str]) -> dict[str, str]:
    """What each method does, in a sentence, where it is known."""
    known = {m: METHODS[m].about for m in cell.methods if m in METHODS}
    return {**known, **derived}


def _preset(cell: Predictions, method: str) -> str | None:
    """Preset a method was trained by in this run."""
    own = METHODS[method if method in METHODS else BASELINE].preset
    return str(cell.meta.get("preset") or own)


# Numbers by method and stratum


def _rows(
    cell: Predictions, results: pd.DataFrame, nulls: Mapping[str, Nulls], changes: Changes
) -> list[Row]:
    """One row per method and stratum: means over seeds, floor, null band, changes."""
    grouped = results.groupby(["method", "stratum", "metric"], sort=False)
    mean: dict[Any, float] = grouped["value"].mean().to_dict()
    floor: dict[Any, float] = grouped["floor"].mean().to_dict()
    over_seeds: dict[Any, float] = grouped["value"].std(ddof=1).to_dict()
    out = []
    for method in cell.methods:
        index = cell.first(method).index
        for stratum in ("overall", *cell.stratum_names):
            at = (method, stratum, "ece")
            if at not in mean:
                continue
            row: Row = {
                "method": method,
                "stratum": stratum,
                "n": len(index[cell.inside(index, stratum)]),
                "seeds": len(cell.seeds(method)),
                "ece_sd": over_seeds[at],
                "floor": floor[at],
                **_bands([drawn.get(stratum) for drawn in nulls[method].values()]),
            }
            if stratum == "overall":
                row["null"] = row["floor"]  # the same quantity, without the noise of draws
            row |= {
                m: mean[method, stratum, m]
                for m in wording.compared_metrics()
                if (method, stratum, m) in mean
            }
            row["changes"] = changes.get(method, {}).get(stratum, {})
            out.append(row)
    return out


def _bands(by_seed: Sequence[Float | None]) -> dict[str, float]:
    """Mean, 5th and 95th percentile of each seed's null, averaged over the seeds that have one."""
    parts = [drawn for drawn in by_seed if drawn is not None and len(drawn)]
    if not parts:
        return dict.fromkeys(("null", "null_low", "null_high"), float("nan"))
    ends = np.mean([np.quantile(drawn, [0.05, 0.95]) for drawn in parts], axis=0)
    middle = float(np.mean([drawn.mean() for drawn in parts]))
    return {"null": middle, "null_low": float(ends[0]), "null_high": float(ends[1])}


def _changes(cell: Predictions, drawn: Resampled) -> Changes:
    """Every method's changes against the baseline: cases (or groups) resampled, means over seeds.

    `p` is the larger p-value of both kinds of noise, `sd` the change's spread over resamples, `units` what
    was resampled. Too few groups leave the difference alone.
    """
    base = cell.baseline
    out: Changes = {}
    for method in cell.methods:
        if not set(cell.seeds(method)) & set(cell.seeds(base)):
            continue
        out[method] = {}
        for stratum in ("overall", *cell.stratum_names):
            by_metric = {}
            for metric in wording.changed_metrics(stratum):
                try:
                    a, b = (drawn.drawn(cell.encoder, m, stratum, metric) for m in (base, method))
                    change = contrast_of(a, b)
                except InputError:
                    continue  # not defined here: no votes, more than two classes, an empty stratum
                if np.isfinite(change.difference):
                    drawn_change = b.samples - a.samples
                    known = np.isfinite(drawn_change).any()
                    sd = float(np.nanstd(drawn_change, ddof=1)) if known else float("nan")
                    by_metric[metric] = {**_change(change), "sd": sd, "units": change.units}
            out[method][stratum] = by_metric
    return out


def _recovered(cell: Predictions, drawn: Resampled, method: str) -> dict[str, Any]:
    """Share of the gain of training on the votes that a method recovers, or why it has none."""
    why = ""
    if cell.cases.votes is None:
        why = "no votes"
    elif not {BASELINE, REFERENCE, method} <= set(cell.methods):
        why = f"{BASELINE}, {REFERENCE} and {method} were not all run"
    elif _preset(cell, method) != _preset(cell, BASELINE):
        why = f"trained by another preset than {BASELINE}, so the gain is not its own"
    if why:
        return {"share": None, "low": None, "high": None, "reason": why}
    share = drawn.recovered(method, REFERENCE, stratum="overall", metric="vote_nll")
    return {"share": share.share, "low": share.low, "high": share.high, "reason": share.reason}


def _voted(cell: Predictions, drawn: Resampled, curve: VotedCurve) -> dict[str, Any]:
    """Share recovered and change of label NLL by number of voted cases and kind of reads.

    Intervals are over test cases, of means over seeds and draws; `draws_low` and `draws_high` are the
    10th and 90th percentile of the share over draws. `all` is the panel fitted to all votes.
    """
    import pandas as pd

    scores = pd.DataFrame(curve.scores)
    start = drawn.drawn(cell.encoder, BASELINE, "overall", "vote_nll")
    best = drawn.drawn(cell.encoder, REFERENCE, "overall", "vote_nll")
    gain = start.value - best.value
    points = []
    for (n, reads), by_seed in sorted(curve.losses.items()):
        here = scores[(scores["voted"] == n) & (scores["reads"] == reads)]
        table = here.pivot_table(index=["seed", "draw"], columns="metric", values="value")
        spread = (start.value - table["vote_nll"].groupby("draw").mean()) / gain
        gains = _gains(cell, drawn, by_seed)
        known = gains["share"] is not None
        points.append(
            {
                "voted": n,
                "reads": reads,
                **gains,
                "draws_low": float(spread.quantile(0.1)) if known else None,
                "draws_high": float(spread.quantile(0.9)) if known else None,
                **{m: float(table[m].mean()) for m in wording.compared_metrics() if m in table},
            }
        )
    draws = int(scores["draw"].max()) + 1 if len(scores) else 0
    out = {"points": points, "n_draws": draws, "all": _recovered(cell, drawn, VOTED)}
    return {**out, "published": _recovered(cell, drawn, PUBLISHED)}


def _gains(cell: Predictions, drawn: Resampled, by_seed: Mapping[int, Losses]) -> Row:
    """Share recovered, and changes against the baseline, of given losses of the test cases by seed."""
    own = {
        metric: drawn.mean_of(
            cell.encoder,
            {s: (cell.answers[VOTED, s].index, kept[metric]) for s, kept in by_seed.items()},
        )
        for metric in ("nll", "vote_nll")
    }
    base = {m: drawn.drawn(cell.encoder, BASELINE, "overall", m) for m in own}
    best = drawn.drawn(cell.encoder, REFERENCE, "overall", "vote_nll")
    share = recovered_share(base["vote_nll"], best, own["vote_nll"])
    known = np.isfinite(share.share)
    return {
        **{k: getattr(share, k) if known else None for k in ("share", "low", "high")},
        "reason": share.reason,
        "changes": {m: _change(contrast_of(base[m], own[m])) for m in own},
        **{m: own[m].value for m in own},
    }


def _kappa_sensitivity(cell: Predictions, drawn: Resampled, curve: VotedCurve) -> list[Row] | None:
    """What an error of the published kappa costs: `panel-published` at each multiple of it.

    Kappa and rho are means over seeds, where these have their own.
    """
    out = []
    for factor, by_seed in sorted(curve.by_kappa.items()):
        mean = {k: np.mean([getattr(at, k) for at in by_seed.values()]) for k in ("kappa", "rho")}
        gains = _gains(cell, drawn, {seed: at.losses for seed, at in by_seed.items()})
        out.append({"factor": factor, **mean, **gains})
    return out or None


def _change(change: Contrast) -> dict[str, float]:
    return {
        "difference": change.difference,
        "low": change.low,
        "high": change.high,
        "p": change.p_value,
    }


def _contrasts(cell: Predictions, drawn: Resampled) -> dict[str, Any]:
    """SCALE against plain label smoothing, and against its negative control, where both were run."""
    metric = "nll" if cell.cases.votes is None else "vote_nll"
    out = {}
    for name, rival in (("plain", "vanilla-ls"), ("control", CONTROL)):
        if {"scale", rival} <= set(cell.methods):
            contrast = drawn.contrast("scale", rival, metric=metric)
            out[name] = {**asdict(contrast), "p_value": contrast.p_value, "metric": metric}
    return out


# What may be recommended


def _candidates(cell: Predictions) -> set[str]:
    """Methods that may be recommended: no negative control, and none trained on readers' votes."""
    return {
        m
        for m in cell.methods
        if m != cell.baseline
        and not (m in METHODS and (METHODS[m].needs_votes or METHODS[m].control))
    }


def _beaten(drawn: Resampled, changes: Changes, candidates: Collection[str]) -> dict[str, str]:
    """Candidates whose label NLL is clearly above that of the one with the lowest: method -> that one."""
    known = {
        m: by["overall"]["nll"]["difference"]
        for m, by in changes.items()
        if m in candidates and "nll" in by["overall"]
    }
    if not known:
        return {}
    lowest = min(known, key=lambda m: known[m])
    rivals = (m for m in known if m != lowest)
    return {
        m: lowest
        for m in rivals
        if drawn.contrast(m, lowest, stratum="overall", metric="nll").low > 0
    }


def best_method(
    changes: Mapping[str, Any],
    candidates: Collection[str],
    *,
    beaten: Mapping[str, str] | None = None,
) -> dict[str, Any] | None:
    """Choose the method with the lowest vote NLL (label NLL without votes) at no clear cost in labels.

    Methods whose gain is beyond chance go before the others. Candidates whose label NLL is clearly worse
    than the baseline's are left out (`costly` has those that gain more than the chosen one); None where
    none is left. So are those that are clearly worse by labels than another candidate (`beaten`: method ->
    which): votes choose among the methods that labels cannot tell apart, and a remedy for votes is none for
    labels. The gain is beyond chance (`sure`) only if its interval, widened for the number of candidates
    (Bonferroni), excludes zero: trying more methods cannot make a gain. `by_labels` is the chosen one if it
    lowers label NLL beyond chance, else the candidate that does so most, if any: where no gain by votes is
    sure, labels may have a remedy.

    Examples
    --------
    >>> change = {"difference": -0.05, "low": -0.06, "high": -0.04, "sd": 0.005}
    >>> best_method({"jury": {"overall": {"nll": change}}}, {"jury"})["sure"]
    True
    """
    from scipy.special import stdtrit

    overall = {m: by["overall"] for m, by in changes.items() if m in candidates and by["overall"]}
    metric = "vote_nll" if any("vote_nll" in c for c in overall.values()) else "nll"
    known = {m: c for m, c in overall.items() if metric in c}
    harmless = [m for m, c in known.items() if not c.get("nll", {}).get("low", 0.0) > 0]
    if not harmless:
        return None
    passed = beaten or {}
    left_out = [m for m in harmless if m in passed and passed[m] in harmless]
    harmless = [m for m in harmless if m not in left_out]

    def ends(change: Row) -> tuple[float, float]:
        error, degrees = student_error(change["sd"], change.get("units", np.inf))
        half = error * float(stdtrit(degrees, 1 - LEVEL / len(known) / 2))
        return change["difference"] - half, change["difference"] + half

    gains = [m for m in harmless if ends(known[m][metric])[1] < 0]
    method = min(gains or harmless, key=lambda m: known[m][metric]["difference"])
    change = known[method][metric]
    low, high = ends(change)
    mended = {m: c["nll"]["difference"] for m, c in known.items() if "nll" in c}
    mended = {m: gain for m, gain in mended.items() if ends(known[m]["nll"])[1] < 0}
    by_labels = method if method in mended else min(mended, key=mended.__getitem__, default=None)
    return {
        "method": method,
        "metric": metric,
        "tried": len(known),
        "costly": [
            m
            for m, c in known.items()
            if m not in (*harmless, *left_out)
            and c[metric]["difference"] < min(0.0, change["difference"])
        ],
        "beaten": {
            m: passed[m]
            for m in left_out
            if known[m][metric]["difference"] < min(0.0, change["difference"])
        },
        "low": low,
        "high": high,
        "sure": bool(np.isfinite(high) and high < 0),
        "by_labels": by_labels,
    }


def with_remedies(cell: Predictions) -> tuple[Predictions, dict[str, str]]:
    """Add what could be done to predictions alone, where they are all there is: an audit's one model.

    A temperature, a line through the logits (Platt), a quadratic, beta calibration, and with votes at
    hand the panel's two answers, all fitted on the other folds' cases so that their gain is not
    flattered. Not at another prevalence than that of the cases, to which they would be fitted. Returns
    the cell, and each remedy in words; a cell of `scalecal calibrate` has its own.
    """
    if cell.calibration:
        return cell, dict(cell.calibration["about"])
    if cell.methods == [BASELINE] or len(cell.methods) != 1:
        return cell, {}
    base = cell.first(cell.baseline)
    if reweighted(cell, base) is not None:
        return cell, {}
    y, logits = cell.y[base.index], as_logits(base.p)
    if not np.isfinite(logits).all():
        return cell, {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ScalecalWarning)
            fold = fold_numbers(y, groups=cell.groups_of(base.index))
    except (InputError, ScalecalWarning):
        return cell, {}
    if min(np.bincount(fold, minlength=5)) < 10:
        return cell, {}
    seed = cell.seeds(cell.baseline)[0]
    added, words = {}, {}
    for name, (remedy, text) in REMEDIES.items():
        options: dict[str, Any] = {}
        if isinstance(remedy, PanelCalibrator):
            size = cell.cases.panel_sizes(cell.cases.usual_readers)
            if cell.cases.votes is None or size is None or base.p_reader is not None:
                continue
            options = {"votes": cell.cases.votes[base.index], "panel_size": size[base.index]}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", ScalecalWarning)
                out, _ = crossfit(remedy, logits, y, fold, **options)
        except (InputError, ScalecalWarning):
            continue  # it is not defined in some fold, so it is not offered
        added[name, seed] = replace(out, rows=base.index)
        words[name] = f"{text}, fitted on four fifths of the cases and used on the fifth"
    return cell.with_answers(added), words


REMEDIES: dict[str, tuple[Calibrator, str]] = {
    "temperature": (TemperatureScaling(), "one temperature"),
    "platt": (PlattScaling(), "a line through the logits"),
    "quadratic": (QuadraticScaling(), "a quadratic in the logits, increasing over the cases"),
    "beta": (BetaCalibration(), "a line through log p and log (1 - p)"),
    "panel": (
        PanelCalibrator(prior_sd=PRIOR_SD_SHIFTED),
        "the panel model: a line through the logits for the label, and a reader's answer from the votes",
    ),
}
"""What is tried on predictions alone: name -> (calibrator, what it is)."""


# What the figures show


def reliability_facts(audit: Audit, most: int | None = None) -> list[Row]:
    """One panel per stratum of the audited seed: bins, counts, consistency bars, null."""
    panels = []
    for row in audit.shown_rows[:most]:
        if not row["n"]:
            continue
        panel = {"stratum": row["name"], **{k: row[k] for k in ("n", "ece", "floor")}}
        if row["name"] == "overall":
            panel |= _bands([audit.drawn_ece()])
            panel["null"] = row["floor"]
        else:
            panel |= {k: row.get(k) for k in ("null", "null_low", "null_high")}
        table, bars = audit.reliability(row["name"])
        panel["bins"] = [
            {
                **{k: float(getattr(table, k)[b]) for k in ("lo", "hi", "mean_p", "mean_y")},
                "n": int(table.n[b]),
                "bar_lo": float(bars.lo[b]),
                "bar_hi": float(bars.hi[b]),
            }
            for b in table.n.nonzero()[0]
        ]
        panels.append(panel)
    return panels


def _frontier(cell: Predictions, rows: Sequence[Row], options: Mapping[str, Any]) -> dict[str, Any]:
    """The softening curve of the baseline, every method's place, and its difference to softening.

    A point's interval is that of its paired change against the baseline, set beside the baseline's
    own value; the baseline itself has none.
    """
    base, hard = cell.baseline, cell.hardest
    value = {(r["method"], r["stratum"]): r for r in rows}
    points = []
    for method in cell.methods:
        point: Row = {"method": method}
        for axis, metric in planes().items():
            stratum = hard if axis.endswith(HARD) else "overall"
            row = value.get((method, stratum), {})
            if metric not in row:
                continue
            point[axis] = row[metric]
            change = row["changes"].get(metric)
            start = value.get((base, stratum), {}).get(metric)
            if change and start is not None and method != base:
                point[f"{axis}_low"] = start + change["low"]
                point[f"{axis}_high"] = start + change["high"]
        points.append(point)
    curve = frontier_curve(cell, baseline=base, n_bins=options["n_bins"])
    beyond = frontier_methods(cell, baseline=base, **options)
    return {
        "hard": hard,
        "curve": curve.to_dict("records"),
        "points": points,
        "beyond": beyond.to_dict("records"),
    }


def _softening(beyond: Sequence[Row], metric: str) -> dict[str, Row]:
    """Each method beside one temperature that gives the baseline the same mean entropy, by one metric.

    `better` is whether a method is more than softening: the interval of the difference lies below 0, and
    the difference shows in three digits. (A temperature is found again to rounding only.)
    """
    out = {}
    for row in beyond:
        ends = {k: row[f"difference_{metric}{e}"] for k, e in (("low", "_low"), ("high", "_high"))}
        out[row["method"]] = {
            "metric": metric,
            "temperature": row["at_temperature"],
            "difference": row[f"difference_{metric}"],
            **ends,
            "better": bool(ends["high"] < 0 and row[f"difference_{metric}"] <= -LEAST_GAIN),
        }
    return out


def _referral(cell: Predictions, methods: Sequence[str]) -> list[Row]:
    """Errors avoided per case sent to a second reader, least confident first, by stratum.

    The second reader is taken to settle a case as the label does. The curve is the error rate among
    the cases sent; with all of them sent it ends at the model's own error rate, which is also what
    sending cases at random would avoid. At another prevalence numbers of cases are weighted ones.
    """
    out = []
    for stratum in ("overall", *cell.stratum_names):
        panel: Row = {"stratum": stratum, "methods": []}
        for method in methods:
            part = cell.first(method)
            w, inside = weights_of(cell, part), cell.inside(part.index, stratum)
            part = part.take(inside)
            if len(part.index) == 0:
                continue
            panel["n"] = len(part.index)
            own = (
                np.ones(len(part.index)) if w is None else w[inside] * panel["n"] / w[inside].sum()
            )
            panel["methods"].append({"method": method, **_yield(cell.y[part.index], part.p, own)})
        if panel["methods"]:
            out.append(panel)
    return out


def _yield(y: Any, p: Float, w: Float) -> Row:
    event = read_hard_event(y, p)
    if p.ndim == 1:
        confidence = np.maximum(p, 1 - p)
        wrong = (p >= 0.5) != (event.y > 0.5)
    else:
        confidence, wrong = event.p, event.y < 0.5
    order = np.argsort(confidence, kind="stable")
    ranked = confidence[order]
    # Cases of equal confidence go together: a point stands after the last of its equals.
    last = np.append(ranked[1:] > ranked[:-1], True)
    sent = np.cumsum(w[order])[last]
    avoided = np.cumsum((w * wrong)[order])[last]
    n, errors = len(y), round(float(w @ wrong))
    # The first few cases say little about a rate.
    start = min(int(np.searchsorted(sent, max(10, int(0.05 * n)))), len(sent) - 1)
    pick = np.unique(np.linspace(start, len(sent) - 1, _CURVE_POINTS).astype(int))
    table = []
    for threshold in THRESHOLDS:
        below = confidence < threshold
        referred, saved = float(w @ below), float(w @ (below & wrong))
        table.append(
            {
                "threshold": threshold,
                "sent": round(referred),
                "avoided": round(saved),
                "per_case": saved / referred if referred else None,
                "n": n,
                "errors": errors,
            }
        )
    return {
        "n": n,
        "errors": errors,
        "share": (sent[pick] / n).tolist(),
        "yield": (avoided[pick] / sent[pick]).tolist(),
        "thresholds": table,
    }


def _decision(audits: Mapping[str, Audit]) -> list[Row]:
    """Decision curves of the audited methods, a panel for labels and for votes in each stratum.

    `table` has the chosen thresholds with intervals. Empty for more than two classes.
    """
    panels: dict[tuple[str, str], Row] = {}
    for method, audit in audits.items():
        by_panel: dict[tuple[str, str], list[Row]] = {}
        for row in decision_rows(audit, DECISION_THRESHOLDS):
            by_panel.setdefault((row["judge"], row["stratum"]), []).append(row)
        for (judge, stratum), rows in by_panel.items():
            first = rows[0]
            panel = panels.setdefault(
                (judge, stratum),
                {
                    "judge": judge,
                    "stratum": stratum,
                    "n": first["n"],
                    "prevalence": first["prevalence"],
                    "threshold": [row["threshold"] for row in rows],
                    "treat_all": [round(row["treat_all"], 5) for row in rows],
                    "methods": [],
                },
            )
            ends = [f"{k}{end}" for k in ("net_benefit", "gain") for end in ("", "_low", "_high")]
            panel["methods"].append(
                {
                    "method": method,
                    "probability": first["probability"],
                    "net_benefit": [round(row["net_benefit"], 5) for row in rows],
                    "table": [
                        {k: row[k] for k in ("threshold", "treated", *ends)}
                        for row in rows
                        if row["threshold"] in CHOSEN
                    ],
                }
            )
    return list(panels.values())


# Cases to look at


def _mean_probs(cell: Predictions, method: str) -> Float:
    """Mean over the seeds of each case's probabilities, (n, C); NaN where it was in no test set."""
    parts = [cell.answers[method, seed] for seed in cell.seeds(method)]
    return _means(cell, [(part.index, as_table(part.p)) for part in parts])


def _means(cell: Predictions, values: Sequence[tuple[Int, Float]]) -> Float:
    """Mean over seeds of each case's numbers, NaN where it has none; (case numbers, numbers) by seed."""
    total: Float = np.zeros((cell.cases.n, *values[0][1].shape[1:]))
    count = np.zeros(cell.cases.n)
    for index, numbers in values:
        total[index] += numbers
        count[index] += 1
    count = np.where(count > 0, count, np.nan)
    return np.asarray((total.T / count).T)


def _two_answers(cell: Predictions, shown: Sequence[str]) -> str | None:
    """The method whose two answers are shown case by case: the best one that has them, or None."""
    likely = [*reversed(shown), PUBLISHED, VOTED]
    having = [m for m in likely if m in cell.methods and cell.first(m).p_reader is not None]
    return having[0] if having else None


def _law_of_votes(cell: Predictions, method: str, i: int, c: int) -> Row | None:
    """What a method expects of one case: the label, one reader, and the votes of its panel.

    Means over the seeds that tested the case; probabilities and votes are of class `c`. `low` to `high`
    holds at least 80 % of the law, the least likely ends left out.
    """
    votes, size = cell.cases.votes, cell.cases.readers
    m = 0 if size is None else int(size[i]) or cell.cases.usual_readers or 0
    label, reader, laws, split = [], [], [], []
    for seed in cell.seeds(method):
        part = cell.answers[method, seed]
        at = np.flatnonzero(part.index == i)
        if len(at) == 0 or part.p_reader is None:
            continue
        p, q = part.p[at], part.p_reader[at]
        label.append(float(p[0] if p.ndim == 1 else p[0, c]))
        reader.append(float(q[0] if q.ndim == 1 else q[0, c]))
        if m >= 1:
            law = np.exp(vote_log_pmf(as_logits(q), part.rho, m))
            laws.append(law[0] if law.ndim == 2 else law[0, c])
        if m >= 2:
            split.append(float(split_probability(as_logits(q), part.rho, m)[0]))
    if not label:
        return None
    out: Row = {"label": np.mean(label), "reader": np.mean(reader), "n_raters": m or None}
    if laws:
        law = np.mean(laws, axis=0)
        out |= {"law": law.tolist(), **dict(zip(("low", "high"), _span(law), strict=True))}
        out["split"] = np.mean(split) if split else None
        out["votes"] = int(votes[i, c]) if votes is not None and votes[i].sum() else None
    return out


def _span(law: Float, mass: float = 0.8) -> tuple[int, int]:
    """The shortest run of counts that holds at least `mass` of the law.

    Examples
    --------
    >>> _span(np.array([0.05, 0.1, 0.25, 0.6]))
    (2, 3)
    """
    total = np.concatenate([[0.0], np.cumsum(law)])
    for width in range(1, len(law) + 1):
        inside = total[width:] - total[:-width]
        if inside.max() >= mass - 1e-12:
            low = int(inside.argmax())
            return low, low + width - 1
    return 0, len(law) - 1


def _likely_splits(cell: Predictions, method: str) -> list[Row]:
    """The cases whose panel is most likely to split, by a method's two answers."""
    size = cell.cases.panel_sizes(cell.cases.usual_readers)
    if size is None:
        return []
    values = []
    for seed in cell.seeds(method):
        part = cell.answers[method, seed]
        if part.p_reader is None:
            return []
        values.append(
            (part.index, split_probability(as_logits(part.p_reader), part.rho, size[part.index]))
        )
    chance = _means(cell, values)
    likely = np.argsort(-chance, kind="stable")[: np.isfinite(chance).sum()]  # NaN comes last
    out = []
    for i in likely[:SPLITS_LISTED].tolist():
        shown = 1 if len(cell.cases.classes) == 2 else int(cell.y[i])
        paths = cell.cases.paths
        out.append(
            {
                "id": str(cell.cases.names[i]),
                "stratum": cell.stratum_names[cell.codes[i]] if cell.codes[i] >= 0 else None,
                "label": int(cell.y[i]),
                "shown_class": shown,
                "two": _law_of_votes(cell, method, i, shown),
                "path": None if paths is None else str(paths[i]) or None,
            }
        )
    return out


def _excess(cell: Predictions, table: Float) -> tuple[Int, Float]:
    """Class that each case is predicted to be, and by how much surer of it the model is than the readers.

    Than the label, where a case has no votes; -inf where it has no prediction.
    """
    filled, each = np.nan_to_num(table), np.arange(len(table))
    two = table.shape[1] == 2
    top = (filled[:, 1] >= 0.5).astype(np.int64) if two else filled.argmax(axis=1)
    share = (cell.y == top).astype(np.float64)
    if cell.cases.votes is not None:
        size = cell.cases.votes.sum(axis=1)
        share = np.where(size > 0, cell.cases.votes[each, top] / np.maximum(size, 1), share)
    return top, np.where(np.isfinite(table[:, 0]), filled[each, top] - share, -np.inf)


def _surest(cell: Predictions, method: str) -> list[Row]:
    """Cases of the audited seed that the model is surest of against the readers, or the label."""
    part = cell.first(method)
    table = np.full((cell.cases.n, len(cell.cases.classes)), np.nan)
    table[part.index] = as_table(part.p)
    top, excess = _excess(cell, table)
    votes, paths = cell.cases.votes, cell.cases.paths
    first = np.argsort(-excess, kind="stable")[:SUREST_LISTED]
    before = None if method == cell.baseline else _mean_probs(cell, cell.baseline)
    return [
        {
            "id": str(cell.cases.names[i]),
            "label": int(cell.y[i]),
            "votes": None if votes is None or not votes[i].any() else votes[i].tolist(),
            "shown_class": int(top[i]),
            "p": float(table[i, top[i]]),
            "before": None if before is None else float(before[i, top[i]]),
            "path": None if paths is None else str(paths[i]) or None,
        }
        for i in first[excess[first] > 0].tolist()
        if table[i, top[i]] - excess[i] < 0.5  # most readers, or the label, are against it
    ]


def _overconfident(
    cell: Predictions, before: str, after: str | None, both: str | None
) -> list[Row]:
    """Most over-confident cases of each stratum: id, votes, label, prediction before and after.

    Over-confidence is the probability of the predicted class less the share of readers who chose
    it, or less whether it is the label where it has no votes. Predictions are means over seeds. `two`
    has the two answers of the method named `both`.
    """
    table = _mean_probs(cell, before)
    second = None if after is None else _mean_probs(cell, after)
    top, excess = _excess(cell, table)
    known, two, each = np.isfinite(excess), table.shape[1] == 2, np.arange(len(table))
    votes, paths = cell.cases.votes, cell.cases.paths
    out = []
    for stratum in cell.stratum_names or ("overall",):
        rows = each[cell.inside(each, stratum)]
        rows = rows[known[rows]]
        rows = rows[np.argsort(-excess[rows], kind="stable")][:CASES_LISTED]
        for i in rows.tolist():
            shown = 1 if two else int(top[i])
            out.append(
                {
                    "id": str(cell.cases.names[i]),
                    "stratum": stratum,
                    "label": int(cell.y[i]),
                    "votes": None if votes is None else votes[i].tolist(),
                    "shown_class": shown,
                    "before": float(table[i, shown]),
                    "after": None if second is None else float(second[i, shown]),
                    "excess": float(excess[i]),
                    "two": None if both is None else _law_of_votes(cell, both, i, shown),
                    "path": None if paths is None else str(paths[i]) or None,
                }
            )
    return out
