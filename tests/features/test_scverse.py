"""Zarr, AnnData and SpatialData tables as LazySlide writes them; all stores are made by anndata and zarr."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr

from scalecal.checks import InputError
from scalecal.features import import_features
from scalecal.features.importing import format_of

# Those who write the stores here announce changes of their own; reading must be silent all the same.
pytestmark = pytest.mark.filterwarnings("ignore")


@contextmanager
def text(kind: str) -> Iterator[None]:
    """Text as pandas 3 holds it ("strings"), or as pandas 2 did ("objects")."""
    new = kind == "strings"
    with (
        pd.option_context("future.infer_string", new),
        anndata.settings.override(allow_write_nullable_strings=new),
    ):
        yield


@pytest.fixture(autouse=True)
def as_most_stores_are() -> Iterator[None]:
    with text("objects"):
        yield


def embeddings(n: int = 3, dim: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float16).astype(np.float32)


def table_of_tiles(X: np.ndarray, region: str = "tiles", **obs) -> anndata.AnnData:
    """What wsidata's `add_features` makes: tiles by number, the attributes of SpatialData."""
    numbers = np.arange(len(X))
    frame = pd.DataFrame(
        {"tile_id": numbers, "library_id": pd.Categorical([region] * len(X)), **obs},
        index=numbers.astype(str),
    )
    table = anndata.AnnData(X=X, obs=frame)
    attrs = {"region": region, "region_key": "library_id", "instance_key": "tile_id"}
    table.uns["spatialdata_attrs"] = attrs
    return table


def write_zarr(table: anndata.AnnData, path: Path, version: int = 3) -> Path:
    with anndata.settings.override(zarr_write_format=version):
        table.write_zarr(path)
    return path


def write_store(path: Path, version: int = 3, **tables: anndata.AnnData) -> Path:
    """A store with images, shapes and tables, of which only the tables matter here."""
    group = zarr.open_group(path, mode="w", zarr_format=version)
    for name in ("images", "shapes", "tables"):
        group.create_group(name)
    for name, table in tables.items():
        write_zarr(table, path / "tables" / name, version)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_tiles_of_lazyslide(tmp_path: Path, version: int) -> None:
    parts = {"slide_b": embeddings(5, seed=1), "slide_a": embeddings(3, seed=2)}
    for slide, X in parts.items():
        graph = anndata.AnnData(obs=pd.DataFrame(index=[str(i) for i in range(len(X))]))
        write_store(
            tmp_path / f"{slide}.zarr", version, uni_tiles=table_of_tiles(X), tiles_graph=graph
        )
    labels = tmp_path / "labels.csv"
    pd.DataFrame({"id": ["slide_a", "slide_b"], "label": [1, 0]}).to_csv(labels, index=False)
    assert format_of(tmp_path) == format_of(tmp_path / "slide_a.zarr") == "spatialdata"
    # Shards of three rows cross the border between the stores.
    with warnings.catch_warnings(action="error"):
        features = import_features(
            tmp_path, tmp_path / "out", labels=labels, match="group", shard_rows=3
        )
    assert features.encoder == "uni"
    assert features.table["id"].tolist()[:2] == ["slide_a_0", "slide_a_1"]
    assert features.table["group"].tolist() == ["slide_a"] * 3 + ["slide_b"] * 5
    assert features.table["label"].tolist() == [1] * 3 + [0] * 5
    expected = np.concatenate([parts["slide_a"], parts["slide_b"]])
    np.testing.assert_array_equal(np.asarray(features.X), expected)
    one = import_features(tmp_path / "slide_a.zarr", tmp_path / "one")
    np.testing.assert_array_equal(np.asarray(one.X), parts["slide_a"])


def test_one_of_several_encoders(tmp_path: Path) -> None:
    tables = {"uni_tiles": embeddings(seed=1), "resnet50_tiles": embeddings(dim=6, seed=2)}
    store = write_store(
        tmp_path / "s.zarr", **{name: table_of_tiles(X) for name, X in tables.items()}
    )
    with pytest.raises(InputError, match=r"2 tables of features \('resnet50_tiles', 'uni_tiles'\)"):
        import_features(store, tmp_path / "out")
    for encoder in ("uni", "uni_tiles"):
        features = import_features(store, tmp_path / encoder, encoder=encoder)
        np.testing.assert_array_equal(np.asarray(features.X), tables["uni_tiles"])
        assert features.encoder == encoder
    with pytest.raises(InputError, match=r"no table of features of 'plip'.*'uni_tiles'"):
        import_features(store, tmp_path / "out", encoder="plip")
    write_store(tmp_path / "t.zarr", other_tiles=table_of_tiles(embeddings()))
    with pytest.raises(InputError, match=r"t\.zarr has no table of features of 'uni_tiles'"):
        import_features(tmp_path, tmp_path / "out", encoder="uni")


