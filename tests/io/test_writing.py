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
from scalecal.io.boundary import SCHEMA
from scalecal.io.store import RECORD, Store, is_whole, plain, write_file


def tree(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): p.read_text()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != RECORD
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
    with output_folder(tmp_path) as folder:
        write_text(folder / "a.txt", "before")
    with output_folder(tmp_path) as folder:
        write_text(folder / "a.txt", "after")
        assert (tmp_path / "a.txt").read_text() == "before"
    assert tree(tmp_path) == {"old.txt": "old", "a.txt": "after"}
    assert len(list(tmp_path.iterdir())) == 3


def write(folder: Path, kind: str = "compare", inputs: tuple[Path, ...] = (), **files: str) -> None:
    with output_folder(folder, kind=kind, inputs=inputs, replace=True) as partial:
        for name, text in files.items():
            write_text(partial / f"{name}.txt", text)


def test_only_own_unchanged_files_are_replaced_or_removed(tmp_path):
    write(tmp_path / "run", a="1", b="1", c="1")
    (tmp_path / "run" / "c.txt").write_text("edited")
    write_text(tmp_path / "run" / "mine.txt", "mine")
    write(tmp_path / "run", a="2")
    assert tree(tmp_path / "run") == {"a.txt": "2", "c.txt": "edited", "mine.txt": "mine"}
    before = tree(tmp_path / "run")
    with pytest.raises(InputError, match=r"c\.txt.*changed since"):
        write(tmp_path / "run", a="3", c="3")
    with pytest.raises(InputError, match=r"mine\.txt.*did not write"):
        write(tmp_path / "run", a="3", mine="3")
    with pytest.raises(InputError, match=r"a\.txt.*scalecal compare"):
        write(tmp_path / "run", kind="audit", a="3")
    assert tree(tmp_path / "run") == before
    write(tmp_path / "run", kind="audit", other="4")  # beside the others, removing none
    assert tree(tmp_path / "run") == {**before, "other.txt": "4"}
    write(tmp_path / "run", a="2", mine="mine")  # the same bytes are not in the way


@pytest.mark.parametrize("how", ["same", "symlink", "hard link", "folder link"])
def test_an_output_is_never_an_input(tmp_path, how):
    source = tmp_path / "a.txt"
    source.write_text("input")
    out = tmp_path / "out"
    out.mkdir()
    if how == "same":
        out = tmp_path
    elif how == "symlink":
        (out / "a.txt").symlink_to(source)
    elif how == "hard link":
        (out / "a.txt").hardlink_to(source)
    else:
        out.rmdir()
        out.symlink_to(tmp_path)
    with pytest.raises(InputError, match="is the input"):
        write(out, inputs=(source,), a="output")
    with pytest.raises(InputError, match="is the input"):
        write_file(out / "a.txt", "output", kind="predict", inputs=[None, source])
    assert source.read_text() == "input"
    with pytest.raises(InputError, match="is the input"):
        write(out, inputs=(out,), b="output")


def test_a_link_in_the_way_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a.txt").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="a link"):
        write(tmp_path, a="1")
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_pipe_in_the_way_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "out.csv")
    with pytest.raises(InputError, match="a pipe or device of that name is in the way"):
        write_file(tmp_path / "out.csv", "x", kind="predict")


def test_a_loop_of_links_is_no_surprise(tmp_path):
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    write_file(tmp_path / "out.csv", "x", kind="predict", inputs=[tmp_path / "loop.csv"])
    assert (tmp_path / "out.csv").read_text() == "x"


def test_names_that_are_not_utf8_are_written_escaped(tmp_path):
    odd = os.fsdecode(b"\xff.csv")
    write_file(tmp_path / odd, f"{odd} \u00e9", kind="predict")
    assert (tmp_path / odd).read_text() == "\\udcff.csv \u00e9"
    write_json(tmp_path / "a.json", {"name": odd, odd: [Path(odd)]})
    assert json.loads((tmp_path / "a.json").read_text())["name"] == "\\udcff.csv"
    write_file(tmp_path / "b.csv", "x", kind="predict")  # the record can be read


def test_killed_at_any_step_the_files_stay_our_own(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    for step in range(1, 40):
        run = tmp_path / str(step)
        write(run, a="1", b="1", c="1")
        calls = 0

        def replace(*args, limit=step, real=os.replace):
            nonlocal calls
            calls += 1
            if calls == limit:
                raise Killed
            real(*args)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            try:
                write(run, a="2", b="2")
                killed = False
            except Killed:
                killed = True
        write(run, a="3", b="3")
        assert tree(run) == {"a.txt": "3", "b.txt": "3"}
        assert is_whole(run)
        if not killed:
            break
    assert step > 5


def test_a_store_goes_on_with_the_same_settings_only(tmp_path):
    def store(epochs=3):
        return Store(tmp_path / "run", {"options": {"epochs": epochs}}, kind="finetune")

    with store() as one:
        one.write("parts/a.json", "1")
        with pytest.raises(InputError, match="another run"), store():
            pass
    with store() as one:
        assert one.done("parts/a.json")
        assert not one.done("parts/b.json")
        (tmp_path / "run" / "parts" / "a.json").write_text("cut")
        assert not one.done("parts/a.json")
    with pytest.raises(InputError, match=r"options\.epochs: 3 there, 5 here"), store(5):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match="thesis"), Store(tmp_path / "mine", {}, kind="x"):
        pass
    assert tree(tmp_path / "mine") == {"thesis.txt": "precious"}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("exists", [False, True])
def test_failure_leaves_no_trace(tmp_path, error, exists):
    target = tmp_path / "x" / "run"
    if exists:
        target.mkdir(parents=True)
        with output_folder(target) as folder:
            write_text(folder / "a.txt", "before")

    def fail() -> None:
        with output_folder(target) as folder:
            write_text(folder / "a.txt", "after")
            raise error

    with pytest.raises(error):
        fail()
    if exists:
        assert tree(tmp_path) == {"x/run/a.txt": "before"}
        assert len(list(target.iterdir())) == 2
    else:
        assert list(tmp_path.iterdir()) == []


def test_refusals(tmp_path):
    write_text(tmp_path / "file", "")
    with pytest.raises(InputError, match="it is a file"), output_folder(tmp_path / "file"):
        pass
    with pytest.raises(InputError, match="cannot write"), output_folder(tmp_path / "file" / "x"):
        pass
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match="in the way"), output_folder(tmp_path) as folder:
        write_text(folder / "a", "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "file"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot write"), output_folder(tmp_path / "x"):
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
    assert list(read) == ["schema", "b", "a", "array", "path", "set", "1"]
    assert read["schema"] == SCHEMA
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
