"""Groups side by side on torch arrays give what each gives alone on numpy's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.made import operations as counted
from hypothesis import given, settings
from hypothesis import strategies as st

from scalecal.solvers import Scaling, Task, adam, train
from scalecal.solvers.adam import Lanes, Layout, usual_room
from scalecal.synthesis import Mixtures
from tests.solvers.problems import data, grid

torch = pytest.importorskip("torch")


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


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30)), min_size=1, max_size=5),
    st.integers(1, 12),
)
@settings(max_examples=60, deadline=None)
def test_layout_holds_every_case_once_in_its_own_step(
    sizes: list[tuple[int, int]], size: int
) -> None:
    rng = np.random.default_rng(0)
    longest = max(map(sum, sizes))
    orders = np.full((len(sizes), longest), -1)
    for lane, pair in enumerate(sizes):
        orders[lane, : sum(pair)] = rng.permutation(sum(pair))
    n_real = np.array([[real] for real, _ in sizes])
    any_synthetic = any(extra for _, extra in sizes)
    layout = Layout(
        "cpu", n_cases=longest, batch_size=size, room=(size, size if any_synthetic else 0)
    )
    cases = layout.places(torch.tensor(orders), torch.tensor(n_real)).numpy()
    start = 0
    for k, (real, extra) in enumerate(zip(layout.real, layout.synthetic, strict=True)):
        real, extra = int(real), int(extra)
        for lane in range(len(sizes)):
            there = cases[lane, start : start + real + extra]
            own = orders[lane, k * size : (k + 1) * size]
            assert sorted(there[there >= 0]) == sorted(own[own >= 0])
            assert (there[:real] < n_real[lane]).all()
            assert ((there[real:] >= n_real[lane]) | (there[real:] < 0)).all()
        start += real + extra
    assert start == cases.shape[1]


@pytest.mark.parametrize("kind", [0, 2, 5, 6, 9], ids=["plain", "few", "many", "weighted", "focal"])
@pytest.mark.parametrize("classes", [2, 3])
def test_lanes_of_unequal_numbers_of_cases(
    kind: int, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the parts of a cross-fit: the shortest lane stops last, or the longest does."""
    X, y = data(seed=7)
    tasks = []
    for seed, task in enumerate(grid(X, y, seeds=5)[kind::11]):
        keep = len(task.rows) - (3 * seed) % 8
        weights = None if task.weights is None else task.weights[:keep]
        part = replace(task, rows=task.rows[:keep], targets=task.targets[:keep], weights=weights)
        if task.mixtures is not None:
            m = task.mixtures
            few = slice(0, len(m) - 2 * (seed % 3))
            part = replace(
                part, mixtures=Mixtures(m.first[few], m.second[few], m.alpha[few], m.targets[few])
            )
        if classes == 3:
            part = in_classes(part)
        tasks.append(part)
    lanes: list[int] = []
    run = Lanes.run
    monkeypatch.setattr(
        Lanes, "run", lambda self, *a: (lanes.append(len(self.lanes)), run(self, *a))[1]
    )
    options: dict[str, Any] = {"batch_size": 40, "max_epochs": 20, "min_steps": 0, "patience": 2}
    alone, together = train(X, tasks, **options), train(torch.tensor(X), tasks, **options)
    assert lanes == [5], "all of them in step"
    assert len({f.n_iter for f in alone}) > 2
    for one, other in zip(alone, together, strict=True):
        assert (one.n_iter, one.best) == (other.n_iter, other.best)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-9)
        np.testing.assert_allclose(one.history, other.history, atol=1e-9)


def in_classes(task: Task) -> Task:
    """The same cases, told apart as one of three classes."""

    def wide(targets: Any) -> Any:
        return np.column_stack([0.5 * (1 - targets), targets, 0.5 * (1 - targets)])

    m = task.mixtures
    assert task.initial is not None
    return replace(
        task,
        targets=wide(task.targets),
        validation_targets=wide(task.validation_targets),
        initial=tuple(np.repeat(each, 3, axis=0) for each in task.initial),
        mixtures=m and Mixtures(m.first, m.second, m.alpha, wide(m.targets)),
    )


