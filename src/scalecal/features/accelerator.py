"""The way through a GPU: read ahead, copy beside the computing, bring shards back whole.

Threads read and decode (Pillow and h5py let go of Python's lock while they work, so threads scale:
1.9 times on two cores), one thread gathers batches in pinned memory, a side stream copies them
while the batch before is computed, and a shard's embeddings come back in one piece while the next
shard is under way.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.features.network import Network, Recipe
from scalecal.features.rows import EncodedShard, Images, Piece, batches, read_rows
from scalecal.features.shards import Skipped

if TYPE_CHECKING:
    import torch

    from scalecal.encoders import LoadedEncoder

__all__ = ["on_accelerator"]

# Images per decoding task: enough to make a task's overhead small, few enough that all threads
# work on the batch that is needed next.
_DECODE_TOGETHER = 16
# Batches being read while one is computed; bounds the memory whatever the size of the set.
_BATCHES_AHEAD = 3


@dataclass
class _HostBatch:
    """One batch in (pinned) memory, its images grouped by size; `places` are rows of the batch."""

    rows: int
    ends: bool
    groups: list[tuple[torch.Tensor, torch.Tensor | None]]
    n: int
    skipped: list[Skipped]


def _gather(pieces: list[Piece], rows: int, ends: bool, pin: bool) -> _HostBatch:
    """Copy pieces into one tensor per image size; no copy order can change a result."""
    import torch

    found = [image for piece in pieces for image in piece.images]
    skipped = [s for piece in pieces for s in piece.skipped]
    by_size: dict[tuple[int, ...], list[int]] = {}
    for place, image in enumerate(found):
        by_size.setdefault(image.shape, []).append(place)
    groups: list[tuple[torch.Tensor, torch.Tensor | None]] = []
    for shape, places in by_size.items():
        host = torch.empty((len(places), *shape), dtype=torch.uint8, pin_memory=pin)
        if len(pieces) == 1 and isinstance(pieces[0].images, np.ndarray):
            host.copy_(torch.from_numpy(pieces[0].images))
        else:
            np.stack([found[place] for place in places], out=host.numpy())
        whole = len(places) == len(found)
        groups.append((host, None if whole else torch.tensor(places)))
    return _HostBatch(rows, ends, groups, len(found), skipped)


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
    readers = ThreadPoolExecutor(workers)
    gatherer = ThreadPoolExecutor(1)
    waiting: deque[Future[_HostBatch]] = deque()

    def gather(futures: list[Future[Piece]], rows: int, ends: bool) -> _HostBatch:
        return _gather([future.result() for future in futures], rows, ends, pin)

    try:
        for start, stop, ends in batches(ranges, recipe.batch_size):
            if len(waiting) >= _BATCHES_AHEAD:
                yield waiting.popleft().result()
            pieces = [
                readers.submit(read_rows, images, a, min(a + together, stop), preprocess, strict)
                for a in range(start, stop, together)
            ]
            waiting.append(gatherer.submit(gather, pieces, stop - start, ends))
        while waiting:
            yield waiting.popleft().result()
    finally:
        readers.shutdown(cancel_futures=True)
        gatherer.shutdown(cancel_futures=True)


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
