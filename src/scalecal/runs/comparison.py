"""The comparison of methods on one cell: one row per method, printed and written.

Changes against the uncalibrated probe carry a paired interval over cases (over groups where there are
any); an ECE stands beside its floor and has no interval of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.auditing.sentences import LEVEL, number
from scalecal.runs.cells import BASELINE, Cell
from scalecal.runs.methods import METHODS
from scalecal.runs.resampled import Contrast, Resampled
from scalecal.runs.scores import score_cell

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare_cell"]

TRAINED_ALIKE = "none-default"
"""The uncalibrated probe by this package's own preset: what methods of that preset are fairly judged by."""
CONTROL = "scale-shuffled"
REFERENCE = "vote-fraction"
"""Training on the votes themselves: the gain whose share the others recover."""

_POINTS = ("ece", "nll", "vote_nll", "brier", "auc", "accuracy", "entropy", "smece", "aurc")
_CHANGES = ("ece", "nll", "vote_nll", "auc", "accuracy")
_UNKNOWN = (float("nan"), float("nan"))

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Comparison:
    """All methods on one cell, paired.

    Attributes
    ----------
    table : DataFrame
        One row per method.
    results : DataFrame
        Tidy: method, seed, stratum, metric, value, floor.
    cell : Cell
    control : Contrast or None
        SCALE against its negative control (the same synthetic cases, their labels permuted), by vote NLL
        (label NLL without votes).
    plain : Contrast or None
        SCALE against vanilla label smoothing, by the same.
    """

    table: pd.DataFrame
    results: pd.DataFrame
    cell: Cell
    control: Contrast | None = None
    plain: Contrast | None = None

    def __str__(self) -> str:
        return _text(self.table)

    def _repr_html_(self) -> str:
        return str(_shown(self.table).to_html(index=False, escape=True, border=0))

    @property
    def best(self) -> str:
        """The method to recommend: the lowest vote NLL (label NLL without votes) at no clear cost.

        Annotator-free methods whose label NLL is not clearly worse than the uncalibrated probe's.
        """
        key = "vote_nll" if self.table["vote_nll"].notna().any() else "nll"
        free = self.table[[_recommendable(m) for m in self.table["method"]]]
        harmless = free[~(free["nll_change_low"] > 0)]
        chosen = harmless if len(harmless) else free
        return str(chosen["method"].iloc[int(chosen[key].to_numpy().argmin())])

    @property
    def sentences(self) -> list[str]:
        """Three plain sentences on what helps and at what price."""
        return _sentences(self)


def _recommendable(method: str) -> bool:
    known = METHODS.get(method)
    return known is None or not (known.needs_votes or known.control)


def compare_cell(cell: Cell, *, n_resamples: int = 1000, seed: int = 0) -> Comparison:
    """Compare every method of a cell with the uncalibrated probe.

    Examples
    --------
    >>> from scalecal.datasets import simulate
    >>> from scalecal.runs.grid import run_grid
    >>> data = simulate(400, dim=8, seed=0)
    >>> grid = run_grid(data, methods=["none", "temperature"], seeds=2)
    >>> compare_cell(grid.cell).table["method"].tolist()
    ['none', 'temperature']
    """
    import pandas as pd

    results = score_cell(cell)
    means = _means(results)
    drawn = Resampled([cell], n_resamples=n_resamples, seed=seed)
    strata = ("overall", *cell.stratum_names)
    rows = []
    for method in cell.methods:
        row: dict[str, Any] = {"method": method, "seeds": len(cell.seeds(method))}
        for stratum in strata:
            suffix = "" if stratum == "overall" else f"_{stratum}"
            for metric in _POINTS:
                row[f"{metric}{suffix}"] = means.get((method, stratum, metric), _UNKNOWN)[0]
            row[f"ece{suffix}_floor"] = means.get((method, stratum, "ece"), _UNKNOWN)[1]
        row |= _changes(cell, drawn, method)
        row |= _recovered(cell, drawn, method)
        rows.append(row)
    metric = "nll" if cell.cases.votes is None else "vote_nll"

    def against(method: str) -> Contrast | None:
        if not {"scale", method} <= set(cell.methods):
            return None
        return drawn.contrast("scale", method, metric=metric)

    tidy = results.drop(columns=["dataset", "encoder"])
    return Comparison(pd.DataFrame(rows), tidy, cell, against(CONTROL), against("vanilla-ls"))


