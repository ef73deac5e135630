"""Every claim of the paper as one record: its sentence, its number, the test that decides it.

`judge` gives each claim its verdict on the evidence at hand: it holds, it does not hold, or it is
inconclusive. After the paper's claims come its premise and statements that public sources contradict. Tests
are functions from evidence to verdict; they raise `MissingEvidence` where the evidence lacks what they need.

A claim says that a number lies above or below a bound: a fall of an error, a share of a gain, a gap.
The number is the one to be expected of as many test cases, over test sets and training seeds, so an
estimate has two kinds of noise: the cases that happen to be in the test set, and the seeds. An interval
with both decides (`interval_of`): a claim holds where the whole interval is on the claimed side of the
bound, does not hold where the whole interval is on the other side, and is inconclusive otherwise. Either
verdict is wrong in a share `WRONG` of the runs at most.

A claim on several encoders or smoothing functions holds where each of them holds at that level, which
needs no correction (Berger 1982, Technometrics: an intersection-union test); it does not hold where one
of k fails at the level `WRONG` / k (Bonferroni). Many parts, or parts with much noise, hardly ever all hold,
so the claims on what is recovered and what is preserved are of the mean over the parts (`on_average`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit
from scipy.stats import rankdata
from scipy.stats import t as student_t
from sklearn.neighbors import NearestNeighbors

from scalecal.cases import Features
from scalecal.checks import Float, Int
from scalecal.evaluation.changes import softened_name, with_softened
from scalecal.evaluation.scores import Resampled
from scalecal.inference.paired import Drawn
from scalecal.inference.units import interval, student_error
from scalecal.paper.evidence import Embeddings, Evidence, MissingEvidence, training_embeddings
from scalecal.paper.printed import (
    FACTS,
    REPLICATION,
    SEEDS,
    SMOOTHINGS,
    Fact,
    encoder_label,
    method_label,
)
from scalecal.probes.methods import METHODS
from scalecal.runs.grid import Grid

Answer = Literal["holds", "does not hold", "inconclusive"]
VERDICTS: tuple[Answer, ...] = ("holds", "does not hold", "inconclusive")

WRONG = 0.025
"""Accepted chance of a wrong verdict, either way; intervals are of the level 1 - 2 `WRONG`."""

MIN_CASES = 30
"""With fewer cases in a stratum every claim is inconclusive: intervals are unreliable there."""

MIN_UNITS = 10
"""With fewer patients or slides likewise."""

MIN_SEEDS = 2
"""With fewer seeds likewise: nothing is known of their noise."""


@dataclass(frozen=True)
class Verdict:
    """What was measured, on how many cases, and the verdict with its reason.

    Of a whole claim, or of one encoder or smoothing function that it is about (`all_of`).
    """

    measured: str
    n: int
    verdict: Answer
    reason: str


# ---- numbers with both kinds of noise


def combined(*terms: tuple[float, Drawn]) -> Drawn:
    """Return the linear combination of numbers drawn from the same resamples, seed by seed.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(0, 0.01, 100)
    >>> a, b = (Drawn({0: v, 1: v + 0.02}, v + noise, 90, 90) for v in (0.3, 0.2))
    >>> fall = combined((1, a), (-1, b))
    >>> round(fall.value, 6), round(float(fall.samples.std()), 6)
    (0.1, 0.0)
    """
    parts = [part for _, part in terms]
    paired = [s for s in parts[0].by_seed if all(s in part.by_seed for part in parts)]
    if not paired:
        raise MissingEvidence("the methods have no seed in common, so they cannot be paired")
    # A metric may be undefined on some test sets: AUC where one class is missing.
    known = [s for s in paired if all(np.isfinite(part.by_seed[s]) for part in parts)] or paired
    by_seed = {s: float(sum(c * part.by_seed[s] for c, part in terms)) for s in known}
    samples = np.sum([c * part.samples for c, part in terms], axis=0)
    return Drawn(by_seed, samples, min(p.n for p in parts), min(p.units for p in parts))


def _half_width(number: Drawn, wrong: float) -> float:
    """Half the interval: what cases and seeds each give, as they add up."""
    seeds = np.array(list(number.by_seed.values()))
    samples = number.samples[np.isfinite(number.samples)]
    of_seeds = stdtrit(len(seeds) - 1, 1 - wrong) * seeds.std(ddof=1) / np.sqrt(len(seeds))
    error, _ = student_error(float(samples.std(ddof=1)), number.units)
    of_cases = stdtrit(number.units - 1, 1 - wrong) * error
    return float(np.hypot(of_seeds, of_cases))


def interval_of(
    number: Drawn, per: Drawn | None = None, *, wrong: float = WRONG
) -> tuple[float, float]:
    """Interval of a number, or of its ratio to another, with the noise of cases and of seeds.

    The half width is sqrt(a^2 + b^2), where a is that of a t interval across seeds and b that of the
    bootstrap over cases (over groups, where there are any) with t quantiles: the limits of two
    independent parts are joined as by Zou and Donner (2008, Statistics in Medicine). What varies with
    both cases and seeds counts in both parts, so the interval errs on the wide side. The ratio's
    interval is Fieller's (1954, JRSS B): all r for which number - r per may be zero. It is (nan, nan)
    where `per` may be zero.

    Parameters
    ----------
    number, per
        With two seeds, two units and two resamples at least; seeds are paired.
    wrong
        Chance that the number is beyond one end.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = (
    ...     Drawn({0: v, 1: v + 0.01, 2: v - 0.01}, rng.normal(v, 0.01, 500), 900, 900)
    ...     for v in (0.4, 0.2)
    ... )
    >>> [round(end, 3) for end in interval_of(a)], [round(end, 2) for end in interval_of(b, a)]
    ([0.368, 0.432], [0.44, 0.56])
    """
    if per is None:
        half = _half_width(number, wrong)
        return number.value - half, number.value + half
    # Both of the same seeds.
    top, base = combined((1, number), (0, per)), combined((0, number), (1, per))
    a, b = base.value, top.value
    # The square of the half width is a quadratic form, so three values give that of b - r a.
    squares = [_half_width(one, wrong) ** 2 for one in (base, top, combined((1, base), (1, top)))]
    lead, mixed = a * a - squares[0], (squares[2] - squares[0] - squares[1]) / 2
    if not (a > 0 and lead > 0):
        return float("nan"), float("nan")
    middle = (a * b - mixed) / lead
    root = float(np.sqrt(max(middle**2 - (b * b - squares[1]) / lead, 0.0)))
    return middle - root, middle + root


# ---- statements


@dataclass(frozen=True)
class Statement:
    """One statement: a number, or its ratio to another, lies above a bound (or below it).

    Attributes
    ----------
    number, per
        The number is `number`, or `number` / `per`.
    bound, above
        What is stated: that the number is above the bound, or below it.
    fails
        The statement fails where the interval is beyond this; None: beyond the bound.
    form, unit
        How the number is written; with a unit (" %", " points") a hundred times itself.
    undefined
        Why there is no ratio, where `per` may be zero.
    """

    number: Drawn
    bound: float = 0.0
    above: bool = True
    per: Drawn | None = None
    fails: float | None = None
    form: str = "+.3f"
    unit: str = ""
    undefined: str = "undefined"

    @property
    def value(self) -> float:
        """The estimate."""
        if self.per is None:
            return self.number.value
        return self.number.value / self.per.value if self.per.value else float("nan")

    @property
    def lacks(self) -> str:
        """What an interval lacks, or nothing."""
        number = self.number
        for count, least, what in (
            (number.n, MIN_CASES, "case"),
            (number.units, MIN_UNITS, "group"),
            (len(number.by_seed), MIN_SEEDS, "seed"),
        ):
            if count < least:
                return f"only {count} {what}{'s' * (count != 1)}, {least} are needed"
        return "" if np.isfinite(self.value) else "undefined on these cases"

    def interval(self, wrong: float = WRONG) -> tuple[float, float]:
        """Interval of the number; (nan, nan) where there is none."""
        if self.lacks:
            return float("nan"), float("nan")
        return interval_of(self.number, self.per, wrong=wrong)

    @property
    def defined(self) -> bool:
        """Whether there is an interval."""
        return bool(np.isfinite(self.interval()[0]))

    def _written(self, value: float) -> str:
        return f"{(100 if self.unit else 1) * value:{self.form}}"

    @property
    def short(self) -> str:
        """The estimate; "undefined" where it is a ratio to what may be zero."""
        if not (self.defined or self.lacks):
            return "undefined"
        return self._written(self.value) + self.unit

    @property
    def text(self) -> str:
        """The estimate with its interval, where there is one."""
        if not self.defined:
            return self.short
        return f"{self.short} ({' to '.join(map(self._written, self.interval()))})"

    def judged(self, together: int = 1) -> Verdict:
        """Judge the statement; it is one of `together` of which each would fail a claim."""
        answer: Answer = "inconclusive"
        why = self.lacks or (self.text if self.defined else self.undefined)
        if self.defined:
            low, high = self.interval()
            widest = self.interval(WRONG / together)
            fails = self.bound if self.fails is None else self.fails
            if (low > self.bound) if self.above else (high < self.bound):
                answer = "holds"
            elif (widest[1] <= fails) if self.above else (widest[0] >= fails):
                answer = "does not hold"
        return Verdict(self.short, self.number.n, answer, why)


def judged_all(statements: Mapping[str, Statement]) -> dict[str, Verdict]:
    """Judge statements that must all hold."""
    return {name: one.judged(len(statements)) for name, one in statements.items()}


def all_of(
    parts: Mapping[str, Verdict],
    what: str,
    *,
    measured: str,
    of: str = "encoders",
    missing: str = "",
) -> Verdict:
    """Join the answers for each of several: all must hold; one that fails is enough to fail.

    `missing` says what the evidence lacks where there are none.
    """
    if not parts:
        raise MissingEvidence(missing or f"{what}: none here")
    named = {
        answer: [e for e, part in parts.items() if part.verdict == answer] for answer in VERDICTS
    }
    reason = f"{what}: holds for {len(named['holds'])} of {len(parts)} {of}"
    verdict: Answer = "holds"
    if named["inconclusive"]:
        verdict = "inconclusive"
    if named["does not hold"]:
        verdict = "does not hold"
        reason += f"; fails for {_listed(named['does not hold'], parts)}"
    if named["inconclusive"]:
        reason += f"; inconclusive for {_listed(named['inconclusive'], parts)}"
    return Verdict(measured, max(part.n for part in parts.values()), verdict, reason)


def on_average(
    average: Statement,
    parts: Mapping[str, Statement],
    what: str,
    *,
    measured: str,
    of: str,
) -> Verdict:
    """Judge the mean over several parts; one part that fails is enough to fail.

    That the mean is beyond the bound is one statement, at the level `WRONG`, where all parts at once would
    each have to pass. It does not hold where the mean fails or a part does, each of both at half of the
    level, which the parts share (Bonferroni).
    """
    whole = average.judged(2)
    each = {name: one.judged(2 * len(parts)) for name, one in parts.items()}
    failing = [name for name, part in each.items() if part.verdict == "does not hold"]
    reason = f"{what}: {whole.reason} on average over {len(parts)} {of}"
    verdict = whole.verdict
    if failing:
        verdict = "does not hold"
        reason += f"; fails for {_listed(failing, each)}"
    return Verdict(measured, max(part.n for part in each.values()), verdict, reason)


def _mean(numbers: Sequence[Drawn]) -> Drawn:
    """Mean of numbers of the same resamples, or of independent ones, over the seeds that all have."""
    share = 1.0 / len(numbers)
    return combined(*((share, number) for number in numbers))


def _listed(names: Sequence[str], parts: Mapping[str, Verdict]) -> str:
    """Names with their reasons; of many, the first one's only."""
    if len(names) > 3:
        listed = ", ".join(map(encoder_label, names))
        return f"{listed} ({encoder_label(names[0])}: {parts[names[0]].reason})"
    return ", ".join(f"{encoder_label(name)} ({parts[name].reason})" for name in names)


