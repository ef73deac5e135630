"""Extraction on one GPU: how much of the card's own speed the whole pipeline reaches.

The pipeline reads PatchCamelyon-shaped HDF5 (uint8, 96 px), copies, resizes, embeds, brings the
embeddings back and writes the shards to disk; beside it the same network on data that already lies
on the card, as uint8 patches (resize included) and as ready tensors. Weights are random. Needs
torch with CUDA, timm, transformers, torchvision, h5py and pillow; neither pandas nor a network.
Ends within eight minutes on an H200. For image files see `benchmarks.gpu_tiles`.

Run: PYTHONPATH=src python -m benchmarks.gpu_extraction [--seconds 20] [--only uni,plip] [--compile auto]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

# chief is ctranspath's network with other weights, so its speed is ctranspath's.
ENCODERS = ("gigapath", "uni", "conch", "ctranspath", "phikon", "plip", "resnet50")
PATCHCAMELYON = 327_680
PATCHES = 65_536
BATCH = 512
PEAK = 989.0  # TFLOP/s of dense products in bfloat16, by the H200's data sheet
SHARD = 16_384


class Patches:
    """The HDF5 file as an image set: rows read in blocks, over and over again up to `n` of them."""

    name, kind, classes, table = "pcam", "array", ("0", "1"), None

    def __init__(self, path: Path, n: int) -> None:
        import h5py

        self.array = h5py.File(path, "r")["x"]
        self.n = n

    def read_block(self, start: int, stop: int) -> Any:
        first = start % PATCHES  # blocks divide the file
        return self.array[first : first + stop - start]

    def read_one(self, row: int) -> Any:
        return self.array[row % PATCHES]


def write_patches(path: Path) -> Path:
    import h5py

    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", (PATCHES, 96, 96, 3), dtype=np.uint8)
        for start in range(0, PATCHES, 8192):
            data[start : start + 8192] = rng.integers(0, 256, (8192, 96, 96, 3), dtype=np.uint8)
    return path


def on_card(call: Callable[[], Any], images: int, seconds: float) -> float:
    """Images per second of a call that works on the card alone."""
    import torch

    with torch.inference_mode():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(8):  # launched ahead, so that the card never waits
                call()
            torch.cuda.synchronize()
            done += 8 * images
        return done / (time.perf_counter() - start)


def pipeline(
    images: Any,
    n: int,
    encoder: Any,
    options: Any,
    out: Path,
    workers: int | None = None,
    on_batch: Callable[[int], object] | None = None,
) -> float:
    """Images per second from the file to shards on disk, the start included."""
    from scalecal.features.extraction import encode_shards
    from scalecal.io.feature_store import write_shard

    (out / "shards").mkdir(parents=True, exist_ok=True)
    ranges = [(a, min(a + SHARD, n)) for a in range(0, n, SHARD)]
    start = time.perf_counter()
    with ThreadPoolExecutor(1) as disk:
        writes = []
        shards = encode_shards(images, ranges, encoder, options, workers=workers, on_batch=on_batch)
        for k, shard in enumerate(shards):
            names = [str(row) for row in range(shard.start, shard.stop)]
            writes.append(disk.submit(write_shard, out, k, shard.features, names))
        for write in writes:
            write.result()
    return n / (time.perf_counter() - start)


def check_resize(patches: Any) -> str:
    """Compare the card's pixels with Pillow's."""
    import torch

    from scalecal.encoders import get_encoder
    from scalecal.features.transforms import DeviceTransform, pillow_pixels

    lines = []
    for name in ("gigapath", "uni", "resnet50", "conch"):
        preprocess = get_encoder(name).preprocess
        block = patches.read_block(0, 64)
        there = DeviceTransform(preprocess, "cuda")(torch.from_numpy(block).cuda()).cpu().numpy()
        pixels = np.stack([pillow_pixels(image, preprocess) for image in block])
        here = DeviceTransform(preprocess, "cpu", resized=True)(torch.from_numpy(pixels)).numpy()
        lines.append(f"{name} {np.abs(there - here).max():.1e}")
    return "Largest difference of a normalised pixel from Pillow's: " + ", ".join(lines)


def measure(name: str, patches: Any, folder: Path, asked: argparse.Namespace) -> float:
    """Print one row of the table; return the pipeline's images per second."""
    import torch

    from scalecal.encoders import get_encoder, load_encoder
    from scalecal.features.extraction import EncodingOptions, Network, operations, pick_compile
    from scalecal.features.transforms import short_products

    seconds = asked.seconds
    encoder = load_encoder(get_encoder(name), weights="random", device="cuda")
    compiled = pick_compile(asked.compile, encoder, PATCHCAMELYON)
    options = EncodingOptions("cuda", "bf16", BATCH, compile=compiled)
    with short_products(False):
        network = Network(encoder, options)
        raw = torch.from_numpy(patches.read_block(0, BATCH)).cuda()
        ready = network.transform(raw)
        began = time.perf_counter()
        with torch.inference_mode():
            network(ready).cpu()
        start = time.perf_counter() - began
        pure = on_card(lambda: network(ready), BATCH, min(seconds / 4, 5))
        resized = on_card(lambda: network(network.transform(raw)), BATCH, min(seconds / 4, 5))
    # As many whole shards as take about `seconds`, at least one.
    n = min(patches.n, max(SHARD, int(resized * seconds) // SHARD * SHARD))
    rate = pipeline(patches, n, encoder, options, folder / name)
    gigabytes = torch.cuda.max_memory_allocated() / 1e9
    torch.cuda.reset_peak_memory_stats()
    speed = operations(encoder) * rate / 1e12
    shown = f"{start:.0f} s" if compiled else "no"
    print(
        f"| {name} | {n:,} | {pure:,.0f} | {resized:,.0f} | {rate:,.0f} | {rate / pure:.1%} | "
        f"{rate / resized:.1%} | {PATCHCAMELYON / rate / 60:.1f} | {gigabytes:.1f} | {shown} | "
        f"{speed:.0f} ({speed / PEAK:.0%}) |",
        flush=True,
    )
    return rate


def cleared(names: list[str]) -> Iterator[str]:
    """Yield names, with the card emptied before each."""
    import gc

    import torch

    for name in names:
        gc.collect()
        torch.cuda.empty_cache()
        yield name


def main(arguments: list[str] | None = None) -> None:
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0, help="pipeline time per encoder")
    parser.add_argument("--only", default=",".join(ENCODERS), help="encoders, by commas")
    parser.add_argument("--compile", default="auto", choices=["auto", "on", "off"])
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    if not torch.cuda.is_available():
        print("gpu_extraction: no CUDA device here, nothing measured")
        return
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        patches = Patches(write_patches(folder / "x.h5"), PATCHCAMELYON)
        print(
            f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16, "
            f"batch {BATCH}, compile {options.compile}"
        )
        print(check_resize(patches), flush=True)
        print("\n### PatchCamelyon-shaped HDF5 (uint8, 96 px), images/s\n")
        print(
            "| encoder | patches | ready tensors on the card | uint8 on the card | pipeline | "
            "of ready | of uint8 | minutes for all 327,680 | GB on the card | compiled in | "
            "TFLOP/s (of peak) |"
        )
        print("|---|" + "---:|" * 10, flush=True)
        rates = {}
        for encoder in cleared(options.only.split(",")):
            try:
                rates[encoder] = measure(encoder, patches, folder, options)
            except Exception:
                # One encoder that fails must not cost the others their row.
                traceback.print_exc()
        if set(rates) >= set(ENCODERS):
            rates["chief"] = rates["ctranspath"]
            minutes = sum(PATCHCAMELYON / rate for rate in rates.values()) / 60
            print(
                f"\nAll eight over {PATCHCAMELYON:,} patches (chief as ctranspath): {minutes:.1f} min"
            )
    print(f"\nThe whole benchmark: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
