"""Facts as the template wants them: numbers as text, figures as SVG, rows of tables.

`PANELS` lists the sections that show each model's facts, in their order; a further one needs its facts, a
function of them here, and a template block where `figures.html` does not do.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup

from scalecal.evaluation.texts import cell as cell_text
from scalecal.evaluation.texts import columns_by_labels, columns_by_votes, shown_columns
from scalecal.evaluation.words import (
    AGREEMENT,
    kappa_sentence,
    sentences,
    softening_remark,
    voted_sentence,
)
from scalecal.io.text import change_text, is_known, number, percent, points
from scalecal.metrics import COLUMNS
from scalecal.metrics.columns import chosen
from scalecal.report import figures
from scalecal.report.figures import Figure, Row, interval_text, role_of, stratum_title
from scalecal.report.svg import Drawing

MAX_DOTS = 15  # readers drawn as dots; more are written as numbers
FEW_METHODS = 5
"""Methods drawn; the table of methods holds all of them."""

View = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """A section of the page that shows each model's facts.

    Attributes
    ----------
    id, title : str
        Anchor of the section, and its name in the navigation.
    view : function
        Facts of a cell -> what the template block shows of them; None where there is nothing to show. A
        section without any view is left out.
    block : str
        Template of the section. `figures.html` shows ``text`` (sentences), ``figures`` and ``tables``.
    """

    id: str
    title: str
    view: Callable[[Row], View | None]
    block: str = "figures.html"


def svg(sheet: Drawing, *, decorative: bool = False) -> Markup:
    """Return a drawing for the template, which need not escape it again."""
    return Markup(sheet.svg(decorative=decorative))


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> View:
    """Return a table for the template; the first `words` columns hold words, the others numbers."""
    return {"title": title, "head": head, "rows": rows, "words": words}


def drawn(listed: Sequence[Figure]) -> list[View]:
    """Return figures for the template, each with its title and the facts it shows."""
    return [
        {**figure.facts, "title": figure.title, "svg": svg(figure.drawing)} for figure in listed
    ]


# By difficulty


def _difficulty_view(cell: Row) -> View:
    diagrams, by_votes, audit = [], [], cell["audits"][cell["baseline"]]
    for method, panels in cell["reliability"].items():
        role = role_of(method, cell["baseline"])
        diagrams.append(
            {
                "method": method,
                "role": role,
                "what": _about_diagrams(cell, method),
                "panels": [_reliability_panel(cell, method, role, panel) for panel in panels],
            }
        )
    for method, panels in cell["vote_reliability"].items():
        role = role_of(method, cell["baseline"])
        by_votes += [_reliability_panel(cell, method, role, panel) for panel in panels]
    return {
        "diagrams": diagrams,
        "by_votes": by_votes,
        "audit": audit_table(
            f"Audit of {cell['name']}", audit["rows"], agreement=cell["agreement"]
        ),
        "notes": audit["notes"],
        "said": sentences(cell)[1:],
    }


def _about_diagrams(cell: Row, method: str) -> str:
    parts = [f"{cell['n_bins']} bins"]
    if cell["n_seeds"] > 1:
        parts.insert(0, f"seed {cell['seed']}, one of {cell['n_seeds']}")
    if cell["kind"] != "comparison" and cell["about"].get(method):
        parts.append(cell["about"][method])
    parts.append(softening_remark(cell, method))
    return "; ".join(part for part in parts if part)


def _reliability_panel(cell: Row, method: str, role: str, panel: Row) -> View:
    title = stratum_title(panel["stratum"], cell["agreement"])
    sheet = figures.reliability_panel(
        panel, title=f"{method}, {title}", event=cell["event"], role=role
    )
    return {
        **panel,
        "method": method,
        "role": role,
        "title": title,
        "calibrated": number(figures.calibrated(panel)),
        "svg": svg(sheet),
    }


def audit_table(title: str, rows: Sequence[Row], *, agreement: bool) -> View:
    """The rows of an audit as a table, in the columns that have a number somewhere."""
    used = shown_columns(rows, [*columns_by_labels(), *columns_by_votes(), "debiased_error"])
    out = []
    for row in rows:
        texts = {column.key: cell_text(column.key, row.get(column.key)) for column in used}
        texts["name"] = stratum_title(row["name"], agreement)
        if is_known(row.get("debiased_error_low")):
            texts["debiased_error"] = interval_text(row, "debiased_error", 4)
        out.append(list(texts.values()))
    return table(title, [column.title for column in used], out)


# Methods and trade-offs


def few_methods(cell: Row) -> list[str]:
    """Methods drawn, in order: those with the lowest NLL, the best that may be recommended among them."""
    names = [row["method"] for row in figures.ranked_methods(cell)]
    kept = names[:FEW_METHODS]
    # A method that is recommended is drawn wherever it ranks.
    for method in figures.recommended_methods(cell):
        if method in names[FEW_METHODS:]:
            kept[-1] = method
    return kept


def _methods_view(cell: Row) -> View:
    """A few methods as forest plots, and in words."""
    few, every = few_methods(cell), len(cell["methods"]) - 1
    judge = COLUMNS["vote_nll" if cell["votes"] else "nll"].title
    names = (cell["baseline"], *few)
    return {
        "forests": drawn(figures.forests(cell, few)),
        "few": f"{len(few)} of {every} methods, the lowest {judge} first",
        "about": {m: cell["about"][m] for m in names if cell["about"].get(m)},
    }


def _tradeoffs_view(cell: Row) -> View:
    facts, titles = cell["frontier"], figures.frontier_titles(cell)
    keys = [key for key in titles if any(key in point for point in facts["points"])]
    rows = [[p["method"], *(interval_text(p, key) for key in keys)] for p in facts["points"]]
    beyond = []
    for row in facts["beyond"]:
        if row["method"] == cell["baseline"]:
            continue
        changes = []
        for key in keys:
            ends = {"difference": "", "low": "_low", "high": "_high"}
            changes.append(
                change_text({k: row.get(f"difference_{key}{end}") for k, end in ends.items()})
            )
        beyond.append([row["method"], number(row["at_temperature"], 2), *changes])
    head = ["Method", "Softening, T", *(f"Δ {titles[key]}" for key in keys)]
    return {
        "frontiers": drawn(figures.frontiers(cell, few_methods(cell))),
        "points": table("Trade-offs", ["Method", *(titles[key] for key in keys)], rows),
        "beyond": table("Beyond softening", head, beyond),
    }


# Votes


def _votes_view(cell: Row) -> View | None:
    """What voted cases would buy, and what an error of kappa would cost."""
    if not cell["voted"]:
        return None
    rows = []
    for point in figures.voted_points(cell):
        draws = "-"
        if is_known(point["share"]) and is_known(point.get("draws_low")):
            draws = f"{100 * point['draws_low']:.0f} to {100 * point['draws_high']:.0f}"
        changes = [change_text(point["changes"].get(key)) for key in ("vote_nll", "nll")]
        numbers = [number(point["vote_nll"], 4), figures.recovered_text(point), draws]
        rows.append([figures.voted_name(point), *numbers, *changes])
    head = ["Votes used", "Vote NLL", "Recovered", "Over draws, %", "Δ vote NLL", "Δ label NLL"]
    kappa = []
    for row in cell["kappa_sensitivity"] or ():
        numbers = [f"{row['kappa']:.2f}", f"{row['rho']:.2f}", number(row["vote_nll"], 4)]
        kappa.append([*numbers, figures.recovered_text(row)])
    return {
        "voted_said": _voted_sentences(cell),
        "plots": drawn(figures.voted_plots(cell)),
        "voted": table("By voted cases", head, rows),
        "kappa": table("By kappa", ["Kappa", "ρ", "Vote NLL", "Recovered"], kappa, words=0),
    }


# Cases


def _voted_sentences(cell: Row) -> list[str]:
    """What the section on votes says."""
    return [text for text in (voted_sentence(cell), kappa_sentence(cell)) if text]


def two_parts(two: Row, of: str = "") -> list[tuple[str, str]]:
    """Both answers and the votes to expect, as a person says them: (what, value); `of` is the class.

    Examples
    --------
    >>> two = {"label": 0.97, "reader": 0.81, "n_raters": 7, "law": [1 / 8] * 8, "low": 5, "high": 7}
    >>> two_parts(two)
    [("the panel's label:", '97 %'), ('one reader:', '81 %'), ('expect', '5 to 7 of 7')]
    """
    label = " ".join(filter(None, ("the panel's label", of)))
    parts = [(f"{label}:", percent(two["label"])), ("one reader:", percent(two["reader"]))]
    if two.get("law"):
        low, high = two["low"], two["high"]
        expected = f"{low}" if low == high else f"{low} to {high}"
        parts.append(("expect", f"{expected} of {two['n_raters']}"))
    return parts


def _two_view(case: Row, classes: Sequence[str]) -> View | None:
    """The cell of a table with a case's two answers, or None; of several classes, one is named."""
    two, of = case["two"], classes[case["shown_class"]]
    if two is None:
        return None
    bars = figures.law_bars(two, of=of)
    parts = two_parts(two, of if len(classes) > 2 else "")
    return {
        "parts": parts,
        "text": "; ".join(f"{what} {value}" for what, value in parts),
        "value": two["reader"],
        "svg": "" if bars is None else svg(bars),
    }


