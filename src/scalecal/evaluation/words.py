"""Facts in words, once: the verdict, its three answers, and at most one paragraph per topic.

Terminal, page, notebook, LaTeX and model card show these sentences as they stand here. No sentence claims
more than its test bears, and none says what another has said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from scalecal.evaluation.judging import LEVEL, LIMIT, SMALL, interval_sign
from scalecal.io.text import change_text, is_known, listed, number, p_text, percent, points
from scalecal.metrics import METRICS
from scalecal.metrics.grouping import MIN_GROUPS

Facts = Mapping[str, Any]
Row = Mapping[str, Any]

BADGES = {"good": "Good", "attention": "Attention", "inconclusive": "Inconclusive"}
"""Badge -> its word."""

CRITERION = (
    f"Attention: a test rejects calibration at the {100 * LEVEL:.0f} % level, corrected for all tests "
    f"(Holm), and the error may exceed {100 * SMALL:.0f} points. Good: no error of more than "
    f"{100 * LIMIT:.0f} points is left possible by the 95 % intervals. Inconclusive: neither."
)
"""How a badge is given, in words."""

DIFFICULTY = {
    "easy": "the most confident predictions",
    "middle": "moderately confident predictions",
    "hard": "the least confident predictions",
}
FORESEEN = {
    "easy": "readers are expected to agree",
    "middle": "between agreement and dispute",
    "hard": "readers are expected to split",
}
"""Strata of predicted difficulty in words: by the model's own probability, or by p_split."""

AGREEMENT = {
    "high": "nearly all readers agree",
    "medium": "a clear majority of the readers",
    "low": "the readers split",
}
"""Strata of agreement in words."""

NOTHING = ("none", "reader-only")
"""Names of leaving p as it is."""


def title_of(metric: str) -> str:
    """Name of a metric inside a sentence."""
    return METRICS[metric].name


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
    if judged["badge"] == "attention":
        if judged["overall"]:
            return f"{_error(audit)}."
        return f"{_on(audit, _worst(audit))} {_part_error(audit, _worst(audit))}."
    if judged["badge"] == "good":
        return f"Its probabilities are well calibrated: {_averages(row)}."
    if not is_known(judged["p"]):
        return f"There is no verdict: {_why(row)}."
    if judged["hint"]:
        return "There are signs of an error, but they may be chance: two kinds of tests were made."
    return f"Too few cases to say: no error was found, but {_possible(audit)}."


def _averages(row: Row) -> str:
    right = row["accuracy"]
    said = percent(right + row["overconfidence"])
    return f"on average it says {said} and is right {percent(right)} of the time"


def _error(audit: Facts) -> str:
    """What is wrong over all cases, as a clause."""
    row, kind = audit["rows"][0], audit["judgement"]["kind"]
    if kind == "over":
        return f"It is over-confident: {_averages(row)}"
    if kind == "under":
        return f"It is under-confident: {_averages(row)}"
    if kind:
        classes = audit["meta"]["classes"]
        positive = "positive" if len(classes) == 2 and classes[1] == "1" else classes[-1]
        return (
            f"Its probabilities are too {kind}: on average it expects {percent(row['mean_p'])} "
            f"{positive}, where {percent(row['prevalence'])} are"
        )
    return (
        f"Its probabilities do not fit the labels: the calibration error (ECE) is {points(row['ece'])}, "
        f"where a calibrated model would show {points(row['floor'])}"
    )


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
    key = "vote_overconfidence" if abs(sure) >= abs(gap) else "vote_gap"
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


def _gloss(audit: Facts, part: Row) -> str:
    if part["kind"] == "votes":
        return (FORESEEN if audit["judgement"]["foreseen"] else DIFFICULTY)[part["name"]]
    if part["kind"] == "agreement":
        return AGREEMENT.get(part["name"], "")
    return ""


def _title(part: Row) -> str:
    if part["kind"] == "votes":
        return f"{part['name']} cases"
    if part["kind"] == "agreement":
        return f"{part['name']} agreement"
    return f"the stratum {part['name']}"


