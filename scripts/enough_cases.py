"""Print how often a calibrated model is called good with the number of cases that `cases_for_good` gives.

    python scripts/enough_cases.py [STUDIES]

Each row: pilot studies of a calibrated model, the number of cases that each gives, new studies of that size.
"""

from __future__ import annotations

import sys
from math import log, sqrt

import numpy as np

import scalecal
from scalecal.evaluation.judging import judge
from scalecal.evaluation.sufficiency import cases_for_good

SETTINGS = [
    # pilot cases, group size, mean and standard deviation of the logits, ICC
    (150, 1, 0.0, 1.5, 0.0),
    (600, 1, 0.0, 1.5, 0.0),
    (600, 1, -3.0, 1.2, 0.0),
    (1000, 1, -1.0, 0.6, 0.0),
    (400, 10, 0.0, 1.5, 0.1),
    (1000, 25, -1.0, 1.0, 0.05),
]


def study(n: int, size: int, mean: float, sd: float, icc: float, rng: np.random.Generator) -> dict:
    """The row of all cases of an audit of a calibrated model."""
    n = max(n, 10 * size)
    p = 1.0 / (1.0 + np.exp(-rng.normal(mean, sd, n)))
    group = np.arange(n) // size
    shared = rng.random(n) < sqrt(icc)
    y = np.where(shared, rng.random(group[-1] + 1)[group], rng.random(n)) < p
    groups = group if size > 1 else None
    audit = scalecal.audit(y.astype(int), p, groups=groups, n_resamples=200).audit
    return audit.rows[0]


def is_good(row: dict) -> bool:
    """The verdict."""
    return judge([row], agreement=False)["badge"] == "good"


def enough(row: dict):
    """What `cases_for_good` says of a row."""
    width = 2 * 1.96
    return cases_for_good(
        row["n"],
        events=min(row["events"], row["n"] - row["events"]),
        oe_se=log(row["oe_high"] / row["oe_low"]) / width,
        citl_se=(row["citl_high"] - row["citl_low"]) / width,
        slope_se=(row["slope_high"] - row["slope_low"]) / width,
        error_high=judge([row], agreement=False)["error_high"],
    )


def main(studies: int) -> None:
    print("| pilot cases | group size | mean, sd of logits | ICC | times | cases said | P(Good) |")
    print("|---|---|---|---|---|---|---|")
    for n, size, mean, sd, icc in SETTINGS:
        rng = np.random.default_rng(1)
        said, good, times = [], [], []
        for _ in range(studies):
            pilot = enough(study(n, size, mean, sd, icc, rng))
            if pilot.reason:
                continue
            said.append(int(pilot.n))
            times.append(pilot.times)
            good += [is_good(study(said[-1], size, mean, sd, icc, rng)) for _ in range(10)]
        low, middle, high = np.quantile(said, [0.1, 0.5, 0.9])
        print(
            f"| {n:,} | {size} | {mean:g}, {sd:g} | {icc:g} | {np.median(times):.1f} | "
            f"{middle:,.0f} ({low:,.0f} to {high:,.0f}) | {np.mean(good):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["20"])[0]))
