"""The paper's tables, as pure functions of the evidence; each beside what the paper printed.

`TABLES` maps a table's name to its function. A table that cannot be made has no rows and says why.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scalecal.paper import printed as paper
from scalecal.paper.evidence import Evidence
from scalecal.paper.printed import encoder_label, method_label
from scalecal.paper.table_files import Row, Table
from scalecal.paper.tables_by_encoder import (
    NAN,
    as_printed,
    mean_sd,
    table_anchors,
    table_full,
    table_generalisation,
    table_generalisation_full,
    table_shift,
)

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
                row[name], row[f"{name}_sd"] = mean_sd(values, 100)
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
                ece, sd = mean_sd(evidence.by_seed(*key, "ece", stratum))
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
                    row["paper"] = as_printed(paper.AUDIT, cell.encoder, stratum)
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


def table_pairwise(evidence: Evidence) -> Table:
    """Table 4: real against synthetic agreement, smoothing by smoothing."""
    rows: list[Row] = []
    for dataset in evidence.judged:
        drawn = evidence.resampled(dataset)
        for smoothing, (real, scale) in paper.SMOOTHINGS.items():
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
