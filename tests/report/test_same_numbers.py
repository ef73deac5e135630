"""Terminal, page and files of one run show the same numbers, since all of them render its facts."""

from __future__ import annotations

import ast
import json
import os
import re
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import scalecal.report
from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.datasets import simulate
from scalecal.evaluation.folder import read_runs, store_facts
from scalecal.evaluation.texts import shown_table
from scalecal.io.store import write_file
from scalecal.io.text import change_text, points
from scalecal.report import report_facts, write_report

# Tiny data under the paper's preset give rise to warnings that are right and expected.
pytestmark = [
    pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning"),
    pytest.mark.usefixtures("brief_training"),
]

METHODS = "none,temperature,vanilla-ls,scale,scale-shuffled,scale-default,panel-votes,vote-fraction"
SLOW = os.environ.get("SCALECAL_SLOW") == "1"
SHAPES = [(True, True), (False, False), *([(True, False), (False, True)] if SLOW else [])]
"""Data with or without votes and groups."""
NUMBER = re.compile(r"[+-]?\d+\.\d+")


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def plain_text(html: str) -> str:
    """Text of a piece of HTML, tips included."""
    return unescape(re.sub(r"<[^>]+>", " ", html))


def numbers(text: str) -> list[float]:
    return [float(value) for value in NUMBER.findall(text)]


def tables_of(output: str) -> list[dict[str, dict[str, str]]]:
    """Tables of the terminal: name -> title -> text. Columns stand two or more spaces apart."""
    found = []
    for block in re.split(r"\n\s*\n", output):
        lines = block.splitlines()
        rules = [i for i, line in enumerate(lines) if set(line) == {"-"}]
        if not rules:
            continue
        heads, body = lines[: rules[0]], [x for x in lines[rules[0] + 1 :] if set(x) != {"-"}]
        # Titles and cells end where those of the first row do; a title may take several lines.
        ends = [m.end() for m in re.finditer(r"\S+(?: \S+)*", body[0])][1:]
        first = max(len(re.split(r"\s{2,}", line)[0]) for line in body)
        starts = [first, *ends[:-1]]
        titles = [
            " ".join(" ".join(h[a:b].split()) for h in heads).strip()
            for a, b in zip(starts, ends, strict=True)
        ]
        found.append(
            {
                line[:first].strip(): {
                    title: line[a:b].strip()
                    for title, a, b in zip(titles, starts, ends, strict=True)
                }
                for line in body
            }
        )
    return found


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, bool], Path]:
    """Files of embeddings, with and without votes and groups."""
    root, out = tmp_path_factory.mktemp("features"), {}
    data = simulate(300, dim=5, auc=0.9, n_groups=100, seed=0)
    for votes in (True, False):
        for groups in (True, False):
            arrays = {"X": data.X.astype(np.float32), "y": data.y}
            arrays |= {"votes": data.votes, "n_raters": data.n_raters} if votes else {}
            arrays |= {"group": data.groups} if groups else {}
            out[votes, groups] = root / f"{votes}-{groups}.npz"
            np.savez(out[votes, groups], **arrays)
    return out


