"""What a reader should know of a cell and of a run of many, put together from what was noted in training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scalecal.paper.sources import Source, skipped_images
from scalecal.runs.cells import Cell
from scalecal.runs.grid import LEFT_OUT, Grid
from scalecal.runs.methods import METHODS

__all__ = ["cell_notes", "run_notes"]


def cell_notes(cell: Cell, seeds: Sequence[Cell], source: Source) -> list[str]:
    """What a reader should know of a cell: of all its seeds together."""
    skipped = skipped_images(source)
    notes = [] if skipped is None else [skipped]
    if any("capped" not in c.meta for c in seeds):  # trained by an older version
        return notes + list(dict.fromkeys(note for c in seeds for note in c.meta.get("notes", [])))
    capped: dict[str, int] = {}
    left_out: dict[str, str] = {}
    # Seeds that were trained together tell of all of them.
    for told in {tuple(c.meta["trained_with"]): c.meta for c in seeds}.values():
        left_out |= told["left_out"]
        for name, count in told["capped"].items():
            capped[name] = capped.get(name, 0) + count
    return notes + Grid(cell, left_out, capped, {}, {}, 0.0).notes


def run_notes(cells: Iterable[Cell]) -> list[str]:
    """Put the notes of many cells together: the same words once, with the cells they are of."""
    methods: dict[tuple[str, str], list[str]] = {}
    said: dict[str, list[str]] = {}
    for cell in cells:
        for note in cell.meta.get("notes", []):
            name, left_out, why = note.partition(LEFT_OUT)
            if not left_out:
                said.setdefault(note, []).append(cell.name)
            elif not (name in METHODS and METHODS[name].over_encoders):  # that is made of the cells
                methods.setdefault((cell.name, why), []).append(name)
    for (cell_name, why), names in methods.items():
        text = f"{names[0]}{LEFT_OUT}{why}"
        if len(names) > 1:
            reason = why.replace("it needs", "they need", 1).replace("it is", "they are", 1)
            text = f"{', '.join(names)} are left out: {reason}"
        said.setdefault(text, []).append(cell_name)
    return [f"{', '.join(names)}: {note}" for note, names in said.items()]
