"""`scalecal report --open`: which page the browser shows."""

import pytest
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Addresses given to the browser, from within a folder with two reports."""
    monkeypatch.chdir(tmp_path)
    addresses = []
    monkeypatch.setattr("webbrowser.open", lambda address: addresses.append(address) or True)
    for name in ("one", "two"):
        page = tmp_path / "runs" / name / "report.html"
        page.parent.mkdir(parents=True)
        page.write_text(name)
    return addresses


def run(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_without_a_run_the_newest_page_is_opened_as_it_is(opened, tmp_path):
    page = tmp_path / "runs" / "two" / "report.html"
    result = run("--open")
    assert result.exit_code == 0, result.output
    assert opened == [page.as_uri()]
    assert page.read_text() == "two"


def test_a_run_is_reported_and_opened(opened, tmp_path, monkeypatch):
    monkeypatch.setattr("scalecal.report.write_report", lambda _, out: out)
    assert run("runs/one", "--open").exit_code == 0
    assert opened == [(tmp_path / "runs" / "one" / "report.html").as_uri()]
    assert run("runs/one").exit_code == 0
    assert len(opened) == 1


@pytest.mark.parametrize("options", [(), ("--open", "--out", "page.html")])
@pytest.mark.usefixtures("opened")
def test_a_missing_run_is_named(options):
    result = run(*options)
    assert isinstance(result.exception, InputError)
    assert "RUN is missing" in str(result.exception)
