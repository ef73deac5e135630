"""Compiled loops for few probes: a whole epoch, with rows read where they lie.

Copying a batch's rows together costs as much as multiplying them with the weights of a handful of
probes, and BLAS reads the copy twice more. Here four rows at a time meet all columns: their logits,
the slopes of the loss, and their share of the gradient, while they are still in the processor's
nearest cache. Four rows by four columns, so that every number read is used four times.

`python -m benchmarks kernels` measures this against gathering rows and calling BLAS.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from scalecal.solvers.problem import BETA_1, BETA_2, EPSILON

__all__ = ["Cases", "Pairs", "adam", "epoch", "forward"]

Real = NDArray[Any]  # float32 or float64
Numbers = NDArray[np.int64]

# Sums may be taken in another order, and a product and a sum in one rounding. No more than that:
# values that are not finite must stay so, since training that diverges is found by them.
REORDERED = {"reassoc", "contract", "nsz"}
# log2(e); ln 2 in two parts, the first short enough for exact multiples; powers of two.
LOG2_E, LN_2_HIGH, LN_2_LOW = 1.4426950408889634, 0.693359375, -2.121944400546905827679e-4
POWERS = 2.0 ** np.arange(-128, 129)


class Cases(NamedTuple):
    """What some columns learn from: real cases, then synthetic ones."""

    rows: Numbers  # (N,) of the real cases
    targets: Real  # (columns, cases)
    counts: Real  # (columns or 1, cases), what each case counts
    classes: int  # adjoining columns of a probe, 1 for two classes


class Probes(NamedTuple):
    """Columns in training. Logits are `factor` times products with rows, plus the intercept."""

    weights: Real  # (columns, d)
    intercept: Real
    factor: Real
    slope: Real  # (columns, d), the gradient of the weights
    slope_intercept: Real


class Pairs(NamedTuple):
    """Sets of synthetic cases: case s of set k mixes the two rows ``rows[k, places[k, :, s]]``."""

    columns: Numbers  # (sets, 2), which adjoining columns train on a set: first, and one past
    rows: Numbers  # (sets, most), each row once
    sizes: Numbers  # (sets,), how many rows there are
    places: Numbers  # (sets, 2, S)
    parts: Real  # (sets, 2, S), the share of each of the two rows


def _compiled(function: Any, inline: str = "never") -> Any:
    """Compile at the first call; keep the machine code for the next process where there is room."""
    options: dict[str, Any] = {
        "fastmath": REORDERED,
        "error_model": "numpy",
        "inline": inline,
    }
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither this file's folder nor the user's cache can be written
        return numba.njit(**options)(function)


_inlined = partial(_compiled, inline="always")


@_compiled
def _logits_of_four(x0: Real, x1: Real, x2: Real, x3: Real, weights: Real, out: Real) -> None:
    """Write the products of four rows with all weights (columns, d) into `out` (columns, 4)."""
    columns, d = weights.shape
    zero = weights.dtype.type(0)
    for p in range(0, columns - 3, 4):
        w0, w1, w2, w3 = weights[p], weights[p + 1], weights[p + 2], weights[p + 3]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
        c0 = c1 = c2 = c3 = e0 = e1 = e2 = e3 = zero
        for f in range(d):
            u0, u1, u2, u3 = x0[f], x1[f], x2[f], x3[f]
            v0, v1, v2, v3 = w0[f], w1[f], w2[f], w3[f]
            a0 += u0 * v0
            a1 += u1 * v0
            a2 += u2 * v0
            a3 += u3 * v0
            b0 += u0 * v1
            b1 += u1 * v1
            b2 += u2 * v1
            b3 += u3 * v1
            c0 += u0 * v2
            c1 += u1 * v2
            c2 += u2 * v2
            c3 += u3 * v2
            e0 += u0 * v3
            e1 += u1 * v3
            e2 += u2 * v3
            e3 += u3 * v3
        out[p, 0], out[p, 1], out[p, 2], out[p, 3] = a0, a1, a2, a3
        out[p + 1, 0], out[p + 1, 1], out[p + 1, 2], out[p + 1, 3] = b0, b1, b2, b3
        out[p + 2, 0], out[p + 2, 1], out[p + 2, 2], out[p + 2, 3] = c0, c1, c2, c3
        out[p + 3, 0], out[p + 3, 1], out[p + 3, 2], out[p + 3, 3] = e0, e1, e2, e3
    for p in range(columns // 4 * 4, columns):
        w0 = weights[p]
        a0 = a1 = a2 = a3 = zero
        for f in range(d):
            v0 = w0[f]
            a0 += x0[f] * v0
            a1 += x1[f] * v0
            a2 += x2[f] * v0
            a3 += x3[f] * v0
        out[p, 0], out[p, 1], out[p, 2], out[p, 3] = a0, a1, a2, a3


@_compiled
def _add_four(x0: Real, x1: Real, x2: Real, x3: Real, slopes: Real, out: Real) -> None:
    """Add to the gradient `out` (columns, d) what four rows give, by their slopes (columns, 4)."""
    columns, d = out.shape
    for p in range(0, columns - 3, 4):
        a0, a1, a2, a3 = slopes[p, 0], slopes[p, 1], slopes[p, 2], slopes[p, 3]
        b0, b1, b2, b3 = slopes[p + 1, 0], slopes[p + 1, 1], slopes[p + 1, 2], slopes[p + 1, 3]
        c0, c1, c2, c3 = slopes[p + 2, 0], slopes[p + 2, 1], slopes[p + 2, 2], slopes[p + 2, 3]
        e0, e1, e2, e3 = slopes[p + 3, 0], slopes[p + 3, 1], slopes[p + 3, 2], slopes[p + 3, 3]
        g0, g1, g2, g3 = out[p], out[p + 1], out[p + 2], out[p + 3]
        for f in range(d):
            u0, u1, u2, u3 = x0[f], x1[f], x2[f], x3[f]
            g0[f] += a0 * u0 + a1 * u1 + a2 * u2 + a3 * u3
            g1[f] += b0 * u0 + b1 * u1 + b2 * u2 + b3 * u3
            g2[f] += c0 * u0 + c1 * u1 + c2 * u2 + c3 * u3
            g3[f] += e0 * u0 + e1 * u1 + e2 * u2 + e3 * u3
    for p in range(columns // 4 * 4, columns):
        a0, a1, a2, a3 = slopes[p, 0], slopes[p, 1], slopes[p, 2], slopes[p, 3]
        g0 = out[p]
        for f in range(d):
            g0[f] += a0 * x0[f] + a1 * x1[f] + a2 * x2[f] + a3 * x3[f]


@_compiled
def _logistic(values: Real) -> None:
    """Turn flat logits into probabilities, to the last digit or two, many at a time.

    Compilers call the library's exponential for one number after another. This one has no call:
    exp(x) = 2^k exp(r) with k whole and |r| < 0.35, and thirteen terms of the series for exp(r).
    Logits beyond +-80 count as +-80, which is 0 or 1 to the last digit; so do those that are no
    numbers, but then the weights are none either, and training is found to diverge.
    """
    kind = values.dtype.type
    one, half, most = kind(1), kind(0.5), kind(80)
    per_log, log_high, log_low = kind(LOG2_E), kind(LN_2_HIGH), kind(LN_2_LOW)
    for i in range(values.shape[0]):
        x = -values[i]
        x = x if x < most else most
        x = x if x > -most else -most
        k = np.floor(x * per_log + half)
        r = x - k * log_high - k * log_low
        total = kind(1 / 6227020800.0)
        total = total * r + kind(1 / 479001600.0)
        total = total * r + kind(1 / 39916800.0)
        total = total * r + kind(1 / 3628800.0)
        total = total * r + kind(1 / 362880.0)
        total = total * r + kind(1 / 40320.0)
        total = total * r + kind(1 / 5040.0)
        total = total * r + kind(1 / 720.0)
        total = total * r + kind(1 / 120.0)
        total = total * r + kind(1 / 24.0)
        total = total * r + kind(1 / 6.0)
        total = total * r + half
        total = total * r + one
        total = total * r + one
        values[i] = one / (one + total * kind(POWERS[np.int64(k) + 128]))


@_compiled
def _softmax(logits: Real, classes: int) -> None:
    """Turn logits (columns, cases) into probabilities over each probe's C adjoining columns."""
    for p in range(0, logits.shape[0], classes):
        for q in range(logits.shape[1]):
            highest = logits[p, q]
            for c in range(p + 1, p + classes):
                highest = max(highest, logits[c, q])
            total = logits.dtype.type(0)
            for c in range(p, p + classes):
                logits[c, q] = np.exp(logits[c, q] - highest)
                total += logits[c, q]
            for c in range(p, p + classes):
                logits[c, q] /= total


