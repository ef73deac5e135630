"""Compiled loops that read rows in place beside gathering rows for BLAS, by the number of probes.

Run: python -m benchmarks kernels

The same training both ways: 1,957 cases and validation in every epoch, batches of 256, nothing
stops early. CPU seconds of one thread, the best of several runs taken in turn. From these figures
comes `MOST_COLUMNS` in `scalecal.solvers.in_place`, up to which the loops are used.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.solvers import BATCH, cpu, embeddings, in_turn, start_loops, together
from scalecal.solvers import Task, in_place, train

EPOCHS = 10


def trained(X: Any, tasks: list[Task], *, compiled: bool) -> float:
    """CPU seconds of the training, one way or the other."""
    options = {"max_epochs": EPOCHS, "min_steps": 0, "patience": EPOCHS}
    return cpu(partial(train, X, tasks, compiled=compiled, **options))


def main() -> None:
    """Print the table."""
    start_loops()
    at_work, in_place.MOST_COLUMNS = in_place.MOST_COLUMNS, 10**6
    print("### Rows read in place: CPU microseconds per step, one thread\n")
    print("| features | probes | gathered, BLAS | in place | times |\n|---:|---:|---:|---:|---:|")
    for d in (64, 512, 1024, 1536):
        X, y = embeddings(2175, d)
        held, rows = np.arange(218), np.arange(218, len(X))
        for probes in (1, 4, 8, 12, 16, 32, 64):
            tasks = together(y, rows, held, probes)
            ways = [partial(trained, X, tasks, compiled=way) for way in (False, True)]
            gathered, compiled = in_turn([(ways[0], ways[1])], repeats=7)
            steps = EPOCHS * -(-len(rows) // BATCH)
            times = " | ".join(f"{1e6 * t / steps:.0f}" for t in (gathered, compiled))
            print(f"| {d:,} | {probes} | {times} | {gathered / compiled:.2f} |", flush=True)
    print(f"\nUsed up to {at_work} columns.\n")


if __name__ == "__main__":
    main()
