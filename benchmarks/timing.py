"""CPU time, best of several runs, and ratios as a Markdown table.

Absolute times depend on the machine and on who else uses it; ratios within one run do not, or far
less. So every table sets the peers beside ours, measured in turn in the same process.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


def cpu_seconds(call: Call, repeats: int = 3) -> float:
    """CPU time of the whole process for one call, the best of `repeats`, after one to warm up."""
    call()
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def peer(build: Callable[[], Call]) -> Call | None:
    """Prepare a peer's call, or None where its package is missing or cannot be imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return build()
        except ImportError:
            return None


def ratio_table(title: str, ours: Call, peers: dict[str, Call | None], repeats: int = 3) -> str:
    """Time ours and the peers; return a Markdown table of CPU seconds and ratios."""
    base = cpu_seconds(ours, repeats)
    lines = [f"### {title}", "", "| | CPU seconds | times ours |", "|---|---:|---:|"]
    lines.append(f"| scalecal | {base:.4f} | 1.0 |")
    for name, call in peers.items():
        if call is None:
            lines.append(f"| {name} | cannot be imported here | |")
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds = cpu_seconds(call, repeats)
        lines.append(f"| {name} | {seconds:.4f} | {seconds / base:.1f} |")
    return "\n".join([*lines, ""])


def time_table(title: str, calls: dict[str, Call], repeats: int = 3) -> str:
    """Time calls that have no peer; return a Markdown table of CPU seconds."""
    lines = [f"### {title}", "", "| | CPU seconds |", "|---|---:|"]
    lines += [f"| {name} | {cpu_seconds(call, repeats):.4f} |" for name, call in calls.items()]
    return "\n".join([*lines, ""])
