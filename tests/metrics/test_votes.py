from __future__ import annotations

import itertools
from dataclasses import replace
from math import exp, lgamma, log

import numpy as np
import pytest

from scalecal.checks import InputError
from scalecal.metrics import (
    METRICS,
    auc,
    count_log_score,
    dist_ce,
    ece,
    ent_ce,
    split_auc,
    split_ece,
    vote_error,
    vote_nll,
)
from scalecal.metrics.arguments import Sample
from scalecal.metrics.vote_scores import split_floor
from scalecal.votes import strata
from tests.metrics import references as slow

RATERS = np.array([7, 3, 1, 5, 7, 2])
VOTES = np.array([4, 3, 0, 1, 7, 1])
PROBS = np.array([0.5, 0.9, 0.0, 0.3, 1.0, 0.6])


def _loop(term, least=1):
    kept = [i for i in range(len(VOTES)) if RATERS[i] >= least]
    return np.mean([term(VOTES[i] / RATERS[i], RATERS[i], PROBS[i]) for i in kept])


def _entropy_term(f, m, p):
    corrected = slow.entropy([f, 1 - f]) + (int(f > 0) + int(f < 1) - 1) / (2 * m)
    return abs(slow.entropy([p, 1 - p]) - corrected)


def _nll_term(f, _, p):
    return -sum(s * log(q) for s, q in ((f, p), (1 - f, 1 - p)) if s > 0)


@pytest.mark.parametrize(
    ("metric", "term", "least"),
    [
        (dist_ce, lambda f, _, p: abs(p - f), 1),
        (ent_ce, _entropy_term, 1),
        (vote_nll, _nll_term, 1),
        (vote_error, lambda f, m, p: (p - f) ** 2 - f * (1 - f) / (m - 1), 2),
    ],
)
def test_two_classes_against_a_loop(metric, term, least):
    expected = _loop(term, least)
    assert metric(VOTES, PROBS, n_raters=RATERS) == pytest.approx(expected)
    counts = np.column_stack([RATERS - VOTES, VOTES])
    assert metric(counts, np.column_stack([1 - PROBS, PROBS])) == pytest.approx(expected)
    # A case without votes changes nothing.
    more = metric(np.append(VOTES, 0), np.append(PROBS, 0.4), n_raters=np.append(RATERS, 0))
    assert more == pytest.approx(expected)


def test_more_classes_against_a_loop(rng):
    p = rng.dirichlet(np.ones(3), 20)
    v = np.array([rng.multinomial(5, row) for row in p])
    f = v / 5
    assert dist_ce(v, p) == pytest.approx(np.abs(p - f).sum(axis=1).mean() / 2)
    assert vote_nll(v, p) == pytest.approx(-(f * np.log(p)).sum(axis=1).mean())
    terms = ((p - f) ** 2 - f * (1 - f) / 4).sum(axis=1)
    assert vote_error(v, p) == pytest.approx(terms.mean())
    gaps = [
        abs(slow.entropy(a) - slow.entropy(b) - ((b > 0).sum() - 1) / 10)
        for a, b in zip(p, f, strict=True)
    ]
    assert ent_ce(v, p) == pytest.approx(np.mean(gaps))


@pytest.mark.parametrize(
    "metric", [dist_ce, ent_ce, vote_nll, vote_error, count_log_score, split_auc, split_ece]
)
def test_whole_weights_are_copies(metric, rng):
    w = rng.integers(1, 4, len(VOTES))
    copies = metric(np.repeat(VOTES, w), np.repeat(PROBS, w), n_raters=np.repeat(RATERS, w))
    assert metric(VOTES, PROBS, n_raters=RATERS, sample_weight=w) == pytest.approx(copies)


def floor(name, p, m):
    """What the true vote probabilities would show on average, from a metric's record."""
    p = np.asarray(p, dtype=float)
    votes = np.zeros((len(p), 2 if p.ndim == 1 else p.shape[1]), dtype=int)
    votes[:, 0] = m
    return METRICS[name].expected(Sample(np.zeros(0), p, votes=votes))


