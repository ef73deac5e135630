"""Embeddings on disk: shards of rows written whole or not at all, and a manifest that says what made them.

A folder holds::

    manifest.json      what made the features, and (once complete) every file's rows and sha256
    table.parquet      one row per embedding, in the same order: id, label, votes, group, split, ...
    skipped.csv        the images that could not be read (only if there were any)
    shards/00000.npy   the embeddings, `shard_rows` images each
    run.log            hosts, times, engine: the one file that differs from run to run

Every file is written under another name, flushed to the disk and renamed, so that a file that is
there is whole. While a run is going on, each finished shard has a small ``.json`` beside it with
its hash and the images it had to leave out; the end of the run gathers them into the manifest.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from scalecal import __version__
from scalecal.checks import InputError, ScalecalWarning, check_choice, check_positive_int, rows
from scalecal.io.manifests import (
    FORMAT,
    MANIFEST,
    SKIPPED,
    TABLE,
    column_hash,
    damaged_files,
    differences,
    holds_shards,
    read_manifest,
)
from scalecal.io.shards import (
    SHARDS,
    Skipped,
    disk_errors,
    json_bytes,
    shard_done,
    shard_files,
    shard_ranges,
    sync_folder,
    write_shard,
    write_whole,
)
from scalecal.io.store import file_hash

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StoreWriter", "open_store"]

LOG = "run.log"
DTYPES = ("float16", "float32")
_IMAGES_CHANGED = "the images changed since this folder was begun"


def open_store(
    path: str | os.PathLike[str],
    settings: Mapping[str, Any],
    table: pd.DataFrame,
    *,
    dim: int,
    shard_rows: int = 16384,
    dtype: str = "float16",
    note: Mapping[str, Any] | None = None,
) -> StoreWriter:
    """Start a feature folder, or go on with one that was begun with the same settings.

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
    shard_rows : int, default=16384
        Images per shard.
    dtype : {"float16", "float32"}
        Number type on disk.
    note : mapping, optional
        Kept in the manifest while the run is going on and dropped at its end.

    Returns
    -------
    StoreWriter

    Examples
    --------
    >>> import tempfile, pandas as pd, numpy as np
    >>> from scalecal.features import load_features
    >>> folder = tempfile.mkdtemp()
    >>> table = pd.DataFrame({"id": ["a", "b", "c"], "label": [0, 1, 1]})
    >>> with open_store(folder, {"encoder": {"name": "mine"}}, table, dim=2, shard_rows=2) as store:
    ...     for shard, start, stop in store.missing():
    ...         store.write_shard(shard, np.ones((stop - start, 2)))
    ...     manifest = store.finish()
    >>> load_features(folder).X[1:].tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    check_choice(dtype, DTYPES, "dtype")
    check_positive_int(shard_rows, "shard_rows")
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
    full: dict[str, Any] = {
        "format": FORMAT,
        "version": __version__,
        **json.loads(json.dumps(settings)),
        "dim": dim,
        "dtype": dtype,
        "shard_rows": shard_rows,
        "columns": {str(c): column_hash(table[c]) for c in table.columns},
    }
    return StoreWriter(Path(path), full, table, note)


