"""A feature folder: a matrix that stays on the disk, its table, and the manifest of what made both.

A folder holds::

    manifest.json      what made the features, and (once complete) every file's rows and sha256
    table.parquet      one row per embedding, in the same order: id, label, votes, group, split, ...
    skipped.csv        the images that could not be read (only if there were any)
    shards/00000.npy   the embeddings, `shard_rows` images each
    shards/00000.json  the shard's sha256, and the images it had to leave out
    run.log            hosts, times, engine: the one file that differs from run to run

`StoreWriter` writes it shard by shard, so that a killed run goes on where it stopped: the notes beside
the shards say which are finished, and the end of the run gathers them into the manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import platform
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from scalecal import __version__
from scalecal.checks import InputError, ScalecalWarning, check_choice, check_positive_int
from scalecal.io.arrays import map_npy
from scalecal.io.boundary import check_document, inside, read_document, reading
from scalecal.io.input_columns import as_ids, check_ids
from scalecal.io.store import (
    as_utf8,
    check_place,
    check_unused,
    differences,
    disk_errors,
    file_hash,
    hold_folder,
    set_aside,
    write_bytes,
    write_json,
)

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

    ndim = 2

    def __init__(self, files: list[Path], counts: list[int], dim: int, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._files, self._counts = files, counts
        self._ends = np.cumsum(counts)
        self.shape = (int(self._ends[-1]), dim)
        self._maps: dict[int, NDArray[Any]] = {}

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

    def __getitem__(self, key: Any) -> NDArray[Any]:
        rows, columns = key, slice(None)
        if isinstance(key, tuple):
            rows, columns = key
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(self.shape[0])
            return self._span(start, stop)[:, columns]
        # Of the row numbers numpy takes and refuses what it would of the rows.
        index = np.arange(self.shape[0])[rows]
        if index.ndim > 1:
            raise IndexError("index the rows with a number, a slice, a list of rows or a mask")
        if index.ndim == 0:
            return np.asarray(self._span(index, index + 1)[0, columns])
        return self._gather(index)[:, columns]

    def _span(self, start: int, stop: int) -> NDArray[Any]:
        out = np.empty((max(stop - start, 0), self.shape[1]), dtype=self.dtype)
        first = 0
        for k, end in enumerate(self._ends.tolist()):
            a, b = max(start, first), min(stop, end)
            if a < b:
                out[a - start : b - start] = self.shard(k)[a - first : b - first]
            first = end
        return out

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
        """(n, dim) embeddings, read when they are used: a memory map, or a `ShardedArray` of several."""
        filled = [s for s in self.manifest["shards"] if s["rows"]]
        files = [self.path / s["file"] for s in filled]
        counts = [s["rows"] for s in filled]
        array = ShardedArray(files, counts, self.manifest["dim"], self.manifest["dtype"])
        if len(filled) == 1:
            return array.shard(0)
        return array

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
        """Class names in the order of the labels, if the data set has them."""
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
    if "source" in manifest:
        command = f"scalecal import PATH --out {folder}"
    else:
        data = manifest.get("form") or manifest.get("dataset", {}).get("name") or "DATASET"
        if ":" not in data:
            data = f"{data} --data DIR"
        command = f"scalecal extract {data} {manifest['encoder']['name']} --out {folder}"
    return (
        f"the features at {folder} are not finished ({done} shards are). "
        f"Run the same command again, which resumes where it stopped: {command}"
    )


LOG = "run.log"
DTYPES = ("float16", "float32")


@dataclass(frozen=True)
class Skipped:
    """One image that could not be read: its row in the image set, its id and why."""

    row: int
    id: str
    reason: str


def default_shard_rows(n_images: int) -> int:
    """Return the images per shard: a 32nd of the set, as a multiple of 64, at most 16,384.

    A kill costs the shards under way, so a small set needs small ones: below 2,048 images they are
    multiples of 16, the batch of a CPU.

    Examples
    --------
    >>> [default_shard_rows(n) for n in (10, 600, 3_152, 327_680, 10_000_000)]
    [16, 32, 128, 10240, 16384]
    """
    unit = 64 if n_images >= 32 * 64 else 16
    return min(16384, unit * max(1, -(-n_images // (32 * unit))))


def shard_ranges(n_images: int, shard_rows: int) -> list[tuple[int, int, int]]:
    """Return (shard, first row, one past the last row) of every shard, by position alone.

    Examples
    --------
    >>> shard_ranges(5, 2)
    [(0, 0, 2), (1, 2, 4), (2, 4, 5)]
    """
    return [
        (k, start, min(start + shard_rows, n_images))
        for k, start in enumerate(range(0, n_images, shard_rows))
    ]


def shard_files(path: Path, shard: int) -> tuple[Path, Path]:
    """Return a shard's data file and the note kept beside it."""
    data = path / shard_name(shard)
    return data, data.with_suffix(".json")


