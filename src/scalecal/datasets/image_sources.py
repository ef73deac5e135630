"""Where the pixels of an image set lie, and how one image file becomes 8-bit RGB.

**Places.** Files in a folder, members of a zip, rows of HDF5 arrays, or files on any file system that fsspec
knows (``s3://``, ``gs://``, ``hdfs://``, ``file://``, ...). A source is a small picklable value. Handles are
opened when first needed and once per process, so a source may be sent to worker processes, forked or spawned.
Each remote protocol's own package (s3fs, gcsfs, ...) brings its credentials and options with it.

**Images.** What is taken and what is refused does not depend on the file's name:

========================  =====================================================================
PNG, JPEG, TIFF, BMP      recognised by content; anything else is refused
grey, bilevel, palette    expanded to RGB exactly
alpha, transparent colour composited on white, the colour of an empty slide
EXIF orientation          applied
16 or 32 bits a channel   refused: how to scale to 8 bits is a choice that belongs to the user
CMYK, Lab                 refused: the conversion needs a colour profile
several pages or frames   refused (a JPEG with an embedded preview gives its main picture)
too many pixels           refused above Pillow's limit against decompression bombs, or that of
                          ``SCALECAL_LIMITS=pixels=NUMBER``
truncated or corrupt      refused; no partly grey image is ever returned
========================  =====================================================================

JPEGs are decoded in full, never through the codec's own downscaling. Who switches on Pillow's
`LOAD_TRUNCATED_IMAGES` gets what Pillow makes of cut files.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self
from unicodedata import normalize
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, MissingPackageError, ScalecalWarning, library
from scalecal.io.arrays import check_cases, need_array, open_hdf5
from scalecal.io.boundary import failure
from scalecal.io.store import as_utf8
from scalecal.limits import LIMITS, check_limit, limit

if TYPE_CHECKING:
    from PIL import Image as PillowImage

# ---- one image

IMAGE_FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".tif", ".tiff", ".bmp"})

_EIGHT_BIT_MODES = frozenset({"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "YCbCr"})
_ORIENTATION = 0x0112
_BITS_PER_SAMPLE = 258
_WHITE = (255, 255, 255, 255)

ImageFile = str | PathLike[str] | bytes


class ImageError(InputError):
    """One image cannot be used; `name` says which, `reason` why."""

    def __init__(self, name: str, reason: str) -> None:
        # Both go to args, so that the error survives the way back from a worker process.
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read image {self.name}: {self.reason}"


def _pillow() -> Any:
    return library("PIL.Image", "reading images")


def _most_pixels() -> int | None:
    """Return how many pixels an image may have: the limit the user raised, else what Pillow is set to."""
    pillow = _pillow()
    if limit("pixels") != LIMITS["pixels"]:
        pillow.MAX_IMAGE_PIXELS = limit("pixels")  # Pillow refuses by itself above twice as many
    most: int | None = pillow.MAX_IMAGE_PIXELS
    return most


def _too_large(what: str, most: int | None) -> str:
    return (
        f"{what} more pixels than the limit against decompression bombs ({most:,}). "
        "Cut whole-slide images into tiles first, or raise it: SCALECAL_LIMITS=pixels=NUMBER"
    )


def check_resized(name: str, size: tuple[int, int], resized: tuple[int, int]) -> None:
    """Refuse an image whose resized form would have too many pixels; sizes are (height, width).

    Resizing the shorter edge to 224 makes 224 x 224,000,000 of 1 x 1,000,000 pixels.
    """
    most = _most_pixels()
    if most is not None and resized[0] * resized[1] > most:
        sizes = f"{size[1]:,} x {size[0]:,} pixels, resized to {resized[1]:,} x {resized[0]:,}"
        raise ImageError(name, _too_large(f"it has {sizes},", most))


def _open(file: ImageFile, name: str) -> PillowImage.Image:
    """Open the header only; every failure is an ImageError with a reason a person can act on."""
    pillow, most = _pillow(), _most_pixels()
    handle = BytesIO(file) if isinstance(file, bytes) else file
    try:
        image: PillowImage.Image = pillow.open(handle, formats=IMAGE_FORMATS)
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise ImageError(name, _too_large("it has", most)) from None
    except FileNotFoundError:
        raise ImageError(name, "no such file") from None
    except pillow.UnidentifiedImageError:
        raise ImageError(name, _why_unknown(file)) from None
    except Exception as error:  # parsers of broken files raise nearly every kind of error
        raise ImageError(name, failure(error)) from None
    if most is not None and image.width * image.height > most:
        image.close()
        raise ImageError(name, _too_large("it has", most))
    return image


def _why_unknown(file: ImageFile) -> str:
    if isinstance(file, bytes):
        start = file[:12]
    else:
        with open(file, "rb") as handle:
            start = handle.read(12)
    if not start:
        return "the file is empty"
    return (
        f"it is not a whole PNG, JPEG, TIFF or BMP image (it starts with {start!r}). "
        "Convert it, or copy it again if it was cut short"
    )


def _deep(image: PillowImage.Image) -> bool:
    """Whether the file holds more than 8 bits a channel; Pillow drops the low byte of some silently."""
    if image.mode.startswith(("I", "F")):
        return True
    if image.format == "TIFF":
        bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (8,))
        return bool(max(bits if isinstance(bits, tuple) else (bits,)) > 8)
    if image.format == "PNG":
        tiles = getattr(image, "tile", [])
        return any(";16" in str(tile[3]) for tile in tiles)
    return False


def _refuse(image: PillowImage.Image, name: str) -> None:
    if _deep(image):
        raise ImageError(
            name,
            "it has more than 8 bits a channel, and how to scale it is a choice. "
            "Convert it to 8 bits first",
        )
    if image.mode not in _EIGHT_BIT_MODES:
        raise ImageError(
            name, f"its colour space {image.mode} needs a colour profile. Convert it to RGB first"
        )
    if image.format in ("TIFF", "PNG"):
        frames = getattr(image, "n_frames", 1)
        if frames > 1:
            raise ImageError(
                name, f"it holds {frames} pages or frames. Save the one to use as a file of its own"
            )


def _to_rgb(image: PillowImage.Image) -> PillowImage.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if "transparency" in image.info or image.mode in ("LA", "La", "PA", "RGBA", "RGBa"):
        # Premultiplied alpha has no direct way to RGBA from grey: go through its straight form.
        straight = image.convert("LA") if image.mode == "La" else image
        front = straight.convert("RGBA")
        back = _pillow().new("RGBA", front.size, _WHITE)
        back.alpha_composite(front)
        image = back
    return image.convert("RGB")


def decode_image(file: ImageFile, *, name: str | None = None) -> NDArray[np.uint8]:
    """Decode an image to an (H, W, 3) uint8 array by the rules at the top of this module.

    Parameters
    ----------
    file : path or bytes
        What to decode.
    name : str, optional
        How messages call it; the path by default.

    Raises
    ------
    ImageError
        If the file is no whole image of a kind that can be taken exactly.

    Examples
    --------
    >>> from io import BytesIO
    >>> from PIL import Image
    >>> buffer = BytesIO()
    >>> Image.new("L", (3, 2), 7).save(buffer, "PNG")
    >>> decode_image(buffer.getvalue()).tolist()[0]
    [[7, 7, 7], [7, 7, 7], [7, 7, 7]]
    """
    if name is None:
        name = "(bytes)"
        if not isinstance(file, bytes):
            name = fspath(file)
    with _open(file, name) as image:
        try:
            _refuse(image, name)
            image.load()
            upright = image
            if image.getexif().get(_ORIENTATION, 1) != 1:
                from PIL import ImageOps

                upright = ImageOps.exif_transpose(image)
            # A copy, because the buffer Pillow lends is read-only and torch warns about those.
            return np.array(_to_rgb(upright), dtype=np.uint8)
        except ImageError:
            raise
        except Exception as error:  # as above: truncated data shows up as almost anything
            raise ImageError(name, failure(error)) from None


# ---- places

UInt8 = NDArray[np.uint8]
Rows = NDArray[np.int64]

# Above this many bytes a fingerprint reads the ends of each file instead of all of it.
FULL_HASH_LIMIT = 1 << 30
_END = 1 << 14
# No tile needs more; a member that claims more is an archive made to fill the memory.
_LARGEST_MEMBER = 1 << 28


Piece = tuple[str, int, str]
"""One file of a source, for hashing: a name free of the machine, its size, its content's hash."""


