r"""Cases that were sampled by class, and a population of another prevalence.

A study often holds more positives than the clinic sees. Given the share P of positives in the population,
a case stands for it with an importance weight by its class, :math:`w_1 = P / \pi` and
:math:`w_0 = (1 - P) / (1 - \pi)`, where :math:`\pi` is the share of positives in the sample. Weighted means
estimate those of the population. Such weights are no counts: they add no case, and each class's share is
known, so that only what varies within the classes is noise.

A model that is calibrated in the population has, in the sample, labels of the odds

.. math:: \frac{p_s}{1 - p_s} = \frac{p}{1 - p} \, \frac{\pi}{1 - \pi} \, \frac{1 - P}{P}

so that :math:`u = w (y - p)` has mean zero at every p. Sums :math:`U = \sum_i u_i h(p_i)` are then known to
vary, the numbers of cases of both classes :math:`n_0, n_1` being what they are, by

.. math:: V = \sum_i \left( p_s w_1^2 (1-p)^2 + (1-p_s) w_0^2 p^2 \right) h h'
          - \left( \frac{1}{\sum p_s} + \frac{1}{\sum (1 - p_s)} \right) K K',

with :math:`K = \sum_i p_s w_1 (1 - p) h`.

Floors and tests are of such sums: Cox's scores, Spiegelhalter's, Kuiper's walk, the bins of ECE.

References
----------
Prentice, Pyke (1979), Biometrika 66, 403-411 (odds in samples by class). Saerens, Latinne, Decaestecker
(2002), Neural Computation 14, 21-41 (probabilities at another prevalence). Holt, Smith (1979), JRSS A 142,
33-46 (post-stratification: weights by classes of known share, and their variances).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, expit

from scalecal.checks import Float, InputError, Int, as_rng
from scalecal.metrics.arguments import Sample, blocks
from scalecal.metrics.binning import bin_index
from scalecal.metrics.grouping import (
    dependence,
    draw_uniforms,
    flipped,
    group_totals,
    pair_covariance,
    pooled,
    quadratic_p,
    rank_p,
    read_groups,
    too_few,
)
from scalecal.metrics.label_scores import logits
from scalecal.metrics.resampling import (
    DRAWS_AT_ONCE,
    EXACT_CASES,
    ConsistencyBars,
    draw_normal,
)
from scalecal.metrics.significance import (
    KUIPER_STEPS,
    CalibrationTest,
    cox_line,
    walk_range,
)

Rows = NDArray[np.intp] | slice


@dataclass(frozen=True)
class ClassWeights:
    """Importance weights of both classes, and what sampling by class adds to a logit.

    Examples
    --------
    >>> weights = ClassWeights.of(np.array([0, 1] * 50), 0.1)
    >>> round(weights.negative, 3), round(weights.positive, 3), round(weights.offset, 3)
    (1.8, 0.2, 2.197)
    """

    negative: float
    positive: float
    offset: float

    @classmethod
    def of(cls, y: NDArray[Any], prevalence: float) -> ClassWeights:
        """Weights that give labels 0 / 1 the prevalence of a population."""
        share = float(np.mean(y))
        if not 0.0 < share < 1.0:
            raise InputError(
                "the cases are all of one class: they cannot be reweighted to a prevalence"
            )
        odds = share / (1.0 - share), prevalence / (1.0 - prevalence)
        return cls(
            (1.0 - prevalence) / (1.0 - share), prevalence / share, float(np.log(odds[0] / odds[1]))
        )

    def by_label(self, y: NDArray[Any]) -> Float:
        """The weight of each case."""
        return np.where(y == 1, self.positive, self.negative)

    def in_sample(self, p: Float) -> Float:
        """Probabilities in the sample of those in the population."""
        if self.offset == 0.0:  # not through logits, whose rounding would change draws
            return p
        return np.asarray(expit(logits(p) + self.offset))


class Reweighted:
    """All cases of a sample with the weights of their classes; tests are of some of them, `rows`.

    Parameters
    ----------
    y, p
        (n,) labels 0 / 1 and probabilities in the population.
    prevalence
        Share of positives in the population.
    groups
        (n,) codes of groups, or None.

    Attributes
    ----------
    weights : ClassWeights
        The weights of both classes.
    each : array (n,)
        The weight of each case.
    """

    def __init__(self, y: Int, p: Float, prevalence: float, groups: Int | None = None) -> None:
        self.y = y
        self.p = p
        self.prevalence = prevalence
        self.groups = groups
        self.weights = ClassWeights.of(y, prevalence)
        self.each = self.weights.by_label(y)
        self._n_positive = float((y == 1).sum())
        self._n_negative = len(y) - self._n_positive
        # u of the module's text for either label, the one seen, and its expected square.
        self._q = self.weights.in_sample(p)
        self._if_positive = self.weights.positive * (1.0 - p)
        self._if_negative = -self.weights.negative * p
        self._residual = np.where(y == 1, self._if_positive, self._if_negative)
        self._square = self._q * self._if_positive**2 + (1.0 - self._q) * self._if_negative**2

    @classmethod
    def of(cls, y: Int, p: Float, prevalence: float, groups: Int | None) -> Self | None:
        """The cases at a prevalence, or None if it is their own and all weights are one."""
        out = cls(y, p, prevalence, groups)
        if abs(out.weights.offset) <= 1e-9:
            return None
        return out

    def _common(self, h: Float) -> Float:
        """K of the module's text, (k,)."""
        return np.asarray((self._q * self._if_positive) @ h)

    def _variance(self, h: Float) -> Float:
        """V of the module's text, (k, k)."""
        common = self._common(h)
        alone = (h * self._square[:, None]).T @ h
        # Of the expected numbers of both classes: with those seen it need not be positive.
        expected = float(self._q.sum())
        apart = 1 / expected + 1 / (len(self._q) - expected)
        return np.asarray(alone - apart * np.outer(common, common))

    def _by_group(self, h: Float, groups: Int) -> Float:
        """What each group adds to U, less what its numbers of cases of both classes add: (groups, k)."""
        common = self._common(h)
        total = group_totals(self._residual[:, None] * h, groups)
        positive = group_totals((self.y == 1).astype(np.float64), groups)
        negative = group_totals((self.y == 0).astype(np.float64), groups)
        total -= positive * common / self._n_positive
        total += negative * common / self._n_negative
        return total

    def _columns(self, rows: Rows, *values: Float) -> Float:
        """Functions h of the cases as columns, 0 outside `rows`."""
        inside = np.zeros(len(self.y), dtype=bool)
        inside[rows] = True
        return np.column_stack([np.where(inside, v, 0.0) for v in values])

    def drawn_sums(
        self,
        rows: Rows,
        cell: Int,
        n_cells: int,
        *,
        n_bins: int = 15,
        n_resamples: int,
        rng: np.random.Generator,
    ) -> Float:
        """Sums of ``w (p - y*)`` of a calibrated model, by cell: (n_resamples, n_cells).

        Labels are drawn in the sample, going together in groups as the labels do. What the drawn number
        of positives adds is taken off, and likewise what the cases' own probabilities add to it, since
        the numbers of both classes are fixed. `cell` is of the cases in `rows`.
        """
        q, jump = self._q, self._if_positive - self._if_negative
        n = len(q)
        inside = np.zeros((n, n_cells), dtype=np.float32)
        index = np.arange(n)[rows]
        inside[index, cell] = 1.0
        common = np.bincount(cell, (q * self._if_positive)[rows], n_cells)
        tilt = (1 / self._n_positive + 1 / self._n_negative) * common
        code = read_groups(self.groups, n)
        if too_few(code):
            return np.full((n_resamples, n_cells), np.nan)
        share, _ = dependence(self.y, q, code, bin_index(q, n_bins=n_bins), n_bins)
        unit = code
        if unit is None:
            unit = np.arange(n)
        seen = group_totals(q - self._n_positive / n, unit)[:, 0]
        if n > EXACT_CASES:
            alone: Float = np.bincount(cell, self._square[rows], n_cells).astype(np.float64)
            spread = np.diag(alone) - np.outer(tilt, common)
            if code is not None and share > 0.0:
                spread += share * pair_covariance(q[rows], code[rows], cell, n_cells, jump[rows])
            return draw_normal(np.zeros(n_cells), spread, n_resamples, rng)
        inside *= jump[:, None].astype(np.float32)
        out = np.empty((n_resamples, n_cells))
        for part in blocks(n_resamples, max(1, DRAWS_AT_ONCE // n)):
            b = part.stop - part.start
            happened = draw_uniforms(b, n, code, share, rng) < q
            excess = happened.astype(np.float32) - q.astype(np.float32)
            count = excess.sum(axis=1) + sqrt(float(seen @ seen)) * rng.standard_normal(b)
            out[part] = count[:, None] * tilt - excess @ inside
        return out

    # Tests, each of the cases in `rows`

    def test(
        self,
        name: str,
        rows: Rows = slice(None),
        *,
        n_bins: int = 15,
        n_resamples: int = 1000,
        seed: int | np.random.Generator | None = 0,
    ) -> CalibrationTest:
        """Test calibration in the population by "cox", "kuiper", "spiegelhalter" or "consistency".

        The likelihood ratio of Cox's test is a score test here; its line is that of the highest weighted
        likelihood. With groups p-values are by flipping the signs of what these add
        (`scalecal.metrics.grouping`).

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> z = np.concatenate([rng.normal(1, 1, 200), rng.normal(-1, 1, 200)])
        >>> y = np.repeat([1, 0], 200)
        >>> as_sampled, at_ten = expit(2 * z), expit(2 * z + np.log(0.1 / 0.9))
        >>> [Reweighted(y, p, 0.1).test("cox").p_value < 0.05 for p in (as_sampled, at_ten)]
        [True, False]
        """
        details: dict[str, float] = {}
        if self.groups is not None and (why := too_few(self.groups[rows])):
            if name == "consistency":
                details = {"floor": nan, "floor_high": nan}
            return CalibrationTest(name, nan, nan, details, why)
        rng = as_rng(seed)
        if name == "consistency":
            return self._consistency(rows, n_bins, n_resamples, rng)
        if name == "kuiper":
            return self._kuiper(rows, n_bins, n_resamples, rng)
        p = self.p[rows]
        z = logits(self.p)
        if name == "cox":
            h = self._columns(rows, np.ones(len(z)), z)
            if np.ptp(z[rows]) < 1e-9:
                h = h[:, :1]
            if len(np.unique(self.y[rows])) < 2:
                return CalibrationTest("cox", nan, nan, reason="only one class is present")
            weighted = Sample(self.y[rows].astype(np.float64), p, self.each[rows])
            intercept, slope = cox_line(weighted) or (nan, nan)
            details = {"intercept": intercept, "slope": slope}
        else:
            h = self._columns(rows, 1.0 - 2.0 * self.p)
        total, variance = self._residual @ h, self._variance(h)
        inverse = np.linalg.pinv(variance, hermitian=True)
        statistic = float(total @ inverse @ total)
        if not inverse.any():
            return CalibrationTest(name, nan, nan, details, "all probabilities are 0 or 1")
        if self.groups is not None:
            drawn = flipped(self._by_group(h, pooled(self.groups, rng)), n_resamples, rng)
            p_value = quadratic_p(drawn, inverse, statistic)
        else:
            p_value = float(chdtrc(h.shape[1], statistic))
        if name == "spiegelhalter":
            statistic = float(np.copysign(sqrt(max(statistic, 0.0)), total[0]))
        return CalibrationTest(name, statistic, p_value, details)

    def _consistency(
        self, rows: Rows, n_bins: int, n_resamples: int, rng: np.random.Generator
    ) -> CalibrationTest:
        cell = bin_index(self.p[rows], n_bins=n_bins)
        size = float(self.each[rows].sum())
        error = float(np.abs(np.bincount(cell, self._residual[rows], n_bins)).sum()) / size
        drawn = self.drawn_ece(rows, n_bins=n_bins, n_resamples=n_resamples, seed=rng)
        details = {"floor": float(drawn.mean()), "floor_high": float(np.quantile(drawn, 0.95))}
        return CalibrationTest("consistency", error, rank_p(drawn, error), details)

    def _kuiper(
        self, rows: Rows, n_bins: int, n_resamples: int, rng: np.random.Generator
    ) -> CalibrationTest:
        cell = bin_index(self.p[rows], n_bins=KUIPER_STEPS, binning="mass")
        steps: Float = np.bincount(cell, self._residual[rows], KUIPER_STEPS).astype(np.float64)
        options: dict[str, Any] = {"n_resamples": n_resamples, "rng": rng}
        if self.groups is None:
            drawn = self.drawn_sums(rows, cell, KUIPER_STEPS, n_bins=n_bins, **options)
        else:
            inside = np.zeros((len(self.y), KUIPER_STEPS))
            inside[np.arange(len(self.y))[rows], cell] = 1.0
            drawn = flipped(self._by_group(inside, pooled(self.groups, rng)), n_resamples, rng)
        scale = sqrt(float(self._square[rows].sum()))
        spread = float(walk_range(steps[None])[0])
        if scale == 0.0:
            return CalibrationTest("kuiper", nan, nan, reason="all probabilities are 0 or 1")
        return CalibrationTest("kuiper", spread / scale, rank_p(walk_range(drawn), spread))

    def drawn_ece(
        self,
        rows: Rows = slice(None),
        *,
        n_bins: int = 15,
        n_resamples: int = 1000,
        seed: int | np.random.Generator | None = 0,
    ) -> Float:
        """ECEs that a calibrated model with these probabilities would show, (n_resamples,)."""
        cell = bin_index(self.p[rows], n_bins=n_bins)
        sums = self.drawn_sums(
            rows, cell, n_bins, n_bins=n_bins, n_resamples=n_resamples, rng=as_rng(seed)
        )
        return np.asarray(np.abs(sums).sum(axis=1) / self.each[rows].sum())

    def floor(self, rows: Rows = slice(None), **options: Any) -> float:
        """Mean of `drawn_ece`; NaN where the groups are too few."""
        return self.test("consistency", rows, **options).details["floor"]

    def consistency_bars(
        self,
        rows: Rows = slice(None),
        *,
        level: float = 0.9,
        n_bins: int = 15,
        n_resamples: int = 1000,
        seed: int | np.random.Generator | None = 0,
    ) -> ConsistencyBars:
        """As `scalecal.metrics.consistency_bars`, of weighted shares of positives."""
        cell = bin_index(self.p[rows], n_bins=n_bins)
        sums = self.drawn_sums(
            rows, cell, n_bins, n_bins=n_bins, n_resamples=n_resamples, rng=as_rng(seed)
        )
        weight = self.each[rows]
        mass = np.bincount(cell, weight, n_bins)
        mass[mass == 0.0] = np.nan
        mean = np.bincount(cell, weight * self.p[rows], n_bins) / mass
        tails = np.quantile(sums, [0.5 + level / 2, 0.5 - level / 2], axis=0)
        return ConsistencyBars(*np.clip(mean - tails / mass, 0.0, 1.0))
