"""Facts to HTML: one self-contained page of runs, and an audit in a notebook or on a page of its own.

The page computes nothing: facts become text, figures and tables. `PANELS` lists the sections that show each
model's facts, in their order; a further one needs its facts, a function of them here, and a template block
where `figures.html` does not do.
"""

from __future__ import annotations

import base64
import io
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from scalecal.checks import InputError, lookup
from scalecal.datasets.image_sources import IMAGE_FORMATS
from scalecal.evaluation import texts
from scalecal.evaluation.folder import first_panels, report_facts
from scalecal.evaluation.level_words import level_table
from scalecal.evaluation.words import (
    AGREEMENT,
    CLINICAL,
    judge_of,
    other_verdicts,
    recommended_methods,
    softening_remark,
    verdict_sentences,
)
from scalecal.io.store import check_output_file, write_file, written_by
from scalecal.io.text import csv_text, interval_text, is_known, number, percent, points
from scalecal.metrics import COLUMNS
from scalecal.report import figures
from scalecal.report.checklists import CHECKLISTS, checklist_intro, checklist_rows
from scalecal.report.figures import Figure, Row, role_of, stratum_title
from scalecal.report.forest import level_forests
from scalecal.report.svg import Drawing

if TYPE_CHECKING:
    from scalecal.evaluation.evaluations import Evaluation

MAX_BYTES = 1_000_000
"""Size of a page without thumbnails, at most."""

MAX_BYTES_WITH_IMAGES = 7_000_000
"""Size of a page with thumbnails, at most."""

MAX_RESULTS = 200_000
"""Characters of results inside the page, at most; larger tables stay in the run's folder."""

DETAILS = ((8, 24), (8, 12), (5, 6), (5, 4), (3, 3), (2, 2), (1, 1))
"""Cases listed of each stratum and models drawn, tried in turn until the page is small enough."""

THUMBNAIL = 112  # pixels, the longer side
MAX_PIXELS = 1 << 26  # of an image that is opened for a thumbnail


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


# By difficulty


def _difficulty_view(cell: Row) -> View:
    # The numbers are of the method that the verdict is about.
    judged = cell["judged"]
    audit, title = cell["audits"][judged], f"Audit of {cell['name']}"
    if cell["kind"] == "calibration":
        title += f": {judged}"
    return {
        "what": {method: _about_diagrams(cell, method) for method in cell["reliability"]},
        "audit": audit_table(title, audit["rows"], agreement=cell["agreement"]),
        "notes": audit["notes"],
    }


def _about_diagrams(cell: Row, method: str) -> str:
    parts = [f"{cell['n_bins']} bins"]
    if cell["n_seeds"] > 1:
        parts.insert(0, f"seed {cell['first_seed']}, one of {cell['n_seeds']}")
    if cell["kind"] != "comparison" and cell["about"].get(method):
        parts.append(cell["about"][method])
    parts.append(softening_remark(cell, method))
    return "; ".join(part for part in parts if part)


def diagram(cell: Row, method: str, panel: Row) -> Markup:
    """Return the reliability diagram of a method in a stratum."""
    title = f"{method}, {stratum_title(panel['stratum'], cell['agreement'])}"
    role = role_of(method, cell["baseline"])
    return svg(figures.reliability_panel(panel, title=title, event=cell["event"], role=role))


def audit_table(title: str, rows: Sequence[Row], *, agreement: bool) -> View:
    """The rows of an audit as a table, in the columns that have a number somewhere."""
    used = texts.shown_columns(
        rows, [*texts.columns_by_labels(), *texts.columns_by_votes(), "debiased_error"]
    )
    out = []
    for row in rows:
        shown = {column.key: texts.cell(column.key, row.get(column.key)) for column in used}
        shown["name"] = stratum_title(row["name"], agreement)
        if is_known(row.get("debiased_error_low")):
            shown["debiased_error"] = interval_text(row, "debiased_error", 4)
        out.append(list(shown.values()))
    return table(title, [column.title for column in used], out)


# Clinical numbers


