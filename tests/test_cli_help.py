"""Every command's help: an example that parses, and the defaults of the functions that do the work."""

import inspect
import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from scalecal.calibrators import CALIBRATORS
from scalecal.cli import app
from scalecal.cli.help import COMMANDS, default_text

ROOT = typer.main.get_command(app)

NO_DEFAULT = {
    "limit": "the limits of `scalecal.limits`",
    "out": "nothing is written without it",
    "split": "all cases",
    "fail_if": "no condition",
    "group_regex": "groups as the data give them",
    "preset": "every method's own",
    "kappa": "that of the votes",
    "vote_share": "that of the votes",
    "panel_size": "the number of votes",
    "apply": "a calibrator is fitted",
    "images": "no thumbnails",
    "export": "no figures",
    "classes": "in alphabetical order",
    "data": "not needed by all data sets",
    "features": "the embedded data",
    "datasets": "all",
    "encoders": "all",
    "weights": "those of the encoder",
    "finetuned": "no table 1",
}
"""Options that need no function's default, by the command line's own word for leaving them out."""


def help_of(name):
    done = CliRunner().invoke(app, [name, "-h"], terminal_width=200)
    assert done.exit_code == 0, done.output
    return done.output


def options_of(name):
    return [p for p in ROOT.commands[name].params if isinstance(p, typer.core.TyperOption)]


def test_every_command_is_described():
    assert list(COMMANDS) == list(ROOT.commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_the_same_by_either_name_and_time(name):
    first = help_of(name)
    assert first == help_of(name)
    assert first == CliRunner().invoke(app, [name, "--help"], terminal_width=200).output
    assert "-h, --help" in first


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_parses(name):
    line = help_of(name).rstrip().splitlines()[-1].strip()
    program, command, *arguments = shlex.split(line)
    assert (program, command) == ("scalecal", name)
    context = ROOT.commands[name].make_context(
        name, arguments, parent=ROOT.make_context("s", [name])
    )
    given = [p for p in context.params.values() if p not in (None, False)]
    assert len(given) >= len([a for a in arguments if a.startswith("--")])


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_are_those_of_the_functions(name):
    records = re.split(r"^  (?=-)", help_of(name), flags=re.MULTILINE)[1:]
    texts = {re.search(r"--[\w-]+", record).group(): " ".join(record.split()) for record in records}
    for option in options_of(name):
        text = texts[next(o for o in option.opts if o.startswith("--"))]
        if option.required or option.default is not None or option.name.endswith("_column"):
            own = option.default not in (None, False) or option.name.endswith("_column")
            assert own == ("[default: " in text), f"{name} {option.opts}"
            continue
        parameters = [p for w in COMMANDS[name].works if (p := w.parameter(option.name))]
        assert parameters or option.name in NO_DEFAULT, f"{name} {option.opts}: no function has it"
        values = [p.default for p in parameters if p.default is not inspect.Parameter.empty]
        for value in values:
            if value is None or value is False or value == ():
                continue
            parts = value if isinstance(value, tuple) else [value]
            for part in parts if value is not True else [option.name.replace("_", "-")]:
                assert str(part) in text.split("[default: ")[1], f"{name} {option.opts}"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_default_is_typed_into_a_help_text(name):
    for option in options_of(name):
        assert not re.search(r"\bdefaults?\b(?!\.| or| preset)", option.help or ""), option.opts


def test_a_default_is_read_anew_from_the_function(monkeypatch):
    from scalecal.auditing import audits

    def other(predictions, *, n_bins=99):
        raise NotImplementedError

    assert "[default: 15]" in help_of("audit")
    monkeypatch.setattr(audits, "audit_predictions", other)
    assert "[default: 99]" in help_of("audit")
    assert "[default: 15]" not in help_of("audit")


def test_functions_with_other_defaults_are_told_apart():
    works = COMMANDS["plan"].works
    assert default_text("simulations", works) == ""
    assert default_text("n_simulations", works) == "400; 300 with --votes"


def test_commands_that_only_print_have_no_quiet():
    silent = {name for name in COMMANDS if all(o.name != "quiet" for o in options_of(name))}
    assert silent == {"methods", "datasets", "encoders", "view"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_on(shell):
    words = {"bash": "scalecal au", "zsh": "scalecal au", "fish": "scalecal au"}[shell]
    environment = {
        **os.environ,
        "_SCALECAL_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    code = "import sys; sys.argv[0] = 'scalecal'; from scalecal.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert "audit" in done.stdout
    assert "compare" not in done.stdout


def test_calibrate_names_every_calibrator():
    (method,) = (option for option in options_of("calibrate") if option.name == "method")
    for name in set(CALIBRATORS) - {"identity"}:  # which "none" is
        assert name in method.help