def _piece(name: str, path: str, opened: Callable[[], tuple[IO[bytes], int]], full: bool) -> Piece:
    """Hash what `opened` opens, all of it or its two ends; `path` is for the message if it fails."""
    try:
        handle, size = opened()
        with handle:
            if full or size <= 2 * _END:
                return name, size, hashlib.file_digest(handle, "sha256").hexdigest()  # type: ignore[arg-type]
            digest = sha256(handle.read(_END))
            handle.seek(size - _END)
            digest.update(handle.read(_END))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    return name, size, digest.hexdigest()


def _open_file(path: Path) -> tuple[IO[bytes], int]:
    return path.open("rb"), path.stat().st_size


class _FilePerRow:
    """One image file per row; `paths` are their names below some root, with forward slashes."""

    paths: tuple[str, ...]
    kind: Literal["files"] = "files"

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, rows: Rows) -> Self:
        """Return the source of these rows, in this order."""
        return replace(self, paths=tuple(self.paths[i] for i in rows))  # type: ignore[type-var]

    def _open(self, row: int) -> tuple[IO[bytes], int]:
        """Open one file, and return its size too."""
        raise NotImplementedError

    def pieces(self, *, full: bool) -> Iterator[Piece]:
        """Yield name, size and hash of every file, in the order of the rows."""
        for row, path in enumerate(self.paths):
            # macOS hands out decomposed names, Linux what was written: one spelling for both.
            yield _piece(normalize("NFC", path), path, partial(self._open, row), full)


