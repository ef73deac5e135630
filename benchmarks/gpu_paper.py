"""The whole paper from raw pixels on one GPU, in stages that can be resumed, summed.

Eight encoders over images of the size of PatchCamelyon (327,680 patches of 96 px in HDF5), MHIST (3,152
PNG tiles of 224 px) and BreakHis (7,909 PNG images of 700 x 460), then both experiment grids with tables
and figures. Every encoder is a stage, the grids with the tables are one; what a stage took is kept in
the record, and a run leaves out what it finds there and starts nothing it may not finish.

Weights and pixels are random: only the time counts. With ``--share 0.1`` a tenth of the patches is embedded
and its rate taken for all; starts (compiling) count in full.

Run: PYTHONPATH=src python -m benchmarks.gpu_paper --record paper.json [--share 0.1]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import gpu_grid
from benchmarks.gpu_extraction import (
    BATCH,
    ENCODERS,
    PATCHCAMELYON,
    PEAK,
    SHARD,
    Patches,
    cleared,
    pipeline,
    write_patches,
)
from benchmarks.gpu_tiles import Tiles, write_tiles

MHIST, BREAKHIS = (3152, (224, 224)), (7909, (460, 700))
FILES = 256  # of each kind, over and over
STAGES = (*ENCODERS, "chief", "grids")


def data_sets(folder: Path) -> dict[str, Any]:
    """Write the pixels of the three data sets."""
    sets: dict[str, Any] = {"pcam": Patches(write_patches(folder / "x.h5"), PATCHCAMELYON)}
    for name, (n, size) in (("mhist", MHIST), ("breakhis", BREAKHIS)):
        sets[name] = Tiles(write_tiles(folder / name, size, FILES), n)
    return sets


def timed_extraction(
    encoder: Any, images: Any, n: int, whole: int, out: Path
) -> tuple[float, float, bool]:
    """Return seconds for the whole set by the rate of `n` images, that rate, and whether it compiled."""
    from scalecal.features.extraction import EncodingOptions, pick_compile

    compiled = pick_compile("auto", encoder, whole)
    options = EncodingOptions("cuda", "bf16", BATCH, compile=compiled)

    def seconds(images_done: int) -> float:
        return images_done / pipeline(images, images_done, encoder, options, out)

    if n == whole:
        took = seconds(n)
        return took, n / took, compiled
    start = seconds(BATCH)  # compiles
    again = seconds(BATCH)
    rate = (n - BATCH) / (seconds(n) - again)
    return start + (whole - BATCH) / rate, rate, compiled


def extraction(name: str, share: float, sets: dict[str, Any], out: Path) -> Any:
    """Embed the three data sets; return the seconds."""
    import torch

    from scalecal.encoders import get_encoder, load_encoder
    from scalecal.features.extraction import operations

    began = time.perf_counter()
    encoder = load_encoder(get_encoder(name), weights="random", device="cuda")
    torch.cuda.synchronize()
    parts = {"load": time.perf_counter() - began}
    n = max(SHARD, int(share * PATCHCAMELYON) // SHARD * SHARD)
    counts = {"pcam": (n, PATCHCAMELYON), "mhist": (MHIST[0],) * 2, "breakhis": (BREAKHIS[0],) * 2}
    for dataset, (some, whole) in counts.items():
        seconds, rate, compiled = timed_extraction(
            encoder, sets[dataset], some, whole, out / f"{name}_{dataset}"
        )
        parts[dataset] = seconds
        speed = operations(encoder) * rate / 1e12
        print(
            f"  {name}, {dataset}: {seconds:.1f} s, {rate:,.0f} images/s, {speed:.0f} TFLOP/s "
            f"({speed / PEAK:.0%} of peak){', compiled' if compiled else ''}",
            flush=True,
        )
    return parts


def grids() -> dict[str, float]:
    """Train both grids and make tables and figures."""
    from scalecal.engines import open_engine
    from scalecal.engines.local import cores
    from scalecal.paper.reproduction import judge_run

    args = argparse.Namespace(device="cuda", encoders=8, seeds=10, workers=4, only=None)
    with tempfile.TemporaryDirectory() as out:
        parts = {}
        for name in ("mhist", "pcam"):
            args.only = name
            parts[name] = gpu_grid.both(args, Path(out))
        began = time.perf_counter()
        with open_engine("local", workers=cores()) as engine:
            judge_run(out, engine=engine, progress=gpu_grid.quiet)
        parts["tables"] = time.perf_counter() - began
    print(f"  tables, figures and claims: {parts['tables']:.1f} s", flush=True)
    return parts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path, required=True, help="JSON file of what was done")
    parser.add_argument("--share", type=float, default=1.0, help="of the patches that are embedded")
    parser.add_argument("--minutes", type=float, default=8.0, help="a run may take")
    parser.add_argument("--only", default=",".join(STAGES), help="stages, by commas")
    args = parser.parse_args()
    record = json.loads(args.record.read_text()) if args.record.exists() else {}
    began, longest = time.perf_counter(), 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sets: dict[str, Any] = {}
        for stage in cleared(args.only.split(",")):
            if stage in record:
                continue
            start = time.perf_counter()
            if start - began + longest > 60 * args.minutes:
                print(f"{stage} and what follows is left to the next run")
                break
            if stage == "chief":  # ctranspath's network with other weights
                if "ctranspath" not in record:
                    continue
                record[stage] = record["ctranspath"]
            elif stage == "grids":
                record[stage] = grids()
            else:
                sets = sets or data_sets(folder)
                record[stage] = extraction(stage, args.share, sets, folder)
            longest = max(longest, time.perf_counter() - start)
            args.record.write_text(json.dumps(record, indent=2))
            print(f"{stage}: {sum(record[stage].values()):.1f} s", flush=True)
    done = {stage: sum(parts.values()) for stage, parts in record.items()}
    print(f"{len(done)} of {len(STAGES)} stages, {sum(done.values()) / 60:.1f} minutes in all")


if __name__ == "__main__":
    main()
