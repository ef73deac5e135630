"""Calibration error by kernel smoothing instead of bins."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scalecal.metrics.arguments import read_event
from scalecal.metrics.binning import binner, residual_sums

__all__ = ["smece"]

GRID = 4096  # cells of [0, 1]; a power of two, so that p * GRID is exact


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
    y : array of shape (n,), or (n, C) soft labels
    probs : array of shape (n,) or (n, C)
        For more than two classes the event is "the top label is right".
    sample_weight : array of shape (n,), optional

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
    from scipy.fft import dct, idct

    event = read_event(y, probs, sample_weight)
    residual = residual_sums(event, binner(event.p, GRID, "width"), GRID) / event.total
    spectrum = dct(residual, norm="ortho")
    decay = -0.5 * (np.pi * np.arange(GRID)) ** 2

    def error(width: float) -> float:
        return float(np.abs(idct(spectrum * np.exp(decay * width**2), norm="ortho")).sum())

    low, high = 0.0, 1.0
    for _ in range(30):  # error(s) - s falls from above zero to below: halve until 1e-9
        middle = 0.5 * (low + high)
        if error(middle) > middle:
            low = middle
        else:
            high = middle
    return error(0.5 * (low + high))
