"""Cases to look at: where a model is most confident against its readers, and likely splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scalecal.calibrators.base import as_logits
from scalecal.cases import Predictions
from scalecal.checks import Float, Int
from scalecal.evaluation.cells import PUBLISHED, VOTED
from scalecal.metrics.arguments import as_table
from scalecal.panel import split_probability, vote_log_pmf

CASES_LISTED = 8
"""Over-confident cases listed of each stratum."""

CONFIDENT_LISTED = 6
"""Cases shown beside the verdict: the most confident of the audited seed against the readers."""

SPLITS_LISTED = 12
"""Cases listed whose panel is most likely to split."""

Row = dict[str, Any]


def _mean_probs(cell: Predictions, method: str) -> Float:
    """Mean over the seeds of each case's probabilities, (n, C); NaN where it was in no test set."""
    parts = [cell.answers[method, seed] for seed in cell.seeds(method)]
    return _means(cell, [(part.index, as_table(part.p)) for part in parts])


def _means(cell: Predictions, values: Sequence[tuple[Int, Float]]) -> Float:
    """Mean over seeds of each case's numbers, NaN where it has none; (case numbers, numbers) by seed."""
    total: Float = np.zeros((cell.cases.n, *values[0][1].shape[1:]))
    count = np.zeros(cell.cases.n)
    for index, numbers in values:
        total[index] += numbers
        count[index] += 1
    count = np.where(count > 0, count, np.nan)
    return np.asarray((total.T / count).T)


def two_answers_method(cell: Predictions, shown: Sequence[str]) -> str | None:
    """The method whose two answers are shown case by case: the best one that has them, or None."""
    likely = [*reversed(shown), PUBLISHED, VOTED]
    having = [m for m in likely if m in cell.methods and cell.first(m).p_reader is not None]
    return having[0] if having else None


def _law_of_votes(cell: Predictions, method: str, i: int, c: int) -> Row | None:
    """What a method expects of one case: the label, one reader, and the votes of its panel.

    Means over the seeds that tested the case; probabilities and votes are of class `c`. `low` to `high`
    holds at least 80 % of the law, the least likely ends left out.
    """
    votes, size = cell.cases.votes, cell.cases.readers
    m = 0 if size is None else int(size[i]) or cell.cases.usual_readers or 0
    label, reader, laws, split = [], [], [], []
    for seed in cell.seeds(method):
        part = cell.answers[method, seed]
        at = np.flatnonzero(part.index == i)
        if len(at) == 0 or part.p_reader is None:
            continue
        p, q = part.p[at], part.p_reader[at]
        label.append(float(p[0] if p.ndim == 1 else p[0, c]))
        reader.append(float(q[0] if q.ndim == 1 else q[0, c]))
        if m >= 1:
            law = np.exp(vote_log_pmf(as_logits(q), part.rho, m))
            laws.append(law[0] if law.ndim == 2 else law[0, c])
        if m >= 2:
            split.append(float(split_probability(as_logits(q), part.rho, m)[0]))
    if not label:
        return None
    out: Row = {"label": np.mean(label), "reader": np.mean(reader), "n_raters": m or None}
    if laws:
        law = np.mean(laws, axis=0)
        out |= {"law": law.tolist(), **dict(zip(("low", "high"), _span(law), strict=True))}
        out["split"] = np.mean(split) if split else None
        out["votes"] = int(votes[i, c]) if votes is not None and votes[i].sum() else None
    return out


def _span(law: Float, mass: float = 0.8) -> tuple[int, int]:
    """The shortest run of counts that holds at least `mass` of the law.

    Examples
    --------
    >>> _span(np.array([0.05, 0.1, 0.25, 0.6]))
    (2, 3)
    """
    total = np.concatenate([[0.0], np.cumsum(law)])
    for width in range(1, len(law) + 1):
        inside = total[width:] - total[:-width]
        if inside.max() >= mass - 1e-12:
            low = int(inside.argmax())
            return low, low + width - 1
    return 0, len(law) - 1


