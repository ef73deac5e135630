"""Arrays in other people's files: npy, npz and HDF5, their declared size checked before memory is taken.

Nothing is unpickled, and no other file is read than the one that was named: links, external storage and
virtual arrays of HDF5 are refused.
"""

from __future__ import annotations

import math
import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from scalecal.checks import InputError, LazyModule, library
from scalecal.io.boundary import reading
from scalecal.limits import check_limit

h5py: Any = LazyModule("h5py")

MAPPED_BYTES = 1 << 28
"""Below this an array is simply read: a map of a file that is replaced later would crash."""

BYTES_PER_CASE = 256
"""What the id of a case takes in memory, with its places in tables, roughly."""

_HEAP = b"GCOL\x01\0\0\0"  # how a heap of text begins in HDF5
_SAVE_AGAIN = "Was it cut short? Save or download it again."


def check_dtype(dtype: np.dtype[Any], what: str, kinds: str = "biufSU") -> None:
    """Refuse an array of anything but plain numbers (and text, by `kinds`).

    Examples
    --------
    >>> check_dtype(np.dtype(complex), "X")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: X holds complex numbers, expected real ones. Save the part that is ...
    """
    if dtype.hasobject:
        raise InputError(
            f"{what} holds Python objects, which are never unpickled. Save numbers and text as plain "
            "arrays: np.array(values, dtype=str)"
        )
    if dtype.kind == "c":
        raise InputError(
            f"{what} holds complex numbers, expected real ones. Save the part that is meant: X.real"
        )
    if dtype.kind not in kinds or (dtype.kind == "f" and dtype.itemsize > 8):
        text = " or text" if "U" in kinds else ""
        raise InputError(f"{what} must hold plain numbers{text}, got {str(dtype)[:60]}")


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    bytes: int  # of the header itself

    def check(self, size: int, what: str) -> None:
        """Refuse an array whose declared size is not that of its file or member, in bytes."""
        check_dtype(self.dtype, what)
        declared = math.prod(self.shape) * self.dtype.itemsize
        if min(self.shape, default=0) < 0 or declared != size - self.bytes:
            raise InputError(
                f"{what} declares {self.dtype} of shape {self.shape}, {declared:,} bytes, but has "
                f"{size - self.bytes:,}: it was cut short or changed. Save it again"
            )


def _read_header(file: IO[bytes], what: str) -> _Header:
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise InputError(f"{what} must hold plain numbers or text, got .npy format {version}")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return _Header(*read(file), file.tell())


def map_npy(path: Path, shape: tuple[int, int], dtype: DTypeLike) -> NDArray[Any]:
    """Map an .npy file that must hold an array of one shape and number type."""
    with reading(path, "an .npy file", advice=_SAVE_AGAIN):
        with path.open("rb") as file:
            header = _read_header(file, str(path))
        header.check(path.stat().st_size, str(path))
        if header[:3] != (shape, False, np.dtype(dtype)):
            raise InputError(
                f"{path} holds {header.dtype} of shape {header.shape}, expected {np.dtype(dtype)} of "
                f"shape {shape}: it was changed"
            )
        return np.memmap(path, header.dtype, "r", header.bytes, shape)


