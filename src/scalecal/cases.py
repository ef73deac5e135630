"""The one record of cases, and what stands beside it: embeddings (`Features`), answers (`Answers`).

Every reader makes one, every writer and the page take one, and `Cases.take` is the only way to get
some of the cases: columns are subset together, and codes keep their names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import Float, InputError, Int, as_names, in_file
from scalecal.votes import STRATA, stratum_codes

__all__ = [
    "Answers",
    "Cases",
    "Factor",
    "Features",
    "Predictions",
    "Rows",
    "array_hash",
    "check_levels",
    "leakage_note",
    "left_out_note",
    "rows_of",
]

THRESHOLD = 0.5
"""Probability from which a case of two classes is called positive, if no other is stated."""

Rows = NDArray[np.integer[Any]] | NDArray[np.bool_] | slice
"""Some of the cases: row numbers, a mask, or a slice."""


def rows_of(column: NDArray[Any] | None, rows: Rows) -> Any:
    """Return some rows of a column; None where there is no column."""
    if column is None:
        return None
    return column[rows]


def _columns(record: Cases | Answers) -> dict[str, Any]:
    """Columns that a record has, by name."""
    whole = ("n", "classes", "agreement", "by", "notes", "rho")
    columns = {f.name: getattr(record, f.name) for f in fields(record) if f.name not in whole}
    return {name: values for name, values in columns.items() if values is not None}


@dataclass(frozen=True, eq=False)
class Factor:
    """A column of names: `codes` number each case's name in `names`, -1 for none.

    Examples
    --------
    >>> patients = Factor.of(["b", "a", None, "b"])
    >>> patients.names, patients.codes.tolist()
    (('a', 'b'), [1, 0, -1, 1])
    >>> patients.take(np.array([0, 3])).values.tolist()
    ['b', 'b']
    """

    codes: Int
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: ArrayLike, names: tuple[str, ...] | None = None) -> Factor:
        """Return a factor of values; None, NaN and "" are no name. `names` fixes their order."""
        raw, missing = as_names(values, "names")
        if raw.dtype.kind == "f":
            raw = np.array([str(v) for v in raw.tolist()], np.str_)
        texts = raw.astype(np.str_, copy=False)
        if missing.any():
            texts = np.where(missing, "", texts)
        distinct, inverse = np.unique(texts, return_inverse=True)
        if names is None:
            names = tuple(filter(None, distinct.tolist()))
        place = {name: code for code, name in enumerate(names)}
        codes = np.array([place.get(name, -1) for name in distinct.tolist()], dtype=np.int64)
        return cls(codes[inverse.reshape(raw.shape)], names)

    @property
    def values(self) -> NDArray[np.str_]:
        """The names themselves, "" for none."""
        return np.array([*self.names, ""], dtype=np.str_)[self.codes]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Rows) -> Factor:
        """Return the factor of some cases; it keeps all names."""
        return Factor(self.codes[rows], self.names)

    @classmethod
    def concat(cls, parts: Sequence[Factor]) -> Factor:
        """Return the factors of all parts, one after the other."""
        # Each part numbers its names by itself, so codes are made anew.
        names = tuple(dict.fromkeys(name for part in parts for name in part.names))
        return cls.of(np.concatenate([part.values for part in parts]), names)


@dataclass(frozen=True, eq=False, kw_only=True)
class Cases:
    """Record of n cases.

    Attributes
    ----------
    n
        Number of cases.
    classes
        Names of the classes, in the order of `y` and of the columns of `votes`.
    ids
        Names of the cases, all different: text in Arrow or numpy memory; None if they have none.
    y
        (n,) class numbers, -1 if a case has no label; None without labels.
    votes
        (n, C) readers per class, zeros where nobody voted; None without votes.
    n_raters
        (n,) readers behind each label where their number is known but not their votes; else None.
    groups
        Patient, slide, ...: what must not be split and is resampled as a whole.
    strata
        Difficulty strata, easiest first.
    by
        Further columns of names whose levels are audited, such as sites and scanners.
    agreement
        Whether the strata were made from these votes (`scalecal.votes.strata`).
    split
        "train", "val" or "test".
    paths
        (n,) image files below the images' folder, "" where unknown.
    notes
        Notes for the reader of any result on these cases: plain sentences.

    Examples
    --------
    >>> cases = Cases(n=3, classes=("HP", "SSA"), y=np.array([0, 1, 1]),
    ...               votes=np.array([[7, 0], [3, 4], [0, 7]]), groups=Factor.of(["a", "b", "b"]))
    >>> cases.stratified().strata.values.tolist()
    ['high', 'low', 'high']
    >>> cases.take(cases.y == 1).groups.values.tolist()
    ['b', 'b']
    """

    n: int
    classes: tuple[str, ...] = ()
    ids: Any = None
    y: Int | None = None
    votes: Int | None = None
    n_raters: Int | None = None
    groups: Factor | None = None
    strata: Factor | None = None
    agreement: bool = False
    by: Mapping[str, Factor] = field(default_factory=dict)
    split: Factor | None = None
    paths: NDArray[np.str_] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, values in {**self.by, **_columns(self)}.items():
            if len(values) != self.n:
                raise InputError(f"{name} has {len(values)} rows, but there are {self.n} cases")

    def __len__(self) -> int:
        return self.n

    def take(self, rows: Rows) -> Cases:
        """Return some of the cases, in this order; those without ids keep their row numbers as ids."""
        index = np.arange(self.n)[rows]
        cut: dict[str, Any] = {}
        for name, values in _columns(self).items():
            if isinstance(values, Factor):
                cut[name] = values.take(index)
            else:
                cut[name] = values[index]
        # A part of a part must still name the rows of the whole, by which methods are matched.
        if self.ids is None:
            cut["ids"] = index.astype(f"U{len(str(self.n))}")
        by = {name: factor.take(index) for name, factor in self.by.items()}
        return replace(self, n=len(index), by=by, **cut)

    @classmethod
    def concat(cls, parts: Sequence[Cases]) -> Cases:
        """Return the cases of all parts, one after the other; a column that some part lacks is left out."""
        first = parts[0]
        joined: dict[str, Any] = {}
        for name in _columns(first):
            columns = [getattr(part, name) for part in parts]
            if any(column is None for column in columns):
                joined[name] = None
            elif isinstance(columns[0], Factor):
                joined[name] = Factor.concat(columns)
            else:
                joined[name] = np.concatenate([np.asarray(column) for column in columns])
        joined["by"] = {
            name: Factor.concat([part.by[name] for part in parts])
            for name in first.by
            if all(name in part.by for part in parts)
        }
        notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
        return replace(first, n=sum(part.n for part in parts), notes=notes, **joined)

    def note(self, *sentences: str) -> Cases:
        """Return the same cases with further notes."""
        return replace(self, notes=(*self.notes, *sentences))

    @cached_property
    def names(self) -> NDArray[np.str_]:
        """Ids as text; the row numbers where the cases have none."""
        if self.ids is None:
            return np.arange(self.n).astype(np.str_)
        return np.asarray(self.ids, dtype=np.str_)

    @property
    def labels(self) -> Int:
        """Labels, where there must be some: `y`, and an error without it."""
        if self.y is None:
            raise InputError("the cases have no labels")
        return self.y

    @property
    def readers(self) -> Int | None:
        """How many readers stand behind each case, (n,); None where that is unknown."""
        if self.votes is None:
            return self.n_raters
        return np.asarray(self.votes.sum(axis=1))

    @property
    def usual_readers(self) -> int | None:
        """Median number of readers behind the cases that have any; None if none has."""
        size = self.readers
        if size is None or not (size > 0).any():
            return None
        # The median: a few cases that many more readers saw must not move it.
        return int(np.median(size[size > 0]))

    def panel_sizes(self, usual: int | None) -> Int | None:
        """How many readers stand behind each label, `usual` where a case has none; None without it."""
        size = self.readers
        if usual is None:
            return None
        if size is None:
            return np.full(self.n, usual)
        return np.where(size > 0, size, usual)

    @property
    def group_codes(self) -> Int | None:
        """Number of each case's group, (n,); None without groups."""
        if self.groups is None:
            return None
        return self.groups.codes

    @property
    def stratum_names(self) -> tuple[str, ...]:
        """Names of the strata, easiest first; no "overall"."""
        if self.strata is None:
            return ()
        return self.strata.names

    def within(self, stratum: str) -> NDArray[np.intp] | slice:
        """Row numbers of a stratum's cases; all of them for "overall"."""
        if stratum == "overall":
            return slice(None)
        if self.strata is None or stratum not in self.strata.names:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(self.strata.codes == self.strata.names.index(stratum))

    def stratified(self) -> Cases:
        """Return the cases with strata by agreement, unless they have strata or none has two votes."""
        if self.strata is not None or self.votes is None:
            return self
        codes = stratum_codes(self.votes).astype(np.int64)
        if (codes < 0).all():
            return self
        return replace(self, strata=Factor(codes, STRATA), agreement=True)

    def with_strata(self, names: Sequence[str]) -> Cases:
        """Return the cases with some of their strata, in this order; cases of the others have none.

        Examples
        --------
        >>> cases = Cases(n=4, strata=Factor.of(["a", "b", "b", "c"])).with_strata(["a", "b"])
        >>> cases.strata.values.tolist()
        ['a', 'b', 'b', '']
        """
        if self.strata is None or self.strata.names == tuple(names):
            return self
        place = {name: code for code, name in enumerate(names)}
        codes = np.array([*(place.get(name, -1) for name in self.strata.names), -1])
        return replace(self, strata=Factor(codes[self.strata.codes], tuple(names)))

    def grouped_by(self, pattern: str) -> Cases:
        """Return the cases with groups taken from their ids, and note how many groups there are.

        Parameters
        ----------
        pattern
            A regular expression searched in every id. Its group named `group`, else its first group, is
            the case's group: ``^(P[0-9]+)_`` finds P07 in P07_slide2.

        Examples
        --------
        >>> cases = Cases(n=3, ids=np.array(["P1_a", "P1_b", "P2_a"])).grouped_by("^(P[0-9]+)_")
        >>> cases.groups.values.tolist(), cases.notes
        (['P1', 'P1', 'P2'], ("The ids name 2 groups of 3 cases (by '^(P[0-9]+)_': 'P1' in 'P1_a').",))
        """
        if self.groups is not None and self.groups.names:
            raise InputError(
                "the cases have groups already: leave out --group-regex (in Python group_regex), or the "
                "column of groups"
            )
        if self.ids is None:
            raise InputError(f"there are no ids, in which --group-regex '{pattern}' could look")
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise InputError(
                f"--group-regex '{pattern}' is not a regular expression: {error}. An example: '^(P[0-9]+)_'"
            ) from None
        if compiled.groups == 0:
            raise InputError(
                f"--group-regex '{pattern}' has no group: put parentheses around what names the patient, "
                "as in '^(P[0-9]+)_'"
            )
        which = compiled.groupindex.get("group", 1)
        values, unmatched = [], []
        for name in self.names.tolist():
            match = compiled.search(name)
            if match and match[which]:
                values.append(match[which])
            else:
                unmatched.append(name)
        if unmatched:
            raise InputError(
                f"--group-regex '{pattern}' finds no group in {len(unmatched):,} of {self.n:,} ids, "
                f"such as {unmatched[0]!r}: every case needs one"
            )
        groups = Factor.of(values)
        return replace(self, groups=groups).note(
            f"The ids name {len(groups.names):,} groups of {self.n:,} cases (by '{pattern}': "
            f"{values[0]!r} in {str(self.names[0])!r})."
        )

    def labelled(self) -> Cases:
        """Return the cases that have a label, and note how many have none."""
        if self.y is None:
            why = (
                "there are no labels: give them in the file, or by labels=FILE or votes=FILE "
                "(on the command line --labels FILE, --votes FILE)."
            )
            raise InputError(" ".join([why, *self.notes]))
        kept = self.y >= 0
        # The same object says that nothing was left out: predictions and features need no copy then.
        if kept.all():
            return self
        if not kept.any():
            raise InputError(" ".join(["no case has a label or a clear majority.", *self.notes]))
        return self.take(kept).note(left_out_note(int((~kept).sum()), self.n))


