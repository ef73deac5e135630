"""Recalibrating predictions: honest before and after, one calibrator for new cases, two answers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit, softmax

import scalecal
from scalecal import audit, calibrate, metrics
from scalecal.calibrators import CALIBRATORS, PlattScaling
from scalecal.calibrators.crossfitting import fold_numbers
from scalecal.cases import Cases, Predictions
from scalecal.checks import InputError, ScalecalWarning
from scalecal.evaluation.candidates import READER_ONLY, candidates
from scalecal.evaluation.recalibration import (
    Recalibrator,
    apply_recalibrator,
    calibrate_predictions,
)

FEW = {"n_resamples": 100}


def made(n=600, seed=0, slope=2.0, shift=0.4):
    """Labels by a known chance, and predictions with that chance's logits stretched and moved."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=n)
    return (rng.random(n) < expit(z)).astype(int), expit(slope * z + shift), expit(z)


def read(n=300, seed=0, m=7):
    """Cases read by m readers, and an over-confident model of their majority."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=n)
    votes = rng.binomial(m, rng.beta(5 * expit(z), 5 * expit(-z)))
    return (votes > m / 2).astype(int), expit(4 * z + 0.3), votes


def judge(votes, p):
    return metrics.vote_nll(votes, p, n_raters=7)


def test_an_over_confident_model_is_recalibrated_on_fresh_cases():
    y, p, _ = made()
    result = calibrate(y, p, **FEW)
    fresh_y, fresh_p, truth = made(20_000, seed=1)
    recalibrated = result.recalibrator.predict(fresh_p)
    best = metrics.nll(fresh_y, truth)
    before, after = (metrics.nll(fresh_y, q) - best for q in (fresh_p, recalibrated))
    assert before > 0.07
    assert after < 0.006
    # What is reported is what fresh cases show.
    row = result.after["overall"]
    assert row["nll"] == pytest.approx(metrics.nll(fresh_y, recalibrated), abs=0.05)
    assert row["p_cox"] > 0.05 > result.before["overall"]["p_cox"]


@pytest.mark.validity
def test_auto_does_little_harm_to_calibrated_models_and_its_report_is_honest():
    """Mean over models: loss on fresh cases against doing nothing, and what was reported of it."""
    fresh_y, fresh_p, _ = made(20_000, seed=999, slope=1.0, shift=0.0)
    harm, reported, chosen = [], [], []
    for seed in range(12):
        y, p, _ = made(300, seed=seed, slope=1.0, shift=0.0)
        result = calibrate(y, p, n_resamples=20)
        recalibrated = result.recalibrator.predict(fresh_p)
        harm.append(metrics.nll(fresh_y, recalibrated) - metrics.nll(fresh_y, fresh_p))
        reported.append(result.after["overall"]["nll"] - result.before["overall"]["nll"])
        chosen.append(result.chosen)
    assert chosen.count("none") >= 4
    assert np.mean(harm) < 0.006
    # Without nesting the choice alone would report a gain of a calibrated model.
    assert np.mean(reported) > -0.002


def test_auto_has_the_lowest_cross_fitted_loss_of_all_candidates():
    y, p, _ = made(400)
    result = calibrate(y, p, **FEW)
    facts = result.evaluation.facts
    loss = {r["method"]: r["nll"] for r in facts["rows"] if r["stratum"] == "overall"}
    assert set(loss) == {"none", "auto", *candidates()} - {"panel"}
    assert result.chosen == min((m for m in loss if m != "auto"), key=loss.get)
    assert sum(facts["calibration"]["by_fold"].values()) == 5
    by_hand = calibrate(y, p, method=result.chosen, **FEW)
    assert by_hand.after["overall"]["nll"] == pytest.approx(loss[result.chosen])


def test_the_nested_choice_is_made_without_the_fold_it_is_used_on():
    """Each fold of `auto` equals a fit to the others by the method which those chose among themselves."""
    y, p, _ = made(200, slope=1.3, shift=0.1, seed=4)
    result = calibrate(y, p, **FEW)
    assert result.chosen != "none"
    z, fold = logit(p), fold_numbers(y)
    picked = []
    for k in range(5):
        rest = fold != k
        inner = calibrate(y[rest], p[rest], n_resamples=20).chosen
        picked.append(inner)
        expected = p[~rest]
        if inner != "none":
            label = CALIBRATORS[inner]().fit(z[rest], y[rest])
            expected = label.predict_proba(z[~rest])[:, 1]
        np.testing.assert_allclose(result.predictions.p[~rest], expected, rtol=1e-9)
    by_fold = result.evaluation.facts["calibration"]["by_fold"]
    assert by_fold == {name: picked.count(name) for name in picked}


def test_where_doing_nothing_is_chosen_nothing_is_done():
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=400)
    y = (rng.random(400) < expit(z)).astype(int)
    result = calibrate(y, expit(z), **FEW)
    assert result.chosen == "none"
    np.testing.assert_array_equal(result.predictions.p, expit(z))
    np.testing.assert_allclose(result.recalibrator.predict([0.0, 0.3, 1.0]), [0, 0.3, 1], atol=1e-9)
    assert result.evaluation.core["lead"][2]["heading"] == "Leave p as it is"
    assert "What to do? Leave p as it is. No calibrator of the 4 tried has a lower" in str(result)


def test_groups_are_whole_in_folds_so_that_copies_cannot_leak():
    """Cases ten times over: taken as groups, beta calibration sees none of a fold's cases elsewhere."""
    y, p, _ = made(60, seed=3)
    many, groups = np.repeat(np.arange(60), 10), np.repeat(np.arange(60), 10)
    grouped = calibrate(y[many], p[many], method="isotonic", groups=groups, **FEW)
    mixed = calibrate(y[many], p[many], method="isotonic", **FEW)
    assert grouped.after["overall"]["nll"] > mixed.after["overall"]["nll"] + 0.1
    assert len(np.unique(grouped.predictions.p.reshape(60, 10).round(12), axis=1)[0]) == 1


