"""Encoders by specification: files, timm, transformers and open_clip."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")

from safetensors.torch import save_file  # noqa: E402

from scalecal.checks import InputError  # noqa: E402
from scalecal.encoders import get_encoder, load_encoder, weights_here  # noqa: E402

OPTIONS = "?size=32&mean=0.5&std=0.5"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    return cache


class Small(torch.nn.Module):  # type: ignore[misc]
    """Three channel means of an affine picture, then a projection to five."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, stride=2)
        self.out = torch.nn.Linear(4, 5)

    def forward(self, images: Any) -> Any:
        return self.out(self.conv(images).relu().mean((2, 3)))


@pytest.fixture
def small() -> Small:
    torch.manual_seed(0)
    return Small().eval()


def write_torchscript(model: Any, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch advises torch.export
        torch.jit.trace(model, torch.zeros(2, 3, 32, 32)).save(str(path))


def write_export(model: Any, path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    example = (torch.zeros(2, 3, 32, 32),)
    program = torch.export.export(model, example, dynamic_shapes={"images": {0: batch}})
    torch.export.save(program, path)


def write_onnx(model: Any, path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    state = {k: v.numpy() for k, v in model.state_dict().items()}
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "out.weight", "out.bias"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])],
        [numpy_helper.from_array(value, key) for key, value in state.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)


WRITERS = {"model.pt": write_torchscript, "model.pt2": write_export, "model.onnx": write_onnx}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("form", ["file:{}", "{}"])
def test_model_files(name: str, form: str, small: Small, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](small, path)
    encoder = get_encoder(form.format(path) + OPTIONS)
    assert (encoder.dim, encoder.crop, encoder.preprocess.mean) == (5, 32, (0.5, 0.5, 0.5))
    loaded = load_encoder(encoder)
    batch = torch.randn(3, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(loaded.embed(batch), small(batch))
    assert loaded.weight_hash == hashlib.sha256(path.read_bytes()).hexdigest()
    assert weights_here(encoder) == path


def test_preprocessing_from_a_file_beside_the_model(small: Small, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_onnx(small, path)
    with pytest.raises(InputError, match=r"give size, mean, std, as in file:model.onnx"):
        get_encoder(str(path))
    stored = {"size": 32, "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "resize": 40, "dim": 5}
    (tmp_path / "model.onnx.json").write_text(json.dumps(stored))
    encoder = get_encoder(str(path) + "?resize=36&interpolation=bilinear")
    assert (encoder.preprocess.resize, encoder.crop, encoder.preprocess.interpolation) == (
        36,
        32,
        "bilinear",
    )
    assert encoder.preprocess.std == (0.4, 0.5, 0.6)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt", "model.pt2"])
def test_broken_model_files_say_so(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"not a model")
    with pytest.raises(InputError, match="model"):
        get_encoder(f"file:{tmp_path / name}{OPTIONS}")


def test_a_pickled_module_is_no_torchscript(small: Small, tmp_path: Path) -> None:
    torch.save(small.state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match="cannot be read as TorchScript"):
        get_encoder(f"file:{tmp_path / 'model.pt'}{OPTIONS}")


def test_pickles_inside_an_export_archive_never_run(small: Small, tmp_path: Path) -> None:
    import io
    import pickle
    import zipfile

    mark = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (mark,))

    path = tmp_path / "model.pt2"
    write_export(small, path)
    buffer = io.BytesIO()
    torch.save(Trap(), buffer)
    for poison, member in (
        (buffer.getvalue(), "sample_inputs"),
        (pickle.dumps(Trap()), "custom_obj_0"),
    ):
        evil = tmp_path / f"{member}.pt2"
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(evil, "w") as target:
            names = source.namelist()
            for name in names:
                target.writestr(name, poison if member in name else source.read(name))
            if not any(member in name for name in names):
                root = names[0].split("/")[0]
                target.writestr(f"{root}/data/constants/{member}", poison)
        with pytest.raises(InputError):
            get_encoder(f"file:{evil}{OPTIONS}")
        assert not mark.exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("file:missing.onnx" + OPTIONS, "no file at missing.onnx"),
        ("uni?size=two", "option size of an encoder cannot be 'two'"),
        ("uni?colour=red", "unknown option 'colour'"),
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


def test_weights_given_as_a_model_are_redirected(tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(b"")
    with pytest.raises(InputError, match="--weights FILE"):
        get_encoder(f"file:{tmp_path / 'weights.pth'}{OPTIONS}")


def test_options_change_a_built_in_record() -> None:
    conch = get_encoder("conch?size=224&resize_mode=squash")
    assert (conch.preprocess.resize, conch.crop, conch.preprocess.resize_mode) == (
        224,
        224,
        "squash",
    )
    assert conch.hub_id == get_encoder("conch").hub_id


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
        assert abs(encoder.preprocess.pil_reference(image) - expected).max() < 1e-5


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


@pytest.mark.parametrize("pooling", ["cls", "mean", "cls%2Bmean"])
def test_transformers_models(pooling: str, hub_from_disk: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = small_dinov2(transformers)
    files = {
        "config.json": model.config.to_dict(),
        "preprocessor_config.json": PROCESSOR,
        "model.safetensors": model.state_dict(),
    }
    put_in_cache(hub_from_disk, "us/dino", files)
    dim = 48 if pooling == "cls%2Bmean" else 24
    encoder = get_encoder(f"hf:us/dino?pooling={pooling}&dim={dim}", offline=True)
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
    parts["cls%2Bmean"] = torch.cat([parts["cls"], parts["mean"]], 1)
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
    from scalecal.encoders.foreign import check_transform

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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '{"size": "large"}',
            r"model\.onnx\.json: Expected `int \| null`, got `str` - at `\$\.size`",
        ),
        ('{"size": 0}', r"Expected `int` >= 1 - at `\$\.size`"),
        ('{"mean": [0.5, "x"]}', r"Expected `float`, got `str` - at `\$\.mean\[1\]`"),
        ('{"colour": 1}', "unknown field `colour`"),
        ('{"size": 4, "mean": [0.5, 0.5], "std": 1}', "mean must be three finite numbers"),
        ("[1]", "Expected `object`, got `array`"),
        ("{", "not a JSON file"),
        ("[" * 10**5, "Expected `object`"),
    ],
)
def test_sidecars_that_cannot_be_used(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "model.onnx.json").write_text(text)
    with pytest.raises(InputError, match=says):
        get_encoder(str(tmp_path / "model.onnx"))


@pytest.mark.parametrize("name", ["model.onnx", "model.pt", "model.pt2"])
def test_pipes_are_no_model_files(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="is a named pipe, expected a model file"):
        get_encoder(f"{tmp_path / name}{OPTIONS}")
