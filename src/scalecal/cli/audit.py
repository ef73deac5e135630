"""Commands around an audit: `audit`, `plan` the cases for one, and `report` what a folder holds."""

from __future__ import annotations

import sys
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from scalecal.checks import InputError, check_inside
from scalecal.cli.app import (
    AllowLeakage,
    Bins,
    Columns,
    GroupRegex,
    Json,
    NRaters,
    Out,
    Positive,
    Resamples,
    Seed,
    Ties,
    Votes,
    Work,
    app,
    check_run,
    close_run,
    command,
    complain,
    given,
    named_columns,
    print_text,
    say,
    showing,
    split_list,
    tell,
)
from scalecal.io import read_common_predictions, read_predictions
from scalecal.io.store import check_output_folder, output_folder, write_csv


@command(
    "audit predictions.csv --votes votes.csv --fail-if 'verdict != good' --out runs/audit",
    Work("scalecal.io:read_predictions"),
    Work("scalecal.evaluation.audits:audit_predictions"),
    Work("scalecal.cases:Predictions"),
)
def audit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Predictions: CSV, Parquet, Excel or JSON Lines. Several files are compared.",
        ),
    ],
    votes: Votes = None,
    out: Out = None,
    columns: Columns = None,
    group_regex: GroupRegex = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN,...",
            help="Audit every level of these columns of FILE too, such as site,scanner,sex.",
        ),
    ] = None,
    n_raters: NRaters = None,
    positive: Positive = None,
    ties: Ties = None,
    n_bins: Bins = None,
    n_resamples: Resamples = None,
    seed: Seed = None,
    prevalence: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Share of positives where the model will be used: reweights an enriched sample to it, "
            "by importance weights of both classes. Example: --prevalence 0.05",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            help="Probability from which a case is called positive. Predicted difficulty is the distance "
            "from it.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Audit only one part of the cases, such as test."),
    ] = None,
    allow_leakage: AllowLeakage = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Read FILE in pieces, in constant memory. Votes must be in FILE; ids and groups "
            "are not used.",
        ),
    ] = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="CONDITION",
            help="Exit with code 3 if this holds: 'verdict != good', or [STRATUM:] COLUMN OPERATOR NUMBER, "
            "such as 'oe < 0.8' or 'low: p_null_holm < 0.05'. May be given several times.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Audit predictions: calibration overall and by how far the readers agree.

    FILE has the columns id, p (or p_<class>), label and/or votes + n_raters (or votes_<class>), and
    optionally group and stratum. Labels judge p. Votes judge p_reader (or p_reader_<class>), the
    probability that one reader votes so, where there is one, and p elsewhere; rho is the correlation of
    votes around it; p_split, by this model or another, predicts how hard a case is. Columns with other
    names: --columns label=diagnosis,group=patient.

    Several files are joined by id: each is audited on the cases that all have, and compared with the
    first, with paired intervals. Labels, votes and groups may stand in one of them.

    Conditions of --fail-if take any column of audit.csv (see docs/columns.md) and any stratum: overall
    where none is named, and easy, middle or hard by predicted difficulty. A number that is undefined
    fails too. Of several files each is held to them. Results are written all the same.
    """
    from scalecal.evaluation.evaluations import evaluate_alone, evaluate_files
    from scalecal.evaluation.folder import AUDIT_FILES, CASE_FILES, FACTS, RUN_FILES, write_run
    from scalecal.evaluation.gates import check_strata, parse_conditions
    from scalecal.evaluation.stream import stream_file

    conditions = parse_conditions(fail_if or ())
    reading = given(positive=positive, n_raters=n_raters, ties=ties, seed=seed)
    reading["columns"] = named_columns(columns, votes)
    options = given(n_bins=n_bins, n_resamples=n_resamples)
    inputs = [*files, votes]
    deciding = given(threshold=threshold)
    if threshold is not None:
        check_inside(threshold, "--threshold")
    if stream:
        _check_stream(files, group_regex, votes, split, prevalence, threshold, by)
    else:
        options |= given(seed=seed, prevalence=prevalence)
        reading |= given(votes=votes, split=split, group_regex=group_regex)
        reading["allow_leakage"] = allow_leakage
        reading["by"] = split_list(",".join(by or ()) or None, "--by") or ()
    if out is not None and stream:
        # A stream writes neither cases nor a page, so those of another command may stay.
        names = (*AUDIT_FILES, "run.json", FACTS)
        check_output_folder(out, kind="audit", names=names, inputs=inputs)
    elif out is not None and len(files) == 1:
        check_run(out, "audit", (*CASE_FILES, *AUDIT_FILES), inputs)
    elif out is not None:
        check_run(out, "audit", RUN_FILES, inputs)
    dataset = files[0].stem
    if stream:
        result = stream_file(files[0], **reading, **options)
    elif len(files) == 1:
        predictions = read_predictions(files[0], **reading)
        check_strata(conditions, predictions.cases)
        predictions = replace(predictions, **deciding)
        with showing("auditing") as advance:
            result = evaluate_alone(predictions, dataset=dataset, advance=advance, **options)
    else:
        several = read_common_predictions(files, **reading)
        check_strata(conditions, several.cases)
        several = replace(several, **deciding)
        with showing("comparing") as advance:
            result = evaluate_files(several, advance=advance, **options)
    failed = result.failures(conditions)
    if json:
        print_text(result.to_json())
    else:
        say(str(result))
    if out is not None:
        written = write_run(
            out,
            result,
            kind="audit",
            command=sys.argv,
            options={**options, **deciding, **given(ties=ties, group_regex=group_regex, by=by)},
            inputs=inputs,
        )
        close_run(out, written, result.facts)
    for failure in failed:
        complain(f"failed: {failure}")
    if failed:
        raise typer.Exit(3)


def _check_stream(
    files: list[Path],
    group_regex: str | None,
    votes: Path | None,
    split: str | None,
    prevalence: float | None,
    threshold: float | None,
    by: list[str] | None,
) -> None:
    """Refuse what a stream cannot do: it keeps counts, and neither cases nor their ids and groups."""
    if len(files) > 1:
        raise InputError(
            "--stream keeps counts, but files are compared case by case: leave it out, or audit the "
            "files one by one"
        )
    advice = {
        "--group-regex": (group_regex, "it reads neither ids nor groups"),
        "--votes": (votes, "put the votes into columns of FILE, or leave out --stream"),
        "--split": (split, "put these cases into a file of their own"),
        "--prevalence": (prevalence, "leave out --stream"),
        "--threshold": (threshold, "leave out --stream"),
        "--by": (by and ",".join(by), "it compares levels case by case: leave out --stream"),
    }
    for option, (value, text) in advice.items():
        if value is not None:
            raise InputError(f"{option} {value} cannot be used with --stream: {text}")


class PlanGroup(TyperGroup):
    """The questions of `plan`; options alone are those of `plan audit`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put in the question where none is asked."""
        first = "".join(args[:1])
        if not args or (first.startswith("-") and first not in ctx.help_option_names):
            args = ["audit", *args]
        return super().parse_args(ctx, args)


plan = typer.Typer(name="plan", cls=PlanGroup)
app.add_typer(plan, help="Estimate how many cases a study needs; `plan` alone is `plan audit`.")

Simulations = Annotated[
    int | None, typer.Option("--simulations", help="Simulated studies per line of the table.")
]

GroupSize = Annotated[
    int | None, typer.Option("--group-size", metavar="G", help="Cases a patient.")
]
Icc = Annotated[
    float | None,
    typer.Option("--icc", help="Correlation of the residuals of two cases of one patient."),
]


@command(
    "plan audit --excess 0.03 --readers 3,7",
    Work("scalecal.planning:plan", {"readers": "n_raters"}),
    name="audit",
    group=plan,
)
def plan_audit(
    excess: Annotated[
        float | None, typer.Option(help="Calibration error to detect, above chance.")
    ] = None,
    stratum_share: Annotated[
        float | None, typer.Option("--share", help="Share of the cases that fall into the stratum.")
    ] = None,
    power: Annotated[float | None, typer.Option(help="Desired power.")] = None,
    readers: Annotated[
        str | None, typer.Option(metavar="M,M,...", help="Numbers of readers to consider.")
    ] = None,
    group_size: GroupSize = None,
    icc: Icc = None,
    n_simulations: Simulations = None,
    seed: Seed = None,
    out: Out = None,
) -> None:
    """Say how many cases and readers an audit needs, by simulation."""
    from scalecal.planning import plan as run_plan
    from scalecal.report.plots import power_curve, save

    if out is not None:
        names = ("plan.csv", "plan.svg", "plan.png")
        check_output_folder(out, kind="plan", names=names)
    result = run_plan(
        **given(
            excess=excess,
            stratum_share=stratum_share,
            power=power,
            n_raters=split_list(readers, "--readers", int, what="whole numbers"),
            group_size=group_size,
            icc=icc,
            n_simulations=n_simulations,
            seed=seed,
        )
    )
    say(str(result))
    if out is not None:
        with output_folder(out, kind="plan") as folder:
            write_csv(result.table, folder / "plan.csv")
            save(power_curve(result.table, power=result.power), folder / "plan")
        say(f"\nWrote plan.csv, plan.svg and plan.png to {out}")


@command(
    "plan votes --auc 0.9 --readers 5 --rho 0.1,0.4",
    Work(
        "scalecal.planning:plan_votes",
        {"readers": "n_raters", "voted": "n_voted", "recover": "share"},
    ),
    name="votes",
    group=plan,
)
def plan_votes(
    readers: Annotated[
        int | None, typer.Option(metavar="M", help="Readers behind a label.")
    ] = None,
    auc: Annotated[float | None, typer.Option(help="Label AUC of the probe.")] = None,
    rho: Annotated[
        str | None,
        typer.Option(
            metavar="R,R,...",
            help="Assumed correlations of two readers' votes on a case beyond what the probe explains.",
        ),
    ] = None,
    prevalence: Annotated[float | None, typer.Option(help="Share of positive labels.")] = None,
    n_labelled: Annotated[
        int | None, typer.Option("--labelled", help="Cases with a label only.")
    ] = None,
    voted: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Numbers of cases with votes.")
    ] = None,
    recover: Annotated[
        float | None, typer.Option(help="Desired share of the gain from knowing every vote.")
    ] = None,
    n_simulations: Simulations = None,
    seed: Seed = None,
    out: Out = None,
) -> None:
    """Say how many cases need readers' votes, so that a probe can tell how one reader would vote."""
    from scalecal.planning import plan_votes as run_plan

    if out is not None:
        check_output_folder(out, kind="plan", names=("votes.csv", "votes_needed.csv"))
    answer = run_plan(
        **given(
            auc=auc,
            rho=split_list(rho, "--rho", float, what="numbers"),
            n_raters=readers,
            prevalence=prevalence,
            n_labelled=n_labelled,
            n_voted=split_list(voted, "--voted", int, what="whole numbers"),
            share=recover,
            n_simulations=n_simulations,
            seed=seed,
        ),
        progress=tell,
    )
    say(str(answer))
    if out is not None:
        with output_folder(out, kind="plan") as folder:
            write_csv(answer.table, folder / "votes.csv")
            write_csv(answer.needed, folder / "votes_needed.csv")
        say(f"\nWrote votes.csv and votes_needed.csv to {out}")


