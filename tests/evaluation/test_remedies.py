"""What is recommended for predictions alone: it mends the labels and says what is left, or is nothing."""

import numpy as np
import pytest
from scalecal.runs.facts import _softening
from scipy.special import expit

from scalecal.cases import Answers, Cases, Predictions
from scalecal.evaluation.frontier import soften


def audited(seed=0, *, shift=1.65, slope=0.9, n=500, m=8, unread=0.0, votes=True):
    """One model on cases read by m readers; its logits are moved by `shift` and scaled by `slope`."""
    rng = np.random.default_rng(seed)
    z = 1.6 * rng.normal(size=n) - 0.95
    positive = rng.binomial(m, rng.beta(6 * expit(z), 6 * expit(-z)))
    y = np.where(2 * positive == m, rng.integers(0, 2, size=n), 2 * positive > m).astype(int)
    counts = np.column_stack([m - positive, positive])
    counts[rng.random(n) < unread] = 0
    cases = Cases(n=n, classes=("0", "1"), y=y, votes=counts if votes else None)
    own = Answers(expit(slope * z + shift), rows=np.arange(n))
    return Predictions(cases.stratified(), {("model", 0): own}, "made", "model")


@pytest.mark.parametrize("options", [{}, {"unread": 0.2}, {"votes": False}])
def test_a_shifted_model_gets_an_intercept(options):
    """Eight readers, prevalence about 0.3, mean p about 0.63: a temperature cannot mend that."""
    cell = audited(**options)
    assert cell.y.mean() == pytest.approx(0.31, abs=0.05)
    assert cell.first("model").p.mean() == pytest.approx(0.63, abs=0.03)
    facts = evaluate(cell, n_resamples=200).facts
    assert {"temperature", "platt", "quadratic", "beta"} < set(facts["methods"])
    assert ("panel" in facts["methods"]) is options.get("votes", True)
    assert facts["recommended"] in ("platt", "quadratic", "beta", "panel")
    ece = {r["method"]: r["ece"] for r in facts["rows"] if r["stratum"] == "overall"}
    assert ece["model"] > 0.28
    assert ece["temperature"] > 0.28
    assert ece[facts["recommended"]] < 0.07
    first, *_, third = facts["details"]
    assert facts["verdict"]["badge"] == "attention"
    assert facts["lead"][0]["heading"] == "No: too high"
    assert facts["lead"][2]["heading"] == f"Use {facts['recommended']}"
    assert "it is miscalibrated" in first
    assert "helps most" in third
    assert "the tests find no miscalibration" in third
    assert "By its labels the model needs no remedy" not in third
    assert facts["softening"]["temperature"]["better"] is False


def test_a_calibrated_model_is_left_alone():
    p = np.random.default_rng(0).beta(0.8, 0.8, size=600)
    y = (np.random.default_rng(1).random(600) < p).astype(int)
    cases = Cases(n=600, classes=("0", "1"), y=y)
    cell = Predictions(cases, {("model", 0): Answers(p, rows=np.arange(600))})
    facts = evaluate(cell, n_resamples=200).facts
    assert facts["recommended"] is None
    assert "Doing nothing may be as good" in facts["details"][-1]
    assert "miscalibrated" not in facts["details"][-1]
    assert facts["verdict"]["badge"] == "good"
    assert facts["lead"][2]["heading"] == "Nothing"


def test_a_model_that_is_only_too_sure_gets_a_temperature_that_is_called_softening():
    comparison = evaluate(audited(shift=0.0, slope=4.0, n=600, votes=False), n_resamples=200)
    facts, text = comparison.facts, comparison.facts["details"][-1]
    assert "\ntemperature * " in str(comparison)
    assert "\n* no clear gain over softening" in str(comparison)
    for method, beyond in facts["softening"].items():
        if method != "model":
            assert beyond["low"] <= beyond["difference"] <= beyond["high"]
            assert beyond["better"] is (beyond["high"] < 0 and beyond["difference"] <= -0.0005)
    if not facts["softening"][facts["best"]["method"]]["better"]:
        assert "helps most" not in text
        assert "no clear gain over softening" in text
    table = comparison.table.set_index("method")
    assert (
        table.loc["temperature", "beyond_softening"]
        == facts["softening"]["temperature"]["difference"]
    )


def test_a_temperature_is_no_better_than_softening_whatever_its_rounding():
    cell = audited(shift=0.0, slope=4.0, n=300, votes=False)
    plain = cell.first("model")
    softer = {
        ("none", 0): plain,
        ("temperature", 0): Answers(soften(plain.p, 2.0 + 1e-9), rows=plain.rows),
    }
    cell = Predictions(cell.cases, softer, "made", "model")
    comparison = evaluate(cell, n_resamples=200)
    assert comparison.facts["softening"]["temperature"]["better"] is False
    assert "\ntemperature * " in str(comparison)
    assert "\n* no clear gain over softening" in str(comparison)
    rows = [
        {"method": "a", "at_temperature": 2.0, "difference_nll": d, "difference_nll_low": 1.1 * d}
        | {"difference_nll_high": 0.9 * d}
        for d in (-1e-10, -2e-4, -1e-3, 1e-3)
    ]
    found = [_softening([row], "nll")["a"]["better"] for row in rows]
    assert found == [False, False, True, False]
