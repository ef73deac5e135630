"""The rules by which a claim is judged.

A claim of a difference holds where the difference exceeds both the noise of the test cases and that of
the seeds and is large enough to matter; it does not hold where the data exclude a difference that
matters; otherwise it is inconclusive. Over several encoders, p-values are adjusted by Holm's method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scalecal.auditing.sentences import LEVEL
from scalecal.inference.paired import Contrast
from scalecal.metrics import holm
from scalecal.paper.evidence import MissingEvidence
from scalecal.paper.printed import encoder_label

Answer = Literal["holds", "does not hold", "inconclusive"]
VERDICTS: tuple[Answer, ...] = ("holds", "does not hold", "inconclusive")

LEAST_CASES = 30
"""With fewer cases in a stratum every claim is inconclusive: intervals are unreliable there."""

LEAST_UNITS = 10
"""With fewer patients or slides likewise."""

NEGLIGIBLE: Mapping[str, float] = {"ece": 0.05, "nll": 0.01, "vote_nll": 0.01}
"""Metric -> change, as a share of the reference's value, that is too small to matter."""


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


def at_least(
    low: float, high: float, bound: float, *, n: int, fails_below: float | None = None
) -> Answer:
    """Judge "at least `bound`" by an interval; it fails where the interval is below `fails_below`.

    Examples
    --------
    >>> at_least(0.8, 0.9, 0.77, n=100), at_least(0.5, 0.9, 0.77, n=100), at_least(0.8, 0.9, 0.77, n=5)
    ('holds', 'inconclusive', 'inconclusive')
    """
    if n < LEAST_CASES:
        return "inconclusive"
    if low >= bound:
        return "holds"
    least = bound if fails_below is None else fails_below
    return "does not hold" if high < least else "inconclusive"


def joined(answers: Iterable[Answer]) -> Answer:
    """Join answers that must all hold: one that fails is enough to fail."""
    every = set(answers)
    return next((a for a in ("does not hold", "inconclusive") if a in every), "holds")


def _is_lower(contrast: Contrast, metric: str, p: float) -> Part:
    """Judge "lower than the reference" for one contrast."""
    negligible = NEGLIGIBLE[metric]
    least = negligible * abs(contrast.reference)
    answer: Answer = "inconclusive"
    if contrast.n < LEAST_CASES:
        why = f"only {contrast.n} cases, {LEAST_CASES} are needed"
    elif contrast.units < LEAST_UNITS:
        why = f"only {contrast.units} groups to resample, {LEAST_UNITS} are needed"
    elif not np.isfinite(contrast.difference):
        why = "undefined on these cases"
    elif contrast.low > 0 and p < LEVEL:
        answer, why = "does not hold", f"it is higher, p = {_p(p)}"
    elif contrast.low > -least:
        answer = "does not hold"
        why = f"any decrease is below {100 * negligible:g} % of the reference"
    elif contrast.difference < 0 and p < LEVEL:
        if contrast.difference <= -least:
            answer, why = "holds", f"lower, p = {_p(p)}"
        else:
            why = f"lower, but possibly by less than {100 * negligible:g} %"
    else:
        noise = "seeds" if contrast.p_seeds >= max(LEVEL, contrast.p_cases) else "cases"
        why = f"within the noise of the {noise}, p = {_p(p)}"
    return Part(answer, contrast.change, contrast.n, why)


def _p(p: float) -> str:
    return "-" if not np.isfinite(p) else f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _percent(contrast: Contrast) -> str:
    """The change in per cent with its interval."""
    if not contrast.reference:
        return f"{contrast.difference:+.3f}"
    change, low, high = (
        100 * value / abs(contrast.reference)
        for value in (contrast.difference, contrast.low, contrast.high)
    )
    return f"{change:+.1f} % ({low:+.0f} to {high:+.0f})"


def lower(
    contrast: Contrast,
    what: str,
    *,
    metric: str = "ece",
    by_encoder: Mapping[str, Contrast] | None = None,
) -> Verdict:
    """Judge "the method's value is lower than the reference's", averaged over encoders.

    `what` was compared, for the reason; encoders with a contrast in the other direction are named.
    """
    part = _is_lower(contrast, metric, contrast.p_value)
    reason = f"{what}: {contrast.reference:.3f} to {contrast.value:.3f}; {part.why}"
    if by_encoder and len(by_encoder) > 1:
        against = [encoder_label(e) for e, one in by_encoder.items() if one.difference >= 0]
        reason += f"; higher for {', '.join(against)}" if against else "; lower for every encoder"
    return Verdict(_percent(contrast), contrast.n, part.answer, reason)


def lower_everywhere(contrasts: Mapping[str, Contrast], what: str) -> Verdict:
    """Judge "lower for every encoder", Holm over encoders; name those where it fails.

    The contrasts' intervals should be at the level 1 - 0.05 / encoders, so that failing somewhere by
    chance is as rare as holding everywhere by chance.
    """
    if not contrasts:
        raise MissingEvidence(f"{what}: no encoder here")
    adjusted = holm([one.p_value for one in contrasts.values()])
    parts = {
        encoder: _is_lower(one, "ece", float(p))
        for (encoder, one), p in zip(contrasts.items(), adjusted, strict=True)
    }
    mean = float(np.mean([part.value for part in parts.values()]))
    return all_of(parts, what, measured=f"{100 * mean:+.1f} % on average")


def all_of(parts: Mapping[str, Part], what: str, *, measured: str) -> Verdict:
    """Join the answers for each encoder: all must hold; one that fails is enough to fail."""
    named = {
        answer: [e for e, part in parts.items() if part.answer == answer] for answer in VERDICTS
    }
    reason = f"{what}: holds for {len(named['holds'])} of {len(parts)} encoders"
    for title, answer in (("fails for", VERDICTS[1]), ("inconclusive for", VERDICTS[2])):
        if named[answer]:
            reason += f"; {title} {_listed(named[answer], parts)}"
    verdict = joined(part.answer for part in parts.values())
    return Verdict(measured, max(part.n for part in parts.values()), verdict, reason)


def _listed(names: Sequence[str], parts: Mapping[str, Part]) -> str:
    """Encoders with their reasons; of many, the first one's only."""
    if len(names) > 3:
        listed = ", ".join(map(encoder_label, names))
        return f"{listed} ({encoder_label(names[0])}: {parts[names[0]].why})"
    return ", ".join(f"{encoder_label(name)} ({parts[name].why})" for name in names)
