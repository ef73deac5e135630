"""Progress: work reports shares that add up to 1, changes nothing by it, and is shown on a terminal alone."""

import io
import itertools
import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from scalecal import audit, progress
from scalecal.datasets import simulate
from scalecal.evaluation.audits import audit_predictions
from scalecal.evaluation.evaluations import evaluate
from scalecal.evaluation.recalibration import calibrate_predictions
from scalecal.inference.selection import selection_draws
from scalecal.probes import Job, Recipe, fit_many
from scalecal.progress import Progress
from scalecal.runs.grid import run_grid
from scalecal.solvers import Task, train


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def data():
    return simulate(300, dim=4, seed=0)


@pytest.mark.parametrize("held", [True, False], ids=["early stopping", "all epochs"])
def test_shares_of_training_add_up(data, held):
    rows = np.arange(200)
    more = {"validation": np.arange(200, 300), "validation_targets": data.y[200:] * 1.0}
    tasks = [
        Task(
            rows=rows,
            targets=data.y[rows] * 1.0,
            order=order,
            learning_rate=rate,
            **(more if held else {}),
        )
        for order in (0, 1)
        for rate in (0.3, 0.01)
    ]
    shares = []
    options = {"max_epochs": 60, "min_steps": 0, "patience": 3}
    told = train(data.X, tasks, advance=shares.append, **options)
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares) > 0
    plain = train(data.X, tasks, **options)
    assert {fit.n_iter for fit in told} != {60} or not held
    for a, b in zip(told, plain, strict=True):
        assert (a.weights == b.weights).all()


def test_shares_of_every_kind_of_work_add_up(data):
    votes = data.cases.votes
    work = {
        "probes": lambda advance: fit_many(
            data.X,
            [
                Job(recipe=recipe, rows=np.arange(300), y=data.y, seed=seed)
                for recipe in (Recipe(), Recipe(smoothing="vanilla"), Recipe(synthesis={}))
                for seed in (0, 1)
            ],
            advance=advance,
        ),
        "null": lambda advance: (
            selection_draws(
                data.y,
                np.linspace(0.1, 0.9, 300),
                np.arange(300) % 3,
                n_strata=3,
                n_resamples=50,
                advance=advance,
            ).ece
        ),
        "audit": lambda advance: audit_predictions(
            audit(data.y, np.linspace(0.1, 0.9, 300), votes=votes, n_resamples=20).predictions,
            n_resamples=50,
            advance=advance,
        ),
        "audit of labels": lambda advance: audit_predictions(
            audit(data.y, np.linspace(0.1, 0.9, 300), n_resamples=20).predictions,
            n_resamples=50,
            advance=advance,
        ),
        "grid": lambda advance: run_grid(data, methods=["none", "scale"], seeds=2, advance=advance),
        "comparison": lambda advance: evaluate(
            run_grid(data, methods=["none", "platt"], seeds=2).cell, n_resamples=50, advance=advance
        ),
    }
    predictions = audit(data.y, np.linspace(0.1, 0.9, 300), n_resamples=20).predictions
    work |= {
        f"calibration by {method}": lambda advance, method=method: calibrate_predictions(
            predictions, method=method, n_resamples=50, advance=advance
        )
        for method in ("auto", "platt")
    }
    for name, function in work.items():
        shares = []
        function(shares.append)
        assert sum(shares) == pytest.approx(1.0), name
        assert min(shares) >= 0


def test_a_bar_of_shares_appears_late_and_goes():
    screen = Terminal()
    with Progress(1.0, unit="", title="training", stream=screen, after=1e9) as bar:
        bar.advance(0.5)
    assert screen.getvalue() == ""
    with Progress(1.0, unit="", title="training", stream=screen, after=1e-9) as bar:
        bar.advance(0.25)
    shown = screen.getvalue()
    assert "training" in shown
    assert "25.0%" in shown
    assert shown.endswith("\x1b[2K")  # the line is cleared at the end


def test_results_do_not_go_to_the_bar(capsys):
    screen = Terminal()
    with Progress(10, stream=screen) as bar:
        print("a result")
        bar.advance(10)
    assert capsys.readouterr().out == "a result\n"
    assert "a result" not in screen.getvalue()


def test_a_hidden_bar_is_silent():
    for stream in (Terminal(), io.StringIO()):
        with Progress(10, show=False, stream=stream, every=0.0) as bar:
            bar.advance(10)
        assert stream.getvalue() == ""
        assert bar.done == 10


def test_frequent_reports_are_drawn_now_and_then(monkeypatch):
    clock = itertools.count(0.0, 0.001)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    drawn = []
    with Progress(1000, stream=Terminal()) as bar:
        bar._bar.update = lambda *_, **values: drawn.append(values["completed"])
        for _ in range(1000):
            bar.advance(1)
    assert drawn[-1] == 1000
    assert len(drawn) <= 25


@pytest.mark.parametrize("quiet", [False, True])
def test_audit_on_a_terminal(tmp_path, quiet):
    """A bar on standard error, and standard output as it is elsewhere."""
    rng = np.random.default_rng(0)
    p = rng.random(500)
    file = tmp_path / "p.csv"
    rows = zip(p, rng.random(500) < p, rng.integers(0, 2, 500), strict=True)
    file.write_text("p,label,stratum\n" + "".join(f"{a},{b:d},s{c}\n" for a, b, c in rows))
    at_once = (
        "import sys, scalecal.cli as c; sys.modules['scalecal.cli.app'].BAR_AFTER = 0.0; c.main()"
    )
    command = [sys.executable, "-c", at_once, "audit", str(file), *(["-q"] if quiet else [])]
    parent, child = pty.openpty()
    done = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=child, env={**os.environ, "TERM": "xterm"}
    )
    os.close(child)
    seen = b""
    try:
        while part := os.read(parent, 4096):
            seen += part
    except OSError:  # the other end is closed
        pass
    output = done.communicate()[0].decode()
    os.close(parent)
    assert done.returncode == 0
    assert (b"auditing" in seen) != quiet
    if quiet:
        assert (output, seen) == ("", b"")
    else:
        assert output == subprocess.run(command, capture_output=True, text=True).stdout