GAP = 0.038
"""A gap between the strata's errors that matters: half of the smallest the paper prints, 0.076."""

MARGIN = 0.01
"""Loss of AUC or accuracy that would not matter: one point."""

PLATEAU = 0.05
"""Change with K that would not matter, as a share of the uncalibrated probe's low-agreement ECE."""

NEIGHBOURS = 10
"""Real cases that are looked at next to an interpolate."""


def _compared(
    evidence: Evidence, *methods: str, dataset: str | None = None, strata: Sequence[str] = ()
) -> tuple[str, Resampled, list[str]]:
    """A data set, its bootstrap, and its encoders with all these methods and test cases in these strata.

    Without a name, the data set is that with agreement strata; there must be an encoder.
    """
    if dataset is None:
        dataset = evidence.needs_strata()
    if dataset not in evidence.datasets:
        title = {"pcam": "PatchCamelyon", "breakhis": "BreakHis"}.get(dataset, dataset)
        raise MissingEvidence(f"no predictions on {title} here")
    cells = evidence.of_dataset(dataset, *methods)
    if not cells:
        raise MissingEvidence(
            f"{dataset}: no encoder has predictions of all of {', '.join(methods)}"
        )
    encoders = [cell.encoder for cell in cells if set(strata) <= set(cell.stratum_names)]
    if not encoders:
        named = " and ".join(strata)
        raise MissingEvidence(f"{dataset}: no test set has cases of {named} agreement")
    return dataset, evidence.resampled(dataset), encoders


def _range(values: Sequence[float], form: Callable[[float], str]) -> str:
    low, high = form(min(values, default=0.0)), form(max(values, default=0.0))
    if low == high:
        return low
    return f"{low} to {high}"


