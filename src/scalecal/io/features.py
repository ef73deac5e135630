"""Embeddings from any file a user may have: `.npz`, Parquet, CSV or a folder made by `scalecal extract`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases, Factor, Rows
from scalecal.checks import InputError, Int, check_choice, check_positive_int, rows
from scalecal.io.classes import resolve_classes
from scalecal.io.columns import (
    ROLES,
    NamedColumns,
    check_headers,
    check_named,
    open_columns,
    some,
)
from scalecal.io.feature_folder import FeatureFolder, load_features
from scalecal.io.manifests import MANIFEST
from scalecal.io.matrices import (
    CASE_ROLES,
    FEATURE_ROLES,
    check_matrix,
    matrix_from_npz,
    matrix_from_table,
)
from scalecal.io.store import file_hash
from scalecal.io.tables import column_names
from scalecal.io.truth import Truth, labels_and_votes
from scalecal.votes import Ties

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FEATURE_ROLES", "Features", "array_hash", "read_features"]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Features:
    """Embeddings of n cases and what is known about them.

    Attributes
    ----------
    X
        (n, d) embeddings, float16, 32 or 64: an array, a memory map, or rows in several files.
    cases
        Ids, labels, votes, groups and split of the rows of `X`.
    encoder, dataset
        Names of the encoder and the data set, where the source tells them.
    fingerprint
        SHA-256 of the file, of the folder's manifest, or of the arrays (`array_hash`).
    images
        The images' folder on this machine, where it is known.
    extra
        Further columns by name, one row per case.

    Examples
    --------
    >>> data = Features(np.eye(3), Cases(n=3, classes=("0", "1"), y=np.array([0, 1, -1])))
    >>> data.take([0, 1]).y.tolist(), len(data.labelled())
    ([0, 1], 2)
    """

    X: Any
    cases: Cases
    encoder: str | None = None
    dataset: str | None = None
    fingerprint: str = ""
    images: str | None = None
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.X.shape[0] != self.cases.n:
            raise InputError(f"X has {self.X.shape[0]} rows, but there are {self.cases.n} cases")

    def __len__(self) -> int:
        return self.cases.n

    @property
    def ids(self) -> Any:
        """(n,) names of the cases."""
        return self.cases.ids

    @property
    def y(self) -> Int | None:
        """(n,) class numbers, -1 where a case has no label."""
        return self.cases.y

    @property
    def votes(self) -> Int | None:
        """Votes as functions take them beside `n_raters`: (n,) for the second of two classes, or (n, C)."""
        votes = self.cases.votes
        return votes[:, 1] if votes is not None and votes.shape[1] == 2 else votes

    @property
    def n_raters(self) -> Int | None:
        """(n,) readers behind each case."""
        return self.cases.readers

    @property
    def groups(self) -> NDArray[np.str_] | None:
        """(n,) names of the groups, such as patients."""
        return None if self.cases.groups is None else self.cases.groups.values

    @property
    def split(self) -> NDArray[np.str_] | None:
        """(n,) "train", "val" or "test"."""
        return None if self.cases.split is None else self.cases.split.values

    def take(self, rows: Rows | Sequence[int]) -> Self:
        """Return some of the cases (row numbers or a mask), every column alike."""
        index = np.arange(len(self))[rows]
        extra = {name: values[index] for name, values in self.extra.items()}
        return replace(self, X=self.X[index], cases=self.cases.take(index), extra=extra)

    def with_cases(self, **columns: Any) -> Self:
        """Return the same embeddings with other columns of cases, such as ``split=None``."""
        return replace(self, cases=replace(self.cases, **columns))

    def labelled(self) -> Self:
        """Return the cases that have a label; the same object where all have."""
        cases = self.cases.labelled()
        if cases is self.cases:
            return self
        assert self.y is not None
        return replace(self.take(self.y >= 0), cases=cases)


def array_hash(X: NDArray[Any], votes: NDArray[Any] | None = None) -> str:
    """Return the SHA-256 of embeddings in memory and of the votes beside them."""
    digest = hashlib.sha256(np.ascontiguousarray(X).data)
    if votes is not None:
        digest.update(np.ascontiguousarray(votes).data)
    return digest.hexdigest()


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
) -> Features:
    """Read embeddings with labels, votes, groups and splits where they are known.

    Parameters
    ----------
    path
        `.npz` with `X` and, optionally, `y`, `votes`, `n_raters`, `group`, `split`, `id`; a Parquet
        or CSV file with feature columns `f0, f1, ...` (in Parquet also one list column) and `id`,
        `label`, ...; or a folder made by ``scalecal extract``.
    labels
        A table with `id` and `label` (also `votes`, `group`, `split`), joined by id.
    votes
        A table of votes joined by id, as `scalecal.io.read_votes` takes it.
    columns
        Names that are not the usual ones: role -> name, e.g. ``{"X": "embedding"}``.
    classes
        The classes in order, where they are known beforehand (a fitted probe's, say).
    positive
        The second of two classes; by default the later one in sorted order.
    n_raters, ties, seed
        As in `scalecal.io.read_predictions`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "f.npz"), X=np.eye(3), y=["HP", "SSA", "HP"])
    ...     data = read_features(Path(folder, "f.npz"))
    >>> data.X.shape, data.y.tolist(), data.cases.classes
    ((3, 3), [0, 1, 0], ('HP', 'SSA'))
    """
    path = Path(path)
    encoder, paths, dataset = None, None, None
    roles = (*FEATURE_ROLES, "rater")
    others = [file for file in (labels, votes) if file is not None]
    if path.is_dir():
        X, table, features = _from_folder(path, columns or {})
        paths = _paths(features.table)
        encoder, fingerprint = features.encoder, file_hash(path / MANIFEST)
        classes = features.classes if classes is None else classes
        dataset = features.manifest.get("dataset", {}).get("name")
    elif path.suffix.lower() == ".npz":
        X, table = matrix_from_npz(path, columns or {})
        fingerprint = file_hash(path)
    else:
        check_named(columns, roles, path, *others)
        X, table = matrix_from_table(path, columns)
        fingerprint = file_hash(path)
    if path.is_dir() or path.suffix.lower() == ".npz":
        headers = {Path(file).name: column_names(file) for file in others}
        check_headers(columns, roles, {table.file: table.header, **headers})
    notes = list(check_matrix(X, table.file))
    ids = None
    if table.has("id"):
        ids = table.ids()
    if labels is not None:
        table, joined = _join(table, ids, labels, columns)
        notes += joined
    readers = None if votes is not None else _readers_alone(table, n_raters)
    asked = n_raters if readers is None else None
    truth = _truth(table, ids, votes, columns, classes, positive, asked, ties, seed)
    groups = Factor(*table.tokens("group")) if table.has("group") else None
    if groups is not None and (groups.codes < 0).all():
        groups = None  # a column that is there but says nothing
    if groups is not None and (groups.codes < 0).any():
        raise InputError(
            f"{table.file}: {table.names['group']!r} is empty at {rows(groups.codes < 0)}: "
            "every case needs a group"
        )
    # Columns of votes that are there but empty say nothing: no method may learn from them.
    voted = truth is not None and truth.counts is not None and bool(truth.counts.any())
    cases = Cases(
        n=X.shape[0],
        ids=ids,
        y=None if truth is None else truth.y,
        votes=truth.counts if truth is not None and voted else None,
        n_raters=readers,
        classes=() if truth is None else truth.classes,
        groups=groups,
        split=_split(table),
        paths=paths,
        notes=(*notes, *(() if truth is None else truth.notes)),
    )
    return Features(X, cases, encoder, dataset, fingerprint)


def _readers_alone(table: NamedColumns, n_raters: int | None) -> Int | None:
    """Readers behind each label of a table without votes; None where there are votes or no number."""
    if table.has("votes") or table.spread("votes") or not table.has("label"):
        return None
    if n_raters is not None:
        if table.has("n_raters"):
            raise InputError(
                f"{table.file} has a column {table.names['n_raters']!r}, so n_raters must not be given"
            )
        return np.full(len(table), check_positive_int(n_raters, "n_raters"), dtype=np.int64)
    if not table.has("n_raters"):
        return None
    told = table.numbers("n_raters")
    known = np.nan_to_num(told, nan=1.0)  # one reader: the label is what that one said
    wrong = (known < 1) | (known != np.floor(known))
    if wrong.any():
        raise InputError(
            f"{table.file}: column {table.names['n_raters']!r} must hold whole numbers from 1, "
            f"not so at {rows(wrong)}"
        )
    return None if np.isnan(told).all() else known.astype(np.int64)


def _paths(table: pd.DataFrame) -> NDArray[np.str_] | None:
    if "path" not in table.columns:
        return None
    return np.asarray(table["path"].fillna("").astype(str), dtype=np.str_)


def _from_folder(path: Path, columns: Mapping[str, str]) -> tuple[Any, NamedColumns, FeatureFolder]:
    import pyarrow as pa

    features = load_features(path)
    frame = features.table
    header = tuple(map(str, frame.columns))
    picked: dict[str, str] = {}  # as it is called here -> in the folder
    for role in CASE_ROLES:
        name = columns.get(role, role)
        name = name if name in header else role
        if name in header:
            picked[role] = name
    prefix = f"{columns.get('votes', 'votes')}_"
    picked |= {f"votes_{n.removeprefix(prefix)}": n for n in header if n.startswith(prefix)}
    keep, frame = list(picked), frame[list(picked.values())].set_axis(list(picked), axis=1)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    names = features.classes
    if names is not None and "label" in keep and frame["label"].dtype.kind in "iuf":
        # The store numbers its classes; files that are joined to it call them by name.
        label = frame["label"].astype("Int64")
        named = [
            None if missing else names[c] for c, missing in zip(label, label.isna(), strict=True)
        ]
        table = table.set_column(keep.index("label"), "label", pa.array(named, pa.string()))
    return features.X, NamedColumns(table, path.name, ROLES, header), features


def _join(
    table: NamedColumns,
    ids: pd.api.extensions.ExtensionArray | None,
    labels: str | Path,
    columns: Mapping[str, str] | None,
) -> tuple[NamedColumns, list[str]]:
    """Add the columns of a second table by id; they take the place of columns of the same role."""
    import pyarrow as pa
    import pyarrow.compute as pc

    second = open_columns(labels, columns, CASE_ROLES)
    second.need("id", "to join the labels")
    if ids is None:
        raise table.missing(table.names["id"], f"to join {second.file}")
    offered = second.ids()
    place = pc.index_in(pa.array(ids), value_set=pa.array(offered))
    lonely = np.asarray(place.is_null())
    if lonely.all():
        raise InputError(
            f"no id of {table.file} is in {second.file}: {some(ids)} against {some(offered)}"
        )
    unused = ~np.isin(np.arange(len(offered)), place.fill_null(-1).to_numpy(zero_copy_only=False))
    notes = []
    if lonely.any():
        notes.append(
            f"{int(lonely.sum())} of {len(ids)} cases are not in {second.file} ({some(ids[lonely])})."
        )
    if unused.any():
        notes.append(
            f"{int(unused.sum())} of {len(offered)} cases in {second.file} are not in {table.file} "
            f"({some(offered[unused])}) and were not used."
        )
    parts: dict[str, Any] = {}
    names = dict(ROLES)
    for source, taken in ((table, table.table), (second, second.table.take(place))):
        for role in CASE_ROLES:
            if role == "id" and source is second:
                continue
            if source.has(role):
                parts[role] = taken.column(source.names[role])
            elif role == "votes" and source.spread(role):
                spread = source.spread(role)
                parts |= {f"votes_{name}": taken.column(column) for name, column in spread.items()}
    header = tuple(dict.fromkeys((*table.header, *second.header)))
    joined = NamedColumns(pa.table(parts), second.file, MappingProxyType(names), header)
    return joined, notes


def _truth(
    table: NamedColumns,
    ids: pd.api.extensions.ExtensionArray | None,
    votes: str | Path | None,
    columns: Mapping[str, str] | None,
    classes: Sequence[str] | None,
    positive: str | None,
    n_raters: int | None,
    ties: Ties,
    seed: int,
) -> Truth | None:
    known = table.has("label") or table.has("votes") or bool(table.spread("votes"))
    if votes is None and not known:
        return None

    def choose(named: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        if classes is not None:
            return resolve_classes(named, columns=list(classes), positive=positive)
        seen = {name for names in named.values() for name in names}
        if seen <= {"0", "1"}:
            seen = {"0", "1"}
        listed = sorted(seen, key=int) if all(map(str.isdigit, seen)) else sorted(seen)
        if len(listed) == 1:
            raise InputError(f"every label is {listed[0]!r}: two classes or more are needed")
        return resolve_classes(named, columns=listed, positive=positive)

    return labels_and_votes(
        table,
        ids,
        votes=votes,
        columns=columns,
        choose=choose,
        n_raters=n_raters,
        ties=ties,
        seed=seed,
        some_unlabelled=True,
    )


def _split(table: NamedColumns) -> Factor | None:
    if not table.has("split"):
        return None
    split = Factor(*table.tokens("split"))
    for name in split.names:
        check_choice(name, SPLITS, f"{table.file}: column {table.names['split']!r}")
    if (split.codes < 0).all():
        return None  # a column that is there but says nothing
    if (split.codes < 0).any():
        raise InputError(
            f"{table.file}: column {table.names['split']!r} is empty at {rows(split.codes < 0)}: "
            "every case belongs to train, val or test"
        )
    return split
