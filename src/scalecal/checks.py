"""Argument checks and their wording, in one place.

Every message says what was found, what was expected and, where it can, what to do.
"""

from __future__ import annotations

import importlib
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
T = TypeVar("T")


class InputError(ValueError):
    """Something the caller gave cannot be used; the message says what, why and what to do.

    The message is one line: control characters, of file names for example, are written as escapes.
    `file` is the name of the file that the message begins with, if any.
    """

    file: str | None = None

    def __init__(self, *args: object) -> None:
        super().__init__(*(visible(arg) if isinstance(arg, str) else arg for arg in args))


def visible(text: str) -> str:
    """Write characters that a terminal would act on, or could not show, as escapes.

    Examples
    --------
    >>> print(visible("a\\x1b[2Jb"))
    a\\x1b[2Jb
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class MissingPackageError(ImportError):
    """An optional package is needed; the message names the command that installs it."""


def library(name: str, needed_by: str, install: str = "'scalecal[encoders]'") -> Any:
    """Import a library, or say how to install or repair it.

    Parameters
    ----------
    name : str
        What is imported.
    needed_by : str
        Who needs it, as the beginning of a sentence.
    install : str
        What `pip install` must be given.

    Raises
    ------
    MissingPackageError
        If it is not installed, or is installed and cannot be imported.

    Examples
    --------
    >>> library("json", "this example").dumps([1])
    '[1]'
    >>> library("no_such_library", "this example", "NAME")
    Traceback (most recent call last):
        ...
    scalecal.checks.MissingPackageError: this example needs no_such_library. Run: pip install NAME
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"{needed_by} needs {name}. Run: pip install {install}"
        ) from error
    except (ImportError, RuntimeError, OSError) as error:
        # A torchvision built for another torch fails with a RuntimeError, and timm with it.
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise MissingPackageError(
            f"{needed_by} needs {name}, which is installed but cannot be imported ({first}). torch "
            "and torchvision must be builds that belong together. "
            "Run: pip install --force-reinstall torch torchvision"
        ) from error


class ScalecalWarning(UserWarning):
    """The answer stands, but the caller should know something about it."""


_COUNTING: ContextVar[tuple[str, int]] = ContextVar("counting", default=("row", 0))


@contextmanager
def in_file(file: str, word: str = "row", first: int = 0) -> Iterator[None]:
    """Begin messages of any `InputError` raised inside with the file, and count its rows as `word`.

    Of nested files the innermost is named. `first` is the number of the first row: 2 for the lines
    of a text file below its header.

    Examples
    --------
    >>> with in_file("p.csv", "line", 2):
    ...     check_probs([0.2, 3.2], "column 'p'")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: p.csv: column 'p' must lie in [0, 1], got 3.2 at line 3. Did you ...
    """
    token = _COUNTING.set((word, first))
    try:
        yield
    except InputError as error:
        if error.file is not None:
            raise
        named = InputError(f"{file}: {error}")
        named.file = file
        raise named from None
    finally:
        _COUNTING.reset(token)


def rows(where: ArrayLike, most: int = 5, *, word: str | None = None) -> str:
    """Name the rows where a condition holds anywhere, the first few of them.

    Rows of arrays are zero-based; within `in_file` they are counted as the file's. With `word` the
    condition is on something else, zero-based too.

    Examples
    --------
    >>> rows([False, True, True])
    'rows 1, 2'
    >>> rows([True] * 9, most=3, word="column")
    'columns 0, 1, 2, ... (9 in all)'
    """
    counted, first = _COUNTING.get() if word is None else (word, 0)
    mask = np.asarray(where)
    index = np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1)) + first
    shown = ", ".join(str(i) for i in index[:most])
    if len(index) == 1:
        return f"{counted} {shown}"
    return f"{counted}s {shown}" + (f", ... ({len(index)} in all)" if len(index) > most else "")


def lookup(name: str, registry: Mapping[str, T], what: str) -> T:
    """Return ``registry[name]``, or fail listing the known names.

    Examples
    --------
    >>> lookup("b", {"a": 1}, "method")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: unknown method 'b'. Known: a
    """
    if isinstance(name, str) and name in registry:
        return registry[name]
    raise InputError(f"unknown {what} {name!r}. Known: {', '.join(registry)}")


def check_choice(value: T, choices: Iterable[T], name: str) -> T:
    """Return `value` if it is one of `choices`."""
    known = list(choices)
    if value in known:
        return value
    raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def check_positive_int(value: Any, name: str, *, least: int = 1) -> int:
    """Return `value` as an int of at least `least`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} must be a whole number, got {reprlib.repr(value)}")
    if value < least:
        raise InputError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_unit(value: Any, name: str) -> float:
    """Return `value` as a float in [0, 1]."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number in [0, 1], got {value!r}") from None
    if not 0.0 <= number <= 1.0:
        raise InputError(f"{name} must lie in [0, 1], got {number:g}")
    return number


