"""The panel: its law against enumeration and scipy, the label's tail and inverse, fits and refusals."""

import itertools
import json
import math
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import betainc, expit, log_softmax, logit, softmax
from scipy.stats import betabinom, binom, dirichlet_multinomial, kstest

from scalecal.checks import MAX_RHO, InputError
from scalecal.panel import (
    Panel,
    _Objective,
    count_log_law,
    fit_panel,
    fit_panel_from_summary,
    label_logit,
    panel_range,
    reader_logit,
    split_probability,
    vote_log_pmf,
)
from scalecal.votes import fleiss_kappa, stratum_codes

LARGE = bool(os.environ.get("SCALECAL_SLOW"))
RHOS = [0.0, 1e-6, 0.05, 0.3, 0.8, 0.99]
SIZES = [1, 2, 3, 4, 7, 8, 51]

logits = st.floats(-20, 20)
rhos = st.floats(0, MAX_RHO)
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
        pmf = np.exp(vote_log_pmf([1.0], MAX_RHO, 7))[0]
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
        found = count_log_law(counts, z, rho)
        np.testing.assert_allclose(np.exp(found), law_by_products(counts, p, rho), rtol=1e-11)
        assert np.exp(found).sum() == pytest.approx(1, abs=1e-12)
        if rho:
            scipy = dirichlet_multinomial.logpmf(counts, (1 - rho) / rho * p, m)
            np.testing.assert_allclose(found, scipy, atol=1e-9)

    def test_two_classes_are_the_law_of_k_of_m(self):
        z, k = np.linspace(-3, 3, 8), np.arange(8)
        found = count_log_law(np.column_stack([7 - k, k]), z, 0.2)
        np.testing.assert_allclose(found, vote_log_pmf(z, 0.2, 7)[k, k], rtol=1e-12)

    def test_panels_differ_and_may_be_empty(self):
        votes = np.array([[0, 0], [1, 0], [2, 5]])
        found = count_log_law(votes, np.full(3, 3.0), 0.4)
        assert found[0] == 0
        assert found[1] == pytest.approx(np.log(expit(-3.0)))
        assert found[2] == pytest.approx(vote_log_pmf([3.0], 0.4, 7)[0, 5])


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
        assert reader_logit(label, rho, m)[0] == pytest.approx(z, rel=1e-9, abs=1e-12)

    @given(st.floats(-5000, 5000), rhos, sizes)
    def test_far_tails_keep_their_digits(self, z, rho, m):
        assume(z == 0 or abs(z) > 1e-300)
        vote = reader_logit([z], rho, m)[0]
        assert reader_logit([-z], rho, m)[0] == -vote
        assert abs(vote) <= abs(z)
        assert label_logit([vote], rho, m)[0] == pytest.approx(z, rel=1e-9, abs=1e-12)

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
        np.testing.assert_allclose(reader_logit(z, MAX_RHO, 7), z, rtol=0.01)

    @given(logits, rhos, st.integers(1, 25))
    def test_even_panels_are_the_odd_one_below(self, z, rho, half):
        for function in (label_logit, reader_logit):
            np.testing.assert_array_equal(
                function([z], rho, 2 * half), function([z], rho, 2 * half - 1)
            )

    @given(st.floats(-1e100, 1e100), rhos, st.sampled_from([1, 2]))
    def test_one_or_two_readers_change_nothing(self, z, rho, m):
        assert label_logit([z], rho, m)[0] == z
        assert reader_logit([z], rho, m)[0] == z

    @pytest.mark.parametrize("m", [3, 5, 6, 7, 21])
    def test_the_jury_map_has_an_inverse_far_out(self, m):
        q = np.linspace(-600, 600, 2401)
        np.testing.assert_allclose(label_logit(reader_logit(q, 0.0, m), 0.0, m), q, rtol=1e-9)

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


# Fits


def draw(n, m, rho, *, spread=2.0, seed=0):
    """Logits of the label of a panel of m, votes of one such panel for each case, and its label."""
    rng = np.random.default_rng(seed)
    z = spread * rng.normal(size=n)
    mu = expit(reader_logit(z, rho, m))
    p = rng.beta((1 - rho) / rho * mu, (1 - rho) / rho * (1 - mu)) if rho else mu
    k = rng.binomial(m, p)
    y = (2 * k + (rng.random(n) < 0.5) > m).astype(float)
    return z, y, k.astype(float)


