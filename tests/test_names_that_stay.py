"""Names that stay: scripts of others, which nobody here can change, use these names as they are used here.

A test of this module that fails is a change that breaks them: change the code, not the test.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

import scalecal
from scalecal import cli, metrics, smoothing, synthesis, votes
from scalecal.calibrators.panels import PanelCalibrator
from scalecal.features import load_features
from scalecal.panel import reader_logit
from tests.datasets.trees import make_mhist
from tests.features.made import write_tiles

pytestmark = [
    pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning"),
    pytest.mark.usefixtures("brief_training"),
]

N = 60
M = 7


def made() -> dict[str, np.ndarray]:
    """Embeddings, labels, votes and probabilities of sixty cases, read by seven readers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    count = rng.binomial(M, expit(1.5 * X[:, 0]))
    return {"X": X, "y": (count > M / 2).astype(int), "votes": count, "p": expit(3 * X[:, 0])}


# Python


def test_audit_and_calibrate():
    data = made()
    found = scalecal.audit(data["y"], data["p"], votes=data["votes"], n_raters=M, n_resamples=50)
    assert found["overall"]["n"] == N
    assert found["overall"]["ece"] == metrics.ece(data["y"], data["p"])
    assert isinstance(found.verdict["badge"], str)
    assert isinstance(found.verdict["headline"], str)
    assert found.sentences
    assert all(isinstance(sentence, str) for sentence in found.sentences)
    calibrated = scalecal.calibrate(data["y"], data["p"], method="platt", n_resamples=50)
    assert calibrated.chosen == "platt"
    assert calibrated.predictions.p.shape == (N,)


def test_probes():
    data = made()
    readers = {"votes": data["votes"], "n_raters": np.full(N, M)}
    plain = scalecal.LinearProbe().fit(data["X"], data["y"])
    assert plain.predict_proba(data["X"]).shape == (N, 2)
    probe = scalecal.ScaleProbe().fit(data["X"], data["y"], **readers)
    check_is_fitted(probe)
    assert 0.0 <= probe.panel_.rho < 1.0
    assert probe.predict_proba(data["X"]).shape == (N, 2)
    assert probe.predict_reader_proba(data["X"]).shape == (N, 2)


def test_functions_of_readers_and_labels():
    data = made()
    counts, readers = np.arange(M + 1), np.full(M + 1, M)
    for name in ("piecewise", "linear", "nonlinear"):
        soft = getattr(smoothing, name)(counts, readers)
        assert soft.shape == (M + 1,)
        assert (np.diff(soft) >= 0).all()
    Z, targets = synthesis.synthesize(data["X"], data["y"], 3 * data["X"][:, 0])
    assert Z.shape[1] == 4
    assert len(Z) == len(targets)
    assert -1.0 <= votes.fleiss_kappa(data["votes"], np.full(N, M)) <= 1.0
    np.testing.assert_allclose(reader_logit(np.array([-1.0, 0.0, 1.0]), 0.2, M)[1], 0, atol=1e-9)


def test_the_calibrator_of_a_panel():
    data = made()
    logits = 2 * data["X"][:, 0]
    published = PanelCalibrator(kappa=0.4, vote_share=0.5, prior_sd=0.5)
    published.fit(logits, data["y"], panel_size=M)
    counted = PanelCalibrator().fit(logits, data["y"], votes=data["votes"], n_raters=M)
    counts = np.column_stack([M - data["votes"], data["votes"]])
    by_class = PanelCalibrator().fit(logits, data["y"], votes=counts, panel_size=M)
    for fitted in (published, counted, by_class):
        p = fitted.predict_reader_proba(logits)
        assert p.shape == (N, 2)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)


