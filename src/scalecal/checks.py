"""Argument checks and their wording, in one place.

Every message says what was found, what was expected and, where it can, what to do.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
T = TypeVar("T")
A = TypeVar("A", bound=NDArray[Any])


class InputError(ValueError):
    """Something the caller gave cannot be used; the message says what, why and what to do.

    The message is one line: control characters, of file names for example, are written as escapes.
    `file` is the name of the file that the message begins with, if any.
    """

    file: str | None = None

    def __init__(self, *args: object) -> None:
        safe = []
        for arg in args:
            if isinstance(arg, str):
                arg = visible(redacted(arg))
                if len(arg) > MESSAGE:
                    arg = f"{arg[: MESSAGE // 2]} ... {arg[-MESSAGE // 2 :]}"
            safe.append(arg)
        super().__init__(*safe)


MESSAGE = 2_000
"""Characters of a message; what stands in the middle of a longer one is left out."""


SECRETS = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)
"""Environment variables whose values are written nowhere."""

_SECRET = re.compile(
    r"""(?ix)
    (?<=://) [^/\s@"']+ (?=@)                        # user:password of an address
    | (?<=[?&]) (x-amz-[a-z-]+ | signature | sig | awsaccesskeyid | [a-z_]*token | [a-z_]*key | expires)
      = [^&\s"'\#]+                                  # signatures in a query
    | \b hf_[a-z0-9]{16,} | \b (?-i:(?:AKIA|ASIA)[0-9A-Z]{16}) \b
    | (?<=bearer\ ) [\w.~+/-]{8,}=*
    """
)


def redacted(text: str) -> str:
    """Put *** for tokens, keys, passwords and signatures: text goes through here before it is kept.

    These are found by their form, and the values of the variables in `SECRETS` wherever they are.

    Examples
    --------
    >>> redacted("https://me:secret@host/x.csv?X-Amz-Signature=ab12&part=1")
    'https://***@host/x.csv?X-Amz-Signature=***&part=1'
    """
    for value in filter(None, map(os.environ.get, SECRETS)):
        if len(value) >= 8:
            text = text.replace(value, "***")
    return _SECRET.sub(lambda found: f"{found[1]}=***" if found[1] else "***", text)


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


def as_utf8(text: str) -> str:
    """Escape what UTF-8 cannot hold: bytes of a file's name that are no text.

    Examples
    --------
    >>> print(as_utf8(os.fsdecode(bytes([255])) + ".csv"))
    \\udcff.csv
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def plain(obj: Any) -> Any:
    """Turn numpy values, tuples, sets and paths into what JSON knows; undefined numbers into None.

    Tokens and passwords in text are left out (`scalecal.checks.redacted`).

    Examples
    --------
    >>> plain({"n": np.int64(3), "ece": float("nan"), "shape": (2, 1)})
    {'n': 3, 'ece': None, 'shape': [2, 1]}
    """
    if isinstance(obj, str) and not isinstance(obj, np.generic):
        return redacted(as_utf8(obj))
    if obj is None or (isinstance(obj, bool | int) and not isinstance(obj, np.generic)):
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
        return plain(os.fspath(obj))
    raise TypeError(f"cannot write a {type(obj).__name__} as JSON")


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


class LazyModule(ModuleType):
    """A library that is imported when it is first used: `scalecal --help` waits for none.

    Examples
    --------
    >>> json = LazyModule("json")
    >>> json.dumps([1])
    '[1]'
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


class ScalecalWarning(UserWarning):
    """The answer stands, but the caller should know something about it."""


Lines = Callable[[list[int]], list[int]]
_COUNTING: ContextVar[tuple[str, int, Lines | None]] = ContextVar(
    "counting", default=("row", 0, None)
)


@contextmanager
def in_file(
    file: str, word: str = "row", first: int = 0, lines: Lines | None = None
) -> Iterator[None]:
    """Begin messages of any `InputError` raised inside with the file, and count its rows as `word`.

    Of nested files the innermost is named. `first` is the number of the first row: 2 for the lines
    of a text file below its header. `lines` turns these numbers into those of the file's lines, where
    rows may be longer than a line.

    Examples
    --------
    >>> with in_file("p.csv", "line", 2):
    ...     check_probs([0.2, 3.2], "column 'p'")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: p.csv: column 'p' must lie in [0, 1], got 3.2 at line 3. Did you ...
    """
    token = _COUNTING.set((word, first, lines))
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
    counted, first, lines = _COUNTING.get()
    if word is not None:
        counted, first, lines = word, 0, None
    mask = np.asarray(where)
    index = np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1))
    numbers = (index[:most] + first).tolist()
    if lines is not None:
        numbers = lines(numbers)
    shown = ", ".join(map(str, numbers))
    if len(index) == 1:
        return f"{counted} {shown}"
    if len(index) > most:
        return f"{counted}s {shown}, ... ({len(index)} in all)"
    return f"{counted}s {shown}"


def refuse(
    bad: ArrayLike, problem: str, values: NDArray[Any] | None = None, *, advice: str = ""
) -> None:
    """Fail where a condition holds anywhere, naming the rows; with `values`, also the first of them.

    Examples
    --------
    >>> weights = np.array([1.0, -2.0])
    >>> refuse(weights < 0, "weights must not be negative", weights)
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: weights must not be negative, got -2 at row 1
    """
    mask = np.asarray(bad)
    if not mask.any():
        return
    if values is not None:
        problem = f"{problem}, got {values[mask][0]:g}"
    message = f"{problem} at {rows(mask)}"
    if advice:
        message = f"{message}. {advice}"
    raise InputError(message)


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
    known = dict.fromkeys(choices)
    # Looked up, not compared: arrays and pandas.NA have no truth value.
    with suppress(TypeError):
        if value in known:
            return value
    raise InputError(
        f"{name} must be one of {', '.join(map(repr, known))}, got {reprlib.repr(value)}"
    )


def check_positive_int(value: Any, name: str, *, least: int = 1) -> int:
    """Return `value` as an int of at least `least`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} must be a whole number, got {reprlib.repr(value)}")
    if value < least:
        raise InputError(f"{name} must be at least {least}, got {reprlib.repr(value)}")
    return int(value)


def check_number(
    value: Any,
    name: str,
    expected: str = "be a number",
    *,
    low: float = -np.inf,
    high: float = np.inf,
) -> float:
    """Return one finite number from `low` to `high` as a float; `expected` words what it should have been.

    Examples
    --------
    >>> check_number(None, "learning_rate", "be a number above 0")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: learning_rate must be a number above 0, got None
    """
    number = float("nan")
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, int | float | np.floating) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
    if not (np.isfinite(number) and low <= number <= high):
        raise InputError(f"{name} must {expected}, got {reprlib.repr(value)}")
    return number


