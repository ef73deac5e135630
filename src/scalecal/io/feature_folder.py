"""Reading a feature folder: a matrix that stays on the disk, and the table that goes with it.

A folder holds::

    manifest.json      what made the features, and (once complete) every file's rows and sha256
    table.parquet      one row per embedding, in the same order: id, label, votes, group, split, ...
    skipped.csv        the images that could not be read (only if there were any)
    shards/00000.npy   the embeddings, `shard_rows` images each
    shards/00000.json  the shard's sha256, and the images it had to leave out
    run.log            hosts, times, engine: the one file that differs from run to run

`scalecal.io.feature_store` writes it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from scalecal.checks import InputError
from scalecal.io.arrays import map_npy
from scalecal.io.boundary import inside, reading
from scalecal.io.documents import check_document, read_document
from scalecal.io.store import file_hash

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "scalecal-features-1"
MANIFEST = "manifest.json"
TABLE = "table.parquet"
SKIPPED = "skipped.csv"
SHARDS = "shards"

HASHED_BYTES = 1 << 30
"""Up to so many bytes of shards, using a folder reads them first and compares their hashes."""

_CHANGED = "The folder was changed. Extract again."


Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Named(msgspec.Struct):
    """What a manifest must say of the encoder."""

    name: str


class Data(msgspec.Struct):
    """What a manifest may say of the data set."""

    name: str | None = None
    n_images: Count | None = None
    classes: list[str] | None = None


class Begun(msgspec.Struct):
    """What the manifest of any folder must hold; beside it, all that decides the bytes."""

    complete: bool
    encoder: Named
    dim: Positive
    dtype: Literal["float16", "float32"]
    shard_rows: Positive
    columns: dict[str, str]
    version: str
    dataset: Data = msgspec.field(default_factory=Data)
    form: str | None = None
    batch_size: Positive | None = None
    requested_batch_size: Positive | None = None


class Shard(msgspec.Struct):
    """A finished folder's entry of one shard."""

    file: str
    start: Count
    stop: Count
    rows: Count
    bytes: Count
    sha256: str


class TextFile(msgspec.Struct):
    """A finished folder's entry of its table, or of its list of skipped images."""

    file: Literal["table.parquet", "skipped.csv"]
    sha256: str


class Finished(Begun, kw_only=True):
    """What the manifest of a finished folder must hold."""

    n: Positive
    n_skipped: Count
    table: TextFile
    skipped: TextFile | None
    shards: list[Shard]

    def __post_init__(self) -> None:
        for k, shard in enumerate(self.shards):
            if shard.file != shard_name(k):
                raise ValueError(f"Expected {shard_name(k)!r} - at `$.shards[{k}].file`")
            # The header of an .npy file is a few hundred bytes.
            header = shard.bytes - shard.rows * self.dim * np.dtype(self.dtype).itemsize
            if not 0 < header < 4096:
                raise ValueError(f"Expected another number of bytes - at `$.shards[{k}].bytes`")
        if sum(shard.rows for shard in self.shards) != self.n:
            raise ValueError("Expected as many rows in all shards - at `$.n`")


