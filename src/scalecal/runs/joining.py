"""Cells put together: seeds into one cell, encoders into an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from scalecal.runs.cells import Cell, Prediction

__all__ = ["cell_of_seed", "contradiction", "ensemble", "joined_cell", "part_of_cell"]

ENSEMBLE = "ensemble"
"""Name of the encoder that stands for all of them together; it is left out of averages over encoders."""


def part_of_cell(cell: Cell, keep: NDArray[np.bool_]) -> Cell:
    """Return the part of a cell with some of its cases."""
    kept = np.flatnonzero(keep)
    place = np.full(len(keep), -1)
    place[kept] = np.arange(len(kept))
    predictions: dict[tuple[str, int], Prediction] = {}
    for key, (index, probs) in cell.predictions.items():
        inside = place[index] >= 0
        predictions[key] = (place[index[inside]], probs[inside])

    def some(values: Any) -> Any:
        return None if values is None else values[kept]

    return replace(
        cell,
        ids=cell.ids[kept],
        y=cell.y[kept],
        counts=some(cell.counts),
        groups=some(cell.groups),
        strata=cell.strata[kept],
        paths=some(cell.paths),
        predictions=predictions,
    )


def cell_of_seed(cell: Cell, seed: int) -> Cell:
    """Return one seed of a cell: its test cases and its predictions alone."""
    own = {key: value for key, value in cell.predictions.items() if key[1] == seed}
    tested = np.zeros(len(cell.ids), dtype=bool)
    for index, _ in own.values():
        tested[index] = True
    return part_of_cell(replace(cell, predictions=own), tested)


def joined_cell(cells: Sequence[Cell]) -> Cell:
    """One cell of several seeds: cases of all of them, in the order of their ids' first appearance."""
    place: dict[str, int] = {}
    pick: list[tuple[int, int]] = []
    for number, cell in enumerate(cells):
        for row, name in enumerate(cell.ids.tolist()):
            if name not in place:
                place[name] = len(place)
                pick.append((number, row))
    predictions: dict[tuple[str, int], Prediction] = {}
    for cell in cells:
        rows = np.array([place[name] for name in cell.ids.tolist()])
        for key, (index, probs) in cell.predictions.items():
            predictions[key] = (rows[index], probs)
    methods = list(dict.fromkeys(name for cell in cells for name in cell.methods))
    ordered = {
        (m, s): predictions[m, s]
        for m in methods
        for s in sorted({k[1] for k in predictions if k[0] == m})
    }

    def gather(name: str) -> Any:
        if getattr(cells[0], name) is None:
            return None
        return np.array([getattr(cells[c], name)[r] for c, r in pick])

    return replace(
        cells[0],
        ids=gather("ids"),
        y=gather("y"),
        counts=gather("counts"),
        groups=gather("groups"),
        strata=gather("strata"),
        paths=gather("paths"),
        predictions=ordered,
    )


def contradiction(cells: Sequence[Cell]) -> str | None:
    """Say where two encoders of one data set tell different things of the same case; None: nowhere.

    Cases are the same by their ids. Votes are compared where both encoders have them.
    """
    for one, other in combinations(cells, 2):
        both = f"{one.encoder} and {other.encoder}"
        if one.classes != other.classes:
            named = " and ".join(", ".join(c.classes) for c in (one, other))
            return f"{both} differ in their classes: {named}"
        _, left, right = np.intersect1d(one.ids, other.ids, return_indices=True)
        differs = one.y[left] != other.y[right]
        if one.counts is not None and other.counts is not None:
            differs |= (one.counts[left] != other.counts[right]).any(axis=1)
        if differs.any():
            return (
                f"{both} contradict each other in the labels or votes of {int(differs.sum()):,} of "
                f"{len(left):,} cases of the same id"
            )
    return None


def ensemble(cells: Sequence[Cell]) -> Cell | None:
    """Join the encoders of one data set: mean logit per method and case; None for one encoder.

    Two classes; cases must be the same for all encoders: ids, labels and votes.
    """
    if len(cells) < 2 or any(len(c.classes) != 2 for c in cells):
        return None
    # Votes may be known to some encoders' files only: they are of the same cases.
    first = next((c for c in cells if c.counts is not None), cells[0])
    if any(not np.array_equal(c.ids, first.ids) for c in cells) or contradiction(cells):
        return None
    keys = [
        k for k in first.predictions if "@" not in k[0] and all(k in c.predictions for c in cells)
    ]
    joined: dict[tuple[str, int], Prediction] = {}
    for key in keys:
        index = first.predictions[key][0]
        if any(not np.array_equal(c.predictions[key][0], index) for c in cells):
            continue
        clipped = [np.clip(c.predictions[key][1], 1e-9, 1 - 1e-9) for c in cells]
        joined[key] = (index, np.asarray(expit(np.mean([logit(p) for p in clipped], axis=0))))
    return replace(first, encoder=ENSEMBLE, predictions=joined, meta={}) if joined else None