def test_votes_give_a_readers_answer_that_foresees_votes_better():
    y, p, votes = read()
    result = calibrate(y, p, votes=votes, n_raters=7, **FEW)
    before, after = result.before["overall"], result.after["overall"]
    assert after["vote_nll"] < before["vote_nll"] - 0.1
    assert after["nll"] < before["nll"]
    table = result.to_frame()
    assert {"p", "p_reader", "rho", "p_split", "label", "votes", "n_raters"} < set(table.columns)
    assert table["rho"].nunique() == 1
    # Also on fresh cases, against the same model with one number.
    fresh_y, fresh_p, fresh_votes = read(4000, seed=1)
    cases = Cases(n=4000, classes=("0", "1"), y=fresh_y)
    new = apply_recalibrator(
        Predictions.single(cases, fresh_p), result.recalibrator, **FEW
    ).predictions
    assert judge(fresh_votes, new.p_reader) < judge(fresh_votes, new.p)


def test_published_numbers_stand_in_for_votes():
    from scalecal.votes import fleiss_kappa

    y, p, votes = read()
    kappa, share = fleiss_kappa(votes, 7), votes.mean() / 7
    blind = calibrate(y, p, n_raters=7, kappa=kappa, vote_share=share, **FEW)
    assert blind.predictions.p_reader is not None
    judged = judge(votes, blind.predictions.p_reader)
    assert judged < judge(votes, p) - 0.1
    # With votes at hand as well these only judge.
    both = calibrate(y, p, votes=votes, n_raters=7, kappa=kappa, vote_share=share, **FEW)
    np.testing.assert_allclose(both.predictions.p_reader, blind.predictions.p_reader)
    assert both.after["overall"]["vote_nll"] == pytest.approx(judged)
    assert any("votes only judge" in note for note in both.notes)


def test_none_leaves_p_and_adds_the_reader():
    y, p, votes = read()
    result = calibrate(y, p, method="none", votes=votes, n_raters=7, **FEW)
    assert result.chosen == READER_ONLY
    np.testing.assert_array_equal(result.predictions.p, p)
    assert result.predictions.p_reader is not None
    assert result.evaluation.verdict["headline"].startswith("With p unchanged: ")


def test_the_first_screen_is_of_what_is_after():
    facts = calibrate(*made()[:2], n_resamples=100).evaluation.facts
    assert facts["judged"] == "auto"
    assert facts["verdict"]["headline"].startswith("After recalibration: ")
    assert facts["verdict"]["numbers"][0] == {"name": "Before", "value": "Attention"}
    assert facts["verdict"]["badge"] == facts["audits"]["auto"]["verdict"]["badge"]
    assert facts["lead"][2]["heading"] == "Use the recalibrated probabilities"
    assert f"--method {facts['calibration']['chosen']}: label NLL falls" in facts["lead"][2]["text"]


