"""Checkpoints in one safetensors file: tensors in its body, the rest as JSON in its header.

One file is replaced in one step, so that a reader finds the old state or the new one, whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalecal.checks import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["load_checkpoint", "save_checkpoint"]

_FACTS = "scalecal"


def save_checkpoint(
    path: Path, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]
) -> None:
    """Write tensors and facts (anything JSON takes) to `path`: aside, to the disk, then in place.

    Examples
    --------
    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.safetensors")
    ...     save_checkpoint(path, {"x": torch.arange(3)}, {"epoch": 2})
    ...     load_checkpoint(path)
    ({'x': tensor([0, 1, 2])}, {'epoch': 2})
    """
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    # The format stores plain row-major memory; a network may keep its channels last.
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, partial, metadata={_FACTS: json.dumps(facts, allow_nan=False)})
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def load_checkpoint(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """Read what `save_checkpoint` wrote, or return None where there is no such file."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})[_FACTS])
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise InputError(
            f"{path} is no checkpoint of this program ({error}). Delete it to train that network anew"
        ) from error
