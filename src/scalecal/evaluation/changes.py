"""Numbers of an evaluation by method and stratum: means over seeds, nulls, paired changes, shares.

Every comparison on the same cases is made here: methods with the baseline and with the baseline softened,
models with the first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from scalecal.cases import BASELINE, Answers, Predictions
from scalecal.checks import Float, InputError
from scalecal.evaluation.cells import PUBLISHED, VOTED
from scalecal.evaluation.judging import JUDGES
from scalecal.evaluation.scores import Nulls, Resampled, entropy
from scalecal.inference.paired import Contrast, RecoveredShare, contrast_of, recovered_share
from scalecal.inference.units import NORMAL_95, student_error, student_p
from scalecal.metrics import METRICS, holm
from scalecal.metrics.columns import chosen
from scalecal.probes.methods import METHODS

if TYPE_CHECKING:
    import pandas as pd

REFERENCE = "vote-fraction"
"""Training on the votes themselves: the gain whose share the others recover."""

Row = dict[str, Any]
Changes = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Method -> stratum -> metric -> change against the baseline."""


def compared_metrics() -> list[str]:
    """Metrics of every method and stratum, as means over seeds."""
    return chosen(lambda metric: metric.compared)


def changed_metrics(stratum: str) -> list[str]:
    """Metrics whose changes against the baseline are computed: in strata, those that decide."""
    return chosen(
        lambda metric: (
            metric.compared
            and metric.resampled
            and metric.direction != "none"
            and (stratum == "overall" or metric.main)
        )
    )


def preset_of(cell: Predictions, method: str) -> str:
    """Preset a method was trained by in this run."""
    record = METHODS.get(method, METHODS[BASELINE])
    return str(cell.meta.get("preset") or record.preset)


def method_rows(
    cell: Predictions, results: pd.DataFrame, nulls: Mapping[str, Nulls], changes: Changes
) -> list[Row]:
    """One row per method and stratum: means over seeds, floor, null band, changes."""
    grouped = results.groupby(["method", "stratum", "metric"], sort=False)
    over_seeds = grouped.agg(
        mean=("value", "mean"), sd=("value", "std"), floor=("floor", "mean")
    ).to_dict("index")
    out = []
    for method in cell.methods:
        index = cell.first(method).index
        for stratum in ("overall", *cell.stratum_names):
            at = (method, stratum, "ece")
            if at not in over_seeds:
                continue
            drawn = [by_stratum.get(stratum) for by_stratum in nulls.get(method, {}).values()]
            row: Row = {
                "method": method,
                "stratum": stratum,
                "n": len(index[cell.inside(index, stratum)]),
                "seeds": len(cell.seeds(method)),
                "ece_sd": over_seeds[at]["sd"],
                "floor": over_seeds[at]["floor"],
                **null_band(drawn),
            }
            if stratum == "overall":
                row["null"] = row["floor"]  # the same quantity, without the noise of draws
            for metric in compared_metrics():
                if (method, stratum, metric) in over_seeds:
                    row[metric] = over_seeds[method, stratum, metric]["mean"]
            row["changes"] = changes.get(method, {}).get(stratum, {})
            out.append(row)
    return out


def null_band(by_seed: Sequence[Float | None]) -> dict[str, float]:
    """Mean, 5th and 95th percentile of each seed's null, averaged over the seeds that have one."""
    parts = [drawn for drawn in by_seed if drawn is not None and len(drawn)]
    if not parts:
        return dict.fromkeys(("null", "null_low", "null_high"), float("nan"))
    ends = np.mean([np.quantile(drawn, [0.05, 0.95]) for drawn in parts], axis=0)
    middle = float(np.mean([drawn.mean() for drawn in parts]))
    return {"null": middle, "null_low": float(ends[0]), "null_high": float(ends[1])}


def _pairs(
    cell: Predictions, drawn: Resampled, metrics_of: Callable[[str], Sequence[str]]
) -> Iterator[tuple[str, str, str, Contrast, Float]]:
    """Every method against the baseline, by stratum and metric, where both are defined.

    Yields method, stratum, metric, the contrast, and the difference in every resample.
    """
    for method in cell.methods:
        for stratum in ("overall", *cell.stratum_names):
            for metric in metrics_of(stratum):
                try:
                    a = drawn.drawn(cell.encoder, cell.baseline, stratum, metric)
                    b = drawn.drawn(cell.encoder, method, stratum, metric)
                    change = contrast_of(a, b)
                except InputError:  # no votes, more than two classes, no seed in common
                    continue
                yield method, stratum, metric, change, b.samples - a.samples


