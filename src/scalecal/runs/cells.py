"""A cell: one data set with one encoder, its test cases and every method's predictions on them.

Everything a run reports (tables, figures, claims) is a function of its cells, so it can be made again
from the files of the cells alone, without training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases, Factor, Predictions, Rows
from scalecal.checks import Float, InputError, Int, check_labels, check_probs, in_file, rows
from scalecal.io.boundary import reading
from scalecal.io.documents import check_document, read_document
from scalecal.io.store import output_folder, write_json
from scalecal.io.tables import read_parquet
from scalecal.metrics.reweighting import Reweighted
from scalecal.panel import check_rho
from scalecal.votes import STRATA, stratum_codes

if TYPE_CHECKING:
    import pyarrow as pa

BASELINE = "none"
"""Name of the method that leaves a probe as it is."""
PUBLISHED, VOTED = "panel-published", "panel-votes"
"""The panel without a vote, and with those of some cases."""

_AGAIN = "Make the run again, or copy it again"


@dataclass(frozen=True, eq=False)
class Prediction:
    """One method's answers in one seed's test set.

    `rows` number the cell's cases; `p`, `p_reader` and `rho` are as in `scalecal.cases.Predictions`.
    """

    rows: Int
    p: Float
    p_reader: Float | None = None
    rho: float = 0.0

    def __post_init__(self) -> None:
        for values in (self.p, self.p_reader):
            if values is not None and len(values) != len(self.rows):
                raise InputError(
                    f"{len(self.rows)} row numbers, but {len(values)} predictions for them"
                )

    @property
    def vote_p(self) -> Float:
        """What votes judge: `p_reader`, or `p` where there is none."""
        return self.p if self.p_reader is None else self.p_reader

    def take(self, keep: Rows) -> Prediction:
        """Return some of the answers."""
        reader = None if self.p_reader is None else self.p_reader[keep]
        return replace(self, rows=self.rows[keep], p=self.p[keep], p_reader=reader)

    def renumbered(self, place: Int) -> Prediction:
        """Return the same answers where case i is now number `place[i]`."""
        return replace(self, rows=place[self.rows])


@dataclass(frozen=True, eq=False)
class Cell:
    """One data set with one encoder.

    Attributes
    ----------
    dataset, encoder : str
    cases : Cases
        All cases that are in any seed's test set, with ids and labels; a name occurs once.
    predictions : dict
        (method, seed) -> `Prediction`. Test sets may differ between seeds.
    meta : mapping
        What `run.json` says.
    """

    dataset: str
    encoder: str
    cases: Cases
    predictions: Mapping[tuple[str, int], Prediction]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.cases.y is None:
            raise InputError(f"cell {self.name}: the cases have no labels")
        if len(np.unique(self.cases.names)) != self.cases.n:
            raise InputError(f"cell {self.name}: case ids must be distinct")

    @property
    def name(self) -> str:
        """``dataset/encoder``."""
        return f"{self.dataset}/{self.encoder}"

    @property
    def y(self) -> Int:
        """Labels of all cases."""
        assert self.cases.y is not None
        return self.cases.y

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in the order they came."""
        return list(dict.fromkeys(method for method, _ in self.predictions))

    @property
    def variants(self) -> Mapping[str, str]:
        """Method -> the method it is another setting of, where it is one: the points of a sweep."""
        return dict(self.meta.get("variants") or {})

    @property
    def calibration(self) -> Mapping[str, Any]:
        """What `scalecal calibrate` did: `after`, the method set beside the baseline, and more; or empty."""
        return dict(self.meta.get("calibration") or {})

    @property
    def prevalence(self) -> float | None:
        """Share of positives in the population that numbers are of, where a run has one; else None."""
        value = (self.meta.get("options") or {}).get("prevalence")
        return None if value is None else float(value)

    def reweighted(self, part: Prediction) -> Reweighted | None:
        """The cases of a test set with the weights of their classes; None where these are all one."""
        if self.prevalence is None:
            return None
        groups = self.groups_of(part.rows)
        return Reweighted.of(self.y[part.rows], part.p, self.prevalence, groups)

    def weights_of(self, part: Prediction) -> Float | None:
        """The importance weight of each case of a test set; None where these are all one."""
        weighted = self.reweighted(part)
        return None if weighted is None else weighted.weights.by_label(weighted.y)

    @property
    def baseline(self) -> str:
        """What the others are compared with: the uncalibrated probe, or the first method."""
        return BASELINE if BASELINE in self.methods else self.methods[0]

    def seeds(self, method: str) -> list[int]:
        """Return the seeds a method was run with, ascending."""
        return sorted(seed for name, seed in self.predictions if name == method)

    def first(self, method: str) -> Prediction:
        """Return a method's predictions of its first seed: those that are audited."""
        return self.predictions[method, self.seeds(method)[0]]

    @cached_property
    def stratum_names(self) -> tuple[str, ...]:
        """Names of the strata that have cases, easiest first; no "overall"."""
        if self.cases.strata is None:
            return ()
        present = np.unique(self.cases.strata.codes)
        return tuple(self.cases.strata.names[code] for code in present if code >= 0)

    @cached_property
    def codes(self) -> Int:
        """Number of each case's stratum in `stratum_names`, -1 for none."""
        if self.cases.strata is None:
            return np.full(self.cases.n, -1)
        place = {name: j for j, name in enumerate(self.stratum_names)}
        numbers = np.array([*(place.get(name, -1) for name in self.cases.strata.names), -1])
        return np.asarray(numbers[self.cases.strata.codes])

    def groups_of(self, index: Int) -> Int | None:
        """Return the groups of the cases at `index` as codes, or None without groups."""
        codes = self.cases.group_codes
        return None if codes is None else codes[index]

    @property
    def hardest(self) -> str | None:
        """The stratum whose cases are hardest: low agreement, or the last one."""
        if not self.stratum_names:
            return None
        return "low" if "low" in self.stratum_names else self.stratum_names[-1]

    def inside(self, index: Int, stratum: str) -> NDArray[np.intp] | slice:
        """Which of the cases at `index` belong to a stratum; all of them for "overall"."""
        if stratum == "overall":
            return slice(None)
        if stratum not in self.stratum_names:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(self.codes[index] == self.stratum_names.index(stratum))

    def answers(self, method: str, seed: int | None = None) -> Predictions:
        """Return one method's predictions with their cases; of the first seed, unless named."""
        chosen = self.first(method) if seed is None else self.predictions[method, seed]
        cases = self.cases.take(chosen.rows)
        if cases.groups is not None:
            # In the order of their names: resampling is the same before and after the disk.
            cases = replace(cases, groups=Factor.of(cases.groups.values))
        return Predictions(cases, chosen.p, chosen.p_reader, chosen.rho)

    @property
    def shift(self) -> tuple[str, str] | None:
        """Where the model was trained and tested, if these differ: for example ("40X", "400X")."""
        shift = self.meta.get("dataset", {}).get("shift")
        return None if not shift else (str(shift["train"]), str(shift["test"]))

    def with_predictions(self, more: Mapping[tuple[str, int], Prediction]) -> Cell:
        """Return the cell with further predictions beside its own."""
        return replace(self, predictions={**self.predictions, **more})


