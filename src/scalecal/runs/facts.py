"""The facts about a cell, computed once: `compare_cell` makes them, every display reads them.

Means over seeds, floors, nulls, paired changes, the best method, audits and the curves of the page are
one JSON-able dict, which a run folder keeps as ``facts.json``. Terminal, page, tables and figures render
it and compute nothing, so they cannot disagree. Bootstrap and null have the same number of draws; the
bootstrap's are shared by all methods, a method's null is shared by its seeds.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal import metrics
from scalecal.auditing.audits import Audit, audit_predictions
from scalecal.auditing.sentences import LEVEL
from scalecal.checks import Float, InputError, ScalecalWarning
from scalecal.inference.paired import contrast_of
from scalecal.io.store import plain
from scalecal.metrics.arguments import read_hard_event
from scalecal.runs import wording
from scalecal.runs.cells import BASELINE, Cell, Prediction
from scalecal.runs.frontier import PLANES, frontier_curve, frontier_methods
from scalecal.runs.methods import METHODS
from scalecal.runs.scores import Nulls, Resampled, draw_nulls, score_cell

if TYPE_CHECKING:
    import pandas as pd

CONTROL = "scale-shuffled"
REFERENCE = "vote-fraction"
"""Training on the votes themselves: the gain whose share the others recover."""

CASES_LISTED = 8
"""Over-confident cases listed of each stratum."""

THRESHOLDS = (0.8, 0.9, 0.95)
"""Confidence below which a case goes to a second reader, for the table."""

_STRATUM_CHANGES = ("ece", "nll", "vote_nll")
_CURVE_POINTS = 60  # of a referral curve: more would not be seen on a page

Row = dict[str, Any]
Changes = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Method -> stratum -> metric -> change against the baseline."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """All methods of a cell, paired, and the facts about them. Made by `compare_cell`.

    Attributes
    ----------
    cell : Cell
        The cell, with the remedies that were tried on predictions alone.
    facts : dict
        Everything any display shows, as ``facts.json`` holds it; undefined numbers are None.
    results : DataFrame
        Tidy: method, seed, stratum, metric, value, floor.
    audits : dict
        Audits of the methods that are shown side by side: the baseline and the best.
    """

    cell: Cell
    facts: dict[str, Any]
    results: pd.DataFrame
    audits: Mapping[str, Audit]

    @property
    def table(self) -> pd.DataFrame:
        """One row per method: what ``comparison.csv`` holds."""
        return wording.comparison_table(self.facts)

    @property
    def best(self) -> str:
        """The best method that may be recommended, or the baseline where there is none."""
        best = self.facts["best"]
        return str(best["method"] if best else self.facts["baseline"])

    @property
    def sentences(self) -> list[str]:
        """The result in plain sentences."""
        return wording.all_sentences(self.facts)

    def __str__(self) -> str:
        return wording.comparison_text(self.facts)

    def _repr_html_(self) -> str:
        shown = wording.shown_table(self.facts)
        return str(shown.to_html(index=False, escape=True, border=0))


def compare_cell(
    cell: Cell,
    *,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
    audits: Mapping[str, Audit] | None = None,
) -> Comparison:
    """Compare every method of a cell with its baseline, and gather the facts.

    Parameters
    ----------
    n_bins
        Bins of equal width for ECE.
    n_resamples, seed
        For intervals and nulls.
    audits
        Audits of the first seed of some methods, made with the same options.

    Examples
    --------
    >>> from scalecal.datasets import simulate
    >>> from scalecal.runs.grid import run_grid
    >>> data = simulate(400, dim=8, seed=0)
    >>> grid = run_grid(data, methods=["none", "temperature"], seeds=2)
    >>> compare_cell(grid.cell).table["method"].tolist()
    ['none', 'temperature']
    """
    options: dict[str, Any] = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    cell, derived = with_remedies(_main_methods(cell))
    base = cell.baseline
    nulls = {method: draw_nulls(cell, method, **options) for method in cell.methods}
    results = score_cell(
        cell, n_bins=n_bins, nulls=nulls.get(BASELINE) if cell.stratum_names else None
    )
    drawn = Resampled([cell], **options)
    changes = _changes(cell, drawn)
    rows = _rows(cell, results, nulls, changes)
    best = best_method(changes, _candidates(cell))
    shown = [base, *([best["method"]] if best else [])]
    made = dict(audits or {})
    made = {m: made.get(m) or audit_predictions(cell.answers(m), **options) for m in shown}
    first = cell.first(base)
    facts: dict[str, Any] = {
        "name": _name(cell),
        "dataset": cell.dataset,
        "encoder": cell.encoder or None,
        "classes": list(cell.cases.classes),
        "event": "positive class" if first.p.ndim == 1 else "top class is right",
        "n": cell.cases.n,
        "n_test": len(first.rows),
        "seed": cell.seeds(base)[0],
        "n_seeds": len(cell.seeds(base)),
        **options,
        "resampled": drawn.resampled,
        "strata": list(cell.stratum_names),
        "hardest": cell.hardest,
        "agreement": cell.cases.agreement,
        "votes": cell.cases.votes is not None,
        "methods": cell.methods,
        "derived": derived,
        "about": _about(cell, derived),
        "presets": {m: _preset(cell, m) for m in cell.methods},
        "baseline": base,
        "best": best,
        "shown": shown,
        "audits": {m: _audit_facts(audit) for m, audit in made.items()},
        "rows": rows,
        "recovered": {m: _recovered(cell, drawn, m) for m in cell.methods},
        "contrasts": _contrasts(cell, drawn),
        "reliability": {m: reliability_facts(audit) for m, audit in made.items()},
        "frontier": _frontier(cell, rows, options),
        "referral": _referral(cell, shown),
        "cases": _overconfident(cell, base, best["method"] if best else None),
    }
    facts = dict(plain(facts))
    facts["lead"] = wording.lead([facts])
    facts["more"] = wording.further(facts)
    tidy = results.drop(columns=["dataset", "encoder"])
    return Comparison(cell, facts, tidy, made)


def _name(cell: Cell) -> str:
    """Data set and encoder, and where a model was tested elsewhere than trained."""
    parts = [part for part in (cell.dataset, cell.encoder) if part]
    if cell.shift is not None:
        parts.append("trained on {}, tested on {}".format(*cell.shift))
    return ", ".join(parts)


def _main_methods(cell: Cell) -> Cell:
    """Leave out other settings of a method that is there itself: tables hold those."""
    settings = {m for m, of in cell.variants.items() if of in cell.methods}
    kept = {key: part for key, part in cell.predictions.items() if key[0] not in settings}
    return replace(cell, predictions=kept)


def _audit_facts(audit: Audit) -> dict[str, Any]:
    whole = audit.to_dict()
    return {"rows": whole.pop("strata"), **whole}


def _about(cell: Cell, derived: Mapping[str, str]) -> dict[str, str]:
    """What each method does, in a sentence, where it is known."""
    known = {m: f"{METHODS[m].label}. {METHODS[m].about}" for m in cell.methods if m in METHODS}
    return {**known, **derived}


def _preset(cell: Cell, method: str) -> str | None:
    """Preset a method was trained by in this run."""
    own = METHODS[method if method in METHODS else BASELINE].preset
    return str(cell.meta.get("preset") or own)


# Numbers by method and stratum


def _rows(
    cell: Cell, results: pd.DataFrame, nulls: Mapping[str, Nulls], changes: Changes
) -> list[Row]:
    """One row per method and stratum: means over seeds, floor, null band, changes."""
    grouped = results.groupby(["method", "stratum", "metric"], sort=False)
    mean: dict[Any, float] = grouped["value"].mean().to_dict()
    floor: dict[Any, float] = grouped["floor"].mean().to_dict()
    over_seeds: dict[Any, float] = grouped["value"].std(ddof=1).to_dict()
    out = []
    for method in cell.methods:
        index = cell.first(method).rows
        for stratum in ("overall", *cell.stratum_names):
            at = (method, stratum, "ece")
            if at not in mean:
                continue
            row: Row = {
                "method": method,
                "stratum": stratum,
                "n": len(index[cell.inside(index, stratum)]),
                "seeds": len(cell.seeds(method)),
                "ece_sd": over_seeds[at],
                "floor": floor[at],
                **_bands([drawn.get(stratum) for drawn in nulls[method].values()]),
            }
            if stratum == "overall":
                row["null"] = row["floor"]  # the same quantity, without the noise of draws
            row |= {
                m: mean[method, stratum, m] for m in wording.POINTS if (method, stratum, m) in mean
            }
            row["changes"] = changes.get(method, {}).get(stratum, {})
            out.append(row)
    return out


def _bands(by_seed: Sequence[Float | None]) -> dict[str, float]:
    """Mean, 5th and 95th percentile of each seed's null, averaged over the seeds that have one."""
    parts = [drawn for drawn in by_seed if drawn is not None and len(drawn)]
    if not parts:
        return dict.fromkeys(("null", "null_low", "null_high"), float("nan"))
    ends = np.mean([np.quantile(drawn, [0.05, 0.95]) for drawn in parts], axis=0)
    middle = float(np.mean([drawn.mean() for drawn in parts]))
    return {"null": middle, "null_low": float(ends[0]), "null_high": float(ends[1])}


