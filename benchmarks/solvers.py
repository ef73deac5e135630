"""Many probes at once beside the usual loop: one at a time in torch.

Run: python -m benchmarks solvers

Ten seeds with eleven methods each: seven that train on the real cases (with seven different
targets) and four that add 600 synthetic cases; every seed has its own split, initial weights and
batch order. The peer is the loop most people write: nn.Linear, DataLoader, Adam, one probe after
another, on the same cases (the synthetic ones made explicit), with the same validation every epoch.
Nothing stops early on either side. CPU seconds of one thread, the best of several runs taken in
turn with the peer's.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.timing import cpu_seconds
from scalecal.solvers import Task, train
from scalecal.synthesis import Mixtures, plan

SEEDS, PLAIN, SCALE = 10, 7, 4
EPOCHS, BATCH = 50, 256
LOOP = "nn.Linear + DataLoader"
Timed = Callable[[], float]  # gives the CPU seconds it took


class Ratio(NamedTuple):
    """One line of the table: CPU seconds per probe of the peer and of scalecal."""

    name: str
    peer: str
    peer_seconds: float
    seconds: float


def embeddings(n: int, d: int, seed: int = 0) -> tuple[Any, Any]:
    """Features as encoders give them, correlated and off centre, made in parts; and labels."""
    rng = np.random.default_rng(seed)
    mixing = (rng.standard_normal((64, d)) * np.geomspace(1, 0.1, 64)[:, None]).astype(np.float32)
    centre = rng.standard_normal(d).astype(np.float32)
    X, y = np.empty((n, d), dtype=np.float32), np.empty(n)
    for start in range(0, n, 8192):
        block = slice(start, min(start + 8192, n))
        hidden = rng.standard_normal((block.stop - start, 64), dtype=np.float32)
        X[block] = hidden @ mixing
        X[block] += centre
        X[block] += 0.5 * rng.standard_normal((block.stop - start, d), dtype=np.float32)
        y[block] = hidden[:, 0] + rng.standard_normal(block.stop - start) > 0
    X /= np.sqrt(np.einsum("ij,ij->", X, X, dtype=np.float64) / X.size)
    return X, y


def grid(X: Any, y: Any, *, one_order: bool = False, seeds: int = SEEDS) -> list[Task]:
    """Seeds x methods as solver tasks."""
    n, d = X.shape
    some = slice(0, 2000)
    logits = X @ (X[some][y[some] == 1].mean(axis=0) - X[some].mean(axis=0))
    logits -= np.median(logits)
    tasks = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        order = np.random.default_rng(0 if one_order else seed).permutation(n)
        held, rows = np.sort(order[: n // 10]), np.sort(order[n // 10 :])
        bound = 1 / np.sqrt(d)
        start = (rng.uniform(-bound, bound, (1, d)), rng.uniform(-bound, bound, 1))
        labels = y[rows].astype(np.float32)
        shared: dict[str, Any] = {
            "rows": rows,
            "validation": held,
            "validation_targets": y[held],
            "initial": start,
            "order": 0 if one_order else seed,
        }
        tasks += [Task(targets=labels * (1 - 0.04 * k) + 0.02 * k, **shared) for k in range(PLAIN)]
        confident = plan(y[rows], logits[rows])
        drawn = plan(y[rows], logits[rows], anchors="random", seed=seed)
        for k, made in enumerate([confident] * (SCALE - 1) + [drawn]):
            soft = made.targets ** (1 + 0.1 * k)
            synthetic = Mixtures(rows[made.first], rows[made.second], made.alpha, soft)
            tasks.append(Task(targets=labels, mixtures=synthetic, **shared))
    return tasks


def together(y: Any, rows: Any, held: Any, probes: int) -> list[Task]:
    """Probes on the same cases in the same order, each with targets of its own."""
    shared: dict[str, Any] = {"rows": rows, "validation": held, "validation_targets": y[held]}
    return [Task(targets=y[rows] * (1 - 0.01 * k), **shared) for k in range(probes)]


def seed_of(tasks: list[Task], seed: int) -> list[Task]:
    """The tasks of one seed."""
    size = PLAIN + SCALE
    return tasks[seed * size : (seed + 1) * size]


def usual_loop(
    X: Any,
    task: Task,
    epochs: int,
    steps: int | None = None,
    *,
    threads: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """CPU seconds of the DataLoader loop for one probe; only `steps` steps if given."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(threads)
    parts, targets = [X[task.rows]], [task.targets]
    if task.mixtures is not None:
        m = task.mixtures
        parts.append((1 - m.alpha)[:, None] * X[m.first] + m.alpha[:, None] * X[m.second])
        targets.append(m.targets)
    features = torch.from_numpy(np.concatenate(parts).astype(np.float32, copy=False))
    goal = torch.from_numpy(np.concatenate(targets).astype(np.float32))
    assert task.validation is not None
    X_val = torch.from_numpy(X[task.validation])
    y_val = torch.from_numpy(np.asarray(task.validation_targets, dtype=np.float32))
    loss = torch.nn.BCEWithLogitsLoss()
    start = clock()
    model = torch.nn.Linear(X.shape[1], 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(features, goal), batch_size=BATCH, shuffle=True)
    done = 0
    for _ in range(epochs):
        for rows, target in loader:
            optimiser.zero_grad()
            loss(model(rows).squeeze(1), target).backward()
            optimiser.step()
            done += 1
            if done == steps:
                break
        with torch.no_grad():
            loss(model(X_val).squeeze(1), y_val).item()
    return clock() - start


