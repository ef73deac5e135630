"""The command `demo`: the main job on the data that come with the package."""

from __future__ import annotations

import sys
from pathlib import Path

from scalecal.cli.app import OutFolder, Seeds, command, given, say, showing, tell
from scalecal.cli.help import Work
from scalecal.cli.probes import show_comparison
from scalecal.cli.report import check_run, close_run

TITLE = "Lung nodules read by three radiologists: calibration by their agreement"


@command("demo --seeds 3 --out runs/demo", Work("scalecal.runs.grid:run_grid"))
def demo(
    out: OutFolder = Path("runs/demo"),
    seeds: Seeds = None,
) -> None:
    """Compare all methods on 896 lung nodules that radiologists disagree about, and audit the best.

    The embedded data: LIDC-IDRI nodules, three readers each, geometry features, split by patient. All
    methods are trained by the default preset: the paper's 50 epochs are too few for 600 cases.
    """
    import numpy as np

    from scalecal.datasets import load_lidc
    from scalecal.paper.claims import claims_table, judge_comparison
    from scalecal.runs.facts import compare_cell
    from scalecal.runs.folder import RUN_FILES, write_run
    from scalecal.runs.grid import run_grid

    check_run(out, "demo", RUN_FILES, ())
    data = load_lidc()
    chosen = given(seeds=seeds, dataset="lidc", preset="default", progress=tell)
    with showing("training") as advance:
        grid = run_grid(data, advance=advance, **chosen)
    with showing("comparing") as advance:
        comparison = compare_cell(grid.cell, advance=advance)
    patients = 0 if data.groups is None else len(np.unique(data.groups))
    say(f"{TITLE} ({len(data):,} nodules, {patients:,} patients)\n")
    show_comparison(comparison, grid.notes)
    for method, audit in comparison.audits.items():
        say(f"\nAudit of {method} (first seed's test patients):\n")
        say(str(audit))
    claims = judge_comparison(data, grid)
    say("\nThe paper's claims, on these nodules:\n")
    say(claims_table(claims))
    names = write_run(
        out,
        comparison,
        kind="demo",
        command=sys.argv,
        options={"seeds": seeds, "preset": "default"},
        notes=grid.notes,
        fingerprint=data.fingerprint,
        title=TITLE,
        claims=claims,
    )
    close_run(out, names)
