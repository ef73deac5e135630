"""Patients from ids: every case has one, or nothing is read."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from scalecal.cases import Cases
from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.io import read_predictions
from scalecal.io.features import read_features

IDS = ["P01_a", "P01_b", "P02_a", "P10_c"]


def cases(ids=IDS):
    return Cases(n=len(ids), ids=np.array(ids))


@pytest.mark.parametrize(
    "pattern",
    [r"^(P\d+)_", r"(P\d+)(_.)", r"^(P)(?P<group>\d+)", r"([^_]+)"],
)
def test_the_first_group_or_the_one_named_group(pattern):
    found = cases().grouped_by(pattern)
    which = "group" if "?P<group>" in pattern else 1
    assert found.groups.values.tolist() == [re.search(pattern, name)[which] for name in IDS]
    assert f"3 groups of 4 cases (by '{pattern}'" in found.notes[0]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"^(P\d+_", "is not a regular expression: missing \\)"),
        (r"^P\d+", "has no group: put parentheses"),
        (r"^(P0\d)_", "finds no group in 1 of 4 ids, such as 'P10_c'"),
        (r"^(X?)", "finds no group in 4 of 4 ids, such as 'P01_a'"),  # an empty group is none
        (r"^P(9)?", "finds no group in 4 of 4 ids"),
    ],
)
def test_nothing_is_a_group_of_its_own_in_silence(pattern, message):
    with pytest.raises(InputError, match=message):
        cases().grouped_by(pattern)


def test_ids_are_needed_and_groups_must_not_be_there():
    with pytest.raises(InputError, match="no ids"):
        Cases(n=2).grouped_by("(.)")
    with pytest.raises(InputError, match="have groups already"):
        cases().grouped_by("(P)").grouped_by("(P)")


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": [f"P{i // 4:02}_{i % 4}" for i in range(120)]})
    frame["label"] = rng.integers(0, 2, 120)
    frame["p"] = np.clip(frame["label"] * 0.4 + 0.6 * rng.random(120), 0, 1)
    for k in range(3):
        frame[f"f{k}"] = frame["label"] + rng.normal(size=120)
    path = tmp_path / "p.csv"
    frame.to_csv(path, index=False)
    return path


def test_readers_take_it(table):
    by_hand = pd.read_csv(table)["id"].str[:3].tolist()
    assert read_predictions(table, group_regex="^(P..)").cases.groups.values.tolist() == by_hand
    assert read_features(table, group_regex="^(P..)").groups.tolist() == by_hand
    frame = pd.read_csv(table).assign(patient="x")
    frame.to_csv(table, index=False)
    with pytest.raises(InputError, match=r"p.csv: the cases have groups already"):
        read_predictions(table, group_regex="^(P..)", columns={"group": "patient"})


def test_commands_take_it(table, tmp_path):
    def run(*arguments):
        return CliRunner().invoke(app, [str(a) for a in arguments])

    found = run("audit", table, "--group-regex", "^(P[0-9]+)_", "--out", tmp_path / "audit")
    assert found.exit_code == 0, found.output
    assert "30 groups of 120 cases" in found.output
    assert '"group_regex": "^(P[0-9]+)_"' in (tmp_path / "audit" / "run.json").read_text()
    refused = run("audit", table, "--group-regex", "^(P[0-9]+)_", "--stream")
    assert "--group-regex" in str(refused.exception)
    fitted = run(
        *("fit", table, "--method", "none", "--group-regex", "^(P[0-9]+)_"),
        *("--out", tmp_path / "probe"),
    )
    assert fitted.exit_code == 0, fitted.output
    assert "30 groups of 120 cases" in (tmp_path / "probe" / "probe.json").read_text()


def test_check_takes_it(tmp_path):
    from PIL import Image

    for i in range(4):
        path = tmp_path / "ab"[i % 2] / f"P{i // 3}_{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (20 * i, 0, 0)).save(path)
    found = CliRunner().invoke(app, ["check", f"folder:{tmp_path}", "--group-regex", "(P[0-9])_"])
    assert found.exit_code == 0, found.output
    assert "groups: 2" in found.output
