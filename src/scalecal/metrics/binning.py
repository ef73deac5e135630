"""Bins of predicted probability, and calibration errors: ECE, its unbiased square, and smECE.

Every calibration error is above zero for a perfectly calibrated model on finitely many cases, except
`debiased_error`, whose mean is then zero. Read them beside `scalecal.metrics.noise_floor`.

Equal width: bin k of `n_bins` holds ``k / n_bins <= p < (k + 1) / n_bins``, and the last one holds
p = 1 as well. The edges are the float64 numbers ``k / n_bins``, and a probability equal to an edge
belongs to the bin above it, whatever ``p * n_bins`` rounds to.

Equal mass: cases with the same probability always share a bin. A value belongs to bin
``floor(n_bins * m / N)``, where m is the mass below it plus half its own. The rule needs no
random numbers and is symmetric, but heavy ties leave some bins empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.checks import Float, Int, check_choice, check_weights
from scalecal.limits import check_count
from scalecal.metrics.arguments import (
    Sample,
    Terms,
    blocks,
    event_probs,
    read_event,
)

Binning = Literal["width", "mass"]
Binner = Callable[[Float], NDArray[np.intp]]


@dataclass(frozen=True, eq=False)
class Bins:
    """What fell into each bin; one entry per bin, empty bins included.

    Attributes
    ----------
    lo, hi : array
        Edges for bins of equal width; smallest and largest probability for bins of equal mass
        (NaN in an empty one).
    n : array of int
        Cases: the sum of their weights, rounded.
    weight : array
        The same, not rounded.
    mean_p, mean_y : array
        Weighted means of probability and label; NaN in an empty bin.
    residual : array
        Weighted sum of ``p - y``.
    """

    lo: Float
    hi: Float
    n: Int
    weight: Float
    mean_p: Float
    mean_y: Float
    residual: Float

    @property
    def gap(self) -> Float:
        """Mean probability less mean label: positive if the predicted probability is too high."""
        return self.mean_p - self.mean_y

    @property
    def ece(self) -> float:
        """The expected calibration error of these bins."""
        return float(np.abs(self.residual).sum() / self.weight.sum())


def width_binner(n_bins: int) -> Binner:
    """Return the function that gives the bin of equal width of each probability of a block."""
    # Scaling a little too far sends every p at an edge, and none elsewhere, to the bin above it
    # with a remainder near zero. Those few are then compared with the edge itself.
    scale = n_bins * (1.0 + 4.0 * np.finfo(np.float64).eps)
    near = 1e-14 * n_bins
    edges = np.arange(n_bins + 1) / n_bins
    edges[-1] = np.inf  # p = 1 is sent to bin n_bins and comes back to the last one

    def index(p: Float) -> NDArray[np.intp]:
        scaled = p * scale
        k = scaled.astype(np.intp)
        scaled -= k
        at_edge = np.flatnonzero(scaled < near)
        if at_edge.size:
            k[at_edge] -= p[at_edge] < edges[k[at_edge]]
        return k

    return index


def _mass_binner(p: Float, n_bins: int, weights: Float | None) -> Binner:
    values, place = np.unique(p, return_inverse=True)
    mass = np.bincount(place, weights)
    cumulative = np.cumsum(mass)
    edges: Float = np.arange(1, n_bins) * float(cumulative[-1]) / n_bins
    begins = np.append(values, np.inf)[np.searchsorted(cumulative - 0.5 * mass, edges)]

    def index(block: Float) -> NDArray[np.intp]:
        return np.searchsorted(begins, block, side="right")

    return index


def binner(p: Float, n_bins: int, binning: Binning, weights: Float | None = None) -> Binner:
    """Return the function that gives the bin of each probability of a block."""
    check_count(n_bins, "n_bins", "bins")
    check_choice(binning, ("width", "mass"), "binning")
    return width_binner(n_bins) if binning == "width" else _mass_binner(p, n_bins, weights)


def bin_index(
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    sample_weight: ArrayLike | None = None,
) -> Int:
    """Return the bin, 0 .. n_bins - 1, of each case.

    Parameters
    ----------
    probs, n_bins, binning
        As `bins`.
    sample_weight : array of shape (n,), optional
        Used by bins of equal mass alone.

    Examples
    --------
    >>> bin_index([0.0, 0.2, 0.6, 1.0], n_bins=5)
    array([0, 1, 3, 4])
    >>> bin_index([0.1, 0.1, 0.1, 0.8], n_bins=2, binning="mass")
    array([0, 0, 0, 1])
    """
    p = event_probs(probs)
    weights = check_weights(sample_weight, len(p), "sample_weight")
    return binner(p, n_bins, binning, weights)(p)


def bin_sums(event: Sample, index: Binner, n_bins: int, terms: Terms) -> Float:
    """Return the weighted sums, over the cases of each bin, of what they add: (sums, n_bins)."""
    total = np.zeros((1, n_bins))
    for part in blocks(len(event.p)):
        p = event.p[part]
        k = index(p)
        values = terms(event.y[part], p)
        total = total + [np.bincount(k, event.weighed(v, part), n_bins) for v in values]
    return total


def residual_sums(event: Sample, index: Binner, n_bins: int) -> Float:
    """Return each bin's weighted sum of ``p - y``."""
    return np.asarray(bin_sums(event, index, n_bins, lambda y, p: [p - y])[0])


