"""End-to-end ResNets on images with hard and smoothed labels: the replication of Wei et al. (2022).

`finetune` takes an image set and leaves a folder of predictions; a killed run goes on where it stopped.
What happens to an image depends on the seed, the epoch and the image's place in the data set, and on
nothing else: not on the batch it is in, the number of threads or how often the run was interrupted.
"""

from __future__ import annotations

import io
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scalecal import __version__
from scalecal.cases import Answers, Cases, Predictions
from scalecal.checks import (
    Float,
    InputError,
    Int,
    LazyModule,
    check_above,
    check_positive_int,
    library,
    lookup,
)
from scalecal.encoders.registry import IMAGENET, Preprocessing
from scalecal.engines.local import cores
from scalecal.evaluation.cells import write_cell
from scalecal.features.extraction import pick_device, pick_precision
from scalecal.features.image_rows import read_rows
from scalecal.io.boundary import read_document
from scalecal.io.store import Store, as_document, output_folder, plain, write_csv
from scalecal.limits import check_limit
from scalecal.progress import Progress
from scalecal.runs.grid import SHARES, parts, seed_list
from scalecal.smoothing import soft_labels, vanilla
from scalecal.splits import hold_out

if TYPE_CHECKING:
    import torch

    from scalecal.datasets.image_sets import ImageSet
else:
    torch = LazyModule("torch")

NETWORKS = ("resnet18", "resnet34", "resnet50")
"""torchvision's networks that can be trained."""

VALIDATION = 0.1
"""Share of the training cases held out where no validation part is published."""

_NOTES = (
    "Every network is trained end to end from random weights; its predictions are those of the epoch with "
    "the lowest validation loss of the hard labels.",
    "The hyper-parameters of Wei et al. (2022) are not all published; those used here are the options.",
)


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
        check_above(self.learning_rate, "learning_rate")


# ---- labels


LABEL_KINDS: dict[str, str] = {
    "hard": "resnet-hard",
    "vanilla": "resnet-vanilla-ls",
    "linear": "resnet-linear",
    "piecewise": "resnet-piecewise",
    "nonlinear": "resnet-nonlinear",
}
"""Label kind -> method's name in results, in the order of the paper's first table.

The last three are smoothing functions of readers' votes (`scalecal.smoothing.SMOOTHINGS`); all strengths
are the defaults there.
"""


def training_targets(name: str, y: Int, counts: Int | None, n_classes: int) -> Float:
    """Return the targets of the training cases, one probability per class.

    `counts` (n, C) are readers per class; the kinds that need votes need them for every case.

    Examples
    --------
    >>> training_targets("vanilla", np.array([0, 1]), None, 2).round(3).tolist()
    [[0.95, 0.05], [0.05, 0.95]]
    >>> votes = np.array([[7, 0], [3, 4]])
    >>> training_targets("piecewise", np.array([0, 1]), votes, 2).round(3).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    lookup(name, LABEL_KINDS, "label kind")
    if name == "hard":
        return np.eye(n_classes)[y]
    if name == "vanilla":
        soft = vanilla(y, n_classes=n_classes)
    elif counts is None:
        raise InputError(
            f"{name} labels need readers' votes, and this data set has none. "
            "Use --labels hard or vanilla"
        )
    else:
        soft = soft_labels(counts, smoothing=name)
    if soft.ndim == 1:
        return np.column_stack([1.0 - soft, soft])
    return soft


# ---- cases and their parts


def labelled_cases(images: ImageSet) -> tuple[Int, Cases]:
    """Return the rows of an image set that have a label, and their cases."""
    cases = images.cases.labelled()
    if cases.groups is not None and (cases.groups.codes < 0).any():
        alone = int((cases.groups.codes < 0).sum())
        raise InputError(f"{images.name}: {alone} cases have no group where others have one")
    if cases.split is not None and (cases.split.codes < 0).any():
        unused = int((cases.split.codes < 0).sum())
        cases = cases.note(f"{unused} images belong to no part and were not used.")
    return np.flatnonzero(images.cases.labels >= 0), cases.stratified()


class Parts(NamedTuple):
    """Positions of the cases that train, that choose the epoch, and that test."""

    train: Int
    val: Int
    test: Int


def divide(cases: Cases, seed: int) -> Parts:
    """Divide the cases for one seed.

    A published test part is kept, and so is a published validation part; otherwise `VALIDATION`
    of the training cases are held out, stratified and never through a group. Without any published
    part the cases are divided anew for every seed, as for the probes (`SHARES`).
    """
    train, val, tested = parts(cases, seed)
    if val is not None:
        return Parts(train, val, tested)
    groups = None
    if cases.groups is not None:
        groups = cases.groups.values[train]
    kept, held = hold_out(cases.labels[train], share=VALIDATION, groups=groups, seed=seed)
    return Parts(train[kept], train[held], tested)


# ---- the networks

DECAY = 0.91
"""Factor of the learning rate from epoch to epoch."""

WEIGHT_DECAY = 1e-4
"""Adam's L2 penalty."""

