"""Fitted probes of every kind, without training."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalecal.calibrators import CALIBRATORS, Calibrator, PanelCalibrator
from scalecal.panel import Panel
from scalecal.probes import LinearProbe, ScaleProbe
from tests.calibrators.made import three_classes, two_classes


def fitted(name: str, n_classes: int) -> Calibrator:
    """A calibrator fitted to made logits."""
    z, y = two_classes() if n_classes == 2 else three_classes()
    return CALIBRATORS[name]().fit(z, y)


def panel(n_classes: int, rho: float, size: int, **options: Any) -> PanelCalibrator:
    """A panel that knows its readers, with a shift."""
    calibrator = PanelCalibrator(**options)
    calibrator.n_classes_ = n_classes
    two = n_classes == 2
    calibrator.panel_ = Panel(
        intercept=0.3 if two else np.linspace(-0.2, 0.4, n_classes),
        slope=1.3,
        rho=rho,
        panel_size=size,
        shift=0.2 if two else np.linspace(0.0, 0.3, n_classes),
    )
    return calibrator


def probe_of(
    calibrator: Calibrator | None,
    n_classes: int = 2,
    *,
    d: int = 6,
    unit: bool = False,
    kind: type[LinearProbe | ScaleProbe] = LinearProbe,
) -> Any:
    """A probe with given weights, as if it had been fitted."""
    rng = np.random.default_rng(0)
    columns = 1 if n_classes == 2 else n_classes
    probe: Any = kind()
    probe.classes_ = np.array([f"class {c}" for c in range(n_classes)])
    probe.coef_, probe.intercept_ = rng.normal(size=(columns, d)), rng.normal(size=columns)
    probe.unit_rows_, probe.n_features_in_ = unit, d
    probe.history_, probe.validation_ = np.array([0.5]), None
    probe.n_iter_, probe.best_iter_, probe.capped_ = 1, 1, False
    probe.calibrator_, probe.about_ = calibrator, {}
    return probe
