"""Label smoothing: from readers' votes (or plain labels) to soft labels.

`piecewise`, `linear` and `nonlinear` are the agreement-aware functions of Wei et al. (2022), as
SCALE uses them: each takes how many of ``n_raters`` readers chose a class and returns that class's
soft label. `fraction` is the share of votes itself. `vanilla` (Szegedy et al., 2016) needs no votes,
and `confidence` is Wei et al.'s piecewise function of a first probe's confidence.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from scalecal.checks import (
    Float,
    InputError,
    as_float,
    check_above,
    check_choice,
    check_counts,
    check_finite,
    check_probs,
    check_targets,
    check_unit,
    lookup,
    refuse,
)
from scalecal.limits import check_count

__all__ = [
    "SMOOTHINGS",
    "Smoothing",
    "confidence",
    "fraction",
    "linear",
    "nonlinear",
    "piecewise",
    "soft_labels",
    "vanilla",
]

Smoothing = Callable[..., Any]


def _check_votes(votes: ArrayLike, n_raters: ArrayLike) -> tuple[Float, Float]:
    """Return votes and panel sizes as float64 arrays of one shape, whole, 0 <= votes <= n_raters."""
    count, panel = as_float(votes, "votes"), as_float(n_raters, "n_raters")
    try:
        count, panel = np.broadcast_arrays(count, panel)
    except ValueError:
        raise InputError(
            f"n_raters must be one number or one per case, got shape {np.shape(n_raters)} "
            f"for votes of shape {np.shape(votes)}"
        ) from None
    for values, name, least in ((count, "votes", 0), (panel, "n_raters", 1)):
        check_finite(np.atleast_1d(values), name)
        bad = (values < least) | (values != np.round(values))
        if bad.any():
            raise InputError(f"{name} must be whole numbers >= {least}, got {values[bad][0]:g}")
    over = count > panel
    if over.any():
        raise InputError(
            f"votes must not exceed n_raters, got {count[over][0]:g} of {panel[over][0]:g}"
        )
    return count, panel


def piecewise(
    votes: ArrayLike,
    n_raters: ArrayLike,
    omega: float = 0.4,
    *,
    n_classes: int = 2,
) -> Float:
    r"""Piecewise agreement-aware smoothing (Wei et al., 2022).

    With :math:`n_m = \lceil N / C \rceil` the smallest number of votes that can win,

    .. math::
        h(n) = \begin{cases}
            (1 - \Omega) + \Omega (n - n_m) / (N - n_m) & n > n_m \\
            1/2 & n = n_m \\
            \Omega n / (n_m - 1) & n < n_m
        \end{cases}

    with 0/0 = 0, and the hard label for a panel of one. The upper branch is printed in the
    literature with the divisor :math:`n_m - 1`, which is the same number for two classes and an odd
    panel, but gives labels above one elsewhere (1.4 for 4 of 4 readers).

    Parameters
    ----------
    votes : array of int
        Readers who chose the class.
    n_raters : int or array of int
        Readers in all, one number or one per case.
    omega : float
        How far smoothing goes, in [0, 1]; the function is monotone up to 0.5.
    n_classes : int
        Number of classes readers could choose from.

    Returns
    -------
    array of float64
        The class's soft label, in [0, 1].

    Examples
    --------
    >>> piecewise(range(8), 7).round(3).tolist()
    [0.0, 0.133, 0.267, 0.4, 0.5, 0.733, 0.867, 1.0]
    >>> piecewise(range(5), 4).round(3).tolist()
    [0.0, 0.4, 0.5, 0.8, 1.0]
    """
    omega = check_unit(omega, "omega")
    n_classes = check_count(n_classes, "n_classes", "classes", least=2)
    count, panel = _check_votes(votes, n_raters)
    least = np.ceil(panel / n_classes)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Written from above, so that it is exactly 1 where all readers agree.
        upper = 1.0 - omega * (panel - count) / (panel - least)
        lower = omega * count / (least - 1.0)
    lower = np.where(least == 1.0, 0.0, lower)
    label = np.where(count > least, upper, np.where(count == least, 0.5, lower))
    # A panel of one leaves nothing to smooth: its vote is the label.
    label = np.where(panel == 1.0, count, label)
    return np.clip(label, 0.0, 1.0)


def linear(
    votes: ArrayLike, n_raters: ArrayLike, alpha: float = 0.1, *, n_classes: int = 2
) -> Float:
    r"""Linear agreement-aware smoothing, :math:`(1 - \alpha) n / N + \alpha / C` (Wei et al., 2022).

    Parameters
    ----------
    votes, n_raters, n_classes
        As in `piecewise`.
    alpha : float
        Share of the uniform distribution mixed in, in [0, 1].

    Examples
    --------
    >>> linear([0, 5, 7], 7).round(3).tolist()
    [0.05, 0.693, 0.95]
    """
    alpha = check_unit(alpha, "alpha")
    n_classes = check_count(n_classes, "n_classes", "classes", least=2)
    count, panel = _check_votes(votes, n_raters)
    return np.asarray((1.0 - alpha) * (count / panel) + alpha / n_classes)


def nonlinear(votes: ArrayLike, n_raters: ArrayLike, phi: float = 5.0) -> Float:
    r"""Sigmoid agreement-aware smoothing, :math:`\sigma(\Phi (n / N - 1/2))` (Wei et al., 2022).

    Parameters
    ----------
    votes, n_raters
        As in `piecewise`.
    phi : float
        Steepness, above zero. The SCALE paper gives no value; with 5 unanimity is 0.924.

    Examples
    --------
    >>> nonlinear([0, 5, 7], 7).round(3).tolist()
    [0.076, 0.745, 0.924]
    """
    phi = check_above(phi, "phi")
    count, panel = _check_votes(votes, n_raters)
    return np.asarray(1.0 / (1.0 + np.exp(-phi * (count / panel - 0.5))))


def fraction(votes: ArrayLike, n_raters: ArrayLike) -> Float:
    """Share of the votes, n / N: the label that makes a probe predict a vote.

    Examples
    --------
    >>> fraction([0, 1, 4], 4).tolist()
    [0.0, 0.25, 1.0]
    """
    count, panel = _check_votes(votes, n_raters)
    return np.asarray(count / panel)


def vanilla(
    y: ArrayLike,
    epsilon: float = 0.1,
    *,
    n_classes: int = 2,
) -> Float:
    r"""Uniform label smoothing (Szegedy et al., 2016), the same for every case.

    The targets are :math:`(1 - \epsilon) y + \epsilon / C`, .95 and .05 for two classes.

    Parameters
    ----------
    y : array
        Labels 0 .. C - 1, or soft labels.
    epsilon : float
        Mass taken from the label, in [0, 1].
    n_classes : int
        Number of classes C.

    Returns
    -------
    array of float64
        Two classes: (n,) targets of the positive class. More: (n, C).

    Examples
    --------
    >>> vanilla([0, 1]).round(3).tolist()
    [0.05, 0.95]
    >>> vanilla([2], n_classes=3).round(3).tolist()
    [[0.033, 0.033, 0.933]]
    """
    epsilon = check_unit(epsilon, "epsilon")
    n_classes = check_count(n_classes, "n_classes", "classes", least=2)
    return (1.0 - epsilon) * check_targets(y, n_classes) + epsilon / n_classes


def confidence(
    probs: ArrayLike,
    omega: float = 0.4,
    *,
    form: Literal["piecewise", "linear", "nonlinear", "fraction"] = "piecewise",
    alpha: float = 0.1,
    phi: float = 5.0,
) -> Float:
    r"""Smoothing by a first probe's own confidence c, with no reader (Wei et al., 2022).

    The smoothing functions with c in place of the share of votes. Piecewise:
    :math:`(1 - \Omega) + \Omega (c - 1/2) / (1/2)` above one half, one half there, and
    :math:`\Omega c / (1/2)` below. Linear: :math:`(1 - \alpha) c + \alpha / 2`. Nonlinear:
    :math:`\sigma(\Phi (c - 1/2))`. Fraction: c itself.

    Parameters
    ----------
    probs : array (n,)
        Positive-class probabilities of a probe fitted to hard labels.
    omega, alpha, phi : float
        As in `piecewise`, `linear` and `nonlinear`.
    form : str
        Which of the four.

    Examples
    --------
    >>> confidence([0.0, 0.25, 0.5, 0.75, 1.0]).round(3).tolist()
    [0.0, 0.2, 0.5, 0.8, 1.0]
    >>> confidence([0.0, 0.5, 1.0], form="linear").round(3).tolist()
    [0.05, 0.5, 0.95]
    """
    check_choice(form, ("piecewise", "linear", "nonlinear", "fraction"), "form")
    p = check_probs(probs)
    if p.ndim != 1:
        raise InputError(f"probs must be 1-d (two classes), got shape {p.shape}")
    if form == "fraction":
        return p
    if form == "linear":
        alpha = check_unit(alpha, "alpha")
        return np.asarray((1.0 - alpha) * p + alpha / 2)
    if form == "nonlinear":
        phi = check_above(phi, "phi")
        return np.asarray(1.0 / (1.0 + np.exp(-phi * (p - 0.5))))
    omega = check_unit(omega, "omega")
    upper = 1.0 - omega * (1.0 - p) / 0.5
    return np.where(p > 0.5, upper, np.where(p < 0.5, omega * p / 0.5, 0.5))


SMOOTHINGS: dict[str, Smoothing] = {
    "piecewise": piecewise,
    "linear": linear,
    "nonlinear": nonlinear,
    "fraction": fraction,
}
"""Functions ``(votes, n_raters, ...) -> soft label`` by name."""

# `nonlinear` and `fraction` do not depend on the number of classes.
_TAKES_CLASSES = (piecewise, linear)


def as_smoothing(smoothing: str | Smoothing) -> Smoothing:
    """Return a smoothing function from its name in `SMOOTHINGS`, or as it is."""
    if callable(smoothing):
        return smoothing
    return lookup(smoothing, SMOOTHINGS, "smoothing")


def soft_labels(
    votes: ArrayLike,
    n_raters: ArrayLike | None = None,
    smoothing: str | Smoothing = "piecewise",
    **options: Any,
) -> Float:
    """Soft labels of whole cases from real votes, for any number of classes.

    With two classes the positive class's votes go through the smoothing function and the other
    class has the rest. With more, the formulas are per class and their values need not add up to
    one: each class's votes go through the function (with its ``n_classes``), then each case is
    divided by its sum. That keeps unanimity as sharp and an even split as even as the function
    has them, and changes nothing for `linear` and `fraction`.

    Parameters
    ----------
    votes, n_raters
        (n, C) counts per class, or (n,) counts of the positive class with `n_raters`.
    smoothing : str or callable
        A name in `SMOOTHINGS`, or ``f(votes, n_raters)``.
    **options
        Passed to the smoothing function.

    Returns
    -------
    array of float64
        Two classes: (n,) targets of the positive class. More: (n, C), rows summing to one.

    Examples
    --------
    >>> soft_labels([3, 7], 7).round(3).tolist()
    [0.4, 1.0]
    >>> soft_labels([[3, 0, 0], [1, 1, 1], [2, 1, 0]]).round(3).tolist()
    [[1.0, 0.0, 0.0], [0.333, 0.333, 0.333], [0.615, 0.385, 0.0]]
    """
    smooth = as_smoothing(smoothing)
    counts = check_counts(votes, n_raters)
    panel = counts.sum(axis=1)
    refuse(panel == 0, "every case needs at least one vote, none")
    n_classes = counts.shape[1]
    if n_classes == 2:
        return _smoothed(smooth, counts[:, 1], panel, options)
    if smooth in _TAKES_CLASSES:
        options = {"n_classes": n_classes, **options}
    label = _smoothed(smooth, counts, panel[:, None], options)
    total = label.sum(axis=1, keepdims=True)
    refuse(~(total > 0), "the smoothing function gave no class any mass")
    return np.asarray(label / total)


def _smoothed(
    smooth: Smoothing, votes: ArrayLike, panel: ArrayLike, options: Mapping[str, Any]
) -> Float:
    try:
        label = smooth(votes, panel, **options)
    except TypeError as error:
        raise InputError(
            "smoothing must be a name or a function f(votes, n_raters, ...) of arrays, got "
            f"{reprlib.repr(smooth)}, which failed: {error}"
        ) from error
    return as_float(label, "smoothed labels")
