"""The page in a real browser: no network, no errors, right values, reachable by keyboard, accessible."""

from __future__ import annotations

import csv
import io
import os
import re
from pathlib import Path

import numpy as np
import pytest

from scalecal.evaluation.cells import read_cell
from scalecal.evaluation.evaluations import evaluate
from scalecal.evaluation.folder import write_run
from scalecal.io.text import change_text, number, percent
from scalecal.report import report_facts, write_report
from scalecal.report.page import MAX_BYTES, MAX_BYTES_WITH_IMAGES
from tests.report.conftest import many_methods
from tests.report.make_runs import METHODS, make_run

EVIL = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=cmd|'/c calc'!A1",
    "<!--<script>",
    "{{ 7 * 7 }}${7*7}",
    "javascript:alert(1)",
    "' onmouseover='alert(1)",
    "@SUM(A1)",
    "line\nbreak",
    "carriage\rreturn  and\ttab ",
    "__proto__",
    "7",
    "../../../etc/passwd",
)


SLOW = os.environ.get("SCALECAL_SLOW") == "1"

SIDES = {"before": (True, False, False), "after": (False, True, True), "both": (True, True, True)}
"""Side -> whether the figure before, that after, and the curve after are seen."""

PAPER = {"A4": 695, "Letter": 718}
"""Width of a sheet between its margins, in pixels of a style sheet."""


def unfold(page) -> None:
    page.locator("details").evaluate_all("all => all.forEach(e => { e.open = true; })")


