import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from scalecal import audit, metrics
from scalecal.checks import InputError
from scalecal.cli import app

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, [str(a) for a in arguments], catch_exceptions=True)


def script(*arguments):
    """The installed command in a process of its own: exit code and streams as a user sees them."""
    return subprocess.run(
        [sys.executable, "-m", "scalecal", *map(str, arguments)], capture_output=True, text=True
    )


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    x = 2 * rng.normal(size=240)
    votes = rng.binomial(7, 1 / (1 + np.exp(-x)))
    return pd.DataFrame(
        {
            "id": [f"case {i}" for i in range(240)],
            "p": 1 / (1 + np.exp(-1.5 * x)),
            "label": (votes >= 4).astype(int),
            "votes": votes,
            "n_raters": 7,
        }
    )


@pytest.mark.usefixtures("drawn_figures")
def test_audit_writes_the_contract(tmp_path, frame):
    file, out = tmp_path / "p.csv", tmp_path / "out"
    frame.to_csv(file, index=False)
    result = run("audit", file, "--out", out)
    assert result.exit_code == 0, result.output
    assert {"audit.json", "audit.csv", "reliability.svg", "reliability.png"} <= {
        p.name for p in out.iterdir()
    }
    loaded = json.loads((out / "audit.json").read_text())
    assert [s["name"] for s in loaded["strata"]] == ["overall", "high", "medium", "low"]
    assert {"name", "n", "ece", "floor", "excess"} <= set(loaded["strata"][0])
    assert loaded["strata"][0]["ece"] == pytest.approx(metrics.ece(frame["label"], frame["p"]))
    table = pd.read_csv(out / "audit.csv")
    assert table["ece"].tolist() == pytest.approx([s["ece"] for s in loaded["strata"]])
    assert (out / "reliability.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("drawn_figures")
def test_same_input_same_bytes(tmp_path, frame):
    file = tmp_path / "p.csv"
    frame.to_csv(file, index=False)
    for name in ("a", "b"):
        assert run("audit", file, "--resamples", 50, "--out", tmp_path / name).exit_code == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_votes_in_long_form_give_the_same_audit(tmp_path, frame):
    file, votes = tmp_path / "p.parquet", tmp_path / "votes.csv"
    frame[["id", "p"]].to_parquet(file)
    rows = [
        (case, f"reader {j}", int(j < v))
        for case, v in zip(frame["id"], frame["votes"], strict=True)
        for j in range(7)
    ]
    pd.DataFrame(rows, columns=["id", "rater", "label"]).sample(frac=1, random_state=1).to_csv(
        votes, index=False
    )
    assert run("audit", file, "--votes", votes, "--out", tmp_path / "out").exit_code == 0
    loaded = json.loads((tmp_path / "out" / "audit.json").read_text())
    expected = audit(frame["label"], frame["p"], votes=frame["votes"], n_raters=7).to_dict()
    assert loaded["strata"] == expected["strata"]


@pytest.mark.parametrize("names", [("s{}", "patient"), ("{}", "numbers")])
def test_names_of_groups_and_strata_stay_with_their_cases(tmp_path, frame, names):
    """Cases left out by --split or for a tie must not shift the names of the others."""
    rng = np.random.default_rng(1)
    group = [names[0].format(g) for g in rng.integers(0, 60, len(frame))]
    split = np.where(rng.random(len(frame)) < 0.7, "train", "test")
    stratum = np.array(["site b", "site a", "site c"])[rng.integers(0, 3, len(frame))]
    frame = frame.assign(group=group, split=split, stratum=stratum)
    frame.loc[frame["split"] == "test", "stratum"] = "site c"
    frame.loc[::7, ["label", "votes", "n_raters"]] = [None, 3, 6]
    frame.to_csv(tmp_path / "p.csv", index=False)
    out = tmp_path / "out"
    result = run(
        "audit",
        tmp_path / "p.csv",
        "--split",
        "test",
        "--ties",
        "drop",
        "--allow-leakage",
        "--out",
        out,
        "--resamples",
        20,
    )
    assert result.exit_code == 0, result.output
    written = pd.read_parquet(out / "cases.parquet").set_index("id")
    kept = frame.drop(frame.index[::7]).query("split == 'test'").set_index("id")
    assert written.index.tolist() == kept.index.tolist()
    assert written["group"].tolist() == kept["group"].tolist()
    assert written["stratum"].tolist() == kept["stratum"].tolist()
    assert written["label"].astype(int).tolist() == kept["label"].astype(int).tolist()


def test_other_column_names_and_options(tmp_path, frame):
    file = tmp_path / "p.csv"
    frame.rename(columns={"p": "score", "label": "truth"}).to_csv(file, index=False)
    result = run(
        *("audit", file, "--columns", "p=score,label=truth"),
        *("--bins", 10, "--seed", 3, "--out", tmp_path / "out"),
    )
    assert result.exit_code == 0, result.output
    meta = json.loads((tmp_path / "out" / "audit.json").read_text())["meta"]
    assert (meta["n_bins"], meta["seed"]) == (10, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.assign(p=f["p"] + 1), "Did you pass logits"),
        (lambda f: f.assign(votes=9), "n_raters"),
        (lambda f: f.assign(id="same"), "same"),
        (lambda f: f.drop(columns="p"), "p"),
        (lambda f: f.iloc[:0], "no rows|empty|no case"),
    ],
)
def test_bad_files_are_one_line_and_leave_nothing(tmp_path, frame, change, message):
    file, out = tmp_path / "p.csv", tmp_path / "out"
    change(frame).to_csv(file, index=False)
    result = run("audit", file, "--out", out)
    assert isinstance(result.exception, InputError)
    assert not out.exists()
    with pytest.raises(InputError, match=message):
        raise result.exception


