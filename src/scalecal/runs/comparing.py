"""Comparing methods on embeddings in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scalecal.cases import Cases, Factor, Features
from scalecal.checks import check_counts, check_labels, check_same_length
from scalecal.evaluation.evaluations import Evaluation, evaluate
from scalecal.readers import Readers
from scalecal.runs.grid import run_grid


def compare(
    X: ArrayLike,
    y: ArrayLike,
    *,
    votes: ArrayLike | None = None,
    n_raters: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    split: ArrayLike | None = None,
    methods: Sequence[str] | None = None,
    seeds: int | Sequence[int] = 10,
    preset: str | None = None,
    kappa: float | None = None,
    vote_share: float | Sequence[float] | None = None,
    panel_size: int | None = None,
    n_bins: int = 15,
    n_resamples: int = 1000,
) -> Evaluation:
    """Compare methods on embeddings, paired over seeds and cases: what `scalecal compare` does.

    Parameters
    ----------
    X
        (n, d) embeddings.
    y
        Labels 0 / 1, or class numbers.
    votes, n_raters, groups
        As `scalecal.audit`.
    split
        "train", "val" or "test" of each case; without it a grouped and stratified split is drawn per seed.
    methods, seeds, preset
        As `scalecal.runs.grid.run_grid`.
    kappa, vote_share, panel_size
        What is known of the readers beside the votes (`scalecal.readers.Readers`).
    n_bins, n_resamples
        As `scalecal.evaluation.evaluations.evaluate`.

    Examples
    --------
    >>> from scalecal.datasets import simulate
    >>> data = simulate(300, dim=8, seed=0)
    >>> result = compare(data.X, data.y, methods=["none", "temperature"], seeds=2, n_resamples=100)
    >>> result.table["method"].tolist()
    ['none', 'temperature']
    """
    labels = check_labels(y)
    counts = None
    if votes is not None:
        counts = check_counts(votes, n_raters)
    check_same_length(X=X, y=labels, votes=counts)
    n_classes = max(2, int(labels.max()) + 1)
    factors: dict[str, Any] = {}
    for name, values in (("groups", groups), ("split", split)):
        if values is not None:
            factors[name] = Factor.of(values)
    cases = Cases(
        n=len(labels), classes=tuple(map(str, range(n_classes))), y=labels, votes=counts, **factors
    )
    grid = run_grid(
        Features(np.asarray(X), cases),
        methods=methods,
        seeds=seeds,
        preset=preset,
        readers=Readers(kappa=kappa, vote_share=vote_share, panel_size=panel_size),
    )
    return evaluate(grid.cell, n_bins=n_bins, n_resamples=n_resamples)
