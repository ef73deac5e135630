"""Two processes on one folder, and what a killed one leaves behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scalecal.checks import InputError
from scalecal.io.store import Store, lock_folder, output_folder, sweep, write_file, write_text

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
fork = multiprocessing.get_context("fork")


@contextmanager
def at_work(work: Callable[[Path, Any], None], root: Path) -> Iterator[int]:
    """Another process that does `work` up to where it says so, and is killed in the end."""
    here, there = fork.Pipe()
    process = fork.Process(target=work, args=(root, there))
    process.start()
    there.close()
    try:
        assert here.poll(60)
        assert here.recv() == "ready"
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL


def hold_store(root: Path, pipe: Any) -> None:
    with Store(root / "run", {"a": 1}, kind="finetune"):
        pipe.send("ready")
        signal.pause()


def write_slowly(root: Path, pipe: Any) -> None:
    with output_folder(root / "run", kind="compare") as folder:
        write_text(folder / "half.txt", "half")
        pipe.send("ready")
        signal.pause()


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".scalecal*") if path.name != ".scalecal.json"]


def test_the_second_run_is_refused_and_a_stale_lock_taken_over(tmp_path: Path) -> None:
    with at_work(hold_store, tmp_path):
        with (
            pytest.raises(InputError, match=r"another run is writing to .*run"),
            Store(tmp_path / "run", {"a": 1}, kind="finetune"),
        ):
            pass
        with pytest.raises(InputError, match="another run"), lock_folder(tmp_path / "run"):
            pass
    with Store(tmp_path / "run", {"a": 1}, kind="finetune") as store:
        store.write("a.txt", "a")
    assert leftovers(tmp_path) == []


def test_what_a_killed_process_left_is_swept_and_what_one_at_work_has_is_not(
    tmp_path: Path,
) -> None:
    with at_work(write_slowly, tmp_path):
        assert len(leftovers(tmp_path)) == 1
        sweep(tmp_path)
        write_file(tmp_path / "other.txt", "x", kind="predict")
        assert len(leftovers(tmp_path)) == 1
    assert not (tmp_path / "run").exists()
    with output_folder(tmp_path / "run", kind="compare") as folder:
        write_text(folder / "whole.txt", "whole")
    assert leftovers(tmp_path) == []
    assert (tmp_path / "run" / "whole.txt").read_text() == "whole"


def sweep_on(root: Path, pipe: Any) -> None:
    sweep(root)
    pipe.send("ready")
    while True:
        sweep(root)


def test_sweeping_never_takes_what_is_being_written(tmp_path: Path) -> None:
    with at_work(sweep_on, tmp_path):
        for number in range(25):
            write_text(tmp_path / "a.txt", str(number))
            assert (tmp_path / "a.txt").read_text() == str(number)
            with output_folder(tmp_path / str(number)) as folder:
                (folder / "a.txt").write_text("a")
    assert leftovers(tmp_path) == []
