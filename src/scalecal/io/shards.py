"""Writing files so that a kill at any moment leaves whole files only, and shards of rows that way."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError

__all__ = [
    "Skipped",
    "disk_errors",
    "json_bytes",
    "shard_done",
    "shard_files",
    "shard_ranges",
    "sync_folder",
    "write_shard",
    "write_whole",
]

SHARDS = "shards"


@dataclass(frozen=True)
class Skipped:
    """One image that could not be read: its row in the image set, its id and why."""

    row: int
    id: str
    reason: str


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full or read-only disk into one plain sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot write {path}: {reason}. What was finished before is kept; "
            "make room (or the folder writable) and run the same command again."
        ) from error


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that `path` never holds a part of it: other name, fsync, rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    with disk_errors(path):
        try:
            with open(temporary, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut, where the system can (not on Windows)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return JSON as bytes that depend on the content alone (keys stay in the given order)."""
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _npy_parts(array: NDArray[Any]) -> list[bytes | memoryview]:
    """Return an array as the header and the data of an npy file, without copying the data."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    return [header.getvalue(), array.reshape(-1).view(np.uint8).data if array.size else b""]


def shard_ranges(n_images: int, shard_rows: int) -> list[tuple[int, int, int]]:
    """Return (shard, first row, one past the last row) of every shard, by position alone.

    Examples
    --------
    >>> shard_ranges(5, 2)
    [(0, 0, 2), (1, 2, 4), (2, 4, 5)]
    """
    return [
        (k, start, min(start + shard_rows, n_images))
        for k, start in enumerate(range(0, n_images, shard_rows))
    ]


def shard_files(path: Path, shard: int) -> tuple[Path, Path]:
    """Return a shard's data file and the note kept beside it while the run goes on."""
    stem = path / SHARDS / f"{shard:05d}"
    return stem.with_suffix(".npy"), stem.with_suffix(".json")


def shard_done(path: Path, shard: int, n_images: int) -> bool:
    """Whether a shard of so many images is there, whole."""
    data, note = shard_files(path, shard)
    if not (data.exists() and note.exists()):
        return False
    done = json.loads(note.read_text(encoding="utf-8"))
    return bool(
        done["rows"] + len(done["skipped"]) == n_images and data.stat().st_size == done["bytes"]
    )


def write_shard(
    path: str | os.PathLike[str],
    shard: int,
    features: NDArray[Any],
    ids: Sequence[str],
    skipped: Sequence[Skipped] = (),
    *,
    dtype: str = "float16",
) -> None:
    """Write one shard of a folder begun with `open_store`; any process may do it.

    The bytes depend on nothing but the arguments, so two workers that were given the same shard
    write the same file, and the last rename wins.
    """
    array = _cast(features, dtype, ids)
    parts = _npy_parts(array)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    note = {
        "rows": len(array),
        "bytes": sum(len(part) for part in parts),
        "sha256": digest.hexdigest(),
        "skipped": [[s.row, s.id, s.reason] for s in skipped],
    }
    data_file, note_file = shard_files(Path(path), shard)
    # The note goes first: a shard without its data is not done, so a kill between the two
    # costs this shard and nothing else.
    write_whole(note_file, lambda file: file.write(json_bytes(note)))
    write_whole(data_file, lambda file: file.writelines(parts))


def _cast(features: NDArray[Any], dtype: str, ids: Sequence[str]) -> NDArray[Any]:
    """Return embeddings in the number type on disk, refusing those it cannot hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.ascontiguousarray(features, dtype=dtype)
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        what = (
            f"is too large for {dtype}: keep float32 (dtype='float32', --dtype float32)"
            if np.isfinite(features[first]).all()
            else "holds NaN or infinity: check the file or the weights it comes from "
            "(an extraction may need --precision fp32)"
        )
        raise InputError(f"the embedding of {ids[first]!r} {what}")
    return array