CLINICAL_PARTS = ("events", "expected", "oe", "citl", "slope", "auc")
"""Columns of the table of classes, and of strata of the data."""

CLINICAL_NOTE = (
    "Estimates with 95 % intervals, which treat groups as independent where there are any. O:E: observed for "
    "each expected event. Calibration in the large: the offset that the log-odds lack, with the slope held "
    "at 1. Calibration slope: below 1, probabilities are too extreme. ICI, E50, E90 and Emax: mean, median, "
    "90th percentile and maximum of the distance between the flexible curve and the prediction; their floor "
    "is what a calibrated model would show."
)


def _clinical_view(cell: Row) -> View | None:
    """What a clinical reviewer looks for first: of all cases, of classes, and of strata of the data."""
    shown = [method for method in cell["shown"] if method in cell["audits"]]
    whole = [cell["audits"][method]["rows"][0] for method in shown]
    tables = []
    if any(is_known(row.get("events")) for row in whole):
        head = ["All cases"]
        for method in shown:
            head += [method, "floor"]
        lines = []
        for key in ("events", "expected", *CLINICAL):
            line = [_title(key)]
            for row in whole:
                line += [_clinical_text(row, key), number(row.get(f"{key}_floor"))]
            lines.append(line)
        tables.append(table("Clinical numbers of all cases", head, lines))
    for method in shown:
        audit = cell["audits"][method]
        parts = list(audit["classes"])
        # Votes that made a stratum select on what no model can know.
        if not cell["agreement"]:
            parts += audit["rows"][1:]
        lines = []
        for row in parts:
            if is_known(row.get("events")):
                name = stratum_title(row["name"], cell["agreement"])
                lines.append([name, *(_clinical_text(row, key) for key in CLINICAL_PARTS)])
        if lines:
            head = [method, *map(_title, CLINICAL_PARTS)]
            tables.append(table(f"Clinical numbers by part, {method}", head, lines))
    if not tables:
        return None
    return {"text": [CLINICAL_NOTE], "tables": tables}


def _title(key: str) -> str:
    title = COLUMNS[key].title
    return title[:1].upper() + title[1:]


def _clinical_text(row: Row, key: str) -> str:
    if key == "events":
        return number(row.get(key))
    if key == "expected":
        return number(row.get(key), 1)
    return interval_text(row, key)


# Methods


def _methods_view(cell: Row) -> View:
    """All methods: their changes as forest plots, ECE against its floor, and the terminal's table."""
    scores = texts.shown_table(cell)
    lines = [list(line) for line in zip(*scores.values(), strict=True)]
    return {
        "forests": figures.forests(cell),
        "judge": COLUMNS[judge_of(cell)].title,
        "strips": [figures.ece_strips(cell)],
        "all": table("All methods", list(scores), lines),
    }


# Votes


def _votes_view(cell: Row) -> View | None:
    """What voted cases would buy, and what an error of kappa would cost."""
    if not cell["voted"]:
        return None
    kappa = []
    for row in cell["kappa_sensitivity"] or ():
        numbers = [number(row["kappa"], 2), number(row["rho"], 2), number(row["vote_nll"], 4)]
        kappa.append([*numbers, texts.recovered_text(row)])
    return {
        "voted": cell["paragraphs"]["voted"],
        "kappa": cell["paragraphs"].get("kappa", ""),
        "plots": figures.voted_plots(cell),
        "table": table("By kappa", ["Kappa", "ρ", "Vote NLL", "Recovered"], kappa, words=0),
    }


# Levels


def _levels_view(cell: Row) -> View | None:
    """The levels of columns such as site: what is said of each column, its forest plot and its table."""
    audit = cell["audits"][cell["judged"]]
    if not audit["by"]:
        return None
    event, drawn = audit["meta"]["event"], level_forests(cell)
    columns = []
    for facts in audit["by"]:
        head, lines = level_table(facts, event)
        more = ""
        if len(lines) < facts["k"]:
            more = f"Of {facts['k']:,} levels the {len(lines)} of most cases; audit.csv has all."
        columns.append(
            {
                "text": cell["paragraphs"].get(f"by {facts['column']}", ""),
                "figures": [figure for figure in drawn if figure.facts is facts],
                "table": table(f"The levels of {head[0]} in numbers", head, lines),
                "more": more,
            }
        )
    return {"columns": columns}


