"""Checklists and the paragraph for papers: numbers of the facts, for every kind of run."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.report import CHECKLISTS, paragraph, report_facts, write_checklist
from scalecal.report.checklists import NOT_KNOWN, checklist_rows

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checklists")
    rng = np.random.default_rng(0)
    n = 240
    z = rng.normal(-0.5, 1.5, n)
    q = 1 / (1 + np.exp(-z))
    votes = rng.binomial(7, q)
    data = pd.DataFrame(
        {
            "id": np.arange(n),
            "p": 1 / (1 + np.exp(-1.5 * z)),
            "label": (votes > 3).astype(int),
            "votes": votes,
            "n_raters": 7,
            "group": rng.integers(0, 40, n),
        }
    )
    data.to_csv(folder / "a.csv", index=False)
    data.assign(p=q)[["id", "p"]].to_csv(folder / "b.csv", index=False)
    data.drop(columns=["votes", "n_raters", "group"]).to_csv(folder / "plain.csv", index=False)
    three = rng.dirichlet(np.ones(3), n)
    labels = [rng.choice(3, p=row) for row in three]
    pd.DataFrame(three, columns=["p_x", "p_y", "p_z"]).assign(
        id=np.arange(n), label=np.array(list("xyz"))[labels]
    ).to_csv(folder / "three.csv", index=False)
    return folder


COMMANDS = {
    "audit": ["audit", "a.csv"],
    "calibration": ["calibrate", "a.csv"],
    "files": ["audit", "a.csv", "b.csv"],
    "plain": ["audit", "plain.csv"],
    "three": ["audit", "three.csv"],
}


@pytest.fixture(scope="module", params=COMMANDS)
def run(request, files):
    out = files / f"run-{request.param}"
    command, *names = COMMANDS[request.param]
    arguments = [
        command,
        *(str(files / name) for name in names),
        "--out",
        str(out),
        "--resamples",
        "100",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return out


def numbers_in(value):
    """All numbers of the facts, as a text may round them, and those in its texts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return set().union(*map(numbers_in, value)) if value else set()
    if isinstance(value, str):
        return set(NUMBER.findall(value))
    if isinstance(value, bool) or value is None:
        return set()
    size = abs(value)
    if isinstance(value, int):
        return {str(size), f"{size:,}"}
    return {f"{size:.2f}", f"{size:.3f}", f"{100 * size:.0f}"}


OF_THE_TEXT = {"95", "1", "0.001"}
"""Numbers that sentences hold themselves: of intervals, of the slope of the offset, of p < 0.001."""


@pytest.mark.parametrize("name", CHECKLISTS)
def test_every_number_of_a_checklist_is_one_of_the_facts(name, run):
    (cell,) = report_facts([run])["cells"]
    known = numbers_in(json.loads((run / "facts.json").read_text())) | OF_THE_TEXT
    known |= {str(len(cell["cases"]))}
    rows = checklist_rows(CHECKLISTS[name], [cell])
    assert [row["item"] for row in rows] == [item.number for item in CHECKLISTS[name].items]
    for row in rows:
        assert row["answer"]
        known_answers = row["answer"].split(NOT_KNOWN)[0]
        assert set(NUMBER.findall(known_answers)) <= known, row
        assert row["where"] or row["answer"].startswith(NOT_KNOWN)
        assert "complian" not in row["answer"]


def test_the_paragraph_has_the_numbers_of_the_facts_and_no_gaps(run):
    (cell,) = report_facts([run])["cells"]
    text = paragraph(cell)
    known = numbers_in(json.loads((run / "facts.json").read_text())) | OF_THE_TEXT
    assert set(NUMBER.findall(text)) <= known
    row = cell["audits"][cell["judged"]]["rows"][0]
    assert f"{row['n']:,} cases" in text
    assert ("the calibration slope was" in text) == (row.get("slope") is not None)
    assert not re.search(r"nan|None|\(\)|\.\.|  | - ", text)


def test_the_command_writes_both_files_and_shows_the_section(run):
    result = CliRunner().invoke(app, ["report", str(run), "--checklist", "tripod-ai"])
    assert result.exit_code == 0, result.output
    table = pd.read_csv(run / "checklist.csv", dtype=str, keep_default_na=False)
    assert list(table.columns) == ["item", "asks", "where", "answer"]
    text = (run / "checklist.md").read_text(encoding="utf-8")
    assert text.count("\n| ") == len(table) + 2
    assert '<section id="checklist">' in (run / "report.html").read_text(encoding="utf-8")
    first = (run / "checklist.csv").read_bytes()
    write_checklist(run, "claim")
    write_checklist(run, "tripod-ai")
    assert (run / "checklist.csv").read_bytes() == first


def test_the_paragraph_is_printed_alone(run):
    page = run / "report.html"
    before = page.stat().st_mtime_ns
    result = CliRunner().invoke(app, ["report", str(run), "--paragraph"])
    assert result.exit_code == 0
    assert result.stdout.strip() == paragraph(report_facts([run])["cells"][0])
    assert page.stat().st_mtime_ns == before


def test_an_unknown_checklist_several_runs_and_edited_facts_are_refused(files):
    out = files / "run-refused"
    arguments = ["audit", str(files / "plain.csv"), "--out", str(out), "--resamples", "50"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    with pytest.raises(InputError, match="Known: tripod-ai, claim"):
        write_checklist(out, "stard")
    several = CliRunner().invoke(app, ["report", str(out), str(out), "--checklist", "claim"])
    assert "one run" in str(several.exception)
    facts = out / "facts.json"
    facts.write_text(facts.read_text().replace('"n_bins"', '"n_bin"', 1))
    for options in (["--checklist", "claim"], ["--paragraph"]):
        edited = CliRunner().invoke(app, ["report", str(out), *options])
        assert isinstance(edited.exception, InputError)
        assert "changed since" in str(edited.exception)
    assert not (out / "checklist.md").exists()


def test_a_checklist_of_an_older_audit_goes_with_it(files):
    out = files / "run-again"
    arguments = ["audit", str(files / "plain.csv"), "--out", str(out), "--resamples", "50"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    write_checklist(out, "claim")
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert not (out / "checklist.md").exists()


def test_levels_of_columns_answer_the_items_on_clusters_and_fairness(files):
    out = files / "run-levels"
    arguments = ["audit", str(files / "plain.csv"), "--out", str(out), "--resamples", "50"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    (cell,) = report_facts([out])["cells"]
    spread = {"oe": {"k": 3, "reason": "", "new_low": 0.61, "new_high": 1.72}}
    levels = [{"name": name, "n": 40, "events": 9} for name in "ABC"]
    column = {"column": "site", "levels": levels, "stand_out": ["B"], "spread": spread}
    cell["audits"][cell["judged"]]["by"] = [{**column, "test": {"p_corrected": 0.012}}]
    rows = {row["item"]: row for row in checklist_rows(CHECKLISTS["tripod-ai"], [cell])}
    for item in ("12d", "14", "23b"):
        assert "site: 3 levels" in rows[item]["answer"]
        assert "standing out: B" in rows[item]["answer"]
        assert "0.61 to 1.72 (95 % prediction interval)" in rows[item]["answer"]
    assert "site=B: n = 40, 9 events" in rows["23a"]["answer"]
    # A reason stands where a number does not.
    spread["oe"] = {"k": 3, "reason": "too few"}
    rows = {row["item"]: row for row in checklist_rows(CHECKLISTS["tripod-ai"], [cell])}
    assert "prediction interval" not in rows["23b"]["answer"]
