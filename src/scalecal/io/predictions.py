"""Predictions of one model or of several, in one file each, with what is known of their cases.

Several files are read on the cases that all of them have, joined by id. Labels, votes, groups, strata
and split may stand in any of them; what several say of a case must be the same. One file may also be
read in pieces.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import ALONE, Answers, Cases, Predictions, leakage_note, left_out_note
from scalecal.checks import InputError, Int, ScalecalWarning, in_file
from scalecal.io.boundary import check_file
from scalecal.io.case_tables import (
    AnswerReader,
    CaseReader,
    in_order,
    open_votes,
    per_case_numbers,
    readers_alone,
    resolve_classes,
    votes_in,
    without_empty_columns,
)
from scalecal.io.input_columns import fields_of, plays, roles_of
from scalecal.io.named_columns import (
    NamedColumns,
    check_headers,
    iterate_columns,
    join,
    match_ids,
    open_columns,
    some,
)
from scalecal.io.store import file_hash
from scalecal.io.tables import column_names
from scalecal.votes import Ties


def read_predictions(
    path: str | Path,
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
    keep_unlabelled: bool = False,
    classes: Sequence[str] | None = None,
) -> Predictions:
    """Read predictions and, where they are, labels, votes, groups and strata.

    Columns `p_<class>` whose rows sum to 1 within 0.01, as rounded numbers do, are divided by their
    sum. Cases without a label are left out, unless they are asked for. Notes say so.

    Parameters
    ----------
    path
        CSV, TSV, Parquet, Excel or JSON Lines with `id`, `p` (or `p_<class>` for each class), `label`
        and / or `votes` + `n_raters` (or `votes_<class>`), and optionally `p_reader` (or
        `p_reader_<class>`), `rho` (one number for all cases), `p_split` (predicted difficulty: the
        probability that the readers split), `group`, `stratum` and `split`.
    votes
        A second file with the votes, joined by `id`: rows `id, rater, label`, or columns as above.
    columns
        Names of columns that are not the usual ones: role -> name, e.g. ``{"p": "score"}``.
    positive
        The class that `p` is the probability of, where the classes are not 0 and 1.
    n_raters
        Number of readers of every case, where no column has it.
    ties
        What a tied vote means where the label is the readers' majority (`scalecal.votes.majority`);
        with "drop" tied cases are left out.
    seed
        For ``ties="random"``.
    split
        Keep only the cases that the column `split` marks so, such as ``"test"``. By default all are
        kept, and a note counts those marked ``"train"``.
    group_regex
        Take groups from the ids by this regular expression (`scalecal.cases.Cases.grouped_by`).
    allow_leakage
        Do not warn of groups with cases in both train and test.
    keep_unlabelled
        Keep cases without a label (``y`` is -1), and take `n_raters` for the readers behind the labels
        where there are no votes.
    classes
        The classes in order, where they are known beforehand, such as a fitted calibrator's. With
        `keep_unlabelled` a file then needs no label at all.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "p.csv")
    ...     _ = path.write_text("id,p,votes,n_raters\\na,0.2,1,7\\nb,0.9,6,7\\n")
    ...     predictions = read_predictions(path)
    >>> predictions.p.tolist(), predictions.cases.y.tolist(), predictions.cases.votes.tolist()
    ([0.2, 0.9], [0, 1], [[6, 1], [1, 6]])
    """
    path = Path(path)
    return _read_files(
        {path.name: path},
        votes=votes,
        columns=columns,
        positive=positive,
        n_raters=n_raters,
        ties=ties,
        seed=seed,
        split=split,
        group_regex=group_regex,
        allow_leakage=allow_leakage,
        keep_unlabelled=keep_unlabelled,
        expected=classes,
    )


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
    >>> {name: both.first(name).p.tolist() for name in both.methods}, both.y.tolist()
    ({'a.csv': [0.2, 0.5], 'b.csv': [0.1, 0.6]}, [0, 1])
    """
    files = [Path(path) for path in paths]
    return _read_files(
        dict(zip(_names(files), files, strict=True)),
        votes=votes,
        columns=columns,
        positive=positive,
        n_raters=n_raters,
        ties=ties,
        seed=seed,
        split=split,
        group_regex=group_regex,
        allow_leakage=allow_leakage,
    )


