"""The softening frontier: what one temperature alone would buy, and who does better.

A softer model always looks better on the low-agreement stratum. Dividing the uncalibrated logits by a
temperature traces what softening alone buys; a method that carries information about difficulty is
better than the point of that curve with the same mean predictive entropy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from scalecal.cases import Answers, Predictions
from scalecal.checks import Float, InputError
from scalecal.evaluation.cells import weights_of
from scalecal.evaluation.changes import Row, change_of
from scalecal.evaluation.scores import Resampled, entropy, samples_in
from scalecal.metrics import METRICS
from scalecal.metrics.columns import chosen

TEMPERATURES: Float = np.concatenate(
    [np.geomspace(0.5, 1.0, 13)[:-1], np.geomspace(1.0, 2.0, 13)[:-1], np.geomspace(2.0, 5.0, 17)]
)
"""Temperatures of the curve, 0.5 to 5, with 1 (the predictions as they are) and 2 among them."""

MIN_GAIN = 0.0005
"""Least difference to softening that is one: smaller ones are printed as zero."""

_EDGE = 1e-12  # keeps the logits of certain predictions finite


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
        return _mean_entropy(soften(probs, np.exp(log_t))) - wanted

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
    """Seed -> answers of a method and of the baseline, where both have that seed and the same cases."""
    out = {}
    for seed in cell.seeds(method):
        if (baseline, seed) in cell.answers:
            out[seed] = (cell.answers[method, seed], cell.answers[baseline, seed])
    if any(not np.array_equal(own.index, plain.index) for own, plain in out.values()):
        raise InputError(f"cell {cell.name}: {method} and {baseline} have other test cases")
    return out


def _mean_entropy(probs: Float) -> float:
    return float(entropy(probs).mean())


def with_softened(
    cell: Predictions, methods: Iterable[str], *, baseline: str = "none"
) -> Predictions:
    """Return the cell with the baseline softened to each method's mean entropy, seed by seed."""
    more: dict[tuple[str, int], Answers] = {}
    for method in methods:
        for seed, (own, plain) in _pairs(cell, method, baseline).items():
            p = soften(plain.p, equal_entropy(plain.p, _mean_entropy(own.p)))
            reader = None
            # A reader's answer is softer than the label's: each stands beside softening to its own entropy.
            if own.p_reader is not None:
                reader = soften(plain.p, equal_entropy(plain.p, _mean_entropy(own.p_reader)))
            more[softened_name(method), seed] = Answers(p, reader, rows=plain.index)
    return cell.with_answers(more)


def planes(hard: str | None) -> dict[str, tuple[str, str]]:
    """Coordinates of the frontier: name -> (metric, stratum); `hard` is the hardest stratum.

    Examples
    --------
    >>> planes("low")
    {'ece': ('ece', 'overall'), 'ece_hard': ('ece', 'low'), 'nll': ..., 'vote_nll': ('vote_nll', 'overall')}
    """
    out = {"ece": ("ece", "overall"), "ece_hard": ("ece", hard or "")}
    for key in chosen(lambda metric: metric.main):
        out[key] = (key, "overall")
    return out


def _coordinates(cell: Predictions, parts: Sequence[Answers], n_bins: int) -> dict[str, float]:
    """Where predictions lie in all planes: means over seeds, NaN where a coordinate is undefined."""
    places = []
    for part in parts:
        weights = weights_of(cell, part)
        place = {}
        for name, (metric, stratum) in planes(cell.hardest).items():
            samples = samples_in(cell, part, stratum, weights=weights, n_bins=n_bins)
            place[name] = float("nan")
            if samples is not None and (sample := samples[METRICS[metric].votes]) is not None:
                place[name] = METRICS[metric].value(sample)
        place["entropy"] = float(np.average(entropy(part.p), weights=weights))
        places.append(place)
    return {name: float(np.mean([place[name] for place in places])) for name in places[0]}


