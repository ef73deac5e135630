"""Tests of calibration, and Holm's correction for several of them.

Each test asks whether the labels could have come from the probabilities as they stand. For more
than two classes it tests the event "the top label is right". Labels must be hard: a share of an
event has no chance of its own.

Where cases come in groups (patients, slides) the tests take groups as independent, not cases: Cox's,
Kuiper's and Spiegelhalter's by flipping the signs of what whole groups add to their statistics, the
consistency test by labels drawn with the groups' dependence (`scalecal.metrics.grouping`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import erfc, exp, log, nan, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, expit, xlogy

from scalecal.checks import Float, InputError, Int, as_float, as_rng
from scalecal.limits import check_count
from scalecal.metrics.arguments import Sample, blocks, group_by_p, read_hard_event
from scalecal.metrics.binning import Binning, bin_index, residual_sums
from scalecal.metrics.grouping import (
    flipped,
    group_totals,
    pooled,
    quadratic_p,
    rank_p,
    read_groups,
    too_few,
)
from scalecal.metrics.label_scores import EPS
from scalecal.metrics.resampling import DRAWS_AT_ONCE, EXACT_CASES, Null


@dataclass(frozen=True)
class CalibrationTest:
    """The outcome of a test of calibration.

    Attributes
    ----------
    name : str
    statistic, p_value : float
        NaN where undefined; `reason` then says why.
    details : mapping of str to float
        What else the test estimated.
    reason : str
        Why the answer is undefined or not the usual one; empty otherwise.
    """

    name: str
    statistic: float
    p_value: float
    details: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


def _certain(name: str, contradicted: bool) -> CalibrationTest:
    """The result if all probabilities are 0 or 1."""
    if contradicted:
        return CalibrationTest(
            name, np.inf, 0.0, reason="a prediction with probability 0 or 1 is wrong"
        )
    return CalibrationTest(name, nan, nan, reason="all probabilities are 0 or 1")


def spiegelhalter(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> CalibrationTest:
    """Spiegelhalter's Z: is the Brier score what the probabilities say it should be?

    ``Z = sum (y - p)(1 - 2p) / sqrt(sum (1 - 2p)^2 p (1 - p))``, two-sided, standard normal. Blind
    to shifts that leave the Brier score as expected. With groups the variance is the sum of the
    squares of what each adds, and the p-value is by flipping their signs.

    Parameters
    ----------
    y : array of shape (n,)
    probs : array of shape (n,) or (n, C)
    groups : array of shape (n,), optional
        Patient, slide, ... of each case.
    n_resamples : int
    seed : int or Generator
        For flipping signs, with groups alone.
    sample_weight : array of shape (n,), optional
        How many cases each row stands for.

    References
    ----------
    Spiegelhalter (1986), Statistics in Medicine.

    Examples
    --------
    >>> result = spiegelhalter([0, 0, 1, 1], [0.2, 0.4, 0.6, 0.8])
    >>> round(result.statistic, 3), round(result.p_value, 3)
    (-1.091, 0.275)
    """
    event = read_hard_event(y, probs, sample_weight)
    total, variance = event.sums(
        lambda y, p: [(y - p) * (1.0 - 2.0 * p), (1.0 - 2.0 * p) ** 2 * p * (1.0 - p)]
    ).tolist()
    if variance == 0.0:
        return _certain("spiegelhalter", total != 0.0)
    code = read_groups(groups, len(event.p), event.weights)
    if code is not None:
        if reason := too_few(code):
            return CalibrationTest("spiegelhalter", nan, nan, reason=reason)
        rng = as_rng(seed)
        terms = (event.y - event.p) * (1.0 - 2.0 * event.p)
        sums = group_totals(terms, pooled(code, rng))
        drawn = np.abs(
            flipped(sums, check_count(n_resamples, "n_resamples", "resamples"), rng)[:, 0]
        )
        z = total / sqrt(float((sums**2).sum())) if total != 0.0 else 0.0
        return CalibrationTest("spiegelhalter", z, rank_p(drawn, abs(total)))
    z = total / sqrt(variance)
    return CalibrationTest("spiegelhalter", z, erfc(abs(z) / sqrt(2.0)))


def brownian_range_sf(x: float) -> float:
    """Return the chance that a Brownian motion on [0, 1] has a range above x.

    References
    ----------
    Feller (1951), Annals of Mathematical Statistics 22, 427-432.

    Examples
    --------
    >>> round(brownian_range_sf(2.4977), 3)
    0.05
    """
    if x <= 0.0:
        return 1.0
    if x < 2.0:  # two series of one law: each needs few terms on its side
        below = 0.0
        for k in range(20):
            c = ((k + 0.5) * pi) ** 2
            below += (8.0 / x**2 + 2.0 / c) * exp(-2.0 * c / x**2)
        return min(1.0, max(0.0, 1.0 - below))
    tail = sum((-1.0) ** (k - 1) * k * erfc(k * x / sqrt(2.0)) for k in range(1, 20))
    return min(1.0, max(0.0, 4.0 * tail))


MIN_EXPECTED = 10
"""Expected events, and non-events, from which the likelihood ratio of Cox's test is chi-square."""

