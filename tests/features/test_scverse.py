"""Zarr, AnnData and SpatialData tables as LazySlide writes them.

The stores in stores/ are anndata's own, by scripts/make_scverse_stores.py; all others are made here.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr

from scalecal.checks import InputError
from scalecal.features import import_features
from scalecal.features.importing import _open_table, _read_frame, format_of

# zarr remarks on its own changes where stores are written; reading must be silent all the same.
pytestmark = pytest.mark.filterwarnings("ignore")

STORES = Path(__file__).parent / "stores"
LABELLED = sorted(file.name.removesuffix(".tar.xz") for file in STORES.glob("*_*.*.tar.xz"))


def unpack(name: str, folder: Path) -> Path:
    shutil.unpack_archive(STORES / f"{name}.tar.xz", folder, filter="data")
    return folder / name


def embeddings(n: int = 3, dim: int = 4, start: int = 0) -> np.ndarray:
    return np.arange(start, start + n * dim, dtype=np.float32).reshape(n, dim)


def write_table(path: Path, X: np.ndarray | None = None, **columns) -> Path:
    """Write an AnnData table by zarr or h5py, each column an array or the parts of a group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hdf5 = path.suffix == ".h5ad"
    group = h5py.File(path, "w") if hdf5 else zarr.open_group(path, mode="w")
    X = embeddings() if X is None else X
    group["X"] = X
    group.create_group("uns")
    obs = group.create_group("obs")
    obs.attrs.update({"_index": "_index", "column-order": list(columns)})
    obs["_index"] = np.arange(len(X))
    for name, (encoding, parts) in columns.items():
        column = obs.create_group(name)
        column.attrs["encoding-type"] = encoding
        for part, values in parts.items():
            column[part] = np.asarray(values)
    if hdf5:
        group.close()
    return path


def write_store(path: Path, **tables: np.ndarray) -> Path:
    zarr.open_group(path, mode="w")
    for name, X in tables.items():
        write_table(path / "tables" / name, X)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_tiles_of_lazyslide(tmp_path: Path, version: int) -> None:
    slides = unpack(f"slides_{version}", tmp_path)
    labels = tmp_path / "labels.csv"
    labels.write_text("id,label\na,1\nb,0\n")
    assert format_of(slides) == format_of(slides / "a.zarr") == "spatialdata"
    # Shards of two rows cross the border between the stores.
    with warnings.catch_warnings(action="error"):
        features = import_features(
            slides, tmp_path / "out", labels=labels, match="group", shard_rows=2
        )
    assert features.encoder == "uni"
    assert features.table["id"].tolist()[2:4] == ["a_12", "b_10"]
    assert features.table["group"].tolist() == ["a"] * 3 + ["b"] * 5
    assert features.table["label"].tolist() == [1] * 3 + [0] * 5
    expected = np.concatenate([embeddings(3), embeddings(5, start=50)])
    np.testing.assert_array_equal(np.asarray(features.X), expected)


@pytest.mark.parametrize("version", [2, 3])
def test_features_of_whole_slides(tmp_path: Path, version: int) -> None:
    slides = unpack(f"slides_{version}", tmp_path)
    features = import_features(slides, tmp_path / "out", format="spatialdata-slides")
    assert features.table["id"].tolist() == features.table["group"].tolist() == ["a", "b"]
    np.testing.assert_array_equal(np.asarray(features.X), embeddings(2, start=100))
    write_store(slides / "c.zarr", uni_tiles=embeddings())
    with pytest.raises(
        InputError, match=r"c\.zarr has no features of the whole slide.*aggregation"
    ):
        import_features(slides, tmp_path / "out2", format="spatialdata-slides")


def test_one_of_several_encoders(tmp_path: Path) -> None:
    tables = {"uni_tiles": embeddings(), "resnet50_tiles": embeddings(dim=6)}
    store = write_store(tmp_path / "s.zarr", **tables)
    with pytest.raises(InputError, match=r"2 tables of features \('resnet50_tiles', 'uni_tiles'\)"):
        import_features(store, tmp_path / "out")
    for encoder in ("uni", "uni_tiles"):
        features = import_features(store, tmp_path / encoder, encoder=encoder)
        np.testing.assert_array_equal(np.asarray(features.X), tables["uni_tiles"])
        assert features.encoder == encoder
        assert features.table["id"].tolist() == ["s_0", "s_1", "s_2"]
    with pytest.raises(InputError, match=r"no table of features of 'plip'.*'uni_tiles'"):
        import_features(store, tmp_path / "out", encoder="plip")
    write_store(tmp_path / "t.zarr", other_tiles=embeddings())
    with pytest.raises(InputError, match=r"t\.zarr has no table of features of 'uni_tiles'"):
        import_features(tmp_path, tmp_path / "out", encoder="uni")


