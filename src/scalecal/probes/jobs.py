"""What is to be fitted and what came out: jobs, their held-out parts, and trained probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from scalecal.checks import InputError
from scalecal.probes.recipes import Recipe
from scalecal.solvers import Fit
from scalecal.solvers.matrix import Matrix, to_host
from scalecal.splits import hold_out
from scalecal.synthesis import SynthesisPlan

__all__ = ["Job", "Prepared", "Trained", "linear_logits", "prepare_all", "probabilities"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FEWEST_TO_HOLD_OUT = 50
"""Total weight below which nothing is held out: a validation part of four cases decides nothing."""
CHUNK_ROWS = 8192


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """One probe to train.

    Attributes
    ----------
    recipe
        How.
    rows
        Row numbers of the cases at hand, those to be held out included.
    y
        Their hard labels, 0 .. n_classes - 1.
    n_classes
        Number of classes.
    seed
        Decides the held-out part, the initial weights, the batch order and random anchors: jobs
        with one seed are paired.
    targets
        Soft labels to train on instead of `y`: (N,) or (N, C).
    votes
        Readers per class, (N, C).
    groups, weights
        Groups never split by validation, and case weights.
    validation, validation_y
        Row numbers and labels of a validation part given from outside; then nothing is held out.
    """

    recipe: Recipe
    rows: Int
    y: Int
    n_classes: int = 2
    seed: int = 0
    targets: Float | None = None
    votes: Int | None = None
    groups: NDArray[Any] | None = None
    weights: Float | None = None
    validation: Int | None = None
    validation_y: Int | None = None


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained probe for raw embeddings.

    Attributes
    ----------
    coef, intercept
        Shapes (1, d) and (1,) for two classes, (C, d) and (C,) for more.
    unit
        Whether rows are to be divided by their length first.
    fit
        What the solver reported.
    rows, validation
        Row numbers trained on, and those held out (None: none).
    plan
        The synthetic cases, their rows numbered as in the matrix (None: none).
    """

    coef: Float
    intercept: Float
    unit: bool
    fit: Fit
    rows: Int
    validation: Int | None
    plan: SynthesisPlan | None = None

    def logits(self, X: Any, rows: Int | None = None) -> Float:
        """Logits of (some rows of) X: (n,) of the positive class, or (n, C)."""
        return linear_logits(X, self.coef, self.intercept, unit=self.unit, rows=rows)


def linear_logits(
    X: Any, coef: Float, intercept: Float, *, unit: bool = False, rows: Int | None = None
) -> Float:
    """Logits of (some rows of) X, some thousand rows at a time.

    Examples
    --------
    >>> import numpy as np
    >>> linear_logits(np.eye(2), np.array([[3.0, -1.0]]), np.array([0.5]))
    array([ 3.5, -0.5])
    """
    n = len(X) if rows is None else len(rows)
    out = np.empty((n, len(coef)))
    weights: Any = None
    for start in range(0, n, CHUNK_ROWS):
        block = slice(start, min(start + CHUNK_ROWS, n))
        # Rows in several files are no array; each chunk of them is one.
        data = Matrix(_rows(X, block if rows is None else rows[block]))
        part = data.X if data.X.dtype == data.dtype else data.xp.astype(data.X, data.dtype)
        weights = data.array(coef.T) if weights is None else weights
        product = part @ weights
        if unit:
            length = data.xp.sqrt(data.xp.sum(part * part, axis=1))[:, None]
            product = product / data.xp.where(length > 0, length, data.xp.ones_like(length))
        out[block] = to_host(product)
    out += intercept
    return out[:, 0] if len(coef) == 1 else out


def _rows(X: Any, rows: Int | slice) -> Any:
    """Some rows of a numpy array, a torch tensor, or rows kept in several files."""
    if isinstance(X, np.ndarray) or not array_api_compat.is_array_api_obj(X):
        return np.asarray(X[rows])
    return X[rows] if isinstance(rows, slice) else X[Matrix(X).index(rows)]


def host_rows(X: Any, rows: Int) -> Float:
    """Rows of X in main memory, in double precision."""
    return np.asarray(to_host(_rows(X, rows)), dtype=np.float64)


def probabilities(logits: Float) -> Float:
    """Class probabilities (n, C) of logits (n,) or (n, C).

    Examples
    --------
    >>> import numpy as np
    >>> probabilities(np.array([0.0]))
    array([[0.5, 0.5]])
    """
    if logits.ndim == 2:
        return np.asarray(softmax(logits, axis=1))
    positive = expit(logits)
    return np.column_stack([expit(-logits), positive])


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """A job with its validation part held out."""

    job: Job
    recipe: Recipe
    rows: Int
    y: Int
    weights: Float | None
    train: Int  # positions among the job's cases
    held: Int | None
    validation: Int | None
    validation_y: Int | None
    seeds: Int


def prepare_all(jobs: Sequence[Job]) -> list[Prepared]:
    """Prepare jobs; those over the same arrays with one seed share their parts, not copies."""
    known: dict[Any, Prepared] = {}
    prepared = []
    for job in jobs:
        recipe = job.recipe
        recipe.check()
        arrays = (job.rows, job.y, job.weights, job.groups, job.validation, job.validation_y)
        options = (job.seed, recipe.validation_share, recipe.validation)
        key = (*map(id, arrays), *options)
        if key not in known:
            known[key] = _prepare(job)
        prepared.append(replace(known[key], job=job, recipe=recipe))
    return prepared


def _prepare(job: Job) -> Prepared:
    """Hold out a job's validation part."""
    recipe = job.recipe
    # A case of weight 0 is no case: it must not be held out or become an anchor either.
    present = np.arange(len(job.rows)) if job.weights is None else np.flatnonzero(job.weights)
    seeds = np.random.SeedSequence(job.seed).generate_state(4).astype(np.int64)
    train_part, held = present, None
    total = len(present) if job.weights is None else float(job.weights.sum())
    if job.validation is None and recipe.validation_share > 0 and total >= FEWEST_TO_HOLD_OUT:
        stratified = recipe.validation == "stratified"
        kept, out = hold_out(
            job.y[present],
            share=recipe.validation_share,
            groups=job.groups[present] if stratified and job.groups is not None else None,
            stratify=stratified,
            seed=int(seeds[0]),
        )
        train_part, held = present[kept], present[out]
    y = job.y[train_part]
    found = np.unique(y)
    if len(found) < 2:
        raise InputError(
            f"the training cases hold one class only (class number {found[0]}): a probe needs at "
            "least two. Give more cases, or another split."
        )
    return Prepared(
        job=job,
        recipe=recipe,
        rows=job.rows[train_part],
        y=y,
        weights=None if job.weights is None else job.weights[train_part],
        train=train_part,
        held=held,
        validation=job.validation if held is None else job.rows[held],
        validation_y=job.validation_y if held is None else job.y[held],
        seeds=seeds,
    )
