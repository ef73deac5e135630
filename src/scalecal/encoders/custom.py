"""Encoders by specification: other people's registries.

========================================  =====================================================
``uni``                                   a name in `ENCODERS`
``timm:vit_small_patch16_224``            any timm model with weights on the Hub
``hf:facebook/dinov2-small``              any image model of transformers
``open_clip:ViT-B-32:laion2b_s34b_b79k``  any open_clip model, with the tag of its weights
========================================  =====================================================

In Python a record can be changed (`Encoder.with_preprocessing`, `dataclasses.replace`). Embeddings of any
other network come in by `scalecal.features.import_features`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from scalecal.checks import InputError, library, lookup
from scalecal.encoders.loading import need_hub
from scalecal.encoders.registry import CLIP, ENCODERS, Encoder, Preprocessing
from scalecal.io.boundary import read_document

T = TypeVar("T")


def get_encoder(spec: str, *, offline: bool = False, token: str | None = None) -> Encoder:
    """Return the record of an encoder by name or specification.

    Parameters
    ----------
    spec : str
        A name, or one of the forms above.
    offline, token : bool, str
        For forms whose record needs a configuration from the Hub.

    Examples
    --------
    >>> get_encoder("uni").dim
    1024
    >>> get_encoder("unni")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: unknown encoder 'unni'. Known: gigapath, uni, ...
    """
    kind, colon, name = spec.partition(":")
    if kind == "file" or "?" in spec:
        raise InputError(
            f"{spec}: networks in files and options after '?' are no longer read. Embed the images by your "
            "own program, then bring the embeddings in with scalecal import"
        )
    if colon and kind in _KINDS:
        return _KINDS[kind](name, offline, token)
    return lookup(spec, ENCODERS, "encoder")


def _from_timm(name: str, _offline: bool, _token: str | None) -> Encoder:
    timm = library("timm", f"encoder 'timm:{name}'")
    import torch

    cfg = None
    if timm.is_model(name):
        cfg = timm.get_pretrained_cfg(name, allow_unregistered=False)
    if cfg is None:
        close = ", ".join(timm.list_models(f"*{name.split('.')[0]}*")[:5])
        raise InputError(f"timm has no model {name!r}. Close: {close or 'none'}")
    if not cfg.hf_hub_id:
        raise InputError(f"timm has no weights on the Hub for {name!r}")
    if cfg.interpolation not in ("bilinear", "bicubic") or cfg.crop_mode not in (
        "center",
        "squash",
    ):
        raise InputError(f"{name}: {cfg.interpolation} / {cfg.crop_mode} resizing is not supported")
    size = int(cfg.input_size[-1])
    resize, resize_mode = math.floor(size / cfg.crop_pct), "shortest"
    if cfg.crop_mode == "squash":
        resize, resize_mode = size, "squash"
    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False, num_classes=0)
    classifiers = cfg.classifier or ()
    if isinstance(classifiers, str):
        classifiers = (classifiers,)
    hub_id = cfg.hf_hub_id
    if hub_id.endswith("/"):
        # timm names only an owner ("timm/"): the repository is called after the model and its weights.
        hub_id += name
        if "." not in name and cfg.tag:
            hub_id += f".{cfg.tag}"
    return Encoder(
        name=f"timm:{name}",
        dim=int(getattr(model, "head_hidden_size", None) or model.num_features),
        architecture="timm",
        options={
            "model_name": name,
            "classifiers": tuple(classifiers),
        },
        layout="headless",
        pooling="model",
        preprocess=Preprocessing(
            resize=resize,
            crop=size,
            interpolation=cfg.interpolation,
            mean=cfg.mean,
            std=cfg.std,
            resize_mode=resize_mode,
        ),
        hub_id=hub_id,
        licence=str(cfg.license or "see page"),
        page=f"https://huggingface.co/{hub_id}",
    )


def _from_open_clip(name: str, _offline: bool, _token: str | None) -> Encoder:
    open_clip = library("open_clip", f"encoder 'open_clip:{name}'", "open_clip_torch")
    model_name, _, tag = name.partition(":")
    config = open_clip.get_model_config(model_name)
    if config is None:
        raise InputError(f"open_clip has no model {model_name!r}. See open_clip.list_models()")
    tags = open_clip.list_pretrained_tags_by_model(model_name)
    if tag not in tags:
        raise InputError(
            f"open_clip:{model_name} needs the tag of its weights, got {tag!r}. Known: "
            f"{', '.join(tags) or 'none'}. Write: open_clip:{model_name}:TAG"
        )
    cfg = open_clip.get_pretrained_cfg(model_name, tag)
    owner, _, rest = str(cfg.get("hf_hub") or "").partition("/")
    repository, _, filename = rest.partition("/")
    if not repository:
        raise InputError(f"open_clip:{name} is not on the Hub; export the model to a file instead")
    filenames: tuple[str, ...] = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
    if filename:
        filenames = (filename,)
    size = config["vision_cfg"]["image_size"]
    return Encoder(
        name=f"open_clip:{name}",
        dim=int(config["embed_dim"]),
        architecture="open_clip",
        options={"model_name": model_name, "quick_gelu": bool(cfg.get("quick_gelu", False))},
        layout="open_clip",
        pooling="model",
        preprocess=Preprocessing(
            resize=size,
            crop=size,
            interpolation=cfg.get("interpolation") or "bicubic",
            mean=tuple(cfg.get("mean") or CLIP[0]),
            std=tuple(cfg.get("std") or CLIP[1]),
            resize_mode=cfg.get("resize_mode") or "shortest",
        ),
        hub_id=f"{owner}/{repository}",
        filenames=filenames,
        licence="see page",
        page=f"https://huggingface.co/{owner}/{repository}",
    )


Edge = Annotated[int, msgspec.Meta(ge=1)]
Size = Edge | dict[str, Edge | None] | None


class HubConfig(msgspec.Struct):
    """What is used of a model's ``config.json`` on the Hub."""

    hidden_size: Edge | None = None
    hidden_sizes: list[Edge] | None = None
    projection_dim: Edge = 512
    vision_config: Any = None


