"""The numbers of one stratum: point values, floors, intervals and tests.

`case_sums` lays down what every case adds to every sum, by unit (a case, or its group); `sum_values`
turns sums into metrics. The same two functions give a point value, its interval, and the bootstrap of
a difference between two models on the same cases. Floors and tests keep groups whole. Labels judge
one probability, votes the same or, where a model gives one, the probability of a reader's vote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal import metrics
from scalecal.checks import Float, Int
from scalecal.inference.curves import SELECTED, curve_row, no_curve
from scalecal.inference.units import Units, standard_errors, unit_interval
from scalecal.metrics import METRICS
from scalecal.metrics.arguments import Sample
from scalecal.metrics.binning import bin_index, mean_product, width_binner
from scalecal.metrics.grouping import MIN_GROUPS, too_few

TESTS = ("cox", "kuiper", "spiegelhalter", "consistency")
"""Calibration tests of all cases, and of strata that the votes did not make; by Holm over the strata."""

COUNTED = ("n", "voted", "paired")
"""Names of the numbers of cases that have at least 0, 1 and 2 votes: what means are taken over."""


def label_sample(y: Int, probs: Float, **more: Any) -> Sample:
    """Sample of hard labels, checked before; `more` as `scalecal.metrics.arguments.Sample`."""
    if probs.ndim == 1:
        return Sample(y.astype(np.float64), probs, **more)
    return Sample(np.eye(probs.shape[1])[y], probs, **more)


def case_sums(
    y: Int,
    probs: Float,
    counts: Int | None,
    *,
    units: Units,
    n_bins: int = 15,
    reader: Float | None = None,
    rho: float = 0.0,
) -> dict[str, Float]:
    """What the cases of one stratum add to every sum, by unit: name -> (units, m).

    Votes judge `reader`, the probability of a reader's vote, or `probs` where it is None; `rho` is the
    correlation of votes around it. Block by block, so that ten million cases need no arrays of that
    length beside their own.
    """
    if reader is None:
        reader = probs
    by_labels = [m for m in METRICS.values() if m.resampled and not m.votes]
    by_votes = [m for m in METRICS.values() if m.resampled and m.votes]
    of_two = {}
    if probs.ndim == 1:
        whole = label_sample(y, probs, weights=units.weights)
        for metric in by_labels:
            if metric.pseudo_values is not None:
                of_two[metric.key] = metric.pseudo_values(whole)

    def terms(part: slice, here: Units) -> dict[str, Float]:
        sample = label_sample(y[part], probs[part])
        event = sample.event
        ones = np.ones(len(event.p))
        counted = {"n": ones}
        sums = {
            "n": here.total(ones),
            "bins": here.total(event.p - event.y, width_binner(n_bins)(event.p), n_bins),
        }
        for metric in by_labels:
            if metric.term is not None:
                sums[metric.key] = here.total(metric.term(sample))
        if counts is not None:
            votes = Sample(np.zeros(0), reader[part], votes=counts[part], rho=rho)
            for name, least in (("voted", 1), ("paired", 2)):
                counted[name] = (votes.readers >= least).astype(np.float64)
                sums[name] = here.total(counted[name])
            for metric in by_votes:
                assert metric.term is not None
                enough = counted[COUNTED[metric.least_votes]] > 0
                sums[metric.key] = here.total(np.where(enough, metric.term(votes), 0.0))
        for key, values in of_two.items():
            sums[key] = here.total(values[part])
        if here.importance is not None:
            sums |= {f"{name}_size": here.size(values) for name, values in counted.items()}
        return sums

    return units.totals(terms)


def sum_values(sums: Mapping[str, Float]) -> dict[str, Float]:
    """Metrics from (resampled) sums: name -> (resamples, m) in, name -> (resamples,) out."""
    out: dict[str, Float] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for metric in METRICS.values():
            if metric.bins is not None:
                out[metric.key] = metric.bins(sums["bins"] / sums["n"])
            elif metric.key in sums:
                out[metric.key] = (sums[metric.key] / sums[COUNTED[metric.least_votes]])[:, 0]
    return out


def values_and_intervals(
    sums: Mapping[str, Float], perfect: float, heaviest: float = 1.0
) -> dict[str, float]:
    """Metrics from the sums of `case_sums`, with their 95 % intervals: name, name_low, name_high.

    AUC's are by the placements of DeLong, DeLong and Clarke-Pearson (1988), summed over groups
    (Obuchowski, 1997, Biometrics 53), on the logit scale; `perfect` is what `perfect_auc_worth` says.
    `heaviest` is the largest importance weight: cases that are all right say least of the class that has it.
    """
    out: dict[str, float] = {}
    point = sum_values({name: s.sum(axis=0, keepdims=True) for name, s in sums.items()})
    for metric in METRICS.values():
        name = metric.key
        if not metric.in_audit or name not in sums:
            continue
        out[name] = value = float(point[name][0])
        if metric.scale is None:
            continue
        per = COUNTED[metric.least_votes]
        size = sums.get(f"{per}_size", sums[per])[:, 0]
        total = float(size.sum())
        parts = size
        if total:
            parts = (sums[name][:, 0] - value * sums[per][:, 0]) / total
        worth = float((size > 0).sum()) / heaviest
        if name == "auc":
            worth = perfect
        low, high = unit_interval(value, parts, size, scale=metric.scale, worth=worth)
        out |= {f"{name}_low": low, f"{name}_high": high}
    return out


def perfect_auc_worth(y: NDArray[Any], units: Units) -> float:
    """Number of cases that are worth as much for a share near 1 as these are for an AUC near 1.

    With m positive and n negative cases Hanley and McNeil's (1982) variance of an area A near 1 is
    ``(1 - A) (m + n + 2) / (4 m n)``. Of groups each counts once on either side.
    """
    if units.times is not None:
        counts = [float(units.times[y == label].sum()) for label in (0, 1)]
    else:
        code = units.group
        if code is None:
            code = np.arange(len(y))
        counts = [float(len(np.unique(code[y == label]))) for label in (0, 1)]
    return 4.0 * counts[0] * counts[1] / (sum(counts) + 2.0)


def debiased_interval(
    y: Int, probs: Float, *, units: Units, n_bins: int = 15
) -> tuple[float, float, float]:
    """Debiased squared calibration error with its interval: (value, low, high).

    In each bin of equal mass, the mean product of the residuals of two different cases; with groups,
    of two cases of different groups, since residuals of one patient go together. With S, n the sums
    of residuals and cases of a bin, and s, m those of one group in it, that is
    sum_b (n_b / N) (S_b^2 - sum s^2) / (n_b^2 - sum m^2), the metric `debiased_error` of `METRICS`.
    Of cases with importance weights s and m are those of a unit.
    The interval is by the jackknife over units. Where the model is calibrated the jackknife
    overstates the variance of such a statistic (by about two), so the interval errs on the wide side.
    Few units, or unequal ones, widen it as they do any interval (`standard_errors`).
    """
    event = label_sample(y, probs).event
    residual = event.p - event.y
    cell = bin_index(event.p, n_bins=n_bins, binning="mass", sample_weight=units.weights)

    def terms(part: slice, here: Units) -> dict[str, Float]:
        r, k = residual[part], cell[part]
        sums = {"first": here.total(r, k, n_bins), "size": here.size(np.ones(len(r)), k, n_bins)}
        if units.group is None:
            sums["own"] = here.total(r * r, k, n_bins)
        return sums

    totals = units.totals(terms)
    first, size = totals["first"], totals["size"]
    if units.importance is not None:
        own, pairs = first**2, size**2
    elif units.group is None:
        own, pairs = totals["own"], size
    else:
        _, row, part = np.unique(
            units.group * n_bins + cell, return_index=True, return_inverse=True
        )
        whole = Units(units.code[row], units.count)
        own = whole.total(np.bincount(part, residual).astype(np.float64) ** 2, cell[row], n_bins)
        pairs = whole.total(np.bincount(part).astype(np.float64) ** 2, cell[row], n_bins)
    sums = (first, own, size, pairs)
    value = mean_product(*(s.sum(axis=0) for s in sums))
    present = size.sum(axis=1) > 0
    count = int(present.sum())
    without = mean_product(*(s.sum(axis=0) - s[present] for s in sums))
    if count < MIN_GROUPS or not np.isfinite(without).all():
        return float(value), float("nan"), float("nan")
    spread = float(np.sqrt(((without - without.mean()) ** 2).sum()))
    half = (count - 1) / count * spread * standard_errors(size.sum(axis=1))
    return float(value), float(value) - half, float(value) + half


def score(
    y: Int,
    probs: Float,
    counts: Int | None,
    *,
    units: Units,
    n_bins: int,
    n_resamples: int,
    seed: int,
    reader: Float | None = None,
    rho: float = 0.0,
    selected: bool = False,
    whole: bool = True,
    test: Callable[..., metrics.CalibrationTest] | None = None,
) -> dict[str, Any]:
    """All numbers of one stratum that depend on its own cases alone; arguments as `case_sums`.

    `selected`: the votes made the stratum. Tests of calibration reject calibrated models there, and
    are left out. `whole`: these are all cases, and no stratum. `test` makes a test, by its name, of cases
    with importance weights.
    """
    w, groups = units.weights, units.group
    about: dict[str, Any] = {
        "weights": w,
        "groups": groups,
        "n_bins": n_bins,
        "importance": units.importance is not None,
    }
    if reader is None:
        reader = probs
    sample = label_sample(y, probs, **about)
    shares = np.bincount(y, w, 2) / sample.total
    row: dict[str, Any] = {
        "n": units.n,
        "n_groups": None,
        # Of more than two classes there is no positive one: the share of the commonest stands there.
        "prevalence": float(shares.max()),
        "mean_p": float(np.average(sample.event.p, weights=w)),
    }
    if groups is not None:
        row["n_groups"] = len(np.unique(groups))
    if probs.ndim == 1:
        row["prevalence"] = float(shares[1])
        row["events"] = int(units.counted(y == 1))
        row["expected"] = nan
        if units.importance is None:
            row["expected"] = row["mean_p"] * units.n
    sums = case_sums(y, probs, counts, units=units, n_bins=n_bins, reader=reader, rho=rho)
    heaviest = 1.0
    if units.importance is not None:
        heaviest = float(units.importance.weight.max())
    row |= values_and_intervals(sums, perfect_auc_worth(y, units), heaviest)
    _add_values(row, sample, whole=whole)
    debiased, low, high = debiased_interval(y, probs, units=units, n_bins=n_bins)
    row |= {
        "debiased_error": debiased,
        "debiased_error_low": low,
        "debiased_error_high": high,
    }
    if selected:
        row |= no_curve(SELECTED)
    else:
        row |= curve_row(sample.event.y, sample.event.p, units, seed)
    for name in TESTS:
        options: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
        if name == "consistency":
            options["n_bins"] = n_bins
        elif selected:
            continue
        if test is None:
            own = getattr(metrics, name)
            result = own(y, probs, groups=groups, sample_weight=w, **options)
        else:
            result = test(name, **options)
        row[f"p_{name}"] = result.p_value
        if name == "cox":
            for key in ("intercept", "slope"):
                row[f"cox_{key}"] = result.details.get(key, float("nan"))
        if name == "consistency":
            row |= {key: result.details[key] for key in ("floor", "floor_high")}
    # A stratum that the votes made has a floor all the same, with which its excess is told.
    if selected:
        row["p_consistency"] = float("nan")
    if why := _why_undefined(units):
        row["reason"] = why
    row["excess"] = row["ece"] - row["floor"]
    if counts is not None:
        judged = Sample(np.zeros(0), reader, votes=counts, rho=rho, **about)
        if judged.readers.any():
            row["n_votes"] = int(judged.readers.sum())
            if units.times is not None:
                row["n_votes"] = int(judged.readers @ units.times)
            # The mean share of positive votes; with more than two classes, of votes for the top class.
            voted = judged.judged(1)
            event = voted.top
            if voted.table.shape[1] == 2:
                event = np.ones_like(event)
            share = voted.shares[np.arange(len(event)), event]
            row["vote_share"] = float(np.average(share, weights=voted.weights))
            _add_values(row, judged, whole=whole)
    return row


def _add_values(row: dict[str, Any], sample: Sample, *, whole: bool) -> None:
    """Add metrics that are no means over cases, and so do not come from `case_sums`; and all floors.

    The debiased error's value and interval follow from the units, ECE's floor from the test of consistency.
    """
    for metric in METRICS.values():
        if not metric.in_audit or metric.votes != (sample.votes is not None):
            continue
        computed = metric.function is not None or metric.bins is not None
        if computed and (whole or metric.per_stratum) and metric.key != "debiased_error":
            row[metric.key] = metric.value(sample)
        if (
            metric.key in row
            and metric.expected is not None
            and metric.floor not in (None, "floor")
        ):
            row[metric.floor] = metric.expected(sample)


def _why_undefined(units: Units) -> str:
    """Why a stratum has no intervals, and with groups no floor and no test; "" where it has."""
    if why := too_few(units.group):
        return f"{why} for a floor, a test or an interval"
    if units.n < MIN_GROUPS:
        return f"too few cases ({units.n}, at least {MIN_GROUPS} are needed) for an interval"
    return ""