# ---- the uncalibrated probe by agreement


def strata_differ(evidence: Evidence, *, kind: Literal["noise", "selection"]) -> Verdict:
    """Low-agreement ECE exceeds high-agreement ECE for every encoder, by more than a null gives.

    The null is the difference that a calibrated model with the same predictions shows: "noise", from
    finite numbers alone; "selection", also from strata made from the same votes as the labels. Noise
    can hide at most the floor: the claim fails only where a gap of `GAP` is excluded even so.
    """
    strata = ("low", "high")
    dataset, drawn, encoders = _compared(evidence, "none", strata=strata)
    against = "strata made from the labels' own votes"
    if kind == "noise":
        against = "finite numbers"
    statements, nulls = {}, []
    for encoder in encoders:
        key = (dataset, encoder, "none")
        floor_low, floor_high = (evidence.of_seeds(*key, "ece", s, column="floor") for s in strata)
        hidden = [float(np.mean(list(floor.values()))) for floor in (floor_low, floor_high)]
        null_low, null_high = floor_low, floor_high
        if kind == "selection":
            null_low, null_high = (evidence.of_seeds(*key, "null", s) for s in strata)
        null = {seed: null_low[seed] - null_high[seed] for seed in null_low if seed in null_high}
        most = sum(hidden)
        if kind == "noise":
            # Equal errors of both strata hide unequal floors: a smaller floor is no excuse.
            null = {seed: max(value, 0.0) for seed, value in null.items()}
            # This null is nothing but floors: one of them is in it already.
            most = max(hidden)
        low, high = (drawn.drawn(encoder, "none", s) for s in strata)
        excess = _less(combined((1, low), (-1, high)), null)
        statements[encoder] = Statement(excess, fails=GAP - most)
        nulls.append(float(np.mean([null[seed] for seed in excess.by_seed])))
    excesses = [one.value for one in statements.values()]
    mean = float(np.mean(excesses) + np.mean(nulls))
    verdict = all_of(
        judged_all(statements),
        f"{dataset}: low minus high ECE less what {against} give a calibrated model",
        measured=f"{mean:+.3f}, null {np.mean(nulls):+.3f}",
    )
    if verdict.verdict != "does not hold":
        return verdict
    reason = f"{verdict.reason}; a gap of {GAP}, half the paper's smallest, is excluded"
    return Verdict(verdict.measured, verdict.n, verdict.verdict, reason)


def _less(number: Drawn, expected: Mapping[int, float]) -> Drawn:
    """A number less what is expected of each seed."""
    by_seed = {s: v - expected[s] for s, v in number.by_seed.items() if s in expected}
    if not by_seed:
        raise MissingEvidence("no seed's test set has a null: one class is missing")
    return Drawn(by_seed, number.samples, number.n, number.units)


def aggregate_hides(evidence: Evidence) -> Verdict:
    """Overall ECE is nearer to high- than to low-agreement ECE for every encoder."""
    dataset, drawn, encoders = _compared(evidence, "none", strata=("low", "high"))
    statements = {}
    for encoder in encoders:
        whole, high, low = (drawn.drawn(encoder, "none", s) for s in ("overall", "high", "low"))
        from_middle = combined((1, whole), (-0.5, high), (-0.5, low))
        statements[encoder] = Statement(from_middle, above=False)
    overall, hard = (drawn.averaged(encoders, "none", s).value for s in ("overall", "low"))
    return all_of(
        judged_all(statements),
        f"{dataset}: overall ECE less the middle between high- and low-agreement ECE (an average over "
        "mostly easy cases can hardly do otherwise)",
        measured=f"{overall:.3f} overall, {hard:.3f} low",
    )


def stays_below(evidence: Evidence, *, stratum: str, bound: float) -> Verdict:
    """The uncalibrated probe's ECE in a stratum is at most a bound for every encoder.

    Strata made from the labels' own votes give a calibrated model an error too (`selection_draws`):
    where that is above the bound, only an ECE above both is held against the claim.
    """
    dataset, drawn, encoders = _compared(evidence, "none", strata=(stratum,))
    statements, nulls = {}, []
    for encoder in encoders:
        null = evidence.mean(dataset, encoder, "none", "null", stratum)
        nulls.append(null)
        number = drawn.drawn(encoder, "none", stratum)
        fails = float(np.fmax(bound, null))
        statements[encoder] = Statement(number, bound, above=False, fails=fails, form=".3f")
    return all_of(
        judged_all(statements),
        f"{dataset}: {stratum}-agreement ECE against {bound} (a calibrated model would show "
        f"{_range(nulls, '{:.3f}'.format)} in strata made from the labels' own votes)",
        measured=_range([one.value for one in statements.values()], "{:.3f}".format),
    )


# ---- one method against another


def _difference(
    drawn: Resampled,
    encoders: Sequence[str],
    method: str,
    reference: str,
    stratum: str = "overall",
    metric: str = "ece",
) -> Drawn:
    """A metric of a method less that of another, averaged over encoders."""
    a, b = (drawn.averaged(encoders, m, stratum, metric) for m in (method, reference))
    return combined((1, a), (-1, b))


def _lower(
    drawn: Resampled,
    encoders: Sequence[str],
    method: str,
    reference: str,
    stratum: str = "overall",
    metric: str = "ece",
    *,
    least: float = 0.0,
) -> Statement:
    """State that a metric is lower than another method's by more than a share `least` of it."""
    change = _difference(drawn, encoders, method, reference, stratum, metric)
    base = drawn.averaged(encoders, reference, stratum, metric)
    return Statement(change, -least, above=False, per=base, form="+.1f", unit=" %")


def _lowers(
    drawn: Resampled,
    encoders: Sequence[str],
    method: str,
    reference: str,
    what: str,
    *,
    least: float,
    stratum: str,
    metric: str = "ece",
) -> Verdict:
    """Judge that a metric falls by a share `least` of the reference's value at least."""
    change = _lower(drawn, encoders, method, reference, stratum, metric, least=least)
    judged = change.judged()
    before, after = (drawn.averaged(encoders, m, stratum, metric) for m in (reference, method))
    reason = f"{what}: {before.value:.3f} to {after.value:.3f}; {judged.reason}"
    if len(encoders) > 1:
        against = []
        for encoder in encoders:
            if not _difference(drawn, [encoder], method, reference, stratum, metric).value < 0:
                against.append(encoder_label(encoder))
        if against:
            reason += f"; not lower for {', '.join(against)}"
        else:
            reason += "; lower for every encoder"
    return Verdict(change.text, judged.n, judged.verdict, reason)


def lowers(
    evidence: Evidence,
    *,
    method: str,
    reference: str,
    least: float,
    stratum: str = "low",
    dataset: str | None = None,
) -> Verdict:
    """A method's ECE is lower than another's by a share `least` of it, averaged over encoders."""
    dataset, drawn, encoders = _compared(evidence, method, reference, dataset=dataset)
    where = f"{stratum}-agreement ECE"
    if stratum == "overall":
        where = "overall ECE"
    what = f"{dataset}: {where}, {method_label(method)} against {method_label(reference)}"
    return _lowers(drawn, encoders, method, reference, what, least=least, stratum=stratum)


