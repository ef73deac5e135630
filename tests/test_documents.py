"""Documents tell the truth: every console block in them is run and must print what it shows.

A block looks like this, and an ellipsis stands for any text::

    ```console
    $ scalecal audit predictions.csv
    ...
    ```
"""

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands(text):
    """Split a document into (command, expected output) pairs."""
    found = []
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            found.append((command, expected))
    return found


def bare(text):
    """Drop trailing white space, so that tables may be compared line by line."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_console_blocks_print_what_they_show(document, tmp_path):
    todo = commands(document.read_text(encoding="utf-8"))
    if not todo:
        assert "$ scalecal" not in document.read_text(encoding="utf-8")
        return
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    checker = doctest.OutputChecker()
    for command, expected in todo:
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "COLUMNS": "160"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        matched = checker.check_output(bare(expected), bare(done.stdout), doctest.ELLIPSIS)
        assert matched, f"$ {command}\nexpected:\n{expected}\ngot:\n{done.stdout}"


def test_documents_name_only_files_that_exist():
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:|#|auto_gallery/)([^)#]+)", text):
            assert (document.parent / target).exists(), f"{document.name} -> {target}"


REMOVED = re.compile(
    r"scalecal (view|methods|encoders|datasets)\b|--[a-z-]+-column\b|--limit\b|plan --votes"
)
"""Spellings of 0.2.0 that end with exit code 2."""


def test_documents_use_no_spelling_that_was_removed():
    places = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.py")]
    places += [*(ROOT / "examples").rglob("*"), *(ROOT / "scripts").glob("*.py")]
    for place in places:
        if place.suffix in (".md", ".py", ".sbatch", ".yaml"):
            assert not REMOVED.search(place.read_text(encoding="utf-8")), place
