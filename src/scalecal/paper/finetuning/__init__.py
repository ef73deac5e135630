"""End-to-end ResNets on images with hard and smoothed labels: the replication of Wei et al. (2022)."""

from __future__ import annotations

from scalecal.paper.finetuning.experiment import finetune
from scalecal.paper.finetuning.label_kinds import LABEL_KINDS, LabelKind
from scalecal.paper.finetuning.training import FinetuneOptions

__all__ = ["LABEL_KINDS", "FinetuneOptions", "LabelKind", "finetune"]
