"""Embeddings of other programs as `import_features` takes them: a table, a length, a reader of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ForeignFeatures:
    """Embeddings of another program: their table, their length, and a reader of rows."""

    table: pd.DataFrame
    dim: int
    read: Callable[[int, int], NDArray[Any]]
    files: Sequence[Path]
    encoder: str | None = None


def joined_rows(
    counts: Sequence[int], read: Callable[[int, int, int], NDArray[Any]]
) -> Callable[[int, int], NDArray[Any]]:
    """Return a reader of rows of several parts, one after the other.

    `counts` are the rows of each part; ``read(k, start, stop)`` reads rows of part k.

    Examples
    --------
    >>> parts = [np.eye(2), 5 * np.eye(3, 2)]
    >>> joined_rows([2, 3], lambda k, start, stop: parts[k][start:stop])(1, 4).tolist()
    [[0.0, 1.0], [5.0, 0.0], [0.0, 5.0]]
    """
    ends = np.cumsum(counts)

    def rows(start: int, stop: int) -> NDArray[Any]:
        parts = []
        for k in range(int(np.searchsorted(ends, start, side="right")), len(counts)):
            first = int(ends[k]) - counts[k]
            if first >= stop:
                break
            parts.append(read(k, max(start - first, 0), min(stop - first, counts[k])))
        return np.concatenate(parts)

    return rows


def one_dim(dims: Mapping[Path, int]) -> int:
    """Return the length of all embeddings, which must be one."""
    if len(set(dims.values())) > 1:
        first, *_ = dims
        odd = next(file for file in dims if dims[file] != dims[first])
        raise InputError(
            f"embeddings must have one length: {dims[first]} in {first.name}, "
            f"{dims[odd]} in {odd.name}"
        )
    return next(iter(dims.values()))
