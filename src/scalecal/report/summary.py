"""Run folders to facts: everything the page says, as one JSON-able dict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal import __version__
from scalecal.io.store import plain
from scalecal.report import casework, curves, measures
from scalecal.report.runs import Cell, Run, read_runs
from scalecal.report.sentences import best_method, help_sentence, lead
from scalecal.votes import STRATA

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["collect", "report_facts"]

METRICS = ("ece", "nll", "vote_nll", "brier", "auc", "accuracy")
"""Metrics shown beside ECE, in this order, where the results have them."""

_BUDGET = 3e8  # cases resampled for null bands and changes, over all methods and cells


def report_facts(runs: Sequence[str | Path], *, cases: int = 8) -> dict[str, Any]:
    """Everything a report of these runs says, JSON-able; `cases` are listed per stratum at most."""
    return collect(read_runs(runs), cases=cases)[0]


def collect(
    runs: Sequence[Run], *, cases: int = 8
) -> tuple[dict[str, Any], list[Cell], pd.DataFrame]:
    """As `report_facts`, of runs read already; with the cells behind it and their tidy results."""
    import pandas as pd

    all_cells = [measures.with_remedies(cell) for run in runs for cell in run.cells]
    work = sum(len(c.methods) * len(c.y) for c in all_cells)
    n_resamples = int(np.clip(_BUDGET / max(work, 1) / 10, 60, 400))
    tidy = [measures.results(cell) for cell in all_cells]
    cells = [
        _cell(cell, table, n_resamples, cases) for cell, table in zip(all_cells, tidy, strict=True)
    ]
    _distinct_names(cells, runs)
    listed = [_run(run) for run in runs]
    found = {
        "version": __version__,
        "title": _title(listed, cells),
        "lead": lead(cells),
        "runs": listed,
        "strata": _all_strata(cells),
        "methods": list(dict.fromkeys(m for c in cells for m in c["methods"])),
        "cells": cells,
        "claims": [{**claim, "run": i} for i, run in enumerate(runs) for claim in run.claims],
        "n_resamples": n_resamples,
    }
    joined = pd.concat(
        [
            table.drop(columns=["dataset", "encoder"], errors="ignore").assign(model=cell["name"])
            for table, cell in zip(tidy, cells, strict=True)
        ],
        ignore_index=True,
    )
    joined = joined[["model", *joined.columns.drop("model")]]
    return dict(plain(found)), all_cells, joined


def _title(runs: Sequence[Mapping[str, Any]], cells: Sequence[Mapping[str, Any]]) -> str:
    if len(runs) == 1:
        return str(runs[0]["title"])
    return f"{len(runs)} runs side by side" if len(cells) >= len(runs) else "Report"


def _run(run: Run) -> dict[str, Any]:
    info = run.info
    kept = ("kind", "version", "command", "options", "seeds", "dataset", "encoder", "methods")
    return {
        "title": info.get("title") or run.folder.name,
        "folder": run.folder.name,
        **{key: info.get(key) for key in kept},
        "notes": list(info.get("notes") or ()),
        "packages": dict(info.get("packages") or {}),
        "cells": [cell.key for cell in run.cells],
    }


def _all_strata(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    named = list(dict.fromkeys(s for c in cells for s in c["strata"]))
    if set(named) <= set(STRATA):
        named = [s for s in STRATA if s in named]
    return ["overall", *named]


def _distinct_names(cells: list[dict[str, Any]], runs: Sequence[Run]) -> None:
    """Cells of several runs may be of one data set and encoder: the run's title tells them apart."""
    names = [c["name"] for c in cells]
    for cell in cells:
        if names.count(cell["name"]) > 1 and len(runs) > 1:
            title = runs[cell["run"]].info.get("title") or runs[cell["run"]].folder.name
            cell["name"] = f"{cell['name']} ({title})"
    names = [c["name"] for c in cells]
    for i, cell in enumerate(cells):
        if names.count(cell["name"]) > 1:
            cell["name"] = f"{cell['name']} #{i + 1}"


