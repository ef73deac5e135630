"""`finetune`: an image set in, a folder of predictions out; a killed run goes on where it stopped."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from scalecal.checks import (
    Float,
    InputError,
    check_choice,
    check_positive_int,
    lookup,
)
from scalecal.encoders.record import IMAGENET, Preprocessing, Triple
from scalecal.features.encoding import PRECISIONS, pick_device, pick_precision
from scalecal.features.progress import Progress
from scalecal.io.store import plain
from scalecal.paper.finetuning.augmentation import Augmentation, case_keys
from scalecal.paper.finetuning.cases import Cases, Parts, at, parts_of, read_cases
from scalecal.paper.finetuning.folder import (
    Finetuned,
    begin,
    checkpoint_file,
    collect,
    finish,
    result_file,
)
from scalecal.paper.finetuning.labels import (
    LABEL_KINDS,
    smoothing_strengths,
    training_targets,
)
from scalecal.paper.finetuning.network import starting_weights
from scalecal.paper.finetuning.pixels import Pixels
from scalecal.paper.finetuning.training import Recipe, Training, train
from scalecal.runs.grid import seed_list

if TYPE_CHECKING:
    from scalecal.datasets.image_sets import ImageSet

__all__ = ["finetune"]


def finetune(
    images: ImageSet,
    out: str | os.PathLike[str],
    *,
    labels: Sequence[str] = tuple(LABEL_KINDS),
    seeds: int | Sequence[int] = 10,
    network: str = "resnet18",
    weights: str | os.PathLike[str] | None = None,
    epochs: int = 100,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    decay: float = 0.91,
    weight_decay: float = 1e-4,
    keep: Literal["best", "last"] = "best",
    patience: int | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    flips: bool = True,
    turns: bool = True,
    brightness: float = 0.5,
    contrast: float = 0.5,
    saturation: float = 0.5,
    hue: float = 0.2,
    image_size: int = 224,
    resize_mode: Literal["shortest", "squash"] = "shortest",
    mean: Triple = IMAGENET[0],
    std: Triple = IMAGENET[1],
    epsilon: float | None = None,
    alpha: float | None = None,
    omega: float | None = None,
    phi: float | None = None,
    device: str | None = None,
    precision: str = "auto",
    workers: int | None = None,
    memory: float = 16.0,
    checkpoint_seconds: float = 30.0,
    progress: bool = True,
    command: Sequence[str] = (),
) -> Finetuned:
    """Train a residual network end to end for every label kind and seed, and predict the test cases.

    Killed at any moment and started again with the same arguments, it goes on from the last
    checkpoint and ends with the same predictions, to the last bit, as a run that was never stopped
    on the same kind of machine. Label kinds and seeds may be added to a finished folder; any other
    change is refused.

    The set-up of Wei et al. (2022) is not published in full. Network, random initial weights, Adam
    with an L2 penalty and exponential decay, batch size, flips, quarter turns and colour jitter are
    those of their group's public training code (DeepSlide, whose defaults are 10 epochs and a decay
    of 0.95). 100 epochs and 0.91 are what is reported of the MHIST baseline (Wei et al., 2021); we
    have not seen them confirmed. Which epoch was reported is not known either: here it is the one
    with the lowest validation loss.

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
        See `Augmentation`.
    image_size, resize_mode, mean, std
        Edge of the square the network sees, how an image is made to fit, and its normalisation;
        see `scalecal.encoders.record.Preprocessing`.
    epsilon, alpha, omega, phi : float, optional
        Strength of vanilla, linear, piecewise and nonlinear smoothing; by default those of
        `scalecal.smoothing`.
    device, precision : str
        As in `scalecal.features.extract`.
    workers : int, optional
        Threads that decode images. Does not change the result.
    memory : float
        Hold the decoded images if they take at most this many GiB, else decode them every epoch.
        Does not change the result.
    checkpoint_seconds : float
        A checkpoint is written after an epoch if the last one is at least this old.
    progress : bool
        Show progress on standard error.
    command : sequence of str
        The command line, for ``run.json``.

    Returns
    -------
    Finetuned

    References
    ----------
    J. Wei et al., "Calibrating Histopathology Image Classifiers using Label Smoothing", AIME 2022.
    J. Wei et al., "A Petri Dish for Histopathology Image Analysis", AIME 2021.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from scalecal.datasets import open_dataset
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, grey in (("benign", 40), ("malignant", 200)):
    ...     (folder / "tiles" / name).mkdir(parents=True)
    ...     for i in range(8):
    ...         Image.new("RGB", (32, 32), (grey + i,) * 3).save(folder / "tiles" / name / f"{i}.png")
    >>> result = finetune(open_dataset(f"folder:{folder / 'tiles'}"), folder / "run", seeds=1,
    ...                   labels=["hard", "vanilla"], epochs=1, image_size=32, batch_size=4,
    ...                   device="cpu", progress=False)
    >>> result.cell.methods
    ['resnet-hard', 'resnet-vanilla-ls']
    """
    for name in labels:
        lookup(name, LABEL_KINDS, "label kind")
    check_choice(keep, ("best", "last"), "keep")
    check_choice(precision, PRECISIONS, "precision")
    check_positive_int(epochs, "epochs")
    check_positive_int(batch_size, "batch_size", least=2)
    if patience is not None:
        check_positive_int(patience, "patience")
        if keep == "last":
            raise InputError("patience stops by the validation loss: it needs keep='best'")
    _check_rates(learning_rate, decay, weight_decay)
    strengths = smoothing_strengths(
        {"epsilon": epsilon, "alpha": alpha, "omega": omega, "phi": phi}
    )
    augmentation = Augmentation(flips, turns, brightness, contrast, saturation, hue)
    preprocess = Preprocessing(
        resize=image_size,
        crop=image_size,
        interpolation="bilinear",
        mean=mean,
        std=std,
        resize_mode=resize_mode,
    )
    where = pick_device(device)
    recipe = Recipe(
        network=network,
        start=starting_weights(network, None if weights is None else os.fspath(weights)),
        n_classes=len(images.classes),
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        decay=decay,
        weight_decay=weight_decay,
        keep=keep,
        patience=patience,
        augmentation=augmentation,
        mean=preprocess.mean,
        std=preprocess.std,
        device=where,
        precision=pick_precision(precision, where),
    )
    options = {
        "network": network,
        "weights": recipe.start.source,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "decay": decay,
        "weight_decay": weight_decay,
        "keep": keep,
        "patience": patience,
        "validation": validation,
        "test": test,
        "flips": flips,
        "turns": turns,
        "brightness": brightness,
        "contrast": contrast,
        "saturation": saturation,
        "hue": hue,
        "image_size": image_size,
        "resize_mode": resize_mode,
        "mean": preprocess.mean,
        "std": preprocess.std,
        **strengths,
        "device": where.partition(":")[0],
        "precision": recipe.precision,
    }
    chosen = seed_list(seeds)
    cases = read_cases(images)
    divided = {seed: parts_of(cases, seed, validation=validation, test=test) for seed in chosen}
    for name in labels:
        # Before the first epoch, not after hours: whether each kind has the votes it needs.
        rows = divided[chosen[0]].train
        training_targets(name, cases.y[rows], at(cases.counts, rows), recipe.n_classes, strengths)
    folder = Path(out)
    settings = plain(
        {
            "options": options,
            "weights_sha256": recipe.start.sha256,
            "dataset": {"name": images.name, "sha256": images.fingerprint()},
        }
    )
    begin(folder, settings)
    left = [
        (name, seed)
        for seed in chosen
        for name in labels
        if not result_file(folder, name, seed).exists()
    ]
    if left:
        pixels = Pixels(
            images, cases.rows, preprocess, device=where, memory=memory, workers=workers
        )
        keys = case_keys(cases.ids.tolist())
        total = sum(len(divided[seed].train) * epochs for _, seed in left)
        with Progress(total, show=progress) as bar:
            for name, seed in left:
                targets = _targets(name, cases, divided[seed], recipe.n_classes, strengths)
                training = Training(pixels, divided[seed], targets, cases.y, keys, seed, recipe)
                checkpoint = checkpoint_file(folder, name, seed)
                done = train(
                    training,
                    checkpoint,
                    checkpoint_seconds=checkpoint_seconds,
                    on_images=bar.advance,
                )
                finish(folder, name, seed, cases, divided[seed], done)
                checkpoint.unlink(missing_ok=True)
    return collect(folder, images, cases, settings, list(command))


def _check_rates(learning_rate: float, decay: float, weight_decay: float) -> None:
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise InputError(f"learning_rate must be a number above 0, got {learning_rate!r}")
    if not 0 < decay <= 1:
        raise InputError(f"decay must be above 0 and at most 1, got {decay!r}")
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        raise InputError(f"weight_decay must be a number >= 0, got {weight_decay!r}")


def _targets(
    name: str, cases: Cases, parts: Parts, n_classes: int, strengths: Mapping[str, float]
) -> Float:
    """Return targets by position; cases outside the training part have none (NaN)."""
    found = np.full((len(cases), n_classes), np.nan)
    rows = parts.train
    found[rows] = training_targets(
        name, cases.y[rows], at(cases.counts, rows), n_classes, strengths
    )
    return found
