"""Engines of one machine: this process, or several processes, with a GPU each where wanted."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from scalecal.engines.interface import Engine, Setup, Work, Worker, WorkerLost, WorkerPool

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


class InProcess(Engine):
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


class Processes(WorkerPool):
    """Several processes on this machine, with `gpus` each with a GPU of its own.

    They are spawned, not forked (CUDA does not survive a fork), so a script that uses them needs
    the usual ``if __name__ == "__main__":``. They live until the engine is closed or is given
    another `setup`, so that an encoder is loaded once.
    """

    def __init__(self, workers: int, *, gpus: bool = False) -> None:
        self.workers = workers
        self.gpus = gpus
        self._free = []
        self._processes: dict[int, tuple[BaseProcess, Connection]] = {}
        self._job: bytes | None = None

    def _prepare(self, work: Work, setup: Setup | None) -> None:
        job = pickle.dumps((work, setup))
        if job != self._job:
            self._stop_workers()
            self._job = job
            # Each is started with its first task.
            self._free = list(range(self.workers))

    def _send(self, worker: int, task: Any) -> Connection:
        if worker not in self._processes:
            self._start_worker(worker)
        _, connection = self._processes[worker]
        # That a process has ended is noticed where its answer is awaited.
        with contextlib.suppress(ConnectionError):
            connection.send((task,))
        return connection

    def _wait(self, awaited: Collection[Any]) -> Collection[Any]:
        return wait(list(awaited))

    def _receive(self, worker: int, answer: Connection) -> Any:
        try:
            return answer.recv()
        except (EOFError, ConnectionError):
            process, _ = self._processes[worker]
            process.join()
            raise WorkerLost(
                f"process of worker {worker} ended with code {process.exitcode}"
            ) from None

    def _start_worker(self, number: int) -> None:
        device = None
        if self.gpus:
            device = f"cuda:{number}"
        worker = Worker(number, device, max(1, cores() // self.workers))
        context = multiprocessing.get_context("spawn")
        our_end, their_end = context.Pipe()
        process = context.Process(target=_serve, args=(their_end, worker, self._job))
        with _arithmetic_threads(worker.threads):
            process.start()
        their_end.close()
        self._processes[number] = (process, our_end)

    def _replace(self, worker: int) -> None:
        process, connection = self._processes.pop(worker)
        process.terminate()
        connection.close()
        process.join()
        self._free.append(worker)

    def _stop_workers(self) -> None:
        for process, connection in self._processes.values():
            with contextlib.suppress(ConnectionError):
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
    unset = set(THREADS).difference(os.environ)
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
