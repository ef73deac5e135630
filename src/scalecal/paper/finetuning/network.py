"""The residual networks: random or pretrained weights, a new last layer, targets as probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalecal.checks import InputError, MissingPackageError, lookup

if TYPE_CHECKING:
    import torch

    from scalecal.encoders import Encoder

__all__ = ["IMAGENET_WEIGHTS", "StartingWeights", "build_network", "starting_weights"]

IMAGENET_WEIGHTS = {
    "resnet18": "resnet18-f37072fd.pth",
    "resnet34": "resnet34-b627a593.pth",
    "resnet50": "resnet50-11ad3fa6.pth",
}
"""torchvision's ImageNet weights by network; the digits are the start of the file's SHA-256."""

# A new problem has other classes: these two are made anew, on purpose.
_HEAD = ("fc.weight", "fc.bias")


@dataclass(frozen=True)
class StartingWeights:
    """Pretrained weights without their last layer, and where they came from; None: random."""

    tensors: Mapping[str, Any] | None
    source: str
    sha256: str | None


def starting_weights(network: str, weights: str | Path | None) -> StartingWeights:
    """Read the weights to start from.

    Parameters
    ----------
    network : str
        A name in `IMAGENET_WEIGHTS`.
    weights : path, "imagenet" or None
        A file with torchvision's names (also timm's: they are the same), torchvision's ImageNet
        weights from the local cache or its server, or none: random weights.
    """
    lookup(network, IMAGENET_WEIGHTS, "network")
    if weights is None:
        return StartingWeights(None, "random", None)
    from scalecal.encoders.weights import (
        check_hash,
        file_sha256,
        find_weights,
        read_state_dict,
    )

    published = str(weights) == "imagenet"
    record = _record(network)
    path = find_weights(record, None if published else weights)
    digest = file_sha256(path)
    if published:
        check_hash(record, digest, chosen_by_user=False)
    found = read_state_dict(path)
    if not isinstance(found, Mapping) or not all(hasattr(t, "shape") for t in found.values()):
        raise InputError(f"{path} holds no plain state dict of a {network}")
    tensors = {name: tensor for name, tensor in found.items() if name not in _HEAD}
    return StartingWeights(tensors, "imagenet" if published else path.name, digest)


def _record(network: str) -> Encoder:
    from scalecal.encoders import Encoder
    from scalecal.encoders.record import Preprocessing

    file = IMAGENET_WEIGHTS[network]
    return Encoder(
        name=network,
        dim=2048 if network == "resnet50" else 512,
        architecture="timm",
        preprocess=Preprocessing(resize=256, crop=224, interpolation="bilinear"),
        pooling="model",
        source="url",
        url=f"https://download.pytorch.org/models/{file}",
        filenames=(file,),
        sha256=file.removesuffix(".pth").partition("-")[2],
        licence="BSD-3-Clause",
        page="https://docs.pytorch.org/vision/stable/models.html",
    )


def build_network(
    network: str, n_classes: int, seed: int, start: StartingWeights
) -> torch.nn.Module:
    """Return torchvision's network with `n_classes` outputs; `seed` decides its random weights.

    Pretrained weights must fit in every name and shape, the last layer aside.
    """
    import torch

    try:
        from torchvision import models
    except (ImportError, RuntimeError) as error:
        # A torchvision built for another torch fails with a RuntimeError.
        raise MissingPackageError(
            f"fine-tuning needs torchvision, which cannot be imported ({error}). "
            "Run: pip install 'scalecal[encoders]'"
        ) from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module: torch.nn.Module = getattr(models, network)(weights=None, num_classes=n_classes)
    if start.tensors is not None:
        try:
            missing, unexpected = module.load_state_dict(dict(start.tensors), strict=False)
        except RuntimeError as error:
            raise InputError(
                f"{start.source} does not fit {network}: {str(error).splitlines()[-1].strip()}"
            ) from None
        missing = [name for name in missing if name not in _HEAD]
        if missing or unexpected:
            raise InputError(
                f"{start.source} does not fit {network}: {len(missing)} weights missing "
                f"({', '.join(missing[:3])}), {len(unexpected)} unknown ({', '.join(unexpected[:3])})"
            )
    return module
