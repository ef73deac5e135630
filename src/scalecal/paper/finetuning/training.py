"""One network: its options, a step, epochs, checkpoints, the epoch that is kept."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scalecal.checks import Float, InputError, Int, check_positive_int, library, lookup
from scalecal.encoders.record import IMAGENET, Preprocessing
from scalecal.paper.finetuning.pixels import Pixels, augment, uniforms

if TYPE_CHECKING:
    import torch

NETWORKS = ("resnet18", "resnet34", "resnet50")
"""torchvision's networks that can be trained."""

DECAY = 0.91
"""Factor of the learning rate from epoch to epoch."""

WEIGHT_DECAY = 1e-4
"""Adam's L2 penalty."""

_EVALUATED = 256  # images per pass without gradients


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """What may be chosen of a network's training, besides images, label kind and seed.

    The set-up of Wei et al. (2022) is not published in full. Network, random initial weights, Adam
    with an L2 penalty and exponential decay, batch size, flips, quarter turns and colour jitter are
    those of their group's public training code (DeepSlide, whose defaults are 10 epochs and a decay
    of 0.95). 100 epochs and 0.91 are what is reported of the MHIST baseline (Wei et al., 2021); we
    have not seen them confirmed. Which epoch was reported is not known either: here it is the one
    with the lowest validation loss (NLL of the hard labels, for every label kind).

    Attributes
    ----------
    network : {"resnet18", "resnet34", "resnet50"}
        torchvision's network; its initial weights are random.
    epochs, batch_size : int
        Passes over the training part, and images per step.
    learning_rate : float
        Adam's rate in the first epoch.
    image_size : int
        Edge of the square the network sees: the shortest edge is resized to it, the rest cut off.
    device : str
        As in `scalecal.features.extract`.
    """

    network: str = "resnet18"
    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 1e-3
    image_size: int = 224
    device: str | None = None

    def __post_init__(self) -> None:
        lookup(self.network, dict.fromkeys(NETWORKS), "network")
        check_positive_int(self.epochs, "epochs")
        check_positive_int(self.batch_size, "batch_size", least=2)
        check_positive_int(self.image_size, "image_size")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate must be a number above 0, got {self.learning_rate!r}")

    @property
    def preprocessing(self) -> Preprocessing:
        """How an image becomes what the network sees."""
        return Preprocessing(resize=self.image_size, crop=self.image_size, interpolation="bilinear")


def build_network(network: str, n_classes: int, seed: int) -> torch.nn.Module:
    """Return torchvision's network with `n_classes` outputs; `seed` decides its random weights."""
    import torch

    models = library("torchvision.models", "fine-tuning")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module: torch.nn.Module = getattr(models, network)(weights=None, num_classes=n_classes)
    return module


class Stepper:
    """Adam on the cross-entropy between a network's softmax and target probabilities."""

    def __init__(self, network: torch.nn.Module, precision: str, device: str) -> None:
        import torch

        self.network = network
        self._kind = device.partition(":")[0]
        self._autocast = precision == "bf16"
        self.optimiser = torch.optim.Adam(
            network.parameters(), weight_decay=WEIGHT_DECAY, fused=self._kind == "cuda"
        )

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Run the network in its precision."""
        import torch

        with torch.autocast(self._kind, dtype=torch.bfloat16, enabled=self._autocast):
            logits: torch.Tensor = self.network(x)
        return logits

    def __call__(self, x: torch.Tensor, q: torch.Tensor, learning_rate: float) -> torch.Tensor:
        """Take a step on images and target probabilities; return the mean loss before it."""
        import torch

        self.optimiser.param_groups[0]["lr"] = learning_rate
        self.optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.logits(x).float(), q)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return loss.detach()


class Parts(NamedTuple):
    """Positions of the cases that train, that choose the epoch, and that test."""

    train: Int
    val: Int
    test: Int


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
        import torch

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
        import torch

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
        import torch

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
        import torch

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
        import torch

        state = torch.load(path, map_location="cpu", weights_only=True)
        self.network.load_state_dict(state["network"])
        self.stepper.optimiser.load_state_dict(state["optimiser"])
        self.best, self.history = state["best"], state["history"]


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
