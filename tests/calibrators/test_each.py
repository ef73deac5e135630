"""Each calibrator against slow references, limits and public libraries."""

import json

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
    EnsembleTemperature,
    HistogramBinning,
    IsotonicCalibration,
    PanelCalibrator,
    PlattScaling,
    QuadraticScaling,
    SplineCalibration,
    StructuredMatrixScaling,
    TemperatureScaling,
    VennAbers,
    from_dict,
)
from scalecal.checks import InputError, ScalecalWarning
from scalecal.panel import fit_panel, label_logit, reader_logit, vote_moments
from tests.calibrators.made import attributes, log_loss, temperature, three_classes, two_classes


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
            assert temperature(z, targets, weights) == pytest.approx(np.exp(log_t), rel=1e-5)

    def test_the_gradient_vanishes_for_many_classes(self):
        z, y = three_classes(500, seed=8)
        w = np.random.default_rng(0).random(500)
        t = temperature(z, y, w)
        p = softmax(z / t, axis=1)
        gradient = w @ ((p - np.eye(3)[y]) * z).sum(axis=1)
        assert abs(gradient) < 1e-6 * w.sum()

    def test_equals_scikit_learn(self):
        z, y = two_classes(800, seed=9)
        beta = _TemperatureScaling().fit(z, y.astype(float)).beta_
        assert 1 / temperature(z, y) == pytest.approx(2 * beta, rel=1e-6)
        many, labels = three_classes(800, seed=9)
        beta = _TemperatureScaling().fit(many, labels.astype(float)).beta_
        assert 1 / temperature(many, labels) == pytest.approx(beta, rel=1e-6)

    @settings(deadline=None)
    @given(st.floats(0.05, 50), st.integers(0, 100))
    def test_scaling_the_logits_scales_the_temperature(self, factor, seed):
        z, y = two_classes(60, seed=seed)
        if ((z > 0) != y).any():
            assert temperature(factor * z, y) == pytest.approx(factor * temperature(z, y), rel=1e-6)

    def test_all_right_is_left_alone_with_a_warning(self):
        with pytest.warns(ScalecalWarning, match="every validation case is predicted right"):
            assert temperature([-1.0, 1.0], [0, 1]) == 1.0
        with pytest.warns(ScalecalWarning, match="every validation case is predicted right"):
            assert temperature([[9.0, 1.0, 0.0], [0.0, 1.0, 3.0]], [0, 2]) == 1.0

    def test_contradicting_labels_flatten_with_a_warning(self):
        with pytest.warns(ScalecalWarning, match="labels contradict the logits"):
            fitted = TemperatureScaling().fit([-1.0, 1.0, 2.0], [1, 0, 0])
        p = fitted.predict_proba([-1.0, 1.0, 2.0])[:, 1]
        assert np.abs(p - 0.5).max() < 1e-3
        assert (np.diff(p) > 0).all()

    def test_huge_logits(self):
        z = np.array([700.0, 700.0, 700.0, -700.0])
        assert temperature(z, [1, 1, 0, 0]) == pytest.approx(700 / np.log(3), rel=1e-8)


