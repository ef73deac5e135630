"""Calibration errors: ECE and its relatives, by bins or by kernel smoothing.

Every one of them is above zero for a perfectly calibrated model on finitely many cases, except
`debiased_error`, whose mean is then zero. Read them beside `scalecal.metrics.noise_floor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from scalecal.checks import Float, as_array, check_labels, check_positive_int, check_targets
from scalecal.metrics.arguments import Sample, as_table, group_by_p, read_event, read_probs
from scalecal.metrics.binning import (
    Binner,
    Binning,
    bin_sums,
    binner,
    bins,
    mass_cuts,
    residual_sums,
    width_binner,
)

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

    Two classes: of the positive class. More: of the top label, as `top_label_ece`.

    Parameters
    ----------
    y : array of shape (n,), or (n, C) soft labels
        Labels 0 / 1, soft labels between, or class numbers where there are more classes.
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


def mce(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Maximum calibration error: the largest gap between mean label and mean probability of a bin.

    Parameters as `ece`. A bin of one case counts as much as any other, so this says little on few
    cases.

    Examples
    --------
    >>> round(mce([0, 1, 1, 1], [0.1, 0.4, 0.9, 1.0]), 6)
    0.6
    """
    table = bins(y, probs, n_bins=n_bins, binning=binning, sample_weight=sample_weight)
    return float(np.nanmax(np.abs(table.gap)))


def _one_against_rest(y: ArrayLike, n_classes: int) -> Iterator[Float]:
    """Give each class's targets in turn, one at a time to save memory."""
    raw = as_array(y, "y")
    if raw.ndim == 1 and n_classes > 2:
        labels = check_labels(raw, n_classes)
        for c in range(n_classes):
            yield (labels == c).astype(np.float64)
        return
    soft = check_targets(raw, n_classes)
    yield from (1.0 - soft, soft) if soft.ndim == 1 else soft.T


def classwise_ece(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean over the classes of the ECE of each class against the rest.

    Parameters as `ece`.

    References
    ----------
    Kull et al. (2019), NeurIPS.

    Examples
    --------
    >>> round(classwise_ece([0, 2], [[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]]), 6)
    0.333333
    """
    p = as_table(read_probs(probs))
    errors = [
        ece(target, p[:, c], n_bins=n_bins, binning=binning, sample_weight=sample_weight)
        for c, target in enumerate(_one_against_rest(y, p.shape[1]))
    ]
    return float(np.mean(errors))


def top_label_ece(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    sample_weight: ArrayLike | None = None,
) -> float:
    """ECE of the predicted class: is it right as often as its probability says?

    Also called confidence ECE. Two classes: the larger of p and 1 - p, a tie going to the positive
    class. Parameters as `ece`.

    Examples
    --------
    >>> round(top_label_ece([0, 1, 1, 0], [0.1, 0.4, 0.9, 0.6]), 6)
    0.35
    """
    p = read_probs(probs)
    if p.ndim == 2 and p.shape[1] > 2:
        return ece(y, p, n_bins=n_bins, binning=binning, sample_weight=sample_weight)
    event = read_event(y, p, sample_weight)
    positive = event.p >= 0.5
    return ece(
        np.where(positive, event.y, 1 - event.y),
        np.where(positive, event.p, 1.0 - event.p),
        n_bins=n_bins,
        binning=binning,
        sample_weight=sample_weight,
    )


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
    """`debiased_error` in bins of equal mass; NaN where weights do not count cases."""
    if sample.importance:
        return float("nan")
    event, n_bins = sample.event, sample.n_bins
    return pair_product(event, binner(event.p, n_bins, "mass", event.weights), n_bins)


def pair_product(event: Sample, index: Binner, n_bins: int) -> float:
    """Mean product of the residuals of two different cases of a bin, averaged over the bins."""
    weight, first, second = bin_sums(
        event, index, n_bins, lambda y, p: [np.ones_like(p), p - y, (p - y) ** 2]
    )
    pairs = weight**2 - weight
    # A bin with one case has no pair; what is left of it after rounding must not count.
    used = pairs > 1e-12 * weight**2
    if not used.any():
        return float("nan")
    product = (first[used] ** 2 - second[used]) / pairs[used]
    return float(weight[used] @ product / weight[used].sum())


def ece_sweep(
    y: ArrayLike,
    probs: ArrayLike,
    *,
    max_bins: int = 4096,
    sample_weight: ArrayLike | None = None,
) -> float:
    """ECE with as many bins of equal mass as keep the bins' mean label increasing.

    The number of bins goes up from one until the mean label first falls from one bin to the next;
    the last number before that is used.

    Parameters
    ----------
    y, probs, sample_weight
        As `ece`.
    max_bins : int
        Where the sweep ends at the latest (or at the number of distinct probabilities).

    References
    ----------
    Roelofs, Cain, Shlens, Mozer (2022), AISTATS.

    Examples
    --------
    >>> round(ece_sweep([0, 1, 0, 1], [0.1, 0.2, 0.7, 0.8]), 6)
    0.1
    """
    check_positive_int(max_bins, "max_bins")
    groups = group_by_p(read_event(y, probs, sample_weight))
    values = len(groups.p)
    # Prefix sums with a leading zero, so that a bin's sum is one difference.
    weight, positive = np.zeros((2, values + 1))
    np.cumsum(groups.weight, out=weight[1:])
    np.cumsum(groups.positive, out=positive[1:])
    middle = weight[1:] - 0.5 * groups.weight
    last = np.array([0, values])
    for n_bins in range(2, min(max_bins, values) + 1):
        cuts = mass_cuts(middle, float(weight[-1]), n_bins)
        ends = np.unique(np.concatenate([[0], cuts, [values]]))
        share = np.diff(positive[ends]) / np.diff(weight[ends])
        if (np.diff(share) < 0).any():
            break
        last = ends
    residual = np.add.reduceat(groups.positive - groups.weight * groups.p, last[:-1])
    return float(np.abs(residual).sum() / weight[-1])


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
