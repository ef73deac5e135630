"""CONTRIBUTING's table holds: a thing added from outside, in its registry, is found everywhere.

Each test registers a dummy as the table says and looks for it where users would. What a table says of the
files of the package is tested on a copy, in which these files are edited and no other.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.special import expit
from typer.testing import CliRunner

from scalecal import audit, compare_audits
from scalecal.cases import Answers, Cases, Predictions
from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.datasets import DATASETS, open_dataset
from scalecal.datasets.catalogue import open_table
from scalecal.evaluation.evaluations import evaluate_files
from scalecal.evaluation.gates import parse_condition
from scalecal.evaluation.stream import StreamingAudit
from scalecal.metrics import COLUMNS, METRICS
from scalecal.metrics.columns import Metric
from scalecal.report import audit_html

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "scalecal"


def table_of_contributing() -> dict[str, list[str]]:
    """What CONTRIBUTING says is added -> the files of the package to edit."""
    rows = {}
    for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| a"):
            what, where = line.strip("| ").split(" | ")
            files = re.findall(r"`([a-z_]+/[a-z_]*(?:\.py|\.html)?|[a-z_]+\.py)`", where)
            rows[what] = list(dict.fromkeys(files))
    return rows


@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("a metric, shown everywhere", 2),
        ("a panel of the report", 4),
        ("an input column", 4),
        ("a calibrator", 3),
        ("a data set", 2),
    ],
)
def test_few_files_are_edited(what, most):
    assert 1 <= len(table_of_contributing()[what]) <= most


def test_the_table_names_files_that_exist():
    for what, files in table_of_contributing().items():
        for file in files:
            places = [PACKAGE / file, ROOT / file]
            assert any(place.exists() for place in places), (what, file)


def test_there_are_ten_layers_at_most():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["type"] == "layers"]
    assert len(layers) <= 10


def edited(root: Path, edits: Mapping[str, Callable[[str], str]]) -> Path:
    """Make a copy of the package with some files edited, the others being links; new ones were empty."""
    for file in PACKAGE.rglob("*"):
        place = root / "scalecal" / file.relative_to(PACKAGE)
        if file.is_file() and file.suffix != ".pyc":
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(file)
    for name, edit in edits.items():
        place = root / "scalecal" / name
        text = place.read_text(encoding="utf-8") if place.exists() else ""
        changed = edit(text)
        assert changed != text, name
        place.unlink(missing_ok=True)
        place.write_text(changed, encoding="utf-8")
    return root


def after(line: str, more: str) -> Callable[[str], str]:
    """Put lines behind the only one that begins so."""

    def edit(text: str) -> str:
        found = re.findall(rf"^{re.escape(line)}.*\n", text, re.MULTILINE)
        assert len(found) == 1, (line, found)
        return text.replace(found[0], found[0] + more)

    return edit


def python(root: Path, *arguments: object) -> str:
    """Run Python with the edited package; return what it prints."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"},
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def command(root: Path, *arguments: object) -> str:
    return python(root, "-m", "scalecal", *arguments)


def page_of(root: Path, name: str, argument: str = "") -> str:
    """A generated page of the documentation."""
    file = ROOT / "docs" / "_extensions" / "generated_pages.py"
    code = f"import runpy; print(runpy.run_path({str(file)!r})['PAGES'][{name!r}]({argument!r}))"
    return python(root, "-c", code)


def _made():
    """Labels, votes and two models' probabilities of three hundred cases."""
    rng = np.random.default_rng(0)
    p = rng.uniform(size=300)
    votes = rng.binomial(5, p)
    return (votes > 2).astype(int), votes, p, np.clip(1.4 * p - 0.2, 0.01, 0.99)


