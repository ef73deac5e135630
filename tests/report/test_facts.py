"""Facts equal the files they come from, and the page equals the facts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from scalecal import audit, metrics
from scalecal.checks import InputError
from scalecal.evaluation.cells import read_cell, write_cell
from scalecal.evaluation.evaluations import evaluate
from scalecal.evaluation.folder import read_facts, store_facts
from scalecal.evaluation.scores import draw_nulls
from scalecal.evaluation.words import sentences
from scalecal.io.store import write_file
from scalecal.io.text import number
from scalecal.report import (
    audit_html,
    audit_page,
    export,
    newest_report,
    report_facts,
    write_report,
)
from scalecal.report.figures import Figure
from scalecal.report.page import MAX_BYTES, PANELS, Panel, add_images, table
from scalecal.report.svg import Drawing
from tests.evaluation.made import cell, sharp
from tests.report.make_runs import make_run

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Outline(HTMLParser):
    """Checks that tags nest and ids are distinct, and keeps the text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, attrs)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.text.append(data)


def read_page(path: Path) -> Outline:
    outline = Outline()
    outline.feed(path.read_text(encoding="utf-8"))
    outline.close()
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    return outline


def test_rows_are_means_of_the_results(runs):
    facts = report_facts([runs["compare"]])
    table = pd.read_csv(runs["compare"] / "results.csv", keep_default_na=False, na_values=[""])
    mean = table.groupby(["method", "stratum", "metric"])[["value", "floor"]].mean()
    rows = facts["cells"][0]["rows"]
    assert len(rows) == 6 * 4
    for row in rows:
        for metric in ("ece", "nll", "vote_nll", "accuracy"):
            expected = mean.loc[(row["method"], row["stratum"], metric), "value"]
            assert row[metric] == pytest.approx(expected)
        assert row["floor"] == pytest.approx(
            mean.loc[(row["method"], row["stratum"], "ece"), "floor"]
        )
        assert row["null_low"] <= row["null"] <= row["null_high"]


def test_nulls_beside_means_over_seeds_are_means_over_seeds(tmp_path):
    run = make_run(tmp_path / "run", n=400, seeds=3)
    cell = read_cell(run)
    by_seed = []
    for seed in cell.seeds("none"):
        alone = replace(cell, answers={("none", seed): cell.answers["none", seed]})
        by_seed.append(draw_nulls(alone, "none", n_resamples=334)[seed])  # 1,000 shared by three
    rows = report_facts([run])["cells"][0]["rows"]
    for row in (r for r in rows if r["method"] == "none"):
        drawn = [one[row["stratum"]] for one in by_seed]
        ends = np.mean([np.quantile(one, [0.05, 0.95]) for one in drawn], axis=0)
        assert (row["null_low"], row["null_high"]) == pytest.approx(tuple(ends))
        mean = np.mean([one.mean() for one in drawn])
        assert row["null"] == pytest.approx(
            mean, abs=0.003 if row["stratum"] == "overall" else 1e-9
        )


def test_changes_are_those_of_the_comparison(runs):
    cell = report_facts([runs["compare"]])["cells"][0]
    table = evaluate(read_cell(runs["compare"])).table.set_index("method")
    for row in cell["rows"]:
        suffix = "" if row["stratum"] == "overall" else f"_{row['stratum']}"
        for metric in ("ece",) if suffix else ("ece", "nll", "vote_nll", "auc", "accuracy"):
            key, change = f"{metric}{suffix}_change", row["changes"][metric]
            for end, name in (("", "difference"), ("_low", "low"), ("_high", "high"), ("_p", "p")):
                assert change[name] == table.loc[row["method"], key + end]


def test_an_audit_is_told_as_its_file_tells_it(runs):
    facts = report_facts([runs["audit"]])
    told = json.loads((runs["audit"] / "audit.json").read_text())
    cell = facts["cells"][0]
    assert sentences(cell)[0] == told["sentences"][0]
    assert facts["verdict"] | {"answers": told["verdict"]["answers"]} == told["verdict"]
    assert facts["lead"][:2] == told["verdict"]["answers"][:2]
    assert cell["audits"]["model"]["rows"] == told["strata"]
    panels = {p["stratum"]: p for p in cell["reliability"]["model"]}
    for row in told["strata"]:
        assert panels[row["name"]]["ece"] == pytest.approx(row["ece"])
        assert sum(b["n"] for b in panels[row["name"]]["bins"]) == row["n"]


def test_facts_are_json_and_repeat(runs):
    once, twice = (report_facts([runs["compare"]]) for _ in range(2))
    assert json.dumps(once, allow_nan=False) == json.dumps(twice, allow_nan=False)


