"""Two answers per case: labels judge `p`, votes judge `p_reader`, in every kind of audit."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from scalecal import audit, compare_audits, metrics
from scalecal.checks import InputError
from scalecal.evaluation.changes import differing_metrics
from scalecal.evaluation.rows import case_sums, values_and_intervals
from scalecal.evaluation.scores import Resampled, score_cell
from scalecal.evaluation.stream import StreamingAudit, stream_file
from scalecal.inference.difficulty import votes_by_difficulty
from scalecal.inference.units import Units
from scalecal.metrics import COLUMNS
from scalecal.metrics.arguments import Sample
from scalecal.metrics.vote_scores import split_floor
from tests.evaluation.made import cell, sharp

SLOW = os.environ.get("SCALECAL_SLOW") == "1"

RHO = 0.25
"""Correlation of votes in the cases made here."""


def two(n=400, seed=0):
    """Cases of two classes: labels, label probabilities, reader's probabilities, counts (n, 2)."""
    rng = np.random.default_rng(seed)
    mean = rng.beta(0.8, 0.9, n)
    odds = (1 - RHO) / RHO
    k = rng.binomial(
        7, rng.beta(np.maximum(mean * odds, 1e-9), np.maximum((1 - mean) * odds, 1e-9))
    )
    sure = np.clip(0.5 + 1.3 * (mean - 0.5), 0.01, 0.99)
    return (k > 3).astype(int), sure, mean, np.column_stack([7 - k, k])


def three(n=300, seed=0):
    """The same of three classes, with panels of different sizes."""
    rng = np.random.default_rng(seed)
    mean = rng.dirichlet([0.6, 0.9, 0.5], n)
    votes = rng.multinomial(rng.integers(0, 6, n), mean)
    sure = mean**1.5
    return votes.argmax(axis=1), sure / sure.sum(axis=1, keepdims=True), mean, votes


def same_rows(left, right, keys=None, **tolerance):
    for mine, theirs in zip(left.rows, right.rows, strict=True):
        for key in keys or mine:
            if isinstance(theirs.get(key), str | None):
                assert mine.get(key) == theirs.get(key)
            else:
                expected = pytest.approx(theirs[key], nan_ok=True, **tolerance)
                assert mine[key] == expected, (mine["name"], key)


@pytest.mark.parametrize("made", [two, three])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_second_answer_equal_to_the_first_changes_nothing(made, grouped):
    y, p, _, votes = made()
    groups = np.arange(len(y)) // 4 if grouped else None
    options = {"votes": votes, "groups": groups, "n_resamples": 50}
    one, both = audit(y, p, **options), audit(y, p, p_reader=p, **options)
    assert list(one.rows[0]) == list(both.rows[0])
    # Where p is of the label alone, votes judge what it implies for a reader.
    same_rows(both, one, set(both.rows[0]) - {"p_votes_holm"}, rel=0, abs=0)
    assert both.references == one.references


@pytest.mark.parametrize("made", [two, three])
@pytest.mark.parametrize("grouped", [False, True])
def test_labels_judge_the_first_and_votes_the_second(made, grouped):
    y, p, reader, votes = made()
    groups = np.arange(len(y)) // 4 if grouped else None
    options = {"votes": votes, "groups": groups, "n_resamples": 50}
    both = audit(y, p, p_reader=reader, rho=0.1, **options)
    label, vote = audit(y, p, **options), audit(y, reader, rho=0.1, **options)
    judged = {key for key in both.rows[0] if COLUMNS[key].votes}
    assert {"vote_nll", "count_log_score_low", "p_votes_holm", "split_auc", "n_votes"} <= judged
    same_rows(both, vote, judged - {"p_votes_holm"}, rel=1e-12)
    own = votes_by_difficulty(votes, reader, groups=groups, n_resamples=50)
    assert [r["p_votes"] for r in both.difficulty] == [t["p_votes"] for t in own]
    same_rows(both, label, [key for key in both.rows[0] if key not in judged], rel=1e-12)
    assert both["overall"]["vote_nll"] != pytest.approx(label["overall"]["vote_nll"])
    assert (both.meta["votes_judge"], label.meta["votes_judge"]) == ("p_reader", "p")
    assert both.meta["rho"] == 0.1
    assert both.meta["data_sha256"] != label.meta["data_sha256"]


