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
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from scalecal.cases import Cases
from scalecal.checks import (
    InputError,
    ScalecalWarning,
    check_choice,
    in_file,
    library,
    lookup,
)
from scalecal.datasets.image_sets import case_frame
from scalecal.encoders.loading import read_state_dict
from scalecal.io.arrays import (
    BYTES_PER_CASE,
    check_cases,
    check_heaps,
    check_own,
    need_array,
    open_hdf5,
    read_hdf5,
)
from scalecal.io.boundary import check_file, inside, reading
from scalecal.io.case_tables import CaseReader, open_votes, without_empty_columns
from scalecal.io.feature_store import (
    FeatureFolder,
    StoreWriter,
    check_image_table,
    default_shard_rows,
    load_features,
)
from scalecal.io.features import case_roles, choose_classes, matrix_from_npz, matrix_from_table
from scalecal.io.input_columns import NamedColumns, as_ids, join, read_filled, some
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


# ---- the formats

_FEATURE_FOLDER = re.compile(r"(?:slide_)?features_(.+)")
_EXTRA = "'scalecal[interop]'"
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")
_SLIDE = "agg_slide"  # LazySlide's name for the features of a whole slide


@dataclass(frozen=True)
class ForeignFeatures:
    """Embeddings of another program: their table, their length, a reader of rows, and where they lie."""

    table: pd.DataFrame
    dim: int
    read: Callable[[int, int], NDArray[Any]]
    paths: Sequence[Path]
    encoder: str | None = None


def joined(parts: Sequence[ForeignFeatures]) -> ForeignFeatures:
    """Put features one after the other; the encoder is that of the first.

    Examples
    --------
    >>> def part(name, X):
    ...     table = pd.DataFrame({"id": [f"{name}{k}" for k in range(len(X))]})
    ...     return ForeignFeatures(table, X.shape[1], lambda a, b: X[a:b], [Path(name)])
    >>> both = joined([part("a", np.eye(2)), part("b", 5 * np.eye(3, 2))])
    >>> both.table["id"].tolist(), both.read(1, 4).tolist()
    (['a0', 'a1', 'b0', 'b1', 'b2'], [[0.0, 1.0], [5.0, 0.0], [0.0, 5.0]])
    """

    def read(start: int, stop: int) -> NDArray[Any]:
        rows, first = [], 0
        for part in parts:
            last = first + len(part.table)
            if first < stop and start < last:
                rows.append(part.read(max(start, first) - first, min(stop, last) - first))
            first = last
        return np.concatenate(rows)

    return ForeignFeatures(
        pd.concat([part.table for part in parts], ignore_index=True),
        one_dim({part.paths[0]: part.dim for part in parts}),
        read,
        [path for part in parts for path in part.paths],
        parts[0].encoder,
    )


def _in_memory(
    table: pd.DataFrame, X: NDArray[Any], paths: Sequence[Path], encoder: str | None = None
) -> ForeignFeatures:
    """Embeddings that were read as a whole."""
    return ForeignFeatures(table, X.shape[1], lambda start, stop: X[start:stop], paths, encoder)


def one_dim(dims: Mapping[Path, int]) -> int:
    """Return the length of all embeddings, which must be one."""
    if len(set(dims.values())) > 1:
        first, *_ = dims
        odd = next(file for file in dims if dims[file] != dims[first])
        raise InputError(
            f"embeddings must have one length: {dims[first]} in {first.name}, "
            f"{dims[odd]} in {odd.name}"
        )
    return next(iter(dims.values()))


def format_of(path: Path) -> str:
    """Return the format, by a file's ending or by what a folder holds."""
    if not path.is_dir():
        by_ending = {".h5": "trident", ".hdf5": "trident", ".h5ad": "anndata", ".npy": "npz"}
        by_ending[".npz"] = "npz"
        return by_ending.get(path.suffix, "table")
    if (path / "manifest.csv").exists():
        return "eva"
    stores = [path] if is_zarr(path) else path.glob("*.zarr")
    if any((store / "tables").is_dir() for store in stores):
        return "spatialdata"
    if (is_zarr(path) and (path / "obs").is_dir()) or any(path.glob("*.h5ad")):
        return "anndata"
    if is_zarr(path):
        return "zarr"
    if any(path.rglob("*.h5")):
        return "trident"
    raise InputError(
        f"{path} holds neither eva's manifest.csv nor HDF5 files (*.h5, *.h5ad) nor Zarr. Name a "
        f"format: {', '.join(FORMATS)}"
    )


