"""Facts in words, once: the verdict, its three answers, and at most one paragraph per topic.

Terminal, page, notebook, LaTeX and model card show these sentences as they stand here. No sentence claims
more than its test bears, and none says what another has said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log, nan
from typing import Any

from scalecal.evaluation.candidates import NOTHING
from scalecal.evaluation.judging import (
    BOUNDS,
    COMMON,
    LEVEL,
    LIMIT,
    MIN_EVENTS,
    SMALL,
    SMALL_BOUNDS,
    Facts,
    Row,
    interval_sign,
)
from scalecal.evaluation.level_words import (
    calibrator_text,
    difference_text,
    level_alerts,
    level_paragraphs,
    outlier_text,
)
from scalecal.evaluation.sufficiency import POWER
from scalecal.io.text import (
    change_text,
    interval_text,
    is_known,
    listed,
    number,
    p_text,
    percent,
    points,
    some_listed,
    some_of,
)
from scalecal.metrics import COLUMNS, METRICS, holm
from scalecal.metrics.grouping import MIN_GROUPS
from scalecal.probes.methods import METHODS

BADGES = {"good": "Good", "attention": "Attention", "inconclusive": "Inconclusive"}
"""Badge -> its word."""

CRITERION = (
    f"Attention: a test rejects calibration at the {100 * LEVEL:.0f} % level, corrected for all tests "
    f"(Holm), and the error may matter: a typical error above {100 * SMALL:.0f} points, or O:E, odds or "
    f"slope wrong by a factor of {SMALL_BOUNDS['oe'][1]:g}. Good: no test rejects an error that may matter, "
    f"there are at least {MIN_EVENTS} events and as many non-events, and the 95 % intervals exclude a "
    f"typical (root mean square) error above {100 * LIMIT:.0f} points, O:E or odds wrong by a factor of "
    f"{BOUNDS['oe'][1]:g}, and a slope outside {BOUNDS['slope'][0]:g} to {BOUNDS['slope'][1]:g}, for each "
    "class. Where levels of columns are compared, that they differ has a third of the level. Inconclusive: "
    "neither."
)
"""How a badge is given, in words."""

AGREEMENT = {
    "high": "nearly all readers agree",
    "medium": "a clear majority of the readers",
    "low": "the readers split",
}
"""Strata of agreement in words."""

GLOSSES = {
    "agreement": AGREEMENT,
    "votes": {
        "easy": "predictions far from the decision",
        "middle": "predictions at a medium distance from the decision",
        "hard": "predictions close to the decision",
    },
    "foreseen": {
        "easy": "readers are expected to agree",
        "middle": "partial agreement is expected",
        "hard": "readers are expected to disagree",
    },
}
"""Kind of part -> name -> what it is. Votes judge strata of predicted difficulty: by the model's own
probability, or foreseen by p_split."""

KINDS = {
    "over": "over-confident",
    "under": "under-confident",
    "high": "too high",
    "low": "too low",
}
"""Kind of an error -> the word for it."""

NOUNS = {"votes": "cases", "agreement": "agreement"}
"""Kind of part -> what follows its name."""


MAX_WORST = 3
"""Classes that a headline names, the worst first."""


# The verdict on one method


def verdict(audit: Facts) -> dict[str, Any]:
    """The verdict on one audited method, with the answers to the first two questions.

    `audit` is an entry of ``facts["audits"]``: rows, difficulty, judgement and meta.
    """
    judged = audit["judgement"]
    badge = judged["badge"]
    return {
        "badge": badge,
        "word": BADGES[badge],
        "headline": _headline(audit),
        "numbers": _numbers(audit),
        "answers": [_calibrated(audit), _where(audit)],
        "criterion": CRITERION,
        "p": judged["p"],
        "error": judged["error"],
        "error_high": judged["error_high"],
        "failing": judged["failing"],
    }


def _tested(audit: Facts) -> list[Row]:
    return [part for part in audit["judgement"]["parts"] if is_known(part["p"])]


def _row_of(audit: Facts, part: Row) -> Row:
    """The numbers of a tested part."""
    table = audit["difficulty"] if part["kind"] == "votes" else audit["rows"]
    return next(row for row in table if row["name"] == part["name"])


def _headline(audit: Facts) -> str:
    judged, row = audit["judgement"], audit["rows"][0]
    if judged["untied"]:
        return f"There is no verdict: {_untied(judged['untied'])}."
    if judged["badge"] == "attention":
        if judged["overall"]:
            return f"{_error(audit)}."
        if _only_uneven(audit):
            return _uneven(audit, "difference")
        return f"{_on(audit, _worst(audit))} {_part_error(audit, _worst(audit))}."
    if judged["badge"] == "good":
        return f"Its probabilities are well calibrated: {_fit(audit)}."
    if not is_known(judged["p"]):
        few = "too few cases, or probabilities too extreme, for any test"
        return f"There is no verdict: {row.get('reason') or few}."
    if judged["hint"]:
        return (
            "There are signs of an error, but they do not remain significant after correction for multiple "
            "tests."
        )
    if judged["unproven"]:
        return f"No error was found, but {_UNPROVEN}."
    return f"Too few cases for a verdict: no error is significant, but {_possible(audit)}."


def _only_uneven(audit: Facts) -> bool:
    """Whether levels of a column differ, and nothing else is wrong."""
    judged = audit["judgement"]
    failed = judged["overall"] or any(part["failed"] for part in judged["parts"])
    return bool(judged.get("uneven")) and not failed


def _uneven(audit: Facts, about: str) -> str:
    """What is said of the first column whose levels differ, about its "difference" or its "calibrators"."""
    first = audit["judgement"]["uneven"][0]
    column = next(column for column in audit["by"] if column["column"] == first)
    if about == "difference":
        return difference_text(column, audit["meta"]["event"])
    return calibrator_text(column)


def _fit(audit: Facts) -> str:
    """What good probabilities have shown: expected and observed events, or confidence and accuracy."""
    row = audit["rows"][0]
    if not is_known(row.get("oe")):
        return _averages(row)
    return f"{_expected(audit, row)}; the calibration slope is {interval_text(row, 'slope')}"


_UNPROVEN = (
    "a calibrator of this kind can memorise the cases it was fitted to: apply it to other labelled cases "
    "(--apply) for a verdict"
)


def _untied(n: int) -> str:
    """Why cases without ties allow no verdict, as a clause."""
    return (
        f"none of {_counted(n, 'case')} of even panels is tied, so tied cases were left out, and the labels "
        "show the probability given that readers were not tied, which p is not. Keep the tied cases, and say "
        "what a tie means (--ties random, first or last)"
    )


def _averages(row: Row) -> str:
    right = row["accuracy"]
    said = percent(right + row["overconfidence"])
    return f"on average it says {said} and is right {percent(right)} of the time"


def _expected(audit: Facts, row: Row) -> str:
    """Expected and observed cases of the class that a row is about."""
    name = _class_name(audit, row)
    if is_known(row.get("expected")):
        expected, observed = _cases_counted(row["expected"]), number(row["events"])
        said = f"it expects {expected} {name}; {observed} are observed"
    else:
        said = (
            f"it expects {percent(row['mean_p'])} {name}; {percent(row['prevalence'])} are observed"
        )
    if is_known(row.get("oe")):
        said += f" (O:E {interval_text(row, 'oe')})"
    return said


def _cases_counted(expected: float) -> str:
    """An expected number of cases: whole, unless it is small."""
    if expected < 10:
        return f"{expected:.1f}"
    return f"{expected:,.0f}"


def _class_name(audit: Facts, row: Row) -> str:
    """What a row's events are called: the positive class of two, or the class of a row of its own."""
    classes = audit["meta"]["classes"]
    name = str(row["name"])
    if name.startswith("class="):
        return f"cases of class {name.removeprefix('class=')}"
    if len(classes) == 2 and classes[1] == "1":
        return "positive cases"
    return f"cases of class {classes[-1]}"


