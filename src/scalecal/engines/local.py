"""Engines of one machine: this process, or several processes, with a GPU each where wanted."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from scalecal.engines.interface import Ledger, Setup, Work, Worker

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpu_count() -> int:
    """GPUs this process may use."""
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count()


class InProcess:
    """Does one task after the other, here. Errors are raised as they come."""

    workers = 1
    gpus = False

    def run(
        self,
        work: Work,
        tasks: Iterable[Any],
        *,
        setup: Setup | None = None,
        final: Callable[[BaseException], bool] | None = None,  # noqa: ARG002
    ) -> Iterator[tuple[int, Any]]:
        """See `scalecal.engines.Engine.run`."""
        do = Job(work, setup, Worker(threads=cores()))
        for number, task in enumerate(tasks):
            yield number, do(task)

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


class Processes:
    """Several processes on this machine, with `gpus` each with a GPU of its own.

    They are spawned, not forked (CUDA does not survive a fork), so a script that uses them needs
    the usual ``if __name__ == "__main__":``. They live until the engine is closed or is given
    another `setup`, so that an encoder is loaded once.
    """

    def __init__(self, workers: int, *, gpus: bool = False) -> None:
        self.workers = workers
        self.gpus = gpus
        self._processes: dict[Connection, tuple[BaseProcess, Worker]] = {}
        self._job: bytes | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop_workers()

    def run(
        self,
        work: Work,
        tasks: Iterable[Any],
        *,
        setup: Setup | None = None,
        final: Callable[[BaseException], bool] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """See `scalecal.engines.Engine.run`."""
        job = pickle.dumps((work, setup))
        if job != self._job:
            self._stop_workers()
            self._job = job
        ledger = Ledger(tasks, final)
        busy: dict[Connection, int] = {}
        try:
            while True:
                self._hand_out(ledger, busy)
                if not busy:
                    return
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    number = busy.pop(ready)
                    try:
                        error, result = ready.recv()
                    except (EOFError, ConnectionError):
                        ledger.lost(number, self._discard_worker(ready))
                        continue
                    if error is None:
                        ledger.done(number)
                        yield number, result
                        continue
                    ledger.failed(number, error)
                    # The error may be the worker's own (a GPU in a bad state): take a new one.
                    self._processes[ready][0].terminate()
                    self._discard_worker(ready)
        finally:
            # A worker in the middle of a task would answer the next run with this one's result.
            for connection in busy:
                self._processes[connection][0].terminate()
                self._discard_worker(connection)

    def _hand_out(self, ledger: Ledger, busy: dict[Connection, int]) -> None:
        while len(busy) < self.workers:
            drawn = ledger.draw()
            if drawn is None:
                return
            number, task = drawn
            free = next((c for c in self._processes if c not in busy), None) or self._start_worker()
            try:
                free.send((task,))
                busy[free] = number
            except (BrokenPipeError, ConnectionError):
                ledger.lost(number, self._discard_worker(free))

    def _start_worker(self) -> Connection:
        taken = {worker.number for _, worker in self._processes.values()}
        number = next(i for i in range(self.workers) if i not in taken)
        device = f"cuda:{number}" if self.gpus else None
        worker = Worker(number, device, max(1, cores() // self.workers))
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, worker, self._job))
        with _arithmetic_threads(worker.threads):
            process.start()
        there.close()
        self._processes[here] = (process, worker)
        return here

    def _discard_worker(self, connection: Connection) -> str:
        """Forget a process that has ended, and return how it ended."""
        process, worker = self._processes.pop(connection)
        connection.close()
        process.join()
        return f"process of worker {worker.number} ended with code {process.exitcode}"

    def _stop_workers(self) -> None:
        for connection, (process, _) in self._processes.items():
            with contextlib.suppress(BrokenPipeError, ConnectionError):
                connection.send(None)
            connection.close()
            process.join(timeout=10)
            if process.is_alive():
                process.terminate()
                process.join()
        self._processes.clear()


@contextlib.contextmanager
def _arithmetic_threads(count: int) -> Iterator[None]:
    """Processes started meanwhile compute with this number of threads, unless the user has set a number.

    By default each would take one per core, and all of them would wait for each other.
    """
    unset = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, str(count)))
    try:
        yield
    finally:
        for name in unset:
            del os.environ[name]


def _serve(connection: Connection, worker: Worker, job: bytes) -> None:
    """Do tasks until asked to stop; errors are sent back, not raised."""
    work, setup = pickle.loads(job)  # made by the parent process a moment ago
    do = Job(work, setup, worker)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while (message := connection.recv()) is not None:
            connection.send(do.answer(message[0]))


class Job:
    """Does tasks for one worker, whose state is made at the first, so that errors are that task's."""

    def __init__(self, work: Work, setup: Setup | None, worker: Worker) -> None:
        self._work, self._setup = work, setup
        self._state: Any = worker

    def __call__(self, task: Any) -> Any:
        """Do one task and return its result."""
        if self._setup is not None:
            self._state, self._setup = self._setup(self._state), None
        return self._work(self._state, task)

    def answer(self, task: Any) -> tuple[Exception | None, Any]:
        """Return the error of a task, or None, and its result."""
        try:
            return None, self(task)
        except Exception as error:
            return sendable(error), None


def sendable(error: Exception) -> Exception:
    """Return an error that can be pickled: itself, or its words."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
