"""Tables of an evaluation as text: what a terminal shows, and the table of methods for files."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.checks import LazyModule
from scalecal.evaluation import words
from scalecal.evaluation.cells import PUBLISHED, VOTED
from scalecal.evaluation.changes import VotedCurve, changed_metrics, compared_metrics
from scalecal.evaluation.judging import JUDGES, LEVEL, Facts, Row
from scalecal.evaluation.level_words import level_table
from scalecal.io.text import change_text, is_known, number, p_value
from scalecal.metrics import COLUMNS, METRICS, Column, Metric
from scalecal.metrics.columns import Listing, chosen

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = LazyModule("pandas")

WIDTH = 100
"""Columns of a terminal that tables keep to."""

MARK = "*"
"""Beside the name of a method that shows no clear gain over one temperature, where there is little room."""

ABOUT_CASES = ("name", "n", "prevalence", "mean_p")
ABOUT_CHANCE = ("ece", "floor", "excess", "null", "p_null_holm", "p_cox_holm")
BY_DIFFICULTY = (
    "name",
    "n",
    "n_votes",
    "vote_mean_p",
    "vote_share",
    "vote_confidence",
    "vote_agreement",
    "vote_rho",
    "p_votes_holm",
)
BY_CLASS = (
    "name",
    "events",
    "expected",
    "oe",
    "citl",
    "slope",
    "ece",
    "floor",
    "auc",
    "p_cox_holm",
)
_JUDGED = {
    "p": "reader probability implied by p, compared with votes",
    "p_reader": "p_reader compared with votes",
}


def columns_by_labels() -> list[str]:
    """Columns of the table of what labels say."""
    shown = [m.key for m in METRICS.values() if m.shown and m.in_audit and not m.votes]
    return list(dict.fromkeys([*ABOUT_CASES, *ABOUT_CHANCE, *shown]))


def columns_by_votes() -> list[str]:
    """Columns of the table of what votes say; a metric that decides stands beside its floor."""
    keys = ["n_votes", "vote_share"]
    for metric in METRICS.values():
        if metric.shown and metric.in_audit and metric.votes:
            keys.append(metric.key)
            if metric.main and metric.floor is not None:
                keys.append(metric.floor)
    return [*keys, "p_votes_holm"]


def listed_metrics(*listings: Listing) -> list[str]:
    """Metrics of the tables of a comparison, beside ECE, which has columns of its own for its floors."""

    def in_tables(metric: Metric) -> bool:
        return metric.shown and metric.compared and metric.listed in listings

    return [key for key in chosen(in_tables) if key != "ece"]


def cell(key: str, value: Any) -> str:
    """Format a value as its column says.

    Examples
    --------
    >>> cell("p_cox", 0.0004), cell("n", 1640), cell("ece", 0.12345)
    ('<0.001', '1,640', '0.123')
    """
    return p_value(value) if COLUMNS[key].format == "p" else number(value)


def shown_columns(rows: Sequence[Row], keys: Sequence[str]) -> list[Column]:
    """Return the columns that have a number in some row."""
    known = []
    for key in keys:
        if any(number(row.get(key)) != "-" for row in rows):
            known.append(COLUMNS[key])
    return known


def _one_table(rows: Sequence[Row], references: Sequence[Row], keys: Sequence[str]) -> str:
    used = shown_columns(rows, keys)
    lines = [[column.title for column in used]]
    for row in rows:
        lines.append([cell(c.key, row.get(c.key)) for c in used])
    for row in references:
        # What is not said of a reference stays empty; a dash is for a number that is undefined.
        known = {key: cell(key, value) for key, value in row.items() if key in COLUMNS}
        lines.append([known.get(c.key, "") for c in used])
    for line, name in zip(lines, short_names([line[0] for line in lines]), strict=True):
        line[0] = name
    return lay_out(lines, rules={0, len(rows)})


def short_names(names: Sequence[str], most: int = 22) -> list[str]:
    """Return names of at most so many letters, or as many more as tell them apart.

    Examples
    --------
    >>> short_names(["low", "University Hospital A, site 12"])
    ['low', 'University …A, site 12']
    """
    distinct = len(set(names))
    while True:
        kept = [
            name
            if len(name) <= most
            else f"{name[: most // 2]}…{name[len(name) - (most - 1) // 2 :]}"
            for name in names
        ]
        if len(set(kept)) == distinct:
            return kept
        most += 2


def column_width(title: str, cells: Sequence[str]) -> int:
    """Width of a column whose title may take several lines."""
    return max(map(len, [*cells, *_title_lines(title, cells)]))


def _title_lines(title: str, cells: Sequence[str]) -> list[str]:
    widest = max(map(len, cells), default=0)
    lines = textwrap.wrap(title, max(widest, 1), break_long_words=False, break_on_hyphens=False)
    return lines or [""]


def lay_out(
    lines: Sequence[Sequence[str]], *, rules: Set[int] = frozenset({0}), width: int = WIDTH
) -> str:
    """Align cells, the first column to the left; draw a rule below some lines, but for the last.

    Where that is wider than `width`, titles take several lines; columns for which there is still no room
    follow in further tables, each with the first column.

    Examples
    --------
    >>> print(lay_out([["stratum", "vote NLL floor", "ECE"], ["low", "0.512", "0.2"]], width=20))
              vote
               NLL
    stratum  floor  ECE
    -------------------
    low      0.512  0.2
    """
    titles = lines[0]
    columns = [column[1:] for column in zip(*lines, strict=True)]
    widths = [column_width(title, column) for title, column in zip(titles, columns, strict=True)]
    blocks: list[list[int]] = [[0]]
    for k in range(1, len(titles)):
        if len(blocks[-1]) > 1 and _total([widths[i] for i in (*blocks[-1], k)]) > width:
            blocks.append([0])
        blocks[-1].append(k)
    parts = []
    for block in blocks:
        parts.append(_block([titles[k] for k in block], [columns[k] for k in block], rules, width))
    return "\n\n".join(parts)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _block(
    titles: Sequence[str], columns: Sequence[Sequence[str]], rules: Set[int], width: int
) -> str:
    heads = [[title] for title in titles]
    widths = [max(map(len, each)) for each in map(list.__add__, heads, map(list, columns))]
    if _total(widths) > width:
        heads = list(map(_title_lines, titles, columns))
        widths = list(map(column_width, titles, columns))
    tall = max(map(len, heads))

    def line(first: str, *others: str) -> str:
        return "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]).rstrip()

    text = [
        line(*cells) for cells in zip(*([""] * (tall - len(h)) + h for h in heads), strict=True)
    ]
    rule = "-" * _total(widths)
    for i, cells in enumerate(zip(*columns, strict=True)):
        text += [rule, line(*cells)] if i in rules else [line(*cells)]
    return "\n".join(text)


# One evaluation


def evaluation_text(facts: Facts, notes: Sequence[str]) -> str:
    """Lay an evaluation out as text: its tables, the verdict with its answers, paragraphs, notes."""
    sentences = words.sentences(facts)
    if facts["kind"] == "audit":
        parts = [_audit_text(facts["audits"][facts["judged"]])]
    elif facts["kind"] == "files":
        parts = [differences_text(facts)]
    else:
        parts = [comparison_text(facts)]
    parts.append("\n".join(words.other_verdicts(facts)))
    # The verdict with its three answers stands together: the terminal's is the page's first screen.
    parts += ["\n".join(sentences[:4]), "\n".join(sentences[4:])]
    parts.append("\n".join(f"Note: {note}" for note in notes))
    return "\n\n".join(part for part in parts if part)


def _audit_text(audit: Facts) -> str:
    """The strata of an audit, one line each, and what votes say in further tables, where they are known."""
    rows, judges = audit["rows"], audit["meta"].get("votes_judge", "p")
    references = []
    for row in audit["references"]:
        if row["stratum"] in (rows[0]["name"], rows[-1]["name"]):
            references.append({**row, "name": f"{row['name']} ({row['stratum']})"})
    parts = [_one_table(rows, references, columns_by_labels())]
    if audit["classes"]:
        part = _one_table(audit["classes"], (), BY_CLASS)
        parts.append(f"Each class against the rest\n{part}")
    by_votes = columns_by_votes()
    if shown_columns(rows, by_votes):
        part = _one_table(rows, references, ("name", *by_votes))
        parts.append(f"{judges} compared with readers' votes\n{part}")
    if any(row["n"] for row in audit["difficulty"]):
        part = _one_table(audit["difficulty"], (), BY_DIFFICULTY)
        parts.append(f"{_JUDGED[judges]}, by predicted difficulty\n{part}")
    for column in audit["by"]:
        # Strata stand in the first table.
        if column["column"] == "stratum":
            continue
        head, lines = level_table(column, audit["meta"]["event"], whole=False)
        parts.append(f"by {head[0]}\n{lay_out([head, *lines])}")
    return "\n\n".join(parts)


# Methods


def comparison_table(facts: Facts) -> pd.DataFrame:
    """One row per method: means over seeds, floors, paired changes, recovered share."""
    suffixes = {"overall": ""} | {stratum: f"_{stratum}" for stratum in facts["strata"]}
    lines = []
    for method in facts["methods"]:
        line: dict[str, Any] = {"method": method, "seeds": words.row_of(facts, method)["seeds"]}
        changes: dict[str, Any] = {}
        for stratum, suffix in suffixes.items():
            row = words.row_of(facts, method, stratum)
            line |= {f"{metric}{suffix}": row.get(metric) for metric in compared_metrics()}
            line[f"ece{suffix}_floor"] = row.get("floor")
            for metric in changed_metrics(stratum):
                change = row["changes"].get(metric, {})
                for end in ("difference", "low", "high", "p"):
                    name = f"{metric}{suffix}_change_{end}".removesuffix("_difference")
                    changes[name] = change.get(end)
        beyond, share = facts["softening"].get(method, {}), facts["recovered"][method]
        line |= changes
        line |= {
            "beyond_softening": beyond.get("difference"),
            "beyond_softening_low": beyond.get("low"),
            "beyond_softening_high": beyond.get("high"),
            "softening_temperature": beyond.get("temperature"),
            "recovered": share["share"],
        }
        line |= {f"recovered_{key}": share[key] for key in ("low", "high", "reason")}
        lines.append(line)
    table = pd.DataFrame(lines)
    kinds = {str(column): np.float64 for column in table}
    return table.astype(kinds | {"method": object, "recovered_reason": object, "seeds": "Int64"})


def shown_table(facts: Facts) -> dict[str, list[str]]:
    """The columns of the comparison that a person reads, as text: title -> a cell for each method."""
    names = []
    for method in facts["methods"]:
        name = method
        if (facts["calibration"] or {}).get("chosen") == method:
            name = f"{method} (chosen)"
        elif remark := words.softening_remark(facts, method):
            name = f"{method} ({remark})"
        names.append(name)
    out: dict[str, list[str]] = {"method": names}
    for stratum in ("overall", *facts["strata"]):
        cells = []
        for method in facts["methods"]:
            row = words.row_of(facts, method, stratum)
            cells.append(f"{number(row.get('ece'))} ({number(row.get('floor'))})")
        out[f"ECE {stratum} (floor)".replace(" overall", "")] = cells
    whole = [words.row_of(facts, method) for method in facts["methods"]]
    for key in listed_metrics("everywhere", "methods"):
        if any(row.get(key) is not None for row in whole):
            out[COLUMNS[key].title] = [number(row.get(key)) for row in whole]
    for key in JUDGES.values():
        changes = [row["changes"].get(key) for row in whole]
        if any(changes):
            out[f"{COLUMNS[key].title} change [95 %]"] = [change_text(c) for c in changes]
    if beyond := facts["softening"]:
        title = COLUMNS[next(iter(beyond.values()))["metric"]].title
        changes = [beyond.get(method) for method in facts["methods"]]
        out[f"{title} less softening's [95 %]"] = [change_text(c) for c in changes]
    shares = [facts["recovered"][method] for method in facts["methods"]]
    if any(share["share"] is not None for share in shares):
        out["recovered"] = list(map(recovered_text, shares))
    return out


def recovered_text(row: Row) -> str:
    """Share of the gain that is recovered, with its interval."""
    if not is_known(row["share"]):
        return "-"
    share, low, high = (f"{100 * row[key]:.0f}" for key in ("share", "low", "high"))
    return f"{share} % [{low}, {high}]"


def comparison_text(facts: Facts) -> str:
    """Lay the comparison out as text, one line per method, in `WIDTH` columns.

    Columns for which there is no room are named below, and so are methods with no clear gain over
    softening.
    """
    table = shown_table(facts)
    mere = f" ({words.NO_GAIN})"
    marked = [name.replace(mere, f" {MARK}") for name in table["method"]]
    notes = []
    if marked != table["method"]:
        notes.append(f"{MARK} {words.NO_GAIN}")
    table["method"] = short_names(marked)
    # What decides comes first: the vote's loss where there are votes, and in a calibration the label's.
    first = COLUMNS["nll"].title
    if facts["kind"] == "comparison" and COLUMNS["vote_nll"].title in table:
        first = COLUMNS["vote_nll"].title
    wanted = ["method", f"{first} change [95 %]", "ECE (floor)", f"ECE {facts['hardest']} (floor)"]
    scores = listed_metrics("everywhere", "methods")
    wanted += [first, *(COLUMNS[key].title for key in scores)]
    ranked = [title for title in dict.fromkeys([*wanted, *table]) if title in table]
    kept = _with_room(table, ranked)
    text = lay_out([kept, *map(list, zip(*(table[title] for title in kept), strict=True))])
    if left := [title for title in table if title not in kept]:
        also = ", ".join(title.removesuffix(" [95 %]").removesuffix(" (floor)") for title in left)
        notes += textwrap.wrap(f"Also in comparison.csv: {also}.", WIDTH)
    return "\n\n".join([text, *filter(None, ["\n".join(notes)])])


def _with_room(table: Mapping[str, Sequence[str]], titles: Sequence[str]) -> list[str]:
    """Those of the titles, most important first, whose columns fit together; in the table's order."""
    kept, left = [], WIDTH + 2
    for title in titles:
        width = column_width(title, table[title]) + 2
        if width <= left:
            kept.append(title)
            left -= width
    return [title for title in table if title in kept]


