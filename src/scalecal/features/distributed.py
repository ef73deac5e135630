"""Extraction by several workers: processes with a card each, or a Ray cluster.

A task is one shard, or a run of neighbouring ones, so that reading continues across their borders. A
worker loads the encoder once, embeds shards by the same `encode_shards` as a single process, and
writes each one whole into the folder; where it cannot see the folder (another machine, no shared
disk), it sends a finished shard back and the caller writes it. The caller keeps the manifest. So
the folder ends with the same bytes however many workers there were and whatever became of them; a
lost worker costs the shards it had not finished.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.engines import Engine, Worker
from scalecal.features.encoding import (
    EncodedShard,
    EncodingOptions,
    encode_shards,
    load_anywhere,
    out_of_memory,
    pick_device,
)
from scalecal.io.feature_store import Skipped, StoreWriter, shard_note, write_shard
from scalecal.io.store import disk_errors

if TYPE_CHECKING:
    from scalecal.datasets.image_sets import ImageSet
    from scalecal.encoders import Encoder, LoadedEncoder

# Shards of one task at most, so that starting to read is paid for seldom; and tasks per worker at
# least, so that no worker has to wait long for the last one.
LONGEST_RUN = 16
TASKS_PER_WORKER = 8


@dataclass(frozen=True)
class Station:
    """What a worker keeps from task to task: its encoder, and the threads it may use."""

    encoder: LoadedEncoder
    threads: int


@dataclass(frozen=True)
class Loader:
    """How a worker gets its encoder: by name, by record, or as it is."""

    encoder: str | Encoder | LoadedEncoder
    device: str | None
    options: dict[str, Any]

    def __call__(self, worker: Worker) -> Station:
        """Load the encoder on the worker's own card, else on the device that was named."""
        where = pick_device(worker.device or self.device)
        return Station(load_anywhere(self.encoder, device=where, **self.options), worker.threads)


@dataclass(frozen=True)
class Folder:
    """Where shards go, and a file by which a worker sees whether this machine has that folder."""

    path: Path
    mark: str
    dtype: str


@dataclass(frozen=True)
class Finished:
    """What became of a shard: written by the worker, or here to be written."""

    number: int
    rows: int
    features: NDArray[Any] | None = None
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class Shards:
    """One task: neighbouring shards, as (number, rows), and their images alone; `start` is the first."""

    numbers: tuple[tuple[int, int], ...]
    start: int
    images: ImageSet
    options: EncodingOptions
    folder: Folder
    threads: int | None
    strict: bool

    def __call__(self, station: Station) -> list[Finished]:
        """Embed the shards and write them.

        Where the folder is not seen, one shard is sent back; the caller will ask for the others.
        """
        here = (self.folder.path / self.folder.mark).exists()
        done: list[Finished] = []
        todo: list[tuple[int, int, int]] = []
        place = 0
        for number, rows in self.numbers:
            if here and shard_note(self.folder.path, number, rows) is not None:
                # By a worker that was lost after it had written.
                done.append(Finished(number, rows))
            else:
                todo.append((number, place, place + rows))
            place += rows
        if not here:
            del todo[1:]
        encoded = encode_shards(
            self.images,
            [(start, stop) for _, start, stop in todo],
            station.encoder,
            replace(self.options, device=station.encoder.device),
            workers=self.threads or station.threads,
            strict=self.strict,
        )
        with contextlib.closing(encoded):
            for (number, _, _), shard in zip(todo, encoded, strict=True):
                done.append(self._finish(number, shard, here))
        return done

    def _finish(self, number: int, shard: EncodedShard, here: bool) -> Finished:
        rows = shard.stop - shard.start
        skipped = tuple(replace(s, row=s.row + self.start) for s in shard.skipped)
        if not here:
            with np.errstate(over="ignore"):  # an overflow is found, and named, when it is written
                features = shard.features.astype(self.folder.dtype)
            return Finished(number, rows, features, skipped)
        left_out = {s.row - shard.start for s in shard.skipped}
        ids = [str(name) for name in self.images.cases.ids[shard.start : shard.stop]]
        kept = [name for row, name in enumerate(ids) if row not in left_out]
        path, dtype = self.folder.path, self.folder.dtype
        write_shard(path, number, shard.features, kept, skipped, dtype=dtype)
        return Finished(number, rows)


def _perform(station: Station, task: Callable[[Station], Any]) -> Any:
    """Do a task, whatever it is: workers stay the same, and with them their encoders."""
    return task(station)


@contextmanager
def _marked(store: StoreWriter) -> Iterator[Folder]:
    """Leave a mark in the folder while workers look for it; a killed run's is swept up later."""
    mark = f".scalecal-{secrets.token_hex(8)}.partial"
    with disk_errors(store.path):
        (store.path / mark).touch()
    try:
        yield Folder(store.path.absolute(), mark, store.settings["dtype"])
    finally:
        (store.path / mark).unlink(missing_ok=True)


def encode_on(
    engine: Engine,
    store: StoreWriter,
    images: ImageSet,
    loader: Loader,
    options: EncodingOptions,
    *,
    threads: int | None,
    strict: bool,
    advance: Callable[[int], object],
) -> None:
    """Have the missing shards of a store done by an engine's workers."""
    missing = store.missing()
    most = min(LONGEST_RUN, max(1, len(missing) // (TASKS_PER_WORKER * engine.workers)))
    with _marked(store) as folder:
        while missing:
            tasks = (
                Shards(
                    tuple((number, stop - start) for number, start, stop in run),
                    run[0][1],
                    images.take(slice(run[0][1], run[-1][2])),
                    options,
                    folder,
                    threads,
                    strict,
                )
                for run in _runs(missing, most)
            )
            for _, done in engine.run(_perform, tasks, setup=loader, final=out_of_memory):
                for shard in done:
                    if shard.features is not None:
                        store.write_shard(shard.number, shard.features, shard.skipped)
                    advance(shard.rows)
            # What workers that do not see the folder left over.
            missing, most = store.missing(), 1


def _runs(missing: list[tuple[int, int, int]], most: int) -> Iterator[list[tuple[int, int, int]]]:
    """Cut shards into runs of neighbours, `most` of them at most.

    Examples
    --------
    >>> [[shard for shard, _, _ in run] for run in _runs([(0, 0, 2), (1, 2, 4), (3, 6, 8)], 5)]
    [[0, 1], [3]]
    """
    run: list[tuple[int, int, int]] = []
    for shard in missing:
        if run and (len(run) == most or run[-1][0] + 1 != shard[0]):
            yield run
            run = []
        run.append(shard)
    if run:
        yield run


def _ask(station: Station, question: Callable[[LoadedEncoder], Any]) -> Any:
    return question(station.encoder)


def ask_one(engine: Engine, question: Callable[[LoadedEncoder], Any], loader: Loader) -> Any:
    """Have one worker answer ``question(encoder)``."""
    task = partial(_ask, question=question)
    ((_, answer),) = engine.run(_perform, [task], setup=loader, final=out_of_memory)
    return answer
