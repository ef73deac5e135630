"""Commands from embeddings to calibrated predictions: `fit`, `predict`, `compare`, `export`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalecal.cases import Features
from scalecal.checks import InputError, check_choice
from scalecal.cli.app import (
    ENGINE_WORK,
    Address,
    AllowLeakage,
    Columns,
    Engine,
    GroupRegex,
    NRaters,
    NumGpus,
    OutFolder,
    Seed,
    Seeds,
    Ties,
    TrainingDevice,
    Votes,
    Work,
    Workers,
    check_run,
    close_run,
    command,
    given,
    lists,
    open_workers,
    say,
    showing,
    split_list,
    tell,
)
from scalecal.io.features import read_features
from scalecal.io.input_columns import parse_columns
from scalecal.io.store import check_output_file, check_output_folder

if TYPE_CHECKING:
    from scalecal.readers import Readers

FeaturesPath = Annotated[
    Path,
    typer.Argument(
        metavar="FEATURES", help=".npz, a table, or a folder made by `extract` or `import`."
    ),
]
Labels = Annotated[
    Path | None, typer.Option("--labels", metavar="FILE", help="Labels (groups, splits) by id.")
]
Positive = Annotated[
    str | None,
    typer.Option(
        "--positive", metavar="CLASS", help="The positive class, if the two classes are words."
    ),
]


Preset = Annotated[
    str | None,
    typer.Option(
        help="Train all methods with this preset: {scalecal.probes:PRESETS}. If not given, each has its own.",
    ),
]
READ_WORK = Work("scalecal.io.features:read_features")
"""The work behind the options of `read`."""

Kappa = Annotated[
    float | None,
    typer.Option(
        metavar="K",
        help="Fleiss' kappa of the readers, as published. If not given, that of the votes.",
    ),
]
VoteShare = Annotated[
    str | None,
    typer.Option(
        "--vote-share",
        metavar="S",
        help="Share of all votes that are positive, as published (S0,S1,... for more classes).",
    ),
]
PanelSize = Annotated[
    int | None,
    typer.Option(
        "--panel-size",
        metavar="M",
        help="Readers behind each label, if that is not the number of its votes.",
        min=1,
    ),
]


def known_of_readers(
    kappa: float | None, vote_share: str | None, panel_size: int | None
) -> Readers:
    """Gather what the options say of the readers."""
    from scalecal.readers import Readers

    shares = split_list(vote_share, "--vote-share", float, what="numbers")
    if shares is not None and len(shares) == 1:
        return Readers(kappa=kappa, vote_share=shares[0], panel_size=panel_size)
    return Readers(kappa=kappa, vote_share=shares, panel_size=panel_size)


def read(features: Path, options: Mapping[str, Any], **known: Any) -> Features:
    """Read embeddings with those of a command's options that say how, and what else is known."""
    names = ("labels", "votes", "positive", "ties", "n_raters", "group_regex")
    chosen = given(**{name: options.get(name) for name in names})
    named = parse_columns(options.get("columns") or ())
    return read_features(features, columns=named, **chosen, **known)


@command(
    "fit features.npz --method panel-votes --out runs/probe",
    READ_WORK,
    Work("scalecal.runs.fitted:fit_method"),
)
def fit(
    features: FeaturesPath,
    method: Annotated[
        str, typer.Option("--method", metavar="NAME", help="A name of `list methods`.")
    ],
    out: OutFolder,
    labels: Labels = None,
    votes: Votes = None,
    positive: Positive = None,
    ties: Ties = None,
    n_raters: NRaters = None,
    columns: Columns = None,
    group_regex: GroupRegex = None,
    preset: Preset = None,
    kappa: Kappa = None,
    vote_share: VoteShare = None,
    panel_size: PanelSize = None,
    class_weight: Annotated[
        str | None,
        typer.Option(
            "--class-weight",
            metavar="balanced",
            help="Weight all classes equally in training. Without a calibrator, the probabilities then "
            "assume equally common classes.",
        ),
    ] = None,
    seed: Seed = None,
    allow_leakage: AllowLeakage = False,
) -> None:
    """Fit one method and save it: safetensors and JSON, with everything needed to trace it."""
    options = given(**locals())
    from scalecal.probes.estimators import ABOUT, WEIGHTS
    from scalecal.runs.fitted import fit_method

    check_output_folder(out, kind="fit", names=(WEIGHTS, ABOUT), inputs=[features, labels, votes])
    data = read(features, options)
    with showing("training") as advance:
        probe = fit_method(
            data,
            method,
            dataset=data.dataset or features.name,
            readers=known_of_readers(kappa, vote_share, panel_size),
            allow_leakage=allow_leakage,
            advance=advance,
            **given(seed=seed, preset=preset, class_weight=class_weight),
        )
    probe.save(out)
    for note in data.cases.notes:
        tell(f"Note: {note}")
    counts = probe.about_["counts"]
    made = ""
    if counts["synthetic"]:
        made = f", {counts['synthetic']:,} synthetic"
    say(
        f"Fitted {method} to {counts['train']:,} cases{made} ({counts['validation']:,} for validation), "
        f"{probe.n_iter_} epochs; saved to {out}"
    )
    if probe.panel_ is not None:
        say(probe.panel_.sentence())
    if probe.capped_:
        warning = "warning: training stopped at the limit of epochs, not by early stopping"
        if preset != "default":
            warning += "; --preset default trains small data for longer"
        tell(warning)


