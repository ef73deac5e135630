"""The commands from images to embeddings, as a user types them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from scalecal.checks import MissingPackageError
from scalecal.cli import app
from scalecal.features import load_features
from tests.features.made import write_tiles


def test_new_cases_from_image_to_prediction(tmp_path: Path) -> None:
    tiles = write_tiles(tmp_path / "tiles", 4)
    new = tmp_path / "new"
    new.mkdir()
    for i, file in enumerate(sorted(tiles.rglob("*.png"))):
        file.rename(new / f"{i}.png")
    (tmp_path / "new.csv").write_text("path\n0.png\n3.png\n")
    options = ["--weights", "random", "--device", "cpu"]
    for spec, n in ((f"folder:{new}", 4), (f"table:{tmp_path / 'new.csv'}", 2)):
        out = tmp_path / str(n)
        data = ["--data", str(new)] if n == 2 else []
        line = ["extract", spec, "efficientnet-lite0", "--out", str(out), *data, *options]
        found = CliRunner().invoke(app, line)
        assert found.exit_code == 0, found.output
        assert "warning: there are no labels" in found.output
        features = load_features(out)
        assert len(features) == n
        assert features.classes is None
        assert np.isfinite(np.asarray(features.X)).all()
        checked = CliRunner().invoke(app, ["check", spec, *data])
        assert checked.exit_code == 0
        assert f"unlabelled: {n}" in checked.output


def test_help_names_random_weights() -> None:
    assert "random" in CliRunner().invoke(app, ["extract", "--help"]).output


def test_finetune_without_torchvision_begins_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiles = write_tiles(tmp_path / "tiles", 4)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    line = ["finetune", f"folder:{tiles}", "--out", str(tmp_path / "run")]
    with pytest.raises(MissingPackageError, match="fine-tuning needs torchvision"):
        CliRunner().invoke(app, line, catch_exceptions=False)
    assert not (tmp_path / "run").exists()
