"""What every calibrator shares: checks, the two forms of logits, saving, composition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from scalecal.checks import (
    Float,
    InputError,
    check_logits,
    check_probs,
    check_same_length,
    check_targets,
    plain,
)
from scalecal.limits import check_count
from scalecal.panel import case_weights, count_classes, log_odds, normalised, probabilities

# The nearest a probability comes to 0 or 1 when it is turned back into a logit.
_EDGE = 1e-12


def as_logits(probs: Float) -> Float:
    """Return finite logits of probabilities (n,) or (n, C)."""
    clipped = np.clip(probs, _EDGE, 1.0 - _EDGE)
    if probs.ndim == 1:
        return np.asarray(logit(clipped))
    return np.asarray(np.log(clipped))


class Calibrator(BaseEstimator):  # type: ignore[misc]
    """A map from logits to calibrated probabilities, learnt on cases the probe was not fitted to.

    Logits are (n,), of the positive class against the other, or (n, C). Two columns are the same as
    their difference: they are calibrated as two classes and given back as two columns. Calibrators
    are composed with ``a | b``: b works on the logits a gives.

    A subclass writes ``_fit(z, targets, weights, n_raters)`` and either ``_transform(z, n_raters)``
    (logits) or ``_probs(z, n_raters)`` (probabilities), with z (n,) or (n, C > 2).
    """

    name: ClassVar[str]
    """Name in `CALIBRATORS`, and in saved files."""
    tried_as: ClassVar[str] = ""
    """What it is in a phrase, where `audit` and `calibrate --method auto` try it beside doing nothing."""
    method_title: ClassVar[str] = ""
    """Its title among the methods of `compare`, where it is one that has no entry of its own there."""
    _fitted: ClassVar[tuple[str, ...]] = ()

    n_classes_: int

    def fit(
        self,
        logits: ArrayLike,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        n_raters: ArrayLike | None = None,
    ) -> Self:
        """Learn the map from validation cases.

        Parameters
        ----------
        logits : array (n,) or (n, C)
            The probe's logits.
        y : array
            Labels, or soft labels: (n,) for two classes, (n,) class numbers or (n, C) for more.
        sample_weight : array (n,), optional
            Weights of the cases.
        n_raters : int or array (n,), optional
            Readers behind each label; only the panel looks at it.
        """
        z = check_logits(logits)
        n_classes = count_classes(z)
        targets = check_targets(y, n_classes)
        n = check_same_length(logits=z, y=targets)
        self._fit(one_form(z), targets, case_weights(sample_weight, n), n_raters)
        self.n_classes_ = n_classes
        return self

    def transform(self, logits: ArrayLike, *, n_raters: ArrayLike | None = None) -> Float:
        """Return calibrated logits in the form given."""
        z = self._check(logits)
        out = self._transform(one_form(z), n_raters)
        return (
            np.column_stack([-0.5 * out, 0.5 * out])
            if z.ndim == 2 and self.n_classes_ == 2
            else out
        )

    def predict_proba(self, logits: ArrayLike, *, n_raters: ArrayLike | None = None) -> Float:
        """Return calibrated probabilities (n, C), for logits of either form."""
        probs = self._probs(one_form(self._check(logits)), n_raters)
        if probs.ndim == 1:
            return np.column_stack([1.0 - probs, probs])
        return probs

    def __or__(self, other: Calibrator) -> Chain:
        return Chain([*_steps(self), *_steps(other)])

    def to_dict(self) -> dict[str, Any]:
        """Return all that is needed to apply the fitted calibrator again, as JSON can hold it."""
        check_is_fitted(self)
        params = {
            key: plain(value)
            for key, value in self.get_params(deep=False).items()
            # A calibrator within this one is saved as it was fitted, by the class that has it.
            if not isinstance(value, Calibrator)
        }
        return {
            "name": self.name,
            "params": params,
            "n_classes": self.n_classes_,
            "fitted": {key: plain(getattr(self, key)) for key in self._fitted},
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the fitted calibrator `to_dict` described, after it has answered for a few logits.

        Raises
        ------
        InputError
            If an entry is missing or of another type, a number is not finite, or the probabilities of a
            case do not sum to 1.
        """
        if saved.get("name") != cls.name:
            raise InputError(
                f"this describes the calibrator {saved.get('name')!r:.80}, not {cls.name!r}"
            )
        try:
            self = cls._restore(dict(saved))
            self.n_classes_ = check_count(saved["n_classes"], "n_classes", "classes", least=2)
            z = np.linspace(-30.0, 30.0, 7)
            if self.n_classes_ > 2:
                z = np.column_stack([z, *np.zeros((self.n_classes_ - 1, 7))])
            with np.errstate(all="ignore"):
                answers = check_probs(self.predict_proba(z), "its answers")
            if answers.shape != (7, self.n_classes_):
                raise InputError(f"its answers on 7 cases are of shape {answers.shape}")
        except Exception as error:
            # Whatever the file holds is met here: classes need no checks of their own.
            what = str(error) if isinstance(error, InputError) else repr(error)
            raise InputError(f"the calibrator {cls.name!r} is not usable: {what}") from None
        return self

    @classmethod
    def _restore(cls, saved: dict[str, Any]) -> Self:
        self = cls(**saved.get("params", {}))
        for key in cls._fitted:
            value = saved["fitted"][key]
            if not _is_finite(value):
                raise InputError(f"{key} is not finite: {value!r}")
            setattr(self, key, _array(value))
        return self

    def _check(self, logits: ArrayLike) -> Float:
        check_is_fitted(self)
        z = check_logits(logits)
        if count_classes(z) != self.n_classes_:
            raise InputError(
                f"logits are of {count_classes(z)} classes, but this calibrator was fitted to "
                f"{self.n_classes_}"
            )
        return z

    def _fit(self, z: Float, targets: Float, weights: Float, n_raters: ArrayLike | None) -> None:
        raise NotImplementedError

    def _transform(self, z: Float, n_raters: ArrayLike | None) -> Float:
        return as_logits(self._probs(z, n_raters))

    def _probs(self, z: Float, n_raters: ArrayLike | None) -> Float:
        return probabilities(self._transform(z, n_raters))


