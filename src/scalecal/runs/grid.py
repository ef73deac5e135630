"""The one loop: every method with every seed on one set of embeddings, trained together.

A method's calibrator is fitted to out-of-sample logits, with what is known of the readers. How many votes
it needs is answered by `voted_curve`, which fits the panel to the votes of fewer and fewer cases.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from scalecal import metrics
from scalecal.calibrators import Calibrator, PanelCalibrator
from scalecal.calibrators.crossfitting import answers_of
from scalecal.cases import Answers, Cases, Features, Predictions, leakage_note, rows_of
from scalecal.checks import (
    Float,
    InputError,
    Int,
    ScalecalWarning,
    check_features,
    check_list,
    check_positive_int,
    library,
)
from scalecal.engines import Engine, Worker
from scalecal.evaluation.audits import cases_of
from scalecal.evaluation.cells import PUBLISHED, READS, VOTED, joined_cell
from scalecal.evaluation.changes import AtKappa, Losses, VotedCurve
from scalecal.evaluation.evaluations import Evaluation, evaluate
from scalecal.evaluation.scores import samples_of, score
from scalecal.inference.units import NORMAL_95
from scalecal.limits import check_count
from scalecal.metrics import columns
from scalecal.panel import probabilities
from scalecal.probes import CrossFit, Job, Trained, fit_many, with_label
from scalecal.probes.methods import METHODS, Method, find_method
from scalecal.readers import Readers
from scalecal.splits import split
from scalecal.votes import check_sides

SHARES = (0.7, 0.1, 0.2)
"""Training, validation and test part where the data name none."""

MAX_WIDENED = 3 << 30
"""Bytes up to which half-precision embeddings are kept in memory in single precision."""


LEFT_OUT = " is left out: "
"""Between a method and the reason, in notes."""


@dataclass(frozen=True, eq=False)
class Grid:
    """What a run of the grid gave: predictions, and what the reader should know.

    `left_out` says why a method was not run, `capped` counts probes ended by the limit of epochs,
    `chosen` is the number of the recipe kept where a method has several, `seconds` is the time all
    training took, `voted` the scores by number of voted cases, where these were asked for, `leakage` names
    groups in both train and test, `at_chance` has a sentence for every seed, empty where its AUC is
    better than chance.
    """

    cell: Predictions
    left_out: dict[str, str]
    capped: dict[str, int]
    chosen: dict[tuple[str, int], int]
    probes: dict[tuple[str, int], Trained]
    seconds: float
    voted: VotedCurve | None = None
    leakage: str = ""
    at_chance: tuple[str, ...] = ()

    @property
    def doubts(self) -> list[str]:
        """What is warned of: groups in both train and test, an AUC at chance with most seeds."""
        found = []
        if self.leakage:
            found.append(self.leakage)
        poor = [note for note in self.at_chance if note]
        if 2 * len(poor) > len(self.at_chance):
            found.append(poor[0])
        return found

    @property
    def notes(self) -> list[str]:
        """Plain sentences on what was left out and what did not converge."""
        notes = [*self.doubts]
        notes += [f"{name}{LEFT_OUT}{why}." for name, why in self.left_out.items()]
        if self.capped:
            total, worst = sum(self.capped.values()), max(self.capped, key=lambda m: self.capped[m])
            notes.append(
                f"{total} probes stopped at the limit of epochs, not by early stopping "
                f"(most of them of {worst}): they may be under-trained."
            )
            if self.cell.meta.get("preset") != "default":
                notes[-1] += (
                    " The paper's preset stops at 50 epochs; --preset default trains small data for longer."
                )
        told = self.cell.meta.get("stand_in")
        if told:
            notes.append(
                f"{' and '.join(told)} used kappa and the share of positive votes of the training "
                "votes in place of published ones (--kappa, --vote-share)."
            )
        if self.voted is not None:
            notes += self.voted.notes
        return notes


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """Return seeds 0 .. n - 1 for a count, or the seeds themselves.

    Examples
    --------
    >>> seed_list(3), seed_list([7])
    ([0, 1, 2], [7])
    """
    if isinstance(seeds, int):
        return list(range(check_count(seeds, "seeds", "seeds")))
    chosen = [check_positive_int(s, "a seed", least=0) for s in check_list(seeds, "seeds")]
    check_count(len(chosen), "the number of seeds", "seeds")
    return chosen


def applicable(
    names: Sequence[str] | None, data: Features, readers: Readers | None = None
) -> tuple[dict[str, Method], dict[str, str]]:
    """Return the methods that can be run on these data, and why the others cannot.

    A method the user named is an error where it is unknown; one that does not apply is left out.
    """
    run, out = {}, {}
    if names is None:
        names = list(METHODS)
    for name in check_list(names, "methods"):
        method = find_method(name)
        why = why_not(method, data.cases, readers or Readers())
        if why:
            out[name] = why
        else:
            run[name] = method
    if not run:
        raise InputError("no method applies: " + "; ".join(f"{k}: {v}" for k, v in out.items()))
    return run, out


def parts(cases: Cases, seed: int) -> tuple[Int, Int | None, Int]:
    """Return the rows for training, validation (None: each method holds out its own) and testing.

    Without a `split` column a grouped, stratified 70 / 10 / 20 split is drawn from the seed.
    """
    if cases.split is not None:
        part = cases.split.values
    else:
        part = split(cases.labels, groups=cases.group_codes, shares=SHARES, seed=seed)
    train, val, test = (np.flatnonzero(part == name) for name in ("train", "val", "test"))
    for name, rows in (("train", train), ("test", test)):
        if len(rows) == 0:
            raise InputError(
                f"no case has split = {name!r}: give train and test cases, or no split at all"
            )
    if len(val) == 0:
        return train, None, test
    return train, val, test


# -- from a trained probe to a method's answers ----------------------------------------------------


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
    known: dict[str, Any] = {"votes": votes, "panel_size": sizes, "groups": cases.group_codes}
    return fitted.fit(logits, cases.labels, **known, interval=interval)


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


# -- the curve of votes ----------------------------------------------------------------------------

# How many votes would I need? The panel fitted to the votes of fewer and fewer training cases.
#
# From the training part of every seed some cases are drawn whose votes are used, by all their readers
# (reads="panel") or by one of them at random ("single"); of the other cases only the labels are. Draws are
# nested (the 25 are among the 50) and shared by both kinds of reads, so that the points of the curve are
# paired. Zero voted cases is `panel-published`, which needs two published numbers instead; what an error of
# its kappa would cost is tried by wrong ones.

NEEDED = ("none", "vote-fraction", PUBLISHED, VOTED)
"""Methods that the curve is made of or compared with."""

N_DRAWS = 20
"""Draws of voted cases per seed."""

KAPPA_FACTORS = (0.7, 1.0, 1.3)
"""What the published kappa is multiplied by, to see what an error of it costs."""


def draw_order(votes: Int, rng: np.random.Generator) -> tuple[Int, Int]:
    """The cases that have votes in random order, and one of the votes of each case, (n, C)."""
    m = votes.sum(axis=1)
    order = rng.permutation(np.flatnonzero(m > 0))
    # The number of one vote among a case's votes, then the class whose votes hold that number.
    pick = (rng.random(len(votes)) * np.maximum(m, 1)).astype(np.int64)
    one = (np.cumsum(votes, axis=1) > pick[:, None]).argmax(axis=1)
    single = np.eye(votes.shape[1], dtype=np.int64)[one] * (m > 0)[:, None]
    return order, single


def voted_curve(
    data: Features,
    probes: Mapping[int, Trained],
    again: Mapping[int, tuple[CrossFit, Sequence[Trained]]],
    tested: Mapping[int, Int],
    voted: Sequence[int],
    readers: Readers,
) -> VotedCurve:
    """Fit the panel to the votes of some training cases, many times, and score it on the test cases.

    Parameters
    ----------
    data
        Embeddings with labels and votes.
    probes, again, tested
        By seed: the trained probe, its cross-fitted parts, and the rows of the test cases.
    voted
        Numbers of voted cases; 0 is left to `panel-published`.
    readers
        Knowledge of the readers besides the votes.
    """
    cases = data.cases
    assert cases.votes is not None
    scores: list[dict[str, Any]] = []
    losses: dict[tuple[int, str], dict[int, Losses]] = {}
    by_kappa: dict[float, dict[int, AtKappa]] = {}
    short: dict[int, int] = {}
    failed: set[str] = set()
    behind = readers.behind(cases)
    for seed, probe in probes.items():
        rows, logits = out_of_sample(probe, data, None, again[seed])
        test = tested[seed]
        at_test = probe.logits(data.X, test)
        y, counts = cases.labels[test], cases.votes[test]
        sizes = rows_of(behind, test)
        votes = cases.votes[rows]
        # The same draws whichever worker runs the seed, and whatever ran before it.
        rng = np.random.default_rng([seed, len(rows)])
        at_kappa = wrong_kappas(data, rows, logits, at_test, test, readers)
        for factor, panel in at_kappa.items():
            by_kappa.setdefault(factor, {})[seed] = panel
        sums: dict[tuple[int, str], list[Losses]] = {}
        for draw in range(N_DRAWS):
            order, single = draw_order(votes, rng)
            read = {"panel": votes, "single": single}
            for n in sorted({n for n in voted if n > 0}):
                if n > len(order):
                    short[n] = len(order)
                    continue
                for reads in READS:
                    seen = np.zeros_like(votes)
                    drawn = order[:n]
                    seen[drawn] = read[reads][drawn]
                    try:
                        fitted = fit_calibrator(
                            METHODS[VOTED], data, rows, logits, readers, votes=seen, interval=False
                        )
                    except InputError as error:
                        failed.add(f"{n} cases ({reads} reads): {error}")
                        continue
                    part = answers_of(fitted, at_test, n_raters=sizes)
                    head = {"seed": seed, "voted": n, "reads": reads, "draw": draw}
                    for metric, (value, floor) in score(
                        samples_of(y, part, counts), brief=True
                    ).items():
                        scores.append({**head, "metric": metric, "value": value, "floor": floor})
                    sums.setdefault((n, reads), []).append(case_losses(y, part, counts))
        # Averaged over draws, so that an interval over cases is of the usual draw.
        for key, every in sums.items():
            names = every[0]
            losses.setdefault(key, {})[seed] = {
                name: np.mean([one[name] for one in every], axis=0) for name in names
            }
    notes = [
        f"{n} voted cases are left out: the training part has votes on {most} cases."
        for n, most in short.items()
    ]
    notes += [f"Some draws of {why} were left out." for why in sorted(failed)[:3]]
    # Means over seeds must be of the same seeds for every kappa.
    if any(len(by_seed) < len(probes) for by_seed in by_kappa.values()):
        by_kappa = {}
    return VotedCurve(scores, losses, notes, by_kappa)


def wrong_kappas(
    data: Features, rows: Int, logits: Float, at_test: Float, test: Int, readers: Readers
) -> dict[float, AtKappa]:
    """Fit `panel-published` with its kappa multiplied by each of `KAPPA_FACTORS` (1 at most).

    Empty where kappa is unknown or not positive, or a fit fails.
    """
    cases = data.cases
    assert cases.votes is not None
    kappa, share = readers.published(cases.take(rows))
    behind = readers.behind(cases)
    out: dict[float, AtKappa] = {}
    if kappa is None or not kappa > 0 or behind is None:
        return out
    for factor in KAPPA_FACTORS:
        wrong = replace(readers, kappa=min(factor * kappa, 1.0), vote_share=share)
        try:
            fitted = fit_calibrator(METHODS[PUBLISHED], data, rows, logits, wrong)
        except InputError:
            return {}
        part = answers_of(fitted, at_test, n_raters=behind[test])
        own = case_losses(cases.labels[test], part, cases.votes[test])
        out[factor] = AtKappa(min(factor * kappa, 1.0), part.rho, own)
    return out


def case_losses(y: Int, part: Answers, counts: Int) -> Losses:
    """Loss of each case by the main metrics that are means over cases; NaN where a case has no votes."""
    samples, voted = samples_of(y, part, counts), counts.sum(axis=1) > 0
    out = {}
    for key in columns.chosen(lambda metric: metric.main and metric.term is not None):
        metric = metrics.METRICS[key]
        sample = samples.judged_by(metric)
        assert metric.term is not None
        assert sample is not None
        out[key] = metric.term(sample)
        if metric.votes:
            out[key] = np.where(voted, out[key], np.nan)
    return out


# -- the loop --------------------------------------------------------------------------------------


def run_grid(
    data: Features,
    *,
    methods: Sequence[str] | None = None,
    seeds: int | Sequence[int] = 10,
    preset: str | None = None,
    more: Mapping[str, Method] | None = None,
    readers: Readers | None = None,
    voted: Sequence[int] = (),
    dataset: str = "data",
    device: str = "cpu",
    allow_leakage: bool = False,
    progress: Callable[[str], None] | None = None,
    advance: Callable[[float], object] = lambda _: None,
) -> Grid:
    """Train every applicable method with every seed and predict the test cases.

    Parameters
    ----------
    data
        Embeddings with labels and, where known, votes, groups and split.
    methods
        Names in `METHODS`; None: all that apply.
    seeds
        A count, or the seeds. A seed decides split, held-out part, initial weights and batch order, and is
        shared by all methods: they are paired.
    preset
        One preset for all methods, "paper" or "default"; None leaves each its own.
    more
        Further methods beside those in `METHODS`.
    readers
        Knowledge of the readers besides the votes: published kappa, the panel's size.
    voted
        Numbers of voted training cases for which the panel is fitted, many times each (`voted_curve`).
    device
        Where probes are trained: "cpu" (numpy), or a torch device such as "cuda".
    allow_leakage
        Do not warn of groups with cases in both train and test.
    progress
        Called with a line on what is being done.
    advance
        Called with the share of the training that was just done (`scalecal.progress`).

    Examples
    --------
    >>> from scalecal.datasets import simulate
    >>> data = simulate(300, dim=8, seed=0)
    >>> grid = run_grid(data, methods=["none", "scale"], seeds=2)
    >>> sorted(grid.cell.answers)
    [('none', 0), ('none', 1), ('scale', 0), ('scale', 1)]
    """
    data = data.labelled()
    if data.cases.votes is not None:
        check_sides(data.cases.labels, data.cases.votes)
    leakage = ""
    if not allow_leakage:
        leakage = leakage_note(data.cases)
    chosen = seed_list(seeds)
    known = readers or Readers()
    for n in voted:
        check_positive_int(n, "voted (--voted)", least=0)
    if voted and methods is not None:
        methods = list(dict.fromkeys([*methods, *NEEDED]))
    run, left_out = applicable(methods, data, known)
    if voted and VOTED not in run:
        raise InputError(f"the numbers of voted cases cannot be tried: {left_out[VOTED]}")
    if preset == "default" and {"none", "none-default"} <= set(run):
        del run["none-default"]
        left_out["none-default"] = "under this preset it is the same as none"
    run |= more or {}
    say = progress or (lambda _: None)
    recipes = {name: m.recipes(known.usual(data.cases), preset) for name, m in run.items()}
    jobs: list[Job] = []
    place: dict[tuple[str, int], list[int]] = {}
    again: dict[tuple[str, int], tuple[CrossFit, slice]] = {}
    tested: dict[int, Int] = {}
    given: dict[int, Int | None] = {}
    for seed in chosen:
        train, val, tested[seed] = parts(data.cases, seed)
        given[seed] = val
        if voted and data.cases.votes is not None and not data.cases.votes[tested[seed]].any():
            raise InputError("the numbers of voted cases cannot be tried: no test case has votes")
        shared = shared_arrays(data, train, val)
        for name, method in run.items():
            own = [Job(recipe=recipe, seed=seed, **shared) for recipe in recipes[name]]
            place[name, seed] = list(range(len(jobs), len(jobs) + len(own)))
            jobs += own
            if method.crossfitted(preset) and name not in left_out:
                # Methods that train alike share the probes of their parts.
                like = (repr(own[0].recipe), seed)
                if like not in again:
                    try:
                        cross = CrossFit.of(own[0])
                    except InputError as error:
                        left_out[name] = f"with seed {seed}, {str(error).rstrip('.')}"
                        continue
                    again[like] = cross, slice(len(jobs), len(jobs) + len(cross.jobs))
                    jobs += cross.jobs
                again[name, seed] = again[like]
    say(f"training {len(jobs)} probes on {data.X.shape[0]:,} x {data.X.shape[1]} embeddings")
    # All seeds at once: probes that are trained on the same rows share batches.
    start = time.perf_counter()
    data = replace(data, X=on_device(data.X, device))
    trained = fit_many(data.X, jobs, advance=advance)
    seconds = time.perf_counter() - start
    folds = {key: (cross, trained[span]) for key, (cross, span) in again.items()}
    predictions: dict[tuple[str, int], Answers] = {}
    capped: Counter[str] = Counter()
    best: dict[tuple[str, int], int] = {}
    probes: dict[tuple[str, int], Trained] = {}
    # Seeds that draw their own split test other cases; the cell holds each of them once.
    cases = np.unique(np.concatenate(list(tested.values())))
    behind = known.behind(data.cases)
    # One method will do: whether labels and embeddings are in the same order is the data's matter.
    first = next(iter(run))
    at_chance: list[str] = []
    for seed in chosen:
        say(f"seed {seed}: calibrating and predicting {len(tested[seed]):,} test cases")
        test = tested[seed]
        for name, method in run.items():
            rivals = [trained[i] for i in place[name, seed]]
            best[name, seed] = best_recipe(rivals)
            probe = probes[name, seed] = rivals[best[name, seed]]
            capped[name] += int(probe.fit.capped)
            calibrator = None
            if method.calibrator is not None and name not in left_out:
                try:
                    rows, logits = out_of_sample(probe, data, given[seed], folds.get((name, seed)))
                    calibrator = fit_calibrator(method, data, rows, logits, known, interval=False)
                except InputError as error:
                    # One class in a seed's validation cases must not cost the other methods their run.
                    left_out[name] = f"with seed {seed}, {str(error).rstrip('.')}"
            predictions[name, seed] = answers_of(
                calibrator,
                probe.logits(data.X, test),
                n_raters=rows_of(behind, test),
                rows=np.searchsorted(cases, test),
            )
        at_chance.append(_chance_note(probes[first, seed], data, given[seed], test))
    # Those that were left out with one seed are left out with all, so that methods stay paired.
    order: dict[tuple[str, int], Answers] = {}
    for name in run:
        if name not in left_out:
            order |= {(name, seed): predictions[name, seed] for seed in chosen}
    if not order:
        raise InputError(
            "no method could be applied: " + "; ".join(f"{m}: {why}" for m, why in left_out.items())
        )
    meta: dict[str, Any] = {}
    if data.images is not None:
        meta["dataset"] = {"data": data.images}
    used = {name for name, _ in order}
    variants = {name: m.variant_of for name, m in run.items() if m.variant_of and name in used}
    if variants:
        meta["variants"] = variants
    if preset is not None:
        meta["preset"] = preset
    told = [name for name in used if name in METHODS and METHODS[name].readers == "published"]
    if told and known.kappa is None and data.cases.votes is not None:
        meta["stand_in"] = sorted(told)
    tested_cases = data.cases.take(cases).stratified()
    cell = Predictions(tested_cases, order, dataset, data.encoder or "embeddings", meta)
    curve = None
    if voted and VOTED not in left_out:
        say(f"fitting the panel to the votes of {', '.join(map(str, voted))} training cases")
        parts_of = {seed: folds[VOTED, seed] for seed in chosen}
        probes_of = {seed: probes[VOTED, seed] for seed in chosen}
        curve = voted_curve(data, probes_of, parts_of, tested, voted, known)
    grid = Grid(
        cell, left_out, dict(+capped), best, probes, seconds, curve, leakage, tuple(at_chance)
    )
    for doubt in grid.doubts:
        warnings.warn(doubt, ScalecalWarning, stacklevel=2)
    return grid


def _chance_note(probe: Trained, data: Features, val: Int | None, test: Int) -> str:
    """`chance_note` of a probe's validation and test cases."""
    held, rows = held_out(probe, val), test
    if held is not None:
        rows = np.concatenate([held, test])
    return chance_note(data.cases.labels[rows], probe.logits(data.X, rows))


