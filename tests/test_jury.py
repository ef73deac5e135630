"""The jury map: enumeration, simulation, tails, inverses."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, softmax
from scipy.stats import binom

from scalecal.checks import InputError
from scalecal.jury import jury_inverse, jury_logit, jury_probability


def majority_by_counting(p, m):
    """P(Bin(m, p) > m / 2), half of the ties added."""
    k = np.arange(m + 1)
    pmf = binom.pmf(k, m, p)
    return pmf[2 * k > m].sum() + 0.5 * pmf[2 * k == m].sum()


def plurality_by_enumeration(p, m):
    """Go through every possible count vector."""
    label = np.zeros(len(p))
    for counts in itertools.product(range(m + 1), repeat=len(p)):
        if sum(counts) == m:
            ways = math.factorial(m)
            chance = 1.0
            for share, count in zip(p, counts, strict=True):
                ways //= math.factorial(count)
                chance *= share**count
            winners = np.array(counts) == max(counts)
            label += ways * chance * winners / winners.sum()
    return label


class TestTwoClasses:
    @pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 8, 51, 100])
    def test_forward_by_counting(self, m):
        p = np.linspace(0, 1, 23)
        expected = [majority_by_counting(x, m) for x in p]
        np.testing.assert_allclose(jury_probability(p, m), expected, rtol=1e-10, atol=1e-14)

    @given(st.floats(1e-12, 1 - 1e-12), st.integers(1, 60))
    def test_inverse_undoes_forward(self, q, m):
        assert jury_probability(jury_inverse([q], m), m)[0] == pytest.approx(q, rel=1e-9, abs=0)

    @given(st.floats(-250, 250), st.integers(1, 60))
    def test_logits_keep_their_digits_in_both_tails(self, z, m):
        vote = jury_logit([z], m)[0]
        assert jury_logit([-z], m)[0] == -vote
        small = expit(-abs(vote))
        label = jury_probability([small], m)[0]
        assert label == pytest.approx(expit(-abs(z)), rel=1e-9, abs=1e-300)

    @pytest.mark.parametrize("m", [1, 3, 7, 51, 1001])
    def test_huge_logits_are_finite_and_monotone(self, m):
        z = np.concatenate([np.linspace(-5000, 5000, 20_001), np.linspace(299, 301, 201)])
        z.sort()
        vote = jury_logit(z, m)
        assert np.isfinite(vote).all()
        assert (np.diff(vote)[np.diff(z) > 0] > 0).all()
        assert (np.abs(vote) <= np.abs(z) + 1e-9).all()

    @pytest.mark.parametrize("m", [3, 7, 51])
    def test_the_far_tail_is_the_power_law(self, m):
        # I_P(a, a) -> P^a / (a B(a, a)) for small P.
        a = (m + 1) // 2
        log_constant = math.log(a) + 2 * math.lgamma(a) - math.lgamma(2 * a)
        expected = (-2000 + log_constant) / a
        assert jury_logit([-2000.0], m)[0] == pytest.approx(expected, rel=1e-12)

    def test_even_panels_are_the_odd_one_below_and_one_reader_changes_nothing(self):
        z = np.linspace(-9, 9, 31)
        np.testing.assert_array_equal(jury_logit(z, 8), jury_logit(z, 7))
        np.testing.assert_array_equal(jury_logit(z, 1), z)
        np.testing.assert_array_equal(jury_logit(z, 2), z)

    def test_strength_is_linear_in_logits(self):
        z = np.linspace(-9, 9, 31)
        full = jury_logit(z, 7)
        np.testing.assert_array_equal(jury_logit(z, 7, 0.0), z)
        np.testing.assert_allclose(jury_logit(z, 7, 0.3), 0.7 * z + 0.3 * full)

    def test_each_case_has_its_own_panel(self):
        z, m = np.array([1.0, 2.0, -3.0, 4.0]), np.array([1, 4, 7, 51])
        alone = [jury_logit([x], int(k))[0] for x, k in zip(z, m, strict=True)]
        np.testing.assert_array_equal(jury_logit(z, m), alone)

    def test_sure_labels_are_sure_votes(self):
        assert jury_inverse([0.0, 1.0], 7).tolist() == [0, 1]


class TestManyClasses:
    @pytest.mark.parametrize(("n_classes", "m"), [(3, 1), (3, 2), (3, 5), (3, 8), (4, 6), (5, 7)])
    def test_forward_by_enumeration(self, n_classes, m):
        rng = np.random.default_rng(m)
        for p in rng.dirichlet(np.full(n_classes, 0.5), 3):
            np.testing.assert_allclose(
                jury_probability([p], m)[0], plurality_by_enumeration(p, m), rtol=1e-12
            )

    def test_impossible_classes(self):
        p = np.array([[0.6, 0.4, 0.0]])
        np.testing.assert_allclose(
            jury_probability(p, 7)[0], [*jury_probability([0.6, 0.4], 7), 0.0], rtol=1e-12
        )

    @pytest.mark.validity
    def test_large_panels_by_simulation(self):
        rng = np.random.default_rng(0)
        p = rng.dirichlet(np.full(10, 5.0))
        draws = 100_000
        counts = rng.multinomial(51, p, draws)
        # A random number below one breaks ties evenly.
        won = np.bincount((counts + rng.random(counts.shape)).argmax(axis=1), minlength=10) / draws
        label = jury_probability([p], 51)[0]
        assert label.sum() == pytest.approx(1, abs=1e-12)
        assert (np.abs(won - label) < 5 * np.sqrt(label * (1 - label) / draws) + 1e-5).all()

    @pytest.mark.parametrize(("n_classes", "m"), [(3, 3), (3, 4), (4, 7), (6, 12), (10, 51)])
    @pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
    def test_inverse_undoes_forward(self, n_classes, m, spread):
        rng = np.random.default_rng(1)
        z = spread * rng.normal(size=(20, n_classes))
        vote = np.exp(jury_logit(z, m))
        np.testing.assert_allclose(vote.sum(axis=1), 1)
        wanted = log_softmax(z, axis=1)
        found = np.log(jury_probability(vote, m))
        seen = wanted > -250
        np.testing.assert_allclose(found[seen], wanted[seen], atol=1e-7)

    @settings(deadline=None, max_examples=40)
    @given(st.lists(st.floats(-40, 40), min_size=3, max_size=5), st.integers(1, 13), st.randoms())
    def test_classes_may_be_permuted(self, z, m, random):
        order = list(range(len(z)))
        random.shuffle(order)
        z = np.array([z])
        np.testing.assert_allclose(
            jury_logit(z[:, order], m), jury_logit(z, m)[:, order], rtol=1e-7, atol=1e-7
        )

    def test_two_columns_are_the_binary_map(self):
        z = np.array([-900.0, -30.0, -1.0, 0.0, 2.0, 400.0])
        for strength in (0.0, 0.4, 1.0):
            both = jury_logit(np.column_stack([-z / 2, z / 2]), 7, strength)
            np.testing.assert_allclose(
                both[:, 1] - both[:, 0], jury_logit(z, 7, strength), rtol=1e-12, atol=1e-12
            )

    def test_huge_logits_are_finite_keep_order_and_sharpness_falls(self):
        rng = np.random.default_rng(2)
        z = np.array([700.0, -700.0, 0.0, 300.0]) + rng.normal(size=(5, 4))
        vote = jury_logit(z, 7)
        assert np.isfinite(vote).all()
        np.testing.assert_array_equal(np.argsort(vote, axis=1), np.argsort(z, axis=1))
        mild = rng.normal(size=(50, 4))
        assert (np.exp(jury_logit(mild, 7)).max(axis=1) <= softmax(mild, axis=1).max(axis=1)).all()

    def test_each_case_has_its_own_panel(self):
        z = np.random.default_rng(3).normal(size=(4, 3))
        m = np.array([1, 7, 4, 7])
        alone = [jury_logit(z[[i]], int(m[i]))[0] for i in range(4)]
        np.testing.assert_allclose(jury_logit(z, m), alone, atol=1e-8)

    def test_sure_labels_are_sure_votes(self):
        np.testing.assert_allclose(
            jury_inverse([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], 7),
            [[1, 0, 0], [0.5, 0.5, 0]],
            atol=1e-30,
        )


@pytest.mark.parametrize(
    ("n_raters", "words"),
    [
        (0, "at least 1, got 0"),
        (2.5, "whole numbers"),
        ([3, 3, 3], "one per case"),
        (np.nan, "nan"),
    ],
)
def test_bad_panels(n_raters, words):
    with pytest.raises(InputError, match=words):
        jury_logit([1.0, 2.0], n_raters)


def test_bad_strength():
    with pytest.raises(InputError, match="strength"):
        jury_logit([1.0], 7, 1.5)