def test_nothing_to_compare_with_is_nan():
    assert np.isnan(dist_ce([0], [0.5], n_raters=0))
    assert np.isnan(vote_error([1], [0.5], n_raters=1))
    assert np.isnan(floor("dist_ce", [0.5], 0))
    assert np.isnan(count_log_score([0], [0.5], n_raters=0))
    for metric in (split_auc, split_ece):
        assert np.isnan(metric([1], [0.5], n_raters=1))
    assert np.isnan(split_auc([3, 4], [0.5, 0.6], n_raters=7))  # both split: nothing to rank


def test_classes_must_match():
    with pytest.raises(InputError, match="votes have 3 classes but probs have 2"):
        dist_ce([[1, 2, 3]], [[0.5, 0.5]])
    with pytest.raises(InputError, match="n_raters"):
        dist_ce([1], [0.5])


@pytest.mark.parametrize("m", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("p", [0.0, 0.03, 0.5, 0.9, 1.0])
def test_floors_of_two_classes_against_enumeration(m, p):
    def value(metric):
        return lambda v: metric([v], [p], n_raters=m)

    for name, metric in (("dist_ce", dist_ce), ("ent_ce", ent_ce), ("vote_nll", vote_nll)):
        expected = slow.expected_over_votes(value(metric), p, m)
        assert floor(name, [p], m) == pytest.approx(expected, abs=1e-12)
    if m > 1:
        assert slow.expected_over_votes(value(vote_error), p, m) == pytest.approx(0, abs=1e-12)


def test_floors_of_more_classes_against_simulation(rng):
    p = rng.dirichlet(np.ones(4), 30)
    m = rng.integers(2, 8, 30)
    draws = [rng.multinomial(m, p) for _ in range(2000)]
    for name, metric in (("dist_ce", dist_ce), ("vote_nll", vote_nll)):
        found = [metric(v, p) for v in draws]
        error = np.std(found) / np.sqrt(len(found))
        assert floor(name, p, m) == pytest.approx(np.mean(found), abs=4 * error)
    found = [ent_ce(v, p) for v in draws]
    # The floor itself is drawn, from a hundred panels.
    assert floor("ent_ce", p, m) == pytest.approx(np.mean(found), abs=6 * np.std(found) / 10)


def test_floors_take_weights():
    both = Sample(np.zeros(0), np.array([0.5, 0.2]), np.array([2.0, 1.0]), np.array([[3, 0]] * 2))
    one, two = (floor("dist_ce", [p], 3) for p in (0.5, 0.2))
    assert METRICS["dist_ce"].expected(both) == pytest.approx((2 * one + two) / 3)


def test_the_floor_of_splits_is_what_the_true_law_shows(rng):
    mean = rng.uniform(0.05, 0.95, 150)
    m = rng.integers(0, 8, 150)
    seen = [
        split_ece(rng.binomial(m, rng.beta(3 * mean, 3 * (1 - mean))), mean, n_raters=m, rho=0.25)
        for _ in range(600)
    ]
    panels = Sample(np.zeros(0), mean, votes=np.column_stack([m, 0 * m]), rho=0.25)
    expected = split_floor(panels)
    assert expected == pytest.approx(np.mean(seen), abs=4 * np.std(seen) / np.sqrt(600))
    assert split_floor(replace(panels, weights=np.full(150, 2.0))) < expected
    assert np.isnan(split_floor(panels.take(m == 1)))


def dirichlet_multinomial(v, p, rho):
    """Probability of counts by its textbook formula: gamma functions of concentrations."""
    alpha = [q * (1 - rho) / rho for q in p]
    m = sum(v)
    log_p = lgamma(m + 1) + lgamma(sum(alpha)) - lgamma(m + sum(alpha))
    for k, a in zip(v, alpha, strict=True):
        log_p += lgamma(k + a) - lgamma(a) - lgamma(k + 1)
    return exp(log_p)


def panels(m, n_classes):
    """All ways in which m readers can vote."""
    return [v for v in itertools.product(range(m + 1), repeat=n_classes) if sum(v) == m]


@pytest.mark.parametrize("rho", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_counts_and_splits_against_enumeration(rng, rho, n_classes):
    p = rng.dirichlet(np.ones(n_classes), 25)
    m = rng.integers(1, 8, 25)
    v = rng.multinomial(m, rng.dirichlet(np.ones(n_classes), 25))
    scores = [-log(dirichlet_multinomial(a, b, rho)) for a, b in zip(v.tolist(), p, strict=True)]
    assert count_log_score(v, p, rho=rho) == pytest.approx(np.mean(scores), rel=1e-9)
    chance, split = [], []
    for i in np.flatnonzero(m >= 2):
        every = panels(int(m[i]), n_classes)
        law = [dirichlet_multinomial(w, p[i], rho) for w in every]
        assert sum(law) == pytest.approx(1.0)
        low = strata(every) == "low"
        chance.append(sum(itertools.compress(law, low)))
        split.append(strata([v[i]])[0] == "low")
    assert split_auc(v, p, rho=rho) == pytest.approx(auc(split, chance))
    assert split_ece(v, p, rho=rho) == pytest.approx(ece(split, chance))
    assert split_ece(v, p, rho=rho, n_bins=1) == pytest.approx(
        abs(np.mean(chance) - np.mean(split))
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_independent_votes_are_multinomial_and_the_limit_of_small_rho(rng, n_classes):
    from scipy.stats import multinomial

    p = rng.dirichlet(np.ones(n_classes), 40)
    m = rng.integers(1, 9, 40)
    v = rng.multinomial(m, p)
    expected = -multinomial.logpmf(v, m, p).mean()
    assert count_log_score(v, p) == pytest.approx(expected, rel=1e-12)
    for metric in (count_log_score, split_auc, split_ece):
        assert metric(v, p, rho=1e-13) == pytest.approx(metric(v, p), abs=1e-9)


def test_one_reader_makes_the_count_score_the_vote_nll(rng):
    p = rng.random(50)
    v = rng.binomial(1, p)
    for rho in (0.0, 0.5):
        assert count_log_score(v, p, n_raters=1, rho=rho) == pytest.approx(
            vote_nll(v, p, n_raters=1)
        )


def test_sure_probabilities_have_finite_count_scores():
    for rho in (0.0, 0.4):
        assert np.isfinite(count_log_score([0, 7, 3], [1.0, 0.0, 0.0], n_raters=7, rho=rho))
        assert np.isfinite(split_ece([0, 7, 3], [1.0, 0.0, 0.0], n_raters=7, rho=rho))


@pytest.mark.parametrize("metric", [count_log_score, split_auc, split_ece])
@pytest.mark.parametrize("rho", [-0.1, 1.0, float("nan")])
def test_rho_must_lie_in_its_range(metric, rho):
    with pytest.raises(InputError, match="rho must lie in"):
        metric([1, 2], [0.5, 0.5], n_raters=3, rho=rho)


def test_the_true_law_scores_best(rng):
    """Votes with a correlation: the law that has it beats those that have more or less of it."""
    mean = rng.uniform(0.1, 0.9, 4000)
    votes = rng.binomial(7, rng.beta(mean * 3, (1 - mean) * 3))  # rho = 1 / 4
    scores = {
        rho: count_log_score(votes, mean, n_raters=7, rho=rho) for rho in (0.0, 0.1, 0.25, 0.5)
    }
    assert min(scores, key=scores.get) == 0.25
    errors = {rho: split_ece(votes, mean, n_raters=7, rho=rho) for rho in (0.0, 0.25, 0.7)}
    assert min(errors, key=errors.get) == 0.25
