"""The numbers of one stratum: point values, floors, intervals and tests.

`case_sums` lays down what every case adds to every sum, by unit (a case, or its group); `sum_values`
turns sums into metrics. The same two functions give a point value, its interval, and the bootstrap of
a difference between two models on the same cases. Floors and tests keep groups whole. Labels judge
one probability, votes the same or, where a model gives one, the probability of a reader's vote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from scalecal import metrics
from scalecal.checks import Float, Int
from scalecal.inference.units import (
    Scale,
    Units,
    standard_errors,
    unit_interval,
)
from scalecal.metrics.arguments import as_table, read_hard_event
from scalecal.metrics.binning import bin_index, bins
from scalecal.metrics.grouping import FEWEST_GROUPS, too_few
from scalecal.metrics.proper import EPS
from scalecal.metrics.vote_scores import reader_logits, split_events
from scalecal.panel import count_log_likelihood

TESTS = ("cox", "kuiper", "spiegelhalter", "consistency")
"""Calibration tests of all cases, and of strata that the votes did not make; by Holm over the strata."""

INTERVALS: dict[str, Scale] = {
    "gap": "plain",
    "overconfidence": "plain",
    "brier": "log",
    "nll": "log",
    "auc": "logit",
    "accuracy": "logit",
    "vote_gap": "plain",
    "vote_nll": "log",
    "vote_excess": "plain",
    "count_log_score": "log",
    "vote_error": "plain",
    "dist_ce": "log",
}
"""Metrics that are sums over cases and so have an interval (ECE has no valid one), with the scale on
which it is symmetric."""

PER = {
    **dict.fromkeys(("vote_gap", "vote_nll", "vote_excess", "count_log_score", "dist_ce"), "voted"),
    "vote_error": "paired",
}
"""Those that are means over the cases with a vote, or with two; the others are over all cases."""


def _auc_terms(y: NDArray[Any], p: Float, times: Float | None) -> Float:
    """Pseudo-values of AUC: their mean is AUC, their weighted mean its first-order change.

    From the placements of DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44: the share of the
    other class below each case, ties counted half.
    """
    w = np.ones(len(p)) if times is None else times
    positive = y == 1
    up, down = w * positive, w * ~positive
    n1, n0 = float(up.sum()), float(down.sum())
    if n1 == 0 or n0 == 0:
        return np.full(len(y), np.nan)
    value, row = np.unique(p, return_inverse=True)
    ups, downs = np.bincount(row, up, len(value)), np.bincount(row, down, len(value))
    above = (np.cumsum(downs) - 0.5 * downs) / n0
    beneath = 1.0 - (np.cumsum(ups) - 0.5 * ups) / n1
    area = float(ups @ above / n1)
    n = n1 + n0
    return np.where(positive, (above[row] - area) * n / n1, (beneath[row] - area) * n / n0) + area


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
    event = read_hard_event(y, probs)
    binary = probs.ndim == 1
    areas = _auc_terms(event.y, event.p, units.weights) if binary else None

    def terms(part: slice, here: Units) -> dict[str, Float]:
        p, residual = event.p[part], event.p[part] - event.y[part]
        table = as_table(p) if binary else probs[part]
        each = np.arange(len(table))
        top = (p >= 0.5).astype(np.int64) if binary else table.argmax(axis=1)
        right = (top == y[part]).astype(np.float64)
        of_label = table[each, y[part]]
        ones = np.ones(len(table))
        sums = {
            "n": here.total(ones),
            "bins": here.total(residual, bin_index(p, n_bins=n_bins), n_bins),
            "gap": here.total(residual),
            "overconfidence": here.total(table[each, top] - right),
            "brier": here.total(
                residual**2 if binary else (table**2).sum(axis=1) - 2 * of_label + 1.0
            ),
            "nll": here.total(-np.log(np.clip(of_label, EPS, 1.0 - EPS))),
            "accuracy": here.total(right),
        }
        if counts is not None:
            own = table if reader is None else as_table(reader[part])
            sums |= _vote_sums(own, counts[part], rho, here)
        if here.importance is not None:
            of = {"n": ones}
            if counts is not None:
                m = counts[part].sum(axis=1)
                of |= {"voted": (m > 0).astype(np.float64), "paired": (m > 1).astype(np.float64)}
            sums |= {f"{name}_size": here.size(values) for name, values in of.items()}
        return sums if areas is None else sums | {"auc": here.total(areas[part])}

    return units.totals(terms)


def _vote_sums(table: Float, counts: Int, rho: float, here: Units) -> dict[str, Float]:
    m = counts.sum(axis=1)
    voted = (m > 0).astype(np.float64)
    share = counts / np.maximum(m, 1)[:, None]
    paired = (m > 1).astype(np.float64)
    spread = (share * (1 - share)).sum(axis=1) / np.maximum(m - 1, 1)
    # For two classes both columns carry the same squared error: count it once.
    half = 0.5 if table.shape[1] == 2 else 1.0
    error = half * (((table - share) ** 2).sum(axis=1) - spread)
    each = np.arange(len(table))
    event = 1 if table.shape[1] == 2 else table.argmax(axis=1)
    nll = -(share * np.log(np.clip(table, EPS, 1.0 - EPS))).sum(axis=1)
    return {
        "voted": here.total(voted),
        "paired": here.total(paired),
        "vote_gap": here.total(voted * (table[each, event] - share[each, event])),
        "vote_nll": here.total(voted * nll),
        "vote_excess": here.total(voted * (nll - entr(table).sum(axis=1))),
        "count_log_score": here.total(-count_log_likelihood(counts, reader_logits(table), rho)),
        "vote_error": here.total(paired * error),
        "dist_ce": here.total(voted * 0.5 * np.abs(table - share).sum(axis=1)),
    }


def sum_values(sums: Mapping[str, Float]) -> dict[str, Float]:
    """Metrics from (resampled) sums: name -> (resamples, m) in, name -> (resamples,) out."""
    n = sums["n"][:, 0]
    out: dict[str, Float] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        out["ece"] = np.abs(sums["bins"]).sum(axis=1) / n
        for name in INTERVALS:
            if name in sums:
                out[name] = sums[name][:, 0] / sums[PER.get(name, "n")][:, 0]
    return out


def _point(sums: Mapping[str, Float]) -> dict[str, float]:
    whole = sum_values({name: s.sum(axis=0, keepdims=True) for name, s in sums.items()})
    return {name: float(value[0]) for name, value in whole.items()}


def _size(sums: Mapping[str, Float], name: str) -> Float:
    """Weight of the cases of each unit."""
    return sums.get(f"{name}_size", sums[name])[:, 0]


def values_and_intervals(
    sums: Mapping[str, Float], perfect: float, heaviest: float = 1.0
) -> dict[str, float]:
    """Metrics from the sums of `case_sums`, with their 95 % intervals: name, name_low, name_high.

    AUC's are by the placements of DeLong, DeLong and Clarke-Pearson (1988), summed over groups
    (Obuchowski, 1997, Biometrics 53), on the logit scale; `perfect` is what `perfect_auc_worth` says.
    `heaviest` is the largest importance weight: cases that are all right say least of the class that has it.
    """
    out: dict[str, float] = {}
    for name, value in _point(sums).items():
        if name not in INTERVALS:
            continue
        per = PER.get(name, "n")
        size = _size(sums, per)
        total = float(size.sum())
        parts = (sums[name][:, 0] - value * sums[per][:, 0]) / total if total else size
        worth = perfect if name == "auc" else float((size > 0).sum()) / heaviest
        low, high = unit_interval(value, parts, size, scale=INTERVALS[name], worth=worth)
        out |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return out


def perfect_auc_worth(y: NDArray[Any], units: Units) -> float:
    """Number of cases that are worth as much for a share near 1 as these are for an AUC near 1.

    With m positive and n negative cases Hanley and McNeil's (1982) variance of an area A near 1 is
    ``(1 - A) (m + n + 2) / (4 m n)``. Of groups each counts once on either side.
    """
    if units.times is not None:
        counts = [float(units.times[y == label].sum()) for label in (0, 1)]
    else:
        code = np.arange(len(y)) if units.group is None else units.group
        counts = [float(len(np.unique(code[y == label]))) for label in (0, 1)]
    return 4.0 * counts[0] * counts[1] / (sum(counts) + 2.0)


def debiased_interval(
    y: Int, probs: Float, *, units: Units, n_bins: int = 15
) -> tuple[float, float, float]:
    """Debiased squared calibration error with its interval: (value, low, high).

    In each bin of equal mass, the mean product of the residuals of two different cases; with groups,
    of two cases of different groups, since residuals of one patient go together. With S, n the sums
    of residuals and cases of a bin, and s, m those of one group in it, that is
    sum_b (n_b / N) (S_b^2 - sum s^2) / (n_b^2 - sum m^2): without groups, `metrics.debiased_error`.
    Of cases with importance weights s and m are those of a unit.
    The interval is by the jackknife over units. Where the model is calibrated the jackknife
    overstates the variance of such a statistic (by about two), so the interval errs on the wide side.
    Few units, or unequal ones, widen it as they do any interval (`standard_errors`).
    """
    event = read_hard_event(y, probs)
    residual = event.p - event.y
    cell = bin_index(event.p, n_bins=n_bins, binning="mass", sample_weight=units.weights)

    def terms(part: slice, here: Units) -> dict[str, Float]:
        r, k = residual[part], cell[part]
        squares = {"own": here.total(r * r, k, n_bins)} if units.group is None else {}
        size = here.size(np.ones(len(r)), k, n_bins)
        return {"first": here.total(r, k, n_bins), "size": size} | squares

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
    value = _pair_product(*(s.sum(axis=0) for s in sums))
    present = size.sum(axis=1) > 0
    count = int(present.sum())
    without = _pair_product(*(s.sum(axis=0) - s[present] for s in sums))
    if count < FEWEST_GROUPS or not np.isfinite(without).all():
        return float(value), float("nan"), float("nan")
    spread = float(np.sqrt(((without - without.mean()) ** 2).sum()))
    half = (count - 1) / count * spread * standard_errors(size.sum(axis=1))
    return float(value), float(value) - half, float(value) + half


def _pair_product(first: Float, own: Float, size: Float, pairs: Float) -> Float:
    """Mean product of residuals of different cases (or groups) in one bin, averaged over bins."""
    free = size**2 - pairs
    used = free > 1e-12 * size**2
    with np.errstate(divide="ignore", invalid="ignore"):
        product = np.where(used, size * (first**2 - own) / free, 0.0)
        return np.asarray(product.sum(axis=-1) / np.where(used, size, 0.0).sum(axis=-1))


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
    test: Callable[..., metrics.CalibrationTest] | None = None,
) -> dict[str, Any]:
    """All numbers of one stratum that depend on its own cases alone; arguments as `case_sums`.

    `selected`: the votes made the stratum. Tests of calibration reject calibrated models there, and
    are left out. `test` makes a test by its name of cases with importance weights.
    """
    w, groups = units.weights, units.group
    event = read_hard_event(y, probs, w)
    draws: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    debiased, low, high = debiased_interval(y, probs, units=units, n_bins=n_bins)
    row: dict[str, Any] = {
        "n": units.n,
        "n_groups": None if groups is None else len(np.unique(groups)),
        "prevalence": _prevalence(y, probs, w),
        "mean_p": float(np.average(event.p, weights=w)),
        "ece": metrics.ece(y, probs, n_bins=n_bins, sample_weight=w),
        "debiased_error": debiased,
        "debiased_error_low": low,
        "debiased_error_high": high,
        "smece": metrics.smece(y, probs, sample_weight=w),
    }
    sums = case_sums(y, probs, counts, units=units, n_bins=n_bins, reader=reader, rho=rho)
    heaviest = 1.0 if units.importance is None else float(units.importance.weight.max())
    row |= values_and_intervals(sums, perfect_auc_worth(event.y, units), heaviest)
    for name in TESTS:
        options = draws | {"n_bins": n_bins} if name == "consistency" else draws
        if selected and name != "consistency":
            continue
        if test is None:
            own = getattr(metrics, name)
            result = own(y, probs, groups=groups, sample_weight=w, **options)
        else:
            result = test(name, **options)
        row[f"p_{name}"] = float("nan") if selected else result.p_value
        for key in ("intercept", "slope") if name == "cox" else ():
            row[f"cox_{key}"] = result.details.get(key, float("nan"))
        if name == "consistency":
            row |= {key: result.details[key] for key in ("floor", "floor_high")}
    if why := _why_undefined(units):
        row["reason"] = why
    row["excess"] = row["ece"] - row["floor"]
    if counts is not None and (counts.sum(axis=1) > 0).any():
        row |= _vote_extras(probs if reader is None else reader, counts, units)
    return row


def _prevalence(y: Int, probs: Float, times: Float | None) -> float:
    """Share of positive labels; of more than two classes, share of the commonest."""
    shares = np.bincount(y, times, 2) / (len(y) if times is None else times.sum())
    return float(shares[1] if probs.ndim == 1 else shares.max())


def _why_undefined(units: Units) -> str:
    """Why a stratum has no intervals, and with groups no floor and no test; "" where it has."""
    if why := too_few(units.group):
        return f"{why} for a floor, a test or an interval"
    if units.n < FEWEST_GROUPS:
        return f"too few cases ({units.n}, at least {FEWEST_GROUPS} are needed) for an interval"
    return ""


def _vote_extras(p: Float, votes: Int, units: Units) -> dict[str, float]:
    """Vote metrics that are no plain sums, and the floors of those that have one."""
    size, weights = votes.sum(axis=1), units.weights
    some = size > 0
    w = None if weights is None else weights[some]
    n_votes = int(size.sum() if units.times is None else size @ units.times)
    table = bins(votes[some] / size[some, None], p[some], n_bins=1, sample_weight=w)
    out: dict[str, float] = {
        "n_votes": n_votes,
        "vote_share": float(table.mean_y[0]),
        "ent_ce": metrics.ent_ce(votes, p, sample_weight=weights),
    }
    for name in ("vote_nll", "dist_ce", "ent_ce"):
        out[f"{name}_floor"] = metrics.vote_floor(name, p[some], size[some], sample_weight=w)
    return out


def split_scores(
    votes: Int,
    p: Float,
    *,
    rho: float,
    n_bins: int,
    groups: Int | None = None,
    sample_weight: Float | None = None,
    importance: Float | None = None,
) -> dict[str, float]:
    """How well the law of votes tells which panels split; not within strata of agreement.

    `sample_weight` counts cases. There is no floor with importance weights: they are by label, and how
    labels and splits go together is not in the law of votes alone.
    """
    weights = sample_weight if importance is None else importance
    split, chance, w = split_events(votes, p, None, rho, weights)
    if len(split) == 0:
        return dict.fromkeys(("split_auc", "split_ece", "split_ece_floor"), float("nan"))
    own = None if groups is None else groups[votes.sum(axis=1) >= 2]
    return {
        "split_auc": metrics.auc(split, chance, sample_weight=w),
        "split_ece": metrics.ece(split, chance, n_bins=n_bins, sample_weight=w),
        "split_ece_floor": float("nan")
        if importance is not None
        else metrics.noise_floor(chance, y=split, groups=own, n_bins=n_bins, sample_weight=w),
    }
