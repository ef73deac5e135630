"""Whether two versions of scalecal give the same numbers, on the embedded, example and simulated data.

    python scripts/same_numbers.py make OLD      # with the old version on the path
    python scripts/same_numbers.py make NEW      # with the new one
    python scripts/same_numbers.py compare OLD NEW

`make` runs the commands below; `compare` reads every table and JSON file they wrote, takes renamed
columns by their old names, and lists by file and column what differs by more than 1e-5. `CHANGED`
holds the columns that were changed on purpose, each with the reason.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TOLERANCE = 1e-5
FEW = "none,temperature,platt,isotonic,vanilla-ls,scale,scale-wide,scale-default,panel-votes,vote-fraction"

RENAMED = {
    "log_loss": "nll",
    "null_mean": "null",
    "null_p95": "null_high",
    "null_place": "null_rank",
    "floor_p95": "floor_high",
    "p_selection": "p_null",
    "debiased": "debiased_error",
    "cannot be told": "inconclusive",
}
"""Name of a column in the old version -> its name in the new one; also as the start of a name."""

IN_FRONTIER = {
    "ece_low": "ece_hard",
    "difference_ece_low_from": "difference_ece_hard_low",
    "difference_ece_low_to": "difference_ece_hard_high",
    "difference_ece_low_p": "difference_ece_hard_p",
    "difference_ece_low": "difference_ece_hard",
    **{f"difference_{m}_from": f"difference_{m}_low" for m in ("ece", "nll", "vote_nll")},
    **{f"difference_{m}_to": f"difference_{m}_high" for m in ("ece", "nll", "vote_nll")},
}
"""The same for the files of the frontier, where these names mean something else than elsewhere."""

CHANGED = {
    "floor": "one exact estimator instead of three",
    "excess": "ECE less the floor",
    "null": "1,000 draws shared by the seeds instead of 200 each",
    "p_null": "1,000 draws shared by the seeds instead of 200 each",
    "p(null)": "1,000 draws shared by the seeds instead of 200 each",
    "_p": "a difference of nothing but rounding",
    "recovered_low": "a ratio of small gains, by rounding",
}
"""Columns (or endings of names) whose values were changed on purpose -> why."""

STREAMED = ("_low", "_high", "null", "null_rank", "p_consistency", "p_null", "_holm")
"""Endings of the columns of a streamed audit that now come from the bootstrap and the draws of the
audit in memory."""


def commands(root: Path) -> list[list[str]]:
    """Every command that is run, writing below `root`."""
    features, few = "examples/features.npz", root / "several.csv"
    runs = [
        ["audit", "examples/predictions.csv", "--out", f"{root}/audit"],
        ["audit", "examples/predictions.csv", "--stream", "--out", f"{root}/stream"],
        ["audit", str(few), "--out", f"{root}/several"],
        ["compare", features, "--methods", FEW, "--seeds", "3", "--out", f"{root}/compare"],
        ["compare", features, "--preset", "default", "--seeds", "2", "--out", f"{root}/default"],
    ]
    for method in ("scale", "temperature", "scale-default"):
        probe = f"{root}/probe-{method}"
        runs.append(["fit", features, "--method", method, "--out", probe])
        runs.append(["predict", probe, features, "--out", f"{root}/predicted/{method}.csv"])
    runs.append(["reproduce", "--seeds", "2", "--out", f"{root}/embedded"])
    return runs


def several_classes(path: Path) -> None:
    """Write predictions of three classes with five readers and patients."""
    rng = np.random.default_rng(0)
    n = 400
    truth = rng.dirichlet([0.6, 0.5, 0.4], size=n)
    votes = np.array([rng.multinomial(5, p) for p in truth])
    seen = truth**1.5 / (truth**1.5).sum(axis=1, keepdims=True)
    frame = pd.DataFrame({"id": np.arange(n), "label": np.array(list("abc"))[votes.argmax(axis=1)]})
    for c, name in enumerate("abc"):
        frame[f"p_{name}"], frame[f"votes_{name}"] = seen[:, c], votes[:, c]
    frame["group"] = rng.integers(40, size=n)
    frame.to_csv(path, index=False)


def make(root: Path) -> None:
    """Run all commands with the scalecal that this Python finds."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "predicted").mkdir(exist_ok=True)
    several_classes(root / "several.csv")
    for command in commands(root):
        print("scalecal", *command, flush=True)
        subprocess.run(
            [sys.executable, "-m", "scalecal", *command], check=True, stdout=subprocess.DEVNULL
        )