def lowers_everywhere(evidence: Evidence, *, method: str, reference: str, dataset: str) -> Verdict:
    """A method's overall ECE is lower than another's for every encoder on a data set."""
    dataset, drawn, encoders = _compared(evidence, method, reference, dataset=dataset)
    statements = {e: _lower(drawn, [e], method, reference) for e in encoders}
    mean = float(np.mean([one.value for one in statements.values()]))
    return all_of(
        judged_all(statements),
        f"{dataset}: overall ECE, {method_label(method)} against {method_label(reference)}",
        measured=f"{100 * mean:+.1f} % on average",
    )


def in_between(evidence: Evidence, *, method: str, above: str, below: str, dataset: str) -> Verdict:
    """A method's overall ECE lies between those of two others, averaged over encoders."""
    dataset, drawn, encoders = _compared(evidence, method, above, below, dataset=dataset)
    statements = {
        f"below {method_label(above)}": _lower(drawn, encoders, method, above),
        f"above {method_label(below)}": _lower(drawn, encoders, below, method),
    }
    values = [drawn.averaged(encoders, m, "overall").value for m in (above, method, below)]
    return all_of(
        judged_all(statements),
        f"{dataset}: overall ECE of {method_label(method)}",
        measured=" / ".join(map("{:.3f}".format, values)),
        of="comparisons",
    )


def piecewise_lowest(evidence: Evidence) -> Verdict:
    """SCALE with piecewise smoothing has a lower low-agreement ECE than with the other two."""
    dataset, drawn, _ = _compared(evidence)
    statements, measured = {}, []
    for smoothing, (_, method) in SMOOTHINGS.items():
        encoders = evidence.encoders(dataset, "scale", method)
        if encoders:
            value = drawn.averaged(encoders, method, "low").value
            measured.append(f"{smoothing} {value:.3f}")
            if method != "scale":
                statements[smoothing] = _lower(drawn, encoders, "scale", method, "low")
    return all_of(
        judged_all(statements),
        f"{dataset}: low-agreement ECE, piecewise smoothing against another",
        measured=", ".join(measured),
        of="smoothing functions",
        missing=f"{dataset}: no encoder has scale beside scale-linear or -nonlinear",
    )


def _gains(
    evidence: Evidence, metric: str = "ece", stratum: str = "low"
) -> dict[str, tuple[Drawn, Drawn]]:
    """Smoothing function -> gain of synthetic and of real agreement over no calibration."""
    dataset, drawn, _ = _compared(evidence)
    gains = {}
    for smoothing, (real, scale) in SMOOTHINGS.items():
        encoders = evidence.encoders(dataset, "none", real, scale)
        if encoders:
            synthetic = _difference(drawn, encoders, "none", scale, stratum, metric)
            best = _difference(drawn, encoders, "none", real, stratum, metric)
            gains[smoothing] = synthetic, best
    if not gains:
        raise MissingEvidence(
            f"{dataset}: no encoder has predictions of all of none, real-*, scale*"
        )
    return gains


def _shares(gains: Mapping[str, tuple[Drawn, Drawn]], bound: float = 0.0) -> dict[str, Statement]:
    """State of each smoothing function that a share of real agreement's gain is recovered."""
    statements = {}
    for smoothing, (synthetic, best) in gains.items():
        undefined = "undefined (real agreement gains what may be chance)"
        if best.value <= 1e-12:
            undefined = "undefined (real agreement gains nothing here)"
        statements[smoothing] = Statement(
            synthetic, bound, per=best, form=".0f", unit=" %", undefined=undefined
        )
    return statements


def recovers(
    evidence: Evidence, *, share: float, metric: str = "ece", stratum: str = "low"
) -> Verdict:
    """SCALE recovers at least a share of real agreement's gain, on average over smoothing functions."""
    gains = _gains(evidence, metric, stratum)
    statements = _shares(gains, share)
    synthetic, best = (_mean([pair[i] for pair in gains.values()]) for i in (0, 1))
    average = _shares({"mean": (synthetic, best)}, share)["mean"]
    return on_average(
        average,
        statements,
        f"{evidence.primary}: share of real agreement's gain",
        measured=", ".join(one.short for one in statements.values()),
        of="smoothing functions",
    )


def piecewise_best(evidence: Evidence) -> Verdict:
    """The share of real agreement's gain that SCALE recovers is largest with piecewise smoothing.

    The noise of a difference of shares is that of its linear part.
    """
    gains = _gains(evidence)
    if "piecewise" not in gains or len(gains) < 2:
        raise MissingEvidence(
            f"{evidence.primary}: needs real-piecewise, scale and another smoothing of both kinds"
        )
    shares = _shares(gains)
    piecewise = shares["piecewise"]
    synthetic, best = gains["piecewise"]
    parts = {}
    for name, other in shares.items():
        if name == "piecewise":
            continue
        if not piecewise.defined or not other.defined:
            undefined = other
            if not piecewise.defined:
                undefined = piecewise
            parts[name] = undefined.judged()
            continue
        other_synthetic, other_best = gains[name]
        noise = combined(
            (1 / best.value, synthetic),
            (-piecewise.value / best.value, best),
            (-1 / other_best.value, other_synthetic),
            (other.value / other_best.value, other_best),
        )
        difference = piecewise.value - other.value
        number = _less(noise, dict.fromkeys(noise.by_seed, -difference))
        larger = Statement(number, form="+.0f", unit=" points")
        parts[name] = larger.judged(len(gains) - 1)
    return all_of(
        parts,
        f"{evidence.primary}: share of real agreement's gain, piecewise less another",
        measured=", ".join(f"{name} {one.short}" for name, one in shares.items()),
        of="smoothing functions",
    )


def gap_to_real(evidence: Evidence, *, bound: float) -> Verdict:
    """SCALE's low-agreement ECE is above real agreement's by no more than a bound."""
    statements = {}
    for smoothing, (synthetic, best) in _gains(evidence).items():
        gap = combined((1, best), (-1, synthetic))
        statements[smoothing] = Statement(gap, bound, above=False)
    return all_of(
        judged_all(statements),
        f"{evidence.primary}: low-agreement ECE of SCALE less that of real agreement",
        measured=", ".join(f"{one.value:+.3f}" for one in statements.values()),
        of="smoothing functions",
    )


# ---- the number of anchors


