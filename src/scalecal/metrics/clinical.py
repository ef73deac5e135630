r"""Calibration as clinical statistics reports it: O:E, calibration in the large, slope, scaled Brier score.

Each is of the positive class of two, and estimated from all cases at once, so none is a mean of terms.
Yet each has an influence function: the first-order change of the estimate as a case's weight grows. An
estimate plus the influences of the cases are pseudo-values, whose mean is the estimate and whose spread over
cases, or over groups of cases, is its standard error. Of calibration in the large and the slope that is the
sandwich estimator of logistic regression (Liang and Zeger, 1986, Biometrika 73), of O:E and the scaled Brier
score the delta method.

All are NaN where the cases are of one class, the slope where no finite one has the highest likelihood, and
what needs logits where all probabilities are 0 or 1.

References
----------
Van Calster, McLernon, van Smeden, Wynants, Steyerberg (2019), BMC Medicine 17, 230 (what to report).
Cox (1958), Biometrika 45, 562-565 (slope). Steyerberg (2019), Clinical Prediction Models, chapter 15.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from scalecal.checks import Float
from scalecal.metrics.arguments import Sample
from scalecal.metrics.significance import cox_line, line_logits

MAX_STEPS = 100
"""Newton steps that the offset takes at most; it needs about five."""


def _unknown(sample: Sample) -> Float:
    return np.full(len(sample.p), np.nan)


def _weights(sample: Sample) -> Float:
    if sample.weights is None:
        return np.ones(len(sample.p))
    return sample.weights


def _one_class(y: NDArray[np.float64], weights: Float) -> bool:
    positives = float(weights @ y)
    return positives <= 0.0 or positives >= float(weights.sum())


def all_certain(p: Float) -> bool:
    """Whether all probabilities are 0 or 1, which have no finite logits."""
    return bool(((p == 0.0) | (p == 1.0)).all())


def observed_to_expected(sample: Sample) -> Float:
    r"""Pseudo-values of O:E: positives there are for each one that the probabilities expect.

    With :math:`\theta = \sum w y / \sum w p` the influence of a case is
    :math:`\sum w \, (y - \theta p) / \sum w p`.
    """
    w = _weights(sample)
    expected = float(w @ sample.p)
    if _one_class(sample.y, w) or expected <= 0.0:
        return _unknown(sample)
    ratio = float(w @ sample.y) / expected
    return np.asarray(ratio + w.sum() * (sample.y - ratio * sample.p) / expected)


def calibration_in_the_large(sample: Sample) -> Float:
    r"""Pseudo-values of the offset that all logits lack on average, the slope being held at 1.

    The offset solves :math:`\sum w (y - q) = 0` with :math:`q = \mathrm{expit}(\theta + \mathrm{logit}\, p)`;
    above 0 the probabilities are too low. It is not the intercept of Cox's line, whose slope is free.
    """
    w = _weights(sample)
    if _one_class(sample.y, w) or all_certain(sample.p):
        return _unknown(sample)
    z = line_logits(sample.p)
    offset = logit_offset(z, sample.y, w)
    q = expit(offset + z)
    information = float(w @ (q * (1.0 - q)))
    return np.asarray(offset + w.sum() * (sample.y - q) / information)


def logit_offset(z: Float, y: Float, weights: Float) -> float:
    """Offset of the logits at which as many positives are expected as there are.

    Newton's steps, each of at most 2; both classes must be present.

    Examples
    --------
    >>> round(logit_offset(np.zeros(4), np.array([0.0, 1.0, 1.0, 1.0]), np.ones(4)), 6)
    1.098612
    """
    total = float(weights @ y)
    offset = 0.0
    for _ in range(MAX_STEPS):
        q = expit(offset + z)
        information = float(weights @ (q * (1.0 - q)))
        missing = total - float(weights @ q)
        # Where every probability is certain there is no curvature to divide by.
        step = float(np.clip(missing / max(information, 1e-300), -2.0, 2.0))
        offset += step
        if abs(step) < 1e-12:
            break
    return offset


def calibration_slope(sample: Sample) -> Float:
    r"""Pseudo-values of the slope of Cox's line :math:`\mathrm{logit}\, q = a + b \, \mathrm{logit}\, p`.

    Below 1 the probabilities are too extreme. The intercept a is free.
    """
    w = _weights(sample)
    line = None
    if not _one_class(sample.y, w) and not all_certain(sample.p):
        line = cox_line(sample)
    if line is None:
        return _unknown(sample)
    z = line_logits(sample.p)
    q = expit(line[0] + line[1] * z)
    variance = w * q * (1.0 - q)
    mass = float(variance.sum())
    # With z about its weighted mean the intercept plays no part in the slope's influence.
    centred = z - float(variance @ z) / mass
    information = float(variance @ centred**2)
    return np.asarray(line[1] + w.sum() * centred * (sample.y - q) / information)


def scaled_brier(sample: Sample) -> Float:
    r"""Pseudo-values of 1 less the Brier score over that of the prevalence for every case.

    1 is perfect, 0 is as good as a constant. With the score B, the prevalence :math:`\pi` and
    :math:`B_0 = \pi (1 - \pi)` a case's influence is
    :math:`-((p - y)^2 - B) / B_0 + B (1 - 2 \pi)(y - \pi) / B_0^2`.
    """
    w = _weights(sample)
    if _one_class(sample.y, w):
        return _unknown(sample)
    share = float(np.average(sample.y, weights=w))
    reference = share * (1.0 - share)
    square = (sample.p - sample.y) ** 2
    score = float(np.average(square, weights=w))
    by_score = -(square - score) / reference
    by_share = score * (1.0 - 2.0 * share) * (sample.y - share) / reference**2
    return np.asarray(1.0 - score / reference + by_score + by_share)
