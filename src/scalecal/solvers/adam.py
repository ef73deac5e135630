"""Adam with mini-batches and early stopping, many probes in one weight matrix.

Tasks that see the same batches are one `Group`; on a device other than the processor, groups of the
same shape run side by side as `Lanes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from scalecal.checks import InputError, check_positive_int
from scalecal.solvers.arrays import Array, Matrix
from scalecal.solvers.group import Group
from scalecal.solvers.lanes import STACK_BYTES, Lanes
from scalecal.solvers.problem import Fit, Task, check_tasks, same_content

__all__ = ["batchable", "train"]

LONG_SECONDS = 1.5  # where training may take so long, compiled loops make up for their start


def train(
    X: Array,
    tasks: Sequence[Task],
    *,
    X_validation: Array | None = None,
    batch_size: int = 256,
    max_epochs: int = 50,
    min_steps: int = 2000,
    patience: int = 10,
    compiled: bool | None = None,
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
        data would otherwise end long before they have learnt anything. 0 for the paper's plain cap.
    patience
        Epochs without a lower validation loss after which a probe stops; from then on it costs
        nothing.
    compiled
        Whether loops compiled by numba train the few probes they are faster for; the results are
        the same but for rounding. None: where the work is long enough for their start (half a
        second; the first time on a machine some seconds).

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
    data = Matrix(X)
    held = data if X_validation is None else Matrix(X_validation)
    if held.n_features != data.n_features:
        raise InputError(f"X has {data.n_features} features but X_validation has {held.n_features}")
    check_tasks(tasks, data.n_rows, data.n_features, held.n_rows)
    check_positive_int(batch_size, "batch_size")
    check_positive_int(max_epochs, "max_epochs")
    check_positive_int(patience, "patience")
    fits: dict[int, Fit] = {}
    together = _side_by_side(tasks, data, batch_size)
    limits, seconds = [], 0.0
    for groups in together:
        first = tasks[groups[0][0]]
        steps = math.ceil((len(first.rows) + first.n_mixtures) / batch_size)
        limits.append(max(max_epochs, math.ceil(min_steps / steps)))
        columns = len(groups[0]) * first.n_columns
        seconds += limits[-1] * steps * _step_seconds(batch_size, data.n_features, columns)
    if compiled is None:
        compiled = seconds >= LONG_SECONDS
    for groups, limit in zip(together, limits, strict=True):
        members = [[tasks[i] for i in group] for group in groups]
        if isinstance(data.X, np.ndarray):
            group = Group(data, held, members[0], batch_size, compiled=compiled)
            done = group.run(limit, patience)
        else:
            done = Lanes(data, held, members, batch_size).run(limit, patience)
        fits.update(zip((i for group in groups for i in group), done, strict=True))
    return [fits[i] for i in range(len(tasks))]


def _step_seconds(batch_size: int, d: int, columns: int) -> float:
    """About what a step takes on a processor: its calls, gathering rows, two products."""
    return 6e-5 + batch_size * d * (2e-10 + 4.5e-11 * columns)


def batchable(tasks: Sequence[Task]) -> list[list[int]]:
    """Task numbers that can share batches, those with the same synthetic rows side by side."""
    rows = same_content([t.rows for t in tasks])
    plans = same_content([None if t.mixtures is None else t.mixtures.first for t in tasks])
    seconds = same_content([None if t.mixtures is None else t.mixtures.second for t in tasks])
    alphas = same_content([None if t.mixtures is None else t.mixtures.alpha for t in tasks])
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, task in enumerate(tasks):
        key = (rows[i], task.order, *_shape(task))
        groups.setdefault(key, []).append(i)
    for members in groups.values():
        members.sort(key=lambda i: (plans[i], seconds[i], alphas[i], i))
    return list(groups.values())


def _shape(task: Task) -> tuple[Any, ...]:
    """What tasks trained in step must have in common."""
    scaling: Any = id(task.scaling)
    if task.scaling.is_number:
        scaling = None  # applied to each probe's logits
    elif task.scaling.shift is None and np.ndim(task.scaling.scale) == 0:
        scaling = ("unit", task.scaling.scale)
    gamma = task.gamma if task.loss == "focal" else None
    return len(task.rows), task.n_mixtures, task.n_columns, gamma, scaling


def _side_by_side(tasks: Sequence[Task], data: Matrix, batch_size: int) -> list[list[list[int]]]:
    """Groups to be trained in step: one at a time on the processor, whose cache holds no more.

    Elsewhere as many as keep the rows of one step below a quarter of the matrix, or `STACK_BYTES`.
    """
    groups = batchable(tasks)
    if isinstance(data.X, np.ndarray):
        return [[members] for members in groups]
    step = 4 * batch_size * data.n_features  # bytes of a batch of float32
    most = max(1, data.n_rows // (4 * batch_size), STACK_BYTES // step)
    alike: dict[tuple[Any, ...], list[list[int]]] = {}
    for members in groups:
        alike.setdefault((len(members), *_shape(tasks[members[0]])), []).append(members)
    return [found[k : k + most] for found in alike.values() for k in range(0, len(found), most)]
