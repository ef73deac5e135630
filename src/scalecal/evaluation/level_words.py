"""What is said of the levels of columns such as site and scanner: one paragraph a column, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalecal.evaluation.judging import LEVEL, Facts, Row
from scalecal.inference.between_levels import MIN_EVENTS
from scalecal.io.text import (
    MAX_NAMED,
    change_text,
    is_known,
    listed,
    number,
    p_text,
    p_value,
    some_listed,
)

MAX_SHOWN = 20
"""Levels that a table or figure shows: those of most cases."""

MAX_LETTERS = 24
"""Letters of a level's name that a sentence has."""

SERVED = {
    "common": "common",
    "own": "own",
    "unclear": "unclear",
    "small": "few events",
    "untried": "-",
}
"""Which calibrator serves a level -> how a table says it."""


def short(name: str) -> str:
    """Return a name that fits into a sentence.

    Examples
    --------
    >>> short("A"), short("University Hospital of the Northern Region, site 12")
    ('A', 'University …on, site 12')
    """
    if len(name) <= MAX_LETTERS:
        return name
    half = MAX_LETTERS // 2
    return f"{name[: half - 1]}…{name[1 - half :]}"


def level_paragraphs(audit: Facts, told: str = "") -> dict[str, str]:
    """A paragraph for each column: topic -> text. Of the column `told` the verdict tells the rest."""
    event = audit["meta"]["event"]
    paragraphs = {}
    for facts in audit["by"]:
        parts = [_new_level(facts, event), _small(facts)]
        if facts["column"] != told:
            parts = [difference_text(facts, event), outlier_text(facts), parts[0]]
            parts += [calibrator_text(facts), _small(facts)]
        paragraphs[f"by {facts['column']}"] = " ".join(filter(None, parts))
    return paragraphs


def level_alerts(audit: Facts, headline: str) -> list[str]:
    """What a first screen says of columns whose levels differ, beside the headline."""
    alerts = []
    for facts in audit["by"]:
        p = facts["test"]["p_corrected"]
        if difference_text(facts, audit["meta"]["event"]) == headline:
            continue
        if is_known(p) and p < LEVEL:
            texts = (difference_text(facts, audit["meta"]["event"]), outlier_text(facts))
            alerts.append(" ".join(filter(None, texts)))
    return alerts


def ratio_name(event: str) -> str:
    """What observed over expected is called, by the event that is counted."""
    if event == "positive class":
        return "O:E"
    return "O:E of correct predictions"


def interval(row: Mapping[str, Any], key: str, digits: int = 2) -> str:
    """A number with its interval, where it has one.

    Examples
    --------
    >>> interval({"oe": 1.2, "oe_low": 1.0, "oe_high": 1.44}, "oe")
    '1.20 [1.00, 1.44]'
    """
    text = number(row.get(key), digits)
    if is_known(row.get(f"{key}_low")):
        text += f" [{number(row[f'{key}_low'], digits)}, {number(row[f'{key}_high'], digits)}]"
    return text


def _named(levels: Sequence[str]) -> str:
    return some_listed([short(name) for name in levels])


def difference_text(facts: Row, event: str) -> str:
    """Whether levels differ, and how far O:E and slope reach, with the intervals of the ends."""
    column, test = short(facts["column"]), facts["test"]
    if facts["k"] < 2:
        return f"All cases with a known {column} have the same one, so nothing is compared."
    reach = _reach(facts, event)
    if not is_known(test["p_corrected"]):
        return f"Whether calibration differs by {column} cannot be tested: {test['reason']}{reach}."
    if test["p_corrected"] < LEVEL:
        return f"Calibration differs by {column} ({p_text(test['p_corrected'])}){reach}."
    return (
        f"No difference in calibration between the {facts['k']} levels of {column} is found "
        f"({p_text(test['p_corrected'])}){reach}."
    )


def _reach(facts: Row, event: str) -> str:
    """How far O:E reaches, and the slope where the intervals of its ends are apart."""
    texts = []
    for key, name in (("oe", ratio_name(event)), ("slope", "slope")):
        known = []
        for own in facts["levels"]:
            if is_known(own.get(f"{key}_low")) and not own["small"]:
                known.append(own)
        known.sort(key=lambda own: float(own[key]))
        if len(known) < 2 or (key == "slope" and known[-1]["slope_low"] <= known[0]["slope_high"]):
            continue
        ends = [f"{interval(own, key)} ({short(own['name'])})" for own in (known[0], known[-1])]
        texts.append(f"{name} from {' to '.join(ends)}")
    if not texts:
        return ""
    return f": {', '.join(texts)}"