def _row_numbers(n: int) -> pd.Series[str]:
    """Ids of rows that have no names."""
    return pd.Series(np.arange(n).astype(str), dtype="string")


def _from_matrix(read: Callable[..., tuple[Any, NamedColumns]], path: Path) -> ForeignFeatures:
    X, columns = read(path, {})
    table: pd.DataFrame = columns.table.to_pandas()
    table = table[[c for c in table if c == "id" or _is_role(str(c))]]
    if "id" in table:
        with columns.messages():
            table["id"] = columns.ids()
    else:
        table.insert(0, "id", _row_numbers(len(X)))
    return _in_memory(table, X, [path])


def _is_role(column: str) -> bool:
    """Whether a column says something of cases besides their names."""
    return (column in case_roles() and column != "id") or column.startswith("votes_")


# TRIDENT


def _from_trident(path: Path) -> ForeignFeatures:
    files = sorted(path.rglob("*.h5")) if path.is_dir() else [check_file(path, "an HDF5 file")]
    if not files:
        raise InputError(f"{path} holds no HDF5 files (*.h5)")
    # Folders below one features_<encoder> are of one kind: TRIDENT names it after what it holds.
    folders = dict.fromkeys(file.parent for file in files)
    homes = {_home(folder) for folder in folders}
    if len(homes) > 1:
        named = some([folder.relative_to(path).as_posix() for folder in folders])
        raise InputError(
            f"{path} has HDF5 files in {len(folders)} folders ({named}), which may not belong "
            "together: give one of them"
        )
    slides: list[ForeignFeatures] = []
    total = 0
    for file in files:
        slide = _read_slide(file)
        if len(slide.table.columns) != len((slides or [slide])[0].table.columns):
            raise InputError(
                f"{files[0]} holds features of {_kind(slides[0])}, {file} of {_kind(slide)}: import one "
                "kind at a time"
            )
        total = check_cases(total + len(slide.table), file)
        slides.append(slide)
    with open_hdf5(files[0]) as handle:
        encoder = _named_encoder(handle["features"], files[0])
    named_folder = _FEATURE_FOLDER.fullmatch(homes.pop().name)
    if encoder is None and named_folder is not None:
        encoder = named_folder[1]
    with in_file(str(path)):
        return replace(joined(slides), encoder=encoder)


def _kind(slide: ForeignFeatures) -> str:
    """What the rows of one of TRIDENT's files are: patches have coordinates."""
    if "x" in slide.table:
        return "patches"
    return "a slide"


def _read_slide(file: Path) -> ForeignFeatures:
    """Read all of a file but its features."""
    name = file.stem
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the file name {str(file)!r} is not valid Unicode. Rename the file."
        ) from None
    with open_hdf5(file) as handle:
        features = need_array(handle, "features", file)
        shape = tuple(map(int, features.shape))
        if len(shape) not in (1, 2, 3) or shape[:-2] not in ((), (1,)) or shape[-1] == 0:
            raise InputError(f"{file}: features must be (N, d) or (d,), got {shape}")
        read = partial(_read_patches, file)
        if len(shape) == 1:
            cases = pd.DataFrame({"id": [name], "group": [name]})
            return ForeignFeatures(cases, shape[-1], read, [file])
        count = check_cases(shape[-2], file)
        array = need_array(handle, "coords", file)
        if tuple(array.shape) not in ((count, 2), (1, count, 2)):
            raise InputError(
                f"{file}: coords must be ({count}, 2), x and y of every patch, got {array.shape}"
            )
        coords = read_hdf5(array, file).reshape(-1, 2)
    if not np.isfinite(coords).all():
        raise InputError(f"{file}: coords must be finite, got NaN or infinity")
    ids = [f"{name}_{x}_{y}" for x, y in coords.tolist()]
    cases = pd.DataFrame({"id": ids, "group": name, "x": coords[:, 0], "y": coords[:, 1]})
    return ForeignFeatures(cases, shape[-1], read, [file])