def _on(audit: Facts, part: Row) -> str:
    """Name a part of the cases, with its size and what it is."""
    n, gloss = number(part["n"]), _gloss(audit, part)
    if part["kind"] == "votes":
        return f"On the {n} {_title(part)} ({gloss})"
    about = f"{gloss}, n = {n}" if gloss else f"n = {n}"
    return f"On {_title(part)} ({about})"


def _inside(text: str) -> str:
    """A sentence or phrase as it stands after a colon or inside another."""
    if text.startswith("On "):
        return f"o{text[1:]}"
    return text


def _listed(parts: Sequence[Row]) -> str:
    """Names of some parts: "easy and hard cases", "low agreement", "the strata A, B and C"."""
    names = listed([str(part["name"]) for part in parts])
    if parts[0]["kind"] == "stratum":
        many = "strata" if len(parts) > 1 else "stratum"
        return f"the {many} {names}"
    return f"{names} {_title(parts[0]).split()[-1]}"


def _why(row: Row) -> str:
    """Why nothing could be tested."""
    reason = row.get("reason") or ""
    reason = reason.removesuffix(" for a floor, a test or an interval")
    reason = reason.removesuffix(" for an interval")
    return reason or "too few cases, or probabilities too extreme, for any test"


def _possible(audit: Facts) -> str:
    """The largest error that is not ruled out, and where."""
    judged, row = audit["judgement"], audit["rows"][0]
    high = judged["error_high"]
    if not is_known(high):
        return "how large one could hide is not known"
    if high > LIMIT:
        return f"one of {points(high)} could hide in {_cases(row)}"
    unsure = [
        part for part in _tested(audit) if not (is_known(part["high"]) and part["high"] <= LIMIT)
    ]
    if unsure and is_known(unsure[-1]["high"]):
        worst = max(unsure, key=lambda part: float(part["high"]))
        return f"one of {points(worst['high'])} could hide {_inside(_on(audit, worst))}"
    return f"{_title(judged['parts'][-1])} could not be judged"


def _cases(row: Row) -> str:
    cases = "1 case" if row["n"] == 1 else f"{number(row['n'])} cases"
    groups = row.get("n_groups")
    if not groups:
        return cases
    return f"{cases} of 1 group" if groups == 1 else f"{cases} of {number(groups)} groups"


def _numbers(audit: Facts) -> list[dict[str, str]]:
    """Name and value of the numbers beneath the headline."""
    judged, row, meta = audit["judgement"], audit["rows"][0], audit["meta"]
    out = [("Cases", number(row["n"]))]
    if meta.get("n_effective") is not None:
        worth = f"{percent(meta['prevalence'])} positive (worth {meta['n_effective']:,.0f} cases)"
        out.append(("Reweighted to", worth))
    if row.get("n_groups"):
        out.append(("Groups", number(row["n_groups"])))
    if is_known(judged["error_high"]):
        upto = f"{points(judged['error'])} (up to {100 * judged['error_high']:.0f} possible)"
        out.append(("Typical error", upto))
    if is_known(judged["p"]):
        out.append(("All tests, corrected", p_text(judged["p"])))
    return [{"name": name, "value": value} for name, value in out]


def _calibrated(audit: Facts) -> dict[str, str]:
    """Is it calibrated? The only sentence that states the overall ECE, its n and its floor."""
    judged, row = audit["judgement"], audit["rows"][0]
    text = f"Its calibration error (ECE) is {points(row['ece'])} on {_cases(row)}"
    if is_known(row["floor"]):
        text += f"; a calibrated model would show {points(row['floor'])} by chance"
    if judged["badge"] == "attention":
        ways = {"over": ": over-confident", "under": ": under-confident"}
        ways |= {"high": ": too high", "low": ": too low", "": ""}
        if judged["overall"]:
            heading = f"No{ways[judged['kind']]}"
        elif judged["reader"]:
            heading = "Not for single readers"
            text += ". Against the labels no test finds an error"
        else:
            heading = "Not everywhere"
            text += ". Over all cases no test finds an error"
    elif judged["badge"] == "good":
        bounds = [judged["error_high"], *(part["high"] for part in _tested(audit)), 0.01]
        heading = f"Yes, within {points(max(bounds))}"
        if judged["small"]:
            text += ". Tests find an error, but one too small to matter"
    elif not is_known(judged["p"]):
        heading = "No verdict"
    else:
        heading = "Not clear" if judged["hint"] else "Too few cases to say"
    return {"question": "Is it calibrated?", "heading": heading, "text": f"{text}."}