class TestEnsembleTemperature:
    @pytest.mark.parametrize("make", [two_classes, three_classes])
    def test_is_the_best_mixture_found_by_search(self, make):
        z, y = make(300, seed=30)
        y[::7] = (y[::7] + 1) % (y.max() + 1)  # labels at random, whatever the logit
        w = np.random.default_rng(0).random(300)
        table = np.column_stack([0 * z, z]) if z.ndim == 1 else z
        n_classes = table.shape[1]
        t, share = attributes(EnsembleTemperature(), z, y, w)
        assert t == pytest.approx(temperature(z, y, w))
        parts = [
            softmax(table / t, axis=1),
            softmax(table, axis=1),
            np.full_like(table, 1 / n_classes),
        ]

        def loss(x):
            a, b = x
            p = a * parts[0] + b * parts[1] + (1 - a - b) * parts[2]
            return np.average(-np.log(p[np.arange(300), y]), weights=w)

        grid = np.linspace(0, 1, 101)
        slow = min(loss((a, b)) for a in grid for b in grid if a + b <= 1 + 1e-9)
        assert share.sum() == pytest.approx(1)
        assert (share >= 0).all()
        assert loss(share[:2]) <= slow + 1e-9
        assert loss(share[:2]) >= slow - 1e-4

    def test_of_tempered_labels_is_temperature_scaling(self):
        z, y = two_classes(20_000, seed=31)
        mixed = EnsembleTemperature().fit(z, y).predict_proba(z)
        np.testing.assert_allclose(
            mixed, TemperatureScaling().fit(z, y).predict_proba(z), atol=0.01
        )

    def test_finds_the_share_of_random_labels(self):
        rng = np.random.default_rng(32)
        z = rng.normal(0, 8, 50_000)
        y = np.where(
            rng.random(50_000) < 0.1, rng.random(50_000) < 0.5, rng.random(50_000) < expit(z)
        )
        fitted = EnsembleTemperature().fit(z, y)
        assert fitted.share_[2] == pytest.approx(0.1, abs=0.02)
        assert fitted.predict_proba([500.0])[0, 1] == pytest.approx(0.95, abs=0.01)

    def test_keeps_the_ranking_of_classes(self):
        z, y = three_classes(500, seed=33)
        p = EnsembleTemperature().fit(z, y).predict_proba(z)
        np.testing.assert_array_equal(p.argsort(axis=1), z.argsort(axis=1))

    def test_logits_keep_their_order_where_probabilities_cannot(self):
        z, y = two_classes(20_000, sharpness=1.0)
        fitted = EnsembleTemperature().fit(z, y)
        fitted.share_ = np.array([0.5, 0.5, 0.0])
        new = np.array([-600.0, -50.0, -40.0, 40.0, 50.0, 600.0])
        assert (np.diff(fitted.transform(new)) > 0).all()
        assert fitted.predict_proba([40.0])[0, 1] == fitted.predict_proba([50.0])[0, 1]


class TestLogistic:
    def test_platt_equals_scikit_learn(self):
        z, y = two_classes(500, seed=10)
        theirs = _SigmoidCalibration().fit(z, y)
        slope, intercept = attributes(PlattScaling(), z, y)
        assert slope == pytest.approx(-theirs.a_, abs=1e-4)
        assert intercept == pytest.approx(-theirs.b_, abs=1e-4)

    def test_platt_never_turns_the_order_round(self):
        z, y = two_classes(300)
        slope, intercept = attributes(PlattScaling(), -z, y)
        assert slope == 0
        assert expit(intercept) == pytest.approx(y.mean(), abs=0.01)

    def test_vector_scaling_is_a_minimum(self):
        z, y = three_classes(400, seed=11)
        scale, shift = attributes(PlattScaling(), z, y)
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
        (found,) = attributes(BetaCalibration(), z, y)
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


def curve(z, knots, coef):
    """The spline by adding up its slope on a fine grid."""
    grid = np.linspace(knots[0], z, 20_001)
    slope = np.interp(grid, knots, coef[:-1])
    return coef[-1] + ((slope[1:] + slope[:-1]) / 2 * np.diff(grid)).sum()


