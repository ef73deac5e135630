"""What is known of the cases of a table: labels, readers' votes, and how the labels came about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scalecal.checks import InputError, Int, check_choice, rows
from scalecal.io.classes import code_labels
from scalecal.io.columns import NamedColumns, about, some
from scalecal.io.votes_file import align_votes, panel_in, read_votes
from scalecal.votes import TIES, Ties, majority

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Tally", "Truth", "labels_and_votes"]

TIES_DONE = {
    "first": "given the first of the tied classes",
    "last": "given the last of the tied classes",
    "random": "given one of the tied classes at random",
}


@dataclass(frozen=True)
class Tally:
    """How labels came about, in numbers of cases; tallies of parts of a table add up.

    Attributes
    ----------
    n
        All cases.
    against
        Labels that are not the clear majority of the votes beside them.
    tied
        Tied votes, where there are labels too.
    decided, open_ones
        Cases with votes but no label: all of them, and those of them that are tied.
    blank
        Cases with neither label nor votes.
    """

    n: int = 0
    against: int = 0
    tied: int = 0
    decided: int = 0
    open_ones: int = 0
    blank: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def notes(self, ties: Ties) -> tuple[str, ...]:
        """Say it in plain sentences; `ties` is what was done with a tied vote.

        Examples
        --------
        >>> Tally(n=9, decided=9, open_ones=2).notes("drop")
        ("The label is the readers' majority in 7 of 9 cases; in 2 they are tied and there is none.",)
        """
        notes = []
        if self.against:
            notes.append(
                f"In {self.against} of {self.n} cases the label is not the readers' majority."
            )
        if self.tied:
            notes.append(f"The votes are tied in {self.tied} of {self.n} cases.")
        if self.decided:
            dropped = self.open_ones if ties == "drop" else 0
            note = (
                f"The label is the readers' majority in {self.decided - dropped} of {self.n} cases"
            )
            if dropped:
                note += f"; in {dropped} they are tied and there is none"
            elif self.open_ones:
                note += f", {self.open_ones} of them tied and {TIES_DONE[ties]}"
            notes.append(note + ".")
        if self.blank:
            notes.append(f"{self.blank} of {self.n} cases have neither label nor votes.")
        return tuple(notes)


@dataclass(frozen=True)
class Truth:
    """What is known about the cases: labels (-1: none, leave the case out), votes, classes.

    `tally` counts what the notes tell, for adding up the parts of a table.
    """

    y: Int
    counts: Int | None
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    tally: Tally = Tally()


def labels_and_votes(
    table: NamedColumns,
    ids: pd.api.extensions.ExtensionArray | None,
    *,
    votes: str | Path | None,
    columns: Mapping[str, str] | None,
    choose: Callable[[Mapping[str, Sequence[str]]], tuple[str, ...]],
    n_raters: int | None,
    ties: Ties,
    seed: int,
    some_unlabelled: bool = False,
    piece: bool = False,
) -> Truth:
    """Labels and votes of the cases of a table, the votes perhaps from a second file.

    Where a case has no label, its readers' majority is its label. `choose` is given the classes that
    labels and votes name and returns all classes in order. A case with neither label nor votes is an
    error where there are no votes at all, unless `some_unlabelled`. A `piece` of a table may have
    neither in any row.
    """
    check_choice(ties, TIES, "ties")
    if votes is None:
        panel, source = panel_in(table, n_raters=n_raters), table.file
    else:
        if ids is None:
            table.need("id", "to join the votes")
        panel, source = read_votes(votes, columns=columns, n_raters=n_raters), Path(votes).name
    if n_raters is not None and panel is None:
        raise table.missing(table.names["votes"], "n_raters was given, but there are no votes")
    codes, names = table.tokens("label") if table.has("label") else (None, ())
    if codes is None and panel is None:
        raise table.missing(
            table.names["label"], "or votes, from which labels follow", role="label"
        )
    speakers = {
        f"column {table.names['label']!r}": names,
        f"the votes in {source}": (panel.classes if panel and panel.classes else ()),
    }
    with about(table.file):
        classes = choose(speakers)
        given = None if codes is None else code_labels(codes, names, classes, table.names["label"])
    counts: Int | None = None
    notes: list[str] = []
    if panel is not None:
        counts, notes = align_votes(panel, ids, classes, (table.file, source))
    if counts is None and given is not None and (given < 0).any() and not some_unlabelled:
        raise InputError(
            f"{table.file}: column {table.names['label']!r} is empty at {rows(given < 0)} and there "
            "are no votes to take a majority of: fill the labels in or leave these cases out"
        )
    if counts is None:
        assert given is not None
        return Truth(given, None, classes, tuple(notes))
    # Rows of a message are those of the table, so it names ids where the votes are elsewhere.
    joined = None if votes is None else ids
    y, tally = _labels(given, counts, source, ties, seed, joined)
    if tally.blank == tally.n and not piece:
        raise InputError(f"{source}: no case has a vote, so there are no labels")
    return Truth(y, counts, classes, (*notes, *tally.notes(ties)), tally)


def _labels(
    given: Int | None,
    counts: Int,
    source: str,
    ties: Ties,
    seed: int,
    ids: pd.api.extensions.ExtensionArray | None,
) -> tuple[Int, Tally]:
    """Labels, the readers' majority where none is given, and how they came about."""
    n = len(counts)
    unlabelled = np.ones(n, dtype=bool) if given is None else given < 0
    # Ties matter only where the majority is the label; elsewhere they are merely counted.
    voted = majority(counts, ties="drop" if ties == "error" else ties, seed=seed)
    open_ones = voted.tied & unlabelled
    if ties == "error" and open_ones.any():
        if ids is not None:
            raise InputError(
                f"{source}: {int(open_ones.sum())} of {n} cases are tied "
                f"(ids {some(ids[open_ones], most=5)}). "
                "Choose what a tie means: ties= (--ties) 'first', 'last', 'random' or 'drop'"
            )
        with about(source):
            majority(counts * unlabelled[:, None], ties=ties)
    y = np.where(unlabelled, voted.labels, -1 if given is None else given).astype(np.int64)
    clear = ~unlabelled & ~voted.tied & ~voted.empty
    tally = Tally(
        n=n,
        against=0 if given is None else int((clear & (given != voted.labels)).sum()),
        tied=0 if given is None else int(voted.tied.sum()),
        decided=int((unlabelled & ~voted.empty).sum()),
        open_ones=int(open_ones.sum()),
        blank=int((unlabelled & voted.empty).sum()),
    )
    return y, tally