# Cases


def two_parts(two: Row, of: str = "") -> dict[str, str]:
    """Both answers and the votes to expect, as a person says them; `of` is the class.

    Examples
    --------
    >>> two = {"label": 0.97, "reader": 0.81, "n_raters": 7, "law": [1 / 8] * 8, "low": 5, "high": 7}
    >>> two_parts(two)
    {"the panel's label:": '97 %', 'one reader:': '81 %', 'expect': '5 to 7 of 7'}
    """
    label = f"the panel's label {of}".rstrip()
    parts = {f"{label}:": percent(two["label"]), "one reader:": percent(two["reader"])}
    if two.get("law"):
        ends = dict.fromkeys((str(two["low"]), str(two["high"])))
        parts["expect"] = f"{' to '.join(ends)} of {two['n_raters']}"
    return parts


def _cases_view(cell: Row) -> View:
    view: View = {"note": _cases_note(cell)}
    for name in ("cases", "splits"):
        view[name] = []
        for case in cell[name]:
            of, named = cell["classes"][case["shown_class"]], ""
            # Of two classes everybody knows which one is meant.
            if len(cell["classes"]) > 2:
                named = of
            shown: View = {"class": cell["classes"][case["label"]], "answers": None}
            if case["two"] is not None:
                shown["answers"] = two_parts(case["two"], named)
            view[name].append({**case, **shown, **_votes_of(case, of)})
    return view


def _votes_of(case: Row, of: str) -> View:
    """A case's votes for the class shown: in words, as a share, and as dots where they are few."""
    votes = case.get("votes") or ()
    total = sum(votes)
    if not total:
        return {"words": "", "share": "", "dots": ""}
    count = votes[case["shown_class"]]
    words = f"{count} of {total} for {of}"
    return {"words": words, "share": count / total, "dots": _dots(count, total, words) or words}


def _cases_note(cell: Row) -> str:
    """Whose probabilities a list of cases has, and how to read the two answers."""
    parts = ["Probabilities are of the class the model prefers."]
    if cell["event"] == "positive class":
        parts = [f"Probabilities are of class {cell['classes'][1]}."]
    if cell["two_answers"]:
        parts.append(
            f"Two answers, by {cell['two_answers']}: the probability of the panel’s label and that of "
            "one reader’s vote, and the numbers of votes to expect (four times in five or more)."
        )
    return " ".join([*parts, cell["image_note"]])


def _dots(count: int, total: int, words: str) -> Markup:
    """One dot a reader, full for those who chose this class; "" for more than can be counted at a glance."""
    if total > MAX_DOTS:
        return Markup("")
    sheet = Drawing(13 * total, 14, words)
    for i, fill in enumerate(["ink"] * count + ["none"] * (total - count)):
        sheet.circle(6.5 + 13 * i, 7, 4.5, fill=fill, stroke="ink")
    return svg(sheet)


# In practice


def _work_view(cell: Row) -> View:
    """Referral by confidence, with a rule for practice, and decision curves."""
    referral, rows = figures.referrals(cell), []
    for figure in referral:
        for method in figure.facts["methods"]:
            for line in method["thresholds"]:
                names = [figures.share_text(line["threshold"]), figure.title, method["method"]]
                sent = f"{line['sent']:,} of {line['n']:,}"
                avoided = f"{line['avoided']:,} of {line['errors']:,}"
                rows.append([*names, sent, avoided, number(line["per_case"])])
    # Labels come before votes, as in the facts.
    judges: dict[str, list[Figure]] = {}
    for figure in figures.decisions(cell):
        judges.setdefault(figure.facts["judge"], []).append(figure)
    head = ["Below", "Stratum", "Method", "Cases sent", "Errors avoided", "Per case"]
    return {
        "referral": referral,
        "table": table("Referral by confidence", head, rows, words=3),
        "decision": judges,
    }


