"""The methods that are compared, as data: one dict, one entry each.

A method is a recipe for training the probe and, where it has one, a calibrator. The paper's methods,
and those set beside them, train by the paper's preset and fit a calibrator to the validation part, so
that they differ in nothing but what their name says; the panel's are fitted on cross-fitted logits, and
so is everything under the default preset. `none-default` and `scale-default` are this package's own
defaults, `LinearProbe()` and `ScaleProbe()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType

from scalecal.calibrators import (
    BetaCalibration,
    Calibrator,
    HistogramBinning,
    IsotonicCalibration,
    PanelCalibrator,
    PlattScaling,
    TemperatureScaling,
)
from scalecal.checks import InputError, lookup
from scalecal.probes import Recipe, ScaleProbe, with_preset
from scalecal.synthesis import BetaLevels


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to get probabilities from embeddings.

    Attributes
    ----------
    label
        Its name in tables and figures.
    about
        What it does, in a sentence.
    recipe
        How the probe is trained.
    calibrator
        Fitted to out-of-sample logits and labels; None: the probe's own probabilities.
    readers
        What a panel calibrator is told of the readers: "published", their kappa and share of positive
        votes; "votes", the votes of the training cases; "" for nothing.
    candidates
        Further recipes; of these and `recipe` the one with the lowest validation log loss is kept.
    preset
        Preset of the training, see `scalecal.probes.PRESETS`.
    needs_panel
        Whether the number of readers behind each label must be known.
    control
        Whether it is a negative control: shown, never recommended.
    paper
        Whether the paper reports it.
    variant_of
        Name of the method it is another setting of, "" for none: a point of a sweep, which is scored
        in brief and not shown among the methods.
    """

    label: str
    about: str
    recipe: Recipe = field(default_factory=Recipe)
    calibrator: Calibrator | None = None
    readers: str = ""
    candidates: tuple[Recipe, ...] = ()
    preset: str = "paper"
    needs_panel: bool = False
    control: bool = False
    paper: bool = False
    variant_of: str = ""

    @property
    def needs_votes(self) -> bool:
        """Whether it cannot be trained without readers' votes."""
        return self.recipe.needs_votes or self.readers == "votes"

    def crossfitted(self, preset: str | None = None) -> bool:
        """Whether its calibrator is fitted on cross-fitted logits, not on the validation part."""
        if self.calibrator is None:
            return False
        return isinstance(self.calibrator, PanelCalibrator) or (preset or self.preset) == "default"

    def recipes(self, n_raters: int | None = None, preset: str | None = None) -> tuple[Recipe, ...]:
        """Return the recipe and the other candidates with panel size and preset filled in.

        Parameters
        ----------
        n_raters
            Size of the data's panel, for synthetic agreement; None: the default.
        preset
            Another preset than the method's own; None keeps that.
        """
        return tuple(
            with_preset(_with_panel(recipe, n_raters), preset or self.preset)
            for recipe in (self.recipe, *self.candidates)
        )


def _with_panel(recipe: Recipe, n_raters: int | None) -> Recipe:
    if recipe.synthesis is None or n_raters is None or n_raters < 2:
        return recipe
    return replace(recipe, synthesis={"n_raters": n_raters, **recipe.synthesis})


# Synthetic cases of the paper's K = 10 anchors and 6 levels, for methods that must match it.
_PAPER_COUNT = 600