def _do_grid(
    worker: Worker,
    seeds: tuple[int, ...],
    *,
    open_features: Callable[[], Features],
    options: Mapping[str, Any],
) -> Grid:
    device = worker.device_for(options.get("device", "cpu"))
    return run_grid(open_features(), seeds=seeds, **{**options, "device": device})


def run_grid_on(
    engine: Engine,
    open_features: Callable[[], Features],
    *,
    seeds: int | Sequence[int] = 10,
    progress: Callable[[str], None] | None = None,
    advance: Callable[[float], object] = lambda _: None,
    **options: Any,
) -> Grid:
    """Run the grid with its seeds spread over an engine's workers.

    Parameters
    ----------
    engine
        From `scalecal.engines.open_engine`.
    open_features
        Opens the embeddings on the worker: ``partial(read_features, path, votes=...)``. Must be
        picklable, and the files must be where the workers are.
    seeds, progress, advance, options
        As for `run_grid`; every worker gets an even share of the seeds.

    Returns
    -------
    Grid
        As `run_grid` returns it; `seconds` is the training time of all workers together.
    """
    chosen = seed_list(seeds)
    # Whole seeds go to a worker, since what a seed's methods share is in its memory.
    groups = [tuple(int(s) for s in g) for g in np.array_split(chosen, engine.workers) if len(g)]
    work = partial(_do_grid, open_features=open_features, options=options)
    grids: dict[int, Grid] = {}
    for number, grid in engine.run(work, groups):
        grids[number] = grid
        advance(1 / len(groups))
        if progress is not None:
            progress(f"seeds {', '.join(map(str, groups[number]))} done")
    return _together([grids[k] for k in sorted(grids)], open_features)