def bins(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    sample_weight: ArrayLike | None = None,
) -> Bins:
    """Return what fell into each bin: the table behind a reliability diagram.

    Parameters
    ----------
    y : array of shape (n,), or (n, C) soft labels
    probs : array of shape (n,) or (n, C)
        For more than two classes the event is "the top label is right".
    n_bins : int
    binning : {"width", "mass"}
    sample_weight : array of shape (n,), optional

    Returns
    -------
    Bins

    Examples
    --------
    >>> table = bins([0, 1, 1], [0.1, 0.4, 1.0], n_bins=2)
    >>> table.n, table.mean_y, table.gap
    (array([2, 1]), array([0.5, 1. ]), array([-0.25,  0.  ]))
    """
    event = read_event(y, probs, sample_weight)
    index = binner(event.p, n_bins, binning, event.weights)
    weight, sum_p, residual = bin_sums(
        event, index, n_bins, lambda y, p: [np.ones_like(p), p, p - y]
    )
    if binning == "width":
        lo, hi = np.arange(n_bins) / n_bins, np.arange(1, n_bins + 1) / n_bins
    else:
        lo, hi = np.full(n_bins, np.inf), np.full(n_bins, -np.inf)
        for part in blocks(len(event.p)):
            k = index(event.p[part])
            np.minimum.at(lo, k, event.p[part])
            np.maximum.at(hi, k, event.p[part])
        lo[weight == 0] = hi[weight == 0] = np.nan
    count = np.rint(weight).astype(np.int64)
    filled = np.where(weight > 0, weight, np.nan)
    mean_p = sum_p / filled
    return Bins(lo, hi, count, weight, mean_p, mean_p - residual / filled, residual)


GRID = 4096  # cells of [0, 1] in `smece`; a power of two, so that p * GRID is exact