def _read_files(
    files: Mapping[str, Path],
    *,
    votes: str | Path | None,
    columns: Mapping[str, str] | None,
    positive: str | None,
    n_raters: int | None,
    ties: Ties,
    seed: int,
    split: str | None,
    group_regex: str | None,
    allow_leakage: bool,
    keep_unlabelled: bool = False,
    expected: Sequence[str] | None = None,
) -> Predictions:
    """Read the answers of each file by its name, on the cases that all have."""
    sources = dict(files)
    roles = roles_of("predictions")
    known = roles
    if votes is not None:
        sources[Path(votes).name] = Path(votes)
        # Votes of the second file take the place of any others.
        roles = tuple(role for role in roles if role not in ("votes", "n_raters"))
        known = (*known, "rater")
    check_headers(columns, known, {name: column_names(file) for name, file in sources.items()})
    tables, answers, named = {}, {}, {}
    notes: list[str] = []
    for name, path in files.items():
        table = replace(open_columns(path, columns, roles), file=name)
        reader = AnswerReader()
        with table.messages():
            if len(files) > 1:
                table.need("id", "by which several files are joined")
                votes_in(table, n_raters=n_raters)  # names the line of what is wrong
            answers[name], named[name] = reader.read(table, table.ids())
        tables[name] = table
        notes += [f"{name}: {note}" if len(files) > 1 else note for note in reader.notes]
    if len(files) > 1:
        table, rows, common = _common_table(tables)
        answers = {name: own.take(rows[name]) for name, own in answers.items()}
        notes = [*common, *notes]
    with table.messages():
        if votes is not None:
            second = open_votes(votes, columns=columns, n_raters=n_raters)
            table, unmatched = join(table, second)
            notes += unmatched
            n_raters = None  # the votes are counted
        case_reader = CaseReader(n_raters=n_raters, ties=ties, seed=seed)
        classes = _classes_of(named, expected, positive)
        choose = partial(resolve_classes, columns=classes, positive=positive)
        cases = case_reader.read(table, table.ids(), choose)
        if cases.y is None and expected is not None and keep_unlabelled:
            readers = readers_alone(table, n_raters)
            cases = replace(cases, classes=tuple(expected), n_raters=readers)
        elif cases.y is None or not keep_unlabelled:
            _check_labelled(table, cases, n_raters)
        shared = per_case_numbers(table)
        kept, cases = _choose_cases(
            table,
            cases,
            split=split,
            group_regex=group_regex,
            allow_leakage=allow_leakage,
            keep_unlabelled=keep_unlabelled,
            notes=(*notes, *case_reader.notes),
        )
    found: dict[tuple[str, int], Answers] = {}
    for name, own in answers.items():
        key = ALONE if len(files) == 1 else (name, 0)
        ordered = in_order(replace(own, rows=None, **shared), named[name], cases.classes)
        found[key] = ordered.take(kept)
    hashes = {name: file_hash(file) for name, file in sources.items()}
    return Predictions(cases, found, sources=hashes)


