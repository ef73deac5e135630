"""How long a reproduction should take here, and whether several processes are worth their start."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cache

import numpy as np
from threadpoolctl import threadpool_limits

from scalecal.checks import InputError
from scalecal.engines.local import cores
from scalecal.features import load_features
from scalecal.paper.reproduction import SWEEP_SEEDS
from scalecal.paper.sources import Source
from scalecal.probes import Recipe

__all__ = ["estimate_seconds", "image_count", "worth_spreading"]

# Rows that one seed trains on per training case, and synthetic rows beside them: those of the methods,
# and in the first seeds those of the sweep over K, most of them in K = 100 and "all".
_METHODS_AND_SWEEP = 60
_SYNTHETIC, _SWEPT = 150_000, 420_000
_EPOCHS = 50
# What was measured: seconds = rows x epochs x (width + _FIXED) x _FACTOR / (multiply-adds a second);
# under the default preset probes stop after about this share of the further epochs they may take.
_FACTOR, _FIXED = 1.4, 850
_SHARE_TAKEN = 0.2

# Processes take some seconds to start, and each holds its embeddings in memory.
WORTH_SECONDS = 30.0
MEMORY_SHARE = 0.5


@cache
def _rate() -> float:
    """Multiply-adds per second and core of a product as the solver does it."""
    rng = np.random.default_rng(0)
    a, b = rng.random((256, 1024), dtype=np.float32), rng.random((1024, 32), dtype=np.float32)
    with threadpool_limits(1, user_api="blas"):
        a @ b
        start = time.perf_counter()
        for _ in range(20):
            a @ b
        return 20 * 256 * 1024 * 32 / (time.perf_counter() - start)


def _shape(source: Source) -> tuple[int, int] | None:
    """Rows and width of a source that needs no extraction; None where it does."""
    if source.where in ("embedded", "simulated"):
        X = source.open().X
    else:
        try:
            # Not `open`: that would begin, or go on with, the extraction.
            X = load_features(source.where).X
        except InputError:
            return None
    return int(X.shape[0]), int(X.shape[1])


def _matrix_shape(source: Source) -> tuple[int, int]:
    """Return rows and width of a source's embeddings, also of those still to be extracted."""
    shape = _shape(source)
    if shape is None:
        from scalecal.encoders import get_encoder

        shape = (source.n_images, get_encoder(source.encoder).dim)
    return shape


def estimate_seconds(source: Source, seeds: int, preset: str | None = None) -> float:
    """Return about how long training takes on one core; never opens images."""
    n, width = _matrix_shape(source)
    epochs = float(_EPOCHS)
    if preset == "default":
        default = Recipe()
        most = max(epochs, default.min_steps * default.batch_size / max(n, 1))
        epochs += _SHARE_TAKEN * (most - epochs)
    passes = seeds * (n * _METHODS_AND_SWEEP * epochs + _SYNTHETIC * _EPOCHS)
    passes += min(seeds, SWEEP_SEEDS) * _SWEPT * _EPOCHS
    return _FACTOR * passes * (width + _FIXED) / _rate()


def image_count(source: Source) -> int:
    """Return how many images must be embedded first; 0 where the features are there."""
    return 0 if _shape(source) is not None else source.n_images


def worth_spreading(left: Mapping[Source, int], preset: str | None = None) -> int:
    """Return how many processes should train the seeds `left` of each source; 1: it is over soon."""
    work = {source: seeds for source, seeds in left.items() if seeds}
    seconds = sum(estimate_seconds(source, seeds, preset) for source, seeds in work.items())
    if seconds < WORTH_SECONDS or cores() == 1:
        return 1
    largest = max(4 * rows * width for rows, width in map(_matrix_shape, work))
    return max(1, min(cores(), sum(work.values()), int(MEMORY_SHARE * _memory() / largest)))


def _memory() -> int:
    """Bytes of memory of this machine; where it does not tell, little."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError):
        return 4 << 30