def _read_patches(file: Path, start: int, stop: int) -> NDArray[Any]:
    with open_hdf5(file) as handle:
        array = need_array(handle, "features", file)
        part = slice(start, stop)
        where = ((), part, (0, part))[array.ndim - 1]
        return read_hdf5(array, file, where).reshape(-1, array.shape[-1])


def _named_encoder(features: Any, file: Path) -> str | None:
    with reading(file, "an HDF5 file", checked=True):
        if not len(features.attrs):
            return None
        check_heaps(file)
        name = features.attrs.get("encoder")
        return name.decode() if isinstance(name, bytes) else None if name is None else str(name)


def _home(folder: Path) -> Path:
    """The nearest folder upwards that is called ``features_<encoder>``; else the folder itself."""
    upwards = (folder, *folder.parents)
    return next((f for f in upwards if _FEATURE_FOLDER.fullmatch(f.name)), folder)


# eva


def _from_eva(path: Path) -> ForeignFeatures:
    listed = path / "manifest.csv"
    manifest = read_filled(listed, ["origin", "embeddings"], text=["wsi_id"])
    files = [check_file(inside(path, str(name), listed)) for name in manifest["embeddings"]]
    blocks = [_read_tensors(file) for file in files]
    with in_file(str(path)):
        one_dim({file: block.shape[1] for file, block in zip(files, blocks, strict=True)})
    ids = []
    for origin, block in zip(manifest["origin"].astype(str), blocks, strict=True):
        if len(block) == 1:
            ids.append(origin)
        else:
            ids += [f"{origin}#{k}" for k in range(len(block))]
    columns = {"target": "label", "wsi_id": "group", "split": "split"}
    table = manifest[[name for name in columns if name in manifest]].rename(columns=columns)
    table = table.loc[table.index.repeat([len(block) for block in blocks])].reset_index(drop=True)
    for name in ("group", "split"):
        if name in table:
            table[name] = table[name].astype("string")
    table.insert(0, "id", pd.Series(ids, dtype="string"))
    return _in_memory(table, np.concatenate(blocks), [listed, *dict.fromkeys(files)])


def _read_tensors(file: Path) -> NDArray[Any]:
    """Return a .pt file's tensor, or its list of tensors, as rows; nothing in it is run."""
    torch = library("torch", "an import of .pt files")
    content = read_state_dict(file)
    tensors = list(content) if isinstance(content, list | tuple) else [content]
    if not tensors or not all(isinstance(t, torch.Tensor) and t.ndim >= 1 for t in tensors):
        raise InputError(f"{file} must hold a tensor or a list of tensors")
    for t in tensors:
        if t.is_complex() or t.is_quantized or t.layout != torch.strided or t.device.type != "cpu":
            raise InputError(f"{file} must hold plain real numbers, got {t.dtype}, {t.layout}")
        # A tensor may repeat its values without end by a stride of zero.
        if t.numel() == 0 or t.numel() * t.element_size() > t.untyped_storage().nbytes():
            raise InputError(
                f"{file} declares a tensor of shape {tuple(t.shape)}, but holds "
                f"{t.untyped_storage().nbytes():,} bytes: save it again, t.clone()"
            )
    widths = sorted({t.shape[-1] for t in tensors})
    if len(widths) > 1:
        raise InputError(
            f"{file}: embeddings must have one length, got {widths[0]} and {widths[-1]}"
        )
    # float64 holds every value of the other types; what float32 cannot hold is refused on writing.
    narrow = all(t.is_floating_point() and t.dtype != torch.float64 for t in tensors)
    kind = torch.float32 if narrow else torch.float64
    with reading(file, "a PyTorch file", checked=True):
        flat = [t.detach().reshape(-1, t.shape[-1]).to(kind) for t in tensors]
        return np.asarray(torch.cat(flat))


