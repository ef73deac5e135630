"""What a run leaves on disk, and how it is read again: cells, their facts, scores, audits and figures.

A folder that holds `cases.parquet` and `predictions.parquet` is a cell; a run folder is a cell, or
holds cells below `cells/`. Facts are stored with the hashes of the cell's files; where they are missing
or of other files, they are computed again by the same function.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scalecal import __version__
from scalecal.auditing.audits import Audit
from scalecal.cases import Predictions
from scalecal.checks import InputError, in_file
from scalecal.io.boundary import reading
from scalecal.io.documents import check_document, read_document
from scalecal.io.store import (
    file_hash,
    is_own,
    output_folder,
    plain,
    write_csv,
    write_file,
    write_json,
    write_text,
    written_by,
)
from scalecal.runs import wording
from scalecal.runs.cells import read_cell, read_meta, write_cell
from scalecal.runs.facts import Comparison, compare_cell
from scalecal.votes import STRATA

if TYPE_CHECKING:
    import pandas as pd

FACTS = "facts.json"
_FORMAT = 4

MOST_KEPT = 1_000_000
"""Cases above which an audit keeps its numbers but not a copy of the cases, and has no report."""

CASE_FILES = ("run.json", "cases.parquet", "predictions.parquet", FACTS)
RUN_FILES = (
    *(*CASE_FILES, "results.csv", "comparison.csv"),
    *("claims.json", "frontier.csv", "frontier_methods.csv", "differences.csv"),
)
CALIBRATE_FILES = ("predictions.csv", "calibrator.json")
AUDIT_FILES = ("audit.json", "audit.csv", "decision.csv", "reliability.svg", "reliability.png")
"""Files of a run or audit: somebody else's of these names are refused before any work."""

_PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "pyarrow")


