"""The flexible curve: its basis and fit against slow references and R, its errors, bands and limits."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from scalecal import audit
from scalecal.evaluation.gates import gate_failures
from scalecal.inference.curves import (
    ERRORS,
    KNOTS,
    FlexibleCurve,
    curve_row,
    fit_curve,
    rcs_basis,
    weighted_quantiles,
)
from scalecal.inference.units import Units

PEER = json.loads((Path(__file__).parent / "peer_curves.json").read_text(encoding="utf-8"))


def drawn(n, seed=0, slope=0.6, shift=0.0, centre=0.0):
    rng = np.random.default_rng(seed)
    z = centre + 1.5 * rng.normal(size=n)
    y = (rng.random(n) < expit(shift + slope * z)).astype(float)
    return y, expit(z)


def curve_of(y, p, units=None, **options):
    curve = fit_curve(y, p, units or Units.of(len(y)), **options)
    assert isinstance(curve, FlexibleCurve), curve
    return curve


def natural_spline(z, knots):
    """Restricted cubic spline as a cubic spline whose tails are linear, constraint by constraint."""
    columns = [np.ones_like(z), z]
    # Truncated cubics a_j (z - t_j)+^3 whose sums of a_j and a_j t_j vanish: linear beyond the last knot.
    constraints = np.vstack([np.ones_like(knots), knots])
    _, _, rows = np.linalg.svd(constraints)
    cubics = np.maximum(z[:, None] - knots, 0.0) ** 3
    return np.column_stack([*columns, cubics @ rows[2:].T])


@pytest.mark.parametrize("count", [3, 4, 5])
def test_the_basis_spans_the_natural_splines(count):
    z, knots = np.linspace(-4, 4, 201), np.linspace(-2, 1.5, count)
    basis, reference = rcs_basis(z, knots), natural_spline(z, knots)
    assert basis.shape[1] == count == np.linalg.matrix_rank(basis)
    fitted = reference @ np.linalg.lstsq(reference, basis, rcond=None)[0]
    np.testing.assert_allclose(fitted, basis, atol=1e-8)


def test_the_basis_is_linear_beyond_the_outer_knots():
    knots = np.array([-1.0, 0.0, 0.4, 2.0])
    for z in (np.linspace(-9, -1, 30), np.linspace(2, 9, 30)):
        np.testing.assert_allclose(np.diff(rcs_basis(z, knots), 2, axis=0), 0.0, atol=1e-9)


@given(
    values=st.lists(st.integers(-50, 50), min_size=1, max_size=30, unique=True),
    data=st.data(),
)
def test_weighted_quantiles_are_those_of_all_cases(values, data):
    values = np.sort(np.array(values, dtype=float))
    mass = np.array(
        data.draw(st.lists(st.integers(1, 5), min_size=len(values), max_size=len(values)))
    )
    shares = np.array([0.0, 0.05, 0.275, 0.5, 0.95, 1.0])
    expected = np.quantile(np.repeat(values, mass), shares)
    np.testing.assert_allclose(weighted_quantiles(values, mass.astype(float), shares), expected)


@pytest.mark.parametrize("shares", [False, True])
def test_the_fit_is_that_of_a_general_optimiser(shares):
    y, p = drawn(400)
    if shares:
        rng = np.random.default_rng(1)
        y = rng.binomial(5, expit(0.7 * logit(p))) / 5
    curve = curve_of(y, p, n_coefficients=5)
    x = natural_spline(logit(p), np.quantile(logit(p), KNOTS[5]))
    x = np.linalg.qr(x)[0] * 20

    def loss(b):
        eta = x @ b
        return (np.logaddexp(0, eta) - y * eta).sum(), x.T @ (expit(eta) - y)

    best = minimize(loss, np.zeros(5), jac=True, method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(curve.at(p), expit(x @ best.x), atol=1e-6)
    if not shares:
        peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000, fit_intercept=False)
        np.testing.assert_allclose(curve.at(p), peer.fit(x, y).predict_proba(x)[:, 1], atol=1e-5)


@pytest.mark.parametrize("name", PEER["cases"])
def test_curve_and_errors_are_those_of_rms(name):
    peer = PEER["cases"][name]
    y, p = np.array(peer["y"], dtype=float), np.array(peer["p"])
    curve = curve_of(y, p, n_coefficients=len(peer["knots"]))
    np.testing.assert_allclose(curve.knots, peer["knots"], atol=1e-6)
    np.testing.assert_allclose(curve.at(p), peer["value"], atol=1e-5)
    errors = curve.errors()
    for key in ERRORS:
        assert errors[key] == pytest.approx(peer[key], abs=1e-5)


def test_cells_change_next_to_nothing():
    y, p = drawn(30_000)
    curve = curve_of(y, p, n_coefficients=5)
    assert len(curve.gathered.z) <= 1024
    x = natural_spline(logit(p), np.quantile(logit(p), KNOTS[5]))
    x = np.linalg.qr(x)[0] * 170
    peer = LogisticRegression(C=np.inf, tol=1e-10, solver="newton-cholesky", fit_intercept=False)
    height = peer.fit(x, y).predict_proba(x)[:, 1]
    np.testing.assert_allclose(curve.at(p), height, atol=3e-4)
    gap = np.abs(height - p)
    expected = [gap.mean(), *np.quantile(gap, [0.5, 0.9]), gap.max()]
    found = curve.errors()
    np.testing.assert_allclose([found[key] for key in ERRORS], expected, atol=2e-4)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_order_of_the_cases_is_no_matter(seed):
    y, p = drawn(1500, seed)
    groups = np.arange(1500) // 10
    order = np.random.default_rng(seed).permutation(1500)
    for codes in (None, groups):
        there = curve_row(y, p, Units.of(1500, groups=codes))
        moved = None if codes is None else codes[order]
        back = curve_row(y[order], p[order], Units.of(1500, groups=moved))
        for key in set(there) - {"curve_reason"}:
            assert back[key] == pytest.approx(there[key], rel=1e-6, abs=1e-9), key


def test_a_row_of_weight_three_is_three_cases():
    y, p = drawn(300)
    times = np.random.default_rng(0).integers(1, 4, 300)
    whole = curve_row(np.repeat(y, times), np.repeat(p, times), Units.of(int(times.sum())))
    short = curve_row(y, p, Units.of(300, sample_weight=times))
    for key in set(whole) - {"curve_reason"}:
        assert short[key] == pytest.approx(whole[key], rel=1e-8), key


def test_groups_of_one_case_are_cases():
    y, p = drawn(300)
    alone = curve_row(y, p, Units.of(300))
    assert curve_row(y, p, Units.of(300, groups=np.arange(300))) == alone


def test_pairs_of_identical_cases_are_worth_half_as_many():
    y, p = drawn(500)
    single = curve_of(y, p)
    doubled = np.repeat(np.arange(500), 2)
    pairs = curve_of(
        y[doubled], p[doubled], Units.of(1000, groups=doubled), n_coefficients=len(single.knots)
    )
    grid = single.grid()
    one, two = single.band(grid), pairs.band(grid)
    np.testing.assert_allclose(two["value"], one["value"], atol=2e-3)
    np.testing.assert_allclose(two["high"] - two["low"], one["high"] - one["low"], rtol=0.15)
    ignored = curve_of(y[doubled], p[doubled]).band(grid)
    assert (ignored["high"] - ignored["low"]).mean() < 0.8 * (two["high"] - two["low"]).mean()


def test_standard_errors_of_a_line_of_shares_are_those_of_a_sandwich():
    _, p = drawn(250)
    y = np.random.default_rng(2).binomial(5, expit(0.7 * logit(p))) / 5
    curve = curve_of(y, p, n_coefficients=2)
    x = np.column_stack([np.ones(250), logit(p)])
    mu = curve.at(p)
    bread = np.linalg.inv((x * (mu * (1 - mu))[:, None]).T @ x)
    # Case by case, without the cells: each score over one less its leverage.
    leverage = mu * (1 - mu) * np.einsum("ij,jk,ik->i", x, bread, x)
    score = x * ((y - mu) / (1 - leverage))[:, None]
    error = np.sqrt(np.einsum("ij,jk,ik->i", x, bread @ score.T @ score @ bread, x))
    band = curve.band(p)
    np.testing.assert_allclose(
        logit(band["high"]) - logit(band["value"]), 1.959963985 * error, rtol=1e-6
    )


def test_a_band_of_labels_is_at_least_that_of_the_likelihood():
    y, p = drawn(250)
    curve = curve_of(y, p, n_coefficients=2)
    x = np.column_stack([np.ones(250), logit(p)])
    mu = curve.at(p)
    covariance = np.linalg.inv((x * (mu * (1 - mu))[:, None]).T @ x)
    error = np.sqrt(np.einsum("ij,jk,ik->i", x, covariance, x))
    band = curve.band(p)
    ratio = (logit(band["high"]) - logit(band["value"])) / (1.959963985 * error)
    assert 1 - 1e-9 <= ratio.min() <= ratio.max() < 1.2


def test_the_jackknife_of_groups_agrees_with_leaving_each_out():
    y, p = drawn(600)
    groups = np.arange(600) // 20
    curve = curve_of(y, p, Units.of(600, groups=groups), n_coefficients=2)
    x = np.column_stack([np.ones(600), logit(p)])
    every = []
    for group in range(30):
        kept = groups != group
        every.append(curve_of(y[kept], p[kept], n_coefficients=2).at(p))
    middle = logit(curve.at(p))
    error = np.sqrt(((logit(np.array(every)) - middle) ** 2).sum(axis=0))
    own = np.sqrt(((curve.basis(p) @ curve.spread) ** 2).sum(axis=1))
    np.testing.assert_allclose(own, error, rtol=0.1)
    assert x.shape == (600, 2)


def test_importance_weights_move_the_curve_to_the_population():
    rng = np.random.default_rng(3)
    z = -2.5 + 1.5 * rng.normal(size=60_000)
    y = (rng.random(60_000) < expit(z)).astype(int)
    prevalence = y.mean()
    kept = (y == 1) | (rng.random(60_000) < 0.15)
    y, p = y[kept], expit(z[kept])
    units = Units.of(len(y)).weighted(y, prevalence)
    errors = curve_of(y.astype(float), p, units).errors()
    assert errors["ici"] < 0.01 < 0.1 < curve_of(y.astype(float), p).errors()["ici"]
    assert errors["ici_low"] < 0.003


def test_weighted_cases_are_worth_their_effective_number():
    y, p = drawn(300, centre=-1.0)
    units = Units.of(300).weighted(y.astype(int), 0.01)
    worth = units.weights.sum() ** 2 / (units.weights**2).sum()
    assert curve_of(y, p, units).degrees <= worth - 1 < 250


def test_shares_of_few_votes_and_of_their_labels_have_one_curve():
    _, p = drawn(300)
    votes = np.random.default_rng(1).binomial(1, expit(0.5 * logit(p)), (5, 300))
    each = curve_of(votes.ravel().astype(float), np.tile(p, 5), n_coefficients=4)
    shares = curve_of(votes.mean(axis=0), p, n_coefficients=4)
    np.testing.assert_allclose(each.at(p), shares.at(p), atol=1e-2)


@pytest.mark.parametrize(
    ("y", "p", "groups", "why"),
    [
        (np.ones(50), np.linspace(0.1, 0.9, 50), None, "one class"),
        (np.arange(50) % 2, np.full(50, 0.3), None, "all probabilities are equal"),
        (np.arange(50) % 2, np.arange(50) // 25, None, "0 or 1"),
        (np.arange(50) > 24, np.linspace(0.1, 0.9, 50), None, "separate"),
        (np.arange(7) % 2, np.linspace(0.1, 0.9, 7), None, "too few cases"),
        (np.arange(50) % 2, np.linspace(0.1, 0.9, 50), np.arange(50) % 7, "too few groups"),
    ],
)
def test_no_curve_has_a_reason(y, p, groups, why):
    y, p = np.asarray(y, dtype=float), np.asarray(p, dtype=float)
    row = curve_row(y, p, Units.of(len(y), groups=groups))
    assert why in row["curve_reason"]
    assert all(np.isnan(row[f"{key}{end}"]) for key in ERRORS for end in ("", "_low", "_floor"))


def test_probabilities_of_zero_and_one_among_others_are_no_obstacle():
    y, p = drawn(400)
    p[:3], y[:3] = 0.0, 0.0
    p[3:6], y[3:6] = 1.0, 1.0
    assert np.isfinite(curve_row(y, p, Units.of(400))["ici"])


def test_few_values_of_p_get_few_coefficients():
    y, _ = drawn(600)
    p = np.tile([0.2, 0.5, 0.7], 200)
    curve = curve_of(y, p)
    for value in np.unique(p):
        if len(curve.knots) == 3:
            assert curve.at(np.array([value]))[0] == pytest.approx(y[p == value].mean(), abs=1e-6)
    assert len(curve.coefficients) <= 3


def test_bands_and_intervals_are_nested():
    y, p = drawn(500, slope=0.5)
    curve = curve_of(y, p)
    band = curve.band(curve.grid())
    for low, high in (
        ("all_low", "low"),
        ("low", "value"),
        ("value", "high"),
        ("high", "all_high"),
    ):
        assert (band[low] <= band[high]).all()
    ends = np.quantile(p, [0.025, 0.975])
    np.testing.assert_allclose(curve.range, ends, rtol=0.02)
    np.testing.assert_allclose(curve.grid()[[0, -1]], curve.range)
    row = curve.errors()
    for key in ERRORS:
        assert 0 <= row[f"{key}_low"] <= row[key] <= row[f"{key}_high"]
        assert row[f"{key}_floor"] > 0
    assert row["e50"] <= row["e90"] <= row["emax"]


def test_the_floor_is_the_mean_of_calibrated_models():
    _, p = drawn(500)
    rng = np.random.default_rng(5)
    found = [curve_of((rng.random(500) < p).astype(float), p).errors() for _ in range(60)]
    for key in ("ici", "e50", "e90"):
        mean = np.mean([row[key] for row in found])
        floor = np.mean([row[f"{key}_floor"] for row in found])
        assert floor == pytest.approx(mean, rel=0.2)


@pytest.mark.validity
@pytest.mark.parametrize("size", [1, 20])
def test_size_and_coverage(size):
    """Calibrated: the interval starts at 0. Half the slope: it holds the truth, and the band the curve."""
    runs, n = 60, 1000
    groups = np.arange(n) // size
    zero, held, inside = [], [], []
    for run in range(runs):
        rng = np.random.default_rng([11, run])
        z = 1.5 * rng.normal(size=n)
        p = expit(z)
        u = rng.random(n)
        units = Units.of(n, groups=groups)
        zero.append(curve_of((u < p).astype(float), p, units).errors()["ici_low"] == 0)
        q = expit(0.5 * z)
        curve = curve_of((u < q).astype(float), p, units)
        row, band = curve.errors(), curve.band(curve.grid())
        truth = expit(0.5 * logit(curve.grid()))
        held.append(row["ici_low"] <= np.abs(q - p).mean() <= row["ici_high"])
        inside.append(((band["all_low"] <= truth) & (truth <= band["all_high"])).all())
    # Two standard errors of 60 runs below .95.
    for rate in (zero, held, inside):
        assert np.mean(rate) > 0.89


def test_an_audit_has_the_errors_and_a_gate_may_ask_for_them():
    y, p = drawn(800, slope=0.4)
    result = audit(
        y.astype(int), p, strata=np.array(["a", "b"])[np.arange(800) % 2], n_resamples=20
    )
    for row in result.rows:
        assert row["ici_low"] <= row["ici"] <= row["ici_high"]
    assert [
        str(f).split(":")[0] for f in gate_failures(["ici > 0.05", "a: emax > 1"], result.rows)
    ] == ["ici > 0.05"]


def test_strata_that_the_votes_made_have_none_and_the_gate_says_why():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=600)
    votes = rng.binomial(7, p)
    result = audit((votes > 3).astype(int), p, votes=votes, n_raters=7, n_resamples=20)
    assert np.isfinite(result["overall"]["ici"])
    assert np.isnan(result["low"]["ici"])
    (failure,) = gate_failures(["low: ici > 0.9"], result.rows)
    assert "the votes made this stratum" in str(failure)


def test_of_several_classes_the_event_is_that_the_top_class_is_right():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 500)
    y = np.array([rng.choice(3, p=row) for row in probs])
    row = audit(y, probs, n_resamples=20)["overall"]
    right = (probs.argmax(axis=1) == y).astype(float)
    assert row["ici"] == curve_row(right, probs.max(axis=1), Units.of(500))["ici"]