def _where(audit: Facts) -> dict[str, str]:
    """Where not? The parts that fail, or that none stands out."""
    judged = audit["judgement"]
    parts, tested = judged["parts"], _tested(audit)
    wrong = judged["badge"] == "attention"
    question = "Where not?" if wrong else "Everywhere?"
    failing = [part for part in tested if part["failed"]]
    if not parts:
        heading = "Not known"
        text = "The cases have no strata: give the votes of two or more readers, or a column of strata."
    elif not tested:
        heading = "Not known"
        whys = [why for part in parts if (why := _row_of(audit, part).get("reason"))]
        because = f": {whys[0]}" if whys else ""
        text = f"No part of the cases can be judged{because}."
    elif wrong and failing:
        worst = _worst(audit)
        heading = f"On {_listed(failing)}"
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
        heading = "No part stands out"
        widest = max(tested, key=lambda part: part["high"] if is_known(part["high"]) else -1.0)
        text = f"The widest margin: {_margin(audit, widest)}."
        if missing := [part for part in parts if part not in tested]:
            text += f" Not judged: {_listed(missing)}."
    return {"question": question, "heading": heading, "text": text}


def _margin(audit: Facts, part: Row) -> str:
    row, where = _row_of(audit, part), _inside(_on(audit, part))
    if part["kind"] != "votes":
        return f"{where} an error of {points(row['ece'])}, {points(row['null'])} for a calibrated model"
    return (
        f"{where} it gives {percent(row['vote_confidence'])} to the class it prefers, readers "
        f"{percent(row['vote_agreement'])}"
    )


def vote_paragraph(audit: Facts) -> str:
    """What the votes say of a reader's probability, or of the label's where there is no other; or ""."""
    row, meta = audit["rows"][0], audit["meta"]
    if not row.get("n_votes"):
        return ""
    nll, floor = number(row["vote_nll"]), number(row["vote_nll_floor"])
    start = (
        f"Against the readers' {number(row['n_votes'])} votes the vote NLL is {nll}; true vote "
        f"probabilities would have {floor}"
    )
    if meta.get("votes_judge") == "p_reader":
        return f"{start}: {_vote_error(row)}."
    panels = [m for m in meta.get("n_raters", ()) if m > 2]
    if not panels:
        return f"{start}."
    sizes = " to ".join(map(str, sorted({min(panels), max(panels)})))
    return (
        f"{start}. A probability that is right for the majority of {sizes} readers is more extreme than one "
        "reader's, so one number cannot be right for both: p_reader, a second one, is for single votes."
    )


def _vote_error(row: Row) -> str:
    """Which way a reader's probability is wrong, where an interval excludes 0.

    Whether it is wrong is the verdict by predicted difficulty: two more intervals, each of 95 %, would find
    fault with one right model in eight, and contradict it.
    """
    if not is_known(row["vote_excess_low"]):
        return f"there is no verdict on p_reader, {row.get('reason') or 'too few cases have votes'}"

    def between(name: str) -> str:
        low, high = (number(row[f"{name}_{end}"]) for end in ("low", "high"))
        return f"{number(row[name])}, 95 % interval {low} to {high}"

    excess = between("vote_excess")
    p = row.get("p_votes_holm")
    if not is_known(p) or float(p or 0.0) >= LEVEL:
        return f"no miscalibration of p_reader is found (difference {excess})"
    wrong = []
    if sure := interval_sign(row, "vote_excess"):
        way = "over-confident" if sure > 0 else "under-confident"
        wrong.append(f"p_reader is {way} about single votes (difference {excess})")
    if shift := interval_sign(row, "vote_gap"):
        way = "high" if shift > 0 else "low"
        wrong.append(
            f"p_reader is too {way} on average (mean less vote share {between('vote_gap')})"
        )
    if wrong:
        return "; ".join(wrong)
    return f"errors of opposite sign cancel over all cases (difference {excess})"


