"""The application: one place for errors, warnings and exit codes.

Exit codes: 0 done; 1 done, but some cases were left out; 2 the input or an option cannot be used;
130 interrupted.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from scalecal import __version__

__all__ = ["Address", "Engine", "Out", "Seed", "Workers", "app", "given", "main", "say"]

app = typer.Typer(
    name="scalecal",
    help="Audit and mend the calibration of classifiers on frozen embeddings, by case difficulty.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for the results.")]
Engine = Annotated[
    str | None, typer.Option("--engine", help="Where work runs: local (default) or ray.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--num-gpus", metavar="N", help="Workers: cards to use, or processes without cards."
    ),
]
Address = Annotated[
    str | None, typer.Option("--address", help="Ray cluster: auto, or ray://HOST:PORT.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]


def given(**options: Any) -> dict[str, Any]:
    """Return the options the user gave: defaults live in the functions that do the work.

    Examples
    --------
    >>> given(seed=3, n_bins=None)
    {'seed': 3}
    """
    return {name: value for name, value in options.items() if value is not None}


def say(text: str = "") -> None:
    """Print a line of results."""
    typer.echo(text)


def columns(roles: Mapping[str, str | None]) -> dict[str, str] | None:
    """Return the column names the user gave by role, or None."""
    return {role: name for role, name in roles.items() if name is not None} or None


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
        typer.echo(f"warning: {message}", err=True)


def main() -> None:
    """Run the command line; errors are one line on standard error, never a traceback."""
    from scalecal.checks import InputError, MissingPackageError

    warnings.showwarning = _show_warning
    try:
        app()
    except (InputError, MissingPackageError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away; there is nobody to tell
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