PANELS = [
    Panel("difficulty", "By difficulty", _difficulty_view, "difficulty.html"),
    Panel("clinical", "Clinical numbers", _clinical_view),
    Panel("levels", "Sites and levels", _levels_view, "levels.html"),
    Panel("methods", "Methods", _methods_view, "methods.html"),
    Panel("votes", "Votes", _votes_view, "votes.html"),
    Panel("cases", "Cases", _cases_view, "cases.html"),
    Panel("work", "In practice", _work_view, "work.html"),
]
"""Sections of the page that show each model's facts, in their order."""


# What is not of one cell


def page_view(facts: Row, cells: Sequence[Row], checklist: str | None = None) -> View:
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
    items = None
    if checklist is not None:
        items = _checklist_view(checklist, every)
        sections.append(("checklist", items["title"]))
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
        "checklist": items,
        "sections": [*sections, ("made", "How this was made")],
        "subtitle": _subtitle(every),
        "first": _first(every, cells),
        "other_verdicts": other_verdicts(every[0]),
        "paragraphs": _paragraphs(every[0]),
        "alerts": every[0].get("alerts") or [],
        "strata_gloss": _strata_gloss(every),
        "models": [_model_row(cell, facts) for cell in every],
        "scores": [COLUMNS[key] for key in texts.listed_metrics("everywhere")],
        "drawn": [cell["key"] for cell in cells],
        "left_out": left_out,
        "switch": _sides(cells),
        "any_seeds": any(cell["n_seeds"] > 1 for cell in every),
        "n_resamples": ", ".join(map(number, resamples)),
        **_claims_view(facts),
        "runs": [_made(run) for run in facts["runs"]],
    }


def _sides(cells: Sequence[Row]) -> dict[str, str]:
    """What the switch between the figures of two methods offers; nothing where all have one."""
    if not any(len(cell["shown"]) > 1 for cell in cells):
        return {}
    # Methods and files stand side by side: only a calibrator has a before and an after.
    if any(cell["kind"] in ("comparison", "files") for cell in cells):
        return {"before": "Baseline", "after": "Others", "both": "All"}
    return {"before": "Before", "after": "After", "both": "Both"}


def _paragraphs(cell: Row) -> list[str]:
    """What is said of a model beside its verdict; sections on votes and levels have their own sentences."""
    elsewhere = ("voted", "kappa", "by ")
    return [text for topic, text in cell["paragraphs"].items() if not topic.startswith(elsewhere)]


def _subtitle(cells: Sequence[Row]) -> str:
    methods = {method for cell in cells for method in cell["methods"]}
    if len(cells) > 1:
        return f"{len(cells)} models, {len(methods)} methods"
    (cell,) = cells
    counts = f"test cases: {cell['n_test']:,} · seeds: {cell['n_seeds']:,}"
    if len(cell["methods"]) > 1:
        counts += f" · methods: {len(cell['methods']):,}"
    return f"{cell['name']} · {counts}"


def _clearest(cell: Row) -> float:
    """The p-value of a model's verdict; beyond every other for a model without a test."""
    p: float | None = cell["verdict"]["p"]
    if p is None:
        return 2.0
    return p


def _first(every: Sequence[Row], cells: Sequence[Row]) -> View:
    """The diagram and the cases beside the verdict, of the seed that is tested."""
    cell = min(cells, key=_clearest)
    view: View = {
        "whose": "",
        "note": "",
        "panel": None,
        "confident_errors": _confident_errors(cell),
    }
    view["by_votes"] = any(case["votes"] for case in cell["confident_errors"])
    if len(every) > 1:
        view["whose"] = cell["name"]
    elif cell["n_seeds"] > 1:
        seed, count = cell["first_seed"], cell["n_seeds"]
        view["note"] = f"seed {seed}, one of {count} repeats of split and training"
    panels = {panel["stratum"]: panel for panel in cell["reliability"][cell["judged"]]}
    panel = panels.get("overall")
    if panel is None:
        return view
    title = stratum_title(panel["stratum"], cell["agreement"]).capitalize()
    if cell["agreement"] and panel["stratum"] in AGREEMENT:
        title += f": {AGREEMENT[panel['stratum']]}"
    drawing = diagram(cell, cell["judged"], panel)
    return view | {"panel": panel, "title": title, "said": error_text(panel), "svg": drawing}


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