# What to do


def advice(facts: Facts) -> dict[str, str]:
    """What to do, from the recommendation: one heading and one text, the same everywhere."""
    heading, text = _ADVICE[facts["kind"]](facts)
    return {"question": "What to do?", "heading": heading, "text": text}


def _audit_advice(facts: Facts) -> tuple[str, str]:
    audit = facts["audits"][facts["judged"]]
    badge, row, meta = audit["judgement"]["badge"], audit["rows"][0], audit["meta"]
    if badge == "good":
        return "Nothing", "Use the probabilities as they are, on cases like these."
    if badge == "inconclusive":
        return _collect(audit)
    if row["prevalence"] in (0.0, 1.0):
        text = "All cases are of one class: collect cases of the others before it is judged again."
        return "Check the labels", text
    if meta.get("n_effective") is not None:
        odds = [share / (1.0 - share) for share in (meta["prevalence"], meta["sample_prevalence"])]
        text = (
            "Calibrate it on these cases as they were sampled (scalecal calibrate), then add "
            f"{log(odds[0] / odds[1]):+.2f} to its log-odds for this prevalence."
        )
        return "Recalibrate it", text
    return _calibrator_advice(facts)


def _calibrator_advice(facts: Facts) -> tuple[str, str]:
    """Which calibrator `scalecal calibrate` would choose for these predictions, and on what evidence."""
    found = facts["recommended"]
    if found is None:
        text = (
            "These cases are too few to fit a calibrator: fit one (scalecal calibrate) on others."
        )
        return "Recalibrate it", text
    own = found["p"]
    reader = " It adds p_reader, one reader's answer, from the votes."
    if own["method"] in NOTHING:
        text = f"None of {own['tried']} calibrators has a lower cross-fitted label NLL."
        if found["adds_reader"]:
            text += " Run scalecal calibrate --method none: p stays." + reader
            return "Add a reader's answer", text
        return "Do not rely on its probabilities", text
    text = (
        f"Run scalecal calibrate --method {own['method']}: cross-fitted label NLL changes by "
        f"{change_text(own)}{_chance(own)}."
    )
    return "Recalibrate it", text + (reader if found["adds_reader"] else "")


def _chance(own: Row) -> str:
    """What is said of a gain that is no more than chance may give."""
    if own["sure"]:
        return ""
    if own["low"] is None:
        return ", with too few cases or groups to say whether by chance"
    return ", which may be chance"


def _collect(audit: Facts) -> tuple[str, str]:
    row = audit["rows"][0]
    if (row.get("n_groups") or MIN_GROUPS) < MIN_GROUPS:
        text = f"Cases of at least {MIN_GROUPS} groups (patients, slides) are needed for a verdict."
        return "Collect more groups", text
    return "Collect more cases", more_cases(row["n"], audit["judgement"]["error_high"])


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


def _calibration_advice(facts: Facts) -> tuple[str, str]:
    about = facts["calibration"]
    chosen, own = about["chosen"], facts["recommended"]["p"]
    if chosen in NOTHING:
        heading = "Leave p as it is"
        text = f"None of {own['tried']} calibrators has a lower cross-fitted label NLL."
        if about["method"] != "auto":
            text = "This was asked for."
    else:
        heading = "Use the recalibrated probabilities"
        text = f"They are those of --method {chosen}: {_gain(own)}."
    gains = facts["recommended"]["p_reader"]
    if gains is not None and gains["method"] not in NOTHING[:1]:
        text += f" p_reader is judged by votes: {_gain(gains)}."
    return heading, text


def _gain(own: Row) -> str:
    """A change against the baseline: "label NLL falls by 0.050 [0.020, 0.081]"."""
    what = title_of(own["metric"])
    if own["low"] is None:
        return f"{what} changes by {change_text(own)}; too few cases or groups to say more"
    if own["high"] < 0:
        return f"{what} falls beyond chance, {change_text(own)}"
    if own["low"] > 0:
        return f"{what} rises beyond chance, {change_text(own)}"
    return f"{what} does not change beyond chance, {change_text(own)}"


