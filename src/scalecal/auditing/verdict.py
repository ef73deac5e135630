"""The verdict of an audit: a badge, a headline, and answers to three questions.

Is it calibrated? Where not? What to do? The badge is `attention` only where a test rejects after Holm's
correction for all tests behind it, `good` only where the cases suffice to rule out an error that matters
(`LIMIT`), else `inconclusive`. Terminal, page and notebook show the same dict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, log, nan, sqrt
from typing import Any

from scalecal.auditing.sentences import LEVEL, error_kind, overall_p, p_text
from scalecal.inference.units import NORMAL_95
from scalecal.io.text import listed, number, percent
from scalecal.metrics import holm
from scalecal.metrics.grouping import FEWEST_GROUPS

LIMIT = 0.10
"""Error of a probability that matters: a model is good where larger ones are ruled out."""

SMALL = 0.02
"""Error that does not matter, even where many cases prove it."""

BADGES = {"good": "Good", "attention": "Attention", "inconclusive": "Inconclusive"}
"""Badge -> its word."""

CRITERION = (
    f"Attention: a test rejects calibration at the {100 * LEVEL:.0f} % level, corrected for all tests "
    f"(Holm), and the error may exceed {100 * SMALL:.0f} points. Good: no error of more than "
    f"{100 * LIMIT:.0f} points is left possible by the 95 % intervals. Inconclusive: neither."
)
"""How a badge is given, in words."""

DIFFICULTY = {
    "easy": "those it is surest of",
    "middle": "between sure and unsure",
    "hard": "those it is least sure of",
}
FORESEEN = {
    "easy": "where readers are expected to agree",
    "middle": "between agreement and dispute",
    "hard": "where readers are expected to split",
}
"""Strata of predicted difficulty in words: by the model's own probability, or by p_split."""

AGREEMENT = {
    "high": "nearly all readers agree",
    "medium": "a clear majority of the readers",
    "low": "the readers split",
}
"""Strata of agreement in words."""

Row = Mapping[str, Any]


def points(value: float) -> str:
    """Write a difference of probabilities in percentage points, without its sign.

    Examples
    --------
    >>> points(0.082), points(-0.17), points(0.004), points(0.01), points(0.0)
    ('8 points', '17 points', '0.4 points', '1 point', '0 points')
    """
    size = 100 * abs(value)
    text = f"{size:.1f}" if 0.05 <= size < 0.95 else f"{size:.0f}"
    return f"{text} point{'' if text == '1' else 's'}"


