"""Training in windows: the documented order, done literally; memory kept; fits as good."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from scalecal.checks import InputError
from scalecal.features import ShardedArray
from scalecal.probes import Job, Recipe, fit_many
from scalecal.solvers import Scaling, Task, train
from scalecal.solvers.windows import BLOCKS_PER_WINDOW
from scalecal.synthesis import Mixtures


def rows_and_labels(n: int, d: int = 8, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X, (rng.random(n) < expit(2 * X[:, 0] - X[:, 1])).astype(np.float64)


def sharded(X: Any, folder: Any, rows: int) -> ShardedArray:
    """The same rows in files of `rows` rows each."""
    files, counts = [], []
    for k, start in enumerate(range(0, len(X), rows)):
        files.append(folder / f"{k:05d}.npy")
        counts.append(len(X[start : start + rows]))
        np.save(files[-1], X[start : start + rows])
    return ShardedArray(files, counts, X.shape[1], X.dtype)


def memory_for(window_rows: int, X: Any) -> float:
    """GiB that hold two windows of so many rows."""
    return float(np.ceil(window_rows * X.shape[1] * X.dtype.itemsize * 2.25)) / 2**30


def literal(X: Any, task: Task, window_rows: int, batch_size: int, epochs: int) -> Any:
    """The order of the module's text, case by case, and Adam as printed in its paper."""
    rng = np.random.default_rng(task.order)
    in_file_order = sorted(range(len(task.rows)), key=lambda i: (task.rows[i], i))
    n_windows = -(-len(in_file_order) // window_rows)
    edges = np.round(np.linspace(0, len(in_file_order), n_windows * BLOCKS_PER_WINDOW + 1))
    blocks = [in_file_order[int(a) : int(b)] for a, b in pairwise(edges)]
    rows, targets, n_made = X[task.rows].astype(np.float64), task.targets, task.n_mixtures
    if task.mixtures is not None:
        mix = task.mixtures
        made = (1 - mix.alpha)[:, None] * X[mix.first] + mix.alpha[:, None] * X[mix.second]
        rows, targets = np.vstack([rows, made]), np.concatenate([targets, mix.targets])
    w, b = np.zeros(X.shape[1]), 0.0
    m = v = np.zeros(X.shape[1] + 1)
    step = 0
    for _ in range(epochs):
        order = rng.permutation(len(blocks))
        spread = np.array_split(len(task.rows) + rng.permutation(n_made), n_windows)
        for part, synthetic in zip(np.array_split(order, n_windows), spread, strict=True):
            cases = [case for block in sorted(part) for case in blocks[block]]
            cases = rng.permutation([*cases, *synthetic])
            for start in range(0, len(cases), batch_size):
                batch = cases[start : start + batch_size]
                Z = rows[batch]
                slope = (expit(Z @ w + b) - targets[batch]) / len(batch)
                gradient = np.append(slope @ Z, slope.sum())
                step += 1
                m = 0.9 * m + 0.1 * gradient
                v = 0.999 * v + 0.001 * gradient**2
                move = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
                w, b = w - task.learning_rate * move[:-1], b - task.learning_rate * move[-1]
    return np.append(w, b)


@pytest.mark.parametrize("synthetic", [False, True])
@pytest.mark.parametrize("scattered", [False, True])
def test_the_documented_order_done_literally(scattered, synthetic, tmp_path):
    X, y = rows_and_labels(1000)
    rows = np.arange(1000)
    if scattered:
        rows = np.random.default_rng(3).permutation(1000)[:700]
    made = None
    if synthetic:
        made = Mixtures(np.arange(40), np.arange(40, 80), np.full(40, 0.25), np.full(40, 0.75))
    task = Task(rows=rows, targets=y[rows], mixtures=made, order=5, learning_rate=0.05)
    stored = sharded(X, tmp_path, 130)
    (fit,) = train(
        stored, [task], memory=memory_for(150, X), batch_size=32, max_epochs=2, min_steps=0
    )
    expected = literal(X, task, 150, 32, 2)
    np.testing.assert_allclose(np.append(fit.weights, fit.intercept), expected, atol=2e-5)


def test_rows_that_fit_give_what_train_gives(tmp_path):
    X, y = rows_and_labels(400)
    task = Task(rows=np.arange(300), targets=y[:300], validation=np.arange(300, 400),
                validation_targets=y[300:], order=2)  # fmt: skip
    stored = sharded(X, tmp_path, 90)
    one, two = train(stored, [task], memory=0.001), train(X, [task])
    np.testing.assert_array_equal(one[0].weights, two[0].weights)


def test_where_the_rows_lie_does_not_matter_and_runs_repeat(tmp_path):
    X, y = rows_and_labels(600)
    X = X.astype(np.float16)
    tasks = [
        Task(rows=np.arange(500), targets=y[:500], validation=np.arange(500, 600),
             validation_targets=y[500:], learning_rate=rate,
             scaling=Scaling(scale=X[:500].std(axis=0).astype(float), shift=X[:500].mean(axis=0)))
        for rate in (1e-3, 1e-2)
    ]  # fmt: skip
    options: dict[str, Any] = {"memory": memory_for(120, X), "batch_size": 16, "max_epochs": 4}
    found = [
        train(stored, tasks, min_steps=0, **options) for stored in (X, X, sharded(X, tmp_path, 77))
    ]
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one.weights, two.weights)
            np.testing.assert_array_equal(one.history, two.history)
    alone = train(X, tasks[1:], min_steps=0, **options)[0]
    np.testing.assert_allclose(found[0][1].weights, alone.weights, atol=1e-6)


