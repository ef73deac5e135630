"""Facts as the template wants them: numbers as text, figures as SVG, rows of tables."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from scalecal.auditing.sentences import SHOWN, shown_columns
from scalecal.auditing.sentences import cell as cell_text
from scalecal.io.text import csv_cell, number
from scalecal.metrics import COLUMNS
from scalecal.report import figures
from scalecal.report.svg import Drawing

__all__ = ["cell_view", "data_uri", "frontiers", "page_view", "stratum_title"]

MOST_DOTS = 15  # readers drawn as dots; more are written as numbers


def stratum_title(name: str, agreement: bool) -> str:
    """Heading of a stratum.

    Examples
    --------
    >>> stratum_title("low", True), stratum_title("overall", True)
    ('low agreement', 'all cases')
    """
    if name == "overall":
        return "all cases"
    return f"{name} agreement" if agreement else name


def svg(sheet: Drawing, *, decorative: bool = False) -> Markup:
    """Return a drawing for the template, which need not escape it again."""
    return Markup(sheet.svg(decorative=decorative))


def role_of(method: str, baseline: str) -> str:
    """Colour of a method: one for what was there before, one for every remedy."""
    return "before" if method == baseline else "accent"


def _null(panel: Mapping[str, Any]) -> str:
    null = panel.get("null")
    return number(panel["floor"] if null is None else null)


def data_uri(text: str) -> str:
    """CSV text as a link that needs no file."""
    return "data:text/csv;base64," + base64.b64encode(text.encode("utf-8")).decode("ascii")


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


def change_text(change: Mapping[str, Any] | None) -> str:
    """A paired change with its interval, short enough for a table."""
    if not change or change["difference"] is None:
        return ""
    if change["low"] is None:
        return signed(change["difference"])
    return f"{signed(change['difference'])} ({signed(change['low'])} to {signed(change['high'])})"


def cell_view(
    cell: Mapping[str, Any],
    *,
    offered: Sequence[str],
    sampled: str,
    most_cases: int,
    image_note: str,
) -> dict[str, Any]:
    """Everything the template shows of one cell."""
    after = cell["best"]["method"] if cell["best"] else None
    seed = f"seed {cell['seed']}, one of {cell['n_seeds']}; " if cell["n_seeds"] > 1 else ""
    return {
        **{k: cell[k] for k in ("key", "name", "n_bins", "strata", "baseline", "votes")},
        "said": [*(item["text"] for item in cell["lead"]), *cell["more"]],
        "after": after,
        "offered": offered,
        "sampled": sampled,
        "reliability": [
            {
                "method": method,
                "role": role_of(method, cell["baseline"]),
                "what": f"{seed}{cell['n_bins']} bins"
                + (f"; {cell['derived'][method]}" if method in cell["derived"] else ""),
                "panels": [_reliability_panel(cell, method, p) for p in panels],
            }
            for method, panels in cell["reliability"].items()
        ],
        "bin_rows": [
            [
                method,
                panel["stratum"],
                *(number(b[k]) for k in ("lo", "hi", "n", "mean_p", "mean_y", "bar_lo", "bar_hi")),
            ]
            for method, panels in cell["reliability"].items()
            for panel in panels
            for b in panel["bins"]
        ],
        **_audit_view(cell),
        **_frontier_view(cell),
        **_cases_view(cell, after, most_cases, image_note),
        **_referral_view(cell),
    }


def _reliability_panel(
    cell: Mapping[str, Any], method: str, panel: Mapping[str, Any]
) -> dict[str, Any]:
    title = stratum_title(panel["stratum"], cell["agreement"])
    drawn = figures.reliability_panel(
        panel,
        title=f"{method}, {title}",
        event=cell["event"],
        role=role_of(method, cell["baseline"]),
    )
    return {
        "stratum": panel["stratum"],
        "title": title,
        "n": number(panel["n"]),
        "ece": number(panel["ece"]),
        "null": _null(panel),
        "svg": svg(drawn),
    }


def _audit_view(cell: Mapping[str, Any]) -> dict[str, Any]:
    audit = cell["audits"][cell["baseline"]]
    rows = audit["rows"]
    used = shown_columns(rows, (*SHOWN, "debiased_error"))

    def text(row: Mapping[str, Any], key: str) -> str:
        if key == "name":
            return stratum_title(row["name"], cell["agreement"])
        low, high = (row.get(f"debiased_error_{end}") for end in ("low", "high"))
        if key == "debiased_error" and low is not None:
            return f"{number(row[key], 4)} ({number(low, 4)} to {number(high, 4)})"
        return cell_text(key, row.get(key))

    return {
        "audit_head": [column.title for column in used],
        "audit_rows": [[text(row, column.key) for column in used] for row in rows],
        "audit_notes": [*audit["sentences"], *audit["notes"]],
    }


def _frontier_titles(cell: Mapping[str, Any]) -> dict[str, str]:
    hard = stratum_title(cell["hardest"] or "", cell["agreement"])
    votes = {key: COLUMNS[key].title for key in ("nll", "vote_nll")}
    return {"ece": "overall ECE", "ece_hard": f"ECE, {hard}", **votes}


def frontiers(cell: Mapping[str, Any]) -> list[tuple[str, str, Drawing]]:
    """Return the trade-off figures of a cell that can be drawn: short name, title, drawing."""
    names = _frontier_titles(cell)
    hard = names["ece_hard"].removeprefix("ECE, ")
    out = []
    for kind, title, x, y in (
        ("ece", f"ECE: {hard} against overall", "ece", "ece_hard"),
        ("nll", "NLL: readers’ votes against labels", "nll", "vote_nll"),
    ):
        drawn = figures.frontier(
            cell["frontier"], x=x, y=y, titles=(names[x], names[y]), baseline=cell["baseline"]
        )
        if drawn is not None:
            out.append((kind, title, drawn))
    return out


def _frontier_view(cell: Mapping[str, Any]) -> dict[str, Any]:
    facts, heads = cell["frontier"], _frontier_titles(cell)
    keys = [k for k in heads if any(k in p for p in facts["points"])]
    beyond = [row for row in facts["beyond"] if row["method"] != cell["baseline"]]

    def interval(point: Mapping[str, Any], key: str) -> str:
        text = number(point.get(key))
        if point.get(f"{key}_low") is not None:
            text += f" ({number(point[f'{key}_low'])} to {number(point[f'{key}_high'])})"
        return text

    return {
        "frontiers": [{"title": title, "svg": svg(drawn)} for _, title, drawn in frontiers(cell)],
        "frontier_head": ["Method", *(heads[k] for k in keys)],
        "frontier_rows": [
            [point["method"], *(interval(point, k) for k in keys)] for point in facts["points"]
        ],
        "beyond_head": ["Method", "Softening, T", *(f"Δ {heads[k]}" for k in keys)],
        "beyond_rows": [
            [
                row["method"],
                number(row.get("at_temperature"), 2),
                *(_difference(row, k) for k in keys),
            ]
            for row in beyond
        ],
    }


def _difference(row: Mapping[str, Any], key: str) -> str:
    """Write a difference to softening by the same amount, as `frontier_methods` names its columns."""
    start = f"difference_{key}"
    if row.get(start) is None:
        return "-"
    low, high = row.get(f"{start}_low"), row.get(f"{start}_high")
    return change_text({"difference": row[start], "low": low, "high": high})


def _cases_view(
    cell: Mapping[str, Any], after: str | None, most: int, image_note: str
) -> dict[str, Any]:
    listed: list[dict[str, Any]] = []
    taken: dict[str, int] = {}
    for case in cell["cases"]:
        taken[case["stratum"]] = taken.get(case["stratum"], 0) + 1
        if taken[case["stratum"]] <= most:
            listed.append(case)
    classes = cell["classes"]

    def name(c: int) -> str:
        return str(classes[c]) if c < len(classes) else str(c)

    shown = []
    for case in listed:
        votes, of = case["votes"], case["shown_class"]
        given = "" if votes is None else f"{votes[of]} of {sum(votes)} for {name(of)}"
        shown.append(
            {
                **{k: case.get(k) for k in ("id", "stratum", "thumbnail", "href")},
                "label": name(case["label"]),
                "dots": "" if votes is None else _dots(votes, of, given),
                "votes_text": given,
                "votes_value": "" if not votes or not sum(votes) else votes[of] / sum(votes),
                "before": number(case["before"]),
                "after": number(case["after"]),
                "excess": number(case["excess"]),
            }
        )
    head = ["id", "stratum", "label", "votes", cell["baseline"], after or "", "overconfidence"]
    keys = ("id", "stratum", "label", "votes_text", "before", "after", "excess")
    lines = [head, *([row[k] for k in keys] for row in shown)]
    text = "".join(",".join(csv_cell(v) for v in line) + "\n" for line in lines)
    what = f"Probabilities are of class {name(1)}." if len(classes) == 2 else ""
    if cell["event"] != "positive class":
        what = "Probabilities are of the class the model prefers."
    return {
        "cases": shown,
        "thumbnails": any(case.get("thumbnail") for case in listed),
        "cases_uri": data_uri(text),
        "cases_note": " ".join(t for t in (what, image_note) if t),
    }


def _dots(votes: Sequence[int], of: int, words: str) -> Markup | str:
    total = sum(votes)
    if not 0 < total <= MOST_DOTS:
        return words
    sheet = Drawing(13 * total, 14, words)
    for i in range(total):
        yes = i < votes[of]
        sheet.circle(6.5 + 13 * i, 7, 4.5, fill="ink" if yes else "none", stroke="ink")
    return svg(sheet)


def _referral_view(cell: Mapping[str, Any]) -> dict[str, Any]:
    panels = cell["referral"]
    top = figures.referral_top(panels)
    rows = []
    for i in range(len(panels[0]["methods"][0]["thresholds"]) if panels else 0):
        for panel in panels:
            row = [stratum_title(panel["stratum"], cell["agreement"])]
            for method in panel["methods"]:
                t = method["thresholds"][i]
                row.insert(0, f"{100 * t['threshold']:g} %") if len(row) == 1 else None
                row += [f"{t['sent']:,} of {t['n']:,}", f"{t['avoided']:,} of {t['errors']:,}"]
                row.append(number(t["avoided"] / t["sent"]) if t["sent"] else "-")
            rows.append(row)
    return {
        "referral": [
            {
                "title": stratum_title(panel["stratum"], cell["agreement"]),
                "n": number(panel["n"]),
                "svg": svg(
                    figures.referral_panel(
                        panel,
                        title=stratum_title(panel["stratum"], cell["agreement"]),
                        baseline=cell["baseline"],
                        top=top,
                    )
                ),
            }
            for panel in panels
        ],
        "referral_rows": rows,
        "legend": [{"name": m, "role": role_of(m, cell["baseline"])} for m in cell["shown"]],
    }


# What is not of one cell

EXTRA = ("nll", "vote_nll", "auc", "accuracy")
"""Columns of the methods' table beside ECE."""


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
        "more": [f"{c['name']}: {s}" if len(cells) > 1 else s for c in cells for s in c["more"]],
        "n_resamples": ", ".join(f"{n:,}" for n in sorted({c["n_resamples"] for c in cells})),
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
        top = figures.ece_top(cells)
        value = {
            (method, panel["stratum"]): {"method": method, **panel}
            for method, panels in cell["reliability"].items()
            for panel in panels
        }
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
    extra = [k for k in EXTRA if any(k in r for c in cells for r in c["rows"])]
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
                changes = {} if method == cell["baseline"] else row["changes"]
                strips.append(
                    {
                        "stratum": stratum,
                        "value": row["ece"],
                        "ece": number(row["ece"]),
                        "change": change_text(changes.get("ece")),
                        "svg": svg(figures.strip(row, top=top, role=role), decorative=True),
                    }
                )
            whole = value.get((method, "overall"), {})
            changes = {} if method == cell["baseline"] else whole.get("changes", {})
            rows.append(
                {
                    "cell": cell["key"],
                    "name": cell["name"],
                    "method": method,
                    "role": role,
                    "strips": strips,
                    "extra": [
                        {
                            "value": "" if whole.get(k) is None else whole[k],
                            "text": number(whole.get(k)),
                            "change": change_text(changes.get(k)),
                        }
                        for k in extra
                    ],
                }
            )
    return {
        "columns": [{"name": s, "title": stratum_title(s, agreement)} for s in strata],
        "extra": [COLUMNS[k].title for k in extra],
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
