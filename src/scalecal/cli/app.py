"""The application: one place for errors, warnings and exit codes.

Exit codes: 0 done; 1 done, but some cases were left out; 2 the input or an option cannot be used;
130 interrupted.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalecal import __version__

if TYPE_CHECKING:
    from scalecal.engines import Engine as WorkerPool

app = typer.Typer(
    name="scalecal",
    help="Audit and mend the calibration of classifiers on frozen embeddings, by case difficulty.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the results.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for the results.")]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]
Votes = Annotated[
    Path | None,
    typer.Option("--votes", metavar="FILE", help="Votes by id: rows id, rater, label, or counts."),
]
Ties = Annotated[
    str | None, typer.Option(help="Label of a tied vote: error, first, last, random or drop.")
]
NRaters = Annotated[int | None, typer.Option(help="Readers of every case, where no column has it.")]
Column = Annotated[str | None, typer.Option(metavar="NAME", help="Name of this column or array.")]
GroupRegex = Annotated[
    str | None,
    typer.Option(
        "--group-regex",
        metavar="REGEX",
        help="Take the patient from the id, by the first (...) in it: '^(P[0-9]+)_'.",
    ),
]
TrainingDevice = Annotated[
    str | None, typer.Option(help="Where probes are trained: cpu (default), or cuda through torch.")
]
Engine = Annotated[
    str | None, typer.Option("--engine", help="Where work runs: local (default) or ray.")
]
NumGpus = Annotated[
    int | None, typer.Option("--num-gpus", metavar="N", help="GPUs to use, by one process each.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="Processes to use, without GPUs.")
]
Address = Annotated[
    str | None, typer.Option("--address", help="Ray cluster: auto, or ray://HOST:PORT.")
]


AllowLeakage = Annotated[
    bool,
    typer.Option("--allow-leakage", help="Do not warn of groups that are both in train and test."),
]


def given(**options: Any) -> dict[str, Any]:
    """Return the options the user gave: defaults live in the functions that do the work.

    Examples
    --------
    >>> given(seed=3, n_bins=None)
    {'seed': 3}
    """
    return {name: value for name, value in options.items() if value is not None}


def open_workers(
    engine: str | None,
    workers: int | None,
    num_gpus: int | None,
    address: str | None,
    device: str | None,
) -> WorkerPool:
    """Open the engine that --engine, --workers, --num-gpus and --address ask for."""
    from scalecal.checks import InputError
    from scalecal.engines import open_engine

    on_gpu = device is not None and device != "cpu"
    if num_gpus and device is not None and not on_gpu:
        raise InputError("--num-gpus counts GPUs, but --device is cpu: use --workers N")
    if num_gpus and workers is not None:
        raise InputError("--num-gpus gives every GPU one process: leave --workers out")
    if num_gpus is None and (workers is not None or not on_gpu):
        num_gpus = 0
    return open_engine(engine or "local", workers=workers, num_gpus=num_gpus, address=address)


def say(text: str = "") -> None:
    """Print a line of results."""
    typer.echo(text)


def tell(text: str) -> None:
    """Print a line on standard error: progress, warnings, notes."""
    typer.echo(text, err=True)


def columns(options: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the columns that --label-column and its like name, by role; None without any.

    Examples
    --------
    >>> columns({"label_column": "diagnosis", "group_column": None, "seed": 3})
    {'label': 'diagnosis'}
    """
    named = given(**{k: v for k, v in options.items() if k.endswith("_column")})
    return {option.removesuffix("_column"): name for option, name in named.items()} or None


def split_list(
    text: str | None, option: str, kind: Callable[[str], Any] = str, *, what: str = "names"
) -> list[Any] | None:
    """Return the values of an option that takes several, with commas between; None without it."""
    from scalecal.checks import InputError

    if text is None:
        return None
    try:
        values = [kind(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError:
        values = []
    if not values:
        raise InputError(f"{option} must be {what} with commas between, got {text!r}")
    return values


def _version(wanted: bool) -> None:
    if wanted:
        say(f"scalecal {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Audit and mend the calibration of classifiers on frozen embeddings, by case difficulty."""


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    from scalecal.checks import ScalecalWarning

    if issubclass(category, ScalecalWarning):
        tell(f"warning: {message}")


def main() -> None:
    """Run the command line; errors are one line on standard error, never a traceback."""
    from scalecal.checks import InputError, MissingPackageError

    warnings.showwarning = _show_warning
    try:
        app()
    except (InputError, MissingPackageError) as error:
        tell(f"error: {error}")
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has closed it
        sys.exit(1)
    except KeyboardInterrupt:
        tell("interrupted")
        sys.exit(130)
