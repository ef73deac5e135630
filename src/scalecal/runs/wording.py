"""Facts in words: the comparison's table and the sentences that terminal and page share.

No sentence claims more than its test bears. Sentences on calibration and on strata are the audit's, of
the audited seed; what would help is judged by paired changes, which are means over seeds.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.auditing.sentences import (
    LEVEL,
    WIDTH,
    column_width,
    lay_out,
    overall_p,
    short_names,
)
from scalecal.auditing.verdict import BADGES, CRITERION, points
from scalecal.io.text import change_text, number
from scalecal.metrics import COLUMNS, METRICS, holm
from scalecal.metrics.columns import chosen
from scalecal.runs.cells import PUBLISHED, VOTED
from scalecal.runs.differences import difference_sentences, stratum_sentences

if TYPE_CHECKING:
    import pandas as pd

TRAINED_ALIKE = "none-default"
"""The uncalibrated probe by this package's own preset: what methods of that preset are fairly judged by."""


def compared_metrics() -> list[str]:
    """Metrics of every method and stratum, as means over seeds."""
    return chosen(lambda metric: metric.compared)


def changed_metrics(stratum: str) -> list[str]:
    """Metrics whose changes against the baseline are computed: in strata, those that decide."""
    return chosen(
        lambda metric: (
            metric.compared
            and metric.resampled
            and metric.direction != "none"
            and (stratum == "overall" or metric.main)
        )
    )


MARK = "*"
"""Beside the name of a method that shows no clear gain over softening, where there is little room."""

Facts = Mapping[str, Any]


# Tables


def comparison_table(facts: Facts) -> pd.DataFrame:
    """One row per method: means over seeds, floors, paired changes, recovered share."""
    import pandas as pd

    value = {(r["method"], r["stratum"]): r for r in facts["rows"]}
    strata = ("overall", *facts["strata"])
    lines = []
    for method in facts["methods"]:
        seeds = value.get((method, "overall"), {}).get("seeds", 0)
        line: dict[str, Any] = {"method": method, "seeds": seeds}
        line |= (
            {"voted": 0, "reads": "panel"}
            if method == PUBLISHED
            else {"voted": None, "reads": None}
        )
        for stratum in strata:
            row = value.get((method, stratum), {})
            suffix = "" if stratum == "overall" else f"_{stratum}"
            line |= {f"{metric}{suffix}": row.get(metric) for metric in compared_metrics()}
            line[f"ece{suffix}_floor"] = row.get("floor")
        for stratum in strata:
            changes = value.get((method, stratum), {}).get("changes", {})
            suffix = "" if stratum == "overall" else f"_{stratum}"
            for metric in changed_metrics(stratum):
                change = changes.get(metric, {})
                line[f"{metric}{suffix}_change"] = change.get("difference")
                for end in ("low", "high", "p"):
                    line[f"{metric}{suffix}_change_{end}"] = change.get(end)
        beyond = facts["softening"].get(method, {})
        line |= {
            "beyond_softening": beyond.get("difference"),
            "beyond_softening_low": beyond.get("low"),
            "beyond_softening_high": beyond.get("high"),
            "softening_temperature": beyond.get("temperature"),
        }
        share = facts["recovered"][method]
        line |= {"recovered": share["share"]}
        line |= {f"recovered_{key}": share[key] for key in ("low", "high", "reason")}
        lines.append(line)
    for point in (facts.get("voted") or {}).get("points", ()):
        line = {"method": VOTED, "voted": point["voted"], "reads": point["reads"]}
        line |= {m: point[m] for m in compared_metrics() if m in point} | {
            "recovered": point["share"]
        }
        line |= {f"recovered_{key}": point[key] for key in ("low", "high", "reason")}
        for metric, change in point["changes"].items():
            line[f"{metric}_change"] = change["difference"]
            line |= {f"{metric}_change_{end}": change[end] for end in ("low", "high", "p")}
        lines.append(line)
    table = pd.DataFrame(lines)
    text, whole = ("method", "reads", "recovered_reason"), ("seeds", "voted")
    kinds: dict[str, Any] = {str(c): np.float64 for c in table if c not in (*text, *whole)}
    return table.astype(kinds | dict.fromkeys(whole, "Int64"))


def _share_text(share: Mapping[str, Any]) -> str:
    if share["share"] is None:
        return "-"
    return "{:.0f} % [{:.0f}, {:.0f}]".format(*(100 * share[k] for k in ("share", "low", "high")))


