"""How many cases give 95 % intervals of a wanted width, by the formulas of Riley et al. (2021).

Each criterion gives the number of independent cases for one measure of a calibrated model. Cases of one
patient, and several readers of one case, are worth less than as many independent ones: a design effect turns
the number of independent cases into the number of cases to collect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import asinh, ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtri, stdtrit
from scipy.stats import beta as beta_law

from scalecal.checks import (
    Float,
    InputError,
    LazyModule,
    check_above,
    check_inside,
    check_list,
    check_number,
    check_probs,
    check_unit,
)
from scalecal.limits import check_count

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = LazyModule("pandas")

Z_95 = 1.96
"""As the publication and pmvalsampsize have it, so that the numbers of cases are the same."""

MIDPOINTS = (np.arange(20_001) + 0.5) / 20_001
"""Probabilities at whose quantiles a law of predictions is tabulated."""

_MAX_LOGIT = 700.0  # beyond it exp is not finite


@dataclass(frozen=True)
class PrecisionPlan:
    """Cases needed for 95 % intervals of given widths.

    Attributes
    ----------
    table : DataFrame
        One row per criterion: ``criterion``, the assumed ``value``, the wanted ``width`` of its 95 %
        interval, ``n_independent`` (cases, or votes, needed if all were independent), ``n_cases``,
        ``n_groups`` (patients) and ``events`` (positive labels, or votes, expected among them).
    title : str
        The question, in words, with the assumed prevalence and AUC.
    """

    table: pd.DataFrame
    title: str

    @property
    def n_cases(self) -> int:
        """Cases that meet all criteria."""
        return int(self.table["n_cases"].max())

    def __str__(self) -> str:
        numbers = self.table.to_string(index=False, float_format="{:.2f}".format)
        return f"{self.title}\n\n{numbers}\n\n{self.sentence}"

    @property
    def sentence(self) -> str:
        """The answer: cases that meet all criteria, and which criterion asks for most."""
        worst: Any = self.table.sort_values("n_cases").iloc[-1]
        counted = "events"
        if "of votes" in self.title:
            counted = "positive votes"
        return (
            f"All criteria are met by {worst['n_cases']:,d} cases of {worst['n_groups']:,d} patients, with "
            f"about {worst['events']:,d} {counted}. Most are needed for the {worst['criterion']}."
        )


class Law(NamedTuple):
    """A distribution of predictions: logits with weights that sum to 1."""

    logits: Float
    weights: Float

    @property
    def mean_p(self) -> float:
        """Mean prediction."""
        return float(self.weights @ expit(self.logits))

    @property
    def auc(self) -> float:
        """AUC of these predictions if they are calibrated; ties count one half."""
        p = expit(self.logits)
        _, rank = np.unique(self.logits, return_inverse=True)
        positive = np.bincount(rank, self.weights * p)
        negative = np.bincount(rank, self.weights * (1.0 - p))
        below = np.cumsum(negative) - 0.5 * negative
        return float(positive @ below / (positive.sum() * negative.sum()))

    def rates(self, threshold: float) -> tuple[float, float]:
        """Sensitivity and specificity at a threshold if the predictions are calibrated."""
        p = expit(self.logits)
        above = p >= threshold
        sensitivity = np.average(above, weights=self.weights * p)
        specificity = np.average(~above, weights=self.weights * (1.0 - p))
        return float(sensitivity), float(specificity)


def equal_law(logits: Float) -> Law:
    """Logits that are equally likely; certain predictions have a finite one.

    Examples
    --------
    >>> law = equal_law(1.5 * ndtri(MIDPOINTS))
    >>> round(law.mean_p, 3), round(law.auc, 3)
    (0.5, 0.813)
    """
    kept = np.clip(logits, -_MAX_LOGIT, _MAX_LOGIT)
    return Law(kept, np.full(len(kept), 1.0 / len(kept)))


def binormal_law(prevalence: float, auc: float) -> Law:
    r"""Calibrated logits that are normal with one variance in each class, by prevalence and AUC.

    The variance is :math:`s^2 = 2 \Phi^{-1}(AUC)^2`. Bayes' rule gives calibrated logits the means
    :math:`\mathrm{logit}(\phi) \mp s^2 / 2`, which pmvalsampsize looks for by simulation.

    Examples
    --------
    >>> law = binormal_law(0.1, 0.8)
    >>> round(law.mean_p, 3), round(law.auc, 3)
    (0.1, 0.8)
    """
    variance = 2.0 * float(ndtri(auc)) ** 2
    centred = logit(prevalence) + np.sqrt(variance) * ndtri(MIDPOINTS)
    logits = np.concatenate([centred - 0.5 * variance, centred + 0.5 * variance])
    weights = np.repeat([1.0 - prevalence, prevalence], len(MIDPOINTS)) / len(MIDPOINTS)
    return Law(logits, weights)


# Criteria: independent cases for an interval of one measure


def oe_cases(prevalence: float, width: float) -> float:
    r"""Independent cases for an interval of O:E = 1 of this width.

    :math:`\mathrm{SE}(\ln O/E) = \sqrt{(1 - \phi) / (n \phi)}`, and the interval from
    :math:`e^{-1.96\,\mathrm{SE}}` to :math:`e^{1.96\,\mathrm{SE}}` has the width
    :math:`2 \sinh(1.96\,\mathrm{SE})`.

    Examples
    --------
    >>> ceil(oe_cases(0.018, 1.0))
    906
    """
    error = asinh(width / 2.0) / Z_95
    return (1.0 - prevalence) / (prevalence * error**2)


def slope_cases(law: Law, width: float) -> float:
    """Independent cases for an interval of the calibration slope, by Fisher's information at (0, 1).

    Examples
    --------
    >>> ceil(slope_cases(equal_law(1.5 * ndtri(MIDPOINTS)), 0.2))
    1834
    """
    p = expit(law.logits)
    variance = law.weights * p * (1.0 - p)
    total = variance.sum()
    centred = law.logits - (variance @ law.logits) / total
    information = float(variance @ centred**2)
    if not information > 0.0:
        raise InputError("all predictions are equal: their calibration slope cannot be estimated")
    return (2.0 * Z_95 / width) ** 2 / information


def auc_cases(prevalence: float, auc: float, width: float) -> float:
    """Independent cases for an interval of the AUC, by Newcombe's standard error (2006).

    Examples
    --------
    >>> ceil(auc_cases(0.018, 0.8, 0.1))
    4252
    """
    balanced = (1.0 - auc) / (2.0 - auc) + auc / (1.0 + auc)
    scale = auc * (1.0 - auc) / (prevalence * (1.0 - prevalence))
    squared_error = (width / (2.0 * Z_95)) ** 2
    # scale (1 + (n / 2 - 1) balanced) / n^2 = squared_error, solved for n.
    half = 0.25 * scale * balanced
    constant = scale * (1.0 - balanced)
    return float((half + np.sqrt(half**2 + squared_error * constant)) / squared_error)


def net_benefit_cases(
    prevalence: float, sensitivity: float, specificity: float, threshold: float, width: float
) -> float:
    """Independent cases for an interval of the standardised net benefit (net benefit / prevalence).

    Examples
    --------
    >>> ceil(net_benefit_cases(0.1, 0.8, 0.7, 0.1, 0.2))
    1089
    """
    odds = (1.0 - prevalence) / prevalence * threshold / (1.0 - threshold)
    false_positives = 1.0 - specificity
    per_case = (
        sensitivity * (1.0 - sensitivity) / prevalence
        + odds**2 * specificity * false_positives / (1.0 - prevalence)
        + odds**2 * false_positives**2 / (prevalence * (1.0 - prevalence))
    )
    return (2.0 * Z_95 / width) ** 2 * per_case


def design_effect(
    group_size: float = 1, icc: float = 0.0, n_raters: int = 1, kappa: float = 0.0
) -> float:
    r"""Factor on the variance of a mean of correlated cases, or votes, against independent ones.

    :math:`1 + (m - 1) \kappa + m (g - 1) \rho` for g cases a patient with m votes each: kappa is the
    correlation of two votes on one case, rho that of two cases (or votes on two cases) of one patient.

    Examples
    --------
    >>> design_effect(10, 0.1), design_effect(n_raters=7, kappa=0.5)
    (1.9, 4.0)
    """
    return 1.0 + (n_raters - 1) * kappa + n_raters * (group_size - 1) * icc


def _groups_needed(cases: float, group_size: int) -> int:
    """Patients for so many cases; of several each, for the t quantile that their intervals have too."""
    groups = max(2, ceil(cases / group_size))
    if group_size == 1:
        return groups
    while groups * group_size < cases * (float(stdtrit(groups - 1, 0.975)) / Z_95) ** 2:
        groups += 1
    return groups


def plan_precision(
    prevalence: float | None = None,
    auc: float | None = None,
    *,
    logit_normal: Sequence[float] | None = None,
    beta: Sequence[float] | None = None,
    predictions: ArrayLike | None = None,
    oe_width: float = 0.2,
    slope_width: float = 0.2,
    auc_width: float = 0.1,
    net_benefit_width: float = 0.2,
    threshold: float | None = None,
    group_size: int = 1,
    icc: float = 0.0,
    n_raters: int = 1,
    kappa: float | None = None,
) -> PrecisionPlan:
    r"""Find how many cases give 95 % intervals of given widths for O:E, slope, AUC and net benefit.

    Parameters
    ----------
    prevalence : float, optional
        Share of positives. Default: the mean of the predictions.
    auc : float, optional
        C-statistic. Default: that of the predictions if they are calibrated.
    logit_normal, beta : two numbers, optional
        The law of the predictions: mean and standard deviation of normal logits, or the parameters of a
        beta distribution of p.
    predictions : array-like, optional
        Probabilities of a similar set of cases. Without a law the logits are taken as normal in each
        class, with the spread that has the AUC.
    oe_width, slope_width, auc_width, net_benefit_width : float
        Widths of the 95 % intervals, upper end less lower end.
    threshold : float, optional
        Probability above which one acts. Without it net benefit is left out.
    group_size : int
        Cases a patient.
    icc : float
        Correlation of the residuals y - p of two cases of one patient.
    n_raters : int
        Readers who vote on each case. With 2 or more, votes are what is predicted: the prevalence is the
        share of positive votes, p the probability of one, and `events` counts positive votes.
    kappa : float, optional
        Correlation of two readers' votes on one case (Fleiss' kappa, or the intra-class correlation).

    Notes
    -----
    The model is taken as calibrated, in which case O:E and slope are 1. A case with m votes is worth
    :math:`m / (1 + (m - 1) \kappa)` votes, a patient with g cases
    :math:`g / (1 + (g - 1)\,\mathrm{ICC})` cases (`design_effect`). With groups the intervals of an audit
    have Student's t with one degree of freedom less than patients; the numbers allow for it.

    Riley's standard error of O:E counts the events as binomial. An audit's interval conditions on the
    predictions, and is narrower by the root of the mean of p (1 - p) over prevalence (1 - prevalence); that
    of the slope is the same. With groups the number for the slope is cautious, unless predictions of one
    patient are alike. If they are, the error of the AUC comes from them too: give the correlation of two
    labels of one patient as `icc`, which is larger than that of the residuals.

    References
    ----------
    Riley et al. (2021), Statistics in Medicine 40, 4230-4251. Newcombe (2006), Statistics in Medicine 25,
    559-573. Kish (1965), Survey Sampling.

    Examples
    --------
    >>> result = plan_precision(0.018, 0.8, logit_normal=(-5, 2.5), oe_width=1.0)
    >>> result.table[["criterion", "n_cases"]].to_numpy().tolist()
    [['O:E', 906], ['calibration slope', 4554], ['AUC', 4252]]
    """
    law, source = _law(prevalence, auc, logit_normal, beta, predictions)
    share, area = law.mean_p, law.auc
    if prevalence is not None:
        share = check_inside(prevalence, "prevalence")
    if auc is not None:
        area = _check_auc(auc)
    criteria = [
        ("O:E", 1.0, check_above(oe_width, "oe_width"), oe_cases(share, oe_width)),
        (
            "calibration slope",
            1.0,
            check_above(slope_width, "slope_width"),
            slope_cases(law, slope_width),
        ),
        ("AUC", area, check_above(auc_width, "auc_width"), auc_cases(share, area, auc_width)),
    ]
    check_above(net_benefit_width, "net_benefit_width")
    if threshold is not None:
        odds = (1.0 - share) / share * check_inside(threshold, "threshold") / (1.0 - threshold)
        sensitivity, specificity = law.rates(threshold)
        value = sensitivity - odds * (1.0 - specificity)
        n = net_benefit_cases(share, sensitivity, specificity, threshold, net_benefit_width)
        criteria.append(("standardised net benefit", value, net_benefit_width, n))
    group_size = check_count(group_size, "group_size", "cases")
    n_raters = check_count(n_raters, "n_raters", "readers")
    if (n_raters > 1) != (kappa is not None):
        raise InputError(
            "n_raters of 2 or more and kappa, the correlation of their votes, go together: got "
            f"n_raters {n_raters} and kappa {kappa}"
        )
    correlation = 0.0
    if kappa is not None:
        correlation = check_unit(kappa, "kappa")
    effect = design_effect(group_size, check_unit(icc, "icc"), n_raters, correlation)
    rows = []
    for criterion, value, width, independent in criteria:
        n_groups = _groups_needed(independent * effect / n_raters, group_size)
        n_cases = n_groups * group_size
        rows.append(
            {
                "criterion": criterion,
                "value": value,
                "width": width,
                "n_independent": ceil(independent),
                "n_cases": n_cases,
                "n_groups": n_groups,
                "events": ceil(n_cases * n_raters * share),
            }
        )
    judges = ""
    if n_raters > 1:
        judges = " of votes"
    title = (
        f"Cases for 95 % intervals{judges}: {100 * share:.3g} % positive, AUC {area:.3g}, {source}; "
        f"cases a patient: {group_size} (ICC {icc:g}), readers: {n_raters} (kappa {correlation:g}), "
        f"design effect {effect:.2f}"
    )
    return PrecisionPlan(pd.DataFrame(rows), title)


def _check_auc(auc: float) -> float:
    if not check_inside(auc, "auc") > 0.5:
        raise InputError(f"auc must lie above 0.5, got {auc:g}")
    return auc


def _law(
    prevalence: float | None,
    auc: float | None,
    logit_normal: Sequence[float] | None,
    beta: Sequence[float] | None,
    predictions: ArrayLike | None,
) -> tuple[Law, str]:
    """The law of the predictions, and what it was made from."""
    if sum(law is not None for law in (logit_normal, beta, predictions)) > 1:
        raise InputError(
            "the law of the predictions is given twice: give one of logit_normal, beta and predictions"
        )
    if logit_normal is not None:
        mean, sd = _two_numbers(logit_normal, "logit_normal")
        law = equal_law(mean + check_above(sd, "the standard deviation") * ndtri(MIDPOINTS))
        return law, f"logits normal with mean {mean:g} and standard deviation {sd:g}"
    if beta is not None:
        a, b = _two_numbers(beta, "beta")
        p = beta_law.ppf(MIDPOINTS, check_above(a, "a of beta"), check_above(b, "b of beta"))
        return equal_law(logit(p)), f"predictions beta with a = {a:g} and b = {b:g}"
    if predictions is not None:
        p = check_probs(predictions, "predictions")
        if p.ndim > 1:
            raise InputError(f"predictions must be of one class, got {p.shape[1]} columns")
        law = equal_law(logit(p))
        return law, f"{len(law.logits):,} given predictions"
    if prevalence is None or auc is None:
        raise InputError(
            "the law of the predictions is missing: give prevalence and auc, or one of logit_normal, beta "
            "and predictions"
        )
    law = binormal_law(check_inside(prevalence, "prevalence"), _check_auc(auc))
    return law, "logits normal in each class"


def _two_numbers(values: Sequence[float], name: str) -> tuple[float, float]:
    numbers = [check_number(value, name) for value in check_list(values, name)]
    if len(numbers) != 2:
        raise InputError(f"{name} must be two numbers, got {len(numbers)}")
    return numbers[0], numbers[1]
