from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from scalecal.checks import InputError
from scalecal.metrics import (
    bin_index,
    consistency,
    consistency_bars,
    cox,
    kuiper,
    noise_floor,
    resampled_ece,
    spiegelhalter,
)
from scalecal.metrics import resampling as module
from scalecal.metrics.grouping import (
    MIN_GROUPS,
    dependence,
    draw_uniforms,
    flipped,
    pair_covariance,
    pooled,
    read_groups,
    too_few,
)

TESTS = (cox, kuiper, spiegelhalter, consistency)


def together(rng, groups, p, share):
    """Labels of probability p that go together within groups."""
    return (draw_uniforms(1, len(p), groups, share, rng)[0] < p).astype(int)


@pytest.fixture
def grouped(rng):
    groups = np.sort(rng.integers(30, size=200))
    p = rng.beta(0.8, 0.8, 200)
    return together(rng, groups, p, 0.4), p, groups


def test_pair_covariance_against_a_loop(rng):
    p, w = np.round(rng.random(60), 1), rng.random(60)
    groups, cell = rng.integers(8, size=60), bin_index(p, n_bins=4)
    slow = np.zeros((4, 4))
    for i, j in product(range(60), repeat=2):
        if i != j and groups[i] == groups[j]:
            slow[cell[i], cell[j]] += w[i] * w[j] * (min(p[i], p[j]) - p[i] * p[j])
    np.testing.assert_allclose(pair_covariance(p, groups, cell, 4, w), slow, atol=1e-12)


def test_dependence_against_a_loop(grouped):
    y, p, groups = grouped
    cell = bin_index(p, n_bins=5)
    r = p - y
    within, apart, numbers = np.zeros((5, 5)), np.zeros((5, 5)), np.zeros((2, 5, 5))
    covariance = 0.0
    for i, j in product(range(200), repeat=2):
        if i == j:
            continue
        at = cell[i], cell[j]
        if groups[i] == groups[j]:
            within[at] += r[i] * r[j]
            numbers[0][at] += 1
            covariance += min(p[i], p[j]) - p[i] * p[j]
        else:
            apart[at] += r[i] * r[j]
            numbers[1][at] += 1
    slow = (within - numbers[0] * apart / np.maximum(numbers[1], 1)).sum() / covariance
    assert dependence(y, p, groups, cell, 5).share == pytest.approx(np.clip(slow, 0, 1))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7])
def test_dependence_is_found(share, rng):
    groups = np.arange(40_000) // 8
    p = rng.uniform(0.2, 0.7, 40_000)
    y = together(rng, groups, p, share)
    assert dependence(y, p, groups, bin_index(p), 15).share == pytest.approx(share, abs=0.02)


