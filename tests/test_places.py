"""Unusable outputs, full disks and inputs that vanish: clear errors, nothing half-written."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.cli.app import COMMANDS
from scalecal.features.extraction import Network
from scalecal.io import store
from scalecal.io.store import RECORD, Store, check_place, output_folder, write_file, write_text
from tests.cli_commands import find_command
from tests.features.made import contents, open_tiles, run, write_tiles

needs_no_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


def _dangling(root: Path) -> Path:
    (root / "link").symlink_to("nowhere")
    return root / "link"


def _file(root: Path) -> Path:
    (root / "file").touch()
    return root / "file"


def _read_only(root: Path) -> Path:
    (root / "closed").mkdir(mode=0o500)
    return root / "closed" / "run"


UNUSABLE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "dangling link": (_dangling, "it is a link to nothing"),
    "below a dangling link": (lambda root: _dangling(root) / "run", "is not a folder"),
    "below a file": (lambda root: _file(root) / "a" / "run", "is not a folder"),
    "long name": (lambda root: root / ("n" * 256), "at most 255 bytes"),
    "long name of few characters": (lambda root: root / ("ß" * 128) / "run", "at most 255 bytes"),
    "below a device": (lambda _: Path("/dev/null/run"), "is not a folder"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_output_is_named(tmp_path: Path, case: str) -> None:
    make, why = UNUSABLE[case]
    place = make(tmp_path)
    for folder in (True, False):
        with pytest.raises(InputError, match=why):
            check_place(place, folder=folder)
    with pytest.raises(InputError, match="it is a file, expected a folder"):
        check_place(_file(tmp_path))
    check_place(_file(tmp_path), folder=False)


@needs_no_root
def test_a_read_only_folder_is_found_before_the_work(tmp_path: Path) -> None:
    place = _read_only(tmp_path)
    with pytest.raises(InputError, match="may not be written to"):
        check_place(place)
    with pytest.raises(InputError, match="may not be written to"):
        check_place(place.parent)


def test_a_folder_that_may_not_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root sees it: the system's answer is replaced."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    for place in (tmp_path, tmp_path / "a" / "b"):
        with pytest.raises(InputError, match=f"the folder {tmp_path} may not be written to"):
            check_place(place)


def _commands_with_outputs() -> list[tuple[str, str]]:
    """(command, option) of every command that writes where it is told to."""
    return [
        (name, f"--{option.name}")
        for name in COMMANDS
        for option in find_command(name).params
        if option.name in ("out", "export")
    ]


@pytest.mark.parametrize(("command", "option"), _commands_with_outputs())
def test_every_command_finds_an_unusable_output_first(
    tmp_path: Path, command: str, option: str
) -> None:
    """Before its input is even looked for: there is none."""
    arguments = {
        "extract": ["folder:none", "uni"],
        "finetune": ["folder:none"],
        "fit": ["none.npz"],
        "predict": ["none", "none.npz"],
        "demo": [],
        "reproduce": [],
        "plan audit": [],
        "plan votes": [],
        "plan precision": [],
    }.get(command, ["none"])
    if command == "fit":
        arguments += ["--method", "none"]
    place = _dangling(tmp_path)
    result = CliRunner().invoke(app, [*command.split(), *arguments, option, str(place)])
    assert isinstance(result.exception, InputError), result.output
    assert "it is a link to nothing" in str(result.exception)


# Full disks


def _fail_at(patch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Let one of the calls by which files are written find a full disk, at its so many-th use."""
    real, seen = getattr(os, call), 0

    def full(*arguments: Any, **options: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **options)

    patch.setattr(store.os, call, full)


def _write_folder(root: Path, text: str) -> None:
    with output_folder(root / "run", kind="compare") as folder:
        for name in ("a.txt", "deep/b.txt"):
            (folder / name).parent.mkdir(exist_ok=True)
            write_text(folder / name, text)


def _write_parts(root: Path, text: str) -> None:
    with Store(root / "parts", {"text": "any"}, kind="finetune") as parts:
        for name in ("a.txt", "b.txt"):
            parts.write(name, text)


def _write_one(root: Path, text: str) -> None:
    write_file(root / "one" / "a.txt", text, kind="predict")


def _files(root: Path) -> dict[str, str]:
    return {
        str(p.relative_to(root)): p.read_text()
        for p in sorted(root.rglob("*"))
        if p.is_file() and p.name != RECORD
    }


@pytest.mark.parametrize("write", [_write_folder, _write_parts, _write_one])
@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir", "open"])
def test_a_full_disk_at_every_write(
    tmp_path: Path, write: Callable[[Path, str], None], call: str
) -> None:
    """Old files or new ones, each whole, under their names; and the same call mends it."""
    for number in range(1, 40):
        root = tmp_path / str(number)
        write(root, "old")
        old = _files(root)
        with pytest.MonkeyPatch.context() as patch:
            _fail_at(patch, call, number)
            try:
                write(root, "new")
            except InputError as error:
                assert "No space left on device" in str(error)  # noqa: PT017
            else:
                if _files(root) == dict.fromkeys(old, "new"):
                    break
        found = _files(root)
        assert set(found) <= set(old)  # no file of another name
        assert set(found.values()) <= {"old", "new"}
        write(root, "new")
        assert _files(root) == dict.fromkeys(old, "new")
    else:
        pytest.fail("every use of the call failed")


def _extract_with_small_files(tiles: Path, out: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1200, 1200))
    with pytest.raises(InputError, match="File too large"):
        run(open_tiles(tiles), out, dtype="float32", shard_rows=100)


def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    """The system's own refusal: the manifest can be written, a shard cannot."""
    tiles = write_tiles(tmp_path / "tiles", 60)
    process = multiprocessing.get_context("fork").Process(
        target=_extract_with_small_files, args=(tiles, tmp_path / "f")
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    assert not list((tmp_path / "f" / "shards").glob("*.npy"))
    assert not list((tmp_path / "f").rglob("*.partial"))
    run(open_tiles(tiles), tmp_path / "f", dtype="float32", shard_rows=100)
    run(open_tiles(tiles), tmp_path / "whole", dtype="float32", shard_rows=100)
    assert contents(tmp_path / "f") == contents(tmp_path / "whole")


# Inputs that vanish


def test_images_that_vanish_with_their_folder_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiles = write_tiles(tmp_path / "tiles", 30)
    run(open_tiles(tiles), tmp_path / "whole", workers=1)
    embed, batches = Network.__call__, 0

    def embed_and_lose(self: Network, batch: Any) -> Any:
        nonlocal batches
        batches += 1
        if batches == 6:
            tiles.rename(tmp_path / "away")
        return embed(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Network, "__call__", embed_and_lose)
        with pytest.raises(InputError, match="vanished while its images were read"):
            run(open_tiles(tiles), tmp_path / "f", workers=1)
    assert not (tmp_path / "f" / "skipped.csv").exists()
    shards = {p.name for p in (tmp_path / "f" / "shards").glob("*.npy")}
    assert shards  # what was finished is kept
    (tmp_path / "away").rename(tiles)
    run(open_tiles(tiles), tmp_path / "f", workers=1)
    assert contents(tmp_path / "f") == contents(tmp_path / "whole")


def test_an_output_that_vanishes_is_named(tmp_path: Path) -> None:
    with Store(tmp_path / "run", {}, kind="finetune") as parts:
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(InputError, match=r"cannot write .*No such file"):
            parts.write("a.txt", "text")
