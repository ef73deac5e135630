"""Reliability against votes: bins, the correlation of votes, and bars of the right width."""

from __future__ import annotations

import os

import numpy as np
import pytest

from scalecal import audit, metrics
from scalecal.evaluation.exhibits import vote_bins, vote_correlation, vote_reliability
from scalecal.evaluation.stream import StreamingAudit
from scalecal.io.store import plain
from scalecal.metrics.resampling import Null
from tests.evaluation.test_two_answers import RHO, three, two

SLOW = os.environ.get("SCALECAL_SLOW") == "1"


def correlated(mean, m, rho, rng):
    """Counts (n, 2) of m votes whose probability has this mean and correlation."""
    odds = (1 - rho) / rho
    p = rng.beta(np.maximum(mean * odds, 1e-9), np.maximum((1 - mean) * odds, 1e-9))
    k = rng.binomial(m, p)
    return np.column_stack([m - k, k])


def test_bins_against_a_loop():
    rng = np.random.default_rng(0)
    p, m = rng.uniform(size=200), rng.integers(0, 6, 200)
    votes = correlated(p, m, 0.3, rng)
    found = vote_bins(votes, p, n_bins=4, n_resamples=20)
    for b in range(4):
        inside = [i for i in range(200) if m[i] and b / 4 <= p[i] < (b + 1) / 4]
        assert found.table.n[b] == len(inside)
        assert found.votes[b] == sum(m[i] for i in inside)
        assert found.table.mean_p[b] == pytest.approx(np.mean([p[i] for i in inside]))
        share = np.mean([votes[i, 1] / m[i] for i in inside])
        assert found.table.mean_y[b] == pytest.approx(share)


def test_three_classes_look_at_votes_for_the_top_class():
    _, _, reader, votes = three()
    some = votes.sum(axis=1) > 0
    found = vote_bins(votes, reader, n_bins=1, n_resamples=20)
    top = reader.argmax(axis=1)
    share = votes[np.arange(len(votes)), top][some] / votes.sum(axis=1)[some]
    assert found.table.mean_y[0] == pytest.approx(share.mean())
    assert found.table.mean_p[0] == pytest.approx(reader.max(axis=1)[some].mean())


def test_the_correlation_is_found_and_not_mistaken_for_miscalibration():
    rng = np.random.default_rng(1)
    mean = rng.uniform(0.1, 0.9, 20_000)
    m = rng.integers(1, 8, 20_000)
    votes = correlated(mean, m, 0.3, rng)
    # Too high by a tenth, the squared error alone would add 0.08.
    for p, near in ((mean, 0.02), (np.clip(mean + 0.1, 0, 1), 0.05)):
        found = vote_bins(votes, p, n_resamples=20)
        assert found.rho == pytest.approx(0.3, abs=near)
    assert vote_bins(votes[:, ::-1], 1 - mean, n_resamples=20).rho == pytest.approx(0.3, abs=0.02)


def test_the_correlation_by_pairs_of_votes():
    """In one bin of one probability it is the share of variance between cases, by the textbook."""
    rng = np.random.default_rng(2)
    n, m = 40, 5
    votes = correlated(np.full(n, 0.3), m, 0.4, rng)
    p, share = np.full(n, votes[:, 1].mean() / m), votes[:, 1] / m
    cell, w = np.zeros(n, dtype=np.int64), np.ones(n)
    found = vote_correlation(share, p, np.full(n, m), cell, w)
    spread = share.var(ddof=1)
    expected = (spread - p[0] * (1 - p[0]) / m) / (p[0] * (1 - p[0]) * (1 - 1 / m))
    assert found == pytest.approx(expected)


def test_the_correlation_of_single_votes_is_unknown():
    rng = np.random.default_rng(3)
    p = rng.uniform(size=100)
    found = vote_bins(correlated(p, np.ones(100, int), 0.3, rng), p, n_resamples=500)
    assert np.isnan(found.rho)
    # One vote each: the bars are those of labels.
    labels = Null.of(p).residuals(500, 0)
    assert found.drawn.std(axis=0) == pytest.approx(labels.std(axis=0), rel=0.2)


@pytest.mark.parametrize("rho", [0.05, 0.4, 0.8])
def test_drawn_residuals_are_those_of_cases_drawn_one_by_one(rho):
    rng = np.random.default_rng(4)
    n = 3000
    p, m = rng.beta(0.7, 1.2, n), rng.choice([2, 7], n)
    found = vote_bins(correlated(p, m, rho, rng), p, n_bins=5, n_resamples=1500)
    cell = metrics.bin_index(p, n_bins=5)
    slow = []
    for _ in range(1500):
        votes = correlated(p, m, found.rho, rng)
        slow.append(np.bincount(cell, p - votes[:, 1] / m, 5))
    slow = np.array(slow)
    size = np.bincount(cell, minlength=5)
    assert found.drawn.mean(axis=0) / size == pytest.approx(np.zeros(5), abs=2e-3)
    # The mixture of a bin's laws is a little wider than the laws: the bin is a fifth of [0, 1] here.
    ratio = found.drawn.std(axis=0) / slow.std(axis=0)
    assert (ratio > 0.93).all()
    assert (ratio < 1.15).all()