# Files


def differences_text(facts: Mapping[str, Any]) -> str:
    """Lay several files out as text: the numbers of each by stratum, then the differences."""
    short = dict(zip(facts["methods"], short_names(facts["methods"], most=30), strict=True))
    rows = [{**row, "name": short[row["method"]]} for row in facts["rows"]]
    title = {metric: METRICS[metric].name for metric in chosen(lambda metric: metric.tested)}
    keys = []
    for key in ("ece", "floor", *list(title)[1:]):
        if any(is_known(row.get(key)) for row in rows):
            keys.append(key)
    titles = [title.get(key, key) for key in keys]
    order = {m: i for i, m in enumerate(facts["methods"])}
    strata = ("overall", *facts["strata"])
    rows.sort(key=lambda row: (strata.index(row["stratum"]), order[row["method"]]))
    lines = [["", "stratum", "n", *titles]]
    for row in rows:
        numbers = [number(row.get(key)) for key in ("n", *keys)]
        lines.append([row["name"], row["stratum"], *numbers])
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
        for row in facts["differences"]:
            metric, clear = (
                METRICS[row["metric"]],
                is_known(row["p_holm"]) and row["p_holm"] < LEVEL,
            )
            # All that are judged over all cases; of strata those that decide, and clear ones.
            shown = metric.tested and (row["stratum"] == "overall" or metric.main or clear)
            if row["model"] != model or not shown:
                continue
            p = p_value(row["p_holm"]) if is_known(row["p_holm"]) else "-"
            lines.append(
                [short[model], row["stratum"], METRICS[row["metric"]].name, change_text(row), p]
            )
        ends.add(len(lines) - 1)
    parts.append(lay_out(lines, rules=ends))
    return "\n\n".join(parts)


