"""Facts as the template wants them: numbers as text, figures as SVG, rows of tables."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from typing import Any

from markupsafe import Markup

from scalecal.auditing.sentences import SHOWN, shown_columns
from scalecal.auditing.sentences import cell as cell_text
from scalecal.auditing.verdict import AGREEMENT, points
from scalecal.io.text import change_text, csv_text, number, percent
from scalecal.metrics import COLUMNS
from scalecal.report import figures
from scalecal.report.figures import Row, interval_text, role_of
from scalecal.report.svg import Drawing
from scalecal.runs.wording import (
    softening_remark,
    verdict_sentences,
    vote_sentences,
)

MOST_DOTS = 15  # readers drawn as dots; more are written as numbers
FEW_METHODS = 5
"""Methods shown at first; the others are folded."""


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


def data_uri(text: str) -> str:
    """CSV text as a link that needs no file."""
    return "data:text/csv;base64," + base64.b64encode(
        text.encode("utf-8", "backslashreplace")
    ).decode("ascii")


def cell_view(
    cell: Row, *, offered: Sequence[str], sampled: str, most_cases: int, image_note: str
) -> dict[str, Any]:
    """Everything the template shows of one cell: its facts, and what is made of them."""
    seed = f"seed {cell['seed']}, one of {cell['n_seeds']}; " if cell["n_seeds"] > 1 else ""
    diagrams = []
    for method, panels in cell["reliability"].items():
        role, what = role_of(method, cell["baseline"]), f"{seed}{cell['n_bins']} bins"
        if method in cell["derived"]:
            what += f"; {cell['derived'][method]}"
        if remark := softening_remark(cell, method):
            what += f"; {remark}"
        drawn = [_reliability_panel(cell, method, role, panel) for panel in panels]
        diagrams.append({"method": method, "role": role, "what": what, "panels": drawn})
    by_votes = [
        _reliability_panel(cell, method, role_of(method, cell["baseline"]), panel)
        for method, panels in cell["vote_reliability"].items()
        for panel in panels
    ]
    return {
        **cell,
        "by_votes": by_votes,
        "said": [*verdict_sentences(cell)[1:], *cell["details"]],
        "after": cell["shown"][1] if cell["shown"][1:] else None,
        "offered": offered,
        "sampled": sampled,
        "diagrams": diagrams,
        "legend": [{"name": m, "role": role_of(m, cell["baseline"])} for m in cell["shown"]],
        **_audit_view(cell),
        **_methods_view(cell),
        **_frontier_view(cell),
        **_voted_view(cell),
        **_cases_view(cell, most_cases, image_note),
        **_referral_view(cell),
        **_decision_view(cell),
    }


def _reliability_panel(cell: Row, method: str, role: str, panel: Row) -> dict[str, Any]:
    title = stratum_title(panel["stratum"], cell["agreement"])
    drawn = figures.reliability_panel(
        panel, title=f"{method}, {title}", event=cell["event"], role=role
    )
    own = {"method": method, "role": role, "title": title}
    return {**panel, **own, "calibrated": figures.calibrated_text(panel), "svg": svg(drawn)}


def _audit_view(cell: Row) -> dict[str, Any]:
    audit = cell["audits"][cell["baseline"]]
    used = shown_columns(audit["rows"], (*SHOWN, "debiased_error"))

    def text(row: Row, key: str) -> str:
        if key == "name":
            return stratum_title(row["name"], cell["agreement"])
        if key == "debiased_error" and row.get("debiased_error_low") is not None:
            return interval_text(row, key, 4)
        return cell_text(key, row.get(key))

    return {
        "audit_head": [column.title for column in used],
        "audit_rows": [[text(row, column.key) for column in used] for row in audit["rows"]],
        "audit_notes": [*audit["sentences"], *audit["notes"]],
    }


def _frontier_titles(cell: Row) -> dict[str, str]:
    hard = stratum_title(cell["hardest"] or "", cell["agreement"])
    votes = {key: COLUMNS[key].title for key in ("nll", "vote_nll")}
    return {"ece": "overall ECE", "ece_hard": f"ECE, {hard}", **votes}


def ranked_methods(cell: Row) -> list[Row]:
    """Rows over all cases of the methods beside the baseline, the lowest vote NLL (else label NLL) first."""
    rows = [
        r for r in cell["rows"] if r["stratum"] == "overall" and r["method"] != cell["baseline"]
    ]
    metric = "vote_nll" if cell["votes"] else "nll"
    unknown = float("inf")
    return sorted(rows, key=lambda r: unknown if r.get(metric) is None else r[metric])


def few_methods(cell: Row) -> list[str]:
    """Methods shown at first, in order: the best that may be recommended, and the lowest of the others."""
    names = [row["method"] for row in ranked_methods(cell)]
    best = cell["best"]["method"] if cell["best"] else None
    kept = names[:FEW_METHODS]
    if best in names and best not in kept:
        kept[-1] = best
    return kept


def mere_softening(cell: Row) -> set[str]:
    """Methods whose gain is no more than softening's."""
    return {m for m in cell["methods"] if softening_remark(cell, m)}


