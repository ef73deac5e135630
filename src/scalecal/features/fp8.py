"""Linear layers in 8-bit floating point, and how far that moves the embeddings of the user's images.

Every row of a layer's input and every row of its weights is divided by its own largest entry over 448,
rounded to float8 (e4m3: three bits of mantissa), and multiplied by the card's matrix units. What that
does to embeddings depends on encoder and images, so nothing is promised: `displacement` measures it
on the user's own images beforehand, and `check_displacement` refuses what moved too far.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, library

LARGEST = 448.0  # of float8 e4m3
MULTIPLE = 16  # what the matrix units ask of either side of the weights

SAMPLE = 512
"""Images that are embedded twice before an extraction starts."""

MOST_MOVED = {"distance": 0.10, "neighbours": 0.98, "probability": 0.02}
"""Limits of `displacement`: the first and last from above, neighbours from below."""

Float = NDArray[np.floating[Any]]
Module = TypeVar("Module")


def shared_copy(module: Module) -> Module:
    """Copy a module's structure; the tensors stay the same."""
    tensors = [*module.parameters(), *module.buffers()]  # type: ignore[attr-defined]
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})


def check_fp8(device: str) -> None:
    """Fail where card or torch cannot multiply 8-bit numbers with a scale for every row."""
    torch = library("torch", "precision 'fp8'")
    if not device.startswith("cuda"):
        raise InputError(f"precision 'fp8' needs a CUDA card, but the device is {device!r}")
    if torch.cuda.get_device_capability(device) < (9, 0) or not hasattr(torch, "_scaled_mm"):
        name = torch.cuda.get_device_name(device)
        raise InputError(
            f"precision 'fp8' needs a card of compute capability 9.0 (such as an H100) and a torch that "
            f"multiplies 8-bit numbers: here are {name} and torch {torch.__version__}. Take bf16."
        )


def to_rows(values: Any) -> tuple[Any, Any]:
    """Round a matrix to float8, row by row; return it and its rows' scales (rows, 1).

    Examples
    --------
    >>> import torch
    >>> rounded, scale = to_rows(torch.tensor([[1.0, -2.0], [0.0, 0.0]]))
    >>> (rounded.float() * scale).tolist()
    [[1.0, -2.0], [0.0, 0.0]]
    """
    import torch

    scale = values.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (values / scale).to(torch.float8_e4m3fn), scale


def scaled_product(a: Any, a_scale: Any, b: Any, b_scale: Any, bias: Any) -> Any:
    """Multiply float8 rows of `a` by float8 rows of `b`, in bfloat16."""
    import torch

    return torch._scaled_mm(
        a,
        b.t(),
        scale_a=a_scale,
        scale_b=b_scale.t(),
        bias=bias,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,  # of no more bits than the units keep by themselves
    )


def with_fp8(module: Module) -> Module:
    """Return a copy of a network whose linear layers multiply in float8; other layers are shared."""
    import torch

    class Linear(torch.nn.Module):
        def __init__(self, layer: torch.nn.Linear) -> None:
            super().__init__()
            # Kept for networks that reach for it past the layer's own call.
            self.weight, self.bias = layer.weight, layer.bias
            rounded, scale = to_rows(layer.weight)
            short = None if layer.bias is None else layer.bias.to(torch.bfloat16)
            self.register_buffer("rounded", rounded)
            self.register_buffer("scale", scale)
            self.register_buffer("short_bias", short)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            rows = batch.reshape(-1, batch.shape[-1])
            product: torch.Tensor = scaled_product(
                *to_rows(rows), self.rounded, self.scale, self.short_bias
            )
            return product.reshape(*batch.shape[:-1], -1)

    copied: Any = shared_copy(module)
    for name, layer in list(copied.named_modules()):
        # Subclasses are left alone: they are read by others, not called.
        if type(layer) is torch.nn.Linear and not any(s % MULTIPLE for s in layer.weight.shape):
            copied.set_submodule(name, Linear(layer))
    return copied  # type: ignore[no-any-return]


def displacement(
    exact: Float, moved: Float, labels: NDArray[np.integer[Any]] | None
) -> dict[str, float]:
    """How far embeddings moved.

    ``distance``: the median over images of the distance over the length; ``neighbours``: the mean over
    images of the rank correlation (Spearman) of the distances to all others; ``probability``, where
    there are labels of two classes or more: the mean absolute change of the probabilities of a probe
    trained on the exact ones.

    Examples
    --------
    >>> import numpy as np
    >>> exact = np.random.default_rng(0).normal(size=(50, 8))
    >>> round(displacement(exact, 1.01 * exact, None)["distance"], 3)
    0.01
    """
    from scipy.stats import rankdata

    from scalecal.probes import LinearProbe

    exact, moved = np.asarray(exact, np.float64), np.asarray(moved, np.float64)
    length = np.maximum(np.linalg.norm(exact, axis=1), 1e-12)
    figures = {
        "images": float(len(exact)),
        "distance": float(np.median(np.linalg.norm(moved - exact, axis=1) / length)),
    }
    ranks = []
    for each in (exact, moved):
        square = np.einsum("ij,ij->i", each, each)
        apart = square[:, None] + square - 2.0 * each @ each.T
        others = apart[~np.eye(len(each), dtype=bool)].reshape(len(each), -1)
        rank = rankdata(others, axis=1)
        rank -= rank.mean(axis=1, keepdims=True)
        ranks.append(rank / np.maximum(np.linalg.norm(rank, axis=1, keepdims=True), 1e-12))
    figures["neighbours"] = float(np.einsum("ij,ij->i", *ranks).mean())
    if labels is not None and len(np.unique(labels)) > 1:
        probe = LinearProbe(max_epochs=200, min_steps=0).fit(exact, labels)
        change = probe.predict_proba(moved) - probe.predict_proba(exact)
        figures["probability"] = float(np.abs(change).mean())
    return figures


def check_displacement(figures: dict[str, float]) -> None:
    """Fail where embeddings moved beyond `MOST_MOVED`."""
    for name, limit in MOST_MOVED.items():
        value = figures.get(name)
        too_far = value is not None and (value < limit if name == "neighbours" else value > limit)
        if value is not None and (too_far or not np.isfinite(value)):
            side = "at least" if name == "neighbours" else "at most"
            raise InputError(
                f"precision 'fp8' moves the embeddings of {figures['images']:.0f} of these images too far: "
                f"{name} {value:.4g}, allowed is {side} {limit:g}. Take bf16."
            )
