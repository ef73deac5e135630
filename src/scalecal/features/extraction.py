"""`extract`: an image set and an encoder in, a folder of features out; a killed run loses nothing."""

from __future__ import annotations

import contextlib
import os
import platform
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalecal.checks import InputError, MissingPackageError, check_choice, check_positive_int
from scalecal.features.encoding import cores, encode_shards
from scalecal.features.network import Network, Recipe, full_float32, out_of_memory
from scalecal.features.progress import Progress
from scalecal.features.rows import EncodedShard, Images, read_rows
from scalecal.features.store import MANIFEST, StoreWriter, open_store, read_manifest

if TYPE_CHECKING:
    from scalecal.encoders import Encoder, LoadedEncoder

__all__ = ["ExtractionResult", "extract", "pick_device", "pick_precision"]

PRECISIONS = ("auto", "fp32", "bf16", "fp16")
# The largest batch tried on an accelerator: past it no encoder of the paper gains speed.
LARGEST_BATCH = 512
# On a CPU small batches stay in the cache: EfficientNet-Lite0 takes 17 ms an image in fours, 30 in
# sixteens and 52 in sixty-fours (one core, channels last); no encoder gains above four.
CPU_BATCH = 4
# Shards that may wait for the disk before the encoder does.
_WRITES_AHEAD = 2


@dataclass(frozen=True)
class ExtractionResult:
    """What an extraction gave: embeddings written, images that could not be read, and where."""

    n: int
    n_skipped: int
    path: Path


def extract(
    images: Images,
    encoder: str | Encoder | LoadedEncoder,
    out: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    device: str | None = None,
    precision: str = "auto",
    batch_size: int | None = None,
    workers: int | None = None,
    compile: bool = False,
    exact: bool = False,
    strict: bool = False,
    shard_rows: int = 16384,
    dtype: str = "float16",
    progress: bool = True,
    offline: bool = False,
    allow_remote_code: bool = False,
    token: str | None = None,
) -> ExtractionResult:
    """Turn an image set into a folder of features, or go on with one that was begun.

    Killed at any moment and started again with the same arguments, it goes on where it stopped,
    and ends with the same bytes as a run that was never stopped (``run.log`` aside).

    Parameters
    ----------
    images : ImageSet
        From `scalecal.datasets.registry.open_dataset`.
    encoder : str, Encoder or LoadedEncoder
        A name or spec (see ``scalecal encoders``), a record, or an encoder already loaded.
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
        Images per pass. By default the largest power of two up to 512 that fits the card (4 on a
        CPU). Memory alone decides, never a stopwatch, so that a second run finds the same. Kept in
        the folder and used by every later run; halved, and the shards done again, if the memory
        runs out.
    workers : int, optional
        Threads that decode (on a CPU also embed); by default one per core. Does not change the
        result.
    compile : bool, default=False
        Use `torch.compile`: slower to start, faster afterwards.
    exact : bool, default=False
        Resize on the CPU by Pillow rather than on the card; see `scalecal.features.transforms`
        for how close the card comes.
    strict : bool, default=False
        Stop at the first image that cannot be read. By default it is left out and listed in
        ``skipped.csv``.
    shard_rows : int, default=16384
        Images per shard: what a kill can cost at most.
    dtype : {"float16", "float32"}
        Number type on disk.
    progress : bool, default=True
        Show progress on standard error.
    offline, allow_remote_code, token
        Passed to `scalecal.encoders.load_encoder`.

    Returns
    -------
    ExtractionResult

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from scalecal.datasets.registry import open_dataset
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
    if batch_size is not None:
        check_positive_int(batch_size, "batch_size")
    if len(images.table) == 0:
        raise InputError(f"{images.name} holds no images: nothing to extract")
    where = pick_device(device)
    loaded = _load(
        encoder,
        weights=weights,
        device=where,
        offline=offline,
        allow_remote_code=allow_remote_code,
        token=token,
    )
    path = Path(out)
    stored = read_manifest(path) if (path / MANIFEST).exists() else {}
    recipe = Recipe(where, pick_precision(precision, where), 0, exact, compile)
    size = _stored_batch(stored, batch_size)
    if size is None:
        size = CPU_BATCH if recipe.on_cpu else _fitting_batch(images, loaded, recipe)
    recipe = replace(recipe, batch_size=size)
    with open_store(
        path,
        _settings(images, loaded, recipe),
        images.table,
        dim=loaded.record.dim,
        shard_rows=shard_rows,
        dtype=dtype,
        note={k: stored[k] for k in ("requested_batch_size",) if k in stored},
    ) as store:
        if not store.complete:
            _fill(store, images, loaded, recipe, batch_size, workers, strict, progress)
        manifest = store.finish()
    return ExtractionResult(manifest["n"], manifest["n_skipped"], path)


# --------------------------------------------------------------------------- what to run


def pick_device(device: str | None = None) -> str:
    """Return the device to use: the one named, else CUDA, else MPS, else the CPU."""
    try:
        import torch
    except ImportError:
        raise MissingPackageError(
            "extraction needs torch. Run: pip install 'scalecal[encoders]'"
        ) from None
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
    import torch

    major, _ = torch.cuda.get_device_capability(device)
    return "bf16" if major >= 8 else "fp16"


def _load(encoder: str | Encoder | LoadedEncoder, *, device: str, **options: Any) -> LoadedEncoder:
    from scalecal.encoders import LoadedEncoder, get_encoder, load_encoder

    if isinstance(encoder, LoadedEncoder):
        if options["weights"] is not None:
            raise InputError("weights are given, but the encoder is loaded already")
        return replace(encoder, module=encoder.module.to(device), device=device)
    if isinstance(encoder, str):
        encoder = get_encoder(encoder, offline=options["offline"], token=options["token"])
    return load_encoder(encoder, device=device, **options)


def _settings(images: Images, encoder: LoadedEncoder, recipe: Recipe) -> dict[str, Any]:
    """Return everything that decides the bytes, for the manifest."""
    record = encoder.record.as_dict()
    preprocess = record.pop("preprocess")
    return {
        "encoder": record,
        "weight_hash": encoder.weight_hash,
        "preprocessing": {**preprocess, "by": "pillow" if recipe.by_pillow else "torch"},
        "device": recipe.device.partition(":")[0],
        "precision": recipe.precision,
        "compile": recipe.compile,
        "batch_size": recipe.batch_size,
        "dataset": {
            "name": images.name,
            "hash": images.fingerprint(),
            "n_images": len(images.table),
            "classes": list(images.classes),
        },
    }


# --------------------------------------------------------------------------- the batch size


def _stored_batch(stored: dict[str, Any], asked: int | None) -> int | None:
    """Return the batch size to use if it is settled: the folder's, or the one asked for."""
    kept: int | None = stored.get("batch_size")
    if kept is not None and asked in (None, stored.get("requested_batch_size")):
        return kept
    return asked


