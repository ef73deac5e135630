"""The levels of columns such as site, scanner or sex: their rows, whether they differ, and what serves them.

Every level has a row like a stratum's. For each column there is a test of whether its levels share one
recalibration line, the levels that differ from the others, the spread of O:E between levels with the
interval for a new one (`scalecal.inference.between_levels`), and whether a calibrator fitted to all other
levels serves a level as well as one of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from math import exp, nan
from typing import Any

import numpy as np
from scipy.special import expit, stdtrit

from scalecal.calibrators import CALIBRATORS
from scalecal.calibrators.base import as_logits
from scalecal.calibrators.crossfitting import crossfit, fold_numbers
from scalecal.cases import Cases, Factor, Predictions, rows_of
from scalecal.checks import Float, InputError, Int, ScalecalWarning
from scalecal.evaluation.judging import BETWEEN, BOUNDS, LEVEL
from scalecal.evaluation.rows import score
from scalecal.inference import between_levels
from scalecal.inference.units import Units, student_p, unit_degrees, unit_interval
from scalecal.io.text import is_known, some_of
from scalecal.metrics import holm
from scalecal.metrics.arguments import Sample, as_table, read_hard_event
from scalecal.metrics.clinical import observed_to_expected
from scalecal.metrics.label_scores import EPS
from scalecal.metrics.reweighting import Reweighted
from scalecal.votes import STRATA

MAX_LEVELS_TRIED = 20
"""Levels that are tried with a calibrator of their own at most: those of most cases."""

LEVEL_TESTS = ("cox", "consistency")
"""Calibration tests of a level: those of the verdict. The others would double the time of many levels."""

KEPT = (
    "n",
    "n_groups",
    "prevalence",
    "mean_p",
    "events",
    "expected",
    "oe",
    "oe_low",
    "oe_high",
    "slope",
    "slope_low",
    "slope_high",
    "gap",
    "gap_low",
    "gap_high",
    "ece",
    "floor",
    "excess",
    "auc",
    "nll",
    "reason",
)
"""Columns of a level's row that its facts repeat, so that a figure needs nothing else."""


def row_name(column: str, level: str) -> str:
    """Name of a level's row; strata are named as they are.

    Examples
    --------
    >>> row_name("site", "A"), row_name("stratum", "A")
    ('site=A', 'A')
    """
    if column == "stratum":
        return level
    return f"{column}={level}"


def level_names(cases: Cases) -> tuple[str, ...]:
    """Names of the rows of all levels that have cases, in their order."""
    return tuple(
        row_name(column, factor.names[code])
        for column, factor in cases.by.items()
        for code in _present(factor)
    )


def _present(factor: Factor) -> list[int]:
    """Codes of the levels that have cases, numbers by their value and before words."""
    codes = np.unique(factor.codes[factor.codes >= 0]).tolist()
    return sorted(codes, key=lambda code: _order(factor.names[code]))


def _order(name: str) -> tuple[int, float, str]:
    # "<40" and ">60" are the ends of a scale.
    end = {"<": -1, ">": 1}.get(name[:1], 0)
    try:
        return end, float(name), name
    except ValueError:
        return end, np.inf, name


