from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalecal.checks import InputError
from scalecal.io import arrays as stored
from scalecal.io.feature_store import StoreWriter
from scalecal.io.features import Features, read_features

N, D = 12, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = np.arange(N) % 2
IDS = np.array([f"{i:03d}" for i in range(N)])
VOTES = np.where(Y == 1, 3, 1)
SPLIT = np.array(["train"] * 6 + ["val"] * 3 + ["test"] * 3)
GROUP = np.array([f"s{i // 4}" for i in range(N)])
EVERYTHING = {
    "X": X,
    "y": Y,
    "id": IDS,
    "votes": VOTES,
    "n_raters": np.full(N, 4),
    "group": GROUP,
    "split": SPLIT,
}


def frame() -> pd.DataFrame:
    table = {"label" if k == "y" else k: v for k, v in EVERYTHING.items() if k != "X"}
    return pd.DataFrame(table)


def put_npz(folder, **arrays):
    np.savez(folder / "f.npz", **arrays)
    return folder / "f.npz"


def put_columns(folder, suffix):
    wide = frame()
    order = RNG.permutation(D)  # columns are found by number, not by place
    for j in order:
        wide[f"f{j}"] = X[:, j]
    path = folder / f"f.{suffix}"
    wide.to_parquet(path) if suffix == "parquet" else wide.to_csv(path, index=False)
    return path


def put_list(folder, kind):
    lists = pa.array(X.tolist(), kind)
    table = pa.Table.from_pandas(frame()).append_column("f", lists)
    pq.write_table(table, folder / "f.parquet")
    return folder / "f.parquet"


def put_store(folder, table=None):
    settings = {
        "encoder": {"name": "uni"},
        "dataset": {"name": "mhist", "classes": ["0", "1"]},
    }
    with StoreWriter(
        folder / "s",
        settings,
        frame() if table is None else table,
        dim=D,
        shard_rows=5,
        dtype="float32",
    ) as store:
        for shard, start, stop in store.missing():
            store.write_shard(shard, X[start:stop])
        store.finish()
    return folder / "s"


