"""What a card is asked to do by the experiment grid, without a card.

Run: python -m benchmarks narrow_steps

On a card a step costs its number of operations, not their size. So the grid is trained on torch
arrays on the CPU with features so narrow that little else is left: how many steps, how many
operations each, and the time of one. Ten seeds; CPU time, one thread.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from benchmarks.made import EVERY, PAPER_WITHOUT_VOTES, operations
from scalecal.probes import Job, fit_many
from scalecal.runs.methods import METHODS

SEEDS, DIM = 10, 16


def jobs(n: int, names: list[str]) -> tuple[Any, list[Job]]:
    """Half-precision features with a signal, and every method with every seed."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, DIM)).astype(np.float16)
    score = np.asarray(X[:, :8], dtype=np.float64).sum(axis=1)
    y = (rng.random(n) < 1 / (1 + np.exp(-score))).astype(np.int64)
    counts = rng.binomial(7, 0.2 + 0.6 * y)
    votes = np.column_stack([7 - counts, counts])
    shared: dict[str, Any] = {"rows": np.arange(n), "y": y, "votes": votes}
    made = [
        Job(recipe=recipe, seed=seed, **shared)
        for seed in range(SEEDS)
        for name in names
        for recipe in METHODS[name].recipes(7)
    ]
    return X, made


def measure(n: int, names: list[str]) -> tuple[int, float, float]:
    """Steps, operations a step (the epochs' own among them), and microseconds a step."""
    import torch

    from scalecal.solvers.lanes import Lanes

    torch.set_num_threads(1)
    X, made = jobs(n, names)
    steps, spent, original = 0, 0.0, Lanes._step

    def step(self: Lanes, batch: Any) -> None:
        nonlocal steps, spent
        start = time.process_time()
        original(self, batch)
        steps, spent = steps + 1, spent + time.process_time() - start

    Lanes._step = step  # type: ignore[method-assign]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_many(torch.from_numpy(X), made)
            each = 1e6 * spent / steps
            total = steps
            with operations() as count:
                fit_many(torch.from_numpy(X), made)
    finally:
        Lanes._step = original  # type: ignore[method-assign]
    return total, count.done / total, each


def main() -> None:
    """Print the table."""
    print(f"### Steps on a device, {SEEDS} seeds, {DIM} features, torch on the CPU\n")
    print("| | cases | steps | operations a step | µs a step |\n|---|---:|---:|---:|---:|")
    for name, n, names in (
        ("all methods", 2175, EVERY),
        ("the paper's", 20_000, PAPER_WITHOUT_VOTES),
    ):
        steps, operations, each = measure(n, names)
        print(f"| {name} | {n:,} | {steps:,} | {operations:.0f} | {each:.0f} |")
    print()


if __name__ == "__main__":
    main()
