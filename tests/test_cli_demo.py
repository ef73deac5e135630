"""The demo: what it prints and what it leaves behind."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from scalecal.cli import app
from scalecal.datasets import load_atnorm_md
from tests.test_one_advice import sentences, text_of


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo") / "out"
    result = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert result.exit_code == 0, result.exception
    return out, result.stdout


def test_what_it_prints_is_short_and_its_numbers_are_the_runs(run):
    out, text = run
    assert len(text.strip().splitlines()) <= 41
    assert "1,466,\nand disagree on 641" in text
    facts = json.loads((out / "facts.json").read_text())
    before, after = (
        next(r for r in facts["rows"] if r["method"] == m and r["stratum"] == "overall")
        for m in ("none", facts["calibration"]["after"])
    )
    for row in (before, after):
        assert f"{row['ece']:.3f} ({row['floor']:.3f})" in text
        for key in ("nll", "vote_nll"):
            assert re.search(rf"\b{row[key]:.3f}\b", text), key
    assert after["changes"]["nll"]["high"] < 0
    assert after["changes"]["vote_nll"]["high"] < 0


def test_the_page_shows_the_figures_it_names(run):
    out, _ = run
    facts = json.loads((out / "facts.json").read_text())
    named = {c["id"] for name in ("confident_errors", "cases", "splits") for c in facts[name]}
    data = load_atnorm_md()
    shipped = dict(zip(data.ids, data.cases.paths, strict=True))
    assert all(shipped[name] for name in named), "scripts/make_atnorm_md.py makes the thumbnails"
    page = (out / "report.html").read_text()
    assert page.count("data:image/jpeg;base64,") >= len(facts["confident_errors"]) + 3 * 3
    assert not (out / "claims.json").exists()
    noted = json.loads((out / "run.json").read_text())["notes"]
    assert len(noted) == len(set(noted))


def test_every_case_is_there_with_two_answers(run):
    out, _ = run
    table = pd.read_csv(out / "predictions.csv")
    assert len(table) == 2107
    assert table[["p", "p_reader", "p_split"]].notna().all(axis=None)
    assert (out / "calibrator.json").is_file()


def test_each_sentence_is_said_once_and_stands_on_the_page(run):
    out, text = run
    said = sentences(text)
    assert len(said) == len(set(said))
    assert len([line for line in text.splitlines() if line.startswith("What to do?")]) == 1
    page = text_of((out / "report.html").read_text())
    facts = json.loads((out / "facts.json").read_text())
    spoken = " ".join(said)
    for answer in facts["lead"]:
        sentence = " ".join([answer["question"], f"{answer['heading']}.", answer["text"]])
        assert sentence in spoken
        assert sentence in page
