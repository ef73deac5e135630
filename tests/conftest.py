"""Set-up shared by all tests.

Torchvision guard. Some machines pair a CPU build of torch with a CUDA build of torchvision, whose
compiled operators then cannot load; ``import torchvision`` fails with "operator torchvision::nms
does not exist" and takes timm, open_clip and transformers' image code with it. The schemas of those
operators are enough, since no encoder calls them. They are defined just before the first import of
torchvision and only if its library really cannot load: defining them beside a working library
aborts the process. Tests that never import torchvision pay nothing, and every worker of
pytest-xdist guards itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings


def define_missing_operators(package: Path) -> bool:
    """Define torchvision's schemas if its library is there but lacks CUDA; return whether."""
    import torch

    library = package / "_C.so"
    if not library.exists():
        return False
    try:
        torch.ops.load_library(str(library))
    except OSError:
        boxes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", boxes)
        return True
    return False


class TorchvisionGuard(importlib.abc.MetaPathFinder):
    """Runs the guard when torchvision is about to be imported for the first time."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torchvision":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            define_missing_operators(Path(spec.origin).parent)
        return spec


def guard_torchvision() -> None:
    """Install the guard once per process."""
    here = any(isinstance(finder, TorchvisionGuard) for finder in sys.meta_path)
    if "torchvision" not in sys.modules and not here:
        sys.meta_path.insert(0, TorchvisionGuard())


guard_torchvision()


# A busy machine must not fail a property by its clock, and continuous checks must repeat.
settings.register_profile("checks", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("checks")


@pytest.fixture(scope="module")
def brief_training() -> Iterator[None]:
    """Probes of this process train for 500 steps: for tests of what is done with them, not of them."""
    from scalecal.probes import fitting

    full = fitting.train

    def brief(*args: Any, **options: Any) -> Any:
        return full(*args, **{**options, "min_steps": min(options["min_steps"], 500)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "train", brief)
        yield


@pytest.fixture(autouse=True, scope="session")
def _draw() -> Iterator[dict[str, Any]]:
    """Figures of runs are made but not drawn, which is half the time of most commands."""
    from scalecal.report import plots
    from scalecal.report.svg import Drawing

    def undrawn(_: Any, *paths: Path) -> None:
        for path in paths:
            path.write_bytes(b"a figure")

    draw = {"runs": plots._draw, "page": Drawing.save_png}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "_draw", lambda figure, paths: undrawn(figure, *paths))
        patch.setattr(Drawing, "save_png", undrawn)
        yield draw


@pytest.fixture
def drawn_figures(_draw: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn: for tests of their files."""
    monkeypatch.setattr("scalecal.report.plots._draw", _draw["runs"])
    monkeypatch.setattr("scalecal.report.svg.Drawing.save_png", _draw["page"])
