"""Which method, and what `ScaleProbe()` should be: every table of docs/choosing.md.

Real sets: LIDC nodules (three and four readers), and any files of embeddings with votes given on the
command line (AtNorM-MD's two networks in the document; one without votes, BreakHis, is judged by labels
alone). Simulated sets: readers of a beta-binomial panel whose rho is known. Five seeds, each with its own
70 / 10 / 20 split; every method by the default preset; intervals are the run's own (cases or groups
resampled, means over seeds).

Run: python scripts/choose_default.py [NAME=FEATURES.npz ...] > choosing.txt     (ten minutes, one core)
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace

import numpy as np
from scipy.special import expit

from scalecal.calibrators import PanelCalibrator
from scalecal.cases import Cases, Features
from scalecal.checks import ScalecalWarning
from scalecal.datasets import load_lidc
from scalecal.evaluation.evaluations import evaluate
from scalecal.io.features import read_features
from scalecal.io.text import change_text, number
from scalecal.probes import Recipe
from scalecal.probes.methods import Method
from scalecal.runs.grid import run_grid

SEEDS = 5
VOTED = (0, 25, 50, 100, 200)
# dimension, rho, readers, cases, mean of a reader's logit
SIMULATED = (
    (32, 0.0, 7, 2000, 0.0),
    (32, 0.15, 7, 2000, 0.0),
    (256, 0.15, 7, 2000, 0.0),
    (256, 0.4, 7, 2000, 0.0),
    (256, 0.15, 3, 2000, 0.0),
    (64, 0.3, 5, 2000, -2.0),
    (64, 0.15, 7, 600, 0.0),
)
METHODS = (
    *("none", "temperature", "platt", "vanilla-ls", "scale", "scale-wide", "mixup", "focal"),
    *("panel-published", "panel-votes", "scale-default", "vote-fraction"),
)


def candidates() -> dict[str, Method]:
    """The synthetic cases of `ScaleProbe()` at other weights, with the same panel."""
    return {
        f"mass {mass:g}": Method(
            label=f"mass {mass:g}",
            about="ScaleProbe() with another weight of its synthetic cases.",
            recipe=Recipe(synthesis={"n_anchors": 0.5, "n_synthetic": 1.0, "mass": mass}),
            calibrator=PanelCalibrator(),
            readers="published",
            preset="default",
        )
        for mass in (0.3, 1.0)
    }


def panel_set(dim: int, rho: float, m: int, n: int, centre: float, seed: int) -> Features:
    """Readers of a panel with a known rho, whose mean vote is a line through one feature."""
    rng = np.random.default_rng([dim, m, n, seed])
    X = rng.normal(size=(n, dim)).astype(np.float32)
    mu = expit(centre + 1.5 * X[:, 0])
    p = mu
    if rho > 0:
        scale = (1.0 - rho) / rho
        p = rng.beta(mu * scale, (1.0 - mu) * scale)
    votes = rng.binomial(m, p)
    cases = Cases(
        n=n,
        classes=("0", "1"),
        y=(2 * votes > m).astype(np.int64),
        votes=np.column_stack([m - votes, votes]),
    )
    return Features(X, cases, encoder="simulated")


def data_sets(files: list[str]) -> dict[str, Features]:
    out = {
        "LIDC, three readers": load_lidc(),
        "LIDC, four readers": replace(load_lidc(panel=4, ties="rating"), encoder="four"),
    }
    for given in files:
        name, _, path = given.partition("=")
        out[name] = read_features(path)
    for seed, (dim, rho, m, n, centre) in enumerate(SIMULATED):
        name = f"simulated: rho {rho:g}, {m} readers, {n:,} x {dim}"
        out[name + (", 1 in 5 positive" if centre else "")] = panel_set(
            dim, rho, m, n, centre, seed
        )
    return out


def table(head: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def main() -> None:
    warnings.simplefilter("ignore", ScalecalWarning)
    summary: dict[str, list[tuple[float, float, float, float]]] = {}
    for name, data in data_sets(sys.argv[1:]).items():
        voted = VOTED if data.cases.votes is not None else ()
        grid = run_grid(
            data, methods=METHODS, seeds=SEEDS, preset="default", voted=voted, more=candidates()
        )
        facts = evaluate(grid.cell, voted=grid.voted).facts
        rows = {r["method"]: r for r in facts["rows"] if r["stratum"] == "overall"}
        rho = {m: np.mean([grid.cell.answers[m, s].rho for s in range(SEEDS)]) for m in rows}
        print(f"### {name}\n")
        lines = []
        for method, row in rows.items():
            changes = row["changes"]
            texts = [change_text(changes.get(key)) for key in ("nll", "vote_nll")]
            lines.append(
                [
                    method,
                    *texts,
                    number(row.get("count_log_score")),
                    number(row.get("auc")),
                    share(facts["recovered"][method]["share"]),
                    f"{rho[method]:.2f}" if rho[method] else "-",
                ]
            )
            if method != "none" and "vote_nll" in changes:
                summary.setdefault(method, []).append(
                    (
                        changes["nll"]["difference"],
                        changes["vote_nll"]["difference"],
                        row["count_log_score"] - rows["vote-fraction"]["count_log_score"],
                        changes["vote_nll"]["difference"]
                        - rows["vote-fraction"]["changes"]["vote_nll"]["difference"],
                    )
                )
        head = ["method", "label NLL", "vote NLL", "count NLL", "AUC", "recovered", "rho"]
        table(head, lines)
        if grid.voted is not None:
            found = {(p["voted"], p["reads"]): p for p in facts["voted"]["points"]}
            zero = rows["panel-published"]["changes"]
            lines = [
                ["0 (published)", change_text(zero["vote_nll"]), "-", change_text(zero["nll"])]
            ]
            for n in VOTED[1:]:
                both = [found.get((n, reads)) for reads in ("panel", "single")]
                if both[0] is not None:
                    texts = [change_text(p["changes"]["vote_nll"]) if p else "-" for p in both]
                    lines.append([str(n), *texts, change_text(both[0]["changes"]["nll"])])
            table(
                ["voted cases", "vote NLL, whole panel", "vote NLL, one reader", "label NLL"], lines
            )
            kappa = facts["kappa_sensitivity"]
            if kappa:
                told = "; ".join(
                    f"kappa {r['kappa']:.2f}: {r['changes']['vote_nll']['difference']:+.4f}"
                    for r in kappa
                )
                print(f"Vote NLL of panel-published by {told}.\n")
        sys.stdout.flush()
    print("### Over the sets with votes\n")
    lines = []
    for method, values in summary.items():
        v = np.array(values)
        lines.append(
            [
                method,
                f"{v[:, 0].mean():+.4f} ({v[:, 0].max():+.4f})",
                f"{v[:, 1].mean():+.4f} ({v[:, 1].max():+.4f})",
                f"{int((v[:, 1] > 0).sum())} of {len(v)}",
                f"{v[:, 3].max():+.4f}",
                f"{v[:, 2].mean():+.3f}",
            ]
        )
    head = ["method", "label NLL, mean (worst)", "vote NLL, mean (worst)", "vote NLL above none"]
    table([*head, "worst against vote-fraction", "count NLL against vote-fraction"], lines)


if __name__ == "__main__":
    main()
