"""Audits of parts joined into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from scalecal.auditing.audits import Audit, audit_predictions, in_order
from scalecal.cases import Cases, Predictions
from scalecal.checks import InputError

_OPTIONS = ("n_bins", "n_resamples", "seed", "strata", "n_classes", "resampled", "prevalence")


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
    if any(audit.times is not None for audit in audits):
        raise InputError(
            "a streamed audit keeps counts, not cases: merge the StreamingAudit objects instead"
        )
    first = audits[0]
    for other in audits[1:]:
        for key in _OPTIONS:
            one, two = first.meta.get(key), other.meta.get(key)
            if one != two:
                raise InputError(f"audits with different {key} cannot be merged: {one} and {two}")
        for what, name in (("votes", "cases.votes"), ("p_reader", "only.p_reader")):
            missing = [attrgetter(name)(a.predictions) is None for a in (first, other)]
            if missing[0] != missing[1]:
                raise InputError(f"audits with and without {what} cannot be merged")
        if other.predictions.only.rho != first.predictions.only.rho:
            raise InputError(
                "audits with different rho cannot be merged: "
                f"{first.predictions.only.rho:g} and {other.predictions.only.rho:g}"
            )
    cases = Cases.concat([_own_groups(a.predictions.cases, k) for k, a in enumerate(audits)])
    if cases.strata is not None:
        cases = replace(cases, strata=in_order(cases.strata))
    parts = [a.predictions.only for a in audits]
    readers = [part.p_reader for part in parts if part.p_reader is not None]
    splits = [part.p_split for part in parts if part.p_split is not None]
    return audit_predictions(
        Predictions.single(
            cases,
            np.concatenate([part.p for part in parts]),
            np.concatenate(readers) if readers else None,
            rho=parts[0].rho,
            p_split=np.concatenate(splits) if len(splits) == len(parts) else None,
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
