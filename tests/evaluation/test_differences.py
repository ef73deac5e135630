"""Answers files side by side: one computation behind Python, terminal, folder and page."""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from scalecal import audit, compare_audits, metrics
from scalecal.cases import Answers, Cases, Factor, Predictions
from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.evaluation.changes import _tail
from scalecal.evaluation.evaluations import evaluate_files
from scalecal.evaluation.folder import read_runs
from scalecal.evaluation.words import difference_sentences
from scalecal.inference.units import two_sided_p
from scalecal.io import read_common_predictions

SLOW = os.environ.get("SCALECAL_SLOW") == "1"


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    x = 2 * rng.normal(size=400)
    votes = rng.binomial(5, sigmoid(x))
    frame = pd.DataFrame({"id": [f"P{i // 4}_{i}" for i in range(400)], "p": sigmoid(3 * x)})
    frame["label"], frame["votes"], frame["n_raters"] = votes // 3, votes, 5
    frame.to_csv(folder / "sharp.csv", index=False)
    other = frame[["id"]].assign(p=sigmoid(1.5 * x), p_reader=sigmoid(x))
    other.sample(frac=0.9, random_state=0).to_csv(folder / "soft.csv", index=False)
    frame[["id", "p"]].assign(p=sigmoid(3 * x - 0.01)).to_csv(folder / "near.csv", index=False)
    return [folder / f"{name}.csv" for name in ("sharp", "soft", "near")]