def _error(audit: Facts) -> str:
    """What is wrong over all cases, as a clause."""
    row, judged = audit["rows"][0], audit["judgement"]
    kind, wrong = judged["kind"], _wrong_subjects(audit)
    if audit["classes"] and wrong:
        parts = [_ratio_error(audit, subject) for subject in wrong[:MAX_WORST]]
        count = f"{len(wrong)} of {len(audit['classes'])} classes"
        if others := len(wrong) - len(parts):
            parts.append(f"and {_counted(others, 'other')}")
        return f"Probabilities of {count} are wrong: {', '.join(parts)}"
    if wrong:
        return f"Its probabilities are {KINDS[kind]}: {_ratio_error(audit, wrong[0])}"
    if kind in ("over", "under"):
        return f"It is {KINDS[kind]}: {_averages(row)}"
    if kind:
        return f"Its confidence is {KINDS[kind]}: {_averages(row)}"
    return "Its probabilities deviate from the labels, in no consistent direction"


def _wrong_subjects(audit: Facts) -> list[Row]:
    """All cases of two classes, or the classes of more, whose ratios are wrong; the worst first."""
    return [t for t in audit["judgement"]["subjects"] if t["failed"] and t["kind"]]


def _subject_row(audit: Facts, subject: Row) -> Row:
    """The numbers of all cases, or of a class."""
    return next(r for r in (audit["rows"][0], *audit["classes"]) if r["name"] == subject["name"])


def _ratio_error(audit: Facts, subject: Row) -> str:
    """What is wrong with the probabilities of all cases of two classes, or of one class of several."""
    row = _subject_row(audit, subject)
    shifted = interval_sign(row, "citl") != 0
    slope = f"calibration slope {interval_text(row, 'slope')}"
    if audit["classes"]:
        # Intervals stand in the table of classes.
        name = str(row["name"]).removeprefix("class=")
        parts = []
        if shifted:
            parts.append(
                f"{_cases_counted(row['expected'])} expected, {number(row['events'])} observed"
            )
        if not shifted or not row["slope_low"] < 1.0 < row["slope_high"]:
            parts.append(f"calibration slope {number(row['slope'], 2)}")
        return f"{name} ({'; '.join(parts)})"
    if subject["kind"] in ("high", "low"):
        return _expected(audit, row)
    if interval_sign(row, "overconfidence"):
        return f"{_averages(row)} ({slope})"
    return f"the {slope} should be 1"


def _worst(audit: Facts) -> Row:
    """The part whose test is clearest."""
    failing = [part for part in _tested(audit) if part["failed"]]
    return min(failing, key=lambda part: float(part["p"]))


def _part_error(audit: Facts, part: Row) -> str:
    """What is wrong in a part, as a clause that follows "On ... cases"."""
    row = _row_of(audit, part)
    if part["kind"] != "votes":
        return (
            f"the error is {points(row['ece'])}; a calibrated model would show {points(row['null'])} "
            "there"
        )
    sure, gap = row["vote_overconfidence"], row["vote_gap"]
    # On cases that are all called alike both are the same error, and that of positive votes is plainer.
    key = "vote_gap"
    if abs(sure) > abs(gap) + 1e-9:
        key = "vote_overconfidence"
    # Half of the interval is how far chance alone may take it.
    half = (row[f"{key}_high"] - row[f"{key}_low"]) / 2
    if not abs(row[key]) > half:
        return (
            "votes deviate from the predictions, in different directions (on average "
            f"{percent(row['vote_confidence'])} predicted, {percent(row['vote_agreement'])} observed)"
        )
    if key == "vote_gap":
        way = "more" if gap > 0 else "fewer"
        start = f"it expects {points(gap)} {way} positive votes than there are"
    else:
        way = "more" if sure > 0 else "less"
        start = f"it is {points(sure)} {way} confident than the readers"
    return f"{start}; a calibrated model would be within {points(max(half, 0.01))}"


def _on(audit: Facts, part: Row) -> str:
    """Name a part of the cases, with what it is and its size."""
    kind = part["kind"]
    if kind == "votes" and audit["judgement"]["foreseen"]:
        kind = "foreseen"
    gloss = GLOSSES.get(kind, {}).get(part["name"])
    if kind == "votes" and gloss and len(audit["meta"]["classes"]) == 2:
        gloss += f" at {audit['meta']['threshold']:g}"
    about = [*filter(None, [gloss]), f"n = {number(part['n'])}"]
    return f"On {_listed([part])} ({', '.join(about)})"


def _inside(text: str) -> str:
    """A sentence or phrase as it stands after a colon or inside another."""
    return f"{text[0].lower()}{text[1:]}"


def _listed(parts: Sequence[Row]) -> str:
    """Names of some parts: "easy and hard cases", "low agreement", "the strata A, B and C"."""
    names = some_listed([str(part["name"]) for part in parts])
    if parts[0]["kind"] != "stratum":
        return f"{names} {NOUNS[parts[0]['kind']]}"
    if len(parts) == 1:
        return f"the stratum {names}"
    return f"the strata {names}"


