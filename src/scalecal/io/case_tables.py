"""Cases and predictions from tables: labels, readers' votes, groups, strata, split and probabilities.

`CaseReader` has the rules: which classes there are, when votes give the label, what a tie means, and
which notes are taken. They hold for predictions and features, whole files and pieces alike.
Predictions may be those of several models, one file each, read on the cases that all of them have:
what several files say of a case must be the same. One file may also be read in pieces.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import (
    ALONE,
    Answers,
    Cases,
    Factor,
    Predictions,
    check_levels,
    leakage_note,
    left_out_note,
)
from scalecal.checks import (
    ROUNDING,
    SUM_TOLERANCE,
    Float,
    InputError,
    Int,
    LazyModule,
    ScalecalWarning,
    as_rng,
    check_choice,
    check_counts,
    check_probs,
    in_file,
    refuse,
    rows,
)
from scalecal.io.boundary import check_file
from scalecal.io.input_columns import (
    LEVELS_OF,
    NamedColumns,
    as_ids,
    as_option,
    check_headers,
    could_be,
    fields_of,
    iterate_columns,
    join,
    match_ids,
    open_columns,
    plays,
    roles_of,
    some,
)
from scalecal.io.store import file_hash
from scalecal.io.tables import column_names
from scalecal.limits import check_count, check_limit
from scalecal.votes import TIES, Ties, from_long, majority, tied_error

if TYPE_CHECKING:
    import pandas as pd

    Ids = pd.api.extensions.ExtensionArray | None

pa: Any = LazyModule("pyarrow")

ROUNDED = 0.01
"""How far from 1 the probabilities of a row of a file may sum, as rounding to two or more decimals
leaves them; they are then divided by their sum."""

TIES_DONE = {
    "first": "given the first of the tied classes",
    "last": "given the last of the tied classes",
    "random": "given one of the tied classes at random",
}


class AnswerReader:
    """Turns tables, or pieces of one, into `Answers`; `notes` say what was done."""

    def __init__(self) -> None:
        self._n = 0
        self._rounded = 0
        self._furthest = 0.0
        self._rho: float | None = None

    def read(self, table: NamedColumns, ids: Ids, classes: Sequence[str] | None) -> Answers:
        """Return the answers in a table, to be called within its `messages`.

        `classes` are those of its columns (`classes_of_columns`), in the required order.
        """
        self._n += len(table)
        p = self._probabilities(table, "p", ids, classes)
        reader = None
        if table.has("p_reader") or table.spread("p_reader"):
            p_classes = classes_of_columns(table, "p") or ()
            if set(classes_of_columns(table, "p_reader") or ()) != set(p_classes):
                raise InputError(
                    f"columns {table.names['p_reader']!r} and {table.names['p']!r} must have the same "
                    "form: one column each, or one for every class each"
                )
            reader = self._probabilities(table, "p_reader", ids, classes)
        rho = 0.0
        if table.has("rho"):
            values = table.checked("rho")
            if self._rho is None:
                self._rho = float(values[0])
            rho = self._rho
            problem = f"column {table.names['rho']!r} must hold the same number for all cases"
            refuse(values != rho, f"{problem}, {rho:g}", values)
        return Answers(p, reader, rho)

    @property
    def notes(self) -> tuple[str, ...]:
        """In how many of all rows read so far probabilities were divided by their sum."""
        if not self._rounded:
            return ()
        return (
            f"In {self._rounded} of {self._n} rows the probabilities did not sum to 1 (off by up "
            f"to {self._furthest:.2g}): divided by their sum.",
        )

    def _probabilities(
        self, table: NamedColumns, role: str, ids: Ids, classes: Sequence[str] | None
    ) -> Float:
        """Return probabilities: (n,) of one column or of the second of two classes, else (n, C)."""
        name = table.names[role]
        if table.has(role):
            probs = table.numbers(role)
        else:
            probs = np.column_stack([table.numbers(role, f"_{label}") for label in classes or ()])
            name = f"{name}_<class>"
        absent = np.asarray(np.isnan(probs).reshape(len(probs), -1).any(axis=1))
        if absent.any():
            which = "" if ids is None else f" (ids {some(ids[absent])})"
            raise InputError(f"column {name!r} is missing at {rows(absent)}{which}")
        # Logits and percentages are left alone, for `check_probs` to refuse.
        if probs.ndim == 2 and ((probs >= -ROUNDING) & (probs <= 1.0 + ROUNDING)).all():
            total = probs.sum(axis=1)
            distance = np.abs(total - 1.0)
            off = (distance > SUM_TOLERANCE) & (distance < ROUNDED + 1e-9)
            if off.any():
                probs[off] /= total[off, None]
                self._rounded += int(off.sum())
                self._furthest = max(self._furthest, float(distance[off].max()))
        probs = check_probs(probs, f"column {name!r}")
        if probs.ndim == 2 and probs.shape[1] == 2:
            return np.ascontiguousarray(probs[:, 1])
        return probs


def classes_of_columns(table: NamedColumns, role: str) -> tuple[str, ...] | None:
    """Classes of the columns of probabilities of a role; None where one holds the positive class's.

    To be called within the table's `messages`.
    """
    if table.has(role):
        return None
    name, spread = table.names[role], table.spread(role)
    if not spread:
        raise table.missing(name, "the predicted probability", role=role)
    if len(spread) == 1:
        raise InputError(
            f"{next(iter(spread.values()))!r} is the only column of probabilities: "
            f"call it {name!r}, or give one for every class"
        )
    check_limit(len(spread), "classes", f"the number of columns {name}_<class>")
    if all(label.isdigit() for label in spread):
        return tuple(sorted(spread, key=int))
    return tuple(spread)


class CaseReader:
    """Turns tables, or pieces of one, into `Cases`; `notes` say what was done.

    Where a case has no label, its readers' majority is its label; a tie there is an error unless
    `ties` says what it means. A case with neither has the label -1.

    Parameters
    ----------
    n_raters, ties, seed
        As `read_predictions`.
    """

    def __init__(self, *, n_raters: int | None = None, ties: Ties = "error", seed: int = 0) -> None:
        self.count: Counter[str] = Counter()
        check_choice(ties, TIES, "ties")
        self._ties: Ties = ties
        self._rng = as_rng(seed)
        self._n_raters = n_raters
        self._named: dict[str, dict[str, None]] = {}
        self._unread: dict[str, str] = {}

    def read(
        self,
        table: NamedColumns,
        ids: Ids,
        choose: Callable[[Mapping[str, Sequence[str]]], tuple[str, ...]],
    ) -> Cases:
        """Return the cases of a table, to be called within its `messages`.

        `choose` gets the classes that labels and votes name, by source, and returns all in order.
        Without labels and votes there are no classes and no `y`.
        """
        fields: dict[str, Any] = {
            column.field: table.factor(column.role) for column in fields_of("names")
        }
        cases = Cases(n=len(table), ids=ids, **fields)
        if cases.groups is not None and cases.groups.names:
            table.check_full("group", cases.groups, "every case needs a group")
        self.count["all"] += cases.n
        label = table.factor("label")
        absent = ("group",) if label is not None else ("group", "label")
        for role in absent:
            other = could_be(role, table.header)
            if other and not table.has(role) and table.names[role] not in table.header:
                self._unread[role] = other
        counts, named = votes_in(table, n_raters=self._n_raters)
        votes_file = table.sources.get("votes", table.file)
        if label is None and counts is None:
            return cases
        # Pieces name their classes one after another; all of them must fit together.
        sources = {
            f"column {table.names['label']!r}": () if label is None else label.names,
            f"the votes in {votes_file}": named,
        }
        for source, names in sources.items():
            self._named.setdefault(source, {}).update(dict.fromkeys(names))
        classes = choose({source: tuple(names) for source, names in self._named.items()})
        y = np.full(cases.n, -1, dtype=np.int64)
        if label is not None:
            y = _code_labels(label.codes, label.names, classes, table.names["label"])
        if counts is not None:
            with in_file(votes_file):
                counts = _by_class(counts, named, classes)
            joined = votes_file if "votes" in table.sources else ""
            y = self._with_majority(y, counts, labelled=label is not None, ids=ids, joined=joined)
        readers = None if counts is not None else readers_alone(table, self._n_raters)
        self.count["unlabelled"] += int((y < 0).sum())
        return replace(cases, classes=classes, y=y, votes=counts, n_raters=readers)

    @property
    def notes(self) -> tuple[str, ...]:
        """How labels came about in all tables read so far: plain sentences."""
        count, n = self.count, self.count["all"]
        notes = [
            f"There is no column {role!r}; {other!r} could be it: {as_option(role, other)}."
            for role, other in self._unread.items()
        ]
        if count["against"]:
            notes.append(
                f"In {count['against']} of {n} cases the label is not the readers' majority."
            )
        if count["tied"]:
            notes.append(f"The votes are tied in {count['tied']} of {n} cases.")
        if count["decided"]:
            dropped = count["open"] if self._ties == "drop" else 0
            note = (
                f"The label is the readers' majority in {count['decided'] - dropped} of {n} cases"
            )
            if dropped:
                note += (
                    f"; in {dropped} they are tied and there is none. Without tied cases (--ties drop) low "
                    "agreement is rare or missing, and kappa and rho estimated from the votes are too high"
                )
            elif count["open"]:
                note += f", {count['open']} of them tied and {TIES_DONE[self._ties]}"
            notes.append(note + ".")
        if count["blank"]:
            notes.append(f"{count['blank']} of {n} cases have neither label nor votes.")
        return tuple(notes)

    def _with_majority(self, y: Int, counts: Int, *, labelled: bool, ids: Ids, joined: str) -> Int:
        """Fill in the readers' majority if there is no label, and count how labels came about."""
        missing = y < 0
        # Ties matter only where the majority is the label; elsewhere they are merely counted.
        policy: Ties = "drop" if self._ties == "error" else self._ties
        voted = majority(counts, ties=policy, seed=self._rng)
        tied = voted.tied & missing
        if self._ties == "error" and tied.any():
            if not joined or ids is None:
                raise tied_error(tied, rows(tied))
            with in_file(joined):
                raise tied_error(tied, f"ids {some(ids[tied], most=5)}")
        clear = ~missing & ~voted.tied & ~voted.empty
        self.count["against"] += int((clear & (y != voted.labels)).sum())
        self.count["tied"] += int(voted.tied.sum()) if labelled else 0
        self.count["decided"] += int((missing & ~voted.empty).sum())
        self.count["open"] += int(tied.sum())
        self.count["blank"] += int((missing & voted.empty).sum())
        return np.where(missing, voted.labels, y).astype(np.int64)


