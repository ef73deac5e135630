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
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits

from scalecal.calibrators import Calibrator, JuryScaling, TemperatureScaling
from scalecal.checks import Float, ScalecalWarning
from scalecal.datasets import load_lidc, simulate
from scalecal.experiments.cells import Cell
from scalecal.experiments.frontier import softened_name, with_softened
from scalecal.experiments.grid import apply_probe, features_of, fit_calibrator, parts, run_grid
from scalecal.experiments.methods import METHODS, Method
from scalecal.experiments.resampled import Contrast, Resampled
from scalecal.features.files import FeatureTable
from scalecal.probes import Recipe
from scalecal.resampling import interval
from scalecal.statistics import RecoveredShare
from scalecal.wording import LEVEL, number

AIM = 0.83
BASELINE, REFERENCE, DEFAULT = "none", "vote-fraction", "scale-default"

SHARES, MASSES, JURIES = (0.1, 0.5, 1.0), (0.1, 0.3, 1.0), (None, 0.25, 0.5, 0.75, 1.0, "auto")

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

# dimension, AUC of a perfect model, unexplained variance, readers, cases
SIMULATED = (
    (32, 0.92, 0.1, 7, 3000),
    (256, 0.92, 0.1, 7, 3000),
    (256, 0.88, 0.25, 7, 3000),
    (256, 0.85, 0.1, 7, 3000),
    (256, 0.96, 0.02, 7, 3000),
    (256, 0.92, 0.1, 3, 3000),
    (1024, 0.92, 0.1, 7, 3000),
    (64, 0.92, 0.1, 7, 600),
)


def plain_table(X: Any, y: Any, groups: Any = None, encoder: str = "table") -> FeatureTable:
    """Return features with labels and no votes."""
    y = np.asarray(y, dtype=np.int64)
    names, codes = (None, None) if groups is None else np.unique(groups, return_inverse=True)
    return FeatureTable(
        X=np.asarray(X),
        y=y,
        counts=None,
        groups=None if codes is None else codes.astype(np.int64),
        group_names=() if names is None else tuple(map(str, names)),
        split=None,
        ids=None,
        classes=tuple(map(str, range(int(y.max()) + 1))),
        encoder=encoder,
        fingerprint="",
        notes=(),
    )


def data_sets(breakhis: Path | None) -> dict[tuple[str, str], FeatureTable]:
    """(data set, feature set) -> table; a split is redrawn for every seed."""
    out = {
        ("lidc", "geometry"): features_of(load_lidc(), encoder="geometry"),
        ("lidc", "geometry-raw"): features_of(
            load_lidc(features="geometry-raw"), encoder="geometry-raw"
        ),
        ("lidc", "four readers"): features_of(
            load_lidc(panel=4, ties="rating"), encoder="four readers"
        ),
    }
    if breakhis is not None:
        with np.load(breakhis, allow_pickle=False) as file:
            X, y, patient = file["X"].astype(np.float32), file["y"], file["patient"]
        out["breakhis", "embeddings"] = plain_table(X, y, patient)
    cancer, digits = load_breast_cancer(), load_digits()
    out["breast cancer", "table"] = plain_table(cancer.data, cancer.target)
    out["digits", "pixels"] = plain_table(digits.data, digits.target)
    for seed, (dim, auc, unexplained, readers, n) in enumerate(SIMULATED):
        drawn = simulate(n, dim=dim, auc=auc, unexplained=unexplained, n_raters=readers, seed=seed)
        name = f"sim d={dim} auc={auc:g} u={unexplained:g} m={readers} n={n:,}"
        out[name, "simulated"] = replace(features_of(drawn, encoder="simulated"), split=None)
    return out


def candidate_probes() -> dict[str, Method]:
    """Return the probes the candidates for the default build on."""
    return {
        f"share {share:g}, mass {mass:g}": Method(
            label="",
            about="",
            preset=None,
            recipe=Recipe(synthesis={"n_anchors": share, "n_synthetic": 1.0, "mass": mass}),
        )
        for share, mass in product(SHARES, MASSES)
    }


def training_choices() -> dict[str, Method]:
    """Return ways to train the plain probe."""
    out = {}
    for scaling, steps in product(("rms", "none", "zscore", "l2"), (10_000, 2_000)):
        out[f"{scaling}, {steps:,} steps"] = Recipe(scaling=scaling, min_steps=steps)
    for scaling in ("rms", "zscore"):
        out[f"{scaling}, L-BFGS"] = Recipe(scaling=scaling, solver="lbfgs")
    return {k: Method(label="", about="", preset=None, recipe=recipe) for k, recipe in out.items()}