@pytest.mark.parametrize("made", [two, three])
def test_every_number_on_votes_is_that_of_its_function(made):
    y, p, reader, votes = made()
    result = audit(y, p, votes=votes, p_reader=reader, rho=RHO, n_resamples=20)
    cases = result.predictions.cases
    for row in result.rows:
        inside = cases.within(row["name"])
        v, q = votes[inside], reader[inside]
        some = v.sum(axis=1) > 0
        share = v[some] / v[some].sum(axis=1, keepdims=True)
        top = np.ones(some.sum(), int) if q.ndim == 1 else q[some].argmax(axis=1)
        of_top = q[some] if q.ndim == 1 else q[some].max(axis=1)
        expected = {
            "n_votes": v.sum(),
            "vote_share": share[np.arange(len(top)), top].mean(),
            "vote_gap": (of_top - share[np.arange(len(top)), top]).mean(),
            "vote_nll": metrics.vote_nll(v, q),
            "vote_excess": row["vote_nll"] - row["vote_nll_floor"],
            "count_log_score": metrics.count_log_score(v, q, rho=RHO),
            "dist_ce": metrics.dist_ce(v, q),
        }
        assert {key: row[key] for key in expected} == pytest.approx(expected)
        assert row["count_log_score_low"] < row["count_log_score"] < row["count_log_score_high"]
    overall = result["overall"]
    assert overall["split_auc"] == pytest.approx(metrics.split_auc(votes, reader, rho=RHO))
    assert overall["split_ece"] == pytest.approx(metrics.split_ece(votes, reader, rho=RHO))
    floor = split_floor(Sample(np.zeros(0), reader, votes=votes, rho=RHO))
    assert overall["split_ece_floor"] == pytest.approx(floor)
    assert np.isnan([row["split_auc"] for row in result.rows[1:]]).all()


def test_without_votes_the_second_answer_is_not_judged():
    y, p, reader, _ = two()
    result = audit(y, p, p_reader=reader, n_resamples=20)
    assert "There are no votes, so p_reader is not judged." in result.notes
    assert "vote_nll" not in result["overall"]


def test_bad_second_answers_are_named():
    y, p, reader, votes = two(20)
    with pytest.raises(InputError, match="p_reader must have the shape of p"):
        audit(y, p, votes=votes, p_reader=np.column_stack([1 - reader, reader]))
    with pytest.raises(InputError, match="p_reader must lie in"):
        audit(y, p, votes=votes, p_reader=reader + 1)
    with pytest.raises(InputError, match="p_reader has 19 rows"):
        audit(y, p, votes=votes, p_reader=reader[1:])
    with pytest.raises(InputError, match="rho must lie in"):
        audit(y, p, votes=votes, p_reader=reader, rho=2)


def test_two_columns_of_both_answers_are_one():
    y, p, reader, votes = two(100)
    one = audit(y, p, votes=votes, p_reader=reader, n_resamples=20)
    wide = audit(
        y,
        np.column_stack([1 - p, p]),
        votes=votes,
        p_reader=np.column_stack([1 - reader, reader]),
        n_resamples=20,
    )
    same_rows(wide, one, rel=1e-12)


def test_differences_and_merges_know_both_answers():
    y, p, reader, votes = two()
    options = {"n_resamples": 50, "rho": RHO}
    one = audit(y, p, votes=votes, n_resamples=50)
    both = audit(y, p, votes=votes, p_reader=reader, **options)
    table = compare_audits(one, both, n_resamples=50).differences.set_index(["stratum", "metric"])
    for key in differing_metrics():
        expected = both["low"][key] - one["low"][key]
        assert table.loc[("low", key), "difference"] == pytest.approx(expected, abs=1e-12)
        assert (table.loc[("low", key), "difference"] == 0) == (not COLUMNS[key].votes)


def streamed(y, p, reader, votes, size=1000, **options):
    stream = StreamingAudit(n_resamples=50, rho=RHO, **options)
    for start in range(0, len(y), size):
        k = slice(start, start + size)
        stream.update(y[k], p[k], votes=votes[k], p_reader=reader[k])
    return stream


def test_a_stream_judges_both_answers():
    y, p, reader, votes = two(5000)
    result = streamed(y, p, reader, votes).finish()
    whole = audit(y, p, votes=votes, p_reader=reader, rho=RHO, n_resamples=50)
    keys = (
        "ece",
        "nll",
        "vote_nll",
        "vote_gap",
        "count_log_score",
        "dist_ce",
        "n_votes",
        "split_ece",
    )
    same_rows(result, whole, keys, rel=1e-3, abs=1e-4)
    assert result["overall"]["split_auc"] == pytest.approx(whole["overall"]["split_auc"], abs=1e-3)
    assert (result.meta["votes_judge"], result.meta["rho"]) == ("p_reader", RHO)
    assert set(result.rows[0]) == set(whole.rows[0])
    for one, other in zip(result.difficulty, whole.difficulty, strict=True):
        assert one["n"] == pytest.approx(other["n"], rel=0.02)
        assert one["vote_confidence"] == pytest.approx(other["vote_confidence"], abs=2e-3)
        assert one["vote_agreement"] == pytest.approx(other["vote_agreement"], abs=5e-3)