def paired_changes(
    cell: Predictions, drawn: Resampled, loss_sd: Mapping[str, float] | None = None
) -> Changes:
    """Every method's changes against the baseline: cases (or groups) resampled, means over seeds.

    `p` is the larger p-value of both kinds of noise, `sd` the change's spread over resamples, `units` what
    was resampled. Too few groups leave the difference alone. `loss_sd` is what the estimation error of a kept
    calibrator adds to the spread of its label NLL, by method.
    """
    out: Changes = {}
    for method in cell.methods:
        out[method] = {stratum: {} for stratum in ("overall", *cell.stratum_names)}
    for method, stratum, metric, change, resampled in _pairs(cell, drawn, changed_metrics):
        if not np.isfinite(change.difference):
            continue
        sd = float("nan")
        if np.isfinite(resampled).any():
            sd = float(np.nanstd(resampled, ddof=1))
        out[method][stratum][metric] = {**change_of(change), "sd": sd, "units": change.units}
    for method, sd in (loss_sd or {}).items():
        own = out[method]["overall"]
        if "nll" in own:
            own["nll"] = widened(own["nll"], sd)
    return out


def widened(change: Mapping[str, float], sd: float) -> dict[str, float]:
    """Return a change with an independent error added to its interval and its p-value.

    Examples
    --------
    >>> change = {"difference": -0.2, "low": -0.5, "high": 0.1, "p": 0.2, "sd": 0.15, "units": 900}
    >>> wider = widened(change, 0.2)
    >>> round(wider["low"], 6), round(wider["high"], 6), round(wider["sd"], 6)
    (-0.7, 0.3, 0.25)
    """
    whole = float(np.hypot(change["sd"], sd))
    error, degrees = student_error(whole, change["units"])
    half = NORMAL_95 * whole
    low, high = change["low"], change["high"]
    if change["sd"] > 0:
        low, high = (
            change["difference"] + (end - change["difference"]) * whole / change["sd"]
            for end in (low, high)
        )
    elif whole > 0:
        low, high = change["difference"] - half, change["difference"] + half
    p = change["p"]
    if error > 0:
        p = float(np.maximum(p, student_p(change["difference"], error, degrees)))
    return {**change, "low": low, "high": high, "p": p, "sd": whole}


def differing_metrics() -> list[str]:
    """Metrics by which models are compared, those that are tested first."""
    tested = chosen(lambda metric: metric.tested)
    others = chosen(lambda metric: metric.resampled and metric.in_audit and not metric.tested)
    return [*tested, *others]


def differences(cell: Predictions, drawn: Resampled) -> list[Row]:
    """Differences of all models to the baseline, by stratum and metric, each with its paired bootstrap.

    Differences of the same cases share those cases' noise, so that a bootstrap of them is sound even
    for ECE, whose own bootstrap is not. Rows hold model, stratum, metric, n, a (the baseline's value), b (the
    model's), difference (b - a), low, high, p_value, and p_holm, which is adjusted over all models for
    the tested metrics (over all cases and in strata apart) and is NaN for the others.
    """
    out: list[Row] = []
    # Over all cases and in strata apart: many strata must not cost the whole its power.
    over_all: list[Row] = []
    in_strata: list[Row] = []
    metrics = differing_metrics()
    for model, stratum, metric, change, resampled in _pairs(cell, drawn, lambda _: metrics):
        if model == cell.baseline:
            continue
        row: Row = {
            "model": model,
            "stratum": stratum,
            "metric": metric,
            "n": change.n,
            "a": change.reference,
            "b": change.value,
            "difference": change.difference,
            "low": change.low,
            "high": change.high,
            "p_value": change.p_cases,
            "p_holm": float("nan"),
        }
        out.append(row)
        if not METRICS[metric].tested:
            continue
        row["p_holm"] = _tail(resampled, change.p_cases, change.units)
        if stratum == "overall":
            over_all.append(row)
        else:
            in_strata.append(row)
    for rows in (over_all, in_strata):
        adjusted = holm([row["p_holm"] for row in rows] or [float("nan")])
        for row, p in zip(rows, adjusted, strict=False):
            row["p_holm"] = float(p)
    return out


def _tail(samples: Float, p: float, units: int) -> float:
    """A p-value that holds far in the tail too: by Student's t from the spread of the resamples.

    Counts of R resamples end at 2 / (R + 1), which Holm's rule would multiply above any level, and have
    the tails of a normal law, too thin for few units. Of a count that did not end the larger p is taken.
    """
    known = samples[np.isfinite(samples)]
    if not len(known):
        return p
    error, degrees = student_error(float(known.std(ddof=1)), units)
    if not error > 0:
        return p
    by_t = student_p(float(known.mean()), error, degrees)
    if p > 2.0 / (len(known) + 1):
        return max(p, by_t)
    return by_t


