"""Logits and labels for the tests of calibrators."""

import numpy as np
from scipy.special import expit, log_expit, softmax

from scalecal.calibrators import TemperatureScaling


def two_classes(n=400, seed=0, sharpness=2.0):
    """Labels drawn from expit(z), logits handed out `sharpness` times too large."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, n)
    return sharpness * z, (rng.random(n) < expit(z)).astype(int)


def three_classes(n=600, seed=0, sharpness=2.0):
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, 3))
    y = (softmax(z, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return sharpness * z, y


def log_loss(z, y, w=None):
    each = -(y * log_expit(z) + (1 - y) * log_expit(-z))
    return np.average(each, weights=w)


def attributes(calibrator, z, y, weights=None):
    """What a calibrator learns, in the order of its fitted names; a list of one curve as the curve."""
    calibrator.fit(z, y, sample_weight=weights)
    values = [getattr(calibrator, name) for name in calibrator._fitted]
    return [value[0] if isinstance(value, list) else value for value in values]


def temperature(z, y, weights=None):
    return attributes(TemperatureScaling(), z, y, weights)[0]
