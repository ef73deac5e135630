"""scikit-learn estimators around `fit_many`: they check, call, store, save and load."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load_file, save
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from scalecal.calibrators import Calibrator, PanelCalibrator, from_dict
from scalecal.cases import rows_of
from scalecal.checks import (
    Float,
    InputError,
    Int,
    ScalecalWarning,
    as_array,
    as_float,
    check_choice,
    check_feature_values,
    check_groups,
    check_number,
    check_positive_int,
    check_probs,
    check_same_length,
    check_weights,
    from_elsewhere,
    lookup,
    refuse,
    rows,
)
from scalecal.io.boundary import check_document, read_document, reading
from scalecal.io.store import output_folder, write_json
from scalecal.limits import check_limit
from scalecal.panel import (
    PRIOR_SD_INTERCEPT,
    PRIOR_SD_SHIFTED,
    UNKNOWN_READERS,
    Panel,
    check_sizes,
    class_probabilities,
    read_votes,
)
from scalecal.probes.fitting import (
    MIN_TO_HOLD_OUT,
    CrossFit,
    Job,
    Recipe,
    Trained,
    fit_many,
    linear_logits,
    n_columns,
    predicted,
    with_label,
    with_preset,
)
from scalecal.smoothing import Smoothing
from scalecal.synthesis import BetaLevels
from scalecal.votes import check_sides

FLOATS = (np.float64, np.float32, np.float16)
FORMAT = 3
WEIGHTS, ABOUT = "probe.safetensors", "probe.json"
# Fitted attributes that are saved, as arrays and as plain values.
_ARRAYS = ("coef_", "intercept_", "history_", "validation_")
_NUMBERS = (
    "n_features_in_",
    "unit_rows_",
    "n_iter_",
    "best_iter_",
    "capped_",
    "n_synthetic_",
)
_AGAIN = "Fit it again, or copy it again"


class _SavedProbe(msgspec.Struct):
    """What ``probe.json`` holds of the estimator."""

    format: int
    estimator: str
    params: dict[str, Any]
    classes: list[str | int | float | bool]
    fitted: dict[str, bool | int | float | None]
    calibrator: dict[str, Any] | None
    schema: int = 0


class _About(msgspec.Struct):
    """What ``probe.json`` says of how the probe was made, where a command made it."""

    version: str = ""
    method: str | None = None
    label: str | None = None
    recipe: dict[str, Any] | None = None
    seed: int | None = None
    encoder: str | None = None
    dataset: str | None = None
    data_sha256: str | None = None
    notes: list[str] = []
    counts: dict[str, int] = {}


@dataclass(kw_only=True, eq=False, repr=False)
class _Probe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What the probes share: checking, training one job, predicting, saving and loading."""

    loss: str = Recipe.loss
    gamma: float = Recipe.gamma
    scaling: str = Recipe.scaling
    initial: str = Recipe.initial
    learning_rate: float = Recipe.learning_rate
    batch_size: int = Recipe.batch_size
    max_epochs: int = Recipe.max_epochs
    min_steps: int = Recipe.min_steps
    patience: int = Recipe.patience
    decay: float = Recipe.decay
    validation_share: float = Recipe.validation_share
    class_weight: str | Mapping[Any, float] | None = None
    rho: float | None = None
    preset: str | None = None
    random_state: Any = 0

    _calibrates_labels = False  # also where nothing is known of the readers

    def recipe(self, n_raters: int | None = None) -> Recipe:  # noqa: ARG002
        """Return how the probe is trained, for a panel of `n_raters` (None: any)."""
        params = self.get_params(deep=False)
        options = {f.name: params[f.name] for f in fields(Recipe) if f.name in params}
        return with_preset(Recipe(**options), self.preset)

    def calibrator(
        self, kappa: float | None = None, vote_share: ArrayLike | None = None
    ) -> PanelCalibrator | None:
        """Return what the logits go through last, not yet fitted; None under the paper's preset."""
        if self.preset == "paper":
            return None
        # Class weights shift the logits by a constant, which the prior must not hold on to.
        prior_sd = PRIOR_SD_INTERCEPT if self.class_weight is None else PRIOR_SD_SHIFTED
        return PanelCalibrator(rho=self.rho, kappa=kappa, vote_share=vote_share, prior_sd=prior_sd)

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        votes: ArrayLike | None = None,
        n_raters: ArrayLike | None = None,
        panel_size: ArrayLike | None = None,
        kappa: float | None = None,
        vote_share: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Any:
        """Train the probe, and fit the two answers where something is known of the readers.

        The panel (`panel_`) is fitted on cross-fitted logits: those of probes that did not see the
        case. It takes the votes where any case has some, else `kappa` and `vote_share`.

        Parameters
        ----------
        X : array (n, d)
            Embeddings: float16, float32 or float64; a memory map is read, not copied.
        y : array (n,) or (n, C)
            Class labels; or soft labels: (n, C) rows summing to 1, or (n,) shares of the positive
            class, numbers between 0 and 1.
        votes : array (n,) or (n, C), optional
            Readers who chose the positive class, or each class (columns are the sorted classes); NaN
            if a case was not read. One reader on a case is enough to be of use.
        n_raters : int or array (n,), optional
            Readers in `votes`, per case; without votes, readers behind each label.
        panel_size : int or array (n,), optional
            Readers behind `y`; default: `n_raters` if that is the same for all cases read.
        kappa : float, optional
            Fleiss' kappa of such readers on such cases, from a publication or a pilot: used where no
            case has votes.
        vote_share : float or sequence, optional
            Share of all votes that are positive (one number per class for more than two), beside
            `kappa`.
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
        if vote_share is not None and kappa is None:
            raise InputError("vote_share is used beside kappa only: give kappa, or no vote_share")
        if kappa is not None:
            check_number(kappa, "kappa", "lie in [-1, 1]")
        features = self._features(X, "X", reset=True)
        codes, soft = self._labels(y)
        check_same_length(X=features, y=codes)
        weights = check_weights(sample_weight, len(features), "sample_weight")
        n_classes = len(self.classes_)
        counts = None
        if votes is not None:
            counts = read_votes(votes, n_raters, len(features), n_classes)
            if not counts.any():
                raise InputError(
                    "votes were given, but no case has any: leave them out, or give kappa"
                )
            check_sides(codes, counts)
        X_validation, validation_y = self._validation(X_val, y_val, features.dtype)
        seen = codes if weights is None else codes[weights > 0]
        if len(np.unique(seen)) < 2:
            raise InputError(
                f"y holds one class only ({self.classes_[seen[0]]} in {len(seen)} cases): a probe "
                "needs at least two classes"
            )
        size = _panel_size(counts, n_raters, panel_size, len(features))
        job = Job(
            recipe=self.recipe(None if size is None else int(np.median(size))),
            rows=np.arange(len(features)),
            y=codes,
            n_classes=n_classes,
            seed=_seed(self.random_state),
            targets=soft,
            votes=None if counts is None else with_label(counts, codes),
            groups=check_groups(groups, len(features)),
            weights=weights,
            class_weight=self._class_weight(),
            validation=None if X_validation is None else np.arange(len(X_validation)),
            validation_y=validation_y,
        )
        calibrator = self.calibrator(kappa, vote_share)
        if calibrator is not None and self.rho is not None and size is None:
            raise InputError("rho needs the panel's size: give n_raters, the readers per label")
        about_readers = not (votes is None and kappa is None and self.rho is None)
        total = len(codes) if weights is None else float(weights.sum())
        by_labels = self._calibrates_labels and total >= MIN_TO_HOLD_OUT
        if not (about_readers or by_labels):
            calibrator = None
        if counts is not None and calibrator is None and not job.recipe.needs_votes:
            warnings.warn(
                "votes were given, but preset='paper' does not use them here: take preset=None for two "
                "answers, or smoothing 'fraction', 'piecewise', 'linear' or 'nonlinear' to train on votes",
                ScalecalWarning,
                stacklevel=2,
            )
        again = None
        if calibrator is not None:
            try:
                again = CrossFit.of(job)
            except InputError as error:
                if about_readers:
                    raise
                warnings.warn(
                    f"The label is not calibrated: {error}", ScalecalWarning, stacklevel=2
                )
                calibrator = None
        # Trained together: ten more probes on the same rows cost little more than one.
        jobs = [job, *([] if again is None else again.jobs)]
        trained, *parts = fit_many(features, jobs, X_validation=X_validation)
        self._store(trained)
        self.about_: dict[str, Any] = {}
        self.calibrator_: Calibrator | None = calibrator
        if calibrator is not None and again is not None:
            used = again.fold >= 0
            calibrator.fit(
                again.logits(features, parts)[used],
                codes[used] if soft is None else soft[used],
                votes=rows_of(counts, used),
                panel_size=rows_of(size, used),
                sample_weight=rows_of(weights, used),
            )
        return self

    def _features(self, X: ArrayLike, name: str, *, reset: bool = False) -> NDArray[Any]:
        """Return embeddings as a 2-d array of a floating type, checked, not copied."""
        if getattr(getattr(X, "dtype", None), "kind", "f") in "SUmM":
            raise InputError(f"{name} must be numbers, got {X.dtype}")  # type: ignore[union-attr]
        # NaN is checked afterwards, part by part, to name rows and columns.
        checked: NDArray[Any] = validate_data(
            self, from_elsewhere(X, name), reset=reset, dtype=list(FLOATS), ensure_all_finite=False
        )
        check_feature_values(checked, name)
        return checked

    def _labels(self, y: ArrayLike) -> tuple[NDArray[np.int64], Float | None]:
        """Return class numbers, and soft labels where those were given; set `classes_`."""
        raw = as_array(y, "y")
        if raw.dtype.kind == "S" or any(isinstance(label, bytes) for label in raw.flat[:1]):
            raise InputError("y holds bytes: decode the labels first, y.astype(str)")
        if raw.ndim == 2 and raw.shape[1] > 1:
            soft = check_probs(raw, "y")
            self.classes_ = np.arange(soft.shape[1])
            return soft.argmax(axis=1), soft[:, 1] if soft.shape[1] == 2 else soft
        raw = column_or_1d(raw, warn=True)
        # A share strictly between 0 and 1 cannot be the name of a class.
        between = raw.dtype.kind == "f" and bool(((raw > 0) & (raw < 1)).any())
        if between and raw.min() >= 0 and raw.max() <= 1:
            self.classes_ = np.arange(2)
            return (raw > 0.5).astype(np.int64), raw.astype(np.float64)
        if raw.dtype.kind == "f":
            refuse(~np.isfinite(raw), "y contains NaN or infinity")
        check_classification_targets(raw)
        self.classes_, codes = np.unique(raw, return_inverse=True)
        return codes.astype(np.int64), None

    def _class_weight(self) -> str | Float | None:
        """Return "balanced", or the weights of the classes in their order."""
        if self.class_weight is None:
            return None
        if not isinstance(self.class_weight, Mapping):
            return check_choice(self.class_weight, ("balanced",), "class_weight")
        names = self.classes_.tolist()
        unknown = [label for label in self.class_weight if label not in names]
        if unknown:
            raise InputError(
                f"class_weight names {unknown[0]!r}, which is not a class of y: {', '.join(map(repr, names))}"
            )
        each = as_float([self.class_weight.get(label, 1.0) for label in names], "class_weight")
        if not (np.isfinite(each) & (each > 0)).all():
            raise InputError(f"class_weight must be above 0, got {self.class_weight!r}")
        return each

    def _validation(
        self, X_val: ArrayLike | None, y_val: ArrayLike | None, dtype: Any
    ) -> tuple[Any, NDArray[np.int64] | None]:
        """Check a validation part given by the user."""
        if (X_val is None) != (y_val is None):
            raise InputError("give X_val and y_val together, or neither")
        if X_val is None:
            return None, None
        X = self._features(X_val, "X_val").astype(dtype, copy=False)
        y = column_or_1d(as_array(y_val, "y_val"))
        check_same_length(X_val=X, y_val=y)
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise InputError(
                f"y_val holds {y[unknown][0]!r} at {rows(unknown)}, which is not a class of y"
            )
        codes = np.searchsorted(self.classes_, y).astype(np.int64)
        if len(np.unique(codes)) < 2:
            warnings.warn(
                f"y_val holds one class only ({y[0]}): early stopping will favour it",
                ScalecalWarning,
                stacklevel=3,
            )
        return X, codes

    def _store(self, trained: Trained) -> None:
        """Store the fitted attributes."""
        self.coef_ = trained.coef
        self.n_features_in_ = trained.coef.shape[1]
        self.intercept_ = trained.intercept
        self.unit_rows_ = trained.unit
        self.history_ = trained.fit.history
        self.n_iter_ = trained.fit.n_iter
        self.best_iter_ = trained.fit.best
        self.capped_ = trained.fit.capped
        self.validation_ = trained.validation

    @property
    def panel_(self) -> Panel | None:
        """The fitted panel: rho with its interval, the panel's size; None if none was fitted."""
        check_is_fitted(self)
        return getattr(self.calibrator_, "panel_", None)

    def decision_function(self, X: ArrayLike) -> Float:
        """Return logits of the label, calibrated if there is a calibrator: (n,) or (n, C).

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        """
        logits = self._logits(X)
        return logits if self.calibrator_ is None else self.calibrator_.transform(logits)

    def _logits(self, X: ArrayLike) -> Float:
        check_is_fitted(self)
        features = self._features(X, "X")
        return linear_logits(features, self.coef_, self.intercept_, unit=self.unit_rows_)

    def predict_proba(self, X: ArrayLike, *, n_raters: ArrayLike | None = None) -> Float:
        """Return the label's probabilities (n, C), columns as in `classes_`.

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        n_raters : int or array (n,), optional
            Readers behind the label that is predicted, if they differ from those behind `y`.
        """
        logits = self._logits(X)
        if self.calibrator_ is None:
            probs = class_probabilities(logits)
        else:
            probs = self.calibrator_.predict_proba(logits, n_raters=n_raters)
        return _usable(probs)

    def predict_reader_proba(self, X: ArrayLike) -> Float:
        """Return the probability that one reader votes for each class, (n, C).

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        """
        return _usable(self._readers().predict_reader_proba(self._logits(X)))

    def predict_votes(self, X: ArrayLike, n_raters: int | None = None) -> Float:
        """Return the law of k of m votes: (n, m + 1), or of each class's votes, (n, C, m + 1).

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        n_raters : int, optional
            Readers m; default: those behind `y`.
        """
        return _usable(self._readers().predict_votes(self._logits(X), n_raters))

    def predict_disagreement(self, X: ArrayLike, n_raters: ArrayLike | None = None) -> Float:
        """Return the probability that a panel splits (low agreement, see `scalecal.votes.strata`), (n,).

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        n_raters : int or array (n,), optional
            Readers of the panel; default: those behind `y`.
        """
        readers = self._readers()
        split = readers.predict_disagreement(self._logits(X), n_raters)
        size: Any = readers.panel_.panel_size if n_raters is None else n_raters
        if (as_float(size, "n_raters") < 2).any():
            raise InputError(
                "one reader cannot split: give n_raters, the readers of a panel of two or more"
            )
        return _usable(split)

    def _readers(self) -> PanelCalibrator:
        """The panel, if it has a reader probability."""
        check_is_fitted(self)
        if not isinstance(self.calibrator_, PanelCalibrator):
            if self.preset == "paper":
                raise InputError("preset='paper' gives one answer, as published: use preset=None")
            raise InputError(UNKNOWN_READERS)
        return self.calibrator_

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each case.

        Parameters
        ----------
        X : array (n, d)
            Embeddings.
        """
        logits = self.decision_function(X)
        return np.asarray(self.classes_[predicted(logits)])

    def save(self, folder: str | Path) -> None:
        """Write ``probe.safetensors`` (arrays) and ``probe.json`` (all else), both or neither.

        A smoothing function of one's own is written by its name.

        Parameters
        ----------
        folder : path
            Folder to write to; made if it is not there.
        """
        from scalecal import __version__

        check_is_fitted(self)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        for c, index in enumerate(getattr(self, "anchors_", {}).values()):
            arrays[f"anchors_{c}"] = index
        params = {name: as_json(v) for name, v in self.get_params(deep=False).items()}
        if isinstance(self.class_weight, Mapping):  # JSON's keys are text, labels need not be
            params["class_weight"] = [list(pair) for pair in self.class_weight.items()]
        about = {
            "format": FORMAT,
            "version": __version__,
            "estimator": type(self).__name__,
            "params": params,
            "classes": self.classes_,
            "fitted": {name: getattr(self, name) for name in _NUMBERS if hasattr(self, name)},
            "calibrator": None if self.calibrator_ is None else self.calibrator_.to_dict(),
            **self.about_,
        }
        with output_folder(folder, kind="fit") as partial:
            present = {k: np.ascontiguousarray(v) for k, v in arrays.items() if v is not None}
            # Not `save_file`, whose files only their owner may read.
            (partial / WEIGHTS).write_bytes(save(present))
            write_json(partial / ABOUT, about)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a probe that `save` or the command ``scalecal fit`` wrote.

        Parameters
        ----------
        folder : path
            The folder.

        Raises
        ------
        InputError
            Where there is no such probe, it is of another class, or its numbers are not finite.
        """
        probe = load_probe(folder)
        if not isinstance(probe, cls):
            name = type(probe).__name__
            raise InputError(f"{folder} holds a {name}, not a {cls.__name__}: use {name}.load")
        return probe

    @classmethod
    def _restore(
        cls, saved: _SavedProbe, arrays: dict[str, NDArray[Any]], about: dict[str, Any]
    ) -> Self:
        params = saved.params
        params.pop("n_partners", None)  # an option of 0.2.0, None unless a user set it
        if isinstance(params.get("levels"), dict):
            params["levels"] = BetaLevels(**params["levels"])
        if isinstance(params.get("class_weight"), list):
            params["class_weight"] = dict(params["class_weight"])
        self = cls(**params)
        self.classes_ = np.asarray(saved.classes)
        if self.classes_.ndim != 1 or len(np.unique(self.classes_)) != len(saved.classes):
            raise InputError(
                f"its classes are not distinct names or numbers: {saved.classes!r:.80}"
            )
        for name in _ARRAYS:
            setattr(self, name, arrays.get(name))
        for name in _NUMBERS:
            if name in saved.fitted:
                setattr(self, name, saved.fitted[name])
        self._check_weights()
        names = self.classes_.tolist()
        if "anchors_0" in arrays:
            self.anchors_ = {name: arrays[f"anchors_{c}"] for c, name in enumerate(names)}
        self.calibrator_ = None if saved.calibrator is None else from_dict(saved.calibrator)
        self.about_ = about
        return self

    def _check_weights(self) -> None:
        """Fail where weights that were read do not fit the classes or are not finite."""
        check_positive_int(self.n_features_in_, "n_features_in_")
        columns = n_columns(len(self.classes_))
        shapes = {"coef_": (columns, self.n_features_in_), "intercept_": (columns,)}
        for name, shape in shapes.items():
            values = getattr(self, name)
            if values is None or values.shape != shape or values.dtype.kind != "f":
                found = "none" if values is None else f"{values.dtype} of shape {values.shape}"
                raise InputError(f"{name} must be numbers of shape {shape}, got {found}")
            if not np.isfinite(values).all():
                raise InputError(f"{name} holds numbers that are not finite")

    def adopt(
        self,
        trained: Trained,
        classes: Sequence[Any],
        *,
        calibrator: Calibrator | None,
        about: Mapping[str, Any],
    ) -> Self:
        """Take over a probe of `fit_many` and a fitted calibrator, instead of `fit`.

        `classes` are the labels in the order of the probe's class numbers; `about` says where the probe
        came from and is saved with it.
        """
        self.classes_ = np.asarray(classes)
        self._store(trained)
        self.calibrator_, self.about_ = calibrator, dict(about)
        return self