def _cases_view(cell: Row) -> View:
    classes = cell["classes"]
    listed, splits = [], []
    for case in cell["cases"]:
        votes, of = case["votes"] or (), case["shown_class"]
        words, value = "", ""
        if sum(votes):
            words, value = f"{votes[of]} of {sum(votes)} for {classes[of]}", votes[of] / sum(votes)
        shown = {key: number(case[key]) for key in ("before", "after", "excess")}
        view = {**_case_view(case, classes), **shown}
        dots = _dots(votes, of, words) or words
        listed.append({**view, "votes_text": words, "votes_value": value, "dots": dots})
    for case in cell["splits"]:
        split = case["two"]["split"]
        splits.append({**_case_view(case, classes), "split": split, "split_text": percent(split)})
    return {
        "after": cell["shown"][1] if len(cell["shown"]) > 1 else None,
        "listed": listed,
        "splits": splits,
        "cases_note": _cases_note(cell),
    }


def _case_view(case: Row, classes: Sequence[str]) -> View:
    kept = {key: case.get(key) for key in ("id", "stratum", "thumbnail", "href")}
    return {**kept, "label": classes[case["label"]], "two": _two_view(case, classes)}


def _cases_note(cell: Row) -> str:
    """Whose probabilities a list of cases has, and how to read the two answers."""
    parts = ["Probabilities are of the class the model prefers."]
    if cell["event"] == "positive class":
        parts = [f"Probabilities are of class {cell['classes'][1]}."]
    if cell["two_answers"]:
        dot = ", the dot is the number observed" if cell["votes"] else ""
        parts.append(
            f"Two answers, by {cell['two_answers']}: the probability of the panel’s label and that of "
            "one reader’s vote. Bars: the probability of each number of votes; the line beneath them "
            f"spans the numbers to expect (four times in five or more){dot}."
        )
    return " ".join([*parts, cell["image_note"]])


