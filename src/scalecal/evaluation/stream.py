"""The audit of more predictions than fit into memory: compress them, then audit.

`StreamingAudit` takes blocks of predictions and keeps counts (`scalecal.evaluation.compression`); `finish`
audits them as weighted cases, with the code of `scalecal.audit`. `stream_file` does all of it for a CSV or
Parquet file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.cases import ALONE
from scalecal.checks import InputError, check_probs
from scalecal.evaluation.audits import Audit, audit_predictions, in_order, labels_of
from scalecal.evaluation.compression import Cells, Counts, streamed_losses
from scalecal.evaluation.evaluations import Evaluation, evaluation_of
from scalecal.inference.units import NORMAL_95
from scalecal.io.input_columns import INPUT_COLUMNS
from scalecal.io.predictions import PredictionFile
from scalecal.io.tables import column_names
from scalecal.io.text import some_of
from scalecal.limits import check_count
from scalecal.metrics import COLUMNS
from scalecal.metrics.resampling import EXACT_CASES
from scalecal.panel import check_rho
from scalecal.votes import STRATA, Ties

FEW_CASES = 500
"""Cases of a stratum below which the normal limit of its null may be some per cent off."""


class StreamingAudit:
    """Audit predictions block by block, in memory that does not grow with their number.

    Counts, and all that follows from them alone (n, accuracy, which bin a case is in), are exact.
    Elsewhere the probability of a case is replaced by the mean of its cell, one of some 70,000 (128
    to every halving of the distance to 0 or 1): overall ECE, mean and gap agree with `scalecal.audit`
    to rounding, those of strata, NLL and Brier score to 1e-6, AUC, debiased error and tests to about
    1e-5, p-values of the Kuiper test to a per cent on large data.
    Of more than two classes the prevalence is not known. Nulls are other draws of the same law; above
    100,000 cases they come from its normal limit, some per cent off in a stratum of a few hundred cases.
    Floors, nulls, tests and intervals take cases as independent: groups are not known here. Probabilities
    of a reader's vote are compressed beside those of the label, each with counts of its own: no number
    needs both.

    Parameters
    ----------
    n_bins : int
        Bins of equal width for ECE, 256 at most.
    n_resamples, seed
        For floors, nulls and intervals.
    rho : float
        Correlation of two readers' votes on a case, as in `scalecal.audit`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> stream = StreamingAudit()
    >>> for block in range(2):
    ...     p = rng.uniform(size=1000)
    ...     _ = stream.update(rng.uniform(size=1000) < p, p)
    >>> result = stream.finish()
    >>> result["overall"]["n"], bool(result["overall"]["ece"] < 0.1)
    (2000, True)
    """

    def __init__(
        self, *, n_bins: int = 15, n_resamples: int = 1000, seed: int = 0, rho: float = 0.0
    ) -> None:
        check_count(n_resamples, "n_resamples", "resamples", least=20)
        self.n_bins, self.n_resamples, self.seed = n_bins, n_resamples, seed
        self.rho = check_rho(rho)
        self._counts = Counts(Cells(n_bins))
        self._reader = Counts(Cells(n_bins))  # by the probability of a reader's vote
        self._strata: dict[str, int] = {}
        self._kinds: tuple[bool, bool, bool] | None = None  # with votes, with strata, with p_reader

    @property
    def n(self) -> int:
        """Cases seen so far."""
        return self._counts.n

    def update(
        self,
        y: ArrayLike,
        probs: ArrayLike,
        *,
        votes: ArrayLike | None = None,
        n_raters: ArrayLike | None = None,
        p_reader: ArrayLike | None = None,
        strata: NDArray[np.integer[Any]] | None = None,
        names: Sequence[str] | None = None,
    ) -> StreamingAudit:
        """Take in a block of cases; returns self.

        Parameters
        ----------
        y, probs, votes, n_raters, p_reader
            As `scalecal.audit`. Votes make the strata unless these are given.
        strata : array of int, optional
            Number of each case's stratum in `names`, -1 for none.
        names : sequence of str, optional
            Names of the strata; a later block may have others.
        """
        kinds = (votes is not None, strata is not None, p_reader is not None)
        if self._kinds not in (None, kinds):
            raise InputError("give votes, strata and p_reader with every block, or with none")
        codes = None
        if strata is not None:
            codes = self._codes(np.asarray(strata), tuple(names or ()))
        reader = None if p_reader is None else check_probs(p_reader, "p_reader")
        if reader is not None and reader.shape != np.shape(probs):
            raise InputError(
                f"p_reader must have the shape of probs, {np.shape(probs)}, got {reader.shape}"
            )
        self._counts.add(y, probs, votes=votes, n_raters=n_raters, codes=codes)
        if reader is not None and self._counts.n_classes == 2:
            self._reader.add(y, reader, votes=votes, n_raters=n_raters, codes=codes)
        self._kinds = kinds
        return self

    def _codes(
        self, strata: NDArray[np.integer[Any]], names: tuple[str, ...]
    ) -> NDArray[np.integer[Any]]:
        """Stratum numbers of a block in the numbering of the whole stream."""
        if strata.dtype.kind not in "iu" or (
            len(strata) and not (strata.min() >= -1 and strata.max() < len(names))
        ):
            raise InputError(
                f"strata must be whole numbers from -1 (none) to {len(names) - 1}, one less than "
                f"there are names, got {strata.dtype} from {strata.min()} to {strata.max()}"
            )
        return np.asarray(np.array([*self._numbers(names), -1])[strata])

    def _numbers(self, names: Sequence[str]) -> list[int]:
        if "overall" in names:
            raise InputError("a stratum may not be called 'overall': that row holds all cases")
        return [self._strata.setdefault(name, len(self._strata)) for name in names]

    def finish(self) -> Evaluation:
        """Return the evaluation of all cases so far; more may follow."""
        return evaluation_of(self.numbers())

    def numbers(self) -> Audit:
        """Return the numbers of all cases so far."""
        counts = self._counts
        if counts.n == 0:
            raise InputError("no cases: call update first")
        voted, named, _ = self._kinds or (False,) * 3
        names: tuple[str, ...] = tuple(self._strata)
        if not named and voted and counts.n_classes != 2:
            names = STRATA
        result = self._audit(counts, names)
        if counts.n_classes != 2:
            # Cells hold the top class alone: scores of all classes come from their own sums.
            _add_losses(result.rows, counts, {name: k for k, name in enumerate(names)})
            for row in result.rows:
                row["prevalence"] = float("nan")
            result = replace(result, references=[])
        if self._reader.n:
            result = _judged_by_votes(result, self._audit(self._reader, names, reader=True))
        digest = hashlib.sha256()
        for part in (counts, self._reader):
            for layer in sorted(part.layers):
                digest.update(repr(layer).encode() + part.times[part.layers[layer]].tobytes())
        del result.meta["data_sha256"]
        # Of the counts by stratum, votes, label and cell: the order of the cases is no matter.
        result.meta.update(streamed=True, counts_sha256=digest.hexdigest())
        result.notes[:0] = [
            "Streamed: probabilities are rounded to the means of some 70,000 cells, and floors, nulls, "
            "tests and intervals take cases as independent."
        ]
        small = [r["name"] for r in result.rows[1:] if 0 < r["n"] < FEW_CASES]
        if self._kinds and self._kinds[2] and counts.n_classes != 2:
            result.notes.append(
                "Votes are not scored in a stream of more than two classes, so p_reader is not judged."
            )
        if counts.n > EXACT_CASES and small:
            result.notes.append(
                f"That limit is rough where cases are few: the null of {some_of(small)} (under "
                f"{FEW_CASES} cases) may be some per cent off."
            )
        return result

    def _audit(self, counts: Counts, strata: tuple[str, ...], reader: bool = False) -> Audit:
        """Audit one set of counts as weighted cases; with `reader` they are of a reader's answer."""
        named = self._kinds is not None and self._kinds[1]
        predictions, times = counts.predictions(strata, agreement=not named)
        cases = predictions.cases
        if cases.strata is not None:
            cases = replace(cases, strata=in_order(cases.strata))
        own = predictions.only
        if reader:
            own = replace(own, p_reader=own.p)
        return audit_predictions(
            replace(predictions, cases=cases, answers={ALONE: replace(own, rho=self.rho)}),
            sample_weight=times,
            n_bins=self.n_bins,
            n_resamples=self.n_resamples,
            seed=self.seed,
        )


