"""Every quantity the package reports: `METRICS`, one record each, and `COLUMNS`, what tables hold.

A metric's record says how it is computed (a term whose mean over the cases it is, or a function of the
sample) and where it is shown. Means, intervals, bootstraps, changes, streams, tables, gates and
`docs/columns.md` follow from it; a quantity that is not in `COLUMNS` is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Literal

import numpy as np

from scalecal.checks import Float
from scalecal.metrics import binning, clinical, vote_scores
from scalecal.metrics.arguments import Sample, Term
from scalecal.metrics.label_scores import (
    accuracy_term,
    area,
    brier_term,
    entropy_term,
    gap_term,
    nll_term,
    overconfidence_term,
    placements,
    risk_area,
)
from scalecal.metrics.resampling import sample_floor

Direction = Literal["lower", "higher", "zero", "none"]
Scale = Literal["plain", "log", "logit"]
"""Scale on which an interval is symmetric: of differences, of positive losses, of shares."""

Listing = Literal["everywhere", "methods", "files"]
"""Tables of a comparison that have a metric: of methods and of models, of methods alone, those in files."""


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
        Key of what a calibrated model, or votes that follow the probabilities, would show.
    format : {"number", "count", "p", "text"}
        How it is written.
    votes : bool
        Whether readers' votes judge it, hence the probability of a reader's vote if there is one.
    in_audit : bool
        Whether an audit has it.
    """

    key: str
    title: str
    meaning: str
    direction: Direction = "none"
    floor: str | None = None
    format: Literal["number", "count", "p", "text"] = "number"
    votes: bool = False
    in_audit: bool = True

    @property
    def name(self) -> str:
        """Its name in sentences."""
        return self.title


@dataclass(frozen=True)
class Metric(Column):
    """A quantity that is computed from a sample (`scalecal.metrics.arguments.Sample`).

    One of `term`, `pseudo_values`, `bins` and `function` says how; all but the last have a bootstrap, and an
    interval where `scale` is given.

    Attributes
    ----------
    term : callable, optional
        Of the cases of a block: what each adds, (n,), to the mean that the metric is.
    pseudo_values : callable, optional
        Of all cases at once: pseudo-values (n,), whose mean is the metric (two classes).
    bins : callable, optional
        Of each bin's sum of ``p - y`` as a share of all cases, (..., n_bins): the metric, (...).
    function : callable, optional
        Of the sample: the metric.
    scale : {"plain", "log", "logit"} or None
        Scale on which the interval is symmetric.
    least_votes : int
        Votes that a case needs to count: 0, 1 or 2.
    expected : callable, optional
        Of the sample: the value of the `floor`.
    of_event : bool
        Whether a term of labels follows from the event (the top class is right) and its probability.
    per_stratum : bool
        Whether it means something within strata.
    cheap : bool
        Whether every point of a sweep has it.
    compared : bool
        Whether results and comparisons of methods have it.
    main : bool
        Whether it decides: its changes are given in strata too, and against softening.
    tested : bool
        Whether differences between models in it are tested, as one family.
    shown : bool
        Whether the tables that a person reads have it; files have it anyhow.
    listed : {"everywhere", "methods", "files"}
        Which tables of a comparison have it, if it is `shown` and `compared`; an audit has more room.
    called : str
        Its name in sentences, if that is not its title.
    """

    term: Term | None = None
    pseudo_values: Term | None = None
    bins: Callable[[Float], Float] | None = None
    function: Callable[[Sample], float] | None = None
    scale: Scale | None = None
    least_votes: int = 0
    expected: Callable[[Sample], float] | None = None
    of_event: bool = False
    per_stratum: bool = True
    cheap: bool = True
    compared: bool = True
    main: bool = False
    tested: bool = False
    shown: bool = True
    listed: Listing = "everywhere"
    called: str = ""

    @property
    def name(self) -> str:
        """Its name in sentences."""
        return self.called or self.title

    @property
    def resampled(self) -> bool:
        """Whether it has a bootstrap."""
        return self.function is None

    def value(self, sample: Sample) -> float:
        """The metric of a sample, whose labels or votes are those that judge it."""
        if self.term is not None:
            return sample.mean(self.term, self.least_votes)
        if self.pseudo_values is not None:
            return self._of_two(sample)
        if self.bins is not None:
            return binning.binned(sample, self.bins)
        assert self.function is not None
        return self.function(sample)

    def _of_two(self, sample: Sample) -> float:
        """The mean of the pseudo-values; of more than two classes AUC alone has one."""
        assert self.pseudo_values is not None
        if self.pseudo_values is placements:
            return area(sample)
        if sample.p.ndim > 1:
            return nan
        return float(np.average(self.pseudo_values(sample), weights=sample.weights))


