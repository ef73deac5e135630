from __future__ import annotations

from math import log

import numpy as np
import pytest

from scalecal.checks import InputError
from scalecal.metrics import dist_ce, ent_ce, vote_error, vote_floor, vote_nll
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


@pytest.mark.parametrize("metric", [dist_ce, ent_ce, vote_nll, vote_error])
def test_whole_weights_are_copies(metric, rng):
    w = rng.integers(1, 4, len(VOTES))
    copies = metric(np.repeat(VOTES, w), np.repeat(PROBS, w), n_raters=np.repeat(RATERS, w))
    assert metric(VOTES, PROBS, n_raters=RATERS, sample_weight=w) == pytest.approx(copies)


def test_nothing_to_compare_with_is_nan():
    assert np.isnan(dist_ce([0], [0.5], n_raters=0))
    assert np.isnan(vote_error([1], [0.5], n_raters=1))
    assert np.isnan(vote_floor("dist_ce", [0.5], 0))


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
        assert vote_floor(name, [p], m) == pytest.approx(expected, abs=1e-12)
    if m > 1:
        assert slow.expected_over_votes(value(vote_error), p, m) == pytest.approx(0, abs=1e-12)
        assert vote_floor("vote_error", [p], m) == 0.0


def test_floors_of_more_classes_against_simulation(rng):
    p = rng.dirichlet(np.ones(4), 30)
    m = rng.integers(2, 8, 30)
    draws = [rng.multinomial(m, p) for _ in range(2000)]
    for name, metric in (("dist_ce", dist_ce), ("vote_nll", vote_nll), ("vote_error", vote_error)):
        found = [metric(v, p) for v in draws]
        error = np.std(found) / np.sqrt(len(found))
        assert vote_floor(name, p, m) == pytest.approx(np.mean(found), abs=4 * error)
    found = [ent_ce(v, p) for v in draws]
    sampled = vote_floor("ent_ce", p, m, n_resamples=2000)
    assert sampled == pytest.approx(np.mean(found), abs=6 * np.std(found) / np.sqrt(2000))


def test_floors_take_weights_and_know_their_names():
    both = vote_floor("dist_ce", [0.5, 0.2], 3, sample_weight=[2, 1])
    one, two = (vote_floor("dist_ce", [p], 3) for p in (0.5, 0.2))
    assert both == pytest.approx((2 * one + two) / 3)
    with pytest.raises(InputError, match="'dist_ce', 'ent_ce', 'vote_nll', 'vote_error'"):
        vote_floor("ece", [0.5], 3)
