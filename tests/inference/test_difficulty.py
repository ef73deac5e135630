"""Votes against probabilities within strata of predicted difficulty."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from scalecal import metrics
from scalecal.inference import difficulty
from scalecal.inference.difficulty import DIFFICULTIES, difficulty_codes, votes_by_difficulty
from scalecal.panel import label_logit, reader_logit


def made(n=600, rho=0.15, m=7, seed=0):
    """Votes by the panel law, a reader's probability and the label's."""
    rng = np.random.default_rng(seed)
    mu = expit(1.6 * rng.normal(size=n) - 0.3)
    odds = (1 - rho) / rho
    votes = rng.binomial(m, rng.beta(mu * odds, (1 - mu) * odds))
    return votes, mu, expit(label_logit(logit(mu), rho, m))


def slow_test(votes, m, mu_at):
    """The score test of one stratum of one cell, case by case, with rho of the best scipy likelihood."""

    def loss(rho):
        mu, odds = mu_at(rho), (1 - rho) / rho
        return -stats.betabinom.logpmf(votes, m, mu * odds, (1 - mu) * odds).sum()

    rho = minimize_scalar(loss, bounds=(1e-9, 0.99), method="bounded").x
    mu = mu_at(rho)
    score, spread = np.zeros(2), np.zeros((2, 2))
    for k, q in zip(votes, mu, strict=True):
        line = np.array([1.0, np.log(q / (1 - q))])
        worth = m / (1 + (m - 1) * rho)
        score += worth * (k / m - q) * line
        spread += worth * q * (1 - q) * np.outer(line, line)
    return rho, stats.chi2.sf(score @ np.linalg.inv(spread) @ score, 2)


@pytest.mark.parametrize("of_label", [False, True])
def test_equals_a_slow_reference(of_label, monkeypatch):
    monkeypatch.setattr(difficulty, "MAX_CELLS", 1)
    votes, mu, p = made(250)
    given = p if of_label else mu
    found = votes_by_difficulty(votes, given, 7, of_label=of_label)
    top = np.maximum(given, 1 - given)
    codes = difficulty_codes(-top, top)
    for number, test in enumerate(found):
        inside = codes == number
        z = logit(given[inside])

        def mu_at(rho, z=z):
            return expit(reader_logit(z, rho, 7) if of_label else z)

        rho, expected = slow_test(votes[inside], 7, mu_at)
        assert test["name"] == DIFFICULTIES[number]
        assert (test["n"], test["n_votes"]) == (inside.sum(), 7 * inside.sum())
        assert test["vote_rho"] == pytest.approx(rho, abs=2e-3)
        assert test["p_votes"] == pytest.approx(expected, rel=0.03, abs=2e-3)
        q, f = mu_at(test["vote_rho"]), votes[inside] / 7
        assert test["vote_mean_p"] == pytest.approx(q.mean())
        assert test["vote_share"] == pytest.approx(f.mean())
        assert test["vote_confidence"] == pytest.approx(np.maximum(q, 1 - q).mean())
        assert test["vote_agreement"] == pytest.approx(np.where(q >= 0.5, f, 1 - f).mean())
    adjusted = metrics.holm([t["p_votes"] for t in found])
    assert [t["p_votes_holm"] for t in found] == pytest.approx(adjusted.tolist())


def test_rho_is_of_cells_of_like_cases():
    """Where rho falls with certainty one number for all cases would bend what p implies."""
    rng = np.random.default_rng(8)
    x = 5.0 * rng.normal(size=20_000)
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    weights /= weights.sum()
    votes = rng.binomial(7, expit(x + rng.normal(size=len(x))))
    chance = expit(x[:, None] + nodes)
    p = np.clip(stats.binom.sf(3, 7, chance) @ weights, 1e-15, 1 - 1e-15)
    found = votes_by_difficulty(votes, p, 7, of_label=True)
    assert found[0]["vote_rho"] < found[2]["vote_rho"]
    for test in found:
        assert abs(test["vote_confidence"] - test["vote_agreement"]) < 1 / np.sqrt(test["n"])
    assert min(t["p_votes_holm"] for t in found) > 0.01


def test_strata_have_a_third_of_the_variance_and_keep_ties_together():
    rng = np.random.default_rng(1)
    p = np.round(rng.beta(0.3, 0.3, 3000), 2)
    top = np.maximum(p, 1 - p)
    codes = difficulty_codes(-top, top)
    share = np.bincount(codes, top * (1 - top)) / (top * (1 - top)).sum()
    np.testing.assert_allclose(share, 1 / 3, atol=0.03)
    assert np.bincount(codes)[0] > np.bincount(codes)[2]
    for value in np.unique(top):
        assert len(np.unique(codes[top == value])) == 1
    assert (np.diff(codes[np.argsort(-top, kind="stable")]) >= 0).all()


def test_difficulty_looks_at_no_vote():
    votes, mu, _ = made()
    other = np.random.default_rng(5).permutation(votes)
    ns = [[t["n"] for t in votes_by_difficulty(v, mu, 7)] for v in (votes, other)]
    assert ns[0] == ns[1]


def test_weights_count_cases():
    votes, mu, p = made(200)
    times = np.random.default_rng(2).integers(1, 6, 200)
    for probs, of_label in ((mu, False), (p, True)):
        weighted = votes_by_difficulty(votes, probs, 7, of_label=of_label, sample_weight=times)
        copies = votes_by_difficulty(
            np.repeat(votes, times), np.repeat(probs, times), 7, of_label=of_label
        )
        for mine, theirs in zip(weighted, copies, strict=True):
            assert (mine["n"], mine["n_votes"]) == (theirs["n"], theirs["n_votes"])
            assert mine["p_votes"] == pytest.approx(theirs["p_votes"], rel=1e-2)


def test_intervals_depend_on_the_ratios_of_importance_weights_alone():
    rng = np.random.default_rng(0)
    chance = rng.beta(2, 2, size=400)
    votes = rng.binomial(5, chance)
    weights = rng.uniform(0.2, 2.0, size=400)
    made = [votes_by_difficulty(votes, chance, 5, importance=k * weights) for k in (0.5, 1.0, 5.0)]
    ends = [[(t["vote_gap_low"], t["vote_gap_high"]) for t in tests] for tests in made]
    np.testing.assert_allclose(ends[0], ends[1])
    np.testing.assert_allclose(ends[2], ends[1])
    even = votes_by_difficulty(votes, chance, 5, importance=np.full(400, 3.0))
    plain = votes_by_difficulty(votes, chance, 5)
    assert [t["vote_gap_low"] for t in even] == pytest.approx([t["vote_gap_low"] for t in plain])


def test_many_cases_interpolate_the_reader(monkeypatch):
    votes, _, p = made(900)
    exact = votes_by_difficulty(votes, p, 7, of_label=True)
    monkeypatch.setattr(difficulty, "_KNOTS", 200)
    close = votes_by_difficulty(votes, p, 7, of_label=True)
    for mine, theirs in zip(close, exact, strict=True):
        assert mine["p_votes"] == pytest.approx(theirs["p_votes"], rel=0.03)


def test_groups_of_one_case_are_cases_and_real_groups_widen():
    rng = np.random.default_rng(3)
    groups = np.arange(600) // 15
    x = 1.5 * rng.normal(size=600)
    mu = expit(x)
    votes = rng.binomial(7, expit(x + 1.2 * rng.normal(size=40)[groups]))
    alone = votes_by_difficulty(votes, mu, 7)
    assert votes_by_difficulty(votes, mu, 7, groups=np.arange(600)) == alone
    together = votes_by_difficulty(votes, mu, 7, groups=groups)
    assert min(t["p_votes"] for t in together) > min(t["p_votes"] for t in alone)
    again = votes_by_difficulty(votes, mu, 7, groups=groups)
    assert again == together


def test_several_classes_are_judged_by_the_predicted_one():
    rng = np.random.default_rng(4)
    mean = rng.dirichlet([0.8, 0.8, 0.8], 900)
    votes = rng.multinomial(5, mean)
    right = votes_by_difficulty(votes, mean)
    assert min(t["p_votes_holm"] for t in right) > 0.05
    # The same faults in whichever class is predicted, however the classes are ordered.
    sure = mean**2.5 / (mean**2.5).sum(axis=1, keepdims=True)
    wrong = votes_by_difficulty(votes, sure)
    assert max(t["p_votes_holm"] for t in wrong[:2]) < 0.01
    order = [2, 0, 1]
    turned = votes_by_difficulty(votes[:, order], sure[:, order])
    assert [t["p_votes"] for t in turned] == pytest.approx([t["p_votes"] for t in wrong])
    for test in wrong:
        assert (test["vote_confidence"], test["vote_agreement"]) == (
            test["vote_mean_p"],
            test["vote_share"],
        )


def test_several_classes_of_the_label_imply_a_reader():
    rng = np.random.default_rng(6)
    mean = rng.dirichlet([1.0, 1.0, 1.0], 240)
    votes = rng.multinomial(5, mean)
    label = np.exp(label_logit(np.log(mean), 0.0, 5))
    found = votes_by_difficulty(votes, label, of_label=True)
    assert min(t["p_votes_holm"] for t in found) > 0.05
    assert max(t["vote_rho"] for t in found) < 0.25


def test_a_constant_prediction_is_one_stratum_and_tests_its_level():
    votes = np.random.default_rng(7).binomial(7, 0.4, 300)
    for p, limit in ((0.4, (0.01, 1.0)), (0.5, (0.0, 0.001))):
        found = votes_by_difficulty(votes, np.full(300, p), 7)
        assert [t["n"] for t in found] == [0, 300, 0]
        assert limit[0] <= found[1]["p_votes"] <= limit[1]
        assert found[0]["reason"] == "no case in this stratum"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"groups": np.arange(600) % 5}, "too few groups (5, at least 8 are needed)"),
        ({"of_label": True, "y": np.zeros(600, int)}, "more than one in twenty labels"),
    ],
)
def test_no_verdict_but_the_reason(change, reason):
    votes, mu, _ = made()
    for test in votes_by_difficulty(votes, mu, 7, **change):
        assert np.isnan(test["p_votes"])
        assert reason in test["reason"]


@pytest.mark.parametrize("m", [4, 8])
def test_ties_that_go_one_way_have_no_verdict(m):
    """p that is right for such labels is not T_m, which shares ties, and every case would be blamed."""
    votes, mu, shared = made(m=m)
    odds = (1 - 0.15) / 0.15
    above = stats.betabinom.sf(m // 2, m, mu * odds, (1 - mu) * odds)
    tied = 2 * votes == m
    for ties, p, side in ((0, above, "first"), (1, 1 - above[::-1], "last")):
        own = votes if ties == 0 else m - votes[::-1]
        y = np.where(2 * own == m, ties, 2 * own > m)
        for test in votes_by_difficulty(own, p, m, of_label=True, y=y):
            assert np.isnan(test["p_votes"])
            assert (
                f"({tied.sum()} of {tied.sum()} to the {side} of the tied classes)"
                in test["reason"]
            )
    y = np.where(tied, np.cumsum(tied) % 2, 2 * votes > m)
    for test in votes_by_difficulty(votes, shared, m, of_label=True, y=y):
        assert test["p_votes_holm"] > 0.01
    weighted = votes_by_difficulty(
        votes, above, m, of_label=True, y=2 * votes > m, sample_weight=np.full(600, 2)
    )
    assert all(f"({2 * tied.sum()} of" in test["reason"] for test in weighted)
    assert all(test["reason"] == "" for test in votes_by_difficulty(votes, mu, m, y=2 * votes > m))


def test_ties_of_several_classes_that_go_one_way_have_no_verdict():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=400)
    votes = np.array([rng.multinomial(4, row) for row in p])
    for test in votes_by_difficulty(votes, p, of_label=True, y=votes.argmax(axis=1)):
        assert "to the first of the tied classes" in test["reason"]
    y = (votes + 0.1 * rng.random(votes.shape)).argmax(axis=1)
    for test in votes_by_difficulty(votes, p, of_label=True, y=y):
        assert test["reason"] == ""


def test_too_few_or_too_sure_has_no_verdict():
    few = votes_by_difficulty([3, 4, 1], [0.4, 0.5, 0.3], 7)
    assert {t["reason"][:13] for t in few if t["n"]} == {"too few cases"}
    sure = votes_by_difficulty([0] * 60, np.full(60, 1e-4), 7)
    assert [t["reason"][:17] for t in sure if t["n"]] == ["its probabilities"]
    none = votes_by_difficulty(np.zeros((4, 2), int), [0.1, 0.5, 0.7, 0.2])
    assert [t["n"] for t in none] == [0, 0, 0]


def test_single_votes_and_pairs_are_tested_as_they_stand():
    """T_1 and T_2 are the identity: the label's probability is the reader's."""
    for m in (1, 2):
        votes, mu, _ = made(m=m)
        label = votes_by_difficulty(votes, mu, m, of_label=True)
        reader = votes_by_difficulty(votes, mu, m)
        for one, other in zip(label, reader, strict=True):
            assert one["p_votes"] == pytest.approx(other["p_votes"], rel=1e-6)


@pytest.mark.validity
@pytest.mark.parametrize("grouped", [False, True])
def test_intervals_of_over_confidence_hold_the_truth(grouped):
    runs, held = 60, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        chance = rng.beta(2, 2, size=300)
        votes = rng.binomial(5, chance)
        sure = expit(1.5 * logit(chance))
        groups = np.arange(300) // 3 if grouped else None
        hard = votes_by_difficulty(votes, sure, 5, groups=groups, n_resamples=20)[2]
        assert hard["vote_overconfidence"] == pytest.approx(
            hard["vote_confidence"] - hard["vote_agreement"]
        )
        inside = difficulty_codes(-np.maximum(sure, 1 - sure), np.maximum(sure, 1 - sure)) == 2
        side = np.where(sure >= 0.5, 1, -1)[inside]
        truth = np.mean(side * (sure - chance)[inside])
        held += hard["vote_overconfidence_low"] <= truth <= hard["vote_overconfidence_high"]
    assert held / runs > 0.95 - 3 * np.sqrt(0.05 * 0.95 / runs)
