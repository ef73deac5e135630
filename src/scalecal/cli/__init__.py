"""The command line. Heavy modules are imported by the commands that need them."""

from __future__ import annotations

from scalecal.cli.app import app, main
from scalecal.cli.audit import audit, demo, plan
from scalecal.cli.images import check, datasets, encoders, extract, import_

__all__ = [
    "app",
    "audit",
    "check",
    "datasets",
    "demo",
    "encoders",
    "extract",
    "import_",
    "main",
    "plan",
]
