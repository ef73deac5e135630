"""`import_features`: embeddings made elsewhere, brought into a feature folder with labels and votes.

==================  ===========================================================================
npz                 arrays ``X`` and, where known, ``id``, ``y``, ``votes``, ``n_raters``, ``group``,
                    ``split``
table               CSV or Parquet: ``f0, f1, ...`` (Parquet also a column of lists) beside ``id``,
                    ``label``, ...
trident             a folder of TRIDENT's HDF5 files, or one: ``features`` and ``coords``. Patch
                    features, shape (N, d) or (1, N, d), give one row per patch with the id
                    ``<slide>_<x>_<y>`` and the slide as its ``group``; slide features, shape (d,), one
                    row per slide
eva                 a folder with eva's ``manifest.csv`` and its ``.pt`` tensors (loaded without running
                    code); the id is ``origin``, one ``#k`` more where a file holds several embeddings
zarr                a Zarr array of shape (N, d), or a group with such an array ``X`` and others as in npz
anndata             AnnData's ``.h5ad`` or Zarr, or a folder of ``.h5ad`` files, each then a group; ids are
                    the names of ``obs``, whose columns ``label``, ``votes``, ``group``, ... are taken;
                    ``obsm`` is not read
spatialdata         a SpatialData store as LazySlide writes it, or a folder of them: one row per tile of
                    ``tables/<encoder>_<tiles>`` with the id ``<slide>_<tile_id>``; the store is the group
spatialdata-slides  the same stores: the features of the whole slide, one row per store
==================  ===========================================================================

The last four need ``pip install 'scalecal[interop]'``.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from scalecal.cases import Cases
from scalecal.checks import InputError, ScalecalWarning, check_choice, in_file, lookup
from scalecal.datasets.image_sets import case_frame
from scalecal.features.formats import FORMATS, SEVERAL_ENCODERS, format_of
from scalecal.io.case_tables import CaseReader, open_votes, without_empty_columns
from scalecal.io.feature_store import (
    FeatureFolder,
    StoreWriter,
    cast_embeddings,
    check_image_table,
    default_shard_rows,
    load_features,
)
from scalecal.io.features import case_roles, choose_classes
from scalecal.io.input_columns import NamedColumns, as_ids, join
from scalecal.io.store import file_hash
from scalecal.io.tables import read_arrow
from scalecal.limits import check_limit

MATCHES = ("id", "group")


def import_features(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    votes: str | os.PathLike[str] | None = None,
    format: str | None = None,
    encoder: str | None = None,
    dataset: str | None = None,
    match: str = "id",
    shard_rows: int | None = None,
    dtype: str = "float16",
) -> FeatureFolder:
    """Bring embeddings made elsewhere into a feature folder.

    Parameters
    ----------
    path : path
        A file or folder in one of the formats of `scalecal.features.importing`.
    out : path
        The new feature folder.
    labels : path, optional
        A table with ``id`` and any of ``label``, ``group``, ``split``, ...; its columns take the
        place of those of the same name.
    votes : path, optional
        Votes as `scalecal.io.read_votes` takes them.
    format : {"npz", "table", "trident", "eva", "zarr", "anndata", "spatialdata", "spatialdata-slides"}
        By default known from the path: its ending, or what the folder holds.
    encoder : str, optional
        Name of the encoder, if the source does not name it; of several in a SpatialData store, the
        one wanted.
    dataset : str, optional
        Name of the data set, such as ``"mhist"``: embeddings of one set by several encoders belong
        together under it. By default the name of the file or folder.
    match : {"id", "group"}, default="id"
        What the ids of `labels` and `votes` name: rows, or groups of them (``"group"`` gives every
        patch what is known of its slide).
    shard_rows, dtype
        As in `extract`.

    Returns
    -------
    FeatureFolder

    Raises
    ------
    InputError
        If an embedding has no partner in `labels` or `votes`; they are named. Rows of those files
        without an embedding are left aside with a warning.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.savez(folder / "f.npz", X=np.eye(2), id=["a", "b"])
    >>> _ = (folder / "labels.csv").write_text("id,label\\na,HP\\nb,SSA\\n")
    >>> features = import_features(folder / "f.npz", folder / "out", labels=folder / "labels.csv",
    ...                            encoder="uni")
    >>> features.encoder, features.classes, features.table["label"].tolist()
    ('uni', ['HP', 'SSA'], [0, 1])
    """
    check_choice(match, MATCHES, "match")
    source = Path(path)
    if not os.path.lexists(source):
        raise InputError(f"no file or folder at {source}")
    kind = format_of(source) if format is None else format
    reader = lookup(kind, FORMATS, "format")
    if kind in SEVERAL_ENCODERS:
        reader = partial(reader, encoder=encoder)
    foreign = reader(source)
    if foreign.table.empty:
        raise InputError(f"{source} holds no embeddings")
    label_file, vote_file = (None if f is None else Path(f) for f in (labels, votes))
    cases, extra = _read_cases(foreign.table, label_file, vote_file, match, source.name)
    table = case_frame(cases, extra).dropna(axis=1, how="all")
    with in_file(str(source)):
        check_image_table(table)
    settings = {
        "encoder": {"name": encoder or foreign.encoder or "unknown"},
        "source": {"format": kind, "hash": _hash(foreign.paths)},
        "dataset": {
            "name": dataset or source.name,
            "n_images": len(cases),
            "classes": list(cases.classes) or None,
        },
    }
    block = min(len(table), shard_rows or default_shard_rows(len(table))) * foreign.dim * 8
    check_limit(block, "memory", f"{source}: the size of one shard, {foreign.dim:,} numbers a row,")
    with StoreWriter(
        out, settings, table, dim=foreign.dim, shard_rows=shard_rows, dtype=dtype
    ) as store:
        try:
            for shard, start, stop in store.missing():
                values = foreign.read(start, stop)
                with in_file(str(source)):
                    values = cast_embeddings(values, dtype, table["id"].iloc[start:stop].tolist())
                store.write_shard(shard, values)
            store.finish()
        except BaseException:
            store.discard()  # a part of an import is of no use: it is quickly done again
            raise
    return load_features(out)


def _hash(paths: Sequence[Path]) -> str:
    """Hash of files and of all files in folders."""
    digest = hashlib.sha256()
    for path in paths:
        for file in sorted([path, *path.rglob("*")]):
            if file.is_file():
                digest.update(os.fsencode(file.name) + f"\0{file_hash(file)}\n".encode())
    return digest.hexdigest()


def _read_cases(
    table: pd.DataFrame, labels: Path | None, votes: Path | None, match: str, source: str
) -> tuple[Cases, dict[str, NDArray[Any]]]:
    """Cases with labels and votes joined by `match`, and the further columns of the tables."""
    if match == "group" and "group" not in table:
        raise InputError(f"{source} has no groups, so match must be 'id'")
    columns = _as_columns(pa.Table.from_pandas(table, preserve_index=False), source)
    others = []
    if labels is not None:
        others.append(_as_columns(read_arrow(labels, text=["id"]), labels.name))
    if votes is not None:
        others.append(open_votes(votes))
    for other in others:
        columns, notes = join(columns, other, by=match, every=True)
        for note in notes:
            warnings.warn(note, ScalecalWarning, stacklevel=3)
    with columns.messages():
        ids = as_ids(columns.table.column("id"))
        # A tied vote needs no label yet: the reader of the folder says what it means.
        cases = CaseReader(ties="drop").read(columns, ids, choose_classes)
    if not columns.has("label"):
        cases = replace(cases, y=None)
    extra = {}
    for name in columns.table.column_names:
        if name not in case_roles() and not name.startswith("votes_"):
            extra[name] = columns.table.column(name).to_pandas().to_numpy()
    return without_empty_columns(cases), extra


def _as_columns(table: pa.Table, file: str) -> NamedColumns:
    return NamedColumns(table, file, tuple(table.column_names))
