"""Embeddings made elsewhere, in the layouts their tools write, matched by id."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from scalecal.checks import InputError, ScalecalWarning
from scalecal.features import import_features, load_features
from scalecal.features.importing import FORMATS

IDS = ["fäll_1", "fäll_2", "0012"]


def embeddings(n: int = 3, dim: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float16).astype(np.float32)


def write_npz(folder: Path) -> Path:
    np.savez(folder / "f.npz", X=embeddings(), id=np.array(IDS))
    return folder / "f.npz"


def write_csv(folder: Path) -> Path:
    frame = pd.DataFrame(embeddings(), columns=[f"f{i}" for i in range(4)]).assign(id=IDS)
    frame.to_csv(folder / "f.csv", index=False)
    return folder / "f.csv"


def write_parquet(folder: Path) -> Path:
    pd.DataFrame({"id": IDS, "f": list(embeddings())}).to_parquet(folder / "f.parquet")
    return folder / "f.parquet"


def write_eva(folder: Path) -> Path:
    home = folder / "eva"
    home.mkdir()
    names = []
    for name, row in zip(IDS, embeddings(), strict=True):
        names.append(f"{name}.pt")
        torch.save(torch.from_numpy(row), home / names[-1])
    pd.DataFrame({"origin": IDS, "embeddings": names}).to_csv(home / "manifest.csv", index=False)
    return home


def write_slides(folder: Path) -> Path:
    """TRIDENT's slide features: one vector per file."""
    home = folder / "slide_features_titan"
    home.mkdir()
    for name, row in zip(IDS, embeddings(), strict=True):
        with h5py.File(home / f"{name}.h5", "w") as file:
            file["features"] = row
    return home


WRITERS = [write_npz, write_csv, write_parquet, write_eva, write_slides]


def write_labels(folder: Path, ids: list[str] | None = None) -> Path:
    ids = IDS if ids is None else ids
    frame = pd.DataFrame({"id": ids, "label": (["SSA", "HP"] * len(ids))[: len(ids)]})
    # Another order, so that only the id can bring them together.
    frame.assign(group=[f"p{i}" for i in ids])[::-1].to_csv(folder / "labels.csv", index=False)
    return folder / "labels.csv"


@pytest.mark.parametrize("write", WRITERS)
def test_every_format_with_labels_and_votes(tmp_path: Path, write: Any) -> None:
    votes = tmp_path / "votes.csv"
    rows = [(i, r, "SSA" if r < k else "HP") for k, i in enumerate(IDS, 1) for r in range(5)]
    pd.DataFrame(rows, columns=["id", "rater", "label"]).to_csv(votes, index=False)
    features = import_features(
        write(tmp_path), tmp_path / "out", labels=write_labels(tmp_path), votes=votes, encoder="uni"
    )
    table = features.table.set_index("id")
    assert features.encoder == "uni"
    assert features.classes == ["HP", "SSA"]
    assert sorted(table.index) == sorted(IDS)
    assert table.loc[IDS, "label"].tolist() == [1, 0, 1]
    assert table.loc[IDS, "votes"].tolist() == [1, 2, 3]
    assert table.loc[IDS, "n_raters"].tolist() == [5, 5, 5]
    assert table.loc["0012", "group"] == "p0012"
    order = [IDS.index(i) for i in table.index]
    np.testing.assert_array_equal(np.asarray(features.X), embeddings()[order])
    load_features(tmp_path / "out", verify=True)


@pytest.mark.parametrize("write", WRITERS)
def test_again_is_the_same_and_other_labels_are_refused(tmp_path: Path, write: Any) -> None:
    source = write(tmp_path)
    import_features(source, tmp_path / "out", labels=write_labels(tmp_path))
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    import_features(source, tmp_path / "out", labels=write_labels(tmp_path))
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before
    with pytest.raises(InputError, match=r"of other images or settings .*columns\.label"):
        import_features(source, tmp_path / "out")


def test_ids_without_a_partner_are_named(tmp_path: Path) -> None:
    source = write_npz(tmp_path)
    labels = write_labels(tmp_path, ["fäll_1", "0012"])
    with pytest.raises(InputError, match=r"1 ids of f\.npz are not in labels\.csv: 'fäll_2'"):
        import_features(source, tmp_path / "out", labels=labels)
    assert not (tmp_path / "out").exists()
    labels = write_labels(tmp_path, [*IDS, "extra"])
    with pytest.warns(ScalecalWarning, match="'extra'"):
        import_features(source, tmp_path / "out", labels=labels)


