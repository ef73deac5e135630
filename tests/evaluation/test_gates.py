"""The gate: what a condition may look like, when it is met, and that it never passes unevaluated."""

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalecal import audit
from scalecal.checks import InputError
from scalecal.evaluation.gates import (
    OPERATORS,
    Condition,
    check_strata,
    gate_failures,
    parse_condition,
)
from scalecal.inference.difficulty import DIFFICULTIES
from scalecal.metrics import COLUMNS


@pytest.fixture(scope="module")
def voted():
    rng = np.random.default_rng(0)
    chance = rng.beta(0.6, 0.8, size=400)
    votes = rng.binomial(7, chance)
    return audit(
        (votes >= 4).astype(int),
        chance,
        votes=votes,
        n_raters=7,
        groups=np.arange(400) // 4,
        n_resamples=50,
    )


@given(
    stratum=st.text(min_size=1).map(str.strip).filter(bool),
    column=st.sampled_from(["ece", "excess", "n"]),
    sign=st.sampled_from(list(OPERATORS)),
    limit=st.floats(-1e6, 1e6),
)
def test_every_condition_is_read_as_it_is_written(stratum, column, sign, limit):
    for text in (f"{stratum}:{column}{sign}{limit!r}", f" {stratum} : {column} {sign} {limit!r} "):
        assert parse_condition(text) == Condition(stratum, column, sign, limit)
    assert parse_condition(f"{column} {sign} {limit!r}").stratum == "overall"


@pytest.mark.parametrize(
    "text",
    ["", "ece", "ece >", "> 0.1", "ece > high", "ece > nan", "ece => 1", "ece > 0.1 or n < 3"],
)
def test_other_text_is_refused(text):
    with pytest.raises(InputError, match="must read like 'verdict != good'"):
        parse_condition(text)


@pytest.mark.parametrize("column", ["eec", "name", "reason", "__class__", "entropy", "aurc"])
def test_unknown_columns_are_refused_with_the_known_ones(column):
    with pytest.raises(InputError, match=r"unknown column .*Known: n, n_groups, prevalence"):
        parse_condition(f"{column} > 0")


def test_every_column_of_an_audit_and_no_other_can_be_used(voted):
    known = {*voted.rows[0], *voted.difficulty[0]} - {"name", "reason", "curve_reason"}
    numbers = {k for k, c in COLUMNS.items() if c.format != "text"}
    assert known == {k for k in numbers if COLUMNS[k].in_audit}
    for key in known:
        parse_condition(f"{key} > 0")


@pytest.mark.parametrize("sign", OPERATORS)
def test_conditions_are_what_python_says(voted, sign):
    compare = {
        ">": operator.gt,
        ">=": operator.ge,
        "<": operator.lt,
        "<=": operator.le,
        "==": operator.eq,
        "=": operator.eq,
        "!=": operator.ne,
    }[sign]
    for row in voted.rows:
        for key in ("ece", "n", "vote_nll", "auc"):
            value = row[key]
            for limit in (value, value - 0.01, value + 0.01):
                where = "" if row["name"] == "overall" else f"{row['name']}: "
                found = voted.failures([f"{where}{key} {sign} {limit!r}"])
                assert bool(found) == compare(value, limit)
                if found:
                    assert (found[0].value, found[0].n) == (value, row["n"])
                    assert f"n = {row['n']:,}" in str(found[0])


def test_strata_of_predicted_difficulty(voted):
    assert [t["name"] for t in voted.difficulty] == list(DIFFICULTIES)
    (found,) = voted.failures(["hard: vote_mean_p >= 0", "easy: vote_mean_p < 0"])
    assert found.value == voted.difficulty[2]["vote_mean_p"]
    (odd,) = voted.failures(["hard: ece > 0.9"])
    assert odd.reason == "an audit does not have it for this stratum"


def test_strata_of_the_data_go_before_those_of_difficulty():
    rows = [{"name": "overall", "n": 9, "n_votes": 5}, {"name": "hard", "n": 4, "n_votes": 2}]
    difficulty = [{"name": name, "n": 3, "n_votes": 1} for name in DIFFICULTIES]
    assert [f.value for f in gate_failures(["hard: n_votes > 0"], rows, difficulty)] == [2]
    assert [f.value for f in gate_failures(["easy: n_votes > 0"], rows, difficulty)] == [1]


def test_unknown_strata_are_refused_with_the_known_ones(voted):
    known = "Known: overall, high, medium, low, easy, middle, hard"
    with pytest.raises(InputError, match=known):
        voted.failures(["lo: ece > 0.2"])
    with pytest.raises(InputError, match=known):
        check_strata([parse_condition("lo: n > 1")], voted.predictions.cases)


@pytest.mark.parametrize("sign", OPERATORS)
def test_what_is_undefined_fails_whatever_is_asked(sign):
    rng = np.random.default_rng(1)
    p = rng.random(200)
    y = (rng.random(200) < p).astype(int)
    strata = np.where(y == 1, "ill", "well")
    result = audit(y, p, strata=strata, n_resamples=20)
    (one_class,) = result.failures([f"ill: auc {sign} 0.5"])
    assert math.isnan(one_class.value)
    assert "auc is undefined (" in str(one_class)
    (no_votes,) = result.failures([f"vote_nll {sign} 0.5"])
    assert no_votes.reason == "there are no votes"
    (no_groups,) = result.failures([f"n_groups {sign} 3"])
    assert no_groups.reason == "there are no groups"


def test_a_failure_shows_digits_enough_to_see_why():
    row = [{"name": "overall", "n": 1000, "ece": 0.0500001}]
    (found,) = gate_failures(["ece > 0.05"], row)
    assert str(found) == "ece > 0.05: ece = 0.0500001 in overall, n = 1,000"


@pytest.mark.parametrize("sign", ["==", "=", "!="])
@pytest.mark.parametrize("badge", ["good", "attention", "inconclusive"])
def test_a_verdict_is_a_condition(voted, sign, badge):
    (own,) = {voted.verdict["badge"]}
    found = voted.failures([f"verdict {sign} {badge}", f"overall: verdict{sign}{badge}"])
    assert len(found) == 2 * ((own == badge) == (sign != "!="))
    for failure in found:
        assert f"the verdict is {own}" in str(failure)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("verdict != fine", "Known: good, attention, inconclusive"),
        ("verdict > good", "compared by == or !="),
        ("low: verdict != good", "on all cases"),
    ],
)
def test_a_verdict_is_compared_with_badges_alone(text, why):
    with pytest.raises(InputError, match=why):
        parse_condition(text)


def test_classes_are_strata_of_conditions():
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(3), 300)
    y = np.array([rng.choice(3, p=row) for row in p])
    made = audit(y, p, n_resamples=20)
    check_strata([parse_condition("class=2: oe < 0.8")], made.predictions.cases)
    (found,) = made.failures(["class=2: events > 0"])
    assert found.value == (y == 2).sum()
    assert made.to_frame()["name"].tolist() == ["overall", "class=0", "class=1", "class=2"]
