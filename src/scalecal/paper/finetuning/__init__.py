"""End-to-end ResNets on images with hard and smoothed labels: the replication of Wei et al. (2022)."""

from __future__ import annotations

from scalecal.paper.finetuning.folder import Finetuned
from scalecal.paper.finetuning.labels import LABEL_KINDS, LabelKind
from scalecal.paper.finetuning.run import finetune

__all__ = ["LABEL_KINDS", "Finetuned", "LabelKind", "finetune"]