def part_of_cell(cell: Cell, keep: NDArray[np.bool_]) -> Cell:
    """Return the part of a cell with some of its cases."""
    place = np.where(keep, np.cumsum(keep) - 1, -1)
    predictions = {
        key: part.take(keep[part.rows]).renumbered(place) for key, part in cell.predictions.items()
    }
    return replace(cell, cases=cell.cases.take(keep), predictions=predictions)


def cell_of_seed(cell: Cell, seed: int) -> Cell:
    """Return one seed of a cell: its test cases and its predictions alone."""
    own = {key: part for key, part in cell.predictions.items() if key[1] == seed}
    tested = np.zeros(cell.cases.n, dtype=bool)
    for part in own.values():
        tested[part.rows] = True
    return part_of_cell(replace(cell, predictions=own), tested)


def joined_cell(cells: Sequence[Cell], order: Iterable[str] = ()) -> Cell:
    """One cell of several seeds, with the cases of all of them.

    Cases are in the order of these ids; those that are not named follow as they first appear.
    """
    every = Cases.concat([cell.cases for cell in cells])
    names = every.names.tolist()
    present = set(names)
    known = dict.fromkeys([*(name for name in order if name in present), *names])
    place = {name: i for i, name in enumerate(known)}
    first = np.unique([place[name] for name in names], return_index=True)[1]
    predictions: dict[tuple[str, int], Prediction] = {}
    for cell in cells:
        moved = np.array([place[name] for name in cell.cases.names.tolist()])
        for key, part in cell.predictions.items():
            predictions[key] = part.renumbered(moved)
    methods = list(dict.fromkeys(name for cell in cells for name in cell.methods))
    ordered = {key: predictions[key] for m in methods for key in sorted(predictions) if key[0] == m}
    variants = {name: of for cell in cells for name, of in cell.variants.items()}
    meta = {**cells[0].meta, **({"variants": variants} if variants else {})}
    return replace(cells[0], cases=every.take(first), predictions=ordered, meta=meta)


