"""The badge: attention where a test rejects, good where errors that matter are ruled out."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import binom

from scalecal import audit
from scalecal.evaluation.judging import LIMIT, SMALL, judge
from scalecal.evaluation.words import verdict
from scalecal.metrics import holm

SLOW = os.environ.get("SCALECAL_SLOW") == "1"

WHOLE = {
    **{"name": "overall", "n": 900, "ece": 0.05, "floor": 0.03, "mean_p": 0.5, "prevalence": 0.45},
    **{"accuracy": 0.8, "overconfidence": 0.05, "overconfidence_low": 0.02},
    **{"overconfidence_high": 0.08, "gap": 0.01, "gap_low": -0.01, "gap_high": 0.03},
    **{"cox_slope": 0.8, "debiased_error": 0.0025, "debiased_error_high": 0.0049},
    **{"p_cox": 0.5, "p_consistency": 0.6},
}


def part(name, p, gap=0.02, half=0.03):
    """A stratum of predicted difficulty whose votes were tested."""
    keys = {"vote_gap": 0.0, "vote_overconfidence": gap}
    ends = {f"{k}_{e}": v + s for k, v in keys.items() for e, s in (("low", -half), ("high", half))}
    means = {"vote_confidence": 0.7, "vote_agreement": 0.7 - gap}
    return {"name": name, "n": 200, "p_votes_holm": p, "reason": ""} | keys | ends | means


def parts(*p, **options):
    return [part(name, value, **options) for name, value in zip(("easy", "hard"), p, strict=True)]


def audit_of(difficulty):
    """What facts hold of an audited method with these strata of predicted difficulty."""
    judged = judge([WHOLE], difficulty, agreement=True)
    meta = {"classes": ["0", "1"], "event": "positive class"}
    return {"rows": [WHOLE], "difficulty": difficulty, "judgement": judged, "meta": meta}


def test_each_badge_follows_its_rule():
    assert judge([WHOLE], agreement=False)["badge"] == "good"
    wide = WHOLE | {"debiased_error_high": (LIMIT + 0.01) ** 2}
    assert judge([wide], agreement=False)["badge"] == "inconclusive"
    assert judge([WHOLE | {"p_cox": 0.02}], agreement=False)["badge"] == "attention"
    proved = {"p_cox": 1e-9, "debiased_error_high": (SMALL - 0.001) ** 2}
    assert judge([WHOLE | proved], agreement=False)["badge"] == "good"
    assert (
        judge([WHOLE | {"debiased_error_high": np.nan}], agreement=False)["badge"] == "inconclusive"
    )


@pytest.mark.parametrize(
    ("whole", "easy", "hard", "failing"),
    [
        (0.01, 0.5, 0.5, ["overall"]),
        (0.02, 0.5, 0.04, []),  # 4 % of all cases, doubled for two tests, doubled for two families
        (0.5, 0.5, 0.02, ["hard"]),
        (0.5, 0.5, 0.03, []),
        (0.001, 0.04, 0.5, ["overall", "easy"]),  # the larger p pays no more
        (0.5, 0.004, 0.03, ["easy"]),
        (0.02, 0.004, 0.5, ["easy"]),  # one part that holds keeps half of the level
        (0.02, 0.004, 0.02, ["overall", "easy", "hard"]),
        (np.nan, 0.04, 0.5, ["easy"]),
    ],
)
def test_all_tests_are_corrected_together(whole, easy, hard, failing):
    row = WHOLE | {"p_cox": whole, "p_consistency": whole if np.isnan(whole) else 0.9}
    found = judge([row], parts(easy, hard), agreement=True)
    assert found["failing"] == failing
    assert (found["badge"] == "attention") is bool(failing)
    both = [np.minimum(1.0, 2 * whole), min(easy, hard)]
    assert found["p"] == pytest.approx(np.nanmin(holm(both)))
    assert found["hint"] is not bool(failing)


def test_strata_of_labels_say_nothing_of_a_reader_probability():
    row = {"n": 300, "p_cox": 0.6, "p_consistency": 0.6, "debiased_error": 0.0}
    row |= {"debiased_error_high": 0.001, "floor": 0.02, "null": 0.03}
    failing = {"name": "low", "p_null_holm": 0.001, "ece": 0.2}
    found = judge([row, row | failing], agreement=True, reader=True)
    assert found["badge"] == "attention"
    assert not found["reader"]


def test_what_is_wrong_is_said_in_points():
    found = verdict(audit_of(parts(0.5, 0.001, gap=0.17, half=0.05)))
    assert found["headline"] == (
        "On hard cases (the least confident predictions, n = 200) it is 17 points more confident than the "
        "readers; a calibrated model would be within 5 points."
    )
    headings = [answer["heading"] for answer in found["answers"]]
    assert headings == ["Not everywhere", "Hard cases"]


def test_the_hardest_part_must_be_judged_and_bounded():
    assert judge([WHOLE], parts(0.5, 0.5), agreement=True)["badge"] == "good"
    untested = [part("easy", 0.5), part("hard", np.nan) | {"reason": "too few cases"}]
    assert judge([WHOLE], untested, agreement=True)["badge"] == "inconclusive"
    found = verdict(audit_of(parts(0.5, 0.5, half=0.2)))
    assert found["badge"] == "inconclusive"
    assert "one of 22 points cannot be excluded on easy cases" in found["headline"]


def study(rng, n, slope, m=7):
    chance = expit(1.6 * rng.normal(size=n))
    votes = rng.binomial(m, chance)
    z = logit(np.clip(binom.sf(m // 2, m, chance), 1e-9, 1 - 1e-9))
    made = audit(votes > 3, expit(slope * z), votes=votes, n_raters=m, n_resamples=100)
    return made.verdict["badge"]


@pytest.mark.validity
def test_calibrated_models_are_seldom_blamed_and_wrong_ones_never_praised():
    runs = 400 if SLOW else 24
    rng = np.random.default_rng(0)
    right = [study(rng, 500, 1.0) for _ in range(runs)]
    assert right.count("attention") / runs < 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    wrong = [study(rng, 500, 2.5) for _ in range(runs // 4)]
    assert wrong.count("good") == 0
    assert wrong.count("attention") / len(wrong) > 0.8


@pytest.mark.validity
@pytest.mark.parametrize("n", [60, 150])
def test_strata_without_votes_are_not_praised_where_an_error_that_matters_may_hide(n):
    runs = 200 if SLOW else 30
    rng = np.random.default_rng(n)
    badges = []
    for _ in range(runs):
        chance = rng.uniform(0.05, 0.8, size=1500)
        y = rng.random(1500) < chance
        p = chance + (LIMIT + 0.01) * (np.arange(1500) < n)
        site = np.where(np.arange(1500) < n, "B", "A")
        badges.append(audit(y, p, strata=site, n_resamples=100).verdict["badge"])
    assert badges.count("good") / runs < 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_a_large_stratum_of_a_calibrated_model_is_good_without_votes():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=4000)
    made = audit(rng.random(4000) < p, p, strata=np.tile(["A", "B"], 2000), n_resamples=100)
    assert made.verdict["badge"] == "good"
