"""The label kinds a network is trained with, by the names of the command line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalecal.checks import Float, InputError, Int, lookup, rows
from scalecal.smoothing import Smoothing, linear, nonlinear, piecewise, soft_labels, vanilla


@dataclass(frozen=True)
class LabelKind:
    """How training labels are made: the method's name in results, and the smoothing, if any."""

    method: str
    smooth: Smoothing | None = None
    from_votes: bool = False


LABEL_KINDS: dict[str, LabelKind] = {
    "hard": LabelKind("resnet-hard"),
    "vanilla": LabelKind("resnet-vanilla-ls", vanilla),
    "linear": LabelKind("resnet-linear", linear, from_votes=True),
    "piecewise": LabelKind("resnet-piecewise", piecewise, from_votes=True),
    "nonlinear": LabelKind("resnet-nonlinear", nonlinear, from_votes=True),
}
"""Label kinds by name, in the order of the paper's first table; strengths are the smoothings' defaults."""


def training_targets(name: str, y: Int, counts: Int | None, n_classes: int) -> Float:
    """Return the targets of the training cases, one probability per class.

    `counts` (n, C) are readers per class; the kinds that need votes need them for every case.

    Examples
    --------
    >>> training_targets("vanilla", np.array([0, 1]), None, 2).round(3).tolist()
    [[0.95, 0.05], [0.05, 0.95]]
    >>> votes = np.array([[7, 0], [3, 4]])
    >>> training_targets("piecewise", np.array([0, 1]), votes, 2).round(3).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    kind = lookup(name, LABEL_KINDS, "label kind")
    if kind.smooth is None:
        return np.eye(n_classes)[y]
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
        soft = soft_labels(counts, smoothing=kind.smooth)
    else:
        soft = kind.smooth(y, n_classes=n_classes)
    if soft.ndim == 1:
        return np.column_stack([1.0 - soft, soft])
    return soft
