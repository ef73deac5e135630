"""Predictions compressed to counts: what a streaming audit keeps, which adds up.

[0, 1] is cut into a fixed grid of cells, fine enough that a case may be replaced by the mean of its
cell. Cells have equal width in the middle, fitted so that the bins of ECE, the cells of smECE and the
threshold at one half are all unions of cells: whatever counts by those is exact. Below 2^-8 and
above 1 - 2^-8 there are 128 cells to every halving of the distance to the end, so that log-odds are
as finely resolved as anything in the middle. The grid depends on the number of bins alone, so counts
of different files, machines and days add up.

A layer is one combination of stratum, votes (how many readers, how many of them for the positive
class) and label. `Counts` holds the number of cases of every layer in every cell and the sum of
probabilities in every cell: its size does not depend on the number of cases, two of them add up to
the counts of both, and `Counts.predictions` gives them back as weighted cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import lcm

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.cases import Cases, Factor, Predictions
from scalecal.checks import (
    Float,
    InputError,
    Int,
    check_counts,
    check_same_length,
)
from scalecal.limits import check_count
from scalecal.metrics import METRICS
from scalecal.metrics.arguments import (
    Sample,
    blocks,
    check_same_classes,
    read_hard_event,
    read_probs,
)
from scalecal.metrics.binning import GRID, width_binner
from scalecal.metrics.columns import chosen
from scalecal.votes import stratum_codes

MOST_BINS = 256  # more would have edges inside the two ends
LEAST_CELLS = 1 << 15
END = 2.0**-8
LAST_OCTAVE = 53
_SHIFT = 45  # drops all but seven bits of a float64's mantissa: 128 cells to an octave
_END_CELLS = (LAST_OCTAVE - 8) << (52 - _SHIFT)
_END_CODE = int(np.float64(END).view(np.int64)) >> _SHIFT

MOST_LAYERS = 1024
MOST_READERS = 255


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
        if check_count(self.n_bins, "n_bins", "bins") > MOST_BINS:
            raise InputError(
                f"a streaming audit has at most {MOST_BINS} bins, got {self.n_bins}. "
                "Use scalecal.audit for more."
            )

    @cached_property
    def _width_cells(self) -> int:
        """Cells of equal width that [0, 1] would have without the finer ends."""
        least = lcm(2 * self.n_bins, GRID)
        return least * -(-LEAST_CELLS // least)

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


@dataclass(frozen=True, order=True)
class Layer:
    """Cases of one stratum (-1: none), with `positive` of `readers` votes, and one label.

    For more than two classes the label is whether the top class is right.
    """

    stratum: int
    readers: int
    positive: int
    label: int


def _too_many() -> InputError:
    return InputError(
        f"more than {MOST_LAYERS} combinations of stratum, votes and label: too many to stream. "
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
    >>> a, b = Counts(Cells(15)), Counts(Cells(15))
    >>> a.add([0, 1, 1], [0.2, 0.7, 0.7])
    >>> b.add([1], [0.9])
    >>> a.merge(b)
    >>> predictions, times = a.predictions()
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

    def restore(
        self,
        layers: NDArray[np.int64],
        times: NDArray[np.int64],
        sums: Float,
        losses: Float,
        *,
        n_strata: int,
    ) -> None:
        """Take in counts as a file holds them; `layers` has a row per layer."""
        n = layers.size // 4
        shapes = {
            "layers": (layers, np.int64, (n, 4)),
            "times": (times, np.int64, (n, self.cells.count)),
            "sums": (sums, np.float64, (self.cells.count,)),
            "losses": (losses, np.float64, (n, self.losses.shape[1])),
        }
        for name, (array, dtype, shape) in shapes.items():
            if array.dtype != dtype or array.shape != shape:
                raise InputError(
                    f"{name!r} must be {np.dtype(dtype)} of shape {shape}, got {array.dtype} of shape "
                    f"{array.shape}"
                )
        self.layers = {Layer(*row): k for k, row in enumerate(layers.tolist())}
        right = len(self.layers) == n <= MOST_LAYERS and all(
            -1 <= la.stratum < n_strata
            and 0 <= la.positive <= la.readers <= MOST_READERS
            and la.label in (0, 1)
            for la in self.layers
        )
        # Up to rounding, the sum of a cell's probabilities lies between its edges.
        count = times.sum(axis=0, dtype=np.float64)
        slack = 1e-6 * count
        if not (
            right
            and (times >= 0).all()
            and count.sum() < 2.0**53
            and (sums >= self.cells.low * count - slack).all()
            and (sums <= self.cells.high * count + slack).all()
            and np.isfinite(losses).all()
        ):
            raise InputError("the counts contradict each other: the file was changed or is damaged")
        self.times, self.sums, self.losses = times, sums, losses

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
        p = read_probs(probs)
        if p.ndim == 2 and p.shape[1] == 2:
            p = np.ascontiguousarray(p[:, 1])
        n_classes = 2 if p.ndim == 1 else p.shape[1]
        if self.n_classes not in (None, n_classes):
            raise InputError(f"probs have {n_classes} classes, those before had {self.n_classes}")
        event = read_hard_event(y, p)
        counts = None if votes is None else check_counts(votes, n_raters)
        check_same_length(y=event.y, probs=p, votes=counts, strata=codes)
        if counts is not None:
            check_same_classes(counts, p)
        if n_classes > 2 and counts is not None:
            # Votes make strata there; scores against them would need every class.
            codes = stratum_codes(counts) if codes is None else codes
            counts = None
        if counts is not None and (most := int(counts.sum(axis=1).max())) > MOST_READERS:
            raise InputError(f"at most {MOST_READERS} readers per case can be streamed, got {most}")
        self.n_classes = n_classes
        labels = np.asarray(y)
        for part in blocks(len(event.p)):
            layer = self._layers_of(
                event.y[part],
                None if counts is None else counts[part],
                None if codes is None else codes[part],
            )
            cell = self.cells.index(event.p[part])
            np.add.at(self.sums, cell, event.p[part])
            np.add.at(self.times.reshape(-1), layer * self.cells.count + cell, 1)
            if n_classes > 2:
                for j, loss in enumerate(_losses(labels[part], p[part])):
                    self.losses[:, j] += np.bincount(layer, loss, len(self.losses))

    def _layers_of(
        self, y: NDArray[np.generic], counts: Int | None, codes: NDArray[np.integer] | None
    ) -> NDArray[np.intp]:
        """Return each case's layer, adding those that are new."""
        key = y.astype(np.intp)
        width = 1
        if counts is not None:
            readers = counts.sum(axis=1)
            width = int(readers.max()) + 1
            key += 2 * (readers * width + counts[:, 1])
        if codes is not None:
            if codes.max() >= MOST_LAYERS:  # each has a layer: known before the table is made
                raise _too_many()
            key += 2 * width**2 * (codes.astype(np.intp) + 1)
        present = np.flatnonzero(np.bincount(key))
        rest, label = np.divmod(present, 2)
        stratum, votes = np.divmod(rest, width**2)
        readers, positive = np.divmod(votes, width)
        keys = zip(stratum - 1, readers, positive, label, strict=True)
        table = np.zeros(int(present[-1]) + 1, dtype=np.intp)
        table[present] = self._numbers(Layer(*map(int, k)) for k in keys)
        return table[key]

    def _numbers(self, layers: Iterable[Layer]) -> list[int]:
        numbers = [self.layers.setdefault(layer, len(self.layers)) for layer in layers]
        if len(self.layers) > MOST_LAYERS:
            raise _too_many()
        new = len(self.layers) - len(self.times)
        if new:
            self.times = np.concatenate([self.times, np.zeros((new, self.cells.count), np.int64)])
            self.losses = np.concatenate([self.losses, np.zeros((new, self.losses.shape[1]))])
        return numbers

    def merge(self, other: Counts, strata: Sequence[int] | None = None) -> None:
        """Add the cases of other counts; `strata` gives their strata their numbers here."""
        if other.cells != self.cells:
            raise InputError(
                f"streams with {self.cells.n_bins} and {other.cells.n_bins} bins cannot be merged"
            )
        if None not in (self.n_classes, other.n_classes) and self.n_classes != other.n_classes:
            raise InputError(
                f"streams of {self.n_classes} and {other.n_classes} classes cannot be merged"
            )
        self.n_classes = self.n_classes or other.n_classes
        numbers = None if strata is None else [*strata, -1]
        mine = self._numbers(
            la if numbers is None else replace(la, stratum=numbers[la.stratum])
            for la in other.layers
        )
        theirs = list(other.layers.values())
        self.times[mine] += other.times[theirs]
        self.losses[mine] += other.losses[theirs]
        self.sums += other.sums

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

        def of(name: str) -> Int:
            return np.array([getattr(layer, name) for layer in layers], dtype=np.int64)[row]

        y, p, readers, positive = of("label"), mean[cell], of("readers"), of("positive")
        n_classes = self.n_classes or 2
        if n_classes > 2:
            rest = np.minimum((1.0 - p) / (n_classes - 1), p)
            y, p = 1 - y, np.column_stack([p, *[rest] * (n_classes - 1)])
        cases = Cases(
            n=len(row),
            classes=tuple(str(c) for c in range(n_classes)),
            y=y,
            votes=np.column_stack([readers - positive, positive]) if readers.any() else None,
            strata=Factor(of("stratum"), strata) if strata else None,
            agreement=agreement,
        )
        return Predictions.single(cases, p), times[row, cell].astype(np.float64)


def streamed_losses() -> list[str]:
    """Metrics of more than two classes that do not follow from the probability of the top class.

    The order is that of the columns of `Counts.losses`, and so of saved streams: those that decide come
    first, new ones last.

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
