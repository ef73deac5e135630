"""A matrix of embeddings and the columns beside it, from `.npz`, Parquet or CSV."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from scalecal.checks import InputError, rows
from scalecal.io.columns import ROLES, NamedColumns, open_columns

__all__ = ["CASE_ROLES", "FEATURE_ROLES", "check_matrix", "matrix_from_npz", "matrix_from_table"]

CASE_ROLES = ("id", "label", "votes", "n_raters", "group", "split")
FEATURE_ROLES = ("X", *CASE_ROLES)
NPZ_NAMES = {"X": "X", "label": "y"}

# Below this an array is simply read: a map of a file that is replaced later would crash.
MAPPED_BYTES = 1 << 28
BLOCK_ROWS = 8192


def matrix_from_npz(path: Path, columns: Mapping[str, str]) -> tuple[Any, NamedColumns]:
    """Return X and the other arrays of an .npz as columns; nothing in it is unpickled."""
    import pyarrow as pa

    names = {role: columns.get(role, NPZ_NAMES.get(role, role)) for role in FEATURE_ROLES}
    if not path.exists():
        raise InputError(f"no file at {path}")
    arrays: dict[str, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = tuple(archive.files)
            empty = NamedColumns(pa.table({}), path.name, names, found)
            if names["X"] not in found:
                raise empty.missing(names["X"], "the embeddings")
            X = _mapped(path, names["X"])
            if X is None:
                X = archive[names["X"]]
            for role in CASE_ROLES:
                # By the name given, else the usual one; labels are called both `y` and `label`.
                known = (n for n in (names[role], NPZ_NAMES.get(role, role), role) if n in found)
                name = next(known, None)
                if name is not None:
                    arrays[role] = archive[name]
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise InputError(f"{path} is not a readable .npz file: {error}") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path} holds Python objects or is damaged ({error}). Save numbers and text as plain "
            "arrays: np.array(values, dtype=str)"
        ) from None
    if np.ndim(X) != 2:
        raise InputError(f"{path.name}: X must be 2-d (cases, features), got shape {np.shape(X)}")
    if X.dtype.kind in "iub":  # whole numbers, as CSV files may hold them
        X = X.astype(np.float32 if X.dtype.itemsize <= 2 else np.float64)
    table: dict[str, Any] = {}
    for role, values in arrays.items():
        values = np.asarray(values)
        if role == "votes" and values.ndim == 2:
            order = _class_names(arrays.get("label"), values.shape[1])
            table |= {f"votes_{name}": values[:, c] for c, name in enumerate(order)}
        elif role == "n_raters" and values.ndim == 0:
            table[role] = np.full(len(X), values)
        elif values.ndim != 1:
            raise InputError(
                f"{path.name}: {names[role]!r} must be 1-d, one value per case, got {values.shape}"
            )
        else:
            table[role] = values
    for name, values in table.items():
        if len(values) != len(X):
            raise InputError(
                f"{path.name}: {name!r} has {len(values)} values, but X has {len(X)} rows"
            )
    plain = {
        name: pa.array(values.astype(str) if values.dtype.kind in "SU" else values)
        for name, values in table.items()
    }
    return X, NamedColumns(pa.table(plain), path.name, ROLES, found)


def _class_names(y: NDArray[Any] | None, n_classes: int) -> list[str]:
    """Names of the columns of a 2-d `votes`: the sorted labels if they are text, else numbers."""
    if y is not None and y.dtype.kind in "SU":
        names = sorted({str(name) for name in y.astype(str) if name})
        if len(names) == n_classes:
            return names
    return [str(c) for c in range(n_classes)]


def _mapped(path: Path, name: str) -> Any:
    """Map a large array that lies uncompressed in an .npz; None where it is small or compressed."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(f"{name}.npy")
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size < MAPPED_BYTES:
            return None
        with archive.open(entry) as member:
            version = npy.read_magic(member)
            if version not in ((1, 0), (2, 0)):
                return None
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = read(member)
            header = member.tell()
    if dtype.hasobject:
        return None
    with path.open("rb") as file:
        # The local header's name and extra field may be longer than the directory's.
        file.seek(entry.header_offset + 26)
        name_length, extra_length = np.frombuffer(file.read(4), dtype="<u2").tolist()
    start = entry.header_offset + 30 + name_length + extra_length + header
    return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")


