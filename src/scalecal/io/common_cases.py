"""Several files of predictions on the cases that all of them have, joined by id.

Labels, votes, groups, strata and split may stand in any of the files; what several of them say of a
case must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Answers, Predictions
from scalecal.checks import InputError, Int, in_file
from scalecal.io.boundary import check_file
from scalecal.io.case_tables import (
    CaseReader,
    Predicted,
    PredictionFile,
    choose_cases,
    per_case_numbers,
    resolve_classes,
    votes_in,
)
from scalecal.io.input_columns import fields_of, roles_of, usual_names
from scalecal.io.named_columns import NamedColumns, check_headers, open_columns, some
from scalecal.io.store import file_hash
from scalecal.io.tables import column_names
from scalecal.votes import Ties


def read_common_predictions(
    paths: Sequence[str | Path],
    *,
    votes: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    positive: str | None = None,
    n_raters: int | None = None,
    ties: Ties = "error",
    seed: int = 0,
    split: str | None = None,
    group_regex: str | None = None,
    allow_leakage: bool = False,
) -> Predictions:
    """Read several models' predictions of the same cases: name of the file -> predictions.

    The cases are those that every file has, in the order of the first, and the same for all: each
    file needs `id` and `p`, one of them labels or votes. Files of one name go by their folders too.

    Parameters
    ----------
    paths
        Files as `read_predictions` takes them.
    votes, columns, positive, n_raters, ties, seed, split, group_regex, allow_leakage
        As `read_predictions`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     a, b = Path(folder, "a.csv"), Path(folder, "b.csv")
    ...     _ = a.write_text("id,p,label\\nx,0.2,0\\ny,0.9,1\\nz,0.5,1\\n")
    ...     _ = b.write_text("id,p\\nz,0.6\\nx,0.1\\n")
    ...     both = read_common_predictions([a, b])
    >>> {name: (own.p.tolist(), own.cases.y.tolist()) for name, own in both.items()}
    {'a.csv': ([0.2, 0.5], [0, 1]), 'b.csv': ([0.1, 0.6], [0, 1])}
    """
    names = _names([Path(path) for path in paths])
    files = dict(zip(names, map(Path, paths), strict=True))
    headers = {name: column_names(path) for name, path in files.items()}
    roles = roles_of("predictions")
    if votes is not None:
        headers[Path(votes).name] = column_names(votes)
        roles = (*roles, "rater")
    check_headers(columns, roles, headers)
    tables, answers = {}, {}
    notes: list[str] = []
    for name, path in files.items():
        tables[name], answers[name], own = _open(path, columns, name)
        notes += own
    places = _common({name: table.ids() for name, table in tables.items()})
    taken = {
        name: replace(table, table=table.table.take(places[name])) for name, table in tables.items()
    }
    first = taken[names[0]]
    ids = first.ids()
    joined = _join(taken, ids, votes is None, n_raters)
    for column in fields_of("numbers"):
        having = [name for name, table in taken.items() if table.has(column.role)]
        if len(having) > 1:
            notes.append(f"The column {column.role} is that of {having[0]} for all files.")
    reader = CaseReader(votes=votes, columns=columns, n_raters=n_raters, ties=ties, seed=seed)
    choose = partial(resolve_classes, columns=_class_columns(answers, positive), positive=positive)
    with joined.messages():
        cases = reader.read(joined, ids, choose)
        if cases.y is None:
            raise joined.missing("label", "in one of the files; or votes", role="label")
        numbers = per_case_numbers(joined)
        kept, cases = choose_cases(
            joined,
            cases,
            split=split,
            group_regex=group_regex,
            allow_leakage=allow_leakage,
            notes=(*_left_out(tables, len(first)), *notes, *reader.notes),
        )
    sources = {name: file_hash(path) for name, path in files.items()}
    if votes is not None:
        sources[Path(votes).name] = file_hash(votes)
    found: dict[tuple[str, int], Answers] = {}
    for name, predicted in answers.items():
        on_cases = predicted.on(cases, places[name][kept]).only
        shared = {field: values[kept] for field, values in numbers.items()}
        found[name, 0] = replace(on_cases, **shared)
    return Predictions(cases, found, sources=sources)


def _names(paths: Sequence[Path]) -> list[str]:
    """Name the files, those of one name by as many of their folders as tell them apart."""
    whole = [check_file(path).resolve() for path in paths]
    twice = [path for path, real in zip(paths, whole, strict=True) if whole.count(real) > 1]
    if twice:
        raise InputError(f"{twice[0]} is given twice: a file does not differ from itself")
    names = [path.name for path in whole]
    for depth in range(2, max(len(path.parts) for path in whole) + 1):
        if len(set(names)) == len(names):
            break
        names = [
            "/".join(path.parts[-depth:]) if names.count(name) > 1 else name
            for path, name in zip(whole, names, strict=True)
        ]
    return names


def _open(
    path: Path, columns: Mapping[str, str] | None, name: str
) -> tuple[NamedColumns, Predicted, tuple[str, ...]]:
    """Return a file's columns, what it predicts, and notes on that."""
    table = replace(open_columns(path, columns, roles_of("predictions")), file=name)
    with table.messages():
        table.need("id", "by which several files are joined")
        ids = table.ids()
        own = {role: c for role, c in (columns or {}).items() if table.names[role] == c}
        file = PredictionFile(path, columns=own)
        answers = file.answers(table, ids)
    return table, answers, tuple(f"{name}: {note}" for note in file.rounding_notes(len(table)))


