"""scikit-learn shells around `fit_many`: they check, call and store."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.calibrators import Calibrator, JuryScaling, TemperatureScaling
from scalecal.checks import InputError, ScalecalWarning
from scalecal.probes.base import Probe
from scalecal.probes.jobs import Trained
from scalecal.probes.recipes import Recipe, with_preset
from scalecal.smoothing import Smoothing
from scalecal.synthesis import BetaLevels

__all__ = ["LinearProbe", "ScaleProbe"]

Float = NDArray[np.float64]


class LinearProbe(Probe):
    """A linear classifier on frozen embeddings, trained on hard labels, soft labels or votes.

    Parameters
    ----------
    smoothing : str, callable or None
        Targets of the training cases. None: the labels as given. ``"vanilla"``: uniform label
        smoothing. ``"confidence"``: piecewise smoothing of a first probe's confidence (Wei et al.
        2022; two classes). ``"piecewise"``, ``"linear"``, ``"nonlinear"``, ``"fraction"`` or a
        function ``f(votes, n_raters)``: from readers' votes, given to `fit`.
    smoothing_options : dict or None
        Options of the smoothing function, e.g. ``{"epsilon": 0.2}``.
    union : bool
        Train on the labels as given and the smoothed ones together.
    loss : {"log", "focal"}
        Log loss, or focal loss (Lin et al. 2017) with exponent `gamma`.
    gamma : float
        Exponent of the focal loss.
    scaling : {"rms", "none", "zscore", "l2"}
        How embeddings are scaled first; see `scalecal.probes.SCALINGS`.
    initial : {"zero", "random"}
        Initial weights.
    learning_rate, batch_size, max_epochs, min_steps, patience
        Adam's settings: at most `max_epochs` epochs but at least `min_steps` steps allowed.
    decay : float
        L2 penalty ``decay / 2 |w|^2`` added to the mean loss.
    validation_share : float
        Share held out for early stopping, stratified and by whole groups; nothing is held out
        below 50 cases.
    preset : {"paper"} or None
        ``"paper"``: the SCALE paper to the letter; see `scalecal.probes.PRESETS`.
    random_state : int, RandomState or None
        Decides the held-out part, initial weights and batch order.

    Attributes
    ----------
    coef_, intercept_ : arrays (1, d) and (1,), or (C, d) and (C,)
        For embeddings as given.
    classes_ : array
        Class labels.
    history_ : array
        Validation log loss after each epoch.
    n_iter_, best_iter_ : int
        Epochs done, and the one whose weights were kept.
    capped_ : bool
        Whether the limit of epochs ended the training, not early stopping.
    validation_ : array or None
        Row numbers held out.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["benign", "malignant"], 100)
    >>> X = rng.normal(size=(200, 8)) + (y == "malignant")[:, None]
    >>> probe = LinearProbe(smoothing="vanilla", random_state=0).fit(X, y)
    >>> probe.predict(X[-2:])
    array(['malignant', 'malignant'], dtype='<U9')
    """

    def __init__(
        self,
        *,
        smoothing: str | Smoothing | None = Recipe.smoothing,
        smoothing_options: Mapping[str, Any] | None = Recipe.smoothing_options,
        union: bool = Recipe.union,
        loss: str = Recipe.loss,
        gamma: float = Recipe.gamma,
        scaling: str = Recipe.scaling,
        initial: str = Recipe.initial,
        learning_rate: float = Recipe.learning_rate,
        batch_size: int = Recipe.batch_size,
        max_epochs: int = Recipe.max_epochs,
        min_steps: int = Recipe.min_steps,
        patience: int = Recipe.patience,
        decay: float = Recipe.decay,
        validation_share: float = Recipe.validation_share,
        preset: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.smoothing = smoothing
        self.smoothing_options = smoothing_options
        self.union = union
        self.loss = loss
        self.gamma = gamma
        self.scaling = scaling
        self.initial = initial
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.min_steps = min_steps
        self.patience = patience
        self.decay = decay
        self.validation_share = validation_share
        self.preset = preset
        self.random_state = random_state

    def _recipe(self, n_raters: int | None) -> Recipe:  # noqa: ARG002
        return Recipe(
            smoothing=self.smoothing,
            smoothing_options=self.smoothing_options,
            union=self.union,
            **self._shared_options(),
        )


DEFAULT_PANEL = 7
"""Readers of an imagined panel where nothing else is said."""

PAPER_SCALE: dict[str, Any] = {"n_anchors": 10, "n_synthetic": None, "mass": None, "jury": None}
"""What the paper's preset puts in place of this package's own choices."""


class ScaleProbe(Probe):
    """SCALE: a probe that learns what hard cases look like from cases it makes up itself.

    A first probe finds the most confident cases of each class, the anchors. Embeddings on the lines
    between anchors of two classes stand for cases a panel of readers would split on, and get the
    soft label of that split. The final probe is trained on real and synthetic cases together. No
    readers' votes are needed.

    Parameters
    ----------
    n_anchors : int or float
        Anchors per class: a count, or a share of the class.
    n_raters : int or None
        Readers in the imagined panel; None takes the size of the panel given to `fit` (votes or
        n_raters).
    smoothing : str or callable
        Soft label of a split: ``"piecewise"``, ``"linear"``, ``"nonlinear"``, ``"fraction"``,
        ``"mixup"``, or a function ``f(votes, n_raters)``.
    anchors : {"confident", "class", "prediction", "random"}
        How anchors are chosen; see `scalecal.synthesis.ANCHORS`.
    n_synthetic : int, float or None
        None: every pair of anchors at every level. A count, or a share of the training set: so
        many combinations, sampled.
    levels : list of float, BetaLevels or None
        Interpolation levels instead of k / n_raters.
    n_partners : int or None
        With more than two classes: pairs of each class with its most confused ones only.
    weight : float
        Weight of a synthetic case beside a real one.
    mass : float or None
        Total weight of the synthetic cases as a share of the real ones'; replaces `weight`.
    warm_start : bool
        Train the final probe from the first one's weights instead of from scratch.
    jury : float, "auto" or None
        Strength, 0 to 1, of the jury map applied to the final logits (`scalecal.jury.jury_logit`):
        from the label's probability to a single reader's. "auto": temperature scaling, then the
        largest strength that the validation labels bear (within one standard error of the best log
        loss). None: not at all.
    loss, gamma, scaling, initial, learning_rate, batch_size, max_epochs, min_steps, patience, \
