"""What is published: a wheel and a source archive that an index takes, and that install and run."""

import datetime
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

import scalecal

ROOT = Path(__file__).parents[1]
MEGABYTE = 1e6


def run(*command, **options):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the source archive."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    return out


@pytest.fixture
def wheel(built):
    return next(built.glob("*.whl"))


def test_an_index_takes_what_was_built(built):
    assert len(list(built.iterdir())) == 2
    run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir())


def test_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"scalecal-{scalecal.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"scalecal", info}
    held = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "scalecal").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("scalecal/")} == held
    assert not [
        name for name in names if re.search(r"test|benchmark|conftest", name.split("/")[-1])
    ]
    data = "scalecal/datasets"
    assert {"scalecal/py.typed", f"{data}/lidc_nodules.csv.gz"} <= names
    assert {f"{data}/atnorm_md_data/embeddings.npz", f"{data}/atnorm_md_data/LICENSE"} <= names
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/src/{data}/CREDITS.md"} <= names
    assert f"{info}/licenses/src/{data}/atnorm_md_data/LICENSE" in names
    assert wheel.stat().st_size <= 10 * MEGABYTE


def test_source_archive_can_be_tested(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "Makefile", "README.md", "LICENSE", "CITATION.cff"} <= names
    assert {"tests/test_packaging.py", "docs/conf.py", "src/scalecal/__init__.py"} <= names
    assert not [name for name in names if "_build" in name or "auto_gallery" in name]


def test_metadata_reads_well_on_an_index(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Version"] == scalecal.__version__
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert {url.split(",")[0] for url in metadata.get_all("Project-URL")} >= {
        "Homepage",
        "Changelog",
    }
    page = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", page)
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    for image in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page):
        host, path = image.split(f"/v{scalecal.__version__}/")
        assert host == "https://raw.githubusercontent.com/scalecal/scalecal"
        assert (ROOT / path).exists()


def test_python_versions_are_declared_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    minors = [int(c) for c in re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))]
    assert project["requires-python"] == f">=3.{minors[0]}"
    assert minors == list(range(minors[0], minors[-1] + 1))


def test_installed_wheel_runs(wheel, tmp_path):
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path, wheel)
    code = "import scalecal.datasets as d; print(d.__file__, len(d.load_lidc()), len(d.load_atnorm_md()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path[1:]])}
    where, *sizes = run(sys.executable, "-c", code, cwd=tmp_path, env=environment).split()
    assert Path(where).is_relative_to(tmp_path)
    assert sizes == ["896", "2107"]
    shown = run(sys.executable, "-m", "scalecal", "--version", cwd=tmp_path, env=environment)
    assert scalecal.__version__ in shown


@pytest.mark.skipif("SCALECAL_SLOW" not in os.environ, reason="SCALECAL_SLOW=1 installs everything")
def test_wheel_in_a_clean_environment_runs_the_demo(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", wheel, env=clean)
    run(python.parent / "scalecal", "demo", "--out", "demo", cwd=tmp_path, env=clean)
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000


CITED = {"authors", "cff-version", "message", "title"}
"""What version 1.2.0 of the Citation File Format requires."""

KNOWN = {
    *("abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi"),
    *("identifiers", "keywords", "license", "license-url", "message", "preferred-citation"),
    *("references", "repository", "repository-artifact", "repository-code", "title", "type"),
    *("url", "version"),
}


def check_person(person):
    """A person has names, an entity a name (the format's `person` and `entity`)."""
    assert set(person) <= {"name"} or set(person) <= {
        "family-names",
        "given-names",
        "orcid",
        "alias",
    }
    assert all(isinstance(value, str) for value in person.values())


def test_citation_is_valid_and_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert set(cited) >= CITED
    assert set(cited) <= KNOWN
    assert cited["cff-version"] == "1.2.0"
    assert cited["type"] in ("software", "dataset")
    assert cited["version"] == scalecal.__version__
    assert isinstance(cited["date-released"], datetime.date)
    assert cited["license"] == "Apache-2.0"
    for work in (cited, *cited["references"]):
        assert work["authors"]
        for person in work["authors"]:
            check_person(person)
    for reference in cited["references"]:
        assert {"authors", "title", "type"} <= set(reference)
        assert isinstance(reference["year"], int)
        assert re.fullmatch(r"10\.\d{4,9}(\.\d+)?/[\w/.()-]+", reference.get("doi", "10.1000/x"))
