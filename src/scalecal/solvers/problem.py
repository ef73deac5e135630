"""What is to be trained, what came out, and the losses in between.

A `Task` is one probe, a `Fit` its result. The losses work on numpy and torch arrays alike; logits
and targets are (columns, cases): one column for a two-class probe, C adjoining columns for a
C-class probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, Int, check_same_length, check_weights
from scalecal.synthesis import Mixtures

Array = Any  # a numpy array or a torch tensor
Float = NDArray[Any]

LOSSES = ("log", "focal")


@dataclass(frozen=True, eq=False)
class Scaling:
    """How rows are scaled before training: ``(x / |x| if unit else x) - shift) / scale``.

    Folded into the arithmetic; the matrix itself is never copied.

    Attributes
    ----------
    scale
        One number, or one per feature.
    shift
        One number per feature, or None.
    unit
        Divide each row by its Euclidean length first; interpolated rows are made unit again.
    """

    scale: Any = 1.0
    shift: Float | None = None
    unit: bool = False

    @property
    def is_number(self) -> bool:
        """Whether the rows are only divided by one number (done on the logits, at no cost)."""
        return self.shift is None and not self.unit and np.ndim(self.scale) == 0

    def unscale(self, weights: Float, intercept: Float) -> tuple[Float, Float]:
        """Turn weights for scaled rows into weights for raw (or unit) rows.

        Examples
        --------
        >>> import numpy as np
        >>> Scaling(scale=2.0, shift=np.array([1.0])).unscale(np.array([[4.0]]), np.array([0.0]))
        (array([[2.]]), array([-2.]))
        """
        coef = weights / np.asarray(self.scale, dtype=weights.dtype)
        if self.shift is not None:
            intercept = intercept - coef @ np.asarray(self.shift, dtype=weights.dtype)
        return coef, intercept


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """One probe to train on some rows of a shared matrix.

    Attributes
    ----------
    rows
        Row numbers of the training cases.
    targets
        Target probabilities: (N,) the positive class's share, or (N, C) for C classes.
    validation, validation_targets
        Row numbers and targets of the cases whose log loss decides when to stop and which weights
        to keep. None: no early stopping, the last weights are kept.
    validation_weights
        Weights of the validation cases in that loss; None: all alike.
    weights
        Case weights (N,); 0 leaves a case out. The mean loss of a batch is
        ``sum(w loss) / (batch size x average weight)``.
    mixtures
        Synthetic cases, shuffled together with the real ones.
    initial
        Initial (weights, intercept), shapes (columns, d) and (columns,), for scaled rows; one
        column for two classes, C for C. None: zeros.
    order
        Seed of the batch order: ``numpy.random.default_rng(order)`` permutes the N real and S
        synthetic cases afresh every epoch. Tasks with the same rows, order and S share batches.
    learning_rate, decay
        Adam's step, and the L2 penalty ``decay / 2 |w|^2`` added to the mean loss (weights only).
    loss, gamma
        ``"log"`` or ``"focal"`` (Lin et al. 2017) with its exponent.
    scaling
        See `Scaling`.
    """

    rows: Int
    targets: Float
    validation: Int | None = None
    validation_targets: Float | None = None
    validation_weights: Float | None = None
    weights: Float | None = None
    mixtures: Mixtures | None = None
    initial: tuple[Float, Float] | None = None
    order: int = 0
    learning_rate: float = 1e-3
    decay: float = 0.0
    loss: str = "log"
    gamma: float = 2.0
    scaling: Scaling = field(default_factory=Scaling)

    @property
    def n_columns(self) -> int:
        """Columns of the weight matrix: one for two classes, C for C."""
        return 1 if self.targets.ndim == 1 else int(self.targets.shape[1])

    @property
    def n_mixtures(self) -> int:
        """How many synthetic cases there are."""
        return 0 if self.mixtures is None else len(self.mixtures)

    def all_targets(self) -> Float:
        """Targets of the real, then the synthetic cases."""
        if self.mixtures is None:
            return self.targets
        return np.concatenate([self.targets, self.mixtures.targets])

    def all_weights(self) -> NDArray[np.float64]:
        """Weights of the real, then the synthetic cases."""
        real = np.ones(len(self.rows)) if self.weights is None else self.weights
        if self.mixtures is None:
            return np.asarray(real, dtype=np.float64)
        synthetic = np.broadcast_to(self.mixtures.weight, (self.n_mixtures,))
        return np.concatenate([real, synthetic]).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Fit:
    """One trained probe.

    Attributes
    ----------
    weights, intercept
        Shapes (columns, d) and (columns,), for scaled rows (`Scaling.unscale` gives raw ones).
    history
        Mean log loss on the validation cases (or, where there are none, on the training cases)
        after each epoch.
    n_iter
        Epochs done.
    best
        The epoch (from 1) whose weights were kept.
    capped
        The limit of epochs ended the training, not early stopping.
    """

    weights: Float
    intercept: Float
    history: Float
    n_iter: int
    best: int
    capped: bool


def same_content(arrays: Sequence[Any]) -> list[int]:
    """Number arrays (or None) so that equal ones get the same number, in order of appearance."""
    by_identity: dict[int, int] = {}
    by_content: dict[Any, int] = {}
    numbers = []
    for array in arrays:
        if id(array) not in by_identity:
            key = None if array is None else (array.shape, array.dtype.str, array.tobytes())
            by_identity[id(array)] = by_content.setdefault(key, len(by_content))
        numbers.append(by_identity[id(array)])
    return numbers


def same_mixtures(tasks: Sequence[Task]) -> list[int]:
    """Number tasks so that those with the same synthetic rows get the same number."""
    parts = [
        same_content([None if t.mixtures is None else getattr(t.mixtures, name) for t in tasks])
        for name in ("first", "second", "alpha")
    ]
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in zip(*parts, strict=True)]


def check_tasks(tasks: Sequence[Task], n_rows: int, n_held: int) -> None:
    """Fail where a task's arrays do not fit each other or the matrix."""
    for task in tasks:
        if check_same_length(rows=task.rows, targets=task.targets) == 0:
            raise InputError("there are no training rows")
        check_weights(task.weights, len(task.rows))
        if (task.validation is None) != (task.validation_targets is None):
            raise InputError("give validation rows and their targets together")
        indices = {"rows": (task.rows, n_rows)}
        if task.validation is not None:
            check_same_length(
                validation=task.validation, validation_targets=task.validation_targets
            )
            check_weights(task.validation_weights, len(task.validation))
            indices["validation"] = task.validation, n_held
        if task.mixtures is not None:
            indices["first"] = task.mixtures.first, n_rows
            indices["second"] = task.mixtures.second, n_rows
        for name, (index, limit) in indices.items():
            if len(index) and (index.min() < 0 or index.max() >= limit):
                raise InputError(f"{name} must be row numbers below {limit}, got {index.max()}")