class TestQuadratic:
    @pytest.mark.parametrize("seed", range(5))
    def test_is_the_best_increasing_quadratic_found_by_search(self, seed):
        rng = np.random.default_rng(seed)
        z = rng.normal(0.5, 2, 400)
        # The last three turn round within the data, one way, the other, and both slopes down.
        truth = [z + 0.05 * z**2, 0.5 * z, z + 0.5 * z**2, z - 0.5 * z**2, -z][seed]
        y = (rng.random(400) < expit(truth)).astype(float)
        n1, n0 = y.sum(), (1 - y).sum()
        soft = np.where(y == 1, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))

        def loss(x):
            return log_loss(x[0] + x[1] * z + x[2] * z**2, soft)

        ends = np.array([z.min(), z.max()])
        slow = minimize(
            loss, [0.0, 1.0, 0.0], method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
            constraints={"type": "ineq", "fun": lambda x: x[1] + 2 * x[2] * ends},
        )  # fmt: skip
        knots, coef = attributes(QuadraticScaling(), z, y)
        np.testing.assert_allclose(knots, ends)
        fitted = QuadraticScaling().fit(z, y).transform(z)
        assert log_loss(fitted, soft) <= slow.fun + 1e-8
        np.testing.assert_allclose(expit(fitted), expit(np.polyval(slow.x[::-1], z)), atol=2e-3)
        assert (coef[:2] >= 0).all()

    def test_goes_on_as_a_line_beyond_the_data(self):
        z, y = two_classes(500, seed=34)
        fitted = QuadraticScaling().fit(z, y)
        out = fitted.transform(z.max() + np.array([0.0, 1.0, 2.0, 100.0]))
        slope = fitted.coef_[0][1]
        np.testing.assert_allclose(np.diff(out), [slope, slope, 98 * slope])
        out = fitted.transform(z.min() - np.array([0.0, 1.0, 2.0, 100.0]))
        slope = fitted.coef_[0][0]
        np.testing.assert_allclose(np.diff(out), [-slope, -slope, -98 * slope])

    def test_the_curve_is_the_integral_of_its_slopes(self):
        z, y = two_classes(500, seed=35)
        for calibrator in (QuadraticScaling(), SplineCalibration()):
            fitted = calibrator.fit(z, y)
            for new in (-30.0, -3.0, 0.0, 0.1, 2.5, 40.0):
                slow = curve(new, fitted.knots_[0], fitted.coef_[0])
                assert fitted.transform([new])[0] == pytest.approx(slow, abs=1e-4)

    def test_two_normal_classes_of_unequal_variance(self):
        rng = np.random.default_rng(36)
        y = rng.integers(0, 2, 200_000)
        z = np.where(y == 1, rng.normal(1, 1.5, len(y)), rng.normal(-1, 1, len(y)))
        new = np.linspace(-1.5, 4, 20)  # where the truth is increasing
        truth = -np.log(1.5) - (new - 1) ** 2 / 4.5 + (new + 1) ** 2 / 2
        p = QuadraticScaling().fit(z[z > -1.8], y[z > -1.8]).predict_proba(new)[:, 1]
        line = PlattScaling().fit(z, y).predict_proba(new)[:, 1]
        assert np.abs(p - expit(truth)).max() < 0.02 < np.abs(line - expit(truth)).max()


