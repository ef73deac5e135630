"""Work for the tests of the engines: it must be importable by workers, and quickly."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scalecal.checks import InputError
from scalecal.engines import Worker


class Task(NamedTuple):
    """A number, and what goes wrong the first time it is worked on."""

    number: int
    folder: Path
    mishap: str = ""


def first_time(folder: Path, name: str) -> bool:
    """True once for every name, whoever asks: a file can be made only once."""
    try:
        (folder / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def square(_: Any, task: Task) -> tuple[int, int]:
    """The square of the number, and the process that did it; or a mishap."""
    if task.mishap == "input":
        raise InputError("the number is not to our liking")
    if task.mishap == "always":
        raise OSError("the disk is never there")
    if task.mishap and first_time(task.folder, f"mishap-{task.number}"):
        if task.mishap == "raise":
            raise OSError("a disk hiccup")
        if task.mishap == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if task.mishap == "unpicklable":
            error = OSError("no way home")
            error.handle = open(__file__)  # type: ignore[attr-defined]  # noqa: SIM115
            raise error
    return task.number**2, os.getpid()


def counted(worker: Worker, folder: Path) -> Worker:
    """Leave a file per set-up."""
    (folder / f"setup-{worker.number}-{os.getpid()}-{time.monotonic_ns()}").touch()
    return worker


def who(state: Worker, _: Any) -> tuple[int, str | None, int]:
    time.sleep(0.1)
    return state.number, state.device, state.threads


def large(_: Any, megabytes: int) -> np.ndarray:
    """A result that fills the store of results."""
    return np.full(megabytes << 17, float(megabytes))


def arithmetic_threads(worker: Worker, name: str) -> tuple[str | None, int]:
    """What a worker's libraries are told, and how many threads are its share."""
    return os.environ.get(name), worker.threads
