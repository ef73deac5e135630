"""Facts as the template wants them: numbers as text, figures as SVG, rows of tables.

`PANELS` lists the sections that show each model's facts, in their order; a further one needs its facts, a
function of them here, and a template block where `figures.html` does not do.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from scalecal.evaluation.texts import cell as cell_text
from scalecal.evaluation.texts import (
    columns_by_labels,
    columns_by_votes,
    shown_columns,
    shown_table,
)
from scalecal.evaluation.words import (
    AGREEMENT,
    kappa_sentence,
    sentences,
    softening_remark,
    voted_sentence,
)
from scalecal.io.text import is_known, number, percent, points
from scalecal.metrics import COLUMNS
from scalecal.report import figures
from scalecal.report.figures import Figure, Row, interval_text, role_of, stratum_title
from scalecal.report.svg import Drawing

MAX_DOTS = 15  # readers drawn as dots; more are written as numbers
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


def svg(sheet: Drawing) -> Markup:
    """Return a drawing for the template, which need not escape it again."""
    return Markup(sheet.svg())


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> View:
    """Return a table for the template; the first `words` columns hold words, the others numbers."""
    return {"title": title, "head": head, "rows": rows, "words": words}


def drawn(*listed: Figure) -> list[View]:
    """Return figures for the template, each with its title and the facts it shows."""
    out = []
    for figure in listed:
        out.append({**figure.facts, "title": figure.title, "svg": svg(figure.drawing)})
    return out


# By difficulty


def _difficulty_view(cell: Row) -> View:
    audit, diagrams = cell["audits"][cell["baseline"]], []
    for method, panels in cell["reliability"].items():
        about = _about_diagrams(cell, method)
        shown = _reliability_panels(cell, method, panels)
        role = role_of(method, cell["baseline"])
        diagrams.append({"method": method, "role": role, "what": about, "panels": shown})
    by_votes: list[View] = []
    for method, panels in cell["vote_reliability"].items():
        by_votes += _reliability_panels(cell, method, panels)
    title = f"Audit of {cell['name']}"
    return {
        "diagrams": diagrams,
        "by_votes": by_votes,
        "audit": audit_table(title, audit["rows"], agreement=cell["agreement"]),
        "notes": audit["notes"],
    }


def _about_diagrams(cell: Row, method: str) -> str:
    parts = [f"{cell['n_bins']} bins"]
    if cell["n_seeds"] > 1:
        parts.insert(0, f"seed {cell['seed']}, one of {cell['n_seeds']}")
    if cell["kind"] != "comparison" and cell["about"].get(method):
        parts.append(cell["about"][method])
    parts.append(softening_remark(cell, method))
    return "; ".join(part for part in parts if part)


def _reliability_panels(cell: Row, method: str, panels: Sequence[Row]) -> list[View]:
    out, role = [], role_of(method, cell["baseline"])
    for panel in panels:
        title = stratum_title(panel["stratum"], cell["agreement"])
        sheet = figures.reliability_panel(
            panel, title=f"{method}, {title}", event=cell["event"], role=role
        )
        shown = {"method": method, "role": role, "title": title, "svg": svg(sheet)}
        out.append({**panel, **shown, "calibrated": figures.calibrated(panel)})
    return out


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


# Methods


def _methods_view(cell: Row) -> View:
    """All methods: their changes as forest plots, ECE against its floor, and the terminal's table."""
    scores = shown_table(cell)
    return {
        "forests": drawn(*figures.forests(cell)),
        "judge": COLUMNS[figures.judge_of(cell)].title,
        "strips": drawn(figures.ece_strips(cell)),
        "all": table("All methods", scores.columns.tolist(), scores.to_numpy().tolist()),
    }


# Votes


