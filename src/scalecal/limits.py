"""How large things may be: checked before memory is taken, so that one odd value cannot take it all.

A limit is raised by the environment variable ``SCALECAL_LIMITS`` (``"bins=1e6,pixels=1e9"``), which
processes started from here inherit.

``memory`` and ``json`` are bytes that one file may take, ``characters`` the length of an id or another
name, ``cases`` those asked for (of a simulation, in a batch), ``steps`` those of a training, in epochs too,
``pixels`` those of one image.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from scalecal.checks import InputError, check_positive_int, lookup

MIN_GROUPS = 8
"""Groups below which there is no floor, null, test or interval; of cases likewise no interval."""

VARIABLE = "SCALECAL_LIMITS"
"""The environment variable that raises limits."""


def _memory() -> int:
    """Return the machine's memory in bytes; 16 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return 16 << 30


LIMITS: Mapping[str, int] = {
    "memory": _memory(),
    "json": 1 << 28,
    "columns": 100_000,
    "classes": 10_000,
    "readers": 10_000,
    "characters": 1_000,
    "bins": 100_000,
    "resamples": 1_000_000,
    "seeds": 10_000,
    "cases": 1_000_000_000,
    "steps": 100_000_000,
    "pixels": (1 << 28) // 3,  # as Pillow has it
}
"""Every limit by name, and its default."""


def limit(name: str) -> int:
    """Return a limit: that of ``SCALECAL_LIMITS``, else its default.

    Examples
    --------
    >>> limit("bins")
    100000
    """
    return raised(os.environ.get(VARIABLE, "")).get(name, LIMITS[name])


def raised(text: str) -> dict[str, int]:
    """Read limits as they are written in the variable.

    Examples
    --------
    >>> raised("bins=1e6, pixels=2000")
    {'bins': 1000000, 'pixels': 2000}
    """
    limits = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = part.partition("=")
        lookup(name.strip(), LIMITS, "limit")
        try:
            value = int(float(number))
        except (ValueError, OverflowError):
            value = 0
        if value < 1:
            raise InputError(f"a limit is written NAME=NUMBER, such as bins=1e6, got {part!r}")
        limits[name.strip()] = value
    return limits


def check_limit(value: int, name: str, what: str) -> int:
    """Return a number if it is within its limit; the message says how to raise it.

    Parameters
    ----------
    value
        The number found: of bytes, bins, pixels.
    name
        The limit's name.
    what
        What has so many, as the beginning of a sentence.

    Examples
    --------
    >>> check_limit(10**12, "bins", "n_bins")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: n_bins is 1,000,000,000,000, the limit is 100,000. If that is meant, ...
    """
    most = limit(name)
    if value <= most:
        return value
    unit = " bytes" if name in ("memory", "json") else ""
    if value > 10**18:
        raise InputError(f"{what} is above 10^18, the limit is {most:,}{unit}")
    raise InputError(
        f"{what} is {value:,}{unit}, the limit is {most:,}{unit}. If that is meant, raise it by the "
        f"environment variable {VARIABLE}={name}={value}"
    )


def check_count(value: Any, argument: str, name: str, *, least: int = 1) -> int:
    """Return an argument as an int from `least` to the limit called `name`.

    Examples
    --------
    >>> check_count(15, "n_bins", "bins")
    15
    """
    return check_limit(check_positive_int(value, argument, least=least), name, argument)
