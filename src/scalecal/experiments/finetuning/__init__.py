"""End-to-end ResNets on images with hard and smoothed labels: the replication of Wei et al. (2022)."""

from __future__ import annotations

from scalecal.experiments.finetuning.folder import Finetuned
from scalecal.experiments.finetuning.labels import LABEL_KINDS, LabelKind
from scalecal.experiments.finetuning.run import finetune

__all__ = ["LABEL_KINDS", "Finetuned", "LabelKind", "finetune"]
