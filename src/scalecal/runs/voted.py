"""How many votes would I need? The panel fitted to the votes of fewer and fewer training cases.

From the training part of every seed some cases are drawn whose votes are used, by all their readers
(``reads="panel"``) or by one of them at random (``"single"``); of the other cases only the labels are.
Draws are nested (the 25 are among the 50) and shared by both kinds of reads, so that the points of the
curve are paired. Zero voted cases is `panel-published`, which needs two published numbers instead; what
an error of its kappa would cost is tried by wrong ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scalecal.calibrators.crossfitting import answers_of
from scalecal.cases import Answers, Features, rows_of
from scalecal.checks import Float, InputError, Int
from scalecal.evaluation.cells import PUBLISHED, READS, VOTED
from scalecal.evaluation.changes import AtKappa, Losses, VotedCurve
from scalecal.evaluation.scores import samples_of, score
from scalecal.metrics import METRICS
from scalecal.metrics.columns import chosen
from scalecal.probes import CrossFit, Trained
from scalecal.probes.methods import METHODS
from scalecal.readers import Readers
from scalecal.runs.calibrating import fit_calibrator, out_of_sample

NEEDED = ("none", "vote-fraction", PUBLISHED, VOTED)
"""Methods that the curve is made of or compared with."""

N_DRAWS = 20
"""Draws of voted cases per seed."""

KAPPA_FACTORS = (0.7, 1.0, 1.3)
"""What the published kappa is multiplied by, to see what an error of it costs."""


def draw_order(votes: Int, rng: np.random.Generator) -> tuple[Int, Int]:
    """The cases that have votes in random order, and one of the votes of each case, (n, C)."""
    m = votes.sum(axis=1)
    order = rng.permutation(np.flatnonzero(m > 0))
    # The number of one vote among a case's votes, then the class whose votes hold that number.
    pick = (rng.random(len(votes)) * np.maximum(m, 1)).astype(np.int64)
    one = (np.cumsum(votes, axis=1) > pick[:, None]).argmax(axis=1)
    single = np.eye(votes.shape[1], dtype=np.int64)[one] * (m > 0)[:, None]
    return order, single


def voted_curve(
    data: Features,
    probes: Mapping[int, Trained],
    again: Mapping[int, tuple[CrossFit, Sequence[Trained]]],
    tested: Mapping[int, Int],
    voted: Sequence[int],
    readers: Readers,
) -> VotedCurve:
    """Fit the panel to the votes of some training cases, many times, and score it on the test cases.

    Parameters
    ----------
    data
        Embeddings with labels and votes.
    probes, again, tested
        By seed: the trained probe, its cross-fitted parts, and the rows of the test cases.
    voted
        Numbers of voted cases; 0 is left to `panel-published`.
    readers
        Knowledge of the readers besides the votes.
    """
    cases = data.cases
    assert cases.votes is not None
    scores: list[dict[str, Any]] = []
    losses: dict[tuple[int, str], dict[int, Losses]] = {}
    by_kappa: dict[float, dict[int, AtKappa]] = {}
    short: dict[int, int] = {}
    failed: set[str] = set()
    behind = readers.behind(cases)
    for seed, probe in probes.items():
        rows, logits = out_of_sample(probe, data, None, again[seed])
        test = tested[seed]
        at_test = probe.logits(data.X, test)
        y, counts = cases.labels[test], cases.votes[test]
        sizes = rows_of(behind, test)
        votes = cases.votes[rows]
        # The same draws whichever worker runs the seed, and whatever ran before it.
        rng = np.random.default_rng([seed, len(rows)])
        at_kappa = wrong_kappas(data, rows, logits, at_test, test, readers)
        for factor, panel in at_kappa.items():
            by_kappa.setdefault(factor, {})[seed] = panel
        sums: dict[tuple[int, str], list[Losses]] = {}
        for draw in range(N_DRAWS):
            order, single = draw_order(votes, rng)
            read = {"panel": votes, "single": single}
            for n in sorted({n for n in voted if n > 0}):
                if n > len(order):
                    short[n] = len(order)
                    continue
                for reads in READS:
                    seen = np.zeros_like(votes)
                    chosen = order[:n]
                    seen[chosen] = read[reads][chosen]
                    try:
                        fitted = fit_calibrator(
                            METHODS[VOTED], data, rows, logits, readers, votes=seen, interval=False
                        )
                    except InputError as error:
                        failed.add(f"{n} cases ({reads} reads): {error}")
                        continue
                    part = answers_of(fitted, at_test, n_raters=sizes)
                    head = {"seed": seed, "voted": n, "reads": reads, "draw": draw}
                    for metric, (value, floor) in score(
                        samples_of(y, part, counts), brief=True
                    ).items():
                        scores.append({**head, "metric": metric, "value": value, "floor": floor})
                    sums.setdefault((n, reads), []).append(case_losses(y, part, counts))
        # Averaged over draws, so that an interval over cases is of the usual draw.
        for key, drawn in sums.items():
            names = drawn[0]
            losses.setdefault(key, {})[seed] = {
                name: np.mean([one[name] for one in drawn], axis=0) for name in names
            }
    notes = [
        f"{n} voted cases are left out: the training part has votes on {most} cases."
        for n, most in short.items()
    ]
    notes += [f"Some draws of {why} were left out." for why in sorted(failed)[:3]]
    # Means over seeds must be of the same seeds for every kappa.
    if any(len(by_seed) < len(probes) for by_seed in by_kappa.values()):
        by_kappa = {}
    return VotedCurve(scores, losses, notes, by_kappa)


def wrong_kappas(
    data: Features, rows: Int, logits: Float, at_test: Float, test: Int, readers: Readers
) -> dict[float, AtKappa]:
    """Fit `panel-published` with its kappa multiplied by each of `KAPPA_FACTORS` (1 at most).

    Empty where kappa is unknown or not positive, or a fit fails.
    """
    cases = data.cases
    assert cases.votes is not None
    kappa, share = readers.published(cases.take(rows))
    behind = readers.behind(cases)
    out: dict[float, AtKappa] = {}
    if kappa is None or not kappa > 0 or behind is None:
        return out
    for factor in KAPPA_FACTORS:
        wrong = replace(readers, kappa=min(factor * kappa, 1.0), vote_share=share)
        try:
            fitted = fit_calibrator(METHODS[PUBLISHED], data, rows, logits, wrong)
        except InputError:
            return {}
        part = answers_of(fitted, at_test, n_raters=behind[test])
        own = case_losses(cases.labels[test], part, cases.votes[test])
        out[factor] = AtKappa(min(factor * kappa, 1.0), part.rho, own)
    return out


def case_losses(y: Int, part: Answers, counts: Int) -> Losses:
    """Loss of each case by the main metrics that are means over cases; NaN where a case has no votes."""
    samples, voted = samples_of(y, part, counts), counts.sum(axis=1) > 0
    out = {}
    for key in chosen(lambda metric: metric.main and metric.term is not None):
        metric = METRICS[key]
        sample = samples.judged_by(metric)
        assert metric.term is not None
        assert sample is not None
        out[key] = metric.term(sample)
        if metric.votes:
            out[key] = np.where(voted, out[key], np.nan)
    return out
