"""Data sets: nodules shipped with the package, and simulated readers with a known truth."""

from scalecal.datasets.cases import CaseTable
from scalecal.datasets.lidc import load_lidc
from scalecal.datasets.simulated import (
    SimulatedCases,
    simulate,
    simulate_paper,
    true_calibration_error,
)

__all__ = [
    "CaseTable",
    "SimulatedCases",
    "load_lidc",
    "simulate",
    "simulate_paper",
    "true_calibration_error",
]
