from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

from scalecal.metrics import aurc


def _slow_aurc(error, confidence):
    """Mean over all orders that respect the confidences."""
    n, found = len(error), []
    for order in permutations(range(n)):
        if all(confidence[a] >= confidence[b] for a, b in pairwise(order)):
            risks = [np.mean([error[i] for i in order[: k + 1]]) for k in range(n)]
            found.append(np.mean(risks))
    return np.mean(found)


def test_aurc_is_the_mean_over_the_orders_of_ties():
    y, p = np.array([0, 1, 1, 0, 1, 1]), np.array([0.25, 0.75, 0.25, 0.9, 0.6, 0.75])
    error = (p >= 0.5).astype(int) != y
    assert aurc(y, p) == pytest.approx(_slow_aurc(error, np.maximum(p, 1 - p)))
    twice = aurc(np.repeat(y, 2), np.repeat(p, 2))
    assert aurc(y, p, sample_weight=np.full(6, 2.0)) == pytest.approx(twice)


def test_aurc_without_ties(three):
    y, p = three
    order = np.argsort(-p.max(axis=1))
    error = (p.argmax(axis=1) != y)[order]
    assert aurc(y, p) == pytest.approx((np.cumsum(error) / np.arange(1, len(y) + 1)).mean())


def test_row_order_does_not_matter(cases, rng):
    y, p = cases
    w, shuffled = rng.random(len(p)), rng.permutation(len(p))
    assert aurc(y, p) == pytest.approx(aurc(y[shuffled], p[shuffled]))
    assert aurc(y, p, sample_weight=w) == pytest.approx(
        aurc(y[shuffled], p[shuffled], sample_weight=w[shuffled])
    )


def test_weightless_cases_do_not_count(cases):
    y, p = cases
    w = (np.arange(len(p)) % 3 > 0).astype(float)
    assert aurc(y, p, sample_weight=w) == pytest.approx(aurc(y[w > 0], p[w > 0]))


def test_limits():
    assert aurc([0, 1], [0.1, 0.9]) == 0.0
    assert aurc([1, 0], [0.1, 0.9]) == 1.0
