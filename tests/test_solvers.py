"""The batched solvers against slow, literal references."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad, minimize

from scalecal.checks import InputError
from scalecal.solvers import Fit, Mixtures, Scaling, Task, minimise, train
from scalecal.solvers.arrays import Matrix, product
from scalecal.solvers.lanes import Lanes, lay_out
from scalecal.solvers.losses import loss, residual

torch = pytest.importorskip("torch")


def data(n: int = 300, d: int = 12, classes: int = 2, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    logits = X[:, :classes] + rng.gumbel(size=(n, classes))
    return X, logits.argmax(axis=1)


def mixtures(
    y: Any, rows: Any, k: int = 3, levels: int = 4, seed: int = 0, wide: bool = False
) -> Mixtures:
    """Pairs of cases of class 1 and class 0 with their interpolation levels."""
    rng = np.random.default_rng(seed)
    yes, no = (rng.permutation(rows[y[rows] == c]) for c in (1, 0))
    alpha = np.arange(1, levels) / levels
    if wide:
        size = 150
        first, second = rng.choice(yes, size), rng.choice(no, size)
        chosen = rng.choice(alpha, size)
    else:
        grid = np.meshgrid(yes[:k], no[:k], alpha, indexing="ij")
        first, second, chosen = (g.reshape(-1) for g in grid)
    return Mixtures(first.astype(np.int64), second.astype(np.int64), chosen, 1 - chosen)


def literal(X: Any, task: Task, batch_size: int, epochs: int, patience: int) -> dict[str, Any]:
    """The paper's algorithm as one would write it in torch: explicit union, one nn.Linear."""
    scale = np.asarray(task.scaling.scale)
    Z = X
    if task.scaling.unit:
        Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    parts, targets = [Z[task.rows]], [task.targets]
    weights = [np.ones(len(task.rows)) if task.weights is None else task.weights]
    if task.mixtures is not None:
        m = task.mixtures
        made = (1 - m.alpha)[:, None] * Z[m.first] + m.alpha[:, None] * Z[m.second]
        if task.scaling.unit:
            made = made / np.linalg.norm(made, axis=1, keepdims=True)
        parts.append(made)
        targets.append(m.targets)
        weights.append(np.broadcast_to(m.weight, (len(m),)))
    shift = 0.0 if task.scaling.shift is None else task.scaling.shift
    union = torch.tensor((np.concatenate(parts) - shift) / scale)
    goal = torch.tensor(np.concatenate(targets))
    weight = torch.tensor(np.concatenate(weights))
    weight = weight / weight.mean()
    model = torch.nn.Linear(X.shape[1], task.n_columns, dtype=torch.float64)
    with torch.no_grad():
        start = task.initial or (np.zeros((task.n_columns, X.shape[1])), np.zeros(task.n_columns))
        model.weight.copy_(torch.tensor(start[0]))
        model.bias.copy_(torch.tensor(start[1]))
    optimiser = torch.optim.Adam(model.parameters(), lr=task.learning_rate)
    generator = np.random.default_rng(task.order)

    def losses(z: Any, t: Any) -> Any:
        if task.n_columns == 1:
            p = torch.sigmoid(z[:, 0])
            yes, no = -torch.log(p), -torch.log1p(-p)
            if task.loss == "focal":
                yes, no = (1 - p) ** task.gamma * yes, p**task.gamma * no
            return t * yes + (1 - t) * no
        p = torch.softmax(z, dim=1)
        each = -torch.log(p)
        if task.loss == "focal":
            each = (1 - p) ** task.gamma * each
        return (t * each).sum(dim=1)

    history: list[float] = []
    best: dict[str, Any] = {"loss": np.inf}
    for epoch in range(1, epochs + 1):
        order = generator.permutation(len(union))
        for begin in range(0, len(union), batch_size):
            batch = order[begin : begin + batch_size]
            optimiser.zero_grad()
            value = (weight[batch] * losses(model(union[batch]), goal[batch])).mean()
            (value + task.decay / 2 * (model.weight**2).sum()).backward()
            optimiser.step()
        with torch.no_grad():
            if task.validation is None:
                score = np.nan
            else:
                held = torch.tensor((Z[task.validation] - shift) / scale)
                z, t = model(held), torch.tensor(task.validation_targets)
                if task.n_columns == 1:
                    score = torch.nn.functional.binary_cross_entropy_with_logits(z[:, 0], t).item()
                else:
                    score = -(t * torch.log_softmax(z, dim=1)).sum(dim=1).mean().item()
        history.append(score)
        if task.validation is None or score < best["loss"]:
            best = {
                "loss": score,
                "epoch": epoch,
                "weights": model.weight.detach().numpy().copy(),
                "intercept": model.bias.detach().numpy().copy(),
            }
        if task.validation is not None and epoch - best["epoch"] >= patience:
            break
    return {**best, "history": history}


