"""The cases that decide when a probe stops, and targets as the solvers lay them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.solvers.arrays import CHUNK_ROWS, Array, Matrix
from scalecal.solvers.problem import Scaling, Task, same_content

__all__ = ["Held", "held_sets", "stack_targets"]


@dataclass
class Held:
    """Validation cases shared by some of a group's probes."""

    data: Matrix
    rows: Array
    targets: Array  # (columns of those probes, cases)
    probes: NDArray[np.int64]  # numbers within the group
    weights: Array | None = None
    kept: Array | None = None

    def chunks(self, scaling: Scaling | None) -> Iterator[tuple[slice, Array]]:
        """The cases, some thousand rows at a time; a single chunk is gathered only once."""
        n = int(self.rows.shape[0])
        if n <= CHUNK_ROWS:
            if self.kept is None:
                room = self.data.room(n, self.data.n_features)
                self.kept = self.data.take(self.rows, scaling, room)
            yield slice(0, n), self.kept
            return
        buffer = None  # devices keep freed memory at hand themselves
        if isinstance(self.data.X, np.ndarray):
            buffer = self.data.empty(CHUNK_ROWS, self.data.n_features)
        for start in range(0, n, CHUNK_ROWS):
            block = slice(start, min(start + CHUNK_ROWS, n))
            yield block, self.data.take(self.rows[block], scaling, buffer)


def stack_targets(data: Matrix, targets: Iterable[NDArray[Any]], n_columns: int) -> Array:
    """Targets of several probes, given one after another, as one array of `n_columns` rows."""
    out: NDArray[Any] | None = None
    place = 0
    for each in targets:
        columns = np.atleast_2d(each.T)
        if out is None:
            double = data.dtype == data.xp.float64
            out = np.empty((n_columns, columns.shape[1]), np.float64 if double else np.float32)
        out[place : place + len(columns)] = columns
        place += len(columns)
    return data.array(out)


def held_sets(tasks: Sequence[Task], data: Matrix, held: Matrix) -> list[Held]:
    """Validation sets, each with the probes it decides about.

    Probes without one are measured on their training cases (rows of `data`).
    """
    given_sets = same_content([t.validation for t in tasks])
    own_rows = same_content([t.rows if t.validation is None else None for t in tasks])
    numbers = np.asarray(given_sets) * len(tasks) + np.asarray(own_rows)
    sets = []
    for number in np.unique(numbers):
        probes = np.flatnonzero(numbers == number)
        mine = [tasks[i] for i in probes.tolist()]
        given = [t.validation_targets for t in mine if t.validation_targets is not None]
        if mine[0].validation is not None:
            index = held.index(mine[0].validation)
            targets = stack_targets(data, given, len(mine) * mine[0].n_columns)
            sets.append(Held(held, index, targets, probes))
            continue
        weights = None
        if any(t.weights is not None for t in mine):
            raw = np.stack([t.all_weights()[: len(t.rows)] for t in mine])
            weights = data.array(raw / raw.mean(axis=1, keepdims=True))
        targets = stack_targets(data, (t.targets for t in mine), len(mine) * mine[0].n_columns)
        sets.append(Held(data, data.index(mine[0].rows), targets, probes, weights))
    return sets
