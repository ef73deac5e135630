"""How long a reproduction should take, from the size of the work and a short trial on this machine."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import numpy as np

from scalecal.checks import InputError
from scalecal.experiments.sources import Source

__all__ = ["estimate_seconds", "image_count"]

# Case-epochs x features of all methods and the sweep over K, per training case: an upper bound on what
# one seed costs, in units of the trial below.
_METHODS_AND_SWEEP = 60
_EPOCHS = 50


@cache
def _rate() -> float:
    """Multiply-adds per second of a product as the solver does it."""
    rng = np.random.default_rng(0)
    a, b = rng.random((256, 1024), dtype=np.float32), rng.random((1024, 32), dtype=np.float32)
    a @ b
    start = time.perf_counter()
    for _ in range(20):
        a @ b
    return 20 * 256 * 1024 * 32 / (time.perf_counter() - start)


def _shape(source: Source) -> tuple[int, int] | None:
    """Rows and width of a source that need no extraction; None where it does."""
    if source.where in ("embedded", "simulated") or Path(source.where).is_dir():
        try:
            X = source.open().X
        except InputError:
            return None
        return int(X.shape[0]), int(X.shape[1])
    return None


def estimate_seconds(source: Source, seeds: int) -> float:
    """Return about how long training takes; a rough upper bound that never opens images."""
    shape = _shape(source)
    if shape is None:
        from scalecal.encoders import get_encoder

        shape = (_IMAGES.get(source.dataset, 3000), get_encoder(source.encoder).dim)
    work = 2.0 * shape[0] * shape[1] * _METHODS_AND_SWEEP * _EPOCHS
    return seeds * work / _rate()


_IMAGES = {"mhist": 3152, "pcam": 294_912, "breakhis": 7909}


def image_count(source: Source) -> int:
    """Return how many images must be embedded first; 0 where the features are there."""
    return 0 if _shape(source) is not None else _IMAGES.get(source.dataset, 0)
