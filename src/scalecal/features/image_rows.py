"""Reading rows of an image set in parallel: by threads, or by threads with a decoding process each.

Why processes: Pillow releases Python's lock while it decompresses, but threads still share the rest
(headers, arrays, the memory map of the process): 16 of them decode less than eight do, 16 processes
three times as much (`benchmarks.gpu_tiles`).

Why a plain child process and two pipes: it needs no ``if __name__ == "__main__"`` in the user's
script, may be started from any process (also a daemonic worker), imports neither torch nor pandas,
takes no shared memory (64 MB is all a container has by default) and so can leave none behind; a
full pipe makes the decoder wait; and when either side dies, the other finds its pipe closed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from io import BufferedReader
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.datasets.image_sources import FileSource, ImageError, check_resized
from scalecal.features.transforms import pillow_pixels
from scalecal.io.feature_store import Skipped

if TYPE_CHECKING:
    from scalecal.datasets.image_sets import ImageSet
    from scalecal.encoders.registry import Preprocessing

UInt8 = NDArray[np.uint8]
Unread = tuple[int, str]
"""A row that could not be read, and why."""


@dataclass
class Piece:
    """Images of a few neighbouring rows: those that could be read, and those that could not."""

    images: list[UInt8] | UInt8
    skipped: list[Skipped]


def read_rows(
    images: ImageSet,
    start: int,
    stop: int,
    preprocess: Preprocessing | None,
    strict: bool,
    *,
    resize: bool = True,
) -> Piece:
    """Read rows; arguments as in `decode_rows`."""
    if images.kind == "array":
        try:
            block = images.read_block(start, stop)
            if len(block):
                _check_size(block[0], preprocess)
        except ImageError:
            pass  # one by one below, to find out which
        else:
            if preprocess is not None and resize:
                return Piece([pillow_pixels(image, preprocess) for image in block], [])
            return Piece(block, [])
    rows = range(start, stop)
    decoded, unread = decode_rows(images.read_one, rows, preprocess, strict, resize=resize)
    return Piece(decoded, _named(images, unread))


def _check_size(image: UInt8, preprocess: Preprocessing | None, name: str = "") -> None:
    if preprocess is not None:
        size = image.shape[0], image.shape[1]
        check_resized(name, size, preprocess.resized_size(*size))


def decode_rows(
    read_one: Callable[[int], UInt8],
    rows: Iterable[int],
    preprocess: Preprocessing | None,
    strict: bool,
    *,
    resize: bool = True,
) -> tuple[list[UInt8], list[Unread]]:
    """Read rows one by one; with `preprocess`, resize and crop them by Pillow.

    Without `resize` that is left to the card: the images come as they are, except those that `preprocess`
    would make too large. With `strict`, raise at the first that cannot be read.
    """
    images: list[UInt8] = []
    unread: list[Unread] = []
    for row in rows:
        try:
            image = read_one(row)
            _check_size(image, preprocess, f"in row {row}")
            if preprocess is not None and resize:
                image = _resized(image, preprocess, row)
        except ImageError as error:
            if strict:
                raise
            unread.append((row, error.reason))
        else:
            images.append(image)
    return images, unread


def _resized(image: UInt8, preprocess: Preprocessing, row: int) -> UInt8:
    try:
        return pillow_pixels(image, preprocess)
    except MemoryError:  # one image's fault: a smaller batch would not help
        raise ImageError(f"in row {row}", "resized, it does not fit into the memory") from None


def _named(images: ImageSet, unread: Iterable[Unread]) -> list[Skipped]:
    """Return the rows that could not be read with their ids."""
    return [Skipped(row, str(images.cases.ids[row]), reason) for row, reason in unread]


# What a user may have set in Pillow that decides which images are taken.
_PILLOW_SETTINGS = (
    ("PIL.Image", "MAX_IMAGE_PIXELS"),
    ("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES"),
    ("PIL.PngImagePlugin", "MAX_TEXT_CHUNK"),
    ("PIL.PngImagePlugin", "MAX_TEXT_MEMORY"),
)
_PATIENCE = 10.0


class LostProcess(Exception):
    """The process has ended, or never started; the words say how."""


class DecodingProcess:
    """One decoding process, as seen by the one thread that uses it; arguments as in `decode_rows`."""

    def __init__(self, preprocess: Preprocessing | None, strict: bool) -> None:
        settings = {(m, name): getattr(import_module(m), name) for m, name in _PILLOW_SETTINGS}
        # Quiet unless the user asked for warnings: 16 processes would say everything 16 times.
        warnings = [part for option in ("ignore", *sys.warnoptions) for part in ("-W", option)]
        command = [sys.executable, "-P", *warnings, "-m", "scalecal.features.image_rows"]
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **one, "PYTHONPATH": path},
            # Ctrl-C is for the caller, who ends this process in good order.
            process_group=0,
        )
        assert self._process.stdin is not None
        assert isinstance(self._process.stdout, BufferedReader)
        self._requests, self._answers = self._process.stdin, self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # noticed by `read`
            self._send((settings, preprocess, strict))

    def read(self, source: FileSource) -> tuple[list[UInt8] | UInt8, list[Unread]]:
        """Decode all rows of a source; an error that the decoding raises is raised here."""
        try:
            self._send(source)
            answer = pickle.load(self._answers)  # written by our own process
        except (EOFError, OSError, pickle.UnpicklingError):
            self.close()
            code = self._process.returncode
            raise LostProcess(f"a decoding process ended with code {code}") from None
        if isinstance(answer, Exception):
            raise answer
        images, unread = answer
        return images, unread

    def dismiss(self) -> None:
        """Tell the process to end; it does when it has answered."""
        with contextlib.suppress(OSError):
            self._requests.close()

    def close(self) -> None:
        """End the process and wait for that."""
        self.dismiss()
        self._answers.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, message: Any) -> None:
        self._requests.write(pickle.dumps(message))
        self._requests.flush()


def main() -> None:
    """Decode what standard input asks for, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = sys.stdin.buffer
    with contextlib.suppress(EOFError, BrokenPipeError), os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # whatever a library prints must not end up among the pixels
        settings, *how = pickle.load(requests)  # from the process that started us
        for (module, name), value in settings.items():
            setattr(import_module(module), name, value)
        while True:
            answer = _decoded(pickle.load(requests), *how)
            pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
            answers.flush()


