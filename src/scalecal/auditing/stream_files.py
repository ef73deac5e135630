"""The streaming audit of a file of predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from scalecal.auditing.audits import Audit
from scalecal.auditing.stream import StreamingAudit
from scalecal.checks import InputError
from scalecal.io.batches import iterate_columns
from scalecal.io.classes import resolve_classes
from scalecal.io.columns import NamedColumns, about, check_named
from scalecal.io.predictions import probabilities_in, rounding_note
from scalecal.io.tables import column_names
from scalecal.io.truth import Tally, labels_and_votes
from scalecal.votes import Ties

__all__ = ["stream_file"]

ROLES = ("p", "label", "votes", "n_raters", "stratum")

UNUSED = {
    "id": "The ids in the file are not used: a case that is there twice counts twice.",
    "group": "The groups in the file are not used: a stream does not know them.",
    "split": "The split in the file is not used: cases marked train, if any, are audited too.",
}
"""Columns that a whole audit uses and a stream does not, and what the reader is told of it."""


@dataclass
class _Told:
    """What the notes say of all pieces so far."""

    rows: int = 0
    left_out: int = 0
    off: int = 0
    largest: float = 0.0
    tally: Tally = field(default_factory=Tally)


def stream_file(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    positive: str | None = None,
    n_raters: int | None = None,
    ties: Ties = "error",
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
    on_batch: Callable[[int], object] | None = None,
) -> Audit:
    """Audit a CSV, TSV or Parquet file of any length in one pass and flat memory.

    Parameters
    ----------
    path, columns, positive, n_raters, ties
        As `scalecal.io.read_predictions`. Votes stand in the same file. The columns `id`, `group`
        and `split` are not used, so cases are not checked for appearing twice. Cases without label
        and votes are left out.
    n_bins, n_resamples, seed
        As `StreamingAudit`.
    on_batch
        Called with the number of cases of each piece once it is done.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "p.csv")
    ...     _ = file.write_text("p,label\\n" + "0.25,0\\n0.75,1\\n" * 50)
    ...     result = stream_file(file)
    >>> result["overall"]["n"], result["overall"]["ece"]
    (100, 0.25)
    """
    path = Path(path)
    check_named(columns, (*ROLES, *UNUSED), path)
    stream = StreamingAudit(n_bins=n_bins, n_resamples=n_resamples, seed=seed)
    told = _Told()
    for table in iterate_columns(path, columns, ROLES):
        # Messages count rows from the start of the piece.
        piece = f"{path.name} from row {told.rows} on" if told.rows else ""
        with about(piece) if piece else nullcontext():
            _update(stream, table, told, columns, positive, n_raters, ties, seed)
        if on_batch is not None:
            on_batch(len(table))
    if stream.n == 0:
        raise InputError(f"{path} has no case with a label")
    result = stream.finish()
    result.notes.extend(rounding_note(told.off, told.largest, told.rows))
    result.notes.extend(told.tally.notes(ties))
    if told.left_out:
        result.notes.append(f"{told.left_out:,} cases without a label were left out.")
    for role, note in UNUSED.items():
        if (columns or {}).get(role, role) in column_names(path):
            result.notes.append(note)
    result.meta["file"] = path.name
    return result


def _update(
    stream: StreamingAudit,
    table: NamedColumns,
    told: _Told,
    columns: Mapping[str, str] | None,
    positive: str | None,
    n_raters: int | None,
    ties: Ties,
    seed: int,
) -> None:
    """Take in one piece of the file, and count in `told` what the notes will say."""
    probs, named, off = probabilities_in(table, None)
    truth = labels_and_votes(
        table,
        None,
        votes=None,
        columns=columns,
        choose=partial(resolve_classes, columns=named, positive=positive),
        n_raters=n_raters,
        ties=ties,
        seed=seed,
        some_unlabelled=True,
        piece=True,
    )
    if named is not None:
        order = [named.index(name) for name in truth.classes]
        probs = np.ascontiguousarray(probs[:, order if len(order) > 2 else order[1]])
    kept = truth.y >= 0
    whole = bool(kept.all())
    strata, names = table.tokens("stratum") if table.has("stratum") else (None, None)
    if kept.any():
        stream.update(
            truth.y if whole else truth.y[kept],
            probs if whole else probs[kept],
            votes=None if truth.counts is None else truth.counts[kept],
            strata=None if strata is None else strata[kept],
            names=names,
        )
    told.rows += len(kept)
    told.left_out += int((~kept).sum())
    told.off += len(off)
    told.largest = max(told.largest, float(off.max(initial=0.0)))
    told.tally += truth.tally