def test_features_of_whole_slides(tmp_path: Path) -> None:
    rows = embeddings(2, dim=4, seed=3)
    for k, slide in enumerate(("a", "b")):
        table = table_of_tiles(embeddings(seed=k))
        if slide == "a":  # where the length is that of the tiles, LazySlide keeps it twice
            table.varm["agg_slide"] = rows[k][:, None]
        table.uns["agg_ops"] = {"agg_slide": {"features": rows[k][None]}}
        write_store(tmp_path / f"{slide}.zarr", uni_tiles=table)
    features = import_features(tmp_path, tmp_path / "out", format="spatialdata-slides")
    assert features.table["id"].tolist() == features.table["group"].tolist() == ["a", "b"]
    np.testing.assert_array_equal(np.asarray(features.X), rows)
    write_store(tmp_path / "c.zarr", uni_tiles=table_of_tiles(embeddings()))
    with pytest.raises(
        InputError, match=r"c\.zarr has no features of the whole slide.*aggregation"
    ):
        import_features(tmp_path, tmp_path / "out2", format="spatialdata-slides")


@pytest.mark.parametrize("kind", ["h5ad", "zarr", "sparse"])
@pytest.mark.parametrize("held", ["objects", "strings"])
def test_anndata_with_labels_and_votes(tmp_path: Path, kind: str, held: str) -> None:
    with text(held):
        X, path = write_labelled(tmp_path, kind)
    assert format_of(path) == "anndata"
    with warnings.catch_warnings(action="error"):
        features = import_features(path, tmp_path / "out", encoder="uni")
    assert features.table["id"].tolist() == ["fäll_1", "fäll_2", "0012"]
    assert features.classes == ["HP", "SSA"]
    assert features.table["label"].tolist() == [1, 0, 1]
    assert features.table["votes"].tolist() == [5, 1, 4]
    assert features.table["group"].tolist() == ["p1", "p1", "p2"]
    assert "cluster" not in features.table
    np.testing.assert_array_equal(np.asarray(features.X), X)


def write_labelled(folder: Path, kind: str) -> tuple[np.ndarray, Path]:
    X = embeddings()
    obs = pd.DataFrame(
        {
            "label": pd.Categorical(["SSA", "HP", "SSA"]),
            "votes": [5, 1, 4],
            "n_raters": [7, 7, 7],
            "group": ["p1", "p1", "p2"],
            "cluster": [0, 1, 2],
        },
        index=["fäll_1", "fäll_2", "0012"],
    )
    table = anndata.AnnData(X=scipy.sparse.csr_matrix(X) if kind == "sparse" else X, obs=obs)
    path = folder / ("t.zarr" if kind == "zarr" else "t.h5ad")
    if kind == "zarr":
        write_zarr(table, path)
    else:
        table.write_h5ad(path)
    return X, path


def test_a_folder_of_h5ad_files(tmp_path: Path) -> None:
    parts = [embeddings(2, seed=1), embeddings(3, seed=2)]
    for name, X in zip("ab", parts, strict=True):
        names = pd.DataFrame(index=[str(i) for i in range(len(X))])
        anndata.AnnData(X=X, obs=names).write_h5ad(tmp_path / f"{name}.h5ad")
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
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # fixed-length text has no place in version 3 yet, zarr says
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
    anndata.AnnData(obs=pd.DataFrame(index=["a"])).write_h5ad(tmp_path / "none.h5ad")
    with pytest.raises(InputError, match="no AnnData with features: it has no 'X'"):
        import_features(tmp_path / "none.h5ad", out)
    (tmp_path / "none.d").mkdir()
    with pytest.raises(InputError, match="holds no SpatialData store"):
        import_features(tmp_path / "none.d", out, format="spatialdata")
    store = write_zarr(table_of_tiles(embeddings()), tmp_path / "cut.zarr")
    (store / "obs" / "zarr.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as metadata of Zarr"):
        import_features(store, out)
    for name, dim in (("a", 4), ("b", 5)):
        write_store(tmp_path / "two" / f"{name}.zarr", uni_tiles=table_of_tiles(embeddings(3, dim)))
    with pytest.raises(InputError, match="must have one length: 4 in uni_tiles, 5 in uni_tiles"):
        import_features(tmp_path / "two", out)
    assert not out.exists()


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


def with_indices_out_of_range(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["X/indices"][0] = 10**6


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_link, r"/uns/other is a link, which is not followed"),
        (with_loop, r"/uns/loop is a link, which is not followed"),
        (with_external, r"/X lies in other files, which are not opened"),
        (with_indices_out_of_range, "cannot be read as an AnnData table: .*indices"),
    ],
)
def test_h5ad_files_that_cannot_be_used(tmp_path: Path, change, says: str) -> None:
    sparse = change is with_indices_out_of_range
    X = scipy.sparse.csr_matrix(embeddings()) if sparse else embeddings()
    anndata.AnnData(X=X, obs=pd.DataFrame(index=list("abc"))).write_h5ad(tmp_path / "a.h5ad")
    change(tmp_path / "a.h5ad")
    with pytest.raises(InputError, match=says):
        import_features(tmp_path / "a.h5ad", tmp_path / "out")


def test_groups_that_hold_themselves_are_walked_once(tmp_path: Path) -> None:
    table = anndata.AnnData(X=embeddings(), obs=pd.DataFrame(index=list("abc")))
    table.uns["more"] = {"a": 1}
    table.write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad", "a") as file:
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
    with pytest.raises(InputError, match=r"memory for 1,000,000,000,000 cases .* --limit memory="):
        import_features(store, tmp_path / "out")
    zarr.open_group(store, mode="w").create_array(
        "X", shape=(4, 10**12), dtype="f4", chunks=(1, 64)
    )
    with pytest.raises(InputError, match=r"size of one shard.* --limit memory="):
        import_features(store, tmp_path / "out")