class StoreWriter:
    """Writes one feature folder; made by `open_store`. Use it as a context manager."""

    def __init__(
        self,
        path: Path,
        settings: dict[str, Any],
        table: pd.DataFrame,
        note: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self.settings = settings
        self.table = table
        self.complete = False
        self.damaged: tuple[str, ...] = ()
        self._note = dict(note or {})
        with disk_errors(path):
            self._refuse_foreign_folder()
            (path / SHARDS).mkdir(parents=True, exist_ok=True)
            self._log = open(path / LOG, "a", encoding="utf-8")  # noqa: SIM115
        try:
            self._lock()
            self._resume_or_start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder; another run may take it up."""
        self._log.close()

    def _refuse_foreign_folder(self) -> None:
        if (self.path / MANIFEST).exists() or not self.path.exists():
            return
        others = [
            p.name
            for p in sorted(self.path.iterdir())
            if p.name not in (SHARDS, LOG) and not p.name.endswith(".tmp")
        ]
        if others or any((self.path / SHARDS).glob("*.npy")):
            raise InputError(
                f"{self.path} is not empty and holds no {MANIFEST} "
                f"(found {', '.join(others[:3]) or 'shards'}). Give a new folder."
            )

    def _lock(self) -> None:
        """Refuse two runs in one folder; the lock goes with the process, however it ends."""
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:
            fcntl.flock(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another run is writing to {self.path}. Wait for it, or give another folder."
            ) from None
        except OSError:  # a file system without locks
            return

    def _resume_or_start(self) -> None:
        for leftover in [*self.path.glob(".*.tmp"), *(self.path / SHARDS).glob(".*.tmp")]:
            leftover.unlink(missing_ok=True)
        if not (self.path / MANIFEST).exists():
            self._write_manifest({**self.settings, "complete": False, **self._note})
            self.log(f"started on {platform.node()} by scalecal {__version__}")
            return
        manifest = read_manifest(self.path)
        found = self._changed(manifest)
        if found and not manifest.get("complete") and not holds_shards(self.path):
            # Nothing is lost by other settings: a run that stopped at its first image, say.
            for shard_note in (self.path / SHARDS).glob("*.json"):
                shard_note.unlink(missing_ok=True)
            self._write_manifest({**self.settings, "complete": False})
            self.log(f"started afresh on {platform.node()} with other settings")
            return
        if found == [_IMAGES_CHANGED]:
            raise InputError(
                f"the images changed since {self.path} was begun. "
                "Bring the old ones back to go on, or give a new folder."
            )
        if found:
            raise InputError(
                f"{self.path} holds features made with other settings ({'; '.join(found)}). "
                "Use the same settings to go on, or give a new folder."
            )
        self.complete = bool(manifest["complete"])
        if self.complete:
            self.damaged = tuple(damaged_files(self.path, manifest))
        if self.damaged:
            self._reopen(manifest)
        elif self.complete:
            self._sweep()
        else:
            left = len(self.missing())
            self.log(f"resumed on {platform.node()}: {left} shards to do")

    def _changed(self, manifest: Mapping[str, Any]) -> list[str]:
        """Name the settings in which the folder differs from this run."""
        there = {k: manifest.get(k) for k in self.settings}
        # Two hashes of a column tell a reader nothing: its name is enough.
        old, new = there.pop("columns") or {}, self.settings["columns"]
        found = differences(there, {**self.settings, "columns": None})
        changed = [c for c in dict.fromkeys([*old, *new]) if old.get(c) != new.get(c)]
        if changed:
            found.append(f"other values in {', '.join(sorted(changed))}")
        # The hash covers the images and the table; what else differs of them says more.
        hashes = [line for line in found if line.startswith("dataset.hash:")]
        rest = [line for line in found if line not in hashes]
        told = any(line.startswith(("dataset.", "other values in ")) for line in rest)
        return rest if told or not hashes else [_IMAGES_CHANGED, *rest]

    def _reopen(self, manifest: Mapping[str, Any]) -> None:
        """Make a finished folder with damaged files an unfinished one that lacks these."""
        verb = "is" if len(self.damaged) == 1 else "are"
        told = f"{', '.join(self.damaged)} {verb} damaged: done again"
        warnings.warn(f"{self.path}: {told}", ScalecalWarning, stacklevel=5)
        self.log(told)
        skipped = self._skipped_by_row(manifest)
        for shard, start, stop in self.shard_ranges():
            entry = manifest["shards"][shard]
            data, note_file = shard_files(self.path, shard)
            left_out = [skipped[row] for row in range(start, stop) if row in skipped]
            known = entry["rows"] + len(left_out) == stop - start
            if entry["file"] in self.damaged or not known:
                data.unlink(missing_ok=True)
                note_file.unlink(missing_ok=True)
                continue
            note = {**{k: entry[k] for k in ("rows", "bytes", "sha256")}, "skipped": left_out}
            content = json_bytes(note)
            write_whole(note_file, methodcaller("write", content))
        # Last: a kill before this finds the folder damaged again and comes the same way.
        self._write_manifest({**self.settings, "complete": False, **self._note})
        self.complete = False

    def _skipped_by_row(self, manifest: Mapping[str, Any]) -> dict[int, list[Any]]:
        """Return [row, id, reason] of the skipped images by row; none if the list is damaged."""
        if manifest["skipped"] is None or SKIPPED in self.damaged:
            return {}
        with open(self.path / SKIPPED, encoding="utf-8", newline="") as file:
            return {int(r[0]): [int(r[0]), *r[1:]] for r in list(csv.reader(file))[1:]}

    def _write_manifest(self, content: Mapping[str, Any]) -> None:
        write_whole(self.path / MANIFEST, lambda file: file.write(json_bytes(content)))

    def log(self, line: str) -> None:
        """Add a line with the time to ``run.log``."""
        with disk_errors(self.path / LOG):
            self._log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {line}\n")
            self._log.flush()

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
            if not shard_done(self.path, shard, stop - start)
        ]

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
        for shard, _, _ in self.shard_ranges():
            for file in shard_files(self.path, shard):
                file.unlink(missing_ok=True)
        sync_folder(self.path / SHARDS)
        self.settings = {**self.settings, **changes}
        self._note = dict(note or self._note)
        self._write_manifest({**self.settings, "complete": False, **self._note})
        self.log(f"restarted with {changes}")

    def finish(self) -> dict[str, Any]:
        """Write the table, the list of skipped images and the final manifest; return it."""
        if self.complete:
            return read_manifest(self.path)
        left = len(self.missing())
        if left:
            raise InputError(f"{self.path} is not finished: {left} shards are missing")
        notes = []
        for shard, start, stop in self.shard_ranges():
            data, note = shard_files(self.path, shard)
            done = json.loads(note.read_text(encoding="utf-8"))
            entry = {"file": f"{SHARDS}/{data.name}", "start": start, "stop": stop, **done}
            notes.append(entry)
        skipped = [s for entry in notes for s in entry.pop("skipped")]
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
            "table": self._write_table([int(s[0]) for s in skipped]),
            "skipped": self._write_skipped(skipped),
            "shards": notes,
        }
        self._write_manifest(result)
        self.complete = True
        self._sweep()
        self.log(f"finished: {result['n']} embeddings, {len(skipped)} images skipped")
        return result

    def _write_table(self, skipped_rows: Sequence[int]) -> dict[str, str]:
        kept = self.table.drop(self.table.index[list(skipped_rows)])
        try:
            content = kept.to_parquet(index=False)
        except (TypeError, ValueError) as error:  # pyarrow's own errors are kinds of these
            raise InputError(f"the table cannot be stored: {error}") from None
        write_whole(self.path / TABLE, lambda file: file.write(content))
        return {"file": TABLE, "sha256": file_hash(self.path / TABLE)}

    def _write_skipped(self, skipped: Sequence[Sequence[Any]]) -> dict[str, str] | None:
        if not skipped:
            return None
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "id", "reason"])
        writer.writerows(skipped)
        write_whole(self.path / SKIPPED, lambda file: file.write(text.getvalue().encode()))
        return {"file": SKIPPED, "sha256": file_hash(self.path / SKIPPED)}

    def _sweep(self) -> None:
        """Remove the notes of a finished run; all they say is in the manifest now."""
        for note in (self.path / SHARDS).glob("*.json"):
            note.unlink(missing_ok=True)
