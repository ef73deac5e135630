"""The panel: its law against enumeration and scipy, the label's tail and inverse, fits and refusals."""

import itertools
import math
import os

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import betainc, expit, log_softmax, logit, softmax
from scipy.stats import betabinom, binom, dirichlet_multinomial

from scalecal.checks import InputError
from scalecal.panel import (
    MOST_RHO,
    count_log_likelihood,
    label_logit,
    reader_logit,
    split_probability,
    vote_log_pmf,
)
from scalecal.votes import stratum_codes

LARGE = bool(os.environ.get("SCALECAL_SLOW"))
RHOS = [0.0, 1e-6, 0.05, 0.3, 0.8, 0.99]
SIZES = [1, 2, 3, 4, 7, 8, 51]

logits = st.floats(-20, 20)
rhos = st.floats(0, MOST_RHO)
sizes = st.integers(1, 51)


def all_counts(n_classes, m):
    """Every way m votes can fall."""
    every = itertools.product(range(m + 1), repeat=n_classes)
    return np.array([counts for counts in every if sum(counts) == m])


def law_by_products(counts, p, rho):
    """Probability of each row of counts, votes drawn one by one from Polya's urn."""
    law = []
    for row in counts:
        m = int(row.sum())
        chance = float(math.factorial(m))
        drawn = 0
        for share, count in zip(p, row, strict=True):
            for i in range(int(count)):
                chance *= ((1 - rho) * share + i * rho) / (1 - rho + drawn * rho) / (i + 1)
                drawn += 1
        law.append(chance)
    return np.array(law)


def label_by_enumeration(p, rho, m):
    counts = all_counts(len(p), m)
    winners = counts == counts.max(axis=1, keepdims=True)
    return law_by_products(counts, p, rho) @ (winners / winners.sum(axis=1, keepdims=True))


class TestLaw:
    @pytest.mark.parametrize("m", SIZES)
    def test_without_correlation_it_is_binomial(self, m):
        p = np.linspace(0.01, 0.99, 15)
        k = np.arange(m + 1)
        found = np.exp(vote_log_pmf(logit(p), 0.0, m))
        np.testing.assert_allclose(found, binom.pmf(k, m, p[:, None]), rtol=1e-12)

    @pytest.mark.parametrize("m", SIZES)
    @pytest.mark.parametrize("rho", [0.01, 0.2, 0.5, 0.9])
    def test_it_is_the_beta_binomial_of_scipy(self, m, rho):
        p = np.linspace(0.01, 0.99, 15)[:, None]
        size = (1 - rho) / rho
        expected = betabinom.logpmf(np.arange(m + 1), m, size * p, size * (1 - p))
        np.testing.assert_allclose(vote_log_pmf(logit(p[:, 0]), rho, m), expected, atol=1e-9)

    @given(logits, rhos, sizes)
    def test_sums_to_one_with_the_mean_and_variance_of_the_model(self, z, rho, m):
        pmf = np.exp(vote_log_pmf([z], rho, m))[0]
        k, p = np.arange(m + 1), expit(z)
        assert pmf.sum() == pytest.approx(1, abs=1e-12)
        assert pmf @ k == pytest.approx(m * p, rel=1e-10)
        variance = m * p * (1 - p) * (1 + (m - 1) * rho)
        assert pmf @ (k - m * p) ** 2 == pytest.approx(variance, rel=1e-7, abs=1e-12)

    @given(logits, rhos, sizes)
    def test_classes_may_be_swapped(self, z, rho, m):
        swapped = vote_log_pmf([-z], rho, m)[:, ::-1]
        np.testing.assert_allclose(swapped, vote_log_pmf([z], rho, m), rtol=1e-12, atol=1e-12)

    def test_is_continuous_at_zero_correlation(self):
        z = np.linspace(-5, 5, 11)
        np.testing.assert_allclose(
            vote_log_pmf(z, 1e-12, 7), vote_log_pmf(z, 0.0, 7), rtol=1e-9, atol=1e-9
        )

    def test_readers_who_always_agree(self):
        pmf = np.exp(vote_log_pmf([1.0], MOST_RHO, 7))[0]
        np.testing.assert_allclose(pmf[[0, -1]], [expit(-1), expit(1)], atol=0.02)
        assert pmf[1:-1].sum() < 0.05

    @pytest.mark.parametrize("rho", RHOS)
    def test_far_tails_are_finite(self, rho):
        assert np.isfinite(vote_log_pmf([-5000.0, -700.0, 700.0, 5000.0], rho, 51)).all()

    def test_each_class_has_its_own_count(self):
        z = np.random.default_rng(0).normal(size=(4, 3))
        found = vote_log_pmf(z, 0.3, 5)
        assert found.shape == (4, 3, 6)
        p = softmax(z, axis=1)
        np.testing.assert_allclose(found[:, 1], vote_log_pmf(logit(p[:, 1]), 0.3, 5), rtol=1e-9)
        counts = all_counts(3, 5)
        law = law_by_products(counts, p[0], 0.3)
        marginal = [law[counts[:, 2] == k].sum() for k in range(6)]
        np.testing.assert_allclose(np.exp(found[0, 2]), marginal, rtol=1e-12)