def _means(results: pd.DataFrame) -> dict[tuple[str, str, str], tuple[float, float]]:
    """(method, stratum, metric) -> value and floor, averaged over seeds."""
    mean = results.groupby(["method", "stratum", "metric"])[["value", "floor"]].mean().reset_index()
    return {
        (str(method), str(stratum), str(metric)): (float(value), float(floor))
        for method, stratum, metric, value, floor in mean.itertuples(index=False)
    }


def _changes(cell: Cell, drawn: Resampled, method: str) -> dict[str, float]:
    out: dict[str, float] = {}
    wanted = [(metric, "overall") for metric in _CHANGES]
    wanted += [("ece", stratum) for stratum in cell.stratum_names]
    for metric, stratum in wanted:
        suffix = "" if stratum == "overall" else f"_{stratum}"
        name = f"{metric}{suffix}_change"
        values = [float("nan")] * 4
        voted = cell.cases.votes is not None or metric != "vote_nll"
        if BASELINE in cell.methods and voted and (metric != "auc" or len(cell.cases.classes) == 2):
            found = drawn.contrast(method, BASELINE, stratum=stratum, metric=metric)
            values = [found.difference, found.low, found.high, found.p_value]
        for ending, value in zip(("", "_low", "_high", "_p"), values, strict=True):
            out[name + ending] = value
    return out


def _preset(cell: Cell, method: str) -> str:
    """Preset a method was trained by in this run."""
    own = METHODS[method].preset if method in METHODS else METHODS[BASELINE].preset
    return str(cell.meta.get("preset", own))


def _recovered(cell: Cell, drawn: Resampled, method: str) -> dict[str, Any]:
    nan = float("nan")
    why = ""
    if cell.cases.votes is None:
        why = "no votes"
    elif not {BASELINE, REFERENCE} <= set(cell.methods):
        why = f"{BASELINE} and {REFERENCE} were not both run"
    elif _preset(cell, method) != _preset(cell, BASELINE):
        why = f"trained by another preset than {BASELINE}, so the gain is not its own"
    if why:
        return {
            "recovered": nan,
            "recovered_low": nan,
            "recovered_high": nan,
            "recovered_reason": why,
        }
    share = drawn.recovered(method, REFERENCE, stratum="overall", metric="vote_nll")
    return {
        "recovered": share.share,
        "recovered_low": share.low,
        "recovered_high": share.high,
        "recovered_reason": share.reason,
    }


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    """The columns a person reads, as text."""
    import pandas as pd

    floors = [str(c) for c in table if str(c).startswith("ece_") and str(c).endswith("_floor")]
    strata = [c.removeprefix("ece_").removesuffix("_floor") for c in floors if c != "ece_floor"]
    out = pd.DataFrame({"method": table["method"]})
    for stratum in ("", *strata):
        key = f"ece_{stratum}" if stratum else "ece"
        title = f"ECE {stratum}".strip()
        out[f"{title} (floor)"] = [
            f"{number(a)} ({number(b)})"
            for a, b in zip(table[key], table[f"{key}_floor"], strict=True)
        ]
    for key, title in (
        ("nll", "NLL"),
        ("vote_nll", "vote NLL"),
        ("auc", "AUC"),
        ("accuracy", "acc."),
    ):
        if table[key].notna().any():
            out[title] = [number(v) for v in table[key]]
    for key, title in (("nll", "NLL change"), ("vote_nll", "vote NLL change")):
        if table[f"{key}_change"].notna().any():
            out[f"{title} [95 %]"] = [
                _change(*row)
                for row in table[
                    [f"{key}_change", f"{key}_change_low", f"{key}_change_high"]
                ].itertuples(index=False)
            ]
    if table["recovered"].notna().any():
        out["recovered"] = [
            "-" if not np.isfinite(r) else f"{100 * r:.0f} % [{100 * a:.0f}, {100 * b:.0f}]"
            for r, a, b in zip(
                table["recovered"], table["recovered_low"], table["recovered_high"], strict=True
            )
        ]
    return out


def _change(difference: float, low: float, high: float) -> str:
    if not np.isfinite(difference):
        return "-"
    if difference == 0 and low == 0 and high == 0:
        return "0"
    return f"{difference:+.3f} [{low:+.3f}, {high:+.3f}]"


def _text(table: pd.DataFrame) -> str:
    shown = _shown(table)
    cells = [list(shown.columns), *shown.to_numpy().tolist()]
    widths = [max(len(str(line[j])) for line in cells) for j in range(len(cells[0]))]
    lines = []
    for i, line in enumerate(cells):
        parts = [
            str(c).ljust(w) if j == 0 else str(c).rjust(w)
            for j, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
        if i == 0:
            lines.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)


