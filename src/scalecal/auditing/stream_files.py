"""The streaming audit of a file of predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from scalecal.auditing.audits import Audit
from scalecal.auditing.stream import StreamingAudit
from scalecal.checks import InputError
from scalecal.io.case_tables import PredictionFile
from scalecal.io.tables import column_names
from scalecal.votes import Ties

__all__ = ["stream_file"]

UNUSED = {
    "id": "The ids in the file are not used: a case that is there twice counts twice.",
    "group": "The groups in the file are not used: a stream does not know them.",
    "split": "The split in the file is not used: cases marked train, if any, are audited too.",
}
"""Columns that a whole audit uses and a stream does not, and what the reader is told of it."""


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
    file = PredictionFile(
        path, columns=columns, positive=positive, n_raters=n_raters, ties=ties, seed=seed
    )
    stream = StreamingAudit(n_bins=n_bins, n_resamples=n_resamples, seed=seed)
    for piece in file.pieces():
        cases = piece.cases
        if cases.n:
            assert cases.y is not None
            stream.update(
                cases.y,
                piece.p,
                votes=cases.votes,
                strata=None if cases.strata is None else cases.strata.codes,
                names=None if cases.strata is None else cases.strata.names,
            )
        if on_batch is not None:
            on_batch(cases.n)
    if stream.n == 0:
        raise InputError(f"{path} has no case with a label")
    result = stream.finish()
    result.notes.extend(file.notes)
    for role, note in UNUSED.items():
        if (columns or {}).get(role, role) in column_names(path):
            result.notes.append(note)
    result.meta["file"] = path.name
    return result
