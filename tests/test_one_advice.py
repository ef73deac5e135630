"""Whatever command looks at a file, terminal and page give one piece of advice, in the same sentences.

Every command runs on every example: what `calibrate` chooses is what `audit` advises, standard output holds
one line that begins "What to do?", no sentence stands there twice, and the page says the same words.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from types import FrameType

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from scipy.stats import binom
from typer.testing import CliRunner

from scalecal.cases import Cases, Factor, Predictions
from scalecal.cli import app
from scalecal.evaluation.evaluations import evaluate_alone
from scalecal.evaluation.recalibration import calibrate_predictions
from scalecal.evaluation.stream import stream_file
from scalecal.evaluation.words import NOTHING
from scalecal.metrics import METRICS
from scalecal.report import audit_page

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = [
    pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning"),
    pytest.mark.usefixtures("brief_training"),
]


@dataclass(frozen=True)
class Said:
    """What a command printed on standard output, and the folder that it wrote."""

    stdout: str
    out: Path


class _Text(HTMLParser):
    """The text of a page that its reader sees: not that of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, _: object) -> None:
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def text_of(page: str) -> str:
    reader = _Text()
    reader.feed(page)
    return " ".join(" ".join(reader.parts).split())


LABEL = re.compile(r"^(Note|Before|[A-Z]{4,}|[\w.-]+: [A-Z]{4,}): ")
"""What stands before a sentence to say of what it is."""


def sentences(stdout: str) -> list[str]:
    """The sentences that were printed: of tables and names of files there are none."""
    found = []
    # The legend of a table may go on in a second line.
    stdout = re.sub(r"^Also in [^.]+(\.[^.]+)*?\.$", "", stdout, flags=re.MULTILINE)
    for line in stdout.splitlines():
        line = line.strip()
        # A table's line has columns; its legend and what was written are lists of names.
        if "   " in line or line.startswith(("Also in ", "Wrote ", "For new cases: ")):
            continue
        if not line.endswith("."):
            continue
        while LABEL.match(line):
            line = LABEL.sub("", line, count=1)
        found += re.split(r"(?<=[.?])\s+(?=[A-Z\"])", line)
    return found


def advice(stdout: str) -> str:
    """The one line that says what to do."""
    lines = [line for line in stdout.splitlines() if line.startswith("What to do?")]
    assert len(lines) == 1, lines
    return lines[0]


def method_of(line: str) -> str | None:
    """The method that a piece of advice names, as the option of `calibrate`."""
    found = re.findall(r"--method ([\w-]+)", line)
    assert len(found) <= 1, line
    return found[0] if found else None


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == 0, (arguments, done.output, done.exception)
    return done.stdout


FEW = ("--resamples", 100)