def ece(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Expected calibration error: ``sum_b |sum_{i in b} (p_i - y_i)| / n``.

    Two classes: of the positive class. More: of the top label, also called confidence ECE.

    Parameters
    ----------
    y : array of shape (n,), or (n, C) soft labels
        Labels 0 / 1, soft labels between, or class numbers if there are more classes.
    probs : array of shape (n,) or (n, C)
        Probabilities of the positive class, or of all classes.
    n_bins : int
    binning : {"width", "mass"}
        Bins are closed on the left; the last one holds p = 1 as well. See
        `scalecal.metrics.binning` for edges and ties.
    sample_weight : array of shape (n,), optional

    References
    ----------
    Naeini, Cooper, Hauskrecht (2015), AAAI. Guo et al. (2017), ICML.

    Examples
    --------
    >>> round(ece([0, 1, 1, 1], [0.1, 0.4, 0.9, 1.0]), 6)
    0.2
    """
    event = read_event(y, probs, sample_weight)
    index = binner(event.p, n_bins, binning, event.weights)
    return float(mean_gap(residual_sums(event, index, n_bins) / event.total))


def binned(sample: Sample, function: Callable[[Float], Float]) -> float:
    """A function of the sums of ``p - y`` in bins of equal width, as shares of all cases."""
    event, n_bins = sample.event, sample.n_bins
    return float(function(residual_sums(event, width_binner(n_bins), n_bins) / event.total))


def mean_gap(residuals: Float) -> Float:
    """ECE from each bin's sum of ``p - y`` as a share of all cases, (..., n_bins)."""
    return np.asarray(np.abs(residuals).sum(axis=-1))


def debiased_error(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "mass",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Squared calibration error without the bias of finite bins; below zero is possible.

    With residuals r in bin b this is ``sum_b (n_b / N) [mean(r)^2 - var(r) / n_b]``, the variance
    taken with ``n_b - 1``: in each bin the mean product of the residuals of two different cases.
    Its mean is zero for a calibrated model. Bins of one case are left out; if none is left the
    answer is NaN.

    Parameters as `ece`.

    References
    ----------
    Broecker (2012), Climate Dynamics. Ferro, Fricker (2012), QJRMS. Kumar, Liang, Ma (2019),
    NeurIPS.

    Examples
    --------
    >>> round(debiased_error([0, 0, 1, 1], [0.3, 0.3, 0.9, 0.9], n_bins=2), 6)
    0.05
    """
    event = read_event(y, probs, sample_weight)
    return pair_product(event, binner(event.p, n_bins, binning, event.weights), n_bins)


def debiased(sample: Sample) -> float:
    """`debiased_error` in bins of equal mass; NaN where weights do not count cases.

    With groups the two cases of a product are of different groups, since residuals of one patient go
    together.
    """
    if sample.importance:
        return float("nan")
    event, n_bins = sample.event, sample.n_bins
    index = binner(event.p, n_bins, "mass", event.weights)
    if sample.groups is None:
        return pair_product(event, index, n_bins)
    # Cases of one group and bin count as one, with the sum of their residuals.
    _, row, part = np.unique(
        sample.groups * n_bins + index(event.p), return_index=True, return_inverse=True
    )
    residual = np.bincount(part, event.p - event.y)
    count = np.bincount(part).astype(np.float64)
    cell = index(event.p[row])
    first, size = np.bincount(cell, residual, n_bins), np.bincount(cell, count, n_bins)
    own, pairs = np.bincount(cell, residual**2, n_bins), np.bincount(cell, count**2, n_bins)
    return float(mean_product(first, own, size, pairs))


def pair_product(event: Sample, index: Binner, n_bins: int) -> float:
    """Mean product of the residuals of two different cases of a bin, averaged over the bins."""
    size, first, own = bin_sums(
        event, index, n_bins, lambda y, p: [np.ones_like(p), p - y, (p - y) ** 2]
    )
    return float(mean_product(first, own, size, size))


def mean_product(
    first: NDArray[Any], own: NDArray[Any], size: NDArray[Any], pairs: NDArray[Any]
) -> Float:
    """Mean product of residuals of different cases (or groups) in one bin, averaged over bins.

    Of each bin, on the last axis: the sums of residuals and of cases, and those of the squares of what
    one case (or group) adds to either.
    """
    free = size**2 - pairs
    # A bin with one case has no pair; what is left of it after rounding must not count.
    used = free > 1e-12 * size**2
    with np.errstate(divide="ignore", invalid="ignore"):
        product = np.where(used, size * (first**2 - own) / free, 0.0)
        return np.asarray(product.sum(axis=-1) / np.where(used, size, 0.0).sum(axis=-1))


def smece(y: ArrayLike, probs: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Smooth calibration error, at the bandwidth that equals the error itself.

    The residuals ``y - p`` are smoothed along p by a Gaussian reflected at 0 and 1; the error at
    bandwidth s is the integral of the absolute smoothed residual. It falls as s grows, so there is
    one s at which both are equal: that value is returned. No number of bins has to be chosen.

    On a regular grid a reflected Gaussian is a multiplier of the cosine transform,
    ``exp(-(pi k s)^2 / 2)``, so after one bincount of the cases on 4,096 cells the cost does not
    depend on n.

    Parameters
    ----------
    y, probs, sample_weight
        As `ece`.

    References
    ----------
    Blasiok, Nakkiran (2024), ICLR.

    Examples
    --------
    >>> round(smece([0, 1] * 50, [0.5] * 100), 6)
    0.0
    >>> round(smece([1] * 50, [0.8] * 50), 3)
    0.2
    """
    return smooth_error(read_event(y, probs, sample_weight))


def smooth_error(sample: Sample) -> float:
    """`smece` of a sample."""
    from scipy.fft import dct, idct
    from scipy.optimize import brentq

    event = sample.event
    residual = residual_sums(event, binner(event.p, GRID, "width"), GRID) / event.total
    spectrum = dct(residual, norm="ortho")
    decay = -0.5 * (np.pi * np.arange(GRID)) ** 2

    def error(width: float) -> float:
        return float(np.abs(idct(spectrum * np.exp(decay * width**2), norm="ortho")).sum())

    # The error is at most 1, and no residual at all makes the width 0.
    return error(brentq(lambda width: error(width) - width, 0.0, 2.0, xtol=1e-10))