class Note(msgspec.Struct):
    """What is kept beside a shard until the manifest is written."""

    rows: int
    bytes: int
    sha256: str
    skipped: list[tuple[int, str, str]]


def shard_note(path: Path, shard: int, start: int, stop: int) -> Note | None:
    """Return the note of a shard that is there, whole, of some rows; None where it must be made."""
    data, note_file = shard_files(path, shard)
    if not (data.is_file() and note_file.is_file()):
        return None
    try:
        note = read_document(note_file, Note)
    except InputError:
        return None
    if note.rows + len(note.skipped) != stop - start or data.stat().st_size != note.bytes:
        return None
    if not all(start <= row < stop for row, _, _ in note.skipped):
        return None
    return note


def holds_shards(path: str | os.PathLike[str]) -> bool:
    """Whether a feature folder holds any shard."""
    return any((Path(path) / SHARDS).glob("*.npy"))


def write_shard(
    path: str | os.PathLike[str],
    shard: int,
    features: NDArray[Any],
    ids: Sequence[str],
    skipped: Sequence[Skipped],
    *,
    start: int,
    dtype: str,
) -> None:
    """Write one shard of a folder begun by a `StoreWriter`; any process may do it.

    `ids` are those of all its images, the first of which is row `start` of what `skipped` counts in.
    The bytes depend on nothing but the arguments, so two workers that make the same shard
    write the same file, and the last rename wins.
    """
    left_out = {s.row - start for s in skipped}
    kept = [str(name) for row, name in enumerate(ids) if row not in left_out]
    array = cast_embeddings(features, dtype, kept)
    buffer = io.BytesIO()
    np.save(buffer, array)
    content = buffer.getbuffer()
    note = Note(
        rows=len(array),
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        skipped=[(s.row, s.id, s.reason) for s in skipped],
    )
    data_file, note_file = shard_files(Path(path), shard)
    # The note goes first: a shard without its data is not done, so a kill between the two
    # costs this shard and nothing else.
    write_json(note_file, msgspec.structs.asdict(note))
    write_bytes(data_file, content)