def _by_class(counts: Int, named: Sequence[str], classes: Sequence[str]) -> Int:
    """Put counts of votes in the order of the classes."""
    _check_among(named, classes, "the table of votes")
    if named:
        place = {name: k for k, name in enumerate(classes)}
        ordered = np.zeros((len(counts), len(classes)), dtype=np.int64)
        ordered[:, [place[name] for name in named]] = counts
        return ordered
    if len(classes) != 2:
        raise InputError(
            f"votes are counted for one class, but there are {len(classes)} classes: "
            "give columns votes_<class>"
        )
    return counts


def read_votes(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    n_raters: int | None = None,
) -> Cases:
    """Read votes in long form or with counts: cases with ids, votes and classes.

    Long: `id, rater, label`, one row per vote; an empty label is a reader who did not vote on the
    case. Counts: `id` with `votes` and `n_raters`, or with a column `votes_<class>` for each class.
    Where only votes for the positive class are counted, the two columns of `votes` are those against
    and for it, and `classes` is empty.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "votes.csv")
    ...     _ = path.write_text("id,rater,label\\na,r1,HP\\na,r2,SSA\\nb,r1,SSA\\n")
    ...     cases = read_votes(path)
    >>> cases.classes, cases.votes.tolist()
    (('HP', 'SSA'), [[1, 1], [0, 1]])
    """
    table = open_columns(path, columns, roles_of("votes"))
    with table.messages():
        table.need("id", "the case that a vote is on")
        if not table.has("rater"):
            counts, classes = votes_in(table, n_raters=n_raters)
            if counts is None:
                raise table.missing(
                    table.names["rater"],
                    "votes are rows of id, rater, label, or columns votes and n_raters, or votes_<class>",
                )
            return Cases(n=len(table), ids=table.ids(), votes=counts, classes=classes)
        table.need("label", "the class a reader chose")
        if n_raters is not None:
            raise InputError("there is one row per vote, so n_raters must not be given")
        case, rater, label = (table.factor(role) for role in ("id", "rater", "label"))
        assert case is not None
        assert rater is not None
        assert label is not None
        for role, factor in (("id", case), ("rater", rater)):
            table.check_full(role, factor, "a vote is one reader's on one case")
        size = 8 * len(case.names) * len(label.names)
        check_limit(size, "memory", "the memory of votes by case and class")
        counts, ids, classes = from_long(case.values, rater.values, label.values)
    return Cases(n=len(ids), ids=as_ids(ids), votes=counts, classes=classes)