def assert_same(fit: Fit, slow: dict[str, Any], tolerance: float = 1e-9) -> None:
    assert fit.n_iter == len(slow["history"])
    assert fit.best == slow["epoch"]
    np.testing.assert_allclose(fit.weights, slow["weights"], atol=tolerance)
    np.testing.assert_allclose(fit.intercept, slow["intercept"], atol=tolerance)
    if np.isfinite(slow["history"]).all():
        np.testing.assert_allclose(fit.history, slow["history"], atol=tolerance)


def split(n: int, seed: int) -> tuple[Any, Any]:
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[n // 5 :]), np.sort(order[: n // 5])


def grid(X: Any, y: Any, seeds: int = 2) -> list[Task]:
    """Methods x seeds as in the experiments: own split, initial weights and order per seed."""
    tasks = []
    for seed in range(seeds):
        rows, held = split(len(X), seed)
        rng = np.random.default_rng(seed + 50)
        bound = 1 / math.sqrt(X.shape[1])
        start = (rng.uniform(-bound, bound, (1, X.shape[1])), rng.uniform(-bound, bound, 1))
        hard = y[rows].astype(float)
        confident = mixtures(y, rows, seed=1)
        shared: dict[str, Any] = {
            "rows": rows,
            "validation": held,
            "validation_targets": y[held].astype(float),
            "initial": start,
            "order": seed,
            "learning_rate": 0.02,
        }
        tasks += [
            Task(targets=hard, **shared),
            Task(targets=0.9 * hard + 0.05, **shared),
            Task(targets=hard, mixtures=confident, **shared),
            Task(targets=hard, mixtures=mixtures(y, rows, seed=2), **shared),
            Task(
                targets=hard,
                mixtures=Mixtures(
                    confident.first,
                    confident.second,
                    confident.alpha,
                    confident.targets**2,
                    weight=2.5,
                ),
                **shared,
            ),
            Task(targets=hard, mixtures=mixtures(y, rows, wide=True), **shared),
            Task(targets=hard, weights=rng.integers(0, 3, len(rows)).astype(float), **shared),
            Task(targets=hard, **{**shared, "learning_rate": 0.2}),
            Task(targets=hard, decay=0.1, **shared),
            Task(targets=hard, loss="focal", gamma=2.0, **shared),
            Task(targets=hard, scaling=Scaling(scale=3.0), **shared),
        ]
    return tasks


def test_adam_equals_the_literal_algorithm() -> None:
    X, y = data()
    tasks = grid(X, y)
    fits = train(X, tasks, batch_size=32, max_epochs=25, min_steps=0, patience=4)
    for fit, task in zip(fits, tasks, strict=True):
        assert_same(fit, literal(X, task, 32, 25, 4))
    epochs = {f.n_iter for f in fits}
    assert len(epochs) > 3, "the probes should stop at different epochs for this test to bite"
    assert {f.capped for f in fits} == {True, False}
    assert all(f.converged != f.capped for f in fits)


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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_arrays_give_what_numpy_gives(dtype: str) -> None:
    X, y = data(seed=6)
    X = X.astype(dtype)
    tasks = grid(X, y, seeds=2)
    options: dict[str, Any] = {"batch_size": 64, "max_epochs": 6, "min_steps": 0, "patience": 2}
    for ours, theirs in zip(
        train(X, tasks, **options), train(torch.tensor(X), tasks, **options), strict=True
    ):
        assert isinstance(theirs.weights, np.ndarray)
        np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-5)


