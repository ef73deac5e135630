"""The whole page as the template wants it: what is not of one cell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from scalecal.auditing.sentences import number
from scalecal.report import figures
from scalecal.report.views import change_text, role_of, stratum_title, svg

__all__ = ["page_view"]

EXTRA = (("Label NLL", "nll"), ("Vote NLL", "vote_nll"), ("AUC", "auc"))


def page_view(facts: Mapping[str, Any], *, n_full: int) -> dict[str, Any]:
    """Everything the template shows that is not of one cell."""
    cells = facts["cells"]
    sections = [("answer", "Answer"), ("models", "Side by side"), ("difficulty", "By difficulty")]
    sections += [("tradeoffs", "Trade-offs"), ("cases", "Cases"), ("work", "For the work")]
    sections += [("claims", "Claims"), ("made", "How this was made")]
    absent = set() if facts["claims"] else {"claims"}
    if len(cells) == 1:
        absent.add("models")
    left_out = ""
    if n_full < len(cells):
        left_out = (
            f"Figures and cases are shown of the first {n_full} of {len(cells)} models, so that the page "
            "stays light; the table of methods holds all of them."
        )
    return {
        "sections": [s for s in sections if s[0] not in absent],
        "subtitle": _subtitle(cells),
        "lead": _lead(facts),
        "side_by_side": [_beside(c, facts, i < n_full) for i, c in enumerate(cells)],
        "left_out": left_out,
        "any_seeds": any(c["n_seeds"] > 1 for c in cells),
        "dots": _dot_table(facts),
        "about": list({m: text for c in cells for m, text in c["about"].items()}.items()),
        "claims": [_claim(claim) for claim in facts["claims"]],
        "runs": [_made(run) for run in facts["runs"]],
        "citation": _citation(facts["version"]),
    }


def _subtitle(cells: Sequence[Mapping[str, Any]]) -> str:
    first = cells[0]
    if len(cells) > 1:
        return f"{len(cells)} models, {len(dict.fromkeys(m for c in cells for m in c['methods']))} methods"
    parts = [str(first["name"]), f"{first['n_test']:,} test cases"]
    if first["n_seeds"] > 1:
        parts.append(f"{first['n_seeds']} seeds")
    own = len(first["methods"]) - len(first["derived"])
    if own > 1:
        parts.append(f"{own} methods")
    return " · ".join(parts)


def _lead(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    cells = facts["cells"]
    strips: list[Markup | str] = ["", "", ""]
    if len(cells) == 1:
        cell = cells[0]
        top, value = figures.ece_top(cells), {(r["method"], r["stratum"]): r for r in cell["rows"]}
        wanted = [(cell["baseline"], "overall"), (cell["baseline"], cell["hardest"])]
        if cell["best"]:
            wanted.append((cell["best"]["method"], cell["hardest"] or "overall"))
        for i, key in enumerate(wanted):
            if key in value:
                role = role_of(key[0], cell["baseline"])
                before = value.get((cell["baseline"], key[1])) if i == 2 else None
                sheet = figures.lead_strip(value[key], top=top, role=role, before=before)
                strips[i] = svg(sheet)
    return [{**item, "strip": strip} for item, strip in zip(facts["lead"], strips, strict=True)]


def _beside(cell: Mapping[str, Any], facts: Mapping[str, Any], drawn: bool) -> dict[str, Any]:
    value = {r["stratum"]: r for r in cell["rows"] if r["method"] == cell["baseline"]}
    whole, hard = value.get("overall", {}), value.get(cell["hardest"], {})
    best = cell["best"]
    pairs = [(whole, "n"), (whole, "ece"), (whole, "floor"), (hard, "ece"), (hard, "null")]
    pairs += [(whole, "nll"), (whole, "vote_nll"), (whole, "auc")]
    return {
        "key": cell["key"] if drawn else "",
        "name": cell["name"],
        "run": facts["runs"][cell["run"]]["title"],
        "numbers": [number(row.get(key)) for row, key in pairs],
        "best": (best["method"] if best["sure"] else "none for sure") if best else "-",
    }


def _dot_table(facts: Mapping[str, Any]) -> dict[str, Any]:
    cells, strata = facts["cells"], facts["strata"]
    agreement = all(c["agreement"] or not c["strata"] for c in cells)
    top = figures.ece_top(cells)
    extra = [(t, k) for t, k in EXTRA if any(k in r for c in cells for r in c["rows"])]
    rows = []
    for cell in cells:
        value = {(r["method"], r["stratum"]): r for r in cell["rows"]}
        for method in cell["methods"]:
            role = role_of(method, cell["baseline"])
            strips = []
            for stratum in strata:
                row = value.get((method, stratum))
                if row is None:
                    strips.append({"stratum": stratum, "value": "", "svg": ""})
                    continue
                strips.append(
                    {
                        "stratum": stratum,
                        "value": row["ece"],
                        "ece": number(row["ece"]),
                        "change": change_text(row["changes"].get("ece")),
                        "svg": svg(figures.strip(row, top=top, role=role), decorative=True),
                    }
                )
            whole = value.get((method, "overall"), {})
            numbers = [whole.get(k) for _, k in extra]
            rows.append(
                {
                    "cell": cell["key"],
                    "name": cell["name"],
                    "method": method,
                    "role": role,
                    "strips": strips,
                    "extra": [
                        {"value": "" if v is None else v, "text": number(v)} for v in numbers
                    ],
                }
            )
    return {
        "columns": [{"name": s, "title": stratum_title(s, agreement)} for s in strata],
        "extra": [t for t, _ in extra],
        "top": f"{top:g}",
        "rows": rows,
    }


def _claim(claim: Mapping[str, Any]) -> dict[str, str]:
    kinds = {"holds": "holds", "does not hold": "fails"}
    keys = ("id", "claim", "paper", "measured", "n", "verdict", "reason")
    found = {k: "" if claim.get(k) is None else _words(claim[k]) for k in keys}
    return {**found, "kind": kinds.get(str(claim.get("verdict")), "open")}


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_words(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return number(value)


def _made(run: Mapping[str, Any]) -> dict[str, Any]:
    dataset, encoder = run.get("dataset") or {}, run.get("encoder") or {}

    def listed(values: Mapping[str, Any]) -> str:
        named = [str(values["name"])] if values.get("name") else []
        rest = (f"{k} {_words(v)}" for k, v in values.items() if k != "name" and v is not None)
        return ", ".join([*named, *rest])

    seeds = run.get("seeds") or []
    more = {k: v for k, v in dataset.items() if k not in ("sha256", "classes", "data")}
    facts = [
        ("scalecal", run.get("version")),
        ("Data", listed(more)),
        ("Classes", ", ".join(map(str, dataset.get("classes") or ()))),
        ("SHA-256", dataset.get("sha256")),
        ("Encoder", listed(encoder)),
        ("Methods", ", ".join(map(str, run.get("methods") or ()))),
        ("Seeds", ", ".join(map(str, seeds))),
        ("Options", listed(run.get("options") or {})),
        ("Packages", listed(run["packages"])),
    ]
    return {
        "title": run["title"],
        "command": shlex.join(map(str, run.get("command") or ["scalecal", "report"])),
        "facts": [(k, v) for k, v in facts if v],
        "notes": run["notes"],
    }


def _citation(version: str) -> str:
    return (
        f"The scalecal developers. scalecal {version}: audit and mend the calibration of probes on frozen\n"
        "embeddings, case difficulty by case difficulty.\n"
        "SCALE: Synthetic Calibration via Agreement Labeling in Embedding Space."
    )