class TestSpline:
    @pytest.mark.parametrize("penalty", [1e-4, 1e-1, 1e2])
    def test_is_the_penalised_minimum_found_by_search(self, penalty, monkeypatch):
        monkeypatch.setattr("scalecal.calibrators.logistic._PENALTIES", np.array([penalty]))
        rng = np.random.default_rng(37)
        z = rng.normal(0, 2, 300)
        y = (rng.random(300) < expit(np.where(z > 0, 0.2 * z, 2 * z))).astype(float)
        n1, n0 = y.sum(), (1 - y).sum()
        soft = np.where(y == 1, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))
        knots, coef = attributes(SplineCalibration(n_knots=5), z, y)
        unit = knots[-1] - knots[0]
        basis = np.column_stack(
            [[curve(v, knots, np.append(row, 0)) for v in z] for row in np.eye(5)]
        )

        def loss(x):
            rough = (np.diff(x[:-1] * unit) ** 2 / (np.diff(knots) / unit)).sum()
            return 300 * log_loss(basis @ x[:-1] + x[-1], soft) + 0.5 * penalty * rough

        slow = minimize(
            loss, np.append(np.ones(5), 0), bounds=[(0, None)] * 5 + [(None, None)],
            options={"ftol": 1e-15, "gtol": 1e-8, "maxiter": 5000, "maxfun": 50_000},
        )  # fmt: skip
        assert loss(coef) <= slow.fun + 1e-4
        np.testing.assert_allclose(coef, slow.x, atol=0.02)

    def test_follows_a_bend_that_a_line_cannot(self):
        rng = np.random.default_rng(38)
        z = rng.normal(0, 3, 20_000)
        truth = expit(np.clip(z, -1.5, 1.5))
        y = rng.random(len(z)) < truth
        spline, line = (
            c.fit(z, y).predict_proba(z)[:, 1] for c in (SplineCalibration(), PlattScaling())
        )
        assert np.abs(spline - truth).mean() < 0.02 < np.abs(line - truth).mean()

    def test_is_a_line_where_the_truth_is(self):
        z, y = two_classes(2_000, seed=39)
        spline = SplineCalibration().fit(z, y)
        np.testing.assert_allclose(
            spline.predict_proba(z), PlattScaling().fit(z, y).predict_proba(z), atol=0.03
        )

    def test_one_knot_is_platt(self):
        z, y = two_classes(300, seed=40)
        spline = SplineCalibration(n_knots=1).fit(z, y)
        slope, intercept = attributes(PlattScaling(), z, y)
        value = intercept + slope * spline.knots_[0][0]
        np.testing.assert_allclose(spline.coef_[0], [slope, value], atol=1e-5)

    @settings(deadline=None, max_examples=20)
    @given(st.floats(1e-3, 1e3), st.integers(0, 50))
    def test_the_scale_of_the_logits_does_not_matter(self, factor, seed):
        z, y = two_classes(80, seed=seed)
        one = SplineCalibration().fit(z, y).predict_proba(z)
        other = SplineCalibration().fit(factor * z, y).predict_proba(factor * z)
        np.testing.assert_allclose(one, other, atol=1e-4)

    def test_an_outlier_does_not_take_the_knots(self):
        z, y = two_classes(500, seed=41)
        knots, _ = attributes(SplineCalibration(), np.append(z, 1e5), np.append(y, 1))
        assert knots[-1] < z.max()


class TestVennAbers:
    @settings(deadline=None, max_examples=40)
    @given(st.integers(0, 10_000), st.integers(1, 25), st.booleans())
    def test_equals_two_isotonic_regressions_per_case(self, seed, n, soft):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=n).round(seed % 3)
        y = rng.random(n) if soft else rng.integers(0, 2, n).astype(float)
        w = rng.integers(0, 4, n) + 1.0 * (np.arange(n) == 0)
        fitted = VennAbers().fit(z, y, sample_weight=w)
        new = np.concatenate([z, rng.normal(0, 2, 5)])
        interval, seen = fitted.predict_interval(new), w > 0
        for label in (0, 1):
            for case, p in zip(new, interval[:, label], strict=True):
                slow = IsotonicRegression().fit(
                    np.append(z[seen], case), np.append(y[seen], label), np.append(w[seen], 1.0)
                )
                assert p == pytest.approx(slow.predict([case])[0], abs=1e-12)

    def test_the_answer_lies_between_and_merges_the_two(self):
        z, y = two_classes(200, seed=42)
        fitted = VennAbers().fit(z, y)
        low, high = fitted.predict_interval(z).T
        p = fitted.predict_proba(z)[:, 1]
        assert (low < high).all()
        assert ((low <= p) & (p <= high)).all()
        np.testing.assert_allclose(p, high / (1 - low + high))
        both = fitted.__class__().fit(np.column_stack([-z / 2, z / 2]), y)
        np.testing.assert_allclose(
            both.predict_interval(np.column_stack([-z / 2, z / 2])), np.column_stack([low, high])
        )

    def test_the_interval_shrinks_and_holds_isotonic_regression(self):
        for n, width in ((100, 0.5), (10_000, 0.1)):
            z, y = two_classes(n, seed=43)
            low, high = VennAbers().fit(z, y).predict_interval(z).T
            free = IsotonicCalibration().fit(z, y).predict_proba(z)[:, 1]
            assert ((low <= free + 1e-12) & (free <= high + 1e-12)).all()
            assert (high - low).mean() < width

    def test_mirrored_cases_have_mirrored_intervals(self):
        z, y = two_classes(150, seed=44)
        one = VennAbers().fit(z, y).predict_interval(z)
        other = VennAbers().fit(-z, 1 - y).predict_interval(-z)
        np.testing.assert_allclose(one, 1 - other[:, ::-1], atol=1e-12)

    def test_keeps_steps_only(self):
        z, y = two_classes(20_000, seed=45)
        arrays = attributes(VennAbers(), z, y)
        assert max(map(len, arrays)) < 2_000
        for knots, values in (arrays[:2], arrays[2:]):
            assert len(values) == len(knots) + 1
            assert (np.diff(values) > 0).all()

    def test_several_classes(self):
        z, y = three_classes(400, seed=46)
        fitted = VennAbers().fit(z, y)
        interval = fitted.predict_interval(z)
        assert interval.shape == (400, 3, 2)
        raw = interval[..., 1] / (1 - interval[..., 0] + interval[..., 1])
        np.testing.assert_allclose(fitted.predict_proba(z), raw / raw.sum(axis=1, keepdims=True))

    @pytest.mark.validity
    def test_one_of_the_two_is_calibrated(self):
        """The mean of the interval's end that the label chose is the share of positives."""
        rng = np.random.default_rng(47)
        chosen, labels = [], []
        for _ in range(4_000):
            z = rng.normal(0, 2, 21)
            y = rng.random(21) < expit(np.sin(z) * 2)
            interval = VennAbers().fit(z[:20], y[:20]).predict_interval(z[20:])[0]
            chosen.append(interval[int(y[20])])
            labels.append(y[20])
        chosen, labels = np.array(chosen), np.array(labels, dtype=float)
        for part in (chosen < 0.35, (chosen >= 0.35) & (chosen < 0.65), chosen >= 0.65):
            error = (labels - chosen)[part]
            assert abs(error.mean()) < 4 * error.std() / np.sqrt(part.sum())