def _cell(cell: Cell, tidy: pd.DataFrame, n_resamples: int, most_cases: int) -> dict[str, Any]:
    bands = {m: measures.null_bands(cell, m, n_resamples=n_resamples) for m in cell.methods}
    told = _audit(cell, n_resamples)
    if len(cell.predictions[cell.baseline]) == 1:
        _as_audited(bands[cell.baseline], told["rows"])
    changed = measures.changes(cell, n_resamples=n_resamples)
    rows = _rows(cell, tidy, bands, changed)
    best = best_method(changed, recommendable(cell.methods))
    shown = [cell.baseline] + ([best["method"]] if best else [])
    beside = {m: measures.first_bands(cell, m, n_resamples=n_resamples) for m in shown}
    _as_audited(beside[cell.baseline], told["rows"])
    seed, first = cell.first(cell.baseline)
    found: dict[str, Any] = {
        "key": cell.key,
        "run": cell.run,
        "name": cell.name,
        "dataset": cell.data.dataset,
        "encoder": cell.data.encoder or None,
        "classes": list(cell.data.cases.classes),
        "event": "positive class" if first.probs.ndim == 1 else "top class is right",
        "n": len(cell.y),
        "n_test": len(first.rows),
        "seed": seed,
        "n_seeds": len(cell.predictions[cell.baseline]),
        "n_bins": measures.bins_of(cell),
        "strata": list(cell.strata),
        "hardest": cell.hardest,
        "agreement": bool(cell.strata) and set(cell.strata) <= set(STRATA),
        "votes": cell.counts is not None,
        "methods": list(cell.methods),
        "derived": dict(cell.derived),
        "about": _about(cell),
        "baseline": cell.baseline,
        "best": best,
        "shown": shown,
        "audit": told,
        "rows": rows,
        "changes": changed,
        "reliability": {m: curves.reliability(cell, m, beside[m]) for m in shown},
        "frontier": curves.frontier(cell, rows, changed),
        "referral": curves.referral(cell, shown),
        "cases": casework.overconfident(
            cell, cell.baseline, best["method"] if best else None, most=most_cases
        ),
    }
    found["help"] = help_sentence(found)
    return found


def _about(cell: Cell) -> dict[str, str]:
    """What each method does, in a sentence, where it is known."""
    if len(cell.data.methods) == len(cell.derived) + 1:
        return dict(cell.derived)
    from scalecal.runs.methods import METHODS

    known = {m: f"{METHODS[m].label}. {METHODS[m].about}" for m in cell.methods if m in METHODS}
    return known | dict(cell.derived)


def recommendable(methods: Sequence[str]) -> set[str]:
    """Methods that may be recommended: no negative control, and none trained on readers' votes."""
    from scalecal.runs.methods import METHODS

    barred = {m for m in methods if m in METHODS and (METHODS[m].needs_votes or METHODS[m].control)}
    return set(methods) - barred


def _rows(
    cell: Cell, tidy: pd.DataFrame, bands: Mapping[str, Any], changed: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One row per method and stratum: means over seeds, floor, null band, changes."""
    tidy = tidy.assign(method=tidy["method"].astype(str), stratum=tidy["stratum"].astype(str))
    keys = ["method", "stratum", "metric"]
    grouped = tidy.groupby(keys, sort=False)
    mean: dict[Any, float] = grouped["value"].mean().to_dict()
    floor: dict[Any, float] = grouped["floor"].mean().to_dict()
    spread: dict[Any, float] = grouped["value"].std(ddof=1).to_dict()
    out = []
    for method in cell.methods:
        _, given = cell.first(method)
        for stratum in ("overall", *cell.strata):
            n = int(cell.inside(given.rows, stratum).sum())
            at = (method, stratum, "ece")
            if at not in mean:
                continue
            row: dict[str, Any] = {
                "method": method,
                "stratum": stratum,
                "n": n,
                "seeds": len(cell.predictions[method]),
                "ece": mean[at],
                "ece_sd": spread[at],
                "floor": floor[at],
                **bands[method].get(stratum, {}),
            }
            for metric in METRICS[1:]:
                if (method, stratum, metric) in mean:
                    row[metric] = mean[method, stratum, metric]
            row["changes"] = changed.get(method, {}).get(stratum, {})
            out.append(row)
    return out


def _as_audited(bands: dict[str, dict[str, float]], rows: Sequence[Mapping[str, Any]]) -> None:
    """Take the null's mean from the audit where it has one: one page, one number."""
    for row in rows:
        mean = row.get("floor" if row["name"] == "overall" else "null")
        if mean is not None and row["name"] in bands:
            bands[row["name"]]["null"] = mean


def _audit(cell: Cell, n_resamples: int) -> dict[str, Any]:
    """Return the audit of the baseline: as the run left it, or made here of the first seed."""
    for name in ("audit.json", f"audit_{cell.baseline}.json"):
        found = cell.json(name)
        if found is not None:
            return {
                "rows": found["strata"],
                "sentences": found["sentences"],
                "notes": found["notes"],
                "meta": found["meta"],
            }
    from scalecal.auditing.audits import audit

    _, given = cell.first(cell.baseline)
    rows = given.rows
    agreement = set(cell.strata) <= set(STRATA) and cell.counts is not None
    named = np.array([*cell.strata, ""])[cell.codes[rows]]
    made = audit(
        cell.y[rows],
        given.probs,
        votes=None if cell.counts is None else cell.counts[rows],
        strata=None if agreement or not cell.strata else named,
        groups=None if cell.groups is None else cell.groups[rows],
        n_bins=measures.bins_of(cell),
        n_resamples=max(n_resamples, 200),
    ).to_dict()
    return {
        "rows": made["strata"],
        "sentences": made["sentences"],
        "notes": made["notes"],
        "meta": made["meta"],
    }
