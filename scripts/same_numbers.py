"""Whether two versions of scalecal give the same numbers, on the embedded, example and simulated data.

    python scripts/same_numbers.py make OLD      # with the old version on the path
    python scripts/same_numbers.py make NEW      # with the new one
    python scripts/same_numbers.py compare OLD NEW

`make` writes input files that both versions read and runs the commands below; `compare` reads every
table and JSON file that the old version wrote and lists, by file and column, what differs by more than
1e-9. `CHANGED` holds the numbers that were changed on purpose, each with the reason.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TOLERANCE = 1e-9
FEW = "none,temperature,platt,isotonic,vanilla-ls,scale,scale-wide,scale-default,panel-votes,vote-fraction"

SKIPPED = (
    "run.json",
    "timing.json",
    "facts.json",
    "manifest.json",
    "probe.json",
    "calibrator.json",
)
"""Files whose form may change from version to version; their numbers stand in the others as well."""

RENAMED: dict[str, str] = {}
"""Name of a file or column in the old version -> its name in the new one."""

_SOFTENING = "methods are set beside softening in comparisons alone, on cases of one training"
_VOTED = "rows by number of voted cases stand in results.csv and facts.json"
_JURY = "the methods jury and half-jury were removed"

CHANGED: dict[str, str] = {
    **{
        f"{run}/comparison.csv: {column}": _SOFTENING
        for run in ("calibrate", "calibrate-plain", "calibrate-several", "demo", "two")
        for column in ("beyond_softening", "softening_temperature")
    },
    **{
        f"{run}/comparison.csv: gone": _VOTED
        for run in ("calibrate", "calibrate-plain", "calibrate-several", "compare", "demo", "two")
    },
    **{
        f"{run}/{file}": "comparison.csv has what frontier.csv had of a method"
        for run in ("calibrate", "calibrate-several", "compare", "default", "demo")
        for file in ("frontier.csv", "frontier_methods.csv")
    },
    "default/comparison.csv: gone": _JURY,
    "default/predictions.parquet: gone": _JURY,
    "default/results.csv: gone": _JURY,
    "embedded/cells/*/predictions.parquet: gone": _JURY,
    "embedded/results.csv: gone": _JURY,
    "embedded/tables/*: gone": _JURY,
    "audit-calibrated/cases.parquet: gone": "p_split is an answer, in predictions.parquet",
    "embedded/tables/shift.csv": "training under shift was removed",
    **{
        f"{place}: {column}": "pairs of cases are of different groups, as in audits"
        for place in ("*/results.csv", "*/cells/*/results.csv", "embedded/tables/*")
        for column in ("value of debiased_error", "debiased")
    },
    **{
        f"stream/audit.{kind}: {key}_{end}": "other draws: axes of equal variance turn with rounding"
        for kind in ("csv", "json")
        for key in ("accuracy", "count_log_score", "gap", "vote_excess", "vote_gap", "vote_nll")
        for end in ("low", "high")
    },
}
"""Pattern of the beginning of ``file: column``, whose values were changed on purpose -> why."""


def commands(root: Path) -> list[list[str]]:
    """Every command that is run, writing below `root`."""
    predictions, features = "examples/predictions.csv", "examples/features.npz"
    several, plain, rival = (f"{root}/{name}.csv" for name in ("several", "plain", "rival"))
    runs = [
        ["audit", predictions, "--out", f"{root}/audit"],
        ["audit", predictions, "--prevalence", "0.1", "--out", f"{root}/prevalence"],
        ["audit", predictions, "--stream", "--out", f"{root}/stream"],
        ["audit", several, "--out", f"{root}/several"],
        ["audit", plain, "--out", f"{root}/plain"],
        ["audit", plain, rival, "--out", f"{root}/two"],
        ["calibrate", predictions, "--out", f"{root}/calibrate"],
        ["calibrate", several, "--out", f"{root}/calibrate-several"],
        ["calibrate", plain, "--method", "isotonic", "--out", f"{root}/calibrate-plain"],
        ["audit", f"{root}/calibrate/predictions.csv", "--out", f"{root}/audit-calibrated"],
        ["demo", "--out", f"{root}/demo"],
        ["compare", features, "--methods", FEW, "--seeds", "3", "--out", f"{root}/compare"],
        ["compare", features, "--preset", "default", "--seeds", "2", "--out", f"{root}/default"],
    ]
    for method in ("scale", "temperature", "scale-default", "panel-votes"):
        probe = f"{root}/probe-{method}"
        runs.append(["fit", features, "--method", method, "--out", probe])
        runs.append(["predict", probe, features, "--out", f"{root}/predicted/{method}.csv"])
    runs.append(["reproduce", "--seeds", "2", "--out", f"{root}/embedded"])
    return runs


def write_inputs(root: Path) -> None:
    """Write predictions of three classes with votes and patients, and of two models with labels only."""
    rng = np.random.default_rng(0)
    n = 400
    truth = rng.dirichlet([0.6, 0.5, 0.4], size=n)
    votes = np.array([rng.multinomial(5, p) for p in truth])
    seen = truth**1.5 / (truth**1.5).sum(axis=1, keepdims=True)
    frame = pd.DataFrame({"id": np.arange(n), "label": np.array(list("abc"))[votes.argmax(axis=1)]})
    for c, name in enumerate("abc"):
        frame[f"p_{name}"], frame[f"votes_{name}"] = seen[:, c], votes[:, c]
    frame["group"] = rng.integers(40, size=n)
    frame.to_csv(root / "several.csv", index=False)
    chance = rng.beta(0.7, 1.2, size=n)
    label = (rng.random(n) < chance).astype(int)
    sure = chance**1.6 / (chance**1.6 + (1 - chance) ** 1.6)
    noisy = np.clip(chance + rng.normal(0, 0.1, size=n), 0.01, 0.99)
    for name, p in (("plain", sure), ("rival", noisy)):
        pd.DataFrame({"id": np.arange(n), "p": p, "label": label}).to_csv(
            root / f"{name}.csv", index=False
        )


def make(root: Path) -> None:
    """Run all commands with the scalecal that this Python finds."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "predicted").mkdir(exist_ok=True)
    write_inputs(root)
    for command in commands(root):
        print("scalecal", *command, flush=True)
        subprocess.run(
            [sys.executable, "-m", "scalecal", *command], check=True, stdout=subprocess.DEVNULL
        )


