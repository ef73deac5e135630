import itertools
from dataclasses import replace

import numpy as np
import pytest

from scalecal.cases import Factor
from scalecal.checks import InputError
from scalecal.datasets import simulate
from scalecal.evaluation.evaluations import evaluate
from scalecal.panel import vote_moments
from scalecal.probes import LinearProbe, ScaleProbe
from scalecal.probes.methods import METHODS
from scalecal.runs.fitted import fit_method
from scalecal.runs.grid import applicable, parts, run_grid, seed_list
from scalecal.splits import hold_out

pytestmark = pytest.mark.usefixtures("brief_training")

PROMISED = [
    "none",
    "temperature",
    "vanilla-ls",
    "real-linear",
    "real-piecewise",
    "real-nonlinear",
    "scale-linear",
    "scale",
    "scale-nonlinear",
    "scale-random",
    "scale-wide",
    "confidence-ls",
    "vote-fraction",
    "mixup",
    "platt",
    "beta",
    "isotonic",
    "histogram",
    "scale-default",
    "focal",
    "scale-shuffled",
    "scale-auto",
]


@pytest.fixture(scope="module")
def data():
    drawn = simulate(360, dim=6, auc=0.9, n_groups=120, seed=0)
    return drawn.with_cases(split=None)


@pytest.fixture(scope="module")
def grid(data):
    return run_grid(data, seeds=2, preset="default")


def test_the_registry_is_complete():
    assert set(PROMISED) <= set(METHODS)
    for name, method in METHODS.items():
        assert method.label
        assert method.about.endswith(".")
        for recipe in method.recipes(5):
            recipe.check()
        assert name == name.lower()


def test_papers_methods_train_by_the_papers_preset():
    for method in METHODS.values():
        if method.paper:
            assert method.preset == "paper"
            (recipe,) = method.recipes(7)
            assert (recipe.scaling, recipe.initial, recipe.validation) == (
                "none",
                "random",
                "random",
            )
            assert (recipe.max_epochs, recipe.min_steps) == (50, 0)


def test_every_applicable_method_predicts_every_test_case(grid, data):
    assert set(grid.cell.methods) | set(grid.left_out) == set(METHODS)
    for (method, seed), part in grid.cell.answers.items():
        test = parts(data.cases, seed)[2]
        np.testing.assert_array_equal(grid.cell.cases.names[part.rows], data.cases.names[test])
        assert part.p.shape == (len(test),), method
        assert ((part.p >= 0) & (part.p <= 1)).all(), method


def test_seeds_are_paired_and_differ(grid):
    for seed in (0, 1):
        first = grid.cell.answers["none", seed].rows
        for method in grid.cell.methods:
            np.testing.assert_array_equal(grid.cell.answers[method, seed].rows, first)
    assert not np.array_equal(grid.cell.answers["none", 0].rows, grid.cell.answers["none", 1].rows)


def test_groups_are_never_on_two_sides(data):
    for seed in range(3):
        train, val, test = parts(data.cases, seed)
        sides = [set(data.groups[rows]) for rows in (train, val, test)]
        for one, other in itertools.combinations(sides, 2):
            assert not one & other


def test_the_grid_equals_the_estimators(data):
    marked = Factor.of(["train"] * 300 + ["test"] * 60)
    fixed = data.with_cases(split=marked, groups=None)
    grid = run_grid(fixed, methods=["none-default", "vanilla-ls", "scale"], seeds=[3])
    X, y, test = data.X[:300], data.y[:300], data.X[300:]
    plain = LinearProbe(random_state=3).fit(X, y)
    np.testing.assert_allclose(
        grid.cell.answers["none-default", 3].p, plain.predict_proba(test)[:, 1], atol=1e-6
    )
    smooth = LinearProbe(smoothing="vanilla", preset="paper", random_state=3).fit(X, y)
    np.testing.assert_allclose(
        grid.cell.answers["vanilla-ls", 3].p, smooth.predict_proba(test)[:, 1], atol=1e-6
    )
    scale = ScaleProbe(
        n_anchors=10, n_synthetic=None, mass=None, preset="paper", random_state=3
    ).fit(X, y)
    np.testing.assert_allclose(
        grid.cell.answers["scale", 3].p, scale.predict_proba(test)[:, 1], atol=1e-6
    )


