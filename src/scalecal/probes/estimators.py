"""scikit-learn shells around `fit_many`: they check, call and store."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from scalecal.checks import (
    InputError,
    ScalecalWarning,
    check_counts,
    check_probs,
    check_same_length,
    check_weights,
    rows,
)
from scalecal.jury import jury_logit
from scalecal.probes.fitting import CHUNK_ROWS, Job, Trained, fit_many, linear_logits, probabilities
from scalecal.probes.recipes import Recipe, with_preset
from scalecal.smoothing import Smoothing
from scalecal.synthesis import BetaLevels

__all__ = ["LinearProbe", "ScaleProbe"]

Float = NDArray[np.float64]
FLOATS = (np.float64, np.float32, np.float16)


class _Probe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What the probes share: checking, training one job, and predicting."""

    preset: str | None
    random_state: Any

    def _recipe(self, n_raters: int | None) -> Recipe:
        """Return the options as a recipe; `n_raters` is the size of the data's panel, if known."""
        raise NotImplementedError

    def _shared_options(self) -> dict[str, Any]:
        """Constructor arguments that are options of the recipe by the same name."""
        given = self.get_params(deep=False)
        return {name: given[name] for name in _SHARED}

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        votes: ArrayLike | None = None,
        n_raters: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Any:
        """Train the probe.

        Parameters
        ----------
        X : array (n, d)
            Embeddings: float16, float32 or float64; a memory map is read, not copied.
        y : array (n,) or (n, C)
            Class labels; or soft labels: (n, C) rows summing to 1, or (n,) shares of the positive
            class, numbers between 0 and 1.
        votes, n_raters
            Readers per class, (n, C); or (n,) of the positive class together with `n_raters`. The
            columns are the sorted classes. Needed by smoothings that use votes.
        groups : array (n,), optional
            Patients or slides: never split between training and validation.
        sample_weight : array (n,), optional
            Weight of each case; 0 leaves it out.
        X_val, y_val : optional
            A validation part for early stopping; otherwise a share of X is held out.

        Returns
        -------
        self
        """
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        features = self._features(X, "X", reset=True)
        codes, soft = self._labels(y)
        check_same_length(X=features, y=codes)
        weights = check_weights(sample_weight, len(features), "sample_weight")
        counts = None if votes is None else check_counts(votes, n_raters)
        n_classes = len(self.classes_)
        if counts is not None and counts.shape != (len(features), n_classes):
            raise InputError(
                f"votes must have one row per case and one column per class, ({len(features)}, "
                f"{n_classes}), got {counts.shape}"
            )
        panel = None
        if counts is not None:
            panel = int(np.median(counts.sum(axis=1)))
        elif n_raters is not None:
            panel = int(np.median(np.asarray(n_raters)))
        X_validation, validation_y = self._validation(X_val, y_val, features.dtype)
        seen = codes if weights is None else codes[weights > 0]
        if len(np.unique(seen)) < 2:
            raise InputError(
                f"y holds one class only ({self.classes_[seen[0]]!r} in {len(seen)} cases): a probe "
                "needs at least two classes"
            )
        job = Job(
            recipe=with_preset(self._recipe(panel), self.preset),
            rows=np.arange(len(features)),
            y=codes,
            n_classes=n_classes,
            seed=_seed(self.random_state),
            targets=soft,
            votes=counts,
            groups=None if groups is None else np.asarray(groups),
            weights=weights,
            validation=None if X_validation is None else np.arange(len(X_validation)),
            validation_y=validation_y,
        )
        self._store(fit_many(features, [job], X_validation=X_validation)[0])
        return self

    def _features(self, X: ArrayLike, name: str, *, reset: bool = False) -> NDArray[Any]:
        """Return embeddings as a 2-d array of a floating type, checked, not copied."""
        # NaN is looked for afterwards, part by part, to name rows and columns.
        checked: NDArray[Any] = validate_data(
            self, X, reset=reset, dtype=list(FLOATS), ensure_all_finite=False
        )
        _check_features(checked, name)
        return checked

    def _labels(self, y: ArrayLike) -> tuple[NDArray[np.int64], Float | None]:
        """Return class numbers, and soft labels where those were given; set `classes_`."""
        raw = np.asarray(y)
        if raw.ndim == 2 and raw.shape[1] > 1:
            soft = check_probs(raw, "y")
            self.classes_ = np.arange(soft.shape[1])
            return soft.argmax(axis=1), soft[:, 1] if soft.shape[1] == 2 else soft
        raw = column_or_1d(raw, warn=True)
        between = raw.dtype.kind == "f" and bool(((raw > 0) & (raw < 1)).any())
        if between and raw.min() >= 0 and raw.max() <= 1:
            self.classes_ = np.arange(2)
            return (raw > 0.5).astype(np.int64), raw.astype(np.float64)
        if raw.dtype.kind == "f" and not np.isfinite(raw).all():
            raise InputError(f"y contains NaN or infinity at {rows(~np.isfinite(raw))}")
        check_classification_targets(raw)
        self.classes_, codes = np.unique(raw, return_inverse=True)
        return codes.astype(np.int64), None

    def _validation(
        self, X_val: ArrayLike | None, y_val: ArrayLike | None, dtype: Any
    ) -> tuple[Any, NDArray[np.int64] | None]:
        """Check a validation part given by the user."""
        if (X_val is None) != (y_val is None):
            raise InputError("give X_val and y_val together, or neither")
        if X_val is None:
            return None, None
        X = self._features(X_val, "X_val").astype(dtype, copy=False)
        y = np.asarray(y_val)
        check_same_length(X_val=X, y_val=y)
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise InputError(
                f"y_val holds {y[unknown][0]!r} at {rows(unknown)}, which is not a class of y"
            )
        codes = np.searchsorted(self.classes_, y).astype(np.int64)
        if len(np.unique(codes)) < 2:
            warnings.warn(
                f"y_val holds one class only ({y[0]!r}): early stopping will favour it",
                ScalecalWarning,
                stacklevel=3,
            )
        return X, codes

    def _store(self, trained: Trained) -> None:
        """Keep what was learnt."""
        self.coef_ = trained.coef
        self.intercept_ = trained.intercept
        self.unit_rows_ = trained.unit
        self.history_ = trained.fit.history
        self.n_iter_ = trained.fit.n_iter
        self.best_iter_ = trained.fit.best
        self.capped_ = trained.fit.capped
        self.validation_ = trained.validation

    def decision_function(self, X: ArrayLike) -> Float:
        """Return logits: (n,) of the second class against the first, or (n, C).

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        """
        check_is_fitted(self)
        return linear_logits(
            self._features(X, "X"), self.coef_, self.intercept_, unit=self.unit_rows_
        )

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return class probabilities (n, C), columns as in `classes_`.

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        """
        return probabilities(self.decision_function(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each case.

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        """
        logits = self.decision_function(X)
        number = (logits > 0).astype(int) if logits.ndim == 1 else logits.argmax(axis=1)
        return np.asarray(self.classes_[number])


