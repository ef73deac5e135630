"""A model's predictions with labels and readers' votes, from one file or two, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import SUM_TOLERANCE, Float, InputError, Int, check_probs, rows
from scalecal.io.classes import resolve_classes
from scalecal.io.columns import NamedColumns, about, check_named, open_columns, some
from scalecal.io.store import file_hash
from scalecal.io.truth import labels_and_votes
from scalecal.votes import Ties

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "PREDICTION_ROLES",
    "Predictions",
    "probabilities_in",
    "read_predictions",
    "rounding_note",
]

PREDICTION_ROLES = ("id", "p", "label", "votes", "n_raters", "group", "stratum", "split")

ROUNDED = 0.01
"""How far from 1 the probabilities of a row of a file may sum, as rounding to two or more decimals
leaves them; they are then divided by their sum."""


@dataclass(frozen=True)
class Predictions:
    """Predictions on n cases, ready for `scalecal.audit`.

    Attributes
    ----------
    ids
        Names of the cases, text in Arrow memory; None where the file has no id column.
    probs
        (n,) probabilities of the positive class, or (n, C) where there are more than two classes.
    y
        (n,) class numbers.
    counts
        (n, C) readers per class, zeros where nobody voted; None without votes.
    groups
        (n,) group numbers (patient, slide) into `group_names`; None without groups.
    group_names
        Names of the groups.
    stratum
        (n,) names of strata given by the file, "" for none; None without such a column.
    classes
        Names of the classes in the order of `y`, `probs` and `counts`.
    notes
        What a reader of the result should know: plain sentences.
    source_hash
        SHA-256 of each file read, by file name.
    """

    ids: pd.api.extensions.ExtensionArray | None
    probs: Float
    y: Int
    counts: Int | None
    groups: Int | None
    group_names: tuple[str, ...]
    stratum: NDArray[np.object_] | None
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    source_hash: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.y)


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
) -> Predictions:
    """Read predictions and, where they are, labels, votes, groups and strata.

    Rows in messages count from 0, below the header. Columns `p_<class>` whose rows sum to 1 within
    0.01, as rounded numbers do, are divided by their sum, and a note says so.

    Parameters
    ----------
    path
        CSV, TSV or Parquet with `id`, `p` (or a column `p_<class>` for each class), `label` and / or
        `votes` + `n_raters` (or `votes_<class>`), and optionally `group` and `stratum`.
    votes
        A second file with the votes, joined by `id`: rows `id, rater, label`, or columns as above.
    columns
        Names of columns that are not the usual ones: role -> name, e.g. ``{"p": "score"}``.
    positive
        The class that `p` is the probability of, where the classes are not 0 and 1.
    n_raters
        Number of readers of every case, where no column tells it.
    ties
        What a tied vote means where the label is the readers' majority (`scalecal.votes.majority`);
        with "drop" tied cases are left out.
    seed
        For ``ties="random"``.
    split
        Keep only the cases that the column `split` marks so, such as ``"test"``. By default all are
        kept, and a note tells of those marked ``"train"``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "p.csv")
    ...     _ = path.write_text("id,p,votes,n_raters\\na,0.2,1,7\\nb,0.9,6,7\\n")
    ...     found = read_predictions(path)
    >>> found.y.tolist(), found.counts.tolist()
    ([0, 1], [[6, 1], [1, 6]])
    """
    paths = [Path(path)] if votes is None else [Path(path), Path(votes)]
    roles = PREDICTION_ROLES if votes is None else (*PREDICTION_ROLES, "rater")
    check_named(columns, roles, *paths)
    own = (
        PREDICTION_ROLES
        if votes is None
        else tuple(role for role in PREDICTION_ROLES if role not in ("votes", "n_raters"))
    )
    table = open_columns(path, columns, own)
    ids = table.ids() if table.has("id") else None
    probs, named, off = probabilities_in(table, ids)
    truth = labels_and_votes(
        table,
        ids,
        votes=votes,
        columns=columns,
        choose=partial(resolve_classes, columns=named, positive=positive),
        n_raters=n_raters,
        ties=ties,
        seed=seed,
    )
    if named is not None:
        order = [named.index(name) for name in truth.classes]
        probs = np.ascontiguousarray(probs[:, order if len(order) > 2 else order[1]])
    groups, group_names = table.tokens("group") if table.has("group") else (None, ())
    if groups is not None and (groups < 0).any():
        raise InputError(
            f"{table.file}: column {table.names['group']!r} is empty at {rows(groups < 0)}: "
            "every case needs a group"
        )
    found = Predictions(
        ids=ids,
        probs=probs,
        y=truth.y,
        counts=truth.counts,
        groups=groups,
        group_names=group_names,
        stratum=table.texts("stratum") if table.has("stratum") else None,
        classes=truth.classes,
        notes=(*rounding_note(len(off), off.max(initial=0.0), len(probs)), *truth.notes),
        source_hash={p.name: file_hash(p) for p in paths},
    )
    left_out = int((truth.y < 0).sum())
    if left_out:
        note = f"{left_out} of {len(found)} cases without a label were left out."
        found = replace(found, notes=(*found.notes, note))
    part, told = _part(table, split)
    return _keep(replace(found, notes=(*found.notes, *told)), (truth.y >= 0) & part)


def _part(table: NamedColumns, split: str | None) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Which cases are of the split asked for, and what to say of it."""
    everything = np.ones(len(table), dtype=bool)
    if split is None and not table.has("split"):
        return everything, ()
    table.need("split", f"to keep the cases marked {split!r}")
    marks = table.texts("split")
    if split is not None:
        if split not in marks:
            raise InputError(
                f"{table.file}: no case is marked {split!r} in column {table.names['split']!r}; "
                f"found {some(np.unique(marks.astype(str)))}"
            )
        kept = np.asarray(marks == split)
        return kept, (
            f"Only the {int(kept.sum())} of {len(kept)} cases marked {split} are audited.",
        )
    seen = int((marks == "train").sum())
    if not seen:
        return everything, ()
    return everything, (
        f"{seen} of {len(marks)} cases are marked train: a model that has learnt from them looks better "
        "on them than it is. With --split test (in Python split='test') the others are left out.",
    )


