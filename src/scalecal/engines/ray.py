"""The engine on Ray: actors on a cluster, one per GPU, that may be lost at any time."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Collection
from typing import Any

from scalecal.checks import InputError, ScalecalWarning, library
from scalecal.engines.local import Job, Setup, Work, Worker, WorkerLost, WorkerPool

# What a cluster started here may keep in shared memory; tasks and results are small.
OBJECT_STORE_BYTES = 512 << 20
# After so long without any worker a warning says what the cluster lacks.
PATIENCE_SECONDS = 30.0


def _ray() -> Any:
    return library("ray", "the Ray engine", "'scalecal[ray]'")


class OnRay(WorkerPool):
    """Workers are Ray actors, asked for all at once; those the cluster has no room for wait.

    So a cluster that grows by itself sees the demand, and tasks go to the workers that are there. Every
    machine needs this package. A cluster that was not running is started here and stopped at the
    end; one that was is only joined.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        num_gpus: int | None = None,
        address: str | None = None,
    ) -> None:
        self._ray = _ray()
        self._started_here = False
        if not self._ray.is_initialized():
            self._connect(address)
        has = self._ray.cluster_resources()
        self.gpus = has.get("GPU", 0) > 0 if num_gpus is None else num_gpus > 0
        kind, asked = ("GPU", num_gpus) if self.gpus else ("CPU", workers)
        self._needs = {"num_gpus": 1, "num_cpus": 1} if self.gpus else {"num_cpus": 1}
        self.workers = asked or int(has.get(kind, 0))
        if not self.workers:
            self._disconnect()
            raise InputError(
                f"the Ray cluster has no {kind} now. Say how many to wait for: "
                f"{'--num-gpus' if self.gpus else '--workers'} N"
            )
        self._job: bytes | None = None
        self._actors: dict[int, Any] = {}
        self._starting: dict[Any, int] = {}  # what an actor answers once it is there -> its number
        self._free = []
        self._warned = False

    def _connect(self, address: str | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        self._started_here = True
        if address is not None or os.environ.get("RAY_ADDRESS"):
            options["address"] = address
        else:
            options |= {
                "address": "local",  # else Ray joins any cluster it finds on this machine
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_BYTES,
            }
        try:
            self._ray.init(**options)
        except ConnectionError as error:
            raise InputError(
                f"no Ray cluster at {address or os.environ.get('RAY_ADDRESS')}: {error}"
            ) from None

    def _disconnect(self) -> None:
        if self._started_here:
            self._ray.shutdown()
            self._started_here = False

    def __exit__(self, *exc: object) -> None:
        self._stop_workers()
        self._disconnect()

    def _stop_workers(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        self._starting.clear()
        self._free.clear()

    def _replace(self, worker: int) -> None:
        self._ray.kill(self._actors[worker])
        self._start_worker(worker)

    def _start_worker(self, number: int) -> None:
        """Ask for a worker with this number, which is free once it is there."""
        kind = self._ray.remote(_Actor).options(**self._needs, max_restarts=0)
        self._actors[number] = kind.remote(number, self.gpus, self._shared)
        self._starting[self._actors[number].here.remote()] = number

    def _prepare(self, work: Work, setup: Setup | None) -> None:
        job = self._ray.cloudpickle.dumps((work, setup))
        if job == self._job:
            return
        self._stop_workers()
        self._job = job
        # Once in shared memory, not once per worker.
        self._shared = self._ray.put(job)
        for number in range(self.workers):
            self._start_worker(number)

    def _send(self, worker: int, task: Any) -> Any:
        return self._actors[worker].do.remote(task)

    def _wait(self, awaited: Collection[Any]) -> Collection[Any]:
        both = [*awaited, *self._starting]
        ready, _ = self._ray.wait(both, num_returns=1, timeout=PATIENCE_SECONDS)
        if not ready and not awaited and not self._warned:
            self._warned = True
            self._warn_of_shortage()
        answers = []
        for reference in ready:
            if reference in self._starting:
                self._add_started(reference)
            else:
                answers.append(reference)
        return answers

    def _receive(self, worker: int, answer: Any) -> Any:  # noqa: ARG002
        errors = self._ray.exceptions
        try:
            return self._ray.get(answer)
        except (errors.RayActorError, errors.ObjectLostError) as lost:
            raise WorkerLost(str(lost).splitlines()[0]) from None

    def _add_started(self, reference: Any) -> None:
        """Take on a worker that has started, or ask for another if it was lost meanwhile."""
        worker = self._starting.pop(reference)
        try:
            self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            self._start_worker(worker)
        else:
            self._free.append(worker)

    def _warn_of_shortage(self) -> None:
        has = {k: v for k, v in self._ray.available_resources().items() if k in ("CPU", "GPU")}
        warnings.warn(
            f"no worker could start yet: each needs {self._needs}, free in the cluster are {has}. "
            "Waiting for the cluster to grow.",
            ScalecalWarning,
            stacklevel=3,
        )


class _Actor:
    """One worker."""

    def __init__(self, number: int, gpus: bool, job: bytes) -> None:
        worker = Worker(number, "cuda:0" if gpus else None, _threads(gpus))
        work, setup = _ray().cloudpickle.loads(job)
        self._job = Job(work, setup, worker)

    def here(self) -> bool:
        return True

    def do(self, task: Any) -> tuple[Exception | None, Any]:
        return self._job.answer(task)


def _threads(gpus: bool) -> int:
    """Threads of an actor: an even share of its machine's cores if it has a GPU, else one."""
    if not gpus:
        return 1
    ray = _ray()
    mine = ray.get_runtime_context().get_node_id()
    has = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == mine)
    return max(1, int(has.get("CPU", 1)) // max(1, int(has.get("GPU", 1))))
