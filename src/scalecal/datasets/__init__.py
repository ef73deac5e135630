"""Data sets: figures and nodules shipped with the package, simulated readers with a known truth, image sets.

Names are loaded on first use, so that reading one kind of data does not import what the others need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalecal.datasets.catalogue import DATASETS, open_dataset
    from scalecal.datasets.image_sets import Dataset, ImageSet
    from scalecal.datasets.shipped import load_atnorm_md, load_lidc
    from scalecal.datasets.simulated import (
        SimulatedCases,
        simulate,
        simulate_paper,
    )

__all__ = [
    "DATASETS",
    "Dataset",
    "ImageSet",
    "SimulatedCases",
    "load_atnorm_md",
    "load_lidc",
    "open_dataset",
    "simulate",
    "simulate_paper",
]

_HOME = {
    "DATASETS": "catalogue",
    "Dataset": "image_sets",
    "ImageSet": "image_sets",
    "load_atnorm_md": "shipped",
    "load_lidc": "shipped",
    "open_dataset": "catalogue",
}  # the others live in simulated.py


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_HOME.get(name, 'simulated')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
