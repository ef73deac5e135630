"""What the estimation error of a kept calibrator adds, and what its refits are."""

import numpy as np
import pytest
from scipy.special import expit

from scalecal import audit, calibrate
from scalecal.calibrators import CALIBRATORS
from scalecal.calibrators.base import as_logits
from scalecal.cases import Cases, Predictions
from scalecal.evaluation.candidates import Material
from scalecal.evaluation.estimation_error import QUANTILE, estimation_error
from scalecal.evaluation.judging import judge
from scalecal.evaluation.recalibration import apply_recalibrator
from scalecal.inference.units import weights
from scalecal.metrics import nll
from scalecal.readers import Readers


def drawn(n, seed=0, stretch=1.5):
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.8, n)
    return (rng.random(n) < expit(z)).astype(int), expit(stretch * z)


def test_it_is_that_of_slow_refits():
    """Each resample fitted by itself, with one candidate, so that nothing is chosen."""
    y, p = drawn(300)
    cases = Cases(n=300, classes=("0", "1"), y=y)
    data = Material.of(Predictions.single(cases, p), Readers(), "platt")
    kind = CALIBRATORS["platt"]
    logits = as_logits(p)
    kept = kind().fit(logits, y)
    q = kept.predict_proba(logits)[:, 1]
    answers = {"platt": Predictions.single(cases, q).only}
    found = estimation_error(data, {"platt": kind()}, answers, kept, seed=3)
    squares, losses = [], []
    for times in next(weights(300, 40, np.random.default_rng(3))):
        rows = np.repeat(np.arange(300), times.astype(int))
        other = kind().fit(logits[rows], y[rows]).predict_proba(logits)[:, 1]
        squares.append(np.mean((other - q) ** 2))
        losses.append(nll(y, other))
    assert found.draws == 40
    assert found.squared == pytest.approx(np.quantile(squares, QUANTILE) * 300 / 299)
    assert found.loss_sd == pytest.approx(2 * np.std(losses, ddof=1) * 300 / 299)


def test_it_shrinks_with_the_cases():
    small, large = (
        calibrate(*drawn(n), method="platt", n_resamples=50).judged.facts["calibration"]
        for n in (200, 3200)
    )
    ratio = small["estimation_error"]["squared"] / large["estimation_error"]["squared"]
    assert 6 < ratio < 40


def test_it_adds_to_the_upper_limit_alone():
    row = {"n": 400, "p_cox": 0.2, "p_consistency": 0.6}
    row |= {"debiased_error": 0.001, "debiased_error_high": 0.004}
    plain = judge([row], agreement=False)
    wider = judge([row], agreement=False, estimation_error=0.005)
    assert wider["error"] == plain["error"]
    assert wider["error_high"] ** 2 == pytest.approx(plain["error_high"] ** 2 + 0.005)
    unknown = judge([row], agreement=False, estimation_error=float("nan"))
    assert np.isnan(unknown["error_high"])
    assert unknown["badge"] == "inconclusive"


@pytest.mark.parametrize("method", ["isotonic", "histogram"])
def test_what_memorises_is_judged_on_other_cases_only(method):
    y, p = drawn(3000)
    made = calibrate(y, p, method=method, n_resamples=50)
    verdict = made.judged.facts["audits"][made.judged.facts["judged"]]["judgement"]
    assert verdict["unproven"]
    assert verdict["badge"] != "good"
    assert made.judged.facts["verdict"]["badge"] == verdict["badge"]
    y, p = drawn(3000, seed=1)
    others = Predictions.single(Cases(n=3000, classes=("0", "1"), y=y), p)
    applied = apply_recalibrator(others, made.recalibrator, n_resamples=50)
    facts = applied.judged.facts
    assert not facts["audits"][facts["judged"]]["judgement"]["unproven"]


def test_the_nested_change_is_told_where_p_is_kept():
    for seed in range(30):
        made = calibrate(*drawn(300, seed, stretch=1.0), n_resamples=50)
        about = made.judged.facts["calibration"]
        if made.chosen == "none" and set(about["by_fold"]) != {"none"}:
            break
    facts = made.judged.facts
    assert about["estimation_error"] is None
    nested = [
        r for r in facts["rows"] if r["method"] == "auto-nested" and r["stratum"] == "overall"
    ]
    assert nested[0]["changes"]["nll"]["difference"] != 0
    assert "The folds did not always choose so" in facts["paragraphs"]["calibration"]
    np.testing.assert_array_equal(made.predictions.p, drawn(300, seed, stretch=1.0)[1])


def test_a_gold_standard_is_no_majority():
    rng = np.random.default_rng(0)
    x, hidden = rng.normal(0, 1.5, 600), rng.normal(size=600)
    votes = rng.binomial(5, expit(x + hidden - 1.5))
    gold = (rng.random(600) < expit(1.8 * (x + hidden))).astype(int)
    known = {"kappa": 0.4, "vote_share": votes.mean() / 5, "n_raters": 5, "n_resamples": 50}
    with pytest.raises(ValueError, match="What is the label"):
        calibrate(gold, expit(x), **known)
    made = calibrate((votes > 2).astype(int), expit(x), **known)
    mismatch = made.judged.facts["calibration"]["mismatch"]
    assert mismatch < 0.05
    assert made.recalibrator.about["fitted_to"]["mismatch"] == mismatch
    assert any(f"by {mismatch:.3f} on average" in note for note in made.notes)
    del known["vote_share"]
    made = calibrate((votes > 2).astype(int), expit(x), **known)
    assert made.judged.facts["calibration"]["mismatch"] is None
    assert any("cannot be checked" in note for note in made.notes)


def test_left_out_ties_leave_no_verdict():
    rng = np.random.default_rng(0)
    p = expit(rng.normal(0, 1.5, 800))
    votes = rng.binomial(4, p)
    y = (votes > 2).astype(int)
    kept = votes != 2
    options = {"n_raters": 4, "n_resamples": 50}
    found = audit(y[kept], p[kept], votes=votes[kept], **options)
    assert found.verdict["badge"] == "inconclusive"
    assert "tied" in found.verdict["headline"]
    made = calibrate(y[kept], p[kept], votes=votes[kept], **options)
    assert made.judged.verdict["badge"] == "inconclusive"
    assert "not tied" in " ".join(made.sentences)
    y[~kept] = rng.integers(0, 2, int((~kept).sum()))
    assert "tied" not in audit(y, p, votes=votes, **options).verdict["headline"]
