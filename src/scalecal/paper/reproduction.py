"""The reproduction: cells trained one by one, each seed kept when it is done, then judged together."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalecal.checks import InputError, ScalecalWarning
from scalecal.io.features import Features
from scalecal.io.store import is_whole, output_folder, write_csv, write_file, write_json
from scalecal.paper.evidence import ENSEMBLE, Evidence, contradiction, ensemble
from scalecal.paper.notes import cell_notes, run_notes
from scalecal.paper.premise import Embeddings, read_anchors, training_embeddings, write_anchors
from scalecal.paper.shifts import SEEDS as SHIFT_SEEDS
from scalecal.paper.shifts import slides, write_shifts
from scalecal.paper.sources import Source, SourceError
from scalecal.probes import Recipe
from scalecal.runs.cells import Cell, cell_of_seed, joined_cell, read_cell, write_cell
from scalecal.runs.folder import run_meta
from scalecal.runs.grid import on_device, run_grid, seed_list
from scalecal.runs.methods import METHODS, Method

__all__ = [
    "SWEEP",
    "Outcome",
    "cell_folder",
    "check_begun",
    "judge_run",
    "nothing_found",
    "reproduce",
    "seeds_left",
    "train_cell",
    "write_timing",
]

SWEEP_SIZES = (5, 10, 20, 50, 100, "all")
SWEEP_SEEDS = 3
# "all" pairs of anchors are far too many to enumerate: as many are drawn as K = 100 has.
_MOST_SYNTHETIC = 60_000


def _sweep() -> dict[str, Method]:
    out = {}
    for base, smoothing in (
        ("scale-linear", "linear"),
        ("scale", "piecewise"),
        ("scale-nonlinear", "nonlinear"),
    ):
        for size in SWEEP_SIZES:
            options: dict[str, Any] = {"smoothing": smoothing, "n_anchors": size}
            if size == "all":
                options |= {"n_anchors": 1.0, "n_synthetic": _MOST_SYNTHETIC}
            out[f"{base}@K={size}"] = Method(
                label=f"{METHODS[base].label}, K = {size}",
                about="SCALE with another number of anchors per class.",
                recipe=Recipe(synthesis=options),
                variant_of=base,
            )
    return out


SWEEP: Mapping[str, Method] = _sweep()
"""SCALE with other numbers of anchors, for the sensitivity to K."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a reproduction gave: evidence, claims as `claims.json` holds them, what was left out, notes."""

    evidence: Evidence
    claims: list[dict[str, Any]]
    left_out: dict[str, str]
    notes: list[str]


def _settings(data: Features, methods: Sequence[str] | None, preset: str | None) -> dict[str, Any]:
    """What decides a seed's predictions, beside the seed."""
    return {"data_sha256": data.fingerprint, "methods": methods and list(methods), "preset": preset}


def cell_folder(out: str | Path, source: Source) -> Path:
    """Return where the results of one data set with one encoder are kept."""
    return Path(out) / "cells" / source.dataset / source.encoder


def seeds_left(folder: Path, seeds: Iterable[int]) -> list[int]:
    """Return the seeds of a cell that are not there, as they were written."""
    return [s for s in seeds if not is_whole(folder / "seeds" / str(s))]


