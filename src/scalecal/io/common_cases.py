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
    open_votes,
    per_case_numbers,
    resolve_classes,
    vote_columns,
    votes_in,
)
from scalecal.io.input_columns import fields_of, roles_of
from scalecal.io.named_columns import (
    NamedColumns,
    check_headers,
    join,
    match_ids,
    open_columns,
    some,
)
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
        tables[name], answers[name], rounding = _open(path, columns, name)
        notes += rounding
    places = _common({name: table.ids() for name, table in tables.items()})
    taken = {
        name: replace(table, table=table.table.take(places[name])) for name, table in tables.items()
    }
    n = len(places[names[0]])
    joined, shared = _overlay(taken, with_votes=votes is None, n_raters=n_raters)
    notes = [*_left_out(tables, n), *notes, *shared]
    with joined.messages():
        if votes is not None:
            second = open_votes(votes, columns=columns, n_raters=n_raters)
            joined, unmatched = join(joined, second)
            notes += unmatched
        if joined.has("votes") or joined.spread("votes"):
            n_raters = None
        reader = CaseReader(n_raters=n_raters, ties=ties, seed=seed)
        classes = _class_columns(answers, positive)
        choose = partial(resolve_classes, columns=classes, positive=positive)
        cases = reader.read(joined, joined.ids(), choose)
        if cases.y is None:
            raise joined.missing("label", "in one of the files; or votes", role="label")
        numbers = per_case_numbers(joined)
        kept, cases = choose_cases(
            joined,
            cases,
            split=split,
            group_regex=group_regex,
            allow_leakage=allow_leakage,
            notes=(*notes, *reader.notes),
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


def _common(ids: Mapping[str, Any]) -> dict[str, Int]:
    """Rows of every file that hold the ids which all have, in the order of the first."""
    first, *others = ids
    places = {first: np.arange(len(ids[first]))}
    for name in others:
        places[name] = match_ids(ids[first], ids[name])
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


def _overlay(
    tables: Mapping[str, NamedColumns], *, with_votes: bool, n_raters: int | None
) -> tuple[NamedColumns, list[str]]:
    """One table of what the files say of the same rows, and notes; contradictions are refused."""
    import pyarrow as pa

    first = next(iter(tables.values()))
    ids = first.ids()
    parts: dict[str, Any] = {"id": first.table.column("id")}
    notes = []
    for role in ("label", *(column.role for column in fields_of("names"))):
        said = {}
        for name, table in tables.items():
            with table.messages():
                factor = table.factor(role)
            if factor is not None and factor.names:
                said[name] = factor.values.astype(object)
        if said:
            values = _one_value(role, ids, said)
            parts[role] = pa.array([value or None for value in values], pa.string())
    for column in fields_of("numbers"):
        having = [name for name, table in tables.items() if table.has(column.role)]
        if having:
            parts[column.role] = tables[having[0]].table.column(column.role)
        if len(having) > 1:
            notes.append(f"The column {column.role} is that of {having[0]} for all files.")
    if with_votes:
        parts |= _votes(tables, ids, n_raters)
    header = tuple(dict.fromkeys((*parts, *(c for t in tables.values() for c in t.header))))
    table = NamedColumns(pa.table(parts), " and ".join(tables), header, word="common case", first=1)
    return table, notes


def _votes(tables: Mapping[str, NamedColumns], ids: Any, n_raters: int | None) -> dict[str, Any]:
    """Columns of the votes that the files count, or of the number of readers alone."""
    said: dict[str, NDArray[Any]] = {}
    votes: Int | None = None
    columns: tuple[str, ...] = ()
    for name, table in tables.items():
        with table.messages():
            counts, classes = votes_in(table, n_raters=n_raters)
        if counts is None or not counts.any():
            continue
        if votes is None:
            source, votes, columns = name, counts, classes
        elif set(classes) != set(columns):
            raise InputError(
                f"{source} and {name} count votes for other classes, or in other columns: leave the "
                "votes out of one of them"
            )
        elif classes:
            counts = np.take(counts, [classes.index(label) for label in columns], axis=1)
        texts = ["/".join(map(str, row)) if any(row) else "" for row in counts.tolist()]
        said[name] = np.array(texts, dtype=object)
        _one_value("votes", ids, said)
        votes = np.where(votes.any(axis=1, keepdims=True), votes, counts)
    if votes is not None:
        return vote_columns(votes, columns)
    for table in tables.values():
        if table.has("n_raters"):
            return {"n_raters": table.table.column("n_raters")}
    return {}


def _one_value(role: str, ids: Any, said: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Each case's value ("" for none) by the files that say one; fails where they contradict each other."""
    (source, values), *others = said.items()
    for name, other in others:
        both = (values != "") & (other != "")
        differs = np.flatnonzero(both & (values != other))
        if len(differs):
            i = int(differs[0])
            raise InputError(
                f"{source} and {name} contradict each other: {role} of {str(ids[i])!r} is "
                f"{str(values[i])!r} in one and {str(other[i])!r} in the other ({len(differs):,} of "
                f"{int(both.sum()):,} common cases differ). Correct the ids, or leave {role} out of one "
                "file"
            )
        values = np.where(values == "", other, values)
    return values


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
