from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from scalecal.checks import InputError
from scalecal.datasets import simulate, simulate_paper
from scalecal.datasets.simulated import vote_counts


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def brute_plurality(shares, m):
    """Every ballot of m readers, one by one."""
    won = np.zeros(len(shares))
    for ballots in product(range(len(shares)), repeat=m):
        counts = np.bincount(ballots, minlength=len(shares))
        top = np.flatnonzero(counts == counts.max())
        won[top] += np.prod(np.asarray(shares)[list(ballots)]) / len(top)
    return won


@pytest.mark.parametrize("unexplained", [0.0, 0.2])
def test_class_probabilities_equal_enumeration(unexplained):
    """Every ballot under every shift of the logits; correlated readers take a common opinion."""
    data = simulate(3, n_classes=3, n_raters=3, dim=3, unexplained=unexplained, correlation=0.3)
    model = data.model
    size = np.sqrt(3 * unexplained)
    shifts = [size * sign * row for row in np.eye(3) for sign in (1, -1)]
    for t, got in zip(model.scores(data.X), data.label_probability, strict=True):
        expected = np.zeros(3)
        for shift in shifts:
            raised = np.exp(2.0 * (np.sqrt(1 - unexplained) * t + shift))
            shares = raised / raised.sum()
            for k in range(3):
                law = np.sqrt(0.3) * np.eye(3)[k] + (1 - np.sqrt(0.3)) * shares
                expected += shares[k] * brute_plurality(law, 3) / len(shifts)
        np.testing.assert_allclose(got, expected, atol=1e-12)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_vote_counts_equal_enumeration(shares):
    expected = np.zeros(len(shares) + 1)
    for ballots in product((0, 1), repeat=len(shares)):
        expected[sum(ballots)] += np.prod(
            [p if b else 1 - p for p, b in zip(shares, ballots, strict=True)]
        )
    np.testing.assert_allclose(vote_counts(np.array(shares)), expected, atol=1e-14)


def test_label_probability_equals_adaptive_quadrature():
    """Alike readers: the integral of P(Bin(m, P) > m/2) over the unseen normal."""
    data = simulate(6, n_raters=7, unexplained=0.3, spread=3.0, prevalence=0.3, dim=3)
    model = data.model
    for t, got in zip(model.scores(data.X), data.label_probability, strict=True):

        def integrand(e, t=t):
            p = sigmoid(model.intercept + 3.0 * (np.sqrt(0.7) * t + np.sqrt(0.3) * e))
            tail = sum(comb(7, v) * p**v * (1 - p) ** (7 - v) for v in range(4, 8))
            return tail * norm.pdf(e)

        assert got == pytest.approx(quad(integrand, -9, 9, epsabs=1e-12)[0], abs=1e-9)


