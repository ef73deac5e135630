"""The application: one place for help texts, errors, warnings and exit codes.

Exit codes: 0 done; 1 done, but some cases were left out; 2 the input or an option cannot be used;
3 done, but a condition of --fail-if is met; 70 an internal error, written to a log; 130 interrupted.

`say` prints results on standard output, `tell` what goes with them on standard error; --quiet silences
both. `complain` is never silenced.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from scalecal import __version__, engines
from scalecal.checks import InputError, MissingPackageError, ScalecalWarning, redacted, visible
from scalecal.io.input_columns import column_option, parse_columns, replaced_role
from scalecal.io.store import check_output_folder, check_place
from scalecal.io.text import listed
from scalecal.limits import VARIABLE
from scalecal.progress import Progress, how_far

UNEXPECTED = 70
"""Exit code of an internal error."""

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

# Help texts: every command shows an example, defaults taken from signatures, names from registries.
#
# A default is written once, in a signature. A command names those functions as text (`Work`), and only
# when its help is shown are they imported and their defaults put beside the options. A registry is named in
# a help text as `{module:NAME}` (or the function that returns the names), in whose place they are shown.


@dataclass(frozen=True)
class Work:
    """A function (or record) that a command passes its options to.

    Parameters
    ----------
    function
        Where it is: "module:name".
    renamed
        Options that are called otherwise than the function's parameters: {"option": "parameter"}.

    Examples
    --------
    >>> work = Work("scalecal.planning:plan_votes", {"recover": "share"})
    >>> work.default("recover"), work.default("out")
    (0.9, None)
    """

    function: str
    renamed: Mapping[str, str] = field(default_factory=dict)

    def parameter(self, option: str) -> Parameter | None:
        """The parameter that an option sets, where there is one."""
        return signature(_load(self.function)).parameters.get(self.renamed.get(option, option))

    def default(self, option: str) -> Any:
        """The default of an option; None where it has none."""
        parameter = self.parameter(option)
        if parameter is None or parameter.default is Parameter.empty:
            return None
        return parameter.default


def _load(place: str) -> Any:
    """Import what a text of the form "module:name" names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True)
class Command:
    """What is known of a command beside its signature: an example, and the functions it calls."""

    example: str
    works: Sequence[Work] = ()


COMMANDS: dict[str, Command] = {}
"""Every command by name."""


def default_text(option: str, works: Sequence[Work]) -> str:
    """Write the default of an option; "" where it has none, or is a flag that is off.

    Examples
    --------
    >>> works = [Work("scalecal.planning:plan", {"readers": "n_raters"})]
    >>> default_text("readers", works), default_text("seed", works), default_text("out", works)
    ('3,5,7', '0', '')
    """
    shown: dict[str, None] = {}
    for work in works:
        value = work.default(option)
        if value is True:
            shown[option.replace("_", "-")] = None
        elif isinstance(value, tuple | list):
            shown[",".join(map(str, value))] = None
        elif value is not None and value is not False:
            shown[str(value)] = None
    return "; ".join(shown)


def help_text(text: str | None) -> str:
    """Write a help text with the names of the registries that it refers to.

    Examples
    --------
    >>> help_text("Label of a tied vote: {scalecal.votes:TIES}.")
    'Label of a tied vote: error, first, last, random, drop.'
    """

    def listed(named: re.Match[str]) -> str:
        names = _load(named[1])
        if callable(names):
            names = names()
        return ", ".join(map(str, names))

    return re.sub(r"\{([\w.]+:\w+)\}", listed, text or "")


