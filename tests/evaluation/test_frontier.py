from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalecal import metrics
from scalecal.cases import Answers, Cases, Predictions
from scalecal.checks import InputError
from scalecal.evaluation.frontier import (
    TEMPERATURES,
    equal_entropy,
    frontier_curve,
    frontier_methods,
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


def test_the_curve_passes_through_the_baseline():
    made = cell({"none": sharp(2.0)}, n=300)
    curve = pd.DataFrame(frontier_curve(made, temperatures=np.array([0.5, 1.0, 2.0])))
    at_one = curve[curve["temperature"] == 1.0].iloc[0]
    errors = [metrics.ece(made.y, made.answers["none", s].p) for s in range(4)]
    assert at_one["ece"] == pytest.approx(np.mean(errors))
    assert np.all(np.diff(curve["entropy"]) > 0)
    with pytest.raises(InputError, match="no predictions of platt"):
        frontier_curve(made, baseline="platt")
    assert {0.5, 1.0, 2.0, 5.0} <= set(TEMPERATURES.tolist())
    assert np.all(np.diff(TEMPERATURES) > 0)


def test_softening_is_no_better_than_itself_and_information_is():
    def votes_known(seen, hidden, y, rng):  # noqa: ARG001
        return 0.3 * seen + 0.7 * hidden

    def softer(seen, hidden, y, rng):  # noqa: ARG001
        return 1.1 * seen

    made = cell({"none": sharp(2.2), "softer": softer, "informed": votes_known}, n=977, jitter=0.0)
    table = pd.DataFrame(frontier_methods(made, n_resamples=300)).set_index("method")
    assert table.loc["softer", "at_temperature"] == pytest.approx(2.0, abs=1e-3)
    for name in ("ece", "ece_hard", "nll", "vote_nll"):
        assert table.loc["softer", f"difference_{name}"] == pytest.approx(0, abs=1e-9)
    assert table.loc["informed", "difference_vote_nll_high"] < 0
    assert table.loc["informed", "difference_vote_nll_p"] < 0.05
    assert table.loc["none", "difference_ece"] == 0


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


def test_no_votes_leave_the_vote_planes_empty():
    made = cell({"none": sharp(2.2), "scale": sharp(1.0)}, n=200, panel=False)
    table = pd.DataFrame(frontier_methods(made, n_resamples=100)).set_index("method")
    assert np.isnan(table.loc["scale", "vote_nll"])
    assert np.isnan(table.loc["scale", "difference_ece_hard"])
    assert np.isfinite(table.loc["scale", "difference_ece"])


def test_a_certain_baseline_can_be_softened():
    rows = np.arange(4)
    cases = Cases(n=4, classes=("n", "y"), y=np.array([0, 1, 1, 0]))
    certain = Answers(np.array([0.0, 1.0, 1.0, 0.0]), rows=rows)
    made = Predictions(cases, {("none", 0): certain}, "d", "e")
    assert all(np.isfinite(row["nll"]) for row in frontier_curve(made))