def test_page_says_the_numbers_of_the_facts(runs, pages):
    outline = read_page(pages["compare"])
    text = " ".join(outline.text)
    facts = report_facts([runs["compare"]])
    cell = facts["cells"][0]
    for item in facts["lead"]:
        assert item["text"] in text
    for row in cell["rows"]:
        assert number(row["ece"]) in text
    for panels in cell["reliability"].values():
        for panel in panels:
            assert number(panel["ece"]) in text
    for case in cell["cases"]:
        assert case["id"] in text
        assert number(case["before"]) in text
    for claim in facts["claims"]:
        assert claim["claim"] in text
        assert claim["verdict"] in text
    assert "0123456789abcdef" * 4 in text
    assert "scalecal compare simulated.parquet --out runs/compare" in text


def test_a_reproduction_opens_with_the_tally_of_its_claims(pages):
    for name, first in (("reproduce", True), ("compare", False)):
        raw = pages[name].read_text(encoding="utf-8")
        assert (raw.index('id="tally"') < raw.index('id="answer"')) == first
        part = raw[raw.index('id="tally"') :]
        part = " ".join(unescape(re.sub(r"<[^>]+>", " ", part[: part.index("</section>")])).split())
        assert "Claims: 1 hold, 1 do not hold, 1 are inconclusive Of 3 claims" in part
        assert "Probes are over-confident where readers disagree." in part
        assert "Accuracy is unchanged." not in part  # not a main one
        assert "free to share" not in part  # a statement of fact, which is not counted
        assert raw.count("free to share") == 1
    assert 'id="tally"' not in pages["audit"].read_text(encoding="utf-8")


def test_page_says_what_it_is_to_those_who_link_to_it(runs, pages):
    raw = pages["compare"].read_text(encoding="utf-8")
    tags = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)">', raw))
    facts = report_facts([runs["compare"]])
    assert unescape(tags["title"]) == facts["title"]
    assert unescape(tags["description"]) == facts["verdict"]["headline"]
    assert tags["type"] == "website"
    assert "image" not in tags  # a page without a host has no address for one


@pytest.mark.parametrize("name", ["compare", "audit", "both"])
def test_page_is_one_small_valid_file(pages, name):
    read_page(pages[name])
    raw = pages[name].read_text(encoding="utf-8")
    assert len(raw.encode()) < MAX_BYTES
    assert "http" not in re.sub(r"http-equiv|http://www.w3.org/2000/svg", "", raw)
    assert 'src="' not in raw


def test_results_inside_the_page_are_the_results(runs, pages):
    import base64
    import io

    raw = pages["compare"].read_text(encoding="utf-8")
    found = re.search(r'download="results.csv" href="data:text/csv;base64,([^"]+)"', raw)
    text = base64.b64decode(unescape(found[1])).decode()
    inside = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""])
    cell = report_facts([runs["compare"]])["cells"][0]
    for row in cell["rows"]:
        own = inside[(inside["method"] == row["method"]) & (inside["stratum"] == row["stratum"])]
        values = own.set_index("metric")["value"]
        assert values.to_dict() == pytest.approx({m: row[m] for m in values.index})
        assert own.set_index("metric").loc["ece", "floor"] == pytest.approx(row["floor"])


def test_a_page_is_made_of_the_facts_alone(runs, pages, tmp_path, monkeypatch):
    """No case is read and nothing is computed: the facts that the run wrote hold every number."""

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a page was computed")

    for name in ("read_cell", "evaluate"):
        monkeypatch.setattr(f"scalecal.evaluation.folder.{name}", forbidden)
    for name in ("compare", "audit", "voted"):
        again = write_report([runs[name]], tmp_path / f"{name}.html")
        assert again.read_bytes() == pages[name].read_bytes()


def test_a_panel_from_outside_is_on_the_page(runs, tmp_path, monkeypatch):
    """A record with a view is enough: navigation, heading, figure and table follow from it."""
    sheet = Drawing(50, 40, "a dummy")
    sheet.circle(5, 5, 2, fill="accent", tip="a dot")

    def view(cell):
        rows = [[r["method"], f"{r['n']}"] for r in cell["rows"][:1]]
        shown = [Figure(("dummy",), "In all", sheet, {})]
        return {
            "text": ["A dummy <b>."],
            "figures": shown,
            "tables": [table("T", ["a", "b"], rows)],
        }

    panel = Panel("dummy", "Dummy & more", view)
    monkeypatch.setattr("scalecal.report.page.PANELS", [*PANELS, panel])
    raw = write_report([runs["compare"]], tmp_path / "page.html").read_text()
    assert '<a href="#dummy">Dummy &amp; more</a>' in raw
    part = raw[raw.index('<section id="dummy">') :]
    part = part[: part.index("</section>")]
    for text in ("A dummy &lt;b&gt;.", "a dot", "In all", '<td class="n">400</td>'):
        assert text in part
    assert {"dummy.svg", "dummy.png"} < {
        file.name for file in export([runs["compare"]], tmp_path / "exported")
    }