def softening_remark(facts: Facts, method: str) -> str:
    """What stands beside the name of a method whose gain is no more than softening's; else ""."""
    beyond = facts["softening"].get(method)
    if facts["differences"]:  # another model's file, no remedy of the first
        return ""
    if beyond is None or beyond["better"] or method == facts["baseline"]:
        return ""
    change = _row(facts, method)["changes"].get(beyond["metric"])
    gains = change and change["difference"] is not None and change["difference"] < 0
    return "no clear gain over softening" if gains else ""


def shown_table(facts: Facts) -> pd.DataFrame:
    """The columns of the comparison a person reads, as text."""
    import pandas as pd

    value = {(r["method"], r["stratum"]): r for r in facts["rows"]}
    rows = [value.get((m, "overall"), {}) for m in facts["methods"]]
    remarks = {m: softening_remark(facts, m) for m in facts["methods"]}
    names = [f"{m} ({remark})" if remark else m for m, remark in remarks.items()]
    out: dict[str, list[str]] = {"method": names}
    for stratum in ("overall", *facts["strata"]):
        here = [value.get((m, stratum), {}) for m in facts["methods"]]
        title = "ECE" if stratum == "overall" else f"ECE {stratum}"
        out[f"{title} (floor)"] = [
            f"{number(r.get('ece'))} ({number(r.get('floor'))})" for r in here
        ]
    for key in ("nll", "vote_nll", "auc", "accuracy"):
        if any(r.get(key) is not None for r in rows):
            out[COLUMNS[key].title] = [number(r.get(key)) for r in rows]
    for key in ("nll", "vote_nll"):
        changes = [r.get("changes", {}).get(key) for r in rows]
        if any(changes):
            out[f"{COLUMNS[key].title} change [95 %]"] = [change_text(c) for c in changes]
    if beyond := facts["softening"]:
        title = COLUMNS[next(iter(beyond.values()))["metric"]].title
        out[f"{title} less softening's [95 %]"] = [
            change_text(beyond.get(m)) for m in facts["methods"]
        ]
    shares = [facts["recovered"][m] for m in facts["methods"]]
    if any(share["share"] is not None for share in shares):
        out["recovered"] = [_share_text(share) for share in shares]
    return pd.DataFrame(out)


def comparison_text(facts: Facts) -> str:
    """Lay the comparison out as text, one line per method, in `WIDTH` columns.

    Columns for which there is no room are named below, and so are methods with no clear gain over
    softening.
    """
    table = {str(title): [str(v) for v in values] for title, values in shown_table(facts).items()}
    mere = [bool(softening_remark(facts, method)) for method in facts["methods"]]
    names = short_names(facts["methods"])
    table["method"] = [
        f"{m} {MARK}" if marked else m for m, marked in zip(names, mere, strict=True)
    ]
    kept = _with_room(table, _by_importance(facts, table))
    text = lay_out([kept, *map(list, zip(*(table[title] for title in kept), strict=True))])
    notes = [f"{MARK} no clear gain over softening"] if any(mere) else []
    if left := [title for title in table if title not in kept]:
        also = ", ".join(title.removesuffix(" [95 %]").removesuffix(" (floor)") for title in left)
        notes += textwrap.wrap(f"Also in comparison.csv: {also}.", WIDTH)
    return "\n".join([text, *([""] if notes else []), *notes])


def _by_importance(facts: Facts, table: Mapping[str, Any]) -> list[str]:
    """Titles of the comparison's columns, those that matter most first."""
    first = COLUMNS["vote_nll" if COLUMNS["vote_nll"].title in table else "nll"].title
    hardest = f"ECE {facts['hardest']} (floor)"
    wanted = ["method", f"{first} change [95 %]", "ECE (floor)", hardest, first]
    wanted += [COLUMNS[key].title for key in ("nll", "auc", "accuracy")]
    return [title for title in dict.fromkeys([*wanted, *table]) if title in table]


def _with_room(table: Mapping[str, Sequence[str]], titles: Sequence[str]) -> list[str]:
    """Those of the titles, most important first, whose columns fit together; in the table's order."""
    kept, left = [], WIDTH + 2
    for title in titles:
        width = column_width(title, table[title]) + 2
        if width <= left:
            kept.append(title)
            left -= width
    return [title for title in table if title in kept]


