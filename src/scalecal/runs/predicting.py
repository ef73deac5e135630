"""Predictions of a saved probe as a table that `scalecal audit` reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Predictions
from scalecal.checks import InputError
from scalecal.io.store import write_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["predictions_table", "write_table"]


def predictions_table(predictions: Predictions) -> pd.DataFrame:
    """Return id, p (or p_<class>) and what is known of the cases: label, votes, group, split."""
    import pandas as pd

    cases, probs = predictions.cases, predictions.p
    table: dict[str, Any] = {"id": cases.names}
    for name, values in (("p", probs), ("p_reader", predictions.p_reader)):
        if values is not None:
            table |= _by_class(name, values, cases.classes)
    if cases.y is not None and (cases.y >= 0).any():
        names = np.array([*cases.classes, None], dtype=object)
        # One probability goes with labels 0 and 1; the class names are in the probe's own file.
        numbers = pd.Series(cases.y, dtype="Int64").mask(cases.y < 0)
        table["label"] = numbers if probs.ndim == 1 else names[cases.y]
    if cases.votes is not None:
        if len(cases.classes) == 2:
            table |= {"votes": cases.votes[:, 1], "n_raters": cases.votes.sum(axis=1)}
        else:
            table |= _by_class("votes", cases.votes, cases.classes)
    if cases.groups is not None:
        table["group"] = cases.groups.values
    if cases.split is not None:
        table["split"] = cases.split.values
    return pd.DataFrame(table)


def _by_class(name: str, values: NDArray[Any], classes: Sequence[str]) -> dict[str, NDArray[Any]]:
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{label}": values[:, c] for c, label in enumerate(classes)}


def write_table(
    table: pd.DataFrame, path: str | Path, *, inputs: Sequence[str | Path | None] = ()
) -> None:
    """Write CSV or Parquet by the file's ending; never to one of the `inputs`."""
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"predictions are written as .csv or .parquet, got {path.name}")
    content: str | bytes
    if path.suffix == ".csv":
        content = table.to_csv(index=False, lineterminator="\n")
    else:
        content = table.to_parquet(index=False)
    write_file(path, content, kind="predict", inputs=inputs)