def draw_classes(n, n_classes, m, rho, seed=0):
    rng = np.random.default_rng(seed)
    z = 2.0 * rng.normal(size=(n, n_classes))
    mu = np.exp(reader_logit(z, rho, m))
    urns = np.maximum((1 - rho) / rho * mu, 1e-9)
    votes = np.array([rng.multinomial(m, rng.dirichlet(urn)) for urn in urns])
    y = (votes + 0.5 * rng.random(votes.shape)).argmax(axis=1).astype(float)
    return z, y, votes.astype(float)


def mixed(seed=0):
    """Voted, singly read and labelled cases, panels of several sizes, weights."""
    rng = np.random.default_rng(seed)
    z, y, k = draw(400, 7, 0.2, seed=seed)
    m = np.full(400, 7)
    m[:40] = rng.integers(1, 10, 40)
    k[:40] = rng.binomial(m[:40], expit(0.5 * z[:40]))
    k[100:] = np.nan
    y[rng.random(400) < 0.2] = np.nan
    sizes = np.where(rng.random(400) < 0.6, 7, rng.choice([1, 2, 3, 5, 8, 9], 400))
    return z, y, k, m, sizes, rng.uniform(0.5, 2.0, 400)


def slow_loss(theta, z, y, k, m, sizes, weight, prior_sd=0.3, reference=7):
    """Negative log posterior, case by case from the public functions."""
    a, b, rho = theta[0], np.exp(theta[1]), expit(theta[2])
    prior = np.array([a / prior_sd, theta[1], theta[2] - logit(0.15)])
    loss = 0.5 * prior @ prior
    for i in range(len(z)):
        mu = reader_logit([a + b * z[i]], rho, reference)
        if np.isfinite(k[i]):
            loss -= weight[i] * vote_log_pmf(mu, rho, int(m[i]))[0, int(k[i])]
        elif np.isfinite(y[i]):
            label = label_logit(mu, rho, int(sizes[i]))[0]
            loss += weight[i] * np.logaddexp(0, -label if y[i] else label)
    return loss


def as_objective(z, y, k, m, sizes, weight):
    read = np.isfinite(k)
    counted = np.where(read, k, 0).astype(int)
    return _Objective(z, y, counted, np.where(read, m, 0), sizes, 7, weight, 0.3)


class TestObjective:
    theta = np.array([0.2, -0.3, -1.2])

    def test_by_the_public_functions(self):
        data = mixed()
        objective = as_objective(*data)
        for theta in (np.array([0.0, 0.0, -1.7]), self.theta, np.array([-0.4, 0.5, 1.0])):
            assert objective(theta)[0] == pytest.approx(slow_loss(theta, *data), rel=1e-10)

    @pytest.mark.parametrize("theta", [[0.2, -0.3, -1.2], [0.0, 0.4, -6.0], [-0.3, 0.0, 2.0]])
    def test_gradient_by_differences(self, theta):
        objective = as_objective(*mixed())
        step = 1e-5
        by_differences = [
            (objective(theta + step * e)[0] - objective(theta - step * e)[0]) / (2 * step)
            for e in np.eye(3)
        ]
        np.testing.assert_allclose(
            objective(np.array(theta))[1], by_differences, rtol=1e-6, atol=1e-5
        )

    def test_does_not_depend_on_where_it_was_before(self):
        objective = as_objective(*mixed())
        before = objective(self.theta)
        for theta in ([3.0, 2.0, 4.0], [-3.0, -3.0, -8.0]):
            objective(np.array(theta))
        after = objective(self.theta)
        assert after[0] == pytest.approx(before[0], rel=1e-12)
        np.testing.assert_allclose(after[1], before[1], rtol=1e-8)

    def test_the_fit_is_the_minimum(self):
        z, y, k, m, sizes, weight = mixed(1)
        y = np.where(m > 0, np.nan, y)
        panel = fit_panel(z, y, k, m, panel_size=sizes, sample_weight=weight, interval=False)
        theta = np.array([panel.intercept, np.log(panel.slope), logit(panel.rho)])
        best = slow_loss(theta, z, y, k, m, sizes, weight)
        scale = np.sqrt(np.diag(panel.covariance))
        for e in np.eye(3):
            for side in (-0.1, 0.1):
                there = slow_loss(theta + side * scale * e, z, y, k, m, sizes, weight)
                assert there > best