def per_case_numbers(table: NamedColumns) -> dict[str, Any]:
    """Return the columns of numbers that are fields of a record as they are, by field."""
    return {
        column.field: table.checked(column.role)
        for column in fields_of("numbers")
        if table.has(column.role)
    }


def open_votes(
    path: str | Path, *, columns: Mapping[str, str] | None = None, n_raters: int | None = None
) -> NamedColumns:
    """Return what `read_votes` reads as a table that can be joined to others."""
    cases = read_votes(path, columns=columns, n_raters=n_raters)
    assert cases.votes is not None
    parts = {"id": pa.array(cases.ids)}
    for c, name in enumerate(cases.classes):
        parts[f"votes_{name}"] = pa.array(cases.votes[:, c])
    if not cases.classes:
        parts |= {"votes": pa.array(cases.votes[:, 1]), "n_raters": pa.array(cases.readers)}
    return NamedColumns(pa.table(parts), Path(path).name, tuple(parts))


def without_empty_columns(cases: Cases) -> Cases:
    """Return the cases of a whole file without the columns that are there but say nothing."""
    empty: dict[str, Any] = {}
    for column in fields_of("names"):
        factor = getattr(cases, column.field)
        if factor is not None and not factor.names:
            empty[column.field] = None
    if cases.votes is not None and not cases.votes.any():
        empty["votes"] = None
    return replace(cases, **empty)