def files_text(facts: Facts) -> str:
    """What is to be said of several files: each on its own, a line each, then how they differ."""
    alone = [
        f"{name}: {facts['audits'][name]['verdict']['word'].upper()}. "
        f"{' '.join(facts['audits'][name]['sentences'][:2])}"
        for name in facts["methods"]
    ]
    return "\n".join([*alone, "", *difference_sentences(facts), *stratum_sentences(facts)])


# Sentences


def all_sentences(facts: Facts) -> list[str]:
    """Every sentence on a cell, in order: the verdict, its three answers, details."""
    return [*verdict_sentences(facts), *facts["details"], *facts["more"]]


def verdict_sentences(facts: Facts) -> list[str]:
    """The verdict on a cell or on several, and its three answers."""
    verdict = facts["verdict"]
    answers = (f"{a['question']} {a['heading']}. {a['text']}" for a in facts["lead"])
    return [f"{verdict['word'].upper()}: {verdict['headline']}", *answers]


def verdict(cells: Sequence[Facts]) -> dict[str, Any]:
    """The verdict on one cell, that of its audited seed before any remedy, or on several; no answers."""
    if len(cells) > 1:
        return _tally(cells)
    facts = cells[0]
    made = {name: audit["verdict"] for name, audit in facts["audits"].items()}
    own = {key: value for key, value in made.pop(facts["judged"]).items() if key != "answers"}
    if facts["judged"] != facts["baseline"]:  # of a calibration: after it, beside what was before
        own["headline"] = f"After {facts['calibration']['chosen']}: {own['headline']}"
        own["numbers"] = [
            {"name": "Before", "value": made[facts["baseline"]]["word"]},
            *own["numbers"],
        ]
    if facts["differences"]:  # of several files: the first, and the badges of the others
        others = [{"name": name, "value": other["word"]} for name, other in made.items()]
        own["headline"] = f"{facts['baseline']}: {own['headline']}"
        own["numbers"] = [*own["numbers"], *others]
    return own


def lead(cells: Sequence[Facts]) -> list[dict[str, str]]:
    """Answers to three questions on one cell or on several, each with a heading that follows it."""
    if len(cells) > 1:
        return _answers(cells)
    facts = cells[0]
    answers = facts["audits"][facts["judged"]]["verdict"]["answers"][:2]
    if facts["differences"]:
        whose = facts["baseline"]
        answers = [{**answer, "heading": f"{whose}: {answer['heading']}"} for answer in answers]
    return [*answers, help_answer(facts)]


def details(facts: Facts) -> list[str]:
    """The same at length: the tests of all cases and of strata, and what helps at what price."""
    overall, *strata = facts["audits"][facts["baseline"]]["sentences"]
    seeds = facts["n_seeds"]
    which = f" This is seed {facts['seed']}, one of {seeds}." if seeds > 1 else ""
    if facts["differences"]:
        overall, *strata = (f"{facts['baseline']}: {said}" for said in (overall, *strata))
    return [overall + which, *strata[:1], help_sentence(facts)]


def _row(facts: Facts, method: str, stratum: str = "overall") -> Mapping[str, Any]:
    return next(
        (r for r in facts["rows"] if (r["method"], r["stratum"]) == (method, stratum)),
        {"changes": {}},
    )


def help_answer(facts: Facts) -> dict[str, str]:
    """What to do, in few words; gains are paired changes, means over all seeds."""
    if facts["differences"]:
        return {
            "question": "How do the files differ?",
            "heading": f"Against {facts['baseline']}",
            "text": " ".join(difference_sentences(facts)),
        }
    own = facts["audits"][facts["judged"]]["verdict"]
    advice, badge, best = own["answers"][2], own["badge"], facts["best"]
    if facts["judged"] != facts["baseline"]:
        return {**advice, **_mended(facts)}
    if len(facts["methods"]) == 1:
        return dict(advice)
    if best is not None and best["sure"]:
        return {**advice, **_use(facts, best["method"], best["metric"])}
    if badge == "attention" and best is not None and best["by_labels"]:
        return {**advice, **_use(facts, best["by_labels"], "nll")}
    tried = f"{best['tried']} {_tried(facts)}" if best else _tried(facts)
    if best is None:
        text = f"Of the {tried} tried, not one helps without raising label NLL."
    elif _row(facts, best["method"])["changes"][best["metric"]]["low"] is None:
        text = f"No remedy can be judged: too few {facts['resampled']} to resample."
    elif best["tried"] == 1:
        text = f"The one method tried, {best['method']}, does not improve on it beyond chance."
    else:
        text = f"Of {tried}, not one improves on it beyond chance."
    if badge == "attention":
        return {**advice, "heading": "Do not take it at its word", "text": text}
    return {**advice, "text": f"{text} {advice['text']}"}