def _changes(cell: Cell, drawn: Resampled) -> Changes:
    """Every method's changes against the baseline: cases (or groups) resampled, means over seeds.

    `p` is the larger p-value of both kinds of noise, `sd` the change's spread over resamples.
    """
    base = cell.baseline
    out: Changes = {}
    for method in cell.methods:
        if not set(cell.seeds(method)) & set(cell.seeds(base)):
            continue
        out[method] = {}
        for stratum in ("overall", *cell.stratum_names):
            by_metric = {}
            for metric in wording.CHANGES if stratum == "overall" else _STRATUM_CHANGES:
                try:
                    a, b = (drawn.drawn(cell.encoder, m, stratum, metric) for m in (base, method))
                    change = contrast_of(a, b)
                except InputError:
                    continue  # not defined here: no votes, more than two classes, an empty stratum
                if np.isfinite([change.difference, change.low, change.high]).all():
                    by_metric[metric] = {
                        "difference": change.difference,
                        "low": change.low,
                        "high": change.high,
                        "p": change.p_value,
                        "sd": float(np.nanstd(b.samples - a.samples, ddof=1)),
                    }
            out[method][stratum] = by_metric
    return out


def _recovered(cell: Cell, drawn: Resampled, method: str) -> dict[str, Any]:
    """Share of the gain of training on the votes that a method recovers, or why it has none."""
    why = ""
    if cell.cases.votes is None:
        why = "no votes"
    elif not {BASELINE, REFERENCE} <= set(cell.methods):
        why = f"{BASELINE} and {REFERENCE} were not both run"
    elif _preset(cell, method) != _preset(cell, BASELINE):
        why = f"trained by another preset than {BASELINE}, so the gain is not its own"
    if why:
        return {"share": None, "low": None, "high": None, "reason": why}
    share = drawn.recovered(method, REFERENCE, stratum="overall", metric="vote_nll")
    return {"share": share.share, "low": share.low, "high": share.high, "reason": share.reason}


