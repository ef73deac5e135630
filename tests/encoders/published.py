"""Published key layouts as fixtures, and checkpoints of random numbers in them.

The fixtures are written from the publishers' facts, never from our modules. A pattern such as
``blocks.{0..23}.norm{1,2}.{weight,bias}`` stands for all its names.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from scalecal.encoders import Preprocessing

FIXTURES = Path(__file__).parent / "fixtures"


def expand(pattern: str, depth: int | None = None) -> list[str]:
    """Write a pattern out; `depth` cuts ranges of blocks short."""
    parts = re.split(r"\{([^}]*)\}", pattern)
    choices: list[list[str]] = []
    for place, part in enumerate(parts):
        if place % 2 == 0:
            choices.append([part])
        elif ".." in part:
            first, last = (int(n) for n in part.split(".."))
            stop = last + 1 if depth is None else min(last + 1, depth)
            choices.append([str(n) for n in range(first, stop)])
        else:
            choices.append(part.split(","))
    return ["".join(combination) for combination in itertools.product(*choices)]


def fixture(name: str) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return stored


def shapes(
    name: str, *, depth: int | None = None, extras: bool = False
) -> dict[str, tuple[int, ...]]:
    """All published names of an encoder with their shapes."""
    stored = fixture(name)
    patterns = {**stored["keys"], **(stored.get("extras", {}) if extras else {})}
    return {
        key: tuple(shape) for pattern, shape in patterns.items() for key in expand(pattern, depth)
    }


def random_checkpoint(
    name: str, *, depth: int | None = None, extras: bool = False, scale: float = 0.05
) -> dict[str, Any]:
    """A state dict of small random numbers in the published layout."""
    import torch

    generator = torch.Generator().manual_seed(7)
    state: dict[str, Any] = {}
    for key, shape in shapes(name, depth=depth, extras=extras).items():
        if key.endswith("num_batches_tracked"):
            state[key] = torch.tensor(3)
        elif key.endswith(("position_ids", "relative_position_index")):
            state[key] = torch.zeros(shape, dtype=torch.int64)
        elif key.endswith("running_var"):
            state[key] = torch.rand(shape, generator=generator) + 0.5
        else:
            state[key] = torch.randn(shape, generator=generator) * scale
            if re.search(r"(norm|ln_|bn|layrnorm|lambda1|gamma)", key) and len(shape) == 1:
                # Norms and layer scales near one, so that every layer matters.
                state[key] += 1.0 if key.endswith(("weight", "lambda1", "gamma")) else 0.0
    return state


def pil_reference(preprocess: Preprocessing, image: Image.Image) -> np.ndarray:
    """What the publisher's transform makes of a PIL image: float32, (3, crop, crop)."""
    unit = preprocess.pixels(image).astype(np.float32) / np.float32(255)
    mean, std = (np.asarray(v, dtype=np.float32) for v in (preprocess.mean, preprocess.std))
    return np.ascontiguousarray(((unit - mean) / std).transpose(2, 0, 1))
