"""The whole audit: CPU seconds and peak memory, from 977 to ten million cases."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import numpy as np


def once(n: int) -> tuple[float, float]:
    """CPU seconds and peak megabytes of one audit of n simulated cases with seven readers."""
    from scalecal import audit

    rng = np.random.default_rng(0)
    x = 2.0 * rng.standard_normal(n) - 0.7
    votes = rng.binomial(7, 1 / (1 + np.exp(-x)))
    p = 1 / (1 + np.exp(-1.6 * x))
    y = (votes >= 4).astype(np.int64)
    start = time.process_time()
    audit(y, p, votes=votes, n_raters=7)
    spent = time.process_time() - start
    return spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print a table; each size runs in a process of its own, so that peaks do not mix."""
    print("| cases | CPU s | µs / case | peak MB |\n|---:|---:|---:|---:|")
    for n in (977, 10_000, 100_000, 1_000_000, 10_000_000):
        out = subprocess.run(
            [sys.executable, "-c", f"from benchmarks.audit import once; print(*once({n}))"],
            check=True,
            capture_output=True,
            text=True,
        )
        seconds, peak = map(float, out.stdout.split())
        print(f"| {n:,} | {seconds:.2f} | {1e6 * seconds / n:.1f} | {peak:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
