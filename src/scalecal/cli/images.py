"""Commands from images to embeddings: `datasets`, `check`, `encoders`, `extract`, `import`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalecal.cli.app import (
    Address,
    AllowLeakage,
    Engine,
    GroupRegex,
    NumGpus,
    OutFolder,
    Votes,
    command,
    complain,
    given,
    is_quiet,
    say,
    split_list,
    tell,
)
from scalecal.cli.help import Work

if TYPE_CHECKING:
    from scalecal.datasets.image_sets import ImageSet


IMAGES_WORK = (
    Work("scalecal.datasets.breakhis:open_breakhis"),
    Work("scalecal.datasets.image_table:open_table"),
)
"""The work behind the options of `open_images` that have a default."""


def open_images(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET",
            help="mhist, atnorm-md, ami-br, pcam, breakhis, table:FILE.csv or folder:DIR; see `datasets`.",
        ),
    ],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Folder of the data set.")
    ] = None,
    partial: Annotated[
        bool | None, typer.Option("--partial", help="This is a part of the data set on purpose.")
    ] = None,
    magnification: Annotated[
        str | None, typer.Option(help="BreakHis: all, 40, 100, 200 or 400.")
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Class names in the order of their labels."),
    ] = None,
    ties: Annotated[
        str | None,
        typer.Option(help="table: label of a tied vote: error, first, last, random or drop."),
    ] = None,
    group_regex: GroupRegex = None,
) -> ImageSet:
    """Open a data set with the options the user gave; warnings go to standard error."""
    from scalecal.datasets import open_dataset

    images = open_dataset(
        dataset,
        data,
        **given(
            partial=partial or None,
            magnification=magnification,
            classes=split_list(classes, "--classes"),
            ties=ties,
            group_regex=group_regex,
        ),
    )
    for warning in images.warnings:
        tell(f"warning: {warning}")
    return images


def with_images(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument and the options of `open_images`; it is called with the set.

    The command takes the opened image set as `images`, its first parameter.
    """
    opening = signature(open_images, eval_str=True, locals={"ImageSet": Any}).parameters
    own = list(signature(command, eval_str=True).parameters.values())[1:]

    @wraps(command)
    def run(**options: Any) -> None:
        images = open_images(**{name: options.pop(name) for name in opening})
        command(images, **options)

    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (*opening.values(), *own)]
    vars(run)["__signature__"] = Signature(parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


@command("datasets", quiet=False)
def datasets() -> None:
    """List the data sets: how they are written, their terms, where to get them."""
    from scalecal.datasets import DATASETS

    for record in DATASETS.values():
        size = "" if record.n is None else f" ({record.n:,} images)"
        say(f"{record.form}: {record.title}{size}")
        for name in ("licence", "terms", "page", "credit"):
            if text := getattr(record, name):
                say(f"    {name}: {text}")


def _facts(facts: Mapping[str, Any], indent: str = "") -> None:
    for name, value in facts.items():
        if value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping):
            say(f"{indent}{name}:")
            _facts(value, indent + "    ")
        elif isinstance(value, list):
            say(f"{indent}{name}: {', '.join(map(str, value))}")
        else:
            say(f"{indent}{name}: {format(value, ',' if isinstance(value, int) else '')}")


@command("check mhist --data mhist", *IMAGES_WORK)
@with_images
def check(
    images: Any,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read the images or compare checksums.")
    ] = False,
    allow_leakage: AllowLeakage = False,
) -> None:
    """Verify a data set without extracting: counts, columns, checksums, every image."""
    from scalecal.cases import leakage_note

    if not allow_leakage and (leakage := leakage_note(images.cases)):
        tell(f"warning: {leakage}")
    _facts({k: v for k, v in images.describe().items() if k != "warnings"})
    problems = () if quick else images.verify()
    for problem in problems:
        complain(f"problem: {problem}")
    if problems:
        raise typer.Exit(1)
    n, published = len(images), images.about.n
    part = f" in these {n:,} of {published:,} images" if published and n < published else ""
    say(f"no problem found{part}" + (" (images not read)" if quick else ""))


@command("encoders --verbose", quiet=False)
def encoders(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show pages and notes.")] = False,
) -> None:
    """List the encoders: width, input, licence, and whether the weights are on this machine."""
    from scalecal.encoders import ENCODERS, weights_here

    widest = max(map(len, ENCODERS))
    say(f"{'encoder':{widest}}  {'dim':>5}  {'input':>5}  {'paper':5}  {'weights':11}  licence")
    for name, record in ENCODERS.items():
        here = "here" if weights_here(record) else "gated" if record.gated else "to download"
        if record.source == "file" and here != "here":
            here = "--weights"
        say(
            f"{name:{widest}}  {record.dim:5}  {record.preprocess.crop:5}  "
            f"{'yes' if record.paper else '':5}  {here:11}  {record.licence}"
        )
        if verbose:
            for text in (record.page, record.notes):
                if text:
                    say(f"    {text}")
    say("\nAlso: timm:NAME, hf:ORG/NAME, open_clip:NAME[:TAG].")


@command(
    "extract mhist uni --data mhist --out features/mhist-uni",
    *IMAGES_WORK,
    Work("scalecal.features:extract"),
    resumes=True,
)
@with_images
def extract(
    images: Any,
    encoder: Annotated[
        str, typer.Argument(metavar="ENCODER", help="Name or spec; see `encoders`.")
    ],
    out: OutFolder,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Weight file on this machine; random for a try without weights."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cuda:1, mps or cpu.")] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="auto, fp32, bf16 or fp16. On a CPU auto is fp32; bf16 may be twice as fast, and is "
            "coarser."
        ),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per pass.")] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes that decode for each GPU; without, that embed."),
    ] = None,
    compile: Annotated[
        str | None,
        typer.Option(
            help="torch.compile: auto (on a card, where it pays for its start), on or off."
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
        typer.Option(help="Numbers on disk: float16, or float32, which random weights need."),
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
    options = given(**locals())
    from scalecal.encoders import get_encoder, paper_preprocessing
    from scalecal.features import extract as run_extract

    record = get_encoder(encoder, **given(offline=offline))
    if options.pop("preset", None) is not None:
        from scalecal.checks import check_choice

        check_choice(preset, ("paper",), "preset")
        record = paper_preprocessing(record, images.name)
    result = run_extract(**{**options, "encoder": record}, progress=not is_quiet())
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
            metavar="PATH",
            help="npz, CSV, Parquet, TRIDENT's HDF5, eva's folder, Zarr, AnnData or SpatialData.",
        ),
    ],
    out: OutFolder,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Table of id, label, group, split, ...")
    ] = None,
    votes: Votes = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="npz, table, trident, eva, zarr, anndata, spatialdata or spatialdata-slides."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Name of the encoder that made them; of several in a store, the one wanted."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Name of the data set (mhist, ...), the same for all its encoders."),
    ] = None,
    match: Annotated[
        str | None, typer.Option(help="What the ids of labels and votes name: id or group.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Numbers on disk: float16 or float32.")] = None,
) -> None:
    """Bring embeddings made elsewhere into a feature folder, matched to labels and votes by id."""
    options = given(**locals())
    from scalecal.features import import_features

    features = import_features(**options)
    say(f"{features.X.shape[0]:,} embeddings of {features.X.shape[1]} numbers in {out}")
