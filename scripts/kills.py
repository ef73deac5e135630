"""Kill commands at random moments, start them again and compare every byte: a table of docs/reliability.md.

    python -m scripts.kills 1000 [WORD ...]

makes that many kills (SIGKILL, to the whole process group) of the commands whose names contain one of
the words, with as much time for each; Ctrl-C ends earlier. A killed command is started again in the same
folder, killed up to seven times more and then left alone; its results must have the bytes of a run that was
never killed. One process imports everything and forks a child for each run, so that a kill hits the work
and not the imports.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pkgutil
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from tests.conftest import guard_torchvision

import scalecal
from scalecal.cli import main as command_line
from scalecal.io.store import RECORD

LIBRARIES = (
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.pyplot"),
    *("pyarrow.parquet", "scipy.optimize", "scipy.stats", "sklearn.linear_model", "torchvision"),
)
TICK = 1.0 / os.sysconf("SC_CLK_TCK")
MAX_KILLS = 8  # of one run, before it is left alone

TILES = "folder:{inputs}/tiles"
EXTRACT = f"extract {TILES} efficientnet-lite0 --device cpu --batch-size 2 --shard-rows 4"


@dataclass(frozen=True)
class Killed:
    """A command, and the files of its results that tell the time."""

    arguments: str
    timed: tuple[str, ...] = ()


COMMANDS = {
    "extract, one worker": Killed(f"{EXTRACT} --workers 1", ("run.log",)),
    "extract, two workers": Killed(f"{EXTRACT} --workers 2", ("run.log",)),
    "compare": Killed("compare {inputs}/features.npz --seeds 2 --methods none,platt,scale"),
    "reproduce": Killed(
        "reproduce --features {inputs}/features --seeds 2 --methods none,scale --no-sweep",
        ("timing.json",),
    ),
    "finetune": Killed(
        f"finetune {TILES} --labels hard,vanilla --seeds 2 --epochs 2 --image-size 32 "
        "--batch-size 8 --device cpu"
    ),
    "calibrate": Killed("calibrate {inputs}/predictions.csv --method platt --resamples 20"),
    "audit --stream": Killed("audit {inputs}/predictions.csv --stream --resamples 20"),
}


def write_inputs(folder: Path) -> None:
    """Write 24 tiles, 120 embeddings with the votes of seven readers, and 500 predictions."""
    rng = np.random.default_rng(0)
    for i in range(24):
        home = folder / "tiles" / ("benign", "malignant")[i % 2]
        home.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(home / f"{i:02d}.png")
    p = rng.beta(0.7, 0.7, 120)
    votes = rng.binomial(7, p)
    X = rng.normal(size=(120, 16)) + (2 * p - 1)[:, None]
    np.savez(folder / "features.npz", X=X.astype(np.float32), votes=votes, n_raters=np.full(120, 7))
    p = rng.beta(0.7, 0.7, 500)
    cases = {"p": p.round(4), "votes": rng.binomial(7, p), "n_raters": 7}
    pd.DataFrame(cases).to_csv(folder / "predictions.csv", index_label="id")
    (folder / "tmp").mkdir()
    log = folder / "log.txt"
    made = f"import {folder}/features.npz --encoder made --dataset mhist --out features/mhist-made"
    if finish(start(made, folder, log)):
        raise SystemExit(log.read_text())


def import_all() -> None:
    """Import what the commands would, each in its own process."""
    guard_torchvision()
    ours = (module.name for module in pkgutil.walk_packages(scalecal.__path__, "scalecal."))
    for name in (*LIBRARIES, *ours):
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of an engine that is not installed
                importlib.import_module(name)


def start(arguments: str, folder: Path, log: Path) -> int:
    """Start a command in a process group of its own, with a folder for its temporary files."""
    child = os.fork()
    if child:
        return child
    status: object = 70
    try:
        os.setsid()
        os.chdir(folder)
        os.environ["TMPDIR"], tempfile.tempdir = str(folder / "tmp"), None
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.argv = ["scalecal", *arguments.split()]
        command_line()
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else int(status is not None))


def finish(child: int) -> int:
    """Wait for a process and return its exit code, negative for the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(child: int, seconds: float) -> bool:
    """Kill a process group that has worked for so long; whether it was still at work.

    Counted in seconds of computing: a machine that is busy with other things moves no kill.
    """
    ended = os.pidfd_open(child)
    while not select.select([ended], [], [], TICK)[0] and seconds_computed(child) < seconds:
        pass
    os.close(ended)
    with contextlib.suppress(ProcessLookupError):  # it has no group of its own yet
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return finish(child) == -signal.SIGKILL