class TestCounts:
    @pytest.mark.parametrize(("n_classes", "m"), [(2, 7), (3, 5), (4, 4)])
    @pytest.mark.parametrize("rho", [0.0, 0.1, 0.9])
    def test_by_the_urn(self, n_classes, m, rho):
        p = np.random.default_rng(m).dirichlet(np.ones(n_classes))
        counts = all_counts(n_classes, m)
        z = np.tile(np.log(p), (len(counts), 1))
        found = count_log_likelihood(counts, z, rho)
        np.testing.assert_allclose(np.exp(found), law_by_products(counts, p, rho), rtol=1e-11)
        assert np.exp(found).sum() == pytest.approx(1, abs=1e-12)
        if rho:
            scipy = dirichlet_multinomial.logpmf(counts, (1 - rho) / rho * p, m)
            np.testing.assert_allclose(found, scipy, atol=1e-9)

    def test_two_classes_are_the_law_of_k_of_m(self):
        z, k = np.linspace(-3, 3, 8), np.arange(8)
        found = count_log_likelihood(np.column_stack([7 - k, k]), z, 0.2)
        np.testing.assert_allclose(found, vote_log_pmf(z, 0.2, 7)[k, k], rtol=1e-12)

    def test_panels_differ_and_may_be_empty(self):
        votes = np.array([[0, 0], [1, 0], [2, 5]])
        found = count_log_likelihood(votes, [3.0, 3.0, 3.0], 0.4)
        assert found[0] == 0
        assert found[1] == pytest.approx(np.log(expit(-3.0)))
        assert found[2] == pytest.approx(vote_log_pmf([3.0], 0.4, 7)[0, 5])

    def test_shapes_must_agree(self):
        with pytest.raises(InputError, match=r"counts must have the shape \(2, 3\)"):
            count_log_likelihood([[1, 1], [1, 1]], np.zeros((2, 3)), 0.1)


