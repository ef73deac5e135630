"""Models that transformers builds and fills itself."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from scalecal.checks import InputError, library
from scalecal.encoders.architectures import pool_tokens
from scalecal.encoders.record import Encoder
from scalecal.encoders.weights import how_to_get, need_hub, weights_here


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


def load_transformers(
    encoder: Encoder, *, offline: bool, token: str | None, allow_remote_code: bool
) -> tuple[nn.Module, str]:
    """Load a model with its weights; return the module and the hash of its tensors."""
    transformers = library("transformers", f"encoder {encoder.name!r}")
    from scalecal.encoders.loading import state_dict_sha256

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
        module: nn.Module = TransformersVision(model, encoder.pooling)
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
