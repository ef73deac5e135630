"""The numbers of an audit: calibration by how far the readers agree, with its own noise floor.

For all cases and for every stratum: the error, what a calibrated model would show there, tests,
and scores against the readers' votes. `scalecal.evaluation.evaluations` judges them and says what they mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from scalecal import __version__, metrics
from scalecal.cases import Cases, Factor, Predictions, check_levels, rows_of
from scalecal.checks import (
    Float,
    InputError,
    Int,
    as_names,
    check_counts,
    check_groups,
    check_inside,
    check_labels,
    check_probs,
    check_same_length,
)
from scalecal.evaluation.changes import null_band
from scalecal.evaluation.levels import (
    check_names,
    column_facts,
    level_names,
    level_notes,
    level_rows,
)
from scalecal.evaluation.rows import TESTS, label_sample, score
from scalecal.inference.difficulty import votes_by_difficulty
from scalecal.inference.selection import selection_draws
from scalecal.inference.units import Units, effective_units
from scalecal.io.text import some_of
from scalecal.limits import check_count, limit
from scalecal.metrics.arguments import Sample, check_same_classes, of_two, read_hard_event
from scalecal.metrics.clinical import all_certain
from scalecal.metrics.grouping import rank_p, too_few
from scalecal.metrics.resampling import EXACT_CASES, Null
from scalecal.metrics.reweighting import Reweighted
from scalecal.panel import check_rho, count_classes
from scalecal.votes import STRATA, check_sides, fleiss_kappa, krippendorff_alpha

MAX_STRATA = 20
"""Strata that text and pages show at most: those of most cases. Tests are adjusted for all."""


@dataclass(frozen=True, eq=False)
class Audit:
    """Numbers on the calibration of one model, overall and by stratum. Made by `audit_predictions`.

    Attributes
    ----------
    rows
        One dict of numbers per stratum; the first is `overall`. Undefined numbers are NaN, and
        `reason` says why.
    difficulty
        Votes against the probability of a vote in strata of predicted difficulty (`votes_by_difficulty`
        in `scalecal.inference.difficulty`), one dict each; empty without votes.
    classes
        Of more than two classes, the numbers of each against the rest; empty for a stream, which keeps the
        predicted class alone.
    references
        The same for two predictors that know nothing: one half for every case, and the prevalence.
    meta
        What made it: version, seed, options, data hash, inter-reader statistics.
    notes
        What the reader of the numbers should know.
    predictions
        What was audited, kept for comparing and drawing.
    units
        What is resampled: cases or groups, with the cases' weights.
    reweighted
        All cases with the weights of their classes; None where they stand for themselves.
    by_votes
        Of a stream with `p_reader`: the audit of those probabilities, whose cases are others.
    levels
        One dict of numbers per level of the columns in ``cases.by``, as `rows`.
    by
        What is said of each column (`scalecal.evaluation.levels.column_facts`); given strata are one.
    nulls
        Of each stratum with a null, the ECEs of a calibrated model, draw by draw: those behind `null`
        and `p_null`.
    null_bars
        Of the same strata, where p less the share of positives lies in each bin of a calibrated model:
        (2, n_bins).
    """

    rows: list[dict[str, Any]]
    references: list[dict[str, Any]]
    meta: dict[str, Any]
    notes: list[str]
    predictions: Predictions = field(repr=False)
    units: Units = field(repr=False)
    reweighted: Reweighted | None = field(default=None, repr=False)
    by_votes: Audit | None = field(default=None, repr=False)
    difficulty: list[dict[str, Any]] = field(default_factory=list)
    levels: list[dict[str, Any]] = field(default_factory=list)
    by: list[dict[str, Any]] = field(default_factory=list)
    classes: list[dict[str, Any]] = field(default_factory=list)
    nulls: dict[str, Float] = field(default_factory=dict, repr=False)
    null_bars: dict[str, Float] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> dict[str, Any]:
        for row in self.all_rows:
            if row["name"] == name:
                return row
        known = some_of([row["name"] for row in self.all_rows])
        raise KeyError(f"no stratum {name!r}. Known: {known}")

    @property
    def all_rows(self) -> list[dict[str, Any]]:
        """Rows of ``audit.csv``: `overall`, the strata, and the levels of columns."""
        if not self.levels:
            return self.rows
        return [*self.rows, *self.levels]

    @property
    def shown_rows(self) -> list[dict[str, Any]]:
        """Rows that text and pages show: `overall`, and the strata of most cases."""
        if len(self.rows) <= MAX_STRATA + 1:
            return self.rows
        size = [-row["n"] for row in self.rows[1:]]
        kept = np.sort(np.argsort(size, kind="stable")[:MAX_STRATA]) + 1
        return [self.rows[0], *(self.rows[k] for k in kept)]

    @property
    def shown_strata(self) -> tuple[str, ...]:
        """Names of the strata in `shown_rows`; decision curves and diagrams are of these."""
        return tuple(row["name"] for row in self.shown_rows[1:])

    @property
    def shown_notes(self) -> list[str]:
        """Notes for whoever sees `shown_rows` only: first that there are more, if so."""
        if len(self.rows) <= MAX_STRATA + 1:
            return self.notes
        folded = (
            f"Of {len(self.rows) - 1:,} strata the {MAX_STRATA} of most cases are shown, and have decision "
            "curves; verdict and tests use all of them, and audit.csv holds all (in Python "
            "Evaluation.to_frame())."
        )
        return [folded, *self.notes]

    @property
    def options(self) -> dict[str, Any]:
        """Bins, resamples and seed."""
        return {k: self.meta[k] for k in ("n_bins", "n_resamples", "seed")}

    @cached_property
    def drawn(self) -> tuple[Float, metrics.ConsistencyBars]:
        """What a calibrated model with these probabilities would show over all cases.

        ECEs, (n_resamples,), and where each bin's share of positives would lie. Kept, since both are of the
        same draws.
        """
        if self.reweighted is not None:
            bars = self.reweighted.consistency_bars(**self.options)
            return self.reweighted.drawn_ece(**self.options), bars
        event = read_hard_event(self.predictions.y, self.predictions.p)
        groups, n_bins = self.predictions.cases.group_codes, self.meta["n_bins"]
        null = Null.of(event.p, event.y, groups, n_bins, sample_weight=self.units.times)
        residuals = null.residuals(self.meta["n_resamples"], self.meta["seed"])
        return null.ece(residuals), null.bars(residuals)

    def reliability(self, stratum: str) -> tuple[metrics.Bins, metrics.ConsistencyBars]:
        """Return a stratum's bins, and where a calibrated model's share of positives would lie.

        Each bar is the central 90 % of the null that judges the row: labels drawn from p over all
        cases, and in a stratum the selection null.
        """
        inside, n_bins = self.predictions.cases.within(stratum), self.meta["n_bins"]
        y, p = self.predictions.y[inside], self.predictions.p[inside]
        weights = self.units.within(inside).weights
        table = metrics.bins(y, p, n_bins=n_bins, sample_weight=weights)
        if self.reweighted is not None:
            table = replace(table, n=metrics.bins(y, p, n_bins=n_bins).n)
        if stratum == "overall":
            return table, self.drawn[1]
        low, high = self.null_bars.get(stratum, np.full((2, n_bins), np.nan))
        ends = (np.clip(table.mean_p - end, 0.0, 1.0) for end in (high, low))
        return table, metrics.ConsistencyBars(*ends)


def cases_of(
    y: ArrayLike,
    n_classes: int | None,
    *,
    votes: ArrayLike | None = None,
    n_raters: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    split: ArrayLike | None = None,
    by: Mapping[str, Any] | None = None,
    **others: Any,
) -> Cases:
    """Return arrays, as `audit` takes them, as cases.

    Without `n_classes` there are as many as the labels name, two at least. `others` are arrays of the same
    length.
    """
    if n_classes is None:
        labels = check_labels(y, limit("classes"))
        n_classes = max(2, int(labels.max(initial=0)) + 1)
    labels = check_labels(y, n_classes)
    counts = None
    if votes is not None:
        counts = check_counts(votes, n_raters)
    n = check_same_length(y=labels, votes=counts, **others)
    codes = check_groups(groups, n)
    factors: dict[str, Any] = {}
    if groups is not None and codes is not None:
        # Groups keep the names they were given, in the order of their codes.
        _, first = np.unique(codes, return_index=True)
        named = as_names(groups, "groups")[0][first].astype(np.str_)
        factors["groups"] = Factor(codes, tuple(named.tolist()))
    if strata is not None:
        factors["strata"] = in_order(_factor(strata, "strata", n))
    if split is not None:
        factors["split"] = _factor(split, "split", n)
    if by is not None:
        if not isinstance(by, Mapping):
            raise InputError(
                f"by must map names of columns to levels, as in {{'site': [...]}}, got {type(by).__name__}"
            )
        factors["by"] = {
            str(name): check_levels(_factor(values, f"by[{name!r}]", n), str(name))
            for name, values in by.items()
        }
    classes = tuple(str(c) for c in range(n_classes))
    return Cases(n=n, classes=classes, y=labels, votes=counts, **factors)


def _factor(values: ArrayLike, name: str, n: int) -> Factor:
    names, _ = as_names(values, name)
    if names.shape != (n,):
        raise InputError(f"{name} must have one name per case ({n},), got shape {names.shape}")
    return Factor.of(names)


def in_order(strata: Factor) -> Factor:
    """Return strata in the order of an audit: easiest first where they are of agreement, else by name."""
    names = sorted(strata.names)
    if set(names) <= set(STRATA):
        names.sort(key=STRATA.index)
    place = np.array([*map(names.index, strata.names), -1])
    return Factor(place[strata.codes], tuple(names))


def audit_predictions(
    predictions: Predictions,
    *,
    sample_weight: Float | None = None,
    prevalence: float | None = None,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
    advance: Callable[[float], object] = lambda _: None,
) -> Audit:
    """Audit predictions on `scalecal.cases.Cases`.

    Parameters
    ----------
    predictions
        Labels judge `p`, votes `p_reader`, or `p` where there is none. Strata are those of the cases,
        or made of their votes where they have none. Cases without a label are left out, with a note.
    sample_weight
        (n,) how many cases each row stands for; all rows labelled and without groups then.
    prevalence, n_bins, n_resamples, seed
        As `audit`.
    advance
        Called with the share of the work that was just done (`scalecal.progress`).
    """
    check_count(n_bins, "n_bins", "bins")
    check_count(n_resamples, "n_resamples", "resamples", least=20)
    predictions = _checked(predictions)
    cases, own = predictions.cases, predictions.only
    p, y = own.p, predictions.y
    # Labels that contradict the votes are a mistake in the file, not an error of the model.
    if cases.votes is not None:
        check_sides(y, cases.votes, sample_weight=sample_weight)
    units = Units.of(cases.n, groups=cases.group_codes, seed=seed, sample_weight=sample_weight)
    options: dict[str, Any] = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    reweighted, test = None, None
    if prevalence is not None:
        reweighted = _reweighted(predictions, units, prevalence)
    if reweighted is not None:
        units = units.weighted(y, reweighted.prevalence)
    rows: list[dict[str, Any]] = []
    names = ("overall", *cases.stratum_names)
    # The null takes about as long as all rows together, and so does the difficulty by votes.
    third = 1 / (1 + (cases.strata is not None) + (cases.votes is not None))
    for name in names:
        inside = cases.within(name)
        row: dict[str, Any] = {"name": name, "n": 0, "reason": "no case in this stratum"}
        if len(y[inside]):
            if reweighted is not None:
                test = partial(reweighted.test, rows=inside)
            row = {"name": name} | score(
                y[inside],
                p[inside],
                rows_of(cases.votes, inside),
                units=units.within(inside),
                reader=rows_of(own.p_reader, inside),
                rho=own.rho,
                selected=cases.agreement and name != "overall",
                whole=name == "overall",
                test=test,
                **options,
            )
        rows.append(row)
        advance(third / len(names))
    difficulty: list[dict[str, Any]] = []
    if cases.votes is not None:
        importance = None
        if units.importance is not None:
            importance = units.weights
        difficulty = votes_by_difficulty(
            cases.votes,
            own.vote_p,
            of_label=own.p_reader is None,
            y=y,
            p_split=own.p_split,
            threshold=predictions.threshold,
            groups=units.group,
            n_resamples=n_resamples,
            seed=seed,
            sample_weight=units.times,
            importance=importance,
        )
        known = [r["p_votes_holm"] for r in difficulty if np.isfinite(r["p_votes_holm"])]
        rows[0]["p_votes_holm"] = min(known, default=float("nan"))
        advance(third)
    nulls, null_bars = _add_null(
        rows, predictions, units, reweighted, options, lambda share: advance(share * third)
    )
    rows = complete_rows(rows)
    levels = level_rows(predictions, units, reweighted, options)
    # Corrected among themselves: strata and the whole keep the numbers that they have without levels.
    levels = complete_rows([rows[0], *levels])[1:]
    by: list[dict[str, Any]] = []
    # A stream keeps counts, in which the cases of its levels are not known one by one.
    if units.times is None:
        by = column_facts(
            predictions,
            units,
            [*rows, *levels],
            reweighted=reweighted is not None,
            n_resamples=n_resamples,
            seed=seed,
        )
    classes: list[dict[str, Any]] = []
    if p.ndim == 2 and units.times is None:
        classes = _class_rows(cases.classes, y, p, units, options)
    meta = _meta(predictions, units) | options
    meta["doubt"] = _doubt(rows[0], y, p)
    notes = [*_notes(predictions, rows, units), *cases.notes]
    # At the sample's own prevalence nothing is reweighted, and nothing is said of it.
    if reweighted is not None:
        meta["prevalence"] = reweighted.prevalence
        meta["sample_prevalence"] = float(y.mean())
        meta["n_effective"] = effective_units(reweighted.each)
        notes.insert(
            0,
            f"All numbers refer to a population with {100 * meta['prevalence']:.3g} % positives, which is "
            f"taken as known: {100 * meta['sample_prevalence']:.3g} % of these cases are positive, so each "
            f"has an importance weight by its label. The {units.n:,} cases are equivalent to "
            f"{meta['n_effective']:,.0f} of equal weight.",
        )
    references = _references(predictions, units)
    return Audit(
        rows,
        references,
        meta,
        notes,
        predictions,
        units,
        reweighted,
        difficulty=difficulty,
        levels=levels,
        by=by,
        classes=classes,
        nulls=nulls,
        null_bars=null_bars,
    )


def _class_rows(
    names: tuple[str, ...], y: Int, p: Float, units: Units, options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Numbers of each class against the rest, its tests corrected for the number of classes."""
    rows = []
    for k, name in enumerate(names):
        of_class = score((y == k).astype(np.int64), p[:, k], None, units=units, **options)
        rows.append({"name": f"class={name}"} | of_class)
    # The first row of a table stands apart from those that are corrected together.
    return complete_rows([{"name": "overall"}, *rows])[1:]