def _log_probabilities(xp: Any, logits: Array, n_columns: int) -> Array:
    """Log-softmax over each probe's columns: (probes, C, cases)."""
    z = xp.reshape(logits, (-1, n_columns, logits.shape[1]))
    z = z - xp.max(z, axis=1, keepdims=True)
    return z - xp.log(xp.sum(xp.exp(z), axis=1, keepdims=True))


def _softplus(xp: Any, z: Array) -> Array:
    """Log(1 + exp(z)) that neither overflows nor loses the small end."""
    size = xp.abs(z)
    return xp.log1p(xp.exp(-size)) + 0.5 * (size + z)


def _logistic(xp: Any, z: Array) -> Array:
    """1 / (1 + exp(-z)) without overflow; numpy has none of its own."""
    if hasattr(xp, "sigmoid"):
        return xp.sigmoid(z)
    p = xp.tanh(z * 0.5)
    p *= 0.5
    p += 0.5
    return p


def log_loss(xp: Any, logits: Array, targets: Array, n_columns: int) -> Array:
    """Return the log loss of each probe on each case, ``-sum_c t_c log p_c``: (probes, cases)."""
    if n_columns == 1:
        return _softplus(xp, logits) - targets * logits
    log_p = _log_probabilities(xp, logits, n_columns)
    return -xp.sum(xp.reshape(targets, log_p.shape) * log_p, axis=1)


def residual(xp: Any, logits: Array, targets: Array, n_columns: int, gamma: float | None) -> Array:
    """Return the slope of a probe's loss with respect to each logit, (columns, cases).

    For the log loss it is p - t. With `gamma` it is that of the focal loss
    ``-sum_c t_c (1 - p_c)^gamma log p_c`` (Lin et al. 2017): ``t_k h(p_k) - p_k sum_c t_c h(p_c)``
    with ``h(p) = gamma p (1 - p)^(gamma - 1) log p - (1 - p)^gamma``.
    """
    if n_columns == 1:
        if gamma is None:
            slope = _logistic(xp, logits)
            slope -= targets
            return slope
        log_yes, log_no = -_softplus(xp, -logits), -_softplus(xp, logits)
        yes, no = xp.exp(log_yes), xp.exp(log_no)
        return targets * no**gamma * (gamma * yes * log_yes - no) - (1.0 - targets) * yes**gamma * (
            gamma * no * log_no - yes
        )
    log_p = _log_probabilities(xp, logits, n_columns)
    p, t = xp.exp(log_p), xp.reshape(targets, log_p.shape)
    if gamma is None:
        return xp.reshape(p - t, logits.shape)
    # 1 - p from below keeps (1 - p)^(gamma - 1) finite for gamma < 1 at saturated cases.
    rest = xp.clip(1.0 - p, 1e-12, 1.0)
    h = t * (gamma * p * rest ** (gamma - 1.0) * log_p - rest**gamma)
    return xp.reshape(h - p * xp.sum(h, axis=1, keepdims=True), logits.shape)
