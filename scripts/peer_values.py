"""Write `tests/metrics/peer_values.json`: the clinical numbers of three small sets by other packages.

    sudo apt install r-base-core r-cran-rms r-cran-proc
    python -m venv peers && peers/bin/pip install calzone-tool statsmodels
    peers/bin/python scripts/peer_values.py

R's rms (val.prob, lrm, robcov), glm and pROC, and Python's calzone and statsmodels. The data are written too,
so that the tests need neither R nor a random generator. CalibrationCurves and pmcalibration are on CRAN only.
"""

from __future__ import annotations

import csv
import json
import platform
import subprocess
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import statsmodels.api as sm
from calzone.metrics import cox_regression_analysis, spiegelhalter_z_test

HERE = Path(__file__).parent
OUT = HERE.parent / "tests" / "metrics" / "peer_values.json"


def make(seed: int, n: int, centre: float, slope: float, shift: float) -> dict[str, list[float]]:
    """Cases of patients, whose logits are wrong by a slope and a shift."""
    rng = np.random.default_rng(seed)
    group = np.sort(rng.integers(0, n // 6, n))
    truth = rng.normal(centre, 1.3, n) + rng.normal(0.0, 0.7, n)[group]
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-truth))
    p = np.round(1.0 / (1.0 + np.exp(-(slope * truth + shift))), 5)
    return {"p": p.tolist(), "y": y.astype(int).tolist(), "group": group.tolist()}


SETS = {
    "calibrated": make(1, 240, 0.0, 1.0, 0.0),
    "too extreme and too high": make(2, 240, -0.5, 1.6, 0.5),
    "rare": make(3, 300, -2.8, 0.8, -0.3),
}


def by_r(data: dict[str, list[float]]) -> tuple[dict[str, float], dict[str, str]]:
    """Values and versions that the script in R prints."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.csv")
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(data)
            writer.writerows(zip(*data.values(), strict=True))
        run = subprocess.run(
            ["Rscript", str(HERE / "peer_values.R"), str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
    values, versions = {}, {}
    for line in run.stdout.splitlines():
        first, *rest = line.split()
        if first == "version":
            versions[rest[0]] = rest[1]
        else:
            values[first] = float(rest[0])
    return values, versions


def by_python(data: dict[str, list[float]]) -> dict[str, float]:
    """Values by calzone and statsmodels."""
    p, y = np.array(data["p"]), np.array(data["y"])
    z = np.log(p / (1.0 - p))
    both = np.column_stack([1.0 - p, p])
    slope, intercept, *_ = cox_regression_analysis(y.copy(), both)
    _, citl, *_ = cox_regression_analysis(y.copy(), both, fix_slope=True)
    clusters = {"groups": np.array(data["group"]), "use_correction": False}
    family = sm.families.Binomial()
    offset = sm.GLM(y, np.ones(len(y)), family=family, offset=z)
    line = sm.GLM(y, sm.add_constant(z), family=family)
    ratio = sm.GLM(y, np.ones(len(y)), family=sm.families.Poisson(), offset=np.log(p))
    values = {
        "calzone.slope": slope,
        "calzone.intercept": intercept,
        "calzone.citl": citl,
        "calzone.spiegelhalter_p": spiegelhalter_z_test(y.copy(), both)[1],
        # A Poisson model with offset log p has O:E as its rate, and the sandwich as its robust error.
        "statsmodels.oe": float(np.exp(ratio.fit(tol=1e-14).params[0])),
    }
    for name, model, index in (("oe", ratio, 0), ("citl", offset, 0), ("slope", line, 1)):
        values[f"statsmodels.{name}_se_alone"] = model.fit(tol=1e-14, cov_type="HC0").bse[index]
        grouped = model.fit(tol=1e-14, cov_type="cluster", cov_kwds=clusters)
        values[f"statsmodels.{name}_se_groups"] = grouped.bse[index]
    return {name: float(value) for name, value in values.items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    versions = {name: version(name) for name in ("calzone-tool", "statsmodels", "numpy", "scipy")}
    versions["python"] = platform.python_version()
    sets = {}
    for name, data in SETS.items():
        values, from_r = by_r(data)
        versions |= from_r
        sets[name] = {"data": data, "values": values | by_python(data)}
    text = json.dumps({"versions": versions, "sets": sets})
    OUT.write_text(
        text.replace('}, "', '},\n"').replace('"data"', '\n"data"') + "\n", encoding="utf-8"
    )
