"""Several evaluations on one page: their facts joined, and one verdict on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal import __version__
from scalecal.evaluation.judging import LEVEL, overall_p
from scalecal.evaluation.words import BADGES, CRITERION
from scalecal.io.text import number, points
from scalecal.metrics import holm
from scalecal.votes import STRATA

if TYPE_CHECKING:
    from scalecal.evaluation.folder import Run

Facts = Mapping[str, Any]


def joined(runs: Sequence[Run]) -> dict[str, Any]:
    """Join the facts of all cells of some runs."""
    cells = [
        {**facts, "run": i, "images": images, "image_note": ""}
        for i, run in enumerate(runs)
        for facts, images in zip(run.facts, run.images, strict=True)
    ]
    for i, cell in enumerate(cells):
        cell["key"] = f"c{i}"
    _tell_apart(cells, runs)
    listed = [
        _run_facts(run, [c["key"] for c in cells if c["run"] == i]) for i, run in enumerate(runs)
    ]
    title = f"{len(runs)} runs side by side"
    if len(runs) == 1:
        title = listed[0]["title"]
    found, lead = cells[0]["verdict"], cells[0]["lead"]
    if len(cells) > 1:
        found, lead = tally(cells), answers(cells)
    return {
        "version": __version__,
        "title": title,
        "verdict": found,
        "lead": lead,
        "runs": listed,
        "strata": _all_strata(cells),
        "methods": list(dict.fromkeys(m for c in cells for m in c["methods"])),
        "cells": cells,
        "claims": [{**c, "run": i} for i, run in enumerate(runs) for c in run.claims],
    }


def _run_facts(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    kept = ("kind", "version", "command", "options", "seeds", "dataset", "encoder", "methods")
    return {
        "title": run.title,
        "folder": run.folder.name,
        **{key: run.info.get(key) for key in kept},
        "notes": list(run.info.get("notes") or ()),
        "packages": dict(run.info.get("packages") or {}),
        "cells": list(keys),
    }


def _all_strata(cells: Sequence[Facts]) -> list[str]:
    named = list(dict.fromkeys(s for c in cells for s in c["strata"]))
    if set(named) <= set(STRATA):
        named = [s for s in STRATA if s in named]
    return ["overall", *named]


def _tell_apart(cells: list[dict[str, Any]], runs: Sequence[Run]) -> None:
    """Cells of several runs may be of one data set and encoder: the run's title tells them apart."""
    names = [c["name"] for c in cells]
    for cell in cells:
        if names.count(cell["name"]) > 1 and len(runs) > 1:
            cell["name"] += f" ({runs[cell['run']].title})"
    names = [c["name"] for c in cells]
    for i, cell in enumerate(cells):
        if names.count(cell["name"]) > 1:
            cell["name"] += f" #{i + 1}"


def tally(cells: Sequence[Facts]) -> dict[str, Any]:
    """The verdict on several models: how many have which badge.

    Attention only where some model's tests still reject after Holm's correction for all models.
    """
    count, own = len(cells), [c["verdict"] for c in cells]
    p = np.array([np.nan if v["p"] is None else v["p"] for v in own])
    adjusted = np.asarray(holm(p))
    sure = np.nan_to_num(adjusted, nan=1.0) < LEVEL
    wrong = np.array([v["badge"] == "attention" for v in own])
    numbers = {badge: sum(v["badge"] == badge for v in own) for badge in BADGES}
    badge = "inconclusive"
    if (wrong & sure).any():
        badge = "attention"
    elif numbers["good"] == count:
        badge = "good"
    headline = _tally_text(cells, numbers)
    if wrong.any() and badge != "attention":
        headline += f"; corrected for {count} models, no error is beyond chance"
    shown = [{"name": "Models", "value": f"{count}"}]
    known = [v["error"] for v in own if v["error"] is not None]
    if known:
        ends = dict.fromkeys(points(v) for v in (min(known), max(known)))
        shown.append({"name": "Typical error", "value": " to ".join(ends)})
    return {
        "badge": badge,
        "word": BADGES[badge],
        "headline": f"{headline}.",
        "numbers": shown,
        "criterion": CRITERION,
        "tally": numbers,
        "p": None if np.isnan(p).all() else float(np.nanmin(adjusted)),
    }


def _tally_text(cells: Sequence[Facts], numbers: Mapping[str, int]) -> str:
    words = {
        "attention": ("needs attention", "need attention"),
        "good": ("is well calibrated", "are well calibrated"),
        "inconclusive": ("is inconclusive", "are inconclusive"),
    }
    parts: list[str] = []
    for badge, (one, many) in words.items():
        k = numbers[badge]
        if k:
            of = f" of {len(cells)} models" if not parts else ""
            parts.append(f"{k}{of} {one if k == 1 else many}")
    named = [c["name"] for c in cells if c["verdict"]["badge"] == "attention"]
    text = ", ".join(parts)
    if 0 < len(named) <= 3 < len(cells):
        text += f" ({', '.join(named)})"
    return text