class OneAgainstRest(Calibrator):
    """A curve of the logit; of more than two classes one of each class's log-odds, renormalised.

    A subclass writes ``_fit_curve(odds, targets, weights)``, which gives one array for each name in
    `_fitted`, and ``_curve(c, odds)``, which gives probabilities, or logits where `_in_logits` is set.
    The attributes are lists of such arrays: one array, or one for each class.
    """

    _in_logits: ClassVar[bool] = False
    _needs_both: ClassVar[bool] = False
    """Whether a curve of one class alone would be constant at 0 or 1."""

    def _fit_curve(self, odds: Float, targets: Float, weights: Float) -> tuple[Float, ...]:
        raise NotImplementedError

    def _curve(self, c: int, odds: Float) -> Float:
        raise NotImplementedError

    def _fit(self, z: Float, targets: Float, weights: Float, *_: Any) -> None:
        classes = [(1, z, targets)]
        if z.ndim == 2:
            classes = [(c, log_odds(z, c), targets[:, c]) for c in range(z.shape[1])]
        curves = []
        for c, odds, share in classes:
            if self._needs_both:
                check_both(share[weights > 0], c)
            curves.append(self._fit_curve(odds, share, weights))
        for name, arrays in zip(self._fitted, zip(*curves, strict=True), strict=True):
            setattr(self, name, list(arrays))

    def _chance(self, c: int, odds: Float) -> Float:
        out = self._curve(c, odds)
        return np.asarray(expit(out)) if self._in_logits else out

    def _probs(self, z: Float, *_: Any) -> Float:
        if z.ndim == 1:
            return self._chance(0, z)
        probs = np.column_stack([self._chance(c, log_odds(z, c)) for c in range(z.shape[1])])
        total = probs.sum(axis=1, keepdims=True)
        # Where no class is given any probability, all get the same.
        uniform = np.full_like(probs, 1.0 / z.shape[1])
        return np.asarray(np.divide(probs, total, out=uniform, where=total > 0.0))

    def _transform(self, z: Float, *_: Any) -> Float:
        if (
            self._in_logits and z.ndim == 1
        ):  # straight from the model: no logit is lost to saturation
            return self._curve(0, z)
        return super()._transform(z, None)