def votes_in(
    table: NamedColumns, *, n_raters: int | None = None
) -> tuple[Int | None, tuple[str, ...]]:
    """Votes in columns of a table with one row per case, and their classes; None without any.

    A case whose votes are all missing was seen by no reader: its counts are zero.
    """
    name, spread = table.names["votes"], table.spread("votes")
    single = table.has("votes")
    if single and spread:
        # A column that is there but says nothing, as in feature folders, counts as none.
        if not np.isnan(table.numbers("votes")).all():
            first = next(iter(spread.values()))
            raise InputError(f"both {name!r} and {first!r} count votes: give one, or one per class")
    elif not single and not spread:
        return None, ()
    total = _panel_sizes(table, n_raters)
    if spread:
        votes = np.column_stack([table.numbers("votes", f"_{label}") for label in spread])
        what = f"column '{name}_<class>'"
    else:
        votes = table.numbers("votes")[:, None]
        what = f"column {name!r}"
    gaps = np.isnan(votes)
    absent = np.asarray(gaps.all(axis=1))
    refuse(
        gaps.any(axis=1) & ~absent,
        f"some but not all of {', '.join(spread.values())} are empty",
        advice="Write 0 where nobody chose a class.",
    )
    votes = np.where(absent[:, None], 0.0, votes)
    if len(spread) == 1 and "votes" in table.sources:
        # Rows of single votes, counted when their file was read: all are for one class.
        return votes.astype(np.int64), tuple(spread)
    if total is not None:
        refuse(
            np.isnan(total) & ~absent,
            f"column {table.names['n_raters']!r} is empty",
            advice="There are votes: say of how many readers.",
        )
        total = np.where(absent, 0.0, total)
    elif not spread:
        raise table.missing(
            table.names["n_raters"], f"the number of readers behind {name!r}; or give n_raters"
        )
    if spread:
        _check_readers(votes.sum(axis=1), what)
    else:
        votes = votes[:, 0]
    return check_counts(votes, total, name=what), tuple(spread)