def cast_embeddings(features: NDArray[Any], dtype: str, ids: Sequence[str]) -> NDArray[Any]:
    """Return embeddings in the number type on disk, refusing those it cannot hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.ascontiguousarray(features, dtype=dtype)
    lost = ~np.isfinite(array).all(axis=1)
    if lost.any():
        row = int(np.flatnonzero(lost)[0])
        largest = float(np.abs(features[row]).max())
        problem = (
            f"is too large for {dtype} ({largest:.1e}): keep float32 (--dtype float32), or divide the "
            "embeddings by their scale"
        )
        if not np.isfinite(largest):
            problem = (
                "holds NaN or infinity: check the file or the weights it comes from "
                "(an extraction may need --precision fp32)"
            )
        raise InputError(f"the embedding of {ids[row]!r} {problem}")
    largest = float(np.abs(features).max(initial=0.0))
    if 0 < largest < float(np.finfo(dtype).tiny):
        raise InputError(
            f"the embeddings of {ids[0]!r} and those after it are too small for {dtype} (at most "
            f"{largest:.1e}): keep float32 (dtype='float32', --dtype float32), or multiply them"
        )
    return array


def _column_hash(column: pd.Series[Any]) -> str:
    """Return a sha256 of a column's values that depends on no library's file format."""
    values = column.to_numpy()
    if values.dtype.kind in "iufb":
        return hashlib.sha256(values.dtype.str.encode() + values.tobytes()).hexdigest()
    digest = hashlib.sha256(b"text")
    for value, missing in zip(values, column.isna(), strict=True):
        # A length before each value keeps ["ab", "c"] apart from ["a", "bc"].
        text = b"" if missing else str(value).encode()
        digest.update(b"-" if missing else len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


def check_image_table(table: pd.DataFrame) -> None:
    """Fail unless a table has images, each of its own id."""
    if "id" not in table.columns:
        raise InputError(f"the table needs a column 'id', it has {', '.join(map(str, table))}")
    if len(table) == 0:
        raise InputError("there are no images: nothing to extract")
    check_ids(as_ids(table["id"]), "the ids")


def _open_plain(path: str, flags: int) -> int:
    """Open a file, but follow no link and wait for no reader of a pipe."""
    guards = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags | guards, 0o666)


class StoreWriter(contextlib.AbstractContextManager["StoreWriter"]):
    """Writes a feature folder, or goes on with one begun with the same settings; a context manager.

    Parameters
    ----------
    path : path
        The folder. It may be new, empty, or begun by an earlier run of the same settings.
    settings : mapping
        Everything that decides the bytes (encoder, preprocessing, precision, batch, data set);
        JSON values only. A folder begun with others is refused, and the differences are named.
    table : DataFrame
        One row per image with a column ``id`` whose values are all different.
    dim : int
        Length of an embedding.
    shard_rows : int, optional
        Images per shard; by default those of the folder, or `default_shard_rows`.
    dtype : {"float16", "float32"}
        Number type on disk.
    note : mapping, optional
        Kept in the manifest while the run is going on and dropped at its end.

    Examples
    --------
    >>> import tempfile, pandas as pd, numpy as np
    >>> from scalecal.features import load_features
    >>> folder = tempfile.mkdtemp()
    >>> table = pd.DataFrame({"id": ["a", "b", "c"], "label": [0, 1, 1]})
    >>> with StoreWriter(folder, {"encoder": {"name": "mine"}}, table, dim=2, shard_rows=2) as store:
    ...     for shard, start, stop in store.missing():
    ...         store.write_shard(shard, np.ones((stop - start, 2)))
    ...     manifest = store.finish()
    >>> load_features(folder).X[1:].tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, Any],
        table: pd.DataFrame,
        *,
        dim: int,
        shard_rows: int | None = None,
        dtype: str = "float16",
        note: Mapping[str, Any] | None = None,
    ) -> None:
        check_choice(dtype, DTYPES, "dtype")
        check_image_table(table)
        path = Path(path)
        if shard_rows is None:
            begun = read_manifest(path) if os.path.lexists(path / MANIFEST) else {}
            shard_rows = begun.get("shard_rows") or default_shard_rows(len(table))
        self.settings: dict[str, Any] = {
            "format": FORMAT,
            "version": __version__,
            **json.loads(json.dumps(settings)),
            "dim": dim,
            "dtype": dtype,
            "shard_rows": check_positive_int(shard_rows, "shard_rows"),
            "columns": {str(c): _column_hash(table[c]) for c in table.columns},
        }
        self.path = path
        self.table = table
        self.n_images = len(table)  # read or not
        self.ranges = shard_ranges(self.n_images, self.settings["shard_rows"])
        self.complete = False
        self._began = False
        self._note = dict(note or {})
        check_place(path)
        # Another run may take the folder up once this one is closed.
        self._held = hold_folder(path, self._resume_or_start)

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def _resume_or_start(self) -> None:
        manifest: dict[str, Any] = {}
        if os.path.lexists(self.path / MANIFEST):
            manifest = read_manifest(self.path)
        else:
            check_unused(self.path)
        self.complete = bool(manifest.get("complete"))
        changed = differences({key: manifest.get(key) for key in self.settings}, self.settings)
        # Without shards nothing is lost by other settings: of a run that stopped at its first image, say.
        if not manifest or (changed and not self.complete and not holds_shards(self.path)):
            self._began = True
            self._remove_shards()
            self._write_unfinished()
            self.log(f"started on {platform.node()} by scalecal {__version__}")
        elif changed:
            raise InputError(
                f"{self.path} holds features of other images or settings ({'; '.join(changed)}). "
                "Use the same images and settings to resume, or give a new folder."
            )
        elif self.complete:
            self._set_aside(list(damaged_files(self.path, manifest)))
        else:
            self._set_aside(list(self._changed_shards()))
            left = len(self.missing())
            self.log(f"resumed on {platform.node()}: {left} shards to do")
        (self.path / SHARDS).mkdir(exist_ok=True)

    def _changed_shards(self) -> Iterator[str]:
        """Yield the shards of an unfinished folder that were changed since they were written."""
        for shard, start, stop in self.ranges:
            name = shard_name(shard)
            note = shard_note(self.path, shard, start, stop)
            if note is not None and file_hash(self.path / name) != note.sha256:
                yield name

    def _set_aside(self, damaged: Sequence[str]) -> None:
        """Have damaged files made again, in a finished folder too.

        They are kept under another name: somebody may have edited them.
        """
        for name in damaged:
            message = f"{name} is damaged: made again, the old file is kept as *.damaged"
            warnings.warn(f"{self.path}: {message}", ScalecalWarning, stacklevel=5)
            self.log(message)
            set_aside(self.path / name)
        # Last: a kill before this finds the folder damaged again and comes the same way.
        if damaged:
            self.complete = False
            self._write_unfinished()

    def _write_unfinished(self) -> None:
        write_json(self.path / MANIFEST, {**self.settings, "complete": False, **self._note})

    def log(self, line: str) -> None:
        """Add a line with the time to ``run.log``, which is no link or pipe."""
        file = self.path / LOG
        with disk_errors(file), open(file, "a", encoding="utf-8", opener=_open_plain) as log:
            log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {line}\n")

    def missing(self) -> list[tuple[int, int, int]]:
        """Return the shards that are not there yet."""
        if self.complete:
            return []
        return [
            (shard, start, stop)
            for shard, start, stop in self.ranges
            if shard_note(self.path, shard, start, stop) is None
        ]

    def write_shard(
        self, shard: int, features: NDArray[Any], skipped: Sequence[Skipped] = ()
    ) -> None:
        """Write one shard: the embeddings of its images that could be read, in order."""
        _, start, stop = self.ranges[shard]
        expected = (stop - start - len(skipped), self.settings["dim"])
        if features.shape != expected:
            raise InputError(f"shard {shard} must have shape {expected}, got {features.shape}")
        ids = self.table["id"].iloc[start:stop].tolist()
        dtype = self.settings["dtype"]
        write_shard(self.path, shard, features, ids, skipped, start=start, dtype=dtype)

    def restart(self, **changes: Any) -> None:
        """Throw the shards away and start again with other settings (a smaller batch, say)."""
        # Shards first: a kill between the two steps leaves an empty folder, never mixed shards.
        self._remove_shards()
        self.settings = {**self.settings, **changes}
        self._write_unfinished()
        self.log(f"restarted with {changes}")

    def discard(self) -> None:
        """Remove what was written, if this run began the folder; nothing that was there before."""
        if self._began and not self.complete:
            self._remove_shards()
            for name in (TABLE, SKIPPED, LOG, MANIFEST):
                (self.path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty: somebody else's file
                (self.path / SHARDS).rmdir()
                self.path.rmdir()

    def finish(self) -> dict[str, Any]:
        """Write the table, the list of skipped images and the final manifest; return it."""
        if self.complete:
            return read_manifest(self.path)
        entries: list[dict[str, Any]] = []
        skipped: list[tuple[int, str, str]] = []
        for shard, start, stop in self.ranges:
            note = shard_note(self.path, shard, start, stop)
            if note is None:
                raise InputError(
                    f"{self.path} is not finished: {len(self.missing())} shards are missing"
                )
            fields = msgspec.structs.asdict(note)
            skipped += fields.pop("skipped")
            entries.append({"file": shard_name(shard), "start": start, "stop": stop, **fields})
        if len(skipped) == self.n_images:
            raise InputError(
                f"none of the {self.n_images} images could be read. "
                f"The first: {skipped[0][1]}: {skipped[0][2]}"
            )
        result: dict[str, Any] = {
            **self.settings,
            "complete": True,
            "n": self.n_images - len(skipped),
            "n_skipped": len(skipped),
            "table": self._write_table([row for row, _, _ in skipped]),
            "skipped": self._write_skipped(skipped),
            "shards": entries,
        }
        write_json(self.path / MANIFEST, result)
        self.complete = True
        self.log(f"finished: {result['n']} embeddings, {len(skipped)} images skipped")
        return result

    def _write_table(self, skipped_rows: Sequence[int]) -> dict[str, str]:
        kept = self.table.drop(self.table.index[list(skipped_rows)])
        try:
            content = kept.to_parquet(index=False)
        except (TypeError, ValueError) as error:  # pyarrow's own errors are kinds of these
            raise InputError(f"the table cannot be stored: {error}") from None
        return self._write(TABLE, content)

    def _write_skipped(self, skipped: Sequence[Sequence[Any]]) -> dict[str, str] | None:
        import pandas as pd

        if not skipped:
            return None
        frame = pd.DataFrame(skipped, columns=["row", "id", "reason"])
        text = frame.to_csv(index=False, lineterminator="\n")
        return self._write(SKIPPED, as_utf8(text).encode())

    def _write(self, name: str, content: bytes) -> dict[str, str]:
        """Write a file of the folder; return its entry in the manifest."""
        write_bytes(self.path / name, content)
        return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}

    def _remove_shards(self) -> None:
        for shard, _, _ in self.ranges:
            for file in shard_files(self.path, shard):
                file.unlink(missing_ok=True)
