"""What an evaluation leaves on disk, and how it is read again without computing anything.

A run folder holds ``facts.json``, the one document that every display renders, and beside it tables and
figures made of the same facts. `reproduce` holds one such folder for each of its cells below ``cells/``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scalecal import __version__
from scalecal.checks import InputError
from scalecal.evaluation import words
from scalecal.evaluation.cells import read_cell, read_meta, write_cell
from scalecal.evaluation.evaluations import Evaluation, evaluate, extract
from scalecal.evaluation.exhibits import decision_frame
from scalecal.io.boundary import SCHEMA, check_document, read_document
from scalecal.io.input_columns import present_spelling
from scalecal.io.store import (
    as_document,
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
from scalecal.votes import STRATA

if TYPE_CHECKING:
    from scalecal.cases import Predictions

FACTS = "facts.json"
MAX_KEPT = 1_000_000
"""Cases above which an evaluation keeps its numbers but not a copy of the cases, and has no report."""

CASE_FILES = ("run.json", "cases.parquet", "predictions.parquet", FACTS)
RUN_FILES = (*CASE_FILES, "results.csv", "comparison.csv", "claims.json", "differences.csv")
CALIBRATE_FILES = ("predictions.csv", "calibrator.json")
AUDIT_FILES = ("audit.json", "audit.csv", "decision.csv", "reliability.svg", "reliability.png")
"""Files of a run or audit: somebody else's of these names are refused before any work."""

MAX_PANELS = 6
"""Reliability diagrams in a file, at most."""

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
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    dataset = {"name": cell.dataset, "sha256": fingerprint, "n": cell.cases.n}
    images = dict(cell.meta.get("dataset") or {}).get("data")
    if images is not None:
        dataset["data"] = images
    meta = {
        "kind": kind,
        "title": title,
        "version": __version__,
        "command": ["scalecal", *command[1:]],
        "options": {k: v for k, v in options.items() if v is not None},
        "seeds": sorted({seed for _, seed in cell.answers}),
        "dataset": dataset,
        "encoder": {"name": cell.encoder},
        "methods": cell.methods,
        "notes": list(notes),
        "packages": {"python": ".".join(map(str, sys.version_info[:3])), **packages},
    }
    if cell.variants:
        meta["variants"] = cell.variants
    return meta


def write_run(
    out: str | Path,
    evaluation: Evaluation,
    *,
    kind: str,
    title: str | None = None,
    claims: Sequence[Mapping[str, Any]] | None = None,
    files: Mapping[str, str] | None = None,
    inputs: Sequence[Path | None] = (),
    command: Sequence[str] = ("scalecal",),
    options: Mapping[str, Any] | None = None,
    notes: Sequence[str] | None = None,
    fingerprint: str | None = None,
) -> list[str]:
    """Write an evaluation's folder, all of it or nothing, and return the names of the files.

    `files` are further ones, name -> text; the rest is what `run_meta` takes. Files that an earlier run of
    the same kind wrote there and this one does not have are removed: audits of another best method, say,
    would be taken for this run's.
    """
    cell = evaluation.predictions
    titles = {"audit": f"Audit of {cell.dataset}", "files": f"Comparison of {cell.dataset}"}
    usual = f"Comparison of {len(cell.methods)} methods on {cell.dataset}"
    hashes = [str(audit.meta.get("data_sha256")) for audit in evaluation.audits.values()]
    if len(hashes) > 1:
        hashes = [hashlib.sha256("".join(hashes).encode()).hexdigest()]
    meta = run_meta(
        cell,
        kind=kind,
        title=title or titles.get(evaluation.core["kind"], usual),
        command=command,
        options={**(options or {}), "prevalence": evaluation.core["prevalence"]},
        notes=evaluation.notes if notes is None else notes,
        fingerprint=fingerprint or "".join(hashes),
    )
    # A stream has no cases to write, and a copy of very many would be larger than the file it came from.
    counts_only = evaluation.audit.units.times is not None or cell.cases.n > MAX_KEPT
    with output_folder(out, kind=kind, inputs=inputs, replace=True) as folder:
        if not counts_only:
            write_cell(folder, replace(cell, meta={**cell.meta, **meta}))
        write_text(folder / FACTS, _facts_text(folder, evaluation.facts))
        for name, text in (files or {}).items():
            write_text(folder / name, text)
        if claims is not None:
            write_json(folder / "claims.json", list(claims))
        _write_tables(folder, evaluation)
        return sorted(p.name for p in folder.iterdir())


