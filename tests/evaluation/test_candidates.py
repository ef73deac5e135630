"""Which calibrator an audit advises: one that corrects the labels, or none."""

import numpy as np
import pytest
from scipy.special import expit

from scalecal.cases import Answers, Cases, Predictions
from scalecal.evaluation.changes import soften
from scalecal.evaluation.evaluations import evaluate, evaluate_alone
from scalecal.evaluation.recalibration import calibrate_predictions


def audited(seed=0, *, shift=1.65, slope=0.9, n=500, m=8, unread=0.0, votes=True):
    """One model on cases read by m readers; its logits are moved by `shift` and scaled by `slope`."""
    rng = np.random.default_rng(seed)
    z = 1.6 * rng.normal(size=n) - 0.95
    positive = rng.binomial(m, rng.beta(6 * expit(z), 6 * expit(-z)))
    y = np.where(2 * positive == m, rng.integers(0, 2, size=n), 2 * positive > m).astype(int)
    counts = np.column_stack([m - positive, positive])
    counts[rng.random(n) < unread] = 0
    cases = Cases(n=n, classes=("0", "1"), y=y, votes=counts if votes else None)
    return Predictions.single(cases.stratified(), expit(slope * z + shift))


@pytest.mark.parametrize("options", [{}, {"unread": 0.2}, {"votes": False}])
def test_a_shifted_model_gets_an_intercept(options):
    """Eight readers, prevalence about 0.3, mean p about 0.63: a temperature cannot correct that."""
    predictions = audited(**options)
    assert predictions.y.mean() == pytest.approx(0.31, abs=0.05)
    assert predictions.p.mean() == pytest.approx(0.63, abs=0.03)
    result = evaluate_alone(predictions, n_resamples=200)
    losses = result.core["candidates"]
    assert {"temperature", "platt", "quadratic", "beta"} < set(losses)
    assert ("panel" in losses) is options.get("votes", True)
    chosen = result.recommended["p"]
    assert chosen["method"] in ("platt", "quadratic", "beta", "panel")
    assert chosen["sure"]
    assert losses[chosen["method"]] < losses["temperature"] - 0.1
    assert result.verdict["badge"] == "attention"
    first, _, last = result.core["lead"]
    assert first["heading"] == "No: too high"
    assert last["heading"] == "Recalibrate it"
    assert f"Run scalecal calibrate FILE --method {chosen['method']}:" in last["text"]
    # What is advised is what calibrate does.
    assert calibrate_predictions(predictions, n_resamples=20).chosen == chosen["method"]
    ece = {r["method"]: r["ece"] for r in result.facts["rows"] if r["stratum"] == "overall"}
    assert ece["model"] > 0.28
    assert ece[chosen["method"]] < 0.07


def test_a_calibrated_model_is_left_alone():
    p = np.random.default_rng(0).beta(0.8, 0.8, size=600)
    y = (np.random.default_rng(1).random(600) < p).astype(int)
    cases = Cases(n=600, classes=("0", "1"), y=y)
    result = evaluate_alone(Predictions.single(cases, p), n_resamples=200)
    assert result.recommended is None
    assert result.verdict["badge"] == "good"
    assert result.core["lead"][2]["heading"] == "Nothing"


def test_a_gain_that_plain_softening_has_too_is_marked():
    """A temperature is no better than softening, whatever its rounding."""
    plain = audited(shift=0.0, slope=4.0, n=300, votes=False)
    softer = Answers(soften(plain.p, 2.0 + 1e-9))
    methods = {("none", 0): plain.only, ("temperature", 0): softer}
    comparison = evaluate(Predictions(plain.cases, methods, "made", "model"), n_resamples=200)
    beyond = comparison.facts["softening"]["temperature"]
    assert beyond["better"] is False
    assert "\ntemperature * " in str(comparison)
    assert "\n* no clear gain over one temperature" in str(comparison)
    table = comparison.table.set_index("method")
    assert table.loc["temperature", "beyond_softening"] == pytest.approx(beyond["difference"])
