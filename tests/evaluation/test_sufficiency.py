from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scalecal.evaluation.judging import BOUNDS, LEVEL
from scalecal.evaluation.sufficiency import cases_for_good, probability_of_good

FACTS = {"events": 200, "oe_se": 0.06, "citl_se": 0.1, "slope_se": 0.09, "error_high": 0.07}


@pytest.mark.parametrize("times", [0.5, 1.0, 2.0, 5.0])
def test_the_probability_is_the_share_of_normal_scores_inside_the_bounds(times):
    z = np.random.default_rng(0).normal(size=(200_000, 2)) / np.sqrt(times)
    citl, oe, slope = 0.1 * z[:, 0], 0.06 * z[:, 0], 1 + 0.09 * z[:, 1]
    half = stats.norm.ppf(0.975) / np.sqrt(times)
    good = (times * z**2).sum(axis=1) < stats.chi2.ppf(1 - LEVEL, 2)
    good &= np.abs(citl) + half * 0.1 < BOUNDS["citl"][1]
    good &= np.abs(oe) + half * 0.06 < np.log(BOUNDS["oe"][1])
    good &= (slope - half * 0.09 > BOUNDS["slope"][0]) & (slope + half * 0.09 < BOUNDS["slope"][1])
    assert probability_of_good(times, **FACTS) == pytest.approx(good.mean(), abs=0.005)


@given(st.floats(20, 500), st.floats(0.02, 0.5), st.floats(0.02, 0.5), st.floats(0.02, 0.5))
def test_the_answer_has_the_power(events, citl, slope, high):
    facts = {
        "events": events,
        "oe_se": citl / 2,
        "citl_se": citl,
        "slope_se": slope,
        "error_high": high,
    }
    times, n, reason = cases_for_good(1000, **facts)
    assert not reason
    assert n >= 1000 * times
    assert times >= max(1.0, (high / 0.10) ** 2 * (1 - 1e-6))
    assert probability_of_good(times * 1.001, **facts) >= 0.8 - 1e-3


def test_an_unknown_error_and_a_power_beyond_reach_have_reasons():
    unknown = cases_for_good(100, **FACTS | {"slope_se": float("nan")})
    assert isnan(unknown.n)
    assert "slope_se" in unknown.reason
    assert "beyond reach" in cases_for_good(100, **FACTS, power=0.96).reason
