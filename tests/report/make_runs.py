"""Small run folders for the tests of the report, made as the run commands make them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from scalecal import audit, metrics
from scalecal.datasets import simulate
from scalecal.evaluation.folder import store_facts
from scalecal.io.store import write_file
from scalecal.panel import reader_logit
from scalecal.votes import strata

# Name -> logits of the label to logits of the method; or to (label, reader, rho) where it has two answers.
METHODS: dict[str, Any] = {
    "none": lambda z: 1.6 * z,
    "temperature": lambda z: z,
    "vanilla-ls": lambda z: np.clip(1.2 * z, -3, 3),
    "scale": lambda z: 0.8 * z,
    "jury": lambda z: (z, reader_logit(z, 0.0, 7), 0.0),
    "panel-published": lambda z: (z, reader_logit(z, 0.1, 7), 0.1),
}


def make_run(
    folder: Path,
    *,
    n: int = 400,
    kind: str = "compare",
    methods: dict[str, Any] | None = None,
    seeds: int = 2,
    dataset: str = "simulated",
    encoder: str | None = "uni",
    votes: bool = True,
    with_strata: bool = True,
    ids: list[str] | None = None,
    paths: list[str] | None = None,
    tables: bool = True,
    claims: list[dict[str, Any]] | None = None,
    seed: int = 0,
) -> Path:
    """Write a run folder of `n` simulated cases; the same arguments give the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data = simulate(max(n, 2), auc=0.93, unexplained=0.05, n_train=0 if n > 1 else None, seed=seed)
    data = data.take(np.arange(n))
    rng = np.random.default_rng(seed)
    chosen = {"model": METHODS["none"]} if kind == "audit" else (methods or METHODS)
    names = ids or [f"case-{i:05d}" for i in range(n)]
    cases = pd.DataFrame({"id": names, "label": data.y})
    if votes:
        cases["votes_0"] = data.n_raters - data.votes
        cases["votes_1"] = data.votes
    cases["stratum"] = strata(data.votes, data.n_raters) if votes and with_strata else ""
    if paths:
        cases["path"] = paths
    cases.to_parquet(folder / "cases.parquet")
    parts, rows = [], []
    z = logit(np.clip(data.label_probability, 1e-6, 1 - 1e-6))
    for s in range(1 if kind == "audit" else seeds):
        wobble = 0.15 * rng.standard_normal(n)
        for name, method in chosen.items():
            made = method(z + wobble)
            label, reader, rho = made if isinstance(made, tuple) else (made, None, 0.0)
            p = expit(label)
            part = pd.DataFrame({"method": name, "seed": s, "id": names, "p": p})
            vote_p = p if reader is None else expit(reader)
            if reader is not None:
                part = part.assign(p_reader=vote_p, rho=rho)
            parts.append(part)
            if not tables:
                continue
            for stratum in ("overall", "high", "medium", "low"):
                inside = np.ones(n, bool) if stratum == "overall" else cases["stratum"] == stratum
                inside = np.asarray(inside)
                if not inside.any():
                    continue
                y, q, v, r = data.y[inside], p[inside], data.votes[inside], vote_p[inside]
                ece, floor = metrics.ece(y, q), metrics.noise_floor(q)
                found = {
                    "ece": (ece, floor),
                    "nll": (metrics.nll(y, q), np.nan),
                    "accuracy": (metrics.accuracy(y, q), np.nan),
                }
                if 0 < y.sum() < len(y):
                    found["auc"] = (metrics.auc(y, q), np.nan)
                if votes:
                    panel = data.n_raters[inside]
                    counts = np.column_stack([panel - v, v])
                    found["vote_nll"] = (metrics.vote_nll(counts, r), np.nan)
                rows += [(name, s, stratum, m, *pair) for m, pair in found.items()]
    predictions = pd.concat(parts)
    if "rho" in predictions:
        predictions["rho"] = predictions["rho"].fillna(0.0)
    predictions.to_parquet(folder / "predictions.parquet")
    if tables:
        columns = ["method", "seed", "stratum", "metric", "value", "floor"]
        pd.DataFrame(rows, columns=columns).to_csv(folder / "results.csv", index=False)
    if kind == "audit":
        counts = np.column_stack([data.n_raters - data.votes, data.votes]) if votes else None
        given = cases["stratum"] if votes and with_strata else [""] * n
        made = audit(data.y, parts[0]["p"], votes=counts, strata=None if votes else given)
        made.to_json(folder / "audit.json")
    if claims is not None:
        write_file(folder / "claims.json", json.dumps(claims), kind=kind)
    info = {
        "kind": kind,
        "title": f"{kind.title()} on {dataset}",
        "version": "0.1.0",
        "command": ["scalecal", kind, f"{dataset}.parquet", "--out", f"runs/{kind}"],
        "options": {"n_bins": 15},
        "seeds": list(range(1 if kind == "audit" else seeds)),
        "dataset": {
            "name": dataset,
            "sha256": "0123456789abcdef" * 4,
            "n": n,
            "classes": ["hyperplastic", "serrated"],
        },
        "encoder": {"name": encoder, "dim": 1024} if encoder else None,
        "methods": list(chosen),
        "notes": ["Votes are simulated: seven readers alike."],
        "packages": {"numpy": np.__version__, "pandas": pd.__version__},
    }
    write_file(folder / "run.json", json.dumps(info), kind=kind)
    store_facts(folder)
    return folder


CLAIMS = [
    {
        "id": "C1",
        "kind": "claim",
        "main": True,
        "claim": "Probes are over-confident where readers disagree.",
        "paper": "low-agreement ECE .191 on average",
        "measured": ".176 (floor .071)",
        "n": 164,
        "verdict": "holds",
        "reason": "above the selection-aware null in 9 of 11 encoders",
    },
    {
        "id": "C2",
        "kind": "claim",
        "main": True,
        "claim": "SCALE recovers most of the gain of real votes.",
        "paper": "88 %",
        "measured": "21 % (4 to 38)",
        "n": 977,
        "verdict": "does not hold",
        "reason": "the interval stays below one half",
    },
    {
        "id": "C3",
        "kind": "claim",
        "main": False,
        "claim": "Accuracy is unchanged.",
        "paper": "no significant change",
        "measured": "-0.001 (-0.012 to 0.010)",
        "n": 977,
        "verdict": "inconclusive",
        "reason": "the interval is wider than the margin of 0.005",
    },
    {
        "id": "F1",
        "kind": "fact",
        "main": False,
        "claim": "The images are free to share.",
        "paper": "CC BY",
        "measured": "a research agreement",
        "n": 0,
        "verdict": "does not hold",
        "reason": "The form that hands them out.",
    },
]
