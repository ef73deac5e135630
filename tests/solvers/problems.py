"""Problems for the solvers, and the paper's algorithm as one would write it in torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from scalecal.solvers import Fit, Scaling, Task
from scalecal.synthesis import Mixtures

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