def test_certain_answers_are_noted():
    y, p, _ = made(300)
    notes = calibrate(y, p, method="isotonic", **FEW).notes
    assert any("isotonic answers 0 or 1 in" in note for note in notes)
    assert not any(
        "answers 0 or 1" in note for note in calibrate(y, p, method="platt", **FEW).notes
    )


@pytest.mark.parametrize("bad", [{"kappa": 1.4, "vote_share": 0.5}, {"n_folds": 21}])
def test_numbers_that_cannot_be_are_refused(bad):
    with pytest.raises(InputError, match=r"kappa must lie|n_folds must be 20 or less"):
        calibrate(*made()[:2], n_raters=5, n_resamples=50, **bad)


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name != "identity"])
@pytest.mark.parametrize("voted", [False, True])
def test_every_calibrator_by_name(name, voted):
    if name == "panel" and not voted:
        pytest.skip("it needs readers")
    y, p, votes = read(300)
    known = {"votes": votes, "n_raters": 7} if voted else {}
    result = calibrate(y, p, method=name, **known, n_resamples=20)
    assert result.chosen == name
    assert (result.predictions.p_reader is not None) is voted
    again = Recalibrator.from_json(result.recalibrator.to_json())
    cases = Cases(n=len(p), classes=("0", "1"))
    one, two = (
        made_by.apply(Predictions.single(cases, p)) for made_by in (result.recalibrator, again)
    )
    np.testing.assert_array_equal(one.p, two.p)
    if voted:
        np.testing.assert_array_equal(one.p_reader, two.p_reader)
        assert one.rho == two.rho


def test_the_kept_calibrator_is_fitted_to_all_cases():
    y, p, _ = made(300)
    result = calibrate(y, p, method="platt", **FEW)
    by_hand = PlattScaling().fit(logit(p), y)
    np.testing.assert_allclose(
        result.recalibrator.predict(p), by_hand.predict_proba(logit(p))[:, 1], rtol=1e-9
    )


def test_several_classes_with_votes():
    rng = np.random.default_rng(0)
    z = 1.5 * rng.normal(size=(300, 3))
    votes = np.array([rng.multinomial(5, rng.dirichlet(5 * q)) for q in softmax(z, axis=1)])
    y = (votes + 0.1 * rng.random(votes.shape)).argmax(axis=1)
    result = calibrate(y, softmax(4 * z, axis=1), votes=votes, method="temperature", n_resamples=20)
    assert result.predictions.p.shape == result.predictions.p_reader.shape == (300, 3)
    np.testing.assert_allclose(result.predictions.p.sum(axis=1), 1)
    assert result.after["overall"]["nll"] < result.before["overall"]["nll"]
    assert result.after["overall"]["vote_nll"] < result.before["overall"]["vote_nll"]
    assert {"p_0", "p_2", "p_reader_1", "votes_2", "label"} < set(result.to_frame().columns)
    with pytest.raises(InputError, match="calibrator was fitted"):
        result.recalibrator.predict([0.3, 0.4])


def test_cases_without_a_label_are_recalibrated_by_the_kept_calibrator():
    y, p, _ = made(300)
    y[200:] = -1
    cases = Cases(n=300, classes=("0", "1"), y=y)
    result = calibrate_predictions(Predictions.single(cases, p), method="platt", **FEW)
    np.testing.assert_allclose(result.predictions.p[200:], result.recalibrator.predict(p[200:]))
    np.testing.assert_allclose(
        result.predictions.p[:200], calibrate(y[:200], p[:200], method="platt").predictions.p
    )
    assert result.after["overall"]["n"] == 200
    assert any("100 of 300 cases have no label" in note for note in result.notes)


