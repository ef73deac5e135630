"""Measure what `docs/choosing.md` says: which method, and which default, the evidence supports.

    python scripts/choose_default.py --breakhis features.npz --out choosing > choosing.txt

Every annotator-free method, the candidates for `ScaleProbe()`'s default and the ways to train are
run on the nodules that come with the package, on embeddings of BreakHis where a file of them is given
(`X`, `y`, `patient`), on scikit-learn's breast cancer and digits, and on simulated readers. Prints
Markdown tables; `--out` keeps every number. Eight minutes on one core.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from choosing_evidence import (
    AIM,
    BASELINE,
    DEFAULT,
    JURIES,
    REFERENCE,
    Evidence,
    candidate_name,
    candidate_probes,
    data_sets,
    measure,
    training_choices,
)
from scalecal.auditing.sentences import LEVEL, number
from scalecal.checks import ScalecalWarning
from scalecal.io.features import Features
from scalecal.runs.frontier import softened_name
from scalecal.runs.methods import METHODS
from scalecal.runs.scores import Resampled

RIVALS: tuple[tuple[str, float | str | None, bool], ...] = (
    ("none", 0.25, False),
    ("none", 0.5, True),
    ("none", "auto", True),
    ("share 0.5, mass 0.1", None, True),
    ("share 0.5, mass 0.1", 0.25, True),
    ("share 0.5, mass 0.1", 0.5, True),
    ("share 0.5, mass 0.1", 0.75, True),
    ("share 1, mass 0.1", "auto", True),
    ("scale", None, False),
)
"""Candidates set beside the default one by one: probe, jury, temperature."""


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a Markdown table."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def signed(value: float, low: float = float("nan"), high: float = float("nan")) -> str:
    """Format a difference with its interval."""
    if not np.isfinite(value):
        return "-"
    if not np.isfinite(low):
        return f"{value:+.3f}"
    return "0" if value == low == high == 0 else f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def set_table(evidence: Evidence, tables: dict[tuple[str, str], Features]) -> str:
    """Return the sets, and what real votes give and cost there."""
    rows = []
    for key, cell in evidence.cells.items():
        data, drawn = tables[key], evidence.drawn[key[0]]
        values = [
            number(drawn.drawn(key[1], BASELINE, metric=m).value)
            if evidence.has(key, BASELINE, m)
            else "-"
            for m in ("nll", "vote_nll", "auc")
        ]
        gain = ["-", "-"]
        if cell.cases.votes is not None:
            found = [evidence.contrast(key, REFERENCE, m) for m in ("vote_nll", "nll")]
            gain = [signed(c.difference, c.low, c.high) for c in found]
        name = f"{key[0]}, {key[1]}" if key[1] != "simulated" else key[0]
        rows.append([name, f"{len(data):,}", str(data.X.shape[1]), *values, *gain])
    head = ["set", "cases", "features", "NLL", "vote NLL", "AUC"]
    return markdown([*head, "votes: vote NLL", "votes: NLL"], rows)


def summary_row(evidence: Evidence, method: str, *, softening: bool) -> dict[str, Any]:
    """Everything about one method over all sets."""
    shares = evidence.recovered(method)
    points = [s.share for s in shares.values()]
    row: dict[str, Any] = {"method": method}
    for metric in ("nll", "vote_nll", "auc"):
        names = (metric, f"{metric}_low", f"{metric}_high")
        row |= dict(zip(names, evidence.mean(method, metric), strict=True))
    row["sets"] = len(evidence.sets(method, "nll"))
    row["nll_worse"] = len(evidence.clear(method, "nll", worse=1))
    row["nll_better"] = len(evidence.clear(method, "nll", worse=-1))
    row["auc_worse"] = len(evidence.clear(method, "auc", worse=-1))
    row["recovered"] = float(np.median(points)) if points else float("nan")
    row["recovered_mean"] = float(np.mean(points)) if points else float("nan")
    row["recovered_least"], row["recovered_most"] = (
        (min(points), max(points)) if points else (float("nan"),) * 2
    )
    row["voted"] = len(points)
    row["reached"] = sum(s.share >= AIM for s in shares.values())
    row["missed"] = sum(s.high < AIM for s in shares.values())
    if softening and method != BASELINE:
        for metric in ("nll", "vote_nll"):
            names = (f"soft_{metric}", f"soft_{metric}_low", f"soft_{metric}_high")
            found = evidence.mean(method, metric, softened_name(method))
            row |= dict(zip(names, found, strict=True))
    return row


def _told(row: dict[str, Any], metric: str) -> str:
    return signed(*(row.get(f"{metric}{end}", float("nan")) for end in ("", "_low", "_high")))


def _share(row: dict[str, Any]) -> str:
    if not row["voted"]:
        return "-"
    return f"{row['recovered']:.0%} ({row['recovered_least']:.0%} to {row['recovered_most']:.0%})"


def method_table(rows: Iterable[dict[str, Any]], *, softening: bool = False) -> str:
    """Return the methods, one line each."""
    head = ["method", "NLL", "sets worse / better", "vote NLL", "AUC", "recovered", f">= {AIM:.0%}"]
    head += ["NLL - softening", "vote NLL - softening"] if softening else []
    lines = []
    for row in rows:
        known = METHODS.get(row["method"])
        kind = " (needs votes)" if known and known.needs_votes else ""
        kind = " (control)" if known and known.control else kind
        line = [row["method"] + kind, _told(row, "nll")]
        line += [f"{row['nll_worse']} / {row['nll_better']} of {row['sets']}"]
        line += [_told(row, "vote_nll"), _told(row, "auc"), _share(row)]
        line += [f"{row['reached']} of {row['voted']}" if row["voted"] else "-"]
        line += [_told(row, "soft_nll"), _told(row, "soft_vote_nll")] if softening else []
        lines.append(line)
    return markdown(head, lines)


def frontier(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Candidates that no other beats in both mean label NLL and mean vote NLL."""
    kept: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda r: (r["nll"], r["vote_nll"])):
        if not kept or row["vote_nll"] < kept[-1]["vote_nll"]:
            kept.append(row)
    return kept


