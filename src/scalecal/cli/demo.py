"""The command `demo`: the main job on the data that come with the package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from scalecal.cli.app import OutFolder, command, say, showing
from scalecal.cli.help import Work
from scalecal.cli.report import check_run, finish_run

if TYPE_CHECKING:
    from scalecal.auditing.audits import Audit
    from scalecal.cases import Features, Predictions
    from scalecal.runs.recalibration import Calibration

TITLE = "Mitotic figures read by five pathologists: a plain probe, audited and mended"
FOLDS = 5


def cross_validated(data: Features) -> Predictions:
    """Predict every case by scikit-learn's logistic regression, as it comes, that has not seen it.

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


def mend(data: Features, advance: Callable[[float], object] = lambda _: None) -> Calibration:
    """Audit the plain probe on `data` and calibrate it: the work of the demo."""
    from scalecal.runs.recalibration import calibrate_predictions

    return calibrate_predictions(cross_validated(data), dataset="atnorm-md", advance=advance)


@command("demo --out runs/demo", Work("scalecal.runs.recalibration:calibrate_predictions"))
def demo(out: OutFolder = Path("runs/demo")) -> None:
    """Audit and mend a plain probe on 2,107 mitotic figures that five pathologists disagree about.

    The embedded data: AtNorM-MD, embeddings by EfficientNet-Lite0, every figure with five pathologists'
    votes, normal or atypical. The page shows thumbnails of the figures it speaks of.
    """
    from scalecal.datasets import load_atnorm_md
    from scalecal.runs.folder import CALIBRATE_FILES, RUN_FILES, write_run

    check_run(out, "demo", (*RUN_FILES, *CALIBRATE_FILES), ())
    data = load_atnorm_md()
    with showing("auditing and calibrating") as advance:
        result = mend(data, advance)
    assert result.comparison is not None
    say(story(data, result))
    cell = result.comparison.cell
    cell = replace(cell, meta={**cell.meta, "dataset": {"data": data.images}})
    notes = [*data.cases.notes, *result.notes]
    names = write_run(
        out,
        replace(result.comparison, cell=cell),
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
    finish_run(out, names)
    say(f"\nThe page, with images: {out / 'report.html'} (to open it: scalecal view {out})")
    say("The same for your model: scalecal calibrate predictions.csv --out runs/mine")
    say(f"Note: {data.cases.notes[0]}")


def story(data: Features, result: Calibration) -> str:
    """What was done and found, in some twenty lines; every number is one of the run's facts."""
    from scalecal.io.text import change_text

    assert result.comparison is not None
    facts, before, after = result.comparison.facts, result.before, result.after
    one, two = before["overall"], after["overall"]
    assert data.cases.votes is not None
    agree = int((data.cases.votes == 0).any(axis=1).sum())
    rows = {row["method"]: row for row in facts["rows"] if row["stratum"] == "overall"}
    changes = rows[facts["calibration"]["after"]]["changes"]
    answers = [answer["text"] for answer in before.verdict["answers"][:2]]

    def line(name: str, was: str, now: str, change: str) -> str:
        return f"   {name:<40}{was:>14}{now:>15}   {change}".rstrip()

    def error(row: dict[str, Any]) -> str:
        return f"{row['ece']:.3f} ({row['floor']:.3f})"

    def gap(name: str) -> str:
        low, high = (100 * two[f"{name}_{end}"] for end in ("low", "high"))
        return f"{100 * two[name]:+.1f} points [{low:+.1f}, {high:+.1f}]"

    losses = {
        "log loss, the majority's label": "nll",
        "log loss, one pathologist's vote": "vote_nll",
        "log loss, how many of the five": "count_log_score",
    }
    return "\n".join(
        [
            f"Is this mitosis atypical? {len(data):,} mitotic figures, read by five pathologists each.",
            *_wrapped(
                f"They agree on {agree:,} figures and not on {len(data) - agree:,}. The majority calls "
                f"{100 * one['prevalence']:.1f} % atypical, a single pathologist "
                f"{100 * one['vote_share']:.1f} %: one probability cannot be right for both."
            ),
            "",
            "1. Logistic regression on EfficientNet-Lite0 embeddings, cross-validated: AUC "
            f"{one['auc']:.2f} [{one['auc_low']:.2f}, {one['auc_high']:.2f}].",
            "",
            *_wrapped(f"2. The audit: {_said(before)} {' '.join(answers)}"),
            "",
            *_wrapped(f"3. Mended, and audited on folds not used to mend it: {_said(after)}"),
            line("", "before", "after", "change [95 %]"),
            line("calibration error (by chance alone)", error(one), error(two), ""),
            *(
                line(name, f"{one[key]:.3f}", f"{two[key]:.3f}", change_text(changes[key]))
                for name, key in losses.items()
            ),
            *_wrapped(
                f"There are two answers now. On average p, for the majority, differs from the labels by "
                f"{gap('gap')}, and p_reader, for one pathologist, from the votes by {gap('vote_gap')}.",
                start="   ",
            ),
            *_wrapped(
                f"The largest p is now {100 * float(after.predictions.p.max()):.0f} %: the embeddings do not "
                "tell which figures are atypical, and the model no longer pretends to know.",
                start="   ",
            ),
            *_wrapped(f"4. {_example(facts)}"),
        ]
    )


def _said(audit: Audit) -> str:
    return f"{audit.verdict['word'].upper()}. {audit.verdict['headline']}"


def _wrapped(text: str, start: str = "") -> list[str]:
    numbered = text[:1].isdigit()
    return wrap(text, 100, initial_indent=start, subsequent_indent="   " if numbered else start)


def _example(facts: dict[str, Any]) -> str:
    """Tell of the listed case whose probability changed most."""
    case = max(facts["cases"], key=lambda c: abs(c["before"] - c["after"]))
    two, votes = case["two"], case["votes"]
    return (
        f"Figure {case['id']}: {votes[1]} of {sum(votes)} pathologists call it atypical; the model said "
        f"{100 * case['before']:.1f} %. Mended: {100 * two['label']:.0f} % for the majority, "
        f"{100 * two['reader']:.0f} % for one pathologist, {100 * two['split']:.0f} % that the five "
        "split 3 to 2."
    )