def tidy_results(results: pd.DataFrame, voted: VotedCurve | None) -> pd.DataFrame:
    """Results of every method, then those by number of voted cases; 0 is `panel-published`."""
    tidy = results.drop(columns=["dataset", "encoder"])
    published = tidy["method"] == PUBLISHED
    tidy["voted"] = pd.Series(pd.NA, tidy.index, dtype="Int64").mask(published, 0)
    tidy["reads"] = pd.Series(None, tidy.index, dtype=object).mask(published, "panel")
    tidy["draw"] = tidy["voted"]
    if voted is None or not voted.scores:
        return tidy
    curve = pd.DataFrame(voted.scores).assign(method=VOTED, stratum="overall")
    whole = {"voted": "Int64", "draw": "Int64"}
    return pd.concat([tidy, curve[tidy.columns].astype(whole)], ignore_index=True)


def mean_results(cells: Sequence[Facts]) -> pd.DataFrame:
    """Tidy means over seeds of these cells, as their facts hold them."""
    lines = []
    for cell in cells:
        for row in cell["rows"]:
            for metric in compared_metrics():
                if row.get(metric) is None:
                    continue
                line = {
                    "model": cell["name"],
                    "method": row["method"],
                    "stratum": row["stratum"],
                    "metric": metric,
                    "value": row[metric],
                    "floor": None,
                }
                if metric == "ece":
                    line["floor"] = row["floor"]
                lines.append(line)
    return pd.DataFrame(lines)
