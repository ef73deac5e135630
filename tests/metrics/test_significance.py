from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from sklearn.linear_model import LogisticRegression

from scalecal.checks import InputError
from scalecal.metrics import consistency, cox, ece, holm, kuiper, spiegelhalter
from scalecal.metrics.significance import brownian_range_sf
from tests.metrics import references as slow

TESTS = [cox, kuiper, spiegelhalter, consistency]


def test_cox_against_scikit_learn_and_direct_likelihood(rng):
    p = rng.uniform(0.02, 0.98, 150)
    y = (rng.random(150) < p**1.5).astype(int)
    result = cox(y, p)
    z = np.log(p / (1 - p))
    fit = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(z[:, None], y)
    assert result.details["intercept"] == pytest.approx(fit.intercept_[0], abs=1e-5)
    assert result.details["slope"] == pytest.approx(fit.coef_[0, 0], abs=1e-5)
    best = optimize.minimize(lambda t: -slow.cox_log_likelihood(y, p, *t), [0.0, 1.0], tol=1e-12)
    expected = 2 * (-best.fun - slow.cox_log_likelihood(y, p, 0, 1))
    assert result.statistic == pytest.approx(expected, abs=1e-5)
    assert result.p_value == pytest.approx(stats.chi2.sf(expected, 2), abs=1e-5)


def test_cox_from_far_away():
    p = np.array([1e-12, 1e-9, 1 - 1e-12, 1 - 1e-10, 0.5, 0.5] * 10)
    y = np.array([1, 0, 0, 1, 1, 0] * 10)
    result = cox(y, p)
    assert result.reason == ""
    assert abs(result.details["slope"]) < 0.2
    assert result.p_value < 1e-10


@pytest.mark.parametrize("wrong", [0.004, 0.02, 0.21, 0.5, 0.9])
@pytest.mark.parametrize("sure", [1.0, 1 - 1e-9, 0.95])
def test_cox_of_predictions_that_are_all_but_certain(wrong, sure, rng):
    said = rng.random(2000) < 0.3
    y = said ^ (np.arange(2000) % 1000 < 1000 * wrong)
    result = cox(y, np.where(said, sure, 1 - sure))
    # Two values of p, so the best line goes through both observed rates.
    rates = np.array([y[said].mean(), y[~said].mean()])
    eps = np.finfo(float).eps
    z = np.log(np.clip(sure, eps, 1 - eps)) - np.log(np.clip(1 - sure, eps, 1 - eps))
    high, low = np.log(rates / (1 - rates))
    assert result.details["slope"] == pytest.approx((high - low) / (2 * z), abs=1e-6)
    assert result.details["intercept"] == pytest.approx((high + low) / 2, abs=1e-4)
    if abs(wrong - (1 - sure)) > 0.01:
        assert result.p_value < 1e-6


@pytest.mark.parametrize("sharpness", [0.5, 2.0, 6.0, 15.0, 40.0])
def test_cox_against_a_general_optimiser(sharpness, rng):
    z = sharpness * rng.standard_normal(300)
    y = (rng.random(300) < 1 / (1 + np.exp(-0.4 - 0.7 * z / sharpness))).astype(int)
    p = 1 / (1 + np.exp(-z))
    eps = np.finfo(float).eps
    kept = np.clip(p, eps, 1 - eps)
    z = np.log(kept / (1 - kept))

    def loss(line):
        eta = line[0] + line[1] * z / sharpness
        return np.logaddexp(0, eta).sum() - y @ eta

    def slope(line):
        residual = 1 / (1 + np.exp(-line[0] - line[1] * z / sharpness)) - y
        return np.array([residual.sum(), residual @ z / sharpness])

    best = optimize.minimize(loss, [0.0, 0.0], jac=slope, method="BFGS", options={"gtol": 1e-9})
    result = cox(y, p)
    assert result.statistic == pytest.approx(2 * (loss([0.0, sharpness]) - best.fun), abs=1e-8)
    assert result.details["intercept"] == pytest.approx(best.x[0], abs=1e-5)
    assert result.details["slope"] == pytest.approx(best.x[1] / sharpness, abs=1e-5)


def test_cox_of_certain_predictions_that_are_right():
    result = cox([0, 0, 1], [0.0, 0.0, 1.0])
    assert (result.statistic, result.p_value) == pytest.approx((0.0, 1.0))
    assert "separate" in result.reason


