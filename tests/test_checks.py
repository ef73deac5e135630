import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalecal
from scalecal import checks, metrics
from scalecal.checks import InputError
from scalecal.evaluation.stream import StreamingAudit


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_rows_names_the_first_rows(where):
    if any(where):
        text = checks.rows(where)
        assert str(where.index(True)) in text


def test_soft_and_hard_targets():
    assert checks.check_targets([0, 1]).tolist() == [0.0, 1.0]
    assert checks.check_targets([0.2, 0.9]).tolist() == [0.2, 0.9]
    assert checks.check_targets([[0.2, 0.8]]).tolist() == [0.8]
    assert checks.check_targets([2, 0], 3).tolist() == [[0, 0, 1], [1, 0, 0]]
    with pytest.raises(InputError, match="2 columns but there are 3 classes"):
        checks.check_targets([[0.5, 0.5]], 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: checks.check_probs([["a"]]), "must be numbers"),
        (lambda: checks.check_probs(np.zeros((2, 2, 2))), "1-d"),
        (lambda: checks.check_probs([[0.5], [0.5]]), "one column per class"),
        (lambda: checks.check_probs([[0.5, 0.4]]), "sum to 1, got 0.9 at row 0"),
        (lambda: checks.check_labels(["a", "b"]), "Encode the classes as numbers"),
        (lambda: checks.check_labels([[0, 1]]), "1-d class labels"),
        (lambda: checks.check_weights([0, 0], 2), "not all be zero"),
        (lambda: checks.check_weights([-1, 1], 2), "not be negative"),
        (lambda: checks.check_weights([1], 2), "one value per case"),
        (lambda: checks.check_positive_int(2.5, "k"), "whole number"),
        (lambda: checks.check_positive_int(True, "k"), "whole number"),
        (lambda: checks.check_unit("x", "share"), "lie in .0, 1., got 'x'"),
        (lambda: checks.check_unit(1.5, "share"), "lie in"),
        (lambda: checks.check_choice("x", ("a", "b"), "mode"), "mode must be one of 'a', 'b'"),
        (lambda: checks.check_logits([np.inf]), "finite"),
    ],
)
def test_messages_say_what_was_found(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_groups_of_any_kind_become_codes():
    assert checks.check_groups(["b", "a", "b"], 3).tolist() == [1, 0, 1]
    assert checks.check_groups(None, 3) is None


def test_a_negative_seed_is_named():
    with pytest.raises(
        InputError, match="seed must be a whole number >= 0, a Generator or None, got -1"
    ):
        checks.as_rng(-1)
    assert checks.as_rng(3).integers(9) == checks.as_rng(np.int64(3)).integers(9)


@pytest.mark.parametrize("over", [2e-16, 1.2e-7])
def test_probabilities_rounded_out_of_the_unit_interval_are_taken(over):
    assert checks.check_probs([0.2, 1 + over, -over]).tolist() == [0.2, 1.0, 0.0]
    assert metrics.ece([0, 1], [0.2, 1 + over]) == metrics.ece([0, 1], [0.2, 1.0])
    assert scalecal.audit([0, 1], [0.2, 1 + over])["overall"]["n"] == 2
    assert StreamingAudit().update([0, 1], [0.2, 1 + over]).n == 2


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([0.2, 1.001], "Did you pass logits, or percentages"),
        ([3.0, 97.0], r"Did you mean percent\? Then divide by 100"),
        ([[3.0, 97.0]], "Did you mean percent"),
        ([-3.0, 97.0], r"Did you pass logits\?"),
        ([3.0, 970.0], r"Did you pass logits\?"),
    ],
)
def test_numbers_beyond_rounding_are_refused_with_what_they_may_be(probs, message):
    with pytest.raises(InputError, match=message):
        checks.check_probs(probs)