class TestFit:
    def test_recovers_the_model(self):
        z, y, k = draw(4000, 7, 0.2)
        k[1000:] = np.nan
        panel = fit_panel(z / 0.6 + 0.5, y, k, 7, prior_sd=2)
        assert panel.slope == pytest.approx(0.6, rel=0.1)
        assert panel.intercept == pytest.approx(-0.3, abs=0.1)
        assert panel.rho_low < 0.2 < panel.rho_high
        assert panel.rho_low < panel.rho < panel.rho_high
        assert panel.panel_size == 7
        assert np.all(panel.shift == 0)
        assert panel.covariance.shape == (3, 3)

    def test_labels_that_are_no_majorities_keep_their_own_answer(self):
        """A consensus that says positive more readily than its readers: both answers are right."""
        rng = np.random.default_rng(3)
        z, _, k = draw(6000, 6, 0.2, seed=3)
        y = rng.random(6000) < expit(z + 1)
        panel = fit_panel(z, y, k, 6, prior_sd=2)
        assert expit(panel.label_logit(z)).mean() == pytest.approx(y.mean(), abs=0.005)
        assert expit(panel.reader_logit(z)).mean() == pytest.approx(k.mean() / 6, abs=0.01)
        assert panel.mismatch(z) > 0.05
        again = Panel.from_dict(panel.to_dict())
        np.testing.assert_array_equal(again.reader_logit(z), panel.reader_logit(z))

    def test_panels_of_any_size(self):
        rng = np.random.default_rng(0)
        z, m = 2 * rng.normal(size=3000), rng.integers(1, 10, 3000)
        mu = expit(reader_logit(z, 0.3, 5))
        k = rng.binomial(m, rng.beta(7 / 3 * mu, 7 / 3 * (1 - mu)))
        panel = fit_panel(z, votes=k, n_raters=m, panel_size=5)
        assert panel.rho_low < 0.3 < panel.rho_high
        assert panel.slope == pytest.approx(1, abs=0.1)

    def test_single_reads_beside_labels_of_a_panel(self):
        z, y, k = draw(40_000, 7, 0.1)
        one = np.random.default_rng(1).binomial(1, k / 7).astype(float)
        one[20_000:] = np.nan
        panel = fit_panel(z, y, one, 1, panel_size=7, interval=False)
        assert panel.rho == pytest.approx(0.1, abs=0.05)

    def test_labels_of_different_panels(self):
        z, y, _ = draw(40_000, 9, 0.1)
        mu = reader_logit(z, 0.1, 9)
        three = np.random.default_rng(2).random(40_000) < expit(label_logit(mu, 0.1, 3))
        sizes = np.where(np.arange(40_000) % 2, 9, 3)
        panel = fit_panel(z, np.where(sizes == 9, y, three), panel_size=sizes, interval=False)
        assert panel.rho == pytest.approx(0.1, abs=0.05)

    def test_a_voted_case_enters_by_its_votes_only(self):
        z, y, k = draw(300, 7, 0.2)
        k[100:] = np.nan
        other = y.copy()
        other[:2] = 1 - other[:2]
        other[60:100] = np.nan
        one, two = (fit_panel(z, labels, k, 7, interval=False) for labels in (y, other))
        np.testing.assert_array_equal(two.reader_logit(z), one.reader_logit(z))
        assert two.rho == one.rho

    def test_the_commonest_panel_is_the_reference(self):
        z, y, k = draw(300, 7, 0.2)
        m = np.where(np.arange(300) % 4, 7, 9)
        assert fit_panel(z, y, np.minimum(k, m), m, interval=False).panel_size == 7
        assert fit_panel(z, votes=np.minimum(k, m), n_raters=m, interval=False).panel_size == 7
        assert fit_panel(z, y, k, 7, panel_size=5, interval=False).panel_size == 5

    def test_weights_count_cases(self):
        z, y, k, m, sizes, _ = mixed()
        times = np.random.default_rng(0).integers(0, 4, len(z))
        often = np.repeat(np.arange(len(z)), times)
        repeated = fit_panel(z[often], y[often], k[often], m[often], panel_size=sizes[often])
        weighted = fit_panel(z, y, k, m, panel_size=sizes, sample_weight=times)
        for name in ("intercept", "slope", "rho", "rho_low", "rho_high"):
            assert getattr(weighted, name) == pytest.approx(getattr(repeated, name), abs=2e-4)

    def test_two_columns_of_counts_are_positive_votes_of_readers(self):
        z, y, k = draw(300, 5, 0.2)
        k[100:] = np.nan
        both = np.column_stack([5 - k, k])
        both[200:] = 0
        one = fit_panel(z, y, k, 5, interval=False)
        assert one.to_dict() == fit_panel(z, y, both, panel_size=5, interval=False).to_dict()

    def test_unanimous_readers_reach_the_largest_correlation(self):
        z = np.random.default_rng(0).normal(size=2000)
        y = (np.random.default_rng(1).random(2000) < expit(z)).astype(float)
        panel = fit_panel(z, votes=7 * y, n_raters=7)
        assert panel.rho > 0.97
        assert panel.rho_high == MAX_RHO

    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
    @pytest.mark.parametrize("agreed", [True, False])
    def test_any_logits_can_be_fitted(self, scale, agreed):
        base = np.random.default_rng(0).normal(size=200)
        y = (base > 0).astype(float)
        k = np.where(np.arange(200) < 50, 7 * y if agreed else 1 + 4 * y, np.nan)
        panel = fit_panel(scale * base, y, k, 7)
        assert 0 <= panel.rho_low <= panel.rho <= panel.rho_high <= MAX_RHO
        assert np.isfinite(panel.reader_logit(scale * base)).all()

    @pytest.mark.validity
    @pytest.mark.parametrize(("rho", "m"), [(0.05, 7), (0.2, 7), (0.5, 3)])
    def test_the_interval_covers(self, rho, m):
        repeats = 1000 if LARGE else 40
        hits = 0
        for seed in range(repeats):
            z, y, k = draw(400, m, rho, seed=seed)
            k[100:] = np.nan
            panel = fit_panel(1.5 * z, y, k, m)
            hits += panel.rho_low <= rho <= panel.rho_high
        if LARGE:
            assert 0.93 <= hits / repeats <= 0.97
        else:
            assert binom.sf(hits, repeats, 0.93) < 1 - 1e-3
            assert hits / repeats > 0.85

    @pytest.mark.validity
    @pytest.mark.parametrize(("unexplained", "most"), [(0.0, 0.006), (0.3, 0.004)])
    def test_few_votes_are_enough(self, unexplained, most):
        from scalecal.datasets import simulate

        excess = []
        for seed in range(200 if LARGE else 20):
            data = simulate(1267, auc=0.9, unexplained=unexplained, n_train=0, seed=seed)
            z = 1.6 * logit(data.label_probability)  # all there is to know, over-confident
            k = np.where(np.arange(267) < 50, data.votes[:267], np.nan)
            panel = fit_panel(z[:267], data.y[:267], k, 7, interval=False)
            truth, reader = data.expected_vote_probability[267:], panel.reader_logit(z[267:])
            loss = truth * np.logaddexp(0, -reader) + (1 - truth) * np.logaddexp(0, reader)
            least = -truth * np.log(truth) - (1 - truth) * np.log1p(-truth)
            excess.append((loss - least).mean())
        assert np.mean(excess) < most

    @pytest.mark.validity
    def test_counts_are_uniform_in_their_law(self):
        z, y, k = draw(6000, 7, 0.2)
        known = np.where(np.arange(3000) < 1000, k[:3000], np.nan)
        panel = fit_panel(z[:3000], y[:3000], known, 7, interval=False)
        law = np.exp(vote_log_pmf(panel.reader_logit(z[3000:]), panel.rho, 7))
        seen = k[3000:].astype(int)[:, None]
        below = np.take_along_axis(np.cumsum(law, axis=1) - law, seen, axis=1)
        at = np.take_along_axis(law, seen, axis=1)
        u = below + np.random.default_rng(0).random((3000, 1)) * at
        assert kstest(u[:, 0], "uniform").pvalue > 0.01
        binomial = np.exp(vote_log_pmf(panel.reader_logit(z[3000:]), 0.0, 7))
        below = np.take_along_axis(np.cumsum(binomial, axis=1) - binomial, seen, axis=1)
        u = below + np.random.default_rng(0).random((3000, 1)) * np.take_along_axis(
            binomial, seen, axis=1
        )
        assert kstest(u[:, 0], "uniform").pvalue < 1e-6


