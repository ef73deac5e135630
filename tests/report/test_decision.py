"""Decision curves in a run folder: facts, page and files show what the audit says."""

import json

import numpy as np
import pandas as pd
import pytest

from scalecal import audit
from scalecal.evaluation.folder import joined, read_runs, write_run
from scalecal.evaluation.texts import mean_results
from scalecal.report import figures
from scalecal.report.exporting import draw_all, table_all


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rng = np.random.default_rng(0)
    chance = rng.beta(0.7, 0.9, size=160)
    votes = rng.binomial(5, chance)
    result = audit((votes > 2).astype(int), chance, votes=votes, n_raters=5, n_resamples=20)
    folder = tmp_path_factory.mktemp("runs") / "audit"
    write_run(folder, result, kind="audit")
    return folder, result


def test_facts_are_the_audits(run):
    folder, result = run
    facts = json.loads((folder / "facts.json").read_text())
    curve = result.decision_curve().set_index(["judge", "stratum", "threshold"])
    assert {(p["judge"], p["stratum"]) for p in facts["decision"]} == set(curve.index.droplevel(2))
    for panel in facts["decision"]:
        own = panel["methods"][0]
        at = [(panel["judge"], panel["stratum"], t) for t in panel["threshold"]]
        assert own["net_benefit"] == pytest.approx(curve.loc[at, "net_benefit"].tolist(), abs=1e-5)
        assert panel["treat_all"] == pytest.approx(curve.loc[at, "treat_all"].tolist(), abs=1e-5)
        assert panel["n"] == curve.loc[at[0], "n"]


def test_the_file_is_the_audits_curve(run):
    folder, result = run
    pd.testing.assert_frame_equal(
        pd.read_csv(folder / "decision.csv"), result.decision_curve(), rtol=1e-5
    )


def test_figures_and_tables_are_exported(run):
    folder, _ = run
    read = read_runs([folder])
    facts = joined(read)
    names = set(draw_all(facts))
    assert {"decision_labels_overall", "decision_votes_low"} <= names
    assert any("decision" in name for name in table_all(facts, mean_results(facts["cells"])))


def test_a_curve_ends_where_it_leaves_the_panel(run):
    cell = json.loads((run[0] / "facts.json").read_text())
    for figure in figures.decisions(cell):
        for mark in figure.drawing.marks:
            if mark.kind == "polyline":
                assert all(0 <= y <= figure.drawing.height - 20 for _, y in mark.points)


def test_several_classes_have_no_curve(tmp_path):
    rng = np.random.default_rng(0)
    result = audit(rng.integers(3, size=90), rng.dirichlet([1, 1, 1], size=90), n_resamples=20)
    write_run(tmp_path / "audit", result, kind="audit")
    facts = json.loads((tmp_path / "audit" / "facts.json").read_text())
    assert facts["decision"] == []
    assert len(pd.read_csv(tmp_path / "audit" / "decision.csv")) == 0