def readers_alone(table: NamedColumns, n_raters: int | None) -> Int | None:
    """Readers behind each label if there are no votes; None where their number is unknown."""
    numbers = _panel_sizes(table, n_raters)
    if numbers is None or np.isnan(numbers).all():
        return None
    known = np.nan_to_num(numbers, nan=1.0)  # one reader: the label is what that one said
    broken = (known < 1) | (known != np.floor(known))
    refuse(broken, f"column {table.names['n_raters']!r} must hold whole numbers from 1", known)
    return known.astype(np.int64)


def _check_readers(numbers: Float, name: str) -> None:
    """Fail if a case has more readers than the limit."""
    most = numbers[np.isfinite(numbers)].max(initial=0)
    check_limit(int(most), "readers", f"{name}: the number of readers of a case")


def _panel_sizes(table: NamedColumns, n_raters: int | None) -> Float | None:
    """Number of readers of each case: the column's, NaN where empty, or the one given for all."""
    if not table.has("n_raters"):
        if n_raters is None:
            return None
        return np.full(len(table), float(check_count(n_raters, "n_raters", "readers")))
    name = f"column {table.names['n_raters']!r}"
    if n_raters is not None:
        raise InputError(f"there is a {name}, so n_raters must not be given")
    numbers = table.numbers("n_raters")
    _check_readers(numbers, name)
    return numbers


def resolve_classes(
    named: Mapping[str, Sequence[str]],
    *,
    columns: Sequence[str] | None = None,
    positive: str | None = None,
) -> tuple[str, ...]:
    """Return the classes in the order of the probabilities; of two classes the second is positive.

    Parameters
    ----------
    named
        The classes that each source (labels, votes) names.
    columns
        All classes in order, of columns `p_<class>` for instance; None where one column holds the
        probability of the positive class.
    positive
        Name of the positive class. It may be left out where the classes are 0 and 1, or where the
        probability columns name them.

    Examples
    --------
    >>> resolve_classes({"label": ["HP", "SSA"]}, positive="SSA")
    ('HP', 'SSA')
    >>> resolve_classes({"label": ["0", "1"]})
    ('0', '1')
    """
    if columns is not None:
        classes = tuple(columns)
        for source, names in named.items():
            _check_among(names, classes, source)
        return positive_last(classes, positive)
    seen = list(dict.fromkeys(name for names in named.values() for name in names))
    # Numbers must be 0 and 1; `_code_labels` names the row of one that is neither.
    if positive is None and all(n.lstrip("-").replace(".", "", 1).isdigit() for n in seen):
        return ("0", "1")
    if positive is not None and len(seen) > 1:
        _check_among([positive], seen, "the positive class")
    if len(seen) > 2:
        sources = " and ".join(source for source, names in named.items() if names)
        raise InputError(
            f"there are {len(seen)} classes in {sources} ({some(seen, 8)}), but one column p has room for "
            "two: give a column p_<class> for each class"
        )
    if positive is None:
        raise InputError(
            f"the classes are {some(seen, 8)}: say which of them p is the probability of, "
            "with positive=NAME (on the command line --positive NAME)"
        )
    others = [name for name in seen if name != positive]
    rest = others[0] if others else {"0": "1", "1": "0"}.get(positive, f"not {positive}")
    return (rest, positive)


def positive_last(classes: Sequence[str], positive: str | None) -> tuple[str, ...]:
    """Return two classes with the positive one second; any classes as they are if none is named."""
    if positive is None:
        return tuple(classes)
    _check_among([positive], classes, "the positive class")
    if len(classes) > 2:
        raise InputError(
            f"a positive class needs two classes, there are {len(classes)}: {some(classes, 8)}"
        )
    return tuple(sorted(classes, key=lambda name: name == positive))


def _check_among(names: Iterable[str], classes: Sequence[str], source: str) -> None:
    """Fail unless all names that a source (a column, a file) has are those of classes."""
    known = set(classes)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"{source} has {some(unknown, 8)}, but the classes are {some(classes, 8)}: use the same names "
            "everywhere, or name the positive class by positive=NAME (on the command line --positive NAME)"
        )