def train_cell(
    source: Source,
    folder: str | Path,
    *,
    seeds: Sequence[int],
    methods: Sequence[str] | None = None,
    preset: str | None = None,
    sweep: bool = True,
    device: str = "cpu",
    command: Sequence[str] = ("scalecal",),
    progress: Callable[[str], None] = print,
    with_anchors: bool = True,
) -> tuple[Cell, Embeddings | None, float | None]:
    """Train one cell, seed by seed; a seed that is on disk already is not trained again.

    Returns the cell, the training embeddings of the first seed with SCALE's anchors (where asked for,
    `with_anchors`), and the seconds of training (None where nothing was left to train).
    """
    folder, seeds = Path(folder), seed_list(seeds)
    data = source.open().labelled()
    data = replace(data, X=on_device(data.X, device))  # once for all seeds
    settings = _settings(data, methods, preset)
    _refuse_other(folder, settings)
    seconds: float | None = None
    missing = seeds_left(folder, seeds)
    swept = [
        s for s in missing if sweep and data.cases.votes is not None and s in seeds[:SWEEP_SEEDS]
    ]
    plain = [s for s in missing if s not in swept]
    # One by one, a kill costs one seed; on a card, seeds trained together keep it busier.
    kept: Embeddings | None = None
    groups = [[s] for s in missing] if device == "cpu" else [g for g in (swept, plain) if g]
    for group in groups:
        start = time.perf_counter()
        with warnings.catch_warnings():
            # Of few cases there are fewer pairs than the sweep's "all" may draw: then it has all.
            asked = f"{_MOST_SYNTHETIC} synthetic cases were asked for"
            warnings.filterwarnings("ignore", message=asked, category=ScalecalWarning)
            grid = run_grid(
                data,
                methods=methods,
                seeds=group,
                preset=preset,
                more=SWEEP if group[0] in swept else None,
                dataset=source.dataset,
                device=device,
            )
        if with_anchors and seeds[0] in group:
            kept = training_embeddings(data, grid, seeds[0])
            if kept is not None:
                # Before the seed: once that is there, it is not trained again.
                write_anchors(folder, kept)
        for seed in group:
            cell = replace(cell_of_seed(grid.cell, seed), encoder=source.encoder)
            told = {"settings": settings, "seed": seed, "notes": grid.notes}
            told |= {"trained_with": group, "capped": grid.capped, "left_out": grid.left_out}
            write_cell(folder / "seeds" / str(seed), replace(cell, meta={**cell.meta, **told}))
        seconds = (seconds or 0.0) + grid.seconds
        spent = time.perf_counter() - start
        progress(
            f"{source.dataset}/{source.encoder}, seed {', '.join(map(str, group))}: "
            f"{len(grid.cell.methods)} methods, {spent:.1f} s"
        )
    done = [read_cell(folder / "seeds" / str(seed)) for seed in seeds]
    cell = joined_cell(done)
    meta = run_meta(
        cell,
        kind="reproduce",
        title=f"{source.dataset} with {source.encoder}",
        command=command,
        options={"preset": preset, "methods": methods and list(methods)},
        notes=cell_notes(cell, done, source),
        fingerprint=data.fingerprint,
    )
    cell = replace(cell, meta={**meta, "settings": settings})
    write_cell(folder, cell)
    # From the file where there is one: then a run that was killed sees the same numbers.
    return cell, read_anchors(folder) or kept, seconds


def check_begun(
    sources: Iterable[Source],
    out: str | Path,
    *,
    methods: Sequence[str] | None = None,
    preset: str | None = None,
) -> None:
    """Refuse a folder that was begun with other options; embeddings are not read for that."""
    for source in sources:
        chosen = {"methods": methods and list(methods), "preset": preset}
        if source.where in ("embedded", "simulated"):
            chosen = _settings(source.open().labelled(), methods, preset)
        _refuse_other(cell_folder(out, source), chosen)


def nothing_found(left_out: Mapping[str, str]) -> InputError:
    """Return the error of a reproduction that has no cell."""
    reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
    return InputError(
        f"nothing to reproduce: {reasons or 'no data set and no features were found'}"
    )


def _as_typed(key: str, value: Any) -> str:
    """Return a setting as it is given on the command line."""
    if value is None:
        return "not given"
    return ",".join(value) if key == "methods" else str(value)


def _refuse_other(folder: Path, settings: dict[str, Any]) -> None:
    for file in [folder / "run.json", *sorted(folder.glob("seeds/*/run.json"))]:
        if not file.is_file():
            continue
        stored = json.loads(file.read_text(encoding="utf-8")).get("settings", settings)
        for key, value in settings.items():
            if stored.get(key) != value:
                raise InputError(
                    f"{folder} was begun with {key} = {_as_typed(key, stored.get(key))}, now it is "
                    f"{_as_typed(key, value)}: take another --out, or the same options"
                )


def reproduce(
    sources: Iterable[Source],
    out: str | Path,
    *,
    seeds: Sequence[int],
    methods: Sequence[str] | None = None,
    preset: str | None = None,
    sweep: bool = True,
    device: str = "cpu",
    command: Sequence[str] = ("scalecal",),
    left_out: Mapping[str, str] | None = None,
    also: Sequence[str | Path] = (),
    progress: Callable[[str], None] = print,
) -> Outcome:
    """Train every cell that is not done, then write tables, figures, claims and results."""
    out, seeds = Path(out), seed_list(seeds)
    missing = dict(left_out or {})
    embeddings: dict[tuple[str, str], Embeddings] = {}
    seconds: dict[tuple[str, str], float] = {}
    trained = 0
    for source in sources:
        key = (source.dataset, source.encoder)
        folder = cell_folder(out, source)
        try:
            cell, found, spent = train_cell(
                source,
                folder,
                seeds=seeds,
                methods=methods,
                preset=preset,
                sweep=sweep,
                device=device,
                command=command,
                progress=progress,
            )
        except MemoryError:
            missing["/".join(key)] = "not enough memory"
            continue
        except SourceError as error:
            missing["/".join(key)] = str(error)
            progress(f"{'/'.join(key)} is left out: {error}")
            continue
        trained += 1
        if found is not None:
            embeddings[key] = found
        if spent is not None:
            seconds[key] = spent
            write_timing(folder, spent, len(seeds))
        _add_shifts(source, cell, folder, len(seeds), methods, preset, progress)
    if not trained:
        raise nothing_found(missing)
    return judge_run(
        out,
        embeddings=embeddings,
        seconds=seconds,
        left_out=missing,
        also=also,
        command=command,
        progress=progress,
    )


