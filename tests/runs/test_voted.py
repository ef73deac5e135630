"""How many votes would I need: the panel fitted to the votes of some training cases."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from scalecal.cases import Factor
from scalecal.checks import InputError
from scalecal.datasets import simulate
from scalecal.engines import open_engine
from scalecal.evaluation.evaluations import evaluate
from scalecal.evaluation.words import kappa_sentence, voted_sentence
from scalecal.io.features import read_features
from scalecal.readers import Readers
from scalecal.runs.grid import _together, case_losses, draw_order, run_grid, run_grid_on
from scalecal.votes import fleiss_kappa
from tests.test_cli_probes import run

VOTED = [0, 20, 60]


@pytest.fixture(scope="module")
def data():
    return simulate(800, dim=6, n_raters=7, unexplained=0.3, seed=4)


@pytest.fixture(scope="module")
def grid(data):
    return run_grid(data, methods=["none"], seeds=2, voted=VOTED, preset="default")


@pytest.fixture(scope="module")
def comparison(grid):
    return evaluate(grid.cell, n_resamples=200, voted=grid.voted)


def test_the_methods_it_is_made_of_come_along(grid):
    assert grid.cell.methods == ["none", "vote-fraction", "panel-published", "panel-votes"]


def test_every_draw_is_in_the_results(comparison):
    results = comparison.results
    columns = ["method", "seed", "stratum", "metric", "value", "floor", "voted", "reads", "draw"]
    assert list(results) == columns
    curve = results[results["method"].eq("panel-votes") & results["voted"].notna()]
    counts = curve[curve["metric"] == "vote_nll"].groupby(["voted", "reads", "seed"]).size()
    assert set(counts) == {20}
    assert set(counts.index) == {
        (n, r, s) for n in (20, 60) for r in ("panel", "single") for s in (0, 1)
    }
    wanted = {"nll", "vote_nll", "count_log_score", "split_auc", "auc", "ece"}
    assert wanted <= set(curve["metric"])
    assert wanted <= set(results.loc[results["method"] == "none", "metric"])
    zero = results[results["voted"] == 0]
    assert set(zero["method"]) == {"panel-published"}
    others = results[~results["method"].isin(["panel-votes", "panel-published"])]
    assert others[["voted", "reads", "draw"]].isna().all(axis=None)


def test_recovered_shares_are_in_the_facts(comparison):
    whole = comparison.table.set_index("method")["vote_nll"]
    gain = whole["none"] - whole["vote-fraction"]
    points = comparison.facts["voted"]["points"]
    asked = [(20, "panel"), (20, "single"), (60, "panel"), (60, "single")]
    assert [(point["voted"], point["reads"]) for point in points] == asked
    for point in points:
        assert point["share"] == pytest.approx((whole["none"] - point["vote_nll"]) / gain, rel=1e-5)
        assert point["low"] <= point["share"] <= point["high"]
        change = point["changes"]["nll"]
        assert change["low"] <= change["difference"] <= change["high"]


def test_the_curve_and_the_results_are_the_same_numbers(comparison):
    results = comparison.results
    for point in comparison.facts["voted"]["points"]:
        here = (results["voted"] == point["voted"]) & (results["reads"] == point["reads"])
        for metric in ("vote_nll", "nll"):
            value = results.loc[here & (results["metric"] == metric), "value"].mean()
            assert point[metric] == pytest.approx(value)


def test_all_votes_are_the_limit_of_the_curve(data):
    """Every training case voted, on every draw: panel-votes itself."""
    few = data.take(np.arange(300))
    marked = few.with_cases(split=Factor.of(["train"] * 200 + ["test"] * 100))
    grid = run_grid(marked, methods=["none"], seeds=1, voted=[200], preset="default")
    by_method = grid.cell.answers["panel-votes", 0]
    losses = case_losses(grid.cell.y, by_method, grid.cell.cases.votes)
    np.testing.assert_allclose(grid.voted.losses[200, "panel"][0]["vote_nll"], losses["vote_nll"])


def test_draws_are_nested_and_single_reads_are_one_of_the_votes():
    rng = np.random.default_rng(0)
    votes = rng.multinomial(5, [0.2, 0.3, 0.5], size=50)
    votes[:10] = 0
    order, single = draw_order(votes, rng)
    assert sorted(order) == list(range(10, 50))
    assert (single.sum(axis=1) == (votes.sum(axis=1) > 0)).all()
    assert (single <= votes).all()
    votes = np.tile([3, 1], (20_000, 1))
    assert draw_order(votes, rng)[1][:, 1].mean() == pytest.approx(0.25, abs=0.015)


def test_more_than_there_are_is_left_out_with_a_note(data):
    few = data.take(np.arange(200)).with_cases(split=None)
    grid = run_grid(few, methods=["none"], seeds=1, voted=[30, 1_000], preset="default")
    assert {n for n, _ in grid.voted.losses} == {30}
    assert any(
        note.startswith("1000 voted cases are left out: the training") for note in grid.notes
    )


def test_it_needs_votes(data):
    with pytest.raises(InputError, match="it needs readers' votes"):
        run_grid(data.with_cases(votes=None), seeds=1, voted=[20])
    split = Factor.of(np.where(np.arange(800) < 600, "train", "test"))
    votes = np.where(np.arange(800)[:, None] < 600, data.cases.votes, 0)
    with pytest.raises(InputError, match="no test case has votes"):
        run_grid(data.with_cases(votes=votes, split=split), seeds=1, voted=[20])


def test_spread_over_workers_it_is_the_same(data, tmp_path):
    path = tmp_path / "f.npz"
    few = data.take(np.arange(200))
    np.savez(path, X=few.X, y=few.y, votes=few.votes, n_raters=few.n_raters)
    options = {"methods": ["none"], "voted": VOTED, "preset": "paper"}
    with open_engine("local", workers=2) as engine:
        spread = run_grid_on(engine, partial(read_features, path), seeds=2, **options)
    alone = run_grid(read_features(path), seeds=2, **options)
    pd.testing.assert_frame_equal(*(pd.DataFrame(g.voted.scores) for g in (spread, alone)))
    without = replace(alone, left_out={"panel-votes": "of a reason"}, voted=None)
    assert _together([alone, without], partial(read_features, path)).voted is None
    assert list(spread.voted.by_kappa) == list(alone.voted.by_kappa) == [0.7, 1.0, 1.3]
    for factor, by_seed in alone.voted.by_kappa.items():
        for seed, at in by_seed.items():
            other = spread.voted.by_kappa[factor][seed]
            assert at[:2] == other[:2]
            np.testing.assert_array_equal(at.losses["vote_nll"], other.losses["vote_nll"])


def test_kappa_and_share_as_published(data):
    share = float(data.votes.sum() / data.n_raters.sum())
    told = Readers(kappa=fleiss_kappa(data.votes, data.n_raters), vote_share=share)
    grid = run_grid(data.with_cases(votes=None, n_raters=np.full(800, 7)),
                    methods=["none", "panel-published", "panel-votes"], seeds=1, readers=told,
                    preset="default")  # fmt: skip
    assert grid.left_out == {"panel-votes": "it needs readers' votes"}
    part = grid.cell.answers["panel-published", 0]
    assert part.p_reader.mean() == pytest.approx(share, abs=0.05)
    assert part.rho > 0
    bare = data.with_cases(votes=None, n_raters=np.full(800, 7))
    grid = run_grid(bare, methods=["none", "panel-published"], seeds=1)
    assert "kappa" in grid.left_out["panel-published"]


def test_a_wrong_kappa_is_the_published_panel_told_of_it(data):
    """Each factor equals a run that was given that kappa."""
    known = Readers(kappa=0.4, vote_share=0.45)
    shared = {"seeds": [0], "preset": "default"}
    grid = run_grid(data, methods=["none"], voted=[20], readers=known, **shared)
    facts = evaluate(grid.cell, n_resamples=100, voted=grid.voted).facts
    told = facts["kappa_sensitivity"]
    assert [row["factor"] for row in told] == [0.7, 1.0, 1.3]
    assert [row["kappa"] for row in told] == pytest.approx([0.28, 0.4, 0.52])
    for row in told:
        readers = Readers(kappa=row["kappa"], vote_share=0.45)
        other = run_grid(data, methods=["none", "panel-published"], readers=readers, **shared).cell
        own = evaluate(other, n_resamples=100).facts["rows"]
        expected = next(
            r for r in own if (r["method"], r["stratum"]) == ("panel-published", "overall")
        )
        assert row["vote_nll"] == pytest.approx(expected["vote_nll"], rel=1e-9)
        assert row["nll"] == pytest.approx(expected["nll"], rel=1e-9)
        assert row["rho"] == pytest.approx(other.answers["panel-published", 0].rho)
    assert told[0]["rho"] < told[1]["rho"] < told[2]["rho"]
    published = facts["recovered"]["panel-published"]
    assert told[1]["share"] == pytest.approx(published["share"])
    assert told[1]["low"] == pytest.approx(published["low"], rel=1e-3)  # single precision
    assert facts["paragraphs"]["kappa"] == kappa_sentence(facts)


def test_kappas_that_cannot_be_tried(data):
    """None above 1, and none where kappa is not positive."""
    few = data.take(np.arange(200)).with_cases(split=None)
    options = {"methods": ["none"], "seeds": 1, "voted": [20], "preset": "default"}
    grid = run_grid(few, readers=Readers(kappa=0.9), **options)
    assert [at[0].kappa for at in grid.voted.by_kappa.values()] == pytest.approx([0.63, 0.9, 1.0])
    facts = evaluate(grid.cell, n_resamples=50, voted=grid.voted).facts
    assert "11 % too high (1.00)" in kappa_sentence(facts)
    grid = run_grid(few, readers=Readers(kappa=-0.1), **options)
    facts = evaluate(grid.cell, n_resamples=50, voted=grid.voted).facts
    assert facts["kappa_sensitivity"] is None
    assert "kappa" not in facts["paragraphs"]
    assert not any("kappa:" in sentence for sentence in facts["paragraphs"].values())


def test_no_number_but_the_published_ones(data):
    few = data.take(np.arange(200)).with_cases(split=None)
    grid = run_grid(few, methods=["none"], seeds=1, voted=[0], preset="default")
    facts = evaluate(grid.cell, n_resamples=50, voted=grid.voted).facts
    assert facts["voted"]["points"] == []
    published = {"share": 0.83, "reason": ""}
    assert voted_sentence({"voted": {"points": [], "published": published}}) == (
        "Kappa and the share of positive votes, without a vote, would give 8/10 of the gain from "
        "reading all cases, judged by single votes."
    )
    unknown = {"share": None, "reason": "the reference gains nothing here"}
    said = voted_sentence({"voted": {"points": [], "published": unknown}})
    assert "the reference gains nothing here" in said


def test_the_sentence():
    def point(n, reads, share):
        return {"voted": n, "reads": reads, "share": share, "reason": ""}

    points = [point(25, "panel", 0.7), point(50, "panel", 0.93), point(50, "single", 0.61)]
    voted = {"points": points, "published": {"share": 0.84}}
    said = voted_sentence({"voted": voted})
    assert said.startswith(
        "50 cases read by the whole panel would give 9/10 of the gain from reading all cases"
    )
    assert "one reader on each of them 6/10" in said
    assert "without a vote, 8/10" in said
    none = [{**p, "share": None, "reason": "the reference gains nothing here"} for p in points]
    said = voted_sentence({"voted": {"points": none, "published": {"share": None}}})
    assert said == "The gain from votes cannot be estimated: the reference gains nothing here."


def test_on_the_command_line(data, tmp_path):
    np.savez(tmp_path / "f.npz", X=data.X, y=data.y, votes=data.votes, n_raters=data.n_raters)
    asked = ("compare", tmp_path / "f.npz", "--methods", "none", "--seeds", 1, "--voted", "0,30")
    result = run(*asked, "--preset", "default", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "gain from" in result.output
    results = pd.read_csv(tmp_path / "out" / "results.csv")
    assert {0, 30} == set(results["voted"].dropna())
    facts = json.loads((tmp_path / "out" / "facts.json").read_text())
    assert [p["voted"] for p in facts["voted"]["points"]] == [30, 30]
    assert run("report", tmp_path / "out").exit_code == 0
    for bad in ("x", "-3", "2.5"):
        result = run("compare", *asked[1:-1], bad, "--out", tmp_path / "bad")
        assert isinstance(result.exception, InputError), bad
        assert "--voted" in str(result.exception)
    assert not (tmp_path / "bad").exists()
