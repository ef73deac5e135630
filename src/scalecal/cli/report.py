"""The command that makes and shows reports: `report`."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from scalecal.checks import InputError
from scalecal.cli.app import Work, command, given, say, tell
from scalecal.io.store import check_output_folder


@command("report runs/compare --export runs/figures", Work("scalecal.report:write_report"))
def report(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN...", help="Run folders, one or several.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="HTML file, RUN/report.html if not given."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the images, for thumbnails and links."),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write every figure (SVG, PNG) and table (CSV, Markdown, LaTeX).",
        ),
    ] = None,
    open: Annotated[
        bool,
        typer.Option(
            "--open", help="Open the page in the browser; without RUN the newest one below runs."
        ),
    ] = False,
) -> None:
    """Write one self-contained report.html that compares one or several runs."""
    from scalecal import report as pages

    if runs:
        for run in runs:
            if run.exists() and not run.is_dir():
                raise InputError(
                    f"{run} is a file, expected a folder that a scalecal command wrote"
                )
        if export is not None:
            check_output_folder(export, kind="report", inputs=[*runs, images])
        path = pages.write_report(runs, out or runs[0] / "report.html", **given(images=images))
        say(f"Wrote {path}")
        if export is not None:
            say(f"Wrote {len(pages.export(runs, export))} files of figures and tables to {export}")
    elif open and not given(out=out, images=images, export=export):
        path = pages.newest_report("runs")
        say(str(path))
    else:
        raise InputError("RUN is missing: name the folder of a run, such as runs/demo")
    if open and not webbrowser.open(path.resolve().as_uri()):
        tell("no browser could be opened: open the file by hand")
