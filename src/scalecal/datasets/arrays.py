"""Images kept as arrays in HDF5 files, read in blocks.

A source is a small picklable value. Files are opened when first needed and once per process, so it may
be sent to worker processes, forked or spawned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, MissingPackageError, rows
from scalecal.datasets.decoding import ImageError
from scalecal.datasets.sources import Piece, hash_file

__all__ = [
    "HDF5_SUFFIXES",
    "ArraySource",
    "Block",
    "image_block",
    "need_array",
    "open_hdf5",
    "rows_of_files",
]

HDF5_SUFFIXES = frozenset({".h5", ".hdf5", ".hdf"})

UInt8 = NDArray[np.uint8]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """One HDF5 array of `n` images, each (height, width, 3) uint8."""

    path: Path
    key: str
    n: int
    shape: tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Rows of HDF5 arrays laid end to end; `positions` says which ones, in order.

    Read blocks, not rows: opening a file per image, or decompressing a chunk per image, is what makes
    common readers slow.
    """

    blocks: tuple[Block, ...]
    positions: Rows
    kind: Literal["array"] = "array"
    _handles: dict[tuple[int, Path], Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.positions)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handles": {}}

    def _array(self, block: Block) -> Any:
        # Keyed by process: a handle that lives through a fork shares its file offset with the parent.
        at = (os.getpid(), block.path)
        if at not in self._handles:
            self._handles[at] = open_hdf5(block.path)
        return self._handles[at][block.key]

    def read_block(self, start: int, stop: int) -> UInt8:
        """Images of the rows start .. stop - 1, as one (n, height, width, 3) array."""
        return self.read(np.arange(start, min(stop, len(self)), dtype=np.int64))

    def read(self, rows: Rows) -> UInt8:
        """Images of these rows, as one (n, height, width, 3) array."""
        wanted = self.positions[rows]
        shape = self.blocks[0].shape
        out: UInt8 | None = None
        first = 0
        for block in self.blocks:
            here = np.flatnonzero((wanted >= first) & (wanted < first + block.n))
            if len(here):
                images = self._read_within(block, wanted[here] - first)
                if len(here) == len(wanted):
                    return images  # nearly every block lies in one file: no second copy
                if out is None:
                    out = np.empty((len(wanted), *shape), dtype=np.uint8)
                out[here] = images
            first += block.n
        return np.empty((0, *shape), dtype=np.uint8) if out is None else out

    def _read_within(self, block: Block, inside: Rows) -> UInt8:
        array = self._array(block)
        low, high = int(inside.min()), int(inside.max()) + 1
        try:
            if high - low == len(inside) and (np.diff(inside) == 1).all():
                return np.asarray(array[low:high])
            # HDF5 takes increasing rows without repeats only.
            unique, back = np.unique(inside, return_inverse=True)
            return np.asarray(array[unique])[back]
        except (OSError, RuntimeError) as error:
            raise ImageError(f"{block.path.name} rows {low} to {high - 1}", str(error)) from None

    def read_one(self, row: int) -> UInt8:
        """Return the image of one row."""
        return np.asarray(self.read(np.array([row], dtype=np.int64))[0])

    def take(self, rows: Rows) -> ArraySource:
        """Return the source of these rows, in this order."""
        return ArraySource(self.blocks, self.positions[rows])

    def size(self) -> int:
        """Bytes of all HDF5 files."""
        return sum(block.path.stat().st_size for block in self.blocks)

    def pieces(self, *, full: bool) -> Iterator[Piece]:
        """Yield name, size and hash of every HDF5 file, and of the positions taken from them."""
        for block in self.blocks:
            yield hash_file(block.path, f"{block.path.name}/{block.key}", full=full)
        order = self.positions.astype("<i8").tobytes()
        yield Piece("positions", len(order), sha256(order).hexdigest())


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file for reading, with a chunk cache that holds a block's ragged ends."""
    try:
        import h5py
    except ImportError:
        raise MissingPackageError(
            "reading HDF5 files needs h5py. Run: pip install 'scalecal[encoders]'"
        ) from None
    try:
        # Some network file systems know no locks, and a file that is only read needs none.
        return h5py.File(path, "r", rdcc_nbytes=64 << 20, locking="best-effort")
    except OSError as error:
        raise InputError(
            f"{path} is not a whole HDF5 file ({error}). Download or unpack it again."
        ) from None


def need_array(file: Any, key: str, path: Path) -> Any:
    """Return an array of an open HDF5 file, or fail naming what there is."""
    if key not in file or not hasattr(file[key], "shape"):
        raise InputError(f"{path} has no array {key!r}. It has: {', '.join(file) or 'nothing'}")
    return file[key]


def image_block(path: Path, key: str) -> Block:
    """Check that an HDF5 file holds images under a key, and say how many and how large."""
    with open_hdf5(path) as file:
        array = need_array(file, key, path)
        shape, kind = tuple(map(int, array.shape)), array.dtype
    if len(shape) != 4 or shape[3] != 3 or kind != np.uint8:
        raise InputError(
            f"{path}: array {key!r} must be (n, height, width, 3) uint8, got {shape} {kind}"
        )
    if shape[0] == 0:
        raise InputError(f"{path}: array {key!r} holds no images")
    return Block(path, key, shape[0], (shape[1], shape[2], shape[3]))


def rows_of_files(root: Path, paths: Sequence[str], inside: Rows, key: str) -> ArraySource:
    """Source of images that lie at row `inside[i]` of the array `key` of the file `paths[i]`."""
    names, of = np.unique(np.asarray(paths, dtype=object), return_inverse=True)
    blocks = tuple(image_block(root / str(name), key) for name in names)
    odd = [block for block in blocks if block.shape != blocks[0].shape]
    if odd:
        raise InputError(
            f"images of one data set must have one size, got {blocks[0].shape} in "
            f"{blocks[0].path.name} and {odd[0].shape} in {odd[0].path.name}"
        )
    length = np.array([block.n for block in blocks], dtype=np.int64)
    beyond = inside >= length[of]
    if beyond.any():
        first = int(np.flatnonzero(beyond)[0])
        raise InputError(
            f"row {inside[first]} of {paths[first]} does not exist: it holds "
            f"{length[of][first]} images ({rows(beyond)} of the table)"
        )
    start = np.concatenate([[0], np.cumsum(length)[:-1]])
    return ArraySource(blocks, start[of] + inside)