class Npz:
    """An open .npz file, whose arrays are read one by one; see `open_npz`."""

    def __init__(self, path: Path, archive: ZipFile) -> None:
        self.path, self._archive = path, archive
        self._members: dict[str, ZipInfo] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in self._members:
                raise InputError(f"{path} holds two arrays called {name!r}: save it again")
            self._members[name] = info
        self.names = tuple(self._members)

    def read(self, name: str) -> NDArray[Any]:
        """Return an array in the machine's byte order; a large one that is stored plainly is mapped."""
        info, what = self._members[name], f"{self.path}: {name!r}"
        with reading(self.path, "an .npz file", advice=_SAVE_AGAIN, checked=True):
            with self._archive.open(info) as member:
                header = _read_header(member, what)
            size = self.path.stat().st_size
            if info.compress_type == ZIP_STORED and info.file_size > size:
                raise InputError(
                    f"{what} declares {info.file_size:,} bytes in a file of {size:,}: it was cut short "
                    "or changed. Save it again"
                )
            header.check(info.file_size, what)
            plain = info.compress_type == ZIP_STORED and header.dtype.isnative
            if plain and info.file_size >= MAPPED_BYTES:
                return self._mapped(info, header)
            check_limit(info.file_size, "memory", f"{what}: its size")
            with self._archive.open(info) as member:
                array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def _mapped(self, info: ZipInfo, header: _Header) -> NDArray[Any]:
        with self._archive.open(info) as member:
            while member.read(1 << 22):  # its end compares the checksum
                pass
        with self.path.open("rb") as file:
            # The local header's name and extra field may be longer than the directory's.
            file.seek(info.header_offset + 26)
            lengths = np.frombuffer(file.read(4), dtype="<u2").tolist()
        start = info.header_offset + 30 + sum(lengths) + header.bytes
        order: Literal["F", "C"] = "F" if header.fortran else "C"
        return np.memmap(self.path, header.dtype, "r", start, header.shape, order)


@contextmanager
def open_npz(path: str | Path) -> Iterator[Npz]:
    """Open an .npz file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "f.npz")
    >>> np.savez(path, X=np.eye(2, dtype=">f4"))
    >>> with open_npz(path) as arrays:
    ...     arrays.names, arrays.read("X").tolist()
    (('X',), [[1.0, 0.0], [0.0, 1.0]])
    """
    with reading(path, "an .npz file", advice=_SAVE_AGAIN) as path:
        with path.open("rb") as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise InputError(
                    f"{path} is one array (.npy), expected an .npz file of named arrays: "
                    "np.savez(path, X=X, id=ids, y=y)"
                )
        archive = ZipFile(path)
    with archive:
        yield Npz(path, archive)


def open_hdf5(path: str | Path) -> Any:
    """Open an HDF5 file for reading, with a chunk cache that holds a block's ragged ends."""
    h5py = library("h5py", "reading HDF5 files")
    with reading(path, "an HDF5 file", advice=_SAVE_AGAIN):
        # Some network file systems know no locks, and a file that is only read needs none.
        return h5py.File(path, "r", rdcc_nbytes=64 << 20, locking="best-effort")


def need_array(file: Any, key: str, path: Path) -> Any:
    """Return an array of numbers that lies whole in an open HDF5 file, or fail naming what there is."""
    what = f"{path}: {key!r}"
    with reading(path, "an HDF5 file", advice=_SAVE_AGAIN, checked=True):
        array = file
        for part in filter(None, key.split("/")):
            array = _open_own(array, part.encode(), path)
        if not isinstance(array, h5py.Dataset):
            there = ", ".join(map(str, list(file)[:20]))
            raise InputError(f"{path} has no array {key!r}. It has: {there or 'nothing'}")
        check_dtype(array.dtype, what, "biuf")
        _check_written(array, what)
    return array


def _open_own(group: Any, name: bytes, path: Path) -> Any:
    """Return what a group of an HDF5 file holds by a name; None where there is nothing.

    Refuses links, and arrays of which a part lies in other files.
    """
    # Asked of the link itself: `in` and `get` would follow it.
    if not isinstance(group, h5py.Group) or not group.id.links.exists(name):
        return None
    what = f"{path}: {(group.name or '').rstrip('/')}/{name.decode(errors='replace')}"
    link = group.id.links.get_info(name)
    if link.type != h5py.h5l.TYPE_HARD:
        raise InputError(
            f"{what} is a link, which is not followed: store the data itself in the file"
        )
    if _is_virtual(path, link.u, group.file.userblock_size):
        raise InputError(f"{what} {_ELSEWHERE}")
    found = group[name]
    # Before its shape is asked for, which may open the files of a virtual array.
    if isinstance(found, h5py.Dataset) and (found.is_virtual or found.external):
        raise InputError(f"{what} {_ELSEWHERE}")
    return found


_ELSEWHERE = "lies in other files, which are not opened: store the array itself in the file"