@dataclass(frozen=True)
class FileSource(_FilePerRow):
    """Image files in the folder `root`."""

    root: Path
    paths: tuple[str, ...]

    def read_one(self, row: int) -> UInt8:
        """Decode the image of one row."""
        path = self.paths[row]
        try:
            return decode_image(self._plain(row), name=path)
        except (ImageError, OSError) as error:
            self._check_home(row)
            if isinstance(error, ImageError):
                raise
            raise ImageError(path, error.strerror or str(error)) from None

    def size(self) -> int:
        """Bytes of all files that are there."""
        files = (self.root / path for path in self.paths)
        return sum(os.path.getsize(file) for file in files if file.is_file())

    def _check_home(self, row: int) -> None:
        """Refuse to go on where a folder is gone: a lost disk is not thousands of broken images."""
        home = (self.root / self.paths[row]).parent
        if not os.path.isdir(home):
            raise InputError(
                f"the folder {home} vanished while its images were read. "
                "Bring it back and run the same command again"
            )

    def _plain(self, row: int) -> Path:
        """Return where a file lies; pipes and devices are not opened, where a reader would wait."""
        path = self.root / self.paths[row]
        if path.exists() and not path.is_file():
            raise ImageError(self.paths[row], "it is not a plain file")
        if path.is_symlink() and not path.exists():
            raise ImageError(self.paths[row], "it is a link to a file that is not there")
        return path

    def _open(self, row: int) -> tuple[IO[bytes], int]:
        return _open_file(self._plain(row))

    def pieces(self, *, full: bool) -> Iterator[Piece]:
        """Yield name, size and hash of every file; of one that cannot be read, why not.

        Extraction leaves such an image out: here too it must not cost the others.
        """
        for row, path in enumerate(self.paths):
            name = normalize("NFC", path)
            try:
                yield _piece(name, path, partial(self._open, row), full)
            except InputError as error:
                self._check_home(row)
                yield name, -1, error.reason if isinstance(error, ImageError) else ""


def zip_members(archive: Path) -> list[str]:
    """Names of the files in a zip, refusing an archive that points outside of itself.

    Nothing is ever extracted here; but such an archive was not made by the publisher, and would
    overwrite files of anyone who unpacks it by hand.
    """
    try:
        with ZipFile(archive) as opened:
            infos = opened.infolist()
    except BadZipFile as error:
        raise InputError(
            f"{archive} is not a complete zip file ({error}). Download it again."
        ) from None
    members = []
    for info in infos:
        parts = info.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or (parts[0].endswith(":") and len(parts[0]) == 2):
            raise InputError(
                f"{archive} holds the member {info.filename!r}, which points outside the archive. "
                "Do not unpack it; download the archive again from its publisher."
            )
        if info.file_size > _LARGEST_MEMBER:
            raise InputError(
                f"{archive} holds the member {info.filename!r} of {info.file_size:,} bytes, "
                f"more than the {_LARGEST_MEMBER:,} an image may have"
            )
        if not info.is_dir() and parts[0] != "__MACOSX" and not parts[-1].startswith("."):
            members.append(info.filename)
    return members


