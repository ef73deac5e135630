from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from scipy.special import ndtr

from scalecal.paper import printed as paper
from scalecal.paper.evidence import Evidence
from scalecal.paper.paper_tables import (
    TABLES,
    Table,
    combined_p,
    latex,
    markdown,
    write_tables,
)
from tests.evaluation.made import cell, sharp

METHODS = {
    "none": sharp(2.2),
    "vanilla-ls": sharp(1.5),
    "real-piecewise": lambda s, h, y, r: 0.2 * s + 0.7 * h,  # noqa: ARG005
    "scale": sharp(1.1),
    "scale-random": sharp(1.3),
    "scale@K=20": sharp(1.1),
}
FINE_TUNED = ("resnet-hard", "resnet-vanilla-ls", "resnet-piecewise")


@pytest.fixture(scope="module")
def evidence():
    few = {name: METHODS[name] for name in ("none", "vanilla-ls", "scale")}
    cells = [cell(METHODS, n=300, n_seeds=3, encoder=e) for e in ("uni", "mine")]
    cells.append(cell(few, n=400, n_seeds=3, dataset="pcam", panel=False, seed=1))
    cells.append(cell(dict.fromkeys(FINE_TUNED, sharp(1.5)), n=300, n_seeds=3, encoder="resnet18"))
    return Evidence(cells, n_resamples=200)


@pytest.fixture(scope="module")
def tables(evidence):
    return {name: make(evidence) for name, make in TABLES.items()}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_made_here(tables, name):
    table = tables[name]
    assert table.rows
    assert table.caption.endswith(".")
    assert all(row.keys() == table.rows[0].keys() for row in table.rows)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_says_why_where_it_cannot_be_made(name, tmp_path):
    table = TABLES[name](Evidence([]))
    assert not table.rows
    assert table.needs
    write_tables(tmp_path, {name: table})
    for kind in ("csv", "md", "tex"):
        assert table.needs[:20] in (tmp_path / f"{name}.{kind}").read_text()


def test_the_audit_is_the_results_mean(evidence, tables):
    rows = [r for r in tables["audit"].rows if r["encoder"] == "UNI"]
    assert [r["stratum"] for r in rows] == ["overall", "high", "medium", "low"]
    frame = evidence.results
    mine = frame[(frame["encoder"] == "uni") & (frame["method"] == "none")]
    for row in rows:
        part = mine[(mine["stratum"] == row["stratum"]) & (mine["dataset"] == "mhist")]
        ece = part.loc[part["metric"] == "ece"]
        assert row["ECE"] == pytest.approx(ece["value"].mean())
        assert row["ECE_sd"] == pytest.approx(ece["value"].std(ddof=1))
        assert row["floor"] == pytest.approx(ece["floor"].mean())
        debiased = part.loc[part["metric"] == "debiased_error", "value"]
        assert row["debiased"] == pytest.approx(debiased.mean())
        assert row["paper"] == paper.printed("mhist", "uni", "none", "ece", row["stratum"])[0]
        if row["stratum"] != "overall":
            p = part.loc[part["metric"] == "p_null", "value"]
            assert len(p) == 3
            assert row["p(null)"] == pytest.approx(min(1.0, 2 * p.mean()))
    assert sum(r["n"] for r in rows[1:]) == rows[0]["n"] == 300


@pytest.mark.validity
@pytest.mark.parametrize("shared", [0.0, 0.5, 0.95, 1.0])
def test_joined_p_values_are_p_values(shared):
    """However much the seeds have in common."""
    rng = np.random.default_rng(0)
    runs = 4000
    common, own = rng.normal(size=(runs, 1)), rng.normal(size=(runs, 10))
    p = ndtr(np.sqrt(shared) * common + np.sqrt(1 - shared) * own)
    joined = np.array([combined_p(one) for one in p])
    for level in (0.01, 0.05, 0.2):
        assert (joined <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / runs)


def test_the_main_table_averages_encoders(evidence, tables):
    rows = {r["method"]: r for r in tables["main"].rows}
    assert "scale@K=20" not in rows
    row = rows["SCALE"]
    assert row["encoders"] == 2
    means = [evidence.mean("mhist", e, "scale", "ece", "low") for e in ("uni", "mine")]
    assert row["low ECE"] == pytest.approx(np.mean(means))
    base = rows["No calibration"]["low ECE"]
    assert row["low change"] == pytest.approx(row["low ECE"] / base - 1)
    assert row["low from"] <= row["low change"] <= row["low to"]
    # "mine" is not one of the paper's encoders, so there is no number of the paper to set beside.
    assert np.isnan(row["low ECE, paper"])