def test_blocks_of_a_stream_have_one_kind():
    y, p, reader, votes = two(1200)
    stream = streamed(y, p, reader, votes)
    with pytest.raises(InputError, match="p_reader"):
        stream.update(y, p, votes=votes)
    with pytest.raises(InputError, match="shape of probs"):
        stream.update(y, p, votes=votes, p_reader=reader[1:])


def test_a_stream_of_three_classes_says_that_votes_are_not_scored():
    y, p, reader, votes = three()
    result = StreamingAudit(n_resamples=20).update(y, p, votes=votes, p_reader=reader).finish()
    assert "p_reader is not judged" in " ".join(result.notes)
    assert "vote_nll" not in result["overall"]


def test_a_file_with_both_columns_in_pieces(tmp_path):
    y, p, reader, votes = two(300)
    lines = [f"{a},{b},{RHO},{c[1]},7" for a, b, c in zip(p, reader, votes, strict=True)]
    path = tmp_path / "p.csv"
    path.write_text("p,p_reader,rho,votes,n_raters\n" + "\n".join(lines) + "\n")
    found = stream_file(path, n_resamples=20)
    whole = audit(y, p, votes=votes, p_reader=reader, rho=RHO, n_resamples=20)
    same_rows(found, whole, ("nll", "vote_nll", "count_log_score"), rel=1e-3)


def with_readers(made, factor=0.5, rho=0.0):
    """The cell with a reader's probability beside each method's own."""
    odds = {k: np.log(part.p) - np.log1p(-part.p) for k, part in made.answers.items()}
    own = {
        k: replace(part, p_reader=1 / (1 + np.exp(-factor * odds[k])), rho=rho)
        for k, part in made.answers.items()
    }
    return replace(made, answers=own)


@pytest.mark.parametrize("groups", [None, 40])
def test_results_of_methods_judge_both_answers(groups):
    plain = cell({"none": sharp(2), "scale": sharp(1)}, n=300, n_seeds=2, groups=groups)
    both = with_readers(plain, rho=0.2)
    only = replace(
        both,
        answers={
            k: replace(part, p=part.p_reader, p_reader=None) for k, part in both.answers.items()
        },
    )
    tables = [
        score_cell(c, n_resamples=20).set_index(["method", "seed", "stratum", "metric"])["value"]
        for c in (both, plain, only)
    ]
    assert list(tables[0].index) == list(tables[1].index)
    for key, value in tables[0].items():
        source = tables[2] if COLUMNS[key[-1]].votes else tables[1]
        assert value == pytest.approx(source[key], nan_ok=True), key
    splits = tables[0].xs("split_auc", level="metric")
    assert set(splits.index.get_level_values("stratum")) == {"overall"}
    part, votes = both.answers["scale", 1], both.cases.votes
    for name in ("count_log_score", "split_auc", "split_ece"):
        expected = getattr(metrics, name)(votes, part.p_reader, rho=0.2)
        assert tables[0]["scale", 1, "overall", name] == pytest.approx(expected)
    drawn = [Resampled([c], n_resamples=100) for c in (both, plain, only)]
    for metric in ("nll", "ece", "vote_nll", "count_log_score"):
        source = drawn[2] if COLUMNS[metric].votes else drawn[1]
        mine, theirs = (d.contrast("scale", "none", metric=metric) for d in (drawn[0], source))
        assert mine == theirs


@pytest.mark.validity
def test_the_excess_of_calibrated_reader_probabilities_covers_zero():
    """Votes of one case go together, so cases are what is resampled: 95 % of intervals hold 0."""
    runs = 800 if SLOW else 150
    covered = dict.fromkeys(("vote_excess", "vote_gap"), 0)
    for seed in range(runs):
        y, _, reader, votes = two(250, seed)
        sums = case_sums(y, reader, votes, units=Units.of(250), rho=RHO)
        row = values_and_intervals(sums, perfect=1.0)
        for name in covered:
            covered[name] += row[f"{name}_low"] <= 0 <= row[f"{name}_high"]
    for times in covered.values():
        assert abs(times / runs - 0.94) < 3 * np.sqrt(0.05 * 0.95 / runs)
