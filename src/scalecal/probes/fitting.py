"""Many probes at once, from recipes: what the estimators and the experiments both call.

A `Job` is a recipe, some rows of a shared matrix with their labels, and a seed. `fit_many` trains
any number of jobs together: first probes (which choose anchors) in one call of the solver, then
everything else in another. A job gives the same probe alone as among others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from scalecal.checks import InputError, ScalecalWarning
from scalecal.probes.jobs import CHUNK_ROWS, Job, Prepared, Trained, host_rows, prepare_all
from scalecal.smoothing import confidence, soft_labels, vanilla
from scalecal.solvers import Fit, Mixtures, Scaling, Task, train
from scalecal.solvers.problem import same_content
from scalecal.synthesis import SynthesisPlan, plan

__all__ = ["fit_many"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def fit_many(
    X: Any,
    jobs: Sequence[Job],
    *,
    X_validation: Any = None,
    memory: float | None = None,
) -> list[Trained]:
    """Train every job.

    Parameters
    ----------
    X
        Shared embeddings (n, d), a numpy array or memory map, finite.
    jobs
        What to train; see `Job`. Rows, labels and split may differ from job to job.
    X_validation
        Where the jobs' own `validation` row numbers point; X itself by default.
    memory
        GiB that rows may take in memory: X then stays on disk and may be a
        `scalecal.features.ShardedArray` of any length; see `scalecal.solvers.train`.

    Returns
    -------
    list of Trained
        One per job, in their order.

    Examples
    --------
    >>> import numpy as np
    >>> from scalecal.probes import Job, Recipe
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 100)
    >>> X = rng.normal(size=(200, 5)) + y[:, None]
    >>> rows = np.arange(200)
    >>> recipes = [Recipe(), Recipe(smoothing="vanilla"), Recipe(synthesis={})]
    >>> jobs = [Job(recipe=r, rows=rows, y=y, seed=s) for r in recipes for s in range(2)]
    >>> probes = fit_many(X, jobs)
    >>> len(probes), probes[0].coef.shape, len(probes[-1].plan)
    (6, (1, 5), 600)
    """
    prepared = prepare_all(jobs)
    shared = _Shared(X, X_validation, memory)
    trained: list[Trained | None] = [None] * len(jobs)

    # Jobs that need the same first probe share it, and a plain job is its own first probe.
    sharing = same_content([p.rows for p in prepared])
    labels = same_content([p.y for p in prepared])
    weights = same_content([p.weights for p in prepared])
    stage: dict[Any, Prepared] = {}
    keys: list[Any] = []
    for i, (job, part) in enumerate(zip(jobs, prepared, strict=True)):
        recipe = job.recipe
        if recipe.needs_first_probe or recipe.is_plain:
            recipe = recipe.first()
        key: Any = i
        if recipe.is_plain and job.targets is None:
            key = (repr(recipe), job.seed, sharing[i], labels[i], weights[i], job.n_classes)
        keys.append(key)
        stage.setdefault(key, replace(part, recipe=recipe))
    first = dict(zip(stage, shared.solve(list(stage.values()), [None] * len(stage)), strict=True))

    second = [i for i, job in enumerate(jobs) if job.recipe.needs_first_probe]
    for i in range(len(jobs)):
        trained[i] = first[keys[i]]
    results = shared.solve([prepared[i] for i in second], [first[keys[i]] for i in second])
    for i, result in zip(second, results, strict=True):
        trained[i] = result
    return [t for t in trained if t is not None]


class _RowFacts(NamedTuple):
    """Sum and sum of squares of each row of the matrix."""

    sums: Float
    squares: Float


class _Shared:
    """The matrix, and what jobs over it have in common."""

    def __init__(self, X: Any, X_validation: Any, memory: float | None) -> None:
        self.X, self.X_validation, self.memory = X, X_validation, memory
        self.known_logits: dict[Any, tuple[Trained, Float]] = {}

    @cached_property
    def rows(self) -> _RowFacts:
        """Sums over every row's features, read once for all jobs."""
        sums, squares = np.empty(len(self.X)), np.empty(len(self.X))
        for start in range(0, len(self.X), CHUNK_ROWS):
            block = slice(start, start + CHUNK_ROWS)
            part = host_rows(self.X, np.arange(len(self.X))[block])
            sums[block] = part.sum(axis=1)
            squares[block] = np.einsum("ij,ij->i", part, part)
        return _RowFacts(sums, squares)

    def _first_logits(self, first: Trained, rows: Int) -> Float:
        """A first probe's logits, worked out once for all jobs that build on it."""
        key = (id(first), id(rows))
        if key not in self.known_logits:
            self.known_logits[key] = (first, first.logits(self.X, rows))
        return self.known_logits[key][1]

    def solve(self, parts: Sequence[Prepared], first: Sequence[Trained | None]) -> list[Trained]:
        """Train all parts, those with the same solver options in one call."""
        numbers = same_content([p.rows for p in parts])
        weights = same_content([p.weights for p in parts])
        scalings: dict[Any, Scaling] = {}
        built = []
        for part, base, *which in zip(parts, first, numbers, weights, strict=True):
            name = part.recipe.scaling
            if (*which, name) not in scalings:
                scalings[(*which, name)] = self._scaling(part.rows, part.weights, name)
            built.append(self._task(part, base, scalings[(*which, name)]))
        calls: dict[Any, list[int]] = {}
        for i, part in enumerate(parts):
            r = part.recipe
            own = part.held is not None or self.X_validation is None
            key = (r.batch_size, r.max_epochs, r.min_steps, r.patience, own)
            calls.setdefault(key, []).append(i)
        fits: dict[int, Fit] = {}
        for key, members in calls.items():
            tasks = [built[i][0] for i in members]
            recipe = parts[members[0]].recipe
            solved = train(
                self.X,
                tasks,
                X_validation=None if key[-1] else self.X_validation,
                batch_size=recipe.batch_size,
                max_epochs=recipe.max_epochs,
                min_steps=recipe.min_steps,
                patience=recipe.patience,
                memory=self.memory,
            )
            fits.update(zip(members, solved, strict=True))
        return [
            _trained(part, task, fits[i], made)
            for i, (part, (task, made)) in enumerate(zip(parts, built, strict=True))
        ]

    def _task(
        self, part: Prepared, first: Trained | None, scaling: Scaling
    ) -> tuple[Task, SynthesisPlan | None]:
        """Turn a prepared job into the solver's terms."""
        recipe, job = part.recipe, part.job
        plain, targets = self._targets(part, first)
        rows, weights = part.rows, part.weights
        goal = targets[part.train]
        if recipe.union:
            rows, goal = np.tile(rows, 2), np.concatenate([plain[part.train], goal])
            weights = None if weights is None else np.tile(weights, 2)
        made = None
        if recipe.synthesis is not None and first is not None:
            made = self._plan(part, first)
        validation_targets = None
        if part.validation is not None and part.validation_y is not None:
            own = recipe.stop_on == "targets" and part.held is not None
            validation_targets = (
                targets[part.held] if own else _onehot(part.validation_y, job.n_classes)
            )
        task = Task(
            rows=rows,
            targets=goal,
            validation=part.validation,
            validation_targets=validation_targets,
            weights=weights,
            mixtures=None
            if made is None
            else Mixtures(made.first, made.second, made.alpha, made.targets, made.weight),
            initial=self._initial(part, first),
            order=int(part.seeds[2]),
            learning_rate=recipe.learning_rate,
            decay=recipe.decay,
            loss=recipe.loss,
            gamma=recipe.gamma,
            scaling=scaling,
        )
        return task, made

    def _scaling(self, rows: Int, weights: Float | None, name: str) -> Scaling:
        """How rows are scaled, from the training rows alone."""
        if name == "none":
            return Scaling()
        if name == "l2":
            return Scaling(unit=True)
        share = np.ones(len(rows)) if weights is None else weights
        total = float(share.sum())
        if name == "rms":
            squares = float(share @ self.rows.squares[rows])
            root = float(np.sqrt(squares / (total * self.X.shape[1])))
            return Scaling(scale=root if root > 0 else 1.0)
        parts = partial(_parts, self.X, rows, share)
        mean = np.sum([w @ part for part, w in parts()], axis=0) / total
        square = np.sum([w @ np.square(part - mean) for part, w in parts()], axis=0)
        deviation = np.sqrt(square / total)
        # A constant feature says nothing: it becomes 0, not a division by zero.
        constant = deviation <= 1e-12 * np.maximum(1.0, np.abs(mean))
        return Scaling(scale=np.where(constant, 1.0, deviation), shift=mean)

    def _targets(self, part: Prepared, first: Trained | None) -> tuple[Float, Float]:
        """Given and smoothed targets of all of a job's cases."""
        job, recipe = part.job, part.recipe
        plain = _onehot(job.y, job.n_classes) if job.targets is None else job.targets
        options = dict(recipe.smoothing_options or {})
        if recipe.smoothing is None:
            return plain, plain
        if recipe.smoothing == "vanilla":
            return plain, vanilla(plain, n_classes=job.n_classes, **options)
        if recipe.smoothing == "confidence":
            assert first is not None
            if job.n_classes != 2:
                raise InputError(f"smoothing='confidence' is for two classes, got {job.n_classes}")
            return plain, confidence(expit(self._first_logits(first, job.rows)), **options)
        if job.votes is None:
            raise InputError(
                f"smoothing={recipe.smoothing!r} needs votes: give votes=..., or take a smoothing "
                "that needs none (None, 'vanilla', 'confidence')"
            )
        return plain, soft_labels(job.votes, smoothing=recipe.smoothing, **options)

    def _plan(self, part: Prepared, first: Trained) -> SynthesisPlan:
        """Plan synthetic cases, and number their rows as in the matrix."""
        options = dict(part.recipe.synthesis or {})
        rows, y, weights = part.rows, part.y, part.weights
        mass = options.get("mass")  # `plan` checks it, but takes it as a share of distinct rows
        logits = self._first_logits(first, rows)
        if part.recipe.distinct_anchors:
            distinct = _distinct(self.X, self.rows.sums[rows], rows, y)
            rows, y, logits = rows[distinct], y[distinct], logits[distinct]
        if options.get("anchors", "confident") == "confident":
            guess = (logits > 0).astype(np.int64) if logits.ndim == 1 else logits.argmax(axis=1)
            unlearnt = np.setdiff1d(y, y[guess == y])
            if len(unlearnt):
                warnings.warn(
                    f"the first probe gets no case of class number {unlearnt[0]} right: anchors are "
                    "the most confident cases of each class, right or wrong",
                    ScalecalWarning,
                    stacklevel=2,
                )
                options["anchors"] = "class"
        made = plan(y, logits, random_state=int(part.seeds[3]), **options)
        if part.recipe.shuffled:
            made = made.shuffled(int(part.seeds[3]))
        total = len(part.rows) if weights is None else float(weights.sum())
        return replace(
            made,
            first=rows[made.first],
            second=rows[made.second],
            anchors={c: rows[index] for c, index in made.anchors.items()},
            weight=made.weight if mass is None else float(mass) * total / len(made),
        )

    def _initial(self, part: Prepared, first: Trained | None) -> tuple[Float, Float] | None:
        """Initial weights for scaled rows; None for zeros."""
        d, c = self.X.shape[1], 1 if part.job.n_classes == 2 else part.job.n_classes
        if part.recipe.warm_start and first is not None:
            return first.fit.weights, first.fit.intercept
        if part.recipe.initial == "zero":
            return None
        rng = np.random.default_rng(int(part.seeds[1]))
        bound = 1.0 / np.sqrt(d)
        return rng.uniform(-bound, bound, (c, d)), rng.uniform(-bound, bound, c)


