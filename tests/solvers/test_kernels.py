"""The compiled loops against numpy, and training with them against training without."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from scalecal.checks import InputError
from scalecal.solvers import Mixtures, Scaling, Task, in_place, train
from scalecal.solvers.arrays import Matrix
from tests.solvers.problems import data, grid, mixtures, split

kernels = pytest.importorskip("scalecal.solvers.kernels")

OPTIONS: dict[str, Any] = {
    "batch_size": 32,
    "max_epochs": 15,
    "min_steps": 0,
    "patience": 4,
    "compiled": True,
}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The epochs taken with compiled loops."""
    taken: list[Any] = []
    epoch = in_place.InPlace.epoch

    def counted(self: Any, *arguments: Any) -> None:
        taken.append(arguments)
        epoch(self, *arguments)

    monkeypatch.setattr(in_place.InPlace, "epoch", counted)
    return taken


def gathered(X: Any, tasks: list[Task]) -> Any:
    return train(X, tasks, **{**OPTIONS, "compiled": False})


def assert_equal(found: Any, expected: Any, atol: float = 1e-10) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=atol)
        np.testing.assert_allclose(one.intercept, other.intercept, atol=atol)
        np.testing.assert_allclose(one.history, other.history, atol=atol)
        assert (one.n_iter, one.best, one.capped) == (other.n_iter, other.best, other.capped)


@given(
    columns=st.integers(1, 13),
    cases=st.integers(0, 11),
    d=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=60, deadline=None)
def test_forward_is_the_product(columns: int, cases: int, d: int, seed: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    X = in_place._read_only(rng.normal(size=(9, d)).astype(dtype))
    index = rng.integers(0, 9, cases)
    weights = rng.normal(size=(columns, d)).astype(dtype)
    out = np.full((columns, cases), np.nan, dtype=dtype)
    kernels.forward(X, index, weights, out)
    expected = weights.astype(float) @ X[index].astype(float).T
    np.testing.assert_allclose(out, expected, atol=1e-4 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 1e-7), (np.float64, 2e-16)])
def test_the_logistic_is_right_to_the_last_digits(dtype: Any, most: float) -> None:
    grids = [np.linspace(-700, 700, 20001), np.linspace(-40, 40, 100001), [np.inf, -np.inf, 0.0]]
    z = np.concatenate(grids).astype(dtype)
    found = z.copy()
    kernels._logistic(found)
    np.testing.assert_allclose(found, expit(z.astype(np.longdouble)), rtol=0, atol=most)
    assert (np.diff(found[20001:-3]) >= -most).all()


@given(
    probes=st.integers(1, 6),
    classes=st.sampled_from([1, 2, 3, 5]),
    n_real=st.integers(1, 23),
    n_made=st.sampled_from([0, 1, 7]),
    d=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
    weighted=st.booleans(),
    decay=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=80, deadline=None)
def test_an_epoch_is_the_textbook_s(
    probes: int,
    classes: int,
    n_real: int,
    n_made: int,
    d: int,
    batch_size: int,
    seed: int,
    weighted: bool,
    decay: float,
) -> None:
    """Explicit synthetic rows, a loop over cases for the gradient, Adam as Kingma and Ba print it."""
    rng = np.random.default_rng(seed)
    columns, total = probes * classes, n_real + n_made
    X = rng.normal(size=(n_real + 5, d))
    rows = rng.permutation(len(X))[:n_real]
    made = None
    if n_made:
        pair = rng.integers(0, len(X), (2, n_made))
        made = Mixtures(pair[0], pair[1], rng.uniform(size=n_made), np.zeros(n_made))
    shape = (n_real,) if classes == 1 else (n_real, classes)
    tasks = [
        Task(rows=rows, targets=np.zeros(shape), mixtures=made, learning_rate=rate, decay=decay)
        for rate in rng.choice([0.01, 0.1], probes)
    ]
    targets = rng.uniform(size=(columns, total))
    counts = rng.uniform(size=(columns, total)) if weighted else None
    factor = rng.uniform(0.5, 2.0, columns)
    state = rng.normal(size=columns * (d + 1))
    first, second = rng.normal(size=state.size), rng.uniform(size=state.size)
    start = state.copy(), first.copy() * 0.1, second.copy() * 0.001
    order = rng.permutation(total)
    for begin in range(0, total, batch_size):
        order[begin : begin + batch_size].sort()
    loop = in_place.InPlace(Matrix(X), tasks, rows, targets, counts, factor)
    loop.epoch(order, batch_size, state, np.empty_like(state), (first, second), 3)

    union = X[rows]
    if made is not None:
        alpha = made.alpha[:, None]
        union = np.concatenate([union, (1 - alpha) * X[made.first] + alpha * X[made.second]])
    expected, mean, square = start
    size = columns * d
    for step, begin in enumerate(range(0, total, batch_size), start=4):
        now = order[begin : begin + batch_size]
        weights, intercept = expected[:size].reshape(columns, d), expected[size:]
        logits = factor[:, None] * (weights @ union[now].T) + intercept[:, None]
        if classes == 1:
            p = 1 / (1 + np.exp(-logits))
        else:
            p = np.exp(logits).reshape(probes, classes, -1)
            p = (p / p.sum(axis=1, keepdims=True)).reshape(columns, -1)
        slopes = (p - targets[:, now]) / len(now)
        if counts is not None:
            slopes *= counts[:, now]
        gradient = np.append(
            (slopes * factor[:, None]) @ union[now] + decay * weights, slopes.sum(axis=1)
        )
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        rates = np.repeat([t.learning_rate for t in tasks], classes)
        rate = np.append(np.repeat(rates, d), rates)
        hat = mean / (1 - 0.9**step), square / (1 - 0.999**step)
        expected = expected - rate * hat[0] / (np.sqrt(hat[1]) + 1e-8)
    np.testing.assert_allclose(state, expected, atol=1e-10)