def cpu(call: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def in_turn(pairs: Sequence[tuple[Timed, Timed]], repeats: int) -> tuple[float, float]:
    """CPU seconds of all peers and of all of ours: short stretches in turn, the best of each."""
    best = np.full((len(pairs), 2), np.inf)
    for _ in range(repeats):
        for k, pair in enumerate(pairs):
            best[k] = np.minimum(best[k], [timed() for timed in pair])
    theirs, ours = best.sum(axis=0).tolist()
    return theirs, ours


def small(repeats: int = 5) -> list[Ratio]:
    """2,175 x 1,536."""
    X, y = embeddings(2175, 1536)
    options: dict[str, Any] = {
        "max_epochs": EPOCHS,
        "min_steps": 0,
        "patience": EPOCHS,
    }

    def pair(tasks: list[Task]) -> tuple[Timed, Timed]:
        loop = partial(usual_loop, X, tasks[0], EPOCHS // 5)
        return lambda: 5 * len(tasks) * loop(), partial(cpu, partial(train, X, tasks, **options))

    found = []
    for order, one_order in (("every seed its own split and order", False), ("one order", True)):
        tasks = grid(X, y, one_order=one_order)
        # What is trained together anyhow: the plain probes, and those with synthetic cases.
        parts = [tasks] if one_order else [seed_of(tasks, seed) for seed in range(SEEDS)]
        pairs = [
            pair([t for t in part if (t.mixtures is None) == plain])
            for part in parts
            for plain in (True, False)
        ]
        theirs, ours = in_turn(pairs, repeats)
        name = f"{len(tasks)} probes, 2,175 x 1,536, batch {BATCH}, {EPOCHS} epochs, {order}"
        found.append(Ratio(name, LOOP, theirs / len(tasks), ours / len(tasks)))
    return found


def large(n: int = 262_144, d: int = 1024, repeats: int = 3) -> tuple[list[Ratio], float]:
    """262,144 x 1,024, one epoch; and the peak of memory in matrices of that size."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    X, y = embeddings(n, d)
    grids = {
        "every seed its own split and order": grid(X, y),
        "one order": grid(X, y, one_order=True),
    }
    options: dict[str, Any] = {"max_epochs": 1, "min_steps": 0}
    for tasks in grids.values():
        train(X, tasks, **options)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / X.nbytes
    steps = 150

    def pair(tasks: list[Task]) -> tuple[Timed, Timed]:
        # Some steps over the whole training part stand for the loop's epoch, without validation.
        part = replace(tasks[0], validation=np.arange(8), validation_targets=y[:8])
        epochs = len(tasks) * n * 0.9 / BATCH / steps
        loop = partial(usual_loop, X, part, 1, steps)
        return lambda: epochs * loop(), partial(cpu, partial(train, X, tasks, **options))

    usual_loop(X, grids["one order"][0], 1, 2)  # torch's own start
    found = []
    for order, tasks in grids.items():
        alone = order != "one order"
        parts = [seed_of(tasks, seed) for seed in range(SEEDS)] if alone else [tasks]
        theirs, ours = in_turn([pair(part) for part in parts], repeats)
        name = f"{len(tasks)} probes, {n:,} x {d:,}, batch {BATCH}, one epoch, {order}"
        found.append(Ratio(name, LOOP, theirs / len(tasks), ours / len(tasks)))
    return found, peak


def growth() -> None:
    """How CPU time grows with cases, features and probes: slopes of log time."""
    sizes: dict[str, list[tuple[int, int, int]]] = {
        "cases n": [(2000, 512, 44), (8000, 512, 44), (32000, 512, 44)],
        "features d": [(8000, 256, 44), (8000, 512, 44), (8000, 1024, 44)],
        "probes P": [(8000, 512, 2), (8000, 512, 8), (8000, 512, 32)],
    }
    print("### Growth\n\n| with | slope of log time |\n|---|---:|")
    for name, cases in sizes.items():
        times, axis = [], ["cases n", "features d", "probes P"].index(name)
        for n, d, probes in cases:
            X, y = embeddings(n, d)
            rows, held = np.arange(n // 10, n), np.arange(n // 10)
            tasks = together(y, rows, held, probes)
            times.append(cpu_seconds(lambda: train(X, tasks, max_epochs=2, min_steps=0), 2))  # noqa: B023
        x = np.log([case[axis] for case in cases])
        print(f"| {name} | {np.polyfit(x, np.log(times), 1)[0]:.2f} |")
    print()


def main() -> None:
    """Print every table; the large problem first, for its peak memory is the process's."""
    found, peak = large()
    found = [*small(), *found]
    print("### Many probes at once: CPU milliseconds per probe, one thread\n")
    print("| | peer | peer's ms | scalecal's ms | times |\n|---|---|---:|---:|---:|")
    for name, peer, theirs, ours in found:
        print(f"| {name} | {peer} | {1e3 * theirs:.1f} | {1e3 * ours:.1f} | {theirs / ours:.0f} |")
    print(f"\nPeak memory at 262,144 x 1,024: {peak:.2f} times the float32 matrix.\n")
    growth()


if __name__ == "__main__":
    main()
