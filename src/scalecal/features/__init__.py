"""Embeddings on disk: made from images (`extract`), brought in (`import_features`), read (`load_features`).

Names are loaded on first use, so that reading a folder of features never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "ExtractionResult": "scalecal.features.extraction",
    "FeatureFolder": "scalecal.io.feature_store",
    "Features": "scalecal.io.features",
    "ShardedArray": "scalecal.io.feature_store",
    "extract": "scalecal.features.extraction",
    "import_features": "scalecal.features.importing",
    "load_features": "scalecal.io.feature_store",
    "read_features": "scalecal.io.features",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'scalecal.features' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
