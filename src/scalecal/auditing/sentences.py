"""An audit in words: the table a person reads and the sentences below it.

A sentence claims no more than its test bears. Where votes are known, strata are judged by them, and
are of predicted difficulty: those of agreement select on what no model can know. Without votes a stratum
fails only where it is worse than a calibrated model would look there.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from scalecal.io.text import number, some_of
from scalecal.metrics import COLUMNS, METRICS, Column

LEVEL = 0.05
"""Level of the tests behind the sentences."""

WIDTH = 100
"""Columns of a terminal that tables keep to."""

Row = Mapping[str, Any]

ABOUT_CASES = ("name", "n", "prevalence", "mean_p")
ABOUT_CHANCE = ("ece", "floor", "excess", "null", "p_null_holm", "p_cox_holm")


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
_JUDGED = {"p": "p, as what it implies for one reader,", "p_reader": "p_reader"}


def p_value(value: Any) -> str:
    """Format a p-value.

    Examples
    --------
    >>> p_value(0.0004), p_value(0.2)
    ('<0.001', '0.200')
    """
    if isinstance(value, float) and value < 0.001:
        return "<0.001"
    return number(value)


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
    known = (k for k in keys if any(number(row.get(k)) != "-" for row in rows))
    return [COLUMNS[k] for k in known]


def table(
    rows: Sequence[Row],
    references: Sequence[Row] = (),
    difficulty: Sequence[Row] = (),
    *,
    judges: str = "p",
) -> str:
    """Lay the strata out as text, one line each, with the reference predictors below.

    What votes say follows in further tables, where they are known; `judges` is what they judge.
    """
    parts = [_one_table(rows, references, columns_by_labels())]
    by_votes = columns_by_votes()
    if shown_columns(rows, by_votes):
        part = _one_table(rows, references, ("name", *by_votes))
        parts.append(f"{judges} against readers' votes\n{part}")
    if any(row["n"] for row in difficulty):
        part = _one_table(difficulty, (), BY_DIFFICULTY)
        parts.append(f"{_JUDGED[judges]} against readers' votes, by predicted difficulty\n{part}")
    return "\n\n".join(parts)


def _one_table(rows: Sequence[Row], references: Sequence[Row], keys: Sequence[str]) -> str:
    used = shown_columns(rows, keys)
    lines = [[column.title for column in used]]
    lines += [[cell(c.key, row.get(c.key)) for c in used] for row in rows]
    lines += [[cell(c.key, row[c.key]) if c.key in row else "" for c in used] for row in references]
    names = short_names([first for first, *_ in lines])
    return lay_out(
        [[name, *others] for name, (_, *others) in zip(names, lines, strict=True)],
        rules={0, len(rows)},
    )


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
    titles, *body = lines
    columns = [[row[k] for row in body] for k in range(len(titles))]
    widths = [column_width(title, column) for title, column in zip(titles, columns, strict=True)]
    blocks: list[list[int]] = [[0]]
    for k in range(1, len(titles)):
        if len(blocks[-1]) > 1 and _total([widths[i] for i in (*blocks[-1], k)]) > width:
            blocks.append([0])
        blocks[-1].append(k)
    return "\n\n".join(
        _block([titles[k] for k in block], [columns[k] for k in block], rules, width)
        for block in blocks
    )


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


def _overall(row: Row) -> str:
    cases = "1 case" if row["n"] == 1 else f"{number(row['n'])} cases"
    if groups := row.get("n_groups"):
        cases += " of 1 group" if groups == 1 else f" of {number(groups)} groups"
    start = f"Overall ECE is {number(row['ece'])} on {cases}"
    if not np.isfinite(row["floor"]):
        return f"{start}. There is no verdict: {row['reason']}."
    start += f", where a calibrated model would show {number(row['floor'])} on average"
    p = overall_p(row)
    if p is None:
        return start + "; no test of calibration is defined here."
    by = ", corrected for two tests" if len(_tests(row)) == 2 else ""
    if p >= LEVEL:
        return start + f": the tests find no miscalibration in these cases ({p_text(p)}{by})."
    return start + f": it is miscalibrated{_KINDS[error_kind(row)]} ({p_text(p)}{by})."


def _tests(row: Row) -> list[float]:
    return [row[k] for k in ("p_cox", "p_consistency") if number(row.get(k)) != "-"]


def overall_p(row: Row) -> float | None:
    """The smaller p-value of both tests of calibration over all cases, corrected for there being two.

    Examples
    --------
    >>> overall_p({"p_cox": 0.01, "p_consistency": 0.3})
    0.02
    """
    tests = _tests(row)
    return min(1.0, len(tests) * min(tests)) if tests else None  # Bonferroni


_KINDS = {
    "over": ", mostly over-confident",
    "under": ", mostly under-confident",
    "high": ", its probabilities mostly too high",
    "low": ", its probabilities mostly too low",
    "": "",
}


def error_kind(row: Row) -> str:
    """Which way it is wrong, where an interval excludes 0 and the slope of Cox's line agrees; else ""."""
    over, shift = _sign(row, "overconfidence"), _sign(row, "gap")
    slope = row.get("cox_slope", float("nan"))
    # Logits stretched about 0 move each p away from 1/2, so over-confidence is the mean error and
    # the gap of the means no larger; logits shifted move each p one way, and it is the other way round.
    if over and abs(row["overconfidence"]) >= abs(row["gap"]) - 1e-9:
        if over > 0 and slope < 1.0:
            return "over"
        if over < 0 and slope > 1.0:
            return "under"
    return ("high" if shift > 0 else "low") if shift else ""


