"""The command `demo`: the main job on the data that come with the package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalecal.cli.app import OutFolder, command, say, showing
from scalecal.cli.help import Work
from scalecal.cli.report import check_run, close_run

if TYPE_CHECKING:
    from scalecal.cases import Features, Predictions
    from scalecal.evaluation.recalibration import Calibration

TITLE = "Mitotic figures read by five pathologists: a plain probe, audited and recalibrated"
FOLDS = 5


def cross_validated(data: Features) -> Predictions:
    """Predict every case by scikit-learn's LogisticRegression, cross-validated.

    Folds are stratified by votes, so that each has figures of every degree of agreement.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    from scalecal.cases import Predictions

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
    assert result.evaluation is not None
    say(about(data))
    say(str(result))
    say(example(result.evaluation.facts))
    cell = result.evaluation.predictions
    cell = replace(cell, meta={**cell.meta, "dataset": {"data": data.images}})
    notes = [*data.cases.notes, *result.notes]
    names = write_run(
        out,
        replace(result.evaluation, predictions=cell),
        kind="demo",
        command=sys.argv,
        options={},
        notes=notes,
        fingerprint=data.fingerprint,
        title=TITLE,
        files={
            "predictions.csv": str(result.to_frame().to_csv(index=False, lineterminator="\n")),
            "calibrator.json": result.recalibrator.to_json(),
        },
    )
    close_run(out, names)
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
