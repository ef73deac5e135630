"""Fitted probes for use elsewhere: one ONNX graph with both answers, and a model card."""

from __future__ import annotations