MAX_LEVELS = 200
"""Distinct values of a column whose levels are audited, at most."""

MAX_NUMBERS = 20
"""The same of a column of numbers."""


def check_levels(factor: Factor, name: str) -> Factor:
    """Return a column whose levels can be audited; fail where it has none, or is a measurement.

    Examples
    --------
    >>> check_levels(Factor.of([f"{age / 2}" for age in range(90)]), "age")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: column 'age' holds 90 different numbers, but only the levels of ...
    """
    count = len(factor.names)
    if not count:
        raise InputError(f"column {name!r} is empty, so it has no levels that could be audited")
    advice = (
        "put it into bands first, such as '<40', '40-60' and '>60', in a column of its own, and name that "
        "column instead"
    )
    if count > MAX_NUMBERS and all(map(_is_number, factor.names)):
        raise InputError(
            f"column {name!r} holds {count:,} different numbers, but only the levels of a column of names, "
            f"or of up to {MAX_NUMBERS} numbers, can be audited: {advice}"
        )
    if count > MAX_LEVELS:
        raise InputError(
            f"column {name!r} has {count:,} levels, such as {factor.names[0]!r}, at most {MAX_LEVELS} can be "
            "audited: name a column of fewer, such as a site or a scanner"
        )
    return factor


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def left_out_note(left_out: int, n: int) -> str:
    """Say how many of n cases were left out for want of a label."""
    return f"{left_out:,} of {n:,} cases without a label were left out."


