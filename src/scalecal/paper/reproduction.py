"""The reproduction: cells trained seed by seed, here or on an engine's workers, then judged together.

A task is some seeds of one data set with one encoder. A worker opens the embeddings where it runs and
sends the predictions back; every seed is kept on disk as it comes in, so that a run that was stopped
continues where it was. Tables, figures and claims are made from what is on disk.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalecal.cases import Features, Predictions
from scalecal.checks import InputError, ScalecalWarning
from scalecal.engines import Engine, Worker
from scalecal.engines.local import InProcess, cores
from scalecal.evaluation.cells import cell_of_seed, joined_cell, read_cell, read_meta, write_cell
from scalecal.evaluation.folder import run_meta
from scalecal.features import load_features
from scalecal.io.boundary import read_document
from scalecal.io.store import (
    disk_errors,
    is_whole,
    output_folder,
    write_csv,
    write_json,
)
from scalecal.limits import LIMITS
from scalecal.paper.evidence import Evidence, contradiction
from scalecal.paper.premise import Embeddings, read_anchors, training_embeddings, write_anchors
from scalecal.paper.printed import SMOOTHINGS
from scalecal.paper.sources import Source, SourceError, skipped_images
from scalecal.probes import Recipe
from scalecal.probes.methods import METHODS, Method
from scalecal.runs.grid import LEFT_OUT, Grid, on_device, run_grid, seed_list

TIMING = "timing.json"
"""Name of the file with the seconds of a cell's training: the only one that differs between two runs."""

SWEEP_SIZES = (5, 10, 20, 50, 100, "all")
# "all" pairs of anchors are far too many to enumerate: as many are drawn as K = 100 has.
_MAX_SYNTHETIC = 60_000


def _sweep() -> dict[str, Method]:
    out = {}
    for smoothing, (_, base) in SMOOTHINGS.items():
        for size in SWEEP_SIZES:
            options: dict[str, Any] = {"smoothing": smoothing, "n_anchors": size}
            if size == "all":
                options |= {"n_anchors": 1.0, "n_synthetic": _MAX_SYNTHETIC}
            out[f"{base}@K={size}"] = Method(
                label=f"{METHODS[base].label}, K = {size}",
                about="SCALE with another number of anchors per class.",
                recipe=Recipe(synthesis=options),
                variant_of=base,
            )
    return out


SWEEP: Mapping[str, Method] = _sweep()
"""SCALE with other numbers of anchors, for the sensitivity to K."""


@dataclass(frozen=True)
class Training:
    """How the cells of a reproduction are trained.

    Attributes
    ----------
    seeds
        Seeds of every cell.
    methods
        Names in `METHODS`; None: all that apply.
    preset
        "paper", "default", or None: each method's own.
    sweep
        Whether every seed trains SCALE with other numbers of anchors too (`SWEEP`).
    device
        "cpu", or a card: then seeds are trained together, which keeps it busier.
    """

    seeds: Sequence[int]
    methods: Sequence[str] | None = None
    preset: str | None = None
    sweep: bool = True
    device: str = "cpu"

    @property
    def options(self) -> dict[str, Any]:
        """What decides a seed's predictions, beside the seed and the data."""
        return {"methods": self.methods and list(self.methods), "preset": self.preset}

    def settings(self, data: Features) -> dict[str, Any]:
        """What decides a seed's predictions, beside the seed."""
        return {"data_sha256": data.fingerprint, **self.options}

    @property
    def together(self) -> int:
        """Seeds trained together. One by one, a kill costs one seed."""
        return 1 if self.device == "cpu" else len(self.seeds)


def cell_folder(out: str | Path, source: Source) -> Path:
    """Return where the results of one data set with one encoder are kept."""
    return Path(out) / "cells" / source.dataset / source.encoder


def seeds_left(folder: Path, seeds: Iterable[int]) -> list[int]:
    """Return the seeds of a cell that are not there, as they were written."""
    return [s for s in seeds if not is_whole(folder / "seeds" / str(s))]


# ---- training


@dataclass(frozen=True)
class _Task:
    """Some seeds of one cell; `run` is a name that no other run has."""

    run: str
    source: Source
    folder: Path
    seeds: tuple[int, ...]
    training: Training


def _tasks(run: str, source: Source, folder: Path, training: Training) -> Iterator[_Task]:
    left = seeds_left(folder, training.seeds)
    for start in range(0, len(left), training.together):
        group = tuple(left[start : start + training.together])
        yield _Task(run, source, folder, group, training)