def judge(
    rows: Sequence[Row],
    difficulty: Sequence[Row] = (),
    *,
    agreement: bool,
    classes: Sequence[str] = ("0", "1"),
    foreseen: bool = False,
    reader: bool = False,
    population: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Judge an audit's rows (the first is `overall`); arguments as `sentences`.

    `population` is the audit's meta where its numbers are of another prevalence than that of the cases.

    Returns
    -------
    dict
        ``badge`` (a key of `BADGES`), ``word``, ``headline``, ``numbers`` (what stands beneath it),
        ``answers`` (three dicts with ``question``, ``heading``, ``text``), ``criterion``, ``p`` (of all
        tests together), ``error`` and ``error_high`` (the typical error over all cases, chance
        removed, and the upper end of its 95 % interval), ``failing`` (names of the rows that failed).

    Examples
    --------
    >>> import numpy as np
    >>> from scalecal import audit
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=2000)
    >>> audit(rng.uniform(size=2000) < p, p).verdict["badge"]
    'good'
    """
    whole = _whole(rows[0])
    parts = _parts(rows, difficulty, agreement, foreseen)
    judged = [part for part in parts if isfinite(part["p"])]
    least = min((part["p"] for part in judged), default=nan)
    adjusted = [float(p) for p in holm([whole["p"], least]) if isfinite(p)]
    failing, overall = _rejected(whole["p"], judged)
    wrong = ([whole] if overall else []) + failing
    # The hardest part is what an audit is for: without it nothing is good.
    bounded = all(t["high"] <= LIMIT for t in (whole, *judged))
    bounded = bounded and (not parts or isfinite(parts[-1]["p"]))
    facts = {
        "row": rows[0],
        "whole": whole,
        "parts": parts,
        "judged": judged,
        "failing": failing,
        "p": min(adjusted, default=nan),
        "overall": overall,
        "reader": reader and bool(failing),
        "hint": not wrong and min(whole["p"], least, key=_last) < LEVEL,
        "small": bool(wrong) and bounded and all(t["high"] <= SMALL for t in (whole, *wrong)),
        "population": population,
        "positive": "positive" if len(classes) == 2 and classes[1] == "1" else classes[-1],
    }
    badge = "good" if bounded and not facts["hint"] else "inconclusive"
    badge = "attention" if wrong and not facts["small"] else badge
    return {
        "badge": badge,
        "word": BADGES[badge],
        "headline": _headline(badge, facts),
        "numbers": _numbers(facts),
        "answers": [_calibrated(badge, facts), _where(badge, facts), _advice(badge, facts)],
        "criterion": CRITERION,
        "p": facts["p"],
        "error": whole["error"],
        "error_high": whole["high"],
        "failing": [t["name"] for t in wrong],
    }


def _rejected(
    p_whole: float, judged: Sequence[Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], bool]:
    """Parts that fail, and whether all cases together do: both families of tests at one level.

    Each has half of the level. What is rejected in full passes its half on to the other (Bretz et al., 2009,
    Statistics in Medicine 28), and a family without a test has none. Parts are corrected among themselves.
    """
    if not isfinite(p_whole):
        return [t for t in judged if t["p"] < LEVEL], False
    share = LEVEL if p_whole < LEVEL / 2 else LEVEL / 2
    failing = [t for t in judged if t["p"] < share]
    return failing, p_whole < (LEVEL if len(failing) == len(judged) else LEVEL / 2)


def _last(p: float) -> float:
    return p if isfinite(p) else 2.0


def _whole(row: Row) -> dict[str, Any]:
    """Test and typical error of all cases: the root of the debiased squared error, and of its upper end."""
    error, high = (row.get(f"debiased_error{end}", nan) for end in ("", "_high"))
    p, units = overall_p(row), row.get("n_groups") or row["n"]
    return {
        "name": "overall",
        "p": nan if p is None else p,
        "error": sqrt(max(error, 0.0)) if isfinite(error) else nan,
        "high": min(1.0, max(sqrt(max(high, 0.0)), _least(units))) if isfinite(high) else nan,
    }


def _least(n: int) -> float:
    """Error that n cases leave possible even where all agree: the end of Wilson's interval at 0 or 1."""
    return NORMAL_95**2 / (n + NORMAL_95**2)


def _parts(
    rows: Sequence[Row], difficulty: Sequence[Row], agreement: bool, foreseen: bool
) -> list[dict[str, Any]]:
    """Parts of the cases that are tested, easiest first: by votes where these judge, else by their null."""
    if any(isfinite(t["p_votes_holm"]) for t in difficulty):
        gloss = FORESEEN if foreseen else DIFFICULTY
        return [
            {
                "kind": "votes",
                "name": t["name"],
                "title": f"{t['name']} cases",
                "gloss": gloss[t["name"]],
                "n": t["n"],
                "p": t["p_votes_holm"],
                "row": t,
                "high": max(
                    _least(t["n"]),
                    *(
                        abs(t[f"{key}_{end}"])
                        for key in ("vote_gap", "vote_overconfidence")
                        for end in ("low", "high")
                    ),
                ),
            }
            for t in difficulty
            if t["n"]
        ]
    return [
        {
            "kind": "null",
            "name": r["name"],
            "title": f"{r['name']} agreement" if agreement else f"the stratum {r['name']}",
            "gloss": AGREEMENT.get(r["name"], "") if agreement else "",
            "n": r["n"],
            "p": r.get("p_null_holm", nan),
            "row": r,
            "high": _stratum_high(r),
        }
        for r in rows[1:]
        if r["n"]
    ]


