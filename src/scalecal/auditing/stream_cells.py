"""A fixed grid of probabilities, fine enough that a case may be replaced by its cell's mean.

Cells have equal width in the middle, fitted so that the bins of ECE, the cells of smECE and the
threshold at one half are all unions of cells: whatever counts by those is exact. Below 2^-8 and
above 1 - 2^-8 there are 32 cells to every halving of the distance to the end, so that log-odds are
as finely told apart as anything in the middle. The grid depends on the number of bins alone, so
counts of different files, machines and days add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lcm

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import Float, InputError, check_positive_int
from scalecal.metrics.binning import binner
from scalecal.metrics.calibration import GRID

__all__ = ["Cells"]

MOST_BINS = 256  # more would have edges inside the two ends
LEAST_CELLS = 1 << 15
END = 2.0**-8
LAST_OCTAVE = 53
_SHIFT = 47  # drops all but five bits of a float64's mantissa: 32 cells to an octave
_END_CELLS = (LAST_OCTAVE - 8) << (52 - _SHIFT)
_END_CODE = int(np.float64(END).view(np.int64)) >> _SHIFT


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
        if check_positive_int(self.n_bins, "n_bins") > MOST_BINS:
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
        k = binner(p, width, "width")(p)
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
            found = np.where(upper, self.count - 1 - place, place)
            k[ends] = np.where(inner, k[ends], found)
        return k

    def clip(self, mean: Float, cell: NDArray[np.intp]) -> Float:
        """Keep means inside their cells, out of which rounding may have pushed them."""
        low, high = self.low[cell], self.high[cell]
        last = cell == self.count - 1
        # So near to one that float64 has no number between the edges, a cell is its lower edge.
        most = np.maximum(np.nextafter(high, 0.0), low)
        return np.clip(mean, low, np.where(last, 1.0, most))
