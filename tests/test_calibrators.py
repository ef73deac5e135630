"""Calibrators: one contract for all, slow references, public libraries, degenerate input."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import clone
from sklearn.calibration import _SigmoidCalibration, _TemperatureScaling
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression

from scalecal.calibrators import (
    CALIBRATORS,
    BetaCalibration,
    Chain,
    HistogramBinning,
    Identity,
    IsotonicCalibration,
    JuryScaling,
    PlattScaling,
    TemperatureScaling,
    choose_strength,
    fit_beta,
    fit_histogram,
    fit_platt,
    fit_temperature,
    fit_vector_scaling,
    from_dict,
)
from scalecal.checks import InputError, ScalecalWarning
from scalecal.jury import jury_logit, jury_probability

LEARNING = [name for name in CALIBRATORS if name != "jury"]


def two_classes(n=400, seed=0, sharpness=2.0):
    """Labels drawn from expit(z), logits handed out `sharpness` times too large."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, n)
    return sharpness * z, (rng.random(n) < expit(z)).astype(int)


def three_classes(n=600, seed=0, sharpness=2.0):
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, 3))
    y = (softmax(z, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return sharpness * z, y


def log_loss(z, y, w=None):
    each = -(y * log_expit(z) + (1 - y) * log_expit(-z))
    return np.average(each, weights=w)


@pytest.mark.parametrize("name", CALIBRATORS)
class TestEveryCalibrator:
    def test_its_name_is_its_key(self, name):
        assert CALIBRATORS[name].name == name

    def test_range_and_form(self, name):
        z, y = two_classes()
        fitted = CALIBRATORS[name]().fit(z, y)
        new = np.linspace(-800, 800, 101)
        p = fitted.predict_proba(new)
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
        p = CALIBRATORS[name]().fit(z, y).predict_proba(np.linspace(-20, 20, 500))
        if CALIBRATORS[name].monotone:
            assert (np.diff(p) >= -1e-15).all()
        else:
            assert (np.diff(p) < 0).any()

    def test_two_columns_are_the_binary_calibrator(self, name):
        z, y = two_classes()
        both = np.column_stack([-0.25 * z + 1, 0.75 * z + 1])
        binary, columns = CALIBRATORS[name]().fit(z, y), CALIBRATORS[name]().fit(both, y)
        p = binary.predict_proba(z)
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

    @pytest.mark.parametrize("make", [two_classes, three_classes])
    def test_saved_as_json_and_back(self, name, make):
        z, y = make()
        fitted = CALIBRATORS[name]().fit(z, y)
        again = from_dict(json.loads(json.dumps(fitted.to_dict(), allow_nan=False)))
        assert type(again) is CALIBRATORS[name]
        np.testing.assert_array_equal(again.predict_proba(z), fitted.predict_proba(z))

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
        p = CALIBRATORS[name]().fit(z, z > 0).predict_proba(np.array([-2.5, 0.1, 2.5]))
        assert np.isfinite(p).all()
        assert p[0] < 0.5 < p[2]
        assert all(w.category is ScalecalWarning for w in recwarn)

    def test_constant_logits(self, name):
        fitted = CALIBRATORS[name]().fit(np.full(40, 0.5), np.repeat([0, 1], [10, 30]))
        p = fitted.predict_proba(np.array([0.5]))[0]
        if name not in ("identity", "jury"):
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
            assert 0 < calibrator.fit([1.0], [1]).predict_proba([1.0])[0] < 1
        assert all(w.category is ScalecalWarning for w in recwarn)


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.validity
def test_calibrated_logits_are_left_alone_in_the_limit(name):
    z, y = two_classes(100_000, seed=3, sharpness=1.0)
    new = np.linspace(-4, 4, 33)
    p = CALIBRATORS[name]().fit(z, y).predict_proba(new)
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
    p = CALIBRATORS[name]().fit(z, y).predict_proba(test)
    before, best = np.mean((expit(test) - labels) ** 2), np.mean((expit(test / 3) - labels) ** 2)
    assert np.mean((p - labels) ** 2) < best + 0.15 * (before - best)


class TestTemperature:
    @pytest.mark.parametrize("sharpness", [0.01, 0.5, 3.0, 1e4])
    def test_is_the_minimum_found_by_search(self, sharpness):
        z, y = two_classes(300, seed=7, sharpness=sharpness)
        w = np.random.default_rng(0).random(300)
        soft = 0.9 * y + 0.05
        for targets, weights in ((y, None), (soft, None), (y, w), (soft, w)):
            log_t = minimize_scalar(
                lambda t, a=targets, b=weights: log_loss(z * np.exp(-t), a, b),
                bracket=(np.log(sharpness) - 1, np.log(sharpness) + 1),
            ).x
            assert fit_temperature(z, targets, weights) == pytest.approx(np.exp(log_t), rel=1e-5)

    def test_the_gradient_vanishes_for_many_classes(self):
        z, y = three_classes(500, seed=8)
        w = np.random.default_rng(0).random(500)
        t = fit_temperature(z, y, w)
        p = softmax(z / t, axis=1)
        gradient = w @ ((p - np.eye(3)[y]) * z).sum(axis=1)
        assert abs(gradient) < 1e-6 * w.sum()

    def test_equals_scikit_learn(self):
        z, y = two_classes(800, seed=9)
        beta = _TemperatureScaling().fit(z, y.astype(float)).beta_
        assert 1 / fit_temperature(z, y) == pytest.approx(2 * beta, rel=1e-6)
        many, labels = three_classes(800, seed=9)
        beta = _TemperatureScaling().fit(many, labels.astype(float)).beta_
        assert 1 / fit_temperature(many, labels) == pytest.approx(beta, rel=1e-6)

    @settings(deadline=None)
    @given(st.floats(0.05, 50), st.integers(0, 100))
    def test_scaling_the_logits_scales_the_temperature(self, factor, seed):
        z, y = two_classes(60, seed=seed)
        if ((z > 0) != y).any():
            assert fit_temperature(factor * z, y) == pytest.approx(
                factor * fit_temperature(z, y), rel=1e-6
            )

    def test_all_right_is_left_alone_with_a_warning(self):
        with pytest.warns(ScalecalWarning, match="every validation case is predicted right"):
            assert fit_temperature([-1.0, 1.0], [0, 1]) == 1.0
        with pytest.warns(ScalecalWarning, match="every validation case is predicted right"):
            assert fit_temperature([[9.0, 1.0, 0.0], [0.0, 1.0, 3.0]], [0, 2]) == 1.0

    def test_contradicting_labels_flatten_with_a_warning(self):
        with pytest.warns(ScalecalWarning, match="labels contradict the logits"):
            fitted = TemperatureScaling().fit([-1.0, 1.0, 2.0], [1, 0, 0])
        p = fitted.predict_proba([-1.0, 1.0, 2.0])
        assert np.abs(p - 0.5).max() < 1e-3
        assert (np.diff(p) > 0).all()

    def test_huge_logits(self):
        z = np.array([700.0, 700.0, 700.0, -700.0])
        assert fit_temperature(z, [1, 1, 0, 0]) == pytest.approx(700 / np.log(3), rel=1e-8)


class TestLogistic:
    def test_platt_equals_scikit_learn(self):
        z, y = two_classes(500, seed=10)
        theirs = _SigmoidCalibration().fit(z, y)
        slope, intercept = fit_platt(z, y.astype(float))
        assert slope == pytest.approx(-theirs.a_, abs=1e-4)
        assert intercept == pytest.approx(-theirs.b_, abs=1e-4)

    def test_platt_never_turns_the_order_round(self):
        z, y = two_classes(300)
        slope, intercept = fit_platt(-z, y.astype(float))
        assert slope == 0
        assert expit(intercept) == pytest.approx(y.mean(), abs=0.01)

    def test_vector_scaling_is_a_minimum(self):
        z, y = three_classes(400, seed=11)
        scale, shift = fit_vector_scaling(z, np.eye(3)[y])
        n = np.bincount(y)
        soft = (np.eye(3)[y] * n[y][:, None] + 1) / (n[y][:, None] + 3)

        def loss(a, b):
            return -(soft * log_softmax(log_softmax(z, axis=1) * a + b, axis=1)).sum(axis=1).mean()

        best = loss(scale, shift)
        rng = np.random.default_rng(0)
        for _ in range(50):
            assert loss(scale + 0.01 * rng.normal(size=3), shift + 0.01 * rng.normal(size=3)) > best

    @pytest.mark.parametrize("seed", range(4))
    def test_beta_is_the_constrained_minimum_found_by_search(self, seed):
        rng = np.random.default_rng(seed)
        z = rng.normal(0, 2, 300)
        # The first two seeds need a bound: one end of the scale carries nothing.
        truth = [np.minimum(z, 0), np.maximum(z, 0), 0.5 * z, z + 0.3 * z * (z > 0)][seed]
        y = (rng.random(300) < expit(truth)).astype(float)
        n1, n0 = y.sum(), (1 - y).sum()
        soft = np.where(y == 1, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))

        def loss(x):
            return log_loss(x[0] * log_expit(z) - x[1] * log_expit(-z) + x[2], soft)

        slow = minimize(
            loss, [1.0, 1.0, 0.0], bounds=[(0, None), (0, None), (None, None)],
            options={"ftol": 1e-15, "gtol": 1e-9},
        )  # fmt: skip
        found = fit_beta(z, y)
        assert (found[:2] >= 0).all()
        assert loss(found) <= slow.fun + 1e-9
        np.testing.assert_allclose(found, slow.x, atol=2e-3)

    def test_huge_logits(self):
        z = 300.0 * np.array([-2.0, -1.0, 1.0, 2.0, 1.5, -1.5] * 20)
        y = np.array([0, 1, 1, 1, 0, 0] * 20)
        for calibrator in (PlattScaling(), BetaCalibration()):
            p = calibrator.fit(z, y).predict_proba(z)
            assert p.mean() == pytest.approx(0.5, abs=0.05)
            assert p.max() < 0.999


class TestFree:
    def test_isotonic_equals_scikit_learn(self):
        rng = np.random.default_rng(12)
        z, y = two_classes(500, seed=12)
        z = np.round(z, 1)  # ties
        w = rng.random(500)
        theirs = IsotonicRegression(out_of_bounds="clip", y_min=0, y_max=1).fit(z, y, w)
        new = rng.normal(0, 6, 300)
        ours = IsotonicCalibration().fit(z, y, sample_weight=w).predict_proba(new)
        np.testing.assert_allclose(ours, theirs.predict(new), atol=1e-12)

    def test_histogram_bins_answer_their_mean(self):
        z, y = two_classes(1_003, seed=13)
        edges, values = fit_histogram(z, y.astype(float), n_bins=7)
        assert len(edges) == 6
        inside = [np.flatnonzero(np.searchsorted(edges, z, side="right") == b) for b in range(7)]
        sizes = [len(rows) for rows in inside]
        assert max(sizes) - min(sizes) <= 1
        np.testing.assert_allclose(values, [y[rows].mean() for rows in inside])

    def test_histogram_with_equal_widths(self):
        z = np.array([-9.0, -8.0, 0.1, 9.0])
        edges, values = fit_histogram(z, np.array([0.0, 1, 1, 0]), n_bins=5, strategy="width")
        np.testing.assert_allclose(expit(edges), [0.2, 0.4, 0.6, 0.8])
        np.testing.assert_allclose(values, [0.5, 0.3, 1, 0.7, 0])  # empty bins answer their middle

    def test_histogram_with_fewer_cases_than_bins_or_many_ties(self):
        edges, values = fit_histogram(np.array([1.0, 2.0]), np.array([0.0, 1.0]), n_bins=15)
        assert edges.tolist() == [2.0]
        assert values.tolist() == [0, 1]
        edges, _ = fit_histogram(np.repeat([0.0, 1.0], [99, 1]), np.ones(100), n_bins=4)
        assert edges.tolist() == [1.0]

    def test_a_missing_class_is_named(self):
        with pytest.raises(InputError, match="no case of class 2"):
            HistogramBinning().fit(np.random.default_rng(0).normal(size=(20, 3)), [0, 1] * 10)

    def test_unknown_strategy(self):
        with pytest.raises(InputError, match="strategy must be one of"):
            HistogramBinning(strategy="tall").fit(*two_classes())


class TestJuryScaling:
    def test_is_the_jury_map(self):
        z, y = two_classes()
        fitted = JuryScaling(n_raters=5, strength=0.4).fit(z, y)
        np.testing.assert_array_equal(fitted.transform(z), jury_logit(z, 5, 0.4))
        panel = np.random.default_rng(0).integers(1, 9, len(z))
        np.testing.assert_array_equal(
            fitted.transform(z, n_raters=panel), jury_logit(z, panel, 0.4)
        )

    @pytest.mark.validity
    def test_recovers_vote_probabilities_from_labels(self):
        rng = np.random.default_rng(1)
        vote = expit(rng.normal(0, 1, 20_000))
        label = rng.binomial(7, vote) > 3
        logits = 2.5 * np.log(vote / (1 - vote))  # a probe of the label, not yet calibrated
        chain = BetaCalibration() | JuryScaling(n_raters=7)
        assert np.abs(chain.fit(logits, label).predict_proba(logits) - vote).mean() < 0.01

    def test_auto_is_the_rule_written_out(self):
        z, y = two_classes(300, seed=2, sharpness=1.0)
        chosen = choose_strength(z, y.astype(float), 7)
        losses = []
        for k in range(21):
            out = jury_logit(z, 7, k / 20)
            losses.append(-(y * log_expit(out) + (1 - y) * log_expit(-out)))
        best = losses[int(np.argmin([one.mean() for one in losses]))]
        allowed = [
            k / 20
            for k, one in enumerate(losses)
            if (one - best).mean() <= (one - best).std() / np.sqrt(300) + 1e-15
        ]
        assert chosen == pytest.approx(max(allowed))
        assert 0 < chosen < 1

    def test_auto_shrinks_as_labels_speak_louder(self):
        def strength(n, seed):
            chain = TemperatureScaling() | JuryScaling(strength="auto")
            return chain.fit(*two_classes(n, seed=seed)).steps_[1].strength_

        small = np.mean([strength(100, seed) for seed in range(20)])
        large = np.mean([strength(5_000, seed) for seed in range(20)])
        assert small > large + 0.05

    def test_auto_for_many_classes_and_own_panels(self):
        z, y = three_classes(100, sharpness=1.0)
        panel = np.random.default_rng(0).integers(1, 6, 100)
        fitted = JuryScaling(strength="auto").fit(z, y, n_raters=panel)
        assert 0 <= fitted.strength_ <= 1
        assert fitted.predict_proba(z, n_raters=panel).shape == (100, 3)

    @pytest.mark.parametrize(
        ("options", "words"),
        [({"strength": "full"}, "strength must be one of 'auto'"), ({"strength": 2.0}, "strength"),
         ({"n_raters": 0}, "n_raters must be at least 1")],
    )  # fmt: skip
    def test_bad_options(self, options, words):
        with pytest.raises(InputError, match=words):
            JuryScaling(**options).fit(*two_classes())


class TestChain:
    def test_is_one_after_the_other(self):
        for z, y in (two_classes(), three_classes()):
            chain = (TemperatureScaling() | JuryScaling(3)).fit(z, y)
            alone = TemperatureScaling().fit(z, y)
            expected = JuryScaling(3).fit(z, y).predict_proba(alone.transform(z))
            np.testing.assert_allclose(chain.predict_proba(z), expected)
            back = jury_probability(chain.predict_proba(z), 3)
            np.testing.assert_allclose(back, alone.predict_proba(z), atol=1e-9)

    def test_composing_is_associative_and_leaves_the_parts_unfitted(self):
        a, b, c = TemperatureScaling(), PlattScaling(), JuryScaling(5)
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
        chain = (TemperatureScaling() | JuryScaling(strength="auto")).fit(z, y, n_raters=panel)
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
        assert (Identity() | PlattScaling()).monotone
        assert not (Identity() | HistogramBinning()).monotone
        with pytest.raises(InputError, match="at least one calibrator"):
            Chain([]).fit(*two_classes())


def test_an_unknown_name_lists_the_known():
    with pytest.raises(InputError, match=r"unknown calibrator 'magic'.*temperature"):
        from_dict({"name": "magic"})
    with pytest.raises(InputError, match="describes the calibrator 'platt', not 'beta'"):
        BetaCalibration.from_dict({"name": "platt"})


@pytest.mark.filterwarnings("ignore")
class TestAgainstNetcal:
    def test_temperature(self):
        scaling = pytest.importorskip("netcal.scaling")
        z, y = two_classes(3_000, seed=20)
        p = scaling.TemperatureScaling().fit(expit(z), y).transform(expit(z))
        ours = TemperatureScaling().fit(z, y).predict_proba(z)
        np.testing.assert_allclose(ours, np.ravel(p), atol=2e-3)

    def test_histogram(self):
        binning = pytest.importorskip("netcal.binning")
        z, y = two_classes(3_000, seed=21)
        theirs = binning.HistogramBinning(bins=10).fit(expit(z), y).transform(expit(z))
        ours = HistogramBinning(n_bins=10, strategy="width").fit(z, y).predict_proba(z)
        np.testing.assert_allclose(ours, np.ravel(theirs), atol=1e-9)

    def test_beta(self):
        scaling = pytest.importorskip("netcal.scaling")
        z, y = two_classes(5_000, seed=22)
        theirs = scaling.BetaCalibration().fit(expit(z), y).transform(expit(z))
        ours = BetaCalibration().fit(z, y).predict_proba(z)
        np.testing.assert_allclose(ours, np.ravel(theirs), atol=5e-3)
