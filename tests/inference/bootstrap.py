"""A plain bootstrap of sums over units, to hold the package's own resampling against."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scalecal.checks import Float
from scalecal.inference.units import weights


def bootstrap_sums(
    totals: Mapping[str, Float], *, n_resamples: int, seed: int = 0
) -> dict[str, Float]:
    """Resample units: name -> (units, m) in, name -> (n_resamples, m) out, all from the same draws."""
    matrix = np.concatenate(list(totals.values()), axis=1)
    blocks = weights(len(matrix), n_resamples, np.random.default_rng(seed))
    drawn = np.concatenate([block @ matrix for block in blocks])
    edges = np.cumsum([t.shape[1] for t in totals.values()])[:-1]
    return dict(zip(totals, np.split(drawn, edges, axis=1), strict=True))
