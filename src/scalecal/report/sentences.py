"""The three sentences at the top: how well calibrated, where it fails, what would help.

None claims more than its test bears. The best of several methods is judged with an interval widened
for having been chosen among them (Bonferroni), so that trying more methods cannot make a gain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from scalecal.auditing.sentences import LEVEL, number

__all__ = ["best_method", "lead"]

Changes = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]

NAMES = {
    "ece": "ECE",
    "nll": "label NLL",
    "vote_nll": "vote NLL",
}


def _normal_quantile(level: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(1 - level / 2))


def best_method(changed: Changes, allowed: Collection[str]) -> dict[str, Any] | None:
    """Choose the method that lowers the vote NLL (label NLL without votes) most, and say whether it is sure.

    Chosen among the allowed methods whose label NLL is not clearly worse, as long as there are any.

    Examples
    --------
    >>> change = {"difference": -0.05, "low": -0.06, "high": -0.04, "sd": 0.005}
    >>> best_method({"jury": {"overall": {"nll": change}}}, {"jury"})["sure"]
    True
    """
    overall = {m: c["overall"] for m, c in changed.items() if c.get("overall") and m in allowed}
    metric = "vote_nll" if any("vote_nll" in c for c in overall.values()) else "nll"
    known = {m: c for m, c in overall.items() if metric in c}
    if not known:
        return None
    harmless = {m for m, c in known.items() if not c.get("nll", {}).get("low", 0.0) > 0}
    method = min(harmless or known, key=lambda m: known[m][metric]["difference"])
    change = known[method][metric]
    width = _normal_quantile(LEVEL / len(known)) * change["sd"]
    sure = bool(np.isfinite(width) and change["difference"] + width < 0)
    return {"method": method, "metric": metric, "tried": len(known), "sure": sure}


def signed(value: float) -> str:
    """Write a change with its sign, by a true minus.

    Examples
    --------
    >>> signed(-0.25), signed(0.5), signed(-1e-5)
    ('−0.250', '+0.500', '0.000')
    """
    text = number(abs(value))
    if float(text) == 0:
        return text
    return ("+" if value > 0 else "−") + text


def _change(change: Mapping[str, float], *, named: bool = False) -> str:
    """Write a change with its interval; `named` says what the interval is, once per text."""
    what = "95 % interval " if named else ""
    return f"{signed(change['difference'])} ({what}{signed(change['low'])} to {signed(change['high'])})"


def help_sentence(cell: Mapping[str, Any]) -> str:
    """What would help most in a cell, and at what price."""
    best = cell["best"]
    if best is None:
        return (
            "This run has one set of predictions and too few cases to try a remedy on: "
            "scalecal compare measures remedies side by side."
        )
    name, metric = best["method"], best["metric"]
    change = cell["changes"][name]["overall"]
    tried = f"Of {best['tried']} remedies tried" if best["tried"] > 1 else "Of the one remedy tried"
    judge = "readers’ votes" if metric == "vote_nll" else "labels"
    if not best["sure"]:
        return (
            f"{tried}, none improves on the model beyond chance, judged by the {judge}. The best is "
            f"{name}: {NAMES[metric]} changes by {_change(change[metric], named=True)}, before allowing "
            "for the choice."
        )
    start = f"{tried}, {name} helps most, judged by the {judge}: {NAMES[metric]} changes by "
    return start + _change(change[metric], named=True) + _price(cell, name)


def _price(cell: Mapping[str, Any], name: str) -> str:
    by_stratum, hard = cell["changes"][name], cell["hardest"]
    gain = ""
    if hard is not None and hard in by_stratum:
        what = f"{hard}-agreement ECE" if cell["agreement"] else f"ECE on {hard}"
        gain = f", {what} by {_change(by_stratum[hard]['ece'])}"
    costs = {m: by_stratum["overall"][m] for m in ("ece", "nll") if m in by_stratum["overall"]}
    worse = [f"{NAMES[m]} {_change(c)} over all cases" for m, c in costs.items() if c["low"] > 0]
    for stratum, change in by_stratum.items():
        if stratum not in ("overall", hard) and change.get("ece", {}).get("low", 0) > 0:
            where = f"{stratum} agreement" if cell["agreement"] else stratum
            worse.append(f"ECE {_change(change['ece'])} on {where}")
    if worse:
        return f"{gain}. The price: {'; '.join(worse)}."
    return f"{gain}. No price can be told: over all cases ECE changes by {_change(costs['ece'])}."


def lead(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Three sentences, each with a heading, for one cell or for several."""
    headings = ("How well calibrated", "Where it fails", "What would help")
    said = _one(cells[0]) if len(cells) == 1 else _several(cells)
    return [{"heading": h, "text": t} for h, t in zip(headings, said, strict=True)]