def _said_change(row: Row, key: str) -> str:
    return _change(*(row[f"{key}_change{end}"] for end in ("", "_low", "_high")))


def _sentences(comparison: Comparison) -> list[str]:
    table: dict[str, Row] = {str(r["method"]): r for r in comparison.table.to_dict("records")}  # type: ignore[misc]
    if BASELINE not in table:
        return ["Without the uncalibrated probe (none) there is nothing to compare with."]
    base = table[BASELINE]
    skill, named = ("auc", "an AUC") if np.isfinite(base["auc"]) else ("accuracy", "an accuracy")
    said = [
        f"The uncalibrated probe has an overall ECE of {number(base['ece'])}, where a calibrated "
        f"model would show {number(base['ece_floor'])}, at {named} of {number(base[skill])}."
    ]
    best = comparison.best
    row = table[best]
    key, what = ("vote_nll", "vote NLL") if np.isfinite(row["vote_nll"]) else ("nll", "label NLL")
    if best == BASELINE:
        cost = " at no clear cost in label NLL" if key == "vote_nll" else ""
        said.append(f"No method that needs no readers lowers {what}{cost}.")
    else:
        certain = "" if row[f"{key}_change_high"] < 0 else ", which may be chance"
        harmless, price = "", ""
        if key == "vote_nll":
            harmless = " and do not clearly raise label NLL"
            price = f" label NLL changes by {_said_change(row, 'nll')},"
        by = "" if price else "changes "
        said.append(
            f"Among the methods that need no readers{harmless}, {best} has the "
            f"lowest {what}: {number(row[key])} against {number(base[key])} "
            f"(change {_said_change(row, key)}){certain};{price} "
            f"{named.removeprefix('an ')} {by}by {_said_change(row, skill)}."
        )
        if _preset(comparison.cell, best) != _preset(comparison.cell, BASELINE):
            said.append(_training_sentence(best, table, key))
    if comparison.plain is not None:
        said.append(_scale_sentence(comparison.plain, table["scale"], what))
    if comparison.control is not None:
        said.append(_control_sentence(comparison.control, what))
    return said


def _training_sentence(best: str, table: dict[str, Row], key: str) -> str:
    """What of a gain over a probe trained by another preset may be the training's."""
    if best == TRAINED_ALIKE:
        return f"What helps here is the training: {best} calibrates nothing."
    text = f"{best} was trained by another preset than {BASELINE}"
    if TRAINED_ALIKE in table:
        alike = number(table[TRAINED_ALIKE][key])
        return f"{text}: trained alike, the uncalibrated probe ({TRAINED_ALIKE}) has {alike}."
    return f"{text}, so the gain need not be its own: {TRAINED_ALIKE} would tell."


def _difference(found: Contrast) -> str:
    """The difference with its interval over cases; and over seeds, where only they leave it open."""
    text = f"difference {_change(found.difference, found.low, found.high)}"
    sure_by_cases = found.low > 0 or found.high < 0
    if sure_by_cases and found.p_seeds >= LEVEL:
        text += f" over cases, but p = {found.p_seeds:.2f} over seeds"
    return text


def _control_sentence(control: Contrast, what: str) -> str:
    change = _difference(control)
    if control.high < 0 and control.p_value < LEVEL:
        return f"Its labels matter: with them permuted {what} is worse ({change})."
    return (
        f"Its negative control, the same synthetic cases with their labels permuted, is not clearly "
        f"worse in {what} ({change}): on these data the gain need not come from the labels."
    )


def _scale_sentence(plain: Contrast, scale: Row, what: str) -> str:
    if not np.isfinite(plain.difference):
        word = "cannot be compared with"
    elif plain.high < 0 and plain.p_value < LEVEL:
        word = "is better than"
    elif plain.low > 0 and plain.p_value < LEVEL:
        word = "is worse than"
    else:
        word = "cannot be told from"
    text = (
        f"SCALE with the paper's anchors {word} plain label smoothing in {what} "
        f"({number(plain.value)} against {number(plain.reference)}, {_difference(plain)})"
    )
    if np.isfinite(scale["recovered"]):
        share, low, high = (100 * scale[f"recovered{end}"] for end in ("", "_low", "_high"))
        text += (
            f", and recovers {share:.0f} % ({low:.0f} to {high:.0f}) of what training on the votes "
            "themselves gains"
        )
    return text + "."