def _possible(audit: Facts) -> str:
    """The largest error that is not ruled out, and where."""
    judged, row = audit["judgement"], audit["rows"][0]
    high = judged["error_high"]
    if not is_known(high):
        return "how large an error was missed is unknown"
    if high > LIMIT:
        return f"a typical error of {points(high)} cannot be excluded on {_cases(row)}"
    wide = [part for part in _tested(audit) if is_known(part["high"]) and part["high"] > LIMIT]
    if wide:
        worst = max(wide, key=lambda part: float(part["high"]))
        return f"one of {points(worst['high'])} cannot be excluded {_inside(_on(audit, worst))}"
    unsettled = [subject for subject in judged["subjects"] if subject["open"]]
    if unsettled:
        return _unsettled(audit, unsettled)
    if not judged["subjects"]:
        return "the classes of a stream cannot be judged one by one"
    unknown = [p for p in judged["parts"] if not is_known(p["p"]) or not is_known(p["high"])]
    return f"{_listed(unknown)} could not be judged"


def _unsettled(audit: Facts, subjects: Sequence[Row]) -> str:
    """Why some class, or all cases, cannot be called good: too few events, or a ratio that may be wrong."""
    few = [subject for subject in subjects if "events" in subject["open"]]
    if few:
        worst = min(few, key=lambda subject: int(subject["fewest"]))
        row = _subject_row(audit, worst)
        name, count = _class_name(audit, row), row["events"]
        if row["n"] - row["events"] < row["events"]:
            name, count = f"cases other than {name}", row["n"] - row["events"]
        return f"there are {number(count)} {name}, and {MIN_EVENTS} are the fewest for {BADGES['good']}"
    worst = subjects[0]
    row = _subject_row(audit, worst)
    texts = []
    for key in worst["open"]:
        low, high = BOUNDS[key]
        title = {"oe": "O:E", "slope": "the calibration slope"}.get(
            key, "the offset of the log-odds"
        )
        if is_known(row.get(f"{key}_low")):
            texts.append(
                f"{title} may lie outside {low:.2f} to {high:.2f} ({interval_text(row, key)})"
            )
        else:
            texts.append(f"{title} cannot be estimated")
    of_class = ""
    if audit["classes"]:
        of_class = f" for {_class_name(audit, row)}"
    return f"{listed(texts)}{of_class}"


def _cases(row: Row) -> str:
    text = _counted(row["n"], "case")
    if row.get("n_groups"):
        text += f" of {_counted(row['n_groups'], 'group')}"
    return text


def _counted(n: int, noun: str) -> str:
    if n == 1:
        return f"1 {noun}"
    return f"{number(n)} {noun}s"


def _numbers(audit: Facts) -> list[dict[str, str]]:
    """Name and value of the numbers beneath the headline."""
    judged, row, meta = audit["judgement"], audit["rows"][0], audit["meta"]
    out = [("Cases", number(row["n"]))]
    if meta.get("n_effective") is not None:
        worth = f"{percent(meta['prevalence'])} positive (worth {meta['n_effective']:,.0f} cases)"
        out.append(("Reweighted to", worth))
    if row.get("n_groups"):
        out.append(("Groups", number(row["n_groups"])))
    if is_known(row.get("expected")):
        out.append(
            ("Events", f"{number(row['events'])} ({_cases_counted(row['expected'])} expected)")
        )
    if is_known(judged["error_high"]):
        upper = points(judged["error_high"]).removesuffix(" points").removesuffix(" point")
        interval = f"{points(judged['error'])} (95 % interval up to {upper})"
        out.append(("Typical error", interval))
    if is_known(judged["p"]):
        out.append(("All tests, corrected", p_text(judged["p"])))
    return [{"name": name, "value": value} for name, value in out]


def _calibrated(audit: Facts, facts: Facts | None = None) -> dict[str, str]:
    """Is it calibrated? The only sentence that states the overall ECE, its n and its floor.

    Of several seeds, which are known from the facts, it states the means that the table shows.
    """
    judged, row = audit["judgement"], audit["rows"][0]
    shown, mean = row, ""
    if facts is not None:
        shown = row_of(facts, facts["judged"])
        mean = f", the mean of {facts['n_seeds']} seeds,"
    text = f"Its calibration error (ECE) is {points(shown['ece'])}{mean} on {_cases(row)}"
    if is_known(shown["floor"]):
        text += f"; a calibrated model would show {points(shown['floor'])} by chance"
    if judged["badge"] == "attention":
        if judged["overall"]:
            heading = "No"
            if audit["classes"] and (wrong := _wrong_subjects(audit)):
                heading += f", for {len(wrong)} of {len(audit['classes'])} classes"
            elif judged["kind"]:
                heading += f": {KINDS[judged['kind']]}"
        elif judged["reader"]:
            heading = "Not for individual readers' votes"
            text += ". No test against the labels is significant after correction"
        elif _only_uneven(audit):
            heading = f"Not for every {judged['uneven'][0]}"
            text += ". No test over all cases is significant after correction"
        else:
            heading = "Not everywhere"
            text += ". No test over all cases is significant after correction"
    elif judged["badge"] == "good":
        # Nothing smaller than a point is promised, however many cases there are.
        bounds = [judged["error_high"], *(part["high"] for part in _tested(audit)), 0.01]
        heading = f"Yes, typically within {points(max(bounds))}"
        if is_known(row.get("oe")) and min(row["prevalence"], 1.0 - row["prevalence"]) < COMMON:
            # Where findings are rare no probability can be wrong by many points.
            heading = f"Yes, with O:E {interval_text(row, 'oe')}"
        if judged["small"]:
            text += ". Tests find an error, but it is too small to matter"
    elif not is_known(judged["p"]) or judged["untied"]:
        heading = "No verdict"
    elif judged["unproven"]:
        heading = "Unproven"
    else:
        heading = "Unclear" if judged["hint"] else "Too few cases"
    return {"question": "Is it calibrated?", "heading": heading, "text": f"{text}."}


