"""Two audits side by side on the same cases, and audits of parts joined into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.auditing.audits import Audit, Cases, audit_cases
from scalecal.auditing.scores import INTERVALS, case_sums, sum_values
from scalecal.checks import InputError
from scalecal.inference.units import Units, bootstrap_sums, centred, interval, two_sided_p
from scalecal.votes import STRATA

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare", "merge"]


def _same_cases(a: Audit, b: Audit) -> None:
    x, z = a.cases, b.cases
    if len(x.y) != len(z.y):
        raise InputError(f"the audits are of different cases: {len(x.y)} against {len(z.y)}")
    for name in ("y", "counts", "codes", "strata"):
        left, right = getattr(x, name), getattr(z, name)
        same = (left is None) == (right is None) and (left is None or np.array_equal(left, right))
        if not same:
            raise InputError(f"the audits are of different cases: their {name} differ")


def compare(a: Audit, b: Audit, *, n_resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Compare two models on the same cases: every difference b - a with its paired bootstrap.

    Differences of the same cases share those cases' noise, so that a bootstrap of them is sound even
    for ECE, whose own bootstrap is not. Cases, or groups where there are any, are resampled.

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
    >>> table = compare(sharp, audit(y, chance))
    >>> bool(table.set_index("metric").loc["log_loss", "high"] < 0)
    True
    """
    import pandas as pd

    _same_cases(a, b)
    cases = a.cases
    units = Units.of(len(cases.y), groups=cases.groups, seed=seed)
    out = []
    for name in ("overall", *cases.strata):
        inside = cases.within(name)
        y = cases.y[inside]
        if len(y) == 0:
            continue
        votes = None if cases.counts is None else cases.counts[inside]
        here = units.within(inside)
        point, drawn = [], []
        for model in (a, b):
            probs = model.cases.probs[inside]
            sums = case_sums(y, probs, votes, units=here, n_bins=a.meta["n_bins"])
            whole = {key: s.sum(axis=0, keepdims=True) for key, s in sums.items()}
            point.append(sum_values(whole))
            # One seed for both models: the same draws, hence a paired comparison.
            drawn.append(sum_values(bootstrap_sums(sums, n_resamples=n_resamples, seed=seed)))
        for metric in ("ece", *INTERVALS):
            if metric not in point[0]:
                continue
            values = [float(values[metric][0]) for values in point]
            samples = centred(drawn[1][metric] - drawn[0][metric], values[1] - values[0])
            low, high = interval(samples)
            out.append(
                {
                    "stratum": name,
                    "metric": metric,
                    "n": len(y),
                    "a": values[0],
                    "b": values[1],
                    "difference": values[1] - values[0],
                    "low": low,
                    "high": high,
                    "p_value": two_sided_p(samples),
                }
            )
    return pd.DataFrame(out)


def merge(audits: Sequence[Audit]) -> Audit:
    """Join audits of parts (disjoint cases, one model) into the audit of the whole.

    The cases are put together in the order given and audited anew with the options of the parts, which
    must be the same, so that the result equals the audit of the whole exactly. Groups of different parts
    are taken as different.

    Examples
    --------
    >>> p = np.linspace(0.05, 0.95, 40)
    >>> y = np.tile([0, 1], 20)
    >>> from scalecal import audit
    >>> whole = merge([audit(y[:10], p[:10]), audit(y[10:], p[10:])])
    >>> whole["overall"]["ece"] == audit(y, p)["overall"]["ece"]
    True
    """
    if not audits:
        raise InputError("nothing to merge: give at least one audit")
    first = audits[0]
    for other in audits[1:]:
        for key in ("n_bins", "n_resamples", "seed", "strata", "n_classes", "resampled"):
            if other.meta[key] != first.meta[key]:
                raise InputError(
                    f"audits with different {key} cannot be merged: {first.meta[key]} and {other.meta[key]}"
                )
        if (other.cases.counts is None) != (first.cases.counts is None):
            raise InputError("audits with and without votes cannot be merged")

    def join(name: str) -> Any:
        parts = [getattr(a.cases, name) for a in audits]
        return None if parts[0] is None else np.concatenate(parts)

    groups = None
    if first.cases.groups is not None:
        sizes = [int(a.cases.groups.max()) + 1 for a in audits if a.cases.groups is not None]
        shifts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        groups = np.concatenate([a.cases.groups + s for a, s in zip(audits, shifts, strict=True)])
    strata = tuple(dict.fromkeys(name for a in audits for name in a.cases.strata))
    if set(strata) <= set(STRATA):
        strata = tuple(name for name in STRATA if name in strata)
    codes = np.concatenate(
        [np.array([*map(strata.index, a.cases.strata), -1])[a.cases.codes] for a in audits]
    )
    cases = Cases(join("y"), join("probs"), join("counts"), codes, strata, groups)
    return audit_cases(
        cases,
        source=first.meta["strata"],
        n_bins=first.meta["n_bins"],
        n_resamples=first.meta["n_resamples"],
        seed=first.meta["seed"],
    )
