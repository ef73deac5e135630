"""The command `finetune`: networks trained end to end on images."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalecal.cli.app import OutFolder, Seeds, command, given, is_quiet, say, split_list
from scalecal.cli.help import Work
from scalecal.cli.images import IMAGES_WORK, with_images

if TYPE_CHECKING:
    from scalecal.cases import Predictions

_Strength = Annotated[
    float | None, typer.Option(help="Strength of this part of the colour jitter.")
]
_Triple = Annotated[str | None, typer.Option(metavar="R,G,B", help="Normalisation of the pixels.")]


@command(
    "finetune mhist --data mhist --labels hard,nonlinear --seeds 3 --out runs/finetune",
    *IMAGES_WORK,
    Work("scalecal.paper.finetuning:finetune"),
    Work("scalecal.paper.finetuning.training:FinetuneOptions"),
    *(
        Work(f"scalecal.smoothing:{name}")
        for name in ("vanilla", "linear", "piecewise", "nonlinear")
    ),
    resumes=True,
)
@with_images
def finetune(
    images: Any,
    out: OutFolder,
    labels: Annotated[
        str | None,
        typer.Option(metavar="KIND,...", help="Label kinds to train with."),
    ] = None,
    seeds: Seeds = None,
    network: Annotated[str | None, typer.Option(help="resnet18, resnet34 or resnet50.")] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Weights to start from, or imagenet; else random ones."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training part.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's rate at first.")] = None,
    decay: Annotated[float | None, typer.Option(help="Factor of the rate per epoch.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="L2 penalty.")] = None,
    keep: Annotated[
        str | None, typer.Option(help="Epoch that predicts: best (on validation) or last.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many epochs without a better one.")
    ] = None,
    validation: Annotated[
        float | None, typer.Option(help="Share of the training cases held out.")
    ] = None,
    test: Annotated[
        float | None, typer.Option(help="Share tested where the data set has no test part.")
    ] = None,
    flips: Annotated[bool | None, typer.Option(help="Mirror images at random.")] = None,
    turns: Annotated[bool | None, typer.Option(help="Turn images by quarters at random.")] = None,
    brightness: _Strength = None,
    contrast: _Strength = None,
    saturation: _Strength = None,
    hue: _Strength = None,
    image_size: Annotated[int | None, typer.Option(help="Edge of the input in pixels.")] = None,
    resize_mode: Annotated[
        str | None, typer.Option(help="shortest (then crop) or squash to a square.")
    ] = None,
    mean: _Triple = None,
    std: _Triple = None,
    epsilon: Annotated[float | None, typer.Option(help="Strength of vanilla smoothing.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Strength of linear smoothing.")] = None,
    omega: Annotated[float | None, typer.Option(help="Strength of piecewise smoothing.")] = None,
    phi: Annotated[float | None, typer.Option(help="Steepness of nonlinear smoothing.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cuda:1, mps or cpu.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32, bf16 or fp16.")] = None,
    workers: Annotated[int | None, typer.Option(help="Threads that decode.")] = None,
    memory: Annotated[
        float | None, typer.Option(help="Hold the images if they take at most so many GiB.")
    ] = None,
) -> None:
    """Train a ResNet end to end with hard and smoothed labels; killed, it goes on where it stopped.

    Writes the predictions of every label kind and seed on the test cases, for `report` and tables.
    """
    options = given(**locals())
    from scalecal.checks import library
    from scalecal.paper.finetuning import finetune as run_finetune

    # Before the folder is begun: a torchvision of another torch is found when it is imported.
    library("torchvision", "fine-tuning")
    options |= given(
        labels=split_list(labels, "--labels"),
        mean=_three(mean, "--mean"),
        std=_three(std, "--std"),
    )
    result = run_finetune(**options, command=["scalecal", *sys.argv[1:]], progress=not is_quiet())
    for line in _table(result.cell):
        say(line)
    say(f"\nWrote run.json, cases.parquet, predictions.parquet and training.csv to {result.path}")


def _three(text: str | None, option: str) -> tuple[float, ...] | None:
    from scalecal.checks import InputError

    values = split_list(text, option, float, what="three numbers")
    if values is not None and len(values) != 3:
        raise InputError(f"{option} must be three numbers with commas between, got {text!r}")
    return None if values is None else tuple(values)


def _table(cell: Predictions) -> list[str]:
    """AUC and ECE of every method, mean and spread over the seeds, with n and the floor."""
    import numpy as np

    from scalecal.metrics import auc, ece, noise_floor

    lines = [f"{'method':20} {'seeds':>5} {'n':>6} {'AUC':>15} {'ECE':>15} {'floor':>6}"]
    for method in cell.methods:
        answers = [cell.answers[method, seed] for seed in cell.seeds(method)]
        values = np.array(
            [
                (auc(cell.y[a.index], a.p), ece(cell.y[a.index], a.p), noise_floor(a.p))
                for a in answers
            ]
        )
        mean = values.mean(axis=0)
        spread = (
            [f" ± {sd:.3f}" for sd in values.std(axis=0, ddof=1)] if len(values) > 1 else [""] * 3
        )
        shown = [f"{mean[k]:.3f}{spread[k]}" for k in (0, 1)]
        lines.append(
            f"{method:20} {len(answers):5} {len(answers[0]):6} {shown[0]:>15} {shown[1]:>15} "
            f"{mean[2]:6.3f}"
        )
    return lines