# Zarr and AnnData
#
# LazySlide keeps a slide as <slide>.zarr; its tile features are the table tables/<encoder>_<tiles>, whose
# obs numbers the tiles, and features of the whole slide are uns/agg_ops/agg_slide of that table. Only X,
# obs and uns of AnnData are read, by zarr and h5py: anndata and spatialdata themselves are not needed, and
# images and shapes are not opened.


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Make calls of zarr and h5py: their failures are the file's, their remarks are nobody's."""
    with warnings.catch_warnings(), reading(path, what, checked=True):
        # On changes to come in their own or in each other's versions.
        for category in (DeprecationWarning, FutureWarning, UserWarning):
            warnings.simplefilter("ignore", category)
        yield


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr group or array."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


def _from_zarr(path: Path) -> ForeignFeatures:
    """Read a Zarr array of shape (n, d), or a group with such an array ``X`` and others beside it."""
    _refuse_pickles(path)
    opened = _open_zarr(path)
    X, table = opened, pd.DataFrame()
    with _reading(path, "a Zarr store"):
        arrays: dict[str, str] = {}
        if not hasattr(opened, "shape"):
            X = opened.get("X")
            if not hasattr(X, "shape"):
                there = some(sorted(opened), 8) or "nothing"
                raise InputError(f"{path} has no array 'X'. It has: {there}")
            roles = {"y": "label"} | {role: role for role in case_roles()}
            arrays = {name: role for name, role in roles.items() if name in opened}
        dim = _width(X, path)
        for name, role in arrays.items():
            shape = getattr(opened[name], "shape", None)
            if shape != X.shape[:1]:
                raise InputError(
                    f"{path}: {name!r} must have one value for each of the {X.shape[0]} rows of X, got "
                    f"shape {shape}"
                )
            values = _read_array(opened[name], f"{path}/{name}")
            text = values.dtype.kind == "O"
            table[role] = pd.array(values, dtype="string") if text else values
    if "id" not in table:
        table.insert(0, "id", _row_numbers(X.shape[0]))

    def read(start: int, stop: int) -> NDArray[Any]:
        with _reading(path, "a Zarr array"):
            return np.asarray(X[start:stop])

    return ForeignFeatures(table, dim, read, [path])


@dataclass(frozen=True)
class _Table:
    """One AnnData table: where it is, its rows' names and other columns, what its ``uns`` says of it."""

    path: Path
    obs: pd.DataFrame
    dim: int
    region: str | None
    instance_key: str

    @property
    def store(self) -> Path:
        """The SpatialData store, ``<slide>.zarr``, that the table lies in."""
        return self.path.parents[1]

    @property
    def encoder(self) -> str:
        """The encoder, after which LazySlide names the table."""
        return self.path.name.removesuffix(f"_{self.region}")


def _from_anndata(path: Path, encoder: str | None = None) -> ForeignFeatures:
    """Read X of AnnData's .h5ad or Zarr, or of a folder of .h5ad files; the file is then the group."""
    files, slides = [path], [""]
    if path.is_dir() and not is_zarr(path):
        files = sorted(path.glob("*.h5ad"))
        slides = [file.stem for file in files]
    if not files:
        raise InputError(f"{path} holds no AnnData: expected .h5ad files or a Zarr store")
    tables = [_read_table(file) for file in files]
    for file in files:
        with _open_table(file) as group, _reading(file, "an AnnData table"):
            named = [
                key for key in group.get("obsm", ()) if encoder in (key, key.removeprefix("X_"))
            ]
        if named:
            raise InputError(
                f"{file}: the embeddings of {encoder!r} are in obsm[{named[0]!r}], but X is what is read. "
                f"Write them as X: AnnData(adata.obsm[{named[0]!r}], obs=adata.obs)"
            )
    parts = []
    for table, slide in zip(tables, slides, strict=True):
        parts.append(_tile_features(table, table.obs.index, slide))
    return joined(parts)


