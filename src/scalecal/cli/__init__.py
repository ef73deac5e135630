"""The command line. Heavy modules are imported by the commands that need them."""

# Importing a module of commands adds them to the application.
from scalecal.cli import audit, calibrate, images, paper, probes  # noqa: F401
from scalecal.cli.app import app, main

__all__ = ["app", "main"]