def _reweighted(predictions: Predictions, units: Units, prevalence: float) -> Reweighted | None:
    """All cases with the weights of their classes; None where the sample has the prevalence already."""
    check_inside(prevalence, "prevalence")
    if predictions.p.ndim != 1:
        with predictions.messages():
            raise InputError(
                f"a prevalence needs two classes, but there are {predictions.p.shape[1]}"
            )
    if units.times is not None:
        raise InputError(
            "a streamed audit keeps counts, which cannot be reweighted to a prevalence"
        )
    return Reweighted.of(predictions.y, predictions.p, float(prevalence), units.group)


def _checked(predictions: Predictions) -> Predictions:
    """Return the predictions on labelled, stratified cases, (n,) for two classes."""
    predictions = predictions.labelled()
    own, cases = predictions.only, predictions.cases.stratified()
    p = check_probs(own.p)
    if "overall" in cases.stratum_names:
        raise InputError("a stratum may not be called 'overall': that row holds all cases")
    taken = ["overall", *cases.stratum_names]
    if len(cases.classes) > 2:
        taken += [f"class={name}" for name in cases.classes]
    check_names(level_names(cases), taken)
    if cases.votes is not None:
        check_same_classes(cases.votes, p)
    reader = own.p_reader
    if reader is not None:
        reader = check_probs(reader, "p_reader")
        if reader.shape != p.shape:
            raise InputError(f"p_reader must have the shape of p, {p.shape}, got {reader.shape}")
        reader = of_two(reader)
    own = replace(own, p=of_two(p), p_reader=reader, rho=check_rho(own.rho))
    return replace(predictions, cases=cases, answers={next(iter(predictions.answers)): own})