def _over_k(evidence: Evidence) -> dict[str, tuple[Drawn, dict[str, Drawn]]]:
    """Smoothing function -> low-agreement ECE of no calibration, and of SCALE by K."""
    dataset, drawn, _ = _compared(evidence)
    curves = {}
    for smoothing, names in evidence.sweep_over_k(dataset).items():
        if "10" in names:
            encoders = evidence.encoders(dataset, "none", *names.values())
            curve = {k: drawn.averaged(encoders, m, "low") for k, m in names.items()}
            curves[smoothing] = drawn.averaged(encoders, "none", "low"), curve
    if not curves:
        raise MissingEvidence(f"{dataset}: no sweep over K here (methods such as scale@K=20)")
    return curves


def plateau(evidence: Evidence) -> Verdict:
    """Low-agreement ECE at every K above 10 is within a margin of that at K = 10."""
    statements, changes = {}, []
    for smoothing, (base, curve) in _over_k(evidence).items():
        for k, number in curve.items():
            if k in ("5", "10"):
                continue
            higher = combined((1, number), (-1, curve["10"]))
            changes.append(higher.value)
            # Two one-sided statements: a change not found is not yet a change that is small.
            for sign, way in ((-1, "higher"), (1, "lower")):
                left = combined((sign, number), (-sign, curve["10"]), (PLATEAU, base))
                statements[f"{smoothing} K = {k} ({way})"] = Statement(left)
    return all_of(
        judged_all(statements),
        f"{evidence.primary}: what is left to a margin of {100 * PLATEAU:g} % of no calibration's "
        "low-agreement ECE around that of K = 10",
        measured=f"up to {max(map(abs, changes), default=0.0):.3f} from K = 10",
        of="bounds",
        missing=f"{evidence.primary}: no sweep over K beyond 10 here",
    )


def few_anchors(evidence: Evidence) -> Verdict:
    """K = 5 is worse than K = 10 and keeps half of its gain, with piecewise smoothing."""
    curves = _over_k(evidence)
    if "piecewise" not in curves or "5" not in curves["piecewise"][1]:
        raise MissingEvidence(f"{evidence.primary}: no K = 5 with piecewise smoothing here")
    base, curve = curves["piecewise"]
    five, ten = curve["5"], curve["10"]
    statements = {
        "worse": Statement(combined((1, five), (-1, ten))),
        "slightly": Statement(combined((0.5, base), (0.5, ten), (-1, five))),
    }
    return all_of(
        judged_all(statements),
        f"{evidence.primary}: low-agreement ECE at K = 5",
        measured=f"{five.value:.3f}, at K = 10 {ten.value:.3f}",
        of="bounds",
    )


# ---- what a method costs


def preserved(evidence: Evidence, *, metric: Literal["auc", "accuracy"]) -> Verdict:
    """Methods of the paper lose less AUC or accuracy than a margin, on average over encoders."""
    # The paper's statement covers its own methods only.
    published = {name for name, method in METHODS.items() if method.paper and name != "none"}
    statements = {}
    for dataset in evidence.datasets:
        drawn = evidence.resampled(dataset)
        for cell in evidence.of_dataset(dataset, "none"):
            for method in cell.methods:
                if method in published:
                    change = _difference(drawn, [cell.encoder], method, "none", metric=metric)
                    name = f"{method_label(method)}, {encoder_label(cell.encoder)}, {dataset}"
                    statements[name] = Statement(change, -MARGIN, form="+.1f", unit=" points")
    statements = {name: one for name, one in statements.items() if np.isfinite(one.value)}
    title = {"auc": "AUC"}.get(metric, metric)
    if not statements:
        raise MissingEvidence(
            "no encoder has predictions of none and of another method of the paper"
        )
    values = [100 * one.value for one in statements.values()]
    mean = _mean([one.number for one in statements.values()])
    return on_average(
        Statement(mean, -MARGIN, form="+.1f", unit=" points"),
        statements,
        f"change of {title} against no calibration, above {-100 * MARGIN:g} point",
        measured=_range(values, "{:+.1f}".format) + " points",
        of="methods and encoders",
    )


def beats_softening(
    evidence: Evidence, *, metric: Literal["ece", "vote_nll"], least: float
) -> Verdict:
    """SCALE is better than the uncalibrated probe softened to the same mean entropy."""
    dataset = evidence.needs_strata()
    cells = [c for c in evidence.of_dataset(dataset, "none", "scale") if c.cases.votes is not None]
    if not cells:
        raise MissingEvidence(f"{dataset}: no encoder has predictions of both none and scale")
    # Softening alone lowers ECE on hard cases, so only a gain beyond equal softening counts.
    softened = [with_softened(cell, ["scale"]) for cell in cells]
    stratum, title = "overall", "vote NLL"
    if metric == "ece":
        stratum, title = "low", "low-agreement ECE"
    return _lowers(
        Resampled(softened, n_resamples=evidence.n_resamples),
        [cell.encoder for cell in cells],
        "scale",
        softened_name("scale"),
        f"{dataset}: {title}, {method_label('scale')} against softening to equal entropy",
        least=least,
        stratum=stratum,
        metric=metric,
    )


def quick(evidence: Evidence, *, limit: float) -> Verdict:
    """Training and retraining the probe takes less than a limit, for every cell.

    The seconds themselves are in each cell's ``timing.json``: what is said here repeats.
    """
    if not evidence.seconds:
        raise MissingEvidence("no training times were kept (predictions read from files)")
    slow = []
    for (dataset, encoder), seconds in sorted(evidence.seconds.items()):
        if seconds >= limit:
            slow.append(f"{encoder_label(encoder)} on {dataset}")
    n, reason = len(evidence.seconds), "seconds in timing.json; n counts cells"
    if slow:
        return Verdict(f">= {limit:g} s", n, "does not hold", f"slow: {', '.join(slow)}; {reason}")
    return Verdict(f"< {limit:g} s", n, "holds", reason)


# ---- the premise: does the line between two anchors pass through hard cases?


@dataclass(frozen=True, eq=False)
class Checked:
    """A number that the premise is judged by, of `n` real cases, with its bootstrap over cases.

    `more` is what a reader should know beside it.
    """

    value: float
    samples: Float
    n: int
    more: str = ""

    @property
    def text(self) -> str:
        """The number with its 95 % interval, and `more`."""
        low, high = interval(self.samples)
        return f"{self.value:+.2f} ({low:+.2f} to {high:+.2f}){self.more}"


def _checked(
    statistic: Callable[[Float], float], n: int, n_resamples: int, more: str = ""
) -> Checked:
    """A statistic of n weighted cases, with its bootstrap."""
    # The same resamples in every run, so that verdicts repeat.
    rng = np.random.default_rng(0)
    samples = np.empty(n_resamples)
    for i in range(n_resamples):
        counts = np.bincount(rng.integers(n, size=n), minlength=n)
        samples[i] = statistic(counts.astype(np.float64))
    return Checked(statistic(np.ones(n)), samples, n, more)


def _within(ranks: Float, y: Int, weight: Float) -> Float:
    """Ranks less their (weighted) mean in the case's class."""
    total = np.bincount(y, weight * ranks)
    # A resample may lack a class.
    size = np.maximum(np.bincount(y, weight), 1e-300)
    return np.asarray(ranks - (total / size)[y])