class TestStructuredMatrix:
    def test_is_the_penalised_minimum_found_by_search(self):
        z, y = three_classes(150, seed=48)
        w = np.random.default_rng(0).random(150) + 0.5
        n = w.sum()
        t, u, matrix, shift = attributes(StructuredMatrixScaling(), z, y, w)
        assert t == pytest.approx(temperature(z, y, w))
        assert u == pytest.approx(1 / (n + 1))
        log_p = np.log((1 - u) * softmax(z / t, axis=1) + u / 3)

        def loss(x):
            W, b = x[:9].reshape(3, 3), x[9:]
            out = log_softmax(log_p @ W.T + b, axis=1)[np.arange(150), y]
            off = W - np.diag(np.diag(W))
            return -w @ out + 3 * b @ b + 3 * ((np.diag(W) - 1) ** 2).sum() + 6 * (off**2).sum()

        start = np.append(np.eye(3).ravel(), np.zeros(3))
        slow = minimize(loss, start, options={"gtol": 1e-5})
        found = np.append(matrix.ravel(), shift)
        assert loss(found) <= slow.fun + 1e-7
        np.testing.assert_allclose(found, slow.x, atol=1e-4)

    def test_few_cases_are_given_a_temperature_and_many_a_matrix(self):
        rng = np.random.default_rng(49)
        truth = np.array([[1.0, 0.4, 0.0], [0.0, 0.6, 0.0], [-0.3, 0.0, 1.2]])
        z = log_softmax(rng.normal(0, 2, (40_000, 3)), axis=1)
        y = (softmax(z @ truth.T, axis=1).cumsum(axis=1) < rng.random((40_000, 1))).sum(axis=1)
        few = StructuredMatrixScaling().fit(z[:6], [0, 1, 2, 1, 2, 0])
        assert np.abs(few.matrix_ - np.eye(3)).max() < 0.15
        p = StructuredMatrixScaling().fit(z, y).predict_proba(z)
        assert np.abs(p - softmax(z @ truth.T, axis=1)).mean() < 0.01

    def test_two_classes_are_platt(self):
        z, y = two_classes(200, seed=50)
        np.testing.assert_array_equal(
            StructuredMatrixScaling().fit(z, y).predict_proba(z),
            PlattScaling().fit(z, y).predict_proba(z),
        )

    def test_a_number_added_to_all_logits_of_a_case_changes_nothing(self):
        z, y = three_classes(200, seed=51)
        fitted = StructuredMatrixScaling().fit(z, y)
        np.testing.assert_allclose(
            fitted.predict_proba(z + np.arange(200)[:, None]), fitted.predict_proba(z), atol=1e-12
        )

    @pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")
    def test_huge_logits_and_missing_classes(self):
        z, y = three_classes(60, seed=52)
        for scale in (1e-8, 1e5):
            fitted = StructuredMatrixScaling().fit(scale * z, np.minimum(y, 1))
            assert np.isfinite(fitted.transform(scale * z)).all()
            assert fitted.predict_proba(scale * z)[:, 2].max() < 0.7


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
        edges, values = attributes(HistogramBinning(n_bins=7), z, y)
        assert len(edges) == 6
        inside = [np.flatnonzero(np.searchsorted(edges, z, side="right") == b) for b in range(7)]
        sizes = [len(rows) for rows in inside]
        assert max(sizes) - min(sizes) <= 1
        np.testing.assert_allclose(values, [y[rows].mean() for rows in inside])

    def test_histogram_with_equal_widths(self):
        z = np.array([-9.0, -8.0, 0.1, 9.0])
        edges, values = attributes(HistogramBinning(5, "width"), z, [0, 1, 1, 0])
        np.testing.assert_allclose(expit(edges), [0.2, 0.4, 0.6, 0.8])
        np.testing.assert_allclose(values, [0.5, 0.3, 1, 0.7, 0])  # empty bins answer their middle

    def test_histogram_with_fewer_cases_than_bins_or_many_ties(self):
        edges, values = attributes(HistogramBinning(n_bins=15), [1.0, 2.0], [0, 1])
        assert edges.tolist() == [2.0]
        assert values.tolist() == [0, 1]
        edges, _ = attributes(HistogramBinning(4), np.repeat([0.0, 1.0], [99, 1]), [0, 1] * 50)
        assert edges.tolist() == [1.0]

    def test_a_missing_class_is_named(self):
        with pytest.raises(InputError, match="no case of class 2"):
            HistogramBinning().fit(np.random.default_rng(0).normal(size=(20, 3)), [0, 1] * 10)

    def test_unknown_strategy(self):
        with pytest.raises(InputError, match="strategy must be one of"):
            HistogramBinning(strategy="tall").fit(*two_classes())