class TestRefusals:
    def test_labels_of_one_panel_give_a_range(self):
        z, y, _ = draw(500, 7, 0.2)
        low, high = panel_range(z, y, 7)
        with pytest.raises(InputError, match=r"labels of one panel size.*panel_range") as error:
            fit_panel(z, y, panel_size=7)
        assert f"a rho of {low.rho:.2f} to {high.rho:.2f}" in str(error.value)
        with pytest.raises(InputError, match="labels of one panel size"):
            fit_panel(z, y, n_raters=7)
        sizes = np.where(np.arange(500) % 2, 7, 8)  # the same law of the label
        with pytest.raises(InputError, match="labels of one panel size"):
            fit_panel(z, y, panel_size=sizes)
        weight = np.zeros(500)
        weight[100:] = 1
        votes = np.where(np.arange(500) < 100, y, np.nan)
        with pytest.raises(InputError, match="labels of one panel size"):
            fit_panel(z, y, votes, 7, panel_size=7, sample_weight=weight)

    @pytest.mark.parametrize("size", [1, 2])
    def test_labels_of_one_or_two(self, size):
        z, y, _ = draw(100, 7, 0.2)
        with pytest.raises(InputError, match="labels of one or two readers"):
            fit_panel(z, y, panel_size=size)
        single = np.where(np.arange(100) < 50, y, np.nan)
        with pytest.raises(InputError, match="labels of one or two readers"):
            fit_panel(z, y, single, 1, panel_size=size)

    def test_single_reads_alone(self):
        z, y, _ = draw(100, 7, 0.2)
        with pytest.raises(InputError, match="single reads"):
            fit_panel(z, votes=y, n_raters=1)

    def test_labels_of_three_classes(self):
        z, y, _ = draw_classes(100, 3, 4, 0.2)
        with pytest.raises(InputError, match="labels of one panel size"):
            fit_panel(z, y, panel_size=4)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"y": [0, 2, 1]}, r"y must be classes 0 .. 1"),
            ({"y": [0, 1]}, r"y must have one label per case"),
            ({"votes": [1, 8, 2]}, "votes must not exceed n_raters, got 8 of 7"),
            ({"votes": [1, 1.5, 2]}, "whole numbers"),
            ({"votes": [1, 2]}, r"votes must have one row per case .* \(3, 2\), got \(2, 2\)"),
            ({"n_raters": None}, "votes given as one count per case needs n_raters"),
            ({"n_raters": [7, 7]}, "n_raters must be one number or one per case"),
            ({"votes": [1, 2, np.nan], "n_raters": [7, 5, 7]}, "panel_size.*is needed"),
            ({"votes": [1, 0, np.nan], "n_raters": 1}, "panel_size.*is needed"),
            ({"votes": None, "n_raters": None}, "panel_size.*is needed"),
            ({"votes": None, "y": None}, "nothing to fit"),
            ({"panel_size": 0}, "panel_size must be whole numbers of at least 1"),
            ({"prior_sd": 0.0}, "prior_sd must be a number above 0"),
            ({"sample_weight": [1, -1, 1]}, "sample_weight must not be negative"),
            ({"logits": np.zeros((3, 2))}, r"logits of two classes must be \(n,\)"),
            ({"logits": np.zeros((3, 3))}, r"votes must have .* one column per class, \(3, 3\)"),
        ],
    )
    def test_bad_input(self, change, words):
        given = {"logits": [0.0, 1.0, 2.0], "y": [0, 1, 1], "votes": [1, 2, 6], "n_raters": 7}
        with pytest.raises(InputError, match=words):
            fit_panel(**{**given, **change})

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"kappa": 1.2}, "kappa must lie in"),
            ({"kappa": np.nan}, "kappa must lie in"),
            ({"vote_share": 0.0}, "vote_share must lie between 0 and 1"),
            ({"vote_share": [0.5, 0.5]}, "vote_share must be one number"),
            ({"y": [np.nan] * 3}, "y has no label"),
            ({"logits": np.zeros((3, 3)), "vote_share": 0.4}, "one entry for each of 3 classes"),
            ({"logits": np.zeros((3, 3)), "vote_share": [0.4] * 3}, "must add up to 1"),
        ],
    )
    def test_bad_summaries(self, change, words):
        given = {"logits": [0.0, 1.0, 2.0], "y": [0, 1, 1], "n_raters": 7, "kappa": 0.4}
        with pytest.raises(InputError, match=words):
            fit_panel_from_summary(**{**given, **change})


