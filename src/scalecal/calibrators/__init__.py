"""Calibrators: from a probe's logits to calibrated probabilities.

Each is fitted to logits and labels (or soft labels, with weights) of cases the probe was not
fitted to, and applied to any others. The mathematics are functions of checked arrays
(`logistic.fit_temperature`, ...), the classes shells in scikit-learn's manner, which check, and are
composed with ``a | b``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalecal.calibrators.base import Calibrator, Chain, Identity
from scalecal.calibrators.free import HistogramBinning, IsotonicCalibration, VennAbers
from scalecal.calibrators.logistic import (
    BetaCalibration,
    EnsembleTemperature,
    PlattScaling,
    QuadraticScaling,
    SplineCalibration,
    StructuredMatrixScaling,
    TemperatureScaling,
)
from scalecal.calibrators.panels import PanelCalibrator, ReaderOnTop
from scalecal.checks import InputError, lookup

__all__ = [
    "CALIBRATORS",
    "BetaCalibration",
    "Calibrator",
    "Chain",
    "EnsembleTemperature",
    "HistogramBinning",
    "Identity",
    "IsotonicCalibration",
    "PanelCalibrator",
    "PlattScaling",
    "QuadraticScaling",
    "ReaderOnTop",
    "SplineCalibration",
    "StructuredMatrixScaling",
    "TemperatureScaling",
    "VennAbers",
    "from_dict",
]

CALIBRATORS: dict[str, type[Calibrator]] = {
    "identity": Identity,
    "temperature": TemperatureScaling,
    "ensemble-temperature": EnsembleTemperature,
    "platt": PlattScaling,
    "quadratic": QuadraticScaling,
    "beta": BetaCalibration,
    "spline": SplineCalibration,
    "isotonic": IsotonicCalibration,
    "venn-abers": VennAbers,
    "histogram": HistogramBinning,
    "structured-matrix": StructuredMatrixScaling,
    "panel": PanelCalibrator,
}
"""Calibrators by name."""


def from_dict(saved: Mapping[str, Any]) -> Calibrator:
    """Return the fitted calibrator that ``to_dict`` described.

    Examples
    --------
    >>> fitted = TemperatureScaling().fit([4.0, 4.0, 4.0, -4.0], [1, 1, 0, 0])
    >>> from_dict(fitted.to_dict()).predict_proba([4.0]).round(3).tolist()
    [[0.25, 0.75]]
    """
    known: dict[str, type[Calibrator]] = {
        **CALIBRATORS,
        Chain.name: Chain,
        ReaderOnTop.name: ReaderOnTop,
    }
    if not isinstance(saved, Mapping):
        raise InputError(f"a calibrator is saved as an object with a name, got {saved!r:.80}")
    return lookup(saved.get("name", ""), known, "calibrator").from_dict(saved)