def _mended(facts: Facts) -> dict[str, str]:
    """What to do with the result of a calibration, and what it has changed."""
    before = facts["audits"][facts["baseline"]]["verdict"]
    text = f"Before: {before['headline']}"
    row = _row(facts, facts["judged"])
    for metric in ("nll", "vote_nll"):
        if (change := row["changes"].get(metric)) and change["difference"]:
            title = METRICS[metric].name
            text += f" {title[0].upper()}{title[1:]} changes by {change_text(change)}."
    chosen = facts["calibration"]["chosen"]
    if chosen in ("none", "reader-only"):
        return {"heading": "Leave p as it is", "text": f"No candidate is better. {text}"}
    return {"heading": f"Use the result of {chosen}", "text": text}


def _use(facts: Facts, name: str, metric: str) -> dict[str, str]:
    """Heading and text that recommend a method."""
    badge = facts["verdict"]["badge"]
    change = _row(facts, name)["changes"][metric]
    over = f", mean of {facts['n_seeds']} seeds" if facts["n_seeds"] > 1 else ""
    what = "readers' votes" if metric == "vote_nll" else "the labels"
    gain = f"predicts {what} better ({METRICS[metric].name} {change_text(change)}{over})"
    if badge == "good":
        return {"heading": "Nothing is needed", "text": f"If you want more: {name} {gain}."}
    heading, text = f"Use {name}", f"It {gain}."
    if name in facts["derived"]:
        text += f" To get it: scalecal calibrate --method {name}."
    if softening_remark(facts, name):
        text += " Plain softening by one temperature may do as well."
    after = facts["audits"].get(name)
    if after is not None and (p := overall_p(after["rows"][0])) is not None:
        still = "it is still miscalibrated" if p < LEVEL else "the tests find no miscalibration"
        text += f" Afterwards {still}."
    return {"heading": heading, "text": text}


def help_sentence(facts: Facts) -> str:
    """What would help most in a cell, at what price, and what is left; or that nothing is worth doing."""
    if facts["differences"]:
        return " ".join(difference_sentences(facts))
    best = facts["best"]
    if best is None:
        if len(facts["methods"]) == 1:
            return (
                "There is one set of predictions and no remedy to judge: scalecal compare measures "
                "several side by side, where there are cases and groups enough to fit them."
            )
        one = "remedy" if facts["derived"] else "method that is not trained on votes"
        return (
            f"No {one} improves on the model without raising label NLL: doing nothing is better."
            f"{_left(facts, facts['baseline'])}"
        )
    name, metric = best["method"], best["metric"]
    row, base = _row(facts, name), _row(facts, facts["baseline"])
    what, change = METRICS[metric].name, change_text(row["changes"][metric])
    judge = "readers' votes" if metric == "vote_nll" else "labels"
    over = f", means over {facts['n_seeds']} seeds" if facts["n_seeds"] > 1 else ""
    values = f"{number(row[metric])} against {number(base[metric])}, change {change}{over}"
    if row["changes"][metric]["low"] is None:
        return (
            f"No remedy can be judged: too few {facts['resampled']} to resample. Of {best['tried']} "
            f"{_tried(facts)}, {name} has the lowest {what}: {values}."
        )
    costly, mere = best["costly"], softening_remark(facts, name)
    unharmed = " without raising label NLL" if costly else ""
    if best["tried"] == 1:
        does = "helps" if best["sure"] else "does not improve on the model beyond chance"
        one = name if facts.get("calibration") else f"The one method tried, {name},"
        text = f"{one} {does}, judged by the {judge}: {what} {values}"
    else:
        text = f"Of {best['tried']} {_tried(facts)}, "
        if best["sure"]:
            does = f"has the lowest {what}" if mere else "helps most"
            text += f"{name} {does}{unharmed}, judged by the {judge}: {what} {values}"
        else:
            among = "Of the others the" if costly else "The"
            text += (
                f"none improves on the model beyond chance{unharmed}, judged by the {judge}. {among} "
                f"best is {name}: {what} {values}, before allowing for the choice"
            )
    if not best["sure"]:
        nothing = "is better" if _above(row["changes"][metric]["low"]) else "may be as good"
        left = _left(facts, facts["baseline"])
        said = f" Doing nothing {nothing}.{left}"
        if left and metric == "vote_nll" and best["by_labels"]:
            said = f" For votes doing nothing {nothing}.{left}{_by_labels(facts)}"
        return f"{text}.{said}{_costly(facts, costly, metric)}{_beaten(facts)}"
    skill = "auc" if row.get("auc") is not None else "accuracy"
    for key in ("nll", skill):
        if key != metric and key in row["changes"]:
            text += f"; {METRICS[key].name} changes by {change_text(row['changes'][key])}"
    return (
        f"{text}.{_beside_softening(facts, name)}{_price(facts, name)}{_left(facts, name)}"
        f"{_costly(facts, costly, metric)}{_beaten(facts)}"
    )