class TestSplit:
    @pytest.mark.parametrize(("n_classes", "m"), [(2, 2), (2, 7), (2, 8), (3, 2), (3, 6), (4, 5)])
    @pytest.mark.parametrize("rho", [0.0, 0.3, 0.9])
    def test_by_enumeration(self, n_classes, m, rho):
        rng = np.random.default_rng(m)
        counts = all_counts(n_classes, m)
        low = stratum_codes(counts) == 2
        for p in rng.dirichlet(np.full(n_classes, 0.6), 4):
            expected = law_by_products(counts, p, rho)[low].sum()
            found = split_probability(np.log([p]), rho, m)[0]
            assert found == pytest.approx(expected, rel=1e-9)
            if n_classes == 2:
                one = split_probability([logit(p[1])], rho, m)[0]
                assert one == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("m", range(2, 40))
    def test_the_rule_is_that_of_the_strata(self, m):
        k = np.arange(m + 1)
        low = stratum_codes(np.column_stack([m - k, k])) == 2
        expected = np.exp(vote_log_pmf([0.7], 0.1, m))[0, low].sum()
        assert split_probability([0.7], 0.1, m)[0] == pytest.approx(expected, rel=1e-10)

    def test_own_panels_and_too_few_readers(self):
        z, m = np.array([0.5, 0.5, -2.0]), np.array([1, 7, 4])
        found = split_probability(z, 0.2, m)
        assert np.isnan(found[0])
        np.testing.assert_array_equal(found[1:], [split_probability([a], 0.2, b)[0]
                                                  for a, b in zip(z[1:], m[1:], strict=True)])  # fmt: skip

    def test_small_probabilities_keep_their_digits(self):
        # Of seven readers three must leave the leading class.
        z = np.array([[40.0, 0.0, 0.0]])
        expected = math.comb(7, 3) * 8 * np.exp(-120)
        assert split_probability(z, 0.0, 7)[0] == pytest.approx(expected, rel=1e-9)


