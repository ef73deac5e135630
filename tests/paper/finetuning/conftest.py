"""An easy task in MHIST's layout, and a run of it that nobody interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from scalecal.datasets import open_dataset  # noqa: E402
from scalecal.datasets.image_sets import ImageSet  # noqa: E402
from scalecal.paper.finetuning import finetune  # noqa: E402
from tests.datasets.trees import make_mhist  # noqa: E402
from tests.paper.finetuning.made import SMALL, N  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    """MHIST's layout with an easy task: polyps of class SSA are light, the others dark."""
    root = make_mhist(tmp_path_factory.mktemp("mhist"), N)
    rng = np.random.default_rng(0)
    for i, file in enumerate(sorted((root / "images").iterdir())):
        level = 170 if i % 8 >= 4 else 80
        pixels = rng.normal(level, 20, (32, 32, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(file)
    return open_dataset("mhist", root, partial=True)


@pytest.fixture(scope="module")
def whole(images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run nobody interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    finetune(images, folder, labels=["hard", "piecewise"], seeds=1, **SMALL)
    return folder
