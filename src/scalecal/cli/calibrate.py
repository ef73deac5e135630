"""Commands that recalibrate predictions: `calibrate`, and `demo` on the data that come with the package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalecal.cases import Features, Predictions
from scalecal.checks import InputError
from scalecal.cli.app import (
    AllowLeakage,
    Bins,
    Columns,
    GroupRegex,
    NRaters,
    Out,
    OutFolder,
    Positive,
    Resamples,
    Seed,
    Ties,
    Votes,
    Work,
    check_run,
    close_run,
    command,
    given,
    named_columns,
    say,
    showing,
)
from scalecal.cli.probes import Kappa, PanelSize, VoteShare, known_of_readers
from scalecal.io import read_predictions
from scalecal.io.store import output_folder, write_text

if TYPE_CHECKING:
    from scalecal.evaluation.recalibration import Calibration


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
    from scalecal.evaluation.folder import CALIBRATE_FILES, RUN_FILES, write_run
    from scalecal.evaluation.recalibration import (
        Recalibrator,
        apply_recalibrator,
        calibrate_predictions,
    )

    inputs = [file, votes, apply]
    reading = given(
        votes=votes,
        columns=named_columns(columns, votes),
        n_raters=n_raters,
        ties=ties,
        seed=seed,
        split=split,
        group_regex=group_regex,
        allow_leakage=allow_leakage,
        keep_unlabelled=True,
    )
    options = given(n_bins=n_bins, n_resamples=n_resamples, seed=seed)
    fitting = given(
        method=method,
        kappa=kappa,
        vote_share=vote_share,
        panel_size=panel_size,
        folds=n_folds,
        positive=positive,
    )
    if out is not None:
        check_run(out, "calibrate", (*RUN_FILES, *CALIBRATE_FILES), inputs)
    if apply is not None:
        if fitting:
            unused = ", ".join(f"--{name.replace('_', '-')}" for name in fitting)
            raise InputError(f"{unused} cannot be used with --apply: {apply} holds the settings")
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
    files = _files(result)
    if apply is not None:
        del files["calibrator.json"]  # it is where --apply found it
    facts: Mapping[str, Any] | None = None
    if result.evaluation is None:
        with output_folder(out, kind="calibrate", inputs=inputs, replace=True) as folder:
            for name, text in files.items():
                write_text(folder / name, text)
        names = list(files)
    else:
        facts = result.evaluation.facts
        chosen = given(n_raters=n_raters, ties=ties, split=split, group_regex=group_regex)
        names = write_run(
            out,
            result.evaluation,
            kind="calibrate",
            title=f"Calibration of {file.stem}",
            command=sys.argv,
            options={**chosen, **options, **fitting},
            notes=result.notes,
            fingerprint=str(result.before.meta["data_sha256"]),
            files=files,
            inputs=inputs,
        )
    close_run(out, names, facts)
    if apply is None:
        saved = out / "calibrator.json"
        say(f"For new cases: scalecal calibrate NEW.csv --apply {saved} --out DIR")


def _files(result: Calibration) -> dict[str, str]:
    """What a calibration writes beside the files of a run: name -> text."""
    return {
        "predictions.csv": str(result.to_frame().to_csv(index=False, lineterminator="\n")),
        "calibrator.json": result.recalibrator.to_json(),
    }


# The same on the data that come with the package

TITLE = "Mitotic figures read by five pathologists: a plain probe, audited and recalibrated"
FOLDS = 5


def cross_validated(data: Features) -> Predictions:
    """Predict every case by scikit-learn's LogisticRegression, cross-validated.

    Folds are stratified by votes, so that each has figures of every degree of agreement.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(data.X, data.votes)
    # Fitted to the end: stopped as early as by default, other machines would give other probabilities.
    probe = LogisticRegression(tol=1e-8, max_iter=10_000)
    X = data.X.astype("float64")
    p = cross_val_predict(probe, X, data.y, cv=list(folds), method="predict_proba")
    return Predictions.single(data.cases, p[:, 1])


def recalibrate(data: Features, advance: Callable[[float], object] = lambda _: None) -> Calibration:
    """Audit the plain probe on `data` and calibrate it: the work of the demo."""
    from scalecal.evaluation.recalibration import calibrate_predictions

    return calibrate_predictions(cross_validated(data), dataset="atnorm-md", advance=advance)


@command("demo --out runs/demo", Work("scalecal.evaluation.recalibration:calibrate_predictions"))
def demo(out: OutFolder = Path("runs/demo")) -> None:
    """Audit and recalibrate a plain probe on 2,107 mitotic figures that five pathologists read.

    The embedded data: AtNorM-MD, embeddings by EfficientNet-Lite0, every figure with five pathologists'
    votes, normal or atypical. The page shows thumbnails of the figures it speaks of.
    """
    from scalecal.datasets import load_atnorm_md
    from scalecal.evaluation.folder import CALIBRATE_FILES, RUN_FILES, write_run

    check_run(out, "demo", (*RUN_FILES, *CALIBRATE_FILES), ())
    data = load_atnorm_md()
    with showing("auditing and calibrating") as advance:
        result = recalibrate(data, advance)
    say(about(data))
    say(str(result))
    say(example(result.judged.facts))
    cell = result.judged.predictions
    cell = replace(cell, meta={**cell.meta, "dataset": {"data": data.images}})
    evaluation = replace(result.judged, predictions=cell)
    names = write_run(
        out,
        evaluation,
        kind="demo",
        command=sys.argv,
        notes=result.notes,
        fingerprint=data.fingerprint,
        title=TITLE,
        files=_files(result),
    )
    close_run(out, names, evaluation.facts)
    say(
        f"\nThe page, with images: {out / 'report.html'} (to open it: scalecal report {out} --open)"
    )
    say("The same for your model: scalecal calibrate predictions.csv --out runs/mine")


def about(data: Features) -> str:
    """Say what the cases are, and how far the pathologists agree on them."""
    assert data.cases.votes is not None
    agree = int((data.cases.votes == 0).any(axis=1).sum())
    return (
        f"Is this mitosis atypical? Five pathologists read {len(data):,} figures each: they agree on "
        f"{agree:,},\nand disagree on {len(data) - agree:,}. The majority's label and one pathologist's "
        "vote are two questions.\n"
        f"The probe is logistic regression on EfficientNet-Lite0 embeddings, cross-validated in {FOLDS} "
        "folds.\n"
    )


def example(facts: dict[str, Any]) -> str:
    """Tell of the listed case whose probability changed most."""
    case = max(facts["cases"], key=lambda c: abs(c["before"] - c["after"]))
    two, votes = case["two"], case["votes"]
    return (
        f"\nFigure {case['id']}: {votes[1]} of {sum(votes)} pathologists call it atypical; the model said "
        f"{100 * case['before']:.1f} %.\nRecalibrated: {100 * two['label']:.0f} % for the majority, "
        f"{100 * two['reader']:.0f} % for one pathologist, {100 * two['split']:.0f} % that the five "
        "split 3 to 2."
    )
