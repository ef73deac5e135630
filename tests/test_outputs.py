"""No command overwrites or removes a file it did not write, whatever --out it is given."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.datasets import simulate
from scalecal.features import import_features, load_features
from scalecal.io.feature_store import StoreWriter

pytestmark = [
    pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning"),
    pytest.mark.usefixtures("brief_training"),
]


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def refused(word: str, *arguments) -> None:
    """The command fails with an error that holds a word, and leaves every file as it was."""
    before = contents(Path.cwd())
    result = run(*arguments)
    assert isinstance(result.exception, InputError), result.output
    assert word in str(result.exception)
    assert contents(Path.cwd()) == before


def done(*arguments) -> None:
    result = run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _predictions():
    data = simulate(60, dim=3, auc=0.9, seed=0)
    frame = pd.DataFrame(
        {"id": np.arange(60), "p": data.label_probability, "label": data.y, "votes": data.votes}
    )
    frame["n_raters"] = data.n_raters
    frame.to_parquet("predictions.parquet", index=False)
    frame.to_csv("audit.csv", index=False)


@pytest.fixture
def features():
    data = simulate(120, dim=4, auc=0.9, seed=0)
    columns = {f"f{j}": data.X[:, j] for j in range(4)}
    frame = pd.DataFrame({"id": np.arange(120), "label": data.y, **columns})
    frame.to_csv("feat.csv", index=False)
    return "feat.csv"


@pytest.mark.usefixtures("_predictions")
def test_audit_keeps_its_input():
    refused("is the input", "audit", "predictions.parquet", "--out", ".")
    refused("is the input", "audit", "audit.csv", "--stream", "--out", ".")
    Path("out").mkdir()
    os.link("audit.csv", "out/audit.csv")
    refused("is the input", "audit", "audit.csv", "--stream", "--out", "out")
    # A streamed audit writes no predictions: its input may lie beside its results.
    os.remove("audit.csv")
    done("audit", "predictions.parquet", "--stream", "--out", ".")
    assert len(pd.read_parquet("predictions.parquet")) == 60
    assert "label" in pd.read_parquet("predictions.parquet")


@pytest.mark.usefixtures("_predictions")
def test_an_audit_of_an_audits_file_does_not_remove_it():
    done("audit", "predictions.parquet", "--out", "run")
    # The streamed audit would remove what the audit before it wrote, its own input among it.
    options = ("--stream", "--columns", "p=label", "--out", "run")
    refused("is the input", "audit", "run/cases.parquet", *options)


@pytest.mark.usefixtures("_predictions")
def test_audit_keeps_a_run_of_compare(features):
    done("compare", features, "--methods", "none", "--seeds", 1, "--out", "run")
    before = contents(Path("run"))
    refused("scalecal compare", "audit", "predictions.parquet", "--out", "run")
    refused("scalecal compare", "audit", "predictions.parquet", "--stream", "--out", "run")
    assert contents(Path("run")) == before


@pytest.mark.usefixtures("_predictions")
def test_audit_again_removes_only_its_own():
    done("audit", "predictions.parquet", "--out", "run")
    assert Path("run", "report.html").exists()
    Path("run", "notes.txt").write_text("mine")
    done("audit", "predictions.parquet", "--stream", "--out", "run")
    assert not Path("run", "report.html").exists()
    assert not Path("run", "predictions.parquet").exists()
    assert Path("run", "notes.txt").read_text() == "mine"


def test_compare_keeps_files_it_did_not_write(features):
    out = Path("out")
    out.mkdir()
    (out / "claims.json").write_text("mine")
    refused("claims.json", "compare", features, "--methods", "none", "--out", out)
    (out / "claims.json").rename(out / "audit_scale.json")
    done("compare", features, "--methods", "none", "--seeds", 1, "--out", out)
    done("compare", features, "--methods", "none", "--seeds", 2, "--out", out)
    assert (out / "audit_scale.json").read_text() == "mine"
    (out / "results.csv").write_text("edited by hand")
    refused("results.csv", "compare", features, "--methods", "none", "--out", out)
    other = Path("other")
    other.mkdir()
    (other / "run.json").write_text("mine")
    refused("run.json", "compare", features, "--methods", "none", "--out", other)
    refused("is a file", "compare", features, "--methods", "none", "--out", features)


def test_fit_and_predict_keep_their_inputs(features):
    done("fit", features, "--method", "none", "--out", "probe")
    done("fit", features, "--method", "none", "--out", "probe")
    refused("is the input", "predict", "probe", features, "--out", features)
    os.symlink(features, "link.csv")
    os.link(features, "hard.csv")
    refused("is the input", "predict", "probe", features, "--out", "link.csv")
    refused("is the input", "predict", "probe", features, "--out", "hard.csv")
    refused("is the input", "predict", "probe", "link.csv", "--out", features)
    Path("precious.csv").write_text("mine")
    refused("did not write", "predict", "probe", features, "--out", "precious.csv")
    done("predict", "probe", features, "--out", "p.csv")
    done("predict", "probe", features, "--out", "p.csv")
    Path("probe.json").write_text("mine")
    refused("probe.json", "fit", features, "--method", "none", "--out", ".")


@pytest.mark.usefixtures("_predictions")
def test_report_keeps_runs():
    done("audit", "predictions.parquet", "--out", "run")
    refused("scalecal audit", "report", "run", "--out", "run/predictions.parquet")
    Path("page.html").write_text("mine")
    refused("did not write", "report", "run", "--out", "page.html")
    refused("is the input", "report", "run", "--export", "run")
    done("report", "run", "--export", "export")
    done("report", "run", "--export", "export")
    edited = next(Path("export").glob("*.csv"))
    edited.write_text("edited by hand")
    refused("was changed", "report", "run", "--export", "export")
    assert edited.read_text() == "edited by hand"
    Path("other").mkdir()
    Path("other", "results.csv").write_text("mine")
    refused("did not write", "report", "run", "--export", "other")
    refused("is a file", "report", "predictions.parquet")


@pytest.mark.usefixtures("_predictions")
def test_facts_edited_by_hand_are_not_shown():
    done("audit", "predictions.parquet", "--out", "run")
    facts = Path("run", "facts.json")
    for text in (facts.read_text().replace("calibrated", "perfect"), "{"):
        facts.write_text(text)
        refused("facts.json", "report", "run", "--out", "page.html")
        assert not Path("page.html").exists()


def test_plan_and_demo_keep_files():
    Path("plan.csv").write_text("mine")
    refused("plan.csv", "plan", "audit", "--simulations", 5, "--out", ".")
    Path("comparison.csv").write_text("mine")
    refused("comparison.csv", "demo", "--out", ".")


def test_reproduce_keeps_files():
    Path("results.csv").write_text("mine")
    refused("results.csv", "reproduce", "--seeds", 1, "--out", ".")
    refused("results.csv", "reproduce", "--tables-only", "--out", ".")
    Path("feats").mkdir()
    refused("is the input", "reproduce", "--features", "feats", "--out", "feats")


@pytest.fixture
def tiles():
    for name, grey in (("benign", 40), ("malignant", 200)):
        Path("tiles", name).mkdir(parents=True)
        for i in range(8):
            Image.new("RGB", (32, 32), (grey + i,) * 3).save(Path("tiles", name, f"{i}.png"))
    return "folder:tiles"


def test_extract_and_finetune_keep_files(tiles):
    Path("notes").mkdir()
    Path("notes", "run.log").write_text("mine")
    Path("notes", ".draft.tmp").write_text("mine")
    options = ("--weights", "random", "--device", "cpu")
    for out in ("tiles", "notes", "."):
        refused("not empty", "extract", tiles, "efficientnet-lite0", *options, "--out", out)
        refused("not empty", "finetune", tiles, "--labels", "hard", "--out", out)


def test_an_edited_table_of_features_is_kept(features):
    done("import", features, "--out", "f")
    table = Path("f", "table.parquet")
    edited = pd.read_parquet(table).assign(label=1)
    edited.to_parquet(table)
    mine = table.read_bytes()
    done("import", features, "--out", "f")
    assert Path("f", "table.parquet.damaged").read_bytes() == mine


def test_import_keeps_files(features):
    refused("not empty", "import", features, "--out", ".")
    done("import", features, "--out", "f")
    before = contents(Path("f"))
    data = pd.read_csv(features)
    data["f0"] += 1
    data.to_csv("other.csv", index=False)
    refused("other images or settings", "import", "other.csv", "--out", "f")
    assert contents(Path("f")) == before


def _hold(out: str, ready, go) -> None:
    """Begin an import of two rows and wait in the middle of it."""
    table = pd.DataFrame({"id": ["a", "b"]})
    with StoreWriter(out, {"encoder": {"name": "x"}}, table, dim=2) as store:
        ready.set()
        go.wait(30)
        store.write_shard(0, np.eye(2))
        store.finish()


def test_of_two_imports_the_refused_one_removes_nothing(features):
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    first = context.Process(target=_hold, args=("f", ready, go))
    first.start()
    try:
        assert ready.wait(60)
        refused("another run", "import", features, "--out", "f")
    finally:
        go.set()
        first.join(60)
    assert first.exitcode == 0
    assert load_features("f", verify=True).X.tolist() == np.eye(2).tolist()


def test_a_failed_import_leaves_no_trace():
    np.savez("bad.npz", X=np.array([[1.0], [np.nan]]), id=["a", "b"])
    with pytest.raises(InputError, match="NaN"):
        import_features("bad.npz", "f", shard_rows=1)
    assert not Path("f").exists()
    Path("f").mkdir()
    refused("NaN", "import", "bad.npz", "--out", "f")


@pytest.mark.parametrize(
    ("damage", "said"),
    [(b"", "not match"), (b"PAR1xxPAR1", "not match"), (None, "is missing")],
)
def test_a_feature_folder_without_its_table_is_told(features, damage, said):
    done("import", features, "--out", "made")
    table = Path("made", "table.parquet")
    table.unlink()
    if damage is not None:
        table.write_bytes(damage)
    refused(said, "compare", "made", "--out", "run")


@pytest.mark.parametrize("command", ["audit", "calibrate"])
@pytest.mark.parametrize("name", ["absolute", "../v.txt", "sub/../../v.txt", "linked/v.txt"])
def test_a_record_cannot_have_files_outside_its_folder_removed(
    tmp_path, monkeypatch, command, name
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    p = rng.uniform(size=120)
    frame = pd.DataFrame({"id": np.arange(120), "p": p, "label": (rng.uniform(size=120) < p) * 1})
    frame.to_csv("P.csv", index=False)
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    victims = [outside / "v.txt", tmp_path / "v.txt"]
    for victim in victims:
        victim.write_text("precious")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "linked").symlink_to(outside)
    listed = str(victims[0]) if name == "absolute" else name
    entry = {"sha256": hashlib.sha256(b"precious").hexdigest(), "by": command}
    (tmp_path / "r" / ".scalecal.json").write_text(json.dumps({"files": {listed: entry}}))
    refused("outside its folder", command, "P.csv", "--out", "r")
    assert all(victim.read_text() == "precious" for victim in victims)
