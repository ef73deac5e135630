"""The command line. Heavy modules are imported by the commands that need them."""

from __future__ import annotations

# Importing a module of commands adds them to the application.
from scalecal.cli import (  # noqa: F401
    audit,
    calibrate,
    demo,
    export,
    finetune,
    images,
    paper,
    probes,
    report,
)
from scalecal.cli.app import app, main

__all__ = ["app", "main"]
