"""How many times as many cases it takes to call a calibrated model good.

After an inconclusive verdict this is the next question. Errors shrink with the square root of the number of
cases, so an audit's own standard errors say what they would be with more cases of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite, log, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, pdtrc, pdtri

from scalecal.checks import check_inside
from scalecal.evaluation.judging import BOUNDS, LEVEL, LIMIT, MIN_EVENTS, Facts, Row
from scalecal.inference.units import NORMAL_95
from scalecal.limits import MIN_GROUPS

_MAX_TIMES = 1e6
_NODES, _WEIGHTS = leggauss(200)


POWER = 0.8
"""Probability of being called good, of a calibrated model, that an inconclusive audit plans for."""

EVENTS_PLANNED = float(pdtri(MIN_EVENTS - 1, 1.0 - POWER))
"""Events to be expected so that there are `MIN_EVENTS` with that probability (Poisson)."""


class EnoughCases(NamedTuple):
    """Cases that would do: how many times the audit's, and how many; `reason` if that is unknown."""

    times: float
    n: float
    reason: str = ""


def probability_of_good(
    times: float,
    *,
    events: float,
    oe_se: float,
    citl_se: float,
    slope_se: float,
    error_high: float,
) -> float:
    r"""Probability that a calibrated model is called good with `times` as many cases.

    Scores of intercept and slope are normal and independent (the estimate of the slope with a free intercept
    is orthogonal to that of the intercept with slope 1); O:E goes with the intercept. An interval lies inside
    its bounds where the estimate is nearer to the truth than the bound, less 1.96 standard errors. No test
    rejects where :math:`z_0^2 + z_1^2` is below the chi-square quantile with 2 degrees of freedom.

    Examples
    --------
    >>> facts = {"events": 100, "oe_se": 0.07, "citl_se": 0.15, "slope_se": 0.15, "error_high": 0.08}
    >>> round(probability_of_good(1.0, **facts), 2), round(probability_of_good(8.0, **facts), 2)
    (0.0, 0.93)
    """
    if error_high / np.sqrt(times) > LIMIT:
        return 0.0
    shrunk = 1.0 / np.sqrt(times)
    # O:E and calibration in the large are two scales of one sum of residuals: the wider one binds.
    reach = BOUNDS["citl"][1] / (max(oe_se, citl_se) * shrunk) - NORMAL_95
    low = (BOUNDS["slope"][0] - 1.0) / (slope_se * shrunk) + NORMAL_95
    high = (BOUNDS["slope"][1] - 1.0) / (slope_se * shrunk) - NORMAL_95
    radius = float(np.sqrt(chdtri(2, LEVEL)))
    reach = min(reach, radius)
    if reach <= 0.0 or low >= high:
        return 0.0
    z = reach * _NODES
    inside = np.sqrt(radius**2 - z**2)
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    chance = ndtr(np.minimum(high, inside)) - ndtr(np.maximum(low, -inside))
    whole = reach * float(_WEIGHTS @ (density * np.maximum(chance, 0.0)))
    # The number of events is not planned: of so many times the cases it is about Poisson.
    return float(whole * pdtrc(MIN_EVENTS - 1, times * events))


