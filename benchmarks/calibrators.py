"""Fitting calibrators to a million cases, beside netcal and scikit-learn, one thread each.

Run: python -m benchmarks.calibrators [cases]
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from scalecal.calibrators import CALIBRATORS
from scalecal.panel import reader_logit

Float = np.ndarray
FITTED = (
    *("temperature", "platt", "ensemble-temperature", "quadratic", "beta", "spline", "isotonic"),
    "venn-abers",
)
"""Calibrators that are timed."""


def peers() -> dict[tuple[str, str], Callable[[Float, Float], object]]:
    """(what is fitted, by whom) -> a function of logits and labels."""
    from sklearn.calibration import _SigmoidCalibration, _TemperatureScaling
    from sklearn.isotonic import IsotonicRegression

    fits: dict[tuple[str, str], Callable[[Float, Float], object]] = {
        ("temperature", "scikit-learn"): lambda z, y: _TemperatureScaling().fit(z, y),
        ("platt", "scikit-learn"): lambda z, y: _SigmoidCalibration().fit(z, y),
        ("isotonic", "scikit-learn"): lambda z, y: IsotonicRegression().fit(z, y),
        ("panel map, rho 0", "scalecal"): lambda z, _: reader_logit(z, 0.0, 7),
        ("panel map, rho 0.2", "scalecal"): lambda z, _: reader_logit(z, 0.2, 7),
    }
    for name in FITTED:
        fits[name, "scalecal"] = lambda z, y, name=name: CALIBRATORS[name]().fit(z, y)
    if importlib.util.find_spec("netcal"):
        from netcal.scaling import BetaCalibration, TemperatureScaling

        fits["temperature", "netcal"] = lambda z, y: TemperatureScaling().fit(expit(z), y)
        fits["beta", "netcal"] = lambda z, y: BetaCalibration().fit(expit(z), y)
    return dict(sorted(fits.items(), key=lambda item: item[0][1] != "scalecal"))


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Least CPU seconds of several runs."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def main(n: int = 1_000_000) -> None:
    """Print one row a fit: CPU seconds, and how many times scalecal's."""
    rng = np.random.default_rng(0)
    z = 2.0 * rng.standard_normal(n)
    y = (rng.random(n) < expit(z)).astype(np.float64)
    z *= 1.7
    print(f"Fitting {n:,} cases of two classes, CPU seconds, one thread\n")
    print("| fit | by | CPU s | times scalecal's |\n|---|---|---:|---:|")
    own: dict[str, float] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for (what, whom), fit in peers().items():
            spent = seconds(lambda fit=fit: fit(z, y), 5 if whom == "scalecal" else 3)
            own.setdefault(what, spent)
            print(f"| {what} | {whom} | {spent:.3f} | {spent / own[what]:.1f} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
