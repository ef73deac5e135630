"""Probes to the optimum, against scipy and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

from scalecal.solvers import Scaling, Task, minimise
from scalecal.solvers.losses import loss, residual
from tests.solvers.problems import data, mixtures, split

torch = pytest.importorskip("torch")


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
