"""Where the pixels of an image set lie: files in a folder, members of a zip, arrays in HDF5.

A source is a small picklable value. Handles are opened when first needed and once per process, so a
source may be sent to worker processes, forked or spawned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple
from unicodedata import normalize
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, MissingPackageError
from scalecal.datasets.decoding import ImageError, decode_image

__all__ = ["ArraySource", "Block", "FileSource", "Piece", "Source", "ZipSource", "safe_members"]

UInt8 = NDArray[np.uint8]
Rows = NDArray[np.int64]

# Above this many bytes a fingerprint reads the ends of each file instead of all of it.
FULL_HASH_LIMIT = 1 << 30
_END = 1 << 14
_CHUNK = 1 << 20
# No tile needs more; a member that claims more is an archive made to fill the memory.
_LARGEST_MEMBER = 1 << 28


class Piece(NamedTuple):
    """One file of a source, for hashing: a name free of the machine, its size, its content's hash."""

    name: str
    size: int
    digest: str


def _hash(handle: IO[bytes], size: int, *, full: bool) -> str:
    digest = sha256()
    if full or size <= 2 * _END:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)
    else:
        digest.update(handle.read(_END))
        handle.seek(size - _END)
        digest.update(handle.read(_END))
    return digest.hexdigest()


def _hash_file(path: Path, name: str, *, full: bool) -> Piece:
    try:
        size = path.stat().st_size
        with path.open("rb") as handle:
            return Piece(name, size, _hash(handle, size, full=full))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


@dataclass(frozen=True)
class FileSource:
    """One image file per row, `paths` relative to `root` with forward slashes.

    Examples
    --------
    >>> FileSource(Path("data"), ("a.png", "b.png")).take(np.array([1])).paths
    ('b.png',)
    """

    root: Path
    paths: tuple[str, ...]
    kind: Literal["files"] = "files"

    def __len__(self) -> int:
        return len(self.paths)

    def read_one(self, row: int) -> UInt8:
        """Decode the image of one row."""
        path = self.paths[row]
        try:
            return decode_image(self.root / path, name=path)
        except OSError as error:
            raise ImageError(path, error.strerror or str(error)) from None

    def take(self, rows: Rows) -> FileSource:
        """Return the source of these rows, in this order."""
        return replace(self, paths=tuple(self.paths[i] for i in rows))

    def size(self) -> int:
        """Bytes of all files."""
        return sum(os.path.getsize(self.root / path) for path in self.paths)

    def pieces(self, *, full: bool) -> Iterator[Piece]:
        """Yield name, size and hash of every file, in the order of the rows."""
        for path in self.paths:
            # macOS hands out decomposed names, Linux what was written: one spelling for both.
            yield _hash_file(self.root / path, normalize("NFC", path), full=full)


def safe_members(archive: ZipFile, where: Path) -> list[ZipInfo]:
    """Members of a zip that are files, refusing an archive that points outside of itself.

    Nothing is ever extracted here; but such an archive was not made by the publisher, and would
    overwrite files of whoever unpacks it by hand.
    """
    members = []
    for info in archive.infolist():
        parts = info.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or (parts[0].endswith(":") and len(parts[0]) == 2):
            raise InputError(
                f"{where} holds the member {info.filename!r}, which points outside the archive. "
                "Do not unpack it; download the archive again from its publisher."
            )
        if info.file_size > _LARGEST_MEMBER:
            raise InputError(
                f"{where} holds the member {info.filename!r} of {info.file_size:,} bytes, "
                f"more than the {_LARGEST_MEMBER:,} an image may have"
            )
        if not info.is_dir() and parts[0] != "__MACOSX" and not parts[-1].startswith("."):
            members.append(info)
    return members


@dataclass(frozen=True)
class ZipSource:
    """One zip member per row, read in place; `paths` are the names the unpacked files would have."""

    archive: Path
    members: tuple[str, ...]
    paths: tuple[str, ...]
    kind: Literal["files"] = "files"
    _handles: dict[int, ZipFile] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.members)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handles": {}}

    def _zip(self) -> ZipFile:
        process = os.getpid()
        if process not in self._handles:
            try:
                self._handles[process] = ZipFile(self.archive)
            except (OSError, BadZipFile) as error:
                raise InputError(f"cannot open {self.archive}: {error}") from None
        return self._handles[process]

    def read_bytes(self, row: int) -> bytes:
        """Return the bytes of one member, its checksum checked."""
        try:
            return self._zip().read(self.members[row])
        except Exception as error:  # zlib, zipfile and the codecs below have errors of their own
            raise ImageError(self.paths[row], f"in {self.archive.name}: {error}") from None

    def read_one(self, row: int) -> UInt8:
        """Decode the image of one row."""
        return decode_image(self.read_bytes(row), name=self.paths[row])

    def take(self, rows: Rows) -> ZipSource:
        """Return the source of these rows, in this order."""
        return ZipSource(
            self.archive,
            tuple(self.members[i] for i in rows),
            tuple(self.paths[i] for i in rows),
        )

    def size(self) -> int:
        """Bytes of all members once unpacked."""
        return sum(self._zip().getinfo(member).file_size for member in self.members)

    def pieces(self, *, full: bool) -> Iterator[Piece]:
        """Yield name, size and hash of every member, as if the archive were unpacked."""
        for member, path in zip(self.members, self.paths, strict=True):
            size = self._zip().getinfo(member).file_size
            with self._zip().open(member) as handle:
                yield Piece(normalize("NFC", path), size, _hash(handle, size, full=full))


@dataclass(frozen=True)
class Block:
    """One HDF5 array of images, (n, height, width, 3) uint8."""

    path: Path
    key: str
    n: int


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
        shape = self._array(self.blocks[0]).shape[1:]
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
            yield _hash_file(block.path, f"{block.path.name}/{block.key}", full=full)
        order = self.positions.astype("<i8").tobytes()
        yield Piece("positions", len(order), sha256(order).hexdigest())


Source = FileSource | ZipSource | ArraySource


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file for reading, with a chunk cache that holds a block's ragged ends."""
    try:
        import h5py
    except ImportError:
        raise MissingPackageError(
            "reading HDF5 files needs h5py. Run: pip install 'scalecal[encoders]'"
        ) from None
    try:
        return h5py.File(path, "r", rdcc_nbytes=64 * _CHUNK)
    except OSError as error:
        raise InputError(
            f"{path} is not a whole HDF5 file ({error}). Download or unpack it again."
        ) from None
