"""A person without statistics can answer three questions from the first screen, whatever was run.

Is it calibrated? Where not? What to do? (`docs/report.md`.) Each kind of run, degenerate ones included,
has a badge, a headline and three answers that say something, agree with the badge and name no raw key.
"""

from __future__ import annotations

import os
import re
from html import unescape

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import binom
from typer.testing import CliRunner

from scalecal import audit
from scalecal.cli import app
from scalecal.datasets import load_lidc, simulate
from scalecal.evaluation.evaluations import evaluate
from scalecal.evaluation.folder import write_run
from scalecal.evaluation.stream import StreamingAudit
from scalecal.evaluation.words import BADGES, row_of
from scalecal.io.text import number
from scalecal.report import audit_page, report_facts, write_report
from scalecal.runs.grid import run_grid

pytestmark = pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")

RAW = re.compile(r"\b(nan|None|inf|[a-z]+_[a-z_]+)\b")
SAID = {"p_reader", "p_split"}  # columns that a user can give
QUESTIONS = (
    "Is it calibrated?",
    "Are they calibrated?",
    "Where not?",
    "Everywhere?",
    "What to do?",
)


def study(n, slope=1.0, shift=0.0, seed=0, m=7):
    """Votes of m readers, their majority, and a model's probability of it, calibrated at 1 and 0."""
    rng = np.random.default_rng(seed)
    chance = expit(1.6 * rng.normal(size=n) - 0.3)
    votes = rng.binomial(m, chance)
    p = expit(slope * logit(np.clip(binom.sf(m // 2, m, chance), 1e-9, 1 - 1e-9)) + shift)
    return {"y": (votes > m / 2).astype(int), "probs": p, "votes": votes, "n_raters": m}


def plain(n, slope=1.0, **options):
    """The same without votes."""
    kept = study(n, slope)
    return {"y": kept["y"], "probs": kept["probs"], **options}


def blind(n):
    """Calibrated over all cases, but blind to a difficulty that is known beforehand."""
    rng = np.random.default_rng(3)
    hard = rng.random(n) < 0.5
    mu = np.where(rng.random(n) < 0.5, 1, -1) * np.where(hard, 0.15, 2.2)
    votes = rng.binomial(7, expit(mu))
    said = expit(np.sign(mu) * 1.1)
    split = np.where(hard, 0.6, 0.05)
    more = {"p_reader": said, "p_split": split, "votes": votes, "n_raters": 7}
    return {"y": (votes > 3).astype(int), "probs": expit(np.sign(mu) * 1.8), **more}


def classes(n):
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.ones(4), n)
    votes = np.array([rng.multinomial(5, row) for row in probs])
    return {"y": votes.argmax(axis=1), "probs": probs, "votes": votes}


AUDITS = {
    "calibrated": (study(3000), "good"),
    "over-confident": (study(1000, slope=2.0), "attention"),
    "under-confident": (study(1500, slope=0.5), "attention"),
    "shifted": (study(800, shift=1.5), "attention"),
    "blind to difficulty": (blind(1500), "attention"),
    "right for labels, not for readers": (
        study(2500) | {"p_reader": study(2500)["probs"]},
        "attention",
    ),
    "8 unanimous cases": ({"y": np.ones(8, int), "probs": np.full(8, 0.99)}, "inconclusive"),
    "one class": ({"y": np.ones(100, int), "probs": np.full(100, 0.9)}, "attention"),
    "one class, votes": (
        {"y": np.ones(60, int), "probs": np.full(60, 0.9), "votes": np.full(60, 7), "n_raters": 7},
        "attention",
    ),
    "30 cases": (study(30), "inconclusive"),
    "12 cases": (plain(12), "inconclusive"),
    "1 case": (study(1), "inconclusive"),
    "1 case, no votes": (plain(1), "inconclusive"),
    "no votes": (plain(3000), "good"),
    "no votes, over-confident": (plain(600, 2.5), "attention"),
    "given strata": (plain(600, 2.5, strata=np.arange(600) % 3), "attention"),
    "several classes": (classes(200), None),
    "few groups": (study(300) | {"groups": np.arange(300) % 3}, "inconclusive"),
    "many groups": (study(600, slope=2.0) | {"groups": np.arange(600) // 4}, "attention"),
    "certain": ({"y": np.arange(200) % 2, "probs": np.arange(200) % 2 * 1.0}, None),
}


SLOW = os.environ.get("SCALECAL_SLOW") == "1"
WITH_RUNS = (
    *("over-confident", "calibrated", "one class, votes", "30 cases", "1 case"),
    *("no votes, over-confident", "several classes", "few groups", "certain"),
)
"""Audits of which a run folder and its page are made too; with SCALECAL_SLOW=1 all are."""


def check(verdict, lead):
    """The promises of the first screen."""
    assert verdict["word"] == BADGES[verdict["badge"]]
    texts = [verdict["headline"], *(text for answer in lead for text in answer.values())]
    texts += [text for entry in verdict["numbers"] for text in entry.values()]
    assert len(lead) == 3
    for text in texts:
        assert text.strip(), texts
        assert not set(RAW.findall(text)) - SAID, text
    for sentence in (verdict["headline"], *(answer["text"] for answer in lead)):
        assert sentence.endswith("."), sentence
        assert ".." not in sentence, sentence
        assert len(sentence) < 420, sentence
    assert all(answer["question"] in QUESTIONS for answer in lead)
    calibrated, where, help_ = (answer["heading"] for answer in lead)
    failing = verdict["badge"] == "attention"
    assert (lead[1]["question"] == "Where not?") is failing
    if "tally" in verdict:
        return
    if failing:
        assert calibrated.startswith("No")
        assert not help_.startswith("Nothing")
        assert "find no error" not in verdict["headline"]
    else:
        assert where in ("Unknown", "No subset stands out")
        assert "miscalibrated" not in " ".join(answer["text"] for answer in lead[:2])
    if verdict["badge"] == "good":
        assert calibrated.startswith("Yes, typically within")
        assert help_.startswith("Nothing")
    if verdict["badge"] == "inconclusive":
        assert calibrated in ("Too few cases", "Unclear", "No verdict")


def first_screen(html):
    """The text of the page's first section, and its HTML."""
    part = re.search(r'<section id="answer">.*?</section>', html, re.S)[0]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", part)).split()), part


def check_page(html, verdict, lead):
    text, part = first_screen(html)
    assert f'class="sc-badge sc-{verdict["badge"]}"><svg' in part  # a shape beside the word
    for said in (verdict["word"], verdict["headline"], *(v for a in lead for v in a.values())):
        assert " ".join(said.split()) in text


@pytest.mark.parametrize("name", AUDITS)
def test_three_questions_are_answered_by_every_audit(name, tmp_path):
    given, badge = AUDITS[name]
    made = audit(**given, n_resamples=100)
    verdict = made.verdict
    check(verdict, verdict["answers"])
    assert badge in (None, verdict["badge"]), verdict
    assert verdict["headline"] in str(made)
    check_page(f'<section id="answer">{audit_page(made)}</section>', verdict, verdict["answers"])
    if name not in WITH_RUNS and not SLOW:
        return
    write_run(tmp_path / "run", made, kind="audit")
    facts = report_facts([tmp_path / "run"])
    check(facts["verdict"], facts["lead"])
    assert facts["verdict"]["badge"] == verdict["badge"]
    page = write_report([tmp_path / "run"], tmp_path / "page.html").read_text()
    check_page(page, facts["verdict"], facts["lead"])
    assert ('class="firstplot"' in page) is bool(facts["cells"][0]["reliability"]["model"])


@pytest.mark.parametrize("name", ["calibrated", "over-confident", "no votes", "several classes"])
def test_three_questions_are_answered_by_a_stream(name):
    given, badge = AUDITS[name]
    made = StreamingAudit(n_resamples=100).update(**given).finish()
    check(made.verdict, made.verdict["answers"])
    assert badge in (None, made.verdict["badge"])
    assert made.verdict["headline"] in audit_page(made)


def test_three_questions_are_answered_where_votes_make_the_labels(tmp_path):
    given = study(400, slope=2.0)
    lines = ["id,p,votes,n_raters"]
    lines += [f"c{i},{given['probs'][i]:.6f},{given['votes'][i]},7" for i in range(400)]
    (tmp_path / "p.csv").write_text("\n".join(lines) + "\n")
    result = CliRunner().invoke(
        app, ["audit", str(tmp_path / "p.csv"), "--out", str(tmp_path / "run")]
    )
    assert result.exit_code == 0, result.output
    facts = report_facts([tmp_path / "run"])
    check(facts["verdict"], facts["lead"])
    assert facts["verdict"]["headline"] in " ".join(result.stdout.split())


@pytest.mark.usefixtures("brief_training")
@pytest.mark.parametrize("name", ["simulated", "embedded"])
def test_three_questions_are_answered_by_a_comparison(name, tmp_path):
    data = simulate(300, dim=5, auc=0.9, seed=0) if name == "simulated" else load_lidc()
    methods = ["none", "temperature", "panel-votes"]
    grid = run_grid(data, methods=methods, seeds=2, dataset=name, preset="default")
    made = evaluate(grid.cell, n_resamples=100)
    check(made.facts["verdict"], made.facts["lead"])
    about = {"options": {"n_resamples": 100}, "notes": [], "fingerprint": "0" * 64}
    write_run(tmp_path / "run", made, kind="compare", command=["scalecal"], **about)
    page = write_report([tmp_path / "run"], tmp_path / "page.html").read_text()
    check_page(page, made.facts["verdict"], made.facts["lead"])
    for said in (made.facts["verdict"]["headline"], *(a["text"] for a in made.facts["lead"])):
        assert said in " ".join(made.sentences)


def test_three_questions_are_answered_by_several_runs(runs, pages):
    facts = report_facts([runs["compare"], runs["other"]])
    check(facts["verdict"], facts["lead"])
    assert sum(facts["verdict"]["tally"].values()) == 2
    for cell in facts["cells"]:
        check(cell["verdict"], cell["lead"])
    html = pages["both"].read_text()
    check_page(html, facts["verdict"], facts["lead"])
    rows = re.search(r'<section id="models">.*?</section>', html, re.S)[0]
    assert [rows.count(f"sc-{badge}") for badge in BADGES] == list(
        facts["verdict"]["tally"].values()
    )
    # One of the runs has two seeds: sentence and table state the same means.
    assert {cell["n_seeds"] for cell in facts["cells"]} == {1, 2}
    shown = [row_of(cell, cell["baseline"]) for cell in facts["cells"]]
    for key in ("ece", "floor"):
        ends = [number(end(row[key] for row in shown)) for end in (min, max)]
        assert all(f'<td class="n">{value}</td>' in rows for value in ends)
        assert " to ".join(dict.fromkeys(ends)) in facts["lead"][0]["text"]


@pytest.mark.parametrize("name", ["compare", "audit", "both", "voted"])
def test_the_first_screen_fits_without_scrolling_and_comes_first_on_a_phone(open_page, pages, name):
    page = open_page(pages[name], viewport={"width": 1280, "height": 800})
    for part in (".sc-verdict", ".sc-answers", ".firstplot .panel, .firstplot svg", ".confident"):
        box = page.locator(f".first {part}").first.bounding_box()
        assert box["y"] + box["height"] <= 800, (part, box)
    assert 4 <= page.locator(".confident li").count() <= 6
    page.set_viewport_size({"width": 390, "height": 844})
    order = [
        page.locator(f".first {part}").first.bounding_box()["y"]
        for part in (".sc-verdict", ".sc-answers", ".firstplot", ".confident")
    ]
    assert order == sorted(order)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_audit_in_a_file_of_its_own_is_accessible_and_small(open_page, tmp_path, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    path = audit(**AUDITS["over-confident"][0], n_resamples=50).to_html(tmp_path / "audit.html")
    assert path.stat().st_size < 100_000
    page = open_page(path, color_scheme=scheme, viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    found = axe.Axe().run(page).response["violations"]
    assert not found, [(v["id"], [n["html"][:160] for n in v["nodes"]][:3]) for v in found]
    page.set_viewport_size({"width": 1280, "height": 800})
    tops = page.locator(".sc-panels svg").evaluate_all(
        "all => all.map(e => Math.round(e.getBoundingClientRect().top))"
    )
    assert len(set(tops)) == 1  # diagrams stand on one line