def run_meta(
    cell: Predictions,
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
    seeds = sorted({seed for _, seed in cell.answers})
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


def write_run(
    out: str | Path,
    comparison: Comparison,
    *,
    kind: str,
    title: str | None = None,
    claims: Sequence[Mapping[str, Any]] | None = None,
    files: Mapping[str, str] | None = None,
    inputs: Sequence[Path | None] = (),
    **about: Any,
) -> list[str]:
    """Write a run folder, all of it or nothing, and return the names of the files.

    `files` are further ones, name -> text; `about` is the rest of what `run_meta` takes: command,
    options, notes and fingerprint. Files that an earlier run of the same kind wrote there and this one
    does not have are removed: audits of another best method, say, would be taken for this run's.
    """
    import pandas as pd

    from scalecal.auditing.plots import save

    cell, facts = comparison.cell, comparison.facts
    title = title or f"Comparison of {len(cell.methods)} methods on {cell.dataset}"
    meta = run_meta(cell, kind=kind, title=title, **about)
    with output_folder(out, kind=kind, inputs=inputs, replace=True) as folder:
        write_cell(folder, replace(cell, meta={**cell.meta, **meta}))
        write_text(folder / FACTS, _facts_text(folder, facts))
        write_csv(comparison.results, folder / "results.csv")
        write_csv(comparison.table, folder / "comparison.csv")
        if claims is not None:
            write_json(folder / "claims.json", list(claims))
        for name, text in (files or {}).items():
            write_text(folder / name, text)
        for method, audit in comparison.audits.items():
            name = method.replace("/", "_")
            audit.to_json(folder / f"audit_{name}.json")
            write_csv(audit.decision_curve(), folder / f"decision_{name}.csv")
            save(audit.plot(), folder / f"reliability_{name}")
        if facts["differences"]:
            write_csv(pd.DataFrame(facts["differences"]), folder / "differences.csv")
        if facts["hardest"]:
            curve, beyond = (pd.DataFrame(facts["frontier"][k]) for k in ("curve", "beyond"))
            write_csv(curve, folder / "frontier.csv")
            write_csv(beyond, folder / "frontier_methods.csv")
        return sorted(p.name for p in folder.iterdir())


def write_audit_run(
    out: str | Path,
    audit: Audit,
    *,
    dataset: str,
    command: Sequence[str] = ("scalecal",),
    options: Mapping[str, Any] | None = None,
    inputs: Sequence[Path | None] = (),
    advance: Callable[[float], object] = lambda _: None,
) -> list[str]:
    """Write an audit: its numbers, its figure, its cases and facts; return the names of the files.

    Files that an earlier audit wrote there and this one does not have are removed: the cases of
    another file, say, would be taken for this one's. So is its report.
    """
    from scalecal.auditing.plots import save

    with output_folder(out, kind="audit", inputs=inputs, replace=True) as folder:
        audit.to_json(folder / "audit.json")
        write_csv(audit.to_frame(), folder / "audit.csv")
        write_csv(audit.decision_curve(), folder / "decision.csv")
        save(audit.plot(), folder / "reliability")
        if audit.times is None and len(audit.predictions) <= MOST_KEPT:
            cell = replace(audit.predictions, dataset=dataset, encoder="model")
            meta = run_meta(
                cell,
                kind="audit",
                title=f"Audit of {dataset}",
                command=command,
                options={**(options or {}), "prevalence": audit.meta.get("prevalence")},
                notes=audit.shown_notes,
                fingerprint=str(audit.meta["data_sha256"]),
            )
            cell = replace(cell, meta=meta)
            write_cell(folder, cell)
            chosen = {k: audit.meta[k] for k in ("n_bins", "n_resamples", "seed")}
            made = compare_cell(cell, audits={"model": audit}, advance=advance, **chosen)
            write_text(folder / FACTS, _facts_text(folder, made.facts))
        return sorted(p.name for p in folder.iterdir())


# Facts on disk


def _hashes(folder: Path) -> dict[str, str]:
    return {name: file_hash(folder / name) for name in ("cases.parquet", "predictions.parquet")}


def _facts_text(folder: Path, facts: Mapping[str, Any]) -> str:
    about = {"format": _FORMAT, "version": __version__, "made_from": _hashes(folder)}
    return json.dumps(plain(about | dict(facts)), allow_nan=False, ensure_ascii=False) + "\n"


class _Facts(msgspec.Struct):
    """What ``facts.json`` holds of a cell: the keys that every display needs."""

    name: str
    dataset: str
    encoder: str | None
    classes: list[str]
    event: str
    n: int
    n_test: int
    n_bins: int
    n_resamples: int
    seed: int
    n_seeds: int
    strata: list[str]
    hardest: str | None
    agreement: bool
    votes: bool
    methods: list[str]
    derived: dict[str, Any]
    about: dict[str, Any]
    presets: dict[str, Any]
    baseline: str
    best: dict[str, Any] | None
    shown: list[str]
    judged: str
    audits: dict[str, dict[str, Any]]
    rows: list[dict[str, Any]]
    recovered: dict[str, Any]
    differences: list[dict[str, Any]]
    reliability: dict[str, list[dict[str, Any]]]
    frontier: dict[str, Any]
    cases: list[dict[str, Any]]
    verdict: dict[str, Any]
    lead: list[dict[str, Any]]
    details: list[str]
    more: list[str]


def _stored_facts(folder: Path) -> dict[str, Any] | None:
    """Return the facts stored beside a cell, if they are of its present files and were not edited."""
    if not is_own(folder / FACTS):
        return None
    facts = read_document(folder / FACTS, dict[str, Any])
    if facts.get("format") != _FORMAT or facts.get("made_from") != _hashes(folder):
        return None
    try:
        check_document(folder / FACTS, facts, _Facts)
    except InputError:
        return None
    return facts


def _facts_of(folder: Path) -> dict[str, Any]:
    """Return a cell's facts: stored, or computed as the run would have."""
    facts = _stored_facts(folder)
    if facts is not None:
        return facts
    cell = read_cell(folder)
    if not cell.answers:
        raise InputError(f"{folder / 'predictions.parquet'} holds no prediction")
    options: dict[str, Any] = cell.meta.get("options") or {}
    chosen = {k: options[k] for k in ("n_bins", "n_resamples", "seed") if options.get(k)}
    return compare_cell(cell, **chosen).facts


def store_facts(folder: str | Path) -> None:
    """Compute and keep the facts of every cell of a run that has none of its present files."""
    run = _read_run(Path(folder))
    for place, facts in zip(run.places, run.facts, strict=True):
        if "made_from" not in facts:
            kind = written_by(place / "run.json") or "files"
            write_file(place / FACTS, _facts_text(place, facts), kind=kind)


# Reading runs


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder: what made it, the facts of its cells, their folders, and its claims.

    `images` are the folders that the paths of the cells' cases start from, where the run knows them.
    """

    folder: Path
    info: Mapping[str, Any]
    facts: tuple[dict[str, Any], ...]
    places: tuple[Path, ...]
    images: tuple[str | None, ...]
    claims: Sequence[Mapping[str, Any]]

    @property
    def title(self) -> str:
        """Title of the run, or the name of its folder."""
        return self.info.get("title") or self.folder.name


class _Claim(msgspec.Struct):
    """What ``claims.json`` holds of each claim, as far as the page shows it."""

    id: str
    claim: str
    verdict: str
    kind: str = ""
    main: bool = False


def _read_claims(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    claims = read_document(path, list[dict[str, Any]])
    check_document(path, claims, list[_Claim])
    return claims


def _cell_folders(folder: Path) -> list[Path]:
    def is_cell(place: Path) -> bool:
        return all((place / name).is_file() for name in ("cases.parquet", "predictions.parquet"))

    below = sorted(p for p in folder.glob("cells/*/*") if is_cell(p))
    return [folder, *below] if is_cell(folder) else below


def read_runs(folders: Sequence[str | Path]) -> list[Run]:
    """Read run folders of any kind, with the facts of their cells."""
    if not folders:
        raise InputError("no run given: name at least one folder that a scalecal command wrote")
    return [_read_run(Path(folder)) for folder in folders]


def _read_run(folder: Path) -> Run:
    places = _cell_folders(folder)
    if not places:
        raise InputError(
            f"no run at {folder}: expected cases.parquet and predictions.parquet there, or below "
            "cells/. Run scalecal audit, calibrate, compare, reproduce or demo with --out first"
        )
    metas = {place: read_meta(place) for place in places}
    shown = [p for p in places if not (metas[p].get("dataset") or {}).get("shift")] or places
    with in_file(str(folder)):
        facts = {place: _facts_of(place) for place in shown}
    # Data with strata first: they are what a reader comes for.
    shown.sort(key=lambda place: not facts[place]["strata"])
    info = metas[shown[0]]
    if (folder / "run.json").is_file():
        info = read_meta(folder)
    if len(shown) < len(places):
        note = (
            f"{len(places) - len(shown)} models tested elsewhere than trained are not on this page: "
            "see the run's tables/shift.md and figures/shift.svg."
        )
        info = {**info, "notes": [*(info.get("notes") or ()), note]}
    return Run(
        folder,
        info,
        tuple(facts[place] for place in shown),
        tuple(shown),
        tuple((metas[place].get("dataset") or {}).get("data") for place in shown),
        _read_claims(folder / "claims.json"),
    )


def report_facts(folders: Sequence[str | Path]) -> dict[str, Any]:
    """Everything a report of these run folders says, JSON-able."""
    return side_by_side(read_runs(folders))


def side_by_side(runs: Sequence[Run]) -> dict[str, Any]:
    """Join the facts of all cells of some runs."""
    cells = [
        {**facts, "run": number, "images": images, "image_note": ""}
        for number, run in enumerate(runs)
        for facts, images in zip(run.facts, run.images, strict=True)
    ]
    for i, cell in enumerate(cells):
        cell["key"] = f"c{i}"
    _distinct_names(cells, runs)
    listed = [
        _run_facts(run, [c["key"] for c in cells if c["run"] == i]) for i, run in enumerate(runs)
    ]
    return {
        "version": __version__,
        "title": listed[0]["title"] if len(runs) == 1 else f"{len(runs)} runs side by side",
        "verdict": cells[0]["verdict"] if len(cells) == 1 else wording.verdict(cells),
        "lead": cells[0]["lead"] if len(cells) == 1 else wording.lead(cells),
        "runs": listed,
        "strata": _all_strata(cells),
        "methods": list(dict.fromkeys(m for c in cells for m in c["methods"])),
        "cells": cells,
        "claims": [{**c, "run": i} for i, run in enumerate(runs) for c in run.claims],
    }


def _run_facts(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    kept = ("kind", "version", "command", "options", "seeds", "dataset", "encoder", "methods")
    return {
        "title": run.title,
        "folder": run.folder.name,
        **{key: run.info.get(key) for key in kept},
        "notes": list(run.info.get("notes") or ()),
        "packages": dict(run.info.get("packages") or {}),
        "cells": list(keys),
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
            cell["name"] += f" ({runs[cell['run']].title})"
    names = [c["name"] for c in cells]
    for i, cell in enumerate(cells):
        if names.count(cell["name"]) > 1:
            cell["name"] += f" #{i + 1}"


def mean_results(cells: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Tidy means over seeds of these cells, as their facts hold them."""
    import pandas as pd

    return pd.DataFrame(
        {
            "model": cell["name"],
            "method": row["method"],
            "stratum": row["stratum"],
            "metric": metric,
            "value": row[metric],
            "floor": row["floor"] if metric == "ece" else None,
        }
        for cell in cells
        for row in cell["rows"]
        for metric in wording.compared_metrics()
        if row.get(metric) is not None
    )


def results_of(runs: Sequence[Run], facts: Mapping[str, Any]) -> pd.DataFrame:
    """Tidy results of all cells: those the run wrote, or the means over seeds among the facts."""
    import pandas as pd

    frames = []
    places = [place for run in runs for place in run.places]
    for place, cell in zip(places, facts["cells"], strict=True):
        if not (place / "results.csv").is_file():
            frames.append(mean_results([cell]))
            continue
        with reading(place / "results.csv", "the results of a run") as path:
            # "none" is the name of a method here, never a missing value.
            table = pd.read_csv(path, keep_default_na=False, na_values=[""])
            table = table[table["method"].isin(cell["methods"])]
            table.insert(0, "model", cell["name"])
        frames.append(table)
    return pd.concat(frames, ignore_index=True)


def newest_report(folder: str | Path = "runs") -> Path:
    """Return the report written last in a folder or anywhere below it."""
    pages = [p for p in Path(folder).rglob("*.html") if p.is_file()]
    if not pages:
        raise InputError(f"no report below {folder}. Run scalecal demo, or scalecal report RUN")
    return max(pages, key=lambda p: (p.stat().st_mtime, str(p)))
