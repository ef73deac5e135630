"""Encoders of one data set put together: an ensemble, where their cases are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.special import expit, logit

from scalecal.runs.cells import Cell, Prediction

__all__ = ["ENSEMBLE", "contradiction", "ensemble"]

ENSEMBLE = "ensemble"
"""Name of the encoder that stands for all of them together; it is left out of averages over encoders."""


def contradiction(cells: Sequence[Cell]) -> str | None:
    """Say where two encoders of one data set tell different things of the same case; None: nowhere.

    Cases are the same by their ids. Votes are compared where both encoders have them.
    """
    for one, other in combinations(cells, 2):
        both = f"{one.encoder} and {other.encoder}"
        a, b = one.cases, other.cases
        if a.classes != b.classes:
            named = " and ".join(", ".join(c.classes) for c in (a, b))
            return f"{both} differ in their classes: {named}"
        _, left, right = np.intersect1d(a.names, b.names, return_indices=True)
        differs = one.y[left] != other.y[right]
        if a.votes is not None and b.votes is not None:
            differs |= (a.votes[left] != b.votes[right]).any(axis=1)
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
    if len(cells) < 2 or any(len(c.cases.classes) != 2 for c in cells):
        return None
    # Votes may be known to some encoders' files only: they are of the same cases.
    first = next((c for c in cells if c.cases.votes is not None), cells[0])
    if any(not np.array_equal(c.cases.names, first.cases.names) for c in cells) or contradiction(
        cells
    ):
        return None
    keys = [
        key
        for key in first.predictions
        if key[0] not in first.variants and all(key in c.predictions for c in cells)
    ]
    joined: dict[tuple[str, int], Prediction] = {}
    for key in keys:
        parts = [c.predictions[key] for c in cells]
        index = first.predictions[key].rows
        if any(not np.array_equal(part.rows, index) for part in parts):
            continue
        logits = [logit(np.clip(part.p, 1e-9, 1 - 1e-9)) for part in parts]
        joined[key] = Prediction(index, np.asarray(expit(np.mean(logits, axis=0))))
    return replace(first, encoder=ENSEMBLE, predictions=joined, meta={}) if joined else None
