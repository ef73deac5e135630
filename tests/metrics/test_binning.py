from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalecal.checks import InputError
from scalecal.metrics import bin_index, bins, ece
from scalecal.metrics.arguments import BLOCK
from tests.metrics import references as slow

unit = st.floats(0, 1)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 5, 7, 10, 15, 20, 49, 100, 4096])
def test_edges_belong_to_the_bin_above_them(n_bins):
    edges = np.arange(n_bins + 1) / n_bins
    around = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 2)])
    p = around[(around >= 0) & (around <= 1)]
    # The slow reference is the definition on the same float edges.
    expected = np.minimum(np.searchsorted(edges, p, side="right") - 1, n_bins - 1)
    np.testing.assert_array_equal(bin_index(p, n_bins=n_bins), expected)
    if n_bins <= 100:
        assert list(expected) == [slow.width_bin(q, n_bins) for q in p]


def test_a_naive_floor_would_fail_here():
    assert int(1 / 49 * 49) == 0  # why edges are compared and not trusted to a product
    assert bin_index([1 / 49], n_bins=49)[0] == 1


def test_the_last_bin_holds_one():
    assert bin_index([1.0])[0] == 14
    assert bin_index([1.0], n_bins=1)[0] == 0


@given(st.lists(unit, min_size=1, max_size=30), st.integers(1, 60))
def test_width_bins_agree_with_the_definition(p, n_bins):
    assert list(bin_index(p, n_bins=n_bins)) == [slow.width_bin(q, n_bins) for q in p]


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([0, 0.1, 0.25, 0.3, 0.5, 0.9, 1]) | unit, min_size=1, max_size=25),
    st.integers(1, 12),
)
def test_mass_bins_agree_with_exact_arithmetic_and_never_split_ties(p, n_bins):
    index = bin_index(p, n_bins=n_bins, binning="mass")
    assert list(index) == slow.mass_bins(p, n_bins)
    for value in set(p):
        assert len(set(index[np.array(p) == value])) == 1


def test_mass_bins_are_balanced_without_ties(rng):
    counts = np.bincount(bin_index(rng.random(1000), n_bins=15, binning="mass"))
    assert len(counts) == 15
    assert np.ptp(counts) <= 1


def test_whole_weights_are_copies_for_mass_bins(rng):
    p, w = np.round(rng.random(50), 2), rng.integers(0, 4, 50)
    weighted = bin_index(p, n_bins=7, binning="mass", sample_weight=w)
    copies = bin_index(np.repeat(p, w), n_bins=7, binning="mass")
    np.testing.assert_array_equal(np.repeat(weighted, w), copies)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_table_against_a_loop(cases, rng, binning):
    y, p = cases
    w = rng.integers(1, 5, len(p))
    table = bins(y, p, n_bins=8, binning=binning, sample_weight=w)
    index = bin_index(p, n_bins=8, binning=binning, sample_weight=w)
    for k in range(8):
        rows = index == k
        assert table.n[k] == w[rows].sum()
        if not rows.any():
            assert np.isnan(table.mean_p[k])
            continue
        assert table.weight[k] == pytest.approx(w[rows].sum())
        assert table.mean_p[k] == pytest.approx(np.average(p[rows], weights=w[rows]))
        assert table.mean_y[k] == pytest.approx(np.average(y[rows], weights=w[rows]))
        assert table.residual[k] == pytest.approx(w[rows] @ (p - y)[rows])
        assert table.lo[k] <= p[rows].min() <= p[rows].max() <= table.hi[k]
    assert table.ece == pytest.approx(ece(y, p, n_bins=8, binning=binning, sample_weight=w))


def test_blocks_do_not_matter(rng):
    n = 2 * BLOCK + 17
    p = rng.random(n)
    y = rng.random(n) < p
    edges = np.minimum((p * 15).astype(int), 14)
    expected = np.abs(np.bincount(edges, p - y)).sum() / n
    assert ece(y, p) == pytest.approx(expected)
    assert bins(y, p).n.sum() == n


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="n_bins"):
        bin_index([0.5], n_bins=0)
    with pytest.raises(InputError, match="'width', 'mass'"):
        bin_index([0.5], binning="quantile")
