"""Names of files in our own documents lead nowhere but into the folder of the document.

Which documents name files is found by looking: one that begins to do so fails here until it is attacked too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scalecal.checks import InputError
from scalecal.evaluation.folder import read_runs
from scalecal.io.feature_store import load_features
from scalecal.io.store import (
    RECORD,
    Store,
    check_output_folder,
    is_own,
    is_whole,
    output_folder,
    write_file,
    write_text,
    written_by,
)
from scalecal.probes import load_probe
from tests.fuzz.documents import make_features, make_probe, make_run

PRECIOUS = b"precious"
ENTRY = {"sha256": hashlib.sha256(PRECIOUS).hexdigest(), "by": "audit"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A folder of every kind that holds documents of ours."""
    root = tmp_path_factory.mktemp("folders")
    return {
        "run": make_run(root / "run"),
        "probe": make_probe(root / "probe"),
        "features": make_features(root / "features"),
    }


def texts(value: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Every key and text of a document, with the place of it; entries of a list share one."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield path, key
            yield from texts(each, f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, f"{path}[]")
    elif isinstance(value, str):
        yield path, value


def test_documents_that_name_files_are_known(folders):
    named = set()
    for folder in folders.values():
        for file in sorted(folder.rglob("*.json")):
            for place, text in texts(json.loads(file.read_bytes())):
                if len(text) < 200 and (file.parent / text).is_file():
                    named.add((file.name, place))
    assert named == {
        (RECORD, "$.files"),
        ("manifest.json", "$.shards[].file"),
        ("manifest.json", "$.table.file"),
        # Names of two fixed files, which are compared with those that are there and not opened.
        ("facts.json", "$.made_from"),
    }


def _replace_output(folder: Path) -> None:
    with output_folder(folder, kind="audit", replace=True) as partial:
        write_text(partial / "new.txt", "new")


def _remove_part(folder: Path) -> None:
    with Store(folder, {}, kind="audit") as store:
        for name in json.loads((folder / RECORD).read_bytes())["files"]:
            store.remove(name)


READERS = {
    "an output is checked": lambda folder: check_output_folder(folder, kind="audit"),
    "an output is replaced": _replace_output,
    "a file is written": lambda folder: write_file(folder / "new.txt", "new", kind="audit"),
    "a part is removed": _remove_part,
    "a folder is looked at": is_whole,
    "a file is looked at": lambda folder: is_own(folder / "new.txt"),
    "a writer is looked up": lambda folder: written_by(folder / "new.txt"),
}

PARTS = ("..", ".", "sub", "linked", "v.txt", "elsewhere", "folder", "sub/..", "..\\v.txt", "")
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("/".join)


def _make(root: Path) -> Path:
    """A folder with a link out of it, beside files that are nobody else's to touch."""
    folder = root / "folder"
    (root / "elsewhere").mkdir()
    (folder / "sub").mkdir(parents=True)
    for place in (root, root / "elsewhere"):
        (place / "v.txt").write_bytes(PRECIOUS)
    (folder / "linked").symlink_to(root / "elsewhere")
    return folder


def _leads_out(folder: Path, name: str) -> bool:
    """Whether the file of a name is elsewhere, the links on the way to it followed."""
    place = folder / name
    # The folder itself is named by "."; a link of that name is not followed.
    above = os.path.realpath(place if place == folder else place.parent)
    return not Path(above).is_relative_to(os.path.realpath(folder))


@pytest.mark.parametrize("reader", READERS)
@given(name=NAMES, absolute=st.booleans())
@example(name="../v.txt", absolute=False)
@example(name="elsewhere/v.txt", absolute=True)
@example(name="linked/v.txt", absolute=False)
@settings(max_examples=60)
def test_a_record_leads_nowhere_else(reader, name, absolute):
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        folder = _make(root)
        if absolute:
            name = str(root / name)
        record = {"kind": "audit", "settings": {}, "files": {name: ENTRY}}
        (folder / RECORD).write_text(json.dumps(record))
        error = None
        try:
            READERS[reader](folder)
        except InputError as raised:
            error = str(raised)
        for place in (root, root / "elsewhere"):
            assert (place / "v.txt").read_bytes() == PRECIOUS
        if _leads_out(folder, name):
            assert error is not None
            assert "outside its folder" in error
            assert "\n" not in error


@pytest.mark.parametrize("reader", READERS)
def test_a_zero_byte_in_a_record_is_no_name(reader, tmp_path):
    folder = _make(tmp_path)
    record = {"kind": "audit", "settings": {}, "files": {"a\0b": ENTRY}}
    (folder / RECORD).write_text(json.dumps(record))
    with pytest.raises(InputError, match="outside its folder"):
        READERS[reader](folder)


@pytest.mark.parametrize("place", ["table", "skipped", "shards"])
@given(name=NAMES, absolute=st.booleans())
@settings(max_examples=40)
def test_a_manifest_leads_nowhere_else(folders, place, name, absolute):
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        shutil.copytree(folders["features"], root / "folder")
        (root / "v.txt").write_bytes(PRECIOUS)
        if absolute:
            name = str(root / name)
        file = root / "folder" / "manifest.json"
        manifest = json.loads(file.read_bytes())
        if place == "shards":
            manifest["shards"][0]["file"] = name
        else:
            manifest[place] = {"file": name, "sha256": ENTRY["sha256"]}
        file.write_text(json.dumps(manifest))
        with pytest.raises(InputError, match=r"manifest\.json") as raised:
            load_features(root / "folder", verify=True)
        assert "\n" not in str(raised.value)
        assert (root / "v.txt").read_bytes() == PRECIOUS


def test_the_folders_are_read_as_they_are(folders):
    """The attacks change nothing but the name."""
    assert len(read_runs([folders["run"]])) == 1
    assert load_probe(folders["probe"]).n_features_in_ == 3
    assert len(load_features(folders["features"], verify=True).X) == 8
