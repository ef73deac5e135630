"""What the page's script works on: predictions and labels of single cases, packed small."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scalecal.metrics.arguments import read_hard_event
from scalecal.report.figures import PANEL
from scalecal.report.runs import Cell

__all__ = ["MOST_CASES", "case_arrays", "script_json"]

MOST_CASES = 20_000
"""Cases in the page at most; of more a random sample is taken, and the page says so."""


def script_json(value: Any) -> str:
    """Return JSON that cannot end its script element or open a comment in it.

    Examples
    --------
    >>> script_json({"id": "</script><!--"})
    '{"id":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def as_parsed(name: str) -> str:
    r"""Return a name as a page's attribute holds it: HTML turns every line ending into a newline.

    Examples
    --------
    >>> as_parsed("a\r\nb\rc")
    'a\nb\nc'
    """
    return name.replace("\r\n", "\n").replace("\r", "\n")


def _packed(values: Any, kind: str) -> str:
    return base64.b64encode(np.asarray(values).astype(kind).tobytes()).decode("ascii")


def case_arrays(
    cell: Cell, methods: Sequence[str], *, most_bytes: int
) -> tuple[dict[str, Any] | None, str]:
    """Pack p, label and stratum of the first seed's cases, for as many methods as there is room.

    Returns
    -------
    The arrays by method, base64 of little-endian float64 and uint8, or None where there is no room;
    and a sentence on what was left out ("" if nothing).
    """
    _, base = cell.first(methods[0])
    rows, note = base.rows, ""
    if len(rows) > MOST_CASES:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST_CASES, replace=False))
        note = f"The slider works on a random sample of {MOST_CASES:,} of {len(base.rows):,} cases."
    per_method = len(rows) * 9 * 4 // 3
    room = (most_bytes - len(rows) * 4 // 3) // max(per_method, 1)
    if room < 1:
        return None, "With this many cases and models the number of bins is fixed."
    out: dict[str, Any] = {
        "strata": [as_parsed(name) for name in cell.strata],
        "stratum": _packed(cell.codes[rows] + 1, "<u1"),
        "methods": {},
    }
    place = np.full(len(cell.y), -1)
    for method in methods[:room]:
        _, given = cell.first(method)
        place[:] = -1
        place[given.rows] = np.arange(len(given.rows))
        if (place[rows] < 0).any():
            continue  # tested on other cases, so it cannot share their labels and strata
        event = read_hard_event(cell.y[rows], given.probs[place[rows]])
        arrays = {"p": _packed(event.p, "<f8"), "y": _packed(event.y, "<u1")}
        out["methods"][as_parsed(method)] = arrays
    return out, note


def payload(cells: Mapping[str, Any]) -> str:
    """Return the script's data: geometry and every cell's arrays."""
    return script_json({"panel": PANEL, "cells": cells})
