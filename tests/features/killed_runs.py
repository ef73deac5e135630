"""Run as a script: extractions in child processes, killed (signal 9) at random moments.

One process imports everything, stays single-threaded and forks a child per run, so that a kill
costs milliseconds. Prints the number of kills that hit a run in progress.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from scalecal.features.extraction import extract
from tests.features.made import open_tiles, tiny_encoder


def start(tiles: Path, out: Path) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            extract(
                open_tiles(tiles),
                tiny_encoder(wait=0.01),
                out,
                device="cpu",
                batch_size=2,
                workers=2,
                shard_rows=4,
                progress=False,
            )
            status = 0
        finally:
            os._exit(status)
    return child


def main(tiles: Path, out: Path, runs: int) -> None:
    began = time.monotonic()
    assert os.waitpid(start(tiles, out / "whole"), 0)[1] == 0
    took = time.monotonic() - began
    rng = np.random.default_rng(5)
    kills = 0
    for run in range(runs):
        while True:
            child = start(tiles, out / f"killed{run}")
            time.sleep(float(rng.uniform(0.0, 0.6)) * took)
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            if not os.WIFSIGNALED(status):
                assert os.waitstatus_to_exitcode(status) == 0
                break
            kills += 1
            if kills > 12 * (run + 1):  # a slow machine: let the run finish
                assert os.waitpid(start(tiles, out / f"killed{run}"), 0)[1] == 0
                break
    print(kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
