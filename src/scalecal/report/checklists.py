"""What an audit contributes to a reporting checklist: items, the numbers for them, and what is not known.

Items are described here in words of our own; a study is reported with the published checklist at hand. Every
number is read from the facts. An item that an audit can answer in part says what it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalecal.checks import lookup
from scalecal.evaluation.folder import report_facts
from scalecal.evaluation.level_words import ratio_name
from scalecal.io.store import check_output_file, write_file, written_by
from scalecal.io.text import (
    MAX_NAMED,
    change_text,
    csv_text,
    is_known,
    listed,
    markdown_text,
    number,
    p_text,
    percent,
    some_of,
)
from scalecal.metrics import COLUMNS
from scalecal.report.paper_text import (
    ESTIMATES,
    counts,
    intervals,
    measured,
    overall,
    readers,
    recalibration,
)

Row = Mapping[str, Any]
Part = tuple[str, str]
"""Where an answer stands, and the answer."""

NOT_KNOWN = "not known to scalecal: "

SEPARATOR = " \N{MIDDLE DOT} "
"""Between the answers of one item."""


@dataclass(frozen=True)
class Item:
    """An item of a checklist.

    Attributes
    ----------
    number : str
        Its number in the published checklist.
    asks : str
        What it asks, in short.
    answers : tuple of functions
        Facts of a model -> what answers it: where that stands, and the answer.
    unknown : str
        What it asks that an audit cannot know; "" if there is nothing.
    """

    number: str
    asks: str
    answers: tuple[Callable[[Row], Iterator[Part]], ...]
    unknown: str = ""


@dataclass(frozen=True)
class Checklist:
    """A published checklist, as far as an audit can answer it."""

    title: str
    source: str
    items: tuple[Item, ...]


def _audit(cell: Row) -> Row:
    audit: Row = cell["audits"][cell["judged"]]
    return audit


def _file(cell: Row, name: str, ending: str) -> str:
    """A file of the judged method: with several methods it has the method's name."""
    if cell["kind"] == "audit":
        return f"{name}.{ending}"
    return f"{name}_{cell['judged'].replace('/', '_')}.{ending}"


def _table(cell: Row) -> str:
    """The file with the numbers of the judged method."""
    if cell["kind"] == "audit":
        return "audit.csv"
    return _file(cell, "audit", "json")


# Answers


def _estimates(*keys: str) -> Callable[[Row], Iterator[Part]]:
    """Estimates with their intervals, as far as the audit has them."""

    def answer(cell: Row) -> Iterator[Part]:
        found = {key: measured(overall(cell), key) for key in keys}
        known = [key for key, text in found.items() if text]
        if known:
            texts = [f"{COLUMNS[key].title} {found[key]}" for key in known]
            yield f"{_table(cell)}: {', '.join(known)}", SEPARATOR.join(texts)

    return answer


_performance = _estimates("ece", *ESTIMATES)


def _readers(cell: Row) -> Iterator[Part]:
    text = readers(cell)
    if text:
        yield f"{_file(cell, 'audit', 'json')}: n_raters, fleiss_kappa", text


def _size(cell: Row) -> Iterator[Part]:
    yield f"{_table(cell)}: n, n_groups, events", counts(cell)


def _strata(cell: Row) -> Iterator[Part]:
    parts = []
    audit = _audit(cell)
    levels = []
    for column in audit.get("by") or ():
        for own in column["levels"]:
            levels.append({**own, "name": f"{column['column']}={own['name']}"})
    for row in (*audit["rows"][1:], *(audit.get("classes") or ()), *levels):
        text = f"{row['name']}: n = {number(row['n'])}"
        if is_known(row.get("events")):
            text += f", {number(row['events'])} events"
        if estimate := measured(row, "oe"):
            text += f", O:E {estimate}"
        parts.append(text)
    if parts:
        yield f"page: By difficulty; {_table(cell)}", some_of(parts, MAX_NAMED, "; ")


def _missing(cell: Row) -> Iterator[Part]:
    for note in _audit(cell)["notes"]:
        if "left out" in note or "without a label" in note:
            yield "page: How this was made", note.rstrip(".")


def _groups(cell: Row) -> Iterator[Part]:
    count = overall(cell).get("n_groups")
    if is_known(count):
        text = f"floors, nulls, tests and intervals are computed over {number(count)} groups"
        yield "page: How this was made", text


