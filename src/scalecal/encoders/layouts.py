"""Published key layouts, translated to the modules built here.

Each function takes the state dict as published and returns the one our module expects. It renames,
fuses and drops known extras (text towers, classifier heads, index buffers); whatever it does not
know it leaves alone, so that the strict load names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from scalecal.checks import InputError
from scalecal.encoders.record import Encoder

__all__ = ["LAYOUTS", "unwrap"]

StateDict = dict[str, Tensor]


def unwrap(checkpoint: Any, where: str) -> StateDict:
    """Return the tensors of a checkpoint, out of ``{"model": ...}`` and without ``module.``."""
    for key in ("model", "state_dict"):
        if isinstance(checkpoint, Mapping) and isinstance(checkpoint.get(key), Mapping):
            checkpoint = checkpoint[key]
    if not isinstance(checkpoint, Mapping) or not checkpoint:
        raise InputError(f"{where} holds no state dict: got {type(checkpoint).__name__}")
    state = dict(checkpoint)
    bad = [key for key, value in state.items() if not isinstance(value, Tensor)]
    if bad:
        raise InputError(
            f"{where} is not a state dict: {bad[0]!r} is {type(state[bad[0]]).__name__}, not a tensor"
        )
    if all(key.startswith("module.") for key in state):
        state = {key.removeprefix("module."): value for key, value in state.items()}
    return state


def _without(state: Mapping[str, Tensor], *prefixes: str) -> StateDict:
    return {key: value for key, value in state.items() if not key.startswith(prefixes)}


def _under_trunk(state: Mapping[str, Tensor]) -> StateDict:
    return {f"trunk.{key}": value for key, value in state.items()}


def _rename(state: Mapping[str, Tensor], rules: list[tuple[str, str]]) -> StateDict:
    renamed: StateDict = {}
    for key, value in state.items():
        for pattern, replacement in rules:
            key = re.sub(pattern, replacement, key)
        renamed[key] = value
    return renamed


def _fuse_qkv(state: StateDict) -> StateDict:
    """Stack ``...attn.{q,k,v}.weight`` (and bias) into timm's ``...attn.qkv``."""
    fused = dict(state)
    for key in [key for key in state if re.search(r"\.attn\.q\.(weight|bias)$", key)]:
        parts = [key.replace(".attn.q.", f".attn.{letter}.") for letter in "qkv"]
        if all(part in fused for part in parts):
            fused[key.replace(".attn.q.", ".attn.qkv.")] = torch.cat([fused.pop(p) for p in parts])
    return fused


def _plain(state: StateDict, _: Encoder) -> StateDict:
    return _under_trunk(state)


def _headless(state: StateDict, encoder: Encoder) -> StateDict:
    """A network published with its classifier, whose name the record gives."""
    return _under_trunk(_without(state, *(f"{head}." for head in encoder.options["classifiers"])))


def _ctranspath(state: StateDict, _: Encoder) -> StateDict:
    # The buffers are rebuilt by timm, and its 1.x counts the patch merging to the stage it opens.
    kept = {
        key: value
        for key, value in state.items()
        if not key.endswith((".attn_mask", ".relative_position_index"))
    }
    moved = {
        re.sub(
            r"^layers\.(\d)\.downsample", lambda m: f"layers.{int(m[1]) + 1}.downsample", key
        ): value
        for key, value in kept.items()
    }
    return _under_trunk(moved)


