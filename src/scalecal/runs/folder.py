"""What a run leaves on disk: a cell, its scores, its comparison, audits and figures."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scalecal import __version__
from scalecal.auditing.audits import Audit, audit_predictions
from scalecal.io.store import output_folder, write_csv, write_json
from scalecal.runs.cells import BASELINE, Cell, Prediction, write_cell
from scalecal.runs.comparison import Comparison

__all__ = ["audit_method", "run_meta", "write_audit_run", "write_run"]

MOST_CASES = 1_000_000
"""Cases above which an audit keeps its numbers but not a copy of the cases, and has no report."""

CASE_FILES = ("run.json", "cases.parquet", "predictions.parquet")
RUN_FILES = (
    *(*CASE_FILES, "results.csv", "comparison.csv"),
    *("claims.json", "frontier.csv", "frontier_methods.csv"),
)
AUDIT_FILES = ("audit.json", "audit.csv", "reliability.svg", "reliability.png")
"""Files of a run or audit: somebody else's of these names are refused before any work."""

_PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "pyarrow")


def run_meta(
    cell: Cell,
    *,
    kind: str,
    title: str,
    command: Sequence[str],
    options: Mapping[str, Any],
    notes: Sequence[str],
    fingerprint: str,
) -> dict[str, Any]:
    """Return what `run.json` says: everything that made the run, nothing about when and where.

    The one exception is the folder of the images, where the run knows it: the report links to them.
    """
    seeds = sorted({seed for _, seed in cell.predictions})
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    images = dict(cell.meta.get("dataset") or {}).get("data")
    where = {} if images is None else {"data": images}
    return {
        "kind": kind,
        "title": title,
        "version": __version__,
        "command": ["scalecal", *command[1:]],
        "options": {k: v for k, v in options.items() if v is not None},
        "seeds": seeds,
        "dataset": {"name": cell.dataset, "sha256": fingerprint, "n": cell.cases.n, **where},
        "encoder": {"name": cell.encoder},
        "methods": cell.methods,
        **({"variants": cell.variants} if cell.variants else {}),
        "notes": list(notes),
        "packages": {"python": ".".join(map(str, sys.version_info[:3])), **packages},
    }


def audit_method(cell: Cell, method: str, seed: int | None = None, **options: Any) -> Audit:
    """Audit one method's predictions of one seed (the first, unless named)."""
    return audit_predictions(cell.answers(method, seed), **options)


def write_run(
    out: str | Path,
    comparison: Comparison,
    *,
    kind: str,
    command: Sequence[str],
    options: Mapping[str, Any],
    notes: Sequence[str],
    fingerprint: str,
    title: str | None = None,
    claims: Sequence[Mapping[str, Any]] | None = None,
    inputs: Sequence[Path | None] = (),
) -> list[str]:
    """Write a run folder, all of it or nothing, and return the names of the files.

    Files that an earlier run of the same kind wrote there and this one does not have are removed:
    audits of another best method, say, would be taken for this run's.
    """
    from scalecal.auditing.plots import save
    from scalecal.runs.frontier import frontier_curve, frontier_methods

    cell = comparison.cell
    meta = run_meta(
        cell,
        kind=kind,
        title=title or f"Comparison of {len(cell.methods)} methods on {cell.dataset}",
        command=command,
        options=options,
        notes=notes,
        fingerprint=fingerprint,
    )
    with output_folder(out, kind=kind, inputs=inputs, replace=True) as folder:
        write_cell(folder, replace(cell, meta={**cell.meta, **meta}))
        write_csv(comparison.results, folder / "results.csv")
        write_csv(comparison.table, folder / "comparison.csv")
        if claims is not None:
            write_json(folder / "claims.json", list(claims))
        for method in dict.fromkeys((BASELINE, comparison.best)):
            if method in cell.methods:
                found = audit_method(cell, method)
                found.to_json(folder / f"audit_{method}.json")
                save(found.plot(), folder / f"reliability_{method}")
        if BASELINE in cell.methods and "low" in cell.stratum_names:
            write_csv(frontier_curve(cell), folder / "frontier.csv")
            write_csv(frontier_methods(cell), folder / "frontier_methods.csv")
        return sorted(p.name for p in folder.iterdir())


def write_audit_run(
    out: str | Path,
    found: Audit,
    *,
    dataset: str,
    command: Sequence[str] = ("scalecal",),
    options: Mapping[str, Any] | None = None,
    inputs: Sequence[Path | None] = (),
) -> list[str]:
    """Write an audit: its numbers, its figure and its cases; return the names of the files.

    Files that an earlier audit wrote there and this one does not have are removed: the cases of
    another file, say, would be taken for this one's. So is its report.
    """
    from scalecal.auditing.plots import save

    with output_folder(out, kind="audit", inputs=inputs, replace=True) as folder:
        found.to_json(folder / "audit.json")
        write_csv(found.to_frame(), folder / "audit.csv")
        save(found.plot(), folder / "reliability")
        if found.times is None and len(found.predictions) <= MOST_CASES:
            everything = Prediction(np.arange(found.predictions.cases.n), found.predictions.p)
            cell = Cell(dataset, "model", found.predictions.cases, {("model", 0): everything})
            meta = run_meta(
                cell,
                kind="audit",
                title=f"Audit of {dataset}",
                command=command,
                options=options or {},
                notes=found.notes,
                fingerprint=str(found.meta["data_sha256"]),
            )
            write_cell(folder, replace(cell, meta=meta))
        return sorted(p.name for p in folder.iterdir())