def forests(cell: Row, methods: Sequence[str] | None = None) -> list[tuple[str, str, Drawing]]:
    """Return the forest plots of a cell that can be drawn: metric, title, drawing."""
    rows = [r for r in ranked_methods(cell) if methods is None or r["method"] in methods]
    out = []
    for metric in ("vote_nll", "nll"):
        title = COLUMNS[metric].title
        drawn = figures.forest(
            rows,
            metric=metric,
            title=title,
            baseline=cell["baseline"],
            best=cell["recommended"],
            mere=mere_softening(cell),
        )
        if drawn is not None:
            out.append((metric, title, drawn))
    return out


def _methods_view(cell: Row) -> dict[str, Any]:
    """Few methods and all of them, as forest plots, and the few in words and numbers."""
    few, base = few_methods(cell), cell["baseline"]
    value = {(r["method"], r["stratum"]): r for r in cell["rows"]}
    hard = cell["hardest"]
    columns = [("ECE", "overall", "ece")]
    if hard:
        columns.append((f"ECE, {stratum_title(hard, cell['agreement'])}", hard, "ece"))
    columns += [(COLUMNS[k].title, "overall", k) for k in ("nll", "vote_nll")]
    columns = [c for c in columns if value.get((base, c[1]), {}).get(c[2]) is not None]
    rows = [
        {
            "method": method,
            "role": role_of(method, base),
            "remark": softening_remark(cell, method),
            "numbers": [_with_change(value.get((method, s)), key, base) for _, s, key in columns],
        }
        for method in (base, *few)
    ]
    named = [{"method": m, "text": cell["about"].get(m, "")} for m in (base, *few)]
    every = len(cell["methods"]) - 1
    return {
        "few_forests": [{"title": t, "svg": svg(d)} for _, t, d in forests(cell, few)],
        "all_forests": [{"title": t, "svg": svg(d)} for _, t, d in forests(cell)]
        if every > len(few)
        else [],
        "few_head": [title for title, _, _ in columns],
        "few_rows": rows if few else [],
        "few_named": [n for n in named if n["text"]],
        "few_said": _few_sentence(cell, few, every),
    }


def _few_sentence(cell: Row, few: Sequence[str], every: int) -> str:
    """Which methods are shown at first."""
    judge = COLUMNS["vote_nll" if cell["votes"] else "nll"].title
    if every <= len(few):
        return f"by {judge}, lowest first"
    best = cell["best"] and cell["best"]["method"]
    late = best and [r["method"] for r in ranked_methods(cell)].index(best) >= len(few)
    also = f", with {best}, the best that may be recommended" if late else ""
    return f"the {len(few)} of {every} methods with the lowest {judge}{also}"


def frontiers(cell: Row, methods: Sequence[str] | None = None) -> list[tuple[str, str, Drawing]]:
    """Return the trade-off figures of a cell that can be drawn: short name, title, drawing."""
    names = _frontier_titles(cell)
    hard = names["ece_hard"].removeprefix("ECE, ")
    out = []
    for kind, title, x, y in (
        ("ece", f"ECE: {hard} against overall", "ece", "ece_hard"),
        ("nll", "NLL: readers’ votes against labels", "nll", "vote_nll"),
    ):
        drawn = figures.frontier(
            cell["frontier"],
            x=x,
            y=y,
            titles=(names[x], names[y]),
            baseline=cell["baseline"],
            methods=methods,
            mere=mere_softening(cell),
        )
        if drawn is not None:
            out.append((kind, title, drawn))
    return out