_AUTO = tuple(
    Recipe(
        synthesis={"n_anchors": anchors, "n_synthetic": 1.0, "mass": mass, "smoothing": smoothing}
    )
    for anchors, mass, smoothing in product(
        (0.1, 0.5), (0.1, 0.3, 1.0), ("piecewise", "linear", "nonlinear")
    )
)

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "none": Method(label="No calibration", about="Hard labels, nothing else.", paper=True),
        "temperature": Method(
            label="Temperature scaling",
            about="One number divides the logits, fitted on the validation part (Guo et al. 2017).",
            calibrator=TemperatureScaling(),
            paper=True,
        ),
        "vanilla-ls": Method(
            label="Vanilla LS",
            about="The same smoothing of every label, epsilon 0.1.",
            recipe=Recipe(smoothing="vanilla"),
            paper=True,
        ),
        "real-linear": Method(
            label="Real agreement, linear",
            about="Labels smoothed by the readers' votes (Wei et al. 2022), linear.",
            recipe=Recipe(smoothing="linear"),
            paper=True,
        ),
        "real-piecewise": Method(
            label="Real agreement, piecewise",
            about="Labels smoothed by the readers' votes (Wei et al. 2022), piecewise.",
            recipe=Recipe(smoothing="piecewise"),
            paper=True,
        ),
        "real-nonlinear": Method(
            label="Real agreement, nonlinear",
            about="Labels smoothed by the readers' votes (Wei et al. 2022), nonlinear.",
            recipe=Recipe(smoothing="nonlinear"),
            paper=True,
        ),
        "scale-linear": Method(
            label="SCALE, linear",
            about="Synthetic agreement, 10 anchors per class, linear smoothing.",
            recipe=Recipe(synthesis={"smoothing": "linear"}),
            paper=True,
        ),
        "scale": Method(
            label="SCALE",
            about="Synthetic agreement as published: 10 anchors per class, piecewise smoothing.",
            recipe=Recipe(synthesis={"smoothing": "piecewise"}),
            paper=True,
        ),
        "scale-nonlinear": Method(
            label="SCALE, nonlinear",
            about="Synthetic agreement, 10 anchors per class, nonlinear smoothing.",
            recipe=Recipe(synthesis={"smoothing": "nonlinear"}),
            paper=True,
        ),
        "scale-random": Method(
            label="SCALE, random anchors",
            about="Synthetic agreement between random cases of the classes.",
            recipe=Recipe(synthesis={"anchors": "random"}),
            paper=True,
        ),
        "scale-shuffled": Method(
            label="SCALE, shuffled labels",
            about="Negative control: the same synthetic cases, their labels permuted.",
            recipe=Recipe(synthesis={}, shuffled=True),
            control=True,
        ),
        "scale-wide": Method(
            label="SCALE, wide",
            about="The most confident half of each class as anchors, as many sampled cases as real ones.",
            recipe=Recipe(synthesis={"n_anchors": 0.5, "n_synthetic": 1.0}),
        ),
        "scale-auto": Method(
            label="SCALE, auto",
            about="Anchor share, mass and smoothing chosen on validation log loss; none is a candidate.",
            candidates=_AUTO,
        ),
        "mixup": Method(
            label="Embedding mixup",
            about="As many synthetic cases as SCALE's, between random cases, uniform levels, mixed labels.",
            recipe=Recipe(
                synthesis={
                    "anchors": "random",
                    "n_anchors": 1.0,
                    "n_synthetic": _PAPER_COUNT,
                    "levels": BetaLevels(1.0, 1.0),
                    "smoothing": "mixup",
                }
            ),
        ),
        "confidence-ls": Method(
            label="Confidence LS",
            about="Labels smoothed by a first probe's confidence, piecewise (Wei et al. 2022).",
            recipe=Recipe(smoothing="confidence"),
        ),
        "confidence-linear": Method(
            label="Confidence LS, linear",
            about="Labels smoothed by a first probe's confidence, linear.",
            recipe=Recipe(smoothing="confidence", smoothing_options={"form": "linear"}),
        ),
        "confidence-nonlinear": Method(
            label="Confidence LS, nonlinear",
            about="Labels smoothed by a first probe's confidence, nonlinear.",
            recipe=Recipe(smoothing="confidence", smoothing_options={"form": "nonlinear"}),
        ),
        "confidence-fraction": Method(
            label="Confidence itself",
            about="A first probe's confidence as the label: self-distillation.",
            recipe=Recipe(smoothing="confidence", smoothing_options={"form": "fraction"}),
        ),
        "vote-fraction": Method(
            label="Vote fraction",
            about="The share of readers as the label: what real votes can give.",
            recipe=Recipe(smoothing="fraction"),
        ),
        "focal": Method(
            label="Focal loss",
            about="Focal loss with exponent 2 (Lin et al. 2017; Mukhoti et al. 2020).",
            recipe=Recipe(loss="focal"),
        ),
        "platt": Method(
            label="Platt scaling",
            about="A line through the logits, fitted on the validation part.",
            calibrator=PlattScaling(),
        ),
        "beta": Method(
            label="Beta calibration",
            about="Beta calibration on the validation part (Kull et al. 2017).",
            calibrator=BetaCalibration(),
        ),
        "isotonic": Method(
            label="Isotonic",
            about="Isotonic regression on the validation part.",
            calibrator=IsotonicCalibration(),
        ),
        "histogram": Method(
            label="Histogram binning",
            about="Histogram binning on the validation part (Zadrozny and Elkan 2001).",
            calibrator=HistogramBinning(),
        ),
        "panel-published": Method(
            label="Panel, published numbers",
            about="Label and reader's vote by the panel model, from the readers' kappa and share of "
            "positive votes.",
            calibrator=PanelCalibrator(),
            readers="published",
            needs_panel=True,
        ),
        "panel-votes": Method(
            label="Panel, votes",
            about="Label and reader's vote by the panel model, fitted to the training cases' votes.",
            calibrator=PanelCalibrator(),
            readers="votes",
            needs_panel=True,
        ),
        "none-default": Method(
            label="No calibration, default training",
            about="LinearProbe(): hard labels, trained by this package's default.",
            preset="default",
        ),
        "scale-default": Method(
            label="ScaleProbe()",
            about="This package's own default.",
            recipe=ScaleProbe().recipe(),
            calibrator=ScaleProbe().calibrator(),
            readers="published",
            preset="default",
        ),
    }
)
"""Name -> method. Adding one is one entry."""

REMOVED = ("jury", "half-jury")
"""Methods of earlier versions: they took votes for independent given the features, and raised vote NLL
wherever readers share what the features do not see."""


def find_method(name: str) -> Method:
    """Return the method of this name; a removed one fails, naming those that take its place.

    Examples
    --------
    >>> find_method("jury")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: method 'jury' was removed: use panel-published, or panel-votes where ...
    """
    if name in REMOVED:
        raise InputError(
            f"method {name!r} was removed: use panel-published, or panel-votes where votes were counted"
        )
    return lookup(name, METHODS, "method")
