"""The panel as part of a graph: from a label's probability to a reader's, to other panels', and splits.

With two classes the map from the label's logit to the reader's is a function of one number: a cubic
spline through points of the exact map, 64 of them per unit of the reader's logit up to 40 and a straight
line beyond, reproduces it to 1e-8. With more classes it is solved as `scalecal.panel` does, by Broyden's
method in a loop of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.interpolate import CubicSpline

from scalecal.checks import Int
from scalecal.export.tensors import (
    Graph,
    Tensor,
    log_odds,
    log_sigmoid,
    log_softmax,
    normalised,
    piecewise,
)
from scalecal.panel import (
    _LOG_TAIL,
    _least_odds,
    _log_choose,
    _log_whole,
    _majority_slope,
    label_logit,
)

FARTHEST = 40.0
"""Reader's logit up to which the map is tabulated: beyond, its probability is 0 or 1 to 1e-17."""
POINTS_PER_UNIT = 64
MOST_ROUNDS = 200


def reader_of_label(q: Tensor, rho: float, m: int, n_classes: int) -> Tensor:
    """A reader's logit from that of the label of m readers: (n,), or log-probabilities (n, C)."""
    if m <= 2:
        return normalised(q, n_classes)
    if n_classes == 2:
        return _tabulated(q, rho, m, None)
    return _by_rank(q, n_classes, lambda odds: _solve_plurality(odds, rho, m, n_classes))


def label_of_label(q: Tensor, rho: float, m: int, other: int, n_classes: int) -> Tensor:
    """The logit of the label of `other` readers from that of the label of m readers."""
    if n_classes == 2:
        return _tabulated(q, rho, m, other)
    reader = reader_of_label(q, rho, m, n_classes)
    if other <= 2:
        return reader
    return _by_rank(reader, n_classes, lambda odds: _plurality_odds(odds, rho, other, n_classes))


