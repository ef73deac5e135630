"""One network: epochs, checkpoints, the epoch that is kept, its predictions."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.checks import Float, InputError, Int
from scalecal.paper.finetuning.augmentation import Augmentation, Keys
from scalecal.paper.finetuning.cases import Parts
from scalecal.paper.finetuning.checkpoints import load_checkpoint, save_checkpoint
from scalecal.paper.finetuning.network import StartingWeights, build_network
from scalecal.paper.finetuning.pixels import Pixels
from scalecal.paper.finetuning.steps import Stepper

if TYPE_CHECKING:
    import torch

__all__ = ["Recipe", "Trained", "Training", "epoch_order", "train"]

_EVALUATED = 256  # images per pass without gradients
_AUGMENTED = (
    512  # images augmented in one go on a card, where starting work costs more than doing it
)


@dataclass(frozen=True)
class Recipe:
    """Everything besides images, labels and seed that decides a network's numbers."""

    network: str
    start: StartingWeights
    n_classes: int
    epochs: int
    batch_size: int
    learning_rate: float
    decay: float
    weight_decay: float
    keep: str
    patience: int | None
    augmentation: Augmentation
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    device: str
    precision: str


@dataclass(frozen=True)
class Trained:
    """A finished network: test probabilities (n, C), what every epoch gave, the epoch kept (from 0)."""

    probs: Float
    history: list[dict[str, float]]
    epoch: int


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

    Parameters
    ----------
    pixels : Pixels
        The images by position.
    parts : Parts
        Positions that train, select and test.
    targets : array (n, C)
        Target probabilities by position; only those that train are used.
    y : array (n,)
        Hard labels by position, for the validation loss.
    keys : array of uint64
        `case_keys` by position.
    seed : int
        Decides initial weights, order and augmentation.
    recipe : Recipe
        Everything else.
    """

    def __init__(
        self,
        pixels: Pixels,
        parts: Parts,
        targets: Float,
        y: Int,
        keys: Keys,
        seed: int,
        recipe: Recipe,
    ) -> None:
        import torch

        self.pixels, self.parts, self.y, self.keys = pixels, parts, y, keys
        self.seed, self.recipe = seed, recipe
        network = build_network(recipe.network, recipe.n_classes, seed, recipe.start)
        self.cuda = recipe.device.startswith("cuda")
        if self.cuda:
            network = network.to(recipe.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network: torch.nn.Module = network.to(recipe.device)
        self.stepper = Stepper(
            self.network,
            learning_rate=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            precision=recipe.precision,
            device=recipe.device,
        )
        self.targets = torch.from_numpy(targets.astype(np.float32)).to(recipe.device)
        self.mean = torch.tensor(recipe.mean, device=recipe.device).view(1, 3, 1, 1)
        self.std = torch.tensor(recipe.std, device=recipe.device).view(1, 3, 1, 1)
        self.history: list[dict[str, float]] = []
        self.best: dict[str, torch.Tensor] = {}

    @property
    def best_epoch(self) -> int:
        """The epoch with the lowest validation loss so far, the first of equals."""
        return int(np.argmin([epoch["val_nll"] for epoch in self.history]))

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        done, patience = len(self.history), self.recipe.patience
        if done == self.recipe.epochs:
            return True
        return patience is not None and done > 0 and done - 1 - self.best_epoch >= patience

    def run_epoch(self, on_images: Callable[[int], object]) -> None:
        """Train for one epoch and note the losses."""
        import torch

        epoch, size = len(self.history), self.recipe.batch_size
        self.stepper.set_learning_rate(self.recipe.learning_rate * self.recipe.decay**epoch)
        order = epoch_order(self.parts.train, self.seed, epoch)
        if len(order) % size == 1 and len(order) > 1:
            order = order[:-1]  # batch normalisation knows no spread of a single image
        draws = self.recipe.augmentation.draw(self.keys[order], self.seed, epoch)
        chunk = max(1, _AUGMENTED // size) * size if self.cuda else size
        starts = range(0, len(order), chunk)
        total = torch.zeros((), device=self.recipe.device)
        blocks = self.pixels.blocks([order[s : s + chunk] for s in starts])
        self.network.train()
        for start, block in zip(starts, blocks, strict=True):
            which = torch.from_numpy(order[start : start + chunk]).to(self.recipe.device)
            x = self.recipe.augmentation(block, draws[start : start + chunk])
            x = self._normalised(x)
            q = self.targets[which]
            for first in range(0, len(x), size):
                part = slice(first, first + size)
                total += self.stepper(x[part], q[part]) * len(x[part])
            on_images(len(x))
        loss = float(total) / len(order)
        nll = self._validation_nll()
        if not (math.isfinite(loss) and math.isfinite(nll)):
            raise InputError(
                f"training went astray in epoch {epoch + 1}: the loss is no longer a number. "
                "Use a smaller learning rate"
            )
        self.history.append({"train_loss": loss, "val_nll": nll})
        if self.recipe.keep == "best" and self.best_epoch == epoch:
            self.best = {k: v.detach().clone() for k, v in self.network.state_dict().items()}

    def _normalised(self, x: torch.Tensor) -> torch.Tensor:
        import torch

        x = (x - self.mean) / self.std
        return x.contiguous(memory_format=torch.channels_last) if self.cuda else x.contiguous()

    def _validation_nll(self) -> float:
        probs = self.predict(self.parts.val)
        chosen = probs[np.arange(len(probs)), self.y[self.parts.val]]
        return float(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)).mean())

    def predict(self, positions: Int) -> Float:
        """Return the probabilities (n, C) the network as it stands gives, without augmentation."""
        import torch

        self.network.eval()
        found = []
        splits = np.split(positions, range(_EVALUATED, len(positions), _EVALUATED))
        with torch.inference_mode():
            for block in self.pixels.blocks(splits):
                x = self._normalised(block.permute(0, 3, 1, 2).float().div_(255))
                with self.stepper.autocast():
                    logits = self.network(x)
                found.append(logits.cpu().double().softmax(1))
        return np.asarray(torch.cat(found).numpy())

    def choose(self) -> int:
        """Put the kept epoch's weights into the network and return its number."""
        if self.recipe.keep == "last":
            return len(self.history) - 1
        self.network.load_state_dict(self.best)
        return self.best_epoch

    def save(self, path: Path) -> None:
        """Write everything the next epoch depends on.

        No generator's state is among it: order and augmentation are functions of seed and epoch.
        """
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        tensors |= {f"optimiser.{k}": v for k, v in self.stepper.tensors().items()}
        save_checkpoint(path, tensors, {"history": self.history, "scaler": self.stepper.scaler()})

    def load(self, path: Path) -> None:
        """Go back to the state in `path`, if there is one."""
        found = load_checkpoint(path)
        if found is None:
            return
        tensors, facts = found

        def part(prefix: str) -> dict[str, Any]:
            start = prefix + "."
            return {k[len(start) :]: t for k, t in tensors.items() if k.startswith(start)}

        self.network.load_state_dict(part("network"))
        self.best = {k: t.to(self.recipe.device) for k, t in part("best").items()}
        self.stepper.load(part("optimiser"), facts["scaler"])
        self.history = facts["history"]


def train(
    training: Training,
    checkpoint: Path,
    *,
    checkpoint_seconds: float,
    on_images: Callable[[int], object],
) -> Trained:
    """Train a network to its end, going on from `checkpoint` if there is one.

    The state is written after an epoch if the last time was `checkpoint_seconds` ago or longer.
    """
    with repeatable():
        training.load(checkpoint)
        per_epoch = len(training.parts.train)
        on_images(per_epoch * len(training.history))
        written = time.monotonic()
        while not training.finished:
            training.run_epoch(on_images)
            if not training.finished and time.monotonic() - written >= checkpoint_seconds:
                training.save(checkpoint)
                written = time.monotonic()
        on_images(per_epoch * (training.recipe.epochs - len(training.history)))
        epoch = training.choose()
        return Trained(training.predict(training.parts.test), training.history, epoch)


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """Have cuDNN choose algorithms by rule and not by stopwatch, and only repeatable ones."""
    import torch

    backend = torch.backends.cudnn
    before = backend.deterministic, backend.benchmark
    backend.deterministic, backend.benchmark = True, False
    try:
        yield
    finally:
        backend.deterministic, backend.benchmark = before