def _by_labels(facts: Facts) -> str:
    """The remedy of a model that is miscalibrated by labels, where none gains by votes."""
    name = facts["best"]["by_labels"]
    row, changes = _row(facts, name), _row(facts, name)["changes"]
    return (
        f" By labels {name} mends it: label NLL changes by {change_text(changes['nll'])}, vote NLL by "
        f"{change_text(changes['vote_nll'])}, and ECE is {number(row['ece'])} then."
    )


def _tried(facts: Facts) -> str:
    """What the methods that may be recommended are called, several of them."""
    return "remedies" if facts["derived"] else "methods that are not trained on votes"


def _beside_softening(facts: Facts, name: str) -> str:
    """Whether a gain is more than one temperature would give, and whose is."""
    beyond = facts["softening"].get(name)
    if beyond is None or beyond["difference"] is None:
        return ""
    start = " One temperature that gives the model the same mean entropy"
    difference = f"{METRICS[beyond['metric']].name} less softening's {change_text(beyond)}"
    if beyond["better"]:
        return f"{start} gains less ({difference})."
    others = [m for m, b in facts["softening"].items() if b["better"] and m != name]
    more = (
        f"Clearly better than softening: {', '.join(others)}."
        if others
        else "No method is clearly better."
    )
    return (
        f"{start} may do as well ({difference}): {name} shows no clear gain over softening. {more}"
    )


def _left(facts: Facts, name: str) -> str:
    """What is left to mend by labels once a method is used, or without any; of the audited seed."""
    row = facts["audits"][name]["rows"][0]
    p, nothing = overall_p(row), name == facts["baseline"]
    when = "" if nothing else "Afterwards "
    of = f" (seed {facts['seed']})" if facts["n_seeds"] > 1 else ""
    values = f"ECE is {number(row['ece'])}"
    if row["floor"] is None or p is None:
        return "" if nothing else f" {when}{values}{of}; there is no verdict on it."
    values += f", where a calibrated model would show {number(row['floor'])}"
    if p < LEVEL:
        return (
            f" The model stays miscalibrated: {values}{of}."
            if nothing
            else (f" {when}it is still miscalibrated: {values}{of}.")
        )
    if nothing:
        return ""
    before = overall_p(facts["audits"][facts["baseline"]]["rows"][0])
    labels = _row(facts, name)["changes"].get("nll")
    by_votes = facts["best"]["metric"] == "vote_nll" and not (labels and _below(labels["high"]))
    aside = ""
    if by_votes and before is not None and before >= LEVEL:
        aside = " By its labels the model needs no remedy: this one is for how single readers vote."
    return f" {when}{values}{of}: the tests find no miscalibration.{aside}"


def _beaten(facts: Facts) -> str:
    """Methods that gain more by votes and were left out because another is clearly better by labels."""
    return "".join(
        f" {m} changes vote NLL by {change_text(_row(facts, m)['changes']['vote_nll'])}, but its label NLL "
        f"is clearly above that of {rival}."
        for m, rival in facts["best"]["beaten"].items()
    )


def _costly(facts: Facts, methods: Sequence[str], metric: str) -> str:
    """The method that gains most of those that were left out because they raise label NLL."""
    if not methods:
        return ""
    changes = {m: _row(facts, m)["changes"] for m in methods}
    most = min(methods, key=lambda m: changes[m][metric]["difference"])
    return (
        f" {most} changes {METRICS[metric].name} by {change_text(changes[most][metric])}, but label NLL by "
        f"{change_text(changes[most]['nll'])}."
    )


