"""An audit in words: the table a person reads and the sentences below it.

A sentence claims no more than its test bears: a stratum fails only where it is worse than a
calibrated model would look there, selection and finite numbers included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["LEVEL", "number", "p_value", "sentences", "table"]

LEVEL = 0.05
"""Level of the tests behind the sentences."""

Row = Mapping[str, Any]

_COLUMNS = (
    ("stratum", "name"),
    ("n", "n"),
    ("prev.", "prevalence"),
    ("mean p", "mean_p"),
    ("ECE", "ece"),
    ("floor", "floor"),
    ("excess", "excess"),
    ("null", "null_mean"),
    ("p(null)", "p_selection_holm"),
    ("p(Cox)", "p_cox_holm"),
    ("over-conf.", "overconfidence"),
    ("Brier", "brier"),
    ("NLL", "log_loss"),
    ("AUC", "auc"),
    ("acc.", "accuracy"),
    ("vote NLL", "vote_nll"),
)


def number(value: Any, digits: int = 3) -> str:
    """Format a number for a table; "-" where it is undefined.

    Examples
    --------
    >>> number(0.12345), number(float("nan")), number(164)
    ('0.123', '-', '164')
    """
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "-"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, str):
        return value
    return f"{value:.{digits}f}"


def p_value(value: Any) -> str:
    """Format a p-value.

    Examples
    --------
    >>> p_value(0.0004), p_value(0.2)
    ('<0.001', '0.200')
    """
    if isinstance(value, float) and value < 0.001:
        return "<0.001"
    return number(value)


def table(rows: Sequence[Row], references: Sequence[Row] = ()) -> str:
    """Lay the strata out as text, one line each, with the reference predictors below."""
    used = [
        (title, key)
        for title, key in _COLUMNS
        if key in ("name", "n") or any(number(r.get(key)) != "-" for r in rows)
    ]
    lines = [[title for title, _ in used]]
    for row in rows:
        lines.append([(p_value if k.startswith("p_") else number)(row.get(k)) for _, k in used])
    for reference in references:
        lines.append([number(reference.get(k)) if k in reference else "" for _, k in used])
    widths = [max(len(line[j]) for line in lines) for j in range(len(used))]
    text = []
    for i, line in enumerate(lines):
        cells = [
            cell.ljust(w) if j == 0 else cell.rjust(w)
            for j, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
        if i in (0, len(rows)) and i < len(lines) - 1:
            text.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(text)


def _overall(row: Row) -> str:
    cases = "1 case" if row["n"] == 1 else f"{number(row['n'])} cases"
    start = (
        f"Overall ECE is {number(row['ece'])} on {cases}, where a calibrated model would show "
        f"{number(row['floor'])} on average"
    )
    tests = [row[k] for k in ("p_cox", "p_consistency") if np.isfinite(row[k])]
    if not tests:
        return start + "; no test of calibration is defined here."
    p = min(1.0, min(tests) * len(tests))
    if p >= LEVEL:
        return (
            start
            + f": these cases show no miscalibration that the tests can tell (p {_equals(p)})."
        )
    slope = row.get("cox_slope", float("nan"))
    kind = ""
    if np.isfinite(slope) and row["p_cox"] < LEVEL:
        kind = (
            ", mostly over-confident"
            if slope < 0.9
            else ", mostly under-confident"
            if slope > 1.1
            else ""
        )
    return start + f": it is miscalibrated{kind} (p {_equals(p)})."


def _equals(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p_value(p)}"


def _strata(rows: Sequence[Row], agreement: bool) -> str:
    the, what = ("", "agreement") if agreement else ("the ", "stratum")
    judged = [r for r in rows if np.isfinite(r.get("p_selection_holm", float("nan")))]
    if not judged:
        return "No stratum can be judged against a calibrated model."
    failing = [r for r in judged if r["p_selection_holm"] < LEVEL]
    if failing:
        listed = "; ".join(
            f"{the}{r['name']} {what} (n = {number(r['n'])}): ECE {number(r['ece'])} against "
            f"{number(r['null_mean'])}, p {_equals(r['p_selection_holm'])}"
            for r in failing
        )
        return f"It is worse than a calibrated model would look in the same strata on {listed}."
    worst = max(judged, key=lambda r: float(r["ece"]))
    return (
        f"No stratum is measurably worse than a calibrated model would look there: the largest ECE, "
        f"{number(worst['ece'])} on {the}{worst['name']} {what} (n = {number(worst['n'])}), compares with "
        f"{number(worst['null_mean'])} for a calibrated model (p {_equals(worst['p_selection_holm'])})."
    )


def _left_out(rows: Sequence[Row]) -> str | None:
    hard = next((r for r in rows if r["name"] == "low"), None)
    if hard is None or not np.isfinite(hard.get("lvo_overconfidence", float("nan"))):
        return None
    gap = hard["lvo_overconfidence"]
    way = "exceeds" if gap > 0 else "falls short of"
    return (
        f"Judged by votes kept out of the strata, its confidence on low agreement {way} the share of "
        f"readers who side with it by {number(abs(gap))} (vote NLL {number(hard['lvo_vote_nll'])})."
    )


def sentences(rows: Sequence[Row], *, agreement: bool) -> list[str]:
    """Two or three plain sentences on an audit's rows (the first is `overall`)."""
    said = [_overall(rows[0])]
    if len(rows) > 1:
        said.append(_strata(rows[1:], agreement))
        left = _left_out(rows[1:])
        if left:
            said.append(left)
    return said
