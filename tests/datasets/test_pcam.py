from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np
import pytest

from scalecal.checks import InputError
from scalecal.datasets import open_dataset
from scalecal.datasets.image_sets import ImageSet
from tests.datasets.trees import make_pcam, pcam_images

STEM = "camelyonpatch_level_2_split_"


def everything() -> np.ndarray:
    return np.concatenate(
        [pcam_images("train", 12), pcam_images("valid", 5), pcam_images("test", 6)]
    )


def test_table(tmp_path: Path) -> None:
    opened = open_dataset("pcam", make_pcam(tmp_path), partial=True)
    table = opened.table
    assert opened.kind == "array"
    assert len(opened) == 23
    assert table["split"].value_counts().to_dict() == {"train": 12, "test": 6, "val": 5}
    assert table["id"][12] == "valid_000000"
    assert table["label"].tolist()[:4] == [1, 0, 0, 1]
    assert table["group"].tolist()[:5] == ["camelyon16_train_000"] * 4 + ["camelyon16_train_001"]
    assert table["row"].tolist()[11:14] == [11, 0, 1]
    assert table["votes"].isna().all()
    assert opened.describe()["groups"] == 3 + 2 + 2
    assert opened.describe()["votes"] is None
    assert opened.verify() == ()


@pytest.mark.parametrize("chunk", [None, 4])
def test_blocks_cross_file_borders(tmp_path: Path, chunk: int | None) -> None:
    opened = open_dataset("pcam", make_pcam(tmp_path, chunk=chunk), partial=True)
    whole = everything()
    for start, stop in ((0, 23), (3, 7), (10, 14), (11, 23), (22, 40), (5, 5)):
        block = opened.read_block(start, stop)
        assert block.dtype == np.uint8
        np.testing.assert_array_equal(block, whole[start:stop])
    np.testing.assert_array_equal(opened.read_one(13), whole[13])
    index = np.array([20, 1, 1, 15, 0])
    np.testing.assert_array_equal(opened.take(index).read_block(0, len(index)), whole[index])
    some = opened.take(np.array([22, 3, 4, 5]))
    np.testing.assert_array_equal(some.read_block(1, 4), whole[3:6])


def read_in_worker(opened: ImageSet, start: int, stop: int) -> int:
    return int(opened.read_block(start, stop).astype(np.int64).sum())


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_reads_in_worker_processes(tmp_path: Path, method: str) -> None:
    opened = open_dataset("pcam", make_pcam(tmp_path), partial=True)
    opened.read_one(0)  # a handle is open before the fork
    with ProcessPoolExecutor(2, mp_context=get_context(method)) as pool:
        jobs = [pool.submit(read_in_worker, opened, s, s + 8) for s in (0, 8, 16)]
        totals = [job.result() for job in jobs]
    whole = everything().astype(np.int64)
    assert totals == [int(whole[s : s + 8].sum()) for s in (0, 8, 16)]
    again = pickle.loads(pickle.dumps(opened))
    np.testing.assert_array_equal(again.read_one(4), whole[4])


def test_counts_and_missing_parts(tmp_path: Path) -> None:
    make_pcam(tmp_path)
    with pytest.raises(InputError, match="train patches: 12 found, 262,144 published"):
        open_dataset("pcam", tmp_path)
    (tmp_path / f"{STEM}valid_y.h5").unlink()
    opened = open_dataset("pcam", tmp_path, partial=True)
    assert sorted(opened.table["split"].unique()) == ["test", "train"]
    assert any("valid_y.h5 missing" in line for line in opened.warnings)
    for file in tmp_path.glob("*_x.h5"):
        file.unlink()
    with pytest.raises(InputError, match="no PatchCamelyon files"):
        open_dataset("pcam", tmp_path, partial=True)


def test_packed_files_are_to_be_unpacked(tmp_path: Path) -> None:
    root = make_pcam(tmp_path, gz=True)
    with pytest.raises(
        InputError, match=r"train_x\.h5 and .*train_y\.h5 missing.*gunzip \*\.h5\.gz"
    ):
        open_dataset("pcam", root)


def rewrite(file: Path, key: str, data: np.ndarray) -> None:
    with h5py.File(file, "w") as opened:
        opened[key] = data


def test_wrong_arrays(tmp_path: Path) -> None:
    make_pcam(tmp_path, {"train": 4})
    x, y = tmp_path / f"{STEM}train_x.h5", tmp_path / f"{STEM}train_y.h5"
    good = pcam_images("train", 4)
    cases = (
        (x, "images", good, "no array 'x'. It has: images"),
        (x, "x", good[:, :64], r"patches must be \(96, 96, 3\), got \(64, 96, 3\)"),
        (x, "x", good.astype(np.float32), "got .* float32"),
        (x, "x", good[..., 0], r"must be \(n, height, width, 3\) uint8, got \(4, 96, 96\)"),
        (x, "x", good[:3], "4 labels for the 3 patches"),
        (x, "x", good[:0], "holds no images"),
    )
    for file, key, data, message in cases:
        rewrite(file, key, data)
        with pytest.raises(InputError, match=message):
            open_dataset("pcam", tmp_path, partial=True)
    rewrite(x, "x", good)
    rewrite(y, "y", np.array([0, 1, 2, 0]))
    with pytest.raises(InputError, match="labels must be 0 or 1, got 2"):
        open_dataset("pcam", tmp_path, partial=True)
    x.write_bytes(x.read_bytes()[:5000])
    with pytest.raises(InputError, match="cannot be read as an HDF5 file"):
        open_dataset("pcam", tmp_path, partial=True)


def test_meta_file(tmp_path: Path) -> None:
    make_pcam(tmp_path, {"train": 4, "test": 4}, meta=False)
    opened = open_dataset("pcam", tmp_path, partial=True)
    assert opened.table["group"].isna().all()
    assert any("no camelyonpatch_level_2_split_train_meta.csv" in w for w in opened.warnings)
    meta = tmp_path / f"{STEM}train_meta.csv"
    meta.write_text(",wsi,center_tumor_patch\n0,a,False\n1,a,False\n2,b,False\n3,b,True\n")
    opened = open_dataset("pcam", tmp_path, partial=True)
    assert opened.table["group"].tolist()[:5] == ["a", "a", "b", "b", opened.table["group"][4]]
    assert any("contradicts 1 labels" in line for line in opened.warnings)
    meta.write_text(",wsi,center_tumor_patch\n0,a,False\n")
    with pytest.raises(InputError, match="1 rows for 4 patches"):
        open_dataset("pcam", tmp_path, partial=True)
    meta.write_text("slide\na\n")
    with pytest.raises(InputError, match="no column 'wsi'"):
        open_dataset("pcam", tmp_path, partial=True)
