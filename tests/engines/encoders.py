"""An encoder with which something happens in the middle of a run."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch

from scalecal.encoders import LoadedEncoder
from tests.engines.jobs import first_time
from tests.features.made import TinyNetwork, tiny_encoder


class Troubled(TinyNetwork):
    """An encoder with which something happens, once, in the middle of a run."""

    def __init__(self, folder: Path, mishap: str, after: int) -> None:
        super().__init__(wait=0.05)
        self.folder, self.mishap, self.calls_left = folder, mishap, after

    def forward(self, batch: torch.Tensor) -> Any:
        self.calls_left -= 1
        if self.calls_left == 0 and first_time(self.folder, "mishap"):
            if self.mishap == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return super().forward(batch)


def troubled_encoder(folder: Path, mishap: str, after: int = 3) -> LoadedEncoder:
    calm = tiny_encoder()
    module = Troubled(folder, mishap, after).eval().requires_grad_(False)
    return LoadedEncoder(calm.record, module, calm.weight_hash, "made", "cpu")