class TestSummary:
    def test_two_readers_label_as_one_votes(self):
        """T_2 is the identity; kappa still fixes how far two votes go together."""
        z, y, _ = draw(500, 3, 0.2)
        panel = fit_panel_from_summary(z, y, 2, 0.6)
        np.testing.assert_allclose(panel.reader_logit(z), panel.label_logit(z))
        assert 0 < panel.rho < 1

    @pytest.mark.parametrize(("m", "rho"), [(7, 0.05), (7, 0.3), (5, 0.5), (4, 0.2)])
    def test_recovers_the_correlation(self, m, rho):
        z, y, k = draw(8000, m, rho)
        kappa = fleiss_kappa(k, m)
        for share in (None, k.mean() / m):
            panel = fit_panel_from_summary(1.7 * z, y, m, kappa, share)
            assert panel.rho == pytest.approx(rho, abs=0.04)
            assert panel.slope == pytest.approx(1 / 1.7, rel=0.1)
            assert panel.note.startswith("" if share is None else "the majority of the predicted")
            assert "rho" not in panel.note

    def test_solves_its_equations(self):
        z, y, _ = draw(500, 7, 0.2)
        weight = np.random.default_rng(0).uniform(0, 2, 500)
        panel = fit_panel_from_summary(z, y, 7, 0.45, 0.4, sample_weight=weight, max_mismatch=1)
        p = expit(panel.reader_logit(z))
        mean = np.average(p, weights=weight)
        assert mean == pytest.approx(0.4, abs=1e-9)
        variance = np.average((p - mean) ** 2, weights=weight)
        inside = np.average(p * (1 - p), weights=weight)
        assert variance + panel.rho * inside == pytest.approx(0.45 * mean * (1 - mean), abs=1e-7)
        assert panel.shift != 0
        assert panel.mismatch(z) > 0
        labels_only = fit_panel_from_summary(z, y, 7, 0.45, sample_weight=weight)
        np.testing.assert_allclose(panel.label_logit(z), labels_only.label_logit(z))
        assert labels_only.mismatch(z) == pytest.approx(0, abs=1e-12)

    def test_solves_its_equations_for_three_classes(self):
        z, y, _ = draw_classes(400, 3, 5, 0.2)
        share = [0.5, 0.3, 0.2]
        panel = fit_panel_from_summary(z, y, 5, 0.4, share, max_mismatch=1)
        p = np.exp(panel.reader_logit(z))
        np.testing.assert_allclose(p.mean(axis=0), share, atol=1e-9)
        within = 1 - (p**2).sum(axis=1).mean()
        explained = p.var(axis=0).sum()
        chance = (p.mean(axis=0) ** 2).sum()
        assert explained + panel.rho * within == pytest.approx(0.4 * (1 - chance), abs=1e-6)
        assert panel.shift[0] == 0
        assert panel.mismatch(z) > 0

    def test_says_where_kappa_is_out_of_reach(self):
        z, y, _ = draw(500, 7, 0.2)
        low = fit_panel_from_summary(z, y, 7, -0.2)
        assert low.rho == 0
        assert "rho is 0" in low.note
        high = fit_panel_from_summary(z, y, 7, 1.0)
        assert high.rho == MAX_RHO
        assert "higher than" in high.note

    def test_labels_of_panels_of_different_sizes(self):
        z, y, _ = draw(20_000, 9, 0.2)
        mu = reader_logit(z, 0.2, 9)
        three = np.random.default_rng(2).random(len(z)) < expit(label_logit(mu, 0.2, 3))
        sizes = np.where(np.arange(len(z)) % 3, 9, 3)
        mean = expit(mu).mean()
        kappa = (expit(mu).var() + 0.2 * (expit(mu) * expit(-mu)).mean()) / (mean * (1 - mean))
        panel = fit_panel_from_summary(z, np.where(sizes == 9, y, three), sizes, kappa)
        assert panel.panel_size == 9
        assert panel.slope == pytest.approx(1, abs=0.05)
        assert panel.rho == pytest.approx(0.2, abs=0.03)

    def test_unknown_labels_are_left_out(self):
        z, y, _ = draw(300, 7, 0.2)
        some = np.where(np.arange(300) < 200, y, np.nan)
        one = fit_panel_from_summary(z, some, 7, 0.4, 0.45)
        assert one.to_dict() == fit_panel_from_summary(z[:200], y[:200], 7, 0.4, 0.45).to_dict()

    def test_the_range_has_both_ends(self):
        z, y, _ = draw(500, 7, 0.2)
        low, high = panel_range(z, y, 7)
        assert low.rho < high.rho
        assert low.note.startswith("assumes a kappa of 0.2")
        assert high.note == "assumes a kappa of 0.8"
        assert high.rho == fit_panel_from_summary(z, y, 7, 0.8).rho
        assert panel_range(z, y, 7, (0.5, 0.5))[0].rho == pytest.approx(
            fit_panel_from_summary(z, y, 7, 0.5).rho
        )