def test_referral_counts_by_hand(tmp_path):
    run = make_run(tmp_path / "run", n=150, kind="audit")
    cell = report_facts([run])["cells"][0]
    data = read_cell(run)
    p = data.answers["model", 0].p
    wrong = (p >= 0.5) != (data.y == 1)
    panel = next(q for q in cell["referral"] if q["stratum"] == "overall")
    method = panel["methods"][0]
    assert method["errors"] == wrong.sum()
    assert method["yield"][-1] == pytest.approx(wrong.mean())
    for told in method["thresholds"]:
        sent = np.maximum(p, 1 - p) < told["threshold"]
        assert (told["sent"], told["avoided"]) == (sent.sum(), (sent & wrong).sum())


def test_most_overconfident_cases_by_hand(tmp_path):
    run = make_run(tmp_path / "run", n=150, kind="audit")
    listed = report_facts([run])["cells"][0]["cases"]
    data = read_cell(run)
    p = data.answers["model", 0].p
    votes = data.cases.votes
    share = votes[:, 1] / votes.sum(axis=1)
    excess = np.where(p >= 0.5, p - share, share - p)
    for stratum in ("high", "medium", "low"):
        inside = data.inside(np.arange(data.cases.n), stratum)
        best = inside[np.argsort(-excess[inside], kind="stable")][:8]
        assert [c["id"] for c in listed if c["stratum"] == stratum] == data.cases.names[
            best
        ].tolist()


def test_more_than_two_classes(tmp_path):
    rng = np.random.default_rng(0)
    n = 200
    p = rng.dirichlet([1, 1, 1], n)
    y = np.array([rng.choice(3, p=row) for row in p])
    cases = pd.DataFrame({"id": [str(i) for i in range(n)], "label": y})
    votes = np.array([rng.multinomial(5, row) for row in p])
    for c in range(3):
        cases[f"votes_{c}"] = votes[:, c]
    cases["stratum"] = np.where(votes.max(axis=1) > 3, "high", "low")
    cases.to_parquet(tmp_path / "cases.parquet")
    predicted = pd.DataFrame({"method": "none", "seed": 0, "id": cases["id"]})
    sharp = pd.DataFrame({"method": "sharp", "seed": 0, "id": cases["id"]})
    for c in range(3):
        predicted[f"p_{c}"] = p[:, c]
        sharp[f"p_{c}"] = (p**2 / (p**2).sum(axis=1, keepdims=True))[:, c]
    pd.concat([predicted, sharp]).to_parquet(tmp_path / "predictions.parquet")
    info = {"kind": "compare", "dataset": {"name": "three", "classes": ["a", "b", "c"]}}
    write_file(tmp_path / "run.json", json.dumps(info), kind="compare")
    store_facts(tmp_path)
    cell = report_facts([tmp_path])["cells"][0]
    assert cell["event"] == "top class is right"
    row = next(r for r in cell["rows"] if r["method"] == "none" and r["stratum"] == "overall")
    assert row["ece"] == pytest.approx(metrics.ece(y, p))
    read_page(write_report([tmp_path], tmp_path / "report.html"))


def test_stored_facts_of_wrong_types_are_refused(tmp_path):
    write_cell(tmp_path, cell({"none": sharp(2.0)}, 40, n_seeds=1), kind="audit")
    store_facts(tmp_path)
    facts = read_facts(tmp_path)
    for change in ({"name": None}, {"strata": [[1]]}, {"methods": 3}):
        write_file(tmp_path / "facts.json", json.dumps({**facts, **change}), kind="audit")
        with pytest.raises(InputError):
            read_facts(tmp_path)


def test_facts_of_a_newer_scalecal_are_not_replaced(tmp_path):
    write_cell(tmp_path, cell({"none": sharp(2.0)}, 40, n_seeds=1), kind="reproduce")
    store_facts(tmp_path)
    facts = read_facts(tmp_path)
    newer = json.dumps({**facts, "schema": facts["schema"] + 1})
    write_file(tmp_path / "facts.json", newer, kind="reproduce")
    with pytest.raises(InputError, match="newer scalecal"):
        store_facts(tmp_path)
    assert (tmp_path / "facts.json").read_text() == newer
    for older in ({**facts, "schema": facts["schema"] - 1}, {**facts, "made_from": {}}):
        write_file(tmp_path / "facts.json", json.dumps(older), kind="reproduce")
        store_facts(tmp_path)
        assert read_facts(tmp_path) == facts


