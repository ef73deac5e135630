"""Find folders and image files the same way for every data set, in one order everywhere."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from unicodedata import normalize

from scalecal.checks import InputError
from scalecal.datasets.decoding import IMAGE_SUFFIXES

__all__ = ["data_folder", "image_files", "md5_of"]


def data_folder(data: str | Path | None, name: str, holds: str) -> Path:
    """Return the data folder a user gave, or say which one is needed and what must lie in it."""
    if data is None:
        raise InputError(f"{name} needs a data folder (--data DIR): {holds}")
    folder = Path(data).expanduser()
    if not folder.exists():
        raise InputError(f"no such folder: {folder}. {name} needs {holds}")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, not a folder. {name} needs {holds}")
    return folder


def image_files(root: Path, under: Path | None = None) -> tuple[list[str], int]:
    """Relative POSIX paths of the image files below a folder, sorted, and how many other files lie there.

    Sorted by name alone (composed Unicode, by code point), so that the order is the same on every
    file system. Hidden files and folders, among them what macOS leaves behind, are passed over.

    Examples
    --------
    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("b.png", "a.JPG", "notes.txt", ".hidden.png"):
    ...     (root / name).touch()
    >>> image_files(root)
    (['a.JPG', 'b.png'], 1)
    """
    found: list[str] = []
    others = 0

    def stop(error: OSError) -> None:
        raise InputError(f"cannot read the folder {error.filename}: {error.strerror}")

    for folder, inside, names in os.walk(under or root, onerror=stop):
        inside[:] = [name for name in inside if not name.startswith((".", "__MACOSX"))]
        for name in names:
            if name.startswith(".") or name == "Thumbs.db":
                continue
            if os.path.splitext(name)[1].lower() not in IMAGE_SUFFIXES:
                others += 1
                continue
            path = Path(folder, name).relative_to(root).as_posix()
            try:
                path.encode()
            except UnicodeEncodeError:
                raise InputError(
                    f"the file name {path!r} is not valid Unicode. Rename the file."
                ) from None
            found.append(path)
    return sorted(found, key=lambda path: normalize("NFC", path)), others


def md5_of(path: Path) -> str:
    """MD5 of a file, as publishers list it; a check against damage, not against malice."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as handle:
        while chunk := handle.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
