"""Calibration by the levels of a column, such as sites or scanners: do they differ, and by how much?

Two questions, and two answers that do not depend on each other:

`heterogeneity` tests whether all levels share one recalibration line ``logit q = a + b logit p``, and
which levels differ from the others, in intercept or slope. Scores of both are freed of the common line's own
error and compared with their covariance: by the chi-square distribution where every level expects ten events
and non-events, by draws under the common line below that, and where cases come in groups by flipping the
signs of what whole groups add.

`spread_of` describes levels as a sample of many: how far their true values of log O:E lie apart, and in which
interval that of a new level is to be expected. The interval is that of Nagashima, Noma and Furukawa, which
draws the variance between levels from its confidence distribution: an interval that takes an estimate of it
as known is too narrow where levels are few. Their distribution is modified: a quarter of its draws are from
the part above zero (`ABOVE_ZERO`).

References
----------
Hemerik, Goeman, Finos (2020), JRSS B 82, 841-864 (tests by flipping the signs of effective scores).
Nagashima, Noma, Furukawa (2019), Statistical Methods in Medical Research 28, 1689-1702.
DerSimonian, Laird (1986), Controlled Clinical Trials 7, 177-188.
Hartung (1999), Biometrical Journal 41, 901-916. Higgins, Thompson, Spiegelhalter (2009), JRSS A 172, 137-159.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log, nan, sqrt

import numpy as np
from scipy.special import (
    chdtrc,
    expit,
    gammainc,
    gammaincinv,
    gammaln,
    stdtrit,
    xlog1py,
    xlogy,
)

from scalecal.checks import Float, Int, as_rng
from scalecal.metrics.arguments import Sample, blocks
from scalecal.metrics.grouping import flipped, group_totals, pooled, rank_p, too_few
from scalecal.metrics.label_scores import EPS
from scalecal.metrics.significance import MIN_EXPECTED, cox_line

MIN_EVENTS = MIN_EXPECTED
"""Expected events of the rarer outcome in a level below which its numbers are those of a small level."""

ABOVE_ZERO = 0.25
"""Share of the draws of the variance between levels that are taken from above zero.

