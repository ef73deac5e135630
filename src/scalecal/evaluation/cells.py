"""A cell: one data set with one encoder, its test cases and every method's predictions on them.

Everything a run reports (tables, figures, claims) is a function of its cells, so it can be made again
from the files of the cells alone, without training. Predictions of one method are also written as a table
that `scalecal audit` reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.calibrators.base import as_logits
from scalecal.cases import Answers, Cases, Factor, Predictions, rows_of
from scalecal.checks import (
    Float,
    InputError,
    Int,
    LazyModule,
    check_labels,
    check_probs,
    in_file,
    rows,
)
from scalecal.io.boundary import read_document, reading
from scalecal.io.input_columns import LEVELS_OF, InputColumn, fields_of
from scalecal.io.store import is_own, output_folder, write_file, write_json
from scalecal.io.tables import read_parquet
from scalecal.metrics.reweighting import Reweighted
from scalecal.panel import check_rho, split_probability, vote_log_pmf
from scalecal.votes import STRATA, stratum_codes

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
else:
    pd = LazyModule("pandas")

PUBLISHED, VOTED = "panel-published", "panel-votes"
"""The panel without a vote, and with those of some cases."""

READS = {"panel": "read by the whole panel", "single": "read by one reader each"}
"""Who reads a voted case, and how this is said."""

_AGAIN = "Make the run again, or copy it again"


def reweighted(predictions: Predictions, own: Answers) -> Reweighted | None:
    """The cases of a test set with the weights of their classes; None where these are all one."""
    if predictions.prevalence is None:
        return None
    groups = rows_of(predictions.cases.group_codes, own.index)
    return Reweighted.of(predictions.y[own.index], own.p, predictions.prevalence, groups)


def check_cell(predictions: Predictions) -> None:
    """Fail where cases have no labels, or share an id, by which methods are matched."""
    if predictions.cases.y is None:
        raise InputError(f"cell {predictions.name}: the cases have no labels")
    if len(np.unique(predictions.cases.names)) != predictions.cases.n:
        raise InputError(f"cell {predictions.name}: case ids must be distinct")


def cell_of_seed(cell: Predictions, seed: int) -> Predictions:
    """Return one seed of a cell: its test cases and its answers alone."""
    own = {key: answers for key, answers in cell.answers.items() if key[1] == seed}
    tested = np.unique(np.concatenate([answers.index for answers in own.values()]))
    return replace(cell, answers=own).take(tested)


def joined_cell(cells: Sequence[Predictions], order: Iterable[str] = ()) -> Predictions:
    """One cell of several seeds, with the cases of all of them.

    Cases are in the order of these ids; those that are not named follow as they first appear.
    """
    every = Cases.concat([cell.cases for cell in cells])
    names = every.names.tolist()
    present = set(names)
    known = dict.fromkeys([*(name for name in order if name in present), *names])
    place = {name: i for i, name in enumerate(known)}
    first = np.unique([place[name] for name in names], return_index=True)[1]
    answers: dict[tuple[str, int], Answers] = {}
    for cell in cells:
        moved = np.array([place[name] for name in cell.cases.names.tolist()])
        for key, own in cell.answers.items():
            answers[key] = replace(own, rows=moved[own.index])
    methods = list(dict.fromkeys(name for cell in cells for name in cell.methods))
    ordered = {key: answers[key] for m in methods for key in sorted(answers) if key[0] == m}
    variants = {name: of for cell in cells for name, of in cell.variants.items()}
    meta = {**cells[0].meta}
    if variants:
        meta["variants"] = variants
    return replace(cells[0], cases=every.take(first), answers=ordered, meta=meta)


def _columns(prefix: str, n_classes: int) -> list[str]:
    return [f"{prefix}_{c}" for c in range(n_classes)]


def _prob_columns(prefix: str, n_classes: int) -> list[str]:
    if n_classes == 2:
        return [prefix]
    return _columns(prefix, n_classes)


def _cases_table(cases: Cases) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, Any] = {
        "id": pa.array(cases.names.tolist(), pa.string()),
        "label": pa.array(cases.labels.astype(np.int64)),
    }
    if cases.votes is not None:
        for c, name in enumerate(_columns("votes", cases.votes.shape[1])):
            columns[name] = pa.array(cases.votes[:, c].astype(np.int64))
    for column in _kept_names():
        factor = getattr(cases, column.field)
        if factor is not None:
            columns[column.role] = pa.array(factor.values.tolist(), pa.string())
    strata = [""] * cases.n if cases.strata is None else cases.strata.values.tolist()
    columns["stratum"] = pa.array(strata, pa.string())
    for name, factor in cases.by.items():
        columns[f"{LEVELS_OF}{name}"] = pa.array(factor.values.tolist(), pa.string())
    if cases.paths is not None:
        columns["path"] = pa.array(cases.paths.tolist(), pa.string())
    return pa.table(columns)


def _kept_names() -> list[InputColumn]:
    """Columns of names that a run keeps as they are: it has one part, and strata have an order."""
    return [column for column in fields_of("names") if column.field not in ("strata", "split")]


def _predictions_table(cell: Predictions) -> pa.Table:
    import pyarrow as pa

    parts, names = list(cell.answers.values()), cell.methods
    sizes = [len(part) for part in parts]
    method = np.repeat([names.index(name) for name, _ in cell.answers], sizes)
    index = np.concatenate([np.zeros(0, np.int64), *(part.index for part in parts)])
    columns: dict[str, Any] = {
        "method": pa.DictionaryArray.from_arrays(
            pa.array(method.astype(np.int32)), pa.array(names, pa.string())
        ),
        "seed": pa.array(np.repeat([seed for _, seed in cell.answers], sizes).astype(np.int64)),
        "id": pa.DictionaryArray.from_arrays(
            pa.array(index.astype(np.int32)), pa.array(cell.cases.names.tolist(), pa.string())
        ),
    }
    for prefix in ("p", "p_reader"):
        table = _stacked(parts, prefix)
        if table is not None:
            named = _prob_columns(prefix, len(cell.cases.classes))
            by_class = np.ascontiguousarray(table.reshape(len(index), -1).T)
            columns |= dict(zip(named, map(pa.array, by_class), strict=True))
    if any(part.rho for part in parts):
        columns["rho"] = pa.array(np.repeat([part.rho for part in parts], sizes))
    split = _stacked(parts, "p_split")
    if split is not None:
        columns["p_split"] = pa.array(split)
    return pa.table(columns)


def _stacked(parts: Sequence[Answers], name: str) -> Float | None:
    """A column of all answers, NaN where some have none; None where none has it."""
    shapes = [column.shape[1:] for part in parts if (column := getattr(part, name)) is not None]
    if not shapes:
        return None
    stacked = np.full((sum(map(len, parts)), *shapes[0]), np.nan)
    start = 0
    for part in parts:
        if getattr(part, name) is not None:
            stacked[start : start + len(part)] = getattr(part, name)
        start += len(part)
    return stacked


def write_cell(folder: str | Path, cell: Predictions, *, kind: str = "reproduce") -> None:
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
    if n_classes == 2:
        return values[:, 0]
    return values


def _read_answers(path: Path, cases: Cases) -> dict[tuple[str, int], Answers]:
    table = read_parquet(path, factors=["method", "id"])
    n_classes = len(cases.classes)
    raw, reader = (_read_probs(table, prefix, n_classes) for prefix in ("p", "p_reader"))
    if raw is None:
        wanted = ", ".join(_prob_columns("p", n_classes))
        raise InputError(f"{path} lacks a column: {wanted} are expected for {n_classes} classes")
    probs = check_probs(raw, "p")
    keys = table.select(["method", "seed", "id"]).to_pandas()
    index = pd.Index(cases.names.astype(object)).get_indexer(keys["id"].astype(object))
    if (index < 0).any():
        raise InputError(
            f"{path} has predictions for cases that cases.parquet lacks: {rows(index < 0)}"
        )
    rho, split = np.zeros(len(index)), None
    if "rho" in table.column_names:
        rho = table["rho"].to_numpy()
    if "p_split" in table.column_names:
        split = table["p_split"].to_numpy()
    answers: dict[tuple[str, int], Answers] = {}
    # Methods keep the order in which they were written.
    for (method, seed), own in keys.groupby(["method", "seed"], sort=False, observed=True):
        part = own.index.to_numpy()
        answers[str(method), int(seed)] = Answers(
            probs[part],
            _known(reader, part),
            check_rho(rho[part[0]]),
            _known(split, part),
            rows=index[part],
        )
    return answers


def _known(values: Float | None, part: Int) -> Float | None:
    """Return some rows of a column, or None where it holds nothing there."""
    if values is None or np.isnan(values[part]).all():
        return None
    return values[part]


def _read_cases(path: Path, classes: Sequence[str]) -> Cases:
    table = read_parquet(path)
    ids, votes = _strings(table, "id"), None
    if ids is None or "label" not in table.column_names:
        raise InputError(f"{path} needs the columns id and label")
    if "votes_0" in table.column_names:
        counts = (table[name].to_numpy() for name in _columns("votes", len(classes)))
        votes = np.column_stack([count.astype(np.int64) for count in counts])
    strata = _strings(table, "stratum")
    names: dict[str, Any] = {}
    for column in _kept_names():
        values = _strings(table, column.role)
        if values is not None:
            names[column.field] = Factor.of(values)
    cases = Cases(
        n=len(ids),
        classes=tuple(classes),
        ids=ids,
        y=check_labels(table["label"].to_numpy(), len(classes), "label"),
        votes=votes,
        paths=_strings(table, "path"),
        by=_read_levels(table),
        **names,
    )
    if strata is None or not (strata != "").any():
        return cases.stratified()
    default = set(strata.tolist()) <= {*STRATA, ""}
    factor = Factor.of(strata, names=STRATA if default else None)
    agreement = default and votes is not None
    agreement = agreement and np.array_equal(factor.codes, stratum_codes(votes))  # type: ignore[arg-type]
    return replace(cases, strata=factor, agreement=agreement)


def _read_levels(table: pa.Table) -> dict[str, Factor]:
    """Columns of a run whose levels are audited."""
    by = {}
    for column in table.column_names:
        if column.startswith(LEVELS_OF):
            values = _strings(table, column)
            assert values is not None
            by[column.removeprefix(LEVELS_OF)] = Factor.of(values)
    return by


def read_cell(folder: str | Path) -> Predictions:
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
    path = folder / "cases.parquet"
    with reading(path, "the cases of a run", advice=_AGAIN), in_file(str(path)):
        cases = _read_cases(path, classes)
    path = folder / "predictions.parquet"
    with reading(path, "the predictions of a run", advice=_AGAIN), in_file(str(path)):
        answers = _read_answers(path, cases)
    cell = Predictions(
        cases,
        answers,
        dataset=dataset.get("name", folder.name),
        encoder=encoder.get("name", ""),
        meta=meta,
        prevalence=(meta.get("options") or {}).get("prevalence"),
    )
    with in_file(str(folder)):
        check_cell(cell)
    return cell


def read_meta(folder: Path) -> dict[str, Any]:
    """Return what ``run.json`` of a run folder says, which must be as scalecal wrote it."""
    file = folder / "run.json"
    meta = read_document(file, dict[str, Any], advice=_AGAIN)
    # What the folder's own record vouches for needs no check of its entries.
    if not is_own(file):
        raise InputError(f"{file} was changed since it was written. {_AGAIN}")
    return meta


# Predictions for a user


def predictions_table(
    predictions: Predictions, *, n_raters: ArrayLike | None = None, votes_law: int | None = None
) -> pd.DataFrame:
    """Return id, p and p_reader (by class), and what is known of the cases: label, votes, group, split.

    Parameters
    ----------
    predictions
        A model's answers.
    n_raters
        Readers of the panel whose split is predicted: adds ``p_split`` beside ``rho``, where there is
        a reader probability and the cases have none yet.
    votes_law
        Readers m whose votes are predicted: adds ``p_votes_0`` .. ``p_votes_m``, the probabilities of k
        positive votes (``p_votes_<class>_k`` with more than two classes).
    """
    cases, own = predictions.cases, predictions.only
    probs, reader = own.p, own.p_reader
    table: dict[str, Any] = {"id": cases.names, **_by_class("p", probs, cases.classes)}
    if reader is not None:
        logits, rho = as_logits(reader), own.rho
        table |= {**_by_class("p_reader", reader, cases.classes), "rho": np.full(cases.n, rho)}
        if n_raters is not None and own.p_split is None:
            table["p_split"] = split_probability(logits, rho, n_raters)
        if votes_law is not None:
            law = np.exp(vote_log_pmf(logits, rho, votes_law))
            for k in range(votes_law + 1):
                named = _by_class("p_votes", law[..., k], cases.classes)
                table |= {f"{name}_{k}": values for name, values in named.items()}
    if own.p_split is not None:
        table["p_split"] = own.p_split
    if cases.y is not None and (cases.y >= 0).any():
        names = np.array([*cases.classes, None], dtype=object)
        # One probability goes with labels 0 and 1; the class names are in the probe's own file.
        numbers = pd.Series(cases.y, dtype="Int64").mask(cases.y < 0)
        table["label"] = numbers
        if probs.ndim > 1:
            table["label"] = names[cases.y]
    if cases.votes is not None:
        if len(cases.classes) == 2:
            table |= {"votes": cases.votes[:, 1], "n_raters": cases.votes.sum(axis=1)}
        else:
            table |= _by_class("votes", cases.votes, cases.classes)
    elif cases.n_raters is not None:
        table["n_raters"] = cases.n_raters
    for column in fields_of("names"):
        factor = getattr(cases, column.field)
        # Strata of agreement are made again from the votes.
        made = column.field == "strata" and cases.agreement
        if factor is not None and not made:
            table[column.role] = factor.values
    for name, factor in cases.by.items():
        table.setdefault(name, factor.values)
    return pd.DataFrame(table)


def _by_class(name: str, values: NDArray[Any], classes: Sequence[str]) -> dict[str, NDArray[Any]]:
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{label}": values[:, c] for c, label in enumerate(classes)}


def write_table(
    table: pd.DataFrame, path: str | Path, *, inputs: Sequence[str | Path | None] = ()
) -> None:
    """Write CSV or Parquet by the file's ending; never to one of the `inputs`."""
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"predictions are written as .csv or .parquet, got {path.name}")
    content: str | bytes = table.to_csv(index=False, lineterminator="\n")
    if path.suffix == ".parquet":
        content = table.to_parquet(index=False)
    write_file(path, content, kind="predict", inputs=inputs)
