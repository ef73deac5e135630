"""Statistical promises, by simulation. Small by default; SCALECAL_SLOW=1 makes them large."""

from __future__ import annotations

import os

import numpy as np
import pytest

from scalecal.metrics import (
    consistency,
    cox,
    debiased_error,
    ece,
    kuiper,
    noise_floor,
    spiegelhalter,
    vote_error,
)

pytestmark = pytest.mark.validity

LARGE = os.environ.get("SCALECAL_SLOW") == "1"
RUNS = 6000 if LARGE else 600
LEVEL = 0.05

SCORES = {
    "spread": lambda rng, n: rng.random(n),
    "middling": lambda rng, n: rng.beta(3, 3, n),
    "saturated": lambda rng, n: rng.beta(0.3, 0.3, n),
    "rare": lambda rng, n: rng.beta(1, 6, n),
}


def _resampled(y, p):
    return consistency(y, p, n_resamples=99)  # 5 % of 100 is whole, so the level is exact


TESTS = {"cox": cox, "kuiper": kuiper, "spiegelhalter": spiegelhalter, "consistency": _resampled}


def _rejections(test, draw, n, seed, truth=lambda p: p, runs=RUNS):
    rng = np.random.default_rng(seed)
    p_values = []
    for _ in range(runs):
        p = draw(rng, n)
        p_values.append(test(rng.random(n) < truth(p), p).p_value)
    return np.mean(np.array(p_values) <= LEVEL)


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("scores", SCORES)
def test_level_under_calibration(name, scores):
    share = _rejections(TESTS[name], SCORES[scores], 400, seed=1)
    error = np.sqrt(LEVEL * (1 - LEVEL) / RUNS)
    # Limits are not reached at n = 400: half a per cent of grace above, and Kuiper's walk, which
    # has a smaller range than its limit, may stay well below.
    assert share <= LEVEL + 3.5 * error + 0.005
    assert share >= (0.015 if name == "kuiper" else LEVEL - 3.5 * error - 0.005)


def test_kuiper_reaches_its_level_with_more_cases():
    share = _rejections(kuiper, SCORES["spread"], 10_000, seed=2)
    assert share == pytest.approx(LEVEL, abs=3.5 * np.sqrt(LEVEL * (1 - LEVEL) / RUNS) + 0.003)


@pytest.mark.parametrize("name", TESTS)
def test_power_grows_with_n(name):
    def sharper(p):  # the model is over-confident: true logits are two thirds of its own
        return p ** (2 / 3) / (p ** (2 / 3) + (1 - p) ** (2 / 3))

    few, more, many = (
        _rejections(TESTS[name], SCORES["spread"], n, seed=3, truth=sharper, runs=RUNS // 4)
        for n in (100, 400, 1600)
    )
    assert few < more < many
    assert many > 0.9


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("n", [20, 164, 2000])
@pytest.mark.parametrize("binning", ["width", "mass"])
def test_floors_match_simulation(scores, n, binning):
    rng = np.random.default_rng(4)
    p = SCORES[scores](rng, n)
    found = [ece(rng.random(n) < p, p, binning=binning) for _ in range(2 * RUNS)]
    mean, error = np.mean(found), np.std(found) / np.sqrt(len(found))
    assert noise_floor(p, binning=binning) == pytest.approx(mean, abs=4 * error)


@pytest.mark.parametrize("scores", SCORES)
def test_debiased_error_has_mean_zero(scores):
    rng = np.random.default_rng(5)
    found = []
    for _ in range(RUNS):
        p = SCORES[scores](rng, 164)
        found.append(debiased_error(rng.random(164) < p, p))
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(RUNS)
    assert np.min(found) < 0  # and is not cut off at zero


def test_debiased_error_finds_the_true_squared_error():
    rng, found = np.random.default_rng(6), []
    for _ in range(RUNS):
        p = rng.uniform(0.2, 0.8, 300)
        found.append(debiased_error(rng.random(300) < p + 0.1, p))
    assert np.mean(found) == pytest.approx(0.01, abs=4 * np.std(found) / np.sqrt(RUNS))


def test_vote_error_has_mean_zero_for_the_true_probabilities():
    rng, found = np.random.default_rng(7), []
    for _ in range(RUNS):
        p, m = rng.random(100), rng.integers(2, 8, 100)
        found.append(vote_error(rng.binomial(m, p), p, n_raters=m))
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(RUNS)