# Commands and files


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command line as a terminal would, in a folder with the inputs; returns code and output."""
    data = made()
    monkeypatch.chdir(tmp_path)
    ids = [f"case {i}" for i in range(N)]
    frame = pd.DataFrame({"id": ids, "p": data["p"], "label": data["y"]})
    frame.assign(group=[f"patient {i // 2}" for i in range(N)]).to_csv("p.csv", index=False)
    counts = {"votes": data["votes"], "n_raters": M}
    frame.assign(**counts).to_csv("counts.csv", index=False)
    frame.assign(split=np.resize(["train", "test"], N)).to_csv("split.csv", index=False)
    rows = [(ids[i], f"reader {j}", int(j < data["votes"][i])) for i in range(N) for j in range(M)]
    pd.DataFrame(rows, columns=["id", "rater", "label"]).to_csv("votes.csv", index=False)
    readers = {"votes": data["votes"], "n_raters": np.full(N, M)}
    np.savez("f.npz", X=data["X"], y=data["y"], id=ids, **readers)

    def call(*line: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["scalecal", *map(str, line)])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        return (code, *capsys.readouterr())

    return call


FEW = ("--resamples", 20)


def test_audit(run):
    code, out, _ = run("audit", "p.csv", "--votes", "votes.csv", *FEW, "--out", "audit")
    assert code == 0
    assert out
    table = pd.read_csv("audit/audit.csv")
    assert table.columns[0] == "name"
    assert table["name"][0] == "overall"
    assert json.loads(Path("audit/audit.json").read_text())["strata"][0]["name"] == "overall"
    assert {"id", "group"} <= set(pd.read_parquet("audit/cases.parquet"))
    assert Path("audit/report.html").stat().st_size <= 2_000_000
    code, out, _ = run("audit", "p.csv", "--json", *FEW)
    assert code == 0
    assert '"n": 60' in out
    assert json.loads(out)["strata"][0]["n"] == N
    code, out, _ = run("audit", "counts.csv", "--json", *FEW)
    assert code == 0
    assert json.loads(out)["strata"][0]["n_votes"] == N * M
    code, out, _ = run("audit", "split.csv", "--split", "test", *FEW, "--json")
    assert json.loads(out)["strata"][0]["n"] == N // 2


def test_calibrate(run):
    assert run("calibrate", "p.csv", "--method", "auto", *FEW, "--out", "cal")[0] == 0
    assert isinstance(json.loads(Path("cal/calibrator.json").read_text())["chosen"], str)
    assert {"id", "p"} <= set(pd.read_csv("cal/predictions.csv"))
    assert Path("cal/report.html").stat().st_size <= 2_000_000


def test_fit_predict_and_compare(run):
    assert run("fit", "f.npz", "--method", "scale-default", "--out", "probe")[0] == 0
    assert Path("probe/probe.json").is_file()
    assert run("predict", "probe", "f.npz", "--out", "predictions.csv")[0] == 0
    assert {"id", "p", "p_reader"} <= set(pd.read_csv("predictions.csv"))
    code, out, _ = run("compare", "f.npz", "--methods", "none,platt", "--seeds", 1, "--out", "run")
    assert code == 0
    assert "platt" in out
    assert run("report", "run")[0] == 0
    assert Path("run/report.html").stat().st_size <= 2_000_000


def test_import_and_reproduce(run):
    line = ("import", "f.npz", "--dataset", "mine", "--encoder", "own", "--out", "features/mine")
    assert run(*line)[0] == 0
    features = load_features("features/mine")
    assert features.X.shape == (N, 4)
    assert features.table["id"].tolist() == [f"case {i}" for i in range(N)]
    line = ("reproduce", "--seeds", 1, "--features", "features", "--out", "run")
    code, out, err = run(*line, "--methods", "none,vanilla-ls,scale", "--no-sweep")
    assert code == 0, err
    assert out
    claims = json.loads(Path("run/claims.json").read_text())
    assert all("verdict" in claim for claim in claims)


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_extract(run, engine):
    if engine == "ray":
        pytest.importorskip("ray")
    tiles = write_tiles(Path("tiles"), 3)
    files = sorted(str(file.relative_to(tiles)) for file in tiles.rglob("*.png"))
    pd.DataFrame({"path": files, "label": np.resize([0, 1], len(files))}).to_csv("list.csv")
    line = ("extract", "table:list.csv", "efficientnet-lite0", "--data", tiles, "--out", "features")
    options = ("--weights", "random", "--device", "cpu", "--engine", engine)
    code, _, err = run(*line, *options)
    assert code == 0, err
    assert len(load_features("features").X) == len(files)


def test_extract_a_known_data_set(run):
    make_mhist(Path("mhist"), 6)
    line = ("extract", "mhist", "efficientnet-lite0", "--data", "mhist", "--out", "features")
    # A few small images stand for the data set; weights are random, for none are at hand.
    code, _, err = run(*line, "--partial", "--weights", "random", "--device", "cpu")
    assert code == 0, err
    features = load_features("features")
    assert len(features.X) == len(features.table["id"]) == 6
    assert "n_raters" in features.table


def test_demo(run):
    code, out, err = run("demo", "--out", "demo")
    assert code == 0, err
    assert out
    assert Path("demo/report.html").stat().st_size <= 2_000_000
    assert {"id", "p", "p_reader"} <= set(pd.read_csv("demo/predictions.csv"))
    assert isinstance(json.loads(Path("demo/calibrator.json").read_text())["chosen"], str)


def test_exit_codes(run, monkeypatch):
    assert run("audit", "p.csv", *FEW)[0] == 0
    assert run("audit", "p.csv", *FEW, "--fail-if", "n > 0")[0] == 3
    assert (
        run("audit", "p.csv", *FEW, "--fail-if", "low: ece > 1.5", "--votes", "votes.csv")[0] == 0
    )
    assert run("audit", "none.csv")[0] == 2
    # A few images that cannot be read are left out, and the end says so.
    tiles = write_tiles(Path("tiles"), 4)
    sorted(tiles.rglob("*.png"))[0].write_bytes(b"not an image")
    line = ("extract", f"folder:{tiles}", "efficientnet-lite0", "--out", "features")
    assert run(*line, "--weights", "random", "--device", "cpu")[0] == 1

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("an internal error")

    monkeypatch.setattr("scalecal.cli.audit.read_predictions", fail)
    assert run("audit", "p.csv", *FEW)[0] == 70