def _add_shifts(
    source: Source,
    cell: Cell,
    folder: Path,
    seeds: int,
    methods: Sequence[str] | None,
    preset: str | None,
    progress: Callable[[str], None],
) -> None:
    """Calibration under shift, once per cell: BreakHis by magnification, PatchCamelyon by slide."""
    most = seeds if source.dataset == "pcam" else min(SHIFT_SEEDS, seeds)
    made = [read_cell(f) for f in sorted(folder.parent.glob(f"{source.encoder}@*"))]
    if made and all(len({seed for _, seed in c.predictions}) >= most for c in made):
        return
    if source.dataset == "breakhis" and Path(source.where).is_dir():
        write_shifts(
            source.where,
            folder.parent,
            source.dataset,
            source.encoder,
            seeds=most,
            methods=methods,
            preset=preset,
            progress=progress,
        )
    elif source.dataset == "pcam":
        for part in slides(cell):
            assert part.shift is not None
            write_cell(folder.parent / f"{source.encoder}@slide-{part.shift[1]}", part)


def judge_run(
    out: str | Path,
    *,
    embeddings: Mapping[tuple[str, str], Embeddings] | None = None,
    seconds: Mapping[tuple[str, str], float] | None = None,
    left_out: Mapping[str, str] | None = None,
    also: Sequence[str | Path] = (),
    command: Sequence[str] = ("scalecal",),
    progress: Callable[[str], None] = print,
) -> Outcome:
    """Make every table, figure and claim from the predictions in `out`, without training.

    `also` names further cells, such as a folder made by ``scalecal finetune``.
    """
    from scalecal.paper.claims import claims_json, judge
    from scalecal.paper.figures import write_figures
    from scalecal.paper.tables import TABLES, write_tables

    out = Path(out)
    told = out / "run.json"
    if left_out is None and told.is_file():
        left_out = json.loads(told.read_text(encoding="utf-8")).get("left_out")
    folders = [file.parent for file in sorted((out / "cells").glob("*/*/predictions.parquet"))]
    cells = [read_cell(folder) for folder in (*folders, *also)]
    if not cells:
        raise InputError(f"no cells in {out / 'cells'}. Run: scalecal reproduce --out {out}")
    trained = [c for c in cells[: len(folders)] if c.shift is None]
    missing = {k: v for k, v in (left_out or {}).items() if not k.endswith(f"/{ENSEMBLE}")}
    notes = run_notes(c for c in cells if c.shift is None)
    for dataset in dict.fromkeys(c.dataset for c in trained):
        members = [c for c in trained if c.dataset == dataset]
        joined, why = ensemble(members), contradiction(members)
        if joined is not None:
            cells.append(joined)
        elif why is not None:
            missing[f"{dataset}/{ENSEMBLE}"] = why
    progress(f"judging {len(cells)} cells")
    kept = {(f.parent.name, f.name): found for f in folders if (found := read_anchors(f))}
    evidence = Evidence.of(
        cells,
        embeddings={**kept, **(embeddings or {})},
        seconds={**_timings(out), **(seconds or {})},
    )
    claims = claims_json(judge(evidence))
    with output_folder(out, kind="reproduce", inputs=also, replace=True) as folder:
        write_csv(evidence.results, folder / "results.csv")
        write_tables(folder / "tables", {name: make(evidence) for name, make in TABLES.items()})
        write_figures(folder / "figures", evidence)
        write_json(folder / "claims.json", claims)
        write_json(
            folder / "run.json",
            {
                "kind": "reproduce",
                "title": "The paper's tables, figures and claims on the data at hand",
                "command": ["scalecal", *command[1:]],
                "cells": [f"{c.dataset}/{c.encoder}" for c in cells],
                "left_out": missing,
                "notes": [*(f"{name} is left out: {why}" for name, why in missing.items()), *notes],
            },
        )
    return Outcome(evidence, claims, missing, notes)


def write_timing(folder: Path, seconds: float, seeds: int) -> None:
    """Keep how long a cell's training took, for the claim on costs."""
    content = json.dumps({"seconds": seconds, "seeds": seeds}, indent=2) + "\n"
    write_file(folder / "timing.json", content, kind="reproduce")


def _timings(out: Path) -> dict[tuple[str, str], float]:
    found = {}
    for file in sorted(out.glob("cells/*/*/timing.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        found[file.parent.parent.name, file.parent.name] = float(told["seconds"])
    return found