def seconds_computed(process: int) -> float:
    """Seconds that a process has computed, by the system's ticks and a random part of one."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK - random.random() * TICK


def contents(folder: Path, timed: tuple[str, ...]) -> dict[str, bytes]:
    """Return every file below a folder but those that tell the time."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name not in timed)
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def litter(folder: Path) -> list[str]:
    """Return what a run left beside its results, among them and among the temporary files."""
    beside = [p for p in folder.iterdir() if p.name not in ("out", "tmp")]
    inside = [p for p in (folder / "out").rglob(".scalecal*") if p.name != RECORD]
    return [str(p.relative_to(folder)) for p in (*beside, *inside, *(folder / "tmp").iterdir())]


@dataclass
class Count:
    """What happened to one command: kills, runs that came to their end afterwards, and faults."""

    kills: int = 0
    finished: int = 0
    failed: int = 0
    wrong: int = 0
    litter: int = 0


class Trial:
    """One command: a run that is never killed, then runs that are."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.command, self.count = name, COMMANDS[name], Count()
        self._arguments = f"{self.command.arguments} --out out".format(inputs=root / "inputs")
        self._place = root / name.replace(" ", "_").replace(",", "")
        whole, log = self._new_folder("whole")
        began = time.monotonic()
        _, status, used = os.wait4(start(self._arguments, whole, log), 0)
        if status:
            raise SystemExit(f"{self._arguments}\n{log.read_text()}")
        self.seconds = time.monotonic() - began
        self._computed = used.ru_utime + used.ru_stime
        self._expected = contents(whole / "out", self.command.timed)

    def _new_folder(self, name: str) -> tuple[Path, Path]:
        (self._place / name / "tmp").mkdir(parents=True)
        return self._place / name, self._place / f"{name}.txt"

    def kill_one(self, rng: np.random.Generator) -> None:
        """Kill a run a few times and let it come to its end; a faulty one is kept and named."""
        folder, log = self._new_folder(str(self.count.finished + self.count.failed))
        began = time.monotonic()
        for _ in range(rng.integers(1, MAX_KILLS + 1)):
            moment = rng.uniform(0.0, self._computed)
            if not kill(start(self._arguments, folder, log), moment):
                break
            self.count.kills += 1
        faults = []
        if finish(start(self._arguments, folder, log)):
            self.count.failed += 1
            faults.append("failed")
        else:
            self.count.finished += 1
            if contents(folder / "out", self.command.timed) != self._expected:
                self.count.wrong += 1
                faults.append("wrong bytes")
            if left := litter(folder):
                self.count.litter += 1
                faults.append(f"litter {', '.join(left)}")
        self.seconds += time.monotonic() - began
        if faults:
            print(f"{self.name}: {'; '.join(faults)}: {folder}", file=sys.stderr, flush=True)
        else:
            shutil.rmtree(folder)
            log.unlink()


def main(kills: int, words: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it runs in the background
    import_all()
    names = [name for name in COMMANDS if not words or any(word in name for word in words)]
    root = Path(tempfile.mkdtemp(prefix="scalecal-kills-"))
    (root / "inputs").mkdir()
    write_inputs(root / "inputs")
    rng = np.random.default_rng()
    trials = [Trial(name, root) for name in names]
    with contextlib.suppress(KeyboardInterrupt):
        while (done := sum(trial.count.kills for trial in trials)) < kills:
            print(f"{done:,} of {kills:,} kills", end="\r", file=sys.stderr, flush=True)
            min(trials, key=lambda trial: trial.seconds).kill_one(rng)
    counts = [astuple(trial.count) for trial in trials]
    total = tuple(map(sum, zip(*counts, strict=True)))
    print("| command | kills | finished when started again | failed | wrong bytes | leftovers |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, numbers in zip([*names, "all"], [*counts, total], strict=True):
        print(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    if any(total[2:]):
        raise SystemExit(f"see {root}")
    shutil.rmtree(root)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