def _dots(votes: Sequence[int], of: int, words: str) -> Markup:
    """One dot a reader, full for those who chose this class; "" for more than can be counted at a glance."""
    if not 0 < sum(votes) <= MAX_DOTS:
        return Markup("")
    sheet = Drawing(13 * sum(votes), 14, words)
    for i in range(sum(votes)):
        fill = "ink" if i < votes[of] else "none"
        sheet.circle(6.5 + 13 * i, 7, 4.5, fill=fill, stroke="ink")
    return svg(sheet)


# For the work


def _work_view(cell: Row) -> View:
    """Referral by confidence and decision curves, each with a table at a few thresholds."""
    referral = drawn(figures.referrals(cell))
    decision = drawn(figures.decisions(cell))
    referred, decided = [], []
    for panel in referral:
        for lines in zip(*(method["thresholds"] for method in panel["methods"]), strict=True):
            row = [figures.share_text(lines[0]["threshold"]), panel["title"]]
            for line in lines:
                row += [f"{line['sent']:,} of {line['n']:,}"]
                row += [f"{line['avoided']:,} of {line['errors']:,}", number(line["per_case"])]
            referred.append(row)
    for panel in decision:
        treat_all = dict(zip(panel["threshold"], panel["treat_all"], strict=True))
        for lines in zip(*(method["table"] for method in panel["methods"]), strict=True):
            threshold = lines[0]["threshold"]
            row = [figures.share_text(threshold), panel["judge"], panel["title"]]
            row.append(number(treat_all[threshold]))
            for line in lines:
                row += [interval_text(line, "net_benefit"), interval_text(line, "gain")]
            decided.append(row)
    referral_head, decision_head = ["Below", "Stratum"], ["Threshold", "Against", "Stratum"]
    decision_head.append("treating all")
    for method in cell["shown"]:
        referral_head += [f"{method}: cases sent", "errors avoided", "per case"]
        decision_head += [f"{method}: net benefit", "less the better of all and none"]
    # The facts list all panels of a judge together, labels before votes.
    by_judge = [
        {"judge": judge, "panels": list(panels)}
        for judge, panels in groupby(decision, key=lambda panel: panel["judge"])
    ]
    return {
        "legend": [{"name": m, "role": role_of(m, cell["baseline"])} for m in cell["shown"]],
        "referral": referral,
        "referral_table": table("Referral by confidence", referral_head, referred, words=2),
        "decision": by_judge,
        "decision_table": table("Net benefit by threshold", decision_head, decided, words=3),
    }


