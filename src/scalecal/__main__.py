"""Run the command line with ``python -m scalecal``."""

from scalecal.cli import main

main()