def test_no_runs_and_wrong_folders_are_told(tmp_path):
    with pytest.raises(InputError, match="no run given"):
        report_facts([])
    with pytest.raises(InputError, match="expected cases"):
        report_facts([tmp_path])
    with pytest.raises(InputError, match="no report below"):
        newest_report(tmp_path)


def test_data_with_strata_lead(tmp_path):
    recipes = {"none": sharp(3)}
    made = {
        "cells/a/uni": cell(recipes, 60, dataset="a", panel=False, n_seeds=1),
        "cells/b/uni": cell(recipes, 90, dataset="b", n_seeds=1),
    }
    for name, data in made.items():
        write_cell(tmp_path / name, data)
    store_facts(tmp_path)
    facts = report_facts([tmp_path])
    assert [c["name"] for c in facts["cells"]] == ["b, uni", "a, uni"]
    assert "ECE is " in facts["lead"][0]["text"]  # one model has strata: no "from x to x"


def test_newest_report(tmp_path):
    import os

    for i, name in enumerate(("b.html", "a.html")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (i, i))
    assert newest_report(tmp_path).name == "a.html"


def test_audit_fragment_escapes_and_holds_its_numbers():
    rng = np.random.default_rng(0)
    z = rng.normal(size=300)
    y = (rng.random(300) < expit(z)).astype(int)
    names = np.where(z > 0, "<script>alert(1)</script>", "b")
    found = audit(y, expit(2 * z), strata=names, n_resamples=50)
    text = audit_html(found)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert number(found["overall"]["ece"]) in text
    outline = Outline()
    outline.feed(audit_page(found))
    assert outline.open == []


def test_a_folder_of_images_that_is_not_there_is_told(runs, tmp_path):
    with pytest.raises(InputError, match=r"no folder at .*nodir"):
        write_report([runs["compare"]], tmp_path / "page.html", images=tmp_path / "nodir")
    assert not (tmp_path / "page.html").exists()


def test_links_inside_the_folder_of_images_are_followed_and_paths_out_of_it_are_not(tmp_path):
    image = pytest.importorskip("PIL.Image")
    store, folder = tmp_path / "store", tmp_path / "images"
    store.mkdir()
    (folder / "sub").mkdir(parents=True)
    image.new("RGB", (8, 8)).save(store / "a.png")
    image.new("RGB", (8, 8)).save(folder / "b.png")
    (folder / "link.png").symlink_to(store / "a.png")
    (folder / "away").symlink_to(store)
    inside = ["link.png", "away/a.png", "b.png", "sub/../b.png", str(folder / "b.png")]
    outside = [
        "../store/a.png",
        "sub/../../store/a.png",
        str(store / "a.png"),
        "away/../../store/a.png",
    ]
    cases = [{"path": path} for path in (*inside, *outside)]
    _, note = add_images(cases, folder, tmp_path / "page.html", max_bytes=100_000)
    assert [case["thumbnail"] is not None for case in cases] == [True] * len(inside) + [
        False
    ] * len(outside)
    assert cases[0]["href"] == "images/link.png"
    assert note.startswith(f"{len(outside)} image files were not found")


def test_a_case_without_votes_has_the_usual_panel_and_an_untested_one_is_not_listed():
    few = 9
    made = cell({"none": sharp(2), "panel-votes": sharp(1)}, n=400, n_seeds=1)
    votes = np.where(np.arange(400)[:, None] < 100, made.cases.votes, 0)  # most have none
    none, own = (made.answers[name, 0] for name in ("none", "panel-votes"))
    own = replace(own, p_reader=0.3 + 0.4 * own.p, rho=0.1).take(np.arange(200, 200 + few))
    some = replace(
        made,
        cases=replace(made.cases, votes=votes),
        answers={("none", 0): none, ("panel-votes", 0): own},
    )
    listed = evaluate(some, n_resamples=50).facts["splits"]
    assert [case["id"] for case in listed] == [
        f"c{200 + i:05d}" for i in np.argsort(np.abs(own.p_reader - 0.5), kind="stable")
    ]
    assert {case["two"]["n_raters"] for case in listed} == {7}
    assert all(case["two"]["votes"] is None for case in listed)