def _correlation(a: Float, b: Float, weight: Float) -> float:
    scale = np.sqrt((weight * a * a).sum() * (weight * b * b).sum())
    return float((weight * a * b).sum() / scale) if scale > 0 else float("nan")


def check_axis(data: Embeddings, *, n_resamples: int = 500) -> Checked:
    """Check whether votes follow the position between the anchors, without the anchors themselves.

    Spearman's correlation of the vote share with `Embeddings.position`, over all cases and within classes:
    ranks are taken within each class and centred there, so that a probe which merely separates the
    classes scores zero.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> t = rng.normal(size=400)
    >>> v = rng.binomial(7, 1 / (1 + np.exp(-3 * t)))
    >>> X = np.column_stack([t, rng.normal(size=400)])
    >>> order = np.argsort(t)
    >>> counts, anchors = np.column_stack([7 - v, v]), {0: order[:5], 1: order[-5:]}
    >>> check_axis(Embeddings(X, (v >= 4).astype(int), counts, anchors)).value > 0.3
    True
    """
    kept, share = data.voted
    t = data.position(data.X)[kept]
    label = data.y[kept]
    n = len(t)
    if n < 3:
        return Checked(float("nan"), np.full(1, np.nan), n)
    a, b = rankdata(t), rankdata(share)
    overall = _correlation(a - a.mean(), b - b.mean(), np.ones(n))
    # Within classes: across them the label alone makes votes and position correlate.
    inner_a, inner_b = np.empty(n), np.empty(n)
    for c in np.unique(label):
        same = label == c
        inner_a[same], inner_b[same] = rankdata(t[same]), rankdata(share[same])

    def within(weight: Float) -> float:
        return _correlation(
            _within(inner_a, label, weight), _within(inner_b, label, weight), weight
        )

    return _checked(within, n, n_resamples, f", {overall:+.2f} overall")


