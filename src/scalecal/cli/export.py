"""The command that takes a fitted probe elsewhere: `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scalecal.cli.app import command, given, say
from scalecal.cli.help import Work


@command(
    "export runs/probe --to onnx --out runs/model --audit runs/audit",
    Work("scalecal.export:export_probe"),
)
def export(
    probe: Annotated[Path, typer.Argument(metavar="DIR", help="A folder made by `fit`.")],
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="Format: {scalecal.export:FORMATS}.")
    ] = "onnx",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder to write to, if not DIR.")
    ] = None,
    panel_size: Annotated[
        int | None,
        typer.Option(
            "--panel-size",
            metavar="M",
            help="Readers of the panel whose label and split are predicted, if not that of the fit.",
            min=1,
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Run of `audit` on predictions of this probe, or of `compare` with its method: its "
            "numbers go into the card.",
        ),
    ] = None,
    license: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Licence of the model, as the Hugging Face Hub names it: apache-2.0."
        ),
    ] = None,
) -> None:
    """Write a fitted probe as model.onnx, with a model card (README.md) beside it.

    One graph from embeddings (float32) to p, the probability of the panel's label, and, of two classes
    where the probe knows the readers, p_reader and p_split: scaling, probe, calibrator and panel. It is run
    in onnxruntime before it is written, and refused where a probability differs from the probe's by more
    than 1e-6.
    """
    from scalecal.checks import check_choice
    from scalecal.export import FORMATS, export_probe

    check_choice(to, FORMATS, "--to")
    model, card = export_probe(
        probe, out, **given(panel_size=panel_size, audit=audit, license=license)
    )
    say(f"Wrote {model.name} ({model.stat().st_size:,} bytes) and {card.name} to {model.parent}")
