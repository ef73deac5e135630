"""Heterogeneity between levels, and the interval for a new one: metafor, and studies whose truth is known."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom, chi2, chi2_contingency, kstest

from scalecal.inference import between_levels

REFERENCES = json.loads(Path(__file__).with_name("level_references.json").read_text())


@pytest.mark.parametrize("name", REFERENCES["effects"])
def test_random_effects_are_those_of_metafor(name):
    given = REFERENCES["effects"][name]
    found = between_levels.spread_of(np.array(given["values"]), np.array(given["variances"]))
    for key in ("mean", "low", "high", "tau2"):
        assert getattr(found, key) == pytest.approx(given[key], abs=1e-9)


def test_score_test_is_that_of_r():
    given = REFERENCES["score"]
    y, z = np.array(given["y"]), np.array(given["z"])
    level = (np.arange(len(y)) + 1) % 4
    found = between_levels.heterogeneity(y, expit(z), level, 4)
    assert found.method == "chi-square"
    assert found.statistic == pytest.approx(given["statistic"], rel=1e-5)
    assert found.p_value == pytest.approx(given["p"], rel=1e-5)


def slow_confidence(q, variances, tau2, rng, n=40_000):
    """P(Q >= q) of values that are drawn with this variance between them: its confidence distribution."""
    y = rng.normal(scale=np.sqrt(variances + tau2), size=(n, len(variances)))
    w = 1 / variances
    mean = y @ w / w.sum()
    return float((((y - mean[:, None]) ** 2) @ w >= q).mean())


def test_draws_have_the_confidence_distribution():
    rng = np.random.default_rng(0)
    variances = np.array([0.1, 0.4, 0.2, 0.9, 0.3])
    w = 1 / variances
    u = np.sqrt(w) / np.linalg.norm(np.sqrt(w))
    keep = np.eye(5) - np.outer(u, u)
    mu = np.linalg.eigvalsh(keep @ np.diag(w) @ keep)[1:]
    for q in (3.0, 9.0):
        drawn = between_levels._between(q, mu, 80_000, rng)
        # The first draws are those above zero, the others of the whole distribution.
        above, whole = np.split(drawn, [int(between_levels.ABOVE_ZERO * len(drawn))])
        zero = slow_confidence(q, variances, 0.0, rng)
        assert (above > 0).all()
        assert (whole == 0).mean() == pytest.approx(zero, abs=0.012)
        for tau2 in (0.1, 0.5, 2.0):
            share = slow_confidence(q, variances, tau2, rng)
            assert (whole <= tau2).mean() == pytest.approx(share, abs=0.012)
            given = (share - zero) / (1 - zero)
            assert (above <= tau2).mean() == pytest.approx(given, abs=0.03)


def test_equal_values_have_no_spread():
    found = between_levels.spread_of(np.full(6, 0.3), np.full(6, 0.01))
    assert found.tau2 == 0
    assert found.mean == pytest.approx(0.3)
    assert (found.low, found.high) == pytest.approx((0.3, 0.3))
    assert found.new_low <= 0.3 <= found.new_high


def test_few_levels_have_a_reason():
    found = between_levels.spread_of(np.array([0.1, 0.2]), np.ones(2))
    assert "at least 3" in found.reason
    assert np.isnan(found.new_low)


@pytest.mark.parametrize(("n", "chance"), [(30, 0.05), (30, 0.3), (400, 0.02)])
def test_estimates_of_few_events_are_unbiased_with_the_variance_they_state(n, chance):
    # Over all numbers of events that there may be, each with its probability.
    k = np.arange(n + 1)
    law = binom.pmf(k, n, chance)
    same = np.full(n + 1, n * chance), np.full(n + 1, n * chance * (1 - chance))
    values, variances = between_levels.log_ratios(k.astype(float), *same, np.ones(n + 1))
    assert law @ values == pytest.approx(0.0, abs=1e-6)
    assert law @ values**2 == pytest.approx(variances[0], rel=1e-6)
    # A rate that is a little higher moves them as much as its own logarithm.
    moved = binom.pmf(k, n, chance * 1.001) @ values
    assert moved == pytest.approx(np.log(1.001), rel=0.01)


def test_many_events_have_the_usual_estimate():
    values, variances = between_levels.log_ratios(
        np.array([5200.0]), np.array([5000.0]), np.array([4000.0]), np.ones(1)
    )
    assert values[0] == pytest.approx(np.log(1.04), abs=1e-3)
    assert variances[0] == pytest.approx(4000 / 5000**2, rel=0.01)


def simulated(rng, sizes, prevalence_logit, spread=0.0, group_size=0):
    level = np.repeat(np.arange(len(sizes)), sizes)
    z = prevalence_logit + rng.normal(size=len(level))
    truth = z + (spread * rng.normal(size=len(sizes)))[level]
    groups = None
    if group_size:
        # Patients belong to one level, and their cases go together.
        own = np.concatenate([rng.integers(max(1, n // group_size), size=n) for n in sizes])
        groups = np.unique(level * 10_000 + own, return_inverse=True)[1]
        truth = truth + 0.8 * rng.normal(size=groups.max() + 1)[groups]
    y = (rng.uniform(size=len(level)) < expit(truth)).astype(float)
    return y, expit(z), level, groups


@pytest.mark.parametrize(
    ("sizes", "middle", "group_size", "method"),
    [
        ([120] * 6, -0.5, 0, "chi-square"),
        ([30] * 6, -1.5, 0, "draws"),
        ([60] * 6, -0.5, 5, "sign flips"),
    ],
)
def test_size(sizes, middle, group_size, method):
    p_values, methods = [], set()
    for seed in range(250):
        drawn = simulated(np.random.default_rng(seed), sizes, middle, group_size=group_size)
        y, p, level, groups = drawn
        found = between_levels.heterogeneity(
            y, p, level, len(sizes), groups=groups, n_resamples=99, seed=seed
        )
        if np.isfinite(found.p_value):
            p_values.append(found.p_value)
            methods.add(found.method)
    assert methods == {method}
    # Three standard errors of 250 studies to either side of .05.
    assert 0.008 < np.mean(np.array(p_values) <= 0.05) < 0.092
    assert kstest(p_values, "uniform").pvalue > 0.001


def test_one_level_that_differs_is_found():
    rng = np.random.default_rng(1)
    level = np.arange(4000) % 5
    z = rng.normal(size=4000)
    y = (rng.uniform(size=4000) < expit(z + 0.7 * (level == 3))).astype(float)
    for groups in (None, np.arange(4000) // 5 % 400):
        found = between_levels.heterogeneity(y, expit(z), level, 5, groups=groups)
        assert found.p_value < 0.002
        assert found.p_levels.argmin() == 3
        assert found.p_levels[3] < 0.002


@pytest.mark.parametrize("method", ["chi-square", "draws", "sign flips"])
def test_slopes_that_differ_are_found_where_intercepts_do_not(method, monkeypatch):
    if method == "draws":
        monkeypatch.setattr(between_levels, "MIN_EVENTS", 10_000)
    for seed in range(20):
        rng = np.random.default_rng([9, seed])
        level = np.arange(4000) % 2
        z = 1.2 * rng.normal(size=4000)
        y = (rng.uniform(size=4000) < expit(np.array([0.6, 1.4])[level] * z)).astype(float)
        groups = None
        if method == "sign flips":
            groups = level + 2 * rng.integers(200, size=4000)
        found = between_levels.heterogeneity(y, expit(z), level, 2, groups=groups, n_resamples=199)
        assert (found.method, found.degrees) == (method, 2)
        assert found.p_value <= 0.005
        # Two levels have one comparison between them.
        assert found.p_levels == pytest.approx(found.p_value)


def test_draws_agree_with_the_chi_square_where_both_hold(monkeypatch):
    y, p, level, _ = simulated(np.random.default_rng(3), [300] * 4, -0.5, spread=0.25)
    expected = between_levels.heterogeneity(y, p, level, 4)
    monkeypatch.setattr(between_levels, "MIN_EVENTS", 10_000)
    drawn = between_levels.heterogeneity(y, p, level, 4, n_resamples=4000)
    assert (expected.method, drawn.method) == ("chi-square", "draws")
    assert drawn.p_value == pytest.approx(expected.p_value, abs=0.02)
    assert drawn.p_levels == pytest.approx(expected.p_levels, abs=0.03)


def test_levels_of_one_group_each_cannot_be_tested():
    y, p, level, _ = simulated(np.random.default_rng(4), [30] * 12, 0.0)
    found = between_levels.heterogeneity(y, p, level, 12, groups=level)
    assert np.isnan(found.p_value)
    assert "single group" in found.reason
    found = between_levels.heterogeneity(y, p, level, 12, groups=np.arange(360) // 15)
    assert "too few groups in a level" in found.reason


def test_one_class_has_no_line():
    found = between_levels.heterogeneity(np.zeros(40), np.full(40, 0.1), np.arange(40) % 2, 2)
    assert "all the same" in found.reason


def test_the_interval_holds_new_levels():
    held = []
    for seed in range(150):
        rng = np.random.default_rng([5, seed])
        sizes = rng.integers(30, 400, 10)
        y, p, level, _ = simulated(rng, sizes, -1.0, spread=0.4)
        line = between_levels.line_of(y, p)
        found = between_levels.ratio_spread(y, p, level, 10, line, n_draws=2000, seed=seed)
        z = -1.0 + rng.normal(size=2000)
        truth = expit(z + 0.4 * rng.normal(size=(40, 1))).mean(axis=1) / expit(z).mean()
        held.append(np.mean((np.log(truth) > found.new_low) & (np.log(truth) < found.new_high)))
    assert 0.92 < np.mean(held) < 0.985


def test_inflation_is_that_of_groups():
    rng = np.random.default_rng(6)
    groups = np.repeat(np.arange(600), 8)
    level = np.repeat(np.arange(4), 1200)
    chance = rng.beta(2, 2, size=600)[groups]
    y = (rng.uniform(size=4800) < chance).astype(float)
    found = between_levels.inflation_of(y, np.full(4800, 0.5), level, 4, groups)
    # A beta law with parameters 2, 2 has an intra-class correlation of 1 / 5.
    assert found == pytest.approx(np.full(4, 1 + 7 * 0.2), rel=0.15)
    assert between_levels.inflation_of(y, np.full(4800, 0.5), level, 4, None).tolist() == [1.0] * 4


@pytest.mark.parametrize(("constant", "expected_degrees"), [((), 6), ((1,), 5), ((1, 3), 4)])
def test_statistic_is_the_quadratic_form_of_effective_scores(constant, expected_degrees):
    k = 4
    y, p, level, _ = simulated(np.random.default_rng(8), [60, 80, 90, 70], -0.3, spread=0.5)
    # A level of equal p has no slope of its own.
    for j in constant:
        p[level == j] = 0.2 + 0.1 * j
    a, b = between_levels.line_of(y, p)
    z = between_levels.logits_of(p)
    q = expit(a + b * z)
    design = np.column_stack([np.ones(len(z)), z])
    v = np.diag(q * (1 - q))
    hat = design @ np.linalg.inv(design.T @ v @ design) @ design.T @ v

    def slow(own):
        """Statistic of these effective scores and its degrees."""
        projected = own - hat @ own
        scores = projected.T @ (y - q)
        covariance = projected.T @ v @ projected
        statistic = scores @ np.linalg.pinv(covariance, rcond=1e-9) @ scores
        return statistic, np.linalg.matrix_rank(covariance, tol=1e-9 * np.abs(covariance).max())

    indicators = np.eye(k)[level]
    statistic, degrees = slow(np.hstack([indicators, indicators * z[:, None]]))
    found = between_levels.heterogeneity(y, p, level, k)
    assert found.method == "chi-square"
    assert found.degrees == degrees == expected_degrees
    assert found.statistic == pytest.approx(statistic, rel=1e-6)
    assert found.p_value == pytest.approx(chi2.sf(statistic, degrees), rel=1e-6)
    for j in range(k):
        own = indicators[:, [j]]
        statistic, degrees = slow(np.hstack([own, own * z[:, None]]))
        assert found.p_levels[j] == pytest.approx(chi2.sf(statistic, degrees), rel=1e-6)


def test_levels_that_one_line_fits_anyway_are_not_compared():
    level = np.arange(200) % 2
    y = (np.random.default_rng(0).uniform(size=200) < 0.5).astype(float)
    found = between_levels.heterogeneity(y, np.array([0.3, 0.6])[level], level, 2)
    assert np.isnan(found.p_value)
    assert "one line fits" in found.reason
    # Where all p are equal there are rates to compare, and no slopes.
    found = between_levels.heterogeneity(y, np.full(200, 0.3), level, 2)
    assert found.degrees == 1
    table = np.array([[y[level == j].sum(), 100 - y[level == j].sum()] for j in (0, 1)])
    assert found.p_value == pytest.approx(chi2_contingency(table, correction=False).pvalue)