def leakage_note(cases: Cases) -> str:
    """Say how many groups have cases both in train and in test; "" if none has.

    Examples
    --------
    >>> cases = Cases(n=3, groups=Factor.of(["a", "b", "a"]), split=Factor.of(["train", "test", "test"]))
    >>> leakage_note(cases)
    'train and test share 1 of 2 groups (1 of 2 test cases): ...'
    """
    if cases.groups is None or cases.split is None:
        return ""
    codes, part = cases.groups.codes, cases.split.values
    # A case of no group shares its patient with nobody.
    known = codes >= 0
    seen = codes[known & (part == "train")]
    tested = codes[known & (part == "test")]
    shared = np.intersect1d(seen, tested)
    if len(shared) == 0:
        return ""
    total, cut = len(np.unique(codes[known])), int(np.isin(tested, shared).sum())
    return (
        f"train and test share {len(shared):,} of {total:,} groups "
        f"({cut:,} of {int((part == 'test').sum()):,} test cases): what was learnt from them makes "
        "scores on test too good. Split by group, or leave the split out and one is drawn that keeps groups "
        "whole; --allow-leakage (in Python allow_leakage=True) silences this."
    )


@dataclass(frozen=True, eq=False)
class Answers:
    """What one method answers on some cases.

    Attributes
    ----------
    p
        Probability of the label: (n,) of the second class, or (n, C).
    p_reader
        Probability that one reader votes so, in the same form; None if the method gives none.
    rho
        Correlation of two readers' votes on a case in the law of votes around `p_reader`
        (`scalecal.panel`); 0: votes are independent given the probability.
    p_split
        (n,) predicted difficulty: the probability that a case's readers split, by whatever model, but not
        from these votes; else None.
    rows
        Row numbers of the cases that were answered; None: all cases, in their order.

    Examples
    --------
    >>> answers = Answers(np.array([0.2, 0.9]), p_reader=np.array([0.3, 0.8]))
    >>> answers.take(np.array([False, True])).vote_p.tolist()
    [0.8]
    """

    p: Float
    p_reader: Float | None = None
    rho: float = 0.0
    p_split: Float | None = None
    rows: Int | None = None

    def __post_init__(self) -> None:
        for name, values in _columns(self).items():
            if len(values) != len(self.p):
                raise InputError(f"{name} has {len(values)} rows, but p has {len(self.p)}")

    def __len__(self) -> int:
        return len(self.p)

    @property
    def index(self) -> Int:
        """Row numbers of the cases that were answered."""
        if self.rows is None:
            return np.arange(len(self.p))
        return self.rows

    @property
    def vote_p(self) -> Float:
        """What votes judge: `p_reader`, or `p` if there is none."""
        if self.p_reader is None:
            return self.p
        return self.p_reader

    def take(self, keep: Rows) -> Answers:
        """Return some of the answers."""
        cut = {name: values[keep] for name, values in _columns(self).items()}
        return replace(self, **cut)

    def aligned(self) -> bool:
        """Whether the i-th answer is of the i-th case."""
        return self.rows is None or np.array_equal(self.rows, np.arange(len(self.p)))