_TRANSFORMERS_ATTENTION = [
    (r"\.attention\.attention\.query\.", ".attn.q."),
    (r"\.attention\.attention\.key\.", ".attn.k."),
    (r"\.attention\.attention\.value\.", ".attn.v."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
]
_TRANSFORMERS_EMBEDDINGS = [
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^layernorm\.", "norm."),
    (r"^encoder\.layer\.", "blocks."),
]


def _transformers_vit(state: StateDict, _: Encoder) -> StateDict:
    bare = _without({key.removeprefix("vit."): value for key, value in state.items()}, "pooler.")
    rules = [
        *_TRANSFORMERS_EMBEDDINGS,
        *_TRANSFORMERS_ATTENTION,
        (r"\.layernorm_before\.", ".norm1."),
        (r"\.layernorm_after\.", ".norm2."),
        (r"\.intermediate\.dense\.", ".mlp.fc1."),
        (r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    ]
    return _under_trunk(_fuse_qkv(_rename(bare, rules)))


def _transformers_dinov2(state: StateDict, encoder: Encoder) -> StateDict:
    bare = {key.removeprefix("dinov2."): value for key, value in state.items()}
    bare.pop("embeddings.mask_token", None)
    rules = [
        *_TRANSFORMERS_EMBEDDINGS,
        *_TRANSFORMERS_ATTENTION,
        (r"^embeddings\.register_tokens$", "reg_token"),
        (r"\.layer_scale(\d)\.lambda1$", r".ls\1.gamma"),
        (r"\.mlp\.weights_in\.", ".mlp.fc1."),
        (r"\.mlp\.weights_out\.", ".mlp.fc2."),
    ]
    named = _fuse_qkv(_rename(bare, rules))
    patch = named.get("patch_embed.proj.weight")
    if "pos_embed" in named and patch is not None:
        named["pos_embed"] = _resample_positions(
            named["pos_embed"], encoder.crop // int(patch.shape[-1])
        )
    if "reg_token" in named and {"cls_token", "pos_embed"} <= set(named):
        # timm adds positions to patches alone where there are registers: the class token's goes
        # into the class token.
        named["cls_token"] = named["cls_token"] + named["pos_embed"][:, :1]
        named["pos_embed"] = named["pos_embed"][:, 1:]
    return _under_trunk(named)


def _resample_positions(positions: Tensor, grid: int) -> Tensor:
    """Resample a square grid of positions as transformers' DINOv2 does in its forward pass."""
    side = round((positions.shape[1] - 1) ** 0.5)
    if side == grid:
        return positions
    if side * side != positions.shape[1] - 1:
        raise InputError(f"pos_embed has {positions.shape[1]} rows: not 1 + a square grid")
    patches = positions[:, 1:].reshape(1, side, side, -1).permute(0, 3, 1, 2).float()
    patches = torch.nn.functional.interpolate(
        patches, size=(grid, grid), mode="bicubic", align_corners=False
    )
    flat = patches.permute(0, 2, 3, 1).reshape(1, grid * grid, -1).to(positions.dtype)
    return torch.cat([positions[:, :1], flat], dim=1)


def _transformers_clip(state: StateDict, _: Encoder) -> StateDict:
    image = _without(
        state,
        "text_model.",
        "text_projection.",
        "logit_scale",
        "vision_model.embeddings.position_ids",
    )
    rules = [
        (r"^visual_projection\.", "projection."),
        (r"^vision_model\.embeddings\.class_embedding$", "trunk.cls_token"),
        (r"^vision_model\.embeddings\.position_embedding\.weight$", "trunk.pos_embed"),
        (r"^vision_model\.embeddings\.patch_embedding\.", "trunk.patch_embed.proj."),
        # "layrnorm" is how the library spells it.
        (r"^vision_model\.pre_layrnorm\.", "trunk.norm_pre."),
        (r"^vision_model\.post_layernorm\.", "trunk.norm."),
        (r"^vision_model\.encoder\.layers\.", "trunk.blocks."),
        (r"\.layer_norm(\d)\.", r".norm\1."),
        (r"\.self_attn\.([qkv])_proj\.", r".attn.\1."),
        (r"\.self_attn\.out_proj\.", ".attn.proj."),
    ]
    named = _fuse_qkv(_rename(image, rules))
    for key in ("trunk.cls_token", "trunk.pos_embed"):
        if key in named:
            named[key] = named[key].reshape(1, -1, named[key].shape[-1])
    return named


def _conch(state: StateDict, _: Encoder) -> StateDict:
    image = _without(
        state,
        "text.",
        "text_decoder.",
        "logit_scale",
        "visual.attn_pool_caption.",
        "visual.ln_caption.",
        # The embedding is taken before this projection.
        "visual.proj_contrast",
    )
    rules = [
        (r"^visual\.trunk\.", "trunk."),
        (r"^visual\.attn_pool_contrast\.query$", "query"),
        (r"^visual\.attn_pool_contrast\.ln_q\.", "query_norm."),
        (r"^visual\.attn_pool_contrast\.ln_k\.", "token_norm."),
        (r"^visual\.attn_pool_contrast\.attn\.", "attention."),
        (r"^visual\.ln_contrast\.", "norm."),
    ]
    return _rename(image, rules)


_OPEN_CLIP_TEXT = (
    "text.",
    "text_decoder.",
    "transformer.",
    "token_embedding.",
    "positional_embedding",
    "ln_final.",
    "text_projection",
    "attn_mask",
    "logit_scale",
    "logit_bias",
)


def _open_clip(state: StateDict, _: Encoder) -> StateDict:
    return _rename(_without(state, *_OPEN_CLIP_TEXT), [(r"^visual\.", "trunk.")])


def _efficientnet_lite(state: StateDict, _: Encoder) -> StateDict:
    return {f"network.{key}": value for key, value in state.items()}


LAYOUTS: dict[str, Callable[[StateDict, Encoder], StateDict]] = {
    "plain": _plain,
    "headless": _headless,
    "ctranspath": _ctranspath,
    "transformers-vit": _transformers_vit,
    "transformers-dinov2": _transformers_dinov2,
    "transformers-clip": _transformers_clip,
    "conch": _conch,
    "open_clip": _open_clip,
    "efficientnet-lite": _efficientnet_lite,
}
