"""Figures and tables as files: complete, readable by others, safe."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from scalecal import audit, compare_audits
from scalecal.evaluation.audits import audit_predictions
from scalecal.evaluation.cells import read_cell
from scalecal.evaluation.evaluations import evaluation_of
from scalecal.evaluation.words import softening_remark
from scalecal.io.text import change_text, latex_text, markdown_text
from scalecal.report import audit_drawing, audit_page, export, report_facts
from scalecal.report.figures import (
    ece_strips,
    forests,
    reliability_panel,
    reliability_rows,
    strip_tip,
)
from scalecal.report.svg import Drawing, text_width
from tests.report.conftest import many_methods
from tests.report.make_runs import make_run

pytestmark = pytest.mark.usefixtures("drawn_figures")


def test_every_figure_as_svg_and_png(runs, tmp_path):
    written = export(runs["compare"], tmp_path / "figures")
    names = {path.stem for path in written}
    assert {"reliability_none", "forest_nll", "forest_vote_nll", "ece_against_floor"} <= names
    assert {"referral_overall", "referral_low"} <= names
    for path in written:
        if path.suffix == ".svg":
            root = ET.parse(path).getroot()
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert root.find("{http://www.w3.org/2000/svg}title").text
        elif path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")


def test_page_files_and_plots_have_one_drawer(runs):
    """The diagram of a stratum has the same marks on the page, in a file and in `Evaluation.plot`."""
    cell = report_facts([runs["compare"]])["cells"][0]
    (row,) = (f.drawing for f in reliability_rows(cell) if f.name == ("reliability", "none"))
    panels = cell["reliability"]["none"]
    own = [reliability_panel(p, title="", event=cell["event"], role="before") for p in panels]
    tips = [mark.tip for sheet in own for mark in sheet.marks if mark.tip]
    assert tips == [mark.tip for mark in row.marks if mark.tip]
    assert len(tips) == sum(len(panel["bins"]) for panel in panels)
    made = evaluation_of(audit_predictions(read_cell(runs["compare"]).of("none")))
    drawn = audit_drawing(made)
    assert [mark.tip for mark in drawn.marks if mark.tip][: len(tips)] == tips
    texts = {text.get_text() for text in made.plot().axes[0].texts}
    assert {mark.text for mark in drawn.marks if mark.text} == texts


def test_a_notebook_resamples_diagrams_once(runs, monkeypatch):
    made = evaluation_of(audit_predictions(read_cell(runs["audit"]).of("model")))
    page = audit_page(made)
    (model,) = made.audits
    monkeypatch.delattr("scalecal.evaluation.evaluations._diagrams")
    assert audit_page(made) == page
    assert made.plot().axes
    monkeypatch.undo()
    for kind in ("reliability", "vote_reliability"):
        assert made.diagrams[kind][model] == made.facts[kind][model]


def test_figures_repeat_byte_for_byte(tmp_path):
    sheet = Drawing(40, 30, "a line and a word")
    sheet.line((1, 1), (39, 29), stroke="accent", dash="2 3")
    sheet.text(3, 20, "$x_1$ & <b>", turned=True)
    for name in ("a.png", "b.png"):
        sheet.save_png(tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert "&lt;b&gt;" in sheet.file_svg()


def test_names_that_fonts_and_xml_lack(tmp_path):
    sheet = Drawing(60, 30, "bell \x07")
    sheet.text(3, 20, "病理 $x \x00", fill="ink")
    sheet.save_png(tmp_path / "a.png")
    root = ET.fromstring(sheet.file_svg())
    assert "病理 $x \ufffd" in "".join(root.itertext())


def test_every_table_in_three_forms(runs, tmp_path):
    written = export([runs["compare"], runs["other"]], tmp_path / "tables")
    assert {path.suffix for path in written} >= {".csv", ".md", ".tex"}
    stems = {path.stem for path in written}
    assert {"results", "methods", "changes", "audit", "softening", "referral", "cases"} <= stems
    facts = report_facts([runs["compare"], runs["other"]])
    table = pd.read_csv(tmp_path / "tables" / "methods.csv", keep_default_na=False)
    assert len(table) == sum(len(c["rows"]) for c in facts["cells"])
    assert float(table["ece"][0]) == facts["cells"][0]["rows"][0]["ece"]


def test_names_cannot_break_markdown_or_latex():
    table = pd.DataFrame({"na_me": ["a|b\nc", r"50 % & \input{x}"], "value": [0.1234, None]})
    lines = markdown_text(table).splitlines()
    assert lines[2] == r"| a\|b c | 0.123 |"
    tex = latex_text(table)
    assert r"50 \% \& \textbackslash{}input\{x\}" in tex
    assert r"na\_me" in tex
    assert "tabular}{lr}" in tex


def test_forest_plots_are_sorted_and_mark_what_softening_would_give(runs):
    cell = report_facts([runs["compare"]])["cells"][0]
    rows = {r["method"]: r for r in cell["rows"] if r["stratum"] == "overall"}
    order = sorted(set(rows) - {"none"}, key=lambda m: rows[m]["vote_nll"])
    for figure in forests(cell):
        metric, sheet = figure.name[0].removeprefix("forest_"), figure.drawing
        names = [m.text for m in sheet.marks if m.kind == "text" and m.text in rows]
        assert names == order
        marks = {m.tip.partition(":")[0]: m for m in sheet.marks if m.tip}
        assert set(marks) == set(order)
        for method, mark in marks.items():
            assert change_text(rows[method]["changes"][metric]) in mark.tip
            assert (mark.fill == "paper") == bool(softening_remark(cell, method))
            zero = next(m for m in sheet.marks if m.kind == "polyline" and m.stroke == "before")
            change = rows[method]["changes"][metric]["difference"]
            assert (mark.points[0][0] < zero.points[0][0]) == (change < 0)


def test_every_method_and_stratum_has_a_strip(tmp_path):
    for count in (6, 40):
        run = make_run(
            tmp_path / str(count), n=120, seeds=1, methods=many_methods(count), tables=False
        )
        cell = report_facts([run])["cells"][0]
        sheet = ece_strips(cell).drawing
        texts = {mark.text for mark in sheet.marks if mark.kind == "text"}
        assert set(cell["methods"]) <= texts
        assert {"all cases", "low agreement"} <= texts
        assert sorted(m.tip for m in sheet.marks if m.tip) == sorted(map(strip_tip, cell["rows"]))
        right = max(m.points[0][0] + text_width(m.text, m.size) for m in sheet.marks if m.text)
        assert right <= sheet.width


def test_the_key_of_the_strips_fits_where_there_are_no_strata():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=300)
    y = (rng.random(300) < p).astype(int)
    audits = [audit(y, each, n_resamples=20) for each in (p**2, p)]
    sheet = ece_strips(compare_audits(*audits, n_resamples=50).facts).drawing
    (key,) = (mark for mark in sheet.marks if mark.text.startswith("dot:"))
    assert key.points[0][0] + text_width(key.text, 10) <= sheet.width
