"""Extraction by several workers: processes with a card each, or a Ray cluster.

The unit of work is a shard. A worker loads the encoder once, embeds shards by the same
`encode_shard` as a single process, and writes each one whole into the folder; where it cannot see
the folder (another machine, no shared disk), it sends the finished shard back and the caller
writes it. The caller keeps the manifest. So the folder ends with the same bytes however many
workers there were and whatever became of them; a lost worker costs the shards it had not finished.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError
from scalecal.engines import Engine, Worker
from scalecal.features.encoding import encode_shard
from scalecal.features.network import Recipe, out_of_memory
from scalecal.features.plan import load_anywhere, pick_device
from scalecal.features.rows import Images
from scalecal.features.shards import Skipped, disk_errors, shard_done, write_shard
from scalecal.features.store import StoreWriter

if TYPE_CHECKING:
    from scalecal.encoders import Encoder, LoadedEncoder

__all__ = ["Loader", "ask_one", "encode_on"]


@dataclass(frozen=True)
class Station:
    """What a worker keeps from task to task: its encoder, and the threads it may use."""

    encoder: LoadedEncoder
    threads: int


@dataclass(frozen=True)
class Loader:
    """How a worker comes by its encoder: a name or record and where its weights are, or itself."""

    encoder: str | Encoder | LoadedEncoder
    device: str | None
    options: dict[str, Any]

    def __call__(self, worker: Worker) -> Station:
        """Load the encoder on the worker's own card, else on the device that was named."""
        where = pick_device(worker.device or self.device)
        return Station(load_anywhere(self.encoder, device=where, **self.options), worker.threads)


@dataclass(frozen=True)
class Folder:
    """Where shards go, and a file by which a worker can tell that it sees the same folder."""

    path: Path
    mark: str
    dtype: str

    @property
    def is_here(self) -> bool:
        """Whether this machine sees the folder."""
        return (self.path / self.mark).exists()


@dataclass(frozen=True)
class Finished:
    """What became of a shard: written by the worker, or here to be written."""

    number: int
    rows: int
    features: NDArray[Any] | None = None
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class Shard:
    """One task: the images of one shard alone, so that little travels."""

    number: int
    start: int
    images: Images
    recipe: Recipe
    folder: Folder
    threads: int | None
    strict: bool

    def __call__(self, station: Station) -> Finished:
        """Embed the shard and write it, or send it back where the folder is not seen."""
        n, here = len(self.images.table), self.folder.is_here
        if here and shard_done(self.folder.path, self.number, n):
            return Finished(self.number, n)  # by a worker that was lost after it had written
        shard = encode_shard(
            self.images,
            0,
            n,
            station.encoder,
            replace(self.recipe, device=station.encoder.device),
            workers=self.threads or station.threads,
            strict=self.strict,
        )
        skipped = tuple(replace(s, row=s.row + self.start) for s in shard.skipped)
        if not here:
            with np.errstate(over="ignore"):  # an overflow is found, and named, when it is written
                features = shard.features.astype(self.folder.dtype)
            return Finished(self.number, n, features, skipped)
        left_out = {s.row for s in shard.skipped}
        ids = self.images.table["id"].astype(str).tolist()
        kept = [name for row, name in enumerate(ids) if row not in left_out]
        path, dtype = self.folder.path, self.folder.dtype
        write_shard(path, self.number, shard.features, kept, skipped, dtype=dtype)
        return Finished(self.number, n)


def _perform(station: Station, task: Callable[[Station], Any]) -> Any:
    """Do a task, whatever it is: workers stay the same, and with them their encoders."""
    return task(station)


@contextmanager
def _marked(store: StoreWriter) -> Iterator[Folder]:
    """Leave a mark in the folder while workers look for it; a killed run's is swept up later."""
    mark = f".seen-{secrets.token_hex(8)}.tmp"
    with disk_errors(store.path):
        (store.path / mark).touch()
    try:
        yield Folder(store.path.absolute(), mark, store.settings["dtype"])
    finally:
        (store.path / mark).unlink(missing_ok=True)


def encode_on(
    engine: Engine,
    store: StoreWriter,
    images: Images,
    loader: Loader,
    recipe: Recipe,
    *,
    threads: int | None,
    strict: bool,
    advance: Callable[[int], object],
) -> None:
    """Have the missing shards of a store done by an engine's workers."""
    take = getattr(images, "take", None)
    if take is None:
        raise InputError(f"{images.name} cannot be cut into shards for several workers")
    with _marked(store) as folder:
        tasks = (
            Shard(number, start, take(slice(start, stop)), recipe, folder, threads, strict)
            for number, start, stop in store.missing()
        )
        for _, done in engine.run(_perform, tasks, setup=loader, final=out_of_memory):
            if done.features is not None:
                store.write_shard(done.number, done.features, done.skipped)
            advance(done.rows)


@dataclass(frozen=True)
class _Question:
    ask: Callable[[LoadedEncoder, Any], Any]
    about: Any

    def __call__(self, station: Station) -> Any:
        return self.ask(station.encoder, self.about)


def ask_one(
    engine: Engine, ask: Callable[[LoadedEncoder, Any], Any], about: Any, loader: Loader
) -> Any:
    """Have one worker answer ``ask(encoder, about)``."""
    question = _Question(ask, about)
    ((_, answer),) = engine.run(_perform, [question], setup=loader, final=out_of_memory)
    return answer