class LinearProbe(_Probe):
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
    solver : {"adam", "lbfgs"}
        Adam with early stopping, or L-BFGS to the optimum.
    scaling : {"rms", "none", "zscore", "l2"}
        How embeddings are scaled first; see `scalecal.probes.SCALINGS`.
    initial : {"zero", "random"}
        Initial weights.
    learning_rate, batch_size, max_epochs, min_steps, patience
        Adam's settings: at most `max_epochs` epochs but at least `min_steps` steps allowed.
    decay : float or None
        L2 penalty; None: 0 for Adam, 1 / (number of cases) for L-BFGS.
    tol, max_iter
        L-BFGS's settings.
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
        Validation log loss after each epoch (L-BFGS: the objective after each iteration).
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
        solver: str = Recipe.solver,
        scaling: str = Recipe.scaling,
        initial: str = Recipe.initial,
        learning_rate: float = Recipe.learning_rate,
        batch_size: int = Recipe.batch_size,
        max_epochs: int = Recipe.max_epochs,
        min_steps: int = Recipe.min_steps,
        patience: int = Recipe.patience,
        decay: float | None = Recipe.decay,
        tol: float | None = Recipe.tol,
        max_iter: int = Recipe.max_iter,
        validation_share: float = Recipe.validation_share,
        preset: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.smoothing = smoothing
        self.smoothing_options = smoothing_options
        self.union = union
        self.loss = loss
        self.gamma = gamma
        self.solver = solver
        self.scaling = scaling
        self.initial = initial
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.min_steps = min_steps
        self.patience = patience
        self.decay = decay
        self.tol = tol
        self.max_iter = max_iter
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


