"""Each calibrator against slow references, limits and public libraries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.calibration import _SigmoidCalibration, _TemperatureScaling
from sklearn.isotonic import IsotonicRegression

from scalecal.calibrators import (
    BetaCalibration,
    HistogramBinning,
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
)
from scalecal.checks import InputError, ScalecalWarning
from scalecal.panel import reader_logit
from tests.calibrators.made import log_loss, three_classes, two_classes


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
        p = fitted.predict_proba([-1.0, 1.0, 2.0])[:, 1]
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
            p = calibrator.fit(z, y).predict_proba(z)[:, 1]
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
        ours = IsotonicCalibration().fit(z, y, sample_weight=w).predict_proba(new)[:, 1]
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


def between(z, n_raters, strength):
    return (1 - strength) * z + strength * reader_logit(z, 0.0, n_raters)


class TestJuryScaling:
    def test_is_the_jury_map(self):
        z, y = two_classes()
        fitted = JuryScaling(n_raters=5, strength=0.4).fit(z, y)
        np.testing.assert_array_equal(fitted.transform(z), between(z, 5, 0.4))
        panel = np.random.default_rng(0).integers(1, 9, len(z))
        np.testing.assert_array_equal(fitted.transform(z, n_raters=panel), between(z, panel, 0.4))

    @pytest.mark.validity
    def test_recovers_vote_probabilities_from_labels(self):
        rng = np.random.default_rng(1)
        vote = expit(rng.normal(0, 1, 20_000))
        label = rng.binomial(7, vote) > 3
        logits = 2.5 * np.log(vote / (1 - vote))  # a probe of the label, not yet calibrated
        chain = BetaCalibration() | JuryScaling(n_raters=7)
        assert np.abs(chain.fit(logits, label).predict_proba(logits)[:, 1] - vote).mean() < 0.01

    def test_auto_is_the_rule_written_out(self):
        z, y = two_classes(300, seed=2, sharpness=1.0)
        chosen = choose_strength(z, y.astype(float), 7)
        losses = []
        for k in range(21):
            out = between(z, 7, k / 20)
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


@pytest.mark.filterwarnings("ignore")
class TestAgainstNetcal:
    def test_temperature(self):
        scaling = pytest.importorskip("netcal.scaling")
        z, y = two_classes(3_000, seed=20)
        p = scaling.TemperatureScaling().fit(expit(z), y).transform(expit(z))
        ours = TemperatureScaling().fit(z, y).predict_proba(z)[:, 1]
        np.testing.assert_allclose(ours, np.ravel(p), atol=2e-3)

    def test_histogram(self):
        binning = pytest.importorskip("netcal.binning")
        z, y = two_classes(3_000, seed=21)
        theirs = binning.HistogramBinning(bins=10).fit(expit(z), y).transform(expit(z))
        ours = HistogramBinning(n_bins=10, strategy="width").fit(z, y).predict_proba(z)[:, 1]
        np.testing.assert_allclose(ours, np.ravel(theirs), atol=1e-9)

    def test_beta(self):
        scaling = pytest.importorskip("netcal.scaling")
        z, y = two_classes(5_000, seed=22)
        theirs = scaling.BetaCalibration().fit(expit(z), y).transform(expit(z))
        ours = BetaCalibration().fit(z, y).predict_proba(z)[:, 1]
        np.testing.assert_allclose(ours, np.ravel(theirs), atol=5e-3)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_saved_temperature_that_is_not_positive_is_refused(value):
    saved = TemperatureScaling().fit(*two_classes()).to_dict()
    with pytest.raises(InputError, match="greater than 0"):
        TemperatureScaling.from_dict({**saved, "fitted": {"temperature_": value}})
