"""What is recommended: one rule for audit, compare and calibrate.

The label's answer `p` is chosen by label NLL and a reader's answer `p_reader` by vote NLL, each with the
lowest loss. Whether the gain is beyond chance (`sure`) allows for the number of candidates in both cases
alike: trying more of them cannot make a gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import stdtrit

from scalecal.evaluation.candidates import lowest
from scalecal.evaluation.judging import LEVEL
from scalecal.inference.units import student_error

JUDGES = {"p": "nll", "p_reader": "vote_nll"}
"""Answer -> the loss by which it is chosen."""


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
    method, tried = lowest(known), len(known) - 1
    out: dict[str, Any] = {"method": method, "metric": metric, "tried": tried}
    nothing = {"difference": 0.0, "low": 0.0, "high": 0.0, "sure": False}
    if method == baseline:
        return out | nothing
    change = changes[method]["overall"].get(metric)
    if change is None:
        return out | nothing | {"low": None, "high": None}
    high = _corrected_end(change, tried)
    ends = {key: change[key] for key in ("difference", "low", "high")}
    if not np.isfinite(change["low"]):
        ends |= {"low": None, "high": None}
    return out | ends | {"sure": bool(np.isfinite(high) and high < 0)}


def _corrected_end(change: Mapping[str, Any], tried: int) -> float:
    """Upper end of a change's interval, widened for the number of candidates (Bonferroni)."""
    error, degrees = student_error(change["sd"], change.get("units", np.inf))
    return float(change["difference"] + error * stdtrit(degrees, 1 - LEVEL / tried / 2))