def _confident_errors(cell: Row) -> list[View]:
    """The most confident predictions against the readers, or the label, in words."""
    # Classes that are mere numbers are said as a person says them.
    names = ["negative", "positive"]
    if list(cell["classes"]) != ["0", "1"]:
        names = cell["classes"]
    out = []
    for case in cell["confident_errors"]:
        votes, of = case["votes"], case["shown_class"]
        says = f"says {percent(case['p'])}"
        if case["before"] not in (None, case["p"]):
            says = f"said {percent(case['before'])}, now {percent(case['p'])}"
        judged, dots = f"label: {names[case['label']]}", ""
        if votes:
            words = f"{votes[of]} of {sum(votes)} readers"
            judged, dots = f"{words} agree", _dots(votes[of], sum(votes), words)
        says = says.replace(" %", "\N{NO-BREAK SPACE}%")
        out.append({**case, "dots": dots, "said": f"{names[of]}: {says}; {judged}"})
    return out


def _strata_gloss(cells: Sequence[Row]) -> str:
    """What strata are, where they are first spoken of."""
    named = [cell for cell in cells if cell["strata"]]
    if not named:
        return ""
    if not all(cell["agreement"] for cell in named):
        return "A stratum is a subset of the cases, as named in the data."
    return (
        "A stratum is a subset of the cases, here by how far their readers agree. "
        "High: at least six of seven (or that share) say the same. Low: the readers split, at most four of "
        "seven, or a majority of one. Medium: between."
    )


