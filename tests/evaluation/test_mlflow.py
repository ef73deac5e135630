"""`Audit.log_mlflow`, against a stand-in with MLflow's signatures: MLflow itself is not installed here."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import numpy as np
import pytest

from scalecal import audit
from scalecal.checks import MissingPackageError


class Recorder(ModuleType):
    """Keeps what is logged, and refuses what MLflow refuses."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.metrics: dict[str, float] = {}
        self.tags: dict[str, str] = {}
        self.artifacts: dict[str, object] = {}

    def log_metrics(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            assert re.fullmatch(r"[/\w.\- ]*", name), name
            assert np.isfinite(value)
        self.metrics |= metrics

    def set_tag(self, key: str, value: str) -> None:
        self.tags[key] = value

    def log_dict(self, dictionary: dict, artifact_file: str) -> None:
        self.artifacts[artifact_file] = dictionary

    def log_text(self, text: str, artifact_file: str) -> None:
        self.artifacts[artifact_file] = text

    def log_figure(self, figure: object, artifact_file: str) -> None:
        assert hasattr(figure, "savefig")
        self.artifacts[artifact_file] = figure


def made():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=200)
    strata = np.where(np.arange(200) < 100, "../a:b", "c, d")
    return audit(rng.uniform(size=200) < p, p, strata=strata, n_resamples=50)


def test_what_is_logged(monkeypatch):
    run = Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", run)
    result = made()
    result.log_mlflow()
    assert run.metrics["overall/ece"] == result["overall"]["ece"]
    assert run.metrics["___a_b/n"] == run.metrics["c_ d/n"] == 100
    assert run.tags == {"scalecal.verdict": result.verdict["badge"]}
    assert sorted(run.artifacts) == [
        f"scalecal/{name}" for name in ("audit.html", "audit.json", "reliability.png")
    ]
    assert run.artifacts["scalecal/audit.json"] == result.to_dict()
    assert run.artifacts["scalecal/audit.html"].startswith("<!doctype html>")


def test_without_mlflow_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingPackageError, match="pip install mlflow"):
        made().log_mlflow()
