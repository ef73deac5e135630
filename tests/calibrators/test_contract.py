"""Calibrators: one contract for all, chains of them, degenerate input."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from scalecal.calibrators import (
    CALIBRATORS,
    BetaCalibration,
    Chain,
    IsotonicCalibration,
    PanelCalibrator,
    PlattScaling,
    TemperatureScaling,
    from_dict,
)
from scalecal.checks import InputError, ScalecalWarning
from tests.calibrators.made import three_classes, two_classes

LEARNING = list(CALIBRATORS)


@pytest.mark.parametrize("name", CALIBRATORS)
class TestEveryCalibrator:
    def test_its_name_is_its_key(self, name):
        assert CALIBRATORS[name].name == name

    def test_range_and_form(self, name):
        z, y = two_classes()
        fitted = CALIBRATORS[name]().fit(z, y)
        new = np.linspace(-800, 800, 101)
        p = fitted.predict_proba(new)[:, 1]
        assert p.shape == (101,)
        assert ((p >= 0) & (p <= 1)).all()
        assert np.isfinite(fitted.transform(new)).all()

    def test_rows_sum_to_one(self, name):
        z, y = three_classes()
        fitted = CALIBRATORS[name]().fit(z, y)
        p = fitted.predict_proba(z[:50])
        assert p.shape == (50, 3)
        assert ((p >= 0) & (p <= 1)).all()
        np.testing.assert_allclose(p.sum(axis=1), 1)
        back = softmax(fitted.transform(z[:50]), axis=1)
        np.testing.assert_allclose(back, p, atol=1e-9)

    def test_monotone_where_promised(self, name):
        z, y = two_classes(200, seed=1)
        p = CALIBRATORS[name]().fit(z, y).predict_proba(np.linspace(-20, 20, 500))[:, 1]
        if name != "histogram":  # the others are monotone
            assert (np.diff(p) >= -1e-15).all()
        else:
            assert (np.diff(p) < 0).any()

    def test_two_columns_are_the_binary_calibrator(self, name):
        z, y = two_classes()
        both = np.column_stack([-0.25 * z + 1, 0.75 * z + 1])
        binary, columns = CALIBRATORS[name]().fit(z, y), CALIBRATORS[name]().fit(both, y)
        p = binary.predict_proba(z)[:, 1]
        np.testing.assert_allclose(
            columns.predict_proba(both), np.column_stack([1 - p, p]), atol=1e-9
        )
        # At the edge of a bin or a knot rounding may decide, so only the form is compared.
        out = columns.transform(both)
        np.testing.assert_allclose(expit(out[:, 1] - out[:, 0]), p, atol=1e-9)

    def test_hard_labels_are_soft_labels_of_zero_and_one(self, name):
        z, y = three_classes()
        hard, soft = CALIBRATORS[name]().fit(z, y), CALIBRATORS[name]().fit(z, np.eye(3)[y])
        np.testing.assert_array_equal(hard.predict_proba(z), soft.predict_proba(z))

    def test_weights_are_copies_and_zero_is_absence(self, name):
        for z, y in (two_classes(150), three_classes(150)):
            w = np.random.default_rng(2).integers(0, 3, len(y))
            weighted = CALIBRATORS[name]().fit(z, y, sample_weight=w)
            copied = CALIBRATORS[name]().fit(np.repeat(z, w, axis=0), np.repeat(y, w))
            np.testing.assert_allclose(
                weighted.predict_proba(z), copied.predict_proba(z), atol=2e-5
            )

    def test_a_soft_label_is_two_cases_that_share_the_weight(self, name):
        z, y = two_classes(120)
        soft = 0.8 * y + 0.1
        one = CALIBRATORS[name]().fit(z, soft)
        both = CALIBRATORS[name]().fit(
            np.tile(z, 2),
            np.repeat([0, 1], len(z)),
            sample_weight=np.concatenate([1 - soft, soft]),
        )
        np.testing.assert_allclose(one.predict_proba(z), both.predict_proba(z), atol=2e-5)

    @settings(deadline=None, max_examples=30)
    @given(
        st.lists(
            st.tuples(st.integers(-4, 4), st.floats(0, 1), st.integers(0, 3)),
            min_size=8,
            max_size=20,
        ),
        st.sampled_from([0.0, 1e-6, 1.0, 1e4]),
    )
    @pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")
    def test_ties_zero_weights_and_any_scale(self, name, cases, scale):
        z, y, w = np.array(cases).T
        z, w = scale * np.append(z, [-1, 1]), np.append(w, [1, 1])
        y = np.append(np.round(y), [0, 1])
        new = np.linspace(1.5 * z.min(), 1.5 * z.max(), 50)
        fitted = CALIBRATORS[name]().fit(z, y, sample_weight=w)
        p = fitted.predict_proba(new)[:, 1]
        assert ((p >= 0) & (p <= 1)).all()
        assert np.isfinite(fitted.transform(new)).all()
        if name != "histogram":
            assert (np.diff(p) >= -1e-12).all()

    @pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")
    def test_few_cases_of_several_classes(self, name):
        rng = np.random.default_rng(0)
        for scale in (0.0, 1e-9, 1.0, 1e6):
            z = scale * rng.normal(size=(8, 3)).round(1)
            fitted = CALIBRATORS[name]().fit(z, [0, 1, 2, 0, 1, 2, 0, 1])
            p = fitted.predict_proba(np.concatenate([z, -2 * z]))
            assert ((p >= 0) & (p <= 1)).all()
            np.testing.assert_allclose(p.sum(axis=1), 1)

    def test_rounding_is_not_taken_for_a_signal(self, name):
        y = np.repeat([0, 1], [10, 30])
        noise = np.where(np.random.default_rng(0).random(40) < 0.5, 0.5, np.nextafter(0.5, 1))
        noise = np.where(y == 1, 0.5, noise)  # what little there is would tell the classes apart
        p = CALIBRATORS[name]().fit(noise, y).predict_proba([0.4, 0.6])[:, 1]
        if name not in ("isotonic", "venn-abers", "histogram"):  # those see the order alone
            assert ((p > 0.5) & (p < 0.9)).all()

    @pytest.mark.parametrize("make", [two_classes, three_classes])
    def test_saved_as_json_and_back(self, name, make):
        z, y = make()
        fitted = CALIBRATORS[name]().fit(z, y)
        again = from_dict(json.loads(json.dumps(fitted.to_dict(), allow_nan=False)))
        assert type(again) is CALIBRATORS[name]
        np.testing.assert_array_equal(again.predict_proba(z), fitted.predict_proba(z))

    @pytest.mark.parametrize("damage", [np.nan, np.inf, None])
    def test_numbers_that_are_not_finite_are_refused(self, name, damage):
        saved = CALIBRATORS[name]().fit(*two_classes()).to_dict()
        if name == "panel":  # a record of its own
            broken = {**saved["fitted"]["panel"], "slope": damage}
            with pytest.raises(InputError, match=r"slope|its answers must be finite"):
                from_dict({**saved, "fitted": {"panel": broken}})
            return
        for key, value in saved["fitted"].items():
            broken = [damage, *value[1:]] if isinstance(value, list) else damage
            with pytest.raises(InputError, match=f"{key} .* not finite"):
                from_dict({**saved, "fitted": {**saved["fitted"], key: broken}})

    def test_clone_and_unfitted(self, name):
        z, y = two_classes()
        copy = clone(CALIBRATORS[name]().fit(z, y))
        for call in (copy.predict_proba, copy.transform):
            with pytest.raises(NotFittedError):
                call(z)
        with pytest.raises(NotFittedError):
            copy.to_dict()

    def test_bad_input_is_named(self, name):
        z, y = two_classes()
        calibrator = CALIBRATORS[name]()
        with pytest.raises(InputError, match="logits must be finite"):
            calibrator.fit(np.where(np.arange(len(z)) == 3, np.nan, z), y)
        with pytest.raises(InputError, match="same number of cases"):
            calibrator.fit(z, y[:-1])
        with pytest.raises(InputError, match="y must be 0 or 1"):
            calibrator.fit(z, y + 1)
        with pytest.raises(InputError, match="sample_weight"):
            calibrator.fit(z, y, sample_weight=-np.ones(len(y)))
        with pytest.raises(InputError, match="of 3 classes, but this calibrator was fitted to 2"):
            calibrator.fit(z, y).predict_proba(np.zeros((2, 3)))

    def test_separable_cases_have_a_finite_answer(self, name, recwarn):
        z = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
        p = CALIBRATORS[name]().fit(z, z > 0).predict_proba(np.array([-2.5, 0.1, 2.5]))[:, 1]
        assert np.isfinite(p).all()
        assert p[0] < 0.5 < p[2]
        assert all(w.category is ScalecalWarning for w in recwarn)

    def test_constant_logits(self, name):
        fitted = CALIBRATORS[name]().fit(np.full(40, 0.5), np.repeat([0, 1], [10, 30]))
        p = fitted.predict_proba(np.array([0.5]))[0, 1]
        if name not in ("identity", "panel"):  # a prior holds the panel's intercept near 0
            assert p == pytest.approx(0.75, abs=0.02)

    def test_all_zero_logits(self, name):
        assert np.isfinite(
            CALIBRATORS[name]().fit(np.zeros(8), [0, 1] * 4).predict_proba([0.0])
        ).all()

    def test_one_class_is_answered_softly_or_refused(self, name, recwarn):
        z = np.linspace(-1, 3, 30)
        calibrator = CALIBRATORS[name]()
        if name in ("isotonic", "histogram"):
            with pytest.raises(InputError, match=r"no other class .* temperature scaling"):
                calibrator.fit(z, np.ones(30))
            with pytest.raises(InputError, match="no case of class 1"):
                calibrator.fit(z, np.zeros(30))
        else:
            p = calibrator.fit(z, np.ones(30)).predict_proba(z)
            assert ((p > 0) & (p < 1)).all()
        assert all(w.category is ScalecalWarning for w in recwarn)

    def test_one_case(self, name, recwarn):
        calibrator = CALIBRATORS[name]()
        if name in ("isotonic", "histogram"):
            with pytest.raises(InputError, match="n = 1"):
                calibrator.fit([1.0], [1])
        else:
            assert 0 < calibrator.fit([1.0], [1]).predict_proba([1.0])[0, 1] < 1
        assert all(w.category is ScalecalWarning for w in recwarn)


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.validity
def test_calibrated_logits_are_left_alone_in_the_limit(name):
    z, y = two_classes(100_000, seed=3, sharpness=1.0)
    new = np.linspace(-4, 4, 33)
    p = CALIBRATORS[name]().fit(z, y).predict_proba(new)[:, 1]
    # Fifteen bins are flat steps; the others have a standard error of about 0.005.
    tolerance = 0.15 if name == "histogram" else 0.03
    assert np.abs(p - expit(new)).max() < tolerance
    many, labels = three_classes(30_000, seed=4, sharpness=1.0)
    p = CALIBRATORS[name]().fit(many, labels).predict_proba(many[:300])
    assert np.abs(p - softmax(many[:300], axis=1)).mean() < (0.05 if name == "histogram" else 0.02)


@pytest.mark.parametrize("name", [n for n in LEARNING if n != "identity"])
def test_over_confidence_is_mended(name):
    z, y = two_classes(5_000, seed=5, sharpness=3.0)
    test, labels = two_classes(5_000, seed=6, sharpness=3.0)
    p = CALIBRATORS[name]().fit(z, y).predict_proba(test)[:, 1]
    before, best = np.mean((expit(test) - labels) ** 2), np.mean((expit(test / 3) - labels) ** 2)
    assert np.mean((p - labels) ** 2) < best + 0.15 * (before - best)


class TestChain:
    def test_is_one_after_the_other(self):
        for z, y in (two_classes(), three_classes()):
            chain = (TemperatureScaling() | BetaCalibration()).fit(z, y)
            first = TemperatureScaling().fit(z, y).transform(z)
            expected = BetaCalibration().fit(first, y).predict_proba(first)
            np.testing.assert_allclose(chain.predict_proba(z), expected)

    def test_composing_is_associative_and_leaves_the_parts_unfitted(self):
        a, b, c = TemperatureScaling(), PlattScaling(), PanelCalibrator(rho=0.1)
        left, right = (a | b) | c, a | (b | c)
        assert [type(s) for s in left.steps] == [type(s) for s in right.steps]
        z, y = two_classes()
        np.testing.assert_array_equal(
            left.fit(z, y).predict_proba(z), right.fit(z, y).predict_proba(z)
        )
        with pytest.raises(NotFittedError):
            a.predict_proba(z)

    def test_saved_cloned_and_own_panels(self):
        z, y = two_classes()
        panel = np.random.default_rng(0).integers(1, 9, len(z))
        chain = (TemperatureScaling() | PanelCalibrator(rho=0.2)).fit(z, y, n_raters=panel)
        again = from_dict(json.loads(json.dumps(chain.to_dict())))
        np.testing.assert_array_equal(
            again.predict_proba(z, n_raters=panel), chain.predict_proba(z, n_raters=panel)
        )
        assert len(clone(chain).steps) == 2

    def test_ends_with_probabilities_of_a_free_curve_untouched(self):
        z, y = two_classes()
        p = Chain([TemperatureScaling(), IsotonicCalibration()]).fit(z, y).predict_proba(z)
        assert p.min() == 0

    def test_promises(self):
        with pytest.raises(InputError, match="at least one calibrator"):
            Chain([]).fit(*two_classes())


def test_an_unknown_name_lists_the_known():
    with pytest.raises(InputError, match=r"unknown calibrator 'magic'.*temperature"):
        from_dict({"name": "magic"})
    with pytest.raises(InputError, match="describes the calibrator 'platt', not 'beta'"):
        BetaCalibration.from_dict({"name": "platt"})


def test_a_saved_calibrator_must_answer_for_each_case():
    saved = (
        CALIBRATORS["ensemble-temperature"]().fit([2.0, -1.0, 0.5, -2.0], [1, 0, 0, 1]).to_dict()
    )
    saved["fitted"]["share_"] = [saved["fitted"]["share_"]]
    with pytest.raises(InputError, match="its answers on 7 cases are of shape"):
        from_dict(saved)