_votes = partial(Metric, votes=True, least_votes=1)

METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric(
            "ece",
            "ECE",
            "Expected calibration error, in bins of equal width",
            "lower",
            "floor",
            bins=binning.mean_gap,
            expected=sample_floor,
            main=True,
            tested=True,
        ),
        Metric(
            "debiased_error",
            "debiased error",
            "Squared calibration error without the bias of finite bins; may be negative",
            "zero",
            function=binning.debiased,
            scale="plain",
            expected=lambda _: 0.0,
            cheap=False,
            shown=False,
        ),
        Metric(
            "smece",
            "smECE",
            "Calibration error by kernel smoothing, without bins",
            "lower",
            function=binning.smooth_error,
            cheap=False,
            shown=False,
        ),
        Metric(
            "gap",
            "gap",
            "Mean probability less the share of positives",
            "zero",
            term=gap_term,
            scale="plain",
            of_event=True,
            compared=False,
            shown=False,
        ),
        Metric(
            "overconfidence",
            "over-conf.",
            "Mean confidence in the prediction less accuracy",
            "zero",
            term=overconfidence_term,
            scale="plain",
            of_event=True,
            compared=False,
        ),
        Metric(
            "brier",
            "Brier",
            "Brier score against labels",
            "lower",
            term=brier_term,
            scale="log",
            tested=True,
            listed="files",
            called="Brier score",
        ),
        Metric(
            "nll",
            "label NLL",
            "Negative log likelihood of the labels, in nats",
            "lower",
            term=nll_term,
            scale="log",
            main=True,
            tested=True,
        ),
        Metric(
            "auc",
            "AUC",
            "Area under the ROC curve",
            "higher",
            pseudo_values=placements,
            scale="logit",
            tested=True,
        ),
        Metric(
            "oe",
            "O:E",
            "Positive cases observed for each one that the probabilities expect; above 1: p too low",
            pseudo_values=clinical.observed_to_expected,
            scale="log",
            compared=False,
            shown=False,
        ),
        Metric(
            "citl",
            "calibration in the large",
            "Offset that the logits of p lack, with the slope held at 1; above 0: p too low",
            "zero",
            pseudo_values=clinical.calibration_in_the_large,
            scale="plain",
            compared=False,
            shown=False,
        ),
        Metric(
            "slope",
            "calibration slope",
            "Slope of the labels on the logits of p, the intercept being free; below 1: p too extreme",
            pseudo_values=clinical.calibration_slope,
            scale="plain",
            compared=False,
            shown=False,
        ),
        Metric(
            "scaled_brier",
            "scaled Brier",
            "1 less the Brier score over that of the prevalence; 1 is perfect, 0 no better than a constant",
            "higher",
            pseudo_values=clinical.scaled_brier,
            scale="plain",
            compared=False,
            shown=False,
            called="scaled Brier score",
        ),
        Metric(
            "accuracy",
            "acc.",
            "Share of correct predictions",
            "higher",
            term=accuracy_term,
            scale="logit",
            of_event=True,
            tested=True,
            listed="methods",
            called="accuracy",
        ),
        _votes(
            "vote_gap",
            "vote gap",
            "Mean probability of such a vote less `vote_share`",
            "zero",
            term=vote_scores.vote_gap_term,
            scale="plain",
            compared=False,
        ),
        _votes(
            "vote_nll",
            "vote NLL",
            "Negative log likelihood of one reader's vote, in nats",
            "lower",
            "vote_nll_floor",
            term=vote_scores.vote_nll_term,
            scale="log",
            expected=lambda sample: sample.mean(entropy_term, 1),
            main=True,
            tested=True,
        ),
        _votes(
            "vote_excess",
            "vote excess",
            "Vote NLL less its floor; above 0 if the probabilities are more confident than the votes",
            "zero",
            term=vote_scores.vote_excess_term,
            scale="plain",
            compared=False,
            shown=False,
        ),
        _votes(
            "count_log_score",
            "count NLL",
            "Negative log likelihood of how many of a case's readers voted so, in nats",
            "lower",
            term=vote_scores.count_term,
            scale="log",
            listed="files",
        ),
        _votes(
            "vote_error",
            "vote error",
            "Squared distance to the vote probability, corrected for the noise of few votes",
            "zero",
            term=vote_scores.vote_error_term,
            scale="plain",
            least_votes=2,
            shown=False,
        ),
        _votes(
            "dist_ce",
            "DistCE",
            "Total variation distance between probabilities and vote shares",
            "lower",
            "dist_ce_floor",
            term=vote_scores.distance_term,
            scale="log",
            expected=lambda sample: sample.mean(vote_scores.distance_floor_term, 1),
            shown=False,
        ),
        _votes(
            "ent_ce",
            "EntCE",
            "Distance between the entropies of probabilities and votes, in nats",
            "lower",
            "ent_ce_floor",
            function=lambda sample: sample.mean(vote_scores.entropy_gap_term, 1),
            expected=lambda sample: sample.mean(vote_scores.entropy_floor_term, 1),
            compared=False,
            shown=False,
        ),
        _votes(
            "split_auc",
            "split AUC",
            "Area under the ROC curve of the probability that a panel splits (low agreement)",
            "higher",
            function=vote_scores.split_area,
            per_stratum=False,
            listed="files",
        ),
        _votes(
            "split_ece",
            "split ECE",
            "ECE of the probability that a panel splits",
            "lower",
            "split_ece_floor",
            function=vote_scores.split_gap,
            expected=vote_scores.split_floor,
            per_stratum=False,
            shown=False,
        ),
        Metric(
            "entropy",
            "entropy",
            "Mean entropy of the probabilities, in nats",
            function=lambda sample: sample.mean(entropy_term),
            in_audit=False,
            shown=False,
        ),
        Metric(
            "aurc",
            "AURC",
            "Area under the risk-coverage curve",
            "lower",
            function=risk_area,
            in_audit=False,
            cheap=False,
            shown=False,
        ),
    )
}
"""Every metric by its key, in the order in which tables show them."""