def read_cases(n=2_000, rho=0.2, seed=0):
    """Logits of a probe that is over-confident about the label, and votes of seven readers."""
    rng = np.random.default_rng(seed)
    reader = rng.normal(0, 1.5, n)
    p = rng.beta(expit(reader) * (1 - rho) / rho, expit(-reader) * (1 - rho) / rho)
    votes = rng.binomial(7, p)
    return 2.0 * label_logit(reader, rho, 7), (votes >= 4).astype(int), votes, expit(reader)


class TestPanelCalibrator:
    def test_both_answers_are_those_of_the_panel(self):
        z, y, votes, _ = read_cases()
        fitted = PanelCalibrator().fit(z, y, votes=votes, n_raters=7)
        panel = fit_panel(z, y, votes, 7)
        assert fitted.panel_.rho == pytest.approx(panel.rho)
        np.testing.assert_allclose(fitted.transform(z), panel.label_logit(z))
        reader = fitted.predict_reader_proba(z)
        np.testing.assert_allclose(reader.sum(axis=1), 1)
        np.testing.assert_allclose(reader[:, 1], expit(panel.reader_logit(z)))
        law = fitted.predict_votes(z)
        np.testing.assert_allclose(law.sum(axis=1), 1)
        np.testing.assert_allclose(law @ np.arange(8) / 7, reader[:, 1])
        np.testing.assert_allclose(law[:, 4:].sum(axis=1), fitted.predict_proba(z)[:, 1])
        np.testing.assert_allclose(law[:, 3:5].sum(axis=1), fitted.predict_disagreement(z))
        assert fitted.predict_votes(z, 3).shape == (2_000, 4)

    @pytest.mark.parametrize("way", ["votes", "kappa", "rho"])
    def test_recovers_label_and_vote(self, way):
        z, y, votes, truth = read_cases(20_000)
        kappa, share = vote_moments(np.column_stack([7 - votes, votes]))
        options = {"kappa": {"kappa": kappa, "vote_share": share[1]}, "rho": {"rho": 0.2}}
        fitted = PanelCalibrator(**options.get(way, {}))
        fitted.fit(z, y, n_raters=7, votes=votes if way == "votes" else None)
        assert np.abs(fitted.predict_reader_proba(z)[:, 1] - truth).mean() < 0.01
        assert np.abs(fitted.predict_proba(z)[:, 1] - expit(z / 2)).mean() < 0.01
        assert fitted.panel_.rho == pytest.approx(0.2, abs=0.03)

    def test_a_fixed_rho_is_used_as_it_is(self):
        z, y = two_classes()
        fitted = PanelCalibrator(rho=0.0).fit(z, y, n_raters=5)
        np.testing.assert_allclose(
            fitted.reader_logits(z), reader_logit(fitted.transform(z), 0.0, 5)
        )

    def test_calibrators_of_0_2_0_load_and_mixtures_are_refused(self):
        z, y = two_classes()
        fitted = PanelCalibrator(rho=0.0).fit(z, y, n_raters=5)
        saved = fitted.to_dict()
        saved["params"]["strength"] = 1.0
        np.testing.assert_array_equal(from_dict(saved).reader_logits(z), fitted.reader_logits(z))
        saved["params"]["strength"] = 0.5
        with pytest.raises(InputError, match="was removed: fit it again"):
            from_dict(saved)

    def test_labels_of_another_panel(self):
        z, y, votes, _ = read_cases()
        fitted = PanelCalibrator().fit(z, y, votes=votes, n_raters=7)
        sizes = np.tile([1, 3, 7, 25], 500)
        p = fitted.transform(z, n_raters=sizes)
        np.testing.assert_allclose(p[2::4], fitted.transform(z)[2::4])
        np.testing.assert_allclose(p[0::4], fitted.reader_logits(z)[0::4], rtol=1e-9)
        assert (np.abs(p[3::4]) >= np.abs(fitted.transform(z)[3::4])).all()

    def test_without_readers_the_label_is_calibrated_and_the_reader_refused(self):
        z, y = two_classes()
        fitted = PanelCalibrator().fit(z, y)
        assert fitted.panel_.slope < 1
        for ask in (fitted.predict_reader_proba, fitted.predict_votes, fitted.predict_disagreement):
            with pytest.raises(InputError, match=r"votes of some cases .* kappa"):
                ask(z)
        with pytest.raises(InputError, match="kappa needs the panel's size"):
            PanelCalibrator(kappa=0.4).fit(z, y)

    def test_some_votes_some_single_reads(self):
        z, y, votes, truth = read_cases(4_000)
        seen, m = votes.astype(float), np.full(4_000, 7.0)
        seen[1_000:] = np.nan
        rng = np.random.default_rng(1)
        seen[1_000:2_000] = rng.random(1_000) < votes[1_000:2_000] / 7
        m[1_000:2_000] = 1
        fitted = PanelCalibrator().fit(z, y, votes=seen, n_raters=m, panel_size=7)
        assert fitted.panel_.panel_size == 7
        assert np.abs(fitted.predict_reader_proba(z)[:, 1] - truth).mean() < 0.02

    def test_saved(self):
        z, y, votes, _ = read_cases(300)
        for fitted in (
            PanelCalibrator().fit(z, y, votes=votes, n_raters=7),
            PanelCalibrator(kappa=0.4, vote_share=0.5).fit(z, y, n_raters=7),
        ):
            again = from_dict(json.loads(json.dumps(fitted.to_dict())))
            np.testing.assert_array_equal(
                again.predict_reader_proba(z), fitted.predict_reader_proba(z)
            )

    def test_several_classes(self):
        rng = np.random.default_rng(0)
        z, y = three_classes(400)
        p = np.apply_along_axis(lambda a: rng.dirichlet(4 * a), 1, softmax(z, axis=1))
        votes = np.array([rng.multinomial(5, row) for row in p])
        fitted = PanelCalibrator().fit(z, y, votes=votes, panel_size=5)
        assert fitted.predict_reader_proba(z).shape == (400, 3)
        assert fitted.predict_votes(z).shape == (400, 3, 6)
        np.testing.assert_allclose(fitted.predict_votes(z).sum(axis=2), 1)
        assert ((fitted.predict_disagreement(z) >= 0) & (fitted.predict_disagreement(z) <= 1)).all()

    @pytest.mark.parametrize(
        ("options", "words"),
        [({"rho": 1.5}, "rho must lie in"),
         ({"kappa": 2.0}, "kappa must lie in"), ({"kappa": 0.4, "vote_share": 1.0}, "vote_share")],
    )  # fmt: skip
    def test_bad_options(self, options, words):
        with pytest.raises(InputError, match=words):
            PanelCalibrator(**options).fit(*two_classes(), n_raters=7)


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