KUIPER_STEPS = 256
"""Places at which Kuiper's walk is looked at where cases come in groups."""


def kuiper(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> CalibrationTest:
    """Kuiper's test: how far do residuals, added up in the order of p, wander?

    The statistic is the range (highest less lowest point, the start included) of the cumulative
    sum of ``y - p``, over ``sqrt(sum p (1 - p))``. Under calibration it tends to the range of a
    Brownian motion (the end is free, so not of a bridge). Cases of equal p are added in one step.
    A walk of few steps has a smaller range than its limit, so on few cases the test is conservative.
    With groups the walk is looked at after each of at most 256 steps of equal mass, and the p-value is
    by flipping the signs of what each group adds to the steps.

    Parameters as `spiegelhalter`.

    References
    ----------
    Arrieta-Ibarra, Gujral, Tannen, Tygert, Xu (2022), JMLR 23.

    Examples
    --------
    >>> result = kuiper([0, 0, 1, 1], [0.2, 0.4, 0.6, 0.8])
    >>> round(result.statistic, 3), round(result.p_value, 3)
    (0.671, 1.0)
    """
    event = read_hard_event(y, probs, sample_weight)
    code = read_groups(groups, len(event.p), event.weights)
    by_p = group_by_p(event)
    scale = sqrt(float((by_p.weight * by_p.p) @ (1.0 - by_p.p)))
    spread = float(walk_range((by_p.positive - by_p.weight * by_p.p)[None])[0])
    if scale == 0.0:
        return _certain("kuiper", spread > 0.0)
    if code is None:
        statistic = spread / scale
        return CalibrationTest("kuiper", statistic, brownian_range_sf(statistic))
    if reason := too_few(code):
        return CalibrationTest("kuiper", nan, nan, reason=reason)
    rng = as_rng(seed)
    cell = bin_index(event.p, n_bins=KUIPER_STEPS, binning="mass")
    sums = group_totals(event.y - event.p, pooled(code, rng), cell, KUIPER_STEPS)
    spread = float(walk_range(sums.sum(axis=0, keepdims=True))[0])
    drawn = walk_range(flipped(sums, check_count(n_resamples, "n_resamples", "resamples"), rng))
    return CalibrationTest("kuiper", spread / scale, rank_p(drawn, spread))


def walk_range(steps: Float) -> Float:
    """Range of each walk, its start included, from its steps: (walks, steps) in, (walks,) out."""
    walk = np.cumsum(steps, axis=1)
    return np.asarray(np.maximum(walk.max(axis=1), 0.0) - np.minimum(walk.min(axis=1), 0.0))


# In what follows the "probabilities" of the event are the logits z of the predictions.


def _log_likelihood(event: Sample, a: float, b: float) -> float:
    return float(event.sums(lambda y, z: [y * (a + b * z) - np.logaddexp(0.0, a + b * z)])[0])


def _derivatives(event: Sample, a: float, b: float) -> tuple[Float, Float]:
    """Gradient and information of the log likelihood in a and b."""

    def terms(y: NDArray[Any], z: Float) -> list[Float]:
        q = expit(a + b * z)
        residual, w = y - q, q * (1.0 - q)
        return [residual, residual * z, w, w * z, w * z * z]

    sums = event.sums(terms)
    return sums[:2], sums[[2, 3, 3, 4]].reshape(2, 2)


def _best_line(event: Sample, rate: float) -> tuple[float, float, float]:
    """Line ``a + b z`` of the highest likelihood and its log, by Newton steps shortened where needed.

    `rate` is the share of positives; the maximum must exist.
    """
    ends = np.array([event.p.min(), event.p.max()])
    # From (0, 1), or flatter where predictions are so sure that the likelihood has no curvature.
    starts = [(0.0, min(1.0, 8.0 / float(np.abs(ends).max()))), (log(rate / (1.0 - rate)), 0.0)]
    best, a, b = max((_log_likelihood(event, *start), *start) for start in starts)
    for _ in range(100):
        gradient, information = _derivatives(event, a, b)
        step = np.linalg.solve(information, gradient)
        promise = float(gradient @ step)
        if promise < 1e-9:  # twice what is still to gain
            break
        # No leap to where every case is certain, for lack of curvature there; nor a step that gains
        # far less than it promised.
        reach = 8.0 + float(np.abs(a + b * ends).max())
        size = min(1.0, reach / float(np.abs(step[0] + step[1] * ends).max()))
        while size > 1e-10:
            line = a + size * float(step[0]), b + size * float(step[1])
            reached = _log_likelihood(event, *line)
            if reached > best + 0.1 * size * promise:
                break
            size *= 0.5
        else:
            break
        (a, b), best = line, reached
    return a, b, best


def _boundary(event: Sample) -> float | None:
    """Return the highest log likelihood where no line attains it, else None.

    In one dimension that is where the two classes overlap in at most one value of z: a line of
    ever steeper slope then explains every case but those at that value.
    """
    z, positive = event.p, event.y == 1
    up, down = z[positive], z[~positive]
    if down.max() <= up.min():
        value = up.min()
    elif up.max() <= down.min():
        value = up.max()
    else:
        return None
    counts = event.weighed(np.ones(len(z)), slice(None))
    ones = float(counts[positive & (z == value)].sum())
    zeros = float(counts[~positive & (z == value)].sum())
    n = ones + zeros
    return float(xlogy(ones, ones / n) + xlogy(zeros, zeros / n))


def cox_line(sample: Sample) -> tuple[float, float] | None:
    """Intercept and slope of Cox's line; None where no finite line has the highest likelihood.

    Both classes must be present.

    Examples
    --------
    >>> sample = Sample(np.array([0, 1, 0, 1, 1, 0]), np.array([0.1, 0.2, 0.6, 0.7, 0.9, 0.3]))
    >>> round(cox_line(sample)[1], 3)
    0.785
    >>> cox_line(Sample(np.array([0, 1]), np.array([0.1, 0.2]))) is None
    True
    """
    event = _of_logits(sample)
    if _boundary(event) is not None:
        return None
    positives = float(event.weighed(event.y, slice(None)).sum())
    a, b, _ = _best_line(event, positives / event.total)
    return a, b


def _of_logits(event: Sample) -> Sample:
    """The same cases, without those of no weight, with logits in the place of probabilities."""
    if event.weights is not None and not event.weights.all():
        event = event.take(event.weights > 0)
    return replace(event, p=line_logits(event.p))


def line_logits(p: Float) -> Float:
    """Logits to which a recalibration line is fitted, of probabilities kept 2.2e-16 inside 0 and 1."""
    inside = np.clip(p, EPS, 1.0 - EPS)
    return np.asarray(np.log(inside / (1.0 - inside)))


def flip_scores(
    residual: Float, sd: Float, z: Float, groups: Int, n_resamples: int, rng: np.random.Generator
) -> tuple[float, float]:
    r"""Score statistic of a = 0, b = 1 for cases in groups, and its p-value by flipping signs.

    With residuals r, of standard deviation `sd` where the model is right, and
    :math:`U_g = \sum_{i \in g} r_i (1, z_i)` the statistic is :math:`U' V^{-1} U`,
    :math:`U = \sum_g U_g`. V is a working covariance (Liang, Zeger, 1986) in which the residuals of one
    group have one correlation, estimated from their products: it weighs intercept against slope, and
    since flipping signs leaves it as it is, the test holds if it is wrong. Scores divided by their
    own covariance (Hotelling's T-squared) reject too often where groups are few: V is then estimated
    from as many vectors, and the scores of the slope are skewed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> residual, groups = np.tile([0.5, -0.5], 16), np.arange(32) // 4
    >>> flip_scores(residual, np.full(32, 0.5), np.ones(32), groups, 99, rng)
    (0.0, 1.0)
    """
    line = np.column_stack([np.ones(len(z)), z])
    sums = group_totals(residual[:, None] * line, groups)
    spread = group_totals(sd[:, None] * line, groups)
    alone = (line * (sd**2)[:, None]).T @ line
    pairs = float((spread[:, 0] ** 2).sum() - (sd**2).sum())
    products = float((sums[:, 0] ** 2).sum() - (residual**2).sum())
    rho = float(np.clip(products / pairs, 0.0, 1.0)) if pairs > 0.0 else 0.0
    weight = np.linalg.pinv((1.0 - rho) * alone + rho * spread.T @ spread, hermitian=True)
    pool = pooled(np.arange(len(sums)), rng)
    drawn = flipped(group_totals(sums, pool), n_resamples, rng)
    total = sums.sum(axis=0)
    statistic = float(total @ weight @ total)
    return statistic, quadratic_p(drawn, weight, statistic)


def cox(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> CalibrationTest:
    """Cox's test: does ``logit q = a + b logit p`` fit better than a = 0, b = 1?

    The likelihood ratio against (0, 1), chi-square with 2 degrees of freedom. The best all-round
    test on few cases. ``details`` holds intercept a (above 0: probabilities too low) and slope b
    (below 1: too extreme). Probabilities are kept 2.2e-16 inside 0 and 1.

    Where p separates the classes no line is best, but the likelihood has a limit: the ratio is
    taken against that, and a and b are NaN. Where all p are equal the slope plays no part and
    there is one degree of freedom. Where fewer than `MIN_EXPECTED` events, or non-events, are expected, the
    p-value is that of the score test by labels drawn from p; so it is of one class, where a and b are NaN.

    With groups the statistic is that of the score test with a working correlation within groups, and its
    p-value is by flipping the signs of the groups' scores; a and b are the same.

    Parameters as `spiegelhalter`.

    References
    ----------
    Cox (1958), Biometrika 45, 562-565. Liang, Zeger (1986), Biometrika 73, 13-22. Hemerik, Goeman,
    Finos (2020), JRSS B 82, 841-864.

    Examples
    --------
    >>> result = cox([0, 1, 0, 1, 1, 0] * 9, [0.1, 0.2, 0.6, 0.7, 0.9, 0.3] * 9)
    >>> round(result.p_value, 3), round(result.details["slope"], 3)
    (0.577, 0.785)
    """
    event = read_hard_event(y, probs, sample_weight)
    code = read_groups(groups, len(event.p), event.weights)
    rng = as_rng(seed)
    draws = check_count(n_resamples, "n_resamples", "resamples")
    positives = float(event.weighed(event.y, slice(None)).sum())
    if positives in (0.0, event.total):
        reason = "only one class is present"
        details = {"intercept": nan, "slope": nan, "degrees": nan}
        if code is not None:
            return CalibrationTest("cox", nan, nan, details, reason)
        return CalibrationTest("cox", *_drawn_scores(event, draws, rng), details, reason)
    if code is None:
        event = _of_logits(event)
    else:
        event = replace(event, p=line_logits(event.p))
    z = event.p
    degrees, reason, a, b = 2, "", nan, nan
    limit = _boundary(event)
    if limit is None:
        a, b, best = _best_line(event, positives / event.total)
    else:
        best, reason = limit, "the probabilities separate the classes: no finite line is best"
        if z.min() == z.max():
            degrees, reason = 1, "all probabilities are equal: only the intercept is tested"
            a = float(np.log(positives / (event.total - positives)) - z[0])
    details = {"intercept": a, "slope": b, "degrees": float(degrees)}
    if code is not None:
        if few := too_few(code):
            return CalibrationTest("cox", nan, nan, details, few)
        p = expit(z)
        scores = flip_scores(event.y - p, np.sqrt(p * (1.0 - p)), z, code, draws, rng)
        return CalibrationTest("cox", *scores, details, reason)
    statistic = max(0.0, 2.0 * (best - _log_likelihood(event, 0.0, 1.0)))
    p_value = float(chdtrc(degrees, statistic))
    expected = float(event.sums(lambda _, z: [expit(z)])[0])
    if min(expected, event.total - expected) < MIN_EXPECTED:
        _, p_value = _drawn_scores(replace(event, p=expit(z)), draws, rng)
    return CalibrationTest("cox", statistic, p_value, details, reason)


def _drawn_scores(event: Sample, n_resamples: int, rng: np.random.Generator) -> tuple[float, float]:
    """Score statistic of a = 0, b = 1, and its p-value by labels drawn from the probabilities.

    Of few expected events the chi-square law is wrong, and of one class there is no likelihood ratio.
    Above `EXACT_CASES` cases the chi-square law of the scores has to do.
    """
    p, z = event.p, line_logits(event.p)
    times = np.ones(len(p))
    if event.weights is not None:
        times = event.weights
    # Centred z, so that a very small or large mean of z costs no digits.
    z = z - np.average(z, weights=times)
    line = np.column_stack([np.ones(len(p)), z])
    variance = (line * (times * p * (1.0 - p))[:, None]).T @ line
    inverse = np.linalg.pinv(variance, hermitian=True)
    scores = line.T @ (times * (event.y - p))
    statistic = float(scores @ inverse @ scores)
    if not inverse.any():
        return nan, nan
    if event.total > EXACT_CASES:
        return statistic, float(chdtrc(np.linalg.matrix_rank(variance), statistic))
    p, line = np.repeat(p, times.astype(np.int64)), np.repeat(line, times.astype(np.int64), axis=0)
    expected = p @ line
    drawn = np.empty((n_resamples, 2))
    for part in blocks(n_resamples, max(1, DRAWS_AT_ONCE // len(p))):
        uniform = rng.random((part.stop - part.start, len(p)), dtype=np.float32)
        drawn[part] = (uniform < p).astype(np.float64) @ line - expected
    return statistic, quadratic_p(drawn, inverse, statistic)


def consistency(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    n_bins: int = 15,
    binning: Binning = "width",
    n_resamples: int = 1000,
    seed: int | np.random.Generator | None = 0,
    sample_weight: ArrayLike | None = None,
) -> CalibrationTest:
    """Consistency resampling: is the ECE larger than a calibrated model's would be?

    Labels are drawn from the probabilities `n_resamples` times;
    ``p = (1 + #{ECE* >= ECE}) / (n_resamples + 1)``. ``details`` holds the noise floor, the 95th
    percentile of ECE*, and whether every label was drawn (1) or, above 100,000 cases, the bins'
    normal limit (0). With groups the drawn labels go together within a group (`noise_floor`).

    Parameters
    ----------
    y, probs, groups, sample_weight
        As `spiegelhalter`.
    n_bins : int
    binning : {"width", "mass"}
    n_resamples : int
    seed : int or Generator

    References
    ----------
    Broecker, Smith (2007), Weather and Forecasting. Vaicenavicius et al. (2019), AISTATS.

    Examples
    --------
    >>> consistency([0] * 50, [0.2] * 50).p_value < 0.01
    True
    """
    event = read_hard_event(y, probs, sample_weight)
    null = Null.of(event.p, event.y, groups, n_bins, binning, event.weights)
    error = float(np.abs(residual_sums(event, null.index, n_bins)).sum() / event.total)
    drawn = null.ece(null.residuals(n_resamples, seed))
    details = {
        "floor": null.floor(),
        "floor_high": float(np.quantile(drawn, 0.95)),
        "exact": float(event.total <= EXACT_CASES),
    }
    if reason := too_few(null.groups):
        return CalibrationTest("consistency", error, nan, details, reason)
    return CalibrationTest("consistency", error, rank_p(drawn, error), details)


def holm(p_values: ArrayLike) -> Float:
    """Return p-values adjusted for their number by Holm's step-down rule.

    NaN stays NaN and does not count as a test.

    Parameters
    ----------
    p_values : array of shape (k,)

    References
    ----------
    Holm (1979), Scandinavian Journal of Statistics 6, 65-70.

    Examples
    --------
    >>> holm([0.01, 0.04, float("nan"), 0.03])
    array([0.03, 0.06,  nan, 0.06])
    """
    p = as_float(p_values, "p_values")
    if p.ndim != 1:
        raise InputError(f"p_values must be 1-d, got shape {p.shape}")
    known = ~np.isnan(p)
    if ((p[known] < 0.0) | (p[known] > 1.0)).any():
        raise InputError("p_values must lie in [0, 1]")
    adjusted = np.full(len(p), nan)
    order = np.flatnonzero(known)[np.argsort(p[known], kind="stable")]
    k = len(order)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(k, 0, -1)), 1.0)
    return adjusted
