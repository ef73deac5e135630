"""Clinical numbers against slow references, and the coverage of their intervals."""

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import expit, logit

from scalecal import audit
from scalecal.evaluation.rows import case_sums, values_and_intervals
from scalecal.inference.units import Units
from scalecal.metrics import METRICS
from scalecal.metrics.arguments import Sample

KEYS = ("oe", "citl", "slope", "scaled_brier")


def _value(key, y, p, w=None):
    return METRICS[key].value(Sample(y.astype(float), p, w))


@pytest.fixture
def study():
    rng = np.random.default_rng(3)
    z = rng.normal(-1, 1.5, 400)
    y = (rng.random(400) < expit(0.4 + 0.8 * z)).astype(int)
    return y, expit(z), rng.integers(1, 4, 400).astype(float)


def _reference(key, y, p, w):
    """The definition itself, by a general optimiser where there is one."""
    z = logit(p)
    if key == "oe":
        return (w * y).sum() / (w * p).sum()
    if key == "scaled_brier":
        share = np.average(y, weights=w)
        return 1 - np.average((p - y) ** 2, weights=w) / np.average((share - y) ** 2, weights=w)

    def loss(line):
        eta = line[0] + (line[1] if len(line) > 1 else 1.0) * z
        return (w * (np.logaddexp(0, eta) - y * eta)).sum()

    start = [0.0] if key == "citl" else [0.0, 1.0]
    return optimize.minimize(loss, start, tol=1e-12).x[-1]


@pytest.mark.parametrize("key", KEYS)
def test_against_the_definition(key, study):
    y, p, w = study
    assert _value(key, y, p) == pytest.approx(_reference(key, y, p, np.ones(400)), abs=1e-5)
    assert _value(key, y, p, w) == pytest.approx(_reference(key, y, p, w), abs=1e-5)


@pytest.mark.parametrize("key", KEYS)
def test_influences_are_derivatives(key, study):
    y, p, _ = study
    made = METRICS[key].pseudo_values(Sample(y.astype(float), p))
    for case in (0, 17, 333):
        w = np.ones(400)
        w[case] += 1e-4
        moved = (_value(key, y, p, w) - _value(key, y, p)) / 1e-4
        assert made[case] - made.mean() == pytest.approx(400 * moved, rel=2e-2, abs=1e-3)


@pytest.mark.parametrize("key", KEYS)
def test_one_class_and_separation_have_no_number(key):
    p = np.linspace(0.1, 0.9, 30)
    assert np.isnan(_value(key, np.zeros(30), p))
    assert np.isnan(_value(key, np.ones(30), p))
    separated = _value(key, p > 0.5, p)
    assert np.isnan(separated) == (key == "slope")


def test_limits():
    rng = np.random.default_rng(0)
    y = (rng.random(200) < 0.3).astype(int)
    constant = np.full(200, y.mean())
    assert _value("oe", y, constant) == pytest.approx(1)
    assert _value("citl", y, constant) == pytest.approx(0, abs=1e-9)
    assert _value("scaled_brier", y, constant) == pytest.approx(0, abs=1e-12)
    z = rng.normal(size=200)
    y = (rng.random(200) < expit(z)).astype(int)
    # Logits moved by a constant move citl by as much; stretched ones divide the slope.
    moved = _value("citl", y, expit(z + 0.7)) - _value("citl", y, expit(z))
    assert moved == pytest.approx(-0.7)
    stretched = _value("slope", y, expit(2 * z - 1))
    assert stretched == pytest.approx(_value("slope", y, expit(z)) / 2)


def test_an_audit_counts_events():
    rng = np.random.default_rng(1)
    p = rng.uniform(size=300)
    y = (rng.random(300) < p).astype(int)
    row = audit(y, p, n_resamples=50)["overall"]
    assert (row["events"], row["expected"]) == (y.sum(), pytest.approx(p.sum()))
    assert row["oe"] == pytest.approx(y.sum() / p.sum())
    assert row["oe_low"] < row["oe"] < row["oe_high"]
    enriched = audit(y, p, prevalence=0.2, n_resamples=50)["overall"]
    assert (enriched["events"], np.isnan(enriched["expected"])) == (y.sum(), True)
    assert np.isfinite(enriched["citl_low"])


@pytest.mark.parametrize("n_groups", [None, 30])
def test_intervals_hold_the_truth(n_groups):
    """A calibrated model, on independent cases and on patients with effects of their own."""
    rng = np.random.default_rng(5)
    truth = {"oe": 1.0, "citl": 0.0, "slope": 1.0}
    held = dict.fromkeys(truth, 0)
    for _ in range(150):
        z = rng.normal(0, 1.5, 600)
        groups = None
        uniform = rng.random(600)
        if n_groups is not None:
            groups = np.arange(600) % n_groups
            # Calibrated on average, with labels of a patient going together.
            together = np.sqrt(0.3) * rng.standard_normal(n_groups)[groups]
            uniform = stats.norm.cdf(together + np.sqrt(0.7) * rng.standard_normal(600))
        p = expit(z)
        y = (uniform < p).astype(int)

        sums = case_sums(y, p, None, units=Units.of(600, groups=groups))
        row = values_and_intervals(sums, 1.0)
        for key, value in truth.items():
            held[key] += row[f"{key}_low"] <= value <= row[f"{key}_high"]
    for count in held.values():
        assert stats.binomtest(count, 150, 0.95).pvalue > 0.005, held
