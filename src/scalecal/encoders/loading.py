"""From a record to a module that embeds: build, fill strictly, check."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalecal.checks import InputError, LazyModule, library, lookup
from scalecal.encoders.record import Encoder, Preprocessing
from scalecal.encoders.weights import (
    check_hash,
    find_weights,
    how_to_get,
    need_hub,
    read_state_dict,
    weights_here,
)
from scalecal.io.store import file_hash

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

RANDOM = "random"


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder ready to embed.

    Attributes
    ----------
    record : Encoder
        The record it was loaded from.
    module : torch.nn.Module
        Maps a normalised float batch (B, 3, H, W) to embeddings (B, dim); in evaluation mode and
        without gradients.
    weight_hash : str
        SHA-256 of the weight file (of the tensors where there is no one file), or ``"random"``.
    weights : str
        Where the weights came from.
    device : str
        Where the module lies.
    """

    record: Encoder
    module: torch.nn.Module
    weight_hash: str
    weights: str
    device: str

    @property
    def preprocess(self) -> Preprocessing:
        """How images must be prepared."""
        return self.record.preprocess

    def embed(self, batch: torch.Tensor) -> torch.Tensor:
        """Embed a normalised batch and check the shape of what comes out."""
        with torch.inference_mode():
            return self.checked(self.module(batch.to(self.device)), len(batch))

    def checked(self, embeddings: torch.Tensor, n: int) -> torch.Tensor:
        """Return the embeddings of `n` images if they have the shape the record promises."""
        if embeddings.shape != (n, self.record.dim):
            raise InputError(
                f"{self.record.name!r} gave shape {tuple(embeddings.shape)} for {n} images, "
                f"expected ({n}, {self.record.dim})"
            )
        return embeddings


def build_encoder(
    encoder: Encoder, *, device: str | torch.device = "cpu", seed: int = 0
) -> torch.nn.Module:
    """Build an encoder with random weights, for benchmarks and tests.

    Examples
    --------
    >>> from scalecal.encoders import ENCODERS
    >>> module = build_encoder(ENCODERS["efficientnet-lite0"], device="meta")
    >>> round(sum(p.numel() for p in module.parameters()) / 1e6, 1)
    4.7
    """
    from scalecal.encoders.architectures import ARCHITECTURES

    build = lookup(encoder.architecture, ARCHITECTURES, "architecture")
    target = torch.device(device)
    devices = [target] if target.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), target:
        torch.manual_seed(seed)
        module = build(encoder)
    return module.eval().requires_grad_(False)


def load_encoder(
    encoder: Encoder,
    *,
    weights: str | os.PathLike[str] | None = None,
    device: str | torch.device = "cpu",
    offline: bool = False,
    allow_remote_code: bool = False,
    token: str | None = None,
) -> LoadedEncoder:
    """Load an encoder with its published weights.

    Parameters
    ----------
    encoder : Encoder
        A record, from `get_encoder`.
    weights : path, "random" or None
        A local file; ``"random"`` builds the network without weights, for benchmarks and tests
        only; None looks into the local cache, then asks the Hub.
    device : str or torch.device
        Where the module goes.
    offline : bool
        Never touch the network.
    allow_remote_code : bool
        Let an encoder that needs it run Python code from the Hub.
    token : str, optional
        Access token of the Hub; by default the one stored by ``hf auth login``.

    Raises
    ------
    InputError
        If the weights cannot be had, are another encoder's, or do not fit the network exactly.
    """
    library("torch", f"encoder {encoder.name!r}")
    if encoder.remote_code and not allow_remote_code:
        raise InputError(
            f"{encoder.name!r} runs Python code from {encoder.page}. Read it, then allow it with "
            "--allow-remote-code (allow_remote_code=True)"
        )
    if isinstance(weights, str) and weights == RANDOM:
        module = build_encoder(encoder, device=device)
        digest = where = RANDOM
    elif encoder.architecture == "transformers":
        if weights is not None:
            raise InputError(
                f"{encoder.name!r} is loaded by its own library: a weight file cannot be given"
            )
        module, digest = _load_transformers(
            encoder, offline=offline, token=token, allow_remote_code=allow_remote_code
        )
        where = str(encoder.hub_id)
    else:
        path = find_weights(encoder, weights, offline=offline, token=token)
        digest, where = file_hash(path), str(path)
        check_hash(encoder, digest, chosen_by_user=weights is not None)
        module = _filled(encoder, path)
    # One cast for all, whatever numbers the file holds.
    module = module.to(device=device).float().eval().requires_grad_(False)
    return LoadedEncoder(encoder, module, digest, where, str(device))


