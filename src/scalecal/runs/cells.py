"""A cell: one data set with one encoder, its test cases and every method's predictions on them.

Everything a run reports (tables, figures, claims) is a function of its cells, so it can be made again
from the files of the cells alone, without training.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import Float, InputError, Int, check_labels, check_probs, rows
from scalecal.io.store import output_folder, write_json
from scalecal.votes import STRATA

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Cell", "Prediction", "read_cell", "read_cells", "write_cell"]

Prediction = tuple[Int, Float]
"""Row numbers into the cell's cases, and the probabilities there: (n,) or (n, C)."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One data set with one encoder.

    Attributes
    ----------
    dataset, encoder : str
    ids : array of str (n,)
        All cases that are in any seed's test set; a name occurs once.
    y : array of int (n,)
        Labels 0 .. C - 1.
    counts : array of int (n, C) or None
        Readers' votes per class.
    groups : array of str (n,) or None
        Patient, slide, ... : what is resampled as a whole.
    strata : array of str (n,)
        Stratum of each case; empty for none.
    classes : tuple of str
    predictions : dict
        (method, seed) -> (row numbers, probabilities). Test sets may differ between seeds.
    meta : mapping
        What `run.json` says.
    paths : array of str (n,) or None
        Image files.
    """

    dataset: str
    encoder: str
    ids: NDArray[np.str_]
    y: Int
    counts: Int | None
    groups: NDArray[np.str_] | None
    strata: NDArray[np.str_]
    classes: tuple[str, ...]
    predictions: Mapping[tuple[str, int], Prediction]
    meta: Mapping[str, Any] = field(default_factory=dict)
    paths: NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        n = len(self.ids)
        for name in ("y", "counts", "groups", "strata", "paths"):
            values = getattr(self, name)
            if values is not None and len(values) != n:
                raise InputError(f"cell {self.name}: {name} has {len(values)} rows, ids have {n}")
        if len(np.unique(self.ids)) != n:
            raise InputError(f"cell {self.name}: case ids must be distinct")
        for (method, seed), (index, probs) in self.predictions.items():
            if len(index) != len(probs):
                raise InputError(
                    f"cell {self.name}: {method}, seed {seed} has {len(index)} row numbers but "
                    f"{len(probs)} predictions"
                )

    @property
    def name(self) -> str:
        """``dataset/encoder``."""
        return f"{self.dataset}/{self.encoder}"

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in the order they came."""
        return list(dict.fromkeys(method for method, _ in self.predictions))

    def seeds(self, method: str) -> list[int]:
        """Return the seeds a method was run with, ascending."""
        return sorted(seed for name, seed in self.predictions if name == method)

    @cached_property
    def stratum_names(self) -> tuple[str, ...]:
        """Names of the strata, easiest first where they are the default ones; no "overall"."""
        found = [str(name) for name in np.unique(self.strata) if name]
        if set(found) <= set(STRATA):
            return tuple(name for name in STRATA if name in found)
        return tuple(found)

    def inside(self, index: Int, stratum: str) -> NDArray[np.intp] | slice:
        """Which of the cases at `index` belong to a stratum; all of them for "overall"."""
        if stratum == "overall":
            return slice(None)
        return np.flatnonzero(self.strata[index] == stratum)

    @property
    def shift(self) -> tuple[str, str] | None:
        """Where the model was trained and tested, if these differ: for example ("40X", "400X")."""
        told = self.meta.get("dataset", {}).get("shift")
        return None if not told else (str(told["train"]), str(told["test"]))

    def with_predictions(self, more: Mapping[tuple[str, int], Prediction]) -> Cell:
        """Return the cell with further predictions beside its own."""
        return replace(self, predictions={**self.predictions, **more})


def _columns(prefix: str, n_classes: int) -> list[str]:
    return [f"{prefix}_{c}" for c in range(n_classes)]


def _cases_table(cell: Cell) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, Any] = {
        "id": pa.array(cell.ids.tolist(), pa.string()),
        "label": pa.array(cell.y.astype(np.int64)),
    }
    if cell.counts is not None:
        for c, name in enumerate(_columns("votes", cell.counts.shape[1])):
            columns[name] = pa.array(cell.counts[:, c].astype(np.int64))
    if cell.groups is not None:
        columns["group"] = pa.array(cell.groups.tolist(), pa.string())
    columns["stratum"] = pa.array(cell.strata.tolist(), pa.string())
    if cell.paths is not None:
        columns["path"] = pa.array(cell.paths.tolist(), pa.string())
    return pa.table(columns)


def _predictions_table(cell: Cell) -> pa.Table:
    import pyarrow as pa

    keys = list(cell.predictions)
    sizes = [len(cell.predictions[key][0]) for key in keys]
    wide = len(cell.classes) > 2
    empty: Float = np.zeros((0, len(cell.classes)) if wide else 0)
    index = np.concatenate([np.zeros(0, np.int64), *(cell.predictions[key][0] for key in keys)])
    probs = np.concatenate([empty, *(cell.predictions[key][1] for key in keys)])
    names = list(dict.fromkeys(method for method, _ in keys))
    method = np.repeat([names.index(method) for method, _ in keys], sizes)
    columns: dict[str, Any] = {
        "method": pa.DictionaryArray.from_arrays(
            pa.array(method.astype(np.int32)), pa.array(names, pa.string())
        ),
        "seed": pa.array(np.repeat([seed for _, seed in keys], sizes).astype(np.int64)),
        "id": pa.DictionaryArray.from_arrays(
            pa.array(index.astype(np.int32)), pa.array(cell.ids.tolist(), pa.string())
        ),
    }
    if wide:
        for c, name in enumerate(_columns("p", len(cell.classes))):
            columns[name] = pa.array(np.ascontiguousarray(probs[:, c]))
    else:
        columns["p"] = pa.array(probs.astype(np.float64))
    return pa.table(columns)