@_inlined
def _slopes(logits: Real, known: Cases, now: Numbers, share: float, probes: Probes) -> None:
    """Turn products with rows into slopes of the log loss; add those of the intercepts.

    `logits` are (columns, m) of the cases numbered `now`; where these are fewer than m, the slopes
    become 0.
    """
    count = min(logits.shape[1], now.shape[0])
    for p in range(logits.shape[0]):
        for q in range(logits.shape[1]):
            logits[p, q] = logits[p, q] * probes.factor[p] + probes.intercept[p]
    if known.classes == 1:
        _logistic(logits.reshape(-1))
    else:
        _softmax(logits, known.classes)
    logits[:, count:] = 0
    part = logits.dtype.type(share)
    for p in range(logits.shape[0]):
        counted = min(p, known.counts.shape[0] - 1)
        for q in range(count):
            slope = logits[p, q] - known.targets[p, now[q]]
            slope *= known.counts[counted, now[q]] * part
            probes.slope_intercept[p] += slope
            logits[p, q] = slope * probes.factor[p]


@_compiled
def forward(X: Real, index: Numbers, weights: Real, out: Real) -> None:
    """Write ``weights @ X[index].T`` into `out` (columns, cases)."""
    last = index.shape[0] - 1
    four = np.empty((weights.shape[0], 4), weights.dtype)
    for i in range(0, last + 1, 4):
        # Where the last four are not full, the last row is taken again.
        j, k, m = min(i + 1, last), min(i + 2, last), min(i + 3, last)
        x0, x1, x2, x3 = X[index[i]], X[index[j]], X[index[k]], X[index[m]]
        _logits_of_four(x0, x1, x2, x3, weights, four)
        for p in range(four.shape[0]):
            for q in range(min(4, last + 1 - i)):
                out[p, i + q] = four[p, q]


