"""Readers' votes from a file: one row per vote, or one row per case with counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scalecal.checks import InputError, Int, check_counts, check_positive_int, rows
from scalecal.io.columns import NamedColumns, about, as_ids, open_columns, some
from scalecal.votes import from_long

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["VOTE_ROLES", "Panel", "align_votes", "panel_in", "read_votes"]

VOTE_ROLES = ("id", "rater", "label", "votes", "n_raters")


@dataclass(frozen=True)
class Panel:
    """Votes as a file gives them: `counts[i, c]` readers gave case `ids[i]` the class `classes[c]`.

    `classes` is None where only the votes for the positive class were counted: the two columns are
    then the votes against it and for it. `ids` is None where the votes stand in the rows of the cases.
    """

    ids: pd.api.extensions.ExtensionArray | None
    counts: Int
    classes: tuple[str, ...] | None


def read_votes(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    n_raters: int | None = None,
) -> Panel:
    """Read votes in long form or with counts.

    Long: `id, rater, label`, one row per vote; an empty label is a reader who did not vote on the
    case. Counts: `id` with `votes` and `n_raters`, or with a column `votes_<class>` for each class.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "votes.csv")
    ...     _ = path.write_text("id,rater,label\\na,r1,HP\\na,r2,SSA\\nb,r1,SSA\\n")
    ...     panel = read_votes(path)
    >>> panel.classes, panel.counts.tolist()
    (('HP', 'SSA'), [[1, 1], [0, 1]])
    """
    table = open_columns(path, columns, VOTE_ROLES)
    table.need("id", "the case that a vote is on")
    if not table.has("rater"):
        panel = panel_in(table, n_raters=n_raters)
        if panel is None:
            raise table.missing(
                table.names["rater"],
                "votes are rows of id, rater, label, or columns votes and n_raters, or votes_<class>",
            )
        return Panel(table.ids(), panel.counts, panel.classes)
    table.need("label", "the class a reader chose")
    if n_raters is not None:
        raise InputError(f"{table.file} has one row per vote, so n_raters must not be given")
    case, rater, label = (table.texts(role) for role in ("id", "rater", "label"))
    for role, values in (("id", case), ("rater", rater)):
        if (values == "").any():
            raise InputError(
                f"{table.file}: column {table.names[role]!r} is empty at {rows(values == '')}"
            )
    with about(table.file):
        found = from_long(case, rater, label)
    classes = tuple(name for name in found.classes if name is not None)
    return Panel(as_ids(found.cases), found.counts[:, : len(classes)], classes)


def panel_in(table: NamedColumns, *, n_raters: int | None = None) -> Panel | None:
    """Votes in columns of a table with one row per case; None where there are no such columns.

    A case whose votes are all missing was seen by no reader: its counts are zero.
    """
    name = table.names["votes"]
    spread = table.spread("votes")
    if not table.has("votes") and not spread:
        return None
    if n_raters is not None and table.has("n_raters"):
        raise InputError(
            f"{table.file} has a column {table.names['n_raters']!r}, so n_raters must not be given"
        )
    total = table.numbers("n_raters") if table.has("n_raters") else None
    if table.has("votes"):
        votes = table.numbers("votes")
        if n_raters is not None:
            total = np.full(len(votes), float(check_positive_int(n_raters, "n_raters")))
        if total is None:
            raise table.missing(
                table.names["n_raters"], f"the number of readers behind {name!r}; or give n_raters"
            )
        absent = np.asarray(np.isnan(votes))
        if (np.isnan(total) & ~absent).any():
            raise InputError(
                f"{table.file}: column {table.names['n_raters']!r} is empty at "
                f"{rows(np.isnan(total) & ~absent)}, where there are votes"
            )
        classes = None
    else:
        if n_raters is not None:
            raise InputError(
                f"{table.file} counts votes per class ({', '.join(spread.values())}), "
                "so n_raters must not be given"
            )
        votes = np.column_stack([table.numbers("votes", column) for column in spread.values()])
        gaps = np.isnan(votes)
        absent = np.asarray(gaps.all(axis=1))
        if (gaps.any(axis=1) & ~absent).any():
            raise InputError(
                f"{table.file}: some but not all of {', '.join(spread.values())} are empty at "
                f"{rows(gaps.any(axis=1) & ~absent)}: write 0 where nobody chose a class"
            )
        name = f"{name}_<class>"
        classes = tuple(spread)
        if len(classes) == 1:
            raise InputError(
                f"{table.file}: {next(iter(spread.values()))!r} is the only column of votes per "
                f"class: give one for every class, or {table.names['votes']!r} with n_raters"
            )
    votes = np.where(absent if votes.ndim == 1 else absent[:, None], 0.0, votes)
    if total is not None:
        total = np.where(absent, 0.0, total)
    with about(table.file):
        counts = check_counts(votes, total, name=f"column {name!r}")
    return Panel(None, counts, classes)


def align_votes(
    panel: Panel,
    ids: pd.api.extensions.ExtensionArray | None,
    classes: Sequence[str],
    files: tuple[str, str],
) -> tuple[Int, list[str]]:
    """Put a panel's counts in the order of `ids` and `classes`; say which ids had no partner.

    Parameters
    ----------
    panel
        The votes.
    ids
        Ids of the cases; may be None where the panel has none either.
    classes
        The classes; with two of them the second is positive.
    files
        Names of the cases' file and the votes' file, for messages.
    """
    counts = panel.counts
    if panel.classes is None:
        if len(classes) != 2:
            raise InputError(
                f"{files[1]} counts votes for one class, but there are {len(classes)} classes: "
                "give columns votes_<class>"
            )
    else:
        odd = [name for name in panel.classes if name not in classes]
        if odd:
            raise InputError(
                f"{files[1]} has votes for {some(odd)}, but the classes are {some(classes, most=8)}"
            )
        counts = np.zeros((len(panel.counts), len(classes)), dtype=np.int64)
        counts[:, [classes.index(name) for name in panel.classes]] = panel.counts
    if panel.ids is None:
        return counts, []
    assert ids is not None
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted, offered = pa.array(ids), pa.array(panel.ids)
    place = pc.index_in(wanted, value_set=offered).fill_null(-1).to_numpy()
    lonely = np.flatnonzero(place < 0)
    if len(lonely) == len(ids):
        raise InputError(
            f"no id of {files[0]} is in {files[1]}: {some(ids)} against {some(panel.ids)}"
        )
    unused = ~np.isin(np.arange(len(panel.ids)), place)
    notes = []
    if len(lonely):
        notes.append(
            f"{len(lonely)} of {len(ids)} cases have no votes in {files[1]} ({some(ids[lonely])})."
        )
    if unused.any():
        notes.append(
            f"{int(unused.sum())} of {len(panel.ids)} cases in {files[1]} are not in {files[0]} "
            f"({some(panel.ids[unused])}) and were not used."
        )
    padded = np.vstack([counts, np.zeros((1, counts.shape[1]), dtype=np.int64)])
    return padded[place], notes