def test_training_with_and_without_the_loops(compiled: list[Any]) -> None:
    X, y = data(d=37)
    tasks = grid(X, y, seeds=2)
    found = train(X, tasks, **OPTIONS)
    assert len(compiled) > 10
    assert_equal(found, gathered(X, tasks))


@pytest.mark.parametrize("wide", [False, True], ids=["few anchors", "many anchors"])
@pytest.mark.parametrize("columns", [1, 2, 3, 5, 8, 16, 17])
def test_any_number_of_probes_and_anchors(compiled: list[Any], columns: int, wide: bool) -> None:
    X, y = data(d=21)
    rows, held = split(len(X), 0)
    sets = [mixtures(y, rows, seed=seed, wide=wide) for seed in (0, 1)]
    tasks = [
        Task(
            rows=rows,
            targets=y[rows] * (1 - 0.05 * k),
            validation=held,
            validation_targets=y[held].astype(float),
            mixtures=sets[k % 2],
            learning_rate=0.01 * (1 + k % 3),
            scaling=Scaling(scale=1.0 + 0.1 * (k % 2)),
        )
        for k in range(columns)
    ]
    found = train(X, tasks, **OPTIONS)
    # A set more than the loops take is trained on gathered rows until some probes have stopped.
    assert compiled or columns > in_place.MOST_COLUMNS
    assert_equal(found, gathered(X, tasks))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_read_only_and_mapped_rows(compiled: list[Any], dtype: Any, tmp_path: Any) -> None:
    X, y = data(d=16)
    np.save(tmp_path / "X.npy", X.astype(dtype))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    tasks = grid(X, y, seeds=1)
    found = train(mapped, tasks, **OPTIONS)
    assert compiled
    atol = 1e-10 if dtype == np.float64 else 2e-4
    for one, other in zip(found, gathered(mapped, tasks), strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=atol)


def test_one_kind_of_array_is_compiled_for(compiled: list[Any]) -> None:
    """Another would cost its user some seconds: views, read-only rows, weights, one batch only."""
    X, y = data(d=16)
    task: dict[str, Any] = {"rows": np.arange(len(X)), "targets": y.astype(float)}
    train(X, [Task(**task)], **OPTIONS)
    known = len(kernels.epoch.signatures), len(kernels.forward.signatures)
    frozen = X.copy()
    frozen.flags.writeable = False
    every_other = {"rows": task["rows"][::2], "targets": task["targets"][::2]}
    train(frozen, [Task(**task, weights=np.linspace(0.5, 1.5, len(X)))], **OPTIONS)
    train(X, [Task(**every_other)], **{**OPTIONS, "batch_size": 1000})
    train(X[:200], grid(X[:200], y[:200], seeds=1), **OPTIONS)
    assert len(compiled) > 40
    assert (len(kernels.epoch.signatures), len(kernels.forward.signatures)) == known


def test_other_rows_losses_and_scalings_are_gathered(compiled: list[Any]) -> None:
    X, y = data()
    rows = np.arange(len(X))
    task = {"rows": rows, "targets": y.astype(float)}
    train(X.astype(np.float16), [Task(**task)], **OPTIONS)
    train(np.asfortranarray(X), [Task(**task)], **OPTIONS)
    train(X, [Task(**task, loss="focal")], **OPTIONS)
    train(X, [Task(**task, scaling=Scaling(unit=True))], **OPTIONS)
    assert not compiled
    train(X, [Task(**task)], **OPTIONS)
    assert compiled


def test_short_work_does_not_wait_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> Any:
        raise AssertionError("the loops were asked for")

    monkeypatch.setattr(in_place, "kernels", never)
    X, y = data()
    train(X, [Task(rows=np.arange(len(X)), targets=y.astype(float))])


def test_without_the_compiler_rows_are_gathered(
    monkeypatch: pytest.MonkeyPatch, compiled: list[Any]
) -> None:
    X, y = data()
    tasks = grid(X, y, seeds=1)
    for name in ("in_place", "group"):
        monkeypatch.setattr(f"scalecal.solvers.{name}.kernels", lambda: None)
    found = train(X, tasks, **OPTIONS)
    assert not compiled
    assert_equal(found, gathered(X, tasks), atol=0.0)


def test_a_missing_or_disabled_compiler_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    look = in_place.kernels.__wrapped__
    assert look() is kernels
    monkeypatch.setattr(kernels.numba.config, "DISABLE_JIT", 1)
    assert look() is None
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "scalecal.solvers.kernels")
    assert look() is None


def test_without_a_folder_for_machine_code_it_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit(*, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: (function, options)

    monkeypatch.setattr(kernels.numba, "njit", njit)
    function, options = kernels._compiled(len)
    assert function is len
    assert options["inline"] == "never"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_training_that_diverges_is_still_found(compiled: list[Any], bad: float) -> None:
    X, y = data()
    X[3, 4] = bad
    with pytest.raises(InputError, match="diverged"):
        train(X, [Task(rows=np.arange(len(X)), targets=y.astype(float))], **OPTIONS)
    assert compiled