def _contrasts(cell: Cell, drawn: Resampled) -> dict[str, Any]:
    """SCALE against plain label smoothing, and against its negative control, where both were run."""
    metric = "nll" if cell.cases.votes is None else "vote_nll"
    out = {}
    for name, rival in (("plain", "vanilla-ls"), ("control", CONTROL)):
        if {"scale", rival} <= set(cell.methods):
            contrast = drawn.contrast("scale", rival, metric=metric)
            out[name] = {**asdict(contrast), "p_value": contrast.p_value, "metric": metric}
    return out


# What may be recommended


def _candidates(cell: Cell) -> set[str]:
    """Methods that may be recommended: no negative control, and none trained on readers' votes."""
    return {
        m
        for m in cell.methods
        if m != cell.baseline
        and not (m in METHODS and (METHODS[m].needs_votes or METHODS[m].control))
    }


def best_method(changes: Mapping[str, Any], candidates: Collection[str]) -> dict[str, Any] | None:
    """Choose the method with the lowest vote NLL (label NLL without votes) at no clear cost.

    Candidates whose label NLL is clearly worse than the baseline's are left out (`costly` has those
    that gain more than the chosen one); None where none is left. The gain is beyond chance (`sure`)
    only if its interval, widened for the number of candidates (Bonferroni), excludes zero: trying
    more methods cannot make a gain.

    Examples
    --------
    >>> change = {"difference": -0.05, "low": -0.06, "high": -0.04, "sd": 0.005}
    >>> best_method({"jury": {"overall": {"nll": change}}}, {"jury"})["sure"]
    True
    """
    from scipy.stats import norm

    overall = {m: by["overall"] for m, by in changes.items() if m in candidates and by["overall"]}
    metric = "vote_nll" if any("vote_nll" in c for c in overall.values()) else "nll"
    known = {m: c for m, c in overall.items() if metric in c}
    harmless = [m for m, c in known.items() if not c.get("nll", {}).get("low", 0.0) > 0]
    if not harmless:
        return None
    method = min(harmless, key=lambda m: known[m][metric]["difference"])
    change = known[method][metric]
    half = float(norm.ppf(1 - LEVEL / len(known) / 2)) * change["sd"]
    low, high = change["difference"] - half, change["difference"] + half
    return {
        "method": method,
        "metric": metric,
        "tried": len(known),
        "costly": [
            m
            for m, c in known.items()
            if m not in harmless and c[metric]["difference"] < min(0.0, change["difference"])
        ],
        "low": low,
        "high": high,
        "sure": bool(np.isfinite(high) and high < 0),
    }


