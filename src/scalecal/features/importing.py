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
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases
from scalecal.checks import (
    InputError,
    ScalecalWarning,
    check_choice,
    in_file,
    library,
    lookup,
    rows,
)
from scalecal.datasets.image_sets import case_frame
from scalecal.encoders.weights import read_state_dict
from scalecal.features.foreign_rows import ForeignFeatures, joined_rows, one_dim
from scalecal.features.scverse import (
    from_anndata,
    from_spatialdata,
    from_spatialdata_slides,
    from_zarr,
    zarr_kind,
)
from scalecal.io.arrays import check_cases, check_heaps, need_array, open_hdf5, read_hdf5
from scalecal.io.boundary import check_file, inside, reading
from scalecal.io.case_tables import CaseReader, open_votes, without_empty_columns
from scalecal.io.feature_store import (
    FeatureFolder,
    StoreWriter,
    cast_embeddings,
    check_image_table,
    default_shard_rows,
    load_features,
)
from scalecal.io.features import case_roles, choose_classes, matrix_from_npz, matrix_from_table
from scalecal.io.input_columns import NamedColumns, as_ids, join, some
from scalecal.io.store import file_hash
from scalecal.io.tables import read_arrow, read_table
from scalecal.limits import check_limit

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# Formats whose stores may hold the features of several encoders.
_CHOOSING = ("anndata", "spatialdata", "spatialdata-slides")
_FEATURE_FOLDER = re.compile(r"(?:slide_)?features_(.+)")


def format_of(path: Path) -> str:
    """Return the format, by a file's ending or by what a folder holds."""
    if path.is_dir():
        if (path / "manifest.csv").exists():
            return "eva"
        if kind := zarr_kind(path):
            return kind
        if any(path.rglob("*.h5")):
            return "trident"
        raise InputError(
            f"{path} holds neither eva's manifest.csv nor HDF5 files (*.h5, *.h5ad) nor Zarr. Name a "
            f"format: {', '.join(FORMATS)}"
        )
    if path.suffix in (".h5", ".hdf5"):
        return "trident"
    if path.suffix == ".h5ad":
        return "anndata"
    return "npz" if path.suffix in (".npz", ".npy") else "table"


def _from_matrix(read: Callable[..., tuple[Any, NamedColumns]], path: Path) -> ForeignFeatures:
    import pandas as pd

    X, columns = read(path, {})
    table: pd.DataFrame = columns.table.to_pandas()
    table = table[[c for c in table if c in case_roles() or str(c).startswith("votes_")]]
    if "id" in table:
        with columns.messages():
            table["id"] = columns.ids()
    else:
        table.insert(0, "id", pd.Series([str(i) for i in range(len(X))], dtype="string"))
    return ForeignFeatures(table, X.shape[1], lambda start, stop: X[start:stop], [path])


def _from_trident(path: Path) -> ForeignFeatures:
    import pandas as pd

    files = sorted(path.rglob("*.h5")) if path.is_dir() else [check_file(path, "an HDF5 file")]
    if not files:
        raise InputError(f"{path} holds no HDF5 files (*.h5)")
    _one_kind(path, files)
    tables, dims, encoder, total = [], {}, None, 0
    kinds: dict[str, Path] = {}
    for file in files:
        slide = _encodable(file.stem, file)
        with open_hdf5(file) as handle:
            features = need_array(handle, "features", file)
            shape = tuple(map(int, features.shape))
            if len(shape) not in (1, 2, 3) or shape[:-2] not in ((), (1,)) or shape[-1] == 0:
                raise InputError(f"{file}: features must be (N, d) or (d,), got {shape}")
            encoder = encoder or _named_encoder(features, file)
            count = 1 if len(shape) == 1 else shape[-2]
            dims[file] = shape[-1]
            total = check_cases(total + count, file)
            kinds.setdefault("a slide" if len(shape) == 1 else "patches", file)
            if len(kinds) > 1:
                one, other = kinds.items()
                raise InputError(
                    f"{one[1]} holds features of {one[0]}, {other[1]} of {other[0]}: "
                    "import one kind at a time"
                )
            if len(shape) == 1:
                tables.append(pd.DataFrame({"id": [slide], "group": [slide]}))
                continue
            array = need_array(handle, "coords", file)
            if tuple(array.shape) not in ((count, 2), (1, count, 2)):
                raise InputError(
                    f"{file}: coords must be ({count}, 2), x and y of every patch, got {array.shape}"
                )
            coords = read_hdf5(array, file).reshape(-1, 2)
            if not np.isfinite(coords).all():
                raise InputError(f"{file}: coords must be finite, got NaN or infinity")
            ids = [f"{slide}_{x}_{y}" for x, y in coords.tolist()]
            tables.append(
                pd.DataFrame({"id": ids, "group": slide, "x": coords[:, 0], "y": coords[:, 1]})
            )
    with in_file(str(path)):
        dim = one_dim(dims)
    table = pd.concat(tables, ignore_index=True)
    counts = [len(t) for t in tables]

    def read(k: int, start: int, stop: int) -> NDArray[Any]:
        with open_hdf5(files[k]) as handle:
            array = need_array(handle, "features", files[k])
            part = slice(start, stop)
            where = ((), part, (0, part))[array.ndim - 1]
            return read_hdf5(array, files[k], where).reshape(-1, dim)

    if encoder is None:
        named = _FEATURE_FOLDER.fullmatch(_home(files[0].parent).name)
        encoder = named[1] if named else None
    return ForeignFeatures(table, dim, joined_rows(counts, read), files, encoder)