@_inlined
def _learn(X: Real, known: Cases, now: Numbers, share: float, probes: Probes) -> None:
    """Add to the gradient what the real cases numbered `now` give, each counting `share`."""
    last, rows = now.shape[0] - 1, known.rows
    four = np.empty((probes.weights.shape[0], 4), probes.weights.dtype)
    for i in range(0, last + 1, 4):
        j, k, m = min(i + 1, last), min(i + 2, last), min(i + 3, last)
        x0, x1, x2, x3 = X[rows[now[i]]], X[rows[now[j]]], X[rows[now[k]]], X[rows[now[m]]]
        _logits_of_four(x0, x1, x2, x3, probes.weights, four)
        _slopes(four, known, now[i:], share, probes)
        _add_four(x0, x1, x2, x3, four, probes.slope)


@_inlined
def _learn_mixed(
    X: Real,
    known: Cases,
    now: Numbers,
    share: float,
    probes: Probes,
    rows: Numbers,
    places: Numbers,
    parts: Real,
) -> None:
    """Add to the gradient what synthetic cases give: pairs of `rows`, by `places` and `parts`.

    A mix of two rows has the same mix of their logits, and its slope goes back to both. Where the
    rows are few, each is multiplied once; where they are many, those of each pair.
    """
    columns, cases = probes.weights.shape[0], now.shape[0]
    first = known.rows.shape[0]  # number of the first synthetic case
    index, few = rows, rows.shape[0] <= 2 * cases
    if not few:
        index = np.empty(2 * cases, rows.dtype)
        for s in range(cases):
            index[s] = rows[places[0, now[s] - first]]
            index[cases + s] = rows[places[1, now[s] - first]]
    of_rows = np.empty((columns, index.shape[0]), parts.dtype)
    forward(X, index, probes.weights, of_rows)
    mixed = np.empty((columns, cases), parts.dtype)
    for p in range(columns):
        for s in range(cases):
            case = now[s] - first
            one, other = (places[0, case], places[1, case]) if few else (s, cases + s)
            mixed[p, s] = parts[0, case] * of_rows[p, one] + parts[1, case] * of_rows[p, other]
    _slopes(mixed, known, now, share, probes)
    of_rows[:] = 0
    for p in range(columns):
        for s in range(cases):
            case = now[s] - first
            one, other = (places[0, case], places[1, case]) if few else (s, cases + s)
            of_rows[p, one] += parts[0, case] * mixed[p, s]
            of_rows[p, other] += parts[1, case] * mixed[p, s]
    last = index.shape[0] - 1
    four = np.empty((columns, 4), parts.dtype)
    for i in range(0, last + 1, 4):
        j, k, m = min(i + 1, last), min(i + 2, last), min(i + 3, last)
        for p in range(columns):
            for q in range(4):
                four[p, q] = of_rows[p, i + q] if i + q <= last else 0
        _add_four(X[index[i]], X[index[j]], X[index[k]], X[index[m]], four, probes.slope)


