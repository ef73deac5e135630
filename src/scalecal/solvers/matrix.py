"""Shared rows as numpy arrays, memory maps or torch tensors: gathering, thin products, host copies.

The solvers use what both libraries share through ``array_api_compat``, so the same lines run on
any device.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError
from scalecal.solvers.problem import Array, Scaling

# OpenBLAS multiplies without packing its operands below this many multiply-adds; for the thin
# products of a few probes that is two to three times as fast as one large call.
SMALL_PRODUCT = 1_000_000
TALLEST_BLOCK, NARROWEST_BLOCK = 32, 16
CHUNK_ROWS = 4096
FLOATS = ("float16", "bfloat16", "float32", "float64")


def product(a: Array, b: Array, out: Array) -> Array:
    """Write the matrix product ``a @ b`` into `out`, in blocks that suit few rows of `a`."""
    if not isinstance(out, np.ndarray):
        out[...] = a @ b
        return out
    rows, inner, columns = a.shape[0], a.shape[1], b.shape[1]
    height = min(TALLEST_BLOCK, SMALL_PRODUCT // (NARROWEST_BLOCK * max(1, inner)))
    if height < 4 or rows * inner * columns <= SMALL_PRODUCT:
        return np.matmul(a, b, out=out)
    # Blocks of about equal size; wide ones begin where a cache line does, if `b` does.
    height = _evenly(rows, height, 4)
    widest = SMALL_PRODUCT // (height * inner)
    width = _evenly(columns, widest, 4 if widest < 64 else 16)
    # The larger operand is `b`: each block of it is read once and met by all of `a`.
    for left in range(0, columns, width):
        for top in range(0, rows, height):
            block = slice(top, top + height), slice(left, left + width)
            np.matmul(a[block[0]], b[:, block[1]], out=out[block])
    return out


def _evenly(length: int, most: int, step: int) -> int:
    """The size, a multiple of `step`, of the fewest about equal parts that are no longer than `most`."""
    parts = -(-length // (most // step * step))
    return -(-length // parts // step) * step


def to_host(values: Array) -> NDArray[Any]:
    """Return `values` as a numpy array in main memory."""
    if isinstance(values, np.ndarray):
        return values
    return np.asarray(array_api_compat.to_device(values, "cpu"))


class Matrix:
    """The rows X (n, d), never copied whole: gathered, cast and scaled a batch at a time.

    float16 and float32 rows are computed in float32, float64 rows in float64.
    """

    def __init__(self, X: Array) -> None:
        if isinstance(X, np.memmap):
            X = np.asarray(X)  # the plain view gathers rows faster and still reads from the file
        if not array_api_compat.is_array_api_obj(X) or X.ndim != 2:
            raise InputError(f"X must be a 2-d array (n, features), got {type(X).__name__}")
        self.xp: Any = array_api_compat.array_namespace(X)
        self.X = X
        self.device: Any = array_api_compat.device(X)
        if str(X.dtype).rsplit(".", maxsplit=1)[-1] not in FLOATS:
            raise InputError(f"X must be float16, float32 or float64, got {X.dtype}")
        self.dtype: Any = self.xp.float64 if X.dtype == self.xp.float64 else self.xp.float32
        self.n_rows, self.n_features = (int(size) for size in X.shape)
        self._known: tuple[Scaling | None, Array, Array] = (None, None, None)
        # `np.take` would copy the whole of a matrix that is not aligned, as maps into .npz files are.
        self.plain = isinstance(X, np.ndarray) and bool(
            X.dtype == self.dtype and X.flags.aligned and X.flags.c_contiguous
        )

    def array(self, values: Any) -> Array:
        """Return host numbers as an array of the working precision beside X."""
        return self.xp.asarray(np.asarray(values), dtype=self.dtype, device=self.device)

    def index(self, values: Any) -> Array:
        """Return host row numbers as an index beside X."""
        return self.xp.asarray(np.asarray(values, dtype=np.int64), device=self.device)

    def empty(self, *shape: int) -> Array:
        """Return an array of the working precision, not yet filled."""
        return self.xp.empty(shape, dtype=self.dtype, device=self.device)

    def take(self, index: Array, scaling: Scaling | None = None, out: Array | None = None) -> Array:
        """Gather rows, with the part of `scaling` that is not one number applied.

        `out`, if given, is a buffer of at least as many rows that may be overwritten: fresh memory
        for every batch costs more than the gathering itself.
        """
        if isinstance(self.X, np.ndarray):
            if out is None:
                out = self.empty(len(index), self.n_features)
            rows = out[: len(index)]
            if self.plain:
                # "clip" spares a hidden copy; the row numbers were checked beforehand.
                np.take(self.X, index, axis=0, out=rows, mode="clip")
            else:
                rows[...] = self.X[index]
        else:
            # As one list of rows: torch has a faster kernel for that.
            flat = self.xp.take(self.X, self.xp.reshape(index, (-1,)), axis=0)
            rows = self.xp.reshape(flat, (*index.shape, self.n_features))
            if rows.dtype != self.dtype:
                rows = self.xp.astype(rows, self.dtype)
        if scaling is None or scaling.is_number:
            return rows
        if scaling.unit:
            lengths = self.xp.sqrt(self.xp.sum(rows * rows, axis=-1))
            rows /= self.xp.where(lengths > 0, lengths, self.xp.ones_like(lengths))[..., None]
        shift, scale = self._scales(scaling)
        if shift is not None:
            rows -= shift
        rows /= scale
        return rows

    def _scales(self, scaling: Scaling) -> tuple[Array | None, Array]:
        """Shift and scale beside X, moved there once."""
        if scaling is not self._known[0]:
            shift = None if scaling.shift is None else self.array(scaling.shift)
            self._known = scaling, shift, self.array(scaling.scale)
        return self._known[1:]
