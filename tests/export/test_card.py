"""Exports on disk: the command, the model card, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.datasets import simulate
from scalecal.evaluation.words import sentences
from scalecal.export import CARD, MODEL, export_probe, probe_graph
from scalecal.export.model_card import escaped, one_line
from scalecal.probes import load_probe
from tests.export.made import fitted, panel, probe_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning"),
    pytest.mark.usefixtures("brief_training"),
]

NASTY = 'a"b: {c}\n<img src=x onerror=alert(1)> [d](http://e) `f` | **g** \x85\u2028 \U0001f600 ---'


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert isinstance(result.exception, InputError), result.output
    return str(result.exception)


def header_of(card):
    start, text, _ = card.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A probe with both answers, an audit of its predictions, and a comparison."""
    folder = tmp_path_factory.mktemp("runs")
    data = simulate(300, dim=5, auc=0.9, n_groups=100, seed=0)
    known = {"y": data.y, "votes": data.votes, "n_raters": data.n_raters, "group": data.groups}
    np.savez(folder / "f.npz", X=data.X.astype(np.float32), **known)
    run("fit", folder / "f.npz", "--method", "panel-votes", "--out", folder / "probe")
    run("predict", folder / "probe", folder / "f.npz", "--out", folder / "new.csv")
    (folder / "new2.csv").write_bytes((folder / "new.csv").read_bytes())
    run("audit", folder / "new.csv", "--resamples", 50, "--out", folder / "audit")
    methods = ("--methods", "none,panel-votes", "--seeds", 2)
    run("compare", folder / "f.npz", *methods, "--out", folder / "compared")
    return folder