def _frontier_view(cell: Row) -> dict[str, Any]:
    facts, heads = cell["frontier"], _frontier_titles(cell)
    keys = [k for k in heads if any(k in p for p in facts["points"])]

    def beyond(row: Row, key: str) -> str:
        ends = {"difference": "", "low": "_low", "high": "_high"}
        return change_text({k: row.get(f"difference_{key}{end}") for k, end in ends.items()})

    few = few_methods(cell)
    more = len(few) + 1 < len(cell["methods"])
    return {
        "frontiers": [{"title": t, "svg": svg(drawn)} for _, t, drawn in frontiers(cell, few)],
        "all_frontiers": [{"title": t, "svg": svg(drawn)} for _, t, drawn in frontiers(cell)]
        if more
        else [],
        "frontier_head": ["Method", *(heads[k] for k in keys)],
        "frontier_rows": [
            [point["method"], *(interval_text(point, k) for k in keys)] for point in facts["points"]
        ],
        "beyond_head": ["Method", "Softening, T", *(f"Δ {heads[k]}" for k in keys)],
        "beyond_rows": [
            [row["method"], number(row["at_temperature"], 2), *(beyond(row, k) for k in keys)]
            for row in facts["beyond"]
            if row["method"] != cell["baseline"]
        ],
    }


def _voted_view(cell: Row) -> dict[str, Any]:
    """What voted cases would buy, and what an error of kappa would cost; empty where not asked for."""
    if not cell["voted"]:
        return {"voted_said": []}
    drawn = figures.voted_curve(cell)

    def share(row: Row, low: str = "low", high: str = "high") -> str:
        known = [100 * v for k in ("share", low, high) if (v := row.get(k)) is not None]
        return "{:.0f} % ({:.0f} to {:.0f})".format(*known) if len(known) == 3 else "-"

    rows = []
    for point in figures.voted_points(cell):
        changes = (change_text(point["changes"].get(k)) for k in ("vote_nll", "nll"))
        draws = share(point, "draws_low", "draws_high").partition("(")[2].rstrip(")") or "-"
        numbers = number(point["vote_nll"], 4), share(point), draws
        rows.append([figures.voted_name(point), *numbers, *changes])
    return {
        "voted_said": vote_sentences(cell),
        "voted_svg": "" if drawn is None else svg(drawn),
        "voted_rows": rows,
        "kappa_rows": [
            [f"{row['kappa']:.2f}", f"{row['rho']:.2f}", number(row["vote_nll"], 4), share(row)]
            for row in cell["kappa_sensitivity"] or ()
        ],
    }


def two_parts(two: Row, of: str = "") -> list[tuple[str, str]]:
    """Both answers and the votes to expect, as a person says them: (what, value); `of` is the class.

    Examples
    --------
    >>> two = {"label": 0.97, "reader": 0.81, "n_raters": 7, "law": [1 / 8] * 8, "low": 5, "high": 7}
    >>> two_parts(two)
    [("the panel's label:", '97 %'), ('one reader:', '81 %'), ('expect', '5 to 7 of 7')]
    """
    label, reader = (percent(two[k]) for k in ("label", "reader"))
    parts = [(f"the panel's label{of and f' {of}'}:", label), ("one reader:", reader)]
    if two.get("law"):
        low, high, m = (two[k] for k in ("low", "high", "n_raters"))
        parts.append(("expect", f"{low} of {m}" if low == high else f"{low} to {high} of {m}"))
    return parts


def _two_view(case: Row, classes: Sequence[str]) -> dict[str, Any] | None:
    """The cell of a table with a case's two answers, or None; of several classes, one is named."""
    two, of = case["two"], classes[case["shown_class"]]
    if two is None:
        return None
    drawn = figures.law_bars(two, of=of)
    parts = two_parts(two, of if len(classes) > 2 else "")
    return {
        "parts": parts,
        "text": "; ".join(f"{what} {value}" for what, value in parts),
        "svg": "" if drawn is None else svg(drawn),
        "value": two["reader"],
    }


