"""Engines of one machine: results, losses, errors; extraction gives the same bytes."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from scalecal.checks import InputError
from scalecal.engines import ENGINES, Worker, open_engine
from scalecal.engines.local import MAX_FAILURES, MAX_LOSSES, Ledger, TaskError, cores
from scalecal.features import extract, extraction
from tests.engines.encoders import troubled_encoder
from tests.engines.jobs import Task, arithmetic_threads, counted, square, who
from tests.features.made import contents, open_tiles, tiny_encoder, write_tiles

USUAL = {"precision": "fp32", "batch_size": 3, "shard_rows": 7, "progress": False, "device": "cpu"}


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    """Forty tiles, one of which cannot be read."""
    folder = write_tiles(tmp_path_factory.mktemp("tiles"), 40)
    sorted(folder.rglob("*.png"))[25].write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def alone(tiles, tmp_path_factory):
    """The bytes of a run in one process."""
    out = tmp_path_factory.mktemp("alone") / "f"
    extract(open_tiles(tiles), tiny_encoder(), out, **USUAL)
    return contents(out)


@pytest.fixture(scope="module")
def pair():
    with open_engine("local", workers=2) as engine:
        yield engine


def test_unknown_engines_and_senseless_options_are_refused():
    assert set(ENGINES) == {"local", "ray"}
    with pytest.raises(InputError, match="Known: local, ray"):
        open_engine("dask")
    with pytest.raises(InputError, match="address"):
        open_engine("local", address="auto")
    with pytest.raises(InputError, match="workers"):
        open_engine("local", workers=0)


def test_here_tasks_are_done_in_order_and_drawn_one_by_one(tmp_path):
    drawn = []

    def tasks():
        for number in range(3):
            drawn.append(number)
            yield Task(number, tmp_path)

    with open_engine() as engine:
        results = engine.run(square, tasks())
        assert next(results)[1][0] == 0
        assert drawn == [0]
        assert [number for number, _ in results] == [1, 2]
        with pytest.raises(OSError, match="hiccup"):
            list(engine.run(square, [Task(0, tmp_path, "raise")]))
        assert list(engine.run(square, [])) == []


def test_processes_share_the_work_and_keep_their_state(pair, tmp_path):
    set_up = partial(counted, folder=tmp_path)
    found = dict(pair.run(who, range(6), setup=set_up))
    assert sorted(found) == list(range(6))
    assert {number for number, _, _ in found.values()} == {0, 1}
    list(pair.run(who, range(4), setup=set_up))
    assert len(list(tmp_path.glob("setup-*"))) == 2


@pytest.mark.parametrize("mishap", ["kill", "raise", "unpicklable"])
def test_a_mishap_costs_one_task(pair, tmp_path, mishap):
    tasks = [Task(n, tmp_path, mishap if n == 2 else "") for n in range(5)]
    found = dict(pair.run(square, tasks))
    assert {n: value for n, (value, _) in found.items()} == {n: n * n for n in range(5)}


def test_hopeless_tasks_end_the_run(pair, tmp_path):
    with pytest.raises(InputError, match="liking"):
        list(pair.run(square, [Task(0, tmp_path, "input")]))
    with pytest.raises(TaskError, match=f"failed {MAX_FAILURES} times.*never there"):
        list(pair.run(square, [Task(0, tmp_path, "always")]))
    with pytest.raises(OSError, match="never there"):
        list(pair.run(square, [Task(0, tmp_path, "always")], final=lambda e: "never" in str(e)))
    assert dict(pair.run(square, [Task(3, tmp_path)]))[0][0] == 9


def test_a_run_given_up_leaves_no_stray_answer(pair, tmp_path):
    results = pair.run(who, range(5))
    next(results)
    results.close()
    assert dict(pair.run(square, [Task(4, tmp_path)]))[0][0] == 16


def test_the_ledger_gives_up_on_a_task_that_keeps_losing_its_worker():
    ledger = Ledger(["a"], None)
    for _ in range(MAX_LOSSES - 1):
        ledger.draw()
        ledger.lost((0, "a"), "killed")
    with pytest.raises(TaskError, match="lost its worker"):
        ledger.lost((0, "a"), "killed")


def test_workers_share_the_cores_for_arithmetic(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "5")
    with open_engine("local", workers=2) as engine:
        ours, users = (
            answer
            for _, answer in sorted(
                engine.run(arithmetic_threads, ["OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"])
            )
        )
    assert ours == (str(max(1, cores() // 2)), max(1, cores() // 2))
    assert users[0] == "5", "what the user has set stays"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_gpus_are_given_out_one_each(monkeypatch):
    monkeypatch.setattr("scalecal.engines.local.gpu_count", lambda: 2)
    with open_engine("local", num_gpus=2) as engine:
        assert (engine.workers, engine.gpus) == (2, True)
        found = dict(engine.run(who, range(6)))
    assert {(number, device) for number, device, _ in found.values()} == {
        (0, "cuda:0"),
        (1, "cuda:1"),
    }
    assert Worker().device is None


@pytest.mark.parametrize("here", [0, 1])
def test_num_gpus_counts_gpus_and_names_workers(monkeypatch, tiles, tmp_path, here):
    monkeypatch.setattr("scalecal.engines.local.gpu_count", lambda: here)
    with pytest.raises(InputError, match=f"{here} on this machine.*--workers 2"):
        open_engine("local", num_gpus=2)
    with pytest.raises(InputError, match=r"counts GPUs.*--workers"):
        extract(open_tiles(tiles), tiny_encoder(), tmp_path / "f", num_gpus=2, **USUAL)


@pytest.fixture
def by_two(pair):
    """Extract by two processes, as on a machine with two GPUs."""
    return partial(extract, engine=pair, **USUAL)


def test_extraction_by_processes_gives_the_same_bytes(by_two, tiles, alone, tmp_path):
    result = by_two(open_tiles(tiles), tiny_encoder(), tmp_path / "f")
    assert (result.n, result.n_skipped) == (39, 1)
    assert contents(tmp_path / "f") == alone
    assert "\n25," in (tmp_path / "f" / "skipped.csv").read_text()


def test_extraction_goes_on_after_a_worker_is_killed(by_two, tiles, alone, tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "TASKS_PER_WORKER", 1)  # runs of three shards
    encoder = troubled_encoder(tmp_path, "kill", after=5)
    by_two(open_tiles(tiles), encoder, tmp_path / "f")
    assert (tmp_path / "mishap").exists()
    assert contents(tmp_path / "f") == alone


def test_memory_running_out_halves_the_batch_for_all(by_two, tiles, tmp_path):
    small = tiny_encoder(most=2)
    extract(open_tiles(tiles), small, tmp_path / "a", **USUAL)
    by_two(open_tiles(tiles), tiny_encoder(most=2), tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_run_begun_alone_is_finished_by_several(by_two, tiles, alone, tmp_path):
    class Enough(Exception):
        pass

    images = open_tiles(tiles)
    begun = tmp_path / "f"
    calls = []

    def stop_in_the_middle(store, *rest):
        calls.append(rest)
        if len(calls) == 3:
            raise Enough
        return real(store, *rest)

    from scalecal.io.feature_store import StoreWriter

    real = StoreWriter.write_shard
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreWriter, "write_shard", stop_in_the_middle)
        with pytest.raises(Enough):
            extract(images, tiny_encoder(), begun, **USUAL)
    left = len(list(Path(begun, "shards").glob("*.npy")))
    assert 0 < left < 6
    by_two(images, tiny_encoder(), begun)
    assert contents(begun) == alone
