"""Tables as text: numbers as people read them, CSV safe in a spreadsheet, Markdown, LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def number(value: Any, digits: int = 3) -> str:
    """Format a number for a table; "-" if it is undefined.

    Examples
    --------
    >>> number(0.12345), number(float("nan")), number(1640), number(True)
    ('0.123', '-', '1,640', 'True')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    if isinstance(value, str | bool | np.bool_):
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    return f"{value:.{digits}f}"


def percent(value: float) -> str:
    """Write a probability as people say it; never as a certainty that it is not.

    Examples
    --------
    >>> percent(0.973), percent(0.9999), percent(0.002), percent(1)
    ('97 %', '> 99 %', '< 1 %', '100 %')
    """
    if 0 < value < 0.005:
        return "< 1 %"
    return "> 99 %" if 0.995 <= value < 1 else f"{100 * value:.0f} %"


def points(value: float) -> str:
    """Write a difference of probabilities in percentage points, without its sign.

    Examples
    --------
    >>> points(0.082), points(-0.17), points(0.004), points(0.01), points(0.0)
    ('8 points', '17 points', '0.4 points', '1 point', '0 points')
    """
    size = 100 * abs(value)
    text = f"{size:.0f}"
    if 0.05 <= size < 0.95:
        text = f"{size:.1f}"
    return f"{text} point" if text == "1" else f"{text} points"


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


def p_text(p: float) -> str:
    """Write a p-value as text has it.

    Examples
    --------
    >>> p_text(0.0004), p_text(0.2)
    ('p < 0.001', 'p = 0.200')
    """
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p_value(p)}"


def is_known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number: neither None nor NaN nor infinite.

    Examples
    --------
    >>> is_known(0.0), is_known(None), is_known(float("nan"))
    (True, False, False)
    """
    return value is not None and math.isfinite(value)


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words as a sentence has them.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a", "b"], "or"), listed(["a"])
    ('a, b and c', 'a or b', 'a')
    """
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


MAX_NAMED = 6
"""Levels, strata and other parts that a sentence names; of more it counts the others."""


def some_listed(words: Sequence[str]) -> str:
    """Join words as a sentence has them, of many the first and how many others there are.

    Examples
    --------
    >>> some_listed("abc"), some_listed("abcdefgh")
    ('a, b and c', 'a, b, c, d, e, f and 2 others')
    """
    if len(words) > MAX_NAMED:
        return some_of(words, MAX_NAMED)
    return listed(words)


def change_text(change: Mapping[str, Any] | None) -> str:
    """Write a change with its 95 % interval; "-" if there is none.

    Examples
    --------
    >>> change_text({"difference": -0.016, "low": -0.021, "high": -0.01})
    '-0.016 [-0.021, -0.010]'
    """
    if not change or change["difference"] is None:
        return "-"
    if not any(change[k] for k in ("difference", "low", "high")):
        return "0"
    if change["low"] is None:
        return f"{change['difference']:+.3f}"
    return "{difference:+.3f} [{low:+.3f}, {high:+.3f}]".format_map(change)


def interval_text(row: Mapping[str, Any], key: str, digits: int | None = None) -> str:
    """Write a number of a row with its interval, where it has one; small ones get a third digit.

    Examples
    --------
    >>> row = {"oe": 0.8738, "oe_low": 0.8247, "oe_high": 0.9258, "ici": 0.031, "auc": None}
    >>> interval_text(row, "oe"), interval_text(row, "ici"), interval_text(row, "auc")
    ('0.87 [0.82, 0.93]', '0.031', '-')
    """
    known = [row[name] for name in (key, f"{key}_low", f"{key}_high") if is_known(row.get(name))]
    if digits is None:
        digits = 2
        if max(map(abs, known), default=1.0) < 0.1:
            digits = 3
    # Adding 0 takes the sign off a zero.
    texts = [number(round(float(value), digits) + 0.0, digits) for value in known]
    if len(texts) < 3:
        return number(row.get(key), digits)
    return f"{texts[0]} [{texts[1]}, {texts[2]}]"


