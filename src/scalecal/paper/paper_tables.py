"""The paper's tables, each beside what the paper printed, and their files.

`TABLES` maps a name to a table: what it is called, what it shows, and the function of the evidence that
yields its rows. Files: CSV with full precision, Markdown and LaTeX (booktabs) to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalecal.checks import Float
from scalecal.io.store import write_csv, write_text
from scalecal.io.text import latex_escape, latex_text, markdown_text, p_value
from scalecal.paper import printed as paper
from scalecal.paper.evidence import Evidence

Row = dict[str, Any]
NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Table:
    """A table: what it shows, and the function of the evidence that finds its rows.

    Called with evidence, it returns itself with these rows; `needs` says what is missing where there
    are none. `formats` gives the kind of a column: "percent" (a share), "signed percent", "points"
    (already in per cent), "p"; other floats have three decimals. A column ``x_sd`` is the standard
    deviation of ``x`` over seeds and is shown with it.
    """

    title: str
    caption: str
    find: Callable[[Evidence], Iterable[Row]]
    needs: str
    formats: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[Row] = ()

    def __call__(self, evidence: Evidence) -> Table:
        """Find the rows."""
        return replace(self, rows=list(self.find(evidence)))


def _shown(value: Any, kind: str) -> str:
    """Format one value as people read it; "-" where it is undefined."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "-"
    if isinstance(value, str | int | np.integer):
        return str(value)
    if kind == "p":
        return p_value(float(value))
    scale, form, unit = {
        "percent": (100, ".0f", " %"),
        "signed percent": (100, "+.1f", " %"),
        "points": (1, ".1f", ""),
    }.get(kind, (1, ".3f", ""))
    return f"{scale * value:{form}}{unit}"


def _text(table: Table) -> pd.DataFrame:
    """The table as text; means with their standard deviations, without empty columns."""
    names = list(dict.fromkeys(name for row in table.rows for name in row))
    columns = {}
    for name in (name for name in names if not name.endswith("_sd")):
        kind = table.formats.get(name, "")
        pairs = [[_shown(row.get(key), kind) for key in (name, f"{name}_sd")] for row in table.rows]
        cells = [mean if "-" in (mean, sd) else f"{mean} ± {sd}" for mean, sd in pairs]
        if any(cell not in ("-", "") for cell in cells):
            columns[name] = cells
    return pd.DataFrame(columns)


def markdown(table: Table) -> str:
    """Return a table as GitHub-flavoured Markdown, with its title and caption.

    Examples
    --------
    >>> row = {"method": "none", "ECE": 0.1, "ECE_sd": 0.01}
    >>> print(markdown(Table("T", "What it shows.", lambda _: [row], "nothing")(Evidence([]))))
    **T.** What it shows.
    <BLANKLINE>
    | method | ECE |
    | --- | --- |
    | none | 0.100 ± 0.010 |
    <BLANKLINE>
    """
    empty = f"This table cannot be made here: {table.needs}.\n"
    body = markdown_text(_text(table)) if table.rows else empty
    return f"**{table.title}.** {table.caption}\n\n{body}"


def latex(table: Table, label: str) -> str:
    """Return a table as LaTeX; it needs the package booktabs.

    Examples
    --------
    >>> row = {"method": "a_b", "ECE": 0.1}
    >>> text = latex(Table("T", "Shows 5 %.", lambda _: [row], "nothing")(Evidence([])), "toy")
    >>> "a\\\\_b & 0.100" in text, "5 \\\\%" in text
    (True, True)
    """
    body = f"This table cannot be made here: {latex_escape(table.needs)}.\n"
    if table.rows:
        text = _text(table)
        align = "".join("l" if isinstance(table.rows[0].get(str(c)), str) else "r" for c in text)
        body = latex_text(text, align=align, blocks=True)
    caption = latex_escape(f"{table.title}. {table.caption}")
    return (
        f"\\begin{{table}}[t]\n\\caption{{{caption}}}\n\\label{{tab:{label}}}\n"
        f"\\centering\n\\small\n{body}\\end{{table}}\n"
    )


