from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from scalecal.metrics import accuracy, auc
from tests.metrics import references as slow


def test_auc_against_pairs_and_scikit_learn(cases, rng):
    y, p = cases
    w = rng.random(len(p))
    assert auc(y, p) == pytest.approx(slow.pairwise_auc(y, p))
    assert auc(y, p, sample_weight=w) == pytest.approx(sk.roc_auc_score(y, p, sample_weight=w))


def test_auc_of_soft_labels(rng):
    y, p = rng.random(20), np.round(rng.random(20), 1)
    assert auc(y, p) == pytest.approx(slow.pairwise_auc(y, p))


def test_auc_of_more_classes(three):
    y, p = three
    assert auc(y, p) == pytest.approx(sk.roc_auc_score(y, p, multi_class="ovr"))
    without = y != 2
    expected = np.mean([sk.roc_auc_score(y[without] == c, p[without][:, c]) for c in (0, 1)])
    assert auc(y[without], p[without]) == pytest.approx(expected)


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 8).map(lambda k: k / 8)),
        min_size=1,
        max_size=30,
    )
)
def test_auc_turns_with_the_score(pairs):
    y, p = map(np.array, zip(*pairs, strict=True))
    if len(set(y)) < 2:
        assert np.isnan(auc(y, p))
    else:
        assert auc(y, 1 - p) == pytest.approx(1 - auc(y, p))
        assert auc(y, np.full(len(y), 0.5)) == 0.5


def test_accuracy(cases, three, rng):
    y, p = cases
    w = rng.random(len(p))
    assert accuracy(y, p, sample_weight=w) == pytest.approx(
        sk.accuracy_score(y, p >= 0.5, sample_weight=w)
    )
    labels, probs = three
    assert accuracy(labels, probs) == sk.accuracy_score(labels, probs.argmax(axis=1))
    assert accuracy([0.3], [0.2]) == pytest.approx(0.7)
