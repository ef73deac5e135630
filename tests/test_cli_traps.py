"""Mistakes in the data that would give wrong numbers in silence: every command speaks of them alike."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from scalecal import audit
from scalecal.cases import Cases, Factor, leakage_note
from scalecal.checks import InputError, ScalecalWarning
from scalecal.cli import app
from scalecal.datasets import simulate
from scalecal.panel import fit_panel
from scalecal.runs.grid import chance_note

pytestmark = pytest.mark.usefixtures("brief_training")

COMMANDS = ("audit", "fit", "compare")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def data():
    return simulate(200, dim=4, auc=0.9, n_groups=40, seed=0)


@pytest.fixture
def call(tmp_path, data):
    """Run a command on the simulated cases with some columns changed."""

    def go(command, *options, **changed):
        columns = {"y": data.y, "votes": data.votes, "n_raters": data.n_raters, **changed}
        if command == "audit":
            columns["label"] = columns.pop("y")
            p = 1 / (1 + np.exp(-data.X[:, 0]))
            pd.DataFrame({"p": p, **columns}).to_csv(tmp_path / "p.csv", index=False)
            return run("audit", tmp_path / "p.csv", "--resamples", 20, *options)
        np.savez(tmp_path / "f.npz", X=data.X, **columns)
        more = ("--method", "none") if command == "fit" else ("--methods", "none", "--seeds", 1)
        return run(command, tmp_path / "f.npz", *more, "--out", tmp_path / "out", *options)

    return go


@pytest.mark.parametrize("command", COMMANDS)
def test_votes_of_the_other_class_are_an_error(call, data, command):
    result = call(command, votes=data.n_raters - data.votes)
    assert isinstance(result.exception, InputError)
    assert "in 200 of 200 cases with a clear majority" in str(result.exception)
    assert "--positive NAME" in str(result.exception)


@pytest.mark.parametrize("command", COMMANDS)
def test_two_classes_in_words_need_a_positive_one(call, data, command):
    words = np.array(["tumour", "benign"])[data.y]
    result = call(command, y=words)
    assert isinstance(result.exception, InputError)
    assert "'benign'" in str(result.exception)
    assert "--positive NAME" in str(result.exception)
    assert call(command, "--positive", "benign", y=words).exit_code == 0
    swapped = call(command, "--positive", "tumour", y=words)
    assert "swapped" in str(swapped.exception)


@pytest.mark.parametrize("command", COMMANDS)
def test_groups_in_train_and_test_are_warned_of(call, command):
    part = np.repeat(["train", "val", "test"], [120, 30, 50])
    groups = np.arange(200) % 25
    with pytest.warns(ScalecalWarning, match=r"share 25 of 25 groups \(50 of 50 test cases\)"):
        result = call(command, split=part, group=groups)
    assert result.exit_code == 0, result.output
    if command != "fit":
        assert "Note: train and test share 25 of 25 groups" in result.output
    quiet = call(command, "--allow-leakage", split=part, group=groups)  # warnings are errors
    assert quiet.exit_code == 0, quiet.output
    assert "25 of 25" not in quiet.output
    assert call(command, split=part, group=np.arange(200)).exit_code == 0


def test_check_warns_of_groups_in_train_and_test(tmp_path):
    from tests.features.made import write_tiles

    files = sorted(write_tiles(tmp_path / "tiles", 4).rglob("*.png"))
    rows = [
        f"{f.relative_to(tmp_path)},{i % 2},p,{'train' if i < 2 else 'test'}"
        for i, f in enumerate(files)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["path,label,group,split", *rows]) + "\n")
    found = run("check", f"table:{tmp_path / 't.csv'}", "--data", tmp_path)
    assert "warning: train and test share 1 of 1 groups" in found.output
    quiet = run("check", f"table:{tmp_path / 't.csv'}", "--data", tmp_path, "--allow-leakage")
    assert quiet.exit_code == 0
    assert "both train and test" not in quiet.output


def test_leakage_needs_groups_and_a_split():
    groups, part = Factor.of(["a", "a", "b", ""]), Factor.of(["train", "val", "test", "test"])
    assert leakage_note(Cases(n=4, groups=groups)) == ""
    assert leakage_note(Cases(n=4, split=part)) == ""
    assert leakage_note(Cases(n=4, groups=groups, split=part)) == ""


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_labels_out_of_order_are_warned_of(tmp_path, command):
    data = simulate(1600, dim=4, auc=0.9, seed=0)
    order = np.random.default_rng(2).permutation(1600)
    more = ("--method", "none-default") if command == "fit" else ("--methods", "none", "--seeds", 2)
    for y, wrong in ((data.y[order], True), (data.y, False)):
        np.savez(tmp_path / "f.npz", X=data.X, y=y)
        line = (command, tmp_path / "f.npz", *more, "--out", tmp_path / "out")
        if wrong:
            with pytest.warns(ScalecalWarning, match=r"no better than chance .* misaligned"):
                assert run(*line).exit_code == 0
        else:
            assert run(*line).exit_code == 0


def test_labels_out_of_order_are_warned_of_in_a_few_hundred_cases(tmp_path):
    data = simulate(400, dim=4, auc=0.9, seed=0)
    order = np.random.default_rng(2).permutation(400)
    np.savez(tmp_path / "f.npz", X=data.X, y=data.y[order])
    line = ("--methods", "none-default", "--seeds", 2, "--out", tmp_path / "out")
    with pytest.warns(ScalecalWarning, match="labels may be misaligned"):
        assert run("compare", tmp_path / "f.npz", *line).exit_code == 0


def test_chance_is_told_from_skill_and_from_too_few_cases():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=300)
    found = [bool(chance_note(y, rng.normal(size=300))) for _ in range(200)]
    assert np.mean(found) > 0.93  # an interval of 95 %, one side of it
    skill = [bool(chance_note(y, y + rng.normal(size=300))) for _ in range(200)]
    assert not any(skill)
    few = y[:60]
    assert "no better than chance" in chance_note(few, -few + rng.normal(size=60))
    skill = [bool(chance_note(few, few + rng.normal(size=60))) for _ in range(200)]
    assert not any(skill)
    assert chance_note(y[:20], -y[:20] + rng.normal(size=20)) == ""
    assert chance_note(np.zeros(300, dtype=int), rng.normal(size=300)) == ""
    three = rng.integers(0, 3, size=600)
    assert "no better than chance" in chance_note(three, rng.normal(size=(600, 3)))
    assert chance_note(three, 2 * np.eye(3)[three] + rng.normal(size=(600, 3))) == ""


def voted(m, n=400, rho=0.2, seed=0):
    """Logits and votes of m readers whose mean they are."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=n)
    p, size = 1 / (1 + np.exp(-z)), 1 / rho - 1
    return z, p, rng.binomial(m, rng.beta(size * p, size * (1 - p)))


