"""Images on any file system that fsspec knows: ``s3://``, ``gs://``, ``hdfs://``, ``file://``, ...

Each protocol's own package (s3fs, gcsfs, ...) brings its credentials and options with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

from scalecal.checks import InputError, MissingPackageError
from scalecal.datasets.decoding import IMAGE_SUFFIXES, ImageError, decode_image
from scalecal.datasets.sources import Piece, Rows, UInt8, hash_stream

__all__ = ["RemoteSource", "list_images", "list_names", "remote_url"]

# Two letters at least, so that a Windows drive is no protocol. A path object swallows one slash.
_PROTOCOL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/{1,2}(?=[^/]|/)")


def remote_url(*parts: str | Path | None) -> str | None:
    """Return the address that some parts of a path make together, None where it is a local one.

    Examples
    --------
    >>> remote_url("s3://bucket/slides", "tiles"), remote_url("data", "tiles"), remote_url("C:/tiles")
    ('s3://bucket/slides/tiles', None, None)
    """
    given = [str(part) for part in parts if part is not None]
    if not given or not _PROTOCOL.match(given[0]):
        return None
    first = _PROTOCOL.sub(r"\1://", given[0])
    return "/".join([first.rstrip("/"), *(part.strip("/") for part in given[1:])])


def _open_system(url: str) -> tuple[Any, str]:
    """Return the file system of an address and the path on it."""
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError:
        raise MissingPackageError(f"{url} needs fsspec. Run: pip install fsspec") from None
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingPackageError(f"{url}: {error}") from None
    except ValueError as error:
        raise InputError(f"{url}: {error}") from None
    return system, str(path).rstrip("/")


def list_names(url: str) -> list[str]:
    """List the files below an address, relative to it, in one order everywhere."""
    system, root = _open_system(url)
    try:
        if not system.isdir(root):
            raise InputError(f"no such folder: {url}")
        found = [name.removeprefix(root).lstrip("/") for name in system.find(root)]
    except OSError as error:
        raise InputError(f"cannot list {url}: {error}") from None
    return sorted(found, key=lambda name: normalize("NFC", name))


def list_images(url: str) -> tuple[list[str], int]:
    """Image files below an address, and how many other files lie there; hidden ones are passed over."""
    names = [
        name
        for name in list_names(url)
        if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))
        and not name.endswith("Thumbs.db")
    ]
    images = [name for name in names if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES]
    return images, len(names) - len(images)


@dataclass(frozen=True)
class RemoteSource:
    """One image file per row, `paths` relative to the address `url`; picklable."""

    url: str
    paths: tuple[str, ...]
    kind: Literal["files"] = "files"

    def __len__(self) -> int:
        return len(self.paths)

    def read_one(self, row: int) -> UInt8:
        """Fetch and decode the image of one row."""
        system, root = _open_system(self.url)
        path = self.paths[row]
        try:
            content = system.cat_file(f"{root}/{path}")
        except FileNotFoundError:
            raise ImageError(path, "no such file") from None
        except OSError as error:
            # Left to the engine, which tries again: a connection that broke is no broken image.
            raise ConnectionError(f"cannot fetch {self.url}/{path}: {error}") from error
        return decode_image(bytes(content), name=path)

    def take(self, rows: Rows) -> RemoteSource:
        """Return the source of these rows, in this order."""
        return replace(self, paths=tuple(self.paths[i] for i in rows))

    def size(self) -> int:
        """Bytes of all files, from one listing."""
        system, root = _open_system(self.url)
        sizes = {name: info["size"] for name, info in system.find(root, detail=True).items()}
        return sum(int(sizes[f"{root}/{path}"]) for path in self.paths)

    def pieces(self, *, full: bool) -> Iterator[Piece]:
        """Yield name, size and hash of every file, in the order of the rows."""
        system, root = _open_system(self.url)
        for path in self.paths:
            try:
                with system.open(f"{root}/{path}", "rb") as handle:
                    size = int(system.size(f"{root}/{path}"))
                    digest = hash_stream(handle, size, full=full)
            except OSError as error:
                raise InputError(f"cannot read {self.url}/{path}: {error}") from None
            yield Piece(normalize("NFC", path), size, digest)
