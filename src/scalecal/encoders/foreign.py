"""Models that are not built here: transformers' own, and files that carry their network.

No file is unpickled beyond plain tensors. TorchScript and ONNX are formats of their own.
`torch.export` archives hold pickled tensors, which torch reads without restriction by
default: archives with pickled objects are refused, the rest is read with ``weights_only``.
"""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scalecal.checks import InputError, library
from scalecal.encoders.architectures import pool_tokens
from scalecal.encoders.record import Encoder
from scalecal.encoders.weights import check_unpacked_size, how_to_get, need_hub, weights_here
from scalecal.io.boundary import check_file, reading
from scalecal.io.store import file_hash

Loaded = tuple[nn.Module, str, str]


class TransformersVision(nn.Module):
    """A transformers model whose output becomes one vector per image."""

    def __init__(self, model: Any, pooling: str) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling

    def forward(self, images: Tensor) -> Tensor:
        """Embed a normalised batch (B, 3, H, W)."""
        if self.pooling == "projected":
            features = self.model.get_image_features(pixel_values=images)
            # transformers 5 returns an output object, 4 the tensor itself.
            projected: Tensor = getattr(features, "pooler_output", features)
            return projected
        output = self.model(pixel_values=images)
        if self.pooling == "model":
            pooled: Tensor = output.pooler_output
            return pooled.flatten(1)
        registers = getattr(self.model.config, "num_register_tokens", 0)
        return pool_tokens(output.last_hidden_state, self.pooling, 1 + registers)


class Exported(nn.Module):
    """A network from a TorchScript, torch.export or ONNX file."""

    def __init__(self, run: Callable[[Tensor], Any]) -> None:
        super().__init__()
        # In a tuple, so that .eval() and .to() pass by: exported graphs refuse them.
        self._run = (run,)

    def forward(self, images: Tensor) -> Tensor:
        """Embed a normalised batch (B, 3, H, W)."""
        output = self._run[0](images)
        first: Tensor = output[0] if isinstance(output, tuple | list) else output
        return first.flatten(1)


def _load_transformers(encoder: Encoder, options: Mapping[str, Any], _: str) -> Loaded:
    transformers = library("transformers", f"encoder {encoder.name!r}")
    from scalecal.encoders.loading import state_dict_sha256

    if not options["offline"] and weights_here(encoder) is None:
        need_hub(f"{encoder.hub_id} is not in the local cache", how_to_get(encoder))
    try:
        model, report = transformers.AutoModel.from_pretrained(
            encoder.hub_id,
            revision=encoder.revision,
            token=options["token"],
            local_files_only=options["offline"],
            trust_remote_code=encoder.remote_code and options["allow_remote_code"],
            output_loading_info=True,
        )
    except OSError as error:
        hint = how_to_get(encoder) if encoder.gated else "See whether the name is right."
        raise InputError(
            f"transformers cannot load {encoder.hub_id}: {str(error).splitlines()[0]} {hint}"
        ) from error
    # A pooler the publisher did not train is made up by the library; it may only be unused.
    missing = [
        key
        for key in report.get("missing_keys", [])
        if not ("pooler." in key and encoder.pooling != "model")
    ]
    misshapen = [str(key) for key in report.get("mismatched_keys", [])]
    if missing or misshapen:
        raise InputError(
            f"{encoder.hub_id} does not fill its model: missing {missing[:5]}, "
            f"of another shape {misshapen[:5]}"
        )
    method = encoder.options.get("method")
    if method is None:
        module: nn.Module = TransformersVision(model, encoder.pooling)
    else:
        module, transform = getattr(model, method)()
        check_transform(encoder, transform)
    return module, state_dict_sha256(module.state_dict()), str(encoder.hub_id)


def check_transform(encoder: Encoder, transform: Any) -> None:
    """Compare a torchvision transform that came with remote code with the pinned preprocessing."""
    pinned = encoder.preprocess
    for step in getattr(transform, "transforms", []):
        kind = type(step).__name__
        theirs: Any = None
        if kind == "Normalize":
            theirs, expected = (tuple(step.mean), tuple(step.std)), (pinned.mean, pinned.std)
        elif kind == "Resize":
            size = step.size if isinstance(step.size, int) else min(step.size)
            theirs = (size, step.interpolation.value)
            expected = (pinned.resize, pinned.interpolation)  # type: ignore[assignment]
        if theirs is not None and theirs != expected:
            raise InputError(
                f"{encoder.hub_id} now prepares images differently: {kind} {theirs}, the record "
                f"has {expected}. Give the preprocessing explicitly."
            )


def _load_exported(encoder: Encoder, _: Mapping[str, Any], device: str) -> Loaded:
    path = check_file(encoder.options["path"], "a model file")
    run = _READERS[encoder.options["format"]](path, device)
    return Exported(run), file_hash(path), str(path)


def _read_torchscript(path: Path, device: str) -> Callable[[Tensor], Any]:
    advice = (
        "A pickled module is never loaded; export it with torch.jit.trace, torch.export or to ONNX."
    )
    with reading(path, "TorchScript", advice=advice), warnings.catch_warnings():
        # torch advises authors of such files to move on; their users cannot.
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.load(str(path), map_location=device)  # type: ignore[no-untyped-call]
    return script.eval()  # type: ignore[no-any-return]


@contextmanager
def _weights_only() -> Iterator[None]:
    """Make torch read tensors only, also where its own code asks for more."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _read_export(path: Path, device: str) -> Callable[[Tensor], Any]:
    with reading(path, "a torch.export archive"):
        check_unpacked_size(path)
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        pickled = [n for n in names if Path(n).name.startswith(("custom_obj", "opaque"))]
        if pickled:
            raise InputError(f"{path} holds pickled objects ({pickled[0]}), which are never loaded")
        with _weights_only():
            program = torch.export.load(path)
        return program.module().to(device)


def _read_onnx(path: Path, device: str) -> Callable[[Tensor], Any]:
    onnxruntime = library("onnxruntime", "a model in an ONNX file", "onnxruntime")
    wanted = ["CUDAExecutionProvider"] if device.startswith("cuda") else []
    known = set(onnxruntime.get_available_providers())
    providers = [p for p in [*wanted, "CPUExecutionProvider"] if p in known]
    with reading(path, "an ONNX model"):
        session = onnxruntime.InferenceSession(str(path), providers=providers)
        name = session.get_inputs()[0].name

    def run(images: Tensor) -> Tensor:
        output = session.run(None, {name: images.detach().float().cpu().numpy()})[0]
        return torch.from_numpy(output).to(images.device)

    return run


_READERS: dict[str, Callable[[Path, str], Callable[[Tensor], Any]]] = {
    "torchscript": _read_torchscript,
    "export": _read_export,
    "onnx": _read_onnx,
}

LOADERS: dict[str, Callable[[Encoder, Mapping[str, Any], str], Loaded]] = {
    "transformers": _load_transformers,
    "exported": _load_exported,
}