def numbers_of_json(value: Any, path: tuple[str, ...], out: dict[tuple[str, ...], Any]) -> None:
    """Flatten JSON; rows that have a name or an id go by it."""
    if isinstance(value, dict):
        for key, one in value.items():
            numbers_of_json(one, (*path, RENAMED.get(str(key), str(key))), out)
    elif isinstance(value, list):
        for i, one in enumerate(value):
            key = str(i)
            if isinstance(one, dict):
                key = str(one.get("id") or one.get("name") or i)
                if "stratum" in one:
                    key += f"/{one['stratum']}"
            numbers_of_json(one, (*path, key), out)
    else:
        out[path] = value


def numbers_of_table(frame: pd.DataFrame, out: dict[tuple[str, ...], Any]) -> None:
    """Flatten a table: its columns of text, seeds and levels are the key of a row."""
    keys = [c for c in frame if frame[c].dtype.kind not in "fiu" or c in ("seed", "temperature")]
    seen: dict[tuple[str, ...], int] = defaultdict(int)
    for record in frame.to_dict("records"):
        key = tuple(str(record[k]) for k in keys)
        seen[key] += 1
        for column, value in record.items():
            if column in keys:
                continue
            name = RENAMED.get(str(column), str(column))
            # Of a tidy table the metric says what its values are.
            if "metric" in record:
                name = f"{name} of {record['metric']}"
            out[*key, str(seen[key]), name] = value


def numbers_of(file: Path) -> dict[tuple[str, ...], Any]:
    """Every number of a file by its place."""
    out: dict[tuple[str, ...], Any] = {}
    if file.suffix == ".json":
        numbers_of_json(json.loads(file.read_text(encoding="utf-8")), (), out)
    else:
        if file.suffix == ".csv":
            frame = pd.read_csv(file, keep_default_na=False, na_values=[""])
        else:
            frame = pd.read_parquet(file)
        numbers_of_table(frame, out)
    return {k: v for k, v in out.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def same(x: float, y: float) -> bool:
    """Whether two numbers are the same, or both undefined."""
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    return math.isclose(x, y, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def reason(place: str) -> str:
    """Why the numbers of a file's column were changed; "" where they should not be."""
    for known, why in CHANGED.items():
        if fnmatch(place, f"{known}*"):
            return why
    return ""


def compare(old: Path, new: Path) -> int:
    """Print what differs; return the number of columns that differ without a reason."""
    unexplained = 0
    total = 0
    files = sorted(p for p in old.rglob("*") if p.suffix in (".csv", ".json", ".parquet"))
    for file in files:
        name = file.relative_to(old)
        if file.name in SKIPPED or file.name.startswith(".") or "seeds" in name.parts:
            continue
        there = new / RENAMED.get(str(name), str(name))
        if not there.is_file():
            why = reason(str(name))
            unexplained += not why
            print(f"{name}: not in the new version ({why or 'no reason known'})")
            continue
        a, b = numbers_of(file), numbers_of(there)
        total += len(a.keys() & b.keys())
        off: dict[str, list[float]] = defaultdict(list)
        for key in a.keys() & b.keys():
            if not same(float(a[key]), float(b[key])):
                off[key[-1]].append(abs(a[key] - b[key]))
        gone = {key[-1] for key in a.keys() - b.keys()}
        for column, differences in sorted(off.items()):
            why = reason(f"{name}: {column}")
            unexplained += not why
            most = max(differences)
            print(
                f"{name}: {column}: {len(differences)} differ, by up to {most:.2g} ({why or '!'})"
            )
        if gone:
            why = reason(f"{name}: gone")
            unexplained += not why
            print(f"{name}: no longer there: {', '.join(sorted(gone)[:12])} ({why or '!'})")
    print(f"{total:,} numbers compared, {unexplained} differences without a reason")
    return unexplained


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        sys.exit(min(compare(Path(sys.argv[2]), Path(sys.argv[3])), 1))