def test_scale_default_is_the_estimator(data):
    marked = Factor.of(["train"] * 300 + ["test"] * 60)
    fixed = data.with_cases(split=marked, groups=None)
    grid = run_grid(fixed, methods=["scale-default"], seeds=[1])
    kappa, share = vote_moments(data.cases.votes[:300])
    probe = ScaleProbe(random_state=1).fit(
        data.X[:300], data.y[:300], n_raters=7, kappa=kappa, vote_share=share[1]
    )
    found, test = grid.cell.answers["scale-default", 1], data.X[300:]
    np.testing.assert_allclose(found.p, probe.predict_proba(test)[:, 1], atol=1e-6)
    np.testing.assert_allclose(found.p_reader, probe.predict_reader_proba(test)[:, 1], atol=1e-6)
    assert found.rho == pytest.approx(probe.panel_.rho, abs=1e-6)


def test_methods_that_need_votes_are_left_out_with_a_reason(data):
    run, out = applicable(None, data.with_cases(votes=None))
    assert {"real-piecewise", "vote-fraction", "panel-published", "panel-votes"} <= set(out)
    assert not {"scale", "scale-default", "temperature"} & set(out)
    assert "none" in run
    assert out["panel-published"].startswith("it needs to know how many readers, two or more,")
    with pytest.raises(InputError, match="no method applies: vote-fraction"):
        applicable(["vote-fraction"], data.with_cases(votes=None))
    with pytest.raises(InputError, match="unknown method 'scael'"):
        applicable(["scael"], data)
    with pytest.raises(InputError, match="'half-jury' was removed: use panel-published"):
        applicable(["half-jury"], data)


@pytest.mark.filterwarnings(
    "ignore:AUC on the .* no better than chance"
)  # paper's preset, few cases
def test_more_than_two_classes():
    data = simulate(300, n_classes=3, dim=6, spread=3.0, seed=0)
    grid = run_grid(
        data, methods=["none", "temperature", "scale", "vote-fraction", "confidence-ls"], seeds=1
    )
    assert grid.left_out == {"confidence-ls": "it is for two classes"}
    for part in grid.cell.answers.values():
        np.testing.assert_allclose(part.p.sum(axis=1), 1.0)
    table = evaluate(grid.cell, n_resamples=50).table
    assert table["nll"].notna().all()


def test_given_parts_are_used(data):
    marked = Factor.of((["train"] * 6 + ["val"] * 1 + ["test"] * 3) * 36)
    train, val, test = parts(data.with_cases(split=marked).cases, seed=5)
    assert (len(train), len(val), len(test)) == (216, 36, 108)
    with pytest.raises(InputError, match="no case has split = 'test'"):
        parts(data.with_cases(split=Factor.of(["train"] * 360)).cases, seed=0)


def test_seeds_are_a_count_or_a_list():
    assert seed_list(2) == [0, 1]
    with pytest.raises(InputError, match="seeds must be at least 1"):
        seed_list(0)


@pytest.mark.filterwarnings(
    "ignore:AUC on the .* no better than chance"
)  # paper's preset, few cases
def test_capped_probes_are_told(data):
    grid = run_grid(data, methods=["none"], seeds=1)
    assert any("stopped at the limit of epochs" in note for note in grid.notes)


def test_comparison_numbers_are_the_means_over_seeds(grid):
    comparison = evaluate(grid.cell, n_resamples=100)
    results = comparison.results
    table = comparison.table.set_index("method")
    for method in ("none", "scale", "panel-votes"):
        inside = (results["method"] == method) & (results["metric"] == "ece")
        low = results[inside & (results["stratum"] == "low")]
        assert table.loc[method, "ece_low"] == pytest.approx(low["value"].mean())
        assert table.loc[method, "ece_low_floor"] == pytest.approx(low["floor"].mean())
    assert table.loc["none", "nll_change"] == 0.0
    assert table.loc["vote-fraction", "recovered"] in (
        pytest.approx(1.0),
        pytest.approx(np.nan, nan_ok=True),
    )


