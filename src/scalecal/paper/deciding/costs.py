"""Claims about what a method costs: discrimination, softness, time."""

from __future__ import annotations

from typing import Literal

import numpy as np

from scalecal.inference.paired import equivalence
from scalecal.paper.evidence import Evidence
from scalecal.paper.printed import encoder_label, method_label
from scalecal.paper.verdicts import (
    LEAST_CASES,
    NO_VOTES,
    Answer,
    Decide,
    Verdict,
    all_of,
    lower,
    unknown,
)
from scalecal.runs.frontier import softened_name, with_softened
from scalecal.runs.resampled import Resampled

__all__ = ["beats_softening", "preserved", "quick"]

MARGIN = 0.01
"""Loss of AUC or accuracy that would not matter: one point."""


def preserved(metric: Literal["auc", "accuracy"]) -> Decide:
    """SCALE loses no more AUC or accuracy than a margin, for every encoder and data set."""

    def decide(evidence: Evidence) -> Verdict:
        answers: dict[str, Answer] = {}
        whys, differences, n = {}, [], 0
        for dataset in evidence.datasets:
            for encoder in evidence.encoders(dataset, "none", "scale"):
                drawn = evidence.resampled(dataset)
                a, b = (drawn.drawn(encoder, m, metric=metric) for m in ("none", "scale"))
                if not np.isfinite(a.value + b.value):
                    continue
                found = equivalence(b.samples - a.samples, b.value - a.value, MARGIN, n=a.n)
                name = f"{encoder_label(encoder)} on {dataset}"
                differences.append(found.difference)
                n = max(n, a.n)
                if a.n < LEAST_CASES:
                    answers[name] = "cannot be told"
                elif found.low > -MARGIN:
                    answers[name] = "holds"
                else:
                    answers[name] = "does not hold" if found.high < -MARGIN else "cannot be told"
                whys[name] = f"{100 * found.difference:+.1f} points"
        if not answers:
            return unknown("no encoder has predictions of both none and scale")
        least, most = 100 * min(differences), 100 * max(differences)
        return all_of(
            answers,
            f"loss of {metric.upper() if metric == 'auc' else metric} within {100 * MARGIN:g} point "
            "(two one-sided tests)",
            measured=f"{least:+.1f} to {most:+.1f} points",
            n=n,
            whys=whys,
        )

    return decide


def beats_softening(metric: Literal["ece", "vote_nll"], method: str = "scale") -> Decide:
    """A method is better than the uncalibrated probe softened to the same mean entropy."""

    def decide(evidence: Evidence) -> Verdict:
        dataset = evidence.primary
        if dataset is None:
            return unknown(NO_VOTES)
        cells = [c for c in evidence.of_dataset(dataset, "none", method) if c.counts is not None]
        if not cells:
            return unknown(f"{dataset}: no encoder has predictions of both none and {method}")
        drawn = Resampled(
            [with_softened(c, [method]) for c in cells],
            n_resamples=evidence.n_resamples,
            seed=evidence.seed,
        )
        stratum = "low" if metric == "ece" else "overall"
        rival = softened_name(method)
        found = drawn.contrast(method, rival, stratum=stratum, metric=metric)
        each = {
            c.encoder: drawn.contrast(
                method, rival, stratum=stratum, metric=metric, encoders=[c.encoder]
            )
            for c in cells
        }
        title = "low-agreement ECE" if metric == "ece" else "vote NLL"
        what = f"{dataset}: {title}, {method_label(method)} against softening to equal entropy"
        return lower(found, what, metric=metric, by_encoder=each)

    return decide


def quick(limit: float) -> Decide:
    """Training and retraining the probe takes less than a limit, for every cell."""

    def decide(evidence: Evidence) -> Verdict:
        seconds = evidence.seconds
        if not seconds:
            return unknown("no training times were kept (predictions read from files)")
        slowest = max(seconds, key=lambda key: seconds[key])
        longest = seconds[slowest]
        return Verdict(
            f"{longest:.1f} s at most",
            len(seconds),
            "holds" if longest < limit else "does not hold",
            f"slowest of {len(seconds)} cells: {encoder_label(slowest[1])} on {slowest[0]}; "
            "n counts cells",
        )

    return decide