def complete_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adjust p-values for the number of strata by Holm's rule; give every row the same keys, in order.

    The first row is `overall`, which stands apart from the strata.
    """
    # Strata are corrected among themselves: many of them must not cost the whole its power.
    for test in (*TESTS, "null"):
        key = f"p_{test}"
        if rows[1:]:
            adjusted = metrics.holm([r.get(key, float("nan")) for r in rows[1:]])
            for row, value in zip(rows[1:], adjusted, strict=True):
                row[f"{key}_holm"] = float(value)
        if key in rows[0]:
            rows[0][f"{key}_holm"] = rows[0][key]
    present = set().union(*rows)
    blank: dict[str, Any] = {k: float("nan") for k in metrics.COLUMNS if k in present}
    for key in ("reason", "curve_reason"):
        if key in blank:
            blank[key] = ""
    return [blank | row for row in rows]


def _add_null(
    rows: list[dict[str, Any]],
    predictions: Predictions,
    units: Units,
    reweighted: Reweighted | None,
    options: dict[str, Any],
    advance: Callable[[float], object],
) -> tuple[dict[str, Float], dict[str, Float]]:
    """Add each stratum's null to its row; return its draws, and where its bins lie under it."""
    strata = predictions.cases.strata
    nulls: dict[str, Float] = {}
    bars: dict[str, Float] = {}
    if strata is None:
        return nulls, bars
    event = read_hard_event(predictions.y, predictions.p)
    weights = None
    if reweighted is not None:
        weights = reweighted.weights
    drawn = selection_draws(
        event.y,
        event.p,
        strata.codes,
        n_strata=len(strata.names),
        groups=units.group,
        sample_weight=units.times,
        weights=weights,
        advance=advance,
        **options,
    )
    for number, (row, column) in enumerate(zip(rows[1:], drawn.ece.T, strict=True)):
        finite = column[np.isfinite(column)]
        if row["n"] and len(finite):
            row |= null_band([finite]) | {
                "null_rank": float((finite < row["ece"]).mean()),
                "p_null": rank_p(finite, row["ece"]),
            }
            nulls[row["name"]], bars[row["name"]] = finite, drawn.bars(number)
    return nulls, bars


