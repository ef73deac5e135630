import os

import numpy as np
import pytest

from scalecal import metrics
from scalecal.inference.selection import _nearest_window, selection_draws
from scalecal.metrics import resampling as floors
from scalecal.votes import stratum_codes

SLOW = os.environ.get("SCALECAL_SLOW") == "1"


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def test_nearest_window_equals_a_sort_by_distance():
    rng = np.random.default_rng(0)
    for k in (1, 3, 20):
        values = np.sort(rng.normal(size=57))
        queries = rng.normal(size=80) * 2
        start = _nearest_window(values, np.arange(1, len(values) + 1), k, queries)
        for s, q in zip(start, queries, strict=True):
            nearest = np.sort(np.abs(values - q))[:k]
            np.testing.assert_allclose(np.sort(np.abs(values[s : s + k] - q)), nearest)
        times = rng.integers(0, 4, 57)
        times[0] = 1
        copies = np.repeat(values, times)
        weighted = _nearest_window(values, np.cumsum(times), k, queries)
        one_each = _nearest_window(copies, np.arange(1, len(copies) + 1), k, queries)
        np.testing.assert_array_equal(weighted, one_each)


def test_null_of_strata_unrelated_to_the_label_is_the_plain_floor():
    rng = np.random.default_rng(1)
    p = rng.beta(0.8, 0.8, size=2000)
    y = (rng.random(2000) < p).astype(int)
    codes = rng.integers(2, size=2000)
    wide = selection_draws(y, p, codes, n_strata=2, n_neighbours=300, n_resamples=400).ece
    narrow = selection_draws(y, p, codes, n_strata=2, n_resamples=400).ece
    for s in range(2):
        plain = metrics.resampled_ece(p[codes == s], n_resamples=400).mean()
        assert wide[:, s].mean() == pytest.approx(plain, rel=0.1)
        # Few neighbours show an association that is not there, which only makes the null cautious.
        assert plain < narrow[:, s].mean() < 2 * plain


def test_normal_limit_agrees_with_drawing_case_by_case(monkeypatch):
    rng = np.random.default_rng(2)
    n = 6000
    x = 2 * rng.normal(size=n)
    votes = rng.binomial(7, sigmoid(x + rng.normal(size=n)))
    y, p = (votes >= 4).astype(int), sigmoid(1.4 * x)
    codes = stratum_codes(np.column_stack([7 - votes, votes]))
    exact = selection_draws(y, p, codes, n_strata=3, n_resamples=400).ece
    monkeypatch.setattr("scalecal.inference.selection.EXACT_CASES", 10)
    limit = selection_draws(y, p, codes, n_strata=3, n_resamples=400).ece
    np.testing.assert_allclose(limit.mean(axis=0), exact.mean(axis=0), rtol=0.06)
    np.testing.assert_allclose(limit.std(axis=0), exact.std(axis=0), rtol=0.25)
    assert floors.EXACT_CASES == 100_000


def split_study(n, seed):
    """Labels, calibrated probabilities and strata of agreement."""
    y, p, votes = calibrated_study(np.random.default_rng(seed), n, 1.6, 0.6)
    return y, p, stratum_codes(np.column_stack([7 - votes, votes]))


def test_bins_and_errors_are_of_the_same_draws(monkeypatch):
    y, p, codes = split_study(2000, 0)
    exact = selection_draws(y, p, codes, n_strata=3, n_resamples=300)
    size = exact.n.sum(axis=2)
    np.testing.assert_allclose(exact.ece, np.abs(exact.residual).sum(axis=2) / size)
    np.testing.assert_array_equal(
        exact.ece, selection_draws(y, p, codes, n_strata=3, n_resamples=300).ece
    )
    assert (size.sum(axis=1) == 2000).all()
    b = 11  # a bin slowly: draws without a case there do not count
    shares = [r / c for r, c in zip(exact.residual[:, 2, b], exact.n[:, 2, b], strict=True) if c]
    np.testing.assert_allclose(exact.bars(2, 0.8)[:, b], np.quantile(shares, [0.1, 0.9]))
    monkeypatch.setattr("scalecal.inference.selection.EXACT_CASES", 10)
    limit = selection_draws(y, p, codes, n_strata=3, n_resamples=300)
    np.testing.assert_allclose(limit.bars(2), exact.bars(2), atol=0.06)


@pytest.mark.validity
def test_bars_hold_nine_of_ten_dots_of_calibrated_models_where_readers_split():
    runs = 60 if SLOW else 12
    inside = {"selection": [], "labels alone": []}
    for seed in range(runs):
        y, p, codes = split_study(977, seed)
        low = codes == 2
        table = metrics.bins(y[low], p[low])
        some = table.n >= 5
        ends = selection_draws(y, p, codes, n_strata=3, n_resamples=300, seed=seed).bars(2)
        gap = table.mean_p - table.mean_y
        inside["selection"] += ((ends[0] <= gap) & (gap <= ends[1]))[some].tolist()
        bars = metrics.consistency_bars(p[low], n_resamples=300, seed=seed)
        inside["labels alone"] += ((bars.lo <= table.mean_y) & (table.mean_y <= bars.hi))[
            some
        ].tolist()
    share = {name: np.mean(found) for name, found in inside.items()}
    assert 0.85 < share["selection"] < 0.97, share
    assert share["labels alone"] < 0.75, share