@pytest.fixture(scope="module")
def commands(tmp_path_factory, brief_training) -> dict[str, Said]:  # noqa: ARG001
    """Every command that evaluates, run on the examples."""
    root = tmp_path_factory.mktemp("advice")
    shutil.copytree(EXAMPLES, root / "examples")
    file, votes = root / "examples" / "predictions.csv", root / "examples" / "votes.csv"
    features = root / "examples" / "features.npz"
    bare = root / "bare.csv"
    pd.read_csv(file)[["id", "p", "label"]].to_csv(bare, index=False)
    said: dict[str, Said] = {}

    def make(name: str, *arguments: object) -> None:
        out = root / name.replace(" ", "_")
        said[name] = Said(run(*arguments, *FEW, "--out", out), out)

    make("audit", "audit", file)
    make("audit of labels", "audit", bare)
    make("audit with votes", "audit", bare, "--votes", votes)
    make("audit at a prevalence", "audit", file, "--prevalence", 0.1)
    make("calibrate", "calibrate", file)
    make("calibrate labels", "calibrate", bare)
    make("calibrate with votes", "calibrate", bare, "--votes", votes)
    make("calibrate by platt", "calibrate", file, "--method", "platt")
    make("calibrate by none", "calibrate", file, "--method", "none")
    saved = said["calibrate"].out / "calibrator.json"
    make("calibrate by a file", "calibrate", file, "--apply", saved)
    after = said["calibrate"].out / "predictions.csv"
    make("audit of the recalibrated", "audit", after)
    make("audit of two files", "audit", file, after)
    make("audit of three files", "audit", file, after, bare)
    # Predictions of a probe that was fitted to the example's embeddings.
    given = dict(np.load(features))
    rng = np.random.default_rng(0)
    split = np.where(rng.random(len(given["y"])) < 0.5, "train", "test")
    np.savez(root / "features.npz", **given, split=split)
    run("fit", root / "features.npz", "--method", "none", "--out", root / "probe")
    run("predict", root / "probe", root / "features.npz", "--out", root / "probe.csv")
    make("audit of a probe", "audit", root / "probe.csv")
    make("calibrate a probe", "calibrate", root / "probe.csv")
    out = root / "compare"
    methods = ("--methods", "none,temperature,vote-fraction,panel-votes")
    text = run("compare", features, *methods, "--seeds", 2, "--out", out)
    said["compare"] = Said(text, out)
    # A model of another kind than the example's: too low, so that another calibrator is chosen.
    shifted = root / "shifted.csv"
    drawn = study(n=400, shift=-1.5)
    votes_of = drawn.cases.votes.sum(axis=1), drawn.cases.votes[:, 1]
    table = pd.DataFrame({"p": drawn.only.p, "label": drawn.cases.y})
    table.assign(n_raters=votes_of[0], votes=votes_of[1]).to_csv(shifted, index=False)
    make("audit of a shifted model", "audit", shifted)
    make("calibrate a shifted model", "calibrate", shifted)
    return said


NAMES = (
    *("audit", "audit of labels", "audit with votes", "audit at a prevalence"),
    *("calibrate", "calibrate labels", "calibrate with votes"),
    *("calibrate by platt", "calibrate by none", "calibrate by a file"),
    *("audit of the recalibrated", "audit of two files", "audit of three files"),
    *("audit of a probe", "calibrate a probe", "compare"),
    *("audit of a shifted model", "calibrate a shifted model"),
)


def test_every_command_was_run(commands):
    assert tuple(commands) == NAMES


@pytest.mark.parametrize(
    ("audited", "calibrated"),
    [
        ("audit", "calibrate"),
        ("audit of labels", "calibrate labels"),
        ("audit with votes", "calibrate with votes"),
        ("audit of a probe", "calibrate a probe"),
        ("audit of a shifted model", "calibrate a shifted model"),
    ],
)
def test_an_audit_advises_what_calibrate_chooses(commands, audited, calibrated):
    said = commands[audited], commands[calibrated]
    chosen = json.loads((said[1].out / "calibrator.json").read_text())["chosen"]
    named = {method_of(advice(each.stdout)) for each in said}
    for each in said:
        page = text_of((each.out / "report.html").read_text())
        named |= {method_of(line) for line in re.findall(r"[^.?]*--method [\w-]+", page)}
    assert named == {chosen}
    # One rule judges the gain, so both state the same change and call it the same.
    gains = {re.search(r"label NLL [^\[]+\[[^]]+\]", advice(each.stdout))[0] for each in said}
    assert len(gains) == 1


STUDIES = {
    "too sure": {"slope": 2.5},
    "too sure, labels only": {"slope": 2.5, "voted": False},
    "not sure enough": {"slope": 0.5},
    "shifted": {"shift": 1.5},
    "shifted further": {"shift": 2.0},
    "bent": {"slope": 1.8, "shift": 0.8, "groups": True},
    "right for labels, not for readers": {},
    "few cases": {"n": 60, "slope": 3.0},
}


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_method_is_named_only_where_calibrate_chooses_it(name, seed):
    predictions = study(**STUDIES[name], seed=seed)
    # The seed deals the folds of both.
    audited = evaluate_alone(predictions, n_resamples=20, seed=seed)
    calibrated = calibrate_predictions(predictions, n_resamples=20, seed=seed)
    named = method_of(advice("\n".join(audited.sentences)))
    assert named in (None, calibrated.chosen)
    assert method_of(advice("\n".join(calibrated.sentences))) in (None, calibrated.chosen)
    found = audited.recommended
    if found is not None:
        # Leaving p alone has two names: it is done with a reader's answer, or without one.
        assert found["p"]["method"] == calibrated.chosen or calibrated.chosen in NOTHING
        assert (named is None) is (calibrated.chosen in NOTHING)