def with_remedies(cell: Cell) -> tuple[Cell, dict[str, str]]:
    """Add what could be done to predictions alone, where they are all there is: an audit's one model.

    A temperature, and with votes at hand half the jury map on top of it, both fitted on the other
    folds' cases so that their gain is not flattered. Returns the cell, and each remedy in words.
    """
    if cell.methods == [BASELINE] or len(cell.methods) != 1:
        return cell, {}
    from scipy.special import expit, softmax

    from scalecal.calibrators.base import as_logits
    from scalecal.calibrators.temperature import fit_temperature
    from scalecal.panel import reader_logit

    base = cell.first(cell.baseline)
    y, logits = cell.y[base.rows], as_logits(base.p)
    unit, groups = base.rows, cell.cases.groups
    if groups is not None:
        unit = np.unique(groups.values, return_inverse=True)[1][base.rows]
    fold = np.random.default_rng(0).permutation(int(unit.max()) + 1)[unit] % 5
    if min(np.bincount(fold, minlength=5)) < 10 or not np.isfinite(logits).all():
        return cell, {}
    scaled = np.empty_like(logits)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ScalecalWarning)
            for k in range(5):
                rest = fold != k
                scaled[~rest] = logits[~rest] / fit_temperature(logits[rest], y[rest])
    except ScalecalWarning:
        return cell, {}  # no temperature is defined in some fold, so none is offered

    def probs(z: Float) -> Float:
        return np.asarray(expit(z) if z.ndim == 1 else softmax(z, axis=1))

    seed = cell.seeds(cell.baseline)[0]
    added = {("temperature", seed): Prediction(base.rows, probs(scaled))}
    words = {
        "temperature": "one temperature, fitted on four fifths of the cases and used on the fifth"
    }
    if cell.cases.votes is not None and logits.ndim == 1:
        panel = cell.cases.votes[base.rows].sum(axis=1)
        if panel.min() >= 3:
            name = "temperature + half jury"
            half = 0.5 * (scaled + reader_logit(scaled, 0.0, panel))
            added[name, seed] = Prediction(base.rows, probs(half))
            words[name] = (
                "the same temperature, then half the step from the panel's majority to a single vote"
            )
    return cell.with_predictions(added), words


