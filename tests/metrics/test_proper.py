from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk
from sklearn.isotonic import IsotonicRegression

from scalecal.checks import InputError
from scalecal.metrics import brier, corp, nll


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


def _slow_corp(score, y, p, w):
    iso = IsotonicRegression(y_min=0, y_max=1).fit(p, y, w).predict(p)
    base = np.full(len(p), np.average(y, weights=w))
    s, i, b = (score(y, q, sample_weight=w) for q in (p, iso, base))
    return s - i, b - i, b


@pytest.mark.parametrize(("name", "score"), [("brier", brier), ("log", nll)])
def test_corp_against_isotonic_regression_of_scikit_learn(cases, rng, name, score):
    y, p = cases
    soft, w = np.round(rng.random(len(p)), 1), rng.random(len(p)) + 0.1
    for labels, weights in ((y, None), (y, w), (soft, w)):
        parts = corp(labels, p, score=name, sample_weight=weights)
        expected = _slow_corp(score, labels, p, w if weights is not None else np.ones(len(p)))
        assert (parts.mcb, parts.dsc, parts.unc) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_corp_adds_up_and_has_signs(pairs):
    y, p = zip(*pairs, strict=True)
    for name, score in (("brier", brier), ("log", nll)):
        parts = corp(y, p, score=name)
        assert parts.score == pytest.approx(score(y, p), abs=1e-12)
        assert parts.mcb - parts.dsc + parts.unc == pytest.approx(parts.score, abs=1e-9)
        assert parts.mcb >= -1e-9
        assert parts.dsc >= -1e-9


def test_corp_limits():
    perfect = corp([0, 0, 1, 1], [0.0, 0.0, 1.0, 1.0])
    assert (perfect.mcb, perfect.dsc) == pytest.approx((0.0, 0.25))
    constant = corp([0, 1], [0.5, 0.5])
    assert (constant.mcb, constant.dsc) == pytest.approx((0.0, 0.0))
    with pytest.raises(InputError, match="'brier', 'log'"):
        corp([0], [0.5], score="crps")
