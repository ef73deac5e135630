"""The panel of two classes as part of a graph: from a label's probability to a reader's, and splits.

The map from the label's logit to the reader's is a function of one number: a cubic spline through points
of the exact map, 64 of them per unit of the reader's logit up to 40 and a straight line beyond, reproduces
it to 1e-8. With more classes it would have to be solved inside the graph: there `p` alone is exported.
"""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicSpline

from scalecal.checks import Int
from scalecal.export.tensors import Tensor, log_sigmoid, piecewise
from scalecal.panel import _log_choose, _log_whole, label_logit

FARTHEST = 40.0
"""Reader's logit up to which the map is tabulated: beyond, its probability is 0 or 1 to 1e-17."""
POINTS_PER_UNIT = 64


def reader_of_label(q: Tensor, rho: float, m: int) -> Tensor:
    """A reader's logit (n,) from that of the label of m readers."""
    if m <= 2:
        return q
    return _tabulated(q, rho, m, None)


def label_of_label(q: Tensor, rho: float, m: int, other: int) -> Tensor:
    """The logit (n,) of the label of `other` readers from that of the label of m readers."""
    return _tabulated(q, rho, m, other)


def split_of_reader(z: Tensor, rho: float, m: int) -> Tensor:
    """Probability that m readers split, from a reader's logit; see `scalecal.panel.split_probability`."""
    most = max((m + 1) // 2, 4 * m // 7)
    both = np.arange(m - most, most + 1)
    return _count_probability(log_sigmoid(z), log_sigmoid(-z), rho, m, both)


def _tabulated(q: Tensor, rho: float, m: int, other: int | None) -> Tensor:
    """The reader's logit (`other` None) or that of another panel's label, an odd function of q."""
    reader = np.linspace(0.0, FARTHEST, int(FARTHEST * POINTS_PER_UNIT) + 1)
    # The map has no closed inverse: it is tabulated at chosen values of its result.
    points = label_logit(reader, rho, m)
    values = reader
    if other is not None:
        values = label_logit(reader, rho, other)
    spline = CubicSpline(points, values, bc_type=("natural", "not-a-knot"))
    beyond = np.array([0.0, 0.0, float(spline(points[-1], 1)), float(values[-1])])
    coefficients = np.column_stack([spline.c, beyond])
    size = piecewise(q.abs(), points[1:], points, list(coefficients))
    return q.graph.op("Sign", q) * size


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
