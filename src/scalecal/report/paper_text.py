"""A paragraph for a paper, with the numbers of a run filled in from its facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalecal.io.text import estimate_text, is_known, listed, number, percent

Row = Mapping[str, Any]

ESTIMATES = {
    "oe": "the observed-to-expected ratio (O:E)",
    "citl": "calibration in the large (offset of the logits, slope 1)",
    "slope": "the calibration slope",
    "ici": "the integrated calibration index",
    "auc": "the area under the ROC curve",
    "scaled_brier": "the scaled Brier score",
}
"""Columns of an audit -> their names in a paper, in the order of the paragraph."""

THREE_DIGITS = ("ece", "ici")
"""Estimates on the scale of probabilities, which need a third decimal."""

BY_INFLUENCE = ("oe", "citl", "slope", "scaled_brier")
"""Estimates whose intervals are from influence functions."""


def overall(cell: Row) -> Row:
    """Numbers of all cases, of the method that the verdict is about."""
    row: Row = cell["audits"][cell["judged"]]["rows"][0]
    return row


def measured(row: Row, key: str) -> str:
    """An estimate with its interval, and what a calibrated model would show, if the facts hold it.

    Examples
    --------
    >>> measured({"ece": 0.0741, "floor": 0.045}, "ece")
    '0.074 (expected of a calibrated model by chance: 0.045)'
    """
    digits = 3 if key in THREE_DIGITS else 2
    text = estimate_text(row, key, digits)
    floor = row.get("floor" if key == "ece" else f"{key}_floor")
    if text and is_known(floor):
        chance = f"expected of a calibrated model by chance: {number(floor, digits)}"
        if text.endswith(")"):
            text = f"{text[:-1]}; {chance})"
        else:
            text += f" ({chance})"
    return text


def counts(cell: Row) -> str:
    """Cases, groups and events, in words.

    Examples
    --------
    >>> row = {"n": 600, "n_groups": 60, "events": 223, "prevalence": 0.372}
    >>> counts({"judged": "m", "audits": {"m": {"rows": [row]}}})
    '600 cases of 60 groups with 223 events (37 %)'
    """
    row = overall(cell)
    text = f"{number(row['n'])} cases"
    if is_known(row.get("n_groups")):
        text += f" of {number(row['n_groups'])} groups"
    if is_known(row.get("events")):
        text += f" with {number(row['events'])} events"
        # At another prevalence the share is no longer that of these events.
        if cell.get("prevalence") is None:
            text += f" ({percent(row['prevalence'])})"
    return text


def readers(cell: Row) -> str:
    """How many readers there were, and how far they agreed; "" without votes."""
    meta = cell["audits"][cell["judged"]]["meta"]
    panel = meta.get("n_raters")
    if not panel:
        return ""
    text = f"{listed([str(m) for m in panel], 'or')} readers voted on each case"
    if is_known(meta.get("fleiss_kappa")):
        text += f" (Fleiss' kappa {number(meta['fleiss_kappa'], 2)})"
    return text


def intervals(cell: Row) -> str:
    """How the intervals of the paragraph were made; "" where it has none."""
    row = overall(cell)
    kinds = []
    if any(is_known(row.get(f"{key}_low")) for key in BY_INFLUENCE):
        kinds.append("from influence functions (sandwich estimator)")
    if is_known(row.get("auc_low")):
        kinds.append("for the area under the ROC curve by DeLong's method")
    if not kinds:
        return ""
    text = f"95 % confidence intervals (CI) are {listed(kinds)}"
    if is_known(row.get("n_groups")):
        text += ", both summed over groups" if len(kinds) > 1 else ", summed over groups"
    return text


def recalibration(cell: Row) -> str:
    """How the predictions were recalibrated; "" where the run did not.

    Examples
    --------
    >>> about = {"chosen": "platt", "n_folds": 5}
    >>> recalibration({"kind": "calibration", "judged": "auto", "calibration": about})
    'recalibration (platt, cross-fitted in 5 folds)'
    """
    if cell["kind"] != "calibration":
        return ""
    about = cell["calibration"] or {}
    text = f"recalibration ({about.get('chosen') or cell['judged']}"
    if about.get("n_folds"):
        text += f", cross-fitted in {about['n_folds']} folds"
    return f"{text})"


def whose(cell: Row) -> str:
    """Which probabilities the numbers are of."""
    text = f"the predictions of {cell['encoder']} on {cell['dataset']}"
    if cell["kind"] == "files":
        # Files are compared as methods, and their names are those of the data sets.
        text = f"the predictions in {cell['judged']}"
    elif cell["kind"] == "comparison":
        text += f" by {cell['judged']}"
    elif cell["kind"] == "calibration":
        text += f" after {recalibration(cell)}"
    if cell["n_seeds"] > 1:
        text += f", first of {cell['n_seeds']} seeds"
    return text


def paragraph(cell: Row) -> str:
    """Return methods and results of one model in sentences; what the facts lack is left out.

    `cell` is one of the ``cells`` of `scalecal.report.report_facts`.
    """
    row, meta = overall(cell), cell["audits"][cell["judged"]]["meta"]
    sentences = [
        f"Calibration of {whose(cell)} was assessed with scalecal {meta['version']} on {counts(cell)}"
    ]
    if cell.get("prevalence") is not None:
        sentences.append(f"Cases were reweighted to a prevalence of {percent(cell['prevalence'])}")
    sentences.append(readers(cell))
    error = measured(row, "ece")
    if error:
        sentences.append(f"The expected calibration error in {cell['n_bins']} bins was {error}")
    found = []
    for key, name in ESTIMATES.items():
        text = measured(row, key)
        if text:
            found.append(f"{name} was {text}")
    if found:
        text = "; ".join(found)
        sentences.append(text[0].upper() + text[1:])
    sentences.append(intervals(cell))
    return " ".join(f"{sentence}." for sentence in sentences if sentence)
