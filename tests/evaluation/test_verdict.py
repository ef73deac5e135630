"""The badge: attention where a test rejects, good where errors that matter are ruled out."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import binom

from scalecal import audit
from scalecal.evaluation.judging import BETWEEN, LEVEL, LIMIT, SMALL, judge
from scalecal.evaluation.words import verdict
from scalecal.metrics import holm

SLOW = os.environ.get("SCALECAL_SLOW") == "1"

WHOLE = {
    **{"name": "overall", "n": 900, "ece": 0.05, "floor": 0.03, "mean_p": 0.5, "prevalence": 0.45},
    **{"accuracy": 0.8, "overconfidence": 0.05, "overconfidence_low": 0.02},
    **{"overconfidence_high": 0.08, "gap": 0.01, "gap_low": -0.01, "gap_high": 0.03},
    **{"cox_slope": 0.8, "debiased_error": 0.0025, "debiased_error_high": 0.0049},
    **{"p_cox": 0.5, "p_consistency": 0.6, "events": 405},
    **{
        "oe": 1.0,
        "oe_low": 0.95,
        "oe_high": 1.05,
        "citl": 0.0,
        "citl_low": -0.05,
        "citl_high": 0.05,
    },
    **{"slope": 1.0, "slope_low": 0.95, "slope_high": 1.05, "expected": 405.0},
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
    meta = {"classes": ["0", "1"], "event": "positive class", "threshold": 0.5}
    return {
        "rows": [WHOLE],
        "classes": [],
        "by": [],
        "enough": None,
        "difficulty": difficulty,
        "judgement": judged,
        "meta": meta,
    }


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
    "change",
    [
        {"events": 49},
        {"events": 900 - 49},
        {"oe_high": 1.51},
        {"oe_low": 0.66},
        {"citl_high": 0.41},
        {"citl_low": -0.41},
        {"slope_low": 0.79},
        {"slope_high": 1.26},
        {"slope": np.nan, "slope_low": np.nan, "slope_high": np.nan},
        {"oe_low": None, "oe_high": None} | dict.fromkeys(["oe", "oe_low", "oe_high"], np.nan),
    ],
)
def test_good_needs_every_ratio_inside_its_bounds(change):
    assert judge([WHOLE | change], agreement=False)["badge"] == "inconclusive"
    made = audit_of([])
    made["rows"] = [WHOLE | change]
    made["judgement"] = judge(made["rows"], agreement=False)
    assert verdict(made)["badge"] == "inconclusive"


def test_a_proved_ratio_is_small_only_inside_tight_bounds():
    proved = {"p_cox": 1e-9, "debiased_error_high": (SMALL - 0.001) ** 2}
    ratio = {"oe": 1.3, "oe_low": 1.2, "oe_high": 1.4}
    assert judge([WHOLE | proved | ratio], agreement=False)["badge"] == "attention"


def test_rare_events_are_judged_by_their_number():
    """Three times as many expected as happen: no probability is off by two points."""
    rng = np.random.default_rng(0)
    for factor, kind in ((3.0, "too high"), (1 / 4, "too low")):
        for _ in range(4):
            chance = rng.beta(0.5, 249.5, size=10_000) * max(1.0, 1 / factor)
            y = rng.random(10_000) < chance
            made = audit(y, np.minimum(chance * factor, 1.0), n_resamples=100)
            assert made.verdict["badge"] == "attention"
            assert kind in made.verdict["headline"]
            assert f"{y.sum()} are observed" in made.verdict["headline"]


def test_no_events_are_never_good():
    made = audit(np.zeros(811, int), np.full(811, 0.002), n_resamples=100)
    assert made.verdict["badge"] == "inconclusive"
    assert "0 positive cases" in made.verdict["headline"]


def test_the_worst_class_is_named_with_its_own_numbers():
    rng = np.random.default_rng(1)
    truth = rng.dirichlet(np.ones(3), 3000)
    y = np.array([rng.choice(3, p=row) for row in truth])
    said = 0.25 * truth + 0.75 * np.array([0.2, 0.2, 0.6])
    made = audit(y, said, n_resamples=50)
    row = next(r for r in made.audit.classes if r["name"] == "class=2")
    assert (row["events"], row["expected"]) == ((y == 2).sum(), pytest.approx(said[:, 2].sum()))
    headline = made.verdict["headline"]
    assert f"{row['expected']:,.0f} expected, {row['events']:,} observed" in headline
    ratio = {r["name"]: abs(np.log(r["slope"])) for r in made.audit.classes}
    worst = max(ratio, key=ratio.get).removeprefix("class=")
    assert f"are wrong: {worst} (" in headline


def test_columns_in_another_order_and_decisions_are_noticed():
    rng = np.random.default_rng(1)
    truth = rng.dirichlet(np.full(3, 0.3), 600)
    y = np.array([rng.choice(3, p=row) for row in truth])
    assert not audit(y, truth, n_resamples=20).meta["doubt"]
    swapped = audit(y, truth[:, [1, 2, 0]], n_resamples=20)
    assert "another order" in swapped.verdict["answers"][2]["text"]
    decided = audit(y == 0, (truth[:, 0] > 0.5).astype(float), n_resamples=20)
    assert "look like decisions" in decided.verdict["answers"][2]["text"]
    assert np.isnan(decided["overall"]["citl"])
    turned = audit(y == 0, 1 - truth[:, 0], n_resamples=20)
    assert "below chance" in turned.verdict["answers"][2]["text"]


def test_a_threshold_that_no_case_reaches_is_said():
    rng = np.random.default_rng(1)
    p = rng.uniform(0, 0.2, 500)
    y = rng.random(500) < p
    assert any("a probability of 0.5 or more" in note for note in audit(y, p, n_resamples=20).notes)
    stated = audit(y, p, threshold=0.1, n_resamples=20)
    assert not any("or more: at this threshold" in note for note in stated.notes)


def test_difficulty_is_the_distance_from_the_stated_decision():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.01, 0.6, 900)
    votes = rng.binomial(5, p)
    made = audit(votes > 2, p, votes=votes, n_raters=5, p_reader=p, threshold=0.2, n_resamples=20)
    easy, _, hard = made.difficulty
    assert abs(hard["vote_mean_p"] - 0.2) < 0.05
    assert easy["vote_mean_p"] > 0.3


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


@given(
    whole=st.floats(1e-4, 1) | st.just(np.nan),
    pair=st.tuples(st.floats(1e-4, 1), st.floats(1e-4, 1)) | st.none(),
    columns=st.lists(st.floats(1e-4, 1), max_size=3),
)
def test_the_stated_p_is_below_the_level_where_something_is_rejected(whole, pair, columns):
    """With strata, with levels, with both and with neither."""
    row = WHOLE | {"p_cox": whole, "p_consistency": whole}
    corrected = np.minimum(1.0, holm(columns) / BETWEEN) if columns else []
    own = {"small": False, "oe_low": 0.2, "oe_high": 0.4, "slope_low": 0.9, "slope_high": 1.0}
    by = [{"column": f"c{p}", "levels": [own], "test": {"p_corrected": p}} for p in corrected]
    found = judge([row], parts(*pair) if pair else (), by=by, agreement=True)
    stated = found["p"]
    if abs(stated - LEVEL) < 1e-9:
        return
    assert bool(found["failing"]) == bool(stated < LEVEL)


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
        "On hard cases (predictions close to the decision at 0.5, n = 200) it is 17 points more confident "
        "than the readers; a calibrated model would be within 5 points."
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