DUMMIES = {
    "labels": Metric(
        "dummy_error",
        "dummy error",
        "Mean absolute distance to the label",
        "lower",
        term=lambda sample: np.abs(sample.table - np.eye(2)[sample.y.astype(int)]).sum(axis=1) / 2,
        scale="log",
        tested=True,
    ),
    "votes": Metric(
        "dummy_votes",
        "dummy votes",
        "Mean absolute distance to the share of votes, of cases with a vote",
        "lower",
        "dummy_votes_floor",
        votes=True,
        term=lambda sample: np.abs(sample.table - sample.shares).sum(axis=1) / 2,
        least_votes=1,
        expected=lambda _: 0.125,
        scale="log",
        tested=True,
    ),
    "bins": Metric(
        "dummy_bins",
        "dummy bins",
        "Root of the mean squared sums of bins",
        "lower",
        bins=lambda residuals: np.sqrt((residuals**2).sum(axis=-1)),
        tested=True,
    ),
}


@pytest.mark.parametrize("kind", DUMMIES)
def test_metric(kind, monkeypatch):
    metric = DUMMIES[kind]
    y, votes, p, sharp = _made()
    expected = {
        "labels": np.abs(p - y).mean(),
        "votes": np.abs(p - votes / 5).mean(),
        "bins": np.sqrt((np.bincount((15 * p).astype(int), p - y) ** 2).sum()) / 300,
    }[kind]
    monkeypatch.setitem(METRICS, metric.key, metric)
    keys = [metric.key]
    if metric.scale is not None:
        keys += [f"{metric.key}_low", f"{metric.key}_high"]
    if metric.floor is not None:
        keys.append(metric.floor)

    # the audit: its rows, its table, its page, gates, and a stream
    result = audit(y, p, votes=votes, n_raters=5, n_resamples=50)
    assert result["overall"][metric.key] == pytest.approx(expected)
    assert set(keys) <= set(result.to_frame().columns)
    assert set(metric.title.split()) <= set(str(result).split())
    assert metric.title in audit_html(result)
    assert parse_condition(f"low: {metric.key} > 0.2").column == metric.key
    assert len(result.failures([f"{metric.key} > 0", f"low: {metric.key} < 0"])) == 1
    streamed = StreamingAudit(n_resamples=50).update(y, p, votes=votes, n_raters=5).finish()
    assert streamed["overall"][metric.key] == pytest.approx(expected, abs=1e-4)

    # differences between models
    other = audit(y, sharp, votes=votes, n_raters=5, n_resamples=50)
    table = compare_audits(result, other, n_resamples=50).differences
    row = table[(table["metric"] == metric.key) & (table["stratum"] == "overall")].iloc[0]
    assert row["low"] < row["difference"] < row["high"]
    assert np.isfinite(row["p_holm"])

    # results and the comparison of methods
    cases = Cases(n=300, classes=("0", "1"), y=y, votes=np.column_stack([5 - votes, votes]))
    both = Predictions(cases, {("a.csv", 0): Answers(p), ("b.csv", 0): Answers(sharp)})
    comparison = evaluate_files(both, n_resamples=50)
    assert {metric.key, f"{metric.key}_change_low"} <= set(comparison.table)
    assert metric.key in set(comparison.results["metric"])
    assert metric.name in str(comparison)

    # the documentation
    page = runpy.run_path(str(ROOT / "scripts" / "make_columns.py"))["text"]()
    for key in keys:
        assert f"| `{key}` |" in page
        assert key in COLUMNS


