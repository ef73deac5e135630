"""What the engines cost, and what several workers gain.

First tasks that only wait, as for a card: what an engine adds to them is its own, whatever else the
machine is doing. Then a real extraction on the CPU by one and two workers of one thread each, in
processes and on Ray, against one process alone: images a second once the encoder is loaded (from
the first shard to the last), the whole command's time, and whether the bytes are the same. Wall
clock, so it wants a machine with two free cores.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

N_TILES, SHARD = 1200, 50
N_TASKS, WAIT = 40, 0.5


def wait(_: Any, seconds: float) -> float:
    """Work of which all is done elsewhere."""
    time.sleep(seconds)
    return time.time()


def dispatch(name: str, workers: int) -> tuple[float, float]:
    """Seconds until the first task could begin, and from then to the last result."""
    from scalecal.engines import open_engine

    start = time.time()
    with open_engine(name, workers=workers, gpus=False) as engine:
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


def once(tiles: Path, out: Path, **options: Any) -> tuple[float, float, str]:
    """Seconds of the whole extraction, seconds of its shards, and the hash of what it wrote."""
    from scalecal.datasets.registry import open_dataset
    from scalecal.features import extract

    images = open_dataset(f"folder:{tiles}")
    start = time.perf_counter()
    extract(
        images,
        "efficientnet-lite0",
        out,
        device="cpu",
        workers=1,
        shard_rows=SHARD,
        progress=False,
        **options,
    )
    whole = time.perf_counter() - start
    written = sorted(p.stat().st_mtime for p in (out / "shards").glob("*.npy"))
    # From the end of the first shard, so that loading and starting are left out.
    return whole, written[-1] - written[0], fingerprint(out)


def main() -> None:
    """Print the table."""
    runs: dict[str, dict[str, Any]] = {
        "one process": {},
        "1 worker, processes": {"num_gpus": 1},
        "2 workers, processes": {"num_gpus": 2},
        "1 worker, Ray": {"engine": "ray", "num_gpus": 1},
        "2 workers, Ray": {"engine": "ray", "num_gpus": 2},
    }
    logging.getLogger("ray").setLevel(logging.ERROR)
    print_dispatch()
    print(f"### Engines: {N_TILES} tiles of 96 px, efficientnet-lite0 on the CPU\n")
    print("| | whole command, s | images / s | times one process | same bytes |")
    print("|---|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tiles = make_tiles(Path(folder, "tiles"), N_TILES)
        once(tiles, Path(folder, "warm"))
        base, expected = 0.0, ""
        for name, options in runs.items():
            with contextlib.redirect_stderr(io.StringIO()):
                whole, shards, found = once(tiles, Path(folder, name), **options)
            rate = (N_TILES - SHARD) / shards
            base, expected = base or rate, expected or found
            same = "yes" if found == expected else "NO"
            print(f"| {name} | {whole:.1f} | {rate:.1f} | {rate / base:.2f} | {same} |", flush=True)
    print()


if __name__ == "__main__":
    main()