@pytest.mark.parametrize(
    ("name", "width"),
    [
        *((name, 390) for name in ("compare", "audit", "both", "voted", "reproduce")),
        *(("both", 1500), ("audit", 1500)),
    ],
)
def test_loads_at_every_width_without_sideways_scroll(open_page, pages, name, width):
    page = open_page(pages[name], viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").is_visible()


def test_sorting_of_the_methods(open_page, pages, runs):
    page = open_page(pages["both"])
    unfold(page)
    cell = report_facts([runs["compare"], runs["other"]])["cells"][0]
    table = page.locator("table.methods:visible")  # those of the model that is shown
    assert table.locator("tbody tr").count() == len(cell["methods"])
    for row in cell["rows"]:
        assert f"{number(row['ece'])} ({number(row['floor'])})" in table.inner_text()
    head = table.locator("thead th").nth(1)
    for direction in ("ascending", "descending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        texts = table.locator("tbody td:nth-child(2)").all_inner_texts()
        values = [float(text.split()[0]) for text in texts]
        assert values == sorted(values, reverse=direction == "descending")


def test_one_model_at_a_time(open_page, pages):
    page = open_page(pages["both"])
    assert page.locator("#cases .cell:visible").count() == 1
    page.locator("#show-cell").select_option("c1")
    assert page.locator("#reliability-c1").is_visible()
    assert not page.locator("#reliability-c0").is_visible()
    page.emulate_media(media="print")
    assert page.locator("#reliability-c0").is_visible()
    assert not page.locator("nav").is_visible()


def test_keyboard_reaches_everything_and_tells_exact_values(open_page, pages, runs):
    page = open_page(pages["compare"])
    cell = report_facts([runs["compare"]])["cells"][0]
    unfold(page)
    wanted = page.evaluate(
        """() => {
          const all = document.querySelectorAll("a[href], button, select, input, summary, [tabindex='0']");
          const seen = [...all].filter((e) => e.checkVisibility());
          seen.forEach((e, i) => { e.dataset.stop = i; });
          return seen.length;
        }"""
    )
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.stop"))
    assert {str(i) for i in range(wanted)} <= reached
    svg = page.locator("figure.reliability svg").first
    svg.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    tip = page.locator("#tip")
    assert tip.evaluate("e => e.style.visibility") == "visible"
    first = cell["reliability"]["none"][0]["bins"][0]
    assert f"predicted {number(first['mean_p'])}" in tip.inner_text()
    assert f"{first['n']:,} cases" in tip.inner_text()
    page.keyboard.press("ArrowRight")
    second = cell["reliability"]["none"][0]["bins"][1]
    assert f"predicted {number(second['mean_p'])}" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.evaluate("e => e.style.visibility") == "hidden"


def test_keyboard_steps_through_the_voted_cases(open_page, pages, runs):
    page = open_page(pages["voted"])
    cell = report_facts([runs["voted"]])["cells"][0]
    page.locator("#votes svg").last.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    told = page.locator("#tip").inner_text()
    point = cell["voted"]["points"][1]
    assert told.startswith(f"{point['voted']} cases read by one reader each: ")
    assert change_text(point["changes"]["nll"]) in told
    assert page.locator("#votes .lit").count() == 1


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        *(("compare", "light"), ("both", "dark"), ("voted", "light")),
        *(("audit", "light"), ("audit", "dark"), ("reproduce", "dark")),
    ],
)
def test_axe_finds_nothing(open_page, pages, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(pages[name], color_scheme=scheme, bypass_csp=True)
    unfold(page)
    found = axe.Axe().run(page).response["violations"]
    told = [(v["id"], v["nodes"][0]["html"][:120]) for v in found]
    assert told == []


def test_one_switch_shows_before_after_or_both(open_page, pages):
    page = open_page(pages["compare"])
    side = {name: page.locator(f'#difficulty button[data-side="{name}"]') for name in SIDES}
    before, after = (page.locator("figure.reliability").nth(i) for i in range(2))
    curves = page.locator("#work polyline.s-accent").first
    for name, seen in SIDES.items():
        side[name].focus()
        page.keyboard.press("Enter")
        assert (before.is_visible(), after.is_visible(), curves.is_visible()) == seen
        for other in SIDES:
            pressed = page.locator(f'button[data-side="{other}"]')
            assert {pressed.nth(i).get_attribute("aria-pressed") for i in range(2)} == {
                str(other == name).lower()
            }


@pytest.mark.parametrize(
    ("name", "paper"),
    [
        *((name, "A4") for name in ("compare", "audit", "both", "voted", "reproduce")),
        *(("compare", "Letter"), ("reproduce", "Letter")),
    ],
)
def test_a_summary_of_one_page_and_nothing_cut(open_page, pages, name, paper):
    page = open_page(pages[name], viewport={"width": PAPER[paper], "height": 900})
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER[paper]
    assert page.locator("#summary").is_visible()
    assert not page.locator(".tools, nav, .control, .all-methods").first.is_visible()
    whole = page.pdf(format=paper)
    page.evaluate("document.documentElement.dataset.print = 'one'")
    assert len(re.findall(rb"/Type /Page\b", page.pdf(format=paper))) == 1
    assert len(re.findall(rb"/Type /Page\b", whole)) > 1


@pytest.mark.parametrize("name", ["compare", "voted", "both"])
def test_telephones_have_at_most_twelve_screens(open_page, pages, name):
    page = open_page(pages[name], viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollHeight") <= 12 * 844
    panels = page.locator("figure.reliability .panels").first
    assert panels.evaluate("e => e.scrollWidth > e.clientWidth")  # beside each other, with a shadow
    assert "gradient" in panels.evaluate("e => getComputedStyle(e).backgroundImage")


def test_without_script_everything_is_there(open_page, pages, runs):
    page = open_page(pages["both"], java_script_enabled=False)
    assert page.locator("figure.reliability:visible").count() == 4
    assert page.locator(".forest svg:visible").count() == 4
    for i in range(2):
        page.locator(".all-methods > summary").nth(i).click()
    assert page.locator("table.methods tbody tr:visible").count() == 12
    assert page.locator("select:visible, button:visible").count() == 0
    assert page.locator("a[download]:visible").count() == 1
    page.locator("details summary").first.click()
    cell = report_facts([runs["compare"], runs["other"]])["cells"][0]
    assert number(cell["rows"][0]["ece"]) in page.locator("table.methods").first.inner_text()


def test_export_of_the_selected_cases(open_page, pages, runs):
    page = open_page(pages["compare"])
    page.locator(".case-stratum").select_option("low")
    with page.expect_download() as waiting:
        page.locator("button.export").click()
    table = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text())))
    cell = report_facts([runs["compare"]])["cells"][0]
    listed = [c for c in cell["cases"] if c["stratum"] == "low"]
    assert [row[0] for row in table[1:]] == [c["id"] for c in listed]
    column = table[0].index("none")
    assert [row[column] for row in table[1:]] == [number(c["before"]) for c in listed]
    told = [row[table[0].index("Two answers")] for row in table[1:]]
    for text, case in zip(told, listed, strict=True):
        assert text.startswith(f"the panel's label: {percent(case['two']['label'])}; one reader: ")