@pytest.mark.usefixtures("brief_training")
@pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")
@pytest.mark.parametrize("kind", DUMMIES)
def test_a_metric_in_what_compare_writes(kind, monkeypatch, tmp_path):
    metric = DUMMIES[kind]
    monkeypatch.setitem(METRICS, metric.key, metric)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    votes = rng.binomial(5, expit(1.5 * X[:, 0]))
    np.savez("f.npz", X=X, y=(votes > 2).astype(int), votes=votes, n_raters=np.full(150, 5))

    def done(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    chosen = ("--methods", "none,platt", "--seeds", "1")
    printed = done("compare", "f.npz", *chosen, "--out", "run")
    # Titles are broken over two lines there.
    assert set(metric.title.split()) <= set(printed.split())
    table = pd.read_csv("run/comparison.csv").set_index("method")
    value = table.loc["platt", metric.key]
    assert np.isfinite(value)
    for name in (f"{metric.key}_change", f"{metric.key}_change_low"):
        assert np.isfinite(table.loc["platt", name])

    # the page: the table of methods, the audit's, and models side by side
    page = Path("run/report.html").read_text()
    assert f">{metric.title}</th>" in page.partition('id="methods"')[2].partition('id="cases"')[0]
    assert f">{metric.title}</th>" in page.partition('id="difficulty"')[2].partition("<section")[0]
    done("report", "run", "run", "--out", "both.html")
    beside = Path("both.html").read_text().partition('id="models"')[2].partition("</table>")[0]
    assert f"{metric.title[0].upper()}{metric.title[1:]}</th>" in beside

    # the model card: its table, and the results in its header
    done("fit", "f.npz", "--method", "platt", "--out", "probe")
    done("export", "probe", "--audit", "run", "--out", "exported")
    card = Path("exported/README.md").read_text()
    assert f"| {metric.title} |" in card
    assert f'"type": "{metric.key}"' in card
    assert f'"value": {round(value, 4)}' in card


# A panel of the report

FIGURES = '''\


def dummy_bars(cell: Row) -> list[Figure]:
    """Share of certain predictions of each method."""
    out = []
    for method, share in cell["dummy"].items():
        sheet = Drawing(120, 40, f"Share of certain predictions of {method}")
        sheet.rect(10, 10, 100 * share, 20, fill="accent", tip=f"{method}: {share:.3f}")
        out.append(Figure(("dummy", method), f"{method} is certain", sheet, {}))
    return out
'''
VIEW = """\
def _dummy_view(cell: Row) -> View:
    rows = [[method, number(share)] for method, share in cell["dummy"].items()]
    return {
        "text": ["Certain is a dummy's word."],
        "figures": figures.dummy_bars(cell),
        "tables": [table("Dummy table", ["Method", "Certain"], rows)],
    }


"""
PANEL = '    Panel("dummy", "Dummy section", _dummy_view),\n'
SHOWN = '        "referral": exhibits.referral_curves(whole, shown),\n'
DUMMY_FACTS = """\
        "dummy": {m: float((abs(whole.first(m).p - 0.5) > 0.4).mean()) for m in shown},
"""


def test_a_panel_of_the_report(tmp_path):
    edits = {
        "evaluation/evaluations.py": after(SHOWN.rstrip("\n"), DUMMY_FACTS),
        "report/figures.py": lambda text: text + FIGURES,
        "report/page.py": lambda text: text.replace("PANELS = [\n", f"{VIEW}PANELS = [\n{PANEL}"),
    }
    named = set(table_of_contributing()["a panel of the report"])
    assert {Path(name).name for name in edits} <= {Path(name).name for name in named}
    root = edited(tmp_path / "package", edits)
    frame = _predictions()
    frame.to_csv(root / "p.csv", index=False)
    share = float((abs(frame["p"] - 0.5) > 0.4).mean())

    # the command's page has it: in the navigation, as text, figure and table
    command(root, "audit", "p.csv", "--resamples", 20, "--out", "run")
    page = (root / "run" / "report.html").read_text()
    assert '<section id="dummy">' in page
    assert '<a href="#dummy"' in page
    section = page.partition('<section id="dummy">')[2].partition("</section>")[0]
    assert "<h2>Dummy section</h2>" in section
    assert "Certain is a dummy" in section
    assert "Share of certain predictions of model" in section
    assert f"{share:.3f}" in section.partition("<table")[2]
    assert json.loads((root / "run" / "facts.json").read_text())["dummy"] == {"model": share}

    # a later report has it too, and writes its figure
    command(root, "report", "run", "--out", "again.html", "--export", "figures")
    assert '<section id="dummy">' in (root / "again.html").read_text()
    for ending in ("svg", "png"):
        assert (root / "figures" / f"dummy_model.{ending}").is_file()


# An input column


def _predictions(n: int = 240, slope: float = 1.0) -> pd.DataFrame:
    """Predictions that are too sure by a factor, with the votes of seven readers."""
    rng = np.random.default_rng(0)
    z = 1.5 * rng.normal(size=n)
    y = (rng.random(n) < expit(z)).astype(int)
    names = [f"case {i}" for i in range(n)]
    return pd.DataFrame({"id": names, "p": expit(slope * z), "label": y})


SPLIT = """\
        InputColumn(
            role="split",
"""
COLUMN = """\
        InputColumn(
            role="site",
            holds="the hospital that the case is from",
            used_by=("predictions",),
            aliases=("hospital",),
            field="sites",
            not_streamed="The sites are not used.",
        ),
"""


def test_an_input_column(tmp_path):
    root = edited(
        tmp_path / "package",
        {
            "io/input_columns.py": lambda text: text.replace(SPLIT, COLUMN + SPLIT),
            "cases.py": after(
                "    split: Factor | None = None", "    sites: Factor | None = None\n"
            ),
            "evaluation/audits.py": lambda text: text.replace(
                "    notes = [*_notes(predictions, rows, units), *cases.notes]\n",
                "    notes = [*_notes(predictions, rows, units), *cases.notes]\n"
                "    if cases.sites is not None:\n"
                '        notes.append(f"Cases are of {len(set(cases.sites.values))} sites.")\n',
            ),
        },
    )
    frame = _predictions(slope=2.5)
    frame["hospital"] = np.resize(["north", "south", "east"], len(frame))
    frame.to_csv(root / "p.csv", index=False)
    named, out = ("--columns", "site=hospital"), root / "out"
    few = ("--resamples", 20)

    # terminal, page and JSON say what is made of it, and a run keeps it
    printed = command(root, "audit", "p.csv", *named, *few, "--out", out)
    assert "Cases are of 3 sites." in printed
    assert "Cases are of 3 sites." in (out / "report.html").read_text()
    assert "Cases are of 3 sites." in json.loads((out / "audit.json").read_text())["notes"]
    assert pd.read_parquet(out / "cases.parquet")["site"].tolist() == frame["hospital"].tolist()

    # what is recalibrated keeps it; files are joined with it, and a stream says that it is left out
    command(root, "calibrate", "p.csv", *named, *few, "--method", "platt", "--out", root / "cal")
    table = pd.read_csv(root / "cal" / "predictions.csv")
    assert table["site"].tolist() == frame["hospital"].tolist()
    frame.drop(columns=["hospital", "label"]).to_csv(root / "q.csv", index=False)
    assert "Cases are of 3 sites." in command(root, "audit", "p.csv", "q.csv", *named, *few)
    assert "The sites are not used." in command(root, "audit", "p.csv", *named, *few, "--stream")

    # help, messages and documentation name it
    assert "site" in re.findall(r"\w+", command(root, "audit", "--help").partition("Roles:")[2])
    assert "| `site` | the hospital" in page_of(root, "roles", "predictions")


# A calibrator

IMPORTS = "from scalecal.checks import InputError, lookup\n"
LAST = '    "panel": PanelCalibrator,\n'
CALIBRATOR = '''\
"""A calibrator from outside."""

from scalecal.calibrators.base import Calibrator


class Halved(Calibrator):
    """Divide the logits by a number that is known before."""

    name = "halved"
    tried_as = "half the logits"
    method_title = "Half the logits"
    _fitted = ("half_",)

    def _fit(self, z, *_):
        self.half_ = 0.5

    def _transform(self, z, *_):
        return self.half_ * z
'''


def _graphs() -> str:
    """The module of the graphs, as CONTRIBUTING names it."""
    (file,) = [name for name in table_of_contributing()["a calibrator"] if "export/" in name]
    return file


def test_a_calibrator(tmp_path):
    root = edited(
        tmp_path / "package",
        {
            "calibrators/halved.py": lambda _: CALIBRATOR,
            "calibrators/__init__.py": lambda text: text.replace(
                IMPORTS, f"from scalecal.calibrators.halved import Halved\n{IMPORTS}"
            ).replace(LAST, f'{LAST}    "halved": Halved,\n'),
            _graphs(): after(
                '    "temperature": _temperature,',
                '    "halved": lambda calibrator, z, _: _logits(calibrator, 0.5 * z),\n',
            ),
        },
    )
    _predictions(400, slope=2.0).to_csv(root / "p.csv", index=False)
    few = ("--resamples", 50)

    # auto tries it, an audit advises it, and tables and page show it
    audited = command(root, "audit", "p.csv", *few, "--out", "audit")
    assert "What to do? Recalibrate it. Run scalecal calibrate FILE --method halved:" in audited
    assert "--method halved" in (root / "audit" / "report.html").read_text()
    printed = command(root, "calibrate", "p.csv", *few, "--out", "auto")
    assert re.search(r"^halved \(chosen\) ", printed, re.MULTILINE)
    assert "halved" in set(pd.read_csv(root / "auto" / "comparison.csv")["method"])
    assert "halved" in (root / "auto" / "report.html").read_text()

    # it is kept, and used again on new cases
    saved = root / "auto" / "calibrator.json"
    assert json.loads(saved.read_text())["chosen"] == "halved"
    command(root, "calibrate", "p.csv", "--method", "halved", *few, "--out", "named")
    command(root, "calibrate", "p.csv", "--apply", saved, *few, "--out", "again")
    p = pd.read_csv(root / "p.csv")["p"].to_numpy()
    expected = expit(0.5 * np.log(p / (1 - p)))
    for name in ("named", "again"):
        made = pd.read_csv(root / name / "predictions.csv")["p"]
        np.testing.assert_allclose(made, expected, atol=1e-12)

    # it is a method of compare and of fit, and its probe is exported
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    np.savez(root / "f.npz", X=X, y=(X[:, 0] + rng.normal(size=120) > 0).astype(int))
    chosen = ("--methods", "none,halved", "--seeds", 1)
    compared = command(root, "compare", "f.npz", *chosen, "--out", "compare")
    assert re.search(r"^halved[ *]", compared, re.MULTILINE)
    assert re.search(r"^halved +Divide the logits", command(root, "list", "methods"), re.MULTILINE)
    command(root, "fit", "f.npz", "--method", "halved", "--out", "probe")
    command(root, "predict", "probe", "f.npz", "--out", "made.csv")
    command(root, "export", "probe", "--out", "exported")
    assert any((root / "exported").glob("*.onnx"))

    # help and documentation name it
    assert "halved" in command(root, "calibrate", "--help")
    assert "| `halved` | Divide the logits" in page_of(root, "calibrators")
    assert "| `halved` | Half the logits | Divide the logits" in page_of(root, "methods")


# A data set


def test_a_data_set(tmp_path, monkeypatch):
    def load(data: Path) -> Any:
        return replace(open_table(str(Path(data, "list.csv")), data), about=record)

    record = replace(
        DATASETS["table"],
        name="dummy",
        form="dummy",
        title="Images of a dummy",
        load=load,
        licence="CC0",
        credit="Nobody",
        n=4,
    )
    monkeypatch.setitem(DATASETS, "dummy", record)
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    lines = ["path,label"]
    for i in range(4):
        pixels = np.random.default_rng(i).integers(0, 255, size=(32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"images/{i}.png")
        lines.append(f"{i}.png,{i % 2}")
    Path("images/list.csv").write_text("\n".join(lines) + "\n")

    def done(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    listed = done("list", "datasets")
    for text in ("dummy: Images of a dummy (4 images)", "licence: CC0", "credit: Nobody"):
        assert text in listed
    checked = done("check", "dummy", "--data", "images")
    assert "name: dummy" in checked
    assert "no problem found" in checked
    pages = runpy.run_path(str(ROOT / "docs" / "_extensions" / "generated_pages.py"))["PAGES"]
    assert "| `dummy` | Images of a dummy | 4 | CC0 | Nobody |" in pages["datasets"]("")
    with pytest.raises(InputError, match=r"Known: .*dummy"):
        open_dataset("nothing")