def probabilities_in(
    table: NamedColumns, ids: pd.api.extensions.ExtensionArray | None
) -> tuple[Float, tuple[str, ...] | None, Float]:
    """Return (n,) probabilities and None, or (n, C) and the classes of the columns.

    The third value tells of the rows that did not sum to 1 for rounding and were divided by their
    sum: how far off each of them was.
    """
    name = table.names["p"]
    spread = table.spread("p")
    if table.has("p"):
        probs, named = table.numbers("p"), None
    elif len(spread) >= 2:
        named = tuple(spread)
        if all(label.isdigit() for label in named):
            named = tuple(sorted(named, key=int))
        probs = np.column_stack([table.numbers("p", spread[label]) for label in named])
        name = f"{name}_<class>"
    elif spread:
        raise InputError(
            f"{table.file}: {next(iter(spread.values()))!r} is the only column of probabilities: "
            f"call it {name!r}, or give one for every class"
        )
    else:
        raise table.missing(name, "the predicted probability", role="p")
    absent = np.asarray(np.isnan(probs).reshape(len(probs), -1).any(axis=1))
    if absent.any():
        cases = "" if ids is None else f" (ids {some(ids[absent])})"
        raise InputError(f"{table.file}: column {name!r} is missing at {rows(absent)}{cases}")
    probs, off = _unrounded(probs)
    with about(table.file):
        return check_probs(probs, f"column {name!r}"), named, off


def _unrounded(probs: Float) -> tuple[Float, Float]:
    """Divide rows that sum to nearly 1 by their sum; also return how far off those rows were."""
    # Logits and percentages are left alone, for `check_probs` to refuse.
    if probs.ndim == 1 or probs.min(initial=0.0) < 0.0 or probs.max(initial=0.0) > 1.0:
        return probs, np.zeros(0)
    total = probs.sum(axis=1)
    distance = np.abs(total - 1.0)
    off = (distance > SUM_TOLERANCE) & (distance < ROUNDED + 1e-9)
    if off.any():
        probs[off] /= total[off, None]
    return probs, distance[off]


def rounding_note(off: int, largest: float, n: int) -> tuple[str, ...]:
    """Say how many rows were divided by their sum and how far off they were; empty for none.

    Examples
    --------
    >>> rounding_note(3, 0.001, 10)[0]
    'In 3 of 10 rows the probabilities did not sum to 1 (off by up to 0.001): divided by their sum.'
    """
    if not off:
        return ()
    return (
        f"In {off} of {n} rows the probabilities did not sum to 1 (off by up to {largest:.2g}): "
        "divided by their sum.",
    )


def _keep(found: Predictions, kept: NDArray[np.bool_]) -> Predictions:
    """Leave out cases; the same object where none is."""
    if kept.all():
        return found
    if not kept.any():
        raise InputError("every case was left out: " + " ".join(found.notes))

    def part(values: Any) -> Any:
        return None if values is None else values[kept]

    return replace(
        found,
        ids=part(found.ids),
        probs=part(found.probs),
        y=part(found.y),
        counts=part(found.counts),
        groups=part(found.groups),
        stratum=part(found.stratum),
    )