@command(
    "plan precision --prevalence 0.1 --auc 0.8 --threshold 0.1",
    Work("scalecal.planning:plan_precision", {"readers": "n_raters"}),
    name="precision",
    group=plan,
)
def plan_precision(
    prevalence: Annotated[
        float | None,
        typer.Option(help="Share of positives; without it the mean of the predictions."),
    ] = None,
    auc: Annotated[
        float | None,
        typer.Option(help="C-statistic; without it that of the predictions, if calibrated."),
    ] = None,
    logit_normal: Annotated[
        str | None,
        typer.Option(metavar="MEAN,SD", help="Logits of the predictions are normal."),
    ] = None,
    beta: Annotated[
        str | None, typer.Option(metavar="A,B", help="Predictions have a beta distribution.")
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Predictions of similar cases; their p is used."),
    ] = None,
    oe_width: Annotated[float | None, typer.Option(help="Width of the interval of O:E.")] = None,
    slope_width: Annotated[
        float | None, typer.Option(help="Width of the interval of the calibration slope.")
    ] = None,
    auc_width: Annotated[
        float | None, typer.Option(help="Width of the interval of the AUC.")
    ] = None,
    net_benefit_width: Annotated[
        float | None, typer.Option(help="Width of the interval of the standardised net benefit.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Probability above which one acts; adds the net benefit there."),
    ] = None,
    group_size: GroupSize = None,
    icc: Icc = None,
    readers: Annotated[
        int | None,
        typer.Option(metavar="M", help="Votes on each case, where votes are what is predicted."),
    ] = None,
    kappa: Annotated[
        float | None, typer.Option(help="Correlation of two readers' votes on one case.")
    ] = None,
    out: Out = None,
) -> None:
    """Say how many cases and events give 95 % intervals of given widths, by formula.

    For O:E, calibration slope, AUC and net benefit (Riley et al., Statistics in Medicine 2021). Cases of one
    patient, and several readers of a case, count for what they are worth.
    """
    from scalecal.planning import plan_precision as run_plan

    if out is not None:
        check_output_folder(out, kind="plan", names=("precision.csv",), inputs=[predictions])
    p = None
    if predictions is not None:
        # Neither labels nor votes are needed: of two classes all that counts is p.
        read = read_predictions(predictions, keep_unlabelled=True, classes=("0", "1"))
        p = read.p
    answer = run_plan(
        **given(
            prevalence=prevalence,
            auc=auc,
            logit_normal=split_list(logit_normal, "--logit-normal", float, what="two numbers"),
            beta=split_list(beta, "--beta", float, what="two numbers"),
            predictions=p,
            oe_width=oe_width,
            slope_width=slope_width,
            auc_width=auc_width,
            net_benefit_width=net_benefit_width,
            threshold=threshold,
            group_size=group_size,
            icc=icc,
            n_raters=readers,
            kappa=kappa,
        )
    )
    say(str(answer))
    if out is not None:
        with output_folder(out, kind="plan") as folder:
            write_csv(answer.table, folder / "precision.csv")
        say(f"\nWrote precision.csv to {out}")


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
    checklist: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Also write checklist.md and checklist.csv into RUN, and show on the page, which items of a "
            "reporting checklist the run answers: {scalecal.report.checklists:CHECKLISTS}.",
        ),
    ] = None,
    paragraph: Annotated[
        bool,
        typer.Option(
            "--paragraph",
            help="Only print a paragraph for a paper, with the numbers of the run filled in.",
        ),
    ] = False,
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
        if paragraph:
            for cell in pages.report_facts(runs)["cells"]:
                say(pages.paragraph(cell))
            return
        if export is not None:
            check_output_folder(export, kind="report", inputs=[*runs, images])
        if checklist is not None:
            if len(runs) > 1:
                raise InputError(
                    f"--checklist {checklist} is about one run, got {len(runs)}: report them one by one"
                )
            listed = pages.write_checklist(runs[0], checklist)
            say(f"Wrote {' and '.join(map(str, listed))}")
        path = pages.write_report(
            runs, out or runs[0] / "report.html", **given(images=images, checklist=checklist)
        )
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