class DocumentedCommand(TyperCommand):
    """A command whose help shows names, defaults and the example of `COMMANDS`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, each with its default."""
        works = _described(ctx).works
        shown = copy(self)
        shown.params = [copy(param) for param in self.params]
        for param in shown.params:
            if not hasattr(param, "help"):
                continue
            param.help = help_text(param.help)
            if param.default is None and param.name and not param.required:
                default = default_text(param.name, works)
                if default:
                    param.help += f"  [default: {default}]"
        super(DocumentedCommand, shown).format_options(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example, on one line, ready to be copied."""
        super().format_epilog(ctx, formatter)
        formatter.write("\nExample:\n")
        formatter.write(f"  scalecal {_described(ctx).example}\n")


def _described(ctx: Any) -> Command:
    """The record of the command whose help is shown; in a group it is called "plan votes"."""
    program = ctx.find_root().command_path
    return COMMANDS[ctx.command_path.removeprefix(program).strip()]


# Commands and the options that several have

app = typer.Typer(
    name="scalecal",
    help="Audit and recalibrate classifiers on frozen embeddings, by case difficulty.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

lists = typer.Typer(name="list", no_args_is_help=True)
app.add_typer(lists, help="List the names that commands take: of methods, encoders and data sets.")

OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the results.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for the results.")]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds.")]
Seed = Annotated[int | None, typer.Option(help="Random seed.")]
Votes = Annotated[
    Path | None,
    typer.Option("--votes", metavar="FILE", help="Votes by id: rows id, rater, label, or counts."),
]
Ties = Annotated[str | None, typer.Option(help="Label of a tied vote: {scalecal.votes:TIES}.")]
NRaters = Annotated[int | None, typer.Option(help="Readers of every case, if no column has it.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="ROLE=NAME,...",
        help="Columns or arrays with names of their own: label=diagnosis,group=patient. May be given "
        "several times. Roles: {scalecal.io.input_columns:named_roles}.",
    ),
]
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
Engine = Annotated[
    str | None, typer.Option("--engine", help="Where work runs: {scalecal.engines:ENGINES}.")
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
    typer.Option(
        "--allow-leakage", help="Do not warn about groups that are in both train and test."
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print the result as JSON; everything else goes to standard error."
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Print the traceback of an internal error.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

ENGINE_WORK = Work("scalecal.engines:open_engine", {"engine": "name"})
"""The work behind --engine, --workers, --num-gpus and --address."""

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
_results_on_stderr: ContextVar[bool] = ContextVar("results_on_stderr", default=False)


def command(
    example: str,
    *works: Work,
    name: str | None = None,
    group: typer.Typer = app,
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
    group
        The group of commands that it belongs to, such as `list`.
    quiet
        Whether it has --quiet: not where printing is all it does.
    resumes
        Whether the same command goes on where it was interrupted.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        own = signature(function, eval_str=True).parameters
        parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own.values()]
        flag = Parameter("debug", Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
        parameters.append(flag)
        if quiet:
            parameters.append(flag.replace(name="quiet", annotation=Quiet))

        @wraps(function)
        def run(**options: Any) -> None:
            del options["debug"]  # `main` looks for it
            _quiet.set(options.pop("quiet", False))
            _results_on_stderr.set(options.get("json", False))
            # An output that cannot be written to is refused before anything is read.
            for output in ("out", "export"):
                if options.get(output) is not None:
                    (option,) = own[output].annotation.__metadata__
                    check_place(options[output], folder=option.metavar == "DIR")
            try:
                function(**options)
            except KeyboardInterrupt:
                kept = None
                if resumes:
                    kept = options["out"]
                complain(_interrupted(kept))
                raise typer.Exit(INTERRUPTED) from None

        vars(run)["__signature__"] = Signature(parameters)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        full = last = name or function.__name__
        if group is not app:
            full = f"{group.info.name} {last}"
        COMMANDS[full] = Command(example, works)
        return group.command(last, cls=DocumentedCommand)(run)

    return add


def _interrupted(out: Path | None) -> str:
    """Say what is done and how to go on."""
    said = "interrupted"
    done = how_far()
    if done:
        said += f" ({done})"
    if out is None:
        return f"{said}: no result was written. Run the same command to start again"
    return f"{said}: what is finished is kept in {out}. Run the same command to resume"


def is_quiet() -> bool:
    """Whether the user asked for --quiet: no progress is shown then."""
    return _quiet.get()


BAR_AFTER = 0.5
"""Seconds of work before a bar appears."""


@contextmanager
def showing(title: str) -> Iterator[Callable[[float], object]]:
    """Show how far work is: give what this returns to a function's `advance`."""
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
) -> engines.Engine:
    """Open the engine that --engine, --workers, --num-gpus and --address ask for."""
    on_gpu = device is not None and device != "cpu"
    if num_gpus and device is not None and not on_gpu:
        raise InputError("--num-gpus counts GPUs, but --device is cpu: use --workers N")
    if num_gpus and workers is not None:
        raise InputError("--num-gpus gives every GPU one process: leave --workers out")
    if num_gpus is None and (workers is not None or not on_gpu):
        num_gpus = 0
    return engines.open_engine(
        workers=workers, num_gpus=num_gpus, address=address, **given(name=engine)
    )


def print_text(text: str, *, err: bool = False) -> None:
    """Print text whatever the options; what is not Unicode in it, of file names, is shown as escapes."""
    typer.echo(text.encode("utf-8", "backslashreplace").decode("utf-8"), err=err)


def say(text: str = "") -> None:
    """Print a line of results; with --json on standard error, for standard output has the JSON."""
    if not is_quiet():
        print_text(text, err=_results_on_stderr.get())


def tell(text: str) -> None:
    """Print a line on standard error: progress, warnings, notes."""
    if not is_quiet():
        print_text(text, err=True)


def complain(text: str) -> None:
    """Print a line on standard error that --quiet does not silence: why the exit code is not 0."""
    print_text(text, err=True)


def check_run(out: Path, kind: str, names: Iterable[str], inputs: Iterable[Path | None]) -> None:
    """Refuse, before any work, a folder in which a run's files may not be written."""
    check_output_folder(out, kind=kind, names=[*names, "report.html"], inputs=inputs)


