"""Annotation files as text: every value as written, columns checked, numbers only where asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from scalecal.checks import InputError
from scalecal.io.tables import column_names, read_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["need_columns", "read_text_table", "whole_numbers"]


def read_text_table(path: Path) -> pd.DataFrame:
    """Read a table file with every value as text, so that ids and class names stay as written.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cases.csv"
    >>> _ = file.write_text("id;label\\n007;1\\nb;", encoding="utf-8-sig")
    >>> read_text_table(file).values.tolist()
    [['007', '1'], ['b', <NA>]]
    """
    table = read_table(path, text=column_names(path))
    # An empty cell may come as text of length nought, depending on quotes.
    return table.astype("string").replace("", None)


def need_columns(table: pd.DataFrame, columns: Iterable[str], path: Path) -> None:
    """Fail, naming what is there, unless the table has these columns."""
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(
            f"{path} has no column {', '.join(map(repr, missing))}. "
            f"It has: {', '.join(map(repr, table.columns))}"
        )


def whole_numbers(table: pd.DataFrame, column: str, path: Path) -> pd.Series[int]:
    """Return a column as whole numbers >= 0, NA where empty."""
    import pandas as pd

    values = pd.to_numeric(table[column], errors="coerce")
    bad = table[column].notna() & (values.isna() | (values < 0) | (values % 1 != 0))
    if bad.fillna(True).any():
        found = table[column][bad.fillna(True)].iloc[0]
        line = int(bad.fillna(True).to_numpy().argmax()) + 2
        raise InputError(
            f"{path}: column {column!r} must hold whole numbers >= 0, got {found!r} in row {line}"
        )
    return values.astype("Int64")
