"""What an extraction settles before it starts: device, number type, batch size, the encoder itself."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scalecal.checks import InputError, MissingPackageError, check_choice
from scalecal.features.network import Network, Recipe, full_float32, out_of_memory
from scalecal.features.rows import Images, read_rows

if TYPE_CHECKING:
    from scalecal.encoders import Encoder, LoadedEncoder

__all__ = [
    "PRECISIONS",
    "Plan",
    "Request",
    "halved",
    "load_anywhere",
    "make_plan",
    "pick_device",
    "pick_precision",
]

PRECISIONS = ("auto", "fp32", "bf16", "fp16")
# The largest batch tried on an accelerator: past it no encoder of the paper gains speed.
LARGEST_BATCH = 512
# On a CPU small batches stay in the cache.
CPU_BATCH = 16


def pick_device(device: str | None = None) -> str:
    """Return the device to use: the one named, else CUDA, else MPS, else the CPU."""
    try:
        import torch
    except ImportError:
        raise MissingPackageError(
            "extraction needs torch. Run: pip install 'scalecal[encoders]'"
        ) from None
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if device is None:
        return next(name for name, there in available.items() if there)
    kind = device.partition(":")[0]
    check_choice(kind, available, "device")
    if not available[kind]:
        there = ", ".join(name for name, yes in available.items() if yes)
        raise InputError(f"device {device!r} is not available here. Available: {there}")
    return device


def pick_precision(precision: str, device: str) -> str:
    """Return the number type of the matrix products, with ``"auto"`` settled."""
    if precision != "auto":
        return precision
    if not device.startswith("cuda"):
        return "fp32"
    import torch

    major, _ = torch.cuda.get_device_capability(device)
    return "bf16" if major >= 8 else "fp16"


@dataclass(frozen=True)
class Request:
    """What was asked for, as far as it takes a look at the encoder and its device to settle it."""

    precision: str
    batch_size: int | None
    exact: bool
    compile: bool
    images: Images

    def small(self) -> Request:
        """The same with the first images alone, to be sent to a worker."""
        take = getattr(self.images, "take", None)
        return self if take is None else replace(self, images=take(slice(0, 64)))


@dataclass(frozen=True)
class Plan:
    """What decides the bytes, settled, and the machine that settled it."""

    record: Encoder
    weight_hash: str
    recipe: Recipe
    machine: str


def make_plan(encoder: LoadedEncoder, request: Request) -> Plan:
    """Settle number type and batch size on the device the encoder is on."""
    precision = pick_precision(request.precision, encoder.device)
    recipe = Recipe(encoder.device, precision, 0, request.exact, request.compile)
    size = request.batch_size
    if size is None:
        size = CPU_BATCH if recipe.on_cpu else _fitting_batch(request.images, encoder, recipe)
    recipe = replace(recipe, batch_size=size)
    return Plan(encoder.record, encoder.weight_hash, recipe, _describe_machine(recipe))


def load_anywhere(
    encoder: str | Encoder | LoadedEncoder, *, device: str, **options: Any
) -> LoadedEncoder:
    """Load an encoder given by name, by record, or loaded already."""
    from scalecal.encoders import LoadedEncoder, get_encoder, load_encoder

    if isinstance(encoder, LoadedEncoder):
        if options["weights"] is not None:
            raise InputError("weights are given, but the encoder is loaded already")
        return replace(encoder, module=encoder.module.to(device), device=device)
    if isinstance(encoder, str):
        encoder = get_encoder(encoder, offline=options["offline"], token=options["token"])
    return load_encoder(encoder, device=device, **options)


def _fitting_batch(images: Images, encoder: LoadedEncoder, recipe: Recipe) -> int:
    """Return the largest power of two of images that passes through the encoder."""
    shape = _image_shape(images, encoder, recipe)
    size = LARGEST_BATCH
    while not _fits(size, shape, encoder, recipe):
        size = halved(size, encoder.record.name)
    return size


def _fits(size: int, shape: tuple[int, ...], encoder: LoadedEncoder, recipe: Recipe) -> bool:
    import torch

    network = Network(encoder, replace(recipe, batch_size=size, compile=False))
    try:
        with torch.inference_mode(), full_float32():
            batch = torch.zeros((size, *shape), dtype=torch.uint8, device=recipe.device)
            network(network.transform(batch))
    except (RuntimeError, MemoryError) as error:
        if out_of_memory(error):
            return False
        raise
    return True


def _image_shape(images: Images, encoder: LoadedEncoder, recipe: Recipe) -> tuple[int, ...]:
    """Return the shape of the first image that can be read, as it reaches the device."""
    preprocess = encoder.preprocess if recipe.exact else None
    for row in range(len(images.table)):
        found = read_rows(images, row, row + 1, preprocess, strict=False).images
        if len(found):
            return tuple(found[0].shape)
    return (encoder.preprocess.crop, encoder.preprocess.crop, 3)


def halved(size: int, name: str) -> int:
    """Return half a batch size that was too large, or say that not even one image fits."""
    import torch

    if size == 1:
        raise InputError(
            f"{name!r} does not fit into the memory with a single image. "
            "Use a smaller encoder, precision='bf16', or another device."
        )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return size // 2


def _describe_machine(recipe: Recipe) -> str:
    import torch

    name = torch.cuda.get_device_name(recipe.device) if recipe.device.startswith("cuda") else ""
    return (
        f"{recipe.device} {name} torch {torch.__version__}, "
        f"batch {recipe.batch_size}, {recipe.precision}, {platform.platform()}"
    )
