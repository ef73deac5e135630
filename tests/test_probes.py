"""Probes: scikit-learn's own checks, the paper's algorithm word for word, and bad input."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import scalecal
from scalecal.checks import InputError, ScalecalWarning
from scalecal.probes import (
    PRESETS,
    SCALINGS,
    Job,
    LinearProbe,
    Recipe,
    ScaleProbe,
    fit_many,
    linear_logits,
    load_probe,
    with_preset,
)
from scalecal.smoothing import piecewise
from scalecal.splits import hold_out
from scalecal.synthesis import BetaLevels, synthesize

PUBLISHED: dict[str, Any] = {"n_anchors": 10, "n_synthetic": None, "mass": None}
"""SCALE's own options as the paper has them, beside this package's training."""


def data(n: int = 240, d: int = 6, classes: int = 2, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (2 * X[:, :classes] + rng.gumbel(size=(n, classes))).argmax(axis=1)
    return X, y


def raw_logits(probe: Any, X: Any) -> Any:
    """What the probe says before it is calibrated."""
    return linear_logits(X, probe.coef_, probe.intercept_)


def votes_of(X: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.binomial(7, 1 / (1 + np.exp(-2 * X[:, 1] + 2 * X[:, 0])))


@pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")
@parametrize_with_checks(
    [ScaleProbe(min_steps=100), LinearProbe(min_steps=300, learning_rate=0.01)],
    expected_failed_checks=lambda estimator: (
        {"check_class_weight_classifiers": "calibration on unweighted cases undoes class weights"}
        if isinstance(estimator, ScaleProbe)
        else {}
    ),
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# -- the paper, word for word ---------------------------------------------------------------------


def literal_adam(
    X: Any, t: Any, X_val: Any, y_val: Any, start: tuple[Any, Any], order_seed: int
) -> tuple[Any, float]:
    """Train one linear unit as the paper says: Adam 1e-3, batch 256, 50 epochs, patience 10."""
    w, b = start[0].ravel().copy(), float(start[1][0])
    m, v = np.zeros(len(w) + 1), np.zeros(len(w) + 1)
    rng = np.random.default_rng(order_seed)
    step, lowest, best, kept = 0, np.inf, 0, (w.copy(), b)
    for epoch in range(1, 51):
        order = rng.permutation(len(X))
        for begin in range(0, len(X), 256):
            batch = order[begin : begin + 256]
            p = 1 / (1 + np.exp(-(X[batch] @ w + b)))
            r = (p - t[batch]) / len(batch)
            g = np.append(X[batch].T @ r, r.sum())
            step += 1
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            move = 1e-3 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
            w, b = w - move[:-1], b - move[-1]
        p = 1 / (1 + np.exp(-(X_val @ w + b)))
        nll = -np.mean(np.log(np.where(y_val == 1, p, 1 - p)))
        if nll < lowest:
            lowest, best, kept = nll, epoch, (w.copy(), b)
        elif epoch - best >= 10:
            break
    return kept


@pytest.mark.parametrize("smoothing", ["piecewise", "linear", "nonlinear"])
def test_scale_on_the_paper_preset_is_the_paper_s_algorithm(smoothing: str) -> None:
    seed = 3
    X, y = data(700, 5, seed=seed)
    probe = ScaleProbe(preset="paper", smoothing=smoothing, random_state=seed).fit(X, y)

    split_seed, initial_seed, order_seed, _ = np.random.SeedSequence(seed).generate_state(4)
    kept, held = hold_out(y, share=0.1, stratify=False, seed=int(split_seed))
    rng = np.random.default_rng(int(initial_seed))
    bound = 1 / np.sqrt(5)
    start = (rng.uniform(-bound, bound, (1, 5)), rng.uniform(-bound, bound, 1))
    fixed = (X[held], y[held], start, int(order_seed))
    w, b = literal_adam(X[kept], y[kept].astype(float), *fixed)
    Z, soft = synthesize(
        X[kept],
        y[kept],
        X[kept] @ w + b,
        n_anchors=10,
        n_raters=7,
        smoothing=smoothing,
        anchors="prediction",
    )
    assert Z.shape == (600, 5)
    w, b = literal_adam(np.concatenate([X[kept], Z]), np.concatenate([y[kept], soft]), *fixed)
    np.testing.assert_allclose(probe.coef_[0], w, atol=1e-9)
    np.testing.assert_allclose(probe.intercept_[0], b, atol=1e-9)
    np.testing.assert_array_equal(probe.validation_, held)


# -- many at once ---------------------------------------------------------------------------------


def test_jobs_together_equal_jobs_alone() -> None:
    X, y = data()
    votes = np.column_stack([7 - votes_of(X), votes_of(X)])
    recipes = [
        Recipe(max_epochs=8, min_steps=0, learning_rate=0.02),
        Recipe(smoothing="vanilla"),
        Recipe(smoothing="piecewise", union=True),
        Recipe(smoothing="fraction", decay=0.01),
        Recipe(smoothing="confidence", scaling="zscore"),
        Recipe(synthesis={}),
        with_preset(Recipe(synthesis={}), "paper"),
        Recipe(synthesis={"anchors": "random"}, warm_start=True),
        Recipe(synthesis={"n_anchors": 0.5, "n_synthetic": 1.0, "mass": 0.3}),
        Recipe(synthesis={"smoothing": "linear"}, shuffled=True),
        Recipe(synthesis={}, scaling="l2"),
        Recipe(loss="focal"),
    ]
    rows = np.arange(len(X))
    recipes = [replace(r, min_steps=min(r.min_steps, 200)) for r in recipes]
    jobs = [Job(recipe=r, rows=rows, y=y, votes=votes, seed=s) for s in range(2) for r in recipes]
    together = fit_many(X, jobs)
    some = len(recipes) + 2  # every recipe, and some of the other seed
    for job, probe in zip(jobs[:some], together, strict=False):
        alone = fit_many(X, [job])[0]
        np.testing.assert_allclose(probe.coef, alone.coef, atol=1e-6)
        assert probe.fit.n_iter == alone.fit.n_iter
    assert not np.allclose(together[0].coef, together[len(recipes)].coef)


def test_a_job_is_what_the_estimator_does() -> None:
    X, y = data()
    shuffled = np.random.default_rng(5).permutation(len(X))[:200]
    recipe = Recipe(synthesis={}, min_steps=500)
    job = Job(recipe=recipe, rows=shuffled, y=y[shuffled], seed=4)
    inside = fit_many(X, [job])[0]
    probe = ScaleProbe(**PUBLISHED, min_steps=500, random_state=4).fit(X[shuffled], y[shuffled])
    np.testing.assert_allclose(inside.coef, probe.coef_, atol=1e-9)
    np.testing.assert_array_equal(inside.plan.anchors[1], shuffled[probe.anchors_[1]])  # type: ignore[union-attr]
    np.testing.assert_allclose(inside.logits(X), raw_logits(probe, X), atol=1e-9)


# -- targets --------------------------------------------------------------------------------------


def test_votes_soft_labels_and_columns_are_one_target() -> None:
    X, y = data()
    votes = votes_of(X)
    soft = piecewise(votes, 7)
    options: dict[str, Any] = {"validation_share": 0.0, "scaling": "none", "min_steps": 300}
    a = LinearProbe(smoothing="piecewise", **options).fit(X, y, votes=votes, n_raters=7)
    b = LinearProbe(**options).fit(X, soft)
    c = LinearProbe(**options).fit(X, np.column_stack([1 - soft, soft]))
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-8)
    np.testing.assert_allclose(a.coef_, c.coef_, atol=1e-8)


def test_two_soft_classes_equal_scikit_learn_with_repeated_rows() -> None:
    X, _ = data()
    soft = np.random.default_rng(0).uniform(size=len(X))
    options: dict[str, Any] = {"batch_size": len(X), "max_epochs": 4000, "min_steps": 0}
    options |= {"scaling": "none", "validation_share": 0.0, "learning_rate": 0.01}
    ours = LinearProbe(decay=1 / len(X), **options).fit(X, soft)
    peer = LogisticRegression(tol=1e-10, max_iter=1000).fit(
        np.tile(X, (2, 1)), np.repeat([1, 0], len(X)), sample_weight=np.append(soft, 1 - soft)
    )
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-4)


def test_vanilla_smoothing_softens() -> None:
    X, y = data()
    plain = LinearProbe(decay=1e-3, min_steps=1000).fit(X, y)
    smooth = LinearProbe(decay=1e-3, min_steps=1000, smoothing="vanilla").fit(X, y)
    assert np.abs(smooth.coef_).sum() < np.abs(plain.coef_).sum()


def test_scale_softens_between_the_anchors_and_needs_no_votes() -> None:
    X, y = data()
    plain = LinearProbe(random_state=0).fit(X, y)
    scale = ScaleProbe(**PUBLISHED, random_state=0).fit(X, y)
    assert np.abs(scale.decision_function(X)).mean() < np.abs(plain.decision_function(X)).mean()
    assert scale.n_synthetic_ == 600
    for name, index in scale.anchors_.items():
        assert len(index) == 10
        assert (y[index] == name).all()
        assert not np.isin(index, scale.validation_).any()


def test_wide_scale_and_mass() -> None:
    X, y = data(400)
    probe = ScaleProbe(n_anchors=0.5, n_synthetic=1.0, min_steps=300).fit(X, y)
    assert probe.n_synthetic_ == 360
    # With a penalty and no early stopping all of them come near their optimum.
    options: dict[str, Any] = {"decay": 1 / 400, "validation_share": 0.0, "learning_rate": 0.05}
    options["min_steps"] = 500
    light = ScaleProbe(**{**PUBLISHED, "mass": 1e-6}, **options).fit(X, y)
    plain = LinearProbe(**options).fit(X, y)
    heavy = ScaleProbe(**{**PUBLISHED, "mass": 3.0}, **options).fit(X, y)
    spread = [np.abs(raw_logits(p, X)).mean() for p in (plain, light, heavy)]
    assert spread[2] < 0.9 * spread[0]
    assert spread[1] == pytest.approx(spread[0], rel=0.1)


def test_several_classes() -> None:
    X, y = data(400, classes=3)
    names = np.array(["a", "b", "c"])[y]
    for probe in (
        LinearProbe(min_steps=1000, random_state=0),
        ScaleProbe(min_steps=1000, n_anchors=4, n_synthetic=None),
    ):
        probe.fit(X, names)
        assert probe.coef_.shape == (3, 6)
        probs = probe.predict_proba(X)
        np.testing.assert_allclose(probs.sum(axis=1), 1)
        assert probe.score(X, names) > 0.6
    assert list(probe.anchors_) == ["a", "b", "c"]
    assert probe.n_synthetic_ == 3 * 4 * 4 * 6


def test_the_panel_behind_the_labels_is_the_imagined_one() -> None:
    X, y = data()
    seven = ScaleProbe(min_steps=300).fit(X, y)
    told = ScaleProbe(min_steps=300).fit(X, y, votes=votes_of(X), n_raters=7)
    np.testing.assert_array_equal(told.coef_, seven.coef_)
    three = ScaleProbe(min_steps=300).fit(X, y, panel_size=3)
    assert (three.coef_ != seven.coef_).any()


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scaling_equals_training_on_scaled_features(scaling: str) -> None:
    X, y = data()
    X = 5 * X + 1
    part = X[:200]
    scaled = {
        "rms": X / np.sqrt(np.mean(part**2)),
        "none": X,
        "zscore": (X - part.mean(axis=0)) / part.std(axis=0),
        "l2": X / np.linalg.norm(X, axis=1, keepdims=True),
    }[scaling]
    probe = LinearProbe(scaling=scaling, min_steps=1000, random_state=0).fit(
        part, y[:200], X_val=X[200:], y_val=y[200:]
    )
    raw = LinearProbe(scaling="none", min_steps=1000, random_state=0).fit(
        scaled[:200], y[:200], X_val=scaled[200:], y_val=y[200:]
    )
    np.testing.assert_allclose(
        probe.decision_function(X), raw.decision_function(scaled), rtol=1e-5, atol=1e-6
    )


def test_every_preset_option_is_an_option() -> None:
    fields = set(Recipe.__dataclass_fields__)
    for options in PRESETS.values():
        assert set(options) <= fields
    with pytest.raises(InputError, match="preset must be one of"):
        LinearProbe(preset="papr").fit(*data())


def test_validation_keeps_groups_whole_and_classes_in_proportion() -> None:
    X, y = data(300)
    groups = np.arange(300) // 3
    probe = LinearProbe(random_state=0, max_epochs=1, min_steps=0).fit(X, y, groups=groups)
    held = probe.validation_
    assert 20 <= len(held) <= 40
    assert not np.isin(groups[held], np.delete(groups, held)).any()
    assert abs(y[held].mean() - y.mean()) < 0.1


def test_single_and_half_precision(tmp_path: Any) -> None:
    X, y = data()
    exact = LinearProbe(min_steps=1000, random_state=0).fit(X, y)
    for dtype, atol in (("float32", 1e-4), ("float16", 2e-2)):
        np.save(tmp_path / "X.npy", X.astype(dtype))
        mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
        probe = LinearProbe(min_steps=1000, random_state=0).fit(mapped, y)
        np.testing.assert_allclose(
            probe.decision_function(mapped), exact.decision_function(X), atol=atol, rtol=0.02
        )


def test_history_and_cap() -> None:
    X, y = data()
    probe = LinearProbe(max_epochs=3, min_steps=0, random_state=0).fit(X, y)
    assert probe.capped_
    assert len(probe.history_) == probe.n_iter_ == 3
    done = LinearProbe(learning_rate=0.5, random_state=0).fit(X, y)
    assert not done.capped_
    assert done.best_iter_ == np.argmin(done.history_) + 1
    assert done.n_iter_ - done.best_iter_ == 10


def test_scikit_learn_tools() -> None:
    X, y = data()
    fast: dict[str, Any] = {"max_epochs": 5, "min_steps": 0, "random_state": 0}
    pipe = make_pipeline(StandardScaler(), ScaleProbe(**fast))
    assert cross_val_predict(pipe, X, y, method="predict_proba", cv=3).shape == (240, 2)
    search = GridSearchCV(
        LinearProbe(**fast), {"smoothing": [None, "vanilla"], "learning_rate": [1e-3, 0.1]}, cv=2
    ).fit(X, y)
    assert search.best_score_ > 0.7
    copy = clone(ScaleProbe(n_anchors=3, preset="paper"))
    assert copy.get_params()["n_anchors"] == 3


# -- saved probes ---------------------------------------------------------------------------------


def shares(votes: Any, n_raters: Any) -> Any:
    return votes / n_raters


@pytest.mark.parametrize(
    "probe",
    [
        LinearProbe(smoothing="vanilla", smoothing_options={"epsilon": 0.2}),
        LinearProbe(scaling="l2", validation_share=0.0),
        ScaleProbe(),
        ScaleProbe(preset="paper"),
        ScaleProbe(validation_share=0.0, levels=BetaLevels(2.0, 2.0)),
        ScaleProbe(rho=0.2),
    ],
    ids=lambda probe: str(probe)[:60],
)
@pytest.mark.parametrize("names", [["a", "b"], [0, 1], [-1.0, 2.0], [True, False], ["x", "y", "z"]])
def test_a_saved_probe_is_the_same_probe(probe: Any, names: list[Any], tmp_path: Any) -> None:
    X, y = data(classes=len(names))
    probe = clone(probe).set_params(max_epochs=3, min_steps=0)
    probe.fit(X, np.array(names)[y], panel_size=7 if probe.get_params().get("rho") else None)
    probe.save(tmp_path)
    assert {"probe.safetensors", "probe.json"} <= {file.name for file in tmp_path.iterdir()}
    again = type(probe).load(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(X), probe.predict_proba(X))
    np.testing.assert_array_equal(again.decision_function(X), probe.decision_function(X))
    np.testing.assert_array_equal(again.predict(X), probe.predict(X))
    assert again.get_params() == probe.get_params()
    fitted = {name for name in vars(probe) if name.endswith("_")}
    assert {name for name in vars(again) if name.endswith("_")} == fitted
    for name in fitted - {"calibrator_", "about_"}:
        np.testing.assert_equal(getattr(again, name), getattr(probe, name))
    assert again.about_["version"] == scalecal.__version__
    other = LinearProbe if isinstance(probe, ScaleProbe) else ScaleProbe
    with pytest.raises(InputError, match=f"holds a {type(probe).__name__}"):
        other.load(tmp_path)


def test_what_json_cannot_hold_is_named(tmp_path: Any) -> None:
    X, y = data()
    state = np.random.RandomState(0)
    probe = ScaleProbe(smoothing=shares, random_state=state, max_epochs=3, min_steps=0).fit(X, y)
    probe.save(tmp_path)
    again = ScaleProbe.load(tmp_path)
    assert (again.smoothing, again.random_state) == ("shares", None)
    np.testing.assert_array_equal(again.predict_proba(X), probe.predict_proba(X))


def damage_json(folder: Any, **change: Any) -> None:
    file = folder / "probe.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))


def damage_arrays(folder: Any, **change: Any) -> None:
    file = folder / "probe.safetensors"
    file.write_bytes(save_arrays({**load_arrays(file.read_bytes()), **change}))


def test_a_probe_of_an_earlier_version_loads(tmp_path: Any) -> None:
    X, y = data()
    probe = ScaleProbe(max_epochs=3, min_steps=0).fit(X, y)
    probe.save(tmp_path)
    params = json.loads((tmp_path / "probe.json").read_text())["params"]
    damage_json(tmp_path, params={**params, "n_partners": None})
    again = ScaleProbe.load(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(X), probe.predict_proba(X))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: damage_arrays(f, coef_=np.full((1, 6), np.nan)), "not finite"),
        (lambda f: damage_arrays(f, intercept_=np.array([np.inf])), "not finite"),
        (lambda f: damage_arrays(f, coef_=np.zeros((2, 6))), "shape"),
        (lambda f: damage_json(f, classes=[0, 1, 2]), "shape"),
        (lambda f: damage_json(f, format=1), "format 1"),
        (lambda f: damage_json(f, estimator="Forest"), "Forest"),
        (lambda f: damage_json(f, calibrator={"name": "magic"}), "magic"),
        (lambda f: damage_json(f, params={"depth": 3}), "depth"),
        (lambda f: damage_json(f, fitted={}), "n_features_in_"),
        (lambda f: damage_json(f, notes="none"), r"Expected `array`, got `str` - at `\$.notes`"),
        (lambda f: damage_arrays(f, coef_=np.zeros((1, 6), int)), "coef_ must be numbers of shape"),
        (lambda f: (f / "probe.json").write_text("{"), "not a JSON file"),
        (
            lambda f: (f / "probe.safetensors").write_bytes(b"12345678"),
            "cannot be read as a safetensors file",
        ),
        (lambda f: (f / "probe.safetensors").unlink(), "probe.safetensors is missing"),
    ],
)
def test_damaged_probes_are_refused(damage: Any, words: str, tmp_path: Any) -> None:
    X, y = data()
    LinearProbe(max_epochs=3, min_steps=0).fit(X, y).save(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match=words):
        load_probe(tmp_path)


def test_probabilities_that_are_not_finite_are_an_error() -> None:
    X, y = data()
    probe = LinearProbe(max_epochs=3, min_steps=0).fit(X, y)
    probe.coef_ = np.full_like(probe.coef_, np.nan)
    with pytest.raises(InputError, match="no finite probability"):
        probe.predict_proba(X)


# -- bad input ------------------------------------------------------------------------------------


def bad_features() -> Any:
    X, _ = data()
    X[3, 4] = np.nan
    return X


@pytest.mark.parametrize(
    ("probe", "fit", "words"),
    [
        (LinearProbe(), {"X": bad_features()}, "column 4 at row 3"),
        (LinearProbe(), {"y": np.ones(240)}, "one class only"),
        (LinearProbe(smoothing="piecewise"), {}, "needs votes"),
        (LinearProbe(smoothing="picewise"), {}, "Known: vanilla, confidence, piecewise"),
        (LinearProbe(initial="ones"), {}, "initial must be one of"),
        (LinearProbe(scaling="minmax"), {}, "scaling must be one of"),
        (LinearProbe(learning_rate=0.0), {}, "learning_rate must be a number above 0"),
        (LinearProbe(validation_share=1.0), {}, "validation_share must be below 1"),
        (LinearProbe(decay=-1.0), {}, "decay must not be negative"),
        (LinearProbe(), {"X_val": np.zeros((2, 6))}, "X_val and y_val together"),
        (LinearProbe(), {"X_val": np.zeros((2, 6)), "y_val": [0, 7]}, "not a class of y"),
        (LinearProbe(), {"sample_weight": -np.ones(240)}, "sample_weight must not be negative"),
        (LinearProbe(), {"votes": np.ones((240, 3))}, "one column per class"),
        (LinearProbe(smoothing="confidence"), {"y": np.arange(240) % 3}, "two classes, got 3"),
        (ScaleProbe(anchors="sure"), {}, "anchors must be one of"),
        (ScaleProbe(n_anchors=0), {}, "n_anchors must be at least 1"),
        (ScaleProbe(mass=-1.0), {}, "mass must be a number above 0, got -1"),
        (ScaleProbe(mass=np.nan), {}, "mass must be a number above 0, got nan"),
    ],
)
def test_bad_input_is_named(probe: Any, fit: dict[str, Any], words: str) -> None:
    X, y = data()
    with pytest.raises(InputError, match=words):
        probe.fit(**{"X": X, "y": y, **fit})


def test_warnings_say_what_happened() -> None:
    X, y = data()
    fast: dict[str, Any] = {"max_epochs": 1, "min_steps": 0, "random_state": 0}
    with pytest.warns(ScalecalWarning, match="one class only"):
        LinearProbe(**fast).fit(X, y, X_val=X[:2], y_val=[1, 1])
    with pytest.warns(ScalecalWarning, match="candidate anchors"):
        ScaleProbe(n_anchors=200, n_synthetic=50, **fast).fit(X, y)
    noise = np.zeros((60, 3))
    with pytest.warns(ScalecalWarning, match="gets no case of class number"):
        ScaleProbe(n_anchors=1, n_synthetic=None, **fast).fit(
            noise, (np.arange(60) % 3 == 0).astype(int)
        )


def test_constant_features_and_copies_are_fine() -> None:
    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scaling in SCALINGS:
            probe = LinearProbe(scaling=scaling, random_state=0, max_epochs=2, min_steps=0)
            probe.fit(np.column_stack([X, np.ones(len(X))]), y)
            assert np.isfinite(probe.coef_).all()
    twice = ScaleProbe(**PUBLISHED, random_state=0, max_epochs=2, min_steps=0).fit(
        np.tile(X, (2, 1)), np.tile(y, 2)
    )
    index = twice.anchors_[1]
    assert len(np.unique(index % len(X))) == 10, "a copy is no second anchor"


def test_the_papers_preset_replaces_only_what_was_left_at_its_default() -> None:
    X, y = data()
    paper = ScaleProbe(preset="paper", random_state=0).fit(X, y)
    assert (paper.n_synthetic_, len(paper.anchors_[1]), paper.calibrator_) == (600, 10, None)
    five = ScaleProbe(preset="paper", n_anchors=5, random_state=0).fit(X, y)
    assert (five.n_synthetic_, len(five.anchors_[1])) == (150, 5)
    assert five.calibrator_ is None


def test_torch_arrays_give_the_same_probes() -> None:
    torch = pytest.importorskip("torch")
    X, y = data()
    recipes = [
        Recipe(min_steps=100),
        Recipe(synthesis={}, min_steps=100),
        Recipe(scaling="zscore", min_steps=100),
    ]
    jobs = [Job(recipe=r, rows=np.arange(len(X)), y=y, seed=1) for r in recipes]
    for ours, theirs in zip(fit_many(X, jobs), fit_many(torch.from_numpy(X), jobs), strict=True):
        np.testing.assert_allclose(ours.coef, theirs.coef, atol=1e-6)
        np.testing.assert_allclose(ours.logits(X), theirs.logits(torch.from_numpy(X)), atol=1e-6)


def test_votes_that_a_smoothing_does_not_use_are_told():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X, votes = rng.normal(size=(60, 3)) + y[:, None], np.where(y, 5, 2)
    with pytest.warns(ScalecalWarning, match="preset='paper' does not use them"):
        LinearProbe(preset="paper").fit(X, y, votes=votes, n_raters=7)
    LinearProbe(smoothing="fraction").fit(X, y, votes=votes, n_raters=7)
    with pytest.raises(InputError, match=r"one class only \(0 in 60 cases\)"):
        LinearProbe().fit(X, 0 * y)


def test_numbers_may_be_arrays_without_dimensions_and_no_others():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    short = {"max_epochs": 1, "min_steps": 1}
    given = {"learning_rate": np.array(0.01), "decay": np.array(0.1)}
    plain = LinearProbe(learning_rate=0.01, decay=0.1, **short).fit(X, y)
    assert (LinearProbe(**given, **short).fit(X, y).coef_ == plain.coef_).all()
    with pytest.raises(InputError, match="decay must be a number"):
        LinearProbe(decay=np.array([0.1]), **short).fit(X, y)


def test_votes_must_be_rows_of_cases() -> None:
    X, y = data()
    with pytest.raises(InputError, match=r"votes must be 1-d \(n,\) or 2-d"):
        LinearProbe(max_epochs=3).fit(X, y, votes=np.array(3), n_raters=5)
