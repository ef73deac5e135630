"""From rows of an image set to embeddings, shard by shard: the same bytes whoever does it.

`encode_shard` is the unit of work: what it returns depends on the images, the encoder and the
`Recipe`, not on the number of threads or on which other shards the process has done, so that any
engine may hand out shards. `encode_shards` does many with reading, transfer and computing
overlapped across their borders.

On an accelerator see `scalecal.features.accelerator`. On the CPU every thread reads, prepares and
embeds whole batches by itself with one arithmetic thread: whole batches side by side use the cores
better than one batch with its layers split among them, and nothing waits for anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import check_positive_int
from scalecal.engines.local import cores
from scalecal.features.accelerator import on_accelerator
from scalecal.features.network import Network, Recipe, full_float32
from scalecal.features.rows import EncodedShard, Images, batches, read_rows
from scalecal.io.feature_store import Skipped

if TYPE_CHECKING:
    from scalecal.encoders import LoadedEncoder

__all__ = ["cores", "encode_shard", "encode_shards"]


def encode_shard(
    images: Images,
    start: int,
    stop: int,
    encoder: LoadedEncoder,
    recipe: Recipe,
    *,
    workers: int | None = None,
    strict: bool = False,
) -> EncodedShard:
    """Embed the rows start .. stop - 1 of an image set.

    Parameters
    ----------
    images : ImageSet
        Where the images come from.
    start, stop : int
        The rows, by position in the set.
    encoder : LoadedEncoder
        On the recipe's device.
    recipe : Recipe
        What decides the numbers.
    workers : int, optional
        Threads; by default one per core. Does not change the result.
    strict : bool, default=False
        Raise on the first image that cannot be read instead of leaving it out.
    """
    (shard,) = encode_shards(
        images, [(start, stop)], encoder, recipe, workers=workers, strict=strict
    )
    return shard


def encode_shards(
    images: Images,
    ranges: Iterable[tuple[int, int]],
    encoder: LoadedEncoder,
    recipe: Recipe,
    *,
    workers: int | None = None,
    strict: bool = False,
    on_batch: Callable[[int], object] | None = None,
) -> Generator[EncodedShard]:
    """Embed several ranges of rows, one shard each, in order; see `encode_shard`.

    `on_batch` is called with the number of rows dealt with, after each batch.
    """
    count = cores() if workers is None else check_positive_int(workers, "workers")
    network = Network(encoder, recipe)
    run = _on_cpu if recipe.on_cpu else on_accelerator
    with full_float32():
        yield from run(images, list(ranges), encoder, network, count, strict, on_batch)


def _on_cpu(
    images: Images,
    ranges: list[tuple[int, int]],
    encoder: LoadedEncoder,
    network: Network,
    workers: int,
    strict: bool,
    on_batch: Callable[[int], object] | None,
) -> Iterator[EncodedShard]:
    import torch

    def embed(start: int, stop: int) -> tuple[NDArray[np.float32], list[Skipped]]:
        piece = read_rows(images, start, stop, encoder.preprocess, strict)
        if not len(piece.images):
            return np.empty((0, network.dim), np.float32), piece.skipped
        with torch.inference_mode():
            batch = network.transform(torch.from_numpy(np.stack(list(piece.images))))
            return network(batch).numpy(), piece.skipped

    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    waiting: deque[tuple[int, int, bool, Future[Any]]] = deque()
    parts: list[NDArray[np.float32]] = []
    skipped: list[Skipped] = []
    begins = iter(ranges)

    def collect() -> Iterator[EncodedShard]:
        nonlocal parts, skipped
        start, stop, ends, future = waiting.popleft()
        found, left_out = future.result()
        parts.append(found)
        skipped += left_out
        if on_batch is not None:
            on_batch(stop - start)
        if ends:
            first, last = next(begins)
            yield EncodedShard(first, last, np.concatenate(parts), skipped)
            parts, skipped = [], []

    try:
        for start, stop, ends in batches(ranges, network.recipe.batch_size):
            if len(waiting) >= 2 * workers:
                yield from collect()
            waiting.append((start, stop, ends, pool.submit(embed, start, stop)))
        while waiting:
            yield from collect()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