def _judged_by_votes(label: Audit, reader: Audit) -> Audit:
    """Put what votes say of a reader's probability in the place of what they say of the label's."""
    for row, own in zip(label.rows, reader.rows, strict=True):
        row |= {key: value for key, value in own.items() if COLUMNS[key].votes}
    label.meta["votes_judge"] = "p_reader"
    return replace(label, by_votes=reader, difficulty=reader.difficulty)


def _add_losses(rows: list[dict[str, Any]], counts: Counts, strata: dict[str, int]) -> None:
    """Put losses of more than two classes into the rows, with normal intervals."""
    for row in rows:
        if row["n"] == 0:
            continue
        number = strata.get(row["name"])
        layers = [k for la, k in counts.layers.items() if number in (None, la.stratum)]
        names = streamed_losses()
        means = counts.losses[layers].sum(axis=0) / row["n"]
        for name, mean, square in zip(names, means[: len(names)], means[len(names) :], strict=True):
            half = NORMAL_95 * sqrt(max(square - mean * mean, 0.0) / row["n"])
            row |= {name: float(mean), f"{name}_low": mean - half, f"{name}_high": mean + half}


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
) -> Evaluation:
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
        own = piece.only
        stream.rho = own.rho
        if cases.n:
            stream.update(
                labels_of(cases),
                own.p,
                votes=cases.votes,
                p_reader=own.p_reader,
                strata=None if cases.strata is None else cases.strata.codes,
                names=None if cases.strata is None else cases.strata.names,
            )
        if on_batch is not None:
            on_batch(cases.n)
    if stream.n == 0:
        raise InputError(f"{path} has no case with a label")
    result = stream.numbers()
    result.notes.extend(file.notes)
    header = column_names(path)
    for role, column in INPUT_COLUMNS.items():
        if column.not_streamed and (columns or {}).get(role, column.usual_name) in header:
            result.notes.append(column.not_streamed)
    result.meta["file"] = path.name
    return evaluation_of(result, dataset=path.stem)
