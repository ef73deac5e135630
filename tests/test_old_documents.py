"""What scalecal 0.2.0 wrote is read and gives the same numbers, or is refused in one line.

The files of `fixtures_0_2_0` and the numbers beside them were made by that version: each of `calibrators`
by `calibrate --method NAME`, `calibrator.json` by auto, the probes by `fit` with the methods scale-default
(`probe`) and temperature (`plain`), and the run by `audit`. Numbers for `new.csv` and `new.npz` are its own.
"""

from __future__ import annotations

import json
import shlex
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app, main
from scalecal.evaluation.folder import read_runs

OLD = Path(__file__).parent / "fixtures_0_2_0"
CALIBRATORS = {"auto": OLD / "calibrator.json"} | {
    file.stem: file for file in sorted((OLD / "calibrators").glob("*.json"))
}

pytestmark = pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def assert_same(made: Path, expected: pd.DataFrame) -> None:
    """The file holds the numbers that 0.2.0 wrote."""
    table = pd.read_csv(made)
    assert table["id"].tolist() == expected["id"].tolist()
    for name in expected.columns.drop("id"):
        np.testing.assert_allclose(table[name], expected[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_calibrator_gives_the_same_answers(tmp_path, name):
    every = pd.read_csv(OLD / "calibrated.csv")
    expected = every[every["method"] == name].drop(columns="method").dropna(axis="columns")
    saved = CALIBRATORS[name]
    done = run("calibrate", OLD / "new.csv", "--apply", saved, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.exception
    assert_same(tmp_path / "out" / "predictions.csv", expected)


@pytest.mark.parametrize("name", ["probe", "plain"])
def test_a_probe_gives_the_same_answers(tmp_path, name):
    made = tmp_path / "made.csv"
    done = run("predict", OLD / name, OLD / "new.npz", "--out", made)
    assert done.exit_code == 0, done.exception
    assert_same(made, pd.read_csv(OLD / f"{name}.csv"))


def test_a_run_is_refused_by_the_command_that_writes_it_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OLD / "runs", "runs")
    shutil.copy(OLD / "predictions.csv", "predictions.csv")
    with pytest.raises(InputError, match=r"scalecal 0\.2\.0") as refused:
        read_runs(["runs/old"])
    said = str(refused.value)
    assert "\n" not in said
    _, _, command = said.partition("To write it again: ")
    assert isinstance(run("report", "runs/old").exception, InputError)
    program, *arguments = shlex.split(command)
    assert program == "scalecal"
    # As from a terminal: the run keeps this command.
    monkeypatch.setattr("sys.argv", [program, *arguments])
    done = run(*arguments)
    assert done.exit_code == 0, done.exception
    assert run("report", "runs/old").exit_code == 0
    kept = json.loads(Path("runs/old/run.json").read_text())["command"]
    assert shlex.join(kept) == command


def test_the_command_of_a_refused_run_is_spelled_as_today(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OLD / "runs", "runs")
    frame = pd.read_csv(OLD / "predictions.csv")
    frame.rename(columns={"label": "true class", "p": "p, final"}).to_csv("p.csv", index=False)
    file = Path("runs/old/run.json")
    content = json.loads(file.read_text())
    old = ("--label-column", "true class", "--p-column=p, final", "--limit", "bins=1e6")
    content["command"] = ["scalecal", "audit", "p.csv", *old, "--resamples", "20", "--out", "new"]
    file.write_text(json.dumps(content))
    with pytest.raises(
        InputError, match=r"has no schema number .*, schema \d+ is expected"
    ) as refused:
        read_runs(["runs/old"])
    _, _, command = str(refused.value).partition("To write it again: ")
    limits, program, *arguments = shlex.split(command)
    assert (limits, program) == ("SCALECAL_LIMITS=bins=1e6", "scalecal")
    # `main` refuses what was replaced, and the runner of the other tests does not go through it.
    monkeypatch.setattr("sys.argv", [program, *arguments])
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert read_runs(["new"])[0].facts[0]["n"] == len(frame)


def test_a_folder_without_a_name_of_its_command_is_refused_in_one_line(tmp_path):
    shutil.copytree(OLD / "runs", tmp_path / "runs")
    (tmp_path / "runs" / "old" / "run.json").unlink()
    with pytest.raises(InputError, match=r"To write it again: scalecal audit FILE --out .*old$"):
        read_runs([tmp_path / "runs" / "old"])
