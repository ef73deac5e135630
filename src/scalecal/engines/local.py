"""What every engine promises, and the engines of one machine: this process, or several.

With processes of their own workers may have a GPU each.
"""

from __future__ import annotations

import abc
import contextlib
import multiprocessing
import os
import pickle
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import MappingProxyType
from typing import Any

from scalecal.checks import InputError, check_positive_int, lookup

MAX_FAILURES = 3
"""Times a task may raise before the run ends; the cause may be a passing one (a disk, a GPU)."""

MAX_LOSSES = 10
"""Times a task may lose its worker; machines that are lent out come and go."""

Work = Callable[[Any, Any], Any]
Setup = Callable[["Worker"], Any]
Drawn = tuple[int, Any]
"""A task with its number."""


@dataclass(frozen=True)
class Worker:
    """Who does the work.

    Attributes
    ----------
    number
        0, 1, ...: which of the engine's workers.
    device
        The accelerator that is this worker's own (``"cuda:1"``), None if it has none.
    threads
        Threads it may use.
    """

    number: int = 0
    device: str | None = None
    threads: int = 1

    def device_for(self, device: str) -> str:
        """Return this worker's own GPU if it has one and `device` is a GPU, else `device`."""
        if device == "cpu" or self.device is None:
            return device
        return self.device


