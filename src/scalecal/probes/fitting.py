"""How probes are trained, as data, and many of them at once.

A `Recipe` is the one place where the defaults of the training are written. A `Job` is a recipe, some rows
of a shared matrix with their labels, and a seed. `fit_many` trains any number of jobs together: first
probes (which choose anchors) in one call of the solver, then everything that builds on them in another.
Each gives a `Trained` probe for raw embeddings.
"""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from scalecal.cases import rows_of
from scalecal.checks import (
    Float,
    InputError,
    Int,
    ScalecalWarning,
    check_above,
    check_choice,
    check_number,
    check_positive_int,
    check_targets,
    check_unit,
    lookup,
)
from scalecal.limits import check_count
from scalecal.metrics.arguments import blocks
from scalecal.smoothing import SMOOTHINGS, Smoothing, confidence, soft_labels, vanilla
from scalecal.solvers import LOSSES, Fit, Scaling, Task, train
from scalecal.solvers.problem import Matrix, same_content, to_host
from scalecal.splits import folds, hold_out
from scalecal.synthesis import SynthesisPlan, plan

SCALINGS: dict[str, str] = {
    "rms": "all features divided by one number, their root mean square over the training part",
    "none": "features as they are",
    "zscore": "each feature to mean 0 and standard deviation 1 over the training part",
    "l2": "each row divided by its Euclidean length",
}
"""Ways to scale embeddings, and what each means."""

FROM_LABELS = ("vanilla", "confidence")
"""Smoothings that need no votes."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides how a probe is trained, apart from the data and the seed.

    Attributes
    ----------
    smoothing, smoothing_options, union, loss, gamma, scaling, initial, learning_rate, batch_size, \
max_epochs, min_steps, patience, decay, validation_share
        As in `scalecal.LinearProbe`.
    synthesis
        None, or options of `scalecal.synthesis.plan`: then a first probe chooses the anchors and
        the real cases are joined by synthetic ones. ``{}`` is SCALE with its defaults.
    shuffled
        Permute the synthetic labels (the negative control).
    distinct_anchors
        Count the same embedding with the same label as one candidate anchor, however often it
        occurs: copies add nothing but weight.
    warm_start
        Train the second probe from the first one's weights instead of from scratch.
    validation
        ``"stratified"`` (never through a group), or ``"random"`` (plain, groups ignored).
    """

    smoothing: str | Smoothing | None = None
    smoothing_options: Mapping[str, Any] | None = None
    union: bool = False
    synthesis: Mapping[str, Any] | None = None
    shuffled: bool = False
    distinct_anchors: bool = True
    warm_start: bool = False
    loss: str = "log"
    gamma: float = 2.0
    scaling: str = "rms"
    initial: str = "zero"
    learning_rate: float = 1e-3
    batch_size: int = 256
    max_epochs: int = 50
    min_steps: int = 10_000
    patience: int = 10
    decay: float = 0.0
    validation_share: float = 0.1
    validation: str = "stratified"

    @property
    def needs_votes(self) -> bool:
        """Whether the targets come from readers' votes."""
        return self.smoothing is not None and self.smoothing not in FROM_LABELS

    @property
    def needs_first_probe(self) -> bool:
        """Whether a plain probe has to be trained before this one."""
        return self.synthesis is not None or self.smoothing == "confidence"

    @property
    def is_plain(self) -> bool:
        """Whether it is its own first probe."""
        return replace(self, distinct_anchors=True) == self.first()

    def first(self) -> Recipe:
        """Return the plain probe this one builds on."""
        return replace(
            self,
            smoothing=None,
            smoothing_options=None,
            union=False,
            synthesis=None,
            shuffled=False,
            distinct_anchors=True,
            warm_start=False,
            loss="log",
        )

    def check(self) -> None:
        """Fail on options that mean nothing, naming them."""
        check_choice(self.loss, LOSSES, "loss")
        check_choice(self.scaling, SCALINGS, "scaling")
        check_choice(self.initial, ("zero", "random"), "initial")
        if self.smoothing is not None and not callable(self.smoothing):
            known = {**dict.fromkeys(FROM_LABELS), **SMOOTHINGS}
            lookup(self.smoothing, known, "smoothing")
        check_count(self.batch_size, "batch_size", "cases")
        check_count(self.max_epochs, "max_epochs", "steps")
        check_positive_int(self.patience, "patience")
        check_count(self.min_steps, "min_steps", "steps", least=0)
        for name in ("union", "warm_start"):
            check_choice(getattr(self, name), (True, False), name)
        if not isinstance(self.smoothing_options, Mapping | None):
            raise InputError(
                "smoothing_options must be a dict of options or None, got "
                f"{reprlib.repr(self.smoothing_options)}"
            )
        if check_unit(self.validation_share, "validation_share") == 1.0:
            raise InputError("validation_share must be below 1: something must be left to train on")
        check_above(self.learning_rate, "learning_rate")
        for name in ("gamma", "decay"):
            if check_number(getattr(self, name), name) < 0:
                raise InputError(f"{name} must not be negative, got {getattr(self, name)!r}")
        if self.synthesis is not None:
            # A plan of four cases: what `plan` refuses is refused before the first probe is trained.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ScalecalWarning)
                plan([0, 0, 1, 1], [-2.0, -1.0, 1.0, 2.0], **self.synthesis)


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "scaling": "none",
        "initial": "random",
        "max_epochs": 50,
        "min_steps": 0,
        "validation": "random",
        "distinct_anchors": False,
    },
}
"""Options a preset sets, whatever else was given."""


