"""What the estimators share: checking, training one job, and predicting."""

from __future__ import annotations

import warnings
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
from scalecal.probes.fitting import fit_many
from scalecal.probes.jobs import CHUNK_ROWS, Job, Trained, linear_logits, probabilities
from scalecal.probes.recipes import Recipe, with_preset

__all__ = ["Probe"]

Float = NDArray[np.float64]
FLOATS = (np.float64, np.float32, np.float16)


class Probe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
                f"y holds one class only ({self.classes_[seen[0]]} in {len(seen)} cases): a probe "
                "needs at least two classes"
            )
        recipe = with_preset(self._recipe(panel), self.preset)
        if (
            counts is not None
            and recipe.synthesis is None
            and recipe.smoothing in (None, "vanilla", "confidence")
        ):
            warnings.warn(
                f"votes were given, but smoothing={recipe.smoothing!r} does not use them: take "
                "'fraction', 'piecewise', 'linear' or 'nonlinear' to train on votes",
                ScalecalWarning,
                stacklevel=2,
            )
        job = Job(
            recipe=recipe,
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
        trained = fit_many(features, [job], X_validation=X_validation)[0]
        self._store(trained)
        if X_validation is not None:
            self._finish(trained.logits(X_validation), validation_y, None)
        elif trained.validation is not None:
            held = trained.validation
            own = None if weights is None else weights[held]
            self._finish(trained.logits(features, held), codes[held], own)
        else:
            self._finish(None, None, None)
        return self

    def _finish(
        self, logits: Float | None, y: NDArray[np.int64] | None, weights: Float | None
    ) -> None:
        """Learn what comes after the probe from the validation cases (None: there are none)."""

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
                f"y_val holds one class only ({y[0]}): early stopping will favour it",
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


_SHARED = (
    "loss",
    "gamma",
    "scaling",
    "initial",
    "learning_rate",
    "batch_size",
    "max_epochs",
    "min_steps",
    "patience",
    "decay",
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
            columns = rows(bad.any(axis=0), word="column")
            raise InputError(
                f"{name} must be finite, got NaN or infinity at {rows(where)}, {columns}. "
                "Drop these cases or columns, or fill the values in."
            )
