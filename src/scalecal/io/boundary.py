"""The one place where files are opened: a library's failure becomes one clear sentence.

Libraries fail on damaged files in their own ways (an ArrowKeyError, a zlib.error, a RuntimeError of
HDF5, a RecursionError of a parser). Every reader makes its calls of them inside `reading`. Our own JSON
files are validated against a `msgspec.Struct` that stands beside the code that writes them: a message
names the file, the key and what was expected there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec

from scalecal.checks import InputError, MissingPackageError
from scalecal.limits import check_limit

T = TypeVar("T")

SCHEMA = 5
"""Number of the form of our JSON documents: it grows where the readers of today would go wrong."""

_LONGEST = 300  # characters of a message, which may quote what it found

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def check_file(path: str | os.PathLike[str], what: str = "a file") -> Path:
    """Return a path that is a plain file and may be read; pipes and devices are never opened.

    Examples
    --------
    >>> check_file("/dev/null", "a Parquet file")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: /dev/null is a device, expected a Parquet file
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise InputError(f"{path} is a link to a file that is not there") from None
        raise InputError(f"no file at {path}") from None
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"cannot read {os.fspath(path)!r}: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    for is_kind, kind in (*_KINDS, (stat.S_ISDIR, "a folder")):
        if is_kind(mode):
            raise InputError(f"{path} is {kind}, expected {what}")
    if not os.access(path, os.R_OK):
        raise InputError(f"cannot read {path}: Permission denied")
    return path


def inside(folder: Path, name: str, named_by: str | os.PathLike[str]) -> Path:
    """Return a file that another one names, which must lie in a folder: no path leads out of it.

    Examples
    --------
    >>> inside(Path("features"), "../other.npy", "features/manifest.json")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: features/manifest.json names '../other.npy', which is outside its folder
    """
    path = folder / name
    try:
        leads_out = not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links, a name too long, a zero byte
        leads_out = True
    if leads_out or PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise InputError(f"{named_by} names {name!r}, which is outside its folder")
    return path


@contextmanager
def reading(
    path: str | os.PathLike[str], what: str, *, advice: str = "", checked: bool = False
) -> Iterator[Path]:
    """Open a file by a library's calls: whatever they raise becomes one `InputError`.

    Keep the block narrow: a fault of our own inside it would be taken for the file's.

    Parameters
    ----------
    path
        The file; it must be plain and readable (`check_file`), unless `checked` says that it was looked
        at, or is a folder that the library opens by itself.
    what
        What the file should be: "a Parquet file".
    advice
        What to do, as a sentence.

    Examples
    --------
    >>> import json, tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".json") as file:
    ...     with reading(file.name, "a JSON file", advice="Write it again."):
    ...         json.loads("{")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: /...json cannot be read as a JSON file: Expecting ... Write it again.
    """
    path = Path(path) if checked else check_file(path, what)
    try:
        yield path
    except (InputError, MissingPackageError):
        raise
    except MemoryError:
        raise InputError(
            f"{path} does not fit into the memory: read it in parts, or on a larger machine"
        ) from None
    except Exception as error:
        said = f"{path} cannot be read as {what}: {failure(error)}"
        raise InputError(with_advice(said, advice)) from None


def with_advice(said: str, advice: str) -> str:
    """Add what to do, a sentence or "", to what was found.

    Examples
    --------
    >>> with_advice("it is empty", "Save it again.")
    'it is empty. Save it again.'
    """
    return f"{said}. {advice}" if advice else said


def failure(error: BaseException) -> str:
    """Say in one line what a library's exception says.

    Examples
    --------
    >>> failure(KeyError("x")), failure(RecursionError("maximum depth")), failure(EOFError())
    ("KeyError: 'x'", 'it is nested too deeply', 'it ends too early')
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())[:200].rstrip(".")
    if isinstance(error, EOFError):
        return text or "it ends too early"
    if not text or isinstance(error, LookupError):
        return f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text


def read_document(path: str | os.PathLike[str], kind: type[T], *, advice: str = "") -> T:
    """Read a JSON file as a document of one kind.

    Parameters
    ----------
    path
        The file.
    kind
        A `msgspec.Struct`, or any type that msgspec knows.
    advice
        What to do where the file is wrong, as a sentence.

    Raises
    ------
    InputError
        If there is no such file, it is no JSON, or a key is missing or of another type.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> class Settings(msgspec.Struct):
    ...     epochs: int
    >>> path = pathlib.Path(tempfile.mkdtemp(), "settings.json")
    >>> _ = path.write_text('{"epochs": "many"}')
    >>> read_document(path, Settings)
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: ...settings.json: Expected `int`, got `str` - at `$.epochs`
    """
    with reading(path, "a JSON file", advice=advice) as path:
        size = check_limit(path.stat().st_size, "json", f"{path}: its size")
        if size == 0:  # so are files of the system that are read without end
            raise InputError(with_advice(f"{path}: not a JSON file (it is empty)", advice))
        content = path.read_bytes()
    try:
        return parse_document(content, kind)
    except InputError as error:
        raise InputError(with_advice(f"{path}: {error}", advice)) from None


def check_document(
    path: str | os.PathLike[str], content: object, kind: type[T], *, advice: str = ""
) -> T:
    """Return what was read from a JSON file as a document of one kind; see `read_document`.

    For readers that go on with the plain content, of which the document has a part.

    Examples
    --------
    >>> check_document("a.json", {"n": "x"}, dict[str, int])
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: a.json: Expected `int`, got `str` - at `$[...]`
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise InputError(with_advice(f"{path}: {str(error)[:_LONGEST]}", advice)) from None


class _Head(msgspec.Struct):
    """What tells whether a document can be read; those of 0.2.0 have no such number."""

    schema: Any = None


def _refuse_newer(text: str | bytes) -> None:
    """Fail at a document of a later version, whatever else it holds; of damaged ones others complain."""
    try:
        schema = msgspec.json.decode(text, type=_Head).schema
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if isinstance(schema, int) and schema > SCHEMA:
        raise InputError(
            f"it was written by a newer scalecal (schema {schema}, this version reads up to {SCHEMA}): "
            "install that version"
        )


def parse_document(text: str | bytes, kind: type[T]) -> T:
    """Parse JSON text as a document of one kind; see `read_document`.

    Examples
    --------
    >>> parse_document('{"a": 1}', dict[str, int])
    {'a': 1}
    >>> parse_document('{"schema": 1000}', dict[str, int])
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: it was written by a newer scalecal (schema 1000, this version reads...
    """
    _refuse_newer(text)
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise InputError(str(error)[:_LONGEST]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not a JSON file ({error})") from None
    except RecursionError:
        raise InputError("not a scalecal file: it is nested too deeply") from None