def with_preset(recipe: Recipe, preset: str | None) -> Recipe:
    """Return the recipe with a preset's options; None is ``"default"``, the recipe as it is.

    ``"paper"`` is the paper to the letter: raw embeddings, random initial weights, at most 50
    epochs, a plain random tenth for validation, and anchors by the first probe's prediction alone
    (unless they are random by design).

    Examples
    --------
    >>> with_preset(Recipe(synthesis={}), "paper").synthesis
    {'anchors': 'prediction'}
    """
    if preset is None:
        return recipe
    check_choice(preset, PRESETS, "preset")
    changed = replace(recipe, **PRESETS[preset])
    if preset != "paper" or recipe.synthesis is None:
        return changed
    # Anchors chosen on purpose stay: random ones are the paper's own control.
    if recipe.synthesis.get("anchors", "confident") != "confident":
        return changed
    return replace(changed, synthesis={**recipe.synthesis, "anchors": "prediction"})


# -- many at once ----------------------------------------------------------------------------------

MIN_TO_HOLD_OUT = 50
"""Total weight below which nothing is held out: a validation part of four cases decides nothing."""
CHUNK_ROWS = 8192
TRAINING_LIMITS = ("batch_size", "max_epochs", "min_steps", "patience")
"""What probes that are trained together share."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """One probe to train.

    Attributes
    ----------
    recipe
        How.
    rows
        Row numbers of the cases, those to be held out included.
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
    class_weight
        "balanced", or a weight for each class (C,): see `class_weights`.
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
    class_weight: str | Float | None = None
    validation: Int | None = None
    validation_y: Int | None = None

    @property
    def case_weights(self) -> Float:
        """Weight of each case: `weights`, or ones."""
        if self.weights is None:
            return np.ones(len(self.rows))
        return self.weights


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
    data = Matrix(X)
    if rows is None:
        rows = np.arange(data.n_rows)
    out = np.empty((len(rows), len(coef)))
    buffer = data.empty(min(CHUNK_ROWS, len(rows)), data.n_features)
    for block in blocks(len(rows), CHUNK_ROWS):
        part = data.take(data.index(rows[block]), out=buffer)
        product = part @ data.array(coef.T)
        if unit:
            length = data.xp.sqrt(data.xp.sum(part * part, axis=1))[:, None]
            product = product / data.xp.where(length > 0, length, data.xp.ones_like(length))
        out[block] = to_host(product)
    out += intercept
    if len(coef) == 1:
        return out[:, 0]
    return out