def test_twice_in_the_labels(tmp_path: Path) -> None:
    labels = write_labels(tmp_path, [*IDS, IDS[0]])
    with pytest.raises(InputError, match=r"labels\.csv: column 'id' must be unique.*'fäll_1'"):
        import_features(write_npz(tmp_path), tmp_path / "out", labels=labels)


@pytest.mark.parametrize("batched", [False, True])
def test_trident_patches(tmp_path: Path, batched: bool) -> None:
    home = tmp_path / "features_uni_v1"
    home.mkdir()
    parts = {"slide_b": embeddings(5, seed=1), "slide_a": embeddings(3, seed=2)}
    for slide, x in parts.items():
        with h5py.File(home / f"{slide}.h5", "w") as file:
            file["features"] = x[None] if batched else x
            file["coords"] = np.column_stack([np.arange(len(x)) * 256, np.full(len(x), 512)])
    labels = tmp_path / "labels.csv"
    pd.DataFrame({"id": ["slide_a", "slide_b"], "label": [1, 0]}).to_csv(labels, index=False)
    # Shards of three rows cross the border between the files.
    features = import_features(home, tmp_path / "out", labels=labels, match="group", shard_rows=3)
    assert features.encoder == "uni_v1"
    assert features.table["id"].tolist()[:2] == ["slide_a_0_512", "slide_a_256_512"]
    assert features.table["group"].tolist() == ["slide_a"] * 3 + ["slide_b"] * 5
    assert features.table["label"].tolist() == [1] * 3 + [0] * 5
    expected = np.concatenate([parts["slide_a"], parts["slide_b"]])
    np.testing.assert_array_equal(np.asarray(features.X), expected)
    with pytest.raises(InputError, match=r"are not in labels\.csv: 'slide_a_0_512'"):
        import_features(home, tmp_path / "other", labels=labels)


def write_patches(home: Path, slide: str, seed: int = 0) -> None:
    home.mkdir(parents=True, exist_ok=True)
    with h5py.File(home / f"{slide}.h5", "w") as file:
        file["features"] = embeddings(2, seed=seed)
        file["coords"] = np.array([[0, 0], [256, 0]])


def test_trident_kinds_are_not_mixed(tmp_path: Path) -> None:
    job = tmp_path / "job"
    write_patches(job / "20x" / "features_uni_v1", "slide_a")
    slides = write_slides(job)
    with pytest.raises(
        InputError,
        match=r"2 folders \('20x/features_uni_v1', 'slide_features_titan'\).* give one of them",
    ):
        import_features(job, tmp_path / "out")
    write_patches(slides, "slide_a")
    with pytest.raises(InputError, match=r"holds features of a slide, .*slide_a\.h5 of patches"):
        import_features(slides, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_trident_folders_below_one_encoder(tmp_path: Path) -> None:
    home = tmp_path / "features_uni_v1"
    write_patches(home / "benign", "slide_a")
    write_patches(home / "malignant", "slide_b", seed=1)
    for given in (home, tmp_path):
        features = import_features(given, tmp_path / f"out_{given.name}")
        assert features.table["group"].tolist() == ["slide_a"] * 2 + ["slide_b"] * 2
        assert features.encoder == "uni_v1"


def test_eva_slides_have_several_embeddings(tmp_path: Path) -> None:
    torch.save([torch.from_numpy(row) for row in embeddings(2)], tmp_path / "a.pt")
    torch.save(torch.from_numpy(embeddings(1, seed=1)), tmp_path / "b.pt")
    manifest = {
        "origin": ["a.tiff", "b.tiff"],
        "embeddings": ["a.pt", "b.pt"],
        "target": [1, 0],
        "split": ["train", "val"],
        "wsi_id": ["A", "B"],
    }
    pd.DataFrame(manifest).to_csv(tmp_path / "manifest.csv", index=False)
    features = import_features(tmp_path, tmp_path / "out")
    assert features.table["id"].tolist() == ["a.tiff#0", "a.tiff#1", "b.tiff"]
    assert features.table["label"].tolist() == [1, 1, 0]
    assert features.table["split"].tolist() == ["train", "train", "val"]
    assert features.table["group"].tolist() == ["A", "A", "B"]
    expected = np.concatenate([embeddings(2), embeddings(1, seed=1)])
    np.testing.assert_array_equal(np.asarray(features.X), expected)


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("code from a file was run",))


