"""CSV inside the page: links that hold their data, and cells that are safe in a spreadsheet."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["csv_cell", "csv_text", "data_uri"]


def csv_cell(value: Any) -> str:
    """One CSV cell, quoted where needed; text that a spreadsheet would run is made plain text.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell(-0.5), csv_cell("a,b")
    ("'=1+1", '-0.5', '"a,b"')
    """
    if value is None or (isinstance(value, float) and value != value):
        return ""
    text = str(value)
    if isinstance(value, str) and text[:1] in tuple("=+-@\t\r"):
        text = "'" + text
    if any(sign in text for sign in ',"\n\r'):
        text = '"' + text.replace('"', '""') + '"'
    return text


def csv_text(frame: pd.DataFrame) -> str:
    """Write a frame as CSV that is safe to open in a spreadsheet."""
    rows: list[Iterable[Any]] = [list(frame.columns), *frame.astype(object).to_numpy().tolist()]
    return "".join(",".join(map(csv_cell, row)) + "\n" for row in rows)


def data_uri(text: str) -> str:
    """CSV text as a link that needs no file."""
    return "data:text/csv;base64," + base64.b64encode(text.encode("utf-8")).decode("ascii")