def study(*, n=600, slope=1.0, shift=0.0, voted=True, groups=False, seed=0, m=7):
    """A model that is calibrated for the majority of m readers at a slope of 1 and no shift."""
    rng = np.random.default_rng(seed)
    chance = expit(1.6 * rng.normal(size=n) - 0.3)
    positive = rng.binomial(m, chance)
    majority = np.clip(binom.sf(m // 2, m, chance), 1e-9, 1 - 1e-9)
    cases = Cases(
        n=n,
        classes=("0", "1"),
        y=(positive > m / 2).astype(int),
        votes=np.column_stack([m - positive, positive]) if voted else None,
        groups=Factor.of([f"patient {i // 3}" for i in range(n)]) if groups else None,
    )
    return Predictions.single(cases.stratified(), expit(slope * logit(majority) + shift))


def overall(said: Said) -> dict[str, dict[str, float]]:
    """Method -> its numbers over all cases, as tables and page have them."""
    rows = json.loads((said.out / "facts.json").read_text())["rows"]
    return {row["method"]: row for row in rows if row["stratum"] == "overall"}


def test_a_tried_calibrator_has_the_numbers_of_calibrate(commands):
    named = method_of(advice(commands["audit"].stdout))
    tried, made = (overall(commands[name])[named] for name in ("audit", "calibrate"))
    # Both answers: the reader probability that calibrate adds is judged by the votes in both.
    for metric in ("nll", "vote_nll", "ece"):
        assert tried[metric] == pytest.approx(made[metric], rel=1e-9)


def test_sentences_after_calibrate_state_the_row_of_what_is_after(commands):
    facts = json.loads((commands["calibrate"].out / "facts.json").read_text())
    assert facts["judged"] == "auto"
    error = 100 * overall(commands["calibrate"])["auto"]["ece"]
    assert f"(ECE) is {error:.0f} points" in facts["lead"][0]["text"]
    # The table of the page's audit is of the same answers.
    page = (commands["calibrate"].out / "report.html").read_text()
    assert f"Audit of {facts['name']}: auto" in page


def test_sentences_on_several_seeds_state_the_means_of_the_table(commands):
    facts = json.loads((commands["compare"].out / "facts.json").read_text())
    mean = overall(commands["compare"])[facts["judged"]]["vote_nll"]
    assert (
        f"The mean vote NLL of {facts['n_seeds']} seeds is {mean:.3f}" in commands["compare"].stdout
    )


@pytest.mark.parametrize("name", ["audit", "calibrate", "audit of two files"])
def test_one_number_for_one_quantity(commands, name):
    facts = json.loads((commands[name].out / "facts.json").read_text())
    for method, audit in facts["audits"].items():
        rows = {r["stratum"]: r for r in facts["rows"] if r["method"] == method}
        for row in audit["rows"]:
            for metric in METRICS:
                found = [each.get(metric) for each in (row, rows.get(row["name"], {}))]
                if None not in found:
                    assert found[0] == pytest.approx(found[1], rel=1e-9, abs=1e-12), metric


def test_what_was_recalibrated_is_not_sent_back(commands):
    said = advice(commands["audit of the recalibrated"].stdout)
    assert "--method" not in said
    assert not said.startswith("What to do? Do not rely on its probabilities")


def test_a_calibrator_that_harms_is_not_recommended(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, size=2000)
    label = (rng.random(2000) < p).astype(int)
    for name, of in (("sure", expit(3 * logit(p))), ("calibrated", p)):
        pd.DataFrame({"p": of, "label": label}).to_csv(tmp_path / f"{name}.csv", index=False)
    run("calibrate", tmp_path / "sure.csv", *FEW, "--out", tmp_path / "made")
    saved = tmp_path / "made" / "calibrator.json"
    said = advice(run("calibrate", tmp_path / "calibrated.csv", "--apply", saved, *FEW))
    assert said.startswith("What to do? Keep the original probabilities.")
    assert "rises significantly" in said


def test_a_calibrator_that_keeps_p_changes_nothing(commands, tmp_path):
    saved = commands["calibrate by none"].out / "calibrator.json"
    file = EXAMPLES / "predictions.csv"
    said = run("calibrate", file, "--apply", saved, *FEW, "--out", tmp_path / "applied")
    assert advice(said).startswith("What to do? Leave p as it is.")
    assert "requested" not in advice(said)
    table = pd.read_csv(tmp_path / "applied" / "comparison.csv").set_index("method")
    assert (table["nll_change"] == 0).all()


def test_a_stream_is_advised_as_what_it_is(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, size=3000)
    label = (rng.random(3000) < p).astype(int)
    pd.DataFrame({"p": expit(3 * logit(p)), "label": label}).to_csv(tmp_path / "p.csv", index=False)
    said = advice(run("audit", tmp_path / "p.csv", "--stream", *FEW))
    assert "Run scalecal calibrate FILE" in said
    assert "too few" not in said


def test_a_prevalence_that_is_the_samples_changes_nothing(tmp_path):
    rng = np.random.default_rng(0)
    p = expit(rng.normal(size=400))
    label = np.repeat([0, 1], 200)
    pd.DataFrame({"p": p, "label": label}).to_csv(tmp_path / "p.csv", index=False)
    said = [run("audit", tmp_path / "p.csv", *FEW, *more) for more in ((), ("--prevalence", 0.5))]
    assert said[0] == said[1]


@pytest.mark.parametrize("name", ["audit of two files", "audit of three files"])
def test_the_list_of_cases_has_a_cell_under_every_head(commands, name):
    page = (commands[name].out / "report.html").read_text()
    table = re.search(r'<table class="plain cases.*?</table>', page, re.DOTALL)[0]
    head, *rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    assert {len(re.findall(r"<t[dh][ >]", row)) for row in rows} == {head.count("<th")}


@pytest.mark.parametrize("name", NAMES)
def test_there_is_one_piece_of_advice(commands, name):
    assert commands[name].stdout.count("What to do?") == 1
    page = text_of((commands[name].out / "report.html").read_text())
    assert page.count("What to do?") == 1


@pytest.mark.parametrize("name", NAMES)
def test_no_sentence_is_said_twice(commands, name):
    found = [sentence.casefold() for sentence in sentences(commands[name].stdout)]
    assert len(found) > 3
    assert sorted(set(found)) == sorted(found)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_holds_the_sentences_of_the_terminal(commands, name):
    said = commands[name]
    facts = json.loads((said.out / "facts.json").read_text())
    page = text_of((said.out / "report.html").read_text())
    for answer in facts["lead"]:
        for text in answer.values():
            assert text in page
    for sentence in sentences(said.stdout):
        assert sentence in page, sentence


@pytest.mark.parametrize("name", ["predictions.csv", "labels only"])
def test_a_stream_says_the_same_on_terminal_and_page(tmp_path, name):
    file = EXAMPLES / "predictions.csv"
    if name == "labels only":
        pd.read_csv(file)[["p", "label"]].to_csv(tmp_path / "bare.csv", index=False)
        file = tmp_path / "bare.csv"
    stdout = run("audit", file, "--stream", *FEW)
    assert advice(stdout)
    found = [sentence.casefold() for sentence in sentences(stdout)]
    assert sorted(set(found)) == sorted(found)
    page = text_of(audit_page(stream_file(file, n_resamples=100)))
    for sentence in sentences(stdout):
        assert sentence in page, sentence


@pytest.fixture(scope="module")
def pages(commands, tmp_path_factory) -> dict[str, str]:
    """Pages of more than one cell, and of a reproduction."""
    root = tmp_path_factory.mktemp("pages")
    runs = [commands[name].out for name in ("compare", "audit of labels", "calibrate")]
    run("report", *runs, "--out", root / "several.html")
    alike = [commands[name].out for name in ("audit of the recalibrated", "calibrate by none")]
    run("report", *alike, "--out", root / "alike.html")
    training = ("--methods", "none,temperature", "--seeds", 1, "--no-sweep")
    stdout = run("reproduce", "--datasets", "lidc", *training, "--out", root / "reproduce")
    found = [sentence.casefold() for sentence in sentences(stdout)]
    assert sorted(set(found)) == sorted(found)
    made = (root / "several.html", root / "alike.html", root / "reproduce" / "report.html")
    return {file.parts[len(root.parts)]: file.read_text() for file in made}


@pytest.mark.parametrize("name", ["several.html", "alike.html", "reproduce"])
def test_no_sentence_stands_twice_on_a_page_of_several_models(pages, name):
    page = pages[name]
    lead = page[
        page.index('<div class="sc-answers lead">') : page.index('<details class="inwords">')
    ]
    assert text_of(lead).count("What to do?") == 1
    words = re.findall(r'<p class="said">.*?</p>', page, re.DOTALL)
    # Two models may have the same sentence: each of them has it once, and the verdict on all has none.
    for part in (lead, *words):
        lines = re.sub(r"</(p|h3)>", "\n", part)
        found = [line for each in lines.splitlines() for line in sentences(text_of(each))]
        assert found
        assert sorted(set(found)) == sorted(found)
    assert len(set(words)) == len(words)


@contextmanager
def calls_of(*modules: str) -> Iterator[Counter[str]]:
    """Count the calls of functions of some modules, by module and name."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        module = str(frame.f_globals.get("__name__"))
        if event == "call" and module.startswith(modules):
            counts[f"{module}.{frame.f_code.co_name}"] += 1

    sys.setprofile(count)
    try:
        yield counts
    finally:
        sys.setprofile(None)


COMPUTING = (
    *("scalecal.calibrators", "scalecal.probes", "scalecal.solvers", "scalecal.inference"),
    *("scalecal.panel", "scalecal.evaluation.evaluations", "scalecal.evaluation.audits"),
    *("scalecal.evaluation.scores", "scalecal.evaluation.rows", "scalecal.evaluation.candidates"),
    *("scalecal.evaluation.changes", "scalecal.evaluation.curves"),
    *("scalecal.evaluation.case_lists", "scalecal.evaluation.judging"),
    *(
        "scalecal.metrics.label_scores",
        "scalecal.metrics.vote_scores",
        "scalecal.metrics.resampling",
    ),
)
"""Modules that fit, resample, score or judge: who reads a folder calls no function of theirs."""

LISTING = {f"scalecal.evaluation.changes.{name}" for name in ("compared_metrics", "<lambda>")}
"""Functions of these modules that only name metrics."""


@pytest.mark.parametrize("name", ["audit", "calibrate", "audit of two files", "compare"])
def test_a_folder_is_read_without_computing(commands, name, tmp_path):
    out = commands[name].out
    # Whatever is imported only now runs its own body: not a second time.
    run("report", out, "--out", tmp_path / "first.html")
    with calls_of(*COMPUTING) as counts:
        run("report", out, "--out", tmp_path / "page.html")
    assert set(counts) <= LISTING
    assert (tmp_path / "page.html").read_bytes() == (out / "report.html").read_bytes()


def test_each_candidate_is_cross_fitted_once(commands, tmp_path):
    """Page, tables and documents are made of the numbers that were found before, and not read again."""
    facts = json.loads((commands["audit"].out / "facts.json").read_text())
    tried = facts["recommended"]["p"]["tried"]
    file = commands["audit"].out.parent / "examples" / "predictions.csv"
    fitted, folder = "scalecal.calibrators.crossfitting.crossfit", "scalecal.evaluation.folder"
    counted = (fitted.rpartition(".")[0], folder)
    for command, most in (("audit", tried + 2), ("calibrate", 6 * (tried + 1))):
        with calls_of(*counted) as counts:
            run(command, file, *FEW, "--out", tmp_path / command)
        assert counts[f"{folder}.read_facts"] == 0
        assert counts[f"{folder}._hashes"] == 1
        # Of an audit once, with p as it is, and the chosen one with its reader probability; of calibrate
        # again in each of five folds, for the choice.
        assert tried <= counts[fitted] <= most
    with calls_of(fitted.rpartition(".")[0]) as counts:
        run("calibrate", file, "--method", "platt", *FEW, "--out", tmp_path / "platt")
    assert counts[fitted] == 1
