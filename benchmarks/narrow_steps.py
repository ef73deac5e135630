"""What a card is asked to do by the experiment grid, without a card.

Run: python -m benchmarks narrow_steps

On a card a step costs its number of operations, not their size. So the grid, cross-fitting included, is
trained on torch arrays on the CPU with features so narrow that little else is left: how many steps,
how many operations in all, and the time of a step. Ten seeds; CPU time, one thread.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from benchmarks.made import EVERY, PAPER_WITHOUT_VOTES, operations, table
from scalecal.runs.grid import run_grid

SEEDS, DIM = 10, 16


def measure(split: tuple[int, int, int], names: list[str]) -> tuple[int, int, float]:
    """Steps, operations in all, and microseconds a step."""
    import torch

    from scalecal.solvers.adam import Lanes

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((sum(split), DIM)).astype(np.float16)
    score = np.asarray(X[:, :8], dtype=np.float64).sum(axis=1)
    counts = rng.binomial(7, 1 / (1 + np.exp(-score)))
    data = table(X, counts >= 4, counts, split, ("train", "val", "test"))
    steps, spent, original = 0, 0.0, Lanes._step

    def step(self: Lanes, batch: Any) -> None:
        nonlocal steps, spent
        start = time.process_time()
        original(self, batch)
        steps, spent = steps + 1, spent + time.process_time() - start

    def train() -> None:
        run_grid(data, methods=names, seeds=SEEDS, device="cpu:0")  # torch, not numpy

    Lanes._step = step  # type: ignore[method-assign]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            train()
            total, each = steps, 1e6 * spent / steps
            with operations() as count:
                train()
    finally:
        Lanes._step = original  # type: ignore[method-assign]
    return total, count.done, each


def main() -> None:
    """Print the table."""
    print(f"### Steps on a device, {SEEDS} seeds, {DIM} features, torch on the CPU\n")
    print("| | training cases | steps | operations | a step | µs a step |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for name, split, names in (
        ("all methods", (2175, 0, 977), EVERY),
        ("the paper's", (20_000, 2_500, 2_500), PAPER_WITHOUT_VOTES),
    ):
        steps, done, each = measure(split, names)
        print(
            f"| {name} | {split[0]:,} | {steps:,} | {done:,} | {done / steps:.0f} | {each:.0f} |",
            flush=True,
        )
    print()


if __name__ == "__main__":
    main()
