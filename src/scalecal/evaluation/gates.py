"""A gate on an audit: conditions such as ``verdict != good`` under which it fails.

A condition is ``verdict != good`` (``==`` or ``!=``, and a badge: good, attention, inconclusive), or
``[STRATUM:] COLUMN OPERATOR NUMBER``. The column is a key of `scalecal.metrics.COLUMNS`, the operator one of
``> >= < <= == = !=``, the stratum one of the audit's: ``overall`` (where none is named), those of agreement
or of the data, ``class=NAME`` of several classes, and easy, middle and hard by predicted difficulty, where
there are votes. What the data call a stratum goes before; of two colons the last one ends the stratum's name.

A condition whose number is undefined counts as met: a gate that cannot be evaluated must not pass.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalecal.cases import Cases
from scalecal.checks import InputError, lookup
from scalecal.evaluation.levels import level_names
from scalecal.evaluation.words import BADGES
from scalecal.inference.curves import ERRORS
from scalecal.inference.difficulty import DIFFICULTIES
from scalecal.io.text import some_of
from scalecal.metrics import COLUMNS

VERDICT = "verdict"
"""What a condition on the badge names in the place of a column."""

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
}

_CONDITION = re.compile(
    r"\s*(?:(?P<stratum>.*\S)\s*:)?\s*(?P<column>\w+)\s*(?P<operator>[<>]=?|!=|==?)\s*(?P<limit>\S+)\s*",
    re.DOTALL,
)


@dataclass(frozen=True)
class Condition:
    """Something that must not be so.

    Attributes
    ----------
    stratum : str
        The row of the audit; "overall" holds all cases.
    column : str
        Key in `COLUMNS`, or "verdict".
    operator : str
        Key in `OPERATORS`.
    limit : float or str
        A number, or the badge that a verdict is compared with.
    """

    stratum: str
    column: str
    operator: str
    limit: float | str

    def __str__(self) -> str:
        limit = self.limit
        if not isinstance(limit, str):
            limit = f"{limit:g}"
        test = f"{self.column} {self.operator} {limit}"
        if self.stratum == "overall":
            return test
        return f"{self.stratum}: {test}"


@dataclass(frozen=True)
class Failure:
    """A condition that was met, or whose number is undefined.

    `n` is the number of cases in the stratum, `reason` says why the value is undefined, `model` is
    whose number it is, where several were audited.
    """

    condition: Condition
    value: float | str
    n: int
    reason: str = ""
    model: str = ""

    def __str__(self) -> str:
        condition = self.condition
        if isinstance(self.value, str):
            outcome = f"the verdict is {self.value}"
        elif self.reason:
            outcome = f"{condition.column} is undefined ({self.reason})"
        else:
            outcome = f"{condition.column} = {self.value:.6g}"
        text = f"{condition}: {outcome} in {condition.stratum}, n = {self.n:,}"
        if self.model:
            text = f"{self.model}: {text}"
        return text


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Examples
    --------
    >>> parse_condition("low: ece > 0.2")
    Condition(stratum='low', column='ece', operator='>', limit=0.2)
    >>> print(parse_condition("excess>=5e-2"))
    excess >= 0.05
    >>> parse_condition("ece above 0.2")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: a condition must read like 'verdict != good', ... got 'ece above 0.2'
    """
    match = _CONDITION.fullmatch(text)
    if match is not None and match["column"] == VERDICT:
        return _on_verdict(text, match)
    limit = math.nan
    if match is not None:
        with contextlib.suppress(ValueError):
            limit = float(match["limit"])
    if match is None or not math.isfinite(limit):
        raise InputError(
            "a condition must read like 'verdict != good', 'oe < 0.8' or 'low: p_null_holm < 0.05', got "
            f"{text!r}"
        )
    known = {k: c for k, c in COLUMNS.items() if c.format != "text" and c.in_audit}
    lookup(match["column"], known, f"column in the condition {text!r}:")
    return Condition(match["stratum"] or "overall", match["column"], match["operator"], limit)


def _on_verdict(text: str, match: re.Match[str]) -> Condition:
    badge = match["limit"]
    if match["stratum"] not in (None, "overall"):
        raise InputError(f"the verdict is on all cases: leave out the stratum in {text!r}")
    if match["operator"] not in ("==", "=", "!="):
        raise InputError(f"a verdict is compared by == or !=, got {text!r}")
    if badge not in BADGES:
        raise InputError(f"unknown verdict in {text!r}: {badge!r}. Known: {', '.join(BADGES)}")
    return Condition("overall", VERDICT, match["operator"], badge)


