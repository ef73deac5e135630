"""Processes that run cases: one that dies or stands still takes one case with it, not the run."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.fuzz.engine import (
    CRASH,
    HANG,
    MEMORY,
    SECONDS,
    Bench,
    Outcome,
    memory_folder,
    virtual_memory,
)

TASKS = 200
"""Tasks after which a process is replaced: what it keeps in memory is not the next cases' concern."""
APART = 100
"""One case in so many has a process of its own."""


def _work(tasks: Connection, now: Any, home: str) -> None:
    """Run the cases that are asked for, until there are no more."""
    from tests.fuzz.registry import SURFACES

    benches: dict[str, Bench] = {}
    loud = os.dup(2)
    _quiet()
    try:
        while (task := tasks.recv()) is not None:
            name, numbers = task
            if name not in benches:
                benches[name] = Bench(name, SURFACES[name], home)
                limit = virtual_memory() + 2 * MEMORY
                resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            results = []
            for number in numbers:
                now.value = number
                results.append((number, benches[name].run(number, apart=number % APART == 0)))
            now.value = -1
            tasks.send(results)
    except (EOFError, KeyboardInterrupt):
        pass
    except Exception:
        os.write(loud, traceback.format_exc().encode())
        raise


def _quiet() -> None:
    """Send what libraries of C print nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


class Worker:
    """A process that runs cases, as its owner sees it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._now = context.Value("q", -1, lock=False)
        # Ended by force, a process leaves its files behind.
        self._home = tempfile.mkdtemp(prefix="fuzz-", dir=memory_folder())
        self._process = context.Process(target=_work, args=(theirs, self._now, self._home))
        self._process.start()
        theirs.close()
        self.task: tuple[str, list[int]] | None = None
        self.given = 0
        self._seen, self._since = -1, time.monotonic()

    def give(self, name: str, numbers: list[int]) -> None:
        """Ask for some cases."""
        self.task = (name, numbers)
        self.given += 1
        self._since = time.monotonic()
        self.pipe.send(self.task)

    def stands_still(self) -> bool:
        """Whether it has been at one case for too long to be merely slow."""
        number = self._now.value
        if number != self._seen:
            self._seen, self._since = number, time.monotonic()
        return number >= 0 and time.monotonic() - self._since > 3 * SECONDS

    def lost(self) -> tuple[int, list[int], int | None]:
        """End it; return the case it was at, those after it, and its exit code."""
        assert self.task is not None
        number = self._now.value
        self._process.join(0.5)
        code = self._process.exitcode
        self.close()
        numbers = self.task[1]
        if number not in numbers:
            raise RuntimeError(
                f"a process ended with code {code} before it ran a case of {self.task[0]}"
            )
        at = numbers.index(number)
        return numbers[at], numbers[:at] + numbers[at + 1 :], code

    def close(self) -> None:
        """Let it end."""
        with suppress(OSError):
            self.pipe.send(None)
        self._process.join(10)
        self._process.kill()
        self._process.join()
        shutil.rmtree(self._home, ignore_errors=True)


def _replaced(worker: Worker, *lists: list[Worker]) -> Worker:
    new = Worker()
    for each in lists:
        each[each.index(worker)] = new
    return new


def run_all(
    tasks: Iterator[tuple[str, list[int]]], jobs: int
) -> Iterator[tuple[str, list[tuple[int, Outcome]]]]:
    """Run tasks on some processes; yield their results as they come."""
    workers = [Worker() for _ in range(jobs)]
    busy: list[Worker] = []
    waiting: list[tuple[str, list[int]]] = []
    try:
        for worker in workers:
            if (task := next(tasks, None)) is not None:
                worker.give(*task)
                busy.append(worker)
        while busy:
            ready = wait([w.pipe for w in busy], timeout=5.0)
            for worker in list(busy):
                still = worker.stands_still()
                if worker.pipe not in ready and not still:
                    continue
                assert worker.task is not None
                name = worker.task[0]
                try:
                    if still:
                        raise EOFError
                    results = worker.pipe.recv()
                except (EOFError, OSError):
                    number, rest, code = worker.lost()
                    kind, how = (HANG, "stands still") if still else (CRASH, f"exit code {code}")
                    results = [(number, Outcome(kind, how))]
                    if rest:
                        waiting.append((name, rest))
                    worker = _replaced(worker, workers, busy)
                yield name, results
                if worker.given >= TASKS:
                    worker.close()
                    worker = _replaced(worker, workers, busy)
                task = waiting.pop() if waiting else next(tasks, None)
                if task is None:
                    busy.remove(worker)
                else:
                    worker.give(*task)
    finally:
        for worker in workers:
            worker.close()