def _choice_advice(facts: Facts) -> tuple[str, str]:
    """Which of several methods or files to use: one for the label, one for a reader's vote."""
    found, what = facts["recommended"], "file" if facts["kind"] == "files" else "method"
    if found is None:
        return (
            "Nothing to choose from",
            f"There is no {what} beside {facts['baseline']} to recommend.",
        )
    parts, used = [], []
    for answer, whose in (("p", "the label"), ("p_reader", "a reader's vote")):
        own = found[answer]
        if own is None:
            continue
        if own["sure"]:
            used.append(own["method"])
            parts.append(
                f"For {whose} {_named(facts, own['method'])}: {_gain(own)}{_price(facts, own)}."
            )
        elif own["method"] == facts["baseline"] or own["low"] is not None:
            parts.append(
                f"For {whose} none of {own['tried']} {what}s improves on {facts['baseline']} beyond chance."
            )
        else:
            parts.append(f"For {whose} no {what} can be judged: too few {facts['resampled']}.")
    names = listed(list(dict.fromkeys(used)))
    if names:
        return f"Use {names}", " ".join(parts)
    if facts["audits"][facts["judged"]]["judgement"]["badge"] == "attention":
        return "Do not rely on its probabilities", " ".join(parts)
    return "Keep what you have", " ".join(parts)


def _named(facts: Facts, method: str) -> str:
    if facts["kind"] == "files":
        return method
    return f"--method {method}"


def _price(facts: Facts, own: Row) -> str:
    """What a recommended method costs beyond chance by the other answer, or against plain softening."""
    row = row_of(facts, own["method"])
    other = "nll" if own["metric"] == "vote_nll" else "vote_nll"
    change = row["changes"].get(other)
    text = ""
    if change and is_known(change["low"]) and change["low"] > 0:
        text = f" (but {title_of(other)} rises, {change_text(change)})"
    if remark := softening_remark(facts, own["method"]):
        text += f" ({remark})"
    return text


_ADVICE = {
    "audit": _audit_advice,
    "calibration": _calibration_advice,
    "files": _choice_advice,
    "comparison": _choice_advice,
}
"""Kind of evaluation -> what to do."""


def row_of(facts: Facts, method: str, stratum: str = "overall") -> Row:
    """The row of a method and stratum; one without changes where there is none."""
    for row in facts["rows"]:
        if (row["method"], row["stratum"]) == (method, stratum):
            found: Row = row
            return found
    return {"changes": {}}


def softening_remark(facts: Facts, method: str) -> str:
    """What stands beside the name of a method whose gain is no more than softening's; else ""."""
    if facts["kind"] != "comparison":
        return ""
    beyond = facts["softening"].get(method)
    if beyond is None or beyond["better"] or method == facts["baseline"]:
        return ""
    change = row_of(facts, method)["changes"].get(beyond["metric"])
    if change and change["difference"] is not None and change["difference"] < 0:
        return "no clear gain over softening"
    return ""


# One evaluation


def put_into_words(facts: dict[str, Any]) -> None:
    """Add to the facts of an evaluation everything that is said of it.

    ``verdict`` (the badge with its headline), ``lead`` (answers to three questions) and ``paragraphs``
    (at most one per topic).
    """
    made = {name: audit["verdict"] for name, audit in facts["audits"].items()}
    own = {key: value for key, value in made[facts["judged"]].items() if key != "answers"}
    answers = made[facts["judged"]]["answers"]
    if facts["kind"] == "calibration":
        chosen = facts["calibration"]["chosen"]
        own["headline"] = f"After {chosen}: {_inside(own['headline'])}"
        before = {"name": "Before", "value": made[facts["baseline"]]["word"]}
        own["numbers"] = [before, *own["numbers"]]
    if facts["kind"] == "files":
        others = [{"name": name, "value": other["word"]} for name, other in made.items()]
        own["headline"] = f"{facts['baseline']}: {own['headline']}"
        own["numbers"] = [*own["numbers"], *others]
        answers = [{**a, "heading": f"{facts['baseline']}: {a['heading']}"} for a in answers]
    facts["verdict"] = own
    facts["lead"] = [*answers, advice(facts)]
    facts["paragraphs"] = paragraphs(facts)


