"""The paper's figures and those it lacks, as functions of the evidence.

`FIGURES` maps a figure's name to its function. A figure that cannot be drawn says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scalecal.auditing.plots import save
from scalecal.io.store import write_json
from scalecal.paper.evidence import Evidence
from scalecal.paper.figures.comparisons import (
    figure_audit,
    figure_comparison,
    figure_sensitivity,
    figure_shift,
)
from scalecal.paper.figures.geometry import figure_map, figure_overview, figure_smoothing
from scalecal.paper.figures.marks import Drawing
from scalecal.paper.figures.tradeoffs import (
    figure_frontier,
    figure_reliability,
    figure_reliability_scale,
)

__all__ = ["FIGURES", "Drawing", "write_figures"]

FIGURES: dict[str, Callable[[Evidence], Drawing]] = {
    "overview": figure_overview,
    "smoothing": figure_smoothing,
    "audit": figure_audit,
    "comparison": figure_comparison,
    "sensitivity": figure_sensitivity,
    "reliability": figure_reliability,
    "reliability_scale": figure_reliability_scale,
    "frontier": figure_frontier,
    "map": figure_map,
    "shift": figure_shift,
}
"""Name -> function of the evidence."""


def write_figures(
    folder: str | Path, evidence: Evidence, formats: Sequence[str] = ("svg", "png", "pdf")
) -> list[dict[str, Any]]:
    """Draw every figure into a folder; ``figures.json`` there holds captions, files and reasons."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for name, draw in FIGURES.items():
        made = draw(evidence)
        files = [] if made.figure is None else save(made.figure, folder / name, formats)
        listed.append(
            {
                "name": name,
                "caption": made.caption,
                "files": [path.name for path in files],
                "reason": made.reason,
            }
        )
    write_json(folder / "figures.json", listed)
    return listed
