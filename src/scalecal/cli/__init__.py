"""The command line. Heavy modules are imported by the commands that need them."""

from __future__ import annotations

from scalecal.cli.app import app, main
from scalecal.cli.audit import audit, plan
from scalecal.cli.demo import demo
from scalecal.cli.finetune import finetune
from scalecal.cli.images import check, datasets, encoders, extract, import_
from scalecal.cli.paper import reproduce
from scalecal.cli.probes import compare, fit, methods, predict
from scalecal.cli.report import report, view

__all__ = [
    "app",
    "audit",
    "check",
    "compare",
    "datasets",
    "demo",
    "encoders",
    "extract",
    "finetune",
    "fit",
    "import_",
    "main",
    "methods",
    "plan",
    "predict",
    "report",
    "reproduce",
    "view",
]