def _together(grids: Sequence[Grid], open_features: Callable[[], Features]) -> Grid:
    if len(grids) == 1:
        return grids[0]
    capped: Counter[str] = Counter()
    chosen: dict[tuple[str, int], int] = {}
    probes: dict[tuple[str, int], Trained] = {}
    at_chance: list[str] = []
    for grid in grids:
        capped.update(grid.capped)
        chosen |= grid.chosen
        probes |= grid.probes
        at_chance += grid.at_chance
    left_out = {name: why for grid in reversed(grids) for name, why in grid.left_out.items()}
    # In the order of the file, as one run of all seeds has them.
    cell = joined_cell(
        [grid.cell for grid in grids], open_features().labelled().cases.names.tolist()
    )
    curve = None
    curves = [g.voted for g in grids if g.voted is not None and VOTED not in left_out]
    if curves:
        curve = VotedCurve.joined(curves)
    # Methods are compared over the same seeds: what one worker left out is left out of all.
    kept = {key: value for key, value in cell.answers.items() if key[0] not in left_out}
    return Grid(
        replace(cell, answers=kept),
        left_out,
        dict(capped),
        chosen,
        probes,
        sum(grid.seconds for grid in grids),
        curve,
        grids[0].leakage,
        tuple(at_chance),
    )


