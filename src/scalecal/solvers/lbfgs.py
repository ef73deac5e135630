"""L-BFGS to the optimum, many probes in one weight matrix.

Every iteration reads the rows twice for all probes together: once for the logits of the search
directions, once for the gradients. The line search costs no products, since logits are linear in
the step. One Cholesky factor of X'X / 4n + decay, an upper bound of every two-class Hessian, is
shared by all probes as a change of variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import check_positive_int
from scalecal.solvers.arrays import CHUNK_ROWS, Array, Matrix, product, to_host
from scalecal.solvers.losses import loss, residual
from scalecal.solvers.mixing import coefficients
from scalecal.solvers.problem import Fit, Scaling, Task, check_tasks

__all__ = ["minimise"]

SUFFICIENT = 1e-4  # Armijo's share of the promised decrease
HALVINGS = 25
STALLED = 20  # iterations without a smaller gradient: rounding allows no better


def minimise(
    X: Array,
    tasks: Sequence[Task],
    *,
    tol: float | None = None,
    max_iter: int = 500,
    memory: int = 10,
    precondition: bool | None = None,
) -> list[Fit]:
    """Minimise each task's mean loss + decay / 2 |w|^2 by L-BFGS (Liu and Nocedal 1989).

    Validation rows, batch order and learning rate play no part.

    Parameters
    ----------
    X
        Shared rows (n, d), as for `train`.
    tasks
        The probes; give each a positive `decay`, or separable data have no optimum.
    tol
        Stop when no entry of the gradient is larger; None: 1e-5 in single, 1e-10 in double precision.
    max_iter
        At most so many iterations; a probe ended by it is marked `capped`.
    memory
        Pairs of steps and gradient changes kept.
    precondition
        Whether to use the shared Cholesky factor, which costs n d^2 once; None: where there are
        enough probes to pay for it.

    Returns
    -------
    list of Fit
        One per task, in their order.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[-1.0], [1.0]])
    >>> task = Task(rows=np.arange(2), targets=np.array([0.2, 0.8]), decay=0.0)
    >>> round(float(minimise(X, [task], tol=1e-9)[0].weights[0, 0]), 6)  # log(0.8 / 0.2)
    1.386294
    """
    data = Matrix(X)
    check_tasks(tasks, data.n_rows, data.n_features, data.n_rows)
    check_positive_int(max_iter, "max_iter")
    if tol is None:
        tol = 1e-10 if data.dtype == data.xp.float64 else 1e-5
    groups: dict[Any, list[int]] = {}
    for i, task in enumerate(tasks):
        scaling = None if task.scaling.is_number else id(task.scaling)
        gamma = task.gamma if task.loss == "focal" else None
        groups.setdefault((task.n_columns, gamma, task.decay, scaling), []).append(i)
    fits: dict[int, Fit] = {}
    for members in groups.values():
        mine = [tasks[i] for i in members]
        columns = len(members) * mine[0].n_columns
        wanted = columns >= data.n_features / 200 if precondition is None else precondition
        change = _factor(data, mine) if wanted else None
        # The state is a few (columns, n) arrays: blocks of columns keep it well below X itself.
        size = max(1, max(8, data.n_features // 16) // mine[0].n_columns)
        for start in range(0, len(members), size):
            block = _Block(data, mine[start : start + size], change, memory)
            found = block.run(tol, max_iter)
            fits.update(zip(members[start : start + size], found, strict=True))
    return [fits[i] for i in range(len(tasks))]


def _chunks(data: Matrix, rows: Array, scaling: Scaling) -> Iterator[tuple[slice, Array]]:
    """The rows, gathered and scaled some thousand at a time into one buffer."""
    n = int(rows.shape[0])
    buffer = data.empty(min(n, CHUNK_ROWS), data.n_features)
    for start in range(0, n, CHUNK_ROWS):
        block = slice(start, min(start + CHUNK_ROWS, n))
        yield block, data.take(rows[block], scaling, buffer)


def _factor(data: Matrix, tasks: Sequence[Task]) -> Array:
    """Inverse Cholesky factor of X'X / 4n + decay, intercept included, (d + 1, d + 1).

    The rows are all those any task trains on: for a preconditioner a fold more or less is nothing.
    """
    from scipy.linalg import lapack  # late: the solvers themselves need numpy alone

    xp, d = data.xp, data.n_features
    rows = np.unique(np.concatenate([t.rows for t in tasks]))
    scales = [float(t.scaling.scale) if t.scaling.is_number else 1.0 for t in tasks]
    factor = float(np.mean(1.0 / np.square(scales)))
    gram, total = data.zeros(d, d), data.zeros(d)
    for _, block in _chunks(data, data.index(rows), tasks[0].scaling):
        gram += block.T @ block
        total += xp.sum(block, axis=0)
    bound = np.empty((d + 1, d + 1))
    bound[:d, :d] = np.asarray(to_host(gram), dtype=np.float64) * factor
    bound[d, :d] = bound[:d, d] = np.asarray(to_host(total), dtype=np.float64) * np.sqrt(factor)
    bound[d, d] = len(rows)
    bound /= 4.0 * len(rows)
    # A trace of ridge keeps the factor finite where features are constant or repeated.
    ridge = tasks[0].decay + 1e-6 * float(np.trace(bound)) / (d + 1)
    bound[np.diag_indices(d)] += ridge
    bound[d, d] += 1e-6
    inverse, _ = lapack.dtrtri(np.linalg.cholesky(bound), lower=1)
    return data.array(inverse)


class _Block:
    """Some probes at once: weights (columns, d + 1), intercept last, and logits of every case."""

    def __init__(self, data: Matrix, tasks: list[Task], change: Array | None, memory: int) -> None:
        self.data, self.xp, self.tasks, self.memory = data, data.xp, tasks, memory
        self.change = change
        self.n_columns = tasks[0].n_columns
        self.gamma = tasks[0].gamma if tasks[0].loss == "focal" else None
        self.decay = tasks[0].decay
        self.scaling = tasks[0].scaling
        ends = [
            m
            for t in tasks
            if t.mixtures is not None
            for m in (t.mixtures.first, t.mixtures.second)
        ]
        rows = np.unique(np.concatenate([*(t.rows for t in tasks), *ends]))
        self.rows, self.n_real = data.index(rows), len(rows)
        self.n_cases = self.n_real + max(t.n_mixtures for t in tasks)
        self._set_cases(rows)

    def _set_cases(self, rows: NDArray[np.int64]) -> None:
        """Targets and weights of real, then synthetic cases; a weight of 0 fills the gaps."""
        data, c = self.data, self.n_columns
        targets = np.zeros((len(self.tasks) * c, self.n_cases), dtype=_host_dtype(data))
        weights = np.zeros((len(self.tasks), self.n_cases), dtype=np.float64)
        self.synthetic: list[_Synthetic | None] = []
        for i, task in enumerate(self.tasks):
            mine = slice(i * c, (i + 1) * c)
            place = np.searchsorted(rows, task.rows)
            given = np.ones(len(place)) if task.weights is None else task.weights
            # Repeated rows of one task count as often as they occur, with their mean target.
            np.add.at(weights[i], place, given)
            flat = np.atleast_2d(task.targets.T) * given
            for column, values in zip(range(mine.start, mine.stop), flat, strict=True):
                np.add.at(targets[column], place, values)
            present = weights[i, : self.n_real] > 0
            targets[mine, : self.n_real][:, present] /= weights[i, : self.n_real][present]
            self.synthetic.append(None)
            if task.mixtures is not None:
                tail = slice(self.n_real, self.n_real + task.n_mixtures)
                targets[mine, tail] = task.mixtures.targets.T
                weights[i, tail] = task.mixtures.weight
                self.synthetic[i] = _Synthetic(data, task, rows, self.scaling)
        weights /= weights.sum(axis=1, keepdims=True)
        self.targets, self.weights = data.array(targets), data.array(weights)
        factors = [1.0 / float(t.scaling.scale) if t.scaling.is_number else 1.0 for t in self.tasks]
        self.factor = data.array(np.repeat(factors, c)[:, None])

    # -- the linear map from weights to logits, and its transpose ---------------------------------

    def _logits(self, state: Array) -> Array:
        d, c = self.data.n_features, self.n_columns
        weights = self.xp.asarray(state[:, :d] * self.factor, copy=True)
        out = self.data.zeros(state.shape[0], self.n_cases)
        for block, rows in _chunks(self.data, self.rows, self.scaling):
            product(weights, rows.T, out[:, block])
        for i, synthetic in enumerate(self.synthetic):
            if synthetic is not None:
                mine = slice(i * c, (i + 1) * c)
                out[mine, self.n_real : self.n_real + synthetic.size] = synthetic.forward(out[mine])
        out += state[:, d:]
        return out

    def _gradient(self, logits: Array, state: Array) -> Array:
        d, c = self.data.n_features, self.n_columns
        slopes = residual(self.xp, logits, self.targets, c, self.gamma)
        slopes *= self._per_column(self.weights)
        out = self.data.zeros(*state.shape)
        out[:, d] = self.xp.sum(slopes, axis=1)
        for i, synthetic in enumerate(self.synthetic):
            if synthetic is not None:
                mine = slice(i * c, (i + 1) * c)
                synthetic.backward(slopes[mine, self.n_real :], slopes[mine])
        part = self.data.empty(state.shape[0], d)
        for block, rows in _chunks(self.data, self.rows, self.scaling):
            out[:, :d] += product(slopes[:, block], rows, part)
        out[:, :d] *= self.factor
        out[:, :d] += self.decay * state[:, :d]
        return out

    def _value(self, logits: Array, state: Array) -> NDArray[np.float64]:
        each = loss(self.xp, logits, self.targets, self.n_columns, self.gamma)
        mean = self.xp.sum(each * self.weights, axis=1, dtype=self.xp.float64)
        inner = state[:, : self.data.n_features]
        return _host64(mean) + self.decay / 2 * self._dot(inner, inner)

    def _dot(self, a: Array, b: Array) -> NDArray[np.float64]:
        """Inner product per probe."""
        sums = _host64(self.xp.sum(a * b, axis=1, dtype=self.xp.float64))
        total: NDArray[np.float64] = sums.reshape(-1, self.n_columns).sum(axis=1)
        return total

    def _per_column(self, values: Array) -> Array:
        """Repeat one row per probe to one per column."""
        return values if self.n_columns == 1 else self.xp.repeat(values, self.n_columns, axis=0)

    def _scale(self, values: NDArray[np.float64]) -> Array:
        """One number per probe as a (columns, 1) array."""
        return self.data.array(np.repeat(values, self.n_columns)[:, None])

    # -- the method -------------------------------------------------------------------------------

    def run(self, tol: float, max_iter: int) -> list[Fit]:
        """Iterate until every probe has converged, stalled or reached the cap."""
        xp, d, n = self.xp, self.data.n_features, len(self.tasks)
        live = np.arange(n)
        start = np.zeros((n * self.n_columns, d + 1))
        for i, task in enumerate(self.tasks):
            if task.initial is not None:
                mine = slice(i * self.n_columns, (i + 1) * self.n_columns)
                start[mine, :d], start[mine, d] = task.initial
        state = self.data.array(start)
        logits = self._logits(state)
        value, gradient = self._value(logits, state), self._gradient(logits, state)
        history: list[list[float]] = [[] for _ in range(n)]
        results: dict[int, tuple[NDArray[Any], bool]] = {}
        steps: list[Array] = []
        changes: list[Array] = []
        precision = 8.0 * float(xp.finfo(self.data.dtype).eps)
        stalled, smallest, waited = np.zeros(n, dtype=bool), np.full(n, np.inf), np.zeros(n)
        for iteration in range(max_iter + 1):
            largest = (
                _host64(xp.max(xp.abs(gradient), axis=1)).reshape(-1, self.n_columns).max(axis=1)
            )
            # Values stop changing long before gradients do: only the latter tell a real stall.
            waited = np.where(largest < smallest, 0, waited + 1)
            smallest = np.minimum(smallest, largest)
            stalled |= waited >= STALLED
            ended = (largest <= tol) | stalled
            if iteration == max_iter:
                ended[:] = True
            if ended.any():
                kept = to_host(state).reshape(-1, self.n_columns, d + 1)
                for i in np.flatnonzero(ended).tolist():
                    results[int(live[i])] = (kept[i].copy(), bool(largest[i] <= tol or stalled[i]))
                    if not history[live[i]]:
                        history[live[i]].append(float(value[i]))
                if ended.all():
                    break
                keep = np.flatnonzero(~ended)
                columns = self.data.index(
                    (keep[:, None] * self.n_columns + np.arange(self.n_columns)).reshape(-1)
                )
                self._keep(keep, columns)
                live, value = live[keep], value[keep]
                smallest, waited = smallest[keep], waited[keep]
                state, logits, gradient = state[columns], logits[columns], gradient[columns]
                steps, changes = [s[columns] for s in steps], [c[columns] for c in changes]
            inner = gradient if self.change is None else gradient @ self.change.T
            move = self._direction(inner, steps, changes)
            direction = move if self.change is None else move @ self.change
            slope = self._dot(gradient, direction)
            along = self._logits(direction)
            length, value, stalled = self._search(
                state, direction, logits, along, value, slope, precision
            )
            scaled = self._scale(length)
            state = state + scaled * direction
            logits += scaled * along
            fresh = self._gradient(logits, state)
            changes.append(
                (fresh - gradient) if self.change is None else fresh @ self.change.T - inner
            )
            steps.append(scaled * move)
            del steps[: -self.memory], changes[: -self.memory]
            gradient = fresh
            for i, number in enumerate(live):
                history[number].append(float(value[i]))
        return [
            Fit(
                weights=results[i][0][:, :d].copy(),
                intercept=results[i][0][:, d].copy(),
                history=np.array(history[i]),
                n_iter=len(history[i]),
                best=len(history[i]),
                converged=results[i][1],
                capped=not results[i][1],
            )
            for i in range(n)
        ]

    def _direction(self, gradient: Array, steps: list[Array], changes: list[Array]) -> Array:
        """The two-loop recursion, each probe with its own numbers."""
        move = -gradient
        pairs = []
        for s, y in zip(reversed(steps), reversed(changes), strict=True):
            curvature, size = self._dot(s, y), self._dot(y, y)
            # A pair without positive curvature (focal loss, or rounding) is passed over.
            usable = curvature > 1e-10 * size
            inverse = np.where(usable, 1.0 / np.where(usable, curvature, 1.0), 0.0)
            share = inverse * self._dot(s, move)
            move = move - self._scale(share) * y
            pairs.append((s, y, inverse, share))
        if pairs:
            s, y, inverse, _ = pairs[0]
            size = self._dot(y, y)
            usable = (inverse > 0) & (size > 0)
            pace = np.where(usable, self._dot(s, y) / np.where(usable, size, 1.0), 1.0)
            move = self._scale(pace) * move
        for s, y, inverse, share in reversed(pairs):
            move = move + self._scale(share - inverse * self._dot(y, move)) * s
        return move

    def _search(
        self,
        state: Array,
        direction: Array,
        logits: Array,
        along: Array,
        value: NDArray[np.float64],
        slope: NDArray[np.float64],
        precision: float,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Step lengths with sufficient decrease, the values there, and who can go no further."""
        length = np.ones(len(value))
        done = np.zeros(len(value), dtype=bool)
        new = value.copy()
        slack = precision * np.abs(value)
        for _ in range(HALVINGS):
            scaled = self._scale(length)
            trial = self._value(logits + scaled * along, state + scaled * direction)
            fine = trial <= value + SUFFICIENT * length * slope + slack
            new = np.where(done, new, trial)
            done |= fine
            if done.all():
                break
            # The minimum of the parabola through the value, the slope and the trial.
            bend = trial - value - slope * length
            with np.errstate(divide="ignore", invalid="ignore"):
                guess = np.where(bend > 0, -slope * length**2 / (2 * bend), 0.0)
            guess = np.where(np.isfinite(guess), guess, 0.0)
            length = np.where(done, length, np.clip(guess, 0.1 * length, 0.5 * length))
        return np.where(done, length, 0.0), np.where(done, new, value), ~done

    def _keep(self, probes: NDArray[np.int64], columns: Array) -> None:
        """Take the other probes out: they cost nothing more."""
        self.targets, self.factor = self.targets[columns], self.factor[columns]
        self.weights = self.weights[self.data.index(probes)]
        self.synthetic = [self.synthetic[i] for i in probes]


