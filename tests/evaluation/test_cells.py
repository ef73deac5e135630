from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from scalecal import metrics
from scalecal.cases import Answers, Cases, Factor, Predictions
from scalecal.checks import InputError
from scalecal.evaluation.cells import (
    cell_of_seed,
    check_cell,
    joined_cell,
    read_cell,
    write_cell,
)
from scalecal.evaluation.scores import RESULT_COLUMNS, Resampled, entropy, score_cell
from tests.evaluation.made import cell, sharp


def same(a: Predictions, b: Predictions) -> None:
    assert (a.dataset, a.encoder) == (b.dataset, b.encoder)
    assert (a.cases.classes, a.cases.agreement) == (b.cases.classes, b.cases.agreement)
    for name in ("names", "y", "votes", "groups", "strata", "paths"):
        left, right = (getattr(c.cases, name) for c in (a, b))
        assert (left is None) == (right is None)
        if left is not None:
            left, right = (f.values if isinstance(f, Factor) else f for f in (left, right))
            np.testing.assert_array_equal(left, right)
    assert list(a.answers) == list(b.answers)
    for key, part in a.answers.items():
        again = b.answers[key]
        np.testing.assert_array_equal(part.index, again.index)
        np.testing.assert_array_equal(part.p, again.p)
        assert (part.p_reader is None) == (again.p_reader is None)
        if part.p_reader is not None:
            np.testing.assert_array_equal(part.p_reader, again.p_reader)
        assert part.rho == again.rho
        assert (part.p_split is None) == (again.p_split is None)
        if part.p_split is not None:
            np.testing.assert_array_equal(part.p_split, again.p_split)


@pytest.mark.parametrize("groups", [None, 7])
@pytest.mark.parametrize("panel", [True, False])
def test_a_cell_survives_the_disk(tmp_path, panel, groups):
    made = cell({"none": sharp(2), "scale": sharp(1)}, n=60, panel=panel, groups=groups)
    write_cell(tmp_path / "a", made)
    same(made, read_cell(tmp_path / "a"))


