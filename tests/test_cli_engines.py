"""Commands on an engine give the bytes of the plain command."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.datasets import simulate

runner = CliRunner()
pytestmark = [
    pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning"),
    pytest.mark.usefixtures("brief_training"),
]


@pytest.mark.parametrize("options", [("--workers", "2")], ids=["processes"])
def test_compare_by_workers_gives_the_same_bytes(tmp_path, options):
    data = simulate(150, dim=4, seed=0)
    np.savez(tmp_path / "f.npz", X=data.X, y=data.y, votes=data.votes, n_raters=data.n_raters)
    base = ["compare", str(tmp_path / "f.npz"), "--methods", "none", "--seeds", "3", "--out"]
    for name, more in (("a", ()), ("b", options)):
        result = runner.invoke(app, [*base, str(tmp_path / name), *more])
        assert result.exit_code == 0, result.exception
    for file in ("predictions.parquet", "results.csv", "cases.parquet"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("command", ["compare", "reproduce", "extract"])
def test_num_gpus_without_gpus_names_workers(tmp_path, monkeypatch, command):
    monkeypatch.setattr("scalecal.engines.local.gpu_count", lambda: 0)
    data = simulate(150, dim=4, seed=0)
    np.savez(tmp_path / "f.npz", X=data.X, y=data.y)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    first = {
        "compare": [str(tmp_path / "f.npz")],
        "reproduce": ["--seeds", "2"],
        "extract": [f"folder:{tmp_path}", "efficientnet-lite0", "--weights", "random"],
    }[command]
    result = runner.invoke(app, [command, *first, "--num-gpus", "2", "--out", str(tmp_path / "o")])
    assert isinstance(result.exception, InputError)
    assert "--workers 2" in str(result.exception)


def test_gpus_and_processes_are_not_both_counted(tmp_path):
    data = simulate(150, dim=4, seed=0)
    np.savez(tmp_path / "f.npz", X=data.X, y=data.y)
    base = ["compare", str(tmp_path / "f.npz"), "--out", str(tmp_path / "o"), "--num-gpus", "1"]
    for more, word in ((["--workers", "2"], "--workers"), (["--device", "cpu"], "--device")):
        result = runner.invoke(app, [*base, *more])
        assert isinstance(result.exception, InputError)
        assert word in str(result.exception)


def test_reproduce_by_two_processes_gives_the_same_numbers(tmp_path):
    data = simulate(150, dim=4, seed=0)
    (tmp_path / "features").mkdir()
    for encoder in ("uni", "plip"):
        frame = pd.DataFrame(data.X, columns=[f"f{i}" for i in range(4)]).assign(
            id=[f"c{i}" for i in range(150)], votes=data.votes, n_raters=data.n_raters
        )
        frame.to_parquet(tmp_path / "in.parquet")
        command = ["import", str(tmp_path / "in.parquet"), "--encoder", encoder]
        command += ["--dataset", "mhist", "--out", str(tmp_path / "features" / encoder)]
        result = runner.invoke(app, command)
        assert result.exit_code == 0, result.output
    base = ["reproduce", "--features", str(tmp_path / "features"), "--seeds", "2", "--no-sweep"]
    base += ["--methods", "none,vanilla-ls,scale", "--out"]
    for name, more in (("a", []), ("b", ["--workers", "2"])):
        result = runner.invoke(app, [*base, str(tmp_path / name), *more])
        assert result.exit_code == 0, result.output
    assert (tmp_path / "a/results.csv").read_bytes() == (tmp_path / "b/results.csv").read_bytes()
    judged = [json.loads((tmp_path / name / "claims.json").read_text()) for name in "ab"]
    for one, other in zip(*judged, strict=True):
        assert one["verdict"] == other["verdict"]
        assert one == other or one["id"] == "five-minutes"
    for file in (tmp_path / "a" / "cells").rglob("predictions.parquet"):
        other = tmp_path / "b" / file.relative_to(tmp_path / "a")
        assert file.read_bytes() == other.read_bytes()