@pytest.mark.parametrize("name", LABELLED)
def test_anndata_with_labels_and_votes(tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    assert format_of(path) == "anndata"
    with warnings.catch_warnings(action="error"):
        features = import_features(path, tmp_path / "out", encoder="uni")
    assert features.table["id"].tolist() == ["fäll_1", "fäll_2", "0012"]
    assert features.classes == ["HP", "SSA"]
    assert features.table["label"].tolist() == [1, 0, 1]
    assert features.table["votes"].tolist() == [5, 1, 4]
    assert features.table["group"].tolist() == ["p1", "p1", "p2"]
    assert "grade" not in features.table
    np.testing.assert_array_equal(np.asarray(features.X), embeddings())
    with _open_table(path) as group:
        obs = _read_frame(group["obs"], lambda _: True, 3, "obs")
    missing = "" if "objects" in name else None
    expected = {
        "label": ["SSA", "HP", "SSA"],
        "votes": [5, 1, 4],
        "n_raters": [7, 7, 7],
        "group": ["p1", "p1", "p2"],
        "grade": [1, None, 3],
        "seen": [True, None, False],
        "site": ["left", None, "right"],
        "note": ["ä", missing, "c"],
        "score": [0.5, None, 2.0],
        "kept": [True, False, True],
    }
    read = {name: [None if pd.isna(v) else v for v in obs[name]] for name in obs}
    assert read == expected


def test_embeddings_beside_x_are_not_taken_for_x(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.h5ad")
    with h5py.File(path, "a") as file:
        file["obsm/X_uni"] = np.ones((3, 5))
    for encoder in ("uni", "X_uni"):
        with pytest.raises(
            InputError, match=r"a\.h5ad: .* in obsm\['X_uni'\], but X is what is read"
        ):
            import_features(path, tmp_path / "out", encoder=encoder)
    assert import_features(path, tmp_path / "out", encoder="plip").encoder == "plip"


def test_a_folder_of_h5ad_files(tmp_path: Path) -> None:
    parts = [embeddings(2), embeddings(3, start=50)]
    for name, X in zip("ab", parts, strict=True):
        write_table(tmp_path / f"{name}.h5ad", X)
    features = import_features(tmp_path, tmp_path / "out")
    assert features.table["id"].tolist() == ["a_0", "a_1", "b_0", "b_1", "b_2"]
    assert features.table["group"].tolist() == ["a", "a", "b", "b", "b"]
    np.testing.assert_array_equal(np.asarray(features.X), np.concatenate(parts))


@pytest.mark.parametrize("version", [2, 3])
def test_plain_arrays(tmp_path: Path, version: int) -> None:
    X = embeddings()
    zarr.save_array(tmp_path / "x.zarr", X, zarr_format=version)
    features = import_features(tmp_path / "x.zarr", tmp_path / "out")
    assert features.table["id"].tolist() == ["0", "1", "2"]
    np.testing.assert_array_equal(np.asarray(features.X), X)
    group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=version)
    for name, values in {"X": X, "y": np.array([1, 0, 1]), "votes": np.array([5, 1, 4])}.items():
        group.create_array(name, data=values)
    group.create_array("n_raters", data=np.full(3, 7))
    group.create_array("id", data=np.array(["a", "b", "ü"]))
    features = import_features(tmp_path / "g.zarr", tmp_path / "group")
    assert features.table["id"].tolist() == ["a", "b", "ü"]
    assert features.table["label"].tolist() == [1, 0, 1]
    assert features.table["votes"].tolist() == [5, 1, 4]


def test_stores_that_cannot_be_used(tmp_path: Path) -> None:
    out = tmp_path / "out"
    group = zarr.open_group(tmp_path / "empty.zarr", mode="w")
    with pytest.raises(InputError, match=r"no array 'X'. It has: nothing"):
        import_features(tmp_path / "empty.zarr", out)
    group.create_array("X", data=np.zeros((2, 3, 4)))
    with pytest.raises(InputError, match=r"must be numbers of shape \(n, d\), got \(2, 3, 4\)"):
        import_features(tmp_path / "empty.zarr", out)
    (tmp_path / "bad.h5ad").write_bytes(b"no")
    with pytest.raises(InputError, match="cannot be read as an HDF5 file"):
        import_features(tmp_path / "bad.h5ad", out)
    with h5py.File(write_table(tmp_path / "none.h5ad"), "a") as file:
        del file["X"]
    with pytest.raises(InputError, match="not an AnnData with features: it has no 'X'"):
        import_features(tmp_path / "none.h5ad", out)
    (tmp_path / "none.d").mkdir()
    with pytest.raises(InputError, match="holds no SpatialData store"):
        import_features(tmp_path / "none.d", out, format="spatialdata")
    store = write_table(tmp_path / "cut.zarr")
    (store / "obs" / "zarr.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as metadata of Zarr"):
        import_features(store, out)
    for name, dim in (("a", 4), ("b", 5)):
        write_store(tmp_path / "two" / f"{name}.zarr", uni_tiles=embeddings(3, dim))
    with pytest.raises(InputError, match="must have one length: 4 in uni_tiles, 5 in uni_tiles"):
        import_features(tmp_path / "two", out)
    assert not out.exists()


@pytest.mark.parametrize("suffix", ["zarr", "h5ad"])
@pytest.mark.parametrize(
    ("encoding", "parts", "says"),
    [
        ("categorical", {"codes": [0, 5, 1], "categories": [7, 8]}, "AnnData table: codes need to"),
        ("categorical", {"codes": [0, 1], "categories": [7, 8]}, r"label/codes must hold 3 values"),
        ("categorical", {"codes": [0, 1, 0]}, "label has no element 'categories'"),
        (
            "nullable-integer",
            {"values": [1, 2, 3], "mask": [True]},
            "label/mask must hold 3 values",
        ),
        ("nullable-integer", {"values": np.zeros(3, complex), "mask": [True] * 3}, "got complex"),
        ("awkward-array", {}, "label is stored as 'awkward-array': expected numbers, text"),
    ],
)
def test_columns_that_cannot_be_used(
    tmp_path: Path, suffix: str, encoding: str, parts: dict, says: str
) -> None:
    path = write_table(tmp_path / f"t.{suffix}", label=(encoding, parts))
    with pytest.raises(InputError, match=says):
        import_features(path, tmp_path / "out")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "p.zarr", mode="w", zarr_format=2)
    group.create_array("X", data=embeddings())
    group.create_array("id", data=np.arange(3))
    file = tmp_path / "p.zarr" / "id" / ".zarray"
    changed = json.loads(file.read_text()) | {"dtype": "|O", "filters": [{"id": "pickle"}]}
    file.write_text(json.dumps(changed))
    with pytest.raises(InputError, match="holds Python objects"):
        import_features(tmp_path / "p.zarr", tmp_path / "out")


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch) -> None:
    import sys

    from scalecal.checks import MissingPackageError

    zarr.save_array(tmp_path / "x.zarr", embeddings())
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'scalecal\[interop\]'"):
        import_features(tmp_path / "x.zarr", tmp_path / "out")


