"""The paper's tables, as pure functions of the evidence; each beside what the paper printed.

`TABLES` maps a table's name to its function. A table that cannot be made has no rows and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from scalecal.experiments import paper
from scalecal.experiments.evidence import ENSEMBLE, Evidence
from scalecal.experiments.paper import encoder_label, method_label
from scalecal.experiments.scores import score_cell
from scalecal.experiments.table_files import Row, Table

__all__ = [
    "TABLES",
    "table_anchors",
    "table_audit",
    "table_full",
    "table_generalisation",
    "table_generalisation_full",
    "table_main",
    "table_pairwise",
    "table_replication",
    "table_shift",
]

NAN = float("nan")


def _mean_sd(values: Iterable[float], scale: float = 1.0) -> tuple[float, float]:
    array = np.asarray(list(values), dtype=np.float64) * scale
    array = array[np.isfinite(array)]
    if len(array) == 0:
        return NAN, NAN
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else NAN


def _printed(found: Mapping[str, Any] | None, *keys: str) -> Any:
    """Follow keys into what the paper printed; NaN where it printed nothing."""
    value: Any = found
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return NAN if value is None else value


def table_replication(evidence: Evidence) -> Table:
    """Table 1: an end-to-end ResNet with hard, smoothed and agreement-smoothed labels."""
    rows: list[Row] = []
    for cell in evidence.cells:
        for method, printed in paper.REPLICATION.items():
            if method not in cell.methods:
                continue
            row: Row = {"data set": cell.dataset, "method": method_label(method)}
            for name, metric in (("AUC", "auc"), ("ECE", "ece")):
                values = evidence.by_seed(cell.dataset, cell.encoder, method, metric)
                row[name], row[f"{name}_sd"] = _mean_sd(values, 100)
            row["floor"] = 100 * evidence.mean(
                cell.dataset, cell.encoder, method, "ece", column="floor"
            )
            row["seeds"] = len(cell.seeds(method))
            if cell.dataset == "mhist":
                names = ("AUC, paper", "AUC, Wei et al.", "ECE, paper", "ECE, Wei et al.")
                for name, (mean, sd) in zip(names, printed, strict=True):
                    row[name], row[f"{name}_sd"] = mean, sd
            rows.append(row)
    points = ("AUC", "ECE", "floor", "AUC, paper", "AUC, Wei et al.", "ECE, paper")
    return Table(
        "Replication of Wei et al. (2022)",
        "End-to-end ResNet-18 trained on hard, uniformly smoothed and agreement-smoothed labels. AUC, "
        "ECE (15 bins) and ECE's noise floor in per cent, mean ± sd over seeds; beside them what the "
        "paper and Wei et al. printed for MHIST.",
        rows,
        dict.fromkeys((*points, "ECE, Wei et al."), "points"),
        "" if rows else "no fine-tuned network here; run: scalecal finetune",
    )


def table_audit(evidence: Evidence) -> Table:
    """Table 2: ECE of the uncalibrated probe by stratum, beside its floor and its null."""
    rows: list[Row] = []
    for dataset in evidence.judged:
        for cell in evidence.of_dataset(dataset, "none"):
            for stratum in ("overall", *cell.stratum_names):
                key = (dataset, cell.encoder, "none")
                ece, sd = _mean_sd(evidence.by_seed(*key, "ece", stratum))
                row: Row = {
                    "data set": dataset,
                    "encoder": encoder_label(cell.encoder),
                    "stratum": stratum,
                    "n": round(evidence.mean(*key, "n", stratum)),
                    "ECE": ece,
                    "ECE_sd": sd,
                    "floor": evidence.mean(*key, "ece", stratum, "floor"),
                    "null": evidence.mean(*key, "null", stratum),
                    "p(null)": evidence.mean(*key, "p_null", stratum),
                    "debiased": evidence.mean(*key, "debiased", stratum),
                }
                if dataset == "mhist":
                    row["paper"] = _printed(paper.AUDIT, cell.encoder, stratum)
                rows.append(row)
    return Table(
        "Calibration audit by agreement",
        "ECE (15 bins) of the uncalibrated probe by readers' agreement, mean ± sd over seeds. Floor: what "
        "a calibrated model would show on as many cases. Null: what a calibrated model would show in "
        "strata made from the same votes as the labels; p(null): chance of a null ECE as large, "
        "averaged over seeds. Debiased: squared calibration error without the floor.",
        rows,
        {"p(null)": "p"},
        "" if rows else "no data set here has readers' votes, so there are no agreement strata",
    )


def table_main(evidence: Evidence) -> Table:
    """Table 3: every method averaged over encoders, with its change and both p-values."""
    rows: list[Row] = []
    for dataset in evidence.judged:
        encoders = evidence.encoders(dataset, "none")
        drawn = evidence.resampled(dataset)
        known = dict.fromkeys(m for c in evidence.of_dataset(dataset, "none") for m in c.methods)
        for method in (m for m in known if "@" not in m):
            names = [e for e in encoders if method in drawn.cells[e].methods]
            row: Row = {
                "data set": dataset,
                "method": method_label(method),
                "encoders": len(names),
            }
            for name, stratum in (("overall ECE", "overall"), ("low ECE", "low")):
                row[name] = _over(evidence, dataset, names, method, "ece", stratum)
                row[f"{name}, floor"] = _over(
                    evidence, dataset, names, method, "ece", stratum, "floor"
                )
            if method == "none":
                row |= dict.fromkeys(
                    ("low change", "low from", "low to", "p (seeds)", "p (cases)"), NAN
                )
            else:
                low = drawn.contrast(method, "none", stratum="low", encoders=names)
                row["low change"] = low.change
                row["low from"], row["low to"] = low.low / low.reference, low.high / low.reference
                row["p (seeds)"], row["p (cases)"] = low.p_seeds, low.p_cases
            row["NLL"] = _over(evidence, dataset, names, method, "nll")
            row["vote NLL"] = _over(evidence, dataset, names, method, "vote_nll")
            row["AUC"] = 100 * _over(evidence, dataset, names, method, "auc")
            row["accuracy"] = 100 * _over(evidence, dataset, names, method, "accuracy")
            if dataset == "mhist":
                row |= _paper_main(names, method)
            rows.append(row)
    return Table(
        "Main comparison",
        "Calibration and discrimination averaged over encoders and seeds. Low change: change of "
        "low-agreement ECE against no calibration, with the 95 % interval of a paired bootstrap over "
        "cases (over groups where there are any). p (seeds): paired t-test across seeds, as in the "
        "paper; p (cases): the bootstrap's. Floors: what a calibrated model would show. Real-agreement "
        "methods need several readers per training case. Paper: its average over the same encoders.",
        rows,
        {
            **dict.fromkeys(
                ("low change", "low from", "low to", "low change, paper"), "signed percent"
            ),
            **dict.fromkeys(("AUC", "accuracy", "AUC, paper"), "points"),
            **dict.fromkeys(("p (seeds)", "p (cases)"), "p"),
        },
        "" if rows else "no data set here has readers' votes, so there is no low-agreement stratum",
    )


def _over(
    evidence: Evidence,
    dataset: str,
    encoders: list[str],
    method: str,
    metric: str,
    stratum: str = "overall",
    column: str = "value",
) -> float:
    values = [evidence.mean(dataset, e, method, metric, stratum, column) for e in encoders]
    return float(np.mean(values)) if values else NAN


def _paper_main(encoders: list[str], method: str) -> Row:
    def printed(column: str, of: str = method) -> float:
        table = {e: m[of][column][0] for e, m in paper.MAIN.items() if of in m}
        return paper.mean_over(encoders, table)

    low, base = printed("low"), printed("low", "none")
    return {
        "overall ECE, paper": printed("overall"),
        "low ECE, paper": low,
        "low change, paper": NAN if method == "none" else low / base - 1,
        "AUC, paper": printed("auc"),
    }


SMOOTHINGS: Mapping[str, tuple[str, str]] = {
    "linear": ("real-linear", "scale-linear"),
    "piecewise": ("real-piecewise", "scale"),
    "nonlinear": ("real-nonlinear", "scale-nonlinear"),
}
"""Smoothing function -> method with real agreement, method with synthetic agreement."""


def table_pairwise(evidence: Evidence) -> Table:
    """Table 4: real against synthetic agreement, smoothing by smoothing."""
    rows: list[Row] = []
    for dataset in evidence.judged:
        drawn = evidence.resampled(dataset)
        for smoothing, (real, scale) in SMOOTHINGS.items():
            encoders = evidence.encoders(dataset, "none", real, scale)
            if not encoders:
                continue
            gap = drawn.contrast(scale, real, stratum="low", encoders=encoders)
            row: Row = {
                "data set": dataset,
                "smoothing": smoothing,
                "encoders": len(encoders),
                "real ECE": gap.reference,
                "SCALE ECE": gap.value,
                "gap": gap.difference,
                "gap from": gap.low,
                "gap to": gap.high,
            }
            for name, stratum, metric in (
                ("recovered", "low", "ece"),
                ("recovered vote NLL", "overall", "vote_nll"),
            ):
                share = drawn.recovered(
                    scale, real, stratum=stratum, metric=metric, encoders=encoders
                )
                row[name], row[f"{name} from"], row[f"{name} to"] = (
                    share.share,
                    share.low,
                    share.high,
                )
                row[f"{name}, why not"] = share.reason
            if dataset == "mhist" and set(encoders) >= set(paper.ENCODER_LABELS):
                names = ("real ECE, paper", "SCALE ECE, paper", "gap, paper", "recovered, paper")
                row |= dict(zip(names, paper.PAIRWISE[smoothing], strict=True))
            rows.append(row)
    shares = [f"{n}{end}" for n in _RECOVERED for end in ("", " from", " to")]
    return Table(
        "Real against synthetic agreement",
        "Low-agreement ECE averaged over encoders and seeds, the same smoothing function with real and "
        "with synthetic agreement. Recovered: share of real agreement's gain over no calibration, with "
        "its 95 % interval by paired bootstrap; undefined where real agreement gains nothing. The "
        "vote NLL of all cases cannot be gamed by softening as low-agreement ECE can.",
        rows,
        dict.fromkeys((*shares, "recovered, paper"), "percent"),
        "" if rows else "needs readers' votes and the methods real-* and scale*",
    )


_RECOVERED = ("recovered", "recovered vote NLL")
_GENERAL = ("pcam", "breakhis")


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
            found = _printed(printed, encoder, method)
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
                row[name], row[f"{name}_sd"] = _mean_sd(values, scale)
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
            _printed(paper.MAIN, encoder, method, column) if dataset == "mhist" else NAN
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
        return _printed(paper.GENERALISATION, dataset, encoder, method)

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
            row["ECE"], row["ECE_sd"] = _mean_sd(table["ece"])
            row["floor"] = float(part.loc[part["metric"] == "ece", "floor"].mean())
            row["NLL"], row["NLL_sd"] = _mean_sd(table["nll"])
            row["AUC"], row["AUC_sd"] = (
                _mean_sd(table["auc"], 100) if "auc" in table else (NAN, NAN)
            )
            rows.append(row)
    return Table(
        "Calibration under shift",
        "Overall ECE, its floor, NLL and AUC where the probe was trained on one kind of image and tested "
        "on another; mean ± sd over seeds.",
        rows,
        {"AUC": "points"},
        "" if rows else "no cell here was tested elsewhere than trained",
    )


TABLES: dict[str, Callable[[Evidence], Table]] = {
    "replication": table_replication,
    "audit": table_audit,
    "main": table_main,
    "pairwise": table_pairwise,
    "generalisation": table_generalisation,
    "full": table_full,
    "generalisation_full": table_generalisation_full,
    "anchors": table_anchors,
    "shift": table_shift,
}
"""Name -> function of the evidence; every name becomes a file in three formats."""