KINDS = {
    "alike": {},
    "even panel": {"n_raters": 4},
    "one reader": {"n_raters": 1},
    "unequal": {"readers": "unequal"},
    "correlated": {"correlation": 0.3},
    "unequal and correlated": {"readers": "unequal", "correlation": 0.2, "n_raters": 5},
    "all seen": {"unexplained": 0.0},
    "half unseen": {"unexplained": 0.5},
    "rare": {"prevalence": 0.05},
    "grouped": {"n_groups": 6000},
    "three classes": {"n_classes": 3},
    "correlated classes": {"n_classes": 4, "correlation": 0.3, "n_raters": 4},
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_and_votes_follow_the_stated_truth(kind):
    """Mean-zero residuals within four standard errors, over all cases and by tenths of the truth."""
    data = simulate(10_000, dim=5, seed=1, **KINDS[kind])
    m = data.n_raters
    n_classes = data.model.n_classes
    y = data.y if n_classes == 2 else np.eye(n_classes)[data.y]
    share = data.votes / (m if n_classes == 2 else m[:, None])
    for seen, truth in [
        (y, data.label_probability),
        (share, data.vote_probability),
        (share, data.expected_vote_probability),
    ]:
        residual, q = (seen - truth).reshape(-1), truth.reshape(-1)
        tenth = np.minimum((q * 10).astype(int), 9)
        for part in [np.ones(len(q), bool), *(tenth == k for k in range(10))]:
            if part.sum() > 200:
                error = residual[part].std() / np.sqrt(part.sum())
                assert abs(residual[part].mean()) < 4.0 * error + 1e-12


def test_alike_readers_correlate_as_stated():
    data = simulate(40_000, n_raters=2, correlation=0.25, unexplained=0.0, dim=2)
    p = data.vote_probability
    both = (data.votes == 2) - p**2  # covariance of the two votes, given the case
    assert both.mean() == pytest.approx(0.25 * (p * (1 - p)).mean(), abs=4 * both.std() / 200)


def test_vote_distribution_is_what_the_votes_do():
    data = simulate(20_000, dim=2, readers="unequal", correlation=0.1)
    law = data.model.vote_distribution_at(data.model.scores(data.X))
    np.testing.assert_allclose(law.sum(axis=1), 1.0, atol=1e-12)
    seen = np.bincount(data.votes, minlength=8) / len(data)
    assert np.abs(seen - law.mean(axis=0)).max() < 0.013


@pytest.mark.parametrize("auc", [0.80, 0.90, 0.97])
def test_the_difficulty_knob_sets_the_auc(auc):
    data = simulate(20_000, auc=auc, dim=3, prevalence=0.3)
    assert roc_auc_score(data.y, data.label_probability) == pytest.approx(auc, abs=0.008)
    assert data.y.mean() == pytest.approx(0.3, abs=0.013)


def test_the_papers_set_up():
    data = simulate_paper()
    assert len(data) == 3152
    assert set(data.n_raters) == {7}
    assert ((data.split == "train").sum(), (data.split == "test").sum()) == (2175, 977)
    assert roc_auc_score(data.y, data.label_probability) == pytest.approx(0.93, abs=0.015)
    assert (data.y == (data.votes >= 4)).all()


def test_the_truth_holds_for_new_features():
    data = simulate(50, dim=6)
    np.testing.assert_allclose(
        data.model.label_probability(data.X), data.label_probability, atol=1e-12
    )


def test_same_seed_same_bytes_and_groups_stay_whole():
    a, b = simulate(300, n_groups=40, seed=5), simulate(300, n_groups=40, seed=5)
    assert a.X.tobytes() == b.X.tobytes()
    assert a.votes.tobytes() == b.votes.tobytes()
    assert len(set(a.groups)) == 40
    assert not set(a.groups[a.split == "train"]) & set(a.groups[a.split == "test"])


def test_take_keeps_columns_together():
    data = simulate(100)
    part = data.take(np.arange(10, 20))
    assert len(part) == 10
    assert (part.label_probability == data.label_probability[10:20]).all()
    assert part.model is data.model
    assert (data.take(data.split == "test").split == "test").all()


def test_selection_makes_the_perfect_model_look_overconfident_on_low_agreement():
    """In a 4-3 split the label is drawn with the vote probability, not the sharper majority's."""
    data = simulate(30_000, unexplained=0.0, dim=2)
    low = np.isin(data.votes, (3, 4))
    q, y = data.label_probability[low], data.y[low]
    sharp = q > 0.8
    assert y[sharp].mean() < q[sharp].mean() - 0.1
    assert y[sharp].mean() == pytest.approx(data.vote_probability[low][sharp].mean(), abs=0.03)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be at least 1"),
        ({"unexplained": 1.0}, "unexplained must be below 1"),
        ({"correlation": -0.1}, "correlation must lie in"),
        ({"auc": 0.99, "unexplained": 0.2}, "the most that can be had"),
        ({"auc": 0.5}, "auc must lie between"),
        ({"spread": 0.0}, "spread must be"),
        ({"prevalence": 0.0}, "strictly between 0 and 1"),
        ({"readers": "tired"}, "must be one of"),
        ({"n_classes": 3, "auc": 0.9}, "for two classes"),
        ({"n_classes": 5, "dim": 4}, "dim must be at least 5"),
        ({"n_train": 4000}, "n_train must not exceed"),
        ({"n": 10, "n_groups": 11}, "n_groups must not exceed"),
    ],
)
def test_bad_knobs_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        simulate(**arguments)
