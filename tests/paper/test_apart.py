"""The paper stands apart: the commands of the core never import it."""

import subprocess
import sys

import numpy as np
import pytest

from scalecal.datasets import simulate
from scalecal.paper.claims import CLAIMS, judge_comparison
from scalecal.runs.grid import run_grid

IMPORTED = """
import sys
from scalecal.cli import app
app({arguments!r}, standalone_mode=False)
print([name for name in sys.modules if name.startswith("scalecal.paper")])
"""


@pytest.mark.parametrize("command", ["audit", "compare"])
def test_a_command_of_the_core_does_not_import_the_paper(command, tmp_path):
    data = simulate(120, dim=3, seed=0)
    if command == "audit":
        file = tmp_path / "predictions.csv"
        rows = np.column_stack([data.y, np.clip(data.label_probability, 0.01, 0.99)])
        np.savetxt(file, rows, delimiter=",", header="label,p", comments="")
        options = []
    else:
        file = tmp_path / "features.npz"
        np.savez(file, X=data.X, y=data.y)
        options = ["--methods", "none,scale", "--seeds", "1"]
    arguments = [command, str(file), *options, "--out", str(tmp_path / "out")]
    code = IMPORTED.format(arguments=arguments)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().endswith("[]")


def test_a_comparison_is_judged_by_every_claim():
    data = simulate(200, dim=3, seed=0)
    grid = run_grid(data, methods=["none", "scale"], seeds=1, dataset="simulated", preset="default")
    claims = judge_comparison(data, grid)
    assert [claim["id"] for claim in claims] == list(CLAIMS)
    by_id = {claim["id"]: claim for claim in claims}
    assert by_id["premise-axis"]["n"] > 50  # the training embeddings were looked at
    assert by_id["five-minutes"]["verdict"] == "holds"