def frontier_curve(
    cell: Predictions,
    *,
    baseline: str = "none",
    temperatures: Float = TEMPERATURES,
    n_bins: int = 15,
) -> list[Row]:
    """Return the curve that softening the baseline traces, averaged over seeds.

    Returns
    -------
    Rows of temperature, ece, ece_hard, nll, vote_nll and entropy.
    """
    plain = [cell.answers[baseline, seed] for seed in cell.seeds(baseline)]
    if not plain:
        raise InputError(f"cell {cell.name} has no predictions of {baseline} to soften")
    rows = []
    for temperature in temperatures.tolist():
        softened = [Answers(soften(part.p, temperature), rows=part.index) for part in plain]
        rows.append({"temperature": temperature, **_coordinates(cell, softened, n_bins)})
    return rows


def frontier_methods(
    cell: Predictions,
    *,
    baseline: str = "none",
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[Row]:
    """Return each method's place, and its differences to softening of equal mean entropy.

    Methods that were tested on other cases than the baseline are left out.

    Returns
    -------
    Rows of method, ece, ece_hard, nll, vote_nll, entropy, at_temperature, and for each of the four
    coordinates x: difference_x (method minus softened baseline; negative is better), difference_x_low and
    difference_x_high (95 % interval by paired bootstrap over cases or groups) and difference_x_p.
    """
    paired = {}
    for method in cell.methods:
        # A method of other test cases has no place on this curve, and costs the others nothing.
        with contextlib.suppress(InputError):
            paired[method] = _pairs(cell, method, baseline)
    others = [method for method, pairs in paired.items() if pairs and method != baseline]
    softened = with_softened(cell, others, baseline=baseline)
    drawn = Resampled([softened], n_bins=n_bins, n_resamples=n_resamples, seed=seed)
    rows = []
    for method, pairs in paired.items():
        if not pairs:
            continue
        row: Row = {
            "method": method,
            **_coordinates(cell, [own for own, _ in pairs.values()], n_bins),
        }
        row["at_temperature"] = 1.0
        if method != baseline:
            matched = [
                equal_entropy(plain.p, _mean_entropy(own.p)) for own, plain in pairs.values()
            ]
            row["at_temperature"] = float(np.mean(matched))
        for name, (metric, stratum) in planes(cell.hardest).items():
            change = dict.fromkeys(("difference", "low", "high", "p"), float("nan"))
            if method == baseline:
                change = {"difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}
            elif np.isfinite(row[name]):
                rival = softened_name(method)
                change = change_of(drawn.contrast(method, rival, stratum=stratum, metric=metric))
            row[f"difference_{name}"] = change.pop("difference")
            row |= {f"difference_{name}_{end}": value for end, value in change.items()}
        rows.append(row)
    return rows


def frontier_facts(
    cell: Predictions, rows: Sequence[Row], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The softening curve of the baseline, every method's place, and its difference to softening.

    A point's interval is that of its paired change against the baseline, set beside the baseline's
    own value; the baseline itself has none.
    """
    base = cell.baseline
    value = {(r["method"], r["stratum"]): r for r in rows}
    points = []
    for method in cell.methods:
        point: Row = {"method": method}
        for name, (metric, stratum) in planes(cell.hardest).items():
            row = value.get((method, stratum), {})
            if metric not in row:
                continue
            point[name] = row[metric]
            change = row["changes"].get(metric)
            start = value.get((base, stratum), {}).get(metric)
            if change and start is not None and method != base:
                point[f"{name}_low"] = start + change["low"]
                point[f"{name}_high"] = start + change["high"]
        points.append(point)
    return {
        "hard": cell.hardest,
        "curve": frontier_curve(cell, baseline=base, n_bins=options["n_bins"]),
        "points": points,
        "beyond": frontier_methods(cell, baseline=base, **options),
    }


def beside_softening(beyond: Sequence[Row], metric: str) -> dict[str, Row]:
    """Each method beside one temperature that gives the baseline the same mean entropy, by one metric.

    `better` is whether a method is more than softening: the interval of the difference lies below 0, and
    the difference shows in three digits. (A temperature is found again to rounding only.)
    """
    out = {}
    for row in beyond:
        change = {"difference": row[f"difference_{metric}"]}
        change |= {end: row[f"difference_{metric}_{end}"] for end in ("low", "high")}
        out[row["method"]] = {
            "metric": metric,
            "temperature": row["at_temperature"],
            **change,
            "better": bool(change["high"] < 0 and change["difference"] <= -MIN_GAIN),
        }
    return out
