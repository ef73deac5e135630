"""The softening frontier: what one temperature alone would buy, and who does better.

A softer model always looks better on the low-agreement stratum. Dividing the uncalibrated logits by a
temperature traces what softening alone buys; a method that carries information about difficulty is
better than the point of that curve with the same mean predictive entropy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from scalecal.cases import Answers, Predictions
from scalecal.checks import Float, InputError
from scalecal.evaluation.cells import weights_of
from scalecal.evaluation.scores import Resampled, entropy, samples_of
from scalecal.metrics import METRICS
from scalecal.metrics.columns import chosen

if TYPE_CHECKING:
    import pandas as pd

TEMPERATURES: Float = np.concatenate(
    [np.geomspace(0.5, 1.0, 13)[:-1], np.geomspace(1.0, 2.0, 13)[:-1], np.geomspace(2.0, 5.0, 17)]
)
"""Temperatures of the curve, 0.5 to 5, with 1 (the predictions as they are) and 2 among them."""

HARD = "_hard"
"""Ends the name of a coordinate that is of the hardest stratum; the others are overall."""

_EDGE = 1e-12  # keeps the logits of certain predictions finite


def planes() -> dict[str, str]:
    """Coordinates of the frontier and their metrics: ECE of the hardest stratum, and what decides.

    Examples
    --------
    >>> planes()
    {'ece': 'ece', 'ece_hard': 'ece', 'nll': 'nll', 'vote_nll': 'vote_nll'}
    """
    main = chosen(lambda metric: metric.main)
    return {"ece": "ece", f"ece{HARD}": "ece", **{key: key for key in main}}


def soften(probs: Float, temperature: float) -> Float:
    """Divide the logits of predicted probabilities by a temperature.

    Examples
    --------
    >>> soften(np.array([0.8, 0.5]), 2.0).round(3).tolist()
    [0.667, 0.5]
    >>> soften(np.array([[0.2, 0.3, 0.5]]), 1.0).round(3).tolist()
    [[0.2, 0.3, 0.5]]
    """
    if probs.ndim == 1:
        p = np.clip(probs, _EDGE, 1 - _EDGE)
        return np.asarray(expit((np.log(p) - np.log1p(-p)) / temperature))
    z = np.log(np.clip(probs, _EDGE, 1.0)) / temperature
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(z / z.sum(axis=1, keepdims=True))


def equal_entropy(probs: Float, wanted: float) -> float:
    """Temperature at which the softened predictions have the wanted mean entropy.

    Mean entropy grows with the temperature, so there is one answer; it is sought in [0.01, 100] and
    the nearer end is returned where it lies outside.

    Examples
    --------
    >>> p = np.array([0.9, 0.2, 0.6])
    >>> round(equal_entropy(p, float(entropy(soften(p, 3.0)).mean())), 4)
    3.0
    """
    from scipy.optimize import brentq

    def excess(log_t: float) -> float:
        return float(entropy(soften(probs, np.exp(log_t))).mean()) - wanted

    low, high = np.log(0.01), np.log(100.0)
    if excess(low) >= 0:
        return float(np.exp(low))
    if excess(high) <= 0:
        return float(np.exp(high))
    return float(np.exp(brentq(excess, low, high, xtol=1e-7)))


def softened_name(method: str) -> str:
    """Name of the softened baseline that matches a method."""
    return f"softened to {method}"


def _pairs(cell: Predictions, method: str, baseline: str) -> dict[int, tuple[Answers, Answers]]:
    """Seed -> predictions of a method and of the baseline, where both have that seed."""
    seeds = [s for s in cell.seeds(method) if (baseline, s) in cell.answers]
    return {s: (cell.answers[method, s], cell.answers[baseline, s]) for s in seeds}


def _same_cases(pairs: Mapping[int, tuple[Answers, Answers]]) -> bool:
    return all(np.array_equal(own.index, plain.index) for own, plain in pairs.values())


def _matched(
    cell: Predictions, methods: Iterable[str], baseline: str
) -> dict[tuple[str, int], float]:
    """(method, seed) -> temperature of equal entropy, where the baseline has that seed too."""
    out = {}
    for method in methods:
        pairs = _pairs(cell, method, baseline)
        if not _same_cases(pairs):
            raise InputError(f"cell {cell.name}: {method} and {baseline} have other test cases")
        for seed, (own, plain) in pairs.items():
            out[method, seed] = equal_entropy(plain.p, float(entropy(own.p).mean()))
    return out


def _softened(
    cell: Predictions, matched: dict[tuple[str, int], float], baseline: str
) -> Predictions:
    more: dict[tuple[str, int], Answers] = {}
    for (method, seed), temperature in matched.items():
        own, plain = cell.answers[method, seed], cell.answers[baseline, seed]
        reader = None
        if own.p_reader is not None:  # each answer beside softening to its own entropy
            reader = soften(plain.p, equal_entropy(plain.p, float(entropy(own.p_reader).mean())))
        softened = Answers(soften(plain.p, temperature), reader, rows=plain.index)
        more[softened_name(method), seed] = softened
    return cell.with_answers(more)


def with_softened(
    cell: Predictions, methods: Iterable[str], *, baseline: str = "none"
) -> Predictions:
    """Return the cell with the baseline softened to each method's mean entropy, seed by seed."""
    return _softened(cell, _matched(cell, methods, baseline), baseline)