def _decoded(source: FileSource, preprocess: Preprocessing | None, strict: bool) -> Any:
    """The images of all rows and the rows that could not be read, or the error that was raised."""
    try:
        rows = range(len(source))
        images, unread = decode_rows(source.read_one, rows, preprocess, strict, resize=False)
    except Exception as error:
        from scalecal.engines.local import sendable

        return sendable(error)
    if len({image.shape for image in images}) == 1:
        # One array takes the caller a third less time to receive than one for each image.
        return np.stack(images), unread
    return images, unread


# Up to here threads alone decode as fast (four are 3.7 times one).
_THREADS_SUFFICE = 4
# Fewer rows for each worker are read before a process has paid for its start.
_ROWS_PER_PROCESS = 128


class RowPool(contextlib.AbstractContextManager["RowPool"]):
    """Read rows of an image set, several ranges at a time; a context manager.

    With many workers and many image files, every thread has a process that decodes for it (see
    `scalecal.features.image_rows`). The thread reads by itself if the process is lost: who decodes
    changes the speed, never the result.

    `workers` ranges are read at the same time, about `rows` rows in all; `preprocess` and `strict` as in
    `decode_rows`, without resizing.
    """

    def __init__(
        self,
        images: ImageSet,
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
        self._pool = ThreadPoolExecutor(workers, "rows", initializer=self._begin)

    def __exit__(self, *exc: object) -> None:
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
            _warn(f"a decoding process could not be started ({error})")
        else:
            self._processes.append(self._own.process)

    def _read(self, start: int, stop: int) -> Piece:
        process: DecodingProcess | None = self._own.process
        if process is not None and self._source is not None:
            try:
                pixels, unread = process.read(self._source.take(np.arange(start, stop)))
                skipped = ((start + row, reason) for row, reason in unread)
                return Piece(pixels, _named(self._images, skipped))
            except LostProcess as loss:
                self._own.process = None
                _warn(str(loss))
        return read_rows(self._images, start, stop, self._preprocess, self._strict, resize=False)


def _files(images: ImageSet, workers: int, rows: int) -> FileSource | None:
    """Return the files to be decoded by processes; None where threads are the better choice."""
    source = getattr(images, "source", None)
    many = workers > _THREADS_SUFFICE and rows >= workers * _ROWS_PER_PROCESS
    # An archive's index is too large to be read again by every process. A frozen program has no
    # interpreter to start, Windows no process groups.
    can = os.name == "posix" and bool(sys.executable) and not hasattr(sys, "frozen")
    if many and can and type(source) is FileSource:
        return source
    return None


def _warn(what: str) -> None:
    warnings.warn(
        f"{what}; its share is decoded by a thread, more slowly", RuntimeWarning, stacklevel=2
    )


if __name__ == "__main__":
    main()