# What the figures show


def reliability_facts(audit: Audit) -> list[Row]:
    """One panel per stratum of the audited seed: bins, counts, consistency bars, null."""
    options = {k: audit.meta[k] for k in ("n_bins", "n_resamples", "seed")}
    panels = []
    for row in audit.rows:
        if not row["n"]:
            continue
        panel = {"stratum": row["name"], **{k: row[k] for k in ("n", "ece", "floor")}}
        if row["name"] == "overall":
            event = read_hard_event(audit.predictions.cases.y, audit.predictions.p)  # type: ignore[arg-type]
            panel |= _bands([metrics.resampled_ece(event.p, **options)])
            panel["null"] = row["floor"]
        else:
            panel |= {k: row.get(k) for k in ("null", "null_low", "null_high")}
        table, bars = audit.reliability(row["name"])
        panel["bins"] = [
            {
                **{k: float(getattr(table, k)[b]) for k in ("lo", "hi", "mean_p", "mean_y")},
                "n": int(table.n[b]),
                "bar_lo": float(bars.lo[b]),
                "bar_hi": float(bars.hi[b]),
            }
            for b in table.n.nonzero()[0]
        ]
        panels.append(panel)
    return panels


def _frontier(cell: Cell, rows: Sequence[Row], options: Mapping[str, Any]) -> dict[str, Any]:
    """The softening curve of the baseline, every method's place, and its difference to softening.

    A point's interval is that of its paired change against the baseline, set beside the baseline's
    own value; the baseline itself has none.
    """
    base, hard = cell.baseline, cell.hardest
    value = {(r["method"], r["stratum"]): r for r in rows}
    points = []
    for method in cell.methods:
        point: Row = {"method": method}
        for axis, metric in PLANES.items():
            stratum = hard if axis == "ece_hard" else "overall"
            row = value.get((method, stratum), {})
            if metric not in row:
                continue
            point[axis] = row[metric]
            change = row["changes"].get(metric)
            start = value.get((base, stratum), {}).get(metric)
            if change and start is not None and method != base:
                point[f"{axis}_low"] = start + change["low"]
                point[f"{axis}_high"] = start + change["high"]
        points.append(point)
    curve = frontier_curve(cell, baseline=base, n_bins=options["n_bins"])
    beyond = frontier_methods(cell, baseline=base, **options)
    return {
        "hard": hard,
        "curve": curve.to_dict("records"),
        "points": points,
        "beyond": beyond.to_dict("records"),
    }


def _referral(cell: Cell, methods: Sequence[str]) -> list[Row]:
    """Errors avoided per case sent to a second reader, least confident first, by stratum.

    The second reader is taken to settle a case as the label does. The curve is the error rate among
    the cases sent; with all of them sent it ends at the model's own error rate, which is also what
    sending cases at random would avoid.
    """
    out = []
    for stratum in ("overall", *cell.stratum_names):
        panel: Row = {"stratum": stratum, "methods": []}
        for method in methods:
            part = cell.first(method)
            part = part.take(cell.inside(part.rows, stratum))
            if len(part.rows) == 0:
                continue
            panel["n"] = len(part.rows)
            panel["methods"].append({"method": method, **_yield(cell.y[part.rows], part.p)})
        if panel["methods"]:
            out.append(panel)
    return out


