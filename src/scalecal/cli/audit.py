"""Commands that audit predictions: `audit` and `plan`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from scalecal.cli.app import (
    AllowLeakage,
    Bins,
    Column,
    GroupRegex,
    Json,
    NRaters,
    Out,
    Positive,
    Resamples,
    Seed,
    Ties,
    Votes,
    columns,
    command,
    complain,
    given,
    print_json,
    say,
    showing,
    split_list,
    tell,
)
from scalecal.cli.help import Work
from scalecal.cli.report import check_run, close_run


@command(
    "audit predictions.csv --votes votes.csv --fail-if 'excess > 0.05' --out runs/audit",
    Work("scalecal.io:read_predictions"),
    Work("scalecal.auditing.audits:audit_predictions"),
)
def audit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Predictions: CSV, Parquet, Excel or JSON Lines. Several are set side by side.",
        ),
    ],
    votes: Votes = None,
    out: Out = None,
    id_column: Column = None,
    p_column: Column = None,
    p_reader_column: Column = None,
    rho_column: Column = None,
    p_split_column: Column = None,
    label_column: Column = None,
    votes_column: Column = None,
    n_raters_column: Column = None,
    rater_column: Column = None,
    group_column: Column = None,
    group_regex: GroupRegex = None,
    stratum_column: Column = None,
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
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Audit only cases that a column split marks so: test."),
    ] = None,
    split_column: Column = None,
    allow_leakage: AllowLeakage = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Read FILE in pieces: memory does not grow with it. Votes stand in FILE then, "
            "and ids and groups are not used.",
        ),
    ] = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="CONDITION",
            help="Exit with code 3 where this is so: [STRATUM:] COLUMN OPERATOR NUMBER, such as "
            "'excess > 0.05' or 'low: ece > 0.2'. May be given several times.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Audit predictions: calibration overall and by how far the readers agree.

    FILE has the columns id, p (or p_<class>), label and/or votes + n_raters (or votes_<class>), and
    optionally group and stratum. Labels judge p. Votes judge p_reader (or p_reader_<class>), the
    probability that one reader votes so, where there is one, and p elsewhere; rho is the correlation of
    votes around it; p_split, by this model or another, predicts how hard a case is. Other names are
    given by the --...-column options.

    Several files are joined by id: each is audited on the cases that all have, and compared with the
    first, with paired intervals. Labels, votes and groups may stand in one of them.

    Conditions of --fail-if take any column of audit.csv (see docs/columns.md) and any stratum: overall
    where none is named, and easy, middle or hard by predicted difficulty. A number that is undefined
    fails too. Of several files each is held to them. Results are written all the same.
    """
    named = columns(locals())
    from scalecal.auditing.audits import Audit, audit_predictions
    from scalecal.auditing.gates import check_strata, parse_conditions
    from scalecal.auditing.stream import stream_file
    from scalecal.checks import InputError
    from scalecal.io import read_common_predictions, read_predictions
    from scalecal.io.store import check_output_folder
    from scalecal.runs.facts import Comparison, compare_files
    from scalecal.runs.folder import AUDIT_FILES, CASE_FILES, RUN_FILES, write_audit_run, write_run

    conditions = parse_conditions(fail_if or ())
    if stream and len(files) > 1:
        raise InputError(
            "--stream keeps counts, not cases, which several files are compared by: leave it out, or "
            "audit one file after the other"
        )
    if stream and group_regex is not None:
        raise InputError(
            f"--group-regex {group_regex} cannot be used with --stream, which reads neither ids nor groups"
        )
    if stream and votes is not None:
        raise InputError(
            f"--votes {votes} cannot be used with --stream, which reads one file once: "
            "put the votes into columns of FILE, or leave out --stream"
        )
    if stream and split is not None:
        raise InputError(
            f"--split {split} cannot be used with --stream: put these cases into a file of their own"
        )
    if stream and prevalence is not None:
        raise InputError(
            f"--prevalence {prevalence:g} cannot be used with --stream, which keeps counts of cases: "
            "leave out --stream"
        )
    if rater_column is not None and votes is None:
        raise InputError(
            f"--rater-column {rater_column} names a column of the votes: give their file with --votes"
        )
    inputs = [*files, votes]
    if out is not None and stream:
        check_output_folder(out, kind="audit", names=AUDIT_FILES, inputs=inputs)
    elif out is not None:
        names = (*AUDIT_FILES, *CASE_FILES) if len(files) == 1 else RUN_FILES
        check_run(out, "audit", names, inputs)
    reading = given(columns=named, positive=positive, n_raters=n_raters, ties=ties, seed=seed)
    options = given(n_bins=n_bins, n_resamples=n_resamples, prevalence=prevalence)
    if not stream:
        options |= given(seed=seed)
        reading |= given(votes=votes, split=split, group_regex=group_regex)
        reading["allow_leakage"] = allow_leakage
    about: dict[str, Any] = {
        "command": sys.argv,
        "options": {**options, **given(ties=ties, group_regex=group_regex)},
        "inputs": inputs,
    }
    result: Audit | Comparison
    if stream:
        result = stream_file(files[0], **reading, **options)
    elif len(files) == 1:
        predictions = read_predictions(files[0], **reading)
        check_strata(conditions, predictions.cases)
        with showing("auditing") as advance:
            result = audit_predictions(predictions, advance=advance, **options)
    else:
        several = read_common_predictions(files, **reading)
        check_strata(conditions, several.cases)
        with showing("comparing") as advance:
            result = compare_files(several, advance=advance, **options)
    failed = result.failures(conditions)
    if json:
        print_json(result.to_json())
    else:
        say(str(result))
    if out is not None and isinstance(result, Audit):
        with showing("trying remedies") as advance:
            written = write_audit_run(out, result, dataset=files[0].stem, advance=advance, **about)
        close_run(out, written)
    if out is not None and isinstance(result, Comparison):
        written = write_run(
            out,
            result,
            kind="audit",
            title=f"{result.cell.dataset} side by side",
            notes=result.notes,
            fingerprint=result.fingerprint,
            **about,
        )
        close_run(out, written)
    for failure in failed:
        complain(f"failed: {failure}")
    if failed:
        raise typer.Exit(3)