def _where(audit: Facts) -> dict[str, str]:
    """Where not? The parts that fail, or that none stands out."""
    judged = audit["judgement"]
    parts, tested = judged["parts"], _tested(audit)
    wrong = judged["badge"] == "attention"
    question = "Where not?" if wrong else "Everywhere?"
    failing = [part for part in tested if part["failed"]]
    if judged["uneven"] and not failing:
        heading = f"It depends on {listed(judged['uneven'])}"
        text = _standing_out(audit)
    elif not parts and (compared := _compared(audit)):
        heading = "No level stands out"
        text = (
            f"No significant difference that matters is found between levels of {listed(compared)}."
        )
    elif not parts:
        heading = "Unknown"
        text = "The cases have no strata: give the votes of two or more readers, or a column of strata."
    elif not tested:
        heading = "Unknown"
        whys = [why for part in parts if (why := _row_of(audit, part).get("reason"))]
        because = f": {whys[0]}" if whys else ""
        text = f"No subset of the cases can be judged{because}."
    elif wrong and failing:
        worst = _worst(audit)
        names = _listed(failing)
        heading = f"{names[0].upper()}{names[1:]}"
        if judged["overall"]:
            text = f"{_on(audit, worst)} {_part_error(audit, worst)}."
        else:
            # The headline has said by how much: what is left is the evidence, and the other parts.
            text = f"The votes there contradict the predictions ({p_text(worst['p'])})."
            if worst["kind"] != "votes":
                text = f"The error there exceeds a calibrated model's ({p_text(worst['p'])})."
            if others := [part for part in tested if part not in failing]:
                text += f" No error is found on {_listed(others)}."
    else:
        heading = "No subset stands out"
        widest = max(tested, key=lambda part: part["high"] if is_known(part["high"]) else -1.0)
        text = f"The widest interval is {_inside(_on(audit, widest))}"
        if is_known(widest["high"]):
            text += f": an error of {points(widest['high'])} cannot be excluded"
        text += "."
        if missing := [part for part in parts if part not in tested]:
            text += f" Not judged: {_listed(missing)}."
    return {"question": question, "heading": heading, "text": text}


def _compared(audit: Facts) -> list[str]:
    """Columns whose levels were tested for differences."""
    columns = [column for column in audit["by"] if is_known(column["test"]["p_corrected"])]
    return [column["column"] for column in columns]


def _standing_out(audit: Facts) -> str:
    """Which levels differ from the others, of each column that is uneven."""
    texts = []
    for column in audit["by"]:
        if column["column"] in audit["judgement"]["uneven"]:
            texts.append(outlier_text(column))
    return " ".join(filter(None, texts))


def vote_paragraph(audit: Facts, facts: Facts | None = None) -> str:
    """What the votes say of a reader's probability, or of the label's where there is no other; or "".

    Of several seeds, which are known from the facts, it states the means that the table shows.
    """
    row, meta = audit["rows"][0], audit["meta"]
    if not row.get("n_votes"):
        return ""
    start = (
        f"On the readers' {number(row['n_votes'])} votes the vote NLL is {number(row['vote_nll'])}; for "
        f"votes drawn from these probabilities it would be {number(row['vote_nll_floor'])}"
    )
    if facts is not None:
        mean = row_of(facts, facts["judged"])["vote_nll"]
        start = f"The mean vote NLL of {facts['n_seeds']} seeds is {number(mean)}"
    if meta.get("votes_judge") == "p_reader":
        return f"{start}: {_vote_error(audit)}."
    panels = [m for m in meta.get("n_raters", ()) if m > 2]
    if not panels:
        return f"{start}."
    sizes = " to ".join(map(str, sorted({min(panels), max(panels)})))
    return (
        f"{start}. A probability that is right for the majority of {sizes} readers is more extreme than one "
        "reader's, so one number cannot be right for both: single votes need a second one, p_reader."
    )


CLINICAL = ("oe", "citl", "slope", "ici", "e50", "e90", "emax", "scaled_brier", "auc")
"""Clinical numbers beside the numbers of events, in the order of sentences and tables."""


def clinical_sentence(audit: Facts) -> str:
    """The clinical numbers of all cases, with intervals and floors; "" with more than two classes."""
    row = audit["rows"][0]
    if not is_known(row.get("events")):
        return ""
    name = _class_name(audit, row)
    if not is_known(row.get("oe")):
        return (
            f"Clinical numbers need cases of both classes: there are {number(row['events'])} {name} among "
            f"{_cases(row)}."
        )
    parts = []
    for key in CLINICAL:
        if not is_known(row.get(key)):
            continue
        text = f"{COLUMNS[key].name} {interval_text(row, key)}"
        if is_known(row.get(f"{key}_floor")):
            text += f" (floor {row[f'{key}_floor']:.3f})"
        parts.append(text)
    cases = _cases(row)
    if not is_known(row.get("expected")):
        cases += f", reweighted to {percent(row['prevalence'])}"
    return f"{number(row['events'])} {name} among {cases}: {', '.join(parts)}."


def _vote_error(audit: Facts) -> str:
    """Which way a reader's probability is wrong, where an interval excludes 0.

    Whether it is wrong is the verdict by predicted difficulty: two more intervals, each of 95 %, would find
    fault with one right model in eight, and contradict it.
    """
    row = audit["rows"][0]
    if not is_known(row["vote_excess_low"]):
        return f"there is no verdict on p_reader, {row.get('reason') or 'too few cases have votes'}"
    voted = [part for part in _tested(audit) if part["kind"] == "votes"]
    if not voted:
        return "votes do not test p_reader here"
    excess, gap = (
        f"{number(row[key])}, 95 % interval {number(row[f'{key}_low'])} to {number(row[f'{key}_high'])}"
        for key in ("vote_excess", "vote_gap")
    )
    if not any(part["failed"] for part in voted):
        return f"no miscalibration of p_reader is found (difference {excess})"
    sure = {1: "over-confident", -1: "under-confident"}.get(interval_sign(row, "vote_excess"))
    way = {1: "high", -1: "low"}.get(interval_sign(row, "vote_gap"))
    wrong = []
    if sure:
        wrong.append(f"p_reader is {sure} about single votes (difference {excess})")
    if way:
        wrong.append(f"p_reader is too {way} on average (mean less vote share {gap})")
    opposite = f"errors of opposite sign cancel over all cases (difference {excess})"
    return "; ".join(wrong) or opposite


# What to do


def advice(facts: Facts) -> dict[str, str]:
    """What to do, from the recommendation: one heading and one text, the same everywhere."""
    if facts["kind"] == "audit":
        heading, text = _audit_advice(facts)
    elif facts["kind"] == "calibration":
        heading, text = _calibration_advice(facts)
    else:
        heading, text = _choice_advice(facts)
    return {"question": "What to do?", "heading": heading, "text": text}


