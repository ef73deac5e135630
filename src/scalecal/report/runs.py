"""Run folders on disk, read into cells: one data set with one encoder each.

A folder that holds `cases.parquet` and `predictions.parquet` is a cell; a run folder is a cell, or
holds cells below `cells/`. Nothing is computed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import Float, InputError, Int
from scalecal.votes import STRATA

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BASELINE", "Cell", "Prediction", "Run", "newest_report", "read_runs"]

BASELINE = "none"
"""Name of the method that leaves a probe as it is."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """One method's probabilities in one seed's test set; `rows` number the cell's cases."""

    rows: NDArray[np.intp]
    probs: Float


@dataclass(frozen=True, eq=False)
class Cell:
    """One data set with one encoder: cases, predictions by method and seed, and tables made of them.

    `codes` number each case's stratum in `strata`, -1 for none. `derived` says in a sentence how a
    method came about that the run itself does not have.
    """

    key: str
    name: str
    folder: Path
    info: Mapping[str, Any]
    run: int
    ids: NDArray[np.object_]
    y: Int
    counts: Int | None
    codes: Int
    strata: tuple[str, ...]
    groups: Int | None
    paths: NDArray[np.object_] | None
    predictions: Mapping[str, Mapping[int, Prediction]]
    derived: Mapping[str, str] = field(default_factory=dict)

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, in the order of the run."""
        return tuple(self.predictions)

    @property
    def baseline(self) -> str:
        """What the others are compared with: the uncalibrated probe, or the first method."""
        return BASELINE if BASELINE in self.predictions else self.methods[0]

    @property
    def hardest(self) -> str | None:
        """The stratum whose cases are hardest: low agreement, or the last one given."""
        if not self.strata:
            return None
        return "low" if "low" in self.strata else self.strata[-1]

    def first(self, method: str) -> tuple[int, Prediction]:
        """First seed of a method, and its predictions."""
        return next(iter(self.predictions[method].items()))

    def inside(self, rows: NDArray[np.intp], stratum: str) -> NDArray[np.bool_]:
        """Which of some cases belong to a stratum; all of them to "overall"."""
        if stratum == "overall":
            return np.ones(len(rows), dtype=bool)
        return np.asarray(self.codes[rows] == self.strata.index(stratum))

    def table(self, name: str) -> pd.DataFrame | None:
        """Read a CSV table the run left beside the cases, or None."""
        import pandas as pd

        path = self.folder / name
        return pd.read_csv(path) if path.is_file() else None

    def json(self, name: str) -> Any:
        """Read a JSON file the run left beside the cases, or None."""
        return _read_json(self.folder / name)

    def with_methods(
        self, added: Mapping[str, Mapping[int, Prediction]], how: Mapping[str, str]
    ) -> Cell:
        """Return the same cell with further methods."""
        return replace(
            self, predictions={**self.predictions, **added}, derived={**self.derived, **how}
        )


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
        info = _read_json(folder / "run.json") or _read_json(places[0] / "run.json") or {}
        cells = []
        for place in places:
            cells.append(_read_cell(place, f"c{count}", number, info))
            count += 1
        runs.append(Run(folder, info, tuple(cells), _read_json(folder / "claims.json") or []))
    return runs


def _name(info: Mapping[str, Any], folder: Path) -> str:
    dataset = (info.get("dataset") or {}).get("name")
    encoder = (info.get("encoder") or {}).get("name")
    parts = [str(part) for part in (dataset, encoder) if part]
    return ", ".join(parts) or str(info.get("title") or folder.name)


def _numbered(frame: pd.DataFrame, start: str) -> list[str]:
    """Columns `start` + number, by number."""
    names = [str(c) for c in frame.columns]
    found = [c for c in names if c.startswith(start) and c[len(start) :].isdecimal()]
    return sorted(found, key=lambda c: int(c[len(start) :]))


def _read_cell(folder: Path, key: str, run: int, above: Mapping[str, Any]) -> Cell:
    import pandas as pd

    info = _read_json(folder / "run.json") or above
    cases = pd.read_parquet(folder / "cases.parquet")
    for column in ("id", "label"):
        if column not in cases:
            raise InputError(f"{folder / 'cases.parquet'} has no column {column!r}")
    ids = cases["id"].astype(str).to_numpy(dtype=object)
    y = cases["label"].to_numpy(dtype=np.int64)
    votes = _numbered(cases, "votes_")
    counts = cases[votes].to_numpy(dtype=np.int64) if votes else None
    named = [""] * len(cases)
    if "stratum" in cases:
        named = ["" if v is None or v != v else str(v) for v in cases["stratum"].tolist()]
    strata = tuple(sorted({name for name in named if name}))
    if set(strata) <= set(STRATA):
        strata = tuple(name for name in STRATA if name in strata)
    place = {name: i for i, name in enumerate(strata)}
    codes = np.array([place.get(name, -1) for name in named], dtype=np.int64)
    groups = None
    if "group" in cases and cases["group"].notna().all():
        groups = pd.factorize(cases["group"])[0].astype(np.int64)
    paths = cases["path"].to_numpy(dtype=object) if "path" in cases else None
    predictions = _read_predictions(folder, ids, info)
    name = _name(info, folder)
    return Cell(
        key, name, folder, info, run, ids, y, counts, codes, strata, groups, paths, predictions
    )


def _read_predictions(
    folder: Path, ids: NDArray[np.object_], info: Mapping[str, Any]
) -> dict[str, dict[int, Prediction]]:
    import pandas as pd

    path = folder / "predictions.parquet"
    frame = pd.read_parquet(path)
    columns = _numbered(frame, "p_") or ["p"]
    if columns == ["p_0", "p_1"]:
        columns = ["p_1"]
    missing = [c for c in ("method", "seed", "id", *columns) if c not in frame]
    if missing:
        raise InputError(f"{path} has no column {', '.join(missing)}")
    if len(frame) == 0:
        raise InputError(f"{path} holds no prediction")
    row = pd.Index(ids).get_indexer(pd.Index(frame["id"].astype(str)))
    if (row < 0).any():
        unknown = frame["id"].iloc[int(np.argmin(row))]
        raise InputError(f"{path} names case {unknown!r}, which cases.parquet does not hold")
    probs = frame[columns].to_numpy(dtype=np.float64)
    found: dict[str, dict[int, Prediction]] = {}
    pairs = frame["method"].astype(str).to_numpy(), frame["seed"].to_numpy(dtype=np.int64)
    for method in dict.fromkeys(pairs[0]):
        of_method = np.flatnonzero(pairs[0] == method)
        for seed in np.unique(pairs[1][of_method]).tolist():
            index = of_method[pairs[1][of_method] == seed]
            p = probs[index, 0] if len(columns) == 1 else probs[index]
            found.setdefault(str(method), {})[seed] = Prediction(row[index], p)
    order = [m for m in info.get("methods", ()) if m in found]
    order += [m for m in found if m not in order]
    return {method: found[method] for method in order}


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