def test_the_card_s_code_runs_and_gives_the_predictions(runs, tmp_path):
    said = run("export", runs / "probe", "--to", "onnx", "--out", tmp_path / "m")
    assert "Wrote model.onnx" in said
    card = (tmp_path / "m" / CARD).read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    with np.load(runs / "f.npz") as arrays:
        np.save(tmp_path / "m" / "X.npy", arrays["X"])
    code = re.sub(r"embeddings = .*", 'embeddings = np.load("X.npy")', code)
    code += '\nnp.savez("answers.npz", **answers)\n'
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "m",
        env={**os.environ, "ORT_LOGGING_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "['0', '1']" in done.stdout
    table = pd.read_csv(runs / "new.csv")
    with np.load(tmp_path / "m" / "answers.npz") as answers:
        for name in ("p", "p_reader", "p_split"):
            np.testing.assert_allclose(answers[name], table[name], atol=1e-5)


def test_the_card_as_printed_runs(runs, tmp_path):
    export_probe(runs / "probe", tmp_path / "m")
    (code,) = re.findall(
        r"```python\n(.*?)```", (tmp_path / "m" / CARD).read_text(encoding="utf-8"), flags=re.DOTALL
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "m",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_an_audit_s_numbers_are_in_card_and_header(runs, tmp_path):
    export_probe(runs / "probe", tmp_path, audit=runs / "audit", license="apache-2.0")
    card = (tmp_path / CARD).read_text(encoding="utf-8")
    facts = json.loads((runs / "audit" / "facts.json").read_text(encoding="utf-8"))
    overall = next(r for r in facts["rows"] if (r["method"], r["stratum"]) == ("model", "overall"))
    header = header_of(card)
    assert header["license"] == "apache-2.0"
    result = header["model-index"][0]["results"][0]
    values = {m["type"]: m["value"] for m in result["metrics"]}
    assert values["accuracy"] == pytest.approx(overall["accuracy"], abs=1e-4)
    assert values["expected_calibration_error"] == pytest.approx(overall["ece"], abs=1e-4)
    assert values["expected_calibration_error_floor"] == pytest.approx(overall["floor"], abs=1e-4)
    assert result["dataset"] == {
        "type": "custom",
        "name": "new",
        "args": {"cases": 300, "seeds": 1},
    }
    assert f"| overall | 300 | {overall['ece']:.3f} | {overall['floor']:.3f} |" in card
    headline = escaped(facts["verdict"]["headline"])
    assert f"**{facts['verdict']['word']}. {headline}**" in card
    for sentence in sentences(facts)[1:]:
        assert escaped(sentence) in card
    assert "only if none of these was used to fit the model" in " ".join(card.split())


def test_a_comparison_s_numbers_are_those_of_the_method(runs, tmp_path):
    export_probe(runs / "probe", tmp_path, audit=runs / "compared")
    card = (tmp_path / CARD).read_text(encoding="utf-8")
    facts = json.loads((runs / "compared" / "facts.json").read_text(encoding="utf-8"))
    row = next(r for r in facts["rows"] if r["method"] == "panel-votes")
    assert f"| overall | {row['n']} | {row['ece']:.3f} |" in card
    assert "mean over 2 seeds" in card
    assert "not these very weights" in card


def test_a_card_without_audit_says_so(runs, tmp_path):
    export_probe(runs / "probe", tmp_path)
    card = (tmp_path / CARD).read_text(encoding="utf-8")
    assert "Not audited" in card
    assert "model-index" not in header_of(card)
    assert header_of(card)["license"] == "unknown"


def test_exports_stand_beside_the_probe_and_are_replaced(runs, tmp_path):
    load_probe(runs / "probe").save(tmp_path / "probe")
    assert refused("export", tmp_path / "probe", "--to", "pmml").startswith("--to must be")
    run("export", tmp_path / "probe")
    first = (tmp_path / "probe" / MODEL).read_bytes()
    run("export", tmp_path / "probe", "--panel-size", 3)
    assert (tmp_path / "probe" / MODEL).read_bytes() != first
    run("export", tmp_path / "probe")
    assert (tmp_path / "probe" / MODEL).read_bytes() == first
    assert load_probe(tmp_path / "probe").panel_.panel_size == 7
    (tmp_path / "probe" / CARD).write_text("my own", encoding="utf-8")
    assert "was changed since" in refused("export", tmp_path / "probe", "--panel-size", 3)
    assert (tmp_path / "probe" / CARD).read_text(encoding="utf-8") == "my own"
    assert (tmp_path / "probe" / MODEL).read_bytes() == first


def test_a_readme_of_somebody_else_is_kept(runs, tmp_path):
    (tmp_path / CARD).write_text("mine", encoding="utf-8")
    assert "did not write" in refused("export", runs / "probe", "--out", tmp_path)
    assert not (tmp_path / MODEL).exists()


def test_what_cannot_be_exported(runs, tmp_path):
    assert "no fitted probe" in refused("export", tmp_path)
    assert "no run at" in refused(
        "export", runs / "probe", "--audit", tmp_path, "--out", tmp_path / "m"
    )
    probe_of(fitted("platt", 2)).save(tmp_path / "platt")
    said = refused("export", tmp_path / "platt", "--panel-size", 5)
    assert "does not know the readers" in said
    said = refused("export", tmp_path / "platt", "--audit", runs / "compared")
    assert "does not have the probe's method" in said
    run("audit", runs / "new.csv", runs / "new2.csv", "--resamples", 50, "--out", tmp_path / "two")
    said = refused("export", tmp_path / "platt", "--audit", tmp_path / "two")
    assert "several models" in said
    assert not (tmp_path / "platt" / MODEL).exists()


def test_a_model_that_differs_leaves_no_file(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(probe_graph, "TOLERANCE", -1.0)
    with pytest.raises(InputError, match="does not reproduce the probe"):
        export_probe(runs / "probe", tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_names_of_others_are_text(n_classes, tmp_path):
    probe = probe_of(panel(n_classes, 0.2, 5), n_classes)
    probe.classes_ = np.array([f"{NASTY}{c}" for c in range(n_classes)])
    probe.about_ = {"encoder": NASTY, "dataset": NASTY, "label": NASTY, "data_sha256": NASTY}
    probe.save(tmp_path)
    export_probe(tmp_path, license=NASTY)
    card = (tmp_path / CARD).read_text(encoding="utf-8")
    assert header_of(card)["license"] == one_line(NASTY)
    body = card.split("---\n", 2)[2]
    page = MarkdownIt("gfm-like", {"linkify": False}).render(body)
    assert "<img" not in page
    assert "<a " not in page
    assert "<strong>" not in page
    assert page.count("<h1>") == 1
    code = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert len(code) == 1
    assert "onerror" not in code[0]


def test_the_help_has_an_example():
    assert "scalecal export runs/probe --to onnx" in " ".join(run("export", "--help").split())


def test_files_are_whole(runs, tmp_path):
    written = export_probe(runs / "probe", tmp_path)
    assert written == [Path(tmp_path, MODEL), Path(tmp_path, CARD)]
    record = json.loads((tmp_path / ".scalecal.json").read_text(encoding="utf-8"))
    assert {entry["by"] for entry in record["files"].values()} == {"export"}
