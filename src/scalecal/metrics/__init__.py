"""Metrics and tests of calibration, as plain functions ``name(y, probs, ...)``.

`y` holds labels 0 / 1, soft labels between, or class numbers; `probs` holds probabilities of the
positive class, shape (n,), or of all classes, shape (n, C). For more than two classes, calibration
metrics and tests look at the event "the top label is right", unless they say otherwise.
`METRICS` lists the scalar ones; `COLUMNS` has every quantity's title, meaning and direction.
"""

from scalecal.metrics.benefit import net_benefit, treat_all
from scalecal.metrics.binning import Bins, bin_index, bins
from scalecal.metrics.calibration import (
    classwise_ece,
    debiased_error,
    ece,
    ece_sweep,
    mce,
    smece,
    top_label_ece,
)
from scalecal.metrics.columns import COLUMNS, METRICS, Column, Metric
from scalecal.metrics.discrimination import RiskCoverage, accuracy, auc, aurc, risk_coverage
from scalecal.metrics.proper import Corp, brier, corp, nll
from scalecal.metrics.resampling import (
    ConsistencyBars,
    consistency_bars,
    noise_floor,
    resampled_ece,
    resampled_residuals,
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
    vote_floor,
    vote_nll,
)

__all__ = [
    "COLUMNS",
    "METRICS",
    "Bins",
    "CalibrationTest",
    "Column",
    "ConsistencyBars",
    "Corp",
    "Metric",
    "RiskCoverage",
    "accuracy",
    "auc",
    "aurc",
    "bin_index",
    "bins",
    "brier",
    "classwise_ece",
    "consistency",
    "consistency_bars",
    "corp",
    "count_log_score",
    "cox",
    "debiased_error",
    "dist_ce",
    "ece",
    "ece_sweep",
    "ent_ce",
    "holm",
    "kuiper",
    "mce",
    "net_benefit",
    "nll",
    "noise_floor",
    "resampled_ece",
    "resampled_residuals",
    "risk_coverage",
    "smece",
    "spiegelhalter",
    "split_auc",
    "split_ece",
    "top_label_ece",
    "treat_all",
    "vote_error",
    "vote_floor",
    "vote_nll",
]
