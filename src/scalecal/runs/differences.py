"""Models side by side on the same cases: every difference to the first, paired, and in words.

`compare_audits` is for Python; facts of several prediction files hold the same rows (`differences`),
which terminal, page and ``differences.csv`` show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.auditing.audits import Audit
from scalecal.auditing.sentences import LEVEL, lay_out, p_value, short_names
from scalecal.cases import Cases, Factor, Predictions
from scalecal.checks import Float, InputError
from scalecal.inference.paired import contrast_of
from scalecal.inference.units import student_error
from scalecal.io.text import change_text, is_known, listed, number
from scalecal.metrics import METRICS, holm
from scalecal.metrics.columns import chosen
from scalecal.runs.scores import Resampled

if TYPE_CHECKING:
    import pandas as pd


def judged_metrics() -> list[str]:
    """Metrics whose differences are tested: those over all cases are one family, those in the strata another.

    p-values are adjusted for all of a family, over all models (Holm, 1979).
    """
    return chosen(lambda metric: metric.tested)


def differing_metrics() -> list[str]:
    """Metrics by which models are compared, those that are tested first."""
    tested = judged_metrics()
    others = chosen(lambda metric: metric.resampled and metric.in_audit and not metric.tested)
    return [*tested, *others]


Row = dict[str, Any]


def compare_audits(
    a: Audit,
    b: Audit,
    *more: Audit,
    names: Sequence[str] | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare models on the same cases: every difference to the first with its paired bootstrap.

    Differences of the same cases share those cases' noise, so that a bootstrap of them is sound even
    for ECE, whose own bootstrap is not. Cases, or groups where there are any, are resampled; fewer than
    eight of them have no interval and no p-value.

    Parameters
    ----------
    a, b, *more
        Audits of the same cases; the first is what the others are compared with.
    names
        What they are called; by default a, b, c, ...
    n_resamples, seed
        For the bootstrap.

    Returns
    -------
    DataFrame with columns model, stratum, metric, n, a (the first one's value), b (the model's),
    difference (b - a), low, high, p_value, and p_holm, which is adjusted for every model and metric of
    `judged_metrics` and is NaN for the others.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.uniform(size=500)
    >>> y = (rng.uniform(size=500) < chance).astype(int)
    >>> from scalecal import audit
    >>> sharp = audit(y, np.clip(2 * chance - 0.5, 0.01, 0.99))
    >>> table = compare_audits(sharp, audit(y, chance))
    >>> bool(table.set_index("metric").loc["nll", "high"] < 0)
    True
    """
    import pandas as pd

    audits = (a, b, *more)
    called = [chr(ord("a") + i) for i in range(len(audits))] if names is None else list(names)
    if len(called) != len(audits) or len(set(called)) < len(called):
        raise InputError(f"{len(audits)} audits need as many different names, got {called}")
    cell = cell_of_audits(dict(zip(called, audits, strict=True)))
    drawn = Resampled([cell], n_bins=a.meta["n_bins"], n_resamples=n_resamples, seed=seed)
    return pd.DataFrame(differences(cell, drawn))


def cell_of_audits(audits: Mapping[str, Audit], **about: Any) -> Predictions:
    """Return one cell of several models audited on the same cases; the first is the baseline.

    `about` is what `Predictions` takes besides: data set, encoder, meta.
    """
    first, *others = audits.values()
    for other in others:
        _check_same_cases(first, other)
    made = {}
    for name, audit in audits.items():
        made[name, 0] = audit.predictions.only
    fields: dict[str, Any] = {"dataset": "", "encoder": "", "meta": {}, **about}
    fields["meta"] = {**fields["meta"], "options": {"prevalence": first.meta.get("prevalence")}}
    return Predictions(first.predictions.cases, made, **fields)


def _check_same_cases(a: Audit, b: Audit) -> None:
    if any(audit.times is not None for audit in (a, b)):
        raise InputError(
            "a streamed audit keeps counts, not cases, by which models are compared: audit both without "
            "streaming"
        )
    x, z = a.predictions.cases, b.predictions.cases
    if x.n != z.n:
        raise InputError(f"the audits are of different cases: {x.n} against {z.n}")
    if a.meta.get("prevalence") != b.meta.get("prevalence"):
        raise InputError("the audits are of populations with different prevalences")
    for name in ("y", "votes", "strata", "groups"):
        left, right = (_values(cases, name) for cases in (x, z))
        if not np.array_equal(left, right):
            raise InputError(f"the audits are of different cases: their {name} differ")
    if not np.array_equal(x.names, z.names):
        raise InputError("the audits are of different cases: their ids differ, or their order")


