"""110 probes over 262,144 x 1,536 on one GPU, and the GPU's answer beside the CPU's.

Run: PYTHONPATH=src python -m benchmarks.gpu_solvers [rows] [features]

Needs numpy, torch, array_api_compat and scalecal. Without a GPU it runs a small problem on the CPU.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch

from scalecal.solvers import Task, train
from scalecal.synthesis import Mixtures

SEEDS, PLAIN, SCALE = 10, 7, 4
EPOCHS, BATCH = 50, 4096


def labels_of(X: Any) -> Any:
    """Labels that depend on a few features and chance."""
    noise = np.random.default_rng(1).logistic(size=len(X))
    return (X[:, :8].sum(dim=1).cpu().numpy() + noise > 0).astype(np.float32)


def grid(y: Any, d: int, *, one_order: bool) -> list[Task]:
    """Seeds x methods: plain targets, and ten anchors a class interpolated at six levels."""
    n = len(y)
    tasks = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        order = np.random.default_rng(0 if one_order else seed).permutation(n)
        held, rows = np.sort(order[: n // 10]), np.sort(order[n // 10 :])
        bound = 1 / np.sqrt(d)
        shared: dict[str, Any] = {
            "rows": rows,
            "validation": held,
            "validation_targets": y[held],
            "initial": (rng.uniform(-bound, bound, (1, d)), rng.uniform(-bound, bound, 1)),
            "order": 0 if one_order else seed,
        }
        tasks += [Task(targets=y[rows] * (1 - 0.02 * k), **shared) for k in range(PLAIN)]
        anchors = [rng.choice(rows[y[rows] == c], 10, replace=False) for c in (1, 0)]
        first, second, alpha = (
            g.reshape(-1) for g in np.meshgrid(*anchors, np.arange(1, 7) / 7, indexing="ij")
        )
        for k in range(SCALE):
            made = Mixtures(first, second, alpha, (1 - alpha) ** (1 + 0.1 * k))
            tasks.append(Task(targets=y[rows], mixtures=made, **shared))
    return tasks


def agreement(device: str) -> None:
    """Print the largest difference between the device's weights and numpy's, small problem."""
    torch.manual_seed(0)
    X = torch.randn(3000, 64)
    y = labels_of(X)
    tasks = grid(y, 64, one_order=False)[: 2 * (PLAIN + SCALE)]
    options: dict[str, Any] = {"batch_size": 256, "max_epochs": 10, "min_steps": 0}
    here, there = train(X.numpy(), tasks, **options), train(X.to(device), tasks, **options)
    worst = max(np.abs(a.weights - b.weights).max() for a, b in zip(here, there, strict=True))
    print(f"Adam, 22 probes, {device} against numpy: largest difference in weights {worst:.1e}")


def speed(device: str, n: int, d: int) -> None:
    """Print wall-clock seconds for all probes, validation every epoch, nothing stopping early."""
    X = torch.empty((n, d), device=device)
    for start in range(0, n, 16384):
        X[start : start + 16384].normal_()
    y = labels_of(X)
    for name, one_order in (("one order", True), ("every seed its own split and order", False)):
        tasks = grid(y, d, one_order=one_order)
        train(X, tasks[:2], batch_size=BATCH, max_epochs=1, min_steps=0)
        if device == "cuda":
            torch.cuda.synchronize()
        start_time = time.perf_counter()
        fits = train(X, tasks, batch_size=BATCH, max_epochs=EPOCHS, min_steps=0, patience=EPOCHS)
        seconds = time.perf_counter() - start_time
        last = np.mean([f.history[-1] for f in fits])
        print(
            f"{len(tasks)} probes, {n:,} x {d:,}, batch {BATCH}, {EPOCHS} epochs, {name}: "
            f"{seconds:.2f} s (mean validation loss {last:.3f})"
        )
    if device == "cuda":
        print(f"Peak GPU memory {torch.cuda.max_memory_allocated() / X.nbytes:.2f} times X")


def main(n: int | None = None, d: int | None = None) -> None:
    """Check, then time."""
    # Full single precision on both sides: no TF32 in the products.
    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = (
        torch.cuda.get_device_name() if device == "cuda" else "no GPU, a small problem on the CPU"
    )
    print(f"### Many probes on one device: {name}\n")
    agreement(device)
    default = (262_144, 1536) if device == "cuda" else (8192, 64)
    speed(device, n or default[0], d or default[1])


if __name__ == "__main__":
    main(*(int(size) for size in sys.argv[1:3]))
