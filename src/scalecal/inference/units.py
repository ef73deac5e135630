"""Resampling cases, or whole groups of cases, through additive contributions.

A bootstrap of many statistics at once is one matrix product: weights of the units (resamples x
units) times what each unit adds to each sum (units x sums). A unit is a case, or a group (patient,
slide) where there are any; beyond `MAX_UNITS` units they are pooled at random, groups kept whole,
which leaves the variance of sums as it was and the cost independent of the number of cases. Of
weighted cases only the mean and covariance of such pools are needed: they are drawn from the normal
law that has both.

Intervals of single metrics need no bootstrap: `unit_interval` has them from what each unit adds. With
few units, or units of very different size, both kinds widen by Student's t with the number of equal
units that would be worth as much (`effective_units`); below `MIN_GROUPS` units there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, stdtr, stdtrit

from scalecal.checks import Float, Int, as_rng
from scalecal.metrics.arguments import blocks, read_counts
from scalecal.metrics.columns import Scale
from scalecal.metrics.grouping import MAX_UNITS, MIN_GROUPS, pooled, read_groups
from scalecal.metrics.reweighting import ClassWeights

ROUNDING = 1e-12  # of a share that is a sum over cases

NORMAL_95 = 1.959963984540054
"""Standard errors to either side of a normal 95 % interval."""


@dataclass(frozen=True)
class Importance:
    """Importance weights of cases by class (`scalecal.metrics.reweighting`).

    `weight` and `label` are of the cases at hand; `classes` (units, 2) counts the cases of each class in
    every unit of the whole sample.
    """

    weight: Float
    label: Int
    classes: Float


@dataclass(frozen=True)
class Units:
    """What is resampled: `code[i]` is the unit of case i, `count` their number.

    `group` is the group of each case before any pooling, or None where there are no groups or every
    case is alone in its own; `times` is how many cases each row stands for, or None where that is one;
    `importance` has the weights of cases that were sampled by class, or None where all count the same.

    Examples
    --------
    >>> Units.of(4, groups=["a", "a", "b", "c"]).code.tolist()
    [0, 0, 1, 2]
    """

    code: Int
    count: int
    group: Int | None = None
    times: Float | None = None
    seed: int = 0
    importance: Importance | None = None

    @classmethod
    def of(
        cls,
        n: int,
        *,
        groups: ArrayLike | None = None,
        seed: int = 0,
        sample_weight: ArrayLike | None = None,
    ) -> Units:
        """Units of n cases: the cases, or their groups, pooled when they are too many."""
        times = read_counts(sample_weight, n)
        group = read_groups(groups, n, times)
        if times is not None:
            return cls.of_rows(times, seed)
        code = np.arange(n, dtype=np.int64) if group is None else group
        code = pooled(code, as_rng(seed))
        return cls(code, int(code.max()) + 1, group, None, seed)

    @classmethod
    def of_rows(cls, times: Float, seed: int) -> Units:
        """Units of rows that stand for so many cases each."""
        return cls(np.arange(len(times)), min(int(times.sum()), MAX_UNITS), None, times, seed)

    def weighted(self, y: Int, prevalence: float) -> Units:
        """Units of the same cases, all of a sample, whose classes stand for another prevalence."""
        weight = ClassWeights.of(y, prevalence).by_label(y)
        classes = np.column_stack(
            [np.bincount(self.code[y == label], minlength=self.count) for label in (0, 1)]
        )
        return replace(self, importance=Importance(weight, y, classes.astype(np.float64)))

    @property
    def weights(self) -> Float | None:
        """What each row counts in a mean: the number of its cases, or its importance; None: one."""
        if self.importance is None:
            return self.times
        return self.importance.weight

    def within(self, cases: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Units:
        """Units of some of the cases; units that have none of them stay, with nothing to add."""
        if self.times is not None:
            return self.of_rows(self.times[cases], self.seed)
        group, importance = self.group, self.importance
        if group is not None:
            group = group[cases]
        if importance is not None:
            importance = replace(
                importance, weight=importance.weight[cases], label=importance.label[cases]
            )
        return replace(self, code=self.code[cases], group=group, importance=importance)

    @property
    def n(self) -> int:
        """Number of cases."""
        return len(self.code) if self.times is None else int(self.times.sum())

    def totals(self, terms: Callable[[slice, Units], dict[str, Float]]) -> dict[str, Float]:
        """What the cases of each unit add to every sum: name -> (units, m).

        Parameters
        ----------
        terms
            Of a block of cases and its units: name -> (units, m), made by `total`.
        """
        out: dict[str, Float] = {}
        if self.times is None:
            for part in blocks(len(self.code), 1 << 17):
                for name, value in terms(part, self.within(part)).items():
                    out[name] = value + out.get(name, 0.0)
            return out
        first: Any = 0.0
        second: Any = 0.0
        for part in blocks(len(self.code), 1 << 14):
            w = self.times[part]
            out = terms(part, Units(np.arange(len(w)), len(w)))
            matrix = np.concatenate(list(out.values()), axis=1)
            first = first + w @ matrix
            second = second + matrix.T @ (w[:, None] * matrix)
        edges = np.cumsum([value.shape[1] for value in out.values()])[:-1]
        parts = np.split(self._pools(first, second), edges, axis=1)
        return dict(zip(out, parts, strict=True))

    def _pools(self, first: Float, second: Float) -> Float:
        """Draw what each of `count` random pools of the cases adds, given the sums and their squares."""
        known = np.isfinite(first)
        out = np.full((self.count, len(first)), np.nan)
        covariance = (second - np.outer(first, first) / self.n)[np.ix_(known, known)]
        level, axes = np.linalg.eigh(covariance)
        noise = as_rng(self.seed).standard_normal((self.count, int(known.sum())))
        noise -= noise.mean(axis=0)  # so that the pools add up to all cases
        if self.count > noise.shape[1]:  # and have the covariance itself, not an estimate of it
            noise = np.linalg.qr(noise)[0] * np.sqrt(self.count)
        spread = noise * np.sqrt(np.maximum(level, 0.0) / self.count) @ axes.T
        out[:, known] = first[known] / self.count + spread
        return out

    def counted(self, chosen: NDArray[np.bool_]) -> float:
        """Number of cases among the chosen rows."""
        if self.times is None:
            return float(chosen.sum())
        return float(self.times[chosen].sum())

    def total(self, values: Float, cell: Int | None = None, n_cells: int = 1) -> Float:
        """Sum values over the cases of each unit, and of each cell (bin) within it.

        Of cases with importance weights the sums are weighted, and every case adds its distance from the
        mean of its class, beside an even share of the sums of all cases: the sums over units are as they
        would be, and vary from unit to unit by what is noise where the classes' shares are known.

        Parameters
        ----------
        values
            (n,) what each row adds.
        cell
            (n,) cell of each case, 0 .. n_cells - 1, -1 for none; None: all in one cell.

        Returns
        -------
        (units, n_cells) array.
        """
        if self.importance is None:
            return self._sums(values, cell, n_cells)
        values, classes = values * self.importance.weight, self.importance.classes
        out = self._sums(values, cell, n_cells)
        by_class = Units(self.importance.label, 2)._sums(values, cell, n_cells)
        share = classes / classes.sum(axis=0)
        even = classes.sum(axis=1) / classes.sum()
        return np.asarray(out - share @ by_class + even[:, None] * by_class.sum(axis=0))

    def size(self, values: Float, cell: Int | None = None, n_cells: int = 1) -> Float:
        """As `total`, but sums of weighted cases as they are."""
        if self.importance is not None:
            values = values * self.importance.weight
        return self._sums(values, cell, n_cells)

    def _sums(self, values: Float, cell: Int | None, n_cells: int) -> Float:
        if cell is None:
            whole = np.bincount(self.code, weights=values, minlength=self.count)
            return whole.astype(np.float64, copy=False)[:, None]
        kept = cell >= 0
        index = self.code[kept] * n_cells + cell[kept]
        flat = np.bincount(index, weights=values[kept], minlength=self.count * n_cells)
        return flat.astype(np.float64, copy=False).reshape(self.count, n_cells)


def weights(n_units: int, n_resamples: int, rng: np.random.Generator) -> Iterator[Float]:
    """Yield blocks of bootstrap weights (resamples, units): how often each unit was drawn."""
    for part in blocks(n_resamples, max(1, 4_000_000 // n_units)):
        b = part.stop - part.start
        drawn = rng.integers(n_units, size=(b, n_units))
        drawn += np.arange(b)[:, None] * n_units
        flat = np.bincount(drawn.ravel(), minlength=b * n_units)
        yield flat.reshape(b, n_units).astype(np.float64)


def centred(samples: Float, value: float) -> Float:
    """Move resampled values so that their mean is the `value` on the cases themselves.

    Resampling adds noise of its own to an error of bins, the more the more bins are filled, so a
    difference of ECEs is drawn too far to the side of the method that fills fewer: the value itself
    can even lie outside the percentiles. What the draws show is the spread. The interval then is one
    of the difference to be expected at this number of cases.

    Examples
    --------
    >>> centred(np.array([1.0, 2.0, 6.0]), 0.5).tolist()
    [-1.5, -0.5, 3.5]
    """
    finite = samples[np.isfinite(samples)]
    if len(finite) == 0 or not np.isfinite(value):
        return samples
    return np.asarray(samples + (value - finite.mean()))


def effective_units(size: Float) -> float:
    """Number of equal units worth as much as units of these sizes: ``(sum n)^2 / sum n^2`` (Kish, 1965).

    Examples
    --------
    >>> effective_units(np.array([5.0, 5.0, 0.0])), effective_units(np.array([9.0, 1.0, 1.0]))
    (2.0, 1.4578313253012047)
    """
    squares = float((size**2).sum())
    return 0.0 if squares == 0.0 else float(size.sum()) ** 2 / squares


def standard_errors(size: Float, degrees: float = np.inf, level: float = 0.95) -> float:
    """How many standard errors to either side an interval over units of these sizes has.

    Student's t with ``effective_units - 1`` degrees of freedom, or fewer where `degrees` says so, and
    the correction of a variance that was divided by the number of units. NaN below `MIN_GROUPS`.

    Examples
    --------
    >>> round(standard_errors(np.ones(10)), 3), round(standard_errors(np.ones(1000)), 3)
    (2.385, 1.963)
    >>> standard_errors(np.ones(3))
    nan
    """
    if int((size > 0).sum()) < MIN_GROUPS:
        return float("nan")
    worth = effective_units(size)
    least = max(1.0, min(degrees, worth - 1.0))
    return float(stdtrit(least, (1 + level) / 2) * np.sqrt(worth / (worth - 1.0)))


def unit_degrees(parts: Float, size: Float) -> float:
    r"""Degrees of freedom of a standard error to which each unit adds its part.

    About :math:`2 (\sum d^2)^2 / (\sum d^4 - (\sum d^2)^2 / G)` of G units (Satterthwaite, 1946), few where a
    few units make most of the error, as where AUC is near 1; at most ``effective_units - 1``.

    Examples
    --------
    >>> unit_degrees(np.array([1.0, -1.0] * 5), np.ones(10)), unit_degrees(np.eye(10)[0], np.ones(10))
    (9.0, 2.2222222222222223)
    """
    second, fourth = float((parts**2).sum()), float((parts**4).sum())
    noise, degrees = fourth - second**2 / int((size > 0).sum()), np.inf
    if noise > 0:
        degrees = 2.0 * second**2 / noise
    return max(1.0, min(degrees, effective_units(size) - 1.0))


def unit_interval(
    value: float,
    parts: Float,
    size: Float,
    *,
    scale: Scale = "plain",
    worth: float | None = None,
) -> tuple[float, float]:
    r"""95 % interval of a statistic to whose error each unit adds its part.

    For a ratio of sums, :math:`\theta = \sum a_g / \sum n_g`, the parts are
    :math:`d_g = (a_g - \theta n_g) / \sum n_g` and the squared standard error is :math:`\sum d_g^2`, with
    `unit_degrees`.

    Parameters
    ----------
    value
        The statistic.
    parts, size
        (units,) what each adds to its error, summing to zero, and how many cases it has.
    scale
        A share that no case contradicts (0 or 1) has the end of Wilson's interval instead.
    worth
        Independent cases that such a share is worth; None: one to a unit.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=100)
    >>> low, high = unit_interval(x.mean(), (x - x.mean()) / 100, np.ones(100))
    >>> bool(abs((high - low) / 2 / (x.std(ddof=1) / 10) - 1.98) < 0.01)
    True
    """
    count = int((size > 0).sum())
    if not np.isfinite(value) or np.isnan(standard_errors(size)):
        return float("nan"), float("nan")
    # A sum over cases may miss 0 or 1 by rounding, in either direction.
    if scale == "logit" and not ROUNDING < value < 1.0 - ROUNDING:
        if worth is None:
            worth = count
        end = 1.0 / (1.0 + standard_errors(size) ** 2 / worth)
        if value > 0.5:
            return end, 1.0
        return 0.0, 1.0 - end
    half = standard_errors(size, unit_degrees(parts, size)) * float(np.sqrt((parts**2).sum()))
    if scale == "logit":
        middle, reach = logit(value), half / (value * (1.0 - value))
        return float(expit(middle - reach)), float(expit(middle + reach))
    if scale == "log" and value > 0.0:
        factor = float(np.exp(min(half / value, 700.0)))
        return value / factor, value * factor
    return value - half, value + half


def stretched(samples: Float, size: Float) -> Float:
    """Widen resampled values about their mean as few or unequal units demand; NaN below `MIN_GROUPS`.

    A bootstrap of G units has a variance smaller by 1 / G, and its percentiles are normal ones.

    Examples
    --------
    >>> stretched(np.array([-1.0, 1.0]), np.ones(10)).round(3).tolist()
    [-1.217, 1.217]
    """
    finite = samples[np.isfinite(samples)]
    if len(finite) == 0:
        return samples
    middle = finite.mean()
    return np.asarray(middle + (samples - middle) * standard_errors(size) / NORMAL_95)


def student_error(deviation: float, units: float) -> tuple[float, float]:
    """Standard error behind resamples that `stretched` widened, and its degrees of freedom.

    Such resamples are as wide as Student's t makes a 95 % interval; a wider interval, or a p-value, needs
    the error itself.

    Examples
    --------
    >>> error, degrees = student_error(1.0, 10)
    >>> round(float(stdtrit(degrees, 0.975)) * error, 6) == round(NORMAL_95, 6)
    True
    """
    degrees = max(1.0, units - 1.0)
    return deviation * NORMAL_95 / float(stdtrit(degrees, 0.975)), degrees


def student_p(value: float, error: float, degrees: float) -> float:
    """Two-sided p-value of Student's t that a value with this standard error is 0; NaN without error.

    Examples
    --------
    >>> round(student_p(-1.959964, 1.0, np.inf), 6), student_p(1.0, 0.0, 5.0)
    (0.05, nan)
    """
    if not error > 0.0:
        return float("nan")
    return 2.0 * float(stdtr(degrees, -abs(value) / error))


def interval(samples: Float, level: float = 0.95) -> tuple[float, float]:
    """Central percentile interval of resampled values; NaN values are left out.

    Examples
    --------
    >>> [round(end, 6) for end in interval(np.arange(101.0), 0.9)]
    [5.0, 95.0]
    """
    finite = samples[np.isfinite(samples)]
    if len(finite) == 0:
        return float("nan"), float("nan")
    lo, hi = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(lo), float(hi)


def two_sided_p(samples: Float) -> float:
    """Two-sided bootstrap p-value that the value is 0; never below 2 / (resamples + 1).

    Examples
    --------
    >>> two_sided_p(np.arange(1.0, 100.0))
    0.02
    """
    finite = samples[np.isfinite(samples)]
    if len(finite) == 0:
        return float("nan")
    side = min((finite <= 0.0).sum(), (finite >= 0.0).sum())
    return float(min(1.0, 2.0 * (side + 1) / (len(finite) + 1)))
