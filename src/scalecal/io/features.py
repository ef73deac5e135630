"""Embeddings from any file a user may have: `.npz`, any table, or a folder made by `scalecal extract`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Factor, Features
from scalecal.checks import InputError, LazyModule, check_choice, check_feature_values, rows
from scalecal.io.arrays import check_cases, open_npz
from scalecal.io.boundary import reading
from scalecal.io.case_tables import (
    CaseReader,
    open_votes,
    resolve_classes,
    without_empty_columns,
)
from scalecal.io.feature_store import MANIFEST, TABLE, FeatureFolder, load_features
from scalecal.io.input_columns import (
    NamedColumns,
    check_headers,
    join,
    name_columns,
    open_columns,
    plays,
    roles_of,
    some,
    usual_names,
)
from scalecal.io.store import file_hash
from scalecal.io.tables import WHAT, column_names
from scalecal.limits import check_limit
from scalecal.splits import PARTS
from scalecal.votes import Ties

pa: Any = LazyModule("pyarrow")
pc: Any = LazyModule("pyarrow.compute")
pq: Any = LazyModule("pyarrow.parquet")

NPZ_NAMES = {"X": "X", "label": "y"}


def case_roles() -> tuple[str, ...]:
    """Return the roles of the columns that may stand beside embeddings."""
    return tuple(role for role in roles_of("features") if role != "X")


def read_features(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    votes: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
    positive: str | None = None,
    n_raters: int | None = None,
    ties: Ties = "error",
    seed: int = 0,
    group_regex: str | None = None,
) -> Features:
    """Read embeddings with labels, votes, groups and splits if available.

    Parameters
    ----------
    path
        `.npz` with `X` and, optionally, `y`, `votes`, `n_raters`, `group`, `split`, `id`; a table
        with feature columns `f0, f1, ...` (in Parquet also one list column) and `id`,
        `label`, ...; or a folder made by ``scalecal extract``.
    labels
        A table with `id` and `label` (also `votes`, `group`, `split`), joined by id.
    votes
        A table of votes joined by id, as `scalecal.io.read_votes` takes it.
    columns
        Names that are not the usual ones: role -> name, e.g. ``{"X": "embedding"}``.
    classes
        The classes in order, if they are known beforehand, such as a fitted probe's.
    positive
        The second of two classes. It may be left out if they are 0 and 1 or `classes` has them
        in order, as a feature folder does.
    n_raters, ties, seed, group_regex
        As in `scalecal.io.read_predictions`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "f.npz"), X=np.eye(3), y=["HP", "SSA", "HP"])
    ...     data = read_features(Path(folder, "f.npz"), positive="SSA")
    >>> data.X.shape, data.y.tolist(), data.cases.classes
    ((3, 3), [0, 1, 0], ('HP', 'SSA'))
    """
    path = Path(path)
    columns, roles = columns or {}, (*roles_of("features"), "rater")
    others = {Path(file).name: column_names(file) for file in (labels, votes) if file is not None}
    encoder, paths, dataset = None, None, None
    if path.is_dir():
        X, table, folder = _from_folder(path, columns)
        if "path" in folder.table:
            paths = np.asarray(folder.table["path"].fillna("").astype(str), dtype=np.str_)
        classes = folder.classes if classes is None else classes
        encoder, dataset = folder.encoder, folder.manifest.get("dataset", {}).get("name")
    elif path.suffix.lower() in (".npz", ".npy"):
        X, table = matrix_from_npz(path, columns)
    else:
        check_headers(columns, roles, {path.name: column_names(path), **others})
        X, table = matrix_from_table(path, columns)
    check_headers(columns, roles, {table.file: table.header, **others})
    second = []
    if labels is not None:
        second.append(open_columns(labels, columns, case_roles()))
    if votes is not None:
        second.append(open_votes(votes, columns=columns, n_raters=n_raters))
        n_raters = None
    reader = CaseReader(n_raters=n_raters, ties=ties, seed=seed)
    with table.messages():
        notes = list(_check_matrix(X))
        for other in second:
            table, unmatched = join(table, other)
            notes += unmatched
        choose = partial(choose_classes, classes=classes, positive=positive, ask=True)
        cases = without_empty_columns(reader.read(table, table.ids(), choose))
        if group_regex is not None:
            cases = cases.grouped_by(group_regex)
        if cases.split is not None:
            for name in cases.split.names:
                check_choice(name, PARTS, f"column {table.names['split']!r}")
            table.check_full("split", cases.split, "every case belongs to train, val or test")
    if cases.y is not None and cases.votes is None and (cases.y < 0).all():
        cases = replace(cases, y=None, classes=())
    # A table without columns of cases has no rows.
    cases = replace(cases, n=X.shape[0], paths=paths, notes=(*notes, *reader.notes, *cases.notes))
    fingerprint = file_hash(path / MANIFEST if path.is_dir() else path)
    return Features(X, cases, encoder, dataset, fingerprint)


def choose_classes(
    named: Mapping[str, Sequence[str]],
    *,
    classes: Sequence[str] | None = None,
    positive: str | None = None,
    ask: bool = False,
) -> tuple[str, ...]:
    """Return the classes that labels and votes name: as given, else numbers by value, else sorted.

    With `ask`, two classes that are words need a positive one.
    """
    if classes is None:
        seen = {name for names in named.values() for name in names}
        if seen <= {"0", "1"}:
            seen = {"0", "1"}
        words = not all(map(str.isdigit, seen))
        classes = sorted(seen)
        if not words:
            classes = sorted(seen, key=int)
        if len(classes) == 1:
            raise InputError(f"every label is {classes[0]!r}: two classes or more are needed")
        if ask and words and len(classes) == 2 and positive is None:
            raise InputError(
                f"the classes are {some(classes)}: say which of them is the positive one, with "
                "positive=NAME (on the command line --positive NAME)"
            )
    return resolve_classes(named, columns=classes, positive=positive)


def _from_folder(path: Path, columns: Mapping[str, str]) -> tuple[Any, NamedColumns, FeatureFolder]:
    folder = load_features(path)
    frame = folder.table
    header = tuple(map(str, frame.columns))
    names, wanted = name_columns(header, columns, case_roles())
    frame = frame[list(wanted.values())].set_axis(list(wanted), axis=1)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    classes = folder.classes
    if classes is not None and "label" in frame and frame["label"].dtype.kind in "iuf":
        # The store numbers its classes; files that are joined to it call them by name.
        label = frame["label"].to_numpy(float, na_value=np.nan)
        missing = np.isnan(label)
        unknown = ~missing & ~np.isin(label, np.arange(len(classes)))
        if unknown.any():
            raise InputError(
                f"{path / TABLE}: label {label[unknown][0]:g} is none of the {len(classes)} classes in "
                f"{MANIFEST}: the folder was changed. Extract again."
            )
        codes = pa.array(np.where(missing, 0, label).astype(np.int64), mask=missing)
        names_of = pa.array(classes, pa.string()).take(codes)
        table = table.set_column(table.column_names.index("label"), "label", names_of)
    return folder.X, NamedColumns(table, path.name, header, names), folder


def matrix_from_npz(path: Path, columns: Mapping[str, str]) -> tuple[Any, NamedColumns]:
    """Return X and the other arrays of an .npz as columns; nothing in it is unpickled."""
    names = {role: columns.get(role, NPZ_NAMES.get(role, role)) for role in roles_of("features")}
    arrays: dict[str, Any] = {}
    with open_npz(path) as archive:
        header = archive.names
        if names["X"] not in header:
            empty = NamedColumns(None, path.name, header, names)
            with empty.messages():
                raise empty.missing(names["X"], "the embeddings")
        X = archive.read(names["X"])
        for role in case_roles():
            # By the name given, else the usual one; labels are called both `y` and `label`.
            known = (n for n in (names[role], NPZ_NAMES.get(role, role), role) if n in header)
            name = next(known, None)
            if name is not None:
                arrays[role] = archive.read(name)
    if X.ndim != 2:
        raise InputError(f"{path.name}: X must be 2-d (cases, features), got shape {X.shape}")
    check_cases(len(X), path)
    if X.dtype.kind not in "biuf":
        raise InputError(f"{path.name}: X must hold numbers, got {X.dtype}")
    if X.dtype.kind in "iub":  # whole numbers, as CSV files may hold them
        X = X.astype(np.float32 if X.dtype.itemsize <= 2 else np.float64)
    table: dict[str, Any] = {}
    for role, values in arrays.items():
        if role == "n_raters" and values.ndim == 0:
            values = np.full(len(X), values)
        per_class = role == "votes" and values.ndim == 2
        if values.ndim != 1 + per_class or len(values) != len(X):
            raise InputError(
                f"{path.name}: {names[role]!r} must have one value per case ({len(X)},), got shape "
                f"{values.shape}"
            )
        if per_class:
            check_limit(values.shape[1], "classes", f"{path.name}: the number of columns of votes")
            order = _class_names(arrays.get("label"), values.shape[1])
            table |= {f"votes_{name}": values[:, c] for c, name in enumerate(order)}
        else:
            table[role] = values
    with reading(path, "an .npz file", advice="Save text as UTF-8.", checked=True):
        plain = {name: pa.array(values) for name, values in table.items()}
    return X, NamedColumns(pa.table(plain), path.name, header, names)


def _class_names(y: NDArray[Any] | None, n_classes: int) -> Sequence[str]:
    """Names of the columns of a 2-d `votes`: the sorted labels if they are text, else numbers."""
    if y is not None and y.dtype.kind in "SU":
        names = Factor.of(y).names
        if len(names) == n_classes:
            return names
    return [str(c) for c in range(n_classes)]


def matrix_from_table(path: Path, columns: Mapping[str, str]) -> tuple[Any, NamedColumns]:
    """Return X from columns f0, f1, ... or from one column of lists, and the other columns."""
    table = open_columns(path, _with_list_column(path, columns), roles_of("features"))
    with table.messages():
        X, used = _matrix(table)
    return X, replace(table, table=table.table.drop_columns(used))


def _matrix(table: NamedColumns) -> tuple[NDArray[Any], list[str]]:
    prefix = table.names["X"]
    if table.has("X"):
        values = table.table.column("X")
        if not _is_list(values.type):
            raise InputError(f"column {prefix!r} must hold lists of numbers, got {values.type}")
        return _from_lists(values, prefix), ["X"]
    columns = [name for name in table.table.column_names if plays("X", "X", name)]
    if columns:
        columns.sort(key=lambda name: int(name[1:]))
        first, last = columns[0][1:], columns[-1][1:]
        expected = int(last) - int(first) + 1
        if expected != len(columns):
            raise InputError(
                f"feature columns {prefix}{first} .. {prefix}{last} should be {expected}, found "
                f"{len(columns)}"
            )
        dtype = np.dtype(np.float64)
        kinds = {table.table.schema.field(name).type for name in columns}
        if len(kinds) == 1 and pa.types.is_floating(kind := kinds.pop()):
            dtype = np.dtype(kind.to_pandas_dtype())
        X = np.empty((len(table), len(columns)), dtype=dtype)
        for place, name in enumerate(columns):
            X[:, place] = table.numbers("X", name[1:])
        return X, columns
    raise table.missing(
        f"{prefix}0",
        "the first of the feature columns f0, f1, ...; or one list column, called f if there are several",
    )


def _with_list_column(path: Path, columns: Mapping[str, str]) -> Mapping[str, str]:
    """Name the only list column of a Parquet file as X, where nothing else can be the embeddings."""
    if path.suffix.lower() != ".parquet" or "X" in columns:
        return columns
    what, advice = WHAT["parquet"]
    with reading(path, what, advice=advice):
        schema = pq.read_schema(path)
    usual = usual_names()["X"]
    lists = [field.name for field in schema if _is_list(field.type)]
    if len(lists) != 1 or any(re.fullmatch(rf"{re.escape(usual)}\d*", n) for n in schema.names):
        return columns
    return {**columns, "X": lists[0]}


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _from_lists(values: Any, column: str) -> NDArray[Any]:
    lengths = pc.list_value_length(values).fill_null(0).to_numpy()
    odd = (lengths != np.bincount(lengths).argmax()) | (lengths == 0)
    if odd.any():
        raise InputError(
            f"lists in column {column!r} must all have the same length, at least 1; "
            f"got length {lengths[odd][0]} at {rows(odd)}"
        )
    flat = pc.list_flatten(values)
    try:
        numbers = flat if pa.types.is_floating(flat.type) else flat.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(f"column {column!r} must hold lists of numbers") from None
    return np.asarray(numbers.to_numpy()).reshape(len(values), int(lengths[0]))


def _check_matrix(X: Any) -> Iterator[str]:
    """Fail at NaN, infinity or a matrix without rows or columns; note constant features."""
    n, d = X.shape
    if n == 0 or d == 0:
        raise InputError(f"X has {n} rows and {d} columns: at least one of each is needed")
    constant = check_feature_values(X)
    if n > 1 and constant.all():
        raise InputError(
            f"every feature has the same value in all {n} cases: nothing to learn from"
        )
    if n > 1 and constant.any():
        yield f"{int(constant.sum())} of {d} features are the same in all cases."