def test_weights_are_copies():
    rng = np.random.default_rng(5)
    p = rng.uniform(size=150)
    votes, times = correlated(p, np.full(150, 7), 0.3, rng), rng.integers(1, 4, 150)
    found = vote_bins(votes, p, sample_weight=times.astype(float), n_resamples=400)
    copies = vote_bins(np.repeat(votes, times, axis=0), np.repeat(p, times), n_resamples=400)
    assert found.rho == pytest.approx(copies.rho)
    assert found.votes.tolist() == copies.votes.tolist()
    assert found.table.mean_y == pytest.approx(copies.table.mean_y)
    assert found.drawn.std(axis=0) == pytest.approx(copies.drawn.std(axis=0), rel=0.2)


def test_panels_are_facts_of_all_cases_and_of_strata_the_votes_did_not_make():
    y, p, reader, votes = two()
    result = audit(y, p, votes=votes, p_reader=reader, rho=RHO, n_resamples=50)
    (panel,) = vote_reliability(result.audit)
    assert panel["stratum"] == "overall"
    assert (panel["n"], panel["votes"], panel["judges"]) == (400, 2800, "p_reader")
    assert sum(b["n"] for b in panel["bins"]) == 400
    assert sum(b["votes"] for b in panel["bins"]) == 2800
    assert panel["null_low"] < panel["null"] < panel["null_high"]
    for found in panel["bins"]:
        assert found["lo"] <= found["mean_p"] <= found["hi"]
        assert 0 <= found["bar_lo"] <= found["mean_p"] <= found["bar_hi"] <= 1
    assert plain(panel) == panel  # numbers that JSON has
    assert vote_reliability(result.audit) == [panel]
    sites = np.where(np.arange(400) % 2, "a", "b")
    given = audit(y, p, votes=votes, p_reader=reader, strata=sites, n_resamples=50)
    assert [found["stratum"] for found in vote_reliability(given.audit)] == ["overall", "a", "b"]
    assert vote_reliability(given.audit)[0] == panel
    assert vote_reliability(audit(y, p, n_resamples=20).audit) == []
    alone = vote_reliability(audit(y, p, votes=votes, n_resamples=50).audit)[0]
    assert alone["judges"] == "p"
    assert alone["ece"] != panel["ece"]


def test_a_stream_has_the_panel_of_its_second_answer():
    y, p, reader, votes = two(2000)
    stream = StreamingAudit(n_resamples=50).update(y, p, votes=votes, p_reader=reader).finish()
    (mine,) = vote_reliability(stream.audit)
    (whole,) = vote_reliability(audit(y, p, votes=votes, p_reader=reader, n_resamples=50).audit)
    for key in ("n", "votes", "judges"):
        assert mine[key] == whole[key]
    assert mine["ece"] == pytest.approx(whole["ece"], rel=1e-6)
    assert mine["rho"] == pytest.approx(whole["rho"], abs=1e-4)
    assert "votes" in "".join(text.get_text() for text in stream.plot().axes[0].texts)


@pytest.mark.validity
@pytest.mark.parametrize(("rho", "shape"), [(0.05, (0.8, 0.9)), (0.4, (0.3, 2.0)), (0.8, (5, 5))])
def test_nine_of_ten_calibrated_points_lie_in_their_bars(rho, shape):
    """And the null of the error of all bins holds its level, though votes of a case go together."""
    runs, outside, filled, beyond = 300 if SLOW else 20, 0, 0, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        mean = rng.beta(*shape, 300)
        votes = correlated(mean, np.full(300, 7), rho, rng)
        y = (votes[:, 1] > 3).astype(int)
        result = audit(y, mean, votes=votes, n_resamples=200)
        panel = vote_reliability(result.audit)[0]
        for found in panel["bins"]:
            filled += 1
            outside += not found["bar_lo"] - 1e-9 <= found["mean_y"] <= found["bar_hi"] + 1e-9
        beyond += panel["ece"] > panel["null_high"]
    assert outside / filled < 0.1 + 3 * np.sqrt(0.09 / filled)
    assert beyond / runs < 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_diagrams_have_the_curve_of_labels_and_of_votes_and_count_each():
    rng = np.random.default_rng(0)
    chance = rng.uniform(size=400)
    votes = rng.binomial(5, chance)
    y = (votes > 2).astype(int)
    made = audit(y, chance, votes=votes, n_raters=5, n_resamples=20)
    (own,) = made.diagrams["reliability"].values()
    whole, *strata = own
    assert whole["stratum"] == "overall"
    assert sum(whole["positives"]) == y.sum()
    assert sum(whole["negatives"]) == (1 - y).sum()
    assert whole["curve"]["p"] == sorted(whole["curve"]["p"])
    # Strata that the votes made have neither.
    assert strata
    assert not any("curve" in panel for panel in strata)
    (panels,) = made.diagrams["vote_reliability"].values()
    (panel,) = panels
    assert sum(panel["positives"]) == votes.sum()
    assert sum(panel["positives"]) + sum(panel["negatives"]) == 2000
    # The labels are surer than the votes: their curve is the steeper one.
    rise = [np.ptp(shown["curve"]["value"]) for shown in (whole, panel)]
    assert rise[0] > rise[1]
    assert all(len(values) == 41 for values in panel["curve"].values())


def test_a_stratum_without_a_curve_says_why():
    p = np.linspace(0.1, 0.9, 40)
    strata = np.array(["a", "b"])[np.arange(40) % 2]
    y = np.where(strata == "a", 1, np.arange(40) // 2 % 2)
    made = audit(y, p, strata=strata, n_resamples=20)
    (panels,) = made.diagrams["reliability"].values()
    named = {panel["stratum"]: panel for panel in panels}
    assert named["a"]["curve"] is None
    assert "one class" in named["a"]["curve_reason"]
    assert named["b"]["curve"]