def rival_table(evidence: Evidence) -> str:
    """Return candidates against the default, paired: rival minus default."""
    columns: list[tuple[str, str, bool | None]] = [
        (f"{title}, {kind}", metric, real)
        for metric, title in (("nll", "NLL"), ("vote_nll", "vote NLL"))
        for kind, real in (("real", True), ("simulated", False))
    ]
    columns.append(("AUC, all", "auc", None))
    lines = []
    for key in RIVALS:
        name = candidate_name(*key)
        changes = [evidence.mean(name, metric, DEFAULT, real=real) for _, metric, real in columns]
        lines.append([name, *(signed(*change) for change in changes)])
    return markdown(["instead of the default", *(title for title, _, _ in columns)], lines)


def factor_table(rows: dict[tuple[str, Any, bool], dict[str, Any]]) -> str:
    """Return what each choice does, averaged over the other choices."""
    wide = {key: row for key, row in rows.items() if key[0] not in (BASELINE, "scale")}
    groups: dict[str, list[dict[str, Any]]] = {}
    for (probe, jury, temperature), row in wide.items():
        share, mass = probe.split(", ")
        for level in (
            share,
            mass,
            "temperature" if temperature else "no temperature",
            "no jury" if jury is None else f"jury {jury}",
        ):
            groups.setdefault(level, []).append(row)
    kinds = ("share", "mass", "temperature", "jury")
    order = sorted(groups, key=lambda level: next(i for i, k in enumerate(kinds) if k in level))
    lines = []
    for level in order:
        means = [np.mean([row[k] for row in groups[level]]) for k in ("nll", "vote_nll", "auc")]
        recovered = np.mean([row["recovered_mean"] for row in groups[level]])
        lines.append([level, *(signed(float(m)) for m in means), f"{recovered:.0%}"])
    return markdown(["choice", "NLL", "vote NLL", "AUC", "recovered (mean)"], lines)


