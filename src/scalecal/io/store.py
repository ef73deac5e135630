"""Output that is either wholly there or not there at all."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.checks import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "file_hash",
    "output_folder",
    "plain",
    "write_bytes",
    "write_csv",
    "write_json",
    "write_text",
]

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def output_folder(path: str | Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Write a folder's files elsewhere and move them in place when all of them are done.

    Yields a temporary folder on the same disk. If the block ends well, its files are moved to `path`,
    each replacing a file of the same name in one step; other files in `path` stay. If the block
    fails or is interrupted, `path` is as it was before. With ``overwrite=False`` a `path` that
    already holds files is refused.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     with output_folder(Path(root, "run")) as folder:
    ...         write_json(folder / "a.json", {"x": 1})
    ...     sorted(p.name for p in Path(root, "run").iterdir())
    ['a.json']
    """
    target = Path(path)
    if target.exists() and not target.is_dir():
        raise InputError(f"cannot write to {target}: it is a file, expected a folder")
    try:
        if not overwrite and target.is_dir() and any(target.iterdir()):
            raise InputError(
                f"{target} already holds files. Choose another folder, or allow overwriting"
            )
        made = _make_parents(target)
        # Inside the folder where it exists, since its parent may be another disk or not ours.
        home = target if target.is_dir() else target.parent
        partial = home / f".{target.name}.{secrets.token_hex(4)}.partial"
        partial.mkdir()
    except OSError as error:
        raise InputError(f"cannot write to {target}: {error.strerror or error}") from None
    done = False
    try:
        yield partial
        _move_in_place(partial, target)
        done = True
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise InputError(f"cannot write to {target}: {error.strerror}") from None
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if not done:
            for parent in made:
                if parent.is_dir() and not any(parent.iterdir()):
                    parent.rmdir()


def _make_parents(target: Path) -> list[Path]:
    """Make the folders above `target`; return those that were made, innermost first."""
    made = []
    parent = target.parent
    while not parent.exists():
        made.append(parent)
        parent = parent.parent
    target.parent.mkdir(parents=True, exist_ok=True)
    return made


def _move_in_place(partial: Path, target: Path) -> None:
    if not target.exists():
        os.replace(partial, target)
        return
    files = sorted(p for p in partial.rglob("*") if not p.is_dir())
    for file in files:
        place = target / file.relative_to(partial)
        if place.is_dir():
            raise InputError(f"cannot write {place}: a folder of that name is in the way")
    for file in files:
        place = target / file.relative_to(partial)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, place)


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file in one step: a reader sees the old file or the new one, whole."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file in one step: a reader sees the old file or the new one, whole."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: str | Path, obj: Any) -> None:
    """Write JSON that every reader takes: NaN and infinity become null, numpy becomes plain.

    Keys keep the order they came in, so the same object gives the same bytes.
    """
    write_text(path, json.dumps(plain(obj), indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a frame as UTF-8 CSV with commas and without its index; undefined values are empty."""
    write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def plain(obj: Any) -> Any:
    """Turn numpy values, tuples, sets and paths into what JSON knows; undefined numbers into None.

    Examples
    --------
    >>> plain({"n": np.int64(3), "ece": float("nan"), "shape": (2, 1)})
    {'n': 3, 'ece': None, 'shape': [2, 1]}
    """
    if obj is None or (isinstance(obj, str | bool | int) and not isinstance(obj, np.generic)):
        return obj
    if isinstance(obj, np.generic | np.ndarray):
        return plain(obj.tolist())
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if isinstance(obj, Mapping):
        return {str(plain(key)): plain(value) for key, value in obj.items()}
    if isinstance(obj, set | frozenset):
        return [plain(value) for value in sorted(obj, key=str)]
    if isinstance(obj, list | tuple):
        return [plain(value) for value in obj]
    if isinstance(obj, os.PathLike):
        return os.fspath(obj)
    raise TypeError(f"cannot write a {type(obj).__name__} as JSON")


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