PANELS = [
    Panel("difficulty", "By difficulty", _difficulty_view, "difficulty.html"),
    Panel("methods", "Methods", _methods_view, "methods.html"),
    Panel("tradeoffs", "Trade-offs", _tradeoffs_view, "tradeoffs.html"),
    Panel("votes", "Votes", _votes_view, "votes.html"),
    Panel("cases", "Cases", _cases_view, "cases.html"),
    Panel("work", "For the work", _work_view, "work.html"),
]
"""Sections of the page that show each model's facts, in their order."""


# What is not of one cell


def page_view(facts: Row, cells: Sequence[Row]) -> View:
    """Everything the template shows; figures and cases are of these cells, tables of all of them."""
    panels = []
    for panel in PANELS:
        views = []
        for cell in cells:
            view = panel.view(cell)
            if view is not None:
                views.append({"key": cell["key"], "name": cell["name"], "cell": cell, **view})
        if views:
            panels.append((panel, views))
    every = facts["cells"]
    sections = [("answer", "Verdict")]
    if len(every) > 1:
        sections.append(("models", "Side by side"))
    sections += [(panel.id, panel.title) for panel, _ in panels]
    if facts["claims"]:
        sections.append(("claims", "Claims"))
    left_out = ""
    if len(cells) < len(every):
        left_out = (
            f"Figures and cases are shown of the first {len(cells)} of {len(every)} models, so that the "
            "page stays light; the table of methods holds all of them."
        )
    about: dict[str, str] = {}
    for cell in every:
        about |= cell["about"]
    drawn_keys = {cell["key"] for cell in cells}
    return {
        "facts": facts,
        "cells": cells,
        "several": len(every) > 1,
        "panels": panels,
        "sections": [*sections, ("made", "How this was made")],
        "subtitle": _subtitle(every),
        "description": facts["verdict"]["headline"],
        "first": _first(every, cells),
        "details": _further(every[:1], set()) if len(every) == 1 else [],
        "strata_gloss": _strata_gloss(every),
        "models": [_model_row(cell, facts, cell["key"] in drawn_keys) for cell in every],
        "left_out": left_out,
        "any_after": any(len(cell["shown"]) > 1 for cell in cells),
        "any_seeds": any(cell["n_seeds"] > 1 for cell in every),
        "dots": _dot_table(facts),
        "more": _further(every, drawn_keys) if len(every) > 1 else [],
        "n_resamples": ", ".join(f"{n:,}" for n in sorted({c["n_resamples"] for c in every})),
        "about": about,
        **_claims_view(facts),
        "runs": [_made(run) for run in facts["runs"]],
    }


