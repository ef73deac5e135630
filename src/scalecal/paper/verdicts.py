"""How a claim is decided: the rules, written once.

A claim of a difference holds where the difference outlasts both the noise of the test cases and that
of the seeds and is large enough to matter; it does not hold where the data exclude a difference that
matters; otherwise it cannot be told. Over several encoders, p-values go by Holm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scalecal.auditing.sentences import LEVEL
from scalecal.metrics import holm
from scalecal.paper.evidence import Evidence
from scalecal.paper.printed import encoder_label
from scalecal.runs.resampled import Contrast

__all__ = [
    "LEAST_CASES",
    "LEAST_UNITS",
    "NEGLIGIBLE",
    "NO_VOTES",
    "VERDICTS",
    "Answer",
    "Decide",
    "Verdict",
    "all_of",
    "joined",
    "lower",
    "lower_everywhere",
    "unknown",
]

Answer = Literal["holds", "does not hold", "cannot be told"]
VERDICTS: tuple[Answer, ...] = ("holds", "does not hold", "cannot be told")

LEAST_CASES = 30
"""Fewer cases in a stratum decide nothing: intervals are not to be trusted there."""

LEAST_UNITS = 10
"""Fewer patients or slides decide nothing, for the same reason."""

NO_VOTES = "no data set here has readers' votes, so there are no agreement strata"

NEGLIGIBLE: Mapping[str, float] = {"ece": 0.05, "nll": 0.01, "vote_nll": 0.01}
"""Metric -> change, as a share of the reference's value, below which nobody would care."""


@dataclass(frozen=True)
class Verdict:
    """What was measured, on how many cases, and what follows."""

    measured: str
    n: int
    verdict: Answer
    reason: str


Decide = Callable[[Evidence], Verdict]
"""What decides a claim: a function of the evidence."""


def unknown(reason: str, *, n: int = 0, measured: str = "-") -> Verdict:
    """Return the verdict where the data cannot decide."""
    return Verdict(measured, n, "cannot be told", reason)


def _few(found: Contrast) -> str:
    if found.n < LEAST_CASES:
        return f"only {found.n} cases, {LEAST_CASES} are needed"
    if found.units < LEAST_UNITS:
        return f"only {found.units} groups to resample, {LEAST_UNITS} are needed"
    return ""


def _answer(found: Contrast, negligible: float, p: float) -> tuple[Answer, str]:
    """Decide "lower than the reference" for one contrast, and say why."""
    least = negligible * abs(found.reference)
    few = _few(found)
    if few:
        return "cannot be told", few
    if not np.isfinite(found.difference):
        return "cannot be told", "undefined on these cases"
    if found.low > 0 and p < LEVEL:
        return "does not hold", f"it is higher, p = {_p(p)}"
    if found.low > -least:
        return "does not hold", f"any fall is below {100 * negligible:g} % of the reference"
    if found.difference < 0 and p < LEVEL:
        if found.difference <= -least:
            return "holds", f"lower, p = {_p(p)}"
        return "cannot be told", f"lower, but maybe by less than {100 * negligible:g} %"
    noise = "seeds" if found.p_seeds >= max(LEVEL, found.p_cases) else "cases"
    return "cannot be told", f"within the noise of the {noise}, p = {_p(p)}"


def _p(p: float) -> str:
    return "-" if not np.isfinite(p) else f"{p:.3f}" if p >= 0.001 else "< 0.001"


def percent(found: Contrast) -> str:
    """The change in per cent with its interval."""
    if not found.reference:
        return f"{found.difference:+.3f}"
    low, high = (100 * end / abs(found.reference) for end in (found.low, found.high))
    return f"{100 * found.difference / abs(found.reference):+.1f} % ({low:+.0f} to {high:+.0f})"


def lower(
    found: Contrast,
    what: str,
    *,
    metric: str = "ece",
    by_encoder: Mapping[str, Contrast] | None = None,
) -> Verdict:
    """Judge "the method's value is lower than the reference's", averaged over encoders.

    Parameters
    ----------
    what
        What was compared, for the reason: "low-agreement ECE, scale against none".
    by_encoder
        The same contrast per encoder: those that go the other way are named.
    """
    answer, why = _answer(found, NEGLIGIBLE[metric], found.p_value)
    reason = f"{what}: {found.reference:.3f} to {found.value:.3f}; {why}"
    if by_encoder and len(by_encoder) > 1:
        against = [encoder_label(e) for e, one in by_encoder.items() if one.difference >= 0]
        reason += f"; higher for {', '.join(against)}" if against else "; lower for every encoder"
    return Verdict(percent(found), found.n, answer, reason)


def lower_everywhere(found: Mapping[str, Contrast], what: str, *, metric: str = "ece") -> Verdict:
    """Judge "lower for every encoder", Holm over encoders; name those where it fails.

    The contrasts' intervals should be at the level 1 - 0.05 / encoders, so that failing somewhere by
    chance is as rare as holding everywhere by chance.
    """
    if not found:
        return unknown(f"{what}: no encoder here")
    contrasts = list(found.values())
    adjusted = holm([one.p_value for one in contrasts])
    answers = {
        encoder: _answer(one, NEGLIGIBLE[metric], float(p))
        for (encoder, one), p in zip(found.items(), adjusted, strict=True)
    }
    mean = float(np.mean([one.change for one in contrasts]))
    return all_of(
        {encoder: answer for encoder, (answer, _) in answers.items()},
        what,
        measured=f"{100 * mean:+.1f} % on average",
        n=max(one.n for one in contrasts),
        whys={encoder: why for encoder, (_, why) in answers.items()},
    )


def all_of(
    answers: Mapping[str, Answer],
    what: str,
    *,
    measured: str,
    n: int,
    whys: Mapping[str, str] | None = None,
) -> Verdict:
    """Join the answers for each encoder: all must hold; one that fails is enough to fail."""
    failing = [e for e, answer in answers.items() if answer == "does not hold"]
    open_ = [e for e, answer in answers.items() if answer == "cannot be told"]
    count = len(answers) - len(failing) - len(open_)
    reason = f"{what}: holds for {count} of {len(answers)} encoders"
    for title, names in (("fails for", failing), ("undecided for", open_)):
        if names:
            reason += f"; {title} {_listed(names, whys)}"
    return Verdict(measured, n, joined(list(answers.values())), reason)


def joined(answers: Sequence[Answer]) -> Answer:
    """Join answers that must all hold: one that fails is enough to fail."""
    if "does not hold" in answers:
        return "does not hold"
    return "cannot be told" if "cannot be told" in answers else "holds"


def _listed(names: Sequence[str], whys: Mapping[str, str] | None) -> str:
    if whys is None:
        return ", ".join(map(encoder_label, names))
    if len(names) > 3:
        return (
            f"{', '.join(map(encoder_label, names))} ({encoder_label(names[0])}: {whys[names[0]]})"
        )
    return ", ".join(f"{encoder_label(name)} ({whys[name]})" for name in names)