def _values(cases: Cases, name: str) -> NDArray[Any]:
    column = getattr(cases, name)
    if column is None:
        return np.zeros(0)
    return column.values if isinstance(column, Factor) else np.asarray(column)


def differences(cell: Predictions, drawn: Resampled) -> list[Row]:
    """Differences of all models to the baseline, by stratum and metric; see `compare_audits`."""
    base = cell.baseline
    out: list[Row] = []
    for model in (m for m in cell.methods if m != base):
        for stratum in ("overall", *cell.stratum_names):
            for metric in differing_metrics():
                try:
                    first, own = (
                        drawn.drawn(cell.encoder, m, stratum, metric) for m in (base, model)
                    )
                except InputError:
                    continue  # not defined here: no votes, more than two classes
                change = contrast_of(first, own)
                out.append(
                    {
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
                        "p_holm": _tail(own.samples - first.samples, change.p_cases, change.units),
                    }
                )
    tested = [r for r in out if METRICS[r["metric"]].tested]
    for family in (True, False):
        rows = [r for r in tested if (r["stratum"] == "overall") == family]
        for row, p in zip(rows, holm([r["p_holm"] for r in rows]) if rows else [], strict=True):
            row["p_holm"] = float(p)
    for row in out:
        if not METRICS[row["metric"]].tested:
            row["p_holm"] = float("nan")
    return out


def _tail(samples: Float, p: float, units: int) -> float:
    """A p-value that holds far in the tail too: by Student's t from the spread of the resamples.

    Counts of R resamples end at 2 / (R + 1), which Holm's rule would multiply above any level, and have
    the tails of a normal law, too thin for few units. Of a count that did not end the larger p is taken.
    """
    from scipy.special import stdtr

    known = samples[np.isfinite(samples)]
    if not len(known):
        return p
    error, degrees = student_error(float(known.std(ddof=1)), units)
    if not error > 0:
        return p
    by_t = 2.0 * float(stdtr(degrees, -abs(known.mean()) / error))
    return max(p, by_t) if p > 2.0 / (len(known) + 1) else by_t


# In words


def difference_sentences(facts: Mapping[str, Any]) -> list[str]:
    """What the differences to the first model bear out over all cases, a sentence for each of the others.

    Examples
    --------
    >>> row = {"model": "b.csv", "stratum": "overall", "n": 90, "metric": "nll", "difference": -0.02}
    >>> row |= {"low": -0.03, "high": -0.01, "p_holm": 0.004}
    >>> difference_sentences({"baseline": "a.csv", "agreement": True, "differences": [row]})
    ['b.csv has lower label NLL than a.csv, by 0.020 [0.010, 0.030].']
    """
    return [
        _whole_sentence(model, facts["baseline"], [r for r in rows if r["stratum"] == "overall"])
        for model, rows in _judged(facts).items()
    ]


def stratum_sentences(facts: Mapping[str, Any]) -> list[str]:
    """What they bear out in the strata, a sentence for each model that can be judged there.

    Examples
    --------
    >>> row = {"model": "b.csv", "stratum": "low", "n": 90, "metric": "nll", "difference": -0.02}
    >>> row |= {"low": -0.03, "high": -0.01, "p_holm": 0.004}
    >>> stratum_sentences({"baseline": "a.csv", "agreement": True, "differences": [row]})
    ['b.csv against a.csv by stratum: on low agreement (90 cases) lower label NLL by 0.020 [0.010, 0.030].']
    """
    out = []
    for model, rows in _judged(facts).items():
        parts = [row for row in rows if row["stratum"] != "overall" and is_known(row["p_holm"])]
        if parts:
            said = _strata_text(parts, " agreement" if facts["agreement"] else "")
            out.append(f"{model} against {facts['baseline']} by stratum: {said}.")
    return out