def likely_splits(cell: Predictions, method: str) -> list[Row]:
    """The cases whose panel is most likely to split, by a method's two answers."""
    size = cell.cases.panel_sizes(cell.cases.usual_readers)
    if size is None:
        return []
    values = []
    for seed in cell.seeds(method):
        part = cell.answers[method, seed]
        if part.p_reader is None:
            return []
        values.append(
            (part.index, split_probability(as_logits(part.p_reader), part.rho, size[part.index]))
        )
    chance = _means(cell, values)
    likely = np.argsort(-chance, kind="stable")[: np.isfinite(chance).sum()]  # NaN comes last
    out = []
    for i in likely[:SPLITS_LISTED].tolist():
        shown = 1 if len(cell.cases.classes) == 2 else int(cell.y[i])
        paths = cell.cases.paths
        out.append(
            {
                "id": str(cell.cases.names[i]),
                "stratum": cell.stratum_names[cell.codes[i]] if cell.codes[i] >= 0 else None,
                "label": int(cell.y[i]),
                "shown_class": shown,
                "two": _law_of_votes(cell, method, i, shown),
                "path": None if paths is None else str(paths[i]) or None,
            }
        )
    return out


def _excess(cell: Predictions, table: Float) -> tuple[Int, Float]:
    """Class that each case is predicted to be, and by how much surer of it the model is than the readers.

    Than the label, where a case has no votes; -inf where it has no prediction.
    """
    filled, each = np.nan_to_num(table), np.arange(len(table))
    two = table.shape[1] == 2
    top = (filled[:, 1] >= 0.5).astype(np.int64) if two else filled.argmax(axis=1)
    share = (cell.y == top).astype(np.float64)
    if cell.cases.votes is not None:
        size = cell.cases.votes.sum(axis=1)
        share = np.where(size > 0, cell.cases.votes[each, top] / np.maximum(size, 1), share)
    return top, np.where(np.isfinite(table[:, 0]), filled[each, top] - share, -np.inf)


def confident_errors(cell: Predictions, method: str) -> list[Row]:
    """Most confident predictions of the audited seed that contradict the readers, or the label."""
    part = cell.first(method)
    table = np.full((cell.cases.n, len(cell.cases.classes)), np.nan)
    table[part.index] = as_table(part.p)
    top, excess = _excess(cell, table)
    votes, paths = cell.cases.votes, cell.cases.paths
    first = np.argsort(-excess, kind="stable")[:CONFIDENT_LISTED]
    before = None if method == cell.baseline else _mean_probs(cell, cell.baseline)
    return [
        {
            "id": str(cell.cases.names[i]),
            "label": int(cell.y[i]),
            "votes": None if votes is None or not votes[i].any() else votes[i].tolist(),
            "shown_class": int(top[i]),
            "p": float(table[i, top[i]]),
            "before": None if before is None else float(before[i, top[i]]),
            "path": None if paths is None else str(paths[i]) or None,
        }
        for i in first[excess[first] > 0].tolist()
        if table[i, top[i]] - excess[i] < 0.5  # most readers, or the label, are against it
    ]


def overconfident_cases(
    cell: Predictions, before: str, after: str | None, both: str | None
) -> list[Row]:
    """Most over-confident cases of each stratum: id, votes, label, prediction before and after.

    Over-confidence is the probability of the predicted class less the share of readers who chose
    it, or less whether it is the label where it has no votes. Predictions are means over seeds. `two`
    has the two answers of the method named `both`.
    """
    table = _mean_probs(cell, before)
    second = None if after is None else _mean_probs(cell, after)
    top, excess = _excess(cell, table)
    known, two, each = np.isfinite(excess), table.shape[1] == 2, np.arange(len(table))
    votes, paths = cell.cases.votes, cell.cases.paths
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
                    "two": None if both is None else _law_of_votes(cell, both, i, shown),
                    "path": None if paths is None else str(paths[i]) or None,
                }
            )
    return out
