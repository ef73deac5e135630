"""Feature folders that were tampered with: a clear message, no file outside them is opened."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from scalecal.checks import InputError, ScalecalWarning
from scalecal.io import feature_store
from scalecal.io.feature_store import StoreWriter, load_features
from scalecal.io.features import read_features

X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
TABLE = pd.DataFrame({"id": [f"c{i}" for i in range(12)], "label": [0, 1] * 6})
SETTINGS = {
    "encoder": {"name": "mine"},
    "dataset": {"name": "tiles", "n_images": 12, "classes": ["a", "b"]},
}
ODD = (None, True, -1, 10**30, 0.5, "", "../x", [], {}, [None], {"a": 1})


def fill(path: Path, shards: int | None = None) -> Path:
    """Write a folder of three shards, or only the first so many of them."""
    with StoreWriter(path, SETTINGS, TABLE, dim=3, shard_rows=5, dtype="float32") as store:
        for shard, start, stop in store.missing()[:shards]:
            store.write_shard(shard, X[start:stop])
        if not store.missing():
            store.finish()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path / "f")


def use(path: Path) -> None:
    found = load_features(path)
    assert np.array_equal(np.asarray(found.X), X)
    assert (len(found), len(found.table), isinstance(found.encoder, str)) == (12, 12, True)
    read_features(path, positive="b")


def variants(content: Any) -> Iterator[Any]:
    """Every copy of a document with one key missing, one value of another kind, or one key more."""

    def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, below in inner:
            yield (*way, key)
            if isinstance(below, dict | list):
                yield from places(below, (*way, key))

    for way in places(content):
        for value in ("delete", *ODD):
            changed = copy.deepcopy(content)
            home = changed
            for key in way[:-1]:
                home = home[key]
            if value == "delete":
                del home[way[-1]]
            else:
                home[way[-1]] = value
            yield changed


@pytest.mark.parametrize("shards", [None, 2])
def test_any_change_of_a_manifest_is_harmless_or_named(tmp_path: Path, shards: int | None) -> None:
    path = fill(tmp_path / "embedded", shards)
    file = path / "manifest.json"
    refused = 0
    for changed in list(variants(json.loads(file.read_text())))[::2]:
        file.write_text(json.dumps(changed))
        try:
            use(path)
        except InputError as error:
            refused += 1
            assert "embedded" in str(error)  # noqa: PT017
    assert refused > 50


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a":' + "[" * 10**5 + "]" * 10**5 + "}", "nested too deeply"),
        (
            '{"format": "scalecal-features-1", "dim": "x"}',
            r"Expected `int`, got `str` - at `\$\.dim`",
        ),
        ('{"format": "scalecal-features-1"}', "missing required field `complete`"),
        ("\ufeff\0", "not a JSON file"),
        ("", "not a JSON file"),
    ],
)
def test_manifests_that_cannot_be_read(folder: Path, text: str, says: str) -> None:
    (folder / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=rf"manifest\.json: .*{says}.* Extract again"):
        use(folder)


@pytest.mark.parametrize("name", ["../other.npy", "/etc/passwd", "shards/00001.npy", "x\0y"])
def test_shards_are_the_folders_own(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["shards"][0]["file"] = name
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        InputError, match=r"Expected 'shards/00000\.npy' - at `\$\.shards\[0\]\.file`"
    ):
        use(folder)


@pytest.mark.parametrize("name", ["shards/00001.npy", "table.parquet", "shards"])
def test_links_that_lead_out_are_not_followed(folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    with pytest.raises(InputError, match="which is outside its folder"):
        use(folder)


def test_pipes_and_loops_are_not_opened(folder: Path) -> None:
    for name in ("shards/00001.npy", "table.parquet", "manifest.json"):
        kept = (folder / name).read_bytes()
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with pytest.raises(InputError, match=r"is missing|does not match|is a named pipe"):
            use(folder)
        (folder / name).unlink()
        (folder / name).symlink_to(Path(name).name)
        with pytest.raises(InputError, match=r"is outside|Too many levels|is missing"):
            use(folder)
        (folder / name).unlink()
        (folder / name).write_bytes(kept)
    use(folder)


def test_the_log_is_no_link_and_no_pipe(tmp_path: Path) -> None:
    path = fill(tmp_path / "f", 2)
    (tmp_path / "precious").write_text("x")
    (path / "run.log").unlink()
    (path / "run.log").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match=r"cannot write .*run\.log"):
        fill(path)
    assert (tmp_path / "precious").read_text() == "x"
    (path / "run.log").unlink()
    os.mkfifo(path / "run.log")
    with pytest.raises(InputError, match=r"cannot write .*run\.log"):
        fill(path)


def test_a_shard_changed_at_its_length_is_found(folder: Path, tmp_path: Path) -> None:
    whole = folder / "shards" / "00000.npy"
    part = fill(tmp_path / "part", 2) / "shards" / "00000.npy"
    for shard in (whole, part):
        content = bytearray(shard.read_bytes())
        content[-1] ^= 64
        shard.write_bytes(content)
    with pytest.raises(InputError, match=r"00000\.npy does not match its sha256"):
        read_features(folder)
    with pytest.warns(ScalecalWarning, match=r"00000\.npy is damaged: made again"):
        fill(tmp_path / "part")
    use(tmp_path / "part")
    assert (part.parent / "00000.npy.damaged").exists()


def test_shards_of_large_folders_must_have_their_shape(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_store, "HASHED_BYTES", 0)
    shard = folder / "shards" / "00000.npy"
    content = shard.read_bytes()
    use(folder)
    for old, new in ((b"<f4", b"<i4"), (b"(5, 3)", b"(3, 5)"), (b"False", b"True "), (b"{", b"(")):
        shard.write_bytes(content.replace(old, new))
        with pytest.raises(InputError, match=r"00000\.npy (holds|cannot be read|declares)"):
            use(folder)


def test_any_damage_of_a_note_makes_its_shard_again(tmp_path: Path) -> None:
    start = fill(tmp_path / "start", 1)
    note = json.loads((start / "shards" / "00000.json").read_text())
    texts = [json.dumps(changed) for changed in list(variants(note))[::16]]
    for k, text in enumerate((*texts, "{", "[" * 10**5)):
        path = tmp_path / str(k)
        shutil.copytree(start, path)
        (path / "shards" / "00000.json").write_text(text)
        use(fill(path))
        shutil.rmtree(path)


def test_labels_beyond_the_classes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_store, "HASHED_BYTES", 0)
    TABLE.assign(label=[0, 5] * 6).to_parquet(folder / "table.parquet")
    with pytest.raises(InputError, match="label 5 is none of the 2 classes"):
        read_features(folder, positive="b")
    TABLE[:4].to_parquet(folder / "table.parquet")
    with pytest.raises(InputError, match="has 4 rows, the manifest says 12"):
        read_features(folder, positive="b")
    (folder / "table.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read as a Parquet file"):
        read_features(folder, positive="b")
