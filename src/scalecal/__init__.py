"""scalecal: does a classifier on frozen embeddings know what it does not know?

Audits calibration by how far human readers agree on each case, and recalibrates without extra readers.
Public names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_HOME = {
    "Evaluation": "scalecal.evaluation.evaluations",
    "audit": "scalecal.evaluation.evaluations",
    "calibrate": "scalecal.evaluation.recalibration",
    "compare": "scalecal.runs.grid",
    "compare_audits": "scalecal.evaluation.evaluations",
    "read_predictions": "scalecal.io",
    "read_features": "scalecal.features",
    "fit_panel": "scalecal.panel",
    "LinearProbe": "scalecal.probes",
    "ScaleProbe": "scalecal.probes",
    "load_probe": "scalecal.probes",
    "InputError": "scalecal.checks",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'scalecal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
