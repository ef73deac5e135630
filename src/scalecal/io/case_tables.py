"""Cases from tables: labels, readers' votes, groups, strata and split, and predictions beside them.

`CaseReader` has the rules: which classes there are, when votes give the label, what a tie means, and
which notes are taken. They hold for predictions and features, whole files and pieces alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.cases import Answers, Cases
from scalecal.checks import (
    ROUNDING,
    SUM_TOLERANCE,
    Float,
    InputError,
    Int,
    as_rng,
    check_choice,
    check_counts,
    check_probs,
    in_file,
    rows,
)
from scalecal.io.input_columns import as_option, could_be, fields_of, roles_of
from scalecal.io.named_columns import (
    NamedColumns,
    as_ids,
    open_columns,
    some,
)
from scalecal.limits import check_count, check_limit
from scalecal.votes import TIES, Ties, from_long, majority, tied_error

if TYPE_CHECKING:
    import pandas as pd

    Ids = pd.api.extensions.ExtensionArray | None

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
        self._rounded: Counter[str] = Counter()
        self._furthest = 0.0
        self._rho: float | None = None

    def read(self, table: NamedColumns, ids: Ids) -> tuple[Answers, tuple[str, ...] | None]:
        """Return the answers in a table, to be called within its `messages`, and their classes.

        The classes are those of the columns of `p` and `p_reader`, in their order; None where each is
        one column, of the positive class.
        """
        self._n += len(table)
        p, named = self._probabilities(table, "p", ids)
        reader = None
        if table.has("p_reader") or table.spread("p_reader"):
            reader, other = self._probabilities(table, "p_reader", ids)
            if set(other or ()) != set(named or ()):
                raise InputError(
                    f"columns {table.names['p_reader']!r} and {table.names['p']!r} must have the same "
                    "form: one column each, or one for every class each"
                )
            if named is not None and other is not None:
                reader = reader[:, _places(named, other)]
        rho = 0.0
        if table.has("rho"):
            rho = self._correlation(table)
        return Answers(p, reader, rho, **per_case_numbers(table)), named

    @property
    def notes(self) -> tuple[str, ...]:
        """In how many of all rows read so far the probabilities were divided by their sum."""
        notes = []
        for role, name in (("p", "probabilities"), ("p_reader", "readers' probabilities")):
            if self._rounded[role]:
                notes.append(
                    f"In {self._rounded[role]} of {self._n} rows the {name} did not sum to 1 (off by up "
                    f"to {self._furthest:.2g}): divided by their sum."
                )
        return tuple(notes)

    def _correlation(self, table: NamedColumns) -> float:
        """Return the one value of the column `rho`, the same in all pieces of a file."""
        name, values = table.names["rho"], table.checked("rho")
        if self._rho is None:
            self._rho = float(values[0])
        differs = values != self._rho
        if differs.any():
            raise InputError(
                f"column {name!r} must hold the same number for all cases, got "
                f"{values[differs][0]:g} at {rows(differs)} after {self._rho:g}"
            )
        return self._rho

    def _probabilities(
        self, table: NamedColumns, role: str, ids: Ids
    ) -> tuple[Float, tuple[str, ...] | None]:
        """Return (n,) probabilities and None, or (n, C) and the classes of the columns."""
        name, spread = table.names[role], table.spread(role)
        if table.has(role):
            probs, named = table.numbers(role), None
        elif len(spread) >= 2:
            named = tuple(spread)
            check_limit(len(named), "classes", f"the number of columns {name}_<class>")
            if all(label.isdigit() for label in named):
                named = tuple(sorted(named, key=int))
            probs = np.column_stack([table.numbers(role, f"_{label}") for label in named])
            name = f"{name}_<class>"
        elif spread:
            raise InputError(
                f"{next(iter(spread.values()))!r} is the only column of probabilities: "
                f"call it {name!r}, or give one for every class"
            )
        else:
            raise table.missing(name, "the predicted probability", role=role)
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
                self._rounded[role] += int(off.sum())
                self._furthest = max(self._furthest, float(distance[off].max()))
        return check_probs(probs, f"column {name!r}"), named


def in_order(answers: Answers, named: Sequence[str] | None, classes: Sequence[str]) -> Answers:
    """Put columns of probabilities by class in the order of the classes; (n,) of two classes."""
    if named is None:
        return answers
    order: Any = _places(classes, named)
    if len(order) == 2:
        order = order[1]
    p_reader = answers.p_reader
    if p_reader is not None:
        p_reader = np.ascontiguousarray(p_reader[:, order])
    return replace(answers, p=np.ascontiguousarray(answers.p[:, order]), p_reader=p_reader)


def _places(names: Sequence[str], among: Sequence[str]) -> list[int]:
    """Where each of some names stands among others."""
    place = {name: k for k, name in enumerate(among)}
    return [place[name] for name in names]


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
        """Fill in the readers' majority where there is no label, and count how labels came about."""
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
    odd = [name for name in named if name not in classes]
    if odd:
        raise InputError(
            f"votes are counted for {some(odd, 8)}, but the classes are {some(classes, 8)}: use the "
            "same names, or say which class p is the probability of, with positive=NAME (on the "
            "command line --positive NAME)"
        )
    if named:
        ordered = np.zeros((len(counts), len(classes)), dtype=np.int64)
        ordered[:, _places(named, classes)] = counts
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
    import pyarrow as pa

    cases = read_votes(path, columns=columns, n_raters=n_raters)
    assert cases.votes is not None
    table = pa.table({"id": pa.array(cases.ids), **vote_columns(cases.votes, cases.classes)})
    return NamedColumns(table, Path(path).name, tuple(table.column_names))


