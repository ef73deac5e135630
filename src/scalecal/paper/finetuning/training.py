"""One network: its options and weights, a step, epochs, checkpoints, the epoch that is kept."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from scalecal.checks import (
    Float,
    InputError,
    Int,
    check_choice,
    check_positive_int,
    check_unit,
    library,
    lookup,
)
from scalecal.encoders.record import IMAGENET, Encoder, Preprocessing, Triple
from scalecal.features.encoding import PRECISIONS
from scalecal.paper.finetuning.pixels import Keys, Pixels, augment, uniforms

if TYPE_CHECKING:
    import torch

IMAGENET_WEIGHTS = {
    "resnet18": "resnet18-f37072fd.pth",
    "resnet34": "resnet34-b627a593.pth",
    "resnet50": "resnet50-11ad3fa6.pth",
}
"""torchvision's ImageNet weights by network; the digits are the start of the file's SHA-256."""

# A new problem has other classes: these two are made anew, on purpose.
_HEAD = ("fc.weight", "fc.bias")
_EVALUATED = 256  # images per pass without gradients


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """Everything besides images, label kind and seed that decides a network's numbers.

    The set-up of Wei et al. (2022) is not published in full. Network, random initial weights, Adam
    with an L2 penalty and exponential decay, batch size, flips, quarter turns and colour jitter are
    those of their group's public training code (DeepSlide, whose defaults are 10 epochs and a decay
    of 0.95). 100 epochs and 0.91 are what is reported of the MHIST baseline (Wei et al., 2021); we
    have not seen them confirmed. Which epoch was reported is not known either: here it is the one
    with the lowest validation loss.

    Attributes
    ----------
    network : {"resnet18", "resnet34", "resnet50"}
        torchvision's network.
    weights : path or "imagenet", optional
        A weight file to start from, or torchvision's ImageNet weights; by default random weights.
        The last layer is always new.
    epochs, batch_size : int
        Passes over the training part, and images per step.
    learning_rate, decay, weight_decay : float
        Adam's rate in the first epoch, its factor from epoch to epoch, and the L2 penalty.
    keep : {"best", "last"}
        Predict with the epoch of lowest validation loss (NLL of the hard labels, for every label
        kind), or with the last one.
    patience : int, optional
        Stop when the validation loss has not fallen for this many epochs; only with ``"best"``.
    validation, test : float
        Share of the training cases held out where no validation part is published; share of the
        cases tested where no test part is.
    flips, turns, brightness, contrast, saturation, hue
        Augmentation, see `scalecal.paper.finetuning.pixels.augment`.
    image_size, resize_mode, mean, std
        Edge of the square the network sees, how an image is made to fit, and its normalisation;
        see `scalecal.encoders.record.Preprocessing`.
    epsilon, alpha, omega, phi : float, optional
        Strength of vanilla, linear, piecewise and nonlinear smoothing; by default those of
        `scalecal.smoothing`.
    device, precision : str
        As in `scalecal.features.extract`.
    """

    network: str = "resnet18"
    weights: str | None = None
    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 1e-3
    decay: float = 0.91
    weight_decay: float = 1e-4
    keep: Literal["best", "last"] = "best"
    patience: int | None = None
    validation: float = 0.1
    test: float = 0.2
    flips: bool = True
    turns: bool = True
    brightness: float = 0.5
    contrast: float = 0.5
    saturation: float = 0.5
    hue: float = 0.2
    image_size: int = 224
    resize_mode: Literal["shortest", "squash"] = "shortest"
    mean: Triple = IMAGENET[0]
    std: Triple = IMAGENET[1]
    epsilon: float | None = None
    alpha: float | None = None
    omega: float | None = None
    phi: float | None = None
    device: str | None = None
    precision: str = "auto"

    def __post_init__(self) -> None:
        lookup(self.network, IMAGENET_WEIGHTS, "network")
        check_choice(self.keep, ("best", "last"), "keep")
        check_choice(self.precision, PRECISIONS, "precision")
        check_positive_int(self.epochs, "epochs")
        check_positive_int(self.batch_size, "batch_size", least=2)
        if self.patience is not None:
            check_positive_int(self.patience, "patience")
            if self.keep == "last":
                raise InputError("patience stops by the validation loss: it needs keep='best'")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate must be a number above 0, got {self.learning_rate!r}")
        if not 0 < self.decay <= 1:
            raise InputError(f"decay must be above 0 and at most 1, got {self.decay!r}")
        for name in ("weight_decay", "brightness", "contrast", "saturation"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be a number >= 0, got {value!r}")
        if check_unit(self.hue, "hue") > 0.5:
            raise InputError(f"hue must be at most 0.5 (half the colour circle), got {self.hue:g}")

    @property
    def preprocessing(self) -> Preprocessing:
        """How an image becomes what the network sees."""
        return Preprocessing(
            resize=self.image_size,
            crop=self.image_size,
            interpolation="bilinear",
            mean=self.mean,
            std=self.std,
            resize_mode=self.resize_mode,
        )


class StartingWeights(NamedTuple):
    """Pretrained weights without their last layer, and where they came from; None: random."""

    tensors: Mapping[str, Any] | None
    source: str
    sha256: str | None


def starting_weights(network: str, weights: str | Path | None) -> StartingWeights:
    """Read the weights to start from, as `FinetuneOptions.weights` names them.

    A file has torchvision's names (timm's are the same).
    """
    if weights is None:
        return StartingWeights(None, "random", None)
    from scalecal.encoders.weights import check_hash, find_weights, read_state_dict
    from scalecal.io.store import file_hash

    published = str(weights) == "imagenet"
    record = _record(network)
    path = find_weights(record, None if published else weights)
    digest = file_hash(path)
    if published:
        check_hash(record, digest, chosen_by_user=False)
    state = read_state_dict(path)
    if not isinstance(state, Mapping) or not all(hasattr(t, "shape") for t in state.values()):
        raise InputError(f"{path} holds no plain state dict of a {network}")
    tensors = {name: tensor for name, tensor in state.items() if name not in _HEAD}
    return StartingWeights(tensors, "imagenet" if published else path.name, digest)


def _record(network: str) -> Encoder:
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

    models = library("torchvision.models", "fine-tuning")
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


class Stepper:
    """Adam on the cross-entropy between a network's softmax and target probabilities."""

    def __init__(
        self, network: torch.nn.Module, weight_decay: float, precision: str, device: str
    ) -> None:
        import torch

        self.network = network
        self._kind = device.partition(":")[0]
        self._dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
        self._scaler = torch.amp.GradScaler(self._kind, enabled=precision == "fp16")
        self.optimiser = torch.optim.Adam(
            network.parameters(), weight_decay=weight_decay, fused=self._kind == "cuda"
        )

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Run the network in its precision."""
        import torch

        with torch.autocast(self._kind, dtype=self._dtype, enabled=self._dtype is not None):
            logits: torch.Tensor = self.network(x)
        return logits

    def __call__(self, x: torch.Tensor, q: torch.Tensor, learning_rate: float) -> torch.Tensor:
        """Take a step on images and target probabilities; return the mean loss before it."""
        import torch

        self.optimiser.param_groups[0]["lr"] = learning_rate
        self.optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.logits(x).float(), q)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.step(self.optimiser)
        self._scaler.update()
        return loss.detach()

    def state(self) -> dict[str, Any]:
        """Return what the next step depends on, the network aside."""
        return {"optimiser": self.optimiser.state_dict(), "scaler": self._scaler.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to an earlier `state`."""
        self.optimiser.load_state_dict(state["optimiser"])
        self._scaler.load_state_dict(state["scaler"])


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

    `targets` (n, C), `y` and `keys` (`case_keys`) are by position in `pixels`; the seed decides initial
    weights, order and augmentation; device and precision are settled in `options`.
    """

    def __init__(
        self,
        pixels: Pixels,
        parts: Parts,
        targets: Float,
        y: Int,
        keys: Keys,
        seed: int,
        options: FinetuneOptions,
        start: StartingWeights,
    ) -> None:
        import torch

        self.device = str(options.device)
        self.pixels, self.parts, self.y, self.keys = pixels, parts, y, keys
        self.seed, self.options = seed, options
        network = build_network(options.network, targets.shape[1], seed, start)
        self.network: torch.nn.Module = network.to(self.device)
        self.stepper = Stepper(self.network, options.weight_decay, options.precision, self.device)
        self.targets = torch.from_numpy(targets.astype(np.float32)).to(self.device)
        self.mean = torch.tensor(options.mean, device=self.device).view(1, 3, 1, 1)
        self.std = torch.tensor(options.std, device=self.device).view(1, 3, 1, 1)
        self.history: list[dict[str, float]] = []
        self.best: dict[str, torch.Tensor] = {}

    @property
    def best_epoch(self) -> int:
        """The epoch with the lowest validation loss so far, the first of equals."""
        return int(np.argmin([epoch["val_nll"] for epoch in self.history]))

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        done, patience = len(self.history), self.options.patience
        if done == self.options.epochs:
            return True
        return patience is not None and done > 0 and done - 1 - self.best_epoch >= patience

    def run_epoch(self, on_images: Callable[[int], object]) -> None:
        """Train for one epoch and note the losses."""
        import torch

        epoch, size = len(self.history), self.options.batch_size
        rate = self.options.learning_rate * self.options.decay**epoch
        order = epoch_order(self.parts.train, self.seed, epoch)
        if len(order) % size == 1 and len(order) > 1:
            order = order[:-1]  # batch normalisation knows no spread of a single image
        batches = np.split(order, range(size, len(order), size))
        total = torch.zeros((), device=self.device)
        self.network.train()
        for batch, images in zip(batches, self.pixels.blocks(batches), strict=True):
            x = augment(images, uniforms(self.keys[batch], self.seed, epoch), self.options)
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
        if self.options.keep == "best" and self.best_epoch == epoch:
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
            for images in self.pixels.blocks(batches):
                x = images.permute(0, 3, 1, 2).float().div(255)
                logits = self.stepper.logits((x - self.mean) / self.std)
                probs.append(logits.cpu().double().softmax(1))
        return np.asarray(torch.cat(probs).numpy())

    def choose(self) -> int:
        """Put the kept epoch's weights into the network and return its number."""
        if self.options.keep == "last":
            return len(self.history) - 1
        self.network.load_state_dict(self.best)
        return self.best_epoch

    def state(self) -> bytes:
        """Return everything the next epoch depends on, as a torch file.

        No generator's state is among it: order and augmentation are functions of seed and epoch.
        """
        import torch

        content = io.BytesIO()
        state = {"network": self.network.state_dict(), "best": self.best, "history": self.history}
        torch.save(state | self.stepper.state(), content)
        return content.getvalue()

    def load(self, path: Path) -> None:
        """Go back to a `state` kept in a file."""
        import torch

        state = torch.load(path, map_location="cpu", weights_only=True)
        self.network.load_state_dict(state["network"])
        self.stepper.load(state)
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
