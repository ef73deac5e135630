"""`extract`: an image set and an encoder in, a folder of features out; a killed run loses nothing.

**From rows to embeddings.** What `encode_shards` makes of a shard depends on the images, the encoder and the
`EncodingOptions`, not on the number of threads or on which other shards the process does, so that any engine
may hand out shards. Reading, transfer and computing overlap across the borders of shards.

On the CPU every thread reads, prepares and embeds whole batches by itself with one arithmetic
thread: whole batches side by side use the cores better than one batch with its layers split among
them, and nothing waits for anything.

On an accelerator threads read, with a decoding process each if there are many cores and files
(see `scalecal.features.image_rows`), one thread gathers batches in pinned memory, a side stream copies
them while the batch before is computed, and its embeddings come back while the next is computed.

**From embeddings to a folder.** By several workers, processes with a card each or a Ray cluster, a task is
one shard, or a run of neighbouring ones, so that reading continues across their borders. A worker loads the
encoder once, embeds shards by the same `encode_shards` as a single process, and writes each one whole to the
folder; where it cannot see the folder (another machine, no shared disk), it sends a finished shard back and
the caller writes it. The caller keeps the manifest. So the folder ends with the same bytes however many
workers there were and whatever became of them; a lost worker costs the shards it had not finished.
"""

from __future__ import annotations

import contextlib
import copy
import os
import platform
import secrets
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, LazyModule, check_choice, check_positive_int, library
from scalecal.encoders import Encoder, LoadedEncoder, get_encoder, load_encoder
from scalecal.engines import Engine, Worker, open_engine
from scalecal.engines.local import cores
from scalecal.features.image_rows import Piece, RowPool, read_rows
from scalecal.features.transforms import DeviceTransform, short_products
from scalecal.io.feature_store import (
    MANIFEST,
    Skipped,
    StoreWriter,
    holds_shards,
    read_manifest,
    shard_note,
    write_shard,
)
from scalecal.io.store import disk_errors
from scalecal.progress import Progress

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from scalecal.datasets.image_sets import ImageSet
else:
    torch = LazyModule("torch")

PRECISIONS = ("auto", "fp32", "bf16", "fp16")
COMPILE = ("auto", "on", "off")

COMPILED_FROM = 1.5e16
"""Floating-point operations of a whole extraction from which compiling pays for its start."""


@dataclass(frozen=True)
class EncodingOptions:
    """Everything besides images and weights that decides the numbers.

    Attributes
    ----------
    device : str
        Where the encoder runs, such as ``"cuda"`` or ``"cpu"``.
    precision : {"fp32", "bf16", "fp16"}
        Numbers of the matrix products (autocast below fp32).
    batch_size : int
        Images per pass through the encoder; batches never cross the border of a shard.
    compile : bool
        Use `torch.compile` (see `compiled`).
    """

    device: str
    precision: str
    batch_size: int
    compile: bool = False

    @property
    def on_cpu(self) -> bool:
        """Whether the encoder runs on the CPU, where Pillow resizes; elsewhere the device does."""
        return self.device == "cpu"


def pick_device(device: str | None = None) -> str:
    """Return the device to use: the one named, else CUDA, else MPS, else the CPU."""
    library("torch", "extraction")
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if device is None:
        return next(name for name, there in available.items() if there)
    kind = device.partition(":")[0]
    check_choice(kind, available, "device")
    if not available[kind]:
        there = ", ".join(name for name, yes in available.items() if yes)
        raise InputError(f"device {device!r} is not available here. Available: {there}")
    return device


def pick_precision(precision: str, device: str) -> str:
    """Return the number type of the matrix products, with ``"auto"`` settled."""
    if precision != "auto":
        return precision
    if not device.startswith("cuda"):
        return "fp32"
    major, _ = torch.cuda.get_device_capability(device)
    if major >= 8:
        return "bf16"
    return "fp16"


def pick_compile(compile: str, encoder: LoadedEncoder, n_images: int) -> bool:
    """Return whether to compile, with ``"auto"`` settled: on CUDA, where the work pays for the start.

    The rule asks for the operations of one image and the number of images, never for a stopwatch, so
    that the same command gives the same bytes.
    """
    if compile != "auto":
        return compile == "on"
    if not encoder.device.startswith("cuda"):
        return False
    return n_images * operations(encoder) >= COMPILED_FROM


