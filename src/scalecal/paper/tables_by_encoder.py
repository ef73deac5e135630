"""The paper's tables that have a row for every encoder: generalisation, the full results, anchors, shift."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from scalecal.paper import printed as paper
from scalecal.paper.evidence import ENSEMBLE, Evidence
from scalecal.paper.printed import encoder_label, method_label
from scalecal.paper.table_files import Row, Table
from scalecal.runs.scores import score_cell

__all__ = [
    "NAN",
    "as_printed",
    "mean_sd",
    "table_anchors",
    "table_full",
    "table_generalisation",
    "table_generalisation_full",
    "table_shift",
]

NAN = float("nan")

_GENERAL = ("pcam", "breakhis")


def mean_sd(values: Iterable[float], scale: float = 1.0) -> tuple[float, float]:
    """Mean and standard deviation of what is known, times `scale`; NaN where there is too little."""
    array = np.asarray(list(values), dtype=np.float64) * scale
    array = array[np.isfinite(array)]
    if len(array) == 0:
        return NAN, NAN
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else NAN


def as_printed(found: Mapping[str, Any] | None, *keys: str) -> Any:
    """Follow keys into what the paper printed; NaN where it printed nothing."""
    value: Any = found
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return NAN if value is None else value


def _general_sets(evidence: Evidence) -> list[str]:
    """PatchCamelyon and BreakHis where at hand, then other data sets without readers' votes."""
    voteless = [d for d in evidence.datasets if d not in evidence.judged and d not in _GENERAL]
    return [d for d in _GENERAL if d in evidence.datasets] + voteless


def _by_encoder(
    evidence: Evidence,
    dataset: str,
    methods: tuple[str, ...],
    stratum: str,
    printed: Mapping[str, Any] | None,
) -> list[Row]:
    """One row per encoder with every method's ECE, the last one's floor, and the paper's; an average."""
    rows: list[Row] = []
    for encoder in evidence.encoders(dataset, *methods):
        row: Row = {"data set": dataset, "encoder": encoder_label(encoder)}
        for method in methods:
            row[method_label(method)] = evidence.mean(dataset, encoder, method, "ece", stratum)
        row["floor"] = evidence.mean(dataset, encoder, methods[-1], "ece", stratum, "floor")
        for method in methods:
            found = as_printed(printed, encoder, method)
            row[f"{method_label(method)}, paper"] = found[0] if isinstance(found, tuple) else found
        rows.append(row)
    if len(rows) > 1:
        average: Row = {"data set": dataset, "encoder": "average"}
        for key in list(rows[0])[2:]:
            average[key] = float(np.mean([row[key] for row in rows]))
        rows.append(average)
    return rows


def table_generalisation(evidence: Evidence) -> Table:
    """Table 5: overall ECE where no readers' votes are."""
    methods = ("none", "vanilla-ls", "scale")
    rows: list[Row] = []
    for dataset in _general_sets(evidence):
        printed = paper.GENERALISATION.get(dataset)
        rows += _by_encoder(evidence, dataset, methods, "overall", printed)
    return Table(
        "Data sets without several readers",
        "Overall ECE (15 bins), mean over seeds, with the floor of SCALE's predictions; beside it what "
        "the paper printed.",
        rows,
        reason="" if rows else "needs PatchCamelyon or BreakHis with none, vanilla-ls and scale",
    )