def _code_labels(codes: Int, names: Sequence[str], classes: Sequence[str], column: str) -> Int:
    """Turn codes into `names` into codes into `classes`; -1 (missing) stays."""
    numbers = {name: k for k, name in enumerate(classes)}
    labels = np.array([*(numbers.get(name, -2) for name in names), -1], dtype=np.int64)[codes]
    unknown = labels == -2
    if unknown.any():
        first = names[int(codes[unknown][0])]
        raise InputError(
            f"column {column!r} must hold {some(classes, 8)}, got {first!r} at {rows(unknown)}. "
            "Name the positive class, or give a column p_<class> for each class, if these are others"
        )
    return labels


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
    by: Sequence[str] = (),
    allow_leakage: bool = False,
    keep_unlabelled: bool = False,
    classes: Sequence[str] | None = None,
) -> Predictions:
    """Read predictions and, if present, labels, votes, groups and strata.

    Columns `p_<class>` whose rows sum to 1 within 0.01, as rounded numbers do, are divided by their
    sum. Cases without a label are left out by default, with a note.

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
        The class whose probability is `p`, if the classes are not 0 and 1.
    n_raters
        Number of readers of every case, if no column has it.
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
    by
        Columns whose levels are audited, such as ``["site", "scanner"]``.
    allow_leakage
        Do not warn of groups with cases in both train and test.
    keep_unlabelled
        Keep cases without a label (``y`` is -1), and take `n_raters` for the readers behind the labels
        if there are no votes.
    classes
        The classes in order, if they are known beforehand, such as a fitted calibrator's. With
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
        by=by,
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
    by: Sequence[str] = (),
    allow_leakage: bool = False,
) -> Predictions:
    """Read several models' predictions of the same cases: name of the file -> predictions.

    The cases are those that every file has, in the order of the first, and the same for all: each
    file needs `id` and `p`, one of them labels or votes. Files of one name go by their folders too.

    Parameters
    ----------
    paths
        Files as `read_predictions` takes them.
    votes, columns, positive, n_raters, ties, seed, split, group_regex, by, allow_leakage
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
        by=by,
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
    by: Sequence[str],
    allow_leakage: bool,
    keep_unlabelled: bool = False,
    expected: Sequence[str] | None = None,
) -> Predictions:
    """Read the answers of each file by its name, on the cases that all have."""
    sources = dict(files)
    roles = roles_of("predictions")
    allowed = roles
    if votes is not None:
        sources[Path(votes).name] = Path(votes)
        # Votes of the second file take the place of any others.
        roles = tuple(role for role in roles if role not in ("votes", "n_raters"))
        allowed = (*allowed, "rater")
    headers = {name: column_names(file) for name, file in sources.items()}
    check_headers(columns, allowed, headers)
    check_headers(None, allowed, {name: headers[name] for name in files}, by)
    # The stratum is audited by its levels wherever there is one.
    by = [name for name in dict.fromkeys(by) if name != (columns or {}).get("stratum", "stratum")]
    tables = {}
    columns_of = {}
    for name, path in files.items():
        table = replace(open_columns(path, columns, roles, by), file=name)
        with table.messages():
            if len(files) > 1:
                table.need("id", "by which several files are joined")
                votes_in(table, n_raters=n_raters)  # names the line of what is wrong
            columns_of[name] = classes_of_columns(table, "p")
        tables[name] = table
    classes = _common_classes(columns_of, expected, positive)
    answers = {}
    notes: list[str] = []
    for name, table in tables.items():
        reader = AnswerReader()
        with table.messages():
            answers[name] = reader.read(table, table.ids(), classes)
        for note in reader.notes:
            if len(files) > 1:
                note = f"{name}: {note}"
            notes.append(note)
    if len(files) > 1:
        table, rows, common = _common_table(tables)
        for name in files:
            answers[name] = answers[name].take(rows[name])
        notes = [*common, *notes]
    with table.messages():
        if votes is not None:
            second = open_votes(votes, columns=columns, n_raters=n_raters)
            table, unmatched = join(table, second)
            notes += unmatched
            n_raters = None  # the votes are counted
        case_reader = CaseReader(n_raters=n_raters, ties=ties, seed=seed)
        choose = partial(resolve_classes, columns=classes, positive=positive)
        cases = case_reader.read(table, table.ids(), choose)
        if cases.y is None and expected is not None and keep_unlabelled:
            readers = readers_alone(table, n_raters)
            cases = replace(cases, classes=tuple(expected), n_raters=readers)
        elif cases.y is None or not keep_unlabelled:
            _check_labelled(table, cases, n_raters)
        shared = per_case_numbers(table)
        cases = without_empty_columns(cases)
        if group_regex is not None:
            cases = cases.grouped_by(group_regex)
        cases = replace(cases, by=_levels_in(table, by))
        cases = replace(cases, notes=(*notes, *case_reader.notes, *cases.notes))
        by_method = {}
        for name, answer in answers.items():
            key = ALONE
            if len(files) > 1:
                key = (name, 0)
            by_method[key] = replace(answer, rows=None, **shared)
        hashes = {name: file_hash(file) for name, file in sources.items()}
        predictions = Predictions(cases, by_method, sources=hashes)
        return _choose_cases(
            table,
            predictions,
            split=split,
            allow_leakage=allow_leakage,
            keep_unlabelled=keep_unlabelled,
        )