def _cases_view(cell: Row, most: int, image_note: str) -> dict[str, Any]:
    import pandas as pd

    classes = cell["classes"]
    by_stratum = groupby(cell["cases"], key=lambda case: case["stratum"])
    listed = []
    for case in (case for _, cases in by_stratum for case in islice(cases, most)):
        votes, of = case["votes"] or (), case["shown_class"]
        words = f"{votes[of]} of {sum(votes)} for {classes[of]}" if votes else ""
        listed.append(
            {
                **{k: case.get(k) for k in ("id", "stratum", "thumbnail", "href")},
                "label": classes[case["label"]],
                "votes_text": words,
                "dots": _dots(votes, of, words),
                "votes_value": votes[of] / sum(votes) if sum(votes) else "",
                **{k: number(case[k]) for k in ("before", "after", "excess")},
                "two": _two_view(case, classes),
            }
        )
    splits = [
        {
            **{k: case.get(k) for k in ("id", "stratum", "thumbnail", "href")},
            "label": classes[case["label"]],
            "split": case["two"]["split"],
            "split_text": percent(case["two"]["split"]),
            "two": _two_view(case, classes),
        }
        for case in cell["splits"][: most + most // 2]
    ]
    keys = ("id", "stratum", "label", "votes_text", "before", "after", "excess")
    after = cell["shown"][1] if cell["shown"][1:] else ""
    table = pd.DataFrame([[row[k] for k in keys] for row in listed])
    table.columns = ["id", "stratum", "label", "votes", cell["baseline"], after, "overconfidence"]
    if cell["two_answers"]:
        table["two answers"] = [row["two"]["text"] if row["two"] else "" for row in listed]
    return {
        "listed": listed,
        "split_rows": splits,
        "thumbnails": any(case["thumbnail"] for case in listed),
        "split_thumbnails": any(case["thumbnail"] for case in splits),
        "cases_uri": data_uri(csv_text(table)),
        "cases_note": _cases_note(cell, image_note),
    }


def _cases_note(cell: Row, image_note: str) -> str:
    """Whose probabilities a list of cases has, and how to read the two answers."""
    what = f"Probabilities are of class {cell['classes'][1]}."
    if cell["event"] != "positive class":
        what = "Probabilities are of the class the model prefers."
    two = ""
    if cell["two_answers"]:
        two = (
            f"Two answers, by {cell['two_answers']}: the probability of the panel’s label and that of "
            "one reader’s vote. Bars: the probability of each number of votes; the line beneath them "
            "spans the numbers to expect (four times in five or more)"
            f"{', the dot is the number observed' if cell['votes'] else ''}."
        )
    return " ".join(filter(None, (what, two, image_note)))


def _dots(votes: Sequence[int], of: int, words: str) -> Markup | str:
    total = sum(votes)
    if not 0 < total <= MOST_DOTS:
        return words
    sheet = Drawing(13 * total, 14, words)
    for i in range(total):
        yes = i < votes[of]
        sheet.circle(6.5 + 13 * i, 7, 4.5, fill="ink" if yes else "none", stroke="ink")
    return svg(sheet)


def _referral_view(cell: Row) -> dict[str, Any]:
    panels = [
        {**panel, "title": stratum_title(panel["stratum"], cell["agreement"])}
        for panel in cell["referral"]
    ]
    top = figures.referral_top(panels)
    for panel in panels:
        drawn = figures.referral_panel(
            panel, title=panel["title"], baseline=cell["baseline"], top=top
        )
        panel["svg"] = svg(drawn)
    rows = []
    for i, first in enumerate(panels[0]["methods"][0]["thresholds"] if panels else ()):
        for panel in panels:
            row = [f"{100 * first['threshold']:g} %", panel["title"]]
            for method in panel["methods"]:
                t = method["thresholds"][i]
                row += [f"{t['sent']:,} of {t['n']:,}", f"{t['avoided']:,} of {t['errors']:,}"]
                row.append(number(t["per_case"]))
            rows.append(row)
    return {"referral": panels, "referral_rows": rows}


def _decision_view(cell: Row) -> dict[str, Any]:
    """Decision curves by judge, and a table of them at a few thresholds."""
    panels = []
    for panel in cell["decision"]:
        title = stratum_title(panel["stratum"], cell["agreement"])
        drawn = figures.decision_panel(panel, title=title, baseline=cell["baseline"])
        panels.append({**panel, "title": title, "svg": svg(drawn)})
    rows = []
    for i, first in enumerate(panels[0]["methods"][0]["table"] if panels else ()):
        for panel in panels:
            at = panel["threshold"].index(first["threshold"])
            row = [f"{100 * first['threshold']:g} %", panel["judge"], panel["title"]]
            row.append(number(panel["treat_all"][at]))
            for method in panel["methods"]:
                own = method["table"][i]
                row += [interval_text(own, "net_benefit"), interval_text(own, "gain")]
            rows.append(row)
    by_judge = [
        {"judge": judge, "panels": [p for p in panels if p["judge"] == judge]}
        for judge in dict.fromkeys(p["judge"] for p in panels)
    ]
    return {"decision": by_judge, "decision_rows": rows}


# What is not of one cell

EXTRA = ("nll", "vote_nll", "count_log_score", "auc", "accuracy")
"""Columns of the methods' table beside ECE; of AUC and accuracy the first that is known."""


def page_view(facts: Row, *, n_full: int) -> dict[str, Any]:
    """Everything the template shows that is not of one cell."""
    cells = facts["cells"]
    sections = [("answer", "Verdict"), ("models", "Side by side"), ("difficulty", "By difficulty")]
    sections += [
        ("methods", "Methods"),
        ("tradeoffs", "Trade-offs"),
        ("votes", "Votes"),
        ("cases", "Cases"),
    ]
    sections += [("work", "For the work"), ("claims", "Claims"), ("made", "How this was made")]
    absent = set() if facts["claims"] else {"claims"}
    if not any(c["voted"] for c in cells[:n_full]):
        absent.add("votes")
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
        "description": facts["verdict"]["headline"],
        "first": _first(facts, n_full),
        "details": cells[0]["details"] if len(cells) == 1 else [],
        "strata_gloss": _strata_gloss(cells),
        "side_by_side": [_beside(c, facts, i < n_full) for i, c in enumerate(cells)],
        "left_out": left_out,
        "any_seeds": any(c["n_seeds"] > 1 for c in cells),
        "dots": _dot_table(facts),
        "more": [
            f"{c['name']}: {s}" if len(cells) > 1 else s
            for i, c in enumerate(cells)
            for s in c["more"]
            if i >= n_full or s not in vote_sentences(c)  # which have a section of their own
        ],
        "n_resamples": ", ".join(f"{n:,}" for n in sorted({c["n_resamples"] for c in cells})),
        "about": list({m: text for c in cells for m, text in c["about"].items()}.items()),
        **_claims_view(facts),
        "runs": [_made(run) for run in facts["runs"]],
        "citation": _citation(facts["version"]),
    }