def _common(ids: Mapping[str, Any]) -> dict[str, NDArray[np.int64]]:
    """Rows of every file that hold the ids which all have, in the order of the first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, *others = ids
    places = {first: np.arange(len(ids[first]))}
    for name in others:
        index = pc.index_in(pa.array(ids[first]), value_set=pa.array(ids[name]))
        places[name] = index.fill_null(-1).to_numpy().astype(np.int64)
        if (places[name] < 0).all():
            raise InputError(
                f"{first} and {name} have no id in common: {some(ids[first])} against "
                f"{some(ids[name])}"
            )
    shared = np.all([place >= 0 for place in places.values()], axis=0)
    if not shared.any():
        raise InputError(f"no id is in all of {', '.join(ids)}")
    return {name: place[shared] for name, place in places.items()}


def _left_out(tables: Mapping[str, NamedColumns], common: int) -> list[str]:
    fewer = [
        f"{len(table) - common:,} of {len(table):,} of {name}"
        for name, table in tables.items()
        if len(table) > common
    ]
    note = f"{common:,} cases are in all {len(tables)} files, joined by id"
    return [f"{note}; the others were left out: {', '.join(fewer)}." if fewer else f"{note}."]


def _join(
    tables: Mapping[str, NamedColumns],
    ids: Any,
    with_votes: bool,
    n_raters: int | None,
) -> NamedColumns:
    """One table of what the files say of the common cases; fails where they contradict each other."""
    import pyarrow as pa

    parts: dict[str, Any] = {"id": pa.array(ids)}
    # Names are taken from whichever file has them.
    for role in ("label", *(column.role for column in fields_of("names"))):
        source, values = "", np.full(len(ids), "", dtype=object)
        for name, table in tables.items():
            with table.messages():
                factor = table.factor(role)
            if factor is None or not factor.names:
                continue
            own = factor.values.astype(object)
            _check_same(role, ids, (source, values), (name, own), (values != "") & (own != ""))
            source, values = source or name, np.where(values == "", own, values)
        if source:
            parts[role] = pa.array([value or None for value in values], pa.string())
    if with_votes:
        parts |= _votes(tables, ids, n_raters)
    for column in fields_of("numbers"):
        for table in tables.values():
            if table.has(column.role) and column.role not in parts:
                with table.messages():
                    parts[column.role] = pa.array(table.numbers(column.role))
    header = tuple(dict.fromkeys((*parts, *(c for t in tables.values() for c in t.header))))
    return NamedColumns(
        pa.table(parts), " and ".join(tables), usual_names(), header, "common case", 1
    )


def _votes(tables: Mapping[str, NamedColumns], ids: Any, n_raters: int | None) -> dict[str, Any]:
    """Columns of votes of the first file that has any, or the number of readers alone."""
    counted: dict[str, tuple[Int, tuple[str, ...]]] = {}
    for name, table in tables.items():
        with table.messages():
            counts, classes = votes_in(table, n_raters=n_raters)
        if counts is not None and counts.any():
            counted[name] = counts, classes
    if not counted:
        alone = [table for table in tables.values() if table.has("n_raters")]
        return {"n_raters": alone[0].table.column(alone[0].names["n_raters"])} if alone else {}
    source, *others = counted
    counts, classes = counted[source]
    for name in others:
        own, named = counted[name]
        if set(named) != set(classes):
            raise InputError(
                f"{source} and {name} count votes for other classes, or in other columns: leave the "
                "votes out of one of them"
            )
        own = own[:, [named.index(c) for c in classes]] if classes else own
        both = (counts.sum(axis=1) > 0) & (own.sum(axis=1) > 0)
        texts = (np.array(["/".join(map(str, row)) for row in c], object) for c in (counts, own))
        mine, others_votes = texts
        _check_same("votes", ids, (source, mine), (name, others_votes), both)
    table = tables[source]
    used = [table.names["votes"], table.names["n_raters"], *table.spread("votes").values()]
    kept = {name: table.table.column(name) for name in used if name in table.table.column_names}
    usual = {table.names[role]: role for role in ("votes", "n_raters")}
    prefix = table.names["votes"]
    return {
        usual.get(name, f"votes{name.removeprefix(prefix)}"): column
        for name, column in kept.items()
    }


def _check_same(
    what: str,
    ids: Any,
    one: tuple[str, NDArray[Any]],
    two: tuple[str, NDArray[Any]],
    both: NDArray[np.bool_],
) -> None:
    """Fail where two files say different things of the same case."""
    differs = np.flatnonzero(both & (one[1] != two[1]))
    if len(differs):
        i = int(differs[0])
        raise InputError(
            f"{one[0]} and {two[0]} contradict each other: {what} of {str(ids[i])!r} is "
            f"{str(one[1][i])!r} in one and {str(two[1][i])!r} in the other ({len(differs):,} of "
            f"{int(both.sum()):,} common cases differ). Correct the ids, or leave {what} out of one file"
        )


def _class_columns(
    answers: Mapping[str, Predicted], positive: str | None
) -> tuple[str, ...] | None:
    """Classes of the columns p_<class>, the same in all files; None where each has one column p."""
    named = {name: own.classes for name, own in answers.items() if own.classes is not None}
    if not named:
        return None
    first, classes = next(iter(named.items()))
    for name, own in named.items():
        if set(own) != set(classes):
            raise InputError(
                f"{first} has probabilities of {some(classes, 8)}, {name} of {some(own, 8)}: use the "
                "same classes everywhere"
            )
    alone = [name for name in answers if name not in named]
    if alone and len(classes) > 2:
        raise InputError(
            f"{first} has probabilities of {len(classes)} classes, {alone[0]} of one: give a column "
            "p_<class> for each class"
        )
    if alone and positive is None and set(classes) != {"0", "1"}:
        with in_file(alone[0]):
            raise InputError(
                f"the classes are {some(classes)}: say which of them p is the probability of, with "
                "positive=NAME (on the command line --positive NAME)"
            )
    return classes
