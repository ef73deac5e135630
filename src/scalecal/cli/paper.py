"""Commands of the paper alone: `reproduce` its tables, figures and claims, and `finetune` its networks."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial as bind
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scalecal.checks import library, lookup
from scalecal.cli.app import (
    ENGINE_WORK,
    Address,
    Engine,
    NumGpus,
    OutFolder,
    Seeds,
    TrainingDevice,
    Work,
    Workers,
    check_run,
    close_run,
    command,
    given,
    is_quiet,
    open_workers,
    say,
    showing,
    split_list,
    tell,
)
from scalecal.cli.images import Data, DatasetSpec, Partial, open_images
from scalecal.cli.probes import Preset
from scalecal.encoders import ENCODERS, get_encoder
from scalecal.engines import Engine as WorkerPool
from scalecal.io import store

if TYPE_CHECKING:
    from scalecal.paper.reproduction import Source

Names = Annotated[str | None, typer.Option(metavar="A,B,...", help="Names, with commas between.")]


def _sources(
    data: Path | None,
    features: Path | None,
    datasets: list[str] | None,
    encoders: list[str] | None,
    out: Path,
    weights: Path | None,
    partial: bool,
) -> tuple[list[Source], dict[str, str]]:
    """Find what there is to reproduce, and why the rest is not; names that are not known are errors."""
    from scalecal.paper.reproduction import (
        PAPER_DATASETS,
        asked_for,
        embedded,
        find_features,
        find_images,
    )

    known: list[Source] = []
    missing: dict[str, str] = {}
    if features is not None:
        known = list(find_features(features))
    elif data is None:
        known = embedded()
    # Folders that nobody asks for may be twice there.
    sources = asked_for(known, datasets, encoders)
    known_datasets = dict.fromkeys(source.dataset for source in known)
    known_encoders = dict.fromkeys(source.encoder for source in known)
    if data is not None:
        known_datasets |= dict.fromkeys(PAPER_DATASETS)
    for name in datasets or ():
        lookup(name, known_datasets, "data set")
    for name in encoders or ():
        if data is None:
            lookup(name, known_encoders, "encoder")
        elif name not in known_encoders:
            get_encoder(name)
    if data is not None:
        wanted = [name for name in PAPER_DATASETS if datasets is None or name in datasets]
        eight = [name for name, record in ENCODERS.items() if record.paper]
        images, missing = find_images(
            data,
            wanted,
            # Encoders that only the features know cannot be run.
            [e for e in encoders or eight if e in ENCODERS or e not in known_encoders],
            out / "features",
            weights=weights,
            partial_data=partial,
            progress=tell,
        )
        there = {(s.dataset, s.encoder) for s in sources}
        sources += [s for s in images if (s.dataset, s.encoder) not in there]
    return sources, missing


@command(
    "reproduce --features features --seeds 3 --out runs/reproduce",
    Work("scalecal.paper.reproduction:Training"),
    ENGINE_WORK,
    resumes=True,
)
def reproduce(
    out: OutFolder,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder with mhist/, pcam/ and breakhis/ (or one of them)."
        ),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of feature folders made by `extract`."),
    ] = None,
    datasets: Names = None,
    encoders: Names = None,
    methods: Names = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 10,
    preset: Preset = None,
    device: TrainingDevice = None,
    engine: Engine = None,
    workers: Workers = None,
    num_gpus: NumGpus = None,
    address: Address = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of weight files named <encoder>.*")
    ] = None,
    finetuned: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder made by `finetune`, for table 1.")
    ] = None,
    sweep: Annotated[
        bool, typer.Option(help="Train SCALE with other numbers of anchors too.")
    ] = True,
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept incomplete copies of the data sets.")
    ] = False,
    tables_only: Annotated[
        bool,
        typer.Option(
            "--tables-only", help="Make tables, figures and claims again, without training."
        ),
    ] = False,
) -> None:
    """Regenerate every table and figure of the paper and judge each of its claims.

    From images (--data), from features (--features), or with neither from the embedded nodules and
    simulated stand-ins. A run that was stopped continues where it was.
    """
    from scalecal.evaluation.folder import store_facts
    from scalecal.paper import reproduction
    from scalecal.paper.claims import claims_table
    from scalecal.probes.methods import find_method
    from scalecal.runs.grid import seed_list

    only_datasets = split_list(datasets, "--datasets")
    only_encoders = split_list(encoders, "--encoders")
    only_methods = split_list(methods, "--methods")
    seed_list(seeds)
    if num_gpus and device is None:
        device = "cuda"
    for name in only_methods or ():
        find_method(name)
    also = []
    if finetuned is not None:
        also.append(finetuned)
    names = ("results.csv", "claims.json", "run.json")
    check_run(out, "reproduce", names, [data, features, weights, finetuned])
    if tables_only:
        with open_workers(engine, workers, None, address, "cpu") as pool:
            outcome = reproduction.judge_run(
                out, also=also, command=sys.argv, engine=pool, progress=tell
            )
    else:
        sources, missing = _sources(
            data, features, only_datasets, only_encoders, out, weights, partial
        )
        chosen = given(preset=preset)
        if data is None and features is None and not chosen:
            tell("embedded data are small: all methods are trained with the default preset")
            chosen = {"preset": "default"}
        if not sources:
            raise reproduction.nothing_found(missing)
        training = reproduction.Training(
            seed_list(seeds),
            methods=only_methods,
            sweep=sweep,
            **given(device=device),
            **chosen,
        )
        begin = bind(reproduction.check_begun, sources, out, training)
        # Without an engine cells are trained one after the other, here.
        asked: WorkerPool | nullcontext[None] = nullcontext()
        with store.hold_folder(out, begin):
            if engine is not None or workers is not None or num_gpus is not None:
                asked = open_workers(engine, workers, num_gpus, address, training.device)
            with asked as opened:
                outcome = reproduction.reproduce(
                    sources,
                    out,
                    training,
                    command=sys.argv,
                    left_out=missing,
                    also=also,
                    engine=opened,
                    progress=tell,
                )
    for name, why in outcome.left_out.items():
        say(f"Left out {name}: {why}")
    say(claims_table(outcome.claims))
    for note in outcome.notes:
        say(f"Note: {note}")
    # Its cells were written one by one, by several processes.
    store_facts(out)
    close_run(out, ["cells", "claims.json", "figures", "results.csv", "run.json", "tables"])


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
