import numpy as np
import pytest
from scipy import stats

from scalecal.inference.units import (
    Units,
    effective_units,
    interval,
    standard_errors,
    stretched,
    unit_interval,
)
from scalecal.metrics.grouping import MIN_GROUPS
from tests.inference.bootstrap import bootstrap_sums


def ratio(rng, count, mean_size=6):
    """Sums and sizes of groups, and the linear parts of their ratio."""
    size = rng.integers(1, 2 * mean_size, count).astype(float)
    total = size * rng.normal(0.4, 0.1, count)
    value = total.sum() / size.sum()
    return total, size, value, (total - value * size) / size.sum()


def test_equal_units_are_worth_their_number():
    assert effective_units(np.full(12, 5.0)) == pytest.approx(12)
    assert effective_units(np.append(np.full(12, 5.0), [0, 0])) == pytest.approx(12)
    assert effective_units(np.append(np.ones(12), 1e9)) == pytest.approx(1, abs=1e-6)
    assert effective_units(np.zeros(3)) == 0


def test_standard_errors_are_student_s():
    assert standard_errors(np.ones(10)) == pytest.approx(stats.t.ppf(0.975, 9) * np.sqrt(10 / 9))
    assert standard_errors(np.ones(10), 3.5) == pytest.approx(
        stats.t.ppf(0.975, 3.5) * np.sqrt(10 / 9)
    )
    assert standard_errors(np.ones(10**6)) == pytest.approx(1.96, abs=1e-3)
    assert np.isnan(standard_errors(np.ones(MIN_GROUPS - 1)))


def test_the_interval_of_a_ratio_is_that_of_its_bootstrap():
    total, size, value, parts = ratio(np.random.default_rng(0), 400)
    sums = {"a": total[:, None], "n": size[:, None]}
    drawn = bootstrap_sums(sums, n_resamples=20_000)
    wide = stretched(drawn["a"][:, 0] / drawn["n"][:, 0], size)
    assert unit_interval(value, parts, size) == pytest.approx(interval(wide), abs=3e-4)


def test_scales_agree_where_the_interval_is_short_and_differ_where_it_is_not():
    _, size, value, parts = ratio(np.random.default_rng(1), 5000)
    plain = unit_interval(value, parts, size)
    for scale in ("log", "logit"):
        assert unit_interval(value, parts, size, scale=scale) == pytest.approx(plain, abs=1e-4)
    wide = 20 * parts[:40]
    low, high = unit_interval(0.02, wide, size[:40], scale="log")
    assert low > 0
    assert low * high == pytest.approx(0.02**2)
    low, high = unit_interval(0.99, wide, size[:40], scale="logit")
    assert 0 < low < 0.99 < high < 1
    mirrored = unit_interval(0.01, wide, size[:40], scale="logit")
    assert mirrored == pytest.approx((1 - high, 1 - low))


def test_a_share_that_no_unit_contradicts_has_wilson_s_end():
    low, high = unit_interval(1.0, np.zeros(50), np.ones(50), scale="logit")
    z = standard_errors(np.ones(50))
    assert (low, high) == pytest.approx((50 / (50 + z**2), 1.0))
    assert unit_interval(0.0, np.zeros(50), np.ones(50), scale="logit") == pytest.approx(
        (0.0, 1 - low)
    )
    assert unit_interval(1.0, np.zeros(50), np.ones(50), scale="logit", worth=1e9)[0] > 0.999


def test_an_error_made_by_few_units_has_few_degrees_of_freedom():
    parts = np.full(1000, 1e-6)
    parts[:4] = (0.1, -0.1, 0.1, -0.1)
    low, high = unit_interval(0.5, parts, np.ones(1000))
    degrees = 2 / (1 / 4 - 1 / 1000)
    assert (high - low) / 2 == pytest.approx(0.2 * stats.t.ppf(0.975, degrees), rel=1e-3)


@pytest.mark.parametrize("count", [1, 3, MIN_GROUPS - 1])
def test_too_few_units_have_no_interval(count):
    rng = np.random.default_rng(2)
    _, size, value, parts = ratio(rng, count)
    assert np.isnan(unit_interval(value, parts, size)).all()
    assert np.isnan(stretched(rng.normal(size=9), size)).all()


def test_groups_of_one_case_are_cases():
    assert Units.of(5, groups=list("abcde")).group is None
    assert Units.of(5, groups=list("abcda")).group is not None


@pytest.mark.parametrize("value", [1.0, 1.0 + 2e-16, 1.0 - 1e-16, 1.0 - 5e-16])
def test_a_share_of_one_up_to_rounding_is_one(value):
    parts, size = np.full(40, 1e-18), np.ones(40)
    low, high = unit_interval(value, parts, size, scale="logit", worth=20.0)
    assert high == 1.0
    assert 0.7 < low < 0.9