def _write_tables(folder: Path, evaluation: Evaluation) -> None:
    """Tables and figures: of every audited method, and of several their comparison."""
    import pandas as pd

    from scalecal.report.exporting import write_reliability

    facts = evaluation.facts
    for method, audit in evaluation.audits.items():
        ending = ""
        if evaluation.results is not None:
            ending = f"_{method.replace('/', '_')}"
        write_json(folder / f"audit{ending}.json", plain(extract(evaluation.core, method, audit)))
        write_csv(decision_frame(audit), folder / f"decision{ending}.csv")
        write_reliability(first_panels(facts, method), facts, folder / f"reliability{ending}")
    if evaluation.results is None:
        write_csv(evaluation.to_frame(), folder / "audit.csv")
        return
    write_csv(evaluation.results, folder / "results.csv")
    write_csv(evaluation.table, folder / "comparison.csv")
    if facts["differences"]:
        write_csv(pd.DataFrame(facts["differences"]), folder / "differences.csv")


def first_panels(facts: Mapping[str, Any], method: str) -> list[dict[str, Any]]:
    """Reliability of a method in the first strata, and over all cases against votes.

    Further strata are in the table: nobody compares more diagrams than stand side by side.
    """
    return [*facts["reliability"][method][:MAX_PANELS], *facts["vote_reliability"][method][:1]]


# Facts on disk


def _hashes(folder: Path) -> dict[str, str]:
    """Hashes of the files that facts are of."""
    names = ("cases.parquet", "predictions.parquet")
    return {name: file_hash(folder / name) for name in names if (folder / name).is_file()}


def _facts_text(folder: Path, facts: Mapping[str, Any]) -> str:
    whole = as_document({"version": __version__, "made_from": _hashes(folder), **facts})
    return json.dumps(plain(whole), allow_nan=False, ensure_ascii=False) + "\n"


class _Head(msgspec.Struct):
    """What tells whether ``facts.json`` can be read."""

    schema: int = 0
    version: str = ""
    made_from: dict[str, str] = {}


class _Facts(msgspec.Struct):
    """Types of the facts that every display reads; one who edits a file can edit its hash too."""

    kind: str
    name: str
    dataset: str
    classes: list[str]
    n: int
    strata: list[str]
    methods: list[str]
    baseline: str
    judged: str
    audits: dict[str, dict[str, Any]]
    rows: list[dict[str, Any]]
    verdict: dict[str, Any]
    lead: list[dict[str, str]]
    paragraphs: dict[str, str]


class OutdatedFactsError(InputError):
    """A folder has no facts of its present files, or those of an older form."""


def read_facts(folder: str | Path) -> dict[str, Any]:
    """Return the facts of a run's folder as they were written; nothing is computed."""
    folder = Path(folder)
    file = folder / FACTS
    if not file.is_file():
        raise OutdatedFactsError(f"no {FACTS} at {folder}. {_rewrite(folder)}")
    facts = read_document(file, dict[str, Any])
    head = check_document(file, facts, _Head)
    if head.schema != SCHEMA:
        form = f"schema {head.schema}"
        if not head.schema:
            form = "no schema number"
        version = head.version or "another version"
        raise OutdatedFactsError(
            f"{file} has {form} (scalecal {version}), schema {SCHEMA} is expected. {_rewrite(folder)}"
        )
    check_document(file, facts, _Facts)
    if not is_own(file) or head.made_from != _hashes(folder):
        raise OutdatedFactsError(
            f"{file}, or the cases beside it, were changed since scalecal wrote them. Move the folder away "
            f"first. {_rewrite(folder)}"
        )
    return facts


def _rewrite(folder: Path) -> str:
    """Which command writes a folder's facts anew."""
    command = ["scalecal", "audit", "FILE", "--out", str(folder)]
    if (folder / "run.json").is_file():
        kept = read_document(folder / "run.json", dict[str, Any]).get("command")
        # A run that was made in Python has no command.
        if isinstance(kept, list) and len(kept) > 1:
            command = [str(part) for part in kept]
    return f"To write it again: {present_spelling(command)}"


def store_facts(folder: str | Path) -> None:
    """Evaluate the cells of a run that have no facts of their present files, and keep these."""
    for place in cell_folders(Path(folder)):
        # Facts that may be shown are never computed again; those of a newer scalecal are not replaced.
        with contextlib.suppress(OutdatedFactsError):
            read_facts(place)
            continue
        cell = read_cell(place)
        if not cell.answers:
            raise InputError(f"{place / 'predictions.parquet'} holds no prediction")
        options: dict[str, Any] = cell.meta.get("options") or {}
        chosen = {k: options[k] for k in ("n_bins", "n_resamples", "seed") if options.get(k)}
        text = _facts_text(place, evaluate(cell, **chosen).facts)
        write_file(place / FACTS, text, kind=written_by(place / "run.json") or "files")


