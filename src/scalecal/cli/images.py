"""Commands from images to embeddings: `check`, `extract`, `import`; `list datasets` and `list encoders`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalecal.cases import leakage_note
from scalecal.checks import check_choice
from scalecal.cli.app import (
    Address,
    AllowLeakage,
    Engine,
    GroupRegex,
    NumGpus,
    OutFolder,
    Votes,
    Work,
    command,
    complain,
    given,
    is_quiet,
    lists,
    say,
    split_list,
    tell,
)
from scalecal.datasets import DATASETS, open_dataset
from scalecal.encoders import ENCODERS, get_encoder, paper_preprocessing, weights_here
from scalecal.io.text import number

if TYPE_CHECKING:
    from scalecal.datasets.image_sets import ImageSet


IMAGES_WORK = (
    Work("scalecal.datasets.catalogue:open_breakhis"),
    Work("scalecal.datasets.catalogue:open_table"),
)
"""The work behind the options of `open_images` that have a default."""


DatasetSpec = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help="A data set as `list datasets` writes it: mhist, table:FILE.csv, folder:DIR.",
    ),
]
Data = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Folder of the data set.")]
Partial = Annotated[
    bool | None, typer.Option("--partial", help="Accept an incomplete copy of the data set.")
]
Magnification = Annotated[
    str | None, typer.Option(help="BreakHis: all, {scalecal.datasets.catalogue:MAGNIFICATIONS}.")
]
Classes = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="Class names in the order of their labels.")
]
TableTies = Annotated[
    str | None, typer.Option(help="table: label of a tied vote: {scalecal.votes:TIES}.")
]


def open_images(
    dataset: str, data: Path | None, *, classes: str | None = None, **options: Any
) -> ImageSet:
    """Open a data set with the options the user gave; warnings go to standard error."""
    chosen = given(classes=split_list(classes, "--classes"), **options)
    images = open_dataset(dataset, data, **chosen)
    for warning in images.warnings:
        tell(f"warning: {warning}")
    return images


@command("list datasets", group=lists, quiet=False)
def datasets() -> None:
    """List the data sets: how they are written, their terms, where to get them."""
    for record in DATASETS.values():
        title = f"{record.form}: {record.title}"
        if record.n is not None:
            title += f" ({record.n:,} images)"
        say(title)
        for name in ("licence", "terms", "page", "credit"):
            if text := getattr(record, name):
                say(f"    {name}: {text}")


def _facts(facts: Mapping[str, Any], indent: str = "") -> None:
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            say(f"{indent}{name}:")
            _facts(value, indent + "    ")
        elif isinstance(value, list) and value:
            say(f"{indent}{name}: {', '.join(map(str, value))}")
        elif value not in (None, "", [], {}):
            say(f"{indent}{name}: {number(value)}")


@command("check mhist --data mhist", *IMAGES_WORK)
def check(
    dataset: DatasetSpec,
    data: Data = None,
    partial: Partial = None,
    magnification: Magnification = None,
    classes: Classes = None,
    ties: TableTies = None,
    group_regex: GroupRegex = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not read the images.")] = False,
    allow_leakage: AllowLeakage = False,
) -> None:
    """Verify a data set without extracting: counts, columns, every image."""
    images = open_images(
        dataset,
        data,
        partial=partial,
        magnification=magnification,
        classes=classes,
        ties=ties,
        group_regex=group_regex,
    )
    if not allow_leakage and (leakage := leakage_note(images.cases)):
        tell(f"warning: {leakage}")
    _facts({k: v for k, v in images.describe().items() if k != "warnings"})
    n, published = len(images), images.about.n
    done = "no problem found"
    if published and n < published:
        done += f" in these {n:,} of {published:,} images"
    if quick:
        say(f"{done} (images not read)")
        return
    problems = images.verify()
    for problem in problems:
        complain(f"problem: {problem}")
    if problems:
        raise typer.Exit(1)
    say(done)


@command("list encoders --verbose", group=lists, quiet=False)
def encoders(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show pages and notes.")] = False,
) -> None:
    """List the encoders: width, input, licence, and whether the weights are on this machine."""
    widest = max(map(len, ENCODERS))
    say(f"{'encoder':{widest}}  {'dim':>5}  {'input':>5}  {'paper':5}  {'weights':11}  licence")
    for name, record in ENCODERS.items():
        if weights_here(record):
            weights = "here"
        elif record.source == "file":
            weights = "--weights"
        elif record.gated:
            weights = "gated"
        else:
            weights = "to download"
        paper = ""
        if record.paper:
            paper = "yes"
        say(
            f"{name:{widest}}  {record.dim:5}  {record.preprocess.crop:5}  {paper:5}  {weights:11}  "
            f"{record.licence}"
        )
        if verbose:
            for text in filter(None, (record.page, record.notes)):
                say(f"    {text}")
    say("\nAlso: timm:NAME, hf:ORG/NAME, open_clip:NAME[:TAG].")


@command(
    "extract mhist uni --data mhist --out features/mhist-uni",
    *IMAGES_WORK,
    Work("scalecal.features:extract"),
    resumes=True,
)
def extract(
    dataset: DatasetSpec,
    encoder: Annotated[
        str, typer.Argument(metavar="ENCODER", help="Name or spec; see `list encoders`.")
    ],
    out: OutFolder,
    data: Data = None,
    partial: Partial = None,
    magnification: Magnification = None,
    classes: Classes = None,
    ties: TableTies = None,
    group_regex: GroupRegex = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Weight file on this machine; random for a trial without weights."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cuda:1, mps or cpu.")] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="{scalecal.features.extraction:PRECISIONS}. On a CPU auto is fp32; bf16 may be twice "
            "as fast, but is less precise."
        ),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per pass.")] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Decoding processes per GPU; without a GPU, embedding processes."
        ),
    ] = None,
    compile: Annotated[
        str | None,
        typer.Option(
            help="torch.compile: {scalecal.features.extraction:COMPILE}; auto if it saves time."
        ),
    ] = None,
    strict: Annotated[
        bool | None, typer.Option("--strict", help="Stop at the first image that cannot be read.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="paper: 224 px for CONCH too, BreakHis squashed to a square.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Numbers on disk: {scalecal.io.feature_store:DTYPES}; random weights need float32."
        ),
    ] = None,
    shard_rows: Annotated[int | None, typer.Option(help="Images per shard.")] = None,
    offline: Annotated[bool | None, typer.Option("--offline", help="Use the local cache.")] = None,
    allow_remote_code: Annotated[
        bool | None, typer.Option("--allow-remote-code", help="Run Python code from the Hub.")
    ] = None,
    engine: Engine = None,
    num_gpus: NumGpus = None,
    address: Address = None,
) -> None:
    """Turn images into embeddings; killed and started again, it continues where it stopped."""
    from scalecal.features import extract as run_extract

    images = open_images(
        dataset,
        data,
        partial=partial,
        magnification=magnification,
        classes=classes,
        ties=ties,
        group_regex=group_regex,
    )
    record = get_encoder(encoder, **given(offline=offline))
    if preset is not None:
        check_choice(preset, ("paper",), "preset")
        record = paper_preprocessing(record, images.name)
    result = run_extract(
        images,
        record,
        out,
        **given(
            weights=weights,
            device=device,
            precision=precision,
            batch_size=batch_size,
            workers=workers,
            compile=compile,
            strict=strict,
            dtype=dtype,
            shard_rows=shard_rows,
            offline=offline,
            allow_remote_code=allow_remote_code,
            engine=engine,
            num_gpus=num_gpus,
            address=address,
        ),
        progress=not is_quiet(),
    )
    say(f"{result.n:,} embeddings of {record.dim} numbers in {out}")
    if result.n_skipped:
        complain(
            f"{result.n_skipped:,} images could not be read and were left out: see {out / 'skipped.csv'}"
        )
        raise typer.Exit(1)


@command(
    "import embeddings.npz --labels labels.csv --out features/mine",
    Work("scalecal.features:import_features"),
    name="import",
)
def import_(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="Embeddings that other programs wrote, in one of the formats."
        ),
    ],
    out: OutFolder,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Table of id, label, group, split, ...")
    ] = None,
    votes: Votes = None,
    format: Annotated[
        str | None,
        typer.Option(help="{scalecal.features.importing:FORMATS}; detected if not given."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Name of the encoder that made them, or the one to read from a store of several."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Name of the data set (mhist, ...), the same for all its encoders."),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            help="What the ids of labels and votes name: {scalecal.features.importing:MATCHES}."
        ),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Numbers on disk: {scalecal.io.feature_store:DTYPES}.")
    ] = None,
) -> None:
    """Bring embeddings made elsewhere into a feature folder, matched to labels and votes by id."""
    options = given(**locals())
    from scalecal.features import import_features

    features = import_features(**options)
    say(f"{features.X.shape[0]:,} embeddings of {features.X.shape[1]} numbers in {out}")