def test_the_papers_average_is_over_the_same_encoders():
    cells = [cell({"none": sharp(2), "scale": sharp(1)}, n=200, encoder=e) for e in ("uni", "plip")]
    rows = {r["method"]: r for r in TABLES["main"](Evidence(cells, n_resamples=50)).rows}
    printed = [paper.printed("mhist", e, "scale", "ece", "low")[0] for e in ("uni", "plip")]
    assert rows["SCALE"]["low ECE, paper"] == pytest.approx(np.mean(printed))


def test_the_recovered_share_is_the_ratio_of_gains(tables):
    (row,) = tables["pairwise"].rows
    low = {r["method"]: r["low ECE"] for r in tables["main"].rows}
    gain = low["No calibration"] - low["Real agreement, piecewise"]
    if not row["recovered, why not"]:
        share = (low["No calibration"] - low["SCALE"]) / gain
        assert row["recovered"] == pytest.approx(share)
    assert row["gap"] == pytest.approx(low["SCALE"] - low["Real agreement, piecewise"])


def test_full_results_hold_every_encoder_and_method_once(tables):
    keys = [(r["data set"], r["encoder"], r["method"]) for r in tables["full"].rows]
    assert len(keys) == len(set(keys)) == 2 * 5


def test_averages_close_the_tables_of_several_encoders(tables):
    last = tables["anchors"].rows[-1]
    assert last["encoder"] == "average"
    own = [r["SCALE"] for r in tables["anchors"].rows[:-1]]
    assert last["SCALE"] == pytest.approx(np.mean(own))


def test_csv_keeps_full_precision(tables, tmp_path):
    write_tables(tmp_path, {"main": tables["main"]})
    lines = list(csv.DictReader(io.StringIO((tmp_path / "main.csv").read_text())))
    for line, row in zip(lines, tables["main"].rows, strict=True):
        assert float(line["low ECE"]) == row["low ECE"]


def test_markdown_and_latex_show_the_same_cells():
    rows = [
        {"name": "x|y", "AUC": 90.04, "AUC_sd": 0.51, "share": 0.834, "p": 0.0001, "n": 12},
        {"name": "z", "AUC": float("nan"), "share": -0.1, "p": 0.2, "n": 3},
    ]
    formats = {"AUC": "points", "share": "signed percent", "p": "p"}
    table = Table("A & B", "Shows 5 %.", lambda _: rows, "nothing", formats)(Evidence([]))
    text = markdown(table)
    assert r"| x\|y | 90.0 ± 0.5 | +83.4 % | &lt;0.001 | 12 |" in text
    assert "| z | - | -10.0 % | 0.200 | 3 |" in text
    code = latex(table, "toy")
    assert r"x|y & 90.0 $\pm$ 0.5 & +83.4 \% & $<$0.001 & 12 \\" in code
    assert r"\caption{A \& B. Shows 5 \%.}" in code
    assert code.count(r"\midrule") == 2  # below the head, and between different first cells


def test_printed_numbers_are_whole():
    for encoder in paper.ENCODER_LABELS:
        for method in ("none", "temperature", "vanilla-ls", "real-piecewise", "scale"):
            for column in (("ece", "overall"), ("ece", "low"), ("auc",), ("accuracy",)):
                assert np.isfinite(paper.printed("mhist", encoder, method, *column)).all()
        for stratum in ("high", "medium"):
            assert np.isfinite(paper.printed("mhist", encoder, "none", "ece", stratum)[0])
        for dataset in paper.GENERAL_DATASETS:
            for method in ("none", "vanilla-ls", "scale"):
                assert np.isfinite(paper.printed(dataset, encoder, method, "ece")).all()
    assert {key[1] for key in paper.NUMBERS} == set(paper.ENCODER_LABELS)
    # Averages that the paper states in its text.
    low = [paper.printed("mhist", e, "scale", "ece", "low")[0] for e in paper.ENCODER_LABELS]
    assert np.mean(low) == pytest.approx(0.135, abs=5e-4)