def _audit_advice(facts: Facts) -> tuple[str, str]:
    audit = facts["audits"][facts["judged"]]
    judged, row, meta = audit["judgement"], audit["rows"][0], audit["meta"]
    found = facts["recommended"]
    if meta.get("doubt"):
        return "Check the file", meta["doubt"]
    if judged["badge"] == "good":
        return "Nothing", "Use the probabilities as they are, on cases like these."
    if judged["badge"] == "inconclusive":
        return _undecided(audit)
    if row["prevalence"] in (0.0, 1.0):
        text = "All cases are of one class: add cases of the other classes and audit again."
        return "Check the labels", text
    if meta.get("n_effective") is not None:
        odds = [share / (1.0 - share) for share in (meta["prevalence"], meta["sample_prevalence"])]
        text = (
            "Calibrate it on these cases as they were sampled (scalecal calibrate), then add "
            f"{log(odds[0] / odds[1]):+.2f} to its log-odds for this prevalence."
        )
        return "Recalibrate it", text
    if _only_uneven(audit):
        text = (
            "One calibrator for all cases would not remove these differences: run scalecal calibrate on a "
            "file of each level that needs its own."
        )
        return (
            f"Calibrate by {judged['uneven'][0]}",
            f"{text} {_uneven(audit, 'calibrators')}".strip(),
        )
    # Calibrators are chosen by the labels, which find no error here: another one would not help.
    if judged["reader"] and not judged["overall"]:
        text = f"{_READER_ERROR} scalecal calibrate can refit p_reader to the votes, unless it made this one."
        return "Use p, and p_reader with caution", text
    if meta.get("streamed"):
        text = "Run scalecal calibrate FILE: an audit of a stream tries no calibrator."
        return "Recalibrate it", text
    if found is None:
        text = "No calibrator can be chosen: too few cases or groups in a fold, or none could be fitted."
        return "Recalibrate it", text
    own, reader = found["p"], ""
    if found["adds_reader"]:
        reader = " It adds p_reader, fitted to the votes."
    if own["method"] not in NOTHING:
        text = f"Run scalecal calibrate FILE {_named(facts, own)}: {_gain(own)}."
        if not own["sure"]:
            text += " That a calibrator helps is not shown."
        return "Recalibrate it", f"{text}{reader}"
    if reader:
        # No method is named: one that is named is the one that calibrate records as chosen.
        text = f"{_none_better(own)} Run scalecal calibrate FILE, which keeps p.{reader}"
        return "Add a reader probability", text
    return "Do not rely on its probabilities", _none_better(own)


_READER_ERROR = (
    "Tests against the labels find no error in p; p_reader deviates from the readers' votes on the cases "
    "named above."
)


def _undecided(audit: Facts) -> tuple[str, str]:
    """What would settle an inconclusive verdict."""
    row = audit["rows"][0]
    if (row.get("n_groups") or MIN_GROUPS) < MIN_GROUPS:
        needed = f"Cases of at least {MIN_GROUPS} groups (patients, slides) are needed"
        return "Collect more groups", f"{needed} for a verdict."
    if not audit["judgement"]["subjects"]:
        return (
            "Leave out --stream",
            "A stream keeps the predicted class alone, and Good needs every class.",
        )
    if audit["judgement"]["untied"]:
        return (
            "Keep the tied cases",
            "Audit all cases, with a label for those on which readers are tied.",
        )
    if audit["judgement"]["unproven"]:
        return (
            "Try it on other cases",
            "Apply the calibrator to labelled cases that it was not fitted to.",
        )
    return "Collect more cases", more_cases(row["n"], audit["enough"])


def _none_better(own: Row) -> str:
    return f"No calibrator of the {own['tried']} tried has a lower cross-fitted label NLL."