@command(
    "plan --votes --auc 0.9 --readers 5 --rho 0.1,0.4",
    Work("scalecal.planning:plan", readers="n_raters"),
    Work(
        "scalecal.planning:plan_votes",
        when="with --votes",
        readers="n_raters",
        voted="n_voted",
        recover="share",
    ),
)
def plan(
    votes: Annotated[
        bool,
        typer.Option(
            "--votes",
            help="Ask instead how many cases need readers' votes, not labels only.",
        ),
    ] = False,
    excess: Annotated[
        float | None, typer.Option(help="Calibration error beyond chance to detect.")
    ] = None,
    stratum_share: Annotated[
        float | None, typer.Option("--share", help="Share of the cases that fall into the stratum.")
    ] = None,
    power: Annotated[float | None, typer.Option(help="Desired power.")] = None,
    readers: Annotated[
        str | None,
        typer.Option(
            metavar="M,M,...",
            help="Numbers of readers to consider; with --votes one, behind a label.",
        ),
    ] = None,
    auc: Annotated[float | None, typer.Option(help="With --votes: label AUC of the probe.")] = None,
    rho: Annotated[
        str | None,
        typer.Option(
            metavar="R,R,...",
            help="With --votes: correlations of two readers' votes on a case that the probe does not "
            "explain, to assume.",
        ),
    ] = None,
    prevalence: Annotated[
        float | None, typer.Option(help="With --votes: share of positive labels.")
    ] = None,
    n_labelled: Annotated[
        int | None,
        typer.Option("--labelled", help="With --votes: cases with a label only."),
    ] = None,
    voted: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="With --votes: numbers of cases with votes.",
        ),
    ] = None,
    recover: Annotated[
        float | None,
        typer.Option(help="With --votes: desired share of what knowing every vote buys."),
    ] = None,
    n_simulations: Annotated[
        int | None, typer.Option("--simulations", help="Simulated studies per line of the table.")
    ] = None,
    seed: Seed = None,
    out: Out = None,
) -> None:
    """Say how many cases and readers an audit needs, by simulation.

    With --votes: how many cases need readers' votes, so that a probe trained on labels can tell how
    one reader would vote.
    """
    from scalecal.checks import InputError
    from scalecal.io.store import check_output_folder, output_folder, write_csv
    from scalecal.io.text import listed
    from scalecal.planning import plan as run_plan
    from scalecal.planning import plan_votes

    n_raters = split_list(readers, "--readers", int, what="whole numbers")
    of_audits = {"--excess": excess, "--share": stratum_share, "--power": power}
    of_votes = {
        "--auc": auc,
        "--rho": rho,
        "--prevalence": prevalence,
        "--labelled": n_labelled,
        "--voted": voted,
        "--recover": recover,
    }
    unused = ", ".join(given(**(of_audits if votes else of_votes)))
    if unused:
        raise InputError(f"{unused} cannot be used with{'' if votes else 'out'} --votes")
    if votes and n_raters is not None and len(n_raters) > 1:
        raise InputError(f"--votes plans for one number of readers, got --readers {readers}")
    names = ("votes.csv", "votes_needed.csv") if votes else ("plan.csv", "plan.svg", "plan.png")
    if out is not None:
        check_output_folder(out, kind="plan", names=names)
    common = given(n_simulations=n_simulations, seed=seed)
    if votes:
        answer = plan_votes(
            **common,
            **given(
                auc=auc,
                rho=split_list(rho, "--rho", float, what="numbers"),
                n_raters=None if n_raters is None else n_raters[0],
                prevalence=prevalence,
                n_labelled=n_labelled,
                n_voted=split_list(voted, "--voted", int, what="whole numbers"),
                share=recover,
            ),
            progress=tell,
        )
        say(str(answer))
        if out is not None:
            with output_folder(out, kind="plan") as folder:
                write_csv(answer.table, folder / "votes.csv")
                write_csv(answer.needed, folder / "votes_needed.csv")
    else:
        result = run_plan(
            **common,
            **given(excess=excess, stratum_share=stratum_share, power=power, n_raters=n_raters),
        )
        say(str(result))
        if out is not None:
            from scalecal.auditing.plots import power_curve, save

            with output_folder(out, kind="plan") as folder:
                write_csv(result.table, folder / "plan.csv")
                save(power_curve(result.table, power=result.power), folder / "plan")
    if out is not None:
        say(f"\nWrote {listed(names)} to {out}")