def _votes_view(cell: Row) -> View | None:
    """What voted cases would buy, and what an error of kappa would cost."""
    if not cell["voted"]:
        return None
    kappa = []
    for row in cell["kappa_sensitivity"] or ():
        numbers = [number(row["kappa"], 2), number(row["rho"], 2), number(row["vote_nll"], 4)]
        kappa.append([*numbers, figures.recovered_text(row)])
    return {
        "voted": voted_sentence(cell),
        "kappa": kappa_sentence(cell),
        "plots": drawn(*figures.voted_plots(cell)),
        "table": table("By kappa", ["Kappa", "ρ", "Vote NLL", "Recovered"], kappa, words=0),
    }


# Cases


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
        ends = dict.fromkeys((str(two["low"]), str(two["high"])))
        parts.append(("expect", f"{' to '.join(ends)} of {two['n_raters']}"))
    return parts


def _two_view(case: Row, classes: Sequence[str]) -> View | None:
    """The cell of a table with a case's two answers, or None; of several classes, one is named."""
    two, of, named = case["two"], classes[case["shown_class"]], ""
    if two is None:
        return None
    if len(classes) > 2:
        named = of
    parts = two_parts(two, named)
    text = "; ".join(" ".join(part) for part in parts)
    view: View = {"parts": parts, "text": text, "value": two["reader"], "svg": ""}
    bars = figures.law_bars(two, of=of)
    if bars is not None:
        view["svg"] = svg(bars)
    return view


def _cases_view(cell: Row) -> View:
    view: View = {"after": None, "note": _cases_note(cell)}
    classes = cell["classes"]
    if len(cell["shown"]) > 1:
        view["after"] = cell["shown"][1]
    for name in ("cases", "splits"):
        view[name] = []
        for case in cell[name]:
            shown = {"class": classes[case["label"]], "answers": _two_view(case, classes)}
            view[name].append({**case, **shown, **_votes_of(case, classes)})
    return view


def _votes_of(case: Row, classes: Sequence[str]) -> View:
    """A case's votes for the class shown: in words, as a share, and as dots where they are few."""
    votes, of = case.get("votes") or (), case["shown_class"]
    total = sum(votes)
    if not total:
        return {"words": "", "share": "", "dots": ""}
    words = f"{votes[of]} of {total} for {classes[of]}"
    return {"words": words, "share": votes[of] / total, "dots": _dots(votes, of, words) or words}


def _cases_note(cell: Row) -> str:
    """Whose probabilities a list of cases has, and how to read the two answers."""
    parts, dot = ["Probabilities are of the class the model prefers."], ""
    if cell["event"] == "positive class":
        parts = [f"Probabilities are of class {cell['classes'][1]}."]
    if cell["votes"]:
        dot = ", the dot is the number observed"
    if cell["two_answers"]:
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
    fills = ["ink"] * votes[of] + ["none"] * (sum(votes) - votes[of])
    for i, fill in enumerate(fills):
        sheet.circle(6.5 + 13 * i, 7, 4.5, fill=fill, stroke="ink")
    return svg(sheet)


# For the work


def _work_view(cell: Row) -> View:
    """Referral by confidence, with a rule for practice, and decision curves."""
    referral, rows = drawn(*figures.referrals(cell)), []
    for panel in referral:
        for method in panel["methods"]:
            for line in method["thresholds"]:
                names = [figures.share_text(line["threshold"]), panel["title"], method["method"]]
                sent = f"{line['sent']:,} of {line['n']:,}"
                avoided = f"{line['avoided']:,} of {line['errors']:,}"
                rows.append([*names, sent, avoided, number(line["per_case"])])
    # Labels come before votes, as in the facts.
    judges: dict[str, list[View]] = {}
    for panel in drawn(*figures.decisions(cell)):
        judges.setdefault(panel["judge"], []).append(panel)
    head = ["Below", "Stratum", "Method", "Cases sent", "Errors avoided", "Per case"]
    return {
        "legend": [{"name": m, "role": role_of(m, cell["baseline"])} for m in cell["shown"]],
        "referral": referral,
        "table": table("Referral by confidence", head, rows, words=3),
        "decision": judges,
    }