def close_run(out: Path, names: list[str], facts: Mapping[str, Any] | None = None) -> None:
    """Write the report of a run folder, where its cases were kept, and say what was written.

    `facts` are those of the run, so that they are not read again; those of several cells are read.
    """
    from scalecal.report import write_report

    if "predictions.parquet" in names or "cells" in names:
        write_report([out], out / "report.html", facts=facts)
        names = sorted([*names, "report.html"])
    say(f"\nWrote {listed(names)} to {out}")


def named_columns(columns: list[str] | None, votes: Path | None) -> dict[str, str]:
    """Read --columns; a column of the votes is named only where their file is given."""
    named = parse_columns(columns or ())
    if "rater" in named and votes is None:
        raise InputError(
            f"--columns rater={named['rater']} names a column of the votes: give their file with --votes"
        )
    return named


def split_list(
    text: str | None, option: str, kind: Callable[[str], Any] = str, *, what: str = "names"
) -> list[Any] | None:
    """Return the values of an option that takes several, with commas between; None without it."""
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
    """Audit and recalibrate classifiers on frozen embeddings, by case difficulty."""


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, ScalecalWarning):
        tell(f"warning: {message}")


REPLACED = {
    "view": "scalecal report [RUN] --open",
    "methods": "scalecal list methods",
    "encoders": "scalecal list encoders",
    "datasets": "scalecal list datasets",
    "plan --votes": "scalecal plan votes",
}
"""Commands of the last release, one with the option that made it another, and what replaces them."""

_NO_CACHE = "unpack PatchCamelyon by gunzip *.h5.gz"
_NO_KEY = "a table names image files, so write the images of an array to files"
_MEMORY = "training reads all embeddings into memory: fit to a sample of the rows"
_FINETUNE = (
    *("--alpha", "--brightness", "--cache", "--classes", "--contrast", "--decay", "--epsilon"),
    *("--flips", "--group-regex", "--hue", "--keep", "--key", "--magnification", "--mean"),
    *("--memory", "--no-flips", "--no-turns", "--omega", "--patience", "--phi", "--precision"),
    *("--resize-mode", "--saturation", "--std", "--test", "--ties", "--turns", "--validation"),
    *("--weight-decay", "--weights", "--workers"),
)

REMOVED = {
    "check --cache": _NO_CACHE,
    "check --key": _NO_KEY,
    "compare --memory": _MEMORY,
    "extract --cache": _NO_CACHE,
    "extract --key": _NO_KEY,
    "extract --exact": "images resized on a card have the pixels of Pillow, so leave it out",
    "extract --precision fp8": "--precision bf16 is the fastest",
    "fit --memory": _MEMORY,
    "reproduce --datasets simulated": "run python -m studies.simulation in a copy of the repository",
    "reproduce --dry-run": "a run that is stopped goes on where it was when the same command is given",
    **{f"finetune {option}": "networks are trained as in the paper" for option in _FINETUNE},
}
"""Options of the last release that have no successor, and what to do instead."""


def _check_arguments(arguments: Sequence[str]) -> None:
    """Fail at what the last release had, with its new spelling, and at what no terminal can have sent."""
    # Words apart by a sign that none has: a value may follow its option after an equals sign too.
    line = "\0".join(["", *arguments, ""]).replace("=", "\0")
    for old in (*REPLACED, *REMOVED):
        name, *options = old.split()
        if arguments[:1] != [name] or "\0".join(["", *options, ""]) not in line:
            continue
        if old in REPLACED:
            spelling = REPLACED[old]
            runs = [argument for argument in arguments[1:] if not argument.startswith("-")]
            if runs:
                spelling = spelling.replace("[RUN]", shlex.join(runs))
            raise InputError(f"{old} was replaced: use {spelling}")
        raise InputError(f"{old} was removed: {REMOVED[old]}")
    replaced = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        try:
            os.fsencode(argument)
        except UnicodeEncodeError:
            # Libraries would stumble over it one by one.
            raise InputError(f"the argument {argument!r} is not text: type it again") from None
        option, _, value = argument.partition("=")
        new = None
        role = replaced_role(option)
        if option == "--limit":
            new = f"the environment variable {VARIABLE}={value or following}"
        elif role is not None:
            new = column_option(role, value or following)
        if new is not None:
            replaced.append(f"{option} was replaced: use {new}")
    if replaced:
        raise InputError("; ".join(replaced))


def main() -> None:
    """Run the command line; errors are one line on standard error, never a traceback."""
    warnings.showwarning = _show_warning
    debug = "--debug" in sys.argv
    try:
        try:
            _check_arguments(sys.argv[1:])
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
        complain("error: there is not enough memory. Use fewer cases, or a larger machine")
        sys.exit(2)
    except OSError as error:
        if debug:
            raise
        place = "standard output"
        if error.filename is not None:
            place = error.filename
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
    """Keep the traceback of an internal error in a log, and say where."""
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
