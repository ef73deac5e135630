"""Run every benchmark, or those named: ``python -m benchmarks [NAME ...]``."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
HELPERS = ("__main__", "timing")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def known() -> list[str]:
    """Names of the modules with a main()."""
    names = [module.name for module in pkgutil.iter_modules([str(FOLDER)])]
    return [
        name
        for name in sorted(names)
        if name not in HELPERS and "def main(" in (FOLDER / f"{name}.py").read_text()
    ]


def run(wanted: list[str]) -> int:
    """Run the benchmarks named, all if none is; return the exit code."""
    unknown = [name for name in wanted if name not in known()]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}. Known: {', '.join(known())}", file=sys.stderr)
        return 2
    # Before numpy is imported: one thread, or a ratio says how many cores were free.
    os.environ.update(dict.fromkeys(THREADS, "1"))
    for name in wanted or known():
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