def _price(facts: Facts, name: str) -> str:
    """Where the best method is clearly worse than the model, and by how much."""
    worse = []
    for row in (r for r in facts["rows"] if r["method"] == name):
        where = {"overall": "over all cases"}.get(row["stratum"])
        where = where or f"on {row['stratum']}{' agreement' if facts['agreement'] else ''}"
        for metric in ("ece", "nll") if row["stratum"] == "overall" else ("ece",):
            change = row["changes"].get(metric)
            if change and _above(change["low"]):
                worse.append(f"{METRICS[metric].name} {change_text(change)} {where}")
    return f" The price: {'; '.join(worse)}." if worse else ""


def further(facts: Facts) -> list[str]:
    """Further sentences on a comparison: its training, SCALE, and SCALE's negative control."""
    out = []
    best, baseline = facts["best"], facts["baseline"]
    if best and facts["presets"][best["method"]] != facts["presets"][baseline]:
        out.append(_training_sentence(best["method"], best["metric"], facts))
    out += [*stratum_sentences(facts), *vote_sentences(facts)]
    if "plain" in facts["contrasts"]:
        remark = softening_remark(facts, "scale")
        out.append(
            _scale_sentence(facts["contrasts"]["plain"], facts["recovered"]["scale"], remark)
        )
    if "control" in facts["contrasts"]:
        out.append(_control_sentence(facts["contrasts"]["control"]))
    return out


def vote_sentences(facts: Facts) -> list[str]:
    """What votes would buy, and what an error of the published kappa would cost, where asked for."""
    out = [voted_sentence(facts["voted"])] if facts["voted"] else []
    return out + ([kappa_sentence(s)] if (s := facts["kappa_sensitivity"]) else [])


def _tenths(share: float) -> str:
    """A share in tenths, in words.

    Examples
    --------
    >>> _tenths(1.03), _tenths(0.88), _tenths(-0.2)
    ('all', '9/10', 'nothing')
    """
    tenths = round(10 * share)
    return "all" if tenths >= 10 else f"{tenths}/10" if tenths > 0 else "nothing"


def voted_sentence(voted: Mapping[str, Any]) -> str:
    """How many voted cases would buy how much of what reading everything buys.

    The whole is the gain of training on all votes. Named is the smallest number of cases that buys nine
    tenths of it, or else the number that buys most.
    """
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


def kappa_sentence(sensitivity: Sequence[Mapping[str, Any]]) -> str:
    """What an error of the published kappa costs the answer made of it.

    Examples
    --------
    >>> kappa_sentence([{"factor": f, "kappa": f * 0.4, "share": s} for f, s in ((1, 0.9), (1.3, 0.5))])
    'The answer from published numbers rests on kappa: with 0.40 it recovers 90 % of that gain; with one
    30 % too high (0.52) 50 %.'
    """
    by_share = all(row["share"] is not None for row in sensitivity)
    # The kappa itself first, then the wrong ones.
    own, *wrong = sorted(sensitivity, key=lambda row: abs(row["factor"] - 1))

    def value(row: Mapping[str, Any]) -> str:
        return f"{100 * row['share']:.0f} %" if by_share else number(row["vote_nll"], 4)

    said = f"it recovers {value(own)} of that gain" if by_share else f"its vote NLL is {value(own)}"
    parts = [f"with {own['kappa']:.2f} {said}"]
    for row in wrong:
        off = round(100 * (row["kappa"] / own["kappa"] - 1))
        way = "high" if off > 0 else "low"
        parts.append(f"with one {abs(off)} % too {way} ({row['kappa']:.2f}) {value(row)}")
    return f"The answer from published numbers rests on kappa: {'; '.join(parts)}."


def _training_sentence(best: str, metric: str, facts: Facts) -> str:
    """What of a gain over a probe trained by another preset may be the training's."""
    if best == TRAINED_ALIKE:
        return f"What helps here is the training: {best} calibrates nothing."
    text = f"{best} was trained by another preset than {facts['baseline']}"
    if TRAINED_ALIKE in facts["methods"]:
        alike = number(_row(facts, TRAINED_ALIKE)[metric])
        return f"{text}: trained alike, the uncalibrated probe ({TRAINED_ALIKE}) has {alike}."
    return f"{text}, so the gain need not be its own: a run with {TRAINED_ALIKE} would show it."


def _above(low: float | None) -> bool:
    """Whether an interval's lower end is known and above 0."""
    return low is not None and low > 0


def _below(high: float | None) -> bool:
    """Whether an interval's upper end is known and below 0."""
    return high is not None and high < 0