def chosen(test: Callable[[Metric], object]) -> list[str]:
    """Keys of the metrics for which `test` holds, those that decide first.

    Examples
    --------
    >>> chosen(lambda metric: metric.tested)
    ['ece', 'nll', 'vote_nll', 'brier', 'auc', 'accuracy']
    """
    passed = [metric for metric in METRICS.values() if test(metric)]
    return [metric.key for metric in sorted(passed, key=lambda metric: not metric.main)]


def _ends(column: Column) -> Iterator[Column]:
    """The ends of a column's interval."""
    for end, name in (("low", "lower"), ("high", "upper")):
        yield Column(
            f"{column.key}_{end}",
            f"{column.title}, {name}",
            f"{name.capitalize()} end of its 95 % interval",
            votes=column.votes,
        )


def _with_ends(metric: Metric) -> Iterator[Column]:
    """A metric's column, and the ends of its interval if it has one."""
    yield metric
    if metric.scale is not None:
        yield from _ends(metric)


def _test(name: str, title: str, meaning: str, votes: bool = False) -> tuple[Column, Column]:
    """A test's p-value, and the same adjusted for the number of strata."""
    plain = Column(
        f"p_{name}",
        f"p({title}), unadjusted",
        f"{meaning}; p-value, not adjusted",
        format="p",
        votes=votes,
    )
    adjusted = Column(
        f"p_{name}_holm",
        f"p({title})",
        f"{meaning}; p-value, adjusted for the number of strata (Holm)",
        format="p",
        votes=votes,
    )
    return plain, adjusted


_CASES = (
    Column("name", "stratum", "Stratum, or overall", format="text"),
    Column("n", "n", "Cases", format="count"),
    Column("n_groups", "groups", "Groups (patients, slides) among them", format="count"),
    Column(
        "prevalence",
        "prev.",
        "Share of positive labels; with more than two classes, of the most common one",
    ),
    Column(
        "mean_p",
        "mean p",
        "Mean probability of the positive class; with more than two, of the predicted one",
    ),
    Column(
        "events", "events", "Positive cases, as they were sampled (two classes)", format="count"
    ),
    Column(
        "expected",
        "expected",
        "Positive cases that the probabilities expect (two classes, not at another prevalence)",
    ),
)