@_compiled
def adam(state: Real, gradient: Real, first: Real, second: Real, rate: float, step: int) -> None:
    """Take Adam's step number `step` (from 1); the moments are kept undivided by 1 - beta."""
    dtype = state.dtype.type
    root = np.sqrt((1.0 - BETA_2**step) / (1.0 - BETA_2))
    pace = dtype(rate * (1.0 - BETA_1) / (1.0 - BETA_1**step) * root)
    beta_1, beta_2, epsilon = dtype(BETA_1), dtype(BETA_2), dtype(EPSILON * root)
    for f in range(state.shape[0]):
        slope = gradient[f]
        mean = beta_1 * first[f] + slope
        square = beta_2 * second[f] + slope * slope
        first[f], second[f] = mean, square
        state[f] -= pace * mean / (np.sqrt(square) + epsilon)


@_compiled
def epoch(
    X: Real,
    order: Numbers,
    batch_size: int,
    known: Cases,
    pairs: Pairs,
    factor: Real,
    state: Real,
    gradient: Real,
    first: Real,
    second: Real,
    rates: NDArray[np.float64],
    decays: Real,
    step: int,
) -> None:
    """Take one step for each batch of the cases in `order`, real ones first within a batch.

    `state`, `gradient` (overwritten) and the moments `first` and `second` hold the weights of all
    columns and then their intercepts. `rates` and `decays` are the columns' learning rates and L2
    penalties; `step` steps were taken before.
    """
    n_real, columns, d = known.rows.shape[0], factor.shape[0], X.shape[1]
    size = columns * d
    probes = Probes(
        state[:size].reshape((columns, d)),
        state[size:],
        factor,
        gradient[:size].reshape((columns, d)),
        gradient[size:],
    )
    for start in range(0, order.shape[0], batch_size):
        now = order[start : start + batch_size]
        share = 1.0 / now.shape[0]
        real = now.shape[0]
        while real > 0 and now[real - 1] >= n_real:
            real -= 1
        gradient[:] = 0
        _learn(X, known, now[:real], share, probes)
        if real < now.shape[0]:
            for k in range(pairs.columns.shape[0]):
                a, b = pairs.columns[k]
                some = Cases(
                    known.rows,
                    known.targets[a:b],
                    known.counts[a:b] if known.counts.shape[0] > 1 else known.counts,
                    known.classes,
                )
                mine = Probes(
                    probes.weights[a:b],
                    probes.intercept[a:b],
                    probes.factor[a:b],
                    probes.slope[a:b],
                    probes.slope_intercept[a:b],
                )
                rows = pairs.rows[k, : pairs.sizes[k]]
                _learn_mixed(
                    X, some, now[real:], share, mine, rows, pairs.places[k], pairs.parts[k]
                )
        step += 1
        for p in range(columns):
            for f in range(d):
                probes.slope[p, f] += decays[p] * probes.weights[p, f]
        for part in range(2 * columns):  # each column's weights, then each one's intercept
            p = part % columns
            own = slice(p * d, (p + 1) * d) if part < columns else slice(size + p, size + p + 1)
            adam(state[own], gradient[own], first[own], second[own], rates[p], step)
