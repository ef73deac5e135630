"""The command line. Heavy modules are imported by the commands that need them."""

from __future__ import annotations

from scalecal.cli.app import app, main
from scalecal.cli.audit import audit, demo, plan

__all__ = ["app", "audit", "demo", "main", "plan"]
