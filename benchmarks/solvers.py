"""Many probes at once beside the usual loops: one at a time in torch, or in scikit-learn.

Run: python -m benchmarks solvers

Ten seeds with eleven methods each: seven that train on the real cases (with seven different
targets) and four that add 600 synthetic cases; every seed has its own split, initial weights and
batch order. The peer is the loop most people write: nn.Linear, DataLoader, Adam, one probe after
another, on the same cases (the synthetic ones made explicit), with the same validation every epoch.
Nothing stops early on either side. CPU seconds of one thread.
"""

from __future__ import annotations

import resource
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.timing import cpu_seconds
from scalecal.solvers import Mixtures, Task, minimise, train
from scalecal.synthesis import plan

SEEDS, PLAIN, SCALE = 10, 7, 4
EPOCHS, BATCH = 50, 256


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
        drawn = plan(y[rows], logits[rows], anchors="random", random_state=seed)
        for k, made in enumerate([confident] * (SCALE - 1) + [drawn]):
            soft = made.targets ** (1 + 0.1 * k)
            synthetic = Mixtures(rows[made.first], rows[made.second], made.alpha, soft)
            tasks.append(Task(targets=labels, mixtures=synthetic, **shared))
    return tasks


def usual_loop(X: Any, task: Task, epochs: int, steps: int | None = None) -> float:
    """CPU seconds of the DataLoader loop for one probe; only `steps` steps if given."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
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
    start = time.process_time()
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
    return time.process_time() - start


def small() -> None:
    """2,175 x 1,536."""
    X, y = embeddings(2175, 1536)
    own, shared = grid(X, y), grid(X, y, one_order=True)
    options: dict[str, Any] = {"max_epochs": EPOCHS, "min_steps": 0, "patience": EPOCHS}
    per_seed = PLAIN + SCALE
    peer, ours, shared_order = [], np.full(SEEDS, np.inf), np.inf
    for _ in range(4):
        real = min(usual_loop(X, own[0], EPOCHS // 5) for _ in range(3)) * 5
        made = min(usual_loop(X, own[PLAIN], EPOCHS // 5) for _ in range(3)) * 5
        peer.append((PLAIN * real + SCALE * made) / per_seed)
        # Seeds with their own order are trained one after another anyhow: timed one by one, the
        # best of several runs is taken over short stretches, as for the peer.
        for seed in range(SEEDS):
            mine = own[seed * per_seed : (seed + 1) * per_seed]
            start = time.process_time()
            train(X, mine, **options)
            ours[seed] = min(ours[seed], (time.process_time() - start) / per_seed)
        start = time.process_time()
        train(X, shared, **options)
        shared_order = min(shared_order, (time.process_time() - start) / len(shared))
    separate = float(ours.mean())
    base = min(peer)
    print(f"### {SEEDS} seeds x {PLAIN + SCALE} methods, 2,175 x 1,536, batch 256, 50 epochs\n")
    print("| | CPU ms per probe | times the loop |\n|---|---:|---:|")
    print(f"| nn.Linear + DataLoader | {1e3 * base:.1f} | 1 |")
    for name, seconds in (
        ("every seed its own split and order", separate),
        ("one order", shared_order),
    ):
        print(f"| scalecal, {name} | {1e3 * seconds:.1f} | {base / seconds:.0f} |")
    print()


def large(n: int = 262_144, d: int = 1024, steps: int = 150) -> None:
    """262,144 x 1,024, and the memory it takes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    X, y = embeddings(n, d)
    spent = {}
    for name, one_order in (("every seed its own split and order", False), ("one order", True)):
        tasks = grid(X, y, one_order=one_order)
        start = time.process_time()
        train(X, tasks, max_epochs=1, min_steps=0)
        spent[name] = (time.process_time() - start) / len(tasks)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / X.nbytes
    # A few steps over the whole training part stand for the loop's epoch, validation left out.
    part = replace(tasks[0], validation=np.arange(8), validation_targets=y[:8])
    per_epoch = n * 0.9 / BATCH
    usual_loop(X, part, 1, 2)  # torch's own start
    peer = usual_loop(X, part, 1, steps) / steps * per_epoch
    print(f"### {len(tasks)} probes over {n:,} x {d:,}, batch 256, one epoch\n")
    print("| | CPU s per probe and epoch | times the loop |\n|---|---:|---:|")
    print(f"| nn.Linear + DataLoader (from {steps} steps) | {peer:.2f} | 1 |")
    for name, seconds in spent.items():
        print(f"| scalecal, {name} | {seconds:.3f} | {peer / seconds:.0f} |")
    print()
    print(f"Peak memory: {peak:.2f} times the float32 matrix.\n")


def converged() -> None:
    """Soft-label probes to the optimum."""
    from sklearn.linear_model import LogisticRegression

    X, y = embeddings(2175, 1536)
    print("### 70 soft-label probes to the optimum, 2,175 x 1,536\n")
    print(
        "| | inverse penalty C | CPU ms per probe | times | largest slope |\n|---|---:|---:|---:|---:|"
    )
    for strength in (1.0, 0.01):
        tasks = [
            Task(rows=t.rows, targets=0.9 * t.targets + 0.05, decay=1 / (strength * len(t.rows)))
            for t in grid(X, y)
            if t.mixtures is None
        ]
        ours = cpu_seconds(lambda tasks=tasks: minimise(X, tasks, tol=1e-4), 2) / len(tasks)  # type: ignore[misc]
        t = tasks[0]
        twice = np.tile(X[t.rows], (2, 1))
        label = np.repeat([1, 0], len(t.rows))
        weight = np.append(t.targets, 1 - t.targets)
        model = LogisticRegression(C=strength, tol=1e-4, max_iter=2000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer = cpu_seconds(lambda: model.fit(twice, label, sample_weight=weight), 2)  # noqa: B023
        fit = minimise(X, tasks[:20], tol=1e-4)[0]
        for name, seconds, w, b in (
            ("scikit-learn, rows twice", peer, model.coef_[0], model.intercept_[0]),
            ("scalecal", ours, fit.weights[0], fit.intercept[0]),
        ):
            r = 1 / (1 + np.exp(-(X[t.rows] @ w + b))) - t.targets
            slope = np.abs(r @ X[t.rows] / len(r) + t.decay * w).max()
            print(
                f"| {name} | {strength:g} | {1e3 * seconds:.1f} | {peer / seconds:.1f} | {slope:.0e} |"
            )
    print()


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
            tasks = [
                Task(
                    rows=rows,
                    targets=y[rows] * (1 - 0.01 * k),
                    validation=held,
                    validation_targets=y[held],
                )
                for k in range(probes)
            ]
            times.append(cpu_seconds(lambda: train(X, tasks, max_epochs=2, min_steps=0), 2))  # noqa: B023
        x = np.log([case[axis] for case in cases])
        print(f"| {name} | {np.polyfit(x, np.log(times), 1)[0]:.2f} |")
    print()


def main() -> None:
    """Print every table; the large one first, for its peak memory is the process's."""
    large()
    small()
    converged()
    growth()


if __name__ == "__main__":
    main()
