"""Reading rows in parallel: by threads, or by threads with a decoding process each."""

from __future__ import annotations

import select
import sys
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from scalecal.datasets.sources import FileSource
from scalecal.features.decoding_process import DecodingProcess, LostProcess
from scalecal.features.rows import Images, Piece, named, read_rows

if TYPE_CHECKING:
    from types import TracebackType

    from scalecal.encoders.preprocessing import Preprocessing

__all__ = ["Readers"]

# Up to here threads alone decode as fast (four are 3.7 times one).
_THREADS_SUFFICE = 4
# Fewer rows for each worker are read before a process has paid for its start.
_ROWS_PER_PROCESS = 128


class Readers:
    """Read rows of an image set, several ranges at a time; a context manager.

    With many workers and many image files, every thread has a process that decodes for it (see
    `scalecal.features.decoding_process`). The thread reads by itself until its process has
    started, and again if the process is lost: who decodes changes the speed, never the result.

    Parameters
    ----------
    images : ImageSet
        Where the images come from.
    workers : int
        Ranges read at the same time.
    rows : int
        How many rows will be asked for, about.
    preprocess : Preprocessing, optional
        Resize and crop by it, with Pillow.
    strict : bool
        Raise at an image that cannot be read, rather than list it.
    """

    def __init__(
        self,
        images: Images,
        workers: int,
        *,
        rows: int,
        preprocess: Preprocessing | None = None,
        strict: bool = False,
    ) -> None:
        self._images, self._preprocess, self._strict = images, preprocess, strict
        self._source = _files(images, workers, rows)
        self._own = threading.local()
        self._processes: list[DecodingProcess] = []
        self._pool = ThreadPoolExecutor(workers, "reader", initializer=self._begin)

    def __enter__(self) -> Readers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        for process in self._processes:
            process.dismiss()
        for process in self._processes:
            process.close()

    def submit(self, start: int, stop: int) -> Future[Piece]:
        """Have the rows start .. stop - 1 read."""
        return self._pool.submit(self._read, start, stop)

    def _begin(self) -> None:
        self._own.process = None
        if self._source is None:
            return
        try:
            self._own.process = DecodingProcess(self._preprocess, self._strict)
        except OSError as error:
            _tell(f"a decoding process could not be started ({error})")
        else:
            self._processes.append(self._own.process)

    def _read(self, start: int, stop: int) -> Piece:
        process: DecodingProcess | None = self._own.process
        if process is not None and self._source is not None:
            try:
                if process.ready():
                    few = self._source.take(np.arange(start, stop))
                    pixels, unread = process.read(few)
                    found = ((start + row, reason) for row, reason in unread)
                    return Piece(pixels, named(self._images, found))
            except LostProcess as loss:
                self._own.process = None
                _tell(str(loss))
        return read_rows(self._images, start, stop, self._preprocess, self._strict)


def _files(images: Images, workers: int, rows: int) -> FileSource | None:
    """Return the files to be decoded by processes; None where threads are the better choice."""
    source = getattr(images, "source", None)
    many = workers > _THREADS_SUFFICE and rows >= workers * _ROWS_PER_PROCESS
    # An archive's index is too large to be read again by every process. Windows has no way to
    # tell whether there is something in a pipe, a frozen program no interpreter to start.
    can = hasattr(select, "poll") and bool(sys.executable) and not hasattr(sys, "frozen")
    return source if many and can and type(source) is FileSource else None


def _tell(what: str) -> None:
    warnings.warn(
        f"{what}; its share is decoded by a thread, more slowly", RuntimeWarning, stacklevel=2
    )
