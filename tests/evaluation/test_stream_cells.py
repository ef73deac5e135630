"""The grid: monotone, aligned with bins, finer at the ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalecal.evaluation.stream import Cells
from scalecal.metrics import bin_index

BINS = (1, 2, 7, 15, 16, 100, 256)
NEAR_ONE = 1 - 2**-40  # closer to one float64 has too few numbers to fill every cell


@pytest.mark.parametrize("n_bins", BINS)
def test_every_edge_belongs_to_the_cell_above_it(n_bins):
    cells = Cells(n_bins)
    low = cells.low
    assert len(low) == cells.count
    known = low < NEAR_ONE
    assert (np.diff(low[known]) > 0).all()
    assert (cells.index(low)[known] == np.arange(cells.count)[known]).all()
    below = np.nextafter(low[1:], 0.0)
    assert (cells.index(below) == np.arange(cells.count - 1))[low[1:] < NEAR_ONE].all()


@pytest.mark.parametrize("n_bins", BINS)
def test_bins_and_the_grid_of_smece_are_unions_of_cells(n_bins):
    cells = Cells(n_bins)
    inside = cells.low < NEAR_ONE
    for wanted in (n_bins, 4096, 2):
        first = bin_index(cells.low, n_bins=wanted)
        last = bin_index(np.nextafter(cells.high, 0.0), n_bins=wanted)
        assert (first == last)[inside].all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_order_is_kept_and_cases_lie_in_their_cells(values):
    cells = Cells(15)
    p = np.sort(np.array(values))
    k = cells.index(p)
    assert (np.diff(k) >= 0).all()
    assert (k >= 0).all()
    assert (k < cells.count).all()
    assert (cells.low[k] <= p).all()
    assert (p <= cells.high[k]).all()
    assert (cells.clip(p, k) == p).all() or (p > NEAR_ONE).any()


def test_log_odds_are_told_apart_at_both_ends():
    cells = Cells(15)
    p = 10.0 ** np.linspace(-15, -3, 400)
    k = cells.index(p)
    assert (np.log(cells.high[k] / np.maximum(cells.low[k], 2**-53)) < 1 / 31).all()
    q = 1.0 - 10.0 ** np.linspace(-9, -3, 200)
    k = cells.index(q)
    assert (np.log((1 - cells.low[k]) / (1 - cells.high[k])) < 1 / 31).all()