# What this worker opened last: the next seed is most often of the same cell of the same run.
_opened: dict[tuple[str, ...], Features] = {}


def _open_once(task: _Task, device: str) -> Features:
    key = (task.run, task.source.dataset, task.source.encoder, device)
    if key not in _opened:
        _opened.clear()
        data = task.source.open().labelled()
        _opened[key] = replace(data, X=on_device(data.X, device))
    return _opened[key]


def _train_seeds(worker: Worker, task: _Task) -> tuple[list[Predictions], Embeddings | None, float]:
    """Train the seeds of a task: a cell for each, the first seed's embeddings, and the seconds."""
    training = task.training
    device = worker.device_for(training.device)
    data = _open_once(task, device)
    with warnings.catch_warnings():
        # Of few cases there are fewer pairs than the sweep's "all" may draw: then it has all.
        asked = f"{_MAX_SYNTHETIC} synthetic cases were asked for"
        warnings.filterwarnings("ignore", message=asked, category=ScalecalWarning)
        grid = run_grid(
            data,
            methods=training.methods,
            seeds=task.seeds,
            preset=training.preset,
            more=SWEEP if training.sweep and data.cases.votes is not None else None,
            dataset=task.source.dataset,
            device=device,
        )
    about = {
        "settings": training.settings(data),
        "notes": grid.notes,
        "trained_with": list(task.seeds),
        "capped": grid.capped,
        "left_out": grid.left_out,
    }
    cells = []
    for seed in task.seeds:
        cell = replace(cell_of_seed(grid.cell, seed), encoder=task.source.encoder)
        cells.append(replace(cell, meta={**cell.meta, **about, "seed": seed}))
    first = training.seeds[0]
    embeddings = training_embeddings(data, grid, first) if first in task.seeds else None
    return cells, embeddings, grid.seconds


def train_seeds_on(
    engine: Engine,
    cells: Sequence[tuple[Source, Path]],
    training: Training,
    *,
    progress: Callable[[str], None] = print,
) -> None:
    """Train the seeds of many cells (source, folder) that are not done; `train_cell` finds them done.

    Sources are opened on the workers.
    """
    run = uuid.uuid4().hex
    tasks = [task for source, folder in cells for task in _tasks(run, source, folder, training)]
    try:
        for number, (trained, embeddings, seconds) in engine.run(_train_seeds, tasks):
            task = tasks[number]
            _note_seconds(task.folder, task.seeds, seconds)
            if embeddings is not None:
                # Before the seed: once that is there, it is not trained again.
                write_anchors(task.folder, embeddings)
            for seed, cell in zip(task.seeds, trained, strict=True):
                write_cell(task.folder / "seeds" / str(seed), cell)
            progress(
                f"{task.source.dataset}/{task.source.encoder}, "
                f"seed {', '.join(map(str, task.seeds))}: "
                f"{len(trained[0].methods)} methods, {seconds:.1f} s"
            )
    finally:
        _opened.clear()  # where the tasks were done in this process


