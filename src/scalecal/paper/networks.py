"""The networks: images held in memory and augmented, a step, epochs, checkpoints, the epoch that is kept.

What happens to an image depends on the seed, the epoch and the image's place in the data set, and on
nothing else: not on the batch it is in, the number of threads or how often the run was interrupted.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from scalecal.checks import Float, InputError, Int, library
from scalecal.encoders.record import IMAGENET, Preprocessing
from scalecal.engines.local import cores
from scalecal.features.image_rows import read_rows
from scalecal.limits import check_limit
from scalecal.paper.finetuning import FinetuneOptions, Parts

if TYPE_CHECKING:
    from scalecal.datasets.image_sets import ImageSet

DECAY = 0.91
"""Factor of the learning rate from epoch to epoch."""

WEIGHT_DECAY = 1e-4
"""Adam's L2 penalty."""

_EVALUATED = 256  # images per pass without gradients

# Rows one thread reads at a time; an array on disk is read in long blocks.
_ROWS = {"files": 32, "array": 2048}

JITTER = {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.2}
"""Strength of the colour jitter, as in DeepSlide."""


class Pixels:
    """Square uint8 images of some rows of an image set, by position: i stands for ``rows[i]``.

    An image that cannot be read is an error.
    """

    def __init__(
        self, images: ImageSet, rows: Int, preprocess: Preprocessing, *, device: str
    ) -> None:
        edge = preprocess.crop
        check_limit(len(rows) * edge**2 * 3, "memory", f"the size of {len(rows):,} images")
        whole = np.empty((len(rows), edge, edge, 3), dtype=np.uint8)
        step = _ROWS[images.kind]

        def fill(start: int) -> None:
            chosen = rows[start : start + step]
            place = start
            # Neighbours are read in one go.
            for run in np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1):
                piece = read_rows(images, int(run[0]), int(run[-1]) + 1, preprocess, True)
                whole[place : place + len(run)] = piece.images
                place += len(run)

        with ThreadPoolExecutor(cores()) as pool:
            for _ in pool.map(fill, range(0, len(rows), step)):
                pass
        self._held = torch.from_numpy(whole).to(device)

    def take(self, positions: Int) -> torch.Tensor:
        """Return the images at some positions: uint8 (n, edge, edge, 3) on the device."""
        return self._held[torch.from_numpy(positions).to(self._held.device)]


def uniforms(n: int, seed: int, epoch: int) -> Float:
    """Return seven uniform numbers in [0, 1) per case, a function of seed and epoch alone.

    Examples
    --------
    >>> uniforms(3, seed=1, epoch=5).shape
    (3, 7)
    """
    # The third number tells these draws from those of the order (`epoch_order`).
    return np.random.default_rng([seed, epoch, 1]).random((n, 7))


def augment(images: torch.Tensor, draws: Float) -> torch.Tensor:
    """Turn uint8 (n, height, width, 3) into augmented float32 (n, 3, height, width) in [0, 1].

    Each image is mirrored left to right and top to bottom with probability 1/2, turned by 0, 90, 180
    or 270 degrees, and jittered by `JITTER` as by torchvision's `ColorJitter`: brightness, contrast and
    saturation are multiplied by a factor from [1 - s, 1 + s], the hue is turned by a share of the
    circle from [-hue, hue]; in this order, where torchvision shuffles the four. `draws` holds seven
    uniform numbers per image, see `uniforms`. Whole batches at a time: image by image through
    torchvision's own functions, an epoch on a card takes more than three times as long.
    """
    grey = library("torchvision.transforms.v2.functional", "fine-tuning").rgb_to_grayscale
    x = images.permute(0, 3, 1, 2).float().div(255)
    u = torch.from_numpy(draws.T.astype(np.float32)).to(x.device)[..., None, None, None]

    def blend(other: torch.Tensor | float, column: int, strength: float) -> torch.Tensor:
        factor = 1.0 - strength + 2.0 * strength * u[column]
        return (factor * x + (1 - factor) * other).clamp(0, 1)

    x = torch.where(u[0] < 0.5, x.flip(3), x)
    x = torch.where(u[1] < 0.5, x.flip(2), x)
    upright = x
    for k in (1, 2, 3):
        x = torch.where((4 * u[2]).int() == k, torch.rot90(upright, k, (2, 3)), x)
    x = blend(0.0, 3, JITTER["brightness"])
    x = blend(grey(x).mean((1, 2, 3), keepdim=True), 4, JITTER["contrast"])
    x = blend(grey(x), 5, JITTER["saturation"])
    return _turn_hue(x, JITTER["hue"] * (2 * u[6] - 1))