def _references(predictions: Predictions, units: Units) -> list[dict[str, Any]]:
    """Score two predictors that know nothing, on the same strata: 1 / C, and the prevalence."""
    cases, y, n_classes = predictions.cases, predictions.y, count_classes(predictions.p)
    share = np.bincount(y, units.weights, n_classes) / units.n
    title = "constant 0.5"
    if n_classes > 2:
        title = f"constant 1/{n_classes}"
    # A constant ranks nothing, and how many votes agree is not its to say: of votes those that are tested.
    by_labels = [m for m in metrics.METRICS.values() if m.shown and m.in_audit and not m.votes]
    scores = [
        m for m in by_labels if m.direction in ("lower", "higher") and m.pseudo_values is None
    ]
    by_votes = [
        m for m in metrics.METRICS.values() if m.tested and m.votes and m.pseudo_values is None
    ]
    out = []
    for name, constant in ((title, np.full(n_classes, 1 / n_classes)), ("prevalence", share)):
        # Every case has the same probabilities: one row of each class stands for all of its cases.
        table = of_two(np.tile(constant, (n_classes, 1)))
        for stratum in ("overall", *cases.stratum_names):
            inside = cases.within(stratum)
            here = units.within(inside)
            row: dict[str, Any] = {"name": name, "stratum": stratum, "n": here.n}
            if here.n:
                counts = np.bincount(y[inside], here.weights, n_classes)
                sample = label_sample(np.arange(n_classes), table, weights=counts)
                row["mean_p"] = float(sample.event.p[0])
                row |= {metric.key: metric.value(sample) for metric in scores}
                if cases.votes is not None:
                    votes = cases.votes[inside]
                    probs = np.broadcast_to(constant, votes.shape)
                    voted = Sample(np.zeros(0), probs, here.weights, votes)
                    row |= {metric.key: metric.value(voted) for metric in by_votes}
            out.append(row)
    return out