@pytest.mark.parametrize("most", [10, 100_000])
def test_weights_of_the_null_count_cases(monkeypatch, most):
    rng = np.random.default_rng(5)
    p = np.round(sigmoid(rng.normal(size=300)), 2)
    y, codes = (rng.random(300) < p).astype(int), rng.integers(-1, 2, 300)
    times = rng.integers(1, 12, 300)
    monkeypatch.setattr("scalecal.inference.selection.EXACT_CASES", most)
    options = {"n_strata": 2, "n_resamples": 600}
    weighted = selection_draws(y, p, codes, sample_weight=times, **options).ece
    copies = selection_draws(*(np.repeat(a, times) for a in (y, p, codes)), **options).ece
    np.testing.assert_allclose(weighted.mean(axis=0), copies.mean(axis=0), rtol=1e-9)


def test_one_label_only_has_no_null():
    null = selection_draws(
        np.ones(2), np.array([0.2, 0.3]), np.arange(2), n_strata=2, n_resamples=5
    ).ece
    assert np.isnan(null).all()


def test_equal_predictions_do_not_share_one_window():
    """A constant prediction on sorted data must not copy the strata of the first rows alone."""
    y = np.repeat([0, 1], 500)
    codes = np.tile(np.repeat([0, 1], 250), 2)
    null = selection_draws(y, np.full(1000, 0.5), codes, n_strata=2, n_resamples=200).ece
    assert np.isfinite(null).all()
    assert null.mean() < 0.08


def calibrated_study(rng, n, spread, noise, m=7):
    """Votes with unexplained variance, and the exact P(majority = 1 | x) by quadrature."""
    from scipy.stats import binom

    x = spread * rng.normal(size=n) - 0.5
    votes = rng.binomial(m, sigmoid(x + noise * rng.normal(size=n)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    chance = sigmoid(x[:, None] + noise * nodes)
    p = (binom.sf(m // 2, m, chance) * weights).sum(axis=1) / weights.sum()
    return (votes > m / 2).astype(int), p, votes


@pytest.mark.validity
@pytest.mark.parametrize(("spread", "noise"), [(0.9, 0.6), (1.6, 1.0), (3.2, 1.0)])
def test_null_holds_its_level_for_calibrated_models(spread, noise):
    """AUC about .80 to .97; at most one in twenty calibrated models may be called worse."""
    runs = 200 if SLOW else 40
    rng = np.random.default_rng(7)
    rejected = np.zeros(3)
    for _ in range(runs):
        y, p, votes = calibrated_study(rng, 977, spread, noise)
        codes = stratum_codes(np.column_stack([7 - votes, votes]))
        null = selection_draws(y, p, codes, n_strata=3, n_resamples=200, seed=rng).ece
        for s in range(3):
            observed = metrics.ece(y[codes == s], p[codes == s])
            rejected[s] += (1 + (null[:, s] >= observed).sum()) / 201 <= 0.05
    limit = 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert (rejected / runs <= limit).all(), rejected / runs


@pytest.mark.validity
def test_null_has_power_against_over_confidence():
    runs = 100 if SLOW else 20
    rng = np.random.default_rng(8)
    told = 0
    for _ in range(runs):
        y, p, votes = calibrated_study(rng, 977, 1.6, 1.0)
        sharp = sigmoid(1.5 * np.log(p / (1 - p)))
        codes = stratum_codes(np.column_stack([7 - votes, votes]))
        null = selection_draws(y, sharp, codes, n_strata=3, n_resamples=200, seed=rng).ece
        low = codes == 2
        told += (1 + (null[:, 2] >= metrics.ece(y[low], sharp[low])).sum()) / 201 <= 0.05
    assert told / runs > 0.6


def test_null_of_groups_of_one_case_is_the_null_without_groups():
    rng = np.random.default_rng(11)
    p = rng.random(300)
    y, codes = (rng.random(300) < p).astype(int), rng.integers(3, size=300)
    options = {"n_strata": 3, "n_resamples": 40}
    alone = selection_draws(y, p, codes, **options).ece
    np.testing.assert_array_equal(
        selection_draws(y, p, codes, groups=np.arange(300), **options).ece, alone
    )


def test_null_is_undefined_in_a_stratum_of_too_few_groups():
    rng = np.random.default_rng(12)
    p = rng.random(400)
    y, groups = (rng.random(400) < p).astype(int), np.arange(400) // 10
    codes = (groups < 5).astype(int)
    null = selection_draws(y, p, codes, groups=groups, n_strata=2, n_resamples=30).ece
    assert np.isfinite(null[:, 0]).all()
    assert np.isnan(null[:, 1]).all()


def test_normal_limit_of_the_null_of_groups_agrees_with_drawing(monkeypatch):
    rng = np.random.default_rng(13)
    groups = np.repeat(np.arange(60), 100)
    x = 2 * rng.normal(size=6000)
    effect = rng.normal(size=60)[groups]
    votes = rng.binomial(7, sigmoid(x + 1.5 * effect))
    y, p = (votes >= 4).astype(int), sigmoid(1.1 * x)
    codes = stratum_codes(np.column_stack([7 - votes, votes]))
    options = {"n_strata": 3, "n_resamples": 600}
    plain = selection_draws(y, p, codes, **options).ece
    exact = selection_draws(y, p, codes, groups=groups, **options).ece
    monkeypatch.setattr("scalecal.inference.selection.EXACT_CASES", 10)
    limit = selection_draws(y, p, codes, groups=groups, **options).ece
    np.testing.assert_allclose(limit.mean(axis=0), exact.mean(axis=0), rtol=0.06)
    np.testing.assert_allclose(limit.std(axis=0), exact.std(axis=0), rtol=0.25)
    assert (exact.std(axis=0) > 1.5 * plain.std(axis=0)).all()
