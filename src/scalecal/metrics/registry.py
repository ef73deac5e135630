"""All scalar metrics, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scalecal.metrics.calibration import (
    classwise_ece,
    debiased_error,
    ece,
    ece_sweep,
    mce,
    smece,
    top_label_ece,
)
from scalecal.metrics.discrimination import accuracy, auc, aurc
from scalecal.metrics.proper import brier, nll
from scalecal.metrics.vote_scores import dist_ce, ent_ce, vote_error, vote_nll

__all__ = ["METRICS", "Metric"]


@dataclass(frozen=True)
class Metric:
    """A scalar metric.

    Attributes
    ----------
    function : callable
        ``function(y, probs, *, sample_weight=None, ...)`` or, where `takes` is "votes",
        ``function(votes, probs, *, n_raters=None, sample_weight=None)``.
    label : str
        Its name in tables and figures.
    takes : {"labels", "votes"}
    lower_is_better : bool
    """

    function: Callable[..., float]
    label: str
    takes: Literal["labels", "votes"] = "labels"
    lower_is_better: bool = True

    @property
    def needs_votes(self) -> bool:
        """Whether the first argument is votes rather than labels."""
        return self.takes == "votes"


METRICS: dict[str, Metric] = {
    "ece": Metric(ece, "ECE"),
    "mce": Metric(mce, "Maximum calibration error"),
    "classwise_ece": Metric(classwise_ece, "Class-wise ECE"),
    "top_label_ece": Metric(top_label_ece, "Top-label ECE"),
    "debiased_error": Metric(debiased_error, "Debiased squared error"),
    "ece_sweep": Metric(ece_sweep, "ECE-sweep"),
    "smece": Metric(smece, "smECE"),
    "brier": Metric(brier, "Brier score"),
    "nll": Metric(nll, "Label NLL"),
    "auc": Metric(auc, "AUC", lower_is_better=False),
    "accuracy": Metric(accuracy, "Accuracy", lower_is_better=False),
    "aurc": Metric(aurc, "AURC"),
    "dist_ce": Metric(dist_ce, "DistCE", takes="votes"),
    "ent_ce": Metric(ent_ce, "EntCE", takes="votes"),
    "vote_nll": Metric(vote_nll, "Vote NLL", takes="votes"),
    "vote_error": Metric(vote_error, "Vote error", takes="votes"),
}