SOURCES = {
    "npz": lambda folder: put_npz(folder, **EVERYTHING),
    "csv": lambda folder: put_columns(folder, "csv"),
    "parquet": lambda folder: put_columns(folder, "parquet"),
    "list": lambda folder: put_list(folder, pa.list_(pa.float32())),
    "large list": lambda folder: put_list(folder, pa.large_list(pa.float32())),
    "fixed-size list": lambda folder: put_list(folder, pa.list_(pa.float32(), D)),
    "store": put_store,
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_table(tmp_path, source):
    found = read_features(SOURCES[source](tmp_path))
    np.testing.assert_array_equal(np.asarray(found.X).astype(np.float32), X)
    assert found.X.dtype == (np.float64 if source == "csv" else np.float32)
    assert found.y.tolist() == Y.tolist()
    assert found.cases.votes.tolist() == np.column_stack([4 - VOTES, VOTES]).tolist()
    assert list(found.cases.ids) == IDS.tolist()
    assert found.split.tolist() == SPLIT.tolist()
    assert found.groups.tolist() == GROUP.tolist()
    assert found.cases.classes == ("0", "1")
    assert found.encoder == ("uni" if source == "store" else None)
    assert found.dataset == ("mhist" if source == "store" else None)
    assert len(found.fingerprint) == 64
    assert found.cases.notes == ()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_large_plain_array_is_mapped(tmp_path, monkeypatch, order, dtype):
    monkeypatch.setattr(stored, "MAPPED_BYTES", 0)
    path = put_npz(tmp_path, y=Y, X=np.asarray(X, dtype=dtype, order=order))
    found = read_features(path)
    assert isinstance(found.X, np.memmap)
    np.testing.assert_array_equal(found.X, X.astype(dtype))
    np.savez_compressed(path, X=X)
    packed = read_features(path)
    assert not isinstance(packed.X, np.memmap)
    np.testing.assert_array_equal(packed.X, X)
    assert packed.y is None
    with pytest.raises(InputError, match="no labels"):
        packed.labelled()


def test_names_of_classes_need_a_positive_one_and_may_be_turned(tmp_path):
    names = np.array(["SSA", "HP"])[Y]
    path = put_npz(tmp_path, X=X, y=names, votes=np.column_stack([VOTES, 4 - VOTES]))
    with pytest.raises(InputError, match=r"'HP', 'SSA': say which .* --positive NAME"):
        read_features(path)
    found = read_features(path, positive="SSA")
    assert found.cases.classes == ("HP", "SSA")
    assert found.y.tolist() == (1 - Y).tolist()
    assert found.cases.votes[:, 0].tolist() == VOTES.tolist()
    assert read_features(path, positive="HP").y.tolist() == Y.tolist()
    assert read_features(path, classes=["SSA", "HP", "XX"]).cases.classes == ("SSA", "HP", "XX")


def test_store_labels_go_by_their_names(tmp_path):
    settings = {"encoder": {"name": "uni"}, "dataset": {"classes": ["SSA", "HP"]}}
    table = frame()[["id", "label"]]
    with StoreWriter(tmp_path / "s", settings, table, dim=D, dtype="float32") as store:
        store.write_shard(0, X)
        store.finish()
    (tmp_path / "v.csv").write_text("id,rater,label\n000,a,HP\n000,b,HP\n000,c,SSA\n")
    found = read_features(tmp_path / "s", votes=tmp_path / "v.csv")
    assert found.cases.classes == ("SSA", "HP")
    assert found.y.tolist() == Y.tolist()
    assert found.cases.votes[0].tolist() == [1, 2]


def test_labels_and_votes_by_id(tmp_path):
    path = put_npz(tmp_path, X=X, id=IDS)
    shuffled = frame().sample(frac=1, random_state=0)
    shuffled[["id", "label", "split"]].to_csv(tmp_path / "l.csv", index=False)
    shuffled[["id", "votes", "n_raters"]].to_csv(tmp_path / "v.csv", index=False)
    found = read_features(path, labels=tmp_path / "l.csv", votes=tmp_path / "v.csv")
    assert found.y.tolist() == Y.tolist()
    assert found.split.tolist() == SPLIT.tolist()
    assert found.cases.votes[:, 1].tolist() == VOTES.tolist()
    only_votes = read_features(path, votes=tmp_path / "v.csv")
    assert only_votes.y.tolist() == Y.tolist()


def test_cases_without_a_label_stay_until_asked(tmp_path):
    path = put_npz(tmp_path, X=X, id=IDS)
    frame()[["id", "label"]].query("id != '003'").to_csv(tmp_path / "l.csv", index=False)
    found = read_features(path, labels=tmp_path / "l.csv")
    assert found.y[3] == -1
    assert "1 of 12 cases are not in l.csv ('003')." in found.cases.notes
    kept = found.labelled()
    assert isinstance(kept, Features)
    assert len(kept) == N - 1
    np.testing.assert_array_equal(kept.X, np.delete(X, 3, axis=0))
    assert "003" not in list(kept.cases.ids)
    assert read_features(path).y is None


def test_constant_features_are_noted(tmp_path):
    flat = X.copy()
    flat[:, 2] = 1.0
    assert read_features(put_npz(tmp_path, X=flat)).cases.notes == (
        "1 of 5 features are the same in all cases.",
    )
    with pytest.raises(InputError, match="nothing to learn from"):
        read_features(put_npz(tmp_path, X=np.ones((4, 3))))
    assert len(read_features(put_npz(tmp_path, X=np.ones((1, 3))))) == 1


def spoilt() -> np.ndarray:
    bad = X.copy()
    bad[3, 1] = np.nan
    bad[5, 4] = np.inf
    return bad


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": X}, "no column 'X'.*Did you mean 'x'"),
        ({"X": X[:, 0]}, r"X must be 2-d .*got shape \(12,\)"),
        ({"X": X[:, :0]}, "12 rows and 0 columns"),
        ({"X": X[:0]}, "0 rows and 5 columns"),
        ({"X": X.astype(str)}, "X must hold numbers"),
        ({"X": X.astype(object)}, "Python objects"),
        ({"X": spoilt()}, "in columns 1, 4 at rows 3, 5"),
        ({"X": X, "y": Y[:-1]}, "'y' must have one value per case .12"),
        ({"X": X, "y": np.eye(N)}, "'y' must have one value per case .12"),
        ({"X": X, "y": np.array(["a"] * N)}, "every label is 'a'"),
        ({"X": X, "id": ["a"] * N}, "must be unique"),
        ({"X": X, "y": Y, "votes": VOTES}, "no column 'n_raters'"),
        ({"X": X, "y": Y, "votes": VOTES, "n_raters": 2}, "must not exceed n_raters"),
        ({"X": X, "split": ["train"] * 11 + ["validation"]}, "'split' must be one of 'train'"),
        ({"X": X, "split": ["train"] * 11 + [""]}, "'split' is empty at row 11"),
        ({"X": X, "group": ["a"] * 11 + [""]}, "'group' is empty at row 11"),
    ],
)
def test_bad_npz_is_one_line(tmp_path, arrays, says):
    with pytest.raises(InputError, match=says) as caught:
        read_features(put_npz(tmp_path, **arrays))
    assert "\n" not in str(caught.value)


