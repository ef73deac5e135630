"""Print how wide an audit's 95 % intervals are with the numbers of cases that `plan_precision` gives.

    python scripts/precision_widths.py [STUDIES]

Calibrated models whose labels are drawn anew in each study; cases of a patient share the uniform number that
decides the label with probability sqrt(ICC). In some rows a patient's cases have one prediction too.
"""

from __future__ import annotations

import sys
from math import sqrt

import numpy as np

import scalecal
from scalecal.planning import plan_precision

SETTINGS = [
    # mean and standard deviation of the logits, cases a patient, ICC, whether a patient has one prediction
    (0.0, 1.5, 1, 0.0, False),
    (-2.5, 1.0, 1, 0.0, False),
    (-1.0, 1.2, 10, 0.1, False),
    (-1.0, 1.2, 10, 0.1, True),
    (-1.0, 1.2, 50, 0.05, False),
    (-1.0, 1.2, 50, 0.05, True),
]
KEYS = {"O:E": "oe", "calibration slope": "slope", "AUC": "auc"}


def width(key: str, n: int, setting: tuple, rng: np.random.Generator) -> float:
    """Width of one interval of one study of `n` cases."""
    mean, sd, size, icc, alike = setting
    code = np.arange(n) // size
    logits = rng.normal(mean, sd, n)
    if alike:
        logits = rng.normal(mean, sd, code[-1] + 1)[code]
    p = 1.0 / (1.0 + np.exp(-logits))
    shared = rng.random(n) < sqrt(icc)
    y = np.where(shared, rng.random(code[-1] + 1)[code], rng.random(n)) < p
    groups = code if size > 1 else None
    row = scalecal.audit(y.astype(int), p, groups=groups, n_resamples=20).audit.rows[0]
    return row[f"{key}_high"] - row[f"{key}_low"]


def main(studies: int) -> None:
    head = "| mean, sd of logits | cases a patient | ICC | one p a patient | criterion | cases |"
    print(f"{head} planned | mean |")
    print("|---|---|---|---|---|---|---|---|")
    for setting in SETTINGS:
        mean, sd, size, icc, alike = setting
        rng = np.random.default_rng(1)
        plan = plan_precision(
            logit_normal=(mean, sd), oe_width=0.3, slope_width=0.3, group_size=size, icc=icc
        )
        for row in plan.table.itertuples():
            found = [width(KEYS[row.criterion], row.n_cases, setting, rng) for _ in range(studies)]
            print(
                f"| {mean:g}, {sd:g} | {size} | {icc:g} | {'yes' if alike else 'no'} "
                f"| {row.criterion} | {row.n_cases:,} | {row.width:.2f} | {np.mean(found):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["40"])[0]))