def _stratum_high(row: Row) -> float:
    """The largest typical error of a stratum, beyond a calibrated model's, that its cases leave possible.

    What the null shows beyond the floor is by the choice of the stratum, and no error of the model. Errors
    add up to less than their sum, so that this takes off no more than there is.
    """
    high = row.get("debiased_error_high", nan)
    if not (isfinite(high) and isfinite(row.get("null", nan)) and isfinite(row["floor"])):
        return nan
    chosen = max(float(row["null"] - row["floor"]), 0.0)
    return max(sqrt(max(high, 0.0)) - chosen, _least(row.get("n_groups") or row["n"]))


def _averages(row: Row) -> str:
    right = row["accuracy"]
    return (
        f"on average it says {percent(right + row['overconfidence'])} and is right "
        f"{percent(right)} of the time"
    )


def _error(facts: Mapping[str, Any]) -> str:
    """What is wrong over all cases, as a clause."""
    row = facts["row"]
    kind = error_kind(row)
    if kind in ("over", "under"):
        way = "too sure" if kind == "over" else "not sure enough"
        return f"It is {way}: {_averages(row)}"
    if kind:
        return (
            f"Its probabilities are too {kind}: on average it expects {percent(row['mean_p'])} "
            f"{facts['positive']}, where {percent(row['prevalence'])} are"
        )
    return (
        f"Its probabilities do not fit the labels: the calibration error (ECE) is {points(row['ece'])}, "
        f"where a calibrated model would show {points(row['floor'])}"
    )


def _part(part: Mapping[str, Any]) -> str:
    """What is wrong in a part, as a clause that follows "On ... cases"."""
    t = part["row"]
    if part["kind"] == "null":
        return f"the error is {points(t['ece'])}; a calibrated model would show {points(t['null'])} there"
    sure, gap = t["vote_overconfidence"], t["vote_gap"]
    key = "vote_overconfidence" if abs(sure) >= abs(gap) else "vote_gap"
    half = (t[f"{key}_high"] - t[f"{key}_low"]) / 2
    if not abs(t[key]) > half:
        return (
            "readers do not vote as it says, in one direction here and in the other there "
            f"(on average {percent(t['vote_confidence'])} said, {percent(t['vote_agreement'])} observed)"
        )
    if key == "vote_overconfidence":
        way = "surer" if sure > 0 else "less sure"
        start = f"it is {points(sure)} {way} than the readers are"
    else:
        way = "more" if gap > 0 else "fewer"
        start = f"it expects {points(gap)} {way} positive votes than there are"
    return f"{start}; a calibrated model would be within {points(max(half, 0.01))}"


def _listed(parts: Sequence[Mapping[str, Any]]) -> str:
    """Names of some parts: "easy and hard cases", "low agreement", "the strata A, B and C"."""
    names = listed([str(t["name"]) for t in parts])
    if parts[0]["title"].startswith("the stratum"):
        return f"the {'strata' if parts[1:] else 'stratum'} {names}"
    return f"{names} {parts[0]['title'].split()[-1]}"


def _on(part: Mapping[str, Any]) -> str:
    """Name a part of the cases, with its size and what it is: it follows "On"."""
    n, gloss = number(part["n"]), part["gloss"]
    if part["kind"] == "votes":
        return f"the {n} {part['title']} ({gloss})"
    return f"{part['title']} ({gloss and f'{gloss}, '}n = {n})"


def _headline(badge: str, facts: Mapping[str, Any]) -> str:
    row, failing = facts["row"], facts["failing"]
    if badge == "attention":
        if facts["overall"]:
            return f"{_error(facts)}."
        worst = min(failing, key=lambda t: float(t["p"]))
        return f"On {_on(worst)} {_part(worst)}."
    if badge == "good":
        return f"Its probabilities can be taken at their word: {_averages(row)}."
    if not isfinite(facts["p"]):
        return f"There is no verdict: {_why(facts)}."
    if facts["hint"]:
        return "There are signs of an error, but they may be chance: two kinds of tests were made."
    return f"Too few cases to say: no error was found, but {_possible(facts)}."