def _judged(facts: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Differences by model, of the metrics that are judged."""
    out: dict[str, list[Mapping[str, Any]]] = {}
    for row in facts["differences"]:
        if METRICS[row["metric"]].tested:
            out.setdefault(row["model"], []).append(row)
    return out


def _whole_sentence(model: str, first: str, rows: Sequence[Mapping[str, Any]]) -> str:
    judged = [row for row in rows if is_known(row["p_holm"])]
    if not judged:
        return f"There are too few cases or groups to tell {model} from {first}."
    clear = [row for row in judged if row["p_holm"] < LEVEL]
    unclear = listed([_title(row) for row in judged if row["p_holm"] >= LEVEL], "or")
    if not clear:
        if all(row["low"] == row["high"] == 0 for row in judged):
            return f"{model} does not differ from {first} in {unclear}."
        return f"{model} does not clearly differ from {first} in {unclear}."
    said = [_change(clear[0], f" than {first},"), *map(_change, clear[1:])]
    text = f"{model} has {listed(said)}"
    return f"{text}; no clear difference in {unclear}." if unclear else f"{text}."


def _strata_text(rows: Sequence[Mapping[str, Any]], kind: str) -> str:
    clear = [row for row in rows if row["p_holm"] < LEVEL]
    parts = []
    for stratum in dict.fromkeys(row["stratum"] for row in clear):
        here = [row for row in clear if row["stratum"] == stratum]
        cases = "1 case" if here[0]["n"] == 1 else f"{here[0]['n']:,} cases"
        parts.append(f"on {stratum}{kind} ({cases}) {listed([_change(row) for row in here])}")
    return "; ".join(parts) or "no clear difference"


def _change(row: Mapping[str, Any], than: str = "") -> str:
    """One clear difference: "lower label NLL by 0.012 [0.005, 0.019]"."""
    text = f"{'lower' if row['difference'] < 0 else 'higher'} {_title(row)}{than} by "
    ends = sorted(abs(row[end]) for end in ("low", "high"))
    return text + f"{abs(row['difference']):.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"


def _title(row: Mapping[str, Any]) -> str:
    return METRICS[row["metric"]].name


# As text


def differences_text(facts: Mapping[str, Any]) -> str:
    """Lay several files out as text: the numbers of each by stratum, then the differences."""
    short = dict(zip(facts["methods"], short_names(facts["methods"], most=30), strict=True))
    rows = [{**row, "name": short[row["method"]]} for row in facts["rows"]]
    keys = [
        k for k in ("ece", "floor", *judged_metrics()[1:]) if any(is_known(r.get(k)) for r in rows)
    ]
    titles = ["floor" if k == "floor" else _title({"metric": k}) for k in keys]
    order = {m: i for i, m in enumerate(facts["methods"])}
    strata = ("overall", *facts["strata"])
    rows.sort(key=lambda row: (strata.index(row["stratum"]), order[row["method"]]))
    lines = [["", "stratum", "n", *titles]]
    lines += [
        [row["name"], row["stratum"], number(row["n"]), *(number(row.get(k)) for k in keys)]
        for row in rows
    ]
    ends = {i + 1 for i in range(len(rows) - 1) if rows[i]["stratum"] != rows[i + 1]["stratum"]}
    parts = [lay_out(lines, rules={0, *ends})]
    lines = [
        [
            f"against {short[facts['baseline']]}",
            "stratum",
            "metric",
            "difference [95 %]",
            "p (Holm)",
        ]
    ]
    ends = {0}
    for model in facts["methods"][1:]:
        own = [row for row in facts["differences"] if row["model"] == model]
        for row in filter(_is_shown, own):
            p = p_value(row["p_holm"]) if is_known(row["p_holm"]) else "-"
            lines.append([short[model], row["stratum"], _title(row), change_text(row), p])
        ends.add(len(lines) - 1)
    parts.append(lay_out(lines, rules=ends))
    return "\n\n".join(parts)


def _is_shown(row: Mapping[str, Any]) -> bool:
    """Whether a terminal shows a difference: all that are judged, of strata the first or clear ones."""
    if not METRICS[row["metric"]].tested:
        return False
    clear = is_known(row["p_holm"]) and row["p_holm"] < LEVEL
    return row["stratum"] == "overall" or METRICS[row["metric"]].main or clear