def write_cell(folder: str | Path, cell: Cell, *, kind: str = "reproduce") -> None:
    """Write ``run.json``, ``cases.parquet`` and ``predictions.parquet``, all of them or none.

    `kind` is the command that writes; see `scalecal.io.store.output_folder`.

    Examples
    --------
    >>> import tempfile
    >>> cell = Cell("toy", "raw", np.array(["a", "b"]), np.array([0, 1]), None, None,
    ...             np.array(["", ""]), ("no", "yes"),
    ...             {("none", 0): (np.array([0, 1]), np.array([0.2, 0.7]))})
    >>> with tempfile.TemporaryDirectory() as root:
    ...     write_cell(root, cell)
    ...     again = read_cell(root)
    >>> again.name, again.predictions["none", 0][1].tolist()
    ('toy/raw', [0.2, 0.7])
    """
    import pyarrow.parquet as pq

    told = dict(cell.meta)
    told["dataset"] = {
        **dict(told.get("dataset") or {}),
        "name": cell.dataset,
        "classes": list(cell.classes),
    }
    told["encoder"] = {**dict(told.get("encoder") or {}), "name": cell.encoder}
    told.setdefault("methods", cell.methods)
    with output_folder(folder, kind=kind) as partial:
        write_json(partial / "run.json", told)
        pq.write_table(_cases_table(cell), partial / "cases.parquet", compression="zstd")
        pq.write_table(
            _predictions_table(cell), partial / "predictions.parquet", compression="zstd"
        )


def _strings(table: pa.Table, name: str) -> NDArray[np.str_] | None:
    if name not in table.column_names:
        return None
    return np.array([value or "" for value in table[name].to_pylist()], dtype=np.str_)


def _read_predictions(
    path: Path, ids: NDArray[np.str_], n_classes: int
) -> dict[tuple[str, int], Prediction]:
    import pyarrow.parquet as pq

    table = pq.read_table(path, read_dictionary=["method", "id"])
    table = table.unify_dictionaries().combine_chunks()
    if table.num_rows == 0:
        return {}
    wide = [c for c in _columns("p", n_classes) if c in table.column_names]
    if "p" in table.column_names:
        probs = check_probs(table["p"].to_numpy(), f"p in {path.name}")
    elif len(wide) == n_classes:
        probs = check_probs(np.column_stack([table[c].to_numpy() for c in wide]), "p_0, p_1, ...")
    else:
        raise InputError(f"{path} has neither p nor p_0 .. p_{n_classes - 1}")
    place = {name: i for i, name in enumerate(ids.tolist())}
    case, method = (table[c].chunk(0) for c in ("id", "method"))
    known = np.array([place.get(name, -1) for name in case.dictionary.to_pylist()], np.int64)
    index = known[case.indices.to_numpy()]
    if (index < 0).any():
        raise InputError(
            f"{path} has predictions for cases that cases.parquet lacks: {rows(index < 0)}"
        )
    names = method.dictionary.to_pylist()
    seed = table["seed"].to_numpy().astype(np.int64)
    code = method.indices.to_numpy().astype(np.int64)
    # Runs of equal (method, seed): methods keep the order in which they were written.
    order = np.lexsort((seed, code))
    change = np.flatnonzero((np.diff(code[order]) != 0) | (np.diff(seed[order]) != 0)) + 1
    parts = np.split(order, change)
    parts.sort(key=lambda part: int(part.min()))
    return {
        (str(names[code[part[0]]]), int(seed[part[0]])): (index[part], probs[part])
        for part in parts
    }


def read_cell(folder: str | Path) -> Cell:
    """Read a cell's folder (see `write_cell`)."""
    import pyarrow.parquet as pq

    folder = Path(folder)
    for name in ("run.json", "cases.parquet", "predictions.parquet"):
        if not (folder / name).is_file():
            raise InputError(f"no cell at {folder}: {name} is missing")
    meta = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    cases = pq.read_table(folder / "cases.parquet")
    ids = _strings(cases, "id")
    if ids is None or "label" not in cases.column_names:
        raise InputError(f"{folder / 'cases.parquet'} needs the columns id and label")
    dataset, encoder = meta.get("dataset") or {}, meta.get("encoder") or {}
    raw = cases["label"].to_numpy()
    votes = [c for c in cases.column_names if c.startswith("votes_")]
    told = dataset.get("classes")
    n_classes = len(told) if told else max(2, len(votes), int(raw.max(initial=1)) + 1)
    classes = tuple(map(str, told)) if told else tuple(map(str, range(n_classes)))
    counts = None
    if votes:
        counts = np.column_stack(
            [cases[name].to_numpy().astype(np.int64) for name in _columns("votes", n_classes)]
        )
    strata = _strings(cases, "stratum")
    return Cell(
        dataset=str(dataset.get("name", folder.name)),
        encoder=str(encoder.get("name", "")),
        ids=ids,
        y=check_labels(raw, n_classes, "label"),
        counts=counts,
        groups=_strings(cases, "group"),
        strata=np.full(len(ids), "", dtype=np.str_) if strata is None else strata,
        classes=classes,
        predictions=_read_predictions(folder / "predictions.parquet", ids, n_classes),
        meta=meta,
        paths=_strings(cases, "path"),
    )


def read_cells(folders: Iterable[str | Path]) -> list[Cell]:
    """Read several cells, in the order given."""
    return [read_cell(folder) for folder in folders]
