"""Claims about the uncalibrated probe: calibration by agreement."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.stats import norm

from scalecal import metrics
from scalecal.auditing.sentences import LEVEL
from scalecal.checks import Float
from scalecal.metrics import bin_index, holm
from scalecal.metrics.arguments import read_hard_event
from scalecal.paper.evidence import Evidence
from scalecal.paper.nulls import low_over_high, stratum_spread
from scalecal.paper.verdicts import (
    LEAST_CASES,
    NO_VOTES,
    Answer,
    Decide,
    Verdict,
    all_of,
    lower_everywhere,
    unknown,
)
from scalecal.runs.cells import Cell
from scalecal.runs.resampled import Drawn, contrast_of

__all__ = ["MATTERS", "aggregate_hides", "least_excess", "stays_below", "strata_differ"]

MATTERS = 0.038
"""A gap between the strata's errors that matters: half of the smallest the paper prints, 0.076."""

_BINS = 15


def _missed(p: Float, gap: float, n_resamples: int, seed: int) -> Float:
    """ECEs of a model whose every prediction is off by `gap`, away from one half."""
    chance = np.clip(p - gap * np.where(p >= 0.5, 1.0, -1.0), 0.0, 1.0)
    within = np.eye(_BINS)[bin_index(p, n_bins=_BINS)]
    rng = np.random.default_rng(seed)
    block = max(1, 1_000_000 // len(p))
    out = []
    for first in range(0, n_resamples, block):
        drawn = rng.random((min(block, n_resamples - first), len(p))) < chance
        out.append(np.abs((drawn - p) @ within).sum(axis=1) / len(p))
    return np.concatenate(out)


def least_excess(
    cell: Cell, *, gap: float = MATTERS, level: float = LEVEL, n_resamples: int = 200, seed: int = 0
) -> float:
    """Excess over the null that a true gap shows at least, but for a share `level` of the samples.

    An error that hides in noise adds less to ECE than its size, so the gap itself is no bound. Labels
    are drawn for a model off by the same amount in every case, which of all errors of that mean size
    adds least; the high stratum has the error it seems to have, and the low one `gap` more. Strata
    stay as they are. Minus infinity where no seed has both.
    """
    shown, calibrated = [], []
    for trained in cell.seeds("none"):
        index, probs = cell.predictions["none", trained]
        event = read_hard_event(cell.y[index], probs)
        low, high = (np.flatnonzero(cell.strata[index] == name) for name in ("low", "high"))
        if min(len(low), len(high)) == 0:
            continue
        null = [
            _missed(event.p[part], 0.0, n_resamples, seed + j) for j, part in enumerate((low, high))
        ]
        # Noise and error add up about as squares.
        square = metrics.ece(event.y[high], event.p[high]) ** 2 - float(null[1].mean()) ** 2
        error = float(np.sqrt(max(square, 0.0)))
        calibrated.append(null[0] - null[1])
        shown.append(
            _missed(event.p[low], error + gap, n_resamples, seed)
            - _missed(event.p[high], error, n_resamples, seed + 1)
        )
    if not shown:
        return float("-inf")
    drawn = np.mean(shown, axis=0)
    rise = float(drawn.mean() - np.mean(calibrated))
    return rise - float(norm.ppf(1 - level)) * float(drawn.std())


def strata_differ(kind: Literal["noise", "selection"]) -> Decide:
    """Low-agreement ECE exceeds high-agreement ECE for every encoder, by more than a null gives.

    It fails only where the data exclude a true gap of `MATTERS` (`least_excess`), for each encoder at
    the level 0.05 / encoders, since one failing encoder fails the claim.
    """

    def decide(evidence: Evidence) -> Verdict:
        dataset = evidence.primary
        if dataset is None:
            return unknown(NO_VOTES)
        found, cells = {}, {}
        for cell in evidence.of_dataset(dataset, "none"):
            excess = low_over_high(cell, kind, seed=evidence.seed)
            if excess is not None:
                found[cell.encoder], cells[cell.encoder] = excess, cell
        if not found:
            return unknown(f"{dataset}: no seed's test set has both high and low agreement")
        adjusted = holm([one.p_value for one in found.values()])
        answers: dict[str, Answer] = {}
        whys = {}
        for (encoder, one), p in zip(found.items(), adjusted, strict=True):
            why = f"{one.difference:+.3f} against {one.null:+.3f}, p = {p:.3f}, n = {one.n_low}"
            answers[encoder] = "cannot be told"
            if min(one.n_low, one.n_high) < LEAST_CASES:
                why += f", {LEAST_CASES} are needed"
            elif p < LEVEL:
                answers[encoder] = "holds"
            else:
                least = least_excess(cells[encoder], level=LEVEL / len(found), seed=evidence.seed)
                if one.difference < one.null + least:
                    answers[encoder] = "does not hold"
                    why += f"; a gap of {MATTERS}, half the paper's smallest, is excluded"
            whys[encoder] = why
        mean = float(np.mean([one.difference for one in found.values()]))
        null = float(np.mean([one.null for one in found.values()]))
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
