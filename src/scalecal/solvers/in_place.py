"""Few probes by the compiled loops of `scalecal.solvers.kernels`, where those can be used and pay."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.solvers.arrays import Array, Matrix
from scalecal.solvers.mixing import adjoining, coefficients
from scalecal.solvers.problem import Scaling, Task

__all__ = ["InPlace", "kernels"]

MOST_COLUMNS = 16  # for so many, this is faster than gathering rows and calling BLAS


@cache
def kernels() -> Any:
    """Return the compiled loops, brought in when first wanted; None without the compiler, numba."""
    try:
        found = importlib.import_module("scalecal.solvers.kernels")
    except ImportError:
        return None
    return None if found.numba.config.DISABLE_JIT else found


class InPlace:
    """Some columns, and all they learn from, as the loops want them.

    The loops are compiled once for each kind of array: so that there is one kind only, rows are
    always read-only and everything else is contiguous.
    """

    def __init__(
        self,
        data: Matrix,
        tasks: Sequence[Task],
        rows: Array,
        targets: Array,
        counts: Array | None,
        factor: Array,
    ) -> None:
        self.loops, self.X = kernels(), _read_only(data.X)
        if counts is None:
            counts = np.ones((1, targets.shape[1]), dtype=data.dtype)
        self.factor, classes = factor, tasks[0].n_columns
        rows, targets = np.ascontiguousarray(rows), np.ascontiguousarray(targets)
        self.known = self.loops.Cases(rows, targets, counts, classes)
        self.pairs = self._pairs(data, tasks)
        self.rates = np.repeat([float(t.learning_rate) for t in tasks], classes)
        self.decays = data.array(np.repeat([float(t.decay) for t in tasks], classes))

    @staticmethod
    def pays(data: Matrix, task: Task, scaling: Scaling | None, columns: int) -> bool:
        """Whether tasks as this one can be trained so, and faster than on gathered rows."""
        fits = data.plain and scaling is None and task.loss == "log"
        return fits and columns <= MOST_COLUMNS and kernels() is not None

    def _pairs(self, data: Matrix, tasks: Sequence[Task]) -> Any:
        """The synthetic cases: for each set of them, its columns, rows, places and shares."""
        columns, rows, places, parts = [], [], [], []
        for start, stop in adjoining(tasks):
            mixtures = tasks[start].mixtures
            if mixtures is None:
                continue
            both = np.stack([mixtures.first, mixtures.second])
            once, place = np.unique(both, return_inverse=True)
            columns.append((start * self.known.classes, stop * self.known.classes))
            rows.append(once)
            places.append(place.reshape(both.shape))
            parts.append(np.stack(coefficients(data, mixtures, None)))
        shape = len(rows), 2, tasks[0].n_mixtures
        return self.loops.Pairs(
            columns=np.array(columns, dtype=np.int64).reshape(-1, 2),
            rows=_filled(rows),
            sizes=np.array([len(once) for once in rows], dtype=np.int64),
            places=np.array(places, dtype=np.int64).reshape(shape),
            parts=np.array(parts, dtype=data.dtype).reshape(shape),
        )

    def forward(self, rows: Array, weights: Array, out: Array) -> None:
        """Write ``weights @ rows.T`` into `out`."""
        self.loops.forward(_read_only(rows), np.arange(len(rows)), weights, out)

    def epoch(
        self,
        order: NDArray[np.int64],
        batch_size: int,
        state: Array,
        gradient: Array,
        moments: Sequence[Array],
        step: int,
    ) -> None:
        """Take one step for each batch of the cases in `order`; see `kernels.epoch`."""
        self.loops.epoch(
            self.X,
            order,
            batch_size,
            self.known,
            self.pairs,
            self.factor,
            state,
            gradient,
            *moments,
            self.rates,
            self.decays,
            step,
        )


def _read_only(rows: Array) -> Array:
    """The same rows."""
    view = rows.view()
    view.flags.writeable = False
    return view


def _filled(rows: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Lists of numbers below each other, zeros after the shorter ones."""
    out = np.zeros((len(rows), max(map(len, rows), default=0)), dtype=np.int64)
    for line, values in zip(out, rows, strict=True):
        line[: len(values)] = values
    return out
