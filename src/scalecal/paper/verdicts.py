"""The rules by which a claim is judged.

A claim says that a number lies above or below a bound: a fall of an error, a share of a gain, a gap.
The number is the one to be expected of as many test cases, over test sets and training seeds, so an
estimate has two kinds of noise: the cases that happen to be in the test set, and the seeds. An interval
with both decides (`interval_of`): a claim holds where the whole interval is on the claimed side of the
bound, does not hold where the whole interval is on the other side, and is inconclusive otherwise. Either
verdict is wrong in a share `WRONG` of the runs at most.

A claim on several encoders or smoothing functions holds where each of them holds at that level, which
needs no correction (Berger 1982, Technometrics: an intersection-union test); it does not hold where one
of k fails at the level `WRONG` / k (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from scalecal.inference.paired import Drawn
from scalecal.inference.units import student_error
from scalecal.paper.evidence import MissingEvidence
from scalecal.paper.printed import encoder_label

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
    """What was measured, on how many cases, and the verdict with its reason."""

    measured: str
    n: int
    verdict: Answer
    reason: str


@dataclass(frozen=True)
class Part:
    """The answer for one encoder or smoothing function: its value, its cases, and why."""

    answer: Answer
    value: float
    n: int
    why: str


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

    def judged(self, together: int = 1) -> Part:
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
        return Part(answer, self.value, self.number.n, why)


def judged_all(statements: Mapping[str, Statement]) -> dict[str, Part]:
    """Judge statements that must all hold."""
    return {name: one.judged(len(statements)) for name, one in statements.items()}


def all_of(
    parts: Mapping[str, Part], what: str, *, measured: str, of: str = "encoders", missing: str = ""
) -> Verdict:
    """Join the answers for each of several: all must hold; one that fails is enough to fail.

    `missing` says what the evidence lacks where there are none.
    """
    if not parts:
        raise MissingEvidence(missing or f"{what}: none here")
    named = {
        answer: [e for e, part in parts.items() if part.answer == answer] for answer in VERDICTS
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


def _listed(names: Sequence[str], parts: Mapping[str, Part]) -> str:
    """Names with their reasons; of many, the first one's only."""
    if len(names) > 3:
        listed = ", ".join(map(encoder_label, names))
        return f"{listed} ({encoder_label(names[0])}: {parts[names[0]].why})"
    return ", ".join(f"{encoder_label(name)} ({parts[name].why})" for name in names)
