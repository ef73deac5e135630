"""Cases used by several test files."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.fixture
def cases(rng):
    """Labels and probabilities with ties, edges, zeros and ones."""
    p = np.concatenate(
        [rng.random(60), np.round(rng.random(40), 1), np.repeat([0.0, 1.0, 0.2, 0.6], 5)]
    )
    return (rng.random(len(p)) < np.clip(p + 0.1, 0, 1)).astype(int), p


@pytest.fixture
def three(rng):
    """Three classes: labels and probabilities."""
    p = rng.dirichlet([1.0, 2.0, 0.7], 80)
    return np.array([rng.choice(3, p=row) for row in p]), p
