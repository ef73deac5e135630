"""The rules: intervals with both kinds of noise, and what follows from them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, t

from scalecal.inference.paired import Drawn
from scalecal.paper.claims import WRONG, Statement, all_of, combined, interval_of, judged_all
from scalecal.paper.evidence import MissingEvidence


def number(value, cases=0.01, seeds=0.01, *, n=500, units=500, n_seeds=10, seed=0):
    """A number whose noise over cases, and of the mean over seeds, is as given."""
    rng = np.random.default_rng(seed)
    by_seed = rng.normal(size=n_seeds)
    if n_seeds > 1:
        by_seed = (by_seed - by_seed.mean()) / by_seed.std(ddof=1) * seeds * np.sqrt(n_seeds)
    else:
        by_seed = np.zeros(1)
    samples = rng.normal(size=400)
    samples = value + cases * (samples - samples.mean()) / samples.std(ddof=1)
    return Drawn(dict(enumerate((value + by_seed).tolist())), samples, n, units)


def test_the_interval_joins_both_kinds_of_noise():
    low, high = interval_of(number(0.3, cases=0.02, seeds=0.01), wrong=0.01)
    # 1.96 deviations of the samples are a 95 % t interval already.
    cases = norm.isf(0.025) * t.isf(0.01, 499) / t.isf(0.025, 499) * 0.02
    half = np.hypot(cases, t.isf(0.01, 9) * 0.01)
    assert (low, high) == pytest.approx((0.3 - half, 0.3 + half))


def test_either_kind_of_noise_alone_keeps_a_claim_open():
    for cases, seeds in ((0.001, 0.05), (0.05, 0.001)):
        for value in (0.05, -0.05):
            assert Statement(number(value, cases, seeds)).judged().verdict == "inconclusive"
    assert Statement(number(0.05, 0.01, 0.01)).judged().verdict == "holds"
    assert Statement(number(-0.05, 0.01, 0.01)).judged().verdict == "does not hold"


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.9])
def test_the_ratio_interval_holds_every_ratio_that_is_not_excluded(correlation):
    """Fieller's set against a search over ratios."""
    base = number(0.4, 0.03, 0.02, seed=1)
    own = number(0.3, 0.03, 0.02, seed=2)
    top = combined((1, own), (correlation, base))
    low, high = interval_of(top, base)
    ratios = np.linspace(-1, 3, 8001)
    inside = []
    for r in ratios:
        left, right = interval_of(combined((1, top), (-r, base)))
        inside.append(left <= 0 <= right)
    found = ratios[inside]
    assert (low, high) == pytest.approx((found[0], found[-1]), abs=1e-3)


def test_no_ratio_to_what_may_be_zero():
    gain, nothing = number(0.3), number(0.001)
    assert np.isnan(interval_of(gain, nothing)).all()
    part = Statement(gain, 0.5, per=nothing, undefined="why").judged()
    assert part.verdict == "inconclusive"
    assert part.reason == "why"


def test_combinations_are_paired_by_seed():
    a = Drawn({0: 0.1, 1: 0.2, 2: 0.3}, np.array([0.1, 0.3]), 90, 80)
    b = Drawn({1: 0.1, 2: np.nan, 3: 0.5}, np.array([0.0, 0.4]), 70, 85)
    both = combined((2, a), (-1, b))
    assert both.by_seed == pytest.approx({1: 0.3})
    assert (both.n, both.units) == (70, 80)
    assert np.ptp(both.samples) == pytest.approx(0.0)
    with pytest.raises(MissingEvidence, match="no seed in common"):
        combined((1, Drawn({0: 0.1}, np.zeros(2), 9, 9)), (1, Drawn({1: 0.1}, np.zeros(2), 9, 9)))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"n": 12}, "only 12 cases, 30 are needed"),
        ({"units": 4}, "only 4 groups, 10 are needed"),
        ({"n_seeds": 1}, "only 1 seed, 2 are needed"),
        ({"value": np.nan}, "undefined on these cases"),
    ],
)
def test_what_an_interval_lacks_is_said(options, why):
    part = Statement(number(**{"value": 0.5, **options})).judged()
    assert part.verdict == "inconclusive"
    assert part.reason == why


def test_equal_methods_differ_by_nothing():
    one = number(0.2)
    same = Statement(combined((1, one), (-1, one)), above=False)
    assert same.judged().verdict == "does not hold"
    assert Statement(combined((1, one), (-1, one)), -0.01).judged().verdict == "holds"


def test_one_of_many_fails_at_its_share_of_the_level():
    """All hold at the level itself; one fails at the level divided by their number."""
    half = interval_of(number(0.0))[1]
    good, bad = Statement(number(1.1 * half)), Statement(number(-1.1 * half))
    assert bad.judged().verdict == "does not hold"
    assert bad.judged(8).verdict == "inconclusive"
    wide = interval_of(number(0.0), wrong=WRONG / 8)[1]
    assert Statement(number(-1.1 * wide)).judged(8).verdict == "does not hold"
    eight = judged_all({str(k): good for k in range(8)})
    assert all_of(eight, "x", measured="").verdict == "holds"
    one = all_of({**judged_all({"uni": good}), "plip": bad.judged()}, "x", measured="")
    assert one.verdict == "does not hold"
    assert "PLIP" in one.reason
    assert "UNI" not in one.reason


def test_a_number_is_written_with_its_interval():
    text = Statement(number(-0.2, 0.01, 0.0), form="+.1f", unit=" %").text
    assert text == "-20.0 % (-22.0 to -18.0)"