def _why(facts: Mapping[str, Any]) -> str:
    """Why nothing could be tested."""
    own = facts["row"].get("reason") or ""
    return own.removesuffix(" for a floor, a test or an interval").removesuffix(
        " for an interval"
    ) or ("too few cases, or probabilities too extreme, for any test")


def _possible(facts: Mapping[str, Any]) -> str:
    """The largest error that is not ruled out, and where."""
    whole = facts["whole"]
    if not isfinite(whole["high"]):
        return "how large one could hide is not known"
    if whole["high"] > LIMIT:
        return f"one of {points(whole['high'])} could hide in {_cases(facts['row'])}"
    unsure = [t for t in facts["judged"] if not t["high"] <= LIMIT]
    if unsure and isfinite(unsure[-1]["high"]):
        worst = max(unsure, key=lambda t: float(t["high"]))
        return f"one of {points(worst['high'])} could hide on {_on(worst)}"
    return f"{facts['parts'][-1]['title']} could not be judged"


def _cases(row: Row) -> str:
    cases = "1 case" if row["n"] == 1 else f"{number(row['n'])} cases"
    groups = row.get("n_groups")
    return f"{cases} of {number(groups)} group{'' if groups == 1 else 's'}" if groups else cases


def _numbers(facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """Name and value of the numbers beneath the headline."""
    row, whole = facts["row"], facts["whole"]
    out = [("Cases", number(row["n"]))]
    if (of := facts["population"]) is not None:
        worth = f"{percent(of['prevalence'])} positive (worth {of['n_effective']:,.0f} cases)"
        out.append(("Reweighted to", worth))
    if row.get("n_groups"):
        out.append(("Groups", number(row["n_groups"])))
    if isfinite(whole["high"]):
        upto = f"{points(whole['error'])} (up to {100 * whole['high']:.0f} possible)"
        out.append(("Typical error", upto))
    if isfinite(facts["p"]):
        out.append(("All tests, corrected", p_text(facts["p"])))
    return [{"name": name, "value": value} for name, value in out]


def _calibrated(badge: str, facts: Mapping[str, Any]) -> dict[str, str]:
    row, whole = facts["row"], facts["whole"]
    text = f"Its calibration error (ECE) is {points(row['ece'])} on {_cases(row)}"
    if isfinite(row["floor"]):
        text += f"; a calibrated model would show {points(row['floor'])} by chance"
    if badge == "attention":
        ways = {"over": ": too sure", "under": ": not sure enough", "high": ": too high"}
        ways |= {"low": ": too low", "": ""}
        heading = f"No{ways[error_kind(row)]}" if facts["overall"] else "Not everywhere"
        if not facts["overall"]:
            heading = "Not for single readers" if facts["reader"] else heading
            which = "Against the labels" if facts["reader"] else "Over all cases"
            text += f". {which} no test finds an error"
    elif badge == "good":
        heading = (
            f"Yes, within {points(max(whole['high'], *(t['high'] for t in facts['judged']), 0.01))}"
        )
        if facts["small"]:
            text += ". Tests find an error, but one too small to matter"
    else:
        heading = "Not clear" if facts["hint"] else "Too few cases to say"
        if not isfinite(facts["p"]):
            heading = "No verdict"
    return {"question": "Is it calibrated?", "heading": heading, "text": f"{text}."}


def _where(badge: str, facts: Mapping[str, Any]) -> dict[str, str]:
    parts, judged, failing = facts["parts"], facts["judged"], facts["failing"]
    wrong = badge == "attention"
    question = "Where not?" if wrong else "Everywhere?"
    if not parts:
        text = "The cases have no strata: give the votes of two or more readers, or a column of strata."
        return {"question": question, "heading": "Not known", "text": text}
    if not judged:
        whys = dict.fromkeys(t["row"]["reason"] for t in parts if t["row"].get("reason"))
        text = f"No part of the cases can be judged{f': {next(iter(whys))}' if whys else ''}."
        return {"question": question, "heading": "Not known", "text": text}
    if wrong and failing:
        worst = min(failing, key=lambda t: float(t["p"]))
        heading = f"On {_listed(failing)}"
        if facts["overall"]:
            return {
                "question": question,
                "heading": heading,
                "text": f"On {_on(worst)} {_part(worst)}.",
            }
        others = [t for t in judged if t not in failing]
        rest = f" No error is found on {_listed(others)}." if others else ""
        text = f"The votes there differ from what it says ({p_text(worst['p'])}).{rest}"
        if worst["kind"] == "null":
            text = f"It is worse there than a calibrated model would look ({p_text(worst['p'])}).{rest}"
        return {"question": question, "heading": heading, "text": text}
    worst = max(judged, key=lambda t: float(t["high"]) if isfinite(t["high"]) else -1.0)
    heading = "No part stands out"
    text = f"The widest margin is on {_on(worst)}: {_margin(worst)}."
    if left := [t for t in parts if t not in judged]:
        text += f" Not judged: {_listed(left)}."
    return {"question": question, "heading": heading, "text": text}


def _margin(part: Mapping[str, Any]) -> str:
    t = part["row"]
    if part["kind"] == "null":
        return f"an error of {points(t['ece'])}, {points(t['null'])} for a calibrated model"
    return (
        f"it says {percent(t['vote_confidence'])} for the side it prefers, readers "
        f"{percent(t['vote_agreement'])}"
    )


def _advice(badge: str, facts: Mapping[str, Any]) -> dict[str, str]:
    """What to do where no remedy was tried."""
    question = "What to do?"
    if badge == "attention":
        heading = "Mend it before use"
        text = "Fit a calibrator on cases that the model has not seen (scalecal calibrate), and audit again."
        if facts["row"]["prevalence"] in (0.0, 1.0):
            heading = "Check the labels"
            text = "All cases are of one class: collect cases of the others before it is judged or mended."
        if (of := facts["population"]) is not None:
            odds = [share / (1.0 - share) for share in (of["prevalence"], of["sample_prevalence"])]
            text = (
                "Calibrate it to these cases as they were sampled (scalecal calibrate); "
                f"then add {log(odds[0] / odds[1]):+.2f} to its log-odds for this prevalence."
            )
    elif badge == "good":
        heading, text = "Nothing", "Use the probabilities as they are, on cases like these."
    elif (facts["row"].get("n_groups") or FEWEST_GROUPS) < FEWEST_GROUPS:
        heading = "Collect more groups"
        text = (
            f"Cases of at least {FEWEST_GROUPS} groups (patients, slides) are needed for a verdict."
        )
    else:
        heading, text = "Collect more cases", more_cases(facts["row"]["n"], facts["whole"]["high"])
    return {"question": question, "heading": heading, "text": text}


def more_cases(n: int, high: float | None) -> str:
    """How many cases would settle an inconclusive verdict, where that can be said.

    The upper end of the typical error falls with the square root of the number of cases.

    Examples
    --------
    >>> more_cases(150, 0.14)
    'Some 300 cases like these would rule out an error of 10 points, if there is none.'
    """
    if high is None or not high > LIMIT:
        return "More cases with labels, and readers' votes on them, would settle it."
    wanted = n * (high / LIMIT) ** 2
    step = 10 ** max(1, len(str(int(wanted))) - 2)
    some = -(-int(wanted) // step) * step
    return (
        f"Some {number(some)} cases like these would rule out an error of {points(LIMIT)}, if there is "
        "none."
    )


def verdict_text(verdict: Mapping[str, Any]) -> str:
    """Lay a verdict out as text: badge and headline, then a line per answer."""
    lines = [f"{verdict['word'].upper()}: {verdict['headline']}"]
    lines += [f"{a['question']} {a['heading']}. {a['text']}" for a in verdict["answers"]]
    return "\n".join(lines)
