"""Run folders on disk, read into cells: one data set with one encoder each.

A folder that holds `cases.parquet` and `predictions.parquet` is a cell; a run folder is a cell, or
holds cells below `cells/`. Nothing is computed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import Float, InputError, Int
from scalecal.runs.cells import Cell as CellData
from scalecal.runs.cells import Prediction as Answers
from scalecal.runs.cells import read_cell

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BASELINE", "Cell", "Prediction", "Run", "newest_report", "read_runs"]

BASELINE = "none"
"""Name of the method that leaves a probe as it is."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """One method's probabilities in one seed's test set; `rows` number the cell's cases."""

    rows: Int
    probs: Float


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell in a report: its data, where it lies, which run it is of, and its name on the page.

    `derived` says in a sentence how a method came about that the run itself does not have.
    """

    key: str
    run: int
    folder: Path
    data: CellData
    derived: Mapping[str, str] = field(default_factory=dict)

    @property
    def info(self) -> Mapping[str, Any]:
        """What `run.json` says."""
        return self.data.meta

    @property
    def name(self) -> str:
        """Data set and encoder, and where a model was tested elsewhere than trained."""
        parts = [part for part in (self.data.dataset, self.data.encoder) if part]
        if self.data.shift is not None:
            parts.append("trained on {}, tested on {}".format(*self.data.shift))
        return ", ".join(parts)

    @property
    def y(self) -> Int:
        """Labels of all cases."""
        return self.data.y

    @property
    def counts(self) -> Int | None:
        """Votes of all cases, where there are any."""
        return self.data.cases.votes

    @property
    def strata(self) -> tuple[str, ...]:
        """Names of the strata, without "overall"."""
        return self.data.stratum_names

    @cached_property
    def codes(self) -> Int:
        """Stratum number of each case, -1 for none."""
        return self.data.codes

    @cached_property
    def groups(self) -> Int | None:
        """Group number of each case, or None."""
        return None if self.data.cases.groups is None else self.data.cases.groups.codes

    @cached_property
    def predictions(self) -> dict[str, dict[int, Prediction]]:
        """Predictions by method and seed; two classes as one column."""
        out: dict[str, dict[int, Prediction]] = {method: {} for method in self.data.methods}
        for method in out:
            for seed in self.data.seeds(method):
                part = self.data.predictions[method, seed]
                out[method][seed] = Prediction(part.rows, part.p)
        return out

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in the order of the run."""
        return self.data.methods

    @property
    def baseline(self) -> str:
        """What the others are compared with: the uncalibrated probe, or the first method."""
        return BASELINE if BASELINE in self.methods else self.methods[0]

    @property
    def hardest(self) -> str | None:
        """The stratum whose cases are hardest: low agreement, or the last one given."""
        if not self.strata:
            return None
        return "low" if "low" in self.strata else self.strata[-1]

    def first(self, method: str) -> tuple[int, Prediction]:
        """First seed of a method, and its predictions."""
        return next(iter(self.predictions[method].items()))

    def inside(self, rows: Int, stratum: str) -> NDArray[np.bool_]:
        """Which of some cases belong to a stratum; all of them to "overall"."""
        if stratum == "overall":
            return np.ones(len(rows), dtype=bool)
        return np.asarray(self.codes[rows] == self.strata.index(stratum))

    def table(self, name: str) -> pd.DataFrame | None:
        """Read a CSV table the run left beside the cases, or None."""
        import pandas as pd

        path = self.folder / name
        # "none" is the name of a method here, never a missing value.
        return pd.read_csv(path, keep_default_na=False, na_values=[""]) if path.is_file() else None

    def json(self, name: str) -> Any:
        """Read a JSON file the run left beside the cases, or None."""
        return _read_json(self.folder / name)

    def with_methods(self, added: Mapping[str, Prediction], how: Mapping[str, str]) -> Cell:
        """Return the same cell with further methods, all of the first seed."""
        seed, _ = self.first(self.baseline)
        more = {(m, seed): Answers(given.rows, given.probs) for m, given in added.items()}
        data = self.data.with_predictions(more)
        return replace(self, data=data, derived={**self.derived, **how})


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder: what made it, its cells and its claims."""

    folder: Path
    info: Mapping[str, Any]
    cells: tuple[Cell, ...]
    claims: Sequence[Mapping[str, Any]]


def _read_json(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def _is_cell(folder: Path) -> bool:
    return (folder / "cases.parquet").is_file() and (folder / "predictions.parquet").is_file()


def _main_methods(data: CellData) -> CellData:
    """Leave out other settings of a method that is there itself: tables hold those."""
    settings = {m for m, of in data.variants.items() if of in data.methods}
    kept = {key: part for key, part in data.predictions.items() if key[0] not in settings}
    return replace(data, predictions=kept)


def read_runs(folders: Sequence[str | Path]) -> list[Run]:
    """Read run folders of any kind; cells of all of them are numbered through."""
    if not folders:
        raise InputError("no run given: name at least one folder that a scalecal command wrote")
    runs: list[Run] = []
    count = 0
    for number, given in enumerate(folders):
        folder = Path(given)
        places = [folder] if _is_cell(folder) else []
        places += sorted(p for p in folder.glob("cells/*/*") if _is_cell(p))
        if not places:
            raise InputError(
                f"no run at {folder}: expected cases.parquet and predictions.parquet there, or below "
                "cells/. Run scalecal audit, compare, reproduce or demo with --out first"
            )
        found = [(place, read_cell(place)) for place in places]
        for place, data in found:
            if not data.predictions:
                raise InputError(f"{place / 'predictions.parquet'} holds no prediction")
        shown = [(place, data) for place, data in found if data.shift is None] or found
        # Data with strata first: they are what a reader comes for.
        shown.sort(key=lambda pair: not pair[1].stratum_names)
        cells = []
        for place, data in shown:
            cells.append(Cell(f"c{count}", number, place, _main_methods(data)))
            count += 1
        info = _read_json(folder / "run.json") or cells[0].info
        if len(shown) < len(found):
            said = (
                f"{len(found) - len(shown)} models tested elsewhere than trained are not on this page: "
                "see the run’s tables/shift.md and figures/shift.svg."
            )
            info = {**info, "notes": [*(info.get("notes") or ()), said]}
        runs.append(Run(folder, info, tuple(cells), _read_json(folder / "claims.json") or []))
    return runs


def newest_report(folder: str | Path = "runs") -> Path:
    """Return the report written last in a folder or anywhere below it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     Path(root, "report.html").touch()
    ...     newest_report(root).name
    'report.html'
    """
    found = [p for p in Path(folder).rglob("*.html") if p.is_file()]
    if not found:
        raise InputError(f"no report below {folder}. Run scalecal demo, or scalecal report RUN")
    return max(found, key=lambda p: (p.stat().st_mtime, str(p)))