class PredictionFile:
    """A file of predictions, to be read in pieces; arguments as `read_predictions`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "p.csv")
    ...     _ = path.write_text("p,label\\n0.2,0\\n0.9,\\n")
    ...     file = PredictionFile(path)
    ...     [len(piece) for piece in file.pieces()], file.notes
    ([1], ('1 of 2 cases without a label were left out.',))
    """

    def __init__(
        self,
        path: str | Path,
        *,
        columns: Mapping[str, str] | None = None,
        positive: str | None = None,
        n_raters: int | None = None,
        ties: Ties = "error",
        seed: int = 0,
    ) -> None:
        self.path = Path(path)
        check_headers(columns, roles_of("predictions"), {self.path.name: column_names(self.path)})
        self._columns = columns
        self._positive = positive
        self._n_raters = n_raters
        self._answers = AnswerReader()
        self._cases = CaseReader(n_raters=n_raters, ties=ties, seed=seed)

    def pieces(self) -> Iterator[Predictions]:
        """Yield the labelled cases of the file in pieces, without ids, groups and split.

        A piece may be empty. What is noted of all pieces is in `notes`, not in the pieces.
        """
        for table in iterate_columns(self.path, self._columns, roles_of("stream")):
            with table.messages():
                answers, named = self._answers.read(table, None)
                choose = partial(resolve_classes, columns=named, positive=self._positive)
                cases = self._cases.read(table, None, choose)
                _check_labelled(table, cases, self._n_raters)
            answers = in_order(answers, named, cases.classes)
            predictions = Predictions(cases, {ALONE: answers})
            labelled = predictions.y >= 0
            if not labelled.all():
                predictions = predictions.take(labelled)
            yield predictions

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of any result should know of all that was read so far: plain sentences."""
        notes = [*self._answers.notes, *self._cases.notes]
        if self._cases.count["unlabelled"]:
            notes.append(left_out_note(self._cases.count["unlabelled"], self._cases.count["all"]))
        return tuple(notes)


def _check_labelled(table: NamedColumns, cases: Cases, n_raters: int | None) -> None:
    """Fail where there are neither labels nor votes, or readers without votes."""
    if cases.y is None:
        raise table.missing(
            table.names["label"], "or votes, from which labels follow", role="label"
        )
    if n_raters is not None and cases.votes is None:
        raise table.missing(table.names["votes"], "n_raters was given, but there are no votes")


def _classes_of(
    named: Mapping[str, tuple[str, ...] | None],
    expected: Sequence[str] | None,
    positive: str | None,
) -> tuple[str, ...] | None:
    """Classes of the columns p_<class>, the same in all files; None where each has one column p.

    Of one file they may be known beforehand.
    """
    several = {name: own for name, own in named.items() if own is not None}
    alone = [name for name in named if name not in several]
    if expected is not None:
        for own in several.values():
            if set(own) != set(expected):
                raise InputError(
                    f"the columns p_<class> are of {some(own, 8)}, expected {some(expected, 8)}: use the "
                    "same names"
                )
        if alone and len(expected) != 2:
            raise InputError(
                f"there is one column p, but {len(expected)} classes are expected: give a column "
                f"p_<class> for each of {some(expected, 8)}"
            )
        return tuple(expected)
    if not several:
        return None
    first, classes = next(iter(several.items()))
    for name, own in several.items():
        if set(own) != set(classes):
            raise InputError(
                f"{first} has probabilities of {some(classes, 8)}, {name} of {some(own, 8)}: use the "
                "same classes everywhere"
            )
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


def _names(paths: Sequence[Path]) -> list[str]:
    """Name the files, those of one name by as many of their folders as tell them apart."""
    whole = [check_file(path).resolve() for path in paths]
    twice = [path for path, real in zip(paths, whole, strict=True) if whole.count(real) > 1]
    if twice:
        raise InputError(f"{twice[0]} is given twice: a file does not differ from itself")
    names = [path.name for path in whole]
    if len(set(names)) < len(names):
        common = os.path.commonpath(whole)
        names = [path.relative_to(common).as_posix() for path in whole]
    return names


def _common_table(
    tables: Mapping[str, NamedColumns],
) -> tuple[NamedColumns, dict[str, Int], list[str]]:
    """Return what all files say of the cases that all have, the rows of these in each, and notes."""
    first, *others = tables
    ids = tables[first].ids()
    assert ids is not None
    rows: dict[str, Int] = {first: np.arange(len(ids))}
    for name in others:
        own = tables[name].ids()
        rows[name] = match_ids(ids, own)
        if (rows[name] < 0).all():
            raise InputError(
                f"{first} and {name} have no id in common: {some(ids)} against {some(own)}"
            )
    shared = np.all([place >= 0 for place in rows.values()], axis=0)
    n = int(shared.sum())
    if not n:
        raise InputError(f"no id is in all of {', '.join(tables)}")
    taken, fewer = {}, []
    for name, table in tables.items():
        rows[name] = rows[name][shared]
        taken[name] = replace(table, table=table.table.take(rows[name]))
        if len(table) > n:
            fewer.append(f"{len(table) - n:,} of {len(table):,} of {name}")
    note = f"{n:,} cases are in all {len(tables)} files, joined by id"
    if fewer:
        note += f"; the others were left out: {', '.join(fewer)}"
    joined, notes = _overlay(taken)
    return joined, rows, [f"{note}.", *notes]


def _overlay(tables: Mapping[str, NamedColumns]) -> tuple[NamedColumns, list[str]]:
    """One table of what the files say of the same rows, and notes; contradictions are refused."""
    import pyarrow as pa

    first = next(iter(tables.values()))
    parts: dict[str, Any] = {"id": first.table.column("id")}
    notes = []
    names = [column.role for column in fields_of("names")]
    for role in ("label", "votes", "n_raters", *names):
        own = [name for table in tables.values() for name in table.table.column_names]
        for part in dict.fromkeys(name for name in own if plays(role, role, name)):
            said = {}
            for name, table in tables.items():
                with table.messages():
                    factor = table.factor(role, part.removeprefix(role))
                if factor is not None and factor.names:
                    said[name] = factor.values.astype(object)
            if said:
                values = _one_value(part, first.ids(), said)
                parts[part] = pa.array([value or None for value in values], pa.string())
    for column in fields_of("numbers"):
        having = [name for name, table in tables.items() if table.has(column.role)]
        if having:
            parts[column.role] = tables[having[0]].table.column(column.role)
        if len(having) > 1:
            notes.append(f"The column {column.role} is that of {having[0]} for all files.")
    header = tuple(dict.fromkeys((*parts, *(c for t in tables.values() for c in t.header))))
    table = NamedColumns(pa.table(parts), " and ".join(tables), header, word="common case", first=1)
    return table, notes


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


def _choose_cases(
    table: NamedColumns,
    cases: Cases,
    *,
    split: str | None,
    group_regex: str | None,
    allow_leakage: bool,
    notes: Sequence[str],
    keep_unlabelled: bool,
) -> tuple[NDArray[np.intp], Cases]:
    """Return which of the cases are labelled and of the split, and these with their notes.

    With `keep_unlabelled` cases without a label stay. To be called within the table's `messages`; warns
    of leakage.
    """
    cases = without_empty_columns(cases)
    if group_regex is not None:
        cases = cases.grouped_by(group_regex)
    part, split_notes = _marked(table, cases, split)
    if not allow_leakage and (leakage := leakage_note(cases)):
        warnings.warn(leakage, ScalecalWarning, stacklevel=5)
        split_notes.append(leakage)
    chosen, kept = replace(cases, notes=(*notes, *cases.notes)), np.arange(cases.n)
    if not keep_unlabelled:
        assert cases.y is not None
        chosen, kept = chosen.labelled(), np.flatnonzero(cases.y >= 0)
    inside = part[kept]
    if not inside.all():
        kept, chosen = kept[inside], chosen.take(inside)
    if not len(kept):
        raise InputError(" ".join(["no case is left.", *chosen.notes, *split_notes]))
    return kept, chosen.note(*split_notes)


def _marked(
    table: NamedColumns, cases: Cases, split: str | None
) -> tuple[NDArray[np.bool_], list[str]]:
    """Return which cases belong to the split, all without one, and notes on it."""
    if split is not None:
        table.need("split", f"to keep the cases marked {split!r}")
    marks = np.full(cases.n, "")
    if cases.split is not None:
        marks = cases.split.values
    if split is None:
        kept, notes = np.ones(cases.n, dtype=bool), []
        seen = int((marks == "train").sum())
        if seen:
            notes.append(
                f"{seen} of {cases.n} cases are marked train: a model that has learnt from them looks "
                "better on them than it is. With --split test (in Python split='test') the others are "
                "left out."
            )
        return kept, notes
    kept = marks == split
    if not kept.any():
        raise InputError(
            f"no case is marked {split!r} in column {table.names['split']!r}; "
            f"found {some(np.unique(marks))}"
        )
    return kept, [f"Only the {int(kept.sum())} of {cases.n} cases marked {split} are audited."]