def steps_after(jury: float | str | None, temperature: bool) -> Calibrator | None:
    """Return the steps after the probe, not yet fitted."""
    if jury is None:
        return TemperatureScaling() if temperature else None
    step = JuryScaling(strength=jury)  # type: ignore[arg-type]
    return TemperatureScaling() | step if temperature else step


def candidate_name(probe: str, jury: float | str | None, temperature: bool) -> str:
    """Name of a candidate for the default."""
    steps = [probe, *(["temperature"] if temperature else [])]
    return " + ".join([*steps, "no jury" if jury is None else f"jury {jury}"])


def measure(data: FeatureTable, name: str, seeds: int) -> Cell:
    """Run everything on one set of features."""
    free = [m for m in METHODS if not METHODS[m].over_encoders and m != "none-default"]
    probes = candidate_probes()
    more = {**probes, **training_choices()}
    grid = run_grid(data, methods=free, seeds=seeds, preset=None, more=more, dataset=name)
    added = {}
    for seed in range(seeds):
        _, val, test = parts(data, seed)
        for probe, jury, temperature in product(
            (BASELINE, "scale", *probes), JURIES, (True, False)
        ):
            trained = grid.probes[probe, seed]
            method = Method(label="", about="", calibrator=steps_after(jury, temperature))
            index, _ = grid.cell.predictions[probe, seed]
            probs = apply_probe(trained, fit_calibrator(method, trained, data, val), data, test)
            added[candidate_name(probe, jury, temperature), seed] = (index, probs)
    centred = replace(data, X=data.X - data.X.mean(axis=0, dtype=np.float64).astype(data.X.dtype))
    choices = {
        f"centred {k}": training_choices()[k] for k in ("rms, 10,000 steps", "rms, 2,000 steps")
    }
    other = run_grid(centred, methods=["none"], seeds=seeds, preset=None, more=choices)
    for key, prediction in other.cell.predictions.items():
        if key[0] in choices:
            added[key] = prediction
    cell = grid.cell.with_predictions(added)
    return with_softened(cell, [m for m in free if (m, 0) in cell.predictions and m != BASELINE])


@dataclass(frozen=True)
class Evidence:
    """All cells with their bootstraps: one of each data set's cases, independent between them."""

    cells: dict[tuple[str, str], Cell]
    drawn: dict[str, Resampled]

    def has(self, key: tuple[str, str], method: str, metric: str) -> bool:
        """Whether a metric of a method is known on a set."""
        cell = self.cells[key]
        known = {"nll": True, "vote_nll": cell.counts is not None, "auc": len(cell.classes) == 2}
        return known[metric] and method in cell.methods

    def sets(self, method: str, metric: str) -> list[tuple[str, str]]:
        """Sets on which a method's metric is known."""
        return [key for key in self.cells if self.has(key, method, metric)]

    def contrast(
        self, key: tuple[str, str], method: str, metric: str, reference: str = BASELINE
    ) -> Contrast:
        """Return a paired difference on one set."""
        return self.drawn[key[0]].contrast(method, reference, metric=metric, encoders=[key[1]])

    def mean(
        self, method: str, metric: str, reference: str = BASELINE, *, real: bool | None = None
    ) -> tuple[float, float, float]:
        """Mean difference over the sets (the real or simulated ones), with its interval for these."""
        keys = [k for k in self.sets(method, metric) if real in (None, k[1] != "simulated")]
        if not keys:
            return (float("nan"),) * 3
        samples: list[Float] = []
        points = []
        for dataset, encoder in keys:
            both = [
                self.drawn[dataset].drawn(encoder, m, metric=metric) for m in (method, reference)
            ]
            samples.append(both[0].samples - both[1].samples)
            points.append(both[0].value - both[1].value)
        return float(np.mean(points)), *interval(np.mean(samples, axis=0))

    def clear(self, method: str, metric: str, *, worse: int) -> list[tuple[str, str]]:
        """Sets on which the change is clear, over cases and over seeds, and of this sign."""
        found = []
        for key in self.sets(method, metric):
            c = self.contrast(key, method, metric)
            if c.p_value < LEVEL and np.sign(c.difference) == worse:
                found.append(key)
        return found

    def recovered(self, method: str) -> dict[tuple[str, str], RecoveredShare]:
        """Return the share of real votes' vote-NLL gain on the sets where these clearly gain."""
        out = {}
        for key in self.sets(method, "vote_nll"):
            share = self.drawn[key[0]].recovered(
                method, REFERENCE, stratum="overall", metric="vote_nll", encoders=[key[1]]
            )
            if np.isfinite(share.share):
                out[key] = share
        return out


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


def set_table(evidence: Evidence, tables: dict[tuple[str, str], FeatureTable]) -> str:
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
        if cell.counts is not None:
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
