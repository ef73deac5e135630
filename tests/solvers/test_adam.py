"""Many probes by Adam against slow, literal references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from scalecal.checks import InputError
from scalecal.solvers import Scaling, Task, train
from scalecal.solvers.problem import Matrix, log_loss, product, residual
from scalecal.synthesis import Mixtures
from tests.solvers.problems import assert_same, data, grid, literal, mixtures, split

torch = pytest.importorskip("torch")


def test_adam_equals_the_literal_algorithm() -> None:
    X, y = data()
    tasks = grid(X, y)
    fits = train(X, tasks, batch_size=32, max_epochs=25, min_steps=0, patience=4)
    for fit, task in zip(fits, tasks, strict=True):
        assert_same(fit, literal(X, task, 32, 25, 4))
    epochs = {f.n_iter for f in fits}
    assert len(epochs) > 3, "the probes should stop at different epochs for this test to bite"
    assert {f.capped for f in fits} == {True, False}


def test_a_batched_probe_equals_the_probe_trained_alone() -> None:
    X, y = data(seed=3)
    tasks = grid(X, y, seeds=3)
    options: dict[str, Any] = {"batch_size": 64, "max_epochs": 20, "min_steps": 0, "patience": 3}
    together = train(X, tasks, **options)
    for fit, task in zip(together, tasks, strict=True):
        alone = train(X, [task], **options)[0]
        np.testing.assert_allclose(fit.weights, alone.weights, atol=1e-10)
        assert (fit.n_iter, fit.best) == (alone.n_iter, alone.best)


@pytest.mark.parametrize("loss_name", ["log", "focal"])
def test_several_classes_equal_the_literal_algorithm(loss_name: str) -> None:
    X, y = data(classes=3)
    rows, held = split(len(X), 0)
    eye = np.eye(3)
    rng = np.random.default_rng(0)
    alpha = rng.uniform(size=40)
    edge = alpha[:, None] * eye[0] + (1 - alpha)[:, None] * eye[2]
    made = Mixtures(rng.choice(rows, 40), rng.choice(rows, 40), alpha, edge)
    shared: dict[str, Any] = {
        "rows": rows,
        "validation": held,
        "validation_targets": eye[y[held]],
        "learning_rate": 0.05,
        "loss": loss_name,
    }
    tasks = [
        Task(
            targets=eye[y[rows]], initial=(rng.normal(size=(3, 12)), rng.normal(size=3)), **shared
        ),
        Task(targets=0.8 * eye[y[rows]] + 0.2 / 3, **shared),
        Task(targets=eye[y[rows]], mixtures=made, **shared),
    ]
    fits = train(X, tasks, batch_size=50, max_epochs=12, min_steps=0, patience=3)
    for fit, task in zip(fits, tasks, strict=True):
        assert_same(fit, literal(X, task, 50, 12, 3))


@pytest.mark.parametrize(
    "scaling",
    [
        Scaling(scale=np.linspace(0.5, 2, 12), shift=np.linspace(-1, 1, 12)),
        Scaling(unit=True),
        Scaling(scale=0.25),
    ],
    ids=["zscore", "unit", "number"],
)
@pytest.mark.parametrize("wide", [False, True], ids=["few anchors", "many anchors"])
def test_scaling_equals_scaled_features(scaling: Scaling, wide: bool) -> None:
    X, y = data()
    rows, held = split(len(X), 0)
    task = Task(
        rows=rows,
        targets=y[rows].astype(float),
        validation=held,
        validation_targets=y[held].astype(float),
        mixtures=mixtures(y, rows, wide=wide),
        scaling=scaling,
        learning_rate=0.02,
    )
    fit = train(X, [task], batch_size=32, max_epochs=8, min_steps=0)[0]
    assert_same(fit, literal(X, task, 32, 8, 10))
    coef, intercept = scaling.unscale(fit.weights, fit.intercept)
    raw = X / np.linalg.norm(X, axis=1, keepdims=True) if scaling.unit else X
    shift = 0.0 if scaling.shift is None else scaling.shift
    scaled = (raw - shift) / scaling.scale
    np.testing.assert_allclose(raw @ coef.T + intercept, scaled @ fit.weights.T + fit.intercept)


def test_zero_weights_leave_cases_out_and_whole_weights_repeat_them() -> None:
    X, y = data(60)
    weights = np.random.default_rng(1).integers(0, 3, 60).astype(float)
    rows = np.arange(60)
    repeated = np.repeat(rows, weights.astype(int))
    fits = train(
        X,
        [
            Task(rows=rows, targets=y.astype(float), weights=weights),
            Task(rows=repeated, targets=y[repeated].astype(float)),
        ],
        batch_size=500,
        max_epochs=40,
        min_steps=0,
    )
    np.testing.assert_allclose(fits[0].weights, fits[1].weights, atol=1e-10)
    np.testing.assert_allclose(fits[0].history, fits[1].history, atol=1e-10)


def test_at_least_min_steps_are_allowed() -> None:
    X, y = data(100)
    task = Task(rows=np.arange(100), targets=y.astype(float))
    assert train(X, [task], batch_size=50, max_epochs=5, min_steps=0)[0].n_iter == 5
    assert train(X, [task], batch_size=50, max_epochs=5, min_steps=41)[0].n_iter == 21


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_precision_and_memory_maps(dtype: str, tmp_path: Any) -> None:
    X, y = data(seed=5)
    X = X.astype(dtype)
    path = tmp_path / "X.npy"
    np.save(path, X)
    mapped = np.load(path, mmap_mode="r")
    tasks = grid(X.astype(np.float64), y, seeds=1)
    options: dict[str, Any] = {"batch_size": 64, "max_epochs": 4, "min_steps": 0}
    reference = train(X.astype(np.float64), tasks, **options)
    fits = train(mapped, tasks, **options)
    assert fits[0].weights.dtype == (np.float64 if dtype == "float64" else np.float32)
    for fit, exact in zip(fits, reference, strict=True):
        np.testing.assert_allclose(fit.weights, exact.weights, atol=1e-5)


def test_validation_rows_may_lie_in_another_matrix() -> None:
    X, y = data()
    rows, held = split(len(X), 0)
    goal = y[held].astype(float)
    inside = Task(
        rows=rows, targets=y[rows].astype(float), validation=held, validation_targets=goal
    )
    outside = Task(
        rows=rows,
        targets=y[rows].astype(float),
        validation=np.arange(len(held)),
        validation_targets=goal,
    )
    a = train(X, [inside], max_epochs=5, min_steps=0)[0]
    b = train(X, [outside], X_validation=X[held], max_epochs=5, min_steps=0)[0]
    np.testing.assert_array_equal(a.weights, b.weights)


def loss_of(z: Any, t: Any, classes: int, gamma: float | None) -> Any:
    """The log loss, or the focal loss of an exponent, of columns of logits."""
    if gamma is None:
        return log_loss(np, z, t, classes)
    if classes == 1:
        z, t = np.concatenate([0 * z, z], axis=1), np.concatenate([1 - t, t], axis=1)
        n = z.shape[1] // 2
        z, t = (part.reshape(-1, 2, n) for part in (z, t))
    else:
        z, t = (part.reshape(-1, classes, part.shape[1]) for part in (z, t))
    log_p = log_softmax(z, axis=1)
    return -(t * (1 - np.exp(log_p)) ** gamma * log_p).sum(axis=1)


@given(
    st.integers(1, 60), st.integers(1, 40), st.integers(1, 50), st.sampled_from([None, 0.5, 2.0])
)
@settings(max_examples=40, deadline=None)
def test_residual_is_the_slope_of_the_loss(p: int, n: int, seed: int, gamma: float | None) -> None:
    rng = np.random.default_rng(seed)
    classes = 1 + seed % 4
    classes += classes == 2
    z = 3 * rng.normal(size=(p * classes, n))
    t = rng.dirichlet(np.ones(max(classes, 2)), size=(p, n)).transpose(0, 2, 1)
    t = t[:, 1] if classes == 1 else t.reshape(z.shape)
    step = 1e-5
    change = rng.normal(size=z.shape)
    slope = (
        loss_of(z + step * change, t, classes, gamma).sum()
        - loss_of(z - step * change, t, classes, gamma).sum()
    ) / (2 * step)
    expected = (residual(np, z, t, classes, gamma) * change).sum()
    assert slope == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("gamma", [None, 2.0])
def test_extreme_logits_stay_finite(gamma: float | None) -> None:
    z = np.array([[-2000.0, -50.0, 0.0, 50.0, 2000.0]], dtype=np.float32)
    for t in (0.0, 0.5, 1.0):
        assert np.isfinite(residual(np, z, np.full_like(z, t), 1, gamma)).all()
        assert np.isfinite(log_loss(np, z, np.full_like(z, t), 1)).all()
    three = np.repeat(z, 3, axis=0) * np.array([[1.0], [0.0], [-1.0]], dtype=np.float32)
    for row in np.eye(3, dtype=np.float32):
        t = np.repeat(row[:, None], 5, axis=1)
        assert np.isfinite(residual(np, three, t, 3, gamma)).all()


@given(st.integers(1, 60), st.integers(1, 700), st.integers(1, 900))
@settings(max_examples=25, deadline=None)
def test_blocked_product(p: int, k: int, m: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(p, k)), rng.normal(size=(k, m))
    np.testing.assert_allclose(product(a, b, np.empty((p, m))), a @ b, atol=1e-10)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"targets": np.zeros(3)}, "same number of cases"),
        ({"rows": np.arange(10) + 295}, "below 300"),
        ({"weights": np.zeros(10)}, "not all be zero"),
        ({"rows": np.arange(0), "targets": np.zeros(0)}, "no training rows"),
        ({"validation": np.arange(3)}, "together"),
    ],
)
def test_bad_tasks_are_named(change: dict[str, Any], words: str) -> None:
    X, _ = data()
    good: dict[str, Any] = {"rows": np.arange(10), "targets": np.zeros(10)}
    with pytest.raises(InputError, match=words):
        train(X, [Task(**{**good, **change})])


def test_bad_matrices_are_named() -> None:
    task = Task(rows=np.arange(2), targets=np.zeros(2))
    with pytest.raises(InputError, match="float16"):
        train(np.ones((2, 2), dtype=np.int64), [task])
    with pytest.raises(InputError, match="2-d"):
        Matrix(np.ones(3))
    with pytest.raises(InputError, match="features"):
        train(np.ones((2, 2)), [task], X_validation=np.ones((2, 3)))
    with pytest.raises(InputError, match="diverged"), np.errstate(all="ignore"):
        train(np.full((2, 2), np.inf), [task])


def test_anchors_and_pairs_of_rows_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data()
    tasks = [t for t in grid(X, y) if t.mixtures is not None]
    options: dict[str, Any] = {"batch_size": 32, "max_epochs": 6, "min_steps": 0, "patience": 2}
    by_anchors = train(X, tasks, **options)
    monkeypatch.setattr("scalecal.solvers.adam.LARGEST_SHARES", -1)
    by_pairs = train(X, tasks, **options)
    for one, other in zip(by_anchors, by_pairs, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-10)


def test_rows_of_an_unaligned_map_are_gathered_without_copying_the_matrix() -> None:
    """Arrays inside an .npz file start at any byte."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((50, 8)).astype(np.float32)
    raw = np.zeros(values.nbytes + 1, dtype=np.uint8)
    raw[1:] = values.view(np.uint8).ravel()
    shifted = raw[1:].view(np.float32).reshape(50, 8)
    assert not shifted.flags.aligned
    data = Matrix(shifted)
    assert not data.plain
    index = np.array([3, 0, 49])
    np.testing.assert_array_equal(data.take(index, out=np.empty((4, 8), np.float32)), values[index])
    assert Matrix(values).plain
    assert not Matrix(np.asfortranarray(values)).plain