def shard_name(shard: int) -> str:
    """Return the name of a shard's file in its folder."""
    return f"{SHARDS}/{shard:05d}.npy"


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the manifest of a feature folder, finished or not."""
    file = Path(path) / MANIFEST
    if not os.path.lexists(file):
        raise InputError(
            f"no features at {path}. Run: scalecal extract DATASET ENCODER --data DIR --out {path}"
        )
    manifest = read_document(file, dict[str, Any], advice=_CHANGED)
    kind = manifest.get("format")
    if kind != FORMAT:
        raise InputError(
            f"{file} is not a feature manifest: format is {repr(kind)[:60]}, not {FORMAT!r}"
        )
    check_document(file, manifest, Finished if manifest.get("complete") else Begun, advice=_CHANGED)
    return manifest


def damaged_files(
    path: Path, manifest: Mapping[str, Any], *, hashed: bool = True
) -> dict[str, str]:
    """Return the files of a finished folder that are not what its manifest says, and how they differ.

    Without `hashed` only those that are missing or of another size.
    """
    damaged = {}
    for entry in filter(None, [*manifest["shards"], manifest["table"], manifest["skipped"]]):
        name = entry["file"]
        file = inside(path, name, path / MANIFEST)
        if not file.is_file():
            damaged[name] = "is missing"
            continue
        size = file.stat().st_size
        if size != entry.get("bytes", size):
            damaged[name] = f"has {size} bytes, not {entry['bytes']}"
        # Last: it takes a read of the whole file.
        elif hashed and file_hash(file) != entry["sha256"]:
            damaged[name] = f"does not match its sha256 in {MANIFEST}"
    return damaged


class ShardedArray:
    """A matrix whose rows lie in several npy files; only the rows that are used are read.

    Slices, row numbers, lists of rows, boolean masks and ``X[rows, columns]`` work as in numpy and
    give an ordinary array; ``np.asarray(X)`` reads the whole.

    Parameters
    ----------
    files : list of path
        The npy files, in order.
    counts : list of int
        Rows of each.
    dim : int
        Columns.
    dtype : dtype
        Number type of all of them.
    """

    def __init__(self, files: list[Path], counts: list[int], dim: int, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._files, self._counts = files, counts
        self._ends = np.cumsum(counts)
        self.shape = (int(self._ends[-1]), dim)
        self._maps: dict[int, NDArray[Any]] = {}

    @property
    def ndim(self) -> int:
        """Always 2."""
        return 2

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"ShardedArray(shape={self.shape}, dtype={self.dtype}, shards={len(self._files)})"

    def shard(self, k: int) -> NDArray[Any]:
        """Return shard `k` as a memory map (opened once)."""
        if k not in self._maps:
            shape = (self._counts[k], self.shape[1])
            self._maps[k] = map_npy(self._files[k], shape, self.dtype)
        return self._maps[k]

    def release(self) -> None:
        """Close the memory maps: what was read no longer counts as this process's memory."""
        self._maps.clear()

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        return np.arange(self.shape[0])

    def __getitem__(self, key: Any) -> NDArray[Any]:
        rows, columns = key, slice(None)
        if isinstance(key, tuple):
            rows, columns = key
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(self.shape[0])
            return self._span(start, stop)[:, columns]
        # Of the row numbers numpy takes and refuses what it would of the rows.
        index = self._numbers[rows]
        if index.ndim > 1:
            raise IndexError("index the rows with a number, a slice, a list of rows or a mask")
        if index.ndim == 0:
            return np.asarray(self._span(index, index + 1)[0, columns])
        return self._gather(index)[:, columns]

    def _span(self, start: int, stop: int) -> NDArray[Any]:
        out = np.empty((max(stop - start, 0), self.shape[1]), dtype=self.dtype)
        for k, rows, filled in self._pieces(start, stop):
            out[filled] = self.shard(k)[rows]
        return out

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, slice, slice]]:
        """Yield the shards that hold some rows: shard, which of its rows, which of those wanted."""
        first = 0
        for k, end in enumerate(self._ends.tolist()):
            a, b = max(start, first), min(stop, end)
            if a < b:
                yield k, slice(a - first, b - first), slice(a - start, b - start)
            first = end

    def read_into(self, start: int, out: NDArray[Any]) -> None:
        """Fill `out` with the rows from `start` on, by plain reads: no memory map is touched."""
        row = self.shape[1] * self.dtype.itemsize
        for k, rows, filled in self._pieces(start, start + len(out)):
            file = self._files[k]
            with reading(file, "an .npy file", advice=_CHANGED), file.open("rb") as handle:
                # The rows are the end of the file, whatever its header.
                handle.seek((rows.start - self._counts[k]) * row, os.SEEK_END)
                handle.readinto(out[filled].reshape(-1).view(np.uint8).data)

    def _gather(self, wanted: NDArray[np.int64]) -> NDArray[Any]:
        # In the order of the file each shard is touched once, front to back.
        order = np.argsort(wanted, kind="stable")
        sorted_rows = wanted[order]
        edges = [0, *self._ends.tolist()]
        borders: list[int] = np.searchsorted(sorted_rows, edges).tolist()
        out = np.empty((len(wanted), self.shape[1]), dtype=self.dtype)
        for k, (a, b) in enumerate(itertools.pairwise(borders)):
            if a < b:
                out[order[a:b]] = self.shard(k)[sorted_rows[a:b] - edges[k]]
        return out

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the rows lie in several files: reading them as one array copies")
        whole = self._span(0, self.shape[0])
        return whole if dtype is None else whole.astype(dtype, copy=False)


