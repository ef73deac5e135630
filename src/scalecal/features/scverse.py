"""Embeddings in Zarr arrays and AnnData tables, alone or in the SpatialData stores that LazySlide writes.

LazySlide keeps a slide as ``<slide>.zarr``; its tile features are the table ``tables/<encoder>_<tiles>``,
whose ``obs`` numbers the tiles, and features of the whole slide are ``uns/agg_ops/agg_slide`` of that table.
Only ``X``, ``obs`` and ``uns`` of the table are read, by zarr and h5py: anndata and spatialdata themselves
are not needed, and images and shapes are not opened.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, library
from scalecal.features.foreign_rows import ForeignFeatures, joined_rows, one_dim
from scalecal.io.arrays import BYTES_PER_CASE, check_cases, check_own, open_hdf5
from scalecal.io.boundary import reading
from scalecal.io.features import case_roles
from scalecal.io.input_columns import some
from scalecal.limits import check_limit

if TYPE_CHECKING:
    import pandas as pd

_EXTRA = "'scalecal[interop]'"
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")
_SLIDE = "agg_slide"  # LazySlide's name for the features of a whole slide


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


def zarr_kind(path: Path) -> str | None:
    """Return the format of a folder that is a Zarr store, or holds stores or .h5ad files; else None."""
    if is_zarr(path):
        if (path / "tables").is_dir():
            return "spatialdata"
        if (path / "obs").is_dir():
            return "anndata"
        return "zarr"
    if any((store / "tables").is_dir() for store in path.glob("*.zarr")):
        return "spatialdata"
    if any(path.glob("*.h5ad")):
        return "anndata"
    return None


def from_zarr(path: Path) -> ForeignFeatures:
    """Read a Zarr array of shape (n, d), or a group with such an array ``X`` and others beside it."""
    import pandas as pd

    _refuse_pickles(path)
    opened = _open_zarr(path)
    X, table = opened, pd.DataFrame()
    with _reading(path, "a Zarr store"):
        if not hasattr(opened, "shape"):
            if not hasattr(opened.get("X"), "shape"):
                there = some(sorted(opened), 8) or "nothing"
                raise InputError(f"{path} has no array 'X'. It has: {there}")
            X = opened["X"]
        dim = _width(X, path)
        roles = {}
        if X is not opened:
            known = {"y": "label"} | {role: role for role in case_roles()}
            roles = {name: role for name, role in known.items() if name in opened}
        for name, role in roles.items():
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
        table.insert(0, "id", pd.Series([str(i) for i in range(X.shape[0])], dtype="string"))

    def read(start: int, stop: int) -> NDArray[Any]:
        with _reading(path, "a Zarr array"):
            return np.asarray(X[start:stop])

    return ForeignFeatures(table, dim, read, _files(path))


@dataclass(frozen=True)
class _Table:
    """One AnnData table: where it is, its rows' names and other columns, what its ``uns`` says of it."""

    path: Path
    obs: pd.DataFrame
    dim: int
    attrs: Mapping[str, Any]
    sparse: Any = None

    def read(self, start: int, stop: int) -> NDArray[Any]:
        if self.sparse is not None:
            with _reading(self.path, "embeddings"):
                return np.asarray(self.sparse[start:stop].toarray())
        with _open_table(self.path) as group, _reading(self.path, "embeddings"):
            return np.asarray(group["X"][start:stop])


def from_anndata(path: Path, encoder: str | None = None) -> ForeignFeatures:
    """Read X of AnnData's .h5ad or Zarr, or of a folder of .h5ad files; the file is then the group."""
    import pandas as pd

    several = path.is_dir() and not is_zarr(path)
    files = sorted(path.glob("*.h5ad")) if several else [path]
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
    frames = [
        _cases(table, table.obs.index.astype(str), file.stem if several else None)
        for file, table in zip(files, tables, strict=True)
    ]
    return _together(tables, pd.concat(frames, ignore_index=True), None)