def change_of(change: Contrast) -> dict[str, float]:
    """A contrast as facts hold it."""
    return {
        "difference": change.difference,
        "low": change.low,
        "high": change.high,
        "p": change.p_value,
    }


def recovered(cell: Predictions, drawn: Resampled, method: str) -> Row:
    """Share of the gain of training on the votes that a method recovers, or why it has none."""
    why = ""
    if cell.cases.votes is None:
        why = "no votes"
    elif not {BASELINE, REFERENCE, method} <= set(cell.methods):
        why = f"{BASELINE}, {REFERENCE} and {method} were not all run"
    elif preset_of(cell, method) != preset_of(cell, BASELINE):
        why = f"trained with another preset than {BASELINE}, so the gains are not comparable"
    if why:
        nan = float("nan")
        return asdict(RecoveredShare(nan, nan, nan, why))
    return asdict(drawn.recovered(method, REFERENCE, stratum="overall", metric="vote_nll"))


# What votes would buy: the panel by number of voted cases, and what an error of kappa would cost

Losses = dict[str, Float]
"""Metric -> loss of each test case of a seed; NaN where a case has no votes."""


class AtKappa(NamedTuple):
    """The panel of the published numbers at one kappa, in one seed: its rho and the cases' losses."""

    kappa: float
    rho: float
    losses: Losses


@dataclass(frozen=True, eq=False)
class VotedCurve:
    """Scores of the panel by number of voted cases.

    Attributes
    ----------
    scores : list of dict
        One per seed, draw, kind of reads, number of voted cases and metric: keys ``seed``, ``voted``,
        ``reads``, ``draw``, ``metric``, ``value``, ``floor``.
    losses : dict
        (voted, reads) -> seed -> losses of ``vote_nll`` and ``nll``, means over draws.
    notes : list of str
        Which numbers were left out, and why.
    by_kappa : dict
        Factor -> seed -> `panel-published` with its kappa multiplied by the factor; empty where it
        cannot be fitted.
    """

    scores: list[dict[str, Any]]
    losses: dict[tuple[int, str], dict[int, Losses]]
    notes: list[str]
    by_kappa: dict[float, dict[int, AtKappa]] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Sequence[VotedCurve]) -> VotedCurve:
        """One curve of several seeds' curves."""
        losses: dict[tuple[int, str], dict[int, Losses]] = {}
        by_kappa: dict[float, dict[int, AtKappa]] = {}
        for part in parts:
            for key, by_seed in part.losses.items():
                losses.setdefault(key, {}).update(by_seed)
            for factor, at in part.by_kappa.items():
                by_kappa.setdefault(factor, {}).update(at)
        scores = [row for part in parts for row in part.scores]
        notes = list(dict.fromkeys(n for part in parts for n in part.notes))
        # A seed's published numbers may be of no use: then the others' means would be of other cases.
        whole = by_kappa if all(part.by_kappa for part in parts) else {}
        return cls(scores, losses, notes, whole)


def voted_points(cell: Predictions, drawn: Resampled, curve: VotedCurve | None) -> Row | None:
    """Share recovered and change of label NLL by number of voted cases and kind of reads.

    Intervals are over test cases, of means over seeds and draws; `draws_low` and `draws_high` are the
    10th and 90th percentile of the share over draws. `all` is the panel fitted to all votes.
    """
    import pandas as pd

    if curve is None:
        return None
    scores = pd.DataFrame(curve.scores)
    start = drawn.drawn(cell.encoder, BASELINE, "overall", "vote_nll")
    best = drawn.drawn(cell.encoder, REFERENCE, "overall", "vote_nll")
    gain = start.value - best.value
    points = []
    for (n, reads), by_seed in sorted(curve.losses.items()):
        inside = scores[(scores["voted"] == n) & (scores["reads"] == reads)]
        table = inside.pivot_table(index=["seed", "draw"], columns="metric", values="value")
        spread = (start.value - table["vote_nll"].groupby("draw").mean()) / gain
        gains = _gains(cell, drawn, by_seed)
        point = {"voted": n, "reads": reads, **gains, "draws_low": None, "draws_high": None}
        if np.isfinite(gains["share"]):
            point["draws_low"] = float(spread.quantile(0.1))
            point["draws_high"] = float(spread.quantile(0.9))
        for metric in compared_metrics():
            if metric in table:
                point[metric] = float(table[metric].mean())
        points.append(point)
    return {
        "points": points,
        "all": recovered(cell, drawn, VOTED),
        "published": recovered(cell, drawn, PUBLISHED),
    }


