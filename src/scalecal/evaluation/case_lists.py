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


def _case(cell: Predictions, i: int, shown: int) -> Row:
    """What every list says of a case: id, label, votes, image, and the class its probabilities are of."""
    cases = cell.cases
    row: Row = {
        "id": str(cases.names[i]),
        "label": int(cell.y[i]),
        "votes": None,
        "shown_class": shown,
        "path": None,
    }
    if cases.votes is not None:
        row["votes"] = cases.votes[i].tolist()
    if cases.paths is not None and cases.paths[i]:
        row["path"] = str(cases.paths[i])
    return row


def two_answers_method(cell: Predictions, shown: Sequence[str]) -> str | None:
    """The method whose two answers are shown case by case: the best one that has them, or None."""
    for method in (*reversed(shown), PUBLISHED, VOTED):
        if method in cell.methods and cell.first(method).p_reader is not None:
            return method
    return None


def _law_of_votes(cell: Predictions, method: str, i: int, c: int) -> Row | None:
    """What a method expects of one case: the label, one reader, and the votes of its panel.

    Means over the seeds that tested the case; probabilities and votes are of class `c`. `low` to `high`
    holds at least 80 % of the law, the least likely ends left out.
    """
    votes, m = cell.cases.votes, 0
    sizes = cell.cases.panel_sizes(cell.cases.usual_readers)
    if sizes is not None:
        m = int(sizes[i])
    label, reader, laws, split = [], [], [], []
    for seed in cell.seeds(method):
        part = cell.answers[method, seed]
        at = np.flatnonzero(part.index == i)
        if len(at) == 0 or part.p_reader is None:
            continue
        q = part.p_reader[at]
        label.append(float(as_table(part.p[at])[0, c]))
        reader.append(float(as_table(q)[0, c]))
        if m >= 1:
            law = np.exp(vote_log_pmf(as_logits(q), part.rho, m))
            # Of two classes there is the law of the second alone.
            if law.ndim == 3:
                law = law[:, c]
            laws.append(law[0])
        if m >= 2:
            split.append(float(split_probability(as_logits(q), part.rho, m)[0]))
    if not label:
        return None
    out: Row = {"label": np.mean(label), "reader": np.mean(reader), "n_raters": m or None}
    if laws:
        law = np.mean(laws, axis=0)
        low, high = _span(law)
        out |= {"law": law.tolist(), "low": low, "high": high, "split": None, "votes": None}
        if split:
            out["split"] = np.mean(split)
        if votes is not None and votes[i].any():
            out["votes"] = int(votes[i, c])
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
        shown = 1
        if len(cell.cases.classes) > 2:
            shown = int(cell.y[i])
        row = _case(cell, i, shown) | {
            "stratum": None,
            "two": _law_of_votes(cell, method, i, shown),
        }
        if cell.cases.strata is not None:
            row["stratum"] = str(cell.cases.strata.values[i]) or None
        del row["votes"]  # those of `two` are shown
        out.append(row)
    return out


def _excess(cell: Predictions, table: Float) -> tuple[Int, Float]:
    """Class that each case is predicted to be, and by how much surer of it the model is than the readers.

    Than the label, where a case has no votes; -inf where it has no prediction.
    """
    filled, each = np.nan_to_num(table), np.arange(len(table))
    top = filled.argmax(axis=1)
    if table.shape[1] == 2:
        # One half counts as positive everywhere.
        top = (filled[:, 1] >= 0.5).astype(np.int64)
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
    before = None
    if method != cell.baseline:
        before = _mean_probs(cell, cell.baseline)
    out = []
    for i in np.argsort(-excess, kind="stable")[:CONFIDENT_LISTED].tolist():
        shown = int(top[i])
        # Most readers, or the label, must be against it.
        if not excess[i] > 0 or table[i, shown] - excess[i] >= 0.5:
            continue
        row = _case(cell, i, shown) | {"p": float(table[i, shown]), "before": None}
        if before is not None:
            row["before"] = float(before[i, shown])
        if row["votes"] is not None and not any(row["votes"]):
            row["votes"] = None
        out.append(row)
    return out


def overconfident_cases(
    cell: Predictions, before: str, after: str | None, both: str | None
) -> list[Row]:
    """Most over-confident cases of each stratum: id, votes, label, prediction before and after.

    Over-confidence is the probability of the predicted class less the share of readers who chose
    it, or less whether it is the label where it has no votes. Predictions are means over seeds. `two`
    has the two answers of the method named `both`.
    """
    table, second = _mean_probs(cell, before), None
    if after is not None:
        second = _mean_probs(cell, after)
    top, excess = _excess(cell, table)
    known, each = np.isfinite(excess), np.arange(len(table))
    out = []
    for stratum in cell.stratum_names or ("overall",):
        rows = each[cell.inside(each, stratum)]
        rows = rows[known[rows]]
        rows = rows[np.argsort(-excess[rows], kind="stable")][:CASES_LISTED]
        for i in rows.tolist():
            shown = 1
            if table.shape[1] > 2:
                shown = int(top[i])
            row = _case(cell, i, shown) | {"stratum": stratum, "excess": float(excess[i])}
            row |= {"before": float(table[i, shown]), "after": None, "two": None}
            if second is not None:
                row["after"] = float(second[i, shown])
            if both is not None:
                row["two"] = _law_of_votes(cell, both, i, shown)
            out.append(row)
    return out
