from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalecal.cases import Answers, Cases, Predictions
from scalecal.checks import InputError
from scalecal.evaluation.changes import (
    beside_softening,
    equal_entropy,
    soften,
    softened_name,
    with_softened,
)
from scalecal.evaluation.scores import entropy
from tests.evaluation.made import cell, sharp


@given(st.lists(st.floats(0.001, 0.999), min_size=2, max_size=30), st.floats(0.3, 8))
@settings(max_examples=40, deadline=None)
def test_the_matching_temperature_is_found_again(values, temperature):
    probs = np.array(values)
    if np.allclose(probs, 0.5, atol=1e-3):
        return  # softening does nothing to a coin
    target = float(entropy(soften(probs, temperature)).mean())
    found = equal_entropy(probs, target)
    assert float(entropy(soften(probs, found)).mean()) == pytest.approx(target, abs=1e-5)


def test_two_classes_agree_with_many():
    p = np.random.default_rng(0).uniform(size=50)
    wide = soften(np.column_stack([1 - p, p]), 2.5)
    np.testing.assert_allclose(wide[:, 1], soften(p, 2.5), atol=1e-9)
    np.testing.assert_allclose(wide.sum(axis=1), 1)


def test_entropies_out_of_reach_give_the_nearer_end():
    p = np.array([0.9, 0.2])
    assert equal_entropy(p, 0.0) == pytest.approx(0.01)
    assert equal_entropy(p, 1.0) == pytest.approx(100)


def test_softening_is_no_better_than_itself_and_information_is():
    def votes_known(seen, hidden, y, rng):  # noqa: ARG001
        return 0.3 * seen + 0.7 * hidden

    def softer(seen, hidden, y, rng):  # noqa: ARG001
        return 1.1 * seen

    made = cell({"none": sharp(2.2), "softer": softer, "informed": votes_known}, n=977, jitter=0.0)
    for metric in ("ece", "nll", "vote_nll"):
        beside = beside_softening(made, metric, n_resamples=300)
        assert beside["softer"]["temperature"] == pytest.approx(2.0, abs=1e-3)
        assert beside["softer"]["difference"] == pytest.approx(0, abs=1e-9)
        assert not beside["softer"]["better"]
        assert beside["none"]["difference"] == 0
    assert beside["informed"]["high"] < 0
    assert beside["informed"]["better"]


def test_matched_predictions_have_equal_entropy_seed_by_seed():
    made = cell({"none": sharp(2.2), "scale": sharp(1.0)}, n=200)
    both = with_softened(made, ["scale"])
    for seed in range(4):
        a = entropy(both.answers["scale", seed].p).mean()
        b = entropy(both.answers[softened_name("scale"), seed].p).mean()
        assert a == pytest.approx(b, abs=1e-6)


def test_other_test_cases_are_refused():
    made = cell({"none": sharp(2.2)}, n=50, n_seeds=1)
    plain = made.answers["none", 0]
    wrong = made.with_answers({("scale", 0): Answers(plain.p, rows=plain.rows[::-1].copy())})
    with pytest.raises(InputError, match="other test cases"):
        with_softened(wrong, ["scale"])


def test_a_method_of_other_test_cases_costs_the_others_nothing():
    made = cell({"none": sharp(2.2), "scale": sharp(1.0)}, n=50, n_seeds=1)
    plain = made.answers["none", 0]
    wrong = Answers(plain.p, rows=plain.rows[::-1].copy())
    both = made.with_answers({("odd", 0): wrong})
    assert set(beside_softening(both, "nll", n_resamples=50)) == {"none", "scale"}


def test_a_certain_baseline_can_be_softened():
    cases = Cases(n=4, classes=("n", "y"), y=np.array([0, 1, 1, 0]))
    certain, sure = Answers(np.array([0.0, 1.0, 1.0, 0.0])), Answers(np.array([0.1, 0.9, 0.9, 0.1]))
    made = Predictions(cases, {("none", 0): certain, ("soft", 0): sure}, "d", "e")
    assert np.isfinite(beside_softening(made, "nll", n_resamples=20)["soft"]["difference"])