def test_errors_are_one_line_with_exit_code_two(tmp_path):
    done = script("audit", tmp_path / "missing.csv")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_stream_takes_every_option_or_refuses_it(tmp_path, frame):
    file, votes = tmp_path / "p.csv", tmp_path / "v.csv"
    frame["label"] = np.where(frame["label"] == 1, "SSA", "HP")
    frame.to_csv(file, index=False)
    frame[["id", "votes", "n_raters"]].to_csv(votes, index=False)
    base = ("audit", file, "--positive", "SSA", "--bins", 10, "--resamples", 20, "--seed", 3)
    base += ("--ties", "drop", "--columns", "id=id", "--columns", "group=id")
    result = run(*base, "--stream", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    meta = json.loads((tmp_path / "out" / "audit.json").read_text())["meta"]
    assert (meta["n_bins"], meta["n_resamples"], meta["seed"]) == (10, 20, 3)
    for more, message in (
        (("--votes", votes), f"--votes {votes} cannot be used with --stream"),
        (("--votes", tmp_path / "none.csv"), "cannot be used with --stream"),
        (("--columns", "rater=reader"), "give their file with --votes"),
        (("--resamples", 5), "n_resamples must be at least 20"),
        (("--ties", "odd"), "ties must be one of"),
        (("--positive", "HB"), "the positive class has 'HB', but the classes are 'HP', 'SSA'"),
        (("--n-raters", 7), "n_raters must not be given"),
    ):
        result = run(*base, "--stream", *more)
        assert isinstance(result.exception, InputError), more
        assert message in str(result.exception)
        assert "\n" not in str(result.exception)


def test_an_audit_leaves_nothing_of_an_earlier_one(tmp_path, frame):
    file, out = tmp_path / "p.csv", tmp_path / "out"
    frame.to_csv(file, index=False)
    whole = ("audit", file, "--resamples", 20, "--out", out)
    assert run(*whole).exit_code == 0
    first = {p.name for p in out.iterdir()}
    (out / "mine.txt").write_text("kept")
    assert run(*whole, "--stream").exit_code == 0
    shared = {".scalecal.json", "audit.json", "audit.csv", "decision.csv", "facts.json"}
    shared |= {"reliability.png", "reliability.svg"}
    assert {p.name for p in out.iterdir()} == shared | {"mine.txt"}
    assert run(*whole).exit_code == 0
    assert {p.name for p in out.iterdir()} == first | {"mine.txt"}


def test_unwritable_output_is_an_error(tmp_path, frame):
    file = tmp_path / "p.csv"
    frame.to_csv(file, index=False)
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    result = run("audit", file, "--out", blocked / "out")
    assert isinstance(result.exception, InputError)


def test_plan_prints_a_table_and_writes_a_curve(tmp_path):
    options = ("--simulations", 20, "--readers", "3,7", "--out", tmp_path / "plan")
    result = run("plan", "audit", *options)
    assert result.exit_code == 0, result.output
    assert {"plan.csv", "plan.svg", "plan.png"} <= {p.name for p in (tmp_path / "plan").iterdir()}
    assert isinstance(run("plan", "audit", "--readers", "three").exception, InputError)


def test_plan_votes_prints_a_table_and_writes_it(tmp_path):
    options = ("--simulations", 20, "--rho", "0.2", "--voted", 30, "--labelled", 100)
    result = run("plan", "votes", *options, "--out", tmp_path / "plan")
    assert result.exit_code == 0, result.output
    assert "Votes needed to tell how one of 7 readers votes" in result.output
    assert "rho 0.2: 0 of 20 simulations" in result.stderr
    table = pd.read_csv(tmp_path / "plan" / "votes.csv")
    assert table["n_voted"].tolist() == [0, 0, 0, 30, 30]
    assert len(pd.read_csv(tmp_path / "plan" / "votes_needed.csv")) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--readers", 1), "nothing to add"),
        (("--rho", "high"), "--rho must be numbers with commas"),
    ],
)
def test_plan_votes_names_bad_options(options, message):
    assert message in str(run("plan", "votes", *options).exception)