PANELS = [
    Panel("difficulty", "By difficulty", _difficulty_view, "difficulty.html"),
    Panel("methods", "Methods", _methods_view, "methods.html"),
    Panel("votes", "Votes", _votes_view, "votes.html"),
    Panel("cases", "Cases", _cases_view, "cases.html"),
    Panel("work", "For the work", _work_view, "work.html"),
]
"""Sections of the page that show each model's facts, in their order."""


# What is not of one cell


def page_view(facts: Row, cells: Sequence[Row]) -> View:
    """Everything the template shows; figures and cases are of these cells, tables of all of them."""
    every = facts["cells"]
    sections, panels = [("answer", "Verdict")], []
    if len(every) > 1:
        sections.append(("models", "Side by side"))
    for panel in PANELS:
        views = []
        for cell in cells:
            view = panel.view(cell)
            if view is not None:
                views.append({"key": cell["key"], "name": cell["name"], "cell": cell, **view})
        if views:
            panels.append((panel, views))
            sections.append((panel.id, panel.title))
    if facts["claims"]:
        sections.append(("claims", "Claims"))
    left_out = ""
    if len(cells) < len(every):
        left_out = (
            f"Figures and cases are shown of the first {len(cells)} of {len(every)} models, so that the "
            "page stays light; the results to download hold all of them."
        )
    resamples = sorted({cell["n_resamples"] for cell in every})
    return {
        "facts": facts,
        "several": len(every) > 1,
        "panels": panels,
        "sections": [*sections, ("made", "How this was made")],
        "subtitle": _subtitle(every),
        "first": _first(every, cells),
        "strata_gloss": _strata_gloss(every),
        "models": [_model_row(cell, facts) for cell in every],
        "drawn": [cell["key"] for cell in cells],
        "left_out": left_out,
        "any_after": any(len(cell["shown"]) > 1 for cell in cells),
        "any_seeds": any(cell["n_seeds"] > 1 for cell in every),
        "n_resamples": ", ".join(map(number, resamples)),
        **_claims_view(facts),
        "runs": [_made(run) for run in facts["runs"]],
    }


def _subtitle(cells: Sequence[Row]) -> str:
    methods = {method for cell in cells for method in cell["methods"]}
    if len(cells) > 1:
        return f"{len(cells)} models, {len(methods)} methods"
    (cell,) = cells
    counts = {"test cases": cell["n_test"], "seeds": cell["n_seeds"]}
    if cell["kind"] == "files":
        counts["files"] = len(cell["methods"])
    elif cell["kind"] == "comparison":
        counts["methods"] = len(cell["methods"])
    return " · ".join([cell["name"], *(f"{name}: {n:,}" for name, n in counts.items())])


def _clearest(cell: Row) -> float:
    """The p-value of a model's verdict; beyond every other for a model without a test."""
    p: float | None = cell["verdict"]["p"]
    if p is None:
        return 2.0
    return p


def _first(every: Sequence[Row], cells: Sequence[Row]) -> View:
    """The diagram and the cases beside the verdict: of the audited seed, like all of the first screen."""
    cell = min(cells, key=_clearest)
    view: View = {"whose": "", "note": "", "panel": None, "surest": _surest(cell)}
    view["by_votes"] = any(case["votes"] for case in cell["surest"])
    if len(every) > 1:
        view["whose"] = cell["name"]
    elif cell["n_seeds"] > 1:
        seed, count = cell["seed"], cell["n_seeds"]
        view["note"] = f"seed {seed}, one of {count} repeats of split and training"
    facts = {panel["stratum"]: panel for panel in cell["reliability"][cell["judged"]]}
    panel = facts.get(cell["hardest"]) or facts.get("overall")
    if panel is None:
        return view
    (view["panel"],) = _reliability_panels(cell, cell["judged"], [panel])
    view["title"] = view["panel"]["title"].capitalize()
    if cell["agreement"] and panel["stratum"] in AGREEMENT:
        view["title"] += f": {AGREEMENT[panel['stratum']]}"
    view["said"] = error_text(panel)
    return view


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