def _columns(prefix: str, n_classes: int) -> list[str]:
    return [f"{prefix}_{c}" for c in range(n_classes)]


def _prob_columns(prefix: str, n_classes: int) -> list[str]:
    return [prefix] if n_classes == 2 else _columns(prefix, n_classes)


def _cases_table(cases: Cases) -> pa.Table:
    import pyarrow as pa

    assert cases.y is not None
    columns: dict[str, Any] = {
        "id": pa.array(cases.names.tolist(), pa.string()),
        "label": pa.array(cases.y.astype(np.int64)),
    }
    if cases.votes is not None:
        for c, name in enumerate(_columns("votes", cases.votes.shape[1])):
            columns[name] = pa.array(cases.votes[:, c].astype(np.int64))
    if cases.groups is not None:
        columns["group"] = pa.array(cases.groups.values.tolist(), pa.string())
    strata = [""] * cases.n if cases.strata is None else cases.strata.values.tolist()
    columns["stratum"] = pa.array(strata, pa.string())
    if cases.p_split is not None:
        columns["p_split"] = pa.array(cases.p_split)
    if cases.paths is not None:
        columns["path"] = pa.array(cases.paths.tolist(), pa.string())
    return pa.table(columns)


def _predictions_table(cell: Cell) -> pa.Table:
    import pyarrow as pa

    parts = list(cell.predictions.items())
    sizes = [len(part.rows) for _, part in parts]
    names = cell.methods
    method = np.repeat([names.index(name) for (name, _), _ in parts], sizes)
    index = np.concatenate([np.zeros(0, np.int64), *(part.rows for _, part in parts)])
    columns: dict[str, Any] = {
        "method": pa.DictionaryArray.from_arrays(
            pa.array(method.astype(np.int32)), pa.array(names, pa.string())
        ),
        "seed": pa.array(np.repeat([seed for (_, seed), _ in parts], sizes).astype(np.int64)),
        "id": pa.DictionaryArray.from_arrays(
            pa.array(index.astype(np.int32)), pa.array(cell.cases.names.tolist(), pa.string())
        ),
    }
    for prefix in ("p", "p_reader"):
        values = [getattr(part, prefix) for _, part in parts]
        if prefix == "p_reader" and all(v is None for v in values):
            continue
        names = _prob_columns(prefix, len(cell.cases.classes))
        blank = np.full((1, len(names)), np.nan)
        filled = [
            np.repeat(blank, size, axis=0) if v is None else v.reshape(size, -1)
            for v, size in zip(values, sizes, strict=True)
        ]
        table = np.concatenate([blank[:0], *filled])
        columns |= {
            name: pa.array(np.ascontiguousarray(table[:, c])) for c, name in enumerate(names)
        }
    if any(part.rho for _, part in parts):
        columns["rho"] = pa.array(np.repeat([part.rho for _, part in parts], sizes))
    return pa.table(columns)