class TestSeveralClasses:
    def test_recovers_the_model(self):
        z, y, votes = draw_classes(1200, 3, 5, 0.2)
        votes[300:] = np.nan
        panel = fit_panel(1.6 * z + [0.3, 0, 0], y, votes, prior_sd=2)
        assert panel.slope == pytest.approx(1 / 1.6, rel=0.1)
        assert panel.intercept[0] - panel.intercept[1] == pytest.approx(-0.19, abs=0.2)
        assert panel.rho_low < 0.2 < panel.rho_high
        assert panel.rho_low < panel.rho < panel.rho_high

    def test_votes_alone_make_their_labels(self):
        z, _, votes = draw_classes(400, 3, 5, 0.3)
        panel = fit_panel(z, votes=votes)
        assert panel.rho_low < 0.3 < panel.rho_high
        assert panel.slope == pytest.approx(1, abs=0.25)

    def test_rho_is_the_best_of_a_grid(self):
        z, y, votes = draw_classes(300, 3, 5, 0.2)
        votes[60:] = 0
        panel = fit_panel(z, y, votes, panel_size=5, interval=False)
        assert np.isnan(panel.rho_low)
        label = panel.label_logit(z[:60])

        def loss(rho):
            seen = count_log_law(votes[:60], reader_logit(label, rho, 5), rho).sum()
            return 0.5 * (logit(rho) - logit(0.15)) ** 2 - seen

        best = loss(panel.rho)
        assert all(loss(rho) >= best for rho in np.linspace(0.02, 0.6, 30))

    def test_labels_of_other_panels_tell_of_rho(self):
        z, y, _ = draw_classes(6000, 3, 7, 0.1)
        mu = reader_logit(z, 0.1, 7)
        law = np.exp(label_logit(mu, 0.1, 3))
        three = (np.random.default_rng(1).random((6000, 1)) > np.cumsum(law, axis=1)).sum(axis=1)
        sizes = np.where(np.arange(6000) % 3, 7, 3)
        panel = fit_panel(z, np.where(sizes == 7, y, three), panel_size=sizes)
        assert panel.panel_size == 7
        assert panel.rho_low < 0.1 < panel.rho_high

    def test_needs_labels_of_its_panel(self):
        z, _, votes = draw_classes(50, 3, 5, 0.3)
        with pytest.raises(InputError, match="no case has a label"):
            fit_panel(z, votes=votes, panel_size=7)

    def test_recovers_the_correlation_from_kappa(self):
        z, y, votes = draw_classes(1500, 3, 5, 0.2)
        share = votes.sum(axis=0) / votes.sum()
        panel = fit_panel_from_summary(z, y, 5, fleiss_kappa(votes), share)
        assert panel.rho == pytest.approx(0.2, abs=0.05)