@command("predict runs/probe new.npz --out predictions.csv", READ_WORK)
def predict(
    probe: Annotated[Path, typer.Argument(metavar="DIR", help="A folder made by `fit`.")],
    features: FeaturesPath,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV or Parquet to write.")],
    labels: Labels = None,
    votes: Votes = None,
    ties: Ties = "drop",
    n_raters: NRaters = None,
    columns: Columns = None,
    group_regex: GroupRegex = None,
    votes_law: Annotated[
        bool,
        typer.Option(
            "--votes-law",
            help="Add the probabilities of k of m positive votes; m is --n-raters, or the "
            "number of readers if all cases have the same, or that of the probe's panel.",
        ),
    ] = False,
) -> None:
    """Predict with a saved probe; the file written can be given to `audit`.

    Writes p, the label's probability; and where the probe knows the readers p_reader, the probability
    of one reader's vote, and p_split, the probability that the panel splits.
    """
    options = given(**locals())
    import numpy as np

    from scalecal.evaluation.cells import predictions_table, write_table
    from scalecal.probes import load_probe
    from scalecal.runs.fitted import predict_features, readers_behind

    inputs = [features, labels, votes, probe]
    check_output_file(out, kind="predict", inputs=inputs)
    fitted = load_probe(probe)
    data = read(features, options, classes=tuple(fitted.classes_.tolist()))
    if n_raters is not None and data.n_raters is None:  # also of cases that have no label yet
        data = data.with_cases(n_raters=np.full(len(data), n_raters))
    behind, law = readers_behind(data.cases, fitted), None
    if votes_law:
        if fitted.panel_ is None or not fitted.panel_.knows_readers:
            raise InputError(
                f"{probe} has no reader probability, so --votes-law has nothing to add: fit it with --method "
                "panel-votes, or panel-published and --kappa"
            )
        assert behind is not None
        law, sizes = fitted.panel_.panel_size, np.unique(behind)
        if n_raters is not None:
            law = n_raters
        elif len(sizes) == 1:
            law = int(sizes[0])
    table = predictions_table(predict_features(fitted, data), n_raters=behind, votes_law=law)
    write_table(table, out, inputs=inputs)
    for note in data.cases.notes:
        tell(f"Note: {note}")
    say(f"{len(table):,} predictions written to {out}")


@command("list methods", group=lists, quiet=False)
def methods() -> None:
    """List the methods that `fit`, `compare` and `reproduce` know."""
    from scalecal.probes.methods import METHODS

    widest = max(map(len, METHODS))
    for name, method in METHODS.items():
        about = method.about
        if method.needs_votes:
            about += " (needs votes)"
        if method.paper:
            about += " [paper]"
        say(f"{name:{widest}}  {about}")