def check_both(targets: Float, c: int) -> None:
    """Fail where all labels, or none, are of class c: its curve would be constant at 0 or 1."""
    first = targets[0]
    if first not in (0.0, 1.0) or (targets != first).any():
        return
    lack = "no other class" if first == 1.0 else f"no case of class {c}"
    raise InputError(
        f"y has {lack} (n = {len(targets)}), so a free calibration curve would give {first:g} "
        "for every case. Give validation cases of every class, or take temperature scaling."
    )


class Identity(Calibrator):
    """No calibration: the probe's own probabilities.

    Examples
    --------
    >>> Identity().fit([0.0], [1]).predict_proba([0.0]).tolist()
    [[0.5, 0.5]]
    """

    name = "identity"

    def _fit(self, *_: Any) -> None:
        pass

    def _transform(self, z: Float, *_: Any) -> Float:
        return normalised(z)


class Chain(Calibrator):
    """Calibrators one after another, each fitted to the logits the one before gives.

    Parameters
    ----------
    steps : list of Calibrator
        In order. ``a | b`` writes ``Chain([a, b])``.

    Attributes
    ----------
    steps_ : list of Calibrator
        The fitted steps.

    Examples
    --------
    >>> from scalecal.calibrators import BetaCalibration, TemperatureScaling
    >>> chain = TemperatureScaling() | BetaCalibration()
    >>> chain.fit([-2.0, -1.0, 1.0, 2.0], [0, 1, 0, 1]).predict_proba([0.0]).round(6).tolist()
    [[0.5, 0.5]]
    """

    name = "chain"

    def __init__(self, steps: list[Calibrator]) -> None:
        self.steps = steps

    def _fit(self, z: Float, targets: Float, weights: Float, n_raters: ArrayLike | None) -> None:
        if not self.steps:
            raise InputError("a chain needs at least one calibrator")
        self.steps_: list[Calibrator] = []
        for step in self.steps:
            fitted = clone(step).fit(z, targets, sample_weight=weights, n_raters=n_raters)
            self.steps_.append(fitted)
            z = fitted.transform(z, n_raters=n_raters)

    def _transform(self, z: Float, n_raters: ArrayLike | None) -> Float:
        for step in self.steps_:
            z = step.transform(z, n_raters=n_raters)
        return z

    def _probs(self, z: Float, n_raters: ArrayLike | None) -> Float:
        for step in self.steps_[:-1]:
            z = step.transform(z, n_raters=n_raters)
        return self.steps_[-1]._probs(z, n_raters)

    def to_dict(self) -> dict[str, Any]:
        """Return all that is needed to apply the fitted chain again, as JSON can hold it."""
        check_is_fitted(self)
        return {
            "name": self.name,
            "n_classes": self.n_classes_,
            "steps": [step.to_dict() for step in self.steps_],
        }

    @classmethod
    def _restore(cls, saved: dict[str, Any]) -> Self:
        from scalecal.calibrators import from_dict

        steps = [from_dict(step) for step in saved["steps"]]
        self = cls(steps)
        self.steps_ = steps
        return self


def one_form(z: Float) -> Float:
    """Return two-class logits as (n,), others as they are."""
    return np.asarray(z[:, 1] - z[:, 0]) if z.shape[1:] == (2,) else z


def _steps(calibrator: Calibrator) -> list[Calibrator]:
    return list(calibrator.steps) if isinstance(calibrator, Chain) else [calibrator]


def _is_finite(value: Any) -> bool:
    """Whether a number, or every number of nested lists, is finite."""
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return isinstance(value, int | float) and bool(np.isfinite(value))


def _array(value: Any) -> Any:
    """Return lists of numbers as arrays, lists of lists of any length as lists of arrays."""
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], list):
        return [np.asarray(item, dtype=np.float64) for item in value]
    return np.asarray(value, dtype=np.float64)