def more_cases(n: int, enough: Row | None) -> str:
    """How many cases would settle an inconclusive verdict, where that can be said.

    Examples
    --------
    >>> more_cases(150, {"times": 7.77, "n": 1166, "calibrated": True})
    'If it is calibrated, about 1,200 cases like these (7.8 times as many) give an 80 % chance of Good.'
    """
    if enough is None:
        return "More cases of the same kind would settle it."
    times, wanted = enough["times"], n * enough["times"]
    step = 10 ** max(1, len(str(int(wanted))) - 2)
    some = -(-int(wanted) // step) * step
    cases = f"about {number(some)} cases like these ({times:.1f} times as many)"
    if not enough["calibrated"]:
        return f"If the estimates stay as they are, {cases} would settle it."
    return f"If it is calibrated, {cases} give an {percent(POWER)} chance of {BADGES['good']}."


def _calibration_advice(facts: Facts) -> tuple[str, str]:
    """Which probabilities to use: what an audit of the file before, and of the one after, would advise."""
    about, own = facts["calibration"], facts["recommended"]["p"]
    before = facts["audits"][facts["baseline"]]
    state = before["judgement"]["badge"]
    named = f"{_named(facts, own)}: {_gain(own)}"
    # The answers of each fold are of the candidate that the other folds chose; one is kept for new cases.
    chosen = f"The calibrator for new cases is {named}."
    if "n_folds" not in about:
        chosen = f"The recalibrated probabilities come from {named}."
    if before["meta"].get("doubt"):
        heading, text = "Check the file", before["meta"]["doubt"]
    elif about["chosen"] in NOTHING:
        heading, text = "Leave p as it is", _none_better(own)
        if "n_folds" not in about:
            text = "The calibrator, which was fitted to other cases, does not change p."
        elif about["method"] != "auto":
            text = "This method was requested."
    elif own["difference"] >= 0:
        heading = "Keep the original probabilities"
        text = f"They are not improved by {named}."
    elif own["sure"] or state == "attention":
        heading, text = "Use the recalibrated probabilities", chosen
    elif state == "good":
        heading, text = "Use p before or after", f"It was well calibrated before. {chosen}"
    elif facts["audits"][facts["judged"]]["judgement"]["badge"] == "good":
        heading, text = "Use the recalibrated probabilities", chosen
    else:
        heading, text = _undecided(before)
        text += f" {chosen}"
    gains, judges = facts["recommended"]["p_reader"], facts["audits"][facts["judged"]]["meta"]
    # One reader a case judges p, and makes no reader probability.
    if gains is not None and judges.get("votes_judge") == "p_reader":
        text += f" For p_reader, {_gain(gains)}."
    after = facts["audits"][facts["judged"]]["judgement"]
    if after["untied"]:
        text += " The recalibrated probabilities are of labels on which readers are not tied."
    if after["reader"] and not after["overall"]:
        text += f" {_READER_ERROR}"
    elif after["badge"] == "attention":
        text += " The error stated above is that of the recalibrated probabilities."
    return heading, text


def _gain(own: Row) -> str:
    """A change against the baseline: "label NLL falls significantly, -0.050 [-0.081, -0.020]"."""
    what, change = METRICS[own["metric"]].name, change_text(own)
    if own["low"] is None:
        return f"{what} changes by {change}; too few cases or groups for an interval"
    # Where several were tried, a gain is sure only if it outlasts the correction for their number.
    if own["sure"]:
        return f"{what} falls significantly, {change}"
    if own["high"] < 0:
        return f"{what} falls, but not significantly after correction for {own['tried']} candidates, {change}"
    if own["low"] > 0:
        return f"{what} rises significantly, {change}"
    return f"{what} does not change significantly, {change}"


def _choice_advice(facts: Facts) -> tuple[str, str]:
    """Which of several methods or files to use: one for the label, one for a reader's vote."""
    found, base, barred = facts["recommended"], facts["baseline"], _barred(facts)
    if found is None:
        return "Nothing to choose from", f"There is no candidate beside {base}.{barred}"
    parts: list[str] = []
    used: dict[str, list[str]] = {}
    for answer, whose in (("p", "the label"), ("p_reader", "a reader's vote")):
        own = found[answer]
        if own is None:
            continue
        if own["sure"]:
            used.setdefault(own["method"], []).append(whose)
            text = f"use {_named(facts, own)}: {_gain(own)}{_price(facts, own)}."
        elif own["method"] == base or own["low"] is not None:
            text = f"none of the candidates ({own['tried']}) improves significantly on the baseline ({base})."
        else:
            text = f"no candidate can be judged: too few {facts['resampled']}."
        parts.append(f"For {whose}, {text}")
    heading = "Keep the baseline"
    if used:
        # A method is for all there is to predict only where nothing else is said of the other answer.
        heading = "Use " + listed([_use(method, whose, parts) for method, whose in used.items()])
    elif facts["audits"][facts["judged"]]["judgement"]["badge"] == "attention":
        heading = f"Do not rely on the probabilities of {base}"
    if doubt := facts["audits"][base].get("meta", {}).get("doubt"):
        barred += f" {base}: {doubt}"
    return heading, f"{' '.join(parts)}{barred}"


def _use(method: str, whose: Sequence[str], parts: Sequence[str]) -> str:
    """A method with what it is used for, unless that is everything there is advice on."""
    if len(whose) == len(parts):
        return method
    return f"{method} for {listed(whose)}"


def _barred(facts: Facts) -> str:
    """Say which methods in the table are never recommended; "" where all may be.

    One kind reads the votes that judge it, the other is there to be worse.
    """
    # Files may have the names of methods.
    if facts["kind"] != "comparison":
        return ""
    others = [METHODS[m] for m in facts["methods"] if m != facts["baseline"] and m in METHODS]
    kinds = []
    if any(method.needs_votes for method in others):
        kinds.append("methods trained on votes")
    if any(method.control for method in others):
        kinds.append("negative controls")
    if not kinds:
        return ""
    text = listed(kinds)
    return f" {text[0].upper()}{text[1:]} are not candidates."


def _named(facts: Facts, own: Row) -> str:
    """A recommended method as the command takes it; a file by its name."""
    if facts["kind"] == "files":
        return str(own["method"])
    return f"--method {own['method']}"


def _price(facts: Facts, own: Row) -> str:
    """What a recommended method costs beyond chance by the other answer, or against plain softening."""
    other = "nll"
    if own["metric"] == "nll":
        other = "vote_nll"
    change = row_of(facts, own["method"])["changes"].get(other)
    text = ""
    if change and is_known(change["low"]) and change["low"] > 0:
        text = f" (but {METRICS[other].name} rises, {change_text(change)})"
    if remark := softening_remark(facts, own["method"]):
        text += f" ({remark})"
    return text


def recommended_methods(facts: Facts) -> list[str]:
    """Methods that are recommended for a reader's vote or for the label, and gain beyond chance.

    A reader probability goes first, since votes judge difficulty.
    """
    recommended, names = facts["recommended"] or {}, {}
    for answer in ("p_reader", "p"):
        choice = recommended.get(answer)
        if choice and choice["sure"]:
            names[choice["method"]] = True
    return list(names)


def judge_of(facts: Facts) -> str:
    """The metric that methods are ranked by: NLL of votes, or of labels where there are none."""
    if facts["votes"]:
        return "vote_nll"
    return "nll"


def row_of(facts: Facts, method: str, stratum: str = "overall") -> Row:
    """The row of a method and stratum; one without changes where there is none."""
    rows = {(row["method"], row["stratum"]): row for row in facts["rows"]}
    found: Row = rows.get((method, stratum), {"changes": {}})
    return found


NO_GAIN = "no clear gain over one temperature"
"""Remark on a method whose gain is no more than that of one temperature of the same mean entropy."""


def softening_remark(facts: Facts, method: str) -> str:
    """What stands beside the name of a method whose gain is no more than softening's; else ""."""
    beyond = facts["softening"].get(method)
    if facts["kind"] != "comparison" or beyond is None or beyond["better"]:
        return ""
    change = row_of(facts, method)["changes"].get(beyond["metric"])
    if method != facts["baseline"] and change and (change["difference"] or 0.0) < 0:
        return NO_GAIN
    return ""


# One evaluation


def put_into_words(facts: dict[str, Any]) -> None:
    """Add to the facts of an evaluation everything that is said of it.

    ``verdict`` (the badge with its headline), ``lead`` (answers to three questions) and ``paragraphs``
    (topic -> text).
    """
    made = {name: audit["verdict"] for name, audit in facts["audits"].items()}
    own = dict(made[facts["judged"]])
    answers, base = own.pop("answers"), facts["baseline"]
    judged = facts["audits"][facts["judged"]]
    votes = vote_paragraph(judged)
    if facts["n_seeds"] > 1:
        # Sentences have the table's numbers; tests need one set of cases, so they are of one seed.
        first = _calibrated(judged, facts)
        first["text"] += f" Tests and diagrams are of seed {facts['first_seed']}."
        answers = [first, *answers[1:]]
        votes = vote_paragraph(judged, facts)
    if facts["kind"] == "calibration":
        state = "After recalibration"
        if facts["calibration"]["chosen"] in NOTHING:
            state = "With p unchanged"
        own["headline"] = f"{state}: {_inside(own['headline'])}"
        own["numbers"] = [{"name": "Before", "value": made[base]["word"]}, *own["numbers"]]
    if facts["kind"] == "files":
        others = [{"name": name, "value": other["word"]} for name, other in made.items()]
        own["headline"] = f"{base}: {own['headline']}"
        own["numbers"] = [*own["numbers"], *others]
        answers = [answer | {"heading": f"{base}: {answer['heading']}"} for answer in answers]
    facts["verdict"] = own
    facts["alerts"] = level_alerts(judged, own["headline"])
    facts["lead"] = [*answers, advice(facts)]
    topics = {
        "clinical": clinical_sentence(judged),
        "votes": votes,
        "calibration": _calibration_paragraph(facts),
    }
    told = ""
    if _only_uneven(judged):
        told = judged["judgement"]["uneven"][0]
    topics |= level_paragraphs(judged, told)
    for model, text in difference_sentences(facts).items():
        topics[f"difference of {model}"] = text
    topics |= {
        "training": _training_paragraph(facts),
        "voted": voted_sentence(facts),
        "kappa": kappa_sentence(facts),
    }
    facts["paragraphs"] = {topic: text for topic, text in topics.items() if text}


def sentences(facts: Facts) -> list[str]:
    """Every sentence on an evaluation, in order: headline, three answers, paragraphs."""
    return [*verdict_sentences(facts["verdict"], facts["lead"]), *facts["paragraphs"].values()]


def verdict_sentences(found: Facts, answers: Sequence[Mapping[str, str]]) -> list[str]:
    """The headline of a verdict with its badge, and the answers as sentences."""
    said = [f"{a['question']} {a['heading']}. {a['text']}" for a in answers]
    return [f"{found['word'].upper()}: {found['headline']}", *said]


def other_verdicts(facts: Facts) -> list[str]:
    """Badge and headline of what the verdict is not on: the state before, or the other files."""
    names = {}
    if facts["kind"] == "calibration":
        names["Before"] = facts["baseline"]
    elif facts["kind"] == "files":
        names = {name: name for name in facts["methods"][1:]}
    texts = []
    for label, method in names.items():
        found = facts["audits"][method]["verdict"]
        texts.append(f"{label}: {found['word'].upper()}: {found['headline']}")
    return texts


def _calibration_paragraph(facts: Facts) -> str:
    """How a calibrator was chosen, and what was measured."""
    about = facts.get("calibration")
    if not about or about["method"] != "auto":
        return ""
    folds = ", ".join(f"{name} in {count}" for name, count in about["by_fold"].items())
    if about["chosen"] in NOTHING:
        change = row_of(facts, "auto-nested")["changes"].get("nll")
        if not change or set(about["by_fold"]) <= set(NOTHING):
            return ""
        own = {"metric": "nll", "sure": False, "tried": 1, **change}
        return (
            "p is kept. The folds did not always choose so "
            f"({folds}): with their choices {METRICS['nll'].name} would change by {change_text(own)}."
        )
    return (
        f'The "after" figures are cross-fitted, including the choice: each of {about["n_folds"]} folds got '
        f"the method that the other folds chose ({folds})."
    )


TRAINED_ALIKE = "none-default"
"""The uncalibrated probe by this package's own preset: what methods of that preset are fairly judged by."""


def _training_paragraph(facts: Facts) -> str:
    """How much of a gain over a probe trained by another preset may be the training's."""
    if facts["kind"] != "comparison":
        return ""
    for own in (facts["recommended"] or {}).values():
        best = (own or {}).get("method")
        if best is None or not own["sure"]:
            continue
        if facts["presets"][best] == facts["presets"][facts["baseline"]]:
            continue
        if best == TRAINED_ALIKE:
            return f"The gain is due to the training: {best} does not calibrate."
        text = (
            f"{best} was trained with another preset than {facts['baseline']}, so the gain may be due to the "
            "training"
        )
        if TRAINED_ALIKE not in facts["methods"]:
            return f"{text}: compare it with {TRAINED_ALIKE} too."
        loss = number(row_of(facts, TRAINED_ALIKE)[own["metric"]])
        return (
            f"{text}: with the same training, the uncalibrated probe ({TRAINED_ALIKE}) has a "
            f"{METRICS[own['metric']].name} of {loss}."
        )
    return ""


# Differences between files


def difference_sentences(facts: Facts) -> dict[str, str]:
    """What the differences to the first file show over all cases and in strata: other file -> sentence.

    Examples
    --------
    >>> row = {"model": "b.csv", "stratum": "overall", "n": 90, "metric": "nll", "difference": -0.02}
    >>> row |= {"low": -0.03, "high": -0.01, "p_holm": 0.004}
    >>> difference_sentences({"baseline": "a.csv", "agreement": True, "differences": [row]})
    {'b.csv': 'b.csv has lower label NLL than a.csv, by 0.020 [0.010, 0.030].'}
    """
    by_model: dict[str, dict[str, list[Row]]] = {}
    for row in facts["differences"]:
        strata = by_model.setdefault(row["model"], {"overall": []})
        if METRICS[row["metric"]].tested and is_known(row["p_holm"]):
            strata.setdefault(row["stratum"], []).append(row)
    out = {}
    for model, strata in by_model.items():
        text = _whole_difference(model, facts["baseline"], strata.pop("overall"))
        parts = []
        for stratum, rows in strata.items():
            clear = [_difference(row) for row in rows if row["p_holm"] < LEVEL]
            if clear:
                name = stratum
                if facts["agreement"]:
                    name = f"{stratum} agreement"
                parts.append(f"on {name} ({_cases(rows[0])}) {listed(clear)}")
        if parts:
            text += f" By stratum: {'; '.join(parts)}."
        out[model] = text
    return out


def _whole_difference(model: str, first: str, rows: Sequence[Row]) -> str:
    if not rows:
        return f"There are too few cases or groups to distinguish {model} from {first}."
    clear = [row for row in rows if row["p_holm"] < LEVEL]
    unclear = listed([METRICS[row["metric"]].name for row in rows if row["p_holm"] >= LEVEL], "or")
    if not clear:
        return f"{model} does not clearly differ from {first} in {unclear}."
    parts = [_difference(clear[0], f" than {first},"), *map(_difference, clear[1:])]
    text = f"{model} has {listed(parts)}"
    if unclear:
        text += f"; no clear difference in {unclear}"
    return f"{text}."


def _difference(row: Row, than: str = "") -> str:
    """One clear difference: "lower label NLL by 0.012 [0.005, 0.019]"."""
    way = "higher"
    if row["difference"] < 0:
        way = "lower"
    ends = sorted(abs(row[end]) for end in ("low", "high"))
    size = f"{abs(row['difference']):.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"
    return f"{way} {METRICS[row['metric']].name}{than} by {size}"


# What votes would buy


def _tenths(share: float) -> str:
    """A share in tenths, in words.

    Examples
    --------
    >>> _tenths(1.03), _tenths(0.88), _tenths(-0.2)
    ('all', '9/10', 'none')
    """
    tenths = min(max(round(10 * share), 0), 10)
    return {0: "none", 10: "all"}.get(tenths, f"{tenths}/10")


def voted_sentence(facts: Facts) -> str:
    """How many voted cases would buy how much of what reading everything buys; "" where not asked for.

    The whole is the gain of training on all votes. Named is the smallest number of cases that buys nine
    tenths of it, or else the number that buys most.
    """
    voted = facts.get("voted")
    if not voted:
        return ""
    points_of = {(p["reads"], p["voted"]): p["share"] for p in voted["points"]}
    panel = {
        n: share
        for (reads, n), share in points_of.items()
        if reads == "panel" and share is not None
    }
    published, shares = voted["published"]["share"], []
    if panel:
        enough = [n for n, share in panel.items() if share >= 0.9]
        n = min(enough, default=max(panel, key=lambda n: float(panel[n])))
        shares.append((f"{n} cases read by the whole panel", panel[n]))
        if points_of.get(("single", n)) is not None:
            shares.append(("one reader on each of them", points_of["single", n]))
    if published is not None:
        unread = "kappa and the share of positive votes, without a vote,"
        shares.append((unread, published))
    if not shares:
        first = [*voted["points"], voted["published"]][0]
        return f"The gain from votes cannot be estimated: {first['reason']}."
    parts = [f"{what} {_tenths(share)}" for what, share in shares[1:]]
    what, share = shares[0]
    whole = f"{what} would give {_tenths(share)} of the gain from reading all cases, judged by single votes"
    return f"{'; '.join([whole[0].upper() + whole[1:], *parts])}."


def kappa_sentence(facts: Facts) -> str:
    """What an error of the published kappa costs the answer made of it; "" where not known.

    Examples
    --------
    >>> rows = [{"factor": f, "kappa": f * 0.4, "share": s} for f, s in ((1, 0.9), (1.3, 0.5))]
    >>> kappa_sentence({"kappa_sensitivity": rows})
    'The reader probability from published numbers depends on kappa: with 0.40 it recovers 90 % of that
    gain; with one 30 % too high (0.52) 50 %.'
    """
    sensitivity = facts.get("kappa_sensitivity")
    if not sensitivity:
        return ""
    # The kappa itself first, then the wrong ones.
    own, *wrong = sorted(sensitivity, key=lambda row: abs(row["factor"] - 1))
    if any(row["share"] is None for row in sensitivity):
        values = [number(row["vote_nll"], 4) for row in (own, *wrong)]
        parts = [f"with {own['kappa']:.2f} its vote NLL is {values[0]}"]
    else:
        values = [f"{100 * row['share']:.0f} %" for row in (own, *wrong)]
        parts = [f"with {own['kappa']:.2f} it recovers {values[0]} of that gain"]
    for row, value in zip(wrong, values[1:], strict=True):
        off = round(100 * (row["kappa"] / own["kappa"] - 1))
        way = "low"
        if off > 0:
            way = "high"
        parts.append(f"with one {abs(off)} % too {way} ({row['kappa']:.2f}) {value}")
    return f"The reader probability from published numbers depends on kappa: {'; '.join(parts)}."


# Several models on one page


def tally(cells: Sequence[Facts]) -> dict[str, Any]:
    """The verdict on several models: how many have which badge.

    Attention only where some model's tests still reject after Holm's correction for all models.
    """
    verdicts = [cell["verdict"] for cell in cells]
    adjusted = holm([nan if v["p"] is None else v["p"] for v in verdicts])
    named: dict[str, list[str]] = {badge: [] for badge in BADGES}
    beyond_chance = False
    for cell, p in zip(cells, adjusted, strict=True):
        named[cell["verdict"]["badge"]].append(cell["name"])
        beyond_chance = beyond_chance or (cell["verdict"]["badge"] == "attention" and p < LEVEL)
    counts = {badge: len(names) for badge, names in named.items()}
    parts = []
    for badge, count in counts.items():
        if count:
            parts.append(f"{count} {BADGES[badge].lower()}")
    headline = f"Of {len(cells)} models: {', '.join(parts)}"
    if 0 < counts["attention"] <= 3:
        headline += f"; attention for {listed(named['attention'])}"
    badge = "inconclusive"
    if beyond_chance:
        badge = "attention"
    elif counts["attention"]:
        headline += f". After correction for {len(cells)} models, no error is significant"
    elif counts["good"] == len(cells):
        badge = "good"
    return {
        "badge": badge,
        "word": BADGES[badge],
        "headline": f"{headline}.",
        "numbers": [
            {"name": "Models", "value": f"{len(cells)}"},
            {"name": "Typical error", "value": _range([v["error"] for v in verdicts], points)},
        ],
        "criterion": CRITERION,
        "tally": counts,
        "p": min((float(p) for p in adjusted if is_known(p)), default=None),
    }


def _range(values: Sequence[float | None], text: Callable[[float], str] = number) -> str:
    """The least and the largest of some numbers."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return " to ".join(dict.fromkeys([text(min(known)), text(max(known))]))


def answers(cells: Sequence[Facts], found: Facts) -> list[dict[str, str]]:
    """Answers to the three questions on several models, whose verdict is their `tally`."""
    count, everywhere = len(cells), "Everywhere?"
    calibrated = "Unclear for some"
    if found["badge"] == "attention":
        calibrated = f"{found['tally']['attention']} of {count} in need of attention"
        everywhere = "Where not?"
    elif found["badge"] == "good":
        calibrated = "All are"
    # Means over seeds, as in the table of models below.
    rows = [row_of(cell, cell["baseline"]) for cell in cells]
    errors, floors = ([row[key] for row in rows] for key in ("ece", "floor"))
    overall = "Overall ECE"
    if any(cell["judged"] != cell["baseline"] for cell in cells):
        overall += " before recalibration"
    failing, helped = {}, {}
    for cell in cells:
        parts = [name for name in cell["verdict"]["failing"] if name != "overall"]
        if parts:
            failing[cell["name"]] = listed(parts)
        methods = recommended_methods(cell)
        if methods:
            helped[cell["name"]] = listed(methods)
    where = {
        "question": everywhere,
        "heading": "No subset stands out",
        "text": "No subset of any model fails its test.",
    }
    if failing:
        where |= {
            "heading": f"{len(failing)} of {count} fail on some cases",
            "text": _by_name(failing),
        }
    todo = {
        "question": "What to do?",
        "heading": "No method is recommended",
        "text": "None improves any model significantly.",
    }
    if helped:
        todo |= {
            "heading": f"{len(helped)} of {count} improve with a method",
            "text": _by_name(helped),
        }
    return [
        {
            "question": "Are they calibrated?",
            "heading": calibrated,
            "text": f"{overall} is {_range(errors)}; calibrated models would show {_range(floors)}.",
        },
        where,
        todo,
    ]


def _by_name(named: Mapping[str, str]) -> str:
    return f"{some_of([f'{name}: {what}' for name, what in named.items()], mark='; ')}."
