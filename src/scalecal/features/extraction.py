"""`extract`: an image set and an encoder in, a folder of features out; a killed run loses nothing."""

from __future__ import annotations

import contextlib
import os
import platform
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, check_choice, check_positive_int
from scalecal.engines import Engine, open_engine
from scalecal.engines.local import cores
from scalecal.features.distributed import Loader, ask_one, encode_on
from scalecal.features.encoding import (
    COMPILE,
    PRECISIONS,
    EncodingOptions,
    Network,
    encode_shards,
    load_anywhere,
    out_of_memory,
    pick_compile,
    pick_device,
    pick_precision,
)
from scalecal.features.image_rows import read_rows
from scalecal.features.transforms import short_products
from scalecal.io.feature_store import MANIFEST, StoreWriter, holds_shards, read_manifest
from scalecal.progress import Progress

if TYPE_CHECKING:
    import pandas as pd

    from scalecal.datasets.image_sets import ImageSet
    from scalecal.encoders import Encoder, LoadedEncoder

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


def make_setup(
    encoder: LoadedEncoder,
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
    chosen = pick_precision(precision, encoder.device)
    compiles = pick_compile(compile, encoder, n_images)
    options = EncodingOptions(encoder.device, chosen, 0, compiles)
    if batch_size is None:
        batch_size = CPU_BATCH if options.on_cpu else _fitting_batch(images, encoder, options)
    options = replace(options, batch_size=batch_size)
    machine = _describe_machine(options)
    return ExtractionSetup(encoder.record, encoder.weight_hash, options, machine)


def _fitting_batch(images: ImageSet, encoder: LoadedEncoder, options: EncodingOptions) -> int:
    """Return the largest power of two of images that passes through the encoder."""
    shape = _image_shape(images, encoder)
    size = LARGEST_BATCH
    while not _fits(size, shape, encoder, options):
        size = halved(size, encoder.record.name)
    return size


def _fits(
    size: int, shape: tuple[int, ...], encoder: LoadedEncoder, options: EncodingOptions
) -> bool:
    import torch

    network = Network(encoder, replace(options, batch_size=size, compile=False))
    try:
        with torch.inference_mode(), short_products(False):
            batch = torch.zeros((size, *shape), dtype=torch.uint8, device=options.device)
            network(network.transform(batch))
    except (RuntimeError, MemoryError) as error:
        if out_of_memory(error):
            return False
        raise
    return True


def _image_shape(images: ImageSet, encoder: LoadedEncoder) -> tuple[int, ...]:
    """Return the shape of the first image that can be read, as it reaches the device."""
    for row in range(len(images)):
        piece = read_rows(images, row, row + 1, encoder.preprocess, strict=False, resize=False)
        if len(piece.images):
            return tuple(piece.images[0].shape)
    return (encoder.preprocess.crop, encoder.preprocess.crop, 3)


def halved(size: int, name: str) -> int:
    """Return half a batch size that was too large, or say that not even one image fits."""
    import torch

    if size == 1:
        raise InputError(
            f"{name!r} does not fit into the memory with a single image. "
            "Use a smaller encoder, precision='bf16', or another device."
        )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return size // 2


def _describe_machine(options: EncodingOptions) -> str:
    import torch

    device = options.device
    if device.startswith("cuda"):
        device = f"{device} {torch.cuda.get_device_name(device)}"
    return (
        f"{device} torch {torch.__version__}, "
        f"batch {options.batch_size}, {options.precision}, {platform.platform()}"
    )


_TRUTH = ("label", "label_name", "votes", "n_raters")
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
    """Turn an image set into a folder of features, or go on with one that was begun.

    Killed at any moment and started again with the same arguments, it continues where it stopped
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
        CPU). Memory alone decides, never a stopwatch, so that a second run finds the same. Kept in
        the folder and used by every later run; halved, and the shards done again, if the memory
        runs out.
    workers : int, optional
        How many decode images at the same time for each GPU, in threads or processes of their own;
        without a GPU, how many embed: threads here, actors with Ray. By default one per core. Does
        not change the result.
    compile : {"auto", "on", "off"}
        Use `torch.compile`: slower to start, faster afterwards. ``"auto"``: on a CUDA card, where the
        operations of all images together pay for the start (`scalecal.features.encoding`). Kept in
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
        See `scalecal.features.distributed`.
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
    # A folder that was begun but holds nothing settles nothing.
    begun = (path / MANIFEST).exists() and holds_shards(path)
    stored: dict[str, Any] = {}
    if begun:
        stored = read_manifest(path)
    settle = partial(
        make_setup,
        images=images.take(_sample(len(images))),
        precision=precision,
        batch_size=_stored_batch(stored, batch_size),
        compile=_stored_compile(stored, compile),
        n_images=len(images),
    )
    load = {
        "weights": weights,
        "offline": offline,
        "allow_remote_code": allow_remote_code,
        "token": token,
    }
    with contextlib.ExitStack() as stack:
        run: Callable[[StoreWriter, EncodingOptions, Progress], None]
        if engine == "local" and not num_gpus:
            loaded = load_anywhere(encoder, device=pick_device(device), **load)
            setup = settle(loaded)
            threads = cores() if workers is None else workers

            def run(store: StoreWriter, options: EncodingOptions, bar: Progress) -> None:
                _run(store, images, loaded, options, workers, strict, bar)

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
            team = engine
            loader = Loader(encoder, device, load)
            setup = ask_one(team, settle, loader)
            threads = team.workers

            def run(store: StoreWriter, options: EncodingOptions, bar: Progress) -> None:
                encode_on(
                    team,
                    store,
                    images,
                    loader,
                    options,
                    threads=workers,
                    strict=strict,
                    advance=bar.advance,
                )

        store = stack.enter_context(
            StoreWriter(
                path,
                _settings(images, setup),
                _stored_table(images),
                dim=setup.record.dim,
                shard_rows=shard_rows,
                dtype=dtype,
                note={
                    "form": images.about.form,
                    **{k: stored[k] for k in ("requested_batch_size",) if k in stored},
                },
            )
        )
        if not store.complete:
            name = engine if isinstance(engine, str) else type(engine).__name__
            store.log(f"engine: {name}, {setup.machine}, {threads} workers")
            _fill(store, setup, images.about.form, batch_size, run, progress)
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
    """The table of the images; without the columns of labels and votes where they say nothing."""
    table = images.table
    empty = [c for c in _TRUTH if c in table and table[c].isna().all()]
    if len(empty) < len(_TRUTH):
        return table
    return table.drop(columns=empty)


def _stored_batch(stored: dict[str, Any], asked: int | None) -> int | None:
    """Return the batch size to use if it is settled: the folder's, or the one asked for."""
    kept: int | None = stored.get("batch_size")
    if kept is not None and asked in (None, stored.get("requested_batch_size")):
        return kept
    return asked


def _stored_compile(stored: dict[str, Any], asked: str) -> str:
    """Return whether to compile: as the folder was begun, unless that is asked for."""
    if asked == "auto" and stored.get("compile") is True:
        return "on"
    if asked == "auto" and stored.get("compile") is False:
        return "off"
    return asked


def _sample(n: int) -> NDArray[np.int64]:
    """At most 64 of `n` rows, evenly spread: enough to find one that can be read."""
    return np.unique(np.linspace(0, n - 1, min(n, 64)).round().astype(np.int64))


def _fill(
    store: StoreWriter,
    setup: ExtractionSetup,
    form: str,
    asked: int | None,
    run: Callable[[StoreWriter, EncodingOptions, Progress], None],
    progress: bool,
) -> None:
    """Do the missing shards; after an out-of-memory error all of them, with half the batch."""
    left = sum(stop - start for _, start, stop in store.missing())
    options = setup.options
    with Progress(store.n_images, store.n_images - left, show=progress) as bar:
        while True:
            try:
                run(store, options, bar)
                break
            except KeyboardInterrupt:
                store.log("interrupted")
                raise
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
            # Outside the handler: the error's frames would hold the memory that ran out.
            smaller = halved(options.batch_size, setup.record.name)
            note: dict[str, Any] = {"form": form}
            if asked is not None:
                note["requested_batch_size"] = asked
            store.restart(note, batch_size=smaller)
            options = replace(options, batch_size=smaller)
            bar.restart()
        store.log(f"{left} images left at the start, {bar.speed:.1f} images/s")


def _run(
    store: StoreWriter,
    images: ImageSet,
    encoder: LoadedEncoder,
    options: EncodingOptions,
    workers: int | None,
    strict: bool,
    bar: Progress,
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
        on_batch=bar.advance,
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