def _load_transformers(
    encoder: Encoder, *, offline: bool, token: str | None, allow_remote_code: bool
) -> tuple[torch.nn.Module, str]:
    """Load a model with its weights; return the module and the hash of its tensors."""
    transformers = library("transformers", f"encoder {encoder.name!r}")
    if not offline and weights_here(encoder) is None:
        need_hub(f"{encoder.hub_id} is not in the local cache", how_to_get(encoder))
    try:
        model, report = transformers.AutoModel.from_pretrained(
            encoder.hub_id,
            revision=encoder.revision,
            token=token,
            local_files_only=offline,
            trust_remote_code=encoder.remote_code and allow_remote_code,
            output_loading_info=True,
        )
    except OSError as error:
        hint = "See whether the name is right."
        if encoder.gated:
            hint = how_to_get(encoder)
        raise InputError(
            f"transformers cannot load {encoder.hub_id}: {str(error).splitlines()[0]} {hint}"
        ) from error
    # A pooler the publisher did not train is made up by the library; it may only be unused.
    missing = list(report.get("missing_keys", []))
    if encoder.pooling != "model":
        missing = [key for key in missing if "pooler." not in key]
    misshapen = [str(key) for key in report.get("mismatched_keys", [])]
    if missing or misshapen:
        raise InputError(
            f"{encoder.hub_id} does not fill its model: missing {missing[:5]}, "
            f"of another shape {misshapen[:5]}"
        )
    method = encoder.options.get("method")
    if method is None:
        from scalecal.encoders.architectures import TransformersVision

        module: torch.nn.Module = TransformersVision(model, encoder.pooling)
    else:
        module, transform = getattr(model, method)()
        check_transform(encoder, transform)
    return module, state_dict_sha256(module.state_dict())


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


def _filled(encoder: Encoder, path: Path) -> torch.nn.Module:
    """Build the network and fill it from a file, strictly."""
    from scalecal.encoders.architectures import LAYOUTS, unwrap

    convert = lookup(encoder.layout, LAYOUTS, "layout")
    state = convert(unwrap(read_state_dict(path), str(path)), encoder)
    # Without memory first: a giant would otherwise be initialised only to be overwritten.
    module = build_encoder(encoder, device="meta")
    outside = {name for name, _ in module.named_buffers()} - set(module.state_dict())
    if outside:  # such as Swin's masks: not in any file, so they must be computed
        module = build_encoder(encoder)
    _check_fit(encoder, module.state_dict(), state, path)
    module.load_state_dict(state, strict=True, assign=True)
    return module


def _check_fit(
    encoder: Encoder,
    expected: Mapping[str, torch.Tensor],
    state: Mapping[str, torch.Tensor],
    path: Path,
) -> None:
    missing = [key for key in expected if key not in state]
    unexpected = [key for key in state if key not in expected]
    misshapen = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    problems = [
        f"{len(keys)} {what}: {', '.join(keys[:5])}"
        for keys, what in (
            (missing, "missing"),
            (unexpected, "unexpected"),
            (misshapen, "of another shape"),
        )
        if keys
    ]
    if problems:
        raise InputError(
            f"{path} does not fit {encoder.name!r} ({'; '.join(problems)}). Is it the weight file "
            f"of {encoder.page or encoder.name}?"
        )


def state_dict_sha256(state: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of named tensors, for models that come in more than one file."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
