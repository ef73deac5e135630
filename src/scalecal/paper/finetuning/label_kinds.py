"""The label kinds a network is trained with, by the names of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scalecal.checks import Float, InputError, Int, lookup, rows
from scalecal.smoothing import Smoothing, linear, nonlinear, piecewise, soft_labels, vanilla


@dataclass(frozen=True)
class LabelKind:
    """How training labels are made: the method's name in results, the function, its one parameter."""

    method: str
    smooth: Smoothing | None = None
    strength: str = ""
    from_votes: bool = False


LABEL_KINDS: dict[str, LabelKind] = {
    "hard": LabelKind("resnet-hard"),
    "vanilla": LabelKind("resnet-vanilla-ls", vanilla, "epsilon"),
    "linear": LabelKind("resnet-linear", linear, "alpha", from_votes=True),
    "piecewise": LabelKind("resnet-piecewise", piecewise, "omega", from_votes=True),
    "nonlinear": LabelKind("resnet-nonlinear", nonlinear, "phi", from_votes=True),
}
"""Label kinds by name, in the order of the paper's first table."""


def smoothing_strengths(chosen: Mapping[str, float | None]) -> dict[str, float]:
    """Return every smoothing function's parameter: the one chosen, or the function's own default.

    Examples
    --------
    >>> smoothing_strengths({"omega": 0.3})
    {'epsilon': 0.1, 'alpha': 0.1, 'omega': 0.3, 'phi': 5.0}
    """
    strengths = {}
    for kind in LABEL_KINDS.values():
        if kind.smooth is not None:
            value = chosen.get(kind.strength)
            default = inspect.signature(kind.smooth).parameters[kind.strength].default
            strengths[kind.strength] = float(default if value is None else value)
    return strengths


def training_targets(
    name: str, y: Int, counts: Int | None, n_classes: int, strengths: Mapping[str, float]
) -> Float:
    """Return the targets of the training cases, one probability per class.

    `counts` (n, C) are readers per class; the kinds that need votes need them for every case.
    `strengths` is as `smoothing_strengths` returns it.

    Examples
    --------
    >>> strengths = smoothing_strengths({})
    >>> training_targets("vanilla", np.array([0, 1]), None, 2, strengths).round(3).tolist()
    [[0.95, 0.05], [0.05, 0.95]]
    >>> votes = np.array([[7, 0], [3, 4]])
    >>> training_targets("piecewise", np.array([0, 1]), votes, 2, strengths).round(3).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    kind = lookup(name, LABEL_KINDS, "label kind")
    if kind.smooth is None:
        return np.eye(n_classes)[y]
    options = {kind.strength: strengths[kind.strength]}
    if kind.from_votes:
        if counts is None or (counts.sum(axis=1) == 0).all():
            raise InputError(
                f"{name} labels need readers' votes, and this data set has none. "
                "Use --labels hard or vanilla"
            )
        alone = counts.sum(axis=1) == 0
        if alone.any():
            raise InputError(
                f"{name} labels need readers' votes for every training case: none at {rows(alone)}"
            )
        soft = soft_labels(counts, smoothing=kind.smooth, **options)
    else:
        soft = kind.smooth(y, n_classes=n_classes, **options)
    return soft if soft.ndim == 2 else np.column_stack([1.0 - soft, soft])