def _from_spatialdata(path: Path, encoder: str | None = None) -> ForeignFeatures:
    """Read tile features of one SpatialData store, or of a folder of them; a store is a slide.

    The id of a tile is ``<slide>_<tile_id>``. Where a store has features of several encoders, `encoder`
    names one.
    """
    parts = []
    for table in _tables(path, encoder):
        tiles: Any = table.obs.index
        if table.instance_key in table.obs:
            tiles = table.obs[table.instance_key]
        parts.append(_tile_features(table, tiles, table.store.stem, table.encoder))
    return joined(parts)


def _from_spatialdata_slides(path: Path, encoder: str | None = None) -> ForeignFeatures:
    """Read the features of whole slides that LazySlide's ``feature_aggregation`` left in the stores."""
    parts = []
    for table in _tables(path, encoder):
        cases = pd.DataFrame({"id": [table.store.stem], "group": [table.store.stem]})
        parts.append(_in_memory(cases, _slide_row(table), [table.path], table.encoder))
    return joined(parts)


def _slide_row(table: _Table) -> NDArray[Any]:
    features, by_tile = f"uns/agg_ops/{_SLIDE}/features", f"varm/{_SLIDE}"
    with _open_table(table.path) as group, _reading(table.path, "an AnnData table"):
        if features in group:
            row = np.asarray(group[features])
        elif by_tile in group:
            row = np.asarray(group[by_tile]).T
        else:
            raise InputError(
                f"{table.store} has no features of the whole slide in table {table.path.name!r}: run "
                "LazySlide's feature_aggregation without `by`, or import the tiles (--format spatialdata)"
            )
    if row.ndim != 2 or row.shape[0] != 1:
        raise InputError(
            f"{table.path}: {_SLIDE} must hold one row of features, got shape {row.shape}"
        )
    return row


def _tables(path: Path, encoder: str | None) -> list[_Table]:
    """The table of one encoder's features in each store below `path`."""
    stores = [path] if is_zarr(path) else sorted(p for p in path.glob("*.zarr") if is_zarr(p))
    if not stores:
        raise InputError(f"{path} holds no SpatialData store: expected <slide>.zarr folders")
    chosen = None
    tables = []
    for store in stores:
        folders = sorted((store / "tables").glob("*"))
        holding = [f.name for f in folders if is_zarr(f) and _holds_features(f)]
        asked = chosen or encoder
        names = [name for name in holding if asked in (None, name)]
        if not names and chosen is None:
            # LazySlide calls them <encoder>_<tiles>.
            names = [name for name in holding if name.startswith(f"{encoder}_")]
        known = some(holding, 8) or "none"
        if len(names) > 1:
            raise InputError(
                f"{store} has {len(names)} tables of features ({known}): name the encoder of one "
                "(--encoder)"
            )
        if not names:
            of = f" of {asked!r}" if asked else ""
            raise InputError(
                f"{store} has no table of features{of}. Its tables with features: {known}"
            )
        chosen = names[0]
        tables.append(_read_table(store / "tables" / chosen))
    return tables


def _holds_features(folder: Path) -> bool:
    """Whether a table has columns: one of a graph of tiles has none."""
    with _open_table(folder) as group, _reading(folder, "an AnnData table"):
        X = group.get("X")
        # A sparse one is a group, and is refused where it is read.
        shape = getattr(X, "shape", (0, 1))
        return X is not None and len(shape) == 2 and int(shape[1]) > 0


@contextmanager
def _open_table(path: Path) -> Iterator[Any]:
    """Open AnnData's group in a .h5ad file or a Zarr folder."""
    if path.is_dir():
        yield _open_zarr(path)
    else:
        with open_hdf5(path) as file:
            check_own(file, ("X", "obs", "uns", "varm"), path)
            yield file