def test_steps_get_more_room_where_an_order_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data(seed=7)
    tasks = [task for task in grid(X, y, seeds=3) if task.mixtures is not None]
    options: dict[str, Any] = {"batch_size": 16, "max_epochs": 5, "min_steps": 0, "patience": 3}
    assert usual_room(300, 0, 16) == (16, 0)
    expected = train(torch.tensor(X), tasks, **options)
    monkeypatch.setattr(adam, "usual_room", lambda *_: (1, 1))
    for one, other in zip(expected, train(torch.tensor(X), tasks, **options), strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-12)


def test_long_epochs_are_taken_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data(seed=7)
    tasks = grid(X, y, seeds=2)
    options: dict[str, Any] = {"batch_size": 16, "max_epochs": 4, "min_steps": 0, "patience": 3}
    monkeypatch.setattr(adam, "STRETCH", 4)
    seen = []
    stretch = Lanes._stretch
    monkeypatch.setattr(Lanes, "_stretch", lambda self: (seen.append(1), stretch(self))[1])
    together = train(torch.tensor(X), tasks, **options)
    assert len(seen) > 20
    for one, other in zip(train(X, tasks, **options), together, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-9)


def several_classes(X: Any, y: Any, seeds: int, scaling: Scaling) -> list[Task]:
    """Three probes a seed with two sets of synthetic cases, validation sets of unequal size."""
    eye, tasks = np.eye(3), []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(X))
        rows, held = order[:200], order[200 : 230 + 5 * seed]
        for number in (0, 0, 1):
            chosen = np.random.default_rng(10 * seed + number)
            alpha = chosen.uniform(size=40)
            edge = alpha[:, None] * eye[0] + (1 - alpha)[:, None] * eye[2]
            pairs = chosen.choice(rows, (2, 40))
            tasks.append(
                Task(
                    rows=rows,
                    targets=eye[y[rows]],
                    validation=held,
                    validation_targets=eye[y[held]],
                    initial=(rng.normal(size=(3, X.shape[1])), rng.normal(size=3)),
                    mixtures=Mixtures(*pairs, alpha, edge),
                    order=seed,
                    learning_rate=0.05,
                    scaling=scaling,
                )
            )
    return tasks


@pytest.mark.parametrize(
    "scaling",
    [
        Scaling(),
        Scaling(scale=0.25),
        Scaling(unit=True),
        Scaling(scale=np.linspace(0.5, 2, 12), shift=np.linspace(-1, 1, 12)),
    ],
    ids=["none", "number", "unit", "zscore"],
)
def test_lanes_of_several_classes_and_sets(scaling: Scaling) -> None:
    X, y = data(classes=3)
    tasks = several_classes(X, y, 3, scaling)
    options: dict[str, Any] = {"batch_size": 16, "max_epochs": 12, "min_steps": 0, "patience": 2}
    alone, together = train(X, tasks, **options), train(torch.tensor(X), tasks, **options)
    assert len({f.n_iter for f in alone}) > 1
    for one, other in zip(alone, together, strict=True):
        assert (one.n_iter, one.best) == (other.n_iter, other.best)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-9)
        np.testing.assert_allclose(one.history, other.history, atol=1e-9)


def operations(X: Any, tasks: list[Task], epochs: int) -> int:
    """How many operations torch is asked for: what a step costs where each is small."""
    with counted() as count:
        train(torch.tensor(X), tasks, batch_size=16, max_epochs=epochs, min_steps=0, patience=99)
    return int(count.done)


@pytest.mark.parametrize("kind", [0, 2, 5], ids=["plain", "few anchors", "many anchors"])
def test_more_seeds_take_no_more_operations_a_step(kind: int) -> None:
    X, y = data()
    tasks = [grid(X, y, seeds=8)[11 * seed + kind] for seed in range(8)]
    steps = -(-(len(tasks[0].rows) + tasks[0].n_mixtures) // 16)
    few, many = (operations(X, tasks[:n], 6) - operations(X, tasks[:n], 1) for n in (2, 8))
    # Epochs pass with a few more for the lanes; steps do not.
    assert many <= few + 5 * 8
    assert many / (5 * steps) < 40
