"""The experiment grid on a GPU: MHIST's size and PatchCamelyon's, from features on disk to predictions.

Run: PYTHONPATH=src python -m benchmarks.gpu_grid [--device cuda] [--workers 8] [--encoders 8] [--seeds 10]

Features are random (with a signal), in float16 shards as `scalecal extract` writes them, so that reading
from disk is part of the time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.made import EVERY, PAPER_WITHOUT_VOTES, table
from scalecal.engines import open_engine
from scalecal.io.features import Features
from scalecal.paper.reproduction import Source, Training, cell_folder, train_cell, train_seeds_on

DIMS = (1536, 1024, 512, 768, 768, 768, 512, 2048)  # the paper's eight encoders


def read(path: Path, split: tuple[int, int, int], votes: bool) -> Features:
    """Read features from disk and dress them with labels, votes and split."""
    X = np.load(path, mmap_mode="r")
    rng = np.random.default_rng(1)
    chance = 1 / (1 + np.exp(-np.asarray(X[:, :8], dtype=np.float32).sum(axis=1)))
    counts = rng.binomial(7, chance) if votes else None
    y = counts >= 4 if counts is not None else rng.random(len(X)) < chance
    return table(np.array(X), y, counts, split, ("train", "val", "test"))


def run(
    name: str,
    split: tuple[int, int, int],
    votes: bool,
    methods: list[str],
    args: argparse.Namespace,
    out: Path,
) -> float:
    """Write features, train, and print and return the seconds of the training."""
    n = sum(split)
    training = Training(range(args.seeds), methods=methods, sweep=False, device=args.device)
    with tempfile.TemporaryDirectory() as folder:
        cells = []
        for number, dim in enumerate(DIMS[: args.encoders]):
            path = Path(folder, f"{number}.npy")
            write(path, n, dim, number)
            opened = partial(read, path, split, votes)
            source = Source(name, f"encoder{number}", "memory", opened)
            cells.append((source, cell_folder(out, source)))
        start = time.perf_counter()
        if args.workers:
            with open_engine("local", workers=args.workers, num_gpus=0) as pool:
                train_seeds_on(pool, cells, training, progress=quiet)
        for (source, cell), dim in zip(cells, DIMS, strict=False):
            begin = time.perf_counter()
            train_cell(source, cell, training, progress=quiet)
            print(f"  {name}, d = {dim}: {time.perf_counter() - begin:.1f} s", flush=True)
        whole = time.perf_counter() - start
    where = f"{args.device}, {args.workers} processes" if args.workers else args.device
    print(
        f"{name}: {args.encoders} encoders x {args.seeds} seeds x {len(methods)} methods on {where}: "
        f"{whole:.1f} s",
        flush=True,
    )
    return whole


def both(args: argparse.Namespace, out: Path) -> float:
    """Run the grids asked for; return the seconds."""
    seconds = 0.0
    if args.only != "pcam":
        seconds += run("mhist", (2175, 0, 977), True, EVERY, args, out)
    if args.only != "mhist":
        split = (262144, 32768, 32768)
        seconds += run("pcam", split, False, PAPER_WITHOUT_VOTES, args, out)
    return seconds


def quiet(_: str) -> None:
    """Say nothing."""


def write(path: Path, n: int, dim: int, seed: int) -> None:
    """Write random float16 features."""
    stored = np.lib.format.open_memmap(path, "w+", np.float16, (n, dim))

    def fill(first: int) -> None:
        rows = min(16384, n - first)
        rng = np.random.default_rng([seed, first])
        stored[first : first + 16384] = rng.standard_normal((rows, dim), dtype=np.float32)

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, n, 16384)))
    stored.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--encoders", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, help="processes, which share a card")
    parser.add_argument("--only", choices=["mhist", "pcam"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        both(args, Path(out))


if __name__ == "__main__":
    main()
