"""Adam with mini-batches and early stopping: which tasks are trained together, and by which loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scalecal.checks import InputError
from scalecal.solvers.group import Group
from scalecal.solvers.lanes import STACK_BYTES, Lanes
from scalecal.solvers.matrix import Matrix
from scalecal.solvers.problem import Fit, Task, check_tasks, same_content, same_mixtures
from scalecal.solvers.windows import StoredMatrix, Windowed, open_rows


def train(
    X: Any,
    tasks: Sequence[Task],
    *,
    X_validation: Any = None,
    batch_size: int = 256,
    max_epochs: int = 50,
    min_steps: int = 2000,
    patience: int = 10,
    memory: float | None = None,
    advance: Callable[[float], object] = lambda _: None,
) -> list[Fit]:
    """Train every task with Adam (Kingma and Ba 2015), early-stopped, best weights kept.

    Parameters
    ----------
    X
        Shared rows (n, d): a numpy array or memory map, or a torch tensor on any device; float16,
        float32 or float64. Never copied whole.
    tasks
        The probes to train.
    X_validation
        Where the tasks' validation row numbers point; X itself by default.
    batch_size
        Cases per step; the last batch of an epoch may be smaller.
    max_epochs, min_steps
        At most `max_epochs` epochs, or as many as make `min_steps` steps if that is more: small
        data would otherwise stop before anything is learnt. 0: the paper's plain limit of epochs.
    patience
        Epochs without a lower validation loss after which a probe stops; from then on it costs
        nothing.
    memory
        GiB that rows may take in memory. X may then be anything with `shape`, `dtype` and row
        indexing, such as `scalecal.features.ShardedArray`; where it is larger, it is read in
        windows in every epoch (see `scalecal.solvers.windows`). The tasks' own arrays come on top:
        8 bytes a case, and 4 a case and probe. Validation rows are read again after every epoch.
    advance
        Called with the share of the whole that was just done, after every epoch.

    Returns
    -------
    list of Fit
        One per task, in their order.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> task = Task(rows=np.arange(4), targets=np.array([0.0, 0.0, 1.0, 1.0]), learning_rate=0.1)
    >>> fit = train(X, [task], max_epochs=100, min_steps=0)[0]
    >>> bool(fit.weights[0, 0] > 1.0), fit.capped
    (True, True)
    """
    data = Matrix(X) if memory is None else open_rows(X, memory, batch_size)
    held = data if X_validation is None else Matrix(X_validation)
    if held.n_features != data.n_features:
        raise InputError(f"X has {data.n_features} features but X_validation has {held.n_features}")
    check_tasks(tasks, data.n_rows, held.n_rows)
    fits: dict[int, Fit] = {}
    for groups in _side_by_side(tasks, data, batch_size):
        members = [[tasks[i] for i in group] for group in groups]
        loop: Group
        if isinstance(data, StoredMatrix):
            loop = Windowed(data, held, members[0], batch_size)
        elif isinstance(data.X, np.ndarray):
            loop = Group(data, held, members[0], batch_size)
        else:
            loop = Lanes(data, held, members, batch_size)
        limit = max(max_epochs, math.ceil(min_steps / loop.n_steps))
        trained = loop.run(limit, patience, lambda done: advance(done / len(tasks)))
        fits.update(zip((i for group in groups for i in group), trained, strict=True))
    return [fits[i] for i in range(len(tasks))]


def _batchable(tasks: Sequence[Task]) -> list[list[int]]:
    """Task numbers that can share batches, those with the same synthetic rows side by side."""
    rows = same_content([t.rows for t in tasks])
    sets = same_mixtures(tasks)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, task in enumerate(tasks):
        key = (rows[i], task.order, *_shape(task))
        groups.setdefault(key, []).append(i)
    for members in groups.values():
        members.sort(key=lambda i: (sets[i], i))
    return list(groups.values())


def _shape(task: Task) -> tuple[Any, ...]:
    """What tasks that share batches must have in common."""
    scaling: Any = id(task.scaling)
    if task.scaling.is_number:
        scaling = None  # applied to each probe's logits
    elif task.scaling.shift is None and np.ndim(task.scaling.scale) == 0:
        scaling = ("unit", task.scaling.scale)
    gamma = task.gamma if task.loss == "focal" else None
    return len(task.rows), task.n_mixtures, task.n_columns, gamma, scaling


def _side_by_side(tasks: Sequence[Task], data: Matrix, batch_size: int) -> list[list[list[int]]]:
    """Groups to be trained in step: one at a time on the processor, whose cache holds no more.

    Elsewhere as many as keep the rows of one step below a quarter of the matrix, or `STACK_BYTES`: of
    as many steps an epoch, as those of the parts of a cross-fit are, though one has a case more.
    """
    groups = _batchable(tasks)
    if isinstance(data.X, np.ndarray):
        return [[members] for members in groups]
    step = 4 * batch_size * data.n_features  # bytes of a batch of float32
    most = max(1, data.n_rows // (4 * batch_size), STACK_BYTES // step)
    alike: dict[tuple[Any, ...], list[list[int]]] = {}
    for members in groups:
        first = tasks[members[0]]
        # Batches of an epoch, and how many its synthetic cases would fill.
        steps = [len(first.rows) + first.n_mixtures, first.n_mixtures]
        key = (len(members), *(math.ceil(n / batch_size) for n in steps), *_shape(first)[2:])
        alike.setdefault(key, []).append(members)
    return [same[k : k + most] for same in alike.values() for k in range(0, len(same), most)]
