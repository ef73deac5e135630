"""Probes on frozen embeddings: scikit-learn estimators, and many of them at once from recipes."""

from scalecal.panel import class_probabilities as probabilities
from scalecal.probes.estimators import LinearProbe, ScaleProbe, load_probe
from scalecal.probes.fitting import (
    PRESETS,
    SCALINGS,
    CrossFit,
    Job,
    Recipe,
    Trained,
    fit_many,
    linear_logits,
    with_label,
    with_preset,
)

__all__ = [
    "PRESETS",
    "SCALINGS",
    "CrossFit",
    "Job",
    "LinearProbe",
    "Recipe",
    "ScaleProbe",
    "Trained",
    "fit_many",
    "linear_logits",
    "load_probe",
    "probabilities",
    "with_label",
    "with_preset",
]
