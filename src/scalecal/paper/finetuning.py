"""End-to-end ResNets on images with hard and smoothed labels: the replication of Wei et al. (2022).

`finetune` takes an image set and leaves a folder of predictions; a killed run goes on where it stopped.
The networks themselves are in `scalecal.paper.networks`, which needs torch.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scalecal import __version__
from scalecal.cases import Answers, Cases, Predictions
from scalecal.checks import Float, InputError, Int, check_above, check_positive_int, lookup
from scalecal.encoders.record import Preprocessing
from scalecal.evaluation.cells import write_cell
from scalecal.features.encoding import pick_device, pick_precision
from scalecal.io.boundary import read_document
from scalecal.io.store import Store, as_document, output_folder, plain, write_csv
from scalecal.progress import Progress
from scalecal.runs.grid import SHARES, parts, seed_list
from scalecal.smoothing import soft_labels, vanilla
from scalecal.splits import hold_out

if TYPE_CHECKING:
    from scalecal.datasets.image_sets import ImageSet
    from scalecal.paper.networks import Training

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
    # After the device: without torch, that says how to install it.
    from scalecal.paper import networks

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
        **networks.JITTER,
        "device": device.partition(":")[0],
        "precision": precision,
        "decay": networks.DECAY,
        "weight_decay": networks.WEIGHT_DECAY,
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
            pixels = networks.Pixels(images, rows, square, device=device)
            with Progress(total, show=progress) as bar, networks.repeatable():
                for name, seed in left:
                    training = networks.Training(
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
