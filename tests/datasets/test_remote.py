"""Images at an address: the same set, hash and features as from the local folder."""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path

import numpy as np
import pytest

from scalecal.checks import InputError, MissingPackageError
from scalecal.datasets import open_dataset
from scalecal.datasets.image_sources import ImageError, RemoteSource, remote_url
from scalecal.engines import open_engine
from scalecal.features import extract
from tests.features.made import contents, tiny_encoder, write_tiles

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def tiles(tmp_path: Path) -> Path:
    return write_tiles(tmp_path / "tiles", 9)


@pytest.fixture
def bucket(tiles: Path) -> str:
    """The tiles in fsspec's file system in memory."""
    url = f"memory://{uuid.uuid4().hex}/tiles"
    system = fsspec.filesystem("memory")
    for file in sorted(tiles.rglob("*.png")):
        system.pipe_file(f"{url}/{file.relative_to(tiles).as_posix()}", file.read_bytes())
    return url


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_the_same_set_wherever_it_lies(tiles: Path, bucket: str, protocol: str) -> None:
    local = open_dataset(f"folder:{tiles}")
    remote = open_dataset(f"folder:{bucket if protocol == 'memory' else f'file://{tiles}'}")
    assert isinstance(remote.source, RemoteSource)
    assert remote.table.equals(local.table)
    assert remote.fingerprint() == local.fingerprint()
    np.testing.assert_array_equal(remote.read_one(3), local.read_one(3))
    assert remote.source.size() == local.source.size()
    assert pickle.loads(pickle.dumps(remote)).read_one(0).shape == (20, 20, 3)


def test_a_table_of_remote_images(tiles: Path, bucket: str, tmp_path: Path) -> None:
    names = [p.relative_to(tiles).as_posix() for p in sorted(tiles.rglob("*.png"))]
    listed = tmp_path / "cases.csv"
    listed.write_text("path,label\n" + "".join(f"{n},{i % 2}\n" for i, n in enumerate(names)))
    # A path object makes one slash of two.
    remote = open_dataset(f"table:{listed}", Path(bucket))
    local = open_dataset(f"table:{listed}", tiles)
    assert remote.fingerprint() == local.fingerprint()
    options = {"device": "cpu", "batch_size": 3, "progress": False}
    extract(remote, tiny_encoder(), tmp_path / "a", **options)
    extract(local, tiny_encoder(), tmp_path / "b", **options)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    listed.write_text("path,label\n../secret.png,0\n")
    with pytest.raises(InputError, match="leads out of"):
        open_dataset(f"table:{listed}", bucket)
    listed.write_text("path,label\nnone.png,0\n")
    with pytest.raises(InputError, match="are not in memory://"):
        open_dataset(f"table:{listed}", bucket)
    listed.write_text("path,label,row\na.h5,0,0\n")
    with pytest.raises(InputError, match="are not in"):
        open_dataset(f"table:{listed}", bucket)


def test_several_workers_fetch_for_themselves(tiles: Path, tmp_path: Path) -> None:
    options = {"device": "cpu", "batch_size": 3, "shard_rows": 4, "progress": False}
    remote = open_dataset(f"folder:file://{tiles}")
    with open_engine("local", workers=2) as engine:
        extract(remote, tiny_encoder(), tmp_path / "a", engine=engine, **options)
    extract(open_dataset(f"folder:{tiles}"), tiny_encoder(), tmp_path / "b", **options)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_what_is_wrong_is_said(bucket: str) -> None:
    with pytest.raises(InputError, match="no such folder"):
        open_dataset("folder:memory://nowhere/at/all")
    with pytest.raises((InputError, MissingPackageError), match="nosuch"):
        open_dataset("folder:nosuch://bucket/x")
    source = RemoteSource(bucket, ("gone.png",))
    with pytest.raises(ImageError, match="no such file"):
        source.read_one(0)
    assert remote_url(None) is None
    assert remote_url("gs://b/", "/x/") == "gs://b/x"
