"""Strata and votes in a streaming audit: the selection-aware null, left-out votes, agreement."""

from __future__ import annotations

from math import nan

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from scalecal.auditing.stream_compressed import Compressed, compress
from scalecal.auditing.stream_state import State
from scalecal.checks import Float, Int
from scalecal.inference import selection
from scalecal.inference.units import NORMAL_95
from scalecal.metrics.binning import bin_index
from scalecal.metrics.resampling import EXACT_CASES
from scalecal.votes import STRATA, stratum_codes

__all__ = ["agreement_statistics", "left_out", "selection_null"]

NEIGHBOURS = 20  # as `scalecal.inference.selection.selection_null`


def selection_null(
    state: State, n_strata: int, *, n_bins: int, n_resamples: int, seed: int
) -> Float:
    """ECE of every stratum if the model were calibrated, (n_resamples, n_strata).

    Up to `EXACT_CASES` cases `scalecal.inference.selection.selection_null` itself, every case at the mean of
    its cell. Above, its normal limit on cells: the chance of a stratum given the label is the share
    of that stratum among the cases of that label in the cell, or among the `NEIGHBOURS` nearest in
    rank where the cell holds fewer.
    """
    if state.n <= EXACT_CASES:
        return selection.selection_null(
            *_by_case(state),
            n_strata=n_strata,
            n_bins=n_bins,
            n_neighbours=NEIGHBOURS,
            n_resamples=n_resamples,
            seed=seed,
        )
    count = state.cells.count
    strata = np.zeros((2, n_strata, count), dtype=np.int64)
    whole = np.zeros((2, count), dtype=np.int64)
    for layer, number in state.layers.items():
        whole[layer.label] += state.counts[number]
        if layer.stratum >= 0:
            strata[layer.label, layer.stratum] += state.counts[number]
    if not whole.any(axis=1).all():
        return np.full((n_resamples, n_strata), nan)
    everyone = compress(state, list(state.layers))
    filled = np.flatnonzero(whole.sum(axis=0))
    n = whole.sum(axis=0)[filled].astype(np.float64)
    p = np.bincount(everyone.cell, everyone.weights * everyone.p, count)[filled] / n
    p = state.cells.clip(p, filled)
    index = bin_index(p, n_bins=n_bins)
    chance = [_chances(strata[label], whole[label], filled) for label in (0, 1)]
    rng = np.random.default_rng(seed)
    out = np.full((n_resamples, n_strata), nan)
    for s in range(n_strata):
        q0, q1 = chance[0][s], chance[1][s]
        # Residual p - y* counted in stratum s: p - 1 with chance p q1, p with chance (1 - p) q0.
        first = p * (1.0 - p) * (q0 - q1)
        second = p * (1.0 - p) * ((1.0 - p) * q1 + p * q0)
        mean = np.bincount(index, n * first, n_bins)
        variance = np.bincount(index, n * (second - first**2), n_bins)
        expected = float(n @ (p * q1 + (1.0 - p) * q0))
        sums = mean + np.sqrt(np.maximum(variance, 0.0)) * rng.standard_normal(
            (n_resamples, n_bins)
        )
        if expected > 0.0:
            out[:, s] = np.abs(sums).sum(axis=1) / expected
    return out


def _by_case(state: State) -> tuple[Int, Float, Int]:
    """Label, probability (the mean of the cell) and stratum of every case."""
    parts = [(layer, compress(state, [layer])) for layer in sorted(state.layers)]
    return (
        np.concatenate([np.full(part.n, layer.label) for layer, part in parts]),
        np.concatenate([np.repeat(part.p, part.times) for _, part in parts]),
        np.concatenate([np.full(part.n, layer.stratum) for layer, part in parts]),
    )


def _chances(strata: Int, whole: Int, filled: NDArray[np.intp]) -> Float:
    """Share of each stratum among the cases near each cell, (strata, cells that hold any)."""
    total = int(whole.sum())
    edges = np.concatenate([[0], np.cumsum(whole)])
    centre = 0.5 * (edges[filled] + edges[filled + 1])
    half = 0.5 * min(NEIGHBOURS, total)
    centre = np.clip(centre, half, total - half)
    low = np.minimum(edges[filled], centre - half)
    high = np.maximum(edges[filled + 1], centre + half)
    # Ranks within a cell are spread evenly: a cell's cases are as good as tied.
    rank, keep = np.unique(edges, return_index=True)
    shares = []
    for counts in strata:
        running = np.concatenate([[0], np.cumsum(counts)])[keep]
        shares.append(
            (np.interp(high, rank, running) - np.interp(low, rank, running)) / (high - low)
        )
    return np.array(shares)