@dataclass(kw_only=True, eq=False, repr=False)
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
    scaling : {"rms", "none", "zscore", "l2"}
        How embeddings are scaled first; see `scalecal.probes.SCALINGS`.
    initial : {"zero", "random"}
        Initial weights: zeros, or uniform within 1 / sqrt(d) as torch's nn.Linear.
    learning_rate, batch_size, max_epochs, min_steps, patience
        Adam's settings: at most `max_epochs` epochs but at least `min_steps` steps allowed.
    decay : float
        L2 penalty ``decay / 2 |w|^2`` added to the mean loss.
    validation_share : float
        Share held out for early stopping, stratified and by whole groups; nothing is held out
        below 50 cases. With 0, or too few cases, the last weights are kept.
    class_weight : dict, "balanced" or None
        Weights of the classes in training and early stopping, by label (1 where not named), on top of
        `sample_weight`; "balanced": n / (C n_c), every class counts alike. A case counts by its label,
        also where its target is soft; synthetic cases, which lie between classes, as they are. Weights
        move probabilities as if the classes were so common (balanced two: a prevalence of 1/2): these
        are not calibrated for the cases as they are. What is fitted afterwards on out-of-sample logits,
        a panel or another calibrator, is fitted to unweighted cases and undoes the shift.
    rho : float or None
        Correlation of readers' votes that the features do not explain, if it is to be fixed; at 0
        votes are independent given the features. None: estimated from votes or kappa given to `fit`.
    preset : {"paper"} or None
        ``"paper"``: the SCALE paper to the letter, one answer; see `scalecal.probes.PRESETS`.
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
    calibrator_ : Calibrator or None
        What the logits go through last: a `PanelCalibrator` where something is known of the readers,
        or what ``scalecal fit`` set for methods with a calibrator.
    panel_ : Panel or None
        The fitted panel: `rho` with its interval, the panel's size.
    about_ : dict
        Where the probe came from; filled by ``scalecal fit``.
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

    smoothing: str | Smoothing | None = Recipe.smoothing
    smoothing_options: Mapping[str, Any] | None = Recipe.smoothing_options
    union: bool = Recipe.union


