"""What `choose_default.py` measures: the sets, the candidates for the default, their bootstraps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from scalecal.auditing.sentences import LEVEL
from scalecal.calibrators import Calibrator, JuryScaling, TemperatureScaling
from scalecal.cases import Cases, Factor
from scalecal.checks import Float
from scalecal.datasets import load_lidc, simulate
from scalecal.inference.paired import RecoveredShare
from scalecal.inference.units import interval
from scalecal.io.features import Features
from scalecal.probes import Recipe
from scalecal.runs.cells import Cell, Prediction
from scalecal.runs.frontier import with_softened
from scalecal.runs.grid import apply_probe, fit_calibrator, parts, run_grid
from scalecal.runs.methods import METHODS, Method
from scalecal.runs.scores import Contrast, Resampled

AIM = 0.83
BASELINE, REFERENCE, DEFAULT = "none", "vote-fraction", "scale-default"

SHARES, MASSES, JURIES = (0.1, 0.5, 1.0), (0.1, 0.3, 1.0), (None, 0.25, 0.5, 0.75, 1.0, "auto")

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


def plain_table(X: Any, y: Any, groups: Any = None, encoder: str = "table") -> Features:
    """Return features with labels and no votes."""
    y = np.asarray(y, dtype=np.int64)
    cases = Cases(
        n=len(y),
        classes=tuple(map(str, range(int(y.max()) + 1))),
        y=y,
        groups=None if groups is None else Factor.of(groups),
    )
    return Features(np.asarray(X), cases, encoder)


def data_sets(breakhis: Path | None) -> dict[tuple[str, str], Features]:
    """(data set, feature set) -> table; a split is redrawn for every seed."""
    out = {
        ("lidc", "geometry"): load_lidc(),
        ("lidc", "geometry-raw"): load_lidc(features="geometry-raw"),
        ("lidc", "four readers"): replace(
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
        out[name, "simulated"] = replace(drawn.with_cases(split=None), encoder="simulated")
    return out


def candidate_probes() -> dict[str, Method]:
    """Return the probes the candidates for the default build on."""
    return {
        f"share {share:g}, mass {mass:g}": Method(
            label="",
            about="",
            preset="default",
            recipe=Recipe(synthesis={"n_anchors": share, "n_synthetic": 1.0, "mass": mass}),
        )
        for share, mass in product(SHARES, MASSES)
    }


def training_choices() -> dict[str, Method]:
    """Return ways to train the plain probe."""
    out = {}
    for scaling, steps in product(("rms", "none", "zscore", "l2"), (10_000, 2_000)):
        out[f"{scaling}, {steps:,} steps"] = Recipe(scaling=scaling, min_steps=steps)
    return {
        k: Method(label="", about="", preset="default", recipe=recipe) for k, recipe in out.items()
    }


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


def measure(data: Features, name: str, seeds: int) -> Cell:
    """Run everything on one set of features."""
    free = [m for m in METHODS if not METHODS[m].over_encoders and m != "none-default"]
    probes = candidate_probes()
    more = {**probes, **training_choices()}
    grid = run_grid(data, methods=free, seeds=seeds, preset="default", more=more, dataset=name)
    added = {}
    for seed in range(seeds):
        _, val, test = parts(data, seed)
        for probe, jury, temperature in product(
            (BASELINE, "scale", *probes), JURIES, (True, False)
        ):
            trained = grid.probes[probe, seed]
            method = Method(label="", about="", calibrator=steps_after(jury, temperature))
            index = grid.cell.predictions[probe, seed].rows
            probs = apply_probe(trained, fit_calibrator(method, trained, data, val), data, test)
            added[candidate_name(probe, jury, temperature), seed] = Prediction(index, probs)
    centred = replace(data, X=data.X - data.X.mean(axis=0, dtype=np.float64).astype(data.X.dtype))
    choices = {
        f"centred {k}": training_choices()[k] for k in ("rms, 10,000 steps", "rms, 2,000 steps")
    }
    other = run_grid(centred, methods=["none"], seeds=seeds, preset="default", more=choices)
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
        known = {"nll": True, "vote_nll": cell.cases.votes is not None}
        known["auc"] = len(cell.cases.classes) == 2
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