def paragraphs(facts: Facts) -> list[str]:
    """What is to be said beside the verdict: one paragraph per topic that there is."""
    audit = facts["audits"][facts["judged"]]
    topics = [
        _seed_note(facts),
        vote_paragraph(audit),
        _calibration_paragraph(facts),
        *difference_sentences(facts),
        _softening_paragraph(facts),
        _training_paragraph(facts),
        voted_sentence(facts),
        kappa_sentence(facts),
        _scale_paragraph(facts),
    ]
    return [text for text in topics if text]


def sentences(facts: Facts) -> list[str]:
    """Every sentence on an evaluation, in order: headline, three answers, paragraphs."""
    found = facts["verdict"]
    first = f"{found['word'].upper()}: {found['headline']}"
    answers = [f"{a['question']} {a['heading']}. {a['text']}" for a in facts["lead"]]
    return [first, *answers, *facts["paragraphs"]]


def _seed_note(facts: Facts) -> str:
    if facts["n_seeds"] < 2:
        return ""
    return f"The verdict is of seed {facts['seed']}, one of {facts['n_seeds']}; changes are means over seeds."


def _calibration_paragraph(facts: Facts) -> str:
    """How a calibrator was chosen, and what was measured."""
    about = facts.get("calibration")
    if not about or about["method"] != "auto" or about["chosen"] in NOTHING:
        return ""
    folds = ", ".join(f"{name} in {count}" for name, count in about["by_fold"].items())
    return (
        f'The "after" figures are cross-fitted, the choice included: each of {about["n_folds"]} folds got '
        f"what the other folds chose ({folds})."
    )


def _softening_paragraph(facts: Facts) -> str:
    """Which methods gain more than one temperature of the same mean entropy would."""
    if facts["kind"] != "comparison" or not facts["softening"]:
        return ""
    better = [m for m, beyond in facts["softening"].items() if beyond["better"]]
    metric = title_of(next(iter(facts["softening"].values()))["metric"])
    if not better:
        return f"No method has a clearly lower {metric} than plain softening by one temperature."
    return f"Clearly lower {metric} than plain softening by one temperature: {listed(better)}."


TRAINED_ALIKE = "none-default"
"""The uncalibrated probe by this package's own preset: what methods of that preset are fairly judged by."""


def _training_paragraph(facts: Facts) -> str:
    """How much of a gain over a probe trained by another preset may be the training's."""
    found = facts["recommended"]
    if facts["kind"] != "comparison" or found is None:
        return ""
    own = next((own for own in (found["p"], found["p_reader"]) if own and own["sure"]), None)
    if own is None or facts["presets"][own["method"]] == facts["presets"][facts["baseline"]]:
        return ""
    best = own["method"]
    if best == TRAINED_ALIKE:
        return f"What helps here is the training: {best} calibrates nothing."
    text = f"{best} was trained by another preset than {facts['baseline']}"
    if TRAINED_ALIKE in facts["methods"]:
        alike = number(row_of(facts, TRAINED_ALIKE)[own["metric"]])
        return (
            f"{text}: trained alike, the uncalibrated probe ({TRAINED_ALIKE}) has a "
            f"{title_of(own['metric'])} of {alike}."
        )
    return f"{text}, so the gain need not be its own: a run with {TRAINED_ALIKE} would show it."


# Differences between files


