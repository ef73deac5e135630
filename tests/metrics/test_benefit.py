"""Net benefit against a count of every case, and against what is known of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalecal.checks import InputError
from scalecal.metrics import net_benefit, treat_all

THRESHOLDS = np.array([0.05, 0.2, 0.5, 0.8])


def by_hand(y, p, t, w):
    """TP / n - FP / n t / (1 - t), counted case by case."""
    gained = sum(wi * yi for yi, pi, wi in zip(y, p, w, strict=True) if pi >= t)
    lost = sum(wi * (1 - yi) for yi, pi, wi in zip(y, p, w, strict=True) if pi >= t)
    return (gained - lost * t / (1 - t)) / sum(w)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_case_is_counted(rng, soft, weighted):
    p = np.round(rng.uniform(size=60), 1)  # many at a threshold
    y = rng.uniform(size=60) if soft else (rng.uniform(size=60) < p).astype(int)
    w = rng.uniform(size=60) if weighted else None
    weights = np.ones(60) if w is None else w
    expected = [by_hand(y, p, t, weights) for t in THRESHOLDS]
    assert net_benefit(y, p, THRESHOLDS, sample_weight=w) == pytest.approx(expected)
    share = np.average(y, weights=weights)
    defaults = share - (1 - share) * THRESHOLDS / (1 - THRESHOLDS)
    assert treat_all(y, THRESHOLDS, sample_weight=w) == pytest.approx(defaults)


def test_confusion_matrix_of_scikit_learn(rng):
    from sklearn.metrics import confusion_matrix

    p = rng.uniform(size=200)
    y = (rng.uniform(size=200) < p).astype(int)
    for t in THRESHOLDS:
        _, false, _, true = confusion_matrix(y, p >= t).ravel()
        assert net_benefit(y, p, t)[0] == pytest.approx((true - false * t / (1 - t)) / 200)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=30))
def test_a_perfect_model_is_above_every_other(pairs):
    y, p = np.array([a for a, _ in pairs], dtype=int), np.array([b for _, b in pairs])
    best = net_benefit(y, y.astype(float), THRESHOLDS)
    assert (net_benefit(y, p, THRESHOLDS) <= best + 1e-12).all()
    assert best == pytest.approx(np.full(4, y.mean()))


def test_a_calibrated_model_is_no_worse_than_the_defaults(rng):
    p = rng.beta(1, 2, size=400_000)
    y = rng.uniform(size=len(p)) < p
    found = net_benefit(y, p, THRESHOLDS)
    assert (found > np.maximum(treat_all(y, THRESHOLDS), 0) - 0.002).all()


def test_thresholds_keep_their_order():
    y, p = [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9]
    assert net_benefit(y, p, [0.5, 0.2, 0.5]) == pytest.approx([0.0, 0.4375, 0.0])


def test_two_columns_are_as_one(rng):
    p = rng.uniform(size=20)
    y = (p > 0.4).astype(int)
    both = np.column_stack([1 - p, p])
    assert net_benefit(y, both, 0.3) == net_benefit(y, p, 0.3)


@pytest.mark.parametrize("thresholds", [[0.0], [1.0], [0.2, 1.5], [], [float("nan")]])
def test_thresholds_lie_between_0_and_1(thresholds):
    with pytest.raises(InputError, match="thresholds"):
        net_benefit([0, 1], [0.2, 0.8], thresholds)


def test_more_than_two_classes_are_refused():
    with pytest.raises(InputError, match="one class against the rest"):
        net_benefit([0, 1, 2], np.full((3, 3), 1 / 3), [0.2])
