from __future__ import annotations

from math import log

import numpy as np
import pytest
from sklearn import metrics as sk

from scalecal.metrics import brier, nll


def test_against_scikit_learn(cases, three, rng):
    y, p = cases
    w = rng.random(len(y))
    assert brier(y, p, sample_weight=w) == pytest.approx(sk.brier_score_loss(y, p, sample_weight=w))
    assert nll(y, p, sample_weight=w) == pytest.approx(sk.log_loss(y, p, sample_weight=w))
    labels, probs = three
    assert nll(labels, probs) == pytest.approx(sk.log_loss(labels, probs))
    onehot = np.eye(3)[labels]
    assert brier(labels, probs) == pytest.approx(((probs - onehot) ** 2).sum(axis=1).mean())


def test_soft_labels():
    assert brier([0.3], [0.3]) == 0.0
    assert nll([0.25], [0.5]) == pytest.approx(log(2))
    soft, p = np.array([[0.2, 0.3, 0.5]]), np.array([[0.5, 0.25, 0.25]])
    assert nll(soft, p) == pytest.approx(-(soft * np.log(p)).sum())


def test_certain_and_wrong_is_dear_but_finite():
    assert 36 < nll([1], [0.0]) < 37
    assert nll([1, 0], [1.0, 0.0]) == pytest.approx(0.0, abs=1e-15)


def test_two_columns_are_one(cases):
    y, p = cases
    for metric in (brier, nll):
        assert metric(y, np.column_stack([1 - p, p])) == metric(y, p)