def as_float(values: ArrayLike, name: str) -> Float:
    """Return `values` as a float64 array, or say which kind of thing they were."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from None


def check_finite(values: Float, name: str) -> Float:
    """Return `values` if none is NaN or infinite."""
    if not np.isfinite(values).all():
        raise InputError(
            f"{name} must be finite, got NaN or infinity at {rows(~np.isfinite(values))}. "
            "Drop these cases or fill the values in."
        )
    return values


def _check_cases(array: NDArray[Any], name: str) -> None:
    if array.ndim not in (1, 2):
        raise InputError(f"{name} must be 1-d (n,) or 2-d (n, classes), got shape {array.shape}")
    if array.shape[0] == 0:
        raise InputError(f"{name} is empty: at least one case is needed")
    if array.ndim == 2 and array.shape[1] < 2:
        raise InputError(
            f"{name} has shape {array.shape}: give one column per class (two or more), "
            "or a 1-d array of the positive class"
        )


ROUNDING = 1e-6
"""How far outside [0, 1] rounding may leave a probability, of single precision too."""

SUM_TOLERANCE = 1e-4
"""How far from 1 the probabilities of a case may sum."""

MOST_RHO = 0.99
"""The largest correlation of readers considered: at 1 all agree and nothing is left to estimate."""


def check_probs(probs: ArrayLike, name: str = "probs") -> Float:
    """Return probabilities as float64: (n,) of the positive class, or (n, C) with rows summing to 1.

    What rounding leaves outside [0, 1] is set to 0 or 1.

    Examples
    --------
    >>> check_probs([0.2, 1 + 2e-16]).tolist()
    [0.2, 1.0]
    >>> check_probs([0.2, -3.2])
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: probs must lie in [0, 1], got -3.2 at row 1. Did you pass logits?
    """
    p = as_float(probs, name)
    _check_cases(p, name)
    check_finite(p, name)
    low, high = float(p.min()), float(p.max())
    if low < -ROUNDING or high > 1.0 + ROUNDING:
        bad = (p < -ROUNDING) | (p > 1.0 + ROUNDING)
        raise InputError(
            f"{name} must lie in [0, 1], got {p[bad][0]:g} at {rows(bad)}. {_meant(low, high)}"
        )
    if low < 0.0 or high > 1.0:
        p = np.clip(p, 0.0, 1.0)
    if p.ndim == 2:
        total = p.sum(axis=1)
        off = np.abs(total - 1.0) > SUM_TOLERANCE
        if off.any():
            raise InputError(
                f"each row of {name} must sum to 1, got {total[off][0]:g} at {rows(off)}. "
                "If they were rounded, divide each row by its sum."
            )
    return p


def _meant(low: float, high: float) -> str:
    """What numbers from `low` to `high` may be, where probabilities were expected."""
    if low < 0.0 or high > 100.0:
        return "Did you pass logits?"
    if high > 10.0:  # logits so large come with negative ones
        return "Did you mean percent? Then divide by 100."
    return "Did you pass logits, or percentages? Divide percentages by 100."


def check_logits(logits: ArrayLike, name: str = "logits") -> Float:
    """Return logits as finite float64: (n,) of the positive class against the other, or (n, C)."""
    z = as_float(logits, name)
    _check_cases(z, name)
    return check_finite(z, name)


def check_labels(y: ArrayLike, n_classes: int = 2, name: str = "y") -> Int:
    """Return hard labels as int64 in 0 .. n_classes - 1, shape (n,)."""
    raw = np.asarray(y)
    if raw.ndim != 1:
        raise InputError(f"{name} must be 1-d class labels, got shape {raw.shape}")
    if raw.shape[0] == 0:
        raise InputError(f"{name} is empty: at least one case is needed")
    if raw.dtype.kind == "b":
        raw = raw.astype(np.int64)
    if raw.dtype.kind not in "iuf":
        raise InputError(
            f"{name} must be class numbers 0 .. {n_classes - 1}, got {raw.dtype} "
            f"(first value {raw[0]!r}). Encode the classes as numbers first."
        )
    values = check_finite(raw.astype(np.float64), name)
    labels = values.astype(np.int64)
    bad = (labels != values) | (labels < 0) | (labels >= n_classes)
    if bad.any():
        raise InputError(
            f"{name} must be class numbers 0 .. {n_classes - 1}, got {values[bad][0]:g} at {rows(bad)}"
        )
    return labels


def check_targets(y: ArrayLike, n_classes: int = 2, name: str = "y") -> Float:
    """Return hard or soft labels as a float64 array of target probabilities.

    Two classes: shape (n,), the positive class's share. More: shape (n, C), rows summing to 1;
    a 1-d `y` then holds hard class numbers. A 2-d `y` of two columns gives its second column.
    """
    raw = np.asarray(y)
    if raw.ndim == 2:
        soft = check_probs(raw, name)
        if soft.shape[1] != n_classes:
            raise InputError(
                f"{name} has {soft.shape[1]} columns but there are {n_classes} classes"
            )
        return soft[:, 1] if n_classes == 2 else soft
    if n_classes == 2:
        if raw.dtype.kind == "b":
            raw = raw.astype(np.float64)
        values = as_float(raw, name)
        _check_cases(values, name)
        check_finite(values, name)
        bad = (values < 0.0) | (values > 1.0)
        if bad.any():
            raise InputError(
                f"{name} must be 0 or 1 (or soft labels between), got {values[bad][0]:g} at {rows(bad)}"
            )
        return values
    labels = check_labels(raw, n_classes, name)
    return np.eye(n_classes)[labels]


def check_counts(votes: ArrayLike, n_raters: ArrayLike | None = None, name: str = "votes") -> Int:
    """Return votes as an (n, C) int64 array of readers per class.

    Two forms are taken: (n, C) counts per class, or (n,) counts of the positive class together
    with `n_raters` (one number, or one per case).
    """
    raw = as_float(votes, name)
    _check_cases(raw, name)
    check_finite(raw, name)
    bad = (raw < 0) | (raw != np.round(raw))
    if bad.any():
        raise InputError(f"{name} must be whole numbers >= 0, got {raw[bad][0]:g} at {rows(bad)}")
    counts = raw.astype(np.int64)
    if counts.ndim == 2:
        if n_raters is not None:
            total = np.broadcast_to(as_float(n_raters, "n_raters"), (len(counts),))
            off = counts.sum(axis=1) != total
            if off.any():
                raise InputError(
                    f"{name} per class must add up to n_raters, got {counts[off].sum(axis=1)[0]} "
                    f"against {total[off][0]:g} at {rows(off)}"
                )
        return counts
    if n_raters is None:
        raise InputError(
            f"{name} given as one count per case needs n_raters "
            "(or give an (n, classes) array of counts)"
        )
    m = as_float(n_raters, "n_raters")
    if m.ndim > 1 or (m.ndim == 1 and m.shape != counts.shape):
        raise InputError(
            f"n_raters must be one number or one per case ({len(counts)}), got {m.shape}"
        )
    check_finite(np.atleast_1d(m), "n_raters")
    if (m < 0).any() or (m != np.round(m)).any():
        raise InputError("n_raters must be whole numbers >= 0")
    m = np.broadcast_to(m, counts.shape).astype(np.int64)
    over = counts > m
    if over.any():
        raise InputError(
            f"{name} must not exceed n_raters, got {counts[over][0]} of {m[over][0]} at {rows(over)}"
        )
    return np.column_stack([m - counts, counts])


def check_weights(weights: ArrayLike | None, n: int, name: str = "weights") -> Float | None:
    """Return case weights as finite float64 >= 0 with a positive sum, or None."""
    if weights is None:
        return None
    w = as_float(weights, name)
    if w.shape != (n,):
        raise InputError(f"{name} must have one value per case ({n},), got shape {w.shape}")
    check_finite(w, name)
    if (w < 0).any():
        raise InputError(f"{name} must not be negative, got {w[w < 0][0]:g} at {rows(w < 0)}")
    if w.sum() <= 0:
        raise InputError(f"{name} must not all be zero")
    return w


def check_groups(groups: ArrayLike | None, n: int, name: str = "groups") -> Int | None:
    """Return groups as codes 0 .. G - 1, or None; missing group names are an error."""
    if groups is None:
        return None
    raw = np.asarray(groups)
    if raw.shape != (n,):
        raise InputError(f"{name} must have one value per case ({n},), got shape {raw.shape}")
    if raw.dtype.kind == "f":
        check_finite(raw.astype(np.float64), name)
    if raw.dtype.kind == "O":
        missing = np.array([g is None or g != g for g in raw])
        if missing.any():
            raise InputError(f"{name} must name a group for every case, missing at {rows(missing)}")
        raw = raw.astype(str)
    return np.unique(raw, return_inverse=True)[1].astype(np.int64)


def check_same_length(**arrays: Any) -> int:
    """Return the common number of cases of the named arrays (None is passed over)."""
    lengths = {name: len(a) for name, a in arrays.items() if a is not None}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise InputError(f"all inputs must have the same number of cases: {counts}")
    return next(iter(lengths.values()))


def as_rng(seed: int | np.random.Generator | None) -> np.random.Generator:
    """Return a numpy Generator from a seed, a Generator or None."""
    if isinstance(seed, int | np.integer) and seed < 0:
        raise InputError(f"seed must not be negative, got {seed}")
    return np.random.default_rng(seed)