PAPER_SCALE: dict[str, Any] = {"n_anchors": 10, "n_synthetic": None, "mass": None}
"""What the paper's preset puts in place of this package's own choices."""

_SYNTHESIS = (
    "n_anchors",
    "smoothing",
    "anchors",
    "n_synthetic",
    "levels",
    "weight",
    "mass",
)


@dataclass(kw_only=True, eq=False, repr=False)
class ScaleProbe(_Probe):
    """SCALE: a probe that learns from synthetic hard cases.

    A first probe finds the most confident cases of each class, the anchors. Embeddings on the lines
    between anchors of two classes stand for cases a panel of readers would split on, and get the
    soft label of that split. The final probe is trained on real and synthetic cases together. No
    readers' votes are needed.

    Parameters
    ----------
    n_raters : int or None
        Readers in the imagined panel; None takes the size of the panel given to `fit` (votes,
        n_raters or panel_size), and 7 if it is given none.
    n_anchors, smoothing, anchors, n_synthetic, levels, weight, mass
        The synthetic cases, as in `scalecal.synthesis.plan`.
    warm_start : bool
        Train the final probe from the first one's weights instead of from scratch.
    loss, gamma, scaling, initial, learning_rate, batch_size, max_epochs, min_steps, patience, \
decay, validation_share, class_weight, rho, preset, random_state
        As in `LinearProbe`. With ``preset="paper"`` anchors are chosen by prediction alone, nothing
        is calibrated, and `n_anchors`, `n_synthetic` and `mass`, where left at their defaults, are the
        paper's: 10 anchors per class, every pair at every level, weight 1 each.

    Attributes
    ----------
    anchors_ : dict
        Class label to row numbers of X, most confident first.
    n_synthetic_ : int
        How many synthetic cases there were.
    coef_, intercept_, classes_, history_, n_iter_, best_iter_, capped_, validation_, \
calibrator_, panel_, about_, n_features_in_
        As in `LinearProbe`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 20)
    >>> X = rng.normal(size=(40, 2)) + y[:, None]
    >>> probe = ScaleProbe(random_state=0).fit(X, y)
    >>> probe.n_synthetic_, len(probe.anchors_[1])
    (40, 10)
    >>> paper = ScaleProbe(preset="paper", random_state=0).fit(X, y)
    >>> paper.n_synthetic_, len(paper.anchors_[1])
    (600, 10)
    """

    n_anchors: int | float = 0.5
    n_raters: int | None = None
    smoothing: str | Smoothing = "piecewise"
    anchors: str = "confident"
    n_synthetic: int | float | None = 1.0
    levels: BetaLevels | None = None
    weight: float = 1.0
    mass: float | None = 0.1
    warm_start: bool = Recipe.warm_start

    _calibrates_labels = True

    def recipe(self, n_raters: int | None = None) -> Recipe:
        """Return how the probe is trained, for a panel of `n_raters` (None: any)."""
        synthesis = {name: self._option(name) for name in _SYNTHESIS}
        panel = n_raters if self.n_raters is None else self.n_raters
        if panel is not None:
            synthesis["n_raters"] = panel
        recipe = replace(super().recipe(), smoothing=None, synthesis=synthesis)
        return with_preset(recipe, self.preset)

    def _option(self, name: str) -> Any:
        """Return an option; under the paper's preset, the paper's if it was left at its default."""
        value = getattr(self, name)
        if self.preset != "paper" or name not in PAPER_SCALE:
            return value
        return PAPER_SCALE[name] if value == getattr(ScaleProbe, name) else value

    def _store(self, trained: Trained) -> None:
        super()._store(trained)
        assert trained.plan is not None
        self.n_synthetic_ = len(trained.plan)
        # Python scalars as keys read and print better than numpy's.
        names = self.classes_.tolist()
        self.anchors_ = {names[c]: index for c, index in trained.plan.anchors.items()}


