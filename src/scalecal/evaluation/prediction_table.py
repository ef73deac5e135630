"""Predictions as a table that `scalecal audit` reads again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.calibrators.base import as_logits
from scalecal.cases import Predictions
from scalecal.checks import InputError
from scalecal.io.store import write_file
from scalecal.panel import split_probability, vote_log_pmf

if TYPE_CHECKING:
    import pandas as pd


def predictions_table(
    predictions: Predictions, *, n_raters: ArrayLike | None = None, votes_law: int | None = None
) -> pd.DataFrame:
    """Return id, p and p_reader (by class), and what is known of the cases: label, votes, group, split.

    Parameters
    ----------
    predictions
        A model's answers.
    n_raters
        Readers of the panel whose split is predicted: adds ``p_split`` beside ``rho``, where there is
        a reader's answer and the cases have none yet.
    votes_law
        Readers m whose votes are predicted: adds ``p_votes_0`` .. ``p_votes_m``, the probabilities of k
        positive votes (``p_votes_<class>_k`` with more than two classes).
    """
    import pandas as pd

    cases, own = predictions.cases, predictions.only
    probs, reader = own.p, own.p_reader
    table: dict[str, Any] = {"id": cases.names, **_by_class("p", probs, cases.classes)}
    if reader is not None:
        logits, rho = as_logits(reader), own.rho
        table |= {**_by_class("p_reader", reader, cases.classes), "rho": np.full(cases.n, rho)}
        if n_raters is not None and own.p_split is None:
            table["p_split"] = split_probability(logits, rho, n_raters)
        if votes_law is not None:
            law = np.exp(vote_log_pmf(logits, rho, votes_law))
            named = (
                {"": law}
                if law.ndim == 2
                else dict(zip(cases.classes, law.swapaxes(0, 1), strict=True))
            )
            for name, values in named.items():
                between = f"{name}_" if name else ""
                table |= {f"p_votes_{between}{k}": column for k, column in enumerate(values.T)}
    if own.p_split is not None:
        table["p_split"] = own.p_split
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
    elif cases.n_raters is not None:
        table["n_raters"] = cases.n_raters
    if cases.strata is not None and not cases.agreement:
        table["stratum"] = cases.strata.values
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