@pytest.mark.parametrize(("votes", "groups"), SHAPES)
def test_compare(features, tmp_path, votes, groups):
    options = ("--methods", METHODS, "--seeds", 2, "--out", tmp_path / "run")
    output = invoke("compare", features[votes, groups], *options)
    facts = json.loads((tmp_path / "run" / "facts.json").read_text())
    html = (tmp_path / "run" / "report.html").read_text()
    page, flat = plain_text(html), " ".join(output.split())
    assert facts["resampled"] == ("groups" if groups else "cases")
    texts = [facts["verdict"]["headline"], *(item["text"] for item in facts["lead"])]
    for sentence in (*texts, *facts["paragraphs"].values()):
        assert sentence in flat
        assert sentence in " ".join(page.split())
    full = pd.DataFrame(shown_table(facts)).set_index("method")
    shown = {name.partition(" (")[0]: (name, line) for name, line in full.to_dict("index").items()}
    assert list(shown) == facts["methods"]
    brief, *_ = tables_of(output)
    assert [name.removesuffix(" *") for name in brief] == facts["methods"]
    for name, texts in brief.items():
        own = shown[name.removesuffix(" *")]
        assert ("(no clear gain over one temperature)" in own[0]) == name.endswith(" *")
        assert texts.items() <= own[1].items()
    table = re.search(r'<table class="plain sortable methods">.*?</table>', html, re.S)[0]
    lines = [
        [" ".join(plain_text(part).split()) for part in re.findall(r"<t[hd][ >].*?</t[hd]>", line)]
        for line in re.findall(r"<tr>.*?</tr>", table)
    ]
    assert lines == [[*full.reset_index().columns], *full.reset_index().to_numpy().tolist()]
    for row in facts["rows"]:
        tip = f"{row['method']}, {row['stratum']}: ECE {row['ece']:.3f}"
        assert tip in page
    for name, line in shown.values():
        method = name.partition(" (")[0]
        beyond = facts["softening"][method]
        title = f"{'vote' if votes else 'label'} NLL less softening's [95 %]"
        assert line[title] == change_text(beyond)
        assert "(no clear gain over one temperature)" not in name or beyond["high"] >= 0
    assert ("vote NLL" in shown["none"][1]) == votes


@pytest.mark.parametrize(("votes", "groups"), SHAPES)
def test_audit(tmp_path, votes, groups):
    rng = np.random.default_rng(0)
    x = 2 * rng.normal(size=240)
    count = rng.binomial(7, 1 / (1 + np.exp(-x)))
    frame = pd.DataFrame({"id": np.arange(240), "p": 1 / (1 + np.exp(-2.5 * x))})
    frame["label"] = (count >= 4).astype(int)
    if votes:
        frame["votes"], frame["n_raters"] = count, 7
    if groups:
        frame["group"] = np.arange(240) // 3
    frame.to_csv(tmp_path / "p.csv", index=False)
    options = ("--bins", 10, "--out", tmp_path / "run")
    output = invoke("audit", tmp_path / "p.csv", *options)
    facts = json.loads((tmp_path / "run" / "facts.json").read_text())
    html = (tmp_path / "run" / "report.html").read_text()
    page, flat = " ".join(plain_text(html).split()), " ".join(output.split())
    for answer in (*facts["lead"], *({"text": text} for text in facts["paragraphs"].values())):
        sentence = answer["text"]
        assert sentence in flat
        assert sentence in page
    part = re.search(r'aria-label="Audit of .*?</table>', html, re.S)[0]
    heads = [plain_text(h).strip() for h in re.findall(r"<th scope=\"col\".*?</th>", part)]
    rows = [
        [plain_text(c).strip() for c in re.findall(r"<t[hd][ >].*?</t[hd]>", line)]
        for line in re.findall(r"<tr><th scope=\"row\">.*?</tr>", part)
    ]
    on_page = {
        ("overall" if row[0] == "all cases" else row[0].removesuffix(" agreement")): dict(
            zip(heads, row, strict=True)
        )
        for row in rows
    }
    compared = 0
    for table in tables_of(output)[:2]:
        for name, texts in table.items():
            here = on_page.get(name, {})
            for title, text in texts.items():
                if here and (title in here or text != "-"):
                    assert here[title] == text, (name, title)
                    compared += 1
    assert compared >= 12 * (4 if votes else 1)
    # The first row of the methods' table is the model itself, by the same bins.
    overall = facts["audits"]["model"]["rows"][0]
    row = facts["rows"][0]
    assert (row["ece"], row["floor"]) == pytest.approx(
        (overall["ece"], overall["floor"]), abs=1e-12
    )