def _one(cell: Mapping[str, Any]) -> list[str]:
    found = cell["audit"]["sentences"]
    where = (
        found[1]
        if len(found) > 1
        else "The cases are in no strata, so it cannot be told on which of them it fails: give readers’ "
        "votes or a column of strata."
    )
    told = f" This is seed {cell['seed']}, one of {cell['n_seeds']}." if cell["n_seeds"] > 1 else ""
    return [found[0] + told, where, help_sentence(cell)]


def _range(values: Sequence[float]) -> str:
    known = [v for v in values if v is not None and np.isfinite(v)]
    if not known:
        return "-"
    least, most = number(min(known)), number(max(known))
    return least if least == most else f"{least} to {most}"


def _spans(values: Sequence[float]) -> str:
    shown = _range(values)
    return f"runs from {shown}" if " to " in shown else f"is {shown}"


def _one_seed_each(cells: Sequence[Mapping[str, Any]]) -> str:
    """Which seed the tests are of, where there are several."""
    many = [c for c in cells if c["n_seeds"] > 1]
    if not many:
        return ""
    seeds, counts = ({c[key] for c in many} for key in ("seed", "n_seeds"))
    if len(seeds) == len(counts) == 1 and len(many) == len(cells):
        return f" (seed {seeds.pop()}, one of {counts.pop()})"
    return " (one seed each)"


def _several(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    from scalecal.metrics import holm

    count = len(cells)
    rows = [{r["name"]: r for r in c["audit"]["rows"]} for c in cells]
    overall = [r["overall"] for r in rows]
    tests = [
        min(
            1.0,
            2
            * min(
                (v for k in ("p_cox", "p_consistency") if (v := r.get(k)) is not None), default=1
            ),
        )
        for r in overall
    ]
    bad = int((np.asarray(holm(tests)) < LEVEL).sum())
    first = (
        f"Over {count} models{_one_seed_each(cells)}, overall ECE before any remedy "
        f"{_spans([r['ece'] for r in overall])}, where calibrated ones would show "
        f"{_range([r['floor'] for r in overall])}: {bad} of {count} are miscalibrated by test "
        f"(level {LEVEL:g}, Holm over the {count})."
    )
    hard = [(r[c["hardest"]], c) for r, c in zip(rows, cells, strict=True) if c["hardest"] in r]
    judged = [(r, c) for r, c in hard if r.get("p_null_holm") is not None]
    if judged:
        adjusted = np.asarray(holm([r["p_null_holm"] for r, _ in judged]))
        worse = int((adjusted < LEVEL).sum())
        names = {f"{c['hardest']} agreement" if c["agreement"] else c["hardest"] for _, c in judged}
        second = (
            f"On {' and '.join(sorted(names))}, ECE {_spans([r['ece'] for r, _ in judged])}, where "
            f"calibrated models would show {_range([r.get('null') for r, _ in judged])}: {worse} of "
            f"{len(judged)} are worse than that (level {LEVEL:g}, Holm)."
        )
    else:
        second = "No stratum can be judged against calibrated models."
    sure = [c["best"]["method"] for c in cells if c["best"] and c["best"]["sure"]]
    if not sure:
        return [first, second, f"In none of the {count} models does a remedy gain beyond chance."]
    chosen: dict[str, list[str]] = {}
    for cell in cells:
        if cell["best"] and cell["best"]["sure"]:
            chosen.setdefault(cell["best"]["method"], []).append(cell["name"])
    often = max(chosen, key=lambda m: len(chosen[m]))
    if len(sure) <= 3:
        which = "; ".join(f"{m} on {' and on '.join(names)}" for m, names in chosen.items())
    else:
        which = f"most often {often} ({len(chosen[often])} of them)"
    third = (
        f"A remedy gains beyond chance in {len(sure)} of {count} models: {which}. Gain and price of each "
        "are told below, model by model."
    )
    return [first, second, third]
