"""Comparing methods on embeddings in one call."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from scalecal.cases import Features
from scalecal.checks import check_features
from scalecal.evaluation.audits import cases_of
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
        Knowledge of the readers besides the votes (`scalecal.readers.Readers`).
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
    embeddings = check_features(X)
    cases = cases_of(
        y, None, votes=votes, n_raters=n_raters, groups=groups, split=split, X=embeddings
    )
    grid = run_grid(
        Features(embeddings, cases),
        methods=methods,
        seeds=seeds,
        preset=preset,
        readers=Readers(kappa=kappa, vote_share=vote_share, panel_size=panel_size),
    )
    return evaluate(grid.cell, n_bins=n_bins, n_resamples=n_resamples)
