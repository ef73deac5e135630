"""The panel as a calibrator: the label's probability, and beside it a reader's."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from scalecal.calibrators.base import Calibrator, one_form
from scalecal.checks import (
    Float,
    InputError,
    check_logits,
    check_same_length,
    check_targets,
)
from scalecal.panel import (
    PRIOR_SD_INTERCEPT,
    Panel,
    class_probabilities,
    count_classes,
    fit_labels,
    fit_panel,
    fit_panel_from_summary,
    split_probability,
    vote_log_pmf,
)


class PanelCalibrator(Calibrator):
    """Calibrate the label's probability and give a reader's beside it, by the panel model.

    The label has the logit a + b z; a reader's vote is its inverse under the correlation rho of
    readers' votes that the features do not explain (see `scalecal.panel`). What rho comes from, in
    this order: `rho` itself, the votes given to `fit`, `kappa`. With none of them the label is
    calibrated and the reader probability refused.

    Parameters
    ----------
    rho : float, optional
        Correlation, if it is to be fixed; at 0 votes are independent given the features.
    kappa : float, optional
        Fleiss' kappa of such readers on such cases, as published or from a pilot.
    vote_share : float or sequence, optional
        Share of all votes that are positive (one number per class for more than two).
    prior_sd : float
        Prior standard deviation of a; larger (2) for predictions of a foreign model.

    Attributes
    ----------
    panel_ : Panel

    Examples
    --------
    >>> z, y = [-2.0, -1.0, 1.0, 2.0] * 20, [0, 0, 1, 1] * 20
    >>> both = PanelCalibrator(rho=0.0).fit(z, y, n_raters=7)
    >>> label, reader = both.predict_proba([1.0])[0, 1], both.predict_reader_proba([1.0])[0, 1]
    >>> bool(label > reader > 0.5)
    True
    """

    name = "panel"
    tried_as = (
        "the panel model: a line through the logits for the label, and a reader's answer from the "
        "votes"
    )

    def __init__(
        self,
        *,
        rho: float | None = None,
        kappa: float | None = None,
        vote_share: ArrayLike | None = None,
        prior_sd: float = PRIOR_SD_INTERCEPT,
    ) -> None:
        self.rho = rho
        self.kappa = kappa
        self.vote_share = vote_share
        self.prior_sd = prior_sd

    def fit(
        self,
        logits: ArrayLike,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        n_raters: ArrayLike | None = None,
        votes: ArrayLike | None = None,
        panel_size: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        interval: bool = True,
    ) -> Self:
        """Learn both answers from cases the probe was not fitted to.

        Parameters
        ----------
        logits : array (n,) or (n, C)
            Out-of-sample logits.
        y : array
            Labels, or soft labels, as for any calibrator.
        sample_weight : array (n,), optional
            Weights of the cases.
        n_raters : int or array (n,), optional
            Readers in `votes`; without votes, readers behind each label.
        votes : array (n,) or (n, C), optional
            Positive votes, or votes per class; NaN if a case was not read.
        panel_size : int or array (n,), optional
            Readers behind each label; default: `n_raters` if it is the same for all cases read.
        groups : array (n,), optional
            Patient, slide, ... of each case, for the interval of rho.
        interval : bool
            Whether rho gets an interval, if it comes from votes.
        """
        raw = check_logits(logits)
        self.n_classes_ = count_classes(raw)
        targets = check_targets(y, self.n_classes_)
        check_same_length(logits=raw, y=targets)
        z, size = one_form(raw), panel_size
        if size is None:
            size = n_raters
        shared: dict[str, Any] = {"sample_weight": sample_weight, "prior_sd": self.prior_sd}
        # Votes and kappa speak of hard labels; soft ones count as the class they prefer.
        label = (targets > 0.5).astype(np.int64) if targets.ndim == 1 else targets.argmax(axis=1)
        # A correlation that is given needs neither votes nor kappa.
        if self.rho is None and votes is not None:
            known: dict[str, Any] = {"groups": groups, "interval": interval}
            self.panel_ = fit_panel(
                z, label, votes, n_raters, panel_size=panel_size, **known, **shared
            )
        elif self.rho is None and self.kappa is not None:
            if size is None:
                raise InputError(
                    "kappa needs the panel's size: give n_raters, the readers per label"
                )
            self.panel_ = fit_panel_from_summary(
                z, label, size, self.kappa, self.vote_share, **shared
            )
        else:
            self.panel_ = fit_labels(z, targets, size, rho=self.rho, **shared)
        return self

    def _transform(self, z: Float, n_raters: ArrayLike | None) -> Float:
        return self.panel_.label_logit(z, n_raters)

    def reader_logits(self, logits: ArrayLike) -> Float:
        """Return logits of a reader's vote: (n,) for two classes, (n, C) for more."""
        z = one_form(self._check(logits))
        return self.panel_.reader_logit(z)

    def predict_reader_proba(self, logits: ArrayLike) -> Float:
        """Return the probability that one reader votes for each class, (n, C)."""
        return class_probabilities(self.reader_logits(logits))

    def mismatch(self, logits: ArrayLike) -> float:
        """Return how far the label is from a majority of the predicted votes (`Panel.mismatch`).

        NaN where nothing says: a kappa without the share of positive votes fits any label.
        """
        if self.kappa is not None and self.vote_share is None:
            return float("nan")
        return self.panel_.mismatch(one_form(self._check(logits)))

    def predict_votes(self, logits: ArrayLike, n_raters: int | None = None) -> Float:
        """Return the law of k of m votes, (n, m + 1), or that of each class, (n, C, m + 1)."""
        m = self.panel_.size_of(n_raters)
        return np.asarray(np.exp(vote_log_pmf(self.reader_logits(logits), self.panel_.rho, m)))

    def predict_disagreement(self, logits: ArrayLike, n_raters: ArrayLike | None = None) -> Float:
        """Return the probability that a panel of m readers splits: low agreement, (n,)."""
        m = self.panel_.size_of(n_raters)
        return split_probability(self.reader_logits(logits), self.panel_.rho, m)

    def to_dict(self) -> dict[str, Any]:
        """Return all that is needed to apply the fitted calibrator again, as JSON can hold it."""
        return {**super().to_dict(), "fitted": {"panel": self.panel_.to_dict()}}

    @classmethod
    def _restore(cls, saved: dict[str, Any]) -> Self:
        params = dict(saved.get("params", {}))
        # Version 0.2.0 could mix the two answers; only its method half-jury did.
        if params.pop("strength", 1.0) != 1.0:
            raise InputError(
                "it mixes label and reader (strength), which was removed: fit it again"
            )
        self = super()._restore({**saved, "params": params})
        self.panel_ = Panel.from_dict(saved["fitted"]["panel"])
        return self


