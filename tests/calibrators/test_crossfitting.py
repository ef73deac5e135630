"""Cross-fitting: every answer comes from the other folds, folds respect labels and groups."""

import json

import numpy as np
import pytest
from scipy.special import expit

from scalecal.calibrators import (
    CALIBRATORS,
    PanelCalibrator,
    PlattScaling,
    ReaderOnTop,
    TemperatureScaling,
    from_dict,
)
from scalecal.calibrators.crossfitting import crossfit, fit_with_readers, fold_numbers
from scalecal.checks import InputError
from tests.calibrators.made import three_classes, two_classes


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize("made", [two_classes, three_classes])
def test_a_fold_has_the_answers_of_a_fit_to_the_others(name, made):
    z, y = made(200)
    fold = fold_numbers(y)
    out, _ = crossfit(CALIBRATORS[name](), z, y, fold)
    here = fold == 3
    by_hand = CALIBRATORS[name]().fit(z[~here], y[~here]).predict_proba(z[here])
    np.testing.assert_array_equal(out.p[here], by_hand[:, 1] if z.ndim == 1 else by_hand)
    assert out.p_reader is None


def test_the_panel_gets_votes_and_gives_a_readers_answer():
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=300)
    k = rng.binomial(5, rng.beta(4 * expit(z), 4 * expit(-z)))
    votes, y, size = np.column_stack([5 - k, k]), (k >= 3).astype(int), np.full(300, 5)
    fold = fold_numbers(y)
    for calibrator in (PanelCalibrator(), ReaderOnTop(PlattScaling())):
        out, by_fold = crossfit(calibrator, z, y, fold, votes=votes, panel_size=size)
        here = fold == 1
        by_hand = calibrator.fit(z[~here], y[~here], votes=votes[~here], panel_size=5)
        np.testing.assert_allclose(
            out.p_reader[here], by_hand.predict_reader_proba(z[here])[:, 1], rtol=1e-9
        )
        assert by_fold[1] == pytest.approx(by_hand.panel_.rho)
        assert (by_fold > 0).all()
        assert out.rho == pytest.approx(by_fold.mean())


def test_votes_of_many_cases_are_thinned(monkeypatch):
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=2000)
    k = rng.binomial(5, rng.beta(4 * expit(z), 4 * expit(-z)))
    votes, y, size = np.column_stack([5 - k, k]), (k >= 3).astype(int), np.full(2000, 5)
    whole = fit_with_readers(PanelCalibrator(), z, y, votes=votes, panel_size=size).panel_
    monkeypatch.setattr("scalecal.calibrators.crossfitting.MAX_VOTED", 500)
    part = fit_with_readers(PanelCalibrator(), z, y, votes=votes, panel_size=size).panel_
    assert part.rho_high - part.rho_low > 1.5 * (whole.rho_high - whole.rho_low)
    assert part.rho_low < whole.rho < part.rho_high
    assert part.slope == pytest.approx(whole.slope, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_never_split_between_folds(seed):
    rng = np.random.default_rng(seed)
    groups, y = rng.integers(0, 30, size=200), rng.integers(0, 2, size=200)
    fold = fold_numbers(y, groups=groups)
    for g in np.unique(groups):
        assert len(np.unique(fold[groups == g])) == 1


def test_folds_have_every_class_alike():
    y = np.repeat([0, 1], [80, 20])
    fold = fold_numbers(y)
    assert [int(y[fold == k].sum()) for k in range(5)] == [4] * 5


def test_few_cases_give_fewer_folds_and_one_class_an_error():
    assert fold_numbers(np.array([0, 0, 0, 0, 0, 1, 1, 1])).max() == 2
    with pytest.raises(InputError, match="every label of 8 cases is of one class"):
        fold_numbers(np.zeros(8, dtype=int))
    with pytest.raises(InputError, match="only one class has two groups or more"):
        fold_numbers(np.array([0, 0, 1, 1]), groups=np.array([0, 1, 2, 2]))


@pytest.mark.parametrize("made", [two_classes, three_classes])
def test_a_reader_on_top_leaves_the_label_alone_and_is_saved_whole(made):
    z, y = made(300)
    plain = TemperatureScaling().fit(z, y)
    both = ReaderOnTop(TemperatureScaling(), kappa=0.5).fit(z, y, n_raters=5)
    np.testing.assert_allclose(both.predict_proba(z), plain.predict_proba(z), rtol=1e-12)
    np.testing.assert_allclose(both.transform(z), plain.transform(z))
    again = from_dict(json.loads(json.dumps(both.to_dict())))
    np.testing.assert_array_equal(again.predict_proba(z), both.predict_proba(z))
    np.testing.assert_array_equal(again.predict_reader_proba(z), both.predict_reader_proba(z))
    # The same panel as one fitted to the calibrated logits.
    panel = PanelCalibrator(kappa=0.5).fit(plain.transform(z), y, n_raters=5)
    np.testing.assert_allclose(
        both.predict_disagreement(z), panel.predict_disagreement(plain.transform(z))
    )