def test_eight_cases_and_too_few():
    y, p = np.array([0, 0, 1, 0, 1, 0, 1, 1]), np.linspace(0.1, 0.9, 8)
    result = calibrate(y, p, n_resamples=20)
    assert np.isfinite(result.after["overall"]["nll"])
    with pytest.raises(InputError, match="one class"):
        calibrate(np.ones(8, dtype=int), p)
    with pytest.raises(InputError, match="only one class has two cases or more"):
        calibrate([0, 1, 1, 1], [0.1, 0.2, 0.3, 0.4])
    with pytest.raises(InputError, match="there are no labels"):
        calibrate_predictions(Predictions.single(Cases(n=8, classes=("0", "1")), p))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "magic"}, "method must be one of 'auto', 'none'"),
        ({"method": "panel"}, "nothing to learn from"),
        ({"method": "none"}, "nothing to learn from"),
        ({"kappa": 0.5}, "kappa needs the panel's size"),
        ({"vote_share": 0.5}, "needs the readers' kappa"),
        ({"n_folds": 1}, "n_folds"),
    ],
)
def test_what_cannot_be_done_is_said(options, says):
    y, p, _ = made(50)
    with pytest.raises(InputError, match=says):
        calibrate(y, p, **options)


def test_votes_of_single_readers_judge_and_give_no_answer():
    y, p, _ = made(200)
    result = calibrate(y, p, votes=y, n_raters=1, **FEW)
    assert result.predictions.p_reader is None
    assert any("There is no reader probability" in note for note in result.notes)


def test_a_reader_answer_that_was_there_is_kept_where_nothing_replaces_it():
    y, p, truth = made(200)
    cases = Cases(n=200, classes=("0", "1"), y=y)
    result = calibrate_predictions(
        Predictions.single(cases, p, truth, rho=0.1), method="platt", **FEW
    )
    np.testing.assert_array_equal(result.predictions.p_reader, truth)
    assert result.predictions.rho == 0.1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a JSON file"),
        ("[]", "Expected `object`, got `array`"),
        ('{"kind": "scalecal calibrator", "format": 9}', "has the format 9"),
        ('{"kind": "scalecal calibrator", "format": 1}', "missing required field `chosen`"),
    ],
)
def test_other_files_are_no_calibrators(text, says):
    with pytest.raises(InputError, match=says):
        Recalibrator.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["0", "1", "2"]},
        {"calibrator": {"name": "os.system"}},
        {"calibrator": {"name": "platt", "params": {}, "n_classes": 2, "fitted": {}}},
        {"calibrator": {"name": "platt", "params": {"x": 1}, "n_classes": 2, "fitted": {}}},
        {"calibrator": 3},
    ],
)
def test_edited_calibrators_are_refused(change):
    y, p, _ = made(50)
    saved = json.loads(calibrate(y, p, method="platt", n_resamples=20).recalibrator.to_json())
    with pytest.raises(InputError, match=r"Expected the calibrator\.json"):
        Recalibrator.from_json(json.dumps({**saved, **change}))


def test_it_is_public_and_repeats():
    assert scalecal.calibrate is calibrate
    y, p, _ = made(120)
    one, two = (calibrate(y, p, n_resamples=20) for _ in range(2))
    assert one.recalibrator.to_json() == two.recalibrator.to_json()
    np.testing.assert_array_equal(one.predictions.p, two.predictions.p)
    assert str(one) == str(two)
    assert max(map(len, str(one).split("\n\n")[0].splitlines())) < 100


def test_the_audit_of_the_recalibrated_predictions_is_the_one_reported():
    y, p, votes = read(200)
    result = calibrate(y, p, votes=votes, n_raters=7, **FEW)
    after = result.predictions
    split = result.to_frame()["p_split"].to_numpy()
    known = {"votes": votes, "n_raters": 7, "p_split": split}
    again = audit(y, after.p, p_reader=after.p_reader, rho=after.rho, **known, **FEW)
    reported = result.evaluation.to_dict()
    for key in ("strata", "difficulty"):
        assert again.to_dict()[key] == reported[key]
    assert again.verdict["badge"] == reported["verdict"]["badge"]


def test_the_file_it_was_fitted_to_is_recognised():
    y, p, _ = made(60)
    cases = Cases(n=60, classes=("0", "1"), y=y)
    own = replace(Predictions.single(cases, p), sources={"p.csv": "abc"})
    result = calibrate_predictions(own, n_resamples=20)
    with pytest.warns(ScalecalWarning, match="fitted to this file"):
        apply_recalibrator(own, result.recalibrator, n_resamples=20)