def test_bad_tables(tmp_path):
    pq.write_table(pa.table({"f": [[1.0, 2.0], [3.0]]}), tmp_path / "r.parquet")
    with pytest.raises(InputError, match="same length, at least 1; got length 2 at row 0"):
        read_features(tmp_path / "r.parquet")
    pq.write_table(pa.table({"f": [1.0, 2.0]}), tmp_path / "r.parquet")
    with pytest.raises(InputError, match="must hold lists"):
        read_features(tmp_path / "r.parquet")
    (tmp_path / "g.csv").write_text("id,f0,f2\na,1,2\nb,3,4\n")
    with pytest.raises(InputError, match=r"f0 \.\. f2 should be 3, found 2"):
        read_features(tmp_path / "g.csv")
    (tmp_path / "g.csv").write_text("id,label\na,1\nb,0\n")
    with pytest.raises(InputError, match="no column 'f0'"):
        read_features(tmp_path / "g.csv")
    (tmp_path / "g.csv").write_text("id,e0,e1\na,1,2\nb,3,4\n")
    assert read_features(tmp_path / "g.csv", columns={"X": "e"}).X.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match="unknown column role 'Y'"):
        read_features(tmp_path / "g.csv", columns={"Y": "e"})
    (tmp_path / "bad.npz").write_bytes(b"PK nonsense")
    with pytest.raises(InputError, match=r"bad\.npz"):
        read_features(tmp_path / "bad.npz")
    with pytest.raises(InputError, match="no file at"):
        read_features(tmp_path / "none.npz")
    with pytest.raises(InputError, match="no features at"):
        read_features(tmp_path)


def test_labels_that_match_nothing(tmp_path):
    path = put_npz(tmp_path, X=X, id=IDS)
    (tmp_path / "l.csv").write_text("id,label\nx,1\n")
    with pytest.raises(
        InputError, match=r"f\.npz: no id is in l\.csv: '000', '001', '002', \.\.\."
    ):
        read_features(path, labels=tmp_path / "l.csv")
    with pytest.raises(InputError, match=r"no column 'id'.*to join"):
        read_features(put_npz(tmp_path, X=X), labels=tmp_path / "l.csv")


def test_the_file_that_is_wrong_is_named_first(tmp_path):
    path = put_npz(tmp_path, X=X, id=IDS, y=Y)
    for option in ("labels", "votes"):
        other = tmp_path / f"{option}.csv"
        other.write_text("id,label,rater\n000,1,a\n001,0\n")
        with pytest.raises(InputError, match="line 3 has 2 fields, expected 3") as caught:
            read_features(path, **{option: other})
        assert str(caught.value).startswith(str(other))
        other.write_text("id,label,rater\n000,1,a\n,0,b\n")
        with pytest.raises(InputError, match=rf"^{option}\.csv: .*line 3"):
            read_features(path, **{option: other})