def operations(encoder: LoadedEncoder) -> float:
    """Floating-point operations of matrix products and convolutions for one image; 0 if unknown."""
    from torch.utils.flop_counter import FlopCounterMode

    crop = encoder.preprocess.crop
    image = torch.zeros(1, 3, crop, crop, device=encoder.device)
    with FlopCounterMode(display=False) as count, torch.no_grad():
        encoder.module(image)
    return float(count.get_total_flops())


def compiled(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy, with the same weights, whose repeated blocks are compiled.

    The blocks of a network are alike, so that compiling one serves all: the start takes a fraction
    of what the whole network's would. A network without repeated blocks is compiled whole.
    """
    import torch._dynamo
    import torch._inductor.config

    # Compiling changes modules in place; the caller's stay as they are, and the weights are shared.
    tensors = [*module.parameters(), *module.buffers()]
    copied = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    lists = [
        part
        for part in copied.modules()
        if isinstance(part, torch.nn.ModuleList | torch.nn.Sequential)
        and len(part) > 1
        and len({type(block) for block in part}) == 1
        and any(True for _ in part[0].children())
    ]
    inside = {id(m) for part in lists for block in part for m in block.modules()}
    blocks = [block for part in lists if id(part) not in inside for block in part]
    # Blocks of many sizes each take one of the versions that torch allows a piece of code.
    torch._dynamo.config.cache_size_limit = max(torch._dynamo.config.cache_size_limit, 64)
    options = {}
    if hasattr(torch._inductor.config, "deterministic"):
        # Kernels are else chosen by a stopwatch, and with them the order of sums.
        options["deterministic"] = True
    for block in blocks or [copied]:
        block.compile(dynamic=False, options=options)
    return copied


def load_anywhere(
    encoder: str | Encoder | LoadedEncoder, *, device: str, **options: Any
) -> LoadedEncoder:
    """Load an encoder given by name, by record, or loaded already."""
    if isinstance(encoder, LoadedEncoder):
        if options["weights"] is not None:
            raise InputError("weights are given, but the encoder is loaded already")
        return replace(encoder, module=encoder.module.to(device), device=device)
    if isinstance(encoder, str):
        encoder = get_encoder(encoder, offline=options["offline"], token=options["token"])
    return load_encoder(encoder, device=device, **options)


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error means that the batch was too large for the memory."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text


class Network:
    """An encoder set up for one set of options: transform, number type, memory layout."""

    def __init__(self, encoder: LoadedEncoder, options: EncodingOptions) -> None:
        self.dim = encoder.record.dim
        self._checked = encoder.checked
        self.options = options
        self.device = torch.device(options.device)
        module = encoder.module
        # Convolutional networks run up to twice as fast with the channels last; a transformer has
        # one convolution, its patch embedding, and no use for it.
        convolutions = sum(isinstance(m, torch.nn.Conv2d) for m in module.modules())
        self._channels_last = convolutions > 4
        if self._channels_last:
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.transform = DeviceTransform(
            encoder.preprocess,
            self.device,
            resized=options.on_cpu,
            channels_last=self._channels_last,
        )
        self.module = module
        if options.compile:
            self.module = compiled(module)
        names = {"bf16": torch.bfloat16, "fp16": torch.float16}
        self._autocast = names.get(options.precision)

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        """Embed a normalised batch; float32 comes back."""
        n = len(batch)
        if self.options.compile and n < self.options.batch_size:
            # One shape only: each new one would be compiled again.
            batch = torch.cat(
                [batch, batch.new_zeros(self.options.batch_size - n, *batch.shape[1:])]
            )
        if self._channels_last:
            batch = batch.contiguous(memory_format=torch.channels_last)
        short = self._autocast is not None
        with torch.autocast(self.device.type, dtype=self._autocast, enabled=short):
            embeddings = self.module(batch)[:n]
        return self._checked(embeddings, n).float()


@dataclass
class EncodedShard:
    """The embeddings of the readable images of rows start .. stop - 1, in order."""

    start: int
    stop: int
    features: NDArray[Any]
    skipped: list[Skipped]


def _batches(ranges: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each batch, and one past its last."""
    for start, stop in ranges:
        for first in range(start, stop, size):
            yield first, min(first + size, stop)


def encode_shards(
    images: ImageSet,
    ranges: Iterable[tuple[int, int]],
    encoder: LoadedEncoder,
    options: EncodingOptions,
    *,
    workers: int | None = None,
    strict: bool = False,
    on_batch: Callable[[int], object] | None = None,
) -> Generator[EncodedShard]:
    """Embed ranges of rows of an image set, one shard each, in order.

    Parameters
    ----------
    images : ImageSet
        Where the images come from.
    ranges : iterable of (int, int)
        First row of each shard, and one past its last.
    encoder : LoadedEncoder
        On the device of the options.
    options : EncodingOptions
        What decides the numbers.
    workers : int, optional
        Threads; by default one per core. Does not change the result.
    strict : bool, default=False
        Raise on the first image that cannot be read instead of leaving it out.
    on_batch : callable, optional
        Called with the number of rows done, after each batch.
    """
    network = Network(encoder, options)
    ranges = list(ranges)
    run = _on_accelerator
    if options.on_cpu:
        run = _on_cpu
    # The resize counts on whole float32 products, whatever the caller set.
    with (
        short_products(False),
        contextlib.closing(
            run(images, ranges, encoder, network, workers or cores(), strict)
        ) as batches,
    ):
        for start, stop in ranges:
            rows = 0
            parts: list[NDArray[np.float32]] = []
            skipped: list[Skipped] = []
            while rows < stop - start:
                done, features, unread = next(batches)
                rows += done
                parts.append(features)
                skipped += unread
                if on_batch is not None:
                    on_batch(done)
            yield EncodedShard(start, stop, np.concatenate(parts), skipped)


_EncodedBatch = tuple[int, NDArray[np.float32], list[Skipped]]
"""A number of rows, and of their images the embeddings of those that could be read and the others."""


def _on_cpu(
    images: ImageSet,
    ranges: list[tuple[int, int]],
    encoder: LoadedEncoder,
    network: Network,
    workers: int,
    strict: bool,
) -> Generator[_EncodedBatch]:
    def embed(start: int, stop: int) -> _EncodedBatch:
        piece = read_rows(images, start, stop, encoder.preprocess, strict)
        features = np.empty((0, network.dim), np.float32)
        if len(piece.images):
            with torch.inference_mode():
                batch = network.transform(torch.from_numpy(np.stack(list(piece.images))))
                features = network(batch).numpy()
        return stop - start, features, piece.skipped

    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    waiting: deque[Future[_EncodedBatch]] = deque()
    try:
        for start, stop in _batches(ranges, network.options.batch_size):
            waiting.append(pool.submit(embed, start, stop))
            # Enough are begun before one is collected that no thread waits for a slow one.
            if len(waiting) > _BATCHES_PER_THREAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


UInt8 = NDArray[np.uint8]

# Images per decoding task: enough to make a task's overhead small (JPEG tiles are decoded half as fast
# again in pieces of 32 as of 8), few enough that all threads work on the batch that is needed next.
_MIN_TOGETHER, _MAX_TOGETHER = 8, 32
# Batches being read while one is computed, and the bytes they may take, unless one takes more:
# together they bound the memory whatever the size of the set and of its images.
_BATCHES_AHEAD = 3
_BATCHES_PER_THREAD = 4
_BYTES_AHEAD = 1 << 31


@dataclass
class _HostBatch:
    """One batch in (pinned) memory, its images grouped by size, each group with its rows of the batch."""

    rows: int
    groups: Sequence[tuple[torch.Tensor, torch.Tensor]]
    n: int
    skipped: list[Skipped]

    @property
    def nbytes(self) -> int:
        return sum(host.nbytes for host, _ in self.groups)


def _gather(pieces: Iterable[Piece], rows: int, pin: bool) -> _HostBatch:
    """Copy pieces into one tensor per image size; no copy order can change a result."""
    skipped: list[Skipped] = []
    main: torch.Tensor | None = None
    main_places: list[int] = []
    others: dict[tuple[int, ...], list[tuple[int, UInt8]]] = {}
    n = 0
    for piece in pieces:
        skipped += piece.skipped
        for image in piece.images:
            # Most sets have images of one size: those are copied at once, and their pieces freed.
            if main is None:
                main = torch.empty((rows, *image.shape), dtype=torch.uint8, pin_memory=pin)
            if image.shape == main.shape[1:]:
                main.numpy()[len(main_places)] = image
                main_places.append(n)
            else:
                others.setdefault(image.shape, []).append((n, image))
            n += 1
    if main is None:
        return _HostBatch(rows, [], 0, skipped)
    groups = [(main[: len(main_places)], torch.tensor(main_places))]
    for shape, placed in others.items():
        host = torch.empty((len(placed), *shape), dtype=torch.uint8, pin_memory=pin)
        np.stack([image for _, image in placed], out=host.numpy())
        groups.append((host, torch.tensor([place for place, _ in placed])))
    return _HostBatch(rows, groups, n, skipped)


def _host_batches(
    images: ImageSet,
    ranges: list[tuple[int, int]],
    encoder: LoadedEncoder,
    options: EncodingOptions,
    workers: int,
    strict: bool,
    pin: bool,
) -> Generator[_HostBatch]:
    """Yield batches in order while later ones are being read; at most a few are in memory."""
    # An array is read in whole batches; anything that costs arithmetic is shared out.
    together = min(_MAX_TOGETHER, max(_MIN_TOGETHER, options.batch_size // workers))
    if images.kind == "array":
        together = options.batch_size
    rows = sum(stop - start for start, stop in ranges)
    waiting: deque[Future[_HostBatch]] = deque()
    ahead = 1  # until the first batch has shown how large they are

    def gather(futures: deque[Future[Piece]], rows: int) -> _HostBatch:
        # Each piece is freed as soon as it is copied.
        pieces = (futures.popleft().result() for _ in range(len(futures)))
        return _gather(pieces, rows, pin)

    def next_batch() -> _HostBatch:
        nonlocal ahead
        batch = waiting.popleft().result()
        ahead = max(1, min(_BATCHES_AHEAD, _BYTES_AHEAD // max(batch.nbytes, 1)))
        return batch

    with (
        ThreadPoolExecutor(1, "gatherer") as gatherer,
        RowPool(images, workers, rows=rows, preprocess=encoder.preprocess, strict=strict) as pool,
    ):
        try:
            for start, stop in _batches(ranges, options.batch_size):
                while len(waiting) >= ahead:
                    yield next_batch()
                pieces = deque(
                    pool.submit(a, min(a + together, stop)) for a in range(start, stop, together)
                )
                waiting.append(gatherer.submit(gather, pieces, stop - start))
            while waiting:
                yield next_batch()
        finally:
            gatherer.shutdown(wait=False, cancel_futures=True)


def _on_accelerator(
    images: ImageSet,
    ranges: list[tuple[int, int]],
    encoder: LoadedEncoder,
    network: Network,
    workers: int,
    strict: bool,
) -> Generator[_EncodedBatch]:
    device = network.device
    cuda = device.type == "cuda"
    copies: Any = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]
    crop = encoder.preprocess.crop
    incoming = _host_batches(images, ranges, encoder, network.options, workers, strict, cuda)
    launched: deque[tuple[Any, torch.Tensor, int, list[Skipped]]] = deque()

    def embed(batch: _HostBatch) -> torch.Tensor:
        if not batch.n:
            return torch.empty(0, network.dim, device=device)
        moved = []
        with torch.cuda.stream(copies) if cuda else contextlib.nullcontext():
            for host, places in batch.groups:
                moved.append((host.to(device, non_blocking=cuda), places))
        if cuda:
            torch.cuda.current_stream(device).wait_stream(copies)
            for pixels, _ in moved:
                pixels.record_stream(torch.cuda.current_stream(device))
        if len(moved) == 1:
            return network(network.transform(moved[0][0]))
        ready = torch.empty((batch.n, 3, crop, crop), device=device)
        for pixels, places in moved:
            ready[places.to(device)] = network.transform(pixels)
        return network(ready)

    def collect() -> _EncodedBatch:
        event, host, rows, skipped = launched.popleft()
        if event is not None:
            event.synchronize()
        return rows, host.numpy(), skipped

    try:
        for batch in incoming:
            with torch.inference_mode():
                embeddings = embed(batch)
                host = torch.empty(embeddings.shape, pin_memory=cuda)
                host.copy_(embeddings, non_blocking=cuda)
            event = torch.cuda.current_stream(device).record_event() if cuda else None
            launched.append((event, host, batch.rows, batch.skipped))
            # Two batches on the card at most: enough to keep it busy, little to hold.
            if len(launched) > 2:
                yield collect()
        while launched:
            yield collect()
    finally:
        incoming.close()


# ---- what decides the bytes

# The largest batch tried on an accelerator: past it no encoder of the paper gains speed.
LARGEST_BATCH = 512
# On a CPU small batches stay in the cache.
CPU_BATCH = 16


@dataclass(frozen=True)
class ExtractionSetup:
    """What decides the bytes, settled, and the machine that settled it."""

    record: Encoder
    weight_hash: str
    options: EncodingOptions
    machine: str


@dataclass(frozen=True)
class Station:
    """What a worker keeps from task to task: its encoder, and the threads it may use."""

    encoder: LoadedEncoder
    threads: int


def make_setup(
    station: Station,
    *,
    images: ImageSet,
    precision: str,
    batch_size: int | None,
    compile: str,
    n_images: int,
) -> ExtractionSetup:
    """Settle number type, compiling and batch size on the device the encoder is on.

    `images` is a sample of the `n_images`.
    """
    encoder = station.encoder
    device = encoder.device
    chosen = pick_precision(precision, device)
    options = EncodingOptions(device, chosen, 0, pick_compile(compile, encoder, n_images))
    if batch_size is None:
        batch_size = CPU_BATCH if options.on_cpu else _fitting_batch(images, encoder, options)
    options = replace(options, batch_size=batch_size)
    return ExtractionSetup(encoder.record, encoder.weight_hash, options, _describe_machine(options))


def _fitting_batch(images: ImageSet, encoder: LoadedEncoder, options: EncodingOptions) -> int:
    """Return the largest power of two of images that passes through the encoder."""
    crop = encoder.preprocess.crop
    shape: tuple[int, ...] = (crop, crop, 3)
    for row in range(len(images)):
        # The first image that can be read, as it reaches the device.
        piece = read_rows(images, row, row + 1, encoder.preprocess, strict=False, resize=False)
        if len(piece.images):
            shape = piece.images[0].shape
            break
    size = LARGEST_BATCH
    while True:
        network = Network(encoder, replace(options, batch_size=size, compile=False))
        try:
            with torch.inference_mode(), short_products(False):
                batch = torch.zeros((size, *shape), dtype=torch.uint8, device=options.device)
                network(network.transform(batch))
            return size
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
        # Outside the handler: the error's frames would hold the memory that ran out.
        size = halved(size, encoder.record.name)


def halved(size: int, name: str) -> int:
    """Return half a batch size that was too large, or say that not even one image fits."""
    if size == 1:
        raise InputError(
            f"{name!r} does not fit into the memory with a single image. "
            "Use a smaller encoder, precision='bf16', or another device."
        )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return size // 2


def _describe_machine(options: EncodingOptions) -> str:
    device = options.device
    if device.startswith("cuda"):
        device = f"{device} {torch.cuda.get_device_name(device)}"
    return (
        f"{device} torch {torch.__version__}, "
        f"batch {options.batch_size}, {options.precision}, {platform.platform()}"
    )


# ---- shards as tasks of workers

# Shards of one task at most, so that starting to read is paid for seldom; and tasks per worker at
# least, so that no worker has to wait long for the last one.
LONGEST_RUN = 16
TASKS_PER_WORKER = 8


def load_station(
    worker: Worker,
    *,
    encoder: str | Encoder | LoadedEncoder,
    device: str | None,
    options: dict[str, Any],
) -> Station:
    """Load an encoder on the worker's own card, else on the device that was named."""
    where = pick_device(worker.device or device)
    return Station(load_anywhere(encoder, device=where, **options), worker.threads)


@dataclass(frozen=True)
class Folder:
    """Where shards go, and a file by which a worker sees whether this machine has that folder."""

    path: Path
    mark: str
    dtype: str


Done = tuple[int, int, EncodedShard | None]
"""A shard's number, its rows, and the shard itself where it is left to the caller to write."""


@dataclass(frozen=True)
class Shards:
    """One task: neighbouring shards, as (number, first row, one past the last), and their images alone."""

    shards: Sequence[tuple[int, int, int]]
    images: ImageSet
    options: EncodingOptions
    folder: Folder
    threads: int | None
    strict: bool

    def __call__(self, station: Station) -> list[Done]:
        """Embed the shards and write them.

        Where the folder is not seen, one shard is sent back; the caller will ask for the others.
        """
        here = (self.folder.path / self.folder.mark).exists()
        first = self.shards[0][1]
        done: list[Done] = []
        todo: list[tuple[int, int, int]] = []
        for number, start, stop in self.shards:
            if here and shard_note(self.folder.path, number, start, stop) is not None:
                # By a worker that was lost after it had written.
                done.append((number, stop - start, None))
            else:
                todo.append((number, start, stop))
        if not here:
            del todo[1:]
        encoded = encode_shards(
            self.images,
            [(start - first, stop - first) for _, start, stop in todo],
            station.encoder,
            replace(self.options, device=station.encoder.device),
            workers=self.threads or station.threads,
            strict=self.strict,
        )
        with contextlib.closing(encoded):
            for (number, _, _), shard in zip(todo, encoded, strict=True):
                left = self._finish(number, shard, here, first)
                done.append((number, shard.stop - shard.start, left))
        return done

    def _finish(
        self, number: int, shard: EncodedShard, here: bool, first: int
    ) -> EncodedShard | None:
        """Write a shard where the folder is seen, else return it in the number type on disk."""
        skipped = [replace(s, row=s.row + first) for s in shard.skipped]
        if not here:
            with np.errstate(over="ignore"):  # an overflow is found, and named, when it is written
                features = shard.features.astype(self.folder.dtype)
            return replace(shard, features=features, skipped=skipped)
        ids = self.images.cases.ids[shard.start : shard.stop]
        start = first + shard.start
        path, dtype = self.folder.path, self.folder.dtype
        write_shard(path, number, shard.features, ids, skipped, start=start, dtype=dtype)
        return None


def _perform(station: Station, task: Callable[[Station], Any]) -> Any:
    """Do a task, whatever it is: workers stay the same, and with them their encoders."""
    return task(station)


@contextlib.contextmanager
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
    *,
    store: StoreWriter,
    images: ImageSet,
    loader: Callable[[Worker], Station],
    options: EncodingOptions,
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
                    run,
                    images.take(slice(run[0][1], run[-1][2])),
                    options,
                    folder,
                    threads,
                    strict,
                )
                for run in _runs(missing, most)
            )
            for _, done in engine.run(_perform, tasks, setup=loader, final=out_of_memory):
                for number, rows, shard in done:
                    if shard is not None:
                        store.write_shard(number, shard.features, shard.skipped)
                    advance(rows)
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


# Shards that may wait for the disk before the encoder does: memory holds no more.
_WRITES_AHEAD = 2


@dataclass(frozen=True)
class ExtractionResult:
    """What an extraction gave: embeddings written, images that could not be read, and where."""

    n: int
    n_skipped: int
    path: Path


def extract(
    images: ImageSet,
    encoder: str | Encoder | LoadedEncoder,
    out: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    device: str | None = None,
    precision: str = "auto",
    batch_size: int | None = None,
    workers: int | None = None,
    compile: str = "auto",
    strict: bool = False,
    shard_rows: int | None = None,
    dtype: str | None = None,
    progress: bool = True,
    offline: bool = False,
    allow_remote_code: bool = False,
    token: str | None = None,
    engine: str | Engine = "local",
    num_gpus: int | None = None,
    address: str | None = None,
) -> ExtractionResult:
    """Turn an image set into a folder of features, or resume an unfinished one.

    Interrupted at any moment and started again with the same arguments, it resumes where it stopped
    and ends with the same bytes as a run that was never stopped (``run.log`` aside).

    Parameters
    ----------
    images : ImageSet
        From `scalecal.datasets.open_dataset`.
    encoder : str, Encoder or LoadedEncoder
        A name or spec (see ``scalecal list encoders``), a record, or an encoder already loaded.
    out : path
        The folder. One begun with another encoder, data set or option is refused.
    weights : path or "random", optional
        A local weight file; by default the Hub or its cache.
    device : str, optional
        By default CUDA, else MPS, else the CPU.
    precision : {"auto", "fp32", "bf16", "fp16"}
        Numbers of the matrix products. ``"auto"``: bf16 on CUDA cards that have it, fp16 on older
        ones, fp32 elsewhere.
    batch_size : int, optional
        Images per pass. By default the largest power of two up to 512 that fits the card (16 on a
        CPU). It depends on memory alone, not on timing, so a second run chooses the same. Kept in
        the folder and used by every later run; halved, and the shards done again, if the memory
        runs out.
    workers : int, optional
        How many decode images at the same time for each GPU, in threads or processes of their own;
        without a GPU, how many embed: threads here, actors with Ray. By default one per core. Does
        not change the result.
    compile : {"auto", "on", "off"}
        Use `torch.compile`: slower to start, faster afterwards. ``"auto"``: on a CUDA card, where the
        operations of all images together pay for the start (`scalecal.features.extraction`). Kept in
        the folder and used by every later run.
    strict : bool, default=False
        Stop at the first image that cannot be read. By default it is left out and listed in
        ``skipped.csv``.
    shard_rows : int, optional
        Images per shard: what a kill can cost at most. By default a 32nd of the set, at most 16,384.
    dtype : {"float16", "float32"}, optional
        Number type on disk. By default float16; float32 with random weights, whose embeddings may be too
        small for float16.
    progress : bool, default=True
        Show progress on standard error.
    offline, allow_remote_code, token
        Passed to `scalecal.encoders.load_encoder`.
    engine : {"local", "ray"} or Engine
        Who does the work, by name or from `scalecal.engines.open_engine`; the bytes are the same.
        See `scalecal.features.extraction`.
    num_gpus : int, optional
        GPUs to use, each with a process and an encoder of its own. By default one GPU and no other
        process; with Ray every GPU of the cluster.
    address : str, optional
        Of the Ray cluster: ``"auto"`` or ``"ray://host:10001"``.

    Returns
    -------
    ExtractionResult

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from scalecal.datasets import open_dataset
    >>> from scalecal.features import load_features
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, grey in (("benign", 40), ("malignant", 200)):
    ...     (folder / "tiles" / name).mkdir(parents=True)
    ...     Image.new("RGB", (32, 32), (grey,) * 3).save(folder / "tiles" / name / "a.png")
    >>> images = open_dataset(f"folder:{folder / 'tiles'}")
    >>> result = extract(images, "efficientnet-lite0", folder / "features", weights="random",
    ...                  device="cpu", progress=False)
    >>> result.n, load_features(result.path).X.shape
    (2, (2, 1280))
    """
    check_choice(precision, PRECISIONS, "precision")
    check_choice(compile, COMPILE, "compile")
    if batch_size is not None:
        check_positive_int(batch_size, "batch_size")
    if workers is not None:
        check_positive_int(workers, "workers")
    if len(images) == 0:
        raise InputError(f"{images.name} holds no images: nothing to extract")
    path = Path(out)
    if dtype is None:
        dtype = "float32" if weights == "random" else "float16"
    note: dict[str, Any] = {"form": images.about.form}
    if batch_size is not None:
        # A run that had to halve its batch is gone on with by the same command.
        note["requested_batch_size"] = batch_size
    # A folder that was begun keeps what was settled; one that holds nothing settles nothing.
    if (path / MANIFEST).exists() and holds_shards(path):
        stored = read_manifest(path)
        if "requested_batch_size" in stored:
            note["requested_batch_size"] = stored["requested_batch_size"]
        if batch_size in (None, stored.get("requested_batch_size")):
            batch_size = stored.get("batch_size", batch_size)
        if compile == "auto" and "compile" in stored:
            compile = "on" if stored["compile"] else "off"
    # Rows evenly spread: enough to find one that can be read.
    sample = np.unique(np.linspace(0, len(images) - 1, min(len(images), 64)).round().astype(int))
    settle = partial(
        make_setup,
        images=images.take(sample),
        precision=precision,
        batch_size=batch_size,
        compile=compile,
        n_images=len(images),
    )
    load = {
        "weights": weights,
        "offline": offline,
        "allow_remote_code": allow_remote_code,
        "token": token,
    }
    with contextlib.ExitStack() as stack:
        run: Callable[..., None]
        if engine == "local" and not num_gpus:
            loaded = load_anywhere(encoder, device=pick_device(device), **load)
            threads = workers or cores()
            setup = settle(Station(loaded, threads))
            run = partial(_run, images=images, encoder=loaded, workers=workers, strict=strict)
        else:
            if isinstance(engine, str):
                no_gpu = device is not None and not device.startswith("cuda")
                if no_gpu and num_gpus:
                    raise InputError(
                        f"num_gpus (--num-gpus) counts GPUs, but the device is {device!r}: "
                        "leave it out, or say how many decode and embed with workers (--workers)"
                    )
                count = 0 if no_gpu else num_gpus
                engine = stack.enter_context(
                    open_engine(engine, workers=workers, num_gpus=count, address=address)
                )
                # Without GPUs `workers` is the number of actors.
                workers = workers if engine.gpus else None
            loader = partial(load_station, encoder=encoder, device=device, options=load)
            ((_, setup),) = engine.run(_perform, [settle], setup=loader, final=out_of_memory)
            threads = engine.workers
            run = partial(
                encode_on, engine, images=images, loader=loader, threads=workers, strict=strict
            )
        store = stack.enter_context(
            StoreWriter(
                path,
                _settings(images, setup),
                _stored_table(images),
                dim=setup.record.dim,
                shard_rows=shard_rows,
                dtype=dtype,
                note=note,
            )
        )
        if not store.complete:
            name = engine if isinstance(engine, str) else type(engine).__name__
            store.log(f"engine: {name}, {setup.machine}, {threads} workers")
            _fill(store, setup, run, progress)
        manifest = store.finish()
    return ExtractionResult(manifest["n"], manifest["n_skipped"], path)


def _settings(images: ImageSet, setup: ExtractionSetup) -> dict[str, Any]:
    """Return everything that decides the bytes, for the manifest."""
    record, options = setup.record.as_dict(), setup.options
    preprocess = record.pop("preprocess")
    return {
        "encoder": record,
        "weight_hash": setup.weight_hash,
        "preprocessing": {**preprocess, "by": "pillow" if options.on_cpu else "torch"},
        "device": options.device.partition(":")[0],
        "precision": options.precision,
        "compile": options.compile,
        "batch_size": options.batch_size,
        "dataset": {
            "name": images.name,
            "hash": images.fingerprint(),
            "n_images": len(images),
            "classes": list(images.classes) or None,
        },
    }


def _stored_table(images: ImageSet) -> pd.DataFrame:
    """The table of the images; without the columns of labels and votes if they say nothing."""
    truth = ["label", "label_name", "votes", "n_raters"]
    if images.table[truth].isna().all(axis=None):
        return images.table.drop(columns=truth)
    return images.table


def _fill(
    store: StoreWriter,
    setup: ExtractionSetup,
    run: Callable[..., None],
    progress: bool,
) -> None:
    """Do the missing shards; after an out-of-memory error all of them, with half the batch."""
    left = sum(stop - start for _, start, stop in store.missing())
    options = setup.options
    with Progress(store.n_images, store.n_images - left, show=progress) as bar:
        while True:
            try:
                run(store=store, options=options, advance=bar.advance)
                break
            except KeyboardInterrupt:
                store.log("interrupted")
                raise
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
            # Outside the handler: the error's frames would hold the memory that ran out.
            smaller = halved(options.batch_size, setup.record.name)
            store.restart(batch_size=smaller)
            options = replace(options, batch_size=smaller)
            bar.restart()
        store.log(f"{left} images left at the start, {bar.speed:.1f} images/s")


def _run(
    *,
    store: StoreWriter,
    images: ImageSet,
    encoder: LoadedEncoder,
    options: EncodingOptions,
    workers: int | None,
    strict: bool,
    advance: Callable[[int], object],
) -> None:
    """Encode the missing shards in order and write each while the next is under way."""
    missing = store.missing()
    encoded = encode_shards(
        images,
        [(start, stop) for _, start, stop in missing],
        encoder,
        options,
        workers=workers,
        strict=strict,
        on_batch=advance,
    )
    writes: deque[Future[None]] = deque()
    # Leaving the executor waits for it, after an error too: a finished shard is worth keeping.
    with ThreadPoolExecutor(1) as disk, contextlib.closing(encoded):
        for (number, _, _), shard in zip(missing, encoded, strict=True):
            if len(writes) >= _WRITES_AHEAD:
                writes.popleft().result()
            writes.append(disk.submit(store.write_shard, number, shard.features, shard.skipped))
        for write in writes:
            write.result()