def split_of_reader(z: Tensor, rho: float, m: int, n_classes: int) -> Tensor:
    """Probability that m readers split, from a reader's logit; see `scalecal.panel.split_probability`."""
    most = max((m + 1) // 2, 4 * m // 7)
    if n_classes == 2:
        both = np.arange(m - most, most + 1)
        return _count_probability(log_sigmoid(z), log_sigmoid(-z), rho, m, both)
    # At most one class has more than `most` votes.
    odds = log_odds(z, n_classes)
    above = np.arange(most + 1, m + 1)
    won = _count_probability(log_sigmoid(odds), log_sigmoid(-odds), rho, m, above)
    return (1.0 - won.sum()).at_least(0.0)


# Two classes --------------------------------------------------------------------------------------


def _tabulated(q: Tensor, rho: float, m: int, other: int | None) -> Tensor:
    """The reader's logit (`other` None) or that of another panel's label, an odd function of q."""
    reader = np.linspace(0.0, FARTHEST, int(FARTHEST * POINTS_PER_UNIT) + 1)
    points = label_logit(reader, rho, m)
    values = reader
    if other is not None:
        values = label_logit(reader, rho, other)
    spline = CubicSpline(points, values, bc_type=("natural", "not-a-knot"))
    beyond = np.array([0.0, 0.0, float(spline(points[-1], 1)), float(values[-1])])
    coefficients = np.column_stack([spline.c, beyond])
    size = piecewise(q.abs(), points[1:], points, list(coefficients))
    return q.graph.op("Sign", q) * size


# Counts of votes ----------------------------------------------------------------------------------


def _count_probability(log_p: Tensor, log_rest: Tensor, rho: float, m: int, counts: Int) -> Tensor:
    """Probability that a class has one of these `counts` of m beta-binomial votes, by its log p."""
    i = np.arange(m)
    constant = _log_choose(m)[counts] - _log_whole(rho, m)
    up: Tensor = _log_factors(log_p, rho, m) @ (i[:, None] < counts).astype(np.float64)
    down: Tensor = _log_factors(log_rest, rho, m) @ (i[:, None] < m - counts).astype(np.float64)
    log_law: Tensor = up + down + constant
    return log_law.exp().sum()


def _log_factors(log_p: Tensor, rho: float, m: int) -> Tensor:
    """Logarithms of (1 - rho) p + i rho for i < m, along a new last axis."""
    first = (log_p + float(np.log1p(-rho))).expand(-1)
    if rho == 0.0:
        return first.graph.op("Add", first, np.zeros(m))
    # The first factor has no rho to keep it from 0: it is p's own logarithm, in both tails.
    later = (first.exp() + rho * np.arange(1.0, m)).log()
    return first.graph.op("Concat", first, later, axis=-1) if m > 1 else first


# More than two classes ----------------------------------------------------------------------------


def _by_rank(z: Tensor, n_classes: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a map of log-odds against the most likely class; normalised log-probabilities (n, C)."""
    graph = z.graph
    size = np.array([n_classes])
    ranked, order = graph.ops("TopK", z, size, outputs=2, axis=-1, largest=1, sorted=1)
    first = ranked.take([0])
    odds = function(ranked.take(np.arange(1, n_classes)) - first)
    out = log_softmax(graph.op("Concat", first * 0.0, odds, axis=-1))
    return graph.op("ScatterElements", out, order, out, axis=-1)


def _plurality_odds(x: Tensor, rho: float, m: int, n_classes: int) -> Tensor:
    """The label's log-odds against the first class, from a vote's, (n, C - 1); m > 2."""
    least = _least_odds(rho, m)
    near = x.at_least(least)
    first = near.take([0]) * 0.0
    log_p = log_softmax(x.graph.op("Concat", first, near, axis=-1))
    label = _plurality(log_p, rho, m, n_classes).log()
    slope = float(_majority_slope(np.array(least), rho, m))
    return label.take(np.arange(1, n_classes)) - label.take([0]) + slope * (x - near)


def _plurality(log_p: Tensor, rho: float, m: int, n_classes: int) -> Tensor:
    """Probability that each class has the plurality of m votes; see `scalecal.panel._plurality_block`."""
    majority = m // 2
    tiny = np.finfo(np.float64).tiny
    log_rest = (1.0 - log_p.exp()).at_least(tiny).log()
    won = _count_probability(log_p, log_rest, rho, m, np.arange(majority + 1, m + 1))
    parts = [won.take([c]) for c in range(n_classes)]
    # w_c(k) = prod_{i<k} ((1 - rho) p_c + i rho) / k!, scaled by m ** k: (n, C, majority + 1).
    i, k = np.arange(majority), np.arange(majority + 1)
    scale = np.append(0.0, np.cumsum(np.log(m / (i + 1.0))))
    factors = _log_factors(log_p, rho, majority) @ (i[:, None] < k).astype(np.float64)
    weights = (factors + scale).exp()
    j = np.arange(m)
    whole = float(np.prod(m * (1.0 - rho + j * rho) / (j + 1.0)))
    for t in range(-(-m // n_classes), majority + 1):
        ties = min(n_classes - 1, m // t - 1)
        nodes, node_weights = np.polynomial.legendre.leggauss(ties // 2 + 1)
        luck = np.ones((len(nodes), t + 1))
        luck[:, t] = 0.5 * (nodes + 1.0)
        polynomials = weights.take(np.arange(t + 1)).expand(2) * luck  # (n, C, nodes, t + 1)
        every = [polynomials.take(c, axis=1) for c in range(n_classes)]
        before = _running_products(every, t + 1, m - t)
        after = _running_products(every[::-1], t + 1, m - t)
        backwards = np.arange(m - t, -1, -1)
        for c in range(n_classes):
            joined = (before[c] * after[n_classes - 1 - c].take(backwards)).sum()
            wins = (joined @ (0.5 * node_weights[:, None] / whole)) * weights.take(t).take([c])
            parts[c] = parts[c] + wins
    return log_p.graph.op("Concat", *parts, axis=-1)


def _running_products(factors: Sequence[Tensor], length: int, degree: int) -> list[Tensor]:
    """Products of the first 0, 1, ..., C - 1 polynomials (n, nodes, length), up to x ** degree."""
    size = degree + 1
    products = [factors[0].take([0]) * 0.0 + np.eye(size)[0]]
    for factor in factors[:-1]:
        products.append(_product(factor, length, products[-1], size))
    return products


def _product(factor: Tensor, length: int, last: Tensor, size: int) -> Tensor:
    """The first `size` coefficients of a product: all pairs of coefficients, summed by their power."""
    first, second = np.nonzero(np.add.outer(np.arange(length), np.arange(size)) < size)
    pairs = factor.take(first) * last.take(second)
    return pairs.graph.op("MatMul", pairs, np.eye(size)[first + second])


def _solve_plurality(log_ratio: Tensor, rho: float, m: int, n_classes: int) -> Tensor:
    """Invert `_plurality_odds` (Broyden's method), starting as if each class met the first one alone."""
    target = log_ratio.at_least(_LOG_TAIL)
    start = _tabulated(target, rho, m, None)
    slope = _tabulated(target + 0.5, rho, m, None) - _tabulated(target - 0.5, rho, m, None)
    inverse = slope.expand(-1) * np.eye(n_classes - 1)
    longest = min(3.0, 200.0 / (m + 1))  # keeps label probabilities from underflowing on the way

    def step(
        graph: Graph, x: Tensor, value: Tensor, inverse: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        goal = graph.input(target.name)
        residual = value - goal
        allowed = 1e-10 * (1.0 + goal.abs().max())
        open_ = graph.op("Greater", residual.abs().max(), allowed).cast("DOUBLE")  # (n, 1)
        move = -(inverse @ residual.expand(-1)).drop(-1) * open_
        move = move * (longest / move.abs().max().at_least(1e-300)).at_most(1.0)
        new_x = x + move
        new = _plurality_odds(new_x, rho, m, n_classes)
        # Good Broyden update of the inverse Jacobian (Sherman and Morrison).
        push = (inverse @ (new - value).expand(-1)).drop(-1)
        scale = (move * push).sum(keep=True)
        scale = graph.op("Where", graph.op("Equal", scale, 0.0), np.inf, scale)
        gain = (move - push) * open_ / scale
        left = move.expand(-2) @ inverse
        more = graph.op("Greater", open_.sum(0).sum(), 0.0)
        return more, [new_x, new, inverse + gain.expand(-1) * left]

    first = _plurality_odds(start, rho, m, n_classes)
    x = log_ratio.graph.loop(step, [start, first, inverse], MOST_ROUNDS)[0]
    return x + (log_ratio - target) / _bare_majority_slope(x, rho, m)


def _bare_majority_slope(log_p: Tensor, rho: float, m: int) -> Tensor:
    """Derivative of the log-probability of a bare majority of votes in log p, for small p."""
    i = np.arange((m + 1) // 2)
    if rho == 0.0:
        return log_p * 0.0 + float(len(i))
    kept = (1.0 - rho) * log_p.exp().expand(-1)
    return 1.0 + (kept / (kept + rho * i[1:])).sum()
