"""An encoder set up for one recipe: number type, memory layout, transform."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalecal.checks import InputError
from scalecal.features.transforms import DeviceTransform

if TYPE_CHECKING:
    import torch

    from scalecal.encoders import LoadedEncoder

__all__ = ["Network", "Recipe", "full_float32", "out_of_memory"]


@dataclass(frozen=True)
class Recipe:
    """Everything besides images and weights that decides the numbers.

    Attributes
    ----------
    device : str
        Where the encoder runs, such as ``"cuda"`` or ``"cpu"``.
    precision : {"fp32", "bf16", "fp16"}
        Numbers of the matrix products (autocast below fp32).
    batch_size : int
        Images per pass through the encoder; batches never cross the border of a shard.
    exact : bool
        Resize by Pillow on the CPU rather than on the device.
    compile : bool
        Use `torch.compile`.
    """

    device: str
    precision: str
    batch_size: int
    exact: bool = False
    compile: bool = False

    @property
    def on_cpu(self) -> bool:
        """Whether the encoder runs on the CPU, where Pillow resizes in any case."""
        return self.device == "cpu"

    @property
    def by_pillow(self) -> bool:
        """Whether Pillow resizes, rather than the device."""
        return self.exact or self.on_cpu


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error means that the batch was too large for the memory."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text


class Network:
    """An encoder set up for one recipe: transform, number type, memory layout."""

    def __init__(self, encoder: LoadedEncoder, recipe: Recipe) -> None:
        import torch

        self.dim = encoder.record.dim
        self.name = encoder.record.name
        self.recipe = recipe
        self.device = torch.device(recipe.device)
        module = encoder.module
        # Convolutional networks run up to twice as fast with the channels last; a transformer has
        # one convolution, its patch embedding, and no use for it.
        convolutions = sum(isinstance(m, torch.nn.Conv2d) for m in module.modules())
        self._channels_last = convolutions > 4
        if self._channels_last:
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.transform = DeviceTransform(
            encoder.preprocess,
            self.device,
            exact=recipe.by_pillow,
            channels_last=self._channels_last,
        )
        self.module: Callable[[torch.Tensor], torch.Tensor] = (
            torch.compile(module, dynamic=False) if recipe.compile else module
        )
        names = {"bf16": torch.bfloat16, "fp16": torch.float16}
        self._autocast = names.get(recipe.precision)

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        """Embed a normalised batch; float32 comes back."""
        import torch

        n = len(batch)
        if self.recipe.compile and n < self.recipe.batch_size:
            # One shape only: each new one would be compiled again.
            batch = torch.cat(
                [batch, batch.new_zeros(self.recipe.batch_size - n, *batch.shape[1:])]
            )
        if self._channels_last:
            batch = batch.contiguous(memory_format=torch.channels_last)
        with (
            contextlib.nullcontext()
            if self._autocast is None
            else torch.autocast(self.device.type, dtype=self._autocast)
        ):
            found = self.module(batch)[:n]
        if found.shape != (n, self.dim):
            raise InputError(
                f"{self.name!r} gave shape {tuple(found.shape)} for {n} images, "
                f"expected ({n}, {self.dim})"
            )
        return found.float()


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Keep float32 products whole, whatever the caller set: the resize counts on it."""
    import torch

    matmul, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = matmul
        torch.backends.cudnn.allow_tf32 = convolution