def _levels_in(table: NamedColumns, by: Sequence[str]) -> dict[str, Factor]:
    """Columns of a table whose levels are audited."""
    found = {}
    for name in by:
        factor = table.factor(f"{LEVELS_OF}{name}")
        if factor is None:
            factor = Factor(np.zeros(0, dtype=np.int64), ())
        found[name] = check_levels(factor, name)
    return found


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
                classes = classes_of_columns(table, "p")
                if classes is not None:
                    classes = positive_last(classes, self._positive)
                answers = self._answers.read(table, None, classes)
                choose = partial(resolve_classes, columns=classes, positive=self._positive)
                cases = self._cases.read(table, None, choose)
                _check_labelled(table, cases, self._n_raters)
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
    """Fail if there are neither labels nor votes, or readers without votes."""
    if cases.y is None:
        raise table.missing(
            table.names["label"], "or votes, from which labels follow", role="label"
        )
    if n_raters is not None and cases.votes is None:
        raise table.missing(table.names["votes"], "n_raters was given, but there are no votes")


def _common_classes(
    columns_of: Mapping[str, tuple[str, ...] | None],
    expected: Sequence[str] | None,
    positive: str | None,
) -> tuple[str, ...] | None:
    """Classes of the columns p_<class> of some files in order; None where each has one column p.

    Those of one file may be known beforehand.
    """
    several = {name: own for name, own in columns_of.items() if own is not None}
    single = [name for name in columns_of if name not in several]
    if expected is None and not several:
        return None
    classes, stated = expected, "expected are"
    if classes is None:
        first, classes = next(iter(several.items()))
        stated = f"{first} has"
    for name, own in several.items():
        if set(own) != set(classes):
            raise InputError(
                f"{name} has probabilities of {some(own, 8)}; {stated} {some(classes, 8)}: use the same "
                "classes everywhere"
            )
    if single and len(classes) > 2:
        raise InputError(
            f"{single[0]} has one column p; {stated} {len(classes)} classes: give a column p_<class> for "
            f"each of {some(classes, 8)}"
        )
    if single and expected is None and positive is None and set(classes) != {"0", "1"}:
        with in_file(single[0]):
            raise InputError(
                f"the classes are {some(classes)}: say which of them p is the probability of, with "
                "positive=NAME (on the command line --positive NAME)"
            )
    return positive_last(classes, positive)


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
    ids = {name: table.ids() for name, table in tables.items()}
    common = next(iter(ids.values()))
    assert common is not None
    for own in ids.values():
        common = common[match_ids(common, own) >= 0]
    n = len(common)
    if not n:
        found = "; ".join(f"{name} has {some(own)}" for name, own in ids.items())
        raise InputError(f"no id is in all of {', '.join(tables)}: {found}")
    rows, taken, fewer = {}, {}, []
    for name, table in tables.items():
        rows[name] = match_ids(common, ids[name])
        taken[name] = replace(table, table=table.table.take(rows[name]))
        if len(table) > n:
            fewer.append(f"{len(table) - n:,} of {len(table):,} of {name}")
    note = f"{n:,} cases are in every file, joined by id"
    if fewer:
        note += f"; the others were left out: {', '.join(fewer)}"
    joined, notes = _overlay(taken)
    return joined, rows, [f"{note}.", *notes]