def _sign(row: Row, name: str) -> int:
    """Sign of a difference whose interval excludes 0; else 0."""
    low, high = (row.get(f"{name}_{end}", float("nan")) for end in ("low", "high"))
    return int(low > 0.0) - int(high < 0.0)


def p_text(p: float) -> str:
    """Write a p-value as text has it.

    Examples
    --------
    >>> p_text(0.0004), p_text(0.2)
    ('p < 0.001', 'p = 0.200')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p_value(p)}"


def _strata(rows: Sequence[Row], agreement: bool) -> str:
    the, what = ("", "agreement") if agreement else ("the ", "stratum")
    judged = [r for r in rows if np.isfinite(r.get("p_null_holm", float("nan")))]
    if not judged:
        some = [r for r in rows if r["n"]] or rows
        whys = dict.fromkeys(r["reason"] for r in some if r.get("reason"))
        because = f": {'; '.join(whys)}" if whys else ""
        return f"No stratum can be judged against a calibrated model{because}."
    failing = [r for r in judged if r["p_null_holm"] < LEVEL]
    if failing:
        listed = some_of(
            [
                f"{the}{r['name']} {what} (n = {number(r['n'])}): ECE {number(r['ece'])} against "
                f"{number(r['null'])}, {p_text(r['p_null_holm'])}"
                for r in failing
            ],
            mark="; ",
        )
        return f"It is worse than a calibrated model would look in the same strata on {listed}."
    worst = max(judged, key=lambda r: float(r["ece"]))
    return (
        f"No stratum is measurably worse than a calibrated model would look there: the largest ECE, "
        f"{number(worst['ece'])} on {the}{worst['name']} {what} (n = {number(worst['n'])}), compares with "
        f"{number(worst['null'])} for a calibrated model ({p_text(worst['p_null_holm'])})."
    )


def _difficulty(tests: Sequence[Row], reader: bool, foreseen: bool) -> str:
    """Whether votes are as likely as said where they are predicted to be easy or hard to foresee."""
    judged = [t for t in tests if np.isfinite(t["p_votes_holm"])]
    if not judged:
        whys = dict.fromkeys(t["reason"] for t in tests if t["n"]) or {"no case has votes": None}
        return f"Strata of predicted difficulty cannot be judged by votes: {'; '.join(whys)}."
    failing = [t for t in judged if t["p_votes_holm"] < LEVEL]
    whose = (
        "its probability of a reader's vote" if reader else "what its p implies for a reader's vote"
    )
    if failing:
        listed = "; ".join(
            f"{t['name']} cases (n = {number(t['n'])}): {_off(t)}, {p_text(t['p_votes_holm'])}"
            for t in failing
        )
        return f"By predicted difficulty, {whose} is not borne out by the votes on {listed}."
    least = min(judged, key=lambda t: float(t["p_votes_holm"]))
    unseen = "p_split does not predict" if foreseen else "the model itself does not see"
    bound = f"; difficulty that {unseen} is not tested"
    return (
        f"By predicted difficulty, the votes bear out {whose} (smallest {p_text(least['p_votes_holm'])}, "
        f"on {least['name']} cases, n = {number(least['n'])}){bound}."
    )


def _off(test: Row) -> str:
    """The larger of two errors: of the side that the model prefers, or of the positive class."""
    sure, agree = test["vote_confidence"], test["vote_agreement"]
    mean, share = test["vote_mean_p"], test["vote_share"]
    if abs(sure - agree) >= abs(mean - share):
        return f"{number(sure)} for the side it prefers, where readers give {number(agree)}"
    return f"{number(mean)} for a positive vote, where readers give {number(share)}"


def _votes(row: Row, reader: bool, n_raters: Sequence[int]) -> list[str]:
    """What the votes say of a reader's probability, or of the label's where there is no other."""
    if not row.get("n_votes"):
        return []
    nll, floor = number(row["vote_nll"]), number(row["vote_nll_floor"])
    against = f"Against the readers' {number(row['n_votes'])} votes"
    if reader:
        return [
            f"{against}, its probability of a reader's vote has a vote NLL of {nll}, where true vote "
            f"probabilities would show {floor}: {_vote_kind(row)}."
        ]
    out = [
        f"{against}, the same probability has a vote NLL of {nll}, where it would show {floor} if it "
        "were right for a single reader."
    ]
    if panels := [m for m in n_raters if m > 2]:
        m = " to ".join(map(str, sorted({min(panels), max(panels)})))
        out.append(
            f"A probability that is right for the majority of {m} readers must be surer than one reader "
            "is, so the same number cannot be right for both: a second one, p_reader, is judged by the "
            "votes alone."
        )
    return out


def _vote_kind(row: Row) -> str:
    """Which way a reader's probability is wrong, where an interval excludes 0.

    Whether it is wrong is the verdict by predicted difficulty: two more intervals, each of 95 %, would find
    fault with one right model in eight, and contradict it.
    """

    def between(name: str) -> str:
        low, high = (number(row[f"{name}_{end}"]) for end in ("low", "high"))
        return f"{number(row[name])}, 95 % interval {low} to {high}"

    if not np.isfinite(row["vote_excess_low"]):
        return f"there is no verdict, {row.get('reason') or 'too few cases have votes'}"
    p = row.get("p_votes_holm", float("nan"))  # NaN where nothing could be tested
    right = f"the votes show no miscalibration of it (difference {between('vote_excess')})"
    if p >= LEVEL:
        return right
    sure, shift = _sign(row, "vote_excess"), _sign(row, "vote_gap")
    wrong = []
    if sure:
        way = "too sure" if sure > 0 else "not sure enough"
        wrong.append(f"it is {way} of how a reader votes (difference {between('vote_excess')})")
    if shift:
        way = "high" if shift > 0 else "low"
        wrong.append(f"on average it is too {way} (mean less share of votes {between('vote_gap')})")
    if wrong:
        return "; ".join(wrong)
    if p < LEVEL:
        return f"its errors make up for each other over all cases (difference {between('vote_excess')})"
    return right


def sentences(
    rows: Sequence[Row],
    difficulty: Sequence[Row] = (),
    *,
    agreement: bool,
    reader: bool = False,
    n_raters: Sequence[int] = (),
    foreseen: bool = False,
) -> list[str]:
    """Plain sentences on an audit's rows (the first is `overall`).

    The p of the first sentence is the smaller of Cox's and the consistency test's, doubled
    (Bonferroni). Which way it is wrong follows from the 95 % intervals of over-confidence and of mean p
    less prevalence.

    Parameters
    ----------
    rows, difficulty, agreement
        As `Audit.rows` and `Audit.difficulty`; whether the strata are of agreement.
    reader
        Whether votes judge a probability of their own.
    n_raters
        The numbers of readers behind a case that occur.
    foreseen
        Whether difficulty is predicted by more than the probability that is judged.
    """
    out = [_overall(rows[0])]
    judged = any(np.isfinite(t["p_votes_holm"]) for t in difficulty)
    if len(rows) > 1 and not (agreement and judged):
        out.append(_strata(rows[1:], agreement))
    if difficulty:
        out.append(_difficulty(difficulty, reader, foreseen))
    return out + _votes(rows[0], reader, n_raters)
