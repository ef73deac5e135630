r"""Net benefit: what acting on a probability is worth, against treating all or none.

Who treats where the probability is at least t says by it that a needless treatment costs
:math:`t / (1 - t)` times what a needed one gains. Net benefit counts gains less such costs, per case:

.. math:: NB(t) = \frac{TP}{n} - \frac{FP}{n} \frac{t}{1 - t}

Treating none has a net benefit of 0, treating all `treat_all`; a model is of use at t where it is above
both.

References
----------
Vickers, Elkin (2006), Medical Decision Making 26, 565-574.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scalecal.checks import Float, InputError, as_array, as_float
from scalecal.metrics.arguments import Sample, read_event, read_probs


def check_thresholds(thresholds: ArrayLike) -> Float:
    """Return thresholds (k,), or fail where one is not between 0 and 1."""
    t = np.atleast_1d(as_float(thresholds, "thresholds"))
    if t.ndim != 1 or len(t) == 0 or not (t > 0.0).all() or not (t < 1.0).all():
        raise InputError(f"thresholds must lie between 0 and 1, both left out, got {thresholds!r}")
    return t


def check_two_classes(probs: ArrayLike) -> Float:
    """Return probabilities of the second of two classes, (n,), or fail where there are more."""
    p = read_probs(probs)
    if p.ndim == 2 and p.shape[1] > 2:
        raise InputError(
            f"net benefit is of one class against the rest, got probabilities of {p.shape[1]} classes: "
            "give (y == c) and probs[:, c] of the class c that is treated"
        )
    return p if p.ndim == 1 else p[:, 1]


def treated_counts(event: Sample, thresholds: Float) -> tuple[Float, Float]:
    """Weighted positives, and cases, whose probability is at least each threshold: (k,) each."""
    rising, place = np.unique(thresholds, return_inverse=True)
    above = np.searchsorted(rising, event.p, side="right")
    weight = event.weighed(np.ones(len(event.p)), slice(None))
    cells = (np.bincount(above, w, len(rising) + 1) for w in (event.y * weight, weight))
    positives, cases = (cell[::-1].cumsum()[::-1][1:][place] for cell in cells)
    return positives, cases


def net_benefit(
    y: ArrayLike,
    probs: ArrayLike,
    thresholds: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> Float:
    """Net benefit of treating the cases whose probability is at least t, at each threshold t.

    Parameters
    ----------
    y : array of shape (n,)
        Labels 0 / 1, or shares of the readers who voted for the positive class: then the benefit is that
        of a case as one reader, drawn at random, would settle it.
    probs : array of shape (n,), or (n, 2)
    thresholds : array of shape (k,)
        Between 0 and 1.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    array of shape (k,)

    Examples
    --------
    >>> net_benefit([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9], [0.2, 0.5])
    array([0.4375, 0.    ])
    >>> treat_all([0, 0, 1, 1], [0.2, 0.5])
    array([0.375, 0.   ])
    """
    p, t = check_two_classes(probs), check_thresholds(thresholds)
    event = read_event(y, p, sample_weight)
    positives, treated = treated_counts(event, t)
    return np.asarray((positives - t * treated) / (1.0 - t) / event.total)


def treat_all(
    y: ArrayLike, thresholds: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> Float:
    """Net benefit of treating every case: ``(prevalence - t) / (1 - t)``. Parameters as `net_benefit`."""
    return net_benefit(
        y, np.ones(len(np.atleast_1d(as_array(y, "y")))), thresholds, sample_weight=sample_weight
    )