class ScaleProbe(_Probe):
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
    jury : float or None
        Strength, 0 to 1, of the jury map applied to the final logits (`scalecal.jury.jury_logit`):
        from the label's probability to a single reader's. None: not at all.
    loss, gamma, solver, scaling, initial, learning_rate, batch_size, max_epochs, min_steps, \
patience, decay, tol, max_iter, validation_share, preset, random_state
        As in `LinearProbe`. With ``preset="paper"`` anchors are chosen by prediction alone.

    Attributes
    ----------
    anchors_ : dict
        Class label to row numbers of X, most confident first.
    n_synthetic_ : int
        How many synthetic cases there were.
    n_raters_ : int
        Readers in the imagined panel.
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
    (600, 10)
    """

    def __init__(
        self,
        *,
        n_anchors: int | float = 10,
        n_raters: int | None = 7,
        smoothing: str | Smoothing = "piecewise",
        anchors: str = "confident",
        n_synthetic: int | float | None = None,
        levels: Sequence[float] | BetaLevels | None = None,
        n_partners: int | None = None,
        weight: float = 1.0,
        mass: float | None = None,
        warm_start: bool = Recipe.warm_start,
        jury: float | None = None,
        loss: str = Recipe.loss,
        gamma: float = Recipe.gamma,
        solver: str = Recipe.solver,
        scaling: str = Recipe.scaling,
        initial: str = Recipe.initial,
        learning_rate: float = Recipe.learning_rate,
        batch_size: int = Recipe.batch_size,
        max_epochs: int = Recipe.max_epochs,
        min_steps: int = Recipe.min_steps,
        patience: int = Recipe.patience,
        decay: float | None = Recipe.decay,
        tol: float | None = Recipe.tol,
        max_iter: int = Recipe.max_iter,
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
        self.solver = solver
        self.scaling = scaling
        self.initial = initial
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.min_steps = min_steps
        self.patience = patience
        self.decay = decay
        self.tol = tol
        self.max_iter = max_iter
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
            "n_anchors": self.n_anchors,
            "n_raters": panel,
            "smoothing": self.smoothing,
            "anchors": self.anchors,
            "n_synthetic": self.n_synthetic,
            "levels": self.levels,
            "n_partners": self.n_partners,
            "weight": self.weight,
            "mass": self.mass,
        }
        return Recipe(synthesis=synthesis, warm_start=self.warm_start, **self._shared_options())

    def _store(self, trained: Trained) -> None:
        super()._store(trained)
        assert trained.plan is not None
        self.n_synthetic_ = len(trained.plan)
        # Python scalars as keys read and print better than numpy's.
        names = self.classes_.tolist()
        self.anchors_ = {names[c]: index for c, index in trained.plan.anchors.items()}

    def decision_function(self, X: ArrayLike) -> Float:
        """Return logits, after the jury map where there is one: (n,), or (n, C).

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        """
        logits = super().decision_function(X)
        return logits if self.jury is None else jury_logit(logits, self.n_raters_, self.jury)


_SHARED = (
    "loss",
    "gamma",
    "solver",
    "scaling",
    "initial",
    "learning_rate",
    "batch_size",
    "max_epochs",
    "min_steps",
    "patience",
    "decay",
    "tol",
    "max_iter",
    "validation_share",
)


def _seed(random_state: Any) -> int:
    """One whole number from whatever scikit-learn takes as `random_state`."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _check_features(X: NDArray[Any], name: str) -> None:
    """Fail on NaN or infinite features, naming rows and columns; read in parts."""
    for start in range(0, len(X), CHUNK_ROWS):
        bad = ~np.isfinite(X[start : start + CHUNK_ROWS])
        if bad.any():
            where = np.zeros(len(X), dtype=bool)
            where[start : start + CHUNK_ROWS] = bad.any(axis=1)
            columns = rows(bad.any(axis=0)).replace("row", "column")
            raise InputError(
                f"{name} must be finite, got NaN or infinity at {rows(where)}, {columns}. "
                "Drop these cases or columns, or fill the values in."
            )