def _overlay(tables: Mapping[str, NamedColumns]) -> tuple[NamedColumns, list[str]]:
    """One table of what the files say of the same rows, and notes; contradictions are refused."""
    first = next(iter(tables.values()))
    parts: dict[str, Any] = {"id": first.table.column("id")}
    columns = dict.fromkeys(c for table in tables.values() for c in table.table.column_names)
    names = [column.role for column in fields_of("names")]
    names += [column for column in columns if column.startswith(LEVELS_OF)]
    for role in ("label", "votes", "n_raters", *names):
        for part in columns:
            if not plays(role, role, part):
                continue
            said = {}
            for name, table in tables.items():
                with table.messages():
                    factor = table.factor(role, part.removeprefix(role))
                if factor is not None and factor.names:
                    said[name] = factor.values.astype(object)
            if said:
                values = _one_value(part, first.ids(), said)
                parts[part] = pa.array([value or None for value in values], pa.string())
    notes = []
    for column in fields_of("numbers"):
        having = [name for name, table in tables.items() if table.has(column.role)]
        if having:
            parts[column.role] = tables[having[0]].table.column(column.role)
        if len(having) > 1:
            notes.append(f"The column {column.role} is that of {having[0]} for all files.")
    header = dict.fromkeys((*parts, *(c for table in tables.values() for c in table.header)))
    file = " and ".join(tables)
    table = NamedColumns(pa.table(parts), file, tuple(header), word="common case", first=1)
    levels = {part: part.removeprefix(LEVELS_OF) for part in parts if part.startswith(LEVELS_OF)}
    table = replace(table, names={**table.names, **levels})
    return table, notes


def _one_value(role: str, ids: Any, said: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Each case's value ("" for none) by the files that say one; fails where they contradict each other."""
    (source, values), *others = said.items()
    for name, other in others:
        differs = np.flatnonzero((values != "") & (other != "") & (values != other))
        if len(differs):
            i = int(differs[0])
            raise InputError(
                f"{source} and {name} contradict each other: {role} of {str(ids[i])!r} is "
                f"{str(values[i])!r} in one and {str(other[i])!r} in the other ({len(differs):,} such "
                f"cases). Correct the ids, or leave {role} out of one file"
            )
        values = np.where(values == "", other, values)
    return values


def _choose_cases(
    table: NamedColumns,
    predictions: Predictions,
    *,
    split: str | None,
    allow_leakage: bool,
    keep_unlabelled: bool,
) -> Predictions:
    """Return the predictions of the cases that are labelled and of the split, with notes.

    With `keep_unlabelled` cases without a label stay. To be called within the table's `messages`; warns
    of leakage.
    """
    cases = predictions.cases
    marks = np.full(cases.n, "")
    if cases.split is not None:
        marks = cases.split.values
    notes = []
    seen = int((marks == "train").sum())
    inside = np.ones(cases.n, dtype=bool)
    if split is not None:
        table.need("split", f"to keep the cases marked {split!r}")
        inside = marks == split
        if not inside.any():
            raise InputError(
                f"no case is marked {split!r} in column {table.names['split']!r}; "
                f"found {some(np.unique(marks))}"
            )
        notes.append(f"Only the {int(inside.sum())} of {cases.n} cases marked {split} are audited.")
    elif seen:
        notes.append(
            f"{seen} of {cases.n} cases are marked train: a model trained on them looks better on "
            "them than it is. With --split test (in Python split='test') the others are "
            "left out."
        )
    leakage = leakage_note(cases)
    if leakage and not allow_leakage:
        warnings.warn(leakage, ScalecalWarning, stacklevel=4)
        notes.append(leakage)
    if not keep_unlabelled:
        inside = inside[predictions.y >= 0]
        predictions = predictions.labelled()
    if not inside.any():
        raise InputError(" ".join(["no case is left.", *predictions.cases.notes, *notes]))
    if not inside.all():
        predictions = predictions.take(inside)
    return replace(predictions, cases=predictions.cases.note(*notes))
