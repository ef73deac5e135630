"""Importance weights by class: nulls against brute force, tests by their size and power."""

import os

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr

from scalecal.checks import InputError
from scalecal.metrics import ece
from scalecal.metrics.reweighting import ClassWeights, Reweighted

RUNS = 1000 if os.environ.get("SCALECAL_SLOW") == "1" else 100
TESTS = ("cox", "kuiper", "spiegelhalter", "consistency")
SHIFT = -3.2
GRID = expit(1.8 * np.random.default_rng(1).normal(size=1_000_000) + SHIFT)
PREVALENCE = float(GRID.mean())


def enriched(rng, n, size=1):
    """About n cases, half of them positive, of a population in groups where p is calibrated."""
    m = 6 * n
    groups = np.arange(m) // size
    seen, unseen = (
        np.sqrt(0.3) * rng.normal(size=m)[groups] + np.sqrt(0.7) * rng.normal(size=m)
        if size > 1
        else rng.normal(size=m)
        for _ in range(2)
    )
    p = expit(1.8 * seen + SHIFT)
    y = (ndtr(unseen) < p).astype(int)
    if size > 1:  # whole groups, their negatives thinned
        kept = (y == 1) | (rng.random(m) < PREVALENCE / (1 - PREVALENCE))
        return y[kept], p[kept], np.unique(groups[kept], return_inverse=True)[1]
    rows = np.concatenate([np.flatnonzero(y == c)[: n // 2] for c in (0, 1)])
    return y[rows], p[rows], None


def weighted_ece(y, p):
    return ece(y, p, sample_weight=ClassWeights.of(y, PREVALENCE).by_label(y))


def test_weights_give_the_prevalence(rng):
    y = (rng.random(200) < 0.4).astype(int)
    weights = ClassWeights.of(y, 0.07)
    w = weights.by_label(y)
    assert np.average(y, weights=w) == pytest.approx(0.07)
    assert w.sum() == pytest.approx(200)


def test_odds_in_the_sample_are_bayes():
    """Of two normal classes, the posterior at either prevalence."""
    x = np.linspace(-3, 3, 7)
    y = np.repeat([0, 1], [30, 70])
    at = {share: expit(2 * x + logit(share)) for share in (0.05, 0.7)}
    assert ClassWeights.of(y, 0.05).in_sample(at[0.05]) == pytest.approx(at[0.7])


def test_residuals_have_mean_zero_at_every_p():
    y, p = np.repeat([0, 1], [30, 70]), np.linspace(0.01, 0.99, 100)
    weights = ClassWeights.of(y, 0.2)
    q = weights.in_sample(p)
    mean = q * weights.positive * (1 - p) - (1 - q) * weights.negative * p
    assert mean == pytest.approx(np.zeros(100), abs=1e-12)


def test_one_class_cannot_be_reweighted():
    with pytest.raises(InputError, match="all of one class"):
        ClassWeights.of(np.ones(5, dtype=int), 0.1)


def test_statistic_is_the_weighted_ece(rng):
    y, p, _ = enriched(rng, 200)
    found = Reweighted(y, p, PREVALENCE).test("consistency", n_resamples=20)
    assert found.statistic == pytest.approx(weighted_ece(y, p))


@pytest.mark.parametrize("size", [1, 20])
def test_floor_is_the_mean_ece_of_samples_drawn_anew(size):
    """Brute force: sample the population again and again, labels and all."""
    floors, errors = [], []
    for run in range(120):
        y, p, groups = enriched(np.random.default_rng([run, size]), 300, size)
        errors.append(weighted_ece(y, p))
        if run < 30:
            found = Reweighted(y, p, PREVALENCE, groups).test("consistency", n_resamples=200)
            floors.append(found.details["floor"])
    noise = np.std(errors) / np.sqrt(len(errors)) + np.std(floors) / np.sqrt(len(floors))
    # The dependence in groups is estimated, and only ever raises the floor.
    assert abs(np.mean(floors) - np.mean(errors)) < 3 * noise + (
        0.05 * np.mean(errors) if size > 1 else 0
    )


def test_variance_is_that_of_samples_drawn_anew():
    """V of Cox's scores, which knows that the numbers of both classes are fixed."""
    scores, claimed = [], []
    for run in range(400):
        y, p, _ = enriched(np.random.default_rng(run), 300)
        model = Reweighted(y, p, PREVALENCE)
        h = np.column_stack([np.ones(len(p)), logit(p)])
        scores.append(model._residual @ h)
        claimed.append(model._variance(h))
    seen, said = np.cov(np.array(scores).T), np.mean(claimed, axis=0)
    assert np.diag(said) == pytest.approx(np.diag(seen), rel=0.25)


def test_normal_limit_has_the_spread_of_the_draws(rng, monkeypatch):
    y, p, _ = enriched(rng, 600)
    model = Reweighted(y, p, PREVALENCE)
    exact = model.drawn_ece(n_resamples=2000)
    monkeypatch.setattr("scalecal.metrics.reweighting.EXACT_CASES", 10)
    limit = model.drawn_ece(n_resamples=2000)
    assert limit.mean() == pytest.approx(exact.mean(), rel=0.05)
    assert np.quantile(limit, 0.95) == pytest.approx(np.quantile(exact, 0.95), rel=0.08)


def test_some_rows_are_tested_within_all_cases(rng):
    y, p, _ = enriched(rng, 400)
    model, rows = Reweighted(y, p, PREVALENCE), np.flatnonzero(rng.random(len(y)) < 0.5)
    for name in TESTS:
        whole, every = (
            model.test(name, r, n_resamples=99) for r in (slice(None), np.arange(len(y)))
        )
        assert whole == every
        assert 0 < model.test(name, rows, n_resamples=99).p_value <= 1


def test_bars_hold_a_calibrated_models_points(rng):
    outside = total = 0
    for _ in range(20):
        y, p, _ = enriched(rng, 400)
        w = ClassWeights.of(y, PREVALENCE).by_label(y)
        cell = np.minimum((p * 15).astype(int), 14)
        bars = Reweighted(y, p, PREVALENCE).consistency_bars(n_resamples=199)
        for b in np.unique(cell):
            inside = cell == b
            share = np.average(y[inside], weights=w[inside])
            outside += not bars.lo[b] - 1e-9 <= share <= bars.hi[b] + 1e-9
            total += 1
    assert outside / total < 0.18


@pytest.mark.validity
@pytest.mark.parametrize(("n", "size"), [(200, 1), (600, 1), (600, 20)])
def test_calibrated_models_are_rejected_at_the_level(n, size):
    rejected = dict.fromkeys(TESTS, 0)
    for run in range(RUNS):
        y, p, groups = enriched(np.random.default_rng([run, n, size]), n, size)
        model = Reweighted(y, p, PREVALENCE, groups)
        for name in TESTS:
            rejected[name] += model.test(name, n_resamples=99).p_value <= 0.05
    for name, count in rejected.items():
        assert count / RUNS < 0.05 + 0.02 + 3.5 * np.sqrt(0.05 * 0.95 / RUNS), name


def test_a_model_of_the_sample_is_found(rng):
    y, p, groups = enriched(rng, 600, 20)
    model = Reweighted(y, ClassWeights.of(y, PREVALENCE).in_sample(p), PREVALENCE, groups)
    # Spiegelhalter's test is blind to such shifts.
    assert max(model.test(name).p_value for name in TESTS if name != "spiegelhalter") < 0.01


def test_few_groups_have_no_test(rng):
    y, p, _ = enriched(rng, 100)
    model = Reweighted(y, p, PREVALENCE, np.arange(len(y)) % 5)
    for name in TESTS:
        found = model.test(name)
        assert np.isnan(found.p_value)
        assert "too few groups" in found.reason