def test_nothing_in_a_pt_file_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(Evil(), tmp_path / "a.pt")
    (tmp_path / "manifest.csv").write_text("origin,embeddings\na,a.pt\nb,a.pt\n")
    with pytest.raises(InputError, match="holds more than tensors"):
        import_features(tmp_path, tmp_path / "out")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "message"), [("../a.pt", "outside its folder"), ("none.pt", "no file at .*none.pt")]
)
def test_eva_files_lie_in_the_folder(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "manifest.csv").write_text(f"origin,embeddings\na,{name}\nb,{name}\n")
    with pytest.raises(InputError, match=message):
        import_features(tmp_path, tmp_path / "out")


def test_votes_of_three_classes(tmp_path: Path) -> None:
    votes = pd.DataFrame({"id": IDS, "votes_x": [3, 0, 1], "votes_y": [0, 3, 1], "votes_z": 1})
    votes.to_csv(tmp_path / "v.csv", index=False)
    features = import_features(write_npz(tmp_path), tmp_path / "out", votes=tmp_path / "v.csv")
    assert features.classes == ["x", "y", "z"]
    assert features.table["votes_y"].tolist() == [0, 3, 1]
    assert features.table["n_raters"].tolist() == [4, 4, 3]


def test_sources_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file or folder"):
        import_features(tmp_path / "none.npz", tmp_path / "out")
    with pytest.raises(InputError, match=r"unknown format 'tar'. Known: npz, table"):
        import_features(write_npz(tmp_path), tmp_path / "out", format="tar")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="holds neither"):
        import_features(empty, tmp_path / "out")
    with pytest.raises(InputError, match="has no groups"):
        import_features(tmp_path / "f.npz", tmp_path / "out", match="group")
    (tmp_path / "bad.h5").write_bytes(b"no")
    with pytest.raises(InputError, match="cannot be read as an HDF5"):
        import_features(tmp_path / "bad.h5", tmp_path / "out")
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file["x"] = [1]
    with pytest.raises(InputError, match="no array 'features'"):
        import_features(tmp_path / "odd.h5", tmp_path / "out")


def test_embeddings_of_different_length(tmp_path: Path) -> None:
    for name, dim in (("a", 4), ("b", 5)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["features"] = embeddings(1, dim)[0]
    with pytest.raises(InputError, match=r"one length: 4 in a\.h5, 5 in b\.h5"):
        import_features(tmp_path, tmp_path / "out")


def test_encoders_of_one_data_set_belong_together(tmp_path: Path) -> None:
    from scalecal.paper.reproduction import asked_for, find_features

    source, home = write_npz(tmp_path), tmp_path / "all"
    for name in ("uni", "owner/plip"):
        import_features(source, home / name, encoder=name, dataset="mhist")
    import_features(source, home / "else", encoder="uni", dataset="../../mhist")
    found = {(s.dataset, s.encoder) for s in find_features(home)}
    # Results are kept under these names: none leads out of its folder.
    assert found == {("mhist", "uni"), ("mhist", "owner-plip"), ("-..-mhist", "uni")}
    import_features(source, home / "again", encoder="uni", dataset="mhist")
    with pytest.raises(InputError, match="both of data set mhist with encoder uni"):
        asked_for(find_features(home), None, None)


def test_every_format_is_tested() -> None:
    elsewhere = {"zarr", "anndata", "spatialdata", "spatialdata-slides"}  # test_scverse.py
    assert set(FORMATS) == {"npz", "table", "trident", "eva"} | elsewhere


def test_an_import_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", X=np.array([[1.0, np.nan], [1.0, 2.0]]), id=["a", "b"])
    with pytest.raises(InputError, match="'a' holds NaN"):
        import_features(tmp_path / "bad.npz", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    np.savez(tmp_path / "large.npz", X=np.array([[1e9, 1.0], [1.0, 2.0]]), id=["a", "b"])
    with pytest.raises(InputError, match="--dtype float32"):
        import_features(tmp_path / "large.npz", tmp_path / "out")
    assert len(import_features(tmp_path / "large.npz", tmp_path / "out", dtype="float32")) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (torch.ones(1).expand(1 << 40), "declares a tensor of shape .* but holds 4 bytes"),
        (torch.ones(3, dtype=torch.complex64), "plain real numbers, got torch.complex64"),
        (torch.ones(3).to_sparse(), "plain real numbers, got torch.float32, torch.sparse_coo"),
        (torch.ones(0), r"declares a tensor of shape \(0,\)"),
        ([], "must hold a tensor or a list of tensors"),
        ([torch.ones(3), torch.ones(4)], "must have one length, got 3 and 4"),
        (torch.tensor([1e160, 1.0], dtype=torch.float64), r"too large for float16 \(1\.0e\+160\)"),
        (torch.tensor([1.0, float("nan")]), "the embedding of 'a' holds NaN or infinity"),
        ({"x": 1}, "must hold a tensor or a list of tensors"),
    ],
)
def test_tensors_that_cannot_be_used(tmp_path: Path, content: Any, says: str) -> None:
    torch.save(content, tmp_path / "a.pt")
    (tmp_path / "manifest.csv").write_text("origin,embeddings\na,a.pt\n")
    with pytest.raises(InputError, match=says):
        import_features(tmp_path, tmp_path.parent / "out")