def test_the_error_is_the_mean_of_seeds_and_diagrams_are_of_one(features, tmp_path):
    options = ("--methods", "none,scale-default", "--seeds", 3, "--out", tmp_path / "run")
    printed = invoke("compare", features[True, True], *options)
    facts = json.loads((tmp_path / "run" / "facts.json").read_text())
    html = (tmp_path / "run" / "report.html").read_text()
    audited = {r["name"]: r for r in facts["audits"]["none"]["rows"]}
    whole = audited["overall"]
    # Text and table: one number, the mean over seeds.
    results = pd.read_csv(tmp_path / "run" / "results.csv")
    rows = results[(results["method"] == "none") & (results["stratum"] == "overall")]
    rows = rows[rows["metric"] == "ece"]
    assert rows["seed"].tolist() == [0, 1, 2]
    ece, floor = rows["value"].mean(), rows["floor"].mean()
    said = facts["lead"][0]["text"]
    assert said.startswith(f"Its calibration error (ECE) is {points(ece)}, the mean of 3 seeds,")
    assert f"on {whole['n']} cases" in said
    assert f"a calibrated model would show {points(floor)} by chance" in said
    (line,) = re.findall(r"^none .*", printed, re.MULTILINE)
    assert line.split()[1:3] == [f"{ece:.3f}", f"({floor:.3f})"]
    assert "Tests and diagrams are of seed 0." in said
    # Plot: one seed, one set of cases.
    first = plain_text(re.search(r'<figure class="firstplot">.*?</figure>', html, re.S)[0])
    assert f"error {points(whole['ece'])}; calibrated: {100 * whole['floor']:.0f} (" in first
    assert said in html
    for panel in facts["reliability"]["none"]:
        assert panel["ece"] == audited[panel["stratum"]]["ece"]
    predicted = pd.read_parquet(tmp_path / "run" / "predictions.parquet")
    seed = predicted[(predicted["method"] == "none") & (predicted["seed"] == 0)].set_index("id")[
        "p"
    ]
    assert len(facts["confident_errors"]) == 6
    for case in facts["confident_errors"]:
        p = seed[case["id"]]
        assert case["p"] == pytest.approx(p if case["shown_class"] else 1 - p)
        assert case["id"] in html


def test_stored_facts_are_read_and_those_of_other_files_are_refused(features, tmp_path):
    out = tmp_path / "run"
    invoke("compare", features[True, True], "--methods", "none,platt", "--seeds", 1, "--out", out)
    written = (out / "facts.json").read_text()
    stored = json.loads(written)
    assert read_runs([out])[0].facts[0] == stored
    answer = {"question": "q", "heading": "h", "text": "as stored"}
    marked = {**stored, "lead": [answer] * 3}
    write_file(out / "facts.json", json.dumps(marked), kind="compare")
    assert "as stored" in write_report([out], tmp_path / "page.html").read_text()
    (out / "facts.json").write_text(json.dumps({**marked, "edited": True}))
    with pytest.raises(InputError, match="were changed since scalecal wrote them"):
        write_report([out], tmp_path / "page.html")
    (out / "facts.json").unlink()
    write_file(out / "facts.json", written, kind="compare")
    predictions = pd.read_parquet(out / "predictions.parquet")
    predictions["p"] = 1 - predictions["p"]
    predictions.to_parquet(out / "predictions.parquet")
    with pytest.raises(InputError, match="or the cases beside it"):
        report_facts([out])
    store_facts(out)
    assert report_facts([out])["cells"][0]["rows"] != stored["rows"]


def test_the_report_computes_nothing():
    computing = [
        f"scalecal.evaluation.{name}" for name in ("audits", "rows", "exhibits", "changes")
    ]
    computing = ("scalecal.inference", *computing)
    for file in Path(scalecal.report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {alias.name for alias in node.names}
                if node.module.startswith("scalecal.metrics"):
                    assert names <= {"COLUMNS", "chosen"}, file.name
                if node.module == "scalecal.evaluation.cells":
                    assert names <= {"PUBLISHED", "READS", "VOTED"}, file.name
                assert not node.module.startswith(computing), file.name
            elif isinstance(node, ast.Import):
                assert not any(a.name.startswith("scalecal.metrics") for a in node.names), file.name


def test_the_core_does_not_know_the_paper():
    root = Path(scalecal.report.__file__).parents[1]
    files = [p for name in ("runs", "report") for p in (root / name).glob("*.py")]
    files += [root / "cli" / name for name in ("audit.py", "probes.py")]
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "scalecal.paper" not in text, file.name
        assert not re.search(r"""["'](mhist|resnet-)""", text), file.name