def on_device(X: Any, device: str) -> Any:
    """Return embeddings where they are to be used: a numpy array or memory map, or a torch tensor.

    Half-precision rows are made single precision once, where that takes little memory: every batch of
    every probe would else do it again, at most of the cost of training.
    """
    small = 4 * X.shape[0] * X.shape[1] <= MAX_WIDENED
    if device == "cpu" and small and X.dtype == np.float16:
        return np.asarray(X, dtype=np.float32)
    if device == "cpu":
        return np.asarray(X)
    torch = library("torch", f"device {device!r}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"device {device!r} is not available here: torch sees no CUDA card")
    if not isinstance(X, torch.Tensor):
        X = torch.from_numpy(np.array(X, copy=False))
    there = X.to(device)
    if small and there.dtype == torch.float16:
        return there.float()
    return there


def shared_arrays(data: Features, train: Int, val: Int | None) -> dict[str, Any]:
    """What all jobs of one seed have in common, as the same objects, so that they share batches."""
    cases, y = data.cases, data.cases.labels
    shared: dict[str, Any] = {
        "rows": train,
        "y": y[train],
        "n_classes": len(cases.classes),
        "groups": rows_of(cases.group_codes, train),
    }
    if cases.votes is not None:
        shared["votes"] = with_label(cases.votes[train], shared["y"])
    if val is not None:
        shared |= {"validation": val, "validation_y": y[val]}
    return shared


def best_recipe(rivals: Sequence[Trained]) -> int:
    """Number of the probe whose training came to the lowest validation log loss."""
    return int(np.argmin([np.min(trained.fit.history) for trained in rivals]))


def compare(
    X: ArrayLike,
    y: ArrayLike,
    *,
    votes: ArrayLike | None = None,
    n_raters: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    split: ArrayLike | None = None,
    methods: Sequence[str] | None = None,
    seeds: int | Sequence[int] = 10,
    preset: str | None = None,
    kappa: float | None = None,
    vote_share: float | Sequence[float] | None = None,
    panel_size: int | None = None,
    n_bins: int = 15,
    n_resamples: int = 1000,
) -> Evaluation:
    """Compare methods on embeddings, paired over seeds and cases: what `scalecal compare` does.

    Parameters
    ----------
    X
        (n, d) embeddings.
    y
        Labels 0 / 1, or class numbers.
    votes, n_raters, groups
        As `scalecal.audit`.
    split
        "train", "val" or "test" of each case; without it a grouped and stratified split is drawn per seed.
    methods, seeds, preset
        As `run_grid`.
    kappa, vote_share, panel_size
        Knowledge of the readers besides the votes (`scalecal.readers.Readers`).
    n_bins, n_resamples
        As `scalecal.evaluation.evaluations.evaluate`.

    Examples
    --------
    >>> from scalecal.datasets import simulate
    >>> data = simulate(300, dim=8, seed=0)
    >>> result = compare(data.X, data.y, methods=["none", "temperature"], seeds=2, n_resamples=100)
    >>> result.table["method"].tolist()
    ['none', 'temperature']
    """
    embeddings = check_features(X)
    cases = cases_of(
        y, None, votes=votes, n_raters=n_raters, groups=groups, split=split, X=embeddings
    )
    grid = run_grid(
        Features(embeddings, cases),
        methods=methods,
        seeds=seeds,
        preset=preset,
        readers=Readers(kappa=kappa, vote_share=vote_share, panel_size=panel_size),
    )
    return evaluate(grid.cell, n_bins=n_bins, n_resamples=n_resamples)
