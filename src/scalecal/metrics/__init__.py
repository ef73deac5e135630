"""Metrics and tests of calibration, as plain functions ``name(y, probs, ...)``.

`y` holds labels 0 / 1, soft labels between, or class numbers; `probs` holds probabilities of the
positive class, shape (n,), or of all classes, shape (n, C). For more than two classes, calibration
metrics and tests look at the event "the top label is right", unless they say otherwise.
`METRICS` lists the scalar ones; `COLUMNS` has every quantity's title, meaning and direction.
"""

from scalecal.metrics.binning import Bins, bin_index, bins, debiased_error, ece, smece
from scalecal.metrics.columns import COLUMNS, METRICS, Column, Metric
from scalecal.metrics.label_scores import (
    accuracy,
    auc,
    aurc,
    brier,
    net_benefit,
    nll,
    treat_all,
)
from scalecal.metrics.resampling import (
    ConsistencyBars,
    consistency_bars,
    noise_floor,
    resampled_ece,
)
from scalecal.metrics.significance import (
    CalibrationTest,
    consistency,
    cox,
    holm,
    kuiper,
    spiegelhalter,
)
from scalecal.metrics.vote_scores import (
    count_log_score,
    dist_ce,
    ent_ce,
    split_auc,
    split_ece,
    vote_error,
    vote_nll,
)

__all__ = [
    "COLUMNS",
    "METRICS",
    "Bins",
    "CalibrationTest",
    "Column",
    "ConsistencyBars",
    "Metric",
    "accuracy",
    "auc",
    "aurc",
    "bin_index",
    "bins",
    "brier",
    "consistency",
    "consistency_bars",
    "count_log_score",
    "cox",
    "debiased_error",
    "dist_ce",
    "ece",
    "ent_ce",
    "holm",
    "kuiper",
    "net_benefit",
    "nll",
    "noise_floor",
    "resampled_ece",
    "smece",
    "spiegelhalter",
    "split_auc",
    "split_ece",
    "treat_all",
    "vote_error",
    "vote_nll",
]