def _difference(contrast: Mapping[str, Any]) -> str:
    """The difference with its interval over cases; and over seeds, where only they leave it open."""
    text = f"difference {change_text(contrast)}"
    sure_by_cases = _above(contrast["low"]) or _below(contrast["high"])
    if sure_by_cases and (contrast["p_seeds"] or 0.0) >= LEVEL:
        text += f" over cases, but p = {contrast['p_seeds']:.2f} over seeds"
    return text


def _control_sentence(control: Mapping[str, Any]) -> str:
    what, change = METRICS[control["metric"]].name, _difference(control)
    if _below(control["high"]) and control["p_value"] < LEVEL:
        return f"SCALE's labels matter: with them permuted (scale-shuffled) {what} is worse ({change})."
    return (
        f"SCALE's negative control (scale-shuffled), the same synthetic cases with their labels permuted, is "
        f"not clearly worse in {what} ({change}): on these data the gain need not come from the labels."
    )


def _scale_sentence(plain: Mapping[str, Any], share: Mapping[str, Any], remark: str = "") -> str:
    if plain["difference"] is None:
        word = "cannot be compared with"
    elif _below(plain["high"]) and plain["p_value"] < LEVEL:
        word = "is better than"
    elif _above(plain["low"]) and plain["p_value"] < LEVEL:
        word = "is worse than"
    else:
        word = "does not clearly differ from"
    text = (
        f"scale (SCALE with the paper's anchors) {word} vanilla-ls (plain label smoothing) in "
        f"{METRICS[plain['metric']].name} "
        f"({number(plain['value'])} against {number(plain['reference'])}, {_difference(plain)})"
    )
    if share["share"] is not None:
        part, low, high = (100 * share[k] for k in ("share", "low", "high"))
        text += (
            f", and recovers {part:.0f} % ({low:.0f} to {high:.0f}) of what training on the votes "
            "themselves gains"
        )
    return text + (f"; it is {remark}." if remark else ".")