def _fitting_batch(images: Images, encoder: LoadedEncoder, recipe: Recipe) -> int:
    """Return the largest power of two of images that passes through the encoder."""
    shape = _image_shape(images, encoder, recipe)
    size = LARGEST_BATCH
    while not _fits(size, shape, encoder, recipe):
        size = _halved(size, encoder)
    return size


def _fits(size: int, shape: tuple[int, ...], encoder: LoadedEncoder, recipe: Recipe) -> bool:
    import torch

    network = Network(encoder, replace(recipe, batch_size=size, compile=False))
    try:
        with torch.inference_mode(), full_float32():
            batch = torch.zeros((size, *shape), dtype=torch.uint8, device=recipe.device)
            network(network.transform(batch))
    except (RuntimeError, MemoryError) as error:
        if out_of_memory(error):
            return False
        raise
    return True


def _image_shape(images: Images, encoder: LoadedEncoder, recipe: Recipe) -> tuple[int, ...]:
    """Return the shape of the first image that can be read, as it reaches the device."""
    preprocess = encoder.preprocess if recipe.exact else None
    for row in range(len(images.table)):
        found = read_rows(images, row, row + 1, preprocess, strict=False).images
        if len(found):
            return tuple(found[0].shape)
    return (encoder.preprocess.crop, encoder.preprocess.crop, 3)


def _halved(size: int, encoder: LoadedEncoder) -> int:
    import torch

    if size == 1:
        raise InputError(
            f"{encoder.record.name!r} does not fit into the memory with a single image. "
            "Use a smaller encoder, precision='bf16', or another device."
        )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return size // 2


# --------------------------------------------------------------------------- the run


def _fill(
    store: StoreWriter,
    images: Images,
    encoder: LoadedEncoder,
    recipe: Recipe,
    asked: int | None,
    workers: int | None,
    strict: bool,
    progress: bool,
) -> None:
    """Do the missing shards; after an out-of-memory error all of them, with half the batch."""
    left = sum(stop - start for _, start, stop in store.missing())
    store.log(_describe_engine(recipe, cores() if workers is None else workers))
    with Progress(store.n_images, store.n_images - left, show=progress) as bar:
        while True:
            try:
                _run(store, images, encoder, recipe, workers, strict, bar)
                break
            except KeyboardInterrupt:
                store.log("interrupted")
                raise
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
            # Outside the handler: the error's frames would hold the memory that ran out.
            smaller = _halved(recipe.batch_size, encoder)
            note = {} if asked is None else {"requested_batch_size": asked}
            store.restart(note, batch_size=smaller)
            recipe = replace(recipe, batch_size=smaller)
            bar.restart()
        store.log(f"{left} images left at the start, {bar.speed:.1f} images/s")


def _run(
    store: StoreWriter,
    images: Images,
    encoder: LoadedEncoder,
    recipe: Recipe,
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
        recipe,
        workers=workers,
        strict=strict,
        on_batch=bar.advance,
    )
    numbers = iter(shard for shard, _, _ in missing)
    with _writer(store) as write, contextlib.closing(encoded):
        for shard in encoded:
            write(next(numbers), shard)


@contextlib.contextmanager
def _writer(store: StoreWriter) -> Iterator[Any]:
    """Give a function that writes shards behind the scenes; its errors surface at the next call."""
    pool = ThreadPoolExecutor(1)
    waiting: deque[Future[None]] = deque()

    def write(number: int, shard: EncodedShard) -> None:
        while waiting and (waiting[0].done() or len(waiting) >= _WRITES_AHEAD):
            waiting.popleft().result()
        waiting.append(pool.submit(store.write_shard, number, shard.features, shard.skipped))

    try:
        yield write
        while waiting:
            waiting.popleft().result()
    finally:
        # On the way out of an error too: a finished shard is worth keeping.
        pool.shutdown()


def _describe_engine(recipe: Recipe, workers: int) -> str:
    import torch

    name = torch.cuda.get_device_name(recipe.device) if recipe.device.startswith("cuda") else ""
    return (
        f"engine: {recipe.device} {name} torch {torch.__version__}, {workers} workers, "
        f"batch {recipe.batch_size}, {recipe.precision}, {platform.platform()}"
    )
