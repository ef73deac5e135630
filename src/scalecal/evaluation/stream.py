"""The audit of more predictions than fit into memory: compress them to counts, then audit these.

`StreamingAudit` takes blocks of predictions and keeps `Counts`; `finish` audits them as weighted cases, with
the code of `scalecal.audit`. `stream_file` does all of it for a CSV or Parquet file.

[0, 1] is cut into a fixed grid of cells, fine enough that a case may be replaced by the mean of its
cell. Cells have equal width in the middle, fitted so that the bins of ECE, the cells of smECE and the
threshold at one half are all unions of cells: whatever counts by those is exact. Below 2^-8 and
above 1 - 2^-8 there are 128 cells to every halving of the distance to the end, so that log-odds are
as finely resolved as anything in the middle.

A layer is one combination of stratum, votes (how many readers, how many of them for the positive
class) and label. `Counts` holds the number of cases of every layer in every cell and the sum of
probabilities in every cell: its size does not depend on the number of cases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import lcm, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.cases import ALONE, Cases, Factor, Predictions
from scalecal.checks import (
    Float,
    InputError,
    Int,
    check_counts,
    check_probs,
    check_same_length,
)
from scalecal.evaluation.audits import Audit, audit_predictions, in_order
from scalecal.evaluation.evaluations import Evaluation, evaluation_of
from scalecal.inference.units import NORMAL_95
from scalecal.io.case_tables import PredictionFile
from scalecal.io.input_columns import INPUT_COLUMNS
from scalecal.io.tables import column_names
from scalecal.io.text import some_of
from scalecal.limits import check_count
from scalecal.metrics import COLUMNS, METRICS
from scalecal.metrics.arguments import (
    Sample,
    blocks,
    check_same_classes,
    of_two,
    read_hard_event,
    read_probs,
)
from scalecal.metrics.binning import GRID, width_binner
from scalecal.metrics.columns import chosen
from scalecal.metrics.resampling import EXACT_CASES
from scalecal.panel import check_rho
from scalecal.votes import STRATA, Ties, stratum_codes

FEW_CASES = 500
"""Cases of a stratum below which the normal limit of its null may be some per cent off."""

MAX_BINS = 256  # more would have edges inside the two ends
MIN_CELLS = 1 << 15
END = 2.0**-8
LAST_OCTAVE = 53
_SHIFT = 45  # drops all but seven bits of a float64's mantissa: 128 cells to an octave
_END_CELLS = (LAST_OCTAVE - 8) << (52 - _SHIFT)
_END_CODE = int(np.float64(END).view(np.int64)) >> _SHIFT

MAX_LAYERS = 1024
MAX_READERS = 255
_LAYERS = (MAX_LAYERS + 1, MAX_READERS + 1, MAX_READERS + 1, 2)


@dataclass(frozen=True)
class Cells:
    """The grid for ECE with `n_bins` bins.

    Examples
    --------
    >>> cells = Cells(15)
    >>> k = cells.index(np.array([0.0, 1e-9, 0.2, 0.5, 1.0]))
    >>> bool((np.diff(k) > 0).all()), bool((cells.low[k] <= [0.0, 1e-9, 0.2, 0.5, 1.0]).all())
    (True, True)
    """

    n_bins: int

    def __post_init__(self) -> None:
        if check_count(self.n_bins, "n_bins", "bins") > MAX_BINS:
            raise InputError(
                f"a streaming audit has at most {MAX_BINS} bins, got {self.n_bins}. "
                "Use scalecal.audit for more."
            )

    @cached_property
    def _width_cells(self) -> int:
        """Cells of equal width that [0, 1] would have without the finer ends."""
        least = lcm(2 * self.n_bins, GRID)
        return least * -(-MIN_CELLS // least)

    @cached_property
    def _replaced(self) -> int:
        """Cells of equal width at either end that the finer ones stand for."""
        return self._width_cells >> 8

    @property
    def count(self) -> int:
        """Number of cells."""
        return self._width_cells - 2 * self._replaced + 2 * _END_CELLS

    @cached_property
    def low(self) -> Float:
        """Lower edge of every cell, which belongs to it in the middle and at the lower end."""
        codes = np.arange(_END_CODE - _END_CELLS, _END_CODE, dtype=np.int64)
        low_end = (codes << _SHIFT).view(np.float64).copy()
        low_end[0] = 0.0
        middle = np.arange(self._replaced, self._width_cells - self._replaced) / self._width_cells
        # The upper end mirrors the lower: its edges are one less the upper edges there.
        high_end = 1.0 - np.append(low_end[1:], END)[::-1]
        return np.concatenate([low_end, middle, high_end])

    @cached_property
    def high(self) -> Float:
        """Upper edge of every cell."""
        return np.append(self.low[1:], 1.0)

    def index(self, p: Float) -> NDArray[np.intp]:
        """Return the cell of each probability of a block (checked, float64)."""
        width = self._width_cells
        k = width_binner(width)(p)
        k += _END_CELLS - self._replaced
        ends = np.flatnonzero(np.abs(p - 0.5) >= 0.5 - END)
        if ends.size:
            q = p[ends]
            upper = q >= 0.5
            distance = np.where(upper, 1.0 - q, q)
            # One bit less, so that the upper end's cells too are closed on the left in p.
            code = (distance.view(np.int64) - upper) >> _SHIFT
            place = np.maximum(code - (_END_CODE - _END_CELLS), 0)
            # p = 2^-8 itself is the first cell of equal width.
            inner = place >= _END_CELLS
            k[ends] = np.where(inner, k[ends], np.where(upper, self.count - 1 - place, place))
        return k

    def clip(self, mean: Float, cell: NDArray[np.intp]) -> Float:
        """Keep means inside their cells, out of which rounding may have pushed them."""
        low, high = self.low[cell], self.high[cell]
        last = cell == self.count - 1
        # So near to one that float64 has no number between the edges, a cell is its lower edge.
        most = np.maximum(np.nextafter(high, 0.0), low)
        return np.clip(mean, low, np.where(last, 1.0, most))


class Layer(NamedTuple):
    """Cases of one stratum (-1: none), with `positive` of `readers` votes, and one label.

    For more than two classes the label is whether the top class is right.
    """

    stratum: int
    readers: int
    positive: int
    label: int


def _too_many() -> InputError:
    return InputError(
        f"more than {MAX_LAYERS} combinations of stratum, votes and label: too many to stream. "
        "Give fewer strata, or leave the votes out."
    )


@dataclass
class Counts:
    """Counts of the cases seen so far.

    Attributes
    ----------
    cells
        The grid.
    n_classes
        None before the first case.
    layers
        Number of each layer in `times` and `losses`.
    times
        (layers, cells) cases.
    sums
        (cells,) sum of their probabilities.
    losses
        (layers, 2 k) sums of the k losses of `streamed_losses` and of their squares, for more than two
        classes; else zero.

    Examples
    --------
    >>> counts = Counts(Cells(15))
    >>> counts.add([0, 1, 1], [0.2, 0.7, 0.7])
    >>> counts.add([1], [0.9])
    >>> predictions, times = counts.predictions()
    >>> predictions.p.tolist(), predictions.cases.y.tolist(), times.tolist()
    ([0.2, 0.7, 0.9], [0, 1, 1], [1.0, 2.0, 1.0])
    """

    cells: Cells
    n_classes: int | None = None
    layers: dict[Layer, int] = field(default_factory=dict)
    times: NDArray[np.int64] = field(init=False)
    sums: Float = field(init=False)
    losses: Float = field(init=False)

    def __post_init__(self) -> None:
        self.times = np.zeros((0, self.cells.count), dtype=np.int64)
        self.sums = np.zeros(self.cells.count)
        self.losses = np.zeros((0, 2 * len(streamed_losses())))

    @property
    def n(self) -> int:
        """Cases seen."""
        return int(self.times.sum())

    def add(
        self,
        y: ArrayLike,
        probs: ArrayLike,
        *,
        votes: ArrayLike | None = None,
        n_raters: ArrayLike | None = None,
        codes: NDArray[np.integer] | None = None,
    ) -> None:
        """Take in some cases: checked first, so that a bad block changes nothing."""
        p = of_two(read_probs(probs))
        n_classes = 2
        if p.ndim > 1:
            n_classes = p.shape[1]
        if self.n_classes not in (None, n_classes):
            raise InputError(f"probs have {n_classes} classes, those before had {self.n_classes}")
        event = read_hard_event(y, p)
        counts = None
        if votes is not None:
            counts = check_counts(votes, n_raters)
            check_same_classes(counts, p)
        check_same_length(y=event.y, probs=p, votes=counts, strata=codes)
        if n_classes > 2 and counts is not None:
            # Votes make strata there; scores against them would need every class.
            if codes is None:
                codes = stratum_codes(counts)
            counts = None
        if counts is not None and (most := int(counts.sum(axis=1).max())) > MAX_READERS:
            raise InputError(f"at most {MAX_READERS} readers per case can be streamed, got {most}")
        self.n_classes = n_classes
        labels = np.asarray(y)
        for part in blocks(len(event.p)):
            layer = self._layers_of(event.y[part], counts, codes, part)
            cell = self.cells.index(event.p[part])
            np.add.at(self.sums, cell, event.p[part])
            np.add.at(self.times.reshape(-1), layer * self.cells.count + cell, 1)
            if n_classes > 2:
                for j, loss in enumerate(_losses(labels[part], p[part])):
                    self.losses[:, j] += np.bincount(layer, loss, len(self.losses))

    def _layers_of(
        self,
        y: NDArray[np.generic],
        counts: Int | None,
        codes: NDArray[np.integer] | None,
        part: slice,
    ) -> NDArray[np.intp]:
        """Return the layer of each case of a block, adding those that are new."""
        stratum = readers = positive = np.zeros(len(y), dtype=np.intp)
        if codes is not None:
            stratum = codes[part].astype(np.intp) + 1
            if stratum.max() > MAX_LAYERS:  # each stratum has a layer at least
                raise _too_many()
        if counts is not None:
            readers, positive = counts[part].sum(axis=1), counts[part, 1]
        # One number for each combination: rows of several columns take far longer to sort.
        key = np.ravel_multi_index((stratum, readers, positive, y.astype(np.intp)), _LAYERS)
        present, place = np.unique(key, return_inverse=True)
        numbers = []
        for first, *others in zip(*np.unravel_index(present, _LAYERS), strict=True):
            layer = Layer(int(first) - 1, *map(int, others))
            numbers.append(self.layers.setdefault(layer, len(self.layers)))
        if len(self.layers) > MAX_LAYERS:
            raise _too_many()
        new = len(self.layers) - len(self.times)
        if new:
            self.times = np.concatenate([self.times, np.zeros((new, self.cells.count), np.int64)])
            self.losses = np.concatenate([self.losses, np.zeros((new, self.losses.shape[1]))])
        return np.array(numbers)[place]

    def predictions(
        self, strata: tuple[str, ...] = (), *, agreement: bool = False
    ) -> tuple[Predictions, Float]:
        """Return the counts as predictions, and how many cases each row of them stands for.

        All cases of a cell get its mean probability. For more than two classes a row has its top
        class first, the rest spread evenly over the others, and the label 0 (right) or 1 (wrong).

        Parameters
        ----------
        strata
            Names of the strata by number; empty where they are to be made of the votes.
        agreement
            Whether these strata come from votes.
        """
        layers = sorted(self.layers)
        times = self.times[[self.layers[layer] for layer in layers]]
        row, cell = np.nonzero(times)
        mean = np.zeros(self.cells.count)
        filled = np.unique(cell)
        mean[filled] = self.cells.clip(self.sums[filled] / times[:, filled].sum(axis=0), filled)

        columns = np.array(layers, dtype=np.int64).reshape(-1, 4)[row]
        stratum, readers, positive, y = columns.T
        p, votes = mean[cell], None
        n_classes = self.n_classes or 2
        if n_classes > 2:
            rest = np.minimum((1.0 - p) / (n_classes - 1), p)
            y, p = 1 - y, np.column_stack([p, *[rest] * (n_classes - 1)])
        if readers.any():
            votes = np.column_stack([readers - positive, positive])
        factor = None
        if strata:
            factor = Factor(stratum, strata)
        classes = tuple(str(c) for c in range(n_classes))
        known = {"y": y, "votes": votes, "strata": factor, "agreement": agreement}
        cases = Cases(n=len(row), classes=classes, **known)
        return Predictions.single(cases, p), times[row, cell].astype(np.float64)


def streamed_losses() -> list[str]:
    """Metrics of more than two classes that do not follow from the probability of the top class.

    The order is that of the columns of `Counts.losses`: those that decide come first.

    Examples
    --------
    >>> streamed_losses()
    ['nll', 'brier']
    """
    return chosen(
        lambda metric: (
            metric.term is not None and metric.in_audit and not metric.votes and not metric.of_event
        )
    )


def _losses(y: NDArray[np.generic], table: Float) -> list[Float]:
    """What every case adds to the sums of losses, then to those of their squares."""
    sample = Sample(np.eye(table.shape[1])[y.astype(np.intp)], table)
    terms = [METRICS[key].term for key in streamed_losses()]
    losses = [term(sample) for term in terms if term is not None]
    return [*losses, *(loss * loss for loss in losses)]


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
        self.options: dict[str, Any] = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
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
        strata: Factor | None = None,
    ) -> StreamingAudit:
        """Take in a block of cases; returns self.

        Parameters
        ----------
        y, probs, votes, n_raters, p_reader
            As `scalecal.audit`. Votes make the strata unless these are given.
        strata : Factor, optional
            The strata of the block's cases; a later block may have others.
        """
        kinds = (votes is not None, strata is not None, p_reader is not None)
        if self._kinds not in (None, kinds):
            raise InputError("give votes, strata and p_reader with every block, or with none")
        about: dict[str, Any] = {"votes": votes, "n_raters": n_raters}
        if strata is not None:
            if "overall" in strata.names:
                raise InputError("a stratum may not be called 'overall': that row holds all cases")
            # Blocks number their strata by themselves: here is one numbering of the whole stream.
            numbers = [self._strata.setdefault(name, len(self._strata)) for name in strata.names]
            about["codes"] = np.array([*numbers, -1])[strata.codes]
        if p_reader is not None:
            p_reader = check_probs(p_reader, "p_reader")
            if p_reader.shape != np.shape(probs):
                raise InputError(
                    f"p_reader must have the shape of probs, {np.shape(probs)}, got {p_reader.shape}"
                )
        self._counts.add(y, probs, **about)
        if p_reader is not None and self._counts.n_classes == 2:
            self._reader.add(y, p_reader, **about)
        self._kinds = kinds
        return self

    def finish(self) -> Evaluation:
        """Return the evaluation of all cases so far; more may follow."""
        return evaluation_of(self.numbers())

    def numbers(self) -> Audit:
        """Return the numbers of all cases so far."""
        counts = self._counts
        if counts.n == 0:
            raise InputError("no cases: call update first")
        assert self._kinds is not None
        voted, named, two_answers = self._kinds
        names: tuple[str, ...] = tuple(self._strata)
        if not named and voted and counts.n_classes != 2:
            names = STRATA
        result = self._audit(counts, names, agreement=not named)
        if counts.n_classes != 2:
            # Cells hold the top class alone: scores of all classes come from their own sums.
            _add_losses(result.rows, counts, {name: k for k, name in enumerate(names)})
            for row in result.rows:
                row["prevalence"] = float("nan")
            result = replace(result, references=[])
        if self._reader.n:
            # What votes say of a reader's probability takes the place of what they say of the label's.
            reader = self._audit(self._reader, names, agreement=not named, reader=True)
            for row, own in zip(result.rows, reader.rows, strict=True):
                row |= {key: value for key, value in own.items() if COLUMNS[key].votes}
            result.meta["votes_judge"] = "p_reader"
            result = replace(result, by_votes=reader, difficulty=reader.difficulty)
        # Of the counts by stratum, votes, label and cell: the order of the cases is no matter.
        digest = hashlib.sha256()
        for part in (counts, self._reader):
            for layer in sorted(part.layers):
                digest.update(repr(layer).encode() + part.times[part.layers[layer]].tobytes())
        del result.meta["data_sha256"]
        result.meta.update(streamed=True, counts_sha256=digest.hexdigest())
        result.notes.insert(
            0,
            "Streamed: probabilities are rounded to the means of some 70,000 cells, and floors, nulls, "
            "tests and intervals take cases as independent.",
        )
        if two_answers and counts.n_classes != 2:
            result.notes.append(
                "Votes are not scored in a stream of more than two classes, so p_reader is not judged."
            )
        small = [r["name"] for r in result.rows[1:] if 0 < r["n"] < FEW_CASES]
        if counts.n > EXACT_CASES and small:
            result.notes.append(
                f"That limit is rough for few cases: the null of {some_of(small)} (under "
                f"{FEW_CASES} cases) may be off by some per cent."
            )
        return result

    def _audit(
        self, counts: Counts, strata: tuple[str, ...], *, agreement: bool, reader: bool = False
    ) -> Audit:
        """Audit one set of counts as weighted cases; with `reader` they are of a reader probability."""
        predictions, times = counts.predictions(strata, agreement=agreement)
        cases, own = predictions.cases, replace(predictions.only, rho=self.rho)
        if cases.strata is not None:
            cases = replace(cases, strata=in_order(cases.strata))
        if reader:
            own = replace(own, p_reader=own.p)
        whole = replace(predictions, cases=cases, answers={ALONE: own})
        return audit_predictions(whole, sample_weight=times, **self.options)


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
        cases, own = piece.cases, piece.only
        stream.rho = own.rho
        if cases.n:
            stream.update(
                piece.y, own.p, votes=cases.votes, p_reader=own.p_reader, strata=cases.strata
            )
        if on_batch is not None:
            on_batch(cases.n)
    if stream.n == 0:
        raise InputError(f"{path} has no case with a label")
    result = stream.numbers()
    result.notes.extend(file.notes)
    header = column_names(path)
    for role, column in INPUT_COLUMNS.items():
        if column.not_streamed and (columns or {}).get(role, column.name or role) in header:
            result.notes.append(column.not_streamed)
    result.meta["file"] = path.name
    return evaluation_of(result, dataset=path.stem)