def test_miscalibration_is_not_taken_for_dependence(rng):
    p = rng.uniform(0.2, 0.7, 40_000)
    y = (rng.random(40_000) < p + 0.25).astype(int)
    assert dependence(y, p, np.arange(40_000) // 8, bin_index(p), 15).share < 0.01


def test_drawn_labels_have_their_own_law_and_the_promised_covariance(rng):
    p, groups = np.array([0.1, 0.4, 0.8, 0.8]), np.array([0, 0, 0, 1])
    y = draw_uniforms(200_000, 4, groups, 0.3, rng) < p
    np.testing.assert_allclose(y.mean(axis=0), p, atol=0.005)
    found = np.cov(y.T)
    for i, j in combinations(range(4), 2):
        expected = 0.3 * (min(p[i], p[j]) - p[i] * p[j]) if groups[i] == groups[j] else 0.0
        assert found[i, j] == pytest.approx(expected, abs=0.004)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_the_floor_of_groups_is_the_mean_of_the_draws(binning, grouped):
    y, p, groups = grouped
    options = {"y": y, "groups": groups, "binning": binning}
    drawn = resampled_ece(p, n_resamples=8000, **options)
    assert noise_floor(p, **options) == pytest.approx(drawn.mean(), rel=0.03)
    assert noise_floor(p, **options) > 1.05 * noise_floor(p, binning=binning)


def test_limit_of_many_grouped_cases_agrees_with_drawing_labels(monkeypatch, grouped):
    y, p, groups = grouped
    exact = module.Null.of(p, y, groups, 4).residuals(20_000, 0)
    monkeypatch.setattr(module, "EXACT_CASES", 10)
    limit = module.Null.of(p, y, groups, 4).residuals(20_000, 0)
    scale = np.sqrt(np.outer(exact.var(axis=0), exact.var(axis=0)))
    np.testing.assert_allclose(np.cov(limit.T) / scale, np.cov(exact.T) / scale, atol=0.05)


@pytest.mark.parametrize("test", TESTS)
def test_groups_of_one_case_are_no_groups(test, grouped):
    y, p, _ = grouped
    assert test(y, p, groups=np.arange(200)) == test(y, p)
    assert noise_floor(p, groups=np.arange(200)) == noise_floor(p)


@pytest.mark.parametrize("test", TESTS)
def test_too_few_groups_have_no_test_but_a_reason(test, grouped):
    y, p, _ = grouped
    result = test(y, p, groups=np.arange(200) % (MIN_GROUPS - 1))
    assert np.isnan(result.p_value)
    assert result.reason == f"too few groups ({MIN_GROUPS - 1}, at least {MIN_GROUPS} are needed)"
    assert np.isfinite(test(y, p, groups=np.arange(200) % MIN_GROUPS).p_value)


def test_too_few_groups_have_no_floor(grouped):
    y, p, _ = grouped
    groups = np.zeros(200, int)
    assert np.isnan(noise_floor(p, y=y, groups=groups))
    assert np.isnan(resampled_ece(p, y=y, groups=groups)).all()
    assert np.isnan(consistency_bars(p, y=y, groups=groups).lo).all()


def test_names_of_groups_do_not_matter(grouped, rng):
    y, p, groups = grouped
    names = np.array([f"patient {chr(65 + g)}" for g in groups])
    order = rng.permutation(200)
    assert noise_floor(p[order], y=y[order], groups=names[order]) == pytest.approx(
        noise_floor(p, y=y, groups=groups)
    )
    assert cox(y, p, groups=names).p_value == cox(y, p, groups=groups).p_value


def all_signs(count):
    return np.array(list(product((-1, 1), repeat=count)))


def test_flipped_scores_against_all_sign_vectors(rng):
    """Ten groups have 1,024 sign vectors: the share of them that reach the statistic is the p-value."""
    groups = np.arange(120) % 10
    p = rng.beta(1, 2, 120)
    y = together(rng, groups, p, 0.3)
    signs = all_signs(10)
    z = np.log(p / (1 - p))
    sd = np.sqrt(p * (1 - p))
    rows = [groups == g for g in range(10)]
    scores = np.array([[(y - p)[g].sum(), ((y - p) * z)[g].sum()] for g in rows])
    spread = np.array([[sd[g].sum(), (sd * z)[g].sum()] for g in rows])
    line = np.column_stack([np.ones(120), z])
    pairs = sum(
        sd[i] * sd[j] for i, j in product(range(120), repeat=2) if i != j and groups[i] == groups[j]
    )
    products = sum(
        (y - p)[i] * (y - p)[j]
        for i, j in product(range(120), repeat=2)
        if i != j and groups[i] == groups[j]
    )
    rho = np.clip(products / pairs, 0, 1)
    working = (1 - rho) * (line.T * sd**2) @ line + rho * spread.T @ spread
    inverse = np.linalg.inv(working)
    total = scores.sum(axis=0)
    statistic = total @ inverse @ total
    flips = signs @ scores
    exact = (np.einsum("ij,jk,ik->i", flips, inverse, flips) >= statistic - 1e-9).mean()
    result = cox(y, p, groups=groups, n_resamples=40_000)
    assert result.statistic == pytest.approx(statistic)
    assert result.p_value == pytest.approx(exact, abs=0.01)

    brier = np.array([((y - p) * (1 - 2 * p))[g].sum() for g in rows])
    exact = (np.abs(signs @ brier) >= abs(brier.sum()) - 1e-9).mean()
    found = spiegelhalter(y, p, groups=groups, n_resamples=40_000).p_value
    assert found == pytest.approx(exact, abs=0.01)

    order = np.argsort(p)
    walks = np.cumsum(signs[:, groups[order]] * (y - p)[order], axis=1)
    reach = np.maximum(walks.max(axis=1), 0) - np.minimum(walks.min(axis=1), 0)
    exact = (reach >= reach[-1] - 1e-9).mean()  # the last vector has no minus
    found = kuiper(y, p, groups=groups, n_resamples=40_000).p_value
    assert found == pytest.approx(exact, abs=0.01)


def test_cox_of_groups_keeps_intercept_and_slope(grouped):
    y, p, groups = grouped
    assert cox(y, p, groups=groups).details == cox(y, p).details


def test_cox_of_groups_with_one_probability_tests_the_intercept(rng):
    groups = np.arange(80) // 4
    low = cox((rng.random(80) < 0.9).astype(int), np.full(80, 0.4), groups=groups)
    assert low.p_value < 0.01
    assert low.details["degrees"] == 1


def test_more_groups_than_are_flipped_are_pooled_whole(rng):
    groups = np.repeat(np.arange(5000), 2)
    pools = pooled(groups, rng)
    assert pools.max() + 1 == 2000
    assert (pools[::2] == pools[1::2]).all()
    assert flipped(np.ones((7, 3)), 11, rng).shape == (11, 3)


def test_what_groups_need_is_named(grouped):
    y, p, groups = grouped
    with pytest.raises(InputError, match="groups need y as well"):
        noise_floor(p, groups=groups)
    with pytest.raises(InputError, match="cannot go with groups"):
        cox(y, p, groups=groups, sample_weight=np.ones(200))
    with pytest.raises(InputError, match="one value per case"):
        cox(y, p, groups=groups[:5])


def test_reading_groups():
    assert read_groups(None, 3) is None
    assert read_groups([7, 7, 2], 3).tolist() == [0, 0, 1]
    assert too_few(None) == ""
    assert too_few(np.arange(3)) == ""
