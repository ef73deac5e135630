"""`scalecal calibrate`: what it writes is read again, and gives the numbers it reported."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.evaluation.recalibration import Recalibrator
from scalecal.io import read_predictions
from scalecal.report import report_facts

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, [str(a) for a in arguments], catch_exceptions=True)


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    x = 1.5 * rng.normal(size=240)
    votes = rng.binomial(7, rng.beta(5 * expit(x), 5 * expit(-x)))
    return pd.DataFrame(
        {
            "id": [f"case {i}" for i in range(240)],
            "p": expit(4 * x + 0.5),
            "label": (votes >= 4).astype(int),
            "votes": votes,
            "n_raters": 7,
            "group": [f"patient {i // 3}" for i in range(240)],
        }
    )


def written(frame, path):
    frame.to_csv(path, index=False)
    return path


def test_the_file_it_writes_has_the_numbers_it_reports(tmp_path, frame):
    file, out = written(frame, tmp_path / "p.csv"), tmp_path / "out"
    done = run("calibrate", file, "--out", out, "--resamples", 100)
    assert done.exit_code == 0, done.output
    names = {p.name for p in out.iterdir()}
    assert {"predictions.csv", "calibrator.json", "facts.json", "report.html", "run.json"} < names
    assert {"audit_none.json", "audit_auto.json", "predictions.parquet", "results.csv"} < names
    again = tmp_path / "again"
    assert run("audit", out / "predictions.csv", "--resamples", 100, "--out", again).exit_code == 0
    before = tmp_path / "before"
    assert run("audit", file, "--resamples", 100, "--out", before).exit_code == 0
    facts = json.loads((out / "facts.json").read_text())
    for method, folder in (("none", before), ("auto", again)):
        audit = json.loads((folder / "audit.json").read_text())
        assert audit["strata"] == facts["audits"][method]["rows"]
        for key in ("difficulty", "notes"):
            assert audit[key] == facts["audits"][method][key]
        assert audit["verdict"]["headline"] == facts["audits"][method]["verdict"]["headline"]
        own = json.loads((out / f"audit_{method}.json").read_text())
        assert own["strata"] == audit["strata"]
        for key in ("badge", "p", "error", "failing"):
            assert own["verdict"][key] == audit["verdict"][key]
        # Only calibrate knows the estimation error of the calibrator that it keeps.
        assert own["verdict"]["error_high"] >= audit["verdict"]["error_high"]
    assert f"--apply {out / 'calibrator.json'}" in done.output
    assert facts["shown"] == ["none", "auto"]
    assert facts["calibration"]["after"] == "auto"


def test_a_page_is_made_of_the_facts_and_not_without_them(tmp_path, frame):
    out = tmp_path / "out"
    assert (
        run("calibrate", written(frame, tmp_path / "p.csv"), "--out", out, "--resamples", 100)
    ).exit_code == 0
    assert run("report", out).exit_code == 0
    assert report_facts([out])["cells"][0]["shown"] == ["none", "auto"]
    (out / "facts.json").unlink()
    with pytest.raises(InputError, match=r"no facts\.json at .* To write it again: scalecal "):
        report_facts([out])


def test_applied_to_the_same_and_to_new_cases(tmp_path, frame):
    file, out = written(frame, tmp_path / "p.csv"), tmp_path / "out"
    assert run("calibrate", file, "--out", out, "--method", "platt").exit_code == 0
    saved = out / "calibrator.json"
    new = frame.drop(columns=["label", "votes", "n_raters", "group"])
    new["id"] = [f"new {i}" for i in range(len(new))]
    bare, away = written(new, tmp_path / "new.csv"), tmp_path / "away"
    done = run("calibrate", bare, "--apply", saved, "--out", away)
    assert done.exit_code == 0, done.output
    assert "no labels" in done.output
    table = pd.read_csv(away / "predictions.csv")
    made = Recalibrator.load(saved)
    np.testing.assert_allclose(table["p"], made.predict(frame["p"]), rtol=1e-12)
    own = made.apply(read_predictions(bare, keep_unlabelled=True, classes=made.classes))
    np.testing.assert_allclose(table["p_reader"], own.p_reader, rtol=1e-12)
    assert {p.name for p in away.iterdir()} == {"predictions.csv", ".scalecal.json"}
    # With labels: before and after, and the page; without --out only said.
    labelled = written(new.assign(label=frame["label"]), tmp_path / "labelled.csv")
    done = run("calibrate", labelled, "--apply", saved, "--out", tmp_path / "page")
    assert done.exit_code == 0, done.output
    assert "Before: " in done.output
    assert "After recalibration: " in done.output
    assert (tmp_path / "page" / "report.html").is_file()
    assert run("calibrate", labelled, "--apply", out).exit_code == 0


def test_votes_in_a_second_file_and_published_numbers(tmp_path, frame):
    plain = frame[["id", "p", "label"]]
    file = written(plain, tmp_path / "p.csv")
    votes = written(frame[["id", "votes", "n_raters"]], tmp_path / "votes.csv")
    for name, options in (
        ("votes", ("--votes", votes)),
        ("kappa", ("--n-raters", 7, "--kappa", 0.4, "--vote-share", 0.5)),
    ):
        out = tmp_path / name
        done = run("calibrate", file, *options, "--method", "platt", "--out", out)
        assert done.exit_code == 0, done.output
        table = pd.read_csv(out / "predictions.csv")
        assert {"p_reader", "rho", "p_split"} < set(table.columns)
        assert run("audit", out / "predictions.csv").exit_code == 0


def test_all_that_the_file_says_of_its_cases_is_kept(tmp_path, frame):
    frame["stratum"] = np.where(np.arange(240) % 2, "b", "a")
    frame["split"] = "test"
    frame["label"] = np.where(frame["label"] == 1, "SSA", "HP")
    frame.loc[200:, ["label", "votes", "n_raters"]] = None
    file, out = written(frame, tmp_path / "p.csv"), tmp_path / "out"
    done = run("calibrate", file, "--out", out, "--positive", "SSA", "--method", "temperature")
    assert done.exit_code == 0, done.output
    table = pd.read_csv(out / "predictions.csv")
    assert table["id"].tolist() == frame["id"].tolist()
    for name in ("group", "stratum", "split"):
        assert table[name].tolist() == frame[name].tolist()
    assert table["label"].isna().sum() == 40
    assert table["p"].between(0, 1).all()
    assert "40 of 240 cases have no label" in done.output
    audited = run("audit", out / "predictions.csv")
    assert audited.exit_code == 0, audited.output
    assert "40 of 240 cases without a label were left out" in audited.output
    assert Recalibrator.load(out).classes == ("HP", "SSA")


def test_classes_must_be_those_of_the_calibrator(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], size=120)
    table = pd.DataFrame(p, columns=["p_A", "p_B", "p_C"])
    table["label"] = [rng.choice(list("ABC"), p=row) for row in p]
    out = tmp_path / "out"
    done = run("calibrate", written(table, tmp_path / "p.csv"), "--out", out)
    assert done.exit_code == 0, done.output
    saved = out / "calibrator.json"
    # Columns in another order are the same file.
    turned = table[["label", "p_C", "p_A", "p_B"]]
    here, there = tmp_path / "here", tmp_path / "there"
    for file, place in ((table, here), (turned, there)):
        file = written(file.drop(columns="label"), tmp_path / f"{place.name}.csv")
        assert run("calibrate", file, "--apply", saved, "--out", place).exit_code == 0
    assert (here / "predictions.csv").read_bytes() == (there / "predictions.csv").read_bytes()
    for other, says in (
        (table.rename(columns={"p_C": "p_D"}), "expected are 'A', 'B', 'C'"),
        (pd.DataFrame({"p": [0.5]}), "expected are 3 classes"),
        (table.assign(label="D"), "column 'label' has 'D', but the classes are 'A', 'B', 'C'"),
    ):
        failed = run("calibrate", written(other, tmp_path / "other.csv"), "--apply", saved)
        assert failed.exit_code != 0
        assert says in str(failed.exception)


def test_nothing_is_overwritten_and_mistakes_are_named_before_any_work(tmp_path, frame):
    file, out = written(frame, tmp_path / "p.csv"), tmp_path / "out"
    assert "--out DIR is missing" in str(run("calibrate", file).exception)
    out.mkdir()
    (out / "predictions.csv").write_text("mine")
    assert "did not write" in str(run("calibrate", file, "--out", out).exception)
    (out / "predictions.csv").unlink()
    assert run("calibrate", file, "--out", out, "--method", "platt").exit_code == 0
    saved = out / "calibrator.json"
    assert "it is the input" in str(
        run("calibrate", file, "--apply", saved, "--out", out).exception
    )
    assert "--kappa cannot be used with --apply" in str(
        run("calibrate", file, "--apply", saved, "--kappa", 0.5).exception
    )
    assert "no file at" in str(run("calibrate", file, "--apply", tmp_path / "no.json").exception)
    unlabelled = written(frame[["id", "p"]], tmp_path / "bare.csv")
    assert "no column 'label'" in str(
        run("calibrate", unlabelled, "--out", tmp_path / "x").exception
    )
    assert not (tmp_path / "x").exists()


def test_the_same_bytes_again(tmp_path, frame):
    file = written(frame.head(60), tmp_path / "p.csv")
    for name in ("a", "b"):
        done = run("calibrate", file, "--out", tmp_path / name, "--method", "platt")
        assert done.exit_code == 0, done.output
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