def test_a_negative_control_is_never_recommended(grid):
    assert METHODS["scale-shuffled"].control
    kept = {"none", "temperature", "scale", "scale-shuffled", "vote-fraction", "real-piecewise"}
    some = {key: part for key, part in grid.cell.answers.items() if key[0] in kept}
    cell = replace(grid.cell, answers=some)
    for barred in ("scale-shuffled", "vote-fraction", "real-piecewise"):
        lucky = {key: part for key, part in some.items() if key[0] != "scale"}
        truth = [np.where(cell.y[lucky[barred, s].rows] == 1, 0.9, 0.1) for s in (0, 1)]
        lucky |= {(barred, s): replace(lucky[barred, s], p=truth[s]) for s in (0, 1)}
        again = evaluate(replace(cell, answers=lucky), n_resamples=50)
        assert barred not in {own["method"] for own in again.recommended.values()}


def test_scale_auto_takes_the_lowest_validation_loss(grid):
    chosen = [v for (name, _), v in grid.chosen.items() if name == "scale-auto"]
    assert all(0 <= v <= len(METHODS["scale-auto"].candidates) for v in chosen)
    assert METHODS["scale-auto"].recipe.synthesis is None


def test_the_papers_hold_out_is_plain_random():
    y = np.repeat([0, 1], [90, 10])
    sizes = {int(y[hold_out(y, stratify=False, seed=s)[1]].sum()) for s in range(20)}
    assert len(sizes) > 1


def one_class_in_validation():
    """Train, validation and test cases as given, every validation case positive."""
    data = simulate(240, dim=4, auc=0.9, seed=0)
    split = Factor.of(["train"] * 150 + ["val"] * 30 + ["test"] * 60)
    y = np.where(split.values == "val", 1, data.y)
    return data.with_cases(y=y, split=split, votes=None)


def test_a_calibrator_that_cannot_be_fitted_is_left_out_not_the_others():
    grid = run_grid(one_class_in_validation(), methods=["none", "isotonic"], seeds=2)
    assert list(grid.cell.methods) == ["none"]
    assert "no other class" in grid.left_out["isotonic"]
    with pytest.raises(InputError, match="no method could be applied: isotonic"):
        run_grid(one_class_in_validation(), methods=["isotonic"], seeds=1)


def test_sentences_without_votes_say_each_thing_once():
    data = simulate(300, dim=4, n_classes=3, seed=0)
    grid = run_grid(data.with_cases(votes=None), methods=["none", "vanilla-ls", "scale"], seeds=1)
    said = " ".join(evaluate(grid.cell).sentences)
    assert "of -" not in said
    assert "by -" not in said.replace("by -0", "")
    assert said.count("What to do?") == 1
    assert "vote NLL" not in said


@pytest.mark.parametrize("alike", [True, False])
def test_a_gain_across_presets_is_not_called_the_methods_own(alike):
    """Too little data for the paper's 50 epochs: whatever trains longer wins."""
    data = simulate(150, dim=40, auc=0.9, seed=2)
    methods = ["none", "scale-default", *(["none-default"] if alike else [])]
    comparison = evaluate(run_grid(data, methods=methods, seeds=2).cell)
    assert any(own["sure"] for own in comparison.recommended.values()), "the longer training wins"
    said = " ".join(comparison.sentences)
    if alike:
        assert "trained alike, the uncalibrated probe" in said or "due to the training" in said
    else:
        assert "may be due to the training: compare it with none-default too" in said


def test_fit_takes_a_case_nobody_voted_on_as_compare_does():
    data = simulate(200, dim=4, seed=0)
    votes = data.cases.votes.copy()
    votes[0] = 0
    data = replace(data, cases=replace(data.cases, votes=votes))
    probe = fit_method(data, "real-piecewise")
    assert np.isfinite(probe.coef_).all()
    assert run_grid(data, methods=["real-piecewise"], seeds=1).cell.methods == ["real-piecewise"]