def _open_zarr(path: Path) -> Any:
    zarr = library("zarr", "reading Zarr", _EXTRA)
    if not is_zarr(path):
        raise InputError(f"{path} is not a Zarr folder: it has no zarr.json, .zgroup or .zarray")
    for file in path.rglob("*"):
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            raise InputError(f"{file} is a link or no plain file, which a Zarr store may not hold")
    with _reading(path, "a Zarr store"):
        return zarr.open(path, mode="r")


def _refuse_pickles(path: Path) -> None:
    """Fail where an array would be decoded by pickle, which can run any code."""
    for file in (f for name in _METADATA for f in path.rglob(name)):
        with reading(file, "metadata of Zarr"):
            if _names_pickle(json.loads(file.read_text(encoding="utf-8"))):
                raise InputError(
                    f"{file.parent} holds Python objects (codec pickle), which are not read: save numbers "
                    "and text as plain arrays"
                )


def _names_pickle(value: Any) -> bool:
    if isinstance(value, dict):
        named = (value.get("id"), value.get("name"))
        return any(str(name).removeprefix("numcodecs.") == "pickle" for name in named) or any(
            map(_names_pickle, value.values())
        )
    return isinstance(value, list) and any(map(_names_pickle, value))


def _read_table(path: Path) -> _Table:
    if path.is_dir():
        _refuse_pickles(path)
    with _open_table(path) as group, _reading(path, "an AnnData table"):
        for key in ("X", "obs"):
            if key not in group:
                raise InputError(
                    f"{path} is not an AnnData with features: it has no {key!r}, only "
                    f"{some(sorted(group), 8) or 'nothing'}"
                )
        X = group["X"]
        if not hasattr(X, "shape"):
            raise InputError(
                f"{path}: X is not an array but {_attribute(X, 'encoding-type') or 'a group'}, such as a "
                "sparse matrix. Write it as a plain array: adata.X = adata.X.toarray()"
            )
        dim = _width(X, path)
        settings, where = group.get("uns/spatialdata_attrs", {}), f"{path}/uns/spatialdata_attrs"
        region = _read_setting(settings, "region", where)
        key = str(_read_setting(settings, "instance_key", where) or "tile_id")
        obs = _read_frame(
            group["obs"],
            lambda name: _is_role(name) or name == key,
            int(X.shape[0]),
            f"{path}/obs",
        )
    return _Table(path, obs, dim, region, key)


def _width(X: Any, path: Path) -> int:
    """Length of embeddings, after a check that they are rows of numbers."""
    if len(X.shape) != 2 or X.dtype.kind not in "fiu":
        raise InputError(
            f"{path}: embeddings must be numbers of shape (n, d), got {X.shape} of {X.dtype}"
        )
    check_cases(int(X.shape[0]), path)
    chunk = math.prod(getattr(X, "chunks", None) or ()) * X.dtype.itemsize
    check_limit(chunk, "memory", f"{path}: the size of one chunk")
    return int(X.shape[1])


def _tile_features(
    table: _Table, names: Any, slide: str, encoder: str | None = None
) -> ForeignFeatures:
    """The rows of a table; those of a slide have its name in their ids and as their group."""
    ids = names.astype(str).tolist()
    if slide:
        ids = [f"{slide}_{name}" for name in ids]
    cases = pd.DataFrame({"id": pd.array(ids, dtype="string")})
    for column in filter(_is_role, map(str, table.obs)):
        values = table.obs[column]
        if values.dtype.kind in "biuf":
            cases[column] = values.to_numpy()
        else:
            cases[column] = values.astype("string").array
    if slide:
        cases["group"] = pd.array([slide] * len(cases), dtype="string")

    def read(start: int, stop: int) -> NDArray[Any]:
        with _open_table(table.path) as group, _reading(table.path, "embeddings"):
            return np.asarray(group["X"][start:stop])

    return ForeignFeatures(cases, table.dim, read, [table.path], encoder)


# Elements of AnnData, as anndata 0.8 and later lays them out
# (https://anndata.readthedocs.io/en/stable/fileformat-prose.html). zarr and h5py fail in their own ways on
# damaged stores, so these are called inside `_reading`.