def test_help_imports_nothing_heavy():
    code = (
        "import sys, scalecal.cli; "
        "heavy = {'pandas', 'scipy', 'sklearn', 'matplotlib', 'pyarrow', 'torch'}; "
        "heavy &= set(sys.modules); "
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_version_and_help():
    assert "scalecal" in run("--version").output
    assert run("--help").exit_code == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_file_with_both_answers(tmp_path, frame, stream):
    file, out = tmp_path / "p.csv", tmp_path / "out"
    z = np.log(frame["p"]) - np.log1p(-frame["p"])
    frame["one_reader"], frame["icc"] = 1 / (1 + np.exp(-z / 1.5)), 0.1
    frame.to_csv(file, index=False)
    named = ("--columns", "p_reader=one_reader,rho=icc", "--resamples", 50)
    result = run("audit", file, *named, "--out", out, *(["--stream"] if stream else []))
    assert result.exit_code == 0, result.output
    assert "p_reader compared with votes" in result.output
    assert "On the readers' 1,680 votes the vote NLL is" in result.output
    loaded = json.loads((out / "audit.json").read_text())
    assert (loaded["meta"]["votes_judge"], loaded["meta"]["rho"]) == ("p_reader", 0.1)
    first, votes = loaded["strata"][0], {"n_raters": 7}
    assert first["nll"] == pytest.approx(metrics.nll(frame["label"], frame["p"]), rel=1e-4)
    for name, options in (("vote_nll", {}), ("count_log_score", {"rho": 0.1})):
        function = getattr(metrics, name)
        expected = function(frame["votes"], frame["one_reader"], **votes, **options)
        assert first[name] == pytest.approx(expected, rel=1e-4)
    if not stream:
        kept = pd.read_parquet(out / "predictions.parquet")
        assert kept["p_reader"].tolist() == pytest.approx(frame["one_reader"].tolist())
        assert set(kept["rho"]) == {0.1}
    alone = run("audit", file, "--resamples", 50)
    assert "p compared with readers' votes" in alone.output
    assert "right for the majority of 7 readers is more extreme than one reader's" in alone.output


@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_a_gate_fails_with_code_three_and_a_line_each(tmp_path, frame, stream):
    file, out = tmp_path / "p.csv", tmp_path / "out"
    frame.to_csv(file, index=False)
    base = ("audit", file, "--resamples", 20, *stream)
    gate = ("--fail-if", "n > 100", "--fail-if", "low: ece >= 0", "--fail-if", "ece > 0.99")
    done = run(*base, *gate, "--out", out)
    assert done.exit_code == 3
    first, second, *more = [line for line in done.stderr.splitlines() if "failed: " in line]
    assert not more
    assert first == "failed: n > 100: n = 240 in overall, n = 240"
    rows = {r["name"]: r for r in json.loads((out / "audit.json").read_text())["strata"]}
    assert second.startswith("failed: low: ece >= 0: ece = ")
    assert second.endswith(f" in low, n = {rows['low']['n']}")
    assert run(*base, "--fail-if", "ece > 0.99").exit_code == 0
    easy = run(*base, "--fail-if", "easy: vote_mean_p > 2", "--fail-if", "hard: vote_share >= 0")
    assert (easy.exit_code, easy.stderr.count("failed: ")) == (3, 1)


@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_bad_conditions_are_errors(tmp_path, frame, stream, monkeypatch):
    file, out = tmp_path / "p.csv", tmp_path / "out"
    frame.to_csv(file, index=False)
    base = ("audit", file, "--resamples", 20, "--out", out, *stream, "--fail-if")

    def never(*_, **__):
        raise AssertionError("the work was begun")

    with monkeypatch.context() as patch:
        patch.setattr("scalecal.evaluation.audits.audit_predictions", never)
        patch.setattr("scalecal.evaluation.stream.stream_file", never)
        bad = [("eec > 1", "Known: n, "), ("ece", "must read like")]
        if not stream:
            bad.append(("lo: ece > 1", "Known: overall, high, medium, low, easy"))
        for condition, message in bad:
            result = run(*base, condition)
            assert isinstance(result.exception, InputError), condition
            assert message in str(result.exception)
    result = run(*base, "lo: ece > 1")
    assert "Known: overall, high, medium, low, easy" in str(result.exception)
    assert not out.exists()


def test_a_gate_that_cannot_be_evaluated_fails(tmp_path, frame):
    file = tmp_path / "p.csv"
    frame[["p", "label"]].assign(label=1).to_csv(file, index=False)
    result = run("audit", file, "--resamples", 20, "--fail-if", "auc < 0.7")
    assert result.exit_code == 3
    assert "failed: auc < 0.7: auc is undefined (" in result.stderr
    result = run("audit", file, "--resamples", 20, "--fail-if", "vote_nll > 1")
    assert "vote_nll is undefined (there are no votes)" in result.stderr


@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_json_is_all_that_standard_output_holds(tmp_path, frame, stream):
    file, out = tmp_path / "p.csv", tmp_path / "out"
    frame.to_csv(file, index=False)
    base = ("audit", file, "--resamples", 20, "--json", *stream, "--out", out)
    done = script(*base, "--fail-if", "n > 0")
    assert done.returncode == 3
    assert json.loads(done.stdout) == json.loads((out / "audit.json").read_text())
    assert f"to {out}" in done.stderr
    assert "failed: n > 0" in done.stderr
    quiet = run(*base, "--quiet")
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")


def test_quiet_leaves_errors_and_failures(tmp_path, frame):
    file, out = tmp_path / "p.csv", tmp_path / "out"
    frame.assign(group=[f"g{i // 4}" for i in range(240)], split="test").to_csv(file, index=False)
    base = ("audit", file, "--resamples", 20, "--quiet")
    for more in ((), ("--out", out), ("-q", "--stream")):
        result = run(*base, *more)
        assert (result.exit_code, result.output) == (0, ""), more
    assert (out / "audit.json").exists()
    failed = run(*base, "--fail-if", "n > 0")
    assert failed.output == "failed: n > 0: n = 240 in overall, n = 240\n"
    assert script("audit", "-q", tmp_path / "none.csv").stderr.startswith("error: ")
    assert "ECE" in run("audit", file, "--resamples", 20).output  # and speaks again