def _subtitle(cells: Sequence[Row]) -> str:
    first = cells[0]
    if len(cells) > 1:
        return f"{len(cells)} models, {len(dict.fromkeys(m for c in cells for m in c['methods']))} methods"
    parts = [str(first["name"]), f"{first['n_test']:,} test cases"]
    if first["n_seeds"] > 1:
        parts.append(f"{first['n_seeds']} seeds")
    own = len(first["methods"]) - len(first["derived"])
    if own > 1:
        parts.append(f"{own} {'files' if first['differences'] else 'methods'}")
    return " · ".join(parts)


def _first(facts: Row, n_full: int) -> dict[str, Any]:
    """The diagram and the cases beside the verdict: of the audited seed, like all of the first screen."""
    drawn = facts["cells"][:n_full]
    # Of several models, the one whose tests are clearest.
    cell = min(drawn, key=lambda c: 2.0 if c["verdict"]["p"] is None else c["verdict"]["p"])
    several = len(facts["cells"]) > 1
    base, hard, seeds = cell["judged"], cell["hardest"], cell["n_seeds"]
    role = "before" if base == cell["baseline"] else "accent"
    panels = {p["stratum"]: p for p in cell["reliability"][base]}
    panel = panels.get(hard) or panels.get("overall")
    note = f"seed {cell['seed']}, one of {seeds} repeats of split and training" if seeds > 1 else ""
    out: dict[str, Any] = {"note": "" if several else note, "panel": None}
    out |= _surest_view(cell, f"{cell['name']}, " if several else "")
    if panel is None:
        return out
    title = stratum_title(panel["stratum"], cell["agreement"])
    gloss = AGREEMENT.get(panel["stratum"], "") if cell["agreement"] else ""
    n = number(panel["n"])
    drawing = {**panel, "method": base}
    band = figures.calibrated_band(panel)
    return out | {
        "panel": _reliability_panel(cell, base, role, panel),
        "title": f"{title.capitalize()}: {gloss} (n = {n})"
        if gloss
        else f"{title.capitalize()} (n = {n})",
        "said": f"error {points(panel['ece'])}{band and f'; calibrated: {band}'}",
        "strip": svg(figures.lead_strip(drawing, top=figures.ece_top([cell]), role=role)),
        "caption": _caption(cell, panel, several),
    }