def test_the_same_cell_gives_the_same_bytes(tmp_path):
    made = cell({"none": sharp(2), "scale": sharp(1)}, n=60)
    for name in ("a", "b"):
        write_cell(tmp_path / name, made)
    for name in ("run.json", "cases.parquet", "predictions.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_several_classes_and_test_sets_that_differ(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), size=10)
    cases = Cases(
        n=10,
        classes=("a", "b", "c"),
        ids=np.array([f"case {i}" for i in range(10)]),
        y=rng.integers(3, size=10),
        votes=rng.integers(4, size=(10, 3)),
        strata=Factor.of(["low", "high"] * 5),
        paths=np.array([f"{i}.png" for i in range(10)]),
    )
    made = Predictions(
        cases,
        {
            ("none", 3): Answers(probs[:3], rows=np.array([9, 0, 4])),
            ("none", 1): Answers(probs[:6], rows=np.arange(6)),
            ("scale", 1): Answers(probs[4:], probs[:6], 0.25, rows=np.arange(6)),
        },
        "three",
        "raw",
        {"kind": "reproduce", "dataset": {"shift": {"train": "40X", "test": "400X"}}},
    )
    write_cell(tmp_path, made)
    back = read_cell(tmp_path)
    same(made, back)
    assert back.shift == ("40X", "400X")
    assert back.seeds("none") == [1, 3]
    assert back.stratum_names == ("high", "low")


def test_the_correlation_of_votes_is_kept(tmp_path):
    made = cell({"none": sharp(2), "scale": sharp(1)}, n=60, n_seeds=2)
    write_cell(tmp_path / "without", made)
    table = pq.read_table(tmp_path / "without" / "predictions.parquet")
    assert "rho" not in table.column_names
    own = {
        key: replace(
            part, p_reader=part.p / 2, rho=0.1 * (key[1] + 1) if key[0] == "scale" else 0.0
        )
        for key, part in made.answers.items()
    }
    made = replace(made, answers=own)
    write_cell(tmp_path / "with", made)
    back = read_cell(tmp_path / "with")
    same(made, back)
    assert back.of("scale").rho == 0.1
    part = cell_of_seed(back, 1)
    assert part.answers["scale", 1].rho == 0.2
    same(made, joined_cell([cell_of_seed(made, 0), cell_of_seed(made, 1)]))


def test_predicted_difficulty_is_kept(tmp_path):
    made = cell({"none": sharp(1.0)})
    split = np.random.default_rng(0).random(made.cases.n)
    own = {key: replace(answers, p_split=split) for key, answers in made.answers.items()}
    made = replace(made, answers=own)
    write_cell(tmp_path / "cell", made)
    same(read_cell(tmp_path / "cell"), made)


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(InputError, match=r"run.json is missing"):
        read_cell(tmp_path)
    with pytest.raises(InputError, match="distinct"):
        check_cell(Predictions(Cases(n=2, ids=np.array(["a", "a"]), y=np.zeros(2, int)), {}))
    with pytest.raises(InputError, match="no labels"):
        check_cell(Predictions(Cases(n=2, ids=np.array(["a", "b"])), {}))
    with pytest.raises(InputError, match="rows has 2 rows, but p has 1"):
        Answers(np.ones(1), rows=np.arange(2))


def test_scores_are_those_of_the_metrics():
    made = cell({"none": sharp(2), "scale": sharp(1)}, n=300, n_seeds=2)
    results = score_cell(made)
    assert tuple(results.columns) == RESULT_COLUMNS
    table = results.set_index(["method", "seed", "stratum", "metric"]).sort_index()
    for stratum in ("overall", "high", "medium", "low"):
        probs = made.answers["scale", 1].p
        inside = np.arange(300)[made.inside(np.arange(300), stratum)]
        y, p, votes = made.y[inside], probs[inside], made.cases.votes[inside]
        expected = {
            "ece": metrics.ece(y, p),
            "nll": metrics.nll(y, p),
            "brier": metrics.brier(y, p),
            "auc": metrics.auc(y, p),
            "accuracy": metrics.accuracy(y, p),
            "vote_nll": metrics.vote_nll(votes, p),
            "vote_error": metrics.vote_error(votes, p),
            "dist_ce": metrics.dist_ce(votes, p),
            "debiased_error": metrics.debiased_error(y, p),
            "smece": metrics.smece(y, p),
            "aurc": metrics.aurc(y, p),
            "entropy": float(np.mean(-p * np.log(p) - (1 - p) * np.log(1 - p))),
            "n": len(inside),
        }
        found = {m: float(table.loc[("scale", 1, stratum, m), "value"]) for m in expected}
        assert found == pytest.approx(expected, abs=1e-12)
        floor = float(table.loc[("scale", 1, stratum, "ece"), "floor"])
        assert floor == pytest.approx(metrics.noise_floor(p))
    nulls = results[results["metric"] == "null"]
    assert set(nulls["method"]) == {"none"}
    assert set(nulls["stratum"]) == {"high", "medium", "low"}


def test_entropy_is_that_of_scipy():
    from scipy.stats import entropy as reference

    table = np.random.default_rng(0).dirichlet(np.ones(4), size=20)
    np.testing.assert_allclose(entropy(table), reference(table, axis=1))
    assert entropy(np.array([0.0, 1.0])).tolist() == [0.0, 0.0]


def test_resampled_differences_of_a_mean_are_those_of_the_plain_bootstrap():
    made = cell({"none": sharp(2), "scale": sharp(1)}, n=400, n_seeds=1, groups=50)
    drawn = Resampled([made], n_resamples=4000)
    assert drawn.drawn(made.encoder, "none").units == 50
    found = drawn.contrast("scale", "none", metric="nll")
    losses = []
    for method in ("none", "scale"):
        p = made.answers[method, 0].p
        losses.append(-np.log(np.where(made.y == 1, p, 1 - p)))
    loss = losses[1] - losses[0]
    assert found.difference == pytest.approx(loss.mean())
    codes = made.cases.groups.codes
    rng, total, size = np.random.default_rng(1), np.bincount(codes, loss), np.bincount(codes)
    rows = rng.integers(len(size), size=(4000, len(size)))
    low, high = np.quantile(total[rows].sum(axis=1) / size[rows].sum(axis=1), [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.1 * (high - low))
    assert found.high == pytest.approx(high, abs=0.1 * (high - low))


def test_encoders_of_one_data_set_are_resampled_together():
    made = [cell({"none": sharp(2), "scale": sharp(1)}, n=200, encoder=e) for e in ("a", "b")]
    # The same cases in another order are still the same cases.
    turn = np.random.default_rng(0).permutation(200)
    place = np.argsort(turn)
    other = made[1]
    moved = {key: replace(part, rows=place[part.index]) for key, part in other.answers.items()}
    shuffled = replace(other, cases=other.cases.take(turn), answers=moved)
    for stratum in ("overall", "low"):
        a = Resampled(made).contrast("scale", "none", stratum=stratum)
        b = Resampled([made[0], shuffled]).contrast("scale", "none", stratum=stratum)
        assert (a.difference, a.low, a.high) == pytest.approx((b.difference, b.low, b.high))


def test_test_sets_that_differ_between_seeds_still_pair():
    made = cell({"none": sharp(2), "scale": sharp(1)}, n=500, n_seeds=3)
    rng = np.random.default_rng(1)
    parts = {s: np.sort(rng.choice(500, 150, replace=False)) for s in range(3)}
    predictions = {
        (m, s): made.answers[m, s].take(parts[s]) for m in ("none", "scale") for s in range(3)
    }
    part = Predictions(made.cases, predictions, "d", "e")
    found = Resampled([part]).contrast("scale", "none", metric="nll")
    per_seed = [
        metrics.nll(made.y[parts[s]], predictions["scale", s].p)
        - metrics.nll(made.y[parts[s]], predictions["none", s].p)
        for s in range(3)
    ]
    assert found.difference == pytest.approx(np.mean(per_seed))
    assert found.low < found.difference < found.high
    assert found.n == len(np.unique(np.concatenate(list(parts.values()))))


def test_recovered_share_of_half_the_gain():
    made = cell(
        {
            "none": lambda s, h, y, r: 3 * s,  # noqa: ARG005
            "real-piecewise": lambda s, h, y, r: s,  # noqa: ARG005
            "same": lambda s, h, y, r: 3 * s,  # noqa: ARG005
        },
        n=600,
        jitter=0.0,
    )
    drawn = Resampled([made])
    whole = drawn.recovered("real-piecewise", "real-piecewise")
    assert whole.share == pytest.approx(1)
    assert (whole.low, whole.high) == pytest.approx((1, 1))
    assert drawn.recovered("same", "real-piecewise").share == pytest.approx(0)
    nothing = drawn.recovered("real-piecewise", "same")
    assert np.isnan(nothing.share)
    assert "gains nothing" in nothing.reason
