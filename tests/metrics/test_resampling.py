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
)
from scalecal.metrics import resampling as module
from tests.metrics import references as slow


def exact_floor(p, n_bins=15):
    """Brute force: the law of every bin's positives by convolution."""
    total = 0.0
    for rows in slow.members([slow.width_bin(q, n_bins) for q in p]).values():
        law = np.ones(1)
        for q in p[rows]:
            law = np.convolve(law, [1 - q, q])
        total += law @ np.abs(np.arange(len(law)) - p[rows].sum())
    return total / len(p)


LAWS = {
    "spread": lambda rng, n: rng.random(n),
    "saturated": lambda rng, n: rng.beta(0.2, 0.2, n),
    "rare": lambda rng, n: rng.beta(0.5, 30, n),
    "one bin": lambda rng, n: rng.uniform(0.47, 0.53, n),
    "certain": lambda rng, n: rng.integers(0, 2, n).astype(float),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_floor_of_few_cases_is_exact(law, n, rng):
    p = LAWS[law](rng, n)
    if (p * (1 - p)).sum() < module.EXACT_VARIANCE:
        assert noise_floor(p) == pytest.approx(exact_floor(p), rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [60, 200, 977, 2000])
def test_limit_of_the_floor_is_as_close_as_it_says(law, n, rng):
    p = LAWS[law](rng, n)
    assert noise_floor(p) == pytest.approx(exact_floor(p), rel=2e-4, abs=1e-14)


def test_floor_by_hand():
    assert noise_floor([0.3]) == pytest.approx(2 * 0.3 * 0.7)
    assert noise_floor([0.5] * 4) == pytest.approx((2 * 2 / 16 + 1 * 8 / 16) / 4)


def test_weights_of_the_floor_count_cases(rng):
    for p, most in ((rng.random(40), 4), (rng.beta(0.3, 5, 300), 30)):
        w = rng.integers(0, most, len(p))
        assert noise_floor(p, sample_weight=w) == pytest.approx(noise_floor(np.repeat(p, w)))
    with pytest.raises(InputError, match="count cases"):
        noise_floor([0.5, 0.5], sample_weight=[0.5, 1.0])


def test_draws_against_plain_simulation(rng):
    p, w = rng.beta(0.5, 1, 120), rng.integers(0, 4, 120)
    for weights in (None, w):
        q = p if weights is None else np.repeat(p, weights)
        direct = [ece((rng.random(len(q)) < q).astype(int), q) for _ in range(3000)]
        drawn = resampled_ece(p, n_resamples=3000, sample_weight=weights)
        error = np.hypot(np.std(direct), np.std(drawn)) / np.sqrt(3000)
        assert drawn.mean() == pytest.approx(np.mean(direct), abs=4 * error)
        assert drawn.mean() == pytest.approx(
            noise_floor(p, sample_weight=weights), abs=4 * np.std(drawn) / np.sqrt(3000)
        )
        assert np.quantile(drawn, 0.95) == pytest.approx(np.quantile(direct, 0.95), rel=0.05)


def test_one_case_in_one_bin_exactly():
    # y* is 1 with chance 0.3, so the residual is -0.7 or 0.3.
    sums = module.Null.of([0.3], n_bins=1).residuals(20_000, 0)[:, 0]
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
    exact = module.Null.of(p).residuals(4000, 0)
    monkeypatch.setattr(module, "EXACT_CASES", 100)
    limit = module.Null.of(p).residuals(4000, 0)
    np.testing.assert_allclose(limit.std(axis=0), exact.std(axis=0), rtol=0.08)
    assert np.abs(limit).sum(axis=1).mean() == pytest.approx(
        np.abs(exact).sum(axis=1).mean(), rel=0.02
    )


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
    with pytest.raises(InputError, match="binning"):
        noise_floor([0.5], binning="equal")
    with pytest.raises(InputError, match="n_resamples"):
        resampled_ece([0.5], n_resamples=0)


def test_resampled_ece_takes_weights_of_any_kind():
    import torch

    given = [
        resampled_ece([0.2, 0.7], n_resamples=5, sample_weight=w)
        for w in ([1, 2], torch.tensor([1.0, 2.0]))
    ]
    assert given[0].tolist() == given[1].tolist()