def _caption(cell: Row, panel: Row, named: bool) -> str:
    """How to read the diagram and the strip of the first screen."""
    seed = f", seed {cell['seed']}" if cell["n_seeds"] > 1 else ""
    whose = f"{cell['name']}{seed}. " if named else ""
    bars = any(b["bar_lo"] is not None for b in panel["bins"])
    known = panel.get("null_low") is not None
    text = f"{whose}Points below the line on the right: it says too much."
    if bars:
        text += " Grey bars: nine of ten calibrated models, point by point."
    text += " Strip: the dot is its error (ECE)"
    text += ", the band nine of ten calibrated models" if known else ""
    return text + (", the tick chance alone." if panel["floor"] is not None else ".")


def _surest_view(cell: Row, whose: str) -> dict[str, Any]:
    classes, shown = cell["classes"], []
    for case in cell["surest"]:
        votes, of = case["votes"], case["shown_class"]
        words = f"{votes[of]} of {sum(votes)} readers" if votes else ""
        judged = (
            f"{words} agree" if votes else f"label: {_class_name(classes[case['label']], classes)}"
        )
        dots = _dots(votes, of, words) if votes else ""
        before = case.get("before")
        says = "says" if before is None else f"said {percent(before)}, now"
        said = f"{says} {percent(case['p'])}".replace(" %", "\N{NO-BREAK SPACE}%")
        shown.append(
            {
                **{k: case.get(k) for k in ("id", "thumbnail", "href")},
                "dots": dots if isinstance(dots, Markup) else "",
                "said": f"{_class_name(classes[of], classes)}: {said}; {judged}",
            }
        )
    by_votes = any(case["votes"] for case in cell["surest"])
    note = f"{whose}full dots: readers who agree with the model" if by_votes else whose.rstrip(", ")
    judges = "the readers" if by_votes else "the label"
    return {"surest": shown, "judges": judges, "surest_note": note}


def _class_name(name: str, classes: Sequence[str]) -> str:
    """A class as a person says it, where classes are mere numbers of two."""
    return {"0": "negative", "1": "positive"}[name] if list(classes) == ["0", "1"] else name


def _strata_gloss(cells: Sequence[Row]) -> list[str]:
    """What strata are, where they are first spoken of."""
    named = [c for c in cells if c["strata"]]
    if not named:
        return []
    if not all(c["agreement"] for c in named):
        return ["A stratum is a part of the cases, as the data name it."]
    return [
        "A stratum is a part of the cases, here by how far their readers agree.",
        "High: at least six of seven (or that share) say the same. Low: the readers split, at most four of "
        "seven, or a majority of one. Medium: between.",
    ]


def _beside(cell: Row, facts: Row, drawn: bool) -> dict[str, Any]:
    value = {r["stratum"]: r for r in cell["rows"] if r["method"] == cell["baseline"]}
    whole, hard = value.get("overall", {}), value.get(cell["hardest"], {})
    pairs = [(whole, "n"), (whole, "ece"), (whole, "floor"), (hard, "ece"), (hard, "null")]
    pairs += [(whole, "nll"), (whole, "vote_nll"), (whole, "auc")]
    return {
        "key": cell["key"] if drawn else "",
        "name": cell["name"],
        "run": facts["runs"][cell["run"]]["title"],
        "numbers": [number(row.get(key)) for row, key in pairs],
        "verdict": cell["verdict"],
        "best": _best_text(cell) if cell["best"] else "-",
    }


def _best_text(cell: Row) -> str:
    """The best method, and what is to be said of it."""
    best = cell["best"]
    remark = softening_remark(cell, best["method"])
    name = f"{best['method']} ({remark})" if remark else best["method"]
    return name if best["sure"] else "none for sure"


