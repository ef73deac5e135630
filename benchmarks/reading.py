"""Reading predictions: seconds and peak memory at 10^7 rows, beside plain pandas, a process each.

Run: python -m benchmarks.reading [rows]
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pandas as pd


def write_predictions(path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    p = rng.random(n)
    label = (rng.random(n) < p).astype(int)
    with path.open("w") as file:
        file.write("id,p,label,group\n")
        for start in range(0, n, 500_000):
            part = range(start, min(n, start + 500_000))
            file.writelines(
                f"case{i:09d},{p[i]:.6f},{label[i]},patient{i // 100:06d}\n" for i in part
            )


def with_scalecal(path: Path) -> int:
    from scalecal.io import read_predictions

    return len(read_predictions(path))


def with_pandas(path: Path) -> int:
    frame = pd.read_csv(path, dtype={"id": str, "group": str})
    if frame["id"].duplicated().any():
        raise ValueError("duplicate ids")
    return len(frame)


READERS = {"scalecal": with_scalecal, "pandas": with_pandas}


def _measure(name: str, path: Path, answer: Connection) -> None:
    start = time.perf_counter()
    n = READERS[name](path)
    seconds = time.perf_counter() - start
    answer.send((n, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2))


def main(n: int = 10_000_000) -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "predictions.csv")
        write_predictions(path, n)
        size = path.stat().st_size / 1024**3
        print(f"Reading and checking {n:,} predictions (CSV of {size:.2f} GiB)")
        print(f"{'reader':<10} {'seconds':>8} {'peak GiB':>9}")
        for name in READERS:
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=_measure, args=(name, path, send))
            process.start()
            send.close()  # so that a process that fails is noticed, not waited for
            read, seconds, peak = receive.recv()
            process.join()
            if read != n:
                raise RuntimeError(f"{name} read {read} of {n} rows")
            print(f"{name:<10} {seconds:8.1f} {peak:9.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
