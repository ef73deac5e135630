"""Rows of an image set: what the engine needs of a set, reading, batches, finished shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from scalecal.features.images import ImageError
from scalecal.features.transforms import pillow_pixels
from scalecal.io.feature_store import Skipped

if TYPE_CHECKING:
    import pandas as pd

    from scalecal.encoders.preprocessing import Preprocessing

__all__ = [
    "EncodedShard",
    "Images",
    "Piece",
    "Unread",
    "batches",
    "decode_rows",
    "named",
    "read_rows",
]

UInt8 = NDArray[np.uint8]
Unread = tuple[int, str]
"""A row that could not be read, and why."""


class Images(Protocol):
    """What the engine needs to know of an image set; `scalecal.datasets.images.ImageSet` is one."""

    @property
    def name(self) -> str:
        """Name of the data set."""

    @property
    def table(self) -> pd.DataFrame:
        """One row per image, with ``id``."""

    @property
    def classes(self) -> Sequence[str]:
        """Class names."""

    @property
    def kind(self) -> str:
        """``"files"`` (read one by one) or ``"array"`` (read in blocks)."""

    def read_one(self, row: int) -> UInt8:
        """Return one image, (height, width, 3)."""

    def read_block(self, start: int, stop: int) -> UInt8:
        """Return images as one array."""

    def fingerprint(self) -> str:
        """Hash of the images and their table."""


@dataclass
class EncodedShard:
    """The embeddings of the readable images of rows start .. stop - 1, in order."""

    start: int
    stop: int
    features: NDArray[np.float32]
    skipped: list[Skipped] = field(default_factory=list)


@dataclass
class Piece:
    """Images of a few neighbouring rows: those that could be read, and those that could not."""

    images: list[UInt8] | UInt8
    skipped: list[Skipped]


def read_rows(
    images: Images, start: int, stop: int, preprocess: Preprocessing | None, strict: bool
) -> Piece:
    """Read rows; with `preprocess`, resize and crop them by Pillow."""
    if images.kind == "array":
        try:
            block = images.read_block(start, stop)
        except ImageError:
            pass  # one by one below, to find out which
        else:
            return Piece(block if preprocess is None else _resized(block, preprocess), [])
    found, unread = decode_rows(images.read_one, range(start, stop), preprocess, strict)
    return Piece(found, named(images, unread))


def decode_rows(
    read_one: Callable[[int], UInt8],
    rows: Iterable[int],
    preprocess: Preprocessing | None,
    strict: bool,
) -> tuple[list[UInt8], list[Unread]]:
    """Read rows one by one; with `strict`, raise at the first that cannot be read."""
    found: list[UInt8] = []
    unread: list[Unread] = []
    for row in rows:
        try:
            image = read_one(row)
        except ImageError as error:
            if strict:
                raise
            unread.append((row, error.reason))
        else:
            found.append(image if preprocess is None else pillow_pixels(image, preprocess))
    return found, unread


def named(images: Images, unread: Iterable[Unread]) -> list[Skipped]:
    """Return the rows that could not be read with their ids."""
    return [Skipped(row, str(images.table["id"].iloc[row]), reason) for row, reason in unread]


def _resized(block: UInt8, preprocess: Preprocessing) -> list[UInt8]:
    return [pillow_pixels(image, preprocess) for image in block]


def batches(ranges: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (first row, one past the last, whether it ends its shard)."""
    for start, stop in ranges:
        for first in range(start, stop, size):
            last = min(first + size, stop)
            yield first, last, last == stop
