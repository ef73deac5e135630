"""Every JSON document of ours carries the number of its form, and one of a later form is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from scalecal import load_probe
from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.datasets import simulate
from scalecal.evaluation.cells import read_cell
from scalecal.evaluation.folder import read_runs
from scalecal.evaluation.recalibration import Recalibrator
from scalecal.features import load_features
from scalecal.io.boundary import SCHEMA
from scalecal.io.store import is_whole

pytestmark = [
    pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning"),
    pytest.mark.usefixtures("brief_training"),
]

LISTS = {"claims.json", "figures.json"}
"""Lists, which stay as they are: other programs read them."""

FOLDERS = ("audit", "calibrate", "files", "compare", "probe", "features")


@pytest.fixture(scope="module")
def written(tmp_path_factory, brief_training) -> Path:  # noqa: ARG001
    """A folder of each kind that a command writes."""
    root = tmp_path_factory.mktemp("written")
    examples = Path(__file__).parents[1] / "examples"
    data = simulate(120, dim=4, auc=0.9, seed=0)
    votes = {"votes": data.votes, "n_raters": data.n_raters}
    np.savez(root / "features.npz", X=data.X, y=data.y, id=np.arange(120).astype(str), **votes)
    file, table = examples / "predictions.csv", root / "features.npz"

    def make(name: str, *arguments: object) -> None:
        line = [str(each) for each in (*arguments, "--out", root / name)]
        done = CliRunner().invoke(app, line)
        assert done.exit_code == 0, (line, done.output, done.exception)

    few = ("--resamples", 20)
    make("audit", "audit", file, *few)
    make("calibrate", "calibrate", file, "--method", "platt", *few)
    make("files", "audit", file, root / "calibrate" / "predictions.csv", *few)
    make("compare", "compare", table, "--methods", "none,platt", "--seeds", 1)
    make("probe", "fit", table, "--method", "scale-default")
    make("features", "import", table)
    return root


@pytest.mark.parametrize("name", FOLDERS)
def test_every_document_carries_a_number(written, name):
    files = sorted((written / name).rglob("*.json"))
    assert files
    for file in files:
        document = json.loads(file.read_text(encoding="utf-8"))
        if file.name not in LISTS:
            assert next(iter(document)) == "schema", file
            assert document["schema"] == SCHEMA, file


def test_what_is_printed_as_json_carries_it_too():
    file = Path(__file__).parents[1] / "examples" / "predictions.csv"
    done = CliRunner().invoke(app, ["audit", str(file), "--json", "--resamples", "20"])
    assert json.loads(done.stdout)["schema"] == SCHEMA


READERS = {
    "audit/facts.json": lambda root: read_runs([root / "audit"]),
    "audit/run.json": lambda root: read_cell(root / "audit"),
    "audit/.scalecal.json": lambda root: is_whole(root / "audit"),
    "calibrate/calibrator.json": lambda root: Recalibrator.load(root / "calibrate"),
    "probe/probe.json": lambda root: load_probe(root / "probe"),
    "features/manifest.json": lambda root: load_features(root / "features"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_document_of_a_later_form_is_refused(written, name):
    file = written / name
    before = file.read_bytes()
    READERS[name](written)
    # What else it holds may be anything.
    changes = {"schema": SCHEMA + 1, "classes": 3, "files": [], "format": "new"}
    try:
        file.write_text(json.dumps({**json.loads(before), **changes}))
        with pytest.raises(InputError, match="newer scalecal") as refused:
            READERS[name](written)
    finally:
        file.write_bytes(before)
    said = str(refused.value)
    assert str(file) in said
    assert "\n" not in said
    assert f"schema {SCHEMA + 1}" in said