def matrix_from_table(path: Path, columns: Mapping[str, str] | None) -> tuple[Any, NamedColumns]:
    """Return X from columns f0, f1, ... or from one column of lists, and the other columns."""
    table = open_columns(path, _with_list_column(path, columns), FEATURE_ROLES)
    prefix = table.names["X"]
    spread = [
        name for name in table.table.column_names if re.fullmatch(rf"{re.escape(prefix)}\d+", name)
    ]
    if table.has("X"):
        values = table.table.column(prefix)
        if not _is_list(values.type):
            raise InputError(
                f"{table.file}: column {prefix!r} must hold lists of numbers, got {values.type}"
            )
        X = _from_lists(values, table.file, prefix)
        used = [prefix]
    elif spread:
        spread.sort(key=lambda name: int(name[len(prefix) :]))
        first, last = (int(name[len(prefix) :]) for name in (spread[0], spread[-1]))
        if last - first + 1 != len(spread):
            raise InputError(
                f"{table.file}: feature columns {spread[0]} .. {spread[-1]} should be "
                f"{last - first + 1}, found {len(spread)}"
            )
        kinds = {table.table.schema.field(name).type for name in spread}
        dtype = np.dtype(kinds.pop().to_pandas_dtype()) if len(kinds) == 1 else np.dtype(float)
        dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
        X = np.empty((len(table), len(spread)), dtype=dtype)
        for place, name in enumerate(spread):
            X[:, place] = table.numbers("X", name)
        used = spread
    else:
        raise table.missing(
            f"{prefix}0",
            "the first of the feature columns f0, f1, ...; or one list column, called f if there are several",
        )
    return X, replace(table, table=table.table.drop_columns(used))


def _with_list_column(path: Path, columns: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Name the only list column of a Parquet file as X, where nothing else can be the embeddings."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix.lower() != ".parquet" or "X" in (columns or {}):
        return columns
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException):
        return columns  # what is wrong with the file is told where it is read
    usual = ROLES["X"]
    lists = [field.name for field in schema if _is_list(field.type)]
    if len(lists) != 1 or any(re.fullmatch(rf"{re.escape(usual)}\d*", n) for n in schema.names):
        return columns
    return {**(columns or {}), "X": lists[0]}


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _from_lists(values: Any, file: str, column: str) -> NDArray[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.list_value_length(values).fill_null(0).to_numpy()
    if len(set(np.unique(lengths).tolist())) != 1 or lengths[0] == 0:
        odd = lengths != np.bincount(lengths).argmax()
        odd = odd if odd.any() else lengths == 0
        raise InputError(
            f"{file}: lists in column {column!r} must all have the same length, at least 1; "
            f"got length {lengths[odd][0]} at {rows(odd)}"
        )
    flat = pc.list_flatten(values)
    try:
        numbers = flat if pa.types.is_floating(flat.type) else flat.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(f"{file}: column {column!r} must hold lists of numbers") from None
    return np.asarray(numbers.to_numpy()).reshape(len(values), int(lengths[0]))


def check_matrix(X: Any, file: str) -> Iterator[str]:
    """Fail at NaN, infinity, text or a matrix without rows or columns; note constant features."""
    if X.dtype.kind not in "fiu":
        raise InputError(f"{file}: X must hold numbers, got {X.dtype}")
    n, d = X.shape
    if n == 0 or d == 0:
        raise InputError(f"{file}: X has {n} rows and {d} columns: at least one of each is needed")
    bad_rows = np.zeros(n, dtype=bool)
    bad_columns = np.zeros(d, dtype=bool)
    first = np.asarray(X[0])
    constant = np.ones(d, dtype=bool)
    for start in range(0, n, BLOCK_ROWS):
        block = np.asarray(X[start : start + BLOCK_ROWS])
        finite = np.isfinite(block)
        if not finite.all():
            bad_rows[start : start + len(block)] = ~finite.all(axis=1)
            bad_columns |= ~finite.all(axis=0)
        constant &= (block == first).all(axis=0)
    if bad_rows.any():
        columns = rows(bad_columns).replace("row", "column")
        raise InputError(
            f"{file}: X must be finite, got NaN or infinity at {rows(bad_rows)}, {columns}. "
            "Drop these cases or features, or extract them again."
        )
    if n > 1 and constant.all():
        raise InputError(
            f"{file}: every feature has the same value in all {n} cases: nothing to learn from"
        )
    if n > 1 and constant.any():
        yield f"{int(constant.sum())} of {d} features are the same in all cases."