def import_venn_abers():
    with np.errstate():  # it turns numpy's warnings off for good
        return pytest.importorskip("venn_abers")


@pytest.mark.filterwarnings("ignore")
class TestAgainstOthers:
    """probmetrics (Berta et al.) and venn-abers (Petej), where they are installed."""

    @pytest.mark.parametrize(
        ("ours", "theirs", "tolerance"),
        [(TemperatureScaling(), "temp-scaling", 1e-6), (PlattScaling(), "affine-scaling", 2e-3),
         (QuadraticScaling(), "quadratic-scaling", 2e-3), (VennAbers(), "ivap-ovr", 1e-3)],
    )  # fmt: skip
    def test_probmetrics_two_classes(self, ours, theirs, tolerance):
        peer = pytest.importorskip("probmetrics.calibrators")
        if theirs == "ivap-ovr":
            import_venn_abers()
        rng = np.random.default_rng(60)
        z = rng.normal(0, 1.5, 5_000)
        y = (rng.random(5_000) < expit(0.6 * z + 0.03 * z**2)).astype(int)
        p = np.column_stack([expit(-z), expit(z)])
        fitted = peer.get_calibrator(theirs).fit(p, y)
        np.testing.assert_allclose(
            ours.fit(z, y).predict_proba(z), fitted.predict_proba(p), atol=tolerance
        )

    def test_probmetrics_several_classes(self):
        peer = pytest.importorskip("probmetrics.calibrators")
        z, y = three_classes(2_000, seed=61)
        p = softmax(z, axis=1)
        pairs = {
            "structured": (StructuredMatrixScaling(), peer.get_calibrator("sms"), 5e-3),
            "ensemble": (EnsembleTemperature(), peer.ETSCalibrator(loss="ce"), 1e-4),
        }
        for ours, theirs, tolerance in pairs.values():
            np.testing.assert_allclose(
                ours.fit(z, y).predict_proba(z), theirs.fit(p, y).predict_proba(p), atol=tolerance
            )

    def test_venn_abers(self):
        peer = import_venn_abers()
        z, y = two_classes(2_000, seed=62)
        z = np.round(z, 2)
        p = np.column_stack([expit(-z), expit(z)])
        theirs = peer.VennAbers()
        theirs.fit(p, y)
        merged, interval = theirs.predict_proba(p)
        ours = VennAbers().fit(z, y)
        np.testing.assert_allclose(ours.predict_interval(z), interval, atol=1e-9)
        np.testing.assert_allclose(ours.predict_proba(z), merged, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_saved_temperature_that_is_not_positive_is_refused(value):
    saved = TemperatureScaling().fit(*two_classes()).to_dict()
    with pytest.raises(InputError, match="greater than 0"):
        TemperatureScaling.from_dict({**saved, "fitted": {"temperature_": value}})
