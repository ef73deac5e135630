import os

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from scalecal.checks import InputError
from scalecal.evaluation.rows import case_sums, sum_values
from scalecal.inference import paired as s
from scalecal.inference.units import (
    MAX_UNITS,
    Units,
    centred,
    interval,
    two_sided_p,
)
from tests.inference.bootstrap import bootstrap_sums

KEPT = ("n", "bins")  # the sums an ECE is made of
SLOW = os.environ.get("SCALECAL_SLOW") == "1"


def draw(losses, groups=None, n_resamples=2000, seed=0):
    """The mean of per-case losses with its bootstrap."""
    units = Units.of(len(losses), groups=groups, seed=seed)
    sums = {"d": units.total(losses), "n": units.total(np.ones(len(losses)))}
    drawn = bootstrap_sums(sums, n_resamples=n_resamples, seed=seed)
    samples = drawn["d"][:, 0] / drawn["n"][:, 0]
    return s.Drawn({0: float(np.mean(losses))}, samples, len(losses), units.count)


def test_the_p_value_across_seeds_is_that_of_the_paired_t_test():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 10))
    assert across_seeds(a, b) == pytest.approx(stats.ttest_rel(b, a).pvalue)
    assert across_seeds(a, a) == 1.0
    assert np.isnan(across_seeds(a[:1], b[:1]))
    assert np.isnan(across_seeds(a, a + 1.0))


def across_seeds(a, b):
    """p-value of b against a, each with one value per seed."""
    noise = np.random.default_rng(1).normal(size=200)
    values = (dict(enumerate(each.tolist())) for each in (a, b))
    return s.contrast_of(*(s.Drawn(by_seed, noise, 100, 100) for by_seed in values)).p_seeds


def test_paired_bootstrap_agrees_with_the_normal_interval():
    rng = np.random.default_rng(1)
    a = rng.normal(size=800)
    b = a + 0.1 + rng.normal(size=800)
    result = s.contrast_of(draw(a, n_resamples=4000), draw(b, n_resamples=4000))
    d = b - a
    half = 1.96 * d.std() / np.sqrt(800)
    assert (result.low, result.high) == pytest.approx((d.mean() - half, d.mean() + half), abs=0.01)


def test_groups_are_resampled_whole():
    rng = np.random.default_rng(2)
    shift = np.repeat(rng.normal(size=30), 20)
    zero = np.zeros(600)
    alone = s.contrast_of(draw(zero), draw(shift))
    groups = np.repeat(np.arange(30), 20)
    grouped = s.contrast_of(draw(zero, groups), draw(shift, groups))
    assert grouped.high - grouped.low > 3 * (alone.high - alone.low)


def test_recovered_share_limits():
    rng = np.random.default_rng(3)
    base = rng.normal(size=400) + 3
    real = base - 0.3 + 0.05 * rng.normal(size=400)
    noise = base + rng.normal(size=400) * 5

    def share(reference, method):
        return s.recovered_share(draw(base), draw(reference), draw(method))

    assert share(real, real).share == pytest.approx(1.0)
    assert share(real, base).share == pytest.approx(0.0)
    assert share(real, base + 0.3).share < -0.9
    undefined = share(noise, real)
    assert np.isnan(undefined.share)
    assert undefined.reason


@pytest.mark.validity
@pytest.mark.parametrize("grouped", [False, True])
def test_paired_bootstrap_covers(grouped):
    runs = 600 if SLOW else 200
    covered = 0
    groups = np.repeat(np.arange(60), 5) if grouped else None
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        d = rng.normal(size=300) + 0.2
        if grouped:
            d += np.repeat(rng.normal(size=60), 5)
        zero, own = (draw(values, groups, 500, seed) for values in (np.zeros(300), d))
        result = s.contrast_of(zero, own)
        covered += result.low <= 0.2 <= result.high
    assert covered / runs > 0.95 - 3.5 * np.sqrt(0.05 * 0.95 / runs)