# Reading runs


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder: what made it, the facts of its cells, its claims and its title.

    `images` are the folders that the paths of the cells' cases start from, where the run knows them.
    """

    folder: Path
    info: Mapping[str, Any]
    facts: tuple[dict[str, Any], ...]
    images: tuple[str | None, ...]
    claims: Sequence[Mapping[str, Any]]
    title: str


def cell_folders(folder: Path) -> list[Path]:
    """Folders of a run that hold cases and predictions: its own, and those below ``cells/``."""
    names = ("cases.parquet", "predictions.parquet")
    places = [folder, *sorted(folder.glob("cells/*/*"))]
    return [place for place in places if all((place / name).is_file() for name in names)]


def read_runs(folders: Sequence[str | Path], written: Mapping[str, Any] | None = None) -> list[Run]:
    """Read run folders of any kind, with the facts of their cells; `written` as in `report_facts`."""
    if not folders:
        raise InputError("no run given: name at least one folder that a scalecal command wrote")
    return [_read_run(Path(folder), written) for folder in folders]


def _read_run(folder: Path, written: Mapping[str, Any] | None) -> Run:
    places = cell_folders(folder)
    if not places:
        raise InputError(
            f"no run at {folder}: expected cases.parquet and predictions.parquet there, or below "
            "cells/. Run scalecal audit, calibrate, compare, reproduce or demo with --out first"
        )
    if written is not None:
        facts = {folder: dict(written)}
    else:
        # Facts of another version are refused first, in a line that names the command.
        facts = {place: read_facts(place) for place in places}
    metas = {place: read_meta(place) for place in places}
    # Data with strata first: they are what a reader comes for.
    places.sort(key=lambda place: not facts[place]["strata"])
    info = metas[places[0]]
    if (folder / "run.json").is_file():
        info = read_meta(folder)
    claims = []
    if (folder / "claims.json").is_file():
        claims = read_document(folder / "claims.json", list[dict[str, Any]])
        if not is_own(folder / "claims.json"):
            raise InputError(f"{folder}: claims.json was changed since it was written")
    return Run(
        folder,
        info,
        tuple(facts[place] for place in places),
        tuple((metas[place].get("dataset") or {}).get("data") for place in places),
        claims,
        info.get("title") or folder.name,
    )


def report_facts(
    folders: Sequence[str | Path], written: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Everything a report of these run folders says, JSON-able.

    `written` are the facts of a single folder, where the command that wrote it still holds them.
    """
    return joined(read_runs(folders, written))


def joined(runs: Sequence[Run]) -> dict[str, Any]:
    """Join the facts of all cells of some runs, with one verdict on all of them."""
    cells: list[dict[str, Any]] = []
    listed = []
    for i, run in enumerate(runs):
        keys = []
        for facts, images in zip(run.facts, run.images, strict=True):
            keys.append(f"c{len(cells)}")
            about = {"run": i, "key": keys[-1], "images": images, "image_note": ""}
            cells.append({**facts, **about})
        kept = ("kind", "version", "command", "options", "seeds", "dataset", "encoder", "methods")
        listed.append(
            {
                "title": run.title,
                "folder": run.folder.name,
                **{key: run.info.get(key) for key in kept},
                "notes": list(run.info.get("notes") or ()),
                "packages": dict(run.info.get("packages") or {}),
                "cells": keys,
            }
        )
    _tell_apart(cells, runs)
    title, found, lead = listed[0]["title"], cells[0]["verdict"], cells[0]["lead"]
    if len(runs) > 1:
        title = f"Comparison of {len(runs)} runs"
    if len(cells) > 1:
        # Which models stand on one page is known only here. The badge allows for their number: Holm's
        # correction of a p-value for each, all that is computed when runs are read.
        found = words.tally(cells)
        lead = words.answers(cells, found)
    strata = list(dict.fromkeys(stratum for cell in cells for stratum in cell["strata"]))
    if set(strata) <= set(STRATA):
        strata.sort(key=STRATA.index)
    return {
        "version": __version__,
        "title": title,
        "verdict": found,
        "lead": lead,
        "runs": listed,
        "strata": ["overall", *strata],
        "methods": list(dict.fromkeys(m for cell in cells for m in cell["methods"])),
        "cells": cells,
        "claims": [{**claim, "run": i} for i, run in enumerate(runs) for claim in run.claims],
    }


def _tell_apart(cells: list[dict[str, Any]], runs: Sequence[Run]) -> None:
    """Cells of several runs may be of one data set and encoder: the run's title tells them apart."""
    names = Counter(cell["name"] for cell in cells)
    for cell in cells:
        if names[cell["name"]] > 1 and len(runs) > 1:
            cell["name"] += f" ({runs[cell['run']].title})"
    names = Counter(cell["name"] for cell in cells)
    for i, cell in enumerate(cells):
        if names[cell["name"]] > 1:
            cell["name"] += f" #{i + 1}"


def newest_report(folder: str | Path = "runs") -> Path:
    """Return the report written last in a folder or anywhere below it."""
    pages = [p for p in Path(folder).rglob("*.html") if p.is_file()]
    if not pages:
        raise InputError(f"no report below {folder}. Run scalecal demo, or scalecal report RUN")
    return max(pages, key=lambda p: (p.stat().st_mtime, str(p)))