@command(
    "compare features.npz --votes votes.csv --seeds 5 --out runs/compare",
    READ_WORK,
    Work("scalecal.runs.grid:run_grid"),
    ENGINE_WORK,
)
def compare(
    features: FeaturesPath,
    out: OutFolder,
    votes: Votes = None,
    labels: Labels = None,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", metavar="A,B,...", help="Names of methods, all that apply if not given."
        ),
    ] = None,
    seeds: Seeds = None,
    positive: Positive = None,
    ties: Ties = None,
    n_raters: NRaters = None,
    columns: Columns = None,
    group_regex: GroupRegex = None,
    preset: Preset = None,
    kappa: Kappa = None,
    vote_share: VoteShare = None,
    panel_size: PanelSize = None,
    voted: Annotated[
        str | None,
        typer.Option(
            metavar="0,25,...",
            help="How many votes would I need? Numbers of training cases whose votes are used.",
        ),
    ] = None,
    device: TrainingDevice = None,
    engine: Engine = None,
    workers: Workers = None,
    num_gpus: NumGpus = None,
    address: Address = None,
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the images, for thumbnails and links in the report."
        ),
    ] = None,
    allow_leakage: AllowLeakage = False,
) -> None:
    """Compare every method on your embeddings, paired over seeds and cases.

    Without a split, a grouped and stratified 70 / 10 / 20 split is drawn per seed. Writes
    predictions.parquet, results.csv, comparison.csv and the report.
    """
    open_features = partial(read, features, given(**locals()))
    from scalecal.evaluation.evaluations import evaluate
    from scalecal.evaluation.folder import RUN_FILES, write_run
    from scalecal.report import check_images
    from scalecal.runs.grid import run_grid, run_grid_on

    inputs = [features, labels, votes, images]
    check_run(out, "compare", RUN_FILES, inputs)
    data = open_features()
    if images is not None:
        paths = data.cases.paths
        check_images(images, [] if paths is None else paths.tolist())
    if num_gpus and device is None:
        device = "cuda"
    options = given(
        dataset=data.dataset or features.stem,
        progress=tell,
        methods=split_list(methods, "--methods"),
        seeds=seeds,
        device=device,
        allow_leakage=allow_leakage,
        preset=preset,
        readers=known_of_readers(kappa, vote_share, panel_size),
        voted=split_list(voted, "--voted", int, what="whole numbers"),
    )
    with showing("training") as advance:
        if engine is None and workers is None and num_gpus is None:
            grid = run_grid(data, advance=advance, **options)
        else:
            with open_workers(engine, workers, num_gpus, address, device) as pool:
                grid = run_grid_on(pool, open_features, advance=advance, **options)
    cell = grid.cell
    if images is not None:
        cell = replace(cell, meta={**cell.meta, "dataset": {"data": str(images.resolve())}})
    with showing("comparing") as advance:
        evaluation = evaluate(cell, voted=grid.voted, advance=advance)
    notes = [*data.cases.notes, *grid.notes]
    say(evaluation.text(notes))
    names = write_run(
        out,
        evaluation,
        kind="compare",
        command=sys.argv,
        options={
            "features": features.name,
            "group_regex": group_regex,
            "seeds": seeds,
            "methods": methods,
            "preset": preset,
            "kappa": kappa,
            "vote_share": vote_share,
            "panel_size": panel_size,
            "voted": voted,
        },
        notes=notes,
        fingerprint=data.fingerprint,
        inputs=inputs,
    )
    close_run(out, names, evaluation.facts)


@command(
    "export runs/probe --to onnx --out runs/model --audit runs/audit",
    Work("scalecal.export:export_probe"),
)
def export(
    probe: Annotated[Path, typer.Argument(metavar="DIR", help="A folder made by `fit`.")],
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="Format: {scalecal.export:FORMATS}.")
    ] = "onnx",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder to write to, if not DIR.")
    ] = None,
    panel_size: Annotated[
        int | None,
        typer.Option(
            "--panel-size",
            metavar="M",
            help="Readers of the panel whose label and split are predicted, if not that of the fit.",
            min=1,
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Run of `audit` on predictions of this probe, or of `compare` with its method: its "
            "numbers go into the card.",
        ),
    ] = None,
    license: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Licence of the model, as the Hugging Face Hub names it: apache-2.0."
        ),
    ] = None,
) -> None:
    """Write a fitted probe as model.onnx, with a model card (README.md) beside it.

    One graph from embeddings (float32) to p, the probability of the panel's label, and, of two classes
    where the probe knows the readers, p_reader and p_split: scaling, probe, calibrator and panel. It is run
    in onnxruntime before it is written, and refused where a probability differs from the probe's by more
    than 1e-6.
    """
    from scalecal.export import FORMATS, export_probe

    check_choice(to, FORMATS, "--to")
    model, card = export_probe(
        probe, out, **given(panel_size=panel_size, audit=audit, license=license)
    )
    say(f"Wrote {model.name} ({model.stat().st_size:,} bytes) and {card.name} to {model.parent}")
