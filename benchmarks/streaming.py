"""The streaming audit: cases a second and peak memory, from a million to a billion cases."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import numpy as np

SIZES = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
BLOCK = 1 << 18


def once(n: int, voted: bool) -> tuple[float, float, float]:
    """CPU seconds of the pass, of the numbers at its end, and peak megabytes; data made on the way."""
    from scalecal.evaluation.stream import StreamingAudit

    rng = np.random.default_rng(0)
    stream, spent = StreamingAudit(), 0.0
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        p = rng.random(size)
        y = rng.random(size) < p
        votes = {"votes": rng.binomial(7, p), "n_raters": 7} if voted else {}
        began = time.process_time()
        stream.update(y, p, **votes)
        spent += time.process_time() - began
    began = time.process_time()
    stream.finish()
    end = time.process_time() - began
    return spent, end, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(sizes: tuple[int, ...] = SIZES) -> None:
    """Print a table; each size runs in a process of its own, so that peaks do not mix."""
    print("### Streaming audit, one core\n")
    print("| | cases | CPU s | million cases / s | at the end, s | peak MB |")
    print("|---|---:|---:|---:|---:|---:|")
    for voted, most in ((False, sizes[-1]), (True, sizes[-1] // 10)):
        for n in (n for n in sizes if n <= most):
            code = f"from benchmarks.streaming import once; print(*once({n}, {voted}))"
            out = subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True, text=True
            )
            spent, end, peak = map(float, out.stdout.split())
            what = "labels and 7 votes" if voted else "labels"
            print(
                f"| {what} | {n:,} | {spent:.2f} | {n / spent / 1e6:.1f} | {end:.2f} | {peak:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
