"""One encoder's whole grid, from embeddings to predictions, beside the usual loop for the same probes.

Run: python -m benchmarks grid

MHIST's size: 2,175 training and 977 test cases, 1,536 features in half precision, seven readers, every
method. The peer is the loop of `benchmarks.solvers` (nn.Linear, DataLoader, Adam, one probe after
another) for as many epochs as each probe took here, counted from its seconds an epoch at that number
of cases. A plain loop over the methods trains for each what it needs, a first probe included; a
thrifty one trains every probe once. Calibrators and predictions cost the peer nothing. CPU seconds,
one thread.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from benchmarks.made import EVERY, table
from benchmarks.solvers import LOOP, embeddings, usual_loop
from scalecal.experiments import grid as module
from scalecal.features.files import FeatureTable
from scalecal.probes import Job, Trained, fitting
from scalecal.solvers import Task

CASES, DIM, SEEDS, TIMED_EPOCHS = (2175, 977), 1536, 3, 6


def features(seed: int = 0) -> FeatureTable:
    """Embeddings with seven readers' votes."""
    X, y = embeddings(sum(CASES), DIM, seed)
    counts = np.random.default_rng(seed).binomial(7, 0.2 + 0.6 * y)
    return table(X.astype(np.float16), counts >= 4, counts, CASES, ("train", "test"))


def spent_and_trained(
    data: FeatureTable,
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

    def fit_many(X: Any, asked: list[Job]) -> list[Trained]:
        probes = original(X, asked)
        jobs.extend(asked)
        found.extend(probes)
        return probes

    original, solver = module.fit_many, fitting.train
    module.fit_many = fit_many  # type: ignore[attr-defined]
    fitting.train = timed("solver", solver)
    try:
        timed("grid", module.run_grid)(data, methods=EVERY, seeds=SEEDS)
    finally:
        module.fit_many, fitting.train = original, solver  # type: ignore[attr-defined]
    return seconds, jobs, found


def loop_seconds(data: FeatureTable, probes: list[Trained]) -> list[float]:
    """CPU seconds of the usual loop for each of these probes."""
    X = np.asarray(data.X, dtype=np.float32)
    assert data.y is not None
    an_epoch: dict[int, float] = {}
    seconds = []
    for probe in probes:
        size = len(probe.rows) + (0 if probe.plan is None else len(probe.plan))
        if size not in an_epoch:
            rows = np.resize(np.arange(CASES[0]), size)
            held = np.arange(CASES[0] // 10)
            task = Task(
                rows=rows,
                targets=data.y[rows].astype(np.float32),
                validation=held,
                validation_targets=data.y[held].astype(np.float32),
            )
            runs = (usual_loop(X, task, TIMED_EPOCHS) / TIMED_EPOCHS for _ in range(3))
            an_epoch[size] = min(runs)
        seconds.append(probe.fit.n_iter * an_epoch[size])
    return seconds


def main() -> None:
    """Print the table."""
    data = features()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spent, jobs, probes = spent_and_trained(data)
        peer = loop_seconds(data, probes)
    once = sum({id(probe): cost for probe, cost in zip(probes, peer, strict=True)}.values())
    # A job that needs a first probe pays for the plain one of its seed and preset.
    plain = {
        (job.recipe.first(), job.seed): cost
        for job, cost in zip(jobs, peer, strict=True)
        if job.recipe.is_plain
    }
    firsts = sum(plain[j.recipe.first(), j.seed] for j in jobs if j.recipe.needs_first_probe)
    print(
        f"### One encoder's grid: {CASES[0]:,} + {CASES[1]} x {DIM:,}, {len(EVERY)} methods, "
        f"{SEEDS} seeds\n"
    )
    print("| | CPU s | times scalecal's |\n|---|---:|---:|")
    print(f"| scalecal, embeddings to predictions | {spent['grid']:.1f} | 1.0 |")
    print(f"| of which in the solver | {spent['solver']:.1f} | |")
    for name, cost in (("method after method", sum(peer) + firsts), ("every probe once", once)):
        print(f"| {LOOP}, {name} | {cost:.1f} | {cost / spent['grid']:.0f} |")
    print()


if __name__ == "__main__":
    main()