ALONE = ("model", 0)
"""Method and seed of answers that came without a name."""

BASELINE = "none"
"""Name of the method that leaves a probe, or predictions, as they are."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Cases, and the answers of one or several methods on them.

    Attributes
    ----------
    cases
        All cases that some method answered.
    answers
        (method, seed) -> answers. Test sets may differ between seeds.
    dataset, encoder
        Names of the data and of the encoder behind the embeddings, if there are any.
    meta
        What `run.json` says.
    sources
        SHA-256 of each file they were read from, by file name.
    prevalence
        Share of positives in the population that numbers are of; None: as in the cases.
    threshold
        Probability from which a case of two classes is called positive.

    Examples
    --------
    >>> predictions = Predictions.single(Cases(n=2, y=np.array([0, -1])), np.array([0.1, 0.6]))
    >>> predictions.labelled().only.p.tolist()
    [0.1]
    """

    cases: Cases
    answers: Mapping[tuple[str, int], Answers]
    dataset: str = ""
    encoder: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    prevalence: float | None = None
    threshold: float = THRESHOLD

    def __post_init__(self) -> None:
        # Answers that are taken apart must still know their cases.
        numbered = {k: replace(own, rows=own.index) for k, own in self.answers.items()}
        object.__setattr__(self, "answers", numbered)

    @classmethod
    def single(cls, cases: Cases, p: Float, p_reader: Float | None = None, **more: Any) -> Self:
        """Return one method's answers on all cases; `more` is the rest of `Answers`."""
        if len(p) != cases.n:
            raise InputError(f"p has {len(p)} rows, but there are {cases.n} cases")
        return cls(cases, {ALONE: Answers(p, p_reader, **more)})

    def __len__(self) -> int:
        return self.cases.n

    def messages(self) -> AbstractContextManager[None]:
        """Begin messages raised inside with the files they were read from, if there are any."""
        if not self.sources:
            return nullcontext()
        return in_file(" and ".join(self.sources))

    @property
    def name(self) -> str:
        """``dataset/encoder``."""
        return f"{self.dataset}/{self.encoder}"

    @property
    def y(self) -> Int:
        """Labels of all cases."""
        return self.cases.labels

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in the order they came."""
        return list(dict.fromkeys(method for method, _ in self.answers))

    @property
    def baseline(self) -> str:
        """What the others are compared with: the uncalibrated probe, or the first method."""
        if BASELINE in self.methods:
            return BASELINE
        return self.methods[0]

    def seeds(self, method: str) -> list[int]:
        """Return the seeds a method was run with, ascending."""
        return sorted(seed for name, seed in self.answers if name == method)

    def first(self, method: str) -> Answers:
        """Return a method's answers of its first seed: those that are audited."""
        return self.answers[method, self.seeds(method)[0]]

    @property
    def only(self) -> Answers:
        """The answers of the first method, if there is no other."""
        return self.first(self.methods[0])

    @property
    def p(self) -> Float:
        """Probabilities of the label, of the first method."""
        return self.only.p

    @property
    def p_reader(self) -> Float | None:
        """Probabilities of a reader's vote, of the first method."""
        return self.only.p_reader

    @property
    def rho(self) -> float:
        """Correlation of two votes around `p_reader`, of the first method."""
        return self.only.rho

    def of(self, method: str, seed: int | None = None) -> Predictions:
        """Return one method's answers with their cases; of the first seed, unless named."""
        if seed is None:
            seed = self.seeds(method)[0]
        own = self.answers[method, seed]
        cases = self.cases
        if len(own) != cases.n or not own.aligned():
            cases = cases.take(own.index)
        if cases.groups is not None:
            # In the order of their names: resampling is the same before and after the disk.
            cases = replace(cases, groups=Factor.of(cases.groups.values))
        return replace(self, cases=cases, answers={(method, seed): replace(own, rows=None)})

    def with_answers(self, more: Mapping[tuple[str, int], Answers]) -> Predictions:
        """Return the same with further answers beside its own."""
        return replace(self, answers={**self.answers, **more})

    def take(self, rows: Rows) -> Predictions:
        """Return the answers on some of the cases, in this order."""
        index = np.arange(self.cases.n)[rows]
        place = np.full(self.cases.n, -1)
        place[index] = np.arange(len(index))
        answers = {}
        for key, own in self.answers.items():
            # Answers to all cases may come in a new order; others keep theirs.
            if len(own) == self.cases.n and own.aligned():
                answers[key] = replace(own.take(index), rows=None)
            else:
                moved = place[own.index]
                answers[key] = replace(own.take(moved >= 0), rows=moved[moved >= 0])
        return replace(self, cases=self.cases.take(index), answers=answers)

    def labelled(self) -> Predictions:
        """Return the answers on the cases that have a label; the same object if all have."""
        cases = self.cases.labelled()
        if cases is self.cases:
            return self
        return replace(self.take(self.y >= 0), cases=cases)

    @cached_property
    def stratum_names(self) -> tuple[str, ...]:
        """Names of the strata that have cases, easiest first; no "overall"."""
        if self.cases.strata is None:
            return ()
        present = np.unique(self.cases.strata.codes)
        return tuple(self.cases.strata.names[code] for code in present if code >= 0)

    def inside(self, index: Int, stratum: str) -> NDArray[np.intp]:
        """Which of the cases at `index` belong to a stratum; all of them for "overall"."""
        belongs = np.zeros(self.cases.n, dtype=bool)
        belongs[self.cases.within(stratum)] = True
        return np.flatnonzero(belongs[index])

    @property
    def variants(self) -> Mapping[str, str]:
        """Method -> the method it is another setting of, if it is one: the points of a sweep."""
        return dict(self.meta.get("variants") or {})

    @property
    def calibration(self) -> Mapping[str, Any]:
        """What `scalecal calibrate` did: `after`, the method set beside the baseline, and more; or empty."""
        return dict(self.meta.get("calibration") or {})

    @property
    def shift(self) -> tuple[str, str] | None:
        """Where the model was trained and tested, if these differ: for example ("40X", "400X")."""
        shift = self.meta.get("dataset", {}).get("shift")
        if not shift:
            return None
        return str(shift["train"]), str(shift["test"])