def _meta(predictions: Predictions, units: Units) -> dict[str, Any]:
    cases, own = predictions.cases, predictions.only
    digest = hashlib.sha256()
    for array in (cases.y, own.p, cases.votes, own.p_reader):
        if array is not None:
            digest.update(np.ascontiguousarray(array).data)
    meta: dict[str, Any] = {
        "version": __version__,
        "n": units.n,
        "n_classes": count_classes(own.p),
        "classes": list(cases.classes),
        "event": "top class is right",
        "threshold": predictions.threshold,
        "strata": "given",
        "resampled": "cases",
        "n_groups": None,
        "data_sha256": digest.hexdigest(),
    }
    if own.p.ndim == 1:
        meta["event"] = "positive class"
    if cases.strata is None:
        meta["strata"] = "none"
    elif cases.agreement:
        meta["strata"] = "agreement"
    if units.group is not None:
        meta |= {"resampled": "groups", "n_groups": int(units.group.max()) + 1}
    if predictions.sources:
        meta["source"] = dict(predictions.sources)
    if cases.votes is not None:
        size = cases.votes.sum(axis=1)
        meta |= {
            "n_raters": [int(m) for m in np.unique(size)],
            "votes_judge": "p",
            "rho": own.rho,
            "fleiss_kappa": fleiss_kappa(cases.votes, sample_weight=units.weights),
            "krippendorff_alpha": krippendorff_alpha(cases.votes, sample_weight=units.weights),
        }
        if own.p_reader is not None:
            meta["votes_judge"] = "p_reader"
    return meta