@dataclass(frozen=True)
class ZipSource(_FilePerRow):
    """Members of a zip, read in place; `paths` are the names the unpacked files would have.

    `members` maps each of these to its member.
    """

    archive: Path
    members: Mapping[str, str]
    paths: tuple[str, ...]
    _handles: dict[int, ZipFile] = field(default_factory=dict, compare=False, repr=False)

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

    def read_one(self, row: int) -> UInt8:
        """Decode the image of one row, the checksum of its member checked."""
        path = self.paths[row]
        try:
            content = self._zip().read(self.members[path])
        except Exception as error:  # zlib, zipfile and the codecs below have errors of their own
            raise ImageError(path, f"in {self.archive.name}: {error}") from None
        return decode_image(content, name=path)

    def size(self) -> int:
        """Bytes of all members once unpacked."""
        return sum(self._zip().getinfo(self.members[path]).file_size for path in self.paths)

    def _open(self, row: int) -> tuple[IO[bytes], int]:
        member = self.members[self.paths[row]]
        return self._zip().open(member), self._zip().getinfo(member).file_size


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
    _handles: dict[tuple[int, Path, str], Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.positions)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handles": {}}

    def _array(self, block: Block) -> Any:
        # Keyed by process: a handle that lives through a fork shares its file offset with the parent.
        at = (os.getpid(), block.path, block.key)
        if at not in self._handles:
            file = open_hdf5(block.path)
            self._handles[at] = (file, need_array(file, block.key, block.path))
        return self._handles[at][1]

    def read_block(self, start: int, stop: int) -> UInt8:
        """Images of the rows start .. stop - 1, as one (n, height, width, 3) array."""
        return self.read(np.arange(start, min(stop, len(self)), dtype=np.int64))

    def read(self, rows: Rows) -> UInt8:
        """Images of these rows, as one (n, height, width, 3) array."""
        wanted = self.positions[rows]
        images = np.empty((len(wanted), *self.blocks[0].shape), dtype=np.uint8)
        first = 0
        for block in self.blocks:
            here = np.flatnonzero((wanted >= first) & (wanted < first + block.n))
            if len(here):
                images[here] = self._read_within(block, wanted[here] - first)
            first += block.n
        return images

    def _read_within(self, block: Block, inside: Rows) -> UInt8:
        array = self._array(block)
        low, high = int(inside.min()), int(inside.max()) + 1
        try:
            if high - low == len(inside) and (np.diff(inside) == 1).all():
                return np.asarray(array[low:high])
            # HDF5 takes increasing rows without repeats only.
            unique, back = np.unique(inside, return_inverse=True)
            return np.asarray(array[unique])[back]
        except Exception as error:  # h5py's are of several kinds, of their filters too
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
            opened = partial(_open_file, block.path)
            yield _piece(f"{block.path.name}/{block.key}", str(block.path), opened, full)
        order = self.positions.astype("<i8").tobytes()
        yield "positions", len(order), sha256(order).hexdigest()


def image_block(path: Path, key: str) -> Block:
    """Check that an HDF5 file holds images under a key, and say how many and how large."""
    with open_hdf5(path) as file:
        array = need_array(file, key, path)
        shape, kind = tuple(map(int, array.shape)), array.dtype
    if len(shape) != 4 or shape[3] != 3 or kind != np.uint8:
        raise InputError(
            f"{path}: array {key!r} must be (n, height, width, 3) uint8, got {shape} {kind}"
        )
    if 0 in shape:
        raise InputError(f"{path}: array {key!r} holds no images")
    check_cases(shape[0], path)
    check_limit(shape[1] * shape[2], "pixels", f"{path}: the size of an image in pixels")
    return Block(path, key, shape[0], (shape[1], shape[2], shape[3]))


# Two letters at least, so that a Windows drive is no protocol. A path object swallows one slash.
_PROTOCOL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/{1,2}(?=[^/]|/)")


