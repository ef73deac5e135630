"""The whole grid, from embeddings to predictions, beside the usual loop for the same probes.

Run: python -m benchmarks grid

MHIST's size: 2,175 training and 977 test cases, 1,536 features in half precision, seven readers, every
method. The peer is the loop of `benchmarks.solvers` (nn.Linear, DataLoader, Adam, one probe after
another) for as many epochs as each probe took here, counted from its seconds an epoch at that number
of cases. A plain loop over the methods trains for each what it needs, a first probe included; a
thrifty one trains every probe once. Calibrators and predictions cost the peer nothing.

First one encoder's grid in CPU seconds of one thread; then several encoders with ten seeds by the
clock, as `reproduce` does it: features on disk, a process for every core, each with one thread,
starting them included. The loop may use all cores too, or one if it is faster so.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.made import EVERY, table
from benchmarks.solvers import LOOP, embeddings, usual_loop
from scalecal.engines import open_engine
from scalecal.engines.local import cores
from scalecal.io.features import Features
from scalecal.paper.reproduction import Source, Training, train_cell, train_seeds_on
from scalecal.probes import Job, Trained, fitting
from scalecal.runs import grid as module
from scalecal.solvers import Task

CASES, DIM, SEEDS, TIMED_EPOCHS = (2175, 977), 1536, 3, 6
ENCODERS, ALL_SEEDS = 8, 10


def features(seed: int = 0) -> Features:
    """Embeddings with seven readers' votes."""
    X, y = embeddings(sum(CASES), DIM, seed)
    counts = np.random.default_rng(seed).binomial(7, 0.2 + 0.6 * y)
    return table(X.astype(np.float16), counts >= 4, counts, CASES, ("train", "test"))


def stored(path: Path) -> Features:
    """The same from a file."""
    with np.load(path) as file:
        X, counts = file["X"], file["counts"]
    return table(X, counts >= 4, counts, CASES, ("train", "test"))


def spent_and_trained(
    data: Features, seeds: int
) -> tuple[dict[str, float], list[Job], list[Trained]]:
    """CPU seconds of the grid and of the solver alone; the jobs and their probes."""
    seconds = {"grid": 0.0, "solver": 0.0}
    jobs: list[Job] = []
    found: list[Trained] = []

    def timed(name: str, call: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            start = time.process_time()
            result = call(*args, **options)
            seconds[name] += time.process_time() - start
            return result

        return run

    def fit_many(X: Any, asked: list[Job], **options: Any) -> list[Trained]:
        probes = original(X, asked, **options)
        jobs.extend(asked)
        found.extend(probes)
        return probes

    original, solver = module.fit_many, fitting.train
    module.fit_many = fit_many  # type: ignore[attr-defined]
    fitting.train = timed("solver", solver)
    try:
        timed("grid", module.run_grid)(data, methods=EVERY, seeds=seeds)
    finally:
        module.fit_many, fitting.train = original, solver  # type: ignore[attr-defined]
    return seconds, jobs, found


class Loop(NamedTuple):
    """Seconds of the usual loop for a grid."""

    over_methods: float
    every_once: float


class Epoch:
    """Seconds of an epoch of the usual loop, measured once for each number of cases."""

    def __init__(self, data: Features, loop: Callable[..., float]) -> None:
        assert data.y is not None
        self.X, self.y, self.loop = np.asarray(data.X, dtype=np.float32), data.y, loop
        self.known: dict[int, float] = {}

    def __call__(self, size: int) -> float:
        if size not in self.known:
            rows, held = np.resize(np.arange(CASES[0]), size), np.arange(CASES[0] // 10)
            task = Task(
                rows=rows,
                targets=self.y[rows].astype(np.float32),
                validation=held,
                validation_targets=self.y[held].astype(np.float32),
            )
            runs = (self.loop(self.X, task, TIMED_EPOCHS) / TIMED_EPOCHS for _ in range(3))
            self.known[size] = min(runs)
        return self.known[size]


def loop_seconds(jobs: list[Job], probes: list[Trained], epoch: Epoch) -> Loop:
    """Seconds of the usual loop for these probes."""
    peer = [
        probe.fit.n_iter * epoch(len(probe.rows) + (0 if probe.plan is None else len(probe.plan)))
        for probe in probes
    ]
    once = sum({id(probe): cost for probe, cost in zip(probes, peer, strict=True)}.values())
    # A job that needs a first probe pays for the plain one of its seed and preset.
    plain = {
        (job.recipe.first(), job.seed): cost
        for job, cost in zip(jobs, peer, strict=True)
        if job.recipe.is_plain
    }
    firsts = sum(plain[j.recipe.first(), j.seed] for j in jobs if j.recipe.needs_first_probe)
    return Loop(sum(peer) + firsts, once)


def faster_by_the_clock(X: Any, task: Task, epochs: int) -> float:
    """Seconds by the clock of the usual loop, with all cores or with one."""
    timed = partial(usual_loop, X, task, epochs, clock=time.perf_counter)
    return min(timed(threads=1), timed(threads=cores()))


def seconds_by_the_clock(folder: Path) -> float:
    """Seconds of all encoders' grids, a process for every core."""
    cells = []
    for number in range(ENCODERS):
        data, path = features(number), folder / f"{number}.npz"
        assert data.votes is not None
        np.savez(path, X=data.X, counts=data.votes)
        source = Source("made", f"encoder{number}", "memory", partial(stored, path))
        cells.append((source, folder / "cells" / str(number)))
    training = Training(range(ALL_SEEDS), methods=EVERY, sweep=False)
    start = time.perf_counter()
    with open_engine("local", workers=cores()) as pool:
        train_seeds_on(pool, cells, training, progress=quiet)
    for source, cell in cells:
        train_cell(source, cell, training, progress=quiet)
    return time.perf_counter() - start


def quiet(_: str) -> None:
    """Say nothing."""


def show(title: str, unit: str, ours: float, solver: float | None, loop: Loop) -> None:
    """Print one table."""
    print(f"### {title}\n\n| | {unit} | times scalecal's |\n|---|---:|---:|")
    print(f"| scalecal, embeddings to predictions | {ours:.1f} | 1.0 |")
    if solver is not None:
        print(f"| of which in the solver | {solver:.1f} | |")
    for name, cost in (
        ("method after method", loop.over_methods),
        ("every probe once", loop.every_once),
    ):
        print(f"| {LOOP}, {name} | {cost:.1f} | {cost / ours:.0f} |")
    print(flush=True)


def main() -> None:
    """Print the tables."""
    size = f"{CASES[0]:,} + {CASES[1]} x {DIM:,}, {len(EVERY)} methods"
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        data = features()
        spent, jobs, probes = spent_and_trained(data, SEEDS)
        loop = loop_seconds(jobs, probes, Epoch(data, usual_loop))
        title = f"One encoder's grid: {size}, {SEEDS} seeds"
        show(title, "CPU s", spent["grid"], spent["solver"], loop)
        taken, epoch = seconds_by_the_clock(Path(folder)), Epoch(data, faster_by_the_clock)
        loops = []
        for number in range(ENCODERS):
            _, jobs, probes = spent_and_trained(features(number), ALL_SEEDS)
            loops.append(loop_seconds(jobs, probes, epoch))
        whole = Loop(*(sum(parts) for parts in zip(*loops, strict=True)))
        title = f"{ENCODERS} encoders by the clock on {cores()} cores: {size}, {ALL_SEEDS} seeds"
        show(title, "seconds", taken, None, whole)


if __name__ == "__main__":
    main()