class HubImages(msgspec.Struct):
    """What is used of a model's ``preprocessor_config.json`` on the Hub."""

    size: Size = None
    crop_size: Size = None
    do_center_crop: bool | None = None
    image_mean: tuple[float, float, float] | None = None
    image_std: tuple[float, float, float] | None = None
    resample: int | None = 2


def _from_transformers(name: str, offline: bool, token: str | None) -> Encoder:
    config = _hub_json(name, "config.json", HubConfig, offline, token)
    images = _hub_json(name, "preprocessor_config.json", HubImages, offline, token)
    dim, pooling = config.hidden_size, "cls"
    if config.hidden_sizes:
        # A convolutional network of several stages: it has no class token, and pools by itself.
        dim, pooling = config.hidden_size or config.hidden_sizes[-1], "model"
    if config.vision_config is not None:
        # An image and a text tower: the image's projection is the embedding.
        dim, pooling = config.projection_dim, "projected"
    if dim is None:
        raise InputError(
            f"hf:{name}: config.json names no hidden_size, so the length of its embeddings is unknown"
        )
    size = images.size
    crop = None
    if images.do_center_crop:
        crop = images.crop_size
    resize = _edge(size)
    edge = _edge(crop) or resize
    mean, std = images.image_mean, images.image_std
    if resize is None or edge is None or mean is None or std is None:
        raise InputError(
            f"hf:{name}: preprocessor_config.json does not say how images are prepared"
        )
    filters = {2: "bilinear", 3: "bicubic"}
    resize_mode = "shortest"
    if isinstance(size, Mapping) and "height" in size and crop is None:
        # Both edges named and no crop: the image is pressed into that shape.
        resize_mode = "squash"
    return Encoder(
        name=f"hf:{name}",
        dim=dim,
        architecture="transformers",
        pooling=pooling,
        source="transformers",
        preprocess=Preprocessing(
            resize=resize,
            crop=edge,
            interpolation=filters.get(images.resample or 2, "bilinear"),
            mean=mean,
            std=std,
            resize_mode=resize_mode,
        ),
        hub_id=name,
        filenames=(),
        licence="see page",
        page=f"https://huggingface.co/{name}",
    )


def _edge(size: Size) -> int | None:
    if isinstance(size, Mapping):
        return size.get("shortest_edge", size.get("height"))
    return size


def _hub_json(name: str, filename: str, kind: type[T], offline: bool, token: str | None) -> T:
    import huggingface_hub
    from huggingface_hub import errors

    if not offline and huggingface_hub.try_to_load_from_cache(name, filename) is None:
        need_hub(f"hf:{name}: {filename} is not in the local cache")
    try:
        path = huggingface_hub.hf_hub_download(
            name, filename, token=token, local_files_only=offline
        )
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, ValueError, OSError) as error:
        raise InputError(
            f"hf:{name}: {filename} cannot be fetched: {str(error).splitlines()[0]} "
            f"See https://huggingface.co/{name}; for gated models run: hf auth login"
        ) from error
    return read_document(path, kind)


_KINDS: dict[str, Callable[[str, bool, str | None], Encoder]] = {
    "timm": _from_timm,
    "hf": _from_transformers,
    "open_clip": _from_open_clip,
}
