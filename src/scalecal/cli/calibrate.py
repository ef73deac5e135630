"""The command that recalibrates predictions: `calibrate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from scalecal.cli.app import (
    AllowLeakage,
    Bins,
    Columns,
    GroupRegex,
    NRaters,
    Out,
    Positive,
    Resamples,
    Seed,
    Ties,
    Votes,
    check_rater,
    command,
    given,
    say,
    showing,
)
from scalecal.cli.help import Work
from scalecal.cli.probes import Kappa, PanelSize, VoteShare, known_of_readers
from scalecal.cli.report import check_run, close_run


@command(
    "calibrate predictions.csv --method auto --out runs/calibrated",
    Work("scalecal.io:read_predictions"),
    Work("scalecal.evaluation.recalibration:calibrate_predictions"),
)
def calibrate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Predictions, as `audit` takes them.")
    ],
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="auto, none (p stays, p_reader is added), or {scalecal.calibrators:CALIBRATORS}.",
        ),
    ] = None,
    votes: Votes = None,
    n_raters: NRaters = None,
    kappa: Kappa = None,
    vote_share: VoteShare = None,
    panel_size: PanelSize = None,
    apply: Annotated[
        Path | None,
        typer.Option(
            "--apply",
            metavar="JSON",
            help="Use this calibrator.json on FILE instead of fitting one.",
        ),
    ] = None,
    out: Out = None,
    columns: Columns = None,
    group_regex: GroupRegex = None,
    positive: Positive = None,
    ties: Ties = None,
    n_folds: Annotated[
        int | None, typer.Option("--folds", metavar="K", help="Folds of the cross-fitting.")
    ] = None,
    n_bins: Bins = None,
    n_resamples: Resamples = None,
    seed: Seed = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Use only the cases of one part: val."),
    ] = None,
    allow_leakage: AllowLeakage = False,
) -> None:
    """Recalibrate predictions by their labels, and audit them before and after.

    FILE is as for `audit`, of cases that the model was not trained on; no embeddings are needed. The
    answers on labelled cases are cross-fitted, by group where there are groups, so that before and after
    are compared honestly; auto takes the lowest cross-fitted log loss, doing nothing included. With votes,
    or the panel's size and kappa, p_reader is added, the probability of one reader's vote. DIR gets
    predictions.csv, calibrator.json for new cases, both audits and the page.

    New cases: scalecal calibrate new.csv --apply runs/calibrated/calibrator.json --out runs/new
    """
    from scalecal.checks import InputError
    from scalecal.evaluation.folder import CALIBRATE_FILES, RUN_FILES, write_run
    from scalecal.evaluation.recalibration import (
        Recalibrator,
        apply_recalibrator,
        calibrate_predictions,
    )
    from scalecal.io import read_predictions
    from scalecal.io.input_columns import parse_columns
    from scalecal.io.store import output_folder, write_text

    named = parse_columns(columns or ())
    check_rater(named, votes)
    inputs = [file, votes, apply]
    reading = given(
        votes=votes,
        columns=named,
        n_raters=n_raters,
        ties=ties,
        seed=seed,
        split=split,
        group_regex=group_regex,
        allow_leakage=allow_leakage,
        keep_unlabelled=True,
    )
    options = given(n_bins=n_bins, n_resamples=n_resamples, seed=seed)
    fitting = {"--method": method, "--kappa": kappa, "--vote-share": vote_share}
    fitting |= {"--panel-size": panel_size, "--folds": n_folds, "--positive": positive}
    if out is not None:
        check_run(out, "calibrate", (*RUN_FILES, *CALIBRATE_FILES), inputs)
    if apply is not None:
        if unused := ", ".join(given(**fitting)):
            raise InputError(f"{unused} cannot be used with --apply: {apply} has what was used")
        recalibrator = Recalibrator.load(apply)
        predictions = read_predictions(file, **reading, classes=recalibrator.classes)
        with showing("comparing") as advance:
            result = apply_recalibrator(
                predictions, recalibrator, dataset=file.stem, advance=advance, **options
            )
    elif out is None:
        raise InputError(
            "--out DIR is missing: the recalibrated predictions and the calibrator are written there"
        )
    else:
        predictions = read_predictions(file, **reading, **given(positive=positive))
        with showing("calibrating") as advance:
            result = calibrate_predictions(
                predictions,
                readers=known_of_readers(kappa, vote_share, panel_size),
                dataset=file.stem,
                advance=advance,
                **given(method=method, n_folds=n_folds),
                **options,
            )
    say(str(result))
    if out is None:
        return
    files = {"predictions.csv": str(result.to_frame().to_csv(index=False, lineterminator="\n"))}
    if apply is None:
        files["calibrator.json"] = result.recalibrator.to_json()
    if result.evaluation is None:
        with output_folder(out, kind="calibrate", inputs=inputs, replace=True) as folder:
            for name, text in files.items():
                write_text(folder / name, text)
        names = list(files)
    else:
        names = write_run(
            out,
            result.evaluation,
            kind="calibrate",
            title=f"Calibration of {file.stem}",
            command=sys.argv,
            options={
                **{k: v for k, v in {**reading, **options}.items() if k in _KEPT},
                **{k.removeprefix("--").replace("-", "_"): v for k, v in fitting.items()},
            },
            notes=result.notes,
            fingerprint=str(result.before.meta["data_sha256"]),
            files=files,
            inputs=inputs,
        )
    close_run(out, names)
    if apply is None:
        saved = out / "calibrator.json"
        say(f"For new cases: scalecal calibrate NEW.csv --apply {saved} --out DIR")


_KEPT = ("n_raters", "ties", "seed", "split", "group_regex", "n_bins", "n_resamples")
