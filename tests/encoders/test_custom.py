"""Encoders by specification: timm, transformers and open_clip."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")

from safetensors.torch import save_file  # noqa: E402

from scalecal.checks import InputError  # noqa: E402
from scalecal.encoders import get_encoder, load_encoder  # noqa: E402
from tests.encoders.published import pil_reference  # noqa: E402


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    return cache


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("file:model.onnx", "bring the embeddings in with scalecal import"),
        ("uni?size=112", "options after '\\?' are no longer read"),
        ("timm:no_such_network", "timm has no model 'no_such_network'"),
        ("open_clip:No-Such", "open_clip has no model 'No-Such'"),
        ("open_clip:ViT-B-32", "needs the tag of its weights"),
    ],
)
def test_specs_that_cannot_be(spec: str, message: str) -> None:
    if spec.startswith("open_clip"):
        pytest.importorskip("open_clip")
    with pytest.raises(InputError, match=message):
        get_encoder(spec)


def put_in_cache(cache: Path, repo: str, files: dict[str, Any]) -> None:
    folder = cache / ("models--" + repo.replace("/", "--"))
    commit = "e" * 40
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for name, content in files.items():
        if name.endswith(".json"):
            (snapshot / name).write_text(json.dumps(content))
        else:
            save_file(content, snapshot / name, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("name", "dim", "resize"),
    [("vit_tiny_patch16_224", 192, 248), ("convnext_atto", 320, 256), ("resnet10t", 512, 201)],
)
def test_timm_models(name: str, dim: int, resize: int, own_cache: Path) -> None:
    encoder = get_encoder(f"timm:{name}")
    assert (encoder.dim, encoder.preprocess.resize) == (dim, resize)
    assert encoder.hub_id is not None
    assert encoder.hub_id.startswith(f"timm/{name}.")
    published = timm.create_model(name).eval()  # with its classifier, as on the Hub
    put_in_cache(own_cache, encoder.hub_id, {"model.safetensors": published.state_dict()})
    loaded = load_encoder(encoder, offline=True)
    batch = torch.randn(1, 3, encoder.crop, encoder.crop)
    published.reset_classifier(0)
    with torch.inference_mode():
        torch.testing.assert_close(loaded.embed(batch), published(batch), rtol=1e-4, atol=1e-5)


def test_timm_preprocessing_is_timms_own() -> None:
    from timm.data import create_transform, resolve_data_config

    from .test_preprocessing import photograph

    image = photograph(300, 410)
    for name in ("vit_tiny_patch16_224", "convnext_atto", "vit_base_patch16_siglip_224"):
        encoder = get_encoder(f"timm:{name}")
        cfg = timm.get_pretrained_cfg(name).to_dict()
        transform = create_transform(**resolve_data_config(pretrained_cfg=cfg))
        expected = transform(image).numpy()
        assert abs(pil_reference(encoder.preprocess, image) - expected).max() < 1e-5


PROCESSOR = {
    "size": {"shortest_edge": 36},
    "crop_size": {"height": 28, "width": 28},
    "do_center_crop": True,
    "resample": 3,
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.2, 0.2, 0.2],
}


def small_dinov2(transformers: Any) -> Any:
    config = transformers.Dinov2Config(
        hidden_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
    )
    torch.manual_seed(0)
    return transformers.Dinov2Model(config).eval()


@pytest.fixture
def hub_from_disk(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let huggingface_hub and transformers look into the test's own cache, which they fix early."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    transformers = pytest.importorskip("transformers")

    def folder(repo: str) -> Path:
        return own_cache / ("models--" + repo.replace("/", "--")) / "snapshots" / ("e" * 40)

    def download(repo: str, name: str, **_: Any) -> str:
        path = folder(repo) / name
        if not path.is_file():
            raise huggingface_hub.errors.LocalEntryNotFoundError(f"{name} is not here")
        return str(path)

    original = transformers.AutoModel.from_pretrained
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(
        transformers.AutoModel,
        "from_pretrained",
        lambda repo, **options: original(folder(repo), **options),
    )
    return own_cache


@pytest.mark.parametrize("pooling", ["cls", "mean", "cls+mean"])
def test_transformers_models(pooling: str, hub_from_disk: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = small_dinov2(transformers)
    files = {
        "config.json": model.config.to_dict(),
        "preprocessor_config.json": PROCESSOR,
        "model.safetensors": model.state_dict(),
    }
    put_in_cache(hub_from_disk, "us/dino", files)
    dim = 48 if pooling == "cls+mean" else 24
    encoder = replace(get_encoder("hf:us/dino", offline=True), pooling=pooling, dim=dim)
    assert (encoder.preprocess.resize, encoder.crop, encoder.preprocess.interpolation) == (
        36,
        28,
        "bicubic",
    )
    loaded = load_encoder(encoder, offline=True)
    batch = torch.randn(2, 3, 28, 28)
    with torch.inference_mode():
        tokens = model(pixel_values=batch).last_hidden_state
    parts = {"cls": tokens[:, 0], "mean": tokens[:, 1:].mean(1)}
    parts["cls+mean"] = torch.cat([parts["cls"], parts["mean"]], 1)
    torch.testing.assert_close(loaded.embed(batch), parts[pooling], rtol=1e-4, atol=1e-5)


def test_transformers_models_that_lack_a_tensor_are_refused(hub_from_disk: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = small_dinov2(transformers)
    state = model.state_dict()
    state.pop("layernorm.weight")
    files = {
        "config.json": model.config.to_dict(),
        "preprocessor_config.json": PROCESSOR,
        "model.safetensors": state,
    }
    put_in_cache(hub_from_disk, "us/broken", files)
    with pytest.raises(InputError, match=r"does not fill its model: missing .*layernorm.weight"):
        load_encoder(get_encoder("hf:us/broken"))


@pytest.mark.usefixtures("hub_from_disk")
def test_transformers_models_not_to_be_had() -> None:
    with pytest.raises(InputError, match=r"config.json cannot be fetched.*huggingface.co/us/none"):
        get_encoder("hf:us/none", offline=True)


def test_remote_transform_that_changed_is_noticed() -> None:
    from scalecal.encoders.loading import check_transform

    transforms = pytest.importorskip("torchvision.transforms")
    encoder = get_encoder("conch-v1.5")
    steps = [
        transforms.Resize(448),
        transforms.Normalize(encoder.preprocess.mean, encoder.preprocess.std),
    ]
    check_transform(encoder, transforms.Compose(steps))
    steps[1] = transforms.Normalize((0.5,) * 3, (0.5,) * 3)
    with pytest.raises(InputError, match="now prepares images differently: Normalize"):
        check_transform(encoder, transforms.Compose(steps))


def test_open_clip_models(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_clip = pytest.importorskip("open_clip")
    config = {
        "embed_dim": 12,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
        "text_cfg": {"context_length": 8, "vocab_size": 16, "width": 8, "heads": 2, "layers": 1},
    }
    (tmp_path / "Tiny-Clip.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "Tiny-Clip.json")
    monkeypatch.setattr(open_clip, "list_pretrained_tags_by_model", lambda _: ["ours"])
    monkeypatch.setattr(
        open_clip, "get_pretrained_cfg", lambda *_: {"hf_hub": "us/tiny-clip/", "mean": None}
    )
    encoder = get_encoder("open_clip:Tiny-Clip:ours")
    assert (encoder.dim, encoder.crop, encoder.hub_id) == (12, 32, "us/tiny-clip")
    published = open_clip.create_model("Tiny-Clip").eval()
    state = {k: v.contiguous() for k, v in published.state_dict().items()}
    put_in_cache(own_cache, "us/tiny-clip", {"open_clip_model.safetensors": state})
    loaded = load_encoder(encoder, offline=True)
    batch = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(loaded.embed(batch), published.encode_image(batch))