def with_link(path: Path) -> None:
    os.mkfifo(path.parent / "pipe")  # opening it would wait for ever
    with h5py.File(path, "a") as file:
        file["uns/other"] = h5py.ExternalLink(str(path.parent / "pipe"), "x")


def with_loop(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["uns/loop"] = h5py.SoftLink("/uns/loop")


def with_external(path: Path) -> None:
    (path.parent / "raw").write_bytes(bytes(96))
    with h5py.File(path, "a") as file:
        del file["X"]
        raw = [(str(path.parent / "raw"), 0, 96)]
        file.create_dataset("X", (3, 4), "f8", external=raw)


def with_a_path_out_of_obs(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["raw"] = h5py.ExternalLink(str(path.parent / "other.h5"), "x")
        file["obs"].attrs["_index"] = "/raw"


def with_codes_of_old(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["obs/label"] = [0, 1, 0]
        file["obs/label"].attrs["categories"] = file["X"].ref
        file["obs"].attrs["column-order"] = ["label"]


def with_fewer_names(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file["obs/_index"]
        file["obs/_index"] = ["a", "b"]


def with_references(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file["obs/_index"]
        file["obs"].create_dataset("_index", data=[file.ref] * 3, dtype=h5py.ref_dtype)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_link, r"/uns/other is a link, which is not followed"),
        (with_loop, r"/uns/loop is a link, which is not followed"),
        (with_external, r"/X lies in other files, which are not opened"),
        (with_a_path_out_of_obs, "obs has no element '/raw' of its own"),
        (with_codes_of_old, "obs/label is of anndata before 0.8"),
        (with_fewer_names, r"obs/_index must hold 3 values, got \(2,\)"),
        (with_references, "cannot be read as an AnnData table"),
    ],
)
def test_h5ad_files_that_cannot_be_used(tmp_path: Path, change, says: str) -> None:
    change(write_table(tmp_path / "a.h5ad"))
    with pytest.raises(InputError, match=says):
        import_features(tmp_path / "a.h5ad", tmp_path / "out")


@pytest.mark.parametrize("suffix", ["zarr", "h5ad"])
def test_a_sparse_matrix_is_refused(tmp_path: Path, suffix: str) -> None:
    path = write_table(tmp_path / f"t.{suffix}")
    group = h5py.File(path, "a") if suffix == "h5ad" else zarr.open_group(path, mode="a")
    del group["X"]
    group.create_group("X").attrs["encoding-type"] = "csr_matrix"
    if suffix == "h5ad":
        group.close()
    with pytest.raises(InputError, match=r"X is not an array but csr_matrix.*toarray\(\)"):
        import_features(path, tmp_path / "out")


def test_attributes_as_other_languages_write_them(tmp_path: Path) -> None:
    """Julia's HDF5 writes text of a fixed length, as bytes."""
    path = unpack("dense_objects.h5ad", tmp_path)
    with h5py.File(path, "a") as file:
        file["obs"].attrs["_index"] = np.bytes_("_index")
        file["obs"].attrs["column-order"] = np.array([b"label", b"group"])
        for name in ("label", "group"):
            file[f"obs/{name}"].attrs["encoding-type"] = np.bytes_("categorical")
        del file["obs/_index"]
        file["obs/_index"] = np.char.encode(["ä", "b", "c"], "utf-8")
    features = import_features(path, tmp_path / "out")
    assert features.table["id"].tolist() == ["ä", "b", "c"]
    assert features.classes == ["HP", "SSA"]


def test_groups_that_hold_themselves_are_walked_once(tmp_path: Path) -> None:
    with h5py.File(write_table(tmp_path / "a.h5ad"), "a") as file:
        file["uns/more/again"] = file["uns"]  # a hard link to a group above it
    assert len(import_features(tmp_path / "a.h5ad", tmp_path / "out")) == 3


def test_zarr_stores_that_cannot_be_used(tmp_path: Path) -> None:
    store = tmp_path / "a.zarr"
    zarr.open_group(store, mode="w").create_array("X", data=embeddings())
    chunk = next(store.glob("X/c/*/*"))
    chunk.rename(tmp_path / "chunk")
    chunk.symlink_to(tmp_path / "chunk")
    with pytest.raises(InputError, match="is a link or no plain file"):
        import_features(store, tmp_path / "out")
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(InputError, match="is a link or no plain file"):
        import_features(store, tmp_path / "out")
    chunk.unlink()
    zarr.open_group(store, mode="w").create_array(
        "X", shape=(10**12, 4), dtype="f4", chunks=(64, 4)
    )
    with pytest.raises(
        InputError, match=r"memory for 1,000,000,000,000 cases .* SCALECAL_LIMITS=memory="
    ):
        import_features(store, tmp_path / "out")
    zarr.open_group(store, mode="w").create_array(
        "X", shape=(4, 10**12), dtype="f4", chunks=(1, 64)
    )
    with pytest.raises(InputError, match=r"size of one shard.* SCALECAL_LIMITS=memory="):
        import_features(store, tmp_path / "out")
    write_table(store)
    del zarr.open_group(store)["obs/_index"]
    zarr.open_group(store)["obs"].create_array("_index", shape=3, dtype="i8", chunks=10**12)
    with pytest.raises(InputError, match=r"obs/_index: its size is .* SCALECAL_LIMITS=memory="):
        import_features(store, tmp_path / "out")