def _note_seconds(folder: Path, seeds: Sequence[int], seconds: float) -> None:
    """Note the seconds of seeds trained together, beside those of earlier runs.

    On no record, since they are another run's only difference.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    known = _seconds_by_seeds(folder)
    write_json(folder / TIMING, {**known, ",".join(map(str, seeds)): seconds})


def _seconds_by_seeds(folder: Path) -> dict[str, float]:
    file = folder / TIMING
    return read_document(file, dict[str, float]) if file.is_file() else {}


def train_cell(
    source: Source,
    folder: str | Path,
    training: Training,
    *,
    command: Sequence[str] = ("scalecal",),
    progress: Callable[[str], None] = print,
) -> Predictions:
    """Train one cell and write it; seeds that are on disk already are not trained again."""
    folder = Path(folder)
    data = source.open().labelled()
    settings = training.settings(data)
    _check_settings(folder, settings)
    opened = replace(source, open=lambda: data)
    train_seeds_on(InProcess(), [(opened, folder)], training, progress=progress)
    seeds = [read_cell(folder / "seeds" / str(seed)) for seed in training.seeds]
    cell = joined_cell(seeds)
    meta = run_meta(
        cell,
        kind="reproduce",
        title=f"{source.dataset} with {source.encoder}",
        command=command,
        options=training.options,
        notes=_cell_notes(cell, seeds, source),
        fingerprint=data.fingerprint,
    )
    cell = replace(cell, meta={**meta, "settings": settings})
    write_cell(folder, cell)
    return cell


def check_begun(sources: Iterable[Source], out: str | Path, training: Training) -> None:
    """Refuse a folder that was started with other options; embeddings are not read for that."""
    for source in sources:
        settings = training.options
        if source.where in ("embedded", "simulated"):
            settings = training.settings(source.open().labelled())
        _check_settings(cell_folder(out, source), settings)


def _check_settings(folder: Path, settings: dict[str, Any]) -> None:
    def as_typed(value: Any) -> str:
        if value is None:
            return "not given"
        return ",".join(value) if isinstance(value, list) else str(value)

    for file in [folder / "run.json", *sorted(folder.glob("seeds/*/run.json"))]:
        if not file.is_file():
            continue
        stored = read_meta(file.parent).get("settings", settings)
        for key, value in settings.items():
            if stored.get(key) != value:
                raise InputError(
                    f"{folder} was started with {key} = {as_typed(stored.get(key))}, now it is "
                    f"{as_typed(value)}: take another --out, or the same options"
                )


def nothing_found(left_out: Mapping[str, str]) -> InputError:
    """Return the error of a reproduction that has no cell."""
    reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
    return InputError(
        f"nothing to reproduce: {reasons or 'no data set and no features were found'}"
    )


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a reproduction gave: evidence, claims as `claims.json` holds them, what was left out, notes."""

    evidence: Evidence
    claims: list[dict[str, Any]]
    left_out: dict[str, str]
    notes: list[str]


def reproduce(
    sources: Iterable[Source],
    out: str | Path,
    training: Training,
    *,
    command: Sequence[str] = ("scalecal",),
    left_out: Mapping[str, str] | None = None,
    also: Sequence[str | Path] = (),
    engine: Engine | None = None,
    progress: Callable[[str], None] = print,
) -> Outcome:
    """Train every cell that is not done, then write tables, figures, claims and results.

    Cells are trained here (see `train_seeds_on` for more workers), and scored by the engine's workers.
    """
    out = Path(out)
    training = replace(training, seeds=seed_list(training.seeds))
    missing = dict(left_out or {})
    trained = 0
    for source in sources:
        name, folder = f"{source.dataset}/{source.encoder}", cell_folder(out, source)
        try:
            train_cell(source, folder, training, command=command, progress=progress)
        except MemoryError:
            missing[name] = "not enough memory"
        except SourceError as error:
            missing[name] = str(error)
            progress(f"{name} is left out: {error}")
        else:
            trained += 1
    if not trained:
        raise nothing_found(missing)
    return judge_run(
        out, left_out=missing, also=also, command=command, engine=engine, progress=progress
    )


# ---- judging


