"""Every figure as SVG and PNG, every table as CSV, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scalecal.checks import check_choice
from scalecal.io.store import output_folder, write_text
from scalecal.io.text import csv_text, latex_text, markdown_text
from scalecal.report import figures
from scalecal.report.svg import Drawing
from scalecal.report.views import forests, frontiers, stratum_title
from scalecal.runs.folder import read_runs, results_of, side_by_side

if TYPE_CHECKING:
    import pandas as pd


def export(
    runs: Sequence[str | Path] | str | Path,
    out: str | Path,
    what: Literal["figures", "tables"] = "figures",
) -> list[Path]:
    """Write the figures or the tables of a report as files of their own.

    Parameters
    ----------
    runs
        One run folder, or several.
    out
        Folder for the files.
    what
        "figures" writes SVG and PNG, "tables" CSV, Markdown and LaTeX.

    Returns
    -------
    The files written.
    """
    check_choice(what, ("figures", "tables"), "what")
    folders = [runs] if isinstance(runs, str | Path) else list(runs)
    read = read_runs(folders)
    facts = side_by_side(read)
    names: list[str] = []
    with output_folder(out, kind="report", inputs=folders) as folder:
        if what == "figures":
            for name, sheet in draw_all(facts).items():
                write_text(folder / f"{name}.svg", sheet.file_svg())
                sheet.save_png(folder / f"{name}.png")
                names += [f"{name}.svg", f"{name}.png"]
        else:
            for name, table in table_all(facts, results_of(read, facts)).items():
                write_text(folder / f"{name}.csv", csv_text(table))
                write_text(folder / f"{name}.md", markdown_text(table))
                write_text(folder / f"{name}.tex", latex_text(table))
                names += [f"{name}.{suffix}" for suffix in ("csv", "md", "tex")]
    return [Path(out, name) for name in names]


def _file_name(*parts: str) -> str:
    """Make one file name of words that may hold anything."""
    words = (re.sub(r"[^A-Za-z0-9_]+", "-", part).strip("-").lower()[:40] for part in parts)
    return "_".join(word for word in words if word)


def _distinct(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in pairs:
        unique, k = name, 2
        while unique in out:
            unique, k = f"{name}-{k}", k + 1
        out[unique] = value
    return out


def draw_all(facts: dict[str, Any]) -> dict[str, Drawing]:
    """Every figure of a report by file name."""
    drawings: list[tuple[str, Drawing]] = []
    cells = facts["cells"]
    for cell in cells:
        own = () if len(cells) == 1 else (cell["name"],)
        for kind in ("reliability", "vote_reliability"):
            for method, panels in cell[kind].items():
                if not panels:
                    continue
                sheet = figures.reliability_row(
                    panels,
                    [stratum_title(p["stratum"], cell["agreement"]) for p in panels],
                    event=cell["event"],
                    role=figures.role_of(method, cell["baseline"]),
                    heading=f"{cell['name']}: {method}",
                )
                drawings.append((_file_name(kind, *own, method), sheet))
        voted = figures.voted_curve(cell) if cell["voted"] else None
        if voted is not None:
            drawings.append((_file_name("voted", *own), voted))
        for kind, _, drawn in forests(cell):
            drawings.append((_file_name(f"forest_{kind}", *own), drawn))
        for kind, _, drawn in frontiers(cell):
            drawings.append((_file_name(f"frontier_{kind}", *own), drawn))
        top = figures.referral_top(cell["referral"])
        for panel in cell["referral"]:
            title = stratum_title(panel["stratum"], cell["agreement"])
            sheet = figures.referral_panel(panel, title=title, baseline=cell["baseline"], top=top)
            drawings.append((_file_name("referral", *own, panel["stratum"]), sheet))
    rows = [{**row, "cell": cell["name"]} for cell in cells for row in cell["rows"]]
    baselines = {cell["name"]: cell["baseline"] for cell in cells}
    top = figures.ece_top(cells)
    sheet = figures.dot_rows(rows, facts["strata"], baselines=baselines, top=top)
    drawings.append(("ece_against_floor", sheet))
    return _distinct(drawings)


def table_all(facts: dict[str, Any], tidy: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every table of a report by file name."""
    import pandas as pd

    rows: dict[str, list[dict[str, Any]]] = {}
    for cell in facts["cells"]:
        for name, listed in _cell_tables(cell).items():
            rows.setdefault(name, []).extend({"model": cell["name"], **row} for row in listed)
    rows["claims"] = facts["claims"]
    return {"results": tidy} | {name: pd.DataFrame(own) for name, own in rows.items() if own}


def _cell_tables(cell: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {
        "methods": [{k: v for k, v in row.items() if k != "changes"} for row in cell["rows"]],
        "changes": [
            {"method": row["method"], "stratum": row["stratum"], "metric": metric, **change}
            for row in cell["rows"]
            if row["method"] != cell["baseline"]
            for metric, change in row["changes"].items()
        ],
        "audit": cell["audits"][cell["baseline"]]["rows"],
        "frontier": cell["frontier"]["points"],
        "softening": cell["frontier"]["curve"],
        "referral": [
            {"stratum": panel["stratum"], "method": method["method"], **line}
            for panel in cell["referral"]
            for method in panel["methods"]
            for line in method["thresholds"]
        ],
        "cases": [
            {k: v for k, v in case.items() if k not in ("votes", "two")}
            | {f"votes_{j}": v for j, v in enumerate(case["votes"] or ())}
            | _two_columns(case["two"])
            for case in cell["cases"]
        ],
        "splits": [
            {k: v for k, v in case.items() if k != "two"} | _two_columns(case["two"])
            for case in cell["splits"]
        ],
        "voted": [
            _flat_changes(point) for point in (figures.voted_points(cell) if cell["voted"] else ())
        ],
        "kappa": [_flat_changes(row) for row in cell["kappa_sensitivity"] or ()],
    }


def _two_columns(two: dict[str, Any] | None) -> dict[str, Any]:
    """A case's two answers as columns of a table."""
    if two is None:
        return {}
    kept = {"label": "p", "reader": "p_reader", "split": "p_split", "n_raters": "n_raters"}
    kept |= {"low": "expected_low", "high": "expected_high", "votes": "observed"}
    return {name: two.get(key) for key, name in kept.items()}


def _flat_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the change of each metric in columns of its own."""
    flat = {k: v for k, v in row.items() if k != "changes"}
    for metric, change in row["changes"].items():
        flat[f"{metric}_change"] = change["difference"]
        flat |= {f"{metric}_change_{end}": change[end] for end in ("low", "high")}
    return flat