MIN_SWAP_GAIN = 0.1
"""Gain in accuracy from which another order of the classes is suspected."""


def _doubt(row: dict[str, Any], y: Int, p: Float) -> str:
    """Why probabilities look like something else: decisions, or columns in another order; "" if not."""
    if all_certain(p):
        return (
            "All probabilities are 0 or 1, so these look like decisions: an audit needs the probabilities "
            "behind them."
        )
    if p.ndim == 1 and row.get("auc_high", 1.0) < 0.5:
        return (
            f"AUC is {row['auc']:.3f}, below chance: p looks like the probability of the other class. Name "
            "the class it is of with --positive (in Python positive=), or give 1 - p."
        )
    if p.ndim == 1:
        return ""
    n_classes = p.shape[1]
    table = np.bincount(y * n_classes + p.argmax(axis=1), minlength=n_classes**2)
    table = table.reshape(n_classes, n_classes)
    label, column = linear_sum_assignment(table, maximize=True)
    right, best = int(np.trace(table)), int(table[label, column].sum())
    # Chance alone finds some better order, by about the root of the cases that it moves.
    if best - right < max(MIN_SWAP_GAIN * len(y), 4.0 * np.sqrt(best)):
        return ""
    return (
        f"The accuracy is {right / len(y):.2f}, and would be {best / len(y):.2f} with the classes' columns "
        "in another order: check which column belongs to which class."
    )


def _notes(predictions: Predictions, rows: list[dict[str, Any]], units: Units) -> list[str]:
    notes = []
    cases, p, n = predictions.cases, predictions.p, units.n
    if cases.strata is not None and (none := units.within(cases.strata.codes < 0).n):
        why = ""
        if cases.agreement:
            why = " (they have fewer than two votes)"
        notes.append(
            f"{none:,} of {n:,} cases have no stratum{why} and count only in the overall row."
        )
    if cases.strata is None and cases.votes is not None:
        notes.append("No case has votes of two readers, so there are no strata of agreement.")
    empty = [r["name"] for r in rows if r["n"] == 0]
    if empty:
        notes.append(f"No case in stratum {some_of(empty)}: numbers are undefined there.")
    if p.ndim == 2:
        notes.append(
            "With more than two classes, mean p, ECE and tests refer to the predicted class: confidence is "
            "compared with accuracy (acc.), and prev. is the share of the most common class."
        )
    single = [r["name"] for r in rows if r["n"] and p.ndim == 1 and r["prevalence"] in (0.0, 1.0)]
    if single:
        notes.append(
            f"One class only in {some_of(single)}: AUC, O:E and calibration slope are undefined there."
        )
    if p.ndim == 1 and not single and not all_certain(p) and np.isnan(rows[0]["slope"]):
        notes.append(
            "The probabilities separate the classes, or are all equal: there is no calibration slope."
        )
    threshold = predictions.threshold
    if p.ndim == 1 and not (p >= threshold).any():
        notes.append(
            f"No case has a probability of {threshold:g} or more: at this threshold none is called positive."
        )
    if predictions.only.p_reader is not None and cases.votes is None:
        notes.append("There are no votes, so p_reader is not judged.")
    if units.group is not None and not too_few(units.group):
        notes.append(
            "Cases of one group are not treated as independent: floors, nulls, tests and intervals are "
            f"computed over {rows[0]['n_groups']:,} groups."
        )
    scarce = [r for r in rows if r["n"] and r.get("reason")]
    for why in dict.fromkeys(r["reason"] for r in scarce):
        names = some_of([r["name"] for r in scarce if r["reason"] == why])
        notes.append(f"In {names}: {why}.")
    if n > EXACT_CASES:
        notes.append(
            f"Above {EXACT_CASES:,} cases floors and nulls draw bin sums from their normal limit."
        )
    return [*notes, *level_notes(cases)]
