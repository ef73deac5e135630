"""PNG tiles on one GPU: where the limit of decoding lies, and whether the card is kept fed.

Tiles of 224 px, 100 kB each. Beside the pipeline from file to shard: the cores alone (as many
independent processes that decode and throw away) and the card alone (tiles that lie on it). Rates
are of the whole run, start and end included, and in brackets of all but its first third.
Weights are random. Needs torch with CUDA, timm, transformers and pillow. Two minutes on an H200.

Run: PYTHONPATH=src python -m benchmarks.gpu_tiles [--workers 1,4,8,16] [--only uni]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.gpu_extraction import BATCH, on_card, pipeline

TILES = 4096
COMPILED = ("gigapath", "uni", "conch")  # as `--compile auto` does with some 100,000 tiles

# One core's work, again and again, without anything else: prints the images of a second.
ALONE = """
import sys, time
from pathlib import Path
from scalecal.datasets.image_sources import decode_image
files = sorted(Path(sys.argv[1]).iterdir())[int(sys.argv[2]) :: 16]
decode_image(files[0])
done, start = 0, time.perf_counter()
while time.perf_counter() - start < float(sys.argv[3]):
    decode_image(files[done % len(files)])
    done += 1
print(done / (time.perf_counter() - start))
"""


class Tiles:
    """The files as an image set; rows beyond the last file start over."""

    name, kind, classes, table = "tiles", "files", ("0", "1"), None

    def __init__(self, files: list[Path], n: int) -> None:
        from scalecal.datasets.image_sources import FileSource

        names = tuple(file.name for file in files)
        self.source = FileSource(files[0].parent, (names * (n // len(names) + 1))[:n])
        self.read_one = self.source.read_one


def write_tiles(folder: Path, size: tuple[int, int] = (224, 224), n: int = TILES) -> list[Path]:
    """Write PNG tiles with about the entropy of a stained section (100 kB each at 224 px)."""
    from PIL import Image

    folder.mkdir()
    coarse = np.random.default_rng(0).integers(0, 256, (28, 28, 3), dtype=np.uint8)
    large = Image.fromarray(coarse).resize(size[::-1], Image.Resampling.BICUBIC)
    smooth = np.asarray(large).astype(np.int16)

    def write(i: int) -> Path:
        grain = np.random.default_rng(i).integers(-8, 9, smooth.shape)
        path = folder / f"{i:05d}.png"
        Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(path)
        return path

    with ThreadPoolExecutor() as pool:
        return list(pool.map(write, range(n)))


class Pace:
    """Counts images as they go by: the rate of the whole, and of what comes after the start."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.seen = [(0, self.began)]

    def count(self, images: int) -> None:
        self.seen.append((self.seen[-1][0] + images, time.perf_counter()))

    def __str__(self) -> str:
        whole, end = self.seen[-1]
        took = time.perf_counter() - self.began
        early, then = next((n, t) for n, t in self.seen if n >= whole / 3)
        return f"{whole / took:,.0f} ({(whole - early) / (end - then):,.0f})"


@contextlib.contextmanager
def decoded_by(processes: bool) -> Iterator[None]:
    """Have files decoded by processes, or by threads, however many workers there are."""
    from scalecal.features import image_rows

    usual = image_rows._THREADS_SUFFICE
    image_rows._THREADS_SUFFICE = 0 if processes else 10**9
    try:
        yield
    finally:
        image_rows._THREADS_SUFFICE = usual


def cores_alone(folder: Path, workers: int, seconds: float) -> float:
    """Images per second of independent processes."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", ALONE, str(folder)]
    running = [
        subprocess.Popen(
            [*command, str(k % 16), str(seconds)], stdout=subprocess.PIPE, text=True, env=env
        )
        for k in range(workers)
    ]
    return sum(float(process.communicate()[0]) for process in running)


def decoding(files: list[Path], n: int, workers: int) -> tuple[str, float]:
    """Return the pace from file to (pinned) batches, and the caller's own CPU ms per image."""
    import torch

    from scalecal.features.extraction import EncodingOptions, _host_batches

    options, pin = EncodingOptions("cuda", "bf16", BATCH), torch.cuda.is_available()
    encoder: Any = SimpleNamespace(preprocess=None)  # of which reading needs nothing else
    pace, used = Pace(), time.process_time()
    for batch in _host_batches(Tiles(files, n), [(0, n)], encoder, options, workers, False, pin):
        pace.count(batch.rows)
    return str(pace), 1e3 * (time.process_time() - used) / n


def main(arguments: list[str] | None = None) -> None:
    import PIL.features
    import torch

    zlib_ng = PIL.features.check("zlib_ng")

    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", default="1,4,8,16", help="numbers of workers, by commas")
    parser.add_argument("--seconds", type=float, default=4.0, help="about, for each number")
    parser.add_argument("--only", default="uni,plip", help="encoders, by commas")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    numbers = [int(word) for word in options.workers.split(",")]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write_tiles(folder / "tiles")
        # As many whole batches as about 350 images a second and worker give.
        rows = {k: max(4, int(350 * k * options.seconds) // BATCH) * BATCH for k in numbers}
        print(f"{os.cpu_count()} cores, Pillow {PIL.__version__}, zlib-ng: {zlib_ng}\n")
        print("### PNG tiles of 224 px (100 kB), images/s, decoded only\n")
        print("| workers | cores alone | threads | processes | caller's CPU, ms an image |")
        print("|---:|---:|---:|---:|---:|", flush=True)
        for k in numbers:
            alone = cores_alone(folder / "tiles", k, options.seconds / 2)
            with decoded_by(processes=False):
                threads, _ = decoding(files, rows[k], k)
            with decoded_by(processes=True):
                processes, own = decoding(files, rows[k], k)
            print(
                f"| {k} | {alone:,.0f} | {threads} | {processes} | {own:.2f} |",
                flush=True,
            )
        if torch.cuda.is_available():
            embedding(files, folder, rows, options.only.split(","))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\nPeak memory of the caller {peak:.1f} GiB; {time.perf_counter() - began:.0f} s in all")


def embedding(files: list[Path], folder: Path, rows: dict[int, int], names: list[str]) -> None:
    import torch

    from scalecal.encoders import get_encoder, load_encoder
    from scalecal.features.extraction import EncodingOptions, Network
    from scalecal.features.transforms import short_products

    print("\n### The same tiles, images/s from file to shard, bf16, batch 512\n")
    print("| encoder | card alone | decoded by | " + " | ".join(f"{k}" for k in rows) + " |")
    print("|---|---:|---|" + "---:|" * len(rows), flush=True)
    for name in names:
        encoder = load_encoder(get_encoder(name), weights="random", device="cuda")
        options = EncodingOptions("cuda", "bf16", BATCH, compile=name in COMPILED)
        with short_products(False):
            network = Network(encoder, options)
            raw = torch.randint(0, 256, (BATCH, 224, 224, 3), dtype=torch.uint8, device="cuda")
            card = on_card(lambda n=network, r=raw: n(n.transform(r)), BATCH, 3)
        pipeline(Tiles(files, 1024), 1024, encoder, options, folder / f"warm_{name}")
        for kind in ("threads", "processes"):
            if kind == "threads" and min(rows) > 4:  # known to be slower
                continue
            rates = []
            for k, n in rows.items():
                pace, out = Pace(), folder / f"{name}_{kind}_{k}"
                with decoded_by(kind == "processes"):
                    pipeline(Tiles(files, n), n, encoder, options, out, k, pace.count)
                rates.append(str(pace))
            shown = " | ".join(rates)
            print(f"| {name} | {card:,.0f} | {kind} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