def from_spatialdata(path: Path, encoder: str | None = None) -> ForeignFeatures:
    """Read tile features of one SpatialData store, or of a folder of them; a store is a slide.

    The id of a tile is ``<slide>_<tile_id>``. Where a store has features of several encoders, `encoder`
    names one.
    """
    import pandas as pd

    stores, tables = _tables(path, encoder)
    frames = []
    for store, table in zip(stores, tables, strict=True):
        key = table.attrs["instance_key"]
        names = table.obs[key] if key in table.obs else table.obs.index.to_series()
        frames.append(_cases(table, names.astype(str), store.stem))
    return _together(tables, pd.concat(frames, ignore_index=True), _encoder(tables[0]))


def from_spatialdata_slides(path: Path, encoder: str | None = None) -> ForeignFeatures:
    """Read the features of whole slides that LazySlide's ``feature_aggregation`` left in the stores."""
    import pandas as pd

    stores, tables = _tables(path, encoder)
    rows = {
        table.path: _slide_row(store, table) for store, table in zip(stores, tables, strict=True)
    }
    dim = one_dim({store: len(row) for store, row in zip(stores, rows.values(), strict=True)})
    X = np.stack(list(rows.values()))
    slides = [store.stem for store in stores]
    return ForeignFeatures(
        pd.DataFrame({"id": slides, "group": slides}),
        dim,
        lambda start, stop: X[start:stop],
        [file for table in tables for file in _files(table.path)],
        _encoder(tables[0]),
    )


def _slide_row(store: Path, table: _Table) -> NDArray[Any]:
    with _open_table(table.path) as group, _reading(table.path, "an AnnData table"):
        for key, turned in ((f"uns/agg_ops/{_SLIDE}/features", False), (f"varm/{_SLIDE}", True)):
            if key in group:
                found = np.asarray(group[key])
                if turned:
                    found = found.T
                if found.ndim != 2 or found.shape[0] != 1:
                    raise InputError(
                        f"{table.path / key} must hold one row of features, got shape {found.shape}"
                    )
                return np.asarray(found[0])
    raise InputError(
        f"{store} has no features of the whole slide in table {table.path.name!r}: run LazySlide's "
        "feature_aggregation without `by`, or import the tiles (--format spatialdata)"
    )


def _tables(path: Path, encoder: str | None) -> tuple[list[Path], list[_Table]]:
    """Stores below `path`, and the table of one encoder's features in each."""
    stores = [path] if is_zarr(path) else sorted(p for p in path.glob("*.zarr") if is_zarr(p))
    if not stores:
        raise InputError(f"{path} holds no SpatialData store: expected <slide>.zarr folders")
    chosen = ""
    tables = []
    for store in stores:
        found = {
            folder.name: folder
            for folder in sorted((store / "tables").glob("*"))
            if is_zarr(folder) and _holds_features(folder)
        }
        known = some(list(found), 8) or "none"
        names = [chosen] if chosen else _of_encoder(list(found), encoder)
        if len(names) > 1:
            raise InputError(
                f"{store} has {len(names)} tables of features ({known}): name the encoder of one "
                "(--encoder)"
            )
        if not names or names[0] not in found:
            asked = chosen or encoder
            of = f" of {asked!r}" if asked else ""
            raise InputError(
                f"{store} has no table of features{of}. Its tables with features: {known}"
            )
        chosen = names[0]
        tables.append(_read_table(found[chosen]))
    return stores, tables


def _of_encoder(names: Sequence[str], encoder: str | None) -> list[str]:
    """Return the tables that may be meant: LazySlide calls them ``<encoder>_<tiles>``."""
    if encoder is None:
        return list(names)
    if encoder in names:
        return [encoder]
    return [name for name in names if name.startswith(f"{encoder}_")]


def _encoder(table: _Table) -> str:
    return table.path.name.removesuffix(f"_{table.attrs['region']}")