def difference_sentences(facts: Facts) -> list[str]:
    """What the differences to the first file show over all cases and in strata, a sentence for each other.

    Examples
    --------
    >>> row = {"model": "b.csv", "stratum": "overall", "n": 90, "metric": "nll", "difference": -0.02}
    >>> row |= {"low": -0.03, "high": -0.01, "p_holm": 0.004}
    >>> difference_sentences({"baseline": "a.csv", "agreement": True, "differences": [row]})
    ['b.csv has lower label NLL than a.csv, by 0.020 [0.010, 0.030].']
    """
    by_model: dict[str, list[Row]] = {}
    for row in facts["differences"]:
        if METRICS[row["metric"]].tested:
            by_model.setdefault(row["model"], []).append(row)
    out = []
    for model, rows in by_model.items():
        text = _whole_difference(
            model, facts["baseline"], [r for r in rows if r["stratum"] == "overall"]
        )
        parts = [r for r in rows if r["stratum"] != "overall" and is_known(r["p_holm"])]
        clear = [r for r in parts if r["p_holm"] < LEVEL]
        if clear:
            text += f" By stratum: {_stratum_differences(clear, facts['agreement'])}."
        out.append(text)
    return out


def _whole_difference(model: str, first: str, rows: Sequence[Row]) -> str:
    judged = [row for row in rows if is_known(row["p_holm"])]
    if not judged:
        return f"There are too few cases or groups to tell {model} from {first}."
    clear = [row for row in judged if row["p_holm"] < LEVEL]
    unclear = listed([title_of(row["metric"]) for row in judged if row["p_holm"] >= LEVEL], "or")
    if not clear:
        if all(row["low"] == row["high"] == 0 for row in judged):
            return f"{model} does not differ from {first} in {unclear}."
        return f"{model} does not clearly differ from {first} in {unclear}."
    said = [_difference(clear[0], f" than {first},"), *map(_difference, clear[1:])]
    text = f"{model} has {listed(said)}"
    if unclear:
        text += f"; no clear difference in {unclear}"
    return f"{text}."


def _stratum_differences(clear: Sequence[Row], agreement: bool) -> str:
    parts = []
    for stratum in dict.fromkeys(row["stratum"] for row in clear):
        inside = [row for row in clear if row["stratum"] == stratum]
        name = f"{stratum} agreement" if agreement else stratum
        parts.append(f"on {name} ({_cases(inside[0])}) {listed([_difference(r) for r in inside])}")
    return "; ".join(parts)


def _difference(row: Row, than: str = "") -> str:
    """One clear difference: "lower label NLL by 0.012 [0.005, 0.019]"."""
    way = "lower" if row["difference"] < 0 else "higher"
    ends = sorted(abs(row[end]) for end in ("low", "high"))
    size = f"{abs(row['difference']):.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"
    return f"{way} {title_of(row['metric'])}{than} by {size}"


# What votes would buy


def _tenths(share: float) -> str:
    """A share in tenths, in words.

    Examples
    --------
    >>> _tenths(1.03), _tenths(0.88), _tenths(-0.2)
    ('all', '9/10', 'nothing')
    """
    tenths = round(10 * share)
    if tenths >= 10:
        return "all"
    return f"{tenths}/10" if tenths > 0 else "nothing"


def voted_sentence(facts: Facts) -> str:
    """How many voted cases would buy how much of what reading everything buys; "" where not asked for.

    The whole is the gain of training on all votes. Named is the smallest number of cases that buys nine
    tenths of it, or else the number that buys most.
    """
    voted = facts.get("voted")
    if not voted:
        return ""
    panel = [p for p in voted["points"] if p["reads"] == "panel" and p["share"] is not None]
    published = voted["published"]["share"]
    bought = "what reading everything buys, judged by one reader's vote"
    unread = "kappa and the share of positive votes, without a vote,"
    if not panel and published is not None:
        return f"{unread.capitalize()} would buy {_tenths(published)} of {bought}."
    if not panel:
        first = voted["points"][0] if voted["points"] else voted["published"]
        return f"What votes would buy cannot be said: {first['reason']}."
    most = max(panel, key=lambda p: float(p["share"]))
    chosen = next((p for p in panel if p["share"] >= 0.9), most)
    parts = [
        f"{chosen['voted']} cases read by the whole panel would buy {_tenths(chosen['share'])} of {bought}"
    ]
    for point in voted["points"]:
        if point["reads"] == "single" and point["voted"] == chosen["voted"]:
            parts.append(f"one reader on each of them {_tenths(point['share'])}")
    if published is not None:
        parts.append(f"{unread} {_tenths(published)}")
    return "; ".join(parts) + "."


