"""Probes on frozen embeddings: scikit-learn estimators, and many of them at once from recipes."""

from scalecal.probes.estimators import DEFAULT_PANEL, LinearProbe, ScaleProbe, load_probe
from scalecal.probes.fitting import Job, Trained, fit_many, linear_logits, probabilities
from scalecal.probes.recipes import PRESETS, SCALINGS, Recipe, with_preset

__all__ = [
    "DEFAULT_PANEL",
    "PRESETS",
    "SCALINGS",
    "Job",
    "LinearProbe",
    "Recipe",
    "ScaleProbe",
    "Trained",
    "fit_many",
    "linear_logits",
    "load_probe",
    "probabilities",
    "with_preset",
]