class TestTwoClasses:
    @pytest.mark.parametrize("m", [*SIZES, 100])
    def test_without_correlation_it_is_the_binomial_tail(self, m):
        p = np.linspace(0.01, 0.99, 23)
        half = (m + 1) // 2
        found = expit(label_logit(logit(p), 0.0, m))
        np.testing.assert_allclose(found, betainc(half, half, p), rtol=1e-12)
        k = np.arange(m + 1)
        weight = np.where(2 * k > m, 1.0, np.where(2 * k == m, 0.5, 0.0))
        np.testing.assert_allclose(found, binom.pmf(k, m, p[:, None]) @ weight, rtol=1e-12)

    @pytest.mark.parametrize("m", SIZES)
    @pytest.mark.parametrize("rho", RHOS)
    def test_is_the_upper_tail_with_ties_shared(self, m, rho):
        z = np.linspace(-4, 4, 17)
        k = np.arange(m + 1)
        weight = np.where(2 * k > m, 1.0, np.where(2 * k == m, 0.5, 0.0))
        expected = np.exp(vote_log_pmf(z, rho, m)) @ weight
        np.testing.assert_allclose(expit(label_logit(z, rho, m)), expected, rtol=1e-11)

    @given(logits, rhos, sizes)
    def test_inverse_undoes_the_map(self, z, rho, m):
        label = label_logit([z], rho, m)
        assert reader_logit(label, rho, m)[0] == pytest.approx(z, rel=1e-9, abs=0)

    @given(st.floats(-5000, 5000), rhos, sizes)
    def test_far_tails_keep_their_digits(self, z, rho, m):
        assume(z == 0 or abs(z) > 1e-300)
        vote = reader_logit([z], rho, m)[0]
        assert reader_logit([-z], rho, m)[0] == -vote
        assert abs(vote) <= abs(z)
        assert label_logit([vote], rho, m)[0] == pytest.approx(z, rel=1e-9, abs=0)

    @pytest.mark.parametrize("m", [3, 7, 51])
    def test_the_far_tail_is_the_power_law(self, m):
        # I_P(a, a) -> P^a / (a B(a, a)) for small P.
        a = (m + 1) // 2
        log_constant = math.log(a) + 2 * math.lgamma(a) - math.lgamma(2 * a)
        expected = (-2000 + log_constant) / a
        assert reader_logit([-2000.0], 0.0, m)[0] == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("m", [1, 3, 7, 51, 1001])
    @pytest.mark.parametrize("rho", [0.0, 0.01, 0.5])
    def test_both_ways_are_increasing(self, m, rho):
        z = np.concatenate([np.linspace(-5000, 5000, 2001), np.linspace(-9, 9, 401)])
        z = np.unique(np.concatenate([z, np.linspace(299, 301, 41), [-700, 700]]))
        for function in (label_logit, reader_logit):
            assert (np.diff(function(z, rho, m)) > 0).all()

    @given(logits, st.tuples(rhos, rhos), sizes)
    def test_correlation_brings_reader_and_label_together(self, z, pair, m):
        low, high = sorted(pair)
        softer, sharper = (abs(reader_logit([z], rho, m)[0]) for rho in (low, high))
        assert softer <= sharper * (1 + 1e-9) + 1e-12

    def test_full_correlation_is_nearly_the_identity(self):
        z = np.linspace(-6, 6, 25)
        np.testing.assert_allclose(reader_logit(z, MOST_RHO, 7), z, rtol=0.01)

    @given(logits, rhos, st.integers(1, 25))
    def test_even_panels_are_the_odd_one_below(self, z, rho, half):
        for function in (label_logit, reader_logit):
            np.testing.assert_array_equal(
                function([z], rho, 2 * half), function([z], rho, 2 * half - 1)
            )

    @given(st.floats(-1e300, 1e300), rhos, st.sampled_from([1, 2]))
    def test_one_or_two_readers_change_nothing(self, z, rho, m):
        assert label_logit([z], rho, m)[0] == z
        assert reader_logit([z], rho, m)[0] == z

    def test_each_case_has_its_own_panel(self):
        z, m = np.array([1.0, 2.0, -3.0, 4.0]), np.array([1, 4, 7, 51])
        for function, rho in itertools.product((label_logit, reader_logit), (0.0, 0.3)):
            alone = [function([x], rho, int(k))[0] for x, k in zip(z, m, strict=True)]
            np.testing.assert_allclose(function(z, rho, m), alone, rtol=1e-12)

    def test_two_columns_are_one_logit(self):
        z = np.array([-900.0, -30.0, -1.0, 0.0, 2.0, 400.0])
        for function, rho in itertools.product((label_logit, reader_logit), (0.0, 0.3)):
            both = function(np.column_stack([-z / 2, z / 2]), rho, 7)
            np.testing.assert_allclose(both[:, 1] - both[:, 0], function(z, rho, 7), rtol=1e-12)
            np.testing.assert_allclose(np.exp(both).sum(axis=1), 1, rtol=1e-12)

    @pytest.mark.parametrize("m", [5, 8])
    def test_each_case_of_many_is_solved_as_if_alone(self, m):
        z = np.random.default_rng(0).normal(0, 4, 20_000)
        found = reader_logit(z, 0.1, m)
        np.testing.assert_allclose(found[::4000], reader_logit(z[::4000], 0.1, m), rtol=1e-12)


