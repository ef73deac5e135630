"""Commands on an engine give the bytes of the plain command."""

import numpy as np
import pytest
from typer.testing import CliRunner

from scalecal.cli import app
from scalecal.datasets import simulate

runner = CliRunner()
pytestmark = pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")


@pytest.mark.parametrize("options", [("--num-gpus", "2")], ids=["processes"])
def test_compare_by_workers_gives_the_same_bytes(tmp_path, options):
    data = simulate(150, dim=4, seed=0)
    np.savez(tmp_path / "f.npz", X=data.X, y=data.y, votes=data.votes, n_raters=data.n_raters)
    base = ["compare", str(tmp_path / "f.npz"), "--methods", "none", "--seeds", "3", "--out"]
    for name, more in (("a", ()), ("b", options)):
        result = runner.invoke(app, [*base, str(tmp_path / name), *more])
        assert result.exit_code == 0, result.exception
    for file in ("predictions.parquet", "results.csv", "cases.parquet"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
