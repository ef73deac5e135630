"""Elements of AnnData, read by zarr or h5py alone: columns of data frames, settings, sparse matrices.

The layout is that of anndata 0.8 and later (https://anndata.readthedocs.io/en/stable/fileformat-prose.html).
Call these functions inside `scverse.reading`: zarr and h5py fail in their own ways on damaged stores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError
from scalecal.io.arrays import BYTES_PER_CASE, check_cases
from scalecal.limits import check_limit

if TYPE_CHECKING:
    import pandas as pd


def read_frame(group: Any, wanted: Callable[[str], bool], n: int, where: str) -> pd.DataFrame:
    """Read the names of `n` rows, as the index, and the wanted columns of a data frame."""
    import pandas as pd

    order = np.asarray(group.attrs["column-order"]).astype(str).ravel().tolist()
    index = _attribute(group, "_index")
    columns = {name: read_column(group, name, n, where) for name in order if wanted(name)}
    return pd.DataFrame(columns, index=pd.Index(read_column(group, index, n, where)))


def read_column(group: Any, name: str, n: int | None, where: str) -> Any:
    """Read a column of `n` values (of any number: None) as NumPy or pandas holds it."""
    import pandas as pd

    what = f"{where}/{name}"
    element = _member(group, name, where)
    if hasattr(element, "shape"):
        if "categories" in element.attrs:  # the codes alone would pass for labels
            raise InputError(f"{what} is of anndata before 0.8: read and write it by a newer one")
        if len(element.shape) != 1 or (n is not None and element.shape[0] != n):
            raise InputError(f"{what} must hold {n or 'a row of'} values, got {element.shape}")
        return read_array(element, what)
    encoding = _attribute(element, "encoding-type")
    if encoding == "categorical":
        categories = read_column(element, "categories", None, what)
        return pd.Categorical.from_codes(read_column(element, "codes", n, what), categories)
    if encoding in ("nullable-integer", "nullable-boolean", "nullable-string-array"):
        values = read_column(element, "values", n, what)
        dtype: Any = "string" if values.dtype.kind == "O" else None
        masked = pd.array(values, dtype=dtype)
        masked[read_column(element, "mask", n, what).astype(bool)] = pd.NA
        return masked
    raise InputError(f"{what} is stored as {encoding!r}: expected numbers, text or categories")


def read_setting(group: Any, name: str, where: str) -> Any:
    """Read a text, a number or a list of them; None where there is none."""
    if name not in group or _attribute(group[name], "encoding-type") == "null":
        return None
    return read_array(_member(group, name, where), f"{where}/{name}").tolist()


def read_sparse(group: Any, where: str) -> Any:
    """Read a compressed sparse matrix as one of rows, its indices checked."""
    import scipy.sparse

    kinds = {"csr_matrix": scipy.sparse.csr_matrix, "csc_matrix": scipy.sparse.csc_matrix}
    encoding = _attribute(group, "encoding-type")
    if encoding not in kinds:
        raise InputError(f"{where} is stored as {encoding!r}, expected {' or '.join(kinds)}")
    shape = tuple(map(int, group.attrs["shape"]))
    check_cases(shape[0], where)  # before `tocsr`, which takes memory for every row
    parts = [read_column(group, name, None, where) for name in ("data", "indices", "indptr")]
    matrix = kinds[encoding](tuple(parts), shape=shape)
    matrix.check_format(full_check=True)  # indices out of range would write anywhere
    return matrix.tocsr()


def read_array(array: Any, what: str) -> NDArray[Any]:
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
    values = values.astype(object) if text else values
    plain = all(isinstance(v, str) for v in values.flat) if text else values.dtype.kind in "biuf"
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
