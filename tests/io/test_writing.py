from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scalecal.checks import InputError
from scalecal.io import file_hash, output_folder, write_csv, write_json, write_text
from scalecal.io.store import plain


def tree(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_new_folder_appears_whole(tmp_path):
    target = tmp_path / "deep" / "run"
    with output_folder(target) as folder:
        write_text(folder / "a.txt", "a")
        (folder / "sub").mkdir()
        write_text(folder / "sub" / "b.txt", "b")
        assert not target.exists()
    assert tree(target) == {"a.txt": "a", "sub/b.txt": "b"}
    assert [p.name for p in target.parent.iterdir()] == ["run"]


def test_existing_folder_keeps_other_files(tmp_path):
    write_text(tmp_path / "old.txt", "old")
    write_text(tmp_path / "a.txt", "before")
    with output_folder(tmp_path) as folder:
        write_text(folder / "a.txt", "after")
        assert (tmp_path / "a.txt").read_text() == "before"
    assert tree(tmp_path) == {"old.txt": "old", "a.txt": "after"}
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("exists", [False, True])
def test_failure_leaves_no_trace(tmp_path, error, exists):
    target = tmp_path / "x" / "run"
    if exists:
        target.mkdir(parents=True)
        write_text(target / "a.txt", "before")

    def fail() -> None:
        with output_folder(target) as folder:
            write_text(folder / "a.txt", "after")
            raise error

    with pytest.raises(error):
        fail()
    if exists:
        assert tree(tmp_path) == {"x/run/a.txt": "before"}
        assert len(list(target.iterdir())) == 1
    else:
        assert list(tmp_path.iterdir()) == []


def test_refusals(tmp_path):
    write_text(tmp_path / "file", "")
    with pytest.raises(InputError, match="it is a file"), output_folder(tmp_path / "file"):
        pass
    with pytest.raises(InputError, match="cannot write to"), output_folder(tmp_path / "file" / "x"):
        pass
    with pytest.raises(InputError, match="already holds files"):  # noqa: SIM117
        with output_folder(tmp_path, overwrite=False):
            pass
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match="in the way"), output_folder(tmp_path) as folder:
        write_text(folder / "a", "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "file"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot write to"), output_folder(tmp_path / "x"):
        pass
    tmp_path.chmod(0o700)


def test_full_disk_is_one_line(tmp_path):
    with pytest.raises(InputError, match="No space"), output_folder(tmp_path / "x"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_json(tmp_path):
    obj = {
        "b": np.float32(0.5),
        "a": [np.nan, -np.inf, np.int64(2), np.bool_(True), None],
        "array": np.array([[1.0, np.nan]]),
        "path": tmp_path,
        "set": {"y", "x"},
        1: "é",
    }
    write_json(tmp_path / "x.json", obj)
    text = (tmp_path / "x.json").read_text("utf-8")
    read = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert list(read) == ["b", "a", "array", "path", "set", "1"]
    assert read["a"] == [None, None, 2, True, None]
    assert read["array"] == [[1.0, None]]
    assert read["set"] == ["x", "y"]
    write_json(tmp_path / "y.json", obj)
    assert file_hash(tmp_path / "x.json") == file_hash(tmp_path / "y.json")
    with pytest.raises(TypeError):
        plain(object())


def test_csv_and_hash(tmp_path):
    write_csv(pd.DataFrame({"a": [1, 2], "b": [0.1, np.nan]}), tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_bytes() == b"a,b\n1,0.1\n2,\n"
    assert file_hash(tmp_path / "x.csv") == hashlib.sha256(b"a,b\n1,0.1\n2,\n").hexdigest()
    with pytest.raises(InputError, match="cannot read"):
        file_hash(tmp_path / "none")
    with pytest.raises(InputError, match="cannot write"):
        write_text(tmp_path / "no" / "x", "")