def _dot_table(facts: Row) -> dict[str, Any]:
    cells, strata = facts["cells"], facts["strata"]
    agreement = all(c["agreement"] or not c["strata"] for c in cells)
    top = figures.ece_top(cells)
    extra = [k for k in EXTRA if any(r.get(k) is not None for c in cells for r in c["rows"])]
    if "auc" in extra:
        extra.remove("accuracy")
    rows = []
    for cell in cells:
        value = {(r["method"], r["stratum"]): r for r in cell["rows"]}
        for method in cell["methods"]:
            role = role_of(method, cell["baseline"])
            strips = []
            for stratum in strata:
                row = value.get((method, stratum))
                sheet = row and figures.strip(row, top=top, role=role)
                strip = {"stratum": stratum, "svg": svg(sheet, decorative=True) if sheet else ""}
                strips.append(strip | _with_change(row, "ece", cell["baseline"]))
            whole = value.get((method, "overall"))
            rows.append(
                {
                    "cell": cell["key"],
                    "name": cell["name"],
                    "method": method,
                    "remark": softening_remark(cell, method),
                    "role": role,
                    "strips": strips,
                    "extra": [
                        {"score": COLUMNS[k].title, **_with_change(whole, k, cell["baseline"])}
                        for k in extra
                    ],
                }
            )
    return {
        "columns": [{"name": s, "title": stratum_title(s, agreement)} for s in strata],
        "extra": [
            {
                "title": COLUMNS[k].title,
                "judges": "reader’s answer" if COLUMNS[k].votes else "label’s answer",
            }
            for k in extra
        ],
        "judged": _judged(extra),
        "top": f"{top:g}",
        "rows": rows,
    }


def _judged(keys: Sequence[str]) -> str:
    """Which of the two answers each score of the methods' table judges; "" where there are no votes."""
    by_votes = [COLUMNS[k].title for k in keys if COLUMNS[k].votes]
    if not by_votes:
        return ""
    by_labels = [COLUMNS[k].title for k in keys if not COLUMNS[k].votes]
    return (
        f"Beside ECE, {' and '.join(by_labels)} judge the label’s answer (the probability of the panel’s "
        f"label), {' and '.join(by_votes)} the reader’s (the probability of one vote). A method that has "
        "one answer is judged by it twice."
    )


def _with_change(row: Row | None, key: str, baseline: str) -> dict[str, Any]:
    """A number of a row and, where it is not the baseline's own, its change."""
    if row is None or row.get(key) is None:
        return {"value": "", "text": "-", "change": "", "interval": ""}
    change = None if row["method"] == baseline else row["changes"].get(key)
    words, bracket, rest = (change_text(change) if change else "").partition(" [")
    interval = bracket.strip() + rest
    return {
        "value": f"{row[key]:.6g}",
        "text": number(row[key]),
        "change": words,
        "interval": interval,
    }


def _claims_view(facts: Row) -> dict[str, Any]:
    """Claims, how many hold, and the main ones; statements of fact are listed apart and not counted."""
    claims = [_claim(claim) for claim in facts["claims"]]
    counted = [c for c in claims if c["kind"] != "fact"]
    numbers = {sign: sum(c["sign"] == sign for c in counted) for sign in SIGNS.values()}
    return {
        "claims": counted,
        "stated": [c for c in claims if c["kind"] == "fact"],
        "main_claims": [c for c in counted if c["main"]],
        "tally": numbers if counted else {},
        "claims_first": facts["runs"][0].get("kind") == "reproduce",
    }


SIGNS = {"holds": "holds", "does not hold": "fails", "inconclusive": "open"}
"""Verdict on a claim -> its class on the page."""


def _claim(claim: Row) -> dict[str, Any]:
    keys = ("id", "claim", "paper", "measured", "n", "verdict", "reason")
    texts = {k: "" if claim.get(k) is None else _words(claim[k]) for k in keys}
    sign = SIGNS.get(str(claim.get("verdict")), "open")
    return {**texts, "sign": sign, "kind": claim.get("kind"), "main": bool(claim.get("main"))}


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_words(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return number(value)


def _made(run: Row) -> dict[str, Any]:
    dataset, encoder = run.get("dataset") or {}, run.get("encoder") or {}

    def listed(values: Row) -> str:
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