def write_cell(folder: str | Path, cell: Cell, *, kind: str = "reproduce") -> None:
    """Write ``run.json``, ``cases.parquet`` and ``predictions.parquet``, all of them or none.

    `kind` is the command that writes; see `scalecal.io.store.output_folder`.
    """
    import pyarrow.parquet as pq

    meta = dict(cell.meta)
    dataset = {"name": cell.dataset, "classes": list(cell.cases.classes)}
    meta["dataset"] = {**(meta.get("dataset") or {}), **dataset}
    meta["encoder"] = {**(meta.get("encoder") or {}), "name": cell.encoder}
    meta.setdefault("methods", cell.methods)
    with output_folder(folder, kind=kind) as partial:
        write_json(partial / "run.json", meta)
        pq.write_table(_cases_table(cell.cases), partial / "cases.parquet", compression="zstd")
        pq.write_table(
            _predictions_table(cell), partial / "predictions.parquet", compression="zstd"
        )


def _strings(table: pa.Table, name: str) -> NDArray[np.str_] | None:
    if name not in table.column_names:
        return None
    values = table[name].to_pylist()
    if not all(value is None or isinstance(value, str) for value in values):
        raise InputError(f"column {name!r} must hold text, got {table[name].type}")
    return np.array([value or "" for value in values], dtype=np.str_)


def _read_probs(table: pa.Table, prefix: str, n_classes: int) -> Float | None:
    names = _prob_columns(prefix, n_classes)
    if not set(names) <= set(table.column_names):
        return None
    values = np.column_stack([np.asarray(table[c].to_numpy(), np.float64) for c in names])
    return values[:, 0] if n_classes == 2 else values


def _read_predictions(path: Path, cases: Cases) -> dict[tuple[str, int], Prediction]:
    table = read_parquet(path, factors=["method", "id"])
    table = table.unify_dictionaries().combine_chunks()
    if table.num_rows == 0:
        return {}
    n_classes = len(cases.classes)
    raw, reader = (_read_probs(table, prefix, n_classes) for prefix in ("p", "p_reader"))
    if raw is None:
        wanted = ", ".join(_prob_columns("p", n_classes))
        raise InputError(f"{path} lacks a column: {wanted} are expected for {n_classes} classes")
    probs = check_probs(raw, "p")
    place = {name: i for i, name in enumerate(cases.names.tolist())}
    case, method = (table[c].chunk(0) for c in ("id", "method"))
    known = np.array([place.get(name, -1) for name in case.dictionary.to_pylist()], np.int64)
    index = known[case.indices.to_numpy()]
    if (index < 0).any():
        raise InputError(
            f"{path} has predictions for cases that cases.parquet lacks: {rows(index < 0)}"
        )
    rho = np.zeros(len(index)) if "rho" not in table.column_names else table["rho"].to_numpy()
    names = method.dictionary.to_pylist()
    seed = table["seed"].to_numpy().astype(np.int64)
    code = method.indices.to_numpy().astype(np.int64)
    # Runs of equal (method, seed): methods keep the order in which they were written.
    order = np.lexsort((seed, code))
    change = np.flatnonzero((np.diff(code[order]) != 0) | (np.diff(seed[order]) != 0)) + 1
    parts = np.split(order, change)
    parts.sort(key=lambda part: int(part.min()))
    return {
        (str(names[code[part[0]]]), int(seed[part[0]])): Prediction(
            index[part],
            probs[part],
            None if reader is None or np.isnan(reader[part]).all() else reader[part],
            check_rho(rho[part[0]]),
        )
        for part in parts
    }