def _turn_hue(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Turn the hue by a share of the circle: to hue, chroma and value, and back (Smith, 1978)."""
    red, green, blue = x[:, :1], x[:, 1:2], x[:, 2:]
    value = x.amax(1, keepdim=True)
    chroma = value - x.amin(1, keepdim=True)
    safe = torch.where(chroma == 0, 1.0, chroma)
    sextant = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    offsets = torch.tensor([5.0, 3.0, 1.0], device=x.device).view(1, 3, 1, 1)
    k = (offsets + sextant + 6 * by).remainder(6)
    return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)


def build_network(network: str, n_classes: int, seed: int) -> torch.nn.Module:
    """Return torchvision's network with `n_classes` outputs; `seed` decides its random weights."""
    models = library("torchvision.models", "fine-tuning")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module: torch.nn.Module = getattr(models, network)(weights=None, num_classes=n_classes)
    return module


class Stepper:
    """Adam on the cross-entropy between a network's softmax and target probabilities."""

    def __init__(self, network: torch.nn.Module, precision: str, device: str) -> None:
        self.network = network
        self._kind = device.partition(":")[0]
        self._autocast = precision == "bf16"
        self.optimiser = torch.optim.Adam(
            network.parameters(), weight_decay=WEIGHT_DECAY, fused=self._kind == "cuda"
        )

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Run the network in its precision."""
        with torch.autocast(self._kind, dtype=torch.bfloat16, enabled=self._autocast):
            logits: torch.Tensor = self.network(x)
        return logits

    def __call__(self, x: torch.Tensor, q: torch.Tensor, learning_rate: float) -> torch.Tensor:
        """Take a step on images and target probabilities; return the mean loss before it."""
        self.optimiser.param_groups[0]["lr"] = learning_rate
        self.optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.logits(x).float(), q)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return loss.detach()


def epoch_order(positions: Int, seed: int, epoch: int) -> Int:
    """Return the order of an epoch's cases, a function of seed and epoch alone.

    Examples
    --------
    >>> epoch_order(np.arange(5), seed=0, epoch=0).tolist()
    [2, 4, 3, 0, 1]
    """
    return np.random.default_rng([seed, epoch]).permutation(positions)


class Training:
    """The state of one network between epochs.

    `targets` (n, C) and `y` are by position in `pixels`; the seed decides initial
    weights, order and augmentation; the device is settled in `options`.
    """

    def __init__(
        self,
        pixels: Pixels,
        parts: Parts,
        targets: Float,
        y: Int,
        seed: int,
        options: FinetuneOptions,
        precision: str,
    ) -> None:
        self.device = str(options.device)
        self.pixels, self.parts, self.y = pixels, parts, y
        self.seed, self.options = seed, options
        network = build_network(options.network, targets.shape[1], seed)
        self.network: torch.nn.Module = network.to(self.device)
        self.stepper = Stepper(self.network, precision, self.device)
        self.targets = torch.from_numpy(targets.astype(np.float32)).to(self.device)
        mean, std = IMAGENET
        self.mean = torch.tensor(mean, device=self.device).view(1, 3, 1, 1)
        self.std = torch.tensor(std, device=self.device).view(1, 3, 1, 1)
        self.history: list[dict[str, float]] = []
        self.best: dict[str, torch.Tensor] = {}

    @property
    def best_epoch(self) -> int:
        """The epoch with the lowest validation loss so far, the first of equals."""
        return int(np.argmin([epoch["val_nll"] for epoch in self.history]))

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        return len(self.history) == self.options.epochs

    def run_epoch(self, on_images: Callable[[int], object]) -> None:
        """Train for one epoch and note the losses."""
        epoch, size = len(self.history), self.options.batch_size
        rate = self.options.learning_rate * DECAY**epoch
        order = epoch_order(self.parts.train, self.seed, epoch)
        draws = uniforms(len(self.y), self.seed, epoch)
        if len(order) % size == 1 and len(order) > 1:
            order = order[:-1]  # batch normalisation knows no spread of a single image
        batches = np.split(order, range(size, len(order), size))
        total = torch.zeros((), device=self.device)
        self.network.train()
        for batch in batches:
            x = augment(self.pixels.take(batch), draws[batch])
            q = self.targets[torch.from_numpy(batch).to(self.device)]
            total += self.stepper((x - self.mean) / self.std, q, rate) * len(batch)
            on_images(len(batch))
        loss, nll = float(total) / len(order), self._validation_nll()
        if not (math.isfinite(loss) and math.isfinite(nll)):
            raise InputError(
                f"training diverged in epoch {epoch + 1}: the loss is no longer a number. "
                "Use a smaller learning rate"
            )
        self.history.append({"train_loss": loss, "val_nll": nll})
        if self.best_epoch == epoch:
            self.best = {k: v.detach().clone() for k, v in self.network.state_dict().items()}

    def _validation_nll(self) -> float:
        probs = self.predict(self.parts.val)
        chosen = probs[np.arange(len(probs)), self.y[self.parts.val]]
        return float(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)).mean())

    def predict(self, positions: Int) -> Float:
        """Return the probabilities (n, C) the network as it stands gives, without augmentation."""
        self.network.eval()
        probs = []
        batches = np.split(positions, range(_EVALUATED, len(positions), _EVALUATED))
        with torch.inference_mode():
            for batch in batches:
                x = self.pixels.take(batch).permute(0, 3, 1, 2).float().div(255)
                logits = self.stepper.logits((x - self.mean) / self.std)
                probs.append(logits.cpu().double().softmax(1))
        return np.asarray(torch.cat(probs).numpy())

    def choose(self) -> int:
        """Put the best epoch's weights into the network and return its number."""
        self.network.load_state_dict(self.best)
        return self.best_epoch

    def state(self) -> bytes:
        """Return everything the next epoch depends on, as a torch file.

        No generator's state is among it: order and augmentation are functions of seed and epoch.
        """
        content = io.BytesIO()
        state = {
            "network": self.network.state_dict(),
            "optimiser": self.stepper.optimiser.state_dict(),
            "best": self.best,
            "history": self.history,
        }
        torch.save(state, content)
        return content.getvalue()

    def load(self, path: Path) -> None:
        """Go back to a `state` kept in a file."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.network.load_state_dict(state["network"])
        self.stepper.optimiser.load_state_dict(state["optimiser"])
        self.best, self.history = state["best"], state["history"]


def repeatable() -> Any:
    """Have cuDNN choose algorithms by rule and not by stopwatch, and only repeatable ones."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