def write_tables(folder: str | Path, tables: Mapping[str, Table]) -> None:
    """Write every table as ``name.csv``, ``name.md`` and ``name.tex``.

    A table that cannot be made is written too, with the reason.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        rows = table.rows or [{"cannot be made": table.needs}]
        write_csv(pd.DataFrame(rows), folder / f"{name}.csv")
        write_text(folder / f"{name}.md", markdown(table))
        write_text(folder / f"{name}.tex", latex(table, name))


# ---- rows


def _mean_sd(name: str, values: Iterable[float], scale: float = 1.0) -> Row:
    """Columns `name` and ``name_sd``: mean and standard deviation of the finite values."""
    # Of no value both are NaN, of one the standard deviation.
    series = pd.Series(scale * np.asarray(list(values), dtype=np.float64))
    finite = series[np.isfinite(series)]
    return {name: float(finite.mean()), f"{name}_sd": float(finite.std(ddof=1))}


def _replication(evidence: Evidence) -> Iterator[Row]:
    """Table 1: an end-to-end ResNet with hard, smoothed and agreement-smoothed labels."""
    for cell in evidence.cells:
        for method, numbers in paper.REPLICATION.items():
            if method not in cell.methods:
                continue
            key = (cell.dataset, cell.encoder, method)
            row: Row = {
                "data set": cell.dataset,
                "method": paper.method_label(method),
                **_mean_sd("AUC", evidence.by_seed(*key, "auc"), 100),
                **_mean_sd("ECE", evidence.by_seed(*key, "ece"), 100),
                "floor": 100 * evidence.mean(*key, "ece", column="floor"),
                "seeds": len(cell.seeds(method)),
            }
            if cell.dataset == "mhist":
                names = ("AUC, paper", "AUC, Wei et al.", "ECE, paper", "ECE, Wei et al.")
                for name, (mean, sd) in zip(names, numbers, strict=True):
                    row |= {name: mean, f"{name}_sd": sd}
            yield row


def combined_p(p_values: Float | Sequence[float]) -> float:
    """Join p-values of one hypothesis, however they depend on each other: twice their mean.

    Seeds are tested on the same cases, so their p-values go together, and a mean alone is no p-value
    (Rueschendorf 1982; Vovk and Wang 2020, Biometrika). One alone stays as it is.

    Examples
    --------
    >>> combined_p([0.01, 0.03]), combined_p([0.6, 0.9]), combined_p([0.2])
    (0.04, 1.0, 0.2)
    """
    if len(p_values) == 0:
        return NAN
    if len(p_values) == 1:
        return float(p_values[0])
    return min(1.0, 2.0 * float(np.mean(p_values)))


def _audit(evidence: Evidence) -> Iterator[Row]:
    """Table 2: ECE of the uncalibrated probe by stratum, beside its floor and its null."""
    for dataset in evidence.judged:
        for cell in evidence.of_dataset(dataset, "none"):
            key = (dataset, cell.encoder, "none")
            for stratum in ("overall", *cell.stratum_names):
                row: Row = {
                    "data set": dataset,
                    "encoder": paper.encoder_label(cell.encoder),
                    "stratum": stratum,
                    "n": round(evidence.mean(*key, "n", stratum)),
                    **_mean_sd("ECE", evidence.by_seed(*key, "ece", stratum)),
                    "floor": evidence.mean(*key, "ece", stratum, column="floor"),
                    "null": evidence.mean(*key, "null", stratum),
                    "p(null)": combined_p(evidence.by_seed(*key, "p_null", stratum)),
                    "debiased": evidence.mean(*key, "debiased_error", stratum),
                }
                if dataset == "mhist":
                    row["paper"] = paper.printed(*key, "ece", stratum)[0]
                yield row


def _main(evidence: Evidence) -> Iterator[Row]:
    """Table 3: every method averaged over encoders, with its change and both p-values."""
    for dataset in evidence.judged:
        drawn = evidence.resampled(dataset)
        for method in evidence.methods(dataset):
            encoders = evidence.encoders(dataset, "none", method)
            over = partial(_over, [(dataset, e, method) for e in encoders])
            mean = partial(over, evidence.mean)
            floor = partial(over, partial(evidence.mean, column="floor"))
            row: Row = {
                "data set": dataset,
                "method": paper.method_label(method),
                "encoders": len(encoders),
                "overall ECE": mean("ece"),
                "overall ECE, floor": floor("ece"),
                "low ECE": mean("ece", "low"),
                "low ECE, floor": floor("ece", "low"),
                **dict.fromkeys(
                    ("low change", "low from", "low to", "p (seeds)", "p (cases)"), NAN
                ),
                "NLL": mean("nll"),
                "vote NLL": mean("vote_nll"),
                "AUC": 100 * mean("auc"),
                "accuracy": 100 * mean("accuracy"),
            }
            if method != "none":
                low = drawn.contrast(method, "none", stratum="low", encoders=encoders)
                row["low change"] = low.change
                # Shares of the reference as measured: the interval is that of the difference.
                row["low from"], row["low to"] = low.low / low.reference, low.high / low.reference
                row["p (seeds)"], row["p (cases)"] = low.p_seeds, low.p_cases
            if dataset == "mhist":
                paper_mean = partial(over, _printed_mean)
                row["overall ECE, paper"] = paper_mean("ece")
                row["low ECE, paper"] = paper_mean("ece", "low")
                row["low change, paper"] = NAN
                if method != "none":
                    base = _over(
                        [(dataset, e, "none") for e in encoders], _printed_mean, "ece", "low"
                    )
                    row["low change, paper"] = row["low ECE, paper"] / base - 1
                row["AUC, paper"] = paper_mean("auc")
            yield row


def _over(cells: Sequence[tuple[str, str, str]], number: Callable[..., float], *key: str) -> float:
    """Mean over encoders of a number of each (data set, encoder, method)."""
    return float(np.mean([number(*cell, *key) for cell in cells]))


def _printed_mean(*key: str) -> float:
    return paper.printed(*key)[0]


def _pairwise(evidence: Evidence) -> Iterator[Row]:
    """Table 4: real against synthetic agreement, smoothing by smoothing."""
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
            for name, (stratum, metric) in _RECOVERED.items():
                share = drawn.recovered(
                    scale, real, stratum=stratum, metric=metric, encoders=encoders
                )
                row |= {name: share.share, f"{name} from": share.low, f"{name} to": share.high}
                row[f"{name}, why not"] = share.reason
            # The paper printed averages over its eight encoders only.
            if dataset == "mhist" and set(encoders) >= set(paper.ENCODER_LABELS):
                names = ("real ECE, paper", "SCALE ECE, paper", "gap, paper", "recovered, paper")
                row |= dict(zip(names, paper.PAIRWISE[smoothing], strict=True))
            yield row


_RECOVERED = {"recovered": ("low", "ece"), "recovered vote NLL": ("overall", "vote_nll")}


def _sets(evidence: Evidence, judged: bool) -> list[str]:
    """Data sets with agreement strata; or PatchCamelyon, BreakHis, and others without votes."""
    if judged:
        return evidence.judged
    others = [d for d in evidence.datasets if d not in evidence.judged]
    return sorted(others, key=lambda d: (*paper.GENERAL_DATASETS, d).index(d))


def _by_encoder(
    evidence: Evidence, *, judged: bool, methods: tuple[str, ...], stratum: str
) -> Iterator[Row]:
    """Every method's ECE, the last one's floor, and what the paper printed; then the average."""
    for dataset in _sets(evidence, judged):
        rows: list[Row] = []
        for encoder in evidence.encoders(dataset, *methods):
            keys = {m: (dataset, encoder, m, "ece", stratum) for m in methods}
            row: Row = {"data set": dataset, "encoder": paper.encoder_label(encoder)}
            row |= {paper.method_label(m): evidence.mean(*key) for m, key in keys.items()}
            row["floor"] = evidence.mean(*keys[methods[-1]], column="floor")
            row |= {
                f"{paper.method_label(m)}, paper": paper.printed(*key)[0] for m, key in keys.items()
            }
            rows.append(row)
        yield from rows
        if len(rows) > 1:
            means = {key: float(np.mean([row[key] for row in rows])) for key in list(rows[0])[2:]}
            yield {"data set": dataset, "encoder": "average", **means}


_COLUMNS = {
    "overall ECE": ("ece", "overall", 1),
    "low ECE": ("ece", "low", 1),
    "ECE": ("ece", "overall", 1),
    "AUC": ("auc", "overall", 100),
    "accuracy": ("accuracy", "overall", 100),
    "NLL": ("nll", "overall", 1),
    "vote NLL": ("vote_nll", "overall", 1),
}
"""Column of the full results -> metric, stratum, factor."""


def _full_rows(
    evidence: Evidence, *, judged: bool, columns: tuple[str, ...], n_printed: int
) -> Iterator[Row]:
    """Every encoder and method; the paper printed the first columns."""
    datasets = _sets(evidence, judged)
    for cell in (c for c in evidence.cells if c.dataset in datasets):
        for method in cell.methods:
            # The sweep over K has a figure of its own, and fine-tuned networks have table 1.
            if "@" in method or method in paper.FINE_TUNED_LABELS:
                continue
            row: Row = {
                "data set": cell.dataset,
                "encoder": paper.encoder_label(cell.encoder),
                "method": paper.method_label(method),
                "seeds": len(cell.seeds(method)),
            }
            for place, name in enumerate(columns):
                metric, stratum, scale = _COLUMNS[name]
                key = (cell.dataset, cell.encoder, method, metric, stratum)
                row |= _mean_sd(name, evidence.by_seed(*key), scale)
                if metric == "ece":
                    row[f"{name}, floor"] = evidence.mean(*key, column="floor")
                if place < n_printed:
                    row[f"{name}, paper"], row[f"{name}, paper_sd"] = paper.printed(*key)
            yield row


_POINTS = dict.fromkeys(("AUC", "accuracy", "AUC, paper", "accuracy, paper"), "points")

TABLES: dict[str, Table] = {
    "replication": Table(
        "Replication of Wei et al. (2022)",
        "End-to-end ResNet-18 trained on hard, uniformly smoothed and agreement-smoothed labels. AUC, "
        "ECE (15 bins) and ECE's noise floor in per cent, mean ± sd over seeds; beside them what the "
        "paper and Wei et al. printed for MHIST.",
        _replication,
        "no fine-tuned network here; run: scalecal finetune",
        dict.fromkeys(
            (
                *("AUC", "ECE", "floor"),
                *("AUC, paper", "AUC, Wei et al.", "ECE, paper", "ECE, Wei et al."),
            ),
            "points",
        ),
    ),
    "audit": Table(
        "Calibration audit by agreement",
        "ECE (15 bins) of the uncalibrated probe by readers' agreement, mean ± sd over seeds. Floor: what "
        "a calibrated model would show on as many cases. Null: what a calibrated model would show in "
        "strata made from the same votes as the labels; p(null): chance of a null ECE as large, "
        "twice its mean over seeds, which is a p-value however they depend on each other. Debiased: squared "
        "calibration error without the floor.",
        _audit,
        "no data set here has readers' votes, so there are no agreement strata",
        {"p(null)": "p"},
    ),
    "main": Table(
        "Main comparison",
        "Calibration and discrimination averaged over encoders and seeds. Low change: change of "
        "low-agreement ECE against no calibration, with the 95 % interval of a paired bootstrap over "
        "cases (over groups where there are any). p (seeds): paired t-test across seeds, as in the "
        "paper; p (cases): the bootstrap's. Floors: what a calibrated model would show. Real-agreement "
        "methods need several readers per training case. Paper: its average over the same encoders.",
        _main,
        "no data set here has readers' votes, so there is no low-agreement stratum",
        {
            **dict.fromkeys(("low change", "low from", "low to"), "signed percent"),
            "low change, paper": "signed percent",
            "p (seeds)": "p",
            "p (cases)": "p",
            **_POINTS,
        },
    ),
    "pairwise": Table(
        "Real against synthetic agreement",
        "Low-agreement ECE averaged over encoders and seeds, the same smoothing function with real and "
        "with synthetic agreement. Recovered: share of real agreement's gain over no calibration, with "
        "its 95 % interval by paired bootstrap; undefined where real agreement gains nothing. The "
        "vote NLL of all cases cannot be gamed by softening as low-agreement ECE can.",
        _pairwise,
        "needs readers' votes and the methods real-* and scale*",
        dict.fromkeys(
            (
                *(f"{name}{end}" for name in _RECOVERED for end in ("", " from", " to")),
                "recovered, paper",
            ),
            "percent",
        ),
    ),
    "generalisation": Table(
        "Data sets without several readers",
        "Overall ECE (15 bins), mean over seeds, with the floor of SCALE's predictions; beside it what "
        "the paper printed.",
        partial(
            _by_encoder,
            judged=False,
            methods=("none", "vanilla-ls", "scale"),
            stratum="overall",
        ),
        "needs PatchCamelyon or BreakHis with none, vanilla-ls and scale",
    ),
    "full": Table(
        "Full results",
        "Every encoder and method, mean ± sd over seeds; AUC and accuracy in per cent; beside them what "
        "the paper printed for MHIST.",
        partial(
            _full_rows,
            judged=True,
            columns=("overall ECE", "low ECE", "AUC", "accuracy", "NLL", "vote NLL"),
            n_printed=4,
        ),
        "no data set here has readers' votes",
        _POINTS,
    ),
    "generalisation_full": Table(
        "Full results without several readers",
        "Every encoder and method, mean ± sd over seeds; AUC and accuracy in per cent; beside them what "
        "the paper printed for PatchCamelyon and BreakHis.",
        partial(
            _full_rows,
            judged=False,
            columns=("ECE", "AUC", "accuracy", "NLL"),
            n_printed=2,
        ),
        "needs PatchCamelyon, BreakHis or another data set without readers' votes",
        _POINTS,
    ),
    "anchors": Table(
        "Anchor selection",
        "Low-agreement ECE, mean over seeds, piecewise smoothing: uniform smoothing, SCALE with random "
        "anchors, SCALE with the most confident anchors.",
        partial(
            _by_encoder,
            judged=True,
            methods=("vanilla-ls", "scale-random", "scale"),
            stratum="low",
        ),
        "needs readers' votes and the methods vanilla-ls, scale-random, scale",
    ),
}
"""Name -> table; every name becomes a file in three formats."""
