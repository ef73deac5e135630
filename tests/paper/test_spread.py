"""The grid spread over workers gives what one process gives."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from scalecal.datasets import simulate
from scalecal.engines import open_engine
from scalecal.paper.reproduction import (
    Source,
    Training,
    cell_folder,
    judge_run,
    train_cell,
    train_seeds_on,
)
from scalecal.runs.grid import run_grid, run_grid_on

# So few cases stay near chance in the paper's fifty epochs.
pytestmark = pytest.mark.filterwarnings("ignore:AUC on the")


def small():
    """Four hundred simulated cases; every worker makes the same."""
    return replace(simulate(400, dim=5, seed=0), encoder="made")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_comparison_spread_over_workers_is_the_same(workers):
    options = {"methods": ["none", "vanilla-ls", "platt"], "dataset": "simulated"}
    alone = run_grid(small(), seeds=3, **options)
    with open_engine("local", workers=workers) as engine:
        spread = run_grid_on(engine, small, seeds=3, **options)
    assert spread.cell.cases.names.tolist() == alone.cell.cases.names.tolist()
    assert set(spread.cell.answers) == set(alone.cell.answers)
    for key, part in alone.cell.answers.items():
        np.testing.assert_array_equal(spread.cell.answers[key].rows, part.rows)
        np.testing.assert_allclose(spread.cell.answers[key].p, part.p, atol=1e-6)
    assert spread.left_out == alone.left_out
    assert spread.chosen == alone.chosen
    np.testing.assert_array_equal(spread.cell.cases.strata.values, alone.cell.cases.strata.values)


def test_seeds_trained_elsewhere_are_found_done(tmp_path: Path):
    source = Source("simulated", "made", "made", partial(small))
    training = Training([0, 1, 2], methods=["none", "platt"], sweep=False)
    alone = train_cell(source, tmp_path / "a", training, progress=str)
    cells = [(source, tmp_path / "b")]
    told: list[str] = []
    with open_engine("local") as engine:
        train_seeds_on(engine, cells, training, progress=told.append)
        assert [line.split(",")[0] for line in told] == ["simulated/made"] * 3
        train_seeds_on(engine, cells, training, progress=told.append)
        assert len(told) == 3
    said: list[str] = []
    found = train_cell(source, tmp_path / "b", training, progress=said.append)
    assert said == []
    assert found.cases.names.tolist() == alone.cases.names.tolist()
    for key, part in alone.answers.items():
        np.testing.assert_array_equal(found.answers[key].rows, part.rows)
        np.testing.assert_allclose(found.answers[key].p, part.p, atol=1e-12)


def test_cells_scored_by_workers_give_the_same_files(tmp_path: Path):
    training = Training([0, 1], methods=["none", "platt"], sweep=False)
    for name in ("b", "a"):  # scored in the order of their names
        source = Source("simulated", name, "made", partial(small))
        train_cell(source, cell_folder(tmp_path, source), training, progress=str)
    judge_run(tmp_path, progress=str)
    kept = {file: (tmp_path / file).read_bytes() for file in ("results.csv", "claims.json")}
    with open_engine("local", workers=2) as engine:
        outcome = judge_run(tmp_path, engine=engine, progress=str)
    assert list(dict.fromkeys(outcome.evidence.results["encoder"]))[:2] == ["a", "b"]
    assert kept == {file: (tmp_path / file).read_bytes() for file in kept}


def test_what_one_worker_left_out_is_left_out_of_all():
    from scalecal.runs.grid import _together

    data = simulate(200, dim=3, seed=0)
    first, second = (run_grid(data, methods=["none", "temperature"], seeds=[s]) for s in (0, 1))
    second = replace(second, left_out={"temperature": "one class in its validation cases"})
    joined = _together([first, second], lambda: data)
    assert list(joined.cell.methods) == ["none"]
    assert joined.left_out == second.left_out