def judge_run(
    out: str | Path,
    *,
    left_out: Mapping[str, str] | None = None,
    also: Sequence[str | Path] = (),
    command: Sequence[str] = ("scalecal",),
    engine: Engine | None = None,
    progress: Callable[[str], None] = print,
) -> Outcome:
    """Make every table, figure and claim from the predictions in `out`, without training.

    `also` names further cells, such as a folder made by ``scalecal finetune``. Cells are scored by the
    engine's workers, or here.
    """
    from scalecal.paper.claims import claims_json, judge
    from scalecal.paper.paper_figures import write_figures
    from scalecal.paper.paper_tables import TABLES, write_tables

    out = Path(out)
    if left_out is None and (out / "run.json").is_file():
        left_out = read_meta(out).get("left_out")
    folders = [file.parent for file in sorted((out / "cells").glob("*/*/predictions.parquet"))]
    # Folders of 0.2.0 may hold cells tested elsewhere than trained, which the paper has not.
    trained = [cell for cell in map(read_cell, folders) if cell.shift is None]
    cells = [*trained, *map(read_cell, also)]
    if not cells:
        raise InputError(f"no cells in {out / 'cells'}. Run: scalecal reproduce --out {out}")
    missing = dict(left_out or {})
    notes = run_notes(cells)
    for dataset in dict.fromkeys(c.dataset for c in trained):
        why = contradiction([c for c in trained if c.dataset == dataset])
        if why is not None:
            notes.append(f"{dataset}: {why}.")
    progress(f"judging {len(cells)} cells")
    evidence = Evidence(
        cells,
        embeddings={(f.parent.name, f.name): kept for f in folders if (kept := read_anchors(f))},
        seconds=_timings(out),
        engine=engine,
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


def _timings(out: Path) -> dict[tuple[str, str], float]:
    seconds = {}
    for file in sorted(out.glob(f"cells/*/*/{TIMING}")):
        folder = file.parent
        seconds[folder.parent.name, folder.name] = sum(_seconds_by_seeds(folder).values())
    return seconds


# ---- notes


def _cell_notes(cell: Predictions, seeds: Sequence[Predictions], source: Source) -> list[str]:
    """What a reader should know of a cell: of all its seeds together."""
    skipped = skipped_images(source)
    capped: dict[str, int] = {}
    left_out: dict[str, str] = {}
    # Seeds that were trained together have the same record.
    for meta in {tuple(c.meta["trained_with"]): c.meta for c in seeds}.values():
        left_out |= meta["left_out"]
        for name, count in meta["capped"].items():
            capped[name] = capped.get(name, 0) + count
    notes = Grid(cell, left_out, capped, {}, {}, 0.0).notes
    return notes if skipped is None else [skipped, *notes]


def run_notes(cells: Iterable[Predictions]) -> list[str]:
    """Put the notes of many cells together: the same words once, with the cells they are of."""
    methods: dict[tuple[str, str], list[str]] = {}
    said: dict[str, list[str]] = {}
    for cell in cells:
        for note in cell.meta.get("notes", []):
            name, left_out, why = note.partition(LEFT_OUT)
            if left_out:
                methods.setdefault((cell.name, why), []).append(name)
            else:
                said.setdefault(note, []).append(cell.name)
    for (cell_name, why), names in methods.items():
        text = f"{names[0]}{LEFT_OUT}{why}"
        if len(names) > 1:
            reason = why.replace("it needs", "they need", 1).replace("it is", "they are", 1)
            text = f"{', '.join(names)} are left out: {reason}"
        said.setdefault(text, []).append(cell_name)
    return [f"{', '.join(names)}: {note}" for note, names in said.items()]


# ---- how long it takes

# Rows that one seed trains on per training case, and synthetic rows beside them: 150,000 of the methods
# and 420,000 of the sweep over K, most of them in K = 100 and "all".
_METHODS_AND_SWEEP = 60
_SYNTHETIC = 570_000
_EPOCHS = 50
# What was measured: seconds = rows x epochs x (width + _FIXED) x _SECONDS, a third of them to three times
# as many from machine to machine; under the default preset probes stop after about this share of the
# further epochs they may take.
_SECONDS, _FIXED = 7e-11, 850
_SHARE_TAKEN = 0.2

# Processes take some seconds to start, and each holds its embeddings in memory.
WORTH_SECONDS = 30.0
MEMORY_SHARE = 0.5


def _shape(source: Source) -> tuple[int, int]:
    """Rows and width of a source's embeddings, also where its images are not embedded yet."""
    if source.where in ("embedded", "simulated"):
        X = source.open().X
    else:
        try:
            # Not `open`: that would begin, or continue, the extraction.
            X = load_features(source.where).X
        except InputError:
            from scalecal.encoders import get_encoder

            return source.n_images, get_encoder(source.encoder).dim
    return int(X.shape[0]), int(X.shape[1])


def estimate_seconds(source: Source, seeds: int, preset: str | None = None) -> float:
    """Return about how long training takes on one usual core; never opens images."""
    n, width = _shape(source)
    epochs = float(_EPOCHS)
    if preset == "default":
        default = Recipe()
        most = max(epochs, default.min_steps * default.batch_size / max(n, 1))
        epochs += _SHARE_TAKEN * (most - epochs)
    passes = seeds * (n * _METHODS_AND_SWEEP * epochs + _SYNTHETIC * _EPOCHS)
    return _SECONDS * passes * (width + _FIXED)


def worth_spreading(left: Mapping[Source, int], preset: str | None = None) -> int:
    """Return how many processes should train the seeds `left` of each source; 1: it is over soon."""
    work = {source: seeds for source, seeds in left.items() if seeds}
    seconds = sum(estimate_seconds(source, seeds, preset) for source, seeds in work.items())
    if seconds < WORTH_SECONDS or cores() == 1:
        return 1
    largest = max(4 * rows * width for rows, width in map(_shape, work))
    return max(1, min(cores(), sum(work.values()), int(MEMORY_SHARE * LIMITS["memory"] / largest)))