def parse_conditions(conditions: Iterable[str | Condition]) -> list[Condition]:
    """Read those conditions that are text."""
    return [parse_condition(c) if isinstance(c, str) else c for c in conditions]


def check_strata(conditions: Iterable[Condition], cases: Cases) -> None:
    """Refuse conditions on strata that an audit of these cases will not have.

    Examples
    --------
    >>> check_strata([parse_condition("hard: n < 9")], Cases(n=2, classes=("0", "1")))
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: unknown stratum in the condition 'hard: n < 9': 'hard'. Known: overall
    """
    names = list(cases.stratified().stratum_names)
    if len(cases.classes) > 2:
        names += [f"class={name}" for name in cases.classes]
    names += level_names(cases)
    _check_strata(conditions, names, votes=cases.votes is not None)


def _check_strata(conditions: Iterable[Condition], names: Iterable[str], *, votes: bool) -> None:
    known = dict.fromkeys(["overall", *names])
    if votes:
        known |= dict.fromkeys(DIFFICULTIES)
    for condition in conditions:
        if condition.stratum not in known:
            raise InputError(
                f"unknown stratum in the condition '{condition}': {condition.stratum!r}. "
                f"Known: {some_of(list(known))}"
            )


def gate_failures(
    conditions: Iterable[str | Condition],
    rows: Sequence[Mapping[str, Any]],
    difficulty: Sequence[Mapping[str, Any]] = (),
    *,
    badge: str = "",
) -> list[Failure]:
    """Return the conditions that are met, in their order.

    Parameters
    ----------
    conditions
        Text, or what `parse_condition` made of it.
    rows, difficulty
        As an audit holds them.
    badge
        The audit's verdict; needed for conditions on it.

    Examples
    --------
    >>> rows = [{"name": "overall", "n": 90, "ece": 0.031}, {"name": "low", "n": 12, "ece": float("nan")}]
    >>> for failure in gate_failures(["ece > 0.02", "ece > 0.05", "low: ece > 0.2"], rows):
    ...     print(failure)
    ece > 0.02: ece = 0.031 in overall, n = 90
    low: ece > 0.2: ece is undefined (there are too few cases, ...) in low, n = 12
    """
    parsed = parse_conditions(conditions)
    _check_strata(parsed, [row["name"] for row in rows], votes=bool(difficulty))
    # A stratum of the data goes before one of predicted difficulty with the same name.
    table = {row["name"]: row for row in (*difficulty, *rows)}
    out = []
    for condition in parsed:
        row = table[condition.stratum]
        if condition.column == VERDICT:
            if OPERATORS[condition.operator](badge, condition.limit):
                out.append(Failure(condition, badge, int(row["n"])))
            continue
        value, reason = _value(row, condition.column, votes=bool(difficulty))
        # A gate that cannot be evaluated must not pass.
        if reason or OPERATORS[condition.operator](value, condition.limit):
            out.append(Failure(condition, value, int(row["n"]), reason))
    return out


def _value(row: Mapping[str, Any], key: str, *, votes: bool) -> tuple[float, str]:
    """The number in a row, and why it is undefined ("" where it is not)."""
    value = math.nan
    if row.get(key) is not None:
        value = float(row[key])
    if math.isfinite(value):
        return value, ""
    if not row["n"]:
        reason = "no case in this stratum"
    elif COLUMNS[key].votes and not votes:
        reason = "there are no votes"
    elif key == "n_groups":
        reason = "there are no groups"
    elif key not in row:
        reason = "an audit does not have it for this stratum"
    elif key.startswith(ERRORS) and row.get("curve_reason"):
        reason = row["curve_reason"]
    elif row.get("reason"):
        reason = row["reason"]
    elif key.startswith("p_") and math.isfinite(row.get("p_null", math.nan)):
        # Votes made the stratum, where tests of calibration reject calibrated models.
        reason = "a stratum that the votes made is tested by p_null"
    else:
        reason = (
            "there are too few cases, only one class, or probabilities that separate the classes"
        )
    return value, reason
