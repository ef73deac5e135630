"""Every figure as SVG and PNG, every table as CSV, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalecal.evaluation.folder import report_facts
from scalecal.evaluation.texts import mean_results
from scalecal.io.store import output_folder, write_text
from scalecal.io.text import csv_text, latex_text, markdown_text
from scalecal.report import figures, page
from scalecal.report.forest import level_forests
from scalecal.report.svg import Drawing

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]


def export(runs: Sequence[str | Path] | str | Path, out: str | Path) -> list[Path]:
    """Write every figure and table of a report as files of their own.

    Parameters
    ----------
    runs
        One run folder, or several.
    out
        Folder for the files: figures as SVG and PNG, tables as CSV, Markdown and LaTeX.

    Returns
    -------
    The files written.
    """
    if isinstance(runs, str | Path):
        runs = [runs]
    facts = report_facts(runs)
    names: list[str] = []
    with output_folder(out, kind="report", inputs=runs) as folder:
        for name, sheet in draw_all(facts).items():
            write_drawing(sheet, folder / name)
            names += [f"{name}.svg", f"{name}.png"]
        for name, table in table_all(facts, mean_results(facts["cells"])).items():
            for suffix, text in TABLES.items():
                write_text(folder / f"{name}.{suffix}", text(table))
                names.append(f"{name}.{suffix}")
    return [Path(out, name) for name in names]


TABLES: dict[str, Callable[[pd.DataFrame], str]] = {
    "csv": csv_text,
    "md": markdown_text,
    "tex": latex_text,
}
"""Suffix of a file -> table to its text."""


def write_drawing(sheet: Drawing, stem: Path) -> None:
    """Write a drawing as ``stem.svg`` and ``stem.png``."""
    # Not `with_suffix`: the name of a method may hold a dot.
    write_text(stem.with_name(f"{stem.name}.svg"), sheet.file_svg())
    sheet.save_png(stem.with_name(f"{stem.name}.png"))


def write_reliability(panels: Sequence[Row], facts: Row, stem: Path) -> None:
    """Write the reliability diagrams of one method as ``stem.svg`` and ``stem.png``."""
    write_drawing(figures.reliability_row(panels, facts), stem)


def draw_all(facts: Row) -> dict[str, Drawing]:
    """Every figure of a report by file name."""
    drawings: dict[str, Drawing] = {}
    for cell in facts["cells"]:
        drawn = figures.reliability_rows(cell)
        if cell["voted"]:
            drawn += figures.voted_plots(cell)
        drawn += [*figures.forests(cell), figures.ece_strips(cell)]
        drawn += level_forests(cell)
        drawn += figures.referrals(cell) + figures.decisions(cell)
        # A panel without a template of its own says itself which figures it has.
        for panel in page.PANELS:
            if panel.block == page.Panel.block:
                drawn += (panel.view(cell) or {}).get("figures", [])
        model = ""
        if len(facts["cells"]) > 1:
            model = cell["name"]
        for figure in drawn:
            kind, *of = figure.name
            # What figures are of may hold any sign.
            parts = [re.sub(r"[^A-Za-z0-9_]+", "-", part).strip("-") for part in (kind, model, *of)]
            name = "_".join(part.lower()[:40] for part in parts if part)
            # Names of methods may differ only in signs that a file name cannot hold.
            unique, k = name, 2
            while unique in drawings:
                unique, k = f"{name}-{k}", k + 1
            drawings[unique] = figure.drawing
    return drawings


def table_all(facts: Row, results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every table of a report by file name."""
    import pandas as pd

    rows: dict[str, list[dict[str, Any]]] = {}
    for cell in facts["cells"]:
        for name, listed in _cell_tables(cell).items():
            rows.setdefault(name, []).extend({"model": cell["name"], **row} for row in listed)
    rows["claims"] = facts["claims"]
    tables = {"results": results}
    for name, listed in rows.items():
        if listed:
            tables[name] = pd.DataFrame(listed)
    return tables


def _cell_tables(cell: Row) -> dict[str, list[dict[str, Any]]]:
    changes, referral, decision, voted = [], [], [], []
    for row in cell["rows"]:
        for metric, change in row["changes"].items():
            if row["method"] != cell["baseline"]:
                of = {"method": row["method"], "stratum": row["stratum"], "metric": metric}
                changes.append({**of, **change})
    for panel in cell["referral"]:
        for method in panel["methods"]:
            of = {"stratum": panel["stratum"], "method": method["method"]}
            referral += [{**of, **line} for line in method["thresholds"]]
    for panel in cell["decision"]:
        for method in panel["methods"]:
            of = {key: panel[key] for key in ("judge", "stratum", "n")}
            of["method"] = method["method"]
            decision += [{**of, **line} for line in method["table"]]
    if cell["voted"]:
        voted = figures.voted_points(cell)
    return {
        "methods": [_without(row, "changes") for row in cell["rows"]],
        "changes": changes,
        "audit": cell["audits"][cell["judged"]]["rows"],
        "levels": _level_rows(cell["audits"][cell["judged"]]),
        "softening": [{"method": name, **line} for name, line in cell["softening"].items()],
        "referral": referral,
        "decision": decision,
        "cases": [*map(_flat_case, cell["cases"])],
        "splits": [*map(_flat_case, cell["splits"])],
        "voted": [*map(_flat_changes, voted)],
        "kappa": [*map(_flat_changes, cell["kappa_sensitivity"] or ())],
    }


def _level_rows(audit: Row) -> list[dict[str, Any]]:
    """The levels of every column, with the changes that calibrators make there in columns of their own."""
    out = []
    for facts in audit["by"]:
        for level in facts["levels"]:
            line = {"column": facts["column"], "level": level["name"]}
            line |= _without(level, "name", "row", "own")
            for name in ("common", "own"):
                change = level.get("own", {}).get(name, {})
                for key in ("change", "low", "high"):
                    line[f"{name}_nll_{key}"] = change.get(key)
            out.append(line)
    return out


def _without(row: Row, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in keys}


TWO_COLUMNS = {
    "label": "p",
    "reader": "p_reader",
    "split": "p_split",
    "n_raters": "n_raters",
    "low": "expected_low",
    "high": "expected_high",
    "votes": "observed",
}
"""A case's two answers -> their columns in a table."""


def _flat_case(case: Row) -> dict[str, Any]:
    """A case with its votes and its two answers in columns of their own."""
    flat = _without(case, "votes", "two")
    for j, count in enumerate(case.get("votes") or ()):
        flat[f"votes_{j}"] = count
    if case["two"] is not None:
        flat |= {name: case["two"].get(key) for key, name in TWO_COLUMNS.items()}
    return flat


def _flat_changes(row: Row) -> dict[str, Any]:
    """A row with the change of each metric in columns of its own."""
    flat = _without(row, "changes")
    for metric, change in row["changes"].items():
        flat[f"{metric}_change"] = change["difference"]
        flat |= {f"{metric}_change_{end}": change[end] for end in ("low", "high")}
    return flat