@dataclass(frozen=True, eq=False)
class Features:
    """Embeddings of n cases, with the record of these cases.

    Attributes
    ----------
    X
        (n, d) embeddings, float16, 32 or 64: an array, a memory map, or rows in several files.
    cases
        Ids, labels, votes, groups and split of the rows of `X`.
    encoder, dataset
        Names of the encoder and the data set, if the source names them.
    fingerprint
        SHA-256 of the file, of the folder's manifest, or of the arrays (`array_hash`).
    images
        The images' folder on this machine, if it is known.
    extra
        Further columns by name, one row per case.

    Examples
    --------
    >>> data = Features(np.eye(3), Cases(n=3, classes=("0", "1"), y=np.array([0, 1, -1])))
    >>> data.take([0, 1]).y.tolist(), len(data.labelled())
    ([0, 1], 2)
    """

    X: Any
    cases: Cases
    encoder: str | None = None
    dataset: str | None = None
    fingerprint: str = ""
    images: str | None = None
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.X.shape[0] != self.cases.n:
            raise InputError(f"X has {self.X.shape[0]} rows, but there are {self.cases.n} cases")

    def __len__(self) -> int:
        return self.cases.n

    @property
    def ids(self) -> Any:
        """(n,) names of the cases."""
        return self.cases.ids

    @property
    def y(self) -> Int | None:
        """(n,) class numbers, -1 if a case has no label."""
        return self.cases.y

    @property
    def votes(self) -> Int | None:
        """Votes as functions take them beside `n_raters`: (n,) for the second of two classes, or (n, C)."""
        votes = self.cases.votes
        if votes is not None and votes.shape[1] == 2:
            return votes[:, 1]
        return votes

    @property
    def n_raters(self) -> Int | None:
        """(n,) readers behind each case."""
        return self.cases.readers

    @property
    def groups(self) -> NDArray[np.str_] | None:
        """(n,) names of the groups, such as patients."""
        return None if self.cases.groups is None else self.cases.groups.values

    @property
    def split(self) -> NDArray[np.str_] | None:
        """(n,) "train", "val" or "test"."""
        return None if self.cases.split is None else self.cases.split.values

    def take(self, rows: Rows | Sequence[int]) -> Self:
        """Return some of the cases (row numbers or a mask), every column alike."""
        index = np.arange(len(self))[rows]
        extra = {name: values[index] for name, values in self.extra.items()}
        return replace(self, X=self.X[index], cases=self.cases.take(index), extra=extra)

    def with_cases(self, **columns: Any) -> Self:
        """Return the same embeddings with other columns of cases, such as ``split=None``."""
        return replace(self, cases=replace(self.cases, **columns))

    def labelled(self) -> Self:
        """Return the cases that have a label; the same object if all have."""
        cases = self.cases.labelled()
        if cases is self.cases:
            return self
        return replace(self.take(self.cases.labels >= 0), cases=cases)


def array_hash(X: NDArray[Any], votes: NDArray[Any] | None = None) -> str:
    """Return the SHA-256 of embeddings in memory and of the votes beside them."""
    # Rows of a view and of its copy must hash alike.
    digest = hashlib.sha256(np.ascontiguousarray(X).data)
    if votes is not None:
        digest.update(np.ascontiguousarray(votes).data)
    return digest.hexdigest()
