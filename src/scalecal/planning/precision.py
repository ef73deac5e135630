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
    as_float,
    check_above,
    check_finite,
    check_inside,
    check_list,
    check_number,
    check_unit,
)
from scalecal.limits import check_count

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = LazyModule("pandas")

Z_95 = 1.96
"""As the publication and pmvalsampsize have it, so that the numbers of cases are the same."""

_QUANTILES = 20_001  # points at which a law of predictions is tabulated
_MAX_LOGIT = 700.0


@dataclass(frozen=True)
class PrecisionPlan:
    """Cases needed for 95 % intervals of given widths.

    Attributes
    ----------
    table : DataFrame
        One row per criterion: ``criterion``, the assumed ``value``, the wanted ``width`` of its 95 %
        interval, ``n_independent`` (cases, or votes, needed if all were independent), ``n_cases``,
        ``n_groups`` (patients) and ``events`` (positive labels, or votes, expected among them).
    prevalence, auc : float
        Assumed share of positives and c-statistic.
    design_effect : float
        Cases to collect for each independent one.
    title : str
        The question, in words.
    """

    table: pd.DataFrame
    prevalence: float
    auc: float
    design_effect: float
    group_size: int
    n_raters: int
    title: str

    @property
    def n_cases(self) -> int:
        """Cases that meet all criteria."""
        return int(self.table["n_cases"].max())

    @property
    def events(self) -> int:
        """Positive labels, or votes, expected among `n_cases`."""
        return int(self.table["events"].max())

    def __str__(self) -> str:
        unit = "votes" if self.n_raters > 1 else "cases"
        head = f"{'criterion':<26} value  width  independent {unit}    cases"
        if self.group_size > 1:
            head += "  patients"
        lines = [self.title, "", f"{head}   events"]
        row: Any
        for row in self.table.itertuples():
            line = (
                f"{row.criterion:<26} {row.value:5.2f}  {row.width:5.2f}  "
                f"{row.n_independent:17,d}  {row.n_cases:7,d}"
            )
            if self.group_size > 1:
                line += f"  {row.n_groups:8,d}"
            lines.append(f"{line}  {row.events:7,d}")
        return "\n".join([*lines, "", self.sentence])

    @property
    def sentence(self) -> str:
        """The answer: cases that meet all criteria, and which criterion asks for most."""
        worst = self.table.loc[self.table["n_cases"].idxmax()]
        text = f"All criteria are met by {self.n_cases:,d} cases"
        if self.group_size > 1:
            text += f" of {worst['n_groups']:,d} patients"
        kind = "positive votes" if self.n_raters > 1 else "events"
        text += f", with about {self.events:,d} {kind}; most are needed for the {worst['criterion']}."
        if self.design_effect > 1.0:
            text += f" Design effect: {self.design_effect:.2f}."
        return text


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
        order = np.argsort(self.logits, kind="stable")
        p = expit(self.logits[order])
        positive, negative = self.weights[order] * p, self.weights[order] * (1.0 - p)
        _, tie = np.unique(self.logits[order], return_inverse=True)
        positive, negative = np.bincount(tie, positive), np.bincount(tie, negative)
        below = np.cumsum(negative) - 0.5 * negative
        return float(positive @ below / (positive.sum() * negative.sum()))

    def rates(self, threshold: float) -> tuple[float, float]:
        """Sensitivity and specificity at a threshold if the predictions are calibrated."""
        p = expit(self.logits)
        above = p > threshold
        sensitivity = (self.weights * p)[above].sum() / (self.weights @ p)
        specificity = (self.weights * (1.0 - p))[~above].sum() / (self.weights @ (1.0 - p))
        return float(sensitivity), float(specificity)


def _midpoints() -> Float:
    return (np.arange(_QUANTILES) + 0.5) / _QUANTILES


def normal_law(mean: float, sd: float) -> Law:
    """Logits that are normal.

    Examples
    --------
    >>> round(normal_law(0.0, 1.5).auc, 3)
    0.813
    """
    check_number(mean, "the mean of logits")
    check_above(sd, "the standard deviation of logits")
    return Law(mean + sd * ndtri(_midpoints()), np.full(_QUANTILES, 1.0 / _QUANTILES))


