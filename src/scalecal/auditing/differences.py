"""Two audits side by side on the same cases, and audits of parts joined into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.auditing.audits import Audit, audit_predictions, in_order, labels_of
from scalecal.auditing.rows import INTERVALS, case_sums, values_and_draws
from scalecal.cases import Cases, Factor, Predictions
from scalecal.checks import InputError
from scalecal.inference.paired import Drawn, contrast_of
from scalecal.inference.units import Units

if TYPE_CHECKING:
    import pandas as pd


def _check_not_streamed(*audits: Audit) -> None:
    if any(audit.times is not None for audit in audits):
        raise InputError(
            "a streamed audit keeps counts, not cases: merge the StreamingAudit objects instead"
        )


def _same_cases(a: Audit, b: Audit) -> Cases:
    _check_not_streamed(a, b)
    x, z = a.predictions.cases, b.predictions.cases
    if x.n != z.n:
        raise InputError(f"the audits are of different cases: {x.n} against {z.n}")
    if a.meta.get("prevalence") != b.meta.get("prevalence"):
        raise InputError("the audits are of populations with different prevalences")
    for name in ("y", "votes", "strata"):
        left, right = (_values(getattr(cases, name)) for cases in (x, z))
        if not np.array_equal(left, right):
            raise InputError(f"the audits are of different cases: their {name} differ")
    return x


def _values(column: Any) -> NDArray[Any]:
    if column is None:
        return np.zeros(0)
    return column.values if isinstance(column, Factor) else column


def compare_audits(a: Audit, b: Audit, *, n_resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Compare two models on the same cases: every difference b - a with its paired bootstrap.

    Differences of the same cases share those cases' noise, so that a bootstrap of them is sound even
    for ECE, whose own bootstrap is not. Cases, or groups where there are any, are resampled; fewer than
    eight of them have no interval and no p-value.

    Returns
    -------
    DataFrame with columns stratum, metric, n, a, b, difference, low, high, p_value.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.uniform(size=500)
    >>> y = (rng.uniform(size=500) < chance).astype(int)
    >>> from scalecal import audit
    >>> sharp = audit(y, np.clip(2 * chance - 0.5, 0.01, 0.99))
    >>> table = compare_audits(sharp, audit(y, chance))
    >>> bool(table.set_index("metric").loc["nll", "high"] < 0)
    True
    """
    import pandas as pd

    cases = _same_cases(a, b)
    units = Units.of(cases.n, groups=cases.group_codes, seed=seed)
    if a.reweighted is not None:
        units = units.weighted(labels_of(cases), a.reweighted.prevalence)
    out = []
    for name in ("overall", *cases.stratum_names):
        inside = cases.within(name)
        y = labels_of(cases)[inside]
        if len(y) == 0:
            continue
        votes = None if cases.votes is None else cases.votes[inside]
        here = units.within(inside)
        models = []
        for model in (a, b):
            own = model.predictions.take(inside)
            sums = case_sums(
                y,
                own.p,
                votes,
                units=here,
                n_bins=a.meta["n_bins"],
                reader=own.p_reader,
                rho=own.rho,
            )
            # One seed for both models: the same draws, hence a paired comparison.
            point, drawn = values_and_draws(sums, n_resamples=n_resamples, seed=seed)
            models.append(
                {key: Drawn({0: point[key]}, drawn[key], len(y), here.count) for key in point}
            )
        for metric in ("ece", *INTERVALS):
            if metric not in models[0]:
                continue
            change = contrast_of(models[0][metric], models[1][metric])
            out.append(
                {
                    "stratum": name,
                    "metric": metric,
                    "n": len(y),
                    "a": change.reference,
                    "b": change.value,
                    "difference": change.difference,
                    "low": change.low,
                    "high": change.high,
                    "p_value": change.p_cases,
                }
            )
    return pd.DataFrame(out)


def merge_audits(audits: Sequence[Audit]) -> Audit:
    """Join audits of parts (disjoint cases, one model) into the audit of the whole.

    The cases are put together in the order given and audited anew with the options of the parts, which
    must be the same, so that the result equals the audit of the whole exactly. Groups of different parts
    are taken as different.

    Examples
    --------
    >>> p = np.linspace(0.05, 0.95, 40)
    >>> y = np.tile([0, 1], 20)
    >>> from scalecal import audit
    >>> whole = merge_audits([audit(y[:10], p[:10]), audit(y[10:], p[10:])])
    >>> whole["overall"]["ece"] == audit(y, p)["overall"]["ece"]
    True
    """
    if not audits:
        raise InputError("nothing to merge: give at least one audit")
    _check_not_streamed(*audits)
    first = audits[0]
    for other in audits[1:]:
        for key in (
            "n_bins",
            "n_resamples",
            "seed",
            "strata",
            "n_classes",
            "resampled",
            "prevalence",
        ):
            one, two = first.meta.get(key), other.meta.get(key)
            if one != two:
                raise InputError(f"audits with different {key} cannot be merged: {one} and {two}")
        for what, name in (("votes", "cases.votes"), ("p_reader", "p_reader")):
            missing = [attrgetter(name)(a.predictions) is None for a in (first, other)]
            if missing[0] != missing[1]:
                raise InputError(f"audits with and without {what} cannot be merged")
        if other.predictions.rho != first.predictions.rho:
            raise InputError(
                "audits with different rho cannot be merged: "
                f"{first.predictions.rho:g} and {other.predictions.rho:g}"
            )
    cases = Cases.concat([_own_groups(a.predictions.cases, k) for k, a in enumerate(audits)])
    if cases.strata is not None:
        cases = replace(cases, strata=in_order(cases.strata))
    readers = [a.predictions.p_reader for a in audits if a.predictions.p_reader is not None]
    return audit_predictions(
        Predictions(
            cases,
            np.concatenate([a.predictions.p for a in audits]),
            np.concatenate(readers) if readers else None,
            first.predictions.rho,
        ),
        prevalence=first.meta.get("prevalence"),
        **{key: first.meta[key] for key in ("n_bins", "n_resamples", "seed")},
    )


def _own_groups(cases: Cases, part: int) -> Cases:
    """Return cases whose groups carry the number of their part, and without ids, which may repeat."""
    groups = cases.groups
    if groups is not None:
        groups = replace(groups, names=tuple(f"{part}/{name}" for name in groups.names))
    return replace(cases, ids=None, groups=groups)
