from __future__ import annotations

import numpy as np
import pytest

from scalecal.metrics import ece, smece
from tests.metrics import references as slow


@pytest.mark.parametrize("shape", [(1.0, 1.0), (0.3, 0.3)])
def test_against_a_direct_sum(rng, shape):
    p = rng.beta(*shape, 80)
    y = (rng.random(80) < p**1.4).astype(int)
    assert smece(y, p) == pytest.approx(slow.smooth_fixed_point(y, p), rel=2e-3)


def test_it_is_a_fixed_point(rng):
    p = np.concatenate([rng.random(40), [0.0, 1.0] * 5])
    y = (rng.random(50) < 0.5).astype(int)
    value = smece(y, p)
    assert slow.smooth_error(y, p, value) == pytest.approx(value, rel=2e-3)


def test_constant_probability_gives_the_gap():
    assert smece([1] * 30 + [0] * 70, [0.5] * 100) == pytest.approx(0.2, rel=1e-6)


def test_perfect_and_worst():
    assert smece([0, 1], [0.0, 1.0]) == pytest.approx(0.0, abs=1e-9)
    assert smece([1, 1], [0.0, 0.0]) == pytest.approx(1.0, abs=1e-6)


def test_whole_weights_are_copies(cases, rng):
    y, p = cases
    w = rng.integers(0, 4, len(p))
    assert smece(y, p, sample_weight=w) == pytest.approx(smece(np.repeat(y, w), np.repeat(p, w)))


def test_mirror_image(cases):
    y, p = cases
    assert smece(1 - y, 1 - p) == pytest.approx(smece(y, p), rel=1e-2)


def test_never_above_an_ece_of_single_cases(cases):
    y, p = cases
    assert smece(y, p) <= ece(y, p, n_bins=4096) + 1e-9