def test_columns_of_votes_that_are_empty_are_no_votes(tmp_path):
    # As the data sets without readers have them (PatchCamelyon, BreakHis).
    nobody = {"votes": pd.array([None] * N, "Int64"), "n_raters": pd.array([None] * N, "Int64")}
    found = read_features(put_store(tmp_path, frame().assign(**nobody)))
    assert found.cases.votes is None
    assert found.y.tolist() == Y.tolist()


def test_paths_of_images_are_kept_through_missing_labels(tmp_path):
    paths = [f"images/{i}.png" for i in range(N - 1)] + [None]
    labels = pd.array([None, *Y[1:]], "Int64")
    table = frame().drop(columns=["votes", "n_raters"]).assign(path=paths, label=labels)
    found = read_features(put_store(tmp_path, table))
    assert found.cases.paths.tolist() == [*paths[:-1], ""]
    assert found.labelled().cases.paths.tolist() == [*paths[1:-1], ""]
    assert read_features(put_npz(tmp_path, X=X)).cases.paths is None


@pytest.mark.parametrize("name", ["embedding", "features", "X"])
def test_the_only_list_column_is_the_embeddings_whatever_its_name(tmp_path, name):
    table = pa.Table.from_pandas(frame()).append_column(name, pa.array(X.tolist()))
    pq.write_table(table, tmp_path / "f.parquet")
    assert np.allclose(read_features(tmp_path / "f.parquet").X, X)


def test_of_several_list_columns_none_is_guessed(tmp_path):
    lists = pa.array(X.tolist())
    table = pa.Table.from_pandas(frame()).append_column("a", lists).append_column("b", lists)
    pq.write_table(table, tmp_path / "f.parquet")
    with pytest.raises(InputError, match="one list column"):
        read_features(tmp_path / "f.parquet")
    assert read_features(tmp_path / "f.parquet", columns={"X": "b"}).X.shape == X.shape


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("role", ["group", "split", "label"])
def test_a_column_that_was_named_and_is_not_there_is_an_error(tmp_path, source, role):
    with pytest.raises(InputError, match=f"'splt'.*named as the {role} column"):
        read_features(SOURCES[source](tmp_path), columns={role: "splt"})


@pytest.mark.parametrize("source", ["npz", "store"])
def test_columns_go_by_the_names_given(tmp_path, source):
    if source == "npz":
        path = put_npz(tmp_path, **EVERYTHING, patient=GROUP[::-1])
    else:
        path = put_store(tmp_path, frame().assign(patient=GROUP[::-1]))
    found = read_features(path, columns={"group": "patient"})
    assert found.groups.tolist() == GROUP[::-1].tolist()


def test_labels_of_an_npz_may_be_called_label(tmp_path):
    found = read_features(put_npz(tmp_path, X=X, label=Y))
    assert found.y.tolist() == Y.tolist()


def test_whole_numbers_are_features_too(tmp_path):
    whole = np.arange(N * 2).reshape(N, 2)
    found = read_features(put_npz(tmp_path, X=whole, y=Y))
    assert found.X.dtype == np.float64
    assert np.asarray(found.X).tolist() == whole.tolist()


def test_columns_under_other_names_are_suggested_and_not_used(tmp_path):
    path = put_npz(tmp_path, X=X, y=Y, patient=np.arange(len(Y)) // 2)
    found = read_features(path)
    assert found.cases.groups is None
    assert found.cases.notes == (
        "There is no column 'group'; 'patient' could be it: --columns group=patient "
        "(in Python columns={'group': 'patient'}).",
    )
    named = read_features(path, columns={"group": "patient"})
    assert named.cases.groups is not None
    assert named.cases.notes == ()
    with pytest.raises(
        InputError, match=r"no labels.*'target' could be it: --columns label=target"
    ):
        read_features(put_npz(tmp_path, X=X, target=Y)).labelled()
    with pytest.raises(InputError, match="Did you mean 'embeddings'"):
        read_features(put_npz(tmp_path, embeddings=X, y=Y))