def _panel_size(
    counts: Int | None, n_raters: ArrayLike | None, panel_size: ArrayLike | None, n: int
) -> Int | None:
    """Readers behind each label (n,); None if that is unknown."""
    if panel_size is not None:
        return check_sizes(panel_size, n, "panel_size")
    if counts is not None:
        read = np.unique(counts.sum(axis=1))
        read = read[read > 0]
        if len(read) > 1:
            raise InputError(
                f"cases have {read.min()} to {read.max()} votes, so that it is unknown how many readers are "
                "behind each label: give panel_size (one number, or one per case)"
            )
        if read[0] == 1 and (counts.sum(axis=1) == 0).any():
            raise InputError(
                "votes are of one reader, and cases without a vote have a label: give panel_size, the number "
                "of readers behind the labels"
            )
        return np.full(n, read[0])
    if n_raters is None:
        return None
    return check_sizes(n_raters, n)


def _usable(probs: Float) -> Float:
    """Fail where a probability is not finite."""
    refuse(
        ~np.isfinite(probs),
        "the probe gives no finite probability",
        advice="Its weights or its calibrator are not usable. Fit it again.",
    )
    return probs


def _seed(random_state: Any) -> int:
    """One whole number from whatever scikit-learn takes as `random_state`."""
    if isinstance(random_state, int | np.integer):
        return check_positive_int(random_state, "random_state", least=0)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except (TypeError, ValueError):
        raise InputError(
            "random_state must be a whole number >= 0, a RandomState or None, got "
            f"{reprlib.repr(random_state)}"
        ) from None