def left_out(state: State) -> dict[str, dict[str, float]]:
    """Scores of every stratum on votes that had no part in forming it.

    The mean over all splits of every panel, which for two classes needs no random numbers: given m
    votes of which v are positive, the positives among those kept are hypergeometric.
    `scalecal.inference.selection.leave_votes_out` draws splits instead.
    """
    sums = {name: np.zeros(7) for name in ("overall", *STRATA)}
    for layer, number in state.layers.items():
        m, v = layer.readers, layer.positive
        if m < 3:
            continue
        cases = compress(state, [layer])
        n, total = cases.n, float(cases.weights @ cases.p)
        log_p, log_q = state.logs[number, :2]
        positive = cases.p >= 0.5
        each = np.maximum(cases.p, 1.0 - cases.p)
        confidence = float(cases.weights @ each)
        called = float(cases.weights @ positive)
        kept = (m + 1) // 2
        drawn = np.arange(max(0, kept - (m - v)), min(kept, v) + 1)
        chance = hypergeom.pmf(drawn, m, v, kept)
        share = (v - drawn) / (m - kept)
        codes = stratum_codes(np.column_stack([kept - drawn, drawn]))
        for name, use in (
            ("overall", codes > -2),
            *((s, codes == j) for j, s in enumerate(STRATA)),
        ):
            weight, f = float(chance[use].sum()), float((chance * share)[use].sum())
            own = weight * each - np.where(positive, f, weight - f)
            sums[name] += (
                weight * n,
                -(f * log_p + (weight - f) * log_q),
                weight * total - f * n,
                weight * confidence - (f * called + (weight - f) * (n - called)),
                weight**2 * n,
                weight * float(cases.weights @ own),
                float(cases.weights @ own**2),
            )
    return {name: _left_out_numbers(s) for name, s in sums.items()}


def _left_out_numbers(sums: Float) -> dict[str, float]:
    """Means of a stratum, with the interval of `scalecal.inference.selection.leave_votes_out`."""
    n = float(sums[0])
    nll, gap, over = (sums[1:4] / n if n > 0 else np.full(3, nan)).tolist()
    variance = sums[6] - 2.0 * over * sums[5] + over**2 * sums[4]
    half = NORMAL_95 * float(np.sqrt(max(variance, 0.0))) / n if n > 0 else nan
    return {
        "lvo_n": n,
        "lvo_vote_nll": nll,
        "lvo_gap": gap,
        "lvo_overconfidence": over,
        "lvo_overconfidence_low": over - half,
        "lvo_overconfidence_high": over + half,
    }


def agreement_statistics(cases: Compressed) -> dict[str, float]:
    """Fleiss' kappa and Krippendorff's alpha; see `scalecal.votes` for the definitions."""
    paired = cases.readers >= 2
    w, m = cases.weights[paired], cases.readers[paired].astype(np.float64)
    if len(w) == 0:
        return {"fleiss_kappa": nan, "krippendorff_alpha": nan}
    v = np.column_stack([m - cases.positive[paired], cases.positive[paired]])
    agreeing = (v * (v - 1.0)).sum(axis=1)
    by_class = w @ v
    total = float(by_class.sum())
    chance = float(((by_class / total) ** 2).sum())
    observed = float(w @ (agreeing / (m * (m - 1.0))) / w.sum())
    expected = 1.0 - float((by_class * (by_class - 1.0)).sum()) / (total * (total - 1.0))
    disagreement = 1.0 - float(w @ (agreeing / (m - 1.0))) / total
    return {
        "fleiss_kappa": nan if chance >= 1.0 else (observed - chance) / (1.0 - chance),
        "krippendorff_alpha": nan if expected <= 0.0 else 1.0 - disagreement / expected,
    }