def _levels(cell: Row) -> Iterator[Part]:
    """Differences between levels of the columns that were compared."""
    for column in _audit(cell)["by"]:
        text = f"{column['column']}: {len(column['levels'])} levels"
        if is_known(column["test"].get("p_corrected")):
            text += f", test of heterogeneity {p_text(column['test']['p_corrected'])}"
        if column.get("stand_out"):
            text += f", standing out: {some_of(column['stand_out'], MAX_NAMED)}"
        spread = column["spread"]["oe"]
        if is_known(spread.get("new_low")):
            low, high = (number(spread[f"new_{end}"], 2) for end in ("low", "high"))
            ratio = ratio_name(cell["event"])
            text += f", {ratio} of a new level {low} to {high} (95 % prediction interval)"
        yield f"{_table(cell)}: {column['column']}=...", text


def _measures(cell: Row) -> Iterator[Part]:
    keys = [key for key in ("ece", *ESTIMATES) if is_known(overall(cell).get(key))]
    yield _table(cell), listed([COLUMNS[key].title for key in keys])
    yield "page: By difficulty", "reliability diagrams, with the range of calibrated models"
    if cell["decision"]:
        yield "page: In practice", "decision curves"
    if len(cell["methods"]) > 1:
        yield "page: Methods", "methods compared on the same cases, with paired intervals"


def _net_benefit(cell: Row) -> Iterator[Part]:
    if cell["decision"]:
        yield _file(cell, "decision", "csv"), "net benefit by threshold, with 95 % CI"


def _uncertainty(cell: Row) -> Iterator[Part]:
    if intervals(cell):
        yield _table(cell), intervals(cell)
    if is_known(cell["verdict"]["p"]):
        text = f"all tests of calibration together, corrected: {p_text(cell['verdict']['p'])}"
        yield "page: Verdict", text


def _updating(cell: Row) -> Iterator[Part]:
    text = recalibration(cell)
    if text:
        yield "page: Methods; calibrator.json", text


def _updated(cell: Row) -> Iterator[Part]:
    if cell["kind"] != "calibration":
        return
    for row in cell["rows"]:
        if row["method"] == cell["judged"] and row["stratum"] == "overall":
            text = f"change of label NLL {change_text(row['changes']['nll'])}"
            yield "page: Methods; comparison.csv", text
    yield from _performance(cell)


def _prevalence(cell: Row) -> Iterator[Part]:
    if is_known(overall(cell).get("events")):
        text = f"{percent(overall(cell)['prevalence'])} of the cases are positive"
        if cell["prevalence"] is not None:
            text = f"cases are reweighted to a prevalence of {percent(cell['prevalence'])}"
        yield f"{_table(cell)}: prevalence", text


def _output(cell: Row) -> Iterator[Part]:
    text = f"a probability of each class: {some_of(cell['classes'], MAX_NAMED)}"
    if cell["event"] == "positive class":
        text = f"the probability of class {cell['classes'][1]}"
    yield "page: How this was made", text
    threshold = _audit(cell)["meta"].get("threshold")
    if is_known(threshold) and cell["event"] == "positive class":
        yield "page: Verdict", f"threshold of the decision: {threshold:g}"


def _failures(cell: Row) -> Iterator[Part]:
    if cell["cases"]:
        yield "page: Cases", f"{len(cell['cases'])} over-confident cases are listed"