def _full_rows(evidence: Evidence, datasets: list[str], columns: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for cell in evidence.cells:
        if cell.dataset not in datasets:
            continue
        for method in (m for m in cell.methods if "@" not in m and not m.startswith("resnet-")):
            row: Row = {
                "data set": cell.dataset,
                "encoder": encoder_label(cell.encoder),
                "method": method_label(method),
                "seeds": len(cell.seeds(method)),
            }
            for name, (metric, stratum, scale, printed) in columns.items():
                values = evidence.by_seed(cell.dataset, cell.encoder, method, metric, stratum)
                row[name], row[f"{name}_sd"] = mean_sd(values, scale)
                if metric == "ece":
                    key = (cell.dataset, cell.encoder, method, metric, stratum, "floor")
                    row[f"{name}, floor"] = evidence.mean(*key)
                if printed:
                    pair = printed(cell.dataset, cell.encoder, method)
                    mean, sd = (NAN, NAN) if pair is NAN else pair
                    row[f"{name}, paper"], row[f"{name}, paper_sd"] = mean, sd
            rows.append(row)
    return rows


def table_full(evidence: Evidence) -> Table:
    """Appendix: every encoder and method where there are agreement strata, mean and sd."""

    def of(column: str) -> Callable[[str, str, str], Any]:
        return lambda dataset, encoder, method: (
            as_printed(paper.MAIN, encoder, method, column) if dataset == "mhist" else NAN
        )

    columns = {
        "overall ECE": ("ece", "overall", 1, of("overall")),
        "low ECE": ("ece", "low", 1, of("low")),
        "AUC": ("auc", "overall", 100, of("auc")),
        "accuracy": ("accuracy", "overall", 100, of("accuracy")),
        "NLL": ("nll", "overall", 1, None),
        "vote NLL": ("vote_nll", "overall", 1, None),
    }
    rows = _full_rows(evidence, evidence.judged, columns)
    return Table(
        "Full results",
        "Every encoder and method, mean ± sd over seeds; AUC and accuracy in per cent; beside them what "
        "the paper printed for MHIST.",
        rows,
        dict.fromkeys(("AUC", "accuracy", "AUC, paper", "accuracy, paper"), "points"),
        "" if rows else "no data set here has readers' votes",
    )


def table_generalisation_full(evidence: Evidence) -> Table:
    """Appendix: every encoder and method where there are no readers' votes, mean and sd."""

    def ece(dataset: str, encoder: str, method: str) -> Any:
        return as_printed(paper.GENERALISATION, dataset, encoder, method)

    def auc(dataset: str, encoder: str, method: str) -> Any:
        return ece(dataset, encoder, "auc") if method == "scale" else NAN

    columns = {
        "ECE": ("ece", "overall", 1, ece),
        "AUC": ("auc", "overall", 100, auc),
        "accuracy": ("accuracy", "overall", 100, None),
        "NLL": ("nll", "overall", 1, None),
    }
    rows = _full_rows(evidence, _general_sets(evidence), columns)
    return Table(
        "Full results without several readers",
        "Every encoder and method, mean ± sd over seeds; AUC and accuracy in per cent; beside them what "
        "the paper printed for PatchCamelyon and BreakHis.",
        rows,
        dict.fromkeys(("AUC", "accuracy", "AUC, paper"), "points"),
        "" if rows else "needs PatchCamelyon, BreakHis or another data set without readers' votes",
    )


def table_anchors(evidence: Evidence) -> Table:
    """Appendix: confident against random anchors, low-agreement ECE."""
    methods = ("vanilla-ls", "scale-random", "scale")
    rows: list[Row] = []
    for dataset in evidence.judged:
        printed = paper.ANCHORS if dataset == "mhist" else None
        rows += _by_encoder(evidence, dataset, methods, "low", printed)
    return Table(
        "Anchor selection",
        "Low-agreement ECE, mean over seeds, piecewise smoothing: uniform smoothing, SCALE with random "
        "anchors, SCALE with the most confident anchors.",
        rows,
        reason=""
        if rows
        else "needs readers' votes and the methods vanilla-ls, scale-random, scale",
    )


def table_shift(evidence: Evidence) -> Table:
    """Calibration where the test cases come from elsewhere than the training cases."""
    rows: list[Row] = []
    for cell in evidence.shifted:
        if cell.encoder == ENSEMBLE or cell.shift is None:
            continue
        scores = score_cell(cell, n_resamples=1)
        scores = scores[scores["stratum"] == "overall"]
        for method, part in scores.groupby("method", sort=False):
            table = part.pivot_table(index="seed", columns="metric", values="value")
            row: Row = {
                "data set": cell.dataset,
                "encoder": encoder_label(cell.encoder),
                "trained on": cell.shift[0],
                "tested on": cell.shift[1],
                "method": method_label(str(method)),
                "n": round(float(table["n"].mean())),
            }
            row["ECE"], row["ECE_sd"] = mean_sd(table["ece"])
            row["floor"] = float(part.loc[part["metric"] == "ece", "floor"].mean())
            row["NLL"], row["NLL_sd"] = mean_sd(table["nll"])
            row["AUC"], row["AUC_sd"] = mean_sd(table["auc"], 100) if "auc" in table else (NAN, NAN)
            rows.append(row)
    return Table(
        "Calibration under shift",
        "Overall ECE, its floor, NLL and AUC where the probe was trained on one kind of image and tested "
        "on another; mean ± sd over seeds.",
        rows,
        {"AUC": "points"},
        "" if rows else "no cell here was tested elsewhere than trained",
    )
