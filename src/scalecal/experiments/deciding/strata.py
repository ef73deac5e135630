"""Claims about the uncalibrated probe: calibration by agreement."""

from __future__ import annotations

from typing import Literal

import numpy as np

from scalecal.experiments.evidence import Evidence
from scalecal.experiments.nulls import low_over_high, stratum_spread
from scalecal.experiments.resampled import Drawn, contrast_of
from scalecal.experiments.verdicts import (
    LEAST_CASES,
    NO_VOTES,
    Answer,
    Decide,
    Verdict,
    all_of,
    lower_everywhere,
    unknown,
)
from scalecal.metrics import holm
from scalecal.wording import LEVEL

__all__ = ["aggregate_hides", "stays_below", "strata_differ"]


def strata_differ(kind: Literal["noise", "selection"]) -> Decide:
    """Low-agreement ECE exceeds high-agreement ECE for every encoder, by more than a null gives."""

    def decide(evidence: Evidence) -> Verdict:
        dataset = evidence.primary
        if dataset is None:
            return unknown(NO_VOTES)
        found = {}
        for cell in evidence.of_dataset(dataset, "none"):
            excess = low_over_high(cell, kind, seed=evidence.seed)
            if excess is not None:
                found[cell.encoder] = excess
        if not found:
            return unknown(f"{dataset}: no seed's test set has both high and low agreement")
        adjusted = holm([one.p_value for one in found.values()])
        answers: dict[str, Answer] = {}
        for (encoder, one), p in zip(found.items(), adjusted, strict=True):
            if min(one.n_low, one.n_high) < LEAST_CASES:
                answers[encoder] = "cannot be told"
            elif one.difference <= one.null:
                answers[encoder] = "does not hold"
            else:
                answers[encoder] = "holds" if p < LEVEL else "cannot be told"
        mean = float(np.mean([one.difference for one in found.values()]))
        null = float(np.mean([one.null for one in found.values()]))
        whys = {
            e: f"{one.difference:+.3f} against {one.null:+.3f}, p = {p:.3f}, n = {one.n_low}"
            for (e, one), p in zip(found.items(), adjusted, strict=True)
        }
        against = "finite numbers" if kind == "noise" else "strata made from the labels' own votes"
        return all_of(
            answers,
            f"{dataset}: low minus high ECE, against what {against} give a calibrated model",
            measured=f"{mean:+.3f}, null {null:+.3f}",
            n=max(one.n_low for one in found.values()),
            whys=whys,
        )

    return decide


def aggregate_hides(evidence: Evidence) -> Verdict:
    """Overall ECE is nearer to high- than to low-agreement ECE for every encoder."""
    dataset = evidence.primary
    if dataset is None:
        return unknown(NO_VOTES)
    drawn = evidence.resampled(dataset)
    cells = evidence.of_dataset(dataset, "none")
    encoders = [c.encoder for c in cells if {"low", "high"} <= set(c.stratum_names)]
    found = {}
    for encoder in encoders:
        whole, high, low = (drawn.drawn(encoder, "none", s) for s in ("overall", "high", "low"))
        seeds = [s for s in whole.by_seed if s in high.by_seed and s in low.by_seed]
        middle = {s: (high.by_seed[s] + low.by_seed[s]) / 2 for s in seeds}
        reference = Drawn(middle, (high.samples + low.samples) / 2, low.n, low.units)
        method = Drawn({s: whole.by_seed[s] for s in seeds}, whole.samples, low.n, low.units)
        found[encoder] = contrast_of(reference, method, level=1 - LEVEL / len(encoders))
    result = lower_everywhere(
        found, f"{dataset}: overall ECE against the middle between high- and low-agreement ECE"
    )
    if not found:
        return result
    overall, low_ece = (
        float(np.mean([drawn.drawn(e, "none", s).value for e in encoders]))
        for s in ("overall", "low")
    )
    reason = f"{result.reason} (an average over mostly easy cases can hardly do otherwise)"
    return Verdict(f"{overall:.3f} overall, {low_ece:.3f} low", result.n, result.verdict, reason)


def stays_below(stratum: str, bound: float) -> Decide:
    """The uncalibrated probe's ECE in a stratum stays at or below a bound for every encoder."""

    def decide(evidence: Evidence) -> Verdict:
        dataset = evidence.primary
        if dataset is None:
            return unknown(NO_VOTES)
        answers: dict[str, Answer] = {}
        whys, values, most = {}, [], 0
        for cell in evidence.of_dataset(dataset, "none"):
            value, floor, spread, n = stratum_spread(cell, stratum, seed=evidence.seed)
            if n == 0:
                continue
            values.append(value)
            most = max(most, n)
            answer: Answer = "cannot be told"
            if n >= LEAST_CASES and value < bound - 1.645 * spread:
                answer = "holds"
            # Where a calibrated model would be above the bound too, being above it says nothing.
            elif n >= LEAST_CASES and value > max(bound, floor) + 1.645 * spread:
                answer = "does not hold"
            answers[cell.encoder] = answer
            whys[cell.encoder] = f"{value:.3f}, floor {floor:.3f}, n = {n}"
        if not values:
            return unknown(f"{dataset}: no case of {stratum} agreement")
        return all_of(
            answers,
            f"{dataset}: {stratum}-agreement ECE against {bound}",
            measured=f"{min(values):.3f} to {max(values):.3f}",
            n=most,
            whys=whys,
        )

    return decide