CHECKLISTS = {
    "tripod-ai": Checklist(
        "TRIPOD+AI",
        "Collins et al., BMJ 2024; 385: e078378",
        (
            Item(
                "8b",
                "Who assessed the outcome, if that takes judgement",
                (_readers,),
                "qualifications and demographics of the readers",
            ),
            Item(
                "10",
                "How the study size was arrived at, and why it suffices",
                (_size,),
                "the reasons",
            ),
            Item(
                "11",
                "How missing data were handled, and cases left out",
                (_missing,),
                "missing predictors, and cases that are not in the file",
            ),
            Item(
                "12d",
                "How differences between clusters, such as hospitals, were handled and quantified",
                (_groups, _levels),
            ),
            Item(
                "12e",
                "Measures and plots of performance, and why these",
                (_measures,),
                "the reasons",
            ),
            Item(
                "12f",
                "Any updating of the model that followed from the evaluation",
                (_updating,),
                "updating outside of this run",
            ),
            Item(
                "13",
                "Methods against class imbalance, and recalibration after them",
                (_prevalence, _estimates("citl")),
                "methods used in training",
            ),
            Item(
                "14",
                "Approaches to fairness, and why these",
                (_levels,),
                "the approach and the reasons",
            ),
            Item(
                "15",
                "What the model puts out, and how any thresholds were found",
                (_output,),
                "the reasons for a classification and its thresholds",
            ),
            Item(
                "21",
                "Participants and outcome events in each analysis",
                (_size, _strata),
                "participants and events in training",
            ),
            Item(
                "23a",
                "Performance with confidence intervals, in key subgroups too",
                (_performance, _strata, _levels, _net_benefit),
            ),
            Item("23b", "Differences in performance between clusters, if examined", (_levels,)),
            Item(
                "24", "Results of any updating: the updated model and its performance", (_updated,)
            ),
        ),
    ),
    "claim": Checklist(
        "CLAIM 2024",
        "Tejani et al., Radiology: Artificial Intelligence 2024; 6: e240300",
        (
            Item(
                "12", "How missing data were handled", (_missing,), "cases that are not in the file"
            ),
            Item(
                "16",
                "Where the annotations of the reference standard come from",
                (_readers,),
                "qualifications and instructions of the readers",
            ),
            Item(
                "18",
                "Variability between readers, and within each",
                (_readers, _estimates("vote_nll", "vote_gap")),
                "variability within a reader, whose second readings are no input",
            ),
            Item(
                "21",
                "Size of the test set, and how it was determined",
                (_size,),
                "how it was determined",
            ),
            Item("28", "Measures of performance", (_measures,), "the reasons for these measures"),
            Item("29", "Measures of uncertainty and significance", (_uncertainty,)),
            Item(
                "37",
                "Performance with its uncertainty, in relevant subgroups too",
                (_performance, _strata, _levels),
            ),
            Item("38", "Diagnostic performance and its precision", (_performance,)),
            Item("39", "Analysis of failures", (_failures,), "the reasons for the errors"),
        ),
    ),
}
"""Name -> checklist. Numbers of items are those of the publications."""


def checklist_rows(checklist: Checklist, cells: Sequence[Row]) -> list[dict[str, str]]:
    """One row an item and model: what it asks, where the answer stands, the answer, what is not known."""
    rows = []
    for cell in cells:
        model = {"model": cell["name"]} if len(cells) > 1 else {}
        for item in checklist.items:
            parts = [part for answer in item.answers for part in answer(cell)]
            answers = [text for _, text in parts]
            unknown = item.unknown
            if not answers and not unknown:
                unknown = "this run did not examine it"
            if unknown:
                answers.append(NOT_KNOWN + unknown)
            where = dict.fromkeys(place for place, _ in parts)
            row = {"item": item.number, "asks": item.asks, "where": "; ".join(where)}
            rows.append({**model, **row, "answer": SEPARATOR.join(answers)})
    return rows


def checklist_intro(checklist: Checklist) -> str:
    """What the table is, and what it is not."""
    return (
        f"Items of {checklist.title} ({checklist.source}) that an audit can answer, described in short; the "
        "published checklist has the full wording and the other items. Every number is from the facts of "
        "this run."
    )


def write_checklist(run: str | Path, name: str) -> list[Path]:
    """Write ``checklist.md`` and ``checklist.csv``, the items that a run answers, into its folder.

    Parameters
    ----------
    run
        A run folder.
    name
        One of `CHECKLISTS`.

    Returns
    -------
    The files written.
    """
    import pandas as pd

    checklist = lookup(name, CHECKLISTS, "checklist")
    folder = Path(run)
    kind = written_by(folder / "run.json") or "report"
    paths = [folder / "checklist.md", folder / "checklist.csv"]
    for path in paths:
        check_output_file(path, kind=kind)
    table = pd.DataFrame(checklist_rows(checklist, report_facts([run])["cells"]))
    text = f"# {checklist.title}\n\n{checklist_intro(checklist)}\n\n{markdown_text(table)}"
    for path, content in zip(paths, (text, csv_text(table)), strict=True):
        write_file(path, content, kind=kind)
    return paths