_EVALUATED = 256  # images per pass without gradients

# Rows one thread reads at a time; an array on disk is read in long blocks.
_ROWS = {"files": 32, "array": 2048}

JITTER = {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.2}
"""Strength of the colour jitter, as in DeepSlide."""


def load_pixels(
    images: ImageSet, rows: Int, preprocess: Preprocessing, *, device: str
) -> torch.Tensor:
    """Return square images of some rows of an image set on a device: uint8 (n, edge, edge, 3).

    An image that cannot be read is an error.
    """
    edge = preprocess.crop
    check_limit(len(rows) * edge**2 * 3, "memory", f"the size of {len(rows):,} images")
    whole = np.empty((len(rows), edge, edge, 3), dtype=np.uint8)
    chosen = images.take(rows)
    step = _ROWS[images.kind]

    def fill(start: int) -> None:
        part = slice(start, min(start + step, len(rows)))
        whole[part] = read_rows(chosen, part.start, part.stop, preprocess, True).images

    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(fill, range(0, len(rows), step)))
    return torch.from_numpy(whole).to(device)


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
        pixels: torch.Tensor,
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
            index = torch.from_numpy(batch).to(self.device)
            x = augment(self.pixels[index], draws[batch])
            q = self.targets[index]
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
                index = torch.from_numpy(batch).to(self.device)
                x = self.pixels[index].permute(0, 3, 1, 2).float().div(255)
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


# ---- a run


def finetune(
    images: ImageSet,
    out: str | os.PathLike[str],
    *,
    labels: Sequence[str] = tuple(LABEL_KINDS),
    seeds: int | Sequence[int] = 10,
    checkpoint_seconds: float = 30.0,
    progress: bool = True,
    command: Sequence[str] = (),
    **options: Any,
) -> Predictions:
    """Train a residual network end to end for every label kind and seed, and predict the test cases.

    Killed at any moment and started again with the same arguments, it continues from the last
    checkpoint and ends with the same predictions, to the last bit, as a run that was never stopped
    on the same kind of machine. Label kinds and seeds may be added to a finished folder; any other
    change is refused.

    Parameters
    ----------
    images : ImageSet
        From `scalecal.datasets.open_dataset`.
    out : path
        Folder of the results.
    labels : sequence of str
        Names in `LABEL_KINDS`.
    seeds : int or sequence of int
        How many seeds (0, 1, ...), or which. A seed decides held-out cases, initial weights, batch
        order and augmentation, the same for every label kind, so that the kinds are paired.
    checkpoint_seconds : float
        A checkpoint is written after an epoch if the last one is at least this old.
    progress : bool
        Show progress on standard error.
    command : sequence of str
        The command line, for ``run.json``.
    options
        Fields of `FinetuneOptions`.

    Returns
    -------
    Predictions
        As they lie in the folder.

    References
    ----------
    J. Wei et al., "Calibrating Histopathology Image Classifiers using Label Smoothing", AIME 2022.
    J. Wei et al., "A Petri Dish for Histopathology Image Analysis", AIME 2021.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from scalecal.datasets import open_dataset
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, grey in (("benign", 40), ("malignant", 200)):
    ...     (folder / "tiles" / name).mkdir(parents=True)
    ...     for i in range(8):
    ...         Image.new("RGB", (32, 32), (grey + i,) * 3).save(folder / "tiles" / name / f"{i}.png")
    >>> cell = finetune(open_dataset(f"folder:{folder / 'tiles'}"), folder / "run", seeds=1,
    ...                 labels=["hard", "vanilla"], epochs=1, image_size=32, batch_size=4,
    ...                 device="cpu", progress=False)
    >>> cell.methods
    ['resnet-hard', 'resnet-vanilla-ls']
    """
    for name in labels:
        lookup(name, LABEL_KINDS, "label kind")
    chosen = FinetuneOptions(**options)
    device = pick_device(chosen.device)
    precision = pick_precision("auto", device)
    chosen = replace(chosen, device=device)
    seed_numbers = seed_list(seeds)
    rows, cases = labelled_cases(images)
    parts = {seed: divide(cases, seed) for seed in seed_numbers}
    for name in labels:
        # Before the first epoch: does each kind have its votes?
        _targets(cases, parts[seed_numbers[0]].train, name)
    recorded = {
        **asdict(chosen),
        **JITTER,
        "device": device.partition(":")[0],
        "precision": precision,
        "decay": DECAY,
        "weight_decay": WEIGHT_DECAY,
        "validation": VALIDATION,
        "test": SHARES[2],
    }
    settings = plain(
        {
            "options": recorded,
            "dataset": {"name": images.name, "sha256": images.fingerprint()},
        }
    )
    with Store(out, settings, kind="finetune") as store:
        left = []
        total = 0
        for seed in seed_numbers:
            for name in labels:
                if not store.done(_result_name(name, seed)):
                    left.append((name, seed))
                    total += len(parts[seed].train) * chosen.epochs
        if left:
            edge = chosen.image_size
            square = Preprocessing(resize=edge, crop=edge, interpolation="bilinear")
            pixels = load_pixels(images, rows, square, device=device)
            with Progress(total, show=progress) as bar, repeatable():
                for name, seed in left:
                    training = Training(
                        pixels,
                        parts[seed],
                        _targets(cases, parts[seed].train, name),
                        cases.labels,
                        seed,
                        chosen,
                        precision,
                    )
                    _train(store, training, name, seed, checkpoint_seconds, bar.advance)
        return _collect(store, images, cases, settings, list(command))