def outlier_text(facts: Row) -> str:
    """Which levels differ from the others, by the tests that were corrected."""
    named = facts["stand_out"]
    if facts["k"] < 2 or not is_known(facts["test"]["p_corrected"]):
        return ""
    corrected = "after correction for all levels of all columns (Holm)"
    if not named:
        if facts["test"]["p_corrected"] < LEVEL:
            return f"No single level stands out {corrected}."
        return ""
    if facts["k"] == 2:
        return f"{_named(named)} differ {corrected}."
    verb = "differs" if len(named) == 1 else "differ"
    return f"{_named(named)} {verb} from the other levels {corrected}."


def _new_level(facts: Row, event: str) -> str:
    spread = facts["spread"]["oe"]
    if not is_known(spread.get("new_low")):
        return ""
    return (
        f"For a further level of {short(facts['column'])}, from the same population as these {facts['k']}, "
        f"{ratio_name(event)} is expected between {number(spread['new_low'], 2)} and "
        f"{number(spread['new_high'], 2)} (95 % prediction interval)."
    )


def calibrator_text(facts: Row) -> str:
    """Does one calibrator serve all levels, or which needs its own?"""
    of = facts["calibrators"]
    if of["reason"] or facts["k"] < 2:
        return ""
    if of["common"] and not of["own"] and not of["unclear"]:
        every = "every level"
        if of["small"]:
            every = "every level with enough events"
        return (
            f"One calibrator serves {every}: held out level by level, a separate calibrator would gain "
            "nothing that matters."
        )
    parts = []
    if of["own"]:
        changes = {own["name"]: own["own"]["own"] for own in facts["levels"] if "own" in own}
        gains = []
        for name in of["own"][:MAX_NAMED]:
            change = {**changes[name], "difference": changes[name]["change"]}
            gains.append(f"{short(name)} (label NLL {change_text(change)})")
        verb = (
            "needs a calibrator of its own" if len(of["own"]) == 1 else "need their own calibrators"
        )
        others = len(of["own"]) - len(gains)
        more = ""
        if others:
            more = f" and {others} others"
        parts.append(f"{listed(gains)}{more} {verb}")
    if of["common"]:
        parts.append(f"a calibrator fitted to the other levels serves {_named(of['common'])}")
    if of["unclear"]:
        parts.append(f"for {_named(of['unclear'])} the cases do not suffice to decide")
    if not parts:
        return ""
    return f"Held out level by level, {'; '.join(parts)}."


def _small(facts: Row) -> str:
    small = facts["calibrators"].get("small") or []
    if not small or facts["k"] < 2:
        return ""
    verb = "is" if len(small) == 1 else "are"
    why = f"fewer than {MIN_EVENTS} observed or expected events or non-events"
    return f"{_named(small)} {verb} small ({why})."


def shown_levels(facts: Row) -> list[Row]:
    """Levels that a table or figure shows, in the order of the column."""
    largest = sorted(facts["levels"], key=lambda own: -own["n"])[:MAX_SHOWN]
    kept = {own["name"] for own in largest}
    return [own for own in facts["levels"] if own["name"] in kept]


def level_table(facts: Row, event: str, *, whole: bool = True) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a column's table; without `whole` what a terminal has room for."""
    levels = shown_levels(facts)
    head = [short(facts["column"]), "n"]
    grouped = any(own.get("n_groups") for own in levels)
    if grouped:
        head.append("groups")
    head += ["events", f"{ratio_name(event)} [95 %]"]
    if whole:
        head += ["slope [95 %]", "gap [95 %]"]
    head += ["ECE (floor)", "p, others", "calibrator"]
    lines = []
    for own in levels:
        line = [short(own["name"]), number(own["n"])]
        if grouped:
            line.append(number(own.get("n_groups")))
        line += [number(int(own["events"])), interval(own, "oe")]
        if whole:
            line += [interval(own, "slope"), interval(own, "gap", 3)]
        line.append(f"{number(own['ece'])} ({number(own['floor'])})")
        line += [p_value(own["p_others_holm"]), SERVED[own["serves"]]]
        lines.append(line)
    return head, lines