def _model_row(cell: Row, facts: Row) -> View:
    value = {r["stratum"]: r for r in cell["rows"] if r["method"] == cell["baseline"]}
    whole, hard = value.get("overall", {}), value.get(cell["hardest"], {})
    _, *answers = verdict_sentences(cell["verdict"], cell["lead"])
    return {
        "key": cell["key"],
        "name": cell["name"],
        "run": facts["runs"][cell["run"]]["title"],
        "whole": whole,
        "hard": hard,
        "verdict": cell["verdict"],
        "said": " ".join([*answers, *_paragraphs(cell)]),
        "best": ", ".join(recommended_methods(cell)) or "-",
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


CHECKLIST_HEAD = {
    "model": "Model",
    "item": "Item",
    "asks": "What it asks",
    "where": "Where the answer stands",
    "answer": "Answer",
}
"""Columns of a checklist -> their titles on the page."""


def _checklist_view(name: str, cells: Sequence[Row]) -> View:
    checklist = lookup(name, CHECKLISTS, "checklist")
    rows = checklist_rows(checklist, cells)
    head = [CHECKLIST_HEAD[key] for key in rows[0]]
    items = table(checklist.title, head, [list(row.values()) for row in rows], words=len(head))
    return {"title": checklist.title, "intro": checklist_intro(checklist), "table": items}


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


# The page


def template(name: str) -> Any:
    """Return a template of this package, with escaping on."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # A name that the facts lack must fail in a test, not vanish from the page.
    loader = PackageLoader("scalecal.report", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    filters: dict[str, Callable[..., str]] = {"number": number, "percent": percent}
    environment.filters |= filters | {"words": words_of, "svg": svg}
    environment.globals |= {
        "diagram": diagram,
        "calibrated": figures.calibrated,
        "role_of": figures.role_of,
        "stratum_title": figures.stratum_title,
    }
    return environment.get_template(name)


def asset(name: str) -> Markup:
    """Return a style sheet or script. Written by us, without a closing tag: nothing to escape."""
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def write_report(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    images: Path | None = None,
    facts: Mapping[str, Any] | None = None,
    checklist: str | None = None,
) -> Path:
    """Write one self-contained page on one or several run folders of any kind.

    Parameters
    ----------
    runs
        Folders that `scalecal audit`, `compare`, `reproduce` or `demo` wrote.
    out
        The HTML file to write.
    images
        Folder that the cases' paths start from, for thumbnails and links; by default the folder
        that the run names.
    facts
        Facts of the only run, where they are still in memory; by default they are read.
    checklist
        Show the items of this checklist (`scalecal.report.checklists`) that the runs answer.

    Returns
    -------
    The file written.
    """
    out = Path(out)
    inputs = [*runs, images]
    kind = "report"
    if out.name == "report.html":
        # The report in a run's own folder belongs to the run, which makes it anew when it is run again.
        kind = written_by(out.parent / "run.json") or kind
    check_output_file(out, kind=kind, inputs=inputs)
    page = report_facts(runs, facts)
    for cell in page["cells"]:
        # Links and thumbnails are added to cases: not to those of an evaluation that is in use.
        for name in _CASE_LISTS:
            cell[name] = [dict(case) for case in cell[name]]
    if images is not None:
        check_images(images, [case["path"] for cell in page["cells"] for case in _listed(cell)])
    thumbnails = 0
    for cell in page["cells"]:
        room = MAX_BYTES_WITH_IMAGES - MAX_BYTES - thumbnails
        folder = images or cell["images"]
        used, cell["image_note"] = add_images(_listed(cell), folder, out, max_bytes=room)
        thumbnails += used
    text = ""
    # Cases go before models: a reader misses a model more than its sixth case.
    for max_cases, max_models in DETAILS:
        text = _page(page, max_cases, max_models, checklist)
        if len(text.encode("utf-8", "backslashreplace")) - thumbnails <= MAX_BYTES:
            break
    write_file(out, text, kind=kind, inputs=inputs)
    return out


def _page(
    facts: Mapping[str, Any], max_cases: int, max_models: int, checklist: str | None = None
) -> str:
    cells = [_shortened(cell, max_cases) for cell in facts["cells"][:max_models]]
    results = csv_text(texts.mean_results(facts["cells"]))
    uri, note = "", "The results are too many for this page: see the run’s results.csv."
    if len(results) <= MAX_RESULTS:
        packed = base64.b64encode(results.encode("utf-8", "backslashreplace")).decode("ascii")
        uri = f"data:text/csv;base64,{packed}"
        note = "Means over seeds, a row per model, method, stratum and metric."
    return str(
        template("template.html").render(
            **page_view(facts, cells, checklist),
            css=asset("shared.css") + asset("report.css"),
            js=asset("report.js"),
            results_uri=uri,
            results_note=note,
        )
    )


def _shortened(cell: Mapping[str, Any], max_cases: int) -> dict[str, Any]:
    """Facts of a cell with at most so many cases of each stratum."""
    kept: list[Any] = []
    count: Counter[str] = Counter()
    for case in cell["cases"]:
        count[case["stratum"]] += 1
        if count[case["stratum"]] <= max_cases:
            kept.append(case)
    return {**cell, "cases": kept, "splits": cell["splits"][: max_cases + max_cases // 2]}


# An audit in a notebook


def audit_drawing(evaluation: Evaluation) -> Drawing:
    """Return the reliability diagrams of an audit in a row, for `Evaluation.plot`."""
    core = evaluation.core
    return figures.reliability_row(first_panels(evaluation.diagrams, core["judged"]), core)


def audit_html(evaluation: Evaluation) -> str:
    """Return an audit as a piece of HTML: verdict, answers, diagrams, table; everything escaped.

    It brings its own colours, light and dark, and touches nothing outside itself, as a notebook wants it.
    """
    audit, core = evaluation.audit, evaluation.core
    panels = []
    for panel in first_panels(evaluation.diagrams, core["judged"]):
        title = stratum_title(panel["stratum"], core["agreement"])
        if "votes" in panel:
            title = "one reader’s vote"
        sheet = figures.reliability_panel(panel, title=title, event=core["event"], role="accent")
        panels.append({**panel, "title": title, "said": error_text(panel), "svg": svg(sheet)})
    colours = asset("shared.css").replace(":root", ".scalecal").replace("\n.", "\n.scalecal .")
    return str(
        template("fragment.html").render(
            verdict=evaluation.verdict,
            paragraphs=core["paragraphs"].values(),
            css=colours + asset("fragment.css"),
            panels=panels,
            table=audit_table(
                "The audit in numbers", audit.shown_rows, agreement=core["agreement"]
            ),
            notes=audit.shown_notes,
        )
    )


def audit_page(evaluation: Evaluation) -> str:
    """Return the same as a page of its own, for `Evaluation.to_html`."""
    body = Markup(audit_html(evaluation))
    return str(template("audit.html").render(n=evaluation.meta["n"], body=body))


# Images


def check_images(folder: str | Path, paths: Iterable[str | None]) -> None:
    """Fail unless there is such a folder, and at least one of the cases' files in it."""
    if not Path(folder).is_dir():
        raise InputError(f"no folder at {folder}: --images names the folder of the images")
    named = [str(path) for path in paths if path]
    if not named:
        raise InputError(
            f"--images {folder}: the cases name no image files. Paths are kept in folders made by "
            "scalecal extract"
        )
    if not any(Path(folder, path).is_file() for path in named):
        raise InputError(
            f"--images {folder}: none of the {len(named):,} image files is in it, such as {named[0]!r}: "
            "name the folder that these paths start from"
        )


_CASE_LISTS = ("confident_errors", "cases", "splits")
"""Facts that list cases, the first screen's before the others."""


def _listed(cell: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every case that a page names."""
    cases = []
    for name in _CASE_LISTS:
        cases += cell[name]
    return cases


def add_images(
    cases: list[dict[str, Any]], folder: str | Path | None, out: Path, *, max_bytes: int
) -> tuple[int, str]:
    """Add a link to each case's file and, while there is room, a thumbnail inside the page.

    Parameters
    ----------
    folder
        Where the paths start; None where it is unknown.
    out
        The report's file: links are relative to its folder.
    max_bytes
        Room for all thumbnails together.

    Returns
    -------
    Bytes used, and a note to the reader ("" if all is well).
    """
    for case in cases:
        case.update(href=None, thumbnail=None)
    wanted = [case for case in cases if case["path"]]
    if not wanted:
        return 0, ""
    if folder is None:
        return 0, "For thumbnails, give the images’ folder: scalecal report RUN --images DIR."
    used, missing, without = 0, 0, 0
    for case in wanted:
        file = _inside(Path(folder), case["path"])
        if file is None:
            missing += 1
            continue
        relative = Path(os.path.relpath(file, out.resolve().parent)).as_posix()
        case["href"] = quote(relative, safe="/.-_~")
        try:
            text = _thumbnail(file)
        except Exception:  # parsers of broken files raise nearly every kind of error
            missing += 1
            continue
        if used + len(text) > max_bytes:
            without += 1
        elif text:
            used += len(text)
            case["thumbnail"] = f"data:image/jpeg;base64,{text}"
    notes = []
    if missing:
        notes.append(f"{missing} image files were not found or could not be read.")
    if without:
        notes.append(f"The page has no room for {without} further thumbnails.")
    return used, " ".join(notes)


def _inside(folder: Path, path: str) -> Path | None:
    """Return the file of a path below a folder; a path in a table must not lead out of it.

    Links that lie inside are their owner's.
    """
    root = Path(os.path.abspath(folder))
    file = Path(os.path.normpath(root / path))
    below = file.is_relative_to(root) or file.is_relative_to(folder.resolve())
    if not below or not file.is_file():
        return None
    return file


def _thumbnail(file: Path) -> str:
    """Return a small JPEG as base64; "" for an image too large to be opened here."""
    from PIL import Image

    with Image.open(file, formats=IMAGE_FORMATS) as image:
        if image.width * image.height > MAX_PIXELS:
            return ""
        # Two pixels for each of the page's, as sharp screens have them.
        image.thumbnail((2 * THUMBNAIL, 2 * THUMBNAIL))
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "JPEG", quality=72)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
