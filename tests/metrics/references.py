"""Slow, plain versions of the metrics: loops and definitions, sharing no code with the package."""

from __future__ import annotations

from fractions import Fraction
from math import comb, exp, log, pi, sqrt

import numpy as np


def width_bin(p: float, n_bins: int) -> int:
    """The bin by comparing with the float edges k / n_bins, one after the other."""
    for k in range(n_bins - 1):
        if k / n_bins <= p < (k + 1) / n_bins:
            return k
    return n_bins - 1


def mass_bins(p, n_bins, weights=None):
    """Bins of equal mass in exact arithmetic."""
    w = [Fraction(1)] * len(p) if weights is None else [Fraction(float(x)) for x in weights]
    total = sum(w)
    out = []
    for value in p:
        below = sum((x for q, x in zip(p, w, strict=True) if q < value), Fraction(0))
        own = sum((x for q, x in zip(p, w, strict=True) if q == value), Fraction(0))
        out.append(int(n_bins * (below + own / 2) / total))
    return [min(k, n_bins - 1) for k in out]


def members(index):
    table: dict[int, list[int]] = {}
    for i, k in enumerate(index):
        table.setdefault(int(k), []).append(i)
    return table


def binned_ece(y, p, index, weights=None):
    w = np.ones(len(p)) if weights is None else np.asarray(weights, float)
    total = 0.0
    for rows in members(index).values():
        mass = sum(w[i] for i in rows)
        if mass == 0:
            continue
        mean_p = sum(w[i] * p[i] for i in rows) / mass
        mean_y = sum(w[i] * y[i] for i in rows) / mass
        total += mass / w.sum() * abs(mean_p - mean_y)
    return total


def ece(y, p, n_bins=15, weights=None):
    return binned_ece(y, p, [width_bin(q, n_bins) for q in p], weights)


def debiased(y, p, n_bins):
    kept = [rows for rows in members(mass_bins(p, n_bins)).values() if len(rows) >= 2]
    n = sum(map(len, kept))
    total = 0.0
    for rows in kept:
        r = np.array([p[i] - y[i] for i in rows])
        total += len(rows) / n * (r.mean() ** 2 - r.var(ddof=1) / len(rows))
    return total


def smooth_error(y, p, sigma, grid=4001):
    """Integral of the absolute smoothed residual, the kernel reflected explicitly."""
    t = (np.arange(grid) + 0.5) / grid
    total = np.zeros(grid)
    for q, label in zip(p, y, strict=True):
        for image in [2 * k + s * q for k in range(-3, 4) for s in (1, -1)]:
            total += (label - q) * np.exp(-0.5 * ((t - image) / sigma) ** 2)
    return float(np.abs(total).sum() / (sigma * sqrt(2 * pi)) / grid / len(p))


def smooth_fixed_point(y, p):
    low, high = 1e-4, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if smooth_error(y, p, middle) > middle else (low, middle)
    return (low + high) / 2


def pairwise_auc(y, p, weights=None):
    w = np.ones(len(p)) if weights is None else weights
    won = pairs = 0.0
    for i in range(len(p)):
        for j in range(len(p)):
            share = w[i] * y[i] * w[j] * (1 - y[j])
            pairs += share
            won += share * (1.0 if p[i] > p[j] else 0.5 if p[i] == p[j] else 0.0)
    return won / pairs


def entropy(shares):
    return -sum(s * log(s) for s in shares if s > 0)


def expected_over_votes(value, p, m):
    """Mean of value(v) over v ~ Bin(m, p)."""
    return sum(comb(m, v) * p**v * (1 - p) ** (m - v) * value(v) for v in range(m + 1))


def cox_log_likelihood(y, p, a, b):
    total = 0.0
    for label, q in zip(y, p, strict=True):
        eta = a + b * log(q / (1 - q))
        r = 1 / (1 + exp(-eta))
        total += log(r) if label else log(1 - r)
    return total
