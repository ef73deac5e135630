"""Embeddings from any file a user may have: `.npz`, Parquet, CSV or a folder made by `scalecal extract`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
from scalecal.io.feature_folder import MANIFEST, Features, load_features
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

__all__ = ["FEATURE_ROLES", "FeatureTable", "read_features"]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class FeatureTable:
    """Embeddings of n cases and what is known about them.

    Attributes
    ----------
    X
        (n, d) embeddings, float16, 32 or 64: an array, a memory map, or rows in several files.
    y
        (n,) class numbers, -1 where a case has no label; None without labels and votes.
    counts
        (n, C) readers per class, zeros where nobody voted; None without votes.
    groups, group_names
        (n,) group numbers (patient, slide) and the groups' names; None and () without groups.
    split
        (n,) "train", "val" or "test"; None without such a column.
    ids
        Names of the cases, text in Arrow memory; None where the file has none.
    classes
        Names of the classes, sorted unless the source orders them; () without labels and votes.
    encoder
        Name of the encoder, where the source tells it.
    fingerprint
        SHA-256 of the file, or of the folder's manifest.
    notes
        What a reader of the result should know: plain sentences.
    paths
        (n,) image files below the images' folder, "" where unknown; None where the source has none.
    images
        The images' folder on this machine, where it is known.
    n_raters
        (n,) readers behind each label, where their number is known but not their votes; else None.
    dataset
        Name of the data set, where the source tells it.
    """

    X: Any
    y: Int | None
    counts: Int | None
    groups: Int | None
    group_names: tuple[str, ...]
    split: NDArray[np.object_] | None
    ids: pd.api.extensions.ExtensionArray | None
    classes: tuple[str, ...]
    encoder: str | None
    fingerprint: str
    notes: tuple[str, ...]
    paths: NDArray[np.str_] | None = None
    images: str | None = None
    n_raters: Int | None = None
    dataset: str | None = None

    @property
    def readers(self) -> Int | None:
        """How many readers stand behind each case, (n,); None where that is unknown."""
        return self.n_raters if self.counts is None else self.counts.sum(axis=1)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def labelled(self) -> FeatureTable:
        """Leave out the cases without a label; the same table where every case has one."""
        if self.y is None:
            raise InputError(
                "there are no labels: give them in the file, or by labels=FILE or votes=FILE "
                "(on the command line --labels FILE, --votes FILE)"
            )
        kept = self.y >= 0
        if kept.all():
            return self
        if not kept.any():
            raise InputError("no case has a label")

        def part(values: Any) -> Any:
            return None if values is None else values[kept]

        note = f"{int((~kept).sum())} of {len(kept)} cases without a label were left out."
        return replace(
            self,
            X=self.X[kept],
            y=self.y[kept],
            counts=part(self.counts),
            groups=part(self.groups),
            split=part(self.split),
            ids=part(self.ids),
            paths=part(self.paths),
            n_raters=part(self.n_raters),
            notes=(*self.notes, note),
        )


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
) -> FeatureTable:
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
    ...     found = read_features(Path(folder, "f.npz"))
    >>> found.X.shape, found.y.tolist(), found.classes
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
    groups, group_names = table.tokens("group") if table.has("group") else (None, ())
    if groups is not None and (groups < 0).all():
        groups, group_names = None, ()  # a column that is there but says nothing
    if groups is not None and (groups < 0).any():
        raise InputError(
            f"{table.file}: {table.names['group']!r} is empty at {rows(groups < 0)}: "
            "every case needs a group"
        )
    # Columns of votes that are there but empty say nothing: no method may learn from them.
    voted = truth is not None and truth.counts is not None and bool(truth.counts.any())
    return FeatureTable(
        X=X,
        y=None if truth is None else truth.y,
        counts=truth.counts if truth is not None and voted else None,
        groups=groups,
        group_names=group_names,
        split=_split(table),
        ids=ids,
        classes=() if truth is None else truth.classes,
        encoder=encoder,
        fingerprint=fingerprint,
        notes=(*notes, *(() if truth is None else truth.notes)),
        paths=paths,
        n_raters=readers,
        dataset=dataset,
    )


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


def _from_folder(path: Path, columns: Mapping[str, str]) -> tuple[Any, NamedColumns, Features]:
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


def _split(table: NamedColumns) -> NDArray[np.object_] | None:
    if not table.has("split"):
        return None
    split = table.texts("split")
    for name in np.unique(split[split != ""].astype(str)).tolist():
        check_choice(name, SPLITS, f"{table.file}: column {table.names['split']!r}")
    if (split == "").all():
        return None  # a column that is there but says nothing
    if (split == "").any():
        raise InputError(
            f"{table.file}: column {table.names['split']!r} is empty at {rows(split == '')}: "
            "every case belongs to train, val or test"
        )
    return split