def host_rows(data: Matrix, rows: Int) -> Float:
    """Some rows in main memory, in double precision."""
    return np.asarray(to_host(data.take(data.index(rows))), dtype=np.float64)


def predicted(logits: Float) -> Int:
    """Number of the most probable class of each case, of logits (n,) or (n, C)."""
    if logits.ndim == 2:
        return np.asarray(logits.argmax(axis=1))
    return (logits > 0).astype(np.int64)


def class_weights(
    class_weight: str | Float | None, y: Int, n_classes: int, weights: Float | None = None
) -> Float | None:
    """Weight of each class (C,); None: all alike.

    "balanced" gives every class the same total: W / (C W_c), with W the weight of all cases and W_c that
    of class c (King and Zeng, 2001); without case weights as in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> class_weights("balanced", np.array([0, 0, 0, 1]), 2).round(3).tolist()
    [0.667, 2.0]
    """
    if class_weight is None or not isinstance(class_weight, str):
        return class_weight
    check_choice(class_weight, ("balanced",), "class_weight")
    mass = np.bincount(y, weights, minlength=n_classes).astype(np.float64)
    present = mass > 0
    shares = mass.sum() / (present.sum() * np.where(present, mass, 1.0))
    return np.where(present, shares, 1.0)


def fit_many(
    X: Any,
    jobs: Sequence[Job],
    *,
    X_validation: Any = None,
    advance: Callable[[float], object] = lambda _: None,
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
    advance
        Called with the share of the training that was just done, now and then.

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
    >>> brief = {"min_steps": 200}
    >>> recipes = [Recipe(**brief), Recipe(smoothing="vanilla", **brief), Recipe(synthesis={}, **brief)]
    >>> jobs = [Job(recipe=r, rows=rows, y=y, seed=s) for r in recipes for s in range(2)]
    >>> probes = fit_many(X, jobs)
    >>> len(probes), probes[0].coef.shape, len(probes[-1].plan)
    (6, (1, 5), 600)
    """
    prepared = _prepare_all(jobs)
    shared = _Shared(X, X_validation)

    # Jobs that need the same first probe share it, and a plain job is its own first probe.
    sharing, labels, weights = (_alike(prepared, name) for name in ("rows", "y", "weights"))
    stage: dict[Any, _Prepared] = {}
    keys: list[Any] = []
    for i, (job, part) in enumerate(zip(jobs, prepared, strict=True)):
        recipe = job.recipe
        if recipe.needs_first_probe or recipe.is_plain:
            recipe = recipe.first()
        key: Any = i
        if recipe.is_plain and job.targets is None:
            key = (repr(recipe), job.seed, sharing[i], labels[i], weights[i], job.n_classes)
        keys.append(key)
        stage.setdefault(key, replace(part, job=replace(job, recipe=recipe)))
    second = [i for i, job in enumerate(jobs) if job.recipe.needs_first_probe]
    probes = len(stage) + len(second)

    def count(done: float) -> None:
        advance(done / probes)

    solved = shared.solve(list(stage.values()), [None] * len(stage), count)
    first = dict(zip(stage, solved, strict=True))
    trained = [first[key] for key in keys]
    results = shared.solve([prepared[i] for i in second], [trained[i] for i in second], count)
    for i, result in zip(second, results, strict=True):
        trained[i] = result
    return trained


N_FOLDS = 10
"""Parts into which training cases are dealt for out-of-sample logits.

Probes of fewer, larger parts see fewer cases, stop sooner and are less sure than the probe that is
calibrated by them: with five parts its label comes out too sharp on small sets.
"""


@dataclass(frozen=True, eq=False)
class CrossFit:
    """A job done again on all but one part of its cases, part by part.

    Its logits are those of probes that saw neither the case itself nor, if there are groups, any
    case of its group: what a calibrator may be fitted to. The part that stopped a training must not
    serve for that: the weights were chosen on it.

    Attributes
    ----------
    job
        The job whose cases get out-of-sample logits.
    jobs
        One job per part, to be given to `fit_many`.
    fold
        Number of the part of each of the job's cases; -1 for cases of weight 0.
    """

    job: Job
    jobs: list[Job]
    fold: Int

    @classmethod
    def of(cls, job: Job) -> CrossFit:
        """Deal the job's cases into parts, stratified and never through a group.

        Raises
        ------
        InputError
            Where a class has so few cases (or groups) that some part would be trained without it.
        """
        present = np.flatnonzero(job.case_weights)
        y = job.y[present]
        groups, units, what = None, present, "cases"
        size = f"{len(present)} cases"
        if job.groups is not None:
            groups = units = np.asarray(job.groups)[present]
            n, what = len(np.unique(groups)), "groups"
            size += f" in {n} group{'s' * (n > 1)}"
        fewest = min(len(np.unique(units[y == c])) for c in np.unique(y))
        k = min(N_FOLDS, fewest)
        fold = np.full(len(job.rows), -1)
        if k > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ScalecalWarning)  # a part may lack a class
                fold[present] = folds(y, k, groups=groups, seed=job.seed)
        jobs = [_without(job, (fold == j) | (fold < 0)) for j in range(k)]
        if k < 2 or any(len(np.unique(part.y)) < len(np.unique(y)) for part in jobs):
            raise InputError(
                f"{size} are too few to calibrate on out-of-sample logits: with part "
                f"of the {what} held out every class must be left, and the rarest class has {fewest} of them"
            )
        return cls(job, jobs, fold)

    def logits(self, X: Any, trained: Sequence[Trained]) -> Float:
        """Out-of-sample logits of the job's cases, in their order; NaN for cases of weight 0."""
        out = np.full((len(self.fold), n_columns(self.job.n_classes)), np.nan)
        if self.job.n_classes == 2:
            out = out[:, 0]
        for j, probe in enumerate(trained):
            here = self.fold == j
            out[here] = probe.logits(X, self.job.rows[here])
        return out


def _without(job: Job, left_out: NDArray[np.bool_]) -> Job:
    """The same job on the other cases."""
    kept = np.flatnonzero(~left_out)
    parts: dict[str, Any] = {}
    for name in ("rows", "y", "targets", "votes", "groups", "weights"):
        parts[name] = rows_of(getattr(job, name), kept)
    return replace(job, **parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Prepared:
    """A job with its validation part held out."""

    job: Job
    rows: Int
    y: Int
    weights: Float
    validation_weights: Float | None
    train: Int  # positions among the job's cases
    held: Int | None
    validation: Int | None
    validation_y: Int | None
    seeds: Int


def _prepare_all(jobs: Sequence[Job]) -> list[_Prepared]:
    """Prepare jobs; those over the same arrays with one seed share their parts, not copies."""
    known: dict[Any, _Prepared] = {}
    prepared = []
    for job in jobs:
        recipe = job.recipe
        recipe.check()
        arrays = (
            *(job.rows, job.y, job.weights, job.class_weight, job.groups),
            *(job.validation, job.validation_y),
        )
        options = (job.seed, recipe.validation_share, recipe.validation)
        key = (*map(id, arrays), *options)
        if key not in known:
            known[key] = _prepare(job)
        prepared.append(replace(known[key], job=job))
    return prepared


def _prepare(job: Job) -> _Prepared:
    """Hold out a job's validation part."""
    recipe = job.recipe
    weights = job.case_weights
    # A case of weight 0 is absent: it must not be held out or become an anchor either.
    present = np.flatnonzero(weights)
    seeds = np.random.SeedSequence(job.seed).generate_state(4).astype(np.int64)
    train_part, held = present, None
    validation, validation_y, validation_weights = job.validation, job.validation_y, None
    if validation_y is not None:
        validation_weights = np.ones(len(validation_y))
    elif recipe.validation_share > 0 and weights.sum() >= MIN_TO_HOLD_OUT:
        stratified = recipe.validation == "stratified"
        groups = None
        if stratified and job.groups is not None:
            groups = job.groups[present]
        kept, out = hold_out(
            job.y[present],
            share=recipe.validation_share,
            groups=groups,
            stratify=stratified,
            seed=int(seeds[0]),
        )
        train_part, held = present[kept], present[out]
        validation, validation_y = job.rows[held], job.y[held]
        validation_weights = weights[held]
    y = job.y[train_part]
    present_classes = np.unique(y)
    if len(present_classes) < 2:
        raise InputError(
            f"the training cases hold one class only (class number {present_classes[0]}): a probe needs at "
            "least two. Give more cases, or another split."
        )
    train_weights = weights[train_part]
    each = class_weights(job.class_weight, job.y[present], job.n_classes, weights[present])
    if each is not None:
        train_weights = train_weights * each[y]
        if validation_y is not None and validation_weights is not None:
            validation_weights = validation_weights * each[validation_y]
    return _Prepared(
        job=job,
        rows=job.rows[train_part],
        y=y,
        weights=train_weights,
        validation_weights=validation_weights,
        train=train_part,
        held=held,
        validation=validation,
        validation_y=validation_y,
        seeds=seeds,
    )


def _alike(parts: Sequence[_Prepared], name: str) -> list[int]:
    """Number prepared jobs so that those with equal arrays of this name get the same number."""
    return same_content([getattr(part, name) for part in parts])


class _Shared:
    """The matrix, and what jobs over it have in common."""

    def __init__(self, X: Any, X_validation: Any) -> None:
        self.X, self.X_validation = X, X_validation
        self.data = Matrix(X)

    @cached_property
    def row_sums(self) -> tuple[Float, Float]:
        """Sum and sum of squares of every row, read once for all jobs."""
        rows = np.arange(self.data.n_rows)
        sums, squares = np.empty(len(rows)), np.empty(len(rows))
        for block in blocks(len(rows), CHUNK_ROWS):
            part = host_rows(self.data, rows[block])
            sums[block] = part.sum(axis=1)
            squares[block] = np.einsum("ij,ij->i", part, part)
        return sums, squares

    def solve(
        self,
        parts: Sequence[_Prepared],
        first: Sequence[Trained | None],
        count: Callable[[float], object],
    ) -> list[Trained]:
        """Train all parts, those with the same solver options in one call; count the probes done."""
        numbers, weights = _alike(parts, "rows"), _alike(parts, "weights")
        scalings: dict[Any, Scaling] = {}
        built = []
        for part, base, *which in zip(parts, first, numbers, weights, strict=True):
            name = part.job.recipe.scaling
            if (*which, name) not in scalings:
                scalings[(*which, name)] = self._scaling(part.rows, part.weights, name)
            built.append(self._task(part, base, scalings[(*which, name)]))
        # As few calls as possible: probes that share batches are one matrix to the solver.
        calls: dict[Any, list[int]] = {}
        for i, part in enumerate(parts):
            own = part.held is not None or self.X_validation is None
            key = (own, *(getattr(part.job.recipe, name) for name in TRAINING_LIMITS))
            calls.setdefault(key, []).append(i)
        fits: dict[int, Fit] = {}
        for (own, *limits), members in calls.items():
            X_validation = self.X_validation
            if own:
                X_validation = None
            solved = train(
                self.X,
                [built[i][0] for i in members],
                X_validation=X_validation,
                advance=partial(lambda n, share: count(n * share), len(members)),
                **dict(zip(TRAINING_LIMITS, limits, strict=True)),
            )
            fits.update(zip(members, solved, strict=True))
        return [
            _trained(part, task, fits[i], synthetic)
            for i, (part, (task, synthetic)) in enumerate(zip(parts, built, strict=True))
        ]

    def _task(
        self, part: _Prepared, first: Trained | None, scaling: Scaling
    ) -> tuple[Task, SynthesisPlan | None]:
        """Turn a prepared job into the solver's terms."""
        job = part.job
        recipe = job.recipe
        plain, targets = self._targets(part, first)
        rows, weights = part.rows, part.weights
        goal = targets[part.train]
        if recipe.union:
            rows, weights = np.tile(rows, 2), np.tile(weights, 2)
            goal = np.concatenate([plain[part.train], goal])
        synthetic = None
        if recipe.synthesis is not None and first is not None:
            synthetic = self._plan(part, first)
        validation_targets = None
        if part.validation_y is not None:
            # Hard labels for every method: their early stopping is then the same.
            validation_targets = check_targets(part.validation_y, job.n_classes)
        task = Task(
            rows=rows,
            targets=goal,
            validation=part.validation,
            validation_targets=validation_targets,
            validation_weights=part.validation_weights,
            weights=weights,
            mixtures=synthetic,
            initial=self._initial(part, first),
            order=int(part.seeds[2]),
            learning_rate=float(recipe.learning_rate),
            decay=float(recipe.decay),
            loss=recipe.loss,
            gamma=recipe.gamma,
            scaling=scaling,
        )
        return task, synthetic

    def _scaling(self, rows: Int, weights: Float, name: str) -> Scaling:
        """How rows are scaled, from the training rows alone."""
        if name == "none":
            return Scaling()
        if name == "l2":
            return Scaling(unit=True)
        total = float(weights.sum())
        if name == "rms":
            squares = float(weights @ self.row_sums[1][rows])
            root = float(np.sqrt(squares / (total * self.data.n_features)))
            if root == 0:
                return Scaling()
            return Scaling(scale=root)
        parts = partial(_parts, self.data, rows, weights)
        mean = np.sum([w @ part for part, w in parts()], axis=0) / total
        square = np.sum([w @ np.square(part - mean) for part, w in parts()], axis=0)
        deviation = np.sqrt(square / total)
        # A constant feature says nothing: it becomes 0, not a division by zero.
        constant = deviation <= 1e-12 * np.maximum(1.0, np.abs(mean))
        return Scaling(scale=np.where(constant, 1.0, deviation), shift=mean)

    def _targets(self, part: _Prepared, first: Trained | None) -> tuple[Float, Float]:
        """Given and smoothed targets of all of a job's cases."""
        job = part.job
        recipe = job.recipe
        plain = job.targets
        if plain is None:
            plain = check_targets(job.y, job.n_classes)
        options = dict(recipe.smoothing_options or {})
        if recipe.smoothing is None:
            return plain, plain
        if recipe.smoothing == "vanilla":
            return plain, vanilla(plain, n_classes=job.n_classes, **options)
        if recipe.smoothing == "confidence":
            assert first is not None
            if job.n_classes != 2:
                raise InputError(f"smoothing='confidence' is for two classes, got {job.n_classes}")
            return plain, confidence(expit(first.logits(self.X, job.rows)), **options)
        if job.votes is None:
            raise InputError(
                f"smoothing={recipe.smoothing!r} needs votes: give votes=..., or take a smoothing "
                "that needs none (None, 'vanilla', 'confidence')"
            )
        return plain, soft_labels(job.votes, smoothing=recipe.smoothing, **options)

    def _plan(self, part: _Prepared, first: Trained) -> SynthesisPlan:
        """Plan synthetic cases, and number their rows as in the matrix."""
        recipe = part.job.recipe
        options = dict(recipe.synthesis or {})
        rows, y = part.rows, part.y
        logits = first.logits(self.X, rows)
        if recipe.distinct_anchors:
            distinct = _distinct(self.data, self.row_sums[0][rows], rows, y)
            rows, y, logits = rows[distinct], y[distinct], logits[distinct]
        if options.get("anchors", "confident") == "confident":
            unlearnt = np.setdiff1d(y, y[predicted(logits) == y])
            if len(unlearnt):
                warnings.warn(
                    f"the first probe gets no case of class number {unlearnt[0]} right: anchors are "
                    "the most confident cases of each class, right or wrong",
                    ScalecalWarning,
                    stacklevel=2,
                )
                options["anchors"] = "class"
        synthetic = plan(y, logits, seed=int(part.seeds[3]), **options)
        if recipe.shuffled:
            synthetic = synthetic.shuffled(int(part.seeds[3]))
        weight = synthetic.weight
        if options.get("mass") is not None:
            # A share of all cases' weight; `plan` has checked it, but knows distinct cases only.
            weight = float(options["mass"]) * float(part.weights.sum()) / len(synthetic)
        return replace(
            synthetic,
            first=rows[synthetic.first],
            second=rows[synthetic.second],
            anchors={c: rows[index] for c, index in synthetic.anchors.items()},
            weight=weight,
        )

    def _initial(self, part: _Prepared, first: Trained | None) -> tuple[Float, Float] | None:
        """Initial weights for scaled rows; None for zeros."""
        d, c = self.data.n_features, n_columns(part.job.n_classes)
        recipe = part.job.recipe
        if recipe.warm_start and first is not None:
            return first.fit.weights, first.fit.intercept
        if recipe.initial == "zero":
            return None
        rng = np.random.default_rng(int(part.seeds[1]))
        bound = 1.0 / np.sqrt(d)
        return rng.uniform(-bound, bound, (c, d)), rng.uniform(-bound, bound, c)


def _trained(part: _Prepared, task: Task, fit: Fit, synthetic: SynthesisPlan | None) -> Trained:
    """A solver's result, for raw rows."""
    coef, intercept = task.scaling.unscale(
        fit.weights.astype(np.float64), fit.intercept.astype(np.float64)
    )
    validation = None
    if part.held is not None:
        validation = part.validation
    return Trained(
        coef=coef,
        intercept=intercept,
        unit=task.scaling.unit,
        fit=fit,
        rows=part.rows,
        validation=validation,
        plan=synthetic,
    )


def with_label(counts: Int, y: Int) -> Int:
    """Votes to train on; a case without votes counts as one reader who chose its label."""
    empty = counts.sum(axis=1) == 0
    if not empty.any():
        return counts
    filled = counts.copy()
    filled[empty, y[empty]] = 1
    return filled


def n_columns(n_classes: int) -> int:
    """Columns of a probe's weights: one for two classes, one per class for more."""
    if n_classes == 2:
        return 1
    return n_classes


def _parts(data: Matrix, rows: Int, weights: Float) -> Iterator[tuple[Float, Float]]:
    """Rows in double precision with their weights, some thousand at a time."""
    for block in blocks(len(rows), CHUNK_ROWS):
        yield host_rows(data, rows[block]), weights[block]


def _distinct(data: Matrix, sums: Float, rows: Int, y: Int) -> Int:
    """Positions of the first of each set of cases with the same embedding and label."""
    # Equal rows have equal sums to the last bit, so only ties need to be compared.
    order = np.lexsort((sums, y))
    new = np.append(True, (np.diff(sums[order]) != 0) | (np.diff(y[order]) != 0))
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, len(order)))
    copy = np.zeros(len(rows), dtype=bool)
    for start, size in zip(starts[sizes > 1], sizes[sizes > 1], strict=True):
        members = np.sort(order[start : start + size])
        _, firsts = np.unique(host_rows(data, rows[members]), axis=0, return_index=True)
        copy[np.delete(members, firsts)] = True
    return np.flatnonzero(~copy)
