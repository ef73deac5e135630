from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalecal.metrics import debiased_error, ece
from tests.metrics import references as slow

pairs = st.lists(
    st.tuples(st.integers(0, 1), st.floats(0, 1) | st.sampled_from([0, 0.2, 0.6, 1])),
    min_size=1,
    max_size=30,
)


@given(pairs, st.integers(1, 20))
def test_ece_against_a_loop(pairs, n_bins):
    y, p = zip(*pairs, strict=True)
    assert ece(y, p, n_bins=n_bins) == pytest.approx(slow.ece(y, p, n_bins), abs=1e-12)


def test_ece_of_soft_labels_and_weights(cases, rng):
    _, p = cases
    soft, w = rng.random(len(p)), rng.random(len(p))
    assert ece(soft, p, sample_weight=w) == pytest.approx(slow.ece(soft, p, weights=w))


def test_whole_weights_are_copies(cases, rng):
    y, p = cases
    w = rng.integers(0, 4, len(p))
    assert ece(y, p, sample_weight=w) == pytest.approx(ece(np.repeat(y, w), np.repeat(p, w)))


def test_ece_limits():
    assert ece([0, 1], [0.0, 1.0]) == 0.0
    assert ece([1, 0], [0.0, 1.0]) == 1.0
    assert ece([0, 1], [0.5, 0.5]) == 0.0


@pytest.mark.parametrize("metric", [ece, debiased_error])
def test_label_types_do_not_matter(cases, metric):
    y, p = cases
    expected = metric(y.astype(float), p)
    for kind in (bool, np.uint8, np.int32, np.float32):
        assert metric(y.astype(kind), p) == pytest.approx(expected, abs=1e-15)
    assert metric(list(y), np.column_stack([1 - p, p])) == pytest.approx(expected, abs=1e-15)


def test_mass_ece_against_a_loop(cases):
    y, p = cases
    expected = slow.binned_ece(y, p, slow.mass_bins(p, 6))
    assert ece(y, p, n_bins=6, binning="mass") == pytest.approx(expected)


def test_more_classes(three):
    y, p = three
    top = p.argmax(axis=1)
    expected = slow.ece((top == y).astype(float), p.max(axis=1))
    assert ece(y, p) == pytest.approx(expected)
    assert ece(np.eye(3)[y], p) == pytest.approx(expected)


@pytest.mark.parametrize("n_bins", [1, 5, 15])
def test_debiased_error_against_its_formula(cases, n_bins):
    y, p = cases
    assert debiased_error(y, p, n_bins=n_bins) == pytest.approx(slow.debiased(y, p, n_bins))


def test_debiased_error_with_weights_is_the_mean_product_of_pairs(rng):
    p, w = rng.random(12), rng.integers(1, 4, 12)
    y = (rng.random(12) < p).astype(int)
    r = np.repeat(p - y, w)
    products = [r[i] * r[j] for i in range(len(r)) for j in range(len(r)) if i != j]
    assert debiased_error(y, p, n_bins=1, sample_weight=w) == pytest.approx(np.mean(products))


def test_debiased_error_of_single_cases_is_unknown():
    assert np.isnan(debiased_error([1], [0.3]))
    assert np.isnan(debiased_error([1, 0], [0.3, 0.6], n_bins=2))
