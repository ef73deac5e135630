"""The report's two answers: diagrams against votes, laws of votes, split panels, voted cases."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit
from scipy.stats import betabinom, binom

from scalecal.datasets import simulate
from scalecal.evaluation.audits import audit_predictions
from scalecal.evaluation.cells import read_cell
from scalecal.evaluation.exhibits import vote_reliability
from scalecal.evaluation.folder import store_facts
from scalecal.evaluation.words import kappa_sentence, voted_sentence
from scalecal.io.store import write_file
from scalecal.io.text import number
from scalecal.panel import split_probability
from scalecal.readers import Readers
from scalecal.report import export, report_facts, write_report
from scalecal.report.figures import READS, voted_name, voted_plots, voted_points
from scalecal.report.page import two_parts
from tests.report.conftest import run_on
from tests.report.make_runs import METHODS, make_run
from tests.report.test_facts import read_page

pytestmark = [
    pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning"),
    pytest.mark.usefixtures("brief_training"),
]


def words(page) -> str:
    return " ".join(" ".join(read_page(page).text).split())


@pytest.fixture(scope="module")
def compared(runs):
    return report_facts([runs["compare"]])["cells"][0]


# Against votes


def test_diagrams_against_votes_are_those_of_the_audit(compared, runs, pages):
    cell, stored = compared, read_cell(runs["compare"])
    assert list(cell["vote_reliability"]) == cell["shown"]
    for method, panels in cell["vote_reliability"].items():
        expected = vote_reliability(audit_predictions(stored.of(method)))
        assert [p["ece"] for p in panels] == pytest.approx([p["ece"] for p in expected])
        two = stored.first(method).p_reader is not None
        assert {p["judges"] for p in panels} == {"p_reader" if two else "p"}
    text = words(pages["compare"])
    raw = pages["compare"].read_text()
    assert raw.count('aria-label="Reliability diagram against readers’ votes') == 2
    for panels in cell["vote_reliability"].values():
        assert f"{panels[0]['votes']:,} votes on {panels[0]['n']:,} cases" in text
        assert f"ECE {number(panels[0]['ece'])} null {number(panels[0]['null'])}" in text


def test_without_votes_there_are_no_diagrams_against_them(tmp_path):
    run = make_run(tmp_path / "run", n=80, seeds=1, votes=False)
    page = write_report([run], tmp_path / "page.html")
    assert report_facts([run])["cells"][0]["vote_reliability"] == {"none": [], "temperature": []}
    assert 'class="byvotes"' not in page.read_text()
    assert "judged by it twice" not in words(page)


def test_scores_say_which_answer_they_judge(pages):
    assert "Vote NLL judges the reader probability" in words(pages["compare"])
    assert "A method with one probability is judged by it twice." in words(pages["compare"])


# Case by case


def test_laws_of_listed_cases_by_hand(compared, runs):
    """Means over seeds of the beta-binomial law; the span holds four fifths and could not be shorter."""
    cell, stored = compared, read_cell(runs["compare"])
    method = cell["two_answers"]
    assert method in ("jury", "panel-published")
    names = stored.cases.names.tolist()
    for case in cell["cases"]:
        two, i = case["two"], names.index(case["id"])
        laws, labels = [], []
        for seed in (0, 1):
            part = stored.answers[method, seed]
            mu, rho = part.p_reader[i], part.rho
            a, b = mu * (1 - rho) / (rho or 1), (1 - mu) * (1 - rho) / (rho or 1)
            law = betabinom(7, a, b) if rho else binom(7, mu)
            laws.append(law.pmf(np.arange(8)))
            labels.append(part.p[i])
        law = np.mean(laws, axis=0)
        np.testing.assert_allclose(two["law"], law, atol=1e-9)
        assert two["label"] == pytest.approx(np.mean(labels))
        assert two["votes"] == case["votes"][1]
        inside = law[two["low"] : two["high"] + 1].sum()
        assert inside >= 0.8 - 1e-9
        width = two["high"] - two["low"]
        assert all(law[k : k + width].sum() < 0.8 for k in range(8 - width + 1))


def test_page_says_both_answers_of_every_case(compared, pages):
    cell, text = compared, words(pages["compare"])
    for case in [*cell["cases"], *cell["splits"]]:
        assert " ".join(f"{what} {value}" for what, value in two_parts(case["two"]).items()) in text


def test_answers_in_words():
    two = {
        "label": 0.9999,
        "reader": 0.81,
        "n_raters": 5,
        "law": [0.0] * 5 + [1.0],
        "low": 5,
        "high": 5,
    }
    assert two_parts(two, "tumour") == {
        "the panel's label tumour:": "> 99 %",
        "one reader:": "81 %",
        "expect": "5 of 5",
    }
    assert len(two_parts({"label": 0.2, "reader": 0.3})) == 2


def test_cases_most_likely_to_split_by_hand(compared, runs, pages):
    cell, stored = compared, read_cell(runs["compare"])
    parts = [stored.answers[cell["two_answers"], seed] for seed in (0, 1)]
    chance = np.mean([split_probability(logit(p.p_reader), p.rho, 7) for p in parts], axis=0)
    order = np.argsort(-chance, kind="stable")[:12]
    assert [c["id"] for c in cell["splits"]] == stored.cases.names[order].tolist()
    assert [c["two"]["split"] for c in cell["splits"]] == pytest.approx(chance[order])
    raw = pages["compare"].read_text()
    table = re.search(r'<table class="plain cases splits.*?</table>', raw, re.S)[0]
    assert re.findall(r'<th scope="row">(.*?)</th>', table) == [c["id"] for c in cell["splits"]]


def test_split_cases_have_thumbnails_too(tmp_path):
    image = pytest.importorskip("PIL.Image")
    names = [f"{i}.png" for i in range(60)]
    (tmp_path / "images").mkdir()
    for name in names:
        image.new("RGB", (8, 8)).save(tmp_path / "images" / name)
    run = make_run(tmp_path / "run", n=60, seeds=1, paths=names)
    raw = write_report([run], tmp_path / "page.html", images=tmp_path / "images").read_text()
    table = re.search(r'<table class="plain cases splits.*?</table>', raw, re.S)[0]
    assert table.count("<img ") == table.count("<tr>") - 1 > 0


# How many votes would I need?


def test_what_voted_cases_buy(runs, pages, tmp_path):
    cell, text = report_facts([runs["voted"]])["cells"][0], words(pages["voted"])
    assert "How many votes would I need?" in text
    assert voted_sentence(cell) in text
    assert kappa_sentence(cell) in text
    assert text.count(voted_sentence(cell)) == 1
    for row in cell["kappa_sensitivity"]:
        assert f"{row['kappa']:.2f} {row['rho']:.2f} {row['vote_nll']:.4f}" in text
    points = voted_points(cell)
    assert [(p["voted"], p["reads"]) for p in points] == [
        (0, "published"),
        (20, "panel"),
        (20, "single"),
        (80, "panel"),
        (80, "single"),
        (None, "all"),
    ]
    written = export(runs["voted"], tmp_path / "figures")
    assert {"voted.svg", "voted.png", "voted_nll.svg"} <= {path.name for path in written}
    assert ET.parse(tmp_path / "figures" / "voted.svg").getroot().tag.endswith("svg")
    table = pd.read_csv(tmp_path / "figures" / "voted.csv")
    assert table["vote_nll"].tolist() == pytest.approx([p["vote_nll"] for p in points])
    kappa = pd.read_csv(tmp_path / "figures" / "kappa.csv")
    assert kappa["factor"].tolist() == [0.7, 1.0, 1.3]
    splits = pd.read_csv(tmp_path / "figures" / "splits.csv")
    assert splits["p_split"].tolist() == pytest.approx([c["two"]["split"] for c in cell["splits"]])


def test_the_figures_of_voted_cases_have_a_line_for_each_number(runs):
    """Higher shares stand further right; far ones are pinned to the frame and say their value."""
    cell = report_facts([runs["voted"]])["cells"][0]
    shares = {("panel", 20): 0.5, ("single", 20): -30.0, ("panel", 80): 1.0, ("single", 80): 0.0}
    cell["voted"]["points"] = [
        {**p, "share": shares[p["reads"], p["voted"]], "low": -0.5, "high": 1.5}
        for p in cell["voted"]["points"]
    ]
    cell["voted"]["published"] = cell["voted"]["all"] = {"share": 0.9, "low": 0.8, "high": 1.2}
    upper, lower = voted_plots(cell)
    assert (upper.name, lower.name) == (("voted",), ("voted_nll",))
    assert lower.title == "change of label NLL"
    marks = {mark.tip.partition(":")[0]: mark for mark in upper.drawing.marks if mark.tip}
    assert list(marks) == [voted_name(point) for point in voted_points(cell)]
    ten, half, whole = (
        marks[f"{n} cases {READS[reads]}"]
        for n, reads in ((80, "single"), (20, "panel"), (80, "panel"))
    )
    assert half.points[0][0] - ten.points[0][0] == pytest.approx(
        whole.points[0][0] - half.points[0][0]
    )
    far = marks[f"20 cases {READS['single']}"]
    assert far.kind == "rect"
    assert "-3000 % [-50, 150]" in far.tip


def test_without_a_share_the_figure_has_the_change_of_vote_nll(runs):
    cell = report_facts([runs["voted"]])["cells"][0]
    none = {"share": None, "low": None, "high": None, "reason": "the reference gains nothing here"}
    for point in cell["voted"]["points"]:
        point.update(none, draws_low=None, draws_high=None)
    cell["voted"] |= {"published": none, "all": none}
    plots = voted_plots(cell)
    assert [(p.name, p.title) for p in plots] == [
        (("voted",), "change of vote NLL"),
        (("voted_nll",), "change of label NLL"),
    ]


# Other shapes of data


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    root = tmp_path_factory.mktemp("odd")
    drawn = simulate(240, dim=4, auc=0.9, n_groups=40, seed=0)
    unread = drawn.with_cases(votes=None, n_raters=np.full(240, 7), strata=None)
    half = drawn.cases.votes.copy()
    half[::2] = 0
    three = simulate(240, dim=4, n_classes=3, seed=0)
    return {
        "three classes": run_on(three, root / "three", voted=[0, 30]),
        "no votes": run_on(unread, root / "unread", readers=Readers(kappa=0.4)),
        "half read": run_on(drawn.with_cases(votes=half), root / "half", voted=[20]),
        "thirty": run_on(simulate(30, dim=3, seed=1), root / "thirty", voted=[0]),
        "many readers": run_on(simulate(120, dim=4, n_raters=101, seed=0), root / "many"),
    }


@pytest.mark.parametrize(
    "name", ["three classes", "no votes", "half read", "thirty", "many readers"]
)
def test_other_shapes_of_data(open_page, odd, tmp_path, name):
    file = write_report([odd[name]], tmp_path / "page.html")
    text, cell = words(file), report_facts([odd[name]])["cells"][0]
    page = open_page(file, viewport={"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert cell["two_answers"] == "panel-published"
    assert "the panel's label" in text
    assert cell["splits"]
    assert ("How many votes" in text) == bool(cell["voted"])
    if name == "no votes":
        assert "observed" not in page.locator("#cases").inner_text()
        assert all(case["two"]["votes"] is None for case in cell["splits"])
    if name == "three classes":
        first = cell["splits"][0]
        assert f"the panel's label {first['shown_class']}:" in text
    export(odd[name], tmp_path / "figures")


def test_hostile_class_names_stay_text(open_page, tmp_path):
    run = make_run(tmp_path / "run", n=60, seeds=1, methods=METHODS, tables=False)
    about = json.loads((run / "run.json").read_text())
    evil = ['"><img src=x onerror=alert(1)>', "</svg><script>alert(1)</script>"]
    about["dataset"]["classes"] = evil
    write_file(run / "run.json", json.dumps(about), kind="compare")
    (run / "facts.json").unlink()
    store_facts(run)
    file = write_report([run], tmp_path / "page.html")
    page = open_page(file)
    assert page.locator("main img, main script").count() == 0
    page.locator("#cases details > summary").click()
    assert evil[1] in page.locator("table.splits").inner_text()
