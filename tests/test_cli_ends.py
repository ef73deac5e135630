"""How the command line ends: one line on standard error, an exit code, no traceback."""

from __future__ import annotations

import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from scalecal import progress
from scalecal.cli.app import COMMANDS, REMOVED, REPLACED, main, unexpected
from scalecal.io.input_columns import parse_columns
from scalecal.limits import LIMITS, VARIABLE, check_limit
from tests.cli_commands import find_command


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command line as a terminal would; returns its exit code and both outputs."""

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["scalecal", *map(str, args)])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        with pytest.raises(SystemExit) as end:
            main()
        return (end.value.code or 0, *capsys.readouterr())

    return call


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("id,p,label\n" + "".join(f"c{i},0.{i % 9 + 1},{i % 2}\n" for i in range(40)))
    return path


def raising(error):
    def read(*_, **__):
        raise error

    return read


def test_a_fault_of_our_own_is_one_line_and_a_log(run, table, monkeypatch, tmp_path):
    monkeypatch.setattr(
        "scalecal.cli.audit.read_predictions", raising(ZeroDivisionError("a\nb\x1b[2J"))
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, out, err = run("audit", table)
    assert (code, out) == (70, "")
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert "ZeroDivisionError: a" in err
    (log,) = tmp_path.glob("scalecal-*.log")
    assert str(log) in err
    assert "Traceback" in log.read_text()


def test_an_argument_that_is_no_text_is_one_line(run, table):
    code, _, err = run("audit", table, "--columns", "label=\ud800")
    assert code == 2
    assert err == "error: the argument 'label=\\ud800' is not text: type it again\n"


def test_messages_about_the_cases_name_the_file(run, tmp_path):
    classes = tmp_path / "classes.csv"
    classes.write_text("p_a,p_b,p_c,label\n" + "0.2,0.3,0.5,a\n0.2,0.3,0.5,b\n0.2,0.3,0.5,c\n" * 4)
    code, _, err = run("audit", classes, "--prevalence", "0.1", "--resamples", "20")
    assert code == 2
    assert err.endswith("classes.csv: a prevalence needs two classes, but there are 3\n")
    one = tmp_path / "one.csv"
    one.write_text("p,label\n0.2,1\n0.7,1\n")
    code, _, err = run("calibrate", one, "--out", tmp_path / "out")
    assert code == 2
    assert "one.csv: every label of 2 cases is of one class" in err


def test_debug_prints_the_traceback(table, monkeypatch):
    monkeypatch.setattr("scalecal.cli.audit.read_predictions", raising(ZeroDivisionError("x")))
    monkeypatch.setattr(sys, "argv", ["scalecal", "audit", str(table), "--debug"])
    with pytest.raises(ZeroDivisionError):
        main()


def test_a_log_that_cannot_be_written_is_no_second_fault(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert "--debug" in unexpected(KeyError("x"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "there is not enough memory"),
        (PermissionError(13, "Permission denied", "secret.csv"), "secret.csv: Permission denied"),
    ],
)
def test_the_machine_s_refusals_are_told_in_one_line(run, table, monkeypatch, error, said):
    monkeypatch.setattr("scalecal.cli.audit.read_predictions", raising(error))
    monkeypatch.setitem(main.__globals__, "_close_output", lambda: None)
    code, _, err = run("audit", table)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_ctrl_c_says_how_far_it_was_and_that_nothing_was_written(run, table, monkeypatch):
    def interrupted(*_, **__):
        with progress.Progress(1.0, unit="", title="auditing", show=False) as bar:
            bar.advance(0.5)
            raise KeyboardInterrupt

    monkeypatch.setattr("scalecal.evaluation.evaluations.evaluate_alone", interrupted)
    code, _, err = run("audit", table, "--quiet")
    assert code == 130
    assert err == (
        "interrupted (auditing: 50.0%): no result was written. Run the same command to start again\n"
    )


def test_ctrl_c_in_work_that_resumes_says_how_to_go_on(run, tmp_path, monkeypatch):
    monkeypatch.setattr("scalecal.cli.images.get_encoder", raising(KeyboardInterrupt()))
    rows = "".join(f"{name},{name}.png,{k % 2}\n" for k, name in enumerate("abcd"))
    (tmp_path / "images.csv").write_text(f"id,path,label\n{rows}")
    for name in "abcd":
        (tmp_path / f"{name}.png").touch()
    code, _, err = run(
        "extract", f"table:{tmp_path / 'images.csv'}", "uni", "--out", tmp_path / "features"
    )
    assert code == 130, err
    assert "Run the same command to resume" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device on this system")
def test_a_full_device_behind_standard_output_is_told():
    code = "import sys; sys.argv = ['scalecal', 'list', 'methods']; from scalecal.cli import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr == "error: standard output: No space left on device\n"


def test_a_limit_is_raised_by_the_environment(run, table, monkeypatch):
    assert "SCALECAL_LIMITS=resamples=2000000" in run("audit", table, "--resamples", 2_000_000)[2]
    for odd in ("bin=1", "bins=many", "bins=-1", "bins"):
        monkeypatch.setenv(VARIABLE, odd)
        code, _, err = run("audit", table, "--resamples", "20")
        assert code == 2
        assert "unknown limit 'bin'" in err or "NAME=NUMBER" in err


def test_the_message_of_a_limit_names_the_variable_that_raises_it(monkeypatch):
    with pytest.raises(ValueError, match="the limit is") as refused:
        check_limit(LIMITS["pixels"] + 1, "pixels", "x.png: its size")
    value = str(refused.value).split(f"{VARIABLE}=")[1].split()[0]
    monkeypatch.setenv(VARIABLE, value)
    assert check_limit(LIMITS["pixels"] + 1, "pixels", "x.png: its size")


@pytest.mark.parametrize(
    ("line", "new"),
    [
        (("view",), "use scalecal report [RUN] --open"),
        (("view", "runs/my audit"), "use scalecal report 'runs/my audit' --open"),
        (("methods",), "use scalecal list methods"),
        (("encoders", "--verbose"), "use scalecal list encoders"),
        (("datasets",), "use scalecal list datasets"),
        (("plan", "--votes", "--auc", "0.9"), "use scalecal plan votes"),
        (("plan", "--auc", "0.9", "--votes"), "use scalecal plan votes"),
        (
            ("audit", "p.csv", "--limit", "bins=1e6"),
            f"use the environment variable {VARIABLE}=bins=1e6",
        ),
        (("audit", "p.csv", "--label-column", "diagnosis"), "use --columns label=diagnosis"),
        (("fit", "f.npz", "--group-column=patient id"), "use --columns group='patient id'"),
        (("audit", "p.csv", "--p-reader-column", "a, b"), """use --columns p_reader='"a, b"'"""),
        (("audit", "p.csv", "--n-raters-column"), "use --columns n_raters=''"),
    ],
)
def test_what_was_replaced_names_its_new_spelling(run, line, new):
    old = next(word for word in (*line[1:], line[0]) if word.startswith("--") or word == line[0])
    if not old.startswith("--") or line[0] == "encoders":
        old = line[0]
    if line[0] == "plan":
        old = "plan --votes"
    code, out, err = run(*line)
    assert (code, out) == (2, "")
    assert err == f"error: {old.split('=')[0]} was replaced: {new}\n"


LAST_RELEASE = {
    **dict.fromkeys(
        ("audit", "calibrate"),
        (
            *("id", "p", "p-reader", "rho", "p-split", "label", "votes", "n-raters", "rater"),
            *("stratum", "group", "split"),
        ),
    ),
    **dict.fromkeys(("compare", "fit"), ("label", "group", "split")),
    "predict": ("label", "group"),
}
"""Command -> the roles for which 0.2.0 had an option --ROLE-column."""


@pytest.mark.parametrize("command", LAST_RELEASE)
def test_the_new_spelling_of_a_column_is_an_option_of_the_command(run, command):
    options = {option for each in find_command(command).params for option in each.opts}
    assert "--columns" in options
    for role in LAST_RELEASE[command]:
        for given in (["name of it"], [""]):
            code, out, err = run(command, "file.csv", f"--{role}-column", *given)
            assert (code, out) == (2, "")
            old, _, new = err.removesuffix("\n").partition(" was replaced: use --columns ")
            assert old == f"error: --{role}-column"
            if given != [""]:
                (text,) = shlex.split(new)
                assert parse_columns([text]) == {role.replace("-", "_"): "name of it"}


@pytest.mark.parametrize("old", REPLACED)
def test_what_replaces_a_command_is_one(old):
    program, *words = REPLACED[old].split()
    assert program == "scalecal"
    # What stands in brackets may be left out, and is no name.
    names = [word for word in words if not word.startswith(("-", "["))]
    options = {option for each in find_command(" ".join(names)).params for option in each.opts}
    assert {word for word in words if word.startswith("-")} <= options


@pytest.mark.parametrize("old", REMOVED)
def test_what_was_removed_says_what_to_do_instead(run, old):
    name, option, *value = old.split()
    for line in ((option, *(value or ["VALUE"])), ("=".join([option, *(value or ["VALUE"])]),)):
        code, out, err = run(name, "WHAT", "--data", "DIR", *line, "--out", "out")
        assert (code, out) == (2, "")
        assert err == f"error: {old} was removed: {REMOVED[old]}\n"
    options = {option for each in find_command(name).params for option in each.opts}
    assert value or option not in options


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_takes_a_limit(run, command):
    code, _, err = run(*command.split(), "--limit", "bins=1e6")
    assert code == 2
    assert err == (
        f"error: --limit was replaced: use the environment variable {VARIABLE}=bins=1e6\n"
    )


def test_what_is_called_like_a_replaced_command_is_no_command(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "replaced" not in run("report", "methods")[2]
    assert "removed" not in run("reproduce", "--datasets", "none", "--out", "simulated")[2]
    assert run("audit", "none.csv", "--votes", "votes.csv")[2].startswith("error: ")


def test_names_that_are_not_unicode_are_printed_as_escapes(capsys):
    main.__globals__["say"]("features in a\udcff")
    assert capsys.readouterr().out == "features in a\\udcff\n"
