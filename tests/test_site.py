"""The documentation site: it builds without a warning, its links lead somewhere, its commands exist."""

import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer

import scalecal
from scalecal.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if not {"_build", "auto_gallery"} & set(path.relative_to(DOCS).parts)
)
APART = {"scalecal.cli", "scalecal.limits", "scalecal.paper", "scalecal.solvers"}
"""Modules whose public names are for other modules of the package."""


class Links(HTMLParser):
    """What a page links to, and the anchors it has."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        self.anchors |= {known[key] for key in ("id", "name") if known.get(key)}
        key = {"a": "href", "img": "src", "link": "href", "script": "src"}.get(tag)
        if known.get(key):
            self.targets.append(known[key])


def broken_links(folder):
    """Links between pages of a built site whose page or anchor is missing."""
    found = [p for p in folder.rglob("*.html") if "_static" not in p.parts]
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in found}
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            other = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = other.exists()
            if known and parts.fragment and other in pages:
                known = unquote(parts.fragment) in pages[other].anchors
            if not known:
                yield f"{path.relative_to(folder)} -> {target}"


def test_site_builds_and_its_links_lead_somewhere():
    # Examples run again even where their own text is unchanged: the package may not be.
    shutil.rmtree(DOCS / "auto_gallery", ignore_errors=True)
    out = DOCS / "_build" / "html"
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-E", "-W", "--keep-going", "-q", "-b", "html", DOCS, out],
        env={**os.environ, "PYTHONPATH": path, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(broken_links(out)) == []
    examples = {path.stem for path in (DOCS / "gallery").glob("plot_*.py")}
    assert len(examples) >= 11
    for name in examples:
        page = (out / "auto_gallery" / f"{name}.html").read_text(encoding="utf-8")
        assert f"sphx_glr_{name}_001.png" in page, f"{name} ends without a picture"


def public_modules():
    """Every importable part of the package that says what is public."""
    for info in pkgutil.iter_modules(scalecal.__path__, "scalecal."):
        if (
            info.name not in APART
            and not info.name.endswith("__")
            and hasattr(import_module(info.name), "__all__")
        ):
            yield info.name


def test_every_public_module_has_a_page():
    text = {
        path.stem: path.read_text("utf-8") for path in (DOCS / "reference" / "api").glob("*.md")
    }
    named = {name for page in text.values() for name in re.findall(r"generated: api (\S+)", page)}
    assert named == {"scalecal", *public_modules()}
    listed = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    assert set(text) == set(re.findall(r"^api/(\w+)$", listed, re.MULTILINE))


def shown_commands():
    """Every line of the pages that calls scalecal."""
    for page in PAGES:
        for block in re.findall(r"```(?:sh|yaml)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            for line in lines:
                if called := re.match(r"\s*(?:- run: )?(scalecal [^#]+)", line):
                    yield pytest.param(called[1], id=f"{page.stem}: {called[1][:40].strip()}")


@pytest.mark.parametrize("line", list(shown_commands()))
def test_commands_and_options_on_pages_exist(line):
    words = shlex.split(line)[1:]
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = words.pop(0)
        assert name in command.commands
        command = command.commands[name]
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert used <= known