def check_neighbours(data: Embeddings, *, n_resamples: int = 500) -> Checked:
    """Check whether the real cases next to an interpolate are as contested as it is said to be.

    The number is the slope of the neighbours' vote share on the interpolate's own (1: they agree; 0: it
    says nothing). Beside it stands the neighbours' mean disagreement 4 f (1 - f): near zero in the middle
    means that clear cases of both kinds are mixed, not that the neighbours are hard cases.

    All pairs of anchors at the levels k / n_raters; the `NEIGHBOURS` nearest by Euclidean distance
    among the cases with votes that are no anchors.
    """
    kept, share = data.voted
    n = len(share)
    if n < NEIGHBOURS:
        return Checked(float("nan"), np.full(1, np.nan), n)
    made, level = data.interpolates()
    search = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(
        np.asarray(data.X, dtype=np.float64)[kept]
    )
    near: NDArray[np.int64] = search.kneighbors(made, return_distance=False)
    centred = level - level.mean()

    def slope(weight: Float) -> float:
        mass = weight[near]
        total = mass.sum(axis=1)
        # A resample may lack all neighbours of an interpolate.
        known = total > 0
        mean = (mass * share[near]).sum(axis=1)[known] / total[known]
        x = centred[known] - centred[known].mean()
        return float(x @ mean / (x @ x))

    code = np.rint(level * data.n_raters).astype(np.int64) - 1
    disagreement = (4 * share * (1 - share))[near].mean(axis=1)
    by_level = np.bincount(code, disagreement) / np.bincount(code)
    middle, ends = by_level[len(by_level) // 2], (by_level[0] + by_level[-1]) / 2
    more = f"; neighbours' disagreement {middle:.2f} in the middle, {ends:.2f} at the ends"
    return _checked(slope, n, n_resamples, more)


def premise(
    evidence: Evidence, *, check: Callable[[Embeddings], Checked], what: str, bound: float
) -> Verdict:
    """A number of every encoder's training embeddings is above a bound.

    Its noise is that of the cases: embeddings are kept with the first seed's anchors only.
    """
    checks = {}
    for (dataset, encoder), data in evidence.embeddings.items():
        if dataset == evidence.primary:
            checks[encoder] = check(data)
    parts = {}
    for encoder, one in checks.items():
        answer: Answer = "inconclusive"
        # To hold, every encoder must: no correction. To fail, one is enough: its level is divided.
        if one.n >= MIN_CASES and interval(one.samples, 1 - 2 * WRONG)[0] > bound:
            answer = "holds"
        elif one.n >= MIN_CASES and interval(one.samples, 1 - 2 * WRONG / len(checks))[1] <= bound:
            answer = "does not hold"
        parts[encoder] = Verdict(f"{one.value:+.2f}", one.n, answer, one.text)
    verdict = all_of(
        parts,
        f"{evidence.primary}: {what}, anchors of the first seed",
        measured=_range([one.value for one in checks.values()], "{:+.2f}".format),
        missing="needs embeddings of training cases with readers' votes",
    )
    if verdict.verdict != "holds":
        return verdict
    first = next(iter(parts))
    reason = f"{verdict.reason} ({encoder_label(first)}: {parts[first].reason})"
    return Verdict(verdict.measured, verdict.n, verdict.verdict, reason)


# ---- replication, facts


def replicates(evidence: Evidence) -> Verdict:
    """The fine-tuned network's AUC and ECE match those of Wei et al. within both standard deviations.

    The test images are the same, so the noise is that of the seeds: ours, and the ten published.
    """
    numbers: dict[str, tuple[Float, float, float]] = {}
    for cell in evidence.cells:
        for method, (_, auc, _, ece) in REPLICATION.items():
            if cell.dataset == "mhist" and method in cell.methods:
                for metric, published in (("auc", auc), ("ece", ece)):
                    values = 100 * evidence.by_seed(cell.dataset, cell.encoder, method, metric)
                    numbers[f"{method_label(method)} {metric.upper()}"] = values, *published
    parts = {}
    for name, (values, mean, sd) in numbers.items():
        parts[name] = _within_error_bars(values, mean, sd, len(numbers))
    within = sum(part.verdict == "holds" for part in parts.values())
    return all_of(
        parts,
        "mean within the error bars, ours and the published (n = seeds)",
        measured=f"{within} of {len(parts)} within",
        of="numbers",
        missing="no ResNet fine-tuned on MHIST here; run: scalecal finetune",
    )


def _within_error_bars(values: Float, mean: float, sd: float, together: int) -> Verdict:
    """Judge one of `together` numbers: the error bars of `values` and of mean and sd overlap."""
    n, average = len(values), float(values.mean())
    if n < 3:
        why = f"only {n} seeds, 3 are needed for a standard deviation"
        return Verdict(f"{average:.1f}", n, "inconclusive", why)
    spread = float(values.std(ddof=1))
    left = sd + spread - abs(average - mean)

    def half_width(wrong: float) -> float:
        measured = student_t.isf(wrong, n - 1) * spread / np.sqrt(n)
        published = student_t.isf(wrong, SEEDS - 1) * sd / np.sqrt(SEEDS)
        return float(np.hypot(measured, published))

    answer: Answer = "inconclusive"
    if left > half_width(WRONG):
        answer = "holds"
    elif left < -half_width(WRONG / together):
        answer = "does not hold"
    measured = f"{average:.1f}"
    return Verdict(measured, n, answer, f"{measured}, published {mean:.1f}")


def contradicts(_: Evidence, *, fact: Fact) -> Verdict:
    """A statement of the paper that public sources contradict, whatever the data."""
    return Verdict(fact.public, fact.n, "does not hold", fact.source)


# ---- the claims


@dataclass(frozen=True)
class Claim:
    """One claim: `decide` turns evidence into a verdict; `paper` is the number it printed, or "-".

    A claim of kind "fact" needs no data; it is listed apart and not counted. `MAIN` has the few that a
    page opens with.
    """

    id: str
    claim: str
    paper: str
    decide: Callable[[Evidence], Verdict]
    kind: Literal["claim", "fact"] = "claim"

    def judge(self, evidence: Evidence) -> Verdict:
        """Return the verdict; inconclusive where the evidence lacks what the test needs."""
        try:
            return self.decide(evidence)
        except MissingEvidence as error:
            return Verdict("-", 0, "inconclusive", str(error))


def _gain(
    name: str,
    claim: str,
    paper: str,
    gain: float,
    method: str,
    reference: str = "none",
    **options: Any,
) -> Claim:
    """A claim of a gain of some size: half of what is printed must be supported."""
    # A gain that is exactly as printed falls short of the full number in half of all runs.
    text = f"{claim} by at least {50 * gain:.1f} %, half of what is printed"
    decide = partial(lowers, method=method, reference=reference, least=gain / 2, **options)
    return Claim(name, text, paper, decide)


def _elsewhere(dataset: str, title: str, gain: float, printed: Sequence[str]) -> tuple[Claim, ...]:
    """The claims on a data set without several readers; `printed`: base, vanilla LS and SCALE."""
    everywhere = partial(lowers_everywhere, method="scale", dataset=dataset)
    base, vanilla, scale = printed
    return (
        _gain(
            f"{dataset}-ece",
            f"SCALE lowers overall ECE on {title}",
            f"-{100 * gain:.1f} %",
            gain,
            "scale",
            stratum="overall",
            dataset=dataset,
        ),
        Claim(
            f"{dataset}-none",
            f"SCALE's overall ECE is below no calibration's for every encoder on {title}",
            f"{base} to {scale}",
            partial(everywhere, reference="none"),
        ),
        Claim(
            f"{dataset}-vanilla",
            f"SCALE's overall ECE is below vanilla label smoothing's for every encoder on {title}",
            f"{vanilla} to {scale}",
            partial(everywhere, reference="vanilla-ls"),
        ),
        Claim(
            f"{dataset}-between",
            f"Vanilla label smoothing lies between no calibration and SCALE on {title}",
            " / ".join(printed),
            partial(
                in_between,
                method="vanilla-ls",
                above="none",
                below="scale",
                dataset=dataset,
            ),
        ),
    )


_CLAIMS = (
    Claim(
        "replication",
        "An end-to-end ResNet reproduces the AUC and ECE of Wei et al. within error bars",
        "10 of 10 within",
        replicates,
    ),
    Claim(
        "low-above-high",
        "Low-agreement ECE exceeds high-agreement ECE for every encoder, beyond finite numbers",
        "+0.076 to +0.285",
        partial(strata_differ, kind="noise"),
    ),
    Claim(
        "beyond-selection",
        "It does so by more than strata made from the labels' own votes give a calibrated model",
        "not tested",
        partial(strata_differ, kind="selection"),
    ),
    Claim(
        "aggregate-hides",
        "Aggregate ECE hides it: it is nearer to high- than to low-agreement ECE for every encoder",
        "0.035 overall, 0.191 low",
        aggregate_hides,
    ),
    Claim(
        "high-stays-low",
        "High-agreement ECE stays at or below 0.035 for every encoder",
        "0.018 to 0.035",
        partial(stays_below, stratum="high", bound=0.035),
    ),
    _gain(
        "scale-below-none",
        "SCALE lowers low-agreement ECE against no calibration",
        "-29.2 %",
        0.292,
        "scale",
    ),
    _gain(
        "vanilla-below-none",
        "Vanilla label smoothing lowers low-agreement ECE against no calibration",
        "-20.8 %",
        0.208,
        "vanilla-ls",
    ),
    _gain(
        "temperature-below-none",
        "Temperature scaling lowers low-agreement ECE against no calibration",
        "-8.1 %",
        0.081,
        "temperature",
    ),
    _gain(
        "real-below-none",
        "Real agreement lowers low-agreement ECE against no calibration",
        "-35.2 %",
        0.352,
        "real-piecewise",
    ),
    _gain(
        "scale-below-temperature",
        "SCALE lowers low-agreement ECE against temperature scaling",
        "0.175 to 0.135",
        1 - 0.135 / 0.175,
        "scale",
        "temperature",
    ),
    _gain(
        "scale-below-vanilla",
        "SCALE lowers low-agreement ECE against vanilla label smoothing",
        "0.151 to 0.135",
        1 - 0.135 / 0.151,
        "scale",
        "vanilla-ls",
    ),
    _gain(
        "scale-overall",
        "SCALE lowers overall ECE too where there are several readers",
        "0.035 to 0.030",
        1 - 0.030 / 0.035,
        "scale",
        stratum="overall",
    ),
    Claim(
        "recovers-real",
        "SCALE recovers at least 77 % of the low-agreement ECE gain of real agreement, on average over "
        "smoothing functions",
        "77 %, 83 %, 78 %",
        partial(recovers, share=0.77),
    ),
    Claim(
        "recovers-votes",
        "It recovers as much of real agreement's gain in vote NLL, which softening cannot game",
        "not tested",
        partial(recovers, share=0.77, metric="vote_nll", stratum="overall"),
    ),
    Claim(
        "gap-to-real",
        "The gap to real agreement is no more than 0.011 to 0.014",
        "+0.011, +0.011, +0.014",
        partial(gap_to_real, bound=0.014),
    ),
    Claim(
        "piecewise-best",
        "Piecewise smoothing recovers the largest share of real agreement's gain",
        "83 %; 77 %, 78 %",
        piecewise_best,
    ),
    Claim(
        "piecewise-lowest",
        "SCALE's low-agreement ECE is lowest with piecewise smoothing",
        "0.135; 0.154, 0.141",
        piecewise_lowest,
    ),
    Claim(
        "k-plateau",
        "The number of anchors does not matter from K = 10 on: low-agreement ECE changes by less "
        "than 5 % of no calibration's",
        "plateau",
        plateau,
    ),
    Claim(
        "k-five",
        "K = 5 is slightly worse: above K = 10, but with at least half of its gain",
        "slightly worse",
        few_anchors,
    ),
    _gain(
        "confident-beat-random",
        "Confident anchors lower low-agreement ECE against random ones",
        "0.141 to 0.135",
        1 - 0.135 / 0.141,
        "scale",
        "scale-random",
    ),
    _gain(
        "random-below-none",
        "SCALE with random anchors lowers low-agreement ECE against no calibration",
        "-25.8 %",
        0.258,
        "scale-random",
    ),
    _gain(
        "random-beat-vanilla",
        "SCALE with random anchors lowers low-agreement ECE against vanilla label smoothing",
        "0.151 to 0.141",
        1 - 0.141 / 0.151,
        "scale-random",
        "vanilla-ls",
    ),
    Claim(
        "labels-matter",
        "The synthetic labels carry the gain: SCALE lowers low-agreement ECE by at least 5 % against "
        "itself with its labels shuffled",
        "not tested",
        partial(lowers, method="scale", reference="scale-shuffled", least=0.05),
    ),
    Claim(
        "auc-preserved",
        "Methods cost less than one point of AUC on average over encoders and data sets, and none is "
        "shown to cost more",
        "within seed variation",
        partial(preserved, metric="auc"),
    ),
    Claim(
        "accuracy-preserved",
        "Methods cost less than one point of accuracy on average over encoders and data sets, and none is "
        "shown to cost more",
        "within seed variation",
        partial(preserved, metric="accuracy"),
    ),
    *_elsewhere("pcam", "PatchCamelyon", 0.204, ("0.045", "0.040", "0.036")),
    *_elsewhere("breakhis", "BreakHis", 0.180, ("0.052", "0.046", "0.042")),
    Claim(
        "five-minutes",
        "Probe training and retraining take under five minutes per model and data set",
        "< 300 s",
        partial(quick, limit=300.0),
    ),
    Claim(
        "beats-softening",
        "SCALE's low-agreement ECE is below that of softening by the same amount, by at least 5 %",
        "not tested",
        partial(beats_softening, metric="ece", least=0.05),
    ),
    Claim(
        "beats-softening-votes",
        "SCALE's vote NLL is below that of softening by the same amount, by at least 1 %",
        "not tested",
        partial(beats_softening, metric="vote_nll", least=0.01),
    ),
    Claim(
        "premise-axis",
        "Alpha tracks difficulty: votes follow a case's position between the anchors, within classes "
        "(rank correlation above 0.1)",
        "assumed",
        partial(
            premise,
            check=check_axis,
            what="rank correlation of votes with the anchor axis within classes",
            bound=0.1,
        ),
    ),
    Claim(
        "premise-neighbours",
        "Alpha tracks difficulty: real cases next to an interpolate have the vote share it is given "
        "(slope above 0.5)",
        "assumed",
        partial(
            premise,
            check=check_neighbours,
            what="slope of the neighbours' vote share on the target",
            bound=0.5,
        ),
    ),
    *(Claim(one.id, one.claim, one.paper, partial(contradicts, fact=one), "fact") for one in FACTS),
)

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in _CLAIMS}
"""Id -> claim, in the paper's order; then its premise, then its statements of fact."""