def answers(cells: Sequence[Facts]) -> list[dict[str, str]]:
    """Answers to the three questions on several models."""
    return [_calibrated(cells), _where(cells), _what_to_do(cells)]


def _range(values: Sequence[float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    least, most = number(min(known)), number(max(known))
    return least if least == most else f"{least} to {most}"


def _overall_rows(cells: Sequence[Facts]) -> list[Facts]:
    return [c["audits"][c["baseline"]]["rows"][0] for c in cells]


def _rejected(p_values: Sequence[float | None]) -> int:
    """How many of these tests reject after Holm's correction for all of them."""
    known = [1.0 if p is None else p for p in p_values]
    return int((np.asarray(holm(known)) < LEVEL).sum())


def _calibrated(cells: Sequence[Facts]) -> dict[str, str]:
    count, rows = len(cells), _overall_rows(cells)
    bad = sum(c["verdict"]["badge"] == "attention" for c in cells)
    good = sum(c["verdict"]["badge"] == "good" for c in cells)
    heading = "Too few cases to say of all"
    if bad:
        heading = f"{bad} of {count} {'needs' if bad == 1 else 'need'} attention"
    elif good == count:
        heading = "All are"
    seeds = " (first seed of each)" if any(c["n_seeds"] > 1 for c in cells) else ""
    text = (
        f"Before recalibration{seeds} overall ECE is {_range([r['ece'] for r in rows])}; calibrated models "
        f"would show {_range([r['floor'] for r in rows])}. Tests of all cases find "
        f"{_rejected([overall_p(r) for r in rows])} of {count} miscalibrated (Holm)."
    )
    return {"question": "Are they calibrated?", "heading": heading, "text": text}


def _where(cells: Sequence[Facts]) -> dict[str, str]:
    count = len(cells)
    failing = sum(bool(set(c["verdict"]["failing"]) - {"overall"}) for c in cells)
    question = "Everywhere?"
    if any(c["verdict"]["badge"] == "attention" for c in cells):
        question = "Where not?"
    heading = "No part stands out"
    if failing:
        heading = f"{failing} of {count} {'fails' if failing == 1 else 'fail'} on some cases"
    by_votes = [
        r["p_votes_holm"] for r in _overall_rows(cells) if r.get("p_votes_holm") is not None
    ]
    hard = []
    for cell in cells:
        rows = {row["name"]: row for row in cell["audits"][cell["baseline"]]["rows"]}
        row = rows.get(cell["hardest"])
        if row is not None and row.get("p_null_holm") is not None:
            hard.append((row, cell))
    if len(by_votes) == count:
        text = (
            f"By predicted difficulty, votes contradict the predictions of {_rejected(by_votes)} of {count} "
            "(Holm)."
        )
    elif hard:
        names = {f"{c['hardest']} agreement" if c["agreement"] else c["hardest"] for _, c in hard}
        text = (
            f"On {' and '.join(sorted(names))} ECE is {_range([r['ece'] for r, _ in hard])}, where "
            f"calibrated models would show {_range([r.get('null') for r, _ in hard])}: "
            f"{_rejected([r['p_null_holm'] for r, _ in hard])} of {len(hard)} exceed that (Holm)."
        )
    else:
        heading, text = "Not known", "No stratum can be judged against calibrated models."
    return {"question": question, "heading": heading, "text": text}


def _what_to_do(cells: Sequence[Facts]) -> dict[str, str]:
    chosen: dict[str, list[str]] = {}
    for cell in cells:
        for answer in ("p", "p_reader"):
            own = (cell["recommended"] or {}).get(answer)
            if own and own["sure"]:
                names = chosen.setdefault(own["method"], [])
                names.append(cell["name"])
    helped = set().union(*(set(names) for names in chosen.values())) if chosen else set()
    if not helped:
        heading = "No method helps for sure"
        text = f"In none of the {len(cells)} models does a method gain beyond chance."
    else:
        heading = f"A method helps {len(helped)} of {len(cells)}"
        often = max(chosen, key=lambda m: len(set(chosen[m])))
        text = (
            f"Most often {often} ({len(set(chosen[often]))} of them). Each model's advice is below."
        )
        if len(helped) <= 3:
            parts = [f"{m} on {' and on '.join(dict.fromkeys(n))}" for m, n in chosen.items()]
            text = f"{'; '.join(parts)}. Each model's advice is below."
    return {"question": "What to do?", "heading": heading, "text": text}