def _range(values: Sequence[float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    least, most = number(min(known)), number(max(known))
    return least if least == most else f"{least} to {most}"


def _spans(values: Sequence[float | None]) -> str:
    shown = _range(values)
    return f"runs from {shown}" if " to " in shown else f"is {shown}"


def _one_seed_each(cells: Sequence[Facts]) -> str:
    """Which seed the tests are of, where there are several."""
    many = [c for c in cells if c["n_seeds"] > 1]
    if not many:
        return ""
    seeds, counts = ({c[key] for c in many} for key in ("seed", "n_seeds"))
    if len(seeds) == len(counts) == 1 and len(many) == len(cells):
        return f" (seed {seeds.pop()}, one of {counts.pop()})"
    return " (one seed each)"


def _tally(cells: Sequence[Facts]) -> dict[str, Any]:
    """The verdict on several models: how many have which badge.

    Attention only where some model's tests still reject after Holm's correction for all models.
    """
    count = len(cells)
    own = [c["verdict"] for c in cells]
    p = np.array([np.nan if v["p"] is None else v["p"] for v in own])
    sure = np.nan_to_num(np.asarray(holm(p)), nan=1.0) < LEVEL
    wrong = [v["badge"] == "attention" for v in own]
    tally = {badge: sum(v["badge"] == badge for v in own) for badge in BADGES}
    if (np.array(wrong) & sure).any():
        badge = "attention"
    else:
        badge = "good" if tally["good"] == count else "inconclusive"
    words = {
        "attention": ("needs attention", "need attention"),
        "good": ("is well calibrated", "are well calibrated"),
        "inconclusive": ("is inconclusive", "are inconclusive"),
    }
    parts = [
        f"{k} {words[b][k > 1]}" for b in ("attention", "good", "inconclusive") if (k := tally[b])
    ]
    parts[0] = parts[0].replace(" ", f" of {count} models ", 1)
    named = [c["name"] for c, bad in zip(cells, wrong, strict=True) if bad]
    listed = f" ({', '.join(named)})" if 0 < len(named) <= 3 < count else ""
    headline = f"{', '.join(parts)}{listed}."
    if any(wrong) and badge != "attention":
        headline = f"{headline[:-1]}; corrected for {count} models, no error is beyond chance."
    known = [v["error"] for v in own if v["error"] is not None]
    numbers = [{"name": "Models", "value": f"{count}"}]
    if known:
        ends = dict.fromkeys(points(v) for v in (min(known), max(known)))
        numbers.append({"name": "Typical error", "value": " to ".join(ends)})
    return {
        "badge": badge,
        "word": BADGES[badge],
        "headline": headline,
        "numbers": numbers,
        "criterion": CRITERION,
        "tally": tally,
        "p": None if np.isnan(p).all() else float(np.nanmin(holm(p))),
    }


def _answers(cells: Sequence[Facts]) -> list[dict[str, str]]:
    """Answers to the three questions on several models."""
    count = len(cells)
    first, second, third = _several(cells)
    by = {b: sum(c["verdict"]["badge"] == b for c in cells) for b in BADGES}
    if by["attention"]:
        need = "needs" if by["attention"] == 1 else "need"
        calibrated = f"{by['attention']} of {count} {need} attention"
    else:
        calibrated = "All are" if by["good"] == count else "Too few cases to say of all"
    failing = sum(bool(set(c["verdict"]["failing"]) - {"overall"}) for c in cells)
    fail = "fails" if failing == 1 else "fail"
    where = f"{failing} of {count} {fail} on some cases" if failing else "No part stands out"
    question = "Where not?" if by["attention"] else "Everywhere?"
    if second == _NO_STRATUM:
        where = "Not known"
    sure = sum(bool(c["best"] and c["best"]["sure"]) for c in cells)
    help_ = f"A remedy helps {sure} of {count}" if sure else "No remedy helps for sure"
    return [
        {"question": "Are they calibrated?", "heading": calibrated, "text": first},
        {"question": question, "heading": where, "text": second},
        {"question": "What to do?", "heading": help_, "text": third},
    ]


_NO_STRATUM = "No stratum can be judged against calibrated models."


def _several(cells: Sequence[Facts]) -> list[str]:
    count = len(cells)
    rows = [{r["name"]: r for r in c["audits"][c["baseline"]]["rows"]} for c in cells]
    overall = [r["overall"] for r in rows]
    tests = [1.0 if (p := overall_p(row)) is None else p for row in overall]
    bad = int((np.asarray(holm(tests)) < LEVEL).sum())
    first = (
        f"Before any remedy{_one_seed_each(cells)} overall ECE {_spans([r['ece'] for r in overall])}; "
        f"calibrated models would show {_range([r['floor'] for r in overall])}. Tests of all cases "
        f"find {bad} of {count} miscalibrated (Holm)."
    )
    hard = [(r[c["hardest"]], c) for r, c in zip(rows, cells, strict=True) if c["hardest"] in r]
    judged = [(r, c) for r, c in hard if r.get("p_null_holm") is not None]
    by_votes = [v for r in overall if (v := r.get("p_votes_holm")) is not None]
    if len(by_votes) == count:
        wrong = int((np.asarray(holm(by_votes)) < LEVEL).sum())
        second = (
            f"By predicted difficulty, the votes do not bear out what {wrong} of {count} say of a reader's "
            "vote (Holm)."
        )
    elif judged:
        adjusted = np.asarray(holm([r["p_null_holm"] for r, _ in judged]))
        worse = int((adjusted < LEVEL).sum())
        names = {f"{c['hardest']} agreement" if c["agreement"] else c["hardest"] for _, c in judged}
        second = (
            f"On {' and '.join(sorted(names))}, ECE {_spans([r['ece'] for r, _ in judged])}, where "
            f"calibrated models would show {_range([r.get('null') for r, _ in judged])}: {worse} of "
            f"{len(judged)} are worse than that (level {LEVEL:g}, Holm)."
        )
    else:
        second = _NO_STRATUM
    sure = [c for c in cells if c["best"] and c["best"]["sure"]]
    if not sure:
        costly = any(c["best"] and c["best"]["costly"] for c in cells)
        unharmed = " without raising label NLL" if costly else ""
        third = f"In none of the {count} models does a remedy gain beyond chance{unharmed}."
        return [first, second, third]
    chosen: dict[str, list[str]] = {}
    for cell in sure:
        chosen.setdefault(cell["best"]["method"], []).append(cell["name"])
    often = max(chosen, key=lambda m: len(chosen[m]))
    if len(sure) <= 3:
        which = "; ".join(f"{m} on {' and on '.join(names)}" for m, names in chosen.items())
    else:
        which = f"most often {often} ({len(chosen[often])} of them)"
    more = sum(not softening_remark(c, c["best"]["method"]) for c in sure)
    third = (
        f"A remedy gains beyond chance in {len(sure)} of {count} models: {which}; in {more} of them more "
        "than softening would. Gain and price of each are given below, model by model."
    )
    return [first, second, third]
