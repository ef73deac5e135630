"""The way through a GPU: read ahead, copy beside the computing, bring shards back whole.

Threads read, with a decoding process each where there are many cores and files (see
`scalecal.features.readers`), one thread gathers batches in pinned memory, a side stream copies them
while the batch before is computed, and a shard's embeddings come back in one piece while the next
shard is under way.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.features.network import Network, Recipe
from scalecal.features.readers import Readers
from scalecal.features.rows import EncodedShard, Images, Piece, batches
from scalecal.io.feature_store import Skipped

if TYPE_CHECKING:
    import torch

    from scalecal.encoders import LoadedEncoder

__all__ = ["on_accelerator"]

UInt8 = NDArray[np.uint8]

# Images per decoding task: enough to make a task's overhead small, few enough that all threads
# work on the batch that is needed next.
_DECODE_TOGETHER = 8
# Batches being read while one is computed, and the bytes they may take, unless one takes more:
# together they bound the memory whatever the size of the set and of its images.
_BATCHES_AHEAD = 3
_BYTES_AHEAD = 1 << 31


@dataclass
class _HostBatch:
    """One batch in (pinned) memory, its images grouped by size; `places` are rows of the batch."""

    rows: int
    ends: bool
    groups: list[tuple[torch.Tensor, torch.Tensor | None]]
    n: int
    skipped: list[Skipped]

    @property
    def nbytes(self) -> int:
        return sum(host.nbytes for host, _ in self.groups)


def _one_shape(piece: Piece) -> tuple[int, ...] | None:
    """Return the shape of the images of a piece, None if there is more than one, or none."""
    if isinstance(piece.images, np.ndarray):
        return piece.images.shape[1:]
    shapes = {image.shape for image in piece.images}
    return shapes.pop() if len(shapes) == 1 else None


def _gather(pieces: Iterable[Piece], rows: int, ends: bool, pin: bool) -> _HostBatch:
    """Copy pieces into one tensor per image size; no copy order can change a result.

    Most sets have images of one size: those go to their place at once, and the pieces are free.
    """
    import torch

    skipped: list[Skipped] = []
    main: torch.Tensor | None = None
    main_places: list[int] = []
    others: dict[tuple[int, ...], list[tuple[int, UInt8]]] = {}
    n = 0
    for piece in pieces:
        skipped += piece.skipped
        shape = _one_shape(piece)
        if main is None and n == 0 and shape is not None:
            main = torch.empty((rows, *shape), dtype=torch.uint8, pin_memory=pin)
        if main is not None and shape == tuple(main.shape[1:]):
            done = len(main_places)
            here = main.numpy()[done : done + len(piece.images)]
            if isinstance(piece.images, np.ndarray):
                here[...] = piece.images
            else:
                np.stack(piece.images, out=here)
            main_places += range(n, n + len(piece.images))
        else:
            for place, image in enumerate(piece.images, n):
                others.setdefault(image.shape, []).append((place, image))
        n += len(piece.images)
    groups: list[tuple[torch.Tensor, torch.Tensor | None]] = []
    if main is not None:
        # Images of the first size that came among others belong to the same group.
        for place, image in others.pop(tuple(main.shape[1:]), []):
            main.numpy()[len(main_places)] = image
            main_places.append(place)
        whole = len(main_places) == n
        groups.append((main[: len(main_places)], None if whole else torch.tensor(main_places)))
    for shape, found in others.items():
        host = torch.empty((len(found), *shape), dtype=torch.uint8, pin_memory=pin)
        np.stack([image for _, image in found], out=host.numpy())
        groups.append((host, None if len(found) == n else torch.tensor([p for p, _ in found])))
    return _HostBatch(rows, ends, groups, n, skipped)


def _host_batches(
    images: Images,
    ranges: list[tuple[int, int]],
    encoder: LoadedEncoder,
    recipe: Recipe,
    workers: int,
    strict: bool,
    pin: bool,
) -> Generator[_HostBatch]:
    """Yield batches in order while later ones are being read; at most a few are in memory."""
    preprocess = encoder.preprocess if recipe.exact else None
    # An array is read in whole batches; anything that costs arithmetic is shared out.
    together = (
        recipe.batch_size if images.kind == "array" and not recipe.exact else _DECODE_TOGETHER
    )
    rows = sum(stop - start for start, stop in ranges)
    waiting: deque[Future[_HostBatch]] = deque()
    ahead = 1  # until the first batch has shown how large they are

    def gather(futures: deque[Future[Piece]], rows: int, ends: bool) -> _HostBatch:
        # Each piece is let go of as soon as it is copied.
        pieces = (futures.popleft().result() for _ in range(len(futures)))
        return _gather(pieces, rows, ends, pin)

    def next_batch() -> _HostBatch:
        nonlocal ahead
        batch = waiting.popleft().result()
        ahead = max(1, min(_BATCHES_AHEAD, _BYTES_AHEAD // max(batch.nbytes, 1)))
        return batch

    with (
        ThreadPoolExecutor(1, "gatherer") as gatherer,
        Readers(images, workers, rows=rows, preprocess=preprocess, strict=strict) as readers,
    ):
        try:
            for start, stop, ends in batches(ranges, recipe.batch_size):
                while len(waiting) >= ahead:
                    yield next_batch()
                pieces = deque(
                    readers.submit(a, min(a + together, stop)) for a in range(start, stop, together)
                )
                waiting.append(gatherer.submit(gather, pieces, stop - start, ends))
            while waiting:
                yield next_batch()
        finally:
            gatherer.shutdown(wait=False, cancel_futures=True)


def on_accelerator(
    images: Images,
    ranges: list[tuple[int, int]],
    encoder: LoadedEncoder,
    network: Network,
    workers: int,
    strict: bool,
    on_batch: Callable[[int], object] | None,
) -> Iterator[EncodedShard]:
    """Embed ranges of rows on an accelerator; see `scalecal.features.encoding.encode_shards`."""
    import torch

    device = network.device
    cuda = device.type == "cuda"
    copies: Any = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]
    crop = encoder.preprocess.crop
    incoming = _host_batches(images, ranges, encoder, network.recipe, workers, strict, cuda)
    begins = iter(ranges)
    parts: list[torch.Tensor] = []
    skipped: list[Skipped] = []
    launched: deque[Any] = deque()
    returning: deque[tuple[Any, tuple[int, int], torch.Tensor, list[Skipped]]] = deque()

    def embed(batch: _HostBatch) -> torch.Tensor:
        moved = []
        with torch.cuda.stream(copies) if copies is not None else contextlib.nullcontext():
            for host, places in batch.groups:
                moved.append((host.to(device, non_blocking=cuda), places))
        if copies is not None:
            torch.cuda.current_stream(device).wait_stream(copies)
            for there, _ in moved:
                there.record_stream(torch.cuda.current_stream(device))
        if len(moved) == 1:
            return network(network.transform(moved[0][0]))
        ready = torch.empty((batch.n, 3, crop, crop), device=device)
        for there, places in moved:
            assert places is not None
            ready[places.to(device)] = network.transform(there)
        return network(ready)

    def done(wait: bool) -> Iterator[EncodedShard]:
        """Yield the shards whose embeddings have arrived; with `wait`, all of them."""
        while returning and (wait or returning[0][0] is None or returning[0][0].query()):
            event, (first, last), host, left_out = returning.popleft()
            if event is not None:
                event.synchronize()
            yield EncodedShard(first, last, host.numpy(), left_out)

    try:
        for batch in incoming:
            with torch.inference_mode():
                if batch.n:
                    parts.append(embed(batch))
                skipped += batch.skipped
                if batch.ends:
                    whole = (
                        torch.cat(parts) if parts else torch.empty(0, network.dim, device=device)
                    )
                    host = torch.empty(whole.shape, pin_memory=cuda)
                    host.copy_(whole, non_blocking=cuda)
                    event = torch.cuda.current_stream(device).record_event() if cuda else None
                    returning.append((event, next(begins), host, skipped))
                    parts, skipped = [], []
            if cuda:
                # Two batches on the card at most: enough to keep it busy, little to hold.
                launched.append(torch.cuda.current_stream(device).record_event())
                if len(launched) > 2:
                    launched.popleft().synchronize()
            if on_batch is not None:
                on_batch(batch.rows)
            yield from done(wait=False)
        yield from done(wait=True)
    finally:
        incoming.close()