def test_cox_takes_the_limit_where_classes_separate():
    y, p = [0, 0, 1, 1], [0.2, 0.3, 0.6, 0.7]
    result = cox(y, p)
    assert result.statistic == pytest.approx(-2 * slow.cox_log_likelihood(y, p, 0, 1))
    assert np.isnan(result.details["slope"])
    assert "separate" in result.reason
    # A steeper and steeper line comes as near to the limit as one likes.
    near = slow.cox_log_likelihood(y, p, 0.0, 60.0)
    assert near == pytest.approx(0.0, abs=1e-4)


def test_cox_takes_the_limit_where_one_value_is_shared():
    y, p = [0, 0, 1, 0, 1], [0.2, 0.5, 0.5, 0.5, 0.7]
    limit = np.log(1 / 3) + 2 * np.log(2 / 3)
    expected = 2 * (limit - slow.cox_log_likelihood(y, p, 0, 1))
    assert cox(y, p).statistic == pytest.approx(expected)
    assert cox([0, 1, 1], [0.9, 0.3, 0.2]).statistic > cox([1, 0, 0], [0.9, 0.3, 0.2]).statistic


def test_cox_with_one_probability_tests_the_intercept():
    y = [1] * 30 + [0] * 70
    result = cox(y, [0.5] * 100)
    expected = 2 * (30 * np.log(0.3) + 70 * np.log(0.7) - 100 * np.log(0.5))
    assert result.statistic == pytest.approx(expected)
    assert result.p_value == pytest.approx(stats.chi2.sf(expected, 1))
    assert result.details["degrees"] == 1
    assert result.details["intercept"] == pytest.approx(np.log(3 / 7))


def test_cox_of_one_class_is_by_drawn_labels():
    p = np.linspace(0.05, 0.15, 40)
    result = cox(np.zeros(40, int), p, n_resamples=20_000)
    assert np.isnan(result.details["slope"])
    assert "one class" in result.reason
    # Every other set of labels has more events: none is as likely, and few are as extreme.
    assert result.p_value > np.prod(1 - p)
    sure = cox(np.zeros(40, int), np.full(40, 0.1), n_resamples=20_000).p_value
    counts = np.arange(41)
    extreme = np.abs(counts - 4) >= 4
    assert sure == pytest.approx(stats.binom.pmf(counts, 40, 0.1)[extreme].sum(), abs=0.01)


@pytest.mark.parametrize("prevalence", [0.005, 0.05, 0.5])
def test_cox_holds_its_level_with_few_events(prevalence):
    rng = np.random.default_rng(7)
    rejected = 0
    for _ in range(300):
        z = np.log(prevalence / (1 - prevalence)) + rng.standard_normal(int(4 / prevalence))
        p = 1 / (1 + np.exp(-z))
        y = (rng.random(len(p)) < p).astype(int)
        rejected += cox(y, p, n_resamples=200, seed=rng).p_value <= 0.05
    assert stats.binomtest(rejected, 300, 0.05, alternative="greater").pvalue > 0.001


def test_spiegelhalter_against_the_brier_score(rng):
    # Z is the Brier score less its mean over its standard deviation, given p.
    p = rng.random(80)
    y = (rng.random(80) < p).astype(int)
    mean = (p * (1 - p)).mean()
    sd = np.sqrt(((1 - 2 * p) ** 2 * p * (1 - p)).sum()) / 80
    z = (((p - y) ** 2).mean() - mean) / sd
    result = spiegelhalter(y, p)
    assert result.statistic == pytest.approx(z)
    assert result.p_value == pytest.approx(2 * stats.norm.sf(abs(z)))


def test_kuiper_against_a_loop(cases):
    y, p = cases
    total, points = 0.0, [0.0]
    for value in sorted(set(p)):
        total += sum(a - b for a, b in zip(y, p, strict=True) if b == value)
        points.append(total)
    expected = (max(points) - min(points)) / np.sqrt((p * (1 - p)).sum())
    assert kuiper(y, p).statistic == pytest.approx(expected)


def test_law_of_the_range_against_simulation(rng):
    steps = 4000
    walk = np.cumsum(rng.standard_normal((3000, steps)), axis=1) / np.sqrt(steps)
    ranges = np.maximum(walk.max(axis=1), 0) - np.minimum(walk.min(axis=1), 0)
    # A walk misses about 0.58 of a step at each end of the range (Siegmund).
    ranges += 2 * 0.5826 / np.sqrt(steps)
    for x in (0.8, 1.2, 1.6, 2.0, 2.5, 3.0):
        chance = brownian_range_sf(x)
        assert (ranges > x).mean() == pytest.approx(
            chance, abs=4 * np.sqrt(chance * (1 - chance) / 3000) + 2e-3
        )