def estimate_text(row: Mapping[str, Any], key: str, digits: int = 2) -> str:
    """Write an estimate of a row with its 95 % interval, as papers have it; "" where it is unknown.

    Examples
    --------
    >>> estimate_text({"oe": 0.8738, "oe_low": 0.8247, "oe_high": 0.9258}, "oe")
    '0.87 (95 % CI 0.82 to 0.93)'
    >>> estimate_text({"auc": None}, "auc"), estimate_text({"ece": 0.0741}, "ece", 3)
    ('', '0.074')
    """
    if not is_known(row.get(key)):
        return ""
    text = number(float(row[key]), digits)
    ends = [row.get(f"{key}_{end}") for end in ("low", "high")]
    if all(is_known(end) for end in ends):
        low, high = (number(float(end), digits) for end in ends if end is not None)
        text += f" (95 % CI {low} to {high})"
    return text


def _plain_cell(value: Any) -> Any:
    """Return a cell as it is; text that a spreadsheet would run is made plain text."""
    if isinstance(value, str) and value.startswith(tuple("=+-@\t\r")):
        return "'" + value
    return value


def csv_text(frame: pd.DataFrame) -> str:
    """Write a frame as CSV that is safe to open in a spreadsheet.

    Examples
    --------
    >>> import pandas as pd
    >>> print(csv_text(pd.DataFrame({"a": ["=1+1", "x,y"], "b": [-0.5, None]})), end="")
    a,b
    '=1+1,-0.5
    "x,y",
    """
    safe = frame.astype(object).map(_plain_cell).rename(columns=_plain_cell)
    return safe.to_csv(index=False, lineterminator="\n")


def _rows(frame: pd.DataFrame) -> list[list[str]]:
    values = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    return [[re.sub(r"\s+", " ", number(value)) for value in row] for row in values]


def markdown_text(frame: pd.DataFrame) -> str:
    """Write a frame as a Markdown table; bars and line breaks in names are escaped.

    Examples
    --------
    >>> import pandas as pd
    >>> print(markdown_text(pd.DataFrame({"a|b": ["x"], "ECE": [0.1]})), end="")
    | a\\|b | ECE |
    | --- | --- |
    | x | 0.100 |
    """

    def line(values: Iterable[str]) -> str:
        safe = (v.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for v in values)
        return "| " + " | ".join(safe) + " |\n"

    rule = "|" + " --- |" * len(frame.columns) + "\n"
    return line(map(str, frame.columns)) + rule + "".join(map(line, _rows(frame)))


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    **{sign: f"${code}$" for sign, code in {"±": r"\pm", "†": r"^\dagger", "−": "-"}.items()},
    **{sign: f"${sign}$" for sign in "<>"},
}


def latex_escape(text: str) -> str:
    """Escape every sign that LaTeX would read as a command."""
    return "".join(_TEX.get(sign, sign) for sign in text)


def latex_text(frame: pd.DataFrame, *, align: str | None = None, blocks: bool = False) -> str:
    """Write a frame as a LaTeX tabular with booktabs rules; every special sign is escaped.

    Parameters
    ----------
    align
        "l" or "r" for each column; None: numbers to the right.
    blocks
        Draw a rule where the first column changes.

    Examples
    --------
    >>> import pandas as pd
    >>> print(latex_text(pd.DataFrame({"method": ["a_b"], "ECE": [0.1]})), end="")
    \\begin{tabular}{lr}
    \\toprule
    method & ECE \\\\
    \\midrule
    a\\_b & 0.100 \\\\
    \\bottomrule
    \\end{tabular}
    """

    def line(values: Iterable[str]) -> str:
        return " & ".join(map(latex_escape, values)) + r" \\" + "\n"

    kinds = align or "".join("r" if frame[c].dtype.kind in "fiu" else "l" for c in frame.columns)
    body, rows = "", _rows(frame)
    for i, row in enumerate(rows):
        body += "\\midrule\n" if blocks and i and row[0] != rows[i - 1][0] else ""
        body += line(row)
    return (
        f"\\begin{{tabular}}{{{kinds}}}\n\\toprule\n{line(map(str, frame.columns))}\\midrule\n{body}"
        "\\bottomrule\n\\end{tabular}\n"
    )


def some_of(names: Sequence[str], most: int = 10, mark: str = ", ") -> str:
    """List names, of many the first and how many others there are.

    Examples
    --------
    >>> some_of(["a", "b", "c"]), some_of(["a", "b", "c"], most=1)
    ('a, b, c', 'a and 2 others')
    """
    left = len(names) - most
    listed = mark.join(names[:most])
    return f"{listed} and {left:,} other{'s' * (left > 1)}" if left > 0 else listed