def kappa_sentence(facts: Facts) -> str:
    """What an error of the published kappa costs the answer made of it; "" where not asked for.

    Examples
    --------
    >>> rows = [{"factor": f, "kappa": f * 0.4, "share": s} for f, s in ((1, 0.9), (1.3, 0.5))]
    >>> kappa_sentence({"kappa_sensitivity": rows})
    'The answer from published numbers rests on kappa: with 0.40 it recovers 90 % of that gain; with one
    30 % too high (0.52) 50 %.'
    """
    sensitivity = facts.get("kappa_sensitivity")
    if not sensitivity:
        return ""
    by_share = all(row["share"] is not None for row in sensitivity)
    # The kappa itself first, then the wrong ones.
    own, *wrong = sorted(sensitivity, key=lambda row: abs(row["factor"] - 1))

    def value(row: Row) -> str:
        if by_share:
            return f"{100 * row['share']:.0f} %"
        return number(row["vote_nll"], 4)

    said = f"its vote NLL is {value(own)}"
    if by_share:
        said = f"it recovers {value(own)} of that gain"
    parts = [f"with {own['kappa']:.2f} {said}"]
    for row in wrong:
        off = round(100 * (row["kappa"] / own["kappa"] - 1))
        way = "high" if off > 0 else "low"
        parts.append(f"with one {abs(off)} % too {way} ({row['kappa']:.2f}) {value(row)}")
    return f"The answer from published numbers rests on kappa: {'; '.join(parts)}."


# SCALE


def _scale_paragraph(facts: Facts) -> str:
    """SCALE against plain label smoothing and against its negative control, where both were run."""
    contrasts = facts.get("contrasts") or {}
    parts = []
    if "plain" in contrasts:
        parts.append(_scale_sentence(contrasts["plain"], facts["recovered"]["scale"]))
    if "control" in contrasts:
        parts.append(_control_sentence(contrasts["control"]))
    return " ".join(parts)


def _contrast(contrast: Row) -> str:
    """The difference with its interval over cases; and over seeds, where only they leave it open."""
    text = f"difference {change_text(contrast)}"
    by_cases = is_known(contrast["low"]) and (contrast["low"] > 0 or contrast["high"] < 0)
    if by_cases and (contrast["p_seeds"] or 0.0) >= LEVEL:
        text += f" over cases, but p = {contrast['p_seeds']:.2f} over seeds"
    return text


def _side(contrast: Row) -> int:
    """-1 where a method is clearly better than its rival, 1 where worse, 0 where neither."""
    if not is_known(contrast["low"]) or not contrast["p_value"] < LEVEL:
        return 0
    return int(contrast["low"] > 0) - int(contrast["high"] < 0)


def _scale_sentence(plain: Row, share: Row) -> str:
    words = {-1: "is better than", 1: "is worse than", 0: "does not clearly differ from"}
    word = "cannot be compared with"
    if plain["difference"] is not None:
        word = words[_side(plain)]
    values = f"{number(plain['value'])} against {number(plain['reference'])}"
    text = (
        f"scale (SCALE with the paper's anchors) {word} vanilla-ls (plain label smoothing) in "
        f"{title_of(plain['metric'])} ({values}, {_contrast(plain)})"
    )
    if share["share"] is not None:
        part, low, high = (100 * share[k] for k in ("share", "low", "high"))
        text += (
            f", and recovers {part:.0f} % ({low:.0f} to {high:.0f}) of what training on votes gains"
        )
    return f"{text}."


def _control_sentence(control: Row) -> str:
    what, change = title_of(control["metric"]), _contrast(control)
    if control["difference"] is not None and _side(control) < 0:
        return f"SCALE's labels matter: with them permuted (scale-shuffled) {what} is worse ({change})."
    return (
        "SCALE's negative control (scale-shuffled), the same synthetic cases with permuted labels, is not "
        f"clearly worse in {what} ({change}): here the gain need not come from the labels."
    )
