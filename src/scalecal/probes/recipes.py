"""How a probe is trained, as data: the one place where its defaults are written."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scalecal.checks import (
    InputError,
    ScalecalWarning,
    check_above,
    check_choice,
    check_number,
    check_positive_int,
    check_unit,
    lookup,
)
from scalecal.limits import check_count
from scalecal.smoothing import SMOOTHINGS, Smoothing
from scalecal.solvers import LOSSES
from scalecal.synthesis import plan

SCALINGS: dict[str, str] = {
    "rms": "all features divided by one number, their root mean square over the training part",
    "none": "features as they are",
    "zscore": "each feature to mean 0 and standard deviation 1 over the training part",
    "l2": "each row divided by its Euclidean length",
}
"""Ways to scale embeddings, and what each means."""

FROM_LABELS = ("vanilla", "confidence")
"""Smoothings that need no votes."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides how a probe is trained, apart from the data and the seed.

    Attributes
    ----------
    smoothing, smoothing_options, union, loss, gamma, scaling, initial, learning_rate, batch_size, \
max_epochs, min_steps, patience, decay, validation_share
        As in `scalecal.LinearProbe`.
    synthesis
        None, or options of `scalecal.synthesis.plan`: then a first probe chooses the anchors and
        the real cases are joined by synthetic ones. ``{}`` is SCALE with its defaults.
    shuffled
        Permute the synthetic labels (the negative control).
    distinct_anchors
        Count the same embedding with the same label as one candidate anchor, however often it
        occurs: copies add nothing but weight.
    warm_start
        Train the second probe from the first one's weights instead of from scratch.
    validation
        ``"stratified"`` (never through a group), or ``"random"`` (plain, groups ignored).
    """

    smoothing: str | Smoothing | None = None
    smoothing_options: Mapping[str, Any] | None = None
    union: bool = False
    synthesis: Mapping[str, Any] | None = None
    shuffled: bool = False
    distinct_anchors: bool = True
    warm_start: bool = False
    loss: str = "log"
    gamma: float = 2.0
    scaling: str = "rms"
    initial: str = "zero"
    learning_rate: float = 1e-3
    batch_size: int = 256
    max_epochs: int = 50
    min_steps: int = 10_000
    patience: int = 10
    decay: float = 0.0
    validation_share: float = 0.1
    validation: str = "stratified"

    @property
    def needs_votes(self) -> bool:
        """Whether the targets come from readers' votes."""
        return self.smoothing is not None and self.smoothing not in FROM_LABELS

    @property
    def needs_first_probe(self) -> bool:
        """Whether a plain probe has to be trained before this one."""
        return self.synthesis is not None or self.smoothing == "confidence"

    @property
    def is_plain(self) -> bool:
        """Whether it is its own first probe."""
        return replace(self, distinct_anchors=True) == self.first()

    def first(self) -> Recipe:
        """Return the plain probe this one builds on."""
        return replace(
            self,
            smoothing=None,
            smoothing_options=None,
            union=False,
            synthesis=None,
            shuffled=False,
            distinct_anchors=True,
            warm_start=False,
            loss="log",
        )

    def check(self) -> None:
        """Fail on options that mean nothing, naming them."""
        check_choice(self.loss, LOSSES, "loss")
        check_choice(self.scaling, SCALINGS, "scaling")
        check_choice(self.initial, ("zero", "random"), "initial")
        if self.smoothing is not None and not callable(self.smoothing):
            known = {**dict.fromkeys(FROM_LABELS), **SMOOTHINGS}
            lookup(self.smoothing, known, "smoothing")
        check_count(self.batch_size, "batch_size", "cases")
        check_count(self.max_epochs, "max_epochs", "steps")
        check_positive_int(self.patience, "patience")
        check_count(self.min_steps, "min_steps", "steps", least=0)
        for name in ("union", "warm_start"):
            check_choice(getattr(self, name), (True, False), name)
        if not isinstance(self.smoothing_options, Mapping | None):
            raise InputError(
                "smoothing_options must be a dict of options or None, got "
                f"{reprlib.repr(self.smoothing_options)}"
            )
        if check_unit(self.validation_share, "validation_share") == 1.0:
            raise InputError("validation_share must be below 1: something must be left to train on")
        check_above(self.learning_rate, "learning_rate")
        for name in ("gamma", "decay"):
            if check_number(getattr(self, name), name) < 0:
                raise InputError(f"{name} must not be negative, got {getattr(self, name)!r}")
        if self.synthesis is not None:
            # A plan of four cases: what `plan` refuses is refused before the first probe is trained.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ScalecalWarning)
                plan([0, 0, 1, 1], [-2.0, -1.0, 1.0, 2.0], **self.synthesis)


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "scaling": "none",
        "initial": "random",
        "max_epochs": 50,
        "min_steps": 0,
        "validation": "random",
        "distinct_anchors": False,
    },
}
"""Options a preset sets, whatever else was given."""


def with_preset(recipe: Recipe, preset: str | None) -> Recipe:
    """Return the recipe with a preset's options; None is ``"default"``, the recipe as it is.

    ``"paper"`` is the paper to the letter: raw embeddings, random initial weights, at most 50
    epochs, a plain random tenth for validation, and anchors by the first probe's prediction alone
    (unless they are random by design).

    Examples
    --------
    >>> with_preset(Recipe(synthesis={}), "paper").synthesis
    {'anchors': 'prediction'}
    """
    if preset is None:
        return recipe
    check_choice(preset, PRESETS, "preset")
    changed = replace(recipe, **PRESETS[preset])
    if preset != "paper" or recipe.synthesis is None:
        return changed
    # Anchors chosen on purpose stay: random ones are the paper's own control.
    if recipe.synthesis.get("anchors", "confident") != "confident":
        return changed
    return replace(changed, synthesis={**recipe.synthesis, "anchors": "prediction"})
