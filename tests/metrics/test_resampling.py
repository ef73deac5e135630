from __future__ import annotations

import numpy as np
import pytest

from scalecal.checks import InputError
from scalecal.metrics import (
    bin_index,
    consistency_bars,
    ece,
    noise_floor,
    resampled_ece,
    resampled_residuals,
)
from scalecal.metrics import resampling as module
from tests.metrics import references as slow


def test_analytic_floor_against_its_formula(cases):
    _, p = cases
    rows = slow.members([slow.width_bin(q, 15) for q in p]).values()
    expected = sum(np.sqrt(2 / np.pi * (p[r] * (1 - p[r])).sum()) for r in rows) / len(p)
    assert noise_floor(p, method="analytic") == pytest.approx(expected)
    weighted = noise_floor(p, method="analytic", sample_weight=np.full(len(p), 7.0))
    assert weighted == pytest.approx(expected)


def test_draws_against_plain_simulation(rng):
    p, w = rng.beta(0.5, 1, 120), rng.random(120)
    for weights in (None, w):
        direct = [
            ece((rng.random(120) < p).astype(int), p, sample_weight=weights) for _ in range(3000)
        ]
        drawn = resampled_ece(p, n_resamples=3000, sample_weight=weights)
        error = np.hypot(np.std(direct), np.std(drawn)) / np.sqrt(3000)
        assert drawn.mean() == pytest.approx(np.mean(direct), abs=4 * error)
        assert np.quantile(drawn, 0.95) == pytest.approx(np.quantile(direct, 0.95), rel=0.05)


def test_one_case_in_one_bin_exactly():
    # y* is 1 with chance 0.3, so the residual is -0.7 or 0.3.
    sums = resampled_residuals([0.3], n_bins=1, n_resamples=20_000)[:, 0]
    assert set(np.round(sums, 6)) == {-0.7, 0.3}
    assert (sums < 0).mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 20_000))


def test_certain_cases_never_change():
    assert not resampled_ece([0.0, 1.0, 1.0], n_resamples=5000).any()


def test_memory_blocks_do_not_matter(monkeypatch, rng):
    p = rng.random(50)
    whole = resampled_ece(p, n_resamples=40)
    monkeypatch.setattr(module, "DRAWS_AT_ONCE", 130)
    np.testing.assert_array_equal(resampled_ece(p, n_resamples=40), whole)


def test_bin_limit_above_the_size_of_exact_draws(monkeypatch, rng):
    p = rng.random(4000)
    exact = resampled_residuals(p, n_resamples=4000)
    monkeypatch.setattr(module, "EXACT_CASES", 100)
    limit = resampled_residuals(p, n_resamples=4000)
    np.testing.assert_allclose(limit.std(axis=0), exact.std(axis=0), rtol=0.08)
    assert np.abs(limit).sum(axis=1).mean() == pytest.approx(
        np.abs(exact).sum(axis=1).mean(), rel=0.02
    )


def test_same_seed_same_answer_and_auto(rng):
    few, many = rng.random(999), rng.random(1000)
    assert noise_floor(few) == noise_floor(few, method="resampled")
    assert noise_floor(few, seed=1) != noise_floor(few, seed=2)
    assert noise_floor(many) == noise_floor(many, method="analytic")


def test_more_classes_use_the_top_label(three):
    _, p = three
    assert noise_floor(p) == noise_floor(p.max(axis=1))


def test_bars_hold_a_calibrated_model(rng):
    p = rng.random(400)
    bars = consistency_bars(p, n_bins=5, level=0.8, n_resamples=4000)
    index = bin_index(p, n_bins=5)
    inside = np.zeros(5)
    for _ in range(1500):
        share = np.bincount(index, rng.random(400) < p, 5) / np.bincount(index)
        inside += (share >= bars.lo - 1e-12) & (share <= bars.hi + 1e-12)
    # Shares are multiples of 1 / n_b, so a closed bar holds a little more than its level.
    assert (inside / 1500 > 0.77).all()
    assert (inside / 1500 < 0.90).all()


def test_bars_of_empty_bins_are_nan():
    bars = consistency_bars([0.1, 0.1], n_bins=2)
    assert np.isnan(bars.lo[1])
    assert np.isnan(bars.hi[1])
    with pytest.raises(InputError, match="level"):
        consistency_bars([0.1], level=90)


def test_bad_choices_are_named():
    with pytest.raises(InputError, match="'auto', 'analytic', 'resampled'"):
        noise_floor([0.5], method="exact")
    with pytest.raises(InputError, match="n_resamples"):
        resampled_ece([0.5], n_resamples=0)