_NULL = "of a calibrated model's ECE in a stratum that was selected in the same way"
# What chance makes of ECE, and the tests of calibration: they stand beside ECE.
_BESIDE_ECE = (
    Column("floor", "floor", "Mean ECE of a calibrated model on the same cases"),
    Column("floor_high", "floor, 95 %", "95th percentile of a calibrated model's ECE"),
    Column("excess", "excess", "ECE less its floor", "zero"),
    Column("null", "null", f"Mean {_NULL}, including selection by the votes"),
    Column("null_low", "null, 5 %", f"5th percentile {_NULL}"),
    Column("null_high", "null, 95 %", f"95th percentile {_NULL}"),
    Column("null_rank", "rank in null", "Share of calibrated models with a lower ECE there"),
    *_test("null", "null", "ECE no larger than a calibrated model's in the same stratum"),
    *_test("cox", "Cox", "Cox's test of calibration"),
    Column(
        "cox_intercept", "Cox intercept", "Intercept of Cox's line, whose slope is free", "zero"
    ),
    Column("cox_slope", "Cox slope", "Slope of Cox's line; below 1: probabilities too extreme"),
    *_test("kuiper", "Kuiper", "Kuiper's test of calibration"),
    *_test("spiegelhalter", "Spiegelhalter", "Spiegelhalter's test of calibration"),
    *_test("consistency", "consistency", "ECE no larger than a calibrated model's"),
)

_CURVE = (
    Column(
        "ici",
        "ICI",
        "Integrated calibration index: mean distance of the flexible curve from p",
        "lower",
        "ici_floor",
    ),
    Column("e50", "E50", "Median distance of the flexible curve from p", "lower", "e50_floor"),
    Column("e90", "E90", "90th percentile of that distance over the cases", "lower", "e90_floor"),
    Column("emax", "Emax", "Largest distance of the flexible curve from p", "lower", "emax_floor"),
)

_BEFORE_VOTES = (
    Column("n_votes", "votes", "Readers' votes on these cases", format="count", votes=True),
    Column(
        "vote_share",
        "vote share",
        "Mean share of positive votes; with more than two classes, of those for the top class",
        votes=True,
    ),
)

_OVERCONFIDENCE = Column(
    "vote_overconfidence",
    "vote over-conf.",
    "`vote_confidence` less `vote_agreement`",
    "zero",
    votes=True,
)
_AFTER_VOTES = (
    *_test(
        "votes",
        "votes",
        "Votes against the probability of a vote within strata of predicted difficulty",
        votes=True,
    ),
    Column(
        "vote_mean_p",
        "mean vote p",
        "Mean probability of the votes that `vote_share` counts",
        votes=True,
    ),
    Column(
        "vote_confidence",
        "predicted",
        "Mean probability that a reader votes for the predicted class",
        votes=True,
    ),
    Column("vote_agreement", "observed", "Share of the votes for that class", votes=True),
    _OVERCONFIDENCE,
    *_ends(_OVERCONFIDENCE),
    Column(
        "vote_rho",
        "rho",
        "Correlation of two votes on a case beyond what their probability explains",
        votes=True,
    ),
)


def _of_curve() -> Iterator[Column]:
    """Errors of the flexible curve (`scalecal.inference.curves`), each with interval and floor."""
    for column in _CURVE:
        yield column
        yield from _ends(column)
        yield Column(
            f"{column.key}_floor",
            f"{column.title} floor",
            f"{column.title} of a calibrated model on average, by the curve's covariance",
        )
    yield Column("curve_reason", "reason (curve)", "Why there is no flexible curve", format="text")


def _all_columns() -> Iterator[Column]:
    metrics = METRICS.values()
    yield from _CASES
    for metric in (m for m in metrics if m.in_audit and not m.votes):
        yield from _with_ends(metric)
        if metric.key == "ece":
            yield from _BESIDE_ECE
    yield from _of_curve()
    yield from _BEFORE_VOTES
    for metric in (m for m in metrics if m.in_audit and m.votes):
        yield from _with_ends(metric)
    for metric in (m for m in metrics if m.floor == f"{m.key}_floor"):
        truth = "a calibrated model"
        if metric.votes:
            truth = "votes that follow the probabilities judged"
        yield Column(
            f"{metric.key}_floor",
            f"{metric.title} floor",
            f"{metric.title} of {truth} on average",
            votes=metric.votes,
        )
    yield from _AFTER_VOTES
    yield from (m for m in metrics if not m.in_audit)
    yield Column("reason", "reason", "Why numbers are missing", format="text")


class _Columns(Mapping[str, Column]):
    """All columns by key, in the order of the tables, as `METRICS` stands at the moment."""

    def __init__(self) -> None:
        self._metrics: tuple[Metric, ...] = ()
        self._columns: dict[str, Column] = {}

    def _current(self) -> dict[str, Column]:
        metrics = tuple(METRICS.values())
        if metrics != self._metrics:
            self._metrics = metrics
            self._columns = {column.key: column for column in _all_columns()}
        return self._columns

    def __getitem__(self, key: str) -> Column:
        return self._current()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())


COLUMNS: Mapping[str, Column] = _Columns()
"""Every quantity by key, in the order in which tables show them."""