def test_lanes_equal_the_groups_trained_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds side by side: other rows, orders, anchors, stopping epochs, and none to stop by."""
    X, y = data(seed=7)
    tasks = grid(X, y, seeds=4)
    tasks += [replace(t, validation=None, validation_targets=None) for t in tasks[:6]]
    tasks += [replace(t, validation=None, validation_targets=None) for t in tasks[11:17]]
    options: dict[str, Any] = {"batch_size": 16, "max_epochs": 10, "min_steps": 0, "patience": 2}
    lanes: list[int] = []
    run = Lanes.run
    monkeypatch.setattr(
        Lanes, "run", lambda self, *a: (lanes.append(len(self.lanes)), run(self, *a))[1]
    )
    alone, together = train(X, tasks, **options), train(torch.tensor(X), tasks, **options)
    assert max(lanes) == 4, "the seeds should have run side by side for this test to bite"
    assert len({f.n_iter for f in alone}) > 3
    for one, other in zip(alone, together, strict=True):
        assert (one.n_iter, one.best) == (other.n_iter, other.best)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-9)
        np.testing.assert_allclose(one.intercept, other.intercept, atol=1e-9)
        np.testing.assert_allclose(one.history, other.history, atol=1e-9)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 30), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_layout_holds_every_case_once_in_its_own_step(
    lanes: int, n_real: int, n_synthetic: int, size: int
) -> None:
    rng = np.random.default_rng(0)
    orders = np.stack([rng.permutation(n_real + n_synthetic) for _ in range(lanes)])
    layout = lay_out(Matrix(np.zeros((n_real, 1))), orders, n_real, size)
    filled = np.ones(layout.cases.shape, bool) if layout.filled is None else layout.filled
    start = 0
    for k, (real, extra) in enumerate(zip(layout.real, layout.synthetic, strict=True)):
        for lane in range(lanes):
            there = slice(start, start + real + extra)
            kept = layout.cases[lane, there][filled[lane, there]]
            assert sorted(kept) == sorted(orders[lane, k * size : (k + 1) * size])
            assert len(kept) == layout.sizes[k]
        assert (layout.cases[:, start : start + real] < n_real).all()
        assert (layout.cases[:, start + real : start + real + extra] >= n_real).all()
        start += real + extra
    assert start == layout.cases.shape[1]


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
        loss(np, z + step * change, t, classes, gamma).sum()
        - loss(np, z - step * change, t, classes, gamma).sum()
    ) / (2 * step)
    expected = (residual(np, z, t, classes, gamma) * change).sum()
    assert slope == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("gamma", [None, 2.0])
def test_extreme_logits_stay_finite(gamma: float | None) -> None:
    z = np.array([[-2000.0, -50.0, 0.0, 50.0, 2000.0]], dtype=np.float32)
    for t in (0.0, 0.5, 1.0):
        assert np.isfinite(residual(np, z, np.full_like(z, t), 1, gamma)).all()
        assert np.isfinite(loss(np, z, np.full_like(z, t), 1, gamma)).all()
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
        ({"targets": np.zeros(3)}, "one each"),
        ({"rows": np.arange(10) + 295}, "below 300"),
        ({"weights": np.zeros(10)}, "not all zero"),
        ({"loss": "hinge"}, "must be one of"),
        ({"validation": np.arange(3)}, "together"),
        ({"initial": (np.zeros((1, 3)), np.zeros(1))}, "initial must have shapes"),
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


# -- L-BFGS ---------------------------------------------------------------------------------------


def objective(X: Any, task: Task) -> Any:
    """The full-batch objective of one task as a plain function of the flat parameters."""
    union, goal = [X[task.rows]], [task.targets]
    weight = [np.ones(len(task.rows)) if task.weights is None else task.weights]
    if task.mixtures is not None:
        m = task.mixtures
        union.append((1 - m.alpha)[:, None] * X[m.first] + m.alpha[:, None] * X[m.second])
        goal.append(m.targets)
        weight.append(np.broadcast_to(m.weight, (len(m),)))
    Z, w = np.concatenate(union) / task.scaling.scale, np.concatenate(weight)
    t = np.concatenate(goal)
    t = t[None] if t.ndim == 1 else t.T
    c, d = task.n_columns, X.shape[1]
    gamma = task.gamma if task.loss == "focal" else None

    def value(flat: Any) -> float:
        W = flat.reshape(c, d + 1)
        each = loss(np, W[:, :d] @ Z.T + W[:, d:], t, c, gamma)[0]
        return float(w @ each / w.sum() + task.decay / 2 * (W[:, :d] ** 2).sum())

    def slope(flat: Any) -> Any:
        W = flat.reshape(c, d + 1)
        r = residual(np, W[:, :d] @ Z.T + W[:, d:], t, c, gamma) * w / w.sum()
        return np.concatenate(
            [r @ Z + task.decay * W[:, :d], r.sum(axis=1)[:, None]], axis=1
        ).ravel()

    assert check_grad(value, slope, np.full(c * (d + 1), 0.1)) < 1e-5
    return value, slope, c * (d + 1)


def converged_tasks(X: Any, y: Any) -> list[Task]:
    tasks = []
    for seed in range(2):
        rows, _ = split(len(X), seed)
        hard = y[rows].astype(float)
        shared: dict[str, Any] = {"rows": rows, "decay": 0.01}
        tasks += [
            Task(targets=hard, **shared),
            Task(targets=0.9 * hard + 0.05, **shared),
            Task(targets=hard, mixtures=mixtures(y, rows, seed=1), **shared),
            Task(targets=hard, mixtures=mixtures(y, rows, wide=True), **shared),
            Task(targets=hard, weights=np.arange(len(rows)) % 4.0, **shared),
            Task(targets=hard, scaling=Scaling(scale=2.0 + seed), **shared),
            Task(targets=hard, rows=rows, decay=1.0),
            Task(targets=hard, loss="focal", gamma=1.0, **shared),
        ]
    return tasks


def test_minimise_reaches_the_optimum() -> None:
    X, y = data()
    X = X * np.geomspace(0.1, 10, X.shape[1])  # badly conditioned on purpose
    tasks = converged_tasks(X, y)
    fits = minimise(X, tasks, tol=1e-8)
    for fit, task in zip(fits, tasks, strict=True):
        value, slope, size = objective(X, task)
        slow = minimize(value, np.zeros(size), jac=slope, method="BFGS", options={"gtol": 1e-9})
        ours = np.concatenate([fit.weights, fit.intercept[:, None]], axis=1).ravel()
        assert fit.converged
        assert not fit.capped
        assert value(ours) <= slow.fun + 1e-10
        np.testing.assert_allclose(ours, slow.x, atol=2e-5)
        assert (np.diff(fit.history) <= 1e-12).all()
        assert fit.history[-1] == pytest.approx(value(ours), abs=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_minimise_on_torch_and_in_single_precision(dtype: str) -> None:
    X, y = data()
    tasks = converged_tasks(X, y)
    exact = minimise(X, tasks, tol=1e-8)
    for fit, best in zip(minimise(torch.tensor(X.astype(dtype)), tasks), exact, strict=True):
        np.testing.assert_allclose(fit.weights, best.weights, atol=2e-3)


def test_minimise_several_classes_equals_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    X, y = data(classes=4)
    n = len(X)
    fit = minimise(X, [Task(rows=np.arange(n), targets=np.eye(4)[y], decay=1 / n)], tol=1e-8)[0]
    peer = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(X, y)
    np.testing.assert_allclose(fit.weights, peer.coef_, atol=1e-5)
    np.testing.assert_allclose(
        fit.intercept - fit.intercept.mean(), peer.intercept_ - peer.intercept_.mean(), atol=1e-5
    )


def test_minimise_says_when_the_cap_ended_it() -> None:
    X, y = data()
    fit = minimise(
        X, [Task(rows=np.arange(300), targets=y * 1.0, decay=1e-6)], max_iter=2, tol=1e-9
    )[0]
    assert fit.capped
    assert not fit.converged
    assert fit.n_iter == 2


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_anchors_apart_equal_anchors_that_ride_along(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = data()
    tasks = [t for t in grid(X, y) if t.mixtures is not None]
    options: dict[str, Any] = {"batch_size": 32, "max_epochs": 6, "min_steps": 0, "patience": 2}
    along = train(X, tasks, **options)
    monkeypatch.setattr("scalecal.solvers.mixing.WASTE", -1)
    apart = train(X if library == "numpy" else torch.tensor(X), tasks, **options)
    for one, other in zip(along, apart, strict=True):
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
