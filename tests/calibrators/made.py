"""Logits and labels for the tests of calibrators."""

import numpy as np
from scipy.special import expit, log_expit, softmax


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
