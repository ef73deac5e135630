"""Every quantity the package reports, by key: `COLUMNS`, and the functions behind some, `METRICS`.

Terminal tables, pages, CSV files and `docs/columns.md` take keys, titles, order and formats from
`COLUMNS`: a quantity that is not in it is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
from scalecal.metrics.vote_scores import (
    count_log_score,
    dist_ce,
    ent_ce,
    split_auc,
    split_ece,
    vote_error,
    vote_nll,
)

Direction = Literal["lower", "higher", "zero", "none"]


@dataclass(frozen=True)
class Column:
    """One quantity.

    Attributes
    ----------
    key : str
        Its name in audits, files and code.
    title : str
        Its name in tables and figures.
    meaning : str
        What it is, in a sentence without a full stop.
    direction : {"lower", "higher", "zero", "none"}
        Which values are better, if any.
    floor : str or None
        Key of what a calibrated model (or, for votes, the true vote probabilities) would show.
    format : {"number", "count", "p", "text"}
        How it is written.
    votes : bool
        Whether readers' votes judge it, hence the probability of a reader's vote where there is one.
    """

    key: str
    title: str
    meaning: str
    direction: Direction = "none"
    floor: str | None = None
    format: Literal["number", "count", "p", "text"] = "number"
    votes: bool = False


def _with_interval(
    key: str, title: str, meaning: str, direction: Direction, floor: str | None = None
) -> Iterator[Column]:
    """A column and the ends of its interval."""
    yield Column(key, title, meaning, direction, floor)
    yield Column(f"{key}_low", f"{title}, lower", "Lower end of its 95 % interval")
    yield Column(f"{key}_high", f"{title}, upper", "Upper end of its 95 % interval")


def _test(name: str, title: str, meaning: str) -> Iterator[Column]:
    """A test's p-value, and the same adjusted for the number of strata."""
    yield Column(
        f"p_{name}", f"p({title}), unadjusted", f"{meaning}; p-value, not adjusted", format="p"
    )
    yield Column(
        f"p_{name}_holm",
        f"p({title})",
        f"{meaning}; p-value, adjusted for the number of strata (Holm)",
        format="p",
    )


def _vote_columns() -> Iterator[Column]:
    yield Column("n_votes", "votes", "Readers' votes on these cases", format="count")
    yield Column(
        "vote_share",
        "vote share",
        "Mean share of positive votes; with more than two classes, of those for the top class",
    )
    yield from _with_interval(
        "vote_gap", "vote gap", "Mean probability of such a vote less `vote_share`", "zero"
    )
    yield from _with_interval(
        "vote_nll",
        "vote NLL",
        "Negative log likelihood of one reader's vote, in nats",
        "lower",
        "vote_nll_floor",
    )
    yield from _with_interval(
        "vote_excess",
        "vote excess",
        "Vote NLL less its floor: above 0 where the probabilities are surer than the votes bear out",
        "zero",
    )
    yield from _with_interval(
        "count_log_score",
        "count NLL",
        "Negative log likelihood of how many of a case's readers voted so, in nats",
        "lower",
    )
    yield from _with_interval(
        "vote_error",
        "vote error",
        "Squared distance to the vote probability, free of the noise of few votes",
        "zero",
    )
    yield from _with_interval(
        "dist_ce",
        "DistCE",
        "Total variation distance between probabilities and vote shares",
        "lower",
        "dist_ce_floor",
    )
    yield Column(
        "ent_ce",
        "EntCE",
        "Distance between the entropies of probabilities and votes, in nats",
        "lower",
        "ent_ce_floor",
    )
    for key, title in (("vote_nll", "vote NLL"), ("dist_ce", "DistCE"), ("ent_ce", "EntCE")):
        yield Column(
            f"{key}_floor", f"{title} floor", f"{title} of the true vote probabilities on average"
        )
    yield Column(
        "split_auc",
        "split AUC",
        "Area under the ROC curve of the probability that a panel splits (low agreement)",
        "higher",
    )
    yield Column(
        "split_ece",
        "split ECE",
        "ECE of the probability that a panel splits",
        "lower",
        "split_ece_floor",
    )
    yield Column(
        "split_ece_floor", "split ECE floor", "Split ECE of the true law of votes on average"
    )
    yield from _test(
        "votes",
        "votes",
        "Votes against the probability of a vote within strata of predicted difficulty",
    )
    yield Column(
        "vote_mean_p", "mean vote p", "Mean probability of the votes that `vote_share` counts"
    )
    yield Column(
        "vote_confidence",
        "says",
        "Mean probability that a reader votes for the class that the model prefers",
    )
    yield Column("vote_agreement", "votes say", "Share of the votes for that class")
    yield from _with_interval(
        "vote_overconfidence",
        "too sure",
        "What the model says less what the votes say, of the class that it prefers",
        "zero",
    )
    yield Column(
        "vote_rho",
        "rho",
        "Correlation of two votes on a case that their probability does not explain",
    )


