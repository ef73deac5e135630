"""Write `tests/planning/precision_values.json`: numbers of cases by the PyPI package pmvalsampsize.

    python -m venv peers && peers/bin/pip install pmvalsampsize
    peers/bin/python scripts/precision_values.py

The package looks for the standard error of O:E in steps (`oeseincrement`, here small enough not to matter),
rounds that of the net benefit to three decimals (the width asked for here has one of two) and draws a law of
predictions from numpy's legacy generator, seed 123456; the test draws the same numbers.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path

from pmvalsampsize.pmvalsampsize import pmvalsampsize

OUT = Path(__file__).parents[1] / "tests" / "planning" / "precision_values.json"
NET_BENEFIT_WIDTH = 2 * 1.96 * 0.05
SETTINGS = [
    # The example of Riley et al. (2021) and of the package's documentation.
    {"prevalence": 0.018, "cstatistic": 0.8, "lpnormal": (-5, 2.5), "oeciwidth": 1.0},
    {"prevalence": 0.1, "cstatistic": 0.8, "lpbeta": (0.5, 4.5), "threshold": 0.1},
    {"prevalence": 0.3, "cstatistic": 0.75, "lpnormal": (-1, 1.2), "csciwidth": 0.3},
    {"prevalence": 0.5, "cstatistic": 0.9, "lpbeta": (0.7, 0.7), "threshold": 0.4},
    {
        "prevalence": 0.02,
        "cstatistic": 0.7,
        "lpbeta": (1, 49),
        "oeciwidth": 0.5,
        "cstatciwidth": 0.08,
    },
    {"prevalence": 0.1, "cstatistic": 0.8, "lpcstat": -3},
]

rows = []
for setting in SETTINGS:
    result = pmvalsampsize(
        type="b", oeseincrement=1e-6, nbciwidth=NET_BENEFIT_WIDTH, noprint=True, **setting
    )
    found = {
        line[0]: int(line[1]) for line in result["results_table"] if line[0].startswith("Criteria")
    }
    row = {"setting": setting, "n": found}
    for name in ("sensitivity", "specificity"):
        if "threshold" in setting:
            row[name] = float(result[name])
    rows.append(row)

document = {
    "versions": {
        "pmvalsampsize": version("pmvalsampsize"),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "python": platform.python_version(),
    },
    "seed": 123456,
    "draws": 1_000_000,
    "net_benefit_width": NET_BENEFIT_WIDTH,
    "rows": rows,
}
OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