def _further(cells: Sequence[Row], drawn_keys: Collection[str]) -> list[str]:
    """Paragraphs of the cells, without those that the section on votes holds."""
    out = []
    for cell in cells:
        for sentence in cell["paragraphs"]:
            # The section on votes has these, where the model is drawn.
            if cell["key"] in drawn_keys and sentence in _voted_sentences(cell):
                continue
            if len(cells) > 1:
                sentence = f"{cell['name']}: {sentence}"
            out.append(sentence)
    return out


def _subtitle(cells: Sequence[Row]) -> str:
    methods = {method for cell in cells for method in cell["methods"]}
    if len(cells) > 1:
        return f"{len(cells)} models, {len(methods)} methods"
    (cell,) = cells
    counts = {"test cases": cell["n_test"], "seeds": cell["n_seeds"]}
    if cell["kind"] in ("files", "comparison"):
        what = "files" if cell["kind"] == "files" else "methods"
        counts[what] = len(cell["methods"])
    return " · ".join([cell["name"], *(f"{name}: {n:,}" for name, n in counts.items())])


def _first(every: Sequence[Row], cells: Sequence[Row]) -> View:
    """The diagram and the cases beside the verdict: of the audited seed, like all of the first screen."""
    # Of several models, the one whose tests are clearest; a model without a test comes last.
    cell = min(cells, key=lambda c: 2.0 if c["verdict"]["p"] is None else c["verdict"]["p"])
    whose = cell["name"] if len(every) > 1 else ""
    note = f"seed {cell['seed']}, one of {cell['n_seeds']} repeats of split and training"
    view = {"whose": whose, "note": "", "panel": None, **_surest_view(cell)}
    if cell["n_seeds"] > 1 and not whose:
        view["note"] = note
    panels = {panel["stratum"]: panel for panel in cell["reliability"][cell["judged"]]}
    panel = panels.get(cell["hardest"]) or panels.get("overall")
    if panel is None:
        return view
    role = role_of(cell["judged"], cell["baseline"])
    view["panel"] = _reliability_panel(cell, cell["judged"], role, panel)
    view["title"] = view["panel"]["title"].capitalize()
    if cell["agreement"] and panel["stratum"] in AGREEMENT:
        view["title"] += f": {AGREEMENT[panel['stratum']]}"
    return {**view, "said": error_text(panel)}


def error_text(panel: Row) -> str:
    """Error of a panel in points, with the mean and the band of nine in ten calibrated models.

    Examples
    --------
    >>> error_text({"ece": 0.17, "null": 0.093, "null_low": 0.07, "null_high": 0.121})
    'error 17 points; calibrated: 9 (7 to 12)'
    """
    text = f"error {points(panel['ece'])}"
    middle = figures.calibrated(panel)
    if middle is not None:
        text += f"; calibrated: {100 * middle:.0f}"
    if is_known(panel.get("null_low")):
        text += f" ({100 * panel['null_low']:.0f} to {100 * panel['null_high']:.0f})"
    return text