class _Synthetic:
    """One probe's synthetic cases as a sparse map of the real cases' logits."""

    def __init__(self, data: Matrix, task: Task, rows: NDArray[np.int64], scaling: Scaling) -> None:
        mixtures = task.mixtures
        assert mixtures is not None
        self.data, self.xp, self.size = data, data.xp, len(mixtures)
        left, right = coefficients(data, mixtures, scaling)
        first, second = (np.searchsorted(rows, e) for e in (mixtures.first, mixtures.second))
        self.first, self.second = data.index(first), data.index(second)
        self.left, self.right = data.array(left), data.array(right)
        both = np.concatenate([first, second])
        order = np.argsort(both, kind="stable")
        anchors, starts = np.unique(both[order], return_index=True)
        self.order, self.anchors = data.index(order), data.index(anchors)
        self.last = data.index(np.append(starts[1:], len(both)) - 1)

    def forward(self, logits: Array) -> Array:
        """Logits of the synthetic cases, without the intercept."""
        take = self.xp.take
        return self.left * take(logits, self.first, axis=1) + self.right * take(
            logits, self.second, axis=1
        )

    def backward(self, slopes: Array, into: Array) -> None:
        """Add the synthetic cases' slopes to those of the anchors they are made of."""
        xp = self.xp
        mine = slopes[:, : self.size]
        parts = xp.concat([mine * self.left, mine * self.right], axis=1)
        # Sums over runs of equal anchors by differences of a running sum, which every array
        # library has; in double precision, so that nothing is lost.
        running = xp.cumulative_sum(
            xp.astype(xp.take(parts, self.order, axis=1), xp.float64), axis=1
        )
        sums = xp.take(running, self.last, axis=1)
        sums[:, 1:] -= xp.asarray(sums[:, :-1], copy=True)
        into[:, self.anchors] += xp.astype(sums, self.data.dtype)


def _host_dtype(data: Matrix) -> Any:
    """The working precision as a numpy type."""
    return np.float64 if data.dtype == data.xp.float64 else np.float32


def _host64(values: Array) -> NDArray[np.float64]:
    """A small array in main memory, in double precision."""
    return np.asarray(to_host(values), dtype=np.float64)