def test_law_of_the_range_is_one_law():
    assert brownian_range_sf(2 - 1e-9) == pytest.approx(brownian_range_sf(2.0), abs=1e-8)
    values = [brownian_range_sf(x) for x in np.linspace(0, 8, 200)]
    assert values[0] == 1.0
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(values))
    assert values[-1] < 1e-13
    # Its mean is known: E range = sqrt(8 / pi).
    x = np.linspace(0, 8, 4001)
    mean = np.trapezoid([brownian_range_sf(v) for v in x], x)
    assert mean == pytest.approx(np.sqrt(8 / np.pi), abs=1e-5)


def test_consistency_is_a_rank(rng):
    p = rng.random(60)
    y = (rng.random(60) < p).astype(int)
    result = consistency(y, p, n_resamples=400)
    assert result.statistic == pytest.approx(ece(y, p))
    direct = [ece((rng.random(60) < p).astype(int), p) for _ in range(2000)]
    assert result.p_value == pytest.approx(np.mean(direct >= np.float64(ece(y, p))), abs=0.1)
    assert result.details["floor"] == pytest.approx(np.mean(direct), rel=0.05)
    assert result.details["exact"] == 1.0


def test_consistency_counts_ties():
    # One case: ECE* is 0.5 whatever is drawn, so nothing is surprising.
    assert consistency([1], [0.5], n_resamples=99).p_value == 1.0


def test_consistency_smallest_p_value():
    assert consistency([1] * 200, [0.01] * 200, n_resamples=99).p_value == 0.01


@pytest.mark.parametrize("test", [kuiper, spiegelhalter])
def test_certain_probabilities(test):
    right, wrong = test([0, 1], [0.0, 1.0]), test([1, 1], [0.0, 1.0])
    assert np.isnan(right.p_value)
    assert right.reason
    assert (wrong.statistic, wrong.p_value) == (np.inf, 0.0)


@pytest.mark.parametrize("test", TESTS)
def test_soft_labels_are_refused(test):
    with pytest.raises(InputError, match=r"hard labels here, got 0\.4 at row 1"):
        test([0, 0.4], [0.2, 0.3])


@pytest.mark.parametrize("test", TESTS)
def test_more_classes_test_the_top_label(test, three):
    y, p = three
    hit = (p.argmax(axis=1) == y).astype(int)
    assert test(y, p) == test(hit, p.max(axis=1))


def _slow_holm(p):
    order = sorted(range(len(p)), key=lambda i: p[i])
    out, worst = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(p) - rank) * p[i]))
        out[i] = worst
    return out


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(0, 3))
def test_holm_against_a_loop_and_without_nan(p, n_nan):
    found = holm([float("nan")] * n_nan + p)
    assert np.isnan(found[:n_nan]).all()
    np.testing.assert_allclose(found[n_nan:], _slow_holm(p))


def test_holm_refuses_what_is_no_p_value():
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        holm([1.2])
    with pytest.raises(InputError, match="1-d"):
        holm([[0.1]])


def test_consistency_says_when_it_used_the_bins_limit(rng):
    p = rng.random(100_001)
    y = rng.random(100_001) < p
    result = consistency(y, p)
    assert result.details["exact"] == 0.0
    assert result.p_value > 0.001
    assert consistency(y, p**1.1).p_value == pytest.approx(1 / 1001)


@pytest.mark.parametrize("test", [spiegelhalter, kuiper, cox, consistency])
@pytest.mark.parametrize("shape", ["spread", "tied", "separated", "constant", "one class"])
def test_weights_count_cases(test, shape, rng):
    p = rng.random(60)
    if shape == "tied":
        p = np.round(p, 1)
    if shape == "constant":
        p = np.full(60, 0.4)
    y = {"separated": p > 0.5, "one class": p >= 0}.get(shape, rng.random(60) < p).astype(int)
    w = rng.integers(0, 4, 60)
    weighted = test(y, p, sample_weight=w)
    repeated = test(np.repeat(y, w), np.repeat(p, w))
    rel = 0.1 if test is consistency else 1e-9
    assert weighted.statistic == pytest.approx(repeated.statistic, rel=1e-9, nan_ok=True)
    assert weighted.p_value == pytest.approx(repeated.p_value, rel=rel, abs=rel / 2, nan_ok=True)
    assert weighted.reason == repeated.reason
    for name, value in repeated.details.items():
        assert weighted.details[name] == pytest.approx(value, rel=max(rel, 1e-6), nan_ok=True)
