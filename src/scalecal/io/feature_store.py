"""Writing a feature folder shard by shard; a killed run goes on where it stopped.

`scalecal.io.feature_folder` says what a folder holds. Each finished shard has a small ``.json`` beside it
with its hash and the images it had to leave out; the end of the run gathers them into the manifest.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalecal import __version__
from scalecal.checks import InputError, ScalecalWarning, check_choice, check_positive_int, rows
from scalecal.io.documents import read_document
from scalecal.io.feature_folder import (
    FORMAT,
    MANIFEST,
    SHARDS,
    SKIPPED,
    TABLE,
    damaged_files,
    read_manifest,
    shard_name,
)
from scalecal.io.store import (
    LOCK,
    check_place,
    differences,
    disk_errors,
    file_hash,
    is_partial,
    lock_folder,
    set_aside,
    sweep,
    write_bytes,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    import pandas as pd

LOG = "run.log"
DTYPES = ("float16", "float32")
_IMAGES_CHANGED = "the images changed since this folder was begun"


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


def shard_note(path: Path, shard: int, n_images: int) -> Note | None:
    """Return the note of a shard of so many images that is there, whole; None where it must be made."""
    data, note_file = shard_files(path, shard)
    if not (data.is_file() and note_file.is_file()):
        return None
    try:
        note = read_document(note_file, Note)
    except InputError:
        return None
    if note.rows + len(note.skipped) != n_images or data.stat().st_size != note.bytes:
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
    skipped: Sequence[Skipped] = (),
    *,
    dtype: str = "float16",
) -> None:
    """Write one shard of a folder begun by a `StoreWriter`; any process may do it.

    The bytes depend on nothing but the arguments, so two workers that make the same shard
    write the same file, and the last rename wins.
    """
    array = cast_embeddings(features, dtype, ids)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    data = array.reshape(-1).view(np.uint8).data if array.size else b""
    digest = hashlib.sha256(header.getvalue())
    digest.update(data)
    note = Note(
        rows=len(array),
        bytes=len(header.getvalue()) + len(data),
        sha256=digest.hexdigest(),
        skipped=[(s.row, s.id, s.reason) for s in skipped],
    )
    data_file, note_file = shard_files(Path(path), shard)
    # The note goes first: a shard without its data is not done, so a kill between the two
    # costs this shard and nothing else.
    write_json(note_file, msgspec.structs.asdict(note))
    write_bytes(data_file, header.getvalue(), data)


def cast_embeddings(features: NDArray[Any], dtype: str, ids: Sequence[str]) -> NDArray[Any]:
    """Return embeddings in the number type on disk, refusing those it cannot hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.ascontiguousarray(features, dtype=dtype)
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        largest = float(np.abs(features[first]).max())
        if not np.isfinite(largest):
            what = (
                "holds NaN or infinity: check the file or the weights it comes from "
                "(an extraction may need --precision fp32)"
            )
        elif dtype == "float16" and largest <= float(np.finfo(np.float32).max):
            what = f"is too large for {dtype}: keep float32 (dtype='float32', --dtype float32)"
        else:
            what = f"is too large for {dtype} ({largest:.1e}): divide the embeddings by their scale"
        raise InputError(f"the embedding of {ids[first]!r} {what}")
    largest = float(np.abs(features).max()) if features.size else 0.0
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
    twice = table["id"].duplicated()
    if twice.any():
        raise InputError(
            f"ids must be different, {str(table['id'][twice].iloc[0])!r} comes twice "
            f"({rows(twice)}). Give each image its own id."
        )


def _open_plain(path: str, flags: int) -> int:
    """Open a file, but follow no link and wait for no reader of a pipe."""
    guards = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags | guards, 0o666)


