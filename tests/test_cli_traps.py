"""Mistakes in the data that would give wrong numbers in silence: every command speaks of them alike."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.datasets import simulate

pytestmark = pytest.mark.usefixtures("brief_training")

COMMANDS = ("audit", "fit", "compare")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def data():
    return simulate(200, dim=4, auc=0.9, n_groups=40, seed=0)


@pytest.fixture
def call(tmp_path, data):
    """Run a command on the simulated cases with some columns changed."""

    def go(command, *options, **changed):
        columns = {"y": data.y, "votes": data.votes, "n_raters": data.n_raters, **changed}
        if command == "audit":
            columns["label"] = columns.pop("y")
            p = 1 / (1 + np.exp(-data.X[:, 0]))
            pd.DataFrame({"p": p, **columns}).to_csv(tmp_path / "p.csv", index=False)
            return run("audit", tmp_path / "p.csv", "--resamples", 20, *options)
        np.savez(tmp_path / "f.npz", X=data.X, **columns)
        more = ("--method", "none") if command == "fit" else ("--methods", "none", "--seeds", 1)
        return run(command, tmp_path / "f.npz", *more, "--out", tmp_path / "out", *options)

    return go


@pytest.mark.parametrize("command", COMMANDS)
def test_votes_of_the_other_class_are_an_error(call, data, command):
    result = call(command, votes=data.n_raters - data.votes)
    assert isinstance(result.exception, InputError)
    assert "in 200 of 200 cases with a clear majority" in str(result.exception)
    assert "--positive NAME" in str(result.exception)


@pytest.mark.parametrize("command", COMMANDS)
def test_two_classes_in_words_need_a_positive_one(call, data, command):
    words = np.array(["tumour", "benign"])[data.y]
    result = call(command, y=words)
    assert isinstance(result.exception, InputError)
    assert "'benign'" in str(result.exception)
    assert "--positive NAME" in str(result.exception)
    assert call(command, "--positive", "benign", y=words).exit_code == 0
    swapped = call(command, "--positive", "tumour", y=words)
    assert "swapped" in str(swapped.exception)
