"""The command `demo`: the main job on the data that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scalecal.cli.app import app, given, say
from scalecal.cli.probes import show_comparison, tell, write_comparison
from scalecal.cli.report import check_run

TITLE = "Lung nodules read by three radiologists: calibration by their agreement"


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the results.")
    ] = Path("runs/demo"),
    seeds: Annotated[int | None, typer.Option(help="Number of seeds.")] = None,
) -> None:
    """Compare all methods on 896 lung nodules that radiologists disagree about, and audit the best.

    The embedded data: LIDC-IDRI nodules, three readers each, geometry features, split by patient. All
    methods are trained by the default preset: the paper's 50 epochs are too few for 600 cases.
    """
    import numpy as np

    from scalecal.datasets import load_lidc
    from scalecal.paper.claims import claims_table, judge_comparison
    from scalecal.runs.facts import compare_cell
    from scalecal.runs.folder import RUN_FILES
    from scalecal.runs.grid import run_grid

    check_run(out, "demo", RUN_FILES, ())
    data = load_lidc()
    grid = run_grid(data, dataset="lidc", preset="default", progress=tell, **given(seeds=seeds))
    comparison = compare_cell(grid.cell)
    patients = 0 if data.groups is None else len(np.unique(data.groups))
    say(f"{TITLE} ({len(data):,} nodules, {patients:,} patients)\n")
    show_comparison(comparison, grid.notes)
    for method, found in comparison.audits.items():
        say(f"\nAudit of {method} (first seed's test patients):\n")
        say(str(found))
    claims = judge_comparison(data, grid)
    say("\nThe paper's claims, on these nodules:\n")
    say(claims_table(claims))
    options = {"seeds": seeds, "preset": "default"}
    write_comparison(
        comparison,
        grid,
        out,
        kind="demo",
        title=TITLE,
        options=options,
        fingerprint=data.fingerprint,
        claims=claims,
    )