def _targets(cases: Cases, train: Int, name: str) -> Float:
    """Targets by position; cases outside the training part have none (NaN)."""
    training = cases.take(train)
    n_classes = len(cases.classes)
    values = np.full((cases.n, n_classes), np.nan)
    values[train] = training_targets(name, training.labels, training.votes, n_classes)
    return values


def _result_name(name: str, seed: int) -> str:
    return f"finished/{LABEL_KINDS[name]}-seed{seed}.json"


def _train(
    store: Store,
    training: Training,
    name: str,
    seed: int,
    checkpoint_seconds: float,
    on_images: Callable[[int], object],
) -> None:
    """Train a network to its end, from its checkpoint if there is one, and keep its predictions."""
    method = LABEL_KINDS[name]
    checkpoint = f"checkpoints/{method}-seed{seed}.pt"
    if store.done(checkpoint):
        training.load(store.path / checkpoint)
    on_images(len(training.parts.train) * len(training.history))
    written = time.monotonic()
    while not training.finished:
        training.run_epoch(on_images)
        if not training.finished and time.monotonic() - written >= checkpoint_seconds:
            store.write(checkpoint, training.state())
            written = time.monotonic()
    result = {
        "method": method,
        "seed": seed,
        "kept_epoch": training.choose() + 1,
        "history": training.history,
        "tested": training.parts.test,
        "probs": training.predict(training.parts.test),
    }
    store.write(_result_name(name, seed), json.dumps(plain(as_document(result)), indent=2) + "\n")
    store.remove(checkpoint)


def _collect(
    store: Store,
    images: ImageSet,
    cases: Cases,
    settings: Mapping[str, Any],
    command: list[str],
) -> Predictions:
    """Make the run's folder out of the finished networks."""
    import pandas as pd

    results = []
    for file in (store.path / "finished").glob("*.json"):
        results.append(read_document(file, dict[str, Any]))
    order = list(LABEL_KINDS.values())
    results.sort(key=lambda r: (order.index(r["method"]), r["seed"]))
    tested = np.unique(np.concatenate([result["tested"] for result in results]))
    answers: dict[tuple[str, int], Answers] = {}
    history = []
    for result in results:
        method, seed = result["method"], result["seed"]
        p = np.asarray(result["probs"], dtype=np.float64)
        if len(cases.classes) == 2:
            p = p[:, 1]
        answers[method, seed] = Answers(p, rows=np.searchsorted(tested, result["tested"]))
        for epoch, losses in enumerate(result["history"], start=1):
            kept = epoch == result["kept_epoch"]
            history.append({"method": method, "seed": seed, "epoch": epoch, **losses, "kept": kept})
    packages = {}
    for name in ("numpy", "torch", "torchvision", "PIL"):
        packages[name] = str(import_module(name).__version__)
    network = str(settings["options"]["network"])
    cell = Predictions(
        dataset=images.name,
        encoder=network,
        cases=replace(cases.take(tested), split=None),
        answers=answers,
        meta={
            "kind": "finetune",
            "title": f"End-to-end {network} on {images.name}",
            "version": __version__,
            "command": command,
            "options": settings["options"],
            "seeds": sorted({seed for _, seed in answers}),
            "dataset": {
                **settings["dataset"],
                "n": len(cases),
                "classes": list(images.classes),
                "licence": images.about.licence,
                "credit": images.about.credit,
            },
            "encoder": {"name": network, "weights": "random"},
            "methods": list(dict.fromkeys(method for method, _ in answers)),
            "notes": [*_NOTES, *cases.notes],
            "packages": packages,
        },
    )
    with output_folder(store.path, kind="finetune") as folder:
        write_cell(folder, cell)
        write_csv(pd.DataFrame(history), folder / "training.csv")
    return cell
