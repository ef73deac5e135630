"""From rows of an image set to embeddings, shard by shard: the same bytes on every engine.

What `encode_shards` makes of a shard depends on the images, the encoder and the `EncodingOptions`,
not on the number of threads or on which other shards the process does, so that any engine may hand
out shards. Reading, transfer and computing overlap across the borders of shards.

On the CPU every thread reads, prepares and embeds whole batches by itself with one arithmetic
thread: whole batches side by side use the cores better than one batch with its layers split among
them, and nothing waits for anything.

On an accelerator threads read, with a decoding process each if there are many cores and files
(see `scalecal.features.image_rows`), one thread gathers batches in pinned memory, a side stream copies
them while the batch before is computed, and its embeddings come back while the next is computed.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, LazyModule, check_choice, library
from scalecal.encoders import Encoder, LoadedEncoder, get_encoder, load_encoder
from scalecal.engines.local import cores
from scalecal.features.image_rows import Piece, RowPool, read_rows
from scalecal.features.transforms import DeviceTransform, short_products
from scalecal.io.feature_store import Skipped

if TYPE_CHECKING:
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
    features: NDArray[np.float32]
    skipped: list[Skipped] = field(default_factory=list)


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