def vote_columns(counts: Int, classes: Sequence[str]) -> dict[str, Any]:
    """Return counts of votes as the columns of a table, by role; without classes, of the second of two."""
    import pyarrow as pa

    if not classes:
        return {"votes": pa.array(counts[:, 1]), "n_raters": pa.array(counts.sum(axis=1))}
    return {f"votes_{name}": pa.array(counts[:, c]) for c, name in enumerate(classes)}


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
    spread = table.spread("votes")
    votes = None
    if table.has("votes"):
        votes = table.numbers("votes")
        if spread and np.isnan(votes).all():
            votes = None  # a column that is there but says nothing, as in feature folders
    if votes is None and not spread:
        return None, ()
    if votes is None:
        return _votes_by_class(table, spread, n_raters), tuple(spread)
    name = table.names["votes"]
    if spread:
        first = next(iter(spread.values()))
        raise InputError(f"both {name!r} and {first!r} count votes: give one, or one per class")
    total = _panel_sizes(table, n_raters)
    if total is None:
        raise table.missing(
            table.names["n_raters"], f"the number of readers behind {name!r}; or give n_raters"
        )
    absent = np.isnan(votes)
    unknown = np.isnan(total) & ~absent
    if unknown.any():
        raise InputError(
            f"column {table.names['n_raters']!r} is empty at {rows(unknown)}, where there are votes"
        )
    votes, total = np.where(absent, 0.0, votes), np.where(absent, 0.0, total)
    return check_counts(votes, total, name=f"column {name!r}"), ()


def _votes_by_class(table: NamedColumns, spread: Mapping[str, str], n_raters: int | None) -> Int:
    """Votes in one column per class."""
    name, listed = table.names["votes"], ", ".join(spread.values())
    if n_raters is not None:
        raise InputError(f"votes are counted per class ({listed}), so n_raters must not be given")
    votes = np.column_stack([table.numbers("votes", f"_{label}") for label in spread])
    gaps = np.isnan(votes)
    absent = gaps.all(axis=1)
    votes[absent] = 0.0
    if len(spread) == 1 and "votes" in table.sources:
        # Rows of single votes, counted when their file was read: all are for one class.
        return votes.astype(np.int64)
    if len(spread) == 1:
        raise InputError(
            f"{listed!r} is the only column of votes per class: give one for every class, "
            f"or {name!r} with n_raters"
        )
    partial_rows = gaps.any(axis=1) & ~absent
    if partial_rows.any():
        raise InputError(
            f"some but not all of {listed} are empty at {rows(partial_rows)}: "
            "write 0 where nobody chose a class"
        )
    total = _panel_sizes(table, None)
    if total is not None:
        total = np.where(absent, 0.0, total)
    name = f"column '{name}_<class>'"
    _check_readers(votes.sum(axis=1), name)
    return check_counts(votes, total, name=name)


def readers_alone(table: NamedColumns, n_raters: int | None) -> Int | None:
    """Readers behind each label where there are no votes; None where their number is unknown."""
    numbers = _panel_sizes(table, n_raters)
    if numbers is None or np.isnan(numbers).all():
        return None
    known = np.nan_to_num(numbers, nan=1.0)  # one reader: the label is what that one said
    wrong = (known < 1) | (known != np.floor(known))
    if wrong.any():
        raise InputError(
            f"column {table.names['n_raters']!r} must hold whole numbers from 1, not so at {rows(wrong)}"
        )
    return known.astype(np.int64)


def _check_readers(numbers: Float, name: str) -> None:
    """Fail where a case has more readers than the limit."""
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
        return _classes_of_columns(named, columns, positive)
    seen = list(dict.fromkeys(name for names in named.values() for name in names))
    # Numbers must be 0 and 1; `_code_labels` names the row of one that is neither.
    if positive is None and all(n.lstrip("-").replace(".", "", 1).isdigit() for n in seen):
        return ("0", "1")
    if positive is not None and len(seen) > 1 and positive not in seen:
        raise InputError(f"positive class {positive!r} is not among the classes {some(seen, 8)}")
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


def _classes_of_columns(
    named: Mapping[str, Sequence[str]], columns: Sequence[str], positive: str | None
) -> tuple[str, ...]:
    classes, known = list(columns), set(columns)
    for source, names in named.items():
        odd = [name for name in names if name not in known]
        if odd:
            raise InputError(
                f"there is {some(odd, 8)} in {source}, but the classes are {some(classes, 8)}: "
                "use the same names everywhere"
            )
    if positive is not None:
        if positive not in classes:
            raise InputError(
                f"positive class {positive!r} is not among the classes {some(classes, 8)}"
            )
        if len(classes) > 2:
            raise InputError(
                f"a positive class needs two classes, there are {len(classes)}: {some(classes, 8)}"
            )
        classes.sort(key=lambda name: name == positive)
    return tuple(classes)


def _code_labels(codes: Int, names: Sequence[str], classes: Sequence[str], column: str) -> Int:
    """Turn codes into `names` into codes into `classes`; -1 (missing) stays."""
    numbers = {name: k for k, name in enumerate(classes)}
    labels = np.array([*(numbers.get(name, -2) for name in names), -1], dtype=np.int64)[codes]
    odd = labels == -2
    if odd.any():
        first = names[int(codes[odd][0])]
        raise InputError(
            f"column {column!r} must hold {some(classes, 8)}, got {first!r} at {rows(odd)}. "
            "Name the positive class, or give a column p_<class> for each class, if these are others"
        )
    return labels