def _place(cell: Predictions, part: Answers, n_bins: int) -> dict[str, float]:
    """Where predictions lie in both planes."""
    w = weights_of(cell, part)
    out = dict.fromkeys(planes(), float("nan"))
    hard = cell.inside(part.index, cell.hardest or "none of them")
    for rows, prefix in ((slice(None), ""), (hard, HARD)):
        inside = part.take(rows)
        if len(inside.index) == 0:
            continue
        votes = None if cell.cases.votes is None else cell.cases.votes[inside.index]
        samples = samples_of(
            cell.y[inside.index],
            inside,
            votes,
            weights=None if w is None else w[rows],
            n_bins=n_bins,
        )
        for name, metric in planes().items():
            sample = samples[METRICS[metric].votes]
            if name.endswith(HARD) == bool(prefix) and sample is not None:
                out[name] = METRICS[metric].value(sample)
    return out | {"entropy": float(np.average(entropy(part.p), weights=w))}


def _mean(places: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([place[key] for place in places])) for key in places[0]}


def frontier_curve(
    cell: Predictions,
    *,
    baseline: str = "none",
    temperatures: Float = TEMPERATURES,
    n_bins: int = 15,
) -> pd.DataFrame:
    """Return the curve that softening the baseline traces, averaged over seeds.

    Returns
    -------
    DataFrame with columns temperature, ece, ece_hard, nll, vote_nll, entropy.
    """
    import pandas as pd

    seeds = cell.seeds(baseline)
    if not seeds:
        raise InputError(f"cell {cell.name} has no predictions of {baseline} to soften")
    rows: list[dict[str, Any]] = []
    for temperature in temperatures.tolist():
        places = []
        for seed in seeds:
            plain = cell.answers[baseline, seed]
            softened = Answers(soften(plain.p, temperature), rows=plain.index)
            places.append(_place(cell, softened, n_bins))
        rows.append({"temperature": temperature, **_mean(places)})
    return pd.DataFrame(rows)


def frontier_methods(
    cell: Predictions,
    *,
    baseline: str = "none",
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return each method's place, and its differences to softening of equal mean entropy.

    Methods that were tested on other cases than the baseline are left out.

    Returns
    -------
    DataFrame with columns method, ece, ece_hard, nll, vote_nll, entropy, at_temperature, and for each
    of the four coordinates x: difference_x (method minus softened baseline; negative is better),
    difference_x_low and difference_x_high (95 % interval by paired bootstrap over cases or groups) and
    difference_x_p.
    """
    import pandas as pd

    paired = {m: _pairs(cell, m, baseline) for m in cell.methods}
    chosen = {m: pairs for m, pairs in paired.items() if pairs and _same_cases(pairs)}
    matched = _matched(cell, [m for m in chosen if m != baseline], baseline)
    drawn = Resampled(
        [_softened(cell, matched, baseline)], n_bins=n_bins, n_resamples=n_resamples, seed=seed
    )
    rows: list[dict[str, Any]] = []
    for method, pairs in chosen.items():
        places = [_place(cell, own, n_bins) for own, _ in pairs.values()]
        row: dict[str, Any] = {"method": method, **_mean(places)}
        row["at_temperature"] = float(np.mean([matched.get((method, s), 1.0) for s in pairs]))
        for name, metric in planes().items():
            ends = (float("nan"),) * 4
            if method == baseline:
                ends = (0.0, 0.0, 0.0, 1.0)
            elif np.isfinite(row[name]):
                rival = softened_name(method)
                stratum = str(cell.hardest) if name.endswith(HARD) else "overall"
                c = drawn.contrast(method, rival, stratum=stratum, metric=metric)
                ends = (c.difference, c.low, c.high, c.p_value)
            keys = (f"difference_{name}{end}" for end in ("", "_low", "_high", "_p"))
            row |= dict(zip(keys, ends, strict=True))
        rows.append(row)
    return pd.DataFrame(rows)