def test_pooling_keeps_groups_whole_and_the_variance_as_it_was():
    groups = np.repeat(np.arange(3 * MAX_UNITS), 2)
    units = Units.of(len(groups), groups=groups)
    assert units.count == MAX_UNITS
    for pair in units.code.reshape(-1, 2)[:50]:
        assert pair[0] == pair[1]
    x = np.random.default_rng(6).normal(size=20_000)
    pooled = Units.of(20_000)
    sums = {"x": pooled.total(x), "n": pooled.total(np.ones(20_000))}
    drawn = bootstrap_sums(sums, n_resamples=2000)
    spread = (drawn["x"] / drawn["n"]).std()
    assert spread == pytest.approx(x.std() / np.sqrt(20_000), rel=0.12)


def test_totals_by_cell_equal_a_loop():
    rng = np.random.default_rng(7)
    values, cell = rng.normal(size=50), rng.integers(-1, 3, size=50)
    units = Units.of(50, groups=rng.integers(8, size=50))
    slow = np.zeros((units.count, 3))
    for v, c, u in zip(values, cell, units.code, strict=True):
        if c >= 0:
            slow[u, c] += v
    np.testing.assert_allclose(units.total(values, cell, 3), slow)


def test_undefined_samples_stay_undefined():
    nothing = np.full(5, np.nan)
    assert np.isnan(interval(nothing)).all()
    assert np.isnan(two_sided_p(nothing))


def test_the_interval_of_an_ece_difference_covers_it_and_holds_the_value_found():
    """Against predictions of few values, whose resampled ECE rises less."""
    rng, n = np.random.default_rng(0), 200
    units = Units.of(n)
    plain, moved, found = [], [], []
    for _ in range(250):
        z = rng.normal(0, 1.5, n)
        p = expit(z)
        y = (rng.random(n) < p).astype(int)
        value, drawn = [], []
        for probs in (expit(1.3 * z), np.round(p) * 0.6 + 0.2):
            sums = {k: v for k, v in case_sums(y, probs, None, units=units).items() if k in KEPT}
            whole = {key: part.sum(axis=0, keepdims=True) for key, part in sums.items()}
            value.append(sum_values(whole)["ece"][0])
            drawn.append(sum_values(bootstrap_sums(sums, n_resamples=250, seed=0))["ece"])
        found.append(value[1] - value[0])
        plain.append(interval(drawn[1] - drawn[0]))
        moved.append(interval(centred(drawn[1] - drawn[0], found[-1])))
    low, high = np.array(moved).T
    assert 0.90 <= np.mean((low <= np.mean(found)) & (np.mean(found) <= high)) <= 0.99
    assert ((low <= found) & (found <= high)).all()
    # Percentiles as they are lie to one side: averaged over seeds, they would miss the value.
    assert np.mean(plain) < np.mean(found) - 0.01
    assert np.mean(moved) == pytest.approx(np.mean(found), abs=0.005)


def test_weighted_cases_are_resampled_like_their_copies():
    rng = np.random.default_rng(8)
    x, times = rng.normal(size=60), rng.integers(1, 20, 60)
    values = np.column_stack([x, x**2, np.ones(60)])

    def totals(units, table):
        return units.totals(
            lambda part, here: {str(j): here.total(table[part, j]) for j in range(3)}
        )

    weighted = totals(Units.of(60, sample_weight=times), values)
    copies = totals(Units.of(int(times.sum())), np.repeat(values, times, axis=0))
    spread = []
    for sums in (weighted, copies):
        for j in range(3):
            assert sums[str(j)].sum() == pytest.approx(times @ values[:, j])
        drawn = bootstrap_sums(sums, n_resamples=4000)
        spread.append(np.cov(np.hstack([drawn["0"], drawn["1"]]).T))
    np.testing.assert_allclose(spread[0], spread[1], rtol=0.3, atol=0.1 * np.abs(spread[1]).max())
    with pytest.raises(InputError, match="groups"):
        Units.of(60, sample_weight=times, groups=np.arange(60))
