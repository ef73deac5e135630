"""The verdict on an audit's numbers: a badge, and everything that words need to explain it.

The badge is `attention` only where a test rejects after Holm's correction for all tests behind it, `good`
only where the cases suffice to rule out every error that matters, else `inconclusive`. Where findings are
rare no probability can be wrong by many points, so errors are judged as ratios too (`BOUNDS`): of two classes
over all cases, of more for each class. Here are numbers alone; `scalecal.evaluation.words` says them.

One rule recommends, for audit, compare and calibrate: `p` is chosen by label NLL and `p_reader` by vote
NLL, each with the lowest loss. Whether the gain is significant (`sure`) allows for the number of candidates
in both cases alike: trying more of them cannot make a gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, log, nan, sqrt
from typing import Any

import numpy as np
from scipy.special import stdtrit

from scalecal.inference.units import NORMAL_95, student_error
from scalecal.io.text import number
from scalecal.metrics import holm

LEVEL = 0.05
"""Level of the tests behind every verdict and sentence."""

LIMIT = 0.10
"""Typical error of the probabilities that matters: a model is good where larger ones are ruled out."""

SMALL = 0.02
"""Typical error that does not matter, however many cases prove it, if all ratios are in `SMALL_BOUNDS`."""

BOUNDS = {"oe": (1 / 1.5, 1.5), "citl": (-log(1.5), log(1.5)), "slope": (0.8, 1.25)}
"""Ratios inside which a model is good: observed to expected events, odds (as an offset of logits), slope."""

SMALL_BOUNDS = {"oe": (1 / 1.1, 1.1), "citl": (-log(1.1), log(1.1)), "slope": (1 / 1.1, 1.1)}
"""Ratios that do not matter, even where many cases prove them."""

BETWEEN = 1 / 3
"""Share of the level that tests between the levels of columns have, where there are any."""

COMMON = 0.1
"""Prevalence of the rarer class from which an error is described by confidence and accuracy."""

MIN_EVENTS = 50
"""Events, and non-events, below which no model is good, whatever its intervals."""

Row = Mapping[str, Any]
Facts = Mapping[str, Any]


def judge(
    rows: Sequence[Row],
    difficulty: Sequence[Row] = (),
    classes: Sequence[Row] = (),
    by: Sequence[Row] = (),
    *,
    agreement: bool,
    foreseen: bool = False,
    reader: bool = False,
    estimation_error: float = 0.0,
    unproven: bool = False,
    untied: int = 0,
) -> dict[str, Any]:
    """Judge an audit's rows (the first is `overall`).

    Parameters
    ----------
    rows, difficulty
        Strata, and strata of predicted difficulty judged by votes.
    classes
        Of more than two classes, the row of each against the rest.
    by
        What is said of each column of levels (`scalecal.evaluation.levels.column_facts`).
    agreement
        Whether the strata are of agreement.
    foreseen
        Whether difficulty is predicted by more than the probability that is judged.
    reader
        Whether votes judge a probability of their own.
    estimation_error
        Squared estimation error of a calibrator that was fitted to these cases
        (`scalecal.evaluation.estimation_error`); NaN where it is unknown.
    unproven
        Whether the calibrator could have memorised these cases: only others can show that it is good.
    untied
        Cases of even panels from which tied ones were left out (`scalecal.votes.without_ties`): their labels
        answer another question than `p`, and there is no verdict.

    Returns
    -------
    dict
        ``badge``; ``p`` (of all tests together); ``error`` and ``error_high`` (the typical error over all
        cases, chance removed, and the upper end of its 95 % interval); ``overall`` (whether all cases
        together fail) and ``kind`` (which way); ``subjects`` (what is judged by ratios: all cases, or each
        class); ``parts`` (strata that are tested: name, kind, n, p, high, whether each failed); ``failing``
        (names of all that failed); ``reader`` (whether only votes on a reader's probability fail); ``hint``
        (a sign of an error that may be chance); ``small`` (an error is proved that does not matter);
        ``uneven`` (columns whose levels differ);
        ``unproven`` and ``untied`` (as given).

    Examples
    --------
    >>> row = {"name": "overall", "n": 400, "p_cox": 0.2, "p_consistency": 0.6, "debiased_error": 0.001,
    ...        "debiased_error_high": 0.004, "events": 160, "oe": 1.0, "oe_low": 0.9, "oe_high": 1.1,
    ...        "citl": 0.0, "citl_low": -0.2, "citl_high": 0.2, "slope": 1.0, "slope_low": 0.85,
    ...        "slope_high": 1.15}
    >>> found = judge([row], agreement=False)
    >>> found["badge"], round(found["error_high"], 3)
    ('good', 0.063)
    """
    whole = _whole(rows[0], classes, estimation_error)
    subjects = _subjects(rows[0], classes)
    parts = _parts(rows, difficulty, agreement)
    judged = [part for part in parts if isfinite(part["p"])]
    least = min((part["p"] for part in judged), default=nan)
    # Differences between levels are a family of their own, with a fixed share of the level.
    columns, share = _columns(by), 1.0
    if columns:
        share = 1.0 - BETWEEN
    uneven = [column for column in columns if column["p"] < LEVEL]
    failing, overall = _rejected(whole["p"], judged, LEVEL * share)
    adjusted = [min(1.0, float(p) / share) for p in holm([whole["p"], least]) if isfinite(p)]
    adjusted += [column["p"] for column in columns]
    for part in parts:
        part["failed"] = part in failing
    for subject in subjects:
        subject["failed"] = overall and subject["p"] < LEVEL
    wrong = list(failing)
    if overall:
        wrong.insert(0, whole)
    material = [column["name"] for column in uneven if not column["small"]]
    # The hardest part is what an audit is for: without it nothing is good.
    hardest_known = not parts or isfinite(parts[-1]["p"])
    bounded = hardest_known and all(t["high"] <= LIMIT for t in (whole, *judged))
    bounded = bounded and bool(subjects) and not any(t["open"] for t in subjects)
    unadjusted = [whole["p"], least, *(BETWEEN * column["p"] for column in columns)]
    hint = not wrong and not uneven and any(p < LEVEL for p in unadjusted)
    small = bool(wrong) and bounded and all(t["high"] <= SMALL for t in (whole, *wrong))
    small = small and all(t["small"] for t in subjects)
    if untied:
        badge = "inconclusive"
    elif material or (wrong and not small):
        badge = "attention"
    elif bounded and not hint and not unproven:
        badge = "good"
    else:
        badge = "inconclusive"
    kind = error_kind(rows[0])
    if not classes and subjects:
        kind = subjects[0]["kind"]
    return {
        "badge": badge,
        "p": min(adjusted, default=nan),
        "error": whole["error"],
        "error_high": whole["high"],
        "overall": overall,
        "kind": kind,
        "subjects": subjects,
        "parts": parts,
        "uneven": material,
        "failing": [*(t["name"] for t in wrong), *material],
        "foreseen": foreseen,
        "reader": reader and any(part["kind"] == "votes" for part in failing),
        "hint": hint,
        "small": small,
        "unproven": unproven,
        "untied": untied,
    }


def _subjects(row: Row, classes: Sequence[Row]) -> list[dict[str, Any]]:
    """What is judged by ratios, the worst first: all cases of two classes, or each class of more.

    ``open`` names what keeps it from being good: ``events`` where they are too few, and each ratio whose
    interval is not inside `BOUNDS`. A stream of several classes has none.
    """
    judged = list(classes)
    if not classes and isfinite(row.get("events", nan)):
        judged = [row]
    adjusted = holm([class_row["p_cox"] for class_row in judged])
    out = []
    for subject, p in zip(judged, adjusted, strict=True):
        fewest = min(subject["events"], subject["n"] - subject["events"])
        unsettled = [key for key in BOUNDS if not _inside(subject, key, BOUNDS[key])]
        if fewest < MIN_EVENTS:
            unsettled.insert(0, "events")
        kind, size = _shape(subject)
        out.append(
            {
                "name": subject["name"],
                "n": subject["n"],
                "fewest": int(fewest),
                "p": float(p),
                "kind": kind,
                "size": size,
                "open": unsettled,
                "small": all(_inside(subject, key, SMALL_BOUNDS[key]) for key in SMALL_BOUNDS),
            }
        )
    return sorted(out, key=lambda subject: -subject["size"])


def _inside(row: Row, key: str, bounds: tuple[float, float]) -> bool:
    """Whether the 95 % interval of a ratio lies inside its bounds; without one it does not."""
    low, high = row.get(f"{key}_low", nan), row.get(f"{key}_high", nan)
    return bool(bounds[0] < low and high < bounds[1])


def _shape(row: Row) -> tuple[str, float]:
    """Which way probabilities are wrong, as a ratio, and how far (as a logarithm).

    Of an offset and a slope it is the one whose interval is further from being right; how far is the larger.
    """
    kind, clearest, size = "", 0.0, 0.0
    for key, right, ways in (("citl", 0.0, ("high", "low")), ("slope", 1.0, ("over", "under"))):
        low, high = row.get(f"{key}_low", nan), row.get(f"{key}_high", nan)
        if not (low > right or high < right):
            continue
        away = row[key] - right
        if key == "slope" and row[key] > 0:
            size = max(size, abs(log(row[key])))
        else:
            size = max(size, abs(away))
        # Half of the interval is how far chance alone may take it.
        clear = abs(away) / ((high - low) / 2)
        if clear > clearest:
            kind, clearest = ways[int(away > 0)], clear
    # Logits stretched about 0 move the mean of uncommon events too, but confidence says it plainly.
    stretched = error_kind(row)
    if stretched in ("over", "under") and COMMON <= row["prevalence"] <= 1.0 - COMMON:
        low, high = row.get("slope_low", nan), row.get("slope_high", nan)
        if low > 1.0 or high < 1.0:
            kind = stretched
    return kind, size


def _columns(by: Sequence[Row]) -> list[dict[str, Any]]:
    """Columns whose levels were tested for differences: name, p (adjusted), and whether these are small."""
    out = []
    for column in by:
        p = column["test"]["p_corrected"]
        if not isfinite(p):
            continue
        small = True
        for own in column["levels"]:
            if not own["small"]:
                inside = [_inside(own, key, SMALL_BOUNDS[key]) for key in ("oe", "slope")]
                small = small and all(inside)
        out.append({"name": column["column"], "p": p, "small": small})
    return out


def _rejected(
    p_whole: float, judged: Sequence[Row], level: float = LEVEL
) -> tuple[list[Row], bool]:
    """Parts that fail, and whether all cases together do: both families of tests at one level.

    Each has half of the level. What is rejected in full passes its half on to the other (Bretz et al., 2009,
    Statistics in Medicine 28), and a family without a test has none. Parts are corrected among themselves.
    """
    if not isfinite(p_whole):
        return [t for t in judged if t["p"] < level], False
    share = level if p_whole < level / 2 else level / 2
    failing = [t for t in judged if t["p"] < share]
    return failing, p_whole < (level if len(failing) == len(judged) else level / 2)


def overall_p(row: Row, classes: Sequence[Row] = ()) -> float:
    """The smallest p-value of the tests over all cases, corrected for their number.

    Two tests are of all cases; of more than two classes one is of each class.

    Examples
    --------
    >>> overall_p({"p_cox": 0.01, "p_consistency": 0.3})
    0.02
    """
    tests: list[float] = [row.get(key, nan) for key in ("p_cox", "p_consistency")]
    tests += [class_row["p_cox"] for class_row in classes]
    known = [p for p in tests if number(p) != "-"]
    if not known:
        return nan
    return min(1.0, len(known) * min(known))  # Bonferroni


def error_kind(row: Row) -> str:
    """Which way the predicted class is wrong, if an interval excludes 0 and Cox's slope agrees; else ""."""
    over, shift = interval_sign(row, "overconfidence"), interval_sign(row, "gap")
    slope = row.get("cox_slope", nan)
    # Logits stretched about 0 move each p away from 1/2, so over-confidence is the mean error and
    # the gap of the means no larger; logits shifted move each p one way, and it is the other way round.
    if over and abs(row["overconfidence"]) >= abs(row["gap"]) - 1e-9:
        if over > 0 and slope < 1.0:
            return "over"
        if over < 0 and slope > 1.0:
            return "under"
    return {1: "high", -1: "low", 0: ""}[shift]


def interval_sign(row: Row, name: str) -> int:
    """Sign of a difference whose interval excludes 0; else 0."""
    low, high = (row.get(f"{name}_{end}", nan) for end in ("low", "high"))
    return int(low > 0.0) - int(high < 0.0)


def _whole(row: Row, classes: Sequence[Row], estimation_error: float = 0.0) -> dict[str, Any]:
    """Test and typical error of all cases: the root of the debiased squared error, and of its upper end.

    Cross-fitted answers hide the estimation error of the calibrator that is kept, which adds to that end.
    """
    error, high = (row.get(f"debiased_error{end}", nan) for end in ("", "_high"))
    units = row.get("n_groups") or row["n"]
    out = {"name": "overall", "p": overall_p(row, classes), "error": nan, "high": nan}
    if isfinite(error):
        out["error"] = sqrt(max(error, 0.0))
    if isfinite(high) and isfinite(estimation_error):
        squared = max(high, 0.0) + estimation_error
        out["high"] = min(1.0, max(sqrt(squared), _least(units)))
    return out


def _least(n: int) -> float:
    """Error that n cases leave possible even where all agree: the end of Wilson's interval at 0 or 1."""
    return NORMAL_95**2 / (n + NORMAL_95**2)


def _parts(rows: Sequence[Row], difficulty: Sequence[Row], agreement: bool) -> list[dict[str, Any]]:
    """Parts of the cases that are tested, easiest first: by votes where these judge, else by their null."""
    if any(isfinite(t["p_votes_holm"]) for t in difficulty):
        voted = []
        for t in difficulty:
            if t["n"]:
                # The largest error against votes that the stratum leaves possible.
                gaps = [abs(float(t[f"vote_gap_{end}"])) for end in ("low", "high")]
                gaps += [abs(float(t[f"vote_overconfidence_{end}"])) for end in ("low", "high")]
                voted.append(_part("votes", t, t["p_votes_holm"], max(_least(t["n"]), *gaps)))
        return voted
    kind = "agreement" if agreement else "stratum"
    filled = [r for r in rows[1:] if r["n"]]
    return [_part(kind, r, r.get("p_null_holm", nan), _stratum_high(r)) for r in filled]


def _part(kind: str, row: Row, p: float, high: float) -> dict[str, Any]:
    return {"kind": kind, "name": row["name"], "n": row["n"], "p": p, "high": high}


def _stratum_high(row: Row) -> float:
    """The largest typical error of a stratum, beyond a calibrated model's, that its cases leave possible.

    What the null shows beyond the floor is by the choice of the stratum, and no error of the model. Errors
    add up to less than their sum, so that this takes off no more than there is.
    """
    high = row.get("debiased_error_high", nan)
    if not (isfinite(high) and isfinite(row.get("null", nan)) and isfinite(row["floor"])):
        return nan
    chosen = max(float(row["null"] - row["floor"]), 0.0)
    return max(sqrt(max(high, 0.0)) - chosen, _least(row.get("n_groups") or row["n"]))


# What is recommended

JUDGES = {"p": "nll", "p_reader": "vote_nll"}
"""Answer -> the loss by which it is chosen."""


def lowest(losses: Mapping[str, float]) -> str:
    """The candidate with the lowest loss; of equals the first, which does least.

    The lowest is taken even where it is lower by chance: asking for one standard error would lose more on
    miscalibrated models than it saves on calibrated ones.
    """
    return min(losses, key=lambda name: losses[name])


def recommend(
    losses: Mapping[str, Mapping[str, float]],
    changes: Mapping[str, Mapping[str, Mapping[str, Any]]],
    *,
    baseline: str,
) -> dict[str, Any] | None:
    """Choose for the label and for a reader's vote; None where there is nothing beside the baseline.

    Parameters
    ----------
    losses
        Metric -> method -> loss, of the baseline and of the methods that may be recommended.
    changes
        Method -> stratum -> metric -> change against the baseline (`paired_changes`).
    baseline
        What doing nothing is called.

    Returns
    -------
    dict
        ``p`` and ``p_reader`` (None where there is nothing to choose by): ``method``, ``metric``,
        ``tried`` (methods beside the baseline), ``difference``, ``low``, ``high`` (the change with its 95 %
        interval) and ``sure``.

    Examples
    --------
    >>> change = {"difference": -0.05, "low": -0.06, "high": -0.04, "sd": 0.005}
    >>> found = recommend({"nll": {"none": 0.5, "platt": 0.45}},
    ...                   {"platt": {"overall": {"nll": change}}}, baseline="none")
    >>> found["p"]["method"], found["p"]["sure"], found["p_reader"]
    ('platt', True, None)
    """
    out = {answer: _choice(metric, losses, changes, baseline) for answer, metric in JUDGES.items()}
    if out["p"] is None and out["p_reader"] is None:
        return None
    return out


def _choice(
    metric: str,
    losses: Mapping[str, Mapping[str, float]],
    changes: Mapping[str, Mapping[str, Mapping[str, Any]]],
    baseline: str,
) -> dict[str, Any] | None:
    known = {name: loss for name, loss in losses.get(metric, {}).items() if np.isfinite(loss)}
    if baseline not in known or len(known) < 2:
        return None
    method = lowest(known)
    change: Mapping[str, Any] | None = {"difference": 0.0, "low": 0.0, "high": 0.0, "sd": 0.0}
    if method != baseline:
        change = changes[method]["overall"].get(metric)
    return judged_choice(method, metric, change, tried=len(known) - 1)


def judged_choice(
    method: str, metric: str, change: Mapping[str, Any] | None, *, tried: int
) -> dict[str, Any]:
    """What is known of a choice among so many methods: its change, and whether the gain is beyond chance.

    `change` is the method's own, None where there is none.
    """
    out: dict[str, Any] = {"method": method, "metric": metric, "tried": tried}
    if change is None:
        return out | {"difference": 0.0, "low": None, "high": None, "sure": False}
    # The interval's upper end, widened for the number of candidates (Bonferroni).
    error, degrees = student_error(change["sd"], change.get("units", np.inf))
    high = change["difference"] + error * stdtrit(degrees, 1 - LEVEL / tried / 2)
    ends = {key: change[key] for key in ("difference", "low", "high")}
    if not np.isfinite(change["low"]):
        ends |= {"low": None, "high": None}
    return out | ends | {"sure": bool(np.isfinite(high) and high < 0)}