def _surest_view(cell: Row) -> View:
    classes, shown = cell["classes"], []
    for case in cell["surest"]:
        votes, of = case["votes"], case["shown_class"]
        said = f"says {percent(case['p'])}"
        if case.get("before") is not None:
            said = f"said {percent(case['before'])}, now {percent(case['p'])}"
        judged, dots = f"label: {_class_name(classes[case['label']], classes)}", ""
        if votes:
            words = f"{votes[of]} of {sum(votes)} readers"
            judged, dots = f"{words} agree", _dots(votes, of, words)
        said = said.replace(" %", "\N{NO-BREAK SPACE}%")
        kept = {key: case.get(key) for key in ("id", "thumbnail", "href")}
        said = f"{_class_name(classes[of], classes)}: {said}; {judged}"
        shown.append({**kept, "dots": dots, "said": said})
    return {"surest": shown, "by_votes": any(case["votes"] for case in cell["surest"])}


def _class_name(name: str, classes: Sequence[str]) -> str:
    """A class as a person says it, where classes are mere numbers of two."""
    return {"0": "negative", "1": "positive"}[name] if list(classes) == ["0", "1"] else name


def _strata_gloss(cells: Sequence[Row]) -> str:
    """What strata are, where they are first spoken of."""
    named = [cell for cell in cells if cell["strata"]]
    if not named:
        return ""
    if not all(cell["agreement"] for cell in named):
        return "A stratum is a part of the cases, as the data name it."
    return (
        "A stratum is a part of the cases, here by how far their readers agree. "
        "High: at least six of seven (or that share) say the same. Low: the readers split, at most four of "
        "seven, or a majority of one. Medium: between."
    )


def _model_row(cell: Row, facts: Row, is_drawn: bool) -> View:
    value = {r["stratum"]: r for r in cell["rows"] if r["method"] == cell["baseline"]}
    whole, hard = value.get("overall", {}), value.get(cell["hardest"], {})
    pairs = [(whole, "n"), (whole, "ece"), (whole, "floor"), (hard, "ece"), (hard, "null")]
    pairs += [(whole, "nll"), (whole, "vote_nll"), (whole, "auc")]
    return {
        "key": cell["key"],
        "drawn": is_drawn,
        "name": cell["name"],
        "run": facts["runs"][cell["run"]]["title"],
        "numbers": [number(row.get(key)) for row, key in pairs],
        "verdict": cell["verdict"],
        "best": ", ".join(figures.recommended_methods(cell)) or "-",
    }


def _dot_table(facts: Row) -> View:
    """Every method of every model: ECE by stratum as strips, and further scores."""
    cells, strata = facts["cells"], facts["strata"]
    agreement = all(cell["agreement"] or not cell["strata"] for cell in cells)
    every = [row for cell in cells for row in cell["rows"]]
    # Beside ECE, every metric for people whose change the facts hold.
    shown = chosen(lambda metric: metric.shown and metric.key != "ece")
    extra = [key for key in shown if any(key in row["changes"] for row in every)]
    top, rows = figures.ece_top(cells), []
    for cell in cells:
        value = {(r["method"], r["stratum"]): r for r in cell["rows"]}
        base = cell["baseline"]
        for method in cell["methods"]:
            role, strips = role_of(method, base), []
            for stratum in strata:
                row = value.get((method, stratum))
                strip = {"stratum": stratum, "svg": "", **_with_change(row, "ece", base)}
                if row is not None:
                    sheet = figures.strip(row, top=top, role=role)
                    strip["svg"] = svg(sheet, decorative=True)
                strips.append(strip)
            scores = []
            for key in extra:
                score = _with_change(value.get((method, "overall")), key, base)
                scores.append({"score": COLUMNS[key].title, **score})
            row = {"cell": cell["key"], "name": cell["name"], "method": method, "role": role}
            remark = softening_remark(cell, method)
            rows.append({**row, "remark": remark, "strips": strips, "extra": scores})
    heads, by_votes, by_labels = [], [], []
    for key in extra:
        title = COLUMNS[key].title
        if COLUMNS[key].votes:
            by_votes.append(title)
            heads.append({"title": title, "judges": "reader’s answer"})
        else:
            by_labels.append(title)
            heads.append({"title": title, "judges": "label’s answer"})
    judged = ""
    if by_votes:
        judged = (
            f"Beside ECE, {' and '.join(by_labels)} judge the label’s answer (the probability of the "
            f"panel’s label), {' and '.join(by_votes)} the reader’s (the probability of one vote). A "
            "method that has one answer is judged by it twice."
        )
    return {
        "columns": [{"name": s, "title": stratum_title(s, agreement)} for s in strata],
        "extra": heads,
        "judged": judged,
        "top": f"{top:g}",
        "rows": rows,
    }


