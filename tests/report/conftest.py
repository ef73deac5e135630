"""A real browser for the tests of the page, and the run folders they look at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scalecal.datasets import simulate
from scalecal.evaluation.evaluations import evaluate
from scalecal.evaluation.folder import write_run
from scalecal.report import write_report
from scalecal.runs.grid import run_grid
from tests.report.make_runs import CLAIMS, METHODS, make_run

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window; without it tests are skipped aloud, or fail where CI=true."""
    missing = ""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing = "playwright is not installed"
    if not missing and not CHROMIUM.exists():
        missing = f"{CHROMIUM} is not there"
    if missing:
        text = f"NO BROWSER, THE PAGE IS NOT TESTED: {missing}. Run: make browser"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a report; any message, error, dialog or network request of the page fails the test."""
    contexts: list[Any] = []
    trouble: list[str] = []

    def opened(file: Path, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda m: trouble.append(m.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
        local = (file.as_uri(), "data:", "blob:")
        page.on(
            "request",
            lambda r: None if r.url.startswith(local) else trouble.append(f"asked for {r.url}"),
        )
        page.goto(file.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not trouble


def run_on(data: Any, out: Path, **options: Any) -> Path:
    """Run the grid on simulated cases and write its folder, as `scalecal compare` does."""
    methods = ["none", "vote-fraction", "panel-published"]
    grid = run_grid(data, **{"methods": methods, "seeds": 1, "dataset": "drawn", **options})
    made = evaluate(grid.cell, n_resamples=100, voted=grid.voted)
    about = {"options": {"n_resamples": 100}, "notes": grid.notes, "fingerprint": "0" * 64}
    write_run(out, made, kind="compare", command=["scalecal", "compare"], **about)
    return out


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run folders of both kinds."""
    root = tmp_path_factory.mktemp("runs")
    return {
        "compare": make_run(root / "compare", claims=CLAIMS),
        "audit": make_run(root / "audit", kind="audit", encoder=None),
        "reproduce": make_run(root / "reproduce", kind="reproduce", n=150, seeds=1, claims=CLAIMS),
        "other": make_run(root / "other", n=200, encoder="virchow", seed=1, seeds=1),
        "voted": run_on(
            simulate(500, dim=5, auc=0.9, unexplained=0.3, seed=0),
            root / "voted",
            voted=[0, 20, 80],
            seeds=2,
        ),
    }


@pytest.fixture(scope="session")
def pages(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports on them."""
    out = tmp_path_factory.mktemp("pages")
    both = [runs["compare"], runs["other"]]
    return {
        "compare": write_report([runs["compare"]], out / "compare.html"),
        "audit": write_report([runs["audit"]], out / "audit.html"),
        "reproduce": write_report([runs["reproduce"]], out / "reproduce.html"),
        "both": write_report(both, out / "both.html"),
        "voted": write_report([runs["voted"]], out / "voted.html"),
    }


def many_methods(count: int) -> dict[str, Any]:
    """Return the baseline and further methods, one temperature each."""
    more = {f"method-{i:03d}": (lambda z, i=i: z * (0.4 + i / 60)) for i in range(count - 1)}
    return {"none": METHODS["none"], **more}