class Engine(AbstractContextManager["Engine"]):
    """Workers that do tasks. A context manager.

    Attributes
    ----------
    workers : int
        How many workers do tasks at the same time.
    gpus : bool
        Whether each worker has a GPU of its own.
    """

    workers: int
    gpus: bool

    @abc.abstractmethod
    def run(
        self,
        work: Work,
        tasks: Iterable[Any],
        *,
        setup: Setup | None = None,
        final: Callable[[BaseException], bool] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Do the tasks; yield (number of the task, result) as they finish, in any order.

        Tasks are drawn from the iterable only when a worker is free. A task whose worker is lost,
        or that raises, is done again by another worker (see `MAX_LOSSES`, `MAX_FAILURES`; in this
        process errors are raised), so it must be safe to repeat. An `InputError`, or an error for
        which `final` is true, ends the run at once; results that were yielded before stand.
        """

    def __exit__(self, *exc: object) -> None:
        """Stop the workers."""


class TaskError(RuntimeError):
    """A task could not be done: it raised, or lost its worker, too many times."""


class Ledger:
    """Tasks to do and to be done again, with their numbers, for engines that can lose a worker.

    Examples
    --------
    >>> ledger = Ledger(["a", "b"], None)
    >>> ledger.draw(), ledger.lost((0, "a"), "killed"), ledger.draw()
    ((0, 'a'), None, (0, 'a'))
    """

    def __init__(self, tasks: Iterable[Any], final: Callable[[BaseException], bool] | None) -> None:
        self._fresh = enumerate(tasks)
        self._again: list[Drawn] = []
        self._failures: Counter[int] = Counter()
        self._losses: Counter[int] = Counter()
        self._final = final

    def draw(self) -> Drawn | None:
        """Return a task to do now, None if there is none left to hand out."""
        if self._again:
            return self._again.pop(0)
        return next(self._fresh, None)

    def failed(self, drawn: Drawn, error: BaseException) -> None:
        """Put a task that raised aside to be done again, or raise its error."""
        number, _ = drawn
        if isinstance(error, InputError) or (self._final is not None and self._final(error)):
            raise error
        self._failures[number] += 1
        if self._failures[number] >= MAX_FAILURES:
            raise TaskError(
                f"task {number} failed {MAX_FAILURES} times, the last time with "
                f"{type(error).__name__}: {error}"
            ) from error
        self._again.append(drawn)

    def lost(self, drawn: Drawn, how: str) -> None:
        """Put a task whose worker was lost aside to be done again."""
        number, _ = drawn
        self._losses[number] += 1
        if self._losses[number] >= MAX_LOSSES:
            raise TaskError(
                f"task {number} lost its worker {MAX_LOSSES} times, the last time: {how}"
            )
        self._again.append(drawn)


class WorkerLost(Exception):
    """A worker ended in the middle of a task; the words say how."""


class WorkerPool(Engine):
    """Workers that may be lost, by number: the loop of the engines that have them.

    `_free` holds the numbers of the workers that can be given a task now. `_prepare` has workers for a
    job, those of the last run if it was the same. `_send` gives a worker a task and returns what its
    answer comes by; `_wait` returns those of the awaited answers that have come, none where only a
    worker came; `_receive` returns a task's error, or None, and its result, or raises `WorkerLost`.
    `_replace` stops a worker and has a new one take its number.
    """

    _free: list[int]

    @abc.abstractmethod
    def _prepare(self, work: Work, setup: Setup | None) -> None: ...

    @abc.abstractmethod
    def _send(self, worker: int, task: Any) -> Any: ...

    @abc.abstractmethod
    def _wait(self, awaited: Collection[Any]) -> Collection[Any]: ...

    @abc.abstractmethod
    def _receive(self, worker: int, answer: Any) -> Any: ...

    @abc.abstractmethod
    def _replace(self, worker: int) -> None: ...

    @abc.abstractmethod
    def _stop_workers(self) -> None: ...

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
        ledger = Ledger(tasks, final)
        self._prepare(work, setup)
        busy: dict[Any, tuple[int, Drawn]] = {}  # answer to come -> (worker, task)
        drawn = ledger.draw()
        try:
            while drawn is not None or busy:
                while self._free and drawn is not None:
                    answer = self._send(self._free[-1], drawn[1])
                    busy[answer] = (self._free.pop(), drawn)
                    drawn = ledger.draw()
                for answer in self._wait(busy):
                    worker, held = busy.pop(answer)
                    try:
                        error, result = self._receive(worker, answer)
                    except WorkerLost as lost:
                        self._replace(worker)
                        ledger.lost(held, str(lost))
                    else:
                        if error is None:
                            self._free.append(worker)
                            yield held[0], result
                            continue
                        # The error may be the worker's own (a GPU in a bad state): take a new one.
                        self._replace(worker)
                        ledger.failed(held, error)
                    drawn = drawn or ledger.draw()
        finally:
            # A worker in the middle of a task would answer the next run with this one's result.
            for worker, _ in busy.values():
                self._replace(worker)


# Engines of one machine

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


# Engines by name


def _open_local(workers: int | None, num_gpus: int | None, address: str | None) -> Engine:
    if address is not None:
        raise InputError("an address is for engine='ray'; the local engine has none")
    if num_gpus:
        available = gpu_count()
        if num_gpus > available:
            raise InputError(
                f"num_gpus (--num-gpus) counts GPUs: {num_gpus} asked for, {available} on this machine. For "
                f"{num_gpus} processes without a GPU use workers={num_gpus} (--workers {num_gpus})"
            )
        return Processes(num_gpus, gpus=True)
    if workers is None or workers == 1:
        return InProcess()
    return Processes(workers)


def _open_ray(workers: int | None, num_gpus: int | None, address: str | None) -> Engine:
    from scalecal.engines.ray import OnRay

    return OnRay(workers, num_gpus=num_gpus, address=address)


ENGINES: Mapping[str, Callable[[int | None, int | None, str | None], Engine]] = MappingProxyType(
    {"local": _open_local, "ray": _open_ray}
)
"""Engines by name."""


def open_engine(
    name: str = "local",
    *,
    workers: int | None = None,
    num_gpus: int | None = None,
    address: str | None = None,
) -> Engine:
    """Open an engine; use it as a context manager.

    Parameters
    ----------
    name : {"local", "ray"}
    workers : int, optional
        Worker processes, if they have no GPU. Local: one, in this process, by default. Ray: by
        default one per core; more than the cluster has wait for it to grow.
    num_gpus : int, optional
        GPUs to use, each by a worker of its own; 0 for none. Local: none by default. Ray: by
        default all the cluster has; more than that wait for it to grow.
    address : str, optional
        Ray's: ``"auto"`` or ``"ray://host:10001"`` to join a cluster; by default the one that
        ``RAY_ADDRESS`` names, else one that is started on this machine and stopped at the end.
    """
    if workers is not None:
        check_positive_int(workers, "workers")
    if num_gpus is not None:
        check_positive_int(num_gpus, "num_gpus", least=0)
    return lookup(name, ENGINES, "engine")(workers, num_gpus, address)