def _surest(cell: Row) -> list[View]:
    """The most confident predictions against the readers, or the label, in words."""
    # Classes that are mere numbers are said as a person says them.
    names = ["negative", "positive"]
    if list(cell["classes"]) != ["0", "1"]:
        names = cell["classes"]
    out = []
    for case in cell["surest"]:
        votes, of = case["votes"], case["shown_class"]
        says = f"says {percent(case['p'])}"
        if case.get("before") is not None:
            says = f"said {percent(case['before'])}, now {percent(case['p'])}"
        judged, dots = f"label: {names[case['label']]}", ""
        if votes:
            words = f"{votes[of]} of {sum(votes)} readers"
            judged, dots = f"{words} agree", _dots(votes, of, words)
        says = says.replace(" %", "\N{NO-BREAK SPACE}%")
        out.append({**case, "dots": dots, "said": f"{names[of]}: {says}; {judged}"})
    return out


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


def _model_row(cell: Row, facts: Row) -> View:
    value = {r["stratum"]: r for r in cell["rows"] if r["method"] == cell["baseline"]}
    whole, hard = value.get("overall", {}), value.get(cell["hardest"], {})
    return {
        "key": cell["key"],
        "name": cell["name"],
        "run": facts["runs"][cell["run"]]["title"],
        "whole": whole,
        "hard": hard,
        "verdict": cell["verdict"],
        "said": " ".join(sentences(cell)[1:]),
        "best": ", ".join(figures.recommended_methods(cell)) or "-",
    }


SIGNS = {"holds": "holds", "does not hold": "fails", "inconclusive": "open"}
"""Verdict on a claim -> its class on the page."""

NO_CLAIM = {"main": False, "paper": "", "measured": "", "n": None, "reason": ""}
"""What a claim may lack."""


def _claims_view(facts: Row) -> View:
    """Claims, how many hold, and the main ones; statements of fact are listed apart and not counted."""
    counted, stated, tally = [], [], dict.fromkeys(SIGNS.values(), 0)
    for claim in facts["claims"]:
        sign = SIGNS.get(claim["verdict"], "open")
        view = {**NO_CLAIM, **claim, "sign": sign}
        if claim.get("kind") == "fact":
            stated.append(view)
        else:
            counted.append(view)
            tally[sign] += 1
    first = facts["runs"][0].get("kind") == "reproduce"
    return {"claims": counted, "stated": stated, "tally": tally, "claims_first": first}


def words_of(value: Any) -> str:
    """Write a value of a JSON file: numbers as people read them, of an object its name first."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(words_of, value))
    if not isinstance(value, Mapping):
        return number(value)
    parts = []
    for key, part in value.items():
        if key == "name":
            parts.append(words_of(part))
        elif part is not None:
            parts.append(f"{key} {words_of(part)}")
    return ", ".join(filter(None, parts))


def _made(run: Row) -> View:
    """How a run was made. The folder of its images is nobody else's business, so it is not shown."""
    dataset = dict(run.get("dataset") or {})
    dataset.pop("data", None)
    facts = {
        "scalecal": run.get("version"),
        "SHA-256": dataset.pop("sha256", None),
        "Data": dataset,
        "Encoder": run.get("encoder"),
        "Methods": run.get("methods"),
        "Seeds": run.get("seeds"),
        "Options": run.get("options"),
        "Packages": run["packages"],
    }
    return {
        "title": run["title"],
        "command": shlex.join(map(str, run.get("command") or ["scalecal", "report"])),
        "facts": facts,
        "notes": run["notes"],
    }