class TestPanel:
    two = Panel(intercept=0.1, slope=0.8, rho=0.2, panel_size=7)
    three = Panel(
        intercept=np.array([0.1, 0.0, -0.2]),
        slope=0.8,
        rho=0.2,
        panel_size=5,
        shift=np.array([0.0, 0.3, 0.1]),
    )
    z = np.random.default_rng(0).normal(size=(6, 3))

    def test_the_two_answers_belong_to_one_law(self):
        z = self.z[:, 0]
        reader = self.two.reader_logit(z)
        law = np.exp(vote_log_pmf(reader, 0.2, 7))
        np.testing.assert_allclose(law @ np.arange(8) / 7, expit(self.two.reader_logit(z)))
        np.testing.assert_allclose(law[:, 4:].sum(axis=1), expit(self.two.label_logit(z)))
        np.testing.assert_allclose(split_probability(reader, 0.2, 7), law[:, 3:5].sum(axis=1))
        assert self.two.mismatch(z) == pytest.approx(0, abs=1e-12)
        assert split_probability(reader, 0.2, np.arange(1, 7)).shape == (6,)

    def test_several_classes(self):
        label, reader = self.three.label_logit(self.z), self.three.reader_logit(self.z)
        np.testing.assert_allclose(np.exp(label).sum(axis=1), 1)
        np.testing.assert_allclose(np.exp(reader).sum(axis=1), 1)
        law = np.exp(vote_log_pmf(reader, 0.2, 5))
        assert law.shape == (6, 3, 6)
        np.testing.assert_allclose(law @ np.arange(6) / 5, np.exp(reader))
        split = split_probability(reader, 0.2, 5)
        np.testing.assert_allclose(split, 1 - law[:, :, 4:].sum(axis=(1, 2)))
        assert self.three.mismatch(self.z) > 0

    def test_logits_must_be_those_of_the_fit(self):
        with pytest.raises(InputError, match=r"logits must have the shape \(n, 3\), got \(6,\)"):
            self.three.label_logit(self.z[:, 0])
        with pytest.raises(InputError, match=r"logits must have the shape \(n\), got \(6, 3\)"):
            self.two.reader_logit(self.z)

    def test_goes_through_json(self):
        z, y, k = draw(200, 7, 0.2)
        for panel, at in ((fit_panel(z, y, k, 7), z), (self.two, z), (self.three, self.z)):
            again = Panel.from_dict(json.loads(json.dumps(panel.to_dict())))
            np.testing.assert_array_equal(again.reader_logit(at), panel.reader_logit(at))
            assert again.to_dict() == panel.to_dict()

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"rho": 1.5}, r"<= 0.99 - at `\$.rho`"),
            ({"rho": "some"}, r"got `str` - at `\$.rho`"),
            ({"slope": float("nan")}, r"> 0.0 - at `\$.slope`"),
            ({"slope": -1.0}, r"> 0.0 - at `\$.slope`"),
            ({"voted": [0.0, -1.0]}, r"> 0.0 - at `\$.voted"),
            ({"intercept": [0.0, float("inf"), 0.0]}, "intercept"),
            ({"intercept": [[0.0]]}, r"at `\$.intercept"),
            ({"shift": [0.0, 0.1]}, "shift has the shape"),
            ({"covariance": [[1.0]]}, r"at `\$.covariance"),
            ({"panel_size": 2.5}, r"at `\$.panel_size`"),
            ({"panel_size": 0}, r">= 1 - at `\$.panel_size`"),
            ({"rho_low": "low"}, r"at `\$.rho_low`"),
            ({"extra": 1}, "unknown field `extra`"),
        ],
    )
    def test_damaged(self, change, words):
        with pytest.raises(InputError, match=words):
            Panel.from_dict({**self.three.to_dict(), **change})
        with pytest.raises(InputError, match="missing required field `intercept`"):
            Panel.from_dict({})

    def test_an_unknown_correlation_is_stored_as_none(self):
        stored = replace(self.two, rho=float("nan")).to_dict()
        assert stored["rho"] is None
        assert not Panel.from_dict(stored).knows_readers


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"kappa": "high"}, "kappa must lie in"),
        ({"kappa": [0.4, 0.5]}, "kappa must lie in"),
        ({"kappa": np.nan}, "kappa must lie in"),
        ({"kappa": 0.4, "vote_share": np.nan}, "vote_share must lie between 0 and 1"),
    ],
)
def test_published_numbers_must_be_numbers(told, message):
    with pytest.raises(InputError, match=message):
        fit_panel_from_summary([-1.0, 1.0], [0, 1], 5, **told)