def _read_frame(group: Any, wanted: Callable[[str], bool], n: int, where: str) -> pd.DataFrame:
    """Read the names of `n` rows, as the index, and the wanted columns of a data frame."""
    order = np.asarray(group.attrs["column-order"]).astype(str).ravel().tolist()
    index = _attribute(group, "_index")
    columns = {name: _read_column(group, name, n, where) for name in order if wanted(name)}
    return pd.DataFrame(columns, index=pd.Index(_read_column(group, index, n, where)))


def _read_column(group: Any, name: str, n: int | None, where: str) -> Any:
    """Read a column of `n` values (of any number: None) as NumPy or pandas holds it."""
    what = f"{where}/{name}"
    element = _member(group, name, where)
    if hasattr(element, "shape"):
        if "categories" in element.attrs:  # the codes alone would pass for labels
            raise InputError(f"{what} is of anndata before 0.8: read and write it by a newer one")
        if len(element.shape) != 1 or (n is not None and element.shape[0] != n):
            raise InputError(f"{what} must hold {n or 'a row of'} values, got {element.shape}")
        return _read_array(element, what)
    encoding = _attribute(element, "encoding-type")
    if encoding == "categorical":
        categories = _read_column(element, "categories", None, what)
        return pd.Categorical.from_codes(_read_column(element, "codes", n, what), categories)
    if encoding in ("nullable-integer", "nullable-boolean", "nullable-string-array"):
        values = _read_column(element, "values", n, what)
        dtype: Any = "string" if values.dtype.kind == "O" else None
        masked = pd.array(values, dtype=dtype)
        masked[_read_column(element, "mask", n, what).astype(bool)] = pd.NA
        return masked
    raise InputError(f"{what} is stored as {encoding!r}: expected numbers, text or categories")


def _read_setting(group: Any, name: str, where: str) -> Any:
    """Read a text, a number or a list of them; None if there is none."""
    if name not in group or _attribute(group[name], "encoding-type") == "null":
        return None
    return _read_array(_member(group, name, where), f"{where}/{name}").tolist()


def _read_array(array: Any, what: str) -> NDArray[Any]:
    """Read a whole array of zarr or h5py, if it fits into the memory; text as Python's, in objects."""
    text = array.dtype.kind in "OSUT"
    items = max(math.prod(array.shape), math.prod(getattr(array, "chunks", None) or ()))
    size = items * max(array.dtype.itemsize, BYTES_PER_CASE if text else 0)
    check_limit(size, "memory", f"{what}: its size")
    if text and hasattr(array, "asstr"):
        array = array.asstr("utf-8")  # of h5py, which holds text as bytes; fails on other objects
    values = np.asarray(array[()])
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    plain = values.dtype.kind in "biuf"
    if text:
        values = values.astype(object)
        plain = all(isinstance(v, str) for v in values.flat)
    if not plain:
        raise InputError(f"{what} must hold numbers or text, got {array.dtype}")
    return values


def _member(group: Any, name: str, where: str) -> Any:
    """Return what lies in a group itself: HDF5 would follow a path to anywhere in the file."""
    if "/" in name or name in ("", ".", "..") or name not in group:
        raise InputError(f"{where} has no element {name!r} of its own")
    return group[name]


def _attribute(element: Any, name: str) -> str:
    """Return an attribute that is text; programs in other languages write it as bytes."""
    return str(np.asarray(element.attrs.get(name, "")).astype(str))


FORMATS: Mapping[str, Callable[..., ForeignFeatures]] = MappingProxyType(
    {
        "npz": partial(_from_matrix, matrix_from_npz),
        "table": partial(_from_matrix, matrix_from_table),
        "trident": _from_trident,
        "eva": _from_eva,
        "zarr": _from_zarr,
        "anndata": _from_anndata,
        "spatialdata": _from_spatialdata,
        "spatialdata-slides": _from_spatialdata_slides,
    }
)
"""Readers by name; those of `SEVERAL_ENCODERS` take `encoder` too."""

SEVERAL_ENCODERS = ("anndata", "spatialdata", "spatialdata-slides")
"""Formats whose stores may hold the features of several encoders."""
