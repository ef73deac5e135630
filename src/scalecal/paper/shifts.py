"""Calibration under shift: trained at one magnification and tested at the others, and slide by slide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Factor, Features
from scalecal.features import load_features
from scalecal.io.features import read_features
from scalecal.runs.cells import Cell, joined_cell, part_of_cell, write_cell
from scalecal.runs.grid import SHARES, run_grid
from scalecal.splits import split

SEEDS = 3
"""The most seeds trained per kind."""

MOST_SLIDES = 8
"""Test slides shown one by one: those with the most patches."""


def _shifted(cell: Cell, keep: NDArray[np.bool_], train: str, test: str) -> Cell:
    """Return some cases of a cell, marked with where it was trained and tested."""
    part = part_of_cell(cell, keep)
    about = {**dict(cell.meta.get("dataset", {})), "shift": {"train": train, "test": test}}
    return replace(part, meta={**cell.meta, "dataset": about})


def shift_cells(
    data: Features,
    kind: NDArray[Any],
    *,
    dataset: str,
    encoder: str,
    methods: Sequence[str] | None = None,
    seeds: int = SEEDS,
    preset: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Cell]:
    """Train on the cases of each kind in turn, test on all kinds of other groups (patients).

    `kind` is what the cases differ in, such as the magnification. One kind is no shift: no cells.
    """
    names = kind.astype(str)
    kinds = sorted((k for k in np.unique(names).tolist() if k), key=lambda k: (len(k), k))
    if len(kinds) < 2:
        return []
    groups = None if data.cases.groups is None else data.cases.groups.codes
    options: dict[str, Any] = {"methods": methods, "preset": preset, "dataset": dataset}
    kind_of = dict(zip(data.cases.names.tolist(), names.tolist(), strict=True))
    cells = []
    for trained in kinds:
        seen = []
        for seed in range(seeds):
            part = split(data.y, groups=groups, shares=SHARES, seed=seed)  # type: ignore[arg-type]
            marked = np.where((part == "test") | (names == trained), part, "")
            train_only = data.with_cases(split=Factor.of(marked))
            seen.append(run_grid(train_only, seeds=[seed], **options).cell)
        progress(f"{dataset}/{encoder} trained on {trained}: {seeds} seed{'s' * (seeds > 1)}")
        whole = replace(joined_cell(seen), encoder=encoder)
        tested = np.array([kind_of[name] for name in whole.cases.names.tolist()])
        cells += [_shifted(whole, tested == k, trained, k) for k in kinds]
    return cells


def slides(cell: Cell) -> list[Cell]:
    """Split a cell's test cases by group (slide): each is a shift from the training slides."""
    if cell.cases.groups is None:
        return []
    groups = cell.cases.groups.values
    names, count = np.unique(groups, return_counts=True)
    largest = names[np.argsort(-count, kind="stable")][:MOST_SLIDES]
    return [_shifted(cell, groups == name, "other slides", str(name)) for name in largest]


def write_shifts(
    folder: str | Path, out: str | Path, dataset: str, encoder: str, **options: Any
) -> None:
    """Train the shifts of a feature folder whose table names the magnification, and write their cells."""
    table = load_features(folder).table
    if "magnification" not in table:
        return
    data = read_features(folder)
    kind = np.array([f"{m}X" for m in table["magnification"].tolist()])
    for cell in shift_cells(data, kind, dataset=dataset, encoder=encoder, **options):
        assert cell.shift is not None
        write_cell(Path(out) / f"{encoder}@{cell.shift[0]}-{cell.shift[1]}", cell)