def cases_for_good(
    n: float,
    *,
    events: float,
    oe_se: float,
    citl_se: float,
    slope_se: float,
    error_high: float,
    power: float = POWER,
) -> EnoughCases:
    """Find how many cases a calibrated model with such predictions needs to be called good.

    Parameters
    ----------
    n : float
        Cases of the audit; with groups the answer holds for patients alike.
    events : float
        Cases of the rarer outcome.
    oe_se, citl_se, slope_se : float
        Standard errors of log O:E, calibration in the large and slope; with groups those that allow for them.
        From a 95 % interval: its width over 2 times 1.96.
    error_high : float
        Upper end of the 95 % interval of the typical error.
    power : float
        Wanted probability of the verdict Good, at most 0.94: tests of a calibrated model reject in 5 %.

    Returns
    -------
    EnoughCases
        ``times`` as many cases and ``n``, 1 and `n` where these would do. NaN with a ``reason`` where a
        standard error is unknown.

    Examples
    --------
    >>> cases_for_good(1000, events=100, oe_se=0.07, citl_se=0.15, slope_se=0.15, error_high=0.08)
    EnoughCases(times=5.09..., n=5097, reason='')
    """
    check_inside(power, "power")
    facts = {
        "events": float(events),
        "oe_se": oe_se,
        "citl_se": citl_se,
        "slope_se": slope_se,
        "error_high": error_high,
    }
    unknown = [name for name, value in facts.items() if not (isfinite(value) and value > 0.0)]
    if unknown:
        return EnoughCases(
            nan, nan, f"{' and '.join(unknown)} cannot be estimated from these cases"
        )

    def lacking(log_times: float) -> float:
        return power - probability_of_good(float(np.exp(log_times)), **facts)

    most = log(_MAX_TIMES)
    if lacking(most) > 0.0:
        return EnoughCases(nan, nan, f"a probability of {power:g} is beyond reach")
    if lacking(0.0) <= 0.0:
        return EnoughCases(1.0, n)
    times = float(np.exp(brentq(lacking, 0.0, most, xtol=1e-6)))
    return EnoughCases(times, ceil(times * n))


def cases_to_settle(judged: Facts, rows: Sequence[Row]) -> dict[str, Any] | None:
    """How many cases would settle an inconclusive verdict, if the model is calibrated; None if unknown.

    Parameters
    ----------
    judged
        What `scalecal.evaluation.judging.judge` found.
    rows
        The rows of what it judged by ratios: all cases, or each class.

    Returns
    -------
    dict or None
        ``times`` as many cases, and ``n``; ``calibrated`` says for whom: a calibrated model, or one with
        the ratios that these cases show.
    """
    by_name = {row["name"]: row for row in rows}
    times = [1.0]
    # Where a part of the cases leaves an error possible, its upper end falls with the root of the cases.
    for part in judged["parts"]:
        if isfinite(part["high"]):
            times.append((part["high"] / LIMIT) ** 2)
    for subject in judged["subjects"]:
        row = by_name[subject["name"]]
        enough = cases_for_good(
            row["n"],
            events=subject["fewest"],
            oe_se=_log_error(row["oe_low"], row["oe_high"]),
            citl_se=(row["citl_high"] - row["citl_low"]) / (2 * NORMAL_95),
            slope_se=(row["slope_high"] - row["slope_low"]) / (2 * NORMAL_95),
            error_high=judged["error_high"],
            power=POWER,
        )
        if enough.reason and subject["fewest"] == 0 and row["n"] >= MIN_GROUPS:
            # Of one class the events alone can be planned: as many as are expected.
            expected = min(row["expected"], row["n"] - row["expected"])
            enough = EnoughCases(EVENTS_PLANNED / max(expected, 1e-6), nan)
        times.append(enough.times)
    if not judged["subjects"] or not all(map(isfinite, times)):
        return None
    most, calibrated = max(times), True
    if most <= 1.0:
        # A calibrated model would have been called good by now: what is left is where the estimates are.
        unsettled = [(by_name[subject["name"]], subject["open"]) for subject in judged["subjects"]]
        most = max((_times_for(row, key) for row, keys in unsettled for key in keys), default=nan)
        calibrated = False
    if not isfinite(most) or most <= 1.0:
        return None
    return {"times": most, "n": ceil(most * rows[0]["n"]), "calibrated": calibrated}


def _times_for(row: Row, key: str) -> float:
    """How many times as many cases bring the interval of a ratio inside its bounds, if the estimate stays."""
    if key == "events":
        return nan
    (low, high), value = BOUNDS[key], row[key]
    if not low < value < high:
        return nan
    below = (value - row[f"{key}_low"]) / (value - low)
    above = (row[f"{key}_high"] - value) / (high - value)
    return float(max(below, above) ** 2)


def _log_error(low: float, high: float) -> float:
    """Standard error of a logarithm, from the 95 % interval of the ratio."""
    if not (low > 0.0 and isfinite(high)):
        return nan
    return log(high / low) / (2 * NORMAL_95)
