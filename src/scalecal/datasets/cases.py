"""One record for a table of cases that several readers have judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import Float, Int

__all__ = ["CaseTable"]


@dataclass(frozen=True, eq=False)
class CaseTable:
    """Cases with features, labels, readers' votes and groups, row by row.

    Attributes
    ----------
    name : str
        What the table is.
    X : ndarray of shape (n, d)
        Features, float64.
    feature_names : tuple of str
        Names of the d features.
    y : ndarray of shape (n,)
        Labels 0 .. C - 1: what most readers said.
    votes : ndarray of shape (n,) or (n, C)
        Two classes: how many readers voted for class 1. More: readers per class.
    n_raters : ndarray of shape (n,)
        How many readers judged each case.
    groups : ndarray of shape (n,)
        What must not be split between training and testing, for example the patient.
    ids : ndarray of shape (n,)
        A distinct name per case.
    extra : mapping of str to ndarray
        Further columns, one row per case.
    """

    name: str
    X: Float
    feature_names: tuple[str, ...]
    y: Int
    votes: Int
    n_raters: Int
    groups: NDArray[Any]
    ids: NDArray[Any]
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: ArrayLike) -> Self:
        """Return the cases at `index` (row numbers or a mask), every column alike.

        Examples
        --------
        >>> from scalecal.datasets import simulate
        >>> data = simulate(100, seed=0)
        >>> len(data.take(data.split == "train")), len(data)
        (69, 100)
        """
        chosen = np.asarray(index)
        columns = {
            f.name: getattr(self, f.name)[chosen]
            for f in fields(self)
            if isinstance(getattr(self, f.name), np.ndarray)
        }
        extra = {key: values[chosen] for key, values in self.extra.items()}
        return replace(self, extra=extra, **columns)
