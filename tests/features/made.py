"""Small image sets and a small encoder for the tests of extraction."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from scalecal.datasets import open_dataset
from scalecal.datasets.image_sets import ImageSet
from scalecal.encoders import Encoder, LoadedEncoder, Preprocessing
from scalecal.features import ExtractionResult, extract
from tests.encoders.published import pil_reference


def write_tiles(folder: Path, n: int, sizes: tuple[tuple[int, int], ...] = ((20, 20),)) -> Path:
    """Write PNG tiles of noise in two class folders with non-ASCII names."""
    rng = np.random.default_rng(0)
    for i in range(n):
        home = folder / ("gutartig_ö" if i % 2 else "bösartig_é")
        home.mkdir(parents=True, exist_ok=True)
        height, width = sizes[i % len(sizes)]
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(home / f"kachel_ß{i:03d}.png")
    return folder


def open_tiles(folder: Path) -> ImageSet:
    return open_dataset(f"folder:{folder}")


class TinyNetwork(torch.nn.Module):
    """Two layers; may wait, or run out of memory above a batch size, as a large one would."""

    def __init__(self, wait: float = 0.0, most: int | None = None, after: int = 0) -> None:
        super().__init__()
        self.wait, self.most, self.after = wait, most, after
        self.shapes: list[tuple[int, ...]] = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layer = torch.nn.Conv2d(3, 8, 4, stride=4)

    def forward(self, batch: torch.Tensor) -> Any:
        self.shapes.append(tuple(batch.shape))
        if self.most is not None and len(batch) > self.most and len(self.shapes) > self.after:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        time.sleep(self.wait)
        return torch.tanh(self.layer(batch)).mean(dim=(2, 3))


def tiny_encoder(name: str = "tiny", **network: Any) -> LoadedEncoder:
    record = Encoder(
        name=name,
        dim=8,
        architecture="timm",
        preprocess=Preprocessing(16, 16, "bicubic"),
        pooling="mean",
    )
    module = TinyNetwork(**network).eval().requires_grad_(False)
    return LoadedEncoder(record, module, "0" * 64, "made", "cpu")


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a feature folder but its log."""
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in sorted(path.rglob("*"))
        if p.is_file() and p.name != "run.log"
    }


# "cpu:0" takes the way of an accelerator: its own resize, pinned batches aside.
DEVICES = ["cpu", "cpu:0", *(["cuda"] if torch.cuda.is_available() else [])]


def run(images: ImageSet, out: Path, encoder: Any = None, **options: Any) -> ExtractionResult:
    usual = {"device": "cpu", "precision": "fp32", "batch_size": 3, "shard_rows": 7}
    return extract(
        images, encoder or tiny_encoder(), out, **{**usual, "progress": False, **options}
    )


def reference(images: ImageSet) -> np.ndarray:
    """One image at a time through the publisher's own transform."""
    encoder = tiny_encoder()
    rows = []
    for row in range(len(images.table)):
        pixels = pil_reference(encoder.preprocess, Image.fromarray(images.read_one(row)))
        with torch.inference_mode():
            rows.append(encoder.module(torch.from_numpy(pixels)[None])[0].numpy())
    return np.stack(rows)
