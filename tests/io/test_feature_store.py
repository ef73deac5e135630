"""The feature folder: whole files or none, settings kept apart, rows found again."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalecal.checks import InputError, ScalecalWarning
from scalecal.features import FeatureFolder, ShardedArray, load_features
from scalecal.io import store as files
from scalecal.io.feature_store import Skipped, StoreWriter, shard_ranges
from scalecal.io.store import differences, write_bytes

SETTINGS = {"encoder": {"name": "tiny", "mean": (0.5, 0.5)}, "dataset": {"name": "made"}}


def make_table(n: int) -> pd.DataFrame:
    return pd.DataFrame(
        {"id": [f"bild_ä{i}" for i in range(n)], "label": np.arange(n) % 2, "votes": np.arange(n)}
    )


def matrix(n: int, dim: int = 3) -> np.ndarray:
    return np.arange(n * dim, dtype=np.float32).reshape(n, dim) / 8


def open_made(path: Path, n: int = 10, **changes: Any) -> StoreWriter:
    options: dict[str, Any] = {"dim": 3, "shard_rows": 4, **changes}
    return StoreWriter(path, options.pop("settings", SETTINGS), make_table(n), **options)


def fill(path: Path, n: int = 10, skip: tuple[int, ...] = (), **changes: Any) -> FeatureFolder:
    with open_made(path, n, **changes) as store:
        x = matrix(n)
        for shard, start, stop in store.missing():
            kept = [r for r in range(start, stop) if r not in skip]
            left_out = [
                Skipped(r, f"bild_ä{r}", "truncated") for r in range(start, stop) if r in skip
            ]
            store.write_shard(shard, x[kept], left_out)
        store.finish()
    return load_features(path)


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in sorted(path.rglob("*"))
        if p.is_file() and p.name != "run.log"
    }


def test_round_trip(tmp_path: Path) -> None:
    features = fill(tmp_path / "ünï")
    assert features.X.shape == (10, 3)
    assert features.X.dtype == np.float16
    np.testing.assert_array_equal(np.asarray(features.X), matrix(10).astype(np.float16))
    pd.testing.assert_frame_equal(features.table, make_table(10))
    assert features.encoder == "tiny"
    assert features.classes is None
    assert [shard["rows"] for shard in features.manifest["shards"]] == [4, 4, 2]
    load_features(tmp_path / "ünï", verify=True)


def test_one_shard_is_a_plain_memory_map(tmp_path: Path) -> None:
    features = fill(tmp_path, n=1)
    assert isinstance(features.X, np.memmap)
    np.testing.assert_array_equal(features.X, matrix(1))


def test_skipped_rows_leave_table_and_matrix_aligned(tmp_path: Path) -> None:
    # A whole shard (rows 4 .. 7) may be unreadable.
    features = fill(tmp_path, skip=(0, 4, 5, 6, 7, 9))
    kept = [1, 2, 3, 8]
    np.testing.assert_array_equal(np.asarray(features.X), matrix(10)[kept])
    assert features.table["votes"].tolist() == kept
    assert [shard["rows"] for shard in features.manifest["shards"]] == [3, 0, 1]
    listed = pd.read_csv(tmp_path / "skipped.csv")
    assert listed["row"].tolist() == [0, 4, 5, 6, 7, 9]
    assert listed["id"].tolist()[0] == "bild_ä0"
    assert (features.manifest["n"], features.manifest["n_skipped"]) == (4, 6)


def test_all_skipped_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of the 10 images could be read.*truncated"):
        fill(tmp_path, skip=tuple(range(10)))


@pytest.mark.parametrize("stop_after", [0, 1, 2, 3])
def test_resumed_equals_uninterrupted(tmp_path: Path, stop_after: int) -> None:
    fill(tmp_path / "whole", skip=(5,))
    with open_made(tmp_path / "parts") as store:
        for shard, start, stop in store.missing()[:stop_after]:
            kept = [r for r in range(start, stop) if r != 5]
            gone = [Skipped(5, "bild_ä5", "truncated")] if start <= 5 < stop else []
            store.write_shard(shard, matrix(10)[kept], gone)
    with pytest.raises(
        InputError,
        match=rf"not finished \({stop_after} shards.*scalecal extract made --data DIR tiny",
    ):
        load_features(tmp_path / "parts")
    with open_made(tmp_path / "parts") as store:
        assert len(store.missing()) == 3 - stop_after
    fill(tmp_path / "parts", skip=(5,))
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    fill(tmp_path / "parts")  # a finished folder is left as it is
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_every_step_of_the_writing_may_be_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop at each rename and each fsync in turn; the next run must end with the same bytes."""
    fill(tmp_path / "whole", n=6, skip=(1,))
    expected = contents(tmp_path / "whole")

    class Killed(BaseException):
        pass

    for step in range(200):
        path = tmp_path / f"run{step}"
        calls = 0

        def count(function: Any, limit: int = step) -> Any:
            def wrapped(*args: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls > limit:
                    raise Killed
                return function(*args)

            return wrapped

        with monkeypatch.context() as patch:
            patch.setattr(files.os, "replace", count(os.replace))
            patch.setattr(files.os, "fsync", count(os.fsync))
            # A kill runs no clean-up either.
            patch.setattr(Path, "unlink", lambda *_, **__: None)
            try:
                fill(path, n=6, skip=(1,))
                finished = True
            except Killed:
                finished = False
        fill(path, n=6, skip=(1,))
        assert contents(path) == expected
        if finished:
            break
    assert finished
    assert step > 15


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"settings": {**SETTINGS, "encoder": {"name": "other"}}}, r"encoder\.name: 'tiny' there"),
        ({"settings": {**SETTINGS, "compile": True}}, "compile: None there, True here"),
        ({"dim": 4}, "dim: 3 there, 4 here"),
        ({"dtype": "float32"}, "dtype: 'float16' there, 'float32' here"),
        ({"shard_rows": 8}, "shard_rows: 4 there, 8 here"),
        ({"n": 11}, r"columns\.id: .*columns\.label: .*columns\.votes: "),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_other_settings_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], named: str, finished: bool
) -> None:
    if finished:
        fill(tmp_path)
    else:
        with open_made(tmp_path) as store:
            store.write_shard(0, matrix(4))
    before = contents(tmp_path)
    with pytest.raises(InputError, match=named):
        open_made(tmp_path, **changes)
    assert contents(tmp_path) == before


