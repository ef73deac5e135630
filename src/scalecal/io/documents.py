"""Our own JSON files, validated: a message names the file, the key and what was expected there.

Each document is a `msgspec.Struct` that stands beside the code that writes it.
"""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from scalecal.checks import InputError
from scalecal.io.boundary import reading, with_advice
from scalecal.limits import check_limit

T = TypeVar("T")

_LONGEST = 300  # characters of a message, which may quote what it found


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


def parse_document(text: str | bytes, kind: type[T]) -> T:
    """Parse JSON text as a document of one kind; see `read_document`.

    Examples
    --------
    >>> parse_document('{"a": 1}', dict[str, int])
    {'a': 1}
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise InputError(str(error)[:_LONGEST]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not a JSON file ({error})") from None
    except RecursionError:
        raise InputError("not a file of scalecal's: it is nested too deeply") from None