def level_rows(
    predictions: Predictions,
    units: Units,
    reweighted: Reweighted | None,
    options: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The numbers of every level of every column, as those of a stratum."""
    cases, own = predictions.cases, predictions.only
    out = []
    for column, factor in cases.by.items():
        for code in _present(factor):
            inside = np.flatnonzero(factor.codes == code)
            test = None
            if reweighted is not None:
                test = partial(reweighted.test, rows=inside)
            numbers = score(
                predictions.y[inside],
                own.p[inside],
                rows_of(cases.votes, inside),
                units=units.within(inside),
                reader=rows_of(own.p_reader, inside),
                rho=own.rho,
                whole=False,
                tests=LEVEL_TESTS,
                test=test,
                **options,
            )
            out.append({"name": row_name(column, factor.names[code]), **numbers})
    return out


def check_names(names: Sequence[str], taken: Sequence[str]) -> None:
    """Fail where the row of a level would have the name of another row."""
    every = [*taken, *names]
    twice = [name for name in dict.fromkeys(every) if every.count(name) > 1]
    if twice:
        raise InputError(
            f"two rows of the audit would be called {some_of(twice)}: rename the stratum, the column or the "
            "level"
        )


def analysed_columns(cases: Cases) -> dict[str, Factor]:
    """Columns whose levels are compared: the given strata first, unless votes made them."""
    columns = {}
    # Votes select the cases of a stratum by their outcome, here or where the file was written.
    if (
        cases.strata is not None
        and not cases.agreement
        and not set(cases.strata.names) <= {*STRATA}
    ):
        columns["stratum"] = cases.strata
    return columns | dict(cases.by)


def column_facts(
    predictions: Predictions,
    units: Units,
    rows: Sequence[Mapping[str, Any]],
    *,
    reweighted: bool,
    n_resamples: int,
    seed: int,
) -> list[dict[str, Any]]:
    """What is said of each column: levels, heterogeneity, spread, and calibrators of their own.

    `rows` are those of all strata and levels; p-values of the levels are corrected over all columns (Holm).
    """
    by_name = {row["name"]: row for row in rows}
    out = []
    for column, factor in analysed_columns(predictions.cases).items():
        known = np.flatnonzero(factor.codes >= 0)
        if len(known) == 0:
            continue
        whole = len(known) == len(factor)
        kept, here = predictions, units
        if not whole:
            kept, here = predictions.take(known), units.within(known)
        codes = factor.codes[known]
        order = _present(factor)
        # Where each code stands in that order.
        level = np.argsort(order)[np.searchsorted(np.sort(order), codes)]
        names = [factor.names[code] for code in order]
        facts = _one_column(kept, here, level, names, reweighted, n_resamples, seed)
        facts |= {"column": column, "without": len(factor) - len(known)}
        for own in facts["levels"]:
            row = by_name[row_name(column, own["name"])]
            own["row"] = row["name"]
            own |= {key: row[key] for key in KEPT if key in row}
        out.append(facts)
    _correct(out)
    return out


def _one_column(
    predictions: Predictions,
    units: Units,
    level: Int,
    names: Sequence[str],
    reweighted: bool,
    n_resamples: int,
    seed: int,
) -> dict[str, Any]:
    event = read_hard_event(predictions.y, predictions.p)
    y, p, k = np.asarray(event.y, dtype=np.float64), event.p, len(names)
    found = between_levels.heterogeneity(
        y, p, level, k, groups=units.group, n_resamples=n_resamples, seed=seed
    )
    about = _level_facts(y, p, level, names, units, found)
    facts: dict[str, Any] = {
        "k": k,
        "levels": about,
        "test": {
            "statistic": found.statistic,
            "degrees": found.degrees,
            "p": found.p_value,
            "method": found.method,
            "reason": found.reason,
        },
    }
    if reweighted:
        why = "not computed at another prevalence"
        facts["spread"] = {"oe": {"k": k, "reason": why}}
        facts["calibrators"] = {"reason": why}
        return facts
    facts["spread"] = {"oe": _ratio_spread(y, p, level, k, units, found, seed)}
    facts["calibrators"] = _calibrators(predictions, units, level, about, seed)
    return facts


def _level_facts(
    y: Float,
    p: Float,
    level: Int,
    names: Sequence[str],
    units: Units,
    found: between_levels.Heterogeneity,
) -> list[dict[str, Any]]:
    """Each level's counts and its comparison with the others."""
    out = []
    for j, name in enumerate(names):
        inside = np.flatnonzero(level == j)
        events = float(y[inside].sum())
        expected = float(p[inside].sum())
        rarer = min(events, len(inside) - events)
        ratio, low, high = _ratio(y[inside], p[inside], units.within(inside))
        out.append(
            {
                "name": name,
                "n": len(inside),
                "events": events,
                "expected": expected,
                "oe": ratio,
                "oe_low": low,
                "oe_high": high,
                "p_others": float(found.p_levels[j]),
                # By what was expected alone a level of few events would pass for a large one.
                "small": bool(
                    min(rarer, np.nan_to_num(found.expected[j])) < between_levels.MIN_EVENTS
                ),
            }
        )
    return out


def _ratio(y: Float, p: Float, units: Units) -> tuple[float, float, float]:
    """Observed over expected events with its interval, as a row has them of two classes."""
    values = observed_to_expected(Sample(y, p))
    ratio = float(values.mean())
    size = units.size(np.ones(len(y)))[:, 0]
    parts = (units.total(values)[:, 0] - ratio * size) / len(y)
    return ratio, *unit_interval(ratio, parts, size, scale="log")


def _ratio_spread(
    y: Float,
    p: Float,
    level: Int,
    k: int,
    units: Units,
    found: between_levels.Heterogeneity,
    seed: int,
) -> dict[str, Any]:
    """Random effects of O:E over the levels."""
    if np.isnan(found.line[0]):
        return {"k": k, "reason": found.reason}
    q = expit(found.line[0] + found.line[1] * between_levels.logits_of(p))
    inflation = between_levels.inflation_of(y, q, level, k, units.group)
    spread = between_levels.ratio_spread(y, p, level, k, found.line, inflation=inflation, seed=seed)
    facts: dict[str, Any] = {
        "k": spread.k,
        "reason": spread.reason,
        "tau": float(np.sqrt(spread.tau2)),
    }
    for key in ("mean", "low", "high", "new_low", "new_high"):
        # O:E is its logarithm's exponential, where that is finite.
        facts[key] = exp(min(getattr(spread, key), 700.0))
    return facts


# One calibrator for all levels, or one of their own?


def _calibrators(
    predictions: Predictions,
    units: Units,
    level: Int,
    about: list[dict[str, Any]],
    seed: int,
) -> dict[str, Any]:
    """Add to each level how a calibrator of the other levels serves it; return who needs its own."""
    name = "platt"
    if predictions.p.ndim > 1:
        name = "temperature"
    facts: dict[str, Any] = {"calibrator": name, "reason": ""}
    if len(about) < 2:
        return facts | {"reason": "there is only one level"}
    z, y = as_logits(predictions.p), predictions.y
    largest = sorted(range(len(about)), key=lambda j: -about[j]["n"])[:MAX_LEVELS_TRIED]
    for j in sorted(largest):
        if not about[j]["small"]:
            about[j]["own"] = _tried(name, z, y, predictions.p, level == j, units, seed)
    return facts


def _tried(
    name: str, z: Float, y: Int, p: Float, inside: Any, units: Units, seed: int
) -> dict[str, Any]:
    """Changes of label NLL on one level: own calibrator against the others', and theirs against none."""
    here = np.flatnonzero(inside)
    groups = rows_of(units.group, here)
    own_units = units.within(here)
    blank = {"change": nan, "low": nan, "high": nan, "p": nan}
    with warnings.catch_warnings():
        # That a fold has no best temperature is no news of the model that is audited.
        warnings.simplefilter("ignore", ScalecalWarning)
        try:
            fold = fold_numbers(y[here], groups=groups, seed=seed)
            common = CALIBRATORS[name]().fit(z[~inside], y[~inside])
            fitted = crossfit(CALIBRATORS[name](), z[here], y[here], fold)[0].p
        except InputError as error:
            return {"reason": str(error), "own": blank, "common": blank, "margin": nan}
    shared = common.predict_proba(z[here])
    losses = [_losses(probs, y[here]) for probs in (p[here], shared, fitted)]
    event = read_hard_event(y[here], shared).p
    # What the largest error of the log-odds that does not matter costs, by the second derivative of the loss.
    margin = 0.5 * float((event * (1.0 - event)).mean()) * BOUNDS["citl"][1] ** 2
    return {
        "reason": "",
        "own": _change(losses[2] - losses[1], own_units),
        "common": _change(losses[1] - losses[0], own_units),
        "margin": margin,
    }


def _losses(probs: Float, y: Int) -> Float:
    table = np.clip(as_table(probs), EPS, 1.0)
    return np.asarray(-np.log(table[np.arange(len(y)), y]))


def _change(differences: Float, units: Units) -> dict[str, float]:
    """Mean difference of paired losses with its interval and p-value."""
    n = len(differences)
    mean = float(differences.mean())
    parts = units.total(differences - mean)[:, 0] / n
    size = units.size(np.ones(n))[:, 0]
    low, high = unit_interval(mean, parts, size)
    degrees = unit_degrees(parts, size)
    error = (high - low) / 2.0 / float(stdtrit(degrees, 0.975))
    return {"change": mean, "low": low, "high": high, "p": student_p(mean, error, degrees)}


# Corrections over all levels of all columns


def _correct(columns: list[dict[str, Any]]) -> None:
    """Add Holm's corrections over all levels of all columns, and what follows from them.

    ``p_holm`` of a column allows for all columns, ``p_corrected`` for the other tests behind the verdict too.
    """
    tests = [facts["test"] for facts in columns]
    for test, p in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = float(p)
        test["p_corrected"] = float(np.minimum(1.0, p / BETWEEN))  # NaN stays NaN
    every = [own for facts in columns for own in facts["levels"]]
    for own, p in zip(every, _compared(columns), strict=True):
        own["p_others_holm"] = p
    for facts in columns:
        # A level stands out only in a column whose levels differ: else the verdict would be contradicted.
        differ = facts["test"]["p_corrected"] < LEVEL
        for own in facts["levels"]:
            own["stands_out"] = bool(differ and own["p_others_holm"] < LEVEL)
    for facts in columns:
        # Whether one calibrator serves a column is a question of its own.
        tried = [own["own"]["own"] for own in facts["levels"] if "own" in own]
        for change, p in zip(tried, holm([change["p"] for change in tried]), strict=True):
            change["p_holm"] = float(p)
    for facts in columns:
        differ = facts["test"]["p_corrected"] < LEVEL
        for own in facts["levels"]:
            own["serves"] = "untried"
            if not facts["calibrators"]["reason"]:
                own["serves"] = _served(own, differ)
        of: dict[str, list[str]] = {"common": [], "own": [], "unclear": [], "small": []}
        for own in facts["levels"]:
            of.setdefault(own["serves"], []).append(own["name"])
        facts["calibrators"] |= of
        facts["stand_out"] = [own["name"] for own in facts["levels"] if own["stands_out"]]


def _compared(columns: Sequence[Mapping[str, Any]]) -> list[float]:
    """Corrected p-values of all levels; the two levels of a column have one comparison between them."""
    tests: list[float] = []
    place: list[int] = []
    for facts in columns:
        for j, own in enumerate(facts["levels"]):
            if not (j == 1 and facts["k"] == 2):
                tests.append(own["p_others"])
            place.append(len(tests) - 1)
    corrected = holm(tests)
    return [float(corrected[i]) for i in place]


def _served(own: Mapping[str, Any], differ: bool) -> str:
    """Which calibrator serves a level: "common", its "own", or "unclear"; "small" where none can be tried.

    A level needs its own only where the column's levels `differ`: a calibrator fitted to few other cases
    is worse than one fitted to many, whatever the levels are.
    """
    if own["small"]:
        return "small"
    if "own" not in own or not is_known(own["own"]["own"]["low"]):
        return "unclear"
    change = own["own"]["own"]
    if change["change"] < 0.0 and change["p_holm"] < LEVEL:
        if differ:
            return "own"
        return "unclear"
    # A gain that matters is ruled out.
    if change["low"] > -own["own"]["margin"]:
        return "common"
    return "unclear"


def level_notes(cases: Cases) -> list[str]:
    """Say how many cases have no level of a column."""
    notes = []
    for column, factor in cases.by.items():
        missing = int((factor.codes < 0).sum())
        if missing:
            notes.append(
                f"{missing:,} of {cases.n:,} cases have no {column} and count in none of its levels."
            )
    return notes