def _holds_features(folder: Path) -> bool:
    """Whether a table has columns: one of a graph of tiles has none."""
    with _open_table(folder) as group, _reading(folder, "an AnnData table"):
        if "X" not in group:
            return False
        X = group["X"]  # a sparse one is a group
        shape = X.shape if hasattr(X, "shape") else X.attrs.get("shape", ())
        return len(shape) == 2 and int(shape[1]) > 0


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
        raise InputError(f"{path} is no Zarr folder: it has no zarr.json, .zgroup or .zarray")
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
                    f"{path} is no AnnData with features: it has no {key!r}, only "
                    f"{some(sorted(group), 8) or 'nothing'}"
                )
        X, sparse = group["X"], None
        if not hasattr(X, "shape"):  # a sparse matrix is a group
            X = sparse = _read_sparse(X, f"{path}/X")
        dim = _width(X, path)
        settings = group.get("uns/spatialdata_attrs", {})
        attrs = {
            key: _read_setting(settings, key, f"{path}/uns/spatialdata_attrs")
            for key in ("region", "instance_key")
        }
        attrs["instance_key"] = str(attrs["instance_key"] or "tile_id")
        obs = _read_frame(
            group["obs"],
            lambda name: _of_cases(name) or name == attrs["instance_key"],
            int(X.shape[0]),
            f"{path}/obs",
        )
    return _Table(path, obs, dim, attrs, sparse)


def _of_cases(column: str) -> bool:
    return (column in case_roles() and column != "id") or column.startswith("votes_")


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


def _cases(table: _Table, names: Any, slide: str | None) -> pd.DataFrame:
    """The columns of ``obs`` that speak of cases, with ids and, of a slide, the group."""
    import pandas as pd

    ids = names.tolist() if slide is None else [f"{slide}_{name}" for name in names]
    cases = pd.DataFrame({"id": pd.array(ids, dtype="string")})
    for column in map(str, table.obs.columns):
        if _of_cases(column):
            values = table.obs[column]
            text = values.dtype.kind not in "biuf"
            cases[column] = values.astype("string").array if text else values.to_numpy()
    if slide is not None:
        cases["group"] = pd.array([slide] * len(cases), dtype="string")
    return cases


def _together(
    tables: Sequence[_Table], cases: pd.DataFrame, encoder: str | None
) -> ForeignFeatures:
    dim = one_dim({table.path: table.dim for table in tables})
    read = joined_rows([len(t.obs) for t in tables], lambda k, a, b: tables[k].read(a, b))
    files = [file for table in tables for file in _files(table.path)]
    return ForeignFeatures(cases, dim, read, files, encoder)


def _files(path: Path) -> list[Path]:
    """A file, or all files of a folder."""
    if path.is_file():
        return [path]
    return sorted(f for f in path.rglob("*") if f.is_file())


# Elements of AnnData, as anndata 0.8 and later lays them out
# (https://anndata.readthedocs.io/en/stable/fileformat-prose.html). zarr and h5py fail in their own ways on
# damaged stores, so these are called inside `_reading`.


def _read_frame(group: Any, wanted: Callable[[str], bool], n: int, where: str) -> pd.DataFrame:
    """Read the names of `n` rows, as the index, and the wanted columns of a data frame."""
    import pandas as pd

    order = np.asarray(group.attrs["column-order"]).astype(str).ravel().tolist()
    index = _attribute(group, "_index")
    columns = {name: _read_column(group, name, n, where) for name in order if wanted(name)}
    return pd.DataFrame(columns, index=pd.Index(_read_column(group, index, n, where)))


def _read_column(group: Any, name: str, n: int | None, where: str) -> Any:
    """Read a column of `n` values (of any number: None) as NumPy or pandas holds it."""
    import pandas as pd

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
    """Read a text, a number or a list of them; None where there is none."""
    if name not in group or _attribute(group[name], "encoding-type") == "null":
        return None
    return _read_array(_member(group, name, where), f"{where}/{name}").tolist()


def _read_sparse(group: Any, where: str) -> Any:
    """Read a compressed sparse matrix as one of rows, its indices checked."""
    import scipy.sparse

    kinds = {"csr_matrix": scipy.sparse.csr_matrix, "csc_matrix": scipy.sparse.csc_matrix}
    encoding = _attribute(group, "encoding-type")
    if encoding not in kinds:
        raise InputError(f"{where} is stored as {encoding!r}, expected {' or '.join(kinds)}")
    shape = tuple(map(int, group.attrs["shape"]))
    check_cases(shape[0], where)  # before `tocsr`, which takes memory for every row
    parts = [_read_column(group, name, None, where) for name in ("data", "indices", "indptr")]
    matrix = kinds[encoding](tuple(parts), shape=shape)
    matrix.check_format(full_check=True)  # indices out of range would write anywhere
    return matrix.tocsr()


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