The published distribution has none such: where most of its draws are zero its interval is too narrow.
"""

MIN_GROUPS_EACH = 6
"""Groups in a level, on average, below which levels are not tested: with four, up to .08 of calibrated models
would be rejected at the level .05."""

MIN_LEVELS = 3
"""Levels below which there is no interval for a new one."""

SPREAD_DRAWS = 20_000
"""Draws behind the interval for a new level: its ends vary by less than 1 % of its width."""


def logits_of(p: Float) -> Float:
    """Log-odds of probabilities, which are kept 2.2e-16 inside 0 and 1."""
    inside = np.clip(p, EPS, 1.0 - EPS)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def line_of(y: Float, p: Float) -> tuple[float, float]:
    """Intercept and slope of ``logit q = a + b logit p``; NaN where no line is best.

    Where all p are equal the slope is 1.

    Examples
    --------
    >>> line_of(np.array([0.0, 1.0, 1.0, 1.0]), np.full(4, 0.5))
    (1.0986122886681098, 1.0)
    """
    events = float(y.sum())
    if events in (0.0, float(len(y))):
        return nan, nan
    line = cox_line(Sample(y, p))
    if line is not None:
        return line
    if p.min() == p.max():
        return log(events / (len(y) - events)) - float(logits_of(p)[0]), 1.0
    return nan, nan


# Do levels differ?


@dataclass(frozen=True, eq=False)
class Heterogeneity:
    """Whether the levels of a column share one recalibration line.

    Attributes
    ----------
    statistic, degrees, p_value
        Of the test of all levels; NaN where it is undefined, and `reason` says why.
    p_levels
        (k,) each level's p-value against the others.
    expected
        (k,) expected events of the rarer outcome under the common line.
    method
        How p-values were found: "chi-square", "draws" or "sign flips".
    """

    statistic: float
    degrees: int
    p_value: float
    p_levels: Float
    expected: Float
    method: str = ""
    reason: str = ""
    line: tuple[float, float] = field(default=(nan, nan))


def heterogeneity(
    y: Float,
    p: Float,
    level: Int,
    n_levels: int,
    *,
    groups: Int | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Heterogeneity:
    r"""Test whether all levels share one recalibration line, and each level against the others.

    With the residuals :math:`r = y - q` of the common line, the rows :math:`x = (1, \mathrm{logit}\, p)` and
    :math:`v = q(1 - q)` a level has the score :math:`s_j = \sum_{i \in j} r_i x_i` of an intercept and a
    slope of its own, and the information :math:`M_j = \sum_{i \in j} v_i x_i x_i'`. Freed of the error of
    the common line the scores are :math:`U_j = s_j - M_j (\sum M)^{-1} \sum s`. Their covariance
    :math:`\mathrm{diag}(M_j) - (M_j (\sum M)^{-1} M_l)_{jl}` has the blocks :math:`M_j^{-1}` as a generalised
    inverse, so that Rao's statistic is :math:`\sum U_j' M_j^{-1} U_j`, of :math:`2 (k - 1)` degrees. A level
    against the others is the same with two levels. A level in which p hardly varies has no slope: its
    :math:`M_j` has rank 1, and the degrees are one less.

    Parameters
    ----------
    y, p
        (n,) outcomes 0 / 1 and probabilities.
    level
        (n,) number of each case's level, 0 .. n_levels - 1, each with a case.
    groups
        (n,) codes of groups, or None.
    n_resamples, seed
        For draws and sign flips.

    Examples
    --------
    Of three levels the last has a smaller slope, and as many events as it expects:

    >>> rng = np.random.default_rng(0)
    >>> z, level = rng.normal(size=3000), np.arange(3000) % 3
    >>> y = (rng.uniform(size=3000) < expit(z * (1.0 - 0.7 * (level == 2)))).astype(float)
    >>> found = heterogeneity(y, expit(z), level, 3)
    >>> found.p_value < 0.001, int(found.p_levels.argmin()), found.degrees
    (True, 2, 4)
    """
    blank = np.full(n_levels, nan)
    a, b = line_of(y, p)
    if np.isnan(a):
        reason = "the outcomes are all the same, or p separates them: no common line can be fitted"
        return Heterogeneity(nan, 0, nan, blank, blank, reason=reason)
    z = logits_of(p)
    q = expit(a + b * z)
    v, residual = q * (1.0 - q), y - q
    q_sum = np.bincount(level, q, n_levels)
    size = np.bincount(level, minlength=n_levels)
    expected = np.minimum(q_sum, size - q_sum)

    def failed(why: str) -> Heterogeneity:
        return Heterogeneity(nan, 0, nan, blank, expected, reason=why)

    if n_levels < 2:
        return failed("there is only one level")
    # About the mean and in units of the spread, so that rounding is no slope where all p are equal.
    z = z - v @ z / v.sum()
    z = z / max(sqrt(v @ z**2 / v.sum()), 1e-6)
    moments = [np.bincount(level, v * z**power, n_levels) for power in (0, 1, 1, 2)]
    information: Float = np.array(moments, dtype=np.float64).T.reshape(n_levels, 2, 2)
    others = np.tensordot(1.0 - np.eye(n_levels), information, 1)
    least = 1e-12 * float(v.sum())
    inverse, rank = _inverse(information, least)
    inverse_others, rank_others = _inverse(others, least)
    whole, line_rank = _inverse(information.sum(axis=0), least)
    degrees = int(rank.sum() - line_rank)
    if degrees < 1:
        return failed("one line fits these levels whatever their outcomes are")

    def freed(sums: Float) -> Float:
        """Scores (m, k, 2) without what they owe to the error of the common line."""
        return np.asarray(sums - np.einsum("jab,mb->mja", information @ whole, sums.sum(axis=1)))

    def statistics(scores: Float) -> tuple[Float, Float]:
        """Rao's statistic of all levels (m,), and of each against the others (m, k)."""
        own = np.einsum("mja,jab,mjb->mj", scores, inverse, scores)
        return own.sum(axis=1), own + np.einsum("mja,jab,mjb->mj", scores, inverse_others, scores)

    parts = (residual, residual * z)
    sums = np.array([np.bincount(level, part, n_levels) for part in parts], dtype=np.float64).T
    (statistic,), (each,) = statistics(freed(sums[None]))
    method, rng = "chi-square", as_rng(seed)
    if groups is not None:
        if why := _untestable(level, groups):
            return failed(why)
        method, pool = "sign flips", pooled(groups, rng)
        by_pool = freed(np.stack([group_totals(w, pool, level, n_levels) for w in parts], axis=2))
        flips = flipped(by_pool.reshape(len(by_pool), -1), n_resamples, rng)
        drawn, drawn_each = statistics(flips.reshape(-1, n_levels, 2))
    elif expected.min() < MIN_EVENTS:
        method = "draws"
        resampled = _drawn_sums(q, z, level, information, expected, n_resamples, rng)
        drawn, drawn_each = statistics(freed(resampled))
    if method == "chi-square":
        p_value = float(chdtrc(degrees, statistic))
        own_degrees = rank + rank_others - line_rank
        p_levels = np.where(own_degrees > 0, chdtrc(np.maximum(own_degrees, 1), each), nan)
    else:
        p_value = rank_p(drawn, statistic)
        p_levels = np.array([rank_p(drawn_each[:, j], each[j]) for j in range(n_levels)])
    return Heterogeneity(
        float(statistic), degrees, p_value, p_levels, expected, method, line=(a, b)
    )


def _inverse(information: Float, least: float) -> tuple[Float, Int]:
    """Generalised inverses of (..., 2, 2) and their ranks: a direction without information has none."""
    values, axes = np.linalg.eigh(information)
    known = values > np.maximum(least, 1e-9 * values[..., -1:])
    reciprocal = known / np.where(known, values, 1.0)
    inverse = (axes * reciprocal[..., None, :]) @ np.swapaxes(axes, -1, -2)
    return np.asarray(inverse), known.sum(axis=-1)


def _untestable(level: Int, groups: Int) -> str:
    """Why groups leave levels untested; "" where they do not."""
    if why := too_few(groups):
        return why
    pairs = np.unique(np.column_stack([level, groups]), axis=0)
    each = np.bincount(pairs[:, 0])
    # What differs between levels of one group each may be what differs between groups.
    if each.max() == 1:
        return "every level is a single group, and groups cannot be distinguished from levels"
    if each.mean() < MIN_GROUPS_EACH:
        return (
            f"too few groups in a level ({each.mean():.1f} on average, at least {MIN_GROUPS_EACH} are "
            "needed)"
        )
    return ""


def _drawn_sums(
    q: Float,
    z: Float,
    level: Int,
    information: Float,
    expected: Float,
    n_resamples: int,
    rng: np.random.Generator,
) -> Float:
    """Scores of outcomes drawn under the common line, (n_resamples, k, 2).

    Those of levels that expect many events are drawn from their normal limit.
    """
    out = np.empty((n_resamples, len(information), 2))
    for j, own in enumerate(information):
        if expected[j] >= 3 * MIN_EVENTS:
            values, axes = np.linalg.eigh(own)
            root = axes * np.sqrt(np.maximum(values, 0.0))
            out[:, j] = rng.standard_normal((n_resamples, 2)) @ root.T
            continue
        inside = np.flatnonzero(level == j)
        chance = q[inside]
        design = np.column_stack([np.ones(len(inside)), z[inside]])
        for part in blocks(n_resamples, max(1, 4_000_000 // len(inside))):
            shape = (part.stop - part.start, len(inside))
            out[part, j] = ((rng.random(shape, dtype=np.float32) < chance) - chance) @ design
    return out


# How far do they lie apart?


@dataclass(frozen=True)
class Spread:
    """Random effects of the levels, and the interval for a new one.

    Attributes
    ----------
    k
        Levels that count.
    mean, low, high
        Mean over levels with its 95 % interval (Hartung-Knapp).
    tau2
        Variance between levels, by DerSimonian and Laird.
    new_low, new_high
        95 % prediction interval for the true value of a new level.
    reason
        Why numbers are undefined; "" otherwise.
    """

    k: int
    mean: float = nan
    low: float = nan
    high: float = nan
    tau2: float = nan
    new_low: float = nan
    new_high: float = nan
    reason: str = ""


def pooled_mean(values: Float, variances: Float, tau2: Float) -> tuple[Float, Float]:
    """Mean and Hartung's standard error for each of several variances between levels.

    Examples
    --------
    >>> mean, error = pooled_mean(np.array([1.0, 2.0, 3.0]), np.ones(3), np.array([0.0, 5.0]))
    >>> mean.tolist(), error.round(4).tolist()
    ([2.0, 2.0], [0.5774, 0.5774])
    """
    weight = 1.0 / (variances + np.asarray(tau2)[..., None])
    total = weight.sum(axis=-1)
    mean = weight @ values / total
    squares = (weight * (values - mean[..., None]) ** 2).sum(axis=-1)
    return mean, np.sqrt(squares / (total * (len(values) - 1)))


def spread_of(
    values: Float, variances: Float, *, n_draws: int = SPREAD_DRAWS, seed: int = 0
) -> Spread:
    r"""Random effects of values with known variances, and the prediction interval for a new level.

    Cochran's :math:`Q = \sum w_j (y_j - \bar y)^2`, :math:`w_j = 1 / v_j`, is distributed as
    :math:`\sum_j (1 + \tau^2 \mu_j) c_j` with :math:`\mu_j` the nonzero eigenvalues of
    :math:`(I - uu') W (I - uu')`, :math:`u = \sqrt w / |\sqrt w|`, and :math:`c_j` independent chi-squares of
    one degree. So :math:`\tau^2 = \max(0, (Q - \sum c_j) / \sum \mu_j c_j)` has exactly the confidence
    distribution of Nagashima et al. (2019), without their numerical inversion, and a new level is
    :math:`\hat\mu(\tau^2) + \tau z - t_{k-1} SE(\tau^2)` with Hartung's standard error. That distribution is
    modified: `ABOVE_ZERO` of the draws are from its part above zero.

    Parameters
    ----------
    values, variances
        (k,) estimates and their squared standard errors.

    Examples
    --------
    >>> found = spread_of(np.array([-0.4, 0.1, 0.3, -0.1, 0.6]), np.full(5, 0.02))
    >>> round(found.tau2, 3), found.new_low < -0.7 < 0.9 < found.new_high
    (0.125, True)
    """
    k = len(values)
    if k < MIN_LEVELS:
        return Spread(k, reason=f"{k} levels, at least {MIN_LEVELS} are needed for an interval")
    weight = 1.0 / variances
    mean = float(weight @ values / weight.sum())
    q = float(weight @ (values - mean) ** 2)
    scale = float(weight.sum() - (weight**2).sum() / weight.sum())
    tau2 = max(0.0, (q - (k - 1)) / scale)
    centre, error = pooled_mean(values, variances, np.array([tau2]))
    half = float(stdtrit(k - 1, 0.975)) * float(error[0])
    root = np.sqrt(weight)
    unit = root / np.linalg.norm(root)
    keep = np.eye(k) - np.outer(unit, unit)
    # The smallest eigenvalue is the zero of the direction that the mean takes.
    mu = np.asarray(np.linalg.eigvalsh(keep @ np.diag(weight) @ keep)[1:], dtype=np.float64)
    rng = as_rng(seed)
    drawn = _between(q, mu, n_draws, rng)
    means, errors = pooled_mean(values, variances, drawn)
    new = means + rng.standard_normal(n_draws) * np.sqrt(drawn)
    new -= rng.standard_t(k - 1, size=n_draws) * errors
    low, high = np.quantile(new, [0.025, 0.975])
    at = float(centre[0])
    return Spread(k, at, at - half, at + half, tau2, float(low), float(high))


def _between(q: float, mu: Float, n_draws: int, rng: np.random.Generator) -> Float:
    """Draw the variance between levels, given Cochran's Q and its eigenvalues; the first above zero."""
    squares = rng.chisquare(1.0, size=(n_draws, len(mu)))
    total = squares.sum(axis=1)
    if q > 0.0:
        # The sum of the squares is independent of their shares, so it alone is drawn below Q.
        chance = rng.random(int(ABOVE_ZERO * n_draws))
        half = len(mu) / 2.0
        below = 2.0 * gammaincinv(half, chance * gammainc(half, q / 2.0))
        # Far below its mean the law of the sum is that of a power.
        below = np.where(below > 0.0, below, q * chance ** (1.0 / half))
        squares[: len(below)] *= (below / total[: len(below)])[:, None]
        total[: len(below)] = below
    return np.asarray(np.maximum(0.0, (q - total) / (squares @ mu)))


def log_ratios(
    events: Float, expected: Float, variance: Float, inflation: Float
) -> tuple[Float, Float]:
    r"""Estimates of log O:E of levels and their variances, which hold for few events and none.

    :math:`f(O) = \log(O + 1/2)` is compared with its mean under the common line, and divided by
    :math:`d E f / d \log E`: so it has no bias to first order where events are few, and its variance does
    not depend on the observed number (a variance of 1 / O gives levels with few events too much weight, and
    none to those without). O is taken as binomial with the mean and variance that the line gives it.

    Parameters
    ----------
    events
        (k,) observed events.
    expected, variance
        (k,) their mean and variance under the common line.
    inflation
        (k,) how much larger the variance is where cases come in groups.

    Examples
    --------
    >>> values, variances = log_ratios(
    ...     np.array([0.0, 400.0]), np.array([1.0, 400.0]), np.array([0.9, 300.0]), np.ones(2))
    >>> values.round(2).tolist(), variances.round(4).tolist()
    ([-1.26, 0.0], [0.9957, 0.0019])
    """
    values, variances = np.zeros(len(events)), np.zeros(len(events))
    for j, (mean, spread) in enumerate(zip(expected, variance, strict=True)):
        count, chance = _binomial(float(mean), float(spread))
        reach = 9.0 * sqrt(spread) + 9.0
        possible = np.arange(max(0, int(mean - reach)), min(count, int(mean + reach)) + 1)
        log_law = gammaln(count + 1) - gammaln(possible + 1) - gammaln(count - possible + 1)
        law = np.exp(log_law + xlogy(possible, chance) + xlog1py(count - possible, -chance))
        law /= law.sum()
        score = np.log(possible + 0.5)
        centre = float(law @ score)
        slope = float(law @ ((score - centre) * (possible - mean))) * mean / spread
        variances[j] = float(law @ (score - centre) ** 2) / slope**2 * inflation[j]
        values[j] = (np.log(events[j] + 0.5) - centre) / slope
    return values, variances


def ratio_spread(
    y: Float,
    p: Float,
    level: Int,
    n_levels: int,
    line: tuple[float, float],
    *,
    inflation: Float | None = None,
    n_draws: int = SPREAD_DRAWS,
    seed: int = 0,
) -> Spread:
    """Random effects of log O:E over levels; `line` is the common one, `inflation` that of groups."""
    q = expit(line[0] + line[1] * logits_of(p))
    events, expected, variance, claimed = (
        np.bincount(level, weights, n_levels).astype(np.float64)
        for weights in (y, q, q * (1.0 - q), p)
    )
    if inflation is None:
        inflation = np.ones(n_levels)
    # Where every probability is 0 or 1 a level has no ratio, or one without noise.
    uncertain = (variance > 1e-6) & (claimed > 1e-6)
    values, variances = log_ratios(
        events[uncertain], expected[uncertain], variance[uncertain], inflation[uncertain]
    )
    # O:E is against the model itself, not against the common line.
    values = values + np.log(expected[uncertain] / claimed[uncertain])
    return spread_of(values, variances, n_draws=n_draws, seed=seed)


def _binomial(mean: float, variance: float) -> tuple[int, float]:
    """Number of trials and chance of the binomial with this mean and about this variance."""
    spare = max(mean - variance, 1e-6 * mean)
    count = max(1, int(np.ceil(min(mean**2 / spare, 1e9) - 1e-9)), int(np.ceil(mean)))
    return count, mean / count


def inflation_of(y: Float, q: Float, level: Int, n_levels: int, groups: Int | None) -> Float:
    r"""How much larger the variance of each level's events is where cases of one group go together.

    :math:`1 + (m_j - 1) \rho` with :math:`m_j = \sum_g n_{jg}^2 / n_j` and one correlation :math:`\rho` for
    all levels, from the squares of what groups add to the residuals about their level's own rate. A
    level's own groups are often too few to tell. Levels of one group tell nothing of it: what their cases
    have in common is what differs between levels.
    """
    if groups is None:
        return np.ones(n_levels)
    rate = np.bincount(level, y, n_levels) / np.bincount(level, q, n_levels)
    residual = y - rate[level] * q
    cell = groups * n_levels + level
    _, code = np.unique(cell, return_inverse=True)
    of_level = np.zeros(int(code.max()) + 1, dtype=np.int64)
    of_level[code] = level
    sums, sizes = np.bincount(code, residual), np.bincount(code)
    variance = np.bincount(level, residual**2, n_levels)
    count = np.bincount(of_level, minlength=n_levels)
    largest = np.bincount(of_level, sizes.astype(np.float64) ** 2, n_levels)
    equivalent = largest / np.bincount(level, minlength=n_levels)
    several = count > 1
    between = np.bincount(of_level, sums**2, n_levels) * count / np.maximum(count - 1, 1)
    room = float((variance * (equivalent - 1.0))[several].sum())
    if room <= 0.0:
        return np.ones(n_levels)
    rho = float(np.clip((between - variance)[several].sum() / room, 0.0, 1.0))
    return np.asarray(1.0 + (equivalent - 1.0) * rho * several)