decay, validation_share, preset, random_state
        As in `LinearProbe`. With ``preset="paper"`` anchors are chosen by prediction alone, and
        `n_anchors`, `n_synthetic`, `mass` and `jury`, where left at their defaults, are the paper's:
        10 anchors per class, every pair at every level, weight 1 each, no jury map.

    Attributes
    ----------
    anchors_ : dict
        Class label to row numbers of X, most confident first.
    n_synthetic_ : int
        How many synthetic cases there were.
    n_raters_ : int
        Readers in the imagined panel.
    calibrator_ : Calibrator or None
        What the probe's own logits go through last.
    coef_, intercept_, classes_, history_, n_iter_, best_iter_, capped_, validation_, \
n_features_in_
        As in `LinearProbe`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 100)
    >>> X = rng.normal(size=(200, 8)) + y[:, None]
    >>> probe = ScaleProbe(random_state=0).fit(X, y)
    >>> probe.n_synthetic_, len(probe.anchors_[1])
    (180, 45)
    >>> paper = ScaleProbe(preset="paper", random_state=0).fit(X, y)
    >>> paper.n_synthetic_, len(paper.anchors_[1])
    (600, 10)
    """

    def __init__(
        self,
        *,
        n_anchors: int | float = 0.5,
        n_raters: int | None = DEFAULT_PANEL,
        smoothing: str | Smoothing = "piecewise",
        anchors: str = "confident",
        n_synthetic: int | float | None = 1.0,
        levels: Sequence[float] | BetaLevels | None = None,
        n_partners: int | None = None,
        weight: float = 1.0,
        mass: float | None = 0.1,
        warm_start: bool = Recipe.warm_start,
        jury: float | Literal["auto"] | None = "auto",
        loss: str = Recipe.loss,
        gamma: float = Recipe.gamma,
        scaling: str = Recipe.scaling,
        initial: str = Recipe.initial,
        learning_rate: float = Recipe.learning_rate,
        batch_size: int = Recipe.batch_size,
        max_epochs: int = Recipe.max_epochs,
        min_steps: int = Recipe.min_steps,
        patience: int = Recipe.patience,
        decay: float = Recipe.decay,
        validation_share: float = Recipe.validation_share,
        preset: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_anchors = n_anchors
        self.n_raters = n_raters
        self.smoothing = smoothing
        self.anchors = anchors
        self.n_synthetic = n_synthetic
        self.levels = levels
        self.n_partners = n_partners
        self.weight = weight
        self.mass = mass
        self.warm_start = warm_start
        self.jury = jury
        self.loss = loss
        self.gamma = gamma
        self.scaling = scaling
        self.initial = initial
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.min_steps = min_steps
        self.patience = patience
        self.decay = decay
        self.validation_share = validation_share
        self.preset = preset
        self.random_state = random_state

    def _recipe(self, n_raters: int | None) -> Recipe:
        panel = n_raters if self.n_raters is None else self.n_raters
        if panel is None:
            raise InputError(
                "n_raters=None needs votes or n_raters in fit, to know the panel's size"
            )
        self.n_raters_ = panel
        synthesis = {
            "n_anchors": self._option("n_anchors"),
            "n_raters": panel,
            "smoothing": self.smoothing,
            "anchors": self.anchors,
            "n_synthetic": self._option("n_synthetic"),
            "levels": self.levels,
            "n_partners": self.n_partners,
            "weight": self.weight,
            "mass": self._option("mass"),
        }
        return Recipe(synthesis=synthesis, warm_start=self.warm_start, **self._shared_options())

    def _option(self, name: str) -> Any:
        """Return an option; under the paper's preset, the paper's where it was left at its default."""
        value = getattr(self, name)
        default = inspect.signature(type(self)).parameters[name].default
        return PAPER_SCALE[name] if self.preset == "paper" and value == default else value

    def recipe(self) -> Recipe:
        """Return how the probe is trained, for any panel: what the experiments call `scale-default`."""
        recipe = with_preset(self._recipe(self.n_raters or DEFAULT_PANEL), self.preset)
        synthesis = {k: v for k, v in (recipe.synthesis or {}).items() if k != "n_raters"}
        return replace(recipe, synthesis=synthesis)

    def calibrator(self, n_raters: int | None = None) -> Calibrator | None:
        """Return what the logits go through last, not yet fitted; None for nothing."""
        strength = self._option("jury")
        if strength is None:
            return None
        jury = JuryScaling(n_raters=n_raters or self.n_raters or DEFAULT_PANEL, strength=strength)
        return TemperatureScaling() | jury if strength == "auto" else jury

    def _store(self, trained: Trained) -> None:
        super()._store(trained)
        assert trained.plan is not None
        self.n_synthetic_ = len(trained.plan)
        # Python scalars as keys read and print better than numpy's.
        names = self.classes_.tolist()
        self.anchors_ = {names[c]: index for c, index in trained.plan.anchors.items()}

    def _finish(
        self, logits: Float | None, y: NDArray[np.int64] | None, weights: Float | None
    ) -> None:
        """Fit the last step to the validation cases."""
        self.calibrator_ = None
        step = self.calibrator(self.n_raters_)
        if step is None:
            return
        if logits is None or y is None:
            if self._option("jury") == "auto":
                return  # nothing to choose the strength by
            n_classes = len(self.classes_)
            logits, y, weights = (
                np.zeros(1 if n_classes == 2 else (1, n_classes)),
                np.zeros(1, int),
                None,
            )
        with warnings.catch_warnings():
            # A validation part without an error leaves the temperature at 1: nothing to tell here.
            warnings.simplefilter("ignore", ScalecalWarning)
            self.calibrator_ = step.fit(logits, y, sample_weight=weights)

    def decision_function(self, X: ArrayLike) -> Float:
        """Return logits, after the jury map where there is one: (n,), or (n, C).

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        """
        logits = super().decision_function(X)
        return logits if self.calibrator_ is None else self.calibrator_.transform(logits)
