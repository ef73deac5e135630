"""The application: one place for errors, warnings and exit codes.

Exit codes: 0 done; 1 done, but some cases were left out; 2 the input or an option cannot be used;
3 done, but a condition of --fail-if is met; 70 a fault of scalecal's own, told in a log; 130 interrupted.

`say` prints results on standard output, `tell` what goes with them on standard error; --quiet silences
both. `complain` is never silenced.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalecal import __version__
from scalecal.cli.help import COMMANDS, Command, DocumentedCommand, Work

if TYPE_CHECKING:
    from scalecal.engines import Engine as WorkerPool

UNEXPECTED = 70
"""Exit code of a fault of scalecal's own."""

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

app = typer.Typer(
    name="scalecal",
    help="Audit and mend the calibration of classifiers on frozen embeddings, by case difficulty.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
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
Positive = Annotated[
    str | None, typer.Option(metavar="CLASS", help="The class that p is the probability of.")
]
Bins = Annotated[int | None, typer.Option("--bins", help="Bins of equal width for ECE.")]
Resamples = Annotated[
    int | None, typer.Option("--resamples", help="Resamples for floors, nulls and intervals.")
]
TrainingDevice = Annotated[
    str | None, typer.Option(help="Where probes are trained: cpu, or cuda through torch.")
]
Engine = Annotated[str | None, typer.Option("--engine", help="Where work runs: local or ray.")]
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
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as JSON; all else goes to standard error."),
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        help="Allow more than a limit, as its message says: bins=1e6. May be given several times.",
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Print the traceback of a fault of scalecal's own.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

ENGINE_WORK = Work("scalecal.engines:open_engine", engine="name")
"""The work behind --engine, --workers, --num-gpus and --address."""

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
_results_on_stderr: ContextVar[bool] = ContextVar("results_on_stderr", default=False)


def command(
    example: str,
    *works: Work,
    name: str | None = None,
    quiet: bool = True,
    resumes: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to the application as a command.

    Parameters
    ----------
    example
        A line that can be copied, without the program's name; shown in the help.
    works
        The functions that the options are passed to: their defaults are shown in the help.
    name
        The command's name, where it is not the function's.
    quiet
        Whether it has --quiet: not where printing is all it does.
    resumes
        Whether the same command goes on where it was interrupted.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        own = list(signature(function, eval_str=True).parameters.values())
        parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
        outputs = {each.name: each.annotation for each in own if each.name in ("out", "export")}
        everywhere = {"limit": (None, Limit), "debug": (False, Debug)}
        if quiet:
            everywhere["quiet"] = (False, Quiet)
        parameters += [
            Parameter(option, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for option, (default, kind) in everywhere.items()
        ]

        @wraps(function)
        def run(**options: Any) -> None:
            json, limits = options.get("json", False), options.pop("limit")
            del options["debug"]  # `main` looks for it
            with (
                _set(_quiet, options.pop("quiet", False)),
                _set(_results_on_stderr, json),
                _raised_limits(limits or ()),
            ):
                for output, kind in outputs.items():
                    _check_output(options[output], kind)
                try:
                    function(**options)
                except KeyboardInterrupt:
                    complain(_interrupted(options.get("out") if resumes else None))
                    raise typer.Exit(INTERRUPTED) from None

        vars(run)["__signature__"] = Signature(parameters)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        COMMANDS[name or function.__name__] = Command(example, works)
        return app.command(name or function.__name__, cls=DocumentedCommand)(run)

    return add


def _check_output(path: Path | None, annotation: Any) -> None:
    """Refuse an output that cannot be written to, before anything is read."""
    if path is not None:
        from scalecal.io.store import check_place

        (option,) = annotation.__metadata__
        check_place(path, folder=option.metavar == "DIR")


@contextmanager
def _set(variable: ContextVar[bool], value: bool) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def _raised_limits(texts: Sequence[str]) -> Iterator[None]:
    from scalecal.limits import VARIABLE, raised

    text = ",".join(texts)
    raised(text)
    before = os.environ.get(VARIABLE)
    if text:
        os.environ[VARIABLE] = f"{before},{text}" if before else text
    try:
        yield
    finally:
        if text and before is None:
            del os.environ[VARIABLE]
        elif text and before is not None:
            os.environ[VARIABLE] = before


def _interrupted(out: Path | None) -> str:
    """Say what is done and how to go on."""
    from scalecal.progress import how_far

    done = how_far()
    said = f"interrupted ({done})" if done else "interrupted"
    if out is None:
        return f"{said}: no result was written. Run the same command to begin again"
    return f"{said}: what is finished is kept in {out}. Run the same command to go on"


def is_quiet() -> bool:
    """Whether the user asked for --quiet: no progress is shown then."""
    return _quiet.get()


BAR_AFTER = 0.5
"""Seconds of work before a bar appears."""


@contextmanager
def showing(title: str) -> Iterator[Callable[[float], object]]:
    """Show how far work is: give what this returns to a function's `advance`."""
    from scalecal.progress import Progress

    with Progress(1.0, unit="", title=title, show=not is_quiet(), after=BAR_AFTER) as progress:
        yield progress.advance


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
    return open_engine(workers=workers, num_gpus=num_gpus, address=address, **given(name=engine))


def _print(text: str, *, err: bool = False) -> None:
    """Print text; what is not Unicode in it, of file names, is shown as escapes."""
    typer.echo(text.encode("utf-8", "backslashreplace").decode("utf-8"), err=err)


def say(text: str = "") -> None:
    """Print a line of results; with --json on standard error, for standard output has the JSON."""
    if not is_quiet():
        _print(text, err=_results_on_stderr.get())


def print_json(text: str) -> None:
    """Print the one thing that standard output holds with --json."""
    _print(text)


def tell(text: str) -> None:
    """Print a line on standard error: progress, warnings, notes."""
    if not is_quiet():
        _print(text, err=True)


def complain(text: str) -> None:
    """Print a line on standard error that --quiet does not silence: why the exit code is not 0."""
    _print(text, err=True)


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


def _check_encodable(arguments: Sequence[str]) -> None:
    """Fail at an argument that no terminal can have sent: libraries would stumble over it one by one."""
    from scalecal.checks import InputError

    for argument in arguments:
        try:
            os.fsencode(argument)
        except UnicodeEncodeError:
            raise InputError(f"the argument {argument!r} is not text: type it again") from None


def main() -> None:
    """Run the command line; errors are one line on standard error, never a traceback."""
    from scalecal.checks import InputError, MissingPackageError

    warnings.showwarning = _show_warning
    debug = "--debug" in sys.argv
    try:
        try:
            _check_encodable(sys.argv[1:])
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # a full device is told here, not after the last line
    except (InputError, MissingPackageError) as error:
        complain(f"error: {error}")
        sys.exit(2)
    except BrokenPipeError:
        _close_output()  # whoever read our output has closed it
        sys.exit(1)
    except KeyboardInterrupt:
        complain(_interrupted(None))
        sys.exit(INTERRUPTED)
    except MemoryError:
        complain(
            "error: the memory does not suffice for this. Use fewer cases, or a larger machine"
        )
        sys.exit(2)
    except OSError as error:
        if debug:
            raise
        from scalecal.checks import redacted, visible

        place = error.filename if error.filename is not None else "standard output"
        _close_output()
        complain(
            f"error: {visible(redacted(str(place)))}: {error.strerror or visible(redacted(str(error)))}"
        )
        sys.exit(2)
    except Exception as error:
        if debug:
            raise
        complain(f"error: {unexpected(error)}")
        sys.exit(UNEXPECTED)


def unexpected(error: Exception) -> str:
    """Keep the traceback of a fault of scalecal's own in a log, and say where."""
    from scalecal.checks import redacted, visible

    first = visible(redacted((str(error).splitlines() or [""])[0]))[:200]
    what = f"scalecal failed unexpectedly ({type(error).__name__}: {first})"
    text = redacted(
        f"scalecal {__version__}, Python {sys.version}, {sys.platform}\n"
        f"{' '.join(map(shlex.quote, sys.argv))}\n\n"
        f"{''.join(traceback.format_exception(error))}"
    )
    try:
        handle, name = tempfile.mkstemp(prefix="scalecal-", suffix=".log", text=True)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return f"{what}. No log could be written: run it again with --debug"
    return f"{what}. The traceback is in {name}: please report it, or run again with --debug"


def _close_output() -> None:
    """Send what is still to be written nowhere: the interpreter would fail on it at its end."""
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