class ReaderOnTop(PanelCalibrator):
    """Any calibrator for the label, and on the logits it gives the panel model for a reader's vote.

    The label's probability is that of the calibrator; the panel adds the reader's.

    Parameters
    ----------
    label : Calibrator
        What calibrates the label.
    rho, kappa, vote_share, prior_sd
        As `PanelCalibrator`.

    Attributes
    ----------
    label_ : Calibrator
        The fitted calibrator of the label.
    panel_ : Panel

    Examples
    --------
    >>> from scalecal.calibrators import TemperatureScaling
    >>> z, y = [-4.0, -2.0, 2.0, 4.0] * 20, [0, 1, 1, 1] * 20
    >>> both = ReaderOnTop(TemperatureScaling(), rho=0.0).fit(z, y, n_raters=7)
    >>> label, reader = both.predict_proba([4.0])[0, 1], both.predict_reader_proba([4.0])[0, 1]
    >>> bool(label == TemperatureScaling().fit(z, y).predict_proba([4.0])[0, 1]), bool(label > reader)
    (True, True)
    """

    name = "reader-on-top"

    def __init__(
        self,
        label: Calibrator,
        *,
        rho: float | None = None,
        kappa: float | None = None,
        vote_share: ArrayLike | None = None,
        prior_sd: float = PRIOR_SD_INTERCEPT,
    ) -> None:
        super().__init__(rho=rho, kappa=kappa, vote_share=vote_share, prior_sd=prior_sd)
        self.label = label

    def fit(self, logits: ArrayLike, y: ArrayLike, **known: Any) -> Self:
        """Fit the label's calibrator, then the panel to its logits; `known` as `PanelCalibrator.fit`."""
        weight = known.get("sample_weight")
        self.label_: Calibrator = clone(self.label).fit(logits, y, sample_weight=weight)
        return super().fit(self.label_.transform(logits), y, **known)

    def _transform(self, z: Float, *_: Any) -> Float:
        return self.label_.transform(z)

    def _probs(self, z: Float, *_: Any) -> Float:
        return self.label_._probs(z, None)

    def reader_logits(self, logits: ArrayLike) -> Float:
        """Return logits of a reader's vote: (n,) for two classes, (n, C) for more."""
        return super().reader_logits(self.label_.transform(self._check(logits)))

    def mismatch(self, logits: ArrayLike) -> float:
        """Return how far the label is from a majority of the predicted votes."""
        return super().mismatch(self.label_.transform(self._check(logits)))

    def to_dict(self) -> dict[str, Any]:
        """Return all that is needed to apply the fitted calibrator again, as JSON can hold it."""
        return {**super().to_dict(), "label": self.label_.to_dict()}

    @classmethod
    def _restore(cls, saved: dict[str, Any]) -> Self:
        from scalecal.calibrators import from_dict

        label = from_dict(saved["label"])
        self = super()._restore({**saved, "params": {**saved["params"], "label": label}})
        self.label_ = label
        return self