def remote_url(*parts: str | Path | None) -> str | None:
    """Return the address that some parts of a path make together, None if it is a local one.

    Examples
    --------
    >>> remote_url("s3://bucket/slides", "tiles"), remote_url("data", "tiles"), remote_url("C:/tiles")
    ('s3://bucket/slides/tiles', None, None)
    """
    names = [str(part) for part in parts if part is not None]
    if not names or not _PROTOCOL.match(names[0]):
        return None
    first = _PROTOCOL.sub(r"\1://", names[0])
    return "/".join([first.rstrip("/"), *(name.strip("/") for name in names[1:])])


def _open_system(url: str) -> tuple[Any, str]:
    """Return the file system of an address and the path on it."""
    fsspec = library("fsspec", url, "fsspec")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingPackageError(f"{url}: {error}") from None
    except ValueError as error:
        raise InputError(f"{url}: {error}") from None
    return system, str(path).rstrip("/")


def list_names(root: Path | str) -> list[str]:
    """List the files below a folder or an address, relative to it; hidden ones are left out.

    Sorted by name alone (composed Unicode, by code point), so that the order is the same on every
    file system.
    """
    if isinstance(root, str):
        names = _list_remote(root)
    else:
        names = _list_folder(root)
    shown = []
    for name in names:
        # macOS and Windows leave such files behind.
        hidden = any(part.startswith((".", "__MACOSX")) for part in name.split("/"))
        if not hidden and not name.endswith("Thumbs.db"):
            shown.append(name)
    return sorted(shown, key=lambda name: normalize("NFC", name))


def _list_remote(url: str) -> list[str]:
    system, root = _open_system(url)
    try:
        if not system.isdir(root):
            raise InputError(f"no such folder: {url}")
        return [name.removeprefix(root).lstrip("/") for name in system.find(root)]
    except OSError as error:
        raise InputError(f"cannot list {url}: {error}") from None


def _list_folder(root: Path) -> list[str]:
    def stop(error: OSError) -> None:
        raise InputError(f"cannot read the folder {error.filename}: {error.strerror}")

    listed = []
    for folder, inside, names in os.walk(root, onerror=stop):
        inside[:] = [name for name in inside if not name.startswith(".")]
        listed += [Path(folder, name).relative_to(root).as_posix() for name in names]
    return listed


def image_files(root: Path | str) -> tuple[list[str], int]:
    """Image files below a folder or an address, as `list_names`, and how many other files lie there.

    Images whose names are no text, and so could be no ids, are left out with a warning.

    Examples
    --------
    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("b.png", "a.JPG", "notes.txt", ".hidden.png"):
    ...     (root / name).touch()
    >>> image_files(root)
    (['a.JPG', 'b.png'], 1)
    """
    names = list_names(root)
    images = [name for name in names if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES]
    unnamed = [name for name in images if as_utf8(name) != name]
    if unnamed:
        warnings.warn(
            f"{root}: {len(unnamed)} image files are left out, whose names are not valid Unicode: "
            f"{', '.join(map(repr, unnamed[:5]))}. Rename them",
            ScalecalWarning,
            stacklevel=2,
        )
    others = len(names) - len(images)
    return [name for name in images if name not in unnamed], others


@dataclass(frozen=True)
class RemoteSource(_FilePerRow):
    """Image files below the address `url`; picklable."""

    url: str
    paths: tuple[str, ...]

    def read_one(self, row: int) -> UInt8:
        """Fetch one file and decode its image."""
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

    def size(self) -> int:
        """Bytes of all files, from one listing."""
        system, root = _open_system(self.url)
        sizes = {name: info["size"] for name, info in system.find(root, detail=True).items()}
        return sum(int(sizes[f"{root}/{path}"]) for path in self.paths)

    def _open(self, row: int) -> tuple[IO[bytes], int]:
        system, root = _open_system(self.url)
        name = f"{root}/{self.paths[row]}"
        return system.open(name, "rb"), int(system.size(name))


def data_folder(data: str | Path | None, name: str, holds: str) -> Path:
    """Return the data folder a user gave, or say which one is needed and what must lie in it."""
    if data is None:
        raise InputError(f"{name} needs a data folder (--data DIR): {holds}")
    folder = Path(os.path.expanduser(data))  # unlike Path.expanduser, takes unknown users
    if not folder.exists():
        raise InputError(f"no such folder: {folder}. {name} needs {holds}")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, not a folder. {name} needs {holds}")
    return folder