class TestManyClasses:
    @pytest.mark.parametrize(("n_classes", "m"), [(3, 1), (3, 2), (3, 5), (3, 8), (4, 6), (5, 7)])
    @pytest.mark.parametrize("rho", [0.0, 0.2, 0.9])
    def test_forward_by_enumeration(self, n_classes, m, rho):
        rng = np.random.default_rng(m)
        for p in rng.dirichlet(np.full(n_classes, 0.5), 3):
            found = np.exp(label_logit(np.log([p]), rho, m))[0]
            np.testing.assert_allclose(found, label_by_enumeration(p, rho, m), rtol=1e-11)

    @pytest.mark.validity
    @pytest.mark.parametrize("rho", [0.0, 0.1])
    def test_large_panels_by_simulation(self, rho):
        rng = np.random.default_rng(0)
        p = rng.dirichlet(np.full(10, 5.0))
        draws = 100_000
        share = p if rho == 0 else rng.dirichlet((1 - rho) / rho * p, draws)
        counts = rng.multinomial(51, share, draws)
        # A random number below one breaks ties evenly.
        won = np.bincount((counts + rng.random(counts.shape)).argmax(axis=1), minlength=10) / draws
        label = np.exp(label_logit(np.log([p]), rho, 51))[0]
        assert label.sum() == pytest.approx(1, abs=1e-12)
        assert (np.abs(won - label) < 5 * np.sqrt(label * (1 - label) / draws) + 1e-5).all()

    @pytest.mark.parametrize(("n_classes", "m"), [(3, 3), (3, 4), (4, 7), (6, 12), (10, 51)])
    @pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
    @pytest.mark.parametrize("rho", [0.0, 0.05, 0.5, 0.99])
    def test_inverse_undoes_the_map(self, n_classes, m, spread, rho):
        rng = np.random.default_rng(1)
        z = spread * rng.normal(size=(5 if m > 20 else 20, n_classes))
        vote = reader_logit(z, rho, m)
        np.testing.assert_allclose(np.exp(vote).sum(axis=1), 1)
        wanted = log_softmax(z, axis=1)
        seen = wanted > -250
        np.testing.assert_allclose(label_logit(vote, rho, m)[seen], wanted[seen], atol=1e-7)

    @settings(max_examples=30)
    @given(
        st.lists(st.floats(-40, 40), min_size=3, max_size=5),
        st.sampled_from([0.0, 0.2, 0.8]),
        st.integers(1, 13),
        st.randoms(),
    )
    def test_classes_may_be_permuted(self, z, rho, m, random):
        order = list(range(len(z)))
        random.shuffle(order)
        z = np.array([z])
        for function in (label_logit, reader_logit):
            np.testing.assert_allclose(
                function(z[:, order], rho, m), function(z, rho, m)[:, order], rtol=1e-7, atol=1e-7
            )

    @pytest.mark.parametrize("rho", RHOS)
    def test_huge_logits_are_finite_and_keep_their_order(self, rho):
        rng = np.random.default_rng(2)
        z = np.array([700.0, -700.0, 0.0, 300.0]) + rng.normal(size=(5, 4))
        for function in (label_logit, reader_logit):
            mapped = function(z, rho, 7)
            assert np.isfinite(mapped).all()
            np.testing.assert_array_equal(np.argsort(mapped, axis=1), np.argsort(z, axis=1))

    @pytest.mark.parametrize("rho", [0.0, 0.3])
    def test_a_reader_is_less_sure_than_the_label(self, rho):
        z = np.random.default_rng(2).normal(size=(50, 4))
        reader = np.exp(reader_logit(z, rho, 7)).max(axis=1)
        assert (reader <= softmax(z, axis=1).max(axis=1)).all()

    def test_a_class_out_of_reach_leaves_two(self):
        z = np.array([[0.4, 0.0, -500.0]])
        for function, rho in itertools.product((label_logit, reader_logit), (0.0, 0.3)):
            mapped = function(z, rho, 7)[0]
            assert mapped[0] - mapped[1] == pytest.approx(function([0.4], rho, 7)[0], rel=1e-9)

    def test_each_case_has_its_own_panel(self):
        z = np.random.default_rng(3).normal(size=(4, 3))
        m = np.array([1, 7, 4, 7])
        alone = [reader_logit(z[[i]], 0.1, int(m[i]))[0] for i in range(4)]
        np.testing.assert_allclose(reader_logit(z, 0.1, m), alone, atol=1e-8)


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
    for function in (label_logit, reader_logit, split_probability):
        with pytest.raises(InputError, match=words):
            function([1.0, 2.0], 0.1, n_raters)


@pytest.mark.parametrize("rho", [-0.1, 1.0, np.nan])
def test_bad_correlations(rho):
    for function in (label_logit, reader_logit, split_probability, vote_log_pmf):
        with pytest.raises(InputError, match="rho must lie in"):
            function([1.0], rho, 7)