def test_tensors_are_taken_as_they_are(tmp_path: Path) -> None:
    weights = torch.nn.Parameter(
        torch.tensor([[0.5, 1.0], [2.0, 3.0]]).T
    )  # with gradients, strided
    torch.save([weights, torch.tensor([7, 8])], tmp_path / "a.pt")
    (tmp_path / "manifest.csv").write_text("origin,embeddings\na,a.pt\n")
    found = import_features(tmp_path, tmp_path.parent / "taken")
    assert np.asarray(found.X).tolist() == [[0.5, 2.0], [1.0, 3.0], [7.0, 8.0]]


def test_rows_of_a_manifest_without_a_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.csv").write_text("origin,embeddings\na,a.pt\nb,\n")
    with pytest.raises(InputError, match=r"manifest\.csv: column 'embeddings' is empty at row 1"):
        import_features(tmp_path, tmp_path.parent / "out")


def test_links_of_a_manifest_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    torch.save(torch.ones(3), tmp_path / "other.pt")
    (tmp_path / "in" / "a.pt").symlink_to(tmp_path / "other.pt")
    (tmp_path / "in" / "manifest.csv").write_text("origin,embeddings\na,a.pt\n")
    with pytest.raises(InputError, match=r"names 'a\.pt', which is outside its folder"):
        import_features(tmp_path / "in", tmp_path / "out")


def test_pipes_as_parquet_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f.parquet")
    with pytest.raises(InputError, match=r"f\.parquet is a named pipe"):
        import_features(tmp_path / "f.parquet", tmp_path / "out")


def test_a_parquet_file_whose_name_is_not_utf8_is_one_clear_line(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.parquet"))
    path.write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read as a Parquet file"):
        import_features(path, tmp_path / "out")


def test_text_in_place_of_embeddings(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", X=np.array([["", "1"]]))
    with pytest.raises(InputError, match=r"f\.npz: X must hold numbers"):
        import_features(tmp_path / "f.npz", tmp_path / "out")


def test_manifests_of_eva_without_names_and_with_an_id_twice(tmp_path: Path) -> None:
    home = write_eva(tmp_path)
    (home / "manifest.csv").write_text("origin,embeddings\na,0012.pt\na,0012.pt\n")
    with pytest.raises(InputError, match=r"eva: the ids must be unique: 1 .*'a' at rows 0, 1"):
        import_features(home, tmp_path / "out")
    (home / "manifest.csv").write_text('""\n1\n')
    with pytest.raises(InputError, match=r"manifest\.csv has no column 'origin'"):
        import_features(home, tmp_path / "out")


def test_ids_of_labels_must_be_text(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.eye(2), id=np.array(["a", "b"]))
    pd.DataFrame({"id": [b"\xff", b"b"], "label": [0, 1]}).to_parquet(tmp_path / "labels.parquet")
    with pytest.raises(InputError, match=r"labels\.parquet: column 'id' must hold text or numbers"):
        import_features(tmp_path / "x.npz", tmp_path / "out", labels=tmp_path / "labels.parquet")