def training_table(evidence: Evidence) -> str:
    """Label NLL of the plain probe by how it is trained; differences to the default."""
    real = [key for key in evidence.cells if key[1] != "simulated"]
    simulated = [key for key in evidence.cells if key[1] == "simulated"]
    names = [*training_choices(), "centred rms, 10,000 steps", "centred rms, 2,000 steps"]
    lines = []
    for name in names:
        line = [name]
        for dataset, encoder in real:
            value = evidence.drawn[dataset].drawn(encoder, name, metric="nll").value
            c = evidence.contrast((dataset, encoder), name, "nll")
            mark = "" if not c.p_value < LEVEL else "+" if c.difference > 0 else "-"
            line.append(f"{value:.3f}{mark}")
        values = [evidence.drawn[d].drawn(e, name, metric="nll").value for d, e in simulated]
        lines.append([*line, f"{np.mean(values):.3f}"])
    return markdown(["training", *(f"{d}, {e}" for d, e in real), "simulated, mean"], lines)


def per_set(evidence: Evidence) -> pd.DataFrame:
    """Return every change on every set with its interval, tidy."""
    lines = []
    names = [*METHODS, *(candidate_name(*key) for key in RIVALS), *training_choices()]
    for name, metric in product(names, ("nll", "vote_nll", "auc")):
        for key in evidence.sets(name, metric):
            c = evidence.contrast(key, name, metric)
            lines.append((name, *key, metric, c.value, c.difference, c.low, c.high, c.p_value))
    columns = ["method", "dataset", "features", "metric", "value", "change", "low", "high", "p"]
    return pd.DataFrame(lines, columns=columns)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--breakhis", type=Path, help="embeddings of BreakHis: X, y, patient (.npz)"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--resamples", type=int, default=400)
    parser.add_argument("--out", type=Path, help="folder for the numbers behind the tables")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ScalecalWarning)
    tables = data_sets(options.breakhis)
    cells = {}
    for key, data in tables.items():
        print(f"{', '.join(key)}: {len(data):,} x {data.X.shape[1]}", file=sys.stderr, flush=True)
        cells[key] = measure(data, key[0], options.seeds)
    drawn = {
        dataset: Resampled(
            [
                replace(cell, encoder=encoder)
                for (d, encoder), cell in cells.items()
                if d == dataset
            ],
            n_resamples=options.resamples,
            seed=seed,
        )
        for seed, dataset in enumerate(dict.fromkeys(d for d, _ in cells))
    }
    evidence = Evidence(cells, drawn)
    free = [m for m in METHODS if any(m in c.methods for c in cells.values()) and m != BASELINE]
    methods = [summary_row(evidence, m, softening=True) for m in free]
    candidates = {
        key: summary_row(evidence, candidate_name(*key), softening=False)
        for key in product((BASELINE, "scale", *candidate_probes()), JURIES, (True, False))
    }
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(methods).to_csv(options.out / "methods.csv", index=False)
        pd.DataFrame(candidates.values()).to_csv(options.out / "candidates.csv", index=False)
        per_set(evidence).to_csv(options.out / "sets.csv", index=False)
    print("### Sets\n", set_table(evidence, tables), "", sep="\n")
    print("### Methods\n", method_table(methods, softening=True), "", sep="\n")
    print("### Candidates no other beats\n")
    print(method_table(frontier(list(candidates.values()))), "", sep="\n")
    print("### Against the default\n", rival_table(evidence), "", sep="\n")
    print("### Each choice, averaged over the others\n", factor_table(candidates), "", sep="\n")
    print("### Training\n", training_table(evidence), sep="\n")


if __name__ == "__main__":
    main()
