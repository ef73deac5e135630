"""The command `finetune`: networks trained end to end on images."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from scalecal.cli.app import OutFolder, Seeds, command, given, is_quiet, say, showing, split_list
from scalecal.cli.help import Work
from scalecal.cli.images import Data, DatasetSpec, Partial, open_images


@command(
    "finetune mhist --data mhist --labels hard,nonlinear --seeds 3 --out runs/finetune",
    Work("scalecal.paper.finetuning:finetune"),
    Work("scalecal.paper.finetuning:FinetuneOptions"),
    resumes=True,
)
def finetune(
    dataset: DatasetSpec,
    out: OutFolder,
    data: Data = None,
    partial: Partial = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...", help="Label kinds: {scalecal.paper.finetuning:LABEL_KINDS}."
        ),
    ] = None,
    seeds: Seeds = None,
    network: Annotated[
        str | None, typer.Option(help="{scalecal.paper.finetuning:NETWORKS}.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training part.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's rate at first.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Edge of the input in pixels.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cuda:1, mps or cpu.")] = None,
) -> None:
    """Train a ResNet end to end with hard and smoothed labels; killed, it goes on where it stopped.

    The experiment of the paper's first table, after Wei et al. (2022). Writes the predictions of every
    label kind and seed on the test cases, for `report` and `reproduce --finetuned`.
    """
    from scalecal.checks import library
    from scalecal.evaluation.evaluations import evaluate
    from scalecal.paper.finetuning import finetune as run_finetune

    images = open_images(dataset, data, partial=partial)
    # Before the folder is begun: a torchvision of another torch is found when it is imported.
    library("torchvision", "fine-tuning")
    cell = run_finetune(
        images,
        out,
        command=["scalecal", *sys.argv[1:]],
        progress=not is_quiet(),
        **given(
            labels=split_list(labels, "--labels"),
            seeds=seeds,
            network=network,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            image_size=image_size,
            device=device,
        ),
    )
    with showing("comparing") as advance:
        evaluation = evaluate(cell, advance=advance)
    say(evaluation.text(cell.meta["notes"]))
    say(f"\nWrote run.json, cases.parquet, predictions.parquet and training.csv to {out}")