def _all_columns() -> Iterator[Column]:
    yield Column("name", "stratum", "Stratum, or overall", format="text")
    yield Column("n", "n", "Cases", format="count")
    yield Column("n_groups", "groups", "Groups (patients, slides) among them", format="count")
    yield Column(
        "prevalence",
        "prev.",
        "Share of positive labels; with more than two classes, of the commonest",
    )
    yield Column(
        "mean_p",
        "mean p",
        "Mean probability of the positive class; with more, of the predicted one",
    )
    yield Column(
        "ece", "ECE", "Expected calibration error, in bins of equal width", "lower", "floor"
    )
    yield Column("floor", "floor", "ECE that a calibrated model shows on average on so many cases")
    yield Column("floor_high", "floor, 95 %", "95th percentile of a calibrated model's ECE")
    yield Column("excess", "excess", "ECE less its floor", "zero")
    null = "of a calibrated model's ECE in a stratum chosen as this one was"
    yield Column("null", "null", f"Mean {null}, selection by the votes included")
    yield Column("null_low", "null, 5 %", f"5th percentile {null}")
    yield Column("null_high", "null, 95 %", f"95th percentile {null}")
    yield Column("null_rank", "rank in null", "Share of calibrated models with a lower ECE there")
    yield from _test("null", "null", "ECE no larger than a calibrated model's in the same stratum")
    yield from _test("cox", "Cox", "Cox's test of calibration")
    yield Column("cox_intercept", "Cox intercept", "Above 0: probabilities too low", "zero")
    yield Column("cox_slope", "Cox slope", "Below 1: probabilities too extreme")
    yield from _test("kuiper", "Kuiper", "Kuiper's test of calibration")
    yield from _test("spiegelhalter", "Spiegelhalter", "Spiegelhalter's test of calibration")
    yield from _test("consistency", "consistency", "ECE no larger than a calibrated model's")
    yield from _with_interval(
        "debiased_error",
        "debiased error",
        "Squared calibration error without the bias of finite bins; may be negative",
        "zero",
    )
    yield Column("smece", "smECE", "Calibration error by kernel smoothing, without bins", "lower")
    yield from _with_interval("gap", "gap", "Mean probability less the share of positives", "zero")
    yield from _with_interval(
        "overconfidence", "over-conf.", "Mean confidence in the prediction less accuracy", "zero"
    )
    yield from _with_interval("brier", "Brier", "Brier score against labels", "lower")
    yield from _with_interval(
        "nll", "label NLL", "Negative log likelihood of the labels, in nats", "lower"
    )
    yield from _with_interval("auc", "AUC", "Area under the ROC curve", "higher")
    yield from _with_interval("accuracy", "acc.", "Share of correct predictions", "higher")
    yield from (replace(column, votes=True) for column in _vote_columns())
    yield Column("entropy", "entropy", "Mean entropy of the probabilities, in nats")
    yield Column("aurc", "AURC", "Area under the risk-coverage curve", "lower")
    yield Column("mce", "MCE", "Largest gap of a bin", "lower")
    yield Column(
        "classwise_ece", "class-wise ECE", "Mean ECE of each class against the rest", "lower"
    )
    yield Column("top_label_ece", "top-label ECE", "ECE of the predicted class", "lower")
    yield Column("ece_sweep", "ECE sweep", "ECE with as many bins as stay monotone", "lower")
    yield Column("reason", "reason", "Why numbers are missing", format="text")


COLUMNS: dict[str, Column] = {column.key: column for column in _all_columns()}
"""Every quantity by key, in the order in which tables show them."""


@dataclass(frozen=True)
class Metric:
    """A scalar metric; `COLUMNS` has its title and direction.

    Attributes
    ----------
    function : callable
        ``function(y, probs, *, sample_weight=None, ...)`` or, where `takes` is "votes",
        ``function(votes, probs, *, n_raters=None, sample_weight=None, ...)``.
    takes : {"labels", "votes"}
    """

    function: Callable[..., float]
    takes: Literal["labels", "votes"] = "labels"

    @property
    def column(self) -> Column:
        """What is known of the metric beside its function."""
        return COLUMNS[self.function.__name__]


METRICS: dict[str, Metric] = {
    function.__name__: Metric(function)
    for function in (
        ece,
        mce,
        classwise_ece,
        top_label_ece,
        debiased_error,
        ece_sweep,
        smece,
        brier,
        nll,
        auc,
        accuracy,
        aurc,
    )
} | {
    function.__name__: Metric(function, takes="votes")
    for function in (
        dist_ce,
        ent_ce,
        vote_nll,
        vote_error,
        count_log_score,
        split_auc,
        split_ece,
    )
}
"""All scalar metrics, by name."""
