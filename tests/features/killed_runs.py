"""Run as a script: extractions in child processes, killed (signal 9) at random moments.

One process imports everything, stays single-threaded and forks a child per run, so that a run
takes tenths of a second and a kill hits its work, not its imports. Prints the number of kills.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet  # noqa: F401  imported late by pandas, so here rather than in every child

from scalecal.datasets.image_sets import ImageSet
from scalecal.features.extraction import extract
from tests.features.made import open_tiles, tiny_encoder


def start(images: ImageSet, out: Path) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            extract(
                images,
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
    images = open_tiles(tiles)
    images.read_one(0)
    began = time.monotonic()
    assert os.waitpid(start(images, out / "whole"), 0)[1] == 0
    took = time.monotonic() - began
    rng = np.random.default_rng(5)
    kills = 0
    for run in range(runs):
        for attempt in range(20):
            child = start(images, out / f"killed{run}")
            # The last attempt is left alone, so that a slow machine comes to an end too.
            if attempt < 19:
                time.sleep(float(rng.uniform(0.1, 0.9)) * took)
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            if not os.WIFSIGNALED(status):
                assert os.waitstatus_to_exitcode(status) == 0
                break
            kills += 1
    print(kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
