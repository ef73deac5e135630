"""What the engines cost, and what several workers gain.

First tasks that only wait, as for a card: what an engine adds to them is its own, whatever else the
machine is doing. Then a real extraction on the CPU by one and two workers of one thread each, in
processes and on Ray, against one process alone: images a second once the encoder is loaded (from
each worker's first shard to the last), the whole command's time, and whether the bytes are the
same. Each is run twice, in turn, and its faster run counts. Wall clock, so it wants a machine with
two free cores.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

N_TILES, SHARD, ROUNDS = 2400, 200, 2
N_TASKS, WAIT = 40, 0.5


def wait(_: Any, seconds: float) -> float:
    """Work of which all is done elsewhere."""
    time.sleep(seconds)
    return time.time()


def dispatch(name: str, workers: int) -> tuple[float, float]:
    """Seconds until the first task could begin, and from then to the last result."""
    from scalecal.engines import open_engine

    start = time.time()
    with open_engine(name, workers=workers, num_gpus=0) as engine:
        # One task each first, so that all workers are up.
        list(engine.run(wait, [WAIT] * workers))
        begun = time.time()
        for _ in engine.run(wait, [WAIT] * N_TASKS):
            pass
        spent = time.time() - begun
    return begun - start - WAIT, spent


def print_dispatch() -> None:
    """Print what engines add to tasks that wait."""
    print(f"### Engines: {N_TASKS} tasks of {WAIT} s that only wait\n")
    print("| | to start, s | tasks, s | without overhead, s | overhead |")
    print("|---|---:|---:|---:|---:|")
    for title, name in (("processes", "local"), ("Ray", "ray")):
        for workers in (1, 2):
            if (name, workers) == ("local", 1):
                continue  # that is this process, without any engine
            started, spent = dispatch(name, workers)
            ideal = N_TASKS * WAIT / workers
            print(
                f"| {workers} worker{'s' * (workers > 1)}, {title} | {started:.1f} | "
                f"{spent:.2f} | {ideal:.2f} | "
                f"{spent / ideal - 1:.1%} |",
                flush=True,
            )
    print()


def make_tiles(folder: Path, n: int) -> Path:
    """Tiles of noise that differ in their colour, as PNG, in two classes."""
    from PIL import Image

    rng = np.random.default_rng(0)
    noise = rng.integers(0, 60, (96, 96, 3), dtype=np.uint8)
    for i in range(n):
        home = folder / ("a" if i % 2 else "b")
        home.mkdir(parents=True, exist_ok=True)
        colour = rng.integers(0, 180, 3, dtype=np.uint8)
        Image.fromarray(np.roll(noise, i, axis=0) + colour).save(home / f"{i:05d}.png")
    return folder


def fingerprint(out: Path) -> str:
    """One hash of every file but the log."""
    digest = hashlib.sha256()
    for path in sorted(p for p in out.rglob("*") if p.is_file() and p.name != "run.log"):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def once(tiles: Path, out: Path, pool: Any, workers: int) -> tuple[float, float, str]:
    """Seconds of the whole extraction, images a second at work, and the hash of what it wrote."""
    from scalecal.datasets import open_dataset
    from scalecal.features import extract

    images = open_dataset(f"folder:{tiles}")
    start = time.perf_counter()
    with pool() as engine:
        extract(
            images,
            "efficientnet-lite0",
            out,
            device="cpu",
            workers=1,
            shard_rows=SHARD,
            progress=False,
            engine=engine,
        )
    whole = time.perf_counter() - start
    written = sorted(p.stat().st_mtime for p in (out / "shards").glob("*.npy"))
    # From when every worker has ended its first shard: loading and starting are left out.
    rate = (N_TILES - workers * SHARD) / (written[-1] - written[workers - 1])
    return whole, rate, fingerprint(out)


def main() -> None:
    """Print the table."""
    from scalecal.engines import open_engine
    from scalecal.engines.local import Processes

    runs: dict[str, tuple[Any, int]] = {
        "one process": (lambda: contextlib.nullcontext("local"), 1),
        "1 worker, processes": (partial(Processes, 1), 1),
        "2 workers, processes": (partial(Processes, 2), 2),
        "1 worker, Ray": (partial(open_engine, "ray", workers=1), 1),
        "2 workers, Ray": (partial(open_engine, "ray", workers=2), 2),
    }
    logging.getLogger("ray").setLevel(logging.ERROR)
    print_dispatch()
    print(f"### Engines: {N_TILES} tiles of 96 px, efficientnet-lite0 on the CPU\n")
    print("| | whole command, s | images / s | times one process | same bytes |")
    print("|---|---:|---:|---:|---|")
    found: dict[str, list[tuple[float, float, str]]] = {name: [] for name in runs}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tiles = make_tiles(Path(folder, "tiles"), N_TILES)
        for turn in range(ROUNDS):
            for name, (pool, workers) in runs.items():
                with contextlib.redirect_stderr(io.StringIO()):
                    found[name].append(once(tiles, Path(folder, f"{name} {turn}"), pool, workers))
    expected = found["one process"][0][2]
    base = max(rate for _, rate, _ in found["one process"])
    for name, results in found.items():
        whole, rate = min(r[0] for r in results), max(r[1] for r in results)
        same = "yes" if all(r[2] == expected for r in results) else "NO"
        print(f"| {name} | {whole:.1f} | {rate:.1f} | {rate / base:.2f} | {same} |")
    print()


if __name__ == "__main__":
    main()
