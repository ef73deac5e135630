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
from scalecal.cli.app import COMMANDS, default_text
from scalecal.engines import ENGINES
from scalecal.features.extraction import PRECISIONS
from scalecal.features.importing import FORMATS
from scalecal.io.input_columns import named_roles
from scalecal.paper.finetuning import LABEL_KINDS
from scalecal.votes import TIES
from tests.cli_commands import find_command

ROOT = typer.main.get_command(app)

NO_DEFAULT = {
    "columns": "every column's usual name",
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
    "partial": "the whole data set",
    "data": "not needed by all data sets",
    "features": "the embedded data",
    "datasets": "all",
    "encoders": "all",
    "weights": "those of the encoder",
    "finetuned": "no table 1",
}
"""Options that need no function's default, by the command line's own word for leaving them out."""


def help_of(name, flag="-h"):
    done = CliRunner().invoke(app, [*name.split(), flag], terminal_width=200)
    assert done.exit_code == 0, done.output
    return done.output


def options_of(name):
    return [p for p in find_command(name).params if isinstance(p, typer.core.TyperOption)]


def test_every_command_is_described():
    shown = []
    for name, command in ROOT.commands.items():
        inner = getattr(command, "commands", None)
        shown += [f"{name} {each}" for each in inner] if inner else [name]
    assert sorted(COMMANDS) == sorted(shown)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_the_same_by_either_name_and_time(name):
    first = help_of(name)
    assert first == help_of(name)
    assert first == help_of(name, "--help")
    assert "-h, --help" in first


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_parses(name):
    line = help_of(name).rstrip().splitlines()[-1].strip()
    program, *arguments = shlex.split(line)
    assert program == "scalecal"
    context = ROOT.make_context("scalecal", arguments)
    words = name.split()
    assert arguments[: len(words)] == words
    for k, word in enumerate(words):
        command = context.command.commands[word]
        context = command.make_context(word, arguments[k + 1 :], parent=context)
    given = [p for p in context.params.values() if p not in (None, False)]
    assert len(given) >= len([a for a in arguments if a.startswith("--")])


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_are_those_of_the_functions(name):
    records = re.split(r"^  (?=-)", help_of(name), flags=re.MULTILINE)[1:]
    texts = {re.search(r"--[\w-]+", record).group(): " ".join(record.split()) for record in records}
    for option in options_of(name):
        text = texts[next(o for o in option.opts if o.startswith("--"))]
        if option.required or option.default is not None:
            own = option.default not in (None, False)
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
    from scalecal.evaluation import audits

    def other(predictions, *, n_bins=99):
        raise NotImplementedError

    assert "[default: 15]" in help_of("audit")
    monkeypatch.setattr(audits, "audit_predictions", other)
    assert "[default: 99]" in help_of("audit")
    assert "[default: 15]" not in help_of("audit")


def test_each_question_of_plan_has_its_own_defaults():
    for name, simulations in (("plan audit", "400"), ("plan votes", "300")):
        works = COMMANDS[name].works
        assert default_text("simulations", works) == ""
        assert default_text("n_simulations", works) == simulations


def test_commands_that_only_print_have_no_quiet():
    silent = {name for name in COMMANDS if all(o.name != "quiet" for o in options_of(name))}
    assert silent == {"list methods", "list datasets", "list encoders"}


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


@pytest.mark.parametrize(
    ("name", "registry"),
    [
        ("calibrate", CALIBRATORS),
        ("import", FORMATS),
        ("extract", [*PRECISIONS, *ENGINES]),
        ("finetune", LABEL_KINDS),
        ("audit", TIES),
        ("audit", named_roles()),
    ],
)
def test_names_are_those_of_the_registry(name, registry):
    for each in registry:
        assert re.search(rf"\b{each}\b", help_of(name))


def test_a_name_added_to_a_registry_is_shown(monkeypatch):
    monkeypatch.setitem(CALIBRATORS, "my-calibrator", CALIBRATORS["platt"])
    assert "my-calibrator" in help_of("calibrate")


@pytest.mark.parametrize(("name", "most"), [("audit", 21), ("calibrate", 21), ("finetune", 14)])
def test_commands_have_few_options(name, most):
    assert len(options_of(name)) + 1 <= most  # --help is no parameter