def beta_distribution(a: float, b: float) -> Law:
    """Predictions that have a beta distribution.

    Examples
    --------
    >>> round(beta_distribution(0.5, 4.5).mean_p, 3)
    0.1
    """
    check_above(a, "a of the beta distribution")
    check_above(b, "b of the beta distribution")
    p = beta_law.ppf(_midpoints(), a, b)
    logits = np.clip(logit(p), -_MAX_LOGIT, _MAX_LOGIT)
    return Law(logits, np.full(_QUANTILES, 1.0 / _QUANTILES))


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
    spread = np.sqrt(variance) * ndtri(_midpoints())
    centre = logit(prevalence)
    logits = np.concatenate([centre - 0.5 * variance + spread, centre + 0.5 * variance + spread])
    weights = np.repeat([1.0 - prevalence, prevalence], _QUANTILES) / _QUANTILES
    return Law(logits, weights)


def observed_law(p: ArrayLike) -> Law:
    """Predictions of a file, each as likely as any other.

    Examples
    --------
    >>> observed_law([0.2, 0.4]).mean_p
    0.30000000000000004
    """
    values = check_finite(as_float(p, "predictions"), "predictions").ravel()
    if len(values) < 2 or values.min() < 0.0 or values.max() > 1.0:
        raise InputError(
            "predictions must be two or more probabilities between 0 and 1, got "
            f"{len(values):,} from {values.min(initial=1.0):g} to {values.max(initial=0.0):g}"
        )
    logits = np.clip(logit(values), -_MAX_LOGIT, _MAX_LOGIT)
    return Law(logits, np.full(len(values), 1.0 / len(values)))


# Criteria: independent cases for an interval of one measure