def test_a_file_sorted_by_label_is_learnt_as_well():
    X, y = rows_and_labels(6000, seed=1)
    held = np.arange(5000, 6000)
    order = np.concatenate([np.argsort(y[:5000], kind="stable"), held])
    X, y = X[order], y[order]
    task = Task(rows=np.arange(5000), targets=y[:5000], validation=held,
                validation_targets=y[held], learning_rate=0.01)  # fmt: skip
    options: dict[str, Any] = {"max_epochs": 20, "min_steps": 0}
    whole = train(X, [task], **options)[0]
    streamed = train(X, [task], memory=memory_for(800, X), **options)[0]
    assert streamed.history.min() < whole.history.min() + 0.01


def test_memory_stays_within_what_was_given(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 64)).astype(np.float16)
    y = (X[:, 0] > 0).astype(np.float64)
    stored = sharded(X, tmp_path, 4096)
    total = X.nbytes
    task = Task(rows=np.arange(40_000), targets=y, validation=np.arange(100),
                validation_targets=y[:100])  # fmt: skip
    del X
    budget = total // 8
    tracemalloc.start()
    train(stored, [task], memory=budget / 2**30, max_epochs=2, min_steps=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    bookkeeping = 40_000 * (8 * 6 + 4 * 3)  # row numbers, orders and targets of one probe
    assert peak < budget + bookkeeping + 300_000
    assert not stored._maps


def test_bad_input_is_named():
    X, y = rows_and_labels(100)
    task = Task(rows=np.arange(100), targets=y)
    for bad in (0, -1, np.nan):
        with pytest.raises(InputError, match="GiB"):
            train(X, [task], memory=bad)
    with pytest.raises(InputError, match="too little"):
        train(X, [task], memory=1e-6)
    with pytest.raises(InputError, match="2-d"):
        train(X[0], [task], memory=1e-8)
    with pytest.raises(InputError, match="features"):
        train(X, [task], memory=2e-6, X_validation=X[:, :3], batch_size=8)
    with pytest.raises(InputError, match="row numbers below"):
        train(X[:50], [task], memory=1e-6, batch_size=8)


def test_probes_of_every_kind_train_from_files(tmp_path):
    X, y = rows_and_labels(900, seed=4)
    stored = sharded(X, tmp_path, 128)
    recipes = [
        Recipe(scaling=scaling, synthesis=synthesis)
        for scaling in ("rms", "zscore", "l2")
        for synthesis in (None, {})
    ]
    jobs = [Job(recipe=r, rows=np.arange(900), y=y.astype(np.int64), seed=1) for r in recipes]
    whole = fit_many(X, jobs)
    streamed = fit_many(stored, jobs, memory=memory_for(400, X))
    for one, two in zip(whole, streamed, strict=True):
        # Another order of the same cases, so near but not equal.
        assert np.corrcoef(one.logits(X), two.logits(stored))[0, 1] > 0.99
    fits = fit_many(stored, jobs[:1], memory=0.001)
    np.testing.assert_allclose(fits[0].coef, whole[0].coef, atol=1e-6)
