"""What is to be trained, on which rows, what came out, and the losses in between.

A `Task` is one probe, a `Fit` its result, a `Matrix` the shared rows: gathering, thin products, host
copies. Rows and losses use what numpy and torch share through ``array_api_compat``, so that the same
lines run on any device. Logits and targets are (columns, cases): one column for a two-class probe, C
adjoining columns for a C-class probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, Int, check_same_length, check_weights
from scalecal.synthesis import Mixtures

Array = Any  # a numpy array or a torch tensor
Float = NDArray[Any]

LOSSES = ("log", "focal")

# OpenBLAS multiplies without packing its operands below this many multiply-adds; for the thin
# products of a few probes that is two to three times as fast as one large call.
SMALL_PRODUCT = 1_000_000
TALLEST_BLOCK, NARROWEST_BLOCK = 32, 16
CHUNK_ROWS = 4096
FLOATS = ("float16", "bfloat16", "float32", "float64")


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


# -- rows ------------------------------------------------------------------------------------------


def product(a: Array, b: Array, out: Array) -> Array:
    """Write the matrix product ``a @ b`` into `out`, in blocks that suit few rows of `a`."""
    if not isinstance(out, np.ndarray):
        out[...] = a @ b
        return out
    rows, inner, columns = a.shape[0], a.shape[1], b.shape[1]
    height = min(TALLEST_BLOCK, SMALL_PRODUCT // (NARROWEST_BLOCK * max(1, inner)))
    if height < 4 or rows * inner * columns <= SMALL_PRODUCT:
        return np.matmul(a, b, out=out)
    # Blocks of about equal size; wide ones begin where a cache line does, if `b` does.
    height = _evenly(rows, height, 4)
    widest = SMALL_PRODUCT // (height * inner)
    width = _evenly(columns, widest, 4 if widest < 64 else 16)
    # The larger operand is `b`: each block of it is read once and met by all of `a`.
    for left in range(0, columns, width):
        for top in range(0, rows, height):
            block = slice(top, top + height), slice(left, left + width)
            np.matmul(a[block[0]], b[:, block[1]], out=out[block])
    return out


def _evenly(length: int, most: int, step: int) -> int:
    """The size, a multiple of `step`, of the fewest about equal parts that are no longer than `most`."""
    parts = -(-length // (most // step * step))
    return -(-length // parts // step) * step


def to_host(values: Array) -> NDArray[Any]:
    """Return `values` as a numpy array in main memory."""
    if isinstance(values, np.ndarray):
        return values
    return np.asarray(array_api_compat.to_device(values, "cpu"))


class Matrix:
    """The rows X (n, d), never copied whole: gathered, cast and scaled a batch at a time.

    float16 and float32 rows are computed in float32, float64 rows in float64.
    """

    def __init__(self, X: Array) -> None:
        if isinstance(X, np.memmap):
            X = np.asarray(X)  # the plain view gathers rows faster and still reads from the file
        if not array_api_compat.is_array_api_obj(X) or X.ndim != 2:
            raise InputError(f"X must be a 2-d array (n, features), got {type(X).__name__}")
        self.xp: Any = array_api_compat.array_namespace(X)
        self.X = X
        self.device: Any = array_api_compat.device(X)
        if str(X.dtype).rsplit(".", maxsplit=1)[-1] not in FLOATS:
            raise InputError(f"X must be float16, float32 or float64, got {X.dtype}")
        self.dtype: Any = self.xp.float64 if X.dtype == self.xp.float64 else self.xp.float32
        self.n_rows, self.n_features = (int(size) for size in X.shape)
        self._known: tuple[Scaling | None, Array, Array] = (None, None, None)
        # `np.take` would copy the whole of a matrix that is not aligned, as maps into .npz files are.
        self.plain = isinstance(X, np.ndarray) and bool(
            X.dtype == self.dtype and X.flags.aligned and X.flags.c_contiguous
        )

    def array(self, values: Any) -> Array:
        """Return host numbers as an array of the working precision beside X."""
        return self.xp.asarray(np.asarray(values), dtype=self.dtype, device=self.device)

    def index(self, values: Any) -> Array:
        """Return host row numbers as an index beside X."""
        return self.xp.asarray(np.asarray(values, dtype=np.int64), device=self.device)

    def empty(self, *shape: int) -> Array:
        """Return an array of the working precision, not yet filled."""
        return self.xp.empty(shape, dtype=self.dtype, device=self.device)

    def take(self, index: Array, scaling: Scaling | None = None, out: Array | None = None) -> Array:
        """Gather rows, with the part of `scaling` that is not one number applied.

        `out`, if given, is a buffer of at least as many rows that may be overwritten: fresh memory
        for every batch costs more than the gathering itself.
        """
        if isinstance(self.X, np.ndarray):
            if out is None:
                out = self.empty(len(index), self.n_features)
            rows = out[: len(index)]
            if self.plain:
                # "clip" spares a hidden copy; the row numbers were checked beforehand.
                np.take(self.X, index, axis=0, out=rows, mode="clip")
            else:
                rows[...] = self.X[index]
        else:
            # As one list of rows: torch has a faster kernel for that.
            flat = self.xp.take(self.X, self.xp.reshape(index, (-1,)), axis=0)
            rows = self.xp.reshape(flat, (*index.shape, self.n_features))
            if rows.dtype != self.dtype:
                rows = self.xp.astype(rows, self.dtype)
        if scaling is None or scaling.is_number:
            return rows
        if scaling.unit:
            lengths = self.xp.sqrt(self.xp.sum(rows * rows, axis=-1))
            rows /= self.xp.where(lengths > 0, lengths, self.xp.ones_like(lengths))[..., None]
        shift, scale = self._scales(scaling)
        if shift is not None:
            rows -= shift
        rows /= scale
        return rows

    def _scales(self, scaling: Scaling) -> tuple[Array | None, Array]:
        """Shift and scale beside X, moved there once."""
        if scaling is not self._known[0]:
            shift = None if scaling.shift is None else self.array(scaling.shift)
            self._known = scaling, shift, self.array(scaling.scale)
        return self._known[1:]


# -- losses ----------------------------------------------------------------------------------------


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