def _read_cases(path: Path, classes: Sequence[str]) -> Cases:
    table = read_parquet(path)
    ids, votes = _strings(table, "id"), None
    if ids is None or "label" not in table.column_names:
        raise InputError(f"{path} needs the columns id and label")
    if "votes_0" in table.column_names:
        counts = (table[name].to_numpy() for name in _columns("votes", len(classes)))
        votes = np.column_stack([count.astype(np.int64) for count in counts])
    strata, groups = _strings(table, "stratum"), _strings(table, "group")
    cases = Cases(
        n=len(ids),
        classes=tuple(classes),
        ids=ids,
        y=check_labels(table["label"].to_numpy(), len(classes), "label"),
        votes=votes,
        groups=None if groups is None else Factor.of(groups),
        p_split=table["p_split"].to_numpy() if "p_split" in table.column_names else None,
        paths=_strings(table, "path"),
    )
    if strata is None or not (strata != "").any():
        return cases.stratified()
    default = set(strata.tolist()) <= {*STRATA, ""}
    factor = Factor.of(strata, names=STRATA if default else None)
    agreement = default and votes is not None
    agreement = agreement and np.array_equal(factor.codes, stratum_codes(votes))  # type: ignore[arg-type]
    return replace(cases, strata=factor, agreement=agreement)


def read_cell(folder: str | Path) -> Cell:
    """Read a cell's folder (see `write_cell`)."""
    folder = Path(folder)
    for name in ("run.json", "cases.parquet", "predictions.parquet"):
        if not (folder / name).is_file():
            raise InputError(f"no cell at {folder}: {name} is missing")
    meta = read_meta(folder)
    dataset, encoder = meta.get("dataset") or {}, meta.get("encoder") or {}
    classes = dataset.get("classes") or []
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise InputError(f"{folder / 'run.json'} names no classes: dataset.classes must list them")
    # Inside `reading`, because each column is found to be of another type only where it is used.
    with _part(folder / "cases.parquet", "the cases of a run") as path:
        cases = _read_cases(path, classes)
    with _part(folder / "predictions.parquet", "the predictions of a run") as path:
        predictions = _read_predictions(path, cases)
    with in_file(str(folder)):
        return Cell(
            dataset=dataset.get("name", folder.name),
            encoder=encoder.get("name", ""),
            cases=cases,
            predictions=predictions,
            meta=meta,
        )


@contextmanager
def _part(path: Path, what: str) -> Iterator[Path]:
    with reading(path, what, advice=_AGAIN), in_file(str(path)):
        yield path


class _Shift(msgspec.Struct):
    train: str
    test: str


class _Dataset(msgspec.Struct):
    name: str = ""
    classes: list[str] = []
    data: str | None = None
    sha256: str = ""
    n: int = 0
    shift: _Shift | None = None


class _Encoder(msgspec.Struct):
    name: str = ""


class _Options(msgspec.Struct):
    n_bins: int | None = None
    n_resamples: int | None = None
    seed: int | None = None
    prevalence: float | None = None


class _Calibration(msgspec.Struct):
    after: str
    about: dict[str, str]


class _Meta(msgspec.Struct):
    """What ``run.json`` holds, as far as anything reads it."""

    kind: str = ""
    title: str | None = None
    version: str = ""
    command: list[str] = []
    options: _Options | None = None
    calibration: _Calibration | None = None
    files: dict[str, Any] | None = None
    preset: str | None = None
    stand_in: list[str] = []
    seeds: list[int] = []
    dataset: _Dataset | None = None
    encoder: _Encoder | None = None
    methods: list[str] = []
    variants: dict[str, str] = {}
    notes: list[str] | None = None
    packages: dict[str, str] | None = None
    settings: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    capped: dict[str, int] = {}
    trained_with: list[int] = []
    cells: list[str] = []


def read_meta(folder: Path) -> dict[str, Any]:
    """Return what ``run.json`` of a run folder says, after a look at the type of every entry."""
    file = folder / "run.json"
    meta = read_document(file, dict[str, Any], advice=_AGAIN)
    check_document(file, meta, _Meta, advice=_AGAIN)
    return meta