def check_list(values: Any, name: str) -> list[Any]:
    """Return several values as a list of at least one."""
    several: list[Any] = []
    if not isinstance(values, str | bytes | Mapping):
        with suppress(TypeError):  # what cannot be gone through
            several = list(values)
    if several:
        return several
    raise InputError(f"{name} must be a list of at least one value, got {reprlib.repr(values)}")


_ABOVE_0 = float(np.nextafter(0.0, 1.0))
_BELOW_1 = float(np.nextafter(1.0, 0.0))


def check_above(value: Any, name: str) -> float:
    """Return `value` as a finite float above 0."""
    return check_number(value, name, "be a number above 0", low=_ABOVE_0)


def check_unit(value: Any, name: str) -> float:
    """Return `value` as a float in [0, 1]."""
    return check_number(value, name, "lie in [0, 1]", low=0.0, high=1.0)


def check_inside(value: Any, name: str) -> float:
    """Return `value` as a float above 0 and below 1."""
    return check_number(value, name, "lie strictly between 0 and 1", low=_ABOVE_0, high=_BELOW_1)


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Return `values` as a plain numpy array that holds the same values, or fail.

    Every array that a caller gives is converted here. A torch tensor is taken to main memory, and one
    that requires gradients is detached. What numpy would convert to other values without a word is
    refused: masked arrays (the mask would be lost), complex numbers (the imaginary part), sparse
    matrices, ragged lists. Long doubles become float64.

    Examples
    --------
    >>> as_array(range(3), "y").tolist()
    [0, 1, 2]
    >>> as_array(np.ma.masked_equal([1, 2], 2), "y")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: y is a masked array, whose mask would be lost. Drop the masked ...
    """
    if type(values) is not np.ndarray:
        values = from_elsewhere(values, name)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"{name} cannot be read as an array: {_first_line(error)}") from None
    if array.dtype.kind == "c":
        raise InputError(f"{name} must be real, got complex numbers ({array.dtype})")
    if array.dtype.kind == "V":
        raise InputError(f"{name} must be a plain array, got records of type {array.dtype}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array


def from_elsewhere(values: Any, name: str) -> Any:
    """Take numbers out of other libraries' arrays, or say why that is not done."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(
            f"{name} is a masked array, whose mask would be lost. Drop the masked values, or fill them "
            "in with .filled(...)"
        )
    if hasattr(values, "tocoo") or getattr(values, "is_sparse", False) is True:
        how = ".toarray()" if hasattr(values, "toarray") else ".to_dense()"
        raise InputError(f"{name} is sparse, and a dense array is expected. Use {how}")
    if hasattr(values, "detach") and hasattr(values, "cpu"):  # a torch tensor
        try:
            tensor = values.detach().cpu()
            return tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
        except (AttributeError, NotImplementedError, RuntimeError, TypeError) as error:
            raise InputError(f"{name} cannot be read as an array: {_first_line(error)}") from None
    return values


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def as_float(values: ArrayLike, name: str) -> Float:
    """Return `values` as a float64 array, or say which kind of thing they were.

    Text is refused, also where it spells numbers, and so are dates; missing values of object arrays
    (None, pandas' NA) are NaN.

    Examples
    --------
    >>> as_float(["0.5"], "probs")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: probs must be numbers, got text such as '0.5'
    """
    array = as_array(values, name)
    if array.dtype == np.float64:
        return array
    if array.dtype.kind in "SU":
        shown = ""
        if array.size:
            shown = f" such as {reprlib.repr(array.flat[0].item())}"
        raise InputError(f"{name} must be numbers, got text{shown}")
    if array.dtype.kind in "mM":
        raise InputError(f"{name} must be numbers, got dates or times ({array.dtype})")
    if array.dtype.kind == "O":
        array = _numbers(array, name)
    with np.errstate(over="ignore"):
        return array.astype(np.float64)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or pandas' NA or NaT."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def as_names(values: ArrayLike, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return names of classes, groups or strata, numbers or text, and which of them are missing.

    Bytes are decoded as UTF-8; Python objects other than whole numbers become text, missing ones "".

    Examples
    --------
    >>> as_names([b"a", b"b"], "groups")[0].tolist()
    ['a', 'b']
    >>> [part.tolist() for part in as_names(["a", None], "groups")]
    [['a', ''], [False, True]]
    """
    raw = as_array(values, name)
    kind = raw.dtype.kind
    if kind == "O":
        cells = raw.ravel().tolist()
        odd = next((v for v in cells if isinstance(v, list | dict | set | np.ndarray)), None)
        if odd is not None:
            raise InputError(f"{name} must be names or numbers, got {reprlib.repr(odd)}")
        if (numbers := np.array(cells)).dtype.kind in "iu" and numbers.shape == raw.shape:
            return numbers, np.zeros(raw.shape, dtype=bool)  # they sort as numbers
        missing = np.array([is_missing(v) for v in cells], dtype=bool).reshape(raw.shape)
        texts = ["" if is_missing(v) else _text(v, name) for v in cells]
        return np.array(texts, dtype=np.str_).reshape(raw.shape), missing
    if kind == "S":
        texts = [_text(v, name) for v in raw.ravel().tolist()]
        raw = np.array(texts, dtype=np.str_).reshape(raw.shape)
    if kind == "f":
        return raw, np.isnan(raw)
    return raw, np.isnat(raw) if kind in "mM" else np.zeros(raw.shape, dtype=bool)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(
            f"{name} must be text, got bytes that are no UTF-8: {reprlib.repr(value)}"
        ) from None


def _numbers(objects: NDArray[Any], name: str) -> Float:
    """Return an array of Python objects as float64, missing ones as NaN."""
    out = np.empty(objects.shape)
    for place, value in enumerate(objects.flat):
        if is_missing(value):
            out.flat[place] = np.nan
            continue
        try:
            if isinstance(value, str | bytes | np.ndarray):
                raise TypeError
            out.flat[place] = float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise InputError(
                f"{name} must be numbers, got {reprlib.repr(value)} ({type(value).__name__})"
            ) from None
    return out


def check_finite(values: A, name: str) -> A:
    """Return `values` if none is NaN or infinite."""
    refuse(
        ~np.isfinite(values),
        f"{name} must be finite, got NaN or infinity",
        advice="Drop these cases or fill the values in.",
    )
    return values


def check_scale(largest: float, dtype: Any, name: str = "X") -> None:
    """Fail where the largest absolute value is so large that sums of squares overflow.

    Examples
    --------
    >>> check_scale(1e160, np.float64)
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: the largest value of X is 1e+160 in size: squares of it overflow in ...
    """
    # float16 features are computed in float32; the power leaves room for sums of very many squares.
    kind = np.float64 if dtype == np.float64 else np.float32
    most = float(np.finfo(kind).max) ** 0.4
    if largest > most:
        raise InputError(
            f"the largest value of {name} is {largest:g} in size: squares of it overflow in "
            f"{np.dtype(kind).name}. Divide all of them by a number of about that size."
        )


def check_features(X: ArrayLike, name: str = "X") -> NDArray[Any]:
    """Return embeddings (n, d) of a numeric type, finite and of a usable scale."""
    features = as_array(X, name)
    if features.ndim != 2:
        raise InputError(f"{name} must be 2-d (cases, features), got shape {features.shape}")
    if 0 in features.shape:
        raise InputError(f"{name} must have rows and columns, got shape {features.shape}")
    if features.dtype.kind not in "iuf":
        features = as_float(features, name)
    check_feature_values(features, name)
    return features


BLOCK_ROWS = 8192
"""Rows of embeddings that are checked together: a matrix may be larger than the memory."""


def check_feature_values(X: Any, name: str = "X") -> NDArray[np.bool_]:
    """Fail on NaN, infinity and values too large; return which columns have one value in all rows.

    `X` is a matrix with rows and columns: an array, a memory map, or anything whose slices are arrays.
    """
    n, d = X.shape
    bad_rows = np.zeros(n, dtype=bool)
    bad_columns = np.zeros(d, dtype=bool)
    constant = np.ones(d, dtype=bool)
    first = np.asarray(X[0])
    largest = 0.0
    for start in range(0, n, BLOCK_ROWS):
        block = np.asarray(X[start : start + BLOCK_ROWS])
        finite = np.isfinite(block)
        if not finite.all():
            bad_rows[start : start + len(block)] = ~finite.all(axis=1)
            bad_columns |= ~finite.all(axis=0)
        constant &= (block == first).all(axis=0)
        largest = max(largest, float(np.abs(block).max()))
    refuse(
        bad_rows,
        f"{name} must be finite, got NaN or infinity in {rows(bad_columns, word='column')}",
        advice="Drop these cases or features, or fill the values in.",
    )
    check_scale(largest, X.dtype, name)
    return constant


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

MAX_VOTES = 1_000_000_000
"""More readers of one case than there can be."""

MAX_RHO = 0.99
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
    # The extremes are cheap, and most arrays pass: masks are only made where they do not.
    if low < -ROUNDING or high > 1.0 + ROUNDING:
        outside = (p < -ROUNDING) | (p > 1.0 + ROUNDING)
        refuse(outside, f"{name} must lie in [0, 1]", p, advice=_meant(low, high))
    if low < 0.0 or high > 1.0:
        p = np.clip(p, 0.0, 1.0)
    if p.ndim == 2:
        total = p.sum(axis=1)
        refuse(
            np.abs(total - 1.0) > SUM_TOLERANCE,
            f"each row of {name} must sum to 1",
            total,
            advice="If they were rounded, divide each row by its sum.",
        )
    return p


def _meant(low: float, high: float) -> str:
    """What numbers from `low` to `high` may be, where probabilities were expected."""
    if low < 0.0 or high > 100.0:
        return "Did you pass logits?"
    if high > 10.0:  # logits so large come with negative ones
        return "Did you mean percent? Then divide by 100."
    return "Did you pass logits, or percentages? Divide percentages by 100."


def check_logits(logits: ArrayLike) -> Float:
    """Return logits as finite float64: (n,) of the positive class against the other, or (n, C)."""
    z = as_float(logits, "logits")
    _check_cases(z, "logits")
    check_finite(z, "logits")
    check_scale(float(np.abs(z).max()), z.dtype, "logits")
    return z


def check_labels(y: ArrayLike, n_classes: int = 2, name: str = "y") -> Int:
    """Return hard labels as int64 in 0 .. n_classes - 1, shape (n,)."""
    raw = as_array(y, name)
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
    outside = (labels != values) | (labels < 0) | (labels >= n_classes)
    refuse(outside, f"{name} must be class numbers 0 .. {n_classes - 1}", values)
    return labels


def check_targets(y: ArrayLike, n_classes: int = 2, name: str = "y") -> Float:
    """Return hard or soft labels as a float64 array of target probabilities.

    Two classes: shape (n,), the positive class's share. More: shape (n, C), rows summing to 1;
    a 1-d `y` then holds hard class numbers. A 2-d `y` of two columns gives its second column.
    """
    raw = as_array(y, name)
    if raw.ndim == 2:
        soft = check_probs(raw, name)
        if soft.shape[1] != n_classes:
            raise InputError(
                f"{name} has {soft.shape[1]} columns but there are {n_classes} classes"
            )
        return soft[:, 1] if n_classes == 2 else soft
    if n_classes == 2:
        values = as_float(raw, name)
        _check_cases(values, name)
        check_finite(values, name)
        outside = (values < 0.0) | (values > 1.0)
        refuse(outside, f"{name} must be 0 or 1 (or soft labels between)", values)
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
    counts = _whole_numbers(raw, name)
    if n_raters is None:
        if counts.ndim == 2:
            return counts
        raise InputError(
            f"{name} given as one count per case needs n_raters "
            "(or give an (n, classes) array of counts)"
        )
    n = len(counts)
    panel = as_float(n_raters, "n_raters")
    if panel.shape not in ((), (n,)):
        raise InputError(
            f"n_raters must be one number or one per case ({n}), got shape {panel.shape}"
        )
    m = _whole_numbers(np.broadcast_to(panel, (n,)), "n_raters")
    if counts.ndim == 2:
        refuse(counts.sum(axis=1) != m, f"{name} per class must add up to n_raters, but do not")
        return counts
    over = counts > m
    if over.any():
        raise InputError(
            f"{name} must not exceed n_raters, got {counts[over][0]} of {m[over][0]} at {rows(over)}"
        )
    return np.column_stack([m - counts, counts])


def _whole_numbers(values: Float, name: str) -> Int:
    """Return numbers of votes or readers as int64."""
    check_finite(values, name)
    broken = (values < 0) | (values != np.round(values))
    refuse(broken, f"{name} must be whole numbers >= 0", values)
    refuse(values > MAX_VOTES, f"{name} must not exceed {MAX_VOTES:,} on a case", values)
    return values.astype(np.int64)


def check_weights(weights: ArrayLike | None, n: int, name: str = "weights") -> Float | None:
    """Return case weights as finite float64 >= 0 with a positive sum, or None."""
    if weights is None:
        return None
    w = as_float(weights, name)
    if w.shape != (n,):
        raise InputError(f"{name} must have one value per case ({n},), got shape {w.shape}")
    check_finite(w, name)
    check_scale(float(np.abs(w).max()), w.dtype, name)
    refuse(w < 0, f"{name} must not be negative", w)
    if w.sum() <= 0:
        raise InputError(f"{name} must not all be zero")
    return w


def check_groups(groups: ArrayLike | None, n: int) -> Int | None:
    """Return groups as codes 0 .. G - 1, or None; missing group names are an error."""
    if groups is None:
        return None
    raw, missing = as_names(groups, "groups")
    if raw.shape != (n,):
        raise InputError(f"groups must have one value per case ({n},), got shape {raw.shape}")
    refuse(missing, "groups must name a group for every case, missing")
    if raw.dtype.kind == "f":
        check_finite(raw.astype(np.float64), "groups")
    return np.unique(raw, return_inverse=True)[1].astype(np.int64)


def check_same_length(**arrays: Any) -> int:
    """Return the common number of cases of the named arrays (None is passed over)."""
    lengths = {name: len(a) for name, a in arrays.items() if a is not None}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise InputError(f"all inputs must have the same number of cases: {counts}")
    return next(iter(lengths.values()))


def as_rng(seed: int | np.random.Generator | None) -> np.random.Generator:
    """Return a numpy Generator from a seed, a Generator or None.

    Examples
    --------
    >>> as_rng("x")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: seed must be a whole number >= 0, a Generator or None, got 'x'
    """
    try:
        if isinstance(seed, bool | np.bool_):
            raise TypeError
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise InputError(
            f"seed must be a whole number >= 0, a Generator or None, got {reprlib.repr(seed)}"
        ) from None
