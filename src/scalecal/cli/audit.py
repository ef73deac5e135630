"""Commands that audit predictions: `audit` and `plan`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from scalecal.cli.app import (
    Column,
    NRaters,
    Out,
    Seed,
    Ties,
    Votes,
    app,
    columns,
    given,
    say,
    split_list,
)
from scalecal.cli.report import check_run, close_run


@app.command()
def audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV or Parquet of predictions.")],
    votes: Votes = None,
    out: Out = None,
    id_column: Column = None,
    p_column: Column = None,
    p_reader_column: Column = None,
    rho_column: Column = None,
    label_column: Column = None,
    votes_column: Column = None,
    n_raters_column: Column = None,
    rater_column: Column = None,
    group_column: Column = None,
    stratum_column: Column = None,
    n_raters: NRaters = None,
    positive: Annotated[
        str | None, typer.Option(metavar="CLASS", help="The class that p is the probability of.")
    ] = None,
    ties: Ties = None,
    n_bins: Annotated[
        int | None, typer.Option("--bins", help="Bins of equal width for ECE.")
    ] = None,
    n_resamples: Annotated[
        int | None, typer.Option("--resamples", help="Resamples for floors, nulls and intervals.")
    ] = None,
    seed: Seed = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Audit only cases that a column split marks so: test."),
    ] = None,
    split_column: Column = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Read FILE in pieces: memory does not grow with it. Votes stand in FILE then, "
            "and ids and groups are not used.",
        ),
    ] = False,
) -> None:
    """Audit predictions: calibration overall and by how far the readers agree.

    FILE has the columns id, p (or p_<class>), label and/or votes + n_raters (or votes_<class>), and
    optionally group and stratum. Labels judge p. Votes judge p_reader (or p_reader_<class>), the
    probability that one reader votes so, where there is one, and p elsewhere; rho is the correlation of
    votes around it. Other names are given by the --...-column options.
    """
    named = columns(locals())
    from scalecal.auditing.audits import audit_predictions
    from scalecal.auditing.stream import stream_file
    from scalecal.checks import InputError
    from scalecal.io import read_predictions
    from scalecal.io.store import check_output_folder
    from scalecal.runs.folder import AUDIT_FILES, CASE_FILES, write_audit_run

    if stream and votes is not None:
        raise InputError(
            f"--votes {votes} cannot be used with --stream, which reads one file once: "
            "put the votes into columns of FILE, or leave out --stream"
        )
    if stream and split is not None:
        raise InputError(
            f"--split {split} cannot be used with --stream: put these cases into a file of their own"
        )
    if rater_column is not None and votes is None:
        raise InputError(
            f"--rater-column {rater_column} names a column of the votes: give their file with --votes"
        )
    inputs = [file, votes]
    if out is not None and stream:
        check_output_folder(out, kind="audit", names=AUDIT_FILES, inputs=inputs)
    elif out is not None:
        check_run(out, "audit", (*AUDIT_FILES, *CASE_FILES), inputs)
    reading = given(columns=named, positive=positive, n_raters=n_raters, ties=ties, seed=seed)
    options = given(n_bins=n_bins, n_resamples=n_resamples)
    if stream:
        result = stream_file(file, **reading, **options)
    else:
        options |= given(seed=seed)
        predictions = read_predictions(file, **reading, **given(votes=votes, split=split))
        result = audit_predictions(predictions, **options)
    say(str(result))
    if out is not None:
        names = write_audit_run(
            out,
            result,
            dataset=file.stem,
            command=sys.argv,
            options={**options, **given(ties=ties)},
            inputs=inputs,
        )
        close_run(out, names)


@app.command()
def plan(
    excess: Annotated[
        float | None, typer.Option(help="Calibration error beyond chance to detect.")
    ] = None,
    stratum_share: Annotated[
        float | None, typer.Option("--share", help="Share of the cases that fall into the stratum.")
    ] = None,
    power: Annotated[float | None, typer.Option(help="Desired power.")] = None,
    readers: Annotated[
        str | None, typer.Option(metavar="M,M,...", help="Numbers of readers to consider.")
    ] = None,
    n_simulations: Annotated[
        int | None, typer.Option("--simulations", help="Simulated studies per line of the table.")
    ] = None,
    seed: Seed = None,
    out: Out = None,
) -> None:
    """Say how many cases and readers an audit needs, by simulation."""
    from scalecal.io.store import check_output_folder, output_folder, write_csv
    from scalecal.planning import plan as run_plan

    n_raters = split_list(readers, "--readers", int, what="whole numbers")
    if out is not None:
        names = ("plan.csv", "plan.svg", "plan.png")
        check_output_folder(out, kind="plan", names=names)
    result = run_plan(
        **given(
            excess=excess,
            stratum_share=stratum_share,
            power=power,
            n_raters=n_raters,
            n_simulations=n_simulations,
            seed=seed,
        )
    )
    say(str(result))
    if out is not None:
        from scalecal.auditing.plots import power_curve, save

        with output_folder(out, kind="plan") as folder:
            write_csv(result.table, folder / "plan.csv")
            save(power_curve(result.table, power=result.power), folder / "plan")
        say(f"\nWrote plan.csv, plan.svg and plan.png to {out}")