def _is_virtual(path: Path, place: int, base: int) -> bool:
    """Whether the object whose header is at a place of an HDF5 file is a virtual array.

    HDF5 2.0 ends the process on opening one whose list of other files is damaged. The layout message of
    a virtual array (version 4, class 3) holds the address of a global heap, where that list is ("IV.A.2.i
    Data Layout" in the HDF5 file format specification); one beyond the header's first kilobyte is missed.
    """
    with path.open("rb") as file:
        file.seek(base + place)
        header = file.read(1024)
        for found in re.finditer(rb"\x04\x03(?=(.{8}))", header, re.DOTALL):
            heap = int.from_bytes(found[1], "little")
            if heap < path.stat().st_size:
                file.seek(base + heap)
                if file.read(len(_HEAP)) == _HEAP:
                    return True
    return False


def _check_written(array: Any, what: str) -> None:
    """Refuse an HDF5 array of which a part was never written: it would read as zeros."""
    if array.shape is None:
        raise InputError(f"{what} is empty")
    shape = tuple(map(int, array.shape))
    if array.chunks:
        needed = math.prod(-(-n // c) for n, c in zip(shape, array.chunks, strict=True))
        written, unit = array.id.get_num_chunks(), "chunks"
    else:
        needed = math.prod(shape) * array.id.get_type().get_size()
        written, unit = array.id.get_storage_size(), "bytes"
    if written < needed:
        raise InputError(
            f"{what} declares shape {shape}, but only {written:,} of its {needed:,} {unit} were "
            "written: the file is not finished"
        )


def check_heaps(path: Path) -> None:
    """Refuse an HDF5 file with a damaged heap of text, in which HDF5 itself may search for ever.

    The layout is that of "Level 1E - Global Heap" in the HDF5 file format specification.
    """
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(_HEAP)
        while start >= 0:
            length = int.from_bytes(content[start + 8 : start + 16], "little")
            place, end = start + 16, start + length
            while place + 16 <= min(end, size):
                index = int.from_bytes(content[place : place + 2], "little")
                taken = int.from_bytes(content[place + 8 : place + 16], "little")
                # The size of the free space, number 0, counts its own header.
                taken = taken if index == 0 else 16 + -(-taken // 8) * 8
                if not 16 <= taken <= end - place:
                    raise InputError(
                        f"{path} cannot be read as an HDF5 file: a heap is damaged. {_SAVE_AGAIN}"
                    )
                place += taken
            start = content.find(_HEAP, start + 1)


def check_own(file: Any, keys: Sequence[str], path: Path) -> None:
    """Refuse an open HDF5 file of which anything below `keys` is a link or lies in another file."""
    seen: set[Any] = set()

    def walk(group: Any, names: Sequence[bytes]) -> None:
        for name in names:
            found = _open_own(group, name, path)
            if found is None or found.id in seen:
                continue
            seen.add(found.id)
            if isinstance(found, h5py.Group):
                below: list[bytes] = []
                found.id.links.iterate(below.append)
                walk(found, below)
            # Without a shape it is AnnData's None.
            elif isinstance(found, h5py.Dataset) and found.shape and found.dtype.kind in "biuf":
                _check_written(found, f"{path}: {found.name}")

    with reading(path, "an HDF5 file", advice=_SAVE_AGAIN, checked=True):
        check_heaps(path)
        walk(file, [key.encode() for key in keys])


def read_hdf5(array: Any, path: Path, rows: Any = ()) -> NDArray[Any]:
    """Return rows of an HDF5 array (by default all of it), if they fit into the memory."""
    with reading(path, "an HDF5 file", advice=_SAVE_AGAIN, checked=True):
        if rows == ():
            size = math.prod(map(int, array.shape)) * array.dtype.itemsize
            check_limit(size, "memory", f"{path}: the size of {array.name!r}")
        return np.asarray(array[rows])


def check_cases(n: int, path: str | Path) -> int:
    """Return a number of cases if their ids fit into the memory."""
    check_limit(n * BYTES_PER_CASE, "memory", f"{path}: the memory for {n:,} cases")
    return n