@dataclass(frozen=True, repr=False)
class FeatureFolder:
    """Embeddings of a data set by one encoder, as `load_features` finds them on disk.

    Attributes
    ----------
    path : Path
        The folder.
    manifest : dict
        What made the features: encoder, preprocessing, data hash, options, version.
    """

    path: Path
    manifest: dict[str, Any]

    @cached_property
    def X(self) -> NDArray[Any] | ShardedArray:
        """(n, dim) embeddings, read where they are used: a memory map, or a `ShardedArray` of several."""
        filled = [s for s in self.manifest["shards"] if s["rows"]]
        array = ShardedArray(
            [self.path / s["file"] for s in filled],
            [s["rows"] for s in filled],
            self.manifest["dim"],
            self.manifest["dtype"],
        )
        return array.shard(0) if len(filled) == 1 else array

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per embedding: ``id``, ``label``, ``votes``, ``group``, ... as the data set has them."""
        import pyarrow.parquet as pq

        file = self.path / TABLE
        with reading(file, "a Parquet file", advice=_CHANGED):
            # The file alone: `pq.read_table` would make columns of the names of its folders.
            parquet = pq.ParquetFile(file)
            n = parquet.metadata.num_rows
            if n != len(self):
                raise InputError(
                    f"{file} has {n} rows, the manifest says {len(self)}: the folder was changed. "
                    "Extract again."
                )
            columns = parquet.read()
            columns.validate(full=True)
            table: pd.DataFrame = columns.to_pandas()
        return table

    @property
    def encoder(self) -> str:
        """Name of the encoder."""
        return str(self.manifest["encoder"]["name"])

    @property
    def classes(self) -> list[str] | None:
        """Class names in the order of the labels, where the data set has them."""
        classes = self.manifest.get("dataset", {}).get("classes")
        return None if classes is None else list(classes)

    def __len__(self) -> int:
        return int(self.manifest["n"])

    def __repr__(self) -> str:
        shape = (len(self), self.manifest["dim"])
        return f"FeatureFolder({str(self.path)!r}, encoder={self.encoder!r}, shape={shape})"


def load_features(path: str | os.PathLike[str], *, verify: bool | None = None) -> FeatureFolder:
    """Open a folder of features written by ``scalecal extract`` or ``scalecal import``.

    The matrix stays on the disk.

    Parameters
    ----------
    path : path
        The folder.
    verify : bool, optional
        Read every file and compare its sha256 with the manifest; by default where the shards have at
        most 1 GiB together, which takes a second. Sizes are compared always.

    Returns
    -------
    FeatureFolder

    Examples
    --------
    >>> load_features("no/such/folder")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: no features at no/such/folder. Run: scalecal extract ...
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    if not manifest["complete"]:
        raise InputError(_unfinished(folder, manifest))
    total = sum(entry["bytes"] for entry in manifest["shards"])
    if verify is None:
        verify = total <= HASHED_BYTES
    for name, difference in damaged_files(folder, manifest, hashed=verify).items():
        raise InputError(
            f"{folder / name} {difference}: the folder was changed, or the disk is failing. Extract "
            "again."
        )
    return FeatureFolder(folder, manifest)


def _unfinished(folder: Path, manifest: dict[str, Any]) -> str:
    done = len(list((folder / SHARDS).glob("*.npy")))
    data = manifest.get("dataset", {})
    images = data.get("n_images")
    total = "?" if images is None else -(-images // manifest["shard_rows"])
    if "source" in manifest:
        command = f"scalecal import PATH --out {folder}"
    else:
        written = manifest.get("form") or data.get("name") or "DATASET"
        where = "" if ":" in written else "--data DIR "
        command = f"scalecal extract {written} {manifest['encoder']['name']} {where}--out {folder}"
    return (
        f"the features at {folder} are not finished ({done} of {total} shards). "
        f"Run the command that began them again, it goes on where it stopped: {command}"
    )
