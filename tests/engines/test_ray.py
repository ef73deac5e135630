"""The Ray engine on a two-node cluster in this process: nodes and workers are lost, bytes are not."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from functools import partial

import pytest

from scalecal.checks import InputError
from scalecal.engines import open_engine
from scalecal.engines.local import TaskError
from scalecal.features import extract, extraction
from scalecal.features.extraction import Folder
from scalecal.progress import Progress
from tests.engines.encoders import troubled_encoder
from tests.engines.jobs import Task, counted, large, square, who
from tests.engines.test_local import USUAL
from tests.features.made import contents, open_tiles, tiny_encoder, write_tiles

ray = pytest.importorskip("ray")

# Ray itself warns of things to come, and leaves sockets to the garbage collector. On a machine that is
# busy with other tests its workers may take longer to start than a user is left without a word.
pytestmark = [
    pytest.mark.filterwarnings("ignore:no worker could start yet"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.xdist_group("ray"),
]

STORE_BYTES = 80 << 20  # about the least Ray takes


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "object_store_memory": STORE_BYTES,
                "include_dashboard": False,
            },
        )
        started.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        started.wait_for_nodes()
        ray.init(address=started.address, log_to_driver=False)
        yield started
        ray.shutdown()
        started.shutdown()


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    return write_tiles(tmp_path_factory.mktemp("tiles"), 40)


@pytest.fixture(scope="module")
def alone(tiles, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "f"
    extract(open_tiles(tiles), tiny_encoder(), out, **USUAL)
    return contents(out)


@pytest.mark.usefixtures("cluster")
def test_workers_keep_their_state_and_share_the_work(tmp_path):
    with open_engine("ray") as engine:
        assert engine.workers == 2
        set_up = partial(counted, folder=tmp_path)
        found = dict(engine.run(who, range(8), setup=set_up))
        assert sorted(found) == list(range(8))
        list(engine.run(who, range(3), setup=set_up))
    assert len(list(tmp_path.glob("setup-*"))) == 2
    assert ray.is_initialized()  # a cluster that was there is only joined


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("mishap", ["kill", "raise"])
def test_a_mishap_costs_one_task(tmp_path, mishap):
    tasks = [Task(n, tmp_path, mishap if n == 2 else "") for n in range(5)]
    with open_engine("ray") as engine:
        found = dict(engine.run(square, tasks))
    assert {n: value for n, (value, _) in found.items()} == {n: n * n for n in range(5)}


@pytest.mark.usefixtures("cluster")
def test_hopeless_tasks_end_the_run(tmp_path):
    with open_engine("ray", workers=1) as engine:
        with pytest.raises(InputError, match="liking"):
            list(engine.run(square, [Task(0, tmp_path, "input")]))
        with pytest.raises(TaskError, match="never there"):
            list(engine.run(square, [Task(0, tmp_path, "always")]))


@pytest.mark.usefixtures("cluster")
def test_results_larger_than_the_store_together_pass_through_it():
    with open_engine("ray") as engine:
        for _, result in engine.run(large, [24] * 12):
            assert result[-1] == 24.0
            del result


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("mishap", ["kill", "raise"])
def test_extraction_survives_a_mishap_with_the_same_bytes(tiles, alone, tmp_path, mishap):
    encoder = troubled_encoder(tmp_path, mishap)
    result = extract(open_tiles(tiles), encoder, tmp_path / "f", engine="ray", **USUAL)
    assert (tmp_path / "mishap").exists()
    assert result.n == 40
    assert contents(tmp_path / "f") == alone


@pytest.mark.usefixtures("cluster")
def test_a_folder_the_workers_do_not_see_is_written_here(tiles, alone, tmp_path, monkeypatch):
    # Workers that look under another name do not find the mark, as on a machine without the disk.
    def elsewhere(_path, mark, dtype):
        return Folder(tmp_path / "elsewhere", mark, dtype)

    monkeypatch.setattr(extraction, "Folder", elsewhere)
    monkeypatch.setattr(extraction, "TASKS_PER_WORKER", 1)  # runs of three shards, one sent back
    extract(open_tiles(tiles), tiny_encoder(), tmp_path / "f", engine="ray", **USUAL)
    assert contents(tmp_path / "f") == alone
    assert not (tmp_path / "elsewhere").exists()


def test_a_node_removed_in_the_middle_costs_its_unfinished_shards(cluster, tiles, alone, tmp_path):
    extra = cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
    images = open_tiles(tiles)
    removed = []
    advance = Progress.advance

    def lose_a_node(bar, n):
        if not removed:
            cluster.remove_node(extra, allow_graceful=False)
            removed.append(n)
        advance(bar, n)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "advance", lose_a_node)
        slow = tiny_encoder(wait=0.1)
        extract(images, slow, tmp_path / "f", engine="ray", workers=3, **USUAL)
    assert removed
    assert contents(tmp_path / "f") == alone


@pytest.mark.usefixtures("cluster")
def test_more_workers_than_the_cluster_holds_do_not_hold_up_the_rest(tmp_path):
    with open_engine("ray", workers=6) as engine:
        found = dict(engine.run(square, [Task(n, tmp_path) for n in range(4)]))
    assert len(found) == 4


@pytest.mark.usefixtures("cluster")
def test_gpus_that_are_yet_to_come_are_asked_for():
    with open_engine("ray", num_gpus=1) as engine:
        assert (engine.workers, engine.gpus) == (1, True)


def test_a_cluster_is_started_and_stopped_where_there_is_none():
    code = """
import ray
from scalecal.engines import open_engine
from tests.engines.jobs import who
with open_engine("ray", workers=1) as engine:
    print(dict(engine.run(who, [0])))
print(ray.is_initialized())
"""
    free = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=free, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["{0: (0, None, 1)}", "False"]