def _with_change(row: Row | None, key: str, baseline: str) -> View:
    """A number of a row and, where it is not the baseline's own, its change."""
    if row is None or row.get(key) is None:
        return {"value": "", "text": "-", "change": "", "interval": ""}
    out = {"value": f"{row[key]:.6g}", "text": number(row[key]), "change": "", "interval": ""}
    if row["method"] != baseline and row["changes"].get(key):
        change, bracket, rest = change_text(row["changes"][key]).partition(" [")
        out |= {"change": change, "interval": bracket.strip() + rest}
    return out


SIGNS = {"holds": "holds", "does not hold": "fails", "inconclusive": "open"}
"""Verdict on a claim -> its class on the page."""


def _claims_view(facts: Row) -> View:
    """Claims, how many hold, and the main ones; statements of fact are listed apart and not counted."""
    counted, stated = [], []
    for claim in facts["claims"]:
        keys = ("id", "claim", "paper", "measured", "n", "verdict", "reason")
        view: View = {key: _words(claim.get(key, "")) for key in keys}
        view["sign"] = SIGNS.get(view["verdict"], "open")
        view["main"] = bool(claim.get("main"))
        if claim.get("kind") == "fact":
            stated.append(view)
        else:
            counted.append(view)
    tally = {}
    if counted:
        signs = [claim["sign"] for claim in counted]
        tally = {sign: signs.count(sign) for sign in SIGNS.values()}
    return {
        "claims": counted,
        "stated": stated,
        "main_claims": [claim for claim in counted if claim["main"]],
        "tally": tally,
        "claims_first": facts["runs"][0].get("kind") == "reproduce",
    }


def _words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(v)}" for key, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return number(value)


def _named(values: Row | None, hidden: Collection[str] = ()) -> str:
    """What a part of ``run.json`` says, its name first."""
    parts: list[str] = []
    for key, value in (values or {}).items():
        if key == "name" and value:
            parts.insert(0, str(value))
        elif key not in ("name", *hidden) and value is not None:
            parts.append(f"{key} {_words(value)}")
    return ", ".join(parts)


def _made(run: Row) -> View:
    dataset = run.get("dataset") or {}
    facts = {
        "scalecal": run.get("version"),
        "Data": _named(dataset, ("sha256", "classes", "data")),
        "Classes": _words(dataset.get("classes")),
        "SHA-256": dataset.get("sha256"),
        "Encoder": _named(run.get("encoder")),
        "Methods": _words(run.get("methods")),
        "Seeds": _words(run.get("seeds")),
        "Options": _named(run.get("options")),
        "Packages": _named(run["packages"]),
    }
    return {
        "title": run["title"],
        "command": shlex.join(map(str, run.get("command") or ["scalecal", "report"])),
        "facts": {key: text for key, text in facts.items() if text},
        "notes": run["notes"],
    }
