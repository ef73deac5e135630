"""Probes on frozen embeddings: scikit-learn estimators, and many of them at once from recipes."""

from scalecal.probes.estimators import LinearProbe, ScaleProbe
from scalecal.probes.fitting import fit_many
from scalecal.probes.jobs import Job, Trained, linear_logits, probabilities
from scalecal.probes.recipes import PRESETS, SCALINGS, Recipe, with_preset

__all__ = [
    "PRESETS",
    "SCALINGS",
    "Job",
    "LinearProbe",
    "Recipe",
    "ScaleProbe",
    "Trained",
    "fit_many",
    "linear_logits",
    "probabilities",
    "with_preset",
]