class StoreWriter:
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
        self.complete = False
        self.damaged: tuple[str, ...] = ()
        self._began = False
        self._note = dict(note or {})
        check_place(path)
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(lock_folder(path))
            self._resume_or_start()
            with disk_errors(path):
                (path / SHARDS).mkdir(exist_ok=True)
            self._stack = stack.pop_all()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()  # another run may take the folder up

    def _resume_or_start(self) -> None:
        if not os.path.lexists(self.path / MANIFEST):
            self._refuse_foreign_folder()
            sweep(self.path)
            self._start(f"started on {platform.node()} by scalecal {__version__}")
            return
        manifest = read_manifest(self.path)
        sweep(self.path)
        sweep(self.path / SHARDS)
        changed = self._changed(manifest)
        if changed and not manifest.get("complete") and not holds_shards(self.path):
            # Nothing is lost by other settings: a run that stopped at its first image, say.
            self._remove_shards()
            self._start(f"started afresh on {platform.node()} with other settings")
            return
        if changed == [_IMAGES_CHANGED]:
            raise InputError(
                f"the images changed since {self.path} was begun. "
                "Bring the old ones back to go on, or give a new folder."
            )
        if changed:
            raise InputError(
                f"{self.path} holds features made with other settings ({'; '.join(changed)}). "
                "Use the same settings to go on, or give a new folder."
            )
        self.complete = bool(manifest["complete"])
        if self.complete:
            self.damaged = tuple(damaged_files(self.path, manifest))
        if self.damaged:
            self._reopen()
        elif not self.complete:
            self._set_changed_shards_aside()
            left = len(self.missing())
            self.log(f"resumed on {platform.node()}: {left} shards to do")

    def _start(self, line: str) -> None:
        self._began = True
        self._write_unfinished()
        self.log(line)

    def _refuse_foreign_folder(self) -> None:
        others = [p.name for p in sorted(self.path.iterdir()) if not is_partial(p)]
        if others:
            raise InputError(
                f"{self.path} is not empty and holds no {MANIFEST} "
                f"(found {', '.join(others[:3])}). Give a new folder."
            )

    def _changed(self, manifest: Mapping[str, Any]) -> list[str]:
        """Name the settings in which the folder differs from this run."""
        there = {k: manifest.get(k) for k in self.settings}
        # Two hashes of a column say nothing to a reader: its name is enough.
        old, new = there.pop("columns") or {}, self.settings["columns"]
        lines = differences(there, {**self.settings, "columns": None})
        columns = [c for c in dict.fromkeys([*old, *new]) if old.get(c) != new.get(c)]
        if columns:
            lines.append(f"other values in {', '.join(sorted(columns))}")
        # The hash covers the images and the table; what else differs of them says more.
        rest = [line for line in lines if not line.startswith("dataset.hash:")]
        explained = any(line.startswith(("dataset.", "other values in ")) for line in rest)
        return rest if explained or len(rest) == len(lines) else [_IMAGES_CHANGED, *rest]

    def _reopen(self) -> None:
        """Make a finished folder with damaged files an unfinished one that lacks these.

        The damaged files are kept under another name: somebody may have edited them.
        """
        verb = "is" if len(self.damaged) == 1 else "are"
        message = f"{', '.join(self.damaged)} {verb} damaged: done again, the old kept as *.damaged"
        warnings.warn(f"{self.path}: {message}", ScalecalWarning, stacklevel=4)
        self.log(message)
        for name in self.damaged:
            set_aside(self.path / name)
        # Last: a kill before this finds the folder damaged again and comes the same way.
        self._write_unfinished()
        self.complete = False

    def _set_changed_shards_aside(self) -> None:
        """Have shards of an unfinished folder made again that were changed since they were written."""
        for shard, start, stop in self.shard_ranges():
            note, data = self._note_of(shard, start, stop), self.path / shard_name(shard)
            if note is not None and file_hash(data) != note.sha256:
                self.log(f"{data.name} is damaged: done again, the old kept as *.damaged")
                set_aside(data)

    def _write_unfinished(self) -> None:
        write_json(self.path / MANIFEST, {**self.settings, "complete": False, **self._note})

    def log(self, line: str) -> None:
        """Add a line with the time to ``run.log``, which is no link or pipe."""
        file = self.path / LOG
        with disk_errors(file), open(file, "a", encoding="utf-8", opener=_open_plain) as log:
            log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {line}\n")

    @property
    def n_images(self) -> int:
        """Images in the set, read or not."""
        return len(self.table)

    def shard_ranges(self) -> list[tuple[int, int, int]]:
        """Return (shard, first row, one past the last row) of every shard."""
        return shard_ranges(self.n_images, self.settings["shard_rows"])

    def missing(self) -> list[tuple[int, int, int]]:
        """Return the shards that are not there yet."""
        if self.complete:
            return []
        return [
            (shard, start, stop)
            for shard, start, stop in self.shard_ranges()
            if self._note_of(shard, start, stop) is None
        ]

    def _note_of(self, shard: int, start: int, stop: int) -> Note | None:
        note = shard_note(self.path, shard, stop - start)
        if note is None or not all(start <= row < stop for row, _, _ in note.skipped):
            return None
        return note

    def write_shard(
        self, shard: int, features: NDArray[Any], skipped: Sequence[Skipped] = ()
    ) -> None:
        """Write one shard: the embeddings of its images that could be read, in order."""
        _, start, stop = self.shard_ranges()[shard]
        expected = (stop - start - len(skipped), self.settings["dim"])
        if features.shape != expected:
            raise InputError(f"shard {shard} must have shape {expected}, got {features.shape}")
        ids = self.table["id"].iloc[start:stop].astype(str).tolist()
        left_out = {s.row - start for s in skipped}
        kept = [name for row, name in enumerate(ids) if row not in left_out]
        write_shard(self.path, shard, features, kept, skipped, dtype=self.settings["dtype"])

    def restart(self, note: Mapping[str, Any] | None = None, **changes: Any) -> None:
        """Throw the shards away and start again with other settings (a smaller batch, say)."""
        # Shards first: a kill between the two steps leaves an empty folder, never mixed shards.
        self._remove_shards()
        self.settings = {**self.settings, **changes}
        self._note = dict(note or self._note)
        self._write_unfinished()
        self.log(f"restarted with {changes}")

    def discard(self) -> None:
        """Remove what was written, if this run began the folder; nothing that was there before."""
        if self._began and not self.complete:
            self._remove_shards()
            for name in (TABLE, SKIPPED, LOG, MANIFEST, LOCK):
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
        for shard, start, stop in self.shard_ranges():
            note = self._note_of(shard, start, stop)
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
        write_bytes(self.path / TABLE, content)
        return {"file": TABLE, "sha256": file_hash(self.path / TABLE)}

    def _write_skipped(self, skipped: Sequence[Sequence[Any]]) -> dict[str, str] | None:
        if not skipped:
            return None
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "id", "reason"])
        writer.writerows(skipped)
        write_text(self.path / SKIPPED, text.getvalue())
        return {"file": SKIPPED, "sha256": file_hash(self.path / SKIPPED)}

    def _remove_shards(self) -> None:
        for shard, _, _ in self.shard_ranges():
            for file in shard_files(self.path, shard):
                file.unlink(missing_ok=True)