def test_hostile_names_stay_text(open_page, tmp_path):
    methods = {"none": METHODS["none"], **dict.fromkeys(EVIL, METHODS["scale"])}
    claim = dict.fromkeys(("id", "claim", "paper", "measured", "verdict", "reason"), EVIL[0])
    run = make_run(
        tmp_path / "run",
        n=60,
        seeds=1,
        dataset=EVIL[0],
        encoder=EVIL[1],
        methods=methods,
        ids=[f"{EVIL[i % len(EVIL)]}{i}" for i in range(60)],
        paths=[EVIL[i % len(EVIL)] for i in range(60)],
        claims=[claim],
        tables=False,
    )
    file = write_report([run], tmp_path / "report.html")
    page = open_page(file)
    assert page.locator("img, main script").count() == 0
    assert page.locator("script").count() == 1
    assert page.locator("[onerror], [onmouseover], a[href^='javascript']").count() == 0
    named = page.locator("table.methods tbody th").all_text_contents()
    shown = {" ".join(name.partition(" (no clear gain")[0].split()) for name in named}
    assert {" ".join(name.split()) for name in EVIL} <= shown
    unfold(page)
    with page.expect_download() as waiting:
        page.locator("button.export").click()
    rows = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text())))
    assert not any(cell[:1] in tuple("=+@\t") for row in rows for cell in row)


@pytest.mark.parametrize(
    ("options", "panels"),
    [({"votes": False}, 1), ({"kind": "audit", "votes": False}, 1), ({"with_strata": False}, 4)],
    ids=["no votes", "audit without votes", "votes without strata"],
)
def test_without_strata(open_page, tmp_path, options, panels):
    """Votes make strata where none are given; without either there is one panel."""
    run = make_run(tmp_path / "run", n=80, seeds=1, **options)
    page = open_page(write_report([run], tmp_path / "report.html"))
    assert page.locator("figure.reliability").first.locator(".panel").count() == panels


@pytest.mark.parametrize("kind", ["audit", "compare"])
def test_one_case(open_page, tmp_path, kind):
    run = make_run(tmp_path / "run", n=1, kind=kind, seeds=1)
    page = open_page(write_report([run], tmp_path / "report.html"))
    lists = page.locator("#cases table")
    assert all(lists.nth(i).locator("tbody tr").count() == 1 for i in range(lists.count()))


def test_a_hundred_methods(open_page, tmp_path):
    run = make_run(tmp_path / "run", n=60, seeds=1, methods=many_methods(100), tables=False)
    file = write_report([run], tmp_path / "report.html")
    assert file.stat().st_size < MAX_BYTES
    page = open_page(file)
    assert page.locator("table.methods tbody tr").count() == 100


def test_28_methods_are_less_than_a_megabyte(tmp_path):
    methods = {**many_methods(28), "method-000": METHODS["jury"]}
    made = make_run(tmp_path / "made", n=977, methods=methods, tables=False, seeds=2)
    run, found = tmp_path / "run", evaluate(read_cell(made), n_resamples=20)
    about = {"options": {}, "notes": [], "fingerprint": "0" * 64}
    write_run(run, found, kind="compare", command=["scalecal", "compare"], **about)
    file = write_report([run], tmp_path / "report.html")
    assert file.stat().st_size < 1_000_000
    table = re.search(r'<table class="plain sortable methods">.*?</table>', file.read_text(), re.S)[
        0
    ]
    assert table.count("<tr>") == 29


def test_thumbnails_and_links(open_page, tmp_path):
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "images"
    folder.mkdir()
    names = [f"slide {i} #1.png" for i in range(40)]
    for name in names:
        noise = np.random.default_rng(0).integers(256, size=(300, 260, 3), dtype=np.uint8)
        image.fromarray(noise).save(folder / name)
    run = make_run(tmp_path / "run", n=40, seeds=1, paths=names)
    file = write_report([run], tmp_path / "page" / "report.html", images=folder)
    assert file.stat().st_size < MAX_BYTES_WITH_IMAGES
    page = open_page(file)
    pictures = page.locator("table.cases img")
    assert pictures.count() == page.locator("table.cases tbody tr").count()
    assert all(pictures.evaluate_all("all => all.map(e => e.complete && e.naturalWidth > 0)"))
    link = page.locator("table.cases a").first.get_attribute("href")
    assert link.startswith("../images/slide%20")
    assert "%231.png" in link
