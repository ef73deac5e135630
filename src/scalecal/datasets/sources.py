"""Where the pixels of an image set lie: files in a folder or members of a zip.

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

from scalecal.checks import InputError
from scalecal.datasets.decoding import ImageError, decode_image

__all__ = [
    "FULL_HASH_LIMIT",
    "FileSource",
    "Piece",
    "ZipSource",
    "hash_file",
    "hash_stream",
    "safe_members",
]

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


def hash_stream(handle: IO[bytes], size: int, *, full: bool) -> str:
    """Hash an open file, all of it or only its two ends."""
    digest = sha256()
    if full or size <= 2 * _END:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)
    else:
        digest.update(handle.read(_END))
        handle.seek(size - _END)
        digest.update(handle.read(_END))
    return digest.hexdigest()


def hash_file(path: Path, name: str, *, full: bool) -> Piece:
    """Hash a file, all of it or only its two ends."""
    try:
        size = path.stat().st_size
        with path.open("rb") as handle:
            return Piece(name, size, hash_stream(handle, size, full=full))
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
            yield hash_file(self.root / path, normalize("NFC", path), full=full)


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
                yield Piece(normalize("NFC", path), size, hash_stream(handle, size, full=full))