def oe_cases(prevalence: float, width: float) -> float:
    r"""Independent cases for an interval of O:E = 1 of this width.

    :math:`\mathrm{SE}(\ln O/E) = \sqrt{(1 - \phi) / (n \phi)}`, and the interval from
    :math:`e^{-1.96\,\mathrm{SE}}` to :math:`e^{1.96\,\mathrm{SE}}` is wide :math:`2 \sinh(1.96\,\mathrm{SE})`.

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
    >>> ceil(slope_cases(normal_law(0.0, 1.5), 0.2))
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


def design_effect(group_size: int = 1, icc: float = 0.0, n_raters: int = 1, kappa: float = 0.0) -> float:
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
    """Patients for so many cases, and for the t quantile that intervals of few patients have."""
    groups = max(2, ceil(cases / group_size))
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
        The law of the predictions: mean and standard deviation of normal logits, or the parameters of a beta
        distribution of p.
    predictions : array-like, optional
        Probabilities of a similar set of cases. Without a law the logits are taken as normal in each class, with
        the spread that has the AUC.
    oe_width, slope_width, auc_width, net_benefit_width : float
        Widths of the 95 % intervals, upper end less lower end.
    threshold : float, optional
        Probability above which one acts. Without it net benefit is left out.
    group_size : int
        Cases a patient.
    icc : float
        Correlation of the residuals y - p of two cases of one patient.
    n_raters : int
        Readers who vote on each case; with 2 or more, votes are what is predicted: the prevalence is the share of
        positive votes, and p the probability of one.
    kappa : float, optional
        Correlation of two readers' votes on one case (Fleiss' kappa, or the intra-class correlation).

    Notes
    -----
    The model is taken as calibrated, in which case O:E and slope are 1. A case with m votes is worth
    :math:`m / (1 + (m - 1) \kappa)` votes, a patient with g cases :math:`g / (1 + (g - 1)\,\mathrm{ICC})` cases
    (`design_effect`). With groups the intervals of an audit have Student's t with one degree of freedom less than
    patients; the numbers allow for it.

    Riley's standard error of O:E counts the events as binomial. An audit's interval conditions on the
    predictions, and is narrower by the root of the mean of p (1 - p) over prevalence (1 - prevalence); that of the
    slope is the same. The correlation of residuals bounds that of the slope's scores only where predictions of
    one patient are alike, so with groups the number for the slope is cautious.

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
    widths = {
        "oe_width": oe_width,
        "slope_width": slope_width,
        "auc_width": auc_width,
        "net_benefit_width": net_benefit_width,
    }
    for name, width in widths.items():
        check_above(width, name)
    if prevalence is not None:
        check_inside(prevalence, "prevalence")
    if auc is not None and not 0.5 < check_inside(auc, "auc"):
        raise InputError(f"auc must lie above 0.5, got {auc:g}")
    group_size = check_count(group_size, "group_size", "cases")
    n_raters = check_count(n_raters, "n_raters", "readers")
    check_unit(icc, "icc")
    if n_raters > 1 and kappa is None:
        raise InputError(
            f"kappa is missing: votes of {n_raters} readers on one case are correlated. Give kappa, the "
            "correlation of two readers' votes, or one reader"
        )
    if n_raters == 1 and kappa is not None:
        raise InputError("kappa is the correlation of several readers' votes: give n_raters of 2 or more")
    correlation = check_unit(kappa or 0.0, "kappa")
    law, source = _law(prevalence, auc, logit_normal, beta, predictions)
    share, area = law.mean_p, law.auc
    if prevalence is not None:
        share = prevalence
    if auc is not None:
        area = auc
    found = {
        "O:E": (1.0, oe_width, oe_cases(share, oe_width)),
        "calibration slope": (1.0, slope_width, slope_cases(law, slope_width)),
        "AUC": (area, auc_width, auc_cases(share, area, auc_width)),
    }
    if threshold is not None:
        check_inside(threshold, "threshold")
        sensitivity, specificity = law.rates(threshold)
        odds = (1.0 - share) / share * threshold / (1.0 - threshold)
        found["standardised net benefit"] = (
            sensitivity - odds * (1.0 - specificity),
            net_benefit_width,
            net_benefit_cases(share, sensitivity, specificity, threshold, net_benefit_width),
        )
    effect = design_effect(group_size, icc, n_raters, correlation)
    rows = []
    for criterion, (value, width, independent) in found.items():
        cases = independent * effect / n_raters
        # Numbers that rounding alone lifts above a whole one stay there.
        n_cases = n_groups = ceil(cases - 1e-9)
        if group_size > 1:
            n_groups = _groups_needed(cases, group_size)
            n_cases = n_groups * group_size
        rows.append(
            {
                "criterion": criterion,
                "value": value,
                "width": width,
                "n_independent": ceil(independent - 1e-9),
                "n_cases": n_cases,
                "n_groups": n_groups,
                "events": ceil(n_cases * n_raters * share - 1e-9),
            }
        )
    what = "votes" if n_raters > 1 else "labels"
    title = (
        f"Cases for 95 % intervals of given widths: {100 * share:.3g} % positive {what}, AUC {area:.3g}, {source}"
    )
    if n_raters > 1:
        title += f"; {n_raters} readers, kappa {correlation:g}"
    if group_size > 1:
        title += f"; {group_size} cases a patient, ICC {icc:g}"
    return PrecisionPlan(pd.DataFrame(rows), share, area, effect, group_size, n_raters, title)


def _law(
    prevalence: float | None,
    auc: float | None,
    logit_normal: Sequence[float] | None,
    beta: Sequence[float] | None,
    predictions: ArrayLike | None,
) -> tuple[Law, str]:
    """The law of the predictions, and what it was made from."""
    given = [name for name in (logit_normal, beta, predictions) if name is not None]
    if len(given) > 1:
        raise InputError(
            "the law of the predictions is given twice: give one of logit_normal, beta and predictions"
        )
    if logit_normal is not None:
        mean, sd = _two(logit_normal, "logit_normal")
        return normal_law(mean, sd), f"logits normal with mean {mean:g} and standard deviation {sd:g}"
    if beta is not None:
        a, b = _two(beta, "beta")
        return beta_distribution(a, b), f"predictions beta with a = {a:g} and b = {b:g}"
    if predictions is not None:
        law = observed_law(predictions)
        return law, f"{len(law.logits):,} given predictions"
    if prevalence is None or auc is None:
        raise InputError(
            "the law of the predictions is missing: give prevalence and auc, or one of logit_normal, beta and "
            "predictions"
        )
    return binormal_law(prevalence, auc), "logits normal in each class"


def _two(values: Sequence[float], name: str) -> tuple[float, float]:
    numbers = check_list(values, name)
    if len(numbers) != 2:
        raise InputError(f"{name} must be two numbers, got {len(numbers)}")
    return float(numbers[0]), float(numbers[1])