class TestGroups:
    """The interval of rho where cases of one patient are alike."""

    def test_cases_of_their_own_are_no_groups(self):
        z, _, k = draw(300, 5, 0.3)
        alone = fit_panel(z, votes=k, n_raters=5)
        same = fit_panel(z, votes=k, n_raters=5, groups=np.arange(300))
        assert (alone.rho_low, alone.rho_high) == (same.rho_low, same.rho_high)

    def test_repeated_cases_are_worth_as_many_as_there_are(self):
        """Every case eight times, as a group: the interval is about that of one each."""
        z, _, k = draw(150, 5, 0.3)
        once = fit_panel(z, votes=k, n_raters=5)
        often = {"votes": np.repeat(k, 8), "n_raters": 5}
        blind = fit_panel(np.repeat(z, 8), **often)
        grouped = fit_panel(np.repeat(z, 8), **often, groups=np.repeat(np.arange(150), 8))
        width, naive, own = (p.rho_high - p.rho_low for p in (once, blind, grouped))
        assert naive < 0.5 * width
        assert own == pytest.approx(width, rel=0.35)
        assert grouped.rho == blind.rho

    def test_few_groups_have_no_interval(self):
        z, _, k = draw(300, 5, 0.3)
        panel = fit_panel(z, votes=k, n_raters=5, groups=np.arange(300) % 7)
        assert np.isnan(panel.rho_low)
        assert np.isnan(panel.rho_high)

    def test_three_classes(self):
        z, y, counts = draw_classes(200, 3, 5, 0.3)
        many = [np.repeat(part, 6, axis=0) for part in (z, y, counts)]
        group = np.repeat(np.arange(200), 6)
        blind, grouped = (
            fit_panel(many[0], many[1], many[2], groups=own, panel_size=5) for own in (None, group)
        )
        once = fit_panel(z, y, counts, panel_size=5)
        own, width = (p.rho_high - p.rho_low for p in (grouped, once))
        assert blind.rho_high - blind.rho_low < 0.6 * own
        assert own == pytest.approx(width, rel=0.35)

    def test_groups_must_be_as_many_as_cases(self):
        with pytest.raises(ValueError, match="one value per case"):
            fit_panel(np.zeros(4), votes=[1, 2, 0, 1], n_raters=3, groups=[1, 2])