def renamed(name: str) -> str:
    """Name of an old column in the new version."""
    for old, new in RENAMED.items():
        if name.startswith(new) and new.startswith(old):
            return name
        if name == old or name.startswith(f"{old}_"):
            return new + name[len(old) :]
    return name


def numbers_of_json(value: Any, path: tuple[str, ...], out: dict[tuple[str, ...], Any]) -> None:
    """Flatten JSON; rows that have a name or an id go by it."""
    if isinstance(value, dict):
        for key, one in value.items():
            numbers_of_json(one, (*path, renamed(str(key))), out)
    elif isinstance(value, list):
        for i, one in enumerate(value):
            key = str(one.get("id") or one.get("name") or i) if isinstance(one, dict) else str(i)
            extra = f"/{one['stratum']}" if isinstance(one, dict) and "stratum" in one else ""
            numbers_of_json(one, (*path, key + extra), out)
    else:
        out[path] = value


def numbers_of_table(frame: pd.DataFrame, out: dict[tuple[str, ...], Any]) -> None:
    """Flatten a table: its columns of text, seeds and levels are the key of a row."""
    keys = [c for c in frame if frame[c].dtype.kind not in "fiu" or c in ("seed", "temperature")]
    seen: dict[tuple[str, ...], int] = defaultdict(int)
    for record in frame.to_dict("records"):
        key = tuple(renamed(str(record[k])) for k in keys)
        seen[key] += 1
        for column, value in record.items():
            if column not in keys:
                out[*key, str(seen[key]), renamed(str(column))] = value


def numbers_of(file: Path, *, old: bool) -> dict[tuple[str, ...], Any]:
    """Every number of a file by its place."""
    out: dict[tuple[str, ...], Any] = {}
    if file.suffix == ".json":
        numbers_of_json(json.loads(file.read_text(encoding="utf-8")), (), out)
    else:
        read = pd.read_csv if file.suffix == ".csv" else pd.read_parquet
        options = {"keep_default_na": False, "na_values": [""]} if file.suffix == ".csv" else {}
        frame = read(file, **options)
        if old and file.name.startswith("frontier"):
            frame = frame.rename(columns=IN_FRONTIER)
        numbers_of_table(frame, out)
    return {k: v for k, v in out.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def compare(old: Path, new: Path) -> int:
    """Print what differs; return the number of columns that differ without a reason."""
    unexplained = 0
    total = 0
    skip = ("run.json", "timing.json", "facts.json", "manifest.json", "probe.json")
    for file in sorted(p for p in old.rglob("*") if p.suffix in (".csv", ".json", ".parquet")):
        name = file.relative_to(old)
        if file.name in skip or "seeds" in name.parts:
            continue
        if not (new / name).is_file():
            print(f"{name}: not in the new version")
            unexplained += 1
            continue
        a, b = numbers_of(file, old=True), numbers_of(new / name, old=False)
        both = a.keys() & b.keys()
        total += len(both)
        off: dict[str, list[float]] = defaultdict(list)
        for key in both:
            x, y = a[key], b[key]
            same = (x != x and y != y) or math.isclose(x, y, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            if not same:
                column = next((k for k in reversed(key) if k in ("floor", "value")), key[-1])
                place = key[-3] if column in ("floor", "value") and len(key) > 2 else ""
                off[f"{column} {place}".strip()].append(abs(x - y))
        gone = {key[-1] for key in a.keys() - b.keys()}
        for column, differences in sorted(off.items()):
            why = next(
                (
                    w
                    for c, w in CHANGED.items()
                    if column.endswith(c) or column.split()[0].endswith(c)
                ),
                "",
            )
            if name.parts[0] == "stream" and column.split()[0].endswith(STREAMED):
                why = why or "by the code of the audit in memory"
            unexplained += not why
            print(
                f"{name}: {column}: {len(differences)} differ, by up to {max(differences):.2g}"
                + (f" ({why})" if why else "  <-- not expected")
            )
        if gone:
            print(f"{name}: no longer there: {', '.join(sorted(gone)[:12])}")
    print(f"{total:,} numbers compared, {unexplained} differences without a reason")
    return unexplained


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        sys.exit(min(compare(Path(sys.argv[2]), Path(sys.argv[3])), 1))