MAIN = (
    *("low-above-high", "beyond-selection", "scale-below-none", "scale-below-vanilla"),
    *("recovers-real", "labels-matter", "beats-softening-votes"),
)
"""Claims that the paper stands on: the problem is there and is no artefact of how strata are made;
SCALE helps, more than plain label smoothing and softening do; it recovers what votes would give; and its
labels carry the gain."""


def judge(evidence: Evidence) -> dict[str, Verdict]:
    """Judge every claim on the evidence: id -> verdict."""
    return {name: claim.judge(evidence) for name, claim in CLAIMS.items()}


def judge_comparison(data: Features, grid: Grid) -> list[dict[str, Any]]:
    """Judge every claim on one comparison, of `data` by `grid`; returns what `claims_json` returns."""
    key = (grid.cell.dataset, grid.cell.encoder)
    embeddings = training_embeddings(data, grid, grid.cell.seeds("scale")[0])
    evidence = Evidence(
        [grid.cell],
        embeddings={} if embeddings is None else {key: embeddings},
        seconds={key: grid.seconds},
    )
    return claims_json(judge(evidence))


def claims_json(verdicts: dict[str, Verdict]) -> list[dict[str, Any]]:
    """Return the claims with their verdicts, ready for ``claims.json``.

    Examples
    --------
    >>> verdict = Verdict("+0.1 points", 977, "holds", "all within")
    >>> claims_json({"auc-preserved": verdict})[0]["claim"]
    'Methods cost less than one point of AUC on average over encoders and data sets, and none is shown ...'
    """
    return [
        {
            "id": name,
            "kind": CLAIMS[name].kind,
            "main": name in MAIN,
            "claim": CLAIMS[name].claim,
            "paper": CLAIMS[name].paper,
            "measured": one.measured,
            "n": one.n,
            "verdict": one.verdict,
            "reason": one.reason,
        }
        for name, one in verdicts.items()
    ]


def claims_table(claims: Sequence[dict[str, Any]]) -> str:
    """Lay claims (as `claims_json` gives them) out as text of 100 columns at most.

    Facts come last, under their own title, and are not counted.

    Examples
    --------
    >>> print(claims_table([{"kind": "claim", "claim": "AUC is preserved", "paper": "-", "n": 977,
    ...                      "measured": "+0.1 points", "verdict": "holds", "reason": "all within"}]))
    claim                                    paper             measured                n  verdict
    ----------------------------------------------------------------------------------------------------
    AUC is preserved                         -                 +0.1 points           977  holds
    <BLANKLINE>
    holds 1, does not hold 0, inconclusive 0
    """
    counted = [one for one in claims if one["kind"] != "fact"]
    facts = [one for one in claims if one["kind"] == "fact"]
    lines = [_line("claim", "paper", "measured", "n", "verdict"), "-" * 100]
    for one in counted:
        widths = {"claim": 39, "paper": 16, "measured": 18}
        columns = [textwrap.wrap(str(one[key]), width) for key, width in widths.items()]
        columns += [[f"{one['n']:,}"], [one["verdict"]]]
        lines += [_line(*texts) for texts in zip_longest(*columns, fillvalue="")]
    counts = (f"{name} {sum(one['verdict'] == name for one in counted)}" for name in VERDICTS)
    lines += ["", ", ".join(counts)]
    if facts:
        lines += ["", "Statements of the paper that public sources contradict, whatever the data:"]
        for one in facts:
            text = f"{one['claim']}: {one['measured']}. {one['reason']}"
            lines += textwrap.wrap(text, 100, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)


def _line(claim: str, paper: str, measured: str, n: str, verdict: str) -> str:
    return f"{claim:<39}  {paper:<16}  {measured:<18} {n:>6}  {verdict}".rstrip()
