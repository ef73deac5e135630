"""Cells on an engine: one task per data set, encoder and group of seeds.

A worker opens the embeddings where it runs, trains its seeds, and sends the predictions back. Seeds
that are done are kept on disk as they come in, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from scalecal.engines import Engine, Worker
from scalecal.io.features import Features
from scalecal.paper.premise import Embeddings, write_anchors
from scalecal.paper.reproduction import SWEEP_SEEDS, seeds_left, train_cell, write_timing
from scalecal.paper.sources import Source
from scalecal.runs.cells import Cell, read_cell, write_cell
from scalecal.runs.grid import on_device

__all__ = ["train_seeds_on"]


@dataclass(frozen=True)
class _SeedsTask:
    run: str  # a name no other run has
    source: Source
    folder: Path
    seeds: tuple[int, ...]
    sweep: bool
    looked_at: bool  # its training cases and anchors are wanted too
    options: Mapping[str, Any] = field(default_factory=dict)


def _quiet(_: str) -> None:
    """Show no progress: a worker has no terminal."""


# What this worker opened last: the next seed is most often of the same cell of the same run.
_opened: dict[tuple[str, ...], Features] = {}


def _open_once(run: str, source: Source, device: str) -> Features:
    key = (run, source.dataset, source.encoder, device)
    if key not in _opened:
        _opened.clear()
        data = source.open().labelled()
        _opened[key] = replace(data, X=on_device(data.X, device))
    return _opened[key]


def _do_seeds(
    worker: Worker, task: _SeedsTask
) -> tuple[list[tuple[int, Cell]], Embeddings | None, float]:
    device = worker.device_for(task.options.get("device", "cpu"))
    open_here = partial(_open_once, task.run, task.source, device)
    with tempfile.TemporaryDirectory() as folder:
        _, found, seconds = train_cell(
            replace(task.source, open=open_here),
            folder,
            seeds=task.seeds,
            sweep=task.sweep,
            progress=_quiet,
            with_anchors=task.looked_at,
            **{**task.options, "device": device},
        )
        cells = [(seed, read_cell(Path(folder, "seeds", str(seed)))) for seed in task.seeds]
    return cells, found, seconds or 0.0


def train_seeds_on(
    engine: Engine,
    sources: Sequence[tuple[Source, Path]],
    *,
    seeds: Sequence[int],
    sweep: bool = True,
    seeds_per_task: int = 1,
    progress: Callable[[str], None] = print,
    **options: Any,
) -> dict[tuple[str, str], float]:
    """Train seeds of many cells on an engine and keep each in its cell's folder.

    Call `train_cell` for the cells afterwards: it finds these seeds done.

    Parameters
    ----------
    engine
        From `scalecal.engines.open_engine`.
    sources
        What to train on, and the folder of its cell. Sources are opened on the workers.
    seeds, sweep
        As `train_cell`.
    seeds_per_task
        Seeds trained together; more share the reading of the embeddings.
    options
        `methods`, `preset`, `device` of `train_cell`.

    Returns
    -------
    dict
        (data set, encoder) -> seconds of training.
    """
    tasks, run = [], uuid.uuid4().hex
    for source, folder in sources:
        left = seeds_left(folder, seeds)
        swept = [s for s in left if s in seeds[:SWEEP_SEEDS]]
        for part, sweeps in ((swept, sweep), ([s for s in left if s not in swept], False)):
            for start in range(0, len(part), seeds_per_task):
                group = tuple(part[start : start + seeds_per_task])
                tasks.append(
                    _SeedsTask(run, source, folder, group, sweeps, seeds[0] in group, options)
                )
    spent: dict[tuple[str, str], float] = {}
    for number, (cells, found, seconds) in engine.run(_do_seeds, tasks):
        task = tasks[number]
        if found is not None:
            # Before the seed: once that is there, it is not trained again.
            write_anchors(task.folder, found)
        key = (task.source.dataset, task.source.encoder)
        spent[key] = spent.get(key, 0.0) + seconds
        for seed, cell in cells:
            write_cell(task.folder / "seeds" / str(seed), cell)
            progress(f"{key[0]}/{key[1]}, seed {seed}: done")
    _opened.clear()  # where the tasks were done in this process
    for source, folder in sources:
        if (key := (source.dataset, source.encoder)) in spent:
            write_timing(folder, spent[key], len(seeds))
    return spent
