"""The cases of an image set as plain arrays, and which of them train, select and test a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, Int
from scalecal.splits import PARTS, hold_out, split

if TYPE_CHECKING:
    import pandas as pd

    from scalecal.datasets.image_sets import ImageSet

__all__ = ["Cases", "Parts", "at", "parts_of", "read_cases"]


Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Cases:
    """The labelled cases of an image set; `rows` are their rows in it.

    `counts` are readers per class, zeros where nobody voted, None without any vote; `part` is the
    published split, "" where there is none.
    """

    rows: Int
    ids: NDArray[np.str_]
    y: Int
    counts: Int | None
    groups: NDArray[np.str_] | None
    part: NDArray[np.str_]
    paths: NDArray[np.str_] | None
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)


def read_cases(images: ImageSet) -> Cases:
    """Return the labelled cases of an image set."""
    table = images.table
    known = table["label"].notna().to_numpy()
    if not known.any():
        raise InputError(f"{images.name} has no labels: a network cannot be trained on it")
    notes = []
    if not known.all():
        notes.append(
            f"{int((~known).sum())} of {len(known)} images have no label and were not used."
        )
    kept = table[known]
    part = kept["split"].fillna("").to_numpy(dtype=str)
    if (part != "").any() and (part == "").any():
        notes.append(f"{int((part == '').sum())} images belong to no part and were not used.")
    groups = kept["group"]
    if groups.notna().any() and groups.isna().any():
        raise InputError(
            f"{images.name}: {int(groups.isna().sum())} cases have no group where others have one"
        )
    return Cases(
        rows=np.flatnonzero(known).astype(np.int64),
        ids=kept["id"].to_numpy(dtype=np.str_),
        y=kept["label"].to_numpy(dtype=np.int64),
        counts=_counts(kept, images.classes),
        groups=groups.to_numpy(dtype=np.str_) if groups.notna().any() else None,
        part=part,
        paths=kept["path"].to_numpy(dtype=np.str_) if "path" in kept else None,
        notes=tuple(notes),
    )


def _counts(table: pd.DataFrame, classes: tuple[str, ...]) -> Int | None:
    if not table["n_raters"].notna().any():
        return None
    readers = table["n_raters"].fillna(0).to_numpy(dtype=np.int64)
    if len(classes) == 2:
        positive = table["votes"].fillna(0).to_numpy(dtype=np.int64)
        return np.column_stack([readers - positive, positive])
    names = [f"votes_{name}" for name in classes]
    return table[names].fillna(0).to_numpy(dtype=np.int64)


def at(values: NDArray[Scalar] | None, positions: Int) -> NDArray[Scalar] | None:
    """Return the values at these positions, or None where there are none at all."""
    return None if values is None else values[positions]


@dataclass(frozen=True)
class Parts:
    """Positions of the cases that train, that choose the epoch, and that test."""

    train: Int
    val: Int
    test: Int


def parts_of(cases: Cases, seed: int, *, validation: float, test: float) -> Parts:
    """Divide the cases for one seed.

    A published test part is kept, and so is a published validation part; otherwise `validation`
    of the training cases are held out, stratified and never through a group. Without any published
    part the cases are divided anew for every seed, `test` of them for testing.
    """
    positions = np.arange(len(cases))
    if not (cases.part == "test").any():
        if (cases.part != "").any():
            raise InputError("the data set names parts but no test cases: nothing could be tested")
        train = 1.0 - validation - test
        if min(train, validation, test) <= 0:
            raise InputError(
                f"validation ({validation:g}) and test ({test:g}) must be above 0 and leave cases "
                "to train on"
            )
        names = split(cases.y, groups=cases.groups, shares=(train, validation, test), seed=seed)
        return Parts(*(positions[names == part] for part in PARTS))
    train_cases = positions[cases.part == "train"]
    if len(train_cases) == 0:
        raise InputError("the data set has test cases but no training cases")
    tested = positions[cases.part == "test"]
    if (cases.part == "val").any():
        return Parts(train_cases, positions[cases.part == "val"], tested)
    kept, held = hold_out(
        cases.y[train_cases],
        share=validation,
        groups=at(cases.groups, train_cases),
        seed=seed,
    )
    return Parts(train_cases[kept], train_cases[held], tested)
