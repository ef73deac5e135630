"""Training from rows on disk: time against rows in memory, and memory for more rows than fit.

``python -m benchmarks rows_on_disk`` compares on 262,144 rows; ``python -m benchmarks.rows_on_disk
10000000 FOLDER`` makes that many rows of 1,536 numbers (float16) in a new folder, trains on them,
and removes them.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

DIM, SHARD = 1536, 16384


def make_rows(folder: Path, n: int) -> tuple[Any, Any]:
    """Write shards of float16 rows whose first feature tells the label; return rows and labels.

    The same few noise rows are used again and again, rolled: random numbers would take hours.
    """
    from scalecal.features import ShardedArray

    rng = np.random.default_rng(0)
    noise = rng.standard_normal((SHARD, DIM), dtype=np.float32).astype(np.float16)
    labels = rng.integers(0, 2, n).astype(np.float64)
    files, counts = [], []
    for k, start in enumerate(range(0, n, SHARD)):
        rows = min(SHARD, n - start)
        block = np.roll(noise, 7 * k, axis=1)[:rows]
        block[:, 0] += (2 * labels[start : start + rows] - 1).astype(np.float16)
        files.append(folder / f"{k:05d}.npy")
        counts.append(rows)
        np.save(files[-1], block)
    return ShardedArray(files, counts, DIM, np.float16), labels


def tasks_for(labels: Any, probes: int) -> list[Any]:
    from scalecal.solvers import Task

    n, held = len(labels), 4096
    rows, validation = np.arange(n - held), np.arange(n - held, n)
    return [
        Task(
            rows=rows,
            targets=labels[rows],
            validation=validation,
            validation_targets=labels[validation],
            learning_rate=1e-3 * (1 + i),
        )
        for i in range(probes)
    ]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare(n: int = 262_144, epochs: int = 2) -> None:
    """Seconds (wall) of the same epochs from memory and from disk, and their ratio."""
    from scalecal.solvers import train

    print("### Rows on disk against rows in memory\n")
    print(f"{n:,} x {DIM} float16, {epochs} epochs, batch 256; wall seconds\n")
    print("| probes | in memory | streamed, 0.2 GiB | ratio |\n|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        X, labels = make_rows(Path(folder), n)
        whole = np.asarray(X)
        for probes in (1, 20):
            tasks = tasks_for(labels, probes)
            spent = {"memory": float("inf"), "disk": float("inf")}
            for _ in range(2):
                start = time.perf_counter()
                train(whole, tasks, max_epochs=epochs, min_steps=0)
                middle = time.perf_counter()
                train(X, tasks, memory=0.2, max_epochs=epochs, min_steps=0)
                spent["memory"] = min(spent["memory"], middle - start)
                spent["disk"] = min(spent["disk"], time.perf_counter() - middle)
            ratio = spent["disk"] / spent["memory"]
            print(f"| {probes} | {spent['memory']:.2f} | {spent['disk']:.2f} | {ratio:.2f} |")
    print()


def beyond_memory(n: int, folder: Path, memory: float = 2.0) -> None:
    """Make n rows, train one probe for one epoch, print time, rate and peak memory; clean up."""
    from scalecal.solvers import train

    folder.mkdir()
    try:
        X, labels = make_rows(folder, n)
        made = peak_mb()
        start = time.perf_counter()
        (fit,) = train(
            X, tasks_for(labels, 1), memory=memory, batch_size=1024, max_epochs=1, min_steps=0
        )
        spent = time.perf_counter() - start
        gigabytes = X.nbytes / 1e9
        print(
            f"{n:,} x {DIM} float16 ({gigabytes:.1f} GB), memory of {memory:g} GiB: one epoch {spent:.0f} s, "
            f"{gigabytes / spent:.2f} GB/s, peak {peak_mb():,.0f} MB (before: {made:,.0f}), "
            f"validation loss {fit.history[-1]:.3f}"
        )
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Print the comparison."""
    compare()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        beyond_memory(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        main()