def test_a_folder_without_shards_starts_afresh(tmp_path: Path) -> None:
    with open_made(tmp_path / "a"):
        pass
    other = {**SETTINGS, "compile": True}
    fill(tmp_path / "a", n=11, settings=other)
    fill(tmp_path / "b", n=11, settings=other)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_other_images_are_refused(tmp_path: Path) -> None:
    one, two = ({**SETTINGS, "dataset": {"name": "made", "hash": h}} for h in ("x1", "x2"))
    fill(tmp_path, settings=one)
    with pytest.raises(
        InputError, match=r"of other images or settings \(dataset\.hash: 'x1' there"
    ):
        open_made(tmp_path, settings=two)


DAMAGE = {
    "cut": lambda file: os.truncate(file, 10),
    "gone": lambda file: file.unlink(),
    "changed": lambda file: file.write_bytes(file.read_bytes()[:-1] + b"?"),
}


@pytest.mark.parametrize("damage", list(DAMAGE))
@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("shards/00001.npy", [1]),
        ("table.parquet", []),
        ("skipped.csv", []),
    ],
)
def test_damaged_files_of_a_finished_folder_are_done_again(
    tmp_path: Path, name: str, again: list[int], damage: str
) -> None:
    skip = (1, 5)
    fill(tmp_path, skip=skip)
    before = contents(tmp_path)
    DAMAGE[damage](tmp_path / name)
    with (
        pytest.warns(ScalecalWarning, match=f"{name} is damaged"),
        open_made(tmp_path) as store,
    ):
        left = [shard for shard, _, _ in store.missing()]
    assert left == again
    fill(tmp_path, skip=skip)
    # What was there is kept: somebody may have edited it.
    aside = contents(tmp_path).keys() - before.keys()
    assert aside == (set() if damage == "gone" else {f"{name}.damaged"})
    assert {k: v for k, v in contents(tmp_path).items() if k not in aside} == before


def test_restart_throws_the_shards_away(tmp_path: Path) -> None:
    with open_made(tmp_path / "a", settings={**SETTINGS, "batch_size": 8}) as store:
        store.write_shard(0, matrix(4))
        store.restart(batch_size=4)
        assert len(store.missing()) == 3
    fill(tmp_path / "a", settings={**SETTINGS, "batch_size": 4})
    fill(tmp_path / "b", settings={**SETTINGS, "batch_size": 4})
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    with open_made(tmp_path), pytest.raises(InputError, match="another run is writing"):
        open_made(tmp_path)


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match=r"not empty.*thesis\.txt"):
        open_made(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write"):
        open_made(tmp_path / "file")


def test_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_made(tmp_path) as store:
        store.write_shard(0, matrix(4))
        before = contents(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(files.os, "fsync", full)
            with pytest.raises(InputError, match=r"No space left.*run the same command again"):
                store.write_shard(1, matrix(4))
        assert contents(tmp_path) == before


def test_write_bytes_keeps_the_old_file_on_failure(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")

    with pytest.raises(TypeError):
        write_bytes(target, b"half", 7)  # type: ignore[arg-type]
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (1e6, "float16", r"'bild_ä2' is too large for float16 .*: keep float32"),
        (np.nan, "float16", r"'bild_ä2' holds NaN"),
        (np.inf, "float32", r"'bild_ä2' holds NaN or infinity"),
    ],
)
def test_values_that_cannot_be_kept(tmp_path: Path, value: float, dtype: str, message: str) -> None:
    x = matrix(3)
    x[1] = value
    with open_made(tmp_path, dtype=dtype) as store, pytest.raises(InputError, match=message):
        store.write_shard(0, x, [Skipped(1, "bild_ä1", "broken")])


def test_bad_tables(tmp_path: Path) -> None:
    table = make_table(3)
    with pytest.raises(InputError, match="no images"):
        StoreWriter(tmp_path, SETTINGS, table.iloc[:0], dim=3)
    with pytest.raises(InputError, match="column 'id'"):
        StoreWriter(tmp_path, SETTINGS, table[["label"]], dim=3)
    table.loc[2, "id"] = table.loc[0, "id"]
    with pytest.raises(InputError, match=r"must be unique: .*'bild_ä0' at rows 0, 2"):
        StoreWriter(tmp_path, SETTINGS, table, dim=3)
    assert list(tmp_path.iterdir()) == []


def test_changed_files_are_found(tmp_path: Path) -> None:
    fill(tmp_path)
    shard = tmp_path / "shards" / "00001.npy"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + b"\x01")
    load_features(tmp_path, verify=False)
    with pytest.raises(InputError, match=r"00001\.npy does not match its sha256"):
        load_features(tmp_path)
    shard.write_bytes(whole[:-1])
    with pytest.raises(InputError, match="bytes, not"):
        load_features(tmp_path)
    shard.unlink()
    with pytest.raises(InputError, match="is missing"):
        load_features(tmp_path)