def as_json(value: Any) -> Any:
    """A constructor argument as JSON can hold it; a function by its name, a generator not at all."""
    if isinstance(value, BetaLevels):
        return asdict(value)
    if isinstance(value, np.random.RandomState):
        return None
    return getattr(value, "__name__", repr(value)) if callable(value) else value


_ESTIMATORS: dict[str, type[LinearProbe | ScaleProbe]] = {
    "LinearProbe": LinearProbe,
    "ScaleProbe": ScaleProbe,
}


def load_probe(folder: str | Path) -> LinearProbe | ScaleProbe:
    """Read a saved probe of either class: what `LinearProbe.load` or `ScaleProbe.load` gives.

    Examples
    --------
    >>> import tempfile
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> probe = LinearProbe().fit(X, X[:, 0] > 0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     probe.save(folder)
    ...     again = load_probe(folder)
    >>> type(again).__name__, bool((again.predict_proba(X) == probe.predict_proba(X)).all())
    ('LinearProbe', True)
    """
    for name in (WEIGHTS, ABOUT):
        if not Path(folder, name).is_file():
            raise InputError(
                f"no fitted probe at {folder}: {name} is missing. "
                "Run: scalecal fit FEATURES --method NAME --out DIR"
            )
    about = read_document(Path(folder, ABOUT), dict[str, Any], advice=_AGAIN)
    saved = check_document(Path(folder, ABOUT), about, _SavedProbe, advice=_AGAIN)
    check_document(Path(folder, ABOUT), about, _About, advice=_AGAIN)
    if saved.format != FORMAT:
        raise InputError(
            f"{folder}: its probe has format {saved.format}, this version reads format {FORMAT}. {_AGAIN}"
        )
    with reading(Path(folder, WEIGHTS), "a safetensors file", advice=_AGAIN) as path:
        check_limit(path.stat().st_size, "memory", f"{path}: its size")
        arrays = load_file(path)
    own = {name: about[name] for name in about if name not in _SavedProbe.__struct_fields__}
    try:
        probe = lookup(saved.estimator, _ESTIMATORS, "estimator")._restore(saved, arrays, own)
        # Arrays of the right shapes may still not predict: fail on loading, not in use.
        probe.predict_proba(np.zeros((1, probe.n_features_in_)))
    except Exception as error:  # whatever the files hold instead of a probe's entries
        what = f"{error}" if isinstance(error, InputError) else repr(error)
        raise InputError(f"{folder} does not hold a usable probe: {what}. {_AGAIN}") from None
    return probe