def _yield(y: Any, p: Float) -> Row:
    event = read_hard_event(y, p)
    if p.ndim == 1:
        confidence = np.maximum(p, 1 - p)
        wrong = (p >= 0.5) != (event.y > 0.5)
    else:
        confidence, wrong = event.p, event.y < 0.5
    order = np.argsort(confidence, kind="stable")
    ranked = confidence[order]
    # Cases of equal confidence go together: a point stands after the last of its equals.
    last = np.append(ranked[1:] > ranked[:-1], True)
    sent = np.flatnonzero(last) + 1
    avoided = np.cumsum(wrong[order])[last]
    n, errors = len(y), int(wrong.sum())
    # The first few cases say little about a rate.
    start = min(int(np.searchsorted(sent, max(10, int(0.05 * n)))), len(sent) - 1)
    pick = np.unique(np.linspace(start, len(sent) - 1, _CURVE_POINTS).astype(int))
    table = []
    for threshold in THRESHOLDS:
        below = confidence < threshold
        referred, saved = int(below.sum()), int(wrong[below].sum())
        table.append(
            {
                "threshold": threshold,
                "sent": referred,
                "avoided": saved,
                "per_case": saved / referred if referred else None,
                "n": n,
                "errors": errors,
            }
        )
    return {
        "n": n,
        "errors": errors,
        "share": (sent[pick] / n).tolist(),
        "yield": (avoided[pick] / sent[pick]).tolist(),
        "thresholds": table,
    }


# Cases to look at


def _mean_probs(cell: Cell, method: str) -> Float:
    """Mean over the seeds of each case's probabilities, (n, C); NaN where it was in no test set."""
    total: Float = np.zeros((cell.cases.n, len(cell.cases.classes)))
    count = np.zeros(cell.cases.n)
    for seed in cell.seeds(method):
        part = cell.predictions[method, seed]
        total[part.rows] += np.column_stack([1 - part.p, part.p]) if part.p.ndim == 1 else part.p
        count[part.rows] += 1
    return np.asarray(total / np.where(count > 0, count, np.nan)[:, None])


def _overconfident(cell: Cell, before: str, after: str | None) -> list[Row]:
    """Most over-confident cases of each stratum: id, votes, label, prediction before and after.

    Over-confidence is the probability of the predicted class less the share of readers who chose
    it, or less whether it is the label where it has no votes. Predictions are means over seeds.
    """
    table = _mean_probs(cell, before)
    second = None if after is None else _mean_probs(cell, after)
    known, two = np.isfinite(table[:, 0]), table.shape[1] == 2
    filled = np.nan_to_num(table)
    top = (filled[:, 1] >= 0.5).astype(np.int64) if two else filled.argmax(axis=1)
    each = np.arange(len(table))
    share = (cell.y == top).astype(np.float64)
    votes, paths = cell.cases.votes, cell.cases.paths
    if votes is not None:
        size = votes.sum(axis=1)
        share = np.where(size > 0, votes[each, top] / np.maximum(size, 1), share)
    excess = np.where(known, table[each, top] - share, -np.inf)
    out = []
    for stratum in cell.stratum_names or ("overall",):
        rows = each[cell.inside(each, stratum)]
        rows = rows[known[rows]]
        rows = rows[np.argsort(-excess[rows], kind="stable")][:CASES_LISTED]
        for i in rows.tolist():
            shown = 1 if two else int(top[i])
            out.append(
                {
                    "id": str(cell.cases.names[i]),
                    "stratum": stratum,
                    "label": int(cell.y[i]),
                    "votes": None if votes is None else votes[i].tolist(),
                    "shown_class": shown,
                    "before": float(table[i, shown]),
                    "after": None if second is None else float(second[i, shown]),
                    "excess": float(excess[i]),
                    "path": None if paths is None else str(paths[i]) or None,
                }
            )
    return out