def test_an_audit_without_ties_says_so_and_speaks_of_no_empty_stratum(tmp_path):
    _, p, votes = voted(4)
    file = tmp_path / "p.csv"
    pd.DataFrame({"p": p, "votes": votes, "n_raters": 4}).to_csv(file, index=False)
    result = run("audit", file, "--ties", "drop", "--resamples", 50)
    assert f"in {(votes == 2).sum()} they are tied" in result.output
    assert "rho estimated from the votes are too high" in result.output
    assert "No case in stratum low" in result.output
    assert "on low agreement" not in result.output


def test_an_audit_of_single_reads_has_no_strata_and_says_why():
    _, p, votes = voted(1)
    result = audit(votes, p, votes=votes, n_raters=1, n_resamples=50)
    assert [row["name"] for row in result.rows] == ["overall"]
    assert "stratum" not in " ".join(result.sentences)
    assert "No case has votes of two readers, so there are no strata of agreement." in result.notes
    some = np.where(np.arange(400) < 300, 1, 5)
    mixed = audit(votes, p, votes=some * votes, n_raters=some, n_resamples=50)
    note = "300 of 400 cases have no stratum (they have fewer than two votes)"
    assert any(note in line for line in mixed.notes)


def test_dropping_ties_of_even_panels_raises_rho():
    rho = []
    for seed in range(5):
        z, _, votes = voted(4, n=1500, rho=0.15, seed=seed)
        kept = votes != 2
        panels = [
            fit_panel(z[k], votes=votes[k], n_raters=4, interval=False)
            for k in (np.ones(1500, dtype=bool), kept)
        ]
        rho.append([panel.rho for panel in panels])
    whole, without = np.mean(rho, axis=0)
    assert whole == pytest.approx(0.15, abs=0.03)
    assert without > whole + 0.05


def test_p_of_the_other_class_is_noted():
    rng = np.random.default_rng(0)
    p = rng.random(300)
    y = (rng.random(300) < p).astype(int)
    groups = np.arange(300) % 30
    for more in ({}, {"groups": groups}):
        noted = [
            "p looks like the probability of the other class" in str(found)
            for found in (audit(y, q, n_resamples=50, **more) for q in (1 - p, p, rng.random(300)))
        ]
        assert noted == [True, False, False]
    few = audit(y, 1 - p, n_resamples=50, groups=np.arange(300) % 3)  # no interval, no verdict
    assert "other class" not in str(few)


def test_prevalence_of_several_classes_is_the_commonest_one_s():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([2.0, 1.0, 1.0], size=300)
    y = np.array([rng.choice(3, p=row) for row in p])
    row = audit(y, p, n_resamples=50)["overall"]
    assert row["prevalence"] == pytest.approx(np.bincount(y).max() / 300)
    assert row["accuracy"] == pytest.approx((p.argmax(axis=1) == y).mean())
    assert row["prevalence"] != row["accuracy"]