def _gains(cell: Predictions, drawn: Resampled, by_seed: Mapping[int, Losses]) -> Row:
    """Share recovered, and changes against the baseline, of given losses of the test cases by seed."""
    own = {}
    for metric in JUDGES.values():
        given = {s: (cell.answers[VOTED, s].index, kept[metric]) for s, kept in by_seed.items()}
        own[metric] = drawn.mean_of(cell.encoder, given)
    base = {m: drawn.drawn(cell.encoder, BASELINE, "overall", m) for m in own}
    best = drawn.drawn(cell.encoder, REFERENCE, "overall", "vote_nll")
    share = recovered_share(base["vote_nll"], best, own["vote_nll"])
    return {
        **asdict(share),
        "changes": {m: change_of(contrast_of(base[m], own[m])) for m in own},
        **{m: own[m].value for m in own},
    }


def kappa_sensitivity(
    cell: Predictions, drawn: Resampled, curve: VotedCurve | None
) -> list[Row] | None:
    """What an error of the published kappa costs: `panel-published` at each multiple of it.

    Kappa and rho are means over seeds, where these have their own.
    """
    if curve is None or not curve.by_kappa:
        return None
    out = []
    for factor, by_seed in sorted(curve.by_kappa.items()):
        kappa = np.mean([at.kappa for at in by_seed.values()])
        rho = np.mean([at.rho for at in by_seed.values()])
        gains = _gains(cell, drawn, {seed: at.losses for seed, at in by_seed.items()})
        out.append({"factor": factor, "kappa": kappa, "rho": rho, **gains})
    return out


# What softening by one temperature alone would buy: a softer model always looks better on the low-agreement
# stratum. A method that carries information about difficulty is better than the uncalibrated logits divided
# by the temperature at which these have the same mean predictive entropy.

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
    return np.asarray(softmax(np.log(np.clip(probs, _EDGE, 1.0)) / temperature, axis=1))


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


def _mean_entropy(probs: Float) -> float:
    return float(entropy(probs).mean())


def _softened(
    cell: Predictions, method: str, baseline: str
) -> tuple[dict[tuple[str, int], Answers], list[float]]:
    """The baseline softened to a method's mean entropy, seed by seed, and the temperatures."""
    made: dict[tuple[str, int], Answers] = {}
    temperatures = []
    for seed in cell.seeds(method):
        if (baseline, seed) not in cell.answers:
            continue
        own, plain = cell.answers[method, seed], cell.answers[baseline, seed]
        if not np.array_equal(own.index, plain.index):
            raise InputError(f"cell {cell.name}: {method} and {baseline} have other test cases")
        temperatures.append(equal_entropy(plain.p, _mean_entropy(own.p)))
        reader = None
        # A reader probability is softer than the label's: each is compared at its own entropy.
        if own.p_reader is not None:
            reader = soften(plain.p, equal_entropy(plain.p, _mean_entropy(own.p_reader)))
        p = soften(plain.p, temperatures[-1])
        made[softened_name(method), seed] = Answers(p, reader, rows=plain.index)
    return made, temperatures


def with_softened(
    cell: Predictions, methods: Iterable[str], *, baseline: str = BASELINE
) -> Predictions:
    """Return the cell with the baseline softened to each method's mean entropy, seed by seed."""
    more: dict[tuple[str, int], Answers] = {}
    for method in methods:
        more |= _softened(cell, method, baseline)[0]
    return cell.with_answers(more)


def beside_softening(
    cell: Predictions,
    metric: str,
    *,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Row]:
    """Compare each method with one temperature that gives the baseline the same mean entropy.

    Methods that were tested on other cases than the baseline are left out.

    Returns
    -------
    Method -> ``metric``, ``temperature`` (mean over seeds), ``difference`` (method minus softened baseline;
    negative is better), ``low`` and ``high`` (95 % interval by paired bootstrap over cases or groups), and
    ``better``: whether the interval lies below 0 and the difference shows in three digits. (A temperature is
    found again to rounding only.)
    """
    more: dict[tuple[str, int], Answers] = {}
    temperatures: dict[str, float] = {}
    for method in cell.methods:
        # A method of other test cases costs the others nothing.
        with contextlib.suppress(InputError):
            made, found = _softened(cell, method, cell.baseline)
            if found:
                temperatures[method] = float(np.mean(found))
                more |= made
    softened = cell.with_answers(more)
    drawn = Resampled([softened], n_bins=n_bins, n_resamples=n_resamples, seed=seed)
    out = {}
    for method, temperature in temperatures.items():
        change = {"difference": 0.0, "low": 0.0, "high": 0.0}
        if method == cell.baseline:
            temperature = 1.0
        else:
            contrast = drawn.contrast(method, softened_name(method), metric=metric)
            change = {key: getattr(contrast, key) for key in change}
        better = bool(change["high"] < 0 and change["difference"] <= -MIN_GAIN)
        out[method] = {"metric": metric, "temperature": temperature, **change, "better": better}
    return out