@pytest.fixture(scope="module")
def written(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "run"
    result = run("audit", *files, "--out", out, "--resamples", 300, "--group-regex", "^(P.+)_")
    assert result.exit_code == 0, result.output
    return out, result.output


def test_terminal_folder_and_python_have_the_same_numbers(files, written):
    out, said = written
    both = read_common_predictions(files, group_regex="^(P.+)_")
    facts = evaluate_files(both, n_resamples=300).facts
    stored = json.loads((out / "facts.json").read_text())
    assert stored["differences"] == facts["differences"]
    table = pd.read_csv(out / "differences.csv")
    expected = pd.Series([row["difference"] for row in facts["differences"]], dtype=float)
    assert table["difference"].equals(expected.rename("difference"))
    for sentence in difference_sentences(facts).values():
        assert sentence in said
    audits = [
        audit(
            own.cases.y,
            own.p,
            votes=own.cases.votes,
            groups=own.cases.groups.values,
            p_reader=own.p_reader,
            n_resamples=300,
        )
        for own in map(both.of, both.methods)
    ]
    direct = compare_audits(*audits, names=both.methods, n_resamples=300).differences
    pd.testing.assert_frame_equal(direct[table.columns], table, check_dtype=False, rtol=1e-12)
    # The page's paired changes are the same draws.
    row = next(r for r in facts["rows"] if (r["method"], r["stratum"]) == ("soft.csv", "low"))
    same = table.set_index(["model", "stratum", "metric"]).loc["soft.csv", "low", "nll"]
    assert row["changes"]["nll"]["low"] == pytest.approx(same["low"], rel=1e-12)


def test_every_difference_is_that_of_the_plain_metrics(files):
    both = read_common_predictions(files)
    first, second, _ = map(both.of, both.methods)
    table = pd.DataFrame(evaluate_files(both, n_resamples=50).facts["differences"])
    table = table.set_index(["model", "stratum", "metric"])["difference"]
    y, votes = first.cases.y, first.cases.votes
    for name in ("ece", "nll", "brier", "auc", "accuracy"):
        function = getattr(metrics, name)
        expected = function(y, second.p) - function(y, first.p)
        assert table["soft.csv", "overall", name] == pytest.approx(expected, abs=1e-12)
    expected = metrics.vote_nll(votes, second.p_reader) - metrics.vote_nll(votes, first.p)
    assert table["soft.csv", "overall", "vote_nll"] == pytest.approx(expected, abs=1e-12)


def test_holm_is_over_all_that_is_judged(files):
    facts = evaluate_files(read_common_predictions(files), n_resamples=300).facts
    table = pd.DataFrame(facts["differences"])
    tested = [key for key, metric in metrics.METRICS.items() if metric.tested]
    assert table.loc[~table["metric"].isin(tested), "p_holm"].isna().all()
    judged = table[table["metric"].isin(tested)]
    whole = judged["stratum"] == "overall"
    assert whole.sum() == 2 * len(tested)
    for part in (judged[whole], judged[~whole]):
        # Where counting resamples did not end, the adjusted p-values are Holm's of the plain ones, or larger.
        low = part["p_value"] <= 2 / 301
        refined = part["p_value"].where(~low, 0.0)
        expected = metrics.holm(refined.to_numpy(float))
        assert (part["p_holm"][~low] >= expected[~low.to_numpy()] - 1e-12).all()
        assert (part["p_holm"][low] <= 2 / 301 * len(part)).all()


@pytest.mark.parametrize("units", [8, 30, 3000])
def test_p_values_have_the_tails_of_student(units):
    """Resamples of a mean difference of so many units, widened as their intervals are."""
    law = stats.t(units - 1)
    spread = law.ppf(0.975) / stats.norm.ppf(0.975) * stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
    for statistic in (2.5, 4.0, 8.0):
        samples = statistic + spread
        counted = two_sided_p(samples)
        p = _tail(samples, counted, units)
        assert p == pytest.approx(2 * law.sf(statistic), rel=0.15)
        assert p >= counted or counted <= 2 / 2001


def test_the_folder(written):
    out, said = written
    names = {path.name for path in out.iterdir()}
    assert {f"audit_{name}.csv.json" for name in ("sharp", "soft", "near")} <= names
    assert {"differences.csv", "facts.json", "report.html", "run.json"} <= names
    info = json.loads((out / "run.json").read_text())
    assert list(info["files"]) == ["sharp.csv", "soft.csv", "near.csv"]
    assert info["options"] == {"n_resamples": 300, "group_regex": "^(P.+)_"}
    assert any("360 cases are in every file" in note for note in info["notes"])
    (read,) = read_runs([out])
    assert read.facts[0]["baseline"] == "sharp.csv"
    assert read.facts[0]["shown"] == ["sharp.csv", "soft.csv", "near.csv"]
    page = (out / "report.html").read_text()
    for name in ("sharp.csv", "soft.csv", "near.csv"):
        assert name in page
    assert "softening)" not in page
    assert "no id" not in said


def test_a_folder_without_its_facts_is_refused_with_the_command_that_writes_them(written):
    out, _ = written
    kept = (out / "facts.json").rename(out / "facts.kept")
    with pytest.raises(InputError, match=r"no facts\.json at .* To write it again: scalecal "):
        read_runs([out])
    kept.rename(out / "facts.json")


def test_tables_fit_a_terminal(written):
    _, said = written
    tables = said.split("\n\nsoft.csv: ")[0]
    assert max(map(len, tables.splitlines())) <= 100


def test_streams_are_refused(files):
    result = run("audit", *files, "--stream")
    assert result.exit_code != 0
    assert "--stream keeps counts, but files are compared case by case" in str(result.exception)


def test_the_first_file_is_the_baseline_whatever_it_is_called(tmp_path, files):
    frame = pd.read_csv(files[0])
    for name in ("scale-shuffled.csv", "none.csv"):
        frame.to_csv(tmp_path / name, index=False)
    both = read_common_predictions([tmp_path / "scale-shuffled.csv", tmp_path / "none.csv"])
    facts = evaluate_files(both, n_resamples=50).facts
    assert facts["baseline"] == "scale-shuffled.csv"
    assert facts["about"] == {}
    assert list(difference_sentences(facts).values()) == [
        "none.csv does not clearly differ from scale-shuffled.csv in ECE, label NLL, vote NLL, Brier score, "
        "AUC or accuracy."
    ]


def pair(n=200, classes=2, seed=0, groups=None, one_class=False):
    rng = np.random.default_rng(seed)
    if classes == 2:
        p = [rng.uniform(size=n) for _ in range(2)]
        y = (rng.uniform(size=n) < p[0]).astype(int)
    else:
        p = [rng.dirichlet(np.ones(classes), n) for _ in range(2)]
        y = np.array([rng.choice(classes, p=row) for row in p[0]])
    if one_class:
        y[:] = 0
    factor = None if groups is None else Factor.of(np.arange(n) % groups)
    cases = Cases(n=n, classes=tuple(map(str, range(classes))), y=y, groups=factor)
    return Predictions(cases, {("a", 0): Answers(p[0]), ("b", 0): Answers(p[1])})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 5}, "There are too few cases or groups to distinguish b from a."),
        ({"groups": 3}, "There are too few cases or groups to distinguish b from a."),
        ({"classes": 3}, "higher label NLL"),
        ({"one_class": True}, "ECE"),
        ({"n": 1}, "There are too few cases or groups to distinguish b from a."),
    ],
)
def test_degenerate_files(options, said):
    comparison = evaluate_files(pair(**options), n_resamples=100)
    text = str(comparison)
    assert said in text
    assert "nan" not in text.lower()
    json.dumps(comparison.facts, allow_nan=False)


def test_names_of_audits():
    y, p = np.tile([0, 1], 20), np.linspace(0.1, 0.9, 40)
    audits = [audit(y, p**k, n_resamples=20) for k in (1, 2, 3)]
    assert compare_audits(*audits, n_resamples=50).differences["model"].unique().tolist() == [
        "b",
        "c",
    ]
    with pytest.raises(InputError, match="3 audits need as many different names"):
        compare_audits(*audits, names=["x", "x", "y"])


@pytest.mark.validity
def test_equal_models_are_seldom_told_apart():
    """Two models of the same quality: a clear difference is found in at most 5 % of studies."""
    runs, found = (1000 if SLOW else 80), 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        x = 1.5 * rng.normal(size=250)
        y = (rng.uniform(size=250) < sigmoid(x)).astype(int)
        both = [
            audit(y, sigmoid(1.2 * x + 0.7 * rng.normal(size=250)), n_resamples=20) for _ in "ab"
        ]
        table = compare_audits(*both, n_resamples=300)
        found += bool((table.differences["p_holm"] < 0.05).any())
    assert found / runs < 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / runs)
