"""Predictions of a saved probe as a table that `scalecal audit` reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.checks import InputError
from scalecal.runs.fitted import FittedMethod
from scalecal.io.features import FeatureTable
from scalecal.io.store import write_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["predictions_table", "write_table"]


def predictions_table(fitted: FittedMethod, data: FeatureTable) -> pd.DataFrame:
    """Return id, p (or p_<class>) and what is known of the cases: label, votes, group, split."""
    import pandas as pd

    probs = fitted.predict_proba(data)
    classes = fitted.classes
    ids = np.arange(len(data)).astype(str) if data.ids is None else np.asarray(data.ids)
    table: dict[str, Any] = {"id": ids}
    if probs.ndim == 1:
        table["p"] = probs
    else:
        table |= {f"p_{name}": probs[:, c] for c, name in enumerate(classes)}
    if data.y is not None and (data.y >= 0).any():
        names = np.array([*classes, None], dtype=object)
        # One probability goes with labels 0 and 1; the class names are in the probe's own file.
        numbers = pd.Series(data.y, dtype="Int64").mask(data.y < 0)
        table["label"] = numbers if probs.ndim == 1 else names[data.y]
    if data.counts is not None:
        if len(classes) == 2:
            table |= {"votes": data.counts[:, 1], "n_raters": data.counts.sum(axis=1)}
        else:
            table |= {f"votes_{name}": data.counts[:, c] for c, name in enumerate(classes)}
    if data.groups is not None:
        table["group"] = np.asarray(data.group_names, dtype=object)[data.groups]
    if data.split is not None:
        table["split"] = data.split
    return pd.DataFrame(table)


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