def test_manifests_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(InputError, match="Expected `object`, got `array`"):
        load_features(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 3}')
    with pytest.raises(InputError, match="not a feature manifest: format is 3"):
        load_features(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="not a JSON file"):
        load_features(tmp_path)


def test_manifest_says_what_made_it(tmp_path: Path) -> None:
    fill(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["encoder"]["name"] == "tiny"
    assert {"version", "dtype", "columns", "shards", "table", "n"} <= manifest.keys()
    assert "requested" not in manifest


def test_differences_names_nested_and_missing() -> None:
    assert differences({"a": {"b": 1}, "c": [1]}, {"a": {"b": 1}, "c": [1]}) == []
    assert differences({"a": {"b": 1}}, {"a": {}}) == ["a.b: 1 there, None here"]


@given(n=st.integers(1, 60), size=st.integers(1, 60))
def test_shard_ranges_cover_every_row_once(n: int, size: int) -> None:
    rows = [r for _, start, stop in shard_ranges(n, size) for r in range(start, stop)]
    assert rows == list(range(n))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> tuple[ShardedArray, np.ndarray]:
    features = fill(tmp_path_factory.mktemp("sharded"), n=23, skip=(4, 5, 6, 7))
    whole = np.delete(matrix(23), [4, 5, 6, 7], axis=0).astype(np.float16)
    assert isinstance(features.X, ShardedArray)
    return features.X, whole


INDEX = st.one_of(
    st.integers(-19, 18),
    st.slices(19),
    st.lists(st.integers(-19, 18), max_size=30),
    st.lists(st.booleans(), min_size=19, max_size=19).map(np.array),
)


@settings(max_examples=150, deadline=None)
@given(key=st.one_of(INDEX, st.tuples(INDEX, st.slices(3))))
def test_indexing_as_numpy_does(sharded: tuple[ShardedArray, np.ndarray], key: Any) -> None:
    lazy, whole = sharded
    rows = key[0] if isinstance(key, tuple) else key
    if isinstance(rows, list):  # an empty list is a float array to numpy
        rows = np.array(rows, dtype=int)
    plain = (rows, key[1]) if isinstance(key, tuple) else rows
    np.testing.assert_array_equal(lazy[key], whole[plain])


def test_array_protocol_and_bad_indices(sharded: tuple[ShardedArray, np.ndarray]) -> None:
    lazy, whole = sharded
    assert (len(lazy), lazy.ndim, lazy.shape) == (19, 2, (19, 3))
    assert np.asarray(lazy, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.stack(list(lazy)), whole)
    with pytest.raises(ValueError, match="several files"):
        np.array(lazy, copy=False)
    for bad in (19, -20, [19], [0.5], [True], None):
        with pytest.raises(IndexError):
            lazy[bad]


def test_another_table_is_refused_by_the_names_of_its_columns(tmp_path: Path) -> None:
    with open_made(tmp_path) as store:
        store.write_shard(0, matrix(4))
    changed = make_table(10).assign(votes=0, path="p.png")
    with pytest.raises(InputError, match=r"settings \(columns\.votes: .*columns\.path: "):
        StoreWriter(tmp_path, SETTINGS, changed, dim=3, shard_rows=4)


def test_features_are_shown_in_one_line(tmp_path: Path) -> None:
    assert (
        repr(fill(tmp_path)) == f"FeatureFolder({str(tmp_path)!r}, encoder='tiny', shape=(10, 3))"
    )