def _trained(part: Prepared, task: Task, fit: Fit, made: SynthesisPlan | None) -> Trained:
    """A solver's result, for raw rows."""
    coef, intercept = task.scaling.unscale(
        fit.weights.astype(np.float64), fit.intercept.astype(np.float64)
    )
    return Trained(
        coef=coef,
        intercept=intercept,
        unit=task.scaling.unit,
        fit=fit,
        rows=part.rows,
        validation=part.validation if part.held is not None else None,
        plan=made,
    )


def _onehot(y: Int, n_classes: int) -> Float:
    """Hard labels as targets: (n,) for two classes, (n, C) for more."""
    return y.astype(np.float64) if n_classes == 2 else np.eye(n_classes)[y]


def _parts(X: Any, rows: Int, weights: Float) -> Iterator[tuple[Float, Float]]:
    """Rows in double precision with their weights, some thousand at a time."""
    for start in range(0, len(rows), CHUNK_ROWS):
        block = slice(start, start + CHUNK_ROWS)
        yield host_rows(X, rows[block]), weights[block]


def _distinct(X: Any, sums: Float, rows: Int, y: Int) -> Int:
    """Positions of the first of each set of cases with the same embedding and label."""
    # Equal rows have equal sums to the last bit, so only ties need to be looked at.
    order = np.lexsort((sums, y))
    new = np.append(True, (np.diff(sums[order]) != 0) | (np.diff(y[order]) != 0))
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, len(order)))
    copy = np.zeros(len(rows), dtype=bool)
    for start, size in zip(starts[sizes > 1], sizes[sizes > 1], strict=True):
        members = np.sort(order[start : start + size])
        _, firsts = np.unique(host_rows(X, rows[members]), axis=0, return_index=True)
        copy[np.delete(members, firsts)] = True
    return np.flatnonzero(~copy)
