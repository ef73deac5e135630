"""Smoothing functions: literal transcriptions, limits, properties."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalecal.checks import InputError
from scalecal.smoothing import (
    SMOOTHINGS,
    confidence,
    fraction,
    linear,
    nonlinear,
    piecewise,
    soft_labels,
    vanilla,
)

panels = st.integers(1, 60)


def printed_piecewise(n, n_raters, n_classes, omega):
    """Transcribe the printed formula, case by case."""
    n_m = math.ceil(n_raters / n_classes)
    if n > n_m:
        return (1 - omega) + omega * (n - n_m) / (n_m - 1)
    if n == n_m:
        return 0.5
    return omega * n / (n_m - 1)


@given(panels, st.floats(0, 0.5), st.integers(2, 6))
def test_piecewise_is_monotone_and_between_zero_and_one(n_raters, omega, n_classes):
    label = piecewise(range(n_raters + 1), n_raters, omega, n_classes=n_classes)
    assert label[0] == 0
    assert label[-1] == 1
    assert (np.diff(label) >= 0).all()


@pytest.mark.parametrize("n_raters", [3, 5, 7, 9, 21])
@pytest.mark.parametrize("omega", [0.1, 0.4])
def test_piecewise_is_the_printed_formula_for_odd_panels(n_raters, omega):
    expected = [printed_piecewise(n, n_raters, 2, omega) for n in range(n_raters + 1)]
    votes = range(n_raters + 1)
    np.testing.assert_allclose(piecewise(votes, n_raters, omega), expected, atol=1e-15)


def test_piecewise_closes_the_hole_for_even_panels():
    np.testing.assert_allclose(piecewise(range(3), 2), [0, 0.5, 1])
    np.testing.assert_allclose(piecewise(range(5), 4), [0, 0.4, 0.5, 0.8, 1])
    upper = 0.6 + 0.4 * np.arange(1, 6) / 5
    np.testing.assert_allclose(piecewise(range(6, 11), 10), upper)


def test_one_reader_is_the_hard_label():
    assert piecewise([0, 1], 1).tolist() == [0, 1]
    assert piecewise([0, 1], 1, n_classes=5).tolist() == [0, 1]


def test_linear_and_nonlinear_formulas():
    n = np.arange(8)
    np.testing.assert_allclose(linear(n, 7, 0.3, n_classes=4), 0.7 * n / 7 + 0.3 / 4)
    np.testing.assert_allclose(
        nonlinear(n, 7, 3.0), [1 / (1 + math.exp(-3 * (k / 7 - 0.5))) for k in n]
    )


@pytest.mark.parametrize("name", SMOOTHINGS)
class TestEverySmoothing:
    def test_monotone_in_votes_and_a_probability(self, name):
        for n_raters in range(1, 12):
            label = SMOOTHINGS[name](np.arange(n_raters + 1), n_raters)
            assert label.dtype == np.float64
            assert ((label >= 0) & (label <= 1)).all()
            assert (np.diff(label) > 0).all()

    def test_each_case_may_have_its_own_panel(self, name):
        votes, panel = np.array([0, 2, 3, 4, 1]), np.array([3, 4, 7, 5, 1])
        together = SMOOTHINGS[name](votes, panel)
        alone = [float(SMOOTHINGS[name]([v], m)[0]) for v, m in zip(votes, panel, strict=True)]
        np.testing.assert_array_equal(together, alone)

    def test_bad_votes_are_named(self, name):
        for votes, n_raters, words in [
            ([8], 7, "must not exceed n_raters, got 8 of 7"),
            ([-1], 7, "votes must be whole numbers >= 0, got -1"),
            ([0.5], 7, "whole numbers"),
            ([np.nan], 7, "votes must be finite"),
            ([0], 0, "n_raters must be whole numbers >= 1"),
            ([1, 2], [3, 3, 3], "one number or one per case"),
        ]:
            with pytest.raises(InputError, match=words):
                SMOOTHINGS[name](votes, n_raters)

    def test_soft_labels_with_two_columns_are_the_binary_labels(self, name):
        positive = np.arange(8)
        both = np.column_stack([7 - positive, positive])
        binary = SMOOTHINGS[name](positive, 7)
        np.testing.assert_array_equal(soft_labels(both, smoothing=name), binary)
        np.testing.assert_array_equal(soft_labels(positive, 7, smoothing=name), binary)

    def test_soft_labels_lie_on_the_simplex_and_permute_with_the_classes(self, name):
        rng = np.random.default_rng(0)
        counts = rng.multinomial(rng.integers(1, 9, 200), [0.5, 0.3, 0.1, 0.1])
        label = soft_labels(counts, smoothing=name)
        assert (label >= 0).all()
        np.testing.assert_allclose(label.sum(axis=1), 1)
        order = [2, 0, 3, 1]
        np.testing.assert_allclose(soft_labels(counts[:, order], smoothing=name), label[:, order])
        more = counts[:, :, None] > counts[:, None, :]
        assert (label[:, :, None] >= label[:, None, :])[more].all()


def test_soft_labels_keep_what_already_sums_to_one():
    counts = np.array([[3, 1, 1], [0, 5, 0]])
    np.testing.assert_allclose(soft_labels(counts, smoothing="fraction"), counts / 5)
    np.testing.assert_allclose(
        soft_labels(counts, smoothing="linear", alpha=0.3), 0.7 * counts / 5 + 0.1
    )


def test_soft_labels_refuse_unread_cases_and_unknown_names():
    with pytest.raises(InputError, match="at least one vote, none at row 1"):
        soft_labels([[1, 1, 0], [0, 0, 0]])
    with pytest.raises(InputError, match="unknown smoothing 'steps'"):
        soft_labels([1], 3, "steps")


def test_vanilla_targets():
    np.testing.assert_allclose(vanilla([0, 1]), [0.05, 0.95])
    three = vanilla([0, 2], 0.3, n_classes=3)
    np.testing.assert_allclose(three, [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    np.testing.assert_allclose(vanilla(np.eye(3)[[0, 2]], 0.3, n_classes=3).sum(axis=1), 1)
    np.testing.assert_allclose(vanilla([0.2], 0.0), [0.2])


def test_confidence_is_the_piecewise_limit_of_a_large_panel():
    c = np.array([0.0, 0.1, 0.3, 0.49, 0.5, 0.7, 1.0])
    np.testing.assert_allclose(confidence(c), piecewise(np.round(c * 10**6), 10**6), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: piecewise([1], 3, 1.2), "omega must lie"),
        (lambda: linear([1], 3, -0.1), "alpha must lie"),
        (lambda: nonlinear([1], 3, 0.0), "phi must be"),
        (lambda: vanilla([1], 2.0), "epsilon must lie"),
        (lambda: confidence([0.5], form="print"), "form must be one of"),
        (lambda: confidence([[0.5, 0.5]]), "1-d"),
    ],
)
def test_bad_options(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_fraction_is_the_share():
    assert fraction([0, 2, 7], 7).tolist() == [0, 2 / 7, 1]


def test_a_function_that_takes_no_arrays_is_named():
    with pytest.raises(InputError, match=r"smoothing must be .* got <class 'range'>, which failed"):
        soft_labels([3, 7], 7, smoothing=range)