def _named_encoder(features: Any, file: Path) -> str | None:
    with reading(file, "an HDF5 file", checked=True):
        if not len(features.attrs):
            return None
        check_heaps(file)
        name = features.attrs.get("encoder")
        return name.decode() if isinstance(name, bytes) else None if name is None else str(name)


def _encodable(name: str, file: Path) -> str:
    """Return a file's name as an id, which must be text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the file name {str(file)!r} is not valid Unicode. Rename the file."
        ) from None
    return name


def _home(folder: Path) -> Path:
    """The nearest folder upwards that is called ``features_<encoder>``; else the folder itself."""
    upwards = (folder, *folder.parents)
    return next((f for f in upwards if _FEATURE_FOLDER.fullmatch(f.name)), folder)


def _one_kind(path: Path, files: Sequence[Path]) -> None:
    """Refuse files of several folders, which may be of other encoders, patches or whole slides.

    Folders below one ``features_<encoder>`` are of one kind: TRIDENT names it after what it holds.
    """
    folders = dict.fromkeys(file.parent for file in files)
    if len({_home(folder) for folder in folders}) > 1:
        named = some([folder.relative_to(path).as_posix() for folder in folders])
        raise InputError(
            f"{path} has HDF5 files in {len(folders)} folders ({named}), which may not belong "
            "together: give one of them"
        )


def _from_eva(path: Path) -> ForeignFeatures:
    import pandas as pd

    manifest = read_table(path / "manifest.csv", text=["origin", "embeddings", "wsi_id"])
    for column in ("origin", "embeddings"):
        if column not in manifest:
            raise InputError(
                f"{path / 'manifest.csv'} has no column {column!r}, only "
                f"{some(list(manifest)) or 'some without a name'}"
            )
        if manifest[column].isna().any():
            where = rows(manifest[column].isna().to_numpy())
            raise InputError(f"{path / 'manifest.csv'}: column {column!r} is empty at {where}")
    names = manifest["embeddings"].astype(str)
    files = [check_file(inside(path, name, path / "manifest.csv")) for name in names]
    blocks = [_tensor(file) for file in files]
    with in_file(str(path)):
        dim = one_dim({file: block.shape[1] for file, block in zip(files, blocks, strict=True)})
    counts = np.array([len(block) for block in blocks])
    table = pd.DataFrame({"id": manifest["origin"].astype("string")})
    if "target" in manifest:
        table["label"] = manifest["target"]
    if "wsi_id" in manifest:
        table["group"] = manifest["wsi_id"].astype("string")
    if "split" in manifest:
        table["split"] = manifest["split"].astype("string")
    table = table.loc[table.index.repeat(counts)].reset_index(drop=True)
    if (counts > 1).any():
        place = np.concatenate([np.arange(c) for c in counts])
        several = np.repeat(counts > 1, counts)
        numbered = table["id"].str.cat([f"#{k}" for k in place])
        table["id"] = table["id"].where(~several, numbered)
    X = np.concatenate(blocks)
    used = [path / "manifest.csv", *dict.fromkeys(files)]
    return ForeignFeatures(table, dim, lambda start, stop: X[start:stop], used)


def _tensor(file: Path) -> NDArray[Any]:
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


FORMATS: Mapping[str, Callable[..., ForeignFeatures]] = MappingProxyType(
    {
        "npz": partial(_from_matrix, matrix_from_npz),
        "table": partial(_from_matrix, matrix_from_table),
        "trident": _from_trident,
        "eva": _from_eva,
        "zarr": from_zarr,
        "anndata": from_anndata,
        "spatialdata": from_spatialdata,
        "spatialdata-slides": from_spatialdata_slides,
    }
)
"""Readers by name; those of stores that may hold several encoders take `encoder` too."""


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
        Name of the encoder, where the source does not name it; of several in a SpatialData store, the
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
    >>> import tempfile
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
    foreign = reader(source, **({"encoder": encoder} if kind in _CHOOSING else {}))
    if foreign.table.empty:
        raise InputError(f"{source} holds no embeddings")
    label_file, vote_file = (None if f is None else Path(f) for f in (labels, votes))
    cases, extra = _read_cases(foreign.table, label_file, vote_file, match, source.name)
    table = case_frame(cases, extra).dropna(axis=1, how="all")
    with in_file(str(source)):
        check_image_table(table)
    settings = {
        "encoder": {"name": encoder or foreign.encoder or "unknown"},
        "source": {"format": kind, "hash": _hash(foreign.files)},
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


def _hash(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(os.fsencode(file.name) + f"\0{file_hash(file)}\n".encode())
    return digest.hexdigest()


def _read_cases(
    table: pd.DataFrame, labels: Path | None, votes: Path | None, match: str, source: str
) -> tuple[Cases, dict[str, NDArray[Any]]]:
    """Cases with labels and votes joined by `match`, and the further columns of the tables."""
    import pyarrow as pa

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
